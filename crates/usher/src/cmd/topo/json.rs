// SPDX-License-Identifier: GPL-2.0-only
//! The JSON form of a topology.

use serde::Serialize;
use usher_topo::{CidInfo, CidRange, CoreType, Cpu, Llc, Node, Package, Shard, Topology};

/// The JSON form. Fields may be added; a renamed or removed field needs a new schema.
#[derive(Serialize)]
pub struct Json<'a> {
    schema: &'static str,
    name: &'a str,
    title: &'a str,
    nr_cpus: usize,
    nr_cores: usize,
    smt_width: usize,
    shard_width: u32,
    queue_width: u32,
    offline: &'a [Cpu],
    nodes: Vec<JsonNode<'a>>,
    llcs: Vec<JsonLlc>,
    shards: Vec<JsonShard>,
    queues: Vec<JsonQueue>,
    clusters: Vec<JsonCluster>,
    packages: Vec<JsonPackage>,
    tiers: Vec<JsonTier>,
    core_types: &'a [CoreType],
    cids: Vec<JsonCid>,
}

/// A run of cids.
#[derive(Serialize)]
struct JsonCids {
    first_cid: u32,
    nr_cids: usize,
}

#[derive(Serialize)]
struct JsonNode<'a> {
    node: usize,
    id: u32,
    cpus: Vec<Cpu>,
    distances: &'a [u32],
    near: &'a [Node],
    memory_bytes: Option<u64>,
    llcs: Vec<Llc>,
    #[serde(flatten)]
    cids: JsonCids,
}

#[derive(Serialize)]
struct JsonLlc {
    llc: usize,
    node: Node,
    package: Package,
    cpus: Vec<Cpu>,
    shards: Vec<Shard>,
    #[serde(flatten)]
    cids: JsonCids,
}

#[derive(Serialize)]
struct JsonShard {
    shard: usize,
    llc: Llc,
    node: Node,
    cpus: Vec<Cpu>,
    #[serde(flatten)]
    cids: JsonCids,
}

#[derive(Serialize)]
struct JsonQueue {
    queue: usize,
    llc: Llc,
    node: Node,
    cpus: Vec<Cpu>,
    #[serde(flatten)]
    cids: JsonCids,
}

#[derive(Serialize)]
struct JsonCluster {
    cluster: usize,
    llc: Llc,
    cpus: Vec<Cpu>,
    #[serde(flatten)]
    cids: JsonCids,
}

#[derive(Serialize)]
struct JsonPackage {
    package: usize,
    id: u32,
    cpus: Vec<Cpu>,
}

#[derive(Serialize)]
struct JsonTier {
    tier: usize,
    capacity: u32,
    cpus: Vec<Cpu>,
}

#[derive(Serialize)]
struct JsonCid {
    cid: usize,
    #[serde(flatten)]
    info: CidInfo,
}

impl From<CidRange> for JsonCids {
    fn from(range: CidRange) -> Self {
        Self {
            first_cid: range.first().0,
            nr_cids: range.len(),
        }
    }
}

impl<'a> Json<'a> {
    /// The JSON form of a machine whose LLCs are cut into these queues.
    pub fn new(topo: &'a Topology, queue_width: u32, queues: &[CidRange]) -> Self {
        let nodes = topo
            .nodes()
            .iter()
            .enumerate()
            .map(|(node, info)| JsonNode {
                node,
                id: info.id,
                cpus: topo.cpus_in(info.cids),
                distances: &info.distances,
                near: &info.near,
                memory_bytes: info.memory_bytes,
                llcs: info.llcs.iter().collect(),
                cids: info.cids.into(),
            });
        let llcs = topo.llcs().iter().enumerate().map(|(llc, info)| JsonLlc {
            llc,
            node: info.node,
            package: info.package,
            cpus: topo.cpus_in(info.cids),
            shards: info.shards.iter().collect(),
            cids: info.cids.into(),
        });
        let shards = topo
            .shards()
            .iter()
            .enumerate()
            .map(|(shard, info)| JsonShard {
                shard,
                llc: info.llc,
                node: info.node,
                cpus: topo.cpus_in(info.cids),
                cids: info.cids.into(),
            });
        let queues = queues.iter().enumerate().map(|(queue, &cids)| JsonQueue {
            queue,
            llc: topo[cids.first()].llc,
            node: topo[cids.first()].node,
            cpus: topo.cpus_in(cids),
            cids: cids.into(),
        });
        let clusters = topo
            .clusters()
            .iter()
            .enumerate()
            .map(|(cluster, info)| JsonCluster {
                cluster,
                llc: info.llc,
                cpus: topo.cpus_in(info.cids),
                cids: info.cids.into(),
            });
        let packages = topo
            .packages()
            .iter()
            .enumerate()
            .map(|(package, info)| JsonPackage {
                package,
                id: info.id,
                cpus: info.cids.iter().map(|cid| topo.cpu_of(*cid)).collect(),
            });
        let tiers = topo
            .tiers()
            .iter()
            .enumerate()
            .map(|(tier, info)| JsonTier {
                tier,
                capacity: info.capacity,
                cpus: info.cids.iter().map(|cid| topo.cpu_of(*cid)).collect(),
            });
        let cids = topo
            .cids()
            .iter()
            .enumerate()
            .map(|(cid, info)| JsonCid { cid, info: *info });
        Self {
            schema: "usher-topo/1",
            name: topo.name(),
            title: topo.title(),
            nr_cpus: topo.nr_cids(),
            nr_cores: topo.cores().len(),
            smt_width: topo.smt_width(),
            shard_width: topo.shard_width(),
            queue_width,
            offline: topo.offline(),
            nodes: nodes.collect(),
            llcs: llcs.collect(),
            shards: shards.collect(),
            queues: queues.collect(),
            clusters: clusters.collect(),
            packages: packages.collect(),
            tiers: tiers.collect(),
            core_types: topo.core_types(),
            cids: cids.collect(),
        }
    }
}
