// SPDX-License-Identifier: GPL-2.0-only
//! Which structure should hold the events? This bench decided for the radix heap with a sorted front
//! ([`EventQueue`]), and shows whether it still should.
//!
//! Hold model: a queue of N entries; take the earliest, put in another one some time later. The times ahead
//! are drawn as the engine's are: mostly the end of a short step, some interrupts on their way, some ticks
//! and timers. The candidates take turns in short rounds, so that a busy host slows all of them alike; the
//! best round of each counts. First all must give the same order.
//!
//! `cargo bench -p usher-sim --bench event_queue`

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use usher_sim::queue::EventQueue;
use usher_sim::rng::Rng;

/// What the engine needs: the earliest entry, of equal times the one put in first.
trait Queue {
    fn push(&mut self, time: u64, what: u64);
    fn pop(&mut self) -> (u64, u64);
}

impl Queue for EventQueue {
    fn push(&mut self, time: u64, what: u64) {
        EventQueue::push(self, time, what);
    }
    fn pop(&mut self) -> (u64, u64) {
        let entry = EventQueue::pop(self).expect("the bench keeps it filled");
        (entry.time, entry.what)
    }
}

/// A heap in which each entry has four children: half as deep as a binary heap, and the children of an
/// entry lie next to each other.
#[derive(Default)]
struct Heap4 {
    heap: Vec<(u64, u64, u64)>,
    seq: u64,
}

const ARITY: usize = 4;

fn before(a: &(u64, u64, u64), b: &(u64, u64, u64)) -> bool {
    (a.0, a.1) < (b.0, b.1)
}

impl Queue for Heap4 {
    fn push(&mut self, time: u64, what: u64) {
        let entry = (time, self.seq, what);
        self.seq += 1;
        self.heap.push(entry);
        let mut hole = self.heap.len() - 1;
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !before(&entry, &self.heap[parent]) {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = entry;
    }

    fn pop(&mut self) -> (u64, u64) {
        let last = self.heap.pop().expect("filled");
        let Some(&first) = self.heap.first() else {
            return (last.0, last.2);
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
                if before(&self.heap[other], &self.heap[least]) {
                    least = other;
                }
            }
            if !before(&self.heap[least], &last) {
                break;
            }
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.heap[hole] = last;
        (first.0, first.2)
    }
}

/// The standard library's binary heap.
#[derive(Default)]
struct Binary {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    seq: u64,
}

impl Queue for Binary {
    fn push(&mut self, time: u64, what: u64) {
        self.seq += 1;
        self.heap.push(Reverse((time, self.seq, what)));
    }
    fn pop(&mut self) -> (u64, u64) {
        let Reverse((time, _, what)) = self.heap.pop().expect("filled");
        (time, what)
    }
}

/// A B-tree.
#[derive(Default)]
struct Tree {
    map: BTreeMap<(u64, u64), u64>,
    seq: u64,
}

impl Queue for Tree {
    fn push(&mut self, time: u64, what: u64) {
        self.seq += 1;
        self.map.insert((time, self.seq), what);
    }
    fn pop(&mut self) -> (u64, u64) {
        let ((time, _), what) = self.map.pop_first().expect("filled");
        (time, what)
    }
}

/// A radix heap (Ahuja and others, 1990): entries lie in the bucket of the highest bit in which their time
/// differs from the last one taken. Works because nothing is put in before that.
struct Radix {
    buckets: Vec<VecDeque<(u64, u64)>>,
    last: u64,
    filled: u64,
}

impl Default for Radix {
    fn default() -> Self {
        Radix {
            buckets: (0..65).map(|_| VecDeque::new()).collect(),
            last: 0,
            filled: 0,
        }
    }
}

impl Radix {
    fn bucket(&self, time: u64) -> usize {
        64 - (time ^ self.last).leading_zeros() as usize
    }
}

impl Queue for Radix {
    fn push(&mut self, time: u64, what: u64) {
        let b = self.bucket(time);
        self.buckets[b].push_back((time, what));
        self.filled |= 1u64.checked_shl(b as u32).unwrap_or(0);
    }
    fn pop(&mut self) -> (u64, u64) {
        if self.buckets[0].is_empty() {
            let b = (self.filled & !1).trailing_zeros() as usize;
            let entries = std::mem::take(&mut self.buckets[b]);
            self.filled &= !(1 << b);
            self.last = entries.iter().map(|e| e.0).min().expect("marked as filled");
            for (time, what) in &entries {
                let to = self.bucket(*time);
                self.buckets[to].push_back((*time, *what));
                self.filled |= 1 << to;
            }
            // Keep the memory: the bucket will fill again.
            let mut entries = entries;
            entries.clear();
            self.buckets[b] = entries;
        }
        let entry = self.buckets[0].pop_front().expect("just filled");
        if self.buckets[0].is_empty() {
            self.filled &= !1;
        }
        entry
    }
}

/// A calendar queue (Brown 1988): days of a fixed length in a year that repeats, each day a sorted list.
/// The number of days and their length follow the number of entries.
struct Calendar {
    days: Vec<Vec<(u64, u64, u64)>>,
    day_ns: u64,
    today: u64,
    len: usize,
    seq: u64,
}

impl Calendar {
    fn new(expected: usize, mean_ahead: u64) -> Self {
        Calendar {
            days: vec![Vec::new(); expected.next_power_of_two()],
            day_ns: (3 * mean_ahead / expected as u64).max(1),
            today: 0,
            len: 0,
            seq: 0,
        }
    }
}

impl Queue for Calendar {
    fn push(&mut self, time: u64, what: u64) {
        self.seq += 1;
        let day = time / self.day_ns;
        let mask = self.days.len() as u64 - 1;
        let list = &mut self.days[(day & mask) as usize];
        // Latest first, so that the earliest is taken from the end.
        let key = (time, self.seq);
        let at = list.partition_point(|e| (e.0, e.1) > key);
        list.insert(at, (time, self.seq, what));
        self.len += 1;
    }
    fn pop(&mut self) -> (u64, u64) {
        let mask = self.days.len() as u64 - 1;
        for _ in 0..=mask {
            let end = (self.today + 1) * self.day_ns;
            let list = &mut self.days[(self.today & mask) as usize];
            if list.last().is_some_and(|e| e.0 < end) {
                let (time, _, what) = list.pop().expect("not empty");
                self.len -= 1;
                return (time, what);
            }
            self.today += 1;
        }
        // Nothing within a year: go to the earliest of all.
        let first = self.days.iter().filter_map(|list| list.last()).min();
        self.today = first.expect("filled").0 / self.day_ns;
        self.pop()
    }
}

/// The time ahead of a new event: 70 % ends of steps (some microseconds), 20 % interrupts (about one), 10 %
/// ticks and timers (up to 4 ms).
fn ahead(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..=6 => rng.exponential(5_000),
        7..=8 => 500 + rng.below(1_000),
        _ => 1 + rng.below(4_000_000),
    }
}

