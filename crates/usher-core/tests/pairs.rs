// SPDX-License-Identifier: GPL-2.0-only
//! Goal: a task gives way to its partner only if it always wakes that one and then sleeps, and not at the cost of who waits.
//! Method: turns that end in every way are told to the core one by one, as a host does.

use std::num::NonZeroU64;

use usher_core::{
    Core, Gives, Pair, Queue, Reason, Request, Settings, Tables, TierOrder, Vtime, DEFAULT_SLICE_NS,
};
use usher_topo::{machine, shape, Cid, Topology};

const CID: Cid = Cid(1);
const SLICE: u64 = DEFAULT_SLICE_NS;
/// Turns after which a task is sure.
const SURE: u32 = 4;
/// Of so many times that it is sure it gives way all but once.
const WATCH: u32 = 16;
/// How long a hypervisor may take to send an interrupt.
const SENT: u64 = SLICE / 128;
const US: u64 = 1000;

fn name(n: u64) -> NonZeroU64 {
    NonZeroU64::new(n).expect("not 0")
}

/// What a turn brings that has begun.
type Spoils = fn(&mut Asker);

/// One task that runs on a CPU, begins turns there and wakes others.
struct Asker {
    core: Core,
    pair: Pair,
    /// How often it was interrupted or slept.
    paused: u32,
    now_ns: u64,
}

impl Asker {
    fn new() -> Asker {
        let topology = Topology::build(&shape::parse("1n1l4c1t").expect("a shape"), 64);
        Asker {
            core: Core::of(&topology.expect("legal")).expect("legal"),
            pair: Pair::default(),
            paused: 0,
            now_ns: 1_000_000_000,
        }
    }

    fn begins(&mut self) {
        let v = self.core.vtime_at(Vtime::default(), Queue(0));
        self.core.turn_begin(CID, v, self.now_ns, 100);
        self.paused += 1;
    }

    fn asks(&mut self, after_ns: u64, task: u64) -> bool {
        self.now_ns += after_ns;
        let (paused, now_ns) = (self.paused, self.now_ns);
        (self.core).pair_asks(CID, &mut self.pair, name(task), paused, now_ns)
    }

    fn sleeps(&mut self, after_ns: u64) {
        self.now_ns += after_ns;
        if self.core.pair_asked(CID) {
            self.core.pair_sleeps(CID, &mut self.pair, self.now_ns);
        }
        self.now_ns += 50 * US;
    }

    /// A turn in which it wakes task 7, as one that waits for the answer does. Whether it was sure to sleep.
    fn turn(&mut self) -> bool {
        self.begins();
        let sure = self.asks(10 * US, 7);
        self.sleeps(5 * US);
        sure
    }

    /// Whether its partner answers: the same as being sure of that one.
    fn sure(&self) -> bool {
        self.pair.answers(name(7))
    }

    /// Four turns, so that it is sure.
    fn settled() -> Asker {
        let mut asker = Asker::new();
        for _ in 0..SURE {
            assert!(!asker.sure());
            assert!(!asker.turn());
        }
        assert!(asker.sure() && !asker.pair.answers(name(8)));
        asker
    }

    /// Whether it gives way in a turn in which it has run for so long, to a partner of this weight that would join the queue
    /// `partner_ns` behind the clock, while somebody waits there, `first_ns` behind it.
    fn gives_way(
        &mut self,
        ran_ns: u64,
        weight: u32,
        partner_ns: u64,
        first_ns: Option<u64>,
    ) -> Gives {
        self.begins();
        let sure = self.asks(ran_ns, 7);
        let clock = self.core.vtime_at(Vtime::default(), Queue(0));
        let behind = |ns: u64| Vtime(clock.0 - ns);
        let (now_ns, first) = (self.now_ns, first_ns.map(behind));
        let before = self.core.statistics()[Reason::Partner];
        assert!(sure);
        let gives = (self.core).pair_gives_way(
            CID,
            &mut self.pair,
            behind(partner_ns),
            now_ns,
            weight,
            first,
        );
        let counted = self.core.statistics()[Reason::Partner] - before;
        assert_eq!(counted, u64::from(gives == Gives::Now));
        gives
    }
}

