// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map of the placement core: `core/src/cpupri.c`, the very C of the kernel scheduler.
//!
//! The core runs in its traced environment, as in `policy/usher.rs`: it decides, and every access that it makes to
//! shared memory is charged as an access to that very line. Where its words lie (leaves, the nodes' maps of shards,
//! the nodes' summaries of levels) the core itself says; an access to anything else would be an error of this file.
//!
//! A leaf is a word of a shard and level; which leaves share a line is the granularity. A search names one CPU, the
//! nearest to where the task was, where the kernel's forms name all of a level.

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_core::{AccessKind, CidSet, Core, Granularity, Level as CoreLevel, LevelQuery};
use usher_core::{Settings, Tables, Tiers};
use usher_topo::{Shard, Tier, Topology};

use super::map::{Find, Level, OFFLINE};
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cid, Cpu, Id, LineId, Node, WordId};
use crate::machine::Machine;
use crate::policy::mask::{Bus, Word};

const LINE_BYTES: u64 = 64;

/// How the core's map is laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub granularity: Granularity,
    /// CPUs per shard at most.
    pub shard_width: u32,
    /// The lowest level anywhere, instead of the nearest CPU that is low enough.
    pub strict: bool,
}

impl Shape {
    /// The nearest, in shards of the widest; where each has lines of its own, of half that, which makes a load of the masks a
    /// third cheaper on 480 CPUs (docs/FIDELITY.md, E).
    pub const fn of(granularity: Granularity) -> Self {
        Self {
            granularity,
            shard_width: match granularity {
                Granularity::Shard => 32,
                _ => 64,
            },
            strict: false,
        }
    }
}

/// See the module.
pub(super) struct CoreMap {
    machine: Arc<Machine>,
    core: Core,
    /// By cpu, and by cid.
    cids: Vec<Cid>,
    cpus: Vec<Cpu>,
    /// The shards, with the node of each.
    shards: Vec<Node>,
    /// By number of the line in the core's block.
    lines: BTreeMap<u64, LineId>,
    /// By offset of the word.
    names: BTreeMap<u64, WordId>,
    strict: bool,
}

fn level_of(number: usize) -> CoreLevel {
    CoreLevel::new(number as u32).expect("a level of the map")
}

impl CoreMap {
    pub fn new(
        machine: &Arc<Machine>,
        shape: Shape,
        make: &mut impl FnMut(&str, Option<Node>) -> LineId,
    ) -> Self {
        let narrow = (shape.shard_width < 64).then(|| {
            Topology::build(&machine.topo().to_raw(), shape.shard_width)
                .expect("it was built before, only wider")
        });
        let topo = narrow.as_ref().unwrap_or(machine.topo());
        let settings = Settings {
            granularity: shape.granularity,
            cpupri: true,
            ..Settings::default()
        };
        let core = Core::traced(&Tables::from(topo), &settings).expect("topologies are checked");
        let mut cids = vec![Cid::from_index(0); machine.nr_cpu_numbers()];
        for &cpu in machine.cpus() {
            cids[cpu.index()] = machine.cpu(cpu).cid;
        }
        let mut map = CoreMap {
            machine: Arc::clone(machine),
            core,
            cids,
            cpus: topo.cids().iter().map(|c| c.cpu).collect(),
            shards: topo.shards().iter().map(|s| s.node).collect(),
            lines: BTreeMap::new(),
            names: BTreeMap::new(),
            strict: shape.strict,
        };
        map.make_lines(shape.granularity, make);
        map
    }

    /// Allocates the lines of all words. A line that nodes share has no home.
    fn make_lines(
        &mut self,
        granularity: Granularity,
        make: &mut impl FnMut(&str, Option<Node>) -> LineId,
    ) {
        let mut words: Vec<(u64, &str, Option<Node>)> = Vec::new();
        for level in (0..CoreLevel::COUNT as usize).map(level_of) {
            for (i, &node) in self.shards.iter().enumerate() {
                let shard = Shard::from_index(i);
                let home = (granularity != Granularity::Global).then_some(node);
                words.push((
                    self.core.level_word_offset(shard, level),
                    "cpupri-mask",
                    home,
                ));
                let present = self.core.present_word_offset(shard, level);
                words.push((present, "cpupri-present", Some(node)));
                let summary = self.core.summary_word_offset(node, level);
                words.push((summary, "cpupri-summary", Some(node)));
            }
        }
        for (offset, class, home) in words {
            self.lines
                .entry(offset / LINE_BYTES)
                .or_insert_with(|| make(class, home));
        }
    }

