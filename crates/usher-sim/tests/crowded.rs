// SPDX-License-Identifier: GPL-2.0-only
//! Running tasks that share a core, and the cores of their own that usher finds for them.

mod common;

use std::sync::Arc;

use common::{Step::Act, *};
use usher_sim::cpuset::CpuSet;
use usher_sim::program::{Action, Hint, TaskCtx, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::World;
use usher_sim::{Cpu, Machine, Nanos, Report};

/// Two threads of a core do half as much each; nothing else costs anything.
fn halves(shape: &str) -> Machine {
    let mut costs = free_costs();
    costs.smt_share_permille = vec![1000, 500];
    costs.set("tick.hz", 250).expect("a known name");
    machine(shape, costs)
}

fn computes(ns: Nanos) -> TaskSpec {
    TaskSpec::new("computes", script(vec![Act(Action::Compute(ns))]))
}

/// Until all of the tasks have ended, in milliseconds.
fn elapsed_ms(policy: &str, shape: &str, tasks: Vec<TaskSpec>) -> f64 {
    let workload = workload(World::new(), tasks, Stop::AllExit);
    let report = run_under(policy, halves(shape), workload);
    report.metrics["simulated_ns"] / MS as f64
}

const SHAPES: [&str; 3] = [
    "numa:1 l3:1 core:4 pu:2",
    "numa:1 l3:2 core:2 pu:2",
    "numa:2 l3:1 core:2 pu:2",
];

/// Two tasks on each of four cores, of which those on two end after 40 ms; what the others do.
fn two_cores_become_idle(long: impl Fn() -> TaskSpec) -> Vec<TaskSpec> {
    let task = |i: u64| {
        let task = match i % 4 >= 2 {
            true => long(),
            false => computes(20 * MS),
        };
        task.start(i * US)
    };
    (0..8).map(task).collect()
}

// Goal: tasks that share a core part when other cores become idle, in their LLC, in another one and in another node.
// Method: two pairs of them would take 800 ms, and did. Catches: tasks that look once, in their LLC or node only, or not at all;
// and the switch that turns it off.
#[test]
fn pairs_part_when_cores_become_idle() {
    for shape in SHAPES {
        let took = |policy| elapsed_ms(policy, shape, two_cores_become_idle(|| computes(400 * MS)));
        assert_near(shape, took("usher"), 422.0, 1.0);
        assert_near(shape, took("usher:uncrowd=false"), 800.0, 1.0);
    }
}

// Goal: who holds stays in its LLC. Method: the same with the hint; the pairs part in one LLC and not in two.
#[test]
fn who_holds_stays_near() {
    let [one, two, _] = SHAPES;
    let took = |shape| {
        elapsed_ms(
            "usher",
            shape,
            two_cores_become_idle(|| computes(400 * MS).hint(Hint::WAKE_HOLD)),
        )
    };
    assert_near(one, took(one), 422.0, 1.0);
    assert_near(two, took(two), 800.0, 1.0);
}

// Goal: who sleeps every few slices leaves its LLC, and not its node, where those are whom it wakes or takes turns with at a lock.
// Method: the same, in turns of 10 and of 40 ms with a short sleep after each; all are born where the pairs share cores, as one node is filled
// after the other. Catches: a group that shares locks is torn apart.
#[test]
fn who_sleeps_now_and_then_stays_in_its_node() {
    let in_turns = |turn: Nanos| {
        let step = |_| [Act(Action::Compute(turn)), Act(Action::Sleep(50 * US))];
        let steps = (0..400 * MS / turn).flat_map(step).collect();
        TaskSpec::new("in turns", script(steps))
    };
    let [_, llcs, nodes] = SHAPES;
    for (shape, turn, least, most) in [
        (llcs, 10 * MS, 400.0, 450.0),
        (nodes, 10 * MS, 750.0, 850.0),
        (nodes, 40 * MS, 400.0, 500.0),
    ] {
        let tasks = two_cores_become_idle(|| in_turns(turn));
        let took = elapsed_ms("usher:fork-balance=false", shape, tasks);
        assert!(
            (least..most).contains(&took),
            "{shape}, {turn} ns: {took} ms"
        );
    }
}

// Goal: who can go does, if the other one cannot. Method: on the second thread of a core one that may run nowhere else, on the
// first one that may move, and until 40 ms two on the other core. Catches: first threads whose tasks always stay.
#[test]
fn who_may_move_leaves_who_may_not() {
    let on = |cpus: &[u32], ns| {
        let set: CpuSet = cpus.iter().map(|&cpu| Cpu(cpu)).collect();
        computes(ns).affinity(Arc::new(set))
    };
    let tasks = vec![
        on(&[1], 400 * MS),
        on(&[2], 20 * MS),
        on(&[3], 20 * MS),
        on(&[0, 2, 3], 400 * MS).start(US),
    ];
    let took = elapsed_ms("usher", "numa:1 l3:1 core:2 pu:2", tasks);
    assert_near("ms", took, 424.0, 1.0);
}

// Goal: nobody leaves a core for the sake of who is there for a moment. Method: three tasks that never sleep, and eight that work for
// 0.3 ms at a time, on four cores. Looking at one turn alone it was 89 moves in two seconds. Catches: that.
#[test]
fn light_tasks_drive_nobody_off() {
    let light = |i: u64| {
        let mut works = false;
        TaskSpec::new("light", move |_: &mut TaskCtx<'_>| {
            works = !works;
            match works {
                true => Action::Compute(300 * US),
                false => Action::Sleep(1000 * US + i * 77 * US),
            }
        })
    };
    let tasks = (0..3).map(|_| hog()).chain((0..8).map(light)).collect();
    let workload = workload(World::new(), tasks, Stop::At(2 * SEC));
    let report: Report = run_under("usher", halves(SHAPES[0]), workload);
    assert!(report.counters["moved"] <= 8, "{:?}", report.counters);
}
