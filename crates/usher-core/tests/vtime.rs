// SPDX-License-Identifier: GPL-2.0-only
//! Goal: queues are fair by weight, sleeping earns what it should, and a task keeps its standing when it changes queues.
//! Method: tasks take turns in a queue that is kept here as a plain list, and what joins a queue is looked at directly.

use std::num::NonZeroU64;

use usher_core::{CidSet, Core, Event, Query, Queue, Vtime, DEFAULT_PATIENCE_NS, DEFAULT_SLICE_NS};
use usher_topo::{shape, Cid, Topology};

const SLICE: i64 = DEFAULT_SLICE_NS as i64;
/// What sleeping earns: as much as the lead of who runs.
const MOST: i64 = 2 * SLICE;
/// A virtual time names its LLC in its low bits, hence counts in steps of about 4 us.
const STEP: i64 = 4096;
/// What the clock may stay behind, to keep its line quiet.
const CLOCK_STEP: i64 = SLICE / 8;

fn core(text: &str) -> Core {
    let topology = Topology::build(&shape::parse(text).expect("a shape"), 64).expect("legal");
    Core::of(&topology).expect("legal")
}

/// How far a virtual time is from the clock of an LLC; positive is later.
fn lag(core: &Core, v: Vtime, queue: Queue) -> i64 {
    v.0.wrapping_sub(core.clock(queue).0) as i64
}

/// A task whose virtual time is so far behind the clock of LLC 0.
fn behind(core: &mut Core, ns: i64) -> Vtime {
    let v = core.vtime_at(Vtime::default(), Queue(0));
    Vtime(v.0.wrapping_sub(ns as u64) & !(STEP as u64 - 1))
}

/// A task that began at `v` stops at a time after it ran for so long, while the one that is charged from `first` waits.
fn stops(core: &mut Core, v: Vtime, ran: (u64, u32), first: Option<Vtime>, now_ns: u64) -> Vtime {
    if core.clock_behind(v, Queue(0), now_ns) {
        core.clock_advance(v, Queue(0), first, now_ns);
    }
    core.vtime_charge(v, Cid(0), ran.0, ran.1)
}

fn near(a: i64, b: i64, tolerance: i64) -> bool {
    (a - b).abs() <= tolerance
}

#[test]
fn sleeping_earns_two_slices_at_most() {
    let mut core = core("1n1l4c1t");
    for (was, earned) in [
        (0, 0),
        (SLICE / 2, SLICE / 2),
        (3 * SLICE, MOST),
        (9 * SLICE, MOST),
    ] {
        let v = behind(&mut core, was);
        let v = core.vtime_enter(v, Queue(0));
        let lag = -lag(&core, v, Queue(0));
        assert!(
            near(lag, earned, STEP),
            "behind by {was}: {lag}, not {earned}"
        );
    }
    // Who is ahead stays ahead.
    let v = behind(&mut core, -2 * SLICE);
    let v = core.vtime_enter(v, Queue(0));
    assert!(near(lag(&core, v, Queue(0)), 2 * SLICE, STEP));
}

#[test]
fn sleeping_earns_less_where_many_wait() {
    let mut core = core("1n1l4c1t");
    let mut earned = |queued| {
        core.set_queued(Queue(0), queued);
        let v = behind(&mut core, 9 * SLICE);
        let v = core.vtime_enter(v, Queue(0));
        -lag(&core, v, Queue(0))
    };
    // From four for each of the four CPUs on less, from sixteen on nothing.
    assert!(near(earned(16), MOST, STEP));
    assert!(near(earned(28), MOST * 3 / 4, STEP));
    assert!(near(earned(40), MOST / 2, STEP));
    assert!(near(earned(64), 0, STEP));
    assert!(near(earned(1 << 40), 0, STEP));
}

#[test]
fn who_goes_to_sleep_keeps_less_of_what_it_is_behind() {
    let mut core = core("1n1l4c1t");
    for (was, kept) in [
        (SLICE, SLICE - SLICE / 32),
        (MOST, MOST - MOST / 32),
        (MOST + MOST / 16, MOST),
        (9 * SLICE, MOST),
        (0, 0),
        // Who is ahead stays ahead.
        (-SLICE, -SLICE),
        (-9 * SLICE, -9 * SLICE),
    ] {
        let v = behind(&mut core, was);
        let v = core.vtime_sleep(v, Queue(0));
        let lag = -lag(&core, v, Queue(0));
        assert!(
            near(lag, kept, 2 * STEP),
            "behind by {was}: {lag}, not {kept}"
        );
    }
    // Who sleeps often and hardly runs comes to have next to nothing of it.
    let mut v = behind(&mut core, MOST);
    for _ in 0..200 {
        v = core.vtime_sleep(v, Queue(0));
    }
    let left = -lag(&core, v, Queue(0));
    assert!((0..SLICE / 16).contains(&left), "{left}");
}

