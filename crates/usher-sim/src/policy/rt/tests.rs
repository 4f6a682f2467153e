// SPDX-License-Identifier: GPL-2.0-only
//! The CPU priority map in all its forms, and the root domain's lines, counted by hand.

use std::sync::Arc;

use proptest::prelude::*;

use usher_core::Granularity;

use super::core_map::{CoreMap, Shape};
use super::layout::{Form, Layout, Switches};
use super::map::{Find, Level, Map, OFFLINE};
use super::overload::Overload;
use crate::coherence::Access;
use crate::costs::Costs;
use crate::cpuset::CpuSet;
use crate::ids::{Cpu, LineId, Node};
use crate::machine::Machine;
use crate::policy::mask::recorder::Recorder;

fn machine(shape: &str) -> Arc<Machine> {
    let raw = usher_topo::shape::parse(shape).expect("a shape");
    let topo = usher_topo::Topology::build(&raw, 64).expect("a topology");
    Arc::new(Machine::new(topo, Costs::builtin("generic").expect("costs")).expect("a machine"))
}

/// Lines with a class each, in order of allocation.
#[derive(Default)]
struct Bench {
    classes: Vec<String>,
}

impl Bench {
    fn line(&mut self, class: &str, _home: Option<Node>) -> LineId {
        self.classes.push(class.into());
        LineId(self.classes.len() as u32 - 1)
    }

    /// How many accesses of this kind went to lines of a class.
    fn count(&self, bus: &Recorder, class: &str, access: Access) -> usize {
        let of_class = |l: &LineId| self.classes[l.index()] == class;
        bus.log
            .iter()
            .filter(|(l, a)| of_class(l) && *a == access)
            .count()
    }
}

struct Rig {
    machine: Arc<Machine>,
    bench: Bench,
    layout: Layout,
    map: Map,
    bus: Recorder,
}

impl Rig {
    fn new(shape: &str, switches: Switches, late: &[u32]) -> Rig {
        Rig::of(machine(shape), switches, late)
    }

    fn of(machine: Arc<Machine>, switches: Switches, late: &[u32]) -> Rig {
        let mut bench = Bench::default();
        let nodes = machine.topo().nodes().len();
        let layout = Layout::with(switches, nodes, 1, &mut |class, home| {
            bench.line(class, home)
        });
        let late = late.iter().copied().map(Cpu).collect();
        let mut make = |class: &str, home| bench.line(class, home);
        let map = Map::new(&machine, &layout, switches, &late, &mut make);
        Rig {
            machine,
            bench,
            layout,
            map,
            bus: Recorder::default(),
        }
    }

    /// All CPUs run nothing real-time.
    fn online(mut self) -> Rig {
        for &cpu in self.machine.cpus() {
            self.map.set(&mut self.bus, cpu, 0);
        }
        self.bus.log.clear();
        self
    }

    fn set(&mut self, cpu: u32, level: Level) {
        self.map.set(&mut self.bus, Cpu(cpu), level);
    }

    fn find(&mut self, allowed: &[u32], below: Level, near: u32) -> Option<Vec<u32>> {
        let allowed: CpuSet = allowed.iter().copied().map(Cpu).collect();
        let near = Cpu(near);
        let find = Find {
            allowed: &allowed,
            below,
            this: near,
            near,
            capacity: None,
        };
        let mut out = CpuSet::new();
        let found = self.map.find(&mut self.bus, &find, Some(&mut out));
        assert_eq!(found, !out.is_empty());
        found.then(|| out.iter().map(|c| c.0).collect())
    }
}

fn form(form: Form) -> Switches {
    Switches {
        form,
        ..Switches::BASELINE
    }
}

fn core_form(granularity: Granularity, strict: bool) -> Form {
    Form::Core(Shape {
        granularity,
        shard_width: 64,
        strict,
    })
}

/// All forms of the map that look for the lowest level.
fn forms() -> Vec<Form> {
    let cores = Granularity::ALL.iter().map(|&g| core_form(g, true));
    [Form::Global, Form::Node]
        .into_iter()
        .chain(cores)
        .collect()
}

