// SPDX-License-Identifier: GPL-2.0-only
//! The fair class as a [`Policy`]: what the engine's callbacks come to.

use super::config::{Config, Hints, MS};
use super::eevdf::{self, Join};
use super::reason::{Reason, NAMES};
use super::rt_above;
use super::state::{work, Fair};
use super::task::Task;
use crate::coherence::Access;
use crate::host::Host;
use crate::ids::{Cpu, Id, Nanos, TaskId};
use crate::policy::{EnqueueWhy, Leaving, Newidle, Placement, Policy, StopWhy, WakeInfo, WakeKind};

impl Fair {
    /// A model of this version as a policy.
    pub fn boxed(cfg: Config) -> Box<dyn Policy> {
        Box::new(Fair::new(cfg))
    }

    /// A real-time task, in outline (`rt_above.rs`).
    fn select_rt(&self, host: &mut Host, wake: &WakeInfo) -> (Cpu, Reason) {
        let prio = self.task(wake.task).class.rt_prio();
        let machine = host.machine().clone();
        let free = |fair: &Fair, host: &mut Host, cpu: Cpu| {
            host.access(fair.cpu(cpu).rq_line, Access::Read);
            fair.cpu(cpu).rt.top() < prio
        };
        let candidates = machine.online().iter_wrap(wake.prev);
        for cpu in candidates.take(self.nr_cpus) {
            if host.task(wake.task).may_run_on(cpu) && free(self, host, cpu) {
                return (cpu, Reason::RealTime);
            }
        }
        (wake.prev, Reason::RealTime)
    }

    /// `cpumask_any_distribute`: some CPU of the new affinity, another one each time.
    fn select_affinity(&mut self, host: &Host, wake: &WakeInfo) -> (Cpu, Reason) {
        let online = host.machine().online();
        let allowed = host.task(wake.task).allowed();
        let next = online
            .iter_wrap(Cpu(self.rotor.0 + 1))
            .find(|&c| allowed.contains(c));
        self.rotor = next.unwrap_or(wake.prev);
        (self.rotor, Reason::Affinity)
    }

    /// 6.2 DELAY_DEQUEUE: a task that never left its queue stays there, if it may.
    fn still_queued(&self, host: &Host, task: TaskId) -> Option<Cpu> {
        let me = self.task(task);
        (me.delayed && host.task(task).may_run_on(me.cpu)).then_some(me.cpu)
    }

    /// A wakeup ends a CPU's idle period: 6.1 avg_idle.
    fn note_idle_period(&mut self, now: Nanos, cpu: Cpu) {
        let state = self.cpu_mut(cpu);
        if state.idle_stamp == 0 {
            return;
        }
        let period = now.saturating_sub(state.idle_stamp);
        super::search::update_avg(&mut state.avg_idle, period);
        state.avg_idle = state.avg_idle.min(2 * state.max_idle_cost);
        state.idle_stamp = 0;
    }

    /// A task that wakes goes onto another CPU's list.
    fn send_off(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        host.access(self.cpu(cpu).rq_line, Access::Rmw);
        self.cpu_mut(cpu).pending += 1;
        self.tasks[task.index()].in_flight = true;
    }

    fn enqueue_rt(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        let prio = self.task(task).class.rt_prio();
        self.tasks[task.index()].cpu = cpu;
        self.cpu_mut(cpu).rt.push(task, prio, false);
        self.check_preempt(host, task, cpu);
    }

    fn put_prev_rt(&mut self, task: TaskId, cpu: Cpu, why: StopWhy) {
        let state = self.cpu_mut(cpu);
        let Some((_, prio, _)) = state.rt.curr.take() else {
            return;
        };
        if why.is_runnable() {
            state.rt.push(task, prio, why == StopWhy::Preempted);
        }
    }

    fn tick_rt(&mut self, host: &mut Host, cpu: Cpu) {
        let now = host.now();
        let state = self.cpu_mut(cpu);
        let Some((task, prio, since)) = state.rt.curr else {
            return;
        };
        let round_robin = matches!(
            host.task(task).class(),
            crate::program::Class::RoundRobin { .. }
        );
        let over = now.saturating_sub(since) >= rt_above::SLICE_NS;
        if round_robin && over && state.rt.top_waiting() == prio {
            host.resched(cpu);
        }
    }
}

impl Policy for Fair {
    fn name(&self) -> &str {
        &self.cfg.name
    }

