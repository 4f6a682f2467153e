// SPDX-License-Identifier: GPL-2.0-only
//! cyclictest (rt-tests) as `cyclictest -a -t 2 -n`: periodic threads, each pinned, that measure how
//! late they wake.
//!
//! ```text
//!  main ── creates the threads; shows the numbers every 10 ms
//!  thread n: clock_nanosleep to the next multiple of interval + n x distance; sample = now - due; repeat
//! ```
//!
//! Without a priority the threads are ordinary tasks, so timer slack is part of what they measure.

use std::sync::Arc;

use super::figures::{count, footprint, span, time, Args, Figure, MS, S, US};
use super::kit::{fork, nth_cpu, pinned, Draft};
use super::registry::{Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Class, Program, TaskCtx, TaskSpec};
use crate::world::{CounterId, LatencyId, ValueId, Word, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "cyclictest",
    about: "pinned periodic threads that measure how late they wake",
    figures: FIGURES,
    aliases: &[],
    published: &[
        Published::lower("latency-us", "latency_ns_mean").when("stat=avg"),
        Published::lower("latency-us", "latency_ns_min").when("stat=min"),
        Published::lower("latency-us", "latency_ns_max").when("stat=max"),
    ],
    make,
};

const FIGURES: &[Figure] = &[
    count(
        "threads",
        2,
        (1, 100_000),
        "threads (-t)",
        "the 2013 series",
    ),
    span(
        "interval",
        1_000 * US,
        "period of the first thread (-i)",
        "cyclictest's default",
    ),
    time(
        "distance",
        500 * US,
        "each further thread's period is longer by this (-d)",
        "cyclictest's default",
    ),
    count(
        "priority",
        0,
        (0, 99),
        "SCHED_FIFO priority of the first thread, one less for each further; 0: SCHED_OTHER (-p)",
        "cyclictest's default",
    ),
    super::figures::Figure {
        key: "pin",
        kind: super::figures::Kind::Flag(true),
        meaning: "thread n on CPU n (-a)",
        source: "the 2013 series",
    },
    time(
        "work",
        2 * US,
        "CPU time of a cycle",
        "assumed: clock reading and statistics",
    ),
    time(
        "display",
        10 * MS,
        "how often main shows the numbers; 0: never (-q)",
        "cyclictest: 10 ms",
    ),
    time(
        "display_work",
        60 * US,
        "CPU time of showing them",
        "assumed: a few lines to a terminal",
    ),
    time(
        "warmup",
        0,
        "time before the measurement",
        "cyclictest has none",
    ),
    span("runtime", 10 * S, "measured time (-D)", "the 2013 series"),
    footprint("footprint_kib", 16),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let plan = Arc::new(Plan {
        work: args.get("work"),
        latency: world.new_latency("latency"),
        least: world.new_value("latency_ns_min"),
        least_so_far: world.new_word(u64::MAX),
        cycles: world.new_counter("cycles"),
        from: args.get("warmup"),
    });
    let end = args.get("warmup") + args.get("runtime");
    let main = Main {
        end,
        display: args.get("display"),
        display_work: args.get("display_work"),
        threads: (0..args.get("threads"))
            .map(|n| thread(args, &plan, n))
            .collect(),
        show: false,
    };
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("cyclictest", main)],
        stop: Stop::At(end),
        warmup: args.get("warmup"),
        headline: ("latency_ns_mean", false),
        tail: Some("latency_ns_p99"),
        limits: &[],
    }
    .done())
}

fn thread(args: &Args<'_>, plan: &Arc<Plan>, n: u64) -> TaskSpec {
    let period = args.get("interval") + n * args.get("distance");
    let spec = TaskSpec::new(
        "thread",
        Thread {
            plan: plan.clone(),
            period,
            due: 0,
            step: 0,
        },
    )
    .thread()
    .group(1)
    .memory(args.get_u32("footprint_kib"), 0);
    let spec = match args.get("priority") {
        0 => spec,
        first => spec.class(Class::Fifo {
            prio: first.saturating_sub(n).max(1) as u8,
        }),
    };
    if args.flag("pin") {
        spec.affinity(pinned(nth_cpu(args.machine, n)))
    } else {
        spec
    }
}

