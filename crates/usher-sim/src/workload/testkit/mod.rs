// SPDX-License-Identifier: GPL-2.0-only
//! A plain interpreter of programs, for testing workloads without a scheduler.
//!
//! Every task has a CPU of its own, so nothing ever waits for one; what remains is the task graph: who
//! wakes whom, through what, in which order, how often. It is written apart from the engine, so that each
//! is a check on the other. Actions take a drawn time, so that different seeds try different
//! interleavings.

mod exec;

use std::collections::{BTreeMap, VecDeque};

use usher_topo::{shape, Topology};

use super::{build, Stop, Workload};
use crate::costs::Costs;
use crate::ids::{Cpu, Nanos, TaskId};
use crate::machine::Machine;
use crate::params::Params;
use crate::program::{Action, Class, Hint, Memory, Outcome, Program, TaskSpec};
use crate::rng::Rng;
use crate::world::{Channel, ChannelSpec, Cond, Mutex, Semaphore, World};

/// Through what a task was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    Futex,
    Read,
    Write,
    Poll,
    Mutex,
    Barrier,
    Sem,
    Cond,
    Child,
    Timer,
}

/// One wakeup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wake {
    pub at: Nanos,
    /// `None` for timers.
    pub waker: Option<TaskId>,
    pub wakee: TaskId,
    pub by: By,
    pub sync: bool,
}

/// What became of a task.
#[derive(Debug)]
pub(crate) struct Seen {
    pub name: String,
    pub parent: Option<TaskId>,
    pub thread: bool,
    pub exited: bool,
    pub class: Class,
    pub hint: Hint,
    pub cpus: Option<Vec<u32>>,
    pub memory: Memory,
    pub compute: Nanos,
    pub computes: u64,
    pub execs: u64,
    pub sleeps: u64,
    pub yields: u64,
    pub ios: Nanos,
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub end: Nanos,
    /// Who waits for what, if all tasks that are left wait.
    pub deadlock: Option<Vec<String>>,
    pub tasks: Vec<Seen>,
    pub wakes: Vec<Wake>,
    pub metrics: BTreeMap<String, f64>,
    pub parameters: BTreeMap<String, String>,
}

impl Ran {
    /// Ids of the tasks of one name (up to a trailing `-number`).
    pub fn named(&self, name: &str) -> Vec<TaskId> {
        let is = |seen: &Seen| base(&seen.name) == name;
        (0..self.tasks.len())
            .filter(|i| is(&self.tasks[*i]))
            .map(|i| TaskId(i as u32))
            .collect()
    }

    /// How many wakeups there were from tasks of one name to tasks of another through something.
    pub fn count_wakes(&self, waker: &str, wakee: &str, by: By) -> u64 {
        self.wakes
            .iter()
            .filter(|w| {
                let from = w
                    .waker
                    .map_or("timer", |t| base(&self.tasks[t.index()].name));
                from == waker && base(&self.tasks[w.wakee.index()].name) == wakee && w.by == by
            })
            .count() as u64
    }

    /// Every kind of wakeup that happened: waker, wakee, through what, sync, how often.
    pub fn graph(&self) -> BTreeMap<(String, String, By, bool), u64> {
        let mut graph = BTreeMap::new();
        for w in &self.wakes {
            let from = w
                .waker
                .map_or("timer", |t| base(&self.tasks[t.index()].name));
            let to = base(&self.tasks[w.wakee.index()].name);
            *graph
                .entry((from.to_string(), to.to_string(), w.by, w.sync))
                .or_insert(0) += 1;
        }
        graph
    }

    /// A result.
    pub fn metric(&self, name: &str) -> u64 {
        let value = self.metrics.get(name);
        *value.unwrap_or_else(|| panic!("no metric `{name}` among {:?}", self.metrics)) as u64
    }

    /// Everything there is, for comparing runs.
    pub fn digest(&self) -> String {
        format!(
            "{} {:?} {:?} {:?}",
            self.end, self.wakes, self.tasks, self.metrics
        )
    }
}

