// SPDX-License-Identifier: GPL-2.0-only
//! The interpreter's actions.

use super::*;
use crate::program::TaskCtx;

/// Default timer slack of tasks that are not real-time.
const SLACK_NS: Nanos = 50_000;

impl Rig {
    /// Lets a task go on: retries what it was blocked in, or asks its program for the next action.
    pub(super) fn advance(&mut self, id: TaskId) {
        self.tasks[id.index()].blocked = None;
        match self.tasks[id.index()].pending.take() {
            Some(pending) => self.attempt(id, pending),
            None => self.next(id),
        }
    }

    pub(super) fn time_out(&mut self, id: TaskId, epoch: u64) {
        if self.tasks[id.index()].epoch == epoch && self.tasks[id.index()].blocked.is_some() {
            self.futexes
                .values_mut()
                .for_each(|w| w.retain(|t| *t != id));
            self.note(None, id, By::Timer, false);
            self.tasks[id.index()].pending = Some(Pending::Done(Outcome::TimedOut));
            self.advance(id);
        }
    }

    fn next(&mut self, id: TaskId) {
        let mut program = self.tasks[id.index()].program.take().expect("alive");
        let task = &mut self.tasks[id.index()];
        let mut ctx = TaskCtx {
            now: self.now,
            me: id,
            cpu: Cpu(id.0),
            outcome: std::mem::take(&mut task.outcome),
            rng: &mut task.rng,
            memory: &mut self.seen[id.index()].memory,
            world: &mut self.world,
        };
        let action = program.next(&mut ctx);
        if let Some((from, until)) = self.world.measured.take() {
            self.warmup = Some(from);
            self.stop = until.map_or(self.stop, Stop::At);
        }
        self.tasks[id.index()].program = Some(program);
        self.act(id, action);
    }

    fn act(&mut self, id: TaskId, action: Action) {
        match action {
            Action::Compute(ns) | Action::Spin(ns) => {
                self.seen[id.index()].compute += ns;
                self.seen[id.index()].computes += 1;
                self.schedule(self.now + ns, Event::Run(id));
            }
            Action::Exec(ns) => {
                self.seen[id.index()].execs += 1;
                self.resume_after(id, ns, Outcome::Done);
            }
            Action::Io(ns) => {
                self.seen[id.index()].ios += ns;
                self.sleep_until(id, self.now + ns, 0);
            }
            Action::Sleep(ns) => self.sleep_until(id, self.now + ns, self.slack(id)),
            Action::SleepUntil(at) if at <= self.now => self.resume_after(id, 0, Outcome::Done),
            Action::SleepUntil(at) => self.sleep_until(id, at, self.slack(id)),
            Action::Fork(spec) => {
                let nth = self.tasks[id.index()].children.len() as u64 + 1;
                let seed = crate::rng::mix(self.tasks[id.index()].seed ^ (nth << 32));
                let at = self.now + self.cost();
                let child = self.create(*spec, Some(id), seed, at);
                self.resume_after(id, 0, Outcome::Child(child));
            }
            Action::Exit => self.exit(id),
            Action::Yield => {
                self.seen[id.index()].yields += 1;
                self.resume_after(id, 0, Outcome::Done);
            }
            Action::SetAffinity(set) => {
                assert!(!set.is_empty(), "empty affinity");
                self.seen[id.index()].cpus = Some(set.iter().map(|c| c.0).collect());
                self.resume_after(id, 0, Outcome::Done);
            }
            Action::SetAffinityOf(task, set) => {
                self.seen[task.index()].cpus = Some(set.iter().map(|c| c.0).collect());
                self.resume_after(id, 0, Outcome::Done);
            }
            Action::SetHint(hint) => {
                self.seen[id.index()].hint = hint;
                self.resume_after(id, 0, Outcome::Done);
            }
            Action::SetClass(class) => {
                self.seen[id.index()].class = class;
                self.resume_after(id, 0, Outcome::Done);
            }
            other => self.act_shared(id, other),
        }
    }

