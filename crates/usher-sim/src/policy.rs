// SPDX-License-Identifier: GPL-2.0-only
//! A scheduler on a modelled machine: the seam between policies and the engine.
//!
//! The engine owns CPUs, tasks and time. A [`Policy`] owns run queues and decides; it reads the machine
//! and acts through the [`Host`]. The life of a task, from the policy's point of view:
//!
//! ```text
//!  task_new ──> select ──> enqueue ──> pick_next ──> (runs) ──> put_prev(Slept) ──> select ──> ...
//!                             ^                                    │
//!                             └──── the policy requeues it itself ─┴─ put_prev(Preempted | Yielded)
//! ```
//!
//! Rules the engine checks, and fails the run on:
//! - a task is either in the policy's hands (between `enqueue` and the `pick_next` that returns it, and
//!   again from `put_prev` of a runnable task) or in the engine's; `pick_next` returns only the former;
//! - `pick_next(cpu)` returns a task that is allowed on `cpu`;
//! - no CPU idles beside a waiting task that it may take for longer than [`Policy::idle_bound_ns`].
//!
//! Costs. Every callback runs on a CPU (its `cpu` argument; for `select` and a local `enqueue` the
//! waker's) and the time it takes is what the policy charges: [`Host::charge`] for plain work,
//! [`Host::access`] and [`Host::lock`] for shared cache lines. It delays whatever that CPU does next, so
//! the cost of a search delays the later wakeups of the same burst. The engine itself charges system
//! calls, context switches, interrupts, ticks and the fixed part of a wakeup from the cost file.
//! [`Host::now`] includes what the callback has charged so far.
//!
//! `src/policy/fifo.rs` is a complete policy in some 60 lines; start there.

pub mod cfs39;
pub mod cfs59;
pub mod cfs60;
pub mod eevdf;
pub mod fair;
pub mod fifo;
mod mask;
mod registry;
pub mod rt;
pub mod scx_simple;
pub mod usher;

/// What every policy needs.
pub mod prelude {
    pub use super::{EnqueueWhy, Host, Leaving, Newidle, Placement, Policy, StopWhy, WakeInfo};
    pub use crate::coherence::Access;
    pub use crate::ids::{Cpu, LineId, Nanos, TaskId};
}

pub use crate::host::Host;
pub use registry::{build, describe, Described, PolicyInfo, POLICIES};

use crate::ids::{Cpu, Nanos, TaskId};

/// Why a CPU has to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeKind {
    /// A sleeping task wakes.
    Wake,
    /// A new task starts.
    Fork,
    /// A running task replaces its image (`WakeInfo::task == WakeInfo::waker`).
    Exec,
    /// A task's affinity no longer holds the CPU it is on.
    Affinity,
}

/// What is known when a CPU has to be found for a task.
#[derive(Clone, Copy, Debug)]
pub struct WakeInfo {
    /// Who needs a CPU.
    pub task: TaskId,
    /// Why.
    pub kind: WakeKind,
    /// The CPU that does the wakeup (interrupts: where they arrived).
    pub waker_cpu: Cpu,
    /// The task that does it; `None` for interrupts.
    pub waker: Option<TaskId>,
    /// Where the task is now: it last ran or was last queued there. For `Fork`: the parent's CPU.
    pub prev: Cpu,
    /// The waker is about to sleep (`WF_SYNC`).
    pub sync: bool,
}

/// Where a task goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The CPU whose queue it joins. Must be in the allowed set.
    pub cpu: Cpu,
    /// Index into [`Policy::reasons`]; counted, traced and reported.
    pub reason: u16,
}

impl Placement {
    /// On a CPU, for a reason.
    pub fn new(cpu: Cpu, reason: u16) -> Placement {
        Placement { cpu, reason }
    }
}

/// How a task comes into the policy's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueWhy {
    /// After `select`, or instead of it, if its CPU takes it back ([`Leaving::Queue`]).
    Placed {
        /// What `select` was called for.
        kind: WakeKind,
        /// `WF_SYNC`.
        sync: bool,
    },
    /// It was running when [`Host::stop_cpu`], exec or an affinity change moved it; follows
    /// `put_prev(Moved)`.
    Moved,
}

