// SPDX-License-Identifier: GPL-2.0-only
//! Scheduling domains of 3.9: per CPU, the levels it balances over, innermost first.

use std::collections::BTreeSet;

use super::group::{Idle, SCALE};
use crate::cpuset::CpuSet;
use crate::ids::Cpu;
use crate::machine::Machine;

/// Constants of a level (`SD_*_INIT` of `include/linux/topology.h`; intervals in ms).
#[derive(Clone, Copy, Debug)]
struct Kind {
    pct: u64,
    min_interval: u64,
    max_interval: u64,
    busy_factor: u64,
    nice_tries: u64,
    busy_index: usize,
    idle_index: usize,
    share_power: bool,
    share_cache: bool,
    prefer_sibling: bool,
    /// Takes part in fork balancing and is a target of affine wakeups.
    places: bool,
}

const SIBLING: Kind = Kind {
    pct: 110,
    min_interval: 1,
    max_interval: 2,
    busy_factor: 64,
    nice_tries: 0,
    busy_index: 0,
    idle_index: 0,
    share_power: true,
    share_cache: true,
    prefer_sibling: false,
    places: true,
};

const MC: Kind = Kind {
    pct: 125,
    max_interval: 4,
    nice_tries: 1,
    busy_index: 2,
    share_power: false,
    ..SIBLING
};

const CPU: Kind = Kind {
    idle_index: 1,
    share_cache: false,
    prefer_sibling: true,
    ..MC
};

const NODE: Kind = Kind {
    busy_factor: 32,
    nice_tries: 2,
    busy_index: 3,
    idle_index: 2,
    prefer_sibling: false,
    places: false,
    ..CPU
};

/// One level, as one CPU has it.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    kind: Kind,
    pub span: CpuSet,
    pub weight: u64,
    /// The local group first, then the others in order of their first CPU, wrapping around.
    pub groups: Vec<Group>,
    /// The level below prefers siblings (for the balancing across its spans).
    pub child_prefers_sibling: bool,
    pub min_interval: u64,
    pub max_interval: u64,
    /// Current interval, ms.
    pub interval: u64,
    /// Tick of the last balancing.
    pub balanced_at: u64,
    pub failed: u64,
}

/// A group of a domain: a span of the level below.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub cpus: Vec<Cpu>,
    pub power: u64,
}

impl Domain {
    pub fn pct(&self) -> u64 {
        self.kind.pct
    }

    pub fn nice_tries(&self) -> u64 {
        self.kind.nice_tries
    }

    pub fn shares_power(&self) -> bool {
        self.kind.share_power
    }

    pub fn shares_cache(&self) -> bool {
        self.kind.share_cache
    }

    /// Whether fork and exec balancing, and affine wakeups, use this level.
    pub fn places(&self) -> bool {
        self.kind.places
    }

    /// Which smoothed load to look at.
    pub fn load_index(&self, idle: Idle) -> usize {
        match idle {
            Idle::Not => self.kind.busy_index,
            Idle::Yes => self.kind.idle_index,
            Idle::Newly => 0,
        }
    }

    /// The interval in ticks of `tick_ms` for a CPU in this state, at most `max` ticks.
    pub fn interval_ticks(&self, idle: Idle, tick_ns: u64, max: u64) -> u64 {
        let factor = if idle == Idle::Yes {
            1
        } else {
            self.kind.busy_factor
        };
        let ticks = (self.interval * factor * 1_000_000).div_ceil(tick_ns);
        ticks.clamp(1, max.max(1))
    }
}

/// `smt_gain`: what a core with two busy threads is worth.
const SMT_GAIN: u64 = 1178;

/// `cpu_power` of each CPU: the machine's figure; threads of a core share a little more than one CPU.
pub(super) fn powers(machine: &Machine) -> Vec<u64> {
    let mut powers = vec![0; machine.nr_cpu_numbers()];
    for &cpu in machine.cpus() {
        let info = machine.cpu(cpu);
        let threads = machine.core_cpus(info.core).len() as u64;
        let power = u64::from(info.cpu_power);
        powers[cpu.0 as usize] = match threads {
            1 => power.max(1),
            n => (power * (SMT_GAIN / n) / SCALE).max(1),
        };
    }
    powers
}

