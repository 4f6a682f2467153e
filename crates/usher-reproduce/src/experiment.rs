// SPDX-License-Identifier: GPL-2.0-only
//! Experiment files: what the names in a published table are called here. `docs/EXPERIMENTS.md` lists the keys.
//!
//! A file translates and sets lengths; it holds no number that scales a result. So it may set options of a
//! benchmark's program and how long it runs, but no cost of a machine, no parameter of a policy and no
//! figure that describes what a program does: those are shared by all experiments ([`Experiment::parse`]
//! refuses them).

use std::collections::BTreeMap;

use serde::Deserialize;
use usher_sim::params::Params;
use usher_sim::policy;
use usher_sim::workload::figures::Kind;
use usher_sim::workload::{self, Found};
use usher_topo::line;
use usher_topo::machine::{beside, is_path};

use crate::error::Result;
use crate::picture::Picture;
use crate::place::{File, Wrong};

/// The layout that this version reads.
pub const SCHEMA: &str = "usher-experiment/1";

/// The most runs of a cell, as with `--runs`.
const RUNS_MAX: u32 = 10_000;

/// Parameters of workloads that say how long a run is, or that it begins as a long one goes on. They may differ between quick and full.
pub const LENGTHS: [&str; 10] = [
    "runtime",
    "warmup",
    "spread",
    "settle",
    "total_warmup",
    "loops",
    "total_messages",
    "reckoned_loops",
    "requests",
    "objects",
];

/// What a table's parameter is mapped to when it chooses a statistic over the runs, not a run.
pub const STATISTIC: &str = "statistic";

/// How long to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Minutes for all tables.
    Quick,
    /// Up to an hour.
    Full,
}

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// [`SCHEMA`].
    schema: String,
    /// Its name, which is the `source` of its rows.
    pub key: String,
    /// What was published, where and when.
    pub title: String,
    /// What the proposal does, in two sentences.
    pub mechanism: String,
    /// The published table: a file beside this one.
    pub table: String,
    /// The variant that the others are compared with.
    pub baseline: String,
    /// Where the noise of rows comes from that state none.
    pub noise: Option<Noise>,
    /// How many runs.
    pub runs: Runs,
    /// Machines of the table: name or path of the machine here.
    pub machines: BTreeMap<String, String>,
    /// Variants of the table.
    pub variants: BTreeMap<String, Variant>,
    /// What runs in usher's column.
    pub usher: Usher,
    /// Benchmarks of the table.
    pub benchmarks: BTreeMap<String, Benchmark>,
    /// What a report tells besides.
    #[serde(default)]
    pub report: Texts,
    /// The file, for errors.
    #[serde(skip)]
    pub(crate) file: File,
}

/// What a report tells of an experiment besides its mechanism and its rows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Texts {
    /// What the simulation holds of the mechanism, the machine and the benchmarks: a sentence each.
    #[serde(default)]
    pub modelled: Vec<String>,
    /// What it leaves out.
    #[serde(default)]
    pub not_modelled: Vec<String>,
    /// A picture of the mechanism: an SVG file beside this one.
    pub picture: Option<String>,
    /// The line below it.
    pub caption: Option<String>,
    /// The picture itself, once read.
    #[serde(skip)]
    pub drawn: Option<Picture>,
}

/// Rows that should show no effect: how far they stray is the publication's noise.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// The rows of a variant that changes nothing.
    pub variant: Option<String>,
    /// Or those of a machine on which the proposal has nothing to act on.
    pub machine: Option<String>,
}

/// How many runs, each with its own seed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// With `--quick`.
    pub quick: u32,
    /// Otherwise.
    pub full: u32,
}

/// A variant of the table: a policy and what it adds to the workload, or why there is none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The policy.
    pub policy: Option<String>,
    /// Parameters of the workload, such as the placement hint.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Why it cannot be run.
    pub not_modelled: Option<String>,
}

/// Usher's column.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usher {
    /// The policy; it runs with the workload of the row's variant.
    pub policy: Option<String>,
    /// Why it cannot be run.
    pub not_modelled: Option<String>,
}

