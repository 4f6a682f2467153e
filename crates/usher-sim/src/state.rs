// SPDX-License-Identifier: GPL-2.0-only
//! Everything a running simulation knows, apart from the policy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::coherence::Lines;
use crate::event::{Event, Kind};
use crate::ids::{Core, Cpu, Id, Nanos, TaskId};
use crate::machine::Machine;
use crate::prefetch::{prefetch, prefetch_at};
use crate::queue::EventQueue;
use crate::rng::Rng;
use crate::stats::Stats;
use crate::task::Task;
use crate::trace::Tracer;
use crate::world::World;

/// The modelled machine with its tasks, as the policy sees it and the engine runs it.
pub struct Host {
    pub(crate) now: Nanos,
    pub(crate) actor: Cpu,
    /// What the callbacks of this event have charged to the actor so far.
    pub(crate) charged: Nanos,
    pub(crate) machine: Arc<Machine>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) cpus: Vec<CpuState>,
    /// Busy threads of each core, for SMT sharing.
    pub(crate) core_busy: Vec<u8>,
    /// By how much work takes longer, in 1,024ths, by how many siblings are busy.
    pub(crate) smt_scale: Vec<u32>,
    pub(crate) clocks: crate::clock::Clocks,
    /// CPUs of each LLC that are in the deepest idle state.
    pub(crate) llc_asleep: Vec<u32>,
    pub(crate) lines: Lines,
    pub(crate) books: crate::bookkeeping::Books,
    /// Class of the lines of the workload's objects.
    pub(crate) object_class: crate::ids::LineClass,
    pub(crate) world: World,
    pub(crate) queue: EventQueue,
    pub(crate) cookies: Slots,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    /// When the first tick comes: a run starts at any time between two.
    pub(crate) tick_phase: Nanos,
    pub(crate) seed: u64,
    pub(crate) tracers: Vec<Box<dyn Tracer>>,
    /// Tasks that have not exited; of these, sleepers without a timer; and tasks waiting for a CPU.
    pub(crate) live: usize,
    pub(crate) stuck: usize,
    pub(crate) queued: usize,
}

/// A time that never comes.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// What a CPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Idle, in an idle state.
    Idle,
    /// On its way into an idle state.
    Entering,
    /// On its way out of one.
    Exiting,
    /// In the kernel, on behalf of its current task.
    Kernel,
    /// Its current task computes.
    User,
    /// In the kernel between two tasks: it has left one and looks elsewhere for the next, with interrupts off.
    Searching,
}

impl Phase {
    /// Whether a CPU in this phase takes its share of the core.
    #[inline]
    pub fn is_busy(self) -> bool {
        !matches!(self, Phase::Idle | Phase::Exiting)
    }
}

/// A CPU. The order of the fields matters for speed, as in [`Task`].
#[repr(C, align(64))]
pub(crate) struct CpuState {
    // What every step looks at.
    pub curr: Option<TaskId>,
    pub gen: u32,
    /// When what it does is done, and the time of the event (of generation `gen`) put in for it.
    pub until: Nanos,
    pub armed: Nanos,
    pub phase_since: Nanos,
    /// `User`: from when on work counts, and work per ns, 16 fraction bits.
    pub since: Nanos,
    pub rate: u32,
    pub phase: Phase,
    pub need_resched: bool,
    pub tick_stopped: bool,
    pub ticks_wanted: bool,
    /// Its place in the machine.
    pub core: u32,
    pub tier: u8,
    pub idle_state: u8,
    /// `Searching`: whom it has left; `None` if it was idle before.
    pub leaving: Option<TaskId>,

    // What ticks, timers and switches look at.
    /// Interrupt time taken out of the current `User` phase.
    pub irq_ns: Nanos,
    /// When the tick event in the queue is due.
    pub tick_armed: Nanos,
    pub timer_armed: Nanos,
    pub timer_gen: u32,
    /// Address space of the task that ran last.
    pub last_space: Option<TaskId>,
    /// Address space of several threads that it went idle with.
    pub borrowed: Option<TaskId>,
    /// Work per ns alone on the core, 16 fraction bits.
    pub speed_q16: u32,
    /// Speed of kernel work: 0 for full speed, else ns per ns of the strongest type, 10 fraction bits.
    pub kernel_scale: u32,
    /// Since when it runs nothing, whatever interrupted it, and since when it is in its idle state.
    pub idle_since: Nanos,
    pub state_since: Nanos,

