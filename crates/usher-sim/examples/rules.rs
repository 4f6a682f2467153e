// SPDX-License-Identifier: GPL-2.0-only
//! What each of usher's rules is worth: every load with all rules, and with one of them off. The first table of docs/CHOICES.md.
//!
//! A cell is how much longer the load takes without the rule, in per cent: of what it is judged by (rates turned over) and, after a
//! comma, of the 99th percentile of its requests where it has any. It is the geometric mean over machines and seeds, each run against the one with all
//! rules and the same seed; `.` stands for less than 1 %. The last column is the kernel's own, EEVDF.
//!
//! `cargo run --release -p usher-sim --example rules [-- RUNS]`: half an hour of two cores with the two runs a cell that it
//! makes if not told otherwise.

mod common;

use std::error::Error;
use std::sync::Arc;

use common::{case, headline, percent, seeds, shipped};
use usher_sim::{Machine, Report};

const MACHINES: [&str; 6] = [
    "2n2l2c2t",
    "dgx-1-80",
    "xeon-4s24c2t-192",
    "dgx-b200-224",
    "zen3-2s",
    "epyc-2s-384",
];

/// The first has all rules.
const POLICIES: [&str; 9] = [
    "usher",
    "usher:granularity=global",
    "usher:uncrowd=false",
    "usher:fork-balance=false",
    "usher:follow=false",
    "usher:soon=0ns",
    "usher:preempt=false",
    "usher:queue-width=4096",
    "eevdf",
];

/// Workloads, and what is set; a `%` stands for a count as large as the machine needs: see [`percent`].
const LOADS: [(&str, &str); 17] = [
    ("kbuild", "objects=1000 jobs=25%"),
    ("kbuild", "objects=1000 jobs=100%"),
    ("kbuild", "objects=1000 jobs=200%"),
    ("requests", "load=25"),
    ("requests", "load=70"),
    ("schbench", "message_threads=1 runtime=2s workers=50%"),
    ("schbench", "message_threads=1 runtime=2s workers=200%"),
    ("tbench", "clients=25%"),
    ("tbench", "clients=200%"),
    ("uperf", "threads=100%"),
    (
        "sysbench-oltp-rw",
        "runtime=200ms warmup=200ms threads=100%",
    ),
    (
        "sysbench-oltp-rw",
        "runtime=200ms warmup=200ms threads=400%",
    ),
    ("hackbench", "groups=1"),
    ("hackbench", "groups=4"),
    ("hackbench-thread-pipe", "groups=1 loops=500"),
    ("hackbench-thread-pipe", "groups=4 loops=500"),
    ("hackbench-thread-pipe", "groups=16 loops=200"),
];

/// The 99th percentile of a run's requests.
fn tail(report: &Report) -> Option<f64> {
    Some(report.metrics[report.tail.as_ref()?])
}

/// The sum, over seeds, of the logarithm of what runs' figure is against that of the first policy's.
fn longer(runs: &[Option<Report>], all: &[Option<Report>], figure: fn(&Report) -> f64) -> f64 {
    let [runs, all] = [runs, all].map(|of| of.iter().flatten().map(figure));
    runs.zip(all).map(|(run, all)| (run / all).ln()).sum()
}

/// A mean of logarithms as per cent.
fn cell(mean: f64) -> String {
    let change = 100.0 * mean.exp_m1();
    match change.abs() < 1.0 {
        true => ".".into(),
        false => format!("{change:+.0}"),
    }
}

/// A load's row: one cell for each policy but the first.
fn row(
    machines: &[Arc<Machine>],
    seeds: &[u64],
    (workload, set): (&str, &str),
) -> Result<Vec<String>, Box<dyn Error>> {
    let mut sums = [[0.0; 2]; POLICIES.len()];
    let mut tails = false;
    for machine in machines {
        let set = percent(set, machine.cpus().len());
        let cases = POLICIES.map(|policy| case(machine, workload, &set, policy));
        let runs = common::run(&cases, seeds)?;
        tails = runs[0].iter().flatten().any(|run| tail(run).is_some());
        for (sum, of) in sums.iter_mut().zip(&runs) {
            sum[0] += longer(of, &runs[0], headline);
            if tails {
                sum[1] += longer(of, &runs[0], |run| tail(run).expect("as of the first"));
            }
        }
    }
    let runs = (machines.len() * seeds.len()) as f64;
    let cells = sums[1..].iter().map(|[judged, tail]| match tails {
        true => format!("{}, {}", cell(judged / runs), cell(tail / runs)),
        false => cell(judged / runs),
    });
    Ok(cells.collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = seeds(std::env::args().nth(1), 2)?;
    let machines: Vec<_> = MACHINES
        .into_iter()
        .map(shipped)
        .collect::<Result<_, _>>()?;
    let names: Vec<String> = POLICIES[1..]
        .iter()
        .map(|policy| format!("`{}`", policy.trim_start_matches("usher:")))
        .collect();
    println!("| load | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for load in LOADS {
        let (workload, set) = load;
        let cells = row(&machines, &seeds, load)?;
        println!("| {workload} {set} | {} |", cells.join(" | "));
    }
    Ok(())
}
