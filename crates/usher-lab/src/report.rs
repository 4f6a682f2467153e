// SPDX-License-Identifier: GPL-2.0-only
//! Reports of the lab: the JSON objects that others build on, and tables for people.
//!
//! Fields may be added; renaming one or changing its meaning needs a new schema number.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::Serialize;
use usher_report::stats::{Effect, Summary};
use usher_report::table::{short, Text};

use crate::lab::{Compared, Comparison, Repeats, Request};
use crate::metric::{self, Metric};
use crate::proto::{LogLine, Program};
use crate::runner::{Outcome, StepOutcome};
use crate::shape::Cluster;

/// Counts by name, as a scheduler reports them.
pub type Counts = BTreeMap<String, u64>;

/// One figure of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Name of the scheduler as given.
    pub scheduler: String,
    /// What was measured; ends in its unit.
    pub metric: String,
    /// The figure.
    pub value: f64,
    /// True when less is better.
    pub lower_is_better: bool,
    /// Which round, from 0.
    pub round: u32,
}

/// What a scheduler counted about its decisions; empty for schedulers that say nothing.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Why tasks were placed where they were.
    pub reasons: Counts,
    /// Migrations by the level they crossed.
    pub migrations: Counts,
    /// Placement hints seen.
    pub hints: Counts,
    /// Everything else that it reports.
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

impl Stats {
    /// Reads the object that the scheduler wrote.
    fn of(value: Option<&serde_json::Value>) -> Self {
        let mut stats = Stats::default();
        let Some(object) = value.and_then(|value| value.as_object()) else {
            return stats;
        };
        for (key, value) in object {
            match key.as_str() {
                "reasons" => stats.reasons = counts(value),
                "migrations" => stats.migrations = counts(value),
                "hints" => stats.hints = counts(value),
                _ => drop(stats.other.insert(key.clone(), value.clone())),
            }
        }
        stats
    }

    /// Adds another run's counts; what is not a count of the three kinds is dropped.
    fn add(&mut self, other: &Stats) {
        let add = |to: &mut Counts, from: &Counts| {
            for (name, count) in from {
                *to.entry(name.clone()).or_default() += count;
            }
        };
        add(&mut self.reasons, &other.reasons);
        add(&mut self.migrations, &other.migrations);
        add(&mut self.hints, &other.hints);
    }
}

fn counts(value: &serde_json::Value) -> Counts {
    let entries = value.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)))
        .collect()
}

/// Guest CPUs of one strength, and what makes them so.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterReport {
    /// Which, as the kernel writes them: `4-7`.
    pub cpus: String,
    /// What the guest's kernel is told that each is worth; 1024 is the strongest.
    pub capacity: u32,
    /// How fast each runs, in thousandths of the fastest; by the quota, so up to its rounding.
    pub speed_permille: u64,
    /// Microseconds of host time that each may use in every period.
    pub quota_us: u64,
    /// Length of a period in microseconds.
    pub period_us: u64,
}

/// How the CPUs of a guest differ; empty where all are alike.
fn clusters(request: &Request) -> Vec<ClusterReport> {
    // The guest has run with them, so they can be had.
    let Ok(Some(quotas)) = request.quotas() else {
        return Vec::new();
    };
    let fastest = quotas.quota_us.iter().copied().max().unwrap_or(1).max(1);
    let report = |cluster: &Cluster| {
        let quota_us = quotas.quota_us[cluster.first as usize];
        ClusterReport {
            cpus: cluster.cpu_list(),
            capacity: cluster.capacity,
            speed_permille: (quota_us * 1000 + fastest / 2) / fastest,
            quota_us,
            period_us: quotas.period_us,
        }
    };
    request.shape.clusters().iter().map(report).collect()
}

/// A line per cluster that says how it differs.
fn write_clusters(out: &mut String, clusters: &[ClusterReport]) {
    for cluster in clusters {
        let of_period = format!(
            "a bandwidth quota of {} us in {} on the host",
            cluster.quota_us, cluster.period_us
        );
        let _ = match cluster.speed_permille {
            1000 => writeln!(
                out,
                "cpus {}: capacity {}, {of_period}",
                cluster.cpus, cluster.capacity
            ),
            speed => writeln!(
                out,
                "cpus {}: capacity {}, run at {:.2} of the others by {of_period}",
                cluster.cpus,
                cluster.capacity,
                speed as f64 / 1000.0
            ),
        };
    }
}

