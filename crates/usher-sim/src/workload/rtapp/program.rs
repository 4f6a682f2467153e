// SPDX-License-Identifier: GPL-2.0-only
//! The threads of an rt-app file: what they do is compiled ([`super::lower`]), here it runs.
//!
//! ```text
//!  rt-app ── creates all instances of all tasks; sleeps for the duration, or joins them
//!  thread: all start together; delay; class; then per pass of a phase: CPUs, class, events
//! ```

use std::sync::Arc;

use super::super::kit::{fork, forked, Join};
use super::model::{Policy, Repeat};
use crate::cpuset::CpuSet;
use crate::ids::Nanos;
use crate::program::{Action, Class, Hint, Memory, Program, TaskCtx, TaskSpec};
use crate::world::{Barrier, Cond, CounterId, LatencyId, List, Mutex, ValueId, Word};

/// What an event comes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Run(Nanos),
    Runtime(Nanos),
    Sleep(Nanos),
    Timer {
        timer: Timer,
        period: Nanos,
        absolute: bool,
    },
    Lock(Mutex),
    Unlock(Mutex),
    Wait(Cond, Mutex),
    Signal(Cond),
    Broad(Cond),
    Barrier(Barrier),
    Mem {
        work: Nanos,
        footprint_kib: u32,
    },
    /// Written to a device that takes everything at once.
    Write(Nanos),
    Io(Nanos),
    Yield,
    Fork(usize),
}

/// A timer: of all threads, or the n-th of each.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    Shared(Word),
    Own(usize),
}

/// A shared timer that has not been used yet.
pub(super) const UNUSED: u64 = u64::MAX;

/// Class and CPUs that a phase asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wants {
    pub policy: Option<Policy>,
    pub priority: Option<i64>,
    pub cpus: Option<Arc<CpuSet>>,
}

#[derive(Debug)]
pub(super) struct PhasePlan {
    pub wants: Wants,
    pub repeat: Repeat,
    pub ops: Vec<Op>,
}

#[derive(Debug)]
pub(super) struct TaskPlan {
    pub name: String,
    pub instances: u32,
    pub delay: Nanos,
    pub wants: Wants,
    pub default_policy: Policy,
    pub repeat: Repeat,
    pub phases: Vec<PhasePlan>,
    /// Timers of each thread.
    pub own_timers: usize,
    pub hint: Option<Hint>,
    pub activations: CounterId,
    pub period: LatencyId,
}

/// What all threads know.
#[derive(Debug)]
pub(super) struct Plan {
    pub tasks: Vec<TaskPlan>,
    /// Until rt-app stops everything; `None`: until all threads have ended.
    pub duration: Option<Nanos>,
    pub start: Barrier,
    /// When the first thread was ready.
    pub zero: Word,
    /// All CPUs: where a phase without `cpus` runs if its task has none either.
    pub everywhere: Arc<CpuSet>,
    pub footprint_kib: u32,
    pub loop_cost: Nanos,
    pub runtime_step: Nanos,
    pub cumulative_slack: bool,
    /// Per thread: what it waits in ([`State`]).
    pub states: List,
    /// Per task: how often it has been forked.
    pub forks: List,
    pub metrics: Metrics,
}

#[derive(Debug)]
pub(super) struct Metrics {
    pub activations: CounterId,
    pub work_us: CounterId,
    pub timer_latency: LatencyId,
    pub timer_missed: CounterId,
    pub slack: LatencyId,
    pub overrun: LatencyId,
    pub run: LatencyId,
    pub forks_refused: CounterId,
    pub waiting_at_end: ValueId,
}

/// Most forks of one task, as in rt-app.
const FORK_LIMIT: u64 = 1024;

/// What a thread waits in, as a number in [`Plan::states`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum State {
    /// It runs, or something that will happen by itself wakes it.
    Alive = 0,
    /// In a lock or a barrier: somebody has to come.
    Stuck = 1,
    /// In a condition: somebody may come.
    Waiting = 2,
    Exited = 3,
}

/// The main thread.
pub(super) struct Main {
    plan: Arc<Plan>,
    /// Threads still to be created: task and how many.
    left: std::collections::VecDeque<usize>,
    made: u64,
    join: Join,
    step: MainStep,
}

enum MainStep {
    Create,
    Created,
    Sleep,
    Stop,
    Join,
}

impl Main {
    pub fn new(plan: Arc<Plan>) -> Main {
        let instances = |(i, t): (usize, &TaskPlan)| std::iter::repeat_n(i, t.instances as usize);
        let left = plan.tasks.iter().enumerate().flat_map(instances).collect();
        Main {
            plan,
            left,
            made: 0,
            join: Join::default(),
            step: MainStep::Create,
        }
    }

