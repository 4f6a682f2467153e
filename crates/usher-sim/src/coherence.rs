// SPDX-License-Identifier: GPL-2.0-only
//! Shared cache lines: who has a copy, what an access costs, and who queues behind whom.
//!
//! Each line has a set of cores that hold a copy and, if the last access was a write, an owner (a core's
//! threads share its private caches). An access costs:
//!
//! - a hit, if the core holds a copy (read) or is the only holder (write);
//! - else the transfer: for a read from the owner, or the nearest holder, or memory; for a write the time
//!   to reach the farthest holder, because all other copies are invalidated.
//!
//! A line serves one transfer at a time. An access that moves or changes it starts when the previous one
//! is done, so N CPUs that hammer a line get at most one access per transfer time together, and each waits
//! for the others. Reads of a line that nobody changed do not queue.
//!
//! A callback makes all its accesses at once, each with the time at which it gets to it. So a line may be
//! booked for a time that is still to come when another CPU wants it. Reads change nothing, and take place in
//! the order of their times: a read that is done before the booking begins goes first, and so does a write
//! before a single read. Writes keep the order in which they were made, and wait.
//!
//! The set is exact. Up to four cores are kept in the line; a fifth moves them to a bitmap from a pool,
//! which the next write gives back. Not modelled: capacity evictions (a copy stays until somebody writes)
//! and store buffers (a store waits for its line as an atomic operation does).

use crate::ids::{Id, LineClass, LineId, Nanos, Node};
use crate::machine::{Distance, Machine};

/// What an access does to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A plain store.
    Write,
    /// An atomic read-modify-write.
    Rmw,
}

const INLINE: usize = 4;
const NOBODY: u16 = u16::MAX;

/// Half a line of the machine that runs the simulation.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Line {
    /// When what it is booked for, a transfer or a lock, ends.
    free_at: Nanos,
    /// How long that lasts, in ns; of several that follow each other, since the first began.
    booked: u32,
    /// The cores with a copy: `sharers[..nr]`, or a bitmap if `bitmap` is not 0 (then index + 1).
    sharers: [u16; INLINE],
    nr: u16,
    /// The core that wrote last, if nobody has read since; else [`NOBODY`].
    owner: u16,
    home: u16,
    class: u8,
    /// Whether it is booked for one read and nothing else.
    for_read: bool,
    bitmap: u32,
}

impl Line {
    /// Books an access at this time that takes so long; how long it has to wait. `moves`: it moves or changes the line.
    fn book(&mut self, kind: Access, moves: bool, at: Nanos, ns: Nanos) -> Nanos {
        let from = self.free_at - Nanos::from(self.booked);
        let is_read = kind == Access::Read;
        if at + ns <= from && (is_read || self.for_read) {
            if !is_read {
                self.set_booking(at, at + ns, false);
            }
            return 0;
        }
        let wait = self.free_at.saturating_sub(at);
        if moves {
            let from = if wait == 0 { at } else { from };
            self.set_booking(from, at + wait + ns, is_read && wait == 0);
        }
        wait
    }

    fn set_booking(&mut self, from: Nanos, until: Nanos, for_read: bool) {
        self.free_at = until;
        self.booked = u32::try_from(until - from).unwrap_or(u32::MAX);
        self.for_read = for_read;
    }
}

/// What happened to the lines of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// The class's name.
    pub name: String,
    /// Accesses that found the line in their own core.
    pub hits: u64,
    /// Transfers by distance ([`Distance`]; `Same` and `Core` are hits).
    pub transfers: [u64; Distance::COUNT],
    /// Fetches from memory.
    pub memory: u64,
    /// Loads (`Access::Read`).
    pub loads: u64,
    /// Time of the loads, waiting included.
    pub load_ns: Nanos,
    /// Stores and atomic operations.
    pub writes: u64,
    /// Their time, waiting included.
    pub write_ns: Nanos,
    /// Part of both times that was waiting for other accesses and lock holders.
    pub wait_ns: Nanos,
    /// Longest wait.
    pub wait_ns_max: Nanos,
    /// Locks taken.
    pub locks: u64,
    /// Time that locks were held.
    pub held_ns: Nanos,
}

