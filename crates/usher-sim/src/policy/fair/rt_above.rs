// SPDX-License-Identifier: GPL-2.0-only
//! What runs above the fair class: real-time tasks, in outline, so that mixed workloads run.
//!
//! Not a model of the real-time class (that is `policy/rt`): per-CPU queues by priority, first come first
//! served among equals, a round-robin slice of 100 ms; a woken task goes to the first CPU from its last
//! one on that runs nothing as urgent, and stays queued where it is otherwise.

use std::collections::BTreeMap;

use crate::ids::{Nanos, TaskId};

/// `RR_TIMESLICE`.
pub const SLICE_NS: Nanos = 100_000_000;

/// The real-time tasks of a CPU.
#[derive(Clone, Debug, Default)]
pub struct RtQueue {
    /// By 99 - priority and arrival.
    waiting: BTreeMap<(u8, i64), TaskId>,
    arrivals: i64,
    /// Who runs, its priority, and since when.
    pub curr: Option<(TaskId, u8, Nanos)>,
}

impl RtQueue {
    /// How many wait or run.
    pub fn nr(&self) -> u32 {
        self.waiting.len() as u32 + u32::from(self.curr.is_some())
    }

    /// The highest priority that waits or runs; 0 for none.
    pub fn top(&self) -> u8 {
        self.curr
            .map_or(0, |(_, prio, _)| prio)
            .max(self.top_waiting())
    }

    /// The highest priority that waits; 0 for none.
    pub fn top_waiting(&self) -> u8 {
        self.waiting.keys().next().map_or(0, |&(key, _)| 99 - key)
    }

    /// A task waits: at the head of its priority if it was `preempted`, else at the end.
    pub fn push(&mut self, task: TaskId, prio: u8, preempted: bool) {
        self.arrivals += 1;
        let place = if preempted {
            -self.arrivals
        } else {
            self.arrivals
        };
        self.waiting.insert((99 - prio.min(99), place), task);
    }

    /// Takes out who runs next.
    pub fn pop(&mut self) -> Option<(TaskId, u8)> {
        self.waiting
            .pop_first()
            .map(|((key, _), task)| (task, 99 - key))
    }

    /// Takes out a task that waits. Returns whether it did.
    pub fn remove(&mut self, task: TaskId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|_, &mut t| t != task);
        self.waiting.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: priority first, then order of arrival; the preempted go first among equals.
    // Method: a handful of tasks.
    #[test]
    fn order_is_priority_then_arrival() {
        let mut queue = RtQueue::default();
        for (task, prio, preempted) in [(1, 5, false), (2, 9, false), (3, 5, false), (4, 5, true)] {
            queue.push(TaskId(task), prio, preempted);
        }
        assert_eq!((queue.top(), queue.nr()), (9, 4));
        assert!(queue.remove(TaskId(1)) && !queue.remove(TaskId(1)));
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop())
            .map(|(task, _)| task.0)
            .collect();
        assert_eq!(order, [2, 4, 3]);
    }
}