#[test]
fn four_turns_make_sure() {
    let mut asker = Asker::settled();
    for _ in 0..100 {
        assert!(asker.turn());
    }
}

#[test]
fn what_is_no_question_begins_anew() {
    let spoilt: [(&str, Spoils); 5] = [
        ("another partner", |asker| {
            assert!(!asker.asks(10 * US, 8));
            asker.sleeps(5 * US);
        }),
        ("two in one turn", |asker| {
            asker.asks(10 * US, 7);
            asker.asks(10 * US, 7);
            asker.sleeps(5 * US);
        }),
        ("a long turn", |asker| {
            asker.asks(SLICE / 8 - 5 * US, 7);
            asker.sleeps(6 * US);
        }),
        ("a question at the beginning", |asker| {
            asker.asks(10 * US, 7);
            asker.sleeps(21 * US + SENT);
        }),
        ("another one in the next turn", |asker| {
            asker.asks(10 * US, 7);
            asker.sleeps(5 * US);
            asker.begins();
            asker.asks(10 * US, 8);
            asker.sleeps(5 * US);
        }),
    ];
    for (what, spoil) in spoilt {
        let mut asker = Asker::settled();
        asker.begins();
        spoil(&mut asker);
        assert!(!asker.sure(), "{what}");
        for _ in 0..SURE {
            assert!(!asker.turn(), "{what}");
        }
        assert!(asker.turn(), "{what}");
    }
    // The longest turn that counts, and the longest time after the question.
    let mut asker = Asker::settled();
    asker.begins();
    asker.asks(SLICE / 8 - 5 * US, 7);
    asker.sleeps(5 * US);
    assert!(asker.sure());
    asker.begins();
    asker.asks(10 * US, 7);
    asker.sleeps(20 * US + SENT);
    assert!(asker.sure());
}

#[test]
fn the_wakeup_is_no_part_of_the_turn() {
    // Its callbacks take 30 us, queueing whom it wakes as long again at most, and what is left is 20 us and an interrupt at most.
    for (after_ns, sure) in [(50 * US + SENT, true), (51 * US + SENT, false)] {
        let mut asker = Asker::settled();
        asker.begins();
        asker.asks(10 * US, 7);
        asker.now_ns += 30 * US;
        asker.core.pair_woke(CID, asker.now_ns);
        asker.sleeps(after_ns);
        assert_eq!(asker.sure(), sure, "{after_ns} ns after its callbacks");
    }
    // One before the question says nothing of it.
    let mut asker = Asker::settled();
    asker.begins();
    asker.core.pair_woke(CID, asker.now_ns + SLICE);
    asker.asks(10 * US, 7);
    asker.sleeps(21 * US + SENT);
    assert!(!asker.sure());
}

#[test]
fn turns_without_a_question_or_interrupted_say_nothing() {
    let mut asker = Asker::settled();
    asker.begins();
    asker.sleeps(SLICE);
    assert!(asker.sure());
    asker.begins();
    asker.asks(10 * US, 7);
    asker.begins(); // as after the end of a slice
    asker.sleeps(SLICE);
    assert!(asker.sure());
}

#[test]
fn now_and_then_it_is_watched() {
    let mut asker = Asker::settled();
    for _ in 0..3 {
        for _ in 1..WATCH {
            assert_eq!(asker.gives_way(10 * US, 100, 0, None), Gives::Now);
            assert!(!asker.core.pair_asked(CID), "it does not sleep");
        }
        assert_eq!(asker.gives_way(10 * US, 100, 0, None), Gives::Later);
        asker.sleeps(5 * US);
    }
    // It has changed its ways since.
    for _ in 1..WATCH {
        assert_eq!(asker.gives_way(10 * US, 100, 0, None), Gives::Now);
    }
    assert_eq!(asker.gives_way(10 * US, 100, 0, None), Gives::Later);
    asker.sleeps(100 * US);
    assert!(!asker.sure() && !asker.turn());
}

