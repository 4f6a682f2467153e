// SPDX-License-Identifier: GPL-2.0-only
//! Pipes and sockets: reading, writing, polling.
//!
//! A socket's line, that of its queue, is touched once by each read and write, and the data comes from where it was written. Others go
//! to and fro with a message:
//!
//! - its header and the message itself;
//! - a count of the memory in use, which the writer raises and the reader lowers (`sk_wmem_alloc`; with TCP `sk_rmem_alloc`);
//! - the locks of a socket within the machine, that of its state for who writes, that of its messages for who reads;
//! - with TCP, whose receiving half runs on the sender's CPU, the sequence numbers and what is to be acknowledged;
//! - header and message are freed on the reader's CPU into pages that the sender's allocates from: if that is another CPU, by an atomic
//!   operation on a line of each page, which all who read from there fight for (`__slab_free()` in mm/slub.c).
//!
//! Pipes have rules of their own, which are in `pipe.rs`.

use std::sync::Arc;

use crate::coherence::Access;
use crate::ids::{Cpu, Id, LineId, TaskId};
use crate::machine::Distance;
use crate::policy::Host;
use crate::program::{Action, Outcome};
use crate::task::{Todo, WaitsFor};
use crate::world::{Channel, ChannelState};

/// A message's lines that are waited for; what follows is fetched ahead.
const FIRST_LINES: usize = 2;

/// What goes to and fro with a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLines {
    /// A pipe's indices, or how much memory a socket's messages take.
    pub count: LineId,
    /// Of a page, or the header of a socket's message.
    descriptor: LineId,
    data: [LineId; FIRST_LINES],
    /// The locks of a socket within the machine; sequence numbers and acknowledgements of one of TCP.
    state: [LineId; 2],
}

/// Of the pages from which a CPU takes a message's header and room for the message.
pub(crate) type SlabLines = [LineId; 2];

impl Host {
    pub(crate) fn channel(&mut self, channel: Channel) -> &mut ChannelState {
        &mut self.world.channels[channel.index()]
    }

    /// Goes on with a read that has entered the kernel, at its beginning or after a sleep.
    pub(crate) fn read(
        &mut self,
        me: TaskId,
        channel: Channel,
        bytes: u64,
        exact: bool,
        slept: bool,
    ) {
        if self.channel(channel).spec.pipe {
            return self.read_pipe(me, channel, bytes, exact, slept);
        }
        self.touch(|world| &mut world.channels[channel.index()].line);
        let state = self.channel(channel);
        let (taken, from) = (state.bytes.min(bytes), state.last_writer);
        if taken > 0 {
            // The last byte gives back all bookkeeping.
            state.used = (u128::from(state.used) * u128::from(state.bytes - taken)
                / u128::from(state.bytes)) as u64;
            state.bytes -= taken;
            self.pass_packet(channel, Access::Read, taken, from);
            self.copy(taken, from);
            self.wake_writers(me, channel);
        }
        let done = self.has_read(me, channel, taken, bytes - taken, exact);
        // Pass the turn on if there is more.
        if done && self.channel(channel).bytes > 0 {
            self.wake_reader(me, channel);
        }
    }

    /// A task has read something, or nothing, and asked for so much more: whether that is all, or it waits.
    pub(crate) fn has_read(
        &mut self,
        me: TaskId,
        channel: Channel,
        taken: u64,
        bytes: u64,
        exact: bool,
    ) -> bool {
        let task = self.task_mut(me);
        task.partial += taken;
        if bytes > 0 && (exact || task.partial == 0) {
            self.wait_to_read(me, channel, bytes, exact);
            return false;
        }
        task.outcome = Outcome::Bytes(std::mem::take(&mut task.partial));
        true
    }

    /// Goes to sleep at the tail of the readers, and goes on with so much after it.
    pub(crate) fn wait_to_read(&mut self, me: TaskId, channel: Channel, bytes: u64, exact: bool) {
        let rest = Action::Read {
            channel,
            bytes,
            exact,
        };
        self.world.channels[channel.index()]
            .readers
            .push(&mut self.tasks, me);
        self.block(me, WaitsFor::Read(channel), Todo::Resume(rest));
    }

