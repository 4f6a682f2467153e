// SPDX-License-Identifier: GPL-2.0-only
//! 6.2: lag, eligibility and deadlines of EEVDF, on one queue, against numbers computed by hand.

use super::{queue_and_tasks, t, NICE};
use crate::ids::Nanos;
use crate::policy::fair::config::{EevdfTimes, MS};
use crate::policy::fair::eevdf::{self, Join};
use crate::policy::fair::rq::{Rq, Tasks};
use crate::program::Class;
use proptest::prelude::*;

/// The tick of the tests: 4 ms.
const TICK: Nanos = 4 * MS;

/// A machine of 8 or more CPUs: slice 2.8 ms.
fn times() -> EevdfTimes {
    EevdfTimes::BASE.scaled(8)
}

/// Tasks queued in order as they would be if all had migrated here without lag.
fn queued(nices: &[i8]) -> (Rq, Tasks) {
    let (mut rq, mut tasks) = queue_and_tasks(nices);
    for i in 0..nices.len() {
        eevdf::enqueue(&times(), &mut rq, &mut tasks, t(i), Join::Wake);
    }
    (rq, tasks)
}

/// Moves a waiting task to another virtual runtime.
fn shift(rq: &mut Rq, tasks: &mut Tasks, i: usize, vruntime: i64, deadline: i64) {
    eevdf::dequeue(rq, tasks, t(i), true, TICK);
    tasks[i].lag = 0;
    eevdf::enqueue(&times(), rq, tasks, t(i), Join::Wake);
    // Out and in again, so that the sums are right for the new values.
    let sums = (rq.sum_w, rq.sum_wv);
    rq.remove(tasks, t(i));
    let weight = tasks[i].weight as i64;
    rq.sum_wv = sums.1 + i128::from(weight) * i128::from(vruntime - tasks[i].vruntime);
    (tasks[i].vruntime, tasks[i].deadline) = (vruntime, deadline);
    rq.insert(tasks, t(i), deadline);
}

// Goal: 6.2: V is the weighted mean, and eligible means not above it.
// Method: v = 0 with weight 1024 and v = 1359 with weight 335: V = 1359 * 335 / 1359 = 335 exactly.
#[test]
fn the_average_is_weighted() {
    let (mut rq, mut tasks) = queued(&NICE);
    shift(&mut rq, &mut tasks, 1, 1359, 10_000);
    assert_eq!(eevdf::average(&rq, &tasks), 335);
    assert!(eevdf::is_eligible(&rq, &tasks, t(0)) && !eevdf::is_eligible(&rq, &tasks, t(1)));
    shift(&mut rq, &mut tasks, 0, 1359, 9_000);
    assert!(eevdf::is_eligible(&rq, &tasks, t(0)) && eevdf::is_eligible(&rq, &tasks, t(1)));
}

// Goal: 6.2 pick: the earliest deadline among the eligible, not the earliest deadline.
// Method: three tasks; the one with the earliest deadline is above V until another one's moves V up.
#[test]
fn the_earliest_eligible_deadline_is_picked() {
    let (mut rq, mut tasks) = queued(&[0, 0, 0]);
    shift(&mut rq, &mut tasks, 0, 0, 5_000);
    shift(&mut rq, &mut tasks, 1, 300, 4_000);
    shift(&mut rq, &mut tasks, 2, 900, 1_000); // V = 400
    assert_eq!(eevdf::average(&rq, &tasks), 400);
    assert_eq!(eevdf::pick(&times(), &rq, &tasks), Some(t(1)));
    shift(&mut rq, &mut tasks, 0, 2_000, 5_000); // V = 1066: all but task 0
    assert_eq!(eevdf::pick(&times(), &rq, &tasks), Some(t(2)));
}

