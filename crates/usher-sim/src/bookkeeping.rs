// SPDX-License-Identifier: GPL-2.0-only
//! Where the kernel keeps account of tasks and of run queues, whatever the scheduler: lines that go from CPU to CPU with who does it.
//!
//! - A task: its state and flags, where it is, its lock, its place in queues, its averages. Who wakes it fetches them from where it
//!   went to sleep, who queues it needs them, too, and where it runs they have to be in the end (`try_to_wake_up()`, `activate_task()`,
//!   `__schedule()`).
//! - A CPU's run queue: clocks, counts, pressure, in the fair class also averages, the tree and what is charged to who runs there now. Who queues a
//!   task there from another CPU, or takes one away, fetches them, and the CPU has to fetch them back.
//!
//! Each is one line of the model that stands for several, which travel together (`wake.task_lines`, `wake.queue_lines`, `wake.fair_lines`), a task's for
//! as many as were measured within an LLC, where a core goes on while most of them come, and for as many as were counted between LLCs
//! (`wake.task_far_lines`). Policies model the lines that others look at, or that they are about, by themselves.
//!
//! They are touched when the policy has done its part. A callback's accesses are all made at once, and what would be booked late by a
//! long transfer before it would keep others waiting (`coherence.rs`).

use crate::coherence::{Access, Bundle, Lines};
use crate::costs::CostNumbers;
use crate::ids::{Cpu, Id, LineClass, LineId, TaskId};
use crate::policy::Host;

/// The run queues' lines, by cpu number, and the class of tasks' lines. `fair`: tasks are of the fair class.
pub(crate) fn lines(
    lines: &mut Lines,
    costs: &CostNumbers,
    fair: bool,
    nr_cpus: usize,
) -> (Vec<LineId>, LineClass) {
    let bundle = |near: u64, far: u64| {
        let [near, far] = [near, far].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Bundle { near, far }
    };
    let of_a_queue = costs.queue_lines + u64::from(fair) * costs.fair_lines;
    let queues = lines.bundles("account of run queues", bundle(of_a_queue, of_a_queue));
    let of_a_task = bundle(costs.task_lines, costs.task_far_lines);
    let tasks = lines.bundles("account of tasks", of_a_task);
    let of_cpus = (0..nr_cpus).map(|_| lines.add(queues, None)).collect();
    (of_cpus, tasks)
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
        let line = self.queue_lines[cpu.index()];
        self.access(line, Access::Write);
    }
}