fn base(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((front, tail)) if !tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit()) => {
            front
        }
        _ => name,
    }
}

/// A small machine: 2 nodes, 2 LLCs of 4 cores each, SMT.
pub(crate) fn machine() -> Machine {
    machine_of("2n2l4c2t")
}

/// A machine of this shape.
pub(crate) fn machine_of(text: &str) -> Machine {
    let topo = Topology::build(&shape::parse(text).unwrap(), 64).unwrap();
    Machine::new(topo, Costs::builtin("generic").unwrap()).unwrap()
}

/// Builds a workload on the small machine and runs it.
pub(crate) fn run(name: &str, pairs: &[&str], seed: u64) -> Ran {
    let params = Params::parse(pairs.iter().copied()).unwrap();
    let workload = build(name, &machine(), params).unwrap_or_else(|e| panic!("{name}: {e}"));
    run_workload(workload, seed)
}

/// Runs a workload that must come to its end.
pub(crate) fn run_workload(workload: Workload, seed: u64) -> Ran {
    let ran = run_any(workload, seed);
    assert!(
        ran.deadlock.is_none(),
        "deadlock at {} ns: {:#?}",
        ran.end,
        ran.deadlock
    );
    ran
}

/// Runs a workload, deadlock or not.
pub(crate) fn run_any(workload: Workload, seed: u64) -> Ran {
    Rig::new(workload, seed).run()
}

/// What a blocked task does when it is woken.
#[derive(Debug)]
enum Pending {
    /// Nothing but go on, with this outcome.
    Done(Outcome),
    Read {
        channel: Channel,
        got: u64,
        want: u64,
        exact: bool,
    },
    Write {
        channel: Channel,
        left: u64,
    },
    Poll(std::sync::Arc<[Channel]>),
    Lock(Mutex),
    SemDown(Semaphore),
    WaitChild(TaskId),
    WaitAnyChild,
    CondWait(Cond, Mutex),
}

struct Task {
    program: Option<Box<dyn Program>>,
    outcome: Outcome,
    pending: Option<Pending>,
    /// What it waits for, if it is blocked.
    blocked: Option<String>,
    /// Counts blockings, so that a late timeout does not end a later one.
    epoch: u64,
    rng: Rng,
    children: Vec<TaskId>,
    zombies: VecDeque<TaskId>,
    seed: u64,
}

struct Message {
    bytes: u64,
    overhead: u64,
}

#[derive(Default)]
struct ChannelQueue {
    messages: VecDeque<Message>,
    bytes: u64,
    used: u64,
    readers: VecDeque<TaskId>,
    pollers: VecDeque<TaskId>,
    writers: VecDeque<TaskId>,
}

enum Event {
    Run(TaskId),
    Timeout(TaskId, u64),
}

/// Side tables by the index of the world's objects, grown on demand because programs create objects.
struct Rig {
    now: Nanos,
    next_seq: u64,
    queue: BTreeMap<(Nanos, u64), Event>,
    world: World,
    warmup: Option<Nanos>,
    stop: Stop,
    first_exited: bool,
    alive: usize,
    tasks: Vec<Task>,
    seen: Vec<Seen>,
    wakes: Vec<Wake>,
    parameters: BTreeMap<String, String>,
    channels: BTreeMap<u32, ChannelQueue>,
    futexes: BTreeMap<u32, VecDeque<TaskId>>,
    owners: BTreeMap<u32, TaskId>,
    lockers: BTreeMap<u32, VecDeque<TaskId>>,
    conds: BTreeMap<u32, VecDeque<TaskId>>,
    barriers: BTreeMap<u32, Vec<TaskId>>,
    semaphores: BTreeMap<u32, (u64, VecDeque<TaskId>)>,
    costs: Rng,
}

