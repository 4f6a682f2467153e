// SPDX-License-Identifier: GPL-2.0-only
//! stress-ng's cyclic stressor, as `stress-ng --cyclic N --cyclic-policy fifo`: real-time processes that
//! sleep a short while over and over.
//!
//! ```text
//!  main ── forks the instances; each: SCHED_FIFO 99; then: sleep 100 us; sample = how much longer it took
//! ```

use std::sync::Arc;

use super::figures::{count, footprint, span, time, Args, Figure, Kind, MS, US};
use super::kit::{fork, Draft};
use super::registry::{Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Class, Program, TaskCtx, TaskSpec};
use crate::world::{CounterId, LatencyId, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "stress-ng-cyclic",
    about: "real-time processes that sleep 100 us over and over",
    figures: FIGURES,
    aliases: &[],
    published: &[Published::higher("change-pct", "bogo_ops_per_s")],
    make,
};

const FIGURES: &[Figure] = &[
    Figure {
        key: "instances",
        kind: Kind::PerCpus {
            cpus: 1,
            high: 100_000,
        },
        meaning: "processes (--cyclic)",
        source: "the CPU-priority proposal: one per CPU",
    },
    time(
        "sleep",
        100 * US,
        "a cycle's sleep (--cyclic-sleep)",
        "stress-ng's default",
    ),
    count(
        "priority",
        99,
        (1, 99),
        "SCHED_FIFO priority (--cyclic-prio)",
        "stress-ng: the highest",
    ),
    time(
        "work",
        500,
        "CPU time of a cycle besides its system calls",
        "assumed: two clock readings",
    ),
    time(
        "warmup",
        50 * MS,
        "time before the measurement, from the first fork",
        "assumed: all forked",
    ),
    span(
        "runtime",
        50 * MS,
        "measured time (-t)",
        "60 s in the proposal; shorter here",
    ),
    footprint("footprint_kib", 16),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let plan = Arc::new(Plan {
        class: Class::Fifo {
            prio: args.get("priority") as u8,
        },
        sleep: args.get("sleep"),
        work: args.get("work"),
        latency: world.new_latency("latency"),
        ops: world.new_counter("bogo_ops"),
    });
    let (mut left, footprint) = (args.get("instances"), args.get_u32("footprint_kib"));
    let main = move |_: &mut TaskCtx<'_>| {
        if left == 0 {
            return Action::WaitAnyChild;
        }
        left -= 1;
        let instance = Instance {
            plan: plan.clone(),
            began: 0,
            step: Step::Class,
        };
        fork(
            TaskSpec::new("cyclic", instance)
                .group(1)
                .memory(footprint, 0),
        )
    };
    let end = args.get("warmup") + args.get("runtime");
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("stress-ng", main)],
        stop: Stop::At(end),
        warmup: args.get("warmup"),
        headline: ("bogo_ops_per_s", true),
        tail: Some("latency_ns_p99"),
        limits: &["the parent process that stress-ng keeps per instance is not modelled"],
    }
    .done())
}

struct Plan {
    class: Class,
    sleep: Nanos,
    work: Nanos,
    latency: LatencyId,
    ops: CounterId,
}

struct Instance {
    plan: Arc<Plan>,
    began: Nanos,
    step: Step,
}

enum Step {
    Class,
    Sleep,
    Woken,
}

impl Program for Instance {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        match self.step {
            Step::Class => {
                self.step = Step::Sleep;
                Action::SetClass(self.plan.class)
            }
            Step::Sleep => {
                self.step = Step::Woken;
                self.began = ctx.now();
                Action::Sleep(self.plan.sleep)
            }
            Step::Woken => {
                self.step = Step::Sleep;
                let took = ctx.now() - self.began;
                ctx.sample(self.plan.latency, took.saturating_sub(self.plan.sleep));
                ctx.count(self.plan.ops, 1);
                Action::Compute(self.plan.work)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::run;

    // Goal: every instance is FIFO 99 and does one operation per sleep, woken by its timer alone.
    // Method: sleeps against operations; latencies without slack.
    #[test]
    fn one_operation_per_sleep() {
        for seed in 0..3 {
            let ran = run(
                "stress-ng-cyclic",
                &["instances=7", "warmup=0ms", "runtime=20ms"],
                seed,
            );
            let instances = ran.named("cyclic");
            assert_eq!(instances.len(), 7);
            assert!(instances
                .iter()
                .all(|t| ran.tasks[t.index()].class.rt_prio() == 99));
            let sleeps: u64 = instances.iter().map(|t| ran.tasks[t.index()].sleeps).sum();
            let ops = ran.metric("bogo_ops");
            assert!(
                sleeps - ops <= 7 && ops > 7 * 180,
                "{sleeps} sleeps, {ops} operations"
            );
            assert!(ran.wakes.iter().all(|w| w.waker.is_none()));
            assert!(
                ran.metric("latency_ns_max") < 10_000,
                "real-time tasks have no timer slack"
            );
        }
    }
}
