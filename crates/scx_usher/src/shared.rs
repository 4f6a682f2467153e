// SPDX-License-Identifier: GPL-2.0-only
//! The mirror of `bpf/shared.h`: what the callbacks count beside the core.

/// `enum usher_level`, by name.
pub const LEVELS: [&str; 4] = ["core", "llc", "node", "remote"];

/// `enum usher_host_event`, by name.
pub const HOST_EVENTS: [&str; 14] = [
    "pinned",
    "local",
    "shared",
    "kept",
    "kicked",
    "no-set",
    "moved",
    "move-given-back",
    "unheard",
    "fit-taken",
    "throttled",
    "unthrottled",
    "builtin-pick",
    "builtin-none",
];

/// `enum usher_hint_calls`, by name: what became of programs' calls about hints, and who got some by a rule.
pub const HINT_CALLS: [&str; 5] = ["set", "read", "refused", "no-memory", "by-rule"];

/// `struct usher_host_cpu`.
#[repr(C)]
pub struct HostCpu {
    pinned: u32,
    vain: u32,
    ran_before_pid: u32,
    waited_ticks: u32,
    ran_before_ns: u64,
    /// The longest that a task waited before it ran here.
    pub waited_ns: u64,
    /// Tasks that moved, by level.
    pub migrations: [u64; LEVELS.len()],
    /// What the callbacks met.
    pub events: [u64; HOST_EVENTS.len()],
    /// What became of calls about hints.
    pub hint_calls: [u64; HINT_CALLS.len()],
    began_ns: u64,
    leaving: u32,
    moves_to: u32,
    moves_pid: u32,
    called: u32,
    /// What the kernel says of this CPU; 0: it does not say.
    pub capacity: u32,
    sync_pid: u32,
    gives_pid: u32,
    helps: u32,
    sent_pid: u32,
    unused: u32,
    paid_ns: u64,
    allowed: [u64; usher_core::MAX_CIDS / 64],
}

/// `struct usher_groups`, without its entries.
#[repr(C)]
pub struct GroupsHead {
    /// Counted by the loader.
    pub round: u32,
    /// Not 0: there was a group with too high an id.
    pub beyond: u32,
    limited: u32,
    unused: [u32; 13],
    asked_ns: u64,
    throttles: u64,
    seen: u64,
    called: u32,
    unused2: [u32; 9],
}

/// `struct usher_group`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GroupEntry {
    /// The loader's, in which a task of it, or of one below, was last seen.
    pub round: u32,
    /// The root's is itself.
    pub parent: u32,
    /// 1024 for `cpu.weight` 100.
    pub shares: u32,
    /// What its tasks weigh, in 1024ths of what their nice values say.
    pub part: u32,
    /// The nearest group, from this one upwards, with a limit (`cpu.max`); 0: none.
    pub limiter: u32,
    /// Tells it from others that had its id.
    pub serial: u32,
    /// The same for groups whose tasks may run on the same CPUs; 0: on all.
    pub pool: u32,
    /// How many these are.
    pub cpus: u32,
}

/// `struct usher_bandwidth`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    left_ns: u64,
    refill_ns: u64,
    /// `cpu.max`; 0: no limit.
    pub quota_ns: u64,
    /// In how long so much may be had.
    pub period_ns: u64,
    burst_ns: u64,
    least_ns: u64,
    keep_ns: u32,
    above: u32,
    unused: [u32; 2],
}

/// `struct usher_group_time`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTime {
    /// What its tasks ran and waited.
    pub ns: u64,
    /// Times what their nice values say, 100 for 0.
    pub weighted: u64,
    unpaid: u64,
}
