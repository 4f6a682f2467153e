// SPDX-License-Identifier: GPL-2.0-only
//! The effect of a variant over its baseline: as published, and as simulated. Both are ratios.

use std::collections::BTreeMap;

use usher_report::stats::Effect;
use usher_sim::rng::Rng;

use crate::table::Row;
use crate::verdict::Span;

/// Which statistic of the runs a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Not said: the typical run.
    Typical,
    /// The arithmetic mean of the runs.
    Mean,
    /// The smallest.
    Min,
    /// The greatest.
    Max,
}

impl Statistic {
    /// The names that tables use.
    pub const NAMES: [(&'static str, Statistic); 4] = [
        ("avg", Statistic::Mean),
        ("mean", Statistic::Mean),
        ("min", Statistic::Min),
        ("max", Statistic::Max),
    ];

    /// Reads one of [`Statistic::NAMES`].
    pub fn parse(text: &str) -> Option<Statistic> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, statistic)| *statistic)
    }

    /// Of the runs' values; the typical one is their mean.
    pub fn of(self, values: impl Iterator<Item = f64> + Clone) -> f64 {
        match self {
            Statistic::Min => values.fold(f64::INFINITY, f64::min),
            Statistic::Max => values.fold(f64::NEG_INFINITY, f64::max),
            Statistic::Mean | Statistic::Typical => {
                let n = values.clone().count() as f64;
                values.sum::<f64>() / n
            }
        }
    }
}

/// Where a published noise comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseFrom {
    /// The table's column: the standard deviations of both values, combined.
    Column,
    /// The value is a range.
    Range,
    /// How far the rows stray that should show no effect.
    Control,
    /// Nothing but the digits that were printed.
    Rounding,
}

impl NoiseFrom {
    /// As in the output.
    pub fn name(self) -> &'static str {
        match self {
            NoiseFrom::Column => "column",
            NoiseFrom::Range => "range",
            NoiseFrom::Control => "control",
            NoiseFrom::Rounding => "rounding",
        }
    }
}

/// An effect as published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The effect with its noise to both sides.
    pub span: Span,
    /// Where the noise comes from; `None`: the publication states none.
    pub noise: Option<NoiseFrom>,
}

/// The published effect of `row` over `baseline`, or, without one, the change in per cent that its value is.
/// `control` is the relative noise of rows that state none.
///
/// # Errors
/// A ratio or change that makes no sense, in words.
pub fn published(
    row: &Row,
    baseline: Option<&Row>,
    control: Option<f64>,
) -> Result<Published, String> {
    let (low, high) = match baseline {
        // A range over a range: both were given over the same things, so end goes with end.
        Some(base) => {
            let (low, high) = (
                row.value.low / base.value.low,
                row.value.high / base.value.high,
            );
            (low.min(high), low.max(high))
        }
        None => (1.0 + row.value.low / 100.0, 1.0 + row.value.high / 100.0),
    };
    if !(low > 0.0 && high.is_finite()) {
        return Err(match baseline {
            Some(base) => format!(
                "a ratio over line {}, which has {}, makes no sense; both values must be above 0",
                base.line, base.value.low
            ),
            None => "a change in per cent must be above -100".into(),
        });
    }
    let effect = (low * high).sqrt();
    if low != high {
        let span = Span { effect, low, high };
        return Ok(Published {
            span,
            noise: Some(NoiseFrom::Range),
        });
    }
    let own = baseline.and_then(|base| combined(row.noise_pct, base.noise_pct));
    let own = own.or(row.noise_pct.filter(|_| baseline.is_none()));
    let rounding = rounding(row, baseline);
    let (noise, from) = match (own, control) {
        (Some(pct), _) => (effect * pct / 100.0, Some(NoiseFrom::Column)),
        (None, Some(control)) => (effect * control, Some(NoiseFrom::Control)),
        (None, None) => (0.0, (rounding > 0.0).then_some(NoiseFrom::Rounding)),
    };
    let span = Span {
        effect,
        low: effect - noise - rounding,
        high: effect + noise + rounding,
    };
    Ok(Published { span, noise: from })
}

/// How far the effect may be off because values were rounded when they were printed.
fn rounding(row: &Row, baseline: Option<&Row>) -> f64 {
    match baseline {
        None => row.value.rounding / 100.0,
        Some(base) => {
            let own = row.value.rounding / row.value.low + base.value.rounding / base.value.low;
            own * row.value.low / base.value.low
        }
    }
}

