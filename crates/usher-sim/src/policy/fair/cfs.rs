// SPDX-License-Identifier: GPL-2.0-only
//! 6.1: the completely fair scheduler of 5.9 to 6.5.
//!
//! 1. A running task's virtual runtime grows by time / weight; the smallest one runs next.
//! 2. A slice is the task's share of a period. The tick ends it when it is used up, or, after the
//!    minimum granularity, when the task is a slice ahead of the first in line.
//! 3. A task that wakes up starts at most half a latency behind the others, a new one a slice ahead.
//! 4. A wakeup preempts if the wakee is behind by more than the wakeup granularity.
//! 5. The preemptor (next buddy), and with many tasks the preempted (last buddy), runs before the first
//!    in line if that is not unfair by more than the wakeup granularity; who yielded (skip) does not.

use super::config::CfsTimes;
use super::rq::{Rq, Tasks};
use super::task::Task;
use super::weight::to_virtual;
use crate::ids::{Nanos, TaskId};
use crate::program::Class;

/// Virtual runtime by which `wakee` may be behind `curr` before that is unfair: the wakeup granularity,
/// less for heavier wakees.
fn wakeup_granularity(times: &CfsTimes, wakee: &Task) -> i64 {
    to_virtual(times.wakeup_granularity_ns, wakee.weight)
}

/// 6.1 wakeup preemption: positive if `b` should run instead of `a`, 0 if it is ahead but not by enough.
fn preempts(times: &CfsTimes, a: &Task, b: &Task) -> i32 {
    let ahead = a.vruntime - b.vruntime;
    match ahead {
        _ if ahead <= 0 => -1,
        _ if ahead > wakeup_granularity(times, b) => 1,
        _ => 0,
    }
}

/// 6.1 slice: the task's share of the period, with it among the `nr` if it is not queued yet.
pub fn slice(times: &CfsTimes, rq: &Rq, task: &Task) -> Nanos {
    let joining = !task.on_rq;
    let nr = u64::from(rq.nr) + u64::from(joining);
    let period = if nr > times.nr_latency {
        nr * times.min_granularity_ns
    } else {
        times.latency_ns
    };
    let total = rq.weight + if joining { task.weight } else { 0 };
    let slice = period * task.weight / total.max(1);
    if times.slice_floor {
        slice.max(times.min_granularity_ns)
    } else {
        slice
    }
}

/// Accounts the current task's time.
pub fn update_curr(rq: &mut Rq, tasks: &mut Tasks, now: Nanos) {
    let Some(id) = rq.curr else { return };
    let task = &mut tasks[id.index()];
    let ran = now.saturating_sub(task.exec_start);
    if ran == 0 {
        return;
    }
    task.exec_start = now;
    task.sum_exec += ran;
    task.vruntime += to_virtual(ran, task.weight);
    update_min(rq, tasks);
}

/// The smallest virtual runtime of the queue, which never goes back.
fn update_min(rq: &mut Rq, tasks: &Tasks) {
    let curr = rq.curr.map(|id| tasks[id.index()].vruntime);
    let first = rq.tree.first_key_value().map(|(&(key, _), _)| key);
    let least = match (curr, first) {
        (Some(a), Some(b)) => a.min(b),
        (Some(a), None) | (None, Some(a)) => a,
        (None, None) => return,
    };
    rq.min_vruntime = rq.min_vruntime.max(least);
}

/// 6.1 place, fork: a new task starts where its parent is, or a slice ahead of the queue if that is
/// later. The result is relative: it moves to whichever CPU is chosen.
pub fn place_new(times: &CfsTimes, rq: &Rq, tasks: &mut Tasks, id: TaskId) {
    let task = &tasks[id.index()];
    let parent = rq.curr.map_or(i64::MIN, |c| tasks[c.index()].vruntime);
    let ahead = rq.min_vruntime + to_virtual(slice(times, rq, task), task.weight);
    let task = &mut tasks[id.index()];
    task.vruntime = parent.max(ahead) - rq.min_vruntime;
    task.relative = true;
}

/// A task joins the queue. `woken`: it slept before.
pub fn enqueue(times: &CfsTimes, rq: &mut Rq, tasks: &mut Tasks, id: TaskId, woken: bool) {
    let task = &mut tasks[id.index()];
    if task.relative {
        task.vruntime += rq.min_vruntime;
        task.relative = false;
    }
    if woken {
        // 6.1 place, wake: what a long sleep earns is bounded.
        let credit = if task.is_idle_policy() {
            times.min_granularity_ns
        } else {
            times.latency_ns / 2
        };
        task.vruntime = task.vruntime.max(rq.min_vruntime - credit as i64);
    }
    rq.account(tasks, id);
    let key = tasks[id.index()].vruntime;
    rq.insert(tasks, id, key);
}

