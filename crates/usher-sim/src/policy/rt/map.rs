// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map (`kernel/sched/cpupri.c`): which CPU runs at which level, so that a task that
//! must move can find the CPU of lowest priority.
//!
//! Three forms of one interface: the kernel's (a count and a bitmap per level), the proposal's (the
//! bitmap split per node, stored so that the AND of all nodes is the whole), and the placement core's
//! ([`super::core_map`]). The result of a search is advisory in all of them: callers check again.

use std::sync::Arc;

use super::core_map::CoreMap;
use super::layout::{Form, Layout, Switches, LEVELS};
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cpu, Id, LineId, Node, WordId};
use crate::machine::Machine;
use crate::policy::mask::{mask_lines, Bus, SharedMask, Within, Word};

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
    /// The capacity it takes to fit; a second round without this follows if nothing fits.
    pub capacity: Option<u32>,
}

enum Masks {
    Global(Vec<SharedMask>),
    /// By level, then node.
    Node(Vec<Vec<SharedMask>>),
    Core(Box<CoreMap>),
}

/// See the module.
pub(super) struct Map {
    machine: Arc<Machine>,
    masks: Masks,
    counts: Vec<u32>,
    count_words: Vec<Word>,
    ptr_words: Vec<Word>,
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
            Form::Core(shape) => Masks::Core(Box::new(CoreMap::new(machine, shape, make))),
        };
        Map {
            machine: Arc::clone(machine),
            masks,
            counts: vec![0; LEVELS],
            count_words: layout.count.iter().copied().map(Word::on).collect(),
            ptr_words: layout.mask_ptr.iter().copied().map(Word::on).collect(),
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

    /// Counts loads of a level's words from now on: its count, the pointer to its bitmap, the bitmap by word.
    /// Bitmaps of nodes share the names of a word.
    pub fn count_words(&mut self, host: &mut Host, level: Level) {
        let at = usize::from(level);
        if let Masks::Core(map) = &mut self.masks {
            map.count_words(host, level);
            return;
        }
        self.count_words[at].count_as(host, &format!("cpupri_count_l{level}"));
        self.ptr_words[at].count_as(host, &format!("cpupri_mask_ptr_l{level}"));
        let mut names = |words: usize| -> Vec<WordId> {
            let name = |w| host.word(&format!("cpupri_mask_l{level}_w{w}"));
            (0..words).map(name).collect()
        };
        match &mut self.masks {
            Masks::Global(m) => {
                let names = names(m[at].nr_words());
                m[at].count_words(names);
            }
            Masks::Node(m) => {
                let names = names(m[at][0].nr_words());
                m[at]
                    .iter_mut()
                    .for_each(|mask| mask.count_words(names.clone()));
            }
            Masks::Core(_) => unreachable!("it has returned"),
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
        if let Masks::Core(map) = &mut self.masks {
            map.set(bus, cpu, new);
            return;
        }
        if new != OFFLINE {
            self.flip(bus, cpu, new, true);
            self.count_words[usize::from(new)].access(bus, Access::Rmw);
            self.counts[usize::from(new)] += 1;
        }
        if old != OFFLINE {
            self.count_words[usize::from(old)].access(bus, Access::Rmw);
            self.counts[usize::from(old)] -= 1;
            self.flip(bus, cpu, old, false);
        }
    }

    fn flip(&mut self, bus: &mut impl Bus, cpu: Cpu, level: Level, to: bool) {
        let level = usize::from(level);
        self.ptr_words[level].access(bus, Access::Read);
        match &mut self.masks {
            Masks::Global(m) => m[level].assign(bus, cpu, to),
            Masks::Node(m) => {
                m[level][self.machine.cpu(cpu).node.index()].assign(bus, cpu, to);
            }
            Masks::Core(_) => unreachable!("set() has returned"),
        }
    }

    /// The lowest level below `find.below` with a CPU where the task may run. With `out`, the CPUs found
    /// there that fit; without, only whether there are any. The core's map names one CPU, and unless it was
    /// told to be strict the nearest one below the limit, at whatever level.
    pub fn find(
        &mut self,
        bus: &mut impl Bus,
        find: &Find<'_>,
        mut out: Option<&mut CpuSet>,
    ) -> bool {
        if let Masks::Core(map) = &mut self.masks {
            let found = map.find(bus, find);
            if let (Some(cpu), Some(out)) = (found, out) {
                *out = CpuSet::of(cpu);
            }
            return found.is_some();
        }
        let found = self.find_fitting(bus, find, out.as_deref_mut(), find.capacity);
        if found || find.capacity.is_none() {
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
        capacity: Option<u32>,
    ) -> bool {
        for level in 0..usize::from(find.below) {
            self.count_words[level].access(bus, Access::Read);
            if self.counts[level] == 0 {
                continue;
            }
            self.ptr_words[level].access(bus, Access::Read);
            if !self.any_at(bus, find, level) {
                continue;
            }
            let Some(out) = out.as_deref_mut() else {
                return true;
            };
            // Read again: the level may have emptied in between.
            self.collect(bus, find, level, out);
            if let Some(capacity) = capacity {
                let fits = |&c: &Cpu| self.machine.cpu(c).capacity >= capacity;
                *out = out.iter().filter(fits).collect();
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
            Masks::Core(_) => unreachable!("find() has returned"),
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
            Masks::Core(_) => unreachable!("find() has returned"),
        };
        let words = (0..words)
            .map(word)
            .enumerate()
            .map(|(i, word)| word & allowed.word(i));
        *out = CpuSet::from_words(words.collect());
    }
}
