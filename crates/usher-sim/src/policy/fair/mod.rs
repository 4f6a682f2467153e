// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's fair class: machinery that the models of several versions share.

pub mod pelt;
pub mod weight;
