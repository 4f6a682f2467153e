// SPDX-License-Identifier: GPL-2.0-only
//! The command line. Parsing validates and opens nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use usher_core::{Granularity, TierOrder};

/// usher: puts tasks on the right CPU.
///
/// A sched_ext scheduler whose idle CPUs are tracked per shard of a last-level cache, with a queue per
/// last-level cache and NUMA nodes searched by distance. Runs until interrupted; the kernel's own
/// scheduler takes over when it ends, however it ends.
#[derive(Debug, Parser)]
#[command(name = "scx_usher", disable_version_flag = true)]
pub struct Args {
    /// What a task runs before others get their turn, in microseconds.
    #[arg(short, long, value_name = "US", default_value_t = usher_core::DEFAULT_SLICE_NS / 1000,
          value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub slice_us: u64,

    /// Who tracks idle CPUs. All but `usher` are baselines to compare with.
    #[arg(long, value_enum, default_value_t = Idle::Usher, value_name = "WHO")]
    pub idle: Idle,

    /// Which CPUs share a line of idle bits. All but `shard` are baselines to compare with.
    #[arg(long, value_name = "LEVEL", default_value_t = Granularity::Shard)]
    pub granularity: Granularity,

    /// CPUs per shard at most.
    #[arg(long, value_name = "CPUS", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shard_width: u32,

    /// CPUs per queue at most: a last-level cache with more has several, since who puts a task in or takes one out holds the queue's lock.
    #[arg(long, value_name = "CPUS", default_value_t = usher_core::DEFAULT_QUEUE_WIDTH,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub queue_width: u32,

    /// Who waits and runs within so many microseconds, as fast as CPUs take turns there, is left to the CPUs of its last-level cache while others
    /// idle; 0: nobody is. Of no effect where CPUs differ in capacity, or with one such cache, or `--idle` of the kernel's own.
    #[arg(long, value_name = "US", default_value_t = usher_core::DEFAULT_SOON_NS / 1000,
          value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub soon_us: u64,

    /// Let newborns stay in their parent's node for as long as a core idles there. Without, once a quarter of its cores is busy, they go to
    /// the node where most cores idle.
    #[arg(long)]
    pub no_fork_balance: bool,

    /// How long a task may wait before the kernel ejects the scheduler, in milliseconds. The kernel checks every
    /// half of it, in a kernel thread that waits its turn like others, and ejects for that coming late, too.
    #[arg(long, value_name = "MS", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1000..=30_000))]
    pub timeout_ms: u32,

    /// Take all CPUs for equally strong, whatever the kernel says of their capacity.
    #[arg(long)]
    pub no_capacity: bool,

    /// Where CPUs differ in capacity, which of those that are enough for a task come first: `strongest-first` for speed,
    /// `weakest-first` to let the strong ones sleep.
    #[arg(long, value_name = "ORDER", default_value_t = TierOrder::StrongestFirst, conflicts_with = "no_capacity")]
    pub tiers: TierOrder,

    /// Preempt nobody: an urgent task that wakes while nobody is idle waits in a queue like others, no wakeup ends the slice of
    /// another task, and no task gives way to its partner.
    #[arg(long)]
    pub no_preempt: bool,

    /// Leave running tasks that share a core with each other there while other cores idle, as `--idle` of the kernel's
    /// own does, too.
    #[arg(long)]
    pub no_uncrowd: bool,

    /// Queue every woken task from the CPU of its waker, also where the kernel (6.15 and later) leaves that to the CPU it is for: on
    /// machines with several LLCs, one of another LLC or one that idles.
    #[arg(long)]
    pub no_queued_wakeups: bool,

    /// Let sync wakeups count whatever LLC they come from, and leave tasks in their node that only one other wakes.
    #[arg(long)]
    pub no_follow: bool,

    /// Divide CPU time among tasks alone. Without, control groups get theirs by `cpu.weight`, reckoned twice a second, and no more than `cpu.max`.
    #[arg(long)]
    pub no_groups: bool,

    /// Do not count migrations, which costs a little at each one.
    #[arg(long)]
    pub no_migrations: bool,

    /// Serve no placement hints (include/usher_hint.h): prctl(2) knows nothing of them, and no task has any.
    #[arg(long)]
    pub no_hints: bool,

    /// Hints for programs that do not ask themselves: a TOML file of rules by name, control group and user.
    #[arg(long, value_name = "FILE", conflicts_with = "no_hints")]
    pub rules: Option<PathBuf>,

    /// Print statistics every so many seconds, fractions allowed.
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub stats: Option<Duration>,

    /// Print the statistics of a running scx_usher every so many seconds; start none.
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub monitor: Option<Duration>,

    /// Explain the statistics and exit.
    #[arg(long)]
    pub help_stats: bool,

