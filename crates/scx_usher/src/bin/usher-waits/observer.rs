// SPDX-License-Identifier: GPL-2.0-only
//! The observer in the kernel, loaded and asked.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io::{self, Read as _, Write};
use std::mem::{size_of, MaybeUninit};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Iter, MapCore as _, MapFlags, OpenObject, RingBuffer, RingBufferBuilder};
use serde::Serialize;
use usher_report::waits::{self, Kind, Near, Report, Slow, Sum, Task};
use usher_topo::{parse_cpulist, Id as _, Source, Topology, MAX_SHARD_WIDTH};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/waits_skel.rs"));
}
use skel::{WaitsSkel, WaitsSkelBuilder};

// As in bpf/waits.h.
const MAX_CPUS: usize = 4096;
const COMM: usize = 16;
const OBSERVING: u32 = 1;
const ENDED: u32 = 2;
const NOT_YET: u32 = u32::MAX;
const LEAST_NS: u64 = 1000;
const PARTS: usize = 90;
const STEPS: usize = 2 + 9 * PARTS;
const KINDS: usize = 4;

/// `struct waits_task`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawTask {
    pid: u32,
    comm: [u8; COMM],
}

/// `struct waits_slow`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawSlow {
    began_ns: u64,
    wait_ns: u64,
    kind: u32,
    sent_to: u32,
    got: u32,
    near: [u32; 3],
    task: RawTask,
    waker: RawTask,
    behind: RawTask,
}

/// `struct waits_sum`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawSum {
    total_ns: u64,
    max_ns: u64,
    beside_ns: [u64; 3],
    steps: [u64; STEPS],
}

/// `struct waits_sums`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawSums {
    kinds: [RawSum; KINDS],
    missed: u64,
    lost: u64,
    scratch: [u32; 4],
}

/// Structures of whole numbers, as bytes from the kernel.
trait Plain: Copy {}
impl Plain for RawSlow {}
impl Plain for RawSums {}

fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are that many bytes, and any make a whole number.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// What to observe.
pub struct Wanted {
    /// From when on a wait is slow.
    pub slow: Duration,
    /// How many of the slowest to keep.
    pub slowest: usize,
    /// Of this process alone.
    pub pid: Option<u32>,
}

/// Everything that was seen.
#[derive(Serialize)]
pub struct Seen {
    schema: &'static str,
    /// For how long it was observed.
    seconds: f64,
    #[serde(flatten)]
    waits: Report,
}

impl Seen {
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "observed for {:.3} s\n", self.seconds)?;
        self.waits.write(out)
    }
}

/// By how long it took.
#[derive(Clone, Copy)]
struct Kept(RawSlow);

impl Kept {
    fn order(&self) -> (u64, Reverse<u64>, u32) {
        (self.0.wait_ns, Reverse(self.0.began_ns), self.0.task.pid)
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Kept) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Kept) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Kept) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Kept {}

/// The slowest of one sort.
#[derive(Default)]
struct Slowest(BinaryHeap<Reverse<Kept>>);

impl Slowest {
    fn add(&mut self, slow: RawSlow, keep: usize) {
        self.0.push(Reverse(Kept(slow)));
        if self.0.len() > keep {
            self.0.pop();
        }
    }

    /// What another one has to exceed to be among so many.
    fn floor_ns(&self, keep: usize) -> u64 {
        match self.0.peek() {
            Some(Reverse(least)) if self.0.len() >= keep => least.0.wait_ns,
            None if keep == 0 => u64::MAX,
            _ => 0,
        }
    }

    fn longest_first(self) -> Vec<RawSlow> {
        let sorted = self.0.into_sorted_vec();
        sorted.into_iter().map(|Reverse(Kept(slow))| slow).collect()
    }
}

pub struct Observer<'a> {
    skel: WaitsSkel<'a>,
    ring: RingBuffer<'static>,
    /// What has arrived in the ring.
    received: Arc<Mutex<Vec<RawSlow>>>,
    /// Woken or born, and stopped.
    slowest: [Slowest; 2],
    wanted: Wanted,
    /// CPUs that were online when it began.
    cpus: Vec<u32>,
    /// When it began, on the kernel's clock.
    began_ns: u64,
}

