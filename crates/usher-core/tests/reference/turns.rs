// SPDX-License-Identifier: GPL-2.0-only
//! Whose turn it is, beside the rules written down plainly: clocks, what tasks are charged and keep, who ends a turn, who is handed a CPU.
//! Time does not pass for the clocks here, so none is pushed on; `tests/vtime.rs` has that.

use std::fmt::Debug;
use std::num::NonZeroU64;

use usher_core::{CidSet, Core, Query, Queue, Vtime, DEFAULT_SLICE_NS};
use usher_topo::Cid;

use crate::machine::Machine;
use crate::random::Random;

const SLICE: i64 = DEFAULT_SLICE_NS as i64;
/// By so many slices who runs may get ahead of who waits, and who slept may be behind.
const LEAD: i64 = 2;
/// How early a task joins is counted in eighths of a slice.
const EARLY: i64 = SLICE / 8;
/// A virtual time counts in such steps, since its low bits name the queue.
const STEP: i64 = 4096;

/// What of a virtual time names the queue.
fn name(v: i64) -> usize {
    (v & (STEP - 1)) as usize
}

/// What so much time counts for a task of this weight.
fn counts(ran: i64, weight: i64) -> i64 {
    ran * 100 / weight
}

/// So many slices, as allowed to a task of this weight.
fn allowed(slices: i64, weight: i64) -> i64 {
    counts(slices * SLICE, weight.max(100))
}

/// A CPU, and the turn there.
#[derive(Clone, Copy, Default)]
struct At {
    /// From where its task is charged, since when it runs, and its weight; 0: nobody ran.
    v: i64,
    began: i64,
    weight: i64,
    /// When a turn was last cut here.
    cut: i64,
    handed: Option<NonZeroU64>,
}

struct Plain<'a> {
    machine: &'a Machine,
    /// Per queue: its clock, the last who slept and waits, and how many wait.
    clock: Vec<i64>,
    slept: Vec<i64>,
    queued: Vec<i64>,
    cpus: Vec<At>,
    /// Per CPU: what was too short to be charged.
    rest: Vec<i64>,
}

impl Plain<'_> {
    fn queue(&self, cid: u32) -> usize {
        self.machine.tables.queue[cid as usize] as usize
    }

    fn width(&self, queue: usize) -> i64 {
        self.machine.queues[queue].len() as i64
    }

    /// So far from the clock of a queue, within 16 slices behind it and 64 ahead.
    fn away(&self, queue: usize, lag: i64) -> i64 {
        let v = self.clock[queue] + lag.clamp(-16 * SLICE, 64 * SLICE);
        v - v.rem_euclid(STEP) + queue as i64
    }

    /// As far from the clock of this queue as it was from that of its own.
    fn at(&self, v: i64, queue: usize) -> i64 {
        let known = v >= STEP && name(v) < self.clock.len();
        let lag = if known { v - self.clock[name(v)] } else { 0 };
        self.away(queue, lag)
    }

    /// What so many slices are worth to who slept: all while no more than four wait for each CPU, nothing from sixteen on.
    fn earned(&self, slices: i64, queue: usize) -> i64 {
        let (most, width) = (slices * SLICE, self.width(queue));
        match self.queued[queue] {
            few if few <= 4 * width => most,
            many => most * (16 * width - many).max(0) / (12 * width),
        }
    }

    fn enter(&self, v: i64, queue: usize) -> i64 {
        if v == 0 {
            return self.away(queue, SLICE);
        }
        let floor = self.clock[queue] - self.earned(LEAD, queue);
        match self.at(v, queue) {
            early if early < floor => floor - floor.rem_euclid(STEP) + queue as i64,
            v => v,
        }
    }

    fn early(&self, v: i64, queue: usize) -> i64 {
        if v - self.clock[queue] > LEAD * SLICE {
            return 0;
        }
        self.earned(1 + LEAD, queue) * 8 / SLICE
    }

    fn before(v: i64, early: i64) -> i64 {
        v - early * (EARLY - EARLY % STEP)
    }

    /// What is less than a step is left to who stops next on the same CPU.
    fn charge(&mut self, v: i64, cid: u32, ran: i64, weight: i64) -> i64 {
        let queue = self.queue(cid);
        let ran = self.rest[cid as usize] + counts(ran, weight);
        self.rest[cid as usize] = ran % STEP;
        let v = self.at(v, queue) + ran / STEP * STEP;
        self.away(queue, v - self.clock[queue])
    }

    /// Of what it is behind a task keeps 31 of 32 parts when it goes to sleep, and two slices at most.
    fn sleep(&self, v: i64, queue: usize) -> i64 {
        let behind = self.clock[queue] - v;
        if behind <= 0 {
            return v;
        }
        let kept = (behind - behind / 32).min(LEAD * SLICE);
        self.away(queue, -(kept / STEP * STEP))
    }

    fn due(&self, v: i64, first: i64, queue: usize, weight: i64, yields: bool) -> bool {
        let leads = !yields && self.slept[queue] < first;
        self.at(v, queue) - first >= if leads { allowed(LEAD, weight) } else { 0 }
    }

    /// Whether the turn on a CPU ends for a task that is charged from `v`, has this weight and joined so early.
    fn ends(&self, cid: u32, (v, weight, early): (i64, i64, i64), now: i64) -> bool {
        let turn = self.cpus[cid as usize];
        let ran = now - turn.began;
        if turn.weight == 0 || weight * 10 <= turn.weight * 9 {
            return false;
        }
        if ran < SLICE / 32 || now - turn.cut < SLICE / 32 {
            return false;
        }
        let early = if ran < SLICE / 2 { 0 } else { early };
        let at_its_end = self.at(turn.v, self.queue(cid)) + counts(ran, turn.weight);
        at_its_end - Self::before(v, early) >= allowed(LEAD, turn.weight)
    }

    /// Where a turn ends: on the CPU itself, or on the next one of its queue where as many wait as that has CPUs.
    fn cut(&self, query: &Query, wants: (i64, i64, i64), now: i64) -> Option<Cid> {
        let (Cid(from), queue) = (query.from, self.queue(query.from.0));
        if self.ends(from, wants, now) {
            return Some(query.from);
        }
        let cids = &self.machine.queues[queue];
        let next = if from + 1 < cids.end {
            from + 1
        } else {
            cids.start
        };
        let may = query.allowed.is_none_or(|set| set.contains(Cid(next)));
        let looks = !query.here && self.queued[queue] >= self.width(queue) && may;
        (looks && self.ends(next, wants, now)).then_some(Cid(next))
    }

    fn takes(v: i64, first: i64, weight: i64, promised: bool) -> bool {
        v - first <= allowed(if promised { 4 } else { 1 }, weight)
    }
}

