// SPDX-License-Identifier: GPL-2.0-only
//! From model to workload: names become objects of the world, and what cannot work is refused while its
//! place is still known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::figures::Args;
use super::super::registry::Hints;
use super::super::{Headline, Stop, Workload};
use super::model::{Attrs, Event, Global, Repeat, RtApp, Step, TaskDef};
use super::program::{Main, Metrics, Op, PhasePlan, Plan, TaskPlan, Timer, Wants, UNUSED};
use super::read::Reading;
use super::syntax::{Origin, Place};
use crate::cpuset::CpuSet;
use crate::error::{nearest, SimError};
use crate::ids::{Cpu, Nanos};
use crate::params::format_duration;
use crate::program::TaskSpec;
use crate::world::{Barrier, Cond, Mutex, MutexKind, Object, Word, World};

/// Makes the workload.
///
/// # Errors
/// A file that asks for what cannot work, with the place.
pub(super) fn lower(
    name: &str,
    reading: Reading,
    args: &Args<'_>,
    hints: &mut Hints,
) -> Result<Workload, SimError> {
    let file = &reading.file;
    let origin = Origin { name };
    let duration = duration(origin, file, args)?;
    check_forks_and_barriers(origin, file)?;
    let mut world = World::new();
    let mut lowering = Lowering::new(origin, file, args, &mut world);
    let tasks = file
        .tasks
        .iter()
        .map(|task| lowering.task(task, hints))
        .collect::<Result<Vec<TaskPlan>, SimError>>()?;
    let warmup = args.get("warmup");
    if let Some(duration) = duration.filter(|duration| *duration <= warmup) {
        return Err(SimError::Parameter {
            key: "warmup".into(),
            what: format!(
                "is {}, and the run ends after {}; what the warmup takes is a part of that and must be less",
                format_duration(warmup),
                format_duration(duration)
            ),
        });
    }
    let threads: u32 = tasks.iter().map(|t| t.instances).sum();
    if threads == 0 {
        let what = "no task has an `instance` above 0; there is nothing to run";
        return Err(origin.error(file.tasks[0].at, what));
    }
    let metrics = metrics(&mut world);
    let forks = world.new_list();
    world
        .list(forks)
        .extend(std::iter::repeat_n(0, tasks.len()));
    let plan = Plan {
        tasks,
        duration,
        start: world.new_barrier(threads),
        zero: world.new_word(0),
        everywhere: Arc::new(args.machine.online().clone()),
        footprint_kib: args.get_u32("footprint_kib"),
        loop_cost: args.get("loop_cost"),
        runtime_step: args.get("runtime_step"),
        cumulative_slack: file.global.cumulative_slack,
        states: world.new_list(),
        forks,
        metrics,
    };
    let main = TaskSpec::new("rt-app", Main::new(Arc::new(plan)));
    let main = match hints.of_roots() {
        Some(hint) => main.hint(hint),
        None => main,
    };
    Ok(Workload {
        name: String::new(),
        parameters: BTreeMap::new(),
        world,
        tasks: vec![main],
        stop: if duration.is_some() {
            Stop::FirstExit
        } else {
            Stop::AllExit
        },
        warmup,
        headline: headline(file),
        limits: limits(&reading),
    })
}

/// When to end: the parameter, else the file.
fn duration(origin: Origin<'_>, file: &RtApp, args: &Args<'_>) -> Result<Option<Nanos>, SimError> {
    let given = Some(args.get("duration")).filter(|ns| *ns > 0);
    let duration = given.or(file.global.duration_s.map(|s| s * 1_000_000_000));
    let endless = |t: &&TaskDef| {
        let phase = t.phases.iter().any(|p| p.repeat == Repeat::Forever);
        t.instances > 0 && (phase || t.repeat == Repeat::Forever)
    };
    match file.tasks.iter().find(endless) {
        Some(task) if duration.is_none() => {
            let what = format!(
                "task `{}` loops for ever and `duration` is not set; set it in `global`, or with --set duration=10s",
                task.name
            );
            Err(origin.error(task.at, what))
        }
        _ => Ok(duration),
    }
}

fn steps(task: &TaskDef) -> impl Iterator<Item = &Step> {
    task.phases.iter().flat_map(|p| &p.events)
}

