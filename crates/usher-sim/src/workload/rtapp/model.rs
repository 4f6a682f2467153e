// SPDX-License-Identifier: GPL-2.0-only
//! What an rt-app file says, apart from its syntax and from the simulator.

use super::syntax::Place;

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub struct RtApp {
    /// The `global` object.
    pub global: Global,
    /// The `tasks` object, in order.
    pub tasks: Vec<TaskDef>,
}

/// The `global` object: what means something in a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Global {
    /// Seconds after which everything stops; `None`: when all threads have ended.
    pub duration_s: Option<u64>,
    /// Policy of tasks that name none.
    pub default_policy: Policy,
    /// Mutexes with priority inheritance.
    pub pi_enabled: bool,
    /// Size of a thread's memory buffer, in bytes.
    pub mem_buffer_size: u64,
    /// What `iorun` writes to.
    pub io_device: String,
    /// Slack is summed up over a phase, instead of the last timer's.
    pub cumulative_slack: bool,
}

impl Default for Global {
    /// rt-app's defaults.
    fn default() -> Global {
        Global {
            duration_s: None,
            default_policy: Policy::Other,
            pi_enabled: false,
            mem_buffer_size: 4 << 20,
            io_device: "/dev/null".into(),
            cumulative_slack: false,
        }
    }
}

/// A scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`.
    Other,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_RR`.
    RoundRobin,
    /// `SCHED_FIFO`.
    Fifo,
}

impl Policy {
    /// Names, in the order of the variants.
    pub const ALL: [(Policy, &'static str); 4] = [
        (Policy::Other, "SCHED_OTHER"),
        (Policy::Idle, "SCHED_IDLE"),
        (Policy::RoundRobin, "SCHED_RR"),
        (Policy::Fifo, "SCHED_FIFO"),
    ];

    /// As in a file.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(p, _)| *p == self)
            .map_or("", |(_, name)| name)
    }

    /// Legal priorities (nice values for the first two), and what a task gets that gives none.
    pub fn priorities(self) -> (i64, i64, i64) {
        match self {
            Policy::Other | Policy::Idle => (-20, 19, 0),
            Policy::RoundRobin | Policy::Fifo => (1, 99, 10),
        }
    }
}

/// One entry of `tasks`.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDef {
    /// Its name; unique.
    pub name: String,
    /// Where it stands.
    pub at: Place,
    /// Threads made of it at the start.
    pub instances: u32,
    /// Microseconds before it starts.
    pub delay_us: u64,
    /// Class and CPUs, for all phases that do not say otherwise.
    pub attrs: Attrs,
    /// How often the phases are run through.
    pub repeat: Repeat,
    /// What it does. A task without a `phases` object has one phase, of empty name.
    pub phases: Vec<Phase>,
}

/// Class and CPUs of a task or a phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attrs {
    /// `policy`.
    pub policy: Option<Policy>,
    /// `priority`, and where it stands.
    pub priority: Option<(i64, Place)>,
    /// `cpus`, and where it stands.
    pub cpus: Option<(Vec<u32>, Place)>,
}

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// -1 in a file.
    Forever,
    /// This often.
    Times(u64),
}

/// A phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name; empty if the task has no `phases` object.
    pub name: String,
    /// Class and CPUs from here on.
    pub attrs: Attrs,
    /// How often it runs.
    pub repeat: Repeat,
    /// What happens, in order.
    pub events: Vec<Step>,
}

/// An event and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What.
    pub event: Event,
    /// Where.
    pub at: Place,
}

/// An event. Durations are microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Work that takes this long on the strongest core.
    Run(u64),
    /// Work until this much time has passed, on whatever core.
    Runtime(u64),
    /// Sleep.
    Sleep(u64),
    /// Sleep until the timer's next period.
    Timer {
        /// The timer's name.
        name: String,
        /// Its period.
        period: u64,
        /// Whether missed periods are made up for (`absolute`) or forgotten (`relative`).
        absolute: bool,
    },
    /// Lock a mutex.
    Lock(String),
    /// Unlock a mutex.
    Unlock(String),
    /// Wait on a condition, with a mutex.
    Wait {
        /// The condition.
        cond: String,
        /// The mutex.
        mutex: String,
    },
    /// Wake one that waits on a condition.
    Signal(String),
    /// Wake all that wait on a condition.
    Broad(String),
    /// Signal a condition, then wait on it.
    Sync {
        /// The condition.
        cond: String,
        /// The mutex.
        mutex: String,
    },
    /// Sleep until somebody resumes this name.
    Suspend(String),
    /// Wake all that are suspended under this name.
    Resume(String),
    /// Wait until everybody that uses this name has come.
    Barrier(String),
    /// Write this many bytes to memory.
    Mem(u64),
    /// Write this many bytes to the device.
    IoRun(u64),
    /// Yield the CPU.
    Yield,
    /// Make a thread of this task.
    Fork(String),
}

impl Event {
    /// Whether a timer of this name belongs to each thread instead of to all.
    pub fn is_unique_timer(name: &str) -> bool {
        name.starts_with("unique")
    }
}
