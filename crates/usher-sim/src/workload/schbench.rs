// SPDX-License-Identifier: GPL-2.0-only
//! schbench as it was until its rewrite of 2023, by default as of January 2020.
//!
//! ```text
//!  main ── creates message_threads messengers; each creates its workers; main sleeps until the end
//!  worker:    spin cputime; put itself on the messenger's list; post the messenger's futex;
//!             wait on its own futex; sample = now - stamp; repeat
//!  messenger: take the list; stamp once; wake every worker on it, last in first out, one after another;
//!             wait for a post; sleep sleeptime + up to a quarter more; repeat
//! ```
//!
//! A spin looks at the clock until cputime has gone by since it began, run or not (`usec_spin`): beside a busy thread of the core
//! it is no longer, and waiting for a CPU counts.
//!
//! All workers of a burst share one stamp, so a sample includes the worker's place in the burst. Posting
//! makes a system call only if somebody is blocked.

use std::sync::Arc;

use super::figures::{choice, count, footprint, span, time, Args, Figure, MS, S};
use super::kit::{fork, post, wait_while_blocked, Draft, BLOCKED, RUNNING};
use super::registry::{Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Program, TaskCtx, TaskSpec};
use crate::world::{CounterId, Futex, LatencyId, List, Word, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "schbench",
    about: "messengers that wake bursts of workers; how late does a woken worker run?",
    figures: FIGURES,
    aliases: &[],
    published: &[
        Published::lower("p99-latency-us", "latency_ns_p99"),
        Published::lower("p99-latency-normalized", "latency_ns_p99"),
    ],
    make,
};

const FIGURES: &[Figure] = &[
    count(
        "message_threads",
        2,
        (1, 100_000),
        "messengers (-m)",
        "schbench's default until 2023",
    ),
    count(
        "workers",
        16,
        (1, 100_000),
        "workers per messenger (-t)",
        "schbench's default until 2023",
    ),
    span(
        "cputime",
        30 * MS,
        "a worker's burst (-c)",
        "schbench's default of January 2020",
    ),
    time(
        "sleeptime",
        30 * MS,
        "a messenger's sleep (-s)",
        "schbench's default of January 2020",
    ),
    count(
        "jitter_permille",
        250,
        (0, 10_000),
        "a messenger sleeps up to this share of sleeptime longer",
        "schbench: up to a quarter",
    ),
    choice(
        "version",
        &["2020-01", "2020-10", "2021-12"],
        "since 2020-10 messengers spin too; since 2021-12 the sample includes the worker's burst",
        "January 2020: what the idle-mask proposal used",
    ),
    span(
        "runtime",
        10 * S,
        "measured time (-r)",
        "30 s in the program; shorter here",
    ),
    time(
        "warmup",
        500 * MS,
        "time before the measurement",
        "assumed: several bursts",
    ),
    footprint("footprint_kib", 32),
];

/// As many as 100,000 clients with a server each: more would fill the memory before the first of them runs.
const MOST_WORKERS: u64 = 200_000;

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let version = args.word("version");
    let cputime = args.get("cputime");
    let plan = Arc::new(Plan {
        workers: args.get("workers"),
        cputime,
        sleeptime: args.get("sleeptime"),
        jitter: u128::from(args.get("sleeptime")) * u128::from(args.get("jitter_permille")) / 1000,
        messenger_spin: (version != "2020-01").then_some(cputime),
        sample_after_work: version == "2021-12",
        latency: world.new_latency("latency"),
        loops: world.new_counter("loops"),
    });
    let messengers = args.get("message_threads");
    if messengers * args.get("workers") > MOST_WORKERS {
        let what =
            format!("times `message_threads` is more than {MOST_WORKERS} tasks; lower one of them");
        return Err(super::figures::bad("workers", &what));
    }
    let mut made = 0;
    let end = args.get("warmup") + args.get("runtime");
    let footprint = args.get_u32("footprint_kib");
    let main = move |ctx: &mut TaskCtx<'_>| {
        if made < messengers {
            made += 1;
            let messenger = Messenger::new(plan.clone(), ctx.world(), footprint);
            return fork(
                TaskSpec::new("messenger", messenger)
                    .thread()
                    .group(1)
                    .memory(footprint, 0),
            );
        }
        if ctx.now() < end {
            return Action::SleepUntil(end);
        }
        Action::Exit
    };
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("main", main)],
        stop: Stop::At(end),
        warmup: args.get("warmup"),
        headline: ("latency_ns_p99", false),
        tail: None,
        limits: &["modes -a, -p and -R of schbench are not modelled"],
    }
    .done())
}

