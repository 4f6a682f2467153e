// SPDX-License-Identifier: GPL-2.0-only
//! A server under an open load: requests come at a rate that does not depend on how fast they are answered.
//!
//! ```text
//!  main ── creates the dispatchers, each of which creates its workers; all start together
//!  dispatcher: wait for the next arrival, which interrupts its CPU; take it in; put it into the queue;
//!              wake the worker that has been idle for the shortest time, if one idles; repeat
//!  worker:     take the request that came first; compute it; if there is none, be idle
//! ```
//!
//! Arrivals are a Poisson process per dispatcher. When they come and how much work they bring is drawn by the
//! dispatcher alone, so all policies get the same requests with the same seed. A latency counts from the
//! arrival as drawn, not from when the dispatcher got to it: what waits at the door waits.

use std::sync::Arc;

use super::figures::{bad, choice, count, footprint, span, time, Args, Figure, Kind, MS, US};
use super::kit::{fork, post, wait_while_blocked, Draft, BLOCKED, RUNNING};
use super::registry::WorkloadInfo;
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Program, TaskCtx, TaskSpec};
use crate::rng::Rng;
use crate::world::{Barrier, CounterId, Futex, LatencyId, List, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "requests",
    about: "an open load: requests come at a given rate, however long they take; dispatchers hand them to workers",
    figures: FIGURES,
    aliases: &[],
    published: &[],
    make,
};

const FIGURES: &[Figure] = &[
    count(
        "load",
        70,
        (1, 1_000),
        "work that arrives, in per cent of what all CPUs can do when all are busy; without meaning if `rate` is given",
        "assumed",
    ),
    count(
        "rate",
        0,
        (0, 1_000_000_000),
        "requests per second, of all dispatchers; 0: as `load` says",
        "assumed",
    ),
    span(
        "service",
        100 * US,
        "mean work of a request; with bimodal, of a short one",
        "assumed",
    ),
    choice(
        "distribution",
        &["exponential", "fixed", "bimodal"],
        "how the work of requests differs",
        "assumed",
    ),
    span(
        "long",
        10 * MS,
        "with bimodal: work of a long request",
        "Shinjuku (NSDI 2019), ghOSt (SOSP 2021): range queries among lookups",
    ),
    count(
        "long_permille",
        5,
        (0, 1_000),
        "with bimodal: long requests of a thousand",
        "Shinjuku (NSDI 2019), ghOSt (SOSP 2021): 0.5 %",
    ),
    Figure {
        key: "dispatchers",
        kind: Kind::PerCpus {
            cpus: 16,
            high: 4_096,
        },
        meaning: "threads that take requests in, each with a queue and workers of its own",
        source: "assumed: one for 16 CPUs",
    },
    count(
        "workers",
        32,
        (1, 100_000),
        "workers per dispatcher",
        "assumed: two for each of 16 CPUs",
    ),
    time(
        "dispatch",
        300,
        "CPU time of taking a request in, besides waiting for it and waking a worker",
        "assumed",
    ),
    time(
        "warmup",
        500 * MS,
        "time before the measurement, from when all workers are there",
        "assumed",
    ),
    span("runtime", 200 * MS, "measured time", "assumed"),
    footprint("footprint_kib", 32),
];

