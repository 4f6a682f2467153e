// SPDX-License-Identifier: GPL-2.0-only
//! The maps under threads that use them at the same time, and for comparison two atomics by themselves. The CPU priority map: changes of level and searches, in the core's
//! four granularities, the kernel's form and the proposal's. The idle map: claims and releases, in the same granularities and as
//! plain masks.

use usher_core::bench::Lines;
use usher_core::{CidSet, ComplementMasks, Granularity, Tables};
use usher_topo::{Cid, Topology};

use crate::common::{self, Victim};

/// Rounds of a thread per turn, and turns. The forms take turns, so that all see the same machine.
const ROUNDS: u64 = 100_000;
const TURNS: usize = 15;
/// More threads than this are more than the modelled machine's shards hold.
const MOST: usize = 16;

/// The machine that is fought over: 4 nodes of 4 LLCs of 8 cores with 2 threads, a shard per LLC.
const MACHINE: &str = "numa:4 l3:4 core:8 pu:2";
/// CPUs of a shard and of a node.
const SHARD: u32 = 16;
const NODE: u32 = 64;
/// Bits of a cache line.
const LINE_BITS: u32 = 512;

/// Who shares a line.
#[derive(Clone, Copy)]
enum Form {
    /// The core's map.
    Core(Granularity),
    /// A count and a mask per level, as the kernel has it.
    Kernel,
    /// The same with a mask per node, complemented, as proposed.
    Proposal,
}

const FORMS: [Form; 6] = [
    Form::Core(Granularity::Global),
    Form::Core(Granularity::Node),
    Form::Core(Granularity::Llc),
    Form::Core(Granularity::Shard),
    Form::Kernel,
    Form::Proposal,
];

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Core(granularity) => granularity.as_str(),
            Form::Kernel => "kernel",
            Form::Proposal => "proposal",
        }
    }

    /// A turn of threads whose CPUs begin at these, `width` each: ns per change and search.
    fn turn(self, topo: &Topology, starts: &[Cid], width: u32) -> f64 {
        match self {
            Form::Core(granularity) => core_turn(topo, granularity, starts, width),
            Form::Kernel => masks_turn(topo, false, starts, width),
            Form::Proposal => masks_turn(topo, true, starts, width),
        }
    }
}

/// Threads that do these rounds at the same time: ns per round.
fn together<R: FnMut(u64) -> u64 + Send>(runs: impl Iterator<Item = R>) -> f64 {
    let runs = runs.map(|run| Box::new(run) as Box<dyn FnMut(u64) -> u64 + Send + '_>);
    common::all(ROUNDS, runs.collect()).as_nanos() as f64 / ROUNDS as f64
}

fn core_turn(topo: &Topology, granularity: Granularity, starts: &[Cid], width: u32) -> f64 {
    let mut core = common::core_with_levels(topo, granularity, Victim::None);
    let loops = usher_core::bench::Loop::split_all(&mut core, starts);
    let runs = loops.into_iter().zip(starts).map(|(mut one, start)| {
        let places = common::places(start.0, width);
        move |n| one.set_and_find(&places, common::levels(), n)
    });
    together(runs)
}

fn masks_turn(topo: &Topology, per_node: bool, starts: &[Cid], width: u32) -> f64 {
    let tables = Tables::from(topo);
    let all: CidSet = (0..topo.nr_cids() as u32).map(Cid).collect();
    let mut masks = match per_node {
        true => ComplementMasks::new(&tables, &all),
        false => ComplementMasks::global(&tables),
    };
    let [_, high] = common::levels();
    all.iter().for_each(|cid| masks.set_level(cid, Some(high)));
    let all = &all;
    let loops = masks.split_all(starts);
    let runs = loops.into_iter().zip(starts).map(|(mut one, start)| {
        let places = common::places(start.0, width);
        move |n| one.set_and_find(&places, all, common::levels(), n)
    });
    together(runs)
}

/// Who shares a line of the idle map.
#[derive(Clone, Copy)]
enum IdleForm {
    /// The core's map.
    Core(Granularity),
    /// One mask of all CPUs; the first idle CPU of the first word that has one.
    Mask,
    /// Such a mask per node.
    NodeMasks,
}

const IDLE_FORMS: [IdleForm; 6] = [
    IdleForm::Core(Granularity::Global),
    IdleForm::Core(Granularity::Node),
    IdleForm::Core(Granularity::Llc),
    IdleForm::Core(Granularity::Shard),
    IdleForm::Mask,
    IdleForm::NodeMasks,
];

impl IdleForm {
    fn name(self) -> &'static str {
        match self {
            IdleForm::Core(granularity) => granularity.as_str(),
            IdleForm::Mask => "mask",
            IdleForm::NodeMasks => "masks",
        }
    }

    /// A turn of threads, each claiming and releasing near its CPU, on a machine half of which idles: ns per claim and release.
    fn turn(self, topo: &Topology, starts: &[Cid], width: u32) -> f64 {
        let idle = || (0..topo.nr_cids() as u32).step_by(2);
        // The bit of a CPU: a node's mask begins on a line of its own.
        let bit = |cid: u32| match self {
            IdleForm::NodeMasks => cid / NODE * LINE_BITS + cid % NODE,
            _ => cid,
        };
        match self {
            IdleForm::Core(granularity) => {
                let mut core = common::core(topo, granularity);
                for cid in idle() {
                    core.idle_enter(Cid(cid));
                }
                let loops = usher_core::bench::Loop::split_all(&mut core, starts);
                let runs = loops.into_iter().zip(starts).map(|(mut one, start)| {
                    let places = common::places(start.0, width);
                    move |n| one.idle_map(&places, n)
                });
                together(runs)
            }
            IdleForm::Mask | IdleForm::NodeMasks => {
                let words = bit(topo.nr_cids() as u32 - 1) as usize / 64 + 1;
                let words = words.next_multiple_of(LINE_BITS as usize / 64);
                let span = match self {
                    IdleForm::NodeMasks => LINE_BITS as usize / 64,
                    _ => words,
                };
                let mut lines = Lines::new(words);
                idle()
                    .map(bit)
                    .for_each(|bit| lines.set(bit as usize / 64, bit % 64));
                let lines = &lines;
                let runs = starts.iter().map(|start| {
                    let places = common::places(bit(start.0), width);
                    move |n| lines.masks(span, &places, n)
                });
                together(runs)
            }
        }
    }
}

