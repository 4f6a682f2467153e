// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench latency-under-batch`: how long an urgent task waits for a CPU when all of them are busy, and what that
//! costs those who keep them busy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::reckon::{median, sorted, Delay};
use super::{environment, measure, Format};
use crate::exit::{Code, Failure};

/// How often the throughput is measured alone and then beside the periodic task: an odd number, so that one is the median.
const ROUNDS: u32 = 5;

/// The wakeup delay of a periodic task while every CPU is busy with batch work.
///
/// As many threads as CPUs work without pause. Five times by turns their throughput is measured alone, and then beside a
/// task of a high priority that sleeps until a point in time, works a little, and sleeps again. Its wakeup delay is what
/// the kernel counts from the moment it is woken until it runs (/proc/thread-self/schedstat); beside it stands how late it
/// ran, the timer's delay included, which in an emulated guest is mostly that of the CPU whose turn has not come. What the
/// batch work loses is the median of the five; their range says how far a difference is noise.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds alone, and seconds beside the periodic task, each in five parts
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
    /// Pieces of work per second of all batch threads, alone: the median of the rounds.
    batch_alone_per_s: f64,
    /// The same beside the periodic task.
    batch_beside_per_s: f64,
    /// How much less the second of a round is than the first, percent: the median of the rounds.
    batch_loss_percent: f64,
    /// The same of each round, least first.
    batch_loss_percent_of_rounds: Vec<f64>,
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
    let measured = measure_all(args, hogs)?;
    let losses = sorted(measured.rounds.iter().map(Round::loss_percent));
    let report = Report {
        schema: "usher-bench-latency-under-batch/1",
        cpus,
        hogs,
        period_us: args.period_us,
        nice: args.nice,
        wakeup_delay: Delay::of(measured.delays),
        lateness: Delay::of(measured.late),
        batch_alone_per_s: median(&sorted(measured.rounds.iter().map(|round| round.alone))),
        batch_beside_per_s: median(&sorted(measured.rounds.iter().map(|round| round.beside))),
        batch_loss_percent: median(&losses),
        batch_loss_percent_of_rounds: losses,
    };
    args.format.print(&report, text)?;
    Ok(Code::Fine)
}

/// Throughput of the batch work, alone and beside the periodic task, per second.
struct Round {
    alone: f64,
    beside: f64,
}

impl Round {
    fn loss_percent(&self) -> f64 {
        100.0 * (1.0 - self.beside / self.alone)
    }
}

/// What was measured; of each wakeup of the periodic task, nanoseconds.
#[derive(Default)]
struct Measured {
    rounds: Vec<Round>,
    delays: Vec<u64>,
    late: Vec<u64>,
}

/// Starts the batch threads, and measures in one more thread, which is the periodic task.
fn measure_all(args: &Args, hogs: usize) -> Result<Measured, Failure> {
    let over = AtomicBool::new(false);
    let done: Vec<AtomicU64> = (0..hogs).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for mine in &done {
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
        let periodic = scope.spawn(|| measure_rounds(args, &done));
        let measured = periodic
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        measured.map_err(environment)
    })
}

/// Ends the batch threads, whatever happens.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How much was done per second meanwhile.
fn per_second<T>(done: &[AtomicU64], meanwhile: impl FnOnce() -> T) -> (f64, T) {
    let count = || -> u64 { done.iter().map(|n| n.load(Ordering::Relaxed)).sum() };
    let (begun, before) = (Instant::now(), count());
    let result = meanwhile();
    let more = count() - before;
    (more as f64 / begun.elapsed().as_secs_f64(), result)
}

/// All rounds by the periodic task, which sleeps while the others are alone; or why it cannot run.
fn measure_rounds(args: &Args, done: &[AtomicU64]) -> Result<Measured, String> {
    let nice = args.nice;
    measure::nice(nice).map_err(|error| {
        format!("cannot take nice {nice}: {error}; try --nice 0, or run as root")
    })?;
    measure::wake_exactly().map_err(|error| format!("cannot set the timer slack: {error}"))?;
    let time = Duration::from_secs(args.seconds) / ROUNDS;
    let mut measured = Measured::default();
    for _ in 0..ROUNDS {
        let (alone, ()) = per_second(done, || thread::sleep(time));
        let (beside, result) = per_second(done, || wake(args, time, &mut measured));
        result?;
        measured.rounds.push(Round { alone, beside });
    }
    Ok(measured)
}

/// The periodic task for so long.
fn wake(args: &Args, time: Duration, measured: &mut Measured) -> Result<(), String> {
    let waited =
        || measure::waited_ns().map_err(|error| format!("{}: {error}", measure::SCHEDSTAT));
    let (period, work) = (
        Duration::from_micros(args.period_us),
        Duration::from_micros(args.work_us),
    );
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
        measured.late.push(measure::nanoseconds(late));
        measured.delays.push(waited()? - before);
        while woken.elapsed() < work {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

fn text(report: &Report) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let delay = &report.wakeup_delay;
    format!(
        "{} batch threads on {} CPUs, and a task of nice {} every {} us, {} times\n\
         wakeup delay p50: {:.3} ms\nwakeup delay p90: {:.3} ms\nwakeup delay p99: {:.3} ms\n\
         wakeup delay max: {:.3} ms\n\
         late p50: {:.3} ms\nlate p99: {:.3} ms\n\
         batch work per second: {:.0} alone, {:.0} beside it\nbatch loss: {:.2} %\n\
         batch loss of each of {} rounds: {}\n",
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
        report.batch_loss_percent_of_rounds.len(),
        report
            .batch_loss_percent_of_rounds
            .iter()
            .map(|loss| format!("{loss:.2}"))
            .collect::<Vec<_>>()
            .join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every round has both measurements, and all have wakeups. Method: a second of each on this machine, at no priority.
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
        let measured = measured.expect("nice 0 is allowed");
        assert_eq!(measured.rounds.len(), ROUNDS as usize);
        for round in &measured.rounds {
            assert!(round.alone > 0.0 && round.beside > 0.0);
        }
        let samples = measured.delays.len();
        assert!((10..=100).contains(&samples), "{samples}");
        assert_eq!(measured.late.len(), samples);
    }

    // Goal: the loss is of one round, and the median is the middle one. Method: three rounds worked out by hand.
    #[test]
    fn the_loss_is_the_median_of_rounds() {
        let rounds = [(100.0, 98.0), (50.0, 25.0), (200.0, 210.0)];
        let rounds = rounds.map(|(alone, beside)| Round { alone, beside });
        let losses = sorted(rounds.iter().map(Round::loss_percent));
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
        assert!(near(losses[0], -5.0) && near(losses[2], 50.0), "{losses:?}");
        assert!(near(median(&losses), 2.0), "{losses:?}");
    }
}
