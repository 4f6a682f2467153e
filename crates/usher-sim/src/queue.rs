// SPDX-License-Identifier: GPL-2.0-only
//! The event queue: earliest time first, and of equal times the one that was put in first.

use crate::ids::Nanos;

/// An entry of the queue: `what` at `time`. `seq` makes the order total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub time: Nanos,
    /// In which order it was put in.
    pub seq: u64,
    /// What; the queue does not look.
    pub what: u64,
}

impl Entry {
    #[inline]
    fn before(&self, other: &Entry) -> bool {
        (self.time, self.seq) < (other.time, other.seq)
    }
}

const ARITY: usize = 4;

/// A heap in which each entry has four children: half as deep as a binary heap, and the children of an
/// entry lie next to each other.
#[derive(Debug, Default)]
pub struct HeapQueue {
    heap: Vec<Entry>,
    seq: u64,
}

impl HeapQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many entries it holds.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Puts an entry in.
    #[inline]
    pub fn push(&mut self, time: Nanos, what: u64) {
        let entry = Entry {
            time,
            seq: self.seq,
            what,
        };
        self.seq += 1;
        self.heap.push(entry);
        let mut hole = self.heap.len() - 1;
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = entry;
    }

    /// The time of the next entry.
    pub fn next_time(&self) -> Option<Nanos> {
        self.heap.first().map(|e| e.time)
    }

    /// The next entry, and some that come soon.
    pub fn soon(&self) -> &[Entry] {
        &self.heap[..self.heap.len().min(ARITY + 1)]
    }

    /// Takes the next entry out.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        let last = self.heap.pop()?;
        let Some(&first) = self.heap.first() else {
            return Some(last);
        };
        let len = self.heap.len();
        let mut hole = 0;
        loop {
            let child = hole * ARITY + 1;
            if child >= len {
                break;
            }
            let mut least = child;
            for other in child + 1..(child + ARITY).min(len) {
                if self.heap[other].before(&self.heap[least]) {
                    least = other;
                }
            }
            if !self.heap[least].before(&last) {
                break;
            }
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.heap[hole] = last;
        Some(first)
    }
}
