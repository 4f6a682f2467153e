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

use machine::Machine;
use pair::{Op, Pair, Seen};
use random::Random;

/// Cases per granularity, and operations per case.
const CASES: u64 = 160;
const OPS: usize = 2100;

/// Runs operations; on failure, how many were done and what went wrong.
fn run(
    machine: &Machine,
    ops: &[Op],
    traced: bool,
    seen: &mut Seen,
) -> Result<(), (usize, String)> {
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

/// Leaves out operations, by halves, quarters, ... and one by one, as long as the rest still fails.
fn shorten(machine: &Machine, mut ops: Vec<Op>, traced: bool) -> (Vec<Op>, String) {
    let fails = |ops: &[Op]| run(machine, ops, traced, &mut Seen::default()).err();
    let (len, mut wrong) = fails(&ops).expect("it failed before");
    ops.truncate(len);
    let mut chunk = ops.len();
    while chunk > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + chunk).min(ops.len()));
            match fails(&fewer) {
                Some((len, why)) => {
                    fewer.truncate(len);
                    (ops, wrong) = (fewer, why);
                }
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    (ops, wrong)
}

/// Most machines are small, some large, a few as large as they may be.
fn case(granularity: Granularity, number: u64, seen: &mut Seen) {
    let mut random = Random::new(number << 8 | 0x80 | u64::from(granularity as u32));
    let (low, high) = match number % 32 {
        0..=9 => (1, 16),
        10..=22 => (17, 128),
        23..=29 => (129, 600),
        30 => (601, 4096),
        _ => (4096, 4096),
    };
    let cpus = random.between(low, high);
    let mut machine = Machine::draw(&mut random, cpus, granularity);
    machine.settings.cpupri = true;
    let ops = pair::draw(&mut random, &machine, OPS);
    let traced = number % 8 == 5; // the simulator's build of the core
    if run(&machine, &ops, traced, seen).is_err() {
        let (ops, wrong) = shorten(&machine, ops, traced);
        let list: Vec<String> = ops.iter().map(|op| format!("    {op:?}")).collect();
        panic!(
            "{wrong}\n  machine: {}\n  the shortest list that fails, {} operations:\n{}\n  \
             USHER_CASE={granularity}:{number} cargo test -p usher-core --test cpupri",
            machine.describe(),
            ops.len(),
            list.join("\n"),
        );
    }
}

/// The cases to run: all, or the one that USHER_CASE names.
fn cases(granularity: Granularity) -> Vec<u64> {
    let Ok(chosen) = std::env::var("USHER_CASE") else {
        return (0..CASES).collect();
    };
    let (name, number) = chosen
        .split_once(':')
        .expect("USHER_CASE is GRANULARITY:NUMBER");
    let number = number.parse().expect("USHER_CASE ends in a number");
    if name == granularity.as_str() {
        vec![number]
    } else {
        vec![]
    }
}

fn check(granularity: Granularity) {
    let mut seen = Seen::default();
    let cases = cases(granularity);
    for &number in &cases {
        case(granularity, number, &mut seen);
    }
    if (cases.len() as u64) < CASES {
        return;
    }
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
