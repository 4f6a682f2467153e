// SPDX-License-Identifier: GPL-2.0-only
//! `usher compare`: policies side by side, with paired seeds.

mod why;

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;
use usher_report::stats::{Effect, Summary};
use usher_report::table::{metric, Text};
use usher_reproduce::plan::quoted;
use usher_sim::case::{self, Case};
use usher_sim::grid::{self, GridError, Runs};
use usher_sim::params::Params;
use usher_sim::workload::Headline;
use usher_sim::{Machine, SimError};

use self::why::Why;
use super::sim::{WhatArgs, COST};
use crate::args::{JobsArgs, SeedArgs, SourceArgs};
use crate::exit::{Code, Failure};
use crate::{interrupt, out};

/// Compare policies on a simulated machine: medians, effects with 95 % intervals, noise floor
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Without a machine: epyc-2s-384. Without arguments: schbench with message_threads=24 workers=24\n\
                  runtime=2s under eevdf, scx-simple with one idle mask and with one per node, and usher. Whoever names\n\
                  a machine, a workload or a parameter gets the workload's own parameters for all others.\n\
                  An effect is the geometric mean of the ratios to the first policy, over runs with the same seeds;\n\
                  ~ is an effect that cannot be told from none."
)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    what: WhatArgs,

    /// The policies; the first is what the others are compared with. NAME or NAME:key=value:...
    #[arg(long, value_delimiter = ',', default_value = CURATED_POLICIES)]
    #[arg(long_help = super::sim::policy_help())]
    policies: Vec<String>,

    /// Values of a parameter of the workload, or of a cost of the machine, to go through; several of these give all combinations
    #[arg(long, value_name = "KEY=V1,V2,...")]
    sweep: Vec<String>,

    /// Runs per policy and value, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    #[command(flatten)]
    seeds: SeedArgs,

    #[command(flatten)]
    jobs: JobsArgs,

    /// The metric to compare; the workload's own if not given
    #[arg(long)]
    metric: Option<String>,

    /// Also tell what else differs: all other metrics, decisions by reason, migrations, waits for shared lines
    #[arg(long)]
    why: bool,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

const CURATED_POLICIES: &str = "eevdf,scx-simple,scx-simple+node-idle-mask,usher";
const CURATED_MACHINE: &str = "epyc-2s-384";
/// Busy enough that idle CPUs are scarce: 576 workers and 24 messengers, each at work half of the time.
const CURATED_PARAMETERS: [&str; 3] = ["message_threads=24", "workers=24", "runtime=2s"];

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One object, schema usher-compare/1
    Json,
    /// One row per policy and value
    Csv,
    /// CSV with one row per metric of each run, all metrics there are, and a column for each parameter set or swept
    Tidy,
}

#[derive(Serialize)]
struct Comparison {
    schema: &'static str,
    machine: String,
    workload: String,
    /// What was set for all cells.
    parameters: Vec<String>,
    metric: String,
    /// `None` for a metric that neither way is better by itself.
    higher_is_better: Option<bool>,
    /// The metric of how long the slowest requests take, if the workload notes that and no metric was asked for.
    tail: Option<String>,
    runs: u32,
    /// Of the first run; the others have the following ones.
    first_seed: u64,
    /// What `low` and `high` of a cell are: `range`, the least and the greatest run, or with more of them `interval`, the 95 %
    /// interval of the median.
    spread: &'static str,
    /// By how much another set of so many runs of the first policy may differ from this one. Effects are of pairs, so smaller
    /// ones can be told.
    noise_floor_pct: Option<f64>,
    /// What a cycle is in `cells[].words`.
    clock_mhz: u64,
    /// Interrupted: some runs are missing.
    partial: bool,
    cells: Vec<Cell>,
    limits: Vec<String>,
}

#[derive(Serialize)]
struct Cell {
    policy: String,
    parameters: Vec<String>,
    n: usize,
    /// Runs that came to their end, with such a value or without.
    #[serde(skip)]
    finished: usize,
    /// `None`: no run was finished, or none came to a value.
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    /// By seed, from `first_seed`; `None`: no run, or none that came to a value.
    values: Column,
    #[serde(flatten)]
    ratio: Ratio,
    /// `None` if the comparison has none.
    tail: Option<Tail>,
    /// Median share of the busy time that was the kernel's.
    kernel_share: Option<f64>,
    /// Words of the policy's shared data that it counts loads of, over all runs.
    words: BTreeMap<String, Word>,
    /// With `--why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Why>,
    /// Repeats the cell's first run.
    replay: String,
}

