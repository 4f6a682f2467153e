// SPDX-License-Identifier: GPL-2.0-only
//! `usher sim`: one simulated run.

mod trace;
mod waits;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::json;
use usher_report::table::{metric, Text};
use usher_sim::case::{self, Case};
use usher_sim::params::Params;
use usher_sim::waits::Waits;
use usher_sim::{Machine, Options, Report, SimError};

use crate::args::SourceArgs;
use crate::exit::{Code, Failure};
use crate::interrupt;

/// Simulate a workload on a machine under a policy
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Without a machine it simulates the one that it runs on.\n\n\
                  Examples: usher sim --machine zen3-2s --workload schbench --set workers=16 --policy usher\n\
                  \u{20}         usher sim --workload schbench --list\n\
                  \u{20}         usher sim --machine zen3-2s --list costs"
)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    what: WhatArgs,

    /// The policy: NAME or NAME:key=value:...
    #[arg(long, default_value = "usher")]
    #[arg(long_help = policy_help())]
    policy: String,

    /// The run's seed; the same inputs give the same output, byte for byte
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Also write a Perfetto trace, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Also tell who waited for a CPU, for how long, and whether CPUs idled meanwhile; with the N slowest waits one by one
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100_000))]
    waits: Option<u32>,

    /// Run it twice and compare every event; exit 5 if they differ
    #[arg(long)]
    check_determinism: bool,

    /// Run nothing: list what can be changed, with what it is and where that comes from: parameters of the workload and of the
    /// policy, or costs of the machine
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "parameters")]
    list: Option<List>,
}

/// What the keys of costs begin with.
pub const COST: &str = "cost.";

/// The workload if none is named.
pub const DEFAULT_WORKLOAD: &str = "schbench";

/// The workload and its parameters, as `sim` and `compare` take them.
#[derive(clap::Args, Clone, Debug)]
pub struct WhatArgs {
    /// The workload: a generator, a ready file, or the path of an rt-app file
    #[arg(long, default_value = DEFAULT_WORKLOAD)]
    #[arg(long_help = workload_help())]
    pub workload: String,

    /// A parameter of the workload (`key=value`), or a cost of the machine (`cost.section.name=value`)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The placement hint of all tasks: none, or fork-affine, fork-spread, wake-affine, wake-hold,
    /// joined by +
    #[arg(long)]
    pub hint: Option<String>,
}

