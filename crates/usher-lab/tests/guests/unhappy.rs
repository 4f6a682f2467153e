// SPDX-License-Identifier: GPL-2.0-only
//! Guests that do not finish: each is an error that says what happened, never a hang.

use std::process::Command;
use std::time::{Duration, Instant};

use usher_lab::error::LabError;
use usher_lab::lab::{self, Request};
use usher_lab::proto::Frame;
use usher_lab::scheduler::KERNEL_SCHEDULER;

const STALLED_MIB: u64 = 768;

fn request(script: &str) -> Request {
    Request::new(
        "1n1l2c1t".parse().expect("a legal shape"),
        "6.18",
        vec!["sh".into(), "-c".into(), script.into()],
        60,
    )
}

fn run(
    request: &Request,
    seen: &mut dyn FnMut(&Frame),
) -> Result<usher_lab::runner::Outcome, LabError> {
    let kernels_own = KERNEL_SCHEDULER.parse().expect("known");
    lab::run(request, &kernels_own, &|line| eprintln!("{line}"), seen)
}

/// What the error says, and the console's lines.
fn failure(result: Result<usher_lab::runner::Outcome, LabError>) -> (String, Vec<String>) {
    match result {
        Err(error @ LabError::Guest { .. }) => {
            assert_eq!(error.exit_code(), 3);
            let text = error.to_string();
            let LabError::Guest { console, .. } = error else {
                unreachable!()
            };
            (text, console)
        }
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("the guest is said to have finished"),
    }
}

// Goal: a panic of the guest's kernel is told with its reason and the console's last lines. Method: the command
// crashes the kernel. Catches: a lab that waits for a report that cannot come.
#[test]
fn a_panic_is_an_error() {
    let (text, console) = failure(run(&request("echo c > /proc/sysrq-trigger"), &mut |_| ()));
    assert!(text.contains("panicked"), "{text}");
    assert!(text.contains("sysrq triggered crash"), "{text}");
    assert!(!console.is_empty());
}

// Goal: a guest that stands still is told as such, within the limit given. Method: the emulator is stopped by a
// signal while the command runs. Catches: a lab that waits for ever, or leaves the emulator behind.
#[test]
fn a_stall_is_an_error() {
    let mut request = request("echo ready; sleep 50");
    request.stall = Some(Duration::from_secs(8));
    request.memory_mib = Some(STALLED_MIB); // tells its emulator from those of tests beside it
    let mut stopped = None;
    let result = run(&request, &mut |frame| {
        if matches!(frame, Frame::Stdout(_)) && stopped.is_none() {
            let pid = emulator(STALLED_MIB);
            let status = Command::new("kill")
                .args(["-STOP", &pid.to_string()])
                .status();
            assert!(status.expect("kill runs").success());
            stopped = Some((pid, Instant::now()));
        }
    });
    let (pid, since) = stopped.expect("the command began");
    let (text, _) = failure(result);
    assert!(text.contains("stalled: no sign of life for 8 s"), "{text}");
    assert!(
        since.elapsed() < Duration::from_secs(30),
        "only after {:?}",
        since.elapsed()
    );
    assert!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "the emulator is still there"
    );
}

// Goal: silence is no stall. Method: a command that says nothing for twice the limit. Catches: a limit on output
// instead of on life.
#[test]
fn silence_is_no_stall() {
    let mut request = request("sleep 25");
    request.stall = Some(Duration::from_secs(12));
    let outcome = run(&request, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(outcome.steps[0].report.exit, Some(0));
}

// Goal: a command that takes too long is killed, with what it started, and said so. Catches: a guest that stays up
// for a forgotten process.
#[test]
fn a_command_without_end_is_killed() {
    let mut request = request("echo begun; sleep 1000 & sleep 1000");
    request.timeout_s = 3;
    let outcome = run(&request, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let step = &outcome.steps[0];
    assert!(step.report.timed_out);
    assert_eq!(String::from_utf8_lossy(&step.stdout), "begun\n");
}

/// The emulator of the guest with so much memory, which this process runs.
fn emulator(memory_mib: u64) -> u32 {
    let own = std::process::id().to_string();
    let found = Command::new("pgrep")
        .args(["-P", &own, "-f", &format!("[-]m {memory_mib}M")])
        .output()
        .expect("pgrep runs");
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("not one emulator among the children: {text:?}"))
}
