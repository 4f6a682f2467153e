// SPDX-License-Identifier: GPL-2.0-only
//! `cfs-3.9`: the fair class of Linux 3.9, with its balancer by `cpu_power` and rounded slots.
//!
//! 1. Tasks of a CPU run in order of virtual runtime, as in later versions ([`super::fair::cfs`]).
//! 2. A new task goes to the group of least load per power, and in it to the least loaded CPU; a woken one
//!    to prev or the waker's CPU, or an idle CPU beside it ([`place`]).
//! 3. CPUs balance at ticks, when they are about to idle, and, idle ones, when a busy CPU kicks one of
//!    them. How much load moves is computed from load over power and from power rounded to whole slots
//!    ([`group`], [`balance`]).
//!
//! | variant | what is added |
//! |---|---|
//! | `cfs-3.9+shi` | Shi's set: the balancer and wakeups use the decaying load of tasks ([`load`]) |
//! | `cfs-3.9+mixed-capacity` | the proposal's two patches on top of that ([`group`]) |
//!
//! Two things that the posting does not say are read so that its results follow, each a parameter:
//!
//! - `fork`: Shi's sets of those months also replaced the walk down the domains at fork and exec by one
//!   search over all CPUs for the least loaded, the lowest number first (`flat`, the default of the
//!   variants). The A15s have the lowest numbers, so a lone thread is always born on one: the published
//!   column. With `domains`, as in 3.9, it is born on the cluster where its parent is not, and stays.
//! - `shell`: where the shell is that starts the first task; fork and exec balancing go on from there.
//!   The default `alternate` puts it on the strongest CPUs for even seeds and on the weakest for odd ones:
//!   a shell whose command ends in a pipe is pulled, at the exit of the pipe's other end, into the other
//!   cluster at every run. The published mean of one thread is that of the two values to 0.01 s.
//!
//! Not modelled: group scheduling, bandwidth, real-time tasks (they run as nice 0 here) and their share of
//! `cpu_power`. The tick of an idle CPU counts as stopped at once, as it did before 4.17.

mod balance;
mod domain;
mod group;
mod load;
mod place;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::domain::Domain;
use self::load::{CpuLoad, TaskLoad};
use super::fair::cfs;
use super::fair::config::CfsTimes;
use super::fair::rq::{Rq as CfsRq, Tasks};
use super::fair::task::Task as CfsTask;
use super::fair::weight;
use super::fair::work;
use super::{EnqueueWhy, Host, Placement, Policy, StopWhy, WakeInfo, WakeKind};
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::{Cpu, LineId, Nanos, StatId, TaskId};
use crate::params::Params;
use crate::task::State;

/// `sysctl_sched_migration_cost`.
const MIGRATION_COST_NS: Nanos = 500_000;
/// Plain work of one placement. Assumed.
const SELECT_NS: Nanos = 150;
/// Plain work of a balancing attempt per CPU looked at. Assumed.
const BALANCE_CPU_NS: Nanos = 60;

/// How long the machine has been up when a run starts, in ticks: longer than any balancing interval.
const UP_TICKS: u64 = 100_000;

/// Why a task goes where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Reason {
    /// prev, idle or not.
    Prev,
    /// The waker's CPU.
    Affine,
    /// An idle CPU that shares the target's cache.
    IdleSibling,
    /// Fork balancing stays.
    Here,
    /// Fork balancing moves.
    Fork,
    /// Exec balancing moves.
    Exec,
}

const REASONS: &[&str] = &["prev", "affine", "idle-sibling", "here", "fork", "exec"];

/// Where the shell is that starts the first task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shell {
    Alternate,
    Strong,
    Weak,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    /// Shi's set.
    decaying_load: bool,
    /// Fork and exec look at all CPUs at once (see the module).
    flat_fork: bool,
    /// The proposal's two patches.
    patches: bool,
    shell: Shell,
}

/// A run queue with what the balancer needs.
struct Rq {
    rq: CfsRq,
    line: LineId,
    load: CpuLoad,
    /// Tasks in the order in which the balancer looks at them: last enqueued first.
    order: VecDeque<TaskId>,
    /// Tick of the next balancing.
    next_balance: u64,
    /// Where a stopper that has been asked for pushes to.
    push_to: Option<Cpu>,
    idle_since: Option<Nanos>,
    avg_idle: Nanos,
    kicked: bool,
}

#[derive(Default)]
struct Nohz {
    idle: CpuSet,
    next_balance: u64,
}

#[derive(Default)]
struct Stats {
    kicks: StatId,
    moved: StatId,
    newidle_moved: StatId,
    active: StatId,
}

