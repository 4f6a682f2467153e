// SPDX-License-Identifier: GPL-2.0-only
//! From labels to tables.
//!
//! The online CPUs are split by node, each part by LLC, each of those by cluster, and so on down to
//! single threads. A part is only ever split further, which is why containment needs no check. Within
//! a part, sub-parts are ordered by their lowest CPU number, nodes by their id.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::TopoError;
use crate::ids::{
    Cid, CidRange, Cluster, Core, CoreTypeId, Id, IdRange, Llc, Node, Package, Shard, Tier,
};
use crate::raw::{RawCpu, RawNode, RawTopology, CAPACITY_MAX};
use crate::topology::{
    CidInfo, ClusterInfo, CoreInfo, LlcInfo, NodeInfo, PackageInfo, ShardInfo, TierInfo, Topology,
};

/// The most online CPUs a machine may have: the placement core's limit.
pub const MAX_CPUS: usize = 4096;

/// The highest CPU number, so that tables indexed by cpu stay small. The kernel's own limit on x86 is
/// 8,192 CPUs.
pub const MAX_CPU_NUMBER: u32 = 65_535;

/// A shard's idle CPUs are the bits of one 64-bit word.
pub const MAX_SHARD_WIDTH: u32 = 64;

impl Topology {
    /// Numbers a machine. `shard_width` is the most cids a shard may have, 1 to
    /// [`MAX_SHARD_WIDTH`].
    ///
    /// # Errors
    /// No online CPU or more than [`MAX_CPUS`], a shard width out of range, or a description that
    /// contradicts itself (a CPU twice, online and offline; a capacity above 1024; ...).
    pub fn build(raw: &RawTopology, shard_width: u32) -> Result<Self, TopoError> {
        if !(1..=MAX_SHARD_WIDTH).contains(&shard_width) {
            return Err(TopoError::ShardWidth { width: shard_width });
        }
        check(raw)?;
        let nodes = number_nodes(raw);
        let packages = number_packages(raw);
        let tiers = number_tiers(raw);
        let mut topo = Self {
            name: raw.name.clone(),
            title: raw.title.clone(),
            costs: raw.costs.clone(),
            shard_width,
            cids: Vec::with_capacity(raw.cpus.len()),
            cores: Vec::new(),
            clusters: Vec::new(),
            shards: Vec::new(),
            llcs: Vec::new(),
            nodes,
            packages,
            tiers,
            core_types: raw.core_types.clone(),
            offline: raw
                .offline
                .iter()
                .copied()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            cpu_to_cid: Vec::new(),
        };
        let mut by_node: BTreeMap<u32, Vec<RawCpu>> = BTreeMap::new();
        for cpu in &raw.cpus {
            by_node.entry(cpu.node).or_default().push(*cpu);
        }
        for index in 0..topo.nodes.len() {
            let cpus = by_node.remove(&topo.nodes[index].id).unwrap_or_default();
            topo.add_node(Node::from_index(index), cpus);
        }
        topo.finish();
        Ok(topo)
    }

    fn add_node(&mut self, node: Node, cpus: Vec<RawCpu>) {
        let (cid, core, shard, llc) = (
            self.cids.len(),
            self.cores.len(),
            self.shards.len(),
            self.llcs.len(),
        );
        for cpus in split_by(cpus, |cpu| cpu.llc) {
            self.add_llc(node, cpus);
        }
        let ranges = (
            CidRange::new(cid, self.cids.len()),
            IdRange::<Core>::new(core, self.cores.len()),
            IdRange::<Shard>::new(shard, self.shards.len()),
            IdRange::<Llc>::new(llc, self.llcs.len()),
        );
        let info = &mut self.nodes[node.index()];
        (info.cids, info.cores, info.shards, info.llcs) = ranges;
    }