// Goal: 6.2 run: a deadline lies slice * 1024 / w ahead; reaching it sets the next and asks for a
// reschedule, but not if nobody else is queued.
// Method: weights 1024 and 335; the current one runs past its deadline.
#[test]
fn a_slice_ends_at_the_deadline() {
    let (mut rq, mut tasks) = queued(&NICE);
    assert_eq!(tasks[0].deadline - tasks[0].vruntime, 2_800_000);
    assert_eq!(
        tasks[1].deadline - tasks[1].vruntime,
        2_800_000 * 1024 / 335
    );
    eevdf::set_next(&mut rq, &mut tasks, t(0), 0);
    assert!(!eevdf::update_curr(&times(), &mut rq, &mut tasks, 2_799_999) && rq.protected);
    assert!(eevdf::update_curr(&times(), &mut rq, &mut tasks, 2_800_000) && !rq.protected);
    assert_eq!(tasks[0].deadline, 5_600_000);
    eevdf::dequeue(&mut rq, &mut tasks, t(1), true, TICK);
    assert!(
        !eevdf::update_curr(&times(), &mut rq, &mut tasks, 20 * MS),
        "alone"
    );
}

// Goal: 6.2 RUN_TO_PARITY: once picked a task keeps the CPU until its deadline while it is eligible.
// Method: a task with an earlier deadline waits; with the rule off, past the deadline, or when the current
// one is above V, it wins.
#[test]
fn the_current_task_runs_to_parity() {
    let mk = || {
        let (mut rq, mut tasks) = queued(&[0, 0]);
        eevdf::set_next(&mut rq, &mut tasks, t(0), 0);
        shift(&mut rq, &mut tasks, 1, 0, 100);
        (rq, tasks)
    };
    let (mut rq, mut tasks) = mk();
    assert_eq!(eevdf::pick(&times(), &rq, &tasks), Some(t(0)));
    let off = EevdfTimes {
        run_to_parity: false,
        ..times()
    };
    assert_eq!(eevdf::pick(&off, &rq, &tasks), Some(t(1)));
    assert!(eevdf::wakeup_preempts(&off, &mut rq, &tasks, t(1)));
    let never = EevdfTimes {
        wakeup_preemption: false,
        ..off
    };
    assert!(!eevdf::wakeup_preempts(&never, &mut rq, &tasks, t(1)));
    eevdf::put_prev(&mut rq, &mut tasks, t(0));
    assert_eq!(
        eevdf::pick(&times(), &rq, &tasks),
        Some(t(0)),
        "put back, but nobody else ran"
    );
    let (mut rq, tasks) = mk();
    rq.protected = false;
    assert_eq!(
        eevdf::pick(&times(), &rq, &tasks),
        Some(t(1)),
        "past its deadline"
    );
    let (mut rq, mut tasks) = mk();
    eevdf::update_curr(&times(), &mut rq, &mut tasks, MS);
    assert!(rq.protected && !eevdf::is_eligible(&rq, &tasks, t(0)));
    assert_eq!(eevdf::pick(&times(), &rq, &tasks), Some(t(1)), "above V");
    eevdf::put_prev(&mut rq, &mut tasks, t(0));
    rq.check(&tasks);
}