// Goal: short turns cost as much as long ones. Catches: virtual times that go on in steps, and turns shorter than a step that cost nothing, or a whole one.
#[test]
fn many_short_turns_cost_what_a_long_one_does() {
    let mut core = core("1n1l4c1t");
    for (ran_ns, weight) in [
        (100, 100),
        (3_500, 100),
        (4_095, 100),
        (4_097, 100),
        (21_000, 930),
        (300_000, 8876),
    ] {
        // As many as two slices are worth, so that who sleeps now and then never earns anything.
        let turns = 2 * DEFAULT_SLICE_NS * u64::from(weight) / 100 / ran_ns;
        for sleeps in [false, true] {
            let mut v = behind(&mut core, 0);
            for _ in 0..turns {
                v = core.vtime_charge(v, Cid(0), ran_ns, weight);
                if sleeps {
                    v = core.vtime_sleep(v, Queue(0));
                }
            }
            let cost = lag(&core, v, Queue(0));
            assert!(
                near(cost, MOST, 2 * STEP),
                "{turns} turns of {ran_ns} ns cost {cost}"
            );
        }
    }
    // Two that take turns there pay for what they ran each.
    let mut v = [behind(&mut core, 0); 2];
    for turn in 0..1000 {
        let ran_ns = [3_500, 2_900][turn % 2];
        v[turn % 2] = core.vtime_charge(v[turn % 2], Cid(0), ran_ns, 100);
    }
    let [a, b] = v.map(|v| lag(&core, v, Queue(0)));
    assert!(near(a + b, 500 * (3_500 + 2_900), 2 * STEP), "{a} and {b}");
    assert!(
        near(a, 500 * 3_500, a / 8) && near(b, 500 * 2_900, b / 8),
        "{a} and {b}"
    );
}

#[test]
fn newborns_come_a_slice_later_however_many_wait() {
    let mut core = core("1n1l4c1t");
    for queued in [0, 16, 1000] {
        core.set_queued(Queue(0), queued);
        let v = core.vtime_enter(Vtime::default(), Queue(0));
        assert!(near(lag(&core, v, Queue(0)), SLICE, STEP), "{queued} wait");
    }
}

#[test]
fn standing_is_kept_in_another_queue() {
    let mut core = core("1n2l4c1t");
    let mut v = core.vtime_enter(Vtime::default(), Queue(0));
    for turn in 1..=1000 {
        let now_ns = turn * DEFAULT_SLICE_NS;
        v = stops(&mut core, v, (DEFAULT_SLICE_NS, 100), None, now_ns);
    }
    assert!(
        lag(&core, core.clock(Queue(0)), Queue(1)) > 900 * SLICE,
        "the clocks are apart"
    );
    for of in [-SLICE / 2, 0, SLICE, 5 * SLICE] {
        let v = Vtime(core.clock(Queue(0)).0.wrapping_add(of as u64) & !(STEP as u64 - 1));
        let moved = core.vtime_enter(v, Queue(1));
        assert!(near(lag(&core, moved, Queue(1)), of, 2 * STEP), "{of}");
    }
}

