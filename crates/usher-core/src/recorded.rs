// SPDX-License-Identifier: GPL-2.0-only
//! Decisions as a kernel recorded them, and made again.
//!
//! A decision depends on its request and on what its accesses to shared memory saw. `scx_usher --record` writes both to a file
//! of JSON lines: a [`Header`] with the machine, a [`Recorded`] per decision, a [`Footer`]. [`Core::replay`] makes a decision again
//! in a process, each access answered from the record: it comes out the same, whatever other CPUs did meanwhile, if this core and
//! that one are the same code on the same machine.

use std::fmt;
use std::mem::MaybeUninit;

use serde::{Deserialize, Serialize};
use usher_hint::Hints;
use usher_topo::{format_cpulist, parse_cpulist, Cid};

use crate::ffi;
use crate::kinds::{Reason, Wake};
use crate::placement::Core;
use crate::request::{Decision, Request};
use crate::tables::{Settings, Tables};
use crate::MAX_CIDS;

/// What the first line calls the format.
pub const SCHEMA: &str = "usher-decisions/1";

/// Accesses that a record has room for.
pub const MAX_SEEN: usize = 256;

/// Bytes of a task's name.
const COMM: usize = 16;

/// `struct usher_record`: what a kernel writes.
#[repr(C)]
#[derive(Clone)]
pub struct Raw {
    at_ns: u64,
    pid: u32,
    nr_seen: u32,
    comm: [u8; COMM],
    wake: u32,
    prev: u32,
    waker: u32,
    nr_allowed: u32,
    tiers: u32,
    hints: u32,
    demand: ffi::Demand,
    restricted: u32,
    rotor: u32,
    shorter_turn: u32,
    poke: u32,
    decision: ffi::Decision,
    allowed: [u64; MAX_CIDS / 64],
    seen: [RawSeen; MAX_SEEN],
}

/// `struct usher_seen`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawSeen {
    what: u64,
    value: u64,
}

impl Raw {
    /// Where the accesses of a record are.
    pub fn seen_of(record: *mut Self) -> *mut u8 {
        record
            .cast::<u8>()
            .wrapping_add(std::mem::offset_of!(Self, seen))
    }

    /// Whose it is.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn zeroed() -> Box<Self> {
        // SAFETY: integers only, for which zeroes are values.
        unsafe { Box::new(MaybeUninit::<Self>::zeroed()).assume_init() }
    }
}

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of usher that recorded.
    pub usher: String,
    /// The kernel's release.
    pub kernel: String,
    /// The machine.
    pub machine: Tables,
    /// How the core ran.
    pub settings: Settings,
}

/// The last line of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// Decisions in the file.
    pub recorded: u64,
    /// Decisions for which there was no room when they fell.
    pub skipped: u64,
    /// Decisions that saw more than a record holds.
    pub too_long: u64,
}

/// What kind of access, `enum usher_saw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Saw {
    /// A load, and what was there.
    Read,
    /// A store, and what was written.
    Write,
    /// An atomic read-modify-write begins, with this operand; the next entry is its end.
    Given,
    /// It ends; what was there before.
    Old,
    /// The length of a queue, whose LLC is the place.
    Queued,
}

impl Saw {
    const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Given,
        Self::Old,
        Self::Queued,
    ];
}

/// One access: what kind, where in bytes from the start of the core's memory, and the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen(pub Saw, pub u32, pub Bits);

/// A word, written in hexadecimal since not every reader of JSON has 64 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bits(pub u64);

impl fmt::Debug for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Serialize for Bits {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        let digits = text.strip_prefix("0x");
        let bits = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        bits.map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!("`{text}` is no word such as \"0x1f\""))
        })
    }
}

/// What decided beside the request and shared memory: three words of the waker's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Where its last search of another LLC ended.
    pub rotor: u32,
    /// Its looks for a shorter queue.
    pub shorter_turn: u32,
    /// Whether it owed others a look.
    pub poke: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Came {
    /// The CPU, as a cid.
    pub cid: u32,
    /// Why.
    pub reason: Reason,
    /// It was idle, and is the task's now.
    pub claimed: bool,
    /// The waker owes others a look.
    pub poke: bool,
}

impl From<Decision> for Came {
    fn from(d: Decision) -> Self {
        Self {
            cid: d.cid.0,
            reason: d.reason,
            claimed: d.claimed,
            poke: d.poke,
        }
    }
}

