// SPDX-License-Identifier: GPL-2.0-only
//! The mask of idle CPUs per last-level cache under 5.9.

mod common;

use common::{run_case, shipped};

// Goal: the mask gains nothing where every thread has a CPU, as published for 96 pairs, and much where some have to share, as published for 192:
// without it they wander from CPU to CPU that has just gone idle, with it pairs stay together.
// Method: pairs that begin spread over four sockets, two for four CPUs and three for four; bytes, and how often threads migrate.
#[test]
fn the_mask_keeps_pairs_together_where_cpus_are_few() {
    let xeon = shipped("xeon-4s24c2t-192", &[]);
    let run = |threads: &str, policy: &str| {
        let set = [threads, "spread=true", "warmup=10ms", "runtime=10ms"];
        let report = run_case(&xeon, "uperf", &set, policy, 1);
        (report.metrics["bytes_per_s"], report.metrics["migrations"])
    };
    let both = |threads| ["cfs-5.9", "cfs-5.9+llc-idle-mask"].map(|policy| run(threads, policy));
    let [(plain, _), (masked, _)] = both("threads=96");
    assert!((0.96..1.04).contains(&(masked / plain)), "{plain} {masked}");
    let [(plain, wander), (masked, stay)] = both("threads=144");
    assert!(masked > 1.4 * plain, "{plain} {masked}");
    assert!(wander > 100.0 * (stay + 1.0), "{wander} {stay}");
}