/// Tasks of some weights that never sleep take turns on one CPU. What each has got is its share, give or take some slices.
#[test]
fn shares_follow_weights() {
    for weights in [
        vec![100, 100],
        vec![100, 200, 300],
        vec![1000, 100, 100, 50],
        vec![100; 20],
    ] {
        let mut core = core("1n1l1c1t");
        let total: i64 = weights.iter().sum();
        let mut queue: Vec<(Vtime, usize)> = Vec::new();
        for task in 0..weights.len() {
            queue.push((core.vtime_enter(Vtime::default(), Queue(0)), task));
        }
        let mut got = vec![0; weights.len()];
        for turn in 1..=20_000 {
            let first = *queue.iter().min().expect("never empty");
            queue.retain(|other| *other != first);
            core.set_queued(Queue(0), queue.len() as u64);
            let (v, task) = first;
            got[task] += SLICE;
            let next = queue.iter().min().map(|(v, _)| *v);
            let ran = (DEFAULT_SLICE_NS, weights[task] as u32);
            let v = stops(&mut core, v, ran, next, (turn * SLICE) as u64);
            queue.push((core.vtime_enter(v, Queue(0)), task));
            if turn % 1000 != 0 {
                continue;
            }
            for (task, got) in got.iter().enumerate() {
                let share = turn * SLICE * weights[task] / total;
                // The clock's and the virtual times' steps round each turn; a weight's turns are a few slices apart.
                let slack = 2 * SLICE + CLOCK_STEP + turn * STEP;
                assert!(
                    near(*got, share, slack),
                    "{weights:?}, turn {turn}, task {task}: {got}, not {share}"
                );
            }
        }
    }
}

/// Tasks of these weights that never sleep take turns on one CPU for two minutes, each up to three slices long: how long the last of them
/// waits at most.
fn longest_wait_ns(weights: &[u32]) -> u64 {
    let mut core = core("1n1l1c1t");
    let last = weights.len() - 1;
    let mut queue: Vec<(Vtime, usize)> = (0..weights.len())
        .map(|task| (core.vtime_enter(Vtime::default(), Queue(0)), task))
        .collect();
    let (mut now_ns, mut since_ns, mut longest_ns) = (0, 0, 0);
    while now_ns < 120_000_000_000 {
        let first = *queue.iter().min().expect("never empty");
        queue.retain(|other| *other != first);
        core.set_queued(Queue(0), queue.len() as u64);
        let (v, task) = first;
        if task == last {
            longest_ns = longest_ns.max(now_ns - since_ns);
        }
        let ran_ns = DEFAULT_SLICE_NS * (1 + now_ns / 1000 % 3);
        now_ns += ran_ns;
        if task == last {
            since_ns = now_ns;
        }
        let next = queue.iter().min().map(|(v, _)| *v);
        let v = stops(&mut core, v, (ran_ns, weights[task]), next, now_ns);
        queue.push((core.vtime_enter(v, Queue(0)), task));
    }
    longest_ns
}

/// A kernel ejects a scheduler that has a task wait for ten seconds. The heaviest weighs 8,846 times as much as the lightest, which by that alone
/// would wait for half a minute, and beside a thousand others of its kind for a minute and a half.
#[test]
fn nobody_waits_for_longer_than_patience() {
    let crowd = |n, weight| [vec![weight; n], vec![1]].concat();
    for weights in [
        vec![8846, 1],
        vec![8846, 100, 1],
        crowd(60, 100),
        crowd(300, 100),
        crowd(300, 8846),
    ] {
        let waits_ns = longest_wait_ns(&weights);
        let round_ns = 2 * weights.len() as u64 * DEFAULT_SLICE_NS;
        let range = DEFAULT_PATIENCE_NS / 4..DEFAULT_PATIENCE_NS + round_ns;
        assert!(
            range.contains(&waits_ns),
            "{} x {}: {waits_ns} ns",
            weights.len() - 1,
            weights[0]
        );
    }
}

/// Who runs where nobody else may goes on, and the clock does not go on with it beyond a lead after the first who waits.
#[test]
fn the_clock_waits_for_who_waits() {
    let mut core = core("1n1l4c1t");
    let first = core.vtime_enter(Vtime::default(), Queue(0));
    let mut alone = first;
    for turn in 1..=100 {
        let ran = (DEFAULT_SLICE_NS, 100);
        alone = stops(&mut core, alone, ran, Some(first), turn * DEFAULT_SLICE_NS);
    }
    let beyond = -lag(&core, first, Queue(0));
    assert!(near(beyond, 2 * SLICE, 2 * STEP), "{beyond}");
    assert!(lag(&core, alone, Queue(0)) > 60 * SLICE, "it had 100");
    // And nobody waits: the clock is where it is.
    stops(&mut core, alone, (0, 100), None, 101 * DEFAULT_SLICE_NS);
    assert!(near(lag(&core, alone, Queue(0)), 0, STEP));
}

