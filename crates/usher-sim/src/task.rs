// SPDX-License-Identifier: GPL-2.0-only
//! A task as the engine knows it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::ids::{Cpu, LineId, Nanos, Node, TaskId};
use crate::program::{Action, Class, Hint, Memory, Outcome, Program};
use crate::rng::Rng;
use crate::state::NEVER;
use crate::waitlist::{Links, WaitList};
use crate::world::{Barrier, Channel, Cond, Futex, Mutex, Semaphore};

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Being placed: woken or created, not yet in the policy's hands.
    Waking,
    /// In the policy's hands, waiting for a CPU.
    Queued,
    /// Running on its CPU (or on its way to sleep, until it gives the CPU away).
    Running,
    /// Asleep, even if its CPU has not switched to anything else yet.
    Sleeping,
    /// Exited.
    Dead,
}

/// What a sleeping task waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WaitsFor {
    Nothing,
    Timer,
    Io,
    Futex(Futex),
    Read(Channel),
    Write(Channel),
    Poll(Arc<[Channel]>),
    Mutex(Mutex),
    Cond(Cond, Mutex),
    Barrier(Barrier),
    Semaphore(Semaphore),
    Child(Option<TaskId>),
}

/// What a task does next when its CPU gives it the chance.
#[derive(Debug)]
pub(crate) enum Todo {
    /// Ask the program.
    Next,
    /// Go on computing: this much work is left (see [`Task::work_left`]).
    Compute,
    /// Go on looking at the clock until this time.
    Spin(Nanos),
    /// Go on with an action that could not be completed at once.
    Resume(Action),
    /// Switch away: asleep from now on, unless woken in the meantime.
    Sleep,
    /// Switch away for good.
    Exit,
    /// Switch away, but stay runnable.
    Yield,
    /// Go to another CPU, then go on with what is in `after`.
    Move(Cpu),
}

/// Where a task last was, and the cache clocks when it left (see `cache.rs`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub core: u32,
    pub llc: u32,
    pub core_clock: u64,
    pub llc_clock: u64,
}

impl Left {
    /// No cache holds anything of it.
    pub const NOWHERE: Left = Left {
        core: u32::MAX,
        llc: u32::MAX,
        core_clock: 0,
        llc_clock: 0,
    };
}

/// A task. Policies read it through the methods.
///
/// The order of the fields matters for speed: a simulation of thousands of CPUs spends its time waiting
/// for memory, so what is used together lies together.
#[repr(C, align(64))]
pub struct Task {
    // What a switch or wakeup of another task looks at.
    pub(crate) state: State,
    /// Set when woken before it has left its CPU.
    pub(crate) woken: bool,
    /// Whether a timer will end its sleep.
    pub(crate) timed: bool,
    pub(crate) to_wake_sync: bool,
    /// Where it is queued or runs, or last was.
    pub(crate) cpu: Cpu,
    /// Where it last ran; `None` before the first time.
    pub(crate) last_ran: Option<Cpu>,
    /// Distinguishes a timer armed for an earlier wait.
    pub(crate) wait_gen: u32,
    pub(crate) links: Links,
    /// Whom it has still to wake, one after another.
    pub(crate) to_wake: WaitList,
    /// Tasks of equal space are threads of one process.
    pub(crate) space: TaskId,
    pub(crate) allowed: Arc<CpuSet>,
    pub(crate) nr_allowed: u32,
    pub(crate) id: TaskId,

    // What it is doing.
    pub(crate) todo: Todo,
    /// Work left of a `Compute`, in ns of the strongest core with 16 fraction bits.
    pub(crate) work_left: u64,
    /// Total work done (same unit).
    pub(crate) work_done: u64,
    pub(crate) outcome: Outcome,

    // What it does after a sleep.
    /// What it does once it is awake again.
    pub(crate) after: Todo,
    pub(crate) waits_for: WaitsFor,
    /// Bytes that an exact `Read` has already.
    pub(crate) partial: u64,

