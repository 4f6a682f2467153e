// SPDX-License-Identifier: GPL-2.0-only
//! Operations, drawn at random, done on the core and on the plain model side by side.

use std::collections::BTreeSet;
use std::fmt::Debug;

use usher_core::{
    CidSet, Core, Decision, Demand, Event, Hints, PickError, Query, Queue, Reason, Request, Tiers,
    Utilisation, Vtime, Wake,
};
use usher_topo::{Cid, Cpu, Llc, Node, Shard, Tier};

use crate::machine::Machine;
use crate::plain::{Answer, Plain, Wanted};
use crate::random::Random;

/// An allowed set.
#[derive(Clone, Debug)]
pub enum Allowed {
    Any,
    /// Cids from the first to the last; past the machine's end, too.
    Ranges(Vec<(u32, u32)>),
    /// One in so many cids of the machine.
    Scattered {
        seed: u64,
        one_in: u32,
    },
}

/// One operation. Cids, LLCs and nodes are plain numbers here.
#[derive(Clone, Debug)]
pub enum Op {
    /// Every CPU reports that it is idle, so many in a thousand, or that it runs something.
    Load {
        seed: u64,
        permille: u32,
    },
    Enter(u32),
    Again(u32),
    Exit(u32),
    TestAndClear(u32),
    Place {
        wake: Wake,
        prev: u32,
        waker: u32,
        allowed: Allowed,
        tiers: u32,
        hints: u32,
        demand: Demand,
    },
    /// A task runs on the first.
    Misfit {
        cid: u32,
        by: u32,
        allowed: Allowed,
        demand: Demand,
    },
    MisfitCall(u32),
    /// A task runs on the first, at a tick.
    Crowd {
        cid: u32,
        by: u32,
        allowed: Allowed,
        hints: u32,
        /// Of its partner, if it gives way to one.
        demand: Demand,
        /// When the turns of its core began, in half slices.
        began: Vec<u32>,
    },
    /// A task ran on a CPU until then.
    Ran(u32, u64),
    TakeInstead {
        cid: u32,
        first: u64,
        v: u64,
        demand: Demand,
    },
    Look {
        from: u32,
        by: u32,
        allowed: Allowed,
        tiers: u32,
    },
    Rescue(u32),
    LookLate(u32, u32),
    LateLook(u32),
    SetQueued(u32, u64),
    /// ... with one that may not run everywhere.
    Fill(u32, bool),
    Taken(u32, u32),
    Deserted(u32),
    /// At a tick, when.
    Overdue(u32, u64),
    Retire(u32, u32),
    Walk(u32),
    /// By whom, on which CPU, and how many quarters of a slice its turn lasted.
    PutBack(u32, u32, u64),
    Turn(u32, u64, u64),
    CpuNode(u32),
    Pick {
        any: bool,
        node: u32,
        by: u32,
        core: bool,
        here: bool,
        allowed: Allowed,
        tiers: u32,
    },
    IdleCpus(u32),
    IdleCores(u32),
    /// A hinted task moves from where one lives, if one does, to an LLC or away.
    Settle(Option<u32>, Option<u32>),
}

/// Flags of hints that may stand together, three times out of four none.
fn draw_hints(random: &mut Random) -> u32 {
    random.pick(&[0, 0, 0, 1, 2, 4, 5, 6, 8, 9, 10, 0, 0, 0, 0, 0])
}

fn draw_allowed(random: &mut Random, machine: &Machine) -> Allowed {
    let nr = machine.nr_cids();
    let one = |cid: u32| (cid, cid);
    let some = |range: &std::ops::Range<u32>| (range.start, range.end.saturating_sub(1));
    match random.below(16) {
        0 => Allowed::Ranges(vec![one(random.below(nr))]),
        1 => Allowed::Ranges(vec![one(random.below(nr)), one(random.below(nr))]),
        2 => Allowed::Ranges(vec![some(
            &machine.llcs[random.below(machine.llcs.len() as u32) as usize],
        )]),
        3 => Allowed::Ranges(vec![some(
            &machine.nodes[random.below(machine.nodes.len() as u32) as usize],
        )]),
        4 => {
            let first = random.below(nr);
            Allowed::Ranges(vec![(first, random.between(first, nr - 1))])
        }
        5 => Allowed::Scattered {
            seed: random.next(),
            one_in: random.pick(&[1, 2, 10]),
        },
        6 if random.one_in(4) => Allowed::Ranges(vec![]),
        6 if nr < 4096 => Allowed::Ranges(vec![one(4095), one(random.below(nr))]),
        7 if nr < 4096 && random.one_in(4) => Allowed::Ranges(vec![(nr, 4095)]),
        _ => Allowed::Any,
    }
}