/// Forks name tasks that exist; nobody who may come any number of times uses a barrier.
fn check_forks_and_barriers(origin: Origin<'_>, file: &RtApp) -> Result<(), SimError> {
    let names: Vec<&str> = file.tasks.iter().map(|t| t.name.as_str()).collect();
    let mut forked = Vec::new();
    for step in file.tasks.iter().flat_map(steps) {
        let Event::Fork(name) = &step.event else {
            continue;
        };
        if !names.contains(&name.as_str()) {
            let near = nearest(name, &names).join(", ");
            let what =
                format!("`fork` names the task `{name}`, which does not exist; tasks: {near}");
            return Err(origin.error(step.at, what));
        }
        forked.push(name.as_str());
    }
    for task in &file.tasks {
        let uncounted = task.instances == 0 || forked.contains(&task.name.as_str());
        let barrier = steps(task).find(|s| matches!(s.event, Event::Barrier(_)));
        if let Some(step) = barrier.filter(|_| uncounted) {
            let what = format!(
                "task `{}` is forked or has no instances, so a barrier cannot know how many threads come; \
                 use `lock`, `wait` and `broad` instead",
                task.name
            );
            return Err(origin.error(step.at, what));
        }
    }
    Ok(())
}

fn metrics(world: &mut World) -> Metrics {
    Metrics {
        activations: world.new_counter("activations"),
        work_us: world.new_counter("work_us"),
        timer_latency: world.new_latency("timer_latency"),
        timer_missed: world.new_counter("timer_missed"),
        slack: world.new_latency("slack"),
        overrun: world.new_latency("overrun"),
        run: world.new_latency("run"),
        forks_refused: world.new_counter("forks_refused"),
        waiting_at_end: world.new_value("waiting_at_end"),
    }
}

/// Files with timers are about latency, others about throughput.
fn headline(file: &RtApp) -> Headline {
    let timer = file
        .tasks
        .iter()
        .flat_map(steps)
        .any(|s| matches!(s.event, Event::Timer { .. }));
    let metric = if timer {
        "timer_latency_ns_p99"
    } else {
        "activations_per_s"
    };
    Headline {
        metric: metric.into(),
        higher_is_better: !timer,
        tail: None,
    }
}

fn limits(reading: &Reading) -> Vec<String> {
    let mut limits: Vec<String> = reading
        .ignored
        .iter()
        .map(|(key, times)| format!("`{key}` is left out of account, as asked ({times} times)"))
        .collect();
    if reading.calibrated {
        let what = "`calibration` changes nothing: a microsecond of `run` is one of the strongest core type";
        limits.push(what.into());
    }
    let forks = reading
        .file
        .tasks
        .iter()
        .flat_map(steps)
        .any(|s| matches!(s.event, Event::Fork(_)));
    if forks {
        limits.push("the 1025th fork of a task is refused and counted, where rt-app ends".into());
    }
    limits.extend(unmet(&reading.file));
    limits
}

