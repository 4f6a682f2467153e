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

use crate::error::{ReproduceError, Result};
use crate::picture::Picture;

/// The layout that this version reads.
pub const SCHEMA: &str = "usher-experiment/1";

/// The most runs of a cell, as with `--runs`.
const RUNS_MAX: u32 = 10_000;

/// Parameters of workloads that say how long a run is. They may differ between quick and full.
pub const LENGTHS: [&str; 5] = ["runtime", "warmup", "loops", "requests", "objects"];

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
        let wrong = |origin, what| ReproduceError::Experiment { origin, what };
        let experiment: Experiment = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| 1 + text[..span.start].matches('\n').count());
            let place = line.map_or(origin.to_string(), |line| format!("{origin}:{line}"));
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            wrong(place, format!("{what}; docs/EXPERIMENTS.md lists the keys"))
        })?;
        experiment
            .check()
            .map_err(|what| wrong(origin.into(), what))?;
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

    fn check(&self) -> std::result::Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!(
                "schema `{}`: this version reads `{SCHEMA}`",
                self.schema
            ));
        }
        for (which, runs) in [("quick", self.runs.quick), ("full", self.runs.full)] {
            if !(2..=RUNS_MAX).contains(&runs) {
                return Err(format!(
                    "runs.{which} is {runs}: an interval takes two runs or more, and {RUNS_MAX} are the most"
                ));
            }
        }
        let variant = |whose: &str, name: &str| match self.variants.contains_key(name) {
            true => Ok(()),
            false => Err(format!(
                "{whose} `{name}` is no variant; known: {}",
                names(&self.variants)
            )),
        };
        let machine = |name: &str| match self.machines.contains_key(name) {
            true => Ok(()),
            false => Err(format!(
                "noise.machine `{name}` is no machine; known: {}",
                names(&self.machines)
            )),
        };
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
            }) => {
                machine(name)?;
            }
            Some(_) => return Err("noise: give either `variant` or `machine`".into()),
        }
        for (name, benchmark) in &self.benchmarks {
            benchmark.check(&format!("benchmarks.{name}"))?;
            for (name, at) in &self.variants {
                settings(
                    &format!("variants.{name}.set"),
                    &benchmark.workload,
                    &at.set,
                )?;
            }
            for baseline in benchmark
                .metrics
                .values()
                .filter_map(|m| m.baseline.as_ref())
            {
                variant(&format!("benchmarks.{name}: baseline"), baseline)?;
            }
        }
        Ok(())
    }
}

impl Benchmark {
    fn check(&self, at: &str) -> std::result::Result<(), String> {
        settings(&format!("{at}.set"), &self.workload, &self.set)?;
        for (which, lengths) in [("quick", &self.quick), ("full", &self.full)] {
            for key in lengths.keys() {
                if !LENGTHS.contains(&key.as_str()) {
                    return Err(format!(
                        "{at}.{which}.{key}: is no length; lengths are {}",
                        LENGTHS.join(", ")
                    ));
                }
                known_figure(&format!("{at}.{which}"), &self.workload, key)?;
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

/// A policy without parameters, or a reason for there being none.
fn one_of(
    at: &str,
    name: &Option<String>,
    not_modelled: &Option<String>,
) -> std::result::Result<(), String> {
    match (name, not_modelled) {
        (Some(name), None) if name.contains(':') => Err(format!(
            "{at}.policy `{name}`: an experiment may not set parameters of a policy; all share their defaults"
        )),
        (Some(name), None) => policy::build(name, Params::new())
            .map(|_| ())
            .map_err(|e| format!("{at}.policy: {e}")),
        (None, Some(_)) => Ok(()),
        _ => Err(format!("{at}: give either `policy` or `not_modelled`")),
    }
}

/// Refuses settings that are not an option of the program.
fn settings(
    at: &str,
    name: &str,
    set: &BTreeMap<String, String>,
) -> std::result::Result<(), String> {
    for key in set.keys() {
        if key == "hint" || key.starts_with("hint.") {
            continue;
        }
        if !known_figure(at, name, key)? {
            return Err(format!(
                "{at}.{key}: says what the program does, which all experiments share; an experiment may \
                 set the program's options, the hint and lengths"
            ));
        }
    }
    Ok(())
}

/// Whether a parameter of a workload is an option of its program: a word to choose, or a figure whose
/// description names the flag. Files of rt-app have no such figures; what they take is checked when they
/// are read.
fn known_figure(at: &str, name: &str, key: &str) -> std::result::Result<bool, String> {
    let found = workload::find(name).map_err(|e| format!("{at}: {e}"))?;
    let Found::Generator(info, _) = found else {
        return Ok(true);
    };
    let Some(figure) = info.figures.iter().find(|figure| figure.key == key) else {
        let known: Vec<&str> = info.figures.iter().map(|figure| figure.key).collect();
        return Err(format!(
            "{at}: workload {name} has no parameter `{key}`; it has {}",
            known.join(", ")
        ));
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
                "benchmarks.hackbench.set.send: says what the program does",
            ),
            (
                instead("ipc = \"pipe\"", "\"cost.tick_ns\" = \"5\""),
                "has no parameter `cost.tick_ns`",
            ),
            (
                instead("quick = { loops = \"5\" }", "quick = { receive = \"5us\" }"),
                "benchmarks.hackbench.quick.receive: is no length",
            ),
            (
                instead("\"eevdf\"", "\"eevdf:slice=9ms\""),
                "may not set parameters of a policy",
            ),
            (
                after("policy = \"eevdf\"", "set = { footprint_kib = \"1\" }"),
                "variants.new.set.footprint_kib: says what",
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
                "reads `usher-experiment/1`",
            ),
            (
                instead("baseline = \"old\"", "baseline = \"tip\""),
                "baseline `tip` is no variant; known: gone, new, old",
            ),
            (
                instead("\"cfs-5.9\"", "\"cfs-5.8\""),
                "variants.old.policy: unknown policy `cfs-5.8`",
            ),
            (
                instead("workload = \"hackbench\"", "workload = \"hackbnch\""),
                "did you mean `hackbench`",
            ),
            (
                instead("groups = \"groups\"", "groups = \"gruops\""),
                "has no parameter `gruops`; it has groups,",
            ),
            (
                instead("quick = 3", "quick = 1"),
                "runs.quick is 1: an interval takes two runs or more",
            ),
            (instead("full = 4", "full = 10001"), "runs.full is 10001: "),
            (
                instead("policy = \"usher\"", ""),
                "usher: give either `policy` or `not_modelled`",
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
