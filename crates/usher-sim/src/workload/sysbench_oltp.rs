// SPDX-License-Identifier: GPL-2.0-only
//! sysbench's OLTP read/write test against a MySQL-like server with one thread per connection.
//!
//! ```text
//!  mysqld   ── accepts; creates one thread per connection, which greets its client
//!  sysbench ── creates the clients; each connects. Once all have, they start together and run transactions of 20
//!              statements: begin, 10 point selects, 4 ranges, 4 writes, commit: each one write and one read
//!  connection: read the statement; compute, part of it under one of the shared locks; reply
//!              commit: wait until the log is flushed; one thread flushes for all that wait
//! ```

use std::sync::Arc;

use super::figures::{count, footprint, span, time, Args, Figure, Kind, MS, US};
use super::kit::{around, fork, tcp, Draft, PROTOCOL};
use super::registry::{Alias, Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Program, TaskCtx, TaskSpec};
use crate::world::{
    Barrier, Channel, ChannelSpec, Cond, CounterId, LatencyId, List, Mutex, MutexKind, Word, World,
};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "sysbench-oltp-rw",
    about: "database transactions: client threads, a server thread each, locks and a shared log",
    figures: FIGURES,
    aliases: &[Alias {
        name: "sysbench-mysql-rw",
        implies: &[],
    }],
    published: &[Published::higher(
        "throughput-normalized",
        "transactions_per_s",
    )],
    make,
};

const FIGURES: &[Figure] = &[
    PROTOCOL,
    Figure {
        key: "threads",
        kind: Kind::PerCpus {
            cpus: 2,
            high: 100_000,
        },
        meaning: "clients (--threads)",
        source: "one client for two CPUs",
    },
    time(
        "client",
        12 * US,
        "mean CPU time of a client per statement",
        "assumed: 10-20 us, Lua included",
    ),
    time(
        "begin",
        30 * US,
        "mean CPU time of the server for BEGIN",
        "assumed: 30-150 us per statement",
    ),
    time(
        "point",
        45 * US,
        "mean CPU time of the server for a point select",
        "assumed: 30-150 us",
    ),
    time(
        "range",
        140 * US,
        "mean CPU time of the server for a range select",
        "assumed: 30-150 us",
    ),
    time(
        "write",
        110 * US,
        "mean CPU time of the server for a write",
        "assumed: 30-150 us",
    ),
    time(
        "commit",
        40 * US,
        "mean CPU time of the server for COMMIT",
        "assumed: 30-150 us",
    ),
    count(
        "request_bytes",
        90,
        (1, 65_536),
        "size of a statement",
        "assumed: sysbench's SQL text",
    ),
    count(
        "point_bytes",
        200,
        (1, 1 << 20),
        "size of a point select's reply",
        "sysbench: one row of 120 bytes",
    ),
    count(
        "range_bytes",
        12_500,
        (1, 1 << 20),
        "size of a range's reply",
        "sysbench: 100 rows of 120 bytes",
    ),
    count(
        "ok_bytes",
        60,
        (1, 65_536),
        "size of any other reply",
        "assumed",
    ),
    count(
        "locks",
        64,
        (1, 4_096),
        "shared locks that statements pick one of",
        "assumed: partitioned latches",
    ),
    time(
        "hold",
        2 * US,
        "CPU time under such a lock, out of the statement's",
        "assumed",
    ),
    time(
        "log",
        4 * US,
        "CPU time under the log's lock per commit",
        "assumed",
    ),
    time(
        "flush",
        80 * US,
        "time of a log flush on the device",
        "assumed: NVMe write",
    ),
    time(
        "warmup",
        30 * MS,
        "time before the measurement, from when all clients are connected and start",
        "assumed",
    ),
    span(
        "runtime",
        100 * MS,
        "measured time (--time)",
        "10 s in the program; shorter here",
    ),
    footprint("footprint_kib", 512),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let clients = args.get("threads");
    let tcp = tcp(args);
    let plan = Arc::new(Plan {
        clients,
        client: args.get("client"),
        server: ["begin", "point", "range", "write", "commit"].map(|key| args.get(key)),
        request_bytes: args.get("request_bytes"),
        reply_bytes: [
            "ok_bytes",
            "point_bytes",
            "range_bytes",
            "ok_bytes",
            "ok_bytes",
        ]
        .map(|key| args.get(key)),
        hold: args.get("hold"),
        log_cpu: args.get("log"),
        flush: args.get("flush"),
        footprint_kib: args.get_u32("footprint_kib"),
        start: world.new_barrier(clients as u32 + 1),
        listen: world.new_channel(tcp),
        backlog: world.new_list(),
        locks: (0..args.get("locks"))
            .map(|_| world.new_mutex(MutexKind::Barging))
            .collect(),
        log: Log::new(&mut world),
        transactions: world.new_counter("transactions"),
        statements: world.new_counter("statements"),
        latency: world.new_latency("transaction"),
        links: (0..clients).map(|_| Link::new(&mut world, tcp)).collect(),
    });
    let sysbench = Sysbench {
        plan: plan.clone(),
        warmup: args.get("warmup"),
        runtime: args.get("runtime"),
        step: SysbenchStep::Create(0),
    };
    let mysqld = Mysqld {
        plan,
        fork_next: false,
    };
    Ok(Draft {
        world,
        tasks: vec![
            TaskSpec::new("mysqld", mysqld),
            TaskSpec::new("sysbench", sysbench).start(100 * US),
        ],
        stop: Stop::Measured,
        warmup: 0,
        headline: ("transactions_per_s", true),
        tail: Some("transaction_ns_p99"),
        limits: &["rows are never contended; background threads of the server are not modelled"],
    }
    .done())
}

