// SPDX-License-Identifier: GPL-2.0-only
//! Recorded decisions, made again by a core that knows nothing of the state that they were made in.

use usher_core::recorded::{Bits, Recorded, Saw, Seen, Word};
use usher_core::{
    CidSet, Core, Demand, Granularity, Hints, Queue, Request, Settings, Tables, Tiers, Wake,
};
use usher_topo::{shape, Cid, Llc, Topology};

/// Numbers that look random (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as u32
    }
}

/// So many decisions of a machine whose CPUs come and go, with all that a request may say.
fn record(tables: &Tables, settings: &Settings, nr: usize) -> Vec<Recorded> {
    let mut core = Core::new(tables, settings).unwrap();
    let mut random = Random(tables.nr_cids() as u64);
    let hints = [
        "none",
        "fork-affine",
        "fork-spread",
        "wake-affine",
        "wake-hold",
        "fork-spread+wake-affine",
    ];
    let hints: Vec<Hints> = hints.map(|name| name.parse().unwrap()).into();
    let mut all = Vec::new();
    let mut load = 1;
    while all.len() < nr {
        if random.below(200) == 0 {
            load = 1 + random.below(9);
        }
        let cid = Cid(random.below(core.nr_cids()));
        if random.below(10) < load {
            core.idle_exit(cid);
        } else {
            core.idle_enter(cid);
        }
        let queue = Queue(random.below(core.nr_queues()));
        core.set_queued(queue, random.below(4).into());
        if random.below(4) == 0 {
            core.queue_fill(queue, false);
        }
        if random.below(8) == 0 {
            core.settle(None, Some(Llc(random.below(core.nr_llcs()))));
        }
        let allowed: CidSet = (0..1 + random.below(4))
            .map(|_| Cid(random.below(core.nr_cids())))
            .collect();
        let request = Request {
            allowed: (random.below(3) == 0).then_some(&allowed),
            wake: Wake::ALL[random.below(3) as usize],
            prev: Cid(random.below(core.nr_cids())),
            waker: Cid(random.below(core.nr_cids())),
            tiers: Tiers::ANY,
            hints: hints[random.below(hints.len()) as usize],
            demand: Demand {
                util: random.below(1025) as u16,
                at_ns: u64::from(random.below(1 << 30)),
                ..Demand::default()
            },
        };
        let (decision, recorded) = core.place_recorded(&request);
        let recorded = recorded.expect("a machine of this size fits a record");
        assert_eq!(recorded.decision, decision.into());
        if decision.poke {
            core.rescue(request.waker);
        }
        all.push(recorded);
    }
    all
}

fn machines() -> Vec<(Tables, Settings)> {
    let mut all = Vec::new();
    for name in [
        "1n1l1c1t", "1n1l4c1t", "2n2l2c2t", "4n4l2c1t", "2n8l8c2t", "4b4l",
    ] {
        let topo = Topology::build(&shape::parse(name).unwrap(), 64).unwrap();
        for &granularity in Granularity::ALL {
            let settings = Settings {
                granularity,
                ..Settings::default()
            };
            all.push((Tables::from(&topo), settings));
        }
    }
    all
}

// Goal: a decision is what its record says and nothing else. Method: 24 machines, 2,000 decisions each, by way of the line of JSON that
// is kept of them; made again on a core of which no CPU ever was idle. Catches: an input of a decision that is not recorded, such as
// another word of the waker's own block.
#[test]
fn decisions_can_be_made_again() {
    for (tables, settings) in machines() {
        let mut reasons = Vec::new();
        let mut elsewhere = Core::new(&tables, &settings).unwrap();
        for recorded in record(&tables, &settings, 2000) {
            let line = serde_json::to_string(&recorded).unwrap();
            let back: Recorded = serde_json::from_str(&line).unwrap();
            assert_eq!(back, recorded);
            let replayed = elsewhere.replay(&back).unwrap();
            assert!(replayed.is(&recorded), "{replayed:?} for {line}");
            reasons.push(recorded.decision.reason);
        }
        reasons.sort_unstable();
        reasons.dedup();
        let nr_cids = tables.nr_cids();
        assert!(
            nr_cids < 8 || reasons.len() >= 8,
            "{nr_cids} CPUs: only {reasons:?}"
        );
    }
}

