// SPDX-License-Identifier: GPL-2.0-only
//! uperf with its netperf profile: pairs of threads that exchange 90 bytes over TCP without delay.
//!
//! ```text
//!  uperf-slave  ── creates one server thread per pair
//!  uperf-master ── creates one client thread per pair; once all of both exist they start together, for a fixed time
//!  client: write 90 bytes, read 90 bytes; repeat        server: read 90 bytes, write 90 bytes; repeat
//! ```

use std::sync::Arc;

use super::figures::{count, footprint, span, time, Args, Figure, MS, US};
use super::kit::{around, fork, tcp, Draft, PROTOCOL};
use super::registry::{Alias, Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
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
        TaskSpec::new("client", client)
            .group(1)
            .memory(for_clients.footprint_kib, 0)
    });
    let slave = creator(pairs, start, false, times, move |n| {
        let server = Server {
            plan: for_servers.clone(),
            link: n,
            step: 0,
        };
        TaskSpec::new("server", server)
            .group(2)
            .memory(for_servers.footprint_kib, 0)
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
            1 => Action::Barrier(self.plan.start),
            2 => {
                self.began = ctx.now();
                Action::Write {
                    channel: to_server,
                    bytes: self.plan.bytes,
                }
            }
            3 => Action::Read {
                channel: to_client,
                bytes: self.plan.bytes,
                exact: true,
            },
            _ => {
                self.step = 1;
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
        if self.step == 0 {
            self.step = 3;
            return Action::Barrier(self.plan.start);
        }
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