/// What `usher lab run` reports.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// `usher-lab-run/1`.
    pub schema: &'static str,
    /// Kernel release, read in the guest.
    pub kernel: String,
    /// The guest's shape as given.
    pub shape: String,
    /// The scheduler as given.
    pub scheduler: String,
    /// The loaded scheduler's name in the guest's sysfs, `null` for the kernel's own.
    pub ops: Option<String>,
    /// The command as given.
    pub command: Vec<String>,
    /// Its exit code; 124 when it was killed for its timeout; `null` when it never ran.
    pub exit: Option<i32>,
    /// Always true: no time of an emulated guest is a speed of real hardware.
    pub emulated: bool,
    /// The seed when time is the count of executed instructions.
    pub icount_seed: Option<u64>,
    /// True when each guest CPU had a bandwidth quota.
    pub quota: bool,
    /// How the guest's CPUs differ; empty where all are alike.
    pub clusters: Vec<ClusterReport>,
    /// Wall seconds of the whole boot.
    pub wall_s: f64,
    /// The command's figures.
    pub samples: Vec<Sample>,
    /// The scheduler's counts.
    pub stats: Stats,
    /// Guest nanoseconds from the command's start to its end.
    pub elapsed_ns: u64,
    /// Guest nanoseconds from the loader's start to the scheduler's being enabled.
    pub attach_ns: Option<u64>,
    /// Set when the scheduler was refused or ejected.
    pub ejected: Option<String>,
    /// The kernel's counters of noteworthy events.
    pub events: Counts,
    /// The scheduler's BPF programs.
    pub programs: Vec<Program>,
    /// Kernel warnings during the run and what sched_ext said.
    pub kernel_log: Vec<LogLine>,
    /// What the loader printed.
    pub scheduler_log: String,
    /// What the command printed.
    pub stdout: String,
    /// What the command printed as errors.
    pub stderr: String,
}

/// The report of a run.
pub fn of_run(request: &Request, outcome: &Outcome) -> RunReport {
    let step = &outcome.steps[0];
    let report = &step.report;
    RunReport {
        schema: "usher-lab-run/1",
        kernel: outcome.release.clone(),
        shape: request.shape.to_string(),
        scheduler: report.scheduler.clone(),
        ops: report.ops.clone(),
        command: request.command.clone(),
        exit: report.exit,
        emulated: true,
        icount_seed: request.icount_seed,
        quota: request.has_quotas(),
        clusters: clusters(request),
        wall_s: outcome.wall.as_secs_f64(),
        samples: samples(step, 0),
        stats: Stats::of(report.scheduler_stats.as_ref()),
        elapsed_ns: report.elapsed_ns,
        attach_ns: report.attach_ns,
        ejected: report.ejected.clone(),
        events: report.events.clone(),
        programs: report.programs.clone(),
        kernel_log: report.kernel_log.clone(),
        scheduler_log: report.scheduler_log.clone(),
        stdout: String::from_utf8_lossy(&step.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&step.stderr).into_owned(),
    }
}

/// The figures of a step; none for a command that failed.
fn samples(step: &StepOutcome, round: u32) -> Vec<Sample> {
    if step.report.exit != Some(0) {
        return Vec::new();
    }
    let (stdout, stderr) = (
        String::from_utf8_lossy(&step.stdout),
        String::from_utf8_lossy(&step.stderr),
    );
    metric::read(&stdout, &stderr, step.report.elapsed_ns)
        .into_iter()
        .map(
            |Metric {
                 name,
                 value,
                 lower_is_better,
             }| Sample {
                scheduler: step.report.scheduler.clone(),
                metric: name,
                value,
                lower_is_better,
                round,
            },
        )
        .collect()
}