impl WhatArgs {
    /// The parameters of the workload, and of the machine's costs.
    pub fn params(&self) -> Result<(Params, Params), SimError> {
        let mut params = Params::parse(self.set.iter().map(String::as_str))?;
        if let Some(hint) = &self.hint {
            if params.given().contains_key("hint") {
                return Err(SimError::Parameter {
                    key: "hint".into(),
                    what: "is given twice, by --hint and by --set".into(),
                });
            }
            params.set("hint", hint);
        }
        let costs = params.take_prefix(COST);
        Ok((params, costs))
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One object, schema usher-sim/1
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum List {
    /// Of the workload (--set KEY=VALUE) and of the policy (--policy NAME:KEY=VALUE)
    Parameters,
    /// Of the machine (--set cost.SECTION.NAME=VALUE)
    Costs,
}

/// The columns that a table for people takes.
const WIDTH: usize = 100;

/// Words in lines of at most so many columns; a longer word has a line of its own.
fn wrapped(words: &[impl AsRef<str>], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.iter().map(AsRef::as_ref) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Names of the policies with a line or two about each.
pub fn policy_help() -> String {
    const INDENT: usize = 10; // clap's own
    const NAME: usize = 30;
    let lines: Vec<String> = usher_sim::policy::POLICIES
        .iter()
        .flat_map(|p| {
            let words: Vec<&str> = p.about.split(' ').collect();
            let about = wrapped(&words, WIDTH - INDENT - NAME - 3);
            let names = std::iter::once(p.name).chain(std::iter::repeat(""));
            let lines = names.zip(about);
            let lines = lines.map(|(name, about)| format!("  {name:<NAME$} {about}"));
            lines.collect::<Vec<_>>()
        })
        .collect();
    format!(
        "The policy: NAME or NAME:key=value:...\n\n{}",
        lines.join("\n")
    )
}

fn workload_help() -> String {
    format!(
        "The workload: a generator, a ready file, or the path of an rt-app file\n\nKnown: {}",
        usher_sim::workload::names().join(", ")
    )
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let (workload_params, costs) = args.what.params()?;
    let machine = case::machine(&args.source.source(), &costs)?;
    if let Some(what) = args.list {
        return list(args, &machine, what);
    }
    let (policy, policy_params) = case::parse_policy(&args.policy)?;
    let case = Case {
        machine: Arc::new(machine),
        workload: args.what.workload.clone(),
        workload_params,
        policy,
        policy_params,
    };
    let broken = Arc::new(AtomicBool::new(false));
    let waits = args
        .waits
        .map(|keep| case.waits(keep as usize))
        .transpose()?;
    let mut options = Options::default();
    if let Some(path) = &args.trace {
        // A wrong name must not cost the trace of an earlier run, which opening the file empties.
        case.simulation(args.seed, Options::default())?;
        let (policy, _) = usher_sim::policy::build(&case.policy, case.policy_params.clone())?;
        let trace = trace::into_file(path, policy.reasons(), &broken)?;
        options.tracers.push(trace);
    }
    options.tracers.extend(waits.as_ref().map(Waits::observer));
    let stop = interrupt::flag();
    let mut report = case.run(args.seed, options, |_| !stop.load(Ordering::Relaxed))?;
    if args.check_determinism && !report.partial && !same_again(&case, args.seed, &report)? {
        return Ok(Code::Other(5));
    }
    let waits = waits.map(|waits| {
        let waits = waits.lock().unwrap_or_else(|e| e.into_inner());
        waits.put_metrics(&mut report.metrics);
        waits::report(&waits)
    });
    let mut out = anstream::stdout().lock();
    match args.format {
        Format::Json => {
            let all = WithWaits {
                report: &report,
                waits,
            };
            serde_json::to_writer_pretty(&mut out, &all)?;
            writeln!(out)?;
        }
        Format::Table => write_table(&mut out, &report, waits.as_ref())?,
    }
    out.flush()?;
    if broken.load(Ordering::Relaxed) {
        return Ok(Code::Environment);
    }
    Ok(if report.partial {
        interrupt::INTERRUPTED
    } else {
        Code::Fine
    })
}

/// What `--format json` prints.
#[derive(Serialize)]
struct WithWaits<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<usher_report::waits::Report>,
}

/// `--list`.
fn list(args: &Args, machine: &Machine, what: List) -> Result<Code, Failure> {
    let (topo, workload) = (machine.topo().name(), &args.what.workload);
    let mut out = anstream::stdout().lock();
    let listed = match what {
        List::Parameters => {
            let (policy, params) = case::parse_policy(&args.policy)?;
            let of_workload = usher_sim::workload::describe(workload, machine)?;
            let of_policy = usher_sim::policy::describe(&policy, params)?;
            if let Format::Table = args.format {
                writeln!(out, "{workload} on {topo}: --set KEY=VALUE\n")?;
                for p in &of_workload {
                    let note = format!("{} [{}; {}]", p.meaning, p.values, p.source);
                    write_listed(&mut out, &format!("{}={}", p.key, p.default), &note)?;
                }
                let hint = "placement hint of the tasks that begin, and of all that they start: as --hint; of those of one name in an rt-app file: hint.NAME";
                write_listed(&mut out, "hint=none", hint)?;
                if !of_policy.is_empty() {
                    writeln!(out, "\npolicy {policy}: --policy {policy}:KEY=VALUE:...\n")?;
                }
                for p in &of_policy {
                    write_listed(&mut out, &format!("{}={}", p.key, p.value), p.meaning)?;
                }
            }
            json!({
                "schema": "usher-sim-list/1", "machine": topo, "workload": workload, "policy": policy,
                "workload_parameters": of_workload, "policy_parameters": of_policy,
            })
        }
        List::Costs => {
            let costs = machine.costs();
            let described = costs.described();
            if let Format::Table = args.format {
                let name = &costs.name;
                writeln!(out, "costs `{name}` of {topo}: --set KEY=VALUE\n")?;
                for p in &described {
                    let note = format!("{} [{}]", p.meaning.trim_end_matches('.'), p.source);
                    write_listed(&mut out, &format!("{}={}", p.key, p.value), &note)?;
                }
            }
            json!({
                "schema": "usher-sim-list/1", "machine": topo, "table": costs.name, "costs": described,
            })
        }
    };
    if let Format::Json = args.format {
        serde_json::to_writer_pretty(&mut out, &listed)?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(Code::Fine)
}

/// A setting and what is said of it, in two columns.
fn write_listed(out: &mut impl Write, setting: &str, note: &str) -> io::Result<()> {
    const SETTING: usize = 26;
    let mut first = setting;
    if first.len() > SETTING {
        writeln!(out, "{first}")?;
        first = "";
    }
    let words: Vec<&str> = note.split(' ').collect();
    for line in wrapped(&words, WIDTH - SETTING - 1) {
        writeln!(out, "{first:<SETTING$} {line}")?;
        first = "";
    }
    Ok(())
}

/// A level of migrations in words.
pub fn far(level: &str) -> &str {
    match level {
        "core" => "within the core",
        "llc" => "within the LLC",
        "node" => "within the node",
        "remote" => "to another node",
        other => other,
    }
}

/// Runs the case once more and compares everything it reports.
fn same_again(case: &Case, seed: u64, first: &Report) -> Result<bool, Failure> {
    let second = case.run(seed, Options::default(), |_| true)?;
    let same = serde_json::to_string(first)? == serde_json::to_string(&second)?;
    let mut err = io::stderr();
    let _ = if same {
        writeln!(
            err,
            "usher: both runs are alike, {} events, log hash {}",
            first.metrics["events"], first.log_hash
        )
    } else {
        writeln!(
            err,
            "usher: the runs differ: log hashes {} and {}",
            first.log_hash, second.log_hash
        )
    };
    Ok(same)
}

fn write_table(
    out: &mut impl Write,
    report: &Report,
    waits: Option<&usher_report::waits::Report>,
) -> io::Result<()> {
    writeln!(
        out,
        "{} on {} under {}, seed {}: {} {}",
        report.workload,
        report.machine,
        report.policy,
        report.seed,
        report.headline,
        report
            .metrics
            .get(&report.headline)
            .map_or("not reached".into(), |value| metric(
                &report.headline,
                *value
            )),
    )?;
    let parameters: Vec<String> = report
        .parameters
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    for line in wrapped(&parameters, WIDTH) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    let mut text = Text::new(&["metric", ">value"]);
    for (name, value) in &report.metrics {
        text.row([name.clone(), metric(name, *value)]);
    }
    writeln!(out, "{text}")?;
    let total = report.reasons.values().sum::<u64>().max(1) as f64;
    let mut text = Text::new(&["reason", ">decisions", ">share"]);
    for (name, n) in report.reasons.iter().filter(|(_, n)| **n > 0) {
        text.row([
            name.clone(),
            n.to_string(),
            format!("{:.1} %", *n as f64 / total * 100.0),
        ]);
    }
    writeln!(out, "{text}")?;
    let mut text = Text::new(&["migrations", ">count"]);
    for (level, n) in &report.migrations {
        text.row([far(level).into(), n.to_string()]);
    }
    writeln!(out, "{text}")?;
    let mut text = Text::new(&[
        "lines",
        ">accesses",
        ">from the LLC",
        ">the node",
        ">another node",
        ">mean load",
        ">mean write",
        ">all waits",
    ]);
    for (class, line) in report.lines.iter().filter(|(_, l)| l.accesses > 0) {
        let moved = |level: &str| line.transfers.get(level).copied().unwrap_or(0).to_string();
        text.row([
            class.clone(),
            line.accesses.to_string(),
            moved("llc"),
            moved("node"),
            moved("remote"),
            metric("load_ns_mean", line.load_ns_mean),
            metric("write_ns_mean", line.write_ns_mean),
            metric("wait_ns", line.wait_ns as f64),
        ]);
    }
    writeln!(out, "{text}")?;
    if let Some(waits) = waits {
        waits.write(out)?;
    }
    if report.partial {
        writeln!(out, "interrupted: what was simulated until then")?;
    }
    for limit in &report.limits {
        writeln!(out, "limit: {limit}")?;
    }
    writeln!(out, "log hash {}", report.log_hash)
}
