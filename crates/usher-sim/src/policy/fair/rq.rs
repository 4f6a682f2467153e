// SPDX-License-Identifier: GPL-2.0-only
//! A CPU's run queue: who waits, in which order, and how loaded the CPU is.
//!
//! The queue keeps its tasks in a tree by the key of its discipline (CFS: virtual runtime, EEVDF:
//! virtual deadline), and again in a list by how recently they ran, from whose cold end the balancer
//! takes. The current task counts in all sums but is not in the tree, as in the kernel.
//!
//! What the disciplines do with it is in `cfs.rs` and `eevdf.rs`; this file keeps the books.

use std::collections::BTreeMap;

use super::pelt::Avg;
use super::task::{Task, NOBODY};
use crate::ids::{Cpu, Nanos, TaskId};

/// The tasks of a run, by id.
pub type Tasks = Vec<Task>;

/// An entry of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub id: TaskId,
    pub vruntime: i64,
}

/// A run queue.
#[derive(Clone, Debug)]
pub struct Rq {
    /// Whose it is.
    pub cpu: Cpu,
    /// Capacity of that CPU, 1024 for the strongest: its architecture's, whatever runs above the fair class.
    pub capacity: u64,

    /// Fair tasks queued or running, delayed ones included (`h_nr_running`).
    pub nr: u32,
    /// Of these, delayed ones.
    pub nr_delayed: u32,
    /// Of these, `SCHED_IDLE` ones.
    pub nr_idle_policy: u32,
    /// Sum of the weights of these.
    pub weight: u64,
    /// The fair task that runs.
    pub curr: Option<TaskId>,

    /// Who waits, by key (see the module); of equal keys, who came first.
    pub(super) tree: BTreeMap<(i64, u64), Waiter>,
    arrivals: u64,
    /// CFS: no waiting task's virtual runtime is (much) below; only grows. EEVDF: the zero point of
    /// `sum_wv`, somewhere near the average.
    pub min_vruntime: i64,
    /// EEVDF: over the tree, sum of weights and of weight * (vruntime - min_vruntime).
    pub(super) sum_w: i64,
    /// See `sum_w`.
    pub(super) sum_wv: i128,
    /// EEVDF: the current task has not reached the deadline it was picked with, and no shorter task
    /// has cancelled that.
    pub protected: bool,
    /// EEVDF: who was current until just now and waits again.
    pub(super) prev: Option<TaskId>,
    /// CFS: who should run next, was preempted last, or wants to be skipped.
    pub next_buddy: Option<TaskId>,
    /// See `next_buddy`.
    pub last_buddy: Option<TaskId>,
    /// See `next_buddy`.
    pub skip_buddy: Option<TaskId>,

    newest: u32,
    oldest: u32,

    /// Averages over the tasks that live here, sleeping ones included while they decay.
    pub avg: Avg,
    /// Sum of `util_est` over the queued tasks.
    pub util_est: u64,
    pelt_clock: Nanos,
    pelt_at: Nanos,
}

impl Rq {
    /// An empty queue.
    pub fn new(cpu: Cpu, capacity: u32) -> Rq {
        Rq {
            cpu,
            capacity: u64::from(capacity),
            nr: 0,
            nr_delayed: 0,
            nr_idle_policy: 0,
            weight: 0,
            curr: None,
            tree: BTreeMap::new(),
            arrivals: 0,
            min_vruntime: 0,
            sum_w: 0,
            sum_wv: 0,
            protected: false,
            prev: None,
            next_buddy: None,
            last_buddy: None,
            skip_buddy: None,
            newest: NOBODY,
            oldest: NOBODY,
            avg: Avg::default(),
            util_est: 0,
            pelt_clock: 0,
            pelt_at: 0,
        }
    }

    // ---- books ----

    /// Books a task that joins. It is not in the tree yet.
    pub(super) fn account(&mut self, tasks: &mut Tasks, id: TaskId) {
        let task = &mut tasks[id.index()];
        debug_assert!(!task.on_rq, "task {id} is queued twice");
        task.on_rq = true;
        task.cpu = self.cpu;
        self.nr += 1;
        self.weight += task.weight;
        self.nr_idle_policy += u32::from(task.is_idle_policy());
        self.util_est += task.est();
        self.link(tasks, id);
    }

