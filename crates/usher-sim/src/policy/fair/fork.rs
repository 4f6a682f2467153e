// SPDX-License-Identifier: GPL-2.0-only
//! 6.4: the slow path, which finds the idlest place for a new task or a new image.
//!
//! 1. From the highest domain down: compare the own group with the idlest other one.
//! 2. Stay, and go one level down; or go to the idlest group, find its best CPU, and go on in the domains
//!    below of that CPU.
//! 3. Proposal 1: among groups with time to spare, a hint decides (2.2).

use std::sync::Arc;

use super::config::NumaFork;
use super::domains::{Domain, Step};
use super::reason::Reason;
use super::state::{work, Fair};
use super::stats::{GroupStats, GroupType, Groups};
use crate::host::Host;
use crate::ids::{Cpu, Id, Nanos, TaskId};
use crate::policy::{WakeInfo, WakeKind};
use crate::program::Hint;

impl Fair {
    /// 6.4 `find_idlest_cpu`: fork and exec.
    pub(super) fn select_fork(&mut self, host: &mut Host, wake: &WakeInfo) -> (Cpu, Reason) {
        host.charge(work::SELECT_NS);
        let domains = Arc::clone(&self.domains);
        let fork = wake.kind == WakeKind::Fork;
        let mut cpu = if fork { wake.waker_cpu } else { wake.prev };
        let mut new = cpu;
        // The highest domain with the flag; above the reclaim distance there is none.
        let mut place = self.highest_near(cpu);
        while let Some(at) = place {
            let (domain, step) = domains.at(cpu, at);
            let idlest = self.find_idlest_group(host, domain, step, wake.task, cpu);
            let found =
                idlest.map(|g| self.find_idlest_cpu(host, &domain.groups[g].cpus, wake.task, cpu));
            match found {
                Some(better) if better != cpu => {
                    (cpu, new) = (better, better);
                    place = self.highest_below(cpu, domain.weight());
                }
                _ => place = at.checked_sub(1),
            }
        }
        let reason = match (fork, self.is_idle(new)) {
            (false, _) => Reason::Exec,
            (true, true) => Reason::ForkIdle,
            (true, false) => Reason::ForkBusy,
        };
        (new, reason)
    }

    fn highest_near(&self, cpu: Cpu) -> Option<usize> {
        let chain = &self.domains.chain[cpu.index()];
        (0..chain.len())
            .rev()
            .find(|&place| self.domains.at(cpu, place).0.near)
    }

    /// The highest domain of a CPU with less weight than the one that was searched.
    fn highest_below(&self, cpu: Cpu, weight: u64) -> Option<usize> {
        let chain = &self.domains.chain[cpu.index()];
        (0..chain.len()).rev().find(|&place| {
            let domain = self.domains.at(cpu, place).0;
            domain.near && domain.weight() < weight
        })
    }

