// SPDX-License-Identifier: GPL-2.0-only
//! The shape of a guest: how many NUMA nodes, LLCs, cores and threads its CPUs form, or which of its CPUs are
//! strong and which weak.
//!
//! Shapes are written and read by `usher-topo` (`2n2l2c2t`, `4b4l`, or the name of a small built-in machine). The
//! emulator can build two kinds of machines, and those are what is kept here: nodes, LLCs and cores all alike
//! ([`Regular`], x86-64), or clusters of unequal CPUs under one memory ([`Cluster`], arm64).

use std::collections::BTreeSet;
use std::fmt;

use usher_topo::{RawCpu, RawTopology};

use crate::arch::Arch;
use crate::error::LabError;

/// Most CPUs that a guest can have: the emulated interrupt controllers have 8-bit ids and one is reserved.
pub const GUEST_CPUS_MAX: u32 = 255;

/// SLIT distance of a node to itself and, unless told otherwise, to every other.
const DISTANCE_LOCAL: u32 = 10;
const DISTANCE_REMOTE: u32 = 20;

/// A guest's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// As the user wrote it.
    name: String,
    /// How they are arranged.
    pub layout: Layout,
}

/// The two kinds of machines that the emulator can build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Every node, LLC and core alike.
    Regular(Regular),
    /// Clusters of unequal CPUs, at least two, in order of CPU number; one node, one thread per core.
    Unequal(Vec<Cluster>),
}

/// A regular machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regular {
    /// NUMA nodes, 1 or more.
    pub nodes: u32,
    /// LLCs per node, 1 or more.
    pub llcs: u32,
    /// Cores per LLC, 1 or more.
    pub cores: u32,
    /// Hardware threads per core: 1, 2, 4 or 8.
    pub threads: u32,
    /// SLIT distances between nodes, row by row, `nodes * nodes` of them.
    distances: Vec<u32>,
}

/// Neighbouring CPUs of one kind under one LLC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Number of its first CPU.
    pub first: u32,
    /// How many CPUs.
    pub cpus: u32,
    /// What the guest's kernel is told that each is worth: 1024 for the strongest.
    pub capacity: u32,
    /// How fast each really is, in thousandths of the strongest.
    pub speed_permille: u32,
}

impl Cluster {
    /// Its CPUs as the kernel writes them: `4-7`, or `4` for one alone.
    pub fn cpu_list(&self) -> String {
        match self.cpus {
            1 => self.first.to_string(),
            cpus => format!("{}-{}", self.first, self.first + cpus - 1),
        }
    }
}

impl Shape {
    /// The guest that looks like this machine, or the reason why there can be none.
    pub fn of_machine(machine: &RawTopology) -> Result<Self, LabError> {
        let fail = |why: String| LabError::Shape {
            shape: machine.name.clone(),
            why,
        };
        let cpus = machine.cpus.len() as u32;
        if cpus > GUEST_CPUS_MAX {
            return Err(fail(format!(
                "{cpus} CPUs; an emulated guest has at most {GUEST_CPUS_MAX}"
            )));
        }
        if cpus == 0 {
            return Err(fail("no CPU".into()));
        }
        let mut list = machine.cpus.clone();
        list.sort_by_key(|cpu| cpu.cpu);
        let capacity = |cpu: &RawCpu| machine.core_types[cpu.core_type as usize].capacity;
        let alike = list.iter().all(|cpu| capacity(cpu) == capacity(&list[0]));
        let layout = match alike {
            true => Layout::Regular(regular(machine, &list).map_err(fail)?),
            false => Layout::Unequal(clusters(machine, &list).map_err(fail)?),
        };
        let name = machine.name.clone();
        Ok(Shape { name, layout })
    }

    /// CPUs in all.
    pub fn cpus(&self) -> u32 {
        match &self.layout {
            Layout::Regular(regular) => regular.nodes * regular.cpus_per_node(),
            Layout::Unequal(clusters) => clusters.iter().map(|cluster| cluster.cpus).sum(),
        }
    }

    /// The clusters of unequal CPUs; none where all are alike.
    pub fn clusters(&self) -> &[Cluster] {
        match &self.layout {
            Layout::Regular(_) => &[],
            Layout::Unequal(clusters) => clusters,
        }
    }

    /// How fast each CPU is to be, in thousandths of the strongest, in order of number.
    pub fn speeds_permille(&self) -> Vec<u32> {
        match &self.layout {
            Layout::Regular(_) => vec![1000; self.cpus() as usize],
            Layout::Unequal(clusters) => clusters
                .iter()
                .flat_map(|c| std::iter::repeat_n(c.speed_permille, c.cpus as usize))
                .collect(),
        }
    }

    /// The instruction set that such a guest has.
    pub fn arch(&self) -> Arch {
        match &self.layout {
            Layout::Regular(_) => Arch::X86_64,
            Layout::Unequal(_) => Arch::Arm64,
        }
    }
}

impl Regular {
    /// CPUs of one node; the guest numbers them contiguously, node by node.
    pub fn cpus_per_node(&self) -> u32 {
        self.llcs * self.cores * self.threads
    }