fn same<T: PartialEq + Debug>(what: &str, core: T, plain: T) -> Result<(), String> {
    if core == plain {
        return Ok(());
    }
    Err(format!("{what}: {core:?} instead of {plain:?}"))
}

/// Turns of a few tasks on the queues of one machine.
pub fn check(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let cpus = random.between(1, 40);
    let machine = Machine::draw(&mut random, cpus, usher_core::Granularity::Shard);
    let mut core = machine.core(false);
    let nr_queues = machine.queues.len();
    let mut plain = Plain {
        clock: (0..nr_queues)
            .map(|q| core.clock(Queue(q as u32)).0 as i64)
            .collect(),
        slept: vec![0; nr_queues],
        queued: vec![0; nr_queues],
        cpus: vec![At::default(); machine.nr_cids() as usize],
        rest: vec![0; machine.nr_cids() as usize],
        machine: &machine,
    };
    let mut tasks = [0; 8];
    let mut now = 1_000_000_000;
    for step in 0..1000 {
        let most = random.pick(&[SLICE, SLICE / 4, SLICE / 40]);
        now += i64::from(random.below(most as u32));
        step_once(&mut random, &mut core, &mut plain, &mut tasks, now)
            .map_err(|wrong| format!("step {step}: {wrong}\n{}", machine.describe()))?;
    }
    Ok(())
}