/// See the module.
pub struct Cfs39 {
    name: &'static str,
    options: Options,
    times: CfsTimes,
    tasks: Tasks,
    loads: Vec<TaskLoad>,
    rqs: Vec<Rq>,
    /// By CPU number, innermost level first.
    domains: Vec<Vec<Domain>>,
    powers: Vec<u64>,
    nohz: Nohz,
    stats: Stats,
    /// Load of a task that is not modelled, while it matters: the shell, or a task at its exec.
    phantom_load: Option<(Cpu, u64)>,
    /// A CPU balances because it is about to idle: it picks next.
    picking: bool,
}

const FORKS: &[&str] = &["domains", "flat"];

/// Makes the variant of this name.
///
/// # Errors
/// A parameter with a bad value.
pub fn build(params: &mut Params, name: &'static str) -> Result<Box<dyn Policy>, SimError> {
    let decaying_load = name != "cfs-3.9";
    let options = Options {
        decaying_load,
        flat_fork: params.choice(
            "fork",
            if decaying_load { "flat" } else { "domains" },
            FORKS,
        )? == "flat",
        patches: name == "cfs-3.9+mixed-capacity",
        shell: match params.choice("shell", "alternate", &["alternate", "strong", "weak"])? {
            "strong" => Shell::Strong,
            "weak" => Shell::Weak,
            _ => Shell::Alternate,
        },
    };
    Ok(Box::new(Cfs39::new(name, options)))
}

impl Cfs39 {
    fn new(name: &'static str, options: Options) -> Self {
        Cfs39 {
            name,
            options,
            times: CfsTimes::BASE,
            tasks: Tasks::new(),
            loads: Vec::new(),
            rqs: Vec::new(),
            domains: Vec::new(),
            powers: Vec::new(),
            nohz: Nohz::default(),
            stats: Stats::default(),
            phantom_load: None,
            picking: false,
        }
    }

    fn rq(&mut self, cpu: Cpu) -> &mut Rq {
        &mut self.rqs[cpu.0 as usize]
    }

    /// Number of ticks (jiffies).
    fn jiffies(host: &Host) -> u64 {
        UP_TICKS + host.ticks()
    }

    /// `weighted_cpuload()`.
    fn cpu_load(&self, cpu: Cpu) -> u64 {
        let rq = &self.rqs[cpu.0 as usize];
        let load = match self.options.decaying_load {
            false => rq.rq.weight,
            true => rq.load.runnable,
        };
        let phantom = self
            .phantom_load
            .filter(|(c, _)| *c == cpu)
            .map_or(0, |(_, l)| l);
        load + phantom
    }

    /// What a task adds to the load of its CPU.
    fn task_load(&self, task: TaskId) -> u64 {
        match self.options.decaying_load {
            true => self.loads[task.index()].contrib,
            false => self.tasks[task.index()].weight,
        }
    }

    /// Where the shell is that starts a task without parent.
    fn shell_cpu(&self, host: &Host) -> Cpu {
        let strong = match self.options.shell {
            Shell::Alternate => host.seed().is_multiple_of(2),
            Shell::Strong => true,
            Shell::Weak => false,
        };
        let machine = host.machine();
        let power = |c: &Cpu| self.powers[c.0 as usize];
        let cpus = machine.cpus().iter().copied();
        // The first of equals either way.
        let found = match strong {
            true => cpus.min_by_key(|c| std::cmp::Reverse(power(c))),
            false => cpus.min_by_key(power),
        };
        found.expect("a machine has CPUs")
    }

    /// A task without parent is forked by the shell and then calls exec.
    fn place_root(&mut self, host: &mut Host, wake: &WakeInfo) -> (Cpu, Reason) {
        let allowed = host.task(wake.task).allowed().clone();
        let shell = self.shell_cpu(host);
        // The shell runs while it forks: a weight of nice 0, but hardly any decaying load.
        let running = if self.options.decaying_load {
            0
        } else {
            weight::NICE_0
        };
        self.phantom_load = Some((shell, running));
        let born = self.balance_place(host, &allowed, shell);
        self.phantom_load = Some((born, self.task_load(wake.task)));
        let cpu = self.balance_place(host, &allowed, born);
        self.phantom_load = None;
        (cpu, Reason::Exec)
    }

    // ---- books ----

    /// Brings a task's load up to date; `runnable` since the last time.
    fn sync_load(&mut self, host: &Host, task: TaskId, runnable: bool) {
        let weight = self.tasks[task.index()].weight;
        let load = &mut self.loads[task.index()];
        let before = load.contrib;
        load.update(host.now(), runnable, weight);
        let after = load.contrib;
        if runnable {
            let cpu = self.tasks[task.index()].cpu;
            let sum = &mut self.rq(cpu).load.runnable;
            *sum = *sum + after - before;
        }
    }