#[test]
fn nobody_gives_way_to_a_lighter_one() {
    let gives = |weight| Asker::settled().gives_way(10 * US, weight, 0, None);
    assert_eq!(gives(90), Gives::Not);
    assert_eq!(gives(91), Gives::Now, "less than a tenth lighter");
    assert_eq!(gives(1000), Gives::Now);
    // Nobody has begun to run on a CPU that has just come.
    let mut asker = Asker::new();
    let v = asker.core.vtime_at(Vtime::default(), Queue(0));
    let gives = (asker.core).pair_gives_way(CID, &mut asker.pair, v, 0, 100, None);
    assert_eq!(gives, Gives::Not);
}

#[test]
fn who_waits_is_not_passed_over_for_long() {
    let step = 4096; // of virtual time, which names its LLC in the low bits
    let gives = |first_ns| Asker::settled().gives_way(10 * US, 100, SLICE, Some(first_ns));
    // The asker, at the clock, has run for 10 us.
    assert_eq!(gives(SLICE - 10 * US), Gives::Now);
    assert_eq!(gives(SLICE - 10 * US + step), Gives::Not);
    // The partner, here ahead of the clock, where the first waits.
    let mut asker = Asker::settled();
    asker.begins();
    assert!(asker.asks(10 * US, 7));
    let clock = asker.core.vtime_at(Vtime::default(), Queue(0)).0;
    let (first, now_ns) = (Vtime(clock), asker.now_ns);
    let mut gives = |ahead: u64| {
        let v = Vtime(clock + ahead);
        (asker.core).pair_gives_way(CID, &mut asker.pair, v, now_ns, 100, Some(first))
    };
    assert_eq!(gives(SLICE), Gives::Now);
    assert_eq!(gives(SLICE + step), Gives::Not);
}

#[test]
fn a_partner_with_a_core_of_its_own_is_left_there() {
    // Two threads per core, cids 0 and 1 the first of them.
    let apart = |idle: &[u32], this: u32, prev: u32| {
        let topology = Topology::build(&shape::parse("1n2l2c2t").expect("a shape"), 64);
        let mut core = Core::of(&topology.expect("legal")).expect("legal");
        for &cid in idle {
            core.idle_enter(Cid(cid));
        }
        core.pair_apart(Cid(this), &mut Pair::default(), &Pair::default(), Cid(prev))
    };
    assert!(apart(&[2, 3], 0, 2), "its whole core");
    assert!(!apart(&[2], 0, 2), "beside another one");
    assert!(!apart(&[3], 0, 2), "in use");
    assert!(
        apart(&[1], 0, 1),
        "beside its waker, which is about to sleep"
    );
    assert!(!apart(&[], 0, 1), "in use");
    assert!(!apart(&[0, 1], 0, 0), "where the waker runs");
    assert!(apart(&[4, 5], 0, 4), "in another LLC");
}

#[test]
fn a_partner_on_a_weaker_core_takes_turns_on_the_stronger() {
    // Eight strong cores of two threads, cids 0 to 15, and sixteen weak ones.
    let apart = |tier_order, idle: &[u32], this: u32, prev: u32| {
        let raw = machine::load("hybrid-8p16e").and_then(|file| file.to_raw());
        let topology = Topology::build(&raw.expect("built in"), 64).expect("legal");
        let settings = Settings {
            capacity: true,
            tier_order,
            ..Settings::default()
        };
        let mut core = Core::new(&Tables::from(&topology), &settings).expect("legal");
        for &cid in idle {
            core.idle_enter(Cid(cid));
        }
        core.pair_apart(Cid(this), &mut Pair::default(), &Pair::default(), Cid(prev))
    };
    let strong = TierOrder::StrongestFirst;
    assert!(!apart(strong, &[1, 20], 0, 20), "by turns");
    assert!(apart(strong, &[20], 0, 20), "the strong core is shared");
    assert!(
        apart(strong, &[0, 1], 20, 0),
        "the stronger one is the partner's"
    );
    assert!(apart(strong, &[1, 2, 3], 0, 2), "both are strong");
    assert!(apart(strong, &[21], 20, 21), "both are weak");
    let weak = TierOrder::WeakestFirst;
    assert!(apart(weak, &[1, 20], 0, 20), "weak ones come first");
}