/// A scheduler's row for one metric.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The scheduler as given.
    pub scheduler: String,
    /// The metric.
    pub metric: String,
    /// True when less is better.
    pub lower_is_better: bool,
    /// How many runs.
    pub n: usize,
    /// Median.
    pub median: f64,
    /// Lower end of the spread: the least value, or the 95 % interval's end from six runs on.
    pub low: f64,
    /// Upper end likewise.
    pub high: f64,
    /// Median over the first scheduler's median; 1 for the first.
    pub effect: Option<f64>,
    /// Lower end of the 95 % interval (paired by round) of the value over the first scheduler's; `None` for the first
    /// and where there are too few runs to tell.
    pub effect_low: Option<f64>,
    /// Upper end likewise.
    pub effect_high: Option<f64>,
    /// Whether the effect's 95 % interval (paired by round) excludes 1.
    pub distinguishable: bool,
}

/// What a scheduler was over all its runs.
#[derive(Debug, Clone, Serialize)]
pub struct SchedulerReport {
    /// As given.
    pub scheduler: String,
    /// Name in sysfs, `null` for the kernel's own.
    pub ops: Option<String>,
    /// Exit codes of the command, by round.
    pub exits: Vec<Option<i32>>,
    /// In how many rounds it was ejected or went away.
    pub ejected: u32,
    /// Median attach time, guest nanoseconds.
    pub attach_ns: Option<u64>,
    /// Its counts, all rounds together.
    pub stats: Stats,
    /// Calls and run time of its programs, all rounds together.
    pub programs: Vec<Program>,
    /// Kernel warnings during its runs.
    pub warnings: Vec<String>,
}

/// What `usher lab compare` reports.
#[derive(Debug, Clone, Serialize)]
pub struct CompareReport {
    /// `usher-lab-compare/1`.
    pub schema: &'static str,
    /// Kernel release, read in the guest.
    pub kernel: String,
    /// The guest's shape as given.
    pub shape: String,
    /// The command as given.
    pub command: Vec<String>,
    /// True in a guest; false on the machine at hand.
    pub emulated: bool,
    /// The first seed when time is the count of executed instructions; round r has this plus r.
    pub icount_seed: Option<u64>,
    /// The repeatability check, with counted instructions.
    pub repeats: Option<Repeats>,
    /// True when each guest CPU had a bandwidth quota.
    pub quota: bool,
    /// How the guest's CPUs differ; empty where all are alike.
    pub clusters: Vec<ClusterReport>,
    /// Wall seconds.
    pub wall_s: f64,
    /// Per metric and scheduler.
    pub cells: Vec<Cell>,
    /// Per scheduler.
    pub schedulers: Vec<SchedulerReport>,
    /// Every figure of every run.
    pub samples: Vec<Sample>,
}

/// The report of a comparison in guests.
pub fn of_comparison(
    request: &Request,
    comparison: &Comparison,
    compared: &Compared,
) -> CompareReport {
    let plain = of_comparison_here(
        &request.shape.to_string(),
        &request.command,
        comparison,
        compared,
    );
    CompareReport {
        emulated: true,
        icount_seed: request.icount_seed,
        repeats: compared.repeats,
        quota: request.has_quotas(),
        clusters: clusters(request),
        ..plain
    }
}

/// The report of a comparison on the machine at hand.
pub fn of_comparison_here(
    machine: &str,
    command: &[String],
    comparison: &Comparison,
    compared: &Compared,
) -> CompareReport {
    let samples: Vec<Sample> = compared
        .runs
        .iter()
        .flat_map(|run| samples(&run.step, run.round))
        .collect();
    let names: Vec<&str> = comparison
        .schedulers
        .iter()
        .map(|s| s.name.as_str())
        .collect();
    let schedulers = (0..names.len())
        .map(|index| of_scheduler(names[index], index, compared))
        .collect();
    CompareReport {
        schema: "usher-lab-compare/1",
        kernel: compared.release.clone(),
        shape: machine.into(),
        command: command.to_vec(),
        emulated: false,
        icount_seed: None,
        repeats: None,
        quota: false,
        clusters: Vec::new(),
        wall_s: compared.wall_s,
        cells: cells(&names, &samples),
        schedulers,
        samples,
    }
}

