// SPDX-License-Identifier: GPL-2.0-only
//! The checkers bite: policies with one planted fault each must be caught, by the right rule.

mod common;

use std::collections::VecDeque;

use common::Step::Act;
use common::*;
use usher_sim::policy::{EnqueueWhy, Host, Placement, StopWhy, WakeInfo};
use usher_sim::program::{Action, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::World;
use usher_sim::{Cpu, Nanos, Policy, SimError, Simulation, TaskId};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Forgets every tenth task it is given.
    Loses,
    /// Forgets to take what it picks off its queue.
    RunsTwice,
    /// Ignores affinity when it picks.
    Anywhere,
    /// Ignores affinity when it places.
    PlacesAnywhere,
    /// Does not tell an idle CPU that there is work.
    ForgetsKick,
    /// Gives a reason that has no name.
    NoReason,
}

/// One queue for all; every idle CPU is told about every task.
struct Faulty {
    fault: Fault,
    queue: VecDeque<TaskId>,
    given: u32,
}

impl Policy for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }
    fn reasons(&self) -> &'static [&'static str] {
        &["prev"]
    }
    fn attach(&mut self, _host: &mut Host) {}
    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement {
        let reason = u16::from(self.fault == Fault::NoReason) * 7;
        let prev = wake.prev;
        if host.task(wake.task).may_run_on(prev) || self.fault == Fault::PlacesAnywhere {
            return Placement { cpu: prev, reason };
        }
        let cpu = host.task(wake.task).allowed().first().expect("somewhere");
        Placement { cpu, reason }
    }
    fn enqueue(&mut self, host: &mut Host, task: TaskId, _cpu: Cpu, _why: EnqueueWhy) {
        self.given += 1;
        if self.fault == Fault::Loses && self.given.is_multiple_of(10) {
            return;
        }
        self.queue.push_back(task);
        if self.fault == Fault::ForgetsKick && self.given > 20 {
            return;
        }
        for cpu in host.machine().online().clone().iter() {
            if host.is_idle(cpu) {
                host.resched(cpu);
            }
        }
    }
    fn dequeue(&mut self, _host: &mut Host, task: TaskId) {
        self.queue.retain(|&t| t != task);
    }
    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        let anywhere = self.fault == Fault::Anywhere;
        let fits = |t: &TaskId| anywhere || host.task(*t).may_run_on(cpu);
        let place = self.queue.iter().position(fits)?;
        match self.fault {
            Fault::RunsTwice => Some(self.queue[place]),
            _ => self.queue.remove(place),
        }
    }
    fn put_prev(&mut self, _host: &mut Host, task: TaskId, _cpu: Cpu, why: StopWhy) {
        if why.is_runnable() {
            self.queue.push_back(task);
        }
    }
    fn tick(&mut self, host: &mut Host, cpu: Cpu, _curr: TaskId) {
        if !self.queue.is_empty() {
            host.resched(cpu);
        }
    }
    fn idle_bound_ns(&self, _host: &Host, _task: TaskId, _cpu: Cpu) -> Option<Nanos> {
        (self.fault != Fault::Loses).then_some(MS)
    }
    fn wait_bound_ns(&self) -> Option<Nanos> {
        Some(100 * MS)
    }
}

fn run_faulty(fault: Fault) -> Result<usher_sim::Report, SimError> {
    let tasks = (0..8u32)
        .map(|i| {
            let steps = (0..40)
                .flat_map(|_| [Act(Action::Compute(300 * US)), Act(Action::Sleep(500 * US))]);
            let set = [(i + 2) % 4, (i + 3) % 4].map(Cpu).into_iter().collect();
            let program = script(steps.collect());
            TaskSpec::new("loop", program).affinity(std::sync::Arc::new(set))
        })
        .collect();
    let workload = workload(World::new(), tasks, Stop::AllExit);
    let policy = Box::new(Faulty {
        fault,
        queue: VecDeque::new(),
        given: 0,
    });
    let machine = machine("core:4 pu:1", free_costs());
    Simulation::new(machine, policy, workload, 3, Default::default())?.run()
}

