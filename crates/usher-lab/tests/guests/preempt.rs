// SPDX-License-Identifier: GPL-2.0-only
//! Who takes a CPU from whom in a guest: an urgent task beside batch work on every CPU (`usher bench latency-under-batch`), and
//! of two tasks that wake each other in turn the one from the other.
//!
//! Time counts executed instructions here, so that what else the host does has no part in it: beside other work on the
//! host its noise is more than anything measured.

use super::common::{self, built, compiled, counted};
use usher_lab::lab::{self, Request};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::{Scheduler, KERNEL_SCHEDULER};

/// Commands under schedulers, one after the other, in one boot of a guest of this shape.
fn steps(shape: &str, steps: &[(Scheduler, Vec<String>)]) -> Vec<StepOutcome> {
    steps_on("6.18", shape, steps)
}

/// The same on a guest with this kernel.
fn steps_on(kernel: &str, shape: &str, steps: &[(Scheduler, Vec<String>)]) -> Vec<StepOutcome> {
    let request = Request {
        icount_seed: Some(1),
        ..Request::new(shape.parse().expect("a shape"), kernel, Vec::new(), 300)
    };
    let outcome = lab::run_steps(&request, steps, &|line| eprintln!("{line}"), &mut |_| ())
        .unwrap_or_else(|error| panic!("{error}"));
    for step in &outcome.steps {
        let said = common::everything_said("guest", step);
        assert_eq!(step.report.ejected, None, "{said}");
    }
    outcome.steps
}

