// SPDX-License-Identifier: GPL-2.0-only
//! 6.6: scheduling domains, as the kernel builds them from the topology.
//!
//! A CPU's domains are spans of CPUs from the inside out: its core (SMT), CPUs that share an L2 (CLS),
//! its last-level cache (MC), its node (PKG), and all nodes within each distance (NUMA). A span equal to
//! the one below is dropped, and so is a span of one CPU. Each domain divides its span into groups, the
//! spans of the level below; balancing compares groups.
//!
//! Domains are shared by the CPUs that see the same one. What differs by CPU, which group is its own, is
//! in [`Domains::chain`]. NUMA domains belong to a node each, because what is near differs by node, and
//! then groups may overlap.

use crate::cpuset::CpuSet;
use crate::ids::{Cpu, Id, Node};
use crate::machine::Machine;

/// 6.6: which kind of span. In this order from the inside out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Threads of a core.
    Smt,
    /// Cores that share an L2.
    Cluster,
    /// CPUs that share the last-level cache.
    Mc,
    /// CPUs of a node.
    Pkg,
    /// CPUs of nodes up to this SLIT distance.
    Numa(u32),
}

impl Level {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Level::Smt => "SMT",
            Level::Cluster => "CLS",
            Level::Mc => "MC",
            Level::Pkg => "PKG",
            Level::Numa(_) => "NUMA",
        }
    }
}

/// One of the spans that a domain is divided into.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its CPUs, ascending.
    pub cpus: Vec<Cpu>,
    /// The same as a set.
    pub set: CpuSet,
    /// The CPUs that may balance for it; all, unless groups overlap.
    pub balancers: Vec<Cpu>,
    /// Sum of the capacities.
    pub capacity: u64,
    /// The least and the greatest of them.
    pub min_capacity: u64,
    /// See `min_capacity`.
    pub max_capacity: u64,
    /// How many cores.
    pub cores: u32,
    /// The group is a domain whose members prefer to be used evenly with its siblings
    /// (`SD_PREFER_SIBLING` of the level below).
    pub prefer_sibling: bool,
    /// The group is a core of several threads.
    pub is_smt: bool,
    /// Priority of the most preferred CPU (`asym_prefer_cpu`), where that counts.
    pub priority: u32,
}

/// A span and its groups.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Which kind.
    pub level: Level,
    /// Its CPUs, ascending.
    pub cpus: Vec<Cpu>,
    /// The same as a set.
    pub set: CpuSet,
    /// In cyclic order; a CPU's own comes first when it walks them.
    pub groups: Vec<Group>,
    /// 6.5: a group counts as overloaded, or more loaded than another, beyond this percentage.
    pub pct: u64,
    /// 6.5: failures before cache-hot tasks are moved.
    pub cache_nice_tries: u32,
    /// Its CPUs share their LLC (`SD_SHARE_PKG_RESOURCES`).
    pub share_llc: bool,
    /// Its CPUs are threads of one core (`SD_SHARE_CPUCAPACITY`).
    pub share_core: bool,
    /// `SD_NUMA`: at most one CPU of the machine balances such a domain at a time.
    pub numa: bool,
    /// Fork, exec and wake-affine work across it: not above the reclaim distance.
    pub near: bool,
    /// Its CPUs differ in capacity.
    pub asym: bool,
    /// Its CPUs differ in priority (`SD_ASYM_PACKING`).
    pub packing: bool,
    /// 6.7: tasks that may run on one node while others idle.
    pub imb_numa_nr: u64,
}

impl Domain {
    /// How many CPUs.
    pub fn weight(&self) -> u64 {
        self.cpus.len() as u64
    }
}

/// Where a CPU is in a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index into [`Domains::all`].
    pub domain: usize,
    /// Index of its own group.
    pub local: usize,
}

