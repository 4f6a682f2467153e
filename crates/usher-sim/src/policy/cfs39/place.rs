// SPDX-License-Identifier: GPL-2.0-only
//! Where a task goes in 3.9: `select_task_rq_fair()`.

use super::{Cfs39, Reason};
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cpu, TaskId};
use crate::policy::{WakeInfo, WakeKind};

impl Cfs39 {
    /// A CPU that runs nothing and has nothing queued or on its way.
    pub(super) fn is_idle_cpu(&self, host: &Host, cpu: Cpu) -> bool {
        host.is_idle(cpu) && self.rqs[cpu.0 as usize].rq.nr == 0 && host.wakes_pending(cpu) == 0
    }

    /// Fast path: a wakeup whose waker's CPU is allowed and shares a domain with prev. Slow path: fork,
    /// exec, and everything else.
    pub(super) fn choose(&mut self, host: &mut Host, wake: &WakeInfo) -> (Cpu, Reason) {
        let this = wake.waker_cpu;
        let allowed = host.task(wake.task).allowed().clone();
        if wake.kind == WakeKind::Wake {
            return self.wake_up(host, wake, this, &allowed);
        }
        let cpu = self.balance_place(host, &allowed, this);
        let reason = match (wake.kind, cpu == this) {
            (_, true) => Reason::Here,
            (WakeKind::Exec, false) => Reason::Exec,
            (_, false) => Reason::Fork,
        };
        (cpu, reason)
    }

    fn wake_up(
        &mut self,
        host: &mut Host,
        wake: &WakeInfo,
        this: Cpu,
        allowed: &CpuSet,
    ) -> (Cpu, Reason) {
        let prev = wake.prev;
        let domains = &self.domains[this.0 as usize];
        let affine = domains
            .iter()
            .position(|d| d.places() && d.span.contains(prev));
        let prev_ok = allowed.contains(prev);
        let Some(level) = affine.filter(|_| allowed.contains(this)) else {
            // No domain balances on wakeups, so there is no slow path to take.
            let target = if prev_ok {
                prev
            } else {
                self.any_allowed(host, allowed)
            };
            return (target, Reason::Prev);
        };
        let pulled = this != prev && self.wake_affine(host, wake, level);
        let target = if pulled { this } else { prev };
        let found = self.idle_sibling(host, wake.task, target, prev, allowed);
        if !allowed.contains(found) {
            return (self.any_allowed(host, allowed), Reason::Prev);
        }
        let reason = match (found == target, pulled) {
            (true, true) => Reason::Affine,
            (true, false) => Reason::Prev,
            (false, _) => Reason::IdleSibling,
        };
        (found, reason)
    }

    fn any_allowed(&self, host: &Host, allowed: &CpuSet) -> Cpu {
        let usable = host.machine().online().and(allowed);
        usable.first().expect("a task may run somewhere")
    }

    /// `wake_affine()`: whether to pull the task to the waker's CPU. Its load with the task there, over
    /// its power, against that of prev; a synchronous waker counts as gone.
    fn wake_affine(&mut self, host: &mut Host, wake: &WakeInfo, level: usize) -> bool {
        let (this, prev) = (wake.waker_cpu, wake.prev);
        let line = self.rqs[prev.0 as usize].line;
        host.access(line, Access::Read);
        let pct = self.domains[this.0 as usize][level].pct();
        let mut load = self.cpu_load(prev) as i64;
        let mut this_load = self.cpu_load(this) as i64;
        if wake.sync {
            let waker = wake.waker.map_or(0, |w| self.task_load(w)) as i64;
            this_load -= waker;
        }
        let weight = self.task_load(wake.task) as i64;
        let (this_power, prev_power) = (
            self.powers[this.0 as usize] as i64,
            self.powers[prev.0 as usize] as i64,
        );
        let balanced = this_load <= 0 || {
            let here = 100 * prev_power * (this_load + weight);
            // What the kernel adds for the task itself is 0: it is not in a group that prev shares.
            let there = (100 + (pct as i64 - 100) / 2) * this_power * load;
            here <= there
        };
        if balanced {
            return true;
        }
        load = load.max(0);
        let nr = i64::from(self.rqs[this.0 as usize].rq.nr);
        let per_task = if nr > 0 {
            self.cpu_load(this) as i64 / nr
        } else {
            0
        };
        this_load <= load && this_load + self.cpu_load(prev) as i64 <= per_task
    }

