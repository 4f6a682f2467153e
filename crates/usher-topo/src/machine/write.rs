// SPDX-License-Identifier: GPL-2.0-only
//! A topology as a machine file.

use std::fmt::Write as _;

use crate::cpulist::{format_cpulist, format_in_order};
use crate::error::TopoError;
use crate::ids::{CidRange, Node, Package};
use crate::topology::{LlcInfo, Topology};

/// Cores that are alike and follow one another: `[[socket.node.llc.core]]`.
#[derive(PartialEq, Eq)]
struct Cores {
    clusters: Option<u32>,
    same_cluster: bool,
    count: u32,
    threads: u32,
    core_type: u32,
}

/// LLCs that are alike: how many, and their cores.
#[derive(PartialEq, Eq)]
struct Llcs {
    count: u32,
    cores: Vec<Cores>,
}

/// A run of one node's LLCs in one package.
struct Part {
    package: Package,
    node: Node,
    llcs: Vec<Llcs>,
}

/// Writes the machine as a machine file. `provenance` says where the figures come from. Reading it back
/// gives the same topology.
///
/// # Errors
/// [`TopoError::Inexpressible`] if the threads of a core differ in type, if an LLC spans packages, or
/// if a memory size does not fit TOML's integers.
pub fn write(topo: &Topology, provenance: &str) -> Result<String, TopoError> {
    check(topo)?;
    let mut out = String::from("# SPDX-License-Identifier: GPL-2.0-only\n");
    // Writing to a String cannot fail.
    write_head(&mut out, topo, provenance);
    write_distances(&mut out, topo);
    for kind in topo.core_types() {
        let _ = writeln!(out, "\n[[core_type]]\nname = {}", quoted(&kind.name));
        let _ = writeln!(out, "capacity = {}", kind.capacity);
        let _ = writeln!(out, "speed_permille = {}", kind.speed_permille);
        if let Some(power) = kind.cpu_power {
            let _ = writeln!(out, "cpu_power = {power}");
        }
    }
    let mut last_package = None;
    for part in parts(topo) {
        if last_package != Some(part.package) {
            let _ = writeln!(out, "\n[[socket]]\nid = {}", topo[part.package].id);
        }
        last_package = Some(part.package);
        let node = &topo[part.node];
        let _ = writeln!(out, "\n[[socket.node]]\nid = {}", node.id);
        if let Some(bytes) = node.memory_bytes {
            let _ = writeln!(out, "memory_bytes = {bytes}");
        }
        for llc in &part.llcs {
            let _ = writeln!(out, "\n[[socket.node.llc]]\ncount = {}", llc.count);
            llc.cores
                .iter()
                .for_each(|cores| write_cores(&mut out, topo, cores));
        }
    }
    for node in topo.nodes().iter().filter(|node| node.cids.is_empty()) {
        let _ = writeln!(out, "\n[[memory_node]]\nid = {}", node.id);
        if let Some(bytes) = node.memory_bytes {
            let _ = writeln!(out, "memory_bytes = {bytes}");
        }
    }
    Ok(out)
}

fn check(topo: &Topology) -> Result<(), TopoError> {
    let why = |why: String| {
        let origin = topo.name().into();
        Err(TopoError::Inexpressible {
            origin,
            form: "a machine file",
            why,
        })
    };
    for core in topo.cores() {
        let threads = &topo.cids()[core.cids.as_usize()];
        if let Some(pair) = threads
            .windows(2)
            .find(|pair| pair[0].core_type != pair[1].core_type)
        {
            let (a, b) = (pair[0].cpu, pair[1].cpu);
            return why(format!(
                "cpus {a} and {b} share a core and differ in core type"
            ));
        }
    }
    for llc in topo.llcs() {
        let cids = &topo.cids()[llc.cids.as_usize()];
        if let Some(stray) = cids.iter().find(|info| info.package != llc.package) {
            let (a, b) = (cids[0].cpu, stray.cpu);
            return why(format!(
                "cpus {a} and {b} share an LLC and lie in different packages"
            ));
        }
    }
    for node in topo.nodes() {
        match node.memory_bytes {
            Some(bytes) if i64::try_from(bytes).is_err() => {
                return why(format!("node {} has {bytes} bytes of memory", node.id));
            }
            _ => {}
        }
    }
    Ok(())
}

