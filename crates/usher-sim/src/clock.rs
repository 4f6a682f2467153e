// SPDX-License-Identifier: GPL-2.0-only
//! Clocks that fall: the more of a socket's cores are busy, the slower they all run.
//!
//! A socket may draw so much power and no more, and firmware sets the clock by what its cores drew of late. Here that is how
//! many of them were busy: all run at full speed up to `clock.clock_free_permille` of them, at `clock.clock_full_permille`
//! with all, and between in proportion. What CPUs do by themselves takes as much longer, computing and kernel work; cache
//! lines and wakeups out of idle states go by other clocks.

use crate::costs::CostNumbers;
use crate::event::Kind;
use crate::ids::{Core, Cpu, Id, Nanos};
use crate::machine::Machine;
use crate::state::{CpuState, Phase};
use crate::Simulation;

/// How often firmware looks: on Zen 2 every millisecond (Schoene et al., arXiv:2108.00808).
const PERIOD_NS: Nanos = 1_000_000;

/// What a step of the clock is, in thousandths of the whole: 25 MHz of 3.6 GHz, as on Zen.
const STEP_PERMILLE: u64 = 7;

/// A socket's cores.
#[derive(Debug, Default)]
struct Socket {
    cpus: Vec<Cpu>,
    cores: u64,
    /// Cores that are busy, since when, and what all did in this period before.
    busy: u64,
    since: Nanos,
    busy_ns: Nanos,
    /// Their speed.
    permille: u32,
    /// Whether an event is on its way.
    armed: bool,
}

/// The clocks of a machine; none if they do not fall.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    sockets: Vec<Socket>,
    of_core: Vec<u32>,
}

impl Clocks {
    pub fn new(machine: &Machine) -> Clocks {
        if machine.costs().n.clock_full_permille == 1000 {
            return Clocks::default();
        }
        let topo = machine.topo();
        let idle = |_| Socket {
            permille: 1000,
            ..Socket::default()
        };
        let mut clocks = Clocks {
            sockets: topo.packages().iter().map(idle).collect(),
            of_core: Vec::new(),
        };
        for core in topo.cores() {
            let first = &topo.cids()[core.cids.as_usize().start];
            let at = &mut clocks.sockets[first.package.index()];
            at.cores += 1;
            at.cpus.extend(topo.cpus_in(core.cids));
            clocks.of_core.push(first.package.index() as u32);
        }
        clocks
    }

    /// The speed with so many core nanoseconds of a period busy.
    fn speed(n: &CostNumbers, busy_ns: Nanos, cores: u64) -> u32 {
        let (free, full) = (n.clock_free_permille, n.clock_full_permille);
        let busy = (busy_ns * 1000 / (cores * PERIOD_NS)).min(1000);
        let falls = (1000 - full) * busy.saturating_sub(free) / (1000 - free);
        (1000 - falls / STEP_PERMILLE * STEP_PERMILLE) as u32
    }
}

impl Socket {
    fn account(&mut self, now: Nanos) {
        self.busy_ns += (now - self.since) * self.busy;
        self.since = now;
    }
}

impl CpuState {
    /// The speed of the core, in thousandths of the strongest type's with few of its socket busy.
    pub fn set_speed(&mut self, permille: u32) {
        let whole = permille == 1000;
        self.kernel_scale = if whole { 0 } else { 1_024_000 / permille };
        self.speed_q16 = (65_536 * u64::from(permille) / 1000) as u32;
    }
}

impl Simulation {
    /// A core has its first busy thread, or none any more.
    #[inline]
    pub(crate) fn clock_changed(&mut self, core: Core, busy: bool) {
        let Some(&at) = self.host.clocks.of_core.get(core.index()) else {
            return;
        };
        let now = self.host.now;
        let socket = &mut self.host.clocks.sockets[at as usize];
        socket.account(now);
        if busy {
            socket.busy += 1;
        } else {
            socket.busy -= 1;
        }
        if !socket.armed {
            self.arm_clock(at);
        }
    }

    /// Firmware looks at a socket, and its CPUs go on at another speed. While nobody is busy it sleeps, too.
    pub(crate) fn on_clock(&mut self, at: u32) {
        let now = self.host.now;
        let costs = &self.host.machine.costs().n;
        let socket = &mut self.host.clocks.sockets[at as usize];
        socket.account(now);
        let busy_ns = std::mem::take(&mut socket.busy_ns);
        self.host.stats.core_busy_ns += busy_ns;
        self.host.stats.core_clock_ns += busy_ns * u64::from(socket.permille) / 1000;
        let speed = Clocks::speed(costs, busy_ns, socket.cores);
        if speed != socket.permille {
            socket.permille = speed;
            for i in 0..socket.cpus.len() {
                self.run_at(self.host.clocks.sockets[at as usize].cpus[i], speed);
            }
        }
        let socket = &mut self.host.clocks.sockets[at as usize];
        socket.armed = socket.busy > 0 || busy_ns > 0;
        if socket.armed {
            self.arm_clock(at);
        }
    }

    fn arm_clock(&mut self, at: u32) {
        let socket = &mut self.host.clocks.sockets[at as usize];
        socket.armed = true;
        let (cpu, due) = (socket.cpus[0], (self.host.now / PERIOD_NS + 1) * PERIOD_NS);
        self.host.push(due, Kind::Clock, cpu, at);
    }

    fn run_at(&mut self, cpu: Cpu, permille: u32) {
        let own = self.host.machine.cpu(cpu).speed_permille;
        let c = &mut self.host.cpus[cpu.index()];
        let computes = c.phase == Phase::User;
        c.set_speed((own * permille / 1000).max(1));
        if computes {
            self.settle_work(cpu);
            self.set_rate(cpu);
            self.arm(cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: full speed while few are busy, the least with all, in steps between.
    // Method: 64 cores, by hand.
    #[test]
    fn speed_falls_with_busy_cores() {
        let n = CostNumbers {
            clock_free_permille: 250,
            clock_full_permille: 800,
            ..CostNumbers::default()
        };
        let at = |busy: u64| Clocks::speed(&n, busy * PERIOD_NS, 64);
        assert_eq!([at(0), at(1), at(16)], [1000; 3]);
        // Two thirds of the way are 133 of 200: 19 steps of 7.
        assert_eq!(at(48), 867);
        assert_eq!(at(64), 804);
        assert!((16..64).all(|busy| at(busy + 1) <= at(busy)));
    }
}