    fn account(&mut self, host: &Host, cpu: Cpu) {
        let rq = &mut self.rqs[cpu.0 as usize].rq;
        cfs::update_curr(rq, &mut self.tasks, host.now());
        if let Some(curr) = rq.curr {
            self.sync_load(host, curr, true);
        }
    }

    /// A task joins a queue.
    fn join(&mut self, host: &Host, task: TaskId, cpu: Cpu, woken: bool) {
        let old = self.tasks[task.index()].cpu;
        if old != cpu {
            cfs::make_relative(&self.rqs[old.0 as usize].rq, &mut self.tasks, task);
        }
        if woken {
            self.sync_load(host, task, false);
        }
        let rq = &mut self.rqs[cpu.0 as usize];
        cfs::update_curr(&mut rq.rq, &mut self.tasks, host.now());
        cfs::enqueue(&self.times, &mut rq.rq, &mut self.tasks, task, woken);
        rq.order.push_front(task);
        rq.load.runnable += self.loads[task.index()].contrib;
    }

    /// A task leaves its queue, waiting or current.
    fn leave(&mut self, host: &Host, task: TaskId, sleeps: bool) {
        let cpu = self.tasks[task.index()].cpu;
        self.sync_load(host, task, true);
        let contrib = self.loads[task.index()].contrib;
        let rq = &mut self.rqs[cpu.0 as usize];
        cfs::update_curr(&mut rq.rq, &mut self.tasks, host.now());
        cfs::dequeue(&mut rq.rq, &mut self.tasks, task, sleeps);
        rq.order.retain(|&t| t != task);
        rq.load.runnable -= contrib;
    }

    /// After a task has joined: preempt, or wake the CPU.
    fn check_preempt(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        if host.is_idle(cpu) {
            host.resched(cpu);
            return;
        }
        let rq = &mut self.rqs[cpu.0 as usize].rq;
        if cfs::wakeup_preempts(&self.times, rq, &self.tasks, task) {
            host.resched(cpu);
        }
    }

    /// `avg_idle`: how long this CPU idles, averaged when it is woken.
    fn note_idle_end(&mut self, now: Nanos, cpu: Cpu) {
        let rq = self.rq(cpu);
        let Some(since) = rq.idle_since.take() else {
            return;
        };
        let (idle, most) = (now.saturating_sub(since), 2 * MIGRATION_COST_NS);
        rq.avg_idle = match idle > most {
            true => most,
            false => (rq.avg_idle as i64 + (idle as i64 - rq.avg_idle as i64) / 8) as Nanos,
        };
    }
}

impl Policy for Cfs39 {
    fn name(&self) -> &str {
        self.name
    }

