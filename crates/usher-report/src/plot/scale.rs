// SPDX-License-Identifier: GPL-2.0-only
//! From values to places on paper.

/// Values up to this far from 0, in per cent, are drawn to scale where a logarithm is taken of the others.
pub const LINEAR_TO: f64 = 10.0;
/// A linear axis does as long as no value is further from 0 than this, in per cent.
pub const LINEAR_WHOLLY_TO: f64 = 30.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Linear,
    /// Linear around 0, logarithmic beyond [`LINEAR_TO`].
    Both,
    Logarithmic,
}

impl Kind {
    fn of(self, value: f64) -> f64 {
        match self {
            Kind::Linear => value,
            Kind::Logarithmic => value.log10(),
            Kind::Both => {
                let size = value.abs() / LINEAR_TO;
                value.signum()
                    * if size <= 1.0 {
                        size
                    } else {
                        1.0 + size.log10()
                    }
            }
        }
    }
}

/// An axis: which values it shows, and where.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    kind: Kind,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Scale {
    /// For effects in per cent, 0 among them, between the pixels `start` and `end`. One far-off value must not
    /// flatten the others: beyond 30 % the axis is logarithmic but for its middle.
    pub fn effects(values: impl IntoIterator<Item = f64>, start: f64, end: f64) -> Scale {
        let (mut low, mut high) = (0.0f64, 0.0f64);
        for value in values.into_iter().filter(|v| v.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        let kind = match low.abs().max(high) > LINEAR_WHOLLY_TO {
            true => Kind::Both,
            false => Kind::Linear,
        };
        let (from, to) = (kind.of(low), kind.of(high));
        let margin = match to - from {
            0.0 => 1.0,
            width => width * 0.07,
        };
        Scale {
            kind,
            from: from - margin,
            to: to + margin,
            start,
            end,
        }
    }

    /// For a parameter: logarithmic where it spans a decade.
    pub fn parameter(values: impl IntoIterator<Item = f64> + Clone, start: f64, end: f64) -> Scale {
        let of = |pick: fn(f64, f64) -> f64| values.clone().into_iter().reduce(pick).unwrap_or(0.0);
        let (low, high) = (of(f64::min), of(f64::max));
        let kind = match low > 0.0 && high / low >= 10.0 {
            true => Kind::Logarithmic,
            false => Kind::Linear,
        };
        Scale {
            kind,
            from: kind.of(low),
            to: kind.of(high),
            start,
            end,
        }
    }

    /// Where a value is, in pixels.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.to - self.from {
            0.0 => 0.5,
            width => (self.kind.of(value) - self.from) / width,
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Whether the axis is logarithmic, in part or wholly.
    pub fn is_logarithmic(&self) -> bool {
        self.kind != Kind::Linear
    }

    /// Round values to label an axis of effects with, in order, no two nearer to each other than `gap` pixels;
    /// 0 is always one.
    pub fn ticks(&self, gap: f64) -> Vec<f64> {
        let mut chosen: Vec<f64> = match self.kind {
            Kind::Linear => self.even(gap),
            _ => self.uneven(gap),
        };
        chosen.retain(|tick| (self.from..=self.to).contains(&self.kind.of(*tick)));
        chosen.sort_by(f64::total_cmp);
        chosen
    }

    /// Multiples of the least round step that leaves the gap.
    fn even(&self, gap: f64) -> Vec<f64> {
        let pixels_per_unit = (self.end - self.start).abs() / (self.to - self.from);
        let least = gap / pixels_per_unit;
        let decade = 10f64.powf(least.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
        // The last is more than the least by definition, but for the last bit of a logarithm.
        let step = steps
            .into_iter()
            .find(|step| *step >= least)
            .unwrap_or(10.0 * decade);
        let (first, last) = (
            (self.from / step).ceil() as i64,
            (self.to / step).floor() as i64,
        );
        (first..=last).map(|i| i as f64 * step).collect()
    }

    /// Powers of ten first, then what fits between them.
    fn uneven(&self, gap: f64) -> Vec<f64> {
        let mut chosen: Vec<f64> = vec![0.0];
        for factor in [10.0, 50.0, 20.0, 5.0] {
            for decade in 0..9 {
                for tick in [1.0, -1.0].map(|sign| sign * factor * 10f64.powi(decade)) {
                    let shown = (self.from..=self.to).contains(&self.kind.of(tick));
                    let free = |other: &f64| (self.place(*other) - self.place(tick)).abs() >= gap;
                    if shown && chosen.iter().all(free) {
                        chosen.push(tick);
                    }
                }
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a far-off value leaves room for the others; small ones alone are to scale; the order is kept; 0 is
    // labelled.
    #[test]
    fn outliers_do_not_flatten_the_rest() {
        let scale = Scale::effects([-225.0, 3.0, 700.0], 0.0, 100.0);
        assert!(scale.is_logarithmic());
        assert!(
            scale.place(3.0) - scale.place(0.0) > 3.0,
            "3 % can be seen beside 700 %"
        );
        let places: Vec<f64> = [-225.0, -10.0, 0.0, 3.0, 10.0, 11.0, 700.0]
            .map(|v| scale.place(v))
            .into();
        assert!(places.windows(2).all(|p| p[0] < p[1]), "{places:?}");
        let ticks = scale.ticks(10.0);
        assert!(ticks.contains(&0.0) && ticks.contains(&100.0), "{ticks:?}");
        assert!(ticks
            .windows(2)
            .all(|t| scale.place(t[1]) - scale.place(t[0]) >= 10.0));

        let small = Scale::effects([-2.0, 4.0], 0.0, 100.0);
        assert_eq!(small.ticks(14.0), [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(small.ticks(20.0), [-2.0, 0.0, 2.0, 4.0]);
        let step = small.place(2.0) - small.place(1.0);
        assert!(
            !small.is_logarithmic() && (small.place(4.0) - small.place(3.0) - step).abs() < 1e-9
        );
        assert_eq!(Scale::effects([], 0.0, 100.0).place(0.0), 50.0);
        assert_eq!(Scale::effects([0.0, f64::NAN], 0.0, 100.0).place(0.0), 50.0);
    }

    // Goal: a parameter over decades has them equally far apart, one within a decade is to scale.
    #[test]
    fn decades_are_logarithmic() {
        let wide = Scale::parameter([1.0, 10.0, 100.0], 0.0, 100.0);
        assert!(wide.is_logarithmic() && (wide.place(10.0) - 50.0).abs() < 1e-9);
        let narrow = Scale::parameter([2.0, 4.0, 6.0], 0.0, 100.0);
        assert!(!narrow.is_logarithmic() && narrow.place(4.0) == 50.0);
        assert!(!Scale::parameter([0.0, 100.0], 0.0, 100.0).is_logarithmic());
        assert_eq!(Scale::parameter([7.0], 0.0, 100.0).place(7.0), 50.0);
    }
}