/// What the task asked of a CPU: `struct usher_demand`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Its utilisation, in 1024ths of the strongest CPU.
    pub util: u16,
    /// `uclamp.min`.
    pub clamp_min: u16,
    /// `uclamp.max`; 0: none.
    pub clamp_max: u16,
    /// When, in periods of the core's clock.
    pub at: u16,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// When, by the kernel's clock.
    pub at_ns: u64,
    /// Whose: the thread's id, ...
    pub pid: u32,
    /// ... and its name.
    pub comm: String,
    /// What kind of wakeup.
    pub wake: Wake,
    /// Where it ran last, as a cid; of a newborn, where its parent runs.
    pub prev: u32,
    /// The CPU that decided, as a cid.
    pub waker: u32,
    /// The cids that it may use, as a list such as `0-3,8`; `null`: all.
    pub allowed: Option<String>,
    /// The tiers that will do, a bit each; 0: all.
    pub tiers: u32,
    /// Its placement hints.
    pub hints: String,
    /// What it asked of a CPU.
    pub demand: Asked,
    /// The waker's own words, before.
    pub own: Own,
    /// What it saw, in order.
    pub seen: Vec<Seen>,
    /// What came of it.
    pub decision: Came,
}

/// Why a record cannot be one of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A cid that the machine does not have.
    #[error("`{field}` is cid {cid}, and the machine has {nr_cids}")]
    Cid {
        /// Where.
        field: &'static str,
        /// The cid.
        cid: u32,
        /// How many there are.
        nr_cids: usize,
    },
    /// A list that is none, or that names nobody.
    #[error("`allowed` is `{list}`: a list of cids is needed, such as 0-3,8")]
    Allowed {
        /// The list.
        list: String,
    },
    /// Hints that are none.
    #[error("`hints`: {0}")]
    Hints(#[from] usher_hint::HintsError),
    /// More than a record has room for.
    #[error("`seen` has {nr} entries; a record has at most {MAX_SEEN}")]
    Seen {
        /// How many.
        nr: usize,
    },
    /// A bit for something that the machine does not have.
    #[error("`seen`, entry {entry}: {word} cannot be {value:?} on this machine")]
    Bits {
        /// Which access.
        entry: usize,
        /// What it was to.
        word: Word,
        /// The value.
        value: Bits,
    },
    /// A number that stands for nothing: the file, or the memory, was written by another version.
    #[error("`{field}` is {value}, which means nothing: it was recorded by another version")]
    Number {
        /// Where.
        field: &'static str,
        /// The number.
        value: u64,
    },
}

