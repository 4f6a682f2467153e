// SPDX-License-Identifier: GPL-2.0-only
//! Placement hints in guests: the system call, rules, and where the children of a program that hints are found. Each
//! kernel is booted once; the steps below run in it one after the other, each with the scheduler freshly loaded,
//! and one test looks at each.

use std::time::Instant;

use super::common::{built, compiled, counted, on_each_kernel, temporary, Guests, Steps, SHELL};
use usher_lab::lab::{self, Request};
use usher_lab::proto::{Event, Frame};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::Scheduler;

/// Four LLCs of four cores.
const SHAPE: &str = "1n4l4c1t";
const CPUS_PER_LLC: u32 = 4;

/// The steps of a boot: the test's name, scx_usher's options, the script.
const STEPS: [(&str, &str, &str); 6] = [
    ("children", "", CHILDREN),
    ("calls", "", "$calls"),
    ("rules", "--rules $rules", RULES),
    ("cpus_offline", "", CPUS_OFFLINE),
    ("killed_loader", "", KILLED_LOADER),
    ("nobody_answers_unless_told_to", "--no-hints", "$example"),
];

/// Options of all steps: the debug log ends with how many hinted tasks live where, and the
/// kernel's watchdog must be patient with an emulator (`kernels.rs` says more).
const OPTIONS: [&str; 4] = ["--log-level", "debug", "--timeout-ms", "20000"];

/// What the scripts have in common. A family is children that only sleep, and the CPU that each was born on; `seq` runs
/// outside, since in it another hinted child would take room. The load is tasks that fork and sleep and one that
/// computes, all with hints; it ends only when none of them was lost. It is light, because the guest's CPUs share
/// one host thread, and what runs on one of them slows all others.
const COMMON: &str = r#"
get() { $usher hint --get $1; }
family() {
    kind=$1; wish=$2; children=$(seq $3 | tr '\n' ' ')
    $usher hint --fork $wish -- sh -c '
        for i in '"$children"'; do sleep 20 & pids="$pids $!"; done
        sleep 1
        echo '$kind' parent $(cut -d" " -f39 /proc/$$/stat)
        for pid in $pids; do echo '$kind' child $(cut -d" " -f39 /proc/$pid/stat); kill $pid; done'
}
start_load() {
    touch /tmp/go
    $usher hint --fork spread --wake hold -- sh -c '
        for i in 1 2 3 4 5 6 7 8; do (while [ -e /tmp/go ]; do sleep 0.05; done) & done
        while [ -e /tmp/go ]; do :; done; wait' & load=$!
    sleep 0.5
}
stop_load() { rm /tmp/go; wait $load || { echo "the load failed with $?"; exit 1; }; }
"#;

/// Five times beside the parent: what else just runs in an LLC takes room, but not each time.
const CHILDREN: &str = r#"
for kind in near-1 near-2 near-3 near-4 near-5; do sleep 1; family $kind affine 5; done
family wide spread 8; family again spread 8
"#;

const RULES_FILE: &str = r#"
[[rule]]            # runs since before the scheduler began
comm = "init"
fork = "affine"

[[rule]]
comm = "chosen*"
fork = "spread"
wake = "hold"

[[rule]]            # is made while the scheduler runs
cgroup = "/of-rule"
wake = "affine"

[[rule]]            # is there before
cgroup = "/usher-command"
comm = "both"
wake = "hold"

[[rule]]
user = "nobody"
fork = "affine"
wake = "hold"
"#;

const RULES: &str = r#"
for name in chosen-one both; do
    printf '#!/bin/sh\nsleep 20\ntrue\n' > /tmp/$name; chmod +x /tmp/$name
done
mkdir -p /sys/fs/cgroup/of-rule/below /sys/fs/cgroup/of-rule-not
begun() { sleep 0.3; get $!; }
echo "before: $(get 1), its child: $(get $$)"
/tmp/chosen-one & echo "comm: $(begun), its child: $(get $(cat /proc/$!/task/$!/children))"
sh -c 'echo 0 > /sys/fs/cgroup/of-rule/below/cgroup.procs; exec sleep 20' & echo "cgroup: $(begun)"
sh -c 'echo 0 > /sys/fs/cgroup/of-rule-not/cgroup.procs; exec sleep 20' & echo "other: $(begun)"
/tmp/both & echo "both: $(begun)"
sh -c 'echo 0 > /sys/fs/cgroup/of-rule-not/cgroup.procs; exec /tmp/both' & echo "one: $(begun)"
su nobody -s /bin/sh -c 'exec sleep 20' & echo "user: $(begun)"
mkdir /tmp/suid; cp /bin/busybox /tmp/suid/sleep; chown nobody /tmp/suid/sleep; chmod 4755 /tmp/suid/sleep
/tmp/suid/sleep 20 & echo "setuid: $(begun)"
sh -c 'printf chosen-two > /proc/$$/comm; sleep 20; true' & echo "renamed: $(begun)"
$usher hint --fork affine -- /tmp/chosen-one & echo "asked: $(begun)"
$usher hint -- /tmp/chosen-one & echo "asked for none: $(begun)"
"#;

