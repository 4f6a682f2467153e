// SPDX-License-Identifier: GPL-2.0-only
//! The idle governor: which idle state, and whether the tick goes on.
//!
//! Rules of the kernel's `menu` governor (6.x), carrying these numbers in the code:
//!
//! 1. The typical interval: the mean of the last eight idle lengths, of which outliers at the top are
//!    left out until the rest agree; none if they never do.
//! 2. If that is above 15 us: the time to the next timer, times a learned correction for timers of that
//!    order of magnitude. The prediction is the lesser of the two.
//! 3. If the tick is already stopped and the prediction is below a tick, the next timer is the prediction:
//!    nothing else would correct a mistake.
//! 4. The deepest state whose residency is not above the prediction; but at least the first.
//! 5. The tick is stopped if the prediction is at least a tick. If it goes on, a state is not deeper than
//!    pays until the tick.
//!
//! The polling state of x86 is left out: `menu` takes it only when a timer is due within microseconds.

use crate::costs::IdleState;
use crate::ids::Nanos;

const INTERVALS: usize = 8;
const BUCKETS: usize = 6;
/// A correction of 1.
const UNITY: u64 = 1024 * DECAY;
const DECAY: u64 = 8;
/// Rule 2 applies above this.
const SHORT_NS: Nanos = 15_000;
/// Lengths above this do not teach the correction anything.
const LONG_NS: Nanos = 50_000_000;

/// What the governor remembers of a CPU.
#[derive(Clone, Debug)]
pub(crate) struct Governor {
    /// The last idle lengths, in us as in the kernel.
    intervals: [u32; INTERVALS],
    /// The time to the next timer when the CPU went idle.
    timer: Nanos,
    correction: [u16; BUCKETS],
    place: u8,
    bucket: u8,
}

impl Default for Governor {
    fn default() -> Self {
        Governor {
            intervals: [0; INTERVALS],
            place: 0,
            bucket: 0,
            timer: Nanos::MAX,
            correction: [UNITY as u16; BUCKETS],
        }
    }
}

/// What the governor decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub state: u8,
    pub stop_tick: bool,
}

impl Governor {
    /// A CPU goes idle. `timer`, `tick`: time to the next timer and to the next tick.
    pub fn choose(
        &mut self,
        states: &[IdleState],
        timer: Nanos,
        tick: Nanos,
        period: Nanos,
        tick_stopped: bool,
    ) -> Choice {
        // 1.
        let mut predicted = self.typical();
        // 2.
        self.timer = timer;
        self.bucket = bucket(timer);
        if predicted > SHORT_NS {
            let correction = u128::from(self.correction[usize::from(self.bucket)]);
            let corrected = u128::from(timer) * correction / u128::from(UNITY);
            predicted = predicted.min(u64::try_from(corrected).unwrap_or(u64::MAX));
        }
        // 3.
        if tick_stopped && predicted < period {
            predicted = timer;
        }
        // 4.
        let deepest = |limit| {
            states
                .iter()
                .rposition(|s| s.residency_ns <= limit)
                .unwrap_or(0) as u8
        };
        let state = deepest(predicted);
        // 5.
        if tick_stopped || predicted >= period {
            return Choice {
                state,
                stop_tick: !tick_stopped,
            };
        }
        Choice {
            state: state.min(deepest(tick)),
            stop_tick: false,
        }
    }

    /// The tick ended the idle state, not something worth predicting.
    pub fn tick_woke(&mut self) {
        // The tick's own record was made when the CPU woke: the period was going to be longer.
        let last = (usize::from(self.place) + INTERVALS - 1) % INTERVALS;
        self.intervals[last] = (LONG_NS * 9 / 10 / 1000) as u32;
    }

    /// Something ended the idle state after `stay`.
    pub fn woke(&mut self, stay: Nanos, exit: Nanos) {
        let measured = if stay > 2 * exit {
            stay - exit
        } else {
            stay / 2
        };
        let measured = measured.min(self.timer);
        let old = u64::from(self.correction[usize::from(self.bucket)]);
        let mut new = old - old / DECAY;
        new += match self.timer {
            1.. if measured < LONG_NS => {
                (u128::from(measured) * 1024 / u128::from(self.timer)) as u64
            }
            _ => 1024,
        };
        self.correction[usize::from(self.bucket)] = (new as u16).max(1);
        self.intervals[usize::from(self.place)] =
            u32::try_from(measured / 1000).unwrap_or(u32::MAX);
        self.place = (self.place + 1) % INTERVALS as u8;
    }