impl Recorded {
    /// From what a kernel wrote, with the address of the core's memory, from which places count.
    ///
    /// # Errors
    /// A number in it means nothing.
    pub fn from_raw(raw: &Raw, root: u64) -> Result<Self, RecordError> {
        let number = |field, value: u32| RecordError::Number {
            field,
            value: value.into(),
        };
        let hints = Hints::from_bits(raw.hints).ok_or_else(|| number("hints", raw.hints))?;
        let wake = Wake::from_index(raw.wake as usize).ok_or_else(|| number("wake", raw.wake))?;
        let reason = u32::from(raw.decision.reason);
        let reason = Reason::from_index(reason as usize).ok_or_else(|| number("reason", reason))?;
        let name = raw.comm.split(|&byte| byte == 0).next();
        let members = (0u32..).zip(raw.allowed).flat_map(|(index, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| index * 64 + bit)
        });
        let seen = raw.seen.iter().take(raw.nr_seen as usize);
        let seen = seen.map(|entry| {
            let kind = Saw::ALL.get((entry.what & 0xff) as usize);
            let place = u32::try_from(entry.what >> 8).ok();
            let both = kind.zip(place).ok_or(RecordError::Number {
                field: "seen",
                value: entry.what,
            });
            both.map(|(&kind, place)| {
                let from = if kind == Saw::Queued { 0 } else { root as u32 };
                Seen(kind, place.wrapping_sub(from), Bits(entry.value))
            })
        });
        Ok(Self {
            at_ns: raw.at_ns,
            pid: raw.pid,
            comm: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
            wake,
            prev: raw.prev,
            waker: raw.waker,
            allowed: (raw.restricted == 1).then(|| format_cpulist(members)),
            tiers: raw.tiers,
            hints: hints.to_string(),
            demand: Asked {
                util: raw.demand.util,
                clamp_min: raw.demand.clamp_min,
                clamp_max: raw.demand.clamp_max,
                at: raw.demand.at,
            },
            own: Own {
                rotor: raw.rotor,
                shorter_turn: raw.shorter_turn,
                poke: raw.poke,
            },
            seen: seen.collect::<Result<_, _>>()?,
            decision: Came {
                cid: raw.decision.cid,
                reason,
                claimed: raw.decision.claimed != 0,
                poke: raw.decision.poke != 0,
            },
        })
    }

    /// As C takes it, if the machine could have recorded it.
    fn to_raw(&self, nr_cids: usize) -> Result<Box<Raw>, RecordError> {
        for (field, cid) in [
            ("prev", self.prev),
            ("waker", self.waker),
            ("decision.cid", self.decision.cid),
        ] {
            if cid as usize >= nr_cids {
                return Err(RecordError::Cid {
                    field,
                    cid,
                    nr_cids,
                });
            }
        }
        if self.seen.len() > MAX_SEEN {
            return Err(RecordError::Seen {
                nr: self.seen.len(),
            });
        }
        let hints: Hints = self.hints.parse()?;
        let mut raw = Raw::zeroed();
        raw.nr_allowed = u32::MAX;
        if let Some(list) = &self.allowed {
            let wrong = || RecordError::Allowed { list: list.clone() };
            // Nobody is allowed where all that were are not in the tables.
            let cids = match list.as_str() {
                "" => Vec::new(),
                list => parse_cpulist(list, MAX_CIDS as u32 - 1).map_err(|_| wrong())?,
            };
            if let Some(&cid) = cids.iter().find(|&&cid| cid as usize >= nr_cids) {
                return Err(RecordError::Cid {
                    field: "allowed",
                    cid,
                    nr_cids,
                });
            }
            for cid in &cids {
                raw.allowed[*cid as usize / 64] |= 1 << (cid % 64);
            }
            raw.restricted = 1;
            raw.nr_allowed = cids.len() as u32;
        }
        raw.wake = self.wake as u32;
        raw.prev = self.prev;
        raw.waker = self.waker;
        raw.tiers = self.tiers;
        raw.hints = hints.bits();
        raw.demand = ffi::Demand {
            util: self.demand.util,
            clamp_min: self.demand.clamp_min,
            clamp_max: self.demand.clamp_max,
            at: self.demand.at,
        };
        raw.rotor = self.own.rotor;
        raw.shorter_turn = self.own.shorter_turn;
        raw.poke = self.own.poke;
        raw.nr_seen = self.seen.len() as u32;
        for (entry, &Seen(kind, place, Bits(value))) in raw.seen.iter_mut().zip(&self.seen) {
            *entry = RawSeen {
                what: u64::from(place) << 8 | kind as u64,
                value,
            };
        }
        Ok(raw)
    }
}

/// A recorded decision, made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// What came of it this time. If accesses differ, nothing that means anything.
    pub came: Came,
    /// The first access that is another one than was recorded, or that one of the two lacks, by its place in
    /// [`Recorded::seen`]; `None`: they are the same.
    pub differs_at: Option<usize>,
}

impl Replayed {
    /// Whether it is the recorded decision, bit for bit.
    pub fn is(&self, recorded: &Recorded) -> bool {
        self.differs_at.is_none() && self.came == recorded.decision
    }
}

/// What a word of the core's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The idle bits of the shards that begin with this one.
    Idle(u32),
    /// Which shards of this node somebody may idle in.
    Summary(u32),
    /// In which queues of this node somebody may wait.
    Backlog(u32),
    /// The clock of this queue.
    Clock(u32),
    /// How many hinted tasks live in this LLC.
    Settled(u32),
    /// The block of this CPU, by its cid.
    Cpu(u32),
    /// Something else.
    Other,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(shard) => write!(f, "idle CPUs of shard {shard}"),
            Self::Summary(node) => write!(f, "shards of node {node} with idle CPUs"),
            Self::Backlog(node) => write!(f, "queues of node {node} where tasks wait"),
            Self::Clock(queue) => write!(f, "clock of queue {queue}"),
            Self::Settled(llc) => write!(f, "hinted tasks of LLC {llc}"),
            Self::Cpu(cid) => write!(f, "block of cid {cid}"),
            Self::Other => f.write_str("another word"),
        }
    }
}