    fn add_llc(&mut self, node: Node, cpus: Vec<RawCpu>) {
        let llc = Llc::from_index(self.llcs.len());
        let (first_cid, first_core) = (self.cids.len(), self.cores.len());
        // A core outside any cluster is a part of its own, so that cores and clusters can be ordered
        // among each other by CPU number.
        let parts = split_by(cpus, |cpu| match cpu.cluster {
            Some(cluster) => (true, cluster),
            None => (false, cpu.core),
        });
        let only_part = parts.len() == 1;
        for cpus in parts {
            let cores = split_by(cpus, |cpu| cpu.core);
            // A "cluster" of one core or of the whole LLC says nothing that the core or the LLC does
            // not say already; the kernel drops such degenerate levels too.
            let cluster =
                (cores.len() > 1 && !only_part).then(|| Cluster::from_index(self.clusters.len()));
            let (cid, core) = (self.cids.len(), self.cores.len());
            for cpus in cores {
                self.add_core(node, llc, cluster, &cpus);
            }
            if cluster.is_some() {
                self.clusters.push(ClusterInfo {
                    cids: CidRange::new(cid, self.cids.len()),
                    cores: IdRange::new(core, self.cores.len()),
                    llc,
                    node,
                });
            }
        }
        let first_shard = self.shards.len();
        let widths: Vec<usize> = self.cores[first_core..]
            .iter()
            .map(|c| c.cids.len())
            .collect();
        let mut cid = first_cid;
        for width in cut_into_shards(&widths, self.shard_width as usize) {
            let shard = Shard::from_index(self.shards.len());
            let cids = CidRange::new(cid, cid + width);
            self.shards.push(ShardInfo { cids, llc, node });
            self.cids[cids.as_usize()]
                .iter_mut()
                .for_each(|info| info.shard = shard);
            cid += width;
        }
        self.llcs.push(LlcInfo {
            cids: CidRange::new(first_cid, self.cids.len()),
            cores: IdRange::new(first_core, self.cores.len()),
            shards: IdRange::new(first_shard, self.shards.len()),
            node,
            package: self.cids[first_cid].package,
        });
    }

    fn add_core(&mut self, node: Node, llc: Llc, cluster: Option<Cluster>, cpus: &[RawCpu]) {
        let core = Core::from_index(self.cores.len());
        let first_cid = self.cids.len();
        for (thread, cpu) in (0..).zip(cpus) {
            let capacity = self.core_types[cpu.core_type as usize].capacity;
            let tier = self.tiers.partition_point(|tier| tier.capacity > capacity);
            let package = self
                .packages
                .partition_point(|package| package.id < cpu.package);
            let cid = Cid::from_index(self.cids.len());
            self.tiers[tier].cids.push(cid);
            self.packages[package].cids.push(cid);
            self.cids.push(CidInfo {
                cpu: cpu.cpu,
                core,
                thread,
                cluster,
                shard: Shard(0), // known once the LLC is complete
                llc,
                node,
                package: Package::from_index(package),
                capacity,
                tier: Tier::from_index(tier),
                core_type: CoreTypeId(cpu.core_type),
            });
        }
        let cids = CidRange::new(first_cid, self.cids.len());
        self.cores.push(CoreInfo {
            cids,
            cluster,
            llc,
            node,
        });
    }

    fn finish(&mut self) {
        let numbers = self
            .cids
            .iter()
            .map(|c| c.cpu.index() + 1)
            .max()
            .unwrap_or(0);
        self.cpu_to_cid = vec![None; numbers];
        for (index, info) in self.cids.iter().enumerate() {
            self.cpu_to_cid[info.cpu.index()] = Some(Cid::from_index(index));
        }
    }
}

/// Splits CPUs by a label; parts and CPUs in them are ordered by lowest CPU number.
fn split_by<L: Ord>(cpus: Vec<RawCpu>, label: impl Fn(&RawCpu) -> L) -> Vec<Vec<RawCpu>> {
    let mut parts: BTreeMap<L, Vec<RawCpu>> = BTreeMap::new();
    for cpu in cpus {
        parts.entry(label(&cpu)).or_default().push(cpu);
    }
    let mut parts: Vec<Vec<RawCpu>> = parts.into_values().collect();
    for part in &mut parts {
        part.sort_unstable_by_key(|cpu| cpu.cpu);
    }
    parts.sort_unstable_by_key(|part| part[0].cpu);
    parts
}

/// Cuts one LLC, given as the widths of its cores, into shards of at most `shard_width` cids. Returns
/// the shards' widths.
///
/// Shards are as few as possible, and then as even as possible: 112 CPUs become 56 + 56 rather than
/// 64 + 48, because the fullest line is the most contended one. A core wider than a shard has shards of
/// its own, which no other core shares: only there does a shard hold less than whole cores.
pub fn cut_into_shards(core_widths: &[usize], shard_width: usize) -> Vec<usize> {
    let mut shards = Vec::new();
    for run in core_widths.chunk_by(|a, b| (*a > shard_width) == (*b > shard_width)) {
        if run[0] <= shard_width {
            shards.extend(pack_evenly(run, shard_width));
            continue;
        }
        for core_width in run {
            let pieces = core_width.div_ceil(shard_width);
            shards.extend((0..pieces).map(|i| {
                let (from, to) = (core_width * i / pieces, core_width * (i + 1) / pieces);
                to - from
            }));
        }
    }
    shards
}