const CPUS_OFFLINE: &str = r#"
start_load
for cpu in 1 6; do leaves_and_returns $cpu; done
echo "load: $(get $load)"
stop_load
family after spread 8
loader_lives
echo "online $(cat /sys/devices/system/cpu/online)"
"#;

const KILLED_LOADER: &str = r#"
start_load
echo "before: $(get $load)"
kill -9 $USHER_SCHEDULER_PID
wait_state disabled
get $load; echo "code $?"
$example
for cpu in 0 5 10 15; do taskset -c $cpu true & pids="$pids $!"; done
wait $pids
stop_load
echo "ran on"
"#;

/// All steps of one kernel, booted when the first test asks.
fn boot(kernel: &str) -> Steps {
    let rules = temporary(&format!("rules-{kernel}.toml"));
    std::fs::write(&rules, RULES_FILE).expect("target is writable");
    let files = [
        ("usher", built("usher")),
        (
            "calls",
            compiled(
                "crates/usher-lab/tests/guests/hint_calls.c",
                &format!("calls-{kernel}"),
            ),
        ),
        (
            "example",
            compiled("examples/hint.c", &format!("example-{kernel}")),
        ),
        ("rules", rules),
    ];
    let names = files
        .iter()
        .map(|(name, path)| format!("{name}={}\n", path.display()))
        .collect::<String>();
    let steps: Vec<(Scheduler, Vec<String>)> = STEPS
        .iter()
        .map(|(_, options, script)| {
            let program = built("scx_usher").to_string_lossy().into_owned();
            let mut scheduler: Scheduler = program.parse().expect("a program");
            let options = options.replace("$rules", &files[3].1.to_string_lossy());
            let options = options
                .split_whitespace()
                .chain(OPTIONS)
                .map(str::to_string);
            scheduler.add_options(&options.collect::<Vec<_>>());
            let script = format!("{names}{SHELL}{COMMON}{script}");
            (scheduler, vec!["sh".into(), "-c".into(), script])
        })
        .collect();
    let shape = SHAPE.parse().expect("a legal shape");
    let request = Request {
        copies: files.map(|(_, path)| path).to_vec(),
        // Who idles decides where the hinted go: it must not depend on what else this host does.
        icount_seed: Some(1),
        ..Request::new(shape, kernel, Vec::new(), 240)
    };
    let begun = Instant::now();
    let mut tell = |frame: &Frame| {
        if let Frame::Event(Event::End(report)) = frame {
            let (name, guest_ms) = (STEPS[report.step].0, report.elapsed_ns / 1_000_000);
            let wall_s = begun.elapsed().as_secs();
            eprintln!("{kernel} {name}: {guest_ms} ms of the guest, done after {wall_s} s");
        }
    };
    let outcome = lab::run_steps(&request, &steps, &|line| eprintln!("{line}"), &mut tell);
    for file in &request.copies[1..] {
        let _ = std::fs::remove_file(file);
    }
    outcome
        .map(|outcome| outcome.steps)
        .map_err(|error| error.to_string())
}

pub static GUESTS: Guests = Guests::new(boot);

/// A step's outcome, and everything said in it. The kernel found nothing wrong.
fn step(kernel: &str, name: &str) -> (&'static StepOutcome, String) {
    let (step, context) = GUESTS.step(kernel, STEPS.iter().map(|step| step.0), name);
    let kernel_log = &step.report.kernel_log;
    for word in ["WARNING:", "BUG:", "Oops", "Call Trace"] {
        assert!(
            !kernel_log.iter().any(|line| line.text.contains(word)),
            "{context}"
        );
    }
    (step, context)
}

/// The scheduler stayed to the end, and nobody is counted as living anywhere who is gone.
fn nobody_left(step: &StepOutcome, context: &str) {
    assert_eq!(step.report.ejected, None, "{context}");
    let mut lines = step.report.scheduler_log.lines().rev();
    let last = lines.find(|line| line.contains("hinted tasks per LLC"));
    assert!(
        last.is_some_and(|line| line.ends_with("[0, 0, 0, 0]")),
        "{last:?}: {context}"
    );
}

/// The LLC of the parent, and how many children each LLC has.
fn family(output: &str, kind: &str) -> (usize, [usize; 4]) {
    let llc_of = |line: &str| {
        let cpu = line
            .rsplit(' ')
            .next()
            .and_then(|cpu| cpu.parse::<u32>().ok());
        (cpu.expect("a CPU") / CPUS_PER_LLC) as usize
    };
    let (mut parent, mut children) = (None, [0; 4]);
    for line in output.lines() {
        if line.starts_with(&format!("{kind} parent ")) {
            parent = Some(llc_of(line));
        } else if line.starts_with(&format!("{kind} child ")) {
            children[llc_of(line)] += 1;
        }
    }
    (
        parent.unwrap_or_else(|| panic!("no {kind} family: {output}")),
        children,
    )
}

