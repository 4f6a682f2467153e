// SPDX-License-Identifier: GPL-2.0-only
//! uperf with its netperf profile: pairs of threads that exchange 90 bytes over TCP without delay.
//!
//! ```text
//!  uperf-slave  ── creates one server thread per pair
//!  uperf-master ── creates one client thread per pair; once all of both exist they start together, for a fixed time
//!  client: write 90 bytes, read 90 bytes; repeat        server: read 90 bytes, write 90 bytes; repeat
//! ```
//!
//! With `spread` each thread is bound to one CPU until all start, and to none from then on.

use std::sync::Arc;

use super::figures::{count, footprint, span, time, Args, Figure, MS, US};
use super::kit::{around, fork, pinned, tcp, Draft, PROTOCOL};
use super::registry::{Alias, Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::{Cpu, Nanos};
use crate::machine::Machine;
use crate::program::{Action, Program, TaskCtx, TaskSpec};
use crate::world::{Barrier, Channel, CounterId, LatencyId, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "uperf",
    about: "pairs of threads in ping-pong over loopback TCP (the netperf profile)",
    figures: FIGURES,
    aliases: &[Alias {
        name: "uperf-netperf",
        implies: &[],
    }],
    published: &[Published::higher("throughput-normalized", "bytes_per_s")],
    make,
};

const BETWEEN: &str = "reckoned: around a write(2) and a read(2) uperf goes through a few function pointers and flags and adds up a size and a \
     count each (workloads/netperf.xml, src/execute.c, flowops_library.c, generic.c, stats.c); it asks the clock only for statistics (-a, -f, -t)";

const FIGURES: &[Figure] = &[
    PROTOCOL,
    Figure {
        key: "threads",
        kind: super::figures::Kind::PerCpus {
            cpus: 2,
            high: 100_000,
        },
        meaning: "pairs of threads",
        source: "one pair for two CPUs",
    },
    count(
        "bytes",
        90,
        (1, 65_536),
        "size of a message each way",
        "uperf's netperf.xml",
    ),
    time(
        "client",
        100,
        "mean CPU time of a client per exchange, besides the kernel's",
        BETWEEN,
    ),
    time(
        "server",
        100,
        "mean CPU time of a server per exchange, besides the kernel's",
        BETWEEN,
    ),
    time(
        "warmup",
        20 * MS,
        "time before the measurement, from when all pairs start",
        "assumed",
    ),
    span(
        "runtime",
        50 * MS,
        "measured time",
        "30 s in the profile; shorter here",
    ),
    Figure {
        key: "spread",
        kind: super::figures::Kind::Flag(false),
        meaning: "threads begin evenly all over the machine, as after long balancing, instead of where they were born",
        source: "a run begins with births",
    },
    footprint("footprint_kib", 64),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let pairs = args.get_u32("threads");
    let tcp = tcp(args);
    let plan = Arc::new(Plan {
        bytes: args.get("bytes"),
        client: args.get("client"),
        server: args.get("server"),
        footprint_kib: args.get_u32("footprint_kib"),
        start: world.new_barrier(2 * pairs + 2),
        bytes_done: world.new_counter("bytes"),
        exchanges: world.new_counter("exchanges"),
        latency: world.new_latency("exchange"),
        links: (0..pairs)
            .map(|_| (world.new_channel(tcp), world.new_channel(tcp)))
            .collect(),
        homes: args.flag("spread").then(|| Homes::new(args.machine)),
    });
    let (start, times) = (plan.start, (args.get("warmup"), args.get("runtime")));
    let (for_clients, for_servers) = (plan.clone(), plan);
    let master = creator(pairs, start, true, times, move |n| {
        let client = Client {
            plan: for_clients.clone(),
            link: n,
            began: 0,
            step: 0,
        };
        for_clients.thread("client", 2 * n, client).group(1)
    });
    let slave = creator(pairs, start, false, times, move |n| {
        let server = Server {
            plan: for_servers.clone(),
            link: n,
            step: 0,
        };
        for_servers.thread("server", 2 * n + 1, server).group(2)
    });
    Ok(Draft {
        world,
        tasks: vec![
            TaskSpec::new("uperf-slave", slave),
            TaskSpec::new("uperf-master", master).start(100 * US),
        ],
        stop: Stop::Measured,
        warmup: 0,
        headline: ("bytes_per_s", true),
        tail: Some("exchange_ns_p99"),
        limits: &["uperf's control connection and statistics are not modelled"],
    }
    .done())
}

struct Plan {
    bytes: u64,
    client: Nanos,
    server: Nanos,
    footprint_kib: u32,
    start: Barrier,
    bytes_done: CounterId,
    exchanges: CounterId,
    latency: LatencyId,
    /// Per pair: to the server, to the client.
    links: Vec<(Channel, Channel)>,
    /// If they begin spread.
    homes: Option<Homes>,
}

impl Plan {
    /// The thread of this number: the ends of a pair follow each other.
    fn thread(
        self: &Arc<Self>,
        name: &'static str,
        number: usize,
        work: impl Program + 'static,
    ) -> TaskSpec {
        let start = Action::Barrier(self.start);
        let homes = self.homes.as_ref();
        let leave = homes.map(|homes| Action::SetAffinity(Arc::clone(&homes.anywhere)));
        let beginning = [Some(start), leave].into_iter().flatten();
        let thread = Thread { beginning, work };
        let spec = TaskSpec::new(name, thread).memory(self.footprint_kib, 0);
        match homes {
            Some(homes) => spec.affinity(homes.of(number, 2 * self.links.len())),
            None => spec,
        }
    }
}

/// Waits until all can start, and works.
struct Thread<B, P> {
    beginning: B,
    work: P,
}

impl<B: Iterator<Item = Action> + Send, P: Program> Program for Thread<B, P> {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        self.beginning.next().unwrap_or_else(|| self.work.next(ctx))
    }
}

