// SPDX-License-Identifier: GPL-2.0-only
//! Sets of cids in the core's own form.

use std::fmt;

use usher_topo::{Cid, CidRange};

use crate::MAX_CIDS;

const WORDS: usize = MAX_CIDS / 64;

/// A set of cids. Always as long as the largest machine, so that the core's bounds are masks.
#[derive(Clone, PartialEq, Eq)]
#[repr(C)]
pub struct CidSet {
    /// What the core sees: `struct usher_set`.
    words: [u64; WORDS],
    /// Kept beside it, since the core asks for it with every request.
    len: u32,
}

impl CidSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self {
            words: [0; WORDS],
            len: 0,
        }
    }

    /// All cids of a range.
    pub fn from_range(range: CidRange) -> Self {
        range.iter().collect()
    }

    /// Adds a cid; false if it was there.
    ///
    /// # Panics
    /// If the cid is not below [`MAX_CIDS`].
    pub fn insert(&mut self, cid: Cid) -> bool {
        let (word, mask) = place(cid);
        let new = self.words[word] & mask == 0;
        self.words[word] |= mask;
        self.len += u32::from(new);
        new
    }

    /// Takes a cid out; false if it was not there.
    pub fn remove(&mut self, cid: Cid) -> bool {
        if !self.contains(cid) {
            return false;
        }
        let (word, mask) = place(cid);
        self.words[word] &= !mask;
        self.len -= 1;
        true
    }

    /// Whether the cid is in it.
    pub fn contains(&self, cid: Cid) -> bool {
        let (word, mask) = place(cid);
        self.words.get(word).is_some_and(|bits| bits & mask != 0)
    }

    /// How many cids.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The cids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Cid> + '_ {
        self.words.iter().zip(0u32..).flat_map(|(&word, index)| {
            std::iter::successors(Some(word), |bits| Some(bits & bits.wrapping_sub(1)))
                .take_while(|&bits| bits != 0)
                .map(move |bits| Cid(index * 64 + bits.trailing_zeros()))
        })
    }

    pub(crate) fn as_ptr(&self) -> *const u64 {
        self.words.as_ptr()
    }

    /// Lets `fill` write the words, then counts again.
    pub(crate) fn write_with<T>(&mut self, fill: impl FnOnce(*mut u64) -> T) -> T {
        let result = fill(self.words.as_mut_ptr());
        self.len = self.words.iter().map(|word| word.count_ones()).sum();
        result
    }
}

fn place(cid: Cid) -> (usize, u64) {
    (cid.0 as usize / 64, 1 << (cid.0 % 64))
}

impl Default for CidSet {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<Cid> for CidSet {
    fn from_iter<I: IntoIterator<Item = Cid>>(cids: I) -> Self {
        let mut set = Self::new();
        set.extend(cids);
        set
    }
}

impl Extend<Cid> for CidSet {
    fn extend<I: IntoIterator<Item = Cid>>(&mut self, cids: I) {
        for cid in cids {
            self.insert(cid);
        }
    }
}

impl fmt::Debug for CidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|cid| cid.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    // Goal: the set's own count never drifts from its members, at the borders of words too.
    // Method: the same insertions and removals on a BTreeSet.
    #[test]
    fn behaves_like_an_ordered_set() {
        let (mut set, mut plain) = (CidSet::new(), BTreeSet::new());
        for step in 0..4000u32 {
            let cid = Cid(step.wrapping_mul(2_654_435_761) % 4096);
            if step % 3 == 0 {
                assert_eq!(set.remove(cid), plain.remove(&cid));
            } else {
                assert_eq!(set.insert(cid), plain.insert(cid));
            }
            assert_eq!(set.len(), plain.len());
        }
        assert!(set.iter().eq(plain.iter().copied()));
        assert!(!set.contains(Cid(4096)), "out of range is just not there");
    }
}
