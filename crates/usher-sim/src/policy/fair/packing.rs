// SPDX-License-Identifier: GPL-2.0-only
//! Asymmetric packing (`SD_ASYM_PACKING`, 6.12): CPUs that the kernel prefers though it counts all as equally strong.
//!
//! x86 hybrids whose cores have several threads are run so: the processor names its favoured cores (ITMT), and `intel_pstate`
//! gives the kernel capacities only where cores have one thread. Whoever wakes or is born looks for no stronger CPU; but an idle one
//! pulls from those that are preferred less, even a task that runs there alone.
//!
//! 1. Between cores priority counts only where the rest of the CPU's own core idles.
//! 2. A group is to give to an idle CPU that is preferred to its best, unless several threads of its only core are busy.
//! 3. The busiest of such groups is the least preferred. All it runs is to move, and at once (`needs_active`).
//! 4. The other way a CPU takes no lone task, but any from a core of which several threads are busy.
//! 5. The tick of a busy CPU wakes an idle one to balance if a preferred one idles.
//!
//! The rules are 6.12's under all versions. Before 6.6 sibling threads had priorities of their own.

use super::domains::{Domain, Group};
use super::state::Fair;
use super::stats::GroupStats;
use crate::ids::{Cpu, Id};

impl Fair {
    /// Rule 1, `sched_use_asym_prio`: whether the priority of a CPU counts in a domain.
    fn priority_counts(&self, domain: &Domain, cpu: Cpu) -> bool {
        if !domain.packing {
            return false;
        }
        let (core, _) = self.domains.at(cpu, 0);
        let mut threads = core.cpus.iter();
        !core.share_core || threads.all(|&thread| thread == cpu || self.is_idle(thread))
    }

    /// `sched_asym`: whether `dst` is to have what runs on a CPU of this priority.
    fn is_preferred(&self, domain: &Domain, dst: Cpu, to: u32) -> bool {
        self.priority_counts(domain, dst) && self.priority(dst) > to
    }

    /// The same of two CPUs.
    pub(super) fn is_preferred_to(&self, domain: &Domain, dst: Cpu, src: Cpu) -> bool {
        self.is_preferred(domain, dst, self.priority(src))
    }

    fn priority(&self, cpu: Cpu) -> u32 {
        self.domains.strengths.priority[cpu.index()]
    }

    /// Rule 2, `sched_group_asym`: whether a group is to give to `dst`, which idles.
    pub(super) fn group_packs(
        &self,
        domain: &Domain,
        dst: Cpu,
        group: &Group,
        stats: &GroupStats,
    ) -> bool {
        let crowded = group.is_smt && stats.weight - stats.idle_cpus != 1;
        stats.nr_fair > 0 && !crowded && self.is_preferred(domain, dst, group.priority)
    }

    /// Rules 3 and 4, `asym_active_balance`: whether the task that runs on `src` alone is pushed to `dst`, which idles.
    pub(super) fn packs_running(&self, domain: &Domain, dst: Cpu, src: Cpu) -> bool {
        self.priority_counts(domain, dst)
            && (self.is_preferred_to(domain, dst, src) || !self.priority_counts(domain, src))
    }

    /// Rule 5: whether a CPU that is preferred to a busy one idles with its tick stopped.
    pub(super) fn preferred_idles(&self, cpu: Cpu) -> bool {
        let chain = self.domains.chain[cpu.index()].iter().rev();
        let mut domains = chain.map(|step| &self.domains.all[step.domain]);
        domains.find(|domain| domain.packing).is_some_and(|domain| {
            let mut idle = self.nohz.idle.iter();
            idle.any(|c| domain.set.contains(c) && self.is_preferred_to(domain, c, cpu))
        })
    }
}