impl<'a> Observer<'a> {
    /// Loads and attaches it.
    ///
    /// # Errors
    /// The topology cannot be read, or the kernel refuses.
    pub fn attach(object: &'a mut MaybeUninit<OpenObject>, wanted: Wanted) -> Result<Observer<'a>> {
        let raw = Source::Live
            .read()
            .context("cannot read this machine's topology")?;
        let topo = Topology::build(&raw, MAX_SHARD_WIDTH)?;
        let mut open = WaitsSkelBuilder::default()
            .open(object)
            .context("cannot open the observer")?;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let rodata = rodata.context("the observer has no constants")?;
        rodata.waits_slow_ns = wanted.slow.as_nanos() as u64;
        rodata.waits_tgid = wanted.pid.unwrap_or(0);
        for info in topo.cids() {
            let cpu = info.cpu.index();
            anyhow::ensure!(
                cpu < MAX_CPUS,
                "CPU {cpu}: there is room for CPUs 0 to {}",
                MAX_CPUS - 1
            );
            rodata.waits_nr_cpus = rodata.waits_nr_cpus.max(cpu as u32 + 1);
            rodata.waits_llc[cpu] = info.llc.index() as u16;
            rodata.waits_node[cpu] = info.node.index() as u16;
        }
        let loaded = open.load();
        let mut skel = loaded
            .context("the kernel does not load the observer; --verbose tells what it says")?;
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&received);
        let mut ring = RingBufferBuilder::new();
        ring.add(&skel.maps.waits_slow, move |bytes| {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.extend(from_bytes::<RawSlow>(bytes));
            0
        })?;
        let ring = ring.build()?;
        skel.attach()
            .context("the kernel does not attach the observer")?;
        let mut observer = Observer {
            skel,
            ring,
            received,
            slowest: Default::default(),
            wanted,
            cpus: topo.cids().iter().map(|info| info.cpu.0).collect(),
            began_ns: monotonic_ns(),
        };
        observer.set_floors()?;
        observer.variables()?.waits_phase = OBSERVING;
        observer.look_at_all()?;
        observer.mark_idle_cpus()?;
        Ok(observer)
    }

    /// CPUs that have not switched since it began, and on which nobody was seen to run, idle.
    fn mark_idle_cpus(&mut self) -> Result<()> {
        let now = monotonic_ns();
        let cpus = std::mem::take(&mut self.cpus);
        let variables = self.variables()?;
        for cpu in cpus.iter().map(|cpu| *cpu as usize) {
            let (runs, own) = (&variables.waits_runs[cpu], &mut variables.waits_cpus[cpu]);
            if runs.ours == 0 && runs.task.pid == 0 {
                own.idle_since = now;
            }
        }
        self.cpus = cpus;
        Ok(())
    }

    /// Becomes readable when something has arrived.
    pub fn arrives(&self) -> RawFd {
        self.ring.epoll_fd()
    }

    /// Takes what has arrived.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&mut self) -> Result<()> {
        self.ring.consume().context("cannot read slow waits")?;
        let received =
            std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner));
        if received.is_empty() {
            return Ok(());
        }
        for slow in received {
            let stopped = slow.kind >= Kind::Stopped as u32;
            self.slowest[usize::from(stopped)].add(slow, self.wanted.slowest);
        }
        self.set_floors()
    }

    /// Has the kernel look at all tasks: who waits already when it begins, or still when it ends.
    fn look_at_all(&mut self) -> Result<()> {
        let look = self.skel.links.waits_all.as_ref();
        let mut look = Iter::new(look.context("the observer's iterator is not attached")?)?;
        look.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    /// What is not among the slowest need not be told any more.
    fn set_floors(&mut self) -> Result<()> {
        let floors = [0, 1].map(|i| self.slowest[i].floor_ns(self.wanted.slowest));
        self.variables()?.waits_floor_ns = floors;
        Ok(())
    }

    fn variables(&mut self) -> Result<&mut skel::types::bss> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        bss.context("the observer has no variables")
    }

    /// What was seen, after that much time.
    ///
    /// # Errors
    /// The kernel's.
    pub fn finish(mut self, took: Duration) -> Result<Seen> {
        self.receive()?;
        self.variables()?.waits_phase = ENDED;
        // Who began to note something before is done by then.
        std::thread::sleep(Duration::from_millis(10));
        self.look_at_all()?;
        self.receive()?;
        let told_not = self.variables()?.waits_told_not;
        let sums = self
            .skel
            .maps
            .waits_sums
            .lookup_percpu(&KEY, MapFlags::ANY)?;
        let sums: Vec<RawSums> = sums
            .iter()
            .flatten()
            .filter_map(|bytes| from_bytes(bytes))
            .collect();
        let missed: u64 = sums.iter().map(|sums| sums.missed).sum();
        let lost: u64 = sums.iter().map(|sums| sums.lost).sum();
        let [sent, stopped] = self.slowest;
        let shown = |slowest: Slowest| {
            let slowest = slowest.longest_first();
            slowest
                .iter()
                .map(|slow| slow.shown(self.began_ns))
                .collect()
        };
        Ok(Seen {
            schema: "usher-waits/1",
            seconds: took.as_secs_f64(),
            waits: Report {
                kinds: Kind::ALL.map(|kind| sum(kind, &sums)).to_vec(),
                slowest: shown(sent),
                slowest_stopped: shown(stopped),
                notes: notes(
                    &self.wanted,
                    came_or_went(&self.cpus),
                    [missed, lost, told_not],
                ),
            },
        })
    }
}

