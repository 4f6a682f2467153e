// SPDX-License-Identifier: GPL-2.0-only
//! hackbench (rt-tests; `perf bench sched messaging` has the same graph).
//!
//! ```text
//!  main ── forks ──> per group: fds receivers, then fds senders
//!   │  each: one byte "ready" to main, then poll for the start
//!   │  one byte wakes all pollers
//!   └─ reaps all
//!  sender:   loops x for each of the group's receivers: write datasize bytes (blocks on a full channel)
//!  receiver: reads loops x fds messages
//! ```
//!
//! Time runs from the start byte until the last child is reaped, as in the program.
//!
//! To spread what was born in one place takes the balancer a second, in which so many messages go to and fro that hardly a run lasts as
//! long. So a run may begin in slow motion (`settle`): with rounds as always, but each message takes fifty times as much CPU time. The
//! balancer has as much to see, and there is little to simulate.

use std::sync::{Arc, OnceLock};

use super::figures::{choice, count, footprint, time, Args, Figure, US};
use super::kit::{fork, forked, Countdown, Draft, Join};
use super::registry::{Alias, Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Program, TaskCtx, TaskSpec};
use crate::world::{Channel, ChannelSpec, CounterId, ValueId, Word, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "hackbench",
    about: "groups of senders, each writing to every receiver of its group",
    figures: FIGURES,
    aliases: &[
        Alias {
            name: "hackbench-process",
            implies: &[("mode", "process"), ("ipc", "socket")],
        },
        Alias {
            name: "hackbench-thread",
            implies: &[("mode", "thread"), ("ipc", "socket")],
        },
        Alias {
            name: "hackbench-process-pipe",
            implies: &[("mode", "process"), ("ipc", "pipe")],
        },
        Alias {
            name: "hackbench-thread-pipe",
            implies: &[("mode", "thread"), ("ipc", "pipe")],
        },
    ],
    published: &[
        Published::lower("time-s", "elapsed_ns"),
        Published::lower("normalized", "elapsed_ns"),
    ],
    make,
};

const FIGURES: &[Figure] = &[
    count("groups", 10, (1, 10_000), "groups (-g)", "hackbench's default"),
    count("fds", 20, (1, 1_000), "receivers per group, and senders (-f)", "hackbench's default"),
    count("loops", 100, (1, 10_000_000), "rounds per sender (-l)", "hackbench's default"),
    count(
        "total_messages",
        0,
        (0, 1_000_000_000_000),
        "messages of all groups together, from which `loops` follows (at least 1); 0: as `loops` says",
        "runs of many groups that cost as much as those of few",
    ),
    count(
        "reckoned_loops",
        0,
        (0, 10_000_000),
        "loops that `reckoned_ns` is the time of: at most so many are run, and the rest goes at the pace of these between half and four fifths of \
         the messages; 0: it is not reckoned",
        "runs that take too long to simulate",
    ),
    count("datasize", 100, (1, 65_536), "bytes per message (-s)", "hackbench's default"),
    choice("mode", &["process", "thread"], "what main creates (-P, -T)", "hackbench's default"),
    choice("ipc", &["socket", "pipe"], "what carries the messages (-p: pipe)", "hackbench's default"),
    time(
        "send",
        10,
        "CPU time of a write besides system call, protocol and copy",
        "reckoned: a few sums and jumps of the loop around write(2); what the C library does around a call is in `rw_ns`, as measured",
    ),
    time("receive", 10, "CPU time of a read besides system call, protocol and copy", "reckoned: as `send`"),
    time(
        "settle",
        0,
        "time after the start in slow motion: with rounds that come before `loops`, whose messages take `settle_work` on either side. Nothing of it is \
         measured",
        "balancing that takes too long to simulate",
    ),
    time(
        "settle_work",
        100 * US,
        "CPU time of a write, and of a read, in slow motion",
        "assumed: fifty times a message's own, and short beside a slice",
    ),
    footprint("footprint_kib", 64),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let spec = match args.word("ipc") {
        "pipe" => ChannelSpec::PIPE,
        _ => ChannelSpec::UNIX_SOCKET,
    };
    let (groups, fds) = (args.get("groups"), args.get("fds"));
    let loops = match args.get("total_messages") {
        0 => args.get("loops"),
        total => (total / (groups * fds * fds)).max(1),
    };
    let (loops, reckoned) = match args.get("reckoned_loops") {
        0 => (loops, None),
        whole => (
            loops.min(whole),
            Some((whole, world.new_value("reckoned_ns"))),
        ),
    };
    let groups = (0..groups).map(|_| Group::new(&mut world, spec, fds));
    let groups: Vec<Group> = groups.collect();
    let messages = groups.len() as u64 * fds * fds * loops;
    let plan = Arc::new(Plan {
        fds,
        loops,
        bytes: args.get("datasize"),
        send: args.get("send"),
        receive: args.get("receive"),
        settle: args.get("settle"),
        settle_work: args.get("settle_work"),
        settled: OnceLock::new(),
        footprint_kib: args.get_u32("footprint_kib"),
        thread: args.word("mode") == "thread",
        ready: world.new_channel(spec),
        start: world.new_channel(spec),
        messages: world.new_counter("messages"),
        pace: Pace::new(messages),
        elapsed: world.new_value("elapsed_ns"),
        reckoned,
    });
    let main = Main {
        plan,
        groups,
        made: 0,
        join: Join::default(),
        ready: 0,
        began: 0,
        step: Step::Create,
    };
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("main", main)],
        stop: Stop::FirstExit,
        warmup: 0,
        headline: ("elapsed_ns", false),
        tail: None,
        limits: &["the messages' content is not touched beyond its copy"],
    }
    .done())
}