struct Plan {
    workers: u64,
    cputime: Nanos,
    sleeptime: Nanos,
    jitter: u128,
    messenger_spin: Option<Nanos>,
    sample_after_work: bool,
    latency: LatencyId,
    loops: CounterId,
}

/// One messenger's meeting place.
#[derive(Clone, Copy)]
struct Meeting {
    futex: Futex,
    /// Numbers of the workers that wait, last in first.
    waiting: List,
}

struct Messenger {
    plan: Arc<Plan>,
    meeting: Meeting,
    /// Per worker: its futex, and the stamp of the wakeup that is under way.
    workers: Arc<[(Futex, Word)]>,
    footprint_kib: u32,
    born: u64,
    /// Workers of the burst that are still to be woken, next first.
    burst: std::collections::VecDeque<u64>,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Spin,
    Collect,
    Wake,
    Wait,
    Sleep,
}

impl Messenger {
    fn new(plan: Arc<Plan>, world: &mut World, footprint_kib: u32) -> Messenger {
        let meeting = Meeting {
            futex: world.new_futex(BLOCKED),
            waiting: world.new_list(),
        };
        let pair = |_| (world.new_futex(RUNNING), world.new_word(0));
        let workers = (0..plan.workers).map(pair).collect();
        let burst = std::collections::VecDeque::new();
        Messenger {
            plan,
            meeting,
            workers,
            footprint_kib,
            born: 0,
            burst,
            step: Step::Create,
        }
    }

    fn worker(&self, n: u64) -> TaskSpec {
        let (futex, stamp) = self.workers[n as usize];
        let worker = Worker {
            plan: self.plan.clone(),
            n,
            meeting: self.meeting,
            futex,
            stamp,
            step: WorkerStep::Spin,
        };
        TaskSpec::new("worker", worker)
            .thread()
            .group(2)
            .memory(self.footprint_kib, 0)
    }
}

impl Program for Messenger {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            match self.step {
                Step::Create if self.born < self.plan.workers => {
                    self.born += 1;
                    return fork(self.worker(self.born - 1));
                }
                Step::Create => self.step = Step::Spin,
                Step::Spin => {
                    self.step = Step::Collect;
                    if let Some(ns) = self.plan.messenger_spin {
                        return Action::Spin(ns);
                    }
                }
                Step::Collect => {
                    // From here on a post means that somebody came after the list was taken.
                    *ctx.futex(self.meeting.futex) = BLOCKED;
                    let burst = std::mem::take(ctx.list(self.meeting.waiting));
                    let now = ctx.now();
                    for n in &burst {
                        *ctx.word(self.workers[*n as usize].1) = now;
                    }
                    self.burst = burst;
                    self.step = Step::Wake;
                }
                Step::Wake => match self.burst.pop_front() {
                    Some(n) => {
                        let futex = self.workers[n as usize].0;
                        if post(ctx, futex) {
                            return Action::FutexWake { futex, count: 1 };
                        }
                    }
                    None => self.step = Step::Wait,
                },
                Step::Wait => {
                    let futex = self.meeting.futex;
                    if *ctx.futex(futex) == BLOCKED {
                        return wait_while_blocked(futex);
                    }
                    self.step = Step::Sleep;
                }
                Step::Sleep => {
                    self.step = Step::Spin;
                    let jitter = u64::try_from(self.plan.jitter).unwrap_or(u64::MAX);
                    return Action::Sleep(self.plan.sleeptime + ctx.rng().below(jitter));
                }
            }
        }
    }
}

struct Worker {
    plan: Arc<Plan>,
    n: u64,
    meeting: Meeting,
    futex: Futex,
    stamp: Word,
    step: WorkerStep,
}

enum WorkerStep {
    Spin,
    Enlist,
    Wait,
}

