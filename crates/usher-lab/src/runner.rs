// SPDX-License-Identifier: GPL-2.0-only
//! Boots one guest, watches it and collects what it reports. A guest that panics, stalls or vanishes is
//! an error with the console's last lines; whatever happens, the emulator is gone when this returns.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::arch::Arch;
use crate::cache::{self, Cache};
use crate::error::{LabError, Result};
use crate::fetch;
use crate::image::Plan;
use crate::kernel::Kernel;
use crate::proto::{Decoder, Event, Frame, Job, StepReport, JOB_PATH};
use crate::qemu::{Machine, Time};
use crate::quota::{Groups, Quotas};
use crate::shape::Shape;

/// How often the host looks at the guest's channel.
const POLL: Duration = Duration::from_millis(10);
/// Console lines that an error shows.
const CONSOLE_LINES: usize = 25;
/// Bytes kept of one command's output; more is dropped with a note.
const OUTPUT_MAX: usize = 16 << 20;

/// How a guest is booted.
#[derive(Debug, Clone)]
pub struct BootOptions {
    /// CPUs, nodes and caches.
    pub shape: Shape,
    /// What time means in it.
    pub time: Time,
    /// Memory over all nodes, MiB.
    pub memory_mib: u64,
    /// A quota for each CPU's thread, applied once the guest is up; only with [`Time::MultiThread`].
    pub quotas: Option<Quotas>,
    /// Wall time without any sign of life after which the guest counts as stalled, `None` for a limit
    /// that suits its size.
    pub stall: Option<Duration>,
    /// More words for the kernel's command line.
    pub append: String,
}

/// What a boot gave.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Kernel release, read in the guest.
    pub release: String,
    /// CPUs online in the guest at the start.
    pub cpus: u32,
    /// NUMA nodes in the guest's sysfs.
    pub nodes: u32,
    /// One per step, in order.
    pub steps: Vec<StepOutcome>,
    /// Wall time from the emulator's start to the last frame.
    pub wall: Duration,
}

/// What a step gave.
#[derive(Debug, Clone, Default)]
pub struct StepOutcome {
    /// The agent's report.
    pub report: StepReport,
    /// What the command wrote to standard output.
    pub stdout: Vec<u8>,
    /// What the command wrote to standard error.
    pub stderr: Vec<u8>,
}

/// Called with every frame as it arrives.
pub type Observer<'a> = &'a mut dyn FnMut(&Frame);

/// Boots a guest and lets it do a job. `files` is what the job needs beyond the base image.
pub fn boot(
    cache: &Cache,
    kernel: &Kernel,
    base: &Plan,
    files: Plan,
    job: &Job,
    options: &BootOptions,
    observer: Observer,
) -> Result<Outcome> {
    let folder = RunFolder::create(cache)?;
    let initrd = folder.0.join("initrd");
    write_initrd(cache, kernel, base, files, job, &initrd)?;
    let mut machine = Machine {
        emulator: fetch::emulator_program(cache, options.shape.arch()),
        shape: options.shape.clone(),
        time: options.time,
        memory_mib: options.memory_mib,
        kernel: kernel.image.clone(),
        initrd,
        console: folder.0.join("console"),
        channel: folder.0.join("channel"),
        device_tree: None,
        append: options.append.clone(),
    };
    if machine.shape.arch() == Arch::Arm64 {
        let path = folder.0.join("device-tree");
        machine.write_device_tree(&path)?;
        machine.device_tree = Some(path);
    }
    let mut guest = Guest::start(machine)?;
    let result = guest.watch(job, options, observer);
    drop(guest);
    result
}

fn write_initrd(
    cache: &Cache,
    kernel: &Kernel,
    base: &Plan,
    mut files: Plan,
    job: &Job,
    path: &Path,
) -> Result<()> {
    let text = serde_json::to_vec(job).expect("a job is plain data");
    files.bytes(JOB_PATH, 0o644, &text);
    if let Some(config) = &kernel.config {
        files.host_file(config, &format!("/boot/config-{}", kernel.release));
    }
    let mut bytes = cache::read(&base.cached_archive(cache)?)?;
    bytes.extend(files.without(base).archive()?);
    std::fs::write(path, bytes).map_err(|error| LabError::io(path, "cannot write", error))
}

/// A folder of its own for one boot, deleted at the end.
struct RunFolder(PathBuf);

