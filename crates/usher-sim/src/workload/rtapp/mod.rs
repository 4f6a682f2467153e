// SPDX-License-Identifier: GPL-2.0-only
//! rt-app files.

use super::registry::Hints;
use super::Workload;
use crate::error::SimError;
use crate::machine::Machine;
use crate::params::Params;

pub(super) fn load(
    origin: &str,
    _: &str,
    _: &Machine,
    _: &mut Params,
    _: &mut Hints,
) -> Result<Workload, SimError> {
    Err(SimError::Input { origin: origin.into(), what: "rt-app files are not read yet".into() })
}
