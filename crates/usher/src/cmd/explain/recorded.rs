// SPDX-License-Identifier: GPL-2.0-only
//! `usher explain --recorded`: decisions that a kernel recorded, told, and made again by the core in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use usher_core::recorded::{Bits, Footer, Header, Recorded, Saw, Seen, Word, SCHEMA};
use usher_core::{Core, Reason, Tables};
use usher_sim::error::nearest;
use usher_topo::{format_cpulist, parse_cpulist, MAX_CPU_NUMBER};

use super::Format;
use crate::exit::{Code, Failure};
use crate::out;

/// Which of the decisions in a file.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Decisions that a kernel recorded (scx_usher --record FILE): which task went where, and why; each is made again here, and exit
    /// code 1 says that one came out otherwise
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "SourceArgs", "prev", "waker", "wake", "idle", "busy", "allowed", "hint", "util", "times"
    ])]
    pub recorded: Option<PathBuf>,

    /// Of --recorded: only those about the thread with this id
    #[arg(long, value_name = "ID", requires = "recorded")]
    pid: Option<u32>,

    /// Of --recorded: only those about threads of this name
    #[arg(long, value_name = "NAME", requires = "recorded")]
    comm: Option<String>,

    /// Of --recorded: only those for this reason
    #[arg(long, value_name = "REASON", requires = "recorded")]
    reason: Option<Reason>,

    /// Of --recorded: only those that chose this CPU
    #[arg(long, value_name = "CPU", requires = "recorded")]
    cpu: Option<u32>,

    /// Of --recorded: only those from so many milliseconds on after the first of the file
    #[arg(long, value_name = "MS", requires = "recorded")]
    since: Option<f64>,

    /// Of --recorded: only those up to so many milliseconds after the first of the file
    #[arg(long, value_name = "MS", requires = "recorded")]
    until: Option<f64>,

    /// Of --recorded: also what each saw, access by access
    #[arg(long, requires = "recorded")]
    steps: bool,
}

impl Args {
    /// The first of these options that is there.
    fn given(&self) -> Option<&'static str> {
        let given = [
            ("--pid", self.pid.is_some()),
            ("--comm", self.comm.is_some()),
            ("--reason", self.reason.is_some()),
            ("--cpu", self.cpu.is_some()),
            ("--since", self.since.is_some()),
            ("--until", self.until.is_some()),
            ("--steps", self.steps),
        ];
        let first = given.iter().find(|(_, given)| *given);
        first.map(|(name, _)| *name)
    }

    /// An option that says nothing without --recorded. (clap does not ask for what contradicts another option that is there.)
    pub fn without_file(&self) -> Option<&'static str> {
        self.given().filter(|_| self.recorded.is_none())
    }

    /// Whether not all decisions are asked for.
    fn chooses(&self) -> bool {
        self.given().is_some_and(|option| option != "--steps")
    }

    fn wants(&self, recorded: &Recorded) -> bool {
        self.pid.is_none_or(|pid| pid == recorded.pid)
            && self.comm.as_ref().is_none_or(|comm| *comm == recorded.comm)
            && self.reason.is_none_or(|r| r == recorded.decision.reason)
    }

    /// As much of it as is known once the machine and the whole file are.
    fn wants_row(&self, row: &Row, first_ns: u64) -> bool {
        let ms = row.ms(first_ns);
        self.cpu.is_none_or(|cpu| cpu == row.cpu)
            && self.since.is_none_or(|since| ms >= since)
            && self.until.is_none_or(|until| ms <= until)
    }
}

/// One decision, as it is printed.
#[derive(Serialize)]
struct Row {
    /// Which line of the file.
    line: usize,
    at_ns: u64,
    pid: u32,
    comm: String,
    wake: &'static str,
    prev: u32,
    waker: u32,
    cpu: u32,
    /// Whether the CPU idled and is the task's; else it waits in a queue.
    claimed: bool,
    reason: Reason,
    /// The CPUs that it may use; `null`: all.
    allowed: Option<String>,
    hints: String,
    /// Whether it came out the same when it was made again.
    same: bool,
    /// If not: how.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<String>,
}

impl Row {
    /// Since the first decision of the file, milliseconds.
    fn ms(&self, first_ns: u64) -> f64 {
        (self.at_ns - first_ns) as f64 / 1e6
    }
}

/// All of a file.
#[derive(Serialize)]
struct Told {
    schema: &'static str,
    /// The kernels' releases and usher's versions that recorded, in order.
    recorded_by: Vec<String>,
    /// When the first decision of the file fell, among `decisions` or not; as their `at_ns`.
    first_ns: u64,
    decisions: Vec<Row>,
    /// Of those above: how many came out otherwise.
    different: usize,
    /// Decisions that are not in the file: they found no room when they fell, or saw too much.
    skipped: u64,
    too_long: u64,
    /// Whether the recording was ended, so that the two above are all.
    ended: bool,
}

/// A machine as of the last header.
struct Machine {
    core: Core,
    tables: Tables,
}

