// SPDX-License-Identifier: GPL-2.0-only
//! 6.4 and 6.5: statistics of a group of CPUs, and what type of group that makes it.
//!
//! The kernel visits every CPU of the group and reads its averages; so does this, and each one's line is
//! charged, one after the other.

use super::domains::{Domain, Step};
use super::state::{work, Fair};
use crate::host::Host;
use crate::ids::{Cpu, TaskId};

/// What type of group it is, in the order of priority for the balancer (6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupType {
    /// Idle CPUs, or time to spare.
    HasSpare,
    /// Each CPU has work, and no more than it can do.
    FullyBusy,
    /// A task needs a stronger CPU.
    Misfit,
    /// A core with two busy threads, beside cores with none (6.6 and later).
    SmtBalance,
    /// The CPU that balances is preferred to its own (`packing.rs`).
    Packing,
    /// Tasks could not leave because of their affinity.
    Imbalanced,
    /// More work than it can do.
    Overloaded,
}

/// Statistics of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupStats {
    /// Sum of the load averages.
    pub load: u64,
    /// Sum of the utilisations.
    pub util: u64,
    /// Sum of the runnable averages.
    pub runnable: u64,
    /// Tasks queued or running, of all classes.
    pub nr: u64,
    /// Of these, of the fair class.
    pub nr_fair: u64,
    /// CPUs that are idle.
    pub idle_cpus: u64,
    /// CPUs.
    pub weight: u64,
    /// Sum of the capacities.
    pub capacity: u64,
    /// Greatest misfit load.
    pub misfit: u64,
    /// Some CPU has more than one task.
    pub crowded: bool,
    /// `SCHED_IDLE` tasks.
    pub nr_idle_policy: u64,
    /// What that makes it.
    pub kind: GroupType,
    /// Load per capacity, where it matters.
    pub avg_load: u64,
}

impl GroupStats {
    /// Of a group without CPUs.
    pub fn empty() -> GroupStats {
        GroupStats {
            load: 0,
            util: 0,
            runnable: 0,
            nr: 0,
            nr_fair: 0,
            idle_cpus: 0,
            weight: 0,
            capacity: 0,
            misfit: 0,
            crowded: false,
            nr_idle_policy: 0,
            kind: GroupType::HasSpare,
            avg_load: 0,
        }
    }

    /// 6.5: time to spare.
    pub fn has_capacity(&self, pct: u64) -> bool {
        self.nr < self.weight
            || (self.capacity * pct >= self.runnable * 100 && self.capacity * 100 > self.util * pct)
    }

    /// 6.5: more work than it can do.
    pub fn is_overloaded(&self, pct: u64) -> bool {
        self.nr > self.weight
            && (self.util * pct > self.capacity * 100 || self.runnable * 100 > self.capacity * pct)
    }

    /// 6.5: the type.
    pub fn classify(&mut self, pct: u64, imbalanced: bool, smt_balance: bool, packing: bool) {
        self.kind = if self.is_overloaded(pct) {
            GroupType::Overloaded
        } else if imbalanced {
            GroupType::Imbalanced
        } else if packing {
            GroupType::Packing
        } else if smt_balance {
            GroupType::SmtBalance
        } else if self.misfit > 0 {
            GroupType::Misfit
        } else if !self.has_capacity(pct) {
            GroupType::FullyBusy
        } else {
            GroupType::HasSpare
        };
    }

    /// Load by capacity.
    pub fn average_load(&self) -> u64 {
        self.load * 1024 / self.capacity.max(1)
    }
}

/// A domain as one CPU sees it: the statistics of its own group, and of the others in cyclic order from
/// there.
pub(super) struct Groups<'a> {
    domain: &'a Domain,
    local: usize,
}

impl<'a> Groups<'a> {
    pub fn new(domain: &'a Domain, step: Step) -> Self {
        Groups {
            domain,
            local: step.local,
        }
    }

    /// Indices of the groups, the own one first.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        let (n, local) = (self.domain.groups.len(), self.local);
        (0..n).map(move |i| (local + i) % n)
    }
}

impl Fair {
    /// 6.4 `update_sg_wakeup_stats`: a group as it would be without a task.
    pub(super) fn wakeup_stats(
        &self,
        host: &mut Host,
        domain: &Domain,
        index: usize,
        task: TaskId,
    ) -> GroupStats {
        let group = &domain.groups[index];
        let me = self.task(task);
        let mut stats = GroupStats {
            weight: group.cpus.len() as u64,
            capacity: group.capacity,
            ..GroupStats::empty()
        };
        for &cpu in &group.cpus {
            host.scan(self.cpu(cpu).load_line);
            let rq = &self.cpu(cpu).rq;
            stats.load += rq.load_without(me);
            stats.util += rq.util_without(me);
            stats.runnable += rq.runnable_without(me);
            let mine = u64::from(me.on_rq && me.cpu == cpu);
            let nr = u64::from(self.nr_running(cpu)) - mine;
            stats.nr += nr;
            stats.nr_fair += u64::from(rq.nr) - mine;
            let idle = nr == 0 && self.cpu(cpu).pending == 0 && !self.is_leaving(cpu);
            stats.idle_cpus += u64::from(idle);
        }
        if domain.asym && !self.fits(me.util_est(), group.cpus[0]) {
            stats.misfit = 1;
        }
        host.charge(group.cpus.len() as u64 * work::STAT_NS + work::GROUP_NS);
        stats.classify(domain.pct, false, false, false);
        if matches!(stats.kind, GroupType::FullyBusy | GroupType::Overloaded) {
            stats.avg_load = stats.average_load();
        }
        stats
    }

    /// 6.5 `update_sg_lb_stats`: a group for the balancer of an idle or busy CPU, over the CPUs it may consider.
    pub(super) fn balance_stats(
        &self,
        host: &mut Host,
        domain: &Domain,
        place: (usize, usize),
        (dst, idle): (Cpu, bool),
        local: bool,
        consider: impl Fn(Cpu) -> bool,
    ) -> GroupStats {
        let (domain_index, index) = place;
        let group = &domain.groups[index];
        let mut stats = GroupStats {
            weight: group.cpus.len() as u64,
            capacity: group.capacity,
            ..GroupStats::empty()
        };
        for &cpu in group.cpus.iter().filter(|&&cpu| consider(cpu)) {
            host.scan(self.cpu(cpu).load_line);
            let state = self.cpu(cpu);
            stats.load += state.rq.avg.load;
            stats.util += state.rq.util();
            stats.runnable += state.rq.avg.runnable;
            let nr = u64::from(self.nr_running(cpu));
            stats.nr += nr;
            stats.nr_fair += u64::from(state.rq.nr);
            stats.nr_idle_policy += u64::from(state.rq.nr_idle_policy);
            stats.crowded |= nr > 1;
            stats.idle_cpus += u64::from(self.is_idle(cpu));
            if domain.asym && !local {
                stats.misfit = stats.misfit.max(state.misfit);
            }
        }
        host.charge(group.cpus.len() as u64 * work::STAT_NS + work::GROUP_NS);
        let imbalanced = self.imbalanced[domain_index][index];
        let gives = !local && idle;
        let smt = self.cfg.smt_balance && gives && group.is_smt && stats.nr_fair > 1;
        let packing = gives && self.group_packs(domain, dst, group, &stats);
        stats.classify(domain.pct, imbalanced, smt, packing);
        if stats.kind == GroupType::Overloaded {
            stats.avg_load = stats.average_load();
        }
        stats
    }
}