    /// `select_idle_sibling()`: the target if idle, prev if idle and near, else the first CPU of the first
    /// wholly idle group below the LLC.
    fn idle_sibling(
        &mut self,
        host: &mut Host,
        task: TaskId,
        target: Cpu,
        prev: Cpu,
        allowed: &CpuSet,
    ) -> Cpu {
        debug_assert!(host.task(task).nr_allowed() > 1);
        if self.is_idle_cpu(host, target) {
            return target;
        }
        if prev != target && host.machine().same_llc(prev, target) && self.is_idle_cpu(host, prev) {
            return prev;
        }
        let domains = &self.domains[target.0 as usize];
        let top = domains.iter().rposition(|d| d.shares_cache());
        for level in (0..top.map_or(0, |t| t + 1)).rev() {
            for group in &domains[level].groups {
                let usable = group.cpus.iter().copied().find(|c| allowed.contains(*c));
                let Some(first) = usable else { continue };
                let mut idle = true;
                for &cpu in &group.cpus {
                    host.scan(self.rqs[cpu.0 as usize].line);
                    idle = cpu != target && self.is_idle_cpu(host, cpu);
                    if !idle {
                        break;
                    }
                }
                if idle {
                    return first;
                }
            }
        }
        target
    }

    /// Fork and exec balancing, see the module.
    pub(super) fn balance_place(&mut self, host: &mut Host, allowed: &CpuSet, this: Cpu) -> Cpu {
        if !self.options.flat_fork {
            return self.walk_down(host, allowed, this);
        }
        let usable = host.machine().online().and(allowed);
        for cpu in usable.iter() {
            host.scan(self.rqs[cpu.0 as usize].line);
        }
        let least = usable.iter().min_by_key(|&c| (self.cpu_load(c), c != this));
        least.expect("a task may run somewhere")
    }

    /// As in 3.9, from `this` downwards: at each level the group of least load per power if
    /// it is clearly less loaded than the own, and in it the least loaded CPU.
    fn walk_down(&mut self, host: &mut Host, allowed: &CpuSet, this: Cpu) -> Cpu {
        let mut cpu = this;
        let mut chosen = this;
        let mut level = self.top_level(cpu, u64::MAX);
        while let Some(at) = level {
            level = at.checked_sub(1);
            let Some(group) = self.idlest_group(host, cpu, at, allowed) else {
                continue;
            };
            let Some(found) = self.idlest_cpu(host, cpu, at, group, allowed) else {
                continue;
            };
            if found == cpu {
                continue;
            }
            let weight = self.domains[cpu.0 as usize][at].weight;
            (cpu, chosen) = (found, found);
            level = self.top_level(cpu, weight);
        }
        if allowed.contains(chosen) {
            return chosen;
        }
        self.any_allowed(host, allowed)
    }

    /// The highest level of a CPU that places tasks and is smaller than `weight`.
    fn top_level(&self, cpu: Cpu, weight: u64) -> Option<usize> {
        self.domains[cpu.0 as usize]
            .iter()
            .rposition(|d| d.places() && d.weight < weight)
    }

    /// `find_idlest_group()`: `None` to stay in the local one.
    fn idlest_group(
        &self,
        host: &mut Host,
        cpu: Cpu,
        level: usize,
        allowed: &CpuSet,
    ) -> Option<usize> {
        let domain = &self.domains[cpu.0 as usize][level];
        let threshold = 100 + (domain.pct() - 100) / 2;
        let mut least: Option<(usize, u64)> = None;
        let mut own = 0;
        for (i, group) in domain.groups.iter().enumerate() {
            if !group.cpus.iter().any(|c| allowed.contains(*c)) {
                continue;
            }
            let mut load = 0;
            for &c in &group.cpus {
                host.scan(self.rqs[c.0 as usize].line);
                load += self.cpu_load(c);
            }
            let scaled = load * super::group::SCALE / group.power;
            if i == 0 {
                own = scaled;
            } else if least.is_none_or(|(_, l)| scaled < l) {
                least = Some((i, scaled));
            }
        }
        least
            .filter(|&(_, load)| 100 * own >= threshold * load)
            .map(|(i, _)| i)
    }

    /// `find_idlest_cpu()`.
    fn idlest_cpu(
        &self,
        host: &mut Host,
        this: Cpu,
        level: usize,
        group: usize,
        allowed: &CpuSet,
    ) -> Option<Cpu> {
        let group = &self.domains[this.0 as usize][level].groups[group];
        let usable = group.cpus.iter().copied().filter(|c| allowed.contains(*c));
        let mut least: Option<(u64, bool, Cpu)> = None;
        for cpu in usable {
            host.scan(self.rqs[cpu.0 as usize].line);
            let candidate = (self.cpu_load(cpu), cpu != this, cpu);
            if least.is_none_or(|l| (candidate.0, candidate.1) < (l.0, l.1)) {
                least = Some(candidate);
            }
        }
        least.map(|(_, _, cpu)| cpu)
    }
}
