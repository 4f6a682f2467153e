// SPDX-License-Identifier: GPL-2.0-only
//! One claim and one release of an idle CPU, beside what they could cost at best and what simpler maps cost.

mod common;

use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use usher_core::bench::{Lines, Loop, Places};
use usher_core::Granularity;
use usher_topo::Cid;

use common::{Stage, LOADS, MACHINES};

/// Times so many rounds of a loop.
fn timed(rounds: u64, run: impl FnOnce(u64) -> u64) -> Duration {
    let start = Instant::now();
    std::hint::black_box(run(rounds));
    start.elapsed()
}

fn limits(c: &mut Criterion) {
    let mut group = c.benchmark_group("limit");
    let (word, places) = (Lines::new(1), common::places(0, 64));
    group.bench_function("two-atomics", |b| {
        b.iter_custom(|rounds| timed(rounds, |n| word.two_atomics(&places, n)));
    });
    group.bench_function("two-atomics-in-turn", |b| {
        b.iter_custom(|rounds| timed(rounds, |n| word.two_in_turn(&places, n)));
    });
    group.finish();
}

fn alone(c: &mut Criterion) {
    for (nr_cids, machine) in MACHINES {
        let mut group = c.benchmark_group(format!("claim-release/{nr_cids}"));
        for busy in LOADS {
            let stage = &mut Stage::new(machine, busy);
            let (places, nr, span) = (&stage.places, stage.nr_cids, stage.node_words);
            let id = |who| BenchmarkId::new(who, format!("{busy}%"));
            let [mut one] = Loop::split(&mut stage.core, [Cid(0)]);
            group.bench_function(id("usher"), |b| {
                b.iter_custom(|rounds| timed(rounds, |n| one.idle_map(places, n)));
            });
            group.bench_function(id("usher-and-look"), |b| {
                b.iter_custom(|rounds| timed(rounds, |n| one.idle_and_look(places, n)));
            });
            group.bench_function(id("flags"), |b| {
                b.iter_custom(|rounds| timed(rounds, |n| stage.flags.flags(nr, places, n)));
            });
            let words = nr.div_ceil(64);
            group.bench_function(id("global-mask"), |b| {
                b.iter_custom(|rounds| timed(rounds, |n| stage.global.masks(words, places, n)));
            });
            group.bench_function(id("node-masks"), |b| {
                b.iter_custom(|rounds| timed(rounds, |n| stage.nodes.masks(span, places, n)));
            });
        }
        group.finish();
    }
}

fn contended(c: &mut Criterion) {
    let mut group = c.benchmark_group("two-threads");
    group.throughput(Throughput::Elements(2));
    let places = [common::places(0, 16), common::places(64, 16)];
    let word = Lines::new(1);
    let atomics = |places: &Places, n| word.two_atomics(places, n);
    group.bench_function("two-atomics/one-line", |b| {
        b.iter_custom(|rounds| {
            let mut one = |n| atomics(&places[0], n);
            let mut other = |n| atomics(&places[1], n);
            common::both(rounds, [&mut one, &mut other])
        });
    });
    for granularity in [Granularity::Global, Granularity::Node, Granularity::Shard] {
        for (name, other) in [("same-llc", 0), ("other-node", 1)] {
            let mut core = common::core_for_two(granularity);
            let [mut a, mut b] = Loop::split(&mut core, [Cid(1), Cid(65)]);
            group.bench_function(BenchmarkId::new(name, granularity), |bencher| {
                bencher.iter_custom(|rounds| {
                    let mut one = |n| a.idle_map(&places[0], n);
                    let mut two = |n| b.idle_map(&places[other], n);
                    common::both(rounds, [&mut one, &mut two])
                });
            });
        }
    }
    group.finish();
}

fn short() -> Criterion {
    Criterion::default()
        .without_plots()
        .nresamples(1000)
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
}

criterion_group! { name = benches; config = short(); targets = limits, alone, contended }
criterion_main!(benches);