/// A benchmark of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Benchmark {
    /// The workload.
    pub workload: String,
    /// The table's parameters: the workload's parameter, or [`STATISTIC`].
    pub parameters: BTreeMap<String, String>,
    /// Options of the program.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Lengths with `--quick`; the workload's defaults where none is given.
    #[serde(default)]
    pub quick: BTreeMap<String, String>,
    /// Lengths otherwise.
    #[serde(default)]
    pub full: BTreeMap<String, String>,
    /// Metrics of the table.
    pub metrics: BTreeMap<String, Metric>,
}

/// A metric of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The metric here.
    pub ours: Ours,
    /// Which way the metric here is better. Where the table says the opposite, the simulated effect is inverted.
    pub better: Direction,
    /// The table gives the change itself, in this unit, and no value of a baseline.
    pub change: Option<Change>,
    /// Another baseline than the experiment's.
    pub baseline: Option<String>,
}

/// A metric here, or one per statistic where the statistic is over the samples within a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Ours {
    /// One metric.
    Name(String),
    /// One per statistic: `{ avg = "latency_ns_mean", ... }`.
    ByStatistic(BTreeMap<String, String>),
}

/// Which way is better.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// More.
    Higher,
    /// Less.
    Lower,
}

/// The unit of a published change.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Per cent of the baseline.
    Pct,
}

impl Experiment {
    /// Reads an experiment.
    ///
    /// # Errors
    /// A key that does not exist, a value of the wrong kind, a name of something that does not exist, a
    /// setting that an experiment may not make.
    pub fn parse(origin: &str, text: &str) -> Result<Experiment> {
        let file = File::new(origin, text);
        let mut experiment: Experiment = toml::from_str(text).map_err(|error| {
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            let what = format!("{what}; docs/EXPERIMENTS.md lists the keys");
            file.error(error.span().map(|span| line::at(text, span.start)), what)
        })?;
        experiment.check().map_err(|wrong| file.wrong(wrong))?;
        experiment.file = file;
        for machine in experiment.machines.values_mut() {
            if is_path(machine) {
                *machine = beside(origin, machine);
            }
        }
        for Benchmark { workload, .. } in experiment.benchmarks.values_mut() {
            if let Ok(Found::Path(path)) = workload::find(workload) {
                *workload = beside(origin, &path);
            }
        }
        Ok(experiment)
    }

    /// The lengths of a benchmark.
    pub fn lengths<'a>(
        &self,
        benchmark: &'a Benchmark,
        length: Length,
    ) -> &'a BTreeMap<String, String> {
        match length {
            Length::Quick => &benchmark.quick,
            Length::Full => &benchmark.full,
        }
    }

    /// How many runs, unless the user says otherwise.
    pub fn nr_runs(&self, length: Length) -> u32 {
        match length {
            Length::Quick => self.runs.quick,
            Length::Full => self.runs.full,
        }
    }

    fn check(&self) -> std::result::Result<(), Wrong> {
        if self.schema != SCHEMA {
            let what = format!("`{}`: this version reads `{SCHEMA}`", self.schema);
            return Err(Wrong::new("schema", what));
        }
        for (which, runs) in [("quick", self.runs.quick), ("full", self.runs.full)] {
            if !(2..=RUNS_MAX).contains(&runs) {
                let what = format!(
                    "is {runs}: an interval takes two runs or more, and {RUNS_MAX} are the most"
                );
                return Err(Wrong::new(format!("runs.{which}"), what));
            }
        }
        let variant = |at: &str, name: &str| known(at, "variant", name, &self.variants);
        variant("baseline", &self.baseline)?;
        for (name, at) in &self.variants {
            one_of(&format!("variants.{name}"), &at.policy, &at.not_modelled)?;
        }
        one_of("usher", &self.usher.policy, &self.usher.not_modelled)?;
        match &self.noise {
            None => {}
            Some(Noise {
                variant: Some(name),
                machine: None,
            }) => variant("noise.variant", name)?,
            Some(Noise {
                variant: None,
                machine: Some(name),
            }) => known("noise.machine", "machine", name, &self.machines)?,
            Some(_) => return Err(Wrong::new("noise", "give either `variant` or `machine`")),
        }
        for (name, benchmark) in &self.benchmarks {
            let at = format!("benchmarks.{name}");
            benchmark.check(&at)?;
            for (name, at) in &self.variants {
                settings(
                    &format!("variants.{name}.set"),
                    &benchmark.workload,
                    &at.set,
                )?;
            }
            for (name, metric) in &benchmark.metrics {
                if let Some(baseline) = &metric.baseline {
                    variant(&format!("{at}.metrics.{name}.baseline"), baseline)?;
                }
            }
        }
        Ok(())
    }
}

