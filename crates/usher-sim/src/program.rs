// SPDX-License-Identifier: GPL-2.0-only
//! What tasks do: the seam between workloads and the engine.
//!
//! A workload is a [`World`] of shared objects (futexes, channels, locks, metrics) and some root tasks.
//! Each task runs a [`Program`], a deterministic state machine that the engine asks for the next
//! [`Action`] whenever the previous one is done. A program never sees the machine or the policy; what it
//! may touch is in [`TaskCtx`]: its clock, its own random numbers, shared words, and the metrics.
//!
//! ```
//! use usher_sim::program::{Action, Program, TaskCtx};
//! use usher_sim::world::{CounterId, LatencyId};
//!
//! /// Sleeps 1 ms, works 100 us, and records how late it woke. Ten times, then exits.
//! struct Periodic { left: u32, due: u64, awake: bool, late: LatencyId, loops: CounterId }
//!
//! impl Program for Periodic {
//!     fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
//!         if self.awake {
//!             self.awake = false;
//!             ctx.sample(self.late, ctx.now() - self.due);
//!             ctx.count(self.loops, 1);
//!             return Action::Compute(100_000);
//!         }
//!         if self.left == 0 {
//!             return Action::Exit;
//!         }
//!         self.left -= 1;
//!         self.awake = true;
//!         self.due = ctx.now() + 1_000_000;
//!         Action::SleepUntil(self.due)
//!     }
//! }
//! ```
//!
//! A closure `FnMut(&mut TaskCtx<'_>) -> Action` is a program too.

use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::ids::{Cpu, Nanos, TaskId};
use crate::rng::Rng;
use crate::world::{
    Barrier, Channel, Cond, CounterId, Futex, LatencyId, List, Mutex, Semaphore, ValueId, Word,
    World,
};

/// A deterministic state machine that a task executes.
pub trait Program: Send {
    /// The next thing the task does. Called when the previous action is complete and the task runs on
    /// a CPU in user mode; takes no simulated time itself. What it reads and writes through `ctx`
    /// happens at [`TaskCtx::now`]. After [`Action::Exit`] it is dropped.
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action;
}

impl<F: FnMut(&mut TaskCtx<'_>) -> Action + Send> Program for F {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        self(ctx)
    }
}

/// One thing a task does. Every action except `Compute` and `Spin` enters the kernel and is charged the cost of its
/// system call (cost file, section `syscalls`); waking, forking and switching cost extra on top, as the
/// policy and the cost file say. Durations are nanoseconds.
#[derive(Debug)]
pub enum Action {
    /// Work that takes this long on the strongest core type, alone on its core, with a warm cache.
    Compute(Nanos),
    /// Looks at the clock until so much time has gone by since it began, whether or not the task ran: it ends then, or as
    /// soon as the task runs again. No work: neither the core's speed nor cold caches prolong it.
    Spin(Nanos),
    /// `clock_nanosleep` relative: wakes after this time plus timer slack ([`TaskSpec::class`]: none for
    /// real-time tasks).
    Sleep(Nanos),
    /// `clock_nanosleep` absolute. A time in the past returns at once.
    SleepUntil(Nanos),
    /// Creates a task, a child of this one. Result: [`Outcome::Child`].
    Fork(Box<TaskSpec>),
    /// Replaces the image: offers the policy a chance to move the task, forgets its cache contents, and
    /// works on the new image for this long (see `Compute`).
    Exec(Nanos),
    /// Blocks until this child has exited. Result: [`Outcome::Child`].
    WaitChild(TaskId),
    /// Blocks until any child that was not waited for yet has exited. Result: [`Outcome::Child`], or
    /// [`Outcome::NoChild`] at once if there is none left to wait for.
    WaitAnyChild,
    /// The task ends.
    Exit,
    /// `FUTEX_WAIT`: blocks if the futex's value equals `expected` ([`TaskCtx::futex`] reads and writes
    /// the value without a system call). Result: [`Outcome::Done`] when woken or when the value differed,
    /// [`Outcome::TimedOut`].
    FutexWait {
        /// On what.
        futex: Futex,
        /// Blocks only while the value is this.
        expected: u64,
        /// Gives up after this time, slack added.
        timeout: Option<Nanos>,
    },
    /// `FUTEX_WAKE`: wakes up to `count` waiters, longest waiting first, one after another: each wakeup's
    /// cost delays the next. Result: [`Outcome::Count`].
    FutexWake {
        /// On what.
        futex: Futex,
        /// How many at most; `u32::MAX` for all.
        count: u32,
    },
    /// Takes bytes out of a channel (pipe, socket). Blocks while there are fewer than `bytes`
    /// (`exact`) or none (not `exact`). Result: [`Outcome::Bytes`]. Copying costs time by the distance
    /// to the CPU that wrote.
    Read {
        /// From where.
        channel: Channel,
        /// How many bytes at most.
        bytes: u64,
        /// Wait until all are there, as a loop around `read()` would, in one system call.
        exact: bool,
    },
    /// Puts bytes into a channel. Blocks while there is no room; written in pieces if need be.
    Write {
        /// Where to.
        channel: Channel,
        /// How many bytes.
        bytes: u64,
    },
    /// `poll`/`epoll_wait`: blocks until one of the channels has something to read. Result:
    /// [`Outcome::Index`], the first such place in the list.
    Poll(Arc<[Channel]>),
    /// Locks, blocking while somebody else holds it. An uncontended lock makes no system call.
    Lock(Mutex),
    /// Unlocks and wakes a waiter.
    ///
    /// Unlocking a mutex that the task does not hold ends the run with an error.
    Unlock(Mutex),
    /// Blocks until as many tasks as the barrier was made for have arrived. The last one wakes the others
    /// one after another.
    Barrier(Barrier),
    /// Decrements a semaphore, blocking while it is zero.
    SemDown(Semaphore),
    /// Adds to a semaphore and wakes waiters one after another.
    SemUp(Semaphore, u32),
    /// `pthread_cond_wait`: unlocks the mutex, blocks until signalled, locks it again.
    CondWait(Cond, Mutex),
    /// Wakes the longest waiting task, if any.
    CondSignal(Cond),
    /// Wakes all waiting tasks, one after another.
    CondBroadcast(Cond),
    /// `sched_yield`.
    Yield,
    /// `sched_setaffinity` on itself. An empty set, or one without an online CPU, ends the run with an
    /// error.
    SetAffinity(Arc<CpuSet>),
    /// `sched_setaffinity` on another task (`taskset -p`). One that is queued or runs where it may not be
    /// moves at once.
    SetAffinityOf(TaskId, Arc<CpuSet>),
    /// Changes the task's own placement hint.
    SetHint(Hint),
    /// `sched_setattr` on itself.
    SetClass(Class),
    /// Submits a request to a device and blocks until it is complete, after this time. The completion
    /// interrupts the CPU that submitted.
    Io(Nanos),
}

