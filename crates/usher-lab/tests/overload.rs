// SPDX-License-Identifier: GPL-2.0-only
//! A guest of 64 CPUs with far more to do than it can.
//!
//! Goal: usher stays, and nobody waits over four seconds, beside 256 hogs, a storm of forks and hackbench with 320
//! tasks, for a minute. Method: the longest wait that scx_usher measured itself, in the kernel's ticks. The guest's
//! CPUs take turns on one host CPU, and each runs for up to tens of milliseconds while all others stand
//! still: waits are several times what they would be on real CPUs. What the host gave to others meanwhile does not
//! count. Catches: newborn or short tasks that
//! always come first, a light task whose virtual time runs away, queues of LLCs that are served unequally.

mod common;

use common::built;
use usher_lab::lab::{self, Request};
use usher_lab::scheduler::Scheduler;

const LONGEST_WAIT_NS: u64 = 4_000_000_000;

const OVERLOAD: &str = "
stress-ng --cpu 256 -t 60 & hogs=$!
stress-ng --fork 8 -t 60 & forks=$!
while :; do hackbench -g 8 -l 20; done & groups=$!
sleep 60
kill $groups; kill -INT $hogs $forks; wait $hogs $forks
echo lasted";

#[test]
#[ignore = "the bound is missed now and then, and a busy host makes it worse; make overload"]
fn nobody_waits_long() {
    let scheduler = built("scx_usher").to_string_lossy().into_owned();
    let scheduler: Scheduler = scheduler.parse().expect("a program");
    let request = Request::new(
        "4n2l4c2t".parse().expect("a legal shape"),
        "6.18",
        vec!["sh".into(), "-c".into(), OVERLOAD.into()],
        300,
    );
    let outcome = lab::run(
        &request,
        &scheduler,
        &|line| eprintln!("{line}"),
        &mut |_| (),
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let step = &outcome.steps[0];
    let said = String::from_utf8_lossy(&step.stdout);
    let context = format!("{said}\n{}", step.report.scheduler_log);
    assert_eq!(step.report.ejected, None, "{context}");
    assert!(said.contains("lasted"), "{context}");
    assert!(
        said.contains("(== 320 tasks)"),
        "hackbench never ran: {context}"
    );
    let stats = step
        .report
        .scheduler_stats
        .as_ref()
        .expect("usher writes statistics");
    let waited_ns = stats["longest_wait_ns"].as_u64().expect("a number");
    let share = (outcome.cpu.as_secs_f64() / outcome.wall.as_secs_f64()).min(1.0);
    let own_ns = (waited_ns as f64 * share) as u64;
    let said = format!(
        "the longest wait: {} ms, of which the emulator ran {} ms",
        waited_ns / 1_000_000,
        own_ns / 1_000_000
    );
    eprintln!("{said}");
    assert!(waited_ns > 0, "nobody ever waited: {context}");
    assert!(own_ns < LONGEST_WAIT_NS, "{said}: {context}");
}
