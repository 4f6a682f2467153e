// SPDX-License-Identifier: GPL-2.0-only
//! Clocks that fall as cores of their socket get busy.

mod common;

use common::*;
use usher_sim::costs::Costs;
use usher_sim::policy::fifo::Fifo;
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, World};
use usher_sim::{Options, Report, SimError, Simulation};

/// Two sockets of eight cores of two threads; cpu numbers follow the tree.
const SHAPE: &str = "pack:2 numa:1 l3:1 core:8 pu:2";

/// Nothing costs anything; with a quarter of the cores busy all run at full speed, with all at 804 thousandths.
fn falling() -> Costs {
    let mut costs = free_costs();
    costs.set("clock.clock_full_permille", 800).expect("legal");
    costs.set("clock.clock_free_permille", 250).expect("legal");
    costs
}

/// A task for each CPU that computes for 100 ms there.
fn computing(costs: Costs, cpus: &[u32]) -> Report {
    let task = |&cpu: &u32| {
        let program = repeat(1, |_| Action::Compute(100 * MS), 1);
        TaskSpec::new("computes", program).affinity(only(cpu))
    };
    let tasks = cpus.iter().map(task).collect();
    run(
        machine(SHAPE, costs),
        workload(World::new(), tasks, Stop::AllExit),
        1,
    )
    .expect("runs")
}

fn elapsed_ms(report: &Report) -> f64 {
    report.metrics["simulated_ns"] / MS as f64
}

// Goal: work takes longer where many cores of the socket are busy, and only there; threads of one core are one.
// Method: by hand. Half of the cores busy are a third of the way from a quarter to all: 66 of 200, in steps of 7 that is 63, so 937.
// The first millisecond is at full speed, as firmware has seen nothing yet.
#[test]
fn busy_sockets_are_slower() {
    let at = |permille: f64| 1.0 + 99.0 * 1000.0 / permille;
    let cores = |range: std::ops::Range<u32>| range.map(|core| 2 * core).collect::<Vec<_>>();
    let cases = [
        (cores(0..1), 100.0),
        (cores(0..2), 100.0),
        (cores(0..4), at(937.0)),
        (cores(0..8), at(804.0)),
        // As many on two sockets.
        ([cores(0..4), cores(8..12)].concat(), at(937.0)),
        // Both threads of four cores.
        ((0..8).collect(), at(937.0)),
    ];
    for (cpus, expected) in cases {
        let report = computing(falling(), &cpus);
        let took = elapsed_ms(&report);
        assert!(
            (took - expected).abs() < 0.05,
            "{cpus:?}: {took} ms, {expected} expected"
        );
        let share = (100.0 / took - report.metrics["clock_share"]).abs();
        assert!(
            share < 0.002,
            "{cpus:?}: {:?}",
            report.metrics.get("clock_share")
        );
    }
    let report = computing(free_costs(), &cores(0..8));
    assert_eq!(elapsed_ms(&report), 100.0);
    assert!(!report.metrics.contains_key("clock_share"));
}

// Goal: the clock rises again when others are done.
// Method: one task computes on, seven stop after 100 ms of work each: it has 804 thousandths until then, and the rest at full speed.
#[test]
fn clocks_rise_again() {
    let task = |cpu: u32| {
        let times = if cpu == 0 { 2 } else { 1 };
        let program = repeat(times, |_| Action::Compute(100 * MS), 1);
        TaskSpec::new("computes", program).affinity(only(cpu))
    };
    let tasks = (0..8).map(|core| task(2 * core)).collect();
    let world = workload(World::new(), tasks, Stop::AllExit);
    let took = elapsed_ms(&run(machine(SHAPE, falling()), world, 1).expect("runs"));
    let expected = 1.0 + 99.0 / 0.804 + 100.0;
    assert!(
        (took - expected).abs() < 0.5,
        "{took} ms, {expected} expected"
    );
}

// Goal: what the kernel does takes longer, too.
// Method: eight tasks that do nothing but yield, whose calls cost 10 us.
#[test]
fn kernel_work_is_slower() {
    let calls = |full: u64| {
        let mut costs = falling();
        costs.set("clock.clock_full_permille", full).expect("legal");
        costs.set("syscall.syscall_ns", 10_000).expect("legal");
        let task = |core: u32| {
            let program = repeat(1, |_| Action::Yield, 10_000);
            TaskSpec::new("calls", program).affinity(only(2 * core))
        };
        let tasks = (0..8).map(task).collect();
        let world = workload(World::new(), tasks, Stop::AllExit);
        elapsed_ms(&run(machine(SHAPE, costs), world, 1).expect("runs"))
    };
    let ratio = calls(1000) / calls(800);
    assert!((0.80..0.82).contains(&ratio), "{ratio}");
}

// Goal: a machine on which nothing will ever happen again says so: firmware that looks on is nothing that happens.
#[test]
fn deadlocks_are_found() {
    let mut world = World::new();
    let channel = world.new_channel(ChannelSpec::PIPE);
    let waits = move |_: &mut TaskCtx<'_>| Action::Read {
        channel,
        bytes: 1,
        exact: true,
    };
    let tasks = vec![TaskSpec::new("waits", waits)];
    let world = workload(world, tasks, Stop::AllExit);
    let sim = Simulation::new(
        machine(SHAPE, falling()),
        Box::new(Fifo::default()),
        world,
        1,
        Options {
            checks: false,
            ..Options::default()
        },
    );
    let outcome = sim.expect("legal").run();
    assert!(
        matches!(outcome, Err(SimError::Deadlock { .. })),
        "{:?}",
        outcome.err()
    );
}

// Goal: an open load asks for a share of what the CPUs can do at the clock of all busy, so that it can be done.
// Method: requests that arrive, with clocks that do not fall and with such that fall to a half.
#[test]
fn open_loads_go_by_the_clock_of_all_busy() {
    let arrive = |full: u64| {
        let machine = shipped("2n2l2c2t", &[&format!("clock.clock_full_permille={full}")]);
        let short = ["load=50", "warmup=10ms", "runtime=100ms"];
        run_case(&machine, "requests", &short, "eevdf", 1).metrics["arrivals_per_s"]
    };
    assert_near("arrivals", 2.0 * arrive(500), arrive(1000), 3.0);
}

// Goal: numbers that mean nothing are refused with what they may be.
#[test]
fn shares_are_checked() {
    let mut costs = usual_costs();
    for (name, value, says) in [
        ("clock.clock_full_permille", 99, "from 100 to 1000"),
        ("clock.clock_full_permille", 1001, "from 100 to 1000"),
        ("clock.clock_free_permille", 1000, "below 1000"),
    ] {
        let error = costs.set(name, value).expect_err("nonsense").to_string();
        assert!(error.contains(name) && error.contains(says), "{error}");
    }
}
