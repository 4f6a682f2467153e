// SPDX-License-Identifier: GPL-2.0-only
//! What the core is told about a machine: plain arrays, checked before C sees them.

use std::ops::RangeInclusive;

use usher_topo::{cut_into_shards, Topology, MAX_CPU_NUMBER};

use crate::ffi;
use crate::kinds::{Granularity, TierOrder};
use crate::MAX_CIDS;

/// The widest core that idle tracking sees as a whole, in threads.
pub const MAX_SMT: u32 = 8;
/// Tiers that are told apart; weaker CPUs count as the last.
pub const MAX_TIERS: u32 = 8;
/// The most CPUs that wait for tasks at one queue, unless told otherwise; `docs/CHOICES.md`, "One queue for how many CPUs".
pub const DEFAULT_QUEUE_WIDTH: u32 = 16;
/// What a task runs before it queues again, unless told otherwise: 3 ms.
pub const DEFAULT_SLICE_NS: u64 = 3_000_000;
/// How long a slice may be.
pub const SLICES_NS: RangeInclusive<u64> = 1_000..=1_000_000_000;
/// How long the lightest task waits, if not told otherwise: half of the time after which the kernel ejects scx_usher, if not told otherwise.
pub const DEFAULT_PATIENCE_NS: u64 = 5_000_000_000;
/// Who waits for less is left to the CPUs of its last-level cache, unless told otherwise: 10 us, as crowds and databases would have it
/// (`docs/CHOICES.md`).
pub const DEFAULT_SOON_NS: u64 = 10_000;
/// Only queues of so many CPUs at least are left to their last-level cache: `USHER_PACE_CIDS`.
pub const PACE_CIDS: usize = 8;
/// So many slices at least are in [`Settings::patience_ns`].
pub const PATIENCE_SLICES: u64 = 64;
/// Shards of other LLCs looked into for a whole core before any idle thread will do.
pub const DEFAULT_CORE_PROBES: u32 = 4;

/// A machine as the core sees it: per cid, dense indices of what it belongs to. Made from a
/// [`Topology`], or filled in by hand.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tables {
    /// Per cid: the kernel's CPU number.
    pub cpu: Vec<u32>,
    /// Per cid, ascending: its core.
    pub core: Vec<u32>,
    /// Per cid, ascending without gaps: its shard, of at most 64 cids.
    pub shard: Vec<u32>,
    /// Per cid, ascending without gaps: its last-level cache.
    pub llc: Vec<u32>,
    /// Per cid, ascending without gaps: the queue where tasks wait for it and for other CPUs of its last-level cache.
    pub queue: Vec<u32>,
    /// Per cid, ascending: its node. Nodes of memory only leave gaps.
    pub node: Vec<u32>,
    /// Per cid: 0 to 1024.
    pub capacity: Vec<u32>,
    /// Per cid: 0 is the strongest.
    pub tier: Vec<u32>,
    /// Per node: the kernel's id.
    pub node_id: Vec<u32>,
    /// Node by node, row by row: SLIT distances.
    pub distance: Vec<u32>,
    /// One more than the highest CPU number.
    pub nr_cpu_numbers: u32,
}

/// How the core shall run on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// Which CPUs share a line of idle bits.
    pub granularity: Granularity,
    /// What a task of any weight runs before it queues again, in nanoseconds.
    pub slice_ns: u64,
    /// So long, and a round of all who wait, a task waits at most, however little it weighs, in nanoseconds: a kernel ejects a scheduler
    /// that lets somebody wait for too long.
    pub patience_ns: u64,
    /// A task that waits and runs within so long is left to the CPUs of its last-level cache, in nanoseconds; 0: no task is. Of no effect
    /// with one such cache, and where CPUs of different capacity are told apart.
    #[serde(default)]
    pub soon_ns: u64,
    /// Shards of another LLC looked into for a whole core before any idle thread will do.
    pub core_probes: u32,
    /// With the CPU priority map: see [`crate::Level`]. Without, its calls panic and it takes no memory.
    pub cpupri: bool,
    /// Whether CPUs of different capacity are told apart. Without, all count as equal.
    pub capacity: bool,
    /// If they are: which of those that are enough for a task it is to have.
    pub tier_order: TierOrder,
    /// Whether newborns leave a node of which much is busy for the one where most cores idle. Of no effect with one node, and where CPUs of
    /// different capacity are told apart.
    #[serde(default)]
    pub fork_balance: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            granularity: Granularity::Shard,
            slice_ns: DEFAULT_SLICE_NS,
            patience_ns: DEFAULT_PATIENCE_NS,
            soon_ns: DEFAULT_SOON_NS,
            core_probes: DEFAULT_CORE_PROBES,
            cpupri: false,
            capacity: true,
            tier_order: TierOrder::StrongestFirst,
            fork_balance: true,
        }
    }
}

