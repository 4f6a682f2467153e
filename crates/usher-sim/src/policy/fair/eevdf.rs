// SPDX-License-Identifier: GPL-2.0-only
//! 6.2: earliest eligible virtual deadline first, as in 6.12.
//!
//! 1. V is the weighted mean of the virtual runtimes of all queued tasks. A task is eligible if it has
//!    had no more than its share: its virtual runtime is not above V.
//! 2. A task asks for a slice; its deadline is its virtual runtime plus slice / weight. Of the eligible
//!    tasks, the one with the earliest deadline runs. At its deadline it gets a new one, and others a
//!    chance.
//! 3. RUN_TO_PARITY: once picked, a task runs until its deadline while it is eligible.
//! 4. What a task was owed when it left (its lag, within bounds) it gets when it comes back, inflated
//!    because its own coming moves V. A new task's first deadline is half a slice away.
//! 5. DELAY_DEQUEUE: a task that goes to sleep not eligible stays queued until it is picked, so that it
//!    cannot shed its debt by a short sleep; then its lag is cut to at most 0.
//! 6. A wakeup preempts only if the pick now returns the wakee. PREEMPT_SHORT: a shorter slice cancels
//!    the protection of 3.

use super::config::EevdfTimes;
use super::rq::{Rq, Tasks, Waiter};
use super::task::Task;
use super::weight::to_virtual;
use crate::ids::{Nanos, TaskId};
use crate::program::Class;

/// Why a task joins a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// It slept.
    Wake,
    /// It is new.
    Fork,
    /// It was queued elsewhere.
    Move,
}

/// Sum of weights, and of weight * (v - zero point), over all queued tasks, current one included.
fn sums(rq: &Rq, tasks: &Tasks) -> (i128, i128) {
    let (mut w, mut wv) = (i128::from(rq.sum_w), rq.sum_wv);
    if let Some(curr) = rq.curr {
        let curr = &tasks[curr.index()];
        w += i128::from(curr.weight);
        wv += i128::from(curr.weight) * i128::from(curr.vruntime - rq.min_vruntime);
    }
    (w, wv)
}

/// 6.2: V, rounded down; the zero point if nobody is queued.
pub fn average(rq: &Rq, tasks: &Tasks) -> i64 {
    let (w, wv) = sums(rq, tasks);
    if w == 0 {
        return rq.min_vruntime;
    }
    rq.min_vruntime + wv.div_euclid(w) as i64
}

/// 6.2: whether a virtual runtime is not above V. Exact: no division.
fn is_eligible_at(rq: &Rq, (w, wv): (i128, i128), vruntime: i64) -> bool {
    wv >= i128::from(vruntime - rq.min_vruntime) * w
}

/// 6.2: whether a queued task has had no more than its share.
pub fn is_eligible(rq: &Rq, tasks: &Tasks, id: TaskId) -> bool {
    is_eligible_at(rq, sums(rq, tasks), tasks[id.index()].vruntime)
}

/// Accounts the current task's time. Returns whether it should give way (2., 6.).
pub fn update_curr(times: &EevdfTimes, rq: &mut Rq, tasks: &mut Tasks, now: Nanos) -> bool {
    let Some(id) = rq.curr else { return false };
    let task = &mut tasks[id.index()];
    let ran = now.saturating_sub(task.exec_start);
    if ran == 0 {
        return false;
    }
    task.exec_start = now;
    task.sum_exec += ran;
    task.vruntime += to_virtual(ran, task.weight);
    let reached = task.vruntime >= task.deadline;
    if reached {
        task.deadline = task.vruntime + to_virtual(task.slice, task.weight);
        rq.protected = false;
    }
    if rq.nr == 1 {
        return false;
    }
    let cancelled = times.preempt_short && !rq.protected;
    reached || (cancelled && !is_eligible(rq, tasks, id))
}

/// Bounds of the lag: two slices or a tick, in virtual time.
fn lag_limit(task: &Task, tick_ns: Nanos) -> i64 {
    to_virtual((2 * task.slice).max(tick_ns), task.weight)
}

/// Notes what a queued task is owed.
fn note_lag(rq: &Rq, tasks: &mut Tasks, id: TaskId, tick_ns: Nanos) {
    let v = average(rq, tasks);
    let task = &mut tasks[id.index()];
    let limit = lag_limit(task, tick_ns);
    task.lag = (v - task.vruntime).clamp(-limit, limit);
}