// Goal: 6.2 lag: kept over a sleep, clamped to the larger of two slices and a tick, inflated by
// (W + w) / W when the task comes back.
// Method: by hand: three equal tasks, one leaves with lag 900 us, W = 2048: it comes back at
// V - 900 * 3072 / 2048 = V - 1350 us, and then is 900 us below the new V again.
#[test]
fn lag_survives_a_sleep() {
    let (mut rq, mut tasks) = queued(&[0, 0, 0]);
    shift(&mut rq, &mut tasks, 0, -600_000, MS as i64);
    shift(&mut rq, &mut tasks, 1, 300_000, MS as i64);
    shift(&mut rq, &mut tasks, 2, 1_200_000, MS as i64);
    assert_eq!(eevdf::average(&rq, &tasks), 300_000);
    eevdf::dequeue(&mut rq, &mut tasks, t(0), true, TICK);
    assert_eq!(tasks[0].lag, 900_000);
    assert_eq!(eevdf::average(&rq, &tasks), 750_000);
    eevdf::enqueue(&times(), &mut rq, &mut tasks, t(0), Join::Wake);
    assert_eq!(tasks[0].vruntime, 750_000 - 1_350_000);
    assert_eq!(eevdf::average(&rq, &tasks) - tasks[0].vruntime, 900_000);

    shift(&mut rq, &mut tasks, 0, -100_000_000, MS as i64);
    eevdf::dequeue(&mut rq, &mut tasks, t(0), true, TICK);
    assert_eq!(tasks[0].lag, 5_600_000, "two slices");
    shift(&mut rq, &mut tasks, 1, 100_000_000, MS as i64);
    eevdf::dequeue(&mut rq, &mut tasks, t(1), true, 10 * MS);
    assert_eq!(tasks[1].lag, -(10 * MS as i64), "a tick, if that is longer");
}

// Goal: 6.2 enqueue: a new task asks for half a slice first; a moved one keeps its distance to the
// deadline.
// Method: exact deadlines.
#[test]
fn new_tasks_get_half_a_slice_and_moved_ones_keep_theirs() {
    let (mut rq, mut tasks) = queued(&[0, 0, 5]);
    tasks.push(crate::policy::fair::task::Task::new(
        Class::NORMAL,
        crate::ids::Cpu(0),
    ));
    eevdf::enqueue(&times(), &mut rq, &mut tasks, t(3), Join::Fork);
    assert_eq!(tasks[3].deadline - tasks[3].vruntime, 1_400_000);
    eevdf::set_next(&mut rq, &mut tasks, t(0), 0);
    eevdf::update_curr(&times(), &mut rq, &mut tasks, MS);
    eevdf::dequeue(&mut rq, &mut tasks, t(0), false, TICK);
    assert_eq!(
        tasks[0].deadline, 1_800_000,
        "relative: 2.8 ms less the 1 ms it ran"
    );
    let mut other = Rq::new(crate::ids::Cpu(1), 1024);
    other.min_vruntime = 77_000_000;
    eevdf::enqueue(&times(), &mut other, &mut tasks, t(0), Join::Move);
    assert_eq!(tasks[0].deadline - tasks[0].vruntime, 1_800_000);
    assert_eq!((tasks[0].vruntime, tasks[0].cpu.0), (77_000_000, 1));
}

