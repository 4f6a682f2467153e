// SPDX-License-Identifier: GPL-2.0-only
//! `usher explain`: where a task would go on a machine, or has gone in a kernel, and why. The core itself decides, natively built.

mod recorded;

use std::io::{self, Write as _};

use serde::Serialize;
use usher_core::{
    AccessKind, CidSet, Core, Decision, Demand, Reason, Request, Settings, Tables, Tiers, Wake,
};
use usher_hint::Hints;
use usher_topo::{parse_cpulist, Cid, Cpu, Topology, MAX_SHARD_WIDTH};

use crate::args::SourceArgs;
use crate::exit::{Code, Failure};
use crate::out;

/// Say where a task would go on a machine, and why: the placement core decides, as in a kernel.
///
/// All CPUs idle but the waker's, unless --idle or --busy says otherwise. With --recorded: what became of tasks in a kernel.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,

    /// The CPU on which the task ran last; of a newborn, its parent's
    #[arg(long, value_name = "CPU", required_unless_present = "recorded")]
    prev: Option<u32>,

    /// The CPU that wakes it [default: that of --prev]
    #[arg(long, value_name = "CPU")]
    waker: Option<u32>,

    /// wake, sync (the waker is about to sleep), or fork
    #[arg(long, value_name = "KIND", default_value = "wake")]
    wake: Wake,

    /// The CPUs that idle, as in 0-7,64; all others are busy
    #[arg(long, value_name = "CPUS", conflicts_with = "busy")]
    idle: Option<String>,

    /// The CPUs that are busy; all others idle
    #[arg(long, value_name = "CPUS")]
    busy: Option<String>,

    /// The CPUs that the task may use [default: all]
    #[arg(long, value_name = "CPUS")]
    allowed: Option<String>,

    /// Its placement hints: fork-affine or fork-spread, wake-affine or wake-hold, or one of each joined by +
    #[arg(long, value_name = "HINTS", default_value_t = Hints::NONE)]
    hint: Hints,

    /// How much of the strongest CPU it uses, in 1024ths; it matters where CPUs differ in capacity
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1024))]
    util: u16,

    /// So many such tasks, one after another: each keeps the CPU that it gets
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    times: u32,

    #[command(flatten)]
    recorded: recorded::Args,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Table,
    Json,
}

/// One decision, as it is printed.
#[derive(Serialize)]
struct Row {
    cpu: u32,
    cid: u32,
    llc: u32,
    node: u32,
    /// Whether the CPU idled and is the task's now; else it waits in a queue.
    claimed: bool,
    reason: &'static str,
    why: &'static str,
    /// Loads of shared lines, and atomic operations on them.
    loads: usize,
    atomics: usize,
}

#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    machine: &'a str,
    decisions: &'a [Row],
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    if let Some(path) = &args.recorded.recorded {
        return recorded::run(&args.recorded, path, args.format);
    }
    if let Some(option) = args.recorded.without_file() {
        return Err(wrong(format!(
            "{option}: it is about decisions of a kernel: add --recorded FILE, or leave it out"
        )));
    }
    let topo = Topology::build(&args.source.source().read()?, MAX_SHARD_WIDTH)?;
    let prev = cid_of(&topo, "--prev", args.prev.expect("clap requires it"))?;
    let waker = match args.waker {
        Some(cpu) => cid_of(&topo, "--waker", cpu)?,
        None => prev,
    };
    let allowed = args.allowed.as_deref();
    let allowed = allowed.map(|list| cids_of(&topo, "--allowed", list));
    let allowed = allowed.transpose()?;
    let mut core = Core::traced(&Tables::from(&topo), &Settings::default())
        .map_err(|error| wrong(error.to_string()))?;
    for cid in idle(args, &topo, waker)?.iter() {
        core.idle_enter(cid);
    }
    let request = Request {
        allowed: allowed.as_ref(),
        wake: args.wake,
        prev,
        waker,
        tiers: Tiers::ANY,
        hints: args.hint,
        demand: Demand {
            util: args.util,
            ..Demand::default()
        },
    };
    let rows: Vec<Row> = (0..args.times)
        .map(|_| {
            core.clear_accesses();
            let decision = core.place(&request);
            let row = row(&core, &topo, decision);
            if args.wake == Wake::Fork && args.hint != Hints::NONE {
                // From now on it lives there, as hosts tell the core: the next birth sees it.
                core.settle(None, Some(topo[decision.cid].llc));
            }
            row
        })
        .collect();
    let mut to = anstream::stdout().lock();
    match args.format {
        Format::Table => print(&mut to, &rows)?,
        Format::Json => {
            let json = Json {
                schema: "usher-explain/1",
                machine: topo.name(),
                decisions: &rows,
            };
            serde_json::to_writer(&mut to, &json)?;
            writeln!(to)?;
        }
    }
    Ok(Code::Fine)
}

