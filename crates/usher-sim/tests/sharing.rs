// SPDX-License-Identifier: GPL-2.0-only
//! What threads of a process share, and processes do not.

mod common;

use common::{Step::Act, *};
use usher_sim::program::{Action, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{Channel, ChannelSpec, World};
use usher_sim::Report;

const ROUNDS: u64 = 100;

/// Two children on CPUs of their own ask and answer over a pair of pipes, and sleep until the other one is heard of.
fn asks_and_answers(threads: bool) -> Report {
    let mut world = World::new();
    let pipes = [(); 2].map(|()| world.new_channel(ChannelSpec::PIPE));
    let child = |name: &str, cpu, says: Channel, hears: Channel, begins: bool| {
        let say = || {
            let write = Action::Write {
                channel: says,
                bytes: 1,
            };
            vec![Action::Compute(10 * US), write]
        };
        let hear = || {
            vec![Action::Read {
                channel: hears,
                bytes: 1,
                exact: true,
            }]
        };
        let round = || match begins {
            true => [say(), hear()],
            false => [hear(), say()],
        };
        let steps = (0..ROUNDS).flat_map(|_| round()).flatten().map(Act);
        let spec = TaskSpec::new(name, script(steps.collect())).affinity(only(cpu));
        Act(Action::Fork(Box::new(if threads {
            spec.thread()
        } else {
            spec
        })))
    };
    let main = script(vec![
        child("asks", 1, pipes[0], pipes[1], true),
        child("answers", 2, pipes[1], pipes[0], false),
        Act(Action::WaitAnyChild),
        Act(Action::WaitAnyChild),
    ]);
    let main = TaskSpec::new("main", main).affinity(only(0));
    let costs = usual_costs();
    let machine = machine("core:3 pu:1", costs);
    run(machine, workload(world, vec![main], Stop::AllExit), 1).expect("runs")
}

// Goal: threads count their file at both ends of a call, also of one that sleeps in between, and each CPU that goes idle and wakes counts
// their address space; processes do neither. Method: accesses to the objects' lines, and what they take. A round has four calls and two
// sleeps: twelve accesses more; the beginning and the end add a few.
#[test]
fn threads_count_files_and_address_spaces() {
    let [threads, processes] = [true, false].map(asks_and_answers);
    let accesses = |report: &Report| report.lines["workload objects"].accesses;
    let more = accesses(&threads) - accesses(&processes);
    let expected = ROUNDS * (4 * 2 + 2 * 2);
    assert!((expected..expected + 20).contains(&more), "{more}");
    let sleeps = |report: &Report| report.metrics["starts_from_idle"];
    assert_eq!(sleeps(&threads), sleeps(&processes));
    assert!(sleeps(&threads) >= 2.0 * ROUNDS as f64);
}
