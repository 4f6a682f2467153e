// SPDX-License-Identifier: GPL-2.0-only
//! A sample's median and spread, and the effect of one sample over another.
//!
//! Effects are ratios, so they are estimated on logarithms: the geometric mean of the ratios with Student's
//! interval. That is exact for log-normal noise, and run times and throughputs are close to it. A paired
//! comparison (same seed, same boot) takes the ratio pair by pair and so is blind to what both runs share.

/// The median of a sample and an interval around it, in the sample's own unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// The median.
    pub median: f64,
    /// Lower end of the 95 % interval of the median; the smallest value where the sample is too small
    /// for that (fewer than [`Summary::INTERVAL_MIN`]).
    pub low: f64,
    /// Upper end likewise.
    pub high: f64,
}

impl Summary {
    /// So many values have such an interval; of fewer, the least and the greatest stand for it.
    pub const INTERVAL_MIN: usize = 6;

    /// Of finite values; `None` for an empty sample or one with a value that is not finite.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let sorted = sorted(values)?;
        let n = sorted.len();
        let cut = median_interval_cut(n);
        Some(Summary {
            n,
            median: median_of(&sorted),
            low: sorted[cut],
            high: sorted[n - 1 - cut],
        })
    }

    /// Half the interval's width in per cent of the median; 0 for a median of 0.
    pub fn spread_pct(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.high - self.low) / 2.0 / self.median.abs() * 100.0
    }
}

fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

fn median_of(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n % 2 == 1 {
        sorted[n / 2]
    } else {
        (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0
    }
}

/// How many values to leave out at each end so that the rest still covers the median with 95 %: the number
/// of values below the median is binomial with p = 1/2, whatever the distribution.
fn median_interval_cut(n: usize) -> usize {
    let mut below = 0.0;
    let mut term = 0.5f64.powi(n as i32);
    for cut in 0..n / 2 {
        below += term;
        if 2.0 * below > 0.05 {
            return cut.saturating_sub(1);
        }
        term *= (n - cut) as f64 / (cut + 1) as f64;
    }
    0
}

/// A variant over a baseline, as a ratio: 1 is no effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// Geometric mean of the ratio.
    pub ratio: f64,
    /// Lower end of its 95 % interval; 0 where there are too few values to tell.
    pub low: f64,
    /// Upper end likewise; infinity where there are too few values to tell.
    pub high: f64,
}

impl Effect {
    /// From values measured in pairs (same seed, or side by side in one boot). `None` if the lengths
    /// differ, nothing is there, or a value is not positive.
    pub fn paired(baseline: &[f64], variant: &[f64]) -> Option<Effect> {
        if baseline.len() != variant.len() {
            return None;
        }
        let b = logs(baseline)?;
        let v = logs(variant)?;
        let differences: Vec<f64> = v.iter().zip(&b).map(|(v, b)| v - b).collect();
        let n = differences.len() as f64;
        let (mean, variance) = mean_variance(&differences);
        Some(Effect::around(mean, (variance / n).sqrt(), n - 1.0))
    }

    /// From independent samples, with Welch's interval. `None` if one is empty or a value is not
    /// positive.
    pub fn unpaired(baseline: &[f64], variant: &[f64]) -> Option<Effect> {
        let (b, v) = (logs(baseline)?, logs(variant)?);
        let (mean_b, variance_b) = mean_variance(&b);
        let (mean_v, variance_v) = mean_variance(&v);
        let (nb, nv) = (b.len() as f64, v.len() as f64);
        let (sb, sv) = (variance_b / nb, variance_v / nv);
        let spread = sb * sb / (nb - 1.0).max(1.0) + sv * sv / (nv - 1.0).max(1.0);
        let freedom = if spread > 0.0 {
            (sb + sv) * (sb + sv) / spread
        } else {
            nb + nv - 2.0
        };
        let freedom = if nb.min(nv) < 2.0 { 0.0 } else { freedom };
        Some(Effect::around(mean_v - mean_b, (sb + sv).sqrt(), freedom))
    }

    fn around(mean: f64, error: f64, freedom: f64) -> Effect {
        if freedom < 1.0 {
            return Effect {
                ratio: mean.exp(),
                low: 0.0,
                high: f64::INFINITY,
            };
        }
        let reach = student_975(freedom) * error;
        Effect {
            ratio: mean.exp(),
            low: (mean - reach).exp(),
            high: (mean + reach).exp(),
        }
    }

    /// Whether the interval excludes 1.
    pub fn distinguishable(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// `+12.3 %`, or `~` when not distinguishable from no effect.
    pub fn text(&self) -> String {
        if self.distinguishable() {
            format!("{:+.1} %", (self.ratio - 1.0) * 100.0)
        } else {
            "~".to_owned()
        }
    }
}

fn logs(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite() || *v <= 0.0) {
        return None;
    }
    Some(values.iter().map(|v| v.ln()).collect())
}

/// Mean and the sample's variance (n - 1; 0 for one value).
fn mean_variance(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, if n > 1.0 { squares / (n - 1.0) } else { 0.0 })
}