/// A bit per tier; 0: any.
fn draw_tiers(random: &mut Random) -> u32 {
    if random.one_in(8) {
        random.below(256)
    } else {
        0
    }
}

fn draw_demand(random: &mut Random) -> Demand {
    let mut clamp = |one_in| {
        if random.one_in(one_in) {
            random.below(1025) as u16
        } else {
            0
        }
    };
    let (clamp_min, clamp_max) = (clamp(8), clamp(8));
    let any = random.below(1025);
    Demand {
        util: random.pick(&[0, 1, 100, 300, 500, 820, 1024, any]) as u16,
        clamp_min,
        clamp_max,
        at_ns: draw_time(random),
    }
}

/// Times near each other, many of them nearer than those of calm CPUs, in one case out of eight any.
fn draw_time(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => random.next(),
        1..=4 => u64::from(random.between(270, 300)) << 20,
        _ => u64::from(random.between(1, 300)) << 20,
    }
}

/// When those who share cores are looked at, in half slices.
const LOOKS: u64 = 17;

/// When a turn began, in half slices: about as long ago as it takes to leave the node, or to leave the core, or not yet.
fn draw_turn(random: &mut Random) -> u32 {
    match random.below(3) {
        0 => random.between(12, 20),
        _ => random.below(3),
    }
}

fn draw_call(random: &mut Random, machine: &Machine, cid: u32) -> Op {
    let nr_llcs = machine.llcs.len() as u32;
    let (llc, queue) = (
        random.below(nr_llcs),
        random.below(machine.queues.len() as u32),
    );
    let beyond = u32::from(random.one_in(16));
    let node = random.below(machine.nodes.len() as u32 + beyond);
    match random.below(36) {
        0..=2 => Op::Look {
            from: random.below(machine.nr_cids()),
            by: cid,
            allowed: draw_allowed(random, machine),
            tiers: draw_tiers(random),
        },
        3..=5 => Op::Rescue(cid),
        6 | 7 => Op::LookLate(cid, queue),
        8 | 9 => Op::LateLook(cid),
        10 | 11 => Op::SetQueued(queue, u64::from(random.below(3))),
        12 => {
            let cpus = machine.queues[queue as usize].len() as u32;
            Op::SetQueued(queue, u64::from(random.below(9 * cpus + 1)))
        }
        13 | 14 => Op::Fill(queue, random.one_in(4)),
        15..=17 => Op::Retire(queue, cid),
        18 => Op::Walk(cid),
        19 => Op::Turn(
            cid,
            u64::from(1 + random.below(3)),
            u64::from(random.below(4)),
        ),
        20 => Op::CpuNode(random.below(machine.tables.nr_cpu_numbers + 2)),
        21..=25 => Op::Pick {
            any: random.one_in(3),
            node,
            by: cid,
            core: random.one_in(3),
            here: random.one_in(2),
            allowed: draw_allowed(random, machine),
            tiers: draw_tiers(random),
        },
        26 => Op::IdleCpus(node),
        27 => Op::IdleCores(node),
        28 => Op::TakeInstead {
            cid,
            first: 1 << 40,
            v: (1 << 40) + u64::from(random.below(6_000_000)),
            demand: draw_demand(random),
        },
        30 if random.one_in(4) => Op::Deserted(cid),
        30 | 31 => Op::Taken(cid, queue),
        32 | 33 => Op::Overdue(cid, (1 << 41) + u64::from(random.below(4)) * 600_000),
        29 => Op::PutBack(cid, random.below(machine.nr_cids()), random.below(9).into()),
        _ => Op::Settle(
            random.one_in(2).then(|| random.below(nr_llcs)),
            (!random.one_in(4)).then_some(llc),
        ),
    }
}

