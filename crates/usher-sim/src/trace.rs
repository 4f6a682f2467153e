// SPDX-License-Identifier: GPL-2.0-only
//! Scheduling events for those who want to see them: traces, tests.

use crate::ids::{Cpu, Nanos, TaskId};
use crate::policy::WakeKind;
use crate::task::{State, Task};

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A CPU goes from one task (or idle) to another (or idle).
    Switch {
        /// Where.
        cpu: Cpu,
        /// Who ran, and its state from now on.
        prev: Option<(TaskId, State)>,
        /// Who runs.
        next: Option<TaskId>,
    },
    /// A task was woken or created, and placed.
    Placed {
        /// The CPU that did it.
        waker_cpu: Cpu,
        /// Who did it; `None` for interrupts.
        waker: Option<TaskId>,
        /// Who.
        task: TaskId,
        /// Why.
        kind: WakeKind,
        /// Where to.
        cpu: Cpu,
        /// The policy's reason; `None` if it was not asked.
        reason: Option<u16>,
        /// What the decision cost.
        ns: Nanos,
    },
    /// A task has a CPU that waited for one.
    Waited {
        /// Who.
        task: TaskId,
        /// Where it runs now.
        cpu: Cpu,
        /// Since when it waited: its wakeup, or when it was queued.
        since: Nanos,
    },
    /// A task has exited.
    Exit {
        /// Who.
        task: TaskId,
    },
    /// The warmup is over: what is reported counts from here.
    Measured,
    /// The run is over.
    Ended,
}

/// Receives events in order of time.
pub trait Tracer: Send {
    /// `task` looks up a task's name and so on.
    fn event<'a>(&mut self, at: Nanos, event: TraceEvent, task: &dyn Fn(TaskId) -> &'a Task);
}
