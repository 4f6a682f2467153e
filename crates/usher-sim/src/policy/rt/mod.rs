// SPDX-License-Identifier: GPL-2.0-only
//! `rt`: the kernel's real-time class, `SCHED_FIFO` and `SCHED_RR`, over the CPU priority map.
//!
//! 1. A CPU runs the task of highest priority in its queue, first come first served among equals.
//! 2. A task that wakes stays on its last CPU, unless a task of its priority or above runs there: then
//!    the map names the CPUs of lowest priority, and the nearest gets it.
//! 3. A CPU that ends up with a queued task that could run elsewhere pushes: after a wakeup that did not
//!    preempt, and whenever it picks ([`push_pull`]).
//! 4. A CPU whose priority drops asks the overloaded CPUs, by interrupt, to push ([`overload`]).
//!
//! The map, and the lines of the root domain that all CPUs share, are in [`map`] and [`layout`]. Switches
//! are the four patches of the series that split them, and usher's map by shards:
//!
//! | variant | parameter | what |
//! |---|---|---|
//! | `rt+pad-counts` | `pad_counts=true` | patch 1: a line per count and per mask pointer |
//! | `rt+reorder` | `reorder=true` | patch 2: `struct root_domain` in another order |
//! | `rt+node-rto-count` | `node_rto_count=true` | patch 3: the overload count per node |
//! | `rt+node-cpupri` | `map=node` | patch 4: the bitmaps per node, stored inverted |
//! | `rt+llc-cpupri` | `map=core`, `granularity=llc` | the placement core's map, leaves of an LLC on lines of their own |
//! | `rt+shard-cpupri` | `map=core`, `granularity=shard` | the same, leaves of a shard |
//!
//! Over the placement core's map ([`core_map`]) the core itself decides whom to preempt.
//!
//! `overloaded_reads` says who looks at `rd->overloaded`: as `add_nr_running()` has it, a task that joins as
//! the second of its CPU (`second`), or every task that joins or leaves (`always`), which is how the
//! series describes the traffic on that line. The ranking of the patches depends on it.
//!
//! Tasks that are not real-time run in a small fair scheduler below ([`below`]). Not modelled: the
//! throttling of real-time tasks, deadline tasks, and tasks that disable migration.

mod below;
mod core_map;
mod layout;
mod map;
mod overload;
mod push_pull;
mod queue;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use usher_core::Granularity;

use self::below::Below;
use self::core_map::Shape;
use self::layout::{Form, Layout, Switches, LEVELS};
use self::map::{Level, Map};
use self::overload::Overload;
use self::queue::{Queued, RtQueue};
use super::mask::Word;
use super::{EnqueueWhy, Host, Placement, Policy, StopWhy, WakeInfo, WakeKind};
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::{Cpu, LineId, Nanos, StatId, TaskId};
use crate::params::Params;
use crate::program::Class;
use crate::task::State;

/// `sched_rr_timeslice_ms`.
const RR_SLICE_NS: Nanos = 100_000_000;
/// Plain work of a queue operation. Assumed.
const QUEUE_OP_NS: Nanos = 40;

/// Why a task goes where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Reason {
    /// Real-time: it preempts what runs on its last CPU.
    RtPrev,
    /// Real-time: the map named a CPU.
    RtLowest,
    /// Real-time: the map named none, or one that is no better.
    RtNowhere,
    /// Fair: its last CPU is idle.
    FairPrev,
    /// Fair: another CPU is idle.
    FairIdle,
    /// Fair: nobody is idle.
    FairQueue,
    /// `exec` stays where it is.
    Stays,
}

const REASONS: &[&str] = &[
    "rt-prev",
    "rt-lowest",
    "rt-nowhere",
    "fair-prev",
    "fair-idle",
    "fair-queue",
    "stays",
];

/// Where a task waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Rt(Cpu, Queued),
    Fair(Cpu),
}

#[derive(Clone, Copy, Default)]
struct TaskState {
    place: Place,
    /// `SCHED_RR`: how much of its slice it has used, and [`Host::runtime`] at that point.
    rr_used: Nanos,
    rr_at: Nanos,
    /// Its slice is over: it goes to the end of its queue.
    rr_over: bool,
}

/// A CPU's run queue.
struct Rq {
    queue: RtQueue,
    line: LineId,
    /// What runs, from `pick_next` to `put_prev`, and its real-time priority (0: fair).
    curr: Option<TaskId>,
    curr_prio: u8,
    overloaded: bool,
    /// Where the last `cpumask_any_and_distribute()` of this CPU ended.
    rotor: u32,
    domains: Vec<CpuSet>,
}

