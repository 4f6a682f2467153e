// SPDX-License-Identifier: GPL-2.0-only
//! Where the kernel keeps account of tasks and of run queues, whatever the scheduler: lines that go from CPU to CPU with who does it.
//!
//! - A task: its state and flags, where it is, its lock, its place in queues, its averages. Who wakes it fetches them from where it
//!   went to sleep, who queues it needs them, too, and where it runs they have to be in the end (`try_to_wake_up()`, `activate_task()`,
//!   `__schedule()`).
//! - A CPU's run queue: clocks, counts, pressure, in the fair class also averages, the tree and what is charged to who runs there now. Who queues a
//!   task there from another CPU, or takes one away, fetches them, and the CPU has to fetch them back.
//!
//! Each is one line of the model that stands for several, which travel together (`wake.task_lines`, `wake.queue_lines`, `wake.fair_lines`), for as many
//! as were measured: a core goes on while most of them come, between LLCs a little less (`wake.task_far_lines`). Policies model the lines that others
//! look at, or that they are about, by themselves.
//!
//! - The list of tasks that are sent to a CPU for it to queue: who sends one, and the CPU, change its head by an atomic operation.
//!
//! They are touched when the policy has done its part. A callback's accesses are all made at once, and what would be booked late by a
//! long transfer before it would keep others waiting (`coherence.rs`).

use crate::coherence::{Access, Bundle, Lines};
use crate::costs::CostNumbers;
use crate::ids::{Cpu, Id, LineClass, LineId, TaskId};
use crate::policy::Host;

/// What the kernel keeps account in.
pub(crate) struct Books {
    /// By cpu number: the lines of its run queue.
    queues: Vec<LineId>,
    /// By cpu number: the head of its wake list.
    wake_lists: Vec<LineId>,
    /// Class of the lines of tasks.
    pub tasks: LineClass,
}

/// `fair`: tasks are of the fair class.
pub(crate) fn books(lines: &mut Lines, costs: &CostNumbers, fair: bool, nr_cpus: usize) -> Books {
    let bundle = |near: u64, far: u64| {
        let [near, far] = [near, far].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Bundle { near, far }
    };
    let of_a_queue = costs.queue_lines + u64::from(fair) * costs.fair_lines;
    let queues = lines.bundles("account of run queues", bundle(of_a_queue, of_a_queue));
    let of_a_task = bundle(costs.task_lines, costs.task_far_lines);
    let tasks = lines.bundles("account of tasks", of_a_task);
    let wake_lists = lines.class("wake lists");
    let mut of_cpus = |class| (0..nr_cpus).map(|_| lines.add(class, None)).collect();
    Books {
        queues: of_cpus(queues),
        wake_lists: of_cpus(wake_lists),
        tasks,
    }
}

impl Host {
    /// This CPU changes what is kept of a task.
    #[inline]
    pub(crate) fn touch_task(&mut self, task: TaskId) {
        let line = self.tasks[task.index()].line;
        self.access(line, Access::Write);
    }

    /// This CPU changes what is kept of a CPU's run queue.
    #[inline]
    pub(crate) fn touch_queue(&mut self, cpu: Cpu) {
        let line = self.books.queues[cpu.index()];
        self.access(line, Access::Write);
    }

    /// This CPU puts a task on a CPU's wake list, or takes what is on its own.
    #[inline]
    pub(crate) fn touch_wake_list(&mut self, cpu: Cpu) {
        let line = self.books.wake_lists[cpu.index()];
        self.access(line, Access::Rmw);
    }
}
