// SPDX-License-Identifier: GPL-2.0-only
//! 5.1: what a run queue tells of its load, by hand.

use super::{queue_and_tasks, t};
use crate::ids::Cpu;
use crate::policy::fair::rq::Rq;

// Goal: 5.1: a CPU's utilisation is never more than its capacity, with or without a task of it, by average or by estimate:
// three tasks that want 60 % each do not make a CPU count for two.
// Method: estimates of 600 each on a whole CPU and on one of 446; then the average alone, of more than there is.
#[test]
fn utilisation_ends_at_the_capacity() {
    for (capacity, expected) in [(1024, [600, 1024, 1024]), (446, [446; 3])] {
        let (_, mut tasks) = queue_and_tasks(&[0; 3]);
        let mut rq = Rq::new(Cpu(0), capacity);
        for (n, util) in expected.into_iter().enumerate() {
            tasks[n].est_enqueued = 600;
            tasks[n].attached = true;
            rq.account(&mut tasks, t(n));
            assert_eq!(rq.util(), util, "{} tasks on {capacity}", n + 1);
        }
        assert_eq!(rq.util_without(&tasks[0]), expected[1], "two of three");
        let (_, mut tasks) = queue_and_tasks(&[0; 2]);
        let mut rq = Rq::new(Cpu(0), capacity);
        rq.avg.util = 1500;
        (tasks[0].attached, tasks[0].avg.util) = (true, 300);
        assert_eq!(rq.util(), u64::from(capacity));
        assert_eq!(
            rq.util_without(&tasks[0]),
            u64::from(capacity),
            "1200 of {capacity}"
        );
        assert_eq!(
            rq.util_without(&tasks[1]),
            u64::from(capacity),
            "a stranger"
        );
    }
}
