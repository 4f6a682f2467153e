// SPDX-License-Identifier: GPL-2.0-only
//! The workloads on the real engine: they come to their end under a scheduler with few CPUs and many, do
//! exactly the work they should, and do the same work whatever the machine and the policy.

mod common;

use std::collections::BTreeMap;

use common::*;
use usher_sim::costs::Costs;
use usher_sim::params::Params;
use usher_sim::policy;
use usher_sim::workload::{build, names, WORKLOADS};
use usher_sim::{Machine, Options, Report, SimError, Simulation};

fn generic(shape: &str) -> Machine {
    machine(shape, usual_costs())
}

/// Runs with all checks on.
fn try_run(
    shape: &str,
    name: &str,
    policy: &str,
    pairs: &[&str],
    seed: u64,
) -> Result<Report, SimError> {
    let machine = generic(shape);
    let params = Params::parse(pairs.iter().copied()).expect("legal pairs");
    let workload = build(name, &machine, params).expect("a legal workload");
    let (policy, _) = policy::build(policy, Params::new()).expect("a legal policy");
    Simulation::new(machine, policy, workload, seed, Options::default())?.run()
}

fn run_on(
    shape: &str,
    name: &str,
    policy: &str,
    pairs: &[&str],
    seed: u64,
) -> BTreeMap<String, f64> {
    match try_run(shape, name, policy, pairs, seed) {
        Ok(report) => report.metrics,
        Err(e) => panic!("{name} under {policy} on {shape}, seed {seed}: {e}"),
    }
}

const ONE: &str = "core:1 pu:1";
const SMALL: &str = "core:4 pu:2";
const LARGE: &str = "pack:2 l3:4 core:4 pu:2";

/// Runs that count something fixed: name, parameters, metric, what it must be.
const COUNTED: &[(&str, &[&str], &str, u64)] = &[
    (
        "hackbench-process",
        &["groups=2", "fds=5", "loops=11"],
        "messages",
        2 * 25 * 11,
    ),
    (
        "hackbench-thread",
        &["groups=2", "fds=5", "loops=11"],
        "messages",
        2 * 25 * 11,
    ),
    (
        "hackbench-process-pipe",
        &["groups=2", "fds=5", "loops=11"],
        "messages",
        2 * 25 * 11,
    ),
    // A socket's buffer holds 214 messages of 900 bytes with their headers: writers block.
    (
        "hackbench",
        &["groups=1", "fds=2", "loops=700", "datasize=900"],
        "messages",
        4 * 700,
    ),
    // A pipe's holds 16 of 4096.
    (
        "hackbench-thread-pipe",
        &["groups=1", "fds=3", "loops=40", "datasize=4096"],
        "messages",
        9 * 40,
    ),
    ("sysbench-cpu-5t", &["request=1ms"], "requests", 1000),
    (
        "sysbench-cpu-1t",
        &["request=100us", "requests=77"],
        "requests",
        77,
    ),
    (
        "kbuild",
        &["objects=30", "jobs=5", "scale_permille=5"],
        "objects",
        30,
    ),
    (
        "kbuild",
        &["objects=30", "jobs=50", "scale_permille=5", "pipe=true"],
        "objects",
        30,
    ),
];

// Goal: conservation: what is sent is received, every request is computed once, every object is built,
// on one CPU as on 64, and nothing deadlocks.
// Method: the fixed counts on three machines under several policies, all checkers on.
#[test]
fn counts_hold_everywhere() {
    for (name, pairs, metric, expected) in COUNTED {
        for (shape, policy) in [
            (ONE, "fifo"),
            (SMALL, "eevdf"),
            (SMALL, "cfs-5.9"),
            (LARGE, "scx-simple"),
        ] {
            let metrics = run_on(shape, name, policy, pairs, 3);
            assert_eq!(
                metrics[*metric] as u64, *expected,
                "{name} under {policy} on {shape}"
            );
        }
    }
}

/// Runs that last a fixed time: name, parameters, and a counter that must move.
const TIMED: &[(&str, &[&str], &str)] = &[
    (
        "schbench",
        &["workers=6", "runtime=400ms", "warmup=50ms"],
        "loops",
    ),
    (
        "tbench",
        &["clients=6", "runtime=10ms", "warmup=2ms"],
        "operations",
    ),
    (
        "uperf",
        &["threads=6", "runtime=10ms", "warmup=2ms"],
        "exchanges",
    ),
    (
        "sysbench-oltp-rw",
        &["threads=6", "runtime=30ms", "warmup=2ms", "locks=2"],
        "statements",
    ),
    ("cyclictest", &["runtime=100ms"], "cycles"),
    (
        "ffmpeg-rt",
        &[
            "instances=2",
            "cores=1",
            "crew=3",
            "runtime=60ms",
            "warmup=0ms",
        ],
        "frames",
    ),
    ("rt-app-example", &["duration=300ms"], "activations"),
    ("rt-app-heavy", &["duration=300ms"], "activations"),
    ("rt-app-light", &["duration=300ms"], "activations"),
    ("rt-app-heavy-light", &["duration=300ms"], "activations"),
    ("rt-app-pipeline", &["duration=300ms"], "activations"),
];