/// So many operations, at one load after the other, besides those that say who ran where when a load begins.
pub fn draw(random: &mut Random, machine: &Machine, nr: usize) -> Vec<Op> {
    let phase = (nr / 12).max(1);
    let mut ops = Vec::with_capacity(nr);
    let (mut next_load, mut besides) = (0, 0);
    while ops.len() < nr + besides {
        let cid = random.below(machine.nr_cids());
        if ops.len() >= next_load + besides {
            next_load += phase;
            ops.push(Op::Load {
                seed: random.next(),
                permille: random.pick(&[0, 10, 50, 200, 500, 900, 1000]),
            });
            // Else there is always a CPU somewhere that is vacant, so that nobody has to go by which one is calm.
            if random.one_in(2) {
                let some = machine.nr_cids().min(64);
                ops.extend(
                    (0..some).map(|cid| Op::Ran(cid, u64::from(random.between(170, 300)) << 20)),
                );
                besides += some as usize;
            }
            continue;
        }
        match random.below(100) {
            0..=39 => ops.push(Op::Place {
                wake: random.pick(&[Wake::Wake, Wake::Wake, Wake::Sync, Wake::Sync, Wake::Fork]),
                prev: random.below(machine.nr_cids()),
                waker: random.below(machine.nr_cids()),
                allowed: draw_allowed(random, machine),
                tiers: draw_tiers(random),
                hints: draw_hints(random),
                demand: draw_demand(random),
            }),
            72..=76 => ops.push(Op::Misfit {
                cid,
                by: random.below(machine.nr_cids()),
                allowed: draw_allowed(random, machine),
                demand: draw_demand(random),
            }),
            77 => ops.push(Op::MisfitCall(cid)),
            71 | 78 => ops.push(Op::Crowd {
                cid,
                by: random.below(machine.nr_cids()),
                allowed: draw_allowed(random, machine),
                hints: draw_hints(random),
                demand: draw_demand(random),
                began: (0..machine.smt).map(|_| draw_turn(random)).collect(),
            }),
            79 | 80 => ops.push(Op::Ran(cid, draw_time(random))),
            40..=53 => ops.extend([Op::Exit(cid), Op::Enter(cid)]),
            54..=59 => ops.push(Op::Enter(cid)),
            60..=63 => ops.push(Op::Exit(cid)),
            64..=68 => ops.push(Op::Again(cid)),
            69 | 70 => ops.push(Op::TestAndClear(cid)),
            _ => ops.push(draw_call(random, machine, cid)),
        }
    }
    ops
}

/// The core and the model of one machine.
pub struct Pair<'a> {
    machine: &'a Machine,
    core: Core,
    plain: Plain<'a>,
    /// How often each reason was given, by the answers.
    pub reasons: [u64; Reason::COUNT],
    /// How often each error was given.
    pub errors: [u64; 4],
}

type Checked = Result<(), String>;

fn same<T: PartialEq + Debug>(what: &str, core: T, plain: T) -> Checked {
    if core == plain {
        return Ok(());
    }
    Err(format!(
        "{what}: the core says {core:?}, the model {plain:?}"
    ))
}

fn cid_set(set: &BTreeSet<u32>) -> CidSet {
    set.iter().map(|&cid| Cid(cid)).collect()
}

impl<'a> Pair<'a> {
    pub fn new(machine: &'a Machine, traced: bool) -> Self {
        Self {
            machine,
            core: machine.core(traced),
            plain: Plain::new(machine),
            reasons: [0; Reason::COUNT],
            errors: [0; 4],
        }
    }

    fn wanted(&self, allowed: &Allowed, tiers: u32) -> Wanted {
        let allowed = match allowed {
            Allowed::Any => None,
            Allowed::Ranges(ranges) => Some(
                ranges
                    .iter()
                    .flat_map(|&(first, last)| first..=last)
                    .collect(),
            ),
            Allowed::Scattered { seed, one_in } => {
                let mut random = Random::new(*seed);
                Some(
                    (0..self.machine.nr_cids())
                        .filter(|_| random.one_in(*one_in))
                        .collect(),
                )
            }
        };
        Wanted {
            allowed,
            tiers: (tiers != 0).then(|| (0..8).filter(|tier| tiers >> tier & 1 != 0).collect()),
            ..Wanted::default()
        }
    }

    /// What the core answered must be among what the model accepts.
    fn accept(
        &mut self,
        reason: Option<Reason>,
        cid: Cid,
        claimed: bool,
        gave_up: bool,
        answers: &[Answer],
    ) -> Checked {
        let right = |answer: &&Answer| {
            reason.is_none_or(|reason| reason == answer.reason)
                && answer.claimed == claimed
                && answer.cids.contains(&cid.0)
                && (gave_up || !answer.gave_up)
        };
        if !answers.iter().any(|answer| right(&answer)) {
            return Err(format!(
                "the core says {cid} ({reason:?}, claimed {claimed}, bound reached {gave_up}), \
                 the model {answers:?}"
            ));
        }
        if claimed && !self.plain.idle.remove(&cid.0) {
            return Err(format!("{cid} was claimed and was not idle"));
        }
        Ok(())
    }