    /// Books a task that leaves. It is out of the tree.
    pub(super) fn unaccount(&mut self, tasks: &mut Tasks, id: TaskId) {
        self.unlink(tasks, id);
        let task = &mut tasks[id.index()];
        debug_assert!(
            task.on_rq && task.cpu == self.cpu,
            "task {id} is not queued here"
        );
        task.on_rq = false;
        self.nr -= 1;
        self.weight -= task.weight;
        self.nr_idle_policy -= u32::from(task.is_idle_policy());
        self.util_est -= task.est();
        for buddy in [
            &mut self.next_buddy,
            &mut self.last_buddy,
            &mut self.skip_buddy,
            &mut self.prev,
        ] {
            if *buddy == Some(id) {
                *buddy = None;
            }
        }
    }

    /// Tasks that really want to run: queued or running, not delayed.
    #[inline]
    pub fn nr_runnable(&self) -> u32 {
        self.nr - self.nr_delayed
    }

    /// Whether all there is to run is `SCHED_IDLE`, and there is some.
    #[inline]
    pub fn only_idle_policy(&self) -> bool {
        self.nr > 0 && self.nr == self.nr_idle_policy
    }

    /// Who waits, in order of the key.
    pub fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tree.values().map(|w| w.id)
    }

    /// Puts a task into the tree.
    pub(super) fn insert(&mut self, tasks: &mut Tasks, id: TaskId, key: i64) {
        let task = &mut tasks[id.index()];
        task.key = (key, self.arrivals);
        self.arrivals += 1;
        self.tree.insert(
            task.key,
            Waiter {
                id,
                vruntime: task.vruntime,
            },
        );
    }

    /// Takes a task out of the tree.
    pub(super) fn remove(&mut self, tasks: &Tasks, id: TaskId) {
        let found = self.tree.remove(&tasks[id.index()].key);
        debug_assert!(
            found.is_some_and(|w| w.id == id),
            "task {id} does not wait here"
        );
    }

    // ---- the list by how recently tasks ran ----

    fn link(&mut self, tasks: &mut Tasks, id: TaskId) {
        let old = self.newest;
        tasks[id.index()].newer = NOBODY;
        tasks[id.index()].older = old;
        match old {
            NOBODY => self.oldest = id.0,
            _ => tasks[old as usize].newer = id.0,
        }
        self.newest = id.0;
    }

    fn unlink(&mut self, tasks: &mut Tasks, id: TaskId) {
        let (newer, older) = (tasks[id.index()].newer, tasks[id.index()].older);
        match newer {
            NOBODY => self.newest = older,
            _ => tasks[newer as usize].older = older,
        }
        match older {
            NOBODY => self.oldest = newer,
            _ => tasks[older as usize].newer = newer,
        }
    }

    /// Moves a task to the recent end, as picking it does, or the balancer when it skips it.
    pub fn touch(&mut self, tasks: &mut Tasks, id: TaskId) {
        if self.newest != id.0 {
            self.unlink(tasks, id);
            self.link(tasks, id);
        }
    }

    /// The task at the cold end; the current one may be among them.
    pub fn coldest(&self) -> Option<TaskId> {
        (self.oldest != NOBODY).then_some(TaskId(self.oldest))
    }

    // ---- load tracking ----

    /// The time as load tracking has it: on a weak CPU a task's time passes slower, so that utilisation
    /// is in units of the strongest (5.1); an idle CPU catches up.
    fn pelt_now(&mut self, now: Nanos) -> Nanos {
        let passed = now.saturating_sub(self.pelt_at);
        self.pelt_at = self.pelt_at.max(now);
        if self.capacity >= 1024 || self.nr == 0 {
            self.pelt_clock = self.pelt_at;
        } else {
            self.pelt_clock += (passed * self.capacity) >> 10;
        }
        self.pelt_clock
    }

    /// Brings the queue's averages up to `now`. Before anything that they depend on changes. Returns the
    /// time of load tracking.
    pub fn sync(&mut self, now: Nanos) -> Nanos {
        let clock = self.pelt_now(now);
        let (weight, nr) = (self.weight, u64::from(self.nr_runnable()));
        if self.avg.update(clock, weight, nr, self.curr.is_some()) {
            self.avg.settle(1);
        }
        clock
    }

    /// Brings the averages of the queue and of one of its tasks up to `now`.
    pub fn sync_with(&mut self, tasks: &mut Tasks, id: TaskId, now: Nanos) {
        let clock = self.sync(now);
        let task = &mut tasks[id.index()];
        let runnable = u64::from(task.on_rq && !task.delayed);
        let running = self.curr == Some(id);
        if task.avg.update(clock, task.on_rq.into(), runnable, running) {
            task.avg.settle(task.weight);
        }
    }

    /// Adds a task's averages to the queue's, if they are not part of them.
    pub fn attach_avg(&mut self, tasks: &mut Tasks, id: TaskId, now: Nanos) {
        self.sync(now);
        let task = &mut tasks[id.index()];
        if !task.attached {
            task.attached = true;
            self.avg.attach(&mut task.avg, task.weight);
        }
    }

    /// Takes a task's averages, decayed up to `now`, out of the queue's.
    pub fn detach_avg(&mut self, tasks: &mut Tasks, id: TaskId, now: Nanos) {
        self.sync_with(tasks, id, now);
        let task = &mut tasks[id.index()];
        if task.attached {
            task.attached = false;
            self.avg.detach(&task.avg, task.weight);
        }
    }

    /// Utilisation of the CPU: the average, or what its tasks are expected to need if that is more, but no
    /// more than there is of it (`cpu_util` and its kin end with that, whatever their name, in all versions).
    #[inline]
    pub fn util(&self) -> u64 {
        self.avg.util.max(self.util_est).min(self.capacity)
    }

    /// The same without a task that may live here.
    pub fn util_without(&self, task: &Task) -> u64 {
        if task.cpu != self.cpu || !task.attached {
            return self.util();
        }
        let util = self.avg.util.saturating_sub(task.avg.util);
        let queued = if task.on_rq { task.est() } else { 0 };
        util.max(self.util_est.saturating_sub(queued))
            .min(self.capacity)
    }

    /// Load without a task that may live here.
    pub fn load_without(&self, task: &Task) -> u64 {
        if task.cpu != self.cpu || !task.attached {
            return self.avg.load;
        }
        self.avg.load.saturating_sub(task.avg.load)
    }

    /// Runnable average without a task that may live here.
    pub fn runnable_without(&self, task: &Task) -> u64 {
        if task.cpu != self.cpu || !task.attached {
            return self.avg.runnable;
        }
        self.avg.runnable.saturating_sub(task.avg.runnable)
    }

    /// Panics if the books do not agree with one another: for tests and debug builds.
    pub fn check(&self, tasks: &Tasks) {
        let mut seen = 0;
        let (mut weight, mut delayed, mut est, mut last) = (0, 0, 0, NOBODY);
        let mut at = self.newest;
        while at != NOBODY {
            let task = &tasks[at as usize];
            assert!(
                task.on_rq && task.cpu == self.cpu && task.newer == last,
                "task {at}: list"
            );
            weight += task.weight;
            delayed += u32::from(task.delayed);
            est += task.est();
            seen += 1;
            (last, at) = (at, task.older);
        }
        assert_eq!((seen, last), (self.nr, self.oldest), "list length and end");
        assert_eq!(
            (weight, delayed),
            (self.weight, self.nr_delayed),
            "weight, delayed"
        );
        assert_eq!(est, self.util_est, "estimated utilisation");
        let in_tree = self.tree.len() as u32 + u32::from(self.curr.is_some());
        assert_eq!(in_tree, self.nr, "tree and current task");
        assert!(
            !self.curr.is_some_and(|c| self.waiting().any(|id| id == c)),
            "current is queued"
        );
    }
}