fn row(core: &Core, topo: &Topology, decision: Decision) -> Row {
    let info = &topo[decision.cid];
    let of_kind = |kind| {
        let accesses = core.accesses().iter();
        accesses.filter(|access| access.kind() == kind).count()
    };
    Row {
        cpu: info.cpu.0,
        cid: decision.cid.0,
        llc: info.llc.0,
        node: info.node.0,
        claimed: decision.claimed,
        reason: decision.reason.as_str(),
        why: decision.reason.meaning(),
        loads: of_kind(AccessKind::Read),
        atomics: of_kind(AccessKind::Rmw),
    }
}

/// Who idles before the task comes.
fn idle(args: &Args, topo: &Topology, waker: Cid) -> Result<CidSet, Failure> {
    if let Some(list) = &args.idle {
        return cids_of(topo, "--idle", list);
    }
    let busy = match &args.busy {
        Some(list) => cids_of(topo, "--busy", list)?,
        None => CidSet::from_iter([waker]),
    };
    let all = (0..topo.cids().len() as u32).map(Cid);
    Ok(all.filter(|cid| !busy.contains(*cid)).collect())
}

fn cid_of(topo: &Topology, option: &str, cpu: u32) -> Result<Cid, Failure> {
    topo.cid_of(Cpu(cpu)).ok_or_else(|| {
        let online = usher_topo::format_cpulist(topo.cids().iter().map(|c| c.cpu.0));
        wrong(format!(
            "{option}: the machine has no CPU {cpu}; it has {online}"
        ))
    })
}

fn cids_of(topo: &Topology, option: &str, list: &str) -> Result<CidSet, Failure> {
    let cpus = parse_cpulist(list, u32::from(u16::MAX))
        .map_err(|(item, what)| wrong(format!("{option} {list}: `{item}`: {what}")))?;
    let cids = cpus.into_iter().map(|cpu| cid_of(topo, option, cpu));
    cids.collect()
}

fn wrong(what: String) -> Failure {
    Failure::new(Code::WrongUse, what)
}

/// The decisions, and below them what their reasons mean.
fn print(to: &mut impl io::Write, rows: &[Row]) -> io::Result<()> {
    let header = ["cpu", "llc", "node", "reason", "", "loads", "atomics"];
    let mut table = out::table(&header, &["cpu", "llc", "node", "loads", "atomics"]);
    for row in rows {
        table.add_row([
            row.cpu.to_string(),
            row.llc.to_string(),
            row.node.to_string(),
            row.reason.into(),
            if row.claimed { "" } else { "waits" }.into(),
            row.loads.to_string(),
            row.atomics.to_string(),
        ]);
    }
    out::section(to, "where it goes", &table)?;
    writeln!(to)?;
    for reason in Reason::ALL {
        if rows.iter().any(|row| row.reason == reason.as_str()) {
            writeln!(to, "  {reason}: {}", reason.meaning())?;
        }
    }
    Ok(())
}
