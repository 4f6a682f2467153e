// SPDX-License-Identifier: GPL-2.0-only
//! `usher lab`: real kernels in emulated machines.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use usher_lab::arch::Arch;
use usher_lab::cache::Cache;
use usher_lab::lab::{self, Comparison, Request};
use usher_lab::proto::Frame;
use usher_lab::scheduler::Scheduler;
use usher_lab::shape::Shape;
use usher_lab::{fetch, kernel, report, LabError};

use crate::exit::{Code, Failure};

/// Boot real kernels in emulated machines and run real programs under different schedulers.
///
/// Times in an emulated guest show function and relative cost, never the speed of real hardware.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Boot a guest and run one command under one scheduler.
    ///
    /// Exit code: the command's own if it ran; 2 wrong use; 3 something is missing here, or the guest
    /// stalled or panicked; 4 the kernel refused or ejected the scheduler; 124 the command timed out.
    Run(RunArgs),
    /// Run one command under several schedulers in turn and compare them.
    ///
    /// Exit code: 0 if every run succeeded; 1 if the command failed in one; 2, 3 and 4 as for run.
    Compare(CompareArgs),
    /// List the guest kernels in the cache, or fetch some.
    Kernels(KernelsArgs),
    /// Fetch everything that the tests need into the cache: guest kernels and benchmark programs.
    Fetch(FetchArgs),
}

#[derive(clap::Args, Debug)]
struct GuestArgs {
    /// The guest's CPUs: nodes, LLCs per node, cores per LLC, threads per core; or strong and weak cores, as in
    /// 4b4l or tc2, which make an arm64 guest whose weak CPUs are slower by a quota on this host (needs root).
    #[arg(long, value_name = "SHAPE", default_value = "2n2l2c2t")]
    shape: String,
    /// A kernel series such as 6.18 or 7.0, or the path of a bzImage or vmlinux.
    #[arg(long, value_name = "SERIES|FILE", default_value = "6.18")]
    kernel: String,
    /// More options for usher, separated by blanks.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    usher_args: Option<String>,
    /// Let time be the count of executed instructions, so that it depends neither on the host's speed
    /// nor on its load.
    #[arg(long)]
    icount: bool,
    /// Seed of the guest's random numbers with --icount.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "icount")]
    seed: u64,
    /// Run the guest's CPUs in parallel, each with a bandwidth quota on this host, so that speed-up by
    /// more CPUs is real. Needs root.
    #[arg(long, conflicts_with = "icount")]
    quota: bool,
    /// Guest seconds after which the command is killed.
    #[arg(long, value_name = "S", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Guest memory in MiB.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(256..=1_048_576))]
    memory: Option<u64>,
    /// Copy this file into the guest under the same absolute path. May be repeated.
    #[arg(long, value_name = "FILE")]
    copy: Vec<PathBuf>,
    /// Account for the time spent in BPF programs.
    #[arg(long)]
    bpf_stats: bool,
    /// Wall seconds without a sign of life after which the guest counts as stalled [default: two minutes
    /// and more for more CPUs].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stall: Option<u64>,
    /// More words for the guest kernel's command line.
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    append: String,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The command to run in the guest.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    /// eevdf, usher, scx_NAME or a path, each but eevdf with options after a colon.
    #[arg(long, value_name = "SCHEDULER", default_value = "usher")]
    scheduler: String,
    /// Record into this file where usher puts tasks and what each decision saw; `usher explain --recorded FILE` tells it.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    guest: GuestArgs,
}

#[derive(clap::Args, Debug)]
struct CompareArgs {
    /// Schedulers, separated by commas; effects are against the first.
    #[arg(long, value_name = "A,B,...", default_value = "eevdf,usher")]
    schedulers: String,
    /// Runs of each.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Runs under the kernel's own scheduler before the first counted one.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    warmup: u32,
    /// Guests at a time with --icount [default: this machine's cores].
    #[arg(long, value_name = "N", requires = "icount",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    #[command(flatten)]
    guest: GuestArgs,
}

