// SPDX-License-Identifier: GPL-2.0-only
//! Creating, waking and placing tasks.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::Kind;
use crate::ids::{Cpu, Id, TaskId};
use crate::machine::Distance;
use crate::policy::{EnqueueWhy, Host, Leaving, WakeInfo, WakeKind};
use crate::program::{Action, Class, Hint, Outcome, TaskCtx, TaskSpec};
use crate::rng::{mix, Rng};
use crate::state::{Phase, NEVER};
use crate::task::{Left, State, Task, Todo, WaitsFor};
use crate::trace::TraceEvent;
use crate::waitlist::{Links, WaitList};
use crate::Simulation;

impl Simulation {
    /// Makes a task. `None`, and the run has failed, if its affinity makes no sense.
    /// `ordinal`: place of a root task in the workload's list; it makes its random numbers.
    pub(crate) fn create(
        &mut self,
        parent: Option<TaskId>,
        ordinal: u32,
        spec: TaskSpec,
    ) -> Option<TaskId> {
        let id = TaskId(self.host.tasks.len() as u32);
        let cpu = self.host.actor;
        let lineage = self.host.lineage(parent, ordinal);
        let rng = Rng::stream(self.task_seed, lineage);
        let mut task = new_task(&mut self.host, id, parent, spec, cpu, (lineage, rng));
        if parent.is_some() {
            // It finds in the caches what its parent has there.
            self.caches.leave(&self.host.machine, cpu, &mut task);
        }
        let (name, nr_allowed, space) = (Arc::clone(&task.name), task.nr_allowed, task.space);
        self.host.tasks.push(task);
        self.host.tasks[space.index()].threads += 1;
        self.host.live += 1;
        if nr_allowed == 0 {
            self.fail_workload(
                id,
                format!("`{name}` may run on no online CPU; check its affinity"),
            );
            return None;
        }
        if let Some(parent) = parent {
            let parent = &mut self.host.tasks[parent.index()];
            parent.live_children += 1;
            parent.children_made += 1;
        }
        self.ask_policy(|policy, host| policy.task_new(host, id, parent));
        Some(id)
    }

    /// Wakes a task that sleeps or is about to.
    pub(crate) fn wake(&mut self, task: TaskId, waker: Option<TaskId>, sync: bool) {
        let at = self.host.now();
        self.host.touch_task(task);
        let t = &mut self.host.tasks[task.index()];
        t.wait_gen = t.wait_gen.wrapping_add(1);
        t.waits_for = WaitsFor::Nothing;
        self.host.stats.wakes += 1;
        match t.state {
            State::Running => {
                t.woken = true;
                self.host.stats.wakes_on_cpu += 1;
                let cost = self.host.machine.costs().n.wake_ns;
                self.host.charge(cost);
            }
            State::Sleeping => {
                self.host.stuck -= usize::from(!t.timed);
                t.state = State::Waking;
                t.woken_at = at;
                if !self.left_to_its_cpu(task, waker, sync) {
                    self.place(task, WakeKind::Wake, waker, sync);
                }
            }
            State::Waking | State::Queued | State::Dead => {
                unreachable!(
                    "only a waiting task is woken, and task {task} is {:?}",
                    t.state
                )
            }
        }
    }

