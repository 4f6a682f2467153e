// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's fair class: machinery that the models of several versions share.

pub mod cfs;
pub mod config;
pub mod domains;
pub mod eevdf;
pub mod pelt;
pub mod rq;
pub mod task;
pub mod weight;

#[cfg(test)]
mod tests;
