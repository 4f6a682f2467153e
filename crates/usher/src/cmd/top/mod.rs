// SPDX-License-Identifier: GPL-2.0-only
//! `usher top`: which CPUs work, where tasks wait beside idle ones, and what scx_usher does about it, as it happens.

mod sample;

use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::Table;
use scx_stats::StatsClient;
use serde::Serialize;
use serde_json::Value;
use usher_lab::here;
use usher_topo::{format_cpulist, CidRange, Source, Topology, MAX_SHARD_WIDTH};

use crate::exit::{Code, Failure};
use crate::out;
use sample::{Load, Sample};

/// Where the kernel counts.
const PROC: &str = "/proc";

/// Show which CPUs work, where tasks wait beside idle CPUs, and why scx_usher places tasks where it does.
///
/// It works under any scheduler; what scx_usher counts is shown where that is attached. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds from one display to the next
    #[arg(long, value_name = "SEC", value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 1)]
    interval: u64,

    /// End after so many displays [default: go on]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// A row for each of what
    #[arg(long, value_enum, default_value_t = By::Llc)]
    by: By,

    /// How to print it; json is one object a line, with the rows of nodes, LLCs and CPUs
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Node,
    Llc,
    Cpu,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Llc => "LLC",
            Self::Cpu => "CPU",
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Some CPUs and what they did.
#[derive(Debug, Serialize)]
struct Row {
    /// A node's or a CPU's number in the kernel; LLCs are counted through.
    id: u32,
    /// The node's number in the kernel.
    node: u32,
    cpus: String,
    #[serde(skip)]
    nr_cpus: usize,
    #[serde(flatten)]
    load: Load,
}

impl Row {
    /// How busy they were, 0 to 1.
    fn share(&self) -> f64 {
        self.load.busy_cpus / self.nr_cpus as f64
    }
}

/// One display.
#[derive(Debug, Serialize)]
struct Display<'a> {
    schema: &'static str,
    kernel: &'a str,
    /// What sched_ext calls the attached scheduler; none under the kernel's own.
    scheduler: Option<String>,
    seconds: f64,
    machine: Load,
    nodes: Vec<Row>,
    llcs: Vec<Row>,
    cpus: Vec<Row>,
    /// What scx_usher counted meanwhile, as `scx_usher --help-stats` explains it.
    usher: Option<Value>,
    /// Why it is attached and was not heard.
    #[serde(skip)]
    trouble: Option<String>,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let environment = |error: io::Error| Failure::new(Code::Environment, error.to_string());
    let sample = || Sample::read(Path::new(PROC)).map_err(environment);
    let machine = || Topology::build(&Source::Live.read()?, MAX_SHARD_WIDTH);
    let kernel = here::release();
    let mut usher = Usher::default();
    let mut topo = machine()?;
    let mut before = sample()?;
    usher.counted(here::scheduler().as_deref());
    let mut to = anstream::stdout().lock();
    let mut left = args.count;
    while left != Some(0) {
        std::thread::sleep(Duration::from_secs(args.interval));
        let now = sample()?;
        if !(before.is_of(&topo) && now.is_of(&topo)) {
            // CPUs came or went: what was counted belongs to another machine.
            topo = machine()?;
            before = sample()?;
            continue;
        }
        let scheduler = here::scheduler();
        let display = Display {
            schema: "usher-top/1",
            kernel: &kernel,
            seconds: now.seconds_since(&before),
            machine: Load::between(&before, &now, &topo, all(&topo)),
            nodes: rows(&before, &now, &topo, By::Node),
            llcs: rows(&before, &now, &topo, By::Llc),
            cpus: rows(&before, &now, &topo, By::Cpu),
            usher: usher.counted(scheduler.as_deref()),
            trouble: usher.trouble.clone(),
            scheduler,
        };
        match args.format {
            Format::Table => display.print(&mut to, args.by, &topo)?,
            Format::Json => {
                serde_json::to_writer(&mut to, &display)?;
                writeln!(to)?;
            }
        }
        to.flush()?;
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(Code::Fine)
}

