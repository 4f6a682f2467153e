// SPDX-License-Identifier: GPL-2.0-only
//! How a simulated effect compares with a published one.

use serde::Serialize;

/// A ratio over the baseline, and the interval it may lie in. Without a known noise the interval is a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The estimate.
    pub effect: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Span {
    /// Whether no effect at all is within the interval.
    pub fn covers_none(&self) -> bool {
        self.low <= 1.0 && 1.0 <= self.high
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    fn within(&self, other: &Span) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    fn same_sign(&self, other: &Span) -> bool {
        (self.effect - 1.0) * (other.effect - 1.0) > 0.0
    }

    /// The same of the inverse metric: seconds per run instead of runs per second.
    pub fn inverted(&self) -> Span {
        Span {
            effect: 1.0 / self.effect,
            low: 1.0 / self.high,
            high: 1.0 / self.low,
        }
    }
}

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// The simulated interval overlaps the published effect with its noise.
    #[serde(rename = "agrees")]
    Agrees,
    /// The same sign, another size.
    #[serde(rename = "direction")]
    Direction,
    /// Both cannot be told from no effect.
    #[serde(rename = "null")]
    Null,
    /// Another sign, or an effect on one side only.
    #[serde(rename = "differs")]
    Differs,
    /// The publication's own spread covers no effect; the simulation has one, which that spread leaves possible.
    #[serde(rename = "published is noise")]
    PublishedIsNoise,
}

impl Verdict {
    /// As in the output.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Direction => "direction",
            Verdict::Null => "null",
            Verdict::Differs => "differs",
            Verdict::PublishedIsNoise => "published is noise",
        }
    }
}

/// The verdict on a row.
///
/// 1. The publication cannot be told from no effect. `null` if the simulation cannot either, or stays
///    within the publication's spread; `published is noise` if it has an effect that the spread
///    leaves possible; `differs` if it has one that the spread excludes.
/// 2. The intervals overlap: `agrees`.
/// 3. The simulation has an effect of the same sign: `direction`.
/// 4. Otherwise it `differs`.
pub fn verdict(published: &Span, simulated: &Span) -> Verdict {
    if published.covers_none() {
        if simulated.covers_none() || simulated.within(published) {
            return Verdict::Null;
        }
        return match simulated.overlaps(published) {
            true => Verdict::PublishedIsNoise,
            false => Verdict::Differs,
        };
    }
    if simulated.overlaps(published) {
        return Verdict::Agrees;
    }
    if simulated.same_sign(published) && !simulated.covers_none() {
        return Verdict::Direction;
    }
    Verdict::Differs
}

/// Whether the simulation goes the way of a published effect; `None` if the publication has none beyond its
/// noise. An effect that cannot be told from none goes no way, unless it overlaps the published one.
pub fn direction_right(published: &Span, simulated: &Span) -> Option<bool> {
    if published.covers_none() {
        return None;
    }
    let sure = !simulated.covers_none() || simulated.overlaps(published);
    Some(sure && simulated.same_sign(published))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(effect: f64, low: f64, high: f64) -> Span {
        Span { effect, low, high }
    }

    // Goal: each verdict is given for what it says, and not for its neighbours; and swapping the two sides
    // changes it where their parts differ.
    // Method: constructed intervals on both sides of every edge.
    #[test]
    fn each_verdict() {
        use Verdict::*;
        let gain = span(0.60, 0.55, 0.65);
        let noise = span(0.97, 0.85, 1.09);
        let exact = span(1.0, 1.0, 1.0);
        let point = span(0.97, 0.97, 0.97);
        for (published, simulated, expected) in [
            (gain, span(0.62, 0.60, 0.64), Agrees),
            (gain, span(0.70, 0.65, 0.75), Agrees), // the ends meet
            (gain, span(0.80, 0.55, 1.10), Agrees), // uncertain, but it overlaps
            (gain, span(0.70, 0.651, 0.75), Direction),
            (gain, span(0.30, 0.20, 0.40), Direction),
            (gain, span(0.98, 0.90, 1.05), Differs), // no effect here
            (gain, span(1.40, 1.30, 1.50), Differs), // the other sign
            (noise, span(1.00, 0.99, 1.01), Null),
            (noise, span(1.20, 0.99, 1.40), Null), // cannot be told from none either
            (noise, span(0.95, 0.94, 0.96), Null), // an effect, but smaller than the noise
            (noise, span(0.84, 0.80, 0.86), PublishedIsNoise),
            (noise, span(1.10, 1.05, 1.15), PublishedIsNoise),
            (noise, span(0.80, 0.78, 0.82), Differs), // the noise does not reach as far
            (exact, span(1.0, 0.99, 1.01), Null),
            (exact, span(1.1, 1.05, 1.15), Differs),
            (point, span(1.0, 0.98, 1.02), Differs),
            (point, span(0.9, 0.89, 0.91), Direction),
        ] {
            let found = verdict(&published, &simulated);
            assert_eq!(found, expected, "{published:?} {simulated:?}");
        }
        let (a, b) = (gain, span(0.68, 0.60, 1.05));
        let both = (verdict(&a, &b), verdict(&b, &a));
        assert_eq!(both, (Agrees, PublishedIsNoise), "the sides are not alike");
    }

    // Goal: only effects beyond the publication's noise have a direction, and a simulation that shows none
    // has not got it right.
    #[test]
    fn directions() {
        let gain = span(0.60, 0.55, 0.65);
        let noise = span(0.97, 0.85, 1.09);
        for (published, simulated, expected) in [
            (gain, span(0.90, 0.85, 0.95), Some(true)),
            (gain, span(1.10, 1.05, 1.15), Some(false)),
            (gain, span(0.97, 0.90, 1.04), Some(false)),
            (gain, span(0.80, 0.60, 1.04), Some(true)), // it overlaps
            (gain, span(1.01, 0.60, 1.90), Some(false)),
            (noise, span(0.90, 0.85, 0.95), None),
        ] {
            assert_eq!(
                direction_right(&published, &simulated),
                expected,
                "{simulated:?}"
            );
        }
    }

    // Goal: an effect on seconds is the inverse effect on rates, ends swapped.
    #[test]
    fn inversion() {
        let twice = span(0.5, 0.4, 0.8).inverted();
        assert_eq!(twice, span(2.0, 1.25, 2.5));
    }
}
