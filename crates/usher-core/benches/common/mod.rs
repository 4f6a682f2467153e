// SPDX-License-Identifier: GPL-2.0-only
//! Machines, loads, and what the idle map is compared with.

#![allow(dead_code)] // not every program that includes it needs all of it

use std::ops::Range;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use usher_core::bench::{Lines, Places, BUSY};
use usher_core::{Core, Granularity, Level, Reason, Settings, Tables};
use usher_topo::{synthetic, Cid, Topology};

/// CPUs, and the machine that has them: per node LLCs of whole cores with two threads each.
pub const MACHINES: [(u32, &str); 6] = [
    (16, "numa:1 l3:1 core:8 pu:2"),
    (64, "numa:1 l3:4 core:8 pu:2"),
    (192, "numa:4 l3:1 core:24 pu:2"),
    (480, "numa:2 l3:1 core:120 pu:2"),
    (1024, "numa:8 l3:8 core:8 pu:2"),
    (4096, "numa:8 l3:32 core:8 pu:2"),
];

/// How many CPUs in a hundred run something.
pub const LOADS: [u32; 3] = [50, 95, 100];

/// For whole decisions, on 256 CPUs: a reason, who must be idle for it (every so manieth CPU of a range), and on
/// how many CPUs the tasks ran last.
pub const REASONS: [(Reason, Range<u32>, usize, u32); 9] = [
    (Reason::PrevCore, 0..256, 1, 16),
    (Reason::LlcCore, 2..256, 1, 2),
    (Reason::Prev, 0..16, 2, 1),
    (Reason::LlcCpu, 3..16, 2, 2),
    (Reason::NodeCore, 16..64, 1, 16),
    (Reason::NodeCpu, 16..64, 2, 16),
    (Reason::RemoteCore, 64..256, 1, 16),
    (Reason::RemoteCpu, 64..256, 2, 16),
    (Reason::Queued, 0..0, 1, 16),
];

/// The machine of [`REASONS`]: 4 nodes of 4 LLCs of 8 cores with 2 threads.
pub fn core_with_idle(idle: Range<u32>, step: usize) -> Core {
    let mut core = core(&topology("numa:4 l3:4 core:8 pu:2"), Granularity::Shard);
    for cid in idle.step_by(step) {
        core.idle_enter(Cid(cid));
    }
    core
}

/// The figure below which a tenth of them are.
pub fn low(of: impl Iterator<Item = f64>) -> f64 {
    let mut of: Vec<f64> = of.collect();
    of.sort_by(f64::total_cmp);
    of[of.len() / 10]
}

/// Both loops run so many rounds at the same time, each in a thread; the time of the slower one.
pub fn both(rounds: u64, [a, b]: [&mut (dyn FnMut(u64) -> u64 + Send); 2]) -> Duration {
    all(rounds, vec![Box::new(a), Box::new(b)])
}

/// The same of any number of threads, each on a CPU of its own as far as there are CPUs.
pub fn all(rounds: u64, loops: Vec<Box<dyn FnMut(u64) -> u64 + Send + '_>>) -> Duration {
    let barrier = &Barrier::new(loops.len());
    std::thread::scope(|scope| {
        let threads = loops.into_iter().zip(pins().iter().cycle());
        let threads = threads.map(|(mut run, &cpu)| {
            scope.spawn(move || {
                pin(cpu);
                barrier.wait();
                let start = Instant::now();
                std::hint::black_box(run(rounds));
                start.elapsed()
            })
        });
        let threads: Vec<_> = threads.collect();
        let times = threads
            .into_iter()
            .map(|thread| thread.join().expect("the loop does not panic"));
        times.max().unwrap_or_default()
    })
}

/// The CPUs that threads run on: the first threads of all cores, core by core and LLC by LLC, then the second ones.
fn pins() -> &'static [usize] {
    static PINS: OnceLock<Vec<usize>> = OnceLock::new();
    PINS.get_or_init(|| {
        let raw = usher_topo::Source::Live.read().expect("sysfs is there");
        let topo = Topology::build(&raw, 64).expect("this machine is sound");
        let allowed = allowed();
        let mut cids = topo.cids().to_vec();
        cids.retain(|info| allowed(info.cpu.0 as usize));
        cids.sort_by_key(|info| info.thread);
        cids.iter().map(|info| info.cpu.0 as usize).collect()
    })
}

/// The same, in words.
pub fn pinned() -> String {
    let pins: Vec<String> = pins().iter().map(usize::to_string).collect();
    pins.join(", ")
}

/// Whether this process may use a CPU.
fn allowed() -> impl Fn(usize) -> bool {
    // SAFETY: all bits zero is an empty set; the call fills it and gets its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let result = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        assert_eq!(result, 0, "this machine has more CPUs than a set holds");
        set
    };
    // SAFETY: the number is within the set's size.
    move |cpu| cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, &set) }
}

