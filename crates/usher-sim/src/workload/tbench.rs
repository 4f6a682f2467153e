// SPDX-License-Identifier: GPL-2.0-only
//! tbench (dbench 4): a file server's network traffic, one outstanding request per client.
//!
//! ```text
//!  tbench_srv ── accepts; forks one server process per connection
//!  tbench     ── forks the clients; polls until all wait; releases all at once; ends after the run time
//!  client: connects; 8-byte exchange; waits on a semaphore for the start;
//!          then: write a request, read the reply's 4-byte length, read the rest; repeat
//!  server: read the request's length, read the rest, write the reply; repeat
//! ```
//!
//! Over loopback the receiving side's protocol work runs on the sender's CPU and wakes the reader
//! synchronously. The throughput is that of the payload (bytes read or written in files), from the end
//! of the warm-up after the start, as the program reports it.

use std::sync::Arc;

use super::figures::{count, footprint, span, time, Args, Figure, MS};
use super::kit::{around, fork, tcp, Draft, PROTOCOL};
use super::registry::{Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Program, TaskCtx, TaskSpec};
use crate::rng::Rng;
use crate::world::{
    Channel, ChannelSpec, CounterId, LatencyId, List, Semaphore, ValueId, Word, World,
};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "tbench",
    about: "clients and server processes in pairs, one request at a time over loopback TCP",
    figures: FIGURES,
    aliases: &[],
    published: &[Published::higher(
        "throughput-MB/s",
        "throughput_bytes_per_s",
    )],
    make,
};

const FIGURES: &[Figure] = &[
    PROTOCOL,
    count("clients", 16, (1, 100_000), "client processes", "assumed"),
    count(
        "read_permille",
        270,
        (0, 1000),
        "share of reads",
        "dbench 4's client.txt",
    ),
    count(
        "read_bytes",
        11_900,
        (0, 1 << 20),
        "mean payload of a read",
        "dbench 4's client.txt",
    ),
    count(
        "write_permille",
        90,
        (0, 1000),
        "share of writes",
        "dbench 4's client.txt",
    ),
    count(
        "write_bytes",
        25_700,
        (0, 1 << 20),
        "mean payload of a write",
        "dbench 4's client.txt",
    ),
    count(
        "max_bytes",
        65_536,
        (1, 1 << 20),
        "largest payload",
        "dbench 4: a 70,000-byte buffer",
    ),
    count(
        "small_low",
        40,
        (8, 65_536),
        "least size of any other message",
        "dbench 4, sockio.c: 39 bytes and up",
    ),
    count(
        "small_high",
        250,
        (8, 65_536),
        "greatest size of any other message",
        "dbench 4, sockio.c",
    ),
    time(
        "client",
        1_000,
        "mean CPU time of a client per operation, besides the kernel's",
        "assumed; to be calibrated: 573 MB/s, 9.5 us per operation, with one client on Zen 3",
    ),
    time(
        "server",
        700,
        "mean CPU time of a server per operation, besides the kernel's",
        "assumed",
    ),
    time(
        "poll",
        100 * MS,
        "how often tbench looks whether all clients wait",
        "dbench 4",
    ),
    time(
        "warmup",
        300 * MS,
        "from the start to the measurement",
        "tbench's own is 20 s; here two balancing intervals of a node of 128 CPUs",
    ),
    time(
        "total_warmup",
        0,
        "of all clients together, of which each gets an equal part, at most `warmup`; 0: as `warmup` says",
        "runs of many clients that cost as much as those of few",
    ),
    span(
        "runtime",
        60 * MS,
        "measured time (-t)",
        "600 s in the program; shorter here",
    ),
    footprint("footprint_kib", 128),
];

