// SPDX-License-Identifier: GPL-2.0-only
//! What the tests in guests share. Where a file says so, each kernel is booted once for all its tests, and its steps run one after
//! the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use usher_lab::lab::{self, Request};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::{Scheduler, KERNEL_SCHEDULER};

/// Functions for scripts: waiting for what the kernel says of its scheduler, and a CPU that goes and comes back.
pub const SHELL: &str = r#"
wait_state() {
    n=0
    while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ]; do
        n=$((n + 1)); [ $n -lt 400 ] || { echo "state is not $1 after 40 s"; exit 1; }
        sleep 0.1
    done
}
attached() { cat /sys/kernel/sched_ext/enable_seq; }
wait_attached_since() {
    n=0
    until [ $(attached) -gt $1 ]; do
        n=$((n + 1)); [ $n -lt 400 ] || { echo "nothing attached anew in 40 s"; exit 1; }
        sleep 0.1
    done
    wait_state enabled
}
leaves_and_returns() {
    before=$(attached)
    echo 0 > /sys/devices/system/cpu/cpu$1/online
    sleep 0.2
    echo 1 > /sys/devices/system/cpu/cpu$1/online
    wait_attached_since $before
}
loader_lives() { kill -0 $USHER_SCHEDULER_PID || { echo 'the loader is gone'; exit 1; }; }
"#;

/// Functions for scripts: tasks that never sleep, born on a list of CPUs, and where one is.
pub const HOGS: &str = r#"
burn() { taskset -c $1 sh -c 'while :; do :; done' & }
cpu_of() { cut -d ' ' -f 39 /proc/$1/stat; }
wait_within() {
    n=0
    while cpu=$(cpu_of $1); [ $cpu -lt $2 ] || [ $cpu -gt $3 ]; do
        n=$((n + 1)); [ $n -lt 200 ] || { echo "task $1 is still on CPU $cpu after 20 s"; exit 1; }
        sleep 0.1
    done
}
wait_at_most() { wait_within $1 0 $2; }
"#;

/// What a script says that runs under usher, with more options behind a colon, in a guest where time is the count of instructions. Panics if usher does not
/// stay.
pub fn said(options: &str, kernel: &str, shape: &str, script: String) -> String {
    let scheduler: Scheduler = format!("{}{options}", built("scx_usher").display())
        .parse()
        .expect("a program");
    let request = Request {
        icount_seed: Some(1),
        ..Request::new(
            shape.parse().expect("a legal shape"),
            kernel,
            vec!["sh".into(), "-c".into(), script],
            300,
        )
    };
    let log = |line: &str| eprintln!("{line}");
    let outcome =
        lab::run(&request, &scheduler, &log, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let step = &outcome.steps[0];
    let said = String::from_utf8_lossy(&step.stdout).into_owned();
    eprintln!("{}", step.report.scheduler_log);
    if let Some(ejected) = &step.report.ejected {
        panic!("ejected: {ejected}: {said}");
    }
    said
}

pub fn repository() -> PathBuf {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Path::new(path).canonicalize().expect("this repository")
}

/// A program of the build that this test is of. Missing is a failure, not a skip: a test that does not run proves nothing.
pub fn built(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let build = this.ancestors().nth(2).expect("cargo's folder of a build");
    let path = build.join(name);
    assert!(
        path.is_file(),
        "{} is not built: run `cargo build --workspace` before (or `make test`, which does)",
        path.display()
    );
    path
}

/// A file of this test process. Kernels in names may be paths.
pub fn temporary(name: &str) -> PathBuf {
    let folder = repository().join("target/tmp");
    std::fs::create_dir_all(&folder).expect("target is writable");
    folder.join(format!("{}-{}", std::process::id(), name.replace('/', "-")))
}

/// Compiles a C program of this repository against the public header.
pub fn compiled(source: &str, name: &str) -> PathBuf {
    let program = temporary(name);
    let status = Command::new("cc")
        .args("-std=gnu11 -Wall -Wextra -Werror -pthread -I".split(' '))
        .arg(repository().join("include"))
        .arg("-o")
        .args([&program, &repository().join(source)])
        .status()
        .expect("cc runs");
    assert!(status.success(), "{source} does not compile");
    program
}

/// Runs one command in a guest under the kernel's own scheduler, with one of usher's programs, which lies where it does here.
/// What it said; it ended well.
pub fn alone(
    kernel: &str,
    shape: &str,
    program: &Path,
    command: Vec<String>,
    limit_s: u64,
) -> StepOutcome {
    let request = Request {
        copies: vec![program.to_owned()],
        ..Request::new(
            shape.parse().expect("a legal shape"),
            kernel,
            command,
            limit_s,
        )
    };
    let kernels_own = KERNEL_SCHEDULER.parse().expect("known");
    let said = |line: &str| eprintln!("{line}");
    let mut outcome = lab::run(&request, &kernels_own, &said, &mut |_| ())
        .unwrap_or_else(|error| panic!("kernel {kernel}: {error}"));
    let step = outcome.steps.remove(0);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&step.stdout),
        String::from_utf8_lossy(&step.stderr),
    );
    assert_eq!(
        step.report.exit,
        Some(0),
        "kernel {kernel}: {stdout}{stderr}"
    );
    step
}