    /// Whether nobody can ever go on: all that are left wait, and some of them in a lock or barrier.
    /// Threads that merely wait on conditions at the end are what many files intend.
    fn stuck(&self, ctx: &mut TaskCtx<'_>) -> bool {
        let states = ctx.list(self.plan.states);
        let count = |state: State| states.iter().filter(|s| **s == state as u64).count();
        let (alive, stuck, waiting) = (
            count(State::Alive),
            count(State::Stuck),
            count(State::Waiting),
        );
        ctx.set_value(self.plan.metrics.waiting_at_end, waiting as u64);
        alive == 0 && stuck > 0
    }
}

impl Program for Main {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            match self.step {
                MainStep::Create => match self.left.pop_front() {
                    Some(task) => {
                        self.step = MainStep::Created;
                        self.made += 1;
                        let first = self.made == 1;
                        return fork(thread(&self.plan, ctx, task, first, None));
                    }
                    None => {
                        let ends = self.plan.duration.is_some();
                        self.step = if ends {
                            MainStep::Sleep
                        } else {
                            MainStep::Join
                        };
                    }
                },
                MainStep::Created => {
                    self.join.add(forked(ctx));
                    self.step = MainStep::Create;
                }
                MainStep::Sleep => {
                    self.step = MainStep::Stop;
                    let duration = self.plan.duration.unwrap_or_default();
                    return Action::SleepUntil(ctx.now() + duration);
                }
                // A file that has locked itself up waits for ever, for the engine to say who for whom.
                MainStep::Stop if self.stuck(ctx) => self.step = MainStep::Join,
                MainStep::Stop => return Action::Exit,
                MainStep::Join => return self.join.next().unwrap_or(Action::Exit),
            }
        }
    }
}

/// A thread of a task: one of its instances, or its n-th fork.
fn thread(
    plan: &Arc<Plan>,
    ctx: &mut TaskCtx<'_>,
    task: usize,
    first: bool,
    nth_fork: Option<u64>,
) -> TaskSpec {
    let states = ctx.list(plan.states);
    let number = states.len();
    states.push_back(State::Alive as u64);
    let def = &plan.tasks[task];
    let thread = Thread {
        plan: plan.clone(),
        task,
        number,
        first,
        began: 0,
        zero: 0,
        own_timers: vec![None; def.own_timers],
        policy: Policy::Other,
        priority: 0,
        cpus: None,
        pass: 0,
        phase: 0,
        phase_pass: 0,
        op: 0,
        slack: None,
        due: 0,
        pending: Vec::new(),
        step: if nth_fork.is_some() {
            ThreadStep::Delay
        } else {
            ThreadStep::Ready
        },
    };
    let name = match nth_fork {
        Some(n) => format!("{}-{number}-{n:04}", def.name),
        None => format!("{}-{number}", def.name),
    };
    let spec = TaskSpec::new(name, thread)
        .thread()
        .group(task as u32 + 1)
        .memory(plan.footprint_kib, 0);
    match def.hint {
        Some(hint) => spec.hint(hint),
        None => spec,
    }
}

struct Thread {
    plan: Arc<Plan>,
    task: usize,
    /// Its place in [`Plan::states`].
    number: usize,
    /// It is the first thread, whose readiness is time zero.
    first: bool,
    /// When the current pass of a phase, or the current `runtime`, began.
    began: Nanos,
    /// Where its timers start.
    zero: Nanos,
    own_timers: Vec<Option<Nanos>>,
    policy: Policy,
    priority: i64,
    cpus: Option<Arc<CpuSet>>,
    pass: u64,
    phase: usize,
    phase_pass: u64,
    op: usize,
    /// Slack of this pass's timers, if it had one; negative: overrun.
    slack: Option<i128>,
    /// What the timer under way is due at.
    due: Nanos,
    /// Actions that precede the next event.
    pending: Vec<Action>,
    step: ThreadStep,
}

#[derive(Clone, Copy)]
enum ThreadStep {
    Ready,
    Delay,
    Class,
    PhaseBegin,
    Event,
    /// In a `run`, begun at this time.
    Ran(Nanos),
    /// In a `runtime`, begun at this time.
    Running(Nanos),
    TimerFired,
    MemDone,
    PhaseEnd,
    Over,
}

impl Thread {
    fn state(&self, ctx: &mut TaskCtx<'_>, state: State) {
        ctx.list(self.plan.states)[self.number] = state as u64;
    }

