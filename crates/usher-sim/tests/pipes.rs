// SPDX-License-Identifier: GPL-2.0-only
//! Who waits at a pipe and who is woken, on a machine on which nothing costs anything.

mod common;

use common::*;
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{Channel, ChannelSpec, World};
use usher_sim::{Nanos, Report};

const PAGE: u64 = 4096;

/// What a task does: at this time of the run, in ms, this.
type Deeds = Vec<(Nanos, Action)>;

/// Runs tasks that go to work on a pipe, each on its own CPU; none sleeps but in the pipe. A task's deed, its name and number, is
/// done at the time of the metric of that name.
fn at_a_pipe(deeds: impl FnOnce(Channel) -> Vec<(&'static str, Deeds)>) -> Report {
    let mut world = World::new();
    let pipe = world.new_channel(ChannelSpec::PIPE);
    let mut tasks = Vec::new();
    for (name, deeds) in deeds(pipe) {
        let mut deeds = deeds.into_iter().enumerate();
        let mut due = None;
        let done = (0..deeds.len())
            .map(|n| world.new_value(&format!("{name}{n}_ms")))
            .collect::<Vec<_>>();
        let mut last = None;
        let program = move |ctx: &mut TaskCtx<'_>| {
            if let Some(action) = due.take() {
                return action;
            }
            if let Some(n) = last {
                let value: usize = n;
                ctx.set_value(done[value], ctx.now() / MS);
            }
            let Some((n, (at, action))) = deeds.next() else {
                return Action::Exit;
            };
            (last, due) = (Some(n), Some(action));
            Action::Compute((at * MS).saturating_sub(ctx.now()))
        };
        tasks.push(TaskSpec::new(name, program).affinity(only(tasks.len() as u32)));
    }
    let machine = machine(&format!("core:{} pu:1", tasks.len()), free_costs());
    run(machine, workload(world, tasks, Stop::AllExit), 1).expect("runs")
}

fn write(channel: Channel, bytes: u64) -> Action {
    Action::Write { channel, bytes }
}

fn read(channel: Channel, bytes: u64) -> Action {
    Action::Read {
        channel,
        bytes,
        exact: true,
    }
}

/// When deeds were done, in ms.
fn done<const N: usize>(report: &Report, names: [&str; N]) -> [f64; N] {
    names.map(|name| report.metrics[&format!("{name}_ms")])
}

// Goal: a read of a full pipe wakes one writer even if it frees no slot; that writer goes to the tail, and others come before it.
// Method: 16 pages, then writers a, b, c wait for a slot each. A read of 100 bytes wakes a, in vain. Three more reads free a slot
// each: for b, c, a. Four wakeups.
#[test]
fn who_is_woken_in_vain_goes_to_the_tail() {
    let report = at_a_pipe(|pipe| {
        let reads = [(10, 100), (20, PAGE - 100), (30, PAGE), (40, PAGE)];
        let mut tasks: Vec<(&str, Deeds)> = vec![
            ("filler", vec![(0, write(pipe, 16 * PAGE))]),
            (
                "reader",
                reads.map(|(at, bytes)| (at, read(pipe, bytes))).into(),
            ),
        ];
        for (at, name) in [(1, "a"), (2, "b"), (3, "c")] {
            tasks.push((name, vec![(at, write(pipe, PAGE))]));
        }
        tasks
    });
    assert_eq!(done(&report, ["a0", "b0", "c0"]), [40.0, 20.0, 30.0]);
    assert_eq!(report.metrics["wakeups"], 4.0);
}

