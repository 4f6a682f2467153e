// SPDX-License-Identifier: GPL-2.0-only
//! 6.1: slices, placement, preemption and buddies of CFS, on one queue by hand.

use super::{queue_and_tasks, t, NICE};
use crate::ids::{Nanos, TaskId};
use crate::policy::fair::cfs;
use crate::policy::fair::config::{CfsTimes, MS};
use crate::policy::fair::rq::{Rq, Tasks};
use crate::program::Class;
use proptest::prelude::*;

/// A machine of 8 or more CPUs: latency 24 ms, granularities 3 and 4 ms.
fn times() -> CfsTimes {
    CfsTimes::BASE.scaled(8)
}

/// `n` tasks of nice 0 queued at virtual runtime 0, the first one current since time 0.
fn started(nices: &[i8]) -> (Rq, Tasks) {
    let (mut rq, mut tasks) = queue_and_tasks(nices);
    for i in 0..nices.len() {
        cfs::enqueue(&times(), &mut rq, &mut tasks, t(i), false);
    }
    cfs::set_next(&mut rq, &mut tasks, t(0), 0);
    (rq, tasks)
}

// Goal: 6.1 slice: period 24 ms up to 8 tasks, then 3 ms per task, shared by weight, never below 3 ms.
// Method: the arithmetic by hand for 1, 2, 8, 16 equal tasks and for weights 1024 and 335.
#[test]
fn slices_are_shares_of_the_period() {
    for (nr, slice_ms) in [(1, 24), (2, 12), (8, 3), (16, 3)] {
        let (rq, tasks) = started(&vec![0; nr]);
        assert_eq!(
            cfs::slice(&times(), &rq, &tasks[0]),
            slice_ms * MS,
            "{nr} tasks"
        );
    }
    let (rq, tasks) = started(&NICE);
    let share = |w: u64| 24 * MS * w / (1024 + 335);
    assert_eq!(cfs::slice(&times(), &rq, &tasks[0]), share(1024));
    assert_eq!(cfs::slice(&times(), &rq, &tasks[1]), share(335));
    let (rq, tasks) = started(&[0, 19]);
    assert_eq!(cfs::slice(&times(), &rq, &tasks[1]), 3 * MS, "the floor");
    let no_floor = CfsTimes {
        slice_floor: false,
        ..times()
    };
    assert_eq!(
        cfs::slice(&no_floor, &rq, &tasks[1]),
        24 * MS * 15 / (1024 + 15)
    );
}

// Goal: 6.1 tick: a turn ends when the slice is used up, or past 3 ms when the task is a slice ahead.
// Method: two equal tasks (slice 12 ms); then the other one far behind in virtual time.
#[test]
fn the_tick_ends_a_turn_at_the_slice() {
    let (mut rq, mut tasks) = started(&[0, 0]);
    for (now, over) in [(2 * MS, false), (12 * MS, false), (12 * MS + 1, true)] {
        cfs::update_curr(&mut rq, &mut tasks, now);
        assert_eq!(cfs::tick(&times(), &mut rq, &tasks), over, "at {now}");
    }
    let (mut rq, mut tasks) = started(&[0, 0]);
    cfs::dequeue(&mut rq, &mut tasks, t(1), true);
    tasks[1].vruntime = -11 * MS as i64;
    cfs::enqueue(&times(), &mut rq, &mut tasks, t(1), false);
    for (now, over) in [(MS, false), (2 * MS, false), (3 * MS, true)] {
        cfs::update_curr(&mut rq, &mut tasks, now);
        assert_eq!(
            cfs::tick(&times(), &mut rq, &tasks),
            over,
            "at {now}: 12 ms ahead from 1 ms on"
        );
    }
}

// Goal: 6.1 place: a sleeper comes back at most half a latency behind, a new task a slice ahead.
// Method: exact virtual runtimes.
#[test]
fn sleepers_get_half_a_latency_and_new_tasks_pay_a_slice() {
    let (mut rq, mut tasks) = started(&[0, 0]);
    cfs::dequeue(&mut rq, &mut tasks, t(1), true);
    cfs::update_curr(&mut rq, &mut tasks, 500 * MS);
    assert_eq!(rq.min_vruntime, 500 * MS as i64);
    cfs::enqueue(&times(), &mut rq, &mut tasks, t(1), true);
    assert_eq!(tasks[1].vruntime, (500 - 12) * MS as i64);

    let (mut rq, mut tasks) = started(&[0, 0]);
    cfs::dequeue(&mut rq, &mut tasks, t(1), true);
    cfs::update_curr(&mut rq, &mut tasks, 5 * MS);
    cfs::enqueue(&times(), &mut rq, &mut tasks, t(1), true);
    assert_eq!(tasks[1].vruntime, 0, "a short sleep earns nothing");

    let (rq, mut tasks) = started(&[0, 0]);
    tasks.push(crate::policy::fair::task::Task::new(
        Class::NORMAL,
        crate::ids::Cpu(0),
    ));
    cfs::place_new(&times(), &rq, &mut tasks, t(2));
    assert_eq!(
        tasks[2].vruntime,
        8 * MS as i64,
        "24 ms among three, from the minimum"
    );
}

