// SPDX-License-Identifier: GPL-2.0-only
//! What placement hints do to schbench, tbench and hackbench on `zen3-2s`: the table of docs/FIDELITY.md.
//!
//! Each workload runs under 6.0's fair class with the proposal's literal rules and under usher, without a
//! hint and with four, over the same seeds. A cell is the median of the ratios to the run without a hint
//! with the same seed. Times are better below 1, throughput is better above. A second table has usher's runs as
//! ratios to the kernel's own fair class without a hint: what somebody who changes from one to the other sees.
//!
//! `cargo run --release -p usher-sim --example hints [-- RUNS]`: ten runs a cell take a quarter of an hour
//! on two cores.

mod common;

use std::error::Error;
use std::sync::Arc;

use common::{seeds, shipped};
use usher_sim::case::Case;
use usher_sim::grid;
use usher_sim::params::Params;
use usher_sim::Machine;

/// The posting's rules; without hints it is the kernel it was made for.
const LITERAL: &str = "cfs-6.0+hints";
const KERNEL: &str = "cfs-6.0";

const HINTS: [&str; 5] = [
    "none",
    "fork-affine",
    "fork-spread",
    "fork-affine+wake-affine",
    "fork-spread+wake-hold",
];

/// A loss beyond this share is one too many for usher's rules.
const MOST_LOSS: f64 = 0.05;
const LOSS: &str = " **loss**";

/// A workload, the parameter that sets its size, and the sizes.
struct Sweep {
    workload: &'static str,
    key: &'static str,
    sizes: &'static [u32],
    /// What the posting's runs set besides.
    fixed: &'static [&'static str],
    higher_is_better: bool,
}

const SWEEPS: [Sweep; 3] = [
    Sweep {
        workload: "schbench",
        key: "workers",
        sizes: &[1, 4, 16, 64],
        // Not schbench's default of two: docs/FIDELITY.md says how the posting's rows tell.
        fixed: &["message_threads=1"],
        higher_is_better: false,
    },
    Sweep {
        workload: "tbench",
        key: "clients",
        sizes: &[1, 16, 64, 256, 1024],
        fixed: &[],
        higher_is_better: true,
    },
    Sweep {
        workload: "hackbench",
        key: "groups",
        sizes: &[1, 4, 16],
        fixed: &[],
        higher_is_better: false,
    },
];

/// What was asked of the literal rules: workload, hint, size, bounds of the ratio.
const TARGETS: [(&str, &str, u32, f64, f64); 5] = [
    ("schbench", "fork-affine", 1, 0.40, 0.75),
    ("schbench", "fork-affine", 4, 0.40, 0.75),
    ("schbench", "fork-affine", 64, 0.90, 1.10),
    ("tbench", "fork-affine", 256, 0.0, 0.75),
    ("tbench", "fork-spread", 64, 1.03, 1.20),
];

fn case(machine: &Arc<Machine>, sweep: &Sweep, size: u32, hint: &str, policy: &str) -> Case {
    let pairs = [format!("{}={size}", sweep.key), format!("hint={hint}")];
    let pairs = pairs.iter().map(String::as_str);
    Case {
        machine: Arc::clone(machine),
        workload: sweep.workload.into(),
        workload_params: Params::parse(pairs.chain(sweep.fixed.iter().copied()))
            .expect("well-formed"),
        policy: policy.into(),
        policy_params: Params::new(),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The headline of each run of a case, in order of seeds.
fn measure(cases: &[Case], seeds: &[u64]) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    let runs = common::run(cases, seeds)?;
    let headline = |report: &usher_sim::Report| report.metrics[&report.headline];
    let of_case = |runs: &grid::Runs| runs.iter().flatten().map(headline).collect();
    Ok(runs.iter().map(of_case).collect())
}

/// `value` as a share of `base`, run by run.
fn ratio(value: &[f64], base: &[f64]) -> f64 {
    median(value.iter().zip(base).map(|(v, b)| v / b).collect())
}

/// Everything measured of one policy: by hint, then by size, then by seed.
type Measured = Vec<Vec<Vec<f64>>>;

fn measure_all(
    machine: &Arc<Machine>,
    sweep: &Sweep,
    seeds: &[u64],
    policy: &str,
) -> Result<Measured, Box<dyn Error>> {
    let of_hint = |hint: &&str| {
        let sizes = sweep.sizes.iter();
        let cases: Vec<Case> = sizes
            .map(|&size| case(machine, sweep, size, hint, policy))
            .collect();
        measure(&cases, seeds)
    };
    HINTS.iter().map(of_hint).collect()
}

/// How a ratio is marked: asked of the literal rules and met or not, or a loss under usher's.
fn mark(policy: &str, sweep: &Sweep, hint: &str, size: u32, ratio: f64) -> &'static str {
    let mut asked = TARGETS.iter();
    let asked =
        asked.find(|t| policy == LITERAL && (t.0, t.1, t.2) == (sweep.workload, hint, size));
    let loss = if sweep.higher_is_better {
        1.0 - ratio
    } else {
        ratio - 1.0
    };
    match asked {
        Some(t) if (t.3..=t.4).contains(&ratio) => " ok",
        Some(_) => " **missed**",
        None if policy != LITERAL && loss > MOST_LOSS => LOSS,
        None => "",
    }
}

/// One row of a table. Returns how many of its cells are losses.
fn row(policy: &str, sweep: &Sweep, hint: &str, values: &[Vec<f64>], base: &[Vec<f64>]) -> usize {
    let mut losses = 0;
    let mut cells = Vec::new();
    for (i, &size) in sweep.sizes.iter().enumerate() {
        let ratio = ratio(&values[i], &base[i]);
        let mark = mark(policy, sweep, hint, size, ratio);
        losses += usize::from(mark == LOSS);
        cells.push(format!("{size}: {ratio:.2}{mark}"));
    }
    let workload = sweep.workload;
    println!("| {workload} | {policy} | {hint} | {} |", cells.join(", "));
    losses
}

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = seeds(std::env::args().nth(1), 10)?;
    let machine = shipped("zen3-2s")?;
    let mut all = Vec::new();
    let mut losses = 0;
    println!("| workload | policy | hint | size: ratio to no hint |\n|---|---|---|---|");
    for sweep in &SWEEPS {
        let measured =
            [LITERAL, "usher"].map(|policy| measure_all(&machine, sweep, &seeds, policy));
        let [literal, usher] = measured;
        let (literal, usher) = (literal?, usher?);
        for (policy, of_policy) in [(LITERAL, &literal), ("usher", &usher)] {
            for (hint, values) in HINTS.iter().zip(of_policy).skip(1) {
                losses += row(policy, sweep, hint, values, &of_policy[0]);
            }
        }
        all.push((sweep, literal, usher));
    }
    println!("\nCells where usher's rules lose more than 5 %: {losses}.\n");
    println!(
        "| workload | policy | hint | size: ratio to {KERNEL} without a hint |\n|---|---|---|---|"
    );
    losses = 0;
    for (sweep, literal, usher) in &all {
        for (hint, values) in HINTS.iter().zip(usher) {
            losses += row("usher", sweep, hint, values, &literal[0]);
        }
    }
    println!("\nCells where usher loses more than 5 % to {KERNEL} without a hint: {losses}.");
    Ok(())
}
