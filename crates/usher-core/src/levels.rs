// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map: at which level each CPU runs, and whom to preempt. `core/src/cpupri.c`.

use std::fmt;

use usher_topo::{Cid, Node, Shard};

use crate::ffi;
use crate::kinds::Class;
use crate::placement::Core;
use crate::request::{Query, Tiers};
use crate::set::CidSet;

/// A level of the CPU priority map: 0, nothing urgent, to 100. The kernel's real-time class uses 0 for a CPU
/// without real-time tasks, 1 to 99 for their priorities and 100 for what is above them.
///
/// ```
/// use usher_core::{Core, Level, LevelQuery, Settings, Tables};
/// use usher_topo::{shape, Cid, Topology};
///
/// let topo = Topology::build(&shape::parse("2n1l4c1t")?, 64)?;
/// let settings = Settings { cpupri: true, ..Settings::default() };
/// let mut core = Core::new(&Tables::from(&topo), &settings)?;
/// let [batch, urgent] = [Level::new(1).unwrap(), Level::new(4).unwrap()];
/// for cid in 0..8 {
///     core.set_level(Cid(cid), Some(urgent));
/// }
/// core.set_level(Cid(6), Some(batch)); // in the other node
/// let query = LevelQuery::nearest(Cid(0), urgent);
/// assert_eq!(core.find_lower(&query), Some((Cid(6), batch)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// How many there are.
    pub const COUNT: u32 = 101;
    /// The lowest, 0.
    pub const LOWEST: Self = Self(0);
    /// The highest, 100.
    pub const HIGHEST: Self = Self(100);

    /// The level of this number; `None` above 100.
    pub const fn new(number: u32) -> Option<Self> {
        if number < Self::COUNT {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How long a task runs between two sleeps.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    ns: u64,
    average_ns: u64,
}

impl Burst {
    /// It ran for `ran_ns`, and then slept, or was made to wait.
    pub fn ran(&mut self, ran_ns: u64, slept: bool) {
        // SAFETY: C reads and writes the burst.
        unsafe { ffi::usher_tables_burst_ran(self, ran_ns, slept) }
    }
}

/// A search for a CPU to preempt.
#[derive(Clone, Copy, Debug)]
pub struct LevelQuery<'a> {
    /// Which CPUs will do; `None`: any.
    pub allowed: Option<&'a CidSet>,
    /// The tiers that the task fits on. If nobody there runs lower, any tier will do: priority goes before fit.
    pub tiers: Tiers,
    /// Only CPUs at a lower level than this.
    pub below: Level,
    /// The lowest level in reach and of that the nearest CPU; otherwise the nearest shard, then node, that has
    /// anybody lower, and its lowest level.
    pub lowest: bool,
    /// Do not go on to other nodes.
    pub in_node: bool,
    /// Where the search starts.
    pub from: Cid,
}

impl LevelQuery<'_> {
    /// Anybody lower, nearest to `from`.
    pub fn nearest(from: Cid, below: Level) -> Self {
        Self {
            allowed: None,
            tiers: Tiers::ANY,
            below,
            lowest: false,
            in_node: false,
            from,
        }
    }

    /// The lowest level of the machine.
    pub fn lowest(from: Cid, below: Level) -> Self {
        Self {
            lowest: true,
            ..Self::nearest(from, below)
        }
    }

    fn to_c(self) -> ffi::Query {
        ffi::Query {
            allowed: self.allowed.map_or(std::ptr::null(), CidSet::as_ptr),
            tiers: self.tiers.0,
            flags: u32::from(self.in_node) << 1 | u32::from(self.lowest) << 2,
            from: self.from.0,
            this: self.from.0,
        }
    }
}

/// The CPU priority map. All of it panics on a core that was built without: [`crate::Settings::cpupri`].
impl Core {
    #[track_caller]
    fn mapped(&self) {
        assert!(
            self.cpupri,
            "the core was built without a CPU priority map: Settings::cpupri"
        );
    }

    /// `cid` runs at this level from now on; `None`: it takes no tasks, as before the first call. Calls about one
    /// CPU are made one after the other, in a kernel under its runqueue's lock.
    pub fn set_level(&mut self, cid: Cid, level: Option<Level>) {
        self.mapped();
        let (cid, level) = (self.cid(cid), level.map_or(u32::MAX, Level::get));
        // SAFETY: `u` is whole and has the map, cid and level exist, nobody else touches this core (&mut).
        unsafe { (self.api.cpupri_set)(self.u, cid, level) }
    }

    /// The level of `cid`, by what [`Core::set_level`] was told. Never traced.
    pub fn level(&self, cid: Cid) -> Option<Level> {
        self.mapped();
        let cid = self.cid(cid);
        // SAFETY: `u` is whole, the cid exists; a read.
        Level::new(unsafe { ffi::usher_tables_level(self.u, cid) })
    }