/// A task leaves the queue, in which it waits or is current. `sleeps`: it comes back to this place in
/// virtual time unless another CPU takes it.
pub fn dequeue(rq: &mut Rq, tasks: &mut Tasks, id: TaskId, sleeps: bool) {
    if rq.curr == Some(id) {
        rq.curr = None;
    } else {
        rq.remove(tasks, id);
    }
    rq.unaccount(tasks, id);
    if !sleeps {
        make_relative(rq, tasks, id);
    }
    update_min(rq, tasks);
}

/// A task that sleeps or was dequeued leaves this queue's virtual time.
pub fn make_relative(rq: &Rq, tasks: &mut Tasks, id: TaskId) {
    let task = &mut tasks[id.index()];
    if !task.relative {
        task.vruntime -= rq.min_vruntime;
        task.relative = true;
    }
}

/// The current task waits again.
pub fn put_prev(rq: &mut Rq, tasks: &mut Tasks, id: TaskId) {
    debug_assert_eq!(rq.curr, Some(id));
    rq.curr = None;
    let key = tasks[id.index()].vruntime;
    rq.insert(tasks, id, key);
}

/// 6.1 pick: who runs next. It stays in the tree; see [`set_next`].
pub fn pick(times: &CfsTimes, rq: &Rq, tasks: &Tasks) -> Option<TaskId> {
    let first = rq.tree.first_key_value().map(|(_, w)| w.id)?;
    let fair = |id: TaskId| preempts(times, &tasks[id.index()], &tasks[first.index()]) < 1;
    let mut chosen = first;
    if rq.skip_buddy == Some(first) {
        let second = rq.tree.values().nth(1).map(|w| w.id);
        chosen = second.filter(|&id| fair(id)).unwrap_or(first);
    }
    let buddy = |buddy: Option<TaskId>| buddy.filter(|&id| Some(id) != rq.curr && fair(id));
    Some(
        buddy(rq.next_buddy)
            .or(buddy(rq.last_buddy))
            .unwrap_or(chosen),
    )
}

/// The chosen task becomes the current one.
pub fn set_next(rq: &mut Rq, tasks: &mut Tasks, id: TaskId, now: Nanos) {
    rq.remove(tasks, id);
    clear_buddies(rq, id);
    rq.curr = Some(id);
    let task = &mut tasks[id.index()];
    task.exec_start = now;
    task.picked_sum_exec = task.sum_exec;
}

/// A task is nobody's buddy any more.
fn clear_buddies(rq: &mut Rq, id: TaskId) {
    for buddy in [&mut rq.next_buddy, &mut rq.last_buddy, &mut rq.skip_buddy] {
        buddy.take_if(|buddy| *buddy == id);
    }
}

/// 6.1 tick: whether the current task's turn is over. Its time is accounted.
pub fn tick(times: &CfsTimes, rq: &mut Rq, tasks: &Tasks) -> bool {
    let (Some(id), true) = (rq.curr, rq.nr > 1) else {
        return false;
    };
    let curr = &tasks[id.index()];
    let slice = slice(times, rq, curr);
    let ran = curr.sum_exec - curr.picked_sum_exec;
    if ran > slice {
        // Its turn is over; being a buddy must not bring it straight back.
        clear_buddies(rq, id);
        return true;
    }
    let Some((&(first, _), _)) = rq.tree.first_key_value() else {
        return false;
    };
    ran >= times.min_granularity_ns && curr.vruntime - first > slice as i64
}

/// 6.1 wakeup preemption: whether `wakee`, queued here, should run instead of the current task, whose
/// time is accounted.
pub fn wakeup_preempts(times: &CfsTimes, rq: &mut Rq, tasks: &Tasks, wakee: TaskId) -> bool {
    let Some(curr_id) = rq.curr else { return false };
    let (curr, task) = (&tasks[curr_id.index()], &tasks[wakee.index()]);
    if curr.is_idle_policy() && !task.is_idle_policy() {
        return true;
    }
    if !times.wakeup_preemption || !matches!(task.class, Class::Normal { .. }) {
        return false;
    }
    if preempts(times, curr, task) != 1 {
        return false;
    }
    rq.next_buddy = Some(wakee);
    if u64::from(rq.nr) >= times.nr_latency {
        rq.last_buddy = Some(curr_id);
    }
    true
}

/// `sched_yield` by the current task.
pub fn yield_curr(rq: &mut Rq) {
    if let (Some(id), true) = (rq.curr, rq.nr > 1) {
        clear_buddies(rq, id);
        rq.skip_buddy = Some(id);
    }
}