    fn act_shared(&mut self, id: TaskId, action: Action) {
        match action {
            Action::WaitChild(child) => self.attempt(id, Pending::WaitChild(child)),
            Action::WaitAnyChild => self.attempt(id, Pending::WaitAnyChild),
            Action::FutexWait {
                futex,
                expected,
                timeout,
            } => {
                if *self.world.futex_value(futex) != expected {
                    return self.resume_after(id, 0, Outcome::Done);
                }
                self.futexes.entry(futex.0).or_default().push_back(id);
                self.block(id, Pending::Done(Outcome::Done), format!("futex {futex}"));
                if let Some(ns) = timeout {
                    let epoch = self.tasks[id.index()].epoch;
                    self.schedule(self.now + ns + self.slack(id), Event::Timeout(id, epoch));
                }
            }
            Action::FutexWake { futex, count } => {
                let waiters = self.futexes.entry(futex.0).or_default();
                let n = waiters.len().min(count as usize);
                let woken: Vec<TaskId> = waiters.drain(..n).collect();
                let after = self.wake_all(id, woken, By::Futex, false);
                self.resume_after(id, after, Outcome::Count(n as u32));
            }
            Action::Read {
                channel,
                bytes,
                exact,
            } => {
                self.attempt(
                    id,
                    Pending::Read {
                        channel,
                        got: 0,
                        want: bytes,
                        exact,
                    },
                );
            }
            Action::Write { channel, bytes } => {
                self.attempt(
                    id,
                    Pending::Write {
                        channel,
                        left: bytes,
                    },
                );
            }
            Action::Poll(channels) => self.attempt(id, Pending::Poll(channels)),
            Action::Lock(mutex) => self.attempt(id, Pending::Lock(mutex)),
            Action::Unlock(mutex) => {
                let after = self.unlock(id, mutex);
                self.resume_after(id, after, Outcome::Done);
            }
            Action::Barrier(barrier) => self.arrive(id, barrier),
            Action::SemDown(semaphore) => self.attempt(id, Pending::SemDown(semaphore)),
            Action::SemUp(semaphore, n) => {
                let state = self.semaphore(semaphore);
                state.0 += u64::from(n);
                let woken = state.1.len().min(n as usize);
                let woken: Vec<TaskId> = state.1.drain(..woken).collect();
                let after = self.wake_all(id, woken, By::Sem, false);
                self.resume_after(id, after, Outcome::Done);
            }
            Action::CondWait(cond, mutex) => self.attempt(id, Pending::CondWait(cond, mutex)),
            Action::CondSignal(cond) => {
                let first = self.conds.entry(cond.0).or_default().pop_front();
                let after = self.wake_all(id, first, By::Cond, false);
                self.resume_after(id, after, Outcome::Done);
            }
            Action::CondBroadcast(cond) => {
                let all = std::mem::take(self.conds.entry(cond.0).or_default());
                let after = self.wake_all(id, all, By::Cond, false);
                self.resume_after(id, after, Outcome::Done);
            }
            other => unreachable!("{other:?} is handled by act()"),
        }
    }

    /// Tries something that may block; a woken task tries again.
    fn attempt(&mut self, id: TaskId, pending: Pending) {
        match pending {
            Pending::Done(outcome) => self.resume_after(id, 0, outcome),
            Pending::Read {
                channel,
                got,
                want,
                exact,
            } => self.read(id, channel, got, want, exact),
            Pending::Write { channel, left } => self.write(id, channel, left),
            Pending::Poll(channels) => {
                let ready = |c: &Channel| self.channels.get(&c.0).is_some_and(|q| q.bytes > 0);
                if let Some(index) = channels.iter().position(ready) {
                    return self.resume_after(id, 0, Outcome::Index(index));
                }
                for channel in channels.iter() {
                    self.channels
                        .entry(channel.0)
                        .or_default()
                        .pollers
                        .push_back(id);
                }
                self.block(id, Pending::Poll(channels), "poll".into());
            }
            Pending::Lock(mutex) => {
                assert_ne!(
                    self.owners.get(&mutex.0),
                    Some(&id),
                    "{} locks twice",
                    self.name(id)
                );
                if let std::collections::btree_map::Entry::Vacant(free) = self.owners.entry(mutex.0)
                {
                    free.insert(id);
                    return self.resume_after(id, 0, Outcome::Done);
                }
                let owner = self.owners[&mutex.0];
                let what = format!("mutex {mutex} held by {}", self.name(owner));
                self.lockers.entry(mutex.0).or_default().push_back(id);
                self.block(id, Pending::Lock(mutex), what);
            }
            Pending::SemDown(semaphore) => {
                let state = self.semaphore(semaphore);
                if state.0 > 0 {
                    state.0 -= 1;
                    return self.resume_after(id, 0, Outcome::Done);
                }
                state.1.push_back(id);
                self.block(
                    id,
                    Pending::SemDown(semaphore),
                    format!("semaphore {semaphore}"),
                );
            }
            Pending::CondWait(cond, mutex) => {
                self.unlock(id, mutex);
                self.conds.entry(cond.0).or_default().push_back(id);
                self.block(id, Pending::Lock(mutex), format!("condition {cond}"));
            }
            Pending::WaitChild(child) => self.wait_child(id, Some(child)),
            Pending::WaitAnyChild => self.wait_child(id, None),
        }
    }

