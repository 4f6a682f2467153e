// SPDX-License-Identifier: GPL-2.0-only
//! What differs between the kernel versions that are modelled, and the constants they share.
//!
//! One struct per version instead of one copy of the code per version: a rule that changed reads a
//! field here, and the field's comment says when it changed. Times are those of mechanisms 6.

use crate::ids::Nanos;

/// Milliseconds in nanoseconds.
pub const MS: Nanos = 1_000_000;

/// How a CPU chooses among its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Least virtual runtime, with buddies (6.1).
    Cfs(CfsTimes),
    /// Earliest eligible virtual deadline (6.2).
    Eevdf(EevdfTimes),
}

/// 6.1, for one CPU; [`CfsTimes::scaled`] multiplies by the factor F of the machine's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfsTimes {
    /// `sched_latency`: every runnable task runs once in this time while there are few.
    pub latency_ns: Nanos,
    /// `sched_min_granularity`.
    pub min_granularity_ns: Nanos,
    /// `sched_wakeup_granularity`.
    pub wakeup_granularity_ns: Nanos,
    /// With more tasks than this the period grows, and buddies of preempted tasks count.
    pub nr_latency: u64,
    /// A slice is never shorter than the minimum granularity (5.10.y and later).
    pub slice_floor: bool,
    /// Who wakes may end the current task's turn.
    pub wakeup_preemption: bool,
    /// Values given by the user, which the machine's size does not scale.
    pub fixed_latency_ns: Option<Nanos>,
    /// See `fixed_latency_ns`.
    pub fixed_min_granularity_ns: Option<Nanos>,
    /// See `fixed_latency_ns`.
    pub fixed_wakeup_granularity_ns: Option<Nanos>,
}

/// 6.2, for one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EevdfTimes {
    /// `sched_base_slice`.
    pub slice_ns: Nanos,
    /// The current task keeps running until its deadline while it is eligible.
    pub run_to_parity: bool,
    /// A task that sleeps while it has had more than its share stays queued until it is picked (6.12).
    pub delay_dequeue: bool,
    /// A task with a shorter slice may preempt in spite of `run_to_parity` (6.12).
    pub preempt_short: bool,
    /// Who wakes may end the current task's turn.
    pub wakeup_preemption: bool,
    /// A slice given by the user, which the machine's size does not scale.
    pub fixed_slice_ns: Option<Nanos>,
}

/// F = 1 + floor(log2(min(ncpu, 8))) of 6.1: how much the times grow with the machine.
pub fn factor(nr_cpus: usize) -> u64 {
    1 + u64::from((nr_cpus.clamp(1, 8) as u64).ilog2())
}

impl CfsTimes {
    /// 6.1 for one CPU.
    pub const BASE: CfsTimes = CfsTimes {
        latency_ns: 6 * MS,
        min_granularity_ns: 750_000,
        wakeup_granularity_ns: MS,
        nr_latency: 8,
        slice_floor: true,
        wakeup_preemption: true,
        fixed_latency_ns: None,
        fixed_min_granularity_ns: None,
        fixed_wakeup_granularity_ns: None,
    };

    /// For a machine of this size.
    pub fn scaled(self, nr_cpus: usize) -> CfsTimes {
        let f = factor(nr_cpus);
        CfsTimes {
            latency_ns: self.fixed_latency_ns.unwrap_or(self.latency_ns * f),
            min_granularity_ns: self
                .fixed_min_granularity_ns
                .unwrap_or(self.min_granularity_ns * f),
            wakeup_granularity_ns: self
                .fixed_wakeup_granularity_ns
                .unwrap_or(self.wakeup_granularity_ns * f),
            ..self
        }
    }
}

impl EevdfTimes {
    /// 6.2 (6.12) for one CPU.
    pub const BASE: EevdfTimes = EevdfTimes {
        slice_ns: 700_000,
        run_to_parity: true,
        delay_dequeue: true,
        preempt_short: true,
        wakeup_preemption: true,
        fixed_slice_ns: None,
    };

    /// For a machine of this size.
    pub fn scaled(self, nr_cpus: usize) -> EevdfTimes {
        let slice_ns = self
            .fixed_slice_ns
            .unwrap_or(self.slice_ns * factor(nr_cpus));
        EevdfTimes { slice_ns, ..self }
    }
}

