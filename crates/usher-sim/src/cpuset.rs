// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs, by the kernel's CPU number.

use crate::ids::Cpu;

/// A set of CPU numbers. Grows as needed; numbers beyond its end are not in it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of one CPU.
    pub fn of(cpu: Cpu) -> Self {
        std::iter::once(cpu).collect()
    }

    /// The set with these bits, lowest CPU first.
    pub fn from_words(words: Vec<u64>) -> Self {
        CpuSet { words }
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: Cpu) {
        let word = (cpu.0 / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu.0 % 64);
    }

    /// Takes a CPU out.
    pub fn remove(&mut self, cpu: Cpu) {
        if let Some(word) = self.words.get_mut((cpu.0 / 64) as usize) {
            *word &= !(1 << (cpu.0 % 64));
        }
    }

    /// Whether a CPU is in it.
    #[inline]
    pub fn contains(&self, cpu: Cpu) -> bool {
        self.words
            .get((cpu.0 / 64) as usize)
            .is_some_and(|w| w >> (cpu.0 % 64) & 1 == 1)
    }

    /// How many CPUs are in it.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether none is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<Cpu> {
        self.next_from(Cpu(0))
    }

    /// The first CPU from `from` upwards, and then from 0.
    pub fn next_around(&self, from: Cpu) -> Option<Cpu> {
        self.next_from(from).or_else(|| self.first())
    }

    /// The lowest CPU that is not below `from`.
    pub fn next_from(&self, from: Cpu) -> Option<Cpu> {
        let start = (from.0 / 64) as usize;
        let first = self.words.get(start)? & (!0u64 << (from.0 % 64));
        let rest = self.words[start + 1..].iter().copied();
        std::iter::once(first)
            .chain(rest)
            .enumerate()
            .find(|&(_, w)| w != 0)
            .map(|(i, w)| Cpu((start + i) as u32 * 64 + w.trailing_zeros()))
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            std::iter::successors((word != 0).then_some(word), |w| {
                let rest = w & (w - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |w| Cpu(i as u32 * 64 + w.trailing_zeros()))
        })
    }

    /// The CPUs in ascending order starting at `from`, then, wrapping around, those below it: the
    /// kernel's `for_each_cpu_wrap`.
    pub fn iter_wrap(&self, from: Cpu) -> impl Iterator<Item = Cpu> + '_ {
        let above = std::iter::successors(self.next_from(from), |c| self.next_from(Cpu(c.0 + 1)));
        above.chain(self.iter().take_while(move |c| *c < from))
    }

    /// The CPUs in both.
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet {
            words: self
                .words
                .iter()
                .zip(&other.words)
                .map(|(a, b)| a & b)
                .collect(),
        }
    }

    /// Whether some CPU is in both.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// The bits, lowest CPU first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

impl FromIterator<Cpu> for CpuSet {
    fn from_iter<I: IntoIterator<Item = Cpu>>(cpus: I) -> Self {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl std::fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{{{}}}",
            usher_topo::format_cpulist(self.iter().map(|c| c.0))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: iteration, plain and wrapped, visits each member once in the promised order.
    // Method: sets with members around word borders, against a sorted list.
    #[test]
    fn iteration_is_ordered_and_complete() {
        for members in [
            &[][..],
            &[0],
            &[63, 64],
            &[1, 62, 63, 64, 65, 127, 128, 200],
        ] {
            let set: CpuSet = members.iter().map(|&c| Cpu(c)).collect();
            assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), members);
            assert_eq!(set.len(), members.len());
            for from in [0, 1, 63, 64, 65, 130, 201, 500] {
                let want: Vec<u32> = members
                    .iter()
                    .filter(|&&c| c >= from)
                    .chain(members.iter().filter(|&&c| c < from))
                    .copied()
                    .collect();
                assert_eq!(
                    set.iter_wrap(Cpu(from)).map(|c| c.0).collect::<Vec<_>>(),
                    want,
                    "{from}"
                );
            }
        }
    }

    // Goal: membership follows insert, remove and intersection.
    // Method: a small set and its complement in part.
    #[test]
    fn members_come_and_go() {
        let mut a: CpuSet = [3, 70].map(Cpu).into_iter().collect();
        let b = CpuSet::of(Cpu(70));
        assert_eq!(a.and(&b), [70].map(Cpu).into_iter().collect());
        assert!(a.intersects(&b) && !a.contains(Cpu(4)) && !a.contains(Cpu(4000)));
        a.remove(Cpu(70));
        assert!(!a.intersects(&b) && a.contains(Cpu(3)) && a.first() == Some(Cpu(3)));
        a.remove(Cpu(3));
        assert!(a.is_empty() && a.first().is_none());
    }
}