/// What the last action came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to report.
    #[default]
    Done,
    /// The timeout came first.
    TimedOut,
    /// The task forked or waited for.
    Child(TaskId),
    /// There is no child to wait for.
    NoChild,
    /// Bytes read.
    Bytes(u64),
    /// Number of tasks woken.
    Count(u32),
    /// Place in the list.
    Index(usize),
}

/// Scheduling class and parameters, as `sched_setattr` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_OTHER` with a nice value, -20 to 19.
    Normal {
        /// -20 (most) to 19 (least).
        nice: i8,
    },
    /// `SCHED_BATCH`.
    Batch {
        /// -20 (most) to 19 (least).
        nice: i8,
    },
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO`.
    Fifo {
        /// 1 (least) to 99 (most).
        prio: u8,
    },
    /// `SCHED_RR`.
    RoundRobin {
        /// 1 (least) to 99 (most).
        prio: u8,
    },
}

impl Class {
    /// `SCHED_OTHER`, nice 0.
    pub const NORMAL: Class = Class::Normal { nice: 0 };

    /// Real-time priority 1 to 99, or 0 for the others.
    pub fn rt_prio(self) -> u8 {
        match self {
            Class::Fifo { prio } | Class::RoundRobin { prio } => prio,
            _ => 0,
        }
    }

    /// Nice value; 0 for the real-time classes and 19 for `SCHED_IDLE`.
    pub fn nice(self) -> i8 {
        match self {
            Class::Normal { nice } | Class::Batch { nice } => nice,
            Class::Idle => 19,
            _ => 0,
        }
    }
}

/// Placement hint flags (`placement-hints`).
pub use usher_core::Hints as Hint;

/// How a task uses caches and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Working set in KiB: what has to be fetched again on a CPU whose caches do not hold it. 0 means
    /// that migrations cost nothing but the switch.
    pub footprint_kib: u32,
    /// Share of the work, in thousandths, that waits for memory, and is slowed by the machine's remote
    /// factor on CPUs of another node than the one where the task was born.
    pub bound_permille: u32,
}

/// A task to be created.
pub struct TaskSpec {
    /// Shown in reports, errors and traces.
    pub name: Arc<str>,
    /// What it does.
    pub program: Box<dyn Program>,
    /// Where it may run; `None`: as its parent (a root task: everywhere).
    pub affinity: Option<Arc<CpuSet>>,
    /// Its scheduling class; `None`: as its parent (a root task: [`Class::NORMAL`]).
    pub class: Option<Class>,
    /// Its placement hint; `None`: as its parent.
    pub hint: Option<Hint>,
    /// Tasks of equal group are compared with one another by the fairness metric. `None`: as its parent
    /// (a root task: 0).
    pub group: Option<u32>,
    /// Its use of memory; `None`: as its parent.
    pub memory: Option<Memory>,
    /// Whether it shares its parent's memory (a thread, cheaper to create and to switch to).
    pub thread: bool,
    /// Root tasks only: when it is created.
    pub start: Nanos,
}

impl TaskSpec {
    /// A task with everything else inherited. `name` is shown in reports.
    pub fn new(name: impl Into<Arc<str>>, program: impl Program + 'static) -> Self {
        TaskSpec {
            name: name.into(),
            program: Box::new(program),
            affinity: None,
            class: None,
            hint: None,
            group: None,
            memory: None,
            thread: false,
            start: 0,
        }
    }

    /// Restricts it to a set of CPUs.
    pub fn affinity(mut self, set: Arc<CpuSet>) -> Self {
        self.affinity = Some(set);
        self
    }

    /// Sets its scheduling class.
    pub fn class(mut self, class: Class) -> Self {
        self.class = Some(class);
        self
    }

    /// Sets its placement hint.
    pub fn hint(mut self, hint: Hint) -> Self {
        self.hint = Some(hint);
        self
    }

    /// Sets its fairness group.
    pub fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets its use of memory.
    pub fn memory(mut self, footprint_kib: u32, bound_permille: u32) -> Self {
        self.memory = Some(Memory {
            footprint_kib,
            bound_permille,
        });
        self
    }

    /// Makes it a thread of its parent.
    pub fn thread(mut self) -> Self {
        self.thread = true;
        self
    }

    /// Sets when a root task is created.
    pub fn start(mut self, at: Nanos) -> Self {
        self.start = at;
        self
    }
}

impl std::fmt::Debug for TaskSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What a program sees while it decides its next action.
pub struct TaskCtx<'a> {
    pub(crate) now: Nanos,
    pub(crate) me: TaskId,
    pub(crate) cpu: Cpu,
    pub(crate) outcome: Outcome,
    pub(crate) rng: &'a mut Rng,
    pub(crate) memory: &'a mut Memory,
    pub(crate) world: &'a mut World,
}

impl TaskCtx<'_> {
    /// The time, in nanoseconds since the start of the run.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The task itself.
    pub fn me(&self) -> TaskId {
        self.me
    }

    /// Where it runs (`getcpu`).
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// What the last action came to; [`Outcome::Done`] before the first.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The task's own random numbers: they depend on the seed of the run and on the task's place in the
    /// family tree, never on what the policy did, so that runs with the same seed do the same work.
    pub fn rng(&mut self) -> &mut Rng {
        self.rng
    }

    /// A word that all tasks share (plain memory; no cost).
    pub fn word(&mut self, word: Word) -> &mut u64 {
        self.world.word(word)
    }

    /// A list that all tasks share (plain memory; no cost).
    pub fn list(&mut self, list: List) -> &mut std::collections::VecDeque<u64> {
        self.world.list(list)
    }

    /// The value of a futex.
    pub fn futex(&mut self, futex: Futex) -> &mut u64 {
        self.world.futex_value(futex)
    }

    /// Records a latency, in nanoseconds.
    pub fn sample(&mut self, latency: LatencyId, ns: Nanos) {
        self.world.metrics.sample(latency, ns);
    }

    /// Counts completed operations. How many there are now.
    pub fn count(&mut self, counter: CounterId, operations: u64) -> u64 {
        self.world.metrics.count(counter, operations);
        self.world.metrics.counted(counter)
    }

    /// Measures for a while, after some warmup from now on: all metrics start again from zero then, and where the workload stops
    /// at [`crate::workload::Stop::Measured`] the run ends with it. For programs that start together once all are ready.
    pub fn measure(&mut self, warmup: Nanos, runtime: Nanos) {
        let from = self.now + warmup;
        self.world.measured = Some((from, Some(from + runtime)));
    }

    /// All metrics start again from zero after this time from now on. For programs whose run ends by itself.
    pub fn warm_up(&mut self, warmup: Nanos) {
        self.world.measured = Some((self.now + warmup, None));
    }

    /// Sets a result that is one number, such as an elapsed time.
    pub fn set_value(&mut self, value: ValueId, to: u64) {
        self.world.metrics.set_value(value, to);
    }

    /// Changes the task's own use of caches and memory from now on.
    pub fn set_memory(&mut self, memory: Memory) {
        *self.memory = memory;
    }

    /// To create channels, futexes and so on at run time, as a forking server does.
    pub fn world(&mut self) -> &mut World {
        self.world
    }
}