impl Benchmark {
    fn check(&self, at: &str) -> std::result::Result<(), Wrong> {
        workload::find(&self.workload).map_err(|e| Wrong::new(format!("{at}.workload"), e))?;
        settings(&format!("{at}.set"), &self.workload, &self.set)?;
        for (which, lengths) in [("quick", &self.quick), ("full", &self.full)] {
            for key in lengths.keys() {
                let at = format!("{at}.{which}.{key}");
                if !LENGTHS.contains(&key.as_str()) {
                    let what = format!("is no length; lengths are {}", LENGTHS.join(", "));
                    return Err(Wrong::new(at, what));
                }
                known_figure(&at, &self.workload, key)?;
            }
        }
        for (theirs, ours) in &self.parameters {
            if ours != STATISTIC {
                known_figure(&format!("{at}.parameters.{theirs}"), &self.workload, ours)?;
            }
        }
        Ok(())
    }
}

/// The keys of a map, for messages.
pub(crate) fn names<T>(map: &BTreeMap<String, T>) -> String {
    map.keys()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Refuses a name that a map does not have.
fn known<T>(
    at: &str,
    kind: &str,
    name: &str,
    map: &BTreeMap<String, T>,
) -> std::result::Result<(), Wrong> {
    match map.contains_key(name) {
        true => Ok(()),
        false => {
            let what = format!("`{name}` is no {kind}; known: {}", names(map));
            Err(Wrong::new(at, what))
        }
    }
}

/// A policy without parameters, or a reason for there being none.
fn one_of(
    at: &str,
    name: &Option<String>,
    not_modelled: &Option<String>,
) -> std::result::Result<(), Wrong> {
    let wrong = |what: String| Wrong::new(format!("{at}.policy"), what);
    match (name, not_modelled) {
        (Some(name), None) if name.contains(':') => Err(wrong(format!(
            "`{name}`: an experiment may not set parameters of a policy; all share their defaults"
        ))),
        (Some(name), None) => policy::build(name, Params::new())
            .map(|_| ())
            .map_err(|e| wrong(e.to_string())),
        (None, Some(_)) => Ok(()),
        _ => Err(Wrong::new(at, "give either `policy` or `not_modelled`")),
    }
}

/// Refuses settings that are not an option of the program.
fn settings(
    at: &str,
    name: &str,
    set: &BTreeMap<String, String>,
) -> std::result::Result<(), Wrong> {
    for key in set.keys() {
        if key == "hint" || key.starts_with("hint.") {
            continue;
        }
        let at = format!("{at}.{key}");
        if !known_figure(&at, name, key)? {
            return Err(Wrong::new(
                at,
                "says what the program does, which all experiments share; an experiment may set the program's \
                 options, the hint and lengths",
            ));
        }
    }
    Ok(())
}

/// Whether a parameter of a workload is an option of its program: a word to choose, or a figure whose
/// description names the flag. Files of rt-app have no such figures; what they take is checked when they
/// are read.
fn known_figure(at: &str, name: &str, key: &str) -> std::result::Result<bool, Wrong> {
    let found = workload::find(name).map_err(|e| Wrong::new(at, e))?;
    let Found::Generator(info, _) = found else {
        return Ok(true);
    };
    let Some(figure) = info.figures.iter().find(|figure| figure.key == key) else {
        let known: Vec<&str> = info.figures.iter().map(|figure| figure.key).collect();
        let known = known.join(", ");
        let what = format!("workload {name} has no parameter `{key}`; it has {known}");
        return Err(Wrong::new(at, what));
    };
    let option = matches!(figure.kind, Kind::Choice(_)) || figure.meaning.contains("(-");
    Ok(option || LENGTHS.contains(&key))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Hackbench on a small machine under two models.
    pub const SMALL: &str = r#"
schema = "usher-experiment/1"
key = "small"
title = "a table for tests"
mechanism = "None."
table = "small.csv"
baseline = "old"
runs = { quick = 3, full = 4 }
[machines]
box = "2n2l2c2t.toml"
[variants.old]
policy = "cfs-5.9"
[variants.new]
policy = "eevdf"
[variants.gone]
not_modelled = "nobody knows how"
[usher]
policy = "usher"
[benchmarks.hackbench]
workload = "hackbench"
parameters = { groups = "groups", stat = "statistic" }
set = { ipc = "pipe" }
quick = { loops = "5" }
full = { loops = "20" }
[benchmarks.hackbench.metrics.time-s]
ours = "elapsed_ns"
better = "lower"
[benchmarks.hackbench.metrics.rate-pct]
ours = "elapsed_ns"
better = "lower"
change = "pct"
"#;

    // Goal: a private factor has no place to stand: keys outside the list, costs, parameters of policies and
    // figures of programs are refused, with the place and the remedy.
    // Method: one such smuggled into a good file each.
    #[test]
    fn no_private_factors() {
        Experiment::parse("small.toml", SMALL).expect("a good file");
        let after = |mark: &str, line: &str| SMALL.replacen(mark, &format!("{mark}\n{line}"), 1);
        let instead = |old: &str, new: &str| SMALL.replacen(old, new, 1);
        for (text, what) in [
            (
                after("baseline = \"old\"", "scale = 0.9"),
                "small.toml:8: unknown field `scale`",
            ),
            (
                after("better = \"lower\"", "factor = 2"),
                "unknown field `factor`",
            ),
            (
                after("workload = \"hackbench\"", "costs = { x = \"1\" }"),
                "unknown field `costs`",
            ),
            (
                instead("ipc = \"pipe\"", "send = \"5us\""),
                "small.toml:22: benchmarks.hackbench.set.send: says what the program does",
            ),
            (
                instead("ipc = \"pipe\"", "\"cost.tick_ns\" = \"5\""),
                "has no parameter `cost.tick_ns`",
            ),
            (
                instead("quick = { loops = \"5\" }", "quick = { receive = \"5us\" }"),
                "small.toml:23: benchmarks.hackbench.quick.receive: is no length",
            ),
            (
                instead("\"eevdf\"", "\"eevdf:slice=9ms\""),
                "may not set parameters of a policy",
            ),
            (
                after("policy = \"eevdf\"", "set = { footprint_kib = \"1\" }"),
                "small.toml:15: variants.new.set.footprint_kib: says what",
            ),
        ] {
            let error = Experiment::parse("small.toml", &text)
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("small.toml") && error.contains(what),
                "{error}"
            );
        }
    }

    // Goal: names of things that do not exist are errors with what there is.
    #[test]
    fn mistakes_are_named() {
        let instead = |old: &str, new: &str| SMALL.replacen(old, new, 1);
        for (text, what) in [
            (
                instead("usher-experiment/1", "usher-experiment/9"),
                "small.toml:2: schema: `usher-experiment/9`: this version reads `usher-experiment/1`",
            ),
            (
                instead("baseline = \"old\"", "baseline = \"tip\""),
                "small.toml:7: baseline: `tip` is no variant; known: gone, new, old",
            ),
            (
                instead("\"cfs-5.9\"", "\"cfs-5.8\""),
                "small.toml:12: variants.old.policy: unknown policy `cfs-5.8`",
            ),
            (
                instead("workload = \"hackbench\"", "workload = \"hackbnch\""),
                "small.toml:20: benchmarks.hackbench.workload: unknown workload `hackbnch`",
            ),
            (
                instead("groups = \"groups\"", "groups = \"gruops\""),
                "small.toml:21: benchmarks.hackbench.parameters.groups: workload hackbench has no parameter `gruops`; it has groups,",
            ),
            (
                instead("quick = 3", "quick = 1"),
                "small.toml:8: runs.quick: is 1: an interval takes two runs or more",
            ),
            (
                instead("full = 4", "full = 10001"),
                "small.toml:8: runs.full: is 10001: ",
            ),
            (
                instead("policy = \"usher\"", ""),
                "small.toml:17: usher: give either `policy` or `not_modelled`",
            ),
            (
                instead("better = \"lower\"", "better = \"less\""),
                "unknown variant `less`",
            ),
        ] {
            let error = Experiment::parse("small.toml", &text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        }
    }
}