/// Why tables cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No CPU, or more than the core can number.
    #[error("a machine of {nr_cids} CPUs: the core places tasks on 1 to {MAX_CIDS}")]
    Size {
        /// How many there are.
        nr_cids: usize,
    },
    /// An array has not as many entries as there are CPUs, nodes or pairs of nodes.
    #[error("the array `{array}` has {len} entries; {expected} are needed")]
    Length {
        /// Which array of [`Tables`].
        array: &'static str,
        /// How long it is.
        len: usize,
        /// How long it should be.
        expected: usize,
    },
    /// The levels do not nest, or indices have gaps.
    #[error(
        "cid {cid}: `{array}` is {value}, which does not follow {before}; number cids in the order \
         node, LLC, shard, core, thread"
    )]
    Order {
        /// Which array of [`Tables`].
        array: &'static str,
        /// Where.
        cid: usize,
        /// The entry.
        value: u32,
        /// The entry before it.
        before: u32,
    },
    /// An entry is out of range.
    #[error("cid {cid}: `{array}` is {value}; it must be below {limit}")]
    Range {
        /// Which array of [`Tables`].
        array: &'static str,
        /// Where.
        cid: usize,
        /// The entry.
        value: u32,
        /// The first value that is too large.
        limit: u32,
    },
    /// A table by CPU number would be needlessly large.
    #[error("CPU numbers up to {nr}: the highest may be {MAX_CPU_NUMBER}")]
    CpuNumbers {
        /// One more than the highest.
        nr: u32,
    },
    /// A CPU number occurs twice.
    #[error("cids {first} and {second} are both CPU {cpu}")]
    SameCpu {
        /// The CPU number.
        cpu: u32,
        /// One cid.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A shard or a core is too wide.
    #[error("{what} {index} has {width} CPUs; at most {limit} are possible")]
    Width {
        /// `shard` or `core`.
        what: &'static str,
        /// Its index.
        index: u32,
        /// How many cids it has.
        width: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A slice that would freeze or overflow virtual time.
    #[error("a slice of {slice_ns} ns: it must be 1,000 ns (1 us) to 1,000,000,000 ns (1 s)")]
    Slice {
        /// The slice asked for.
        slice_ns: u64,
    },
    /// A patience in which too few slices end.
    #[error(
        "a patience of {patience_ns} ns: it must be {} slices of {slice_ns} ns or more",
        PATIENCE_SLICES
    )]
    Patience {
        /// The patience asked for.
        patience_ns: u64,
        /// The slice asked for.
        slice_ns: u64,
    },
    /// Memory handed in is too small or not on a line boundary.
    #[error(
        "the tables need {needed} bytes on a 64-byte boundary; given are {given} at {address:#x}"
    )]
    Memory {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
        /// Where they start.
        address: usize,
    },
}

impl From<&Topology> for Tables {
    fn from(topo: &Topology) -> Self {
        fn each<T>(topo: &Topology, of: impl Fn(&usher_topo::CidInfo) -> T) -> Vec<T> {
            topo.cids().iter().map(of).collect()
        }
        let mut tables = Self {
            cpu: each(topo, |c| c.cpu.0),
            core: each(topo, |c| c.core.0),
            shard: each(topo, |c| c.shard.0),
            llc: each(topo, |c| c.llc.0),
            queue: Vec::new(),
            node: each(topo, |c| c.node.0),
            capacity: each(topo, |c| c.capacity),
            tier: each(topo, |c| c.tier.0),
            node_id: topo.nodes().iter().map(|node| node.id).collect(),
            distance: topo
                .nodes()
                .iter()
                .flat_map(|n| n.distances.clone())
                .collect(),
            nr_cpu_numbers: narrow(topo.nr_cpu_numbers()),
        };
        tables.cut_queues(DEFAULT_QUEUE_WIDTH);
        tables
    }
}

impl Tables {
    /// How many CPUs.
    pub fn nr_cids(&self) -> usize {
        self.cpu.len()
    }