// Goal: each rule that a policy can break is checked, and a sound policy passes.
// Method: the same policy with one fault each; the error must name the broken rule.
#[test]
fn planted_faults_are_caught() {
    run_faulty(Fault::None).expect("a sound policy passes");
    for (fault, message) in [
        (Fault::Loses, "that this policy may keep anybody waiting"),
        (Fault::RunsTwice, "which is Running"),
        (Fault::Anywhere, "may not run here"),
        (Fault::PlacesAnywhere, "not allowed there"),
        (Fault::ForgetsKick, "idles for"),
        (Fault::NoReason, "has no name"),
    ] {
        match run_faulty(fault) {
            Err(SimError::Violation { what, .. }) => {
                assert!(what.contains(message), "{fault:?}: {what}");
            }
            other => panic!("{fault:?} was not caught: {:?}", other.map(|r| r.metrics)),
        }
    }
}

/// A queue per CPU. At the second tick of the first CPU who waits there is moved to the queue of the second one, which is told a tick later, or never.
struct Moves {
    queues: [VecDeque<TaskId>; 2],
    ticks: u32,
    tells: bool,
    /// What is promised of CPUs of other caches than the task's.
    far: Option<Nanos>,
}

impl Policy for Moves {
    fn name(&self) -> &str {
        "moves"
    }
    fn reasons(&self) -> &'static [&'static str] {
        &["prev"]
    }
    fn attach(&mut self, _host: &mut Host) {}
    fn select(&mut self, _host: &mut Host, _wake: &WakeInfo) -> Placement {
        Placement {
            cpu: Cpu(0),
            reason: 0,
        }
    }
    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, _why: EnqueueWhy) {
        self.queues[cpu.0 as usize].push_back(task);
        host.resched(cpu);
    }
    fn dequeue(&mut self, _host: &mut Host, _task: TaskId) {}
    fn pick_next(&mut self, _host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        self.queues[cpu.0 as usize].pop_front()
    }
    fn put_prev(&mut self, _host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        if why.is_runnable() {
            self.queues[cpu.0 as usize].push_front(task);
        }
    }
    fn tick(&mut self, host: &mut Host, _cpu: Cpu, _curr: TaskId) {
        self.ticks += 1;
        if self.ticks == 2 {
            let task = self.queues[0].pop_front().expect("one waits");
            self.queues[1].push_back(task);
            host.set_task_cpu(task, Cpu(1));
        } else if self.ticks == 3 && self.tells {
            host.resched(Cpu(1));
        }
    }
    fn idle_bound_ns(&self, host: &Host, task: TaskId, cpu: Cpu) -> Option<Nanos> {
        match host.task(task).cpu() == cpu {
            true => Some(60 * MS),
            false => self.far,
        }
    }
}

// Goal: a wait beside an idle CPU counts from when the task came into that CPU's cache, beside one of another cache from when it was queued.
// Method: two tasks of 200 ms on the first of three CPUs, a cache each; one is moved to the second after two ticks of 42 ms, and that CPU told after a third or
// never. The bound is 60 ms; and 70 for CPUs of other caches, of which the third idles all the time. Catches: a wait elsewhere that is held against a CPU of the new
// cache, one that is never counted, and one that begins anew for all CPUs with a move.
#[test]
fn a_wait_beside_an_idle_cpu_begins_where_the_task_comes() {
    let run = |tells, far| {
        let hog = || TaskSpec::new("hog", script(vec![Act(Action::Compute(200 * MS))]));
        let workload = workload(World::new(), vec![hog(), hog()], Stop::AllExit);
        let policy = Box::new(Moves {
            queues: Default::default(),
            ticks: 0,
            tells,
            far,
        });
        let machine = machine("l3:3 core:1 pu:1", free_costs());
        Simulation::new(machine, policy, workload, 1, Default::default())?.run()
    };
    run(true, None).expect("told after a tick");
    for (tells, far, beside) in [(false, None, Cpu(1)), (true, Some(70 * MS), Cpu(2))] {
        match run(tells, far) {
            Err(SimError::Violation { what, cpu, .. }) => {
                assert!(what.contains("idles for"), "{what}");
                assert_eq!(cpu, beside);
            }
            other => panic!("not caught: {:?}", other.map(|r| r.metrics)),
        }
    }
}
