// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that only another node wakes, which go there under usher.

mod common;

use common::*;
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{Channel, ChannelSpec, World};
use usher_sim::Report;

const BYTES: u64 = 64;
const ROUNDS: u64 = 100;

/// Writes to each of its partners, then reads an answer from each.
fn asks(to: Vec<Channel>, from: Vec<Channel>) -> TaskSpec {
    let mut step = 0;
    let program = move |_: &mut TaskCtx<'_>| {
        let (round, at) = (step / 4, step as usize % 4);
        step += 1;
        match at {
            _ if round == ROUNDS => Action::Exit,
            0 | 1 => Action::Write {
                channel: to[at],
                bytes: BYTES,
            },
            _ => Action::Read {
                channel: from[at - 2],
                bytes: BYTES,
                exact: true,
            },
        }
    };
    TaskSpec::new("asks", program)
}

/// Reads, works and answers; sleeps every so many rounds, until a timer of its own CPU wakes it.
fn answers(from: Channel, to: Channel, sleeps_every: u64) -> TaskSpec {
    let mut step = 0;
    let program = move |_: &mut TaskCtx<'_>| {
        let (round, at) = (step / 4, step % 4);
        step += 1;
        match at {
            _ if round == ROUNDS => Action::Exit,
            0 => Action::Read {
                channel: from,
                bytes: BYTES,
                exact: true,
            },
            1 => Action::Compute(20 * US),
            2 if (round + 1) % sleeps_every == 0 => Action::Sleep(50 * US),
            2 => Action::Compute(US),
            _ => Action::Write {
                channel: to,
                bytes: BYTES,
            },
        }
    };
    TaskSpec::new("answers", program)
}

/// Two that answer, born in the first of two nodes, and one in the second that asks them and may run there only.
fn run_across(policy: &str, sleeps_every: u64) -> Report {
    let mut world = World::new();
    let [there, back] = [0; 2].map(|_| {
        let channels = [0; 2].map(|_| world.new_channel(ChannelSpec::PIPE));
        channels.to_vec()
    });
    let mut tasks = vec![asks(there.clone(), back.clone()).affinity(only(4))];
    for (from, to) in there.into_iter().zip(back) {
        tasks.push(answers(from, to, sleeps_every));
    }
    let machine = machine("numa:2 l3:1 core:4 pu:1", free_costs());
    run_under(policy, machine, workload(world, tasks, Stop::AllExit))
}

// Goal: who is woken from another node alone goes there, once, and stays; who a timer wakes now and then stays where it is. Method: the
// moves between nodes of two that answer one in another node, and what the core counts. Catches: a host that does not ask the core,
// that forgets what it kept, or counts other wakeups; and the switch that turns it off.
#[test]
fn who_is_woken_from_another_node_goes_there() {
    for (policy, sleeps_every, moves) in [
        ("usher", u64::MAX, 2),
        ("usher", 17, 2),
        ("usher", 15, 0),
        ("usher:follow=false", u64::MAX, 0),
    ] {
        let report = run_across(policy, sleeps_every);
        let context = format!("{policy}, asleep every {sleeps_every} rounds");
        let found = [report.migrations["remote"], report.counters["followed"]];
        assert_eq!(found, [moves; 2], "{context}");
    }
}
