// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map by shards: plain bits, no trick.
//!
//! A shard has a word of its CPUs per level. The word is its own count: whoever sets the first bit sees
//! that it was 0. A node has one line with a bit per level that some shard of it may have, set before
//! nobody can rely on it and cleared lazily:
//!
//! - entering a level: set the bit in the shard's word; if the word was empty, and the node's bit is clear,
//!   set the node's bit;
//! - leaving: clear the bit in the shard's word, nothing else;
//! - a search that looked at all shards of the node and found the level empty clears the node's bit, looks
//!   again, and sets it again if somebody came in between.
//!
//! So a CPU that flips between two levels that others of its node share writes two lines of its shard,
//! and a search reads a line per node and then only shards that meet the task's allowed set.

use std::sync::Arc;

use super::layout::LEVELS;
use super::map::{Find, Level, OFFLINE};
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::ids::{Cpu, Id, LineId, Node};
use crate::machine::Machine;
use crate::policy::mask::{Bus, WordStats};

/// Levels per line of a shard: eight words.
const LEVELS_PER_LINE: usize = 8;

struct Shard {
    node: usize,
    cpus: Vec<Cpu>,
    words: [u64; LEVELS],
    lines: Vec<LineId>,
}

#[derive(Clone, Copy, Default)]
struct At {
    shard: usize,
    bit: u32,
}

struct NodeLevels {
    /// A bit per level.
    summary: u128,
    line: LineId,
    shards: std::ops::Range<usize>,
}

/// See the module.
pub(super) struct ShardMap {
    machine: Arc<Machine>,
    shards: Vec<Shard>,
    nodes: Vec<NodeLevels>,
    at: Vec<At>,
    /// By level, then shard; empty for levels that nobody counts.
    stats: Vec<Vec<WordStats>>,
    /// All CPUs of the lowest level, instead of the nearest shard's that has some.
    strict: bool,
    /// Summary bits cleared by searches, and set again because somebody had come in between.
    pub retired: u64,
}

impl ShardMap {
    pub fn new(
        machine: &Arc<Machine>,
        strict: bool,
        make: &mut impl FnMut(&str, Option<Node>) -> LineId,
    ) -> Self {
        let topo = machine.topo();
        let mut at = vec![At::default(); machine.nr_cpu_numbers()];
        let mut shards = Vec::new();
        for info in topo.shards() {
            let cpus: Vec<Cpu> = topo.cids()[info.cids.as_usize()]
                .iter()
                .map(|c| c.cpu)
                .collect();
            for (bit, cpu) in cpus.iter().enumerate() {
                at[cpu.0 as usize] = At {
                    shard: shards.len(),
                    bit: bit as u32,
                };
            }
            let lines = (0..LEVELS.div_ceil(LEVELS_PER_LINE))
                .map(|_| make("cpupri-mask", Some(info.node)))
                .collect();
            shards.push(Shard {
                node: info.node.index(),
                cpus,
                words: [0; LEVELS],
                lines,
            });
        }
        let nodes = topo.nodes_by_id().map(|(node, info)| NodeLevels {
            summary: 0,
            line: make("cpupri-summary", Some(node)),
            shards: info.shards.as_usize(),
        });
        let nodes = nodes.collect();
        let stats = vec![Vec::new(); LEVELS];
        ShardMap {
            machine: Arc::clone(machine),
            shards,
            nodes,
            at,
            stats,
            strict,
            retired: 0,
        }
    }

    pub fn nr_shards(&self) -> usize {
        self.shards.len()
    }

    /// Counts loads of a level's words from now on, by shard.
    pub fn count_words(&mut self, level: Level, stats: Vec<WordStats>) {
        self.stats[usize::from(level)] = stats;
    }

    fn touch(&self, bus: &mut impl Bus, shard: usize, level: usize, access: Access) {
        let ns = bus.access(self.shards[shard].lines[level / LEVELS_PER_LINE], access);
        if let Some(stats) = self.stats[level].get(shard) {
            stats.count(bus, ns);
        }
    }

    fn word(&self, bus: &mut impl Bus, shard: usize, level: usize) -> u64 {
        self.touch(bus, shard, level, Access::Read);
        self.shards[shard].words[level]
    }

