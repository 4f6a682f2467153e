// SPDX-License-Identifier: GPL-2.0-only
//! The tables that the placement core, the simulator and the lab work with. Read-only once built.

use std::ops::Index;

use serde::Serialize;

use crate::ids::{
    Cid, CidRange, Cluster, Core, CoreTypeId, Cpu, Id, IdRange, Llc, Node, Package, Shard, Tier,
};
use crate::raw::{CoreType, RawCpu, RawNode, RawTopology};

/// A machine, numbered. Index it with an id to get what is known about it: `topo[cid].llc`,
/// `topo[llc].cids`, `topo[node].near`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) costs: Option<String>,
    pub(crate) shard_width: u32,
    pub(crate) cids: Vec<CidInfo>,
    pub(crate) cores: Vec<CoreInfo>,
    pub(crate) clusters: Vec<ClusterInfo>,
    pub(crate) shards: Vec<ShardInfo>,
    pub(crate) llcs: Vec<LlcInfo>,
    pub(crate) nodes: Vec<NodeInfo>,
    pub(crate) packages: Vec<PackageInfo>,
    pub(crate) tiers: Vec<TierInfo>,
    pub(crate) core_types: Vec<CoreType>,
    pub(crate) offline: Vec<Cpu>,
    /// Indexed by the kernel's CPU number.
    pub(crate) cpu_to_cid: Vec<Option<Cid>>,
}

/// What is known of one online CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CidInfo {
    /// The kernel's number.
    pub cpu: Cpu,
    /// Its core.
    pub core: Core,
    /// Which thread of its core it is, from 0.
    pub thread: u32,
    /// The L2 cluster, if its core shares an L2 with other cores and that is not the last level.
    pub cluster: Option<Cluster>,
    /// Its shard.
    pub shard: Shard,
    /// Its last-level cache.
    pub llc: Llc,
    /// Its NUMA node.
    pub node: Node,
    /// Its package (socket).
    pub package: Package,
    /// What the kernel believes it is worth, 0 to [`crate::CAPACITY_MAX`].
    pub capacity: u32,
    /// Its tier.
    pub tier: Tier,
    /// Its kind of core.
    pub core_type: CoreTypeId,
}

/// SMT siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreInfo {
    /// Its threads.
    pub cids: CidRange,
    /// The L2 cluster it belongs to, if any.
    pub cluster: Option<Cluster>,
    /// Its last-level cache.
    pub llc: Llc,
    /// Its NUMA node.
    pub node: Node,
}

/// Cores that share an L2 which is not the last level: at least two, and not the whole LLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Its cids.
    pub cids: CidRange,
    /// Its cores.
    pub cores: IdRange<Core>,
    /// Its last-level cache.
    pub llc: Llc,
    /// Its NUMA node.
    pub node: Node,
}

/// The unit of idle tracking: at most `shard_width` cids of one LLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// Its cids. No core lies in two shards, unless the core alone is wider than a shard.
    pub cids: CidRange,
    /// Its last-level cache.
    pub llc: Llc,
    /// Its NUMA node.
    pub node: Node,
}

/// CPUs that share a last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlcInfo {
    /// Its cids.
    pub cids: CidRange,
    /// Its cores.
    pub cores: IdRange<Core>,
    /// Its shards.
    pub shards: IdRange<Shard>,
    /// Its NUMA node.
    pub node: Node,
    /// The package of its first cid.
    pub package: Package,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The kernel's id.
    pub id: u32,
    /// Its cids; empty for a node of memory only.
    pub cids: CidRange,
    /// Its cores.
    pub cores: IdRange<Core>,
    /// Its LLCs.
    pub llcs: IdRange<Llc>,
    /// Its shards.
    pub shards: IdRange<Shard>,
    /// SLIT distance from this node to each node, by [`Node`] index.
    pub distances: Vec<u32>,
    /// The other nodes, nearest first, the lower id first where equally near. Computed once, here.
    pub near: Vec<Node>,
    /// Size of its memory, if known.
    pub memory_bytes: Option<u64>,
}

impl NodeInfo {
    /// Distance of a node to itself where nothing says otherwise (ACPI's and the kernel's value).
    pub const LOCAL_DISTANCE: u32 = 10;
    /// Distance between two nodes where nothing says otherwise (the kernel's value).
    pub const REMOTE_DISTANCE: u32 = 20;
}

/// A package (socket). Its cids need not be contiguous: node numbers may alternate between packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageInfo {
    /// The label the source gave it: the kernel's `physical_package_id` where there is one.
    pub id: u32,
    /// Its cids, ascending.
    pub cids: Vec<Cid>,
}

/// CPUs of equal capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierInfo {
    /// Their capacity.
    pub capacity: u32,
    /// Their cids, ascending; not contiguous in general.
    pub cids: Vec<Cid>,
}

impl Topology {
    /// The machine's short name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One line about the machine; may be empty.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The simulator's cost table, if the machine names one: built in, or the path of a file.
    pub fn costs(&self) -> Option<&str> {
        self.costs.as_deref()
    }

    /// The most cids a shard may have.
    pub fn shard_width(&self) -> u32 {
        self.shard_width
    }

