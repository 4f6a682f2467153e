// SPDX-License-Identifier: GPL-2.0-only
//! Random machines: 1 to 4,096 CPUs, cores of 1, 2, 4 and 8 threads side by side, LLCs wider than a shard or
//! spread over nodes, nodes of memory only, sparse numbers, offline CPUs, several tiers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use usher_core::{Core, Granularity, Library, Settings, Tables, TierOrder, DEFAULT_SLICE_NS};
use usher_topo::{CoreType, Cpu, RawCpu, RawNode, RawTopology, Topology};

use crate::random::Random;

thread_local! {
    /// What this thread tests instead of the core: `tests/mutants.rs`.
    pub static MUTANT: std::cell::Cell<Option<&'static Library>> = const { std::cell::Cell::new(None) };
}

/// A machine, and how its core is set.
pub struct Machine {
    pub tables: Tables,
    pub settings: Settings,
    pub nodes: Vec<Range<u32>>,
    pub llcs: Vec<Range<u32>>,
    pub queues: Vec<Range<u32>>,
    pub shards: Vec<Range<u32>>,
    /// Per cid: the cids of its core that share its shard.
    pub cores: Vec<Range<u32>>,
    /// Per node: all nodes, itself first, then by distance, then by the kernel's id.
    pub order: Vec<Vec<u32>>,
    /// Threads of the widest core.
    pub smt: u32,
}

/// Ranges of equal neighbours, by their index; an index that does not occur has an empty range.
fn ranges(of: &[u32], nr: usize) -> Vec<Range<u32>> {
    let mut ranges = vec![0..0; nr];
    for (cid, &index) in (0..).zip(of) {
        let range = &mut ranges[index as usize];
        if range.start == range.end {
            *range = cid..cid;
        }
        range.end = cid + 1;
    }
    ranges
}

impl Machine {
    /// A machine of roughly `cpus` CPUs, at least one.
    pub fn draw(random: &mut Random, cpus: u32, granularity: Granularity) -> Self {
        let raw = draw_raw(random, cpus);
        let width = random.pick(&[64, 64, 64, 64, 32, 16, 7, 1]);
        let topo = Topology::build(&raw, width).expect("the machine drawn is sound");
        let settings = Settings {
            granularity,
            slice_ns: DEFAULT_SLICE_NS,
            soon_ns: random.pick(&[0, 10_000, 1 << 40, 1 << 42]),
            core_probes: random.pick(&[4, 4, 4, 0, 1, 64]),
            capacity: !random.one_in(8),
            tier_order: random.pick(&[TierOrder::StrongestFirst, TierOrder::WeakestFirst]),
            fork_balance: !random.one_in(4),
            ..Settings::default()
        };
        let mut tables = Tables::from(&topo);
        tables.cut_queues(random.pick(&[16, 16, 64, 4096, 8, 3, 1]));
        Self::new(tables, settings)
    }

    fn new(tables: Tables, settings: Settings) -> Self {
        let nr_nodes = tables.nr_nodes();
        let cores = (0..tables.nr_cids()).map(|cid| {
            let same = |other: &usize| {
                (tables.shard[*other], tables.core[*other]) == (tables.shard[cid], tables.core[cid])
            };
            let first = (0..=cid).rev().take_while(same).last().expect("itself");
            let last = (cid..tables.nr_cids()).take_while(same).last();
            first as u32..last.expect("itself") as u32 + 1
        });
        let cores: Vec<Range<u32>> = cores.collect();
        let order = (0..nr_nodes).map(|from| {
            let mut order: Vec<u32> = (0..nr_nodes as u32).collect();
            order.sort_by_key(|&to| {
                let distance = tables.distance[from * nr_nodes + to as usize];
                (to as usize != from, distance, tables.node_id[to as usize])
            });
            order
        });
        Self {
            nodes: ranges(&tables.node, nr_nodes),
            llcs: ranges(&tables.llc, tables.nr_llcs()),
            queues: ranges(&tables.queue, tables.nr_queues()),
            shards: ranges(&tables.shard, tables.nr_shards()),
            smt: cores
                .iter()
                .map(|core| core.len() as u32)
                .max()
                .unwrap_or(1),
            order: order.collect(),
            cores,
            settings,
            tables,
        }
    }

    /// How many CPUs.
    pub fn nr_cids(&self) -> u32 {
        self.tables.nr_cids() as u32
    }

    /// A core for it; traced: the simulator's build. A mutant, if one is set.
    pub fn core(&self, traced: bool) -> Core {
        if let Some(library) = MUTANT.get() {
            return Core::with_library(&self.tables, &self.settings, library)
                .expect("tables of a topology");
        }
        let build = if traced { Core::traced } else { Core::new };
        build(&self.tables, &self.settings).expect("tables of a topology")
    }