/// The one element of the map.
const KEY: [u8; 4] = [0; 4];

fn notes(wanted: &Wanted, came_or_went: bool, counts: [u64; 3]) -> Vec<String> {
    let slow = wanted.slow.as_micros();
    let mut notes = vec![
        format!("beside an idle CPU: slow waits, of {slow} us and longer, in which a CPU idled all the while that the task may run on; of all waiting"),
        "idle CPUs: those that idled all the while".into(),
        "stopped, CPU idle: a limit (cpu.max) kept the task from running, or the scheduler had it wait though its CPU idled".into(),
    ];
    if came_or_went {
        notes.push("CPUs came or went meanwhile: those that went may count as idle, and those that came do not".into());
    }
    let what = [
        "waits could not be noted",
        "switches were not told by the kernel: what began or ended with them is left out",
        "slow waits came too fast to be looked at one by one",
    ];
    let counted = counts.iter().zip(what).filter(|(n, _)| **n > 0);
    notes.extend(counted.map(|(n, what)| format!("{n} {what}")));
    notes
}

/// Whether other CPUs are online than these.
fn came_or_went(cpus: &[u32]) -> bool {
    let Ok(text) = std::fs::read_to_string("/sys/devices/system/cpu/online") else {
        return false;
    };
    let mut known = cpus.to_vec();
    known.sort_unstable();
    parse_cpulist(text.trim(), MAX_CPUS as u32).is_ok_and(|online| online != known)
}

/// What `bpf_ktime_get_ns()` counts.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one such structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl RawTask {
    fn shown(&self) -> Option<Task> {
        let end = self.comm.iter().position(|byte| *byte == 0).unwrap_or(COMM);
        (self.pid != 0).then(|| Task {
            id: self.pid,
            name: String::from_utf8_lossy(&self.comm[..end]).into_owned(),
        })
    }
}

impl RawSlow {
    fn shown(&self, began_ns: u64) -> Slow {
        let [llc, node, machine] = self.near.map(u64::from);
        let kind = Kind::ALL[self.kind as usize % KINDS];
        Slow {
            wait_ns: self.wait_ns,
            began_ns: self.began_ns.saturating_sub(began_ns),
            task: self.task.shown().unwrap_or(Task {
                id: 0,
                name: "idle".into(),
            }),
            kind,
            waker: self.waker.shown().filter(|_| kind != Kind::Stopped),
            reason: None,
            sent_to: self.sent_to,
            behind: self.behind.shown(),
            got: (self.got != NOT_YET).then_some(self.got),
            idle: Near { llc, node, machine },
        }
    }
}

/// The least and the greatest wait of a step.
fn bounds_of(step: usize) -> (u64, u64) {
    let low = |step: usize| match step.checked_sub(1) {
        None => 0,
        Some(step) => {
            let tenth = LEAST_NS / 10 * 10_u64.pow((step / PARTS) as u32);
            (10 + step % PARTS) as u64 * tenth
        }
    };
    match step + 1 == STEPS {
        true => (low(step), u64::MAX),
        false => (low(step), low(step + 1) - 1),
    }
}

