// SPDX-License-Identifier: GPL-2.0-only
//! Shares of time under usher by weight and by place: of tasks bound to one CPU, in a part of a cache's CPUs, and beside much heavier
//! ones; and how long who gets least of it waits.

mod common;

use std::sync::Arc;

use common::*;
use usher_sim::cpuset::CpuSet;
use usher_sim::program::{Action, Class, TaskCtx, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, World};
use usher_sim::{Cpu, Report};

/// So many CPUs from one on.
fn cpus(first: u32, count: u32) -> Arc<CpuSet> {
    let mut set = CpuSet::new();
    (first..first + count).for_each(|cpu| set.insert(Cpu(cpu)));
    Arc::new(set)
}

/// Never sleeps, and counts how often it has worked for 1 ms.
fn worker(world: &mut World, name: &str, nice: i8) -> TaskSpec {
    let worked = world.new_counter(name);
    let program = move |ctx: &mut TaskCtx<'_>| {
        ctx.count(worked, 1);
        Action::Compute(MS)
    };
    TaskSpec::new(name, program).class(Class::Normal { nice })
}

/// As a worker; samples the longest time between two looks at the clock, which is how long it waits.
fn waiter(world: &mut World, name: &str, nice: i8) -> TaskSpec {
    let waits = world.new_latency(name);
    let mut before = 0;
    let program = move |ctx: &mut TaskCtx<'_>| {
        ctx.sample(waits, ctx.now() - before);
        before = ctx.now();
        Action::Compute(MS / 10)
    };
    TaskSpec::new(name, program).class(Class::Normal { nice })
}

/// Works for 0.2 ms every 10 ms.
fn light() -> TaskSpec {
    let mut works = false;
    let program = move |_: &mut TaskCtx<'_>| {
        works = !works;
        match works {
            true => Action::Compute(MS / 5),
            false => Action::Sleep(10 * MS),
        }
    };
    TaskSpec::new("light", program)
}

/// How much of what all of these workers did each of them did.
fn shares<const N: usize>(report: &Report, names: [&str; N]) -> [f64; N] {
    let done = names.map(|name| report.metrics[name]);
    done.map(|each| each / done.iter().sum::<f64>())
}

// Goal: tasks bound to one CPU share it by weight. Method: two of nice 0 and 5, 0 and 19, and -20 and 0. In turns by slice each
// would get half. Catches: own queues that are served without a look at whose turn it is.
#[test]
fn who_is_bound_gets_its_share() {
    for (nices, expected) in [([0, 5], 0.75), ([0, 19], 0.985), ([-20, 0], 0.988)] {
        let mut world = World::new();
        let tasks = [("first", nices[0]), ("second", nices[1])]
            .map(|(name, nice)| worker(&mut world, name, nice).affinity(only(1)));
        let report = on_four_cpus("usher", world, tasks.into(), 10 * SEC);
        let [first, _] = shares(&report, ["first", "second"]);
        assert!((first - expected).abs() < 0.02, "{nices:?}: {first}");
    }
}

// Goal: who weighs least is not left waiting for seconds on end, however heavy or many the others are. Method: the longest wait of one of
// nice 19 beside one of nice -20, both bound to a CPU; on four CPUs beside four of nice -20; and beside 60 of nice 0 for each CPU.
// A kernel ejects a scheduler that lets a task wait for ten. Catches: a time ahead of the queue's that is bounded, while the queue's
// clock hardly moves.
#[test]
fn who_weighs_least_does_not_wait_for_ever() {
    for (bound, heavy, count) in [(true, -20, 1), (false, -20, 4), (false, 0, 240)] {
        let mut world = World::new();
        let mut tasks = vec![waiter(&mut world, "waits", 19)];
        tasks.extend((0..count).map(|n| worker(&mut world, &format!("heavy{n}"), heavy)));
        if bound {
            tasks = tasks.into_iter().map(|t| t.affinity(only(1))).collect();
        }
        let report = on_four_cpus("usher", world, tasks, 14 * SEC);
        let waited = report.metrics["waits_ns_max"] / SEC as f64;
        assert!((1.0..7.0).contains(&waited), "{heavy}, {count}: {waited} s");
    }
}