    /// One line for a failure.
    pub fn describe(&self) -> String {
        format!(
            "{} CPUs, {} shards, {} LLCs, {} nodes, smt {}, {:?}\n  llcs {:?}\n  queues {:?}\n  nodes {:?}\n  \
             shards {:?}\n  order {:?}",
            self.nr_cids(),
            self.shards.len(),
            self.llcs.len(),
            self.nodes.len(),
            self.smt,
            self.settings,
            self.llcs,
            self.queues,
            self.nodes,
            self.shards,
            self.order,
        )
    }
}

/// The kernel's ids of nodes with CPUs, and all nodes.
fn draw_nodes(random: &mut Random, with_cpus: u32) -> (Vec<u32>, Vec<RawNode>) {
    let memory_only = if random.one_in(3) {
        random.between(1, 3)
    } else {
        0
    };
    let gap = random.pick(&[1, 1, 5]);
    let mut ids = Vec::new();
    let mut id = random.below(2);
    for _ in 0..with_cpus + memory_only {
        ids.push(id);
        id += random.between(1, gap);
    }
    let mut of_cpus: BTreeSet<u32> = ids.iter().copied().collect();
    while of_cpus.len() as u32 > with_cpus {
        of_cpus.remove(&random.pick(&ids));
    }
    let flat = random.one_in(3);
    let nodes = ids.iter().map(|&id| RawNode {
        id,
        distances: if flat {
            BTreeMap::new()
        } else {
            let others = ids.iter().filter(|&&to| to != id);
            others
                .map(|&to| (to, random.pick(&[11, 20, 20, 32])))
                .collect()
        },
        memory_bytes: None,
    });
    (of_cpus.into_iter().collect(), nodes.collect())
}

fn draw_raw(random: &mut Random, cpus: u32) -> RawTopology {
    let with_cpus = random.between(1, cpus.min(8));
    let (node_ids, nodes) = draw_nodes(random, with_cpus);
    let nr_types = random.pick(&[1, 1, 1, 2, 3, 10]);
    let scheme = random.below(4);
    let core_types: Vec<CoreType> = (0..nr_types)
        .map(|kind| {
            let capacity = match scheme {
                0 => 1024 - 90 * kind,
                // Less apart than what counts.
                1 => 1024 - 5 * kind,
                2 => 1024 >> kind,
                _ => random.between(1, 1024),
            };
            CoreType::of_capacity(format!("t{kind}"), capacity)
        })
        .collect();
    let widths: &[u32] = random.pick(&[
        [1, 1, 1, 1].as_slice(),
        &[2, 2, 2, 2],
        &[2, 2, 2, 2],
        &[4, 4, 4, 4],
        &[8, 8, 8, 8],
        &[1, 2, 4, 8],
        &[1, 1, 2, 2],
    ]);
    let llc_cpus = random.pick(&[1, 4, 8, 16, 16, 64, 100, 300]);
    let llc_in_node = random.one_in(2);
    let (mut raw_cpus, mut llc, mut in_llc, mut core, mut last_node) = (Vec::new(), 0, 0, 0, 0);
    while (raw_cpus.len() as u32) < cpus {
        let made = raw_cpus.len() as u32;
        let node = made * with_cpus / cpus;
        if in_llc >= llc_cpus || (llc_in_node && node != last_node) {
            (llc, in_llc) = (llc + 1, 0);
        }
        last_node = node;
        let threads = random.pick(widths).min(cpus - made);
        let core_type = random.below(nr_types);
        for _ in 0..threads {
            raw_cpus.push(RawCpu {
                cpu: Cpu(0),
                package: 0,
                node: node_ids[node as usize],
                llc,
                cluster: None,
                core,
                core_type,
            });
        }
        in_llc += threads;
        core += 1;
    }
    let offline = draw_numbers(random, &mut raw_cpus);
    RawTopology {
        name: "random".into(),
        cpus: raw_cpus,
        offline,
        nodes,
        core_types,
        ..RawTopology::default()
    }
}

/// Gives the CPUs their numbers and takes some offline.
fn draw_numbers(random: &mut Random, cpus: &mut Vec<RawCpu>) -> Vec<Cpu> {
    let gap = random.pick(&[1, 1, 3, 15]);
    let mut number = random.below(2);
    let mut numbers = Vec::new();
    for _ in 0..cpus.len() {
        numbers.push(number);
        number += random.between(1, gap);
    }
    if random.one_in(2) {
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, random.below(i as u32 + 1) as usize);
        }
    }
    for (cpu, number) in cpus.iter_mut().zip(numbers) {
        cpu.cpu = Cpu(number);
    }
    let mut offline = Vec::new();
    if random.one_in(3) {
        let one_in = random.pick(&[2, 8, 32]);
        let all = std::mem::take(cpus);
        for cpu in all {
            if random.one_in(one_in) {
                offline.push(cpu);
            } else {
                cpus.push(cpu);
            }
        }
        if cpus.is_empty() {
            cpus.extend(offline.pop());
        }
    }
    offline.into_iter().map(|cpu| cpu.cpu).collect()
}