// Goal: 6.1 wakeup preemption: only if behind by more than 4 ms, scaled by the wakee's weight; SCHED_IDLE
// is always preempted, BATCH never preempts.
// Method: the border on both sides; buddies as side effects.
#[test]
fn wakeups_preempt_beyond_the_granularity() {
    for (behind, class, wins) in [
        (4 * MS, Class::NORMAL, false),
        (4 * MS + 1, Class::NORMAL, true),
        (4 * MS + 1, Class::Normal { nice: 5 }, false), // 4 ms * 1024 / 335 = 12.2 ms
        (13 * MS, Class::Normal { nice: 5 }, true),
        (100 * MS, Class::Batch { nice: 0 }, false),
        (100 * MS, Class::Idle, false),
    ] {
        let (mut rq, mut tasks) = started(&[0]);
        let mut wakee = crate::policy::fair::task::Task::new(class, crate::ids::Cpu(0));
        wakee.relative = false;
        tasks.push(wakee);
        tasks[0].vruntime = behind as i64;
        cfs::enqueue(&times(), &mut rq, &mut tasks, t(1), false);
        assert_eq!(
            cfs::wakeup_preempts(&times(), &mut rq, &tasks, t(1)),
            wins,
            "{behind} {class:?}"
        );
        assert_eq!(rq.next_buddy, wins.then_some(t(1)));
        assert_eq!(rq.last_buddy, None, "fewer than 8 tasks");
        let never = CfsTimes {
            wakeup_preemption: false,
            ..times()
        };
        assert!(!cfs::wakeup_preempts(&never, &mut rq, &tasks, t(1)));
    }
    let (mut rq, mut tasks) = started(&[0; 8]);
    tasks[0].class = Class::Idle;
    assert!(
        cfs::wakeup_preempts(&times(), &mut rq, &tasks, t(1)),
        "SCHED_IDLE gives way"
    );
    tasks[0].class = Class::NORMAL;
    tasks[0].vruntime = 5 * MS as i64;
    assert!(cfs::wakeup_preempts(&times(), &mut rq, &tasks, t(1)));
    assert_eq!(
        rq.last_buddy,
        Some(t(0)),
        "with 8 tasks the preempted one is remembered"
    );
}

// Goal: 6.1 pick: leftmost, but a next buddy within the granularity goes first, before a last buddy; who
// yielded goes behind the second.
// Method: three tasks at known virtual runtimes.
#[test]
fn buddies_go_first_while_that_is_fair() {
    let ms = MS as i64;
    let queue = |v: [i64; 3]| {
        let (mut rq, mut tasks) = queue_and_tasks(&[0; 3]);
        for (i, v) in v.into_iter().enumerate() {
            tasks[i].vruntime = v * ms;
            cfs::enqueue(&times(), &mut rq, &mut tasks, t(i), false);
        }
        (rq, tasks)
    };
    let (mut rq, tasks) = queue([0, 2, 4]);
    assert_eq!(cfs::pick(&times(), &rq, &tasks), Some(t(0)));
    rq.last_buddy = Some(t(1));
    assert_eq!(cfs::pick(&times(), &rq, &tasks), Some(t(1)));
    rq.next_buddy = Some(t(2));
    assert_eq!(cfs::pick(&times(), &rq, &tasks), Some(t(2)));
    let (mut rq, tasks) = queue([0, 5, 6]);
    (rq.next_buddy, rq.last_buddy) = (Some(t(2)), Some(t(1)));
    assert_eq!(
        cfs::pick(&times(), &rq, &tasks),
        Some(t(0)),
        "5 ms is unfair"
    );
    let (mut rq, tasks) = queue([0, 2, 4]);
    rq.skip_buddy = Some(t(0));
    assert_eq!(cfs::pick(&times(), &rq, &tasks), Some(t(1)));
    let (mut rq, tasks) = queue([0, 5, 6]);
    rq.skip_buddy = Some(t(0));
    assert_eq!(
        cfs::pick(&times(), &rq, &tasks),
        Some(t(0)),
        "skipping may not be unfair either"
    );
}

