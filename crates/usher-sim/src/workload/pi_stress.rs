// SPDX-License-Identifier: GPL-2.0-only
//! pi_stress (rt-tests): groups of three SCHED_FIFO threads that force priority inversions.
//!
//! ```text
//!  all three: barrier "loop"; the last one in looks at the shutdown flag under a global mutex; barrier "start"
//!  low  (1):  lock the PI mutex; barrier "locked" with high; barrier "elevate" with med; unlock; barrier "finish"
//!  med  (2):  barrier "elevate" with low; barrier "finish"
//!  high (3):  barrier "locked" with low; lock the PI mutex (which boosts low); unlock; barrier "finish"; count
//! ```
//!
//! Each group lives on one CPU, group i on CPU i + 1; a reporter of priority 4 wakes now and then.

use std::sync::Arc;

use super::figures::{footprint, span, time, Args, Figure, Kind, MS, S};
use super::kit::{fork, nth_cpu, pinned, Draft};
use super::registry::{Alias, Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::program::{Action, Class, Program, TaskCtx, TaskSpec};
use crate::world::{Barrier, CounterId, Mutex, MutexKind, Word, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "pi-stress",
    about: "groups of three real-time threads on one CPU that force priority inversions",
    figures: FIGURES,
    aliases: &[Alias {
        name: "pi_stress",
        implies: &[],
    }],
    published: &[Published::higher("change-pct", "inversions_per_s")],
    make,
};

const FIGURES: &[Figure] = &[
    Figure {
        key: "groups",
        kind: Kind::PerCpus {
            cpus: 2,
            high: 100_000,
        },
        meaning: "inversion groups (--groups)",
        source: "the CPU-priority proposal: half the CPUs",
    },
    time(
        "report",
        S,
        "how often the reporter looks; 0: never",
        "pi_stress: every second",
    ),
    time(
        "user",
        300,
        "CPU time of a thread in user mode between two steps",
        "assumed: library code",
    ),
    time(
        "warmup",
        5 * MS,
        "time before the measurement, from the first fork",
        "assumed",
    ),
    span(
        "runtime",
        20 * MS,
        "measured time (--duration)",
        "seconds in the program; shorter here",
    ),
    footprint("footprint_kib", 16),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let groups = args.get_u32("groups");
    let end = args.get("warmup") + args.get("runtime");
    let shutdown = world.new_mutex(MutexKind::Barging);
    let inversions = world.new_counter("inversions");
    let all_ready = world.new_barrier(3 * groups);
    let (user, footprint) = (args.get("user"), args.get_u32("footprint_kib"));
    let mut threads = std::collections::VecDeque::new();
    for n in 0..groups {
        let group = Arc::new(Group {
            user,
            all_ready,
            shutdown,
            inversions,
            arrived: world.new_word(0),
            round: world.new_barrier(3),
            start: world.new_barrier(3),
            locked: world.new_barrier(2),
            elevate: world.new_barrier(2),
            finish: world.new_barrier(3),
            mutex: world.new_mutex(MutexKind::PriorityInheritance),
        });
        let cpus = pinned(nth_cpu(args.machine, u64::from(n) + 1));
        for (role, name, prio) in [
            (Role::Low, "low", 1),
            (Role::Med, "med", 2),
            (Role::High, "high", 3),
        ] {
            let thread = Member {
                group: group.clone(),
                role,
                at: 0,
                last_in: false,
                user_next: false,
            };
            let spec = TaskSpec::new(name, thread)
                .thread()
                .class(Class::Fifo { prio })
                .group(1);
            threads.push_back(spec.affinity(cpus.clone()).memory(footprint, 0));
        }
    }
    let (report, mut armed) = (args.get("report"), false);
    let main = move |ctx: &mut TaskCtx<'_>| {
        if !armed {
            armed = true;
            return Action::SetClass(Class::Fifo { prio: 4 });
        }
        if let Some(thread) = threads.pop_front() {
            return fork(thread);
        }
        match report {
            0 if ctx.now() >= end => Action::Exit,
            0 => Action::SleepUntil(end),
            _ => Action::Sleep(report),
        }
    };
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("pi_stress", main)],
        stop: Stop::At(end),
        warmup: args.get("warmup"),
        headline: ("inversions_per_s", true),
        tail: None,
        limits: &["the watchdog of pi_stress is not modelled"],
    }
    .done())
}

