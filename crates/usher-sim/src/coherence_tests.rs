// SPDX-License-Identifier: GPL-2.0-only
use std::collections::BTreeSet;

use usher_topo::{Source, Topology};

use super::*;
use crate::costs::Costs;
use crate::rng::Rng;

const HIT: u64 = 1;
const RMW: u64 = 6;
const LLC: u64 = 40;
const NODE: u64 = 95;
const MEMORY: u64 = 90;

/// 4 nodes with 4 LLCs of 8 cores of 2 threads.
fn machine() -> Machine {
    let raw = Source::Synthetic("pack:4 numa:1 l3:4 core:8 pu:2".into())
        .read()
        .expect("legal");
    let mut costs = Costs::builtin("generic").expect("built in");
    for (name, ns) in [
        ("line.line_hit_ns", HIT),
        ("line.line_rmw_ns", RMW),
        ("line.line_llc_ns", LLC),
        ("line.line_node_ns", NODE),
        ("line.line_memory_ns", MEMORY),
    ] {
        costs.set(name, ns).expect("known");
    }
    Machine::new(Topology::build(&raw, 64).expect("legal"), costs).expect("legal")
}

/// The same rules without any cleverness: a set of holders and a flag.
struct Plain {
    holders: BTreeSet<u32>,
    dirty: Option<u32>,
    free_at: u64,
}

impl Plain {
    fn between(machine: &Machine, a: u32, b: u32) -> u64 {
        let (x, y) = (
            machine.topo().cores()[a as usize],
            machine.topo().cores()[b as usize],
        );
        if a == b {
            HIT
        } else if x.llc == y.llc {
            LLC
        } else if x.node == y.node {
            NODE
        } else {
            machine.node_line_ns(x.node, y.node)
        }
    }

    fn access(&mut self, machine: &Machine, core: u32, kind: Access, at: u64) -> u64 {
        let others = self.holders.iter().filter(|&&h| h != core);
        let costs = others.map(|&h| Self::between(machine, core, h));
        let wait = self.free_at.saturating_sub(at);
        let extra = if kind == Access::Rmw { RMW } else { 0 };
        let holds = self.holders.contains(&core);
        if kind == Access::Read {
            if holds {
                return HIT;
            }
            let nearest = match self.dirty {
                Some(owner) => Self::between(machine, core, owner),
                None => costs.min().unwrap_or(MEMORY),
            };
            if self.dirty.take().is_some() {
                self.free_at = at + wait + nearest;
            }
            self.holders.insert(core);
            return wait + nearest;
        }
        let ns = if holds && self.holders.len() == 1 {
            if kind == Access::Rmw {
                RMW
            } else {
                HIT
            }
        } else {
            costs.max().unwrap_or(MEMORY) + extra
        };
        self.holders = BTreeSet::from([core]);
        self.dirty = Some(core);
        self.free_at = at + wait + ns;
        wait + ns
    }
}

// Goal: the compact line (six sharers inline, then a pooled bitmap) costs exactly what the plain rules say.
// Method: 40 lines, 60,000 random accesses from few or many cores (so that lines go in and out of the pool),
// against the plain model, access by access; then the books add up.
#[test]
fn compact_lines_follow_the_plain_rules() {
    let machine = machine();
    let mut lines = Lines::new(&machine);
    let class = lines.class("test");
    let mut plain = Vec::new();
    for _ in 0..40 {
        lines.add(class, None);
        plain.push(Plain {
            holders: BTreeSet::new(),
            dirty: None,
            free_at: 0,
        });
    }
    let cores = machine.topo().cores().len() as u64;
    let mut rng = Rng::new(11);
    let (mut now, mut total, mut pooled) = (0, 0, 0);
    for i in 0..60_000u64 {
        now += rng.below(30);
        let line = rng.below(40) as u32;
        // Phases of many readers alternate with phases of few writers.
        let reading = i / 2000 % 2 == 0;
        let core = if reading {
            rng.below(cores)
        } else {
            rng.below(cores) / 8 * 8
        } as u32;
        let kind = match rng.below(if reading { 40 } else { 4 }) {
            0 => Access::Rmw,
            1 => Access::Write,
            _ => Access::Read,
        };
        let ours = lines.access(core, LineId(line), kind, now);
        let expected = plain[line as usize].access(&machine, core, kind, now);
        assert_eq!(
            ours, expected,
            "access {i}: {kind:?} of line {line} by core {core} at {now}"
        );
        total += ours;
        pooled += u64::from(lines.lines[line as usize].bitmap != 0);
    }
    assert!(pooled > 10_000, "the pool was hardly used: {pooled}");
    let stats = &lines.stats()[0];
    assert_eq!(stats.load_ns + stats.write_ns, total);
    let moved: u64 = stats.transfers.iter().sum();
    assert_eq!(
        stats.hits + moved + stats.memory,
        stats.loads + stats.writes
    );
}

// Goal: a far node costs more than a near one, and no access between nodes less than between LLCs of a node.
// Method: SLIT distances 10, 12 and 32 with 190 ns measured at 32.
#[test]
fn remote_cost_follows_the_slit_distance() {
    let mut raw = Source::Synthetic("pack:3 numa:1 l3:1 core:1 pu:1".into())
        .read()
        .expect("legal");
    for node in &mut raw.nodes {
        let me = node.id;
        let slit = |other: u32| match me.abs_diff(other) {
            0 => 10,
            1 => 12,
            _ => 32,
        };
        node.distances = (0..3).map(|other| (other, slit(other))).collect();
    }
    let mut costs = Costs::builtin("zen3").expect("built in");
    costs.set("line.line_node_ns", 20).expect("known");
    costs.set("line.line_remote_ns", 220).expect("known");
    let machine = Machine::new(Topology::build(&raw, 64).expect("legal"), costs).expect("legal");
    let ns = |b| machine.node_line_ns(Node(0), Node(b));
    assert_eq!((ns(0), ns(1), ns(2)), (20, 20, 220));
    let mut lines = Lines::new(&machine);
    let class = lines.class("test");
    let line = lines.add(class, None);
    lines.access(0, line, Access::Write, 0);
    assert_eq!(
        lines.access(2, line, Access::Read, 1000),
        220,
        "from the owner, far away"
    );
    assert_eq!(
        lines.access(1, line, Access::Read, 2000),
        20,
        "from the nearest holder"
    );
    assert_eq!(
        lines.access(1, line, Access::Write, 3000),
        20,
        "both others are near node 1"
    );
    assert_eq!(lines.stats()[0].transfers[Distance::Remote as usize], 3);
}

// Goal: a lock keeps others waiting until it is let go.
// Method: taken at 100, let go at 500; another CPU that comes at 200 has it at 500 plus the transfer.
#[test]
fn locks_are_held() {
    let machine = machine();
    let mut lines = Lines::new(&machine);
    let class = lines.class("lock");
    let line = lines.add(class, None);
    let first = lines.access(0, line, Access::Rmw, 100);
    assert_eq!(first, MEMORY + RMW);
    lines.unlock(line, 100 + first, 500);
    assert_eq!(lines.access(1, line, Access::Rmw, 200), 300 + LLC + RMW);
    let stats = &lines.stats()[0];
    assert_eq!(
        (stats.locks, stats.held_ns, stats.wait_ns_max),
        (1, 400 - first, 300)
    );
}
