// SPDX-License-Identifier: GPL-2.0-only
//! How fast the simulator is, against what it must reach.
//!
//! The policy is usher, so that the placement core runs in every wakeup. Machines of 64 to 4,096 CPUs with
//! two tasks per CPU, under three loads that stress different parts:
//!
//! | load | what it is |
//! |---|---|
//! | `bursts` | schbench with 100 us of work: each messenger wakes 31 workers at a time |
//! | `pairs` | uperf: request and response over sockets |
//! | `timers` | stress-ng cyclic: every task sleeps 100 us at a time; real timers and idle states |
//!
//! Rounds over all of them alternate, and the fastest of each counts: a busy host slows single rounds.
//! Memory is the peak of a process of its own that runs nothing else.
//!
//! `cargo bench -p usher-sim --bench speed`

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use usher_sim::case::{machine, Case};
use usher_sim::params::Params;
use usher_sim::{Machine, Options};
use usher_topo::Source;

/// Events per second that must be reached, by number of CPUs.
const TARGETS: [(usize, f64); 2] = [(384, 3.0e6), (4096, 1.0e6)];
/// How many times as much an event may cost at 4,096 CPUs as at 64.
const MOST_GROWTH: f64 = 2.0;
/// Peak memory at 4,096 CPUs and 100,000 tasks.
const MOST_BYTES: u64 = 2 << 30;

const ROUNDS: usize = 5;
/// Asks this program to run the memory case and print its peak.
const MEMORY_ARGUMENT: &str = "--memory-case";

/// Machines: CPUs and an hwloc synthetic string.
const MACHINES: [(usize, &str); 4] = [
    (64, "pack:2 numa:1 l3:2 core:8 pu:2"),
    (384, "pack:2 numa:1 l3:12 core:8 pu:2"),
    (1024, "pack:4 numa:1 l3:8 core:16 pu:2"),
    (4096, "pack:8 numa:1 l3:16 core:16 pu:2"),
];

/// A load for a machine of `n` CPUs: the workload and its parameters, two tasks per CPU, some two million
/// events.
fn load(name: &str, n: usize) -> (&'static str, Vec<String>) {
    // Starting a task takes some microseconds, one after another.
    let start_ms = n / 128;
    let ms = |at_64: usize| format!("runtime={}ms", start_ms + at_64 * 64 / n);
    let warm = format!("warmup={start_ms}ms");
    match name {
        "bursts" => (
            "schbench",
            vec![
                format!("message_threads={}", n / 16),
                "workers=31".into(),
                "cputime=100us".into(),
                "sleeptime=100us".into(),
                ms(1000),
                warm,
            ],
        ),
        "pairs" => ("uperf", vec![format!("threads={n}"), ms(100), warm]),
        "timers" => (
            "stress-ng-cyclic",
            vec![format!("instances={}", 2 * n), ms(300), warm],
        ),
        other => unreachable!("no load is called {other}"),
    }
}

const LOADS: [&str; 3] = ["bursts", "pairs", "timers"];

fn case(machine: &Arc<Machine>, (workload, params): (&str, Vec<String>)) -> Case {
    Case {
        machine: Arc::clone(machine),
        workload: workload.into(),
        workload_params: Params::parse(params.iter().map(String::as_str)).expect("well-formed"),
        policy: "usher".into(),
        policy_params: Params::new(),
    }
}

/// The machine, with forks that cost little: the loads start their tasks one after another, and that
/// should be over soon.
fn build(shape: &str) -> Arc<Machine> {
    let source = Source::Synthetic(shape.into());
    let forks = ["syscall.fork_ns=500", "syscall.thread_ns=500"];
    let costs = Params::parse(forks).expect("well-formed");
    Arc::new(machine(&source, &costs).expect("a legal machine"))
}

/// Events of one run, and how long it took without setting it up.
fn time(case: &Case) -> (f64, Duration) {
    let options = Options {
        checks: false,
        ..Options::default()
    };
    let simulation = case.simulation(1, options).expect("a legal case");
    let start = Instant::now();
    let report = simulation.run().expect("it runs to its end");
    (report.metrics["events"], start.elapsed())
}

