// SPDX-License-Identifier: GPL-2.0-only
//! What the fair class keeps of a task.

use super::pelt::Avg;
use super::weight;
use crate::ids::{Cpu, Nanos, TaskId};
use crate::program::Class;

/// `UTIL_EST_WEIGHT_SHIFT`: a new estimate counts one quarter.
const EST_SHIFT: u32 = 2;

/// The end of a list of tasks.
pub const NOBODY: u32 = u32::MAX;

/// A task. Virtual times are ns of a task of nice 0.
#[derive(Clone, Debug)]
pub struct Task {
    /// Weight, 1024 for nice 0.
    pub weight: u64,
    /// Its class: `SCHED_IDLE`, `SCHED_BATCH` and real-time tasks are treated differently.
    pub class: Class,
    /// The CPU whose queue it is in, or was in last.
    pub cpu: Cpu,
    /// In that queue or running there. With `delayed`: queued although it sleeps.
    pub on_rq: bool,
    /// 6.2 DELAY_DEQUEUE: asleep, but queued until it has paid back what it had too much.
    pub delayed: bool,

    /// Virtual runtime; CFS: relative to the queue's minimum while `relative`.
    pub vruntime: i64,
    /// CFS: it left its queue for another one and belongs to none yet.
    pub relative: bool,
    /// EEVDF: virtual deadline; relative to `vruntime` while `relative`.
    pub deadline: i64,
    /// EEVDF: what it was owed (if positive) when it left its queue.
    pub lag: i64,
    /// EEVDF: requested slice.
    pub slice: Nanos,

    /// Its place in the queue's tree while it waits there.
    pub(super) key: (i64, u64),
    /// Since when its running time is not accounted, or when it last ran.
    pub exec_start: Nanos,
    /// Total running time.
    pub sum_exec: Nanos,
    /// The same when it was last picked.
    pub picked_sum_exec: Nanos,

    /// Its load, runnable and utilisation averages.
    pub avg: Avg,
    /// Whether they are part of the averages of `cpu`'s queue.
    pub attached: bool,
    /// `util_est`: utilisation when it last went to sleep, and its moving average.
    pub est_enqueued: u64,
    /// See `est_enqueued`.
    pub est_ewma: u64,

    /// Whom it woke last, how often that changed, and when the count was last halved (6.3 wake_wide).
    pub last_wakee: Option<TaskId>,
    /// See `last_wakee`.
    pub wakee_flips: u64,
    /// See `last_wakee`.
    pub flips_halved_at: Nanos,
    /// A wakeup of it is on its way to its CPU by interrupt.
    pub in_flight: bool,
    /// A CPU it used before (6.3).
    pub recent_cpu: Cpu,

    /// Its neighbours in the queue's list of tasks, most recently run first.
    pub newer: u32,
    /// See `newer`.
    pub older: u32,
}

impl Task {
    /// A task of this class on `cpu`, with the full load of its weight, as new tasks have.
    pub fn new(class: Class, cpu: Cpu) -> Task {
        let weight = weight::of(class);
        Task {
            weight,
            class,
            cpu,
            on_rq: false,
            delayed: false,
            vruntime: 0,
            relative: true,
            deadline: 0,
            lag: 0,
            slice: 0,
            key: (0, 0),
            exec_start: 0,
            sum_exec: 0,
            picked_sum_exec: 0,
            avg: Avg {
                load: weight,
                ..Avg::default()
            },
            attached: false,
            est_enqueued: 0,
            est_ewma: 0,
            last_wakee: None,
            wakee_flips: 0,
            flips_halved_at: 0,
            in_flight: false,
            recent_cpu: cpu,
            newer: NOBODY,
            older: NOBODY,
        }
    }

    /// `SCHED_IDLE`.
    #[inline]
    pub fn is_idle_policy(&self) -> bool {
        self.class == Class::Idle
    }

    /// `SCHED_FIFO` or `SCHED_RR`: not of the fair class at present.
    #[inline]
    pub fn is_rt(&self) -> bool {
        self.class.rt_prio() > 0
    }

    /// The estimate of its utilisation from earlier activations.
    #[inline]
    pub fn est(&self) -> u64 {
        self.est_enqueued.max(self.est_ewma)
    }

    /// Utilisation, or its estimate if that is more: what a task that slept is expected to need.
    #[inline]
    pub fn util_est(&self) -> u64 {
        self.avg.util.max(self.est())
    }

    /// `util_est` at the end of an activation: up at once, down slowly.
    pub fn update_util_est(&mut self) {
        let now = self.avg.util;
        self.est_enqueued = now;
        if now >= self.est_ewma {
            self.est_ewma = now;
        } else {
            self.est_ewma -= (self.est_ewma - now) >> EST_SHIFT;
        }
    }
}