    /// SLIT distance between two nodes, both counted from 0 in order of their CPUs.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        self.distances[(from * self.nodes + to) as usize]
    }
}

/// The regular machine of these CPUs, in order of number, or why it is none.
fn regular(machine: &RawTopology, list: &[RawCpu]) -> Result<Regular, String> {
    let cpus = list.len() as u32;
    // Walk the CPUs and demand that each level begins where a regular machine has it. Labels need only
    // be equal within and different between groups, never dense.
    let groups = |label: &dyn Fn(usize) -> (u32, u32, u32)| {
        (0..list.len())
            .filter(|&i| i == 0 || label(i) != label(i - 1))
            .count() as u32
    };
    let nodes = groups(&|i| (list[i].node, 0, 0));
    let all_llcs = groups(&|i| (list[i].node, list[i].llc, 0));
    let all_cores = groups(&|i| (list[i].node, list[i].llc, list[i].core));
    let (llcs, cores) = (all_llcs / nodes, all_cores / all_llcs);
    let threads = cpus / all_cores;
    let regular = Regular {
        nodes,
        llcs,
        cores,
        threads,
        distances: Vec::new(),
    };
    let is_so = nodes * regular.cpus_per_node() == cpus
        && list.iter().enumerate().all(|(index, cpu)| {
            let index = index as u32;
            let at = |size: u32| list[(index / size * size) as usize];
            cpu.cpu.0 == index
                && at(regular.cpus_per_node()).node == cpu.node
                && at(regular.cores * threads).llc == cpu.llc
                && at(threads).core == cpu.core
        });
    if !is_so || machine.nodes.len() > nodes as usize {
        return Err("nodes, LLCs or cores differ from one another; a guest's are all alike".into());
    }
    if ![1, 2, 4, 8].contains(&threads) {
        return Err(format!(
            "{threads} threads per core; a guest has 1, 2, 4 or 8"
        ));
    }
    let node_of_cpu: Vec<u32> = list.iter().map(|cpu| cpu.node).collect();
    let distances = distances(machine, &node_of_cpu)?;
    Ok(Regular {
        distances,
        ..regular
    })
}

/// The clusters of these unequal CPUs, in order of number, or why no guest can have them.
fn clusters(machine: &RawTopology, list: &[RawCpu]) -> Result<Vec<Cluster>, String> {
    let cores: BTreeSet<u32> = list.iter().map(|cpu| cpu.core).collect();
    if cores.len() < list.len() {
        return Err("unequal CPUs with several threads per core; an arm64 guest's have one".into());
    }
    let mut clusters: Vec<Cluster> = Vec::new();
    let mut seen = Vec::new();
    for (index, cpu) in list.iter().enumerate() {
        let kind = &machine.core_types[cpu.core_type as usize];
        if cpu.cpu.0 != index as u32 || cpu.node != list[0].node {
            return Err(
                "unequal CPUs in more than one node, or with gaps between their numbers".into(),
            );
        }
        let before = index.checked_sub(1).map(|before| list[before]);
        match clusters
            .last_mut()
            .filter(|_| before.is_some_and(|b| b.llc == cpu.llc && b.core_type == cpu.core_type))
        {
            Some(cluster) => cluster.cpus += 1,
            None if seen.contains(&cpu.llc) => {
                return Err("CPUs of unequal capacity under one LLC, or one LLC in pieces".into());
            }
            None => {
                seen.push(cpu.llc);
                clusters.push(Cluster {
                    first: index as u32,
                    cpus: 1,
                    capacity: kind.capacity,
                    speed_permille: kind.speed_permille,
                });
            }
        }
    }
    Ok(clusters)
}

