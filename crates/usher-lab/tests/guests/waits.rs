// SPDX-License-Identifier: GPL-2.0-only
//! `usher waits` in guests of both kernels, under the kernel's own scheduler and under usher.

use serde_json::Value;
use usher_lab::lab::{self, Request};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::{Scheduler, KERNEL_SCHEDULER};

use super::common::{built, everything_said, on_each_kernel};

/// Says what tasks have waited by the kernel's own count, and observes a crowd meanwhile.
const CROWD: &str = r#"
echo '/^cpu/ {d += $9} END {print "waited", d}' > /tmp/waited
usher waits --format json --slowest 0 -- sh -c "
    awk -f /tmp/waited /proc/schedstat; hackbench -g 1 -l 50 > /dev/null; awk -f /tmp/waited /proc/schedstat"
echo end"#;

/// Two tasks that never sleep on CPU 0, which might as well run on CPU 1, where the kernel balances nothing; then two on CPU 0 alone, of which one is of no
/// weight beside the other; and what becomes of a command's exit code.
const HOGS: &str = "
hog() { taskset -c $1 sh -c 'while :; do :; done' & renice -n $2 -p $!; hogs=\"$hogs $!\"; }
hog 0,1 0; hog 0,1 0
usher waits --format json --slowest 20 --for 1
echo end
kill $hogs; hogs=
hog 0 -20; hog 0 19
usher waits --format json --slowest 2 --for 1
echo end
kill $hogs
usher waits -- sh -c 'exit 7' > /dev/null; echo \"code $?\"";

/// Scripts under schedulers, in one guest where time is the count of instructions.
fn steps(kernel: &str, shape: &str, append: &str, scripts: &[(&str, &str)]) -> Vec<StepOutcome> {
    let folder = built("usher");
    let folder = folder.parent().expect("a folder").display();
    let step = |(scheduler, script): &(&str, &str)| {
        let scheduler = scheduler.parse::<Scheduler>().expect("known");
        let script = format!("PATH=$PATH:{folder}\n{script}");
        (scheduler, vec!["sh".into(), "-c".into(), script])
    };
    let steps: Vec<_> = scripts.iter().map(step).collect();
    let request = Request {
        icount_seed: Some(1),
        append: append.into(),
        copies: vec![built("usher"), built("usher-waits")],
        ..Request::new(
            shape.parse().expect("a legal shape"),
            kernel,
            Vec::new(),
            300,
        )
    };
    let log = |line: &str| eprintln!("{line}");
    let outcome = lab::run_steps(&request, &steps, &log, &mut |_| ());
    outcome.unwrap_or_else(|error| panic!("{error}")).steps
}

/// What `usher waits` said, each time, and what else was.
fn seen(step: &StepOutcome) -> (Vec<Value>, String) {
    let said = String::from_utf8_lossy(&step.stdout).into_owned();
    let (mut seen, mut rest) = (Vec::new(), said.as_str());
    let mut other = String::new();
    while let Some(start) = rest.find("{\n") {
        other += &rest[..start];
        let end = start + rest[start..].find("\nend").expect("it ends");
        let report = serde_json::from_str(&rest[start..end]);
        seen.push(report.unwrap_or_else(|e| panic!("{e}: {said}")));
        rest = &rest[end..];
    }
    (seen, other + rest)
}

fn total_ns(report: &Value) -> u64 {
    let kinds = report["kinds"].as_array().expect("three kinds");
    kinds
        .iter()
        .map(|kind| kind["total_ns"].as_u64().expect("a number"))
        .sum()
}

// Goal: what tasks waited is what the kernel counted. Method: a crowd on one CPU, under the kernel's own scheduler and usher. The kernel counts from when
// a task is queued, which on one CPU is when it is woken.
fn waits_are_the_kernels(kernel: &str) {
    let usher = built("scx_usher").display().to_string();
    let scripts = [(KERNEL_SCHEDULER, CROWD), (&*usher, CROWD)];
    for step in &steps(kernel, "1n1l1c1t", "", &scripts) {
        let (reports, other) = seen(step);
        let context = everything_said("crowd", step);
        assert_eq!(reports.len(), 1, "{context}");
        let counted = other
            .lines()
            .filter_map(|line| line.strip_prefix("waited "));
        let counted: Vec<u64> = counted.filter_map(|ns| ns.parse().ok()).collect();
        let (own, kernels) = (
            total_ns(&reports[0]) as f64,
            (counted[1] - counted[0]) as f64,
        );
        assert!(
            (own / kernels - 1.0).abs() < 0.02,
            "{own} {kernels}: {context}"
        );
    }
}

// Goal: waits beside a CPU that idled all the while are told, and for who may not run there they are not; who waits from before the beginning until after the
// end is told; the command's exit code is the program's. Method: CPUs with a last-level cache each, one of which the kernel leaves alone (`isolcpus`).
fn waits_beside_idle_cpus_are_told(kernel: &str) {
    let step = &steps(
        kernel,
        "1n2l1c1t",
        "isolcpus=1",
        &[(KERNEL_SCHEDULER, HOGS)],
    )[0];
    let context = everything_said("hogs", step);
    let (reports, other) = seen(step);
    assert_eq!(reports.len(), 2, "{context}");
    let stopped = &reports[0]["kinds"][2];
    let number = |value: &Value| value.as_u64().expect("a number") as f64;
    let all = number(&stopped["total_ns"]);
    let beside = &stopped["beside_idle_ns"];
    assert!(all > 0.5e9, "{context}");
    assert_eq!(number(&beside["llc"]), 0.0, "{context}");
    assert!(number(&beside["node"]) > all * 0.5, "{context}");
    assert_eq!(beside["node"], beside["machine"], "{context}");
    // Among the kernel's own tasks that wait here, too.
    let slowest = reports[0]["slowest_stopped"].as_array().expect("a list");
    let ours = |slow: &&Value| slow["task"]["name"] == "sh";
    let hog = slowest.iter().find(ours).expect("a hog");
    let (sent_to, idle) = (&hog["sent_to"], &hog["idle"]["machine"]);
    assert_eq!((sent_to, idle), (&0.into(), &1.into()), "{context}");
    let still = &reports[1]["slowest_stopped"][0];
    assert!(
        still["got"].is_null() && number(&still["wait_ns"]) > 0.9e9,
        "{context}"
    );
    assert_eq!(still["idle"]["machine"], 0, "{context}");
    assert!(other.contains("code 7"), "{context}");
}

on_each_kernel!(waits_are_the_kernels waits_beside_idle_cpus_are_told);