/// What all tasks know.
struct Plan {
    fds: u64,
    loops: u64,
    bytes: u64,
    send: Nanos,
    receive: Nanos,
    settle: Nanos,
    settle_work: Nanos,
    /// When slow motion is over, of runs that begin with it.
    settled: OnceLock<Nanos>,
    footprint_kib: u32,
    thread: bool,
    ready: Channel,
    start: Channel,
    messages: CounterId,
    pace: Pace,
    elapsed: ValueId,
    /// The time of so many loops.
    reckoned: Option<(u64, ValueId)>,
}

impl Plan {
    /// Whether it goes in slow motion, as it does until metrics start again.
    fn settling(&self, now: Nanos) -> bool {
        self.settled.get().is_some_and(|&until| now <= until)
    }

    /// What a message takes that takes `own` by itself.
    fn work(&self, now: Nanos, own: Nanos) -> Nanos {
        if self.settling(now) {
            self.settle_work
        } else {
            own
        }
    }
}

/// Senders and receivers: each of the former writes to all of the latter.
#[derive(Clone)]
struct Group {
    channels: Arc<[Channel]>,
    /// Rounds in slow motion that its senders have begun, all together.
    settling: Word,
}

impl Group {
    fn new(world: &mut World, spec: ChannelSpec, fds: u64) -> Self {
        Self {
            channels: (0..fds).map(|_| world.new_channel(spec)).collect(),
            settling: world.new_word(0),
        }
    }
}

/// How fast messages go once half of them have been read. The last fifth is left out: then groups end one after the other and leave the machine to
/// the rest, which is a good part of a short run's time, and hardly any of a long one's.
struct Pace {
    /// Messages read, and when they had been, at both ends.
    from: (u64, OnceLock<Nanos>),
    to: (u64, OnceLock<Nanos>),
}

impl Pace {
    fn new(messages: u64) -> Self {
        let to = (messages * 4).div_ceil(5);
        Self {
            from: (messages / 2, OnceLock::new()),
            to: (to, OnceLock::new()),
        }
    }

    /// The nth message has been read.
    fn read(&self, nth: u64, now: Nanos) {
        for (at, when) in [&self.from, &self.to] {
            if nth == *at {
                when.set(now).expect("the counter comes there once");
            }
        }
    }

    /// Messages, and how long they took. All have been read; the first came after `began`.
    fn measured(&self, began: Nanos) -> (u64, Nanos) {
        let when = |end: &OnceLock<Nanos>| end.get().copied().unwrap_or(began);
        (
            self.to.0 - self.from.0,
            when(&self.to.1) - when(&self.from.1),
        )
    }
}