    /// `try_to_wake_up()` of a task that sleeps already, but whose CPU is still in `schedule()`: hands it to that CPU, if
    /// the policy says so, or waits until the CPU has switched.
    fn left_to_its_cpu(&mut self, task: TaskId, waker: Option<TaskId>, sync: bool) -> bool {
        let here = self.host.actor;
        let t = &self.host.tasks[task.index()];
        let (cpu, off_at) = (t.cpu, t.off_cpu_at);
        if off_at <= self.host.now() || cpu == here {
            return false;
        }
        let leaving = if t.may_run_on(cpu) {
            self.ask_policy(|policy, host| policy.wake_leaving(host, task, cpu, here))
        } else {
            Leaving::Wait
        };
        match leaving {
            Leaving::Queue => {
                let cost = self.host.machine.costs().n.wake_ns;
                self.host.charge(cost);
                self.host.stats.wakes_leaving += 1;
                self.trace_placed(task, WakeKind::Wake, waker, cpu, None, 0);
                self.send_wake(task, cpu, WakeKind::Wake, sync);
                true
            }
            Leaving::Wait => {
                // How long a search will take is not known; how long its present look does is.
                let until = off_at.min(self.host.cpus[cpu.index()].until);
                self.host.charged += until.saturating_sub(self.host.now());
                false
            }
            Leaving::Never => false,
        }
    }

    /// Finds a CPU for a task and hands it over.
    pub(crate) fn place(
        &mut self,
        task: TaskId,
        kind: WakeKind,
        waker: Option<TaskId>,
        sync: bool,
    ) {
        let here = self.host.actor;
        self.host.stats.forks += u64::from(kind == WakeKind::Fork);
        let cost = self.host.machine.costs().n.wake_ns;
        self.host.charge(cost);
        let Some(cpu) = self.choose(task, kind, waker, sync) else {
            return;
        };
        if kind == WakeKind::Wake {
            let c = &self.host.cpus[cpu.index()];
            let idle = c.curr.is_none() && c.leaving.is_none();
            self.host.stats.wakes_idle += u64::from(idle);
        }
        let remote = cpu != here
            && self.ask_policy(|policy, host| policy.remote_wake(host, task, cpu, here));
        if remote {
            self.send_wake(task, cpu, kind, sync);
        } else {
            self.hand_over(task, cpu, EnqueueWhy::Placed { kind, sync });
        }
    }

    /// Asks the policy for a CPU. `None`: it broke a rule, and the run has failed.
    pub(crate) fn choose(
        &mut self,
        task: TaskId,
        kind: WakeKind,
        waker: Option<TaskId>,
        sync: bool,
    ) -> Option<Cpu> {
        let here = self.host.actor;
        let t = &self.host.tasks[task.index()];
        if t.nr_allowed == 1 {
            let cpu = self.host.only_cpu(task);
            self.trace_placed(task, kind, waker, cpu, None, 0);
            return Some(cpu);
        }
        let wake = WakeInfo {
            task,
            kind,
            waker_cpu: here,
            waker,
            prev: t.cpu,
            sync,
        };
        let before = self.host.charged;
        let placement = self.ask_policy(|policy, host| policy.select(host, &wake));
        let cost = self.host.charged - before;
        let (cpu, reason) = (placement.cpu, placement.reason);
        let legal = self.host.machine.online().contains(cpu)
            && self.host.tasks[task.index()].may_run_on(cpu);
        if !legal {
            let name = self.policy.name();
            self.fail_rule(
                here,
                format!("{name} placed task {task} on cpu {cpu}, not allowed there"),
            );
            return None;
        }
        match self.host.stats.reasons.get_mut(usize::from(reason)) {
            Some(count) => *count += 1,
            None => {
                let name = self.policy.name();
                self.fail_rule(
                    here,
                    format!("{name} gave the reason {reason}, which has no name"),
                );
                return None;
            }
        }
        self.trace_placed(task, kind, waker, cpu, Some(reason), cost);
        Some(cpu)
    }

    fn trace_placed(
        &mut self,
        task: TaskId,
        kind: WakeKind,
        waker: Option<TaskId>,
        cpu: Cpu,
        reason: Option<u16>,
        ns: u64,
    ) {
        let waker_cpu = self.host.actor;
        self.host.trace(TraceEvent::Placed {
            waker_cpu,
            waker,
            task,
            kind,
            cpu,
            reason,
            ns,
        });
    }

