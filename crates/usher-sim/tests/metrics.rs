// SPDX-License-Identifier: GPL-2.0-only
//! What a run reports about itself, where the numbers can be told beforehand.

mod common;

use common::Step::Act;
use common::*;
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::World;
use usher_sim::Report;

fn hogs_on(cpus: &[u32], stop: Stop) -> Report {
    let hog = |&cpu: &u32| {
        let mut left = 1000;
        let program = move |_: &mut TaskCtx<'_>| {
            left -= 1;
            if left < 0 {
                return Action::Exit;
            }
            Action::Compute(MS)
        };
        TaskSpec::new("hog", program).affinity(only(cpu))
    };
    let tasks = cpus.iter().map(hog).collect();
    let machine = machine("core:2 pu:1", free_costs());
    run(machine, workload(World::new(), tasks, stop), 1).expect("runs")
}

// Goal: fairness is Jain's index of the shares of the time in which tasks wanted a CPU and had it, whether
// they live on or exit; fairness of CPU time that of the time itself, over those that live on.
// Method: two hogs share CPU 0, one has CPU 1: shares 1/2, 1/2, 1: 2^2 / (3 * 1.5) = 8/9.
#[test]
fn fairness_is_jains_index_of_service() {
    let report = hogs_on(&[0, 0, 1], Stop::At(400 * MS));
    assert_near("fairness", report.metrics["fairness"], 8.0 / 9.0, 1.0);
    assert_near(
        "of CPU time",
        report.metrics["cpu_time_fairness"],
        8.0 / 9.0,
        1.0,
    );
    let report = hogs_on(&[0, 0, 1], Stop::AllExit);
    assert_near("all exit", report.metrics["fairness"], 8.0 / 9.0, 1.0);
    assert!(
        !report.metrics.contains_key("cpu_time_fairness"),
        "nobody lived on"
    );
    let report = hogs_on(&[0, 1], Stop::AllExit);
    assert_near("alone", report.metrics["fairness"], 1.0, 0.01);
}

// Goal: wakeups, idle CPUs found and migrations are counted as they happen.
// Method: a task that sleeps and works 50 times on an empty machine and moves once.
#[test]
fn wakeups_and_moves_are_counted() {
    let naps = (0..50).flat_map(|_| [Act(Action::Sleep(MS)), Act(Action::Compute(10 * US))]);
    let moves = [Act(Action::SetAffinity(only(1))), Act(Action::Compute(US))];
    let program = script(naps.chain(moves).collect());
    let task = TaskSpec::new("napper", program).affinity(only(0));
    let machine = machine("core:2 pu:1", free_costs());
    let report = run(
        machine,
        workload(World::new(), vec![task], Stop::AllExit),
        1,
    )
    .expect("runs");
    let metric = |name: &str| report.metrics[name] as u64;
    assert_eq!(
        (metric("wakeups"), metric("migrations"), metric("forks")),
        (50, 1, 1)
    );
    assert_eq!(report.metrics["wakeups_to_idle_share"], 1.0);
    assert_eq!(report.migrations.values().sum::<u64>(), 1);
}