/// What the steps gave, or why the guest failed.
pub type Steps = Result<Vec<StepOutcome>, String>;

/// A guest of each kernel, booted when the first test asks.
pub struct Guests {
    boot: fn(&str) -> Steps,
    of_6_18: OnceLock<Steps>,
    of_7_0: OnceLock<Steps>,
    of_another: OnceLock<Steps>,
}

impl Guests {
    pub const fn new(boot: fn(&str) -> Steps) -> Self {
        Self {
            boot,
            of_6_18: OnceLock::new(),
            of_7_0: OnceLock::new(),
            of_another: OnceLock::new(),
        }
    }

    /// What all steps gave. Panics if the guest failed.
    pub fn all(&self, kernel: &str) -> &[StepOutcome] {
        let guest = match kernel {
            "6.18" => &self.of_6_18,
            "7.0" => &self.of_7_0,
            _ => &self.of_another,
        };
        guest
            .get_or_init(|| (self.boot)(kernel))
            .as_ref()
            .unwrap_or_else(|error| panic!("kernel {kernel}: {error}"))
    }

    /// What a step gave: its outcome, and everything said in it. Its command ended well.
    pub fn step<'a>(
        &self,
        kernel: &str,
        mut names: impl Iterator<Item = &'a str>,
        name: &str,
    ) -> (&StepOutcome, String) {
        let step = &self.all(kernel)[names.position(|known| known == name).expect("a known step")];
        let report = &step.report;
        let context = format!("kernel {kernel}, {}", everything_said(name, step));
        assert!(!report.timed_out, "a task hangs: {context}");
        assert_eq!(report.exit, Some(0), "{context}");
        (step, context)
    }
}

/// What a step of a guest gave, and everything said in it. Its command ended well, and its scheduler was there to the end.
pub fn step_of<'a>(
    steps: &'static Steps,
    mut names: impl Iterator<Item = &'a str>,
    name: &str,
) -> (&'static StepOutcome, String) {
    let steps = steps.as_ref().unwrap_or_else(|error| panic!("{error}"));
    let step = &steps[names.position(|known| known == name).expect("a known step")];
    let context = everything_said(name, step);
    assert_eq!(step.report.ejected, None, "{context}");
    assert_eq!(step.report.exit, Some(0), "{context}");
    (step, context)
}

/// All that was said in a step, by whomever.
pub fn everything_said(name: &str, step: &StepOutcome) -> String {
    let report = &step.report;
    let log: Vec<&str> = report.kernel_log.iter().map(|l| l.text.as_str()).collect();
    format!(
        "step {name}, scheduler {} (ops {:?})\ncommand's output:\n{}{}\nloader's output:\n{}\nkernel log:\n{}",
        report.scheduler,
        report.ops,
        String::from_utf8_lossy(&step.stdout),
        String::from_utf8_lossy(&step.stderr),
        report.scheduler_log,
        log.join("\n")
    )
}

/// How many decisions usher counted in a step, by its statistics.
pub fn decisions(step: &StepOutcome) -> u64 {
    let stats = step
        .report
        .scheduler_stats
        .as_ref()
        .expect("usher reports at its end");
    let reasons = stats["reasons"].as_object().expect("reasons are an object");
    reasons.values().filter_map(|count| count.as_u64()).sum()
}

/// A count of usher's statistics in a step: `group` is `reasons`, `events` or `callbacks`.
pub fn counted(step: &StepOutcome, group: &str, name: &str) -> u64 {
    let stats = step.report.scheduler_stats.as_ref();
    let stats = stats.expect("usher reports at its end");
    let count = stats[group][name].as_u64();
    count.unwrap_or_else(|| panic!("no {name} in the statistics' {group}: {stats}"))
}

/// What the tests `on_another` run on: a series whose kernel is in the cache, or a kernel's file.
pub fn another_kernel() -> String {
    std::env::var("USHER_TEST_KERNEL")
        .expect("USHER_TEST_KERNEL says which kernel to test on, as `usher lab run --kernel` does")
}

/// A test per function and kernel. Those on another kernel run when they are asked for.
macro_rules! on_each_kernel {
    ($($name:ident)*) => {
        $(mod $name {
            #[test]
            fn on_6_18() {
                super::$name("6.18");
            }

            #[test]
            fn on_7_0() {
                super::$name("7.0");
            }

            #[test]
            #[ignore = "on the kernel that USHER_TEST_KERNEL names"]
            fn on_another() {
                super::$name(&$crate::common::another_kernel());
            }
        })*
    };
}
pub(crate) use on_each_kernel;
