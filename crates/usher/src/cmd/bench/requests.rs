// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench requests`: how long requests take that come at a given rate, however long they take. The same server as the
//! simulator's workload of that name, with real threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;
use usher_sim::rng::Rng;

use super::reckon::Delay;
use super::{environment, measure, wrong_use, Format};
use crate::exit::{Code, Failure};

/// How long requests take that arrive at a given rate: an open load.
///
/// A dispatcher waits for the next arrival of a Poisson process, puts it into a queue, and wakes the worker that has been idle
/// for the shortest time. A worker takes the request that came first, works for as long as it is, and is idle if there is none.
/// A latency counts from the arrival as drawn until the request is done: a dispatcher that waits for a CPU, and a server
/// that falls behind, are in it. `usher sim --workload requests` is the same, simulated.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Work that arrives, in per cent of the time of all CPUs that this process may use. (In the simulator what CPUs can do counts,
    /// and threads of a core share it.)
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u64).range(1..=1000))]
    load: u64,

    /// Requests per second of all dispatchers, instead of --load
    #[arg(long, value_name = "N", conflicts_with = "load", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: Option<u64>,

    /// Mean work of a request in microseconds of CPU time; with bimodal, of a short one
    #[arg(long, value_name = "US", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    service_us: u64,

    /// How the work of requests differs
    #[arg(long, value_enum, default_value_t = Distribution::Exponential)]
    distribution: Distribution,

    /// With bimodal: work of a long request in microseconds
    #[arg(long, value_name = "US", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    long_us: u64,

    /// With bimodal: long requests of a thousand
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    long_permille: u32,

    /// Threads that take requests in, each with a queue and workers of its own; one for 16 CPUs if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    dispatchers: Option<u32>,

    /// Workers per dispatcher
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: u32,

    /// Seconds of the measurement, which begins half a second after the first request
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// The seed of arrivals and of how much work they bring
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Distribution {
    /// Each as long as chance has it, in the mean as said
    Exponential,
    /// All alike
    Fixed,
    /// Short ones and long ones
    Bimodal,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    /// `usher-bench-requests/1`.
    schema: &'static str,
    /// CPUs that this process may use.
    cpus: usize,
    dispatchers: u32,
    /// Per dispatcher.
    workers: u32,
    distribution: Distribution,
    /// Mean work of a request, nanoseconds of CPU time.
    mean_work_ns: u64,
    /// Mean time between two arrivals at a dispatcher, nanoseconds.
    mean_gap_ns: u64,
    /// Requests that arrived in the measured time.
    arrivals: usize,
    /// Of these, requests done within it.
    requests: usize,
    /// CPU time that this process took in that time, in per cent of the time of its CPUs: the work, and what dispatching, waking
    /// and switching cost besides.
    busy_percent: f64,
    /// From the arrival until the request is done; this and the following are `null` if none was done.
    latency: Option<Delay>,
    /// From the arrival until a dispatcher takes it in.
    intake: Option<Delay>,
    /// From the arrival until a worker begins.
    delay: Option<Delay>,
    /// With bimodal: `latency` of short requests and of long ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<Delay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    long: Option<Delay>,
}

/// Time that the load has to settle, before what arrives is measured.
const WARMUP: Duration = Duration::from_millis(500);

/// How requests come, and how much work they are.
#[derive(Clone, Copy, Debug)]
struct Plan {
    gap_ns: u64,
    work: Work,
    warmup: Duration,
    time: Duration,
    workers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    distribution: Distribution,
    service_ns: u64,
    long_ns: u64,
    long_permille: u32,
}

impl Work {
    fn mean_ns(self) -> u64 {
        match self.distribution {
            Distribution::Exponential | Distribution::Fixed => self.service_ns,
            Distribution::Bimodal => {
                let long = u64::from(self.long_permille);
                (self.service_ns * (1000 - long) + self.long_ns * long) / 1000
            }
        }
    }

    /// The work of one request, and whether it is a long one, where there are such.
    fn draw(self, rng: &mut Rng) -> (u64, Option<bool>) {
        match self.distribution {
            Distribution::Exponential => (rng.exponential(self.service_ns), None),
            Distribution::Fixed => (self.service_ns, None),
            Distribution::Bimodal => match rng.chance(self.long_permille) {
                true => (self.long_ns, Some(true)),
                false => (self.service_ns, Some(false)),
            },
        }
    }
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Request {
    came: Instant,
    taken: Instant,
    work_ns: u64,
    long: Option<bool>,
    measured: bool,
}

/// A request that is done; nanoseconds since it came.
#[derive(Clone, Copy, Debug)]
struct Done {
    intake: u64,
    delay: u64,
    latency: u64,
    at: Instant,
    long: Option<bool>,
}

/// Why locks are not poisoned.
const NO_PANIC: &str = "nobody panics while holding a lock";

/// Where a dispatcher and its workers meet.
#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    over: AtomicBool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Request>,
    /// Numbers of the workers that idle, the one that began last at the end.
    idle: Vec<usize>,
    /// By number: whether it is among these.
    is_idle: Vec<bool>,
}