// Goal: the endless workloads run for their time and make progress, under fair schedulers on one CPU as
// on many; twice the same seed gives the same events.
// Method: run on three machines; hashes of the event logs.
#[test]
fn timed_runs_make_progress() {
    for (name, pairs, counter) in TIMED {
        for (shape, policy) in [(ONE, "eevdf"), (SMALL, "cfs-6.0"), (LARGE, "scx-simple")] {
            // Real-time tasks belong to another class: those workloads run under `rt` below.
            let policy = if *name == "ffmpeg-rt" { "rt" } else { policy };
            let metrics = run_on(shape, name, policy, pairs, 5);
            assert!(
                metrics[*counter] > 0.0,
                "{name} under {policy} on {shape}: {counter}"
            );
        }
        let hash = |seed| try_run(SMALL, name, "fifo", pairs, seed).map(|r| r.log_hash);
        let (a, b) = (hash(1), hash(1));
        assert!(a.is_ok(), "{name}");
        assert_eq!(a.ok(), b.ok(), "{name}");
    }
}

// Goal: the real-time workloads run under the real-time class.
// Method: each on a machine of 64 CPUs and on a small one.
#[test]
fn real_time_workloads_run() {
    for shape in [SMALL, LARGE] {
        let pi = run_on(shape, "pi-stress", "rt", &["runtime=5ms", "warmup=1ms"], 1);
        assert!(pi["inversions"] > 20.0, "{shape}: {}", pi["inversions"]);
        let cyclic = run_on(
            shape,
            "stress-ng-cyclic",
            "rt",
            &["runtime=10ms", "warmup=10ms"],
            1,
        );
        assert!(
            cyclic["bogo_ops_per_s"] > 8.0 * 3_000.0,
            "{shape}: {}",
            cyclic["bogo_ops_per_s"]
        );
        let locks = run_on(shape, "rt-app-locks", "rt", &["duration=200ms"], 1);
        assert!(
            locks["task_control_activations"] >= 38.0,
            "{}",
            locks["task_control_activations"]
        );
    }
}

// Goal: a workload's work does not depend on who schedules it: the same seed draws the same sizes.
// Method: a build's compute time under two policies on two machines.
#[test]
fn work_does_not_depend_on_the_policy() {
    let pairs = [
        "objects=25",
        "jobs=8",
        "scale_permille=5",
        "serial_permille=0",
    ];
    let run = |shape, policy| run_on(shape, "kbuild", policy, &pairs, 11);
    let (a, b) = (run(LARGE, "eevdf"), run(SMALL, "scx-simple"));
    assert_eq!(a["objects"], b["objects"]);
    // Six processes per object and make itself.
    assert_eq!(
        (a["forks"], b["forks"]),
        (25.0 * 6.0 + 1.0, 25.0 * 6.0 + 1.0)
    );
}

// Goal: schbench's samples include the place in the burst: with a CPU for everybody, later workers of a
// burst wait for the wakeups before them.
// Method: latency grows with the number of workers at constant load per CPU.
#[test]
fn schbench_samples_include_the_place_in_the_burst() {
    let p99 = |workers: &str| {
        let pairs = [
            "message_threads=1",
            workers,
            "runtime=2s",
            "sleeptime=100ms",
        ];
        run_on(LARGE, "schbench", "eevdf", &pairs, 2)["latency_ns_p99"]
    };
    let (few, many) = (p99("workers=1"), p99("workers=24"));
    assert!(many > few + 23.0 * 400.0, "{few} {many}");
}

