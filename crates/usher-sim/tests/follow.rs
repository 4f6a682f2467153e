// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that go to those who wake them under usher: home, and to another node that alone does.

mod common;

use common::{Step::Act, *};
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
    // Where nothing takes time a task is woken before its CPU has switched from it, and goes back there unasked.
    let machine = machine("numa:2 l3:1 core:4 pu:1", usual_costs());
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

const CYCLES: usize = 20;
const TIMES: usize = 4;

/// One that answers two others, each bound to an LLC of its own: the first asks four times, then the second once, and so on.
fn run_between(policy: &str) -> Report {
    let mut world = World::new();
    let [ask, answer, other_answer, go_on, other_goes_on] =
        [0; 5].map(|_| world.new_channel(ChannelSpec::PIPE));
    let write = |channel| {
        Act(Action::Write {
            channel,
            bytes: BYTES,
        })
    };
    let read = |channel| {
        Act(Action::Read {
            channel,
            bytes: BYTES,
            exact: true,
        })
    };
    // The others sleep when the first one begins.
    let (mut asks, mut asks_once, mut answers) = (vec![Act(Action::Sleep(MS))], vec![], vec![]);
    for _ in 0..CYCLES {
        for _ in 0..TIMES {
            asks.extend([write(ask), read(answer)]);
            answers.extend([read(ask), Act(Action::Compute(20 * US)), write(answer)]);
        }
        asks.extend([write(other_goes_on), read(go_on)]);
        asks_once.extend([
            read(other_goes_on),
            write(ask),
            read(other_answer),
            write(go_on),
        ]);
        answers.extend([
            read(ask),
            Act(Action::Compute(20 * US)),
            write(other_answer),
        ]);
    }
    let tasks = vec![
        TaskSpec::new("answers", script(answers)),
        TaskSpec::new("asks", script(asks)).affinity(only(2)),
        TaskSpec::new("asks once", script(asks_once)).affinity(only(4)),
    ];
    let machine = machine("numa:1 l3:3 core:2 pu:1", free_costs());
    run_under(policy, machine, workload(world, tasks, Stop::AllExit))
}

// Goal: who is woken from one LLC four times in a row is at home there, and one wakeup from another does not take it away. Method: moves
// between LLCs of one that answers two others, and what the core counts. Catches: a host that does not pass on what the core says of a
// wakeup, or forgets the home.
#[test]
fn who_is_at_home_stays() {
    let moves_and_stays = |policy| {
        let report = run_between(policy);
        (report.migrations["node"], report.counters["stayed"])
    };
    assert_eq!(moves_and_stays("usher"), (1, CYCLES as u64));
    let (moves, stays) = moves_and_stays("usher:follow=false");
    assert!(moves >= 2 * CYCLES as u64 - 2, "{moves}");
    assert_eq!(stays, 0);
}
