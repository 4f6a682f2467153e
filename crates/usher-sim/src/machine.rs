// SPDX-License-Identifier: GPL-2.0-only
//! A modelled machine: a topology and what things cost on it, in tables made for fast look-up.
//!
//! CPUs go by the kernel's number ([`Cpu`]), because kernels scan in that order. Tables by cpu have
//! [`Machine::nr_cpu_numbers`] entries; only the CPUs in [`Machine::cpus`] are online. Cores, LLCs and
//! nodes are indices into the topology's tables.

use usher_topo::Topology;

use crate::costs::Costs;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::{Cid, Core, Cpu, Id, Llc, Nanos, Node, Tier};

/// How far two CPUs are apart: the innermost level that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Distance {
    /// They are the same.
    Same = 0,
    /// Threads of one core.
    Core = 1,
    /// Cores of one LLC.
    Llc = 2,
    /// LLCs of one node.
    Node = 3,
    /// Different nodes.
    Remote = 4,
}

impl Distance {
    /// How many there are.
    pub const COUNT: usize = 5;
    /// Their names in reports, by discriminant.
    pub const NAMES: [&'static str; Self::COUNT] = ["same", "core", "llc", "node", "remote"];
}

/// What is known of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuInfo {
    /// Its cid.
    pub cid: Cid,
    /// Its core.
    pub core: Core,
    /// Which thread of its core it is.
    pub thread: u32,
    /// Its last-level cache.
    pub llc: Llc,
    /// Its node.
    pub node: Node,
    /// Its tier.
    pub tier: Tier,
    /// What the kernel believes it is worth, 0 to 1024.
    pub capacity: u32,
    /// What work really takes on it: speed in thousandths of the strongest type's.
    pub speed_permille: u32,
    /// `cpu_power` of a 3.9-era kernel.
    pub cpu_power: u32,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    topo: Topology,
    costs: Costs,
    cpus: Vec<Cpu>,
    online: CpuSet,
    info: Vec<Option<CpuInfo>>,
    /// Threads of all cores, and where those of each core begin.
    core_cpus: Vec<Cpu>,
    core_from: Vec<u32>,
    llc_cpus: Vec<CpuSet>,
    node_cpus: Vec<CpuSet>,
    /// Line transfer between nodes, by `from * nodes + to`.
    node_line_ns: Vec<u32>,
}

impl Machine {
    /// Puts a topology and its costs together.
    ///
    /// # Errors
    /// A core type with speed 0.
    pub fn new(topo: Topology, costs: Costs) -> Result<Machine, SimError> {
        let mut info = vec![None; topo.nr_cpu_numbers()];
        for (i, c) in topo.cids().iter().enumerate() {
            let kind = &topo[c.core_type];
            if kind.speed_permille == 0 {
                return Err(SimError::Input {
                    origin: topo.name().into(),
                    what: format!(
                        "core type `{}` has speed 0; give its speed_permille",
                        kind.name
                    ),
                });
            }
            info[c.cpu.index()] = Some(CpuInfo {
                cid: Cid::from_index(i),
                core: c.core,
                thread: c.thread,
                llc: c.llc,
                node: c.node,
                tier: c.tier,
                capacity: c.capacity,
                speed_permille: kind.speed_permille,
                cpu_power: kind.cpu_power.unwrap_or(c.capacity),
            });
        }
        let set = |range| topo.cpus_in(range).into_iter().collect::<CpuSet>();
        let online: CpuSet = topo.cids().iter().map(|c| c.cpu).collect();
        let (nodes, cores) = (topo.nodes(), topo.cores());
        // Cids of a core are consecutive, and cores are in the order of cids.
        let ends = cores.iter().map(|c| c.cids.as_usize().end as u32);
        let core_from = std::iter::once(0).chain(ends).collect();
        let node_line_ns = nodes
            .iter()
            .flat_map(|a| a.distances.iter().map(|&slit| remote_ns(&costs, slit)))
            .collect();
        Ok(Machine {
            cpus: online.iter().collect(),
            online,
            info,
            core_from,
            core_cpus: cores.iter().flat_map(|c| topo.cpus_in(c.cids)).collect(),
            llc_cpus: topo.llcs().iter().map(|l| set(l.cids)).collect(),
            node_cpus: nodes.iter().map(|n| set(n.cids)).collect(),
            node_line_ns,
            topo,
            costs,
        })
    }

