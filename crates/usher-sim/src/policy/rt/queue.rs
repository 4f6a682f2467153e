// SPDX-License-Identifier: GPL-2.0-only
//! The real-time run queue of a CPU: a FIFO per priority, and the queued tasks that could run elsewhere.
//!
//! Priorities are those of users: 1 (least) to 99 (most). The running task is not in here.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use crate::ids::TaskId;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct RtQueue {
    /// A bit per priority with a non-empty FIFO.
    bitmap: u128,
    fifos: Vec<VecDeque<TaskId>>,
    /// Highest priority first, first come first among equals: the kernel's plist.
    pushable: BTreeSet<(Reverse<u8>, u64, TaskId)>,
    seq: u64,
    len: usize,
}

/// A queued task: its priority, and its place among the pushable ones if it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queued {
    pub prio: u8,
    pub pushable: Option<u64>,
}

impl RtQueue {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The highest priority queued; 0 if there is none.
    pub fn top(&self) -> u8 {
        match self.bitmap {
            0 => 0,
            bits => 127 - bits.leading_zeros() as u8,
        }
    }

    pub fn insert(&mut self, task: TaskId, prio: u8, front: bool, pushable: bool) -> Queued {
        let index = usize::from(prio);
        if self.fifos.len() <= index {
            self.fifos.resize(index + 1, VecDeque::new());
        }
        match front {
            true => self.fifos[index].push_front(task),
            false => self.fifos[index].push_back(task),
        }
        self.bitmap |= 1 << prio;
        self.len += 1;
        let pushable = pushable.then(|| {
            self.seq += 1;
            self.pushable.insert((Reverse(prio), self.seq, task));
            self.seq
        });
        Queued { prio, pushable }
    }

    pub fn remove(&mut self, task: TaskId, queued: Queued) {
        let fifo = &mut self.fifos[usize::from(queued.prio)];
        let place = fifo
            .iter()
            .position(|&t| t == task)
            .expect("a queued task is in its FIFO");
        fifo.remove(place);
        if fifo.is_empty() {
            self.bitmap &= !(1 << queued.prio);
        }
        self.len -= 1;
        if let Some(seq) = queued.pushable {
            self.pushable.remove(&(Reverse(queued.prio), seq, task));
        }
    }

    /// Whose turn it is.
    pub fn first(&self) -> Option<TaskId> {
        match self.top() {
            0 => None,
            top => self.fifos[usize::from(top)].front().copied(),
        }
    }

    /// The first in line to be pushed away.
    pub fn first_pushable(&self) -> Option<TaskId> {
        self.pushable.first().map(|&(_, _, task)| task)
    }

    pub fn has_pushable(&self) -> bool {
        !self.pushable.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the highest priority goes first, first come first served among equals, and a preempted task
    // (front) before all of its priority; the pushable ones are in the same order but for the front.
    // Method: a queue worked off by hand.
    #[test]
    fn order_of_a_queue() {
        let mut q = RtQueue::default();
        let t = TaskId;
        let mut at = [Queued::default(); 5];
        at[0] = q.insert(t(0), 50, false, true);
        at[1] = q.insert(t(1), 99, false, false);
        at[2] = q.insert(t(2), 99, false, true);
        at[3] = q.insert(t(3), 1, false, true);
        at[4] = q.insert(t(4), 99, true, true);
        assert_eq!(
            (q.len(), q.top(), q.first(), q.first_pushable()),
            (5, 99, Some(t(4)), Some(t(2)))
        );
        for (task, top) in [(4, 99), (1, 99), (2, 50), (0, 1), (3, 0)] {
            assert_eq!(q.first(), Some(t(task)));
            q.remove(t(task), at[task as usize]);
            assert_eq!(q.top(), top);
        }
        assert!(!q.has_pushable() && q.first().is_none() && q.len() == 0);
    }
}
