// SPDX-License-Identifier: GPL-2.0-only
//! Whom a task goes to, beside all of its wakeups.

use usher_core::{CidSet, Demand, Follow, Hints, Request, Tiers, Wake};
use usher_topo::Cid;

use crate::machine::Machine;
use crate::random::Random;

/// So many wakeups in a row from one LLC, or by others, make a home.
const HOME_TIMES: usize = 4;
/// So many in a row by sync wakeups from one other node, and the task goes there.
const NODE_TIMES: usize = 16;

/// Whether the last so many are all this one.
fn all_last(list: &[u32], times: usize, is: u32) -> bool {
    list.len() >= times && list[list.len() - times..].iter().all(|&n| n == is)
}

/// Wakeups of one task, mostly from one node for a while, and there from one CPU.
pub fn check(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let machine = Machine::draw(&mut random, 40, usher_core::Granularity::Shard);
    let nodes: Vec<_> = machine.nodes.iter().filter(|n| !n.is_empty()).collect();
    let mut core = machine.core(false);
    let node_of = |cid: u32| machine.tables.node[cid as usize];
    let llc_of = |cid: u32| machine.tables.llc[cid as usize];
    let mut kept = Follow::default();
    let mut sleeps: u32 = random.pick(&[0, u32::MAX - 100]);
    // Since something else woke it: the LLCs that did, and since it followed last, the other nodes.
    let (mut llcs, mut from_nodes) = (Vec::new(), Vec::new());
    // Where it is at home, and how often it has slept since a wakeup that counts.
    let (mut belongs, mut others) = (None, sleeps);
    let (mut prev, mut home) = (0, nodes[0]);
    let mut waker = 0;
    for step in 0..600 {
        if random.one_in(30) {
            home = nodes[random.below(nodes.len() as u32) as usize];
        }
        let near = if random.one_in(60) { nodes[0] } else { home };
        if !near.contains(&waker) || random.one_in(3) {
            waker = random.between(near.start, near.end - 1);
        }
        let wake = if random.one_in(60) {
            Wake::Wake
        } else {
            Wake::Sync
        };
        let hints = if random.one_in(60) {
            Hints::WAKE_HOLD
        } else {
            Hints::WAKE_AFFINE
        };
        let but_the_waker: CidSet = (0..machine.nr_cids())
            .filter(|&cid| cid != waker)
            .map(Cid)
            .collect();
        let allowed = random.one_in(8).then_some(&but_the_waker);
        let mut request = Request {
            allowed,
            wake,
            prev: Cid(prev),
            waker: Cid(waker),
            tiers: Tiers::ANY,
            hints,
            demand: Demand::default(),
        };
        sleeps = sleeps.wrapping_add(1);
        if random.one_in(60) {
            // Woken in between by who asks for no place.
            let times = random.between(1, 5);
            sleeps = sleeps.wrapping_add(times);
            others = others.wrapping_add(times);
        }
        let counts =
            wake == Wake::Sync && llc_of(waker) != llc_of(prev) && hints == Hints::WAKE_AFFINE;
        let found = core.from_elsewhere(&request);
        if found != counts {
            return Err(format!(
                "step {step}: {request:?} is from elsewhere: {found}, instead of {counts}"
            ));
        }
        if !counts {
            others = others.wrapping_add(1);
            continue;
        }
        let here = llcs
            .iter()
            .rev()
            .take_while(|&&llc| llc == llc_of(prev))
            .count();
        if others > 0 && here as u64 + u64::from(others) >= HOME_TIMES as u64 {
            belongs = Some(llc_of(prev));
        }
        if others > 0 {
            llcs.clear();
            from_nodes.clear();
        }
        others = 0;
        llcs.push(llc_of(waker));
        if all_last(&llcs, HOME_TIMES, llc_of(waker)) {
            belongs = Some(llc_of(waker));
        }
        if from_nodes.last() != Some(&node_of(waker)) {
            from_nodes.clear();
        }
        if node_of(waker) != node_of(prev) {
            from_nodes.push(node_of(waker));
        }
        let follows = all_last(&from_nodes, NODE_TIMES, node_of(waker)) && allowed.is_none();
        let stays =
            node_of(waker) == node_of(prev) && belongs.is_some_and(|llc| llc != llc_of(waker));
        let expected = (
            if stays { Wake::Wake } else { Wake::Sync },
            Cid(if follows { waker } else { prev }),
        );
        core.follow(&mut request, &mut kept, sleeps);
        if (request.wake, request.prev) != expected {
            return Err(format!(
                "step {step}: a task of {prev} woken from {waker} becomes {request:?} instead of {expected:?}; its home {belongs:?}, \
                 woken from LLCs {llcs:?} and nodes {from_nodes:?}"
            ));
        }
        if follows {
            from_nodes.clear();
        }
        // Sometimes it finds a place there, and sometimes it goes back.
        if follows && random.one_in(2) || random.one_in(100) {
            prev = waker;
        }
    }
    Ok(())
}