    /// Notes class changes that a task or a phase asks for.
    fn adopt(&mut self, wants: &Wants) {
        if wants.policy.is_none() && wants.priority.is_none() {
            return;
        }
        let (policy, priority) = (self.policy, self.priority);
        if let Some(new) = wants.policy {
            self.policy = new;
            self.priority = new.priorities().2;
        }
        self.priority = wants.priority.unwrap_or(self.priority);
        if (policy, priority) != (self.policy, self.priority) {
            self.pending
                .push(Action::SetClass(class(self.policy, self.priority)));
        }
    }

    /// Notes a change of CPUs: the phase's, else the task's, else all.
    fn move_to(&mut self, task: &TaskPlan, phase: &PhasePlan) {
        let wanted = phase.wants.cpus.as_ref().or(task.wants.cpus.as_ref());
        let changes = match (wanted, &self.cpus) {
            (None, None) => false,
            (wanted, current) => wanted != current.as_ref(),
        };
        if changes {
            self.cpus = wanted.cloned();
            let set = self
                .cpus
                .clone()
                .unwrap_or_else(|| self.plan.everywhere.clone());
            self.pending.push(Action::SetAffinity(set));
        }
    }

    fn begin_phase(&mut self, ctx: &mut TaskCtx<'_>) {
        let plan = self.plan.clone();
        let task = &plan.tasks[self.task];
        if task.repeat == Repeat::Times(self.pass) {
            self.step = ThreadStep::Over;
            return;
        }
        let phase = &task.phases[self.phase];
        self.move_to(task, phase);
        self.adopt(&phase.wants);
        // Last in, first out.
        self.pending.reverse();
        self.pending.insert(0, Action::Compute(plan.loop_cost));
        (self.op, self.slack, self.began) = (0, None, ctx.now());
        self.step = ThreadStep::Event;
    }

    fn end_phase(&mut self, ctx: &mut TaskCtx<'_>) {
        let plan = self.plan.clone();
        let (task, metrics) = (&plan.tasks[self.task], &plan.metrics);
        ctx.count(metrics.activations, 1);
        ctx.count(task.activations, 1);
        ctx.sample(task.period, ctx.now() - self.began);
        if let Some(slack) = self.slack {
            let magnitude = u64::try_from(slack.unsigned_abs()).unwrap_or(u64::MAX / 2);
            ctx.sample(
                if slack < 0 {
                    metrics.overrun
                } else {
                    metrics.slack
                },
                magnitude,
            );
        }
        self.phase_pass += 1;
        if task.phases[self.phase].repeat == Repeat::Times(self.phase_pass) {
            self.phase_pass = 0;
            self.phase += 1;
            if self.phase == task.phases.len() {
                self.phase = 0;
                // Only compared for equality: an endless task may wrap around.
                self.pass = self.pass.wrapping_add(1);
            }
        }
        self.step = ThreadStep::PhaseBegin;
    }

    /// Starts an event; `None` if it is over at once.
    fn start(&mut self, ctx: &mut TaskCtx<'_>, op: Op) -> Option<Action> {
        self.op += 1;
        let plan = &self.plan;
        let blocks = match op {
            Op::Lock(_) | Op::Barrier(_) => State::Stuck,
            Op::Wait(..) => State::Waiting,
            _ => State::Alive,
        };
        if blocks != State::Alive {
            self.state(ctx, blocks);
        }
        Some(match op {
            Op::Run(ns) => {
                self.step = ThreadStep::Ran(ctx.now());
                ctx.count(plan.metrics.work_us, ns / 1000);
                Action::Compute(ns)
            }
            Op::Runtime(ns) => {
                self.due = ctx.now() + ns;
                self.step = ThreadStep::Running(ctx.now());
                ctx.count(plan.metrics.work_us, ns / 1000);
                return None;
            }
            Op::Sleep(ns) => Action::Sleep(ns),
            Op::Timer {
                timer,
                period,
                absolute,
            } => {
                return self.arm(ctx, timer, period, absolute);
            }
            Op::Lock(mutex) => Action::Lock(mutex),
            Op::Unlock(mutex) => Action::Unlock(mutex),
            Op::Wait(cond, mutex) => Action::CondWait(cond, mutex),
            Op::Signal(cond) => Action::CondSignal(cond),
            Op::Broad(cond) => Action::CondBroadcast(cond),
            Op::Barrier(barrier) => Action::Barrier(barrier),
            Op::Mem {
                work,
                footprint_kib,
            } => {
                ctx.set_memory(Memory {
                    footprint_kib,
                    bound_permille: 1000,
                });
                self.step = ThreadStep::MemDone;
                Action::Compute(work)
            }
            Op::Write(ns) => Action::Compute(ns),
            Op::Io(ns) => Action::Io(ns),
            Op::Yield => Action::Yield,
            Op::Fork(task) => {
                let forks = &mut ctx.list(plan.forks)[task];
                if *forks == FORK_LIMIT {
                    ctx.count(plan.metrics.forks_refused, 1);
                    return None;
                }
                let nth = *forks;
                *forks += 1;
                fork(thread(plan, ctx, task, false, Some(nth)))
            }
        })
    }

