// SPDX-License-Identifier: GPL-2.0-only
//! Pairs beside their rules written down plainly: who is sure of its partner, gives way to it, or leaves it where it was.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use usher_core::{Core, Gives, Granularity, Pair, Vtime};
use usher_topo::{Cid, Llc};

use crate::machine::Machine;
use crate::random::Random;

/// Virtual times name their LLC in the low bits.
const STEP: u64 = 4096;
const CID: Cid = Cid(0);

/// The turns of one task on one CPU.
#[derive(Default)]
struct Plain {
    partner: u64,
    /// Good turns in a row, four at most.
    good: u32,
    /// Times that it gave way since it was watched.
    given: u32,
    began_ns: u64,
    vtime: u64,
    weight: u32,
    /// When it woke somebody in this turn.
    asked_ns: Vec<u64>,
    /// How long the callbacks of the last wakeup took; who was woken is queued as long again after them.
    wake_ns: u64,
}

impl Plain {
    fn asks(&mut self, task: u64, now_ns: u64) -> bool {
        self.asked_ns.push(now_ns);
        self.wake_ns = 0;
        if self.partner != task {
            (self.partner, self.good, self.given) = (task, 0, 0);
        }
        self.good == 4
    }

    fn sleeps(&mut self, now_ns: u64, slice_ns: u64) {
        let good = match self.asked_ns[..] {
            [asked_ns] => {
                let before = asked_ns - self.began_ns;
                let after = (now_ns - asked_ns).saturating_sub(2 * self.wake_ns);
                before + after <= slice_ns / 8 && after <= 2 * before
            }
            _ => false,
        };
        self.good = if good { (self.good + 1).min(4) } else { 0 };
        self.given = 0;
        self.asked_ns.clear();
    }

    /// Whether it gives way to one of this weight that would come at `v`, with somebody waiting at `first`: later, once in
    /// sixteen times.
    fn gives_way(
        &self,
        v: u64,
        weight: u32,
        now_ns: u64,
        first: Option<u64>,
        slice_ns: u64,
    ) -> Gives {
        let slice = |weight: u32| (slice_ns * 100 / u64::from(weight.max(100))) as i64;
        let own = self.vtime + (now_ns - self.began_ns) * 100 / u64::from(self.weight);
        let may = weight >= self.weight
            && first.is_none_or(|first| {
                own.wrapping_sub(first) as i64 <= slice(self.weight)
                    && v.wrapping_sub(first) as i64 <= slice(weight)
            });
        match may {
            false => Gives::Not,
            true if self.given < 15 => Gives::Now,
            true => Gives::Later,
        }
    }
}

/// A thousand turns of one task, and where as many partners are left.
pub fn check(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let machine = Machine::draw(&mut random, 16, Granularity::Shard);
    let mut core: Core = machine.core(false);
    let slice_ns = machine.settings.slice_ns;
    let (mut pair, mut plain) = (Pair::default(), Plain::default());
    let clock = core.vtime_at(Vtime::default(), Llc(0)).0;
    let mut now_ns = 1_000_000_000;
    for turn in 0..1000 {
        // At times nothing comes between, until it is to be watched.
        let calm = turn % 100 < 40;
        if calm || !random.one_in(16) {
            plain.began_ns = now_ns;
            plain.vtime = clock + u64::from(random.below(4)) * STEP;
            plain.weight = if calm {
                100
            } else {
                random.pick(&[100, 100, 50, 300])
            };
            plain.asked_ns.clear();
            core.turn_begin(CID, Vtime(plain.vtime), now_ns, plain.weight);
        }
        for _ in 0..1 + u32::from(!calm && random.one_in(12)) {
            now_ns += u64::from(random.between(5_000, 30_000));
            let task = 1 + u64::from(!calm && random.one_in(40));
            let name = NonZeroU64::new(task).expect("not 0");
            let sure = core.pair_asks(CID, &mut pair, name, now_ns);
            if sure != plain.asks(task, now_ns) {
                return Err(format!("turn {turn}: sure is {sure}"));
            }
            if !sure || plain.weight == 0 || (!calm && random.one_in(8)) {
                continue;
            }
            let weight = if calm {
                100
            } else {
                random.pick(&[100, 99, 1000])
            };
            // The partner is ahead of the asker, or as far behind as who waits.
            let v = clock + u64::from(random.below(6_000)) * STEP - 3_000 * STEP;
            let first = clock - u64::from(random.below(3_000)) * STEP;
            let first = (!calm && random.one_in(2)).then_some(first);
            let gives =
                core.pair_gives_way(CID, &mut pair, Vtime(v), now_ns, weight, first.map(Vtime));
            if gives != plain.gives_way(v, weight, now_ns, first, slice_ns) {
                return Err(format!("turn {turn}: gives way {gives}"));
            }
            if gives == Gives::Now {
                plain.given += 1;
                plain.asked_ns.clear();
            }
        }
        if random.one_in(3) {
            // Before the question, or after giving way, it says nothing.
            let wake_ns = u64::from(random.between(1_000, 60_000));
            core.pair_woke(CID, now_ns + wake_ns);
            plain.wake_ns = wake_ns;
            now_ns += wake_ns + u64::from(random.below(2 * wake_ns as u32));
        }
        now_ns += match random.below(12) {
            0 => 400_000,
            1 => 70_000,
            _ => u64::from(random.between(2_000, 9_000)),
        };
        let asked = core.pair_asked(CID);
        if asked == plain.asked_ns.is_empty() {
            return Err(format!("turn {turn}: asked is {asked}"));
        }
        if asked && !random.one_in(16) {
            core.pair_sleeps(CID, &mut pair, now_ns);
            plain.sleeps(now_ns, slice_ns);
        }
    }
    apart(&mut random, &machine, &mut core)
}

fn apart(random: &mut Random, machine: &Machine, core: &mut Core) -> Result<(), String> {
    let mut idle = BTreeSet::new();
    let plain = crate::plain::Plain::new(machine);
    for step in 0..1000 {
        let cid = random.below(machine.nr_cids());
        match idle.insert(cid) {
            true => _ = core.idle_enter(Cid(cid)),
            false => {
                idle.remove(&cid);
                core.idle_exit(Cid(cid));
            }
        }
        let (this, prev) = (
            random.below(machine.nr_cids()),
            random.below(machine.nr_cids()),
        );
        let free = |cid: u32| cid == this || idle.contains(&cid);
        let quiet = |cid: u32| machine.cores[cid as usize].clone().all(free);
        let here = plain.rather_here(this, prev) && quiet(this);
        let expected = prev != this && quiet(prev) && !here;
        if core.pair_apart(Cid(this), Cid(prev)) != expected {
            return Err(format!("step {step}: apart is not {expected}"));
        }
    }
    Ok(())
}
