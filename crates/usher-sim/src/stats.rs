// SPDX-License-Identifier: GPL-2.0-only
//! What the engine counts.

use crate::ids::Nanos;
use crate::machine::Distance;
use crate::metrics::{new_latency, Latency};

/// Loads of a word of a policy's shared data.
#[derive(Clone, Debug, Default)]
pub(crate) struct WordStats {
    pub name: String,
    /// Loads and atomic operations.
    pub loads: u64,
    /// Their time, waiting included.
    pub load_ns: Nanos,
}

/// Counters of a run since the measurement began.
#[derive(Debug)]
pub struct Stats {
    /// When the measurement began.
    pub(crate) since: Nanos,
    /// Events handled, since the start of the run.
    pub(crate) events: u64,
    /// Context switches to another task.
    pub(crate) switches: u64,
    /// Of these, from a task that was still runnable.
    pub(crate) preemptions: u64,
    /// Starts of a task on a CPU that ran nothing.
    pub(crate) starts_from_idle: u64,
    /// Wakeups, those that found the task still running, and those handed to the CPU that was still switching away from it.
    pub(crate) wakes: u64,
    pub(crate) wakes_on_cpu: u64,
    pub(crate) wakes_leaving: u64,
    pub(crate) forks: u64,
    /// Wakeups placed on a CPU that was idle.
    pub(crate) wakes_idle: u64,
    /// From wakeup to running.
    pub(crate) wake_latency: Latency,
    /// Starts of a task on another CPU than before, by distance.
    pub(crate) migrations: [u64; Distance::COUNT],
    pub(crate) ipis: [u64; Distance::COUNT],
    pub(crate) poll_wakes: u64,
    pub(crate) ticks: u64,
    pub(crate) ticks_idle: u64,
    pub(crate) ticks_stopped: u64,
    /// Where the time of all CPUs went.
    pub(crate) user_ns: Nanos,
    pub(crate) kernel_ns: Nanos,
    pub(crate) idle_ns: Nanos,
    pub(crate) exiting_ns: Nanos,
    pub(crate) idle_state_ns: Vec<Nanos>,
    pub(crate) tier_busy_ns: Vec<Nanos>,
    /// By tier, and in that by idle state.
    pub(crate) tier_idle_ns: Vec<Vec<Nanos>>,
    /// Where clocks fall: what cores were busy, and that at full speed.
    pub(crate) core_busy_ns: Nanos,
    pub(crate) core_clock_ns: Nanos,
    /// Part of the kernel's time that the policy charged.
    pub(crate) policy_ns: Nanos,
    /// Part of user time that refilled caches.
    pub(crate) refill_ns: Nanos,
    pub(crate) searches: u64,
    pub(crate) searches_failed: u64,
    pub(crate) search_probes: u64,
    pub(crate) search_ns: Nanos,
    pub(crate) reasons: Vec<u64>,
    pub(crate) policy: Vec<(String, u64)>,
    pub(crate) words: Vec<WordStats>,
}

impl Stats {
    pub(crate) fn new(idle_states: usize, tiers: usize, reasons: usize) -> Stats {
        Stats {
            since: 0,
            events: 0,
            switches: 0,
            preemptions: 0,
            starts_from_idle: 0,
            wakes: 0,
            wakes_on_cpu: 0,
            wakes_leaving: 0,
            forks: 0,
            wakes_idle: 0,
            wake_latency: new_latency(),
            migrations: [0; Distance::COUNT],
            ipis: [0; Distance::COUNT],
            poll_wakes: 0,
            ticks: 0,
            ticks_idle: 0,
            ticks_stopped: 0,
            user_ns: 0,
            kernel_ns: 0,
            idle_ns: 0,
            exiting_ns: 0,
            idle_state_ns: vec![0; idle_states],
            tier_busy_ns: vec![0; tiers],
            tier_idle_ns: vec![vec![0; idle_states]; tiers],
            core_busy_ns: 0,
            core_clock_ns: 0,
            policy_ns: 0,
            refill_ns: 0,
            searches: 0,
            searches_failed: 0,
            search_probes: 0,
            search_ns: 0,
            reasons: vec![0; reasons],
            policy: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Starts again from zero at `now`; the names of the policy's counters and words stay.
    pub(crate) fn reset(&mut self, now: Nanos) {
        let sizes = (
            self.idle_state_ns.len(),
            self.tier_busy_ns.len(),
            self.reasons.len(),
        );
        let (events, mut policy) = (self.events, std::mem::take(&mut self.policy));
        policy.iter_mut().for_each(|(_, n)| *n = 0);
        let mut words = std::mem::take(&mut self.words);
        for word in &mut words {
            (word.loads, word.load_ns) = (0, 0);
        }
        *self = Stats::new(sizes.0, sizes.1, sizes.2);
        (self.since, self.events) = (now, events);
        (self.policy, self.words) = (policy, words);
    }
}