    pub governor: crate::idle::Governor,
    /// Interrupts that arrived while it was leaving an idle state, or had them off.
    pub pending: Pending,

    pub timers: BinaryHeap<Reverse<TimerEntry>>,
    /// Tasks handed over by other CPUs, why, and whether synchronously.
    pub wake_list: Vec<(TaskId, crate::policy::WakeKind, bool)>,
    /// Cookies of stoppers that wait for the next switch.
    pub stops: Vec<u64>,
    /// Lines of the pages from which it takes memory for messages.
    pub slab: Option<crate::channel::SlabLines>,
}

/// Interrupts that wait.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Those that are the same however often they come: bit `2 * kind + arg`.
    bits: u16,
    pub others: Vec<(Kind, u32)>,
}

impl Pending {
    pub fn put(&mut self, kind: Kind, arg: u32) {
        match kind {
            Kind::Timer | Kind::Tick => self.bits |= 1 << (2 * kind as u32),
            Kind::Resched | Kind::WakeList => self.bits |= 1 << (2 * kind as u32 + arg),
            _ => self.others.push((kind, arg)),
        }
    }

    pub fn has(&self, kind: Kind, arg: u32) -> bool {
        self.bits >> (2 * kind as u32 + arg) & 1 == 1
    }
}

/// A timer: fires at `hard`, or earlier, but not before `soft`, if the CPU takes a timer interrupt anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerEntry {
    pub hard: Nanos,
    pub soft: Nanos,
    pub kind: TimerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKind {
    /// Wakes a task from the wait of this generation.
    Task(TaskId, u32),
    /// Calls the policy.
    Policy(u64),
}

/// Numbers that wait for an event that carries their slot.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    values: Vec<u64>,
    free: Vec<u32>,
}

impl Slots {
    pub fn put(&mut self, value: u64) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.values[slot as usize] = value;
                slot
            }
            None => {
                self.values.push(value);
                self.values.len() as u32 - 1
            }
        }
    }

    pub fn take(&mut self, slot: u32) -> u64 {
        self.free.push(slot);
        self.values[slot as usize]
    }
}

impl Host {
    /// Fetches what the next events will need, in stages: of an event that is some way off the CPU; nearer,
    /// what that points to (its task, its sibling threads); nearer still, what the task points to. Each stage
    /// reads only what an earlier one has fetched.
    #[inline]
    pub(crate) fn prefetch_next(&self, policy: &dyn crate::Policy) {
        let mut soon = self.queue.soon().map(|e| Event::unpack(e.what));
        if let Some(Event { kind, cpu, .. }) = soon.nth(1) {
            let state = &self.cpus[cpu.index()];
            if let Some(program) = state
                .curr
                .and_then(|t| self.tasks[t.index()].program.as_deref())
            {
                prefetch_at(std::ptr::from_ref(program).cast(), 2);
            }
            if let (Kind::Timer, Some(Reverse(first))) = (kind, state.timers.peek()) {
                if let TimerKind::Task(wakes, _) = first.kind {
                    prefetch(&self.tasks[wakes.index()], 5);
                    policy.prefetch(cpu, Some(wakes));
                }
            }
        }
        if let Some(Event { cpu, .. }) = soon.nth(1) {
            let state = &self.cpus[cpu.index()];
            if let Some(curr) = state.curr {
                prefetch(&self.tasks[curr.index()], 5);
            }
            prefetch_at(state.timers.as_slice().as_ptr().cast(), 1);
            for &sibling in self.machine.core_cpus(Core(state.core)) {
                prefetch(&self.cpus[sibling.index()], 2);
            }
            policy.prefetch(cpu, state.curr);
        }
        if let Some(Event { cpu, .. }) = soon.nth(2) {
            prefetch(&self.cpus[cpu.index()], 6);
        }
    }

    /// Arms a timer on a CPU.
    pub(crate) fn arm_timer(&mut self, cpu: Cpu, entry: TimerEntry) {
        let state = &mut self.cpus[cpu.index()];
        state.timers.push(Reverse(entry));
        let due = entry.hard.max(self.now);
        if due < state.timer_armed {
            state.timer_armed = due;
            state.timer_gen = state.timer_gen.wrapping_add(1);
            let gen = state.timer_gen;
            self.push(due, Kind::Timer, cpu, gen);
        }
    }
}
