// SPDX-License-Identifier: GPL-2.0-only
//! Per-entity load tracking (mechanisms 5.1, "Modern PELT"): geometric averages in integers.
//!
//! Time is cut into periods of 1024 units of 1024 ns (about 1 ms). What was true during a period
//! counts with weight y^n, n periods later, where y^32 = 1/2. A signal that is always true sums to
//! [`MAX_SUM`]. Three signals are kept for a task as well as for a run queue:
//!
//! - `load`: weight times the share of time runnable; for a queue, the sum over its tasks, blocked ones
//!   included while they decay;
//! - `runnable`: 1024 times the share of time runnable (for a queue: times the number runnable);
//! - `util`: 1024 times the share of time running.
//!
//! ```
//! use usher_sim::policy::fair::pelt::{Avg, MAX_SUM};
//! let mut avg = Avg::default();
//! avg.update(500_000_000, 1, 1, true); // half a second of running
//! avg.settle(1024);
//! assert!(avg.util > 1000 && avg.load > 1000);
//! ```

use std::sync::LazyLock;

use crate::ids::Nanos;

/// What an always-true signal sums to: the limit of 1024 * (1 + y + y^2 + ...) in integers, as the
/// kernel's tables have it.
pub const MAX_SUM: u64 = 47_742;

/// Periods after which half is left.
pub const HALF_LIFE: u64 = 32;

/// Periods after which nothing is left.
const GONE: u64 = HALF_LIFE * 63;

/// Units of 1024 ns in a period.
const PERIOD: u64 = 1024;

/// y^n for n < 32 as the kernel's table has it: (2^32 - 1) * y^n, rounded down.
static POWERS: LazyLock<[u64; 32]> = LazyLock::new(|| {
    // 2^(-1/32) is 1/2 with the square root taken five times; 62 fraction bits.
    let root = |x: u128| {
        let mut bit = 1u128 << 62;
        let mut r = 0u128;
        while bit != 0 {
            if (r | bit) * (r | bit) <= x << 62 {
                r |= bit;
            }
            bit >>= 1;
        }
        r
    };
    let y = (0..5).fold(1u128 << 61, |x, _| root(x));
    let mut power = 1u128 << 62;
    std::array::from_fn(|_| {
        let this = ((power * u128::from(u32::MAX)) >> 62) as u64;
        power = (power * y) >> 62;
        this
    })
});

/// `value` after `periods` of decay.
pub fn decay(value: u64, periods: u64) -> u64 {
    if periods > GONE {
        return 0;
    }
    let value = value >> (periods / HALF_LIFE);
    ((u128::from(value) * u128::from(POWERS[(periods % HALF_LIFE) as usize])) >> 32) as u64
}

/// The averages of a task or of a run queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Avg {
    /// Up to when it is accounted, ns of the queue's PELT clock, a multiple of 1024 after the first.
    pub updated: Nanos,
    /// Sum of the load signal: for a task of "runnable", for a queue of the weight.
    pub load_sum: u64,
    /// Sum of the runnable signal, 10 fraction bits.
    pub runnable_sum: u64,
    /// Sum of the running signal, 10 fraction bits.
    pub util_sum: u64,
    /// Units of the current period that are in the sums.
    pub contrib: u64,
    /// Average load.
    pub load: u64,
    /// Average runnable.
    pub runnable: u64,
    /// Average utilisation, 0 to 1024 for a task.
    pub util: u64,
}

impl Avg {
    /// What the sums of an always-true signal would be now.
    #[inline]
    pub fn divider(&self) -> u64 {
        MAX_SUM - PERIOD + self.contrib
    }

    /// Accounts the time up to `now`, during which the load signal was `load` (a task: 0 or 1; a queue:
    /// its weight), `runnable` tasks could run and one ran or not. Returns whether a period ended, which
    /// is when the averages want [`Avg::settle`].
    #[inline]
    pub fn update(&mut self, now: Nanos, load: u64, runnable: u64, running: bool) -> bool {
        let delta = now.saturating_sub(self.updated) >> 10;
        if delta == 0 {
            return false;
        }
        self.updated += delta << 10;
        self.accumulate(delta, load, runnable, running)
    }

    fn accumulate(&mut self, mut delta: u64, load: u64, runnable: u64, running: bool) -> bool {
        let mut gain = delta; // how much an always-true signal adds
        delta += self.contrib;
        let periods = delta / PERIOD;
        if periods > 0 {
            self.load_sum = decay(self.load_sum, periods);
            self.runnable_sum = decay(self.runnable_sum, periods);
            self.util_sum = decay(self.util_sum, periods);
            delta %= PERIOD;
            if load | runnable != 0 || running {
                gain = Self::segments(PERIOD - self.contrib, periods, delta);
            }
        }
        self.contrib = delta;
        self.load_sum += load * gain;
        self.runnable_sum += (runnable * gain) << 10;
        if running {
            self.util_sum += gain << 10;
        }
        periods > 0
    }

    /// The rest of the period that was under way, the full periods since, and the beginning of this one.
    fn segments(first: u64, periods: u64, last: u64) -> u64 {
        decay(first, periods) + (MAX_SUM - decay(MAX_SUM, periods) - PERIOD) + last
    }

    /// Recomputes the averages from the sums. `weight` is the task's; 1 for a queue, whose sum has the
    /// weights in it.
    #[inline]
    pub fn settle(&mut self, weight: u64) {
        let divider = self.divider();
        self.load = weight * self.load_sum / divider;
        self.runnable = self.runnable_sum / divider;
        self.util = self.util_sum / divider;
    }