    /// Gives every last-level cache the fewest queues that serve at most `width` CPUs each, about as many of them, and whole cores, if its
    /// CPUs are of one tier. Where strong and weak CPUs take from the same queue, heavy tasks come to the strong ones.
    pub fn cut_queues(&mut self, width: u32) {
        let width = width.max(1) as usize;
        let mut nr = 0;
        self.queue.clear();
        for llc in self.llc.chunk_by(|a, b| a == b) {
            let cids = self.queue.len()..self.queue.len() + llc.len();
            let cores: Vec<usize> = self.core[cids.clone()]
                .chunk_by(|a, b| a == b)
                .map(<[u32]>::len)
                .collect();
            let widest = cores.iter().copied().max().unwrap_or(1);
            let tiers = &self.tier[cids];
            let one_tier = tiers.iter().all(|tier| *tier == tiers[0]);
            let most = if one_tier {
                width.max(widest)
            } else {
                llc.len()
            };
            for cut in cut_into_shards(&cores, most) {
                self.queue.extend(std::iter::repeat_n(nr, cut));
                nr += 1;
            }
        }
    }

    /// How many queues of several CPUs. Valid once checked.
    pub fn nr_queues(&self) -> usize {
        self.queue.last().map_or(0, |&last| last as usize + 1)
    }

    /// How many LLCs. Valid once checked.
    pub fn nr_llcs(&self) -> usize {
        self.llc.last().map_or(0, |&last| last as usize + 1)
    }

    /// How many shards. Valid once checked.
    pub fn nr_shards(&self) -> usize {
        self.shard.last().map_or(0, |&last| last as usize + 1)
    }

    /// How many nodes, those of memory only included.
    pub fn nr_nodes(&self) -> usize {
        self.node_id.len()
    }

