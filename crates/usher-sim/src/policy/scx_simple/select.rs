// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's default idle selection for sched_ext, `scx_select_cpu_dfl()`, step by step.

use super::idle_mask::{IdleMasks, PickFlags};
use crate::cpuset::CpuSet;
use crate::ids::Cpu;
use crate::policy::mask::{Bus, Within};

/// The step that decided: the reasons of the policy, in the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Step {
    /// 1a: a synchronous wakeup, and prev is idle in the waker's LLC.
    SyncPrev,
    /// 1b: a synchronous wakeup, to the waker's CPU.
    SyncWaker,
    /// 2: prev's whole core is idle.
    PrevCore,
    /// 2: a whole idle core of the LLC.
    LlcCore,
    /// 2: a whole idle core of the node.
    NodeCore,
    /// 2: a whole idle core anywhere.
    AnyCore,
    /// 3: prev is idle.
    Prev,
    /// 4: a sibling of prev is idle.
    Sibling,
    /// 5: an idle CPU of the LLC.
    Llc,
    /// 6: an idle CPU of the node.
    Node,
    /// 7: an idle CPU anywhere.
    Any,
    /// Nobody is idle.
    NoneIdle,
    /// Not asked: `exec` stays where it is.
    Stays,
}

/// Names of [`Step`], in order.
pub(super) const STEPS: &[&str] = &[
    "sync-prev",
    "sync-waker",
    "prev-core",
    "llc-core",
    "node-core",
    "any-core",
    "prev",
    "sibling",
    "llc",
    "node",
    "any",
    "none-idle",
    "stays",
];

/// What differs between the kernels that have this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Step 4 exists (7.0-era source and later; not in 6.12 to 6.15).
    pub sibling_step: bool,
    /// Step 1b clears the waker's idle bit (7.2 and later).
    pub sync_claims: bool,
    /// LLC steps: there is more than one LLC.
    pub llc_steps: bool,
    /// Node steps: one mask for the machine, more than one node, and LLC and node differ in size.
    pub node_steps: bool,
}

/// A synchronous waker.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncWaker {
    pub cpu: Cpu,
    /// `PF_EXITING`.
    pub exiting: bool,
    /// Nothing waits in its CPU's local queue.
    pub local_queue_empty: bool,
}

/// What is asked.
pub(super) struct Ask<'a> {
    /// The CPU that searches.
    pub this: Cpu,
    pub prev: Cpu,
    pub sync: Option<SyncWaker>,
    /// The task's affinity.
    pub affinity: &'a CpuSet,
    /// It holds all CPUs.
    pub everywhere: bool,
    pub flags: PickFlags,
}

/// Finds and claims an idle CPU, or a synchronous waker's; `None` if nobody is idle.
///
/// 0. Sets: what is allowed of prev's LLC and node. They are used only if not empty.
/// 1. Synchronous wakeup: prev if it is idle and shares the waker's LLC; else the waker's CPU, if its
///    queue is empty and somebody is idle (the machine is not full).
/// 2. With SMT, whole idle cores: prev's, in the LLC, in the node, anywhere.
/// 3. prev.
/// 4. With SMT, a sibling of prev.
/// 5. LLC. 6. Node. 7. Anywhere: with per-node masks from prev's node outwards.
pub(super) fn select_cpu_dfl(
    masks: &mut IdleMasks,
    bus: &mut impl Bus,
    rules: Rules,
    ask: &Ask<'_>,
) -> Option<(Cpu, Step)> {
    // 0.
    let machine = std::sync::Arc::clone(masks.machine());
    let prev = ask.prev;
    let restriction = (!ask.everywhere).then_some(ask.affinity);
    let part = |set| Within {
        first: set,
        second: restriction,
    };
    let info = machine.cpu(prev);
    let llc = rules
        .llc_steps
        .then(|| part(machine.llc_cpus(info.llc)))
        .filter(|s| !s.is_empty());
    let node = rules
        .node_steps
        .then(|| part(machine.node_cpus(info.node)))
        .filter(|s| !s.is_empty());
    let allowed = Within {
        first: machine.online(),
        second: restriction,
    };
    let prev_ok = ask.affinity.contains(prev);
    // 1.
    if let Some(found) = sync_steps(masks, bus, rules, ask, prev_ok) {
        return Some(found);
    }
    let key = masks.key(prev);
    // 2.
    if masks.smt_active() {
        if prev_ok && masks.in_smt(bus, key, prev) && masks.claim(bus, prev) {
            return Some((prev, Step::PrevCore));
        }
        for (set, step) in [(llc, Step::LlcCore), (node, Step::NodeCore)] {
            let found = set.and_then(|set| masks.pick_in(bus, ask.this, set, key, true));
            if let Some(cpu) = found {
                return Some((cpu, step));
            }
        }
        let flags = PickFlags {
            core: true,
            ..ask.flags
        };
        if let Some(cpu) = masks.pick(bus, ask.this, allowed, prev, flags) {
            return Some((cpu, Step::AnyCore));
        }
        if ask.flags.core {
            return None;
        }
    }
    // 3.
    if prev_ok && masks.claim(bus, prev) {
        return Some((prev, Step::Prev));
    }
    // 4.
    if rules.sibling_step && masks.smt_active() {
        if let Some(cpu) = masks.claim_sibling(bus, prev, ask.affinity) {
            return Some((cpu, Step::Sibling));
        }
    }
    // 5. and 6.
    for (set, step) in [(llc, Step::Llc), (node, Step::Node)] {
        let found = set.and_then(|set| masks.pick_in(bus, ask.this, set, key, false));
        if let Some(cpu) = found {
            return Some((cpu, step));
        }
    }
    // 7.
    masks
        .pick(bus, ask.this, allowed, prev, ask.flags)
        .map(|cpu| (cpu, Step::Any))
}

/// Step 1.
fn sync_steps(
    masks: &mut IdleMasks,
    bus: &mut impl Bus,
    rules: Rules,
    ask: &Ask<'_>,
    prev_ok: bool,
) -> Option<(Cpu, Step)> {
    let waker = ask.sync?;
    let near = masks.machine().same_llc(waker.cpu, ask.prev);
    if prev_ok && near && masks.claim(bus, ask.prev) {
        return Some((ask.prev, Step::SyncPrev));
    }
    let key = masks.key(waker.cpu);
    let room = !waker.exiting
        && waker.local_queue_empty
        && (!ask.flags.in_node || key == masks.key(ask.prev))
        && !masks.nobody(bus, key);
    if !room || !ask.affinity.contains(waker.cpu) {
        return None;
    }
    if rules.sync_claims {
        masks.claim(bus, waker.cpu);
    }
    Some((waker.cpu, Step::SyncWaker))
}
