// SPDX-License-Identifier: GPL-2.0-only
//! The border to C: what `shim/*.c` exports, and the structs that cross. A test compares their sizes.

use std::marker::{PhantomData, PhantomPinned};

use crate::kinds::{Event, Reason};
use crate::levels::Burst;
use crate::request::{Follow, Pair};

/// `struct usher`; only C looks inside.
#[repr(C)]
pub(crate) struct Usher {
    opaque: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// `struct usher_spec`.
#[repr(C)]
pub(crate) struct Spec {
    pub nr_cids: u32,
    pub nr_shards: u32,
    pub nr_llcs: u32,
    pub nr_queues: u32,
    pub nr_nodes: u32,
    pub nr_cpu_ids: u32,
    pub granularity: u32,
    pub slice_ns: u64,
    pub patience_ns: u64,
    pub soon_ns: u64,
    pub core_probes: u32,
    pub cpupri: u32,
    pub no_capacity: u32,
    pub tier_order: u32,
    pub fork_balance: u32,
    pub cpu: *const u32,
    pub core: *const u32,
    pub shard: *const u32,
    pub llc: *const u32,
    pub queue: *const u32,
    pub node: *const u32,
    pub capacity: *const u32,
    pub tier: *const u32,
    pub node_id: *const u32,
    pub distance: *const u32,
}

/// `struct usher_request`.
#[repr(C)]
pub(crate) struct Request {
    pub allowed: *const u64,
    pub wake: u32,
    pub prev: u32,
    pub waker: u32,
    pub nr_allowed: u32,
    pub tiers: u32,
    pub hints: u32,
    pub demand: Demand,
}

/// `struct usher_demand`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    pub util: u16,
    pub clamp_min: u16,
    pub clamp_max: u16,
    pub at: u16,
}

/// `struct usher_util`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Util {
    pub at_ns: u64,
    pub average: u32,
    pub settled: u16,
    pub unused: u16,
}

/// `struct usher_decision`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Decision {
    pub cid: u32,
    pub reason: u16,
    pub claimed: u8,
    pub poke: u8,
}

/// `struct usher_query`.
#[repr(C)]
pub(crate) struct Query {
    pub allowed: *const u64,
    pub tiers: u32,
    pub flags: u32,
    pub from: u32,
    pub this: u32,
}

/// `struct usher_walk`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    pub cid: u32,
    pub near: u32,
    pub step: u32,
    pub word: u32,
    pub bits: u64,
}

/// `struct usher_host`.
#[repr(C)]
pub(crate) struct Host {
    pub queued: *mut u64,
    pub log: *mut Log,
}

/// `struct usher_log`.
#[repr(C)]
pub(crate) struct Log {
    pub entries: *mut u64,
    pub nr: u64,
    pub capacity: u64,
    pub lost: u64,
}