    /// The same at the tail of the writers.
    pub(crate) fn wait_to_write(&mut self, me: TaskId, channel: Channel, bytes: u64) {
        let rest = Action::Write { channel, bytes };
        self.world.channels[channel.index()]
            .writers
            .push(&mut self.tasks, me);
        self.block(me, WaitsFor::Write(channel), Todo::Resume(rest));
    }

    /// Goes on with a write that has entered the kernel, at its beginning or after a sleep.
    pub(crate) fn write(&mut self, me: TaskId, channel: Channel, bytes: u64, slept: bool) {
        if self.channel(channel).spec.pipe {
            return self.write_pipe(me, channel, bytes, slept);
        }
        self.touch(|world| &mut world.channels[channel.index()].line);
        let cpu = self.actor;
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
            self.pass_packet(channel, Access::Write, piece, None);
            self.copy(piece, None);
            self.wake_reader(me, channel);
            self.wake_pollers(me, channel);
        }
        if piece < bytes {
            self.wait_to_write(me, channel, bytes - piece);
        }
    }

    /// Goes through the lines of a socket and of a message, which `from` has sent if it is read.
    fn pass_packet(&mut self, channel: Channel, access: Access, bytes: u64, from: Option<Cpu>) {
        let state = if self.channel(channel).spec.unix {
            1
        } else {
            2
        };
        let message = self.message_lines(channel);
        for line in &message.state[..state] {
            self.access(*line, Access::Write);
        }
        self.pass_message(channel, access, bytes, Access::Rmw);
        if let Some(from) = from.filter(|from| *from != self.actor) {
            for line in self.slab_lines(from) {
                self.access(line, Access::Rmw);
            }
        }
    }

    /// Goes through the lines of a message, in whose `count` this is done.
    pub(crate) fn pass_message(
        &mut self,
        channel: Channel,
        access: Access,
        bytes: u64,
        counting: Access,
    ) {
        let message = self.message_lines(channel);
        self.access(message.count, counting);
        self.access(message.descriptor, Access::Write);
        let lines = bytes.div_ceil(64).min(FIRST_LINES as u64) as usize;
        for line in &message.data[..lines] {
            self.access(*line, access);
        }
    }

    /// The lines of the pages from which a CPU takes memory for messages, which are made on first use.
    fn slab_lines(&mut self, cpu: Cpu) -> SlabLines {
        let (lines, class) = (&mut self.lines, self.object_class);
        *self.cpus[cpu.index()]
            .slab
            .get_or_insert_with(|| std::array::from_fn(|_| lines.add(class, None)))
    }

    /// The lines of a message, which are made on first use.
    pub(crate) fn message_lines(&mut self, channel: Channel) -> MessageLines {
        let (lines, class) = (&mut self.lines, self.object_class);
        let message = &mut self.world.channels[channel.index()].message;
        *message.get_or_insert_with(|| MessageLines {
            count: lines.add(class, None),
            descriptor: lines.add(class, None),
            data: std::array::from_fn(|_| lines.add(class, None)),
            state: std::array::from_fn(|_| lines.add(class, None)),
        })
    }

    /// Charges copying data that the caches of another CPU hold.
    pub(crate) fn copy(&mut self, bytes: u64, from: Option<Cpu>) {
        let (n, cpu) = (&self.machine.costs().n, self.actor);
        let distance = from.map_or(Distance::Same, |from| self.machine.distance(cpu, from));
        let per_kib = match distance {
            Distance::Same | Distance::Core | Distance::Llc => n.copy_llc_ns_per_kib,
            Distance::Node => n.copy_node_ns_per_kib,
            Distance::Remote => n.copy_remote_ns_per_kib,
        };
        self.charge(bytes * per_kib / 1024);
    }

    pub(crate) fn wake_reader(&mut self, me: TaskId, channel: Channel) {
        let state = &mut self.world.channels[channel.index()];
        let sync = state.spec.sync;
        if let Some(who) = state.readers.pop(&mut self.tasks) {
            self.will_wake(me, who, sync);
        }
    }

    pub(crate) fn wake_pollers(&mut self, me: TaskId, channel: Channel) {
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