// Goal: the published times of the sysbench test on the big.LITTLE chip bound the simulated ones.
// Method: one thread on a strong core takes 16.47 s; five threads on all five cores cannot beat
// 16.47 x 5 / (2 + 3 x 0.49) = 23.7 s.
#[test]
fn sysbench_is_within_its_bounds() {
    let raw = usher_topo::Source::Machine("tc2-2a15-3a7".into())
        .read()
        .expect("a built-in machine");
    let topo = usher_topo::Topology::build(&raw, 64).expect("legal");
    let costs = Costs::builtin(topo.costs().expect("named")).expect("built in");
    for (name, low, high) in [
        ("sysbench-cpu-1t", 16.47, 33.9),
        ("sysbench-cpu-5t", 23.7, 34.0),
    ] {
        let machine = Machine::new(topo.clone(), costs.clone()).expect("legal");
        let workload = build(name, &machine, Params::new()).expect("legal");
        let report = Simulation::new(machine, fifo(), workload, 1, Options::default())
            .and_then(Simulation::run)
            .expect("runs");
        let time = report.metrics["time_ns"] / 1e9;
        assert!((low..high).contains(&time), "{name}: {time}");
    }
}

// Goal: a file whose threads lock each other up is reported with the names that the file gives to threads
// and to what they wait for.
// Method: two locks taken in opposite orders, a thread that nobody resumes, one at a barrier.
#[test]
fn a_deadlocked_file_is_reported() {
    let text = r#"{ "global": { "duration": 1 }, "tasks": {
        "one": { "lock": "a", "sleep": 1000, "lock": "b", "unlock": "b", "unlock": "a" },
        "two": { "lock": "b", "sleep": 1000, "lock": "a", "unlock": "a", "unlock": "b" },
        "three": { "suspend": "late", "barrier": "gate" },
        "four": { "barrier": "gate" } } }"#;
    let path = std::env::temp_dir().join(format!("usher-embrace-{}.json", std::process::id()));
    std::fs::write(&path, text).expect("a writable directory for temporary files");
    let result = try_run(SMALL, path.to_str().expect("a plain path"), "fifo", &[], 1);
    std::fs::remove_file(&path).expect("it was just written");
    let error = result.map(|_| ()).expect_err("a deadlock").to_string();
    for part in [
        "deadlock at ",
        "task 1 `one-0` waits for mutex `b`, held by task 2 `two-1`",
        "task 2 `two-1` waits for mutex `a`, held by task 1 `one-0`",
        "task 3 `three-2` waits for condition variable `late`",
        "task 4 `four-3` waits for barrier `gate`, where 1 of 2 have arrived",
    ] {
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
}

// Goal: every name that is offered can be built, on the smallest machine and on a large one.
// Method: build all with their defaults.
#[test]
fn every_name_builds() {
    for shape in [SMALL, LARGE] {
        let machine = generic(shape);
        for name in names() {
            let workload =
                build(name, &machine, Params::new()).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(!workload.tasks.is_empty() && workload.name == name);
            assert!(workload.parameters.contains_key("hint"));
        }
    }
    assert_eq!(WORKLOADS.len(), 12);
}

// Goal: an open load does not wait for answers: as much arrives under any policy and however little of it is done, and a report
// says when the CPUs did not keep up. Method: half and twice of what they can do.
#[test]
fn an_open_load_comes_whatever_is_done() {
    let told = |report: &Report| report.limits.iter().any(|l| l.contains("did not keep up"));
    for (load, late) in [("load=50", false), ("load=200", true)] {
        let pairs = [load, "runtime=100ms", "warmup=10ms"];
        let reports = ["eevdf", "usher"]
            .map(|policy| try_run(SMALL, "requests", policy, &pairs, 3).expect("a legal run"));
        let [a, b] = [
            &reports[0].metrics["arrivals"],
            &reports[1].metrics["arrivals"],
        ];
        // An arrival counts when a dispatcher has taken it in, and that one waits for a CPU, too.
        assert!((a / b - 1.0).abs() < 0.05, "{load}: {a} and {b}");
        for report in &reports {
            assert_eq!(told(report), late, "{load}: {:?}", report.limits);
            let share = report.metrics["requests"] / report.metrics["arrivals"];
            let expected = if late { 0.3..0.51 } else { 0.95..1.05 };
            assert!(expected.contains(&share), "{load}: {share}");
            for (first, then) in [("intake", "delay"), ("delay", "latency")] {
                let mean = |name: &str| report.metrics[&format!("{name}_ns_mean")];
                assert!(mean(first) < mean(then), "{load}: {first}, {then}");
            }
        }
    }
    // A dispatcher that does not keep up takes in less than arrives.
    let pairs = [
        "dispatchers=1",
        "rate=3000000",
        "service=100ns",
        "runtime=50ms",
    ];
    let report = try_run(SMALL, "requests", "usher", &pairs, 3).expect("a legal run");
    assert!(told(&report), "{:?}", report.limits);
}
