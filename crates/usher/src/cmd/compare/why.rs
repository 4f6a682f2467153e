// SPDX-License-Identifier: GPL-2.0-only
//! `usher compare --why`: what else differs between the policies.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;
use usher_report::stats::Summary;
use usher_report::table::metric;
use usher_sim::grid::Runs;
use usher_sim::Report;

use super::{column, median, present, table, with, Cell, Column, Ratio};
use crate::cmd::sim::far;

/// Parts of a whole, by name: of the runs' shares the median.
type Shares = BTreeMap<String, f64>;

/// What a cell's runs did besides the metric that is compared.
#[derive(Serialize)]
pub struct Why {
    /// All other metrics.
    metrics: BTreeMap<String, Other>,
    /// Of the decisions, the share with each reason.
    reasons: Shares,
    /// Of the context switches, the share that were migrations, by distance.
    migrations: Shares,
    /// Of the time that CPUs were busy, the share that accesses waited for shared lines, by class.
    line_waits: Shares,
}

#[derive(Serialize)]
struct Other {
    median: f64,
    /// The least and the greatest run.
    least: f64,
    greatest: f64,
    #[serde(flatten)]
    ratio: Ratio,
}

impl Other {
    /// Whether it is worth a line: a difference that is not chance, as far as can be told, of a hundredth at least; or, where some run
    /// had 0, so that there is no ratio, that all runs lie on one side of all others.
    fn differs(&self, first: &Other) -> bool {
        match self.ratio.effect {
            Some(effect) => {
                let told = self.ratio.distinguishable || self.ratio.effect_high.is_none();
                told && (effect - 1.0).abs() >= 0.01
            }
            None => self.least > first.greatest || self.greatest < first.least,
        }
    }
}

/// What says how long and how much was simulated, not how.
const OF_THE_RUN: [&str; 2] = ["events", "simulated_ns"];

/// A share below this is not worth a line.
const SMALL: f64 = 0.001;

impl Why {
    /// Of a cell's runs, beside those of the first policy (`None`: it is the first itself), on a machine with so many CPUs; `shown` are
    /// metrics that the comparison shows anyway.
    pub fn of(runs: &Runs, first: Option<&Runs>, cpus: usize, shown: &[&str]) -> Why {
        let names: BTreeSet<&String> = (runs.iter().flatten())
            .flat_map(|run| run.metrics.keys())
            .collect();
        let told = |name: &&String| {
            let hidden = OF_THE_RUN
                .iter()
                .chain(shown)
                .any(|other| *other == name.as_str());
            !hidden
        };
        let metrics = names.into_iter().filter(told).filter_map(|name| {
            let own = column(runs, name);
            let first: Option<Column> = first.map(|first| column(first, name));
            let values = present(&own);
            let other = Other {
                median: median(&own)?,
                least: values.iter().copied().reduce(f64::min)?,
                greatest: values.iter().copied().reduce(f64::max)?,
                ratio: Ratio::of(first.as_ref(), &own),
            };
            Some((name.clone(), other))
        });
        Why {
            metrics: metrics.collect(),
            reasons: shares(runs, |run| {
                (run.reasons.clone(), run.reasons.values().sum())
            }),
            migrations: shares(runs, |run| {
                let moved = run.migrations.iter();
                let moved = moved.map(|(level, n)| (far(level).to_string(), *n));
                (moved.collect(), run.metrics["context_switches"] as u64)
            }),
            line_waits: shares(runs, |run| {
                let waits = run.lines.iter();
                let waits = waits.map(|(class, line)| (class.clone(), line.wait_ns));
                let busy = run.metrics["utilisation"] * run.metrics["simulated_ns"];
                (waits.collect(), (busy * cpus as f64) as u64)
            }),
        }
    }
}

/// Parts of a whole, by name, each the median over the runs.
fn shares(runs: &Runs, parts: impl Fn(&Report) -> (BTreeMap<String, u64>, u64)) -> Shares {
    let runs: Vec<_> = runs.iter().flatten().map(parts).collect();
    let names: BTreeSet<&String> = runs.iter().flat_map(|(parts, _)| parts.keys()).collect();
    let share = |name: &String| {
        let of_run = |(parts, whole): &(BTreeMap<String, u64>, u64)| {
            parts.get(name).copied().unwrap_or(0) as f64 / (*whole).max(1) as f64
        };
        let values: Vec<f64> = runs.iter().map(of_run).collect();
        Summary::of(&values).map_or(0.0, |summary| summary.median)
    };
    names
        .into_iter()
        .map(|name| (name.clone(), share(name)))
        .collect()
}

/// Tables of what differs among the cells of one point of the sweep.
pub fn write(out: &mut impl Write, cells: &[Cell]) -> io::Result<()> {
    let whys: Vec<&Why> = cells.iter().filter_map(|cell| cell.why.as_ref()).collect();
    let Some((first, others)) = whys.split_first() else {
        return Ok(());
    };
    if others.is_empty() {
        return writeln!(
            out,
            "what else differs: there is one policy, and nothing to compare it with\n"
        );
    }
    let policies = || cells.iter().map(|cell| cell.policy.as_str());
    let effects = std::iter::once(None).chain(std::iter::repeat(Some("effect")));
    let columns = policies().zip(effects);
    let columns = columns.flat_map(|(policy, effect)| std::iter::once(policy).chain(effect));
    let mut text = table(&format!("what else differs{}", with(cells)), columns);
    let names: BTreeSet<&String> = whys.iter().flat_map(|why| why.metrics.keys()).collect();
    let mut any = false;
    for name in names {
        let base = first.metrics.get(name);
        let others = others.iter().map(|why| why.metrics.get(name));
        let differs = others.clone().any(|other| match (base, other) {
            (Some(base), Some(other)) => other.differs(base),
            (base, other) => base.is_some() != other.is_some(),
        });
        if !differs {
            continue;
        }
        any = true;
        let shown = |other: Option<&Other>| other.map_or("-".into(), |o| metric(name, o.median));
        let mut row = vec![name.clone(), shown(base)];
        for other in others {
            let effect = other.map_or(String::new(), |other| other.ratio.shown());
            row.extend([shown(other), effect]);
        }
        text.row(row);
    }
    match any {
        true if cells.iter().all(|cell| cell.n < 2) => {
            writeln!(out, "{text}\nof one run each: what differs may be chance\n")?;
        }
        true => writeln!(out, "{text}")?,
        false => writeln!(
            out,
            "what else differs{}: no metric, by 1 % or more and beyond chance\n",
            with(cells)
        )?,
    }
    type Part = fn(&Why) -> &Shares;
    let tables: [(&str, Part); 3] = [
        ("decisions by reason", |why| &why.reasons),
        ("migrations, of the switches", |why| &why.migrations),
        ("waits for lines, of the busy time", |why| &why.line_waits),
    ];
    for (heading, part) in tables {
        let mut text = table(heading, policies());
        let names: BTreeSet<&String> = whys.iter().flat_map(|why| part(why).keys()).collect();
        for name in names {
            let shares = whys.iter().map(|why| part(why).get(name).copied());
            if shares.clone().flatten().any(|share| share >= SMALL) {
                let shown = |share: Option<f64>| {
                    share.map_or("-".into(), |s| format!("{:.1} %", s * 100.0))
                };
                text.row(std::iter::once(name.clone()).chain(shares.map(shown)));
            }
        }
        writeln!(out, "{text}")?;
    }
    Ok(())
}