impl RunFolder {
    fn create(cache: &Cache) -> Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        remove_leftovers(&cache.path("runs"));
        let path = cache
            .path("runs")
            .join(format!("{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| LabError::io(&path, "cannot create", e))?;
        Ok(RunFolder(path))
    }
}

/// Removes the folders of processes that were killed before they could do so.
fn remove_leftovers(runs: &Path) {
    for entry in std::fs::read_dir(runs).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running emulator; dropping it ends it.
struct Guest {
    process: Child,
    machine: Machine,
    stderr: PathBuf,
    begun: Instant,
    groups: Option<Groups>,
}

impl Guest {
    fn start(machine: Machine) -> Result<Self> {
        let stderr = machine.console.with_file_name("stderr");
        let errors =
            File::create(&stderr).map_err(|e| LabError::io(&stderr, "cannot create", e))?;
        let (arch, emulator) = (machine.shape.arch(), machine.emulator.clone());
        let mut command = Command::new(&emulator);
        command
            .args(machine.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        // SAFETY: between fork and exec only prctl() is called, which is async-signal-safe. It makes the
        // emulator end with this process even when that is killed.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let process = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => LabError::Missing {
                what: format!("the emulator {} is not installed", emulator.display()),
                remedy: format!("run `{}`", arch.setup()),
            },
            _ => LabError::io(emulator, "cannot start", error),
        })?;
        Ok(Guest {
            process,
            machine,
            stderr,
            begun: Instant::now(),
            groups: None,
        })
    }

