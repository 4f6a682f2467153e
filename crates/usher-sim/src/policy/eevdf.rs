// SPDX-License-Identifier: GPL-2.0-only
//! `eevdf`: the fair class of 6.12.
//!
//! EEVDF picks (mechanisms 6.2), SIS_UTIL searches (6.3), balances like 6.x with what came since: idle cores
//! balance first, tasks per core are evened, busy siblings are a group type of their own, newly idle CPUs
//! look at a domain in proportion to how often that helped.
//!
//! The rules are in [`super::fair`]; `docs/MODELS.md` says which are modelled and which are not.

use super::fair::config::Config;
use super::fair::switches;
use super::Policy;
use crate::error::SimError;
use crate::params::Params;

/// Makes the policy of this name: `eevdf`, followed by any switches.
///
/// # Errors
/// Unknown switch, bad value of a parameter.
pub fn build(params: &mut Params, name: &str) -> Result<Box<dyn Policy>, SimError> {
    switches::build(Config::eevdf(), name, params)
}