impl ClassStats {
    fn reset(&mut self) {
        *self = ClassStats {
            name: std::mem::take(&mut self.name),
            ..ClassStats::default()
        };
    }
}

struct Region {
    first: u32,
    lines: u32,
}

/// How many transfers a line that stands for several takes.
#[derive(Clone, Copy)]
pub(crate) struct Bundle {
    /// Within a last-level cache, and from memory.
    pub near: u32,
    /// Between such caches.
    pub far: u32,
}

impl Bundle {
    fn transfers(self, from: Option<Distance>) -> u32 {
        match from {
            Some(Distance::Node | Distance::Remote) => self.far,
            _ => self.near,
        }
    }
}

/// All modelled lines of a run.
pub(crate) struct Lines {
    lines: Vec<Line>,
    regions: Vec<Region>,
    classes: Vec<ClassStats>,
    /// By class: if each of its lines stands for several that travel together, how many.
    bundles: Vec<Option<Bundle>>,
    /// Pool of bitmaps over cores; `words` per slot.
    bits: Vec<u64>,
    words: usize,
    free: Vec<u32>,
    cores: Vec<CoreAt>,
    /// Range of LLCs of each node and of cores of each LLC (both contiguous).
    node_cores: Vec<std::ops::Range<usize>>,
    llc_cores: Vec<std::ops::Range<usize>>,
    near: Vec<Vec<u16>>,
    node_ns: Vec<u32>,
    hit_ns: u32,
    rmw_ns: u32,
    llc_ns: u32,
    within_node_ns: u32,
    memory_ns: u32,
}

#[derive(Clone, Copy)]
struct CoreAt {
    llc: u16,
    node: u16,
}

/// What one access came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    ns: u32,
    /// `None`: from memory.
    from: Option<Distance>,
}

impl Lines {
    pub fn new(machine: &Machine) -> Lines {
        let topo = machine.topo();
        let n = &machine.costs().n;
        let narrow = |ns: Nanos| u32::try_from(ns).unwrap_or(u32::MAX);
        let nodes = topo.nodes();
        let node_ns = (0..nodes.len())
            .flat_map(|a| (0..nodes.len()).map(move |b| (Node::from_index(a), Node::from_index(b))))
            .map(|(a, b)| narrow(machine.node_line_ns(a, b)))
            .collect();
        let cores = topo.cores();
        Lines {
            lines: Vec::new(),
            regions: Vec::new(),
            classes: Vec::new(),
            bundles: Vec::new(),
            bits: Vec::new(),
            words: cores.len().div_ceil(64),
            free: Vec::new(),
            cores: cores
                .iter()
                .map(|c| CoreAt {
                    llc: c.llc.0 as u16,
                    node: c.node.0 as u16,
                })
                .collect(),
            node_cores: nodes.iter().map(|x| x.cores.as_usize()).collect(),
            llc_cores: topo.llcs().iter().map(|l| l.cores.as_usize()).collect(),
            near: nodes
                .iter()
                .map(|x| x.near.iter().map(|m| m.0 as u16).collect())
                .collect(),
            node_ns,
            hit_ns: narrow(n.line_hit_ns),
            rmw_ns: narrow(n.line_rmw_ns),
            llc_ns: narrow(n.line_llc_ns),
            within_node_ns: narrow(n.line_node_ns),
            memory_ns: narrow(n.line_memory_ns),
        }
    }

    /// The class of this name, made if it is new.
    pub fn class(&mut self, name: &str) -> LineClass {
        let index = self
            .classes
            .iter()
            .position(|c| c.name == name)
            .unwrap_or_else(|| {
                self.classes.push(ClassStats {
                    name: name.into(),
                    ..ClassStats::default()
                });
                self.bundles.push(None);
                self.classes.len() - 1
            });
        assert!(
            index <= usize::from(u8::MAX),
            "more than 256 classes of lines"
        );
        LineClass(index as u32)
    }

