// SPDX-License-Identifier: GPL-2.0-only
//! The core's enumerations. The order is that of `core/include/usher/usher.h`; a test compares them.

use std::fmt;
use std::str::FromStr;

/// An enumeration with stable names, in the order of the C enum.
macro_rules! named {
    ($(#[$doc:meta])* $kind:ident { $($(#[doc = $vdoc:literal])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $kind {
            $($(#[doc = $vdoc])* $variant,)*
        }

        impl $kind {
            /// All of them, in the order of the C enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The stable name, in kebab-case.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it means, in a sentence: its documentation.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($vdoc),*).trim(),)*
                }
            }

            /// The one with this number in C.
            pub fn from_index(index: usize) -> Option<Self> {
                Self::ALL.get(index).copied()
            }

            /// Its number in C, and its place in a table of counts.
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let name = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }

        impl FromStr for $kind {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                let found = Self::ALL.iter().find(|kind| kind.as_str() == name);
                found.copied().ok_or_else(|| UnknownName {
                    name: name.to_owned(),
                    known: [$($name,)*].join(", "),
                })
            }
        }
    };
}

/// A name that none of an enumeration's members has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such name: `{name}`; known are {known}")]
pub struct UnknownName {
    /// What was given.
    pub name: String,
    /// What would have been right, separated by commas.
    pub known: String,
}

named! {
    /// How many CPUs share a 64-byte line of idle bits. `Shard` is the design, the others are the
    /// baselines it is measured against.
    Granularity {
        /// One mask for the machine, as in the kernel before 6.15. Node-aware calls are off.
        Global = "global",
        /// A mask per NUMA node.
        Node = "node",
        /// A mask per last-level cache.
        Llc = "llc",
        /// A line per shard.
        Shard = "shard",
    }
}

named! {
    /// Whether a task that wakes its partner gives way to it.
    Gives {
        /// It wakes that one as any other.
        Not = "not",
        /// At once: that one runs, and it waits behind.
        Now = "now",
        /// When it sleeps, for it is watched: [`crate::Core::pair_beside`].
        Later = "later",
        /// The same, and the partner waits behind it.
        Behind = "behind",
    }
}

named! {
    /// What kind of wakeup asks for a placement.
    Wake {
        /// A sleeping task wakes.
        Wake = "wake",
        /// It wakes, and the waker says that it is about to sleep.
        Sync = "sync",
        /// A task is being born.
        Fork = "fork",
    }
}

named! {
    /// Where CPUs differ in capacity: in which order the tiers that are enough for a task are searched.
    TierOrder {
        /// The strongest first: for speed.
        StrongestFirst = "strongest-first",
        /// The weakest that is enough first: strong CPUs sleep longer, and are free when somebody needs one.
        WeakestFirst = "weakest-first",
    }
}

named! {
    /// Why a decision fell as it did; the steps are those of `core/src/place.c`.
    Reason {
        /// Only one CPU is allowed.
        Pinned = "pinned",
        /// A core where the task's hint about births asks for it.
        HintFork = "hint-fork",
        /// A core in the waker's LLC, as the task's hint about wakeups asks.
        HintWake = "hint-wake",
        /// Sync wakeup: an idle core in the waker's LLC, where the data is.
        SyncCore = "sync-core",
        /// Sync wakeup: an idle CPU in the waker's LLC.
        SyncCpu = "sync-cpu",
        /// prev's whole core is idle.
        PrevCore = "prev-core",
        /// An idle core in the LLC.
        LlcCore = "llc-core",
        /// prev is idle, a sibling is not, and no core of the LLC is idle.
        Prev = "prev",
        /// An idle CPU in the LLC.
        LlcCpu = "llc-cpu",
        /// An idle core in the node.
        NodeCore = "node-core",
        /// An idle CPU in the node.
        NodeCpu = "node-cpu",
        /// An idle core in another node.
        RemoteCore = "remote-core",
        /// An idle CPU in another node.
        RemoteCpu = "remote-cpu",
        /// CPUs differ in capacity: an idle core of a tier that is enough for the task.
        FitCore = "fit-core",
        /// CPUs differ in capacity: an idle CPU of a tier that is enough for the task.
        FitCpu = "fit-cpu",
        /// Nobody idle is enough for the task: the strongest idle CPU all the same.
        Unfit = "unfit",
        /// A running task that its CPU is too weak for: an idle CPU that is stronger.
        Misfit = "misfit",
        /// A running task that shares its core: a whole one that idles.
        Crowded = "crowded",
        /// Nobody is idle: the task waits in prev's queue.
        Queued = "queued",
        /// Nobody is idle: the task waits in the waker's queue (sync), a shorter one, or, prev not being allowed, where it is.
        QueuedElsewhere = "queued-elsewhere",
        /// No CPU of the machine is allowed.
        Nowhere = "nowhere",
        /// The waker's CPU: of two tasks that always wake each other one gives way to the other, now or when it
        /// sleeps.
        Partner = "partner",
    }
}