// Goal: 6.2 DELAY_DEQUEUE: a task that sleeps above V stays queued, counts in V but not as runnable; when
// picked it leaves with lag at most 0; when woken first it stays with its debt, or starts at V if it has
// paid more.
// Method: one task runs ahead and sleeps; the other one then runs until V has passed it, or not.
#[test]
fn debtors_stay_queued() {
    let mk = || {
        let (mut rq, mut tasks) = queued(&[0, 0]);
        eevdf::set_next(&mut rq, &mut tasks, t(0), 0);
        eevdf::update_curr(&times(), &mut rq, &mut tasks, 2 * MS); // v: 2 ms and 0, V = 1 ms
        assert!(eevdf::delay(&times(), &mut rq, &mut tasks, t(0)));
        eevdf::put_prev(&mut rq, &mut tasks, t(0));
        assert_eq!((rq.nr, rq.nr_runnable()), (2, 1));
        assert_eq!(eevdf::average(&rq, &tasks), MS as i64, "it counts in V");
        let next = eevdf::pick(&times(), &rq, &tasks);
        assert_eq!(next, Some(t(1)));
        eevdf::set_next(&mut rq, &mut tasks, t(1), 2 * MS);
        (rq, tasks)
    };
    // Woken while in debt.
    let (mut rq, mut tasks) = mk();
    eevdf::update_curr(&times(), &mut rq, &mut tasks, 3 * MS);
    eevdf::revive(&mut rq, &mut tasks, t(0), TICK);
    assert_eq!(
        (tasks[0].vruntime, tasks[0].lag),
        (2 * MS as i64, -(MS as i64) / 2)
    );
    assert_eq!((rq.nr_runnable(), tasks[0].delayed), (2, false));
    // Woken when it is owed: it starts at the V of the others, without lag.
    let (mut rq, mut tasks) = mk();
    eevdf::update_curr(&times(), &mut rq, &mut tasks, 6 * MS); // v: 2 ms and 4 ms
    eevdf::revive(&mut rq, &mut tasks, t(0), TICK);
    assert_eq!((tasks[0].vruntime, tasks[0].lag), (4 * MS as i64, 0));
    // Picked: leaves, with no credit.
    let (mut rq, mut tasks) = mk();
    eevdf::update_curr(&times(), &mut rq, &mut tasks, 6 * MS);
    eevdf::put_prev(&mut rq, &mut tasks, t(1));
    rq.protected = false;
    assert_eq!(eevdf::pick(&times(), &rq, &tasks), Some(t(0)));
    eevdf::dequeue(&mut rq, &mut tasks, t(0), true, TICK);
    assert_eq!(
        (tasks[0].lag, tasks[0].delayed, rq.nr, rq.nr_delayed),
        (0, false, 1, 0)
    );
    // Eligible: it may go.
    let (mut rq, mut tasks) = queued(&[0, 0]);
    eevdf::set_next(&mut rq, &mut tasks, t(0), 0);
    assert!(!eevdf::delay(&times(), &mut rq, &mut tasks, t(0)));
    eevdf::dequeue(&mut rq, &mut tasks, t(0), true, TICK);
    rq.check(&tasks);
}

// Goal: 6.2 wakeups: a protected current task is not preempted by an equal slice; a shorter slice cancels
// the protection; SCHED_IDLE gives way; BATCH does not preempt.
// Method: a wakee with an earlier deadline and varying slice and class.
#[test]
fn only_shorter_slices_cut_a_protected_turn() {
    for (slice, class, wins) in [
        (2_800_000, Class::NORMAL, false),
        (1_000_000, Class::NORMAL, true),
        (1_000_000, Class::Batch { nice: 0 }, false),
        (1_000_000, Class::Idle, false),
    ] {
        let (mut rq, mut tasks) = queue_and_tasks(&[0, 0]);
        eevdf::enqueue(&times(), &mut rq, &mut tasks, t(0), Join::Wake);
        eevdf::set_next(&mut rq, &mut tasks, t(0), 0);
        (tasks[1].slice, tasks[1].class) = (slice, class);
        eevdf::enqueue(&times(), &mut rq, &mut tasks, t(1), Join::Wake);
        let preempts = eevdf::wakeup_preempts(&times(), &mut rq, &tasks, t(1));
        assert_eq!(preempts, wins, "slice {slice} {class:?}");
    }
    let (mut rq, mut tasks) = queued(&[0, 0]);
    eevdf::set_next(&mut rq, &mut tasks, t(0), 0);
    tasks[0].class = Class::Idle;
    assert!(eevdf::wakeup_preempts(&times(), &mut rq, &tasks, t(1)));
    tasks[0].class = Class::NORMAL;
    eevdf::update_curr(&times(), &mut rq, &mut tasks, MS);
    assert!(
        eevdf::wakeup_preempts(&times(), &mut rq, &tasks, t(1)),
        "the current one is above V"
    );
}

/// Runs the queue for `total` ns with a tick each `tick`; returns what each task ran.
fn run(rq: &mut Rq, tasks: &mut Tasks, total: Nanos, tick: Nanos) -> Vec<Nanos> {
    let mut now = 0;
    while now < total {
        now += tick;
        if eevdf::update_curr(&times(), rq, tasks, now) {
            let curr = rq.curr.expect("somebody runs");
            eevdf::put_prev(rq, tasks, curr);
            let next = eevdf::pick(&times(), rq, tasks).expect("somebody waits");
            eevdf::set_next(rq, tasks, next, now);
        }
        rq.check(tasks);
    }
    tasks.iter().map(|task| task.sum_exec).collect()
}