/// All CPUs of a machine.
fn all(topo: &Topology) -> CidRange {
    CidRange::new(0, topo.nr_cids())
}

fn rows(before: &Sample, now: &Sample, topo: &Topology, by: By) -> Vec<Row> {
    let row = |id: u32, node: u32, cids: CidRange| Row {
        id,
        node,
        cpus: format_cpulist(topo.cpus_in(cids).iter().map(|cpu| cpu.0)),
        nr_cpus: cids.len(),
        load: Load::between(before, now, topo, cids),
    };
    match by {
        By::Node => topo
            .nodes_by_id()
            .filter(|(_, node)| !node.cids.is_empty())
            .map(|(_, node)| row(node.id, node.id, node.cids))
            .collect(),
        By::Llc => (0..)
            .zip(topo.llcs())
            .map(|(id, llc)| row(id, topo[llc.node].id, llc.cids))
            .collect(),
        By::Cpu => {
            let mut rows: Vec<Row> = (0..)
                .zip(topo.cids())
                .map(|(cid, info)| {
                    let cids = CidRange::new(cid, cid + 1);
                    row(info.cpu.0, topo[info.node].id, cids)
                })
                .collect();
            rows.sort_by_key(|row| row.id);
            rows
        }
    }
}

impl Display<'_> {
    /// One screen on a terminal, a paragraph elsewhere.
    fn print(&self, to: &mut impl Write, by: By, topo: &Topology) -> io::Result<()> {
        const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";
        let mut screen = None;
        if io::stdout().is_terminal() {
            screen = console::Term::stdout().size_checked();
            write!(to, "{HOME_AND_CLEAR}")?;
        }
        let mut says = self.head(topo);
        if let Some(usher) = &self.usher {
            says.extend(usher_says(usher, self.seconds));
        }
        if let Some(trouble) = &self.trouble {
            says.push(format!("what scx_usher counts is not known: {trouble}"));
        }
        for line in &says {
            writeln!(to, "{line}")?;
        }
        let room = screen.map_or(usize::MAX, |(height, width)| {
            let wrapped = |line: &String| line.len().div_ceil(usize::from(width).max(1));
            // An empty line and a title above the table, its header, one for what does not fit, and the cursor's.
            let others = 5 + says.iter().map(wrapped).sum::<usize>();
            usize::from(height).saturating_sub(others)
        });
        let (title, rows) = match by {
            By::Node => ("Nodes", &self.nodes),
            By::Llc => ("LLCs", &self.llcs),
            By::Cpu => ("CPUs", &self.cpus),
        };
        let shown = most_pressed(rows, room);
        out::section(to, title, &table(&shown, by, topo.smt_width() > 1))?;
        if shown.len() < rows.len() {
            writeln!(to, "  and {} with less to do", rows.len() - shown.len())?;
        }
        match screen {
            Some(_) => Ok(()),
            None => writeln!(to),
        }
    }

    /// What the machine does as a whole.
    fn head(&self, topo: &Topology) -> Vec<String> {
        let scheduler = match &self.scheduler {
            Some(ops) => format!("the sched_ext scheduler {ops}"),
            None => "its own scheduler".into(),
        };
        let load = &self.machine;
        let waits = match (load.waiting_tasks, load.switches_per_s) {
            (Some(waiting), Some(switches)) => {
                format!("{waiting:.1} tasks waiting, {switches:.0} switches per second")
            }
            _ => "who waits is not known: no /proc/schedstat (CONFIG_SCHEDSTATS=y)".into(),
        };
        vec![
            format!(
                "Linux {} under {scheduler}, over {:.1} s",
                self.kernel, self.seconds
            ),
            format!(
                "{:.1} of {} CPUs busy, {} idle; {waits}",
                load.busy_cpus,
                topo.nr_cids(),
                load.idle_cpus
            ),
        ]
    }
}

