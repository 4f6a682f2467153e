// SPDX-License-Identifier: GPL-2.0-only
//! A kernel cpumask that many CPUs share: bits by CPU number, 512 of them per cache line.
//!
//! Models of kernel code that keep such masks (the idle masks of sched_ext, the CPU priority map of the
//! real-time class) do to it what the kernel does, word by word, and every word they touch is an access
//! to the line it lies on. [`Bus`] takes the accesses: the simulated machine, or a recorder in tests.

use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cpu, LineId, Nanos, WordId};

/// Whoever charges for accesses to lines.
pub(crate) trait Bus {
    /// Accesses a line. Returns what it cost.
    fn access(&mut self, line: LineId, access: Access) -> Nanos;
    /// The time, charges included.
    fn now(&self) -> Nanos;
    /// Counts a load of a named word.
    fn loaded(&mut self, word: WordId, ns: Nanos);
}

impl Bus for Host {
    fn access(&mut self, line: LineId, access: Access) -> Nanos {
        Host::access(self, line, access)
    }

    fn now(&self) -> Nanos {
        Host::now(self)
    }

    fn loaded(&mut self, word: WordId, ns: Nanos) {
        Host::loaded(self, word, ns);
    }
}

/// A word that CPUs share: its line, and its name if somebody wants to know what loads of it cost. An atomic
/// operation is a load, too, as it is to a processor's own sampling; a plain store is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub line: LineId,
    pub name: Option<WordId>,
}

impl Word {
    /// A word without a name.
    pub fn on(line: LineId) -> Self {
        Word { line, name: None }
    }

    /// Gives it a name.
    pub fn count_as(&mut self, host: &mut Host, name: &str) {
        self.name = Some(host.word(name));
    }

    #[inline]
    pub fn access(self, bus: &mut impl Bus, access: Access) {
        let ns = bus.access(self.line, access);
        if let Some(name) = self.name.filter(|_| access != Access::Write) {
            bus.loaded(name, ns);
        }
    }
}

/// CPUs per 64-byte line of a mask.
pub(crate) const CPUS_PER_LINE: usize = 512;
const WORDS_PER_LINE: usize = CPUS_PER_LINE / 64;

/// How many lines a mask of the machine takes.
pub(crate) fn mask_lines(nr_cpu_numbers: usize) -> usize {
    nr_cpu_numbers.div_ceil(CPUS_PER_LINE).max(1)
}

/// A set to search in: one or two sets, and what is in all of them counts. Sets of one task or one
/// topology level, which no other CPU writes: reading them is not charged.
#[derive(Clone, Copy)]
pub(crate) struct Within<'a> {
    pub first: &'a CpuSet,
    pub second: Option<&'a CpuSet>,
}

impl<'a> Within<'a> {
    pub fn one(first: &'a CpuSet) -> Self {
        Within {
            first,
            second: None,
        }
    }

    #[inline]
    pub fn word(&self, i: usize) -> u64 {
        let at = |set: &CpuSet| set.words().get(i).copied().unwrap_or(0);
        at(self.first) & self.second.map_or(!0, at)
    }

    /// Whether nothing is in all of them.
    pub fn is_empty(&self) -> bool {
        (0..self.first.words().len()).all(|i| self.word(i) == 0)
    }
}

/// The last non-atomic rewrite of a mask: who reads before it is written reads the old words.
#[derive(Clone, Debug, Default)]
struct Rewrite {
    written_at: Nanos,
    before: Vec<u64>,
}

/// A mask that CPUs share.
#[derive(Clone, Debug)]
pub(crate) struct SharedMask {
    words: Vec<u64>,
    lines: Vec<LineId>,
    rewrite: Rewrite,
    /// By word, if somebody wants to know.
    names: Vec<WordId>,
    /// Updates that a concurrent non-atomic rewrite undid.
    pub lost_updates: u64,
}