/// Whether a task of a weight that began at the clock and ran some slices gives way to one so far behind the clock.
fn gives_way(weight: u32, slices: u64, behind_ns: i64, yields: bool) -> bool {
    let mut core = core("1n1l4c1t");
    let first = behind(&mut core, behind_ns);
    let v = behind(&mut core, 0);
    let v = core.vtime_charge(v, Cid(0), slices * DEFAULT_SLICE_NS, weight);
    core.vtime_due(v, first, Queue(0), weight, yields)
}

#[test]
fn who_runs_keeps_a_lead_of_two_slices() {
    // Before one that never sleeps, and began at the clock as well.
    assert!(!gives_way(100, 1, 0, false));
    assert!(gives_way(100, 2, STEP, false));
    // Not before one that slept, however light or heavy it is itself.
    for weight in [1, 50, 100, 1000, 10_000] {
        assert!(gives_way(weight, 1, MOST, false), "{weight}");
    }
    // A lighter task's slices count for more, its lead does not.
    assert!(gives_way(50, 1, STEP, false));
    assert!(gives_way(1, 1, 0, false));
    // A heavier one's lead is as long in time: two slices of it are a fifth of one.
    assert!(!gives_way(1000, 1, 0, false));
    assert!(gives_way(1000, 2, STEP, false));
}

#[test]
fn who_yields_has_no_lead() {
    assert!(gives_way(100, 1, 0, true));
    assert!(gives_way(100, 0, STEP, true));
    assert!(!gives_way(100, 0, -SLICE, true), "it is behind");
}

/// Whether one that began at the clock and ran a slice gives way to one that never slept, and joined there as well, beside one
/// that slept and joined so much later.
fn gives_way_beside(slept_ns: i64) -> bool {
    let mut core = core("1n1l4c1t");
    let first = behind(&mut core, 0);
    let slept = behind(&mut core, -slept_ns);
    core.vtime_slept(slept, Queue(0));
    let v = core.vtime_charge(first, Cid(0), DEFAULT_SLICE_NS, 100);
    core.vtime_due(v, first, Queue(0), 100, false)
}

#[test]
fn nobody_has_a_lead_while_one_waits_that_slept() {
    for slept_ns in [0, SLICE, 2 * SLICE] {
        assert!(gives_way_beside(slept_ns), "{slept_ns}");
    }
    assert!(!gives_way_beside(-STEP), "it had its turn");
    assert!(!gives_way_beside(2 * SLICE + STEP), "no lead holds it up");
}

#[test]
fn the_last_of_those_that_slept_counts() {
    let mut core = core("1n1l4c1t");
    let [early, late] = [STEP, -SLICE].map(|ns| behind(&mut core, ns));
    core.vtime_slept(late, Queue(0));
    core.vtime_slept(early, Queue(0));
    let first = behind(&mut core, 0);
    let v = core.vtime_charge(first, Cid(0), DEFAULT_SLICE_NS, 100);
    assert!(core.vtime_due(v, first, Queue(0), 100, false));
}

#[test]
fn who_slept_joins_early() {
    let mut core = core("1n1l4c1t");
    let mut early = |behind_ns, waiting| {
        let v = behind(&mut core, behind_ns);
        core.set_queued(Queue(0), waiting);
        core.vtime_early(v, Queue(0))
    };
    // In eighths: by three slices up to four waiting for each CPU, by none from sixteen on.
    for (waiting, eighths) in [(0, 24), (16, 24), (40, 12), (63, 0), (64, 0), (1000, 0)] {
        assert_eq!(early(0, waiting), eighths, "{waiting} wait");
    }
    // Whoever has had its turn for now does not.
    for (behind_ns, eighths) in [(MOST, 24), (-2 * SLICE, 24), (-2 * SLICE - STEP, 0)] {
        assert_eq!(early(behind_ns, 0), eighths, "{behind_ns}");
    }
}

#[test]
fn who_joins_early_is_charged_as_ever() {
    let mut core = core("1n2l3c1t");
    let v = behind(&mut core, STEP);
    for early in 0..=24 {
        let joins = core.vtime_before(v, early);
        assert_eq!(core.vtime_after(joins, early), v);
        let by = v.0 - joins.0;
        let exact = u64::from(early) * DEFAULT_SLICE_NS / 8;
        assert!(by <= exact && by + 24 * 4096 >= exact, "{early}: {by}");
        // It is in the same clock.
        assert_eq!(core.vtime_at(joins, Queue(0)), joins);
    }
}

