// SPDX-License-Identifier: GPL-2.0-only
//! Goal: an urgent task takes the right CPU, and no CPU is taken twice. Method: CPUs of some shapes run tasks of random
//! classes and urgent tasks come, some of which may run on one CPU only or are too heavy for some CPUs, beside a plain list
//! of what runs where and who is marked; and the rules that make a class, at their borders.

use usher_core::{CidSet, Class, Core, Demand, Event, Query, Settings, Tables, DEFAULT_SLICE_NS};
use usher_topo::{shape, Cid, Topology};

/// A small generator; its period is of no matter here.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }
}

fn core(text: &str) -> (Core, Tables) {
    let topology = Topology::build(&shape::parse(text).expect("a shape"), 64).expect("legal");
    let settings = Settings {
        cpupri: true,
        ..Settings::default()
    };
    let tables = Tables::from(&topology);
    (Core::new(&tables, &settings).expect("legal"), tables)
}

/// Whether a task of one class may take the CPU of another.
fn may(class: Class, victim: Class) -> bool {
    class == Class::Critical && victim < class
}

/// What runs where, and who is marked: 2 from the preemption on, one less with each task that begins.
struct Plain {
    runs: Vec<Class>,
    marks: Vec<u32>,
}

impl Plain {
    fn takers(&self, class: Class, allowed: Option<&CidSet>) -> Vec<usize> {
        let free = |&cid: &usize| {
            self.marks[cid] == 0
                && may(class, self.runs[cid])
                && allowed.is_none_or(|set| set.contains(Cid(cid as u32)))
        };
        (0..self.runs.len()).filter(free).collect()
    }
}

/// Whether a CPU has a quarter more than a task uses, or nobody has more than it.
fn is_enough(tables: &Tables, cid: usize, util: u16) -> bool {
    let capacity = tables.capacity[cid];
    capacity * 4 >= u32::from(util) * 5 + 4 || tables.capacity.iter().all(|&c| c <= capacity)
}

fn try_out(text: &str, seed: u64) {
    let (mut core, tables) = core(text);
    let nr = tables.node.len() as u32;
    // Its shard, its node, other nodes, which are all equally far.
    let place = |a: Cid, b: Cid| {
        let (a, b) = (a.0 as usize, b.0 as usize);
        usize::from(tables.shard[a] != tables.shard[b])
            + usize::from(tables.node[a] != tables.node[b])
    };
    let mut random = Random(seed);
    let mut plain = Plain {
        runs: vec![Class::Batch; nr as usize],
        marks: vec![0; nr as usize],
    };
    for cid in 0..nr {
        core.runs(Cid(cid), Class::Batch);
    }
    let (mut taken, mut none, mut lost, mut fitting) = (0, 0, 0, 0);
    for step in 0..20_000 {
        let cid = Cid(random.below(nr));
        // Now and then all of them are urgent.
        let class = match step / 1000 % 4 {
            3 => Class::Critical,
            _ => Class::ALL[random.below(4) as usize],
        };
        if random.below(3) > 0 {
            core.runs(cid, class);
            plain.runs[cid.0 as usize] = class;
            let mark = &mut plain.marks[cid.0 as usize];
            *mark = mark.saturating_sub(1);
            continue;
        }
        if random.below(4) == 0 {
            // It may run here only, and finds out that somebody else is about to.
            let only = random.below(nr) as usize;
            let lower = may(class, plain.runs[only]);
            let free = plain.marks[only] == 0;
            let found = core.preempt_pinned(Cid(only as u32), cid, class);
            assert_eq!(found, lower && free, "{text}: {class} on {only}");
            lost += u64::from(lower && !free);
            none += u64::from(class == Class::Critical && !found);
            if found {
                plain.marks[only] = 2;
                taken += 1;
            }
            continue;
        }
        let set: CidSet = (0..nr).filter(|_| random.below(8) == 0).map(Cid).collect();
        let allowed = (random.below(2) == 0).then_some(&set);
        let util = random.below(1200) as u16;
        let demand = Demand {
            util,
            ..Demand::default()
        };
        let query = Query {
            allowed,
            tiers: core.tiers_first(demand),
            ..Query::any(cid, cid)
        };
        let mut takers = plain.takers(class, allowed);
        // Priority goes before fit.
        let enough: Vec<usize> = takers
            .iter()
            .copied()
            .filter(|&taker| is_enough(&tables, taker, util))
            .collect();
        if !enough.is_empty() {
            fitting += u64::from(enough.len() < takers.len());
            takers = enough;
        }
        let found = core.preempt(&query, class);
        let Some(victim) = found else {
            assert!(
                takers.is_empty(),
                "{text}: {class} finds nobody of {takers:?}"
            );
            none += u64::from(class == Class::Critical);
            continue;
        };
        let index = victim.0 as usize;
        assert!(
            takers.contains(&index),
            "{text}: {class} takes {victim} of {takers:?}"
        );
        let nearest = takers
            .iter()
            .map(|&other| place(cid, Cid(other as u32)))
            .min();
        assert_eq!(
            Some(place(cid, victim)),
            nearest,
            "{text}: {victim} is not the nearest"
        );
        plain.marks[index] = 2;
        taken += 1;
    }
    assert!(
        taken > 500 && none > 50 && lost > 20,
        "{text}: {taken} {none} {lost}"
    );
    let unequal = core.is_asymmetric();
    assert_eq!(fitting > 50, unequal, "{text}: {fitting}");
    let counted = core.statistics();
    let events = [Event::PreemptLlc, Event::PreemptNode, Event::PreemptRemote];
    assert_eq!(
        events.iter().map(|&event| counted[event]).sum::<u64>(),
        taken
    );
    assert_eq!(counted[Event::PreemptNone], none);
    assert_eq!(counted[Event::PreemptLost], lost);
}