    /// Puts a task on another CPU's wake list, and tells the CPU if the list was empty.
    fn send_wake(&mut self, task: TaskId, cpu: Cpu, kind: WakeKind, sync: bool) {
        self.host.touch_wake_list(cpu);
        let c = &mut self.host.cpus[cpu.index()];
        let first = c.wake_list.is_empty();
        c.wake_list.push((task, kind, sync));
        if !first {
            return;
        }
        let polling = self.host.is_polling(cpu);
        let distance = self.host.machine.distance(self.host.actor, cpu);
        let delay = self.host.notify(cpu, polling, distance);
        let at = self.host.now() + delay;
        self.host.push(at, Kind::WakeList, cpu, u32::from(!polling));
    }

    /// Gives a task that is `Waking` to the policy.
    pub(crate) fn hand_over(&mut self, task: TaskId, cpu: Cpu, why: EnqueueWhy) {
        let now = self.host.now();
        let t = &mut self.host.tasks[task.index()];
        debug_assert_eq!(t.state, State::Waking);
        t.begins_to_wait(now);
        t.cpu = cpu;
        self.host.queued += 1;
        self.ask_policy(|policy, host| policy.enqueue(host, task, cpu, why));
        self.host.touch_queue(cpu);
        self.host.touch_task(task);
    }

    /// The affinity of a task changed: moves it if it is where it may not be. The task itself, if it runs,
    /// moves when its system call is done.
    pub(crate) fn affinity_changed(&mut self, task: TaskId, waker: TaskId) {
        let t = &self.host.tasks[task.index()];
        if t.may_run_on(t.cpu) {
            return;
        }
        match t.state {
            State::Queued => self.place_anew(task, Some(waker)),
            // It moves when it is preempted: see `schedule`.
            State::Running => {
                let cpu = t.cpu;
                self.host.resched(cpu);
            }
            // Placed anew when it wakes, or where it lands.
            State::Sleeping | State::Waking | State::Dead => {}
        }
    }

    /// Moves a queued task that may not run where it is.
    pub(crate) fn place_anew(&mut self, task: TaskId, waker: Option<TaskId>) {
        self.ask_policy(|policy, host| policy.dequeue(host, task));
        self.host.queued -= 1;
        self.host.tasks[task.index()].state = State::Waking;
        self.place(task, WakeKind::Affinity, waker, false);
    }
}

impl Host {
    /// What the random numbers of a new task depend on: its place in the family tree.
    fn lineage(&self, parent: Option<TaskId>, ordinal: u32) -> u64 {
        match parent.map(|p| &self.tasks[p.index()]) {
            Some(p) => mix(p.lineage ^ mix(p.children_made + 1)),
            None => mix(u64::from(ordinal) + 1),
        }
    }

    /// The only online CPU a task may run on.
    fn only_cpu(&self, task: TaskId) -> Cpu {
        let allowed = self.tasks[task.index()].allowed();
        allowed
            .iter()
            .find(|&c| self.machine.online().contains(c))
            .expect("checked at creation")
    }

    /// Whether a write to memory is enough to wake a CPU.
    pub(crate) fn is_polling(&self, cpu: Cpu) -> bool {
        let c = &self.cpus[cpu.index()];
        match c.phase {
            Phase::Idle => self.machine.costs().idle_states[usize::from(c.idle_state)].polling,
            Phase::Entering => true,
            _ => false,
        }
    }

    /// Charges what telling a CPU something costs, and returns how long it takes to get there.
    pub(crate) fn notify(&mut self, cpu: Cpu, polling: bool, distance: Distance) -> u64 {
        if polling {
            // Its flag is set by an atomic operation, for which its line has to come here, and then there.
            let line = self.line_ns(distance, cpu);
            let cost = self.machine.costs().n.poll_wake_ns;
            self.charge(cost);
            self.charge(line);
            self.stats.poll_wakes += 1;
            return line;
        }
        let cost = self.machine.costs().n.ipi_send_ns;
        self.charge(cost);
        self.stats.ipis[distance as usize] += 1;
        self.ipi_ns(distance)
    }