/// The distances between the nodes of `node_of_cpu` in order of appearance; QEMU wants 10 on the
/// diagonal and 11 to 254 elsewhere, which is ACPI's rule.
fn distances(machine: &RawTopology, node_of_cpu: &[u32]) -> Result<Vec<u32>, String> {
    let mut ids: Vec<u32> = Vec::new();
    for &id in node_of_cpu {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let mut out = Vec::with_capacity(ids.len() * ids.len());
    for from in &ids {
        let told = machine
            .nodes
            .iter()
            .find(|node| node.id == *from)
            .map(|node| &node.distances);
        for to in &ids {
            let default = if from == to {
                DISTANCE_LOCAL
            } else {
                DISTANCE_REMOTE
            };
            let value = told.and_then(|map| map.get(to).copied()).unwrap_or(default);
            let legal = if from == to {
                value == DISTANCE_LOCAL
            } else {
                (11..255).contains(&value)
            };
            if !legal {
                return Err(format!(
                    "distance {value} from node {from} to node {to}; ACPI has no such"
                ));
            }
            out.push(value);
        }
    }
    Ok(out)
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

impl std::str::FromStr for Shape {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let mut machine = usher_topo::shape::parse(text)?;
        machine.name = text.into();
        Shape::of_machine(&machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a shape's levels arrive as they were written. Method: a full one and a short one.
    #[test]
    fn shapes_are_read() {
        let regular = |text: &str| {
            let shape: Shape = text.parse().unwrap();
            assert_eq!(shape.arch(), Arch::X86_64);
            match shape.layout.clone() {
                Layout::Regular(regular) => (shape, regular),
                other => panic!("{text}: {other:?}"),
            }
        };
        let (shape, levels) = regular("2n2l2c4t");
        assert_eq!(
            (levels.nodes, levels.llcs, levels.cores, levels.threads),
            (2, 2, 2, 4)
        );
        assert_eq!((shape.cpus(), levels.cpus_per_node()), (32, 16));
        assert_eq!((levels.distance(0, 0), levels.distance(0, 1)), (10, 20));
        let (_, levels) = regular("16c");
        assert_eq!(
            (levels.nodes, levels.llcs, levels.cores, levels.threads),
            (1, 1, 16, 1)
        );
        assert!(shape.clusters().is_empty());
        assert_eq!(shape.speeds_permille(), [1000; 32]);
    }

    /// Goal: what no guest can be is wrong use, in a line that names the shape. Method: one of each kind.
    #[test]
    fn impossible_shapes_are_refused() {
        for (text, why) in [
            ("0n2l", "0n2l"),
            ("2x", "2x"),
            ("64n8c", "at most 255"),
            ("2n2l2c3t", "3 threads"),
            ("hybrid-8p16e", "several threads per core"),
        ] {
            let error = text.parse::<Shape>().unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
            let line = error.to_string();
            assert!(line.contains(why) && line.contains(text), "{text}: {line}");
        }
    }

    /// Goal: strong and weak CPUs arrive with what the kernel is told of them and with how fast they are. Method:
    /// a shape and the two names of a machine whose capacity and speed differ.
    #[test]
    fn unequal_shapes_are_read() {
        let shape: Shape = "4b4l".parse().unwrap();
        assert_eq!((shape.cpus(), shape.arch()), (8, Arch::Arm64));
        assert_eq!(shape.to_string(), "4b4l");
        let [strong, weak] = shape.clusters() else {
            panic!("{shape:?}")
        };
        assert_eq!(
            (strong.cpu_list(), weak.cpu_list()),
            ("0-3".into(), "4-7".into())
        );
        assert_eq!((strong.capacity, strong.speed_permille), (1024, 1000));
        assert_eq!((weak.capacity, weak.speed_permille), (446, 435));
        let shape: Shape = "tc2".parse().unwrap();
        assert_eq!(shape.to_string(), "tc2");
        assert_eq!(shape.speeds_permille(), [1000, 1000, 490, 490, 490]);
        assert_eq!(
            shape.clusters(),
            "tc2-2a15-3a7".parse::<Shape>().unwrap().clusters()
        );
        assert_eq!(
            "1b1l".parse::<Shape>().unwrap().clusters()[1].cpu_list(),
            "1"
        );
    }

    /// Goal: unequal CPUs that no device tree of ours describes are refused. Method: change one property of such a
    /// machine at a time.
    #[test]
    fn unequal_machines_are_checked() {
        let machine = usher_topo::shape::parse("2b2l").unwrap();
        let refused = |change: &dyn Fn(&mut RawTopology)| {
            let mut changed = machine.clone();
            change(&mut changed);
            Shape::of_machine(&changed).unwrap_err().to_string()
        };
        assert!(Shape::of_machine(&machine).is_ok());
        let said = refused(&|machine| machine.cpus[2].node = 1);
        assert!(said.contains("more than one node"), "{said}");
        let said = refused(&|machine| machine.cpus[3].cpu.0 = 5);
        assert!(said.contains("gaps"), "{said}");
        let said = refused(&|machine| machine.cpus[1].core = machine.cpus[0].core);
        assert!(said.contains("several threads"), "{said}");
        let said = refused(&|machine| machine.cpus[2].llc = machine.cpus[0].llc);
        assert!(said.contains("under one LLC"), "{said}");
    }

    /// Goal: distances are carried over, irregular machines and impossible distances are refused.
    /// Method: change one property of a regular machine at a time.
    #[test]
    fn machines_are_checked() {
        let regular = usher_topo::shape::parse("2n2l2c1t").unwrap();
        let mut far = regular.clone();
        far.nodes[0].distances.insert(1, 32);
        let distance = |machine, from, to| match Shape::of_machine(machine).unwrap().layout {
            Layout::Regular(regular) => regular.distance(from, to),
            other => panic!("{other:?}"),
        };
        assert_eq!(distance(&far, 0, 1), 32);
        assert_eq!(distance(&far, 1, 0), 20);
        far.nodes[0].distances.insert(1, 5);
        assert!(Shape::of_machine(&far)
            .unwrap_err()
            .to_string()
            .contains("distance 5"));
        let mut uneven = regular.clone();
        uneven.cpus.pop();
        assert!(Shape::of_machine(&uneven)
            .unwrap_err()
            .to_string()
            .contains("differ"));
        let mut mixed = regular.clone();
        mixed.cpus[1].llc = mixed.cpus[2].llc;
        assert!(Shape::of_machine(&mixed).is_err());
    }
}