/// How far the wakeup search goes (6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchBudget {
    /// `SIS_PROP`, up to 5.19: in proportion to the waker CPU's average idle time.
    Prop,
    /// `SIS_UTIL`, 6.0 and later: by the LLC's utilisation.
    Util,
}

/// When a new task stays on a NUMA node in spite of more idle CPUs elsewhere (6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumaFork {
    /// 5.9 and 5.10: as long as one CPU of the node is idle.
    AnyIdle,
    /// 5.19 and later: as long as no more than `imb_numa_nr` tasks run there and the gap is at most 2.
    Imbalance,
}

/// When a CPU that runs out of work looks for some elsewhere (6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewidleGate {
    /// 5.9: when its idle periods are at least as long as a migration costs, 0.5 ms.
    MigrationCost,
    /// 6.x: when they are longer than the search in the lowest domain took.
    DomainCost,
}

/// Proposal 0 (mechanisms 1): the idle CPU mask per LLC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LlcMask {
    /// The baseline.
    #[default]
    Off,
    /// v2: set when the tick stops, cleared at the first busy tick.
    TickStop,
    /// v3 and v6 to v8: set at every idle entry, cleared at the first busy tick that finds more than
    /// `SCHED_IDLE` tasks.
    IdleEntry,
    /// As `IdleEntry`, and who takes a CPU clears its bit at once (1.6, "optional exclusive claim").
    Claim,
}

/// Proposal 1 (mechanisms 2): which parts of it are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// 2.2: the fork rules.
    pub fork: bool,
    /// 2.3: the wakeup rules.
    pub wake: bool,
    /// 2.4: the balancer's exception.
    pub balance: bool,
}

/// A kernel version, with the constants of mechanisms 6.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the policy, switches included.
    pub name: String,
    /// How a CPU chooses among its tasks; still to be scaled by the machine's size.
    pub class: Class,

    /// 6.3: budget of the wakeup search.
    pub search: SearchBudget,
    /// 6.3 `wake_affine`: an idle `prev` wins if the waker's CPU is no choice (5.15).
    pub wake_prev_idle: bool,
    /// 6.3: the search is one pass, for a core or a CPU, starting at target + 1, after the siblings of
    /// `prev` (5.12 to 5.14). Before: a pass for cores from target, a pass for CPUs, then target's siblings.
    pub one_pass: bool,
    /// 6.3: the CPUs that share target's L2 come first (6.8).
    pub cluster_first: bool,
    /// 6.3: wakeups on an idle CPU of the same LLC are queued, too (6.0).
    pub queue_to_idle: bool,

    /// 6.4: when a new task stays on its node.
    pub numa_fork: NumaFork,
    /// 6.7: the balancer tolerates `imb_numa_nr` tasks (5.18). Before: two.
    pub numa_imbalance: bool,

    /// 6.5: `imbalance_pct` above the LLC.
    pub pct_above_llc: u64,
    /// 6.5: how much longer a busy CPU waits between balancing.
    pub busy_factor: u64,
    /// 6.5: a busy CPU's intervals are a jiffy short of that, so that those of one domain are no multiples of another's
    /// (5.10).
    pub busy_less_a_jiffy: bool,
    /// 6.5: a task's utilisation counts for less after each failure, as its load does (6.8).
    pub failures_shrink_util: bool,
    /// 6.5: the cap of the average idle time follows the costs of searches when that of the last domain looked at was decayed
    /// (5.16), not that of any.
    pub last_domain_forgets: bool,
    /// 6.5: when newly idle CPUs look for work.
    pub newidle_gate: NewidleGate,
    /// 6.2, 7.x deltas and 6.12 LTS: newly idle CPUs look at a domain at random, in proportion to how
    /// often that succeeded.
    pub newidle_dice: bool,
    /// 6.5: a newly idle CPU takes one task and runs it, instead of all that the imbalance asks for. Only of kernels with
    /// `CONFIG_PREEMPTION`: by default those with `PREEMPT_DYNAMIC` (5.12 and later), not the `PREEMPT_VOLUNTARY` of servers before.
    pub newidle_takes_one: bool,
    /// 6.5: a CPU that a wakeup is on its way to does not look for other work (5.14, within a search 6.0).
    pub newidle_heeds_wakeups: bool,
    /// 6.5: idle CPUs are balanced as soon as one of them is due, also one that went idle since they last were
    /// (5.15).
    pub nohz_update: bool,
    /// A CPU whose core is otherwise busy leaves balancing above its core to one of an idle core (6.6).
    pub idle_core_balances: bool,
    /// 6.5: after enough failures of any kind the running task is pushed away, and the next attempt is
    /// later (up to 5.11). Since then: only if the imbalance is one of tasks.
    pub active_any: bool,
    /// Siblings are preferred by tasks per core, not by tasks (6.6).
    pub sibling_by_core: bool,
    /// Cores with two busy threads are a class of their own above "fully busy" (6.6).
    pub smt_balance: bool,

    /// `sched_migration_cost`: a task that ran more recently is cache-hot (6.5).
    pub migration_cost_ns: Nanos,
    /// `sched_nr_migrate`: most tasks one balancing moves (6.5).
    pub nr_migrate: u32,

    /// Proposal 0.
    pub llc_mask: LlcMask,
    /// Proposal 1.
    pub hints: Hints,
}

