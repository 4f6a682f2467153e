// SPDX-License-Identifier: GPL-2.0-only
//! Who waits for a CPU on this machine, for how long, behind whom, and beside which idle CPUs, under any scheduler.
//!
//! `bpf/waits.bpf.c` observes wakeups and switches; this program loads it, waits for a command, a time or Ctrl-C, and prints
//! what there was. Needs root and a kernel with BTF, not sched_ext.
//!
//! Exit codes: that of the command if there is one; 0 fine, 2 wrong use, 3 the environment lacks something.

mod observer;

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use libbpf_rs::PrintLevel;

use observer::{Observer, Wanted};

/// Show who waits for a CPU, for how long, behind whom, and whether CPUs idle meanwhile; under any scheduler.
///
/// Observes until the command ends, for a time, or until Ctrl-C. Every switch takes a fraction of a microsecond longer meanwhile.
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
    let seconds = text.parse::<f64>().map_err(|e| e.to_string())?;
    if !(0.001..=1e6).contains(&seconds) {
        return Err("give 0.001 to 1000000 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Ctrl-C, or a request to end.
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// What the kernel says about its structures.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// How often it is looked whether to end.
const LOOK: Duration = Duration::from_millis(50);

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
    let mut object = std::mem::MaybeUninit::uninit();
    let wanted = Wanted {
        slow: Duration::from_micros(args.slow_us),
        slowest: args.slowest as usize,
        pid: args.pid,
    };
    let mut observer = Observer::attach(&mut object, wanted)?;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler: extern "C" fn(libc::c_int) = stop;
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    let began = Instant::now();
    let mut child = match args.command.split_first() {
        Some((program, arguments)) => {
            let child = Command::new(program).args(arguments).spawn();
            Some(child.with_context(|| format!("cannot run {program}"))?)
        }
        None => None,
    };
    let mut status = None;
    while status.is_none() {
        observer.receive(LOOK)?;
        match &mut child {
            Some(child) => status = ended(child)?,
            None if STOP.load(Ordering::Relaxed) => break,
            None if args.duration.is_some_and(|d| began.elapsed() >= d) => break,
            None => {}
        }
    }
    let seen = observer.finish(began.elapsed())?;
    let mut out = io::stdout().lock();
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

fn ended(child: &mut Child) -> Result<Option<ExitStatus>> {
    child.try_wait().context("cannot wait for the command")
}

/// As a shell has it: of a command that a signal ended, 128 and its number.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|n| 128 + n));
    ExitCode::from(code.map_or(1, |code| code as u8))
}
