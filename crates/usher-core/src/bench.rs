// SPDX-License-Identifier: GPL-2.0-only
//! The loops that the benches time; they are in C (`shim/bench.c`), where what is measured and what it is
//! compared with are called alike. A round is one claim and one release of an idle CPU.
//!
//! ```
//! use usher_core::bench::{Loop, Places};
//! use usher_core::Core;
//! use usher_topo::{shape, Cid, Topology};
//!
//! let topo = Topology::build(&shape::parse("1n1l8c2t")?, 64)?;
//! let mut core = Core::of(&topo)?;
//! for cid in 0..8 {
//!     core.idle_enter(Cid(cid));
//! }
//! let places = Places::new((0..16).map(Cid).collect());
//! let [mut one] = Loop::split(&mut core, [Cid(0)]);
//! assert!(one.idle_map(&places, 1000) > 0);
//! assert!((0..8).all(|cid| core.is_idle(Cid(cid))), "whatever was claimed is released");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::hint::black_box;
use std::marker::PhantomData;

use usher_hint::Hints;
use usher_topo::Cid;

use crate::ffi::{usher_tables_asymmetric, Usher};
use crate::kinds::Wake;
use crate::levels::Level;
use crate::masks::{CMasks, ComplementMasks};
use crate::placement::Core;
use crate::set::CidSet;

/// CPUs that a loop has claimed and not yet released: so many must be idle when it starts.
pub const BUSY: usize = 4;

/// `struct usher_bench_places`.
#[repr(C)]
struct CPlaces {
    from: *const u32,
    mask: u64,
}

extern "C" {
    fn usher_bench_two_atomics(word: *mut u64, places: *const CPlaces, rounds: u64) -> u64;
    fn usher_bench_two_in_turn(
        word: *mut u64,
        places: *const CPlaces,
        zero: u64,
        rounds: u64,
    ) -> u64;
    fn usher_bench_idle_map(u: *mut Usher, places: *const CPlaces, by: u32, rounds: u64) -> u64;
    fn usher_bench_idle_and_look(u: *mut Usher, p: *const CPlaces, by: u32, rounds: u64) -> u64;
    fn usher_bench_place(u: *mut Usher, p: *const CPlaces, by: u32, wake: u32, rounds: u64) -> u64;
    fn usher_bench_place_hinted(
        u: *mut Usher,
        places: *const CPlaces,
        by: u32,
        wake: u32,
        hints: u32,
        rounds: u64,
    ) -> u64;
    fn usher_bench_place_equal(
        u: *mut Usher,
        places: *const CPlaces,
        by: u32,
        wake: u32,
        hints: u32,
        rounds: u64,
    ) -> u64;
    fn usher_bench_flags(flags: *mut u64, nr: u32, places: *const CPlaces, rounds: u64) -> u64;
    fn usher_bench_level_set(u: *mut Usher, p: *const CPlaces, low: u32, high: u32, n: u64) -> u64;
    fn usher_bench_level_find(
        u: *mut Usher,
        places: *const CPlaces,
        below: u32,
        flags: u32,
        rounds: u64,
    ) -> u64;
    fn usher_bench_level_both(u: *mut Usher, p: *const CPlaces, low: u32, high: u32, n: u64)
        -> u64;
    fn usher_bench_proposal_set(
        m: *mut CMasks,
        places: *const CPlaces,
        low: u32,
        high: u32,
        rounds: u64,
    ) -> u64;
    fn usher_bench_proposal_find(
        m: *mut CMasks,
        places: *const CPlaces,
        allowed: *const u64,
        below: u32,
        rounds: u64,
    ) -> u64;
    fn usher_bench_proposal_both(
        m: *mut CMasks,
        places: *const CPlaces,
        allowed: *const u64,
        low: u32,
        high: u32,
        rounds: u64,
    ) -> u64;
    fn usher_bench_masks(
        words: *mut u64,
        nr: u32,
        span: u32,
        places: *const CPlaces,
        rounds: u64,
    ) -> u64;
}

/// Where the tasks that look for a CPU ran last, in turn.
pub struct Places(Vec<u32>);

impl Places {
    /// # Panics
    /// The length is no power of two.
    pub fn new(cids: Vec<Cid>) -> Self {
        assert!(cids.len().is_power_of_two(), "{} places", cids.len());
        Self(cids.into_iter().map(|cid| cid.0).collect())
    }

