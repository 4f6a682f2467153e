// SPDX-License-Identifier: GPL-2.0-only
//! What a CPU takes from which queue, as `bpf/main.bpf.c` does in the kernel, and how an LLC's clock goes on.

use usher_core::Vtime;

use super::{scx_weight, take, Usher, IDLE_NS};
use crate::host::Host;
use crate::ids::{Cpu, Id, Llc, TaskId};

/// So many who wait in an LLC's queue a CPU looks at for one that may run there, while others wait in its own: as `first_here()` in
/// `bpf/hand.bpf.h`.
const SEEN: usize = 8;

impl Usher {
    /// Takes the first task of an LLC's queue that may run on a CPU. Retires the queue if it is empty.
    fn take_llc(&mut self, host: &mut Host, llc: Llc, cpu: Cpu) -> Option<TaskId> {
        let cid = self.cid(cpu);
        let handed = self.handed_first(host, llc, cpu);
        let found = match (handed, &self.unequal) {
            (None, Some(_)) => self.take_fitting(host, llc, cpu),
            (chosen, _) => {
                let queue = &mut self.llc[llc.index()];
                take(host, &mut queue.tasks, queue.line, chosen, cpu)
            }
        };
        if found.is_some() {
            self.tell_length(llc);
            self.call(host, 0, |core| core.queue_taken(cid, llc));
        } else if self.llc[llc.index()].tasks.is_empty() {
            self.call(host, IDLE_NS, |core| core.queue_retire(llc, cid));
        }
        found
    }

    /// Takes from a CPU's own queue and those that the core names, in the order of the module's rule 3.
    pub(super) fn find_work(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        let cid = self.cid(cpu);
        let own_first = self.own_first(host, cpu);
        if own_first {
            if let Some(task) = self.take_own(host, cpu) {
                return Some(task);
            }
        }
        let mut walk = self.core.as_ref().expect("attached").walk(cid);
        let mut first = true;
        while let Some(llc) = self.call(host, 0, |core| core.walk_next(&mut walk)) {
            if first && !own_first && llc != self.at[cpu.index()].llc {
                if let Some(task) = self.take_own(host, cpu) {
                    return Some(task);
                }
            }
            first = false;
            if let Some(task) = self.take_llc(host, llc, cpu) {
                return Some(task);
            }
        }
        if own_first {
            return None;
        }
        self.take_own(host, cpu)
    }

    /// At the end of the slice of `prev`: who goes before it, here or in a longer queue elsewhere, as
    /// take_instead() in `bpf/main.bpf.c`.
    pub(super) fn take_instead(
        &mut self,
        host: &mut Host,
        cpu: Cpu,
        prev: TaskId,
        yields: bool,
    ) -> Option<TaskId> {
        let (cid, own) = (self.cid(cpu), self.at[cpu.index()].llc);
        let longer = self.call(host, 0, |core| core.balance(cid));
        let own_due = self.goes_before(host, cpu, prev, yields, true);
        if own_due && self.own_first(host, cpu) {
            return self.take_own(host, cpu);
        }
        if let Some(task) = longer.and_then(|llc| self.take_llc(host, llc, cpu)) {
            return Some(task);
        }
        if self.goes_before(host, cpu, prev, yields, false) {
            if let Some(task) = self.take_llc(host, own, cpu) {
                return Some(task);
            }
        }
        match own_due {
            true => self.take_own(host, cpu),
            false => None,
        }
    }

    /// Whether the first of a CPU's own queue, or that of its LLC's, goes before `prev`, whose slice has ended there, or which yields.
    fn goes_before(
        &mut self,
        host: &mut Host,
        cpu: Cpu,
        prev: TaskId,
        yields: bool,
        own: bool,
    ) -> bool {
        let at = &self.at[cpu.index()];
        let llc = at.llc;
        let queue = if own {
            &at.own
        } else {
            &self.llc[llc.index()].tasks
        };
        let Some((&(first, _), _)) = queue.first_key_value() else {
            return false;
        };
        let (vtime, weight) = (self.tasks[prev.index()].vtime, scx_weight(host, prev));
        // The kernel does not tell who yields from who is made to end its slice.
        let yields = yields || !self.had_slice(host, prev, cpu);
        self.call(host, 0, |core| {
            core.vtime_due(vtime, first, llc, weight, yields)
        })
    }

    /// Whether somebody waits in a CPU's own queue, and comes before who may run there and waits in its LLC's.
    fn own_first(&mut self, host: &mut Host, cpu: Cpu) -> bool {
        let at = &self.at[cpu.index()];
        let Some((&(own, _), _)) = at.own.first_key_value() else {
            return false;
        };
        let cid = at.cid;
        let waiting = self.llc[at.llc.index()].tasks.iter().take(SEEN);
        let shared = waiting
            .filter(|(_, task)| host.task(**task).may_run_on(cpu))
            .map(|(&(vtime, _), _)| vtime)
            .next();
        self.call(host, 0, |core| core.pinned_first(cid, own, shared))
    }

    /// The clock of a CPU's LLC goes on where a task stops that began at `vtime`.
    pub(super) fn clock_goes_on(&mut self, host: &mut Host, cpu: Cpu, vtime: Vtime) {
        let (now, llc) = (host.now(), self.at[cpu.index()].llc);
        if self.call(host, 0, |core| core.clock_behind(vtime, llc, now)) {
            let first = self.llc[llc.index()].tasks.values().next().copied();
            let elsewhere = first.filter(|&task| !host.task(task).may_run_on(cpu));
            let first = elsewhere.map(|task| self.due(task));
            self.call(host, 0, |core| core.clock_advance(vtime, llc, first, now));
        }
    }

    fn take_own(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        let at = &mut self.at[cpu.index()];
        if at.own.is_empty() {
            return None;
        }
        take(host, &mut at.own, at.own_line, None, cpu)
    }
}