/// Four CPUs of sixteen with one queue are for three tasks each and some light ones; one runs alone elsewhere.
fn beside_one_alone(nice: Option<i8>) -> Report {
    let mut world = World::new();
    let crowded = cpus(0, 4);
    let mut tasks: Vec<TaskSpec> = (0..4)
        .map(|_| light().affinity(Arc::clone(&crowded)))
        .collect();
    for n in 0..6 {
        let heavy = worker(&mut world, &format!("heavy{n}"), 0);
        let lighter = worker(&mut world, &format!("lighter{n}"), 5);
        tasks.extend([heavy, lighter].map(|task| task.affinity(Arc::clone(&crowded))));
    }
    if let Some(nice) = nice {
        tasks.push(worker(&mut world, "alone", nice).affinity(cpus(8, 8)));
    }
    let costs = usual_costs();
    let machine = machine("l3:1 core:16 pu:1", costs);
    run_under("usher", machine, workload(world, tasks, Stop::At(2 * SEC)))
}

// Goal: some CPUs of a cache that are crowded, as those of a container, are shared by weight, and who sleeps mostly does not wait there,
// whoever runs alone elsewhere. Method: with nobody elsewhere, and with one of nice 0, 5 and 19. Catches: a clock that goes with whoever
// goes fastest, beyond all who wait.
#[test]
fn who_runs_alone_elsewhere_changes_nothing() {
    for alone in [None, Some(0), Some(5), Some(19)] {
        let report = beside_one_alone(alone);
        let of =
            |kind: &str| -> f64 { (0..6).map(|n| report.metrics[&format!("{kind}{n}")]).sum() };
        let share = of("heavy") / (of("heavy") + of("lighter"));
        let waits = report.metrics["wake_latency_ns_p90"] / MS as f64;
        assert!(
            (share - 0.75).abs() < 0.03 && waits < 1.0,
            "{alone:?}: {share}, {waits} ms"
        );
    }
}

// Goal: tasks that wake each other after a few microseconds have no more than their share. Method: two of them, and one that never sleeps, on one CPU,
// turns from far below a step of virtual time to beyond it, and of greater weight. Where short turns cost nothing that one had from 0.1 to 5 %.
// Catches: charges that are rounded down.
#[test]
fn short_turns_count() {
    for (turn_ns, nice, due) in [
        (1_000, 0, 0.33),
        (3_500, 0, 0.33),
        (5_500, 0, 0.33),
        (21_000, -10, 0.05),
    ] {
        let mut world = World::new();
        let channels = [0; 2].map(|_| world.new_channel(ChannelSpec::PIPE));
        let mut tasks = vec![worker(&mut world, "hog", 0)];
        for first in [true, false] {
            let [from, to] = if first {
                channels
            } else {
                [channels[1], channels[0]]
            };
            let mut step = if first { 1 } else { 0 };
            let program = move |_: &mut TaskCtx<'_>| {
                step += 1;
                let (bytes, exact) = (1, true);
                match step % 3 {
                    1 => Action::Read {
                        channel: from,
                        bytes,
                        exact,
                    },
                    2 => Action::Compute(turn_ns),
                    _ => Action::Write { channel: to, bytes },
                }
            };
            tasks.push(TaskSpec::new("short", program).class(Class::Normal { nice }));
        }
        let end = 3 * SEC;
        let report = run_under(
            "usher",
            machine("l3:1 core:1 pu:1", usual_costs()),
            workload(world, tasks, Stop::At(end)),
        );
        let had = report.metrics["hog"] * MS as f64 / end as f64;
        assert!(
            had > 0.9 * due && had < 2.0 * due,
            "turns of {turn_ns} ns: the hog had {had}"
        );
    }
}

// Goal: CPUs that idle beside work which may not run there idle. Method: six tasks that may run on two CPUs of sixteen, and one that runs and sleeps. They
// looked for that work without end. Catches: idle CPUs that look again whenever they found nothing.
#[test]
fn who_may_not_run_elsewhere_keeps_nobody_busy() {
    let mut world = World::new();
    let mut tasks: Vec<_> = (0..6)
        .map(|_| worker(&mut world, "bound", 0).affinity(cpus(0, 2)))
        .collect();
    tasks.push(light());
    let machine = machine("l3:2 core:8 pu:1", usual_costs());
    let report = run_under("usher", machine, workload(world, tasks, Stop::At(SEC)));
    let busy = report.metrics["utilisation"] * 16.0;
    assert!(busy < 2.5, "{busy} CPUs are busy");
}
