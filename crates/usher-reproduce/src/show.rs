// SPDX-License-Identifier: GPL-2.0-only
//! The outcome for people: a table per proposal, a summary line, what is not modelled, and a replay command.

use std::io::{self, Write};

use usher_report::table::Text;

use crate::outcome::{gain_pct, Detail, Outcome, Proposal};

/// Writes all proposals.
///
/// # Errors
/// Those of `out`.
pub fn table(outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    for (i, proposal) in outcome.proposals.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        one(proposal, out)?;
    }
    if outcome.partial {
        writeln!(
            out,
            "\ninterrupted: some runs are missing; the same command goes on from here"
        )?;
    }
    Ok(())
}

fn one(proposal: &Proposal, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{}: {}, {} runs\n",
        proposal.key, proposal.title, proposal.runs
    )?;
    let mut text = Text::new(&[
        "benchmark",
        "metric",
        "parameter",
        "variant",
        ">published",
        ">simulated",
        "95 % interval",
        ">usher",
        "verdict",
    ]);
    let machines = proposal
        .rows_detail
        .iter()
        .any(|d| d.machine != proposal.rows_detail[0].machine);
    for detail in &proposal.rows_detail {
        let benchmark = match machines {
            true => format!("{} on {}", detail.benchmark, detail.machine),
            false => detail.benchmark.clone(),
        };
        text.row([
            benchmark,
            detail.metric.clone(),
            detail.parameter.clone(),
            detail.variant.clone(),
            published(detail),
            gain(
                detail.gain_pct.simulated,
                detail.simulated_missing.as_deref(),
            ),
            interval(
                detail.simulated_low,
                detail.simulated_high,
                detail.higher_is_better,
            ),
            gain(detail.gain_pct.usher, detail.usher_missing.as_deref()),
            detail.verdict.map_or("not run", |v| v.name()).into(),
        ]);
    }
    writeln!(out, "{text}")?;
    writeln!(out, "effects over the baseline in per cent, better upwards")?;
    writeln!(out, "{}", summary(proposal))?;
    for why in reasons(proposal) {
        writeln!(out, "{why}")?;
    }
    for limit in &proposal.limits {
        writeln!(out, "limit: {limit}")?;
    }
    match proposal
        .rows_detail
        .first()
        .and_then(|d| d.replay.variant.as_ref())
    {
        Some(replay) => writeln!(out, "replay of the first row's first run: {replay}"),
        None => Ok(()),
    }
}

/// Why columns are empty, each reason once.
pub(crate) fn reasons(proposal: &Proposal) -> Vec<&str> {
    let mut reasons: Vec<&str> = Vec::new();
    for detail in &proposal.rows_detail {
        for why in [&detail.simulated_missing, &detail.usher_missing]
            .into_iter()
            .flatten()
        {
            if !reasons.contains(&why.as_str()) {
                reasons.push(why);
            }
        }
    }
    reasons
}

/// A figure of the summary.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        Some(value) => format!("{value:.digits$}"),
        None => "not known".into(),
    }
}

/// The summary line.
pub(crate) fn summary(proposal: &Proposal) -> String {
    let points = |error: f64| format!("{error:.1} points");
    format!(
        "{}: direction right in {} of {} rows beyond the published noise ({} rows in all), rank correlation {}, \
         median error {}; usher worse than the proposal in {} of {}",
        proposal.key,
        proposal.direction_right,
        proposal.rows_beyond_noise,
        proposal.rows,
        number(proposal.rank_correlation, 2),
        proposal
            .median_absolute_error_pct
            .map_or("not known".into(), points),
        proposal.usher_worse,
        proposal.rows_usher,
    )
}

/// The published effect with its noise.
pub(crate) fn published(detail: &Detail) -> String {
    let gain = signed(detail.gain_pct.published);
    match detail.published_noise {
        Some(noise) => format!("{gain} ±{:.1}", noise * 100.0),
        None => gain,
    }
}

/// A number in per cent with its sign.
pub(crate) fn signed(value: f64) -> String {
    // No effect has no sign, also where it is a rounded trace of one.
    match format!("{value:+.1}").as_str() {
        "-0.0" | "+0.0" => "0.0".into(),
        text => text.into(),
    }
}

/// An effect, or in short why there is none.
pub(crate) fn gain(value: Option<f64>, missing: Option<&str>) -> String {
    match (value, missing) {
        (Some(value), _) => signed(value),
        (None, Some(why)) if why.starts_with("not modelled") => "not modelled".into(),
        (None, _) => "no run".into(),
    }
}

/// The ends of an effect's interval in per cent, better upwards.
pub(crate) fn interval(low: Option<f64>, high: Option<f64>, higher_is_better: bool) -> String {
    match ends(low, high, higher_is_better) {
        Some((low, high)) => format!("{} to {}", signed(low), signed(high)),
        None => String::new(),
    }
}

/// The same as numbers.
pub(crate) fn ends(
    low: Option<f64>,
    high: Option<f64>,
    higher_is_better: bool,
) -> Option<(f64, f64)> {
    let (a, b) = (
        gain_pct(low?, higher_is_better),
        gain_pct(high?, higher_is_better),
    );
    Some((a.min(b), a.max(b)))
}
