// SPDX-License-Identifier: GPL-2.0-only
//! Changes of level in the CPU priority map, and searches for a CPU to preempt.

mod common;

use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion};
use usher_core::bench::Loop;
use usher_core::Granularity;
use usher_topo::Cid;

use common::{Victim, MACHINES};

/// Times so many rounds of a loop.
fn timed(rounds: u64, run: impl FnOnce(u64) -> u64) -> Duration {
    let start = Instant::now();
    std::hint::black_box(run(rounds));
    start.elapsed()
}

fn levels(c: &mut Criterion) {
    let [low, high] = common::levels();
    for (nr_cids, machine) in MACHINES {
        let topo = common::topology(machine);
        let places = common::places(0, topo.shards()[0].cids.len() as u32);
        let mut group = c.benchmark_group(format!("cpupri/{nr_cids}"));
        for &granularity in Granularity::ALL {
            let mut core = common::core_with_levels(&topo, granularity, Victim::None);
            let [mut one] = Loop::split(&mut core, [Cid(0)]);
            group.bench_function(BenchmarkId::new("set", granularity), |b| {
                b.iter_custom(|rounds| timed(rounds, |n| one.set_levels(&places, [low, high], n)));
            });
            for (name, victim, lowest) in [
                ("near", Victim::Near, false),
                ("lowest", Victim::Near, true),
                ("far", Victim::Far, false),
                ("none", Victim::None, false),
            ] {
                let mut core = common::core_with_levels(&topo, granularity, victim);
                let [mut one] = Loop::split(&mut core, [Cid(0)]);
                group.bench_function(BenchmarkId::new(name, granularity), |b| {
                    b.iter_custom(|rounds| {
                        timed(rounds, |n| one.find_levels(&places, high, lowest, n))
                    });
                });
            }
        }
        group.finish();
    }
}

fn short() -> Criterion {
    Criterion::default()
        .without_plots()
        .nresamples(1000)
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200))
}

criterion_group! { name = benches; config = short(); targets = levels }
criterion_main!(benches);