    /// A CPU's level changes: into the new one before out of the old one.
    pub fn set(&mut self, bus: &mut impl Bus, cpu: Cpu, old: Level, new: Level) {
        let At { shard, bit } = self.at[cpu.0 as usize];
        let bit = 1u64 << bit;
        if new != OFFLINE {
            let level = usize::from(new);
            self.touch(bus, shard, level, Access::Rmw);
            let own = &mut self.shards[shard];
            let before = own.words[level];
            own.words[level] |= bit;
            let node = &mut self.nodes[own.node];
            if before == 0 {
                bus.access(node.line, Access::Read);
                if node.summary >> level & 1 == 0 {
                    bus.access(node.line, Access::Rmw);
                    node.summary |= 1 << level;
                }
            }
        }
        if old != OFFLINE {
            let level = usize::from(old);
            self.touch(bus, shard, level, Access::Rmw);
            self.shards[shard].words[level] &= !bit;
        }
    }

    /// See [`super::map::Map::find`].
    pub fn find(
        &mut self,
        bus: &mut impl Bus,
        find: &Find<'_>,
        mut out: Option<&mut CpuSet>,
    ) -> bool {
        let found = self.find_fitting(bus, find, out.as_deref_mut(), true);
        if found || find.fit.is_none() {
            return found;
        }
        self.find_fitting(bus, find, out, false)
    }

    fn find_fitting(
        &mut self,
        bus: &mut impl Bus,
        find: &Find<'_>,
        mut out: Option<&mut CpuSet>,
        must_fit: bool,
    ) -> bool {
        let machine = Arc::clone(&self.machine);
        let home = machine.cpu(find.near).node;
        let near = &machine.topo()[home].near;
        let meets = |n: &Node| machine.node_cpus(*n).intersects(find.allowed);
        let nodes: Vec<Node> = std::iter::once(home)
            .chain(near.iter().copied())
            .filter(meets)
            .collect();
        let qualify = (1u128 << find.below) - 1;
        let summaries: Vec<u128> = nodes
            .iter()
            .map(|n| {
                bus.access(self.nodes[n.index()].line, Access::Read);
                self.nodes[n.index()].summary & qualify
            })
            .collect();
        let mut levels = summaries.iter().fold(0, |all, s| all | s);
        while levels != 0 {
            let level = levels.trailing_zeros() as usize;
            levels &= levels - 1;
            let mut hits = CpuSet::new();
            for (node, summary) in nodes.iter().zip(&summaries) {
                if summary >> level & 1 == 0 {
                    continue;
                }
                self.search_node(bus, find, node.index(), level, must_fit, &mut hits);
                if !hits.is_empty() && (!self.strict || out.is_none()) {
                    break;
                }
            }
            if !hits.is_empty() {
                if let Some(out) = out.as_deref_mut() {
                    *out = hits;
                }
                return true;
            }
        }
        false
    }

    /// Looks in the shards of a node, that of `find.near` first.
    fn search_node(
        &mut self,
        bus: &mut impl Bus,
        find: &Find<'_>,
        node: usize,
        level: usize,
        must_fit: bool,
        hits: &mut CpuSet,
    ) {
        let own = self.at[find.near.0 as usize].shard;
        let range = self.nodes[node].shards.clone();
        let first = range.contains(&own).then_some(own);
        let order = first
            .into_iter()
            .chain(range.clone().filter(|&s| Some(s) != first));
        let mut seen_empty = 0;
        for shard in order {
            let wanted = |c: &&Cpu| find.allowed.contains(**c);
            if !self.shards[shard].cpus.iter().any(|c| wanted(&c)) {
                continue;
            }
            let word = self.word(bus, shard, level);
            seen_empty += usize::from(word == 0);
            let members = self.shards[shard].cpus.iter().enumerate();
            let members = members.filter(|(i, _)| word >> i & 1 == 1).map(|(_, c)| c);
            let fits = |c: &&Cpu| !must_fit || find.fit.is_none_or(|fit| fit(**c));
            members
                .filter(wanted)
                .filter(fits)
                .for_each(|&c| hits.insert(c));
            if !hits.is_empty() && !self.strict {
                return;
            }
        }
        if seen_empty == range.len() {
            self.retire(bus, node, level);
        }
    }

    /// All shards of the node looked empty at this level. In the simulator nobody can come in between;
    /// the look again is there because it is part of the cost.
    fn retire(&mut self, bus: &mut impl Bus, node: usize, level: usize) {
        bus.access(self.nodes[node].line, Access::Rmw);
        self.nodes[node].summary &= !(1 << level);
        self.retired += 1;
        let refilled = self.nodes[node]
            .shards
            .clone()
            .any(|s| self.word(bus, s, level) != 0);
        debug_assert!(!refilled, "callbacks do not interleave");
    }

    /// Whether a summary bit is set, for checks.
    #[cfg(test)]
    pub fn summary_has(&self, node: usize, level: usize) -> bool {
        self.nodes[node].summary >> level & 1 == 1
    }
}
