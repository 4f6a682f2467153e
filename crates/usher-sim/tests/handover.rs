// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that wake each other in turn, where nobody idles: under usher one leaves the other its CPU, and with it the
//! caches, and gives way before it sleeps; neither who waits in the queue nor who wakes by a timer pays for that.

mod common;

use common::*;
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::world::{Channel, ChannelSpec, CounterId, World};
use usher_sim::{Nanos, Report};

/// One of a pair: reads from its partner, works, and writes to it. The first writes first.
fn partner(first: bool, from: Channel, to: Channel, rounds: CounterId) -> TaskSpec {
    const BYTES: u64 = 64;
    let mut step = if first { 1 } else { 0 };
    let program = move |ctx: &mut TaskCtx<'_>| {
        step += 1;
        match step % 3 {
            1 => Action::Read {
                channel: from,
                bytes: BYTES,
                exact: true,
            },
            2 => Action::Compute(20 * US),
            _ => {
                ctx.count(rounds, 1);
                Action::Write {
                    channel: to,
                    bytes: BYTES,
                }
            }
        }
    };
    TaskSpec::new("partner", program)
}

/// Newborns wait behind who is there; by then they have their standing.
const SETTLED: Nanos = 50 * MS;

/// Works for 0.1 ms every 5 ms, and notes how late it wakes.
fn timer(world: &mut World) -> TaskSpec {
    let late = world.new_latency("late");
    let (mut next, mut works) = (5 * MS, false);
    let program = move |ctx: &mut TaskCtx<'_>| {
        works = !works;
        if works {
            return Action::SleepUntil(next);
        }
        if next > SETTLED {
            ctx.sample(late, ctx.now() - next);
        }
        next += 5 * MS;
        Action::Compute(100 * US)
    };
    TaskSpec::new("timer", program)
}

/// So many pairs, and a timer, on four CPUs with one queue, for a second. Whoever writes may say that it is about to sleep.
fn pairs(policy: &str, nr: usize, sync: bool) -> Report {
    let spec = ChannelSpec {
        sync,
        ..ChannelSpec::PIPE
    };
    let mut world = World::new();
    let mut tasks = vec![timer(&mut world)];
    for pair in 0..nr {
        let rounds = world.new_counter(&format!("rounds_{pair}"));
        let [there, back] = [0; 2].map(|_| world.new_channel(spec));
        tasks.push(partner(true, back, there, rounds));
        tasks.push(partner(false, there, back, rounds));
    }
    on_four_cpus(policy, world, tasks, SEC)
}

/// The rounds of each pair.
fn rounds(report: &Report, nr: usize) -> Vec<f64> {
    let of_pair = |pair| report.metrics[&format!("rounds_{pair}_per_s")];
    (0..nr).map(of_pair).collect()
}

// Goal: two that always wake each other do not go to sleep in between, and more gets done.
// Method: wakeups per round and rounds, with and without preemption, of as many pairs as CPUs and of more.
#[test]
fn pairs_give_way() {
    for nr in [4, 6, 8, 16] {
        let [sleeps, gives] =
            ["usher:preempt=false", "usher"].map(|policy| pairs(policy, nr, true));
        let all = |report| rounds(report, nr).iter().sum::<f64>();
        let [before, after] = [&sleeps, &gives].map(|r| r.metrics["wakeups"] / all(r));
        assert!(
            after < 0.7 * before,
            "{nr} pairs: {after} wakeups a round, {before} if nobody gives way"
        );
        let gain = all(&gives) / all(&sleeps);
        assert!(gain > 1.02, "{nr} pairs: {gain} times the rounds");
        assert!(gives.reasons["partner"] > 10_000, "{nr} pairs");
        assert_eq!(sleeps.reasons["partner"], 0);
    }
}

/// Writes piece after piece.
fn source(to: Channel) -> TaskSpec {
    let mut works = false;
    let program = move |_: &mut TaskCtx<'_>| {
        works = !works;
        match works {
            true => Action::Compute(2 * US),
            false => Action::Write {
                channel: to,
                bytes: 4096,
            },
        }
    };
    TaskSpec::new("source", program)
}

