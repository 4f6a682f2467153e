// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map (`kernel/sched/cpupri.c`): which CPU runs at which level, so that a task that
//! must move can find the CPU of lowest priority.
//!
//! Three forms of one interface: the kernel's (a count and a bitmap per level), the proposal's (the
//! bitmap split per node, stored so that the AND of all nodes is the whole), and shards
//! ([`super::shard_map`]). The result of a search is advisory in all of them: callers check again.

use std::sync::Arc;

use super::layout::{Form, Layout, Switches, LEVELS};
use super::shard_map::ShardMap;
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cpu, Id, LineId, Node};
use crate::machine::Machine;
use crate::policy::mask::{mask_lines, Bus, SharedMask, Within, WordStats};

/// Level of a CPU: 0 to 100, or [`OFFLINE`].
pub(super) type Level = u8;

/// Level of a CPU that the real-time class must not use (`CPUPRI_INVALID`).
pub(super) const OFFLINE: Level = Level::MAX;

/// One search: `cpupri_find()`.
pub(super) struct Find<'a> {
    /// Where the task may run.
    pub allowed: &'a CpuSet,
    /// Levels below this one qualify.
    pub below: Level,
    /// The CPU that searches.
    pub this: Cpu,
    /// Around which CPU to look first, where the form can tell near from far.
    pub near: Cpu,
    /// Capacity fit; a second round without it follows if nothing fits.
    pub fit: Option<&'a dyn Fn(Cpu) -> bool>,
}

enum Masks {
    Global(Vec<SharedMask>),
    /// By level, then node.
    Node(Vec<Vec<SharedMask>>),
    Shard(ShardMap),
}

/// See the module.
pub(super) struct Map {
    machine: Arc<Machine>,
    masks: Masks,
    counts: Vec<u32>,
    count_lines: Vec<LineId>,
    ptr_lines: Vec<LineId>,
    level_of: Vec<Level>,
}

impl Map {
    /// An empty map: all CPUs offline. `make(class, home)` allocates lines. `late` are CPUs that were not
    /// yet in their node's set when the map was made; only the per-node form cares (see
    /// [`Map::inverted`]).
    pub fn new(
        machine: &Arc<Machine>,
        layout: &Layout,
        switches: Switches,
        late: &CpuSet,
        strict: bool,
        make: &mut impl FnMut(&str, Option<Node>) -> LineId,
    ) -> Self {
        let nr = machine.nr_cpu_numbers();
        let mut lines = |home| {
            (0..mask_lines(nr))
                .map(|_| make("cpupri-mask", home))
                .collect()
        };
        let masks = match switches.form {
            Form::Global => Masks::Global(
                (0..LEVELS)
                    .map(|_| SharedMask::new(nr, lines(None)))
                    .collect(),
            ),
            Form::Node => {
                let nodes = 0..machine.topo().nodes().len();
                let mut level = || {
                    let nodes = nodes.clone().map(Node::from_index);
                    nodes
                        .map(|n| Self::inverted(machine, n, late, lines(Some(n))))
                        .collect()
                };
                Masks::Node((0..LEVELS).map(|_| level()).collect())
            }
            Form::Shard => Masks::Shard(ShardMap::new(machine, strict, make)),
        };
        Map {
            machine: Arc::clone(machine),
            masks,
            counts: vec![0; LEVELS],
            count_lines: layout.count.clone(),
            ptr_lines: layout.mask_ptr.clone(),
            level_of: vec![OFFLINE; nr],
        }
    }

    /// A node's bitmap when the map is made: 0 for the node's CPUs, 1 for all others, so that a CPU's bit
    /// in the AND of all nodes is its own node's. A CPU that joins its node later starts as 1 in its own
    /// node's bitmap as well: a phantom member of every level, until it has entered and left the level.
    fn inverted(machine: &Machine, node: Node, late: &CpuSet, lines: Vec<LineId>) -> SharedMask {
        let own = machine.node_cpus(node);
        let foreign = |c: &Cpu| !own.contains(*c) || late.contains(*c);
        let mut mask = SharedMask::new(machine.nr_cpu_numbers(), lines);
        mask.fill(&machine.online().iter().filter(foreign).collect());
        mask
    }

    /// The level of a CPU, as its owner knows it.
    pub fn level_of(&self, cpu: Cpu) -> Level {
        self.level_of[cpu.0 as usize]
    }

    /// Counts loads of a level's bitmap from now on, by word; per-node bitmaps share the counters of a
    /// word, and with shards a word is a shard's.
    pub fn count_words(&mut self, host: &mut Host, level: Level) {
        let mut stats = |words: usize| -> Vec<WordStats> {
            let name = |w| format!("cpupri_mask_l{level}_w{w}");
            (0..words).map(|w| WordStats::new(host, &name(w))).collect()
        };
        match &mut self.masks {
            Masks::Global(m) => {
                let mask = &mut m[usize::from(level)];
                mask.count_words(stats(mask.nr_words()));
            }
            Masks::Node(m) => {
                let masks = &mut m[usize::from(level)];
                let stats = stats(masks[0].nr_words());
                masks
                    .iter_mut()
                    .for_each(|mask| mask.count_words(stats.clone()));
            }
            Masks::Shard(map) => map.count_words(level, stats(map.nr_shards())),
        }
    }