/// Packs cores, none wider than `limit`, into the fewest shards, of which the fullest is as empty as
/// can be.
fn pack_evenly(core_widths: &[usize], limit: usize) -> Vec<usize> {
    let pack = |limit: usize| {
        let mut shards: Vec<usize> = Vec::new();
        for width in core_widths {
            match shards.last_mut() {
                Some(last) if *last + width <= limit => *last += width,
                _ => shards.push(*width),
            }
        }
        shards
    };
    let fewest = pack(limit).len();
    let widest_core = core_widths.iter().copied().max().unwrap_or(1);
    (widest_core..=limit)
        .map(pack)
        .find(|shards| shards.len() == fewest)
        .expect("packing at the limit itself yields the fewest")
}

fn number_nodes(raw: &RawTopology) -> Vec<NodeInfo> {
    let mut by_id: BTreeMap<u32, RawNode> = raw
        .nodes
        .iter()
        .map(|node| (node.id, node.clone()))
        .collect();
    for cpu in &raw.cpus {
        let missing = RawNode {
            id: cpu.node,
            ..RawNode::default()
        };
        by_id.entry(cpu.node).or_insert(missing);
    }
    let ids: Vec<u32> = by_id.keys().copied().collect();
    let nodes = by_id.values().enumerate().map(|(own, node)| {
        let distance = |id: &u32| {
            let default = if *id == node.id {
                NodeInfo::LOCAL_DISTANCE
            } else {
                NodeInfo::REMOTE_DISTANCE
            };
            node.distances.get(id).copied().unwrap_or(default)
        };
        let distances: Vec<u32> = ids.iter().map(distance).collect();
        let mut near: Vec<Node> = (0..ids.len())
            .filter(|other| *other != own)
            .map(Node::from_index)
            .collect();
        near.sort_by_key(|other| (distances[other.index()], *other));
        NodeInfo {
            id: node.id,
            cids: CidRange::new(0, 0),
            cores: IdRange::new(0, 0),
            llcs: IdRange::new(0, 0),
            shards: IdRange::new(0, 0),
            distances,
            near,
            memory_bytes: node.memory_bytes,
        }
    });
    nodes.collect()
}

fn number_packages(raw: &RawTopology) -> Vec<PackageInfo> {
    let ids: BTreeSet<u32> = raw.cpus.iter().map(|cpu| cpu.package).collect();
    ids.into_iter()
        .map(|id| PackageInfo {
            id,
            cids: Vec::new(),
        })
        .collect()
}

fn number_tiers(raw: &RawTopology) -> Vec<TierInfo> {
    let capacities: BTreeSet<u32> = raw
        .cpus
        .iter()
        .map(|cpu| raw.core_types[cpu.core_type as usize].capacity)
        .collect();
    capacities
        .into_iter()
        .rev()
        .map(|capacity| TierInfo {
            capacity,
            cids: Vec::new(),
        })
        .collect()
}

/// Refuses what no table can be made of.
fn check(raw: &RawTopology) -> Result<(), TopoError> {
    let origin = || raw.name.clone();
    let wrong = |what: String, remedy: &str| {
        Err(TopoError::Inconsistent {
            origin: origin(),
            what,
            remedy: remedy.into(),
        })
    };
    if raw.cpus.is_empty() {
        return Err(TopoError::NoCpus { origin: origin() });
    }
    if raw.cpus.len() > MAX_CPUS {
        let nr_cpus = raw.cpus.len() as u64;
        return Err(TopoError::TooManyCpus {
            origin: origin(),
            nr_cpus,
        });
    }
    let mut seen = BTreeSet::new();
    for cpu in &raw.cpus {
        if !seen.insert(cpu.cpu) {
            return wrong(
                format!("cpu {} appears twice", cpu.cpu),
                "give each CPU its own number",
            );
        }
        if cpu.core_type as usize >= raw.core_types.len() {
            let what = format!("cpu {} is of core type {}", cpu.cpu, cpu.core_type);
            return wrong(what, "define that core type");
        }
    }
    if let Some(both) = raw.offline.iter().find(|cpu| seen.contains(cpu)) {
        return wrong(
            format!("cpu {both} is both online and offline"),
            "remove it from one list",
        );
    }
    let numbers = raw.offline.iter().chain(seen.iter());
    if let Some(high) = numbers.filter(|cpu| cpu.0 > MAX_CPU_NUMBER).max() {
        let what = format!("cpu number {high} is above {MAX_CPU_NUMBER}");
        return wrong(what, "renumber the CPUs");
    }
    let mut ids = BTreeSet::new();
    for node in &raw.nodes {
        if !ids.insert(node.id) {
            return wrong(
                format!("node {} appears twice", node.id),
                "describe each node once",
            );
        }
    }
    for kind in &raw.core_types {
        if !(1..=CAPACITY_MAX).contains(&kind.capacity) {
            let what = format!("core type {} has capacity {}", kind.name, kind.capacity);
            return wrong(
                what,
                "scale capacities so that all are above 0 and the strongest has 1024",
            );
        }
    }
    Ok(())
}
