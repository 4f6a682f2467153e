// SPDX-License-Identifier: GPL-2.0-only
//! One queue for all: the smallest policy that makes sense, and the example of docs/POLICY.md.
//!
//! 1. A woken task goes to an idle CPU: the one where it last ran, else any it may use.
//! 2. If none is idle it waits at the end of the one queue.
//! 3. A CPU takes the first task of the queue that it may run.
//! 4. A task that runs when a tick comes while others wait goes to the end of the queue.

use std::collections::VecDeque;

use super::prelude::*;

/// See the module.
#[derive(Default)]
pub struct Fifo {
    queue: VecDeque<TaskId>,
    line: LineId, // of the queue's lock: all CPUs fight over it
}

impl Policy for Fifo {
    fn name(&self) -> &str {
        "fifo"
    }

    fn reasons(&self) -> &'static [&'static str] {
        &["prev-idle", "any-idle", "queue"]
    }

    fn attach(&mut self, host: &mut Host) {
        let class = host.line_class("fifo-queue");
        self.line = host.new_line(class, None);
    }

    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement {
        let task = host.task(wake.task);
        let free = |cpu: Cpu| task.may_run_on(cpu) && host.is_idle(cpu) && !host.needs_resched(cpu);
        if free(wake.prev) {
            return Placement::new(wake.prev, 0);
        }
        if let Some(&cpu) = host.machine().cpus().iter().find(|&&cpu| free(cpu)) {
            return Placement::new(cpu, 1);
        }
        let allowed = host.machine().online().and(task.allowed());
        Placement::new(allowed.next_around(wake.prev).expect("not empty"), 2)
    }

    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, _why: EnqueueWhy) {
        host.access(self.line, Access::Rmw);
        self.queue.push_back(task);
        if host.is_idle(cpu) {
            host.resched(cpu);
        }
    }

    fn dequeue(&mut self, host: &mut Host, task: TaskId) {
        host.access(self.line, Access::Rmw);
        self.queue.retain(|&t| t != task);
    }

    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        host.access(self.line, Access::Rmw);
        let fits = |&t: &TaskId| host.task(t).may_run_on(cpu);
        let place = self.queue.iter().position(fits)?;
        self.queue.remove(place)
    }

    fn put_prev(&mut self, host: &mut Host, task: TaskId, _cpu: Cpu, why: StopWhy) {
        if why.is_runnable() {
            host.access(self.line, Access::Rmw);
            self.queue.push_back(task);
        }
    }

    fn tick(&mut self, host: &mut Host, cpu: Cpu, _curr: TaskId) {
        host.access(self.line, Access::Read);
        if self.queue.iter().any(|&t| host.task(t).may_run_on(cpu)) {
            host.resched(cpu);
        }
    }
}