/// The calling thread runs there and nowhere else.
fn pin(cpu: usize) {
    // SAFETY: all bits zero is an empty set; the number is one that `allowed()` let through; the set is valid for the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Levels between which CPUs change: nothing urgent, and the real-time class's highest priority.
pub fn levels() -> [Level; 2] {
    [Level::LOWEST, Level::new(99).expect("a level")]
}

/// Whom searches of the CPU priority map find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// One CPU of the shard that is searched from.
    Near,
    /// The same at level 20, so that a search for the lowest level must ask all nodes for a lower one.
    Higher,
    /// One CPU of the last shard: in the last node.
    Far,
    None,
}

/// A machine with a CPU priority map on which everybody is at the higher level but the victim.
pub fn core_with_levels(topo: &Topology, granularity: Granularity, victim: Victim) -> Core {
    let settings = Settings {
        granularity,
        cpupri: true,
        ..Settings::default()
    };
    let mut core = Core::new(&Tables::from(topo), &settings).expect("the machine is within limits");
    let [low, high] = levels();
    let nr = topo.nr_cids() as u32;
    for cid in 0..nr {
        core.set_level(Cid(cid), Some(high));
    }
    match victim {
        Victim::Near => core.set_level(Cid(1), Some(low)),
        Victim::Higher => core.set_level(Cid(1), Level::new(20)),
        Victim::Far => core.set_level(Cid(nr - 1), Some(low)),
        Victim::None => {}
    }
    core
}

/// For two threads: 4 nodes of 2 LLCs of 8 cores with 2 threads, every other CPU idle.
pub fn core_for_two(granularity: Granularity) -> Core {
    let topo = topology("numa:4 l3:2 core:8 pu:2");
    let mut core = core(&topo, granularity);
    for cid in (0..topo.nr_cids() as u32).step_by(2) {
        core.idle_enter(Cid(cid));
    }
    core
}

/// A machine under a load, as each of the competitors sees it.
pub struct Stage {
    pub core: Core,
    /// Tasks that ran on the CPUs of the first shard.
    pub places: Places,
    pub nr_cids: usize,
    pub flags: Lines,
    pub global: Lines,
    /// The masks of nodes, the words of each, and the places as bits of them.
    pub nodes: Lines,
    pub node_words: usize,
}

pub fn topology(machine: &str) -> Topology {
    let raw = synthetic::parse(machine).expect("the description is sound");
    Topology::build(&raw, 64).expect("the machine is sound")
}

pub fn core(topo: &Topology, granularity: Granularity) -> Core {
    let settings = Settings {
        granularity,
        ..Settings::default()
    };
    Core::new(&Tables::from(topo), &settings).expect("the machine is within limits")
}

/// 256 places on the cids from `first` on, in an order without a pattern.
pub fn places(first: u32, nr: u32) -> Places {
    let mut random = 1_u32;
    let cids = (0..256).map(|_| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Cid(first + (random >> 16) % nr)
    });
    Places::new(cids.collect())
}

/// The idle CPUs: so many of each hundred, evenly spread, and in the first shard those that a loop holds.
pub fn idle_cids(topo: &Topology, busy: u32) -> Vec<Cid> {
    let nr = topo.nr_cids() as u32;
    let idle = nr * (100 - busy) / 100;
    let mut cids: Vec<Cid> = (0..idle).map(|i| Cid(i * nr / idle)).collect();
    let own = topo.shards()[0].cids;
    let more = own.iter().rev().filter(|cid| !cids.contains(cid));
    let more: Vec<Cid> = more.take(BUSY).collect();
    cids.extend(more);
    cids
}

impl Stage {
    pub fn new(machine: &str, busy: u32) -> Self {
        let topo = topology(machine);
        let nr_cids = topo.nr_cids();
        let nr_nodes = topo.nodes().len();
        let node_cids = nr_cids / nr_nodes;
        let node_words = node_cids.div_ceil(64).next_multiple_of(8);
        let own = topo.shards()[0].cids;
        let mut stage = Self {
            core: core(&topo, Granularity::Shard),
            places: places(0, own.len() as u32),
            nr_cids,
            flags: Lines::new(nr_cids * 8),
            global: Lines::new(nr_cids.div_ceil(64)),
            nodes: Lines::new(nr_nodes * node_words),
            node_words,
        };
        for cid in idle_cids(&topo, busy) {
            let at = cid.0 as usize;
            let in_node = at % node_cids;
            stage.core.idle_enter(cid);
            stage.flags.set(at * 8, 0);
            stage.global.set(at / 64, cid.0 % 64);
            let word = at / node_cids * node_words + in_node / 64;
            stage.nodes.set(word, in_node as u32 % 64);
        }
        stage
    }
}