    /// At the end, write all counters to this file as one JSON object.
    #[arg(long, value_name = "FILE")]
    pub stats_json_on_exit: Option<PathBuf>,

    /// Record placement decisions, with what each saw, to this file of JSON lines: `usher explain --recorded FILE` tells them
    /// and makes them again. As many as a CPU's ring holds each 20 ms; the file says how many were skipped.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["monitor", "help_stats"])]
    pub record: Option<PathBuf>,

    /// Length of the kernel's debug dump at an abnormal end, in bytes; 0 for the kernel's default.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub exit_dump_len: u32,

    /// Say more, also what libbpf says.
    #[arg(short, long)]
    pub verbose: bool,

    /// What to log to stderr.
    #[arg(long, value_enum, default_value_t = LogLevel::Info, value_name = "LEVEL")]
    pub log_level: LogLevel,

    /// Print the version and exit.
    #[arg(short = 'V', long)]
    pub version: bool,

    /// Options of libbpf.
    #[command(flatten, next_help_heading = "Options of libbpf")]
    pub libbpf: LibbpfOpts,
}

/// Who tracks idle CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// The placement core.
    Usher,
    /// The kernel, in one mask for the machine.
    Builtin,
    /// The kernel, in a mask per NUMA node (Linux 6.15).
    BuiltinNode,
}

/// Verbosity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Nothing but failures.
    Error,
    /// Also what is odd.
    Warn,
    /// Also what happens.
    Info,
    /// Also why.
    Debug,
    /// Everything.
    Trace,
}

impl Args {
    /// How long usher lets a task wait for others, however little it weighs, in microseconds: half of what the kernel ejects for.
    pub fn patience_us(&self) -> u64 {
        u64::from(self.timeout_ms) * 1000 / 2
    }

    /// What two options mean together.
    ///
    /// # Errors
    /// What is wrong, and what would do.
    pub fn check(&self) -> Result<(), String> {
        let most = self.patience_us() / usher_core::PATIENCE_SLICES;
        if self.slice_us <= most {
            return Ok(());
        }
        Err(format!(
            "--slice-us {}: at most {most} with --timeout-ms {}, or some tasks would wait until the kernel ejects usher; shorten the one \
             or lengthen the other",
            self.slice_us, self.timeout_ms
        ))
    }

    /// The level for the logger.
    pub fn level(&self) -> log::LevelFilter {
        match self.log_level {
            _ if self.verbose => log::LevelFilter::Debug,
            LogLevel::Error => log::LevelFilter::Error,
            LogLevel::Warn => log::LevelFilter::Warn,
            LogLevel::Info => log::LevelFilter::Info,
            LogLevel::Debug => log::LevelFilter::Debug,
            LogLevel::Trace => log::LevelFilter::Trace,
        }
    }
}

/// A positive number of seconds up to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.01..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err("a number of seconds from 0.01 to 86400 is needed, such as 1 or 0.5".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: wrong values are refused with the value and what would be right, before anything is opened.
    // Method: parse command lines that each have one mistake.
    #[test]
    fn wrong_values_are_refused_by_name() {
        for (args, says) in [
            (["--slice-us", "5"], "100..=1000000"),
            (["--idle", "mine"], "builtin-node"),
            (["--granularity", "socket"], "global, node, llc, shard"),
            (["--shard-width", "65"], "1..=64"),
            (["--timeout-ms", "60000"], "1000..=30000"),
            (["--soon-us", "1001"], "0..=1000"),
            (["--stats", "0"], "0.01 to 86400"),
            (["--monitor", "x"], "0.01 to 86400"),
        ] {
            let error = Args::try_parse_from(["scx_usher", args[0], args[1]]).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(args[1]) && text.contains(says), "{text}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    // Goal: a slice in which the kernel would lose its patience is refused, with what would do. Method: both options together.
    #[test]
    fn slices_are_far_below_the_timeout() {
        let check = |slice, timeout| {
            let args = ["scx_usher", "--slice-us", slice, "--timeout-ms", timeout];
            Args::try_parse_from(args).expect("each by itself").check()
        };
        assert!(check("78125", "10000").is_ok() && check("7812", "1000").is_ok());
        let error = check("100000", "10000").unwrap_err();
        for says in ["--slice-us 100000", "at most 78125", "--timeout-ms 10000"] {
            assert!(error.contains(says), "{error}");
        }
    }

    // Goal: rules without hints are refused, not ignored. Method: parse them.
    #[test]
    fn rules_contradict_no_hints() {
        let parses = |args: &[&str]| {
            let args = ["scx_usher"].iter().chain(args);
            Args::try_parse_from(args).is_ok()
        };
        assert!(parses(&["--rules", "r.toml"]) && parses(&["--no-hints"]));
        assert!(!parses(&["--rules", "r.toml", "--no-hints"]));
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