/// Two tasks that wake each other in turn, on an idle machine: each works for 5 us, asks the other and sleeps.
struct Two {
    core: Core,
    pairs: [Pair; 2],
    cpus: [Cid; 2],
    paused: [u32; 2],
    now_ns: u64,
    /// Who runs.
    runs: usize,
    /// The other one has given way to it.
    waits: bool,
    /// How long it takes until a task that is woken on an idle CPU runs there.
    wake_ns: u64,
    /// The same on a CPU that switches to it.
    switch_ns: u64,
    /// How long the first task sleeps after each answer before it asks again, not telling anybody.
    thinks_ns: u64,
}

/// How a question was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Apart,
    Beside,
}

impl Two {
    fn new(wake_ns: u64, switch_ns: u64) -> Two {
        let topology = Topology::build(&shape::parse("1n1l4c1t").expect("a shape"), 64);
        let mut core = Core::of(&topology.expect("legal")).expect("legal");
        for cid in 1..4 {
            core.idle_enter(Cid(cid));
        }
        Two {
            core,
            pairs: [Pair::default(); 2],
            cpus: [Cid(0), Cid(1)],
            paused: [0; 2],
            now_ns: 1_000_000_000,
            runs: 0,
            waits: false,
            wake_ns,
            switch_ns,
            thinks_ns: 0,
        }
    }

    /// The task that runs stops.
    fn stops(&mut self, sleeps: bool) {
        let cid = self.cpus[self.runs];
        if sleeps && self.core.pair_asked(cid) {
            self.core
                .pair_sleeps(cid, &mut self.pairs[self.runs], self.now_ns);
        }
        self.paused[self.runs] += 1;
    }

    /// The other one goes on, on a CPU.
    fn goes_on(&mut self, to: Cid) {
        let from = self.cpus[self.runs];
        self.runs = 1 - self.runs;
        self.cpus[self.runs] = to;
        if to == from {
            self.now_ns += self.switch_ns;
        } else {
            self.core.idle_exit(to);
            self.core.idle_enter(from);
            self.now_ns += self.wake_ns;
        }
    }

    fn begins(&mut self) {
        let v = self.core.vtime_at(Vtime::default(), Queue(0));
        let cid = self.cpus[self.runs];
        self.core.turn_begin(cid, v, self.now_ns, 100);
        self.now_ns += 5 * US;
    }

    /// One turn, and how it asked, if it did.
    fn turn(&mut self) -> Option<Asked> {
        self.begins();
        let (me, other, cid) = (self.runs, 1 - self.runs, self.cpus[self.runs]);
        if self.waits {
            self.waits = false;
            self.stops(true);
            self.goes_on(cid);
            if me == 1 || self.thinks_ns == 0 {
                return None;
            }
            // There is no answer yet.
            self.begins();
            self.stops(true);
            self.runs = 0;
            self.now_ns += self.thinks_ns;
            self.begins();
        } else if me == 0 && self.thinks_ns > 0 {
            self.stops(true);
            self.now_ns += self.thinks_ns;
            self.begins();
        }
        let (prev, v) = (
            self.cpus[other],
            self.core.vtime_at(Vtime::default(), Queue(0)),
        );
        let (names, answers) = ([name(1), name(2)], self.pairs[other]);
        let (core, pair, now_ns) = (&mut self.core, &mut self.pairs[me], self.now_ns);
        let mut gives = Gives::Not;
        if core.pair_asks(cid, pair, names[other], self.paused[me], now_ns)
            && self.pairs[other].answers(names[me])
            && !core.pair_apart(cid, &mut self.pairs[me], &answers, prev)
        {
            gives = core.pair_gives_way(cid, &mut self.pairs[me], v, now_ns, 100, None);
        }
        let to = match gives {
            Gives::Now | Gives::Behind => cid,
            Gives::Later => core.pair_beside(&Request::wake(cid, prev)).cid,
            Gives::Not if prev == cid => Cid(2),
            Gives::Not => prev,
        };
        self.waits = gives == Gives::Now;
        self.now_ns += US;
        self.core.pair_woke(cid, self.now_ns);
        self.stops(gives != Gives::Now);
        self.goes_on(to);
        Some(match to == cid {
            true => Asked::Beside,
            false => Asked::Apart,
        })
    }

