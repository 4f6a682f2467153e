// SPDX-License-Identifier: GPL-2.0-only
//! What a task finds in the caches when it runs again.
//!
//! Each core's private cache and each LLC has a clock that counts the KiB brought into it. A task that
//! comes back to a cache finds its working set as far as what came in since it left did not push it out
//! (least recently used goes first); in a cache it was never in, it finds nothing. What is missing is
//! fetched from the LLC, or from memory of the task's home node, while the task runs: see
//! [`Task::refill_ns`] and `start_user`. A child finds what its parent would.

use crate::ids::{Cpu, Id, Nanos};
use crate::machine::Machine;
use crate::task::{Left, Task};

/// The clocks.
pub(crate) struct Caches {
    cores: Vec<u64>,
    llcs: Vec<u64>,
}

impl Caches {
    pub fn new(machine: &Machine) -> Caches {
        let topo = machine.topo();
        Caches {
            cores: vec![0; topo.cores().len()],
            llcs: vec![0; topo.llcs().len()],
        }
    }

    /// A task stops running on a CPU.
    #[inline]
    pub fn leave(&self, machine: &Machine, cpu: Cpu, task: &mut Task) {
        if task.memory.footprint_kib == 0 {
            return;
        }
        let at = machine.cpu(cpu);
        task.left = Left {
            core: at.core.0,
            llc: at.llc.0,
            core_clock: self.cores[at.core.index()],
            llc_clock: self.llcs[at.llc.index()],
        };
    }

    /// A task starts running on a CPU: books what it has to fetch.
    #[inline]
    pub fn enter(&mut self, machine: &Machine, cpu: Cpu, task: &mut Task) {
        let footprint = u64::from(task.memory.footprint_kib);
        if footprint == 0 {
            task.refill_ns = 0;
            return;
        }
        let at = machine.cpu(cpu);
        let n = &machine.costs().n;
        let (core, llc) = (at.core.index(), at.llc.index());
        let left = task.left;
        let core_left = (left.core == at.core.0).then_some(left.core_clock);
        let llc_left = (left.llc == at.llc.0).then_some(left.llc_clock);
        let from_llc = missing(
            footprint,
            n.l2_kib,
            core_left.map(|left| self.cores[core] - left),
        );
        let from_memory = missing(
            footprint,
            n.llc_kib,
            llc_left.map(|left| self.llcs[llc] - left),
        );
        if from_llc == 0 && from_memory == 0 {
            return;
        }
        self.cores[core] += from_llc;
        self.llcs[llc] += from_memory;
        let memory_ns = match at.node == task.home {
            true => n.refill_memory_ns_per_kib,
            false => n.refill_remote_ns_per_kib,
        };
        let ns: Nanos = from_llc.saturating_sub(from_memory) * n.refill_llc_ns_per_kib
            + from_memory * memory_ns;
        // What it still lacked of this core's cache when it left, it lacks still.
        task.refill_ns = if core_left.is_some() {
            task.refill_ns + ns
        } else {
            ns
        };
    }
}

/// KiB of a working set that a cache does not hold, if this much was brought in since the task left;
/// `None`: it was never there.
fn missing(footprint: u64, capacity: u64, brought_in: Option<u64>) -> u64 {
    let kept = footprint.min(capacity);
    match brought_in {
        None => kept,
        Some(kib) => kept.min(kib.saturating_sub(capacity - kept)),
    }
}

#[cfg(test)]
mod tests {
    use super::missing;

    // Goal: eviction follows least-recently-used on the corner cases.
    // Method: table of (working set, capacity, brought in since) and what is gone.
    #[test]
    fn eviction_is_lru() {
        let table = [
            (100, 1000, None, 100),       // never here
            (100, 1000, Some(0), 0),      // nobody else ran
            (100, 1000, Some(900), 0),    // both fit
            (100, 1000, Some(950), 50),   // half of it pushed out
            (100, 1000, Some(5000), 100), // all of it
            (2000, 1000, None, 1000),     // larger than the cache: counts up to its size
            (2000, 1000, Some(1), 1),
        ];
        for (footprint, capacity, since, gone) in table {
            assert_eq!(
                missing(footprint, capacity, since),
                gone,
                "{footprint} {capacity} {since:?}"
            );
        }
    }
}