// Goal: who has waited and got in passes the turn on while slots are free, and not if the ring is full.
// Method: one read frees two slots of three that are waited for; the third comes with the next read.
#[test]
fn the_turn_is_passed_on_while_slots_are_free() {
    let report = at_a_pipe(|pipe| {
        vec![
            ("filler", vec![(0, write(pipe, 16 * PAGE))]),
            (
                "reader",
                vec![(10, read(pipe, 2 * PAGE)), (20, read(pipe, PAGE))],
            ),
            ("a", vec![(1, write(pipe, 100))]),
            ("b", vec![(2, write(pipe, 100))]),
            ("c", vec![(3, write(pipe, PAGE))]),
        ]
    });
    assert_eq!(done(&report, ["a0", "b0", "c0"]), [10.0, 10.0, 20.0]);
    assert_eq!(report.metrics["wakeups"], 3.0);
}

// Goal: who is awake adds to the last page while others wait for a slot; who has waited takes a slot, and room in the last page
// does not let it out.
// Method: a full ring whose last page has 96 bytes free. `a` writes 100 and waits; `b` adds 90 and is done; `c` writes 4, waits for
// nothing, too. After a read of 100 `a` is woken and waits again; with a free slot it gets in. `b` then adds to its page.
#[test]
fn who_is_awake_adds_to_the_last_page() {
    let report = at_a_pipe(|pipe| {
        vec![
            ("filler", vec![(0, write(pipe, 16 * PAGE - 96))]),
            (
                "reader",
                vec![(10, read(pipe, 100)), (20, read(pipe, PAGE - 100))],
            ),
            ("a", vec![(1, write(pipe, 100))]),
            (
                "b",
                vec![(2, write(pipe, 90)), (25, write(pipe, PAGE - 100))],
            ),
            ("c", vec![(3, write(pipe, 4))]),
        ]
    });
    assert_eq!(
        done(&report, ["a0", "b0", "b1", "c0"]),
        [20.0, 2.0, 25.0, 3.0]
    );
    assert_eq!(report.metrics["wakeups"], 2.0);
}

// Goal: a write of more than the ring holds wakes the reader before it waits, and goes on as slots come free.
// Method: 20 pages and a half in one write, to a reader that has come first, and to one that comes later.
#[test]
fn large_writes_go_in_pieces() {
    for (reads_at, expected) in [(0, 5.0), (9, 9.0)] {
        let bytes = 20 * PAGE + PAGE / 2;
        let report = at_a_pipe(|pipe| {
            vec![
                ("reader", vec![(reads_at, read(pipe, bytes))]),
                ("writer", vec![(5, write(pipe, bytes))]),
            ]
        });
        assert_eq!(done(&report, ["reader0", "writer0"]), [expected; 2]);
    }
}

// Goal: a write to an empty pipe wakes one reader, which wakes the next if it leaves something, and that none if it does not.
// Method: three readers of 100 bytes wait; 200 bytes come at once, 100 later. A reader that never waited wakes nobody.
#[test]
fn readers_pass_the_turn_on() {
    let report = at_a_pipe(|pipe| {
        let reader = |at, name| (name, vec![(at, read(pipe, 100))]);
        vec![
            reader(1, "a"),
            reader(2, "b"),
            reader(3, "c"),
            ("writer", vec![(5, write(pipe, 200)), (7, write(pipe, 100))]),
        ]
    });
    assert_eq!(done(&report, ["a0", "b0", "c0"]), [5.0, 5.0, 7.0]);
    assert_eq!(report.metrics["wakeups"], 3.0);
}

// Goal: nothing is written or read in no time, and wakes nobody.
// Method: a write and a read of no bytes beside a waiting reader.
#[test]
fn nothing_is_nothing() {
    let report = at_a_pipe(|pipe| {
        vec![
            ("a", vec![(1, read(pipe, 100))]),
            (
                "b",
                vec![
                    (2, write(pipe, 0)),
                    (3, read(pipe, 0)),
                    (4, write(pipe, 100)),
                ],
            ),
        ]
    });
    assert_eq!(
        done(&report, ["a0", "b0", "b1", "b2"]),
        [4.0, 2.0, 3.0, 4.0]
    );
    assert_eq!(report.metrics["wakeups"], 1.0);
}
