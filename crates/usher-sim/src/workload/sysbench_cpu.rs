// SPDX-License-Identifier: GPL-2.0-only
//! sysbench's CPU test (0.4, as of 2013): threads that take requests out of a common pool.
//!
//! ```text
//!  main ── holds the start mutex; creates the threads; lets go; joins them
//!  worker: lock and unlock the start mutex; then: take a request under the pool's mutex, compute; repeat
//! ```
//!
//! The 2013 series published threads x elapsed time ("execution time ... total time taken by event
//! execution"), which is [`time_ns`](INFO) here; `elapsed_ns` is the wall time.

use std::sync::Arc;

use super::figures::{count, footprint, span, Args, Figure, US};
use super::kit::{fork, forked, Draft, Join};
use super::registry::{Alias, Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Program, TaskCtx, TaskSpec};
use crate::world::{CounterId, LatencyId, Mutex, MutexKind, ValueId, Word, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "sysbench-cpu",
    about: "threads that compute requests out of a common pool",
    figures: FIGURES,
    aliases: &[
        Alias {
            name: "sysbench-cpu-1t",
            implies: &[("threads", "1")],
        },
        Alias {
            name: "sysbench-cpu-2t",
            implies: &[("threads", "2")],
        },
        Alias {
            name: "sysbench-cpu-5t",
            implies: &[("threads", "5")],
        },
    ],
    published: &[Published::lower("time-s", "time_ns")],
    make,
};

const FIGURES: &[Figure] = &[
    count(
        "threads",
        1,
        (1, 100_000),
        "threads (--num-threads)",
        "sysbench's default",
    ),
    count(
        "requests",
        1_000,
        (1, 100_000_000),
        "requests in the pool (--max-requests)",
        "the 2013 series",
    ),
    span(
        "request",
        16_470 * US,
        "CPU time of a request on the strongest core type",
        "the 2013 series: 16.47 s for 1000 requests on a Cortex-A15",
    ),
    footprint("footprint_kib", 16),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let plan = Arc::new(Plan {
        request: args.get("request"),
        start: world.new_mutex(MutexKind::Barging),
        pool: world.new_mutex(MutexKind::Barging),
        left: world.new_word(args.get("requests")),
        done: world.new_counter("requests"),
        latency: world.new_latency("request"),
        elapsed: world.new_value("elapsed_ns"),
        time: world.new_value("time_ns"),
    });
    let main = Main {
        plan,
        threads: args.get("threads"),
        made: 0,
        join: Join::default(),
        began: 0,
        footprint_kib: args.get_u32("footprint_kib"),
        step: Step::Hold,
    };
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("sysbench", main)],
        stop: Stop::FirstExit,
        warmup: 0,
        headline: ("time_ns", false),
        tail: Some("request_ns_p99"),
        limits: &[],
    }
    .done())
}

struct Plan {
    request: Nanos,
    start: Mutex,
    pool: Mutex,
    left: Word,
    done: CounterId,
    latency: LatencyId,
    elapsed: ValueId,
    time: ValueId,
}

struct Main {
    plan: Arc<Plan>,
    threads: u64,
    made: u64,
    join: Join,
    began: Nanos,
    footprint_kib: u32,
    step: Step,
}

enum Step {
    Hold,
    Create,
    Created,
    Release,
    Join,
}

impl Program for Main {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            match self.step {
                Step::Hold => {
                    self.step = Step::Create;
                    return Action::Lock(self.plan.start);
                }
                Step::Create if self.made < self.threads => {
                    self.made += 1;
                    self.step = Step::Created;
                    let worker = Worker {
                        plan: self.plan.clone(),
                        began: 0,
                        step: WorkerStep::Wait,
                    };
                    let spec = TaskSpec::new("worker", worker).thread().group(1);
                    return fork(spec.memory(self.footprint_kib, 0));
                }
                Step::Create => self.step = Step::Release,
                Step::Created => {
                    self.join.add(forked(ctx));
                    self.step = Step::Create;
                }
                Step::Release => {
                    self.step = Step::Join;
                    self.began = ctx.now();
                    return Action::Unlock(self.plan.start);
                }
                Step::Join => {
                    if let Some(wait) = self.join.next() {
                        return wait;
                    }
                    let elapsed = ctx.now() - self.began;
                    ctx.set_value(self.plan.elapsed, elapsed);
                    ctx.set_value(self.plan.time, elapsed * self.threads);
                    return Action::Exit;
                }
            }
        }
    }
}

struct Worker {
    plan: Arc<Plan>,
    began: Nanos,
    step: WorkerStep,
}

enum WorkerStep {
    Wait,
    Go,
    Ask,
    Take,
    Compute(bool),
    Done,
}

impl Program for Worker {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            match self.step {
                WorkerStep::Wait => {
                    self.step = WorkerStep::Go;
                    return Action::Lock(self.plan.start);
                }
                WorkerStep::Go => {
                    self.step = WorkerStep::Ask;
                    return Action::Unlock(self.plan.start);
                }
                WorkerStep::Ask => {
                    self.step = WorkerStep::Take;
                    return Action::Lock(self.plan.pool);
                }
                WorkerStep::Take => {
                    let left = ctx.word(self.plan.left);
                    self.step = WorkerStep::Compute(*left > 0);
                    *left = left.saturating_sub(1);
                    return Action::Unlock(self.plan.pool);
                }
                WorkerStep::Compute(false) => return Action::Exit,
                WorkerStep::Compute(true) => {
                    self.step = WorkerStep::Done;
                    self.began = ctx.now();
                    return Action::Compute(self.plan.request);
                }
                WorkerStep::Done => {
                    ctx.count(self.plan.done, 1);
                    ctx.sample(self.plan.latency, ctx.now() - self.began);
                    self.step = WorkerStep::Ask;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::run;

    // Goal: exactly the pool's requests are computed, whoever takes them, and the published time is
    // threads x elapsed.
    // Method: several thread counts; with a CPU each, n threads take the time of one n-th.
    #[test]
    fn the_pool_is_emptied_once() {
        for threads in [1u64, 2, 5] {
            let ran = run(&format!("sysbench-cpu-{threads}t"), &[], threads);
            assert_eq!(ran.metric("requests"), 1000);
            assert_eq!(ran.metric("time_ns"), threads * ran.metric("elapsed_ns"));
            let work: u64 = ran.tasks.iter().map(|t| t.compute).sum();
            assert_eq!(work, 16_470_000_000);
            let ideal = 16_470_000_000 / threads;
            let elapsed = ran.metric("elapsed_ns");
            assert!(
                elapsed >= ideal && elapsed < ideal + ideal / 50,
                "{threads}: {elapsed}"
            );
        }
        assert_eq!(
            run("sysbench-cpu-5t", &["threads=3"], 1).tasks.len(),
            4,
            "--set wins over the name"
        );
    }

    // Goal: nobody computes before all are created.
    // Method: the start mutex is held until then, so every worker's first wakeup comes through it.
    #[test]
    fn all_start_together() {
        let ran = run("sysbench-cpu", &["threads=4", "requests=8"], 2);
        let mutex = super::super::testkit::By::Mutex;
        assert!(
            ran.count_wakes("sysbench", "worker", mutex) == 1,
            "main wakes the first"
        );
        assert!(
            ran.count_wakes("worker", "worker", mutex) >= 3,
            "each wakes the next"
        );
    }
}