/// Why a task stops running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopWhy {
    /// Somebody asked for a reschedule. Still runnable: the policy queues it again.
    Preempted,
    /// It called `sched_yield`. Still runnable: the policy queues it again.
    Yielded,
    /// It sleeps or waits.
    Slept,
    /// It has exited; `task_dead` follows.
    Exited,
    /// It goes to another CPU at once: `enqueue` follows there. Not to be queued here.
    Moved,
}

impl StopWhy {
    /// Whether the policy has to queue the task again.
    pub fn is_runnable(self) -> bool {
        matches!(self, StopWhy::Preempted | StopWhy::Yielded)
    }
}

/// What is done about a task that wakes while the CPU where it ran has not switched to anything else yet (`on_cpu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// That CPU takes it back: `enqueue` follows there as after [`Policy::remote_wake`], and nobody asks `select`.
    Queue,
    /// The waker waits until the CPU has switched, or, if it looks elsewhere, until its present look is over; `select` follows.
    Wait,
    /// For the policy it never left its queue; `select` follows at once.
    Never,
}

/// What a CPU that has nothing to run does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newidle {
    /// It idles.
    Idle,
    /// There is something to run now: `pick_next` follows.
    Pick,
    /// It looks on when the time that this look took has passed: `newidle` follows again.
    GoesOn,
}

/// A scheduler. Methods with a body are optional. Nothing here may block, read a clock other than
/// [`Host::now`], or depend on addresses or hash order.
pub trait Policy: Send {
    /// Its name, as on the command line.
    fn name(&self) -> &str;

