// SPDX-License-Identifier: GPL-2.0-only
//! What carries out a job and reports: process number 1 of a guest ([`main`]), or this very process on the machine at
//! hand ([`carry_out`], for [`crate::here`]).
//!
//! In a guest it runs in the real-time class, so that no scheduler under test decides when it runs, and sleeps
//! except when something happened. What it starts is back in the ordinary class.

mod bpf;
mod child;
mod klog;
pub(crate) mod sched_ext;
pub(crate) mod sys;

use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::proto::{Event, Frame, Job, SchedulerStart, Step, StepReport, JOB_PATH};
use crate::proto::{RECORD_PATH, SCHEDULER_REPORT_PATH};
use child::{Child, Output};
use klog::KernelLog;
use sys::Channel;

/// Guest time a scheduler gets to be enabled (the slowest known needs 30 s for the verifier).
const ATTACH_TIMEOUT: Duration = Duration::from_secs(120);
/// Guest time a scheduler gets to end after SIGINT.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between attaching and the command, the same under every scheduler, so that the loader's own
/// start-up work is over.
const SETTLE: Duration = Duration::from_millis(300);
/// How often a waiting agent says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A record leaves in frames of so many bytes.
const RECORD_PIECE: u64 = 1 << 18;

/// How often a wait looks whether the user wants to stop, where there is one.
const STOP_LOOK: Duration = Duration::from_millis(200);

/// Exit code of a command that the user stopped, as a shell has it for SIGINT.
const STOPPED: i32 = 130;

/// Takes every frame.
pub type Out<'a> = &'a mut dyn FnMut(&Frame);

/// Added to a wait that ends at a deadline, so that it does not end a moment before it.
const CLOCK_SLACK: Duration = Duration::from_millis(2);

