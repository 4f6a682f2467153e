// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map under real-time load: what the four published patches and the core's own map come to.
//! docs/FIDELITY.md says which of the published figures are not met, and why.

mod common;

use common::{run_case, shipped};
use usher_sim::Report;

fn report(machine: &str, costs: &[&str], workload: &str, pairs: &[&str], policy: &str) -> Report {
    run_case(&shipped(machine, costs), workload, pairs, policy, 1)
}

const SEEDS: [u64; 3] = [1, 2, 3];

/// After the queues have filled, with each of the seeds.
fn settled(policy: &str) -> [Report; SEEDS.len()] {
    let hcc = shipped("hcc-2s-480", &[]);
    let set = ["warmup=50ms", "runtime=50ms"];
    SEEDS.map(|seed| run_case(&hcc, "ffmpeg-rt", &set, policy, seed))
}

fn mean(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    reports.iter().map(of).sum::<f64>() / reports.len() as f64
}

/// Cycles per load, and all cycles, of words with a name that begins so.
fn cycles(report: &Report, words: &str) -> (f64, f64) {
    let of = report
        .words
        .iter()
        .filter(|(name, _)| name.starts_with(words));
    let (loads, all) = of.fold((0, 0.0), |(loads, all), (_, word)| {
        let cycles = word.cycles_per_load * word.loads as f64;
        (loads + word.loads, all + cycles)
    });
    assert!(loads > 0, "nobody loads {words}");
    (all / loads as f64, all)
}

// Goal: on the transcoders the padding gains about what is published (+11.0 %) and the overload count per node less, and the
// kernel's share of the baseline is the one that the work was calibrated to. (The count, +4.0 %, and the bitmaps per node gain too much, and
// the reordering nothing, see docs/FIDELITY.md.)
// Method: frames per second, after the queues have filled, in the mean of three seeds.
#[test]
fn two_patches_gain_on_transcoders() {
    let base = settled("rt");
    let share = mean(&base, |r| r.metrics["kernel_share"]);
    assert!((0.12..0.28).contains(&share), "kernel share {share}");
    let frames = |reports: &[Report]| mean(reports, |r| r.metrics["frames_per_s"]);
    let gain = |policy: &str| frames(&settled(policy)) / frames(&base) - 1.0;
    let [pad, count] = ["rt+pad-counts", "rt+node-rto-count"].map(gain);
    let all = format!("{pad:.3} {count:.3}");
    assert!((0.07..0.15).contains(&pad), "{all}");
    assert!(count > 0.02 && count < pad, "{all}");
}

// Goal: the bitmaps' lines are cheaper by 3 times per node as proposed than the kernel's, as published (4 times), and by 2 times more
// in shards; and the whole of it pays in frames.
// Method: cycles per load, all words together, after the queues have filled, in the mean of three seeds: of all levels, and of each
// of the two that count. Level 0, which everybody enters, leaves and searches, is cheap already per node; level 99, which every wakeup
// enters and every sleep leaves, in shards alone.
#[test]
fn shards_make_the_maps_lines_cheap() {
    let maps = ["rt", "rt+node-cpupri", "rt+shard-cpupri"].map(settled);
    let level = |words| maps.each_ref().map(|map| mean(map, |r| cycles(r, words).0));
    let all = level("cpupri_mask");
    assert!(all[0] > 3.0 * all[1] && all[1] > 2.0 * all[2], "{all:?}");
    let all = level("cpupri_mask_l0");
    assert!(all[0] > 3.0 * all[1] && all[1] > 1.5 * all[2], "{all:?}");
    let all = level("cpupri_mask_l99");
    assert!(all[0] > 2.0 * all[1] && all[1] > 5.0 * all[2], "{all:?}");
    let [global, node, shard] = maps.map(|map| mean(&map, |r| r.metrics["frames_per_s"]));
    assert!(
        shard > 1.15 * global && shard > 1.04 * node,
        "{global} {node} {shard}"
    );
}

// Goal: where a socket has many LLCs, a level set and cleared per switch costs a ninth with lines per LLC of what it
// costs with the kernel's map, and a quarter with the core's own of one line for all; less than with lines per node; and no line of
// the map leaves its LLC.
// Method: a real-time task per CPU that sleeps 300 us (with longer sleeps few CPUs would do for all); all cycles on words
// of the map per sleep, and transfers of its lines by distance.
#[test]
fn lines_per_llc_stay_in_their_llc() {
    let run = |policy| {
        let short = ["sleep=300us", "warmup=50ms", "runtime=20ms"];
        report("zen3-2s", &[], "stress-ng-cyclic", &short, policy)
    };
    let [kernel, global, node, llc] = [
        "rt",
        "rt:map=core:granularity=global",
        "rt:map=core:granularity=node",
        "rt+llc-cpupri",
    ]
    .map(run);
    let per_op = |r: &Report| cycles(r, "cpupri_").1 / r.metrics["bogo_ops"];
    let all = [&kernel, &global, &node, &llc].map(per_op);
    assert!(all[0] >= 9.0 * all[3], "{all:?} cycles per sleep");
    assert!(all[1] >= 4.0 * all[3], "{all:?} cycles per sleep");
    assert!(all[2] >= 2.0 * all[3], "{all:?} cycles per sleep");
    let far = |r: &Report| -> u64 {
        let lines = r
            .lines
            .iter()
            .filter(|(class, _)| class.starts_with("cpupri"));
        lines
            .map(|(_, l)| l.transfers["node"] + l.transfers["remote"])
            .sum()
    };
    assert_eq!(far(&llc), 0);
    assert!(far(&kernel) as f64 > kernel.metrics["bogo_ops"]);
}

// Goal: on sleepers the padding gains more than the bitmaps per node, and both gain, as published. (There the reordering gains, too, and
// the overload count per node most of all; here neither does much, see docs/FIDELITY.md.)
// Method: sleeps per second of a short run each.
#[test]
fn padding_and_bitmaps_gain_on_sleepers() {
    let run = |policy| {
        let short = ["warmup=20ms", "runtime=20ms"];
        report("hcc-2s-480", &[], "stress-ng-cyclic", &short, policy).metrics["bogo_ops_per_s"]
    };
    let [base, pad, node] = ["rt", "rt+pad-counts", "rt+node-cpupri"].map(run);
    assert!(pad > node && node > 1.05 * base, "{base} {pad} {node}");
}

// Goal: cycles are times in units of the clock, and the clock changes nothing else.
// Method: the same run at two clocks.
#[test]
fn cycles_are_those_of_the_clock() {
    let run = |clock: &str| {
        let pairs = ["instances=16", "warmup=0ms", "runtime=2ms"];
        report("zen3-2s", &[clock], "stress-ng-cyclic", &pairs, "rt")
    };
    let (slow, fast) = (run("cpu.clock_mhz=1000"), run("cpu.clock_mhz=3000"));
    assert_eq!(slow.log_hash, fast.log_hash);
    assert!(!slow.words.is_empty());
    for (name, word) in &slow.words {
        let other = &fast.words[name];
        assert_eq!(
            (word.loads, word.load_ns_mean),
            (other.loads, other.load_ns_mean)
        );
        assert!((word.cycles_per_load - word.load_ns_mean).abs() < 1e-9);
        assert!((other.cycles_per_load - 3.0 * word.cycles_per_load).abs() < 1e-6);
    }
}