    /// The topology.
    pub fn topo(&self) -> &Topology {
        &self.topo
    }

    /// The costs.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The online CPUs, ascending.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The same as a set.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// Size of a table indexed by cpu.
    pub fn nr_cpu_numbers(&self) -> usize {
        self.info.len()
    }

    /// What is known of an online CPU.
    ///
    /// # Panics
    /// If it is not online.
    #[inline]
    pub fn cpu(&self, cpu: Cpu) -> &CpuInfo {
        self.info[cpu.index()]
            .as_ref()
            .expect("only online CPUs have a description")
    }

    /// The cpu of a cid.
    pub fn cpu_of(&self, cid: Cid) -> Cpu {
        self.topo.cpu_of(cid)
    }

    /// The threads of a core, ascending.
    #[inline]
    pub fn core_cpus(&self, core: Core) -> &[Cpu] {
        let (from, to) = (
            self.core_from[core.index()],
            self.core_from[core.index() + 1],
        );
        &self.core_cpus[from as usize..to as usize]
    }

    /// Work that all CPUs do together when all are busy, so at the clock of that, in thousandths of what the strongest does alone.
    pub fn work_permille(&self) -> u64 {
        let shares = &self.costs.smt_share_permille;
        let work = |cpu: &Cpu| {
            let info = self.cpu(*cpu);
            let threads = self.core_cpus(info.core).len();
            u64::from(info.speed_permille) * u64::from(shares[threads.min(shares.len()) - 1]) / 1000
        };
        self.cpus.iter().map(work).sum::<u64>() * self.costs.n.clock_full_permille / 1000
    }

    /// The CPUs of an LLC.
    pub fn llc_cpus(&self, llc: Llc) -> &CpuSet {
        &self.llc_cpus[llc.index()]
    }

    /// The CPUs of a node; empty if it has only memory.
    pub fn node_cpus(&self, node: Node) -> &CpuSet {
        &self.node_cpus[node.index()]
    }

    /// Whether two CPUs share a last-level cache.
    #[inline]
    pub fn same_llc(&self, a: Cpu, b: Cpu) -> bool {
        self.cpu(a).llc == self.cpu(b).llc
    }

    /// How far two CPUs are apart.
    #[inline]
    pub fn distance(&self, a: Cpu, b: Cpu) -> Distance {
        if a == b {
            return Distance::Same;
        }
        let (a, b) = (self.cpu(a), self.cpu(b));
        if a.llc == b.llc {
            return if a.core == b.core {
                Distance::Core
            } else {
                Distance::Llc
            };
        }
        if a.node == b.node {
            Distance::Node
        } else {
            Distance::Remote
        }
    }

    /// Transfer of a cache line between two CPUs, which are so far from each other.
    pub fn line_ns(&self, distance: Distance, a: Cpu, b: Cpu) -> Nanos {
        let n = &self.costs.n;
        match distance {
            Distance::Same | Distance::Core => n.line_hit_ns,
            Distance::Llc => n.line_llc_ns,
            Distance::Node => n.line_node_ns,
            Distance::Remote => self.node_line_ns(self.cpu(a).node, self.cpu(b).node),
        }
    }

    /// Transfer of a cache line between CPUs of two nodes; of one node: between two LLCs of it.
    pub fn node_line_ns(&self, from: Node, to: Node) -> Nanos {
        Nanos::from(self.node_line_ns[from.index() * self.topo.nodes().len() + to.index()])
    }

    /// The time between two ticks.
    pub fn tick_ns(&self) -> Nanos {
        1_000_000_000 / self.costs.n.hz
    }
}

/// Transfer of a line over a SLIT distance: linear above the local distance 10, and never faster than
/// between the LLCs of a node.
fn remote_ns(costs: &Costs, slit: u32) -> u32 {
    let n = &costs.n;
    let far = n.line_remote_ns * u64::from(slit.saturating_sub(10)) / (n.line_remote_slit - 10);
    far.max(n.line_node_ns) as u32
}
