// SPDX-License-Identifier: GPL-2.0-only
//! What a workload measures about itself.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::ids::Nanos;
use crate::world::{CounterId, LatencyId, ValueId};

/// How long a workload took by its own count, if it counts that.
const ELAPSED: &str = "elapsed_ns";

/// A latency histogram, in nanoseconds, three significant digits.
pub type Latency = Histogram<u64>;

/// An empty histogram.
pub(crate) fn new_latency() -> Latency {
    // Three digits is a legal precision, the only thing `new` checks.
    Histogram::new(3).expect("three significant digits is a legal precision")
}

/// Records a latency. (`saturating_record` would clamp it to the range seen so far: it never resizes.)
pub(crate) fn record(latency: &mut Latency, ns: Nanos) {
    latency
        .record(ns)
        .expect("an auto-resizing histogram takes any value");
}

/// The metrics that programs write through [`crate::program::TaskCtx`].
#[derive(Debug, Default)]
pub struct WorkloadMetrics {
    latencies: Vec<(String, Latency)>,
    counters: Vec<(String, u64)>,
    values: Vec<(String, Option<u64>)>,
    /// Where operations arrive by themselves: how many per second, in the mean, and the counter of those that are done.
    pub(crate) offered: Option<(f64, CounterId)>,
}

impl WorkloadMetrics {
    pub(crate) fn new_latency(&mut self, name: &str) -> LatencyId {
        self.latencies.push((name.into(), new_latency()));
        LatencyId(self.latencies.len() as u32 - 1)
    }

    pub(crate) fn new_counter(&mut self, name: &str) -> CounterId {
        self.counters.push((name.into(), 0));
        CounterId(self.counters.len() as u32 - 1)
    }

    pub(crate) fn new_value(&mut self, name: &str) -> ValueId {
        self.values.push((name.into(), None));
        ValueId(self.values.len() as u32 - 1)
    }

    pub(crate) fn sample(&mut self, id: LatencyId, ns: Nanos) {
        record(&mut self.latencies[id.index()].1, ns);
    }

    pub(crate) fn count(&mut self, id: CounterId, n: u64) {
        self.counters[id.index()].1 += n;
    }

    pub(crate) fn set_value(&mut self, id: ValueId, to: u64) {
        self.values[id.index()].1 = Some(to);
    }

    /// Starts the measurement again.
    pub(crate) fn reset(&mut self) {
        self.latencies.iter_mut().for_each(|(_, h)| h.reset());
        self.counters.iter_mut().for_each(|(_, n)| *n = 0);
        self.values.iter_mut().for_each(|(_, v)| *v = None);
    }

    /// The histograms by name.
    pub fn latencies(&self) -> impl Iterator<Item = (&str, &Latency)> {
        self.latencies.iter().map(|(name, h)| (name.as_str(), h))
    }

    /// What was counted.
    pub(crate) fn counted(&self, id: CounterId) -> u64 {
        self.counters[id.index()].1
    }

    /// Adds the results over `elapsed` to a table of named numbers; if the workload measured that time itself, over what it says.
    pub(crate) fn report(&self, elapsed: Nanos, into: &mut BTreeMap<String, f64>) {
        let own = self.values.iter().find(|(name, _)| name == ELAPSED);
        let elapsed = own.and_then(|(_, value)| *value).unwrap_or(elapsed);
        let seconds = elapsed as f64 / 1e9;
        for (name, n) in &self.counters {
            into.insert(name.clone(), *n as f64);
            let rate = if elapsed == 0 {
                0.0
            } else {
                *n as f64 / seconds
            };
            into.insert(format!("{name}_per_s"), rate);
        }
        for (name, value) in &self.values {
            if let Some(value) = value {
                into.insert(name.clone(), *value as f64);
            }
        }
        for (name, h) in &self.latencies {
            report_latency(name, h, into);
        }
    }
}

/// The quantiles of latencies that are reported, by the ends of their names.
pub(crate) const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p999", 0.999),
];

/// Adds a histogram's usual numbers to a table. An empty histogram adds only its count.
pub(crate) fn report_latency(name: &str, h: &Latency, into: &mut BTreeMap<String, f64>) {
    into.insert(format!("{name}_count"), h.len() as f64);
    if h.is_empty() {
        return;
    }
    into.insert(format!("{name}_ns_mean"), h.mean());
    into.insert(format!("{name}_ns_max"), h.max() as f64);
    for (label, quantile) in QUANTILES {
        into.insert(
            format!("{name}_ns_{label}"),
            h.value_at_quantile(quantile) as f64,
        );
    }
}
