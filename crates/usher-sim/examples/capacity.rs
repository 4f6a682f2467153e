// SPDX-License-Identifier: GPL-2.0-only
//! What asking for capacity is worth, which tier of CPUs should come first, and what that costs in energy as far as a
//! simulator can tell: for how long the strong CPUs are busy. The table of docs/CHOICES.md.
//!
//! Every load runs on machines of unequal CPUs under usher with the strongest tier first, with the weakest first,
//! and told to ignore capacities; and under the kernel's own, EEVDF. A cell is the median, over seeds, of the
//! ratio to EEVDF's with the same seed, times better below 1 and rates turned over so that they are, too; in brackets the
//! busy share of the strongest tier.
//!
//! `cargo run --release -p usher-sim --example capacity [-- RUNS]`: nine minutes of two cores with the three runs that it makes if not
//! told otherwise.

mod common;

use std::error::Error;

use common::{case, headline, percent, seeds, shipped};

const MACHINES: [&str; 3] = ["tc2-2a15-3a7", "4b4l", "hybrid-8p16e"];

const KERNEL: &str = "eevdf";
const POLICIES: [&str; 4] = [
    KERNEL,
    "usher:tiers=strongest-first",
    "usher:tiers=weakest-first",
    "usher-no-capacity",
];

/// Workloads, and what is set; a `%` stands for a count as large as the machine needs: see [`percent`].
const LOADS: [(&str, &str); 12] = [
    ("sysbench-cpu", "threads=25%"),
    ("sysbench-cpu", "threads=50%"),
    ("sysbench-cpu", "threads=75%"),
    ("sysbench-cpu", "threads=100%"),
    ("rt-app-light", ""),
    ("rt-app-heavy-light", ""),
    ("tbench", "clients=25%"),
    ("tbench", "clients=100%"),
    ("kbuild", "jobs=50%"),
    ("kbuild", "jobs=75%"),
    ("kbuild", "jobs=150%"),
    ("hackbench", "groups=2"),
];

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = seeds(std::env::args().nth(1), 3)?;
    println!("| machine | load | {KERNEL} | strongest first | weakest first | no capacity |");
    println!("|---|---|---|---|---|---|");
    for name in MACHINES {
        let machine = shipped(name)?;
        for (workload, set) in LOADS {
            let set = percent(set, machine.cpus().len());
            let cases = POLICIES.map(|policy| case(&machine, workload, &set, policy));
            let runs = common::run(&cases, &seeds)?;
            let base: Vec<f64> = runs[0].iter().flatten().map(headline).collect();
            let cells = runs.iter().map(|of| {
                let ratios = of.iter().flatten().map(headline).zip(&base);
                let ratio = median(ratios.map(|(value, base)| value / base).collect());
                let busy = of.iter().flatten().map(|report| report.tier_utilisation[0]);
                format!("{ratio:.3} ({:.0} %)", 100.0 * median(busy.collect()))
            });
            let cells: Vec<String> = cells.collect();
            println!("| {name} | {workload} {set} | {} |", cells.join(" | "));
        }
    }
    Ok(())
}