/// Ratio to the first policy, and its 95 % interval, which takes two runs. Not given for the first policy itself.
#[derive(Serialize)]
struct Ratio {
    effect: Option<f64>,
    effect_low: Option<f64>,
    effect_high: Option<f64>,
    distinguishable: bool,
}

/// How long the slowest requests take.
#[derive(Serialize)]
struct Tail {
    /// `None`: no run came to a value.
    median: Option<f64>,
    #[serde(flatten)]
    ratio: Ratio,
}

/// Loads of a word; atomic operations load, too.
#[derive(Clone, Copy, Default, Serialize)]
struct Word {
    loads: u64,
    /// Waiting for the line included.
    cycles_per_load: f64,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let mut args = args.clone();
    if args.is_bare() {
        args.what.set = CURATED_PARAMETERS.map(String::from).to_vec();
    }
    let args = &args;
    if args.why && matches!(args.format, Format::Csv) {
        let what = "--why is told by --format table and json, and --format tidy has its metrics of all runs";
        return Err(Failure::new(Code::WrongUse, what.into()));
    }
    let (params, costs) = args.what.params()?;
    let source = args.source.source_or(CURATED_MACHINE);
    let points = points(&args.sweep, &params, &costs)?;
    let mut machines = BTreeMap::new();
    let mut cases = Vec::new();
    for point in &points {
        let (mut workload_params, mut costs) = (params.clone(), costs.clone());
        for (key, value) in point {
            workload_params.set(key, value);
        }
        for (name, value) in workload_params.take_prefix(COST).given() {
            costs.set(name, value);
        }
        let machine = match machines.entry(costs.given().clone()) {
            Entry::Occupied(made) => Arc::clone(made.get()),
            Entry::Vacant(none) => {
                Arc::clone(none.insert(Arc::new(case::machine(&source, &costs)?)))
            }
        };
        for policy in &args.policies {
            let (policy, policy_params) = case::parse_policy(policy)?;
            cases.push(Case {
                machine: Arc::clone(&machine),
                workload: args.what.workload.clone(),
                workload_params: workload_params.clone(),
                policy,
                policy_params,
            });
        }
    }
    // Names and values are checked before hours of work begin.
    let mut headline = None;
    for case in &cases {
        let simulation = case.simulation(1, usher_sim::Options::default())?;
        headline.get_or_insert_with(|| simulation.headline().clone());
    }
    let headline = headline.expect("there is at least one policy and one point");
    let bar = out::progress(cases.len() as u64 * u64::from(args.runs));
    let seeds: Vec<u64> = (args.seeds.first..).take(args.runs as usize).collect();
    let (first, others) = seeds.split_at(1);
    // Waits for a CPU are observed for who asks.
    let asked = |metric: &String| metric.starts_with("waits_");
    let observed = args.why || args.metric.as_ref().is_some_and(asked);
    let run = |seeds: &[u64]| {
        let jobs = args.jobs.given();
        let runs = grid::run(&cases, seeds, jobs, observed, interrupt::flag(), || {
            bar.inc(1);
        });
        runs.map_err(|error| failed(args, &points, error))
    };
    let runs = run(first).and_then(|mut runs| {
        // Only runs know their metrics. The first of each case does, before the others take hours.
        if let Some(metric) = &args.metric {
            check_metric(metric, &headline, &runs)?;
        }
        for (runs, others) in runs.iter_mut().zip(run(others)?) {
            runs.extend(others);
        }
        Ok(runs)
    });
    bar.finish_and_clear();
    let runs = runs?;
    let machine = &cases[0].machine;
    let comparison = Comparison::new(args, machine, &headline, &points, &runs)?;
    let mut out = anstream::stdout().lock();
    match args.format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &comparison)?;
            writeln!(out)?;
        }
        Format::Table => comparison.write_table(&mut out)?,
        Format::Csv => comparison.write_csv(&mut out)?,
        Format::Tidy => write_tidy(args, &comparison, &points, &runs, &mut out)?,
    }
    out.flush()?;
    Ok(if comparison.partial {
        interrupt::INTERRUPTED
    } else {
        Code::Fine
    })
}

