// SPDX-License-Identifier: GPL-2.0-only
//! Same inputs, same bytes.

mod common;

use common::*;
use usher_sim::costs::Costs;
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::rng::mix;
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, World};
use usher_sim::{Options, Report, Simulation};

/// A bit of everything: pipes, sleeps, forks, footprints, random work.
fn mixed(seed: u64, checks: bool) -> Report {
    let mut world = World::new();
    let ops = world.new_counter("ops");
    let pipe = world.new_channel(ChannelSpec::PIPE);
    let talker = move |talks: bool| {
        let mut state = 0;
        move |ctx: &mut TaskCtx<'_>| {
            state = (state + 1) % 4;
            match state {
                0 => Action::Sleep(ctx.rng().range(10 * US, 300 * US)),
                1 => Action::Compute(ctx.rng().exponential(50 * US)),
                2 if talks => Action::Write {
                    channel: pipe,
                    bytes: 64,
                },
                2 => Action::Read {
                    channel: pipe,
                    bytes: 64,
                    exact: false,
                },
                _ => {
                    ctx.count(ops, 1);
                    let child = |ctx: &mut TaskCtx<'_>| match ctx.now() % 2 {
                        0 => Action::Exit,
                        _ => Action::Compute(1 + ctx.rng().below(20 * US)),
                    };
                    Action::Fork(Box::new(TaskSpec::new("child", child)))
                }
            }
        }
    };
    let tasks = (0..6).map(|i| TaskSpec::new("talker", talker(i % 2 == 0)).memory(64 * i, 100));
    let costs = Costs::builtin("zen3").expect("a built-in table");
    let machine = machine("pack:2 numa:1 l3:2 core:2 pu:2", costs);
    let workload = workload(world, tasks.collect(), Stop::At(3 * MS));
    let options = Options {
        checks,
        ..Options::default()
    };
    Simulation::new(machine, fifo(), workload, seed, options)
        .expect("legal")
        .run()
        .expect("runs")
}

fn bytes(report: &Report) -> String {
    // The Debug form holds every number of the report, histograms included.
    format!("{report:?}")
}

// Goal: a run repeats byte for byte; different seeds differ; checkers change nothing.
// Method: 1,000 seeds, each once here and once on one of four threads that work at the same time.
#[test]
fn a_thousand_seeds_repeat_on_any_thread() {
    const SEEDS: u64 = 1000;
    const THREADS: u64 = 4;
    let here: Vec<Report> = (0..SEEDS).map(|seed| mixed(seed, true)).collect();
    std::thread::scope(|scope| {
        let work = |k: u64| {
            move || {
                (k..SEEDS)
                    .step_by(THREADS as usize)
                    .map(|s| mixed(s, false))
            }
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|k| scope.spawn(move || work(k)().collect::<Vec<_>>()))
            .collect();
        for (k, thread) in threads.into_iter().enumerate() {
            for (i, there) in thread.join().expect("no panic").iter().enumerate() {
                let seed = k + i * THREADS as usize;
                assert_eq!(bytes(&here[seed]), bytes(there), "seed {seed}");
            }
        }
    });
    let hashes: std::collections::BTreeSet<&str> =
        here.iter().map(|r| r.log_hash.as_str()).collect();
    assert_eq!(
        hashes.len() as u64,
        SEEDS,
        "each seed has a history of its own"
    );
}

// Goal: debug and release builds, and other machines, do the same.
// Method: the hashes of 50 seeds, folded, against the value that any build must give. A change of the model
// changes it: then put in the value that the failure shows, after making sure that both builds agree.
#[test]
fn builds_agree() {
    let folded = (0..50).fold(0u64, |acc, seed| {
        let hash = u64::from_str_radix(&mixed(seed, true).log_hash, 16).expect("hexadecimal");
        mix(acc ^ hash)
    });
    assert_eq!(
        format!("{folded:016x}"),
        include_str!("golden_hash.txt").trim()
    );
}