#[derive(clap::Args, Debug)]
struct KernelsArgs {
    /// Fetch the newest good kernel of this series. May be repeated.
    #[arg(long, value_name = "SERIES")]
    fetch: Vec<String>,
    /// What to fetch it for: x86-64, or arm64 for shapes of strong and weak cores.
    #[arg(long, value_name = "ARCH", default_value_t = Arch::X86_64, requires = "fetch")]
    arch: Arch,
    /// Judge a kernel file instead of listing the cache.
    #[arg(long, value_name = "FILE", conflicts_with = "fetch")]
    check: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct FetchArgs {
    /// What to fetch for: x86-64, or arm64 for shapes of strong and weak cores.
    #[arg(long, value_name = "ARCH", default_value_t = Arch::X86_64)]
    arch: Arch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people: the command's output as it comes, then a summary.
    Table,
    /// One JSON object.
    Json,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    Ok(match &args.command {
        LabCommand::Run(args) => Code::Other(run_one(args)?),
        LabCommand::Compare(args) => Code::Other(compare(args)?),
        LabCommand::Kernels(args) => Code::Other(kernels(args)?),
        LabCommand::Fetch(args) => fetch_all(args.arch)?,
    })
}

fn say(line: &str) {
    // A run goes on where nobody listens any more.
    let _ = writeln!(std::io::stderr(), "usher lab: {line}");
}

fn request(args: &GuestArgs) -> Result<Request, LabError> {
    Ok(Request {
        shape: args.shape.parse::<Shape>()?,
        kernel: args.kernel.clone(),
        command: args.command.clone(),
        icount_seed: args.icount.then_some(args.seed),
        quota: args.quota,
        timeout_s: args.timeout,
        memory_mib: args.memory,
        copies: args.copy.clone(),
        bpf_stats: args.bpf_stats,
        stall: args.stall.map(std::time::Duration::from_secs),
        append: args.append.clone(),
    })
}

/// Schedulers by their names, usher with its options.
fn schedulers<'a>(
    names: impl Iterator<Item = &'a str>,
    args: &GuestArgs,
) -> Result<Vec<Scheduler>, Failure> {
    let mut all = names
        .map(|name| name.trim().parse())
        .collect::<Result<Vec<Scheduler>, LabError>>()?;
    let Some(options) = &args.usher_args else {
        return Ok(all);
    };
    let options: Vec<String> = options.split_whitespace().map(str::to_string).collect();
    let mut ushers = all.iter_mut().filter(|s| s.is_usher()).peekable();
    if ushers.peek().is_none() {
        return Err(Failure {
            code: Code::WrongUse,
            error: anyhow::anyhow!("--usher-args is for usher, which is not among the schedulers"),
        });
    }
    ushers.for_each(|usher| usher.add_options(&options));
    Ok(all)
}

fn run_one(args: &RunArgs) -> Result<u8, Failure> {
    let guest = &args.guest;
    let request = request(guest)?;
    let mut scheduler = schedulers(std::iter::once(&*args.scheduler), guest)?.remove(0);
    let mut record = match &args.record {
        Some(path) => {
            scheduler.record()?;
            Some(Record::begin(path)?)
        }
        None => None,
    };
    let live = guest.format == Format::Table;
    let mut pass_on = |frame: &Frame| {
        // A reader that went away (`| head`) is no reason to stop the guest half-way.
        let _ = match frame {
            Frame::Stdout(bytes) if live => std::io::stdout().write_all(bytes),
            Frame::Stderr(bytes) if live => std::io::stderr().write_all(bytes),
            Frame::Recorded(bytes) => {
                record.iter_mut().for_each(|record| record.add(bytes));
                Ok(())
            }
            _ => Ok(()),
        };
    };
    let outcome = lab::run(&request, &scheduler, &say, &mut pass_on)?;
    let report = report::of_run(&request, &outcome);
    match guest.format {
        Format::Table => {
            // The command's output is through; its exit code counts.
            let _ = write!(std::io::stderr(), "{}", report.text());
        }
        Format::Json => print_json(&report)?,
    }
    if report.ejected.is_some() {
        return Err(lab::ejected(&outcome.steps[0]).into());
    }
    if let Some(record) = record {
        record.end()?;
    }
    // 128 + signal and the like fit a byte; anything else is a plain failure.
    Ok(report
        .exit
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}

/// A file for what usher decided in the guest. It takes its name once it is whole: until then, and if nothing comes of it, a file that had the
/// name stays.
struct Record<'a> {
    path: &'a Path,
    partial: PathBuf,
    file: File,
    written: std::io::Result<u64>,
}

