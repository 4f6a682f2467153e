// SPDX-License-Identifier: GPL-2.0-only
//! Whom a task follows to another node, beside all of its wakeups.

use usher_core::{CidSet, Demand, Follow, Hints, Request, Tiers, Wake};
use usher_topo::Cid;

use crate::machine::Machine;
use crate::random::Random;

/// So many wakeups in a row by sync wakeups from one other node, and the task goes there.
const TIMES: usize = 16;

/// Wakeups of one task, mostly from one node for a while.
pub fn check(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let machine = Machine::draw(&mut random, 40, usher_core::Granularity::Shard);
    let nodes: Vec<_> = machine.nodes.iter().filter(|n| !n.is_empty()).collect();
    let mut core = machine.core(false);
    let node_of = |cid: u32| machine.tables.node[cid as usize];
    let mut kept = Follow::default();
    let mut sleeps = random.pick(&[0, u32::MAX - 100]);
    // Since it followed last: the other node that woke it, or `None` where something else did.
    let mut woken: Vec<Option<u32>> = Vec::new();
    let (mut prev, mut home) = (0, nodes[0]);
    for step in 0..600 {
        if random.one_in(30) {
            home = nodes[random.below(nodes.len() as u32) as usize];
        }
        let near = if random.one_in(60) { nodes[0] } else { home };
        let waker = random.between(near.start, near.end - 1);
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
        let others: CidSet = (0..machine.nr_cids())
            .filter(|&cid| cid != waker)
            .map(Cid)
            .collect();
        let allowed = random.one_in(8).then_some(&others);
        let request = Request {
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
            sleeps = sleeps.wrapping_add(1);
            woken.push(None);
        }
        let counts =
            wake == Wake::Sync && node_of(waker) != node_of(prev) && hints == Hints::WAKE_AFFINE;
        woken.push(counts.then(|| node_of(waker)));
        let last = &woken[woken.len().saturating_sub(TIMES)..];
        let follows = counts
            && last.len() == TIMES
            && last.iter().all(|&node| node == Some(node_of(waker)))
            && allowed.is_none();
        let found = core.from_afar(&request);
        if found != counts {
            return Err(format!(
                "step {step}: {request:?} is from afar: {found}, instead of {counts}"
            ));
        }
        let expected = if follows { waker } else { prev };
        if counts {
            let cid = core.follow(&request, &mut kept, sleeps);
            if cid != Cid(expected) {
                return Err(format!(
                    "step {step}: a task of {prev} woken from {waker} is placed by {cid} instead of {expected}; woken {last:?}"
                ));
            }
        }
        if follows {
            woken.clear();
        }
        // Sometimes it finds a place there, and sometimes it goes back.
        if follows && random.one_in(2) || random.one_in(100) {
            prev = waker;
        }
    }
    Ok(())
}