extern "C" {
    fn usher_recorded_record(
        u: *mut ffi::Usher,
        record: *mut Raw,
        request: *const ffi::Request,
    ) -> bool;
    fn usher_recorded_replay(
        u: *mut ffi::Usher,
        record: *mut Raw,
        decision: *mut ffi::Decision,
        made: *mut u32,
    ) -> bool;
    fn usher_recorded_word(u: *mut ffi::Usher, place: u64, of: *mut u32) -> u32;
    fn usher_recorded_bits(u: *mut ffi::Usher, place: u64) -> u64;
    fn usher_recorded_idle_cid(u: *mut ffi::Usher, place: u64, bit: u32) -> i32;
}

impl Core {
    /// [`Core::place`], recorded as a kernel would; `None` if it saw more than a record holds.
    ///
    /// # Panics
    /// If the core is traced, or the request names a cid that the machine does not have.
    pub fn place_recorded(&mut self, request: &Request) -> (Decision, Option<Recorded>) {
        let c = self.request(request);
        let mut raw = Raw::zeroed();
        // SAFETY: the core lives, the request is checked, and C fills the record.
        let fits = unsafe { usher_recorded_record(self.native(), &mut *raw, &c) };
        let recorded = fits.then(|| Recorded::from_raw(&raw, 0).expect("of this very version"));
        (Decision::from_c(raw.decision), recorded)
    }

    /// Makes a recorded decision again. The core's own state has no part in it, and it changes nothing but counters.
    ///
    /// # Errors
    /// A machine as this one cannot have recorded it.
    ///
    /// # Panics
    /// If the core is traced.
    pub fn replay(&mut self, recorded: &Recorded) -> Result<Replayed, RecordError> {
        let mut raw = recorded.to_raw(self.nr_cids())?;
        for (entry, &Seen(kind, place, value)) in recorded.seen.iter().enumerate() {
            // SAFETY: C compares the place with those it knows.
            let possible = unsafe { usher_recorded_bits(self.u, place.into()) };
            if matches!(kind, Saw::Read | Saw::Old) && value.0 & !possible != 0 {
                let word = self.word(place);
                return Err(RecordError::Bits { entry, word, value });
            }
        }
        let mut decision = raw.decision;
        let mut made = 0;
        // SAFETY: the core lives, and what indexes its tables was checked.
        let same =
            unsafe { usher_recorded_replay(self.native(), &mut *raw, &mut decision, &mut made) };
        Ok(Replayed {
            came: Decision::from_c(decision).into(),
            differs_at: (!same).then_some(made as usize),
        })
    }

    /// What a place in the core's memory is, as [`Seen`] has it.
    pub fn word(&self, place: u32) -> Word {
        let mut of = 0;
        // SAFETY: C compares the place with those it knows, and does not look there.
        match unsafe { usher_recorded_word(self.u, place.into(), &mut of) } {
            0 => Word::Idle(of),
            1 => Word::Summary(of),
            2 => Word::Backlog(of),
            3 => Word::Clock(of),
            4 => Word::Settled(of),
            5 => Word::Cpu(of),
            _ => Word::Other,
        }
    }

    /// The cids whose bits are set in a word of idle bits; empty if the place is none.
    pub fn idle_cids(&self, place: u32, bits: u64) -> Vec<Cid> {
        let set = (0..64).filter(|bit| bits >> bit & 1 == 1);
        // SAFETY: as above.
        let cids = set.map(|bit| unsafe { usher_recorded_idle_cid(self.u, place.into(), bit) });
        cids.filter_map(|cid| u32::try_from(cid).ok().map(Cid))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" {
        fn usher_recorded_size() -> u32;
    }

    #[test]
    fn the_record_is_as_large_as_in_c() {
        // SAFETY: no arguments, no effects.
        let size = unsafe { usher_recorded_size() };
        assert_eq!(size as usize, size_of::<Raw>());
    }

    #[test]
    fn a_word_is_hexadecimal() {
        let line = serde_json::to_string(&Seen(Saw::Read, 64, Bits(u64::MAX))).unwrap();
        assert_eq!(line, r#"["read",64,"0xffffffffffffffff"]"#);
        let back: Seen = serde_json::from_str(&line).unwrap();
        assert_eq!(back, Seen(Saw::Read, 64, Bits(u64::MAX)));
        assert!(serde_json::from_str::<Bits>("\"12\"").is_err());
    }
}