fn write_head(out: &mut String, topo: &Topology, provenance: &str) {
    let _ = writeln!(out, "name = {}", quoted(topo.name()));
    let _ = writeln!(out, "title = {}", quoted(topo.title()));
    if let Some(costs) = topo.costs() {
        let _ = writeln!(out, "costs = {}", quoted(costs));
    }
    let _ = writeln!(out, "numbering = {}", quoted(&numbering(topo)));
    if !topo.offline().is_empty() {
        let offline = format_cpulist(topo.offline().iter().map(|cpu| cpu.0));
        let _ = writeln!(out, "offline = {}", quoted(&offline));
    }
    let _ = writeln!(out, "\n[provenance]\nall = {}", quoted(provenance));
}

fn write_distances(out: &mut String, topo: &Topology) {
    let _ = writeln!(out, "\n[distances]\nmatrix = [");
    for node in topo.nodes() {
        let row: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        let _ = writeln!(out, "    [{}],", row.join(", "));
    }
    let _ = writeln!(out, "]");
}

fn write_cores(out: &mut String, topo: &Topology, cores: &Cores) {
    let _ = writeln!(out, "[[socket.node.llc.core]]");
    let name = &topo.core_types()[cores.core_type as usize].name;
    let _ = writeln!(out, "type = {}", quoted(name));
    if let Some(clusters) = cores.clusters {
        let _ = writeln!(out, "clusters = {clusters}");
    }
    if cores.same_cluster {
        let _ = writeln!(out, "same_cluster = true");
    }
    let _ = writeln!(out, "count = {}\nthreads = {}", cores.count, cores.threads);
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

/// The short name of the numbering if it is a usual one and the whole machine is online, else the
/// list.
fn numbering(topo: &Topology) -> String {
    let numbers: Vec<u32> = topo.cids().iter().map(|info| info.cpu.0).collect();
    let is_sequence = |mut numbers: Vec<(u32, u32)>| {
        numbers.sort_by_key(|(thread, _)| *thread);
        (0..)
            .zip(numbers)
            .all(|(expected, (_, number))| expected == number)
    };
    let threads = topo.cids().iter().map(|info| info.thread);
    if is_sequence(numbers.iter().map(|number| (0, *number)).collect()) {
        "adjacent".into()
    } else if is_sequence(threads.zip(numbers.iter().copied()).collect()) {
        "siblings-last".into()
    } else {
        format_in_order(&numbers)
    }
}

/// The machine in order of cid, cut where node or package changes, repeats counted.
fn parts(topo: &Topology) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for llc in topo.llcs() {
        match parts.last() {
            Some(part) if part.node == llc.node && part.package == llc.package => {}
            _ => parts.push(Part {
                package: llc.package,
                node: llc.node,
                llcs: Vec::new(),
            }),
        }
        let llcs = &mut parts.last_mut().expect("one was just pushed").llcs;
        let cores = cores_of(topo, llc);
        match llcs.last_mut() {
            Some(last) if last.cores == cores => last.count += 1,
            _ => llcs.push(Llcs { count: 1, cores }),
        }
    }
    parts
}

fn cores_of(topo: &Topology, llc: &LlcInfo) -> Vec<Cores> {
    let mut groups: Vec<Cores> = Vec::new();
    let cores = &topo.cores()[llc.cores.as_usize()];
    for run in cores.chunk_by(|a, b| a.cluster == b.cluster) {
        let in_cluster = run[0].cluster.is_some();
        let kinds = run.chunk_by(|a, b| core_kind(topo, a.cids) == core_kind(topo, b.cids));
        let mut part: Vec<Cores> = kinds
            .enumerate()
            .map(|(i, cores)| {
                let (threads, core_type) = core_kind(topo, cores[0].cids);
                Cores {
                    clusters: (in_cluster && i == 0).then_some(1),
                    same_cluster: in_cluster && i > 0,
                    count: u32::try_from(cores.len()).expect("at most 4,096 cores"),
                    threads,
                    core_type,
                }
            })
            .collect();
        // Clusters of one kind of core that repeat are one group.
        if let ([only], Some(last)) = (part.as_mut_slice(), groups.last_mut()) {
            let sum = last.clusters.zip(only.clusters).map(|(a, b)| a + b);
            only.clusters = last.clusters;
            if sum.is_some() && *only == *last {
                last.clusters = sum;
                continue;
            }
            only.clusters = in_cluster.then_some(1);
        }
        groups.append(&mut part);
    }
    groups
}

fn core_kind(topo: &Topology, cids: CidRange) -> (u32, u32) {
    let threads = u32::try_from(cids.len()).expect("at most 4,096 cids");
    (threads, topo[cids.first()].core_type.0)
}