fn step_once(
    random: &mut Random,
    core: &mut Core,
    plain: &mut Plain,
    tasks: &mut [i64; 8],
    now: i64,
) -> Result<(), String> {
    let vtime = |v: i64| Vtime(v as u64);
    let cid = random.below(plain.machine.nr_cids());
    let queue = plain.queue(cid);
    let (index, other) = (random.below(8) as usize, random.below(8) as usize);
    let (v, id) = (tasks[index], Queue(queue as u32));
    let weight = random.pick(&[100, 100, 100, 90, 91, 1, 15, 300, 8876]);
    let first = Plain::before(
        plain.at(tasks[other], queue),
        i64::from(random.pick(&[0, 0, 8, 24])),
    );
    match random.below(9) {
        0 => {
            plain.queued[queue] = i64::from(random.below(20 * plain.width(queue) as u32));
            core.set_queued(id, plain.queued[queue] as u64);
        }
        // It joins a queue, mostly from sleep.
        1 => {
            let due = plain.enter(v, queue);
            same("enters", core.vtime_enter(vtime(v), id), vtime(due))?;
            let early = plain.early(due, queue);
            same("early", i64::from(core.vtime_early(vtime(due), id)), early)?;
            let before = Plain::before(due, early);
            let found = core.vtime_before(vtime(due), early as u32);
            same("before", found, vtime(before))?;
            let found = core.vtime_after(found, early as u32);
            same("after", found, vtime(due))?;
            if random.one_in(3) {
                core.vtime_slept(vtime(before), id);
                if before - plain.clock[queue] <= LEAD * SLICE {
                    plain.slept[queue] = plain.slept[queue].max(before);
                }
            }
            tasks[index] = due;
        }
        // It ran, and perhaps sleeps now.
        2 | 3 => {
            let most = random.pick(&[SLICE / 8, SLICE, 8 * SLICE]);
            let ran = i64::from(random.below(most as u32));
            let charged = plain.charge(v, cid, ran, weight);
            let found = core.vtime_charge(vtime(v), Cid(cid), ran as u64, weight as u32);
            same("is charged", found, vtime(charged))?;
            let kept = plain.sleep(charged, queue);
            same("keeps", core.vtime_sleep(found, id), vtime(kept))?;
            tasks[index] = if random.one_in(2) { kept } else { charged };
        }
        4 => {
            let behind = plain.at(v, queue) - plain.clock[queue] > SLICE / 8;
            same("behind", core.clock_behind(vtime(v), id, 0), behind)?;
            let bounds = random.one_in(3);
            core.clock_advance(vtime(v), id, bounds.then_some(vtime(first)), 0);
            let mut on = plain.at(v, queue) - plain.clock[queue];
            if bounds {
                on = on.min(first - plain.clock[queue] + LEAD * SLICE);
            }
            if on > 0 {
                plain.clock[queue] = plain.away(queue, on);
            }
            same("clock", core.clock(id), vtime(plain.clock[queue]))?;
        }
        5 => {
            let yields = random.one_in(3);
            let due = plain.due(v, first, queue, weight, yields);
            let found = core.vtime_due(vtime(v), vtime(first), id, weight as u32, yields);
            same("is due", found, due)?;
        }
        6 => {
            core.turn_begin(Cid(cid), vtime(v), now as u64, weight as u32);
            let at = &mut plain.cpus[cid as usize];
            (at.v, at.began, at.weight) = (v, now, weight);
        }
        7 => {
            let all_but_next: CidSet = (0..plain.machine.nr_cids())
                .filter(|&other| other != cid + 1)
                .map(Cid)
                .collect();
            let query = Query {
                allowed: random.one_in(4).then_some(&all_but_next),
                here: random.one_in(4),
                ..Query::any(Cid(cid), Cid(0))
            };
            let joins = plain.at(v, queue);
            let early = i64::from(random.pick(&[0, 3, 24]));
            let cut = plain.cut(&query, (joins, weight, early), now);
            let found = core.turn_cut(
                &query,
                vtime(joins),
                early as u32,
                now as u64,
                weight as u32,
            );
            same("cuts", found, cut)?;
            if let Some(Cid(at)) = cut {
                plain.cpus[at as usize].cut = now;
            }
        }
        _ => {
            let task = NonZeroU64::new(1 + index as u64).expect("not 0");
            let to = random.below(plain.machine.nr_cids());
            let hands = plain.queue(to) == queue;
            same("hands", core.hand(Cid(to), id, task), hands)?;
            if hands {
                plain.cpus[to as usize].handed = Some(task);
            }
            let promised = plain.cpus[cid as usize].handed == Some(task);
            same("promised", core.promised(Cid(cid), task), promised)?;
            if random.one_in(2) {
                let handed = plain.cpus[cid as usize].handed.take();
                same("handed", core.handed(Cid(cid)), handed)?;
            }
            let (joins, promised) = (plain.at(v, queue), random.one_in(2));
            let takes = Plain::takes(joins, first, weight, promised);
            let found = core.take_handed(
                Cid(cid),
                vtime(first),
                vtime(joins),
                weight as u32,
                promised,
            );
            same("takes", found, takes)?;
        }
    }
    Ok(())
}