    /// An answer that is a CPU or nobody.
    fn accept_found(&mut self, found: Option<Cid>, gave_up: bool, answers: &[Answer]) -> Checked {
        match found {
            Some(cid) => self.accept(None, cid, true, gave_up, answers),
            None => same("nobody is found", true, answers.is_empty()),
        }
    }

    /// Runs a call and says whether a search in it stopped at its bound.
    fn bounded<T>(&mut self, by: u32, call: impl FnOnce(&mut Core) -> T) -> (T, bool) {
        let before = self.core.statistics_of(Cid(by))[Event::SearchBound];
        let result = call(&mut self.core);
        let after = self.core.statistics_of(Cid(by))[Event::SearchBound];
        (result, after > before)
    }

    /// Does one operation on both.
    pub fn step(&mut self, op: &Op) -> Checked {
        self.core.clear_accesses();
        match *op {
            Op::Load { seed, permille } => self.load(seed, permille),
            Op::Enter(cid) => same(
                "idle_enter",
                self.core.idle_enter(Cid(cid)),
                self.plain.idle_enter(cid),
            ),
            Op::Again(cid) => same(
                "claimed, idle_again",
                (self.core.claimed(Cid(cid)), self.core.idle_again(Cid(cid))),
                (self.plain.claimed(cid), self.plain.idle_again(cid)),
            ),
            Op::Exit(cid) => {
                self.core.idle_exit(Cid(cid));
                self.plain.idle_exit(cid);
                Ok(())
            }
            Op::TestAndClear(cid) => same(
                "test_and_clear",
                self.core.test_and_clear(Cid(cid)),
                self.plain.test_and_clear(cid),
            ),
            Op::Place {
                wake,
                prev,
                waker,
                ref allowed,
                tiers,
                hints,
                demand,
            } => {
                let wanted = self.wanted(allowed, tiers);
                let hints = Hints::from_bits(hints).expect("legal ones are drawn");
                let mut request = Request::wake(Cid(prev), Cid(waker));
                (request.wake, request.hints, request.demand) = (wake, hints, demand);
                self.place(request, &wanted)
            }
            Op::Look {
                from,
                by,
                ref allowed,
                tiers,
            } => {
                let wanted = self.wanted(allowed, tiers);
                let answers = self.plain.look(from, &wanted);
                let (found, gave_up) = self.query(&wanted, from, by, |core, q| core.look(q));
                self.accept_found(found, gave_up, &answers)
            }
            Op::Rescue(by) => {
                let answers = self.plain.rescue(by);
                let (found, gave_up) = self.bounded(by, |core| core.rescue(Cid(by)));
                self.accept_found(found, gave_up, &answers)
            }
            Op::LateLook(by) => {
                let answers = self.plain.late_look(by);
                let (found, gave_up) = self.bounded(by, |core| core.late_look(Cid(by)));
                self.accept_found(found, gave_up, &answers)
            }
            _ => self.step_queue(op),
        }
    }