impl State {
    /// The next request for this worker, which is idle if there is none.
    fn next_for(&mut self, n: usize) -> Option<Request> {
        let next = self.queue.pop_front();
        match (&next, self.is_idle[n]) {
            (None, false) => self.idle.push(n),
            // Awake, but nobody called it: `park` may return by itself.
            (Some(_), true) => self.idle.retain(|idle| *idle != n),
            _ => {}
        }
        self.is_idle[n] = next.is_none();
        next
    }

    /// An idle worker that is to be called, if there is one.
    fn call_one(&mut self) -> Option<usize> {
        let n = self.idle.pop()?;
        self.is_idle[n] = false;
        Some(n)
    }
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NO_PANIC)
    }
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let cpus = measure::allowed()
        .map_err(|error| environment(format!("affinity: {error}")))?
        .len();
    let one_for_16 = u32::try_from(cpus / 16).unwrap_or(u32::MAX).max(1);
    let dispatchers = args.dispatchers.unwrap_or(one_for_16);
    let plan = plan(args, cpus, dispatchers)?;
    let Served {
        arrivals,
        done,
        busy,
    } = serve(plan, dispatchers, args.seed).map_err(environment)?;
    let of = |which: fn(&Done) -> bool, what: fn(&Done) -> u64| {
        let all: Vec<u64> = done.iter().filter(|one| which(one)).map(what).collect();
        (!all.is_empty()).then(|| Delay::of(all))
    };
    let report = Report {
        schema: "usher-bench-requests/1",
        cpus,
        dispatchers,
        workers: args.workers,
        distribution: args.distribution,
        mean_work_ns: plan.work.mean_ns(),
        mean_gap_ns: plan.gap_ns,
        arrivals,
        requests: done.len(),
        busy_percent: busy / cpus as f64 * 100.0,
        latency: of(|_| true, |one| one.latency),
        intake: of(|_| true, |one| one.intake),
        delay: of(|_| true, |one| one.delay),
        short: of(|one| one.long == Some(false), |one| one.latency),
        long: of(|one| one.long == Some(true), |one| one.latency),
    };
    args.format.print(&report, text)?;
    Ok(Code::Fine)
}

fn plan(args: &Args, cpus: usize, dispatchers: u32) -> Result<Plan, Failure> {
    let work = Work {
        distribution: args.distribution,
        service_ns: args.service_us * 1000,
        long_ns: args.long_us * 1000,
        long_permille: args.long_permille,
    };
    let (given, time, requests) = match args.rate {
        Some(rate) => (format!("--rate {rate}"), 1_000_000_000, rate),
        None => (
            format!("--load {}", args.load),
            work.mean_ns() * 100,
            args.load * cpus as u64,
        ),
    };
    let gap_ns = time * u64::from(dispatchers) / requests;
    if gap_ns < 100 {
        return Err(wrong_use(format!(
            "{given} asks for a request every {gap_ns} ns of each dispatcher, which is less than it takes to take one in; raise \
             --dispatchers or --service-us, or lower {}",
            if args.rate.is_some() { "--rate" } else { "--load" }
        )));
    }
    Ok(Plan {
        gap_ns,
        work,
        warmup: WARMUP,
        time: Duration::from_secs(args.seconds),
        workers: args.workers,
    })
}

/// What came of a while.
#[derive(Default)]
struct Served {
    /// How many requests arrived in the measured time.
    arrivals: usize,
    /// Those of them that were done.
    done: Vec<Done>,
    /// How many CPUs this process kept busy in the measured time, in the mean.
    busy: f64,
}

/// Serves for a while, with so many dispatchers; or why it cannot.
fn serve(plan: Plan, dispatchers: u32, seed: u64) -> Result<Served, String> {
    let gate = Gate::default();
    thread::scope(|scope| {
        let (ready, all_ready) = mpsc::channel();
        let mut outcome = Ok(());
        let mut threads = Vec::new();
        for n in 0..dispatchers {
            let (ready, gate) = (ready.clone(), &gate);
            let rng = Rng::stream(seed, n.into());
            let made = thread::Builder::new()
                .spawn_scoped(scope, move || dispatcher(plan, rng, &ready, gate));
            match made {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    outcome = Err(format!(
                        "dispatcher {} cannot be made: {error}; take fewer of --dispatchers",
                        n + 1
                    ));
                    break;
                }
            }
        }
        for _ in &threads {
            let said = all_ready
                .recv()
                .expect("each dispatcher says whether it is ready");
            outcome = outcome.and(said);
        }
        let mut served = Served::default();
        if let Some(begin) = gate.open(outcome.is_ok()) {
            let from = look_at(begin + plan.warmup);
            let until = look_at(begin + plan.warmup + plan.time);
            served.busy = (until.1 - from.1).as_secs_f64() / (until.0 - from.0).as_secs_f64();
        }
        for thread in threads {
            let (arrivals, done) = measure::join(thread);
            served.arrivals += arrivals;
            served.done.extend(done);
        }
        outcome.map(|()| served)
    })
}

