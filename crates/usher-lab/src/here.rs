// SPDX-License-Identifier: GPL-2.0-only
//! A comparison of schedulers on the machine at hand: no guest, no emulator, real time.
//!
//! The steps are those of a guest, and the same code carries them out ([`crate::agent`]): a scheduler is loaded, the
//! command runs, the scheduler is unloaded, in turn and as often as was asked for. So it needs root, a kernel
//! with sched_ext, and no scheduler loaded already. Whatever happens to this process, the kernel's own
//! scheduler is back: schedulers end with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::agent;
use crate::error::{LabError, Result};
use crate::lab::{self, Compared, Comparison, Say};
use crate::proto::{Frame, Job, Step};
use crate::runner::Collector;
use crate::tool;

/// Whether this machine's kernel has sched_ext at all.
pub fn has_sched_ext() -> bool {
    std::path::Path::new("/sys/kernel/sched_ext").is_dir()
}

/// What sched_ext calls the attached scheduler; none under the kernel's own.
pub fn scheduler() -> Option<String> {
    agent::sched_ext::ops()
}

/// The running kernel's release.
pub fn release() -> String {
    agent::sys::release()
}

/// The machine's name and kernel release, for reports.
pub fn name() -> String {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let host = read("hostname").unwrap_or_default();
    format!("{}, {cpus} CPUs", host.trim())
}

/// Refuses what cannot work, before any scheduler is loaded.
///
/// # Errors
/// Not root, no sched_ext, or a scheduler that somebody else has loaded.
pub fn check() -> Result<()> {
    let missing = |what: String, remedy: &str| LabError::Missing {
        what,
        remedy: remedy.into(),
    };
    agent::can_attach().map_err(|why| {
        missing(
            why,
            "end that scheduler, or boot a kernel with CONFIG_SCHED_CLASS_EXT",
        )
    })?;
    // SAFETY: no pointers, and it cannot fail.
    match unsafe { libc::geteuid() } {
        0 => Ok(()),
        _ => Err(missing(
            "loading a scheduler needs root".into(),
            "run it with sudo",
        )),
    }
}

/// Runs the command under each scheduler in turn, so and so often. `package` has the command's program, for the
/// error of a machine without it. Once `stop` is true the comparison ends with an error and no scheduler is loaded.
///
/// # Errors
/// As [`check`]; a program or scheduler that is not there; a scheduler that was refused or ejected.
pub fn compare(
    command: &[String],
    package: &str,
    comparison: &Comparison,
    timeout_s: u64,
    stop: &AtomicBool,
    say: Say,
) -> Result<Compared> {
    check()?;
    let program = command.first().map(String::as_str).unwrap_or_default();
    if tool::find(program).is_none() {
        return Err(LabError::Missing {
            what: format!("{program} is not on this machine"),
            remedy: format!("install the package {package}"),
        });
    }
    let begun = Instant::now();
    let starts = comparison
        .schedulers
        .iter()
        .map(|scheduler| scheduler.start_here());
    let starts = starts.collect::<Result<Vec<_>>>()?;
    let step = |scheduler| Step {
        scheduler,
        command: command.to_vec(),
        timeout_s,
    };
    let failure = |why: String| LabError::Tool {
        command: command.join(" "),
        why,
    };
    let mut compared = lab::in_turn(&starts, comparison, say, step, |steps, watch| {
        let job = Job {
            steps,
            bpf_stats: false,
        };
        let mut collector = Collector::default();
        let mut damaged = None;
        let mut out = |frame: &Frame| {
            watch(frame);
            if let Err(why) = collector.take(frame.clone()) {
                damaged = Some(why);
            }
        };
        agent::carry_out(&job, Some(stop), &mut out).map_err(failure)?;
        match damaged {
            Some(why) => Err(failure(why)),
            None if stop.load(Ordering::Relaxed) => Err(failure("stopped".into())),
            None => Ok(collector.outcome),
        }
    })?;
    compared.runs.sort_by_key(|run| (run.round, run.scheduler));
    compared.wall_s = begun.elapsed().as_secs_f64();
    match compared
        .runs
        .iter()
        .find(|run| run.step.report.exit.is_none())
    {
        Some(run) => Err(lab::ejected(&run.step)),
        None => Ok(compared),
    }
}
