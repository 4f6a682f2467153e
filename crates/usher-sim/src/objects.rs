// SPDX-License-Identifier: GPL-2.0-only
//! Futexes, semaphores, barriers, condition variables, children.

use crate::ids::{Cpu, Nanos, TaskId};
use crate::policy::Host;
use crate::program::Outcome;
use crate::task::{State, Todo, WaitsFor};
use crate::world::{Barrier, Cond, Futex, Object, Semaphore};

impl Host {
    // ---- futexes ----

    pub(crate) fn futex_wait(
        &mut self,
        cpu: Cpu,
        me: TaskId,
        futex: Futex,
        expected: u64,
        timeout: Option<Nanos>,
    ) {
        self.enter(self.machine.costs().n.futex_ns);
        self.touch(|world| &mut world.futexes[futex.index()].line);
        let state = &mut self.world.futexes[futex.index()];
        if state.value != expected {
            return;
        }
        state.waiters.push(&mut self.tasks, me);
        self.block(me, WaitsFor::Futex(futex), Todo::Next);
        if let Some(ns) = timeout {
            let slack = self.slack(me);
            self.wake_me_after(cpu, me, ns, slack);
        }
    }

    pub(crate) fn futex_wake(&mut self, me: TaskId, futex: Futex, count: u32) {
        self.enter(self.machine.costs().n.futex_ns);
        self.touch(|world| &mut world.futexes[futex.index()].line);
        let mut woken = 0;
        while woken < count {
            let Some(who) = self.world.futexes[futex.index()]
                .waiters
                .pop(&mut self.tasks)
            else {
                break;
            };
            self.will_wake(me, who, false);
            woken += 1;
        }
        self.task_mut(me).outcome = Outcome::Count(woken);
    }

    // ---- semaphores, barriers, condition variables ----

    pub(crate) fn sem_down(&mut self, me: TaskId, semaphore: Semaphore) {
        self.enter(self.machine.costs().n.sem_ns);
        self.touch(|world| &mut world.semaphores[semaphore.index()].line);
        let state = &mut self.world.semaphores[semaphore.index()];
        if state.value > 0 {
            state.value -= 1;
            return;
        }
        state.waiters.push(&mut self.tasks, me);
        self.block(me, WaitsFor::Semaphore(semaphore), Todo::Next);
    }

    /// As the kernel does for System V semaphores, the waker takes the unit on the sleeper's behalf.
    pub(crate) fn sem_up(&mut self, me: TaskId, semaphore: Semaphore, n: u32) {
        self.enter(self.machine.costs().n.sem_ns);
        self.touch(|world| &mut world.semaphores[semaphore.index()].line);
        self.world.semaphores[semaphore.index()].value += u64::from(n);
        while self.world.semaphores[semaphore.index()].value > 0 {
            let state = &mut self.world.semaphores[semaphore.index()];
            let Some(who) = state.waiters.pop(&mut self.tasks) else {
                break;
            };
            state.value -= 1;
            self.will_wake(me, who, false);
        }
    }

    pub(crate) fn barrier(&mut self, me: TaskId, barrier: Barrier) {
        self.enter(self.machine.costs().n.futex_ns);
        self.touch(|world| &mut world.barriers[barrier.index()].line);
        let state = &mut self.world.barriers[barrier.index()];
        state.arrived += 1;
        if state.arrived < state.parties {
            state.waiters.push(&mut self.tasks, me);
            self.block(me, WaitsFor::Barrier(barrier), Todo::Next);
            return;
        }
        state.arrived = 0;
        while let Some(who) = self.world.barriers[barrier.index()]
            .waiters
            .pop(&mut self.tasks)
        {
            self.will_wake(me, who, false);
        }
    }

    pub(crate) fn cond_wake(&mut self, me: TaskId, cond: Cond, all: bool) {
        self.touch(|world| &mut world.conds[cond.index()].line);
        let n = &self.machine.costs().n;
        // Nobody there: found out in user space.
        let nobody = self.world.conds[cond.index()].waiters.first().is_none();
        self.charge(if nobody {
            n.mutex_ns
        } else {
            n.syscall_ns + n.futex_ns
        });
        while let Some(who) = self.world.conds[cond.index()].waiters.pop(&mut self.tasks) {
            self.will_wake(me, who, false);
            if !all {
                break;
            }
        }
    }

    // ---- children ----

