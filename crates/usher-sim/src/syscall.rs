// SPDX-License-Identifier: GPL-2.0-only
//! What actions do.
//!
//! An action charges its cost, changes the objects it is about, and leaves in [`Task::todo`] what comes
//! next: the next action; sleep, with [`Task::after`] for when it is over; or a resumption. Tasks to wake
//! go to [`Task::to_wake`]; they are woken one after another before anything else happens.

use std::sync::Arc;

use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::ids::{Cpu, LineId, Nanos, TaskId};
use crate::policy::{Host, WakeKind};
use crate::program::{Action, Outcome, TaskSpec};
use crate::sched::WORK_SHIFT;
use crate::shared::End;
use crate::state::{TimerEntry, TimerKind};
use crate::task::{Left, Task, Todo, WaitsFor};
use crate::world::{ChannelSpec, World};
use crate::Simulation;

/// Work of one `Compute` beyond this would overflow; some 19 hours. No `Spin` is longer either.
const WORK_MAX: Nanos = 1 << 46;

impl Simulation {
    /// Does an action of the task that runs on `cpu`.
    pub(crate) fn act(&mut self, cpu: Cpu, me: TaskId, action: Action) {
        let host = &mut self.host;
        host.task_mut(me).todo = Todo::Next;
        match action {
            Action::Compute(ns) => self.compute(me, ns),
            Action::Spin(ns) => self.spin(me, ns),
            Action::Sleep(ns) => host.sleep(cpu, me, ns),
            Action::SleepUntil(at) => match at.checked_sub(host.now).filter(|ns| *ns > 0) {
                Some(ns) => host.sleep(cpu, me, ns),
                None => host.enter(host.machine.costs().n.sleep_ns),
            },
            Action::Fork(spec) => self.fork(me, *spec),
            Action::Exec(ns) => self.exec(cpu, me, ns),
            Action::WaitChild(child) => host.wait_child(me, Some(child)),
            Action::WaitAnyChild => host.wait_child(me, None),
            Action::Exit => host.exit(me),
            Action::FutexWait {
                futex,
                expected,
                timeout,
            } => {
                host.futex_wait(cpu, me, futex, expected, timeout);
            }
            Action::FutexWake { futex, count } => host.futex_wake(me, futex, count),
            Action::Read {
                channel,
                bytes,
                exact,
            } => {
                let spec = host.world.channels[channel.index()].spec;
                host.enter_file(spec, spec.read_ns);
                host.count_file(me, channel, End::Reads);
                host.read(me, channel, bytes, exact, false);
                host.put_file(me, channel, End::Reads);
            }
            Action::Write { channel, bytes } => {
                let spec = host.world.channels[channel.index()].spec;
                host.enter_file(spec, spec.write_ns);
                host.count_file(me, channel, End::Writes);
                host.write(me, channel, bytes, false);
                host.put_file(me, channel, End::Writes);
            }
            Action::Poll(channels) => {
                host.enter(0);
                host.poll(me, channels);
            }
            Action::Lock(mutex) => self.lock(me, mutex),
            Action::Unlock(mutex) => self.unlock(me, mutex),
            Action::Barrier(barrier) => host.barrier(me, barrier),
            Action::SemDown(semaphore) => host.sem_down(me, semaphore),
            Action::SemUp(semaphore, n) => host.sem_up(me, semaphore, n),
            Action::CondWait(cond, mutex) => self.cond_wait(me, cond, mutex),
            Action::CondSignal(cond) => host.cond_wake(me, cond, false),
            Action::CondBroadcast(cond) => host.cond_wake(me, cond, true),
            Action::Yield => {
                host.enter(0);
                host.task_mut(me).todo = Todo::Yield;
            }
            Action::SetAffinity(set) => self.set_affinity(me, me, set),
            Action::SetAffinityOf(task, set) => self.set_affinity(me, task, set),
            Action::SetHint(hint) => {
                host.enter(host.machine.costs().n.sched_ns);
                host.task_mut(me).hint = hint;
            }
            Action::SetClass(class) => {
                host.enter(host.machine.costs().n.sched_ns);
                host.task_mut(me).own_class = class;
                self.reconsider_class(me);
            }
            Action::Io(ns) => {
                host.enter(host.machine.costs().n.io_ns);
                host.block(me, WaitsFor::Io, Todo::Next);
                host.wake_me_after(cpu, me, ns, 0);
            }
        }
    }

    /// Goes on with an action that slept half way: the task has not left the kernel, but has to take the
    /// locks again. (Who asks again for a mutex comes from user space.)
    pub(crate) fn resume(&mut self, cpu: Cpu, me: TaskId, action: Action) {
        let host = &mut self.host;
        host.task_mut(me).todo = Todo::Next;
        let locks = host.machine.costs().n.rw_ns / 2;
        match action {
            Action::Read {
                channel,
                bytes,
                exact,
            } => {
                host.charge(locks);
                host.read(me, channel, bytes, exact, true);
                host.put_file(me, channel, End::Reads);
            }
            Action::Write { channel, bytes } => {
                host.charge(locks);
                host.write(me, channel, bytes, true);
                host.put_file(me, channel, End::Writes);
            }
            Action::Poll(channels) => host.poll(me, channels),
            lock => self.act(cpu, me, lock),
        }
    }

    fn compute(&mut self, me: TaskId, ns: Nanos) {
        if ns > WORK_MAX {
            self.fail_workload(me, format!("computes for {ns} ns; the most is {WORK_MAX}"));
            return;
        }
        let task = self.host.task_mut(me);
        task.work_left = ns << WORK_SHIFT;
        task.work_asked += task.work_left;
        task.todo = if ns == 0 { Todo::Next } else { Todo::Compute };
    }

