// SPDX-License-Identifier: GPL-2.0-only
//! From the groups of a machine file to single CPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use toml::Spanned;

use super::file::{CoreGroup, LlcGroup, MachineFile, NodeGroup};
use crate::build::MAX_CPU_NUMBER;
use crate::cpulist::parse_in_order;
use crate::error::TopoError;
use crate::ids::Cpu;
use crate::raw::{CoreType, RawCpu, RawNode, RawTopology, CAPACITY_MAX};
use crate::topology::NodeInfo;

impl MachineFile {
    /// The machine that the file describes.
    ///
    /// # Errors
    /// A count of zero, more CPUs than can be numbered, an unknown core type, a list of the wrong
    /// length, and the like: with file and line.
    pub fn to_raw(&self) -> Result<RawTopology, TopoError> {
        let core_types = self.expand_core_types()?;
        let mut walk = Walk::new(self)?;
        walk.sockets()?;
        let Walk {
            mut cpus,
            threads,
            mut nodes,
            ..
        } = walk;
        self.number(&mut cpus, &threads)?;
        let offline = self.offline_cpus()?;
        cpus.retain(|cpu| offline.binary_search(&cpu.cpu).is_err());
        for memory in &self.memory_nodes {
            let node = NodePlace {
                socket: None,
                memory_bytes: memory.memory_bytes,
            };
            if nodes.insert(*memory.id.get_ref(), node).is_some() {
                return Err(self.wrong(&memory.id, "node id is taken", "use another id"));
            }
        }
        Ok(RawTopology {
            name: self.name.clone(),
            title: self.title.clone(),
            costs: self.costs.clone(),
            cpus,
            offline,
            nodes: self.place_nodes(&nodes)?,
            core_types,
        })
    }

    fn wrong<T>(&self, at: &Spanned<T>, what: &str, remedy: &str) -> TopoError {
        self.text.error(&at.span(), what, remedy)
    }

    /// A count that must not be zero; 1 if left out.
    fn count(&self, count: &Option<Spanned<u32>>) -> Result<u32, TopoError> {
        match count {
            None => Ok(1),
            Some(count) if *count.get_ref() == 0 => {
                Err(self.wrong(count, "a count of zero", "leave the group out"))
            }
            Some(count) => Ok(*count.get_ref()),
        }
    }

    fn expand_core_types(&self) -> Result<Vec<CoreType>, TopoError> {
        let mut types: Vec<CoreType> = Vec::new();
        for entry in &self.core_types {
            let capacity = *entry.capacity.get_ref();
            if capacity == 0 {
                let remedy = "from 1 to 1024, the strongest's";
                return Err(self.wrong(&entry.capacity, "a capacity of zero", remedy));
            }
            if capacity > CAPACITY_MAX {
                let remedy = "scale capacities so that the strongest has 1024";
                return Err(self.wrong(&entry.capacity, "capacity above 1024", remedy));
            }
            if types.iter().any(|kind| kind.name == *entry.name.get_ref()) {
                return Err(self.wrong(&entry.name, "core type twice", "use another name"));
            }
            let mut kind = CoreType::of_capacity(entry.name.get_ref(), capacity);
            if let Some(speed) = &entry.speed_permille {
                if !(1..=1000).contains(speed.get_ref()) {
                    let remedy = "the strongest type has 1000, the others 1 to 1000";
                    return Err(self.wrong(speed, "speed_permille out of range", remedy));
                }
                kind.speed_permille = *speed.get_ref();
            }
            kind.cpu_power = entry.cpu_power;
            types.push(kind);
        }
        if types.is_empty() {
            types.push(CoreType::uniform());
        }
        Ok(types)
    }

