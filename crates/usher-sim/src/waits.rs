// SPDX-License-Identifier: GPL-2.0-only
//! Who waits for a CPU, for how long, behind whom, and which CPUs idle meanwhile: an observer of a run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex};

use usher_topo::Id as _;

use crate::ids::{Cpu, Nanos, TaskId};
use crate::machine::Machine;
use crate::metrics::{new_latency, record, Latency};
use crate::policy::WakeKind;
use crate::task::{State, Task};
use crate::trace::{TraceEvent, Tracer};

/// How a wait begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    /// Woken or born, and sent to a CPU that idles, or is about to, and to which nobody else is on the way.
    ToIdle,
    /// Woken or born, and sent where others run or are on the way.
    Behind,
    /// Stopped while it could have gone on.
    Stopped,
}

impl WaitKind {
    /// All kinds.
    pub const ALL: [WaitKind; 3] = [WaitKind::ToIdle, WaitKind::Behind, WaitKind::Stopped];

    /// As metrics have it.
    fn name(self) -> &'static str {
        match self {
            WaitKind::ToIdle => "to_idle",
            WaitKind::Behind => "behind",
            WaitKind::Stopped => "stopped",
        }
    }
}

/// Idle CPUs, or time in which there are some, by how near they are to where a task waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Near {
    /// In the same last-level cache.
    pub llc: u64,
    /// In the same node, the cache included.
    pub node: u64,
    /// Anywhere.
    pub machine: u64,
}

/// All waits of one kind.
#[derive(Clone, Debug)]
pub struct Waited {
    /// How they began.
    pub kind: WaitKind,
    /// How many are over.
    pub count: u64,
    /// How long they took together, ns.
    pub total_ns: u64,
    /// The part of that of tasks that may run everywhere, ns.
    pub known_ns: u64,
    /// For how much of that part a CPU idled to which nobody was on the way, ns.
    pub beside_idle_ns: Near,
    /// How long each took.
    pub histogram: Latency,
}

/// One long wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlowWait {
    /// How long it took, or has taken at the end of the run, ns.
    pub wait_ns: u64,
    /// When it began, ns since the start of the run.
    pub began_ns: u64,
    /// Who waited: its number and name.
    pub task: (u32, String),
    /// How it began.
    pub kind: WaitKind,
    /// Who woke it or gave birth to it; `None` for an interrupt, and for who was stopped.
    pub waker: Option<(u32, String)>,
    /// The policy's reason for where it was sent; `None` if it was not asked.
    pub reason: Option<&'static str>,
    /// The CPU that it was sent to, or stopped on.
    pub sent_to: u32,
    /// Who ran there then, or took its place.
    pub behind: Option<(u32, String)>,
    /// The CPU that it got; `None` if it still waits.
    pub got: Option<u32>,
    /// Idle CPUs that it might have run on, when it began to wait.
    pub idle: Near,
}

/// What became of a CPU, as far as events tell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum View {
    Idle,
    /// It idles, and this task was sent there.
    Awaits(TaskId),
    Runs(TaskId),
}

/// Idle CPUs of a part of the machine, and for how long there was at least one.
#[derive(Clone, Debug, Default)]
struct Part {
    idle: u64,
    since: Nanos,
    some_ns: Nanos,
}

impl Part {
    fn change(&mut self, clock: Nanos, to_idle: bool) {
        self.some_ns = self.some_until(clock);
        self.since = clock;
        self.idle = if to_idle {
            self.idle + 1
        } else {
            self.idle - 1
        };
    }

    fn some_until(&self, clock: Nanos) -> Nanos {
        let open = clock - self.since;
        self.some_ns + if self.idle > 0 { open } else { 0 }
    }
}

/// A wait that has begun.
#[derive(Clone, Debug)]
struct Open {
    kind: WaitKind,
    waker: Option<TaskId>,
    reason: Option<&'static str>,
    sent_to: Cpu,
    behind: Option<TaskId>,
    idle: Near,
    /// [`Part::some_until`] of the three parts when it began; `None` if the task may not run everywhere.
    some: Option<Near>,
}