/// All domains of a machine.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    /// Each one once.
    pub all: Vec<Domain>,
    /// By cpu number: its domains from the inside out.
    pub chain: Vec<Vec<Step>>,
    /// By cpu number: its place in `chain` of the highest domain within its LLC (`sd_llc`), if the LLC
    /// has more than one CPU.
    pub llc: Vec<Option<usize>>,
    /// By cpu number: place of the lowest domain with CPUs of different capacity (`sd_asym_cpucapacity`).
    pub asym: Vec<Option<usize>>,
    /// What the kernel takes CPUs for.
    pub strengths: Strengths,
}

/// What the kernel takes CPUs for, by cpu number. They differ in one of the two at most.
#[derive(Clone, Debug, Default)]
pub struct Strengths {
    /// 1024 is the most, and what those have that are offline.
    pub capacity: Vec<u32>,
    /// `arch_asym_cpu_priority`: see `packing.rs`.
    pub priority: Vec<u32>,
}

impl Strengths {
    /// Hybrids whose cores have several threads differ in priority, all others in capacity.
    fn of(machine: &Machine) -> Strengths {
        let n = machine.nr_cpu_numbers();
        let mut own = vec![1024; n];
        for &cpu in machine.cpus() {
            own[cpu.index()] = machine.cpu(cpu).capacity;
        }
        let mut online = machine.cpus().iter().map(|cpu| own[cpu.index()]);
        let first = online.next();
        if machine.topo().smt_width() > 1 && online.any(|other| Some(other) != first) {
            return Strengths {
                capacity: vec![1024; n],
                priority: own,
            };
        }
        Strengths {
            capacity: own,
            priority: vec![0; n],
        }
    }
}

/// What of the rules depends on the kernel's version and configuration.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// 6.5: `imbalance_pct` above the LLC.
    pub pct_above_llc: u64,
    /// `node_reclaim_distance`: 30, and 32 on the EPYC machines whose firmware says 32.
    pub reclaim_distance: u32,
    /// There is a CLS level (5.16).
    pub cluster: bool,
}

/// One level before degenerate domains are dropped: by cpu number, the span.
struct Layer {
    level: Level,
    span: Vec<CpuSet>,
}

/// The levels of a machine, from the inside out.
fn layers(machine: &Machine, rules: &Rules) -> Vec<Layer> {
    let topo = machine.topo();
    let n = machine.nr_cpu_numbers();
    let layer = |level, of: &dyn Fn(Cpu) -> CpuSet| {
        let mut span = vec![CpuSet::new(); n];
        machine
            .cpus()
            .iter()
            .for_each(|&cpu| span[cpu.index()] = of(cpu));
        Layer { level, span }
    };
    let core = |cpu| {
        machine
            .core_cpus(machine.cpu(cpu).core)
            .iter()
            .copied()
            .collect()
    };
    let mut out = vec![layer(Level::Smt, &core)];
    if rules.cluster && !topo.clusters().is_empty() {
        out.push(layer(
            Level::Cluster,
            &|cpu| match topo[machine.cpu(cpu).cid].cluster {
                Some(cluster) => topo.cpus_in(topo[cluster].cids).into_iter().collect(),
                None => core(cpu),
            },
        ));
    }
    out.push(layer(Level::Mc, &|cpu| {
        machine.llc_cpus(machine.cpu(cpu).llc).clone()
    }));
    out.push(layer(Level::Pkg, &|cpu| {
        machine.node_cpus(machine.cpu(cpu).node).clone()
    }));
    for distance in distances(machine) {
        out.push(layer(Level::Numa(distance), &|cpu| {
            within(machine, machine.cpu(cpu).node, distance)
        }));
    }
    out
}

/// The distinct distances between nodes that have CPUs, ascending.
fn distances(machine: &Machine) -> Vec<u32> {
    let topo = machine.topo();
    let nodes: Vec<Node> = topo
        .nodes_by_id()
        .filter(|(_, info)| !info.cids.is_empty())
        .map(|(n, _)| n)
        .collect();
    let pairs = nodes
        .iter()
        .flat_map(|&a| nodes.iter().map(move |&b| (a, b)));
    let mut out: Vec<u32> = pairs
        .filter(|(a, b)| a != b)
        .map(|(a, b)| topo.distance(a, b))
        .collect();
    out.sort_unstable();
    out.dedup();
    out
}