    /// Reads frames until the job is done or the guest fails.
    fn watch(&mut self, job: &Job, options: &BootOptions, observer: Observer) -> Result<Outcome> {
        // A limit that was asked for is about the command; how long booting is silent, a busy host decides.
        let booting = stall_limit(options);
        let asked = options.stall.unwrap_or(booting);
        let mut channel = Tail::new(&self.machine.channel);
        let mut console = Tail::new(&self.machine.console);
        let mut decoder = Decoder::default();
        let mut collector = Collector::default();
        let mut last_sign = Instant::now();
        loop {
            // Looked at before the channel is read: what an ended emulator has written is all there.
            let ended = self.process.try_wait().ok().flatten();
            let news = channel.read_new();
            let said = console.read_new();
            if !news.is_empty() || !said.is_empty() {
                last_sign = Instant::now();
            }
            decoder.push(&news);
            while let Some(frame) = decoder
                .next_frame()
                .map_err(|why| self.failure(format!("garbled its report: {why}")))?
            {
                observer(&frame);
                if let (Frame::Event(Event::Hello { .. }), Some(quotas)) = (&frame, &options.quotas)
                {
                    self.groups = Some(Groups::apply(self.process.id(), quotas)?);
                }
                if collector.take(frame).map_err(|why| self.failure(why))? {
                    collector.outcome.wall = self.begun.elapsed();
                    return Ok(collector.outcome);
                }
            }
            if let Some(status) = ended {
                let what = self.death(&status.to_string(), &console, &collector, job);
                return Err(self.failure(what));
            }
            let stall = match collector.begun {
                true => asked,
                false => asked.max(booting),
            };
            if last_sign.elapsed() > stall {
                let what = format!(
                    "stalled: no sign of life for {} s {}",
                    stall.as_secs(),
                    collector.place(job)
                );
                return Err(self.failure(what));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Words for an emulator that ended by itself.
    fn death(&self, status: &str, console: &Tail, collector: &Collector, job: &Job) -> String {
        let errors = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        if let Some(line) = errors.lines().rev().find(|line| !line.trim().is_empty()) {
            return format!("could not run: {line} (emulator: {status})");
        }
        let text = String::from_utf8_lossy(&console.all).into_owned();
        match text.lines().find(|line| line.contains("Kernel panic")) {
            Some(line) => format!("panicked {}: {}", collector.place(job), line.trim()),
            None => format!("went away {} (emulator: {status})", collector.place(job)),
        }
    }

    fn failure(&self, what: String) -> LabError {
        let text = std::fs::read(&self.machine.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<String> = text.lines().map(|l| l.trim_end().to_string()).collect();
        let from = lines.len().saturating_sub(CONSOLE_LINES);
        let emulator_suspect = lines.iter().any(|line| impossible(line, self.machine.time))
            || self.machine.time == Time::MultiThread && stale_branch(&lines);
        LabError::Guest {
            what,
            console: lines[from..].to_vec(),
            emulator_suspect,
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.groups = None;
    }
}

/// Whether a line of the console shows what no real CPU does: under multi-threaded emulation, an instruction half
/// written while text is patched; under any, flags that do not exist (an interrupt was seen to save part of a
/// pointer for them, and the guest panicked).
fn impossible(line: &str, time: Time) -> bool {
    /// The highest bit of RFLAGS that is defined is 21, ID; those above are always 0.
    const FLAGS: u32 = (1 << 22) - 1;
    let half_written = line.contains("int3") || line.contains("invalid opcode");
    let flags = line
        .split_once("EFLAGS: ")
        .and_then(|(_, rest)| u32::from_str_radix(rest.split_whitespace().next()?, 16).ok());
    time == Time::MultiThread && half_written || flags.is_some_and(|flags| flags & !FLAGS != 0)
}

/// Whether the console shows the kernel fall over a branch that it had switched off. When a sched_ext scheduler ends, a kernel
/// thread switches off the branch by which every CPU asks that class for work, waits until all CPUs have seen it, and
/// then lets go of what the class works with. If that very thread goes on into the class, it ran code that is no
/// longer in memory (Linux 6.18 on arm64, QEMU 7.2 with a host thread per CPU).
fn stale_branch(lines: &[String]) -> bool {
    let fell = lines
        .iter()
        .position(|line| line.contains("balance_scx+") && line.ends_with("(P)"));
    let trace = fell.map(|at| lines[at..].iter().take(6));
    trace.is_some_and(|mut trace| trace.any(|line| line.contains("kthread_worker_fn")))
}

/// Wall time without any sign of life after which a guest counts as stalled. Generous: a busy host and
/// many CPUs taking turns slow a healthy guest down, and a guest that counts instructions is slower
/// still while it boots.
fn stall_limit(options: &BootOptions) -> Duration {
    let per_cpu_s = match options.time {
        Time::SingleThread => 2,
        Time::MultiThread => 4,
        Time::Instructions { .. } => 8,
    };
    Duration::from_secs(120 + per_cpu_s * u64::from(options.shape.cpus()))
}

/// Puts frames together to an outcome.
#[derive(Default)]
pub(crate) struct Collector {
    pub(crate) outcome: Outcome,
    current: StepOutcome,
    greeted: bool,
    /// A step began.
    begun: bool,
}

impl Collector {
    /// Takes a frame in; true when the job is done.
    pub(crate) fn take(&mut self, frame: Frame) -> std::result::Result<bool, String> {
        match frame {
            Frame::Stdout(bytes) => append(&mut self.current.stdout, &bytes),
            Frame::Stderr(bytes) => append(&mut self.current.stderr, &bytes),
            Frame::Event(Event::Hello {
                release,
                cpus,
                nodes,
            }) => {
                self.greeted = true;
                (self.outcome.release, self.outcome.cpus, self.outcome.nodes) =
                    (release, cpus, nodes);
            }
            Frame::Event(Event::End(report)) => {
                let mut step = std::mem::take(&mut self.current);
                step.report = *report;
                self.outcome.steps.push(step);
            }
            Frame::Event(Event::Failed { why }) => return Err(format!("could not go on: {why}")),
            Frame::Event(Event::Done) => return Ok(true),
            Frame::Event(Event::Begin { .. }) => self.begun = true,
            // Who asked for the record sees it pass.
            Frame::Event(Event::Alive) | Frame::Recorded(_) => {}
        }
        Ok(false)
    }

    /// Where in the job the guest is, for messages.
    fn place(&self, job: &Job) -> String {
        if !self.greeted {
            return "while booting".into();
        }
        let index = self.outcome.steps.len();
        match job.steps.get(index) {
            Some(step) => {
                let scheduler = step.scheduler.as_ref().map_or("eevdf", |s| s.name.as_str());
                let command = step.command.join(" ");
                let short: String = command.chars().take(60).collect();
                format!("in step {} ({scheduler}: {short})", index + 1)
            }
            None => "after the last step".into(),
        }
    }
}

fn append(buffer: &mut Vec<u8>, bytes: &[u8]) {
    if buffer.len() >= OUTPUT_MAX {
        return;
    }
    buffer.extend_from_slice(bytes);
    if buffer.len() >= OUTPUT_MAX {
        buffer.extend_from_slice(b"\n[usher lab: output cut here]\n");
    }
}

/// Follows a file that grows.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    all: Vec<u8>,
}

impl Tail {
    fn new(path: &Path) -> Self {
        Tail {
            path: path.to_path_buf(),
            file: None,
            all: Vec::new(),
        }
    }

    fn read_new(&mut self) -> Vec<u8> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let mut news = Vec::new();
        if let Some(file) = &mut self.file {
            let _ = file.read_to_end(&mut news);
        }
        self.all.extend_from_slice(&news);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: only what no CPU can show lets a guest be tried again. Method: the lines of such consoles.
    #[test]
    fn a_panic_is_the_emulators_only_if_no_cpu_could_show_it() {
        let counted = Time::Instructions { seed: 1 };
        let line = |flags| format!("[   21.66] RSP: 0018:ffffc90000b97a90 EFLAGS: {flags}");
        assert!(impossible(&line("0c46bec2"), counted));
        assert!(!impossible(&line("00010246"), counted));
        assert!(!impossible(&line("00210246"), counted));
        let trap = "traps: stress-ng trap invalid opcode ip:7f00";
        assert!(impossible(trap, Time::MultiThread));
        assert!(!impossible(trap, counted));
    }

    // Goal: the same for what arm64 guests were seen to end with. Method: the trace of one, and of another thread.
    #[test]
    fn a_switched_off_branch_that_is_taken_is_the_emulators() {
        let trace = |thread: &str| -> Vec<String> {
            let calls = [
                "balance_scx+0x74/0x568 (P)",
                "__schedule+0x5a8/0xe48",
                "schedule+0x3c/0x120",
            ];
            let calls = calls.iter().chain([&thread]);
            calls
                .map(|call| format!("[   79.708715]  {call}"))
                .collect()
        };
        assert!(stale_branch(&trace("kthread_worker_fn+0x1b4/0x2c0")));
        assert!(!stale_branch(&trace("do_nanosleep+0x64/0x1a0")));
        assert!(!stale_branch(&[]));
    }
}