    /// Asks a task's program what it does next.
    pub(crate) fn ask_program(&mut self, task: TaskId, cpu: Cpu) -> Action {
        let t = &mut self.tasks[task.index()];
        let mut ctx = TaskCtx {
            now: self.now,
            me: task,
            cpu,
            outcome: std::mem::take(&mut t.outcome),
            rng: &mut t.rng,
            memory: &mut t.memory,
            world: &mut self.world,
        };
        let program = t.program.as_mut().expect("a living task has a program");
        let action = program.next(&mut ctx);
        if let Some((from, until)) = self.world.measured.take() {
            self.push(from, Kind::Warm, cpu, 0);
            if let Some(until) = until {
                self.push(until, Kind::End, cpu, 0);
            }
        }
        action
    }

    #[inline]
    pub(crate) fn trace(&mut self, event: TraceEvent) {
        let at = self.now + self.charged;
        for tracer in &mut self.tracers {
            let tasks = &self.tasks;
            tracer.event(at, event, &|id| &tasks[id.index()]);
        }
    }

    #[inline]
    pub(crate) fn trace_switch(&mut self, cpu: Cpu, prev: Option<TaskId>, next: Option<TaskId>) {
        if !self.tracers.is_empty() {
            let prev = prev.map(|id| (id, self.tasks[id.index()].state));
            self.trace(TraceEvent::Switch { cpu, prev, next });
        }
    }
}

fn new_task(
    host: &mut Host,
    id: TaskId,
    parent: Option<TaskId>,
    spec: TaskSpec,
    cpu: Cpu,
    (lineage, rng): (u64, Rng),
) -> Task {
    let line = host.lines.add(host.books.tasks, None);
    let machine = &host.machine;
    let p = parent.map(|p| &host.tasks[p.index()]);
    let allowed = spec.affinity.or(p.map(|p| Arc::clone(&p.allowed)));
    let allowed = allowed.unwrap_or_else(|| Arc::new(machine.online().clone()));
    let class = spec
        .class
        .or(p.map(|p| p.own_class))
        .unwrap_or(Class::NORMAL);
    Task {
        id,
        name: spec.name,
        parent,
        program: Some(spec.program),
        state: State::Waking,
        nr_allowed: allowed.and(machine.online()).len() as u32,
        allowed,
        own_class: class,
        class,
        hint: spec.hint.or(p.map(|p| p.hint)).unwrap_or(Hint::NONE),
        group: spec.group.or(p.map(|p| p.group)).unwrap_or(0),
        memory: spec.memory.or(p.map(|p| p.memory)).unwrap_or_default(),
        space: p.filter(|_| spec.thread).map_or(id, |p| p.space),
        cpu,
        last_ran: None,
        home: machine.cpu(cpu).node,
        rng,
        lineage,
        children_made: 0,
        outcome: Outcome::Done,
        todo: Todo::Next,
        after: Todo::Next,
        work_left: 0,
        refill_ns: 0,
        left: Left::NOWHERE,
        waits_for: WaitsFor::Nothing,
        woken: false,
        wait_gen: 0,
        timed: false,
        links: Links::NONE,
        to_wake: WaitList::default(),
        to_wake_sync: false,
        held_pi: Vec::new(),
        partial: 0,
        exiting: false,
        live_children: 0,
        threads: 0,
        line,
        space_line: None,
        dead_children: VecDeque::new(),
        runtime: 0,
        ran_since: host.now,
        queued_at: host.now,
        waits_here_since: host.now,
        waited: 0,
        woken_at: NEVER,
        off_cpu_at: 0,
        switches: 0,
        sleeps: 0,
        work_done: 0,
        work_asked: 0,
        exited_at: NEVER,
        created_at: host.now,
        run_before: 0,
    }
}
