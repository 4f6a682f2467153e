// SPDX-License-Identifier: GPL-2.0-only
//! What instructions, cache lines and memory cost.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::super::measure::Alone;
use super::memory::Pages;
use super::{low, on, time, TURNS};

/// Words of a line of 64 bytes.
const LINE_WORDS: usize = 8;
/// What one CPU writes for another to copy: fits into any private cache.
const COPIED: usize = 64 << 10;

/// Cycles per second in millions: additions of which each needs the one before take a cycle each.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn clock_mhz() -> Option<f64> {
    /// Additions written one after the other.
    const IN_A_ROW: f64 = 16.0;
    let mut sum = 1_u64;
    let each = time(|| {
        for _ in 0..64 {
            // SAFETY: registers only.
            unsafe {
                #[cfg(target_arch = "x86_64")]
                std::arch::asm!(".rept 16", "add {0}, {1}", ".endr", inout(reg) sum, in(reg) 3_u64);
                #[cfg(target_arch = "aarch64")]
                std::arch::asm!(".rept 16", "add {0}, {0}, {1}", ".endr", inout(reg) sum, in(reg) 3_u64);
            }
        }
    });
    black_box(sum);
    Some(64.0 * IN_A_ROW * 1000.0 / each)
}

/// No such instruction is known here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn clock_mhz() -> Option<f64> {
    None
}

/// A load of a line that this core has: each address comes from the load before.
pub fn hit_ns() -> io::Result<f64> {
    Ok(chase(&ring(64)?, 1 << 12))
}

/// An atomic addition to a line that this core has: each adds what the one before found.
pub fn rmw_ns() -> f64 {
    let word = Alone(AtomicU64::new(1));
    let mut found = 1;
    let each = time(|| {
        for _ in 0..64 {
            found = word.0.fetch_add(found | 1, Ordering::SeqCst);
        }
    });
    black_box(found);
    each / 64.0
}

/// A load from memory: a walk in random order over so many bytes, far more than any cache holds.
pub fn memory_ns(bytes: usize) -> io::Result<f64> {
    Ok(chase(&ring(bytes / (LINE_WORDS * 8))?, 1 << 14))
}

/// In the first word of each line the number of the next one: one cycle through all of them, in random order.
fn ring(lines: usize) -> io::Result<Pages> {
    let mut words = Pages::new(lines * LINE_WORDS)?;
    // Sattolo's shuffle of the identity is a single cycle.
    for line in 0..lines {
        words[line * LINE_WORDS] = line;
    }
    let mut random = 1_u64;
    for line in (1..lines).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let other = ((random >> 33) as usize) % line;
        words.swap(line * LINE_WORDS, other * LINE_WORDS);
    }
    Ok(words)
}

/// Nanoseconds per step along the ring.
fn chase(ring: &[usize], steps: usize) -> f64 {
    let mut at = 0;
    let turns = (0..TURNS).map(|_| {
        let start = Instant::now();
        for _ in 0..steps {
            at = ring[at * LINE_WORDS];
        }
        start.elapsed().as_nanos() as f64 / steps as f64
    });
    let each = low(turns.collect());
    black_box(at);
    each
}

/// Reading so many bytes from the first to the last, a word of each line, ns per KiB.
pub fn read_ns_per_kib(bytes: usize) -> io::Result<f64> {
    let mut words = Pages::new(bytes / 8)?;
    words.fill(2);
    let turns = (0..TURNS / 2).map(|_| {
        let start = Instant::now();
        let sum: usize = words
            .iter()
            .step_by(LINE_WORDS)
            .fold(0, |sum, word| sum ^ word);
        black_box(sum);
        start.elapsed().as_nanos() as f64
    });
    Ok(low(turns.collect()) / (bytes as f64 / 1024.0))
}

/// Two threads that begin once both are where they belong; if one cannot be, neither does.
struct Start {
    both: Barrier,
    failed: AtomicBool,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            both: Barrier::new(2),
            failed: AtomicBool::new(false),
        }
    }
}

