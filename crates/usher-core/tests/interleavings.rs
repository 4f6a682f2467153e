// SPDX-License-Identifier: GPL-2.0-only
//! Every order in which the core's protocols can run, scenario by scenario. The scenarios and their
//! properties are in `core/tests/scenarios.h`; the larger ones are left to `--example check`.

use usher_core::model::Build;

fn check(name: &str, at_least: u128) {
    let scenario = Build::real()
        .scenario(name)
        .expect("the scenario is listed");
    assert!(scenario.nr_actors() >= 3);
    let report = scenario
        .explore()
        .unwrap_or_else(|failure| panic!("{failure}"));
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

// Goal: plain stores to a queue's clock lose at most an update.
#[test]
fn clock_against_clock() {
    check("clock_against_clock", 1_000);
}
