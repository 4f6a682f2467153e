// SPDX-License-Identifier: GPL-2.0-only
//! The simulation: set-up, the event loop, the end.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::cache::Caches;
use crate::check::Checker;
use crate::clock::Clocks;
use crate::coherence::Lines;
use crate::error::SimError;
use crate::event::{Event, Kind};
use crate::hash::LogHash;
use crate::ids::{Cpu, Id, Nanos, TaskId};
use crate::machine::Machine;
use crate::policy::Policy;
use crate::program::TaskSpec;
use crate::queue::EventQueue;
use crate::report::Report;
use crate::rng::Rng;
use crate::state::{CpuState, Host, Pending, Phase, Slots, TimerEntry, NEVER};
use crate::stats::Stats;
use crate::trace::{TraceEvent, Tracer};
use crate::workload::{Headline, Stop, Workload};

/// What may be asked of a run besides its result.
pub struct Options {
    /// Run the checkers of [`crate::policy`]'s rules. They change nothing but the time the run takes.
    pub checks: bool,
    /// The CPU on which root tasks are created.
    pub root_cpu: Cpu,
    /// Give up (with an error) after this much simulated time.
    pub limit: Nanos,
    /// Receive scheduling events as they happen.
    pub tracers: Vec<Box<dyn Tracer>>,
}

impl Default for Options {
    /// Checks on, root tasks on cpu 0 (or the lowest that is online), an hour at most, no trace.
    fn default() -> Self {
        Options {
            checks: true,
            root_cpu: Cpu(0),
            limit: 3_600_000_000_000,
            tracers: Vec::new(),
        }
    }
}

/// Purposes of random streams; tasks use their lineage.
const STREAM_POLICY: u64 = 1;
const STREAM_TASKS: u64 = 2;
const STREAM_TICK: u64 = 3;

/// One run: a machine, a policy, a workload, a seed.
pub struct Simulation {
    pub(crate) host: Host,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) seed: u64,
    pub(crate) task_seed: u64,
    pub(crate) workload: String,
    pub(crate) parameters: std::collections::BTreeMap<String, String>,
    pub(crate) headline: Headline,
    pub(crate) limits: Vec<String>,
    stop: Stop,
    root_cpu: Cpu,
    limit: Nanos,
    warmup: Nanos,
    roots: Vec<Option<TaskSpec>>,
    pub(crate) roots_left: usize,
    pub(crate) hash: LogHash,
    pub(crate) caches: Caches,
    pub(crate) checker: Option<Checker>,
    pub(crate) ended: bool,
    pub(crate) failure: Option<SimError>,
    /// Actions that took no time in a row.
    pub(crate) standing_still: u32,
}

impl Simulation {
    /// Sets up a run.
    ///
    /// # Errors
    /// A workload without tasks.
    pub fn new(
        machine: impl Into<Arc<Machine>>,
        policy: Box<dyn Policy>,
        workload: Workload,
        seed: u64,
        options: Options,
    ) -> Result<Simulation, SimError> {
        let machine: Arc<Machine> = machine.into();
        if workload.tasks.is_empty() {
            return Err(SimError::Input {
                origin: format!("workload {}", workload.name),
                what: "has no tasks; give it at least one".into(),
            });
        }
        let root_cpu = machine.online().next_around(options.root_cpu);
        let root_cpu = root_cpu.expect("a machine has at least one CPU");
        let mut host = new_host(&machine, workload.world, seed, &*policy);
        host.tracers = options.tracers;
        let mut sim = Simulation {
            caches: Caches::new(&machine),
            checker: options.checks.then(Checker::default),
            host,
            policy,
            seed,
            task_seed: Rng::stream(seed, STREAM_TASKS).next_u64(),
            workload: workload.name,
            parameters: workload.parameters,
            headline: workload.headline,
            limits: workload.limits,
            stop: workload.stop,
            root_cpu,
            limit: options.limit,
            warmup: workload.warmup,
            roots_left: workload.tasks.len(),
            roots: workload.tasks.into_iter().map(Some).collect(),
            hash: LogHash::default(),
            ended: false,
            failure: None,
            standing_still: 0,
        };
        sim.schedule_first_events();
        Ok(sim)
    }

    /// The metric to look at first.
    pub fn headline(&self) -> &Headline {
        &self.headline
    }