impl Args {
    /// Nothing was said about the machine or the workload: the curated case.
    fn is_bare(&self) -> bool {
        let what = &self.what;
        self.source.is_live()
            && what.workload == super::sim::DEFAULT_WORKLOAD
            && what.set.is_empty()
            && self.sweep.is_empty()
    }
}

/// A point of the sweep: parameters of the workload and costs of the machine.
type Point = Vec<(String, String)>;

/// All combinations of the sweeps' values. What is swept is not among the parameters that all cases share.
fn points(sweeps: &[String], workload: &Params, costs: &Params) -> Result<Vec<Point>, SimError> {
    let mut points: Vec<Point> = vec![Vec::new()];
    for sweep in sweeps {
        let values = sweep
            .split_once('=')
            .filter(|(key, values)| !key.is_empty() && !values.is_empty());
        let Some((key, values)) = values else {
            return Err(SimError::Parameter {
                key: sweep.clone(),
                what: "is not a sweep; give --sweep key=value,value,...".into(),
            });
        };
        let wrong = |what: &str| SimError::Parameter {
            key: key.into(),
            what: what.into(),
        };
        if points[0].iter().any(|(swept, _)| swept == key) {
            return Err(wrong("is swept twice; give all its values in one --sweep"));
        }
        let shared = match key.strip_prefix(COST) {
            Some(name) => costs.given().contains_key(name),
            None => workload.given().contains_key(key),
        };
        if shared {
            return Err(wrong("is set and swept; leave out one of them"));
        }
        let values: Vec<&str> = values.split(',').collect();
        if let Some(i) = (1..values.len()).find(|&i| values[..i].contains(&values[i])) {
            let what = format!("is swept over `{}` twice; leave one out", values[i]);
            return Err(wrong(&what));
        }
        points = points
            .iter()
            .flat_map(|point| {
                values.iter().map(move |value| {
                    let mut point = point.clone();
                    point.push((key.to_string(), value.to_string()));
                    point
                })
            })
            .collect();
    }
    Ok(points)
}

impl Comparison {
    fn new(
        args: &Args,
        machine: &Machine,
        headline: &Headline,
        points: &[Point],
        runs: &[Runs],
    ) -> Result<Comparison, Failure> {
        let metric = args.metric.clone();
        let metric = metric.unwrap_or_else(|| headline.metric.clone());
        check_metric(&metric, headline, runs)?;
        let tail = headline.tail.clone().filter(|_| args.metric.is_none());
        let columns = |metric: &str| -> Vec<Column> {
            runs.iter().map(|runs| column(runs, metric)).collect()
        };
        let values = columns(&metric);
        let tails = tail.as_deref().map(columns);
        let shown: Vec<&str> = std::iter::once(&*metric).chain(tail.as_deref()).collect();
        let cpus = machine.cpus().len();
        let nr = args.policies.len();
        let mut cells = Vec::new();
        for i in 0..runs.len() {
            let (point, policy) = (&points[i / nr], &args.policies[i % nr]);
            let replay = replay(args, point, policy, args.seeds.first);
            let base = (i % nr != 0).then_some(i / nr * nr);
            let ratio =
                |columns: &[Column]| Ratio::of(base.map(|base| &columns[base]), &columns[i]);
            let tail = tails.as_ref().map(|tails| Tail {
                median: median(&tails[i]),
                ratio: ratio(tails),
            });
            let why = args.why.then(|| {
                let first = base.map(|base| &runs[base]);
                Why::of(&runs[i], first, cpus, &shown)
            });
            let ratio = ratio(&values);
            let mut cell = Cell::new(point, policy, &runs[i], &values[i], ratio);
            (cell.tail, cell.why, cell.replay) = (tail, why, replay);
            cells.push(cell);
        }
        Ok(Comparison {
            schema: "usher-compare/1",
            machine: machine.topo().name().into(),
            clock_mhz: machine.costs().n.clock_mhz,
            workload: args.what.workload.clone(),
            parameters: args.what.set.clone(),
            higher_is_better: headline.higher_is_better(&metric),
            metric,
            tail,
            runs: args.runs,
            first_seed: args.seeds.first,
            spread: match cells.iter().any(|cell| cell.n >= Summary::INTERVAL_MIN) {
                true => "interval",
                false => "range",
            },
            noise_floor_pct: noise_floor(values.iter().step_by(nr)),
            partial: runs.iter().flatten().any(Option::is_none),
            cells,
            limits: limits(runs),
        })
    }

    fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let better = match self.higher_is_better {
            Some(true) => " (higher is better)",
            Some(false) => " (lower is better)",
            None => "",
        };
        writeln!(
            out,
            "{} on {}: {}{better}, {}",
            self.workload,
            self.machine,
            self.metric,
            match self.runs {
                1 => "one run".into(),
                runs => format!("{runs} runs with paired seeds"),
            }
        )?;
        if !self.parameters.is_empty() {
            writeln!(out, "with {}", self.parameters.join(" "))?;
        }
        writeln!(out)?;
        // Without a sweep there is nothing to say about parameters.
        let skipped = usize::from(self.cells.iter().all(|c| c.parameters.is_empty()));
        let p99: &[&str] = match self.tail {
            Some(_) => &[">p99", ">its effect"],
            None => &[],
        };
        let headings = ["parameters", "policy", ">median", ">low", ">high"];
        let effect = [">effect", "95 % interval"];
        let headings = [&headings[..], &effect, p99, &[">kernel"]].concat();
        let mut text = Text::new(&headings[skipped..]);
        for cell in &self.cells {
            // A run may end before it has a value: a latency of which no sample was taken yet.
            let none = if cell.finished == 0 {
                "no run"
            } else {
                "no value"
            };
            let shown = |value: Option<f64>| value.map_or(none.into(), |v| metric(&self.metric, v));
            let interval = match (cell.ratio.effect_low, cell.ratio.effect_high) {
                (Some(low), Some(high)) => format!("{} to {} %", percent(low), percent(high)),
                _ => String::new(),
            };
            let mut row = vec![
                cell.parameters.join(" "),
                cell.policy.clone(),
                shown(cell.median),
                shown(cell.low),
                shown(cell.high),
                cell.ratio.shown(),
                interval,
            ];
            if let (Some(name), Some(tail)) = (&self.tail, &cell.tail) {
                row.push(tail.median.map_or(none.into(), |v| metric(name, v)));
                row.push(tail.ratio.shown());
            }
            let kernel = cell.kernel_share;
            row.push(kernel.map_or(String::new(), |share| format!("{:.1} %", share * 100.0)));
            text.row(row.into_iter().skip(skipped));
        }
        writeln!(out, "{text}")?;
        for cells in self.by_point() {
            write_words(out, cells, self.clock_mhz)?;
            why::write(out, cells)?;
        }
        if let Some(tail) = &self.tail {
            writeln!(out, "p99: the median of {tail}; lower is better")?;
        }
        writeln!(out, "kernel: share of the busy time that was the kernel's")?;
        match (self.runs, self.spread) {
            (1, _) => {}
            (_, "range") => writeln!(out, "low, high: the least and the greatest run")?,
            _ => writeln!(out, "low, high: the 95 % interval of the median")?,
        }
        if self.cells.iter().any(|c| c.ratio.effect.is_some()) {
            match self.runs {
                1 => writeln!(out, "effect: ratio to the first policy's run; whether it is chance takes more runs to tell")?,
                _ => writeln!(
                    out,
                    "effect: mean ratio to the first policy's runs, pair by pair; ~ cannot be told from none"
                )?,
            }
        }
        match self.noise_floor_pct {
            Some(floor) => writeln!(
                out,
                "noise floor: {floor:.1} % (by which so many other runs of the first policy may differ; pairs tell less)"
            )?,
            None => writeln!(out, "noise floor: not known, that takes four runs or more")?,
        }
        if self.partial {
            writeln!(out, "interrupted: some runs are missing")?;
        }
        let valueless: usize = self.cells.iter().map(|c| c.finished - c.n).sum();
        if valueless > 0 {
            writeln!(
                out,
                "no value: {valueless} runs ended without {}; let them run longer",
                self.metric
            )?;
        }
        for limit in &self.limits {
            writeln!(out, "limit: {limit}")?;
        }
        match self.cells.last() {
            Some(cell) => writeln!(out, "replay of the last row's first run: {}", cell.replay),
            None => Ok(()),
        }
    }

    /// The cells of each point of the sweep.
    fn by_point(&self) -> impl Iterator<Item = &[Cell]> {
        self.cells.chunk_by(|a, b| a.parameters == b.parameters)
    }

    fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "machine,workload,parameters,metric,better,policy,runs,n,median,low,high,spread,effect,effect_low,effect_high,\
             distinguishable,tail_metric,tail_median,tail_effect,kernel_share,partial"
        )?;
        let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
        let better = match self.higher_is_better {
            Some(true) => "higher",
            Some(false) => "lower",
            None => "",
        };
        for c in &self.cells {
            let parameters: Vec<&str> = [&self.parameters, &c.parameters]
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect();
            let tail = c.tail.as_ref();
            let columns = [
                self.machine.clone(),
                self.workload.clone(),
                parameters.join(" "),
                self.metric.clone(),
                better.into(),
                c.policy.clone(),
                self.runs.to_string(),
                c.n.to_string(),
                number(c.median),
                number(c.low),
                number(c.high),
                self.spread.into(),
                number(c.ratio.effect),
                number(c.ratio.effect_low),
                number(c.ratio.effect_high),
                c.ratio.distinguishable.to_string(),
                self.tail.clone().unwrap_or_default(),
                number(tail.and_then(|tail| tail.median)),
                number(tail.and_then(|tail| tail.ratio.effect)),
                number(c.kernel_share),
                self.partial.to_string(),
            ];
            let columns: Vec<_> = columns.iter().map(|column| field(column)).collect();
            writeln!(out, "{}", columns.join(","))?;
        }
        Ok(())
    }
}