struct Plan {
    work: Nanos,
    latency: LatencyId,
    least: ValueId,
    least_so_far: Word,
    cycles: CounterId,
    from: Nanos,
}

struct Main {
    end: Nanos,
    display: Nanos,
    display_work: Nanos,
    threads: std::collections::VecDeque<TaskSpec>,
    show: bool,
}

impl Program for Main {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        if let Some(thread) = self.threads.pop_front() {
            return fork(thread);
        }
        if self.display == 0 {
            return if ctx.now() < self.end {
                Action::SleepUntil(self.end)
            } else {
                Action::Exit
            };
        }
        self.show = !self.show;
        if self.show {
            Action::Sleep(self.display)
        } else {
            Action::Compute(self.display_work)
        }
    }
}

struct Thread {
    plan: Arc<Plan>,
    period: Nanos,
    due: Nanos,
    step: u32,
}

impl Program for Thread {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        match self.step {
            0 => self.due = ctx.now() + self.period,
            1 => {
                self.step = 2;
                let late = ctx.now().saturating_sub(self.due);
                ctx.sample(self.plan.latency, late);
                ctx.count(self.plan.cycles, 1);
                if ctx.now() >= self.plan.from && late < *ctx.word(self.plan.least_so_far) {
                    *ctx.word(self.plan.least_so_far) = late;
                    ctx.set_value(self.plan.least, late);
                }
                return Action::Compute(self.plan.work);
            }
            _ => {
                self.due += self.period;
                // Cycles that are already past are skipped, not made up for.
                let behind = ctx.now().saturating_sub(self.due);
                self.due += behind.div_ceil(self.period) * self.period;
            }
        }
        self.step = 1;
        Action::SleepUntil(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::run;
    use super::*;

    // Goal: thread n wakes every interval + n x distance, on CPU n, late by the timer slack unless it is
    // real-time.
    // Method: cycles and latencies of an undisturbed second, ordinary and SCHED_FIFO.
    #[test]
    fn periods_pins_and_slack() {
        for (pair, least, class) in [
            ("priority=0", 50_000, Class::NORMAL),
            ("priority=80", 0, Class::Fifo { prio: 79 }),
        ] {
            let ran = run("cyclictest", &[pair, "runtime=3s"], 1);
            // 1000 us and 1500 us periods in 3 s.
            assert!(
                ran.metric("cycles").abs_diff(3_000 + 2_000) <= 2,
                "{}",
                ran.metric("cycles")
            );
            let (min, max) = (ran.metric("latency_ns_min"), ran.metric("latency_ns_max"));
            assert!(
                min >= least && max < least + 10_000,
                "{pair}: {min} to {max}"
            );
            let threads = ran.named("thread");
            for (n, thread) in threads.iter().enumerate() {
                assert_eq!(ran.tasks[thread.index()].cpus, Some(vec![n as u32]));
            }
            assert_eq!(ran.tasks[threads[1].index()].class, class);
        }
    }

    // Goal: a thread that cannot keep up skips cycles and stays on its grid.
    // Method: work longer than the period: every other cycle is lost.
    #[test]
    fn missed_cycles_are_skipped() {
        let pairs = ["threads=1", "work=1500us", "runtime=2s", "display=0s"];
        let ran = run("cyclictest", &pairs, 1);
        assert!(
            ran.metric("cycles").abs_diff(1_000) <= 2,
            "{}",
            ran.metric("cycles")
        );
        assert!(ran.metric("latency_ns_max") < 60_000);
    }

    // Goal: main's display wakes it every 10 ms, and quiet keeps it asleep.
    // Method: its compute time.
    #[test]
    fn display_costs_time() {
        let shown = |pair| run("cyclictest", &["runtime=1s", pair], 1).tasks[0].computes;
        assert!((95..=100).contains(&shown("display=10ms")));
        assert_eq!(shown("display=0ms"), 0);
    }
}
