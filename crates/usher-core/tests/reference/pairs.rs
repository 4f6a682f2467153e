// SPDX-License-Identifier: GPL-2.0-only
//! Pairs beside their rules written down plainly: who is sure of its partner, gives way to it, or leaves it where it was.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use usher_core::{Core, Gives, Granularity, Pair, Queue, Vtime};
use usher_topo::Cid;

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
    /// When it asked this partner last, how often it had slept or been interrupted by then, in which way, and in which the time before.
    last_ns: u64,
    paused: u32,
    way: Option<Way>,
    way_before: Option<Way>,
    /// Questions in a row, up to the one before the last, that were asked in the way of the last.
    same: u32,
    /// Times that it had the choice.
    chosen: u64,
    /// From one question to the next of one who left its partner where it was, and of one who gave way.
    apart_ns: Option<u64>,
    beside_ns: Option<u64>,
    /// Whether the last trial showed that to give way is sooner.
    sooner: bool,
}

/// How it woke its partner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Apart,
    Beside,
    Leaves,
}

/// What a partner knows: by which name it knows who asks, and which way is sooner.
#[derive(Clone, Copy, Default)]
struct Partner {
    pair: Pair,
    knows: u64,
    sooner: bool,
}

/// What surrounds one who asks.
struct Around {
    /// Its partner's core idles, but for itself.
    quiet: bool,
    /// Nobody else runs on its own.
    alone: bool,
    /// Its partner ran where it does.
    here: bool,
    /// It has the lower name of the two.
    decides: bool,
    /// What the one with the lower name knows, if that is the other.
    told: bool,
    /// Strong CPUs come first, and its partner's is weaker or stronger, or there is a stronger one somewhere.
    weaker: bool,
    stronger: bool,
    upward: bool,
}

impl Plain {
    fn asks(&mut self, task: u64, paused: u32, now_ns: u64) -> bool {
        self.asked_ns.push(now_ns);
        self.wake_ns = 0;
        self.same = match self.way == self.way_before {
            true => self.same + 1,
            false => 0,
        };
        if self.partner != task {
            (self.partner, self.good, self.given) = (task, 0, 0);
            (self.chosen, self.apart_ns, self.beside_ns) = (0, None, None);
            self.sooner = false;
        } else if self.same >= 3 && paused.wrapping_sub(self.paused) == 1 {
            let answer = match self.way {
                Some(Way::Apart) => Some(&mut self.apart_ns),
                Some(Way::Beside) => Some(&mut self.beside_ns),
                _ => None,
            };
            let took = now_ns - self.last_ns;
            if let Some(answer) = answer {
                *answer = Some(answer.map_or(took, |average| {
                    let change = (took.min(2 * average) as i64 - average as i64) / 16;
                    average.wrapping_add_signed(change)
                }));
            }
        }
        (self.way_before, self.way) = (self.way, None);
        (self.last_ns, self.paused) = (now_ns, paused);
        self.good == 4
    }

    /// 32 times after 64, 256, 1,024 and so on up to 16,384, and then after every 49,152 choices, it does what it otherwise would not.
    fn tries(&self) -> bool {
        let since = |start: u64| (start..start + 32).contains(&self.chosen);
        let after = (16_384u64..).step_by(49_152);
        (0..4).any(|power| since(64 << (2 * power)))
            || after.take_while(|&start| start <= self.chosen).any(since)
    }

    /// It has the choice. Whether it gives way. When a trial ends it settles which is clearly sooner.
    fn chooses(&mut self) -> bool {
        let tried = self.tries();
        self.chosen += 1;
        let tries = self.tries();
        if tried && !tries {
            let both = self.beside_ns.zip(self.apart_ns);
            self.sooner = both.is_some_and(|(beside, apart)| beside + beside / 32 < apart);
        }
        self.sooner != tries
    }

    /// Whether it leaves its partner where that was.
    fn apart(&mut self, around: &Around) -> bool {
        if !around.decides {
            self.sooner = around.told;
        }
        if around.here {
            // What it stays for, or tries, it may leave: when a trial begins or ends.
            let tried = self.tries();
            if around.alone
                && around.decides
                && (self.sooner || tried)
                && !self.chooses()
                && self.tries() != tried
            {
                self.way = Some(Way::Leaves);
            }
            return false;
        }
        if !around.quiet {
            return false;
        }
        let apart = if !around.alone || around.stronger {
            true
        } else if around.weaker {
            false
        } else {
            !(around.decides && self.chooses())
        };
        if apart {
            self.way = Some(Way::Apart);
        }
        apart
    }