named! {
    /// What happened on the way to a decision; counted per CPU.
    Event {
        /// An idle bit seen was gone when it was to be claimed.
        ClaimLost = "claim-lost",
        /// A searcher cleared the summary bit of an empty shard ...
        SummaryRetired = "summary-retired",
        /// ... and found the shard filled behind its back.
        SummaryRestored = "summary-restored",
        /// A CPU cleared the backlog bit of an empty queue ...
        BacklogRetired = "backlog-retired",
        /// ... and found the queue filled behind its back.
        BacklogRestored = "backlog-restored",
        /// A claimed CPU found nothing to run and is idle again.
        IdleReentered = "idle-reentered",
        /// A CPU marked itself idle and then saw a waiting task.
        IdleSawWork = "idle-saw-work",
        /// The look after the queue was filled found an idle CPU.
        LateLook = "late-look",
        /// A look on behalf of others found an idle CPU.
        Rescued = "rescued",
        /// A search for whole cores stopped at its bound.
        SearchBound = "search-bound",
        /// Searches that went through the LLC, ...
        SearchLlc = "search-llc",
        /// ... on to the node, ...
        SearchNode = "search-node",
        /// ... and on to other nodes.
        SearchRemote = "search-remote",
        /// Tasks taken from a queue of the CPU's own LLC, ...
        StealLlc = "steal-llc",
        /// ... from another LLC of the node, ...
        StealNode = "steal-node",
        /// ... from another node.
        StealRemote = "steal-remote",
        /// A hint decided, ...
        HintKept = "hint-kept",
        /// ... or asked for a full place and was passed over.
        HintLapsed = "hint-lapsed",
        /// A CPU of the task's LLC was preempted for it, ...
        PreemptLlc = "preempt-llc",
        /// ... of its node, ...
        PreemptNode = "preempt-node",
        /// ... of another node, ...
        PreemptRemote = "preempt-remote",
        /// ... or was being preempted already, ...
        PreemptLost = "preempt-lost",
        /// ... or there was none in reach that runs low enough.
        PreemptNone = "preempt-none",
        /// A task began to wait, running on a weak CPU, for a stronger one to go idle.
        MisfitWaits = "misfit-waits",
        /// A CPU that went idle called for such a task.
        MisfitCalled = "misfit-called",
        /// A task that had slept ended the turn of one that had run for long.
        TurnCut = "turn-cut",
        /// A CPU chose the task that was handed to it by its own, which went to sleep.
        Handed = "handed",
        /// A task that only CPUs of another node woke was placed by where they are.
        Followed = "followed",
        /// A sync wakeup from an LLC of its node that is not the task's home was a plain one.
        Stayed = "stayed",
        /// A wakeup searched its LLC only, since who waits there runs soon.
        LeftNear = "left-near",
        /// A tick found a queue of such that had not been empty since the tick before, and called other LLCs.
        Overdue = "overdue",
        /// A newborn was sent to the node where most cores idle.
        BornAway = "born-away",
    }
}