/// What one load on one machine came to.
struct Cell {
    case: Case,
    events: f64,
    best: Duration,
}

impl Cell {
    fn ns_per_event(&self) -> f64 {
        self.best.as_nanos() as f64 / self.events
    }
}

/// By machine, then by load.
fn measure() -> Vec<Vec<Cell>> {
    let mut cells: Vec<Vec<Cell>> = MACHINES
        .iter()
        .map(|&(n, shape)| {
            let machine = build(shape);
            LOADS
                .iter()
                .map(|name| Cell {
                    case: case(&machine, load(name, n)),
                    events: 0.0,
                    best: Duration::MAX,
                })
                .collect()
        })
        .collect();
    for _ in 0..ROUNDS {
        for cell in cells.iter_mut().flatten() {
            let (events, took) = time(&cell.case);
            cell.events = events;
            cell.best = cell.best.min(took);
        }
    }
    cells
}

/// Runs the memory case: 4,096 CPUs, 100,000 tasks, all of them started and asleep or waiting.
fn memory_case() {
    let machine = build(MACHINES[3].1);
    let pairs = [
        "instances=100000",
        "sleep=200ms",
        "runtime=1s",
        "warmup=1ms",
    ]
    .map(String::from);
    let (events, _) = time(&case(&machine, ("stress-ng-cyclic", pairs.to_vec())));
    println!("{} {events}", peak_bytes().unwrap_or(0));
}

/// `VmHWM` of this process.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Peak memory of the memory case, in a process of its own.
fn measure_memory() -> Option<u64> {
    let own = std::env::current_exe().ok()?;
    let output = Command::new(own).arg(MEMORY_ARGUMENT).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|&b| b > 0)
}

/// Prints a line about a target. Returns whether it was reached.
fn judge(what: &str, value: String, target: String, reached: bool) -> bool {
    let verdict = if reached { "reached" } else { "MISSED" };
    println!("{what:44} {value:>12}   target {target:>12}   {verdict}");
    reached
}

fn main() {
    if std::env::args().any(|a| a == MEMORY_ARGUMENT) {
        memory_case();
        return;
    }
    println!("simulator, policy usher, two tasks per CPU; best of {ROUNDS} alternating rounds\n");
    let cells = measure();
    println!(
        "{:>6} {:>8} {:>12} {:>14} {:>12}",
        "CPUs", "load", "events", "M events/s", "ns/event"
    );
    for ((n, _), row) in MACHINES.iter().zip(&cells) {
        for (name, cell) in LOADS.iter().zip(row) {
            let ns = cell.ns_per_event();
            println!(
                "{n:>6} {name:>8} {:>12} {:>14.2} {ns:>12.0}",
                cell.events,
                1e3 / ns
            );
        }
    }
    println!();
    let mut all = true;
    for (n, target) in TARGETS {
        let at = MACHINES.iter().position(|m| m.0 == n).expect("one of them");
        for (name, cell) in LOADS.iter().zip(&cells[at]) {
            let rate = 1e9 / cell.ns_per_event();
            all &= judge(
                &format!("events per second, {n} CPUs, {name}"),
                format!("{:.2} M", rate / 1e6),
                format!("{:.0} M", target / 1e6),
                rate >= target,
            );
        }
    }
    for (i, name) in LOADS.iter().enumerate() {
        let growth = cells[3][i].ns_per_event() / cells[0][i].ns_per_event();
        all &= judge(
            &format!("cost per event, 4,096 over 64 CPUs, {name}"),
            format!("{growth:.2}"),
            format!("{MOST_GROWTH:.2}"),
            growth <= MOST_GROWTH,
        );
    }
    match measure_memory() {
        Some(bytes) => {
            let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
            let what = "peak memory, 4,096 CPUs, 100,000 tasks";
            all &= judge(what, mib(bytes), mib(MOST_BYTES), bytes < MOST_BYTES);
        }
        None => println!("peak memory: not measured (no /proc here)"),
    }
    let verdict = if all {
        "all targets reached"
    } else {
        "targets MISSED, see above"
    };
    // No failure: what else runs on the host may be the reason.
    println!("\n{verdict}\n");
}