/// The spans of the levels around a CPU, innermost first, those left out that add nobody.
fn spans(machine: &Machine, cpu: Cpu) -> Vec<(Kind, CpuSet)> {
    let at = machine.cpu(cpu);
    let core: CpuSet = machine.core_cpus(at.core).iter().copied().collect();
    let levels = [
        (SIBLING, core),
        (MC, machine.llc_cpus(at.llc).clone()),
        (CPU, machine.node_cpus(at.node).clone()),
        (NODE, machine.online().clone()),
    ];
    let mut spans: Vec<(Kind, CpuSet)> = Vec::new();
    for (kind, span) in levels {
        let below = spans.last().map_or(1, |(_, s)| s.len());
        if span.len() > below {
            spans.push((kind, span));
        }
    }
    spans
}

/// The domains of every CPU, by CPU number.
pub(super) fn build(machine: &Machine) -> Vec<Vec<Domain>> {
    let powers = powers(machine);
    let mut all = vec![Vec::new(); machine.nr_cpu_numbers()];
    for &cpu in machine.cpus() {
        let levels = spans(machine, cpu);
        for (depth, (kind, span)) in levels.iter().enumerate() {
            // Who is grouped with whom: by the level below of each member.
            let below = |c: Cpu| -> CpuSet {
                let own = spans(machine, c);
                let inner = own
                    .into_iter()
                    .rev()
                    .map(|(_, s)| s)
                    .find(|s| s.len() < span.len());
                inner.unwrap_or_else(|| CpuSet::of(c))
            };
            let mut seen = BTreeSet::new();
            let mut groups = Vec::new();
            for member in span.iter_wrap(cpu) {
                if seen.contains(&member) {
                    continue;
                }
                let cpus: Vec<Cpu> = below(member).iter().collect();
                seen.extend(cpus.iter().copied());
                let power = cpus.iter().map(|c| powers[c.0 as usize]).sum();
                groups.push(Group { cpus, power });
            }
            let weight = span.len() as u64;
            let (min, max) = match kind.places {
                true => (kind.min_interval, kind.max_interval),
                false => (weight, 2 * weight),
            };
            all[cpu.0 as usize].push(Domain {
                kind: *kind,
                span: span.clone(),
                weight,
                groups,
                child_prefers_sibling: depth > 0 && levels[depth - 1].0.prefer_sibling,
                min_interval: min,
                max_interval: max,
                interval: min,
                balanced_at: 0,
                failed: 0,
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;

    // Goal: the test machine of the proposal has a level within each cluster and one across, with the
    // powers that its kernel printed.
    // Method: the domains of an A15 and an A7.
    #[test]
    fn domains_of_tc2() {
        let raw = usher_topo::machine::load("tc2-2a15-3a7")
            .unwrap()
            .to_raw()
            .unwrap();
        let topo = usher_topo::Topology::build(&raw, 64).unwrap();
        let machine = Machine::new(topo, Costs::builtin("tc2").unwrap()).unwrap();
        let all = build(&machine);
        for (cpu, inner, power) in [(1, vec![0, 1], 2882), (3, vec![2, 3, 4], 1818)] {
            let domains = &all[cpu];
            assert_eq!(domains.len(), 2);
            let span: Vec<usize> = domains[0].span.iter().map(|c| c.0 as usize).collect();
            assert_eq!(span, inner);
            assert_eq!(domains[0].groups[0].cpus, [Cpu(cpu as u32)]);
            assert_eq!(domains[1].groups.len(), 2);
            assert_eq!(
                domains[1].groups[0].power, power,
                "the local group comes first"
            );
            assert_eq!(domains[1].groups[1].power, 2882 + 1818 - power);
        }
    }
}