    fn to_c(&self) -> CPlaces {
        CPlaces {
            from: self.0.as_ptr(),
            mask: self.0.len() as u64 - 1,
        }
    }

    #[track_caller]
    fn check(&self, nr: usize) {
        assert!(self.0.iter().all(|&cid| (cid as usize) < nr));
    }
}

/// Words on lines of their own.
pub struct Lines(Vec<[std::sync::atomic::AtomicU64; 8]>, usize);

impl Lines {
    /// So many words, all 0.
    pub fn new(words: usize) -> Self {
        // One line more, so that the first word in use can stand on a line boundary.
        let lines = Vec::from_iter((0..words.div_ceil(8) + 1).map(|_| Default::default()));
        Self(lines, words)
    }

    fn start(&self) -> *mut u64 {
        let start = self.0.as_ptr().cast::<u64>();
        // SAFETY: there is a line more than asked for.
        unsafe { start.add(start.align_offset(64)).cast_mut() }
    }

    /// Sets a bit of a word.
    pub fn set(&mut self, word: usize, bit: u32) {
        assert!(word < self.1 && bit < 64);
        // SAFETY: the word exists.
        unsafe { *self.start().add(word) |= 1 << bit };
    }

    /// The limit: two bare atomics on one line.
    pub fn two_atomics(&self, places: &Places, rounds: u64) -> u64 {
        // SAFETY: there is a word, touched by atomics only while shared.
        unsafe { usher_bench_two_atomics(self.start(), &places.to_c(), rounds) }
    }

    /// The same two, each waiting for what the one before returned.
    pub fn two_in_turn(&self, places: &Places, rounds: u64) -> u64 {
        // SAFETY: as in two_atomics().
        unsafe { usher_bench_two_in_turn(self.start(), &places.to_c(), black_box(0), rounds) }
    }

    /// A flag per CPU, one a line, looked at one after the other.
    ///
    /// # Panics
    /// There is no line per CPU, or a place is not among them.
    pub fn flags(&self, nr_cids: usize, places: &Places, rounds: u64) -> u64 {
        assert!(nr_cids * 8 <= self.1);
        places.check(nr_cids);
        // SAFETY: there is a line per CPU, touched by atomics only while shared.
        unsafe { usher_bench_flags(self.start(), nr_cids as u32, &places.to_c(), rounds) }
    }

    /// Masks of `span` words each; places count their bits.
    ///
    /// # Panics
    /// The words are no multiple of `span`, or a place is not among their bits.
    pub fn masks(&self, span: usize, places: &Places, rounds: u64) -> u64 {
        assert!(span > 0 && self.1.is_multiple_of(span));
        places.check(self.1 * 64);
        let (nr, span) = (self.1 as u32, span as u32);
        // SAFETY: there are so many words, touched by atomics only while shared.
        unsafe { usher_bench_masks(self.start(), nr, span, &places.to_c(), rounds) }
    }
}

/// A CPU that claims and releases, for a thread of its own.
pub struct Loop<'a> {
    u: *mut Usher,
    nr_cids: usize,
    /// Idle CPUs that this loop may count on.
    nr_idle: usize,
    by: Cid,
    /// The CPUs whose levels it may change, from `by` on; nobody's if the core has no CPU priority map.
    levels: std::ops::Range<u32>,
    core: PhantomData<&'a mut Core>,
}

// SAFETY: loops of one core touch what they share by atomics only; the rest is their own CPU's, and no two
// loops have the same, or that of a CPU that they claimed.
unsafe impl Send for Loop<'_> {}

impl<'a> Loop<'a> {
    /// A loop for each of these CPUs. Counters and flags of CPUs that are claimed belong to who claimed them.
    ///
    /// # Panics
    /// A CPU occurs twice or does not exist, or the core is a traced one.
    pub fn split<const N: usize>(core: &'a mut Core, by: [Cid; N]) -> [Self; N] {
        let loops = Self::split_all(core, &by);
        let Ok(loops) = loops.try_into() else {
            unreachable!("a loop per CPU")
        };
        loops
    }