impl Rq {
    /// The CPU's level: of the running or the first queued real-time task, 0 if there is none.
    fn top(&self) -> Level {
        self.curr_prio.max(self.queue.top())
    }
}

#[derive(Default)]
struct Stats {
    pushes: StatId,
    push_failures: StatId,
    pull_rounds: StatId,
    pull_interrupts: StatId,
    finds: StatId,
    finds_failed: StatId,
    phantoms: StatId,
}

/// What the parameters say.
#[derive(Clone, Copy, Debug)]
struct Options {
    switches: Switches,
    late_cpus: u64,
    word_stats: bool,
    /// `rd->overloaded` is looked at by every task that joins or leaves, not only by a CPU's second.
    overloaded_always: bool,
}

/// See the module.
pub struct Rt {
    name: String,
    options: Options,
    rqs: Vec<Rq>,
    tasks: Vec<TaskState>,
    below: Below,
    shared: Option<Shared>,
    stats: Stats,
    level_seen: [bool; LEVELS],
}

/// What all CPUs share: the hot part of the root domain.
struct Shared {
    map: Map,
    overload: Overload,
    overloaded_word: Word,
    /// `rd->overloaded`: some CPU has more than one task.
    overloaded: bool,
    asymmetric: bool,
}

/// Which map, and of the core's the layout.
fn form(params: &mut Params, preset: Form) -> Result<Form, SimError> {
    let (name, granularity) = match preset {
        Form::Global => ("global", Granularity::Shard),
        Form::Node => ("node", Granularity::Shard),
        Form::Core(shape) => ("core", shape.granularity),
    };
    Ok(
        match params.choice("map", name, &["global", "node", "core"])? {
            "node" => Form::Node,
            "core" => {
                let names = Granularity::ALL.iter().map(|g| g.as_str());
                let names: Vec<&str> = names.collect();
                let granularity = params.choice("granularity", granularity.as_str(), &names)?;
                let shape = Shape::of(granularity.parse().expect("one of the names given"));
                let width = u64::from(shape.shard_width);
                Form::Core(Shape {
                    shard_width: params.u64("shard_width", width, 1..=64)? as u32,
                    strict: params.bool("strict", shape.strict)?,
                    ..shape
                })
            }
            _ => Form::Global,
        },
    )
}

/// Makes a variant; `name` is what it was asked for by, `preset` its switches.
fn build_with(
    params: &mut Params,
    name: &str,
    preset: Switches,
) -> Result<Box<dyn Policy>, SimError> {
    let switches = Switches {
        pad_counts: params.bool("pad_counts", preset.pad_counts)?,
        reorder: params.bool("reorder", preset.reorder)?,
        node_rto_count: params.bool("node_rto_count", preset.node_rto_count)?,
        form: form(params, preset.form)?,
    };
    let options = Options {
        switches,
        late_cpus: params.u64("late_cpus", 0, 0..=usher_topo::MAX_CPUS as u64)?,
        word_stats: params.bool("word_stats", true)?,
        overloaded_always: params.choice("overloaded_reads", "second", &["second", "always"])?
            == "always",
    };
    Ok(Box::new(Rt {
        name: name.into(),
        options,
        rqs: Vec::new(),
        tasks: Vec::new(),
        below: Below::default(),
        shared: None,
        stats: Stats::default(),
        level_seen: [false; LEVELS],
    }))
}

const fn over_core(granularity: Granularity) -> Switches {
    Switches {
        form: Form::Core(Shape::of(granularity)),
        ..Switches::BASELINE
    }
}

/// Names and switches of the variants.
const VARIANTS: &[(&str, Switches)] = &[
    ("rt", Switches::BASELINE),
    (
        "rt+pad-counts",
        Switches {
            pad_counts: true,
            ..Switches::BASELINE
        },
    ),
    (
        "rt+reorder",
        Switches {
            reorder: true,
            ..Switches::BASELINE
        },
    ),
    (
        "rt+node-rto-count",
        Switches {
            node_rto_count: true,
            ..Switches::BASELINE
        },
    ),
    (
        "rt+node-cpupri",
        Switches {
            form: Form::Node,
            ..Switches::BASELINE
        },
    ),
    ("rt+llc-cpupri", over_core(Granularity::Llc)),
    ("rt+shard-cpupri", over_core(Granularity::Shard)),
];

