// SPDX-License-Identifier: GPL-2.0-only
//! What the map touches, and where it lies: the lines are what it is about.

use usher_core::bench::{Loop, Places};
use usher_core::{
    bytes_needed, AccessKind, CidSet, Core, Granularity, Level, LevelQuery, Settings, Tables,
};
use usher_topo::{shape, Cid, Node, Shard, Topology};

fn level(number: u32) -> Level {
    Level::new(number).expect("a level")
}

fn settings(granularity: Granularity) -> Settings {
    Settings {
        granularity,
        cpupri: true,
        ..Settings::default()
    }
}

fn tables(machine: &str) -> Tables {
    let raw = shape::parse(machine).expect("the shape is sound");
    Tables::from(&Topology::build(&raw, 64).expect("the machine is sound"))
}

fn traced(machine: &str, granularity: Granularity) -> Core {
    Core::traced(&tables(machine), &settings(granularity)).expect("within limits")
}

fn kinds(core: &Core) -> Vec<AccessKind> {
    core.accesses().iter().map(|access| access.kind()).collect()
}

// Goal: a change of level is two atomics and two looks at summaries, and none if nothing changes; adding comes first.
#[test]
fn a_change_of_level_is_two_atomics() {
    let mut core = traced("2n2l4c2t", Granularity::Shard);
    for number in [0, 99, 0] {
        core.set_level(Cid(5), Some(level(number)));
    }
    core.clear_accesses();
    core.set_level(Cid(5), Some(level(99)));
    let (read, rmw) = (AccessKind::Read, AccessKind::Rmw);
    assert_eq!(kinds(&core), [rmw, read, read, rmw]);
    let &[first, present, levels, last] = core.accesses() else {
        unreachable!("four accesses")
    };
    let shard = Shard(0);
    assert_eq!(present.offset(), core.present_word_offset(shard, level(99)));
    assert_eq!(
        levels.offset(),
        core.summary_word_offset(Node(0), level(99))
    );
    assert_eq!(first.offset(), core.level_word_offset(shard, level(99)));
    assert_eq!(last.offset(), core.level_word_offset(shard, level(0)));
    core.clear_accesses();
    core.set_level(Cid(5), Some(level(99)));
    assert_eq!(kinds(&core), [], "nothing changes");
    core.set_level(Cid(5), None);
    assert_eq!(kinds(&core), [rmw], "offline: out of its level");
}

// Goal: a search reads leaves of CPUs that the task may use, and no others (the proposal reads all nodes).
// Method: everybody is lower, the search is in one LLC of the other node; in the log are no words of other leaves.
#[test]
fn a_search_reads_only_leaves_of_the_allowed_set() {
    let mut core = traced("2n4l4c2t", Granularity::Shard);
    for cid in 0..64 {
        core.set_level(Cid(cid), Some(level(3)));
    }
    let allowed: CidSet = (48..56).map(Cid).collect();
    for lowest in [false, true] {
        core.clear_accesses();
        let query = LevelQuery {
            allowed: Some(&allowed),
            lowest,
            ..LevelQuery::nearest(Cid(1), level(50))
        };
        let found = core.find_lower(&query);
        assert_eq!(found, Some((Cid(49), level(3))));
        let read: Vec<u32> = (0..8)
            .filter(|&shard| {
                let word = core.level_word_offset(Shard(shard), level(3));
                core.accesses().iter().any(|a| a.offset() == word)
            })
            .collect();
        assert_eq!(read, [6], "shards whose leaves were read");
        assert!(core.accesses().len() <= 8, "{:?}", core.accesses());
    }
}

// Goal: a victim near by is found without a look at anything of other nodes.
#[test]
fn a_near_search_stays_in_its_node() {
    for (machine, granularity) in [
        ("8n4l8c2t", Granularity::Shard),
        ("1n1l8c2t", Granularity::Shard),
    ] {
        let mut core = traced(machine, granularity);
        for cid in 0..core.nr_cids() as u32 {
            core.set_level(Cid(cid), Some(level(if cid == 3 { 0 } else { 99 })));
        }
        // Summary, map of shards, leaf; level by level the summary is looked at twice.
        for (query, accesses) in [
            (LevelQuery::nearest(Cid(3), level(50)), 3),
            (LevelQuery::lowest(Cid(3), level(50)), 4),
        ] {
            core.clear_accesses();
            assert_eq!(core.find_lower(&query), Some((Cid(3), level(0))));
            assert_eq!(kinds(&core).len(), accesses);
        }
    }
}