/// Two atomics on a line, and nothing else.
#[derive(Clone, Copy)]
enum Bare {
    /// The same line for all.
    OneLine,
    /// A line for each.
    OwnLine,
}

impl Bare {
    fn name(self) -> &'static str {
        match self {
            Bare::OneLine => "one",
            Bare::OwnLine => "a line each",
        }
    }

    /// A turn of threads: ns per two atomics.
    fn turn(self, _: &Topology, starts: &[Cid], _: u32) -> f64 {
        let lines: Vec<Lines> = starts.iter().map(|_| Lines::new(1)).collect();
        let runs = (0..starts.len()).map(|i| {
            let line = match self {
                Bare::OneLine => &lines[0],
                Bare::OwnLine => &lines[i],
            };
            let places = common::places(0, SHARD);
            move |n| line.two_in_turn(&places, n)
        });
        together(runs)
    }
}

/// Where the CPUs of a thread begin and how many it has: of so many threads, the one with this number.
type Spread = fn(u32, u32) -> (u32, u32);

/// All in one shard.
const ONE_SHARD: Spread = |n, i| {
    let width = SHARD / n.next_power_of_two();
    (i * width, width)
};
/// A shard each, node after node.
const OWN_SHARD: Spread = |_, i| (i * SHARD, SHARD / 2);
/// A node each as far as there are nodes, and a shard each.
const OWN_NODE: Spread = |_, i| (i % 4 * NODE + i / 4 * SHARD, SHARD / 2);

/// 2 threads to as many as the machine has, but 16 at most: per form and column ns per round, and what that is of the first
/// form's.
fn table<F: Copy, const N: usize>(
    title: &str,
    forms: [F; N],
    name: fn(F) -> &'static str,
    columns: &[(&str, Spread)],
    turn: fn(F, &Topology, &[Cid], u32) -> f64,
) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let most = cpus.min(MOST) as u32;
    let mut threads: Vec<u32> = [2, 4, 8, 16].into_iter().filter(|&n| n <= most).collect();
    if threads
        .last()
        .is_some_and(|&last| last < most && most.is_multiple_of(2))
    {
        threads.push(most);
    }
    println!("\n{title}, and of the first line's");
    let heads = columns
        .iter()
        .map(|(name, _)| format!("{name:>9} {:>5}", ""));
    let heads: Vec<String> = heads.collect();
    println!("{:>7} {:<11} {}", "threads", "lines", heads.join(" "));
    if threads.is_empty() {
        println!("{:>7} one CPU: nobody to share a line with", 1);
    }
    let topo = common::topology(MACHINE);
    for &n in &threads {
        let columns = columns.iter().map(|(_, spread)| {
            let places = (0..n).map(|i| spread(n, i));
            let (mut starts, widths): (Vec<Cid>, Vec<u32>) =
                places.map(|(start, width)| (Cid(start), width)).unzip();
            starts.sort_unstable();
            let turns = (0..TURNS).map(|_| forms.map(|form| turn(form, &topo, &starts, widths[0])));
            let turns: Vec<[f64; N]> = turns.collect();
            std::array::from_fn(|form| common::low(turns.iter().map(|turn| turn[form])))
        });
        let columns: Vec<[f64; N]> = columns.collect();
        for (i, form) in forms.into_iter().enumerate() {
            let cells = columns
                .iter()
                .map(|c| format!("{:>9.1} {:>5.2}", c[i], c[i] / c[0]));
            let cells: Vec<String> = cells.collect();
            println!("{n:>7} {:<11} {}", name(form), cells.join(" "));
        }
    }
}

/// Bare atomics, the CPU priority map, and the idle map.
pub fn print() {
    println!("\nthreads run on CPUs {}", common::pinned());
    table(
        "threads with two atomics in turn: ns for both",
        [Bare::OneLine, Bare::OwnLine],
        Bare::name,
        &[("", OWN_SHARD)],
        Bare::turn,
    );
    table(
        "threads that change levels and search: ns per change and search",
        FORMS,
        Form::name,
        &[
            ("one shard", ONE_SHARD),
            ("own shard", OWN_SHARD),
            ("own node", OWN_NODE),
        ],
        Form::turn,
    );
    table(
        "threads that claim and release idle CPUs: ns per claim and release",
        IDLE_FORMS,
        IdleForm::name,
        &[("own shard", OWN_SHARD), ("own node", OWN_NODE)],
        IdleForm::turn,
    );
}
