// SPDX-License-Identifier: GPL-2.0-only
//! A machine with tasks put where a test wants them, to ask the model one question.
//!
//! The engine provides the host; its own event loop never runs. What a test sets up directly (loads, idle
//! times, flags) is what the rules read.

use crate::cpuset::CpuSet;
use crate::engine::{Options, Simulation};
use crate::ids::{Cpu, Nanos, TaskId};
use crate::machine::Machine;
use crate::policy::fair::config::Config;
use crate::policy::fair::Fair;
use crate::policy::fifo::Fifo;
use crate::policy::{EnqueueWhy, Newidle, Placement, Policy, WakeInfo, WakeKind};
use crate::program::{Action, Class, Hint, TaskCtx, TaskSpec};
use crate::task::State;
use crate::workload::{Stop, Workload};
use crate::world::World;

use std::sync::Arc;

pub struct Stage {
    pub sim: Simulation,
    pub fair: Fair,
}

fn exits(_: &mut TaskCtx<'_>) -> Action {
    Action::Exit
}

impl Stage {
    /// A stage on a machine, with an idle model of this version.
    pub fn new(machine: Machine, cfg: Config) -> Stage {
        let nobody = vec![TaskSpec::new("nobody", exits)];
        let workload = Workload::bare(World::new(), nobody, Stop::AllExit);
        let fifo = Box::<Fifo>::default();
        let sim = Simulation::new(machine, fifo, workload, 1, Options::default());
        let mut stage = Stage {
            sim: sim.expect("a simulation"),
            fair: Fair::new(cfg),
        };
        stage.fair.attach(&mut stage.sim.host);
        for cpu in stage.sim.host.machine().cpus().to_vec() {
            stage.at(1, cpu);
            stage.fair.idle_enter(&mut stage.sim.host, cpu, false);
        }
        stage
    }

    /// What follows happens at this time on this CPU.
    pub fn at(&mut self, now: Nanos, cpu: Cpu) -> &mut Self {
        self.sim.host.now = now;
        self.sim.host.charged = 0;
        self.sim.host.actor = cpu;
        self
    }

    pub fn now(&self) -> Nanos {
        self.sim.host.now
    }

    /// A new task that sleeps and last ran on `cpu`; its averages are those of a new one.
    pub fn sleeper(&mut self, cpu: u32) -> TaskId {
        self.sleeper_with(cpu, Class::NORMAL, Hint::NONE, None)
    }

    pub fn sleeper_with(
        &mut self,
        cpu: u32,
        class: Class,
        hint: Hint,
        allowed: Option<&[u32]>,
    ) -> TaskId {
        let now = self.now();
        self.at(now, Cpu(cpu));
        let mut spec = TaskSpec::new("task", exits).class(class).hint(hint);
        if let Some(list) = allowed {
            spec = spec.affinity(Arc::new(list.iter().copied().map(Cpu).collect::<CpuSet>()));
        }
        let id = self.sim.create(None, 7, spec).expect("a legal task");
        self.fair.task_new(&mut self.sim.host, id, None);
        let task = &mut self.sim.host.tasks[id.index()];
        (task.state, task.cpu) = (State::Sleeping, Cpu(cpu));
        self.fair.tasks[id.index()].relative = false;
        let rq = &mut self.fair.cpus[cpu as usize].rq;
        rq.attach_avg(&mut self.fair.tasks, id, now);
        id
    }

    /// Queues a sleeping task on the CPU where it last ran.
    pub fn queue(&mut self, id: TaskId) {
        let cpu = self.fair.tasks[id.index()].cpu;
        let now = self.now();
        self.at(now, cpu);
        self.sim.host.tasks[id.index()].state = State::Queued;
        let why = EnqueueWhy::Placed {
            kind: WakeKind::Wake,
            sync: false,
        };
        self.fair.enqueue(&mut self.sim.host, id, cpu, why);
    }

    /// A CPU chooses what it runs.
    pub fn pick(&mut self, cpu: u32) -> Option<TaskId> {
        let now = self.now();
        self.at(now, Cpu(cpu));
        let mut next = self.fair.pick_next(&mut self.sim.host, Cpu(cpu));
        while next.is_none() {
            match self.fair.newidle(&mut self.sim.host, Cpu(cpu), None) {
                Newidle::Idle => break,
                Newidle::Pick => next = self.fair.pick_next(&mut self.sim.host, Cpu(cpu)),
                Newidle::GoesOn => {}
            }
        }
        self.sim.host.cpus[cpu as usize].curr = next;
        self.sim.host.cpus[cpu as usize].need_resched = false;
        if let Some(id) = next {
            let task = &mut self.sim.host.tasks[id.index()];
            (task.state, task.cpu) = (State::Running, Cpu(cpu));
        }
        next
    }

    /// A new task that runs on `cpu`.
    pub fn runner(&mut self, cpu: u32) -> TaskId {
        self.runner_with(cpu, Class::NORMAL)
    }

    pub fn runner_with(&mut self, cpu: u32, class: Class) -> TaskId {
        let id = self.sleeper_with(cpu, class, Hint::NONE, None);
        self.queue(id);
        assert_eq!(self.pick(cpu), Some(id), "the new task is picked");
        id
    }

    /// A new task that waits on `cpu`.
    pub fn waiter(&mut self, cpu: u32) -> TaskId {
        let id = self.sleeper(cpu);
        self.queue(id);
        id
    }

    /// Sets the load average of a CPU's queue.
    pub fn set_load(&mut self, cpu: u32, load: u64) {
        self.fair.cpus[cpu as usize].rq.avg.load = load;
    }

    /// A wakeup of `task` by what runs on `waker`, and where it goes.
    pub fn wake(&mut self, task: TaskId, waker: u32, sync: bool) -> (u32, &'static str) {
        let placement = self.placement(task, WakeKind::Wake, waker, sync);
        self.name(placement)
    }

    /// A fork by what runs on `parent`'s CPU, and where the child goes.
    pub fn fork(&mut self, parent: TaskId, hint: Hint) -> (u32, &'static str) {
        let cpu = self.fair.tasks[parent.index()].cpu;
        let now = self.now();
        self.at(now, cpu);
        let spec = TaskSpec::new("child", exits).hint(hint);
        let child = self
            .sim
            .create(Some(parent), 0, spec)
            .expect("a legal task");
        self.fair.task_new(&mut self.sim.host, child, Some(parent));
        let placement = self.placement(child, WakeKind::Fork, cpu.0, false);
        self.name(placement)
    }

    pub fn placement(&mut self, task: TaskId, kind: WakeKind, waker: u32, sync: bool) -> Placement {
        let now = self.now();
        self.at(now, Cpu(waker));
        let wake = WakeInfo {
            task,
            kind,
            waker_cpu: Cpu(waker),
            waker: self.sim.host.cpus[waker as usize].curr,
            prev: self.sim.host.tasks[task.index()].cpu,
            sync,
        };
        self.fair.select(&mut self.sim.host, &wake)
    }

    fn name(&self, placement: Placement) -> (u32, &'static str) {
        (
            placement.cpu.0,
            self.fair.reasons()[usize::from(placement.reason)],
        )
    }

    /// Probes of searches so far.
    pub fn probes(&self) -> u64 {
        self.sim.host.stats.search_probes
    }

    /// A counter of the model.
    pub fn counter(&self, name: &str) -> u64 {
        let found = self.sim.host.stats.policy.iter().find(|(n, _)| n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}
