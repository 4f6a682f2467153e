// SPDX-License-Identifier: GPL-2.0-only
//! `cfs-5.9`: the fair class of 5.9, the baseline of proposal 0.
//!
//! CFS picks (mechanisms 6.1), SIS_PROP searches after a pass for idle cores (6.3), a new task stays on its
//! node while one CPU there is idle (6.4). Switches: `+llc-idle-mask` is proposal 0 as posted (mechanisms
//! 1.2 and 1.3), `+llc-idle-mask-v3` its later form, `+llc-idle-mask-claim` that with exclusive claims.
//!
//! The rules are in [`super::fair`]; `docs/MODELS.md` says which are modelled and which are not.

use super::fair::config::Config;
use super::fair::switches;
use super::Policy;
use crate::error::SimError;
use crate::params::Params;

/// Makes the policy of this name: `cfs-5.9`, followed by any switches.
///
/// # Errors
/// Unknown switch, bad value of a parameter.
pub fn build(params: &mut Params, name: &str) -> Result<Box<dyn Policy>, SimError> {
    switches::build(Config::cfs59(), name, params)
}