/// Collects waits. Hand [`Waits::observer`] to a run, and ask afterwards.
pub struct Waits {
    machine: Arc<Machine>,
    reasons: &'static [&'static str],
    keep: usize,
    /// The latest time seen: CPUs are ahead of each other by what they have just done.
    clock: Nanos,
    cpus: Vec<View>,
    llcs: Vec<Part>,
    nodes: Vec<Part>,
    whole: Part,
    open: Vec<Option<Open>>,
    waited: [Waited; 3],
    /// Of those woken or born, and of those stopped.
    slowest: [BinaryHeap<Reverse<SlowWait>>; 2],
    /// Tasks that may not run everywhere have waited.
    restricted: bool,
    /// Tasks that wait when the run ends.
    still: u64,
}

impl Waits {
    /// Of a run on that machine, under a policy with those reasons; keeps that many of the slowest of those woken or born, and as many of
    /// those stopped.
    pub fn new(machine: Arc<Machine>, reasons: &'static [&'static str], keep: usize) -> Waits {
        let topo = machine.topo();
        let mut waits = Waits {
            clock: 0,
            cpus: vec![View::Idle; machine.nr_cpu_numbers()],
            llcs: vec![Part::default(); topo.llcs().len()],
            nodes: vec![Part::default(); topo.nodes().len()],
            whole: Part::default(),
            open: Vec::new(),
            waited: WaitKind::ALL.map(Waited::none),
            slowest: Default::default(),
            restricted: false,
            still: 0,
            machine: Arc::clone(&machine),
            reasons,
            keep,
        };
        for &cpu in machine.cpus() {
            waits.change(cpu, true);
        }
        waits
    }

    /// What a run reports to; the other one is for whoever asks afterwards.
    pub fn observer(waits: &Arc<Mutex<Waits>>) -> Box<dyn Tracer> {
        Box::new(Observer(Arc::clone(waits)))
    }

    /// The waits since the measurement began, by kind.
    pub fn waited(&self) -> &[Waited] {
        &self.waited
    }

    /// The slowest of those woken or born, longest first.
    pub fn slowest(&self) -> Vec<SlowWait> {
        longest_first(&self.slowest[0])
    }

    /// The slowest of those stopped, longest first.
    pub fn slowest_stopped(&self) -> Vec<SlowWait> {
        longest_first(&self.slowest[1])
    }

    /// Of each kind `waits_KIND_count` and `waits_KIND_ns_mean`; and of the time of those behind others and stopped, of tasks that
    /// may run everywhere, the share in which a CPU idled anywhere, `waits_KIND_beside_idle_share`.
    pub fn put_metrics(&self, metrics: &mut BTreeMap<String, f64>) {
        for waited in &self.waited {
            let name = waited.kind.name();
            metrics.insert(format!("waits_{name}_count"), waited.count as f64);
            if waited.count == 0 {
                continue;
            }
            let mean = waited.total_ns as f64 / waited.count as f64;
            metrics.insert(format!("waits_{name}_ns_mean"), mean);
            if waited.kind != WaitKind::ToIdle && waited.known_ns > 0 {
                let beside = waited.beside_idle_ns.machine as f64 / waited.known_ns as f64;
                metrics.insert(format!("waits_{name}_beside_idle_share"), beside);
            }
        }
    }

    /// Whether tasks waited that may not run everywhere, so that [`Waited::beside_idle_ns`] leaves them out.
    pub fn restricted(&self) -> bool {
        self.restricted
    }

    /// How many tasks waited when the run ended: their waits are among the slowest, and nowhere else.
    pub fn still(&self) -> u64 {
        self.still
    }

    /// A CPU begins to idle with nobody on the way to it, or ends that.
    fn change(&mut self, cpu: Cpu, to_idle: bool) {
        let (clock, info) = (self.clock, self.machine.cpu(cpu));
        self.llcs[info.llc.index()].change(clock, to_idle);
        self.nodes[info.node.index()].change(clock, to_idle);
        self.whole.change(clock, to_idle);
    }

    fn set(&mut self, cpu: Cpu, to: View) {
        let from = std::mem::replace(&mut self.cpus[cpu.index()], to);
        if (from == View::Idle) != (to == View::Idle) {
            self.change(cpu, to == View::Idle);
        }
    }

    /// Nobody is on the way any more to where this task was sent.
    fn comes_not(&mut self, task: TaskId, sent_to: Cpu) {
        if self.cpus[sent_to.index()] == View::Awaits(task) {
            self.set(sent_to, View::Idle);
        }
    }

    /// Parts around a CPU, by a figure of each.
    fn near(&self, cpu: Cpu, of: impl Fn(&Part) -> u64) -> Near {
        let info = self.machine.cpu(cpu);
        Near {
            llc: of(&self.llcs[info.llc.index()]),
            node: of(&self.nodes[info.node.index()]),
            machine: of(&self.whole),
        }
    }

    /// Idle CPUs around one that a task may run on.
    fn idle_near(&self, cpu: Cpu, task: &Task) -> Near {
        if self.everywhere(task) {
            return self.near(cpu, |part| part.idle);
        }
        let here = self.machine.cpu(cpu);
        let mut idle = Near::default();
        for other in task.allowed().iter() {
            if self.cpus[other.index()] == View::Idle {
                let info = self.machine.cpu(other);
                idle.llc += u64::from(info.llc == here.llc);
                idle.node += u64::from(info.node == here.node);
                idle.machine += 1;
            }
        }
        idle
    }

    fn everywhere(&self, task: &Task) -> bool {
        task.nr_allowed() as usize == self.machine.cpus().len()
    }

    fn begin(&mut self, task: &Task, kind: WaitKind, sent_to: Cpu) -> Open {
        let everywhere = self.everywhere(task);
        self.restricted |= !everywhere;
        Open {
            kind,
            waker: None,
            reason: None,
            sent_to,
            behind: None,
            idle: self.idle_near(sent_to, task),
            some: everywhere.then(|| self.near(sent_to, |part| part.some_until(self.clock))),
        }
    }

    fn slot(&mut self, task: TaskId) -> &mut Option<Open> {
        if self.open.len() <= task.index() {
            self.open.resize(task.index() + 1, None);
        }
        &mut self.open[task.index()]
    }

    /// A wait is over, or the run is.
    fn end<'a>(
        &mut self,
        at: Nanos,
        began: Nanos,
        task: TaskId,
        got: Option<Cpu>,
        look_up: &dyn Fn(TaskId) -> &'a Task,
    ) {
        let Some(open) = self.slot(task).take() else {
            return;
        };
        let wait = at.saturating_sub(began);
        if got.is_some() {
            let waited = &mut self.waited[open.kind as usize];
            waited.count += 1;
            waited.total_ns += wait;
            record(&mut waited.histogram, wait);
        }
        if let Some(some) = open.some.filter(|_| got.is_some()) {
            let until = self.near(open.sent_to, |part| part.some_until(self.clock));
            let waited = &mut self.waited[open.kind as usize];
            waited.known_ns += wait;
            let beside = &mut waited.beside_idle_ns;
            beside.llc += (until.llc - some.llc).min(wait);
            beside.node += (until.node - some.node).min(wait);
            beside.machine += (until.machine - some.machine).min(wait);
        }
        let slowest = &mut self.slowest[usize::from(open.kind == WaitKind::Stopped)];
        let full = slowest.len() >= self.keep;
        if full && slowest.peek().is_none_or(|least| wait <= least.0.wait_ns) {
            return;
        }
        let named = |task: TaskId| (task.0, look_up(task).name().to_string());
        slowest.push(Reverse(SlowWait {
            wait_ns: wait,
            began_ns: began,
            task: named(task),
            kind: open.kind,
            waker: open.waker.map(named),
            reason: open.reason,
            sent_to: open.sent_to.0,
            behind: open.behind.map(named),
            got: got.map(|cpu| cpu.0),
            idle: open.idle,
        }));
        if full {
            slowest.pop();
        }
    }

    fn reset(&mut self) {
        self.waited = WaitKind::ALL.map(Waited::none);
        self.slowest = Default::default();
        self.restricted = false;
    }

    fn see<'a>(&mut self, at: Nanos, event: TraceEvent, look_up: &dyn Fn(TaskId) -> &'a Task) {
        self.clock = self.clock.max(at);
        match event {
            TraceEvent::Placed {
                waker,
                task,
                kind: WakeKind::Wake | WakeKind::Fork,
                cpu,
                reason,
                ..
            } => {
                if let Some(before) = self.slot(task).take() {
                    self.comes_not(task, before.sent_to);
                }
                let (kind, behind) = match self.cpus[cpu.index()] {
                    View::Idle => (WaitKind::ToIdle, None),
                    View::Runs(itself) if itself == task => (WaitKind::ToIdle, None),
                    View::Runs(other) | View::Awaits(other) => (WaitKind::Behind, Some(other)),
                };
                let mut open = self.begin(look_up(task), kind, cpu);
                open.waker = waker;
                open.reason = reason.and_then(|r| self.reasons.get(usize::from(r)).copied());
                open.behind = behind;
                *self.slot(task) = Some(open);
                if self.cpus[cpu.index()] == View::Idle {
                    self.set(cpu, View::Awaits(task));
                }
            }
            TraceEvent::Placed { .. } | TraceEvent::Exit { .. } => {}
            TraceEvent::Switch { cpu, prev, next } => {
                let to = next.map_or(View::Idle, View::Runs);
                self.set(cpu, to);
                let stopped =
                    prev.filter(|(_, state)| matches!(state, State::Queued | State::Waking));
                // Who was woken before its CPU had left it was placed already.
                let stopped = stopped.filter(|(prev, _)| self.slot(*prev).is_none());
                if let Some((prev, _)) = stopped {
                    let mut open = self.begin(look_up(prev), WaitKind::Stopped, cpu);
                    open.behind = next;
                    *self.slot(prev) = Some(open);
                }
            }
            TraceEvent::Waited { task, cpu, since } => {
                if let Some(sent_to) = self.slot(task).as_ref().map(|open| open.sent_to) {
                    if sent_to != cpu {
                        self.comes_not(task, sent_to);
                    }
                }
                self.end(at, since, task, Some(cpu), look_up);
            }
            TraceEvent::Measured => self.reset(),
            TraceEvent::Ended => {
                for i in 0..self.open.len() {
                    let id = TaskId(i as u32);
                    let task = look_up(id);
                    if matches!(task.state(), State::Queued | State::Waking) {
                        self.still += 1;
                        self.end(at, task.waits_since(), id, None, look_up);
                    }
                }
            }
        }
    }
}

impl Waited {
    fn none(kind: WaitKind) -> Waited {
        Waited {
            kind,
            count: 0,
            total_ns: 0,
            known_ns: 0,
            beside_idle_ns: Near::default(),
            histogram: new_latency(),
        }
    }
}

fn longest_first(slowest: &BinaryHeap<Reverse<SlowWait>>) -> Vec<SlowWait> {
    let mut slowest: Vec<SlowWait> = slowest.iter().map(|slow| slow.0.clone()).collect();
    slowest.sort_by(|a, b| b.cmp(a));
    slowest
}

struct Observer(Arc<Mutex<Waits>>);

impl Tracer for Observer {
    fn event<'a>(&mut self, at: Nanos, event: TraceEvent, task: &dyn Fn(TaskId) -> &'a Task) {
        let mut waits = self.0.lock().unwrap_or_else(|e| e.into_inner());
        waits.see(at, event, task);
    }
}