/// Runs as process number 1: set up, carry out the job, say so, wait to be switched off.
pub fn main() -> ! {
    // The channel may be a device that is only there once its file system is.
    let mounted = sys::mount();
    let why = match Channel::open() {
        Ok(mut channel) => match mounted.and_then(|()| run(&mut channel)) {
            Ok(()) => {
                channel.send(&Frame::Event(Event::Done));
                None
            }
            Err(why) => {
                channel.send(&Frame::Event(Event::Failed { why: why.clone() }));
                Some(why)
            }
        },
        Err(why) => Some(why),
    };
    if let Some(why) = why {
        eprintln!("usher-guest: {why}");
    }
    // The host ends the emulator once it has read the last frame.
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn run(channel: &mut Channel) -> Result<(), String> {
    sys::prepare()?;
    let text = std::fs::read(JOB_PATH).map_err(|error| format!("{JOB_PATH}: {error}"))?;
    let job: Job = serde_json::from_slice(&text).map_err(|error| format!("{JOB_PATH}: {error}"))?;
    if job.bpf_stats {
        std::fs::write("/proc/sys/kernel/bpf_stats_enabled", "1")
            .map_err(|error| format!("bpf_stats_enabled: {error}"))?;
    }
    carry_out(&job, None, &mut |frame| channel.send(frame))
}

/// Whether a sched_ext scheduler could be loaded on this kernel now; if not, why.
pub fn can_attach() -> Result<(), String> {
    match (sched_ext::state().as_deref(), sched_ext::ops()) {
        (None, _) => Err("this kernel has no sched_ext (no /sys/kernel/sched_ext)".into()),
        (Some("disabled"), _) => Ok(()),
        (Some(state), ops) => Err(format!(
            "sched_ext is {state} with the scheduler {}",
            ops.unwrap_or_else(|| "of another program".into())
        )),
    }
}

/// Carries out the steps of a job, in order. Once `stop` is true the command that runs is ended, its scheduler is
/// unloaded, and no other step begins.
///
/// # Errors
/// What kept it from going on, in words.
pub fn carry_out(job: &Job, stop: Option<&AtomicBool>, out: Out<'_>) -> Result<(), String> {
    out(&Frame::Event(Event::Hello {
        release: sys::release(),
        cpus: sys::cpus_online(),
        nodes: sys::nodes(),
    }));
    let mut log = KernelLog::open()?;
    let mut steps = job.steps.iter().enumerate();
    let result = steps.try_for_each(|(index, step)| {
        if !is_set(stop) {
            let report = run_step(out, stop, &mut log, index, step)?;
            out(&Frame::Event(Event::End(Box::new(report))));
        }
        Ok(())
    });
    Child::forget_commands();
    result
}

fn is_set(stop: Option<&AtomicBool>) -> bool {
    stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// One step: load the scheduler, run the command, look, unload.
fn run_step(
    out: Out<'_>,
    stop: Option<&AtomicBool>,
    log: &mut KernelLog,
    index: usize,
    step: &Step,
) -> Result<StepReport, String> {
    log.skip();
    let mut report = StepReport {
        step: index,
        ..StepReport::default()
    };
    report.scheduler = step
        .scheduler
        .as_ref()
        .map_or("eevdf".into(), |s| s.name.clone());
    let mut loader = match &step.scheduler {
        Some(start) => match attach(out, start, log, &mut report)? {
            Some(loader) => Some(loader),
            None => {
                report.kernel_log.append(&mut log.take());
                return Ok(report);
            }
        },
        None => None,
    };
    std::thread::sleep(SETTLE);
    report.ops = sched_ext::ops();
    out(&Frame::Event(Event::Begin { step: index }));
    run_command(out, stop, step, loader.as_mut(), log, &mut report)?;
    if let Some(loader) = loader.as_mut() {
        observe(loader, &mut report);
        unload(out, loader, log, &mut report);
    }
    report.kernel_log.append(&mut log.take());
    Ok(report)
}

/// Adds to the report what the kernel knows of whatever hangs now, its lines of every level.
fn note_what_hangs(log: &mut KernelLog, report: &mut StepReport) {
    report.kernel_log.append(&mut log.take());
    sys::show_what_hangs();
    report.kernel_log.append(&mut log.take_all());
}

/// Starts the loader and waits until the kernel says that its scheduler is enabled. `None` when that
/// did not happen; the report then says why.
fn attach(
    out: Out<'_>,
    start: &SchedulerStart,
    log: &mut KernelLog,
    report: &mut StepReport,
) -> Result<Option<Child>, String> {
    if sched_ext::state().as_deref() != Some("disabled") {
        return Err(format!(
            "cannot load {}: sched_ext is {} here",
            start.name,
            sched_ext::state().unwrap_or_else(|| "absent".into())
        ));
    }
    for left_behind in [SCHEDULER_REPORT_PATH, RECORD_PATH] {
        let _ = std::fs::remove_file(left_behind);
    }
    let mut loader = Child::start(&start.argv, &[])?;
    let begun = Instant::now();
    let mut alive = begun;
    loop {
        loader.collect(Duration::from_millis(10), &mut |_, _| ());
        if sched_ext::state().as_deref() == Some("enabled") && sched_ext::ops().is_some() {
            report.attach_ns = Some(begun.elapsed().as_nanos() as u64);
            return Ok(Some(loader));
        }
        if loader.ended().is_some() {
            report.ejected = Some("was not loaded".into());
            break;
        }
        if begun.elapsed() > ATTACH_TIMEOUT {
            report.ejected = Some(format!(
                "was not enabled within {} s",
                ATTACH_TIMEOUT.as_secs()
            ));
            note_what_hangs(log, report);
            loader.signal(libc::SIGKILL);
            loader.wait(STOP_TIMEOUT);
            break;
        }
        if alive.elapsed() > HEARTBEAT {
            alive = Instant::now();
            out(&Frame::Event(Event::Alive));
        }
    }
    report.scheduler_exit = loader.ended();
    report.scheduler_log = loader.log();
    Ok(None)
}

/// Runs the command to its end (or its timeout), passing its output on and the loader's aside.
fn run_command(
    out: Out<'_>,
    stop: Option<&AtomicBool>,
    step: &Step,
    mut loader: Option<&mut Child>,
    log: &mut KernelLog,
    report: &mut StepReport,
) -> Result<(), String> {
    let pid = loader
        .as_ref()
        .map_or(String::new(), |loader| loader.pid().to_string());
    let mut command = match Child::start_command(&step.command, &[("USHER_SCHEDULER_PID", pid)]) {
        Ok(command) => command,
        Err(why) => {
            // As a shell would: not found.
            out(&Frame::Stderr(format!("usher-guest: {why}\n").into_bytes()));
            report.exit = Some(127);
            return Ok(());
        }
    };
    let timeout = Duration::from_secs(step.timeout_s);
    let mut alive = Instant::now();
    let look = if stop.is_some() { STOP_LOOK } else { HEARTBEAT };
    loop {
        let mut pass_on = |output: Output, bytes: &[u8]| {
            out(&match output {
                Output::Stdout => Frame::Stdout(bytes.to_vec()),
                Output::Stderr => Frame::Stderr(bytes.to_vec()),
            });
        };
        let patience = look.min(timeout.saturating_sub(command.age()) + CLOCK_SLACK);
        child::wait_any(&mut command, loader.as_deref_mut(), patience, &mut pass_on);
        if let Some(exit) = command.ended() {
            report.exit = Some(exit);
            break;
        }
        if command.age() > timeout {
            report.timed_out = true;
            note_what_hangs(log, report);
            Child::end_commands();
            command.wait(STOP_TIMEOUT);
            report.exit = Some(124);
            break;
        }
        if is_set(stop) {
            Child::end_commands();
            command.wait(STOP_TIMEOUT);
            report.exit = Some(STOPPED);
            break;
        }
        if alive.elapsed() >= HEARTBEAT {
            alive = Instant::now();
            out(&Frame::Event(Event::Alive));
        }
    }
    report.elapsed_ns = command.age().as_nanos() as u64;
    // What it left running must not disturb the next step.
    Child::end_commands();
    Ok(())
}

/// Notes whether the scheduler is still there and what the kernel counted about it.
fn observe(loader: &mut Child, report: &mut StepReport) {
    loader.collect(Duration::ZERO, &mut |_, _| ());
    // A loader that reloads itself (CPU hotplug) is disabled for a moment; so is one that is about to end.
    let patience = Instant::now();
    while loader.ended().is_none() && sched_ext::state().as_deref() != Some("enabled") {
        if patience.elapsed() > STOP_TIMEOUT {
            report.ejected = Some(format!(
                "is no longer enabled after the command (state {}, its loader waits in {})",
                sched_ext::state().unwrap_or_default(),
                loader.waits_in()
            ));
            return;
        }
        loader.collect(Duration::from_millis(20), &mut |_, _| ());
    }
    if let Some(exit) = loader.ended() {
        report.ejected = Some(format!("ended while the command ran (exit {exit})"));
        return;
    }
    report.events = sched_ext::events();
    report.programs = bpf::struct_ops_programs();
}

/// Ends the loader as a user would, with SIGINT, and reads what it leaves behind.
fn unload(out: Out<'_>, loader: &mut Child, log: &mut KernelLog, report: &mut StepReport) {
    if loader.ended().is_none() {
        loader.signal(libc::SIGINT);
        if !loader.wait(STOP_TIMEOUT) {
            report.ejected = Some(format!(
                "did not end within {} s of SIGINT",
                STOP_TIMEOUT.as_secs()
            ));
            note_what_hangs(log, report);
            loader.signal(libc::SIGKILL);
            loader.wait(STOP_TIMEOUT);
        }
    }
    if !wait_until_disabled() {
        // The next step needs the kernel's own scheduler back, by the kernel's emergency key if must be.
        let state = sched_ext::state().unwrap_or_default();
        report.ejected = Some(format!(
            "was still {state} {} s after its loader's end and had to be reset",
            STOP_TIMEOUT.as_secs()
        ));
        note_what_hangs(log, report);
        sys::reset_sched_ext();
        wait_until_disabled();
    }
    out(&Frame::Event(Event::Alive));
    report.scheduler_exit = loader.ended();
    report.scheduler_log = loader.log();
    report.scheduler_stats = std::fs::read(SCHEDULER_REPORT_PATH)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    if let Err(error) = send_record(out) {
        let note = format!("usher-guest: {RECORD_PATH} cannot be read: {error}\n");
        out(&Frame::Stderr(note.into_bytes()));
    }
}

/// Sends the scheduler's record, if it wrote one.
fn send_record(out: Out<'_>) -> std::io::Result<()> {
    let mut file = match File::open(RECORD_PATH) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    loop {
        let mut piece = Vec::new();
        file.by_ref().take(RECORD_PIECE).read_to_end(&mut piece)?;
        if piece.is_empty() {
            return Ok(());
        }
        out(&Frame::Recorded(piece));
    }
}

fn wait_until_disabled() -> bool {
    let patience = Instant::now();
    while sched_ext::state().as_deref() != Some("disabled") {
        if patience.elapsed() > STOP_TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
