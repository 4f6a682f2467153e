// SPDX-License-Identifier: GPL-2.0-only
//! Goal: the CPU priority map keeps the promises of `core/src/cpupri.c` on every machine. Method: more than a
//! million random operations on random machines, on the core and on a list of levels side by side (`pair.rs`);
//! every answer is compared, and the whole map with its summaries after every operation (after every 64th on large
//! machines). What it touches and how it lies in memory is tested in `lines.rs`, the proposal's form in
//! `masks.rs`.
//!
//! A failure names its case and prints the operations up to it, after taking out all that it happens without:
//!
//! ```text
//! USHER_CASE=shard:17 cargo test -p usher-core --test cpupri
//! ```

#[path = "../reference/cases.rs"]
mod cases;
mod lines;
#[allow(dead_code)] // the other test needs more of it
#[path = "../reference/machine.rs"]
mod machine;
mod masks;
mod pair;
#[allow(dead_code)]
#[path = "../reference/random.rs"]
mod random;

use usher_core::Granularity;

use cases::{Cases, Failure};
use machine::Machine;
use pair::{Op, Pair, Seen};

/// Runs operations; on failure, how many were done and what went wrong.
fn run(machine: &Machine, ops: &[Op], traced: bool, seen: &mut Seen) -> Result<(), Failure> {
    let mut pair = Pair::new(machine, traced);
    let often = if machine.nr_cids() <= 64 { 8 } else { 64 };
    for (index, op) in ops.iter().enumerate() {
        pair.step(op).map_err(|wrong| (index + 1, wrong))?;
        if index % often == 0 || index + 1 == ops.len() {
            pair.compare().map_err(|wrong| (index + 1, wrong))?;
        }
    }
    seen.add(&pair.seen);
    seen.ops += ops.len();
    seen.largest = seen.largest.max(machine.nr_cids());
    Ok(())
}

const LEVELS: Cases<Op, Seen> = Cases {
    test: "cpupri",
    salt: 0x80,
    cpupri: true,
    draw: pair::draw,
    run,
};

fn check(granularity: Granularity) {
    let Some(seen) = LEVELS.all(granularity) else {
        return;
    };
    // The comparison means nothing for what never came up.
    assert!(seen.ops >= 330_000, "{} operations", seen.ops);
    assert_eq!(seen.largest, 4096);
    for (what, count) in seen.counts() {
        assert!(count >= 1000, "`{what}` came up only {count} times");
    }
}

#[test]
fn one_line_per_level_for_the_machine() {
    check(Granularity::Global);
}

#[test]
fn a_line_per_level_and_node() {
    check(Granularity::Node);
}

#[test]
fn lines_per_llc() {
    check(Granularity::Llc);
}

#[test]
fn lines_per_shard() {
    check(Granularity::Shard);
}
