// SPDX-License-Identifier: GPL-2.0-only
//! The idle governor.

/// What the governor remembers of a CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Governor {}