// Goal: CPU time is shared by weight: 1024 to 335 within 2 %.
// Method: twenty seconds of two busy tasks, ticks of 1 ms.
#[test]
fn shares_follow_weights() {
    let (mut rq, mut tasks) = queued(&NICE);
    eevdf::set_next(&mut rq, &mut tasks, t(0), 0);
    let ran = run(&mut rq, &mut tasks, 20_000 * MS, MS);
    let expected = 20_000 * MS * 1024 / (1024 + 335);
    assert!(
        ran[0].abs_diff(expected) * 50 < expected,
        "{ran:?}, expected {expected}"
    );
}

proptest! {
    // Goal: whatever happens, the books balance, somebody is eligible, the pick is eligible, and lags are
    // bounded.
    // Method: random operations on six tasks of different weight; `Rq::check` and a naive sum after each.
    #[test]
    fn books_balance(ops in prop::collection::vec((0usize..6, 0usize..6, 0u64..8), 1..300)) {
        let (mut rq, mut tasks) = queue_and_tasks(&[0, 0, 5, -5, 10, 0]);
        let mut now = 0;
        for (op, i, ms) in ops {
            now += ms * MS;
            eevdf::update_curr(&times(), &mut rq, &mut tasks, now);
            let on = tasks[i].on_rq;
            match op {
                0 if !on => eevdf::enqueue(&times(), &mut rq, &mut tasks, t(i), Join::Wake),
                1 if !on => eevdf::enqueue(&times(), &mut rq, &mut tasks, t(i), Join::Move),
                0 if tasks[i].delayed => eevdf::revive(&mut rq, &mut tasks, t(i), TICK),
                2 if on && !tasks[i].delayed => {
                    let current = rq.curr == Some(t(i));
                    if current && eevdf::delay(&times(), &mut rq, &mut tasks, t(i)) {
                        eevdf::put_prev(&mut rq, &mut tasks, t(i));
                    } else {
                        eevdf::dequeue(&mut rq, &mut tasks, t(i), true, TICK);
                    }
                }
                3 if on => eevdf::dequeue(&mut rq, &mut tasks, t(i), false, TICK),
                4 => eevdf::yield_curr(&mut rq, &mut tasks),
                5 => {
                    if let Some(curr) = rq.curr { eevdf::put_prev(&mut rq, &mut tasks, curr); }
                    let next = eevdf::pick(&times(), &rq, &tasks);
                    prop_assert_eq!(next.is_some(), rq.nr > 0);
                    if let Some(next) = next.filter(|id| tasks[id.index()].delayed) {
                        eevdf::dequeue(&mut rq, &mut tasks, next, true, TICK);
                        prop_assert!(tasks[next.index()].lag <= 0);
                    } else if let Some(next) = next {
                        prop_assert!(rq.nr == 1 || eevdf::is_eligible(&rq, &tasks, next));
                        eevdf::set_next(&mut rq, &mut tasks, next, now);
                    }
                }
                _ => {}
            }
            rq.check(&tasks);
            let queued = tasks.iter().filter(|task| task.on_rq);
            let (w, wv) = queued.fold((0i128, 0i128), |(w, wv), task| {
                let weight = i128::from(task.weight);
                (w + weight, wv + weight * i128::from(task.vruntime))
            });
            if w > 0 {
                prop_assert_eq!(i128::from(eevdf::average(&rq, &tasks)), wv.div_euclid(w));
            }
            for task in tasks.iter().filter(|task| !task.on_rq) {
                let bound = 5_600_000 * 1024 / task.weight as i64 + 1;
                prop_assert!(task.lag.abs() <= bound.max(4_000_000 * 1024 / task.weight as i64 + 1));
            }
        }
    }
}