/// Kinds of statements, as indices into the tables of [`Plan`].
const BEGIN: u64 = 0;
const POINT: u64 = 1;
const RANGE: u64 = 2;
const WRITE: u64 = 3;
const COMMIT: u64 = 4;

/// What a server says first: assumed, its version and a challenge.
const GREETING_BYTES: u64 = 80;

/// A transaction.
const STATEMENTS: [u64; 20] = {
    let mut all = [POINT; 20];
    all[0] = BEGIN;
    let mut i = 11;
    while i < 19 {
        all[i] = if i < 15 { RANGE } else { WRITE };
        i += 1;
    }
    all[19] = COMMIT;
    all
};

struct Link {
    requests: Channel,
    replies: Channel,
    statement: Word,
}

impl Link {
    fn new(world: &mut World, tcp: ChannelSpec) -> Link {
        Link {
            requests: world.new_channel(tcp),
            replies: world.new_channel(tcp),
            statement: world.new_word(0),
        }
    }
}

/// The log: how much has been written and flushed, and whether somebody flushes.
struct Log {
    mutex: Mutex,
    flushed_cond: Cond,
    written: Word,
    flushed: Word,
    flushing: Word,
}

impl Log {
    fn new(world: &mut World) -> Log {
        Log {
            mutex: world.new_mutex(MutexKind::Barging),
            flushed_cond: world.new_cond(),
            written: world.new_word(0),
            flushed: world.new_word(0),
            flushing: world.new_word(0),
        }
    }
}

struct Plan {
    clients: u64,
    client: Nanos,
    server: [Nanos; 5],
    request_bytes: u64,
    reply_bytes: [u64; 5],
    hold: Nanos,
    log_cpu: Nanos,
    flush: Nanos,
    footprint_kib: u32,
    /// All clients, and who created them.
    start: Barrier,
    listen: Channel,
    backlog: List,
    locks: Vec<Mutex>,
    log: Log,
    transactions: CounterId,
    statements: CounterId,
    latency: LatencyId,
    links: Vec<Link>,
}

struct Sysbench {
    plan: Arc<Plan>,
    warmup: Nanos,
    runtime: Nanos,
    step: SysbenchStep,
}

enum SysbenchStep {
    /// The client with this number.
    Create(u64),
    Started,
}

impl Program for Sysbench {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        match self.step {
            SysbenchStep::Create(link) if link < self.plan.clients => {
                self.step = SysbenchStep::Create(link + 1);
                let client = Client {
                    plan: self.plan.clone(),
                    link: link as usize,
                    at: 0,
                    began: 0,
                    step: ClientStep::Connect,
                };
                fork(
                    TaskSpec::new("client", client)
                        .thread()
                        .group(1)
                        .memory(64, 0),
                )
            }
            SysbenchStep::Create(_) => {
                self.step = SysbenchStep::Started;
                Action::Barrier(self.plan.start)
            }
            SysbenchStep::Started => {
                ctx.measure(self.warmup, self.runtime);
                Action::Sleep(self.warmup + self.runtime)
            }
        }
    }
}