    /// 6.4 `find_idlest_group`: the group to go to; `None` to stay.
    fn find_idlest_group(
        &mut self,
        host: &mut Host,
        domain: &Domain,
        step: Step,
        task: TaskId,
        this: Cpu,
    ) -> Option<usize> {
        let mut local = None;
        let mut idlest: Option<(usize, GroupStats)> = None;
        for index in Groups::new(domain, step).order() {
            let group = &domain.groups[index];
            if !group.set.intersects(host.task(task).allowed()) {
                continue;
            }
            let stats = self.wakeup_stats(host, domain, index, task);
            if group.set.contains(this) {
                local = Some(stats);
            } else if idlest.as_ref().is_none_or(|(best, s)| {
                let most = |i: usize| domain.groups[i].max_capacity;
                is_idler(&stats, s, most(index) > most(*best))
            }) {
                idlest = Some((index, stats));
            }
        }
        let (index, other) = idlest?;
        // The own group may be out of bounds for the task.
        let Some(local) = local else {
            return Some(index);
        };
        let go = match local.kind.cmp(&other.kind) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => {
                self.goes_to_equal(host, domain, step, task, (&local, &other, index))
            }
        };
        go.then_some(index)
    }

    /// 6.4: both groups are of the same type: whether to go to the other one.
    fn goes_to_equal(
        &mut self,
        host: &mut Host,
        domain: &Domain,
        step: Step,
        task: TaskId,
        (local, other, index): (&GroupStats, &GroupStats, usize),
    ) -> bool {
        match local.kind {
            GroupType::Overloaded | GroupType::FullyBusy => {
                let margin = 1024 * (domain.pct - 100) / 100;
                let far = domain.numa && other.avg_load + margin >= local.avg_load;
                !(far
                    || other.avg_load >= local.avg_load + margin
                    || 100 * local.avg_load <= domain.pct * other.avg_load)
            }
            GroupType::Misfit => {
                domain.groups[step.local].max_capacity < domain.groups[index].max_capacity
            }
            GroupType::HasSpare => self.goes_to_spare(host, domain, step, task, (local, other)),
            GroupType::SmtBalance | GroupType::Packing | GroupType::Imbalanced => false,
        }
    }

    /// 6.4: both groups have time to spare.
    fn goes_to_spare(
        &mut self,
        host: &mut Host,
        domain: &Domain,
        step: Step,
        task: TaskId,
        (local, other): (&GroupStats, &GroupStats),
    ) -> bool {
        // 2.2: fork hints.
        let hint = if self.cfg.hints.fork {
            host.task(task).hint()
        } else {
            Hint::NONE
        };
        let (affine, spread) = (hint.has(Hint::FORK_AFFINE), hint.has(Hint::FORK_SPREAD));
        if domain.numa
            && !affine
            && !spread
            && self.numa_keeps(host, domain, step, task, local, other)
        {
            return false;
        }
        if affine && local.idle_cpus > local.weight / 2 {
            host.count(self.counters.hint_fork, 1);
            return false;
        }
        match local.idle_cpus.cmp(&other.idle_cpus) {
            std::cmp::Ordering::Greater => false,
            // 2.2: with SPREAD the remembered utilisation breaks ties.
            std::cmp::Ordering::Equal => spread && local.util > other.util,
            std::cmp::Ordering::Less => true,
        }
    }

    /// 6.4: the NUMA rule. (5.19's preferred node needs NUMA balancing, which is not modelled.)
    fn numa_keeps(
        &self,
        host: &Host,
        domain: &Domain,
        step: Step,
        task: TaskId,
        local: &GroupStats,
        other: &GroupStats,
    ) -> bool {
        match self.cfg.numa_fork {
            NumaFork::AnyIdle => local.idle_cpus > 0,
            NumaFork::Imbalance => {
                let allowed = host.task(task).allowed();
                let usable = domain.groups[step.local]
                    .cpus
                    .iter()
                    .filter(|&&c| allowed.contains(c));
                let limit = domain.imb_numa_nr.min(usable.count() as u64);
                let gap = local.idle_cpus.abs_diff(other.idle_cpus);
                numa_imbalance(gap, local.nr + 1, limit) == 0
            }
        }
    }

    /// 6.4, inside the group: a CPU with only SCHED_IDLE work; else the idle CPU of the shallowest idle
    /// state, of these the one most recently idle; else the least loaded.
    fn find_idlest_cpu(&self, host: &mut Host, group: &[Cpu], task: TaskId, this: Cpu) -> Cpu {
        if let [only] = group {
            return *only;
        }
        let mut shallowest: Option<(Nanos, Nanos, Cpu)> = None;
        let mut least: Option<(u64, Cpu)> = None;
        for &cpu in group {
            if !host.task(task).may_run_on(cpu) {
                continue;
            }
            self.glance(host, cpu);
            if self.only_idle_policy(cpu) {
                return cpu;
            }
            if self.is_idle(cpu) {
                let (exit, since) = (host.idle_exit_ns(cpu), self.cpu(cpu).idle_stamp);
                let better =
                    shallowest.is_none_or(|(e, s, _)| exit < e || (exit == e && since > s));
                if better {
                    shallowest = Some((exit, since, cpu));
                }
            } else if shallowest.is_none() {
                let load = self.cpu(cpu).rq.avg.load;
                if least.is_none_or(|(l, _)| load < l) {
                    least = Some((load, cpu));
                }
            }
        }
        shallowest
            .map(|(_, _, cpu)| cpu)
            .or(least.map(|(_, cpu)| cpu))
            .unwrap_or(this)
    }
}

/// 6.4, 6.7: how much of an imbalance counts at a NUMA level: none while few tasks run at the destination
/// and the gap is at most 2.
pub(super) fn numa_imbalance(gap: u64, running_there: u64, imb_numa_nr: u64) -> u64 {
    if running_there <= imb_numa_nr && gap <= 2 {
        0
    } else {
        gap
    }
}

/// 6.4 `update_pick_idlest`: whether a group is idler than the idlest so far.
fn is_idler(stats: &GroupStats, best: &GroupStats, stronger: bool) -> bool {
    if stats.kind != best.kind {
        return stats.kind < best.kind;
    }
    match stats.kind {
        GroupType::Overloaded | GroupType::FullyBusy => best.avg_load > stats.avg_load,
        GroupType::Misfit => stronger,
        GroupType::HasSpare => {
            (stats.idle_cpus, std::cmp::Reverse(stats.util))
                > (best.idle_cpus, std::cmp::Reverse(best.util))
        }
        GroupType::SmtBalance | GroupType::Packing | GroupType::Imbalanced => false,
    }
}