impl<'a> Record<'a> {
    /// Before the guest boots, so that a file that cannot be written is known then.
    fn begin(path: &'a Path) -> Result<Record<'a>, Failure> {
        if path.exists() && !path.is_file() {
            let why = std::io::Error::other("it is there and is no regular file");
            return Err(Self::failed(path, &why));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let file = File::create(&partial).map_err(|error| Self::failed(path, &error))?;
        Ok(Record {
            path,
            partial: partial.into(),
            file,
            written: Ok(0),
        })
    }

    fn add(&mut self, bytes: &[u8]) {
        if let Ok(so_far) = &self.written {
            let written = self.file.write_all(bytes);
            self.written = written.map(|()| so_far + bytes.len() as u64);
        }
    }

    fn end(mut self) -> Result<(), Failure> {
        let written = std::mem::replace(&mut self.written, Ok(0));
        let named = written.and_then(|bytes| match bytes {
            0 => Ok(false),
            _ => std::fs::rename(&self.partial, self.path).map(|()| true),
        });
        let path = self.path.display();
        match named {
            Ok(true) => say(&format!(
                "`usher explain --recorded {path}` tells the decisions"
            )),
            Ok(false) => say(&format!("{path} is not written: nothing was recorded")),
            Err(error) => return Err(Self::failed(self.path, &error)),
        }
        Ok(())
    }

    fn failed(path: &Path, error: &std::io::Error) -> Failure {
        Failure {
            code: Code::Environment,
            error: anyhow::anyhow!(
                "--record {}: cannot be written: {error}; name a file in a directory that can be written to",
                path.display()
            ),
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        // It is gone if it has got its name.
        let _ = std::fs::remove_file(&self.partial);
    }
}

fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let request = request(&args.guest)?;
    let schedulers = schedulers(args.schedulers.split(','), &args.guest)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let comparison = Comparison {
        schedulers,
        runs: args.runs,
        warmup: args.warmup,
        jobs: args.jobs.map_or(cores, usize::from),
    };
    let compared = lab::compare(&request, &comparison, &say)?;
    let report = report::of_comparison(&request, &comparison, &compared);
    match args.guest.format {
        Format::Table => write!(std::io::stdout(), "{}", report.text())?,
        Format::Json => print_json(&report)?,
    }
    if let Some(run) = compared
        .runs
        .iter()
        .find(|run| run.step.report.ejected.is_some())
    {
        return Err(lab::ejected(&run.step).into());
    }
    let failed = compared
        .runs
        .iter()
        .find(|run| run.step.report.exit != Some(0));
    if let Some(run) = failed {
        let report = &run.step.report;
        say(&format!(
            "the command ended with {} under {} in round {}",
            report
                .exit
                .map_or("nothing".into(), |code| code.to_string()),
            report.scheduler,
            run.round
        ));
        let _ = std::io::stderr().write_all(&run.step.stderr);
        return Ok(1);
    }
    Ok(0)
}

fn kernels(args: &KernelsArgs) -> Result<u8, Failure> {
    let cache = Cache::open()?;
    let mut out = std::io::stdout().lock();
    if let Some(file) = &args.check {
        let kernel = kernel::from_file(&cache, file)?;
        list(&mut out, &kernel)?;
        return Ok(if kernel.unfit.is_some() { 1 } else { 0 });
    }
    if !args.fetch.is_empty() {
        let series: Vec<&str> = args.fetch.iter().map(String::as_str).collect();
        fetch::kernels(&cache, args.arch, &series, &mut say)?;
    }
    let kernels = kernel::cached(&cache)?;
    if kernels.is_empty() {
        say("no kernel is in the cache; get one with `usher lab kernels --fetch 6.18`, or all with `make setup`");
    }
    for kernel in kernels {
        list(&mut out, &kernel)?;
    }
    Ok(0)
}

fn list(out: &mut impl Write, kernel: &kernel::Kernel) -> std::io::Result<()> {
    let verdict = kernel.unfit.as_deref().unwrap_or("good");
    writeln!(out, "{} {verdict}", kernel.release)
}

fn fetch_all(arch: Arch) -> Result<Code, LabError> {
    let cache = Cache::open()?;
    for kernel in fetch::kernels(&cache, arch, fetch::kernel_series(arch), &mut say)? {
        say(&format!("kernel {} is ready", kernel.release));
    }
    fetch::programs(&cache, arch, &mut say)?;
    fetch::emulator(&cache, arch, &mut say)?;
    say(&format!("{arch} guest programs are ready"));
    Ok(Code::Fine)
}

fn print_json(value: &impl serde::Serialize) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(value).expect("reports are plain data");
    writeln!(std::io::stdout(), "{text}")
}
