// SPDX-License-Identifier: GPL-2.0-only
//! Idle states, and what it takes to leave them.

mod common;

use common::{Step::Act, *};
use usher_sim::program::{Action, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::World;
use usher_sim::{Machine, Nanos};

/// What leaving the second idle state takes.
const EXIT: Nanos = 100 * US;

/// A core of two threads that have a second idle state, for more than 600 us; nothing else costs anything.
fn core() -> Machine {
    let mut costs = free_costs();
    let mut deep = costs.idle_states[0].clone();
    (deep.name, deep.exit_ns, deep.residency_ns) = ("C6".into(), EXIT, 600 * US);
    deep.wake_ns = Some(EXIT);
    costs.idle_states.push(deep);
    let housekeeping = costs.set("idle.idle_housekeeping_ns", 100 * MS);
    housekeeping.expect("a known name");
    machine("core:1 pu:2", costs)
}

/// On CPU 1, so many times: sleeps so long and computes.
fn sleeps(times: u32, ns: Nanos) -> TaskSpec {
    let program = move |i| match i {
        0 => Action::Sleep(ns),
        _ => Action::Compute(US),
    };
    TaskSpec::new("sleeps", repeat(times, program, 2)).affinity(only(1))
}

/// How late a task is that wakes on CPU 0 after 20 ms of sleep, while CPU 1 does something. Before, it sleeps a millisecond at a time, so that
/// the governor expects long sleeps.
fn late(sibling: TaskSpec) -> Nanos {
    let mut world = World::new();
    let (begin, end) = (world.new_value("begin"), world.new_value("end"));
    let mut steps: Vec<Step> = (0..20)
        .flat_map(|_| [Act(Action::Sleep(MS)), Act(Action::Compute(US))])
        .collect();
    steps.extend([
        Step::Stamp(begin),
        Act(Action::Sleep(20 * MS)),
        Step::Stamp(end),
    ]);
    let sleeper = TaskSpec::new("sleeper", script(steps)).affinity(only(0));
    let workload = workload(world, vec![sleeper, sibling], Stop::At(60 * MS));
    let metrics = run_under("fifo", core(), workload).metrics;
    (metrics["end"] - metrics["begin"]) as Nanos - 20 * MS
}

// Goal: a core is in the idle state of its thread that sleeps least deeply, so who wakes beside one that runs, or sleeps for moments, is
// soon out of its own. Catches: threads whose idle states are theirs alone, which made every wakeup beside a busy sibling late by the
// deepest state's exit.
#[test]
fn a_core_sleeps_as_deeply_as_its_threads() {
    assert_eq!(late(sleeps(20, MS)), EXIT, "it has slept for long");
    assert_eq!(late(hog().affinity(only(1))), 0, "it runs");
    assert_eq!(late(sleeps(1000, 60 * US)), 0, "it sleeps for moments");
}