fn of_scheduler(name: &str, index: usize, compared: &Compared) -> SchedulerReport {
    let steps: Vec<&StepOutcome> = compared
        .runs
        .iter()
        .filter(|run| run.scheduler == index)
        .map(|run| &run.step)
        .collect();
    let mut stats = Stats::default();
    let mut programs: BTreeMap<String, Program> = BTreeMap::new();
    let mut warnings = BTreeSet::new();
    for step in &steps {
        stats.add(&Stats::of(step.report.scheduler_stats.as_ref()));
        for program in &step.report.programs {
            let sum = programs
                .entry(program.name.clone())
                .or_insert_with(|| Program {
                    name: program.name.clone(),
                    verified_insns: program.verified_insns,
                    ..Program::default()
                });
            sum.run_cnt += program.run_cnt;
            sum.run_time_ns += program.run_time_ns;
        }
        let log = step.report.kernel_log.iter();
        warnings.extend(
            log.filter(|l| l.text.contains("WARNING:"))
                .map(|l| l.text.clone()),
        );
    }
    let mut attach: Vec<u64> = steps
        .iter()
        .filter_map(|step| step.report.attach_ns)
        .collect();
    attach.sort_unstable();
    SchedulerReport {
        scheduler: name.into(),
        ops: steps.iter().find_map(|step| step.report.ops.clone()),
        exits: steps.iter().map(|step| step.report.exit).collect(),
        ejected: steps
            .iter()
            .filter(|step| step.report.ejected.is_some())
            .count() as u32,
        attach_ns: attach.get(attach.len() / 2).copied(),
        stats,
        programs: programs.into_values().collect(),
        warnings: warnings.into_iter().collect(),
    }
}

fn cells(names: &[&str], samples: &[Sample]) -> Vec<Cell> {
    let mut metrics: Vec<&str> = Vec::new();
    for sample in samples {
        if !metrics.contains(&sample.metric.as_str()) {
            metrics.push(&sample.metric);
        }
    }
    let mut cells = Vec::new();
    for metric in metrics {
        let of = |name: &str| -> Vec<&Sample> {
            samples
                .iter()
                .filter(|s| s.metric == metric && s.scheduler == name)
                .collect()
        };
        let values = |list: &[&Sample]| list.iter().map(|s| s.value).collect::<Vec<_>>();
        let first = of(names[0]);
        for (i, &name) in names.iter().enumerate() {
            let own = of(name);
            let Some(summary) = Summary::of(&values(&own)) else {
                continue;
            };
            let base = Summary::of(&values(&first));
            let paired = own
                .iter()
                .map(|s| s.round)
                .eq(first.iter().map(|s| s.round));
            let effect = match paired {
                true => Effect::paired(&values(&first), &values(&own)),
                false => Effect::unpaired(&values(&first), &values(&own)),
            };
            let known = |effect: &Effect| i > 0 && effect.low > 0.0 && effect.high.is_finite();
            let interval = effect.filter(known);
            cells.push(Cell {
                scheduler: name.into(),
                metric: metric.into(),
                lower_is_better: own[0].lower_is_better,
                n: summary.n,
                median: summary.median,
                low: summary.low,
                high: summary.high,
                effect: base
                    .filter(|b| b.median != 0.0)
                    .map(|b| summary.median / b.median),
                effect_low: interval.map(|effect| effect.low),
                effect_high: interval.map(|effect| effect.high),
                distinguishable: effect.is_some_and(|effect| effect.distinguishable()),
            });
        }
    }
    cells
}

impl RunReport {
    /// The summary that follows the command's own output.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let ops = self.ops.as_deref().unwrap_or("the kernel's own scheduler");
        let _ = writeln!(
            out,
            "kernel {}, shape {}, {} ({ops}): exit {}, {:.3} s in the guest {}",
            self.kernel,
            self.shape,
            self.scheduler,
            self.exit.map_or("none".into(), |code| code.to_string()),
            self.elapsed_ns as f64 / 1e9,
            time_note(self.icount_seed, self.quota),
        );
        write_clusters(&mut out, &self.clusters);
        write_counts(&mut out, &[(&self.scheduler, &self.stats)]);
        out
    }
}

impl SchedulerReport {
    /// What the kernel had against it, a line each.
    pub fn complaints(&self) -> Vec<String> {
        let name = &self.scheduler;
        let ejected =
            (self.ejected > 0).then(|| format!("{name}: ejected in {} runs", self.ejected));
        let warnings = self.warnings.iter();
        let warnings = warnings.map(|warning| format!("{name}: kernel warning: {warning}"));
        ejected.into_iter().chain(warnings).collect()
    }
}