    /// The same for any number. The levels that a loop may change are those of the CPUs from its own up to the next
    /// loop's.
    ///
    /// # Panics
    /// As for [`Loop::split`].
    pub fn split_all(core: &'a mut Core, by: &[Cid]) -> Vec<Self> {
        let nr_cids = core.nr_cids();
        for (index, cid) in by.iter().enumerate() {
            assert!(!by[..index].contains(cid) && (cid.0 as usize) < nr_cids);
        }
        let idle = (0..nr_cids as u32).filter(|&cid| core.is_idle(Cid(cid)));
        let nr_idle = idle.count() / by.len().max(1);
        let nr_levels = if core.cpupri { nr_cids as u32 } else { 0 };
        let u = core.native();
        let each = by.iter().map(|&cid| {
            let behind = by
                .iter()
                .map(|other| other.0)
                .filter(|&other| other > cid.0);
            Self {
                u,
                nr_cids,
                nr_idle,
                by: cid,
                levels: cid.0..behind.min().unwrap_or(nr_levels).min(nr_levels),
                core: PhantomData,
            }
        });
        each.collect()
    }

    fn check(&self, places: &Places) {
        places.check(self.nr_cids);
        assert!(
            self.nr_idle >= BUSY,
            "{} idle CPUs, {BUSY} are needed",
            self.nr_idle
        );
    }

    /// Claims any idle CPU, the nearest first; releases it into the idle map.
    ///
    /// # Panics
    /// Fewer than [`BUSY`] CPUs per loop were idle, or a place is not on the machine.
    pub fn idle_map(&mut self, places: &Places, rounds: u64) -> u64 {
        self.check(places);
        // SAFETY: the core is whole, the places exist, and `by` is this loop's.
        unsafe { usher_bench_idle_map(self.u, &places.to_c(), self.by.0, rounds) }
    }

    /// The same, and a CPU that is released looks for work in all queues.
    ///
    /// # Panics
    /// As for [`Loop::idle_map`].
    pub fn idle_and_look(&mut self, places: &Places, rounds: u64) -> u64 {
        self.check(places);
        // SAFETY: as in idle_map().
        unsafe { usher_bench_idle_and_look(self.u, &places.to_c(), self.by.0, rounds) }
    }

    /// Whole decisions, each followed by the release of what it claimed. The sum of their reasons' numbers.
    ///
    /// # Panics
    /// A place is not on the machine.
    pub fn place(&mut self, places: &Places, wake: Wake, rounds: u64) -> u64 {
        places.check(self.nr_cids);
        // SAFETY: as in idle_map().
        unsafe { usher_bench_place(self.u, &places.to_c(), self.by.0, wake as u32, rounds) }
    }

    /// The same of tasks with hints. Those without any pay for the question whether they have some, which
    /// [`Loop::place`] does not ask.
    ///
    /// # Panics
    /// A place is not on the machine.
    pub fn place_hinted(&mut self, places: &Places, wake: Wake, hints: Hints, rounds: u64) -> u64 {
        places.check(self.nr_cids);
        let (places, wake, hints) = (places.to_c(), wake as u32, hints.bits());
        // SAFETY: as in idle_map().
        unsafe { usher_bench_place_hinted(self.u, &places, self.by.0, wake, hints, rounds) }
    }

    /// The same of a core that knows nothing of capacities.
    ///
    /// # Panics
    /// A place is not on the machine, or its CPUs differ in capacity.
    pub fn place_equal(&mut self, places: &Places, wake: Wake, hints: Hints, rounds: u64) -> u64 {
        places.check(self.nr_cids);
        // SAFETY: a read.
        assert!(!unsafe { usher_tables_asymmetric(self.u) }, "equal CPUs");
        let (places, wake, hints) = (places.to_c(), wake as u32, hints.bits());
        // SAFETY: as in idle_map(); that CPUs are equal, which it takes for granted, was checked.
        unsafe { usher_bench_place_equal(self.u, &places, self.by.0, wake, hints, rounds) }
    }

    #[track_caller]
    fn check_levels(&self, places: &Places) {
        let own = |cid: &u32| self.levels.contains(cid);
        assert!(places.0.iter().all(own), "levels of {:?}", self.levels);
    }

    /// CPUs go from one of two levels of the CPU priority map to the other.
    ///
    /// # Panics
    /// There is no such map, or a place is not one of this loop's CPUs: see [`Loop::split_all`].
    pub fn set_levels(&mut self, places: &Places, [low, high]: [Level; 2], rounds: u64) -> u64 {
        self.check_levels(places);
        let (low, high) = (low.get(), high.get());
        // SAFETY: as in idle_map(), the core has the map, and nobody else changes the levels of these CPUs.
        unsafe { usher_bench_level_set(self.u, &places.to_c(), low, high, rounds) }
    }

