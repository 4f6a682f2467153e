// SPDX-License-Identifier: GPL-2.0-only
//! Pipes: a ring of 16 pages behind a mutex, and who is woken when.
//!
//! What is modelled are the rules of fs/pipe.c of 5.5 to 6.13, whatever the policy: a comparison of schedulers is not to be one
//! of pipes.
//!
//! 1. A slot of the ring has one page. A write adds what it has beyond whole pages to the page written last, if the pipe is not
//!    empty and the page has room for all of that behind what was written to it; also if the ring is full. The rest takes a
//!    slot per page. A slot is free again once all of its page has been read.
//! 2. A write that finds no free slot waits at the tail of the writers for one: room in the last page does not let it out.
//! 3. A read that found the ring full wakes one writer, whether or not it has freed a slot. (Since 6.14 it does so only if it has.) A
//!    writer woken in vain sees so without the mutex, and waits again, at the tail.
//! 4. A write that found the pipe empty, or finds it so after its wait, wakes one reader, and before it waits again, too; all who
//!    poll are woken with it.
//! 5. Who has waited wakes the next of its kind if there is something left for it: a writer if a slot is free, a reader if there is data.
//!
//! The mutex is held while the data is copied. Under it come the descriptor of a page and the message itself, whose lines lie
//! with who held the mutex before; and the pipe's indices, which are changed where a slot is taken or freed, as it is with every message
//! whenever the reader keeps up. So where the ends of a pipe are far from each other, and 20 writers to one reader always are, it
//! is the mutex that limits how much goes through.

use crate::coherence::Access;
use crate::ids::{Nanos, TaskId};
use crate::policy::Host;
use crate::program::Outcome;
use crate::world::Channel;

/// Transfers that a mutex costs its next holder beyond the one by which a free mutex is taken, if it was
/// waited for: the store that lets go of it has to fetch the line from those who look at it, the first who
/// waits looks at it again, and, having it, lets the next one come to the head of the queue
/// (kernel/locking/mutex.c and osq_lock.c; waiters spin while the holder runs).
const HANDED_ON: Nanos = 3;

const SLOTS: u8 = 16;
const PAGE: u64 = 4096;

/// What of a pipe's pages is in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    /// By slot: how much of its page has been written.
    written: [u16; SLOTS as usize],
    /// How much of the first page has been read.
    read: u16,
    first: u8,
    used: u8,
}

impl Ring {
    fn is_full(&self) -> bool {
        self.used == SLOTS
    }

    fn slot(&mut self, nth: u8) -> &mut u16 {
        &mut self.written[usize::from((self.first + nth) % SLOTS)]
    }

    /// Adds to the last page, if all of that has room there.
    fn merge(&mut self, bytes: u64) -> bool {
        if self.used == 0 || bytes == 0 {
            return false;
        }
        let last = self.slot(self.used - 1);
        let fits = u64::from(*last) + bytes <= PAGE;
        if fits {
            *last += bytes as u16;
        }
        fits
    }

    /// Fills free slots, and returns how much of `bytes` had room.
    fn fill(&mut self, bytes: u64) -> u64 {
        let mut left = bytes;
        while left > 0 && !self.is_full() {
            let page = left.min(PAGE);
            *self.slot(self.used) = page as u16;
            self.used += 1;
            left -= page;
        }
        bytes - left
    }

    /// Takes as much as there is, and no more than `bytes`. How much, and whether a slot is free now for it.
    fn take(&mut self, bytes: u64) -> (u64, bool) {
        let (mut left, used) = (bytes, self.used);
        while left > 0 && self.used > 0 {
            let there = *self.slot(0) - self.read;
            if u64::from(there) > left {
                self.read += left as u16;
                left = 0;
            } else {
                left -= u64::from(there);
                self.first = (self.first + 1) % SLOTS;
                (self.read, self.used) = (0, self.used - 1);
            }
        }
        (bytes - left, self.used < used)
    }
}

impl Host {
    /// Goes on with a read that has entered the kernel: at its beginning, or after it has `slept`.
    pub(crate) fn read_pipe(
        &mut self,
        me: TaskId,
        channel: Channel,
        bytes: u64,
        exact: bool,
        slept: bool,
    ) {
        if bytes == 0 {
            self.task_mut(me).outcome = Outcome::Bytes(0);
            return;
        }
        if slept && self.look_at_indices(channel).used == 0 {
            return self.wait_to_read(me, channel, bytes, exact);
        }
        let held = self.take_mutex(channel);
        let state = self.channel(channel);
        let was_full = state.ring.is_full();
        let (taken, freed) = state.ring.take(bytes);
        state.bytes -= taken;
        let (left, from) = (state.bytes, state.last_writer);
        if taken > 0 {
            let counting = if freed { Access::Write } else { Access::Read };
            self.pass_message(channel, Access::Read, taken, counting);
            self.copy(taken, from);
        }
        self.let_go(channel, held);
        if was_full && taken > 0 {
            self.wake_writer(me, channel);
        }
        if slept && left > 0 {
            self.wake_reader(me, channel);
        }
        self.has_read(me, channel, taken, bytes - taken, exact);
    }

