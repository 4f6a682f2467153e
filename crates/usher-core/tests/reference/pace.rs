// SPDX-License-Identifier: GPL-2.0-only
//! Queues that are left to the CPUs of their last-level cache (`core/src/pace.c`), as plainly as possible.

use crate::plain::{Answer, Plain, Wanted};
use usher_core::{Reason, Wake};

impl Plain<'_> {
    /// 0: no task is left to anybody.
    fn soon_ns(&self) -> u64 {
        match self.machine.llcs.len() > 1 && !self.asymmetric() {
            true => self.machine.settings.soon_ns,
            false => 0,
        }
    }

    fn queue_of(&self, cid: u32) -> u32 {
        self.machine.tables.queue[cid as usize]
    }

    /// A turn begins.
    pub fn turn(&mut self, cid: u32, at_ns: u64) {
        let before = self.turns_ns.insert(cid, at_ns).unwrap_or(0);
        let queue = self.queue_of(cid) as usize;
        // Few CPUs say too little.
        if self.soon_ns() == 0 || self.machine.queues[queue].len() < 8 {
            return;
        }
        let lasted = at_ns.wrapping_sub(before) / self.machine.queues[queue].len() as u64;
        let gap = lasted.min(2 * self.soon_ns());
        let mean = match self.gaps_ns[queue] {
            0 => gap,
            mean => mean - mean / 16 + gap / 16,
        };
        self.gaps_ns[queue] = mean.max(1);
    }

    fn soon(&self, queue: u32) -> bool {
        let q = queue as usize;
        let gap = self.gaps_ns[q];
        let known = gap > 0 && self.waits_ns[q] == 0;
        known && gap < self.soon_ns() && (self.queued[q] + 1) * gap < self.soon_ns()
    }

    fn announce(&mut self, queue: u32, all: bool) {
        if self.announced.contains(&queue) {
        } else if all || !self.soon(queue) {
            self.announced.insert(queue);
        } else {
            self.near.insert(queue);
        }
    }

    pub fn fill(&mut self, queue: u32, bound: bool) {
        let waits_ns = &mut self.waits_ns[queue as usize];
        if bound && *waits_ns == 0 {
            *waits_ns = u64::from(self.machine.llcs.len() > 1);
        }
        self.announce(queue, bound);
    }

    /// A queue was found empty.
    pub fn empty(&mut self, queue: u32) {
        self.waits_ns[queue as usize] = 0;
        self.announced.remove(&queue);
        self.near.remove(&queue);
    }

    /// `by` took a task.
    pub fn taken(&mut self, by: u32, queue: u32) {
        if self.queued[queue as usize] == 0 {
            self.waits_ns[queue as usize] = 0;
        }
        let first = self.machine.queues[queue as usize].start as usize;
        let [own, theirs] = [by as usize, first].map(|cid| self.machine.tables.llc[cid]);
        if own == theirs && self.soon(queue) && self.announced.remove(&queue) {
            self.near.remove(&queue);
            if self.queued[queue as usize] > 0 {
                self.near.insert(queue);
                self.poke.insert(by);
            }
        }
    }

    /// Whom a tick sends to its CPU's queue; nobody if the list is empty.
    pub fn overdue(&mut self, cid: u32, now_ns: u64) -> Vec<Answer> {
        let queue = self.queue_of(cid);
        let waits = self.queued[queue as usize] > 0 && self.near.contains(&queue);
        if !waits || self.announced.contains(&queue) {
            return Vec::new();
        }
        let since = &mut self.waits_ns[queue as usize];
        if *since == 0 {
            *since = now_ns;
        }
        if now_ns < *since + 1_000_000 {
            return Vec::new();
        }
        self.announced.insert(queue);
        self.look_for(cid, &Wanted::default(), false)
    }

    /// Whom a CPU that goes out of service sends to its queue; nobody if the list is empty.
    pub fn deserted(&mut self, cid: u32) -> Vec<Answer> {
        let queue = self.queue_of(cid);
        if self.soon_ns() == 0 {
            return Vec::new();
        }
        self.gaps_ns[queue as usize] = 0;
        if !self.near.contains(&queue) {
            return Vec::new();
        }
        self.announced.insert(queue);
        self.look_for(cid, &Wanted::default(), false)
    }

    fn work_near(&self, cid: u32) -> bool {
        let llc = |cid: u32| self.machine.tables.llc[cid as usize];
        let first = |queue: u32| self.machine.queues[queue as usize].start;
        (self.near.iter()).any(|&queue| llc(first(queue)) == llc(cid))
    }

    /// Whether somebody waits for whom `cid` would look.
    pub fn work(&self, cid: u32) -> bool {
        !self.announced.is_empty() || self.work_near(cid)
    }

    /// After a queue was filled: who may be sent; nobody if the list is empty.
    pub fn look(&self, from: u32, wanted: &Wanted) -> Vec<Answer> {
        let for_all = self.announced.contains(&self.queue_of(from));
        let near = self.soon_ns() > 0 && wanted.allowed.is_none() && !for_all;
        self.look_for(from, wanted, near)
    }

    /// Who may answer a look on behalf of others.
    pub fn rescue(&mut self, cid: u32) -> Vec<Answer> {
        if !self.poke.remove(&cid) || !self.work(cid) {
            return Vec::new();
        }
        let near = self.announced.is_empty();
        self.look_for(cid, &Wanted::default(), near)
    }

    fn look_for(&self, from: u32, wanted: &Wanted, near: bool) -> Vec<Answer> {
        match self.in_llc(from, true, wanted) {
            Some(cid) => vec![Answer::taken(Reason::LlcCore, [cid].into())],
            None if near => self.beside_others(from, wanted),
            None => self.beside_others_or_far(from, wanted),
        }
    }

    /// Step 7 and nothing else.
    fn beside_others(&self, from: u32, wanted: &Wanted) -> Vec<Answer> {
        let beside = self.in_llc(from, false, wanted);
        let answer = |cid| Answer::taken(Reason::LlcCpu, [cid].into());
        beside.map(answer).into_iter().collect()
    }

    /// Steps 6 to 9 of a wakeup.
    pub fn beyond_cores(&self, wake: Wake, from: u32, wanted: &Wanted) -> Vec<Answer> {
        let patient = wake != Wake::Fork && wanted.allowed.is_none();
        match patient && self.soon(self.queue_of(from)) {
            true => self.beside_others(from, wanted),
            false => self.beside_others_or_far(from, wanted),
        }
    }
}