struct Group {
    user: Nanos,
    all_ready: Barrier,
    shutdown: Mutex,
    inversions: CounterId,
    /// Threads that came to the loop barrier in this round.
    arrived: Word,
    round: Barrier,
    start: Barrier,
    locked: Barrier,
    elevate: Barrier,
    finish: Barrier,
    mutex: Mutex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Low,
    Med,
    High,
}

struct Member {
    group: Arc<Group>,
    role: Role,
    at: usize,
    last_in: bool,
    user_next: bool,
}

/// What a thread does after the start barrier.
#[derive(Clone, Copy)]
enum Act {
    Locked,
    Elevate,
    Lock,
    Unlock,
    Finish,
}

impl Role {
    fn acts(self) -> &'static [Act] {
        match self {
            Role::Low => &[
                Act::Lock,
                Act::Locked,
                Act::Elevate,
                Act::Unlock,
                Act::Finish,
            ],
            Role::Med => &[Act::Elevate, Act::Finish],
            Role::High => &[Act::Locked, Act::Lock, Act::Unlock, Act::Finish],
        }
    }
}

impl Program for Member {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        self.user_next = !self.user_next;
        if !self.user_next && self.group.user > 0 {
            return Action::Compute(self.group.user);
        }
        self.step(ctx)
    }
}

impl Member {
    fn step(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let group = &self.group;
        let at = self.at;
        self.at += 1;
        match at {
            0 => Action::Barrier(group.all_ready),
            1 => {
                let arrived = ctx.word(group.arrived);
                *arrived += 1;
                self.last_in = *arrived == 3;
                if self.last_in {
                    *arrived = 0;
                }
                Action::Barrier(group.round)
            }
            2 if self.last_in => Action::Lock(group.shutdown),
            3 if self.last_in => Action::Unlock(group.shutdown),
            2..=4 => {
                self.at = 5;
                Action::Barrier(group.start)
            }
            _ => match self.role.acts().get(at - 5) {
                Some(Act::Locked) => Action::Barrier(group.locked),
                Some(Act::Elevate) => Action::Barrier(group.elevate),
                Some(Act::Lock) => Action::Lock(group.mutex),
                Some(Act::Unlock) => Action::Unlock(group.mutex),
                Some(Act::Finish) => Action::Barrier(group.finish),
                None => {
                    if self.role == Role::High {
                        ctx.count(group.inversions, 1);
                    }
                    self.at = 1;
                    self.step(ctx)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{run, By};

    // Goal: each round is one inversion: high blocks on the mutex that low holds, and low gives it to it.
    // Method: over several interleavings, wakeups through mutexes and barriers per inversion; pins.
    #[test]
    fn wakes_are_those_of_an_inversion() {
        for seed in 0..5 {
            let ran = run(
                "pi-stress",
                &["groups=3", "warmup=0ms", "runtime=30ms"],
                seed,
            );
            let inversions = ran.metric("inversions");
            assert!(inversions > 300, "{inversions}");
            for ((from, to, by, sync), n) in ran.graph() {
                assert!(!sync);
                match (from.as_str(), to.as_str(), by) {
                    ("low", "high", By::Mutex) => assert!(n.abs_diff(inversions) <= inversions / 5),
                    ("low" | "med" | "high", "low" | "med" | "high", By::Barrier) => {}
                    // The last one in takes the global mutex of the shutdown flag.
                    ("low" | "med" | "high", "low" | "med" | "high", By::Mutex) => {}
                    ("timer", "pi_stress", By::Timer) => {}
                    other => panic!("{other:?} does not happen in pi_stress"),
                }
            }
            for (i, low) in ran.named("low").iter().enumerate() {
                assert_eq!(ran.tasks[low.index()].cpus, Some(vec![i as u32 + 1]));
                assert_eq!(ran.tasks[low.index()].class.rt_prio(), 1);
            }
            assert_eq!(ran.tasks[0].class.rt_prio(), 4);
        }
    }

    // Goal: the default is half the machine's CPUs, and groups beyond the last CPU wrap around.
    // Method: pins on a machine of 32 CPUs.
    #[test]
    fn groups_spread_over_the_cpus() {
        let ran = run("pi-stress", &["runtime=1ms", "warmup=0ms"], 1);
        assert_eq!(ran.named("high").len(), 16);
        let ran = run("pi-stress", &["groups=33", "runtime=1ms", "warmup=0ms"], 1);
        let cpus = ran
            .named("high")
            .into_iter()
            .map(|t| ran.tasks[t.index()].cpus.clone().unwrap()[0]);
        assert_eq!(cpus.skip(30).collect::<Vec<_>>(), [31, 0, 1]);
    }
}