    /// Names of the reasons that [`Placement::reason`] counts.
    fn reasons(&self) -> &'static [&'static str];

    /// What its model leaves out, for the reader of a result; `docs/MODELS.md` has it at length.
    fn limits(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether tasks are of the kernel's fair class, which keeps more account of a run queue than others do.
    fn is_fair_class(&self) -> bool {
        false
    }

    /// Whether it goes by placement hints; where tasks have some and it does not, a result says so.
    fn heeds_hints(&self) -> bool {
        false
    }

    /// Called once, before any task exists: size tables, allocate lines, start timers.
    fn attach(&mut self, host: &mut Host);

    /// A task exists from now on; `parent` forked it (root tasks have none). `select` follows.
    fn task_new(&mut self, host: &mut Host, task: TaskId, parent: Option<TaskId>) {
        let _ = (host, task, parent);
    }

    /// A task has exited, after `put_prev(Exited)`.
    fn task_dead(&mut self, host: &mut Host, task: TaskId) {
        let _ = (host, task);
    }

    /// Finds a CPU for a task. Runs on `wake.waker_cpu`. As in the kernel it is not asked about tasks
    /// that may run on one CPU only, nor about a task that is woken while still running, or that its CPU takes back
    /// ([`Leaving::Queue`]).
    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement;

    /// Whether a wakeup of `task` on `cpu` is handed over by an interrupt (`TTWU_QUEUE`): then `enqueue`
    /// runs on `cpu`, at its expense, when the interrupt has arrived. Otherwise it runs on the waker.
    fn remote_wake(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, waker_cpu: Cpu) -> bool {
        let _ = (host, task, cpu, waker_cpu);
        false
    }

    /// What is done about a wakeup of `task` if `cpu` is still switching away from it: see [`Leaving`]. Runs on the waker.
    fn wake_leaving(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, waker_cpu: Cpu) -> Leaving {
        let _ = (host, task, cpu, waker_cpu);
        Leaving::Wait
    }

    /// Takes a runnable task: queue it, and call [`Host::resched`] if a CPU should look (an idle CPU does
    /// not look by itself). `cpu` is the one that `select` chose, or where it was if `wake_leaving` said so. Runs on the waker's
    /// CPU, or on `cpu` if that or `remote_wake` said so.
    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: EnqueueWhy);

    /// Gives a queued task back without running it: its affinity changed, and `select` and `enqueue`
    /// follow.
    fn dequeue(&mut self, host: &mut Host, task: TaskId);

    /// Chooses what `cpu` runs next and takes it off its queue; `None` if there is nothing. It is the answer to every
    /// [`Host::resched`] before it. A quick pull from other CPUs may be done here; a search that takes long belongs in `newidle`.
    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId>;

    /// `cpu` has nothing to run, and may look for something elsewhere before it idles. A search goes on a look at a time:
    /// between two of them what the first charged passes, and others go on, with interrupts to `cpu` held back. What was put
    /// into its queue meanwhile is for the policy to see: a CPU that decides is deaf to [`Host::resched`]. `prev` is the task
    /// that it leaves; `None` if it was idle.
    fn newidle(&mut self, host: &mut Host, cpu: Cpu, prev: Option<TaskId>) -> Newidle {
        let _ = (host, cpu, prev);
        Newidle::Idle
    }

    /// `task` has stopped running on `cpu`; see [`StopWhy`] for what to do. [`Host::runtime`] is up to
    /// date.
    fn put_prev(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy);

    /// The periodic tick of a busy CPU, in interrupt context. Call [`Host::resched`] on `cpu` to end the
    /// current task's turn.
    fn tick(&mut self, host: &mut Host, cpu: Cpu, curr: TaskId) {
        let _ = (host, cpu, curr);
    }

    /// The tick of an idle CPU that has not been stopped (see [`Policy::tick_stopped`]). Call
    /// [`Host::resched`] on `cpu` if there is something to run now.
    fn idle_tick(&mut self, host: &mut Host, cpu: Cpu) {
        let _ = (host, cpu);
    }

    /// Whether `cpu`, which is about to run `task`, needs ticks. A policy that says no gets none until
    /// the next task is picked.
    fn wants_tick(&self, host: &Host, cpu: Cpu, task: TaskId) -> bool {
        let _ = (host, cpu, task);
        true
    }

    /// `cpu` found nothing to run. `again`: it was idle before, was told to look, and found nothing.
    fn idle_enter(&mut self, host: &mut Host, cpu: Cpu, again: bool) {
        let _ = (host, cpu, again);
    }

    /// `cpu` was idle and is about to run a task.
    fn idle_exit(&mut self, host: &mut Host, cpu: Cpu) {
        let _ = (host, cpu);
    }

    /// `cpu` is idle and its tick has just been stopped (nohz).
    fn tick_stopped(&mut self, host: &mut Host, cpu: Cpu) {
        let _ = (host, cpu);
    }

    /// A timer that [`Host::set_timer`] armed has expired on `cpu`.
    fn timer(&mut self, host: &mut Host, cpu: Cpu, cookie: u64) {
        let _ = (host, cpu, cookie);
    }

    /// An interrupt that [`Host::send_ipi`] sent has arrived on `cpu`.
    fn ipi(&mut self, host: &mut Host, cpu: Cpu, cookie: u64) {
        let _ = (host, cpu, cookie);
    }

    /// The stopper that [`Host::stop_cpu`] asked for runs on `cpu`; what ran there has been put back
    /// (`put_prev(Preempted)`) and may be moved like any queued task.
    fn stopper(&mut self, host: &mut Host, cpu: Cpu, cookie: u64) {
        let _ = (host, cpu, cookie);
    }

    /// The class of a task changed (by itself, or boosted through a priority-inheritance mutex; read
    /// [`crate::host::Task::class`]). Whatever its state: sleeping, queued, or running.
    fn class_changed(&mut self, host: &mut Host, task: TaskId) {
        let _ = (host, task);
    }

    /// The counters of [`Host::count`] are about to be read or reset: a policy that counts elsewhere brings
    /// them up to date.
    fn sync_stats(&mut self, host: &mut Host) {
        let _ = host;
    }

    /// An event on `cpu`, where `curr` runs, comes soon. A policy with tables too large for the cache may
    /// fetch what it will need ([`crate::prefetch`]); nothing else may happen.
    #[inline]
    fn prefetch(&self, cpu: Cpu, curr: Option<TaskId>) {
        let _ = (cpu, curr);
    }

    /// For how long `cpu` may stay idle while `task` waits in a queue and may run there. `None`, the default: the
    /// policy's rules never oblige it. The checker takes the policy by its word, so give it yours.
    fn idle_bound_ns(&self, host: &Host, task: TaskId, cpu: Cpu) -> Option<Nanos> {
        let _ = (host, task, cpu);
        None
    }

    /// For how long a runnable task may wait in a queue before the checker calls it lost. The default is
    /// ten seconds; a policy without fairness, such as a real-time class, returns `None`.
    fn wait_bound_ns(&self) -> Option<Nanos> {
        Some(10_000_000_000)
    }
}