extern "C" {
    pub(crate) fn usher_tables_bytes(spec: *const Spec) -> u64;
    pub(crate) fn usher_tables_build(
        spec: *const Spec,
        mem: *mut u8,
        host: *mut Host,
    ) -> *mut Usher;
    pub(crate) fn usher_tables_copy_bytes() -> u64;
    pub(crate) fn usher_tables_copy(u: *mut Usher, to: *mut Usher, host: *mut Host);
    pub(crate) fn usher_tables_is_idle(u: *mut Usher, cid: u32) -> bool;
    pub(crate) fn usher_tables_word_offset(u: *mut Usher, shard: u32) -> u64;
    pub(crate) fn usher_tables_summary_has(u: *mut Usher, shard: u32) -> bool;
    pub(crate) fn usher_tables_backlog_has(u: *mut Usher, queue: u32) -> bool;
    pub(crate) fn usher_tables_nr_llcs(u: *mut Usher) -> u32;
    pub(crate) fn usher_tables_settled(u: *mut Usher, llc: u32) -> u64;
    pub(crate) fn usher_tables_level(u: *mut Usher, cid: u32) -> u32;
    pub(crate) fn usher_tables_at_level(u: *mut Usher, shard: u32, level: u32) -> u64;
    pub(crate) fn usher_tables_level_offset(u: *mut Usher, shard: u32, level: u32) -> u64;
    pub(crate) fn usher_tables_present_offset(u: *mut Usher, shard: u32, level: u32) -> u64;
    pub(crate) fn usher_tables_levels_offset(u: *mut Usher, node: u32, level: u32) -> u64;
    pub(crate) fn usher_tables_present(u: *mut Usher, shard: u32, level: u32) -> bool;
    pub(crate) fn usher_tables_node_level(u: *mut Usher, node: u32, level: u32) -> bool;
    pub(crate) fn usher_tables_class(
        u: *mut Usher,
        burst: *const Burst,
        weight: u32,
        batch: bool,
    ) -> u32;
    pub(crate) fn usher_tables_burst_born(u: *mut Usher, burst: *mut Burst);
    pub(crate) fn usher_tables_burst_ran(burst: *mut Burst, ran_ns: u64, slept: bool);
    pub(crate) fn usher_tables_pair_answers(pair: *const Pair, task: u64) -> bool;
    pub(crate) fn usher_tables_clock(u: *mut Usher, queue: u32) -> u64;
    pub(crate) fn usher_tables_asymmetric(u: *mut Usher) -> bool;
    pub(crate) fn usher_tables_misfit_waits(u: *mut Usher, cid: u32) -> bool;
    pub(crate) fn usher_tables_set_look(u: *mut Usher, cid: u32, queue: u32);
    pub(crate) fn usher_tables_nr_cids(u: *mut Usher) -> u32;
    pub(crate) fn usher_tables_add_counts(
        u: *mut Usher,
        cid: u32,
        reasons: *mut [u64; Reason::COUNT],
        events: *mut [u64; Event::COUNT],
    );
}

/// One Rust type serves every environment: the functions of `shim/exports.h` stand in a table, and each
/// environment fills one. Rust cannot paste identifiers, hence the two names per function.
macro_rules! environments {
    ($($name:ident = $native:ident | $traced:ident: ($($arg:ty),*) $(-> $result:ty)?;)*) => {
        extern "C" {
            $(
                fn $native($(_: $arg),*) $(-> $result)?;
                fn $traced($(_: $arg),*) $(-> $result)?;
            )*
        }

        /// The core's functions in one environment.
        pub(crate) struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Api {
            /// Those of a build that is loaded at run time, by their names in `env/native.h`.
            ///
            /// # Safety
            /// A symbol found is that function, and stays loaded.
            pub(crate) unsafe fn from_symbols(
                find: &mut dyn FnMut(&str) -> *const std::ffi::c_void,
            ) -> Option<Api> {
                $(
                    let symbol = find(stringify!($native));
                    if symbol.is_null() {
                        return None;
                    }
                    // SAFETY: it is that function, says the caller.
                    let $name = unsafe {
                        std::mem::transmute::<
                            *const std::ffi::c_void,
                            unsafe extern "C" fn($($arg),*) $(-> $result)?,
                        >(symbol)
                    };
                )*
                Some(Api { $($name,)* })
            }
        }

        /// `env/native.h`.
        pub(crate) static NATIVE: Api = Api { $($name: $native,)* };
        /// `env/traced.h`.
        pub(crate) static TRACED: Api = Api { $($name: $traced,)* };
    };
}

