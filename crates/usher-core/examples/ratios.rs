// SPDX-License-Identifier: GPL-2.0-only
//! What a claim and a release of an idle CPU, and a whole decision, cost in units of two bare atomics on one
//! line. The loops take turns, a tenth of a millisecond each, so that all see the same machine, and as the time of a
//! loop counts the one that a tenth of its turns undercut, in the best of some passes: what else runs on the machine
//! only adds. What hints cost those who have none, and capacities equal CPUs, is too little for that, so it is counted in
//! instructions. Last come the targets, met or missed.
//!
//! ```text
//! cargo run --release -p usher-core --example ratios
//! ```

#[path = "../benches/common/mod.rs"]
mod common;
#[path = "../benches/common/contended.rs"]
mod contended;
#[path = "../benches/common/levels.rs"]
mod levels;
#[path = "../benches/common/steps.rs"]
mod steps;

use std::hint::black_box;
use std::time::Instant;

use usher_core::bench::{Lines, Loop};
use usher_core::{Hints, Reason, Request, Wake};
use usher_topo::Cid;

use common::{low, Stage, LOADS, MACHINES};

const PASSES: usize = 5;
const TURNS: usize = 101;
const TURN_NS: f64 = 100_000.0;
/// One test: compare and jump, and up to two moves that the compiler makes room with.
const CAPACITY_TEST: f64 = 4.0;

/// Something that runs so many rounds.
type Run<'a> = Box<dyn FnMut(u64) -> u64 + 'a>;

/// Nanoseconds per round.
fn time(run: &mut Run, rounds: u64) -> f64 {
    let start = Instant::now();
    black_box(run(rounds));
    start.elapsed().as_nanos() as f64 / rounds as f64
}

/// Lets the loops take turns; the time of each. Lowers what `best` knows of them.
fn alternate(runs: &mut [Run], best: &mut Vec<f64>) {
    let rounds = runs.iter_mut().map(|run| {
        let once = time(run, 200).min(time(run, 200));
        ((TURN_NS / once) as u64).clamp(8, 1_000_000)
    });
    let rounds: Vec<u64> = rounds.collect();
    let turns: Vec<Vec<f64>> = (0..TURNS)
        .map(|_| {
            let each = runs.iter_mut().zip(&rounds);
            each.map(|(run, &rounds)| time(run, rounds)).collect()
        })
        .collect();
    best.resize(runs.len(), f64::INFINITY);
    for (i, best) in best.iter_mut().enumerate() {
        *best = best.min(low(turns.iter().map(|turn| turn[i])));
    }
}

/// A target: the worst ratio seen, what it may be, and what it is a ratio of.
struct Target {
    what: &'static str,
    worst: f64,
    /// `None`: for information.
    limit: Option<f64>,
}

/// One machine and load: the unit, the idle map, with the look, bare, flags, global mask, masks per node.
fn claim_release_cell(machine: &str, busy: u32, best: &mut Vec<f64>) {
    // Loops of one core must not run at the same time: each has a stage of its own.
    let (mut map, mut look) = (Stage::new(machine, busy), Stage::new(machine, busy));
    let rest = Stage::new(machine, busy);
    let word = Lines::new(1);
    let [mut map_loop] = Loop::split(&mut map.core, [Cid(0)]);
    let [mut look_loop] = Loop::split(&mut look.core, [Cid(0)]);
    let (places, nr) = (&rest.places, rest.nr_cids);
    let mut runs: [Run; 7] = [
        Box::new(|n| word.two_in_turn(places, n)),
        Box::new(|n| map_loop.idle_map(places, n)),
        Box::new(|n| look_loop.idle_and_look(places, n)),
        Box::new(|n| word.two_atomics(places, n)),
        Box::new(|n| rest.flags.flags(nr, places, n)),
        Box::new(|n| rest.global.masks(nr.div_ceil(64), places, n)),
        Box::new(|n| rest.nodes.masks(rest.node_words, places, n)),
    ];
    alternate(&mut runs, best);
}