/// Two independent relative deviations in one.
fn combined(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0).hypot(b.unwrap_or(0.0))),
    }
}

/// The noise of a table that states none: the root mean square of the effects, less 1, of rows that should
/// show no effect. Per benchmark, and over all for benchmarks without such rows.
#[derive(Clone, Debug, Default)]
pub struct Control {
    by_benchmark: BTreeMap<String, f64>,
    overall: Option<f64>,
}

impl Control {
    /// Of rows with their baselines.
    pub fn of<'a>(rows: impl Iterator<Item = (&'a Row, &'a Row)>) -> Control {
        let mut squares: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (row, base) in rows {
            let stray = row.value.middle() / base.value.middle() - 1.0;
            if stray.is_finite() {
                let of = squares.entry(row.benchmark.clone()).or_default();
                of.push(stray * stray);
            }
        }
        let root = |squares: &[f64]| (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
        let all: Vec<f64> = squares.values().flatten().copied().collect();
        Control {
            by_benchmark: squares
                .iter()
                .map(|(name, of)| (name.clone(), root(of)))
                .collect(),
            overall: (!all.is_empty()).then(|| root(&all)),
        }
    }

    /// The relative noise of a benchmark's rows.
    pub fn noise(&self, benchmark: &str) -> Option<f64> {
        self.by_benchmark.get(benchmark).copied().or(self.overall)
    }
}

/// How far a row is from its baseline, relative to either: as a noise, just enough to cover no effect.
pub fn stray(row: &Row, base: &Row) -> f64 {
    let ratio = row.value.middle() / base.value.middle();
    (ratio - 1.0).abs().max((1.0 / ratio - 1.0).abs())
}

/// How often pairs are drawn anew for the interval of a statistic over the runs.
const RESAMPLES: u64 = 2_000;