    /// How many CPUs are online: 1 to [`crate::MAX_CPUS`].
    pub fn nr_cids(&self) -> usize {
        self.cids.len()
    }

    /// The online CPUs, by cid.
    pub fn cids(&self) -> &[CidInfo] {
        &self.cids
    }

    /// The cores in order of their cids.
    pub fn cores(&self) -> &[CoreInfo] {
        &self.cores
    }

    /// The L2 clusters in order of their cids. Empty on most machines.
    pub fn clusters(&self) -> &[ClusterInfo] {
        &self.clusters
    }

    /// The shards in order of their cids.
    pub fn shards(&self) -> &[ShardInfo] {
        &self.shards
    }

    /// The last-level caches in order of their cids.
    pub fn llcs(&self) -> &[LlcInfo] {
        &self.llcs
    }

    /// The NUMA nodes in ascending order of the kernel's ids, nodes of memory only included.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// The nodes with their indices.
    pub fn nodes_by_id(&self) -> impl Iterator<Item = (Node, &NodeInfo)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(i, info)| (Node::from_index(i), info))
    }

    /// The packages in ascending order of their labels.
    pub fn packages(&self) -> &[PackageInfo] {
        &self.packages
    }

    /// The tiers, strongest first.
    pub fn tiers(&self) -> &[TierInfo] {
        &self.tiers
    }

    /// The kinds of cores, in the order of the source.
    pub fn core_types(&self) -> &[CoreType] {
        &self.core_types
    }

    /// CPUs that exist but are not online, ascending. They have no cid.
    pub fn offline(&self) -> &[Cpu] {
        &self.offline
    }

    /// The cid of an online CPU; `None` if the CPU is offline or does not exist.
    pub fn cid_of(&self, cpu: Cpu) -> Option<Cid> {
        self.cpu_to_cid.get(cpu.index()).copied().flatten()
    }

    /// The cpu of a cid.
    ///
    /// # Panics
    /// If there is no such cid.
    pub fn cpu_of(&self, cid: Cid) -> Cpu {
        self[cid].cpu
    }

    /// One more than the highest CPU number, online or not: the size of a table indexed by cpu.
    pub fn nr_cpu_numbers(&self) -> usize {
        let offline = self.offline.last().map_or(0, |cpu| cpu.index() + 1);
        self.cpu_to_cid.len().max(offline)
    }

    /// The node with the kernel's id `id`.
    pub fn node_with_id(&self, id: u32) -> Option<Node> {
        self.nodes
            .binary_search_by_key(&id, |node| node.id)
            .ok()
            .map(Node::from_index)
    }

    /// SLIT distance from one node to another. Not symmetric on every machine.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn distance(&self, from: Node, to: Node) -> u32 {
        self[from].distances[to.index()]
    }

    /// The kernel's CPU numbers of a range, ascending.
    pub fn cpus_in(&self, range: CidRange) -> Vec<Cpu> {
        let mut cpus: Vec<Cpu> = self.cids[range.as_usize()].iter().map(|c| c.cpu).collect();
        cpus.sort_unstable();
        cpus
    }

    /// The threads of the widest core: 1, 2, 4 or 8 on usual machines.
    pub fn smt_width(&self) -> usize {
        self.cores
            .iter()
            .map(|core| core.cids.len())
            .max()
            .unwrap_or(1)
    }

    /// The machine under another name.
    pub fn renamed(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The description from which [`Topology::build`] makes this topology again. Writers start from
    /// it.
    pub fn to_raw(&self) -> RawTopology {
        let cpus = self.cids.iter().map(|c| RawCpu {
            cpu: c.cpu,
            package: self[c.package].id,
            node: self[c.node].id,
            llc: c.llc.0,
            cluster: c.cluster.map(|cluster| cluster.0),
            core: c.core.0,
            core_type: c.core_type.0,
        });
        let ids: Vec<u32> = self.nodes.iter().map(|node| node.id).collect();
        let nodes = self.nodes.iter().map(|node| RawNode {
            id: node.id,
            distances: ids
                .iter()
                .copied()
                .zip(node.distances.iter().copied())
                .collect(),
            memory_bytes: node.memory_bytes,
        });
        RawTopology {
            name: self.name.clone(),
            title: self.title.clone(),
            costs: self.costs.clone(),
            cpus: cpus.collect(),
            offline: self.offline.clone(),
            nodes: nodes.collect(),
            core_types: self.core_types.clone(),
        }
    }
}

macro_rules! index {
    ($($id:ident => $table:ident: $info:ident;)*) => {$(
        impl Index<$id> for Topology {
            type Output = $info;

            fn index(&self, id: $id) -> &$info {
                &self.$table[id.index()]
            }
        }
    )*};
}

index! {
    Cid => cids: CidInfo;
    Core => cores: CoreInfo;
    Cluster => clusters: ClusterInfo;
    Shard => shards: ShardInfo;
    Llc => llcs: LlcInfo;
    Node => nodes: NodeInfo;
    Package => packages: PackageInfo;
    Tier => tiers: TierInfo;
    CoreTypeId => core_types: CoreType;
}
