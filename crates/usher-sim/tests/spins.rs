// SPDX-License-Identifier: GPL-2.0-only
//! A spin ends by the clock, a computation by the work done.

mod common;

use common::Step::{Act, Stamp};
use common::*;
use usher_sim::program::{Action, Class, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{ValueId, World};
use usher_sim::{Nanos, Report};

/// A task on CPU 0 that does one thing, with the times between which it does it.
fn timed(world: &mut World, before: Vec<Step>, action: Action) -> TaskSpec {
    let [began, ended]: [ValueId; 2] = ["began_ns", "ended_ns"].map(|name| world.new_value(name));
    let mut steps = before;
    steps.extend([Stamp(began), Act(action), Stamp(ended)]);
    TaskSpec::new("timed", script(steps)).affinity(only(0))
}

fn took(report: &Report) -> f64 {
    report.metrics["ended_ns"] - report.metrics["began_ns"]
}

// Goal: a spin lasts as long as it says, alone or beside a busy thread of its core, where a computation takes longer.
// Method: 10 ms on a core of two threads that get 60 % each, with a sibling that computes and one that sleeps; checkers on.
#[test]
fn a_busy_sibling_does_not_prolong_a_spin() {
    let beside = |busy: bool, action| {
        let mut costs = free_costs();
        costs.smt_share_permille = vec![1000, 600];
        let mut world = World::new();
        let mut tasks = vec![timed(&mut world, Vec::new(), action)];
        if busy {
            // Starts in the middle: what runs already changes its speed.
            let steps = [Act(Action::SleepUntil(MS)), Act(Action::Compute(60 * MS))];
            tasks.push(TaskSpec::new("sibling", script(steps.into())).affinity(only(1)));
        }
        let machine = machine("core:1 pu:2", costs);
        took(&run(machine, workload(world, tasks, Stop::AllExit), 1).expect("runs"))
    };
    assert_eq!(beside(false, Action::Spin(10 * MS)), 10e6);
    assert_eq!(beside(true, Action::Spin(10 * MS)), 10e6);
    assert_eq!(beside(false, Action::Compute(10 * MS)), 10e6);
    assert_near("work", beside(true, Action::Compute(10 * MS)), 16e6, 0.1);
}

// Goal: the clock goes on while a spinning task waits: it ends at its time if it runs then, else as soon as it runs again, and
// a spin of nothing takes nothing.
// Method: a real-time task takes the CPU from 5 to 25 ms; spins that end before, in between and after; the work of both adds up.
#[test]
fn waiting_counts_as_spinning() {
    let with = |ns: Nanos| {
        let mut world = World::new();
        let steps = [
            Act(Action::SleepUntil(5 * MS)),
            Act(Action::Compute(20 * MS)),
        ];
        let urgent = TaskSpec::new("urgent", script(steps.into()))
            .affinity(only(0))
            .class(Class::Fifo { prio: 50 });
        let spinner = timed(&mut world, Vec::new(), Action::Spin(ns));
        let machine = machine("core:1 pu:1", free_costs());
        let report = run_under(
            "cfs-6.0",
            machine,
            workload(world, vec![spinner, urgent], Stop::AllExit),
        );
        report.metrics["ended_ns"]
    };
    assert_eq!(
        [0, 3, 10, 30].map(|ms| (with(ms * MS) / 1e6).floor()),
        [0.0, 3.0, 25.0, 30.0]
    );
}

// Goal: neither interrupts nor cold caches prolong a spin; both prolong work.
// Method: at the usual costs, after a sleep in which another task has filled the caches, 9.7 ms, in which ticks come.
#[test]
fn interrupts_and_cold_caches_do_not_prolong_a_spin() {
    let cold = |action| {
        let mut world = World::new();
        let warm_up = vec![Act(Action::Compute(2 * MS)), Act(Action::Sleep(3 * MS))];
        let timed = timed(&mut world, warm_up, action).memory(1024, 0);
        let steps = [
            Act(Action::SleepUntil(2_500 * US)),
            Act(Action::Compute(MS)),
        ];
        let other = TaskSpec::new("other", script(steps.into()))
            .affinity(only(0))
            .memory(4096, 0);
        let costs = usual_costs();
        let machine = machine("core:1 pu:1", costs);
        let tasks = vec![timed, other];
        run(machine, workload(world, tasks, Stop::AllExit), 1).expect("runs")
    };
    let [spun, worked] = [Action::Spin(9_700 * US), Action::Compute(9_700 * US)].map(cold);
    assert!(spun.metrics["ticks"] >= 3.0, "{}", spun.metrics["ticks"]);
    assert_eq!(took(&spun), 9.7e6);
    assert!(took(&worked) > 9.72e6, "{}", took(&worked));
    assert!(worked.metrics["refill_share"] > spun.metrics["refill_share"]);
}