/// Makes the variant of this name.
///
/// # Errors
/// A parameter with a bad value.
///
/// # Panics
/// If there is no such variant.
pub fn build(params: &mut Params, name: &str) -> Result<Box<dyn Policy>, SimError> {
    let (_, preset) = VARIANTS
        .iter()
        .find(|(n, _)| *n == name)
        .expect("a variant of this policy");
    build_with(params, name, *preset)
}

impl Rt {
    fn rq(&mut self, cpu: Cpu) -> &mut Rq {
        &mut self.rqs[cpu.0 as usize]
    }

    fn shared(&mut self) -> &mut Shared {
        self.shared.as_mut().expect("attach comes first")
    }

    fn state(&mut self, task: TaskId) -> &mut TaskState {
        &mut self.tasks[task.index()]
    }

    /// Tells the map a CPU's level, if it changed.
    fn publish_level(&mut self, host: &mut Host, cpu: Cpu) {
        let level = self.rq(cpu).top();
        let count_words = self.options.word_stats && !self.level_seen[usize::from(level)];
        let map = &mut self.shared.as_mut().expect("attach comes first").map;
        if map.level_of(cpu) == level {
            return;
        }
        if count_words {
            self.level_seen[usize::from(level)] = true;
            map.count_words(host, level);
        }
        map.set(host, cpu, level);
    }

    /// Tells the root domain whether a CPU has something to push, if that changed.
    fn publish_overload(&mut self, host: &mut Host, cpu: Cpu) {
        let rq = &mut self.rqs[cpu.0 as usize];
        let now = rq.queue.has_pushable();
        if now == std::mem::replace(&mut rq.overloaded, now) {
            return;
        }
        let overload = &mut self.shared().overload;
        match now {
            true => overload.set(host, cpu),
            false => overload.clear(host, cpu),
        }
    }

    /// A task is about to join: if it is the second on its CPU, `rd->overloaded` is looked at, and set if
    /// it is not (`add_nr_running()`).
    fn note_second(&mut self, host: &mut Host, cpu: Cpu) {
        let rq = &self.rqs[cpu.0 as usize];
        let nr = rq.queue.len() + self.below.nr_waiting(cpu) + usize::from(rq.curr.is_some());
        if nr != 1 && !self.options.overloaded_always {
            return;
        }
        let shared = self.shared.as_mut().expect("attach comes first");
        shared.overloaded_word.access(host, Access::Read);
        if nr == 1 && !shared.overloaded {
            shared.overloaded_word.access(host, Access::Write);
            shared.overloaded = true;
        }
    }

    /// Puts a real-time task into a CPU's queue (`enqueue_task_rt()`): the level goes up before the task
    /// becomes pushable.
    fn insert_rt(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, front: bool) {
        host.charge(QUEUE_OP_NS);
        let prio = host.task(task).class().rt_prio();
        let movable = host.task(task).nr_allowed() > 1;
        let queued = self.rq(cpu).queue.insert(task, prio, front, movable);
        self.state(task).place = Place::Rt(cpu, queued);
        self.publish_level(host, cpu);
        self.publish_overload(host, cpu);
    }

    /// Takes a real-time task out of a CPU's queue.
    fn remove_rt(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, queued: Queued) {
        host.charge(QUEUE_OP_NS);
        self.rq(cpu).queue.remove(task, queued);
        self.state(task).place = Place::Nowhere;
        self.publish_overload(host, cpu);
        self.publish_level(host, cpu);
    }

    fn insert_fair(&mut self, task: TaskId, cpu: Cpu) {
        self.below.insert(task, cpu);
        self.state(task).place = Place::Fair(cpu);
    }

    /// A real-time task has joined the queue of `cpu`: preempt, or see who else could take it.
    fn joined_rt(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        let prio = host.task(task).class().rt_prio();
        let (curr, curr_prio) = (self.rq(cpu).curr, self.rq(cpu).curr_prio);
        let Some(curr) = curr else {
            host.resched(cpu);
            return;
        };
        if prio > curr_prio {
            host.resched(cpu);
        } else if prio == curr_prio && !host.needs_resched(cpu) {
            self.preempt_equal(host, task, curr, cpu);
        }
        let pinned = host.task(curr).nr_allowed() < 2;
        let movable = host.task(task).nr_allowed() > 1;
        let resched = host.needs_resched(cpu);
        if movable && !resched && curr_prio > 0 && (pinned || curr_prio >= prio) {
            self.push_all(host, cpu);
        }
    }