/// Where pairs are until all have started; from then on they may run anywhere.
struct Homes {
    cpus: Vec<Cpu>,
    anywhere: Arc<CpuSet>,
}

impl Homes {
    fn new(machine: &Machine) -> Self {
        let cpus = machine.cpus().to_vec();
        let anywhere = Arc::new(cpus.iter().copied().collect());
        Self { cpus, anywhere }
    }

    /// One of so many threads: evenly over the CPUs, in the order of their numbers.
    fn of(&self, thread: usize, threads: usize) -> Arc<CpuSet> {
        let place = thread * self.cpus.len() / threads;
        pinned(self.cpus[place])
    }
}

/// A process that creates its threads, starts with all others, and then sleeps until the measurement is over.
fn creator(
    threads: u32,
    start: Barrier,
    measures: bool,
    (warmup, runtime): (Nanos, Nanos),
    mut thread: impl FnMut(usize) -> TaskSpec + Send + 'static,
) -> impl Program {
    let mut made = 0..threads as usize;
    let mut waited = false;
    move |ctx: &mut TaskCtx<'_>| {
        if let Some(n) = made.next() {
            return fork(thread(n).thread());
        }
        if !waited {
            waited = true;
            return Action::Barrier(start);
        }
        if measures {
            ctx.measure(warmup, runtime);
        }
        Action::Sleep(warmup + runtime)
    }
}

struct Client {
    plan: Arc<Plan>,
    link: usize,
    began: Nanos,
    step: u32,
}

impl Program for Client {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let (to_server, to_client) = self.plan.links[self.link];
        self.step += 1;
        match self.step {
            1 => {
                self.began = ctx.now();
                Action::Write {
                    channel: to_server,
                    bytes: self.plan.bytes,
                }
            }
            2 => Action::Read {
                channel: to_client,
                bytes: self.plan.bytes,
                exact: true,
            },
            _ => {
                self.step = 0;
                ctx.count(self.plan.bytes_done, 2 * self.plan.bytes);
                ctx.count(self.plan.exchanges, 1);
                ctx.sample(self.plan.latency, ctx.now() - self.began);
                Action::Compute(around(ctx.rng(), self.plan.client))
            }
        }
    }
}

struct Server {
    plan: Arc<Plan>,
    link: usize,
    step: u32,
}

impl Program for Server {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let (to_server, to_client) = self.plan.links[self.link];
        self.step = self.step % 3 + 1;
        match self.step {
            1 => Action::Read {
                channel: to_server,
                bytes: self.plan.bytes,
                exact: true,
            },
            2 => Action::Compute(around(ctx.rng(), self.plan.server)),
            _ => Action::Write {
                channel: to_client,
                bytes: self.plan.bytes,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{run, By};
    use super::{CpuSet, Homes};
    use crate::ids::Cpu;
    use std::sync::Arc;

    // Goal: threads that begin spread are as many on each CPU as on any other, but for one.
    // Method: all numbers of threads up to four for each of seven CPUs, which are not numbered in a row.
    #[test]
    fn threads_are_spread_evenly() {
        let cpus: Vec<Cpu> = [0, 1, 2, 5, 6, 9, 12].map(Cpu).to_vec();
        let anywhere: Arc<CpuSet> = Arc::new(cpus.iter().copied().collect());
        let homes = Homes { cpus, anywhere };
        for threads in 1..=28 {
            let all: Vec<Cpu> = (0..threads)
                .map(|n| homes.of(n, threads).first().expect("one"))
                .collect();
            for cpu in &homes.cpus {
                let here = all.iter().filter(|c| *c == cpu).count();
                assert!(
                    (threads / 7..=threads.div_ceil(7)).contains(&here),
                    "{all:?}"
                );
            }
        }
    }

    // Goal: only the two threads of a pair wake each other, synchronously, once each way per exchange.
    // Method: the kinds of wakeups, and their number against the exchanges counted, with servers slow enough for clients to be asleep.
    #[test]
    fn wakes_are_those_of_a_ping_pong() {
        for seed in 0..5 {
            let pairs = ["threads=5", "server=3us", "warmup=0ms", "runtime=20ms"];
            let ran = run("uperf", &pairs, seed);
            let mut started = 0;
            for ((from, to, by, sync), n) in ran.graph() {
                match (from.as_str(), to.as_str(), by) {
                    ("client", "server", By::Read) | ("server", "client", By::Read) => {
                        assert!(sync)
                    }
                    (_, "client" | "server" | "uperf-master" | "uperf-slave", By::Barrier) => {
                        started += n
                    }
                    ("timer", "uperf-master" | "uperf-slave", By::Timer) => {}
                    other => panic!("{other:?} does not happen in uperf"),
                }
            }
            assert_eq!(started, 11, "all but the last to come");
            let exchanges = ran.metric("exchanges");
            assert_eq!(ran.metric("bytes"), exchanges * 180);
            let woken = ran.count_wakes("server", "client", By::Read);
            // A reply that is there before the client has gone to sleep wakes nobody.
            assert!(
                exchanges > 1_000 && woken <= exchanges + 10,
                "{woken} {exchanges}"
            );
            assert!(woken > exchanges * 9 / 10, "{woken} {exchanges}");
            let pairs = ran.named("client").into_iter().zip(ran.named("server"));
            for (client, server) in pairs {
                let of = |who| {
                    ran.wakes
                        .iter()
                        .filter(move |w| w.wakee == who && w.by != By::Barrier)
                };
                assert!(of(client).all(|w| w.waker == Some(server)));
                assert!(of(server).all(|w| w.waker == Some(client)));
            }
        }
    }
}