/// The simulated effect over runs that are pairs, and its 95 % interval; `None` for fewer than two pairs or a
/// value that is not positive.
///
/// The typical run: the geometric mean of the ratios, with Student's interval. A statistic over the runs: the
/// ratio of the statistics, and the middle 95 % of what comes out when the pairs are drawn with replacement
/// (always the same draws, so that the same runs give the same interval).
pub fn simulated(statistic: Statistic, baseline: &[f64], variant: &[f64]) -> Option<Span> {
    let positive = |values: &[f64]| values.iter().all(|v| v.is_finite() && *v > 0.0);
    if baseline.len() < 2
        || baseline.len() != variant.len()
        || !positive(baseline)
        || !positive(variant)
    {
        return None;
    }
    if statistic == Statistic::Typical {
        let effect = Effect::paired(baseline, variant)?;
        return Some(Span {
            effect: effect.ratio,
            low: effect.low,
            high: effect.high,
        });
    }
    let n = baseline.len();
    let ratio = |picks: &[usize]| {
        let of = |values: &[f64]| statistic.of(picks.iter().map(|&i| values[i]));
        of(variant) / of(baseline)
    };
    let mut rng = Rng::new(n as u64);
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            ratio(
                &(0..n)
                    .map(|_| rng.below(n as u64) as usize)
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let cut = ratios.len() / 40;
    Some(Span {
        effect: ratio(&(0..n).collect::<Vec<_>>()),
        low: ratios[cut],
        high: ratios[ratios.len() - 1 - cut],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Table, COLUMNS};

    fn rows(lines: &str) -> Vec<Row> {
        let text = format!("{}\n{lines}", COLUMNS.join(","));
        Table::parse("t.csv", &text).unwrap().rows
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    // Goal: the published effect and its noise are what the rows say.
    // Method: worked examples: deviations of both values; a range of changes; ranges end over end; noise from
    // rows that should show none; and nothing stated.
    #[test]
    fn published_effects() {
        let r = rows(
            "s,m,b,x,higher,p=1,base,1,3,\n\
             s,m,b,x,higher,p=1,new,2.0000,4,\n\
             s,m,b,y,higher,p=1,new,1.5..3,,\n\
             s,m,b,z,lower,p=1,base,2200..8700,,\n\
             s,m,b,z,lower,p=1,new,500..2200,,\n\
             s,m,b,w,lower,p=1,base,50,,\n\
             s,m,b,w,lower,p=1,new,40,,\n\
             s,m,b,v,lower,p=1,base,1,,\n\
             s,m,b,v,lower,p=1,new,1,,\n\
             s,m,b,u,lower,p=1,new,5.9,,\n",
        );
        let of = |row: usize, base: Option<usize>, control| {
            let p = published(&r[row], base.map(|b| &r[b]), control).unwrap();
            (p.span.low, p.span.effect, p.span.high, p.noise)
        };
        let is = |(low, effect, high, noise), expected: (f64, f64, f64), from| {
            assert!(
                close(low, expected.0) && close(effect, expected.1) && close(high, expected.2),
                "{low} {effect} {high}"
            );
            assert_eq!(noise, from);
        };
        is(
            of(1, Some(0), Some(0.5)),
            (1.9, 2.0, 2.1),
            Some(NoiseFrom::Column),
        );
        is(
            of(2, None, None),
            (1.015, 1.0225, 1.03),
            Some(NoiseFrom::Range),
        );
        is(
            of(4, Some(3), None),
            (0.2273, 0.2397, 0.2529),
            Some(NoiseFrom::Range),
        );
        // 40 over 50 with half a unit each: 0.8 +- 0.8 * (0.0125 + 0.01).
        is(
            of(6, Some(5), Some(0.1)),
            (0.702, 0.8, 0.898),
            Some(NoiseFrom::Control),
        );
        is(
            of(6, Some(5), None),
            (0.782, 0.8, 0.818),
            Some(NoiseFrom::Rounding),
        );
        is(of(8, Some(7), None), (1.0, 1.0, 1.0), None);
        is(
            of(9, None, None),
            (1.0585, 1.059, 1.0595),
            Some(NoiseFrom::Rounding),
        );
        let bad = rows("s,m,b,x,higher,p=1,base,0,,\ns,m,b,x,higher,p=1,new,2,,\n");
        assert!(published(&bad[1], Some(&bad[0]), None)
            .unwrap_err()
            .contains("line 2"));
        let gone = rows("s,m,b,x,higher,p=1,new,-100,,\n");
        assert!(published(&gone[0], None, None)
            .unwrap_err()
            .contains("above -100"));
    }

    // Goal: the control rows' strays make the noise, a benchmark's own first.
    #[test]
    fn control_noise() {
        let r = rows(
            "s,m,a,x,higher,p=1,base,100,,\ns,m,a,x,higher,p=1,same,103,,\n\
             s,m,b,x,higher,p=1,base,100,,\ns,m,b,x,higher,p=1,same,96,,\n",
        );
        let control = Control::of([(&r[1], &r[0]), (&r[3], &r[2])].into_iter());
        assert!(
            close(control.noise("a").unwrap(), 0.03) && close(control.noise("b").unwrap(), 0.04)
        );
        assert!(close(control.noise("c").unwrap(), (0.0025f64 / 2.0).sqrt()));
        assert_eq!(Control::of(std::iter::empty()).noise("a"), None);
    }

    // Goal: each statistic over the runs is its own, with an interval that holds it and is repeatable.
    // Method: a baseline that flips between two values, as one thread on a weak or a strong CPU does.
    #[test]
    fn statistics_over_runs() {
        let base: Vec<f64> = (0..10)
            .map(|i| if i % 2 == 0 { 16.0 } else { 32.0 })
            .collect();
        let variant = vec![16.0; 10];
        let of = |statistic| simulated(statistic, &base, &variant).unwrap();
        assert!(close(of(Statistic::Mean).effect, 16.0 / 24.0));
        assert!(close(of(Statistic::Min).effect, 1.0) && close(of(Statistic::Max).effect, 0.5));
        assert!(
            close(of(Statistic::Typical).effect, 0.5f64.sqrt()),
            "the geometric mean"
        );
        let mean = of(Statistic::Mean);
        assert!(
            mean.low < mean.effect && mean.effect < mean.high && !mean.covers_none(),
            "{mean:?}"
        );
        assert_eq!(mean, of(Statistic::Mean));
        assert_eq!(
            simulated(Statistic::Typical, &[1.0], &[2.0]),
            None,
            "one pair has no interval"
        );
        assert_eq!(
            simulated(Statistic::Typical, &[1.0, 0.0], &[2.0, 1.0]),
            None
        );
    }
}
