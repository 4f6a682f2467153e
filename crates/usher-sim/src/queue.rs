// SPDX-License-Identifier: GPL-2.0-only
//! The event queue: earliest time first, and of equal times the one that was put in first.
//!
//! A radix heap with a sorted front. Simulated time never runs backwards, so no entry is put in before the
//! last one taken, and a radix heap (Ahuja, Mehlhorn, Orlin, Tarjan 1990) needs no comparisons: an entry
//! lies in the bucket of the highest bit in which its time differs from a base. Buckets are in order; only
//! inside them there is none. The few earliest entries lie in a sorted front, so that the next events are
//! known exactly and their data can be fetched beforehand.
//!
//! `benches/event_queue.rs` compares it with heaps, a B-tree and a calendar queue: it costs about the same
//! for 64 entries, and much less for thousands.

use std::collections::VecDeque;

use crate::ids::Nanos;

/// An entry of the queue: `what` at `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub time: Nanos,
    /// What; the queue does not look.
    pub what: u64,
}

/// The front is filled up when it has fewer entries than this.
const FRONT_LEAST: usize = 8;
/// A bucket of so many entries is sorted into the front as a whole; a larger one is divided first.
const BATCH_MOST: usize = 40;
/// A longer front is given back to the buckets.
const FRONT_MOST: usize = 128;
/// One bucket per bit of a time, and one for the base itself.
const BUCKETS: usize = Nanos::BITS as usize + 1;

/// See the module.
#[derive(Debug)]
pub struct EventQueue {
    /// The earliest entries, in order: all whose time is at most `base`.
    front: VecDeque<Entry>,
    /// `buckets[b]`: times above `base` that differ from it in bit `b - 1` and in none above. In order of
    /// arrival, hence entries of equal time, which always share a bucket, stay in order.
    buckets: Vec<Vec<Entry>>,
    /// Bit `b`: bucket `b` is not empty.
    filled: u128,
    base: Nanos,
    len: usize,
}

impl Default for EventQueue {
    fn default() -> Self {
        EventQueue {
            front: VecDeque::new(),
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            filled: 0,
            base: 0,
            len: 0,
        }
    }
}

