// SPDX-License-Identifier: GPL-2.0-only
//! Events, and how they are packed into the queue.

use crate::ids::Cpu;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// What the CPU is doing is done. `arg`: generation.
    Step = 0,
    /// The first timer of a CPU is due. `arg`: generation.
    Timer = 1,
    /// A tick of a CPU. `arg`: generation.
    Tick = 2,
    /// A CPU is told to reschedule. `arg`: 1 by interrupt, 0 by a write to what it polls.
    Resched = 3,
    /// Tasks were put on the wake list of a CPU.
    WakeList = 4,
    /// A policy's interrupt. `arg`: slot of the cookie.
    Ipi = 5,
    /// A policy asks for the stopper. `arg`: slot of the cookie.
    Stop = 6,
    /// A root task starts. `arg`: index into the workload's list.
    Start = 7,
    /// The measurement begins.
    Warm = 8,
    /// The run is over.
    End = 9,
    /// The checker looks.
    Check = 10,
    /// Firmware sets the clock of a socket. `arg`: which.
    Clock = 11,
}

const KINDS: [Kind; 12] = [
    Kind::Step,
    Kind::Timer,
    Kind::Tick,
    Kind::Resched,
    Kind::WakeList,
    Kind::Ipi,
    Kind::Stop,
    Kind::Start,
    Kind::Warm,
    Kind::End,
    Kind::Check,
    Kind::Clock,
];

/// One event: `kind` on `cpu`, with an argument that depends on the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub kind: Kind,
    pub cpu: Cpu,
    pub arg: u32,
}

impl Event {
    #[inline]
    pub fn pack(self) -> u64 {
        debug_assert!(self.cpu.0 < 1 << 24);
        u64::from(self.arg) << 32 | u64::from(self.cpu.0) << 8 | self.kind as u64
    }

    #[inline]
    pub fn unpack(bits: u64) -> Event {
        Event {
            kind: KINDS[(bits & 0xff) as usize],
            cpu: Cpu((bits >> 8) as u32 & 0xff_ffff),
            arg: (bits >> 32) as u32,
        }
    }
}