/// Waits until then: what time it is, and the CPU time that this process has taken.
fn look_at(then: Instant) -> (Instant, Duration) {
    thread::sleep(then.saturating_duration_since(Instant::now()));
    (Instant::now(), measure::process_cpu_time())
}

/// Where dispatchers wait for each other.
#[derive(Default)]
struct Gate {
    /// Once it is known: when all begin, or that nobody does.
    begin: Mutex<Option<Option<Instant>>>,
    known: Condvar,
}

impl Gate {
    /// When all begin.
    fn open(&self, go: bool) -> Option<Instant> {
        let soon = go.then(|| Instant::now() + Duration::from_millis(50));
        *self.begin.lock().expect(NO_PANIC) = Some(soon);
        self.known.notify_all();
        soon
    }

    fn wait(&self) -> Option<Instant> {
        let begin = self.begin.lock().expect(NO_PANIC);
        let known = self.known.wait_while(begin, |begin| begin.is_none());
        known.expect(NO_PANIC).flatten()
    }
}

/// A dispatcher with its workers, until the end: how many requests arrived in the measured time, and those of them that were done.
fn dispatcher(
    plan: Plan,
    rng: Rng,
    ready: &mpsc::Sender<Result<(), String>>,
    gate: &Gate,
) -> (usize, Vec<Done>) {
    let desk = Desk::default();
    desk.state().is_idle = vec![false; plan.workers as usize];
    thread::scope(|scope| {
        let mut workers = Vec::new();
        let mut outcome =
            measure::wake_exactly().map_err(|error| format!("cannot set the timer slack: {error}"));
        for n in 0..plan.workers as usize {
            let desk = &desk;
            let made = thread::Builder::new()
                .stack_size(64 << 10)
                .spawn_scoped(scope, move || work(desk, n));
            match made {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    outcome = Err(format!(
                        "worker {} of a dispatcher cannot be made: {error}; take fewer of --workers",
                        n + 1
                    ));
                    break;
                }
            }
        }
        ready.send(outcome).expect("the other end waits for this");
        let call = |n: usize| workers[n].thread().unpark();
        let begin = gate.wait();
        let arrivals = begin.map_or(0, |begin| dispatch(plan, &desk, begin, rng, call));
        desk.over.store(true, Ordering::SeqCst);
        (0..workers.len()).for_each(call);
        let mut done: Vec<Done> = workers.into_iter().flat_map(measure::join).collect();
        let until = begin.map(|begin| begin + plan.warmup + plan.time);
        done.retain(|one| until.is_some_and(|until| one.at <= until));
        (arrivals, done)
    })
}

/// Takes requests in: how many arrived in the measured time.
fn dispatch(plan: Plan, desk: &Desk, begin: Instant, mut rng: Rng, call: impl Fn(usize)) -> usize {
    let (from, until) = (begin + plan.warmup, begin + plan.warmup + plan.time);
    let mut arrivals = 0;
    let mut came = begin;
    loop {
        came += Duration::from_nanos(rng.exponential(plan.gap_ns));
        if came >= until {
            thread::sleep(until.saturating_duration_since(Instant::now()));
            return arrivals;
        }
        let measured = came >= from;
        arrivals += usize::from(measured);
        let (work_ns, long) = plan.work.draw(&mut rng);
        let now = Instant::now();
        if now >= until {
            continue; // It came so late to this one that nobody will do it any more.
        }
        if now < came {
            thread::sleep(came - now);
        }
        let request = Request {
            came,
            taken: Instant::now(),
            work_ns,
            long,
            measured,
        };
        let idle = {
            let mut state = desk.state();
            state.queue.push_back(request);
            state.call_one()
        };
        if let Some(n) = idle {
            call(n);
        }
    }
}

