// SPDX-License-Identifier: GPL-2.0-only
//! Futexes, channels, semaphores, barriers, condition variables, children.

use std::sync::Arc;

use crate::ids::{Cpu, Nanos, TaskId};
use crate::machine::Distance;
use crate::policy::Host;
use crate::program::{Action, Outcome};
use crate::task::{State, Todo, WaitsFor};
use crate::world::{Barrier, Channel, ChannelState, Cond, Futex, Object, Semaphore};

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

    // ---- channels ----

    fn channel(&mut self, channel: Channel) -> &mut ChannelState {
        &mut self.world.channels[channel.index()]
    }

    pub(crate) fn read(&mut self, cpu: Cpu, me: TaskId, channel: Channel, bytes: u64, exact: bool) {
        let protocol = self.channel(channel).spec.protocol_ns;
        self.enter(self.machine.costs().n.rw_ns + protocol);
        self.touch(|world| &mut world.channels[channel.index()].line);
        let state = self.channel(channel);
        let (taken, from) = (state.bytes.min(bytes), state.last_writer);
        if taken > 0 {
            // The last byte gives back all bookkeeping.
            state.used = (u128::from(state.used) * u128::from(state.bytes - taken)
                / u128::from(state.bytes)) as u64;
            state.bytes -= taken;
            self.copy(cpu, taken, from);
            self.wake_writers(me, channel);
        }
        let task = self.task_mut(me);
        task.partial += taken;
        if bytes > taken && (exact || task.partial == 0) {
            let rest = Action::Read {
                channel,
                bytes: bytes - taken,
                exact,
            };
            self.world.channels[channel.index()]
                .readers
                .push(&mut self.tasks, me);
            self.block(me, WaitsFor::Read(channel), Todo::Resume(rest));
            return;
        }
        task.outcome = Outcome::Bytes(std::mem::take(&mut task.partial));
        // Pass the turn on if there is more.
        if self.channel(channel).bytes > 0 {
            self.wake_reader(me, channel);
        }
    }

    pub(crate) fn write(&mut self, cpu: Cpu, me: TaskId, channel: Channel, bytes: u64) {
        let protocol = self.channel(channel).spec.protocol_ns;
        self.enter(self.machine.costs().n.rw_ns + protocol);
        self.touch(|world| &mut world.channels[channel.index()].line);
        let state = self.channel(channel);
        let overhead = state.spec.overhead;
        let room = state.spec.capacity.saturating_sub(state.used);
        // A message larger than the whole buffer goes in pieces; so does one that fits in part.
        let piece = if state.used == 0 {
            bytes.min(room.max(1))
        } else {
            bytes.min(room.saturating_sub(overhead))
        };
        if piece > 0 || bytes == 0 {
            state.bytes += piece;
            state.used += piece + overhead;
            state.last_writer = Some(cpu);
            self.copy(cpu, piece, None);
            self.wake_reader(me, channel);
            self.wake_pollers(me, channel);
        }
        if piece < bytes {
            let rest = Action::Write {
                channel,
                bytes: bytes - piece,
            };
            self.world.channels[channel.index()]
                .writers
                .push(&mut self.tasks, me);
            self.block(me, WaitsFor::Write(channel), Todo::Resume(rest));
            return;
        }
        let state = self.channel(channel);
        let more_room = state.used + state.spec.overhead < state.spec.capacity;
        if more_room && !state.spec.writers_wake_all {
            self.wake_writers(me, channel);
        }
    }

    /// Charges copying data that the caches of another CPU hold.
    fn copy(&mut self, cpu: Cpu, bytes: u64, from: Option<Cpu>) {
        let n = &self.machine.costs().n;
        let distance = from.map_or(Distance::Same, |from| self.machine.distance(cpu, from));
        let per_kib = match distance {
            Distance::Same | Distance::Core | Distance::Llc => n.copy_llc_ns_per_kib,
            Distance::Node => n.copy_node_ns_per_kib,
            Distance::Remote => n.copy_remote_ns_per_kib,
        };
        self.charge(bytes * per_kib / 1024);
    }

    fn wake_reader(&mut self, me: TaskId, channel: Channel) {
        let state = &mut self.world.channels[channel.index()];
        let sync = state.spec.sync;
        if let Some(who) = state.readers.pop(&mut self.tasks) {
            self.will_wake(me, who, sync);
        }
    }

    fn wake_pollers(&mut self, me: TaskId, channel: Channel) {
        let sync = self.channel(channel).spec.sync;
        while let Some(&who) = self.channel(channel).pollers.first() {
            self.unqueue_waiter(who);
            self.will_wake(me, who, sync);
        }
    }

    fn wake_writers(&mut self, me: TaskId, channel: Channel) {
        let state = self.channel(channel);
        let spec = state.spec;
        let mark =
            (u128::from(spec.capacity) * u128::from(spec.writers_wake_permille) / 1000) as u64;
        if state.used > mark {
            return;
        }
        let channel = channel.index();
        while let Some(who) = self.world.channels[channel].writers.pop(&mut self.tasks) {
            self.will_wake(me, who, spec.sync);
            if !spec.writers_wake_all {
                break;
            }
        }
    }

    pub(crate) fn poll(&mut self, me: TaskId, channels: Arc<[Channel]>) {
        self.enter(self.machine.costs().n.poll_ns * channels.len() as u64);
        let ready = channels.iter().position(|c| self.channel(*c).bytes > 0);
        if let Some(index) = ready {
            self.task_mut(me).outcome = Outcome::Index(index);
            return;
        }
        for channel in channels.iter() {
            self.channel(*channel).pollers.push(me);
        }
        let again = Todo::Resume(Action::Poll(Arc::clone(&channels)));
        self.block(me, WaitsFor::Poll(channels), again);
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
        self.will_wake(me, parent, false);
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