/// More would fill the memory before the first of them runs.
const MOST_WORKERS: u64 = 200_000;
/// Between two requests of a dispatcher, at least: less than it takes to wake a worker.
const LEAST_GAP: Nanos = 100;

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let dispatchers = args.get("dispatchers");
    let workers = args.get("workers");
    if dispatchers * workers > MOST_WORKERS {
        let what =
            format!("times `dispatchers` is more than {MOST_WORKERS} tasks; lower one of them");
        return Err(bad("workers", what));
    }
    let work = Work::read(args);
    let gap = gap(args, work.mean(), dispatchers)?;
    let mut world = World::new();
    let done = world.new_counter("requests");
    world.metrics.offered = Some((1e9 * dispatchers as f64 / gap as f64, done));
    let long = match work {
        Work::Bimodal { long, .. } => Some(long),
        Work::Exponential(_) | Work::Fixed(_) => None,
    };
    let plan = Arc::new(Plan {
        workers,
        gap,
        work,
        dispatch: args.get("dispatch"),
        footprint_kib: args.get_u32("footprint_kib"),
        start: world.new_barrier(args.get_u32("dispatchers") + 1),
        arrived: world.new_counter("arrivals"),
        done,
        latency: world.new_latency("latency"),
        intake: world.new_latency("intake"),
        delay: world.new_latency("delay"),
        by_length: long.map(|long| (long, world.new_latency("short"), world.new_latency("long"))),
    });
    let (warmup, runtime) = (args.get("warmup"), args.get("runtime"));
    let mut made = 0;
    let mut waited = false;
    let main = move |ctx: &mut TaskCtx<'_>| {
        if made < dispatchers {
            made += 1;
            let dispatcher = Dispatcher::new(plan.clone(), ctx.world());
            return fork(
                TaskSpec::new("dispatcher", dispatcher)
                    .thread()
                    .group(1)
                    .memory(plan.footprint_kib, 0),
            );
        }
        if !waited {
            waited = true;
            return Action::Barrier(plan.start);
        }
        ctx.measure(warmup, runtime);
        Action::Sleep(warmup + runtime)
    };
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("server", main)],
        stop: Stop::Measured,
        warmup: 0,
        headline: ("latency_ns_p99", false),
        tail: None,
        limits: &["requests come out of nowhere: no network, and a queue whose lines and lock cost nothing"],
    }
    .done())
}

/// The mean time between two arrivals at a dispatcher.
fn gap(args: &Args<'_>, mean_work: Nanos, dispatchers: u64) -> Result<Nanos, SimError> {
    let (key, time, requests) = match args.get("rate") {
        0 => {
            let percent_permille = args.get("load") * args.machine.work_permille();
            ("load", u128::from(mean_work) * 100_000, percent_permille)
        }
        rate => ("rate", 1_000_000_000, rate),
    };
    let gap = time * u128::from(dispatchers) / u128::from(requests.max(1));
    let gap = u64::try_from(gap).unwrap_or(u64::MAX);
    if gap < LEAST_GAP {
        let what = format!(
            "asks for a request every {gap} ns of each dispatcher, which is less than it takes to take one in; raise `dispatchers`, or lower `{key}`"
        );
        return Err(bad(key, what));
    }
    let time = args.get("warmup").saturating_add(args.get("runtime"));
    if gap / dispatchers > time {
        let what = "asks for less than one request in the whole run; raise it, or `runtime`";
        return Err(bad(key, what));
    }
    Ok(gap)
}

/// How much work a request is.
#[derive(Clone, Copy)]
enum Work {
    Exponential(Nanos),
    Fixed(Nanos),
    Bimodal {
        short: Nanos,
        long: Nanos,
        long_permille: u32,
    },
}

impl Work {
    fn read(args: &Args<'_>) -> Work {
        let service = args.get("service");
        match args.word("distribution") {
            "fixed" => Work::Fixed(service),
            "bimodal" => Work::Bimodal {
                short: service,
                long: args.get("long"),
                long_permille: args.get_u32("long_permille"),
            },
            _ => Work::Exponential(service),
        }
    }

    fn mean(self) -> Nanos {
        match self {
            Work::Exponential(mean) | Work::Fixed(mean) => mean,
            Work::Bimodal {
                short,
                long,
                long_permille,
            } => {
                let long_permille = u128::from(long_permille);
                let sum =
                    u128::from(short) * (1000 - long_permille) + u128::from(long) * long_permille;
                u64::try_from(sum / 1000).expect("a mean is no more than the greater of two")
            }
        }
    }