impl EventQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many entries it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts an entry in. Its time must not be before that of the last entry taken.
    #[inline]
    pub fn push(&mut self, time: Nanos, what: u64) {
        let entry = Entry { time, what };
        self.len += 1;
        if time > self.base {
            self.put(entry);
            return;
        }
        // Behind those of equal time. Most belong near the end of the front.
        let mut at = self.front.len();
        while at > 0 && self.front[at - 1].time > time {
            at -= 1;
        }
        self.front.insert(at, entry);
        if self.front.len() > FRONT_MOST {
            self.shorten_front();
        }
    }

    /// After a quiet time the front reaches far ahead, and in a busy one all that comes would be sorted
    /// into it: gives most of it back to the buckets, with an earlier base.
    #[cold]
    fn shorten_front(&mut self) {
        let base = self.front[BATCH_MOST].time;
        let kept = self.front.partition_point(|e| e.time <= base);
        if kept == self.front.len() {
            return;
        }
        // `d - 1` is the highest bit that changes. Entries above the old base that differ from it in a
        // lower bit now differ in this one; bucket `d` itself is empty, since it would hold times below
        // the old base; and higher buckets stay as they are.
        let d = self.bucket(base);
        self.base = base;
        for b in 0..d {
            let mut entries = std::mem::take(&mut self.buckets[b]);
            self.filled &= !(1 << b);
            entries.drain(..).for_each(|entry| self.put(entry));
            self.buckets[b] = entries;
        }
        for entry in self.front.split_off(kept) {
            self.put(entry);
        }
    }

    /// The bucket of a time above the base.
    #[inline]
    fn bucket(&self, time: Nanos) -> usize {
        (Nanos::BITS - (time ^ self.base).leading_zeros()) as usize
    }

    #[inline]
    fn put(&mut self, entry: Entry) {
        let b = self.bucket(entry.time);
        self.buckets[b].push(entry);
        self.filled |= 1 << b;
    }

    /// The next entries, earliest first: those that are known in order.
    #[inline]
    pub fn soon(&self) -> impl Iterator<Item = &Entry> {
        self.front.iter()
    }

    /// Takes the next entry out.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        if self.front.len() < FRONT_LEAST && self.filled != 0 {
            self.fill_front();
        }
        let entry = self.front.pop_front()?;
        self.len -= 1;
        Some(entry)
    }

    /// Moves the earliest bucket into the front.
    fn fill_front(&mut self) {
        loop {
            let b = self.filled.trailing_zeros() as usize;
            self.filled &= !(1 << b);
            let mut entries = std::mem::take(&mut self.buckets[b]);
            if entries.len() <= BATCH_MOST {
                entries.sort_by_key(|e| e.time); // stable: equal times stay in order
                self.front.extend(&entries);
                entries.clear();
                self.buckets[b] = entries;
                // Not the end of the bucket's range: that may be far off, and all that comes until then
                // would have to be sorted in. Bits of the base from `b` on do not change, so entries of
                // higher buckets stay where they belong.
                self.base = self.front.back().map_or(self.base, |e| e.time);
                return;
            }
            // Divide it: relative to its earliest time its entries go into lower buckets, and those of
            // that time itself to the front.
            let first = entries.iter().map(|e| e.time).min().unwrap_or(self.base);
            self.base = first;
            for &entry in &entries {
                if entry.time == first {
                    self.front.push_back(entry);
                } else {
                    self.put(entry);
                }
            }
            entries.clear();
            self.buckets[b] = entries;
            if self.front.len() >= FRONT_LEAST {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    // Goal: any mix of putting and taking gives the order of time, and of equal times that of arrival.
    // Method: against a list that is searched, with times ahead that crowd, repeat and lie far apart, quiet
    // times and busy ones in turn.
    #[test]
    fn order_is_time_then_arrival() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let (mut queue, mut list) = (EventQueue::new(), Vec::new());
            let (mut now, mut next) = (rng.below(1 << 40), 0);
            for step in 0..3000 {
                // First it empties, so that the front reaches far; then it fills.
                let busy = step % 1000 > 400;
                if rng.below(100) < (if busy { 75 } else { 30 }) || list.is_empty() {
                    let ahead = match rng.below(6) {
                        0 => 0,
                        1 => rng.below(4),
                        2 => rng.next_u64() >> rng.range(24, 63),
                        3 => 4_000_000 - now % 4_000_000, // ticks: many at once
                        4 => u64::MAX - now,
                        _ => rng.exponential(5_000),
                    };
                    queue.push(now + ahead, next);
                    list.push((now + ahead, next));
                    next += 1;
                } else {
                    let expected = *list.iter().min().expect("not empty");
                    list.retain(|e| *e != expected);
                    let entry = queue.pop().expect("as many as in the list");
                    assert_eq!((entry.time, entry.what), expected, "seed {seed}");
                    if expected.0 < u64::MAX / 2 {
                        now = expected.0;
                    } else {
                        break;
                    }
                }
                assert_eq!(queue.len(), list.len());
            }
        }
    }

    // Goal: the order holds when a front that reached far ahead, after a quiet time, is given back to the
    // buckets in a busy one.
    // Method: timers far apart, some of them taken; then a crowd shortly after now, among entries that lie
    // in buckets just beyond the front.
    #[test]
    fn a_long_front_is_given_back_in_order() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut queue, mut list) = (EventQueue::new(), Vec::new());
            let mut now = rng.below(1 << 30);
            for round in 0..6 {
                let mut push = |queue: &mut EventQueue, time| {
                    let what = (round << 20) + list.len() as u64;
                    queue.push(time, what);
                    list.push((time, what));
                };
                for _ in 0..20 {
                    push(&mut queue, now + (1 << rng.range(10, 24)));
                }
                let calm = queue.pop().expect("just put in");
                now = calm.time;
                for _ in 0..400 {
                    let most = 1 << rng.range(1, 16);
                    push(&mut queue, now + rng.below(most));
                    let (span, most) = (queue.base - now.min(queue.base), 1 << rng.range(1, 16));
                    push(&mut queue, now + span + rng.below(most));
                }
                let mut expected = std::mem::take(&mut list);
                expected.retain(|e| *e != (calm.time, calm.what));
                expected.sort();
                let leave = if round == 5 { 0 } else { 60 };
                for e in &expected[..expected.len() - leave] {
                    let got = queue.pop().map(|g| (g.time, g.what));
                    assert_eq!(got, Some(*e), "seed {seed} round {round}");
                    now = e.0;
                }
                list = expected.split_off(expected.len() - leave);
            }
            assert!(queue.is_empty());
        }
    }

    // Goal: what `soon` tells comes next, in that order.
    // Method: a thousand entries, asked before each is taken.
    #[test]
    fn soon_is_what_comes_next() {
        let mut rng = Rng::new(1);
        let mut queue = EventQueue::new();
        (0..1000).for_each(|what| queue.push(1 + rng.below(100_000), what));
        for _ in 0..900 {
            queue.pop().expect("filled");
        }
        let told: Vec<Entry> = queue.soon().copied().collect();
        assert!(told.len() >= FRONT_LEAST - 1);
        for entry in told {
            assert_eq!(queue.pop(), Some(entry));
        }
    }

    // Goal: an empty queue is empty, at the beginning and again.
    #[test]
    fn it_empties() {
        let mut queue = EventQueue::new();
        assert_eq!((queue.pop(), queue.is_empty()), (None, true));
        (0..100).for_each(|i| queue.push(7, i));
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 100);
        assert_eq!((queue.pop(), queue.len()), (None, 0));
    }
}