/// A kernel's map names all CPUs of a level, the core's one of them.
fn names(form: Form, found: Option<Vec<u32>>, expected: &Option<Vec<u32>>) -> bool {
    match (form, found, expected) {
        (Form::Core(_), Some(found), Some(all)) => found.len() == 1 && all.contains(&found[0]),
        (_, found, expected) => found == *expected,
    }
}

// Goal: a task that sleeps and wakes on an otherwise idle CPU costs four atomics on counters and four on
// bitmaps, on levels 0 and p, each on the line the layout says.
// Method: raise a CPU to 99 and back; count by class and in order. The counters of level 99 are on line E, that of
// level 0 on A; before each bitmap its pointer is read, level 99's from E, level 0's from the line behind A.
#[test]
fn a_sleep_wake_pair_costs_eight_atomics() {
    let mut rig = Rig::new("2n1l4c2t", Switches::BASELINE, &[]).online();
    rig.set(5, 99);
    let (a, e) = (rig.layout.count[0], rig.layout.count[99]);
    let behind_a = rig.layout.mask_ptr[0];
    let (c, d) = (mask_line(&rig, 0), mask_line(&rig, 99));
    let (read, rmw) = (Access::Read, Access::Rmw);
    let enter = [(e, read), (d, rmw), (e, rmw)];
    let leave = [(a, rmw), (behind_a, read), (c, rmw)];
    assert_eq!(rig.bus.log, [enter, leave].concat());
    rig.set(5, 0);
    let rmw_on = |class| rig.bench.count(&rig.bus, class, Access::Rmw);
    assert_eq!(rmw_on("cpupri-mask"), 4);
    assert_eq!(rmw_on("rd-count0") + rmw_on("cpupri-count-last"), 4);
    let before = rig.bus.log.len();
    rig.set(5, 0);
    assert_eq!(rig.bus.log.len(), before, "no change, no access");
}

/// The bitmap line of a level in the global form: they are allocated in order.
fn mask_line(rig: &Rig, level: usize) -> LineId {
    let first = rig
        .bench
        .classes
        .iter()
        .position(|c| c == "cpupri-mask")
        .expect("bitmaps");
    LineId((first + level) as u32)
}

// Goal: padding separates the lines that the baseline has together.
// Method: the same raise; the pointer reads now go to lines that nobody writes.
#[test]
fn padding_takes_the_pointers_off_the_hot_lines() {
    let mut rig = Rig::new(
        "2n1l4c2t",
        Switches {
            pad_counts: true,
            ..Switches::BASELINE
        },
        &[],
    )
    .online();
    rig.set(5, 99);
    rig.set(5, 0);
    let count = |class, access| rig.bench.count(&rig.bus, class, access);
    assert_eq!(count("cpupri-mask-pointer", Access::Read), 4);
    assert_eq!(count("cpupri-mask-pointer", Access::Rmw), 0);
    assert_eq!(
        count("rd-count0", Access::Read) + count("cpupri-count-last", Access::Read),
        0
    );
    assert_eq!(count("rd-count0", Access::Rmw), 2);
}

// Goal: a search reads what 4.5 says: level 0 hit, lines A and C (C twice, as the set is wanted) and the pointer behind A;
// all allowed CPUs at 99, 99 counters on 26 lines, of which only that of level 0 is not zero.
// Method: recorded accesses of both searches for a task pinned to two CPUs.
#[test]
fn a_search_reads_the_documented_lines() {
    let mut rig = Rig::new("2n1l4c2t", Switches::BASELINE, &[]).online();
    assert_eq!(rig.find(&[2, 3], 99, 2), Some(vec![2, 3]));
    let (a, c) = (rig.layout.count[0], mask_line(&rig, 0));
    let lines = [a, rig.layout.mask_ptr[0], c, c];
    assert_eq!(rig.bus.take(), lines.map(|line| (line, Access::Read)));
    rig.set(2, 99);
    rig.set(3, 99);
    rig.bus.take();
    assert_eq!(rig.find(&[2, 3], 99, 2), None);
    let mut lines: Vec<LineId> = rig.bus.log.iter().map(|&(l, _)| l).collect();
    assert_eq!(
        lines.len(),
        99 + 2,
        "levels 0 to 98, the pointer and the bitmap of level 0"
    );
    lines.sort();
    lines.dedup();
    assert_eq!(
        lines.len(),
        26 + 1,
        "A, 25 lines of counters up to E, and C"
    );
}