    fn reasons(&self) -> &'static [&'static str] {
        REASONS
    }

    fn is_fair_class(&self) -> bool {
        true
    }

    fn limits(&self) -> &'static [&'static str] {
        &["no group scheduling in the fair class; real-time tasks run as nice 0"]
    }

    fn attach(&mut self, host: &mut Host) {
        let machine = std::sync::Arc::clone(host.machine());
        self.times = CfsTimes {
            slice_floor: false,
            ..CfsTimes::BASE
        }
        .scaled(machine.cpus().len());
        self.powers = domain::powers(&machine);
        self.domains = domain::build(&machine);
        let class = host.line_class("rq-lock");
        let lines = host.new_lines(class, machine.nr_cpu_numbers());
        let new = |(i, line): (usize, LineId)| Rq {
            // Its own load tracking is that of later kernels, and not used here.
            rq: CfsRq::new(Cpu(i as u32), 1024),
            line,
            load: CpuLoad::default(),
            order: VecDeque::new(),
            next_balance: 0,
            push_to: None,
            idle_since: None,
            avg_idle: 2 * MIGRATION_COST_NS,
            kicked: false,
        };
        self.rqs = lines.into_iter().enumerate().map(new).collect();
        // When each CPU last balanced each level is as chance has it.
        for domain in self.domains.iter_mut().flatten() {
            let interval = domain.interval_ticks(group::Idle::Not, machine.tick_ns(), u64::MAX);
            domain.balanced_at = UP_TICKS - host.rng().below(interval + 1);
        }
        self.stats = Stats {
            kicks: host.stat("nohz_kicks"),
            moved: host.stat("balance_moved"),
            newidle_moved: host.stat("newidle_moved"),
            active: host.stat("active_balances"),
        };
    }

    fn task_new(&mut self, host: &mut Host, task: TaskId, parent: Option<TaskId>) {
        let cpu = parent.map_or(host.this_cpu(), |p| host.task(p).cpu());
        let new = CfsTask::new(host.task(task).class(), cpu);
        let weight = new.weight;
        debug_assert_eq!(self.tasks.len(), task.index());
        self.tasks.push(new);
        self.loads.push(TaskLoad::new(host.now(), weight));
        let rq = &mut self.rqs[cpu.0 as usize].rq;
        cfs::update_curr(rq, &mut self.tasks, host.now());
        cfs::place_new(&self.times, rq, &mut self.tasks, task);
    }

    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement {
        host.charge(SELECT_NS);
        let root = wake.kind == WakeKind::Fork && host.task(wake.task).parent().is_none();
        let (cpu, reason) = match root {
            true => self.place_root(host, wake),
            false => self.choose(host, wake),
        };
        Placement {
            cpu,
            reason: reason as u16,
        }
    }

    /// TTWU_QUEUE: from another last-level cache, unless the task is new.
    fn remote_wake(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, waker_cpu: Cpu) -> bool {
        let queue =
            host.task(task).last_ran().is_some() && !host.machine().same_llc(cpu, waker_cpu);
        if queue {
            host.access(self.rq(cpu).line, Access::Rmw);
        }
        queue
    }

    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: EnqueueWhy) {
        let woken = matches!(
            why,
            EnqueueWhy::Placed {
                kind: WakeKind::Wake,
                ..
            }
        );
        let line = self.rq(cpu).line;
        let at = host.lock(line);
        host.charge(work::QUEUE_NS);
        self.note_idle_end(host.now(), cpu);
        self.join(host, task, cpu, woken);
        self.check_preempt(host, task, cpu);
        host.unlock(line, at);
    }

    fn dequeue(&mut self, host: &mut Host, task: TaskId) {
        host.charge(work::QUEUE_NS);
        self.leave(host, task, false);
    }

    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        host.charge(work::PICK_NS);
        if self.rq(cpu).rq.nr == 0 {
            self.newidle_balance(host, cpu);
        }
        let rq = &mut self.rqs[cpu.0 as usize].rq;
        let next = cfs::pick(&self.times, rq, &self.tasks)?;
        cfs::set_next(rq, &mut self.tasks, next, host.now());
        self.sync_load(host, next, true);
        Some(next)
    }

    fn put_prev(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        self.account(host, cpu);
        let rq = &mut self.rqs[cpu.0 as usize].rq;
        if why == StopWhy::Yielded {
            cfs::yield_curr(rq);
        }
        if why.is_runnable() {
            cfs::put_prev(rq, &mut self.tasks, task);
            return;
        }
        host.charge(work::QUEUE_NS);
        self.leave(host, task, why == StopWhy::Slept);
    }

    fn tick(&mut self, host: &mut Host, cpu: Cpu, _curr: TaskId) {
        self.account(host, cpu);
        let jiffies = Self::jiffies(host);
        let load = self.cpu_load(cpu);
        let rq = &mut self.rqs[cpu.0 as usize];
        rq.load.tick(jiffies, load);
        if cfs::tick(&self.times, &mut rq.rq, &self.tasks) {
            host.resched(cpu);
        }
        self.nohz_tick(host, cpu);
        if jiffies >= self.rq(cpu).next_balance {
            self.rebalance(host, cpu, group::Idle::Not);
        }
    }

    fn idle_enter(&mut self, _host: &mut Host, cpu: Cpu, _again: bool) {
        // Before 4.17 the tick stopped at once, whatever the idle governor expected.
        self.nohz.idle.insert(cpu);
    }

    fn ipi(&mut self, host: &mut Host, cpu: Cpu, _cookie: u64) {
        self.nohz_balance(host, cpu);
    }

    fn stopper(&mut self, host: &mut Host, cpu: Cpu, _cookie: u64) {
        self.push_running(host, cpu);
    }

    fn class_changed(&mut self, host: &mut Host, task: TaskId) {
        let class = host.task(task).class();
        let queued = host.task(task).state() == State::Queued && self.tasks[task.index()].on_rq;
        let cpu = self.tasks[task.index()].cpu;
        if queued {
            self.leave(host, task, false);
        } else {
            self.account(host, cpu);
        }
        let running = self.rq(cpu).rq.curr == Some(task);
        let new = weight::of(class);
        let old = std::mem::replace(&mut self.tasks[task.index()].weight, new);
        self.tasks[task.index()].class = class;
        if queued {
            self.join(host, task, cpu, false);
            self.check_preempt(host, task, cpu);
        } else if running {
            let rq = &mut self.rq(cpu).rq;
            rq.weight = rq.weight - old + new;
        }
    }

    fn idle_bound_ns(&self, _host: &Host, task: TaskId, cpu: Cpu) -> Option<Nanos> {
        // Slots are rounded: an idle CPU beside a queue is what this balancer is known for.
        (self.tasks[task.index()].cpu == cpu).then_some(10_000_000)
    }
}
