// SPDX-License-Identifier: GPL-2.0-only
//! Placement hints: where each of them sends a task, and when it lapses.

use usher_core::{Core, Decision, Event, Hints, Hold, Reason, Request, Wake};
use usher_topo::{shape, Cid, Llc, Topology};

/// A machine whose CPUs are all idle but the first, on which everybody is born and wakes others.
fn machine(text: &str) -> (Core, Topology) {
    let topo = Topology::build(&shape::parse(text).expect("a shape"), 64).expect("a machine");
    let mut core = Core::of(&topo).expect("tables");
    for cid in 1..topo.nr_cids() {
        core.idle_enter(Cid(cid as u32));
    }
    (core, topo)
}

fn request(wake: Wake, prev: u32, waker: u32, hints: Hints) -> Request<'static> {
    Request {
        wake,
        hints,
        ..Request::wake(Cid(prev), Cid(waker))
    }
}

/// A hinted child is born on CPU 0, runs a moment and sleeps. Its LLC.
fn birth(core: &mut Core, topo: &Topology, hints: Hints) -> (Llc, Reason) {
    let decision = core.place(&request(Wake::Fork, 0, 0, hints));
    let llc = llc_of(topo, decision);
    core.settle(None, Some(llc));
    if decision.claimed {
        core.idle_exit(decision.cid);
        core.idle_enter(decision.cid);
    }
    (llc, decision.reason)
}

fn llc_of(topo: &Topology, decision: Decision) -> Llc {
    topo.cids()[decision.cid.0 as usize].llc
}

// Goal: sleepers count. Method: children that sleep at once, in an LLC of four cores of which the parent has one.
// Catches: counting idle CPUs only, which puts all of them into one LLC (it cost tbench half its throughput).
#[test]
fn affine_children_fill_the_parents_llc_and_then_the_next() {
    let (mut core, topo) = machine("2n4l4c2t");
    core.settle(None, Some(Llc(0))); // the parent
    let born: Vec<u32> = (0..9)
        .map(|_| birth(&mut core, &topo, Hints::FORK_AFFINE).0 .0)
        .collect();
    assert_eq!(born, [0, 0, 0, 1, 1, 1, 1, 2, 2]);
}

// Goal: a full node makes the hint lapse, and the task is placed as without. Method: more children than cores.
#[test]
fn affine_lapses_when_the_node_is_full() {
    let (mut core, topo) = machine("2n2l2c1t");
    core.settle(None, Some(Llc(0)));
    let reasons: Vec<Reason> = (0..5)
        .map(|_| birth(&mut core, &topo, Hints::FORK_AFFINE).1)
        .collect();
    assert_eq!(
        reasons,
        [
            Reason::HintFork,
            Reason::HintFork,
            Reason::HintFork,
            Reason::LlcCore,
            Reason::LlcCore
        ]
    );
    let events = core.statistics();
    assert_eq!((events[Event::HintKept], events[Event::HintLapsed]), (3, 2));
}

// Goal: children spread evenly over all LLCs, the near node first. Method: as many as two rounds.
#[test]
fn spread_children_go_where_few_live() {
    let (mut core, topo) = machine("2n2l4c2t");
    core.settle(None, Some(Llc(0)));
    let born: Vec<u32> = (0..8)
        .map(|_| birth(&mut core, &topo, Hints::FORK_SPREAD).0 .0)
        .collect();
    assert_eq!(born, [1, 2, 3, 0, 1, 2, 3, 0]);
}

// Goal: who moves away or ends makes room. Method: a full LLC, one inhabitant less.
#[test]
fn a_place_given_up_is_free_again() {
    let (mut core, topo) = machine("1n2l2c1t");
    core.settle(None, Some(Llc(0)));
    assert_eq!(birth(&mut core, &topo, Hints::FORK_AFFINE).0, Llc(0));
    assert_eq!(birth(&mut core, &topo, Hints::FORK_AFFINE).0, Llc(1));
    core.settle(Some(Llc(0)), Some(Llc(1)));
    assert_eq!((core.settled(Llc(0)), core.settled(Llc(1))), (1, 2));
    assert_eq!(birth(&mut core, &topo, Hints::FORK_AFFINE).0, Llc(0));
    core.settle(Some(Llc(0)), None);
    assert_eq!(core.settled(Llc(0)), 1);
}

// Goal: wake-affine pulls to the waker's LLC while a core is idle there now, and no longer. Method: a waker with
// two idle cores beside it wakes four sleepers of another node. Catches: a flag that says "idle cores" for
// milliseconds after the last is gone.
#[test]
fn wake_affine_follows_the_waker_while_cores_last() {
    let (mut core, topo) = machine("2n1l3c2t");
    let reasons: Vec<(Reason, u32)> = (0..4)
        .map(|_| {
            let decision = core.place(&request(Wake::Wake, 11, 0, Hints::WAKE_AFFINE));
            (decision.reason, llc_of(&topo, decision).0)
        })
        .collect();
    assert_eq!(reasons[0], (Reason::HintWake, 0));
    assert_eq!(reasons[1], (Reason::HintWake, 0));
    assert_eq!(reasons[2], (Reason::PrevCore, 1));
    assert_eq!(reasons[3].1, 1);
}