// Goal: the lowest level wins, levels at or above the task's do not count, only allowed CPUs do.
// Method: one state, several questions, the same answers from all forms.
#[test]
fn the_lowest_level_wins() {
    for f in forms() {
        let mut rig = Rig::new("2n2l2c2t", form(f), &[]).online();
        for (cpu, level) in [(0, 50), (1, 99), (2, 20), (3, 20), (8, 1), (9, 100)] {
            rig.set(cpu, level);
        }
        let all: Vec<u32> = (0..16).collect();
        let idle: Vec<u32> = (4..8).chain(10..16).collect();
        let mut ask = |allowed: &[u32], below, near, expected: Option<&[u32]>| {
            let found = rig.find(allowed, below, near);
            let expected = expected.map(<[u32]>::to_vec);
            assert!(
                names(f, found.clone(), &expected),
                "{f:?}: {found:?}, not {expected:?}"
            );
        };
        ask(&all, 99, 0, Some(&idle));
        ask(&[0, 1, 2, 3, 8, 9], 99, 0, Some(&[8]));
        ask(&[0, 1, 2, 3], 99, 0, Some(&[2, 3]));
        ask(&[0, 1, 2, 3], 20, 0, None); // 20 is not below 20
        ask(&[1, 9], 99, 0, None);
        ask(&[8], 1, 8, None);
        rig.set(2, OFFLINE);
        assert_eq!(
            rig.find(&[2, 3], 99, 0),
            Some(vec![3]),
            "{f:?}: an offline CPU is nowhere"
        );
    }
}

// Goal: capacity fit chooses among CPUs, but priority beats fit.
// Method: two strong CPUs (0, 1) and three weak ones; the strong are at a higher level than the weak; then all of
// them are too high.
#[test]
fn priority_beats_fit() {
    let source = usher_topo::Source::Machine("tc2-2a15-3a7".into());
    for f in forms() {
        let tc2 = crate::case::machine(&source, &crate::params::Params::new());
        let mut rig = Rig::of(Arc::new(tc2.expect("it ships")), form(f), &[]).online();
        let allowed: CpuSet = (0..5).map(Cpu).collect();
        let strongest = rig.machine.cpu(Cpu(0)).capacity;
        assert!(rig.machine.cpu(Cpu(2)).capacity < strongest);
        let expect = |rig: &mut Rig, expected: &[u32]| {
            let near = Cpu(2);
            let find = Find {
                allowed: &allowed,
                below: 50,
                this: near,
                near,
                capacity: Some(strongest),
            };
            let mut out = CpuSet::new();
            rig.map.find(&mut rig.bus, &find, Some(&mut out));
            let out: Vec<u32> = out.iter().map(|c| c.0).collect();
            assert!(
                names(f, Some(out.clone()), &Some(expected.to_vec())),
                "{f:?}: {out:?}, not {expected:?}"
            );
        };
        expect(&mut rig, &[0, 1]);
        rig.set(0, 10);
        rig.set(1, 20);
        expect(&mut rig, &[0]); // a level up, but it fits
        rig.set(0, 60);
        rig.set(1, 60);
        expect(&mut rig, &[2, 3, 4]); // nobody fits
    }
}

// Goal: the proposal's inverted bitmaps name phantom members if CPUs join their node after the map was
// made, and stop doing so once the CPU has entered and left the level.
// Method: two late CPUs; a search for CPUs below 50 finds them at level 7 while they run at 99.
#[test]
fn late_cpus_are_phantoms_in_the_inverted_map() {
    let everybody: Vec<u32> = (0..8).collect();
    for (late, phantoms) in [(&[][..], None), (&[6, 7][..], Some(vec![6, 7]))] {
        let mut rig = Rig::new("2n1l4c1t", form(Form::Node), late).online();
        everybody.iter().for_each(|&c| rig.set(c, 99));
        // Somebody else is at level 7, so that its count is not zero, but not where the task may go.
        rig.set(0, 7);
        assert_eq!(rig.find(&[5, 6, 7], 50, 5), phantoms, "late {late:?}");
        // In and out of levels 7 and 0 (online() has done 0 already): no phantom any more.
        for cpu in [6, 7] {
            rig.set(cpu, 7);
            rig.set(cpu, 99);
        }
        assert_eq!(rig.find(&[5, 6, 7], 50, 5), None, "late {late:?}");
    }
}