/// Of cells of one point of the sweep: words by rows, policies by columns.
fn write_words(out: &mut impl Write, cells: &[Cell], clock_mhz: u64) -> io::Result<()> {
    let names: BTreeSet<&String> = cells.iter().flat_map(|c| c.words.keys()).collect();
    if names.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "cycles per load of words that CPUs share{}, waiting included (at {clock_mhz} MHz; an atomic operation \
         loads, too)\n",
        with(cells),
    )?;
    let mut text = table("word", cells.iter().map(|cell| cell.policy.as_str()));
    for name in names {
        let cycles = cells.iter().map(|cell| match cell.words.get(name) {
            Some(word) => format!("{:.0}", word.cycles_per_load),
            None => "-".into(),
        });
        text.row(std::iter::once(name.clone()).chain(cycles));
    }
    writeln!(out, "{text}")
}

/// What cells of one point of a sweep have in common, to go on a heading with.
fn with(cells: &[Cell]) -> String {
    match cells[0].parameters.is_empty() {
        true => String::new(),
        false => format!(" with {}", cells[0].parameters.join(" ")),
    }
}

/// A table of names, with columns of numbers.
fn table<'a>(names: &str, columns: impl IntoIterator<Item = &'a str>) -> Text {
    let columns = columns.into_iter().map(|column| format!(">{column}"));
    let headings: Vec<String> = std::iter::once(names.into()).chain(columns).collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    Text::new(&headings)
}

/// Every value of every run.
fn write_tidy(
    args: &Args,
    comparison: &Comparison,
    points: &[Point],
    runs: &[Runs],
    out: &mut impl Write,
) -> io::Result<()> {
    let hint = args.what.hint.iter().map(|hint| ("hint", hint.as_str()));
    let set = args.what.set.iter().filter_map(|pair| pair.split_once('='));
    let set = set.chain(hint);
    let (set_keys, set_values): (Vec<&str>, Vec<&str>) = set.unzip();
    let swept = points[0].iter().map(|(key, _)| key.as_str());
    let keys = set_keys.into_iter().chain(swept);
    let mut row = |columns: &[&str]| {
        let columns: Vec<_> = columns.iter().map(|column| field(column)).collect();
        writeln!(out, "{}", columns.join(","))
    };
    let headings: Vec<&str> = ["machine", "workload"]
        .into_iter()
        .chain(keys)
        .chain(["policy", "seed", "metric", "value"])
        .collect();
    row(&headings)?;
    let nr = args.policies.len();
    for (i, runs) in runs.iter().enumerate() {
        let values = points[i / nr].iter().map(|(_, value)| value.as_str());
        let what: Vec<&str> = [comparison.machine.as_str(), comparison.workload.as_str()]
            .into_iter()
            .chain(set_values.iter().copied())
            .chain(values)
            .chain([args.policies[i % nr].as_str()])
            .collect();
        let finished = (args.seeds.first..).zip(runs);
        for (seed, report) in finished.filter_map(|(seed, run)| Some((seed, run.as_ref()?))) {
            let seed = seed.to_string();
            for (metric, value) in &report.metrics {
                let value = value.to_string();
                row(&[&what[..], &[&seed, metric, &value]].concat())?;
            }
        }
    }
    Ok(())
}