impl Program for Worker {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            match self.step {
                WorkerStep::Spin => {
                    self.step = WorkerStep::Enlist;
                    return Action::Spin(self.plan.cputime);
                }
                WorkerStep::Enlist => {
                    let stamp = *ctx.word(self.stamp);
                    if self.plan.sample_after_work && stamp > 0 {
                        self.sample(ctx, stamp);
                    }
                    *ctx.futex(self.futex) = BLOCKED;
                    ctx.list(self.meeting.waiting).push_front(self.n);
                    self.step = WorkerStep::Wait;
                    if post(ctx, self.meeting.futex) {
                        return Action::FutexWake {
                            futex: self.meeting.futex,
                            count: 1,
                        };
                    }
                }
                WorkerStep::Wait => {
                    let futex = self.futex;
                    if *ctx.futex(futex) == BLOCKED {
                        return wait_while_blocked(futex);
                    }
                    if !self.plan.sample_after_work {
                        let stamp = *ctx.word(self.stamp);
                        self.sample(ctx, stamp);
                    }
                    self.step = WorkerStep::Spin;
                }
            }
        }
    }
}

impl Worker {
    fn sample(&self, ctx: &mut TaskCtx<'_>, stamp: Nanos) {
        ctx.sample(self.plan.latency, ctx.now() - stamp);
        ctx.count(self.plan.loops, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{run, By};
    use super::*;

    // Goal: the graph is schbench's: only workers wake messengers, only messengers wake workers, by
    // futexes, never synchronously; each woken worker gives one sample.
    // Method: the kinds of wakeups of a short run.
    #[test]
    fn wakes_are_those_of_schbench() {
        for seed in 0..5 {
            let pairs = ["message_threads=3", "workers=4", "runtime=1s", "warmup=0s"];
            let ran = run("schbench", &pairs, seed);
            for ((from, to, by, sync), _) in ran.graph() {
                match (from.as_str(), to.as_str(), by) {
                    ("worker", "messenger", By::Futex) | ("messenger", "worker", By::Futex) => {
                        assert!(!sync);
                    }
                    ("timer", "messenger" | "main", By::Timer) => {}
                    other => panic!("{other:?} does not happen in schbench"),
                }
            }
            let woken = ran.count_wakes("messenger", "worker", By::Futex);
            let samples = ran.metric("latency_count");
            assert!(
                woken >= samples && woken <= samples + 12,
                "{woken} wakeups, {samples} samples"
            );
            // 30 ms of work, then a wait for the next burst, which come every 30 to 37.5 ms and more.
            assert!((12 * 12..=12 * 17).contains(&samples), "{samples}");
        }
    }

    // Goal: a burst is woken serially, last in first out, and all its samples start at one stamp.
    // Method: workers in lockstep; every burst wakes all four in reverse order of arrival, and later
    // places in the burst wait longer.
    #[test]
    fn a_burst_is_serial() {
        let pairs = [
            "message_threads=1",
            "workers=4",
            "runtime=2s",
            "warmup=0s",
            "sleeptime=100ms",
        ];
        let ran = run("schbench", &pairs, 3);
        let workers = ran.named("worker");
        let bursts: Vec<_> = ran
            .wakes
            .chunk_by(|a, b| b.at.saturating_sub(a.at) < MS)
            .map(|burst| {
                burst
                    .iter()
                    .filter(|w| workers.contains(&w.wakee))
                    .collect::<Vec<_>>()
            })
            .filter(|burst| burst.len() == 4)
            .collect();
        assert!(bursts.len() > 5, "{}", bursts.len());
        for burst in bursts {
            assert!(
                burst.windows(2).all(|w| w[0].at < w[1].at),
                "one after another"
            );
        }
        assert!(ran.metrics["latency_ns_max"] > ran.metrics["latency_ns_p50"]);
    }

    // Goal: the later versions differ as they did: messengers spin, and samples include the burst.
    // Method: compute time of the messenger, and the least sample.
    #[test]
    fn versions_differ() {
        let spin = |version: &str| {
            let pairs = [&format!("version={version}")[..], "runtime=1s", "workers=2"];
            let ran = run("schbench", &pairs, 1);
            let messenger = ran.named("messenger")[0];
            (
                ran.tasks[messenger.index()].compute > 0,
                ran.metrics["latency_ns_p50"] > 30e6,
            )
        };
        assert_eq!(spin("2020-01"), (false, false));
        assert_eq!(spin("2020-10"), (true, false));
        assert_eq!(spin("2021-12"), (true, true));
    }
}