/// 6.2 enqueue: gives a joining task its virtual runtime and its deadline.
fn place(times: &EevdfTimes, rq: &Rq, tasks: &mut Tasks, id: TaskId, why: Join) {
    let v = average(rq, tasks);
    let (w, _) = sums(rq, tasks);
    let task = &mut tasks[id.index()];
    if task.slice == 0 {
        task.slice = times.slice_ns;
    }
    let mut lag = 0;
    if rq.nr > 0 && task.lag != 0 {
        // The others' V moves by lag * w / (W + w) when it joins with that lag: make up for it.
        lag = i128::from(task.lag) * (w + i128::from(task.weight)) / w.max(1);
    }
    task.vruntime = v - lag as i64;
    if std::mem::take(&mut task.relative) && why == Join::Move {
        task.deadline += task.vruntime;
        return;
    }
    let request = if why == Join::Fork {
        task.slice / 2
    } else {
        task.slice
    };
    task.deadline = task.vruntime + to_virtual(request, task.weight);
}

/// A task joins the queue.
pub fn enqueue(times: &EevdfTimes, rq: &mut Rq, tasks: &mut Tasks, id: TaskId, why: Join) {
    place(times, rq, tasks, id, why);
    rq.account(tasks, id);
    insert(rq, tasks, id);
}

/// 6.2 sleep: whether a task that goes to sleep has to stay queued for now; if so it does.
pub fn delay(times: &EevdfTimes, rq: &mut Rq, tasks: &mut Tasks, id: TaskId) -> bool {
    if !times.delay_dequeue || is_eligible(rq, tasks, id) {
        return false;
    }
    tasks[id.index()].delayed = true;
    rq.nr_delayed += 1;
    true
}

/// A task leaves the queue, in which it waits or is current. `sleeps`: for good, or until it wakes.
pub fn dequeue(rq: &mut Rq, tasks: &mut Tasks, id: TaskId, sleeps: bool, tick_ns: Nanos) {
    note_lag(rq, tasks, id, tick_ns);
    if rq.curr == Some(id) {
        rq.curr = None;
    } else {
        remove(rq, tasks, id);
    }
    rq.unaccount(tasks, id);
    let task = &mut tasks[id.index()];
    if std::mem::take(&mut task.delayed) {
        rq.nr_delayed -= 1;
        task.lag = task.lag.min(0);
    }
    if !sleeps {
        task.deadline -= task.vruntime;
        task.relative = true;
    }
}

/// 6.2 wake of a delayed task: it never left. Its debt stays; if it has paid back more than that by
/// waiting, it starts at V like a task without lag.
pub fn revive(rq: &mut Rq, tasks: &mut Tasks, id: TaskId, tick_ns: Nanos) {
    debug_assert!(tasks[id.index()].delayed && rq.curr != Some(id));
    note_lag(rq, tasks, id, tick_ns);
    if tasks[id.index()].lag > 0 {
        remove(rq, tasks, id);
        let v = average(rq, tasks);
        let task = &mut tasks[id.index()];
        (task.lag, task.vruntime) = (0, v);
        task.deadline = v + to_virtual(task.slice, task.weight);
        insert(rq, tasks, id);
    }
    tasks[id.index()].delayed = false;
    rq.nr_delayed -= 1;
}

fn insert(rq: &mut Rq, tasks: &mut Tasks, id: TaskId) {
    let task = &tasks[id.index()];
    let (deadline, weight) = (task.deadline, task.weight as i64);
    rq.sum_w += weight;
    rq.sum_wv += i128::from(weight) * i128::from(task.vruntime - rq.min_vruntime);
    rq.insert(tasks, id, deadline);
}

fn remove(rq: &mut Rq, tasks: &Tasks, id: TaskId) {
    let task = &tasks[id.index()];
    rq.sum_w -= task.weight as i64;
    rq.sum_wv -= i128::from(task.weight) * i128::from(task.vruntime - rq.min_vruntime);
    rq.remove(tasks, id);
}

/// The current task waits again. Its protection lasts until another one is picked.
pub fn put_prev(rq: &mut Rq, tasks: &mut Tasks, id: TaskId) {
    debug_assert_eq!(rq.curr, Some(id));
    rq.curr = None;
    rq.prev = Some(id);
    insert(rq, tasks, id);
}