    /// Gives the CPUs their numbers. `threads[i]` is the place of `cpus[i]` in its core.
    fn number(&self, cpus: &mut [RawCpu], threads: &[u32]) -> Result<(), TopoError> {
        match self.numbering.get_ref().as_str() {
            "adjacent" => {
                for (number, cpu) in (0..).zip(cpus) {
                    cpu.cpu = Cpu(number);
                }
            }
            "siblings-last" => {
                let mut order: Vec<usize> = (0..cpus.len()).collect();
                order.sort_by_key(|i| threads[*i]);
                for (number, i) in (0..).zip(order) {
                    cpus[i].cpu = Cpu(number);
                }
            }
            list => {
                let numbers = parse_in_order(list, MAX_CPU_NUMBER).map_err(|(_, what)| {
                    let remedy = "write `siblings-last`, `adjacent`, or a list such as `0-3,8-11`";
                    self.wrong(&self.numbering, &format!("numbering: {what}"), remedy)
                })?;
                let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
                if numbers.len() != cpus.len() || distinct.len() != numbers.len() {
                    let what = format!(
                        "numbering: {} numbers, {} distinct, for {} CPUs",
                        numbers.len(),
                        distinct.len(),
                        cpus.len()
                    );
                    return Err(self.wrong(&self.numbering, &what, "give each CPU one number"));
                }
                for (number, cpu) in numbers.into_iter().zip(cpus) {
                    cpu.cpu = Cpu(number);
                }
            }
        }
        Ok(())
    }

    fn offline_cpus(&self) -> Result<Vec<Cpu>, TopoError> {
        let Some(list) = &self.offline else {
            return Ok(Vec::new());
        };
        let mut numbers = parse_in_order(list.get_ref(), MAX_CPU_NUMBER).map_err(|(_, what)| {
            self.wrong(
                list,
                &format!("offline: {what}"),
                "write a list such as `4,6-7`",
            )
        })?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers.into_iter().map(Cpu).collect())
    }

    fn distance(&self, given: &Option<Spanned<u32>>, default: u32) -> Result<u32, TopoError> {
        match given {
            Some(distance) if !DISTANCES.contains(distance.get_ref()) => {
                let what = format!("a distance of {}", distance.get_ref());
                Err(self.wrong(distance, &what, "from 10, of a node to itself, to 254"))
            }
            Some(distance) => Ok(*distance.get_ref()),
            None => Ok(default),
        }
    }

    fn place_nodes(&self, nodes: &BTreeMap<u32, NodePlace>) -> Result<Vec<RawNode>, TopoError> {
        let given = &self.distances;
        let local = self.distance(&given.local, NodeInfo::LOCAL_DISTANCE)?;
        let remote = self.distance(&given.remote, NodeInfo::REMOTE_DISTANCE)?;
        let same_socket = self.distance(&given.same_socket, remote)?;
        let between = |a: u32, b: u32| {
            if a == b {
                local
            } else if nodes[&a].socket.is_some() && nodes[&a].socket == nodes[&b].socket {
                same_socket
            } else {
                remote
            }
        };
        if let Some(matrix) = &given.matrix {
            let rows = matrix.get_ref();
            if rows.len() != nodes.len() || rows.iter().any(|row| row.len() != nodes.len()) {
                let what = format!("matrix is not {0} by {0}, the number of nodes", nodes.len());
                return Err(self.wrong(matrix, &what, "one row and one column per node"));
            }
            // Whatever a firmware says of its nodes, as long as it fits.
            if let Some(distance) = rows.iter().flatten().find(|d| !(1..=254).contains(*d)) {
                let what = format!("a distance of {distance}");
                return Err(self.wrong(matrix, &what, "from 1 to 254, 10 of a node to itself"));
            }
            if given.local.is_some() || given.same_socket.is_some() || given.remote.is_some() {
                let what = "matrix beside local, same_socket or remote";
                return Err(self.wrong(matrix, what, "give either"));
            }
        }
        let raw = nodes.iter().enumerate().map(|(row, (id, place))| {
            let distances = nodes.keys().enumerate().map(|(column, other)| {
                let distance = match &given.matrix {
                    Some(matrix) => matrix.get_ref()[row][column],
                    None => between(*id, *other),
                };
                (*other, distance)
            });
            RawNode {
                id: *id,
                distances: distances.collect(),
                memory_bytes: place.memory_bytes,
            }
        });
        Ok(raw.collect())
    }
}