    fn read(&mut self, id: TaskId, channel: Channel, mut got: u64, want: u64, exact: bool) {
        let spec = self.spec(channel);
        let queue = self.channels.entry(channel.0).or_default();
        while got < want && queue.bytes > 0 {
            let front = queue.messages.front_mut().expect("bytes without a message");
            let take = front.bytes.min(want - got);
            front.bytes -= take;
            queue.bytes -= take;
            queue.used -= take;
            got += take;
            if front.bytes == 0 {
                queue.used -= front.overhead;
                queue.messages.pop_front();
            }
        }
        let low = spec.capacity * u64::from(spec.writers_wake_permille) / 1000;
        let writers = if queue.used <= low {
            std::mem::take(&mut queue.writers)
        } else {
            VecDeque::new()
        };
        let after = self.wake_all(id, writers, By::Write, spec.sync);
        if got == want || (got > 0 && !exact) {
            return self.resume_after(id, after, Outcome::Bytes(got));
        }
        self.channels
            .entry(channel.0)
            .or_default()
            .readers
            .push_back(id);
        self.block(
            id,
            Pending::Read {
                channel,
                got,
                want,
                exact,
            },
            format!("data in {channel}"),
        );
    }

    fn write(&mut self, id: TaskId, channel: Channel, mut left: u64) {
        let spec = self.spec(channel);
        let queue = self.channels.entry(channel.0).or_default();
        let mut wrote = false;
        while left > 0 && queue.used + spec.overhead < spec.capacity {
            let piece = left.min(spec.capacity - queue.used - spec.overhead);
            queue.messages.push_back(Message {
                bytes: piece,
                overhead: spec.overhead,
            });
            queue.bytes += piece;
            queue.used += piece + spec.overhead;
            left -= piece;
            wrote = true;
        }
        let mut after = 0;
        if wrote {
            let readers = std::mem::take(&mut queue.readers);
            let pollers = std::mem::take(&mut queue.pollers);
            after += self.wake_all(id, readers, By::Read, spec.sync);
            after += self.wake_all(id, pollers, By::Poll, spec.sync);
        }
        if left == 0 {
            return self.resume_after(id, after, Outcome::Done);
        }
        self.channels
            .entry(channel.0)
            .or_default()
            .writers
            .push_back(id);
        self.block(
            id,
            Pending::Write { channel, left },
            format!("room in {channel}"),
        );
    }

    fn wait_child(&mut self, id: TaskId, which: Option<TaskId>) {
        let task = &mut self.tasks[id.index()];
        let found = match which {
            Some(child) => task.zombies.iter().position(|z| *z == child),
            None => (!task.zombies.is_empty()).then_some(0),
        };
        if let Some(child) = found.and_then(|i| task.zombies.remove(i)) {
            task.children.retain(|c| *c != child);
            return self.resume_after(id, 0, Outcome::Child(child));
        }
        let has = which.map_or(!task.children.is_empty(), |child| {
            task.children.contains(&child)
        });
        if !has {
            return self.resume_after(id, 0, Outcome::NoChild);
        }
        match which {
            Some(child) => self.block(id, Pending::WaitChild(child), format!("child {child}")),
            None => self.block(id, Pending::WaitAnyChild, "any child".into()),
        }
    }