    /// A new class, of which each line stands for several that travel together, one after the other: a transfer takes as many
    /// times as long, and counts as many times. Others wait for them until the last has come; who has them waits for nobody.
    pub fn bundles(&mut self, name: &str, bundle: Bundle) -> LineClass {
        assert!(
            self.classes.iter().all(|c| c.name != name),
            "{name} is a class already"
        );
        let class = self.class(name);
        self.bundles[class.index()] = Some(bundle);
        class
    }

    pub fn add(&mut self, class: LineClass, home: Option<Node>) -> LineId {
        self.lines.push(Line {
            free_at: 0,
            booked: 0,
            sharers: [0; INLINE],
            nr: 0,
            owner: NOBODY,
            home: home.map_or(NOBODY, |node| node.0 as u16),
            class: class.0 as u8,
            for_read: false,
            bitmap: 0,
        });
        LineId(u32::try_from(self.lines.len() - 1).expect("fewer than 2^32 lines"))
    }

    pub fn add_region(&mut self, class: LineClass, bytes: u64, home: Option<Node>) -> u32 {
        let first = self.lines.len() as u32;
        let lines = u32::try_from(bytes.div_ceil(64)).expect("a region below 256 GiB");
        (0..lines).for_each(|_| {
            self.add(class, home);
        });
        self.regions.push(Region { first, lines });
        self.regions.len() as u32 - 1
    }

    /// The line at a byte offset of a region; the last one for offsets beyond the end.
    #[inline]
    pub fn at(&self, region: u32, offset: u64) -> LineId {
        let r = &self.regions[region as usize];
        let line = (offset / 64).min(u64::from(r.lines.saturating_sub(1))) as u32;
        LineId(r.first + line)
    }

    pub fn set_class(&mut self, line: LineId, class: LineClass) {
        self.lines[line.index()].class = class.0 as u8;
    }

    pub fn set_home(&mut self, line: LineId, home: Node) {
        self.lines[line.index()].home = home.0 as u16;
    }

    pub fn stats(&self) -> &[ClassStats] {
        &self.classes
    }

    pub fn reset_stats(&mut self) {
        self.classes.iter_mut().for_each(ClassStats::reset);
    }

    /// An access by a CPU of `core` at time `at`. Returns how long it takes, waiting included.
    #[inline]
    pub fn access(&mut self, core: u32, id: LineId, kind: Access, at: Nanos) -> Nanos {
        let core = core as u16;
        let line = &self.lines[id.index()];
        let class = usize::from(line.class);
        let held = self.holds(line, core);
        let sole = held && line.nr == 1;
        if held && (kind == Access::Read || sole) {
            return self.hit(id, class, kind, at);
        }
        self.miss(core, id, class, kind, held, at)
    }

    #[inline]
    fn hit(&mut self, id: LineId, class: usize, kind: Access, at: Nanos) -> Nanos {
        let line = &mut self.lines[id.index()];
        let stats = &mut self.classes[class];
        stats.hits += 1;
        if kind == Access::Read {
            let ns = Nanos::from(self.hit_ns);
            stats.loads += 1;
            stats.load_ns += ns;
            return ns;
        }
        let work = Nanos::from(if kind == Access::Rmw {
            self.rmw_ns
        } else {
            self.hit_ns
        });
        let wait = match self.bundles[class] {
            Some(_) => 0,
            None => line.book(kind, true, at, work),
        };
        line.owner = line.sharers[0];
        stats.writes += 1;
        stats.write_ns += wait + work;
        stats.wait_ns += wait;
        stats.wait_ns_max = stats.wait_ns_max.max(wait);
        wait + work
    }