    fn reasons(&self) -> &'static [&'static str] {
        NAMES
    }

    fn limits(&self) -> &'static [&'static str] {
        &["no group scheduling, NUMA balancing or energy model in the fair class"]
    }

    fn is_fair_class(&self) -> bool {
        true
    }

    fn heeds_hints(&self) -> bool {
        self.cfg.hints != Hints::default()
    }

    fn attach(&mut self, host: &mut Host) {
        self.set_up(host);
    }

    fn task_new(&mut self, host: &mut Host, task: TaskId, parent: Option<TaskId>) {
        debug_assert_eq!(task.index(), self.tasks.len());
        let cpu = host.this_cpu();
        let _ = parent;
        self.tasks.push(Task::new(host.task(task).class(), cpu));
        if let Some(times) = self.cfs() {
            let rq = &self.cpus[cpu.index()].rq;
            super::cfs::place_new(&times, rq, &mut self.tasks, task);
        }
    }

    fn task_dead(&mut self, host: &mut Host, task: TaskId) {
        let cpu = self.task(task).cpu;
        self.detach_avg(host, task, cpu);
    }

    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement {
        if let Some(cpu) = self.still_queued(host, wake.task) {
            return Placement {
                cpu,
                reason: Reason::Delayed as u16,
            };
        }
        let rt = self.task(wake.task).is_rt();
        let (mut cpu, mut reason) = match wake.kind {
            WakeKind::Affinity => self.select_affinity(host, wake),
            _ if rt => self.select_rt(host, wake),
            WakeKind::Wake => self.select_wake(host, wake),
            WakeKind::Fork | WakeKind::Exec => self.select_fork(host, wake),
        };
        if !host.task(wake.task).may_run_on(cpu) {
            (cpu, reason) = (self.fallback(host, wake.task, cpu), Reason::Fallback);
        }
        if wake.kind == WakeKind::Wake && reason == Reason::Busy {
            host.count(self.counters.stacked, 1);
        }
        Placement {
            cpu,
            reason: reason as u16,
        }
    }

    /// 6.3 TTWU_QUEUE: across LLCs; 6.0 and later also to a CPU with nothing to run.
    fn remote_wake(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, waker_cpu: Cpu) -> bool {
        let me = self.task(task);
        if me.delayed || !me.attached {
            return false; // never left, or new
        }
        let idle = self.cfg.queue_to_idle && self.nr_seen(cpu) == 0;
        let queue = idle || !self.same_llc(cpu, waker_cpu);
        if queue {
            self.send_off(host, task, cpu);
        }
        queue
    }

    /// 6.3 TTWU_QUEUE of a task whose CPU is in `schedule()`: across LLCs, or if that has nothing else to run. Before 6.0
    /// one other task did not count.
    fn wake_leaving(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, waker_cpu: Cpu) -> Leaving {
        if self.task(task).delayed {
            return Leaving::Never;
        }
        let others = u32::from(!self.cfg.queue_to_idle);
        if self.same_llc(cpu, waker_cpu) && self.nr_seen(cpu) > others {
            return Leaving::Wait;
        }
        self.send_off(host, task, cpu);
        Leaving::Queue
    }

    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: EnqueueWhy) {
        if std::mem::take(&mut self.tasks[task.index()].in_flight) {
            self.cpu_mut(cpu).pending -= 1;
        }
        let taken = host.lock(self.cpu(cpu).rq_line);
        host.charge(work::QUEUE_NS);
        let (kind, join) = match why {
            EnqueueWhy::Moved => (WakeKind::Affinity, Join::Move),
            EnqueueWhy::Placed { kind, .. } => match kind {
                WakeKind::Wake => (kind, Join::Wake),
                WakeKind::Fork => (kind, Join::Fork),
                WakeKind::Exec | WakeKind::Affinity => (kind, Join::Move),
            },
        };
        if kind == WakeKind::Wake {
            self.note_idle_period(host.now(), cpu);
        }
        let me = self.task(task);
        if me.delayed && me.cpu != cpu {
            let old = me.cpu;
            self.account_and_resched(host, old);
            self.leave(host, task, old, true);
        }
        if self.task(task).is_rt() {
            self.enqueue_rt(host, task, cpu);
        } else if self.task(task).delayed {
            self.account_and_resched(host, cpu);
            let rq = &mut self.cpus[cpu.index()].rq;
            rq.sync_with(&mut self.tasks, task, host.now());
            eevdf::revive(rq, &mut self.tasks, task, self.tick_ns);
            self.check_preempt(host, task, cpu);
        } else {
            if kind == WakeKind::Fork {
                self.first_util(task, cpu);
            }
            self.join(host, task, cpu, join);
            self.check_preempt(host, task, cpu);
        }
        host.access(self.cpu(cpu).load_line, Access::Write);
        host.unlock(self.cpu(cpu).rq_line, taken);
    }

    fn dequeue(&mut self, host: &mut Host, task: TaskId) {
        let cpu = self.task(task).cpu;
        let taken = host.lock(self.cpu(cpu).rq_line);
        host.charge(work::QUEUE_NS);
        if !self.cpu_mut(cpu).rt.remove(task) {
            self.account_and_resched(host, cpu);
            self.leave(host, task, cpu, false);
            self.detach_avg(host, task, cpu);
        }
        host.unlock(self.cpu(cpu).rq_line, taken);
    }

    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        host.charge(work::PICK_NS);
        let taken = host.lock(self.cpu(cpu).rq_line);
        let now = host.now();
        let state = self.cpu_mut(cpu);
        let mut next = None;
        if let Some((task, prio)) = state.rt.pop() {
            state.rt.curr = Some((task, prio, now));
            next = Some(task);
        }
        let next = next.or_else(|| self.run_next(host, cpu));
        host.access(self.cpu(cpu).load_line, Access::Write);
        host.unlock(self.cpu(cpu).rq_line, taken);
        self.update_misfit(host, cpu);
        next
    }

    fn newidle(&mut self, host: &mut Host, cpu: Cpu, prev: Option<TaskId>) -> Newidle {
        self.search_newly_idle(host, cpu, prev.is_some())
    }

    fn put_prev(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        let taken = host.lock(self.cpu(cpu).rq_line);
        if self.cpu(cpu).rt.curr.is_some() {
            self.put_prev_rt(task, cpu, why);
            host.unlock(self.cpu(cpu).rq_line, taken);
            return;
        }
        // A slice that ends now needs no reschedule: this is one.
        self.account(host, cpu);
        match why {
            StopWhy::Preempted => self.wait_again(host, task, cpu),
            StopWhy::Yielded => {
                self.yields(cpu);
                self.wait_again(host, task, cpu);
            }
            StopWhy::Slept => {
                host.charge(work::QUEUE_NS);
                self.sleep(host, task, cpu);
            }
            StopWhy::Exited => {
                host.charge(work::QUEUE_NS);
                self.leave(host, task, cpu, true);
            }
            StopWhy::Moved => {
                host.charge(work::QUEUE_NS);
                self.leave(host, task, cpu, false);
                self.detach_avg(host, task, cpu);
            }
        }
        host.unlock(self.cpu(cpu).rq_line, taken);
    }

    fn tick(&mut self, host: &mut Host, cpu: Cpu, curr: TaskId) {
        let taken = host.lock(self.cpu(cpu).rq_line);
        if self.cpu(cpu).rt.curr.is_some() {
            self.tick_rt(host, cpu);
        } else {
            self.account_and_resched(host, cpu);
            let rq = &mut self.cpus[cpu.index()].rq;
            rq.sync_with(&mut self.tasks, curr, host.now());
            if let Some(times) = self.cfs() {
                let rq = &mut self.cpus[cpu.index()].rq;
                if super::cfs::tick(&times, rq, &self.tasks) {
                    host.resched(cpu);
                }
            }
            self.update_misfit(host, cpu);
        }
        host.access(self.cpu(cpu).load_line, Access::Write);
        host.unlock(self.cpu(cpu).rq_line, taken);
        self.mask_busy_tick(host, cpu);
        self.balance_tick(host, cpu);
        self.nohz_kick(host, cpu);
    }

    fn idle_tick(&mut self, host: &mut Host, cpu: Cpu) {
        self.balance_tick(host, cpu);
    }

    fn idle_enter(&mut self, host: &mut Host, cpu: Cpu, again: bool) {
        if again {
            return;
        }
        self.cpu_mut(cpu).has_blocked = true;
        self.nohz.has_blocked = true;
        self.note_idle_core(host, cpu);
        self.mask_idle_entry(host, cpu);
    }

    fn tick_stopped(&mut self, host: &mut Host, cpu: Cpu) {
        self.mask_tick_stopped(host, cpu);
    }

    fn ipi(&mut self, host: &mut Host, cpu: Cpu, cookie: u64) {
        self.nohz_balance(host, cpu, cookie);
    }

    fn stopper(&mut self, host: &mut Host, cpu: Cpu, cookie: u64) {
        let _ = cookie;
        self.active_balance(host, cpu);
    }

    fn class_changed(&mut self, host: &mut Host, task: TaskId) {
        self.change_class(host, task);
    }

    /// 6.5: within an LLC of equal CPUs, idle CPUs look every 2 ms per CPU of it at the latest, and a queue
    /// that resists gives in after five failures or so; a few queues may be in line before it. Elsewhere the
    /// rules allow imbalances that last.
    fn idle_bound_ns(&self, host: &Host, task: TaskId, cpu: Cpu) -> Option<Nanos> {
        let at = host.task(task).cpu();
        let (here, there) = (self.cpu(cpu), self.cpu(at));
        let priority = &self.domains.strengths.priority;
        let equal = here.rq.capacity == there.rq.capacity
            && priority[cpu.index()] == priority[at.index()]
            && self.same_llc(cpu, at);
        let rt = self.task(task).is_rt() || there.rt.nr() > 0;
        let weight = self.domains.llc_of(cpu)?.weight();
        (equal && !rt).then_some((32 * weight + 64) * MS)
    }
}
