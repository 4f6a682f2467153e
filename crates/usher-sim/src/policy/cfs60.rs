// SPDX-License-Identifier: GPL-2.0-only
//! `cfs-6.0`: the fair class of 6.0, the baseline of proposal 1.
//!
//! CFS picks (mechanisms 6.1), SIS_UTIL searches in one pass (6.3), and `imb_numa_nr` tasks may gather on a
//! NUMA node (6.4, 6.7). Switches: `+hints` is proposal 1 literally (mechanisms 2), defects included;
//! `+fork-hints`, `+wake-hints` and `+hint-balance` are its parts.
//!
//! The rules are in [`super::fair`]; `docs/MODELS.md` says which are modelled and which are not.

use super::fair::config::Config;
use super::fair::switches;
use super::Policy;
use crate::error::SimError;
use crate::params::Params;

/// Makes the policy of this name: `cfs-6.0`, followed by any switches.
///
/// # Errors
/// Unknown switch, bad value of a parameter.
pub fn build(params: &mut Params, name: &str) -> Result<Box<dyn Policy>, SimError> {
    switches::build(Config::cfs60(), name, params)
}