// Goal: 6.1: who yields or has had its turn is no buddy any more; other buddies remain.
// Method: task 0 runs, and is somebody's buddy as task 1 is.
#[test]
fn only_the_own_buddies_are_forgotten() {
    let (mut rq, mut tasks) = started(&[0, 0]);
    assert_eq!(rq.curr, Some(t(0)));
    (rq.next_buddy, rq.last_buddy) = (Some(t(1)), Some(t(0)));
    cfs::yield_curr(&mut rq);
    let buddies = |rq: &Rq| (rq.next_buddy, rq.last_buddy, rq.skip_buddy);
    assert_eq!(buddies(&rq), (Some(t(1)), None, Some(t(0))));
    rq.last_buddy = Some(t(0));
    cfs::update_curr(&mut rq, &mut tasks, 100 * MS);
    assert!(cfs::tick(&times(), &mut rq, &tasks));
    assert_eq!(buddies(&rq), (Some(t(1)), None, None));
}

/// Runs the queue for `total` ns with a tick each `tick`, and returns what each task ran.
fn run(rq: &mut Rq, tasks: &mut Tasks, total: Nanos, tick: Nanos) -> Vec<Nanos> {
    let mut now = 0;
    while now < total {
        now += tick;
        cfs::update_curr(rq, tasks, now);
        if cfs::tick(&times(), rq, tasks) {
            let curr = rq.curr.expect("somebody runs");
            cfs::put_prev(rq, tasks, curr);
            let next = cfs::pick(&times(), rq, tasks).expect("somebody waits");
            cfs::set_next(rq, tasks, next, now);
        }
        rq.check(tasks);
    }
    tasks.iter().map(|task| task.sum_exec).collect()
}

// Goal: CPU time is shared by weight: 1024 to 335 within 2 %.
// Method: twenty seconds of two busy tasks, ticks of 1 ms.
#[test]
fn shares_follow_weights() {
    let (mut rq, mut tasks) = started(&NICE);
    let ran = run(&mut rq, &mut tasks, 20_000 * MS, MS);
    let expected = 20_000 * MS * 1024 / (1024 + 335);
    assert!(
        ran[0].abs_diff(expected) * 50 < expected,
        "{ran:?}, expected {expected}"
    );
}

proptest! {
    // Goal: the books balance and the minimum never goes back, whatever happens.
    // Method: random operations on six tasks; after each, `Rq::check`, and the picked task is the one with
    // the least virtual runtime unless a buddy is fair.
    #[test]
    fn books_balance(ops in prop::collection::vec((0usize..6, 0usize..6, 0u64..20), 1..300)) {
        let (mut rq, mut tasks) = queue_and_tasks(&[0, 0, 5, -5, 10, 0]);
        let (mut now, mut least) = (0, i64::MIN);
        for (op, i, ms) in ops {
            now += ms * MS;
            cfs::update_curr(&mut rq, &mut tasks, now);
            rq.sync(now);
            let on = tasks[i].on_rq;
            match op {
                0 | 1 if !on => {
                    cfs::enqueue(&times(), &mut rq, &mut tasks, t(i), op == 0);
                    rq.attach_avg(&mut tasks, t(i), now);
                }
                2 | 3 if on => {
                    cfs::dequeue(&mut rq, &mut tasks, t(i), op == 2);
                    if op == 3 { rq.detach_avg(&mut tasks, t(i), now); }
                }
                4 => cfs::yield_curr(&mut rq),
                5 => {
                    if let Some(curr) = rq.curr { cfs::put_prev(&mut rq, &mut tasks, curr); }
                    let first: Option<TaskId> = rq.waiting().next();
                    let next = cfs::pick(&times(), &rq, &tasks);
                    prop_assert_eq!(first.is_some(), next.is_some());
                    if let (Some(first), Some(next)) = (first, next) {
                        let ahead = tasks[next.index()].vruntime - tasks[first.index()].vruntime;
                        prop_assert!(ahead <= 4 * MS as i64 * 1024 / 110, "{}", ahead);
                        cfs::set_next(&mut rq, &mut tasks, next, now);
                    }
                }
                _ => {}
            }
            rq.check(&tasks);
            prop_assert!(rq.min_vruntime >= least);
            least = rq.min_vruntime;
        }
    }
}