pub fn run(args: &Args, path: &Path, format: Format) -> Result<Code, Failure> {
    let told = read(args, path)?;
    let mut to = anstream::stdout().lock();
    match format {
        Format::Table => print(&mut to, args, &told)?,
        Format::Json => {
            serde_json::to_writer(&mut to, &told)?;
            writeln!(to)?;
        }
    }
    Ok(if told.different > 0 {
        Code::Other(1)
    } else {
        Code::Fine
    })
}

fn wrong(path: &Path, line: usize, what: impl std::fmt::Display) -> Failure {
    let file = path.display();
    Failure::new(Code::WrongUse, format!("{file}: line {line}: {what}"))
}

fn read(args: &Args, path: &Path) -> Result<Told, Failure> {
    let open =
        |error: io::Error| Failure::new(Code::WrongUse, format!("{}: {error}", path.display()));
    let mut file = BufReader::new(File::open(path).map_err(open)?);
    let mut told = Told {
        schema: "usher-explain-recorded/1",
        recorded_by: Vec::new(),
        first_ns: u64::MAX,
        decisions: Vec::new(),
        different: 0,
        skipped: 0,
        too_long: 0,
        ended: false,
    };
    let mut machine: Option<Machine> = None;
    let mut text = String::new();
    let (mut nr, mut comms) = (0, BTreeSet::new());
    for line in 1.. {
        text.clear();
        if file.read_line(&mut text).map_err(open)? == 0 {
            break;
        }
        let cut = |error: serde_json::Error| {
            let what = match (error.is_eof(), text.ends_with('\n')) {
                (true, false) => "it is cut off; delete it, what is before it is whole".into(),
                _ => format!("{error}; `scx_usher --record FILE` writes such files"),
            };
            wrong(path, line, what)
        };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(cut)?;
        if value.get("schema").is_some() {
            let header = header(&value).map_err(|what| wrong(path, line, what))?;
            told.recorded_by
                .push(format!("usher {} on Linux {}", header.usher, header.kernel));
            told.ended = false;
            let core = Core::new(&header.machine, &header.settings);
            machine = Some(Machine {
                core: core.map_err(|error| wrong(path, line, error))?,
                tables: header.machine,
            });
            continue;
        }
        let machine = machine.as_mut().ok_or_else(|| {
            wrong(
                path,
                line,
                format!("no header with `\"schema\":\"{SCHEMA}\"` stands before it"),
            )
        })?;
        if value.get("recorded").is_some() {
            let footer: Footer = serde_json::from_value(value).map_err(cut)?;
            told.skipped += footer.skipped;
            told.too_long += footer.too_long;
            told.ended = true;
            continue;
        }
        let recorded: Recorded = serde_json::from_value(value).map_err(cut)?;
        told.first_ns = told.first_ns.min(recorded.at_ns);
        nr += 1;
        if !comms.contains(&recorded.comm) {
            comms.insert(recorded.comm.clone());
        }
        if args.wants(&recorded) {
            let row = row(machine, &recorded, line, args.steps);
            told.decisions
                .push(row.map_err(|what| wrong(path, line, what))?);
        }
    }
    let first_ns = told.first_ns;
    told.decisions.retain(|row| args.wants_row(row, first_ns));
    if told.decisions.is_empty() && nr > 0 {
        let mut what = format!("none of its {nr} decisions is one of those asked for");
        if let Some(comm) = args.comm.as_ref().filter(|&comm| !comms.contains(comm)) {
            let comms: Vec<&str> = comms.iter().map(String::as_str).collect();
            what += &format!(
                "; no thread `{comm}` is in it, but {}",
                nearest(comm, &comms).join(", ")
            );
        }
        let file = path.display();
        return Err(Failure::new(Code::WrongUse, format!("{file}: {what}")));
    }
    told.different = told.decisions.iter().filter(|row| !row.same).count();
    // Each CPU's were fetched together.
    told.decisions.sort_by_key(|row| row.at_ns);
    if machine.is_none() {
        return Err(wrong(
            path,
            1,
            "the file is empty; `scx_usher --record FILE` writes one",
        ));
    }
    Ok(told)
}

