// SPDX-License-Identifier: GPL-2.0-only
//! An urgent task beside batch work on every CPU of a guest.
//!
//! Goal: a latency-critical task that wakes while every CPU runs batch work runs at once. Method: `usher bench
//! latency-under-batch` under the kernel's own scheduler, under usher and under usher without preemption, three times in
//! turn in one boot; the least of the three 99th percentiles of what the kernel counts from wakeup to running, since
//! whatever else the host does only adds to it. The guest's CPUs take turns on one host CPU, so who waits for another
//! CPU waits for its turn, tens of milliseconds; who takes the CPU that it wakes on does not. Catches: preemption that never happens, or only for tasks that keep their
//! CPU; a class that an emulated CPU's pauses spoil.
//!
//! Goal: batch work loses less than 3 % to that. Method: the same with time counted in executed instructions, so that
//! the host's noise, which is five times as much, has no part in it. Catches: preempted tasks that lose their turn, and
//! a CPU that stays idle after it was taken.

mod common;

use common::built;
use usher_lab::lab::{self, Request};
use usher_lab::scheduler::{Scheduler, KERNEL_SCHEDULER};

const ROUNDS: usize = 3;

fn command(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

/// What the bench says of each step.
fn reports(
    request: &Request,
    steps: &[(Scheduler, Vec<String>)],
) -> Vec<(serde_json::Value, String)> {
    let outcome = lab::run_steps(request, steps, &|line| eprintln!("{line}"), &mut |_| ())
        .unwrap_or_else(|error| panic!("{error}"));
    let mut reports = Vec::new();
    for step in &outcome.steps {
        let said = String::from_utf8_lossy(&step.stdout).into_owned();
        assert_eq!(step.report.ejected, None, "{said}");
        let report: serde_json::Value =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        reports.push((report, said));
    }
    reports
}

fn request() -> Request {
    Request::new(
        "1n2l4c1t".parse().expect("a legal shape"),
        "6.18",
        Vec::new(),
        300,
    )
}

#[test]
fn an_urgent_task_does_not_wait() {
    let usher = built("scx_usher").to_string_lossy().into_owned();
    let kernels_own: Scheduler = KERNEL_SCHEDULER.parse().expect("known");
    let preempting: Scheduler = usher.parse().expect("a program");
    let mut waiting = preempting.clone();
    waiting.add_options(&["--no-preempt".into()]);
    let schedulers = [kernels_own, preempting, waiting];
    let bench = command("usher bench latency-under-batch --format json");
    let steps: Vec<(Scheduler, Vec<String>)> = (0..ROUNDS)
        .flat_map(|_| &schedulers)
        .map(|scheduler| (scheduler.clone(), bench.clone()))
        .collect();
    let mut p99_ns: [Vec<u64>; 3] = Default::default();
    for (index, (report, said)) in reports(&request(), &steps).iter().enumerate() {
        let delay = &report["wakeup_delay"];
        assert!(delay["samples"].as_u64() > Some(50), "{said}");
        p99_ns[index % 3].push(delay["p99_ns"].as_u64().expect("a number"));
    }
    for values in &mut p99_ns {
        values.sort_unstable();
    }
    let [kernels_own, preempting, waiting] = p99_ns.each_ref().map(|values| values[0]);
    let said = format!("99th percentiles, ns: the kernel's own, usher, --no-preempt: {p99_ns:?}");
    eprintln!("{said}");
    assert!(preempting * 2 <= waiting, "{said}");
    assert!(preempting <= kernels_own, "{said}");
}

#[test]
fn batch_work_loses_little() {
    let usher: Scheduler = built("scx_usher")
        .to_string_lossy()
        .parse()
        .expect("a program");
    let bench = command("usher bench latency-under-batch --seconds 2 --format json");
    let request = Request {
        icount_seed: Some(1),
        ..request()
    };
    for (report, said) in reports(&request, &[(usher, bench)]) {
        assert!(
            report["wakeup_delay"]["samples"].as_u64() > Some(50),
            "{said}"
        );
        let loss = report["batch_loss_percent"].as_f64().expect("a number");
        assert!(loss < 3.0, "{said}");
    }
}