// Goal: per-node bitmaps keep a node's writes on its own lines; a search that wants the set reads all
// nodes even for a task that may run on one CPU of one (defect 27).
// Method: bitmap lines touched by a raise, and by a search.
#[test]
fn node_bitmaps_confine_writes_but_not_reads() {
    let mut rig = Rig::new("4n1l2c1t", form(Form::Node), &[]).online();
    rig.set(0, 99);
    let masks = |rig: &Rig, access| {
        let of_mask = |l: &LineId| rig.bench.classes[l.index()] == "cpupri-mask";
        let hits = rig
            .bus
            .log
            .iter()
            .filter(|(l, a)| of_mask(l) && *a == access);
        let mut lines: Vec<LineId> = hits.map(|&(l, _)| l).collect();
        lines.sort();
        lines.dedup();
        lines.len()
    };
    assert_eq!(
        masks(&rig, Access::Rmw),
        2,
        "the own node's, of levels 99 and 0"
    );
    rig.bus.take();
    assert_eq!(rig.find(&[1], 99, 1), Some(vec![1]));
    assert_eq!(masks(&rig, Access::Read), 4);
}

// Goal: over the core's map a CPU that flips between two levels writes two words of its own shard and nothing else, if
// others are at both levels, and reads the two summaries; the first in a level names it there, and a search that saw
// the node empty at that level takes it out.
// Method: accesses by class; the summary bit over a life of entering, leaving and searching.
#[test]
fn the_core_writes_a_shards_own_lines() {
    let mut rig = Rig::new("2n1l4c2t", form(core_form(Granularity::Shard, false)), &[]).online();
    rig.set(1, 99);
    rig.bus.take();
    rig.set(0, 99);
    rig.set(0, 0);
    let count = |rig: &Rig, class| {
        let kinds = [Access::Read, Access::Write, Access::Rmw];
        kinds.map(|k| rig.bench.count(&rig.bus, class, k))
    };
    assert_eq!(count(&rig, "cpupri-mask"), [0, 0, 4]);
    assert_eq!(count(&rig, "cpupri-present"), [2, 0, 0]);
    assert_eq!(count(&rig, "cpupri-summary"), [2, 0, 0]);
    assert_eq!(rig.bus.log.len(), 8, "no counter, no pointer");

    let machine = machine("1n2l2c1t");
    let mut bench = Bench::default();
    let shape = Shape {
        granularity: Granularity::Shard,
        shard_width: 64,
        strict: false,
    };
    let mut map = CoreMap::new(&machine, shape, &mut |class, home| bench.line(class, home));
    let mut bus = Recorder::default();
    let ask = |map: &mut CoreMap, bus: &mut Recorder| {
        let allowed = machine.online().clone();
        let find = Find {
            allowed: &allowed,
            below: 9,
            this: Cpu(0),
            near: Cpu(0),
            capacity: None,
        };
        map.find(bus, &find)
    };
    let named = |bus: &Recorder| {
        ["cpupri-summary", "cpupri-present"].map(|class| bench.count(bus, class, Access::Rmw))
    };
    map.set(&mut bus, Cpu(0), 5);
    assert_eq!(named(&bus), [1, 1]);
    map.set(&mut bus, Cpu(3), 5);
    assert_eq!(named(&bus), [1, 2], "of the node it is known already");
    map.set(&mut bus, Cpu(0), 50);
    map.set(&mut bus, Cpu(3), 50);
    assert!(map.summary_has(Node(0), 5), "cleared lazily");
    assert_eq!(ask(&mut map, &mut bus), None);
    assert!(!map.summary_has(Node(0), 5));
    map.set(&mut bus, Cpu(1), 5);
    assert!(map.summary_has(Node(0), 5));
    assert_eq!(ask(&mut map, &mut bus), Some(Cpu(1)));
}

