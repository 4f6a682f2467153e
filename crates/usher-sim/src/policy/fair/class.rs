// SPDX-License-Identifier: GPL-2.0-only
//! Joining, leaving, running: what is the same for CFS and EEVDF, and the choice between the two.

use super::config::Class;
use super::eevdf::{self, Join};
use super::state::Fair;
use super::{cfs, weight};
use crate::host::Host;
use crate::ids::{Cpu, Id, TaskId};

impl Fair {
    /// Accounts the time of what runs on a CPU. Returns whether EEVDF wants it to give way.
    pub(super) fn account(&mut self, host: &Host, cpu: Cpu) -> bool {
        let now = host.now();
        let rq = &mut self.cpus[cpu.index()].rq;
        match &self.class {
            Class::Cfs(_) => {
                cfs::update_curr(rq, &mut self.tasks, now);
                false
            }
            Class::Eevdf(times) => eevdf::update_curr(times, rq, &mut self.tasks, now),
        }
    }

    pub(super) fn account_and_resched(&mut self, host: &mut Host, cpu: Cpu) {
        if self.account(host, cpu) {
            host.resched(cpu);
        }
    }

    /// A task joins a CPU's queue.
    pub(super) fn join(&mut self, host: &mut Host, id: TaskId, cpu: Cpu, why: Join) {
        self.account_and_resched(host, cpu);
        let now = host.now();
        let old = self.task(id).cpu;
        if old != cpu {
            self.leave_home(host, id, old);
        }
        let rq = &mut self.cpus[cpu.index()].rq;
        if self.tasks[id.index()].attached {
            rq.sync_with(&mut self.tasks, id, now);
        } else {
            rq.attach_avg(&mut self.tasks, id, now);
        }
        match &self.class {
            Class::Cfs(times) => {
                cfs::enqueue(times, rq, &mut self.tasks, id, why == Join::Wake);
            }
            Class::Eevdf(times) => eevdf::enqueue(times, rq, &mut self.tasks, id, why),
        }
        if self.nr_running(cpu) == 2 {
            self.set_overload(host, true);
        }
    }

    /// A task that sleeps is taken along to another CPU: its averages and its virtual time leave the old
    /// one's.
    fn leave_home(&mut self, host: &Host, id: TaskId, old: Cpu) {
        self.detach_avg(host, id, old);
        // Since 3.16: it is not cache-hot until it runs.
        self.tasks[id.index()].exec_start = 0;
        if let Class::Cfs(_) = self.class {
            cfs::make_relative(&self.cpus[old.index()].rq, &mut self.tasks, id);
        }
    }

    pub(super) fn detach_avg(&mut self, host: &Host, id: TaskId, cpu: Cpu) {
        if self.task(id).attached {
            self.cpus[cpu.index()]
                .rq
                .detach_avg(&mut self.tasks, id, host.now());
        }
    }

    /// A task leaves the queue, where it waits or is current. Time is accounted.
    pub(super) fn leave(&mut self, host: &Host, id: TaskId, cpu: Cpu, sleeps: bool) {
        let rq = &mut self.cpus[cpu.index()].rq;
        rq.sync_with(&mut self.tasks, id, host.now());
        match self.class {
            Class::Cfs(_) => cfs::dequeue(rq, &mut self.tasks, id, sleeps),
            Class::Eevdf(_) => eevdf::dequeue(rq, &mut self.tasks, id, sleeps, self.tick_ns),
        }
        if sleeps {
            self.tasks[id.index()].update_util_est();
        }
    }

    /// The current task goes to sleep. Time is accounted.
    pub(super) fn sleep(&mut self, host: &mut Host, id: TaskId, cpu: Cpu) {
        if let Class::Eevdf(times) = &self.class {
            let rq = &mut self.cpus[cpu.index()].rq;
            rq.sync_with(&mut self.tasks, id, host.now());
            if eevdf::delay(times, rq, &mut self.tasks, id) {
                eevdf::put_prev(rq, &mut self.tasks, id);
                host.count(self.counters.delayed, 1);
                return;
            }
        }
        self.leave(host, id, cpu, true);
    }

    /// The current task waits again. Time is accounted.
    pub(super) fn wait_again(&mut self, host: &Host, id: TaskId, cpu: Cpu) {
        let rq = &mut self.cpus[cpu.index()].rq;
        rq.sync_with(&mut self.tasks, id, host.now());
        match self.class {
            Class::Cfs(_) => cfs::put_prev(rq, &mut self.tasks, id),
            Class::Eevdf(_) => eevdf::put_prev(rq, &mut self.tasks, id),
        }
    }

    pub(super) fn yields(&mut self, cpu: Cpu) {
        let rq = &mut self.cpus[cpu.index()].rq;
        match self.class {
            Class::Cfs(_) => cfs::yield_curr(rq),
            Class::Eevdf(_) => eevdf::yield_curr(rq, &mut self.tasks),
        }
    }

