// SPDX-License-Identifier: GPL-2.0-only
//! 5.1: load of tasks and CPUs in 3.8 to 3.10.
//!
//! The load of a task is its weight times the share of time it was runnable (running or waiting), in
//! periods of 1024 us that count half after 32 of them. The speed of the CPU does not enter. A queue sums
//! up the load of its tasks as it was when each was last looked at; tasks that sleep do not count. The
//! 3.9 balancer ignores all this and adds up weights; Shi's set and the proposal use it.

use crate::ids::Nanos;
use crate::policy::fair::pelt::{decay, MAX_SUM};

/// Units of 1024 ns in a period.
const PERIOD: u64 = 1024;
/// The sum after which older periods no longer count (345 of them).
const FULL_PERIODS: u64 = 345;

/// Averages of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TaskLoad {
    /// Time runnable, and time, both decayed.
    sum: u64,
    period: u64,
    /// Units of the current period that have passed.
    filled: u64,
    last: Nanos,
    /// weight * sum / period, as of the last period boundary seen.
    pub contrib: u64,
}

/// 1024 * (y + y^2 + ... + y^n).
fn whole_periods(n: u64) -> u64 {
    let all = MAX_SUM - PERIOD;
    if n >= FULL_PERIODS {
        all
    } else {
        all - decay(all, n)
    }
}

impl TaskLoad {
    /// A new task counts in full.
    pub fn new(now: Nanos, weight: u64) -> Self {
        TaskLoad {
            sum: 0,
            period: 0,
            filled: 0,
            last: now,
            contrib: weight,
        }
    }

    /// Time has passed, during which the task was runnable or not. The load changes only at period
    /// boundaries.
    pub fn update(&mut self, now: Nanos, runnable: bool, weight: u64) {
        let mut delta = now.saturating_sub(self.last) >> 10;
        if delta == 0 {
            return;
        }
        // The remainder below a unit is dropped, as in the kernel.
        self.last = now;
        let crosses = delta + self.filled >= PERIOD;
        let rest = PERIOD - self.filled;
        self.filled = (self.filled + delta) % PERIOD;
        if crosses {
            self.add(rest, runnable);
            delta -= rest;
            let periods = delta / PERIOD;
            delta %= PERIOD;
            self.sum = decay(self.sum, periods + 1);
            self.period = decay(self.period, periods + 1);
            self.add(whole_periods(periods), runnable);
        }
        self.add(delta, runnable);
        if crosses {
            self.contrib = weight * self.sum / (self.period + 1);
        }
    }

    fn add(&mut self, units: u64, runnable: bool) {
        self.period += units;
        if runnable {
            self.sum += units;
        }
    }
}

/// How many load indices there are (`CPU_LOAD_IDX_MAX`).
pub(super) const INDICES: usize = 5;

/// Load of one CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuLoad {
    /// Sum of the contributions of its queued tasks (`cfs.runnable_load_avg`).
    pub runnable: u64,
    /// `cpu_load[]`: the load at ticks, smoothed over 1, 2, 4, 8, 16 of them.
    smooth: [u64; INDICES],
    /// The tick of the last update.
    ticked_at: u64,
}

impl CpuLoad {
    /// `update_cpu_load`: a tick (numbered) sees this load; ticks missed since the last were idle.
    pub fn tick(&mut self, tick: u64, load: u64) {
        let missed = tick.saturating_sub(self.ticked_at).saturating_sub(1);
        self.ticked_at = tick;
        self.smooth[0] = load;
        for i in 1..INDICES {
            let scale = 1u64 << i;
            let mut old = self.smooth[i];
            for _ in 0..missed.min(64) {
                old = old * (scale - 1) / scale;
            }
            // Round up when rising, so that the average can reach the load.
            let rising = if load > old { load + (scale - 1) } else { load };
            self.smooth[i] = (old * (scale - 1) + rising) >> i;
        }
    }

    /// The load as seen by somebody who would pull from here: low when in doubt.
    pub fn source(&self, index: usize, load: u64) -> u64 {
        match index {
            0 => load,
            i => load.min(self.smooth[i - 1]),
        }
    }

    /// The same for somebody who would put a task here: high when in doubt.
    pub fn target(&self, index: usize, load: u64) -> u64 {
        match index {
            0 => load,
            i => load.max(self.smooth[i - 1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    // Goal: the anchors of 5.1: a new task counts in full and a hog keeps that; from nothing, a hog
    // passes 606 after 41.4 periods; sleep halves the load in 32 periods.
    // Method: updates every 1/10 ms or every period.
    #[test]
    fn anchors_of_the_entity_load() {
        let mut hog = TaskLoad::new(0, 1024);
        assert_eq!(hog.contrib, 1024);
        (1..5000).for_each(|i| hog.update(i * MS / 10, true, 1024));
        assert!(hog.contrib >= 1000, "{}", hog.contrib);

        let mut late = TaskLoad {
            period: MAX_SUM,
            contrib: 0,
            ..TaskLoad::new(0, 1024)
        };
        let passes = (1..).find(|period| {
            late.update(period << 20, true, 1024);
            late.contrib > 606
        });
        // 32 * log2(1 / (1 - 606 * 47743 / 1024 / 46718)) = 42.9: a boundary decays what it has seen.
        assert_eq!(passes, Some(43));

        let before = hog.contrib;
        let start = 500 * MS;
        (1..=328).for_each(|i| hog.update(start + i * MS / 10, false, 1024));
        let half = hog.contrib * 2;
        assert!(
            half.abs_diff(before) < before / 20,
            "{} after 32 periods, of {before}",
            hog.contrib
        );
    }

    // Goal: smoothed loads reach a constant load, decay to nothing on an idle CPU, and bias in the right
    // direction.
    // Method: ticks.
    #[test]
    fn smoothed_loads() {
        let mut cpu = CpuLoad::default();
        cpu.tick(1, 1024);
        assert!(cpu.source(2, 1024) < 1024 && cpu.target(2, 0) > 0);
        assert_eq!((cpu.source(0, 7), cpu.target(0, 7)), (7, 7));
        (2..100).for_each(|t| cpu.tick(t, 1024));
        assert_eq!(cpu.source(4, 2000), 1024);
        cpu.tick(200, 0);
        assert!(
            cpu.target(4, 0) < 10,
            "idle ticks were missed: {}",
            cpu.target(4, 0)
        );
    }
}