    fn enqueue_rt(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        let line = self.rq(cpu).line;
        let at = host.lock(line);
        self.note_second(host, cpu);
        self.insert_rt(host, task, cpu, false);
        self.joined_rt(host, task, cpu);
        host.unlock(line, at);
    }

    fn enqueue_fair(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        let line = self.rq(cpu).line;
        let at = host.lock(line);
        self.note_second(host, cpu);
        self.insert_fair(task, cpu);
        let (curr, curr_prio) = (self.rq(cpu).curr, self.rq(cpu).curr_prio);
        match curr {
            None => host.resched(cpu),
            Some(curr) if curr_prio == 0 && self.below.preempts(host, task, curr) => {
                host.resched(cpu);
            }
            Some(_) => {}
        }
        host.unlock(line, at);
    }

    /// The next fair task: the own queue's, else another's, if somebody has two.
    fn pick_fair(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        if let Some(task) = self.below.pick(host, cpu) {
            return Some(task);
        }
        let shared = self.shared.as_mut().expect("attach comes first");
        shared.overloaded_word.access(host, Access::Read);
        if !shared.overloaded {
            return None;
        }
        let found = self.below.steal(host, cpu);
        if found.is_none() {
            // A scan of the whole machine found nobody with two tasks.
            let shared = self.shared.as_mut().expect("attach comes first");
            shared.overloaded_word.access(host, Access::Write);
            shared.overloaded = false;
        }
        found
    }

    fn account_rr(&mut self, host: &Host, task: TaskId) {
        let runtime = host.runtime(task);
        let state = self.state(task);
        state.rr_used += runtime - std::mem::replace(&mut state.rr_at, runtime);
    }

    fn select_rt(&mut self, host: &mut Host, wake: &WakeInfo) -> (Cpu, Reason) {
        let task = wake.task;
        let prio = host.task(task).class().rt_prio();
        let prev_ok = host.task(task).may_run_on(wake.prev);
        let home = match prev_ok {
            true => wake.prev,
            false => {
                let usable = host.machine().online().and(host.task(task).allowed());
                usable.first().expect("a task may run somewhere")
            }
        };
        let rq = &self.rqs[home.0 as usize];
        let (line, curr, curr_prio) = (rq.line, rq.curr, rq.curr_prio);
        host.access(line, Access::Read);
        let pinned = curr.is_some_and(|c| host.task(c).nr_allowed() < 2);
        let occupied = curr_prio > 0 && (pinned || curr_prio >= prio);
        let misfit = self.shared().asymmetric && !fits(host, home);
        if !occupied && !misfit && prev_ok {
            return (home, Reason::RtPrev);
        }
        let Some(target) = self.find_lowest(host, task, home) else {
            return (home, Reason::RtNowhere);
        };
        if prev_ok && !occupied && !fits(host, target) {
            return (home, Reason::RtPrev);
        }
        let rq = &self.rqs[target.0 as usize];
        host.access(rq.line, Access::Read);
        match rq.top() < prio {
            true => (target, Reason::RtLowest),
            false => (home, Reason::RtNowhere),
        }
    }
}

/// Whether a CPU is strong enough for a real-time task, which asks for the full capacity unless told
/// otherwise (`uclamp_min` of real-time tasks is 1024 by default).
fn fits(host: &Host, cpu: Cpu) -> bool {
    let machine = host.machine();
    let strongest = machine.topo().tiers().first().map_or(0, |t| t.capacity);
    machine.cpu(cpu).capacity >= strongest
}

fn is_rt(host: &Host, task: TaskId) -> bool {
    host.task(task).class().rt_prio() > 0
}

impl Policy for Rt {
    fn name(&self) -> &str {
        &self.name
    }