#[test]
fn who_joins_early_cuts_what_has_lasted_for_half_a_slice() {
    // By what it is charged it would come a lead later.
    assert!(!cuts(100, 0, 100, SLICE));
    assert!(cuts_early(100, 0, 24, 100, SLICE));
    assert!(cuts_early(100, 0, 24, 100, SLICE / 2));
    assert!(!cuts_early(100, 0, 24, 100, SLICE / 2 - 1));
    assert!(!cuts_early(100, -SLICE, 8, 100, SLICE), "it still would");
    // Who comes first anyhow waits no longer.
    assert!(cuts_early(100, MOST, 24, 100, SLICE / 32));
}

#[test]
fn a_turn_that_ends_does_not_end_again() {
    let mut core = core("1n2l3c1t");
    core.set_queued(Queue(0), 3);
    let runner = behind(&mut core, 0);
    for cid in 0..6 {
        core.turn_begin(Cid(cid), runner, BEGAN_NS - SLICE as u64, 100);
    }
    let v = behind(&mut core, MOST);
    let query = Query::any(Cid(1), Cid(5));
    let mut cut = |now_ns| core.turn_cut(&query, v, 0, now_ns, 100).map(|cid| cid.0);
    // Three that wake there at once: there, beside it, and nowhere.
    assert_eq!(
        [1, 2, 3].map(|ns| cut(BEGAN_NS + ns)),
        [Some(1), Some(2), None]
    );
    // It has not ended after all.
    assert_eq!(cut(BEGAN_NS + 3 + SLICE as u64 / 32), Some(1));
}

/// When turns begin below.
const BEGAN_NS: u64 = 1_000_000_000;

/// Whether a task of the weight of `wants`, so far behind the clock, ends the turn of one of the weight of `runs` that began
/// at the clock and ran for so long.
fn cuts(wants: u32, behind_ns: i64, runs: u32, ran_ns: i64) -> bool {
    cuts_early(wants, behind_ns, 0, runs, ran_ns)
}

/// The same for one that joins so early.
fn cuts_early(wants: u32, behind_ns: i64, early: u32, runs: u32, ran_ns: i64) -> bool {
    let mut core = core("1n1l4c1t");
    let (cid, waker) = (Cid(2), Cid(0));
    let v = behind(&mut core, behind_ns);
    let now_ns = BEGAN_NS.wrapping_add_signed(ran_ns);
    let cut = |core: &mut Core, cid| {
        let here = Query {
            here: true,
            ..Query::any(cid, waker)
        };
        core.turn_cut(&here, v, early, now_ns, wants)
    };
    assert_eq!(cut(&mut core, cid), None, "nobody runs");
    let runner = behind(&mut core, 0);
    core.turn_begin(cid, runner, BEGAN_NS, runs);
    assert_eq!(cut(&mut core, waker), None, "elsewhere");
    let cut = cut(&mut core, cid);
    assert!(cut.is_none_or(|at| at == cid), "{cut:?}");
    assert_eq!(core.statistics()[Event::TurnCut], u64::from(cut.is_some()));
    cut.is_some()
}

/// Where a turn ends for a task that slept and waits for `from`, of two LLCs of three CPUs, where turns of long
/// standing are on `lasted`, and such that have only begun on all others, and so many wait with it.
fn cut_at(from: u32, lasted: &[u32], waiting: u64, allowed: Option<&CidSet>) -> Option<u32> {
    let mut core = core("1n2l3c1t");
    core.set_queued(Queue(0), waiting);
    let runner = behind(&mut core, 0);
    for cid in 0..6 {
        let ran_ns = if lasted.contains(&cid) { SLICE } else { 0 };
        core.turn_begin(Cid(cid), runner, BEGAN_NS - ran_ns as u64, 100);
    }
    let v = behind(&mut core, MOST);
    let query = Query {
        allowed,
        ..Query::any(Cid(from), Cid(5))
    };
    core.turn_cut(&query, v, 0, BEGAN_NS, 100).map(|cid| cid.0)
}