    /// Sleeps until a timer's next period, if that is still to come.
    fn arm(
        &mut self,
        ctx: &mut TaskCtx<'_>,
        timer: Timer,
        period: Nanos,
        absolute: bool,
    ) -> Option<Action> {
        let last = match timer {
            Timer::Shared(word) => Some(*ctx.word(word)).filter(|at| *at != UNUSED),
            Timer::Own(n) => self.own_timers[n],
        };
        let due = last.unwrap_or(self.zero) + period;
        let now = ctx.now();
        let slack = i128::from(due) - i128::from(now);
        let before = self
            .slack
            .filter(|_| self.plan.cumulative_slack)
            .unwrap_or(0);
        self.slack = Some(before + slack);
        let missed = now >= due;
        let next = if missed && !absolute { now } else { due };
        match timer {
            Timer::Shared(word) => *ctx.word(word) = next,
            Timer::Own(n) => self.own_timers[n] = Some(next),
        }
        if missed {
            ctx.count(self.plan.metrics.timer_missed, 1);
            return None;
        }
        self.due = due;
        self.step = ThreadStep::TimerFired;
        Some(Action::SleepUntil(due))
    }
}

fn class(policy: Policy, priority: i64) -> Class {
    // The reader and the compiler have checked the bounds.
    match policy {
        Policy::Other => Class::Normal {
            nice: priority as i8,
        },
        Policy::Idle => Class::Idle,
        Policy::RoundRobin => Class::RoundRobin {
            prio: priority as u8,
        },
        Policy::Fifo => Class::Fifo {
            prio: priority as u8,
        },
    }
}

impl Program for Thread {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        self.state(ctx, State::Alive);
        loop {
            if let Some(action) = self.pending.pop() {
                return action;
            }
            let plan = self.plan.clone();
            let task = &plan.tasks[self.task];
            match self.step {
                ThreadStep::Ready => {
                    if self.first {
                        *ctx.word(plan.zero) = ctx.now();
                    }
                    self.step = ThreadStep::Delay;
                    return Action::Barrier(plan.start);
                }
                ThreadStep::Delay => {
                    self.zero = *ctx.word(plan.zero) + task.delay;
                    self.step = ThreadStep::Class;
                    if task.delay > 0 {
                        return Action::SleepUntil(self.zero);
                    }
                }
                ThreadStep::Class => {
                    let mut wants = task.wants.clone();
                    wants.policy.get_or_insert(task.default_policy);
                    self.adopt(&wants);
                    self.step = ThreadStep::PhaseBegin;
                }
                ThreadStep::PhaseBegin => self.begin_phase(ctx),
                ThreadStep::Event => match task.phases[self.phase].ops.get(self.op) {
                    Some(op) => {
                        if let Some(action) = self.start(ctx, *op) {
                            return action;
                        }
                    }
                    None => self.step = ThreadStep::PhaseEnd,
                },
                ThreadStep::Ran(began) => {
                    ctx.sample(plan.metrics.run, ctx.now() - began);
                    self.step = ThreadStep::Event;
                }
                ThreadStep::Running(began) => {
                    if ctx.now() < self.due {
                        return Action::Compute(plan.runtime_step);
                    }
                    ctx.sample(plan.metrics.run, ctx.now() - began);
                    self.step = ThreadStep::Event;
                }
                ThreadStep::TimerFired => {
                    ctx.sample(
                        plan.metrics.timer_latency,
                        ctx.now().saturating_sub(self.due),
                    );
                    self.step = ThreadStep::Event;
                }
                ThreadStep::MemDone => {
                    ctx.set_memory(Memory {
                        footprint_kib: plan.footprint_kib,
                        bound_permille: 0,
                    });
                    self.step = ThreadStep::Event;
                }
                ThreadStep::PhaseEnd => self.end_phase(ctx),
                ThreadStep::Over => {
                    self.state(ctx, State::Exited);
                    return Action::Exit;
                }
            }
        }
    }
}