    /// A CPU that runs at a lower level than asked for, and its level. Nobody is claimed: where others act at the
    /// same time, look again before preempting it.
    pub fn find_lower(&mut self, query: &LevelQuery) -> Option<(Cid, Level)> {
        self.mapped();
        self.cid(query.from);
        let (query, below) = (query.to_c(), query.below.get());
        let mut level = 0;
        // SAFETY: as in set_level(); the set lives as long as the query, and C writes one level.
        let cid = unsafe { (self.api.cpupri_find)(self.u, &query, below, &mut level) };
        let cid = u32::try_from(cid).ok()?;
        let level = Level::new(level).expect("the core gives a level of the map");
        Some((Cid(cid), level))
    }

    /// A task of this class was woken and nobody is idle: the CPU that it is to take, marked for it, and how far from
    /// `from` the search went is counted for `by`. [`Core::runs`] takes the mark away. Of the query `idle_core` is
    /// not looked at.
    pub fn preempt(&mut self, query: &Query, class: Class) -> Option<Cid> {
        self.mapped();
        let query = self.query(query);
        // SAFETY: as in find_lower().
        let cid = unsafe { (self.api.preempt)(self.u, &query, class as u32) };
        u32::try_from(cid).ok().map(Cid)
    }

    /// The same for a task that may run on `cid` only. Whether it is to take that CPU, now marked for it; counted for `by`.
    pub fn preempt_pinned(&mut self, cid: Cid, by: Cid, class: Class) -> bool {
        self.mapped();
        let (cid, by) = (self.cid(cid), self.cid(by));
        // SAFETY: as in set_level().
        unsafe { (self.api.preempt_pinned)(self.u, cid, by, class as u32) >= 0 }
    }

    /// `cid` begins to run a task of this class: its level from now on. The second such call after it was preempted
    /// makes it free to be preempted again.
    pub fn runs(&mut self, cid: Cid, class: Class) {
        self.mapped();
        let cid = self.cid(cid);
        // SAFETY: as in set_level().
        unsafe { (self.api.preempt_runs)(self.u, cid, class as u32) }
    }

    /// The class of a task by what it did and the weight it has (100: nice 0); `batch`: it says that it is a batch
    /// task.
    pub fn class(&self, burst: &Burst, weight: u32, batch: bool) -> Class {
        // SAFETY: `u` is whole; C reads it and the burst, nothing else.
        let class = unsafe { ffi::usher_tables_class(self.u, burst, weight, batch) };
        Class::from_index(class as usize).expect("the core's classes are ours")
    }

    /// A task is born.
    pub fn burst(&self) -> Burst {
        let mut burst = Burst::default();
        // SAFETY: as in class(); C writes the burst.
        unsafe { ffi::usher_tables_burst_born(self.u, &mut burst) };
        burst
    }

    /// How many CPUs of the shard are at the level. Never traced.
    pub fn count_at_level(&self, shard: Shard, level: Level) -> u32 {
        self.bits_at_level(shard, level).count_ones()
    }

    /// Which CPUs of the shard are at the level: bit 0 is its first cid. Never traced.
    pub fn bits_at_level(&self, shard: Shard, level: Level) -> u64 {
        self.mapped();
        let shard = self.shard(shard);
        // SAFETY: `u` is whole and has the map, shard and level exist; a read.
        unsafe { ffi::usher_tables_at_level(self.u, shard, level.get()) }
    }

    /// Where the word of a shard's level lies, in bytes from the start of the block: what a traced access to it has
    /// as its offset.
    pub fn level_word_offset(&self, shard: Shard, level: Level) -> u64 {
        self.mapped();
        let shard = self.shard(shard);
        // SAFETY: as in bits_at_level().
        unsafe { ffi::usher_tables_level_offset(self.u, shard, level.get()) }
    }

    /// The same of the word of the node's map in which the shard has a bit at the level.
    pub fn present_word_offset(&self, shard: Shard, level: Level) -> u64 {
        self.mapped();
        let shard = self.shard(shard);
        // SAFETY: as in bits_at_level().
        unsafe { ffi::usher_tables_present_offset(self.u, shard, level.get()) }
    }

    /// The same of the word of the node's summary in which the level has a bit.
    ///
    /// # Panics
    /// There is no such node.
    pub fn summary_word_offset(&self, node: Node, level: Level) -> u64 {
        let node = self.node_with_levels(node);
        // SAFETY: as in bits_at_level(), and the node exists.
        unsafe { ffi::usher_tables_levels_offset(self.u, node, level.get()) }
    }

    /// Whether the node's map says that somebody of the shard may be at the level. Never traced.
    pub fn shard_in_level(&self, shard: Shard, level: Level) -> bool {
        self.mapped();
        let shard = self.shard(shard);
        // SAFETY: as in bits_at_level().
        unsafe { ffi::usher_tables_present(self.u, shard, level.get()) }
    }

    /// Whether the node's summary says that somebody of it may be at the level. Never traced.
    ///
    /// # Panics
    /// There is no such node.
    pub fn node_in_level(&self, node: Node, level: Level) -> bool {
        let node = self.node_with_levels(node);
        // SAFETY: as in bits_at_level(), and the node exists.
        unsafe { ffi::usher_tables_node_level(self.u, node, level.get()) }
    }

    #[track_caller]
    fn node_with_levels(&self, node: Node) -> u32 {
        self.mapped();
        let nr = self.nr_nodes();
        assert!((node.0 as usize) < nr, "no node {node} among {nr}");
        node.0
    }
}
