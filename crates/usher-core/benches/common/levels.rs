// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map among bare atomics and the proposal's form of it, for the ratios.

use usher_core::bench::{Lines, Loop};
use usher_core::{CidSet, ComplementMasks, Core, Granularity, Tables};
use usher_topo::{Cid, Topology};

use crate::common::{self, Victim, MACHINES};
use crate::{alternate, Run, Target, PASSES};

/// Of one machine: the unit, then changes of level and searches; of the proposal's form, too.
const HEAD: [&str; 11] = [
    "unit", "in turn", "set", "near", "lowest", "of 20", "far", "none", "set g", "set n", "find n",
];

/// A core per kind of search, and one whose levels change.
fn cores(topo: &Topology, granularity: Granularity) -> [Core; 5] {
    [
        Victim::Near,
        Victim::Near,
        Victim::Higher,
        Victim::Far,
        Victim::None,
    ]
    .map(|victim| common::core_with_levels(topo, granularity, victim))
}

fn cell(machine: &str, granularity: Granularity, best: &mut Vec<f64>) {
    let topo = common::topology(machine);
    let [mut set, mut near, mut higher, mut far, mut none] = cores(&topo, granularity);
    let places = &common::places(0, topo.shards()[0].cids.len() as u32);
    let tables = Tables::from(&topo);
    let all: CidSet = (0..topo.nr_cids() as u32).map(Cid).collect();
    let mut global = ComplementMasks::global(&tables);
    let mut per_node = ComplementMasks::new(&tables, &all);
    let mut searched = ComplementMasks::new(&tables, &all);
    let levels = common::levels();
    let [low, high] = levels;
    for cid in all.iter() {
        for masks in [&mut global, &mut per_node, &mut searched] {
            masks.set_level(cid, Some(high));
        }
    }
    searched.set_level(Cid(1), Some(low));
    let word = Lines::new(1);
    let [mut set] = Loop::split(&mut set, [Cid(0)]);
    let [mut higher] = Loop::split(&mut higher, [Cid(0)]);
    let [mut far] = Loop::split(&mut far, [Cid(0)]);
    let [mut none] = Loop::split(&mut none, [Cid(0)]);
    let near = std::cell::RefCell::new(Loop::split(&mut near, [Cid(0)]));
    assert_eq!(
        near.borrow_mut()[0].find_levels(places, high, false, 100),
        100
    );
    assert_eq!(none.find_levels(places, high, true, 1), -5i64 as u64);
    let mut runs: [Run; 11] = [
        Box::new(|n| word.two_atomics(places, n)),
        Box::new(|n| word.two_in_turn(places, n)),
        Box::new(|n| set.set_levels(places, levels, n)),
        Box::new(|n| near.borrow_mut()[0].find_levels(places, high, false, n)),
        Box::new(|n| near.borrow_mut()[0].find_levels(places, high, true, n)),
        Box::new(|n| higher.find_levels(places, high, true, n)),
        Box::new(|n| far.find_levels(places, high, false, n)),
        Box::new(|n| none.find_levels(places, high, false, n)),
        Box::new(|n| global.set_levels(places, levels, n)),
        Box::new(|n| per_node.set_levels(places, levels, n)),
        Box::new(|n| searched.find_levels(places, &all, high, n)),
    ];
    alternate(&mut runs, best);
}

/// Changes of level and searches by themselves.
pub fn alone(targets: &mut Vec<Target>) {
    let rows = MACHINES
        .iter()
        .flat_map(|&machine| Granularity::ALL.iter().map(move |&g| (machine, g)));
    let mut rows: Vec<_> = rows.map(|row| (row, Vec::new())).collect();
    for _ in 0..PASSES {
        for (((_, machine), granularity), best) in &mut rows {
            cell(machine, *granularity, best);
        }
    }
    println!(
        "\nthe CPU priority map, ns; set g, set n, find n: the proposal's form with one mask and with one per node\n\
         {:>5} {:<7} {}",
        "CPUs",
        "lines",
        HEAD.map(|name| format!("{name:>7}")).join(" ")
    );
    for (((nr_cids, _), granularity), best) in &rows {
        let times: Vec<String> = best.iter().map(|ns| format!("{ns:>7.2}")).collect();
        println!(
            "{nr_cids:>5} {:<7} {}",
            granularity.as_str(),
            times.join(" ")
        );
    }
    let by_shard: Vec<&Vec<f64>> = rows
        .iter()
        .filter(|((_, granularity), _)| *granularity == Granularity::Shard)
        .map(|(_, best)| best)
        .collect();
    let (small, large) = (by_shard[0], by_shard[by_shard.len() - 1]);
    let worst = |of: usize, unit: usize| {
        let ratios = by_shard.iter().map(|best| best[of] / best[unit]);
        ratios.fold(0.0, f64::max)
    };
    let mut target = |what, worst, limit| targets.push(Target { what, worst, limit });
    target(
        "a change of level, of two bare atomics",
        worst(2, 0),
        Some(2.0),
    );
    target("the same, of two atomics in turn", worst(2, 1), None);
    target(
        "nearest victim near by, 4,096 CPUs of 16",
        large[3] / small[3],
        Some(1.5),
    );
    target(
        "lowest victim at level 20, 4,096 CPUs of 16",
        large[5] / small[5],
        Some(1.5),
    );
    target(
        "lowest victim near by, 4,096 CPUs of 16",
        large[4] / small[4],
        Some(1.5),
    );
}