    /// Of so many questions of the first task, how many times it gave way.
    fn beside(&mut self, questions: u32) -> u32 {
        let (mut asked, mut beside) = (0, 0);
        while asked < questions {
            let first = self.runs == 0;
            match self.turn() {
                Some(how) if first => {
                    asked += 1;
                    beside += u32::from(how == Asked::Beside);
                }
                _ => {}
            }
        }
        beside
    }
}

#[test]
fn partners_stay_where_answers_come_sooner() {
    // Where it takes long to wake an idle CPU they take turns on one, but for trials and before the first.
    let mut two = Two::new(30 * US, 3 * US);
    assert_eq!(two.beside(64), 0);
    let soon = two.beside(1_000);
    assert!(soon > 900, "{soon} of 1,000 beside");
    let late = two.beside(50_000);
    assert!((49_800..50_000).contains(&late), "{late} of 50,000 beside");
    // Where that takes less than a switch, or not much longer, they do not, but for trials.
    for wake_ns in [500, US, 2 * US, 2_500] {
        let mut two = Two::new(wake_ns, 3 * US);
        let (soon, late) = (two.beside(1_000), two.beside(50_000));
        assert!(soon < 120, "{wake_ns}: {soon} of 1,000 beside");
        assert!(late < 200, "{wake_ns}: {late} of 50,000 beside");
    }
}

#[test]
fn what_was_sooner_once_need_not_stay_so() {
    let mut two = Two::new(30 * US, 3 * US);
    two.beside(5_000);
    // There is a trial after 16,384 and 65,536 questions.
    two.wake_ns = US;
    two.beside(80_000);
    let beside = two.beside(10_000);
    assert!(beside < 100, "{beside} of 10,000 beside");
    two.wake_ns = 30 * US;
    two.beside(120_000);
    let beside = two.beside(10_000);
    assert!(beside > 9_900, "{beside} of 10,000 beside");
}

#[test]
fn one_answer_that_came_late_says_little() {
    for late in 10..48 {
        let mut two = Two::new(US, 3 * US);
        two.beside(late);
        two.now_ns += 4_000 * US;
        two.beside(500);
        let beside = two.beside(2_000);
        assert!(beside < 60, "at question {late}: {beside} of 2,000 beside");
    }
}

#[test]
fn a_pause_that_is_not_for_the_answer_is_no_answer() {
    // One that thinks would seem to wait long for its answers. How long they take is not known, so it goes on as it began.
    let mut two = Two::new(3 * US, 3 * US);
    two.thinks_ns = 500 * US;
    let beside = two.beside(20_000);
    assert!(beside < 1_000, "{beside} of 20,000 beside");
}

#[test]
fn who_works_on_after_the_question_has_no_partner_behind_it() {
    let mut two = Two::new(30 * US, 3 * US);
    two.beside(1_000);
    let mut asker = Asker {
        core: two.core,
        pair: two.pairs[0],
        now_ns: two.now_ns,
        paused: two.paused[0],
    };
    let mut behind = 0;
    for _ in 0..1_000 {
        asker.begins();
        if !asker.asks(5 * US, 2) {
            continue;
        }
        let (v, now_ns) = (
            asker.core.vtime_at(Vtime::default(), Queue(0)),
            asker.now_ns,
        );
        match (asker.core).pair_gives_way(CID, &mut asker.pair, v, now_ns, 100, None) {
            Gives::Now => {}
            // Its slice ends before it sleeps.
            Gives::Behind => {
                behind += 1;
                asker.now_ns += SLICE;
            }
            gives => panic!("{gives}"),
        }
    }
    assert_eq!(behind, 1);
}