/// Refuses a metric that no run has. A run alone says little: what took no sample is not in its report.
fn check_metric(metric: &str, headline: &Headline, runs: &[Runs]) -> Result<(), SimError> {
    let reports = || runs.iter().flatten().flatten();
    let names: BTreeSet<&str> = reports()
        .flat_map(|report| report.metrics.keys().map(String::as_str))
        .collect();
    if names.is_empty() || names.contains(metric) {
        return Ok(());
    }
    if metric == headline.metric {
        return Err(SimError::Parameter {
            key: "runtime".into(),
            what: format!(
                "or what else sets the length of a run is too short: no run has a {metric}"
            ),
        });
    }
    let names: Vec<&str> = names.into_iter().collect();
    Err(SimError::Unknown {
        kind: "metric".into(),
        name: metric.into(),
        nearest: usher_sim::error::nearest(metric, &names),
    })
}

/// What any of the runs leaves out, each once.
fn limits(runs: &[Runs]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for limit in runs.iter().flatten().flatten().flat_map(|r| &r.limits) {
        if !all.contains(limit) {
            all.push(limit.clone());
        }
    }
    all
}

/// A field of CSV: names of files may hold anything.
fn field(text: &str) -> Cow<'_, str> {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")).into(),
        false => text.into(),
    }
}

/// A ratio as a change in per cent.
fn percent(ratio: f64) -> String {
    format!("{:+.1}", (ratio - 1.0) * 100.0)
}

/// A metric of a cell's runs, by seed; `None` where one has no value.
type Column = Vec<Option<f64>>;

fn present(column: &Column) -> Vec<f64> {
    column.iter().flatten().copied().collect()
}

fn median(column: &Column) -> Option<f64> {
    Summary::of(&present(column)).map(|s| s.median)
}

fn column(runs: &Runs, metric: &str) -> Column {
    runs.iter()
        .map(|run| run.as_ref().and_then(|r| r.metrics.get(metric).copied()))
        .collect()
}

/// Loads of all runs together.
fn words(runs: &Runs) -> BTreeMap<String, Word> {
    let mut all: BTreeMap<String, Word> = BTreeMap::new();
    let of_runs = runs.iter().flatten().flat_map(|run| &run.words);
    for (name, word) in of_runs.filter(|(_, word)| word.loads > 0) {
        let sum = all.entry(name.clone()).or_default();
        let cycles = sum.cycles_per_load * sum.loads as f64;
        sum.loads += word.loads;
        let cycles = cycles + word.cycles_per_load * word.loads as f64;
        sum.cycles_per_load = cycles / sum.loads as f64;
    }
    all
}

impl Ratio {
    /// Of runs to those of the first policy with the same seeds, if there is another.
    fn of(base: Option<&Column>, own: &Column) -> Ratio {
        let effect = base.and_then(|base| {
            let pairs = base.iter().zip(own);
            let pairs = pairs.filter_map(|(b, v)| Some(((*b)?, (*v)?)));
            let (base, own): (Vec<f64>, Vec<f64>) = pairs.unzip();
            Effect::paired(&base, &own)
        });
        // Of one pair it is without end.
        let interval = effect.filter(|e| e.high.is_finite());
        Ratio {
            effect: effect.map(|e| e.ratio),
            effect_low: interval.map(|e| e.low),
            effect_high: interval.map(|e| e.high),
            distinguishable: effect.is_some_and(|e| e.distinguishable()),
        }
    }