// Goal: the granularity says who shares a line: the machine, a node, an LLC, a shard; and what is charged is that line.
// Method: on 2 nodes of 2 LLCs of 4 cores of 2 threads, shards of 4 CPUs at most, everybody is raised; lines of
// bitmaps that were written, of two levels.
#[test]
fn granularity_is_who_shares_a_line() {
    let lines = |granularity| {
        let shape = Shape {
            granularity,
            shard_width: 4,
            strict: false,
        };
        let mut rig = Rig::new("2n2l4c2t", form(Form::Core(shape)), &[]).online();
        (0..32).for_each(|cpu| rig.set(cpu, 99));
        let written = rig.bus.take().into_iter();
        let written = written
            .filter(|(l, a)| *a == Access::Rmw && rig.bench.classes[l.index()] == "cpupri-mask");
        let written: std::collections::BTreeSet<LineId> = written.map(|(l, _)| l).collect();
        written.len() / 2
    };
    let domains = Granularity::ALL.iter().map(|&g| lines(g));
    assert_eq!(domains.collect::<Vec<_>>(), [1, 2, 4, 8]);
}

// Goal: a search over the core's map takes the nearest CPU that is low enough, in the strict form the lowest
// anywhere, and touches no shard where the task may not run.
// Method: a machine of 2 nodes with 2 shards each; bitmap lines touched.
#[test]
fn shards_are_searched_nearest_first() {
    let shape = "2n2l2c2t";
    let all: Vec<u32> = (0..16).collect();
    let rig = |strict| {
        let form = form(core_form(Granularity::Shard, strict));
        let mut rig = Rig::new(shape, form, &[]).online();
        rig.set(12, 20);
        rig.set(13, 20);
        rig.bus.take();
        rig
    };
    let mut near = rig(false);
    assert_eq!(near.find(&all, 99, 5), Some(vec![5]), "where it was");
    assert_eq!(near.bench.count(&near.bus, "cpupri-mask", Access::Read), 1);
    assert_eq!(near.find(&[0, 12, 13], 99, 9), Some(vec![13]));
    let mut strict = rig(true);
    assert_eq!(strict.find(&[0, 12, 13], 99, 9), Some(vec![0]));
    let read = strict.bench.count(&strict.bus, "cpupri-mask", Access::Read);
    assert_eq!(read, 2, "level 0 of the shards of 12 and of 0");
}

// Goal: the overload count: set is bit then count, clear is count then bit; a reader that is alone in it
// does not ask; one that is not starts a round, which visits overloaded CPUs in order and ends when all
// requests made meanwhile are served.
// Method: one machine, the protocol step by step; accesses counted by hand for the first steps.
#[test]
fn rounds_of_pushing() {
    let machine = machine("2n1l4c1t");
    let mut bench = Bench::default();
    let layout = Layout::with(Switches::BASELINE, 2, 1, &mut |class, home| {
        bench.line(class, home)
    });
    let mut o = Overload::new(&machine, &layout);
    let mut bus = Recorder::default();
    let (a, b, f) = (layout.rto, layout.rto_count[0], layout.rto_mask[0]);
    let (read, rmw) = (Access::Read, Access::Rmw);
    o.set(&mut bus, Cpu(6));
    assert_eq!(bus.take(), [(a, read), (f, rmw), (b, rmw)]);
    assert!(!o.others(&mut bus, Cpu(6)), "only itself");
    assert_eq!(bus.take(), [(b, read), (a, read), (f, read)]);
    assert!(o.others(&mut bus, Cpu(0)));
    o.set(&mut bus, Cpu(2));
    assert_eq!(
        o.ask(&mut bus),
        Some(Cpu(2)),
        "the first round starts at the lowest"
    );
    assert_eq!(o.ask(&mut bus), None, "one is under way");
    o.clear(&mut bus, Cpu(2));
    assert_eq!(o.go_on(&mut bus), Some(Cpu(6)));
    assert_eq!(
        o.go_on(&mut bus),
        Some(Cpu(6)),
        "again, for the requests since the start"
    );
    o.clear(&mut bus, Cpu(6));
    assert_eq!((o.go_on(&mut bus), o.total()), (None, 0));
    assert!(!o.others(&mut bus, Cpu(0)));
    assert_eq!(o.ask(&mut bus), None, "nobody to tell");
}