/// The eligible waiting task with the earliest deadline.
fn earliest(rq: &Rq, sums: (i128, i128)) -> Option<Waiter> {
    rq.tree
        .values()
        .find(|w| is_eligible_at(rq, sums, w.vruntime))
        .copied()
}

/// 6.2 pick: who runs next, among the waiting tasks and the current one, if any. The current task, or the
/// one that was put back just before, may insist on its slice (RUN_TO_PARITY).
pub fn pick(times: &EevdfTimes, rq: &Rq, tasks: &Tasks) -> Option<TaskId> {
    if rq.nr == 1 {
        return rq.curr.or_else(|| rq.waiting().next());
    }
    let sums = sums(rq, tasks);
    let eligible = |id: &TaskId| is_eligible_at(rq, sums, tasks[id.index()].vruntime);
    let curr = rq.curr.filter(eligible);
    if times.run_to_parity && rq.protected {
        let prev = rq
            .prev
            .filter(|&p| rq.curr.is_none() && waits_here(rq, tasks, p));
        if let Some(holder) = curr.or_else(|| prev.filter(eligible)) {
            return Some(holder);
        }
    }
    match (curr, earliest(rq, sums)) {
        (Some(c), Some(b)) if tasks[c.index()].deadline >= tasks[b.id.index()].deadline => {
            Some(b.id)
        }
        (Some(c), _) => Some(c),
        // Somebody is always at or below the average.
        (None, best) => best.map(|b| b.id),
    }
}

fn waits_here(rq: &Rq, tasks: &Tasks, id: TaskId) -> bool {
    let task = &tasks[id.index()];
    task.on_rq && task.cpu == rq.cpu && !task.delayed
}

/// The chosen task becomes the current one.
pub fn set_next(rq: &mut Rq, tasks: &mut Tasks, id: TaskId, now: Nanos) {
    remove(rq, tasks, id);
    (rq.curr, rq.prev) = (Some(id), None);
    rq.protected = true;
    let task = &mut tasks[id.index()];
    task.exec_start = now;
    task.picked_sum_exec = task.sum_exec;
    rezero(rq, tasks);
}

/// Moves the zero point to V, so that sums stay small.
fn rezero(rq: &mut Rq, tasks: &Tasks) {
    let shift = average(rq, tasks) - rq.min_vruntime;
    rq.min_vruntime += shift;
    rq.sum_wv -= i128::from(rq.sum_w) * i128::from(shift);
}

/// 6.2 wakeup preemption: whether `wakee`, queued here, runs instead of the current task, whose time is
/// accounted.
pub fn wakeup_preempts(times: &EevdfTimes, rq: &mut Rq, tasks: &Tasks, wakee: TaskId) -> bool {
    let Some(curr_id) = rq.curr.filter(|_| times.wakeup_preemption) else {
        return false;
    };
    let (curr, task) = (&tasks[curr_id.index()], &tasks[wakee.index()]);
    if curr.is_idle_policy() != task.is_idle_policy() {
        return curr.is_idle_policy();
    }
    if !matches!(task.class, Class::Normal { .. }) {
        return false;
    }
    if times.preempt_short && short_wins(rq, tasks, curr, task) {
        rq.protected = false;
    }
    pick(times, rq, tasks) == Some(wakee)
}

/// 6.2 PREEMPT_SHORT: an eligible wakee with a shorter slice wins by its deadline, or because the current
/// task is not eligible.
fn short_wins(rq: &Rq, tasks: &Tasks, curr: &Task, wakee: &Task) -> bool {
    let sums = sums(rq, tasks);
    wakee.slice < curr.slice
        && is_eligible_at(rq, sums, wakee.vruntime)
        && (wakee.deadline < curr.deadline || !is_eligible_at(rq, sums, curr.vruntime))
}

/// `sched_yield` by the current task: it has used up its slice.
pub fn yield_curr(rq: &mut Rq, tasks: &mut Tasks) {
    if let (Some(id), true) = (rq.curr, rq.nr > 1) {
        let task = &mut tasks[id.index()];
        task.deadline += to_virtual(task.slice, task.weight);
        rq.protected = false;
    }
}
