// SPDX-License-Identifier: GPL-2.0-only
//! What a machine looks like to a scheduler.
//!
//! Whatever describes the machine (the running kernel's sysfs, a captured sysfs tree, an hwloc XML
//! file, an hwloc synthetic string, a machine file, a lab shape), a reader turns it into a
//! [`RawTopology`]: per CPU, a label for its core, its last-level cache, its node and so on.
//! [`Topology::build`] turns that into the tables the placement core works with:
//!
//! ```text
//!   source ──read──> RawTopology ──build──> Topology ──write──> sysfs tree, machine file, ...
//! ```
//!
//! A [`Topology`] numbers the online CPUs densely in the order node, LLC, L2 cluster, core, thread.
//! Such a number is a [`Cid`]. A core, a cluster, a shard, an LLC and a node are therefore each one
//! contiguous range of cids, and levels contain one another by construction: an LLC that spans two
//! nodes becomes two LLCs, a core that spans two LLCs becomes two cores.
//!
//! | word    | meaning |
//! |---------|---------|
//! | cpu     | the kernel's number of a CPU; may be sparse |
//! | cid     | dense number of an online CPU, 0 to `nr_cids() - 1` |
//! | core    | the hardware threads (SMT siblings) that share one core |
//! | cluster | cores that share an L2 which is not the last level; not every core has one |
//! | LLC     | the CPUs that share a last-level cache |
//! | shard   | at most `shard_width` (64 by default) cids of one LLC, cut at core boundaries |
//! | node    | NUMA node; nodes without CPUs are kept, with an empty range |
//! | tier    | CPUs of equal capacity; tier 0 is the strongest |
//!
//! ```
//! use usher_topo::{Source, Topology};
//!
//! let raw = Source::Synthetic("pack:2 numa:1 l3:4 core:8 pu:2".into()).read()?;
//! let topo = Topology::build(&raw, 64)?;
//! assert_eq!((topo.nr_cids(), topo.llcs().len(), topo.nodes().len()), (128, 8, 2));
//! for (node, info) in topo.nodes_by_id() {
//!     println!("node {node} (kernel's {}): cids {}", info.id, info.cids);
//! }
//! # Ok::<(), usher_topo::TopoError>(())
//! ```

pub mod hwloc;
pub mod line;
pub mod machine;
pub mod shape;
pub mod synthetic;
pub mod sysfs;

mod build;
mod cpulist;
mod error;
mod ids;
mod raw;
mod source;
mod topology;

pub use build::{cut_into_shards, MAX_CPUS, MAX_CPU_NUMBER, MAX_SHARD_WIDTH};
pub use cpulist::{format_cpulist, isolated_cpus, parse_cpulist};
pub use error::TopoError;
pub use ids::{
    Cid, CidRange, Cluster, Core, CoreTypeId, Cpu, Id, IdRange, Llc, Node, Package, Shard, Tier,
};
pub use raw::{CoreType, RawCpu, RawNode, RawTopology, CAPACITY_MAX};
pub use source::Source;
pub use topology::{
    CidInfo, ClusterInfo, CoreInfo, LlcInfo, NodeInfo, PackageInfo, ShardInfo, TierInfo, Topology,
};