impl Start {
    fn on(&self, cpu: usize) -> io::Result<()> {
        let here = on(cpu);
        self.failed.fetch_or(here.is_err(), Ordering::AcqRel);
        self.both.wait();
        match self.failed.load(Ordering::Acquire) {
            true => here.and(Err(io::Error::other("the other CPU cannot be used"))),
            false => Ok(()),
        }
    }
}

/// A line's way from one CPU to another: each changes it by a compare-and-swap when the other has, as
/// core-to-core-latency does; half of there and back.
pub fn line_ns(a: usize, b: usize) -> io::Result<f64> {
    const ROUNDS: u32 = 2_000;
    let word = Alone(AtomicU32::new(0));
    let (word, pair) = (&word.0, Start::default());
    // Each waits for the other's value and puts its own.
    let swap = |from: u32, to: u32| {
        while word
            .compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            std::hint::spin_loop();
        }
    };
    let run = |cpu: usize, first: bool| -> io::Result<Vec<f64>> {
        pair.on(cpu)?;
        let turns = (0..TURNS).map(|_| {
            pair.both.wait();
            let start = Instant::now();
            for _ in 0..ROUNDS {
                match first {
                    true => swap(0, 1),
                    false => swap(1, 0),
                }
            }
            start.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS)
        });
        Ok(turns.collect())
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| run(b, false));
        let turns = scope
            .spawn(|| run(a, true))
            .join()
            .expect("a loop cannot panic")?;
        other.join().expect("a loop cannot panic")?;
        Ok(low(turns))
    })
}

/// What reading takes on one CPU each time after another has written, ns. Both are told the turn; the reader is made where it reads.
fn after_writes_ns<R: FnMut(usize)>(
    from: usize,
    to: usize,
    write: impl Fn(usize) + Sync,
    reader: impl FnOnce() -> R + Send,
) -> io::Result<f64> {
    let pair = Start::default();
    let barrier = &pair.both;
    let writes = || -> io::Result<()> {
        pair.on(from)?;
        for turn in 0..TURNS {
            write(turn);
            barrier.wait();
            barrier.wait();
        }
        Ok(())
    };
    let reads = || -> io::Result<Vec<f64>> {
        pair.on(to)?;
        let mut read = reader();
        let turns = (0..TURNS).map(|turn| {
            barrier.wait();
            let start = Instant::now();
            read(turn);
            let took = start.elapsed().as_nanos() as f64;
            barrier.wait();
            took
        });
        Ok(turns.collect())
    };
    thread::scope(|scope| {
        let writer = scope.spawn(writes);
        let reader = scope.spawn(reads);
        writer.join().expect("a loop cannot panic")?;
        Ok(low(reader.join().expect("a loop cannot panic")?))
    })
}

/// Copying on one CPU what another has just written, ns per KiB.
pub fn copy_ns_per_kib(from: usize, to: usize) -> io::Result<f64> {
    let written = std::sync::Mutex::new(vec![0_u8; COPIED]);
    let write = |turn| written.lock().expect("nobody panics").fill(turn as u8);
    let reader = || {
        let mut copy = vec![1_u8; COPIED];
        let written = &written;
        move |_| {
            copy.copy_from_slice(&written.lock().expect("nobody panics"));
            black_box(&copy);
        }
    };
    Ok(after_writes_ns(from, to, write, reader)? / (COPIED / 1024) as f64)
}

/// CPUs that a search looks at.
pub const LOOKED_AT: usize = 32;
/// Lines of a run queue that it reads, as in Linux 6.18: the first, that of the fair class, and that of who runs there.
const READ: [usize; 3] = [0, 4, 48];
/// From one run queue to the next, in words: no multiple of a page, lest all lie in one set of a cache.
const QUEUE_WORDS: usize = 65 * LINE_WORDS;

/// What a CPU looks at of others: nobody says where the next one lies but a mask, so that a core fetches what it needs of several at once.
struct Queues<'a>(&'a [AtomicU64]);