fn within(machine: &Machine, from: Node, distance: u32) -> CpuSet {
    let topo = machine.topo();
    topo.nodes_by_id()
        .filter(|&(to, _)| to == from || topo.distance(from, to) <= distance)
        .flat_map(|(to, _)| machine.node_cpus(to).iter().collect::<Vec<_>>())
        .collect()
}

/// 6.7: by layer and cpu number, `imb_numa_nr`. The kernel computes it before it drops degenerate
/// domains, which is why a node of one LLC gets weight / 8 and not its number of LLCs.
fn imb_numa_nr(layers: &[Layer], cpu: Cpu) -> Vec<u64> {
    let weight = |i: usize| layers[i].span[cpu.index()].len() as u64;
    let mut out = vec![0; layers.len()];
    let (mut imb, mut imb_span) = (0, 0);
    for i in 1..layers.len() {
        if layers[i].level <= Level::Mc {
            continue;
        }
        if layers[i - 1].level <= Level::Mc {
            let nr_llcs = weight(i) / weight(i - 1);
            imb = if nr_llcs == 1 {
                weight(i) >> 3
            } else {
                nr_llcs
            }
            .max(1);
            let first_numa = (i..layers.len()).find(|&j| matches!(layers[j].level, Level::Numa(_)));
            imb_span = weight(first_numa.unwrap_or(i));
            out[i] = imb;
        } else {
            out[i] = imb * (weight(i) / imb_span).max(1);
        }
    }
    out
}

impl Domains {
    /// 6.6: the domains of a machine.
    pub fn new(machine: &Machine, rules: &Rules) -> Domains {
        let layers = layers(machine, rules);
        let n = machine.nr_cpu_numbers();
        let mut out = Domains {
            all: Vec::new(),
            chain: vec![Vec::new(); n],
            llc: vec![None; n],
            asym: vec![None; n],
            strengths: Strengths::of(machine),
        };
        let site = Site {
            machine,
            rules,
            strengths: &out.strengths,
        };
        // By layer and cpu number: the domain there, found by its lowest CPU where spans are disjoint and
        // by its node where they are not.
        let mut known: Vec<Vec<Option<usize>>> = vec![vec![None; n]; layers.len()];
        for &cpu in machine.cpus() {
            let imb = imb_numa_nr(&layers, cpu);
            for (i, layer) in layers.iter().enumerate() {
                let span = &layer.span[cpu.index()];
                let child = i.checked_sub(1).map(|below| &layers[below].span);
                if span.len() == child.map_or(1, |spans| spans[cpu.index()].len()) {
                    continue; // degenerate
                }
                let owner = match layer.level {
                    Level::Numa(_) => machine.node_cpus(machine.cpu(cpu).node).first(),
                    _ => span.first(),
                };
                let slot = owner.expect("a span holds its CPU").index();
                let domain = *known[i][slot].get_or_insert_with(|| {
                    out.all
                        .push(make(&site, layer.level, cpu, span, child, imb[i]));
                    out.all.len() - 1
                });
                let groups = &out.all[domain].groups;
                let local = groups.iter().position(|g| g.set.contains(cpu));
                let local = local.expect("the groups of a domain cover it");
                if out.all[domain].share_llc {
                    out.llc[cpu.index()] = Some(out.chain[cpu.index()].len());
                }
                if out.all[domain].asym && out.asym[cpu.index()].is_none() {
                    out.asym[cpu.index()] = Some(out.chain[cpu.index()].len());
                }
                out.chain[cpu.index()].push(Step { domain, local });
            }
        }
        out
    }

