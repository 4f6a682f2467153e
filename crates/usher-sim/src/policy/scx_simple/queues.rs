// SPDX-License-Identifier: GPL-2.0-only
//! The queues of the scheduler: a local FIFO per CPU, and queues ordered by vtime that CPUs share, one
//! for the machine (scx_simple's own) or one per node.

use std::collections::{BTreeSet, VecDeque};

use crate::coherence::Access;
use crate::host::Host;
use crate::ids::{Cpu, LineId, Nanos, Node, TaskId};

/// Time in which a queue's lock is held beyond the transfer of its line: a few steps down a tree.
/// Assumed.
const QUEUE_OP_NS: Nanos = 60;

/// Where a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: it runs, sleeps, or is on its way.
    None,
    /// In a CPU's local queue.
    Local(Cpu),
    /// In a shared queue, with its key there.
    Shared { queue: usize, vtime: u64, seq: u64 },
    /// It was running when its CPU was told to reschedule, and the CPU has not chosen yet.
    Prev(Cpu),
}

/// A queue ordered by vtime: `SHARED_DSQ`. Its lock and its head are on one line.
struct SharedQueue {
    tasks: BTreeSet<(u64, u64, TaskId)>,
    line: LineId,
}

/// All queues.
#[derive(Default)]
pub(super) struct Queues {
    /// Per CPU; its lock is the run queue's.
    local: Vec<VecDeque<TaskId>>,
    rq_lines: Vec<LineId>,
    shared: Vec<SharedQueue>,
    place: Vec<Place>,
    seq: u64,
}

impl Queues {
    /// Queues for the machine; `homes`: of each shared queue.
    pub fn new(host: &mut Host, homes: &[Option<Node>]) -> Self {
        let nr = host.machine().nr_cpu_numbers();
        let (rq, dsq) = (host.line_class("rq-lock"), host.line_class("shared-dsq"));
        Queues {
            local: vec![VecDeque::new(); nr],
            rq_lines: host.new_lines(rq, nr),
            shared: homes
                .iter()
                .map(|&home| SharedQueue {
                    tasks: BTreeSet::new(),
                    line: host.new_line(dsq, home),
                })
                .collect(),
            place: Vec::new(),
            seq: 0,
        }
    }

    pub fn place(&self, task: TaskId) -> Place {
        self.place.get(task.index()).copied().unwrap_or(Place::None)
    }

    pub fn set_place(&mut self, task: TaskId, place: Place) {
        if self.place.len() <= task.index() {
            self.place.resize(task.index() + 1, Place::None);
        }
        self.place[task.index()] = place;
    }

    pub fn local_is_empty(&self, cpu: Cpu) -> bool {
        self.local[cpu.0 as usize].is_empty()
    }

    /// Queues a task on a CPU, under its run-queue lock.
    pub fn push_local(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, front: bool) {
        let line = self.rq_lines[cpu.0 as usize];
        let at = host.lock(line);
        let queue = &mut self.local[cpu.0 as usize];
        match front {
            true => queue.push_front(task),
            false => queue.push_back(task),
        }
        host.unlock(line, at);
        self.set_place(task, Place::Local(cpu));
    }

    /// The first task of a CPU's own queue; the caller holds the lock already (`schedule()` does).
    pub fn pop_local(&mut self, cpu: Cpu) -> Option<TaskId> {
        let task = self.local[cpu.0 as usize].pop_front()?;
        self.set_place(task, Place::None);
        Some(task)
    }

    /// Queues a task in a shared queue: under the lock of the run queue of `cpu`, where the task is
    /// accounted until somebody takes it, and of the shared queue.
    pub fn push_shared(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: Cpu,
        queue: usize,
        vtime: u64,
    ) {
        let (rq, dsq) = (self.rq_lines[cpu.0 as usize], self.shared[queue].line);
        let rq_at = host.lock(rq);
        let at = host.lock(dsq);
        host.charge(QUEUE_OP_NS);
        self.seq += 1;
        self.shared[queue].tasks.insert((vtime, self.seq, task));
        host.unlock(dsq, at);
        host.unlock(rq, rq_at);
        self.set_place(
            task,
            Place::Shared {
                queue,
                vtime,
                seq: self.seq,
            },
        );
    }

    /// Takes the first task of a shared queue that may run on `cpu`: a look without the lock, then with
    /// it; then the lock of the run queue where the task was accounted.
    pub fn take_shared(&mut self, host: &mut Host, cpu: Cpu, queue: usize) -> Option<TaskId> {
        let line = self.shared[queue].line;
        host.access(line, Access::Read);
        if self.shared[queue].tasks.is_empty() {
            return None;
        }
        let at = host.lock(line);
        host.charge(QUEUE_OP_NS);
        let found = self.shared[queue]
            .tasks
            .iter()
            .find(|(_, _, t)| host.task(*t).may_run_on(cpu));
        let found = found.copied();
        if let Some(key) = found {
            self.shared[queue].tasks.remove(&key);
        }
        host.unlock(line, at);
        let (_, _, task) = found?;
        self.set_place(task, Place::None);
        let origin = host.task(task).cpu();
        if origin != cpu {
            let line = self.rq_lines[origin.0 as usize];
            let at = host.lock(line);
            host.unlock(line, at);
        }
        Some(task)
    }

    /// Takes a task out of wherever it waits.
    pub fn remove(&mut self, host: &mut Host, task: TaskId) {
        match self.place(task) {
            Place::None | Place::Prev(_) => {}
            Place::Local(cpu) => {
                let line = self.rq_lines[cpu.0 as usize];
                let at = host.lock(line);
                self.local[cpu.0 as usize].retain(|&t| t != task);
                host.unlock(line, at);
            }
            Place::Shared { queue, vtime, seq } => {
                let at = host.lock(self.shared[queue].line);
                host.charge(QUEUE_OP_NS);
                self.shared[queue].tasks.remove(&(vtime, seq, task));
                host.unlock(self.shared[queue].line, at);
            }
        }
        self.set_place(task, Place::None);
    }
}
