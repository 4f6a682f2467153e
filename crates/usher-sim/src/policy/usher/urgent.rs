// SPDX-License-Identifier: GPL-2.0-only
//! The host's part of preemption: classes of tasks (`docs/TASKS.md`), and the CPU that a latency-critical one takes.
//!
//! As `bpf/class.bpf.h` does, it begins when the first task wakes that has the weight to be latency-critical: until
//! then nobody preempts, no class is kept, and nothing is charged.

use usher_core::{Burst, Level, Query};

use super::{scx_weight, Place, Usher};
use crate::host::Host;
use crate::ids::{Cid, Cpu, Id, Nanos, TaskId};
use crate::program::Class;

/// Reading or bringing up to date what a task runs between two sleeps, in its storage, and judging it: assumed, as
/// much as a utilisation.
const CLASS_NS: Nanos = 10;

impl Usher {
    /// A task woke while nobody is idle: the CPU that it is to take, of those that are enough for it if one of them
    /// will do. One that may run on one CPU only takes `from`, or none.
    pub(super) fn preempted_for(
        &mut self,
        host: &mut Host,
        task: TaskId,
        from: Cid,
        pinned: bool,
    ) -> Option<Cpu> {
        let weight = scx_weight(host, task);
        let core = self.core.as_ref().expect("attached");
        let may = core.class(&Burst::default(), weight, false) == usher_core::Class::Critical;
        if !self.settings.cpupri || !may {
            return None;
        }
        if self.bursts.is_none() {
            self.bursts = Some(Vec::new());
            return None;
        }
        let by = self.cid(host.this_cpu());
        let class = self.class_of(host, task, 0)?;
        if pinned {
            let taken = self.call(host, 0, |core| core.preempt_pinned(from, by, class));
            return taken.then(|| self.cpus[from.index()]);
        }
        let demand = self.demand(host, task);
        self.allowed(host, task);
        let allowed = self.tasks[task.index()].allowed.take();
        let taken = self.call(host, 0, |core| {
            let query = Query {
                allowed: allowed.as_ref().map(|(_, set)| &**set),
                tiers: core.tiers_first(demand),
                ..Query::any(from, by)
            };
            core.preempt(&query, class)
        });
        self.tasks[task.index()].allowed = allowed;
        taken.map(|cid| self.cpus[cid.index()])
    }

    /// A task takes the CPU of one that is less urgent.
    pub(super) fn preempt(&mut self, host: &mut Host, task: TaskId, victim: Cpu) {
        host.set_task_cpu(task, victim);
        self.tasks[task.index()].place = Place::Local(victim);
        self.at[victim.index()].push_front(task);
        host.resched(victim);
    }

    /// A task has run, and sleeps or could go on.
    pub(super) fn burst_end(&mut self, host: &mut Host, task: TaskId, ran: Nanos, slept: bool) {
        let (Some(bursts), Some(core)) = (&mut self.bursts, &self.core) else {
            return;
        };
        if bursts.len() <= task.index() {
            bursts.resize(task.index() + 1, core.burst());
        }
        bursts[task.index()].ran(ran, slept);
        host.charge(CLASS_NS);
    }

    /// A task is born.
    pub(super) fn burst_born(&mut self, task: TaskId) {
        let (Some(bursts), Some(core)) = (&mut self.bursts, &self.core) else {
            return;
        };
        if let Some(burst) = bursts.get_mut(task.index()) {
            *burst = core.burst();
        }
    }

    /// A CPU begins to run a task.
    pub(super) fn tell_class(&mut self, host: &mut Host, cid: Cid, task: TaskId) {
        if let Some(class) = self.class_of(host, task, 0) {
            self.call(host, 0, |core| core.runs(cid, class));
        }
    }

    /// At a tick of a CPU: what the task that runs there is by now.
    pub(super) fn class_goes_on(&mut self, host: &mut Host, cid: Cid, task: TaskId) {
        let ran = host.runtime(task) - self.tasks[task.index()].charged;
        if let Some(class) = self.class_of(host, task, ran) {
            let level = Level::new(class as u32);
            self.call(host, 0, |core| core.set_level(cid, level));
        }
    }

    /// What a task is to those that wait for it, once that is kept; it ran for so long since it was last put.
    fn class_of(&self, host: &mut Host, task: TaskId, ran: Nanos) -> Option<usher_core::Class> {
        let core = self.core.as_ref().expect("attached");
        let known = self.bursts.as_ref()?.get(task.index());
        let mut burst = known.copied().unwrap_or_else(|| core.burst());
        burst.ran(ran, false);
        let batch = matches!(host.task(task).class(), Class::Batch { .. } | Class::Idle);
        host.charge(CLASS_NS);
        Some(core.class(&burst, scx_weight(host, task), batch))
    }
}
