// SPDX-License-Identifier: GPL-2.0-only
//! Regenerates the table of docs/FIDELITY.md: what the scheduler did with hackbench's tasks in a guest
//! (`data/fidelity/*.json`, from `data/fidelity/run.sh`) beside what it does in the simulator.
//!
//! `cargo run --release -p usher-sim --example fidelity [-- key=value ...]`: the pairs are costs of the
//! simulated machine (`ipi.ipi_llc_ns=...`), to try an explanation.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use usher_sim::case::{machine, Case};
use usher_sim::params::Params;
use usher_sim::{Options, Report};
use usher_topo::Source;

/// Bounds, in points: of the share of starts on an idle CPU, of groups of reasons, of migrations.
const IDLE_POINTS: f64 = 10.0;
const REASON_POINTS: f64 = 15.0;
const LEVEL_POINTS: f64 = 15.0;

/// Simulated runs per load: the shares are over all of them.
const SEEDS: u64 = 20;

const LEVELS: [&str; 4] = ["core", "llc", "node", "remote"];
const GROUPS: [&str; 6] = ["prev", "sync", "llc", "node", "remote", "queued"];

/// What was counted on one side.
#[derive(Default)]
struct Side {
    wakeups: f64,
    from_idle: f64,
    levels: BTreeMap<String, f64>,
    /// Empty where reasons are not known: the kernel's own scheduler gives none.
    groups: BTreeMap<String, f64>,
}

/// The group of a reason: its first word. `pinned` and `nowhere` are no choices and in no group.
fn group(reason: &str) -> Option<&'static str> {
    GROUPS
        .into_iter()
        .find(|g| reason.split('-').next() == Some(g))
}

/// A number of a trace histogram's line, after `key:`.
fn field(line: &str, key: &str) -> Option<u32> {
    let rest = &line[line.find(key)? + key.len()..];
    let digits: String = rest
        .trim_start_matches([':', ' '])
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

/// CPUs of a core, an LLC and a node of a guest of this shape, whose CPUs are numbered in that order.
fn widths(shape: &str) -> [(&'static str, u32); 3] {
    let counts: Vec<u32> = shape
        .split_terminator(char::is_alphabetic)
        .map(|count| count.parse().expect("a shape that the lab took"))
        .collect();
    let [_, llcs, cores, threads] = counts[..] else {
        panic!("{shape}: not nodes, LLCs, cores and threads");
    };
    let llc = cores * threads;
    [("core", threads), ("llc", llc), ("node", llcs * llc)]
}

fn level(widths: [(&'static str, u32); 3], from: u32, to: u32) -> &'static str {
    widths
        .into_iter()
        .find(|(_, width)| from / width == to / width)
        .map_or("remote", |(name, _)| name)
}

fn guest(run: &Value) -> Side {
    let mut side = Side::default();
    let widths = widths(run["shape"].as_str().expect("the lab names the shape"));
    let mut event = "";
    for line in run["stdout"].as_str().unwrap_or_default().lines() {
        if let Some(name) = line.strip_prefix("event ") {
            event = name;
        }
        let Some(count) = field(line, "hitcount").filter(|_| line.starts_with('{')) else {
            continue;
        };
        let count = f64::from(count);
        match event {
            "sched_wakeup" | "sched_wakeup_new" => side.wakeups += count,
            "sched_switch" => side.from_idle += count,
            _ => {
                let cpus = field(line, "orig_cpu").zip(field(line, "dest_cpu"));
                let (from, to) = cpus.expect("a migration has two CPUs");
                *side
                    .levels
                    .entry(level(widths, from, to).into())
                    .or_default() += count;
            }
        }
    }
    if let Some(reasons) = run["stats"]["reasons"].as_object() {
        for (reason, n) in reasons {
            if let Some(group) = group(reason) {
                *side.groups.entry(group.into()).or_default() += n.as_f64().unwrap_or(0.0);
            }
        }
    }
    side
}

/// The same load, simulated.
fn simulated(run: &Value, costs: &Params) -> Result<Side, Box<dyn Error>> {
    let words: Vec<&str> = run["command"]
        .as_array()
        .ok_or("no command")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let after = |flag: &str| words.iter().skip_while(|w| **w != flag).nth(1).copied();
    let mut params = Params::new();
    params.set("groups", after("-g").ok_or("no -g")?);
    params.set("loops", after("-l").ok_or("no -l")?);
    params.set(
        "ipc",
        if words.contains(&"-p") {
            "pipe"
        } else {
            "socket"
        },
    );
    let shape = run["shape"].as_str().ok_or("no shape")?;
    let case = Case {
        machine: Arc::new(machine(&Source::Shape(shape.into()), costs)?),
        workload: "hackbench".into(),
        workload_params: params,
        policy: run["scheduler"].as_str().ok_or("no scheduler")?.into(),
        policy_params: Params::new(),
    };
    let mut side = Side::default();
    for seed in 1..=SEEDS {
        add(&mut side, &case.run(seed, Options::default(), |_| true)?);
    }
    Ok(side)
}

fn add(side: &mut Side, report: &Report) {
    side.wakeups += report.metrics["wakeups"] + report.metrics["forks"];
    side.from_idle += report.metrics["starts_from_idle"];
    for (level, n) in &report.migrations {
        *side.levels.entry(level.clone()).or_default() += *n as f64;
    }
    if report.policy == "usher" {
        for (reason, n) in &report.reasons {
            if let Some(group) = group(reason) {
                *side.groups.entry(group.into()).or_default() += *n as f64;
            }
        }
    }
}

/// Prints a row, and whether it is within its bound.
fn row(load: &str, what: &str, guest: f64, simulated: f64, bound: f64) -> bool {
    let good = (guest - simulated).abs() <= bound;
    println!(
        "| {load} | {what} | {guest:.1} % | {simulated:.1} % | {:+.1} | {bound:.0} | {} |",
        simulated - guest,
        if good { "within" } else { "**missed**" }
    );
    good
}

/// Shares of a set of counts, in per cent, in the order of `names`.
fn shares<'a>(counts: &BTreeMap<String, f64>, names: &[&'a str]) -> Vec<(&'a str, f64)> {
    let sum: f64 = counts.values().sum::<f64>().max(1.0);
    let of = |name: &str| counts.get(name).copied().unwrap_or(0.0) / sum * 100.0;
    names.iter().map(|name| (*name, of(name))).collect()
}

fn largest<'a>(shares: &[(&'a str, f64)]) -> &'a str {
    let most = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or("none", |(name, _)| name)
}