/// Bytes of the length in front of every message.
const HEADER: u64 = 4;

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let mix = Mix::read(args)?;
    let tcp = tcp(args);
    let warmup = match args.get("total_warmup") {
        0 => args.get("warmup"),
        total => args.get("warmup").min(total / args.get("clients")),
    };
    let plan = Arc::new(Plan {
        mix,
        client: args.get("client"),
        server: args.get("server"),
        poll: args.get("poll"),
        warmup,
        runtime: args.get("runtime"),
        footprint_kib: args.get_u32("footprint_kib"),
        listen: world.new_channel(tcp),
        backlog: world.new_list(),
        barrier: world.new_semaphore(0),
        waiting: world.new_word(0),
        from: world.new_word(u64::MAX),
        payload: world.new_word(0),
        operations: world.new_counter("operations"),
        latency: world.new_latency("operation"),
        throughput: world.new_value("throughput_bytes_per_s"),
        links: (0..args.get("clients"))
            .map(|_| Link::new(&mut world, tcp))
            .collect(),
    });
    let tbench = Tbench {
        plan: plan.clone(),
        made: 0,
        step: ParentStep::Settle,
    };
    let acceptor = Acceptor {
        plan,
        step: AcceptStep::Accept,
    };
    Ok(Draft {
        world,
        // tbench comes first because its exit ends the run.
        tasks: vec![
            TaskSpec::new("tbench", tbench),
            TaskSpec::new("tbench_srv", acceptor),
        ],
        stop: Stop::FirstExit,
        warmup: 0,
        headline: ("throughput_bytes_per_s", true),
        tail: Some("operation_ns_p99"),
        limits: &[
            "operations are drawn from the trace's mix instead of replaying the trace",
            "protocol work beyond a fixed cost, and acknowledgements, are not modelled",
        ],
    }
    .done())
}

/// How operations are drawn.
struct Mix {
    read_permille: u64,
    write_permille: u64,
    read_mean: u64,
    write_mean: u64,
    max: u64,
    small: (u64, u64),
}

/// One operation: sizes on the wire, and the payload that counts.
#[derive(Clone, Copy)]
struct Op {
    request: u64,
    reply: u64,
    payload: u64,
}

impl Mix {
    fn read(args: &Args<'_>) -> Result<Mix, SimError> {
        let mix = Mix {
            read_permille: args.get("read_permille"),
            write_permille: args.get("write_permille"),
            read_mean: args.get("read_bytes"),
            write_mean: args.get("write_bytes"),
            max: args.get("max_bytes"),
            small: args.range("small_low", "small_high")?,
        };
        if mix.read_permille + mix.write_permille > 1000 {
            let what = "and `write_permille` exceed 1000 together; lower one of them";
            return Err(super::figures::bad("read_permille", what));
        }
        Ok(mix)
    }

    fn draw(&self, rng: &mut Rng) -> Op {
        let kind = rng.below(1000);
        let (request, reply) = (
            rng.range(self.small.0, self.small.1),
            rng.range(self.small.0, self.small.1),
        );
        if kind < self.read_permille {
            let payload = rng.exponential(self.read_mean).min(self.max);
            return Op {
                request,
                reply: reply + payload,
                payload,
            };
        }
        if kind < self.read_permille + self.write_permille {
            let payload = rng.exponential(self.write_mean).min(self.max);
            return Op {
                request: request + payload,
                reply,
                payload,
            };
        }
        Op {
            request,
            reply,
            payload: 0,
        }
    }
}

/// One connection: the two directions, and the sizes that the length fields carry.
struct Link {
    requests: Channel,
    replies: Channel,
    request: Word,
    reply: Word,
}

impl Link {
    fn new(world: &mut World, tcp: ChannelSpec) -> Link {
        Link {
            requests: world.new_channel(tcp),
            replies: world.new_channel(tcp),
            request: world.new_word(0),
            reply: world.new_word(0),
        }
    }
}

struct Plan {
    mix: Mix,
    client: Nanos,
    server: Nanos,
    poll: Nanos,
    warmup: Nanos,
    runtime: Nanos,
    footprint_kib: u32,
    listen: Channel,
    backlog: List,
    barrier: Semaphore,
    /// Clients that are about to wait for the start.
    waiting: Word,
    /// When the measurement begins.
    from: Word,
    payload: Word,
    operations: CounterId,
    latency: LatencyId,
    throughput: ValueId,
    links: Vec<Link>,
}

struct Tbench {
    plan: Arc<Plan>,
    made: u64,
    step: ParentStep,
}

enum ParentStep {
    /// Lets the server come up first.
    Settle,
    Fork,
    Look,
    Released,
    Measure(Nanos),
}