// Goal: a level or shard that nobody uses costs one search, not all: its summary bits are taken out.
#[test]
fn a_vain_search_retires_what_is_stale() {
    let mut core = traced("2n4l4c2t", Granularity::Shard);
    for cid in 0..64 {
        core.set_level(Cid(cid), Some(level(7)));
    }
    for cid in 0..64 {
        core.set_level(Cid(cid), Some(level(99)));
    }
    let query = LevelQuery::nearest(Cid(0), level(50));
    core.clear_accesses();
    assert_eq!(core.find_lower(&query), None);
    let first = core.accesses().len();
    core.clear_accesses();
    assert_eq!(core.find_lower(&query), None);
    let second = core.accesses().len();
    assert!(
        first >= 3 * 8 && second <= 3 * 2,
        "{first} accesses, then {second}"
    );
}

// Goal: granularity is where the words lie. Method: which shards share a line at one level.
#[test]
fn granularity_says_who_shares_a_line() {
    // 480 CPUs in 2 nodes of 2 LLCs of 120: shards of 64 and 56.
    let lines = |granularity| {
        let core = traced("2n2l60c2t", granularity);
        let mut lines: Vec<u64> = (0..core.nr_shards() as u32)
            .map(|shard| core.level_word_offset(Shard(shard), level(99)) / 64)
            .collect();
        lines.dedup();
        lines.len()
    };
    assert_eq!(lines(Granularity::Global), 1, "480 CPUs are 8 words");
    assert_eq!(lines(Granularity::Node), 2);
    assert_eq!(lines(Granularity::Llc), 4);
    assert_eq!(lines(Granularity::Shard), 8);
}

// Goal: whoever does not want the map does not pay, and who does pays what build.c says.
#[test]
fn memory_is_what_the_comment_says() {
    let bytes = |tables: &Tables, cpupri| {
        let settings = Settings {
            cpupri,
            ..Settings::default()
        };
        bytes_needed(tables, &settings).expect("within limits")
    };
    let of_map = |machine| {
        let tables = tables(machine);
        bytes(&tables, true) - bytes(&tables, false)
    };
    assert_eq!(of_map("8n32l8c2t"), 236_736);
    assert_eq!(of_map("8n8l32c2t"), 64_704);
    assert_eq!(of_map("1n1l8c2t"), 64 + 64 + 64 + 832 + 832);
}

// Goal: real processors do not lose changes of level that meet in one word (orders of steps are the matter of the
// interleavings). Method: four threads change levels of their own CPUs and search, two of them in one shard; at rest
// every CPU is at its level only, and named in both summaries.
#[test]
fn threads_lose_nobody() {
    let mut core = Core::new(&tables("2n2l4c2t"), &settings(Granularity::Node)).expect("in limits");
    let [low, high] = [level(3), level(99)];
    for cid in 0..32 {
        core.set_level(Cid(cid), Some(high));
    }
    for round in 0..400u64 {
        let by = [Cid(0), Cid(1), Cid(8), Cid(24)];
        let loops = Loop::split(&mut core, by);
        std::thread::scope(|scope| {
            for (mut one, by) in loops.into_iter().zip(by) {
                let width = if by == Cid(0) { 1 } else { 3 };
                let cids = (0..8u32).map(|i| Cid(by.0 + i % width));
                let places = Places::new(cids.collect());
                scope.spawn(move || one.set_and_find(&places, [low, high], 2000 + round % 8));
            }
        });
        for cid in 0..32 {
            let (shard, at) = (Shard(cid / 8), core.level(Cid(cid)).expect("it has one"));
            for each in [low, high] {
                let there = core.bits_at_level(shard, each) >> (cid % 8) & 1 != 0;
                assert_eq!(there, each == at, "cid {cid} at {each}");
            }
            assert!(core.shard_in_level(shard, at) && core.node_in_level(Node(cid / 16), at));
        }
    }
}