/// The rows that fit, those of the longest queues and then the busiest first if not all do.
fn most_pressed(rows: &[Row], room: usize) -> Vec<&Row> {
    let mut shown: Vec<&Row> = rows.iter().collect();
    if shown.len() > room {
        let pressure = |row: &Row| {
            let waiting = row.load.waiting_tasks.unwrap_or(0.0);
            (waiting / row.nr_cpus as f64, row.share())
        };
        shown.sort_by(|a, b| pressure(b).partial_cmp(&pressure(a)).expect("numbers"));
        shown.truncate(room.max(1));
    }
    shown
}

/// Its name, whether it is shown, and what it says of a row.
type Column<'a> = (&'a str, bool, &'a dyn Fn(&Row) -> String);

fn table(rows: &[&Row], by: By, smt: bool) -> Table {
    let known = rows.iter().any(|row| row.load.waiting_tasks.is_some());
    let many = !matches!(by, By::Cpu);
    let columns: [Column; 9] = [
        (by.name(), true, &|row| row.id.to_string()),
        ("node", !matches!(by, By::Node), &|row| row.node.to_string()),
        ("busy", true, &|row| format!("{:.0} %", 100.0 * row.share())),
        ("", true, &|row| bar(row.share())),
        ("idle CPUs", many, &|row| {
            format!("{} of {}", row.load.idle_cpus, row.nr_cpus)
        }),
        ("idle cores", many && smt, &|row| {
            row.load.idle_cores.to_string()
        }),
        ("waiting", known, &|row| number(row.load.waiting_tasks, 1)),
        ("switches/s", known, &|row| {
            number(row.load.switches_per_s, 0)
        }),
        ("CPUs", many, &|row| row.cpus.clone()),
    ];
    let columns = columns.iter().filter(|(_, shown, _)| *shown);
    let header: Vec<&str> = columns.clone().map(|(name, ..)| *name).collect();
    let right: Vec<&str> = header
        .iter()
        .copied()
        .filter(|name| !["", "CPUs"].contains(name))
        .collect();
    let mut table = out::table(&header, &right);
    for row in rows {
        table.add_row(columns.clone().map(|(.., cell)| cell(row)));
    }
    table
}

/// Ten places, so many of them full.
fn bar(share: f64) -> String {
    let full = (share * 10.0).round().clamp(0.0, 10.0) as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(10 - full))
}

/// With so many places, or a mark that the kernel does not say.
fn number(of: Option<f64>, places: usize) -> String {
    of.map_or("?".into(), |of| format!("{of:.places$}"))
}

/// The statistics of scx_usher, which each client gets as they were counted since it last asked.
#[derive(Default)]
struct Usher {
    client: Option<StatsClient>,
    /// Why an attached scx_usher was not heard.
    trouble: Option<String>,
}

impl Usher {
    /// What was counted since the last call; none where `scheduler`, the attached one, is no scx_usher that serves it, or since it
    /// came only now.
    fn counted(&mut self, scheduler: Option<&str>) -> Option<Value> {
        const PATIENCE_MS: u64 = 2_000;
        if !scheduler.is_some_and(|ops| ops.starts_with("usher")) {
            *self = Self::default();
            return None;
        }
        let fresh = self.client.is_none();
        let asked = match self.client.take() {
            Some(client) => Ok(client),
            None => StatsClient::new().connect(Some(PATIENCE_MS)),
        }
        .and_then(|mut client| {
            let counted = client.request::<Value>("stats", Vec::new())?;
            Ok((client, counted))
        });
        self.trouble = asked.as_ref().err().map(|error| format!("{error:#}"));
        let (client, counted) = asked.ok()?;
        self.client = Some(client);
        (!fresh).then_some(counted)
    }
}

