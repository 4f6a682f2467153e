// SPDX-License-Identifier: GPL-2.0-only
//! Deterministic simulation of schedulers on machines that nobody needs to own.
//!
//! ```text
//!   machine (topology + costs)  ┐
//!   policy  (a scheduler)       ├──> Simulation::new(..).run() ──> Report
//!   workload (tasks, objects)   │
//!   seed, options               ┘
//! ```
//!
//! Same inputs, same report, byte for byte, on any machine: time is whole nanoseconds, all chance comes
//! from one seed, and nothing depends on the wall clock, on addresses or on hash order.
//!
//! | module | what it holds |
//! |---|---|
//! | [`machine`], [`costs`] | the machine: topology, speeds, idle states, and what everything costs |
//! | [`program`], [`world`], [`workload`] | the seam to workloads: what tasks do and what they share |
//! | [`policy`], [`host`], [`task`] | the seam to schedulers: callbacks, and what they see and can do |
//! | [`coherence`] | shared cache lines: who has a copy, what an access costs, who queues |
//! | [`trace`], [`waits`] | what happens event by event, for those who want to see it |
//! | [`params`] | `key=value` parameters of policies and workloads |
//!
//! To write a policy, start from `src/policy/fifo.rs`; to write a workload, from the example in
//! [`program`].

mod bookkeeping;
mod cache;
pub mod case;
mod channel;
mod check;
mod clock;
pub mod coherence;
pub mod costs;
pub mod cpuset;
mod engine;
pub mod error;
mod event;
pub mod grid;
mod hash;
pub mod host;
mod idle;
pub mod ids;
mod irq;
pub mod machine;
pub mod metrics;
mod mutex;
mod objects;
pub mod params;
mod pipe;
pub mod policy;
pub mod prefetch;
pub mod program;
pub mod queue;
pub mod report;
pub mod rng;
mod sched;
mod shared;
mod state;
mod stats;
mod syscall;
pub mod task;
pub mod trace;
mod waitlist;
pub mod waits;
mod wake;
pub mod workload;
pub mod world;

pub use engine::{Options, Simulation};
pub use error::SimError;
pub use ids::{Cpu, Nanos, TaskId};
pub use machine::Machine;
pub use policy::Policy;
pub use report::Report;
pub use workload::Workload;
