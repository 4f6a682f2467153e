// SPDX-License-Identifier: GPL-2.0-only
//! 6.3 `select_idle_sibling`: the search for an idle CPU near the target, within its LLC.
//!
//! 1. The target, the previous CPU, and a CPU used before are looked at first.
//! 2. CPUs of different capacity: the first idle one that fits, by their own rules (5.6).
//! 3. 5.9: an idle core from the target on, if there may be one; then an idle CPU within the budget of
//!    SIS_PROP; then an idle sibling of the target.
//! 4. 6.x: an idle sibling of the previous CPU unless there may be an idle core; then one pass from
//!    target + 1 on, for a core without limit, or for a CPU within the budget of SIS_UTIL.
//! 5. Proposal 0 searches the CPUs marked in the LLC's mask only (1.3), in `select_idle_cpu` alone.
//!
//! Every look at another CPU fetches its run queue's line: that is what budgets are about. Those of a loop are fetched
//! several at once.

use super::config::{LlcMask, SearchBudget};
use super::reason::Reason;
use super::scratch::Walk;
use super::state::{work, Fair};
use crate::coherence::Access;
use crate::host::Host;
use crate::ids::{Cpu, Id, TaskId};

/// A fixed weight of the moving averages of 6.1 and 6.3: an eighth.
pub(super) fn update_avg(avg: &mut u64, sample: u64) {
    *avg = (*avg as i64 + (sample as i64 - *avg as i64) / 8).max(0) as u64;
}

impl Fair {
    /// See the module.
    pub(super) fn select_idle_sibling(
        &mut self,
        host: &mut Host,
        task: TaskId,
        prev: Cpu,
        target: Cpu,
    ) -> (Cpu, Reason) {
        let util = if self.asym {
            self.task(task).util_est()
        } else {
            0
        };
        let fits = |fair: &Fair, cpu: Cpu| !fair.asym || fair.fits(util, cpu);
        if fits(self, target) && self.probe(host, target) {
            let reason = if target == prev {
                Reason::PrevIdle
            } else {
                Reason::TargetIdle
            };
            return (target, reason);
        }
        let near = |fair: &Fair, cpu: Cpu| cpu != target && fair.same_llc(cpu, target);
        if near(self, prev) && fits(self, prev) && self.probe(host, prev) {
            return (prev, Reason::PrevIdle);
        }
        let recent = self.tasks[task.index()].recent_cpu;
        if self.cfg.one_pass {
            self.tasks[task.index()].recent_cpu = prev;
        }
        let usable = recent != prev && near(self, recent) && host.task(task).may_run_on(recent);
        if usable && fits(self, recent) && self.probe(host, recent) {
            self.tasks[task.index()].recent_cpu = prev;
            return (recent, Reason::RecentIdle);
        }
        if self.asym {
            if let Some(found) = self.select_idle_capacity(host, task, target) {
                return found;
            }
        }
        if self.domains.llc[target.index()].is_none() {
            return (target, Reason::Busy);
        }
        let (at, probes) = (host.now(), Probes::default());
        let (found, probes) = match self.cfg.one_pass {
            false => self.search_59(host, task, target, probes),
            true => self.search_6x(host, task, prev, target, probes),
        };
        host.note_search(probes.0, host.now() - at, found.is_some());
        found.unwrap_or((target, Reason::Busy))
    }

    // ---- 5.9 ----

    fn search_59(
        &mut self,
        host: &mut Host,
        task: TaskId,
        target: Cpu,
        mut probes: Probes,
    ) -> (Option<(Cpu, Reason)>, Probes) {
        if let Some(cpu) = self.select_idle_core(host, task, target, &mut probes) {
            return (Some((cpu, Reason::IdleCore)), probes);
        }
        if let Some(cpu) = self.select_idle_cpu_prop(host, task, target, &mut probes) {
            return (Some((cpu, Reason::IdleCpu)), probes);
        }
        let sibling = self.idle_sibling(host, task, target, &mut probes);
        (sibling.map(|cpu| (cpu, Reason::TargetSibling)), probes)
    }

    /// 6.3, 5.9: the first core of the LLC, from the target on, all of whose threads are idle.
    fn select_idle_core(
        &mut self,
        host: &mut Host,
        task: TaskId,
        target: Cpu,
        probes: &mut Probes,
    ) -> Option<Cpu> {
        if !self.smt || !self.has_idle_cores(host, target) {
            return None;
        }
        let machine = host.machine().clone();
        self.load_candidates(host, task, target, false);
        let mut walk = Walk::from(target.0);
        while let Some(cpu) = self.scratch.step(&mut walk) {
            let siblings = machine.core_cpus(machine.cpu(cpu).core);
            let mut idle = true;
            for &sibling in siblings {
                self.scratch.remove(sibling);
                if idle {
                    probes.0 += 1;
                    self.glance(host, sibling);
                    idle = self.is_idle(sibling);
                }
            }
            if idle {
                return Some(cpu);
            }
        }
        self.set_idle_cores(host, target, false);
        None
    }