struct Mysqld {
    plan: Arc<Plan>,
    fork_next: bool,
}

impl Program for Mysqld {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        self.fork_next = !self.fork_next;
        if self.fork_next {
            return Action::Read {
                channel: self.plan.listen,
                bytes: 1,
                exact: true,
            };
        }
        let link = ctx
            .list(self.plan.backlog)
            .pop_front()
            .expect("one entry per byte") as usize;
        let server = Server {
            plan: self.plan.clone(),
            link,
            mine: 0,
            step: ServerStep::Greet,
        };
        let spec = TaskSpec::new("connection", server).thread().group(2);
        fork(spec.memory(self.plan.footprint_kib, 0))
    }
}

struct Client {
    plan: Arc<Plan>,
    link: usize,
    /// Which statement of the transaction.
    at: usize,
    began: Nanos,
    step: ClientStep,
}

enum ClientStep {
    Connect,
    Greeted,
    Start,
    Think,
    Send,
    Receive,
    Received,
}

impl Program for Client {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let link = &self.plan.links[self.link];
        match self.step {
            ClientStep::Connect => {
                self.step = ClientStep::Greeted;
                ctx.list(self.plan.backlog).push_back(self.link as u64);
                Action::Write {
                    channel: self.plan.listen,
                    bytes: 1,
                }
            }
            ClientStep::Greeted => {
                self.step = ClientStep::Start;
                Action::Read {
                    channel: link.replies,
                    bytes: GREETING_BYTES,
                    exact: true,
                }
            }
            ClientStep::Start => {
                self.step = ClientStep::Think;
                Action::Barrier(self.plan.start)
            }
            ClientStep::Think => {
                self.step = ClientStep::Send;
                if self.at == 0 {
                    self.began = ctx.now();
                }
                Action::Compute(around(ctx.rng(), self.plan.client))
            }
            ClientStep::Send => {
                self.step = ClientStep::Receive;
                *ctx.word(link.statement) = STATEMENTS[self.at];
                Action::Write {
                    channel: link.requests,
                    bytes: self.plan.request_bytes,
                }
            }
            ClientStep::Receive => {
                self.step = ClientStep::Received;
                let bytes = self.plan.reply_bytes[STATEMENTS[self.at] as usize];
                Action::Read {
                    channel: link.replies,
                    bytes,
                    exact: true,
                }
            }
            ClientStep::Received => {
                ctx.count(self.plan.statements, 1);
                self.at = (self.at + 1) % STATEMENTS.len();
                if self.at == 0 {
                    ctx.count(self.plan.transactions, 1);
                    ctx.sample(self.plan.latency, ctx.now() - self.began);
                }
                self.step = ClientStep::Think;
                self.next(ctx)
            }
        }
    }
}

struct Server {
    plan: Arc<Plan>,
    link: usize,
    /// What this thread wrote to the log.
    mine: u64,
    step: ServerStep,
}

#[derive(Clone, Copy)]
enum ServerStep {
    Greet,
    Receive,
    Work,
    Lock,
    Hold(Mutex),
    Unlock(Mutex),
    LogLock,
    LogWrite,
    LogWritten,
    LogCheck,
    Flush,
    Relock(u64),
    Flushed(u64),
    Reply,
}

impl Program for Server {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let plan = self.plan.clone();
        let link = &plan.links[self.link];
        let statement = *ctx.word(link.statement) as usize;
        match self.step {
            ServerStep::Greet => {
                self.step = ServerStep::Receive;
                Action::Write {
                    channel: link.replies,
                    bytes: GREETING_BYTES,
                }
            }
            ServerStep::Receive => {
                self.step = ServerStep::Work;
                Action::Read {
                    channel: link.requests,
                    bytes: plan.request_bytes,
                    exact: true,
                }
            }
            ServerStep::Work => {
                self.step = ServerStep::Lock;
                Action::Compute(around(ctx.rng(), plan.server[statement]).saturating_sub(plan.hold))
            }
            ServerStep::Lock => {
                let lock = plan.locks[ctx.rng().below(plan.locks.len() as u64) as usize];
                self.step = ServerStep::Hold(lock);
                Action::Lock(lock)
            }
            ServerStep::Hold(lock) => {
                self.step = ServerStep::Unlock(lock);
                Action::Compute(plan.hold)
            }
            ServerStep::Unlock(lock) => {
                let commits = statement as u64 == COMMIT;
                self.step = if commits {
                    ServerStep::LogLock
                } else {
                    ServerStep::Reply
                };
                Action::Unlock(lock)
            }
            ServerStep::Reply => {
                self.step = ServerStep::Receive;
                Action::Write {
                    channel: link.replies,
                    bytes: plan.reply_bytes[statement],
                }
            }
            _ => self.commit(ctx, &plan),
        }
    }
}