    fn reasons(&self) -> &'static [&'static str] {
        REASONS
    }

    fn limits(&self) -> &'static [&'static str] {
        &["no throttling of real-time tasks; the fair class below them is an outline"]
    }

    fn attach(&mut self, host: &mut Host) {
        let machine = Arc::clone(host.machine());
        let nr = machine.nr_cpu_numbers();
        let rq_class = host.line_class("rq-lock");
        let lines = host.new_lines(rq_class, nr);
        self.rqs = lines
            .into_iter()
            .enumerate()
            .map(|(i, line)| {
                let cpu = Cpu(i as u32);
                let online = machine.online().contains(cpu);
                Rq {
                    queue: RtQueue::default(),
                    line,
                    curr: None,
                    curr_prio: 0,
                    overloaded: false,
                    rotor: 0,
                    domains: if online {
                        below::domains(host, cpu)
                    } else {
                        Vec::new()
                    },
                }
            })
            .collect();
        self.below = Below::new(nr);
        let switches = self.options.switches;
        let layout = Layout::new(host, switches);
        let late = self.options.late_cpus as usize;
        let first_late = machine.cpus().len().saturating_sub(late);
        let late: CpuSet = machine.cpus()[first_late..].iter().copied().collect();
        let mut make = |class: &str, home| {
            let class = host.line_class(class);
            host.new_line(class, home)
        };
        let map = Map::new(&machine, &layout, switches, &late, &mut make);
        let mut overload = Overload::new(&machine, &layout);
        let mut overloaded_word = Word::on(layout.overloaded);
        if self.options.word_stats {
            overload.count_loads(host);
            overloaded_word.count_as(host, "rd_overloaded");
        }
        self.shared = Some(Shared {
            map,
            overload,
            overloaded_word,
            overloaded: false,
            asymmetric: machine.topo().tiers().len() > 1,
        });
        self.stats = Stats {
            pushes: host.stat("rt_pushes"),
            push_failures: host.stat("rt_pushes_failed"),
            pull_rounds: host.stat("rt_pull_rounds"),
            pull_interrupts: host.stat("rt_pull_interrupts"),
            finds: host.stat("cpupri_finds"),
            finds_failed: host.stat("cpupri_finds_failed"),
            phantoms: host.stat("cpupri_phantoms"),
        };
        for &cpu in machine.cpus() {
            self.publish_level(host, cpu);
        }
    }

    fn task_new(&mut self, _host: &mut Host, task: TaskId, _parent: Option<TaskId>) {
        self.tasks.resize(task.index() + 1, TaskState::default());
        self.below.add_task(task);
    }

    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement {
        if wake.kind == WakeKind::Exec {
            return Placement {
                cpu: wake.prev,
                reason: Reason::Stays as u16,
            };
        }
        let (cpu, reason) = if is_rt(host, wake.task) {
            self.select_rt(host, wake)
        } else {
            let (cpu, idle) = match wake.kind {
                WakeKind::Fork => self.below.select_fork(host, wake.task, wake.prev),
                _ => self.below.select(host, wake.task, wake.prev),
            };
            let reason = match (idle, cpu == wake.prev) {
                (true, true) => Reason::FairPrev,
                (true, false) => Reason::FairIdle,
                (false, _) => Reason::FairQueue,
            };
            (cpu, reason)
        };
        Placement {
            cpu,
            reason: reason as u16,
        }
    }

    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, _why: EnqueueWhy) {
        match is_rt(host, task) {
            true => self.enqueue_rt(host, task, cpu),
            false => self.enqueue_fair(host, task, cpu),
        }
    }

    fn dequeue(&mut self, host: &mut Host, task: TaskId) {
        match self.state(task).place {
            Place::Rt(cpu, queued) => {
                let line = self.rq(cpu).line;
                let at = host.lock(line);
                self.remove_rt(host, task, cpu, queued);
                host.unlock(line, at);
            }
            Place::Fair(cpu) => {
                self.below.remove(task, cpu);
                self.state(task).place = Place::Nowhere;
            }
            Place::Nowhere => {}
        }
    }

    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        let next = match self.rq(cpu).queue.first() {
            Some(task) => {
                let Place::Rt(_, queued) = self.state(task).place else {
                    unreachable!("a task in a real-time queue knows it");
                };
                self.rq(cpu).queue.remove(task, queued);
                self.rq(cpu).curr_prio = queued.prio;
                self.state(task).rr_at = host.runtime(task);
                Some(task)
            }
            None => self.pick_fair(host, cpu),
        };
        if let Some(task) = next {
            self.state(task).place = Place::Nowhere;
        }
        self.rq(cpu).curr = next;
        self.publish_overload(host, cpu);
        if self.rq(cpu).curr_prio > 0 && self.rq(cpu).queue.has_pushable() {
            self.push_all(host, cpu);
        }
        next
    }

    fn put_prev(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        let prio = std::mem::take(&mut self.rq(cpu).curr_prio);
        self.rq(cpu).curr = None;
        if prio == 0 {
            self.below.account(host, task);
            if why.is_runnable() {
                self.insert_fair(task, cpu);
            }
            return;
        }
        self.account_rr(host, task);
        if why.is_runnable() {
            let over = std::mem::take(&mut self.state(task).rr_over);
            let front = why == StopWhy::Preempted && !over;
            self.insert_rt(host, task, cpu, front);
            return;
        }
        // Its level goes down, and it may be somebody else's turn to run here.
        if self.options.overloaded_always {
            let word = self.shared().overloaded_word;
            word.access(host, Access::Read);
        }
        self.publish_level(host, cpu);
        if self.rq(cpu).top() < prio {
            self.pull(host, cpu);
        }
    }

    fn tick(&mut self, host: &mut Host, cpu: Cpu, curr: TaskId) {
        if self.rq(cpu).curr_prio == 0 {
            self.below.account(host, curr);
            if self.below.slice_over(host, cpu, curr) {
                host.resched(cpu);
            }
        } else if matches!(host.task(curr).class(), Class::RoundRobin { .. }) {
            self.account_rr(host, curr);
            if self.state(curr).rr_used >= RR_SLICE_NS {
                self.state(curr).rr_used = 0;
                if self.rq(cpu).queue.top() == self.rq(cpu).curr_prio {
                    self.state(curr).rr_over = true;
                    host.resched(cpu);
                }
            }
        }
        // What waits here could run on an idle CPU: tell it to look (the kernel's nohz balancing).
        if let Some(idle) = self.below.idle_helper(host, cpu) {
            host.resched(idle);
        }
    }

    fn ipi(&mut self, host: &mut Host, cpu: Cpu, _cookie: u64) {
        self.push_for_others(host, cpu);
    }

    fn class_changed(&mut self, host: &mut Host, task: TaskId) {
        match (host.task(task).state(), self.state(task).place) {
            (State::Queued, Place::Rt(cpu, queued)) => {
                self.remove_rt(host, task, cpu, queued);
                self.rejoin(host, task, cpu, queued.prio);
            }
            (State::Queued, Place::Fair(cpu)) => {
                self.below.remove(task, cpu);
                self.state(task).place = Place::Nowhere;
                self.rejoin(host, task, cpu, 0);
            }
            (State::Running, _) => self.curr_changed(host, task),
            _ => {}
        }
    }

    fn idle_bound_ns(&self, host: &Host, task: TaskId, cpu: Cpu) -> Option<Nanos> {
        let tick = host.machine().tick_ns();
        match self.tasks[task.index()].place {
            Place::Rt(owner, _) | Place::Fair(owner) if owner == cpu => Some(5_000_000),
            // The first pushable task of each overloaded CPU moves in a round of interrupts; with
            // phantom members in the map it may not.
            Place::Rt(_, queued) => {
                (queued.pushable.is_some() && self.options.late_cpus == 0).then_some(50_000_000)
            }
            Place::Fair(_) => Some(4 * tick + 10_000_000),
            Place::Nowhere => None,
        }
    }

    fn wait_bound_ns(&self) -> Option<Nanos> {
        None
    }
}

