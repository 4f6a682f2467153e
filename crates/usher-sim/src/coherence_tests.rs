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

/// The same rules without any cleverness: a set of holders, a flag, and the accesses in a row that the line is booked for, each from
/// when until when and whether it is a read.
struct Plain {
    holders: BTreeSet<u32>,
    dirty: Option<u32>,
    booked: Vec<(u64, u64, bool)>,
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

    /// How long an access waits that takes `ns`.
    fn wait(&mut self, reads: bool, moves: bool, at: u64, ns: u64) -> u64 {
        let begins = self.booked.first().map_or(0, |first| first.0);
        let ends = self.booked.last().map_or(0, |last| last.1);
        let one_read = self.booked.len() == 1 && self.booked[0].2;
        let comes_first = at + ns <= begins && (reads || one_read);
        if comes_first && reads {
            return 0;
        }
        if comes_first || ends <= at {
            if moves {
                self.booked = vec![(at, at + ns, reads)];
            }
            return 0;
        }
        if moves {
            self.booked.push((ends, ends + ns, reads));
        }
        ends - at
    }

    fn access(&mut self, machine: &Machine, core: u32, kind: Access, at: u64) -> u64 {
        let others = self.holders.iter().filter(|&&h| h != core);
        let costs = others.map(|&h| Self::between(machine, core, h));
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
            let dirty = self.dirty.take().is_some();
            self.holders.insert(core);
            return self.wait(true, dirty, at, nearest) + nearest;
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
        self.wait(false, true, at, ns) + ns
    }
}

// Goal: the compact line (four sharers inline, then a pooled bitmap) costs exactly what the plain rules say.
// Method: 40 lines, 60,000 random accesses from few or many cores (so that lines go in and out of the pool), some of them made
// for a time to come, against the plain model, access by access; then the books add up.
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
            booked: Vec::new(),
        });
    }
    let cores = machine.topo().cores().len() as u64;
    let mut rng = Rng::new(11);
    let (mut now, mut total, mut pooled, mut overtook) = (0, 0, 0, 0);
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
        let at = now
            + if rng.below(8) == 0 {
                rng.below(2000)
            } else {
                0
            };
        let plain = &mut plain[line as usize];
        overtook += u64::from(plain.booked.first().is_some_and(|first| at < first.0));
        let ours = lines.access(core, LineId(line), kind, at);
        let expected = plain.access(&machine, core, kind, at);
        assert_eq!(
            ours, expected,
            "access {i}: {kind:?} of line {line} by core {core} at {at}"
        );
        total += ours;
        pooled += u64::from(lines.lines[line as usize].bitmap != 0);
    }
    assert!(pooled > 10_000, "the pool was hardly used: {pooled}");
    assert!(
        overtook > 3_000,
        "hardly any came before a booking: {overtook}"
    );
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

// Goal: what a callback will do to a line later makes nobody wait who is done before: not a read, and no write if that is a read. A
// write that is to come is waited for. Method: core 0 books the line for 1,000 to about 1,040, others come at 100.
#[test]
fn who_is_done_before_does_not_wait() {
    let machine = machine();
    for (booked, comes, waits) in [
        (Access::Write, Access::Read, false),
        (Access::Read, Access::Read, false),
        (Access::Read, Access::Rmw, false),
        (Access::Write, Access::Write, true),
    ] {
        let mut lines = Lines::new(&machine);
        let class = lines.class("test");
        let line = lines.add(class, None);
        lines.access(1, line, Access::Write, 0);
        let later = lines.access(0, line, booked, 1000);
        assert_eq!(later, LLC);
        let took = lines.access(2, line, comes, 100);
        assert_eq!(took > 900, waits, "{comes:?} before {booked:?}: {took}");
        let until = lines.free_at(line);
        // Whoever comes in the middle of it waits for its end, and a write that overtook is what the next one waits for.
        match (booked, comes) {
            (Access::Read, Access::Rmw) => assert_eq!(until, 100 + LLC + RMW),
            (_, Access::Read) => assert_eq!(until, 1000 + LLC),
            _ => assert_eq!(until, 1000 + 2 * LLC),
        }
        let then = lines.access(3, line, Access::Write, until - 10);
        assert_eq!(then, 10 + LLC);
    }
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
