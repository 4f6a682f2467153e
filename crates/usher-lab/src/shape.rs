// SPDX-License-Identifier: GPL-2.0-only
//! The shape of a guest: how many NUMA nodes, LLCs, cores and threads its CPUs form.
//!
//! Shapes are written and read by `usher-topo` (`2n2l2c2t`, or the name of a small built-in machine); the
//! emulator can only build machines whose nodes, LLCs and cores are all alike, so that is what is kept here.

use std::fmt;

use usher_topo::{RawTopology, CAPACITY_MAX};

use crate::error::LabError;

/// Most CPUs that a guest can have: the emulated interrupt controllers have 8-bit ids and one is reserved.
pub const GUEST_CPUS_MAX: u32 = 255;

/// SLIT distance of a node to itself and, unless told otherwise, to every other.
const DISTANCE_LOCAL: u32 = 10;
const DISTANCE_REMOTE: u32 = 20;

/// A regular machine: every node, LLC and core alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// As the user wrote it.
    name: String,
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
        if machine
            .core_types
            .iter()
            .any(|kind| kind.capacity != CAPACITY_MAX)
        {
            return Err(fail(
                "cores of unequal capacity; an x86 guest's are all alike".into(),
            ));
        }
        // Walk the CPUs in order of number and demand that each level begins where a regular machine
        // has it. Labels need only be equal within and different between groups, never dense.
        let mut list: Vec<_> = machine.cpus.iter().collect();
        list.sort_by_key(|cpu| cpu.cpu);
        let groups = |label: &dyn Fn(usize) -> (u32, u32, u32)| {
            (0..list.len())
                .filter(|&i| i == 0 || label(i) != label(i - 1))
                .count() as u32
        };
        let nodes = groups(&|i| (list[i].node, 0, 0));
        let all_llcs = groups(&|i| (list[i].node, list[i].llc, 0));
        let all_cores = groups(&|i| (list[i].node, list[i].llc, list[i].core));
        if nodes == 0 {
            return Err(fail("no CPU".into()));
        }
        let (llcs, cores) = (all_llcs / nodes, all_cores / all_llcs);
        let threads = cpus / all_cores;
        let name = machine.name.clone();
        let shape = Shape {
            name,
            nodes,
            llcs,
            cores,
            threads,
            distances: Vec::new(),
        };
        let regular = shape.cpus() == cpus
            && list.iter().enumerate().all(|(index, cpu)| {
                let index = index as u32;
                let at = |size: u32| list[(index / size * size) as usize];
                cpu.cpu.0 == index
                    && at(shape.cpus_per_node()).node == cpu.node
                    && at(shape.cores * threads).llc == cpu.llc
                    && at(threads).core == cpu.core
            });
        if !regular || machine.nodes.len() > nodes as usize {
            return Err(fail(
                "nodes, LLCs or cores differ from one another; a guest's are all alike".into(),
            ));
        }
        if ![1, 2, 4, 8].contains(&threads) {
            return Err(fail(format!(
                "{threads} threads per core; a guest has 1, 2, 4 or 8"
            )));
        }
        let distances = distances(
            machine,
            &list.iter().map(|cpu| cpu.node).collect::<Vec<_>>(),
        )
        .map_err(fail)?;
        Ok(Shape { distances, ..shape })
    }

    /// CPUs in all.
    pub fn cpus(&self) -> u32 {
        self.nodes * self.cpus_per_node()
    }

    /// CPUs of one node; the guest numbers them contiguously, node by node.
    pub fn cpus_per_node(&self) -> u32 {
        self.llcs * self.cores * self.threads
    }

    /// SLIT distance between two nodes, both counted from 0 in order of their CPUs.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        self.distances[(from * self.nodes + to) as usize]
    }
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
        let shape: Shape = "2n2l2c4t".parse().unwrap();
        assert_eq!(
            (shape.nodes, shape.llcs, shape.cores, shape.threads),
            (2, 2, 2, 4)
        );
        assert_eq!((shape.cpus(), shape.cpus_per_node()), (32, 16));
        assert_eq!((shape.distance(0, 0), shape.distance(0, 1)), (10, 20));
        let shape: Shape = "16c".parse().unwrap();
        assert_eq!(
            (shape.nodes, shape.llcs, shape.cores, shape.threads),
            (1, 1, 16, 1)
        );
    }

    /// Goal: what no guest can be is wrong use, in a line that names the shape. Method: one of each kind.
    #[test]
    fn impossible_shapes_are_refused() {
        for (text, why) in [
            ("0n2l", "0n2l"),
            ("2x", "2x"),
            ("64n8c", "at most 255"),
            ("2n2l2c3t", "3 threads"),
            ("4b4l", "unequal capacity"),
        ] {
            let error = text.parse::<Shape>().unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
            let line = error.to_string();
            assert!(line.contains(why) && line.contains(text), "{text}: {line}");
        }
    }

    /// Goal: distances are carried over, irregular machines and impossible distances are refused.
    /// Method: change one property of a regular machine at a time.
    #[test]
    fn machines_are_checked() {
        let regular = usher_topo::shape::parse("2n2l2c1t").unwrap();
        let mut far = regular.clone();
        far.nodes[0].distances.insert(1, 32);
        assert_eq!(Shape::of_machine(&far).unwrap().distance(0, 1), 32);
        assert_eq!(Shape::of_machine(&far).unwrap().distance(1, 0), 20);
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