impl CompareReport {
    /// Where the command ran, and what its times mean.
    pub fn place(&self) -> String {
        let (place, note) = match self.emulated {
            true => ("shape", time_note(self.icount_seed, self.quota)),
            false => ("machine", "(this machine, no guest)"),
        };
        format!("on kernel {}, {place} {} {note}", self.kernel, self.shape)
    }

    /// Tables for people: figures, then reasons and migrations.
    pub fn text(&self) -> String {
        let mut out = format!("{} {}\n\n", self.command.join(" "), self.place());
        write_clusters(&mut out, &self.clusters);
        let mut table = Text::new(&[
            "scheduler",
            "metric",
            ">n",
            ">median",
            ">low",
            ">high",
            ">effect",
            "ops",
        ]);
        for cell in &self.cells {
            let report = self
                .schedulers
                .iter()
                .find(|s| s.scheduler == cell.scheduler);
            let effect = match cell.effect {
                Some(_) if cell.scheduler == self.schedulers[0].scheduler => "baseline".into(),
                Some(ratio) => {
                    let mark = if cell.distinguishable { "" } else { " ~" };
                    format!("{:+.1} %{mark}", (ratio - 1.0) * 100.0)
                }
                None => String::new(),
            };
            table.row([
                cell.scheduler.clone(),
                cell.metric.clone(),
                cell.n.to_string(),
                short(cell.median),
                short(cell.low),
                short(cell.high),
                effect,
                report
                    .and_then(|r| r.ops.clone())
                    .unwrap_or_else(|| "-".into()),
            ]);
        }
        let _ = writeln!(out, "{table}");
        let first = &self.schedulers[0].scheduler;
        if self
            .cells
            .iter()
            .any(|cell| cell.scheduler != *first && !cell.distinguishable)
        {
            let _ = writeln!(out, "~ not distinguishable from the baseline by these runs");
        }
        if let Some(Repeats { checked, identical }) = self.repeats {
            let _ = writeln!(
                out,
                "repeated in a fresh guest: {identical} of {checked} runs were identical"
            );
        }
        let all: Vec<(&String, &Stats)> = self
            .schedulers
            .iter()
            .map(|s| (&s.scheduler, &s.stats))
            .collect();
        write_counts(&mut out, &all);
        for report in &self.schedulers {
            for complaint in report.complaints() {
                let _ = writeln!(out, "{complaint}");
            }
        }
        out
    }
}

/// What the times mean; every table says it.
fn time_note(icount_seed: Option<u64>, quota: bool) -> &'static str {
    match (icount_seed, quota) {
        (Some(_), _) => "(emulated; time counts executed instructions, 2 ns each)",
        (None, true) => "(emulated; CPUs run in parallel, each within a quota)",
        (None, false) => "(emulated; CPUs take turns, so times show overhead, not speed)",
    }
}

/// What was counted at all: its name, how often, and which share of all in per cent.
pub fn shares(counts: &Counts) -> impl Iterator<Item = (&str, u64, f64)> {
    let total: u64 = counts.values().sum();
    let counted = counts.iter().filter(|(_, &count)| count > 0);
    counted.map(move |(what, &count)| (what.as_str(), count, count as f64 * 100.0 / total as f64))
}

fn write_counts(out: &mut String, schedulers: &[(&String, &Stats)]) {
    for (title, pick) in [
        ("reasons", (|s: &Stats| &s.reasons) as fn(&Stats) -> &Counts),
        ("migrations", |s: &Stats| &s.migrations),
        ("hints", |s: &Stats| &s.hints),
    ] {
        for (name, stats) in schedulers {
            let counts = pick(stats);
            if shares(counts).next().is_none() {
                continue;
            }
            let _ = writeln!(out, "\n{title} under {name}:");
            let mut table = Text::new(&["  ", ">count", ">share"]);
            for (what, count, share) in shares(counts) {
                table.row([
                    format!("  {what}"),
                    count.to_string(),
                    format!("{share:.1} %"),
                ]);
            }
            let _ = write!(out, "{table}");
        }
    }
}
