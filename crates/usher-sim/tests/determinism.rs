// SPDX-License-Identifier: GPL-2.0-only
//! Same inputs, same bytes.

mod common;

use common::*;
use usher_sim::costs::Costs;
use usher_sim::params::Params;
use usher_sim::policy::build;
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::rng::mix;
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, World};
use usher_sim::{Options, Report, Simulation};

/// A bit of everything: pipes, sleeps, forks, footprints, random work.
fn mixed(policy: &str, seed: u64, checks: bool) -> Report {
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
    let (policy, _) = build(policy, Params::new()).expect("a built-in policy");
    Simulation::new(machine, policy, workload, seed, options)
        .expect("legal")
        .run()
        .expect("runs")
}

fn bytes(report: &Report) -> String {
    // The Debug form holds every number of the report, histograms included.
    format!("{report:?}")
}

/// One of each kind of policy; variants of one kind share their code.
const KINDS: [&str; 8] = [
    "usher",
    "fifo",
    "eevdf",
    "cfs-6.0+hints",
    "cfs-5.9+llc-idle-mask",
    "cfs-3.9+mixed-capacity",
    "scx-simple+node-idle-mask",
    "rt+node-cpupri",
];

/// The policy for a seed: each has every eighth.
fn policy_of(seed: u64) -> &'static str {
    KINDS[seed as usize % KINDS.len()]
}

// Goal: a run repeats byte for byte under every policy; different seeds differ; checkers change nothing.
// Method: 1,000 seeds, the policies in turn, each once here and once on one of four threads that work at the
// same time.
#[test]
fn a_thousand_seeds_repeat_on_any_thread() {
    const SEEDS: u64 = 1000;
    const THREADS: u64 = 4;
    let once = |seed, checks| mixed(policy_of(seed), seed, checks);
    let here: Vec<Report> = (0..SEEDS).map(|seed| once(seed, true)).collect();
    std::thread::scope(|scope| {
        let work = |k: u64| {
            let seeds = (k..SEEDS).step_by(THREADS as usize);
            move || seeds.map(|seed| once(seed, false)).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|k| scope.spawn(work(k))).collect();
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
// Method: the hashes of 25 seeds, folded, under each policy, against the value that any build must give. A
// change of a model changes its line: then run this with BLESS=1, once per build, and see that the second
// changes nothing.
#[test]
fn builds_agree() {
    let line = |policy: &str| {
        let folded = (0..25).fold(0u64, |acc, seed| {
            let hash = mixed(policy, seed, true).log_hash;
            mix(acc ^ u64::from_str_radix(&hash, 16).expect("hexadecimal"))
        });
        format!("{policy} {folded:016x}\n")
    };
    let now: String = KINDS.into_iter().map(line).collect();
    if std::env::var_os("BLESS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden_hash.txt");
        std::fs::write(file, &now).expect("the source tree can be written");
        return;
    }
    assert_eq!(now, include_str!("golden_hash.txt"));
}