/// Eight children that only sleep are in at least three of four LLCs, where all would be beside their parent without a
/// hint. Not in four for certain: what else just runs in an LLC makes it fuller. With four of them that was
/// enough to leave out another one, now and then.
fn spread_out(output: &str, kind: &str) {
    let (_, children) = family(output, kind);
    let used = children.iter().filter(|&&n| n > 0).count();
    assert!(used >= 3, "{kind}: {output}");
}

// Goal: children of a program that hints are born where the hint says, and the statistics tell why. Method: they
// sleep at once, so that idle CPUs alone would put all of them beside their parent; an LLC of four cores
// has room for three beside the parent. Catches: hints that nobody reads, sleepers that are not counted,
// counts that are not taken back when a family ends (the second spread family finds as much room as the first).
fn children(kernel: &str) {
    let (step, output) = step(kernel, "children");
    // Three beside the parent and the other two in one LLC, in one family at least: in others, something else ran on a
    // CPU of theirs just then, and room is idle CPUs too.
    let as_hinted = |kind| {
        let (parent, mut near) = family(&output, kind);
        let beside = std::mem::take(&mut near[parent]);
        (beside, near.iter().max()) == (3, Some(&2))
    };
    let families = ["near-1", "near-2", "near-3", "near-4", "near-5"];
    assert!(families.into_iter().any(as_hinted), "{output}");
    for kind in ["wide", "again"] {
        spread_out(&output, kind);
    }
    assert!(counted(step, "reasons", "hint-fork") >= 41, "{output}");
    assert_eq!(counted(step, "hints", "set"), 7, "{output}");
    nobody_left(step, &output);
}

// Goal: the system call answers as include/usher_hint.h says: inheritance over fork, clone and exec, rights, wrong
// arguments, other options, ten thousand tasks at once. Method: a C program that asks for everything.
fn calls(kernel: &str) {
    let (step, output) = step(kernel, "calls");
    assert!(output.contains("as promised"), "{output}");
    assert!(counted(step, "hints", "set") >= 10_000, "{output}");
    assert!(counted(step, "hints", "refused") >= 10, "{output}");
    nobody_left(step, &output);
}

// Goal: rules reach tasks by name, control group and user, those of before and those to come, and end where they no
// longer match; what a task asked for itself stays. Method: one task for each, and its hints by the system call.
fn rules(kernel: &str) {
    let (step, output) = step(kernel, "rules");
    for line in [
        "before: fork-affine, its child: none",
        "comm: fork-spread+wake-hold, its child: none",
        "cgroup: wake-affine",
        "other: none",
        "both: wake-hold",
        "one: none",
        "user: fork-affine+wake-hold",
        "setuid: fork-affine+wake-hold",
        "renamed: fork-spread+wake-hold",
        "asked: fork-affine",
        "asked for none: none",
    ] {
        assert!(
            output.lines().any(|found| found == line),
            "no `{line}`: {output}"
        );
    }
    assert!(counted(step, "hints", "by-rule") >= 6, "{output}");
    assert_eq!(counted(step, "hints", "set"), 2, "{output}");
    assert!(
        output.contains("no control group `/of-rule` now"),
        "{output}"
    );
    assert!(
        !output.contains("no control group `/usher-command`"),
        "{output}"
    );
    assert!(
        output.contains(":20: tasks that got this rule: 2"),
        "{output}"
    );
    assert_eq!(step.report.ejected, None, "{output}");
}

// Goal: hints outlive the restarts that CPUs coming and going cause, and the counts of who lives where begin anew with
// those who are there. Method: two CPUs under a load of hinted tasks, then a family that spreads. Catches: a
// map that goes with the life it was made in, homes that are taken from counts that never had them.
fn cpus_offline(kernel: &str) {
    let (step, output) = step(kernel, "cpus_offline");
    assert!(output.contains("load: fork-spread+wake-hold"), "{output}");
    assert!(output.contains("online 0-15"), "{output}");
    let lives = output.matches("attached as usher").count();
    assert!(lives > 1, "the loader never began anew: {output}");
    spread_out(&output, "after");
    nobody_left(step, &output);
}

// Goal: hints end with the loader, however that ends, and their tasks run on. Method: SIGKILL under load.
fn killed_loader(kernel: &str) {
    let (step, output) = step(kernel, "killed_loader");
    assert!(output.contains("before: fork-spread+wake-hold"), "{output}");
    assert!(
        output.contains("the kernel knows no placement hints"),
        "{output}"
    );
    assert!(output.contains("code 3"), "{output}");
    assert!(output.contains("no hints: Invalid argument"), "{output}");
    assert!(output.contains("ran on"), "{output}");
    assert_eq!(step.report.scheduler_exit, Some(137), "{output}");
}

// Goal: with --no-hints nobody answers, as without usher. Method: the example, which says so.
fn nobody_answers_unless_told_to(kernel: &str) {
    let (step, output) = step(kernel, "nobody_answers_unless_told_to");
    assert!(output.contains("no hints: Invalid argument"), "{output}");
    assert_eq!(step.report.ejected, None, "{output}");
}

on_each_kernel!(children calls rules cpus_offline killed_loader nobody_answers_unless_told_to);