    fn spin(&mut self, me: TaskId, ns: Nanos) {
        if ns > WORK_MAX {
            self.fail_workload(me, format!("spins for {ns} ns; the most is {WORK_MAX}"));
            return;
        }
        self.host.task_mut(me).todo = Todo::Spin(self.host.now + ns);
    }

    fn fork(&mut self, me: TaskId, spec: TaskSpec) {
        let n = &self.host.machine.costs().n;
        let cost = if spec.thread { n.thread_ns } else { n.fork_ns };
        self.host.charge(cost);
        if let Some(child) = self.create(Some(me), 0, spec) {
            self.host.task_mut(me).outcome = Outcome::Child(child);
            self.place(child, WakeKind::Fork, Some(me), false);
        }
    }

    fn exec(&mut self, cpu: Cpu, me: TaskId, ns: Nanos) {
        self.host.enter(self.host.machine.costs().n.exec_ns);
        self.compute(me, ns);
        let Some(to) = self.choose(me, WakeKind::Exec, Some(me), false) else {
            return;
        };
        let task = self.host.task_mut(me);
        // A new image: nothing of it is in any cache, and its memory is where it runs from now on.
        (task.left, task.last_ran) = (Left::NOWHERE, None);
        if to != cpu {
            task.after = std::mem::replace(&mut task.todo, Todo::Move(to));
        } else {
            task.last_ran = Some(cpu);
            let machine = Arc::clone(&self.host.machine);
            self.caches.enter(&machine, cpu, self.host.task_mut(me));
            self.host.task_mut(me).home = machine.cpu(cpu).node;
        }
    }

    fn set_affinity(&mut self, me: TaskId, task: TaskId, set: Arc<CpuSet>) {
        self.host.enter(self.host.machine.costs().n.sched_ns);
        if task.index() >= self.host.tasks.len() {
            self.fail_workload(
                me,
                format!("sets the affinity of task {task}, which does not exist"),
            );
            return;
        }
        let nr = set.and(self.host.machine.online()).len() as u32;
        if nr == 0 {
            self.fail_workload(
                me,
                format!("wants to run on {set:?}, where no CPU is online"),
            );
            return;
        }
        let t = self.host.task_mut(task);
        (t.allowed, t.nr_allowed) = (set, nr);
        self.affinity_changed(task, me);
    }
}

impl Host {
    #[inline]
    pub(crate) fn task_mut(&mut self, task: TaskId) -> &mut Task {
        &mut self.tasks[task.index()]
    }

    /// Charges a system call.
    #[inline]
    pub(crate) fn enter(&mut self, beyond: Nanos) {
        self.charge(self.machine.costs().n.syscall_ns + beyond);
    }

    /// Charges a system call on a pipe or socket, with its protocol.
    fn enter_file(&mut self, spec: ChannelSpec, protocol: Nanos) {
        let n = &self.machine.costs().n;
        let unix = if spec.unix { n.unix_ns } else { 0 };
        self.enter(n.rw_ns + unix + protocol);
    }

    /// Charges an access to an object's line, which is made on first use.
    pub(crate) fn touch(&mut self, slot: impl Fn(&mut World) -> &mut Option<LineId>) {
        let line = match *slot(&mut self.world) {
            Some(line) => line,
            None => {
                let line = self.lines.add(self.object_class, None);
                *slot(&mut self.world) = Some(line);
                line
            }
        };
        self.access(line, Access::Rmw);
    }

    /// The task goes to sleep when its system call is done, and does `after` once woken.
    pub(crate) fn block(&mut self, me: TaskId, waits_for: WaitsFor, after: Todo) {
        let task = self.task_mut(me);
        task.waits_for = waits_for;
        task.todo = Todo::Sleep;
        task.after = after;
        task.timed = false;
        task.woken = false;
    }

    /// Arms the timer that ends a sleep, on the CPU where the task runs.
    pub(crate) fn wake_me_after(&mut self, cpu: Cpu, me: TaskId, ns: Nanos, slack: Nanos) {
        let soft = self.now() + ns;
        let task = self.task_mut(me);
        task.timed = true;
        let kind = TimerKind::Task(me, task.wait_gen);
        self.arm_timer(
            cpu,
            TimerEntry {
                hard: soft + slack,
                soft,
                kind,
            },
        );
    }

    pub(crate) fn slack(&self, me: TaskId) -> Nanos {
        match self.task(me).own_class.rt_prio() {
            0 => self.machine.costs().n.timer_slack_ns,
            _ => 0,
        }
    }

    fn sleep(&mut self, cpu: Cpu, me: TaskId, ns: Nanos) {
        self.enter(self.machine.costs().n.sleep_ns);
        self.block(me, WaitsFor::Timer, Todo::Next);
        // The time asked for counts from the call, not from when the timer is armed.
        let ns = ns.saturating_sub(self.charged);
        let slack = self.slack(me);
        self.wake_me_after(cpu, me, ns, slack);
    }

    /// Lets `who` be woken by `me`, after what is to be woken already.
    pub(crate) fn will_wake(&mut self, me: TaskId, who: TaskId, sync: bool) {
        let mut list = self.task(me).to_wake;
        list.push(&mut self.tasks, who);
        let waker = self.task_mut(me);
        waker.to_wake = list;
        waker.to_wake_sync = sync;
        // It does not wait for it any more: a timeout comes too late from here on.
        let sleeper = self.task_mut(who);
        sleeper.waits_for = WaitsFor::Nothing;
        sleeper.wait_gen = sleeper.wait_gen.wrapping_add(1);
    }
}