/// All waits of one kind on all CPUs.
fn sum(kind: Kind, cpus: &[RawSums]) -> Sum {
    let of_cpus = || cpus.iter().map(|sums| &sums.kinds[kind as usize]);
    let add = |of: fn(&RawSum) -> u64| -> u64 { of_cpus().map(of).sum() };
    let max_ns = of_cpus().map(|sum| sum.max_ns).max().unwrap_or(0);
    let steps: Vec<u64> = (0..STEPS)
        .map(|i| of_cpus().map(|sum| sum.steps[i]).sum())
        .collect();
    let (count, total_ns) = (steps.iter().sum(), add(|sum| sum.total_ns));
    let quantile = |q: f64| {
        let mut left = (count as f64 * q).ceil() as u64;
        let step = steps.iter().position(|n| {
            left = left.saturating_sub(*n);
            left == 0
        });
        step.map_or(0, |step| bounds_of(step).1.min(max_ns))
    };
    // A bound is where a step ends; a wait of just that long counts beyond it.
    let up_to = |bound: u64| -> u64 {
        let within = |step: &usize| bounds_of(*step).1 < bound;
        (0..STEPS).take_while(within).map(|step| steps[step]).sum()
    };
    Sum {
        kind,
        count,
        total_ns,
        known_ns: total_ns,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        max_ns,
        beside_idle_ns: Near {
            llc: add(|sum| sum.beside_ns[0]),
            node: add(|sum| sum.beside_ns[1]),
            machine: add(|sum| sum.beside_ns[2]),
        },
        histogram: waits::histogram(count, max_ns, up_to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: structures are laid out as in bpf/waits.h, and fit into what the kernel gives each CPU. Method: sizes by hand.
    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!(size_of::<RawTask>(), 20);
        assert_eq!(size_of::<RawSlow>(), 16 + 6 * 4 + 3 * 20 + 4);
        assert_eq!(size_of::<RawSums>(), KINDS * 8 * (5 + STEPS) + 16 + 16);
        assert!(size_of::<RawSums>() <= 32 << 10);
    }

    // Goal: steps follow each other without a gap, ten for each beginning of a decade.
    #[test]
    fn steps_follow_each_other() {
        assert_eq!(bounds_of(0), (0, 999));
        assert_eq!(bounds_of(1), (1_000, 1_099));
        assert_eq!(bounds_of(90), (9_900, 9_999));
        assert_eq!(bounds_of(91), (10_000, 10_999));
        assert_eq!(bounds_of(STEPS - 1), (1_000_000_000_000, u64::MAX));
        for step in 1..STEPS {
            assert_eq!(bounds_of(step).0, bounds_of(step - 1).1 + 1);
        }
    }

    // Goal: quantiles and histogram are of all CPUs together. Method: 98 waits of 4.9 us on one CPU, two of 3 ms on another.
    #[test]
    fn sums_are_of_all_cpus() {
        // SAFETY: any bytes make whole numbers.
        let mut cpus = [unsafe { std::mem::zeroed::<RawSums>() }; 2];
        let step_of = |ns| (0..STEPS).find(|step| bounds_of(*step).1 >= ns).unwrap();
        for (cpu, n, ns) in [(0, 98, 4_900), (1, 2, 3_000_000)] {
            let sum = &mut cpus[cpu].kinds[Kind::Behind as usize];
            (sum.total_ns, sum.max_ns) = (n * ns, ns);
            sum.steps[step_of(ns)] = n;
        }
        let sum = sum(Kind::Behind, &cpus);
        assert_eq!(
            (sum.count, sum.total_ns, sum.max_ns),
            (100, 6_480_200, 3_000_000)
        );
        assert_eq!((sum.p50_ns, sum.p99_ns), (4_999, 3_000_000));
        let counts: Vec<(u64, u64)> = sum
            .histogram
            .iter()
            .map(|s| (s.up_to_ns, s.count))
            .collect();
        assert_eq!(counts.first(), Some(&(5_000, 98)));
        assert_eq!(counts.last(), Some(&(5_000_000, 2)));
    }

    // Goal: the slowest are kept, and what is not among them need not be told.
    #[test]
    fn the_slowest_are_kept() {
        // SAFETY: any bytes make whole numbers.
        let slow = |wait_ns| RawSlow {
            wait_ns,
            ..unsafe { std::mem::zeroed() }
        };
        let mut slowest = Slowest::default();
        assert_eq!((slowest.floor_ns(2), slowest.floor_ns(0)), (0, u64::MAX));
        for wait_ns in [3, 9, 5, 7] {
            slowest.add(slow(wait_ns), 2);
        }
        assert_eq!(slowest.floor_ns(2), 7);
        let kept: Vec<u64> = slowest.longest_first().iter().map(|s| s.wait_ns).collect();
        assert_eq!(kept, [9, 7]);
    }
}
