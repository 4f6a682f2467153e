// SPDX-License-Identifier: GPL-2.0-only
//! A guest of 64 CPUs with far more to do than it can.
//!
//! Goal: usher stays, and nobody waits over four seconds, beside 256 hogs, a storm of forks and hackbench with 320
//! tasks, for a minute. Method: the longest wait that scx_usher measured itself, in the kernel's ticks. The guest's
//! CPUs take turns on one host CPU: waits are several times what they would be on real CPUs, and all are longer
//! while the host runs something else. A run in which it did says nothing and is made anew, three times at most.
//! Catches: newborn or short tasks that always come first, a light task whose virtual time runs away, queues of LLCs
//! that are filled or served unequally.

mod common;

use std::time::Duration;

use common::built;
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

/// Of one host CPU, what the guest must have had.
const SHARE: f64 = 0.95;

#[test]
fn nobody_waits_long() {
    for _ in 0..3 {
        let outcome = overloaded();
        let share = outcome.cpu.as_secs_f64() / outcome.wall.as_secs_f64();
        match verdict(&outcome) {
            Ok(waited) => {
                eprintln!("the longest wait: {waited:?}, with {share:.2} of a host CPU");
                return;
            }
            Err(why) if share < SHARE => {
                eprintln!("not counted, {share:.2} of a host CPU: {why}");
            }
            Err(why) => panic!("{why}"),
        }
    }
    panic!("this host was never free for a minute and a half: nothing is known");
}

fn overloaded() -> Outcome {
    let scheduler = built("scx_usher").to_string_lossy().into_owned();
    let scheduler: Scheduler = scheduler.parse().expect("a program");
    let request = Request::new(
        "4n2l4c2t".parse().expect("a legal shape"),
        "6.18",
        vec!["sh".into(), "-c".into(), OVERLOAD.into()],
        300,
    );
    lab::run(
        &request,
        &scheduler,
        &|line| eprintln!("{line}"),
        &mut |_| (),
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

/// The longest wait, or what was wrong.
fn verdict(outcome: &Outcome) -> Result<Duration, String> {
    let step = &outcome.steps[0];
    let said = String::from_utf8_lossy(&step.stdout);
    let context = format!("{said}\n{}", step.report.scheduler_log);
    if let Some(ejected) = &step.report.ejected {
        return Err(format!("ejected: {ejected}: {context}"));
    }
    for expected in ["lasted", "(== 320 tasks)"] {
        if !said.contains(expected) {
            return Err(format!("nothing said {expected:?}: {context}"));
        }
    }
    let stats = step
        .report
        .scheduler_stats
        .as_ref()
        .expect("usher writes statistics");
    let waited = Duration::from_nanos(stats["longest_wait_ns"].as_u64().expect("a number"));
    if waited.is_zero() {
        return Err(format!("nobody ever waited: {context}"));
    }
    if waited >= LONGEST_WAIT {
        return Err(format!("somebody waited {waited:?}: {context}"));
    }
    Ok(waited)
}