// Goal: a record that is not the core's own is noticed. Method: of each record one entry is left out, put in twice, made another
// access, or, of what a write wrote, another value: the replay says so, and where. Another value that was read may lead to the same decision.
#[test]
fn another_record_is_told() {
    let (tables, settings) = &machines()[8];
    let mut core = Core::new(tables, settings).unwrap();
    let mut random = Random(1);
    let (mut values, mut others, mut impossible) = (0, 0, 0);
    for recorded in record(tables, settings, 20_000) {
        if recorded.seen.is_empty() {
            continue;
        }
        let at = random.below(recorded.seen.len()) as usize;
        let mut forged = recorded.clone();
        match random.below(4) {
            0 => drop(forged.seen.remove(at)),
            1 => forged.seen.insert(at, Seen(Saw::Read, 8, Bits(0))),
            2 => forged.seen[at].1 ^= 64,
            _ => {
                let Seen(saw, _, bits) = &mut forged.seen[at];
                bits.0 = !bits.0;
                let given = matches!(saw, Saw::Write | Saw::Given);
                values += usize::from(given);
                let Ok(replayed) = core.replay(&forged) else {
                    impossible += 1;
                    continue;
                };
                assert!(!given || replayed.differs_at == Some(at), "{forged:?}");
                others += usize::from(!replayed.is(&recorded));
                continue;
            }
        }
        let replayed = core.replay(&forged).unwrap();
        let differs_at = replayed.differs_at.expect("another sequence of accesses");
        assert!(
            differs_at <= forged.seen.len() && differs_at + 1 >= at,
            "{forged:?}"
        );
    }
    assert!(
        values > 20 && others > 200 && impossible > 2000,
        "{values} {others} {impossible}"
    );
}

// Goal: a file by hand, or of another machine, leads to an error and not into C. Method: each field that indexes a table, out of range.
#[test]
fn impossible_records_are_refused() {
    let (tables, settings) = &machines()[8];
    let mut core = Core::new(tables, settings).unwrap();
    let good = record(tables, settings, 1).remove(0);
    let says = |forge: &dyn Fn(&mut Recorded)| {
        let mut forged = good.clone();
        forge(&mut forged);
        core.replay(&forged).unwrap_err().to_string()
    };
    let mut says = says;
    assert!(says(&|r| r.prev = 16).contains("`prev` is cid 16, and the machine has 16"));
    assert!(says(&|r| r.waker = u32::MAX).contains("`waker`"));
    assert!(says(&|r| r.decision.cid = 16).contains("`decision.cid`"));
    assert!(says(&|r| r.allowed = Some("0-16".into())).contains("`allowed` is cid 16"));
    assert!(says(&|r| r.allowed = Some("all".into())).contains("such as 0-3,8"));
    assert!(says(&|r| r.hints = "fork".into()).contains("`hints`"));
    assert!(says(&|r| r.seen = vec![Seen(Saw::Read, 0, Bits(0)); 257]).contains("257"));
}

// Goal: what a decision looked at has names. Method: of one that searches a machine on which one CPU idles.
#[test]
fn places_have_names() {
    let (tables, settings) = &machines()[11];
    let mut core = Core::new(tables, settings).unwrap();
    core.idle_enter(Cid(13));
    let (_, recorded) = core.place_recorded(&Request::wake(Cid(0), Cid(0)));
    let recorded = recorded.unwrap();
    let words: Vec<Word> = recorded.seen.iter().map(|seen| core.word(seen.1)).collect();
    assert!(
        words.contains(&Word::Idle(0)) && words.contains(&Word::Idle(3)),
        "{words:?}"
    );
    assert!(
        words.contains(&Word::Summary(1)) && !words.contains(&Word::Other),
        "{words:?}"
    );
    let found = recorded
        .seen
        .iter()
        .find(|seen| core.word(seen.1) == Word::Idle(3) && seen.2 != Bits(0));
    let Seen(_, place, Bits(bits)) = *found.expect("it was seen idle");
    assert_eq!(core.idle_cids(place, bits), [Cid(13)]);
}
