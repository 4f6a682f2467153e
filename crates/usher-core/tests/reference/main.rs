// SPDX-License-Identifier: GPL-2.0-only
//! Goal: the core keeps the promises of its comments on every machine. Method: more than a million random
//! operations on random machines, on the core and on a plain model of ordered sets (`plain.rs`) side by side;
//! every answer is compared, and the whole idle map after every operation (after every 64th on large
//! machines). Where the core may choose, its answer must be one of those that keep the promise.
//!
//! A failure names its case and prints the shortest list of operations that still fails. One case:
//!
//! ```text
//! USHER_CASE=shard:17 cargo test -p usher-core --test reference
//! ```

mod cases;
mod machine;
mod ops;
mod plain;
mod random;

use usher_core::{Granularity, Reason};

use cases::{Cases, Failure};
use machine::Machine;
use ops::{Op, Pair};

/// What came up.
#[derive(Default)]
struct Seen {
    ops: usize,
    reasons: [u64; Reason::COUNT],
    errors: [u64; 4],
    largest: u32,
}

/// Runs operations; on failure, how many were done and what went wrong.
fn run(machine: &Machine, ops: &[Op], traced: bool, seen: &mut Seen) -> Result<(), Failure> {
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

const REFERENCE: Cases<Op, Seen> = Cases {
    test: "reference",
    salt: 0,
    cpupri: false,
    draw: ops::draw,
    run,
};

fn check(granularity: Granularity) {
    let Some(seen) = REFERENCE.all(granularity) else {
        return;
    };
    // The comparison means nothing for what never came up.
    assert!(seen.ops >= 330_000, "{} operations", seen.ops);
    assert_eq!(seen.largest, 4096);
    for &reason in Reason::ALL {
        let count = seen.reasons[reason.index()];
        assert!(count >= 200, "{reason} was given only {count} times");
    }
    let none = if granularity == Granularity::Global {
        &seen.errors[..3]
    } else {
        &seen.errors[3..]
    };
    let some = if granularity == Granularity::Global {
        &seen.errors[3..]
    } else {
        &seen.errors[..3]
    };
    assert!(
        none.iter().all(|&count| count == 0),
        "errors given: {:?}",
        seen.errors
    );
    assert!(
        some.iter().all(|&count| count >= 50),
        "errors given: {:?}",
        seen.errors
    );
}

#[test]
fn one_mask_for_the_machine() {
    check(Granularity::Global);
}

#[test]
fn a_mask_per_node() {
    check(Granularity::Node);
}

#[test]
fn a_mask_per_llc() {
    check(Granularity::Llc);
}

#[test]
fn a_line_per_shard() {
    check(Granularity::Shard);
}
