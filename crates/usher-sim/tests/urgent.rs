// SPDX-License-Identifier: GPL-2.0-only
//! usher: a latency-critical task that finds nobody idle takes the CPU of one that is less urgent, as it does in the kernel
//! (`tests/preempt.rs` of the lab).

mod common;

use common::*;
use usher_sim::program::{Action, Class, TaskCtx, TaskSpec};
use usher_sim::world::World;
use usher_sim::{Nanos, Report};

/// Works for so long every 5 ms.
fn periodic(nice: i8, work: Nanos) -> TaskSpec {
    let mut wakes_at = 0;
    let mut works = false;
    let program = move |ctx: &mut TaskCtx<'_>| {
        works = !works;
        if works {
            return Action::Compute(work);
        }
        wakes_at = ctx.now().max(wakes_at) + 5 * MS;
        Action::SleepUntil(wakes_at)
    };
    TaskSpec::new("periodic", program).class(Class::Normal { nice })
}

/// Three periodic tasks of a nice value beside a crowd of eight, on four CPUs for two seconds. Only the three ever wake.
fn beside_hogs(policy: &str, nice: i8) -> Report {
    let hogs = (0..8).map(|_| hog());
    let tasks = hogs.chain((0..3).map(|i| periodic(nice, (300 + 100 * i) * US)));
    on_four_cpus(policy, World::new(), tasks.collect(), 2 * SEC)
}

fn taken(report: &Report) -> u64 {
    report.counters.get("preempt-llc").copied().unwrap_or(0)
}

// Goal: it runs at once beside a crowd that never sleeps. Method: nice -10, and the 99th percentile of wakeups; the same
// without preemption, where a turn of a slice has to end first.
#[test]
fn who_is_urgent_runs_at_once() {
    let [with, without] = ["usher", "usher:preempt=false"].map(|policy| {
        let report = beside_hogs(policy, -10);
        (report.metrics["wake_latency_ns_p99"], taken(&report))
    });
    assert!(with.0 < 20_000.0 && with.1 > 500, "{with:?}");
    assert!(without.0 > 1e6 && without.1 == 0, "{without:?}");
}

// Goal: only who has the weight preempts, and nobody who is as urgent is preempted. Method: the same with nice -4; and
// eight tasks of nice -10 that work for 4 of 5 ms, on four CPUs. Catches: classes that come from what a task does alone.
#[test]
fn only_the_less_urgent_are_preempted() {
    let report = beside_hogs("usher", -4);
    assert_eq!(taken(&report), 0);
    let tasks = (0..8).map(|_| periodic(-10, 4 * MS)).collect();
    let report = on_four_cpus("usher", World::new(), tasks, 2 * SEC);
    assert_eq!(taken(&report), 0);
    assert!(report.counters["preempt-none"] > 100, "{report:?}");
}