impl Server {
    /// Group commit: whoever finds nobody flushing flushes all that has been written.
    fn commit(&mut self, ctx: &mut TaskCtx<'_>, plan: &Plan) -> Action {
        let log = &plan.log;
        match self.step {
            ServerStep::LogLock => {
                self.step = ServerStep::LogWrite;
                Action::Lock(log.mutex)
            }
            ServerStep::LogWrite => {
                self.step = ServerStep::LogWritten;
                Action::Compute(plan.log_cpu)
            }
            ServerStep::LogWritten => {
                *ctx.word(log.written) += 1;
                self.mine = *ctx.word(log.written);
                self.step = ServerStep::LogCheck;
                self.next(ctx)
            }
            ServerStep::LogCheck => {
                if *ctx.word(log.flushed) >= self.mine {
                    self.step = ServerStep::Reply;
                    return Action::Unlock(log.mutex);
                }
                if *ctx.word(log.flushing) == 1 {
                    return Action::CondWait(log.flushed_cond, log.mutex);
                }
                *ctx.word(log.flushing) = 1;
                self.step = ServerStep::Flush;
                Action::Unlock(log.mutex)
            }
            ServerStep::Flush => {
                self.step = ServerStep::Relock(*ctx.word(log.written));
                Action::Io(plan.flush)
            }
            ServerStep::Relock(upto) => {
                self.step = ServerStep::Flushed(upto);
                Action::Lock(log.mutex)
            }
            ServerStep::Flushed(upto) => {
                *ctx.word(log.flushed) = upto;
                *ctx.word(log.flushing) = 0;
                self.step = ServerStep::LogCheck;
                Action::CondBroadcast(log.flushed_cond)
            }
            _ => unreachable!("not a step of a commit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{run, By};
    use super::*;

    // Goal: a transaction is begin, 10 points, 4 ranges, 4 writes, commit.
    // Method: count.
    #[test]
    fn a_transaction_has_twenty_statements() {
        let count = |kind| STATEMENTS.iter().filter(|s| **s == kind).count();
        assert_eq!(
            [BEGIN, POINT, RANGE, WRITE, COMMIT].map(count),
            [1, 10, 4, 4, 1]
        );
        assert_eq!((STATEMENTS[0], STATEMENTS[19]), (BEGIN, COMMIT));
    }

    // Goal: statements are ping-pongs within a pair; connections contend for locks and the log, never
    // with clients; commits share flushes; nothing deadlocks.
    // Method: the kinds of wakeups under heavy contention; flushes against commits.
    #[test]
    fn wakes_are_those_of_a_database() {
        for seed in 0..5 {
            let pairs = [
                "threads=16",
                "locks=2",
                "hold=20us",
                "warmup=0ms",
                "runtime=60ms",
                "flush=500us",
            ];
            let ran = run("sysbench-oltp-rw", &pairs, seed);
            for ((from, to, by, sync), _) in ran.graph() {
                match (from.as_str(), to.as_str(), by) {
                    ("client", "connection" | "mysqld", By::Read) => assert!(sync),
                    ("connection", "client", By::Read) => assert!(sync),
                    ("connection", "connection", By::Mutex | By::Cond) => assert!(!sync),
                    ("client", "client" | "sysbench", By::Barrier)
                    | ("sysbench", "client", By::Barrier) => {}
                    ("timer", "connection" | "sysbench", By::Timer) => {}
                    other => panic!("{other:?} does not happen in sysbench"),
                }
            }
            let transactions = ran.metric("transactions");
            let statements = ran.metric("statements");
            assert!(transactions > 50 && statements.abs_diff(20 * transactions) <= 20 * 16);
            let flushes: u64 = ran.tasks.iter().map(|t| t.ios / (500 * US)).sum();
            assert!(
                flushes > 0 && flushes < transactions,
                "{flushes} flushes, {transactions} commits"
            );
            assert!(ran.count_wakes("connection", "connection", By::Cond) > 0);
        }
    }
}