impl Config {
    /// `cfs-5.9`.
    pub fn cfs59() -> Config {
        Config {
            name: "cfs-5.9".into(),
            class: Class::Cfs(CfsTimes::BASE),
            search: SearchBudget::Prop,
            wake_prev_idle: false,
            one_pass: false,
            cluster_first: false,
            queue_to_idle: false,
            numa_fork: NumaFork::AnyIdle,
            numa_imbalance: false,
            pct_above_llc: 125,
            busy_factor: 32,
            busy_less_a_jiffy: false,
            failures_shrink_util: false,
            last_domain_forgets: false,
            newidle_gate: NewidleGate::MigrationCost,
            newidle_dice: false,
            newidle_takes_one: false,
            newidle_heeds_wakeups: false,
            nohz_update: false,
            idle_core_balances: false,
            active_any: true,
            sibling_by_core: false,
            smt_balance: false,
            migration_cost_ns: 500_000,
            nr_migrate: 32,
            llc_mask: LlcMask::Off,
            hints: Hints::default(),
        }
    }

    /// `cfs-6.0`.
    pub fn cfs60() -> Config {
        Config {
            name: "cfs-6.0".into(),
            search: SearchBudget::Util,
            wake_prev_idle: true,
            one_pass: true,
            queue_to_idle: true,
            numa_fork: NumaFork::Imbalance,
            numa_imbalance: true,
            pct_above_llc: 117,
            busy_factor: 16,
            busy_less_a_jiffy: true,
            last_domain_forgets: true,
            newidle_gate: NewidleGate::DomainCost,
            newidle_takes_one: true,
            newidle_heeds_wakeups: true,
            nohz_update: true,
            active_any: false,
            ..Config::cfs59()
        }
    }

    /// `eevdf`: 6.12.
    pub fn eevdf() -> Config {
        Config {
            name: "eevdf".into(),
            class: Class::Eevdf(EevdfTimes::BASE),
            cluster_first: true,
            failures_shrink_util: true,
            newidle_dice: true,
            idle_core_balances: true,
            sibling_by_core: true,
            smt_balance: true,
            ..Config::cfs60()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the times of 6.1 and 6.2 on machines of all sizes.
    // Method: F is 4 on 8 or more CPUs; the products are the constants stated there.
    #[test]
    fn times_scale_with_the_machine() {
        assert_eq!(
            [1, 2, 3, 4, 7, 8, 9, 4096].map(factor),
            [1, 2, 2, 3, 3, 4, 4, 4]
        );
        let cfs = CfsTimes::BASE.scaled(192);
        assert_eq!(
            (
                cfs.latency_ns,
                cfs.min_granularity_ns,
                cfs.wakeup_granularity_ns
            ),
            (24 * MS, 3 * MS, 4 * MS)
        );
        assert_eq!(EevdfTimes::BASE.scaled(16).slice_ns, 2_800_000);
    }
}