    /// Whether C may see these tables.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, settings: &Settings) -> Result<(), BuildError> {
        let nr_cids = self.nr_cids();
        if nr_cids == 0 || nr_cids > MAX_CIDS {
            return Err(BuildError::Size { nr_cids });
        }
        self.check_lengths()?;
        self.check_order()?;
        self.check_ranges()?;
        check_width("shard", &self.shard, 64)?;
        check_width("core", &self.core, MAX_SMT as usize)?;
        if !SLICES_NS.contains(&settings.slice_ns) {
            let slice_ns = settings.slice_ns;
            return Err(BuildError::Slice { slice_ns });
        }
        if settings.patience_ns < PATIENCE_SLICES * settings.slice_ns {
            return Err(BuildError::Patience {
                patience_ns: settings.patience_ns,
                slice_ns: settings.slice_ns,
            });
        }
        Ok(())
    }

    fn per_cid(&self) -> [(&'static str, &[u32]); 8] {
        [
            ("cpu", &self.cpu),
            ("core", &self.core),
            ("shard", &self.shard),
            ("llc", &self.llc),
            ("queue", &self.queue),
            ("node", &self.node),
            ("capacity", &self.capacity),
            ("tier", &self.tier),
        ]
    }

    fn check_lengths(&self) -> Result<(), BuildError> {
        let nodes = self.nr_nodes();
        let (per_cid, nr_cids) = (self.per_cid(), self.nr_cids());
        let lengths = per_cid.iter().map(|(name, a)| (*name, a.len(), nr_cids));
        let distance = ("distance", self.distance.len(), nodes.saturating_mul(nodes));
        for (array, len, expected) in lengths.chain([distance]) {
            if len != expected {
                return Err(BuildError::Length {
                    array,
                    len,
                    expected,
                });
            }
        }
        Ok(())
    }

    /// Each level's indices ascend, and a new one begins wherever the level above begins a new one.
    fn check_order(&self) -> Result<(), BuildError> {
        let levels = [
            ("node", &self.node, None, false),
            ("llc", &self.llc, Some(&self.node), true),
            ("shard", &self.shard, Some(&self.llc), true),
            ("queue", &self.queue, Some(&self.llc), true),
            ("core", &self.core, Some(&self.llc), false),
        ];
        for (array, level, above, dense) in levels {
            for cid in 0..level.len() {
                let value = level[cid];
                let before = if cid > 0 { level[cid - 1] } else { 0 };
                let new_above = cid > 0 && above.is_some_and(|a: &Vec<u32>| a[cid] != a[cid - 1]);
                let gap = dense
                    && if cid == 0 {
                        value > 0
                    } else {
                        value > before + 1
                    };
                if value < before || gap || (new_above && value == before) {
                    return Err(BuildError::Order {
                        array,
                        cid,
                        value,
                        before,
                    });
                }
            }
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), BuildError> {
        if self.nr_cpu_numbers > MAX_CPU_NUMBER + 1 {
            return Err(BuildError::CpuNumbers {
                nr: self.nr_cpu_numbers,
            });
        }
        let limits = [
            ("cpu", &self.cpu, self.nr_cpu_numbers),
            ("node", &self.node, narrow(self.nr_nodes())),
            ("capacity", &self.capacity, 1025),
        ];
        for (array, values, limit) in limits {
            if let Some(cid) = values.iter().position(|&value| value >= limit) {
                let value = values[cid];
                return Err(BuildError::Range {
                    array,
                    cid,
                    value,
                    limit,
                });
            }
        }
        let mut cid_of_cpu = vec![None; self.nr_cpu_numbers as usize];
        for (second, &cpu) in self.cpu.iter().enumerate() {
            if let Some(first) = cid_of_cpu[cpu as usize].replace(second) {
                return Err(BuildError::SameCpu { cpu, first, second });
            }
        }
        Ok(())
    }

    /// The tables as C takes them; they live as long as `self`.
    pub(crate) fn spec(&self, settings: &Settings) -> ffi::Spec {
        ffi::Spec {
            nr_cids: narrow(self.nr_cids()),
            nr_shards: narrow(self.nr_shards()),
            nr_llcs: narrow(self.nr_llcs()),
            nr_queues: narrow(self.nr_queues()),
            nr_nodes: narrow(self.nr_nodes()),
            nr_cpu_ids: self.nr_cpu_numbers,
            granularity: settings.granularity as u32,
            slice_ns: settings.slice_ns,
            patience_ns: settings.patience_ns,
            soon_ns: settings.soon_ns,
            core_probes: settings.core_probes,
            cpupri: u32::from(settings.cpupri),
            no_capacity: u32::from(!settings.capacity),
            tier_order: settings.tier_order as u32,
            fork_balance: u32::from(settings.fork_balance),
            cpu: self.cpu.as_ptr(),
            core: self.core.as_ptr(),
            shard: self.shard.as_ptr(),
            llc: self.llc.as_ptr(),
            queue: self.queue.as_ptr(),
            node: self.node.as_ptr(),
            capacity: self.capacity.as_ptr(),
            tier: self.tier.as_ptr(),
            node_id: self.node_id.as_ptr(),
            distance: self.distance.as_ptr(),
        }
    }
}

/// A group of equal neighbours in `of` has at most `limit` members.
fn check_width(what: &'static str, of: &[u32], limit: usize) -> Result<(), BuildError> {
    for group in of.chunk_by(|a, b| a == b) {
        if group.len() > limit {
            return Err(BuildError::Width {
                what,
                index: group[0],
                width: group.len(),
                limit,
            });
        }
    }
    Ok(())
}

fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use usher_topo::{machine, shape, Topology};

    use super::*;

    fn queues(topo: &Topology, width: u32) -> Vec<usize> {
        let mut tables = Tables::from(topo);
        tables.cut_queues(width);
        tables.check(&Settings::default()).expect("legal");
        let cut = tables.queue.chunk_by(|a, b| a == b).map(<[u32]>::len);
        cut.collect()
    }

    // Goal: an LLC has the fewest queues of at most so many CPUs, evenly and of whole cores, and one if its CPUs differ. Catches: a queue
    // over two LLCs, a core in two queues, one small queue beside large ones, strong CPUs in other queues than the weak ones beside them.
    #[test]
    fn wide_llcs_have_several_queues() {
        let of = |text: &str| {
            let raw = shape::parse(text).expect("a legal shape");
            Topology::build(&raw, 64).expect("legal")
        };
        assert_eq!(queues(&of("2n2l8c2t"), 16), [16; 4]);
        assert_eq!(queues(&of("1n2l24c2t"), 16), [16; 6]);
        assert_eq!(queues(&of("1n1l10c2t"), 16), [10; 2]);
        assert_eq!(queues(&of("1n1l10c2t"), 9), [8, 8, 4]);
        assert_eq!(queues(&of("1n1l2c4t"), 1), [4; 2]);
        assert_eq!(queues(&of("1n1l100c2t"), 4096), [200]);
        let hybrid = machine::load("hybrid-8p16e").expect("built in");
        let hybrid = Topology::build(&hybrid.to_raw().expect("legal"), 64).expect("legal");
        assert_eq!(queues(&hybrid, 16), [32]);
    }
}