// Goal: with a count per node, writers stay in their node, readers add from their own node on and stop
// once it is more than one.
// Method: lines touched by a reader in three states of two nodes.
#[test]
fn overload_count_per_node() {
    let machine = machine("2n1l4c1t");
    let mut bench = Bench::default();
    let switches = Switches {
        node_rto_count: true,
        ..Switches::BASELINE
    };
    let layout = Layout::with(switches, 2, 1, &mut |class, home| bench.line(class, home));
    let mut o = Overload::new(&machine, &layout);
    let mut bus = Recorder::default();
    let lines = |bus: &mut Recorder| -> Vec<LineId> {
        let log = bus.take();
        log.into_iter()
            .map(|(l, _)| l)
            .filter(|l| layout.rto_count.contains(l))
            .collect()
    };
    let (own, far) = (layout.rto_count[1], layout.rto_count[0]);
    assert!(!o.others(&mut bus, Cpu(7)));
    assert_eq!(
        lines(&mut bus),
        [own, far],
        "the common case reads all nodes"
    );
    o.set(&mut bus, Cpu(5));
    o.set(&mut bus, Cpu(6));
    assert_eq!(lines(&mut bus), [own, own]);
    assert!(o.others(&mut bus, Cpu(7)));
    assert_eq!(lines(&mut bus), [own], "two are enough");
}

fn levels() -> impl Strategy<Value = Level> {
    prop_oneof![Just(0u8), Just(99u8), 1..100u8, Just(100u8), Just(OFFLINE)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Goal: all forms of the map answer as a plain table of levels would.
    // Method: random changes and questions on a machine with several nodes and shards; the answer must be
    // exactly the allowed CPUs of the lowest level below the task's, from the core one of them; from the core that
    // is not strict one that is low enough, of the own shard if it has any, else of the own node if it has any.
    #[test]
    fn the_map_agrees_with_a_plain_table(
        steps in prop::collection::vec((0..16u32, levels(), any::<u16>(), 1..=99u8, any::<bool>()), 1..120)
    ) {
        let mut rigs: Vec<(Form, Rig)> = forms()
            .into_iter()
            .map(|f| (f, Rig::new("2n2l2c2t", form(f), &[])))
            .collect();
        let mut near = Rig::new("2n2l2c2t", form(core_form(Granularity::Llc, false)), &[]);
        let mut table = [OFFLINE; 16];
        for (cpu, level, allowed, below, question) in steps {
            if !question {
                table[cpu as usize] = level;
                rigs.iter_mut().for_each(|(_, rig)| rig.set(cpu, level));
                near.set(cpu, level);
                continue;
            }
            let allowed: Vec<u32> = (0..16).filter(|c| allowed >> c & 1 == 1).collect();
            let low = |c: &u32| table[*c as usize] < below;
            let lowest = allowed.iter().filter(|&c| low(c)).map(|&c| table[c as usize]).min();
            let expected = lowest.map(|l| -> Vec<u32> {
                allowed.iter().copied().filter(|&c| table[c as usize] == l).collect()
            });
            for (f, rig) in &mut rigs {
                let found = rig.find(&allowed, below, cpu);
                prop_assert!(names(*f, found.clone(), &expected), "{:?} {:?}", f, found);
            }
            let found = near.find(&allowed, below, cpu);
            prop_assert_eq!(found.is_some(), expected.is_some());
            let Some(found) = found.map(|f| f[0]) else {
                continue;
            };
            prop_assert!(allowed.contains(&found) && low(&found));
            // Four CPUs are an LLC, eight a node.
            let same = |size: u32, a: u32, b: u32| a / size == b / size;
            for size in [4, 8] {
                let any = allowed.iter().any(|c| low(c) && same(size, *c, cpu));
                prop_assert!(!any || same(size, found, cpu));
            }
        }
    }
}