    fn arrive(&mut self, id: TaskId, barrier: crate::world::Barrier) {
        let parties = self.world.barriers[barrier.index()].parties as usize;
        let waiting = self.barriers.entry(barrier.0).or_default();
        if waiting.len() + 1 < parties {
            waiting.push(id);
            return self.block(
                id,
                Pending::Done(Outcome::Done),
                format!("barrier {barrier}"),
            );
        }
        let all = std::mem::take(waiting);
        let after = self.wake_all(id, all, By::Barrier, false);
        self.resume_after(id, after, Outcome::Done);
    }

    fn unlock(&mut self, id: TaskId, mutex: Mutex) -> Nanos {
        assert_eq!(
            self.owners.remove(&mutex.0),
            Some(id),
            "{} unlocks {mutex}",
            self.name(id)
        );
        let first = self.lockers.entry(mutex.0).or_default().pop_front();
        self.wake_all(id, first, By::Mutex, false)
    }

    fn exit(&mut self, id: TaskId) {
        let held: Vec<u32> = self
            .owners
            .iter()
            .filter(|(_, owner)| **owner == id)
            .map(|(m, _)| *m)
            .collect();
        assert!(
            held.is_empty(),
            "{} exits with mutexes {held:?}",
            self.name(id)
        );
        self.tasks[id.index()].program = None;
        self.seen[id.index()].exited = true;
        self.alive -= 1;
        self.first_exited |= id.0 == 0;
        if let Some(parent) = self.seen[id.index()].parent {
            let waits = match &self.tasks[parent.index()].pending {
                Some(Pending::WaitAnyChild) => true,
                Some(Pending::WaitChild(child)) => *child == id,
                _ => false,
            };
            self.tasks[parent.index()].zombies.push_back(id);
            if waits {
                let sync = !self.seen[id.index()].thread;
                self.wake_all(id, Some(parent), By::Child, sync);
            }
        }
    }

    /// Wakes tasks one after another; returns how long it took.
    fn wake_all(
        &mut self,
        waker: TaskId,
        tasks: impl IntoIterator<Item = TaskId>,
        by: By,
        sync: bool,
    ) -> Nanos {
        let mut after = 0;
        for wakee in tasks {
            // A poller may stand in several channels' lists and have been woken already.
            if self.tasks[wakee.index()].blocked.is_none() {
                continue;
            }
            self.tasks[wakee.index()].blocked = None;
            after += self.cost();
            self.note(Some(waker), wakee, by, sync);
            self.schedule(self.now + after, Event::Run(wakee));
        }
        after
    }

    fn note(&mut self, waker: Option<TaskId>, wakee: TaskId, by: By, sync: bool) {
        self.wakes.push(Wake {
            at: self.now,
            waker,
            wakee,
            by,
            sync,
        });
    }

    fn resume_after(&mut self, id: TaskId, ns: Nanos, outcome: Outcome) {
        self.tasks[id.index()].outcome = outcome;
        let at = self.now + ns + self.cost();
        self.schedule(at, Event::Run(id));
    }

    fn sleep_until(&mut self, id: TaskId, at: Nanos, slack: Nanos) {
        self.seen[id.index()].sleeps += 1;
        self.note(None, id, By::Timer, false);
        self.tasks[id.index()].outcome = Outcome::Done;
        let at = at + slack + self.cost();
        self.schedule(at, Event::Run(id));
    }

    fn block(&mut self, id: TaskId, pending: Pending, what: String) {
        let task = &mut self.tasks[id.index()];
        task.pending = Some(pending);
        task.blocked = Some(what);
        task.epoch += 1;
    }

    fn slack(&self, id: TaskId) -> Nanos {
        if self.seen[id.index()].class.rt_prio() > 0 {
            0
        } else {
            SLACK_NS
        }
    }

    fn spec(&self, channel: Channel) -> ChannelSpec {
        self.world.channels[channel.index()].spec
    }

    fn semaphore(&mut self, semaphore: Semaphore) -> &mut (u64, VecDeque<TaskId>) {
        let initial = self.world.semaphores[semaphore.index()].value;
        self.semaphores
            .entry(semaphore.0)
            .or_insert((initial, VecDeque::new()))
    }

    fn name(&self, id: TaskId) -> &str {
        &self.seen[id.index()].name
    }
}