/// How long `whole` loops take, of which these are the first; the messages of the others go at this pace.
fn reckon(whole: u64, loops: u64, elapsed: Nanos, per_loop: u64, pace: (u64, Nanos)) -> Nanos {
    let missing = u128::from(whole - loops) * u128::from(per_loop);
    elapsed + (missing * u128::from(pace.1) / u128::from(pace.0)) as Nanos
}

struct Main {
    plan: Arc<Plan>,
    groups: Vec<Group>,
    made: u64,
    join: Join,
    ready: u64,
    began: Nanos,
    step: Step,
}

enum Step {
    Create,
    Created,
    Collect,
    Start,
    Reap,
}

impl Main {
    fn total(&self) -> u64 {
        2 * self.plan.fds * self.groups.len() as u64
    }

    /// The n-th child: of each group, first the receivers, then the senders.
    fn child(&self, n: u64) -> TaskSpec {
        let plan = &self.plan;
        let group = &self.groups[(n / (2 * plan.fds)) as usize];
        let place = n % (2 * plan.fds);
        let spec = if place < plan.fds {
            let receiver = Receiver {
                plan: plan.clone(),
                channel: group.channels[place as usize],
                settling: group.settling,
                read: 0,
                step: 0,
            };
            TaskSpec::new("receiver", receiver).group(1)
        } else {
            let sender = Sender {
                plan: plan.clone(),
                group: group.clone(),
                rounds: Countdown(plan.loops),
                at: plan.fds,
                step: 0,
            };
            TaskSpec::new("sender", sender).group(2)
        };
        let spec = spec.memory(plan.footprint_kib, 0);
        if plan.thread {
            spec.thread()
        } else {
            spec
        }
    }
}

impl Program for Main {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            match self.step {
                Step::Create if self.made < self.total() => {
                    self.step = Step::Created;
                    self.made += 1;
                    return fork(self.child(self.made - 1));
                }
                Step::Create => self.step = Step::Collect,
                Step::Created => {
                    self.join.add(forked(ctx));
                    self.step = Step::Create;
                }
                Step::Collect if self.ready < self.total() => {
                    self.ready += 1;
                    return Action::Read {
                        channel: self.plan.ready,
                        bytes: 1,
                        exact: true,
                    };
                }
                Step::Collect => {
                    self.step = Step::Start;
                    self.began = ctx.now() + self.plan.settle;
                    if self.plan.settle > 0 {
                        let settled = self.plan.settled.set(self.began);
                        settled.expect("it starts once");
                        ctx.warm_up(self.plan.settle);
                    }
                    return Action::Write {
                        channel: self.plan.start,
                        bytes: 1,
                    };
                }
                Step::Start => self.step = Step::Reap,
                Step::Reap => {
                    // wait() takes whoever is finished; pthread_join() goes in order.
                    let wait = self.join.next().map(|in_order| {
                        if self.plan.thread {
                            in_order
                        } else {
                            Action::WaitAnyChild
                        }
                    });
                    if wait.is_none() {
                        let (plan, now) = (&self.plan, ctx.now());
                        let elapsed = now - self.began;
                        ctx.set_value(plan.elapsed, elapsed);
                        if let Some((whole, value)) = plan.reckoned {
                            let per_loop = self.groups.len() as u64 * plan.fds * plan.fds;
                            let pace = plan.pace.measured(self.began);
                            let time = reckon(whole, plan.loops, elapsed, per_loop, pace);
                            ctx.set_value(value, time);
                        }
                    }
                    return wait.unwrap_or(Action::Exit);
                }
            }
        }
    }
}

/// Reports ready, then waits for the start byte, which nobody reads.
fn get_ready(plan: &Plan, step: &mut u32) -> Option<Action> {
    *step += 1;
    match *step {
        1 => Some(Action::Write {
            channel: plan.ready,
            bytes: 1,
        }),
        2 => Some(Action::Poll(Arc::from([plan.start]))),
        _ => None,
    }
}

