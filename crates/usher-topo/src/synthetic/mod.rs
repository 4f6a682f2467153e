// SPDX-License-Identifier: GPL-2.0-only
//! hwloc synthetic strings: `pack:2 numa:2 l3:4 core:8 pu:2`.
//!
//! Each item is a level, from the outside in, with the number of its objects below each object of the
//! level before. This reader follows hwloc 2 and 3 (`lstopo -i STRING` shows what hwloc makes of it):
//!
//! - types: `package` (`socket`), `numanode` (`node`), `die`, `group`, `lN[u|d|i]cache`, `core`, `pu`,
//!   in any case, shortened to two letters or more; or no types at all, as in `2 2 8 2`;
//! - attributes in parentheses, separated by blanks: `memory=` and `size=` with a unit, `indexes=` with
//!   a full list (`0,2,1,3`), loops (`2*4:1*2`) or types (`numa:core`); at the very beginning they
//!   belong to the machine and are ignored;
//! - `[numa]` after an item attaches a NUMA node to each of its objects.
//!
//! What usher makes of the levels:
//!
//! - **node**: a CPU belongs to the first NUMA node attached closest to it, as under Linux. Other nodes
//!   above it (`[numa] [numa]`) are nodes of memory only. Without any, there is one node.
//! - **LLC**: the highest cache above L1 that holds data. Without one: the die, else the package, else
//!   the machine (levels intersect, so never more than a node).
//! - **cluster**: the L2 if the LLC is a higher cache; else the innermost group below that cache.
//! - **core**: each `pu` is a core of its own if there is no core level.
//!
//! A string says nothing about distances (10 and 20 are assumed), capacities or offline CPUs.

mod expand;
mod parse;
mod write;

use crate::error::TopoError;
use crate::raw::RawTopology;

pub use write::{write, Written};

/// Reads a synthetic string.
///
/// # Errors
/// Which item is wrong, and why.
pub fn parse(text: &str) -> Result<RawTopology, TopoError> {
    expand::expand(text, &parse::levels(text)?)
}

/// An error about a piece of the string.
fn wrong(what: &str, piece: &str) -> TopoError {
    let remedy = "write levels from the outside in, as in `pack:2 numa:2 l3:4 core:8 pu:2`";
    TopoError::malformed("synthetic string", what, piece, remedy)
}
