// SPDX-License-Identifier: GPL-2.0-only
//! Queues of tasks, linked through the tasks themselves: a task is in at most one at a time. They cost no
//! memory of their own, which is what keeps thousands of objects in the processor's caches.

use crate::ids::TaskId;
use crate::task::Task;

const NIL: TaskId = TaskId(u32::MAX);

/// The links that a task holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    next: TaskId,
    prev: TaskId,
}

impl Links {
    pub const NONE: Links = Links {
        next: NIL,
        prev: NIL,
    };
}

/// A queue, first in, first out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitList {
    head: TaskId,
    tail: TaskId,
}

impl Default for WaitList {
    fn default() -> Self {
        WaitList {
            head: NIL,
            tail: NIL,
        }
    }
}

impl WaitList {
    pub fn first(&self) -> Option<TaskId> {
        (self.head != NIL).then_some(self.head)
    }

    pub fn push(&mut self, tasks: &mut [Task], id: TaskId) {
        tasks[id.index()].links = Links {
            next: NIL,
            prev: self.tail,
        };
        match self.tail {
            NIL => self.head = id,
            tail => tasks[tail.index()].links.next = id,
        }
        self.tail = id;
    }

    pub fn pop(&mut self, tasks: &mut [Task]) -> Option<TaskId> {
        let first = self.first()?;
        self.remove(tasks, first);
        Some(first)
    }

    /// Takes a task out that is in it.
    pub fn remove(&mut self, tasks: &mut [Task], id: TaskId) {
        let Links { next, prev } = std::mem::replace(&mut tasks[id.index()].links, Links::NONE);
        match prev {
            NIL => self.head = next,
            prev => tasks[prev.index()].links.next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => tasks[next.index()].links.prev = prev,
        }
    }

    pub fn iter<'a>(&self, tasks: &'a [Task]) -> impl Iterator<Item = TaskId> + 'a {
        std::iter::successors(self.first(), |id| {
            let next = tasks[id.index()].links.next;
            (next != NIL).then_some(next)
        })
    }
}