/// A worker, until the end: the measured requests that it did.
fn work(desk: &Desk, n: usize) -> Vec<Done> {
    let mut all = Vec::new();
    while !desk.over.load(Ordering::SeqCst) {
        let Some(request) = desk.state().next_for(n) else {
            thread::park();
            continue;
        };
        let begun = Instant::now();
        if measure::work_for(request.work_ns, &desk.over) && request.measured {
            let at = Instant::now();
            let since =
                |at: Instant| measure::nanoseconds(at.saturating_duration_since(request.came));
            all.push(Done {
                intake: since(request.taken),
                delay: since(begun),
                latency: since(at),
                at,
                long: request.long,
            });
        }
    }
    all
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "{} CPUs, {} dispatchers with {} workers each; a request of {} us ({:?}) every {:.3} us of each dispatcher\n\
         {} of {} requests done\n",
        report.cpus,
        report.dispatchers,
        report.workers,
        report.mean_work_ns as f64 / 1e3,
        report.distribution,
        report.mean_gap_ns as f64 / 1e3,
        report.requests,
        report.arrivals,
    );
    text += &format!("CPUs busy: {:.1} %\n", report.busy_percent);
    // A queue that is as long as always may have some under way; so may chance.
    let lost = report.arrivals.saturating_sub(report.requests);
    if lost * 50 > report.arrivals && lost * lost > 25 * report.arrivals {
        text += "the CPUs did not keep up: latencies grow with --seconds; lower --load or --rate\n";
    }
    if report.latency.is_none() {
        text += "no request was done in time: raise --seconds, or lower --load or --rate\n";
    }
    let rows = [
        ("request latency", report.latency.as_ref()),
        ("request intake", report.intake.as_ref()),
        ("request delay", report.delay.as_ref()),
        ("short latency", report.short.as_ref()),
        ("long latency", report.long.as_ref()),
    ];
    for (name, delay) in rows {
        let Some(delay) = delay else { continue };
        let values = [
            ("p50", delay.p50_ns),
            ("p90", delay.p90_ns),
            ("p99", delay.p99_ns),
            ("max", delay.max_ns),
        ];
        for (quantile, ns) in values {
            text += &format!("{name} {quantile}: {:.3} ms\n", ns as f64 / 1e6);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        Args {
            load: 70,
            rate: None,
            service_us: 100,
            distribution: Distribution::Exponential,
            long_us: 10_000,
            long_permille: 5,
            dispatchers: None,
            workers: 4,
            seconds: 1,
            seed: 1,
            format: Format::Table,
        }
    }

    // Goal: load and rate mean what they say. Method: gaps worked out by hand, and one that nobody can keep.
    #[test]
    fn gaps_follow_from_load_and_rate() {
        let gap = |args: &Args, cpus, dispatchers| {
            plan(args, cpus, dispatchers)
                .map(|plan| plan.gap_ns)
                .map_err(|failure| failure.error.to_string())
        };
        // 4 CPUs at half load do 2 requests in 100 us; with two dispatchers each has one of them.
        let half = Args { load: 50, ..args() };
        assert_eq!(gap(&half, 4, 1), Ok(50_000));
        assert_eq!(gap(&half, 4, 2), Ok(100_000));
        let rate = Args {
            rate: Some(1000),
            ..args()
        };
        assert_eq!(gap(&rate, 4, 3), Ok(3_000_000));
        // 995 of 100 us and 5 of 10 ms: 149.5 us in the mean.
        let bimodal = Args {
            distribution: Distribution::Bimodal,
            load: 100,
            ..args()
        };
        assert_eq!(gap(&bimodal, 1, 1), Ok(149_500));
        let fast = Args {
            rate: Some(1_000_000_000),
            ..args()
        };
        let error = gap(&fast, 4, 1).expect_err("nobody takes in a request per ns");
        assert!(error.contains("--dispatchers"), "{error}");
    }

    // Goal: requests that come are done, once each, and times are in order. Method: a quarter of a second of light load on this
    // machine, which may be busy: nothing is asked of how long they take.
    #[test]
    fn what_comes_is_done() {
        let plan = Plan {
            gap_ns: 2_000_000,
            work: Work {
                distribution: Distribution::Bimodal,
                service_ns: 20_000,
                long_ns: 200_000,
                long_permille: 200,
            },
            warmup: Duration::from_millis(20),
            time: Duration::from_millis(250),
            workers: 3,
        };
        let served = serve(plan, 2, 1).expect("threads can be made");
        let (arrivals, done) = (served.arrivals, served.done);
        assert!(served.busy > 0.0);
        // 250 in the mean, with a deviation of 16.
        assert!((170..=330).contains(&arrivals), "{arrivals}");
        assert!(
            done.len() <= arrivals && done.len() * 2 > arrivals,
            "{}",
            done.len()
        );
        for one in &done {
            assert!(one.intake <= one.delay && one.delay < one.latency);
            let least = if one.long == Some(true) {
                200_000
            } else {
                20_000
            };
            assert!(one.latency - one.delay >= least, "{one:?}");
        }
        for long in [true, false] {
            assert!(done.iter().any(|one| one.long == Some(long)));
        }
    }
}