    fn step_queue(&mut self, op: &Op) -> Checked {
        match *op {
            Op::Misfit {
                cid,
                by,
                ref allowed,
                demand,
            } => {
                let wanted = self.wanted(allowed, 0);
                self.misfit(cid, by, &wanted, demand)
            }
            Op::Ran(cid, at_ns) => {
                self.ran(cid, at_ns);
                Ok(())
            }
            Op::Crowd {
                cid,
                by,
                ref allowed,
                hints,
                demand,
                ref began,
            } => {
                let wanted = self.wanted(allowed, 0);
                let hints = Hints::from_bits(hints).expect("legal ones are drawn");
                self.crowd(cid, by, &wanted, hints, began)?;
                let light = Demand {
                    util: 1,
                    clamp_min: 0,
                    ..demand
                };
                self.beside(cid, by, &wanted, hints, light)?;
                self.beside(cid, by, &wanted, hints, demand)
            }
            Op::MisfitCall(cid) => same(
                "misfit_call",
                self.core.misfit_call(Cid(cid)).map(|weak| weak.0),
                self.plain.misfit_call(cid),
            ),
            Op::TakeInstead {
                cid,
                first,
                v,
                demand,
            } => same(
                "take_instead",
                self.core
                    .take_instead(Cid(cid), Vtime(first), Vtime(v), demand),
                self.plain.take_instead(cid, first, v, demand),
            ),
            Op::LookLate(by, queue) => {
                self.core.look_late(Cid(by), Queue(queue));
                self.plain.look_late(by, queue);
                Ok(())
            }
            Op::SetQueued(queue, tasks) => {
                self.core.set_queued(Queue(queue), tasks);
                self.plain.queued[queue as usize] = tasks;
                Ok(())
            }
            Op::Fill(queue, bound) => {
                self.core.queue_fill(Queue(queue), bound);
                self.plain.fill(queue, bound);
                Ok(())
            }
            Op::Taken(by, queue) => {
                self.core.queue_taken(Cid(by), Queue(queue));
                self.plain.taken(by, queue);
                Ok(())
            }
            Op::Deserted(cid) => {
                let answers = self.plain.deserted(cid);
                let (found, gave_up) = self.bounded(cid, |core| core.queue_deserted(Cid(cid)));
                self.accept_found(found, gave_up, &answers)
            }
            Op::Overdue(cid, now_ns) => {
                let answers = self.plain.overdue(cid, now_ns);
                let (found, gave_up) =
                    self.bounded(cid, |core| core.queue_overdue(Cid(cid), now_ns));
                self.accept_found(found, gave_up, &answers)
            }
            Op::Retire(queue, by) => same(
                "queue_retire",
                self.core.queue_retire(Queue(queue), Cid(by)),
                self.plain.queue_retire(queue),
            ),
            Op::PutBack(by, cid, quarters) => {
                let (at_ns, slice_ns) = (1 << 40, self.machine.settings.slice_ns);
                self.core.turn_begin(Cid(cid), Vtime(0), at_ns, 100);
                self.plain.turn(cid, at_ns);
                let now_ns = at_ns + quarters * slice_ns / 4;
                same(
                    "queue_again",
                    self.core.queue_again(Cid(by), Cid(cid), now_ns).0,
                    self.plain.queue_again(by, cid, quarters >= 4),
                )
            }
            Op::Walk(cid) => {
                let mut walk = self.core.walk(Cid(cid));
                let next = || self.core.walk_next(&mut walk).map(|queue| queue.0);
                let walked: Vec<u32> = std::iter::from_fn(next).collect();
                same("walk", walked, self.plain.walk(cid))?;
                let work = self.plain.work(cid);
                same("work_in_reach", self.core.work_in_reach(Cid(cid)), work)
            }
            Op::Turn(cid, own, shared) => same(
                "pinned_first",
                self.core
                    .pinned_first(Cid(cid), Vtime(own), Some(Vtime(shared))),
                self.plain.pinned_first(cid, own, shared),
            ),
            _ => self.step_node(op),
        }
    }

    fn step_node(&mut self, op: &Op) -> Checked {
        match *op {
            Op::CpuNode(cpu) => {
                let tables = &self.machine.tables;
                let cid = tables.cpu.iter().position(|&other| other == cpu);
                let plain = match (self.plain.refusal(0), cid) {
                    (Some(error), _) => Err(error),
                    (None, Some(cid)) => Ok(Node(tables.node[cid])),
                    (None, None) => Err(PickError::NoSuchNode),
                };
                same("cpu_node", self.core.cpu_node(Cpu(cpu)), plain)
            }
            Op::Pick {
                any,
                node,
                by,
                core,
                here,
                ref allowed,
                tiers,
            } => {
                let wanted = Wanted {
                    idle_core: core,
                    in_node: here,
                    ..self.wanted(allowed, tiers)
                };
                self.pick(any, node, by, &wanted)
            }
            Op::IdleCpus(node) => {
                let plain = self.plain.refusal(node);
                let plain = plain.map_or_else(|| Ok(cid_set(&self.plain.idle_cpus(node))), Err);
                same("idle_cpus", self.core.idle_cpus(Node(node)), plain)
            }
            Op::IdleCores(node) => {
                let plain = self.plain.refusal(node);
                let plain = plain.map_or_else(|| Ok(cid_set(&self.plain.idle_cores(node))), Err);
                same("idle_cores", self.core.idle_cores(Node(node)), plain)
            }
            Op::Settle(from, to) => {
                let from = from.filter(|&llc| self.plain.settled[llc as usize] > 0);
                self.core.settle(from.map(Llc), to.map(Llc));
                self.plain.settle(from, to);
                Ok(())
            }
            _ => unreachable!("every operation is done in one of the three functions"),
        }
    }