impl Program for Tbench {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let clients = self.plan.links.len() as u64;
        loop {
            match self.step {
                ParentStep::Settle => {
                    self.step = ParentStep::Fork;
                    return Action::Sleep(MS);
                }
                ParentStep::Fork if self.made < clients => {
                    self.made += 1;
                    let client = Client {
                        plan: self.plan.clone(),
                        link: self.made as usize - 1,
                        op: Op {
                            request: 8,
                            reply: 8,
                            payload: 0,
                        },
                        began: 0,
                        step: ClientStep::Connect,
                    };
                    let spec = TaskSpec::new("client", client).group(1);
                    return fork(spec.memory(self.plan.footprint_kib, 0));
                }
                ParentStep::Fork => self.step = ParentStep::Look,
                ParentStep::Look => {
                    if *ctx.word(self.plan.waiting) < clients {
                        return Action::Sleep(self.plan.poll.max(1));
                    }
                    self.step = ParentStep::Released;
                    let all = u32::try_from(clients).expect("bounded by the figure");
                    return Action::SemUp(self.plan.barrier, all);
                }
                ParentStep::Released => {
                    let from = ctx.now() + self.plan.warmup;
                    *ctx.word(self.plan.from) = from;
                    self.step = ParentStep::Measure(from);
                    return Action::SleepUntil(from + self.plan.runtime);
                }
                ParentStep::Measure(from) => {
                    let elapsed = u128::from(ctx.now() - from).max(1);
                    let bytes = u128::from(*ctx.word(self.plan.payload));
                    let per_s = u64::try_from(bytes * 1_000_000_000 / elapsed).unwrap_or(u64::MAX);
                    ctx.set_value(self.plan.throughput, per_s);
                    return Action::Exit;
                }
            }
        }
    }
}

struct Acceptor {
    plan: Arc<Plan>,
    step: AcceptStep,
}

enum AcceptStep {
    Accept,
    Fork,
}

impl Program for Acceptor {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        if let AcceptStep::Fork = self.step {
            self.step = AcceptStep::Accept;
            let link = ctx
                .list(self.plan.backlog)
                .pop_front()
                .expect("one entry per byte");
            let plan = self.plan.clone();
            let server = Server {
                plan,
                link: link as usize,
                step: ServerStep::Length,
            };
            return fork(
                TaskSpec::new("server", server)
                    .group(2)
                    .memory(self.plan.footprint_kib, 0),
            );
        }
        self.step = AcceptStep::Fork;
        Action::Read {
            channel: self.plan.listen,
            bytes: 1,
            exact: true,
        }
    }
}

struct Client {
    plan: Arc<Plan>,
    link: usize,
    op: Op,
    began: Nanos,
    step: ClientStep,
}

#[derive(Clone, Copy)]
enum ClientStep {
    Connect,
    /// The exchange that sets the connection up, then the wait for the start.
    Greet(u32),
    Think,
    Send,
    Length,
    Rest,
    Count,
}

impl Client {
    /// The requests and replies of one exchange; `None` when it is done.
    fn send(&self, ctx: &mut TaskCtx<'_>) -> Action {
        let link = &self.plan.links[self.link];
        *ctx.word(link.request) = self.op.request;
        *ctx.word(link.reply) = self.op.reply;
        Action::Write {
            channel: link.requests,
            bytes: self.op.request,
        }
    }

    fn receive(&self, bytes: u64) -> Action {
        Action::Read {
            channel: self.plan.links[self.link].replies,
            bytes,
            exact: true,
        }
    }

    fn count(&self, ctx: &mut TaskCtx<'_>) {
        if ctx.now() < *ctx.word(self.plan.from) {
            return;
        }
        *ctx.word(self.plan.payload) += self.op.payload;
        ctx.count(self.plan.operations, 1);
        ctx.sample(self.plan.latency, ctx.now() - self.began);
    }
}

impl Program for Client {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let rest = self.op.reply - HEADER;
        match self.step {
            ClientStep::Connect => {
                self.step = ClientStep::Greet(0);
                ctx.list(self.plan.backlog).push_back(self.link as u64);
                Action::Write {
                    channel: self.plan.listen,
                    bytes: 1,
                }
            }
            ClientStep::Greet(n) => {
                self.step = ClientStep::Greet(n + 1);
                match n {
                    0 => self.send(ctx),
                    1 => self.receive(HEADER),
                    2 => self.receive(rest),
                    _ => {
                        self.step = ClientStep::Think;
                        *ctx.word(self.plan.waiting) += 1;
                        Action::SemDown(self.plan.barrier)
                    }
                }
            }
            ClientStep::Think => {
                self.step = ClientStep::Send;
                self.began = ctx.now();
                self.op = self.plan.mix.draw(ctx.rng());
                Action::Compute(around(ctx.rng(), self.plan.client))
            }
            ClientStep::Send => {
                self.step = ClientStep::Length;
                self.send(ctx)
            }
            ClientStep::Length => {
                self.step = ClientStep::Rest;
                self.receive(HEADER)
            }
            ClientStep::Rest => {
                self.step = ClientStep::Count;
                self.receive(rest)
            }
            ClientStep::Count => {
                self.count(ctx);
                self.step = ClientStep::Think;
                self.next(ctx)
            }
        }
    }
}

