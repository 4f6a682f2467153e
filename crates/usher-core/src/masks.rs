// SPDX-License-Identifier: GPL-2.0-only
//! The published proposal's own form of the CPU priority map: `core/src/cpupri_masks.c`.

use usher_topo::{Cid, Node};

use crate::levels::Level;
use crate::set::CidSet;
use crate::tables::Tables;

/// `struct usher_masks`.
#[repr(C)]
pub(crate) struct CMasks {
    nr_nodes: u32,
    nr_words: u32,
    node: *mut u32,
    level: *mut u32,
    count: *mut u64,
    masks: *mut u64,
    cpus: *mut u64,
}

extern "C" {
    fn usher_proposal_init(m: *mut CMasks);
    fn usher_proposal_add(m: *mut CMasks, cid: u32);
    fn usher_proposal_set(m: *mut CMasks, cid: u32, level: u32);
    fn usher_proposal_find(
        m: *mut CMasks,
        home: u32,
        allowed: *const u64,
        below: u32,
        out: *mut u64,
    ) -> i32;
}

/// What a `CMasks` points into.
struct Arrays {
    node: Vec<u32>,
    level: Vec<u32>,
    count: Vec<u64>,
    masks: Vec<u64>,
    cpus: Vec<u64>,
}

/// A mask per level and node that starts as the complement of the node's CPUs; members are what all masks of a level
/// have in common. To compare with, and to show what is wrong with it; with one node it is the kernel's map.
pub struct ComplementMasks {
    masks: CMasks,
    nr_cids: u32,
    _arrays: Arrays,
}

// SAFETY: the pointers point into vectors that move with it and never grow, and nobody else has them.
unsafe impl Send for ComplementMasks {}

impl ComplementMasks {
    /// The masks of a machine, made when only the CPUs of `known` had come up; the others come up right afterwards.
    /// All are at no level.
    ///
    /// # Panics
    /// The tables name a node that they do not have.
    pub fn new(tables: &Tables, known: &CidSet) -> Self {
        Self::of(&tables.node, tables.nr_nodes(), known)
    }

    /// The kernel's map as it is: one mask per level.
    pub fn global(tables: &Tables) -> Self {
        let all = (0..tables.nr_cids() as u32).map(Cid).collect();
        Self::of(&vec![0; tables.nr_cids()], 1, &all)
    }

    fn of(node: &[u32], nr_nodes: usize, known: &CidSet) -> Self {
        assert!(node.iter().all(|&node| (node as usize) < nr_nodes));
        let levels = Level::COUNT as usize;
        // Whole lines, as a kernel allocates masks.
        let nr_words = node.len().div_ceil(64).next_multiple_of(8).min(64);
        let mut arrays = Arrays {
            node: node.to_vec(),
            level: vec![0; node.len()],
            count: vec![0; levels],
            masks: vec![0; levels * nr_nodes * nr_words],
            cpus: vec![0; nr_nodes * nr_words],
        };
        let mut all = Self {
            masks: CMasks {
                nr_nodes: nr_nodes as u32,
                nr_words: nr_words as u32,
                node: arrays.node.as_mut_ptr(),
                level: arrays.level.as_mut_ptr(),
                count: arrays.count.as_mut_ptr(),
                masks: arrays.masks.as_mut_ptr(),
                cpus: arrays.cpus.as_mut_ptr(),
            },
            nr_cids: node.len() as u32,
            _arrays: arrays,
        };
        let (known, late): (Vec<u32>, Vec<u32>) =
            (0..all.nr_cids).partition(|&cid| known.contains(Cid(cid)));
        // SAFETY: the arrays are as long as C takes them to be, and the cids exist.
        unsafe {
            for cid in known {
                usher_proposal_add(&mut all.masks, cid);
            }
            usher_proposal_init(&mut all.masks);
            for cid in late {
                usher_proposal_add(&mut all.masks, cid);
            }
        }
        all
    }

    pub(crate) fn as_ptr(&mut self) -> *mut CMasks {
        &mut self.masks
    }

    pub(crate) fn nr_cids(&self) -> usize {
        self.nr_cids as usize
    }

    /// `cid` runs at this level from now on.
    ///
    /// # Panics
    /// There is no such CPU.
    pub fn set_level(&mut self, cid: Cid, level: Option<Level>) {
        assert!(cid.0 < self.nr_cids, "no cid {cid} among {}", self.nr_cids);
        let level = level.map_or(u32::MAX, Level::get);
        // SAFETY: the cid exists, and so does the level.
        unsafe { usher_proposal_set(&mut self.masks, cid.0, level) }
    }

    /// The lowest level below this one that has allowed CPUs, and all of them: what the proposal says they are. `allowed`
    /// names CPUs of the machine only.
    ///
    /// # Panics
    /// There is no such node.
    pub fn find(&mut self, home: Node, allowed: &CidSet, below: Level) -> Option<(Level, CidSet)> {
        assert!(home.0 < self.masks.nr_nodes, "no node {home}");
        let (mut out, masks) = (CidSet::new(), &mut self.masks);
        // SAFETY: sets are as long as in C; the node exists.
        let level = out.write_with(|words| unsafe {
            usher_proposal_find(masks, home.0, allowed.as_ptr(), below.get(), words)
        });
        let level = Level::new(u32::try_from(level).ok()?)?;
        Some((level, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" {
        fn usher_masks_bytes() -> u32;
    }

    // Goal: both sides of the border mean the same bytes.
    #[test]
    fn the_struct_is_as_large_as_in_c() {
        // SAFETY: no arguments, no effects.
        let bytes = unsafe { usher_masks_bytes() };
        assert_eq!(bytes as usize, size_of::<CMasks>());
    }
}
