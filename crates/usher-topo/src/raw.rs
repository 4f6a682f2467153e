// SPDX-License-Identifier: GPL-2.0-only
//! What a reader found, before anything is numbered.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::ids::Cpu;

/// Capacity of the strongest CPU, as in the kernel (`SCHED_CAPACITY_SCALE`).
pub const CAPACITY_MAX: u32 = 1024;

/// A machine as a reader found it. Labels (`core`, `cluster`, `llc`, `package`) are arbitrary
/// numbers: two CPUs share a level if their labels are equal. They need not nest;
/// [`crate::Topology::build`] intersects them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawTopology {
    /// Short name, used in messages and output: `zen3-2s`, `live`, a file's name.
    pub name: String,
    /// One line for people; may be empty.
    pub title: String,
    /// The simulator's cost table, if the machine names one: built in (`data/costs`), or the path of a file.
    pub costs: Option<String>,
    /// The online CPUs, in any order.
    pub cpus: Vec<RawCpu>,
    /// CPUs that are present or possible but not online.
    pub offline: Vec<Cpu>,
    /// The NUMA nodes, in any order, those without CPUs included. A node that a CPU names and that is
    /// missing here has default distances.
    pub nodes: Vec<RawNode>,
    /// The kinds of cores. Never empty if there are CPUs.
    pub core_types: Vec<CoreType>,
}

impl RawTopology {
    /// Gives CPUs another capacity than the reader found, in 1024ths of the strongest; the others keep theirs, and a CPU
    /// that is not online is passed over. Speeds follow, where a CPU's capacity changes. Values above [`CAPACITY_MAX`] are
    /// refused by [`crate::Topology::build`], as everywhere.
    pub fn set_capacities(&mut self, capacities: &BTreeMap<Cpu, u32>) {
        let of_cpus: Vec<(u32, String)> = self
            .cpus
            .iter()
            .map(|cpu| {
                let kind = &self.core_types[cpu.core_type as usize];
                let capacity = capacities.get(&cpu.cpu).copied();
                // Kinds are told apart by a capacity in their name, which may be another now.
                let suffix = format!("-{}", kind.capacity);
                let name = kind.name.strip_suffix(&suffix).unwrap_or(&kind.name);
                (capacity.unwrap_or(kind.capacity), name.to_string())
            })
            .collect();
        let changed = self.cpus.iter().zip(&of_cpus).any(|(cpu, (capacity, _))| {
            self.core_types[cpu.core_type as usize].capacity != *capacity
        });
        if !changed {
            return;
        }
        let of_cpus: Vec<(u32, &str)> = of_cpus
            .iter()
            .map(|(capacity, name)| (*capacity, name.as_str()))
            .collect();
        let (kinds, of_cpus) = distinct_kinds(&of_cpus);
        let before = std::mem::replace(&mut self.core_types, kinds);
        for (cpu, kind) in self.cpus.iter_mut().zip(of_cpus) {
            let old = &before[cpu.core_type as usize];
            let new = &mut self.core_types[kind as usize];
            if old.capacity == new.capacity {
                (new.cpu_power, new.speed_permille) = (old.cpu_power, old.speed_permille);
            }
            cpu.core_type = kind;
        }
    }
}

/// One online CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawCpu {
    /// The kernel's number.
    pub cpu: Cpu,
    /// Label of the package (socket): the kernel's `physical_package_id` where there is one.
    pub package: u32,
    /// The kernel's id of the node.
    pub node: u32,
    /// Label of the last-level cache.
    pub llc: u32,
    /// Label of the L2 cluster, for a core that shares its L2 with others.
    pub cluster: Option<u32>,
    /// Label of the core.
    pub core: u32,
    /// Index into [`RawTopology::core_types`].
    pub core_type: u32,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawNode {
    /// The kernel's id.
    pub id: u32,
    /// SLIT distance to other nodes (and itself) by their kernel id. Missing ones default to
    /// [`crate::NodeInfo::LOCAL_DISTANCE`] and [`crate::NodeInfo::REMOTE_DISTANCE`].
    pub distances: BTreeMap<u32, u32>,
    /// Size of the node's memory, if known.
    pub memory_bytes: Option<u64>,
}

