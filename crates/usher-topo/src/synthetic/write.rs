// SPDX-License-Identifier: GPL-2.0-only
//! A topology as a synthetic string, if it is regular enough.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::error::TopoError;
use crate::ids::Id;
use crate::raw::CAPACITY_MAX;
use crate::topology::{CidInfo, NodeInfo, Topology};

/// A synthetic string, and what it cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The string. Reading it back gives the same nodes, LLCs, clusters, cores and CPU numbers.
    pub text: String,
    /// What was left out, one line each: distances other than hwloc's defaults, offline CPUs.
    pub lost: Vec<String>,
}

/// Writes the machine as a synthetic string.
///
/// # Errors
/// [`TopoError::Inexpressible`] if a level does not divide evenly, if CPUs differ in capacity, or if a
/// node has memory only.
pub fn write(topo: &Topology) -> Result<Written, TopoError> {
    check(topo)?;
    let outer = packages_nodes_and_llcs(topo)?;
    let clusters = clusters_per_llc(topo)?;
    let cores = even(
        topo,
        "cores per LLC",
        topo.llcs().iter().map(|llc| llc.cores.len()),
    )?;
    let threads = even(
        topo,
        "threads per core",
        topo.cores().iter().map(|c| c.cids.len()),
    )?;

    let mut text = format!("{outer} ");
    // Writing to a String cannot fail.
    if clusters > 0 {
        let _ = write!(text, "l2:{clusters} ");
    }
    let _ = write!(text, "core:{} pu:{threads}", cores / clusters.max(1));
    text.push_str(&pu_indexes(topo, threads));
    Ok(Written {
        text,
        lost: lost(topo),
    })
}

fn inexpressible(topo: &Topology, why: String) -> TopoError {
    let origin = topo.name().into();
    TopoError::Inexpressible {
        origin,
        form: "a synthetic string",
        why,
    }
}

/// The one value that all of them have.
fn even(
    topo: &Topology,
    what: &str,
    mut counts: impl Iterator<Item = usize>,
) -> Result<usize, TopoError> {
    let first = counts.next().unwrap_or(0);
    match counts.find(|count| *count != first) {
        None => Ok(first),
        Some(other) => Err(inexpressible(
            topo,
            format!("{what} differ: {first} and {other}"),
        )),
    }
}

fn check(topo: &Topology) -> Result<(), TopoError> {
    if topo.tiers().len() > 1 || topo.tiers()[0].capacity != CAPACITY_MAX {
        return Err(inexpressible(topo, "it has no word for capacity".into()));
    }
    if let Some(node) = topo.nodes().iter().find(|node| node.cids.is_empty()) {
        return Err(inexpressible(
            topo,
            format!("node {} has memory only", node.id),
        ));
    }
    if topo
        .cids()
        .iter()
        .any(|info| info.package != topo[info.llc].package)
    {
        return Err(inexpressible(topo, "an LLC spans packages".into()));
    }
    Ok(())
}

/// The outer levels: packages that hold nodes or nodes that hold packages, and LLCs in the inner of the
/// two.
fn packages_nodes_and_llcs(topo: &Topology) -> Result<String, TopoError> {
    let cids: Vec<&CidInfo> = topo.cids().iter().collect();
    let packages: Vec<&[&CidInfo]> = cids.chunk_by(|a, b| a.package == b.package).collect();
    let nodes: Vec<&[&CidInfo]> = cids.chunk_by(|a, b| a.node == b.node).collect();
    if packages.len() > topo.packages().len() {
        return Err(inexpressible(
            topo,
            "nodes alternate between packages".into(),
        ));
    }
    // Where each part begins and ends; a level lies inside another if its ends include the other's.
    let ends = |parts: &[&[&CidInfo]]| -> BTreeSet<usize> {
        let lens = parts.iter().map(|part| part.len());
        let running = |end: &mut usize, len: usize| {
            *end += len;
            Some(*end)
        };
        lens.scan(0, running).collect()
    };
    let (package_ends, node_ends) = (ends(&packages), ends(&nodes));
    let per_part = |ends: &BTreeSet<usize>, inner: &BTreeSet<usize>| -> Vec<usize> {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts
            .zip(ends)
            .map(|(start, end)| inner.range(start + 1..=*end).count())
            .collect()
    };
    let llc_ends = topo
        .llcs()
        .iter()
        .map(|llc| llc.cids.end().index())
        .collect();

    let package = attributes(&[list(packages.iter().map(|part| topo[part[0].package].id))]);
    let node = attributes(&[memory(topo), list(topo.nodes().iter().map(|node| node.id))]);
    if node_ends.is_superset(&package_ends) {
        let nodes = per_part(&package_ends, &node_ends).into_iter();
        let nodes = even(topo, "nodes per package", nodes)?;
        let llcs = even(
            topo,
            "LLCs per node",
            per_part(&node_ends, &llc_ends).into_iter(),
        )?;
        Ok(format!(
            "pack:{}{package} numa:{nodes}{node} l3:{llcs}",
            packages.len()
        ))
    } else if package_ends.is_superset(&node_ends) {
        let packages = per_part(&node_ends, &package_ends).into_iter();
        let packages = even(topo, "packages per node", packages)?;
        let llcs = per_part(&package_ends, &llc_ends).into_iter();
        let llcs = even(topo, "LLCs per package", llcs)?;
        Ok(format!(
            "numa:{}{node} pack:{packages}{package} l3:{llcs}",
            nodes.len()
        ))
    } else {
        Err(inexpressible(topo, "packages and nodes overlap".into()))
    }
}