    /// Counts loads of a level's words from now on.
    pub fn count_words(&mut self, host: &mut Host, level: Level) {
        let (number, level) = (level, level_of(usize::from(level)));
        let shards = (0..self.shards.len()).map(Shard::from_index);
        let mut leaves: Vec<u64> = shards
            .map(|shard| self.core.level_word_offset(shard, level))
            .collect();
        leaves.dedup();
        for (i, offset) in leaves.into_iter().enumerate() {
            let name = host.word(&format!("cpupri_mask_l{number}_w{i}"));
            self.names.insert(offset, name);
        }
        for (i, &node) in self.shards.iter().enumerate() {
            let present = self.core.present_word_offset(Shard::from_index(i), level);
            let name = host.word(&format!("cpupri_present_l{number}_n{node}"));
            self.names.insert(present, name);
            let summary = self.core.summary_word_offset(node, level);
            let name = host.word(&format!("cpupri_summary_n{node}_w{}", number / 64));
            self.names.insert(summary, name);
        }
    }

    /// Charges what the core touched.
    fn charge(&mut self, bus: &mut impl Bus) {
        for access in self.core.accesses() {
            let kind = match access.kind() {
                AccessKind::Read => Access::Read,
                AccessKind::Write => Access::Write,
                AccessKind::Rmw => Access::Rmw,
                // On x86 the fetch was one already.
                AccessKind::Barrier => continue,
                AccessKind::Queued => unreachable!("the map asks no queue"),
            };
            let line = self.lines.get(&(access.offset() / LINE_BYTES));
            let line = *line.expect("a word of the map");
            let name = self.names.get(&access.offset()).copied();
            Word { line, name }.access(bus, kind);
        }
        let lost = self.core.clear_accesses();
        debug_assert_eq!(lost, 0, "the core's log was too small");
    }

    /// A CPU's level changes: `usher_cpupri_set()`.
    pub fn set(&mut self, bus: &mut impl Bus, cpu: Cpu, new: Level) {
        let level = (new != OFFLINE).then(|| level_of(usize::from(new)));
        self.core.set_level(self.cids[cpu.index()], level);
        self.charge(bus);
    }

    /// A CPU below a level: `usher_cpupri_find()`.
    pub fn find(&mut self, bus: &mut impl Bus, find: &Find<'_>) -> Option<Cpu> {
        let online = self.machine.online();
        let everywhere = online.iter().all(|cpu| find.allowed.contains(cpu));
        let allowed = (!everywhere).then(|| self.in_cid_order(find.allowed));
        let query = LevelQuery {
            allowed: allowed.as_ref(),
            tiers: find.capacity.map_or(Tiers::ANY, |c| self.tiers(c)),
            below: level_of(usize::from(find.below)),
            lowest: self.strict,
            in_node: false,
            from: self.cids[find.near.index()],
        };
        let found = self.core.find_lower(&query);
        self.charge(bus);
        found.map(|(cid, _)| self.cpus[cid.index()])
    }

    fn in_cid_order(&self, set: &CpuSet) -> CidSet {
        let online = self.machine.online().and(set);
        online.iter().map(|cpu| self.cids[cpu.index()]).collect()
    }

    /// The tiers of at least this capacity.
    fn tiers(&self, capacity: u32) -> Tiers {
        let tiers = self.machine.topo().tiers().iter().enumerate();
        let strong = tiers.filter(|(_, tier)| tier.capacity >= capacity);
        let strong = strong.map(|(i, _)| Tiers::only(Tier::from_index(i)));
        strong.reduce(Tiers::or).unwrap_or(Tiers::ANY)
    }

    /// Whether a node's summary names a level, for checks.
    #[cfg(test)]
    pub fn summary_has(&self, node: Node, level: usize) -> bool {
        self.core.node_in_level(node, level_of(level))
    }
}
