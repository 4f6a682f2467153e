// SPDX-License-Identifier: GPL-2.0-only
//! One case: operations on the core and on the plain model of a machine.

use usher_core::Reason;

use crate::cases::Failure;
use crate::machine::Machine;
use crate::ops::{Op, Pair};

/// What came up.
#[derive(Default)]
pub struct Seen {
    pub ops: usize,
    pub reasons: [u64; Reason::COUNT],
    pub errors: [u64; 4],
    pub largest: u32,
}

/// Runs operations; on failure, how many were done and what went wrong.
pub fn run(machine: &Machine, ops: &[Op], traced: bool, seen: &mut Seen) -> Result<(), Failure> {
    let mut pair = Pair::new(machine, traced);
    let often = if machine.nr_cids() <= 64 { 1 } else { 64 };
    for (index, op) in ops.iter().enumerate() {
        pair.step(op).map_err(|wrong| (index + 1, wrong))?;
        if index % often == 0 || index + 1 == ops.len() {
            pair.compare().map_err(|wrong| (index + 1, wrong))?;
        }
    }
    pair.compare_counts().map_err(|wrong| (ops.len(), wrong))?;
    seen.ops += ops.len();
    seen.largest = seen.largest.max(machine.nr_cids());
    for (sum, count) in seen.reasons.iter_mut().zip(pair.reasons) {
        *sum += count;
    }
    for (sum, count) in seen.errors.iter_mut().zip(pair.errors) {
        *sum += count;
    }
    Ok(())
}