environments! {
    idle_enter = usher_native_idle_enter | usher_traced_idle_enter: (*mut Usher, u32) -> bool;
    idle_again = usher_native_idle_again | usher_traced_idle_again: (*mut Usher, u32) -> bool;
    claimed = usher_native_claimed | usher_traced_claimed: (*mut Usher, u32) -> bool;
    idle_exit = usher_native_idle_exit | usher_traced_idle_exit: (*mut Usher, u32);
    test_and_clear = usher_native_test_and_clear | usher_traced_test_and_clear:
        (*mut Usher, u32) -> bool;
    place = usher_native_place | usher_traced_place: (*mut Usher, *const Request) -> Decision;
    look = usher_native_look | usher_traced_look: (*mut Usher, *const Query) -> i32;
    rescue = usher_native_rescue | usher_traced_rescue: (*mut Usher, u32) -> i32;
    late_look = usher_native_late_look | usher_traced_late_look: (*mut Usher, u32) -> i32;
    queue_fill = usher_native_queue_fill | usher_traced_queue_fill: (*mut Usher, u32, bool);
    queue_deserted = usher_native_queue_deserted | usher_traced_queue_deserted: (*mut Usher, u32) -> i32;
    queue_overdue = usher_native_queue_overdue | usher_traced_queue_overdue: (*mut Usher, u32, u64) -> i32;
    queue_retire = usher_native_queue_retire | usher_traced_queue_retire:
        (*mut Usher, u32, u32) -> bool;
    queue_again = usher_native_queue_again | usher_traced_queue_again: (*mut Usher, u32, u32, u64) -> u32;
    queue_taken = usher_native_queue_taken | usher_traced_queue_taken: (*mut Usher, u32, u32);
    walk_next = usher_native_walk_next | usher_traced_walk_next: (*mut Usher, *mut Walk) -> i32;
    work_in_reach = usher_native_work_in_reach | usher_traced_work_in_reach: (*mut Usher, u32) -> bool;
    pinned_first = usher_native_pinned_first | usher_traced_pinned_first: (*mut Usher, u32, u64, u64) -> bool;
    vtime_at = usher_native_vtime_at | usher_traced_vtime_at: (*mut Usher, u64, u32) -> u64;
    vtime_enter = usher_native_vtime_enter | usher_traced_vtime_enter:
        (*mut Usher, u64, u32) -> u64;
    vtime_early = usher_native_vtime_early | usher_traced_vtime_early:
        (*mut Usher, u64, u32) -> u32;
    vtime_before = usher_native_vtime_before | usher_traced_vtime_before:
        (*mut Usher, u64, u32) -> u64;
    vtime_after = usher_native_vtime_after | usher_traced_vtime_after:
        (*mut Usher, u64, u32) -> u64;
    vtime_slept = usher_native_vtime_slept | usher_traced_vtime_slept: (*mut Usher, u64, u32);
    clock_behind = usher_native_clock_behind | usher_traced_clock_behind: (*mut Usher, u64, u32, u64) -> bool;
    clock_advance = usher_native_clock_advance | usher_traced_clock_advance: (*mut Usher, u64, u32, u64, u64);
    vtime_charge = usher_native_vtime_charge | usher_traced_vtime_charge:
        (*mut Usher, u64, u32, u64, u32) -> u64;
    vtime_sleep = usher_native_vtime_sleep | usher_traced_vtime_sleep: (*mut Usher, u64, u32) -> u64;
    vtime_due = usher_native_vtime_due | usher_traced_vtime_due:
        (*mut Usher, u64, u64, u32, u32, bool) -> bool;
    turn_begin = usher_native_turn_begin | usher_traced_turn_begin:
        (*mut Usher, u32, u64, u64, u32);
    turn_cut = usher_native_turn_cut | usher_traced_turn_cut:
        (*mut Usher, *const Query, u64, u32, u64, u32) -> i32;
    hand = usher_native_hand | usher_traced_hand: (*mut Usher, u32, u32, u64) -> bool;
    handed = usher_native_handed | usher_traced_handed: (*mut Usher, u32) -> u64;
    promised = usher_native_promised | usher_traced_promised: (*mut Usher, u32, u64) -> bool;
    take_handed = usher_native_take_handed | usher_traced_take_handed:
        (*mut Usher, u32, u64, u64, u32, bool) -> bool;
    pair_asks = usher_native_pair_asks | usher_traced_pair_asks:
        (*mut Usher, u32, *mut Pair, u64, u32, u64) -> bool;
    pair_gives_way = usher_native_pair_gives_way | usher_traced_pair_gives_way:
        (*mut Usher, u32, *mut Pair, u64, u64, u32, u64) -> u32;
    pair_beside = usher_native_pair_beside | usher_traced_pair_beside:
        (*mut Usher, *const Request) -> Decision;
    pair_apart = usher_native_pair_apart | usher_traced_pair_apart:
        (*mut Usher, u32, *mut Pair, *const Pair, u32) -> bool;
    pair_woke = usher_native_pair_woke | usher_traced_pair_woke: (*mut Usher, u32, u64);
    pair_asked = usher_native_pair_asked | usher_traced_pair_asked: (*mut Usher, u32) -> bool;
    pair_sleeps = usher_native_pair_sleeps | usher_traced_pair_sleeps:
        (*mut Usher, u32, *mut Pair, u64);
    enough = usher_native_enough | usher_traced_enough: (*mut Usher, u32, *const Demand) -> bool;
    tiers_first = usher_native_tiers_first | usher_traced_tiers_first:
        (*mut Usher, *const Demand) -> u32;
    balance = usher_native_balance | usher_traced_balance: (*mut Usher, u32) -> i32;
    settle = usher_native_settle | usher_traced_settle: (*mut Usher, u32, u32);
    hold = usher_native_hold | usher_traced_hold: (*mut Usher, *const Request, *mut u32) -> u32;
    from_elsewhere = usher_native_from_elsewhere | usher_traced_from_elsewhere:
        (*mut Usher, *const Request) -> bool;
    follow = usher_native_follow | usher_traced_follow:
        (*mut Usher, *mut Request, *mut Follow, u32);
    cpu_node = usher_native_cpu_node | usher_traced_cpu_node: (*mut Usher, u32) -> i32;
    pick_idle_node = usher_native_pick_idle_node | usher_traced_pick_idle_node:
        (*mut Usher, *const Query, u32) -> i32;
    pick_any_node = usher_native_pick_any_node | usher_traced_pick_any_node:
        (*mut Usher, *const Query, u32) -> i32;
    idle_set_node = usher_native_idle_set_node | usher_traced_idle_set_node:
        (*mut Usher, u32, bool, *mut u64) -> i32;
    cpupri_set = usher_native_cpupri_set | usher_traced_cpupri_set: (*mut Usher, u32, u32);
    cpupri_find = usher_native_cpupri_find | usher_traced_cpupri_find:
        (*mut Usher, *const Query, u32, *mut u32) -> i32;
    preempt = usher_native_preempt | usher_traced_preempt: (*mut Usher, *const Query, u32) -> i32;
    preempt_pinned = usher_native_preempt_pinned | usher_traced_preempt_pinned:
        (*mut Usher, u32, u32, u32) -> i32;
    preempt_runs = usher_native_preempt_runs | usher_traced_preempt_runs: (*mut Usher, u32, u32);
    misfit = usher_native_misfit | usher_traced_misfit: (*mut Usher, *const Request) -> i32;
    crowded = usher_native_crowded | usher_traced_crowded: (*mut Usher, u32, u64) -> bool;
    uncrowd = usher_native_uncrowd | usher_traced_uncrowd: (*mut Usher, *const Request, u64) -> i32;
    misfit_call = usher_native_misfit_call | usher_traced_misfit_call: (*mut Usher, u32) -> i32;
    take_instead = usher_native_take_instead | usher_traced_take_instead:
        (*mut Usher, u32, u64, u64, *const Demand) -> bool;
    util_ran = usher_native_util_ran | usher_traced_util_ran:
        (*mut Usher, *mut Util, u32, u64, u64);
    util_slept = usher_native_util_slept | usher_traced_util_slept: (*mut Util);
    util_now = usher_native_util_now | usher_traced_util_now: (*const Util, u64) -> u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    extern "C" {
        fn usher_tables_sizes(sizes: *mut [u32; 13]);
        fn usher_traced_log_size() -> u32;
    }

    // Goal: both sides of the border mean the same bytes.
    // Method: C says how large its structs are.
    #[test]
    fn structs_are_as_large_as_in_c() {
        let mut sizes = [0; 13];
        // SAFETY: C writes thirteen entries.
        unsafe { usher_tables_sizes(&mut sizes) };
        let ours = [
            size_of::<Spec>(),
            size_of::<Request>(),
            size_of::<Decision>(),
            size_of::<Query>(),
            size_of::<Walk>(),
            crate::MAX_CIDS / 8,
            size_of::<Host>(),
            Reason::COUNT,
            Event::COUNT,
            size_of::<Util>(),
            size_of::<Demand>(),
            size_of::<Pair>(),
            size_of::<Follow>(),
        ];
        assert_eq!(sizes.map(|size| size as usize), ours);
        // SAFETY: no arguments, no effects.
        let log = unsafe { usher_traced_log_size() };
        assert_eq!(log as usize, size_of::<Log>());
    }
}
