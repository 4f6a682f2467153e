// SPDX-License-Identifier: GPL-2.0-only
//! What came out: rows with both effects and a verdict, and a summary of each proposal. Serializes to the
//! `reproduce` object that the command line prints.

use std::collections::BTreeMap;

use serde::Serialize;
use usher_report::stats::{rank_correlation, Summary};

use crate::effect;
use crate::picture::Picture;
use crate::plan::{Plan, PlannedRow, Ran};
use crate::run::Runs;
use crate::verdict::{direction_right, verdict, Span, Verdict};

/// Everything.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Name and version of this layout.
    pub schema: &'static str,
    /// `quick` or `full`.
    pub length: &'static str,
    /// Interrupted: some runs are missing.
    pub partial: bool,
    /// One per table.
    pub proposals: Vec<Proposal>,
}

/// A table.
#[derive(Debug, Serialize)]
pub struct Proposal {
    /// The experiment's key.
    pub key: String,
    /// What was published.
    pub title: String,
    /// What the proposal does.
    pub mechanism: String,
    /// The published table's file.
    pub table: String,
    /// Runs per cell.
    pub runs: usize,
    /// Rows, without the baselines.
    pub rows: usize,
    /// Rows that have a verdict.
    pub rows_judged: usize,
    /// Of these, rows whose published effect exceeds its noise.
    pub rows_beyond_noise: usize,
    /// Of these, rows whose simulated effect goes the same way.
    pub direction_right: usize,
    /// Spearman's, of the published and the simulated effects of all rows judged, better upwards.
    pub rank_correlation: Option<f64>,
    /// Of the effects, in per cent of the baseline.
    pub median_absolute_error_pct: Option<f64>,
    /// How often each verdict was given.
    pub verdicts: BTreeMap<&'static str, usize>,
    /// Rows on which usher ran.
    pub rows_usher: usize,
    /// Of these, rows on which usher is worse than the simulated variant, beyond the interval and the published noise.
    pub usher_worse: usize,
    /// The rows.
    pub rows_detail: Vec<Detail>,
    /// What the simulation holds of what was published.
    pub modelled: Vec<String>,
    /// What it leaves out, as the experiment has it.
    pub not_modelled: Vec<String>,
    /// What the models say they leave out.
    pub limits: Vec<String>,
    /// The mechanism's picture and the line below it.
    #[serde(skip)]
    pub picture: Option<(Picture, Option<String>)>,
}

/// A row.
#[derive(Debug, Serialize)]
pub struct Detail {
    /// Line in the table's file.
    pub line: usize,
    /// As in the table.
    pub machine: String,
    /// As in the table.
    pub benchmark: String,
    /// As in the table.
    pub metric: String,
    /// As in the table.
    pub better: &'static str,
    /// Whether more is better; where the table does not say, as in the simulation.
    pub higher_is_better: bool,
    /// As in the table.
    pub parameter: String,
    /// As in the table.
    pub variant: String,
    /// Variant over baseline, a ratio.
    pub published_effect: f64,
    /// The interval around it; `None` if the publication states no noise.
    pub published_low: Option<f64>,
    /// Likewise.
    pub published_high: Option<f64>,
    /// Half its width.
    pub published_noise: Option<f64>,
    /// Where the noise comes from: `column`, `range` or `control`.
    pub published_noise_from: Option<&'static str>,
    /// Variant over baseline, a ratio of the published metric; `None` if it was not run.
    pub simulated_effect: Option<f64>,
    /// Its 95 % interval.
    pub simulated_low: Option<f64>,
    /// Likewise.
    pub simulated_high: Option<f64>,
    /// Why there is no simulated effect.
    pub simulated_missing: Option<String>,
    /// Usher over the same baseline.
    pub usher_effect: Option<f64>,
    /// Its 95 % interval.
    pub usher_low: Option<f64>,
    /// Likewise.
    pub usher_high: Option<f64>,
    /// Why there is no effect of usher.
    pub usher_missing: Option<String>,
    /// Usher is worse than the simulated variant: the interval says so, and by more than the published noise.
    pub usher_worse: Option<bool>,
    /// The verdict; `None` if the row was not run.
    pub verdict: Option<Verdict>,
    /// Whether the simulation goes the published way; `None` if the publication goes none beyond its noise.
    pub direction_right: Option<bool>,
    /// The effects in per cent, better upwards.
    pub gain_pct: Gains,
    /// The values behind the effects.
    pub simulated: Values,
    /// The commands that repeat the first run of each.
    pub replay: Replay,
}