    /// A CPU's level changes: `cpupri_set()`. It enters the new level before it leaves the old one, so a
    /// search never misses a CPU that is being raised; the bit goes before the count on entry and after
    /// it on leaving, so a level with a count may be stale but a level without is empty.
    pub fn set(&mut self, bus: &mut impl Bus, cpu: Cpu, new: Level) {
        let old = std::mem::replace(&mut self.level_of[cpu.0 as usize], new);
        if old == new {
            return;
        }
        if let Masks::Shard(map) = &mut self.masks {
            map.set(bus, cpu, old, new);
            return;
        }
        if new != OFFLINE {
            self.flip(bus, cpu, new, true);
            bus.access(self.count_lines[usize::from(new)], Access::Rmw);
            self.counts[usize::from(new)] += 1;
        }
        if old != OFFLINE {
            bus.access(self.count_lines[usize::from(old)], Access::Rmw);
            self.counts[usize::from(old)] -= 1;
            self.flip(bus, cpu, old, false);
        }
    }

    fn flip(&mut self, bus: &mut impl Bus, cpu: Cpu, level: Level, to: bool) {
        let level = usize::from(level);
        bus.access(self.ptr_lines[level], Access::Read);
        match &mut self.masks {
            Masks::Global(m) => m[level].assign(bus, cpu, to),
            Masks::Node(m) => {
                m[level][self.machine.cpu(cpu).node.index()].assign(bus, cpu, to);
            }
            Masks::Shard(_) => unreachable!("set() has returned"),
        }
    }

    /// The lowest level below `find.below` with a CPU where the task may run. With `out`, the CPUs found
    /// there that fit; without, only whether there are any.
    pub fn find(
        &mut self,
        bus: &mut impl Bus,
        find: &Find<'_>,
        mut out: Option<&mut CpuSet>,
    ) -> bool {
        if let Masks::Shard(map) = &mut self.masks {
            return map.find(bus, find, out);
        }
        let found = self.find_fitting(bus, find, out.as_deref_mut(), find.fit);
        if found || find.fit.is_none() {
            return found;
        }
        // Priority beats capacity: better a CPU that does not fit than none.
        self.find_fitting(bus, find, out, None)
    }

    fn find_fitting(
        &self,
        bus: &mut impl Bus,
        find: &Find<'_>,
        mut out: Option<&mut CpuSet>,
        fit: Option<&dyn Fn(Cpu) -> bool>,
    ) -> bool {
        for level in 0..usize::from(find.below) {
            bus.access(self.count_lines[level], Access::Read);
            if self.counts[level] == 0 {
                continue;
            }
            bus.access(self.ptr_lines[level], Access::Read);
            if !self.any_at(bus, find, level) {
                continue;
            }
            let Some(out) = out.as_deref_mut() else {
                return true;
            };
            // Read again: the level may have emptied in between.
            self.collect(bus, find, level, out);
            if let Some(fit) = fit {
                *out = out.iter().filter(|&c| fit(c)).collect();
            }
            if !out.is_empty() {
                return true;
            }
        }
        false
    }

    /// Whether a CPU of the level is allowed.
    fn any_at(&self, bus: &mut impl Bus, find: &Find<'_>, level: usize) -> bool {
        match &self.masks {
            Masks::Global(m) => m[level].intersects(bus, Within::one(find.allowed)),
            Masks::Node(m) => {
                // Nodes in order of their ids, from the searcher's own, wrapping around.
                let start = self.machine.cpu(find.this).node.index();
                let nr = m[level].len();
                (0..nr).map(|i| (start + i) % nr).any(|n| {
                    let own = self.machine.node_cpus(Node::from_index(n));
                    let set = Within {
                        first: find.allowed,
                        second: Some(own),
                    };
                    m[level][n].intersects(bus, set)
                })
            }
            Masks::Shard(_) => unreachable!("find() has returned"),
        }
    }

    /// The CPUs of the level that are allowed.
    fn collect(&self, bus: &mut impl Bus, find: &Find<'_>, level: usize, out: &mut CpuSet) {
        let allowed = Within {
            first: find.allowed,
            second: Some(self.machine.online()),
        };
        let words = find
            .allowed
            .words()
            .len()
            .min(self.machine.nr_cpu_numbers().div_ceil(64));
        let word = |i| match &self.masks {
            Masks::Global(m) => m[level].read(bus, i),
            Masks::Node(m) => m[level]
                .iter()
                .fold(!0, |all, mask| all & mask.read(bus, i)),
            Masks::Shard(_) => unreachable!("find() has returned"),
        };
        let words = (0..words)
            .map(word)
            .enumerate()
            .map(|(i, word)| word & allowed.word(i));
        *out = CpuSet::from_words(words.collect());
    }
}