/// The 97.5 % quantile of Student's t distribution for at least one degree of freedom. Exact for one and
/// two, and otherwise Hill's expansion around the normal quantile (Communications of the ACM 13, 1970;
/// algorithm 396), whose error is below 0.1 % from three on.
fn student_975(freedom: f64) -> f64 {
    const TAIL: f64 = 0.05;
    if freedom < 1.5 {
        return 12.706_204_736;
    }
    if freedom < 2.5 {
        return 4.302_652_730;
    }
    let a = 1.0 / (freedom - 0.5);
    let b = 48.0 / (a * a);
    let mut c = ((20_700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
    let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * (a * std::f64::consts::FRAC_PI_2).sqrt() * freedom;
    let mut y = (d * TAIL).powf(2.0 / freedom);
    if y > 0.05 + a {
        let x = -1.959_963_985;
        y = x * x;
        if freedom < 5.0 {
            c += 0.3 * (freedom - 4.5) * (x + 0.6);
        }
        c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
        y = (a * y * y).exp_m1();
    } else {
        y = ((1.0
            / (((freedom + 6.0) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2.0) * 3.0)
            + 0.5 / (freedom + 4.0))
            * y
            - 1.0)
            * (freedom + 1.0)
            / (freedom + 2.0)
            + 1.0 / y;
    }
    (freedom * y).sqrt()
}

/// Spearman's rank correlation of two equally long samples, ties sharing their mean rank. `None` for fewer
/// than three pairs or a sample whose values are all equal.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() || a.len() < 3 {
        return None;
    }
    let (ra, rb) = (ranks(a), ranks(b));
    let (mean_a, variance_a) = mean_variance(&ra);
    let (mean_b, variance_b) = mean_variance(&rb);
    if variance_a == 0.0 || variance_b == 0.0 {
        return None;
    }
    let shared: f64 = ra
        .iter()
        .zip(&rb)
        .map(|(x, y)| (x - mean_a) * (y - mean_b))
        .sum();
    Some(shared / (a.len() as f64 - 1.0) / (variance_a * variance_b).sqrt())
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let mut end = start + 1;
        while end < order.len() && values[order[end]] == values[order[start]] {
            end += 1;
        }
        for &i in &order[start..end] {
            ranks[i] = (start + end - 1) as f64 / 2.0;
        }
        start = end;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the quantiles are those of the printed tables.
    // Method: values from any table of Student's t, two-sided 5 %.
    #[test]
    fn student_quantiles() {
        let table = [
            (1.0, 12.706),
            (2.0, 4.303),
            (3.0, 3.182),
            (4.0, 2.776),
            (9.0, 2.262),
            (19.0, 2.093),
            (100.0, 1.984),
        ];
        for (freedom, expected) in table {
            let got = student_975(freedom);
            assert!(
                (got / expected - 1.0).abs() < 0.002,
                "{freedom} degrees: {got}, not {expected}"
            );
        }
    }

    // Goal: the interval of a median covers what order statistics promise.
    // Method: the textbook cuts: none below six values, the third from the end at fifteen.
    #[test]
    fn median_cuts() {
        let cuts: Vec<usize> = [1, 5, 6, 8, 9, 15, 20].map(median_interval_cut).to_vec();
        assert_eq!(cuts, [0, 0, 0, 0, 1, 3, 5]);
    }

    // Goal: pairing removes what both runs share.
    // Method: seeds that differ by a factor of ten, and an effect of 5 %.
    #[test]
    fn pairing_sees_through_common_noise() {
        let base = [10.0, 100.0, 31.0, 55.0, 17.0];
        let variant: Vec<f64> = base
            .iter()
            .enumerate()
            .map(|(i, v)| v * (1.05 + 0.001 * i as f64))
            .collect();
        let paired = Effect::paired(&base, &variant).unwrap();
        assert!(paired.distinguishable() && (paired.ratio - 1.052).abs() < 0.001);
        assert!(!Effect::unpaired(&base, &variant).unwrap().distinguishable());
    }

    // Goal: a single value claims nothing.
    // Method: one pair, however different.
    #[test]
    fn one_value_is_no_evidence() {
        let effect = Effect::paired(&[1.0], &[2.0]).unwrap();
        assert_eq!(effect.ratio, 2.0);
        assert!(!effect.distinguishable());
        assert_eq!(effect.text(), "~");
        assert!(!Effect::unpaired(&[1.0], &[2.0]).unwrap().distinguishable());
    }

    // Goal: the interval is right 95 times in a hundred.
    // Method: 2,000 samples of normal noise from a fixed generator around no effect; count the misses.
    #[test]
    fn interval_coverage() {
        let mut state = 1u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let mut sample = |n| {
            (0..n)
                .map(|_| (0.05 * normal()).exp())
                .collect::<Vec<f64>>()
        };
        let misses = (0..2000)
            .filter(|_| {
                Effect::unpaired(&sample(6), &sample(6))
                    .unwrap()
                    .distinguishable()
            })
            .count();
        assert!((60..=140).contains(&misses), "{misses} of 2000 outside");
    }

    // Goal: ranks, not values, decide, and ties share their rank.
    #[test]
    fn rank_correlation_by_hand() {
        assert_eq!(
            rank_correlation(&[1.0, 2.0, 3.0], &[10.0, 200.0, 3000.0]),
            Some(1.0)
        );
        assert_eq!(
            rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]),
            Some(-1.0)
        );
        assert_eq!(rank_correlation(&[1.0, 1.0, 1.0], &[3.0, 2.0, 1.0]), None);
        let tied = rank_correlation(&[1.0, 2.0, 2.0, 3.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((tied - 0.948_683).abs() < 1e-6);
    }

    // Goal: what cannot be compared is refused, not turned into a number.
    #[test]
    fn refusals() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Effect::paired(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(Effect::unpaired(&[0.0, 1.0], &[1.0, 1.0]), None);
    }
}
