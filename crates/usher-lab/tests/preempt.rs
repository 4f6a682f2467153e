// SPDX-License-Identifier: GPL-2.0-only
//! An urgent task beside batch work on every CPU of a guest: `usher bench latency-under-batch`.
//!
//! Time counts executed instructions here, so that what else the host does has no part in it: beside other work on the
//! host its noise is more than anything measured.

mod common;

use common::{built, counted};
use usher_lab::lab::{self, Request};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::{Scheduler, KERNEL_SCHEDULER};

/// What the bench says, with these options, under each scheduler in turn, in one boot of a guest of this shape.
fn reports(
    shape: &str,
    options: &str,
    schedulers: &[Scheduler],
) -> Vec<(serde_json::Value, StepOutcome)> {
    let request = Request {
        icount_seed: Some(1),
        ..Request::new(shape.parse().expect("a shape"), "6.18", Vec::new(), 300)
    };
    let bench = format!("usher bench latency-under-batch --seconds 2 --format json {options}");
    let bench: Vec<String> = bench.split_whitespace().map(str::to_string).collect();
    let steps: Vec<_> = schedulers
        .iter()
        .map(|scheduler| (scheduler.clone(), bench.clone()))
        .collect();
    let outcome = lab::run_steps(&request, &steps, &|line| eprintln!("{line}"), &mut |_| ())
        .unwrap_or_else(|error| panic!("{error}"));
    let report = |step: StepOutcome| {
        let said = common::everything_said("bench", &step);
        assert_eq!(step.report.ejected, None, "{said}");
        let report = serde_json::from_slice(&step.stdout);
        (
            report.unwrap_or_else(|error| panic!("{error}: {said}")),
            step,
        )
    };
    outcome.steps.into_iter().map(report).collect()
}

/// usher, and usher without preemption.
fn both() -> [Scheduler; 2] {
    let usher = built("scx_usher").to_string_lossy().into_owned();
    let preempting: Scheduler = usher.parse().expect("a program");
    let mut waiting = preempting.clone();
    waiting.add_options(&["--no-preempt".into()]);
    [preempting, waiting]
}

fn preemptions(step: &StepOutcome) -> u64 {
    let events = ["preempt-llc", "preempt-node", "preempt-remote"];
    let counts = events.map(|event| counted(step, "events", event));
    counts.iter().sum()
}

// Goal: a latency-critical task that wakes while its CPU runs batch work runs at once. Method: on one CPU, since several take
// turns in the emulator and one that is kicked waits for its turn; the kernel's own scheduler, usher, and usher
// without preemption. Catches: preemption that never happens, that does not for tasks that may run on one CPU only, or whose
// effect waits for a tick.
#[test]
fn an_urgent_task_does_not_wait() {
    let kernels_own: Scheduler = KERNEL_SCHEDULER.parse().expect("known");
    let [preempting, waiting] = both();
    let reports = reports("1n1l1c1t", "", &[kernels_own, preempting, waiting]);
    let p99_ns: Vec<u64> = reports
        .iter()
        .map(|(report, _)| {
            let delay = &report["wakeup_delay"];
            assert!(delay["samples"].as_u64() > Some(300), "{report}");
            delay["p99_ns"].as_u64().expect("a number")
        })
        .collect();
    let said = format!("99th percentiles, ns: the kernel's own, usher, --no-preempt: {p99_ns:?}");
    eprintln!("{said}");
    assert!(p99_ns[1] * 2 <= p99_ns[2], "{said}");
    assert!(p99_ns[1] <= p99_ns[0], "{said}");
}

// Goal: a light task that is not urgent does not wait for a whole crowd, and mostly not even for the end of a slice. Method: one
// CPU, three tasks beside it that never sleep; at the worst less than two slices and a tick, half of the times no tick.
// Catches: a queue in which sleeping earns nothing, where it waits for all three; turns that are not ended for who slept, or
// with --no-preempt as well.
#[test]
fn a_light_task_comes_before_a_crowd() {
    let reports = reports("1n1l1c1t", "--nice 0 --hogs 3", &both());
    let delays = |what: &str| -> Vec<u64> {
        let delay = |(report, _): &(serde_json::Value, _)| report["wakeup_delay"][what].as_u64();
        reports
            .iter()
            .map(|r| delay(r).expect("a number"))
            .collect()
    };
    let (median_ns, p99_ns) = (delays("p50_ns"), delays("p99_ns"));
    let said = format!("usher, --no-preempt: median {median_ns:?} ns, p99 {p99_ns:?} ns");
    assert!(p99_ns.iter().all(|&ns| ns < 7_000_000), "{said}");
    assert!(median_ns[0] < 100_000 && median_ns[1] > 1_000_000, "{said}");
    assert!(counted(&reports[0].1, "events", "turn-cut") > 100, "{said}");
    assert_eq!(counted(&reports[1].1, "events", "turn-cut"), 0, "{said}");
}

// Goal: where all of several CPUs are busy an urgent task takes one, and batch work loses less than 3 % to that. Method: eight
// CPUs; the counters, and the rounds of work done. Catches: a search that names nobody, preempted tasks that lose their turn,
// and a CPU that stays idle after it was taken.
#[test]
fn batch_work_loses_little() {
    let reports = reports("1n2l4c1t", "", &both());
    for (report, _) in &reports {
        let loss = report["batch_loss_percent"].as_f64().expect("a number");
        assert!(loss < 3.0, "{report}");
    }
    let [(report, preempting), (_, waiting)] = &reports[..] else {
        panic!("two steps");
    };
    let samples = report["wakeup_delay"]["samples"].as_u64();
    assert!(samples > Some(50), "{report}");
    // Not each wakeup: a CPU whose turn in the emulator ends while the task runs there makes it look like one that runs long.
    let taken = preemptions(preempting);
    assert!(taken > 20, "{taken} preemptions: {report}");
    assert_eq!(preemptions(waiting), 0);
}