impl Rt {
    /// A queued task whose class changed joins again: behind its new equals if it was raised, before
    /// them if it was lowered.
    fn rejoin(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, old: u8) {
        let new = host.task(task).class().rt_prio();
        if new == 0 {
            self.insert_fair(task, cpu);
            if self.rq(cpu).curr.is_none() {
                host.resched(cpu);
            }
        } else {
            self.insert_rt(host, task, cpu, new < old);
            self.joined_rt(host, task, cpu);
        }
        if new < old && self.rq(cpu).queue.len() == 0 && self.rq(cpu).curr_prio == 0 {
            self.pull(host, cpu);
        }
    }

    /// The class of a running task changed.
    fn curr_changed(&mut self, host: &mut Host, task: TaskId) {
        let cpu = host.task(task).cpu();
        if self.rq(cpu).curr != Some(task) {
            return;
        }
        let new = host.task(task).class().rt_prio();
        let old = std::mem::replace(&mut self.rq(cpu).curr_prio, new);
        match (old, new) {
            (0, _) => self.state(task).rr_at = host.runtime(task),
            // What it ran at real-time priority does not count below.
            (_, 0) => self.below.account(host, task),
            _ => {}
        }
        self.publish_level(host, cpu);
        if new < old {
            if self.rq(cpu).queue.top() > new {
                host.resched(cpu);
            }
            self.pull(host, cpu);
        }
    }
}
