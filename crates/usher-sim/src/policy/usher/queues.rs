// SPDX-License-Identifier: GPL-2.0-only
//! How tasks are put into queues, what a CPU takes from which, as `bpf/main.bpf.c` does in the kernel, and how a queue's clock goes on.

use usher_core::{Core, Queue, Vtime};

use super::{name, scx_weight, Known, Place, Tasks, Usher, IDLE_NS, QUEUE_NS};
use crate::host::Host;
use crate::ids::{Cpu, Id, LineId, TaskId};

/// So many who wait in a queue a CPU looks at for one that may run there, while others wait in its own: as `first_here()` in
/// `bpf/hand.bpf.h`.
const SEEN: usize = 8;

impl Usher {
    /// Takes the first task of a queue that may run on a CPU. Retires the queue if it is empty.
    fn take_shared(&mut self, host: &mut Host, queue: Queue, cpu: Cpu) -> Option<TaskId> {
        let cid = self.cid(cpu);
        let handed = self.handed_first(host, queue, cpu);
        let found = match (handed, &self.unequal) {
            (None, Some(_)) => self.take_fitting(host, queue, cpu),
            (chosen, _) => {
                let shared = &mut self.queues[queue.index()];
                take(host, &mut shared.tasks, shared.line, chosen, cpu)
            }
        };
        if found.is_some() {
            self.tell_length(queue);
            self.call(host, 0, |core| core.queue_taken(cid, queue));
        } else if self.queues[queue.index()].tasks.is_empty() {
            self.call(host, IDLE_NS, |core| core.queue_retire(queue, cid));
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
        while let Some(queue) = self.call(host, 0, |core| core.walk_next(&mut walk)) {
            if queue != self.at[cpu.index()].queue {
                if let Some(task) = self.take_own(host, cpu) {
                    return Some(task);
                }
            }
            if let Some(task) = self.take_shared(host, queue, cpu) {
                return Some(task);
            }
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
        let (cid, own) = (self.cid(cpu), self.at[cpu.index()].queue);
        let longer = self.call(host, 0, |core| core.balance(cid));
        let own_due = self.goes_before(host, cpu, prev, yields, true);
        if own_due && self.own_first(host, cpu) {
            return self.take_own(host, cpu);
        }
        if let Some(task) = longer.and_then(|queue| self.take_shared(host, queue, cpu)) {
            return Some(task);
        }
        if self.goes_before(host, cpu, prev, yields, false) {
            if let Some(task) = self.take_shared(host, own, cpu) {
                return Some(task);
            }
        }
        match own_due {
            true => self.take_own(host, cpu),
            false => None,
        }
    }

    /// Whether the first of a CPU's own queue, or that of several, goes before `prev`, whose slice has ended there, or which yields.
    fn goes_before(
        &mut self,
        host: &mut Host,
        cpu: Cpu,
        prev: TaskId,
        yields: bool,
        own: bool,
    ) -> bool {
        let at = &self.at[cpu.index()];
        let queue = at.queue;
        let waiting = match own {
            true => &at.own,
            false => &self.queues[queue.index()].tasks,
        };
        let Some((&(first, _), _)) = waiting.first_key_value() else {
            return false;
        };
        let (vtime, weight) = (self.tasks[prev.index()].vtime, scx_weight(host, prev));
        // The kernel does not tell who yields from who is made to end its slice.
        let yields = yields || !self.had_slice(host, prev, cpu);
        self.call(host, 0, |core| {
            core.vtime_due(vtime, first, queue, weight, yields)
        })
    }

    /// Whether somebody waits in a CPU's own queue, and comes before who may run there and waits in that of several.
    fn own_first(&mut self, host: &mut Host, cpu: Cpu) -> bool {
        let at = &self.at[cpu.index()];
        let Some((&(own, _), _)) = at.own.first_key_value() else {
            return false;
        };
        let cid = at.cid;
        let waiting = self.queues[at.queue.index()].tasks.iter().take(SEEN);
        let shared = waiting
            .filter(|(_, task)| host.task(**task).may_run_on(cpu))
            .map(|(&(vtime, _), _)| vtime)
            .next();
        self.call(host, 0, |core| core.pinned_first(cid, own, shared))
    }

    /// The clock of a CPU's queue goes on where a task stops that began at `vtime`.
    pub(super) fn clock_goes_on(&mut self, host: &mut Host, cpu: Cpu, vtime: Vtime) {
        let (now, queue) = (host.now(), self.at[cpu.index()].queue);
        if self.call(host, 0, |core| core.clock_behind(vtime, queue, now)) {
            let first = self.queues[queue.index()].tasks.values().next().copied();
            let elsewhere = first.filter(|&task| !host.task(task).may_run_on(cpu));
            let first = elsewhere.map(|task| self.due(task));
            self.call(host, 0, |core| core.clock_advance(vtime, queue, first, now));
        }
    }

    fn take_own(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        let at = &mut self.at[cpu.index()];
        if at.own.is_empty() {
            return None;
        }
        take(host, &mut at.own, at.own_line, None, cpu)
    }

    /// The task in a queue that was handed to a CPU of it, if it goes before the first.
    fn handed_first(&mut self, host: &mut Host, queue: Queue, cpu: Cpu) -> Option<(Vtime, u64)> {
        if queue != self.at[cpu.index()].queue {
            return None;
        }
        let cid = self.cid(cpu);
        let task = self.call(host, 0, |core| core.handed(cid))?.get() - 1;
        let task = TaskId(task as u32);
        let Known {
            vtime, seq, place, ..
        } = self.tasks[task.index()];
        if self.waits_in(place) != Some(queue) || !host.task(task).may_run_on(cpu) {
            return None;
        }
        let demand = self.demand(host, task);
        if !self.call(host, 0, |core| core.enough(cid, demand)) {
            return None;
        }
        let (&(first, _), &before) = self.queues[queue.index()].tasks.first_key_value()?;
        let promised = match self.tasks[before.index()].place {
            Place::Handed(to) => {
                let to = self.cid(to);
                self.call(host, 0, |core| core.promised(to, name(before)))
            }
            _ => false,
        };
        let weight = scx_weight(host, task);
        let taken = |core: &mut Core| core.take_handed(cid, first, vtime, weight, promised);
        self.call(host, 0, taken).then_some((vtime, seq))
    }
}

pub(super) fn insert(
    host: &mut Host,
    tasks: &mut Tasks,
    line: LineId,
    key: (Vtime, u64),
    task: TaskId,
) {
    let taken = host.lock(line);
    host.charge(QUEUE_NS);
    tasks.insert(key, task);
    host.unlock(line, taken);
}

/// Takes the task chosen, or the first that may run on a CPU.
pub(super) fn take(
    host: &mut Host,
    tasks: &mut Tasks,
    line: LineId,
    chosen: Option<(Vtime, u64)>,
    cpu: Cpu,
) -> Option<TaskId> {
    let taken = host.lock(line);
    let first = || {
        let mut allowed = tasks.iter().filter(|(_, &t)| host.task(t).may_run_on(cpu));
        allowed.next().map(|(&key, _)| key)
    };
    let key = chosen.or_else(first);
    let task = key.and_then(|key| tasks.remove(&key));
    if task.is_some() {
        host.charge(QUEUE_NS);
    }
    host.unlock(line, taken);
    task
}
