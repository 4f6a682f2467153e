// SPDX-License-Identifier: GPL-2.0-only
//! Does the core decide in the kernel as it does in a process?
//!
//! Replays streams of random operations (`core/tests/stream.h`) on both, on machines of many shapes, and compares
//! everything that the core returned. Where they differ it finds the first operation that does and prints the
//! command that replays the stream up to there. Needs root and a kernel with BPF arenas (Linux 6.9), not
//! sched_ext.
//!
//! Exit codes: 0 equal, 1 different, 2 wrong use, 3 the environment lacks something.

mod side;

use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use usher_core::{Event, Granularity, Settings, Statistics, Tables};
use usher_topo::{shape, synthetic, Source, Topology};

use side::{Kernel, Native, Setting, Side};

/// Operations per run of the program: far below what the kernel lets a program do at once.
const BATCH: u32 = 256;

/// From one CPU to the limit: one to eight LLCs per node, SMT of 1, 2, 4 and 8, LLCs of several shards, many nodes, unequal capacities and
/// 4,096 CPUs.
const MACHINES: &[&str] = &[
    "1c",
    "2n2l2c2t",
    "4n4l2c1t",
    "2n3l5c4t",
    "1n2l3c8t",
    "1n1l100c2t",
    "8n7l4c2t",
    "4b4l",
    "hybrid-8p16e",
    "dgx-b200-224",
    "epyc-2s-384",
    "hcc-2s-480",
    "16n8l16c2t",
];

/// Compare the core in the kernel with the core in a process.
#[derive(Debug, Parser)]
struct Args {
    /// Machines to compare on: names of machine files or shapes. Default: thirteen of all kinds.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    machines: Vec<String>,

    /// Placements in all.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    requests: u64,

    /// What the streams begin with.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How idle CPUs are tracked. Default: in turn.
    #[arg(long, value_name = "LEVEL")]
    granularity: Option<Granularity>,

    /// Replay only so many operations, on each machine.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("usher-parity: error: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let machines: Vec<&str> = match args.machines.as_slice() {
        [] => MACHINES.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let share = args.requests.div_ceil(machines.len() as u64);
    let (mut equal, mut placed, mut counted) = (true, 0, Statistics::default());
    for (index, name) in machines.iter().enumerate() {
        let topo = topology(name)?;
        let setting = Setting {
            tables: Tables::from(&topo),
            settings: Settings {
                granularity: args
                    .granularity
                    .unwrap_or(Granularity::ALL[index % Granularity::COUNT]),
                cpupri: true,
                // Long against the turns of the stream, of each other machine.
                soon_ns: [1_000_000_000, Settings::default().soon_ns][index % 2],
                ..Settings::default()
            },
            seed: args.seed,
        };
        let begun = Instant::now();
        let outcome = compare(&setting, share, args.steps)?;
        placed += outcome.placed;
        counted += outcome.counted;
        match outcome.differs_at {
            None => println!(
                "{name:14} {:>5} CPUs  {:6}  {:>9} requests of {:>9} operations equal  ({:.1} s)",
                topo.nr_cids(),
                setting.settings.granularity.as_str(),
                outcome.placed,
                outcome.steps,
                begun.elapsed().as_secs_f64()
            ),
            Some(step) => {
                equal = false;
                println!(
                    "{name}: DIFFERENT at operation {step}: {}\n  replay: usher-parity --machines {name} \
                     --granularity {} --seed {} --steps {step}",
                    outcome.what, setting.settings.granularity, setting.seed
                );
            }
        }
    }
    println!(
        "{placed} requests on {} machines: {}",
        machines.len(),
        if equal {
            "every decision and every reason equal"
        } else {
            "DIFFERENT"
        }
    );
    Ok(equal && (args.steps.is_some() || complete(args, &counted)))
}

/// Equality says nothing about what never happened: all reasons and events must have occurred when all machines did.
fn complete(args: &Args, counted: &Statistics) -> bool {
    // Only another CPU can make these happen; the model checker makes it.
    const CONCURRENT: &[Event] = &[
        Event::ClaimLost,
        Event::SummaryRestored,
        Event::BacklogRestored,
        Event::PreemptLost,
    ];
    let reasons = counted
        .reasons()
        .filter(|(_, n)| *n == 0)
        .map(|(reason, _)| reason.as_str());
    let events = counted
        .events()
        .filter(|(event, n)| *n == 0 && !CONCURRENT.contains(event));
    let missing: Vec<&str> = reasons
        .chain(events.map(|(event, _)| event.as_str()))
        .collect();
    if !missing.is_empty() && args.machines.is_empty() {
        println!(
            "NOT COMPARED, for they never happened: {}",
            missing.join(", ")
        );
        return false;
    }
    true
}

/// A machine file's machine, a shape's or a synthetic string's.
fn topology(name: &str) -> Result<Topology> {
    let source = if shape::parse(name).is_ok() {
        Source::Shape(name.into())
    } else if synthetic::parse(name).is_ok() {
        Source::Synthetic(name.into())
    } else {
        Source::Machine(name.into())
    };
    Ok(Topology::build(
        &source
            .read()
            .with_context(|| format!("--machines {name}"))?,
        64,
    )?)
}

struct Outcome {
    counted: Statistics,
    placed: u64,
    steps: u64,
    differs_at: Option<u64>,
    what: String,
}

/// Replays on both sides until so many placements, or operations, are done or something differs.
fn compare(setting: &Setting, requests: u64, steps: Option<u64>) -> Result<Outcome> {
    let mut storage = MaybeUninit::uninit();
    let mut kernel = Kernel::new(setting, &mut storage)?;
    let mut native = Native::new(setting)?;
    loop {
        let before = native.state();
        let batch = match steps {
            Some(steps) => (steps - before.steps).min(u64::from(BATCH)) as u32,
            None if before.placed < requests => BATCH,
            None => 0,
        };
        if batch == 0 {
            let same = kernel.statistics() == native.statistics();
            return Ok(Outcome {
                counted: native.statistics(),
                placed: before.placed,
                steps: before.steps,
                differs_at: (!same).then_some(before.steps),
                what: "the counters, though nothing returned did".into(),
            });
        }
        native.replay(batch)?;
        kernel.replay(batch)?;
        if native.state() != kernel.state() {
            drop(kernel);
            return first_difference(setting, before.steps);
        }
    }
}

/// Replays anew up to a step where both were equal, then one by one.
fn first_difference(setting: &Setting, equal_until: u64) -> Result<Outcome> {
    let mut storage = MaybeUninit::uninit();
    let mut kernel = Kernel::new(setting, &mut storage)?;
    let mut native = Native::new(setting)?;
    while native.state().steps < equal_until {
        native.replay(BATCH)?;
        kernel.replay(BATCH)?;
    }
    for _ in 0..BATCH {
        let counted = (native.statistics(), kernel.statistics());
        native.replay(1)?;
        kernel.replay(1)?;
        let (here, there) = (native.state(), kernel.state());
        if here != there {
            let reason = |now: Statistics, before: &Statistics| {
                let since = now.since(before);
                let found = since.reasons().find(|(_, n)| *n > 0);
                found.map_or("no decision", |(reason, _)| reason.as_str())
            };
            return Ok(Outcome {
                counted: native.statistics(),
                placed: here.placed,
                steps: here.steps,
                differs_at: Some(here.steps),
                what: format!(
                    "native {} ({here:x?}), kernel {} ({there:x?})",
                    reason(native.statistics(), &counted.0),
                    reason(kernel.statistics(), &counted.1)
                ),
            });
        }
    }
    anyhow::bail!("the two differed once and not again: seed {}", setting.seed)
}