    fn miss(
        &mut self,
        core: u16,
        id: LineId,
        class: usize,
        kind: Access,
        held: bool,
        at: Nanos,
    ) -> Nanos {
        let line = &self.lines[id.index()];
        let dirty = line.owner != NOBODY;
        let cost = match kind {
            Access::Read => self.nearest(line, core),
            _ => self.farthest(line, core),
        };
        let weight = self.bundles[class].map_or(1, |bundle| bundle.transfers(cost.from));
        let mut ns = Nanos::from(cost.ns) * Nanos::from(weight);
        if kind == Access::Rmw {
            ns += Nanos::from(self.rmw_ns);
        }
        let moves = dirty || kind != Access::Read;
        let wait = self.lines[id.index()].book(kind, moves, at, ns);
        let stats = &mut self.classes[class];
        match cost.from {
            Some(distance) => stats.transfers[distance as usize] += u64::from(weight),
            None => stats.memory += u64::from(weight),
        }
        stats.wait_ns += wait;
        stats.wait_ns_max = stats.wait_ns_max.max(wait);
        if kind == Access::Read {
            stats.loads += 1;
            stats.load_ns += wait + ns;
            debug_assert!(!held);
            self.join(id, core);
            self.lines[id.index()].owner = NOBODY;
        } else {
            stats.writes += 1;
            stats.write_ns += wait + ns;
            self.seize(id, core);
        }
        wait + ns
    }

    /// When the transfer under way, or a lock that is held, ends.
    pub fn free_at(&self, id: LineId) -> Nanos {
        self.lines[id.index()].free_at
    }

    /// A lock's holder lets go at time `at`: nobody gets the line before.
    pub fn unlock(&mut self, id: LineId, taken_at: Nanos, at: Nanos) {
        let line = &mut self.lines[id.index()];
        if line.free_at < at {
            let from = match taken_at <= line.free_at {
                true => line.free_at - Nanos::from(line.booked),
                false => taken_at,
            };
            line.set_booking(from, at, false);
        }
        let stats = &mut self.classes[usize::from(line.class)];
        stats.locks += 1;
        stats.held_ns += at - taken_at;
    }

    #[inline]
    fn holds(&self, line: &Line, core: u16) -> bool {
        if line.bitmap == 0 {
            return line.sharers[..usize::from(line.nr)].contains(&core);
        }
        let words = self.bitmap(line.bitmap);
        words[usize::from(core) / 64] >> (core % 64) & 1 == 1
    }

    fn bitmap(&self, slot: u32) -> &[u64] {
        let start = (slot as usize - 1) * self.words;
        &self.bits[start..start + self.words]
    }

