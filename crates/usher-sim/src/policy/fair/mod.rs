// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's fair class: machinery that the models of several versions share.

pub mod cfs;
pub mod config;
pub mod domains;
pub mod eevdf;
pub mod pelt;
pub mod reason;
pub mod rq;
pub mod switches;
pub mod task;
pub mod weight;

mod balance;
mod class;
mod detach;
mod fork;
mod llc;
mod nohz;
mod packing;
mod policy;
mod rt_above;
mod scratch;
mod search;
mod state;
mod stats;
mod wake;

pub use state::{work, Fair};

#[cfg(test)]
mod tests;