const MEAN_AHEAD: u64 = 204_000;

/// Times ahead, drawn beforehand so that drawing is not measured; gone through again and again, from where
/// the last round stopped.
struct Times {
    table: Vec<u64>,
    at: usize,
}

impl Times {
    fn new() -> Self {
        let mut rng = Rng::new(1);
        Times {
            table: (0..1 << 16).map(|_| ahead(&mut rng)).collect(),
            at: 0,
        }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.at = (self.at + 1) % self.table.len();
        self.table[self.at]
    }
}

fn fill(queue: &mut dyn Queue, n: usize) -> Times {
    let mut times = Times::new();
    (0..n as u64).for_each(|what| queue.push(times.next(), what));
    times
}

/// Takes and puts in; returns a digest of the order.
fn hold(queue: &mut dyn Queue, times: &mut Times, steps: u64) -> u64 {
    let mut digest = 0;
    for _ in 0..steps {
        let (time, what) = queue.pop();
        digest = (digest ^ time ^ what << 40).rotate_left(7);
        queue.push(time + times.next(), what);
    }
    digest
}

/// One candidate with its queue and what it has reached.
struct Candidate {
    name: &'static str,
    queue: Box<dyn Queue>,
    times: Times,
    best: Duration,
}

const STEPS: u64 = 50_000;
const ROUNDS: usize = 12;

fn round(queue: &mut dyn Queue, times: &mut Times) -> Duration {
    let start = Instant::now();
    std::hint::black_box(hold(queue, times, STEPS));
    start.elapsed()
}

fn candidates(n: usize) -> Vec<Candidate> {
    let queues: [(&str, Box<dyn Queue>); 6] = [
        ("radix + sorted front", Box::new(EventQueue::new())),
        ("4-ary heap", Box::<Heap4>::default()),
        ("binary heap (std)", Box::<Binary>::default()),
        ("B-tree (std)", Box::<Tree>::default()),
        ("plain radix heap", Box::<Radix>::default()),
        ("calendar queue", Box::new(Calendar::new(n, MEAN_AHEAD))),
    ];
    queues
        .into_iter()
        .map(|(name, mut queue)| Candidate {
            times: fill(&mut *queue, n),
            name,
            queue,
            best: Duration::MAX,
        })
        .collect()
}

fn main() {
    println!("event queue: ns per take and put, best of {ROUNDS} alternating rounds of {STEPS}\n");
    let sizes = [64, 768, 8_192, 100_000];
    print!("{:22}", "entries");
    sizes.iter().for_each(|n| print!("{n:>10}"));
    println!();
    let mut table: Vec<(&str, Vec<f64>)> = Vec::new();
    for (column, &n) in sizes.iter().enumerate() {
        let mut all = candidates(n);
        let orders: Vec<u64> = all
            .iter_mut()
            .map(|c| hold(&mut *c.queue, &mut c.times, STEPS))
            .collect();
        for (candidate, order) in all.iter().zip(&orders) {
            assert_eq!(
                *order, orders[0],
                "{} takes in another order",
                candidate.name
            );
        }
        for _ in 0..ROUNDS {
            for c in &mut all {
                c.best = c.best.min(round(&mut *c.queue, &mut c.times));
            }
        }
        for (row, c) in all.iter().enumerate() {
            if column == 0 {
                table.push((c.name, Vec::new()));
            }
            table[row].1.push(c.best.as_nanos() as f64 / STEPS as f64);
        }
    }
    for (name, values) in table {
        print!("{name:22}");
        values.iter().for_each(|v| print!("{v:>10.1}"));
        println!();
    }
    println!();
}