    fn sleeps(&mut self, now_ns: u64, slice_ns: u64) {
        let good = match self.asked_ns[..] {
            [asked_ns] => {
                let before = asked_ns - self.began_ns;
                let after = (now_ns - asked_ns).saturating_sub(2 * self.wake_ns);
                before + after <= slice_ns / 8 && after <= 2 * before + slice_ns / 128
            }
            _ => false,
        };
        self.good = if good { (self.good + 1).min(4) } else { 0 };
        self.given = 0;
        self.asked_ns.clear();
    }

    /// Whether it gives way to one of this weight that would come at `v`, with somebody waiting at `first`: later, once in
    /// sixteen times; and to one that waits behind it, where that is sooner, nobody else is on its core and none is stronger.
    fn gives_way(
        &mut self,
        around: &Around,
        v: u64,
        weight: u32,
        now_ns: u64,
        first: Option<u64>,
        slice_ns: u64,
    ) -> Gives {
        let slice = |weight: u32| (slice_ns * 100 / u64::from(weight.max(100))) as i64;
        let own = self.vtime + (now_ns - self.began_ns) * 100 / u64::from(self.weight);
        let may = u64::from(weight) * 10 > u64::from(self.weight) * 9
            && first.is_none_or(|first| {
                own.wrapping_sub(first) as i64 <= slice(self.weight)
                    && v.wrapping_sub(first) as i64 <= slice(weight)
            });
        let leaves = self.way == Some(Way::Leaves);
        if !may {
            return Gives::Not;
        }
        if self.given < 15 && !leaves {
            self.way = Some(Way::Beside);
            return Gives::Now;
        }
        // Sure again when it has slept once as it should.
        (self.good, self.given) = (3, 0);
        match self.sooner && around.alone && !around.upward && !leaves {
            true => Gives::Behind,
            false => Gives::Later,
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
    let clock = core.vtime_at(Vtime::default(), Queue(0)).0;
    let mut now_ns = 1_000_000_000;
    let mut idle = Idle::new(&machine);
    // One that decides, and one that is told, if it asks the first of two tasks.
    let decides = choices(&mut random, &machine, &Partner::default())?;
    let told = choices(&mut random, &machine, &decides)?;
    let partners = [Partner::default(), decides, told];
    // It wraps.
    let mut paused = u32::MAX - 200;
    for turn in 0..1000 {
        if turn % 20 == 0 {
            idle.change(&mut core, &mut random);
        }
        // At times nothing comes between, until it is to be watched.
        let calm = turn % 100 < 40;
        // Mostly once between two questions.
        paused = paused.wrapping_add(1 + u32::from(random.one_in(8)));
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
            let sure = core.pair_asks(CID, &mut pair, name, paused, now_ns);
            if sure != plain.asks(task, paused, now_ns) {
                return Err(format!("turn {turn}: sure is {sure}"));
            }
            if !sure || plain.weight == 0 || (!calm && random.one_in(8)) {
                continue;
            }
            let prev = match random.one_in(3) {
                true => CID.0,
                false => random.below(machine.nr_cids()),
            };
            let partner = random.pick(&partners);
            let around = idle.around(CID.0, prev, &partner, task);
            let apart = core.pair_apart(CID, &mut pair, &partner.pair, Cid(prev));
            if apart != plain.apart(&around) {
                return Err(format!("turn {turn}: apart is {apart}"));
            }
            if apart {
                continue;
            }
            let weight = if calm {
                100
            } else {
                random.pick(&[100, 91, 90, 1000])
            };
            // The partner is ahead of the asker, or as far behind as who waits.
            let v = clock + u64::from(random.below(6_000)) * STEP - 3_000 * STEP;
            let first = clock - u64::from(random.below(3_000)) * STEP;
            let first = (!calm && random.one_in(2)).then_some(first);
            let gives =
                core.pair_gives_way(CID, &mut pair, Vtime(v), now_ns, weight, first.map(Vtime));
            if gives != plain.gives_way(&around, v, weight, now_ns, first, slice_ns) {
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
    apart(&mut random, &mut idle, &mut core)
}

/// A task that has the choice for long, and answers that take this long or that for a while. Its partner is where it was put.
/// What it knows then.
fn choices(random: &mut Random, machine: &Machine, partner: &Partner) -> Result<Partner, String> {
    let mut core = machine.core(false);
    let (mut idle, mut pair, mut plain) = (Idle::new(machine), Pair::default(), Plain::default());
    for cid in (0..machine.nr_cids()).filter(|&cid| cid != CID.0) {
        core.idle_enter(Cid(cid));
        idle.cids.insert(cid);
    }
    let elsewhere = machine.nr_cids() - 1;
    let mut prev = elsewhere;
    let v = core.vtime_at(Vtime::default(), Queue(0));
    let mut now_ns = 1_000_000_000;
    let (mut answers_ns, mut paused) = ([0; 2], 0);
    // Trials go on as they are after the 65,536th choice. Others at times ask somebody else.
    let (times, faithful) = match random.one_in(8) {
        true => (125_000, true),
        false => (10_000, false),
    };
    for time in 0..times {
        if time % 700 == 0 {
            answers_ns = [(); 2].map(|()| u64::from(random.between(10_000, 40_000)));
        }
        // Some answers come late, and some pauses are for something else.
        let late = random.one_in(40);
        let twice = random.one_in(20);
        paused += 1 + u32::from(twice);
        now_ns += 200_000 * u64::from(late || twice);
        (plain.began_ns, plain.vtime, plain.weight) = (now_ns, v.0, 100);
        plain.asked_ns.clear();
        core.turn_begin(CID, v, now_ns, 100);
        now_ns += 10_000;
        let task = 1 + u64::from(!faithful && time % 3_500 == 0);
        let name = NonZeroU64::new(task).expect("not 0");
        let around = idle.around(CID.0, prev, partner, task);
        let sure = core.pair_asks(CID, &mut pair, name, paused, now_ns);
        let apart = sure && core.pair_apart(CID, &mut pair, &partner.pair, Cid(prev));
        let expected = plain.asks(task, paused, now_ns);
        if (sure, apart) != (expected, expected && plain.apart(&around)) {
            return Err(format!("time {time}: sure {sure}, apart {apart}"));
        }
        let gives = match sure && !apart {
            true => core.pair_gives_way(CID, &mut pair, v, now_ns, 100, None),
            false => Gives::Not,
        };
        let slice_ns = machine.settings.slice_ns;
        if sure && !apart {
            let expected = plain.gives_way(&around, v.0, 100, now_ns, None, slice_ns);
            if gives != expected {
                return Err(format!("time {time}: gives way {gives}, not {expected}"));
            }
        }
        prev = match gives {
            Gives::Now | Gives::Behind => CID.0,
            Gives::Later if random.one_in(4) => CID.0,
            _ => elsewhere,
        };
        if gives == Gives::Now {
            plain.given += 1;
            plain.asked_ns.clear();
        } else {
            core.pair_sleeps(CID, &mut pair, now_ns + 1_000);
            plain.sleeps(now_ns + 1_000, slice_ns);
        }
        now_ns += answers_ns[usize::from(prev == CID.0)];
    }
    Ok(Partner {
        pair,
        knows: 1,
        sooner: plain.sooner,
    })
}

/// Which CPUs of a machine idle.
struct Idle<'a> {
    machine: &'a Machine,
    plain: crate::plain::Plain<'a>,
    cids: BTreeSet<u32>,
}

impl<'a> Idle<'a> {
    fn new(machine: &'a Machine) -> Self {
        Idle {
            machine,
            plain: crate::plain::Plain::new(machine),
            cids: BTreeSet::new(),
        }
    }

    /// A CPU goes idle, or is no longer.
    fn change(&mut self, core: &mut Core, random: &mut Random) {
        let cid = random.below(self.machine.nr_cids());
        match self.cids.insert(cid) {
            true => _ = core.idle_enter(Cid(cid)),
            false => {
                self.cids.remove(&cid);
                core.idle_exit(Cid(cid));
            }
        }
    }

    /// What surrounds one that asks a partner of this name.
    fn around(&self, this: u32, prev: u32, partner: &Partner, task: u64) -> Around {
        let free = |cid: u32| cid == this || self.cids.contains(&cid);
        let quiet = |cid: u32| self.machine.cores[cid as usize].clone().all(free);
        let rather = |cid, other| self.plain.rather_here(cid, other);
        Around {
            quiet: prev != this && quiet(prev),
            alone: quiet(this),
            here: prev == this,
            decides: partner.knows < task,
            told: partner.sooner,
            weaker: rather(this, prev),
            stronger: rather(prev, this),
            upward: (0..self.machine.nr_cids()).any(|cid| rather(cid, this)),
        }
    }
}

/// Where as many partners are left by one who has no choice otherwise.
fn apart(random: &mut Random, idle: &mut Idle<'_>, core: &mut Core) -> Result<(), String> {
    for step in 0..1000 {
        idle.change(core, random);
        let nr = idle.machine.nr_cids();
        let (this, prev) = (random.below(nr), random.below(nr));
        // Nobody has asked: 0 is not below 0.
        let partner = Partner::default();
        let expected = Plain::default().apart(&idle.around(this, prev, &partner, 0));
        if core.pair_apart(Cid(this), &mut Pair::default(), &partner.pair, Cid(prev)) != expected {
            return Err(format!("step {step}: apart is not {expected}"));
        }
    }
    Ok(())
}