#[test]
fn a_turn_ends_beside_one_that_has_only_begun() {
    assert_eq!(cut_at(0, &[0, 1, 2], 3, None), Some(0));
    assert_eq!(cut_at(0, &[1, 2], 3, None), Some(1));
    assert_eq!(
        cut_at(0, &[1, 2], 2, None),
        None,
        "fewer wait than there are CPUs"
    );
    assert_eq!(cut_at(2, &[0, 1], 4, None), Some(0), "round its LLC");
    assert_eq!(
        cut_at(0, &[2, 3, 4, 5], 3, None),
        None,
        "one more look, no farther"
    );
    let but_1: CidSet = [0, 2, 3].into_iter().map(Cid).collect();
    assert_eq!(
        cut_at(0, &[1], 3, Some(&but_1)),
        None,
        "it may not run there"
    );
    assert_eq!(cut_at(2, &[0], 3, Some(&but_1)), Some(0));
}

#[test]
fn who_slept_ends_a_turn_that_has_lasted() {
    assert!(cuts(100, MOST, 100, SLICE / 32));
    assert!(!cuts(100, MOST, 100, SLICE / 32 - 1), "only begun");
    assert!(!cuts(100, MOST, 100, -SLICE), "begun after the wakeup");
    // Who slept for less has less of a claim, and none beyond the lead that turns have at their end.
    assert!(!cuts(100, SLICE, 100, SLICE - 2 * STEP));
    assert!(cuts(100, SLICE, 100, SLICE));
    assert!(!cuts(100, 0, 100, 2 * SLICE - 2 * STEP));
    assert!(cuts(100, 0, 100, 2 * SLICE));
}

#[test]
fn no_turn_ends_for_less_weight() {
    assert!(!cuts(90, MOST, 100, 4 * SLICE));
    assert!(cuts(91, MOST, 100, 4 * SLICE), "less than a tenth lighter");
    assert!(cuts(1000, MOST, 100, SLICE / 32));
    // The time of a heavier one counts for less, and its lead is as long in time.
    assert!(cuts(1000, MOST, 1000, SLICE / 32));
    assert!(!cuts(1000, 0, 1000, 2 * SLICE - 16 * STEP));
    assert!(cuts(1000, 0, 1000, 2 * SLICE + 16 * STEP));
    // A lighter one's counts for more.
    assert!(cuts(50, 0, 50, SLICE));
    assert!(cuts(1, 0, 0, SLICE), "a weight of 0 is one of 1");
}

/// Whether a task of this weight that was handed to a CPU goes before one that many nanoseconds before it in the queue, which
/// is promised to another CPU or not.
fn taken_before(weight: u32, after_ns: i64, promised: bool) -> bool {
    let mut core = core("1n1l4c1t");
    let first = behind(&mut core, after_ns);
    let v = behind(&mut core, 0);
    let taken = core.take_handed(Cid(1), first, v, weight, promised);
    assert_eq!(core.statistics()[Event::Handed], u64::from(taken));
    taken
}

#[test]
fn who_is_handed_over_comes_a_slice_sooner() {
    assert!(taken_before(100, 0, false));
    assert!(taken_before(100, SLICE - STEP, false));
    assert!(!taken_before(100, SLICE + STEP, false));
    assert!(taken_before(50, SLICE - STEP, false), "as much as any");
    // Its time counts for less.
    assert!(taken_before(1000, SLICE / 10 - STEP, false));
    assert!(!taken_before(1000, SLICE / 10 + STEP, false));
}

#[test]
fn whom_another_cpu_is_to_take_is_passed_over_for_longer() {
    assert!(taken_before(100, MOST, true));
    assert!(taken_before(100, 4 * SLICE - STEP, true));
    assert!(!taken_before(100, 4 * SLICE + STEP, true));
}

#[test]
fn a_task_is_handed_within_a_queue_and_asked_for_once() {
    let mut core = core("1n2l2c1t");
    let task = |name| NonZeroU64::new(name).expect("not 0");
    assert!(!core.hand(Cid(0), Queue(1), task(7)), "of another queue");
    assert_eq!(core.handed(Cid(0)), None);
    assert!(core.hand(Cid(0), Queue(0), task(7)));
    assert!(core.hand(Cid(0), Queue(0), task(8)));
    assert!(!core.promised(Cid(0), task(7)), "another one came");
    assert!(!core.promised(Cid(1), task(8)), "not to that CPU");
    assert!(core.promised(Cid(0), task(8)));
    assert_eq!(core.handed(Cid(0)), Some(task(8)));
    assert!(!core.promised(Cid(0), task(8)), "it asked");
    assert_eq!(core.handed(Cid(0)), None);
}