    fn schedule_first_events(&mut self) {
        let root = self.root_cpu;
        if self.warmup > 0 {
            self.host.push(self.warmup, Kind::Warm, root, 0);
        }
        for (i, spec) in self.roots.iter().enumerate() {
            let start = spec.as_ref().map_or(0, |s| s.start);
            self.host.push(start, Kind::Start, root, i as u32);
        }
        if let Stop::At(end) = self.stop {
            if end > self.limit {
                self.fail_limit();
            }
            self.host.push(end, Kind::End, root, 0);
        }
        if self.checker.is_some() {
            self.host.push(Checker::PERIOD_NS, Kind::Check, root, 0);
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// A deadlock, a rule broken by the policy, nonsense in the workload, or more simulated time than
    /// [`Options::limit`].
    pub fn run(self) -> Result<Report, SimError> {
        self.run_while(|_| true)
    }

    /// Runs to the end, or until `go_on`, called now and then with the time reached, returns false. The
    /// report then covers what was done so far and says that it is partial.
    ///
    /// # Errors
    /// As [`Simulation::run`].
    pub fn run_while(mut self, mut go_on: impl FnMut(Nanos) -> bool) -> Result<Report, SimError> {
        let mut partial = false;
        self.start();
        while !self.ended {
            let Some(entry) = self.host.queue.pop() else {
                self.fail_deadlock();
                break;
            };
            debug_assert!(entry.time >= self.host.now, "time runs backwards");
            self.host.now = entry.time;
            self.host.prefetch_next(&*self.policy);
            self.handle(Event::unpack(entry.what));
            if self.host.stats.events & 0xffff == 0 && !go_on(self.host.now) {
                partial = true;
                break;
            }
            if self.host.now > self.limit {
                self.fail_limit();
                break;
            }
        }
        self.finish(partial)
    }

    /// Attaches the policy and puts all CPUs to idle.
    fn start(&mut self) {
        self.begin(self.root_cpu);
        self.policy.attach(&mut self.host);
        for i in 0..self.host.machine.cpus().len() {
            let cpu = self.host.machine.cpus()[i];
            self.begin(cpu);
            self.policy.idle_enter(&mut self.host, cpu, false);
            self.enter_idle(cpu);
        }
    }

    fn finish(mut self, partial: bool) -> Result<Report, SimError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.settle_all();
        self.host.charged = 0;
        self.host.trace(TraceEvent::Ended);
        self.policy.sync_stats(&mut self.host);
        if self.checker.is_some() {
            self.check_conservation();
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(Report::new(self, partial)),
        }
    }

    /// The callbacks from here on run on `cpu` and have charged nothing yet.
    #[inline]
    pub(crate) fn begin(&mut self, cpu: Cpu) {
        self.host.actor = cpu;
        self.host.charged = 0;
    }

    fn handle(&mut self, event: Event) {
        let cpu = event.cpu;
        let live = match event.kind {
            Kind::Step => self.on_step(cpu, event.arg),
            Kind::Timer => self.on_timer(cpu, event.arg),
            Kind::Tick => self.on_tick(cpu),
            Kind::Resched | Kind::WakeList | Kind::Ipi | Kind::Stop | Kind::Start => {
                self.interrupt(cpu, event.kind, event.arg);
                true
            }
            Kind::Warm => {
                self.on_warm();
                true
            }
            Kind::End => {
                self.ended = true;
                true
            }
            Kind::Check => {
                self.on_check();
                return;
            }
            Kind::Clock => {
                self.on_clock(event.arg);
                return;
            }
        };
        if live {
            self.host.stats.events += 1;
            let curr = self.host.cpus[cpu.index()].curr;
            self.hash.add(self.host.now, event.kind as u8, cpu, curr);
        }
    }

    /// Creates a root task: an interrupt on the root CPU.
    pub(crate) fn start_root(&mut self, index: u32) {
        let spec = self.roots[index as usize]
            .take()
            .expect("a root task starts once");
        self.roots_left -= 1;
        if let Some(task) = self.create(None, index, spec) {
            self.place(task, crate::policy::WakeKind::Fork, None, false);
        }
    }

    fn on_warm(&mut self) {
        self.settle_all();
        self.policy.sync_stats(&mut self.host);
        let now = self.host.now;
        self.host.stats.reset(now);
        self.host.lines.reset_stats();
        self.host.world.metrics.reset();
        for task in &mut self.host.tasks {
            task.run_before = task.runtime;
            task.waited = 0;
        }
        self.host.trace(TraceEvent::Measured);
    }

    /// A task has exited.
    pub(crate) fn on_exit(&mut self, task: TaskId) {
        match self.stop {
            Stop::FirstExit if task == TaskId(0) => self.ended = true,
            Stop::AllExit | Stop::FirstExit => {
                self.ended |= self.host.live == 0 && self.roots_left == 0;
            }
            Stop::At(_) | Stop::Measured => {}
        }
    }

    /// Records the first failure and ends the run.
    pub(crate) fn fail(&mut self, error: SimError) {
        self.failure.get_or_insert(error);
        self.ended = true;
    }

    pub(crate) fn fail_rule(&mut self, cpu: Cpu, what: String) {
        let at = self.host.now;
        self.fail(SimError::Violation { at, cpu, what });
    }

    pub(crate) fn fail_workload(&mut self, task: TaskId, what: String) {
        let name = self.host.task(task).name().to_string();
        self.fail(SimError::Workload {
            at: self.host.now,
            task,
            name,
            what,
        });
    }

    fn fail_limit(&mut self) {
        let origin = format!("workload {}", self.workload);
        let what = format!(
            "not over after {} of simulated time, the most that is run; make it smaller, by `runtime`, `loops` or the like",
            crate::params::format_duration(self.limit)
        );
        self.fail(SimError::Input { origin, what });
    }
}

fn new_host(
    machine: &Arc<Machine>,
    world: crate::world::World,
    seed: u64,
    policy: &dyn Policy,
) -> Host {
    let costs = machine.costs();
    let topo = machine.topo();
    let mut lines = Lines::new(machine);
    let nr_cpus = machine.nr_cpu_numbers();
    let books = crate::bookkeeping::books(&mut lines, &costs.n, policy.is_fair_class(), nr_cpus);
    Host {
        object_class: lines.class("workload objects"),
        now: 0,
        actor: machine.cpus()[0],
        charged: 0,
        tasks: Vec::new(),
        cpus: (0..nr_cpus).map(|i| new_cpu(machine, i)).collect(),
        core_busy: vec![0; topo.cores().len()],
        clocks: Clocks::new(machine),
        smt_scale: (costs.smt_share_permille.iter())
            .map(|share| 1_024_000 / share)
            .collect(),
        llc_asleep: vec![0; topo.llcs().len()],
        lines,
        books,
        world,
        queue: EventQueue::new(),
        cookies: Slots::default(),
        stats: Stats::new(
            costs.idle_states.len(),
            topo.tiers().len(),
            policy.reasons().len(),
        ),
        rng: Rng::stream(seed, STREAM_POLICY),
        tick_phase: Rng::stream(seed, STREAM_TICK).below(machine.tick_ns()),
        seed,
        tracers: Vec::new(),
        live: 0,
        stuck: 0,
        queued: 0,
        machine: Arc::clone(machine),
    }
}

fn new_cpu(machine: &Machine, index: usize) -> CpuState {
    let cpu = Cpu(index as u32);
    let info = machine.online().contains(cpu).then(|| machine.cpu(cpu));
    let mut state = CpuState {
        core: info.map_or(0, |i| i.core.0),
        tier: info.map_or(0, |i| i.tier.0 as u8),
        curr: None,
        leaving: None,
        phase: Phase::Idle,
        need_resched: false,
        tick_stopped: false,
        idle_state: 0,
        kernel_scale: 0,
        speed_q16: 0,
        until: NEVER,
        armed: NEVER,
        gen: 0,
        rate: 0,
        since: 0,
        irq_ns: 0,
        idle_since: 0,
        state_since: 0,
        phase_since: 0,
        tick_armed: NEVER,
        ticks_wanted: false,
        timer_gen: 0,
        timer_armed: NEVER,
        timers: std::collections::BinaryHeap::<Reverse<TimerEntry>>::new(),
        wake_list: Vec::new(),
        pending: Pending::default(),
        stops: Vec::new(),
        slab: None,
        last_space: None,
        borrowed: None,
        governor: crate::idle::Governor::default(),
    };
    state.set_speed(info.map_or(1000, |i| i.speed_permille));
    state
}