fn header(value: &serde_json::Value) -> Result<Header, String> {
    let schema = &value["schema"];
    if schema != SCHEMA {
        return Err(format!(
            "`schema` is {schema}; this usher reads \"{SCHEMA}\""
        ));
    }
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

fn row(
    machine: &mut Machine,
    recorded: &Recorded,
    line: usize,
    steps: bool,
) -> Result<Row, String> {
    let replayed = machine
        .core
        .replay(recorded)
        .map_err(|error| error.to_string())?;
    let cpu = |cid: u32| machine.tables.cpu[cid as usize];
    let differs = (!replayed.is(recorded)).then(|| match replayed.differs_at {
        Some(at) if at < recorded.seen.len() => format!("access {} is another one", at + 1),
        Some(at) => format!("it makes more accesses than {at}"),
        None => format!(
            "it comes out as CPU {}, {}",
            cpu(replayed.came.cid),
            replayed.came.reason
        ),
    });
    let allowed = recorded.allowed.as_ref().map(|list| {
        // It was read as a list of cids of this machine before.
        let cids = parse_cpulist(list, MAX_CPU_NUMBER).unwrap_or_default();
        format_cpulist(cids.into_iter().map(cpu))
    });
    Ok(Row {
        line,
        at_ns: recorded.at_ns,
        pid: recorded.pid,
        comm: recorded.comm.clone(),
        wake: recorded.wake.as_str(),
        prev: cpu(recorded.prev),
        waker: cpu(recorded.waker),
        cpu: cpu(recorded.decision.cid),
        claimed: recorded.decision.claimed,
        reason: recorded.decision.reason,
        allowed,
        hints: recorded.hints.clone(),
        same: differs.is_none(),
        differs,
        steps: if steps {
            tell(machine, &recorded.seen)
        } else {
            Vec::new()
        },
    })
}

/// What a decision saw, in words. The two halves of an atomic operation are one step.
fn tell(machine: &Machine, seen: &[Seen]) -> Vec<String> {
    let cpus = |place, bits| {
        let cids = machine.core.idle_cids(place, bits);
        let list = format_cpulist(cids.iter().map(|cid| machine.tables.cpu[cid.0 as usize]));
        if list.is_empty() {
            "none".into()
        } else {
            list
        }
    };
    let mut steps = Vec::new();
    let mut given = Bits(0);
    for &Seen(saw, place, bits) in seen {
        let word = machine.core.word(place);
        steps.push(match (saw, word) {
            (Saw::Given, _) => {
                given = bits;
                continue;
            }
            (Saw::Queued, _) => format!("queue {place}: {} wait", bits.0),
            (Saw::Read, Word::Idle(_)) => format!("{word}: {}", cpus(place, bits.0)),
            // Who places takes one bit out.
            (Saw::Old, Word::Idle(_)) if bits.0 & !given.0 != 0 => {
                let taken = cpus(place, !given.0);
                format!("{word}: were {}, takes {taken}", cpus(place, bits.0))
            }
            (Saw::Old, Word::Idle(_)) => {
                format!("{word}: {} was taken by another", cpus(place, !given.0))
            }
            (Saw::Read, _) => format!("{word}: {bits:?}"),
            (Saw::Write, _) => format!("{word}: writes {bits:?}"),
            (Saw::Old, _) => format!("{word}: was {bits:?}, changed with {given:?}"),
        });
    }
    steps
}

/// The decisions, what their reasons mean, and whether they are the same here.
fn print(to: &mut impl io::Write, args: &Args, told: &Told) -> io::Result<()> {
    let ms = |row: &Row| format!("{:.3}", row.ms(told.first_ns));
    let what = |row: &Row| match &row.differs {
        Some(how) => format!("DIFFERENT here: {how}"),
        None if row.claimed => String::new(),
        None => "waits".into(),
    };
    if args.steps {
        for row in &told.decisions {
            writeln!(
                to,
                "line {}, {} ms: {} {}, {} by CPU {}, prev {}: CPU {}, {} {}",
                row.line,
                ms(row),
                row.comm,
                row.pid,
                row.wake,
                row.waker,
                row.prev,
                row.cpu,
                row.reason,
                what(row)
            )?;
            for step in &row.steps {
                writeln!(to, "    {step}")?;
            }
        }
    } else {
        let header = [
            "line", "ms", "pid", "task", "wake", "waker", "prev", "cpu", "reason", "",
        ];
        let mut table = out::table(&header, &["line", "ms", "pid", "waker", "prev", "cpu"]);
        for row in &told.decisions {
            table.add_row([
                row.line.to_string(),
                ms(row),
                row.pid.to_string(),
                row.comm.clone(),
                row.wake.into(),
                row.waker.to_string(),
                row.prev.to_string(),
                row.cpu.to_string(),
                row.reason.to_string(),
                what(row),
            ]);
        }
        out::section(to, &told.recorded_by.join("; "), &table)?;
    }
    writeln!(to)?;
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    for row in &told.decisions {
        *reasons.entry(row.reason).or_default() += 1;
    }
    for (reason, count) in &reasons {
        writeln!(to, "  {count:>6} {reason}: {}", reason.meaning())?;
    }
    let nr = match told.decisions.len() {
        1 => "1 decision".into(),
        nr => format!("{nr} decisions"),
    };
    let of = match args.chooses() {
        true => " of those asked for",
        false => "",
    };
    match told.different {
        0 => writeln!(to, "\n{nr}{of}, made again: all come out the same, bit for bit")?,
        d => writeln!(to, "\n{nr}{of}, made again: {d} come out otherwise; this usher is another one than recorded them")?,
    }
    let (skipped, too_long) = (told.skipped, told.too_long);
    if !told.ended {
        writeln!(
            to,
            "the recording was not ended, so nobody knows how many are missing"
        )?;
    } else if skipped + too_long > 0 {
        writeln!(
            to,
            "not in the file: {skipped} for which there was no room, {too_long} that saw too much"
        )?;
    }
    Ok(())
}
