// SPDX-License-Identifier: GPL-2.0-only
//! Running tasks that move at a tick: misfits, where CPUs differ in capacity, and those who share a core while another idles.
//!
//! The core claims the CPU that such a task is to move to. That ends the task's turn, and instead of queueing again it goes to
//! the local queue of that CPU.

use usher_core::{Core, Demand, Request};

use super::{Place, Usher};
use crate::host::Host;
use crate::ids::{Cid, Cpu, Id, Nanos, StatId, TaskId};
use crate::policy::StopWhy;

pub(super) struct Moves {
    /// By CPU: where its current task is to go, claimed.
    to: Vec<Option<Cpu>>,
    moved: StatId,
    given_back: StatId,
}

impl Moves {
    pub(super) fn new(host: &mut Host, nr_cpus: usize) -> Self {
        Self {
            to: vec![None; nr_cpus],
            moved: host.stat("moved"),
            given_back: host.stat("move-given-back"),
        }
    }
}

/// Looking at who runs on the core, and since when.
const CROWDED_NS: Nanos = 10;

impl Usher {
    /// A tick, or a call by a stronger CPU: is the current task to move?
    pub(super) fn check_moves(&mut self, host: &mut Host, cpu: Cpu, curr: TaskId) {
        match &self.moves {
            Some(moves) if moves.to[cpu.index()].is_none() => {}
            _ => return,
        }
        let mut to = self.misfit(host, cpu, curr);
        if to.is_none() {
            to = self.uncrowd(host, cpu, curr);
        }
        if let Some(to) = to {
            let to = self.cpus[to.index()];
            self.moves.as_mut().expect("as above").to[cpu.index()] = Some(to);
            host.resched(cpu);
        }
        self.rescue(host);
    }

    fn uncrowd(&mut self, host: &mut Host, cpu: Cpu, curr: TaskId) -> Option<Cid> {
        let (cid, now) = (self.cid(cpu), host.now());
        if !self.uncrowds || !self.call(host, CROWDED_NS, |core| core.crowded(cid, now)) {
            return None;
        }
        self.destination(host, cpu, curr, Demand::default(), |core, request| {
            core.uncrowd(request, now)
        })
    }

    /// The CPU that the core claims for a running task, if it does.
    pub(super) fn destination(
        &mut self,
        host: &mut Host,
        cpu: Cpu,
        curr: TaskId,
        demand: Demand,
        find: impl FnOnce(&mut Core, &Request) -> Option<Cid>,
    ) -> Option<Cid> {
        self.allowed(host, curr);
        let allowed = self.tasks[curr.index()].allowed.take();
        let request = Request {
            allowed: allowed.as_ref().map(|(_, set)| &**set),
            demand,
            hints: self.hints(host, curr),
            ..Request::wake(self.cid(cpu), self.cid(host.this_cpu()))
        };
        let to = self.call(host, 0, |core| find(core, &request));
        self.tasks[curr.index()].allowed = allowed;
        to
    }

    /// A task has stopped. True: it moves to the CPU that was claimed for it.
    pub(super) fn put_elsewhere(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: Cpu,
        why: StopWhy,
    ) -> bool {
        let Some(to) = self.moves.as_mut().and_then(|m| m.to[cpu.index()].take()) else {
            return false;
        };
        let moves = self.moves.as_ref().expect("as above");
        // Whoever it was claimed for, that CPU looks; if it finds nothing it is idle again.
        host.resched(to);
        if !why.is_runnable() || !host.task(task).may_run_on(to) {
            host.count(moves.given_back, 1);
            return false;
        }
        host.count(moves.moved, 1);
        host.set_task_cpu(task, to);
        self.tasks[task.index()].place = Place::Local(to);
        self.at[to.index()].push(task);
        true
    }
}