/// What the bench says, with these options, under each scheduler in turn.
fn reports(
    shape: &str,
    options: &str,
    schedulers: &[Scheduler],
) -> Vec<(serde_json::Value, StepOutcome)> {
    let bench = format!("usher bench latency-under-batch --format json {options}");
    let bench: Vec<String> = bench.split_whitespace().map(str::to_string).collect();
    let each: Vec<_> = schedulers
        .iter()
        .map(|scheduler| (scheduler.clone(), bench.clone()))
        .collect();
    let report = |step: StepOutcome| {
        let said = common::everything_said("bench", &step);
        let report = serde_json::from_slice(&step.stdout);
        (
            report.unwrap_or_else(|error| panic!("{error}: {said}")),
            step,
        )
    };
    steps(shape, &each).into_iter().map(report).collect()
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
    let reports = reports(
        "1n1l1c1t",
        "--seconds 2",
        &[kernels_own, preempting, waiting],
    );
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
// CPU, three tasks beside it that never sleep; at the worst less than two slices and a tick, half of the times no tick. (202 to 207 turns
// of 400 wakeups are cut, so the median lies where those that wait for a tick begin: a few samples more make it 0.4 ms instead of 0.05.)
// Catches: a queue in which sleeping earns nothing, where it waits for all three; turns that are not ended for who slept, or
// with --no-preempt as well.
#[test]
fn a_light_task_comes_before_a_crowd() {
    let reports = reports("1n1l1c1t", "--seconds 2 --nice 0 --hogs 3", &both());
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
    assert!(
        median_ns[0] * 2 < median_ns[1] && median_ns[1] > 1_000_000,
        "{said}"
    );
    let (report, step) = &reports[0];
    let wakeups = report["wakeup_delay"]["samples"]
        .as_u64()
        .expect("a number");
    let cut = counted(step, "events", "turn-cut");
    assert!(
        cut * 5 > wakeups * 2,
        "{cut} turns cut for {wakeups} wakeups: {said}"
    );
    assert_eq!(counted(&reports[1].1, "events", "turn-cut"), 0, "{said}");
}

// Goal: where all of several CPUs are busy an urgent task takes one, and batch work loses less than 3 % to that. Method: eight
// CPUs; the counters, and the rounds of work done. Catches: a search that names nobody, preempted tasks that lose their turn,
// and a CPU that stays idle after it was taken.
#[test]
fn batch_work_loses_little() {
    let reports = reports("1n2l4c1t", "--seconds 4", &both());
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

/// Four pairs of shells: one asks the other for a line and waits for it, 400 times.
const PAIRS: &str = "
    cd /tmp
    for pair in 1 2 3 4; do
        mkfifo ask$pair answer$pair
        (while read line; do echo $line; done < ask$pair > answer$pair) &
        (
            exec 3> ask$pair 4< answer$pair
            for round in $(seq 400); do echo y >&3; read line <&4; done
        ) &
    done
    wait
    rm ask* answer*
";

/// Four streams through pipes, of 4,000 pieces.
const STREAMS: &str = "
    for stream in 1 2 3 4; do
        dd if=/dev/zero bs=4096 count=1000 | dd of=/dev/null bs=4096 &
    done
    wait
";

// Goal: of two tasks that always wake each other, where nobody idles, who wakes gives way before it sleeps, and more gets done; but
// not in the middle of a stream. Method: on two CPUs (on one the kernel asks nobody where a task goes), three times with and three
// times without preemption: instructions that the pairs took, and the counters. Catches: a task that gives way and loses its place, or is never
// watched; one that is interrupted for each piece that it writes.
#[test]
fn two_that_wake_each_other_give_way() {
    let [giving, sleeping] = both();
    let command = |script: &str| ["sh", "-c", script].map(str::to_string).to_vec();
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push((sleeping.clone(), command(PAIRS)));
        all.push((giving.clone(), command(PAIRS)));
    }
    all.push((giving, command(STREAMS)));
    let done = steps("1n1l2c1t", &all);
    let (streams, pairs) = done.split_last().expect("seven steps");
    let each = |from: usize, of: fn(&StepOutcome) -> u64| -> Vec<u64> {
        pairs.iter().skip(from).step_by(2).map(of).collect()
    };
    let gave = |step: &StepOutcome| counted(step, "reasons", "partner");
    let took_us = |step: &StepOutcome| step.report.elapsed_ns / 1000;
    let (slept, given) = (each(0, took_us), each(1, took_us));
    let (nobody, often, seldom) = (each(0, gave), each(1, gave), gave(streams));
    let said = format!(
        "{given:?} us and {often:?} times; with --no-preempt {slept:?} us; streams {seldom} times"
    );
    eprintln!("{said}");
    assert_eq!(nobody, [0, 0, 0], "{said}");
    assert!(
        often.iter().all(|&times| times > 800),
        "of 1,600 questions: {said}"
    );
    assert!(
        given.iter().sum::<u64>() * 100 < slept.iter().sum::<u64>() * 97,
        "{said}"
    );
    assert!(seldom < 100, "of 4,000 pieces: {said}");
}

/// The longest that `behind_real_time.c` says that a task waited, in milliseconds. Emulated CPUs take turns of up to 100.
fn behind_real_time_ms(kernel: &str, what: &str) -> (u64, StepOutcome) {
    let program = compiled("crates/usher-lab/tests/guests/behind_real_time.c", what);
    let command = vec![program.to_string_lossy().into_owned(), what.to_string()];
    let [preempting, _] = both();
    let mut done = steps_on(kernel, "1n1l2c1t", &[(preempting, command)]);
    let step = done.pop().expect("a step");
    let waited_ns = String::from_utf8_lossy(&step.stdout);
    let waited_ns: u64 = waited_ns
        .trim()
        .parse()
        .unwrap_or_else(|error| panic!("{error}: {}", common::everything_said("guest", &step)));
    eprintln!("{what}: {waited_ns} ns");
    (waited_ns / 1_000_000, step)
}

// Goal: an urgent task is not sent to a CPU that real-time work has taken, where nobody preempts. Method: that CPU was idle before, of
// which a sched_ext scheduler is told only that it idles no more; how long the urgent task waits beside two seconds of real-time work. It
// would be all of them. Catches: a CPU that keeps the class of who ran there last, and is preempted in vain, also where a task of ours was
// given the CPU at the same time.
#[test]
fn nobody_is_sent_behind_real_time_work() {
    let (waited_ms, step) = behind_real_time_ms("6.18", "urgent");
    let said = common::everything_said("guest", &step);
    assert!(waited_ms < 500, "{said}");
    assert!(preemptions(&step) > 50, "{said}");
}

// Goal: the same of a CPU that ran a task of ours until real-time work came. Method: batch work that goes on; on the kernel where no
// callback tells of it, and on one where one would. Catches: a CPU that keeps the class of whom real-time work displaced.
#[test]
fn nobody_is_sent_behind_who_was_displaced() {
    for kernel in ["6.18", "7.0"] {
        let (waited_ms, step) = behind_real_time_ms(kernel, "urgent-beside");
        let said = common::everything_said("guest", &step);
        assert!(waited_ms < 500, "{said}");
        assert!(preemptions(&step) > 50, "{said}");
    }
}

// Goal: who was given an idle CPU that real-time work then takes goes elsewhere. Method: both are woken at once; how long the task takes to
// wake beside a second of real-time work. It would be all of that. On the kernel that lets a scheduler send it elsewhere. Catches: a
// task left in the CPU's local queue.
#[test]
fn nobody_is_left_behind_real_time_work() {
    let (waited_ms, step) = behind_real_time_ms("7.0", "given");
    assert!(
        waited_ms < 500,
        "{}",
        common::everything_said("guest", &step)
    );
}

// Goal: whom real-time work takes its CPU from goes to one that idles. Method: a second of that work; how long the task does not run. It would be
// all of that. On a kernel whose callback sends it elsewhere, and on the one whose scheduler has to. Catches: a task that is put into the CPU's local
// queue after the look there.
#[test]
fn who_is_displaced_by_real_time_work_goes_elsewhere() {
    for kernel in ["6.18", "7.0"] {
        let (waited_ms, step) = behind_real_time_ms(kernel, "displaced");
        let said = common::everything_said("guest", &step);
        assert!(waited_ms < 500, "{said}");
    }
}
