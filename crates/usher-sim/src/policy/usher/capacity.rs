// SPDX-License-Identifier: GPL-2.0-only
//! The host's part where CPUs differ in capacity; on machines of equal CPUs nothing here exists.
//!
//! Whenever a task stops, and at each tick, the core is told what it ran ([`Usher::account`]). At a tick it is
//! asked whether the task is to move to a stronger CPU. That CPU is claimed by then; the tick ends the task's turn, and
//! instead of queueing again the task goes to the CPU's local queue. A CPU that goes idle interrupts a weaker
//! one whose task waits for it, as if that one's tick had come.

use usher_core::{Demand, Queue, Utilisation, FIT_LOOK};

use super::queues::take;
use super::Usher;
use crate::host::Host;
use crate::ids::{Cid, Cpu, Id, Nanos, TaskId};

/// Bringing a utilisation up to date, or reading one: three multiplications and table look-ups each for what it slept
/// and what it ran.
const UTIL_NS: Nanos = 10;

/// Of a task.
#[derive(Clone, Copy, Default)]
struct Load {
    util: Utilisation,
    /// Runtime when that was brought up to date.
    accounted: Nanos,
}

#[derive(Default)]
pub(super) struct Unequal {
    load: Vec<Load>,
}

impl Unequal {
    pub(super) fn task_new(&mut self, task: TaskId) {
        if self.load.len() <= task.index() {
            self.load.resize(task.index() + 1, Load::default());
        }
        self.load[task.index()] = Load::default();
    }
}

impl Usher {
    /// What a task asks of a CPU.
    pub(super) fn demand(&mut self, host: &mut Host, task: TaskId) -> Demand {
        let (Some(unequal), Some(core)) = (&self.unequal, &self.core) else {
            return Demand::default();
        };
        host.charge(UTIL_NS);
        Demand {
            util: core.util_now(&unequal.load[task.index()].util, host.now()),
            at_ns: host.now(),
            ..Demand::default()
        }
    }

    /// Accounts what a task has run on a CPU since the last time.
    fn account(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        let cid = self.cid(cpu);
        let (Some(unequal), Some(core)) = (&mut self.unequal, &mut self.core) else {
            return;
        };
        let load = &mut unequal.load[task.index()];
        let ran = host.runtime(task) - load.accounted;
        load.accounted += ran;
        core.util_ran(&mut load.util, cid, host.now(), ran);
        host.charge(UTIL_NS);
    }

    /// A tick, or a call by a stronger CPU: where the current task is to move.
    pub(super) fn misfit(&mut self, host: &mut Host, cpu: Cpu, curr: TaskId) -> Option<Cid> {
        self.unequal.as_ref()?;
        self.account(host, curr, cpu);
        let demand = self.demand(host, curr);
        self.destination(host, cpu, curr, demand, |core, request| {
            core.misfit(request)
        })
    }

    /// A CPU has gone idle: a weaker one may have a task for it.
    pub(super) fn call_misfit(&mut self, host: &mut Host, cid: Cid) {
        if self.unequal.is_none() {
            return;
        }
        if let Some(weak) = self.call(host, 0, |core| core.misfit_call(cid)) {
            host.send_ipi(self.cpus[weak.index()], 0);
        }
    }

    /// A task has stopped.
    pub(super) fn load_stop(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, slept: bool) {
        if self.unequal.is_none() {
            return;
        }
        self.account(host, task, cpu);
        if let (true, Some(unequal), Some(core)) = (slept, &mut self.unequal, &mut self.core) {
            core.util_slept(&mut unequal.load[task.index()].util);
        }
    }

    /// The first task of a queue that may run on a CPU, or one soon after it that the CPU is enough for.
    pub(super) fn take_fitting(
        &mut self,
        host: &mut Host,
        queue: Queue,
        cpu: Cpu,
    ) -> Option<TaskId> {
        let cid = self.cid(cpu);
        let shared = &self.queues[queue.index()];
        let near: Vec<_> = shared
            .tasks
            .iter()
            .take(FIT_LOOK)
            .filter(|(_, &task)| host.task(task).may_run_on(cpu))
            .map(|(&key, &task)| (key, task))
            .collect();
        let first = near.first().map(|(key, _)| key.0);
        let found = near.iter().find(|&&((v, _), task)| {
            let demand = self.demand(host, task);
            let first = first.expect("there is one");
            let core = self.core.as_mut().expect("attached");
            core.take_instead(cid, first, v, demand)
        });
        let shared = &mut self.queues[queue.index()];
        let chosen = found.or(near.first()).map(|&(key, _)| key);
        take(host, &mut shared.tasks, shared.line, chosen, cpu)
    }
}