/// Why tasks were placed where, per second.
fn usher_says(counted: &Value, seconds: f64) -> Vec<String> {
    let n = |of: &Value| of.as_f64().unwrap_or(0.0);
    let field = |name: &str| n(&counted[name]);
    let per_s = |of: f64| format!("{:.0}", of / seconds);
    let share = |of: f64| 100.0 * of / field("decisions").max(1.0);
    let each = |of: &str, key: &str| -> Vec<(String, f64)> {
        let entries = counted[of].as_object().into_iter().flatten();
        entries
            .map(|(name, stats)| (name.clone(), n(&stats[key])))
            .collect()
    };
    let mut reasons = each("reasons", "decisions");
    reasons.retain(|(_, decisions)| *decisions > 0.0);
    reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
    let reasons = reasons
        .iter()
        .map(|(reason, of)| format!("{reason} {:.1} %", share(*of)));
    let moved = each("migrations", "tasks");
    let moved = moved
        .iter()
        .map(|(level, of)| format!("{level} {}", per_s(*of)));
    let mut says = vec![
        format!(
            "placed {} a second, {:.1} % on idle CPUs; moved {}; longest wait since the start {} ms",
            per_s(field("decisions")),
            share(field("claimed")),
            moved.collect::<Vec<_>>().join(", "),
            field("longest_wait_ms")
        ),
        format!("why: {}", reasons.collect::<Vec<_>>().join(", ")),
    ];
    let taken = ["preempted_llc", "preempted_node", "preempted_remote"].map(field);
    let others = [
        ("hints kept", field("hints_kept")),
        ("hints lapsed", field("hints_lapsed")),
        ("CPUs taken for urgent tasks", taken.iter().sum()),
        ("urgent tasks that waited", field("preempted_none")),
        ("running tasks moved", field("running_moved")),
    ];
    let others = others.iter().filter(|(_, of)| *of > 0.0);
    let others: Vec<String> = others
        .map(|(what, of)| format!("{what} {}", per_s(*of)))
        .collect();
    if !others.is_empty() {
        says.push(format!("{}, per second", others.join(", ")));
    }
    says
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: counters become rates and shares, the commonest reason first, and what did not happen is not listed.
    #[test]
    fn statistics_as_rates() {
        let counted = serde_json::json!({
            "decisions": 200, "claimed": 150, "longest_wait_ms": 7, "hints_kept": 0, "hints_lapsed": 40,
            "reasons": { "queued": { "decisions": 50 }, "prev": { "decisions": 150 }, "fork": { "decisions": 0 } },
            "migrations": { "core": { "tasks": 4 }, "llc": { "tasks": 0 } },
        });
        assert_eq!(
            usher_says(&counted, 2.0),
            [
                "placed 100 a second, 75.0 % on idle CPUs; moved core 2, llc 0; longest wait since the start 7 ms",
                "why: prev 75.0 %, queued 25.0 %",
                "hints lapsed 20, per second",
            ]
        );
    }

    // Goal: on a screen that is too small, the rows that matter are those that stay.
    #[test]
    fn rows_that_do_not_fit() {
        let row = |id, busy_cpus, waiting| Row {
            id,
            node: 0,
            cpus: String::new(),
            nr_cpus: 4,
            load: Load {
                busy_cpus,
                waiting_tasks: waiting,
                ..Load::default()
            },
        };
        let ids = |rows: &[Row], room| -> Vec<u32> {
            most_pressed(rows, room).iter().map(|row| row.id).collect()
        };
        let rows = [
            row(0, 3.0, Some(0.0)),
            row(1, 1.0, Some(2.0)),
            row(2, 3.5, Some(0.0)),
        ];
        assert_eq!(ids(&rows, 3), [0, 1, 2], "all fit, in their order");
        assert_eq!(ids(&rows, 2), [1, 2]);
        assert_eq!(ids(&[row(0, 1.0, None), row(1, 2.0, None)], 0), [1]);
    }
}
