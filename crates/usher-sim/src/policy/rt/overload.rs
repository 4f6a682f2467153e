// SPDX-License-Identifier: GPL-2.0-only
//! Who has real-time tasks to give away, and the interrupts that make them do it (`RT_PUSH_IPI`).
//!
//! A CPU with a queued real-time task that could run elsewhere is overloaded: its bit is set in
//! `rto_mask`, then it counts in `rto_count`. As a task is queued before it is picked, this happens at
//! every wakeup of a task that is not pinned. A CPU whose priority drops reads the count; if somebody is
//! overloaded it starts a round: an interrupt goes from one overloaded CPU to the next, each pushes what
//! it can. `rto_loop_next` counts requests; a round that is under way goes on until it has served them.

use std::sync::Arc;

use super::layout::Layout;
use crate::coherence::Access;
use crate::host::Host;
use crate::ids::{Cpu, Id};
use crate::machine::Machine;
use crate::policy::mask::{Bus, SharedMask, Within, Word};

/// The pull side of the root domain.
pub(super) struct Overload {
    machine: Arc<Machine>,
    mask: SharedMask,
    mask_ptr: Word,
    next_word: Word,
    start_word: Word,
    lock_word: Word,
    /// One for all, or one per node.
    counts: Vec<u32>,
    count_words: Vec<Word>,
    loop_next: u32,
    loop_served: u32,
    /// Where the round is; `None` between rounds.
    at: Option<Cpu>,
}

impl Overload {
    pub fn new(machine: &Arc<Machine>, layout: &Layout) -> Self {
        Overload {
            machine: Arc::clone(machine),
            mask: SharedMask::new(machine.nr_cpu_numbers(), layout.rto_mask.clone()),
            mask_ptr: Word::on(layout.rto_mask_ptr),
            next_word: Word::on(layout.rto),
            start_word: Word::on(layout.rto),
            lock_word: Word::on(layout.rto),
            counts: vec![0; layout.rto_count.len()],
            count_words: layout.rto_count.iter().copied().map(Word::on).collect(),
            loop_next: 0,
            loop_served: 0,
            at: None,
        }
    }

    /// Counts loads by word from now on; counts of nodes share a name.
    pub fn count_loads(&mut self, host: &mut Host) {
        let words = (0..self.mask.nr_words()).map(|w| host.word(&format!("rto_mask_w{w}")));
        let words = words.collect();
        self.mask.count_words(words);
        self.mask_ptr.count_as(host, "rto_mask_ptr");
        self.next_word.count_as(host, "rto_loop_next");
        self.start_word.count_as(host, "rto_loop_start");
        self.lock_word.count_as(host, "rto_lock");
        for word in &mut self.count_words {
            word.count_as(host, "rto_count");
        }
    }

    fn slot(&self, cpu: Cpu) -> usize {
        match self.counts.len() {
            1 => 0,
            _ => self.machine.cpu(cpu).node.index(),
        }
    }

    /// `rt_set_overload()`: the bit, then the count.
    pub fn set(&mut self, bus: &mut impl Bus, cpu: Cpu) {
        self.mask_ptr.access(bus, Access::Read);
        self.mask.assign(bus, cpu, true);
        let slot = self.slot(cpu);
        self.count_words[slot].access(bus, Access::Rmw);
        self.counts[slot] += 1;
    }

    /// `rt_clear_overload()`: the count, then the bit.
    pub fn clear(&mut self, bus: &mut impl Bus, cpu: Cpu) {
        let slot = self.slot(cpu);
        self.count_words[slot].access(bus, Access::Rmw);
        self.counts[slot] -= 1;
        self.mask_ptr.access(bus, Access::Read);
        self.mask.assign(bus, cpu, false);
    }

    /// How many CPUs are overloaded, as far as a reader on `this` cares: with a count per node it adds
    /// from its own node on and stops once the sum exceeds 1.
    fn overloaded(&self, bus: &mut impl Bus, this: Cpu) -> u32 {
        let (start, nr) = (self.slot(this), self.counts.len());
        let mut sum = 0;
        for slot in (0..nr).map(|i| (start + i) % nr) {
            self.count_words[slot].access(bus, Access::Read);
            sum += self.counts[slot];
            if sum > 1 {
                break;
            }
        }
        sum
    }

    /// Whether `this` should ask others to push: somebody is overloaded, and not just `this` itself.
    pub fn others(&self, bus: &mut impl Bus, this: Cpu) -> bool {
        match self.overloaded(bus, this) {
            0 => false,
            1 => {
                self.mask_ptr.access(bus, Access::Read);
                !self.mask.test(bus, this)
            }
            _ => true,
        }
    }

    /// `tell_cpu_to_push()`: asks for a round; who has to be interrupted if this starts it.
    pub fn ask(&mut self, bus: &mut impl Bus) -> Option<Cpu> {
        self.next_word.access(bus, Access::Rmw);
        self.loop_next = self.loop_next.wrapping_add(1);
        // The compare-and-swap of rto_loop_start, which lets one CPU at a time in here. Callbacks do not
        // interleave, so it always succeeds.
        self.start_word.access(bus, Access::Rmw);
        self.lock_word.access(bus, Access::Rmw);
        let target = match self.at {
            Some(_) => None,
            None => self.next(bus),
        };
        self.lock_word.access(bus, Access::Write); // unlock, and rto_loop_start = 0
        target
    }

    /// The interrupt has done its work on one CPU: who is next.
    pub fn go_on(&mut self, bus: &mut impl Bus) -> Option<Cpu> {
        self.lock_word.access(bus, Access::Rmw);
        let target = self.next(bus);
        self.lock_word.access(bus, Access::Write);
        target
    }

    /// `rto_next_cpu()`: the next overloaded CPU in order of CPU numbers; at the end, from the start again
    /// if there were new requests.
    fn next(&mut self, bus: &mut impl Bus) -> Option<Cpu> {
        loop {
            self.mask_ptr.access(bus, Access::Read);
            let from = self.at.map_or(0, |c| c.0 + 1);
            self.at = self.next_in_mask(bus, from);
            if self.at.is_some() {
                return self.at;
            }
            self.next_word.access(bus, Access::Read);
            if self.loop_served == self.loop_next {
                return None;
            }
            self.loop_served = self.loop_next;
        }
    }

    fn next_in_mask(&self, bus: &mut impl Bus, from: u32) -> Option<Cpu> {
        if from as usize >= self.machine.nr_cpu_numbers() {
            return None;
        }
        let online = Within::one(self.machine.online());
        let after = match from {
            0 => (self.mask.words().len() * 64) as u32 - 1,
            n => n - 1,
        };
        let (found, _) = self.mask.next_and_wrap(bus, online, after);
        found.filter(|c| c.0 >= from)
    }

    /// How many CPUs count as overloaded, for checks.
    #[cfg(test)]
    pub fn total(&self) -> u32 {
        self.counts.iter().sum()
    }
}
