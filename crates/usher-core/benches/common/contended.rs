// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map under threads that change levels and search at the same time: the core's four granularities,
//! the kernel's form and the proposal's.

use std::time::Duration;

use usher_core::{CidSet, ComplementMasks, Granularity, Tables};
use usher_topo::{Cid, Topology};

use crate::common::{self, Victim};

/// Rounds of a thread per turn, and turns. The forms take turns, so that all see the same machine.
const ROUNDS: u64 = 100_000;
const TURNS: usize = 15;
/// More threads than this are more than the modelled machine's shards hold.
const MOST: usize = 16;

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
        let time = match self {
            Form::Core(granularity) => core_turn(topo, granularity, starts, width),
            Form::Kernel => masks_turn(topo, false, starts, width),
            Form::Proposal => masks_turn(topo, true, starts, width),
        };
        time.as_nanos() as f64 / ROUNDS as f64
    }
}

fn core_turn(topo: &Topology, granularity: Granularity, starts: &[Cid], width: u32) -> Duration {
    let mut core = common::core_with_levels(topo, granularity, Victim::None);
    let loops = usher_core::bench::Loop::split_all(&mut core, starts);
    let runs = loops.into_iter().zip(starts).map(|(mut one, start)| {
        let places = common::places(start.0, width);
        let run = move |n| one.set_and_find(&places, common::levels(), n);
        Box::new(run) as Box<dyn FnMut(u64) -> u64 + Send>
    });
    common::all(ROUNDS, runs.collect())
}

fn masks_turn(topo: &Topology, per_node: bool, starts: &[Cid], width: u32) -> Duration {
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
        let run = move |n| one.set_and_find(&places, all, common::levels(), n);
        Box::new(run) as Box<dyn FnMut(u64) -> u64 + Send>
    });
    common::all(ROUNDS, runs.collect())
}

/// 2 threads to as many as the machine has, but 16 at most: all in one shard, each in a shard of its own, each in a
/// node of its own as far as there are nodes. Per form ns per change and search, and what that is of the first form's.
pub fn print() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let most = cpus.min(MOST) as u32;
    let mut threads: Vec<u32> = [2, 4, 8, 16].into_iter().filter(|&n| n <= most).collect();
    if threads
        .last()
        .is_some_and(|&last| last < most && most.is_multiple_of(2))
    {
        threads.push(most);
    }
    println!("\nthreads that change levels and search, ns per change and search, and of the first line's");
    println!(
        "{:>7} {:<9} {:>9} {:>5} {:>9} {:>5} {:>9} {:>5}",
        "threads", "lines", "one shard", "", "own shard", "", "own node", ""
    );
    if threads.is_empty() {
        println!("{:>7} one CPU: nobody to share a line with", 1);
    }
    let topo = common::topology("numa:4 l3:4 core:8 pu:2");
    for &n in &threads {
        let one_shard = |i: u32| i * (16 / n.next_power_of_two());
        let own_shard = |i: u32| i * 16;
        let own_node = |i: u32| i % 4 * 64 + i / 4 * 16;
        let places: [(&dyn Fn(u32) -> u32, u32); 3] = [
            (&one_shard, 16 / n.next_power_of_two()),
            (&own_shard, 8),
            (&own_node, 8),
        ];
        let columns = places.map(|(start, width)| {
            let mut starts: Vec<Cid> = (0..n).map(|i| Cid(start(i))).collect();
            starts.sort_unstable();
            let turns = (0..TURNS).map(|_| FORMS.map(|form| form.turn(&topo, &starts, width)));
            let turns: Vec<[f64; FORMS.len()]> = turns.collect();
            std::array::from_fn::<f64, { FORMS.len() }, _>(|form| {
                common::low(turns.iter().map(|turn| turn[form]))
            })
        });
        for (i, form) in FORMS.iter().enumerate() {
            let cells = columns
                .iter()
                .map(|c| format!("{:>9.1} {:>5.2}", c[i], c[i] / c[0]));
            let cells: Vec<String> = cells.collect();
            println!("{n:>7} {:<9} {}", form.name(), cells.join(" "));
        }
    }
}
