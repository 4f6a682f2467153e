// SPDX-License-Identifier: GPL-2.0-only
//! 6.6 and 6.7: domains, groups and `imb_numa_nr` of the machines of the proposals.

use super::machine;
use crate::ids::{Cpu, Id};
use crate::machine::Machine;
use crate::policy::fair::domains::{Domains, Rules};

const RULES: Rules = Rules {
    pct_above_llc: 117,
    reclaim_distance: 32,
    cluster: true,
};

/// Per level of CPU 0: name, weight, number and weight of groups, imb_numa_nr.
fn shape(machine: &Machine) -> Vec<(&'static str, u64, usize, usize, u64)> {
    let domains = Domains::new(machine, &RULES);
    (0..domains.chain[0].len())
        .map(|place| {
            let (d, step) = domains.at(Cpu(0), place);
            let own = &d.groups[step.local];
            (
                d.level.name(),
                d.weight(),
                d.groups.len(),
                own.cpus.len(),
                d.imb_numa_nr,
            )
        })
        .collect()
}

// Goal: 6.6: the levels of the proposals' machines, degenerate ones dropped; 6.7: imb_numa_nr M1a 8, M1b 8,
// M0 6.
// Method: the built-in machines; on M0 and M1b the node is one LLC, so PKG is dropped.
#[test]
fn levels_of_known_machines() {
    let zen3 = [
        ("SMT", 2, 2, 1, 0),
        ("MC", 16, 8, 2, 0),
        ("PKG", 128, 8, 16, 8),
        ("NUMA", 256, 2, 128, 8),
    ];
    assert_eq!(shape(&machine("zen3-2s")), zen3);
    let icx = [
        ("SMT", 2, 2, 1, 0),
        ("MC", 64, 32, 2, 0),
        ("NUMA", 128, 2, 64, 8),
    ];
    assert_eq!(shape(&machine("icx-2s")), icx);
    let m0 = [
        ("SMT", 2, 2, 1, 0),
        ("MC", 48, 24, 2, 0),
        ("NUMA", 192, 4, 48, 6),
    ];
    assert_eq!(shape(&machine("xeon-4s24c2t-192")), m0);
    assert_eq!(shape(&machine("2a15")), [("MC", 2, 2, 1, 0)]);
    let tc2 = [("MC", 2, 2, 1, 0), ("PKG", 5, 2, 2, 2)];
    assert_eq!(shape(&machine("tc2-2a15-3a7")), tc2);
}

// Goal: groups of a domain cover its span, each CPU is in its own group, and where spans do not overlap
// in no other; every CPU's chain nests.
// Method: all built-in machines, every CPU, every level.
#[test]
fn groups_partition_and_chains_nest() {
    for name in usher_topo::machine::builtin_names() {
        let machine = machine(name);
        let domains = Domains::new(&machine, &RULES);
        for &cpu in machine.cpus() {
            let mut inner = 1;
            for place in 0..domains.chain[cpu.index()].len() {
                let (domain, step) = domains.at(cpu, place);
                assert!(
                    domain.set.contains(cpu) && domain.cpus.len() > inner,
                    "{name} {cpu}"
                );
                assert_eq!(
                    domain.groups[step.local].cpus.len(),
                    inner,
                    "{name} {cpu}: own group"
                );
                assert!(domain.groups[step.local].set.contains(cpu));
                let members: usize = domain.groups.iter().map(|g| g.cpus.len()).sum();
                assert!(domain
                    .cpus
                    .iter()
                    .all(|&c| domain.groups.iter().any(|g| g.set.contains(c))));
                assert!(members == domain.cpus.len() || domain.numa, "{name} {cpu}");
                assert!(
                    domain.groups.iter().all(|g| !g.balancers.is_empty()),
                    "{name} {cpu}"
                );
                inner = domain.cpus.len();
            }
            assert_eq!(
                inner,
                machine.cpus().len(),
                "{name}: the top spans everything"
            );
        }
    }
}

// Goal: the flags that rules depend on.
// Method: M1a: fork and wake-affine reach over the sockets at distance 32, not where the reclaim distance
// is 30; LLC domain is MC; siblings are preferred between cores, LLCs and sockets.
#[test]
fn flags_follow_level_and_distance() {
    let machine = machine("zen3-2s");
    let domains = Domains::new(&machine, &RULES);
    let near: Vec<bool> = (0..4).map(|p| domains.at(Cpu(3), p).0.near).collect();
    assert_eq!(near, [true; 4]);
    let far = Domains::new(
        &machine,
        &Rules {
            reclaim_distance: 30,
            ..RULES
        },
    );
    assert!(!far.at(Cpu(3), 3).0.near && far.at(Cpu(3), 2).0.near);
    assert_eq!(domains.llc_of(Cpu(3)).map(|d| d.cpus.len()), Some(16));
    let pct: Vec<u64> = (0..4).map(|p| domains.at(Cpu(3), p).0.pct).collect();
    assert_eq!(pct, [110, 117, 117, 117]);
    let prefer: Vec<bool> = (0..4)
        .map(|p| domains.at(Cpu(3), p).0.groups[0].prefer_sibling)
        .collect();
    assert_eq!(prefer, [false, true, true, true]);
    let tc2 = super::machine("tc2-2a15-3a7");
    let domains = Domains::new(&tc2, &RULES);
    assert_eq!(domains.asym[0], Some(1));
    assert!(
        !domains.at(Cpu(0), 1).0.groups[0].prefer_sibling,
        "capacities differ"
    );
}

// Goal: overlapping NUMA groups: a group is balanced only by CPUs that see it as it is.
// Method: a line of three nodes 0-1-2, 20 apart next to each other and 30 at the ends. Node 0's domain at
// 20 is {0,1}, node 1's {0,1,2}; at 30 node 0 has the groups {0,1} and, from node 2's view, {1,2}.
#[test]
fn overlapping_groups_have_their_balancers() {
    let text = r#"
name = "line"
title = "three nodes in a line"
numbering = "adjacent"
[provenance]
shape = "three nodes in a line"
[distances]
matrix = [[10, 20, 30], [20, 10, 20], [30, 20, 10]]
[[socket]]
count = 3
[[socket.node]]
[[socket.node.llc]]
[[socket.node.llc.core]]
count = 2
"#;
    let file = usher_topo::machine::MachineFile::parse("line", text).expect("a machine file");
    let machine = super::built(file);
    let domains = Domains::new(&machine, &RULES);
    let (top, step) = domains.at(Cpu(0), domains.chain[0].len() - 1);
    let lists = |list: &[Cpu]| list.iter().map(|c| c.0).collect::<Vec<_>>();
    assert_eq!(lists(&top.groups[step.local].cpus), [0, 1, 2, 3]);
    assert_eq!(lists(&top.groups[step.local].balancers), [0, 1]);
    assert_eq!(top.groups.len(), 2);
    assert_eq!(lists(&top.groups[1].cpus), [2, 3, 4, 5]);
    assert_eq!(lists(&top.groups[1].balancers), [4, 5]);
    assert!(top.groups.iter().all(|g| !g.prefer_sibling));
}