// Goal: wake-affine takes no core of those that live in the waker's LLC and sleep, but pulls where fewer live than at home. Method: two
// LLCs of two idle cores each, with so many inhabitants. Catches: a crowd around its waker whose members push each other off their cores.
#[test]
fn wake_affine_leaves_sleepers_their_cores() {
    for (there, home, reason) in [
        (1, 2, Reason::HintWake),
        (2, 2, Reason::PrevCore),
        (3, 4, Reason::HintWake),
        (4, 1, Reason::PrevCore),
    ] {
        let (mut core, _) = machine("1n2l2c1t");
        for (llc, inhabitants) in [(Llc(0), there), (Llc(1), home)] {
            (0..inhabitants).for_each(|_| core.settle(None, Some(llc)));
        }
        let decision = core.place(&request(Wake::Wake, 3, 0, Hints::WAKE_AFFINE));
        assert_eq!(decision.reason, reason, "{there} and {home} live there");
    }
}

// Goal: wake-hold keeps a task where it ran, where a sync wakeup would have it leave. Method: both ways.
#[test]
fn wake_hold_stays() {
    for (hints, reason, llc) in [
        (Hints::NONE, Reason::SyncCore, 0),
        (Hints::WAKE_HOLD, Reason::PrevCore, 1),
    ] {
        let (mut core, topo) = machine("1n2l2c2t");
        let decision = core.place(&request(Wake::Sync, 7, 0, hints));
        assert_eq!((decision.reason, llc_of(&topo, decision).0), (reason, llc));
    }
}

/// How often in a row a hold withstands the same partner: USHER_HOLD_TIMES.
const HOLD_TIMES: usize = 16;

/// Whether a task that holds in LLC 0 is still to hold, wakeup by wakeup, and how many lapses were counted.
fn holds(wakeups: impl IntoIterator<Item = (Wake, u32)>) -> (Vec<bool>, u64) {
    let (mut core, _) = machine("2n2l2c1t");
    let mut hold = Hold::default();
    let hints = Hints::FORK_SPREAD.and(Hints::WAKE_HOLD).expect("no pair");
    let kept = wakeups.into_iter().map(|(wake, waker)| {
        let found = core.hold(&request(wake, 0, waker, hints), &mut hold);
        assert!(found.has(Hints::FORK_SPREAD));
        assert_ne!(found.has(Hints::WAKE_HOLD), found.has(Hints::WAKE_AFFINE));
        found.has(Hints::WAKE_HOLD)
    });
    let kept = kept.collect();
    (kept, core.statistics()[Event::HintLapsed])
}

// Goal: a hold does not keep two partners apart for good. Method: synchronous wakeups by one LLC only, of this node and
// of the other: from the 17th on the task goes there. Catches: a hold that only lapses in the node.
#[test]
fn a_hold_lapses_for_an_only_partner() {
    for waker in [2, 6] {
        let (kept, lapsed) = holds([(Wake::Sync, waker); HOLD_TIMES + 2]);
        let expected = [[true; HOLD_TIMES].as_slice(), &[false; 2]].concat();
        assert_eq!((kept, lapsed), (expected, 2), "waker {waker}");
    }
}

// Goal: nor does a birth far from the partner; nothing lapses, for nothing was wished of wakeups. Other tasks without a hint about
// those are left alone. Method: the same, with the hint about births alone. Catches: only holds are looked at.
#[test]
fn partners_born_apart_come_together() {
    for (hints, comes) in [
        (Hints::FORK_SPREAD, true),
        (Hints::FORK_AFFINE, false),
        (Hints::NONE, false),
    ] {
        let (mut core, _) = machine("2n2l2c1t");
        let mut hold = Hold::default();
        let found = [(); HOLD_TIMES + 2].map(|()| {
            let found = core.hold(&request(Wake::Sync, 0, 6, hints), &mut hold);
            found.has(Hints::WAKE_AFFINE)
        });
        let expected = [[false; HOLD_TIMES].as_slice(), &[comes; 2]].concat();
        assert_eq!(found.as_slice(), expected, "{hints:?}");
        assert_eq!(core.statistics()[Event::HintLapsed], 0);
    }
}

// Goal: a task that many wake stays. Method: a second LLC, or the own one, comes between before it is too late; wakeups that
// are not synchronous, which move nobody, count for nothing. Catches: a sum instead of a row.
#[test]
fn a_hold_withstands_many() {
    let rounds = |other: u32| {
        let round = [
            [(Wake::Sync, 2); HOLD_TIMES].as_slice(),
            &[(Wake::Sync, other)],
        ]
        .concat();
        round.repeat(4)
    };
    for wakeups in [rounds(4), rounds(1), [(Wake::Wake, 2); 50].to_vec()] {
        let (kept, lapsed) = holds(wakeups);
        assert!(kept.iter().all(|&kept| kept), "{kept:?}");
        assert_eq!(lapsed, 0);
    }
}

// Goal: a wish never leads out of the allowed set. Method: every hint, with a set far from where it points.
#[test]
fn affinity_comes_first() {
    let allowed = [Cid(12), Cid(13)].into_iter().collect();
    for bits in 0..16 {
        let Some(hints) = Hints::from_bits(bits) else {
            continue;
        };
        for wake in [Wake::Wake, Wake::Sync, Wake::Fork] {
            let (mut core, _) = machine("2n2l2c2t");
            let decision = core.place(&Request {
                allowed: Some(&allowed),
                ..request(wake, 12, 0, hints)
            });
            assert!(
                [12, 13].contains(&decision.cid.0),
                "{hints:?} {wake}: {decision:?}"
            );
        }
    }
}