    // Times and caches.
    /// Total time on a CPU, up to `ran_since` if it runs.
    pub(crate) runtime: Nanos,
    pub(crate) ran_since: Nanos,
    pub(crate) queued_at: Nanos,
    /// Since when it waits in the last-level cache where it does: it may have come there later than it was queued.
    pub(crate) waits_here_since: Nanos,
    /// Time it waited for a CPU since the measurement began, up to when it last got one.
    pub(crate) waited: Nanos,
    pub(crate) woken_at: Nanos,
    /// Asleep: when the CPU where it ran has switched away from it (`on_cpu`).
    pub(crate) off_cpu_at: Nanos,
    /// How often a CPU switched to it; it wraps.
    pub(crate) switches: u32,
    /// How often it went to sleep; it wraps.
    pub(crate) sleeps: u32,
    pub(crate) left: Left,
    /// Time still to pay for what its caches lack.
    pub(crate) refill_ns: Nanos,

    // What its program uses.
    pub(crate) program: Option<Box<dyn Program>>,
    pub(crate) rng: Rng,
    pub(crate) memory: Memory,
    pub(crate) home: Node,
    pub(crate) group: u32,

    // The rest.
    pub(crate) work_asked: u64,
    pub(crate) name: Arc<str>,
    pub(crate) parent: Option<TaskId>,
    /// The class it was given, and the one in force while it is boosted.
    pub(crate) own_class: Class,
    pub(crate) class: Class,
    pub(crate) hint: Hint,
    pub(crate) lineage: u64,
    pub(crate) children_made: u64,
    pub(crate) held_pi: Vec<Mutex>,
    /// Whether it has called `exit`.
    pub(crate) exiting: bool,
    pub(crate) live_children: u32,
    /// Tasks alive in the address space that this one was the first of.
    pub(crate) threads: u32,
    /// The lines in which the kernel keeps account of it.
    pub(crate) line: LineId,
    /// The line of that space's count, once there is one.
    pub(crate) space_line: Option<LineId>,
    pub(crate) dead_children: VecDeque<TaskId>,
    pub(crate) exited_at: Nanos,
    pub(crate) created_at: Nanos,
    /// `runtime` when the measurement began.
    pub(crate) run_before: Nanos,
}

impl Task {
    /// Lets go of what a dead task needs no more.
    pub(crate) fn forget(&mut self) {
        self.program = None;
        self.dead_children = VecDeque::new();
    }

    /// Its id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who forked it; `None` for a root task.
    pub fn parent(&self) -> Option<TaskId> {
        self.parent
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        self.state
    }

    /// The CPUs it may run on, some of which may be offline.
    pub fn allowed(&self) -> &Arc<CpuSet> {
        &self.allowed
    }

    /// How many online CPUs it may run on.
    pub fn nr_allowed(&self) -> u32 {
        self.nr_allowed
    }

    /// Whether it may run on a CPU.
    #[inline]
    pub fn may_run_on(&self, cpu: Cpu) -> bool {
        self.allowed.contains(cpu)
    }

    /// How often a CPU switched to it, so far as 32 bits hold.
    pub fn switches(&self) -> u32 {
        self.switches
    }

    /// How often it has gone to sleep, so far as 32 bits hold.
    pub fn sleeps(&self) -> u32 {
        self.sleeps
    }

    /// Its scheduling class, boosts by priority inheritance included.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Its placement hint.
    pub fn hint(&self) -> Hint {
        self.hint
    }

    /// Its fairness group.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Where it is queued or runs, or last was.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Where it last ran; `None` before the first time.
    pub fn last_ran(&self) -> Option<Cpu> {
        self.last_ran
    }

    /// The node where its memory is.
    pub fn home(&self) -> Node {
        self.home
    }

    /// Waits for a CPU from now on.
    pub(crate) fn begins_to_wait(&mut self, now: Nanos) {
        self.state = State::Queued;
        (self.queued_at, self.waits_here_since) = (now, now);
    }

    /// When it was last queued.
    pub fn queued_at(&self) -> Nanos {
        self.queued_at
    }

    /// Since when it waits, if it does: its wakeup, or when it was queued.
    pub(crate) fn waits_since(&self) -> Nanos {
        match self.woken_at {
            NEVER => self.queued_at,
            woken_at => woken_at,
        }
    }
}