/// Effects in per cent of the baseline; positive is better.
#[derive(Debug, Serialize)]
pub struct Gains {
    /// As published.
    pub published: f64,
    /// As simulated.
    pub simulated: Option<f64>,
    /// Usher's.
    pub usher: Option<f64>,
}

/// Medians of the metric here.
#[derive(Debug, Serialize)]
pub struct Values {
    /// Its name, which ends in its unit.
    pub metric: String,
    /// Pairs of runs.
    pub n: usize,
    /// Of the baseline.
    pub baseline: Option<f64>,
    /// Of the variant.
    pub variant: Option<f64>,
    /// Of usher.
    pub usher: Option<f64>,
}

/// Commands.
#[derive(Debug, Serialize)]
pub struct Replay {
    /// Of the baseline.
    pub baseline: Option<String>,
    /// Of the variant.
    pub variant: Option<String>,
    /// Of usher.
    pub usher: Option<String>,
}

impl Outcome {
    /// Judges the runs of plans; `length` is `quick` or `full`.
    pub fn new(length: &'static str, plans: &[Plan], runs: &[Runs]) -> Outcome {
        let proposals = plans.iter().zip(runs);
        Outcome {
            schema: "usher-reproduce/1",
            length,
            partial: runs.iter().flatten().flatten().any(Option::is_none),
            proposals: proposals
                .map(|(plan, runs)| Proposal::new(plan, runs))
                .collect(),
        }
    }
}

/// An effect in per cent, better upwards.
pub(crate) fn gain_pct(effect: f64, higher_is_better: bool) -> f64 {
    match higher_is_better {
        true => (effect - 1.0) * 100.0,
        false => (1.0 - effect) * 100.0,
    }
}

impl Proposal {
    fn new(plan: &Plan, runs: &Runs) -> Proposal {
        let details: Vec<Detail> = plan
            .rows
            .iter()
            .map(|row| Detail::new(plan, runs, row))
            .collect();
        let judged: Vec<(&Detail, f64)> = details
            .iter()
            .filter_map(|d| Some((d, d.gain_pct.simulated?)))
            .collect();
        let published: Vec<f64> = judged.iter().map(|(d, _)| d.gain_pct.published).collect();
        let simulated: Vec<f64> = judged.iter().map(|(_, gain)| *gain).collect();
        let errors: Vec<f64> = published
            .iter()
            .zip(&simulated)
            .map(|(p, s)| (p - s).abs())
            .collect();
        let mut verdicts = BTreeMap::new();
        for verdict in details.iter().filter_map(|d| d.verdict) {
            *verdicts.entry(verdict.name()).or_default() += 1;
        }
        let count = |of: &dyn Fn(&Detail) -> bool| details.iter().filter(|d| of(d)).count();
        let mut limits: Vec<String> = Vec::new();
        for limit in runs.iter().flatten().flatten().flat_map(|run| &run.limits) {
            if !limits.contains(limit) {
                limits.push(limit.clone());
            }
        }
        Proposal {
            key: plan.key.clone(),
            title: plan.title.clone(),
            mechanism: plan.mechanism.clone(),
            table: plan.table.clone(),
            runs: plan.seeds.len(),
            rows: details.len(),
            rows_judged: judged.len(),
            rows_beyond_noise: count(&|d| d.direction_right.is_some()),
            direction_right: count(&|d| d.direction_right == Some(true)),
            rank_correlation: rank_correlation(&published, &simulated),
            median_absolute_error_pct: Summary::of(&errors).map(|summary| summary.median),
            verdicts,
            rows_usher: count(&|d| d.usher_effect.is_some()),
            usher_worse: count(&|d| d.usher_worse == Some(true)),
            rows_detail: details,
            modelled: plan.report.modelled.clone(),
            not_modelled: plan.report.not_modelled.clone(),
            limits,
            picture: plan
                .report
                .drawn
                .clone()
                .map(|drawn| (drawn, plan.report.caption.clone())),
        }
    }
}