struct Server {
    plan: Arc<Plan>,
    link: usize,
    step: ServerStep,
}

enum ServerStep {
    Length,
    Rest,
    Work,
    Reply,
}

impl Program for Server {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let link = &self.plan.links[self.link];
        match self.step {
            ServerStep::Length => {
                self.step = ServerStep::Rest;
                Action::Read {
                    channel: link.requests,
                    bytes: HEADER,
                    exact: true,
                }
            }
            ServerStep::Rest => {
                self.step = ServerStep::Work;
                let bytes = *ctx.word(link.request) - HEADER;
                Action::Read {
                    channel: link.requests,
                    bytes,
                    exact: true,
                }
            }
            ServerStep::Work => {
                self.step = ServerStep::Reply;
                Action::Compute(around(ctx.rng(), self.plan.server))
            }
            ServerStep::Reply => {
                self.step = ServerStep::Length;
                Action::Write {
                    channel: link.replies,
                    bytes: *ctx.word(link.reply),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{run, By};
    use super::*;

    // Goal: the graph is tbench's: pairs wake each other synchronously over loopback, the parent releases
    // all clients at once, every client has a server of its own.
    // Method: the kinds of wakeups; the tasks; each pair's wakeups.
    #[test]
    fn wakes_are_those_of_tbench() {
        for seed in 0..5 {
            let ran = run("tbench", &["clients=6", "runtime=10ms", "warmup=1ms"], seed);
            for ((from, to, by, sync), n) in ran.graph() {
                match (from.as_str(), to.as_str(), by) {
                    ("client", "server", By::Read) | ("server", "client", By::Read) => {
                        assert!(sync)
                    }
                    ("client", "tbench_srv", By::Read) => assert!(sync && n <= 6),
                    ("tbench", "client", By::Sem) => assert_eq!(n, 6),
                    ("timer", "tbench", By::Timer) => {}
                    other => panic!("{other:?} does not happen in tbench"),
                }
            }
            let (clients, servers) = (ran.named("client"), ran.named("server"));
            assert_eq!((clients.len(), servers.len()), (6, 6));
            let acceptor = ran.named("tbench_srv")[0];
            assert!(servers
                .iter()
                .all(|s| ran.tasks[s.index()].parent == Some(acceptor)));
            // The herd: all released by one semaphore operation, after a poll found everybody waiting.
            let herd: Vec<Nanos> = ran
                .wakes
                .iter()
                .filter(|w| w.by == By::Sem)
                .map(|w| w.at)
                .collect();
            assert!(
                herd.windows(2).all(|w| w[0] == w[1]) && herd[0] > 100 * MS,
                "{herd:?}"
            );
        }
    }

    // Goal: what is reported is the payload of the mix.
    // Method: payload per operation against the figures' mean, and throughput against the two.
    #[test]
    fn throughput_is_the_payload() {
        let ran = run("tbench", &["clients=20", "runtime=200ms", "warmup=0ms"], 7);
        let operations = ran.metric("operations");
        let payload = ran.metric("throughput_bytes_per_s") / 5;
        let mean = payload / operations;
        assert!(
            operations > 50_000 && (5_000..6_000).contains(&mean),
            "{mean} of {operations}"
        );
    }

    // Goal: few clients warm up longer. Method: when a run ends, against one that says its warmup itself: 12 ms of four clients are 3 of
    // each, and no more than asked for.
    #[test]
    fn warmup_is_shared_among_clients() {
        let end = |warmup: &str, total: &str| {
            let set = ["clients=4", "runtime=1ms", warmup, total];
            run("tbench", &set, 1).end
        };
        assert_eq!(
            end("warmup=5ms", "total_warmup=12ms"),
            end("warmup=3ms", "total_warmup=0ms")
        );
        assert_eq!(
            end("warmup=2ms", "total_warmup=12ms"),
            end("warmup=2ms", "total_warmup=0ms")
        );
        assert!(end("warmup=5ms", "total_warmup=0ms") > end("warmup=5ms", "total_warmup=12ms"));
    }

    // Goal: a mix that does not add up is refused.
    // Method: shares above 1000; a range that runs backwards.
    #[test]
    fn bad_mixes_are_refused() {
        let build = |pair: &str| {
            let params = crate::params::Params::parse([pair]).unwrap();
            super::super::build("tbench", &super::super::testkit::machine(), params)
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        assert!(build("read_permille=950").contains("write_permille"));
        assert!(build("small_low=300").contains("small_high"));
    }
}