    /// 6.3 SIS_PROP: A = avg_idle / 512, C = cost + 1, S = span * A; nr = S > 4C ? S / C : 4. The loop
    /// tests nr - 1 CPUs, and only searches within the budget teach the cost.
    pub(super) fn select_idle_cpu_prop(
        &mut self,
        host: &mut Host,
        task: TaskId,
        target: Cpu,
        probes: &mut Probes,
    ) -> Option<Cpu> {
        let this = host.this_cpu();
        let place = self.domains.llc[this.index()]?;
        let span = self
            .domains
            .at(target, self.domains.llc[target.index()]?)
            .0
            .weight();
        let (avg_idle, cost) = (
            self.cpu(this).avg_idle / 512,
            self.scan_cost(this, place) + 1,
        );
        let worth = span * avg_idle;
        let mut nr = if worth > 4 * cost { worth / cost } else { 4 };
        let at = host.now();
        self.load_candidates(host, task, target, true);
        let mut walk = Walk::from(target.0);
        let mut found = None;
        while let Some(cpu) = self.scratch.step(&mut walk) {
            nr -= 1;
            if nr == 0 {
                return None;
            }
            probes.0 += 1;
            if self.scan(host, cpu) && self.mask_claim(host, cpu) {
                found = Some(cpu);
                break;
            }
        }
        let spent = host.now() - at;
        update_avg(&mut self.cpu_mut(this).sds[place].avg_scan_cost, spent);
        found
    }

    fn scan_cost(&self, cpu: Cpu, place: usize) -> u64 {
        self.cpu(cpu).sds[place].avg_scan_cost
    }

    // ---- 6.x ----

    fn search_6x(
        &mut self,
        host: &mut Host,
        task: TaskId,
        prev: Cpu,
        target: Cpu,
        mut probes: Probes,
    ) -> (Option<(Cpu, Reason)>, Probes) {
        let cores = self.smt && self.has_idle_cores(host, target);
        if self.smt && !cores && self.same_llc(prev, target) {
            if let Some(cpu) = self.idle_sibling(host, task, prev, &mut probes) {
                return (Some((cpu, Reason::PrevSibling)), probes);
            }
        }
        let found = self.select_idle_cpu_one_pass(host, task, target, cores, &mut probes);
        (found, probes)
    }

    /// How many CPUs a search may look at: `None` for no search at all.
    fn budget(&mut self, host: &mut Host, target: Cpu) -> Option<u64> {
        match self.cfg.search {
            SearchBudget::Prop => Some(u64::MAX),
            SearchBudget::Util => {
                let llc = self.llc(target);
                host.access(llc.line(), Access::Read);
                // 6.3 SIS_UTIL: 0 means no scan at all, not even for cores.
                (llc.nr_idle_scan > 0).then_some(llc.nr_idle_scan)
            }
        }
    }

    /// 6.3, 6.x: one pass from target + 1 on.
    fn select_idle_cpu_one_pass(
        &mut self,
        host: &mut Host,
        task: TaskId,
        target: Cpu,
        cores: bool,
        probes: &mut Probes,
    ) -> Option<(Cpu, Reason)> {
        let mut budget = self.budget(host, target)?;
        self.load_candidates(host, task, target, true);
        let mut pass = Pass {
            cores,
            thread: None,
        };
        if self.cfg.cluster_first {
            let found = self.scan_cluster(host, target, &mut pass, &mut budget, probes);
            if let Scan::Over(result) = found {
                return result;
            }
        }
        let mut walk = Walk::from(target.0 + 1);
        while let Some(cpu) = self.scratch.step(&mut walk) {
            if let Scan::Over(result) = self.scan_one(host, cpu, &mut pass, &mut budget, probes) {
                return result;
            }
        }
        if cores {
            self.set_idle_cores(host, target, false);
        }
        let thread = pass.thread?;
        self.mask_claim(host, thread)
            .then_some((thread, Reason::IdleCpu))
    }

    /// 6.3, 6.8 and later: the CPUs that share the target's L2 come first.
    fn scan_cluster(
        &mut self,
        host: &mut Host,
        target: Cpu,
        pass: &mut Pass,
        budget: &mut u64,
        probes: &mut Probes,
    ) -> Scan {
        let machine = host.machine().clone();
        let topo = machine.topo();
        let Some(cluster) = topo[machine.cpu(target).cid].cluster else {
            return Scan::GoOn;
        };
        let cpus = topo.cpus_in(topo[cluster].cids);
        let start = cpus.partition_point(|&c| c <= target);
        for &cpu in cpus[start..].iter().chain(&cpus[..start]) {
            if self.scratch.contains(cpu) {
                if let Scan::Over(result) = self.scan_one(host, cpu, pass, budget, probes) {
                    return Scan::Over(result);
                }
            }
        }
        cpus.iter().for_each(|&cpu| self.scratch.remove(cpu));
        Scan::GoOn
    }

