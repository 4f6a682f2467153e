// SPDX-License-Identifier: GPL-2.0-only
//! A set of CPUs to work on during one search, without allocating.

use crate::cpuset::CpuSet;
use crate::ids::Cpu;

/// See the module. The words of a [`CpuSet`].
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    words: Vec<u64>,
}

impl Scratch {
    /// Becomes what is in both sets.
    pub fn load(&mut self, a: &CpuSet, b: &CpuSet) {
        self.words.clear();
        self.words
            .extend(a.words().iter().zip(b.words()).map(|(a, b)| a & b));
    }

    /// Keeps only what is in this set, too.
    pub fn keep(&mut self, set: &CpuSet) {
        let words = set.words();
        for (i, word) in self.words.iter_mut().enumerate() {
            *word &= words.get(i).copied().unwrap_or(0);
        }
    }

    /// Takes a CPU out.
    #[inline]
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

    /// The lowest CPU in it that is not below `from`.
    #[inline]
    fn next(&self, from: u32) -> Option<Cpu> {
        let mut i = (from / 64) as usize;
        let mut word = self.words.get(i)? & (!0u64 << (from % 64));
        while word == 0 {
            i += 1;
            word = *self.words.get(i)?;
        }
        Some(Cpu(i as u32 * 64 + word.trailing_zeros()))
    }

    /// One step of `for_each_cpu_wrap`: the next CPU, from `start` on and around. `at` is where the walk
    /// stands; begin with [`Walk::from`].
    #[inline]
    pub fn step(&self, walk: &mut Walk) -> Option<Cpu> {
        if !walk.wrapped {
            if let Some(cpu) = self.next(walk.at) {
                walk.at = cpu.0 + 1;
                return Some(cpu);
            }
            walk.wrapped = true;
            walk.at = 0;
        }
        let cpu = self.next(walk.at).filter(|cpu| cpu.0 < walk.start)?;
        walk.at = cpu.0 + 1;
        Some(cpu)
    }
}

/// A walk around a [`Scratch`], which may change meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    start: u32,
    at: u32,
    wrapped: bool,
}

impl Walk {
    /// Begins at this CPU number.
    pub fn from(start: u32) -> Walk {
        Walk {
            start,
            at: start,
            wrapped: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a walk visits what is in the set once, from the start on and around, and sees removals.
    // Method: against `CpuSet::iter_wrap`, for all starts; then a removal ahead of the walk.
    #[test]
    fn walks_go_around() {
        let set: CpuSet = [0, 5, 63, 64, 130].map(Cpu).into_iter().collect();
        let mut scratch = Scratch::default();
        scratch.load(&set, &set);
        for start in 0..140 {
            let mut walk = Walk::from(start);
            let seen: Vec<Cpu> = std::iter::from_fn(|| scratch.step(&mut walk)).collect();
            assert_eq!(
                seen,
                set.iter_wrap(Cpu(start)).collect::<Vec<_>>(),
                "from {start}"
            );
        }
        let mut walk = Walk::from(64);
        assert_eq!(scratch.step(&mut walk), Some(Cpu(64)));
        scratch.remove(Cpu(130));
        scratch.remove(Cpu(0));
        assert_eq!(scratch.step(&mut walk), Some(Cpu(5)));
    }
}