    fn load(&mut self, seed: u64, permille: u32) -> Checked {
        let mut random = Random::new(seed);
        for cid in 0..self.machine.nr_cids() {
            if random.below(1000) < permille {
                let core = self.core.idle_enter(Cid(cid));
                same("idle_enter", core, self.plain.idle_enter(cid))?;
            } else {
                self.core.idle_exit(Cid(cid));
                self.plain.idle_exit(cid);
            }
            if random.one_in(2) {
                self.ran(cid, draw_time(&mut random));
            }
        }
        Ok(())
    }

    fn ran(&mut self, cid: u32, at_ns: u64) {
        let mut util = Utilisation::default();
        self.core.util_ran(&mut util, Cid(cid), at_ns, 0);
        self.plain.ran.insert(cid, at_ns);
    }

    /// Runs a query of the model's kind on the core.
    fn query<T>(
        &mut self,
        wanted: &Wanted,
        from: u32,
        by: u32,
        call: impl FnOnce(&mut Core, &Query) -> T,
    ) -> (T, bool) {
        let allowed = wanted.allowed.as_ref().map(cid_set);
        let query = Query {
            allowed: allowed.as_ref(),
            tiers: tiers(wanted),
            idle_core: wanted.idle_core,
            in_node: wanted.in_node,
            here: false,
            from: Cid(from),
            by: Cid(by),
        };
        self.bounded(by, |core| call(core, &query))
    }

    fn misfit(&mut self, cid: u32, by: u32, wanted: &Wanted, demand: Demand) -> Checked {
        let answers = self.plain.misfit(cid, wanted, demand);
        let allowed = wanted.allowed.as_ref().map(cid_set);
        let request = Request {
            allowed: allowed.as_ref(),
            demand,
            ..Request::wake(Cid(cid), Cid(by))
        };
        let (found, gave_up) = self.bounded(by, |core| core.misfit(&request));
        self.reasons[Reason::Misfit.index()] += u64::from(found.is_some());
        same("a bound was met", gave_up, false)?;
        self.accept_found(found, false, &answers)
    }

    fn crowd(
        &mut self,
        cid: u32,
        by: u32,
        wanted: &Wanted,
        hints: Hints,
        began: &[u32],
    ) -> Checked {
        let half = self.machine.settings.slice_ns / 2;
        let mates = self.machine.cores[cid as usize].clone();
        for (mate, &began) in mates.zip(began) {
            let at_ns = (1 << 40) + u64::from(began) * half;
            self.core.turn_begin(Cid(mate), Vtime(0), at_ns, 100);
            self.plain.turn(mate, at_ns);
        }
        // Some begin later than now.
        let now_ns = (1 << 40) + LOOKS * half;
        let crowded = self.core.crowded(Cid(cid), now_ns);
        same("crowded", crowded, self.plain.crowded(cid, now_ns))?;
        if self.machine.smt == 1 {
            return Ok(());
        }
        let answers = self.plain.uncrowd(cid, wanted, hints, now_ns);
        let allowed = wanted.allowed.as_ref().map(cid_set);
        let request = Request {
            allowed: allowed.as_ref(),
            hints,
            ..Request::wake(Cid(cid), Cid(by))
        };
        let (found, gave_up) = self.bounded(by, |core| core.uncrowd(&request, now_ns));
        self.reasons[Reason::Crowded.index()] += u64::from(found.is_some());
        same("a bound was met", gave_up, false)?;
        self.accept_found(found, false, &answers)
    }

