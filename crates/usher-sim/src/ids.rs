// SPDX-License-Identifier: GPL-2.0-only
//! Numbers of things, one type per kind.

pub use usher_topo::{Cid, Core, Cpu, Id, Llc, Node, Tier};

/// Nanoseconds: a duration, or a time since the start of the run.
pub type Nanos = u64;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// For indexing a table of this kind.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
pub(crate) use ids;

ids! {
    /// A task. Dense, in order of creation, never reused within a run: usable as an index into a table
    /// that a policy grows in [`crate::policy::Policy::task_new`].
    TaskId;
    /// A cache line of a policy's or the kernel's shared data.
    LineId;
    /// A run of consecutive lines, addressed by byte offset.
    RegionId;
    /// A class of lines that are counted together.
    LineClass;
    /// A counter of a policy.
    StatId;
    /// A word of a policy's shared data whose loads are counted by name.
    WordId;
}