#[test]
fn who_is_preempted() {
    let shapes = [
        "1n1l4c1t",
        "2n1l4c2t",
        "2n4l2c2t",
        "1n2l40c2t",
        "4n4l4c1t",
        "4b4l",
        "tc2",
    ];
    for (seed, text) in shapes.into_iter().enumerate() {
        try_out(text, seed as u64 + 1);
    }
}

// Goal: what makes a class. Method: tasks that run for so long between sleeps, with so much weight.
#[test]
fn what_makes_a_class() {
    let (core, _) = core("1n1l2c1t");
    let slice = DEFAULT_SLICE_NS;
    let of = |bursts: &[u64], weight| {
        let mut burst = core.burst();
        for &ns in bursts {
            burst.ran(ns, true);
        }
        core.class(&burst, weight, false)
    };
    assert_eq!(of(&[], 100), Class::Normal);
    let short = vec![slice / 20; 20];
    assert_eq!(of(&short, 100), Class::Interactive);
    assert_eq!(of(&short, 299), Class::Interactive);
    assert_eq!(of(&short, 300), Class::Critical);
    assert_eq!(of(&short, 33), Class::Normal);
    let long = vec![slice * 5; 20];
    assert_eq!(of(&long, 100), Class::Batch);
    assert_eq!(
        of(&long, 10_000),
        Class::Interactive,
        "a hog is never critical"
    );
    assert_eq!(of(&long, 1), Class::Batch);
    assert_eq!(of(&[slice; 20], 100), Class::Normal);
    assert_eq!(core.class(&core.burst(), 100, true), Class::Batch);

    // A burst that goes on counts while it does, in pieces as in one, and is forgotten after some short ones.
    let mut burst = core.burst();
    for _ in 0..4 {
        burst.ran(slice, false);
    }
    assert_eq!(core.class(&burst, 100, false), Class::Batch);
    burst.ran(0, true);
    assert_ne!(core.class(&burst, 100, false), Class::Batch);
    for _ in 0..10 {
        burst.ran(slice / 20, true);
    }
    assert_eq!(core.class(&burst, 100, false), Class::Interactive);
}