/// Why a column of a row is empty, if it is.
fn missing(cells: &[&Ran; 2], effect: Option<Span>) -> Option<String> {
    if effect.is_some() {
        return None;
    }
    match cells.iter().find_map(|ran| ran.as_ref().err()) {
        Some(why) => Some(format!("not modelled: {why}")),
        None => Some("fewer than two pairs of runs, or a value of 0".into()),
    }
}

/// The values of a metric in the runs of two cells, where both were run.
fn pairs(runs: &Runs, metric: &str, a: &Ran, b: &Ran) -> (Vec<f64>, Vec<f64>) {
    let (Ok(a), Ok(b)) = (a, b) else {
        return (Vec::new(), Vec::new());
    };
    let value = |run: &Option<crate::results::Run>| run.as_ref()?.metrics.get(metric).copied();
    let both = runs[*a].iter().zip(&runs[*b]);
    both.filter_map(|(a, b)| Some((value(a)?, value(b)?)))
        .unzip()
}

/// Half the width of what was published, noise included.
fn half(span: &Span) -> f64 {
    (span.high - span.low) / 2.0
}

impl Detail {
    fn new(plan: &Plan, runs: &Runs, planned: &PlannedRow) -> Detail {
        let row = &planned.row;
        let of = |a: &Ran, b: &Ran| {
            let (a, b) = pairs(runs, &planned.metric, a, b);
            let span = effect::simulated(planned.statistic, &a, &b);
            let span = span.map(|span| {
                if planned.inverted {
                    span.inverted()
                } else {
                    span
                }
            });
            (span, a, b)
        };
        let (simulated, baseline, variant) = of(&planned.baseline, &planned.variant);
        let (usher, _, usher_values) = of(&planned.baseline, &planned.usher);
        let (over_variant, ..) = of(&planned.variant, &planned.usher);
        let higher = planned.higher_is_better;
        let published = &planned.published;
        let gain = |span: Option<Span>| span.map(|span| gain_pct(span.effect, higher));
        let median = |values: &[f64]| Summary::of(values).map(|summary| summary.median);
        let replay = |ran: &Ran| {
            let cell = ran.as_ref().ok()?;
            Some(plan.cells[*cell].replay(plan.seeds[0]))
        };
        let worse = |span: Span| {
            let noise = published.noise.map_or(0.0, |_| half(&published.span));
            let (sure, loss) = if higher {
                (span.high < 1.0, 1.0 - span.effect)
            } else {
                (span.low > 1.0, span.effect - 1.0)
            };
            sure && loss > noise
        };
        Detail {
            line: row.line,
            machine: row.machine.clone(),
            benchmark: row.benchmark.clone(),
            metric: row.metric.clone(),
            better: row.better.name(),
            higher_is_better: higher,
            parameter: row.parameter.clone(),
            variant: row.variant.clone(),
            published_effect: published.span.effect,
            published_low: published.noise.map(|_| published.span.low),
            published_high: published.noise.map(|_| published.span.high),
            published_noise: published.noise.map(|_| half(&published.span)),
            published_noise_from: published.noise.map(|from| from.name()),
            simulated_effect: simulated.map(|s| s.effect),
            simulated_low: simulated.map(|s| s.low),
            simulated_high: simulated.map(|s| s.high),
            simulated_missing: missing(&[&planned.baseline, &planned.variant], simulated),
            usher_effect: usher.map(|s| s.effect),
            usher_low: usher.map(|s| s.low),
            usher_high: usher.map(|s| s.high),
            usher_missing: missing(&[&planned.baseline, &planned.usher], usher),
            usher_worse: over_variant.map(worse),
            verdict: simulated.map(|s| verdict(&published.span, &s)),
            direction_right: simulated.and_then(|s| direction_right(&published.span, &s)),
            gain_pct: Gains {
                published: gain_pct(published.span.effect, higher),
                simulated: gain(simulated),
                usher: gain(usher),
            },
            simulated: Values {
                metric: planned.metric.clone(),
                n: baseline.len(),
                baseline: median(&baseline),
                variant: median(&variant),
                usher: median(&usher_values),
            },
            replay: Replay {
                baseline: replay(&planned.baseline),
                variant: replay(&planned.variant),
                usher: replay(&planned.usher),
            },
        }
    }
}