/// Names that are resumed and that nobody waits under, and the other way round: most likely one of them is misspelt.
fn unmet(file: &RtApp) -> Vec<String> {
    let (mut waits, mut wakes) = (Vec::new(), Vec::new());
    for task in &file.tasks {
        for step in steps(task) {
            match &step.event {
                Event::Suspend(name) if name.is_empty() => waits.push((&task.name, step)),
                Event::Suspend(name)
                | Event::Wait { cond: name, .. }
                | Event::Sync { cond: name, .. } => waits.push((name, step)),
                _ => {}
            }
            match &step.event {
                Event::Resume(name)
                | Event::Signal(name)
                | Event::Broad(name)
                | Event::Sync { cond: name, .. } => wakes.push((name, step)),
                _ => {}
            }
        }
    }
    let mut unmet = Vec::new();
    let mut say = |of: &[(&String, &Step)], others: &[(&String, &Step)], what: &str| {
        for (name, step) in of {
            if others.iter().any(|(other, _)| other == name) {
                continue;
            }
            let names: Vec<&str> = others.iter().map(|(other, _)| other.as_str()).collect();
            let near = match nearest(name, &names).first() {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            unmet.push(format!("line {}: {what} `{name}`{near}", step.at.line));
        }
    };
    say(&wakes, &waits, "wakes nobody, since nobody waits under");
    say(
        &waits,
        &wakes,
        "waits until the end, since nobody wakes who waits under",
    );
    unmet
}

/// A name for metrics: letters, digits and underscores.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

struct Lowering<'a, 'w> {
    origin: Origin<'a>,
    file: &'a RtApp,
    args: &'a Args<'a>,
    world: &'w mut World,
    mutexes: BTreeMap<&'a str, Mutex>,
    conds: BTreeMap<&'a str, Cond>,
    barriers: BTreeMap<&'a str, Barrier>,
    timers: BTreeMap<&'a str, Word>,
}

impl<'a, 'w> Lowering<'a, 'w> {
    fn new(
        origin: Origin<'a>,
        file: &'a RtApp,
        args: &'a Args<'a>,
        world: &'w mut World,
    ) -> Lowering<'a, 'w> {
        let mut parties: BTreeMap<&str, u32> = BTreeMap::new();
        for task in &file.tasks {
            for step in steps(task) {
                if let Event::Barrier(name) = &step.event {
                    *parties.entry(name).or_insert(0) += task.instances;
                }
            }
        }
        let barriers = parties
            .into_iter()
            .map(|(name, n)| {
                let barrier = world.new_barrier(n);
                world.name(Object::Barrier(barrier), name);
                (name, barrier)
            })
            .collect();
        let (mutexes, conds, timers) = Default::default();
        Lowering {
            origin,
            file,
            args,
            world,
            mutexes,
            conds,
            barriers,
            timers,
        }
    }

    fn global(&self) -> &'a Global {
        &self.file.global
    }

    fn task(&mut self, task: &'a TaskDef, hints: &mut Hints) -> Result<TaskPlan, SimError> {
        self.check_priorities(task)?;
        check_locks(self.origin, task)?;
        let mut own: Vec<&str> = Vec::new();
        let mut phases = Vec::new();
        for phase in &task.phases {
            let mut ops = Vec::new();
            for step in &phase.events {
                self.event(task, &step.event, &mut own, &mut ops);
            }
            let wants = self.wants(&phase.attrs)?;
            phases.push(PhasePlan {
                wants,
                repeat: phase.repeat,
                ops,
            });
        }
        let metric = plain(&task.name);
        Ok(TaskPlan {
            name: task.name.clone(),
            instances: task.instances,
            delay: task.delay_us * 1000,
            wants: self.wants(&task.attrs)?,
            default_policy: self.global().default_policy,
            repeat: task.repeat,
            phases,
            own_timers: own.len(),
            hint: hints.of_task(&task.name),
            activations: self
                .world
                .new_counter(&format!("task_{metric}_activations")),
            period: self.world.new_latency(&format!("task_{metric}_period")),
        })
    }

    fn wants(&self, attrs: &Attrs) -> Result<Wants, SimError> {
        let cpus = match &attrs.cpus {
            None => None,
            Some((list, at)) => Some(self.cpus(list, *at)?),
        };
        Ok(Wants {
            policy: attrs.policy,
            priority: attrs.priority.map(|(p, _)| p),
            cpus,
        })
    }

    fn cpus(&self, list: &[u32], at: Place) -> Result<Arc<CpuSet>, SimError> {
        let online = self.args.machine.online();
        if let Some(cpu) = list.iter().find(|cpu| !online.contains(Cpu(**cpu))) {
            let what = format!(
                "`cpus` names CPU {cpu}, which machine {} does not have; its CPUs are {online:?}",
                self.args.machine.topo().name()
            );
            return Err(self.origin.error(at, what));
        }
        Ok(Arc::new(list.iter().map(|cpu| Cpu(*cpu)).collect()))
    }

    /// Every priority fits the policy in force where it is set. A phase without a policy keeps the one
    /// before, so if the task loops, its phases are gone through twice.
    fn check_priorities(&self, task: &TaskDef) -> Result<(), SimError> {
        let mut policy = self.global().default_policy;
        let passes = if task.repeat == Repeat::Times(1) {
            1
        } else {
            2
        };
        let phases = task.phases.iter().map(|p| &p.attrs);
        let phases = std::iter::repeat_n(phases, passes).flatten();
        for attrs in std::iter::once(&task.attrs).chain(phases) {
            policy = attrs.policy.unwrap_or(policy);
            let (low, high, _) = policy.priorities();
            if let Some((priority, at)) = attrs.priority {
                if !(low..=high).contains(&priority) {
                    let what = format!(
                        "`priority` is {priority}, but {} takes {low} to {high}; change it or the policy",
                        policy.name()
                    );
                    return Err(self.origin.error(at, what));
                }
            }
        }
        Ok(())
    }

    fn mutex(&mut self, name: &'a str) -> Mutex {
        let kind = if self.global().pi_enabled {
            MutexKind::PriorityInheritance
        } else {
            MutexKind::Barging
        };
        *self.mutexes.entry(name).or_insert_with(|| {
            let mutex = self.world.new_mutex(kind);
            self.world.name(Object::Mutex(mutex), name);
            mutex
        })
    }

    fn cond(&mut self, name: &'a str) -> Cond {
        *self.conds.entry(name).or_insert_with(|| {
            let cond = self.world.new_cond();
            self.world.name(Object::Cond(cond), name);
            cond
        })
    }

    fn event(
        &mut self,
        task: &'a TaskDef,
        event: &'a Event,
        own: &mut Vec<&'a str>,
        ops: &mut Vec<Op>,
    ) {
        match event {
            Event::Run(us) => ops.push(Op::Run(us * 1000)),
            Event::Runtime(us) => ops.push(Op::Runtime(us * 1000)),
            Event::Sleep(us) => ops.push(Op::Sleep(us * 1000)),
            Event::Timer { name, period, .. } => {
                let op = self.timer(task, name, period * 1000, own);
                ops.push(op);
            }
            Event::Lock(name) => ops.push(Op::Lock(self.mutex(name))),
            Event::Unlock(name) => ops.push(Op::Unlock(self.mutex(name))),
            Event::Wait { cond, mutex } => ops.push(Op::Wait(self.cond(cond), self.mutex(mutex))),
            Event::Signal(name) => ops.push(Op::Signal(self.cond(name))),
            Event::Broad(name) => ops.push(Op::Broad(self.cond(name))),
            Event::Sync { cond, mutex } => {
                let (cond, mutex) = (self.cond(cond), self.mutex(mutex));
                ops.extend([Op::Signal(cond), Op::Wait(cond, mutex)]);
            }
            Event::Suspend(name) => {
                let name = if name.is_empty() { &task.name } else { name };
                let (cond, mutex) = (self.cond(name), self.mutex(name));
                ops.extend([Op::Lock(mutex), Op::Wait(cond, mutex), Op::Unlock(mutex)]);
            }
            Event::Resume(name) => {
                let (cond, mutex) = (self.cond(name), self.mutex(name));
                ops.extend([Op::Lock(mutex), Op::Broad(cond), Op::Unlock(mutex)]);
            }
            Event::Barrier(name) => ops.push(Op::Barrier(self.barriers[name.as_str()])),
            Event::Mem(bytes) => ops.push(self.mem(*bytes)),
            Event::IoRun(bytes) => ops.extend(self.io(*bytes)),
            Event::Yield => ops.push(Op::Yield),
            Event::Fork(name) => {
                let target = self.file.tasks.iter().position(|t| t.name == *name);
                ops.push(Op::Fork(target.expect("checked before")));
            }
        }
    }

    /// A timer is absolute if any of its uses says so: rt-app keeps that with the timer.
    fn timer(
        &mut self,
        task: &'a TaskDef,
        name: &'a str,
        period: Nanos,
        own: &mut Vec<&'a str>,
    ) -> Op {
        let is_absolute = |s: &Step| matches!(&s.event, Event::Timer { name: n, absolute: true, .. } if n == name);
        if Event::is_unique_timer(name) {
            let n = own
                .iter()
                .position(|known| *known == name)
                .unwrap_or_else(|| {
                    own.push(name);
                    own.len() - 1
                });
            let absolute = steps(task).any(is_absolute);
            return Op::Timer {
                timer: Timer::Own(n),
                period,
                absolute,
            };
        }
        let word = *self
            .timers
            .entry(name)
            .or_insert_with(|| self.world.new_word(UNUSED));
        let absolute = self.file.tasks.iter().flat_map(steps).any(is_absolute);
        Op::Timer {
            timer: Timer::Shared(word),
            period,
            absolute,
        }
    }

    fn mem(&self, bytes: u64) -> Op {
        let work = u128::from(bytes) * u128::from(self.args.get("mem_ns_per_kib")) / 1024;
        let touched = bytes.min(self.global().mem_buffer_size) / 1024;
        let touched = u32::try_from(touched).unwrap_or(u32::MAX);
        Op::Mem {
            work: u64::try_from(work).unwrap_or(u64::MAX / 4),
            footprint_kib: touched.saturating_add(self.args.get_u32("footprint_kib")),
        }
    }

    /// Writes of at most a buffer each; their times are added up.
    fn io(&self, bytes: u64) -> Option<Op> {
        let writes = u128::from(bytes.div_ceil(self.global().mem_buffer_size));
        let null = self.global().io_device == "/dev/null";
        let (each, per_kib) = if null {
            (self.args.get("null_write"), 0)
        } else {
            (self.args.get("io_latency"), self.args.get("io_ns_per_kib"))
        };
        let ns = writes * u128::from(each) + u128::from(bytes) * u128::from(per_kib) / 1024;
        let ns = u64::try_from(ns).unwrap_or(u64::MAX / 4);
        match (bytes, null) {
            (0, _) => None,
            (_, true) => Some(Op::Write(ns)),
            (_, false) => Some(Op::Io(ns)),
        }
    }
}

