// SPDX-License-Identifier: GPL-2.0-only
//! Where usher is behind another policy: machines from 8 to 384 CPUs, each with many loads from a quarter of a task per CPU to four.
//!
//! A cell is the mean, over seeds, of usher's ratio to the other policy with the same seed: of what the workload is judged by, and of the
//! 99th percentile of its requests where it has any. What is behind by more than 3 %, by the 99th percentile by more than half, is printed
//! as a command that shows it again; at the end, how many cells of each workload are ahead, alike and behind.
//!
//! `cargo run --release -p usher-sim --example against [-- RUNS [POLICY]]`: a quarter of an hour with the two runs a cell that
//! it makes if not told otherwise, against `eevdf`.

mod common;

use std::collections::BTreeMap;
use std::error::Error;

use common::{case, headline, percent, seeds, shipped};
use usher_sim::Report;

const MACHINES: [&str; 10] = [
    "4b4l",
    "2n2l2c2t",
    "4n4l2c1t",
    "hybrid-8p16e",
    "dgx-1-80",
    "xeon-4s24c2t-192",
    "dgx-b200-224",
    "icx-2s",
    "zen3-2s",
    "epyc-2s-384",
];

/// Workloads, what is set, and what counts the tasks, up to how many per CPU, in hundredths.
const LOADS: [(&str, &str, &str, u32); 5] = [
    ("schbench", "message_threads=1 runtime=2s", "workers", 400),
    ("tbench", "", "clients", 400),
    ("uperf", "", "threads", 400),
    (
        "sysbench-oltp-rw",
        "runtime=200ms warmup=200ms",
        "threads",
        400,
    ),
    ("kbuild", "objects=1000", "jobs", 200),
];

/// Tasks per CPU, in hundredths.
const SHARES: [u32; 5] = [25, 50, 100, 200, 400];

/// Loads of a size of their own; threads over pipes are `perf bench sched messaging -p -t`.
const OTHERS: [(&str, &str); 11] = [
    ("hackbench", "groups=1"),
    ("hackbench", "groups=2"),
    ("hackbench", "groups=4"),
    ("hackbench", "groups=8"),
    ("hackbench-thread-pipe", "groups=1 loops=500"),
    ("hackbench-thread-pipe", "groups=2 loops=500"),
    ("hackbench-thread-pipe", "groups=4 loops=500"),
    ("hackbench-thread-pipe", "groups=8 loops=500"),
    ("rt-app-light", ""),
    ("rt-app-heavy-light", ""),
    ("rt-app-pipeline", ""),
];

/// As much is noise.
const ALIKE: f64 = 0.03;
/// A 99th percentile that is behind by so much is printed.
const LONG: f64 = 0.5;

/// Cells that are ahead, alike and behind.
type Tally = BTreeMap<String, [u32; 3]>;

/// The mean, over seeds, of the ratio of two policies' runs by a figure, less 1; and its cell in the tally.
fn behind(
    runs: &[Vec<Option<Report>>],
    figure: impl Fn(&Report) -> f64,
    cells: &mut [u32; 3],
) -> f64 {
    let [usher, theirs] = [0, 1].map(|at: usize| runs[at].iter().flatten().map(&figure));
    let ratios = usher.zip(theirs).map(|(usher, theirs)| usher / theirs);
    let behind = ratios.sum::<f64>() / runs[0].len() as f64 - 1.0;
    let cell = match behind {
        behind if behind > ALIKE => 2,
        behind if behind > -ALIKE => 1,
        _ => 0,
    };
    cells[cell] += 1;
    behind
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let seeds = seeds(args.next(), 2)?;
    let other = args.next().unwrap_or("eevdf".into());
    let mut tally = Tally::new();
    for name in MACHINES {
        let machine = shipped(name)?;
        let cpus = machine.cpus().len();
        let sized = LOADS.iter().flat_map(|(workload, set, count, most)| {
            let shares = SHARES.iter().filter(move |share| *share <= most);
            shares.map(move |share| {
                let set = format!("{set} {count}={share}%");
                (*workload, percent(&set, cpus))
            })
        });
        let others = OTHERS
            .iter()
            .map(|(workload, set)| (*workload, set.to_string()));
        for (workload, set) in sized.chain(others) {
            let cases = ["usher", &other].map(|policy| case(&machine, workload, &set, policy));
            let runs = common::run(&cases, &seeds)?;
            let tail = runs
                .iter()
                .flatten()
                .flatten()
                .find_map(|report| report.tail.as_ref());
            let judged = behind(&runs, headline, tally.entry(workload.into()).or_default());
            let print = |behind: f64, by: &str| {
                let set: String = set
                    .split_whitespace()
                    .map(|set| format!(" --set {set}"))
                    .collect();
                println!(
                    "{:+.1} %{by}: usher compare --machine {name} --workload {workload}{set} --policies {other},usher",
                    100.0 * behind
                );
            };
            if judged > ALIKE {
                print(judged, "");
            }
            if let Some(metric) = tail {
                let cells = tally.entry(format!("{workload}, {metric}")).or_default();
                let longer = behind(&runs, |report| report.metrics[metric], cells);
                if longer > LONG {
                    print(longer, &format!(" {metric}"));
                }
            }
        }
    }
    println!("\n| workload | usher is ahead | alike | behind |\n|---|---|---|---|");
    for (workload, [ahead, alike, behind]) in tally {
        println!("| {workload} | {ahead} | {alike} | {behind} |");
    }
    Ok(())
}
