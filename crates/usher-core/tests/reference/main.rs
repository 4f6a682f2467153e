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

mod capacity;
mod cases;
mod follows;
mod machine;
mod ops;
mod pace;
mod pairs;
mod plain;
mod random;
mod run;
mod turns;
mod utilisation;

use usher_core::{Granularity, Reason, Settings, TierOrder};

use cases::Cases;
use ops::Op;
use run::{run, Seen};

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

// Goal: utilisation is what its definition says, whatever a task does. Method: random runs and sleeps on CPUs of random
// capacity, beside the same in floating point; a thousand stretches each, of nanoseconds to seconds.
#[test]
fn utilisation_is_a_geometric_average() {
    for seed in 0..100 {
        if let Err(wrong) = utilisation::check(seed) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

// Goal: who gives way does so by its rules. Method: random turns that end in every way, beside the rules written down plainly; a
// thousand each, and as many idle maps.
#[test]
fn partners_give_way_by_the_rules() {
    for seed in 0..100 {
        if let Err(wrong) = pairs::check(seed) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

// Goal: a task goes to the node that alone wakes it, and only then. Method: random wakeups, mostly from one node for a while, beside the
// whole list of them; six hundred each.
#[test]
fn tasks_follow_by_the_rules() {
    for seed in 0..100 {
        if let Err(wrong) = follows::check(seed) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

// Goal: whose turn it is follows from the rules. Method: random turns, sleeps and wakeups on the queues of random machines, beside the rules
// written down plainly; a thousand steps each.
#[test]
fn turns_go_by_the_rules() {
    for seed in 0..200 {
        if let Err(wrong) = turns::check(seed) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

// Goal: the defaults that the documents name.
#[test]
fn capacity_counts_and_the_strongest_come_first() {
    let settings = Settings::default();
    assert!(settings.capacity);
    assert_eq!(settings.tier_order, TierOrder::StrongestFirst);
}
