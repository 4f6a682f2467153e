// SPDX-License-Identifier: GPL-2.0-only
//! What the core is asked, and what it answers.

use std::fmt;
use std::num::NonZeroU64;

use usher_hint::Hints;
use usher_topo::{Cid, Id, Tier};

use crate::ffi;
use crate::kinds::{Reason, Wake};
use crate::set::CidSet;

/// Where tasks wait for some neighbouring CPUs of a last-level cache: an index, by [`crate::Tables::queue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue(pub u32);

impl Id for Queue {
    fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("a machine has at most 4,096"))
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiers(pub(crate) u32);

impl Tiers {
    /// Whatever tier.
    pub const ANY: Self = Self(0);

    /// One tier. Tiers from [`crate::MAX_TIERS`] on count as the last of those.
    pub fn only(tier: Tier) -> Self {
        Self(1 << tier.0.min(crate::MAX_TIERS - 1))
    }

    /// Either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::ANY, _) | (_, Self::ANY) => Self::ANY,
            (Self(a), Self(b)) => Self(a | b),
        }
    }

    /// Whether a CPU of this tier will do.
    pub fn contains(self, tier: Tier) -> bool {
        self == Self::ANY || self.0 & Self::only(tier).0 != 0
    }
}

/// What a task asks of a CPU. The default is nothing: every CPU is enough. It says nothing on machines whose CPUs are
/// equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// How much of the strongest CPU it uses, in 1024ths: [`crate::Core::util_now`].
    pub util: u16,
    /// The kernel's `uclamp.min`: it wants a CPU of at least this capacity.
    pub clamp_min: u16,
    /// The kernel's `uclamp.max`: a CPU of this capacity is enough, whatever `util` says. 0: no limit.
    pub clamp_max: u16,
    /// When it asks: by the clock that [`crate::Core::util_ran`] is told.
    pub at_ns: u64,
}

impl Demand {
    pub(crate) fn to_c(self) -> ffi::Demand {
        ffi::Demand {
            util: self.util,
            clamp_min: self.clamp_min,
            clamp_max: self.clamp_max,
            at: (self.at_ns >> 20) as u16,
        }
    }
}

/// How much a task runs: a geometric average in which what was 33.6 ms ago counts half, in 1024ths of the strongest
/// CPU. One per task, the default at birth; [`crate::Core::util_ran`] brings it up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utilisation(pub(crate) ffi::Util);

/// A task that wants a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where it may run; `None`: anywhere.
    pub allowed: Option<&'a CidSet>,
    /// What kind of wakeup.
    pub wake: Wake,
    /// Where it ran last; where its parent runs, if it is being born.
    pub prev: Cid,
    /// The CPU the decision is made on.
    pub waker: Cid,
    /// Which tiers will do.
    pub tiers: Tiers,
    /// What it wishes, of a newborn what its parent wishes: see `core/src/hint.c`.
    pub hints: Hints,
    /// What it asks of a CPU.
    pub demand: Demand,
}

impl Request<'_> {
    /// A plain wakeup of a task that may run anywhere.
    pub fn wake(prev: Cid, waker: Cid) -> Self {
        Self {
            allowed: None,
            wake: Wake::Wake,
            prev,
            waker,
            tiers: Tiers::ANY,
            hints: Hints::NONE,
            demand: Demand::default(),
        }
    }

    pub(crate) fn to_c(self) -> ffi::Request {
        ffi::Request {
            allowed: self.allowed.map_or(std::ptr::null(), CidSet::as_ptr),
            wake: self.wake as u32,
            prev: self.prev.0,
            waker: self.waker.0,
            nr_allowed: self.allowed.map_or(u32::MAX, |set| set.len() as u32),
            tiers: self.tiers.0,
            hints: self.hints.bits(),
            demand: self.demand.to_c(),
        }
    }
}

/// Where a task goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The CPU; of a task that waits, one whose queue it waits in (pinned, its own).
    pub cid: Cid,
    /// Why.
    pub reason: Reason,
    /// The CPU was idle and is now the task's alone. Otherwise the task waits.
    pub claimed: bool,
    /// The search repaired a summary, and somebody else may have overlooked an idle CPU meanwhile: see
    /// [`crate::Core::rescue`].
    pub poke: bool,
}

impl Decision {
    pub(crate) fn from_c(d: ffi::Decision) -> Self {
        let reason = Reason::from_index(d.reason.into());
        Self {
            cid: Cid(d.cid),
            reason: reason.expect("the core gives a reason of its enum"),
            claimed: d.claimed != 0,
            poke: d.poke != 0,
        }
    }
}

/// A search for an idle CPU without a task to place.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Which CPUs will do; `None`: any.
    pub allowed: Option<&'a CidSet>,
    /// Which tiers will do.
    pub tiers: Tiers,
    /// Only CPUs whose whole core is idle. Of the node-aware calls; others do not look at it.
    pub idle_core: bool,
    /// Do not go on to other nodes. Of the node-aware calls; others do not look at it.
    pub in_node: bool,
    /// Only on `from`. Of [`crate::Core::turn_cut`]; others do not look at it.
    pub here: bool,
    /// Where the search starts. The node-aware calls start at their node instead.
    pub from: Cid,
    /// The CPU that searches.
    pub by: Cid,
}

impl Query<'_> {
    /// Any CPU, nearest to `from` first.
    pub fn any(from: Cid, by: Cid) -> Self {
        Self {
            allowed: None,
            tiers: Tiers::ANY,
            idle_core: false,
            in_node: false,
            here: false,
            from,
            by,
        }
    }

    pub(crate) fn to_c(self) -> ffi::Query {
        ffi::Query {
            allowed: self.allowed.map_or(std::ptr::null(), CidSet::as_ptr),
            tiers: self.tiers.0,
            flags: u32::from(self.idle_core)
                | u32::from(self.in_node) << 1
                | u32::from(self.here) << 4,
            from: self.from.0,
            this: self.by.0,
        }
    }
}

/// A virtual time. It names the queue in whose clock it counts; compare only times of the same queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vtime(pub u64);

/// Who wakes a task that holds, and how often in a row: [`crate::Core::hold`]'s to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold(pub(crate) u32);

/// Which other LLCs woke a task: [`crate::Core::follow`]'s to know.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Follow {
    sleeps: u32,
    llc: u16,
    times: u16,
    node_times: u16,
    home: u16,
}

/// Whom a task wakes, about to sleep, whether it sleeps then, and how soon it goes on: [`crate::Core::pair_asks`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    partner: u64,
    asked_ns: u64,
    answers_ns: [u64; 2],
    paused: u32,
    sure: u32,
    chosen: u32,
    ways: [u32; 2],
    settled: u32,
    sooner: u32,
}

impl Pair {
    /// Whether `task` is the one that this task always wakes.
    pub fn answers(&self, task: NonZeroU64) -> bool {
        // SAFETY: C reads the pair.
        unsafe { ffi::usher_tables_pair_answers(self, task.get()) }
    }
}

/// Where a CPU without work has looked so far.
#[derive(Clone, Debug)]
pub struct Walk(pub(crate) ffi::Walk);