#[test]
fn where_strong_ones_come_first_nobody_stays_on_weak_cores_for_good() {
    let raw = machine::load("hybrid-8p16e").and_then(|file| file.to_raw());
    let topology = Topology::build(&raw.expect("built in"), 64).expect("legal");
    let watched = |tier_order, cid: Cid| {
        let settings = Settings {
            capacity: true,
            tier_order,
            ..Settings::default()
        };
        let mut two = Two::new(30 * US, 3 * US);
        two.core = Core::new(&Tables::from(&topology), &settings).expect("legal");
        // All weak cores idle, but for the one where both are.
        for weak in (16..32).filter(|&weak| weak != cid.0) {
            two.core.idle_enter(Cid(weak));
        }
        two.cpus = [cid, Cid(cid.0 + 1)];
        two.beside(1_000);
        let mut seen = Vec::new();
        for _ in 0..100 {
            two.begins();
            let (v, now_ns) = (two.core.vtime_at(Vtime::default(), Queue(0)), two.now_ns);
            let pair = &mut two.pairs[0];
            two.core
                .pair_asks(cid, pair, name(2), two.paused[0], now_ns);
            let gives = (two.core).pair_gives_way(cid, pair, v, now_ns, 100, None);
            if gives != Gives::Now {
                seen.push(gives);
                two.core.pair_sleeps(cid, pair, now_ns + US);
            }
        }
        seen
    };
    let strong = watched(TierOrder::StrongestFirst, Cid(20));
    assert!(strong.len() > 3 && strong.iter().all(|&gives| gives == Gives::Later));
    let weak = watched(TierOrder::WeakestFirst, Cid(20));
    assert!(weak.len() > 3 && weak.iter().all(|&gives| gives == Gives::Behind));
}

#[test]
fn who_shares_its_core_looks_around_when_it_is_watched() {
    // Two threads per core. Its partner's core idles until answers are known to come sooner from beside; then its sibling is busy.
    let topology = Topology::build(&shape::parse("1n1l4c2t").expect("a shape"), 64);
    let mut asker = Asker {
        core: Core::of(&topology.expect("legal")).expect("legal"),
        ..Asker::new()
    };
    for cid in [0, 2, 3] {
        asker.core.idle_enter(Cid(cid));
    }
    let mut watched = Vec::new();
    for time in 0..400 {
        if time == 200 {
            asker.core.idle_exit(Cid(0));
            asker.core.idle_exit(Cid(2));
        }
        asker.begins();
        if !asker.asks(10 * US, 7)
            || asker
                .core
                .pair_apart(CID, &mut asker.pair, &Pair::default(), Cid(2))
        {
            asker.sleeps(5 * US);
            continue;
        }
        let (v, now_ns) = (
            asker.core.vtime_at(Vtime::default(), Queue(0)),
            asker.now_ns,
        );
        match (asker.core).pair_gives_way(CID, &mut asker.pair, v, now_ns, 100, None) {
            Gives::Now => asker.now_ns += 20 * US,
            gives => {
                // From when it knows which way is sooner.
                if time > 110 {
                    watched.push((time >= 200, gives));
                }
                asker.sleeps(5 * US);
            }
        }
    }
    let alone = |gives| {
        watched
            .iter()
            .filter(|&&(shared, is)| !shared && is == gives)
            .count()
    };
    let shared = |gives| {
        watched
            .iter()
            .filter(|&&(shared, is)| shared && is == gives)
            .count()
    };
    assert_eq!(
        (alone(Gives::Later), shared(Gives::Behind)),
        (0, 0),
        "{watched:?}"
    );
    assert!(
        alone(Gives::Behind) > 5 && shared(Gives::Later) > 5,
        "{watched:?}"
    );
}
