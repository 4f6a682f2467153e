// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench latency-under-batch`: how long an urgent task waits for a CPU when all of them are busy, and what that
//! costs those who keep them busy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{environment, measure, Format};
use crate::exit::{Code, Failure};

/// The wakeup delay of a periodic task while every CPU is busy with batch work.
///
/// As many threads as CPUs work without pause. After a while in which their throughput is measured, a task of a high
/// priority sleeps until a point in time, works a little, and sleeps again. Its wakeup delay is what the kernel counts
/// from the moment it is woken until it runs (/proc/thread-self/schedstat); beside it stands how late it ran, the timer's
/// delay included, which in an emulated guest is mostly that of the CPU whose turn has not come. The throughput is
/// measured beside it, too.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds of each of the two measurements
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Batch threads per CPU
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    hogs: u16,

    /// Microseconds from one wakeup to the next
    #[arg(long, value_name = "US", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(50..=10_000_000))]
    period_us: u64,

    /// Microseconds of work after each wakeup
    #[arg(long, value_name = "US", default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    work_us: u64,

    /// Its nice value; below 0 needs the right to raise priorities
    #[arg(long, value_name = "NICE", default_value_t = -10, allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: i32,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    /// `usher-bench-latency-under-batch/1`.
    schema: &'static str,
    /// CPUs that this process may use.
    cpus: usize,
    /// Threads that work without pause.
    hogs: usize,
    /// From one wakeup to the next, microseconds.
    period_us: u64,
    /// The periodic task's nice value.
    nice: i32,
    /// From its wakeup until it ran, by the kernel's count.
    wakeup_delay: Delay,
    /// From the point in time at which it was to wake until it ran.
    lateness: Delay,
    /// Rounds of work per second of all batch threads, alone.
    batch_alone_per_s: f64,
    /// The same beside the periodic task.
    batch_beside_per_s: f64,
    /// How much less that is, percent.
    batch_loss_percent: f64,
}

/// Nanoseconds; percentiles are those of the sample of that rank, nothing between samples is made up.
#[derive(Debug, Serialize)]
struct Delay {
    samples: usize,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Delay {
    fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let rank = |permille: usize| {
            let above = (samples.len() * permille).div_ceil(1000).max(1);
            samples.get(above - 1).copied().unwrap_or(0)
        };
        Self {
            samples: samples.len(),
            p50_ns: rank(500),
            p90_ns: rank(900),
            p99_ns: rank(990),
            max_ns: rank(1000),
        }
    }
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    super::fits(
        ("--work-us", args.work_us),
        ("--period-us", args.period_us),
        1,
    )?;
    let cpus = measure::allowed()
        .map_err(|error| environment(format!("affinity: {error}")))?
        .len();
    let hogs = cpus * usize::from(args.hogs);
    let (alone, beside, periodic) = measure_all(args, hogs)?;
    let report = Report {
        schema: "usher-bench-latency-under-batch/1",
        cpus,
        hogs,
        period_us: args.period_us,
        nice: args.nice,
        wakeup_delay: Delay::of(periodic.delays),
        lateness: Delay::of(periodic.late),
        batch_alone_per_s: alone,
        batch_beside_per_s: beside,
        batch_loss_percent: 100.0 * (1.0 - beside / alone),
    };
    args.format.print(&report, text)?;
    Ok(Code::Fine)
}

