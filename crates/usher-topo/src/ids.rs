// SPDX-License-Identifier: GPL-2.0-only
//! One type per kind of number, so that a cpu is never taken for a cid or a node index for an id.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::Serialize;

/// A dense number, usable as an index into the table of its kind.
pub trait Id: Copy + Ord + fmt::Debug {
    /// The id with this index.
    ///
    /// # Panics
    /// If the index does not fit 32 bits; no table of this crate is that long.
    fn from_index(index: usize) -> Self;

    /// The place in the table of its kind.
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl Id for $name {
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("tables hold at most 2^32 entries"))
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// The kernel's number of a CPU. May be sparse; never an index into a per-cid table.
    Cpu;
    /// Dense topological number of an online CPU: node, then LLC, cluster, core, thread.
    Cid;
    /// Index of a core (SMT siblings).
    Core;
    /// Index of an L2 cluster.
    Cluster;
    /// Index of a shard.
    Shard;
    /// Index of a last-level cache.
    Llc;
    /// Index of a NUMA node, in ascending order of the kernel's ids, which may be sparse and are
    /// found in [`crate::NodeInfo::id`].
    Node;
    /// Index of a package (socket).
    Package;
    /// Index of a tier; 0 is the strongest.
    Tier;
    /// Index into [`crate::Topology::core_types`].
    CoreTypeId;
}

/// A run of consecutive ids of one kind, possibly empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdRange<T> {
    start: u32,
    end: u32,
    kind: PhantomData<T>,
}

/// A run of consecutive cids.
pub type CidRange = IdRange<Cid>;

impl<T: Id> IdRange<T> {
    /// The ids from index `start` to before index `end`.
    ///
    /// # Panics
    /// If `end < start`, or if an index does not fit 32 bits.
    pub fn new(start: usize, end: usize) -> Self {
        assert!(start <= end, "range {start}..{end} runs backwards");
        let narrow = |i| u32::try_from(i).expect("tables hold at most 2^32 entries");
        Self {
            start: narrow(start),
            end: narrow(end),
            kind: PhantomData,
        }
    }

    /// The first id. Of an empty range: where it would be.
    pub fn first(self) -> T {
        T::from_index(self.start as usize)
    }

    /// The id after the last.
    pub fn end(self) -> T {
        T::from_index(self.end as usize)
    }

    /// How many ids.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `id` is one of them.
    pub fn contains(self, id: T) -> bool {
        (self.start as usize..self.end as usize).contains(&id.index())
    }

    /// Whether all of `inner` lies in `self`. An empty `inner` lies anywhere.
    pub fn contains_range(self, inner: Self) -> bool {
        inner.is_empty() || (self.start <= inner.start && inner.end <= self.end)
    }

    /// The ids in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator {
        (self.start as usize..self.end as usize).map(T::from_index)
    }

    /// For slicing a table of this kind.
    pub fn as_usize(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl<T: Id> fmt::Display for IdRange<T> {
    /// `4-7`, `4`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len() {
            0 => f.pad("none"),
            1 => f.pad(&self.start.to_string()),
            _ => f.pad(&format!("{}-{}", self.start, self.end - 1)),
        }
    }
}

impl<T: Id> fmt::Debug for IdRange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}
