// SPDX-License-Identifier: GPL-2.0-only
//! A guest of 64 CPUs with far more to do than it can.
//!
//! Goal: usher stays, and nobody waits over four seconds, beside 256 hogs, a storm of forks and hackbench with 320
//! tasks, for a minute. Method: the longest wait that scx_usher measured itself. The guest's CPUs take turns, and time
//! is the count of executed instructions, 500 million a second for all 64 together: waits are several times what they
//! would be on real CPUs, and the same on every host, whatever else it runs.
//! Catches: newborn or short tasks that always come first, a light task whose virtual time runs away, queues of LLCs
//! that are filled or served unequally.

use std::time::Duration;

use super::common::built;
use usher_lab::lab::{self, Request};
use usher_lab::runner::Outcome;
use usher_lab::scheduler::Scheduler;

const LONGEST_WAIT: Duration = Duration::from_secs(4);

const OVERLOAD: &str = "
stress-ng --cpu 256 -t 60 & hogs=$!
stress-ng --fork 8 -t 60 & forks=$!
while :; do hackbench -g 8 -l 20; done & groups=$!
sleep 60
kill $groups; kill -INT $hogs $forks; wait $hogs $forks
echo lasted";

#[test]
fn nobody_waits_long() {
    let waited = longest_wait(&overloaded());
    eprintln!("the longest wait: {waited:?}");
    assert!(!waited.is_zero(), "nobody ever waited");
    assert!(waited < LONGEST_WAIT, "somebody waited {waited:?}");
}

fn overloaded() -> Outcome {
    let scheduler = built("scx_usher").to_string_lossy().into_owned();
    let scheduler: Scheduler = scheduler.parse().expect("a program");
    let request = Request {
        icount_seed: Some(1),
        ..Request::new(
            "4n2l4c2t".parse().expect("a legal shape"),
            "6.18",
            vec!["sh".into(), "-c".into(), OVERLOAD.into()],
            300,
        )
    };
    lab::run(
        &request,
        &scheduler,
        &|line| eprintln!("{line}"),
        &mut |_| (),
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

/// What usher measured; panics where it did not stay, or where the work did not.
fn longest_wait(outcome: &Outcome) -> Duration {
    let step = &outcome.steps[0];
    let said = String::from_utf8_lossy(&step.stdout);
    let context = format!("{said}\n{}", step.report.scheduler_log);
    if let Some(ejected) = &step.report.ejected {
        panic!("ejected: {ejected}: {context}");
    }
    for expected in ["lasted", "(== 320 tasks)"] {
        assert!(
            said.contains(expected),
            "nothing said {expected:?}: {context}"
        );
    }
    let stats = step
        .report
        .scheduler_stats
        .as_ref()
        .expect("usher writes statistics");
    Duration::from_nanos(stats["longest_wait_ns"].as_u64().expect("a number"))
}