/// Compares shares one by one, and which is the largest. Returns how many rows are within, and of how many.
fn compare(
    load: &str,
    what: &str,
    names: &[&str],
    sides: [&BTreeMap<String, f64>; 2],
    bound: f64,
) -> [u32; 2] {
    let [guest, simulated] = sides.map(|counts| shares(counts, names));
    let mut within = 0;
    for ((name, a), (_, b)) in guest.iter().zip(&simulated) {
        within += u32::from(row(load, &format!("{what}: {name}"), *a, *b, bound));
    }
    let (a, b) = (largest(&guest), largest(&simulated));
    let verdict = if a == b { "within" } else { "**missed**" };
    println!("| {load} | most frequent {what} | {a} | {b} | | the same | {verdict} |");
    [within + u32::from(a == b), names.len() as u32 + 1]
}

fn runs(dir: &Path) -> Result<Vec<(String, Value)>, Box<dyn Error>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            Ok((name.replace('-', " "), serde_json::from_str(&text)?))
        })
        .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let costs = Params::parse(given.iter().map(String::as_str))?;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/fidelity");
    println!("| load | what | guest | simulated | difference | bound | |");
    println!("|---|---|---|---|---|---|---|");
    let mut total = [0, 0];
    for (name, run) in runs(&dir)? {
        let (guest, sim) = (guest(&run), simulated(&run, &costs)?);
        let share = |side: &Side| side.from_idle / side.wakeups.max(1.0) * 100.0;
        let what = "wakeups that found an idle CPU";
        let good = row(&name, what, share(&guest), share(&sim), IDLE_POINTS);
        let mut parts = vec![
            [u32::from(good), 1],
            compare(
                &name,
                "migration",
                &LEVELS,
                [&guest.levels, &sim.levels],
                LEVEL_POINTS,
            ),
        ];
        if !guest.groups.is_empty() {
            let sides = [&guest.groups, &sim.groups];
            parts.push(compare(&name, "reason", &GROUPS, sides, REASON_POINTS));
        }
        for [within, of] in parts {
            total = [total[0] + within, total[1] + of];
        }
    }
    println!("\n{} of {} within their bounds", total[0], total[1]);
    Ok(())
}