fn claim_release(targets: &mut Vec<Target>) {
    let cells = MACHINES
        .iter()
        .flat_map(|&machine| LOADS.map(|busy| (machine, busy)));
    let mut cells: Vec<_> = cells.map(|cell| (cell, Vec::new())).collect();
    for _ in 0..PASSES {
        for (((_, machine), busy), best) in &mut cells {
            claim_release_cell(machine, *busy, best);
        }
    }
    println!(
        "claim + release, as a multiple of two atomics of which each waits for the one before"
    );
    let head = [
        "CPUs", "busy", "unit ns", "usher ns", "usher", "and look", "bare", "flags", "global",
    ];
    println!(
        "{} {:>9}",
        head.map(|name| format!("{name:>8}")).join(" "),
        "per node"
    );
    for (((nr_cids, _), busy), best) in &cells {
        let ratios = best[1..]
            .iter()
            .map(|time| format!("{:>8.2}", time / best[0]));
        let ratios: Vec<String> = ratios.collect();
        let (unit, usher) = (best[0], best[1]);
        println!(
            "{nr_cids:>8} {busy:>7}% {unit:>8.2} {usher:>8.2} {}",
            ratios.join(" ")
        );
    }
    let worst = |i: usize| {
        cells
            .iter()
            .map(|(_, best)| best[i] / best[0])
            .fold(0.0, f64::max)
    };
    let growth = |i: usize| {
        let (small, large) = (&cells[..LOADS.len()], &cells[cells.len() - LOADS.len()..]);
        let each = small
            .iter()
            .zip(large)
            .map(|((_, small), (_, large))| large[i] / small[i]);
        each.fold(0.0, f64::max)
    };
    let mut target = |what, worst, limit| targets.push(Target { what, worst, limit });
    target(
        "claim + release, of two atomics in turn",
        worst(1),
        Some(1.4),
    );
    target("the same, looking for work in all queues", worst(2), None);
    target("claim + release, 4,096 CPUs of 16", growth(1), Some(1.25));
    target("the same, looking for work in all queues", growth(2), None);
}

fn decisions(targets: &mut Vec<Target>) {
    println!(
        "\nplace() and the release of what it claimed, 256 CPUs\n{:<14} {:>9} {:>14} {:>14}",
        "reason", "ns", "of two in turn", "of two bare"
    );
    for (reason, idle, step, width) in common::REASONS {
        let mut core = common::core_with_idle(idle, step);
        let places = common::places(0, width);
        let [mut one] = Loop::split(&mut core, [Cid(0)]);
        let sum = one.place(&places, Wake::Wake, 1000);
        assert_eq!(
            sum,
            reason.index() as u64 * 1000,
            "decisions for the reason `{reason}`"
        );
        let word = Lines::new(1);
        let mut runs: [Run; 3] = [
            Box::new(|n| word.two_atomics(&places, n)),
            Box::new(|n| word.two_in_turn(&places, n)),
            Box::new(|n| one.place(&places, Wake::Wake, n)),
        ];
        let mut best = Vec::new();
        for _ in 0..PASSES {
            alternate(&mut runs, &mut best);
        }
        let (in_turn, bare) = (best[2] / best[1], best[2] / best[0]);
        println!(
            "{:<14} {:>9.2} {in_turn:>14.2} {bare:>14.2}",
            reason.as_str(),
            best[2]
        );
        let limit = match reason {
            Reason::PrevCore => ("place(), prev idle, of two bare atomics", 4.0),
            Reason::LlcCore => ("place(), idle core of the LLC, of two bare atomics", 6.0),
            _ => continue,
        };
        targets.push(Target {
            what: limit.0,
            worst: bare,
            limit: Some(limit.1),
        });
    }
}

/// What a decision about a task without hints costs more than if there were no hints, in instructions; and one about a task
/// that holds its place, or is being born.
fn hints(targets: &mut Vec<Target>) {
    const ROUNDS: u64 = 32; // twice the places: all are used alike
    println!(
        "\nplace() and the release of what it claimed, 256 CPUs, in instructions\n{:<14} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "reason", "no hints", "unhinted", "ratio", "wake-hold", "newborn"
    );
    let mut worst: f64 = 0.0;
    for (reason, idle, step, width) in common::REASONS {
        let places = common::places(0, width);
        let per_round = |wake, hints: Option<Hints>| {
            let mut core = common::core_with_idle(idle.clone(), step);
            let [mut one] = Loop::split(&mut core, [Cid(0)]);
            let mut count = |rounds| {
                steps::instructions(&mut || {
                    black_box(match hints {
                        None => one.place(&places, wake, rounds),
                        Some(hints) => one.place_hinted(&places, wake, hints, rounds),
                    });
                })
            };
            // Twice as many, less once: what comes around the rounds is gone.
            (count(2 * ROUNDS) - count(ROUNDS)) as f64 / ROUNDS as f64
        };
        let without = per_round(Wake::Wake, None);
        let unhinted = per_round(Wake::Wake, Some(Hints::NONE));
        let hold = per_round(Wake::Wake, Some(Hints::WAKE_HOLD));
        let newborn = per_round(Wake::Fork, Some(Hints::NONE));
        let ratio = unhinted / without;
        let name = reason.as_str();
        println!(
            "{name:<14} {without:>9.1} {unhinted:>9.1} {ratio:>9.4} {hold:>9.1} {newborn:>9.1}"
        );
        worst = worst.max(ratio);
    }
    targets.push(Target {
        what: "place() unhinted, instructions, of no hints at all",
        worst,
        limit: Some(1.02),
    });
}