    /// Rule 1.
    fn typical(&self) -> Nanos {
        let mut below = u64::MAX;
        loop {
            let (mut count, mut sum, mut max) = (0u64, 0u64, 0u64);
            for v in self.kept(below) {
                (count, sum, max) = (count + 1, sum + v, max.max(v));
            }
            if count == 0 {
                return u64::MAX;
            }
            let mean = sum / count;
            let squares: u64 = self
                .kept(below)
                .map(|v| v.abs_diff(mean).saturating_pow(2))
                .fold(0, u64::saturating_add);
            let variance = squares / count;
            // Agreed: the standard deviation is below a sixth of the mean, or 20 us.
            let enough = count * 4 >= INTERVALS as u64 * 3;
            let tight = mean.saturating_pow(2) > variance.saturating_mul(36) && enough;
            if tight || variance <= 400 {
                return mean * 1000;
            }
            if count * 4 <= INTERVALS as u64 * 3 {
                return u64::MAX;
            }
            below = max;
        }
    }

    fn kept(&self, below: u64) -> impl Iterator<Item = u64> + '_ {
        self.intervals
            .iter()
            .map(|&us| u64::from(us))
            .filter(move |&us| us < below)
    }
}

/// Order of magnitude of a time to the next timer.
fn bucket(timer: Nanos) -> u8 {
    match timer {
        0..10_000 => 0,
        10_000..100_000 => 1,
        100_000..1_000_000 => 2,
        1_000_000..10_000_000 => 3,
        10_000_000..100_000_000 => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn states() -> Vec<IdleState> {
        [(2_000, 2_000), (133_000, 600_000)]
            .map(|(exit_ns, residency_ns)| IdleState {
                name: String::new(),
                exit_ns,
                wake_ns: None,
                llc_wake_ns: 0,
                residency_ns,
                polling: true,
            })
            .into()
    }

    fn trained(stay: Nanos) -> Governor {
        let mut governor = Governor::default();
        for _ in 0..INTERVALS {
            governor.choose(&states(), NEVER, MS, 4 * MS, false);
            governor.woke(stay, 0);
        }
        governor
    }

    const NEVER: Nanos = Nanos::MAX;

    // Goal: rules 1, 4 and 5: short idles keep the tick and take the shallow state, long ones stop it and
    // sleep deeply.
    // Method: eight equal idle periods, no timer.
    #[test]
    fn history_decides_state_and_tick() {
        let short = trained(50_000).choose(&states(), NEVER, MS, 4 * MS, false);
        assert_eq!(
            short,
            Choice {
                state: 0,
                stop_tick: false
            }
        );
        let long = trained(20 * MS).choose(&states(), NEVER, MS, 4 * MS, false);
        assert_eq!(
            long,
            Choice {
                state: 1,
                stop_tick: true
            }
        );
        let medium = trained(MS).choose(&states(), NEVER, 3 * MS, 4 * MS, false);
        assert_eq!(
            medium,
            Choice {
                state: 1,
                stop_tick: false
            }
        );
    }

    // Goal: rule 5's second half: with the tick on, no state deeper than pays until the tick.
    // Method: predicted 1 ms, tick due in 0.1 ms.
    #[test]
    fn a_near_tick_keeps_the_state_shallow() {
        let choice = trained(MS).choose(&states(), NEVER, MS / 10, 4 * MS, false);
        assert_eq!(
            choice,
            Choice {
                state: 0,
                stop_tick: false
            }
        );
    }

    // Goal: rule 2: a near timer bounds the prediction; rule 3: with the tick stopped it is the prediction.
    // Method: long history; then short history with the tick stopped.
    #[test]
    fn timers_bound_the_prediction() {
        let near = trained(20 * MS).choose(&states(), MS / 10, MS, 4 * MS, false);
        assert_eq!(
            near,
            Choice {
                state: 0,
                stop_tick: false
            }
        );
        let stopped = trained(50_000).choose(&states(), 30 * MS, MS, 4 * MS, true);
        assert_eq!(
            stopped,
            Choice {
                state: 1,
                stop_tick: false
            }
        );
    }

    // Goal: rule 1's outliers: one long idle among seven short ones does not count.
    // Method: the history with one outlier.
    #[test]
    fn outliers_are_left_out() {
        let mut governor = trained(50_000);
        governor.woke(40 * MS, 0);
        assert!(governor.typical() < 60_000, "{}", governor.typical());
        let mut mixed = trained(50_000);
        [10, 20, 30, 40]
            .into_iter()
            .for_each(|ms| mixed.woke(ms * MS, 0));
        assert_eq!(
            mixed.typical(),
            NEVER,
            "half of them scattered: no typical interval"
        );
    }

    // Goal: an idle CPU that only ticks wake stops its tick once the short history is forgotten.
    // Method: short history, woken by ticks.
    #[test]
    fn ticks_teach_patience() {
        let mut governor = trained(50_000);
        let mut looks = 0;
        while !governor
            .choose(&states(), NEVER, MS, 4 * MS, false)
            .stop_tick
        {
            governor.woke(4 * MS, 0);
            governor.tick_woke();
            looks += 1;
            assert!(looks <= INTERVALS, "the tick never stops");
        }
        assert!(looks > 0);
    }
}
