// SPDX-License-Identifier: GPL-2.0-only
//! Mutexes, priority inheritance, and changes of class.

use crate::ids::TaskId;
use crate::policy::Host;
use crate::program::{Action, Class};
use crate::task::{State, Todo, WaitsFor};
use crate::world::{Cond, Mutex, MutexKind};
use crate::Simulation;

/// Longest chain of owners that wait for each other's mutexes (the kernel's `max_lock_depth` is 1024).
const CHAIN_MAX: usize = 1024;

impl Simulation {
    pub(crate) fn lock(&mut self, me: TaskId, mutex: Mutex) {
        let host = &mut self.host;
        host.charge(host.machine.costs().n.mutex_ns);
        host.touch(|world| &mut world.mutexes[mutex.index()].line);
        let state = &mut host.world.mutexes[mutex.index()];
        match state.owner {
            None => {
                state.owner = Some(me);
                if state.kind == MutexKind::PriorityInheritance {
                    host.task_mut(me).held_pi.push(mutex);
                }
            }
            Some(owner) if owner == me => {
                self.fail_workload(me, format!("locks mutex {mutex}, which it holds already"));
            }
            Some(owner) => {
                state.waiters.push(&mut host.tasks, me);
                let pi = state.kind == MutexKind::PriorityInheritance;
                host.enter(host.machine.costs().n.futex_ns);
                // An ordinary mutex has to be competed for again; the other kind is handed over.
                let after = if pi {
                    Todo::Next
                } else {
                    Todo::Resume(Action::Lock(mutex))
                };
                host.block(me, WaitsFor::Mutex(mutex), after);
                if pi {
                    self.reconsider_class(owner);
                }
            }
        }
    }

    pub(crate) fn unlock(&mut self, me: TaskId, mutex: Mutex) {
        let host = &mut self.host;
        host.charge(host.machine.costs().n.mutex_ns);
        host.touch(|world| &mut world.mutexes[mutex.index()].line);
        let state = &mut host.world.mutexes[mutex.index()];
        if state.owner != Some(me) {
            self.fail_workload(me, format!("unlocks mutex {mutex}, which it does not hold"));
            return;
        }
        state.owner = None;
        let pi = state.kind == MutexKind::PriorityInheritance;
        let next = if pi {
            host.top_waiter(mutex)
        } else {
            state.waiters.first()
        };
        if let Some(next) = next {
            host.world.mutexes[mutex.index()]
                .waiters
                .remove(&mut host.tasks, next);
            host.enter(host.machine.costs().n.futex_ns);
            host.will_wake(me, next, false);
        }
        if pi {
            host.task_mut(me).held_pi.retain(|&m| m != mutex);
            if let Some(next) = next {
                host.world.mutexes[mutex.index()].owner = Some(next);
                host.task_mut(next).held_pi.push(mutex);
                self.reconsider_class(next);
            }
            self.reconsider_class(me);
        }
    }

    pub(crate) fn cond_wait(&mut self, me: TaskId, cond: Cond, mutex: Mutex) {
        self.host.enter(self.host.machine.costs().n.futex_ns);
        self.host.touch(|world| &mut world.conds[cond.index()].line);
        self.unlock(me, mutex);
        let host = &mut self.host;
        host.world.conds[cond.index()]
            .waiters
            .push(&mut host.tasks, me);
        host.block(
            me,
            WaitsFor::Cond(cond, mutex),
            Todo::Resume(Action::Lock(mutex)),
        );
    }

    /// Brings a task's class in line with its own and with who waits for it, and tells the policy; then
    /// the same for whom it waits for, and so on.
    pub(crate) fn reconsider_class(&mut self, task: TaskId) {
        let mut task = task;
        for _ in 0..CHAIN_MAX {
            let class = self.host.class_in_force(task);
            if class == self.host.task(task).class {
                return;
            }
            self.host.task_mut(task).class = class;
            if self.host.task(task).state != State::Dead {
                self.ask_policy(|policy, host| policy.class_changed(host, task));
            }
            let WaitsFor::Mutex(mutex) = self.host.task(task).waits_for else {
                return;
            };
            let state = &self.host.world.mutexes[mutex.index()];
            match (state.kind, state.owner) {
                (MutexKind::PriorityInheritance, Some(owner)) => task = owner,
                _ => return,
            }
        }
    }
}

impl Host {
    /// The waiter of highest priority; of equals the first.
    fn top_waiter(&self, mutex: Mutex) -> Option<TaskId> {
        let waiters = self.world.mutexes[mutex.index()].waiters.iter(&self.tasks);
        waiters.fold(None, |top: Option<TaskId>, t| {
            let prio = |t: TaskId| self.task(t).class.rt_prio();
            top.filter(|top| prio(*top) >= prio(t)).or(Some(t))
        })
    }

    /// Its own class, or the real-time priority of the first in line for a mutex it holds.
    fn class_in_force(&self, task: TaskId) -> Class {
        let t = self.task(task);
        let boost = t.held_pi.iter().filter_map(|m| {
            let waiters = &self.world.mutexes[m.index()].waiters;
            waiters
                .iter(&self.tasks)
                .map(|w| self.task(w).class.rt_prio())
                .max()
        });
        match boost.max() {
            Some(prio) if prio > t.own_class.rt_prio() => Class::Fifo { prio },
            _ => t.own_class,
        }
    }
}