/// `memory=...` if all nodes have the same.
fn memory(topo: &Topology) -> String {
    match topo.nodes()[0].memory_bytes {
        Some(bytes) if is_memory_even(topo) => format!("memory={bytes}"),
        _ => String::new(),
    }
}

fn is_memory_even(topo: &Topology) -> bool {
    topo.nodes()
        .windows(2)
        .all(|pair| pair[0].memory_bytes == pair[1].memory_bytes)
}

/// `indexes=...` unless the numbers are 0, 1, 2, ...
fn list(ids: impl Iterator<Item = u32>) -> String {
    let ids: Vec<u32> = ids.collect();
    if (0..).zip(&ids).all(|(expected, id)| expected == *id) {
        return String::new();
    }
    format!(
        "indexes={}",
        ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    )
}

fn attributes(parts: &[String]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|p| !p.is_empty())
        .collect();
    if parts.is_empty() {
        return String::new();
    }
    format!("({})", parts.join(" "))
}

/// Clusters per LLC, all of one size; 0 if there is none.
fn clusters_per_llc(topo: &Topology) -> Result<usize, TopoError> {
    if topo.clusters().is_empty() {
        return Ok(0);
    }
    if topo.cores().iter().any(|core| core.cluster.is_none()) {
        return Err(inexpressible(
            topo,
            "some cores are in L2 clusters and others are not".into(),
        ));
    }
    even(
        topo,
        "cores per L2 cluster",
        topo.clusters().iter().map(|c| c.cores.len()),
    )?;
    let per_llc = topo.llcs().iter().map(|llc| {
        topo.clusters()
            .iter()
            .filter(|c| llc.cids.contains_range(c.cids))
            .count()
    });
    even(topo, "L2 clusters per LLC", per_llc)
}

fn pu_indexes(topo: &Topology, threads: usize) -> String {
    let cores = topo.cores().len();
    let siblings_last = topo.cids().iter().enumerate().all(|(cid, info)| {
        let (core, thread) = (cid / threads, cid % threads);
        info.cpu.0 as usize == thread * cores + core
    });
    if siblings_last && threads > 1 && cores > 1 {
        return format!("(indexes={threads}*{cores}:1*{threads})");
    }
    attributes(&[list(topo.cids().iter().map(|info| info.cpu.0))])
}

fn lost(topo: &Topology) -> Vec<String> {
    let mut lost = Vec::new();
    let is_default = topo.nodes().iter().enumerate().all(|(own, node)| {
        node.distances.iter().enumerate().all(|(other, distance)| {
            let local = own == other;
            *distance
                == if local {
                    NodeInfo::LOCAL_DISTANCE
                } else {
                    NodeInfo::REMOTE_DISTANCE
                }
        })
    });
    if !is_default {
        lost.push("distances between nodes (10 and 20 are assumed when it is read)".into());
    }
    if !is_memory_even(topo) {
        lost.push("memory sizes of the nodes, which differ".into());
    }
    if !topo.offline().is_empty() {
        let offline = crate::format_cpulist(topo.offline().iter().map(|cpu| cpu.0));
        lost.push(format!("offline CPUs {offline}"));
    }
    lost
}