    /// Searches for CPUs at lower levels, from the places: nearest, or the lowest level. The sum of what was found.
    ///
    /// # Panics
    /// As for [`Loop::set_levels`].
    pub fn find_levels(&mut self, places: &Places, below: Level, lowest: bool, rounds: u64) -> u64 {
        self.check_levels(places);
        let (below, flags) = (below.get(), u32::from(lowest) << 2);
        // SAFETY: as in set_levels().
        unsafe { usher_bench_level_find(self.u, &places.to_c(), below, flags, rounds) }
    }

    /// Both in turn: a change of level, and a search from there for CPUs below the higher one.
    ///
    /// # Panics
    /// As for [`Loop::set_levels`].
    pub fn set_and_find(&mut self, places: &Places, [low, high]: [Level; 2], rounds: u64) -> u64 {
        self.check_levels(places);
        let (low, high) = (low.get(), high.get());
        // SAFETY: as in set_levels().
        unsafe { usher_bench_level_both(self.u, &places.to_c(), low, high, rounds) }
    }
}

/// The same loops over the proposal's form.
impl ComplementMasks {
    /// As [`Loop::set_levels`].
    ///
    /// # Panics
    /// A place is not on the machine.
    pub fn set_levels(&mut self, places: &Places, [low, high]: [Level; 2], rounds: u64) -> u64 {
        places.check(self.nr_cids());
        let (low, high) = (low.get(), high.get());
        // SAFETY: the masks are whole and nobody else uses them; the places exist.
        unsafe { usher_bench_proposal_set(self.as_ptr(), &places.to_c(), low, high, rounds) }
    }

    /// As [`Loop::find_levels`], always the lowest level.
    ///
    /// # Panics
    /// A place is not on the machine.
    pub fn find_levels(
        &mut self,
        places: &Places,
        allowed: &CidSet,
        below: Level,
        rounds: u64,
    ) -> u64 {
        places.check(self.nr_cids());
        let (allowed, below) = (allowed.as_ptr(), below.get());
        // SAFETY: as in set_levels().
        unsafe { usher_bench_proposal_find(self.as_ptr(), &places.to_c(), allowed, below, rounds) }
    }
}

/// A thread's part of the proposal's form: the CPUs whose levels it changes.
pub struct MasksLoop<'a> {
    masks: *mut CMasks,
    nr_cids: usize,
    levels: std::ops::Range<u32>,
    whole: PhantomData<&'a mut ComplementMasks>,
}

// SAFETY: loops of one map touch what they share by atomics only, and no two have the same CPUs.
unsafe impl Send for MasksLoop<'_> {}

impl MasksLoop<'_> {
    /// As [`Loop::set_and_find`]; searches look for the lowest level.
    ///
    /// # Panics
    /// A place is not one of this loop's CPUs.
    pub fn set_and_find(
        &mut self,
        places: &Places,
        allowed: &CidSet,
        [low, high]: [Level; 2],
        rounds: u64,
    ) -> u64 {
        places.check(self.nr_cids);
        assert!(places.0.iter().all(|cid| self.levels.contains(cid)));
        let (allowed, low, high) = (allowed.as_ptr(), low.get(), high.get());
        // SAFETY: the masks are whole, the places exist and are nobody else's.
        unsafe { usher_bench_proposal_both(self.masks, &places.to_c(), allowed, low, high, rounds) }
    }
}

impl ComplementMasks {
    /// A loop for each of these CPUs, for its own and those up to the next loop's.
    ///
    /// # Panics
    /// A CPU occurs twice or does not exist.
    pub fn split_all(&mut self, by: &[Cid]) -> Vec<MasksLoop<'_>> {
        let (nr_cids, masks) = (self.nr_cids(), self.as_ptr());
        for (index, cid) in by.iter().enumerate() {
            assert!(!by[..index].contains(cid) && (cid.0 as usize) < nr_cids);
        }
        let each = by.iter().map(|cid| {
            let behind = by
                .iter()
                .map(|other| other.0)
                .filter(|&other| other > cid.0);
            MasksLoop {
                masks,
                nr_cids,
                levels: cid.0..behind.min().unwrap_or(nr_cids as u32),
                whole: PhantomData,
            }
        });
        each.collect()
    }
}
