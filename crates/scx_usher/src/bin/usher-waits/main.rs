// SPDX-License-Identifier: GPL-2.0-only
//! Who waits for a CPU on this machine, for how long, behind whom, and beside which idle CPUs, under any scheduler.
//!
//! `bpf/waits.bpf.c` observes wakeups and switches; this program loads it, waits for a command, a time or Ctrl-C, and prints
//! what there was. Needs root and a kernel with BTF, not sched_ext.
//!
//! Exit codes: that of the command if there is one; 0 fine, 2 wrong use, 3 the environment lacks something.

mod observer;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use libbpf_rs::PrintLevel;

use observer::{Observer, Wanted};

/// Show who waits for a CPU, for how long, behind whom, and whether CPUs idle meanwhile; under any scheduler.
///
/// Observes until the command ends, for a time, or until Ctrl-C. Every wakeup and switch takes a fraction of a microsecond longer
/// meanwhile, and the end of a slow wait as long as looking at all CPUs does. It takes root and a kernel with BTF, not sched_ext. Exit codes: the
/// command's own; 0 fine, 2 wrong use, 3 the environment lacks something or the command cannot be run.
#[derive(Debug, Parser)]
#[command(name = "usher waits", bin_name = "usher waits")]
struct Args {
    /// Observe for so many seconds
    #[arg(long = "for", value_name = "SEC", value_parser = seconds, conflicts_with = "command")]
    duration: Option<Duration>,

    /// From how many microseconds on a wait is slow: then it is looked which CPUs idled all the while
    #[arg(long, value_name = "US", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000_000))]
    slow_us: u64,

    /// How many of the slowest waits to show one by one, of those woken or born and of those stopped
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
    slowest: u32,

    /// Of the threads of this process alone
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Write it into this file, apart from what the command says
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Also tell what libbpf and the kernel's verifier say
    #[arg(short, long)]
    verbose: bool,

    /// What to run meanwhile
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One object, schema usher-waits/1
    Json,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().unwrap_or(f64::NAN);
    if !(0.001..=1e6).contains(&seconds) {
        return Err("give a number of seconds, 0.001 to 1000000".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The signal that asked to end; 0: none.
static ASKED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_signal(signal: libc::c_int) {
    ASKED.store(signal, Ordering::Relaxed);
}

/// What the kernel says about its structures.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Whatever happens, it is looked so often whether to end.
const LOOK: Duration = Duration::from_millis(200);

/// The number of the namespace of process ids that all processes are in.
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "usher waits: error: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    let print = |_, message: String| {
        let _ = write!(io::stderr(), "{message}");
    };
    libbpf_rs::set_print(args.verbose.then_some((PrintLevel::Debug, print)));
    // SAFETY: the call takes no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    anyhow::ensure!(
        root,
        "observing all tasks of a machine takes root: run it with sudo"
    );
    anyhow::ensure!(
        Path::new(BTF).exists(),
        "this kernel does not describe its structures ({BTF} is missing): boot one with CONFIG_DEBUG_INFO_BTF=y"
    );
    if let Some(pid) = args.pid {
        check_process(pid)?;
    }
    // What cannot be written is not first observed.
    let output = args.output.as_deref().map(create).transpose()?;
    let mut object = std::mem::MaybeUninit::uninit();
    let wanted = Wanted {
        slow: Duration::from_micros(args.slow_us),
        slowest: args.slowest as usize,
        pid: args.pid,
    };
    // SAFETY: the handler only stores to an atomic; a reader that goes away ends this quietly, as any filter.
    unsafe {
        let handler: extern "C" fn(libc::c_int) = note_signal;
        libc::signal(libc::SIGINT, handler as libc::sighandler_t);
        libc::signal(libc::SIGTERM, handler as libc::sighandler_t);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    let mut observer = Observer::attach(&mut object, wanted)?;
    let began = Instant::now();
    let mut child = match args.command.split_first() {
        Some((program, arguments)) => {
            let child = Command::new(program).args(arguments).spawn();
            Some(child.with_context(|| format!("cannot run {program}"))?)
        }
        None => None,
    };
    let status = loop {
        let left = args.duration.map(|all| all.saturating_sub(began.elapsed()));
        wait(&observer, child.as_ref(), left.unwrap_or(LOOK).min(LOOK));
        observer.receive()?;
        let asked = ASKED.swap(0, Ordering::Relaxed);
        match &mut child {
            Some(child) => {
                if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                    break Some(status);
                }
                // Ctrl-C reaches the command by itself; another's request does not.
                if asked == libc::SIGTERM {
                    // SAFETY: a signal for our own child, which was not waited for.
                    unsafe { libc::kill(child.id() as libc::pid_t, asked) };
                }
            }
            None if asked != 0 || left.is_some_and(|left| left.is_zero()) => break None,
            None if args.pid.is_some_and(|pid| !process(pid).exists()) => break None,
            None => {}
        }
    };
    let seen = observer.finish(began.elapsed())?;
    let mut out: Box<dyn Write> = match output {
        Some(file) => Box::new(BufWriter::new(file)),
        None => Box::new(io::stdout().lock()),
    };
    match args.format {
        Format::Table => seen.write(&mut out)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &seen)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(status.map_or(ExitCode::SUCCESS, code))
}

/// Until something has arrived, the command has ended, a signal came, or for that long.
fn wait(observer: &Observer<'_>, child: Option<&Child>, most: Duration) {
    // SAFETY: the call takes two numbers. If it fails, it is looked again before long.
    let child = child.map(|child| unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) });
    let fds = [observer.arrives(), child.map_or(-1, |fd| fd as RawFd)];
    let mut fds = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // At least a millisecond, so that the last part of one is not spent in a loop.
    let ms = most.as_millis().max(1) as libc::c_int;
    // SAFETY: there are two such structures.
    unsafe { libc::poll(fds.as_mut_ptr(), 2, ms) };
    if fds[1].fd >= 0 {
        // SAFETY: it was opened here.
        unsafe { libc::close(fds[1].fd) };
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

fn process(pid: u32) -> PathBuf {
    format!("/proc/{pid}").into()
}

/// Refuses what the kernel would find nobody of.
fn check_process(pid: u32) -> Result<()> {
    let own = std::fs::metadata("/proc/self/ns/pid").map(|file| file.ino());
    anyhow::ensure!(
        own.is_ok_and(|own| own == FIRST_PID_NAMESPACE),
        "--pid is a number in the machine's first PID namespace, and this is another one: run it outside the container"
    );
    let status = std::fs::read_to_string(process(pid).join("status"));
    let status = status.with_context(|| format!("--pid {pid}: there is no such process"))?;
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let tgid = tgid.map_or("", str::trim);
    anyhow::ensure!(
        tgid == pid.to_string(),
        "--pid {pid} is a thread of process {tgid}: give that"
    );
    Ok(())
}

/// As a shell has it: of a command that a signal ended, 128 and its number.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|n| 128 + n));
    ExitCode::from(code.map_or(1, |code| code as u8))
}
