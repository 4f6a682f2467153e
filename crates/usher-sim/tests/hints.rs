// SPDX-License-Identifier: GPL-2.0-only
//! Placement hints on two sockets of Zen 3: what the proposal's literal rules did, and what usher's must
//! not do. A quick part of `examples/hints.rs`, which measures all of it.

mod common;

use std::sync::Arc;

use common::{run_case, shipped};
use usher_sim::{Machine, Report};

fn zen3() -> Arc<Machine> {
    shipped("zen3-2s", &[])
}

fn run(
    machine: &Arc<Machine>,
    workload: &str,
    params: &[&str],
    hint: &str,
    policy: &str,
    seed: u64,
) -> Report {
    let hint = format!("hint={hint}");
    let set: Vec<&str> = params.iter().copied().chain([hint.as_str()]).collect();
    run_case(machine, workload, &set, policy, seed)
}

/// The headline with a hint as a share of that without.
fn effect(
    machine: &Arc<Machine>,
    workload: &str,
    params: &[&str],
    hint: &str,
    policy: &str,
    seed: u64,
) -> f64 {
    let [with, without] = [hint, "none"].map(|hint| {
        let report = run(machine, workload, params, hint, policy, seed);
        report.metrics[&report.headline]
    });
    with / without
}

// Goal: the literal fork rules harm tbench the more the more clients there are, because they count who runs
// and not who lives there; spreading helps in the middle.
// Method: throughput at 16, 64 and 256 clients for 10 ms, after the balancer had half a second, with 256 a fifth, for what was born in one
// place; spread, where it depends on the seed how the clients came to lie, the mean of six for 50 ms after 100. The bounds are those
// asked of the model (published: 0.98, 0.72 and 0.45; spread 1.05 at 64).
#[test]
fn literal_fork_hints_pile_up_and_spread() {
    let machine = zen3();
    let tbench = |params: &[&str], hint, seed| {
        effect(&machine, "tbench", params, hint, "cfs-6.0+hints", seed)
    };
    let long = &|clients, warmup| tbench(&[clients, warmup, "runtime=10ms"], "fork-affine", 1);
    let short = &|seed| {
        let params = ["clients=64", "warmup=100ms", "runtime=50ms"];
        tbench(&params, "fork-spread", seed)
    };
    let (affine, spread) = std::thread::scope(|scope| {
        let affine = [
            ("clients=16", "warmup=500ms"),
            ("clients=64", "warmup=500ms"),
            ("clients=256", "warmup=200ms"),
        ]
        .map(|(clients, warmup)| scope.spawn(move || long(clients, warmup)));
        let spread = [1, 2, 3, 4, 5, 6].map(|seed| scope.spawn(move || short(seed)));
        (
            affine.map(|ran| ran.join().expect("no panic")),
            spread.map(|ran| ran.join().expect("no panic")),
        )
    });
    assert!(affine.is_sorted_by(|a, b| a > b), "{affine:?}");
    assert!(affine[0] < 1.0 && affine[2] <= 0.75, "{affine:?}");
    let spread = spread.iter().sum::<f64>() / spread.len() as f64;
    assert!((1.03..=1.20).contains(&spread), "{spread}");
}

// Goal: the posting's schbench had one messenger, although two are the program's default: its p99 without a
// hint stays in microseconds while every worker of one burst has a CPU, and is tens of milliseconds beyond.
// Method: as many workers per messenger as the machine has CPUs, one second; posted were 1.1 ms.
#[test]
fn the_postings_knee_is_that_of_one_messenger() {
    let machine = zen3();
    let p99 = |messengers: &str| {
        let params = ["workers=256", messengers, "runtime=1s"];
        let report = run(&machine, "schbench", &params, "none", "cfs-6.0", 1);
        report.metrics[&report.headline]
    };
    let [one, two] = ["message_threads=1", "message_threads=2"].map(p99);
    assert!(one < 2e6, "one messenger: {one} ns");
    assert!(two > 10e6, "two messengers: {two} ns");
}

