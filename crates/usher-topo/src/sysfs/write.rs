// SPDX-License-Identifier: GPL-2.0-only
//! Writing a sysfs tree, for tests and for tools that read captured trees.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use crate::cpulist::{format_cpulist, format_mask};
use crate::error::TopoError;
use crate::ids::{Cid, CidRange, Id};
use crate::topology::{CidInfo, Topology};

/// What the kernel shows as `cluster_id` of a CPU in no cluster.
const NO_CLUSTER: u32 = 65535;

/// Writes the machine as `dir/sys/devices/system/...`. Reading it back gives the same topology, but for
/// names, `cpu_power` and speeds of core types, which sysfs has no place for, and parts of a KiB of
/// memory.
///
/// # Errors
/// The directory exists and holds a `sys` already, or a file cannot be written.
pub fn write(topo: &Topology, dir: &Path) -> Result<(), TopoError> {
    let sys = dir.join("sys");
    if sys.exists() {
        let source = Error::new(
            ErrorKind::AlreadyExists,
            "exists already; name a new directory",
        );
        return Err(TopoError::Io { path: sys, source });
    }
    let system = sys.join("devices/system");
    write_lists(topo, &system)?;
    for (index, info) in topo.cids().iter().enumerate() {
        let dir = system.join(format!("cpu/cpu{}", info.cpu));
        put(&dir.join("online"), 1)?;
        put(&dir.join("cpu_capacity"), info.capacity)?;
        write_topology(topo, info, &dir.join("topology"))?;
        write_caches(topo, Cid::from_index(index), &dir.join("cache"))?;
    }
    for cpu in topo.offline() {
        put(&system.join(format!("cpu/cpu{cpu}/online")), 0)?;
    }
    write_nodes(topo, &system)
}

/// Writes one file, and the directories above it if they are missing.
fn put(path: &Path, content: impl ToString) -> Result<(), TopoError> {
    let content = content.to_string() + "\n";
    let written = fs::write(path, &content).or_else(|error| {
        if error.kind() != ErrorKind::NotFound {
            return Err(error);
        }
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, &content)
    });
    written.map_err(|source| TopoError::Io {
        path: path.into(),
        source,
    })
}

/// Writes a set of CPUs twice, as the kernel does: as a list, and as a mask for older tools.
fn put_cpus(topo: &Topology, list: &Path, mask: &Path, cpus: &[u32]) -> Result<(), TopoError> {
    put(list, format_cpulist(cpus.iter().copied()))?;
    put(mask, format_mask(cpus, topo.nr_cpu_numbers()))
}

fn numbers(topo: &Topology, cids: CidRange) -> Vec<u32> {
    topo.cpus_in(cids).iter().map(|cpu| cpu.0).collect()
}

fn write_lists(topo: &Topology, system: &Path) -> Result<(), TopoError> {
    let online = || topo.cids().iter().map(|info| info.cpu.0);
    let offline = || topo.offline().iter().map(|cpu| cpu.0);
    let cpu = system.join("cpu");
    put(&cpu.join("online"), format_cpulist(online()))?;
    put(&cpu.join("offline"), format_cpulist(offline()))?;
    for file in ["present", "possible"] {
        put(&cpu.join(file), format_cpulist(online().chain(offline())))?;
    }
    put(&cpu.join("smt/active"), u32::from(topo.smt_width() > 1))
}

fn write_topology(topo: &Topology, info: &CidInfo, dir: &Path) -> Result<(), TopoError> {
    put(&dir.join("physical_package_id"), topo[info.package].id)?;
    put(&dir.join("core_id"), info.core)?;
    let core = numbers(topo, topo[info.core].cids);
    let package: Vec<u32> = topo[info.package]
        .cids
        .iter()
        .map(|cid| topo.cpu_of(*cid).0)
        .collect();
    let (cluster_id, cluster) = match info.cluster {
        Some(cluster) => (cluster.0, numbers(topo, topo[cluster].cids)),
        None => (NO_CLUSTER, core.clone()),
    };
    put(&dir.join("cluster_id"), cluster_id)?;
    for (name, cpus) in [
        ("core_cpus", &core),
        ("thread_siblings", &core),
        ("package_cpus", &package),
        ("core_siblings", &package),
        ("cluster_cpus", &cluster),
    ] {
        put_cpus(
            topo,
            &dir.join(format!("{name}_list")),
            &dir.join(name),
            cpus,
        )?;
    }
    Ok(())
}

fn write_caches(topo: &Topology, cid: Cid, dir: &Path) -> Result<(), TopoError> {
    let info = &topo[cid];
    let core = topo[info.core].cids;
    let l2 = info.cluster.map_or(core, |cluster| topo[cluster].cids);
    let caches = [
        (1, "Data", core, info.core.0),
        (1, "Instruction", core, info.core.0),
        (
            2,
            "Unified",
            l2,
            info.cluster.map_or(info.core.0, |cluster| cluster.0),
        ),
        (3, "Unified", topo[info.llc].cids, info.llc.0),
    ];
    for (index, (level, kind, cids, id)) in caches.into_iter().enumerate() {
        let dir = dir.join(format!("index{index}"));
        put(&dir.join("level"), level)?;
        put(&dir.join("type"), kind)?;
        put(&dir.join("id"), id)?;
        let cpus = numbers(topo, cids);
        put_cpus(
            topo,
            &dir.join("shared_cpu_list"),
            &dir.join("shared_cpu_map"),
            &cpus,
        )?;
    }
    Ok(())
}

fn write_nodes(topo: &Topology, system: &Path) -> Result<(), TopoError> {
    let dir = system.join("node");
    let with_cpus = topo.nodes().iter().filter(|node| !node.cids.is_empty());
    put(
        &dir.join("has_cpu"),
        format_cpulist(with_cpus.map(|node| node.id)),
    )?;
    for file in ["online", "possible", "has_memory"] {
        put(
            &dir.join(file),
            format_cpulist(topo.nodes().iter().map(|node| node.id)),
        )?;
    }
    for node in topo.nodes() {
        let dir = dir.join(format!("node{}", node.id));
        let cpus = numbers(topo, node.cids);
        put_cpus(topo, &dir.join("cpulist"), &dir.join("cpumap"), &cpus)?;
        let row: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        put(&dir.join("distance"), row.join(" "))?;
        if let Some(bytes) = node.memory_bytes {
            let line = format!("Node {} MemTotal:       {} kB", node.id, bytes / 1024);
            put(&dir.join("meminfo"), line)?;
        }
        for cpu in topo.cpus_in(node.cids) {
            let dir = dir.join(format!("cpu{cpu}"));
            fs::create_dir_all(&dir).map_err(|source| TopoError::Io { path: dir, source })?;
        }
    }
    Ok(())
}