    /// The work of one request.
    fn draw(self, rng: &mut Rng) -> Nanos {
        match self {
            Work::Exponential(mean) => rng.exponential(mean),
            Work::Fixed(work) => work,
            Work::Bimodal {
                short,
                long,
                long_permille,
            } => match rng.chance(long_permille) {
                true => long,
                false => short,
            },
        }
    }
}

struct Plan {
    workers: u64,
    gap: Nanos,
    work: Work,
    dispatch: Nanos,
    footprint_kib: u32,
    start: Barrier,
    arrived: CounterId,
    done: CounterId,
    latency: LatencyId,
    intake: LatencyId,
    delay: LatencyId,
    /// Where requests are short or long: the work of a long one, and the latencies of either kind.
    by_length: Option<(Nanos, LatencyId, LatencyId)>,
}

/// Where a dispatcher and its workers meet.
#[derive(Clone, Copy)]
struct Desk {
    /// Of each request that waits two numbers: when it came, and how much work it is.
    queue: List,
    /// Numbers of the workers that idle, the one that began last first.
    idle: List,
}

struct Dispatcher {
    plan: Arc<Plan>,
    desk: Desk,
    futexes: Arc<[Futex]>,
    born: u64,
    next_at: Nanos,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Create,
    Begin,
    Wait,
    Take,
    Put,
}

impl Dispatcher {
    fn new(plan: Arc<Plan>, world: &mut World) -> Dispatcher {
        let desk = Desk {
            queue: world.new_list(),
            idle: world.new_list(),
        };
        let futexes = (0..plan.workers)
            .map(|_| world.new_futex(RUNNING))
            .collect();
        Dispatcher {
            plan,
            desk,
            futexes,
            born: 0,
            next_at: 0,
            step: Step::Create,
        }
    }

    fn worker(&self, n: u64) -> TaskSpec {
        let worker = Worker {
            plan: self.plan.clone(),
            n,
            desk: self.desk,
            futex: self.futexes[n as usize],
            request: None,
        };
        TaskSpec::new("worker", worker)
            .thread()
            .group(2)
            .memory(self.plan.footprint_kib, 0)
    }
}

impl Program for Dispatcher {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            match self.step {
                Step::Create if self.born < self.plan.workers => {
                    self.born += 1;
                    return fork(self.worker(self.born - 1));
                }
                Step::Create => {
                    self.step = Step::Begin;
                    return Action::Barrier(self.plan.start);
                }
                Step::Begin => {
                    self.next_at = ctx.now() + ctx.rng().exponential(self.plan.gap);
                    self.step = Step::Wait;
                }
                Step::Wait => {
                    self.step = Step::Take;
                    if self.next_at > ctx.now() {
                        return Action::Io(self.next_at - ctx.now());
                    }
                }
                Step::Take => {
                    self.step = Step::Put;
                    ctx.sample(self.plan.intake, ctx.now() - self.next_at);
                    return Action::Compute(self.plan.dispatch);
                }
                Step::Put => {
                    let came = self.next_at;
                    let work = self.plan.work.draw(ctx.rng());
                    self.next_at = came + ctx.rng().exponential(self.plan.gap);
                    self.step = Step::Wait;
                    ctx.count(self.plan.arrived, 1);
                    ctx.list(self.desk.queue).extend([came, work]);
                    if let Some(n) = ctx.list(self.desk.idle).pop_front() {
                        let futex = self.futexes[n as usize];
                        if post(ctx, futex) {
                            return Action::FutexWake { futex, count: 1 };
                        }
                    }
                }
            }
        }
    }
}

struct Worker {
    plan: Arc<Plan>,
    n: u64,
    desk: Desk,
    futex: Futex,
    /// When the request came that it works at, and how much work it is.
    request: Option<(Nanos, Nanos)>,
}