    fn scan_one(
        &mut self,
        host: &mut Host,
        cpu: Cpu,
        pass: &mut Pass,
        budget: &mut u64,
        probes: &mut Probes,
    ) -> Scan {
        if pass.cores {
            return match self.scan_core(host, cpu, pass, probes) {
                Some(core) => Scan::Over(Some((core, Reason::IdleCore))),
                None => Scan::GoOn,
            };
        }
        if *budget == 0 {
            return Scan::Over(None);
        }
        *budget -= 1;
        probes.0 += 1;
        if self.scan(host, cpu) && self.mask_claim(host, cpu) {
            return Scan::Over(Some((cpu, Reason::IdleCpu)));
        }
        Scan::GoOn
    }

    /// Looks at a whole core; remembers its first idle thread for the case that no core is idle.
    fn scan_core(
        &mut self,
        host: &mut Host,
        cpu: Cpu,
        pass: &mut Pass,
        probes: &mut Probes,
    ) -> Option<Cpu> {
        let machine = host.machine().clone();
        let mut idle = true;
        for &sibling in machine.core_cpus(machine.cpu(cpu).core) {
            probes.0 += 1;
            let free = self.scan(host, sibling);
            if !self.is_idle(sibling) {
                idle = false;
            }
            if free && pass.thread.is_none() && self.scratch.contains(sibling) {
                pass.thread = Some(sibling);
            }
            if !idle && pass.thread.is_some() {
                break;
            }
        }
        for &sibling in machine.core_cpus(machine.cpu(cpu).core) {
            self.scratch.remove(sibling);
        }
        idle.then_some(cpu)
    }

    // ---- both ----

    /// Loads the CPUs to search into the scratch set: those of the target's LLC that the task may use;
    /// 1.3: of these, if the search is one that the mask is for, those that are marked.
    fn load_candidates(&mut self, host: &mut Host, task: TaskId, target: Cpu, masked: bool) {
        let domain = self
            .domains
            .llc_of(target)
            .expect("the target has an LLC domain");
        self.scratch.load(&domain.set, host.task(task).allowed());
        if masked && self.cfg.llc_mask != LlcMask::Off {
            let llc = &self.llcs[self.llc_of[target.index()] as usize];
            llc.read_mask(host);
            self.scratch.keep(&llc.idle);
        }
    }

    /// `select_idle_smt`: an idle thread of a CPU's core.
    fn idle_sibling(
        &mut self,
        host: &mut Host,
        task: TaskId,
        of: Cpu,
        probes: &mut Probes,
    ) -> Option<Cpu> {
        if !self.smt {
            return None;
        }
        let machine = host.machine().clone();
        let siblings = machine.core_cpus(machine.cpu(of).core).iter().copied();
        siblings.filter(|&s| s != of).find(|&s| {
            probes.0 += 1;
            host.task(task).may_run_on(s) && self.probe(host, s)
        })
    }

    /// 5.6: on CPUs of different capacity, the first idle one that fits, else the strongest idle one, else
    /// the target.
    fn select_idle_capacity(
        &mut self,
        host: &mut Host,
        task: TaskId,
        target: Cpu,
    ) -> Option<(Cpu, Reason)> {
        let place = self.domains.asym[target.index()]?;
        let (at, mut probes) = (host.now(), 0);
        let util = self.task(task).util_est();
        let domain = self.domains.at(target, place).0;
        self.scratch.load(&domain.set, host.task(task).allowed());
        let mut walk = Walk::from(target.0);
        let mut best: Option<(u64, Cpu)> = None;
        while let Some(cpu) = self.scratch.step(&mut walk) {
            probes += 1;
            if !self.scan(host, cpu) {
                continue;
            }
            let capacity = self.cpu(cpu).rq.capacity;
            if self.fits(util, cpu) {
                best = Some((capacity, cpu));
                break;
            }
            if best.is_none_or(|(most, _)| capacity > most) {
                best = Some((capacity, cpu));
            }
        }
        host.note_search(probes, host.now() - at, best.is_some());
        host.charge(work::PROBE_NS);
        let cpu = best.map_or(target, |(_, cpu)| cpu);
        Some((
            cpu,
            if best.is_some() {
                Reason::Capacity
            } else {
                Reason::Busy
            },
        ))
    }
}

/// How many CPUs a search has looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probes(pub u64);

/// State of a one-pass search.
struct Pass {
    /// It looks for whole cores.
    cores: bool,
    /// The first idle thread seen meanwhile.
    thread: Option<Cpu>,
}

enum Scan {
    GoOn,
    Over(Option<(Cpu, Reason)>),
}
