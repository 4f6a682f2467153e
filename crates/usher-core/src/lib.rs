// SPDX-License-Identifier: GPL-2.0-only
//! usher's placement core, from Rust.
//!
//! The core itself is C (`core/` at the root of the repository): the very sources that run inside the kernel
//! are compiled into this crate, so that a decision made here is the decision made there. This crate wraps
//! them safely:
//!
//! ```
//! use usher_core::{Core, Reason, Request};
//! use usher_topo::{shape, Cid, Topology};
//!
//! // Two nodes with two LLCs each, of four cores with two threads: 32 CPUs.
//! let topo = Topology::build(&shape::parse("2n2l4c2t")?, 64)?;
//! let mut core = Core::of(&topo)?;
//!
//! core.idle_enter(Cid(2));
//! core.idle_enter(Cid(3)); // now the second core is idle
//! let decision = core.place(&Request::wake(Cid(0), Cid(20)));
//! assert_eq!((decision.cid, decision.reason), (Cid(2), Reason::LlcCore));
//! assert!(decision.claimed && !core.is_idle(Cid(2)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A machine is a [`Tables`] of plain arrays, usually made from a [`usher_topo::Topology`]; [`Settings`] say how idle
//! CPUs are tracked, and whether there is a CPU priority map ([`Level`]: whom to preempt). The environments of
//! `core/env/` are:
//!
//! | built by | environment | for |
//! |---|---|---|
//! | [`Core::new`] | `native.h` | replay, tests, benches |
//! | [`Core::traced`] | `traced.h` | the simulator: each call leaves a list of its accesses to shared memory |
//! | [`build_into`] | (none) | the loader: tables in memory that kernel programs share |
//! | [`recorded`] | `recorded.h` | decisions that a kernel recorded, made again |

pub mod bench;
mod block;
mod capacity;
mod crowd;
mod ffi;
mod kinds;
mod levels;
mod masks;
pub mod model;
mod placement;
pub mod recorded;
mod request;
mod set;
mod stats;
mod tables;
mod trace;

/// The most CPUs a machine may have.
pub const MAX_CIDS: usize = 4096;

/// So many tasks of a queue are looked at for one that a weak CPU is enough for: [`Core::take_instead`].
pub const FIT_LOOK: usize = 4;

pub use kinds::{
    Class, Event, Gives, Granularity, PickError, Reason, TierOrder, UnknownName, Wake,
};
pub use levels::{Burst, Level, LevelQuery};
pub use masks::ComplementMasks;
pub use placement::{build_into, bytes_needed, Core, Foreign, Library};
pub use request::{
    Decision, Demand, Follow, Hold, Pair, Query, Queue, Request, Tiers, Utilisation, Vtime, Walk,
};
pub use set::CidSet;
pub use stats::Statistics;
pub use tables::{
    BuildError, Settings, Tables, DEFAULT_CORE_PROBES, DEFAULT_PATIENCE_NS, DEFAULT_QUEUE_WIDTH,
    DEFAULT_SLICE_NS, DEFAULT_SOON_NS, MAX_SMT, MAX_TIERS, PACE_CIDS, PATIENCE_SLICES, SLICES_NS,
};
pub use trace::{Access, AccessKind};
pub use usher_hint::{Hints, HintsError};