impl Rig {
    fn new(workload: Workload, seed: u64) -> Rig {
        let mut rig = Rig {
            now: 0,
            next_seq: 0,
            queue: BTreeMap::new(),
            world: workload.world,
            warmup: (workload.warmup > 0).then_some(workload.warmup),
            stop: workload.stop,
            first_exited: false,
            alive: 0,
            tasks: Vec::new(),
            seen: Vec::new(),
            wakes: Vec::new(),
            parameters: workload.parameters,
            channels: BTreeMap::new(),
            futexes: BTreeMap::new(),
            owners: BTreeMap::new(),
            lockers: BTreeMap::new(),
            conds: BTreeMap::new(),
            barriers: BTreeMap::new(),
            semaphores: BTreeMap::new(),
            costs: Rng::stream(seed, 0xc057),
        };
        for (i, spec) in workload.tasks.into_iter().enumerate() {
            let start = spec.start;
            rig.create(spec, None, crate::rng::mix(seed ^ (i as u64 + 1)), start);
        }
        rig
    }

    fn create(&mut self, spec: TaskSpec, parent: Option<TaskId>, seed: u64, at: Nanos) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        let from = parent.map(|p| &self.seen[p.index()]);
        let cpus = spec.affinity.map(|set| set.iter().map(|c| c.0).collect());
        let seen = Seen {
            name: spec.name.to_string(),
            parent,
            thread: spec.thread,
            exited: false,
            class: spec
                .class
                .or(from.map(|f| f.class))
                .unwrap_or(Class::NORMAL),
            hint: spec.hint.or(from.map(|f| f.hint)).unwrap_or_default(),
            cpus: cpus.or_else(|| from.and_then(|f| f.cpus.clone())),
            memory: spec.memory.or(from.map(|f| f.memory)).unwrap_or_default(),
            compute: 0,
            computes: 0,
            execs: 0,
            sleeps: 0,
            yields: 0,
            ios: 0,
        };
        self.seen.push(seen);
        self.tasks.push(Task {
            program: Some(spec.program),
            outcome: Outcome::Done,
            pending: None,
            blocked: None,
            epoch: 0,
            rng: Rng::new(seed),
            children: Vec::new(),
            zombies: VecDeque::new(),
            seed,
        });
        if let Some(parent) = parent {
            self.tasks[parent.index()].children.push(id);
        }
        self.alive += 1;
        self.schedule(at, Event::Run(id));
        id
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.queue.insert((at, self.next_seq), event);
        self.next_seq += 1;
    }

    /// A drawn cost of something small.
    fn cost(&mut self) -> Nanos {
        self.costs.range(100, 3_000)
    }

    fn over(&self) -> bool {
        match self.stop {
            Stop::At(_) | Stop::Measured | Stop::AllExit => self.alive == 0,
            Stop::FirstExit => self.first_exited,
        }
    }

    fn run(mut self) -> Ran {
        let mut deadlock = None;
        let mut events = 0u64;
        while !self.over() {
            let Some(((at, _), event)) = self.queue.pop_first() else {
                let waiting = self.tasks.iter().zip(&self.seen);
                let waiting = waiting.filter_map(|(t, s)| {
                    t.blocked
                        .as_ref()
                        .map(|what| format!("{} waits for {what}", s.name))
                });
                deadlock = Some(waiting.collect());
                break;
            };
            if let Stop::At(end) = self.stop {
                if at > end {
                    self.now = end;
                    break;
                }
            }
            if self.warmup.is_some_and(|warmup| at >= warmup) {
                self.warmup = None;
                self.world.metrics.reset();
            }
            events += 1;
            assert!(events < 50_000_000, "no end in sight at {at} ns");
            self.now = at;
            match event {
                Event::Run(task) => self.advance(task),
                Event::Timeout(task, epoch) => self.time_out(task, epoch),
            }
        }
        let mut metrics = BTreeMap::new();
        self.world.metrics.report(self.now.max(1), &mut metrics);
        Ran {
            end: self.now,
            deadlock,
            tasks: self.seen,
            wakes: self.wakes,
            metrics,
            parameters: self.parameters,
        }
    }
}