    /// As the table has it.
    fn shown(&self) -> String {
        match self.effect {
            Some(effect) if self.distinguishable || self.effect_high.is_none() => {
                format!("{} %", percent(effect))
            }
            Some(_) => "~".into(),
            None => String::new(),
        }
    }
}

impl Cell {
    /// Without its tail, its why and its replay.
    fn new(point: &Point, policy: &str, runs: &Runs, own: &Column, ratio: Ratio) -> Cell {
        let values = present(own);
        let summary = Summary::of(&values);
        Cell {
            policy: policy.into(),
            parameters: point
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
            n: values.len(),
            finished: runs.iter().flatten().count(),
            median: summary.map(|s| s.median),
            low: summary.map(|s| s.low),
            high: summary.map(|s| s.high),
            values: own.clone(),
            ratio,
            tail: None,
            kernel_share: median(&column(runs, "kernel_share")),
            words: words(runs),
            why: None,
            replay: String::new(),
        }
    }
}

/// The first policy against itself: the upper end, in per cent, of the 95 % interval of the ratio of two sets of such runs
/// that share no seeds; at the worst point of a sweep. `None` for fewer than four runs.
fn noise_floor<'a>(firsts: impl Iterator<Item = &'a Column>) -> Option<f64> {
    let floors = firsts.filter_map(|values| {
        let values = present(values);
        if values.len() < 4 {
            return None;
        }
        let effect = Effect::unpaired(&values, &values)?;
        Some((effect.high - 1.0) * 100.0)
    });
    floors.max_by(f64::total_cmp)
}

/// The command that repeats one run.
fn replay(args: &Args, point: &Point, policy: &str, seed: u64) -> String {
    let mut line = format!(
        "usher sim {} --workload {}",
        args.source.words(CURATED_MACHINE),
        quoted(&args.what.workload)
    );
    let swept = point.iter().map(|(key, value)| format!("{key}={value}"));
    for pair in args.what.set.iter().cloned().chain(swept) {
        line += &format!(" --set {}", quoted(&pair));
    }
    if let Some(hint) = &args.what.hint {
        line += &format!(" --hint {hint}");
    }
    line + &format!(" --policy {} --seed {seed}", quoted(policy))
}

fn failed(args: &Args, points: &[Point], error: GridError) -> Failure {
    let nr = args.policies.len();
    let (point, policy) = (&points[error.case / nr], &args.policies[error.case % nr]);
    let line = replay(args, point, policy, error.seed);
    let mut failure = Failure::from(error.error);
    failure.error = anyhow::anyhow!("a run failed: {:#}\nreplay: {line}", failure.error);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: two sweeps are gone through in all combinations, the last one fastest; nonsense is refused.
    #[test]
    fn sweeps_multiply() {
        let points = |sweeps: &[&str]| {
            let sweeps: Vec<String> = sweeps.iter().map(|s| s.to_string()).collect();
            let given = |pair| Params::parse([pair]).expect("well-formed");
            super::points(&sweeps, &given("set=1"), &given("tick.hz=100"))
        };
        let text: Vec<String> = points(&["a=1,2", "b=x,y"])
            .unwrap()
            .iter()
            .map(|p| p.iter().map(|(k, v)| format!("{k}{v}")).collect())
            .collect();
        assert_eq!(text, ["a1bx", "a1by", "a2bx", "a2by"]);
        for (sweeps, what) in [
            (&["a"][..], "is not a sweep"),
            (&["=1"], "is not a sweep"),
            (&["a=1", "a=2"], "`a` is swept twice"),
            (&["a=1,2,1"], "over `1` twice"),
            (&["set=1,2"], "`set` is set and swept"),
            (&["cost.tick.hz=1,2"], "`cost.tick.hz` is set and swept"),
        ] {
            let error = points(sweeps).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    // Goal: the noise floor is what the first policy differs from itself by.
    // Method: by hand, standard error sqrt(2 * 0.003028 / 4) of the logarithm, times Student's 2.447 for six degrees of freedom; too few values.
    #[test]
    fn noise_floor_is_an_interval() {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        let floor = noise_floor([some(&[10.0, 11.0, 10.0, 11.0])].iter()).unwrap();
        assert!((floor - 9.99).abs() < 0.01, "{floor}");
        assert_eq!(noise_floor([some(&[10.0, 11.0])].iter()), None);
    }
}