/// Throughput of the batch work alone and beside the periodic task, in rounds per second, and that one's delays.
fn measure_all(args: &Args, hogs: usize) -> Result<(f64, f64, Periodic), Failure> {
    let over = AtomicBool::new(false);
    let rounds: Vec<AtomicU64> = (0..hogs).map(|_| AtomicU64::new(0)).collect();
    let time = Duration::from_secs(args.seconds);
    thread::scope(|scope| {
        for mine in &rounds {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    measure::work();
                    mine.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&over);
        // Until all are born, and the scheduler knows them.
        thread::sleep(Duration::from_millis(500));
        let (alone, ()) = per_second(&rounds, || thread::sleep(time));
        let periodic = || {
            let task = scope.spawn(|| wake(args, time));
            task.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let (beside, periodic) = per_second(&rounds, periodic);
        Ok((alone, beside, periodic.map_err(environment)?))
    })
}

/// Ends the batch threads, whatever happens.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many rounds were done per second meanwhile.
fn per_second<T>(rounds: &[AtomicU64], meanwhile: impl FnOnce() -> T) -> (f64, T) {
    let count = || -> u64 { rounds.iter().map(|n| n.load(Ordering::Relaxed)).sum() };
    let (begun, before) = (Instant::now(), count());
    let result = meanwhile();
    let done = count() - before;
    (done as f64 / begun.elapsed().as_secs_f64(), result)
}

/// Of each wakeup of the periodic task, nanoseconds.
#[derive(Default)]
struct Periodic {
    delays: Vec<u64>,
    late: Vec<u64>,
}

/// The periodic task, or why it cannot run.
fn wake(args: &Args, time: Duration) -> Result<Periodic, String> {
    let nice = args.nice;
    measure::nice(nice).map_err(|error| {
        format!("cannot take nice {nice}: {error}; try --nice 0, or run as root")
    })?;
    measure::wake_exactly().map_err(|error| format!("cannot set the timer slack: {error}"))?;
    let waited =
        || measure::waited_ns().map_err(|error| format!("{}: {error}", measure::SCHEDSTAT));
    let (period, work) = (
        Duration::from_micros(args.period_us),
        Duration::from_micros(args.work_us),
    );
    let mut periodic = Periodic::default();
    let begun = Instant::now();
    let mut due = begun;
    while begun.elapsed() < time {
        due += period;
        let now = Instant::now();
        if now >= due {
            // It came so late that the next point has passed, too: that one does not count.
            due = now + period;
        }
        let before = waited()?;
        thread::sleep(due - now);
        let woken = Instant::now();
        let late = woken.saturating_duration_since(due);
        periodic.late.push(measure::nanoseconds(late));
        periodic.delays.push(waited()? - before);
        while woken.elapsed() < work {
            std::hint::spin_loop();
        }
    }
    Ok(periodic)
}

fn text(report: &Report) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let delay = &report.wakeup_delay;
    format!(
        "{} batch threads on {} CPUs, and a task of nice {} every {} us, {} times\n\
         wakeup delay p50: {:.3} ms\nwakeup delay p90: {:.3} ms\nwakeup delay p99: {:.3} ms\n\
         wakeup delay max: {:.3} ms\n\
         late p50: {:.3} ms\nlate p99: {:.3} ms\n\
         batch rounds per second: {:.0} alone, {:.0} beside it\nbatch loss: {:.2} %\n",
        report.hogs,
        report.cpus,
        report.nice,
        report.period_us,
        delay.samples,
        ms(delay.p50_ns),
        ms(delay.p90_ns),
        ms(delay.p99_ns),
        ms(delay.max_ns),
        ms(report.lateness.p50_ns),
        ms(report.lateness.p99_ns),
        report.batch_alone_per_s,
        report.batch_beside_per_s,
        report.batch_loss_percent,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: percentiles are samples, of the right rank. Method: a hundred in a row, one, none.
    #[test]
    fn percentiles_are_samples() {
        let delay = Delay::of((1..=100).rev().collect());
        assert_eq!(
            (delay.p50_ns, delay.p90_ns, delay.p99_ns, delay.max_ns),
            (50, 90, 99, 100)
        );
        let delay = Delay::of(vec![7]);
        assert_eq!((delay.p50_ns, delay.p99_ns, delay.max_ns), (7, 7, 7));
        assert_eq!(Delay::of(Vec::new()).p99_ns, 0);
    }

    // Goal: both measurements measure. Method: a second of each on this machine, at no priority.
    #[test]
    fn a_short_run_has_both() {
        let args = Args {
            seconds: 1,
            hogs: 1,
            period_us: 10_000,
            work_us: 10,
            nice: 0,
            format: Format::Table,
        };
        let measured = measure_all(&args, 1).map_err(|failure| failure.error);
        let (alone, beside, periodic) = measured.expect("nice 0 is allowed");
        assert!(alone > 0.0 && beside > 0.0);
        let samples = periodic.delays.len();
        assert!((10..=100).contains(&samples), "{samples}");
        assert_eq!(periodic.late.len(), samples);
    }
}