/// What a decision on a machine of equal CPUs costs more than if the core knew nothing of capacities, in instructions.
fn capacity(targets: &mut Vec<Target>) {
    const ROUNDS: u64 = 32;
    println!(
        "\nplace() and the release of what it claimed, 256 equal CPUs, in instructions\n{:<14} {:>12} {:>9} {:>7}",
        "reason", "no capacity", "as it is", "more"
    );
    let mut worst: f64 = 0.0;
    for (reason, idle, step, width) in common::REASONS {
        let places = common::places(0, width);
        let per_round = |equal: bool| {
            let mut core = common::core_with_idle(idle.clone(), step);
            let [mut one] = Loop::split(&mut core, [Cid(0)]);
            let mut count = |rounds| {
                steps::instructions(&mut || {
                    black_box(if equal {
                        one.place_equal(&places, Wake::Wake, Hints::NONE, rounds)
                    } else {
                        one.place_hinted(&places, Wake::Wake, Hints::NONE, rounds)
                    });
                })
            };
            (count(2 * ROUNDS) - count(ROUNDS)) as f64 / ROUNDS as f64
        };
        let (without, with) = (per_round(true), per_round(false));
        let more = with - without;
        let name = reason.as_str();
        println!("{name:<14} {without:>12.1} {with:>9.1} {more:>7.2}");
        worst = worst.max(more);
    }
    targets.push(Target {
        what: "place(), equal CPUs, instructions for capacity",
        worst,
        limit: Some(CAPACITY_TEST),
    });
}

/// What a tick costs the CPU of a task that may share its core, in instructions: the look at the core, and the search where it
/// is in vain.
fn ticks() {
    const ROUNDS: u64 = 32;
    const LATER_NS: u64 = 1_000_000_000;
    println!("\na tick, 256 CPUs, in instructions");
    // A task runs on cid 0; its sibling is cid 1.
    for (what, idle, step, now_ns) in [
        ("the sibling idles", 1..256, 2, LATER_NS),
        ("a turn has just begun", 0..0, 1, 0),
        ("both have lasted, nobody idles", 0..0, 1, LATER_NS),
        ("both have, halves of cores idle", 2..256, 2, LATER_NS),
    ] {
        let mut core = common::core_with_idle(idle, step);
        let request = Request::wake(Cid(0), Cid(0));
        let mut count = |rounds| {
            steps::instructions(&mut || {
                for _ in 0..rounds {
                    if black_box(core.crowded(Cid(0), now_ns)) {
                        black_box(core.uncrowd(&request, now_ns));
                    }
                }
            })
        };
        let each = (count(2 * ROUNDS) - count(ROUNDS)) as f64 / ROUNDS as f64;
        println!("{what:<44} {each:>6.1}");
    }
}

fn main() {
    let mut targets = Vec::new();
    claim_release(&mut targets);
    decisions(&mut targets);
    hints(&mut targets);
    capacity(&mut targets);
    ticks();
    levels::alone(&mut targets);
    contended::print();
    println!("\n{:<52} {:>6} {:>7}", "target", "worst", "at most");
    let (mut met, mut all) = (0, 0);
    for Target { what, worst, limit } in &targets {
        let Some(limit) = limit else {
            println!("{what:<52} {worst:>6.2} {:>7}", "-");
            continue;
        };
        let verdict = if worst <= limit { "met" } else { "MISSED" };
        met += usize::from(worst <= limit);
        all += 1;
        println!("{what:<52} {worst:>6.2} {limit:>7.2}  {verdict}");
    }
    println!("{met} of {all} targets met");
}
