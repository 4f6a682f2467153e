// SPDX-License-Identifier: GPL-2.0-only
//! What runs: tasks, the objects they share, and when it is over.

pub mod figures;
pub mod rtapp;

mod cyclictest;
mod ffmpeg_rt;
mod hackbench;
mod kbuild;
mod kit;
mod pi_stress;
mod registry;
mod requests;
mod schbench;
mod stress_ng_cyclic;
mod sysbench_cpu;
mod sysbench_oltp;
mod tbench;
#[cfg(test)]
mod testkit;
mod uperf;

pub use figures::Described;
pub use registry::{
    build, describe, find, names, Alias, Found, Published, ReadyFile, WorkloadInfo, FILES,
    WORKLOADS,
};

use std::collections::BTreeMap;

use crate::ids::Nanos;
use crate::program::TaskSpec;
use crate::world::World;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At this time. Tasks that still run or wait are fine; a deadlock before then is not.
    At(Nanos),
    /// When every task has exited.
    AllExit,
    /// When the first root task has exited.
    FirstExit,
    /// When what a program has asked to measure is over ([`crate::program::TaskCtx::measure`]).
    Measured,
}

/// The result a workload is usually judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// Name of the metric, as in the report.
    pub metric: String,
    /// Whether more of it is better.
    pub higher_is_better: bool,
    /// Name of the 99th percentile of how long its requests take, ns, where it notes that and is judged by something else: what
    /// throughput does not tell.
    pub tail: Option<String>,
}

impl Headline {
    /// Whether more of a metric is better, of those that this can be said of: the headline itself, and whatever is told of the
    /// latencies that it or `tail` is of, or of wakeups.
    pub fn higher_is_better(&self, metric: &str) -> Option<bool> {
        if metric == self.metric {
            return Some(self.higher_is_better);
        }
        fn latency_of(metric: &str) -> Option<&str> {
            Some(metric.split_once("_ns_")?.0)
        }
        let latency = latency_of(metric)?;
        let mut judged = [Some(&self.metric), self.tail.as_ref()]
            .into_iter()
            .flatten();
        (latency == "wake_latency" || judged.any(|m| latency_of(m) == Some(latency)))
            .then_some(false)
    }
}

/// A workload, ready to run once.
#[derive(Debug)]
pub struct Workload {
    /// Its name, as on the command line.
    pub name: String,
    /// All parameters with the values in force.
    pub parameters: BTreeMap<String, String>,
    /// What its tasks share.
    pub world: World,
    /// The root tasks, in order of creation.
    pub tasks: Vec<TaskSpec>,
    /// When it is over.
    pub stop: Stop,
    /// What happens before this time is not measured: all metrics start again from zero then.
    pub warmup: Nanos,
    /// The result to look at first.
    pub headline: Headline,
    /// What the model leaves out, one short sentence each; printed with the results.
    pub limits: Vec<String>,
}

#[cfg(test)]
impl Workload {
    /// Some tasks of a test, of which no metric matters more than another.
    pub(crate) fn bare(world: World, tasks: Vec<TaskSpec>, stop: Stop) -> Workload {
        Workload {
            name: "test".into(),
            parameters: BTreeMap::new(),
            world,
            tasks,
            stop,
            warmup: 0,
            headline: Headline {
                metric: "none".into(),
                higher_is_better: true,
                tail: None,
            },
            limits: Vec::new(),
        }
    }
}
