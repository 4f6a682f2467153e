// SPDX-License-Identifier: GPL-2.0-only
//! What the generators have in common: small pieces of programs, and the frame of a workload.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::figures::{time, Args, Figure};
use super::{Headline, Stop, Workload};
use crate::cpuset::CpuSet;
use crate::ids::{Cpu, Nanos, TaskId};
use crate::machine::Machine;
use crate::program::{Action, Outcome, TaskCtx, TaskSpec};
use crate::rng::Rng;
use crate::world::{ChannelSpec, Futex, World};

/// What TCP takes, for workloads that talk over loopback.
pub(super) const PROTOCOL: Figure = time(
    "protocol",
    ChannelSpec::TCP_LOOPBACK.write_ns,
    "TCP's work per message on the sender's CPU, that of the receiving side included",
    "measured on three servers: 1467, 3345, 832 ns",
);

/// One direction of a connection over loopback, where TCP takes what [`PROTOCOL`] says.
pub(super) fn tcp(args: &Args<'_>) -> ChannelSpec {
    ChannelSpec {
        write_ns: args.get(PROTOCOL.key),
        ..ChannelSpec::TCP_LOOPBACK
    }
}

/// Everything about a workload but its name and parameters.
pub(super) struct Draft {
    pub world: World,
    pub tasks: Vec<TaskSpec>,
    pub stop: Stop,
    pub warmup: Nanos,
    /// Name of the headline metric, and whether more of it is better.
    pub headline: (&'static str, bool),
    /// Name of the metric that says how long the slowest requests take, if it is judged by something else.
    pub tail: Option<&'static str>,
    pub limits: &'static [&'static str],
}

impl Draft {
    /// The workload, with its name and parameters still missing.
    pub fn done(self) -> Workload {
        let (metric, higher_is_better) = self.headline;
        Workload {
            name: String::new(),
            parameters: BTreeMap::new(),
            world: self.world,
            tasks: self.tasks,
            stop: self.stop,
            warmup: self.warmup,
            headline: Headline {
                metric: metric.into(),
                higher_is_better,
                tail: self.tail.map(String::from),
            },
            limits: self.limits.iter().map(ToString::to_string).collect(),
        }
    }
}

/// `fork` or `clone`, as the spec says.
pub(super) fn fork(spec: TaskSpec) -> Action {
    Action::Fork(Box::new(spec))
}

/// The child that the last action forked.
///
/// # Panics
/// If it was not a fork: a mistake of the calling program.
pub(super) fn forked(ctx: &TaskCtx<'_>) -> TaskId {
    match ctx.outcome() {
        Outcome::Child(child) => child,
        other => panic!("a fork ends with a child, not with {other:?}"),
    }
}

/// Values of a futex that says whether its owner is blocked.
pub(super) const BLOCKED: u64 = 0;
/// See [`BLOCKED`].
pub(super) const RUNNING: u64 = 1;

/// Sets a futex running; whether its owner was blocked and needs waking.
pub(super) fn post(ctx: &mut TaskCtx<'_>, futex: Futex) -> bool {
    std::mem::replace(ctx.futex(futex), RUNNING) == BLOCKED
}

/// The wait of an owner that has set its futex blocked.
pub(super) fn wait_while_blocked(futex: Futex) -> Action {
    Action::FutexWait {
        futex,
        expected: BLOCKED,
        timeout: None,
    }
}

/// Joins children one after another, as a loop around `pthread_join` does.
#[derive(Debug, Default)]
pub(super) struct Join {
    children: std::collections::VecDeque<TaskId>,
}

impl Join {
    pub fn add(&mut self, child: TaskId) {
        self.children.push_back(child);
    }

    /// The next wait; `None` when all have been joined.
    pub fn next(&mut self) -> Option<Action> {
        self.children.pop_front().map(Action::WaitChild)
    }
}

/// Counts down a fixed number of rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Countdown(pub u64);

impl Countdown {
    /// Whether there was one left; takes it.
    pub fn take(&mut self) -> bool {
        let some = self.0 > 0;
        self.0 -= u64::from(some);
        some
    }
}

/// A machine's online CPUs, counted modulo their number.
pub(super) fn nth_cpu(machine: &Machine, n: u64) -> Cpu {
    let cpus = machine.cpus();
    cpus[(n % cpus.len() as u64) as usize]
}

/// The set of one CPU.
pub(super) fn pinned(cpu: Cpu) -> Arc<CpuSet> {
    Arc::new(CpuSet::of(cpu))
}

/// A duration between `mean / 2` and `mean * 3 / 2`, evenly: keeps tasks that do the same thing from
/// marching in step, without changing the mean.
pub(super) fn around(rng: &mut Rng, mean: Nanos) -> Nanos {
    mean / 2 + rng.below(mean.saturating_add(1))
}

/// A heavy-tailed duration between `low` and `high`: a Pareto distribution with exponent 1, cut at both
/// ends, so that each octave carries the same share of the total work. Drawn octave by octave in whole
/// numbers: an octave is half as likely as the one below it, and flat inside.
pub(super) fn heavy_tailed(rng: &mut Rng, low: Nanos, high: Nanos) -> Nanos {
    let low = low.max(1);
    if high <= low {
        return low;
    }
    loop {
        let octave = rng.next_u64().trailing_zeros();
        let Some(base) = low
            .checked_shl(octave)
            .filter(|b| *b <= high && *b >> octave == low)
        else {
            continue; // beyond the cut: draw again
        };
        let draw = base + rng.below(base);
        if draw <= high {
            return draw;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the heavy tail is heavy and cut: octave k has half the draws of octave k - 1.
    // Method: count draws per octave; the seed is fixed.
    #[test]
    fn octaves_halve() {
        let mut rng = Rng::new(3);
        let (low, high) = (1_000, 16_000);
        let mut octaves = [0u64; 4];
        for _ in 0..100_000 {
            let draw = heavy_tailed(&mut rng, low, high);
            assert!((low..=high).contains(&draw));
            octaves[(draw / low).ilog2().min(3) as usize] += 1;
        }
        for pair in octaves.windows(2) {
            let ratio = pair[0] * 100 / pair[1];
            assert!((190..210).contains(&ratio), "{octaves:?}");
        }
        assert_eq!(heavy_tailed(&mut rng, 7, 7), 7);
        assert_eq!(heavy_tailed(&mut rng, 7, 3), 7);
    }

    // Goal: the spread keeps its mean and its bounds.
    // Method: many draws.
    #[test]
    fn around_keeps_the_mean() {
        let mut rng = Rng::new(4);
        let draws: Vec<u64> = (0..100_000).map(|_| around(&mut rng, 1_000)).collect();
        assert!(draws.iter().all(|d| (500..=1_500).contains(d)));
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        assert!((990..=1_010).contains(&mean), "{mean}");
        assert_eq!(around(&mut rng, 0), 0);
    }
}
