// SPDX-License-Identifier: GPL-2.0-only
//! Pipes and sockets: reading, writing, polling.
//!
//! A socket's line is touched once by each read and write, and the data comes from where it was written. Within the machine
//! (`ChannelSpec::unix`) three more go to and fro with a message: its header, the message itself, and the sender's count of
//! memory in use, which the writer raises and the reader lowers (`sk_wmem_alloc`). What TCP goes through is in its protocol's cost.
//!
//! A pipe has a mutex, which is held while the data is copied (`pipe_read` and `pipe_write` in fs/pipe.c of
//! 5.5 and later). Under it come the descriptor of a page and the message itself, whose lines lie with who
//! held the mutex before; and the pipe's indices, which are changed where a page begins or has been read
//! out, as it is whenever the reader keeps up. So where the ends of a pipe are far from each other, and 20
//! writers to one reader always are, it is the mutex that limits how much goes through.

use std::sync::Arc;

use crate::coherence::Access;
use crate::ids::{Cpu, LineId, Nanos, TaskId};
use crate::machine::Distance;
use crate::policy::Host;
use crate::program::{Action, Outcome};
use crate::task::{Todo, WaitsFor};
use crate::world::{Channel, ChannelState};

/// Transfers that a mutex costs its next holder beyond the one by which a free mutex is taken, if it was
/// waited for: the store that lets go of it has to fetch the line from those who look at it, the first who
/// waits looks at it again, and, having it, lets the next one come to the head of the queue
/// (kernel/locking/mutex.c and osq_lock.c; waiters spin while the holder runs).
const HANDED_ON: Nanos = 3;

/// A message's lines that are waited for; what follows is fetched ahead.
const FIRST_LINES: usize = 2;

/// What goes to and fro with a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLines {
    /// A pipe's indices, or how much memory a socket's messages take.
    count: LineId,
    /// Of a page, or the header of a socket's message.
    descriptor: LineId,
    data: [LineId; FIRST_LINES],
}

impl Host {
    fn channel(&mut self, channel: Channel) -> &mut ChannelState {
        &mut self.world.channels[channel.index()]
    }

    /// Goes on with a read that has entered the kernel, at its beginning or after a sleep.
    pub(crate) fn read(&mut self, cpu: Cpu, me: TaskId, channel: Channel, bytes: u64, exact: bool) {
        let held = self.take(channel);
        let state = self.channel(channel);
        let (taken, from) = (state.bytes.min(bytes), state.last_writer);
        if taken > 0 {
            // The last byte gives back all bookkeeping.
            state.used = (u128::from(state.used) * u128::from(state.bytes - taken)
                / u128::from(state.bytes)) as u64;
            state.bytes -= taken;
            let emptied = state.bytes == 0;
            self.pass_message(channel, Access::Read, taken, emptied);
            self.copy(cpu, taken, from);
        }
        self.let_go(channel, held);
        if taken > 0 {
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

    /// Goes on with a write that has entered the kernel, at its beginning or after a sleep.
    pub(crate) fn write(&mut self, cpu: Cpu, me: TaskId, channel: Channel, bytes: u64) {
        let held = self.take(channel);
        let state = self.channel(channel);
        let overhead = state.spec.overhead;
        let room = state.spec.capacity.saturating_sub(state.used);
        // A message larger than the whole buffer goes in pieces; so does one that fits in part.
        let piece = if state.used == 0 {
            bytes.min(room.max(1))
        } else {
            bytes.min(room.saturating_sub(overhead))
        };
        let goes = piece > 0 || bytes == 0;
        if goes {
            let was_empty = state.bytes == 0;
            state.bytes += piece;
            state.used += piece + overhead;
            state.last_writer = Some(cpu);
            self.pass_message(channel, Access::Write, piece, was_empty);
            self.copy(cpu, piece, None);
        }
        self.let_go(channel, held);
        if goes {
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

    /// Takes a socket's line, or a pipe's mutex, which is held from the time that is returned.
    fn take(&mut self, channel: Channel) -> Option<Nanos> {
        let state = self.channel(channel);
        let (exclusive, mutex) = (state.spec.exclusive, state.line);
        let free_at = mutex.map_or(0, |mutex| self.lines.free_at(mutex));
        let waited = free_at > self.now();
        self.touch(|world| &mut world.channels[channel.index()].line);
        if !exclusive {
            return None;
        }
        if waited {
            self.charged += HANDED_ON * (self.now() - free_at);
        }
        Some(self.now())
    }

    fn let_go(&mut self, channel: Channel, held: Option<Nanos>) {
        if let (Some(since), Some(mutex)) = (held, self.channel(channel).line) {
            self.unlock(mutex, since);
        }
    }

    /// Goes through the lines of a message; `edge`: a page of a pipe begins or ends with it.
    fn pass_message(&mut self, channel: Channel, access: Access, bytes: u64, edge: bool) {
        let state = &mut self.world.channels[channel.index()];
        let counting = match (state.spec.unix, state.spec.exclusive, edge) {
            (true, ..) => Access::Rmw,
            (false, true, true) => Access::Write,
            (false, true, false) => Access::Read,
            (false, false, _) => return,
        };
        let (lines, class) = (&mut self.lines, self.object_class);
        let message = *state.message.get_or_insert_with(|| MessageLines {
            count: lines.add(class, None),
            descriptor: lines.add(class, None),
            data: std::array::from_fn(|_| lines.add(class, None)),
        });
        self.access(message.count, counting);
        self.access(message.descriptor, Access::Write);
        let lines = bytes.div_ceil(64).min(FIRST_LINES as u64) as usize;
        for line in &message.data[..lines] {
            self.access(*line, access);
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

    /// Looks at the files, at the beginning of a poll or after its sleep.
    pub(crate) fn poll(&mut self, me: TaskId, channels: Arc<[Channel]>) {
        self.charge(self.machine.costs().n.poll_ns * channels.len() as u64);
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
}
