// SPDX-License-Identifier: GPL-2.0-only
//! A hash of the event log: equal hashes mean that two runs did the same things at the same times.

use crate::ids::{Cpu, Nanos, TaskId};
use crate::rng::mix;

/// A running hash over (time, kind, cpu, task) of every event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogHash(u64);

impl LogHash {
    #[inline]
    pub fn add(&mut self, now: Nanos, kind: u8, cpu: Cpu, task: Option<TaskId>) {
        let task = task.map_or(u32::MAX, |t| t.0);
        let word = u64::from(task) << 32 | u64::from(kind) << 24 | u64::from(cpu.0);
        // Two multiplications per event; the rotation makes the order of events matter.
        let x = (self.0 ^ now)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
        self.0 = (x ^ word)
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            .rotate_left(32);
    }

    pub fn finish(self) -> u64 {
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the hash notices any change of an event and of the order of two.
    // Method: change each field, swap two events.
    #[test]
    fn every_field_and_the_order_matter() {
        let log = |events: &[(u64, u8, u32, Option<u32>)]| {
            let mut hash = LogHash::default();
            for &(now, kind, cpu, task) in events {
                hash.add(now, kind, Cpu(cpu), task.map(TaskId));
            }
            hash.finish()
        };
        let base = log(&[(5, 1, 2, Some(3)), (5, 1, 4, None)]);
        for other in [
            log(&[(6, 1, 2, Some(3)), (5, 1, 4, None)]),
            log(&[(5, 2, 2, Some(3)), (5, 1, 4, None)]),
            log(&[(5, 1, 3, Some(3)), (5, 1, 4, None)]),
            log(&[(5, 1, 2, Some(4)), (5, 1, 4, None)]),
            log(&[(5, 1, 2, None), (5, 1, 4, None)]),
            log(&[(5, 1, 4, None), (5, 1, 2, Some(3))]),
            log(&[(5, 1, 2, Some(3))]),
        ] {
            assert_ne!(base, other);
        }
    }
}
