// SPDX-License-Identifier: GPL-2.0-only
//! Whole decisions by reason, each with the release of the CPU that it claimed, on 256 CPUs: 4 nodes of 4 LLCs
//! of 8 cores with 2 threads.

mod common;

use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, Criterion};
use usher_core::bench::Loop;
use usher_core::Wake;
use usher_topo::Cid;

fn by_reason(c: &mut Criterion) {
    let mut group = c.benchmark_group("place");
    for (reason, idle, step, width) in common::REASONS {
        let mut core = common::core_with_idle(idle, step);
        let places = common::places(0, width);
        let [mut one] = Loop::split(&mut core, [Cid(0)]);
        let expected = reason.index() as u64 * 1000;
        let sum = one.place(&places, Wake::Wake, 1000);
        assert_eq!(
            sum, expected,
            "every decision falls for the reason `{reason}`"
        );
        group.bench_function(reason.as_str(), |b| {
            b.iter_custom(|rounds| {
                let start = Instant::now();
                std::hint::black_box(one.place(&places, Wake::Wake, rounds));
                start.elapsed()
            });
        });
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

criterion_group! { name = benches; config = short(); targets = by_reason }
criterion_main!(benches);