impl Program for Worker {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        if let Some((came, work)) = self.request.take() {
            let latency = ctx.now() - came;
            ctx.count(self.plan.done, 1);
            ctx.sample(self.plan.latency, latency);
            if let Some((long, of_short, of_long)) = self.plan.by_length {
                ctx.sample(if work == long { of_long } else { of_short }, latency);
            }
        }
        let queue = ctx.list(self.desk.queue);
        if let (Some(came), Some(work)) = (queue.pop_front(), queue.pop_front()) {
            self.request = Some((came, work));
            ctx.sample(self.plan.delay, ctx.now() - came);
            return Action::Compute(work);
        }
        // Nothing to do; it may have been called for a request that another worker was sooner to take.
        *ctx.futex(self.futex) = BLOCKED;
        ctx.list(self.desk.idle).push_front(self.n);
        wait_while_blocked(self.futex)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{machine, run, By};

    // Goal: only dispatchers wake workers, one for a request, and every request is taken in and done.
    // Method: the kinds of wakeups of short runs, and the counters.
    #[test]
    fn wakes_are_those_of_a_server() {
        for seed in 0..5 {
            let pairs = ["dispatchers=3", "workers=4", "rate=20000", "warmup=0s"];
            let ran = run("requests", &pairs, seed);
            let mut started = 0;
            for ((from, to, by, sync), n) in ran.graph() {
                match (from.as_str(), to.as_str(), by) {
                    ("dispatcher", "worker", By::Futex) => assert!(!sync),
                    ("timer", "dispatcher" | "server", By::Timer) => {}
                    (_, "dispatcher" | "server", By::Barrier) => started += n,
                    other => panic!("{other:?} does not happen here"),
                }
            }
            assert_eq!(started, 3, "all but the last to come");
            let (arrived, done) = (ran.metric("arrivals"), ran.metric("requests"));
            assert!(
                done <= arrived && arrived - done <= 12,
                "{done} of {arrived}"
            );
            // 20,000 a second for 200 ms; a Poisson count of 4,000 is within 5 deviations.
            assert!((3_680..=4_320).contains(&arrived), "{arrived}");
            assert_eq!(ran.metric("latency_count"), done);
            assert!(ran.count_wakes("dispatcher", "worker", By::Futex) <= arrived);
        }
    }

    // Goal: the load is what was asked for, whatever the distribution. Method: the work of all requests of a long run against
    // what the test machine can do: 16 cores, whose threads do 62 % each (asked of the machine) when both work.
    #[test]
    fn the_load_is_as_asked() {
        let can_do = machine().work_permille() * 2_000_000_000 / 1000;
        for distribution in ["exponential", "fixed", "bimodal"] {
            let given = format!("distribution={distribution}");
            let pairs = [
                &given[..],
                "load=40",
                "long=1ms",
                "long_permille=50",
                "runtime=2s",
                "warmup=0s",
            ];
            let ran = run("requests", &pairs, 1);
            let worked: u64 = ran
                .named("worker")
                .iter()
                .map(|worker| ran.tasks[worker.index()].compute)
                .sum();
            let percent = worked * 100 / can_do;
            assert!((38..=42).contains(&percent), "{distribution}: {percent}");
            let short = ran.metrics.get("short_ns_p50");
            assert_eq!(short.is_some(), distribution == "bimodal");
            if let Some(short) = short {
                assert!(*short < 150e3 && ran.metrics["long_ns_p50"] >= 1e6);
            }
        }
    }

    // Goal: latencies count from the arrival, so one worker under more than it can do is seen to fall behind, and the door's
    // queue is in it. Method: twice the work that one worker can do in 200 ms: half is done, the last after half the time.
    #[test]
    fn overload_is_seen() {
        let pairs = [
            "dispatchers=1",
            "workers=1",
            "distribution=fixed",
            "rate=20000",
            "warmup=0s",
        ];
        let ran = run("requests", &pairs, 1);
        let (arrived, done) = (ran.metric("arrivals"), ran.metric("requests"));
        assert!(
            (45..=55).contains(&(done * 100 / arrived)),
            "{done} of {arrived}"
        );
        let longest = ran.metrics["latency_ns_max"];
        assert!((80e6..=110e6).contains(&longest), "{longest}");
        assert!(ran.metrics["delay_ns_max"] < longest);
    }
}