    /// Chooses the next fair task and makes it the current one.
    pub(super) fn run_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        loop {
            let rq = &mut self.cpus[cpu.index()].rq;
            let id = match &self.class {
                Class::Cfs(times) => cfs::pick(times, rq, &self.tasks),
                Class::Eevdf(times) => eevdf::pick(times, rq, &self.tasks),
            }?;
            // 6.2 DELAY_DEQUEUE: it has paid back: now it may sleep.
            if self.task(id).delayed {
                self.leave(host, id, cpu, true);
                continue;
            }
            self.make_current(host, id, cpu);
            return Some(id);
        }
    }

    /// A waiting task becomes the current one.
    pub(super) fn make_current(&mut self, host: &Host, id: TaskId, cpu: Cpu) {
        let now = host.now();
        let rq = &mut self.cpus[cpu.index()].rq;
        rq.sync_with(&mut self.tasks, id, now);
        match self.class {
            Class::Cfs(_) => cfs::set_next(rq, &mut self.tasks, id, now),
            Class::Eevdf(_) => eevdf::set_next(rq, &mut self.tasks, id, now),
        }
        rq.touch(&mut self.tasks, id);
    }

    /// Tells a CPU to look if a task that has just been queued there should run now.
    pub(super) fn check_preempt(&mut self, host: &mut Host, id: TaskId, cpu: Cpu) {
        let prio = self.task(id).class.rt_prio();
        let state = self.cpu(cpu);
        let running = state.rt.curr.map_or(0, |(_, prio, _)| prio);
        if state.rq.curr.is_none() && state.rt.curr.is_none() {
            host.resched(cpu);
            return;
        }
        if prio > running {
            host.resched(cpu);
        }
        if prio > 0 || running > 0 || host.needs_resched(cpu) {
            return;
        }
        self.account_and_resched(host, cpu);
        let rq = &mut self.cpus[cpu.index()].rq;
        let preempts = match &self.class {
            Class::Cfs(times) => cfs::wakeup_preempts(times, rq, &self.tasks, id),
            Class::Eevdf(times) => eevdf::wakeup_preempts(times, rq, &self.tasks, id),
        };
        if preempts {
            host.resched(cpu);
        }
    }

    /// 5.6 `post_init_entity_util_avg`: a new task's utilisation: half of what is left of its CPU, or like
    /// the others there in proportion to its weight.
    pub(super) fn first_util(&mut self, id: TaskId, cpu: Cpu) {
        let rq = &self.cpus[cpu.index()].rq;
        let cap = rq.capacity.saturating_sub(rq.avg.util) / 2;
        let weight = self.tasks[id.index()].weight;
        let util = match rq.avg.util {
            _ if cap == 0 => 0,
            0 => cap,
            util => (util * weight / (rq.avg.load + 1)).min(cap),
        };
        let avg = &mut self.tasks[id.index()].avg;
        (avg.util, avg.runnable) = (util, util);
    }

    /// A task's class or nice value is another now.
    pub(super) fn change_class(&mut self, host: &mut Host, id: TaskId) {
        let (cpu, now) = (self.task(id).cpu, host.now());
        self.account(host, cpu);
        let running = host.curr(cpu) == Some(id);
        let queued = self.take_out(host, id, cpu);
        let class = host.task(id).class();
        let task = &mut self.tasks[id.index()];
        let (old, new) = (task.weight, weight::of(class));
        // The average load follows the weight at once.
        let attached = task.attached;
        self.detach_avg(host, id, cpu);
        let task = &mut self.tasks[id.index()];
        task.avg.load = task.avg.load * new / old.max(1);
        (task.class, task.weight) = (class, new);
        if attached {
            self.cpus[cpu.index()]
                .rq
                .attach_avg(&mut self.tasks, id, now);
        }
        if !queued {
            return;
        }
        let prio = class.rt_prio();
        match (prio > 0, running) {
            (true, true) => self.cpu_mut(cpu).rt.curr = Some((id, prio, now)),
            (true, false) => self.cpu_mut(cpu).rt.push(id, prio, false),
            (false, _) => self.join(host, id, cpu, Join::Move),
        }
        if running && prio == 0 {
            self.make_current(host, id, cpu);
        }
        match running {
            true => host.resched(cpu),
            false => self.check_preempt(host, id, cpu),
        }
    }

    /// Takes a task out of whatever queue of a CPU it is in. Returns whether it was in one.
    fn take_out(&mut self, host: &Host, id: TaskId, cpu: Cpu) -> bool {
        if self.cpu(cpu).rt.curr.is_some_and(|(curr, _, _)| curr == id) {
            self.cpu_mut(cpu).rt.curr = None;
            return true;
        }
        if self.cpu_mut(cpu).rt.remove(id) {
            return true;
        }
        let task = self.task(id);
        let (queued, delayed) = (task.on_rq, task.delayed);
        if queued {
            self.leave(host, id, cpu, delayed);
        }
        queued && !delayed
    }
}