impl SharedMask {
    /// An empty mask for CPU numbers below `nr_cpu_numbers` on these lines ([`mask_lines`] of them).
    pub fn new(nr_cpu_numbers: usize, lines: Vec<LineId>) -> Self {
        let words = nr_cpu_numbers.div_ceil(64).max(1);
        assert_eq!(
            lines.len(),
            mask_lines(nr_cpu_numbers),
            "one line per 512 CPUs"
        );
        let rewrite = Rewrite {
            written_at: 0,
            before: vec![0; words],
        };
        SharedMask {
            words: vec![0; words],
            lines,
            rewrite,
            names: Vec::new(),
            lost_updates: 0,
        }
    }

    /// Counts loads by word from now on: [`SharedMask::nr_words`] entries.
    pub fn count_words(&mut self, names: Vec<WordId>) {
        self.names = names;
    }

    pub fn nr_words(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn touch(&self, bus: &mut impl Bus, word: usize, access: Access) {
        let name = self.names.get(word).copied();
        let line = self.line(word);
        Word { line, name }.access(bus, access);
    }

    #[inline]
    fn line(&self, word: usize) -> LineId {
        self.lines[word / WORDS_PER_LINE]
    }

    #[inline]
    fn at(cpu: Cpu) -> (usize, u64) {
        (cpu.0 as usize / 64, 1 << (cpu.0 % 64))
    }

    /// Fills it before anybody uses it: no charge.
    pub fn fill(&mut self, set: &CpuSet) {
        for (i, word) in self.words.iter_mut().enumerate() {
            *word = set.words().get(i).copied().unwrap_or(0);
        }
    }

    /// Sets a bit before anybody uses the mask: no charge.
    pub fn init(&mut self, cpu: Cpu, to: bool) {
        let (word, bit) = Self::at(cpu);
        if to {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }

    /// The bits as they are, for checks: no charge.
    #[cfg(test)]
    pub fn peek(&self, cpu: Cpu) -> bool {
        let (word, bit) = Self::at(cpu);
        self.words[word] & bit != 0
    }

    /// The words as they are, for checks: no charge.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// `set_bit()` or `clear_bit()`: atomic, and dirties the line even if nothing changes.
    pub fn assign(&mut self, bus: &mut impl Bus, cpu: Cpu, to: bool) {
        let (word, _) = Self::at(cpu);
        self.touch(bus, word, Access::Rmw);
        self.init(cpu, to);
    }

    /// `test_and_clear_bit()`: whether this cleared it.
    pub fn test_and_clear(&mut self, bus: &mut impl Bus, cpu: Cpu) -> bool {
        let (word, bit) = Self::at(cpu);
        self.touch(bus, word, Access::Rmw);
        let was = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        was
    }

    /// `test_bit()`.
    pub fn test(&self, bus: &mut impl Bus, cpu: Cpu) -> bool {
        let (word, bit) = Self::at(cpu);
        self.read(bus, word) & bit != 0
    }

    /// One word.
    #[inline]
    pub fn read(&self, bus: &mut impl Bus, word: usize) -> u64 {
        self.touch(bus, word, Access::Read);
        self.words[word]
    }

    /// `cpumask_empty()`.
    pub fn is_empty(&self, bus: &mut impl Bus) -> bool {
        (0..self.words.len()).all(|i| self.read(bus, i) == 0)
    }

    /// `cpumask_intersects()`: stops at the first word with a common bit.
    pub fn intersects(&self, bus: &mut impl Bus, set: Within<'_>) -> bool {
        (0..self.words.len()).any(|i| self.read(bus, i) & set.word(i) != 0)
    }

    /// Whether the mask has all of `set`: `cpumask_subset(set, mask)`, which stops at the first word
    /// that says no.
    pub fn has_all(&self, bus: &mut impl Bus, set: &CpuSet) -> bool {
        let set = Within::one(set);
        (0..self.words.len()).all(|i| set.word(i) & !self.read(bus, i) == 0)
    }

    /// The next CPU that is in the mask and in `set`, after `after`, wrapping around:
    /// `find_next_and_bit_wrap()`. Returns also how many words it looked at.
    pub fn next_and_wrap(
        &self,
        bus: &mut impl Bus,
        set: Within<'_>,
        after: u32,
    ) -> (Option<Cpu>, u64) {
        let n = self.words.len();
        let start = (after as usize + 1) % (n * 64);
        let (first, shift) = (start / 64, start % 64);
        let mut looked = 0;
        // The word where it starts comes twice: its upper part first, its lower part last.
        for step in 0..=n {
            let i = (first + step) % n;
            let part = match step {
                0 => !0 << shift,
                s if s == n => !(!0 << shift),
                _ => !0,
            };
            if part == 0 {
                continue;
            }
            looked += 1;
            let hit = self.read(bus, i) & set.word(i) & part;
            if hit != 0 {
                return (Some(Cpu(i as u32 * 64 + hit.trailing_zeros())), looked);
            }
        }
        (None, looked)
    }

    /// `cpumask_or(mask, mask, set)`: reads and writes every word, not atomically.
    pub fn or(&mut self, bus: &mut impl Bus, set: &CpuSet) {
        self.rewrite(bus, |i, word| word | Within::one(set).word(i));
    }

    /// `cpumask_andnot(mask, mask, set)`: reads and writes every word, not atomically.
    pub fn and_not(&mut self, bus: &mut impl Bus, set: &CpuSet) {
        self.rewrite(bus, |i, word| word & !Within::one(set).word(i));
    }

    /// A read-modify-write of the whole mask in plain loads and stores. What another CPU does to it
    /// between the loads and the stores is lost; the kernel tolerates this (the next transition of that
    /// CPU repairs it), so it is modelled: if an earlier rewrite was not yet written when this one read,
    /// one of the two is undone, whichever was written first.
    fn rewrite(&mut self, bus: &mut impl Bus, f: impl Fn(usize, u64) -> u64) {
        for i in 0..self.words.len() {
            bus.access(self.line(i), Access::Read);
        }
        let read_at = bus.now();
        for i in 0..self.words.len() {
            bus.access(self.line(i), Access::Write);
        }
        let written_at = bus.now();
        let overlap = read_at < self.rewrite.written_at;
        if overlap && written_at < self.rewrite.written_at {
            // The earlier one is written over this one: nothing of this one stays.
            self.lost_updates += 1;
            return;
        }
        self.lost_updates += u64::from(overlap);
        for i in 0..self.words.len() {
            let now = self.words[i];
            let base = if overlap { self.rewrite.before[i] } else { now };
            self.rewrite.before[i] = base;
            self.words[i] = f(i, base);
        }
        self.rewrite.written_at = written_at;
    }
}

#[cfg(test)]
pub(crate) mod recorder {
    use super::*;

    /// Writes down the accesses. Each takes `step_ns`.
    #[derive(Default)]
    pub(crate) struct Recorder {
        pub log: Vec<(LineId, Access)>,
        pub now: Nanos,
        pub step_ns: Nanos,
    }

    impl Bus for Recorder {
        fn access(&mut self, line: LineId, access: Access) -> Nanos {
            self.log.push((line, access));
            self.now += self.step_ns;
            self.step_ns
        }

        fn now(&self) -> Nanos {
            self.now
        }

        fn loaded(&mut self, _word: WordId, _ns: Nanos) {}
    }

    impl Recorder {
        /// How many accesses of a kind a line has had.
        pub fn count(&self, line: LineId, access: Access) -> usize {
            self.log
                .iter()
                .filter(|&&entry| entry == (line, access))
                .count()
        }

        /// What was done since the last call.
        pub fn take(&mut self) -> Vec<(LineId, Access)> {
            std::mem::take(&mut self.log)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::recorder::Recorder;
    use super::*;

    fn mask(nr: usize, set: &[u32]) -> SharedMask {
        let lines = (0..mask_lines(nr) as u32).map(LineId).collect();
        let mut mask = SharedMask::new(nr, lines);
        mask.fill(&set.iter().copied().map(Cpu).collect());
        mask
    }

    // Goal: the rotor's search order is that of find_next_and_bit_wrap().
    // Method: every start position against the definition (sort by distance from start + 1), on a mask
    // whose size is not a multiple of the word.
    #[test]
    fn search_wraps_like_the_kernels() {
        let nr = 200u32;
        let mask = mask(nr as usize, &[3, 64, 127, 130, 199]);
        let allowed: CpuSet = [3u32, 127, 130, 199].into_iter().map(Cpu).collect();
        for after in 0..nr {
            let order = |c: &u32| (c + 256 - (after + 1)) % 256;
            let expected = [3u32, 127, 130, 199].into_iter().min_by_key(order);
            let mut bus = Recorder::default();
            let (found, looked) = mask.next_and_wrap(&mut bus, Within::one(&allowed), after);
            assert_eq!(found.map(|c| c.0), expected, "after {after}");
            assert_eq!(looked as usize, bus.log.len());
        }
        let nobody = CpuSet::of(Cpu(5));
        let (found, looked) =
            mask.next_and_wrap(&mut Recorder::default(), Within::one(&nobody), 70);
        assert_eq!(
            (found, looked),
            (None, 5),
            "four words, the first in two parts"
        );
    }

    // Goal: bit 512 lies on the second line, and atomic writes dirty the line even if nothing changes.
    // Method: the recorded accesses.
    #[test]
    fn a_line_holds_512_cpus() {
        let mut m = mask(1024, &[511, 512]);
        let mut bus = Recorder::default();
        m.assign(&mut bus, Cpu(511), true);
        m.assign(&mut bus, Cpu(512), false);
        assert!(!m.test_and_clear(&mut bus, Cpu(512)));
        assert!(m.test(&mut bus, Cpu(511)));
        assert_eq!(
            bus.log,
            [
                (LineId(0), Access::Rmw),
                (LineId(1), Access::Rmw),
                (LineId(1), Access::Rmw),
                (LineId(0), Access::Read)
            ]
        );
    }

    // Goal: two non-atomic rewrites that overlap in time lose one update, two that do not lose none.
    // Method: the second begins, by its clock, before the first was written; then after.
    #[test]
    fn overlapping_rewrites_lose_an_update() {
        let one = CpuSet::of(Cpu(1));
        let two = CpuSet::of(Cpu(2));
        let mut m = mask(64, &[]);
        let mut bus = Recorder {
            step_ns: 100,
            ..Recorder::default()
        };
        m.or(&mut bus, &one); // reads at 100, writes at 200
        let mut other = Recorder {
            step_ns: 60,
            now: 30,
            ..Recorder::default()
        };
        m.or(&mut other, &two); // reads at 90, writes at 150: the first write comes later and wins
        assert_eq!((m.words()[0], m.lost_updates), (1 << 1, 1));
        let mut late = Recorder {
            step_ns: 60,
            now: 130,
            ..Recorder::default()
        };
        m.or(&mut late, &two); // reads at 190, writes at 250: the first write is lost
        assert_eq!((m.words()[0], m.lost_updates), (1 << 2, 2));
        let mut after = Recorder {
            step_ns: 60,
            now: 300,
            ..Recorder::default()
        };
        m.or(&mut after, &one);
        assert_eq!((m.words()[0], m.lost_updates), (1 << 1 | 1 << 2, 2));
        assert_eq!(
            after.count(LineId(0), Access::Write),
            1,
            "one word, one store"
        );
    }

    // Goal: a rewrite stores every word, whether it changes or not: the needless dirtying.
    // Method: the stores of an andnot that changes nothing.
    #[test]
    fn a_rewrite_dirties_all_lines() {
        let mut m = mask(1024, &[]);
        let mut bus = Recorder::default();
        m.and_not(&mut bus, &CpuSet::of(Cpu(3)));
        assert_eq!(bus.count(LineId(0), Access::Write), 8);
        assert_eq!(bus.count(LineId(1), Access::Write), 8);
    }
}
