// SPDX-License-Identifier: GPL-2.0-only
//! Every order in which the core's protocols can run, scenario by scenario. The scenarios and their
//! properties are in `core/tests/scenarios.h`, `levels.h` and `misfits.h`. The last four are too large for every order: of
//! those, every order in which actors are interrupted four or five times at most (but for as long as you like); with
//! more time, `--example check --bound 7` and so on.

use usher_core::model::Build;

fn check(name: &str, at_least: u128) {
    explore(name, None, at_least);
}

fn explore(name: &str, preemptions: Option<u8>, at_least: u128) {
    let scenario = Build::real()
        .scenario(name)
        .expect("the scenario is listed");
    assert!(scenario.nr_actors() >= 3);
    let explored = match preemptions {
        None => scenario.explore(),
        Some(preemptions) => scenario.explore_bounded(preemptions),
    };
    let report = explored.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(
        report.rests > 0 && report.interleavings >= at_least,
        "{report:?}"
    );
}

// Goal: an idle CPU goes to one claimer, and no claimer leaves empty-handed while one is left.
#[test]
fn claim_against_claim() {
    check("claim_against_claim", 10_000);
}

// Goal: a CPU that was claimed for nothing is back in the map in the end.
#[test]
fn claim_against_idle_again() {
    check("claim_against_idle_again", 1_000_000);
}

// Goal: a search that clears a summary bit never hides a CPU that goes idle meanwhile for good.
#[test]
fn idle_against_retire() {
    check("idle_against_retire", 1_000_000_000);
}

// Goal: nor does it leave a third CPU's task waiting that looked while the bit was clear.
#[test]
fn look_against_retire() {
    check("look_against_retire", 1_000_000_000);
}

// Goal: a CPU claimed to fetch a task and given another one passes the errand on.
#[test]
fn take_against_look() {
    check("take_against_look", 1_000);
}

// Goal: enqueue then look against mark idle then look: a task never waits beside an idle CPU, though the
// backlog names the queue before it is filled, and somebody else claims the CPU meanwhile.
#[test]
fn fill_against_idle() {
    check("fill_against_idle", 1_000_000);
}

// Goal: the same for a whole wakeup, with a CPU of its own LLC and one of another node going idle.
#[test]
fn wake_against_idle() {
    check("wake_against_idle", 1_000_000_000);
}

// Goal: where CPUs of other LLCs leave a queue alone since who waits there runs soon, nobody waits beside an idle CPU of its LLC.
#[test]
fn soon_against_idle() {
    check("soon_against_idle", 1_000);
}

// Goal: nor while somebody sees that it has come to that, and hides the queue from the others.
#[test]
fn eased_against_idle() {
    check("eased_against_idle", 1_000);
}

// Goal: who waited there all the time between two ticks is taken by an idle CPU of whatever LLC.
#[test]
fn overdue_against_idle() {
    check("overdue_against_idle", 1_000);
}

// Goal: plain stores to a queue's clock lose at most an update.
#[test]
fn clock_against_clock() {
    check("clock_against_clock", 1_000);
}

// Goal: of the CPU priority map, a CPU whose level rises is found at one of its levels by a search that runs
// meanwhile, though summaries are stale; and everybody is found once all is at rest.
#[test]
fn raise_against_find() {
    check("raise_against_find", 10_000_000);
}

// Goal: the same for a search of another node, level by level.
#[test]
fn raise_against_find_lowest() {
    check("raise_against_find_lowest", 100_000);
}

// Goal: a search that takes a shard and a level out of the summaries loses nobody who comes to that level meanwhile,
// and names no CPU at a level that it never had.
#[test]
fn set_against_retire() {
    check("set_against_retire", 1_000_000);
}

// Goal: nor do two such searches at the same time.
#[test]
fn retire_against_retire() {
    check("retire_against_retire", 1_000_000_000);
}

// Goal: two urgent tasks never take the same CPU, and one of them gets one, while a CPU that both see is about to run
// something urgent itself.
#[test]
fn preempt_against_preempt() {
    check("preempt_against_preempt", 5_000);
}

// Goal: of as many CPUs as there are urgent tasks each gets one, though all begin their search at the same.
#[test]
fn three_preempt() {
    check("three_preempt", 400);
}

// Goal: a task that may run on one CPU only, another one of that kind for the CPU beside it, and one that may run
// anywhere share those two CPUs: each goes to one of them, though what one of the CPUs runs becomes more urgent
// meanwhile, and who is refused leaves no mark.
#[test]
fn pinned_against_preempt() {
    check("pinned_against_preempt", 10_000_000);
}

// Goal: such tasks do not take a CPU that ran something as urgent when they began to look, nor are they refused one
// that nobody takes.
#[test]
fn pinned_against_rise() {
    check("pinned_against_rise", 10_000_000);
}

// Goal: a CPU that is taken is taken by nobody else until its task has run, can then be taken again, and is free in the
// end.
#[test]
fn pinned_in_turn() {
    check("pinned_in_turn", 100_000_000);
}

// Goal: a heavy task on a weak CPU is not forgotten while strong CPUs go idle, and one that is light now is called once at most.
#[test]
fn misfit_against_call() {
    check("misfit_against_call", 1_000_000);
}

// Goal: enqueue then look, mark idle then look, and a third CPU that hides the queue for a moment.
#[test]
fn idle_against_queue() {
    explore("idle_against_queue", Some(5), 1_000_000);
}

// Goal: whoever hid a queue with two tasks from a CPU going idle sends somebody for the second.
#[test]
fn two_tasks_against_retire() {
    explore("two_tasks_against_retire", Some(4), 1_000_000);
}

// Goal: a task that arrives in its queue only after the look is found by the late look.
#[test]
fn late_queue_against_idle() {
    explore("late_queue_against_idle", Some(4), 1_000_000);
}

// Goal: a CPU that fills the queues of two LLCs one after the other does not leave the first task beside an idle CPU. Catches: a
// host that looks again only at ticks and dispatch.
#[test]
fn two_late_queues() {
    explore("two_late_queues", Some(2), 10_000);
}

// Goal: a task that an interrupt leaves on a sleeping CPU is not left there.
#[test]
fn interrupt_against_idle() {
    explore("interrupt_against_idle", Some(4), 1_000_000);
}
