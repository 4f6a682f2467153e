// SPDX-License-Identifier: GPL-2.0-only
//! Push and pull: how real-time tasks that wait find a CPU that runs something less urgent.

use std::sync::Arc;

use super::map::Find;
use super::{is_rt, Place, Rt};
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cpu, TaskId};

impl Rt {
    /// `find_lowest_rq()`: a CPU of lowest priority for a task that is on `home`: home itself; else the
    /// CPU that searches, in the smallest domain of home that has it before any other; else any of the
    /// smallest domain, by rotor.
    pub(super) fn find_lowest(&mut self, host: &mut Host, task: TaskId, home: Cpu) -> Option<Cpu> {
        if host.task(task).nr_allowed() == 1 {
            return None;
        }
        host.count(self.stats.finds, 1);
        let allowed = Arc::clone(host.task(task).allowed());
        let prio = host.task(task).class().rt_prio();
        let machine = Arc::clone(host.machine());
        let strongest = machine.topo().tiers().first().map_or(0, |t| t.capacity);
        let asymmetric = self.shared().asymmetric;
        let this = host.this_cpu();
        let find = Find {
            allowed: &allowed,
            below: prio,
            this,
            near: home,
            capacity: asymmetric.then_some(strongest),
        };
        let mut out = CpuSet::new();
        if !self.shared().map.find(host, &find, Some(&mut out)) {
            host.count(self.stats.finds_failed, 1);
            return None;
        }
        let map = &self.shared().map;
        let phantoms = out.iter().filter(|&c| map.level_of(c) >= prio).count();
        host.count(self.stats.phantoms, phantoms as u64);
        self.choose(&out, home, this)
    }

    fn choose(&mut self, out: &CpuSet, home: Cpu, this: Cpu) -> Option<Cpu> {
        if out.contains(home) {
            return Some(home);
        }
        let this_ok = out.contains(this);
        for level in 0..self.rqs[home.0 as usize].domains.len() {
            let span = &self.rqs[home.0 as usize].domains[level];
            if this_ok && span.contains(this) {
                return Some(this);
            }
            let part = out.and(span);
            if !part.is_empty() {
                return self.rotate(&part, this);
            }
        }
        match this_ok {
            true => Some(this),
            false => self.rotate(out, this),
        }
    }

    /// `cpumask_any_and_distribute()`.
    fn rotate(&mut self, set: &CpuSet, this: Cpu) -> Option<Cpu> {
        let rotor = &mut self.rqs[this.0 as usize].rotor;
        let found = set.next_around(Cpu(*rotor + 1));
        if let Some(cpu) = found {
            *rotor = cpu.0;
        }
        found
    }

    /// `push_rt_tasks()`: as long as something moves.
    pub(super) fn push_all(&mut self, host: &mut Host, cpu: Cpu) {
        while self.push_one(host, cpu) {}
    }

    /// `push_rt_task()`: the first pushable task of `cpu` moves to a CPU of lower priority. Whether it
    /// did.
    fn push_one(&mut self, host: &mut Host, cpu: Cpu) -> bool {
        let Some(task) = self.rq(cpu).queue.first_pushable() else {
            return false;
        };
        let prio = host.task(task).class().rt_prio();
        if prio > self.rq(cpu).curr_prio {
            // It beats what runs here: no need to go away.
            host.resched(cpu);
            return false;
        }
        let Some(target) = self.find_better(host, task, cpu) else {
            host.count(self.stats.push_failures, 1);
            return false;
        };
        let Place::Rt(_, queued) = self.state(task).place else {
            unreachable!("a pushable task is queued");
        };
        let line = self.rq(target).line;
        let at = host.lock(line);
        self.remove_rt(host, task, cpu, queued);
        host.set_task_cpu(task, target);
        self.note_second(host, target);
        self.insert_rt(host, task, target, false);
        host.resched(target);
        host.unlock(line, at);
        host.count(self.stats.pushes, 1);
        true
    }

    /// `find_lock_lowest_rq()`: a CPU other than `cpu` that runs something of lower priority than the
    /// task. What the map names is checked; if it is no better, the push gives up. (The kernel tries up
    /// to three times if the target's priority changes while it waits for the target's lock; within a
    /// callback it does not change.)
    fn find_better(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) -> Option<Cpu> {
        let prio = host.task(task).class().rt_prio();
        let target = self.find_lowest(host, task, cpu).filter(|&t| t != cpu)?;
        let rq = &self.rqs[target.0 as usize];
        host.access(rq.line, Access::Read);
        (rq.top() < prio).then_some(target)
    }

    /// A task has joined behind one of its own priority that runs (`check_preempt_equal_prio()`): if the
    /// running one could move and the new one could not, the new one goes first, and the other is pushed
    /// away afterwards.
    pub(super) fn preempt_equal(&mut self, host: &mut Host, task: TaskId, curr: TaskId, cpu: Cpu) {
        if host.task(curr).nr_allowed() == 1 || !self.could_move(host, curr) {
            return;
        }
        if host.task(task).nr_allowed() != 1 && self.could_move(host, task) {
            return;
        }
        let Place::Rt(_, queued) = self.state(task).place else {
            unreachable!("it has just joined");
        };
        self.rq(cpu).queue.remove(task, queued);
        let pushable = queued.pushable.is_some();
        let queued = self.rq(cpu).queue.insert(task, queued.prio, true, pushable);
        self.state(task).place = Place::Rt(cpu, queued);
        host.resched(cpu);
    }

    /// Whether the map knows a CPU of lower priority for a task; it is not asked which.
    fn could_move(&mut self, host: &mut Host, task: TaskId) -> bool {
        debug_assert!(is_rt(host, task));
        host.count(self.stats.finds, 1);
        let allowed = Arc::clone(host.task(task).allowed());
        let find = Find {
            allowed: &allowed,
            below: host.task(task).class().rt_prio(),
            this: host.this_cpu(),
            near: host.task(task).cpu(),
            capacity: None,
        };
        self.shared().map.find(host, &find, None)
    }

    /// `pull_rt_task()`: the priority of `cpu` has dropped, so somebody else's task may be better off
    /// here. Not fetched from here: the CPUs that have too much are told to push.
    pub(super) fn pull(&mut self, host: &mut Host, cpu: Cpu) {
        let overload = &mut self.shared().overload;
        if !overload.others(host, cpu) {
            return;
        }
        if let Some(first) = overload.ask(host) {
            host.count(self.stats.pull_rounds, 1);
            host.send_ipi(first, 0);
        }
    }

    /// `rto_push_irq_work_func()`: an interrupt of a round has reached `cpu`: push what can be pushed,
    /// and pass it on.
    pub(super) fn push_for_others(&mut self, host: &mut Host, cpu: Cpu) {
        host.count(self.stats.pull_interrupts, 1);
        if self.rq(cpu).queue.has_pushable() {
            let line = self.rq(cpu).line;
            let at = host.lock(line);
            self.push_all(host, cpu);
            host.unlock(line, at);
        }
        if let Some(next) = self.shared().overload.go_on(host) {
            host.send_ipi(next, 0);
        }
    }
}