/// SLIT distances of nodes in reach.
const DISTANCES: RangeInclusive<u32> = 10..=254;

/// Where a node is.
#[derive(Clone, Copy)]
struct NodePlace {
    /// The package, if the node lies in one.
    socket: Option<u32>,
    memory_bytes: Option<u64>,
}

/// Walks the groups in order of the file. Labels are running numbers.
struct Walk<'a> {
    file: &'a MachineFile,
    /// Still without CPU numbers.
    cpus: Vec<RawCpu>,
    /// Of each CPU its place in its core.
    threads: Vec<u32>,
    nodes: BTreeMap<u32, NodePlace>,
    next_socket: u32,
    next_node: u32,
    next_llc: u32,
    next_cluster: u32,
    next_core: u32,
}

impl<'a> Walk<'a> {
    fn new(file: &'a MachineFile) -> Result<Self, TopoError> {
        let nr_cpus = count_cpus(file)?;
        // Offline CPUs may have places too, hence not MAX_CPUS; that is checked when all is known.
        if nr_cpus > u64::from(MAX_CPU_NUMBER) + 1 {
            return Err(TopoError::TooManyCpus {
                origin: file.text.origin().into(),
                nr_cpus,
            });
        }
        let sockets_with_id = file.sockets.iter().filter(|s| s.id.is_some()).count();
        let node_groups: Vec<&NodeGroup> = file.sockets.iter().flat_map(|s| &s.nodes).collect();
        let nodes_with_id = node_groups.iter().filter(|n| n.id.is_some()).count();
        let mixed = |with: usize, all: usize| with != 0 && with != all;
        for (kind, is_mixed) in [
            ("socket", mixed(sockets_with_id, file.sockets.len())),
            ("node", mixed(nodes_with_id, node_groups.len())),
        ] {
            if is_mixed {
                return Err(TopoError::Inconsistent {
                    origin: file.text.origin().into(),
                    what: format!("some {kind}s have an id and others have none"),
                    remedy: format!("give every {kind} an id, or none"),
                });
            }
        }
        Ok(Self {
            file,
            cpus: Vec::new(),
            threads: Vec::new(),
            nodes: BTreeMap::new(),
            next_socket: 0,
            next_node: 0,
            next_llc: 0,
            next_cluster: 0,
            next_core: 0,
        })
    }

    fn sockets(&mut self) -> Result<(), TopoError> {
        let file = self.file;
        for group in &file.sockets {
            let count = file.count(&group.count)?;
            self.refuse_shared_id(&group.id, count)?;
            for _ in 0..count {
                let socket = group
                    .id
                    .as_ref()
                    .map_or(self.next_socket, |id| *id.get_ref());
                self.next_socket += 1;
                for node in &group.nodes {
                    self.nodes_of(socket, node)?;
                }
            }
        }
        Ok(())
    }

    fn refuse_shared_id(&self, id: &Option<Spanned<u32>>, count: u32) -> Result<(), TopoError> {
        match id {
            Some(id) if count > 1 => {
                let remedy = "write a group of its own for each id";
                Err(self.file.wrong(id, "one id for several", remedy))
            }
            Some(id) if *id.get_ref() > MAX_CPU_NUMBER => {
                Err(self.file.wrong(id, "id out of range", "ids are 0 to 65535"))
            }
            _ => Ok(()),
        }
    }

    fn nodes_of(&mut self, socket: u32, group: &NodeGroup) -> Result<(), TopoError> {
        let count = self.file.count(&group.count)?;
        self.refuse_shared_id(&group.id, count)?;
        for _ in 0..count {
            let node = group.id.as_ref().map_or(self.next_node, |id| *id.get_ref());
            self.next_node += 1;
            let place = self.nodes.entry(node).or_insert(NodePlace {
                socket: Some(socket),
                memory_bytes: group.memory_bytes,
            });
            if place.socket != Some(socket) {
                place.socket = None;
            }
            for llc in &group.llcs {
                for _ in 0..self.file.count(&llc.count)? {
                    self.cores_of(socket, node, llc)?;
                    self.next_llc += 1;
                }
            }
        }
        Ok(())
    }

