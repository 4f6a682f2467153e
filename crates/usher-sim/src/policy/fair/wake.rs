// SPDX-License-Identifier: GPL-2.0-only
//! 6.3: which CPU a task that wakes up is meant for, before idle ones are searched.
//!
//! 1. Wakers with many wakees are kept apart from them (wake_wide).
//! 2. Otherwise the waker's CPU competes with the task's previous one (wake_affine).
//! 3. Proposal 1: a hint decides between the two instead (2.3).
//! 4. From the winner, the target, the search for an idle CPU starts (`search.rs`).

use super::reason::Reason;
use super::state::{work, Fair};
use crate::coherence::Access;
use crate::host::Host;
use crate::ids::{Cpu, Id, Nanos, TaskId};
use crate::policy::WakeInfo;
use crate::program::Hint;

/// Flips are halved this often.
const FLIP_DECAY_NS: Nanos = 1_000_000_000;

impl Fair {
    /// 6.3 `select_task_rq` for a wakeup.
    pub(super) fn select_wake(&mut self, host: &mut Host, wake: &WakeInfo) -> (Cpu, Reason) {
        host.charge(work::SELECT_NS);
        self.record_wakee(host.now(), wake);
        let (this, prev) = (wake.waker_cpu, wake.prev);
        let wide = self.wake_wide(wake);
        let affine = !wide && host.task(wake.task).may_run_on(this);
        let (mut target, hinted) = match self.wake_hint(host, wake) {
            Some(target) => (target, true),
            None => (prev, false),
        };
        if affine && !hinted && this != prev {
            if let Some(pct) = self.affine_pct(this, prev) {
                target = self.wake_affine(host, wake, pct);
            }
        }
        let (cpu, reason) = self.select_idle_sibling(host, wake.task, prev, target);
        if affine && !self.cfg.one_pass {
            // 5.9: it is the waker who will remember its CPU as recently used.
            if let Some(waker) = self.cpu(this).rq.curr {
                self.tasks[waker.index()].recent_cpu = this;
            }
        }
        (cpu, reason)
    }

    /// `imbalance_pct` of the lowest domain of `this` that spans `prev`, too, if waking across it is allowed.
    fn affine_pct(&self, this: Cpu, prev: Cpu) -> Option<u64> {
        let chain = &self.domains.chain[this.index()];
        let domains = chain.iter().map(|step| &self.domains.all[step.domain]);
        domains
            .filter(|d| d.near)
            .find(|d| d.set.contains(prev))
            .map(|d| d.pct)
    }

    /// The task that does the wakeup, or that the interrupt hit; the idle task's books otherwise.
    fn waker_mut(&mut self, wake: &WakeInfo) -> &mut super::task::Task {
        let state = &mut self.cpus[wake.waker_cpu.index()];
        match wake.waker.or(state.rq.curr) {
            Some(waker) => &mut self.tasks[waker.index()],
            None => &mut state.idle_task,
        }
    }

    /// 6.3 wake_wide, the books: flips++ when the wakee changes, halved each second.
    fn record_wakee(&mut self, now: Nanos, wake: &WakeInfo) {
        let waker = self.waker_mut(wake);
        if now > waker.flips_halved_at + FLIP_DECAY_NS {
            waker.wakee_flips >>= 1;
            waker.flips_halved_at = now;
        }
        if waker.last_wakee != Some(wake.task) {
            waker.last_wakee = Some(wake.task);
            waker.wakee_flips += 1;
        }
    }

    /// 6.3 wake_wide: b >= llc_size and a >= b * llc_size.
    pub(super) fn wake_wide(&mut self, wake: &WakeInfo) -> bool {
        let waker = self.waker_mut(wake).wakee_flips;
        let wakee = self.task(wake.task).wakee_flips;
        let size = self
            .domains
            .llc_of(wake.waker_cpu)
            .map_or(1, |d| d.weight());
        let (many, few) = (waker.max(wakee), waker.min(wakee));
        few >= size && many >= few * size
    }

    /// 6.3 wake_affine: the waker's CPU or the previous one.
    pub(super) fn wake_affine(&mut self, host: &mut Host, wake: &WakeInfo, pct: u64) -> Cpu {
        let (this, prev) = (wake.waker_cpu, wake.prev);
        if let Some(cpu) = self.wake_affine_idle(host, wake) {
            return cpu;
        }
        if self.wake_affine_weight(host, wake, pct) {
            this
        } else {
            prev
        }
    }

    fn wake_affine_idle(&self, host: &mut Host, wake: &WakeInfo) -> Option<Cpu> {
        let (this, prev) = (wake.waker_cpu, wake.prev);
        // An interrupt on an idle CPU: near the device, if the task's caches are there, too.
        if self.is_idle(this) && self.same_llc(this, prev) {
            return Some(if self.probe_idle(host, prev) {
                prev
            } else {
                this
            });
        }
        let alone = self.nr_running(this) - self.cpu(this).rq.nr_delayed == 1;
        if wake.sync && alone {
            return Some(this);
        }
        // 6.x.
        (self.cfg.wake_prev_idle && self.probe_idle(host, prev)).then_some(prev)
    }

    /// 6.3 wake_affine, effective loads. True: the waker's CPU.
    fn wake_affine_weight(&mut self, host: &mut Host, wake: &WakeInfo, pct: u64) -> bool {
        let (this, prev) = (wake.waker_cpu, wake.prev);
        for cpu in [this, prev] {
            host.access(self.cpu(cpu).load_line, Access::Read);
        }
        let load = |cpu: Cpu| self.cpu(cpu).rq.avg.load as i64;
        let mut here = load(this);
        if wake.sync {
            let curr = self
                .cpu(this)
                .rq
                .curr
                .map_or(0, |c| self.task(c).avg.load as i64);
            if curr > here {
                return true;
            }
            here -= curr;
        }
        let task = self.task(wake.task).avg.load as i64;
        let capacity = |cpu: Cpu| self.cpu(cpu).rq.capacity as i64;
        let here = (here + task) * 100 * capacity(prev);
        let there = (load(prev) - task) * (100 + (pct as i64 - 100) / 2) * capacity(this);
        // With WF_SYNC equal loads go to the waker, who is about to leave.
        here < there + i64::from(wake.sync)
    }

    /// 2.3: where a wake hint sends the task: a CPU of an LLC with idle cores, if the waker's and the
    /// previous LLC differ.
    fn wake_hint(&mut self, host: &mut Host, wake: &WakeInfo) -> Option<Cpu> {
        let hint = host.task(wake.task).hint();
        let (affine, hold) = (hint.has(Hint::WAKE_AFFINE), hint.has(Hint::WAKE_HOLD));
        let off = !self.cfg.hints.wake || !(affine || hold);
        if off || self.same_llc(wake.waker_cpu, wake.prev) {
            return None;
        }
        let target = if hold { wake.prev } else { wake.waker_cpu };
        if !self.has_idle_cores(host, target) {
            return None;
        }
        host.count(self.counters.hint_wake, 1);
        Some(target)
    }

    /// `select_fallback_rq`: where a task goes if it may not run where the rules want it.
    pub(super) fn fallback(&self, host: &Host, task: TaskId, near: Cpu) -> Cpu {
        let machine = host.machine();
        let allowed = host.task(task).allowed();
        let node = machine.node_cpus(machine.cpu(near).node);
        let found = node.iter().find(|&c| allowed.contains(c));
        found
            .or_else(|| machine.online().iter().find(|&c| allowed.contains(c)))
            .expect("the engine checked that a task may run somewhere")
    }
}
