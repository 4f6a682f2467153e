// SPDX-License-Identifier: GPL-2.0-only
//! The device tree of a guest with unequal CPUs.
//!
//! The emulator describes its own board; what it cannot be told is what differs here: how much each CPU is worth
//! (`capacity-dmips-mhz`), which CPUs form a cluster (`cpu-map`), and which share their last cache
//! (`next-level-cache`). So its tree is read, changed, and handed back to it. Names of the kernel's
//! Documentation/devicetree/bindings: cpu/cpu-capacity.txt, cpu/cpu-topology.txt, and the Devicetree Specification,
//! section 3.8 on caches.

use crate::fdt::{Node, Tree};
use crate::shape::Cluster;

/// The level of the cache that a cluster shares: the emulated CPUs say of themselves that they have two.
const CLUSTER_CACHE_LEVEL: u32 = 2;

/// Describes the clusters in the emulator's tree; the error says what in that tree was not as expected.
pub fn describe(tree: &mut Tree, clusters: &[Cluster]) -> Result<(), String> {
    let mut phandle = tree.root.phandle_max();
    let mut next_phandle = || {
        phandle += 1;
        phandle
    };
    let cpus = tree.root.child("cpus").ok_or("it has no node /cpus")?;
    cpus.children.retain(|node| node.name != "cpu-map");
    let wanted: u32 = clusters.iter().map(|cluster| cluster.cpus).sum();
    let is_cpu = |node: &&mut Node| node.property("device_type") == Some(b"cpu\0");
    // The kernel numbers CPUs in the order of their nodes.
    let mut of_cpus = cpus.children.iter_mut().filter(is_cpu);
    let mut map = Node::new("cpu-map");
    let mut caches = Vec::new();
    for (index, cluster) in clusters.iter().enumerate() {
        let mut cache = Node::new(&format!("l{CLUSTER_CACHE_LEVEL}-cache{index}"));
        let cache_phandle = next_phandle();
        cache.set_text("compatible", "cache");
        cache.set_cell("cache-level", CLUSTER_CACHE_LEVEL);
        cache.set("cache-unified", Vec::new());
        cache.set_cell("phandle", cache_phandle);
        caches.push(cache);
        let mut in_map = Node::new(&format!("cluster{index}"));
        for (core, cpu) in of_cpus.by_ref().take(cluster.cpus as usize).enumerate() {
            cpu.set_cell("capacity-dmips-mhz", cluster.capacity);
            cpu.set_cell("next-level-cache", cache_phandle);
            let own = cpu.cell("phandle").unwrap_or_else(&mut next_phandle);
            cpu.set_cell("phandle", own);
            let mut in_cluster = Node::new(&format!("core{core}"));
            in_cluster.set_cell("cpu", own);
            in_map.children.push(in_cluster);
        }
        if in_map.children.len() < cluster.cpus as usize {
            return Err(format!("it has fewer than {wanted} CPUs"));
        }
        map.children.push(in_map);
    }
    if of_cpus.next().is_some() {
        return Err(format!("it has more than {wanted} CPUs"));
    }
    cpus.children.push(map);
    cpus.children.extend(caches);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    /// A tree as the emulator writes it, as far as it matters here.
    fn emulators(cpus: u32) -> Tree {
        let mut all = Node::new("cpus");
        let mut old_map = Node::new("cpu-map");
        old_map.children.push(Node::new("socket0"));
        all.children.push(old_map);
        for index in 0..cpus {
            let mut cpu = Node::new(&format!("cpu@{index:x}"));
            cpu.set_cell("phandle", 0x8000 + index);
            cpu.set_text("device_type", "cpu");
            all.children.push(cpu);
        }
        let mut clock = Node::new("apb-pclk");
        clock.set_cell("phandle", 0x8100);
        let mut root = Node::new("");
        root.children.extend([clock, all]);
        Tree {
            reserved: Vec::new(),
            boot_cpu: 0,
            root,
        }
    }

    fn clusters(shape: &str) -> Vec<Cluster> {
        shape.parse::<Shape>().unwrap().clusters().to_vec()
    }

    /// Goal: every CPU has its capacity, its cluster and its cluster's cache, and no two nodes share a phandle.
    /// Method: a machine of two and three.
    #[test]
    fn clusters_are_described() {
        let mut tree = emulators(5);
        describe(&mut tree, &clusters("tc2")).unwrap();
        let cpus = tree.root.child("cpus").unwrap();
        let values = |name: &str| -> Vec<u32> {
            let nodes = cpus
                .children
                .iter()
                .filter(|node| node.name.starts_with("cpu@"));
            nodes.filter_map(|node| node.cell(name)).collect()
        };
        assert_eq!(values("capacity-dmips-mhz"), [1024, 1024, 430, 430, 430]);
        let caches = values("next-level-cache");
        assert_eq!(caches, [0x8101, 0x8101, 0x8102, 0x8102, 0x8102]);
        assert_eq!(values("phandle"), [0x8000, 0x8001, 0x8002, 0x8003, 0x8004]);
        let cache = cpus.child("l2-cache1").unwrap();
        assert_eq!(
            (cache.cell("phandle"), cache.cell("cache-level")),
            (Some(0x8102), Some(2))
        );
        let map = cpus.child("cpu-map").unwrap();
        assert_eq!(map.children.len(), 2, "the old map is gone");
        let weak = map.child("cluster1").unwrap();
        let of_map: Vec<_> = weak
            .children
            .iter()
            .filter_map(|core| core.cell("cpu"))
            .collect();
        assert_eq!(of_map, [0x8002, 0x8003, 0x8004]);
    }

    /// Goal: a tree of another machine is refused. Method: one CPU less, one more, none.
    #[test]
    fn other_machines_are_refused() {
        let wanted = clusters("4b4l");
        let error = |cpus| describe(&mut emulators(cpus), &wanted).unwrap_err();
        assert!(error(7).contains("fewer than 8"), "{}", error(7));
        assert!(error(9).contains("more than 8"), "{}", error(9));
        let mut empty = emulators(0);
        empty.root.children.clear();
        assert!(describe(&mut empty, &wanted).unwrap_err().contains("/cpus"));
    }
}
