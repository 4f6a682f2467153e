// SPDX-License-Identifier: GPL-2.0-only
//! Everything a running simulation knows, apart from the policy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::coherence::Lines;
use crate::event::Kind;
use crate::ids::{Cpu, Id, Nanos, TaskId};
use crate::machine::Machine;
use crate::queue::HeapQueue;
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
    pub(crate) lines: Lines,
    /// Class of the lines of the workload's objects.
    pub(crate) object_class: crate::ids::LineClass,
    pub(crate) world: World,
    pub(crate) queue: HeapQueue,
    pub(crate) cookies: Slots,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    pub(crate) tracer: Option<Box<dyn Tracer>>,
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
}

/// A CPU.
pub(crate) struct CpuState {
    pub curr: Option<TaskId>,
    pub phase: Phase,
    pub need_resched: bool,
    pub tick_stopped: bool,
    pub idle_state: u8,
    /// Speed of kernel work: 0 for full speed, else ns per ns of the strongest type, 10 fraction bits.
    pub kernel_scale: u32,
    /// Work per ns alone on the core, 16 fraction bits.
    pub speed_q16: u32,
    /// When what it does is done, and the time and generation of the event that was put in for it.
    pub until: Nanos,
    pub armed: Nanos,
    pub gen: u32,
    /// `User`: work per ns, 16 fraction bits, and from when on it counts.
    pub rate: u32,
    pub since: Nanos,
    /// Interrupt time taken out of the current `User` phase.
    pub irq_ns: Nanos,
    /// Since when it runs nothing, whatever interrupted it, and since when it is in its idle state.
    pub idle_since: Nanos,
    pub state_since: Nanos,
    pub phase_since: Nanos,
    /// When the tick event in the queue is due.
    pub tick_armed: Nanos,
    pub ticks_wanted: bool,
    pub timer_gen: u32,
    pub timer_armed: Nanos,
    pub timers: BinaryHeap<Reverse<TimerEntry>>,
    /// Tasks handed over by other CPUs, why, and whether synchronously.
    pub wake_list: Vec<(TaskId, crate::policy::WakeKind, bool)>,
    /// Interrupts that arrived while it was leaving an idle state.
    pub pending: Vec<(Kind, u32)>,
    /// Cookies of stoppers that wait for the next switch.
    pub stops: Vec<u64>,
    /// Address space of the task that ran last.
    pub last_space: Option<TaskId>,
    pub governor: crate::idle::Governor,
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