    /// Adds a core to the holders.
    fn join(&mut self, id: LineId, core: u16) {
        let line = &mut self.lines[id.index()];
        let nr = usize::from(line.nr);
        line.nr += 1;
        if line.bitmap == 0 && nr < INLINE {
            line.sharers[nr] = core;
            return;
        }
        if line.bitmap == 0 {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.bits.resize(self.bits.len() + self.words, 0);
                (self.bits.len() / self.words) as u32
            });
            line.bitmap = slot;
            let start = (slot as usize - 1) * self.words;
            let words = &mut self.bits[start..start + self.words];
            words.fill(0);
            for sharer in line.sharers {
                words[usize::from(sharer) / 64] |= 1 << (sharer % 64);
            }
        }
        let start = (line.bitmap as usize - 1) * self.words;
        self.bits[start + usize::from(core) / 64] |= 1 << (core % 64);
    }

    /// Makes a core the only holder.
    fn seize(&mut self, id: LineId, core: u16) {
        let line = &mut self.lines[id.index()];
        if line.bitmap != 0 {
            self.free.push(line.bitmap);
            line.bitmap = 0;
        }
        line.nr = 1;
        line.sharers[0] = core;
        line.owner = core;
    }

    #[inline]
    fn between(&self, a: u16, b: u16) -> Cost {
        let (x, y) = (self.cores[usize::from(a)], self.cores[usize::from(b)]);
        if a == b {
            Cost {
                ns: self.hit_ns,
                from: Some(Distance::Core),
            }
        } else if x.llc == y.llc {
            Cost {
                ns: self.llc_ns,
                from: Some(Distance::Llc),
            }
        } else if x.node == y.node {
            Cost {
                ns: self.within_node_ns,
                from: Some(Distance::Node),
            }
        } else {
            Cost {
                ns: self.node_to_node(x.node, y.node),
                from: Some(Distance::Remote),
            }
        }
    }

    #[inline]
    fn node_to_node(&self, a: u16, b: u16) -> u32 {
        self.node_ns[usize::from(a) * self.near.len() + usize::from(b)]
    }

    /// From memory: of the home node, or the own where the line has no particular home.
    fn fetched_from_memory(&self, line: &Line, core: u16) -> Cost {
        let node = self.cores[usize::from(core)].node;
        let far = if line.home == NOBODY || line.home == node {
            0
        } else {
            self.node_to_node(node, line.home)
        };
        Cost {
            ns: self.memory_ns + far,
            from: None,
        }
    }

    fn nearest(&self, line: &Line, core: u16) -> Cost {
        if line.nr == 0 {
            return self.fetched_from_memory(line, core);
        }
        if line.owner != NOBODY {
            return self.between(core, line.owner);
        }
        if line.bitmap == 0 {
            let sharers = &line.sharers[..usize::from(line.nr)];
            let costs = sharers.iter().map(|&s| self.between(core, s));
            return costs
                .min_by_key(|c| c.ns)
                .unwrap_or_else(|| self.fetched_from_memory(line, core));
        }
        let at = self.cores[usize::from(core)];
        let words = self.bitmap(line.bitmap);
        if any_bit(words, &self.llc_cores[usize::from(at.llc)]) {
            return Cost {
                ns: self.llc_ns,
                from: Some(Distance::Llc),
            };
        }
        if any_bit(words, &self.node_cores[usize::from(at.node)]) {
            return Cost {
                ns: self.within_node_ns,
                from: Some(Distance::Node),
            };
        }
        let near = &self.near[usize::from(at.node)];
        let node = near
            .iter()
            .find(|&&n| any_bit(words, &self.node_cores[usize::from(n)]));
        match node {
            Some(&n) => Cost {
                ns: self.node_to_node(at.node, n),
                from: Some(Distance::Remote),
            },
            None => self.fetched_from_memory(line, core),
        }
    }

    fn farthest(&self, line: &Line, core: u16) -> Cost {
        if line.nr == 0 {
            return self.fetched_from_memory(line, core);
        }
        if line.bitmap == 0 {
            let sharers = line.sharers[..usize::from(line.nr)]
                .iter()
                .filter(|&&s| s != core);
            let costs = sharers.map(|&s| self.between(core, s));
            return costs
                .max_by_key(|c| c.ns)
                .unwrap_or_else(|| self.fetched_from_memory(line, core));
        }
        let at = self.cores[usize::from(core)];
        let words = self.bitmap(line.bitmap);
        // `near` is in order of SLIT distance, hence of cost.
        let near = &self.near[usize::from(at.node)];
        let far = near
            .iter()
            .rev()
            .find(|&&n| any_bit(words, &self.node_cores[usize::from(n)]));
        if let Some(&n) = far {
            return Cost {
                ns: self.node_to_node(at.node, n),
                from: Some(Distance::Remote),
            };
        }
        let (node, llc) = (
            &self.node_cores[usize::from(at.node)],
            &self.llc_cores[usize::from(at.llc)],
        );
        let others =
            any_bit(words, &(node.start..llc.start)) || any_bit(words, &(llc.end..node.end));
        if others {
            Cost {
                ns: self.within_node_ns,
                from: Some(Distance::Node),
            }
        } else {
            Cost {
                ns: self.llc_ns,
                from: Some(Distance::Llc),
            }
        }
    }
}

/// Whether one of the bits in a range is set.
fn any_bit(words: &[u64], range: &std::ops::Range<usize>) -> bool {
    if range.is_empty() {
        return false;
    }
    let (first, last) = (range.start / 64, (range.end - 1) / 64);
    let low = !0u64 << (range.start % 64);
    let high = !0u64 >> (63 - (range.end - 1) % 64);
    if first == last {
        return words[first] & low & high != 0;
    }
    words[first] & low != 0
        || words[last] & high != 0
        || words[first + 1..last].iter().any(|&w| w != 0)
}

#[cfg(test)]
#[path = "coherence_tests.rs"]
mod tests;