/// Reads them.
fn drain(from: Channel, pieces: CounterId) -> TaskSpec {
    let mut works = true;
    let program = move |ctx: &mut TaskCtx<'_>| {
        works = !works;
        if works {
            ctx.count(pieces, 1);
            return Action::Compute(2 * US);
        }
        Action::Read {
            channel: from,
            bytes: 4096,
            exact: true,
        }
    };
    TaskSpec::new("drain", program)
}

// Goal: who has more to say is not interrupted by each answer.
// Method: six streams through pipes on four CPUs: as many pieces with preemption as without, and hardly anybody gives way.
#[test]
fn streams_flow() {
    let [all, some] = ["usher:preempt=false", "usher"].map(|policy| {
        let mut world = World::new();
        let mut tasks = Vec::new();
        let pieces = world.new_counter("pieces");
        for _ in 0..6 {
            let pipe = world.new_channel(ChannelSpec::PIPE);
            tasks.push(source(pipe));
            tasks.push(drain(pipe, pieces));
        }
        on_four_cpus(policy, world, tasks, SEC)
    });
    let [before, after] = [&all, &some].map(|r| r.metrics["pieces_per_s"]);
    assert!(after > 0.98 * before, "{after} pieces, {before}");
    let gave = some.reasons["partner"] as f64;
    assert!(gave < 0.01 * after, "{gave} of {after} pieces");
}

// Goal: of two that wake each other in turn one runs on a CPU at a time, however many pairs there are, and they get
// equal shares.
// Method: migrations, where the writer says that it is about to sleep and where it does not; rounds by pair.
#[test]
fn pairs_keep_a_cpu() {
    for nr in [4, 6, 8, 16] {
        let [apart, together] = [false, true].map(|sync| pairs("usher", nr, sync));
        let [moved, kept] = [&apart, &together].map(|report| report.metrics["migrations"]);
        assert!(
            kept < 1500.0 && moved > 8.0 * kept,
            "{nr} pairs: {kept} migrations, {moved} if nobody is handed over"
        );
        let rounds = rounds(&together, nr);
        let mean = rounds.iter().sum::<f64>() / nr as f64;
        for of in &rounds {
            assert_near(&format!("rounds of {nr} pairs"), *of, mean, 5.0);
        }
    }
}

// Goal: who wakes by a timer is not passed over for who is handed a CPU.
// Method: how late a light timer wakes beside as many as four pairs per CPU; one round takes 25 us.
#[test]
fn a_timer_comes_between() {
    for nr in [4, 6, 8, 16] {
        let late = pairs("usher", nr, true).metrics["late_ns_max"];
        assert!(late < 200e3, "{nr} pairs: up to {late} ns");
    }
}

/// A workload on a machine under usher, with what is set.
fn run(machine: &str, workload: &str, set: &str) -> Report {
    let set: Vec<&str> = set.split_whitespace().collect();
    run_case(&shipped(machine, &[]), workload, &set, "usher", 1)
}

// Goal: pairs that give way take turns with other pairs, and not much longer ones than tasks that sleep do.
// Method: database transactions of 20 questions with two and four clients for each CPU: one of a hundred takes 1.9 times as
// long as half of them do; with the lead of tasks that never sleep, and twice that for the partner, 3.0 and 6.1 times.
#[test]
fn a_pair_leaves_turns_to_others() {
    for clients in [32, 64] {
        let set = format!("threads={clients} runtime=300ms");
        let report = run("2n2l2c2t", "sysbench-oltp-rw", &set);
        let [half, most] = ["p50", "p99"].map(|p| report.metrics[&format!("transaction_ns_{p}")]);
        assert!(most < 2.5 * half, "{clients} clients: {half}, {most} ns");
    }
}

// Goal: a crowd of pairs finds out that it is one, though waking takes longer than a turn as long as it does not know.
// Method: tbench with four clients for each CPU, of which 112 share an LLC, after 20 ms: where the wakeup counts as part of the
// turn, 2 % of the wakeups are among partners that keep their CPU, and one takes 30 us.
#[test]
fn a_crowd_settles() {
    let set = "clients=896 warmup=20ms runtime=5ms";
    let report = run("dgx-b200-224", "tbench", set);
    let gave = report.reasons["partner"] as f64 / report.reasons.values().sum::<u64>() as f64;
    assert!(gave > 0.9, "{gave} of the wakeups");
}