    fn cores_of(&mut self, socket: u32, node: u32, llc: &LlcGroup) -> Result<(), TopoError> {
        let mut last_cluster = None;
        for group in &llc.cores {
            let core_type = self.core_type_of(group)?;
            let threads = self.file.count(&group.threads)?;
            let joins = group.same_cluster.as_ref().filter(|joins| *joins.get_ref());
            if let Some(joins) = joins {
                if group.clusters.is_some() || last_cluster.is_none() {
                    let remedy = "only for a group without `clusters`, after one with them";
                    return Err(self
                        .file
                        .wrong(joins, "same_cluster joins no cluster", remedy));
                }
            }
            for _ in 0..self.file.count(&group.clusters)? {
                let cluster = match joins {
                    Some(_) => last_cluster,
                    None => group.clusters.as_ref().map(|_| self.next_cluster),
                };
                self.next_cluster += 1;
                last_cluster = cluster;
                for _ in 0..self.file.count(&group.count)? {
                    let core = self.next_core;
                    self.next_core += 1;
                    for thread in 0..threads {
                        self.threads.push(thread);
                        self.cpus.push(RawCpu {
                            cpu: Cpu(0), // numbered once all are known
                            package: socket,
                            node,
                            llc: self.next_llc,
                            cluster,
                            core,
                            core_type,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn core_type_of(&self, group: &CoreGroup) -> Result<u32, TopoError> {
        let types = &self.file.core_types;
        match &group.kind {
            Some(kind) => match (0..)
                .zip(types)
                .find(|(_, t)| t.name.get_ref() == kind.get_ref())
            {
                Some((index, _)) => Ok(index),
                None => Err(self
                    .file
                    .wrong(kind, "unknown core type", "add a [[core_type]]")),
            },
            None if types.len() <= 1 => Ok(0),
            None => Err(TopoError::Inconsistent {
                origin: self.file.text.origin().into(),
                what: format!(
                    "{} core types, and a group of cores that names none",
                    types.len()
                ),
                remedy: "give every [[socket.node.llc.core]] a `type`".into(),
            }),
        }
    }
}

/// How many CPUs the groups stand for, before any is made. Saturates. No group may be empty: the
/// number of CPUs then bounds the number of sockets, nodes and LLCs as well.
fn count_cpus(file: &MachineFile) -> Result<u64, TopoError> {
    let count = |count: &Option<Spanned<u32>>| file.count(count).map(u64::from);
    let refuse_empty = |is_empty: bool, outer: &str, inner: &str| match is_empty {
        false => Ok(()),
        true => Err(TopoError::Inconsistent {
            origin: file.text.origin().into(),
            what: format!("a {outer} without a {inner}"),
            remedy: "describe it, or leave the group out".into(),
        }),
    };
    let mut total: u64 = 0;
    for socket in &file.sockets {
        refuse_empty(socket.nodes.is_empty(), "socket", "node")?;
        for node in &socket.nodes {
            refuse_empty(node.llcs.is_empty(), "node", "llc")?;
            for llc in &node.llcs {
                refuse_empty(llc.cores.is_empty(), "llc", "core")?;
                for core in &llc.cores {
                    let factors = [
                        count(&socket.count)?,
                        count(&node.count)?,
                        count(&llc.count)?,
                        count(&core.clusters)?,
                        count(&core.count)?,
                        count(&core.threads)?,
                    ];
                    let cpus = factors.into_iter().fold(1u64, u64::saturating_mul);
                    total = total.saturating_add(cpus);
                }
            }
        }
    }
    Ok(total)
}