    pub(crate) fn wait_child(&mut self, me: TaskId, child: Option<TaskId>) {
        self.enter(self.machine.costs().n.wait_ns);
        let task = self.task_mut(me);
        let found = match child {
            Some(child) => task.dead_children.iter().position(|&c| c == child),
            None => (!task.dead_children.is_empty()).then_some(0),
        };
        if let Some(place) = found {
            let dead = task
                .dead_children
                .remove(place)
                .expect("the place was just found");
            task.outcome = Outcome::Child(dead);
        } else if task.live_children == 0 || child.is_some_and(|c| !self.is_child_alive(me, c)) {
            self.task_mut(me).outcome = Outcome::NoChild;
        } else {
            self.block(me, WaitsFor::Child(child), Todo::Next);
        }
    }

    fn is_child_alive(&self, me: TaskId, child: TaskId) -> bool {
        let task = self.tasks.get(child.index());
        task.is_some_and(|c| c.parent == Some(me) && c.state != State::Dead && !c.exiting)
    }

    pub(crate) fn exit(&mut self, me: TaskId) {
        let n = &self.machine.costs().n;
        let is_thread = self.task(me).space != me;
        self.enter(if is_thread {
            n.thread_exit_ns
        } else {
            n.exit_ns
        });
        let task = self.task_mut(me);
        task.todo = Todo::Exit;
        task.exiting = true;
        let Some(parent) = task.parent.filter(|p| self.task(*p).state != State::Dead) else {
            return;
        };
        let p = self.task_mut(parent);
        p.live_children -= 1;
        match p.waits_for {
            WaitsFor::Child(None) => {}
            WaitsFor::Child(Some(child)) if child == me => {}
            _ => {
                p.dead_children.push_back(me);
                return;
            }
        }
        p.outcome = Outcome::Child(me);
        // __wake_up_parent() is synchronous. Who joins a thread waits on a futex.
        self.will_wake(me, parent, !is_thread);
    }

    // ---- leaving a queue early ----

    /// Takes a task off the queues it waits in: its timeout came first, or one of several things did.
    pub(crate) fn unqueue_waiter(&mut self, me: TaskId) {
        let world = &mut self.world;
        match self.tasks[me.index()].waits_for.clone() {
            WaitsFor::Futex(f) => world.futexes[f.index()].waiters.remove(&mut self.tasks, me),

            WaitsFor::Poll(channels) => {
                for channel in channels.iter() {
                    world.channels[channel.index()].pollers.retain(|&t| t != me);
                }
            }
            // The others have no timeout and wait for one thing only.
            _ => {}
        }
    }

    /// One line about what a task waits for.
    pub(crate) fn describe_wait(&self, me: TaskId) -> String {
        let name = |t: TaskId| format!("task {t} `{}`", self.tasks[t.index()].name);
        let object = |object| self.world.describe(object);
        let task = &self.tasks[me.index()];
        let what = match &task.waits_for {
            WaitsFor::Nothing => format!("nothing ({:?})", task.state),
            WaitsFor::Timer => "a timer".into(),
            WaitsFor::Io => "a device".into(),
            WaitsFor::Futex(f) => object(Object::Futex(*f)),
            WaitsFor::Read(c) => format!("data in {}", object(Object::Channel(*c))),
            WaitsFor::Write(c) => format!("room in {}", object(Object::Channel(*c))),
            WaitsFor::Poll(channels) => match &channels[..] {
                [one] => format!("data in {}", object(Object::Channel(*one))),
                many => format!("data in one of {} channels", many.len()),
            },
            WaitsFor::Mutex(m) => {
                let holder = match self.world.mutexes[m.index()].owner {
                    Some(owner) => name(owner),
                    None => "nobody".into(),
                };
                format!("{}, held by {holder}", object(Object::Mutex(*m)))
            }
            WaitsFor::Cond(c, _) => object(Object::Cond(*c)),
            WaitsFor::Barrier(b) => {
                let state = &self.world.barriers[b.index()];
                format!(
                    "{}, where {} of {} have arrived",
                    object(Object::Barrier(*b)),
                    state.arrived,
                    state.parties
                )
            }
            WaitsFor::Semaphore(s) => object(Object::Semaphore(*s)),
            WaitsFor::Child(Some(child)) => format!("the end of {}", name(*child)),
            WaitsFor::Child(None) => format!("the end of one of {} children", task.live_children),
        };
        format!("{} waits for {what}", name(me))
    }
}