    /// Where the partner runs of one that gives way to it later.
    fn beside(
        &mut self,
        cid: u32,
        by: u32,
        wanted: &Wanted,
        hints: Hints,
        demand: Demand,
    ) -> Checked {
        let answers = self.plain.beside(by, wanted, hints, demand);
        let allowed = wanted.allowed.as_ref().map(cid_set);
        let request = Request {
            allowed: allowed.as_ref(),
            hints,
            demand,
            ..Request::wake(Cid(cid), Cid(by))
        };
        let (beside, gave_up) = self.bounded(by, |core| core.pair_beside(&request));
        self.reasons[beside.reason.index()] += 1;
        same("a bound was met", gave_up, false)?;
        same("poke", beside.poke, self.plain.poke.contains(&by))?;
        let place = |cid: Cid| {
            let tables = &self.machine.tables;
            (tables.llc[cid.0 as usize], tables.node[cid.0 as usize])
        };
        let ((llc, node), (own_llc, own_node)) = (place(beside.cid), place(Cid(by)));
        let reason = match beside.claimed {
            false => Reason::Partner,
            true if llc == own_llc => Reason::LlcCore,
            true if node == own_node => Reason::NodeCore,
            true => Reason::RemoteCore,
        };
        same("reason", beside.reason, reason)?;
        if !beside.claimed {
            same("behind its waker", beside.cid, Cid(by))?;
        }
        self.accept_found(beside.claimed.then_some(beside.cid), false, &answers)
    }

    fn place(&mut self, request: Request, wanted: &Wanted) -> Checked {
        let (prev, waker) = (request.prev.0, request.waker.0);
        let (hints, demand) = (request.hints, request.demand);
        let answers = self
            .plain
            .place(request.wake, prev, waker, wanted, hints, demand);
        let allowed = wanted.allowed.as_ref().map(cid_set);
        let request = Request {
            allowed: allowed.as_ref(),
            tiers: tiers(wanted),
            ..request
        };
        let (decision, gave_up) = self.bounded(waker, |core| core.place(&request));
        let Decision {
            cid,
            reason,
            claimed,
            poke,
        } = decision;
        self.reasons[reason.index()] += 1;
        self.accept(Some(reason), cid, claimed, gave_up, &answers)?;
        same("poke", poke, self.plain.poke.contains(&waker))
    }

    fn pick(&mut self, any: bool, node: u32, by: u32, wanted: &Wanted) -> Checked {
        let plain = self.plain.pick_idle(node, wanted);
        let (core, gave_up) = self.query(wanted, by, by, |core, query| {
            if any {
                core.pick_any(Node(node), query)
            } else {
                core.pick_idle(Node(node), query)
            }
        });
        if let Err(error) = core {
            self.errors[error as usize] += 1;
        }
        match (core, plain) {
            (Ok(cid), Ok(answers)) => self.accept(None, cid, true, gave_up, &answers),
            (Ok(cid), Err(PickError::NoneIdle)) if any => {
                let set = self.plain.any(node, wanted).unwrap_or_default();
                same(
                    "pick_any takes an allowed CPU of the nearest node",
                    set.contains(&cid.0),
                    true,
                )
            }
            (core, plain) => same("pick", core.err(), plain.err()),
        }
    }

    /// The whole idle map, and what must be true of the summaries at any time.
    pub fn compare(&self) -> Checked {
        for (shard, cids) in (0..).zip(&self.machine.shards) {
            for cid in cids.clone() {
                let plain = self.plain.idle.contains(&cid);
                if self.core.is_idle(Cid(cid)) != plain {
                    return Err(format!(
                        "cid {cid}: only for one of the two is it idle: {plain}"
                    ));
                }
                let waits = self.plain.misfits.contains(&cid);
                if self.core.misfit_waits(Cid(cid)) != waits {
                    return Err(format!(
                        "cid {cid}: only for one of the two its task waits for a stronger CPU: {waits}"
                    ));
                }
                if plain && !self.core.in_summary(Shard(shard)) {
                    return Err(format!(
                        "cid {cid} is idle and its shard not in the summary"
                    ));
                }
            }
        }
        for queue in 0..self.machine.queues.len() as u32 {
            let plain = self.plain.announced.contains(&queue);
            same(
                &format!("backlog of queue {queue}"),
                self.core.in_backlog(Queue(queue)),
                plain,
            )?;
        }
        Ok(())
    }

    /// The core's own counters say what its answers said.
    pub fn compare_counts(&self) -> Checked {
        let counted = self.core.statistics();
        for &reason in Reason::ALL {
            same(
                reason.as_str(),
                counted[reason],
                self.reasons[reason.index()],
            )?;
        }
        Ok(())
    }
}

fn tiers(wanted: &Wanted) -> Tiers {
    let mut tiers = wanted
        .tiers
        .iter()
        .flatten()
        .map(|&tier| Tiers::only(Tier(tier)));
    let first = tiers.next().unwrap_or(Tiers::ANY);
    tiers.fold(first, Tiers::or)
}