impl Queues<'_> {
    /// In no order that a prefetcher knows.
    fn word(&self, cpu: usize, line: usize) -> &AtomicU64 {
        &self.0[cpu * 13 % LOOKED_AT * QUEUE_WORDS + READ[line] * LINE_WORDS]
    }

    /// Each CPU runs somebody, and has changed its lines.
    fn change(&self, turn: u64) {
        for cpu in 0..LOOKED_AT {
            (0..READ.len())
                .for_each(|line| self.word(cpu, line).store(2 + turn, Ordering::Relaxed));
        }
    }

    #[inline(never)]
    fn idles(&self, cpu: usize) -> bool {
        let load = |line| self.word(cpu, line).load(Ordering::Relaxed);
        load(2) == 0 && load(0) == 0
    }

    #[inline(never)]
    fn runs_idle_class(&self, cpu: usize) -> bool {
        let load = |line| self.word(cpu, line).load(Ordering::Relaxed);
        load(0) != 0 && load(1) == 0
    }

    /// The first CPU of a mask from `cpu` on.
    #[inline(never)]
    fn next(mask: u64, cpu: usize) -> Option<usize> {
        let left = mask & u64::MAX.checked_shl(cpu as u32).unwrap_or(0);
        (left != 0).then(|| left.trailing_zeros() as usize)
    }

    /// The first CPU of a mask from `start` on and around that is free.
    #[inline(never)]
    fn search(&self, mask: u64, start: usize) -> Option<usize> {
        let from_start = u64::MAX << start;
        for part in [mask & from_start, mask & !from_start] {
            let mut cpu = 0;
            while let Some(next) = Self::next(part, cpu) {
                if self.idles(next) || self.runs_idle_class(next) {
                    return Some(next);
                }
                cpu = next + 1;
            }
        }
        None
    }
}

/// What a search that finds nobody takes for each CPU, where another core changed what it looks at.
pub fn look_ns(from: usize, to: usize) -> io::Result<f64> {
    const MASK: u64 = u64::MAX >> (64 - LOOKED_AT);
    let mut words = Pages::new(LOOKED_AT * QUEUE_WORDS)?;
    // SAFETY: words that nobody uses but as atomics from here on; they have the same size and alignment.
    let words = unsafe { std::slice::from_raw_parts(words.as_mut_ptr().cast(), words.len()) };
    let queues = Queues(words);
    let write = |turn| queues.change(turn as u64);
    let read = |turn| assert_eq!(queues.search(black_box(MASK), turn % LOOKED_AT), None);
    Ok(after_writes_ns(from, to, write, || read)? / LOOKED_AT as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a search finds the one free CPU wherever it starts, and nobody where that one is not in the mask.
    // Method: each CPU free in turn, from every start.
    #[test]
    fn a_search_finds_who_is_free() {
        let words: Vec<AtomicU64> = (0..LOOKED_AT * QUEUE_WORDS).map(|_| 0.into()).collect();
        let queues = Queues(&words);
        let all = u64::MAX >> (64 - LOOKED_AT);
        for free in 0..LOOKED_AT {
            queues.change(free as u64);
            queues.word(free, 0).store(0, Ordering::Relaxed);
            queues.word(free, 2).store(0, Ordering::Relaxed);
            for start in 0..LOOKED_AT {
                assert_eq!(queues.search(all, start), Some(free), "from {start}");
                if start != free {
                    assert_eq!(queues.search(all & !(1 << free), start), None);
                }
            }
        }
    }

    // Goal: a walk comes by every line once. Method: rings of several sizes.
    #[test]
    fn a_ring_is_one_cycle() {
        for lines in [1, 2, 3, 64, 1000] {
            let ring = ring(lines).expect("memory");
            let (mut at, mut steps) = (0, 0);
            loop {
                at = ring[at * LINE_WORDS];
                steps += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(steps, lines);
        }
    }
}