    /// Goes on with a write that has entered the kernel: at its beginning, or after it has `slept`.
    pub(crate) fn write_pipe(&mut self, me: TaskId, channel: Channel, bytes: u64, slept: bool) {
        if bytes == 0 {
            return;
        }
        if slept && self.look_at_indices(channel).is_full() {
            return self.wait_to_write(me, channel, bytes);
        }
        let held = self.take_mutex(channel);
        let cpu = self.actor;
        let state = self.channel(channel);
        let was_empty = state.bytes == 0;
        let part = bytes % PAGE;
        let merged = if !slept && state.ring.merge(part) {
            part
        } else {
            0
        };
        let filled = state.ring.fill(bytes - merged);
        let (gone, full) = (merged + filled, state.ring.is_full());
        state.bytes += gone;
        if gone > 0 {
            state.last_writer = Some(cpu);
            let counting = if filled > 0 {
                Access::Write
            } else {
                Access::Read
            };
            self.pass_message(channel, Access::Write, gone, counting);
            self.copy(gone, None);
        } else {
            self.look_at_indices(channel);
        }
        self.let_go(channel, held);
        if was_empty {
            self.wake_reader(me, channel);
            self.wake_pollers(me, channel);
        }
        if gone < bytes {
            return self.wait_to_write(me, channel, bytes - gone);
        }
        if slept && !full {
            self.wake_writer(me, channel);
        }
    }

    fn wake_writer(&mut self, me: TaskId, channel: Channel) {
        let state = &mut self.world.channels[channel.index()];
        let sync = state.spec.sync;
        if let Some(who) = state.writers.pop(&mut self.tasks) {
            self.will_wake(me, who, sync);
        }
    }

    /// Looks whether there is anything to go on with.
    fn look_at_indices(&mut self, channel: Channel) -> &Ring {
        let indices = self.message_lines(channel).count;
        self.access(indices, Access::Read);
        &self.channel(channel).ring
    }

    /// Takes the mutex, and returns since when it is held.
    fn take_mutex(&mut self, channel: Channel) -> Nanos {
        let mutex = self.channel(channel).line;
        let free_at = mutex.map_or(0, |mutex| self.lines.free_at(mutex));
        let waited = free_at > self.now();
        self.touch(|world| &mut world.channels[channel.index()].line);
        if waited {
            self.charged += HANDED_ON * (self.now() - free_at);
        }
        self.now()
    }

    fn let_go(&mut self, channel: Channel, since: Nanos) {
        if let Some(mutex) = self.channel(channel).line {
            self.unlock(mutex, since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: small writes share pages: 640 messages of 100 bytes fit, 40 to a page, and no other; what is read of a page comes
    // free with its last byte only.
    // Method: the ring by hand. 40 messages leave 96 bytes of a page.
    #[test]
    fn messages_share_pages() {
        let mut ring = Ring::default();
        let put = |ring: &mut Ring| ring.merge(100) || ring.fill(100) == 100;
        assert_eq!((0..1000).take_while(|_| put(&mut ring)).count(), 640);
        assert!(ring.is_full());
        for nth in 1..=40 {
            assert_eq!(ring.take(100), (100, nth == 40), "message {nth}");
        }
        assert_eq!((0..1000).take_while(|_| put(&mut ring)).count(), 40);
        assert_eq!(ring.take(1 << 20), (64_000, true));
        assert_eq!((ring.used, ring.take(1)), (0, (0, false)));
    }

    // Goal: what counts for merging is where the page's data ends, not how much of it is left to read; and an empty
    // pipe has no page to add to, a full ring has.
    // Method: one page, read but for its last byte; then its last byte, too; then a full ring whose last page has 96 bytes free.
    #[test]
    fn room_in_a_page_counts_from_its_beginning() {
        let mut ring = Ring::default();
        assert!(!ring.merge(1), "empty");
        assert_eq!(ring.fill(4000), 4000);
        assert_eq!(ring.take(3999), (3999, false));
        assert!(!ring.merge(97) && ring.merge(96));
        assert_eq!(ring.take(97), (97, true));
        assert!(!ring.merge(1), "empty again");
        assert_eq!(ring.fill(16 * 4096 - 96), 16 * 4096 - 96);
        assert!(ring.is_full() && ring.merge(96) && !ring.merge(1));
    }

    // Goal: whole pages take a slot each, wherever in the ring they come; what has no room is left.
    // Method: 20 pages into an empty ring, and into one of which three slots have been read.
    #[test]
    fn large_writes_take_slots() {
        let mut ring = Ring::default();
        assert_eq!(ring.fill(20 * 4096), 16 * 4096);
        assert_eq!(ring.take(3 * 4096 + 1), (3 * 4096 + 1, true));
        assert_eq!(ring.fill(4 * 4096), 3 * 4096);
        assert_eq!(ring.take(1 << 20), (16 * 4096 - 1, true));
    }
}