    /// The domain at a place of a CPU's chain.
    #[inline]
    pub fn at(&self, cpu: Cpu, place: usize) -> (&Domain, Step) {
        let step = self.chain[cpu.index()][place];
        (&self.all[step.domain], step)
    }

    /// The CPU's highest domain within its LLC.
    #[inline]
    pub fn llc_of(&self, cpu: Cpu) -> Option<&Domain> {
        self.llc[cpu.index()].map(|place| self.at(cpu, place).0)
    }
}

/// What domains are made of.
struct Site<'a> {
    machine: &'a Machine,
    rules: &'a Rules,
    strengths: &'a Strengths,
}

/// Divides a span into the spans of the level below, the first CPU's first.
fn groups(
    &Site {
        machine, strengths, ..
    }: &Site<'_>,
    level: Level,
    first: Cpu,
    span: &CpuSet,
    child: Option<&Vec<CpuSet>>,
) -> Vec<Group> {
    let mut covered = CpuSet::new();
    let mut out = Vec::new();
    for cpu in span.iter_wrap(first) {
        if covered.contains(cpu) {
            continue;
        }
        let set = child.map_or_else(|| CpuSet::of(cpu), |c| c[cpu.index()].clone());
        set.iter().for_each(|c| covered.insert(c));
        // Overlapping groups: only CPUs that see this very group may balance for it.
        let balancers: Vec<Cpu> = set
            .iter()
            .filter(|c| child.is_none_or(|s| s[c.index()] == set))
            .collect();
        let capacities = || set.iter().map(|c| u64::from(strengths.capacity[c.index()]));
        let priorities = set.iter().map(|c| strengths.priority[c.index()]);
        let mut cores: Vec<_> = set.iter().map(|c| machine.cpu(c).core).collect();
        cores.sort_unstable();
        cores.dedup();
        out.push(Group {
            cpus: set.iter().collect(),
            balancers,
            capacity: capacities().sum(),
            min_capacity: capacities().min().unwrap_or(0),
            max_capacity: capacities().max().unwrap_or(0),
            cores: cores.len() as u32,
            prefer_sibling: set.len() > 1 && !matches!(level, Level::Smt),
            is_smt: set.len() > 1 && cores.len() == 1,
            priority: priorities.max().unwrap_or(0),
            set,
        });
    }
    out
}

fn make(
    site: &Site<'_>,
    level: Level,
    cpu: Cpu,
    span: &CpuSet,
    child: Option<&Vec<CpuSet>>,
    imb_numa_nr: u64,
) -> Domain {
    let Site {
        machine,
        rules,
        strengths,
    } = site;
    let mut groups = groups(site, level, cpu, span, child);
    let differ = |of: &[u32]| span.iter().any(|c| of[c.index()] != of[cpu.index()]);
    let asym = differ(&strengths.capacity);
    // Where capacities differ, and among distant nodes, siblings are not filled evenly.
    let below_is_numa = groups.iter().any(|g| {
        g.cpus
            .iter()
            .any(|&c| machine.cpu(c).node != machine.cpu(g.cpus[0]).node)
    });
    if asym || below_is_numa {
        groups.iter_mut().for_each(|g| g.prefer_sibling = false);
    }
    let share_llc = level <= Level::Mc;
    let share_core = level == Level::Smt;
    let numa = matches!(level, Level::Numa(_));
    Domain {
        level,
        cpus: span.iter().collect(),
        set: span.clone(),
        groups,
        pct: match level {
            Level::Smt => 110,
            Level::Cluster | Level::Mc => 117,
            _ => rules.pct_above_llc,
        },
        cache_nice_tries: match level {
            Level::Smt => 0,
            Level::Numa(_) => 2,
            _ => 1,
        },
        share_llc,
        share_core,
        numa,
        near: !matches!(level, Level::Numa(d) if d > rules.reclaim_distance),
        asym,
        packing: differ(&strengths.priority),
        imb_numa_nr,
    }
}