    /// Adds a task's averages to this queue's. The task takes over the queue's position in time.
    pub fn attach(&mut self, task: &mut Avg, weight: u64) {
        let divider = self.divider();
        task.updated = self.updated;
        task.contrib = self.contrib;
        task.util_sum = task.util * divider;
        task.runnable_sum = task.runnable * divider;
        task.load_sum = task.load * divider / weight.max(1);
        self.load += task.load;
        self.load_sum += task.load_sum * weight;
        self.runnable += task.runnable;
        self.runnable_sum += task.runnable_sum;
        self.util += task.util;
        self.util_sum += task.util_sum;
    }

    /// Takes a task's averages out of this queue's again. Rounding may have left the queue with less
    /// than the task; then nothing is left of that signal, and never less than nothing.
    pub fn detach(&mut self, task: &Avg, weight: u64) {
        // A sum below its average times the smallest divider would make the average jump at the next
        // update.
        let floor = MAX_SUM - PERIOD;
        self.load = self.load.saturating_sub(task.load);
        self.load_sum = self
            .load_sum
            .saturating_sub(task.load_sum * weight)
            .max(self.load * floor);
        self.runnable = self.runnable.saturating_sub(task.runnable);
        self.runnable_sum = self
            .runnable_sum
            .saturating_sub(task.runnable_sum)
            .max(self.runnable * floor);
        self.util = self.util.saturating_sub(task.util);
        self.util_sum = self
            .util_sum
            .saturating_sub(task.util_sum)
            .max(self.util * floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ns in a period.
    const MS: Nanos = 1024 * 1024;

    // Goal: the decay table is y^n with y^32 = 1/2.
    // Method: the published first entries of the kernel's table, the half-life, and monotony.
    #[test]
    fn decay_halves_in_32_periods() {
        assert_eq!(
            POWERS[..4],
            [0xffff_ffff, 0xfa83_b2da, 0xf525_7d14, 0xefe4_b99a]
        );
        assert_eq!(decay(1 << 40, 32), decay(1 << 39, 0));
        assert_eq!(decay(1000, 64), 249);
        assert!((0..100).all(|n| decay(1 << 50, n + 1) < decay(1 << 50, n)));
        assert_eq!(decay(u64::MAX, GONE + 1), 0);
    }

    // Goal: an always-true signal converges to the limit, and not beyond.
    // Method: two seconds in uneven steps; the averages must reach 1024 and the weight within 0.5 %.
    #[test]
    fn always_running_converges() {
        let mut avg = Avg::default();
        let mut now = 0;
        while now < 2_000_000_000 {
            now += 777_777;
            avg.update(now, 1, 1, true);
        }
        avg.settle(335);
        assert!((1019..=1024).contains(&avg.util), "{avg:?}");
        assert!((1019..=1024).contains(&avg.runnable), "{avg:?}");
        assert!((333..=335).contains(&avg.load), "{avg:?}");
        assert!(avg.load_sum <= MAX_SUM, "{avg:?}");
    }

    // Goal: load grows as mechanisms 5.1 computes: from zero, always runnable, it passes 606 of 1024
    // after 41.4 ms.
    // Method: steps of one period; the period in which 606 is passed must be the 41st or 42nd ms.
    #[test]
    fn load_passes_606_after_41_ms() {
        let mut avg = Avg::default();
        let mut now = 0;
        while avg.load <= 606 {
            now += MS / 8;
            avg.update(now, 1, 1, true);
            avg.settle(1024);
        }
        assert!((41_000_000..44_000_000).contains(&now), "{now}");
    }

    // Goal: what is accounted does not depend on how often it is accounted.
    // Method: the same pattern of running and sleeping, in one step per phase and in many.
    #[test]
    fn many_small_updates_equal_one() {
        let (mut coarse, mut fine) = (Avg::default(), Avg::default());
        let mut now = 0;
        for phase in 0..50u64 {
            let (end, on) = (now + 1024 * (700 + phase * 131), phase % 2 == 0);
            coarse.update(end, on.into(), on.into(), on);
            while now < end {
                now += 1024 * 100.min((end - now) / 1024);
                fine.update(now, on.into(), on.into(), on);
            }
        }
        coarse.settle(1024);
        fine.settle(1024);
        assert!(coarse.util.abs_diff(fine.util) <= 2, "{coarse:?} {fine:?}");
        assert!(coarse.util > 300 && coarse.util < 700, "{coarse:?}");
    }

    // Goal: attach and detach are inverse, and a queue's average is the sum of its tasks'.
    // Method: a half-idle queue takes in and gives back two tasks of different weight.
    #[test]
    fn attach_then_detach_leaves_the_queue_as_it_was() {
        let mut queue = Avg::default();
        queue.update(30 * MS + 5000, 1024, 1, true);
        queue.update(50 * MS + 5000, 0, 0, false);
        queue.settle(1);
        let before = queue;
        let mut tasks = [(1024, 512), (335, 1024)].map(|(weight, level)| {
            let avg = Avg {
                load: weight * level / 1024,
                runnable: level,
                util: level,
                ..Avg::default()
            };
            (weight, avg)
        });
        for (weight, task) in &mut tasks {
            queue.attach(task, *weight);
        }
        assert_eq!(queue.util, before.util + 512 + 1024);
        assert_eq!(queue.load, before.load + 512 + 335);
        queue.settle(1);
        assert!(
            queue.util.abs_diff(before.util + 1536) <= 2,
            "sums and averages agree"
        );
        for (weight, task) in &tasks {
            queue.detach(task, *weight);
        }
        queue.settle(1);
        assert!(queue.util.abs_diff(before.util) <= 2 && queue.load.abs_diff(before.load) <= 2);
    }
}