// Goal: born beside its messenger, and with the wake hint kept there, a worker answers in half the time, since
// its LLC is awake; more than fit there stack up for milliseconds, because the balancer may not undo it (rule
// 2.4).
// Method: schbench's p99, two seconds each: a lone worker with the fork hint, 1 and 4 workers with both; 64 for ten. (With 16 the seed
// decides: they just fit.)
// (Four with the fork hint alone are pulled apart: docs/FIDELITY.md.)
#[test]
fn literal_affine_hints_halve_small_tails_and_stack_large_ones() {
    let machine = zen3();
    let schbench = |workers: &str, hint: &str, runtime: &str| {
        let params = [workers, "message_threads=1", runtime];
        effect(&machine, "schbench", &params, hint, "cfs-6.0+hints", 1)
    };
    let both = "fork-affine+wake-affine";
    for (workers, hint) in [
        ("workers=1", "fork-affine"),
        ("workers=1", both),
        ("workers=4", both),
    ] {
        let ratio = schbench(workers, hint, "runtime=2s");
        assert!((0.40..=0.75).contains(&ratio), "{workers} {hint}: {ratio}");
    }
    let stacked = schbench("workers=64", both, "runtime=10s");
    assert!(stacked > 10.0, "{stacked}");
}

// Goal: usher's rules count inhabitants and lapse where there is no room: fork-affine harms neither tbench
// nor schbench at the sizes where the literal rules harm most.
// Method: the same, 5 % at most lost.
#[test]
fn fork_affine_under_usher_harms_nobody() {
    let machine = zen3();
    for clients in ["clients=16", "clients=64", "clients=256"] {
        let params = [clients, "runtime=10ms", "warmup=10ms"];
        let ratio = effect(&machine, "tbench", &params, "fork-affine", "usher", 1);
        assert!(ratio >= 0.95, "tbench {clients}: {ratio}");
    }
    for workers in ["workers=4", "workers=16", "workers=64"] {
        let params = [workers, "message_threads=1", "runtime=2s"];
        let ratio = effect(&machine, "schbench", &params, "fork-affine", "usher", 1);
        assert!(ratio <= 1.05, "schbench {workers}: {ratio}");
    }
}

// Goal: two partners who are born in different LLCs and are to stay there do not pay for every message.
// Method: tbench's connections, born spread and held, against no hint: 5 % at most lost.
#[test]
fn a_hold_under_usher_harms_no_pair() {
    let machine = zen3();
    for clients in ["clients=1", "clients=16", "clients=64"] {
        let params = [clients, "runtime=10ms", "warmup=10ms"];
        let ratio = effect(
            &machine,
            "tbench",
            &params,
            "fork-spread+wake-hold",
            "usher",
            1,
        );
        assert!(ratio >= 0.95, "tbench {clients}: {ratio}");
    }
}

// Goal: without a hint the patched kernel does what the unpatched one does, so that a table need not run both.
// Method: all figures of three workloads under either.
#[test]
fn nobody_hints_nothing_differs() {
    let machine = zen3();
    for (workload, params) in [
        ("hackbench-thread-pipe", ["groups=1", "loops=200"]),
        ("tbench", ["clients=16", "runtime=5ms"]),
        ("schbench", ["workers=16", "runtime=300ms"]),
    ] {
        let [plain, patched] = ["cfs-6.0", "cfs-6.0+hints"]
            .map(|policy| run(&machine, workload, &params, "none", policy, 1).metrics);
        assert_eq!(plain, patched, "{workload}");
    }
}

// Goal: a second in slow motion leaves as little of where tasks were born as a long run does (posted after 100,000 loops: fork-affine
// costs nothing; simulated after 40,000: nothing).
// Method: four groups of hackbench that are born in one LLC over groups that are not, from 250 loops, without and with it;
// the mean of two seeds.
#[test]
fn slow_motion_undoes_what_a_birth_did() {
    let machine = zen3();
    let cost = |settle: &str| {
        let program = [
            "mode=thread",
            "ipc=pipe",
            "groups=4",
            "reckoned_loops=100000",
        ];
        let set: Vec<&str> = program.into_iter().chain(["loops=250", settle]).collect();
        let time = |hint, seed| {
            let report = run(&machine, "hackbench", &set, hint, "cfs-6.0+hints", seed);
            report.metrics["reckoned_ns"]
        };
        let ratios = [1, 2].map(|seed| time("fork-affine", seed) / time("none", seed));
        ratios.iter().sum::<f64>() / 2.0
    };
    let (born, settled) = (cost("settle=0s"), cost("settle=1s"));
    assert!(born > 1.6, "{born}");
    assert!((0.8..1.2).contains(&settled), "{settled}");
}