/// A thread neither locks what it holds, nor unlocks or waits with what it does not hold, nor carries a
/// lock from one pass of a loop into the next, nor out of its life.
fn check_locks(origin: Origin<'_>, task: &TaskDef) -> Result<(), SimError> {
    let mut held: Vec<(&str, Place)> = Vec::new();
    for phase in &task.phases {
        let before = held.clone();
        for step in &phase.events {
            check_lock(origin, task, step, &mut held)?;
        }
        if phase.repeat != Repeat::Times(1) {
            let gained = held.iter().find(|lock| !before.contains(lock));
            let lost = before.iter().find(|lock| !held.contains(lock));
            if let Some((name, at)) = gained.or(lost) {
                let what = format!(
                    "phase `{}` loops and does not leave `{name}` as it found it; lock and unlock it \
                     within the phase",
                    phase.name
                );
                return Err(origin.error(*at, what));
            }
        }
    }
    match held.first() {
        None => Ok(()),
        Some((name, at)) => {
            let what =
                format!("`{name}` is still locked when the task ends or starts over; unlock it");
            Err(origin.error(*at, what))
        }
    }
}

fn check_lock<'a>(
    origin: Origin<'_>,
    task: &'a TaskDef,
    step: &'a Step,
    held: &mut Vec<(&'a str, Place)>,
) -> Result<(), SimError> {
    let place = |name: &str| held.iter().position(|(n, _)| *n == name);
    match &step.event {
        Event::Lock(name) => match place(name) {
            Some(i) => {
                let what = format!(
                    "`{name}` is locked already, at {}; unlock it first",
                    held[i].1
                );
                Err(origin.error(step.at, what))
            }
            None => {
                held.push((name, step.at));
                Ok(())
            }
        },
        Event::Unlock(name) => match place(name) {
            Some(i) => {
                held.remove(i);
                Ok(())
            }
            None => Err(origin.error(
                step.at,
                format!("`{name}` is not locked here; lock it before"),
            )),
        },
        Event::Wait { mutex, .. } | Event::Sync { mutex, .. } if place(mutex).is_none() => {
            let what = format!("needs `{mutex}` locked, which it is not; lock it before");
            Err(origin.error(step.at, what))
        }
        Event::Suspend(name) | Event::Resume(name) => {
            let name = if name.is_empty() { &task.name } else { name };
            match place(name) {
                Some(i) => {
                    let what = format!(
                        "suspend and resume lock a mutex of their own name, and `{name}` is locked \
                         since {}; rename one",
                        held[i].1
                    );
                    Err(origin.error(step.at, what))
                }
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