named! {
    /// What a task is to those who wait for it, and the level of the CPU that runs it. `core/src/preempt.c`.
    Class {
        /// Runs long without sleeping, or says so.
        Batch = "batch",
        /// Neither, or newborn.
        Normal = "normal",
        /// Sleeps again soon.
        Interactive = "interactive",
        /// By its weight.
        Critical = "critical",
    }
}

/// Why a node-aware call has no CPU to give. Each cause is an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PickError {
    /// Nobody is idle in reach (the kernel's `EBUSY`).
    #[error("nobody is idle in reach")]
    NoneIdle,
    /// The allowed set names no CPU in reach.
    #[error("the allowed set names no CPU in reach")]
    EmptySet,
    /// There is no node of this index, or no CPU of this number (`EINVAL`).
    #[error("no such node")]
    NoSuchNode,
    /// Idle CPUs are tracked for the machine as a whole (`EOPNOTSUPP`).
    #[error("node-aware calls are off with granularity `global`")]
    NodeAwareOff,
}

impl PickError {
    /// From `enum usher_error`, which is negative.
    pub(crate) fn from_code(code: i32) -> Self {
        match code {
            -1 => Self::NoneIdle,
            -2 => Self::EmptySet,
            -3 => Self::NoSuchNode,
            -4 => Self::NodeAwareOff,
            _ => unreachable!("the core returned {code}, which is no enum usher_error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The enumerators of `enum usher_<name>` in the header, without their prefix, in kebab-case.
    fn enumerators(name: &str, prefix: &str) -> Vec<String> {
        let header = include_str!("../../../core/include/usher/usher.h");
        let start = header
            .find(&format!("enum usher_{name} {{"))
            .expect("the header has the enum");
        let body = &header[start..][..header[start..].find("};").expect("it ends")];
        let words = body.lines().skip(1).filter_map(|line| {
            let word = line.trim().split([',', ' ']).next()?.strip_prefix(prefix)?;
            (!word.starts_with("NR_")).then(|| word.to_lowercase().replace('_', "-"))
        });
        words.collect()
    }

    fn names<T: fmt::Display>(all: &[T]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    // Goal: a name in a report means what the C code means by its number.
    // Method: read the header's enums and compare order and names.
    #[test]
    fn names_and_numbers_are_those_of_the_header() {
        assert_eq!(enumerators("reason", "USHER_"), names(Reason::ALL));
        assert_eq!(enumerators("event", "USHER_EV_"), names(Event::ALL));
        assert_eq!(
            enumerators("granularity", "USHER_"),
            names(Granularity::ALL)
        );
        assert_eq!(enumerators("class", "USHER_"), names(Class::ALL));
        assert_eq!(enumerators("tier_order", "USHER_"), names(TierOrder::ALL));
        assert_eq!(enumerators("gives", "USHER_GIVES_"), names(Gives::ALL));
        let wakes = enumerators("wake", "USHER_WAKE");
        assert_eq!(wakes, ["", "-sync", "-fork"]);
        assert_eq!(names(Wake::ALL), ["wake", "sync", "fork"]);
    }

    // Goal: a wrong name on a command line is explained.
    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "shards".parse::<Granularity>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no such name: `shards`; known are global, node, llc, shard"
        );
        assert_eq!("llc-core".parse(), Ok(Reason::LlcCore));
    }

    // Goal: a reason's meaning is its documentation, as one line without the comment's margins.
    #[test]
    fn reasons_say_what_they_mean() {
        assert_eq!(Reason::PrevCore.meaning(), "prev's whole core is idle.");
        for reason in Reason::ALL {
            let text = reason.meaning();
            assert!(
                text.ends_with('.') && !text.contains("  "),
                "{reason}: {text}"
            );
        }
    }
}