/// A kind of core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoreType {
    /// Name, for people.
    pub name: String,
    /// What the kernel believes the CPU is worth: 0 to [`CAPACITY_MAX`].
    pub capacity: u32,
    /// `cpu_power` of a 3.9-era kernel, which used another scale than `capacity`.
    pub cpu_power: Option<u32>,
    /// Measured speed in thousandths of the strongest type's. This is what the work really takes;
    /// `capacity` is what the kernel believes, and the two may differ.
    pub speed_permille: u32,
}

impl CoreType {
    /// The only type of a machine that says nothing about its cores.
    pub fn uniform() -> Self {
        Self::of_capacity("cpu", CAPACITY_MAX)
    }

    /// A type of which nothing but the capacity is known: its speed is taken to be proportional.
    pub fn of_capacity(name: impl Into<String>, capacity: u32) -> Self {
        Self {
            name: name.into(),
            capacity,
            cpu_power: None,
            speed_permille: (capacity * 1000 / CAPACITY_MAX).max(1),
        }
    }
}

/// The kinds of cores, strongest first, and for each CPU the index of its kind, given what is known of
/// each CPU: capacity and a name. Kinds that share a name are told apart by their capacity.
pub(crate) fn distinct_kinds(of_cpus: &[(u32, &str)]) -> (Vec<CoreType>, Vec<u32>) {
    let distinct: BTreeSet<(u32, &str)> = of_cpus.iter().copied().collect();
    let order: Vec<(u32, &str)> = distinct.into_iter().rev().collect();
    let types = order.iter().map(|(capacity, name)| {
        let alone = order.iter().filter(|(_, other)| other == name).count() == 1;
        let name = if alone {
            (*name).to_string()
        } else {
            format!("{name}-{capacity}")
        };
        CoreType::of_capacity(name, *capacity)
    });
    let index_of = |kind| {
        let index = order
            .iter()
            .position(|other| other == kind)
            .expect("order has every kind");
        u32::try_from(index).expect("no more kinds than CPUs")
    };
    (types.collect(), of_cpus.iter().map(index_of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: CPUs get the capacities given, and no others; kinds are strongest first and named after what they are now; what
    // is the same changes nothing. Method: the machine of the 2013 proposal.
    #[test]
    fn capacities_are_replaced_by_cpu() {
        let source = crate::Source::Machine("tc2-2a15-3a7".into());
        let read = source.read().expect("a built-in machine");
        let of = |raw: &RawTopology| -> Vec<u32> {
            let kind = |cpu: &RawCpu| raw.core_types[cpu.core_type as usize].capacity;
            raw.cpus.iter().map(kind).collect()
        };
        let strong_and_weak = of(&read);
        let weak = strong_and_weak[2];
        assert!(strong_and_weak[1] > weak);

        let mut raw = read.clone();
        let same = read.cpus.iter().map(|cpu| cpu.cpu).zip(of(&read));
        raw.set_capacities(&same.collect());
        assert_eq!(raw, read);

        raw.set_capacities(&BTreeMap::from([(Cpu(3), 300), (Cpu(77), 5)]));
        let mut expected = strong_and_weak.clone();
        expected[3] = 300;
        assert_eq!(of(&raw), expected);
        let kinds: Vec<(&str, u32, u32)> = raw
            .core_types
            .iter()
            .map(|kind| (kind.name.as_str(), kind.capacity, kind.speed_permille))
            .collect();
        let weak_name = read.core_types[1].name.as_str();
        let (weak_is, other_is) = (format!("{weak_name}-{weak}"), format!("{weak_name}-300"));
        let weak_speed = read.core_types[1].speed_permille;
        assert_eq!(
            kinds[1..],
            [(&*weak_is, weak, weak_speed), (&*other_is, 300, 292)]
        );

        // All alike again: one kind of that name.
        let all = raw.cpus.iter().map(|cpu| (cpu.cpu, CAPACITY_MAX));
        let all = all.collect();
        raw.set_capacities(&all);
        assert!(raw
            .core_types
            .iter()
            .all(|kind| kind.capacity == CAPACITY_MAX));
        crate::Topology::build(&raw, 64).expect("consistent");
    }
}