struct Sender {
    plan: Arc<Plan>,
    group: Group,
    rounds: Countdown,
    /// Whose turn it is; `fds`: a new round.
    at: u64,
    step: u32,
}

impl Program for Sender {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        if self.step < 3 {
            if let Some(action) = get_ready(&self.plan, &mut self.step) {
                return action;
            }
        }
        if self.step == 4 {
            self.step = 3;
            return Action::Compute(self.plan.work(ctx.now(), self.plan.send));
        }
        if self.at == self.plan.fds {
            if self.plan.settling(ctx.now()) {
                *ctx.word(self.group.settling) += 1;
            } else if !self.rounds.take() {
                return Action::Exit;
            }
            self.at = 0;
        }
        self.at += 1;
        self.step = 4;
        Action::Write {
            channel: self.group.channels[self.at as usize - 1],
            bytes: self.plan.bytes,
        }
    }
}

struct Receiver {
    plan: Arc<Plan>,
    channel: Channel,
    /// See [`Group`].
    settling: Word,
    read: u64,
    step: u32,
}

impl Program for Receiver {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        if self.step < 3 {
            if let Some(action) = get_ready(&self.plan, &mut self.step) {
                return action;
            }
        }
        if self.step == 4 {
            self.step = 3;
            if !self.plan.settling(ctx.now()) {
                let nth = ctx.count(self.plan.messages, 1);
                self.plan.pace.read(nth, ctx.now());
            }
            return Action::Compute(self.plan.work(ctx.now(), self.plan.receive));
        }
        // Whoever is in slow motion has all of its loops before it, so nobody stops too early.
        let all = self.plan.fds * self.plan.loops + *ctx.word(self.settling);
        if self.read == all {
            return Action::Exit;
        }
        self.read += 1;
        self.step = 4;
        Action::Read {
            channel: self.channel,
            bytes: self.plan.bytes,
            exact: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{run, By};

    // Goal: every message sent is received, whatever carries it and whoever carries it out.
    // Method: all four kinds over several interleavings; messages = groups x fds^2 x loops, and nobody is
    // left over.
    #[test]
    fn messages_are_conserved() {
        for name in [
            "hackbench-process",
            "hackbench-thread",
            "hackbench-process-pipe",
            "hackbench-thread-pipe",
        ] {
            for seed in 0..5 {
                let ran = run(name, &["groups=3", "fds=4", "loops=7"], seed);
                assert_eq!(ran.metric("messages"), 3 * 4 * 4 * 7, "{name}");
                assert_eq!(ran.tasks.len(), 1 + 3 * 2 * 4);
                assert!(
                    ran.tasks.iter().all(|t| t.exited),
                    "{name}: all are reaped before main exits"
                );
                assert_eq!(ran.tasks[1].thread, name.contains("thread"));
                assert!(ran.metric("elapsed_ns") > 0 && ran.metric("elapsed_ns") < ran.end);
            }
        }
    }

    // Goal: rounds follow from a number of messages. Method: 3 groups of 4 by 4: 350 messages are 7 rounds and some, 10 not one.
    #[test]
    fn rounds_follow_from_messages() {
        for (total, rounds) in [("350", 7), ("10", 1)] {
            let set = format!("total_messages={total}");
            let ran = run("hackbench", &["groups=3", "fds=4", "loops=2", &set], 1);
            assert_eq!(ran.metric("messages"), 3 * 4 * 4 * rounds, "{total}");
        }
    }

    // Goal: a long run's time follows from a short one's. Method: ten loops of 900 ns, of which 12 messages of 4 per loop took 300 ns; a run
    // of as many loops as asked for, or of more, which takes what it takes; and a quarter of a run, whose pace varies here by some percent.
    #[test]
    fn long_runs_are_reckoned() {
        assert_eq!(super::reckon(40, 10, 900, 4, (12, 300)), 900 + 30 * 100);
        let time = |loops: u64, reckoned: u64, metric| {
            let set = [
                format!("loops={loops}"),
                format!("reckoned_loops={reckoned}"),
            ];
            let set = set.iter().map(String::as_str).chain(["groups=2", "fds=4"]);
            run("hackbench", &set.collect::<Vec<_>>(), 1).metric(metric)
        };
        let (long, short) = (time(2000, 0, "elapsed_ns"), time(500, 0, "elapsed_ns"));
        assert_eq!(time(2000, 2000, "reckoned_ns"), long);
        assert_eq!(time(2000, 500, "reckoned_ns"), short);
        let ratio = time(500, 2000, "reckoned_ns") as f64 / long as f64;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    // Goal: slow motion comes before what is measured and adds rounds to it, and everybody still ends.
    // Method: rounds of 4 senders, each of which takes 4 messages of 30 us for 2 ms, on either side; then they are as quick as ever. Some of the
    // messages in slow motion are read after it.
    #[test]
    fn slow_motion_is_not_measured() {
        for ipc in ["ipc=socket", "ipc=pipe"] {
            let time = |settle: &str| {
                let set = [
                    ipc,
                    settle,
                    "settle_work=30us",
                    "groups=3",
                    "fds=4",
                    "loops=50",
                ];
                let ran = run("hackbench", &set, 2);
                assert!(ran.tasks.iter().all(|t| t.exited), "{ipc}");
                (ran.metric("elapsed_ns"), ran.metric("messages"), ran.end)
            };
            let (quick, regular, end) = time("settle=0s");
            let (settled, all, late) = time("settle=2ms");
            assert_eq!(regular, 3 * 4 * 4 * 50);
            let slow = all - regular;
            assert!((1..3 * 4 * 4 * 20).contains(&slow), "{ipc}: {slow}");
            assert!(
                (1_900_000..2_600_000).contains(&(late - end)),
                "{ipc}: {}",
                late - end
            );
            assert!(settled < 2 * quick, "{ipc}: {settled} {quick}");
        }
    }

    // Goal: neither the beginning nor the end sets the pace. Method: 100 messages, one every 3 ns, of the second half one every 5 ns, and of the
    // last fifth one every 50; and one single message.
    #[test]
    fn the_pace_is_that_in_between() {
        let pace = super::Pace::new(100);
        let mut now = 0;
        for nth in 1..=100 {
            now += match nth {
                0..=50 => 3,
                51..=80 => 5,
                _ => 50,
            };
            pace.read(nth, now);
        }
        assert_eq!(pace.measured(0), (30, 150));
        let pace = super::Pace::new(1);
        pace.read(1, 70);
        assert_eq!(pace.measured(20), (1, 50));
    }

    // Goal: the graph is hackbench's: one start byte wakes all, only senders wake receivers, and only
    // readers that make room wake senders, and children that end wake main; all of these wakeups are synchronous.
    // Method: the kinds of wakeups of a run with channels too small for a round.
    #[test]
    fn wakes_are_those_of_hackbench() {
        let ran = run("hackbench", &["groups=2", "fds=3", "loops=400"], 1);
        for ((from, to, by, sync), n) in ran.graph() {
            match (from.as_str(), to.as_str(), by) {
                ("main", "sender" | "receiver", By::Poll) => assert_eq!((n, sync), (6, true)),
                ("sender", "receiver", By::Read) | ("receiver", "sender", By::Write) => {
                    assert!(sync && n > 0);
                }
                ("sender" | "receiver", "main", By::Read) => assert!(sync),
                ("sender" | "receiver", "main", By::Child) => assert!(sync),
                other => panic!("{other:?} does not happen in hackbench"),
            }
        }
        // 400 rounds fill a socket of 212,992 bytes at 868 bytes per message, if receivers are late.
        let cramped = run(
            "hackbench",
            &["groups=1", "fds=1", "loops=400", "receive=50us"],
            1,
        );
        assert!(cramped.count_wakes("receiver", "sender", By::Write) > 0);
    }

    // Goal: receivers of a group are created before its senders, group by group.
    // Method: the order of creation.
    #[test]
    fn receivers_come_first() {
        let ran = run("hackbench", &["groups=2", "fds=2", "loops=1"], 1);
        let names: Vec<&str> = ran.tasks.iter().skip(1).map(|t| t.name.as_str()).collect();
        let group = ["receiver", "receiver", "sender", "sender"];
        assert_eq!(names, [group, group].concat());
    }
}
