// SPDX-License-Identifier: GPL-2.0-only
//! sched_ext's built-in tracking of idle CPUs: two masks for the machine, or two per NUMA node.
//!
//! `cpu` has the idle CPUs, `smt` the CPUs of cores of which every thread is idle. As in the kernel, `cpu`
//! is changed by atomic bit operations; `smt` is read, changed and written back as a whole without a
//! lock, so concurrent changes can get lost (the next transition of the CPU repairs it), and every
//! transition to busy writes it, changed or not. Both are what per-node masks confine to a node.

use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Core, Cpu, Id, Node};
use crate::machine::Machine;
use crate::policy::mask::{mask_lines, Bus, SharedMask, Within};

/// `SCX_PICK_IDLE_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PickFlags {
    /// Only CPUs of whole idle cores. No effect without SMT.
    pub core: bool,
    /// Only the node given.
    pub in_node: bool,
}

impl PickFlags {
    pub const ANY: PickFlags = PickFlags {
        core: false,
        in_node: false,
    };
}

/// Which masks: the machine's (`NUMA_NO_NODE`), or a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(usize);

struct Pair {
    cpu: SharedMask,
    smt: SharedMask,
}

/// All idle masks.
pub(super) struct IdleMasks {
    machine: Arc<Machine>,
    core_sets: Vec<CpuSet>,
    pairs: Vec<Pair>,
    per_node: bool,
    /// `sched_smt_active()`.
    smt: bool,
    /// Per CPU: where its last `cpumask_any_and_distribute()` ended. The next one starts after it, the
    /// first one at CPU 1.
    rotor: Vec<u32>,
    /// Words that picks have looked at, for the statistics.
    pub looked: u64,
}

impl IdleMasks {
    /// Allocates the masks, each on lines of its own, per-node ones on their node. All CPUs are marked
    /// idle, as the kernel does when a scheduler is enabled (up to 7.2; it converges at once).
    pub fn new(host: &mut Host, per_node: bool) -> Self {
        let machine = Arc::clone(host.machine());
        let (cpu_class, smt_class) = (
            host.line_class("idle-cpumask"),
            host.line_class("idle-smtmask"),
        );
        let nr_lines = mask_lines(machine.nr_cpu_numbers());
        let mut make = |class, home| (0..nr_lines).map(|_| host.new_line(class, home)).collect();
        let homes: Vec<Option<Node>> = match per_node {
            true => machine
                .topo()
                .nodes_by_id()
                .map(|(node, _)| Some(node))
                .collect(),
            false => vec![None],
        };
        let lines = homes
            .iter()
            .map(|&home| (make(cpu_class, home), make(smt_class, home)))
            .collect();
        Self::with_lines(machine, per_node, lines)
    }

    pub fn with_lines(
        machine: Arc<Machine>,
        per_node: bool,
        lines: Vec<(Vec<crate::ids::LineId>, Vec<crate::ids::LineId>)>,
    ) -> Self {
        let nr = machine.nr_cpu_numbers();
        let pairs = lines.into_iter().enumerate().map(|(i, (cpu, smt))| {
            let members = match per_node {
                true => machine.node_cpus(Node::from_index(i)),
                false => machine.online(),
            };
            let (mut cpu, mut smt) = (SharedMask::new(nr, cpu), SharedMask::new(nr, smt));
            cpu.fill(members);
            smt.fill(members);
            Pair { cpu, smt }
        });
        let cores = machine.topo().cores().len();
        let core_sets = (0..cores)
            .map(Core::from_index)
            .map(|c| machine.core_cpus(c));
        IdleMasks {
            core_sets: core_sets
                .map(|cpus| cpus.iter().copied().collect())
                .collect(),
            pairs: pairs.collect(),
            per_node,
            smt: machine.topo().smt_width() > 1,
            rotor: vec![0; nr],
            machine,
            looked: 0,
        }
    }

    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    pub fn smt_active(&self) -> bool {
        self.smt
    }

    /// The masks that track a CPU.
    pub fn key(&self, cpu: Cpu) -> Key {
        match self.per_node {
            true => Key(self.machine.cpu(cpu).node.index()),
            false => Key(0),
        }
    }

    fn core_set(&self, cpu: Cpu) -> &CpuSet {
        &self.core_sets[self.machine.cpu(cpu).core.index()]
    }

    /// Whether a CPU's bit is set in the mask of whole idle cores.
    pub fn in_smt(&self, bus: &mut impl Bus, key: Key, cpu: Cpu) -> bool {
        self.pairs[key.0].smt.test(bus, cpu)
    }

    /// Whether nobody is idle in these masks.
    pub fn nobody(&self, bus: &mut impl Bus, key: Key) -> bool {
        self.pairs[key.0].cpu.is_empty(bus)
    }

    /// How many updates of the smt masks were lost to races so far.
    pub fn lost_updates(&self) -> u64 {
        self.pairs.iter().map(|p| p.smt.lost_updates).sum()
    }

    /// A CPU becomes idle or busy (`update_builtin_idle()`).
    pub fn update(&mut self, bus: &mut impl Bus, cpu: Cpu, idle: bool) {
        let key = self.key(cpu);
        let core = &self.core_sets[self.machine.cpu(cpu).core.index()];
        let pair = &mut self.pairs[key.0];
        pair.cpu.assign(bus, cpu, idle);
        if !self.smt {
            return;
        }
        if !idle {
            pair.smt.and_not(bus, core);
        } else if pair.cpu.has_all(bus, core) {
            pair.smt.or(bus, core);
        }
    }

    /// Takes a CPU for the caller (`scx_idle_test_and_clear_cpu()`): whether it was idle and nobody else
    /// had taken it. The smt mask goes first, whether the claim succeeds or not: the core is not wholly
    /// idle either way, and a search that repeats must not find it again. Read before written, to leave
    /// the line alone where there is nothing to clear.
    pub fn claim(&mut self, bus: &mut impl Bus, cpu: Cpu) -> bool {
        let key = self.key(cpu);
        let core = &self.core_sets[self.machine.cpu(cpu).core.index()];
        let pair = &mut self.pairs[key.0];
        if self.smt && pair.smt.intersects(bus, Within::one(core)) {
            pair.smt.and_not(bus, core);
        }
        pair.cpu.test_and_clear(bus, cpu)
    }

    /// `pick_idle_cpu_in_node()`: whole idle cores first, then any idle CPU. `this` is the CPU that
    /// searches, whose rotor spreads its picks.
    pub fn pick_in(
        &mut self,
        bus: &mut impl Bus,
        this: Cpu,
        set: Within<'_>,
        key: Key,
        core: bool,
    ) -> Option<Cpu> {
        // Each failed claim has cleared the smt bits of a core or found a cpu bit clear, so the masks
        // run out of candidates.
        loop {
            let mut found = None;
            if self.smt {
                found = self.any_and(bus, this, set, key, true);
                if found.is_none() && core {
                    return None;
                }
            }
            let found = match found {
                Some(cpu) => cpu,
                None => self.any_and(bus, this, set, key, false)?,
            };
            if self.claim(bus, found) {
                return Some(found);
            }
        }
    }

    /// `cpumask_any_and_distribute()`.
    fn any_and(
        &mut self,
        bus: &mut impl Bus,
        this: Cpu,
        set: Within<'_>,
        key: Key,
        smt: bool,
    ) -> Option<Cpu> {
        let pair = &self.pairs[key.0];
        let mask = if smt { &pair.smt } else { &pair.cpu };
        let rotor = &mut self.rotor[this.0 as usize];
        let (found, looked) = mask.next_and_wrap(bus, set, *rotor);
        self.looked += looked;
        if let Some(cpu) = found {
            *rotor = cpu.0;
        }
        found
    }

    /// `scx_pick_idle_cpu()`: the masks of `near` first; with per-node masks, and unless restricted to
    /// the node, then the other nodes in order of their distance from it.
    pub fn pick(
        &mut self,
        bus: &mut impl Bus,
        this: Cpu,
        set: Within<'_>,
        near: Cpu,
        flags: PickFlags,
    ) -> Option<Cpu> {
        let key = self.key(near);
        let found = self.pick_in(bus, this, set, key, flags.core);
        if found.is_some() || !self.per_node || flags.in_node {
            return found;
        }
        let machine = Arc::clone(&self.machine);
        let order = &machine.topo()[Node::from_index(key.0)].near;
        order
            .iter()
            .find_map(|n| self.pick_in(bus, this, set, Key(n.index()), flags.core))
    }

    /// An idle thread of a CPU's core, the CPU itself excepted.
    pub fn claim_sibling(&mut self, bus: &mut impl Bus, of: Cpu, allowed: &CpuSet) -> Option<Cpu> {
        let siblings = self.core_set(of).and(allowed);
        let mut others = siblings.iter().filter(|&c| c != of);
        others.find(|&c| self.claim(bus, c))
    }

    #[cfg(test)]
    pub fn peek(&self, cpu: Cpu) -> (bool, bool) {
        let pair = &self.pairs[self.key(cpu).0];
        (pair.cpu.peek(cpu), pair.smt.peek(cpu))
    }

    /// For scenarios: exactly these CPUs are idle; the smt masks follow.
    #[cfg(test)]
    pub fn set_idle(&mut self, idle: &CpuSet) {
        for cpu in self.machine.online().iter() {
            let whole = self.core_set(cpu).iter().all(|c| idle.contains(c));
            let key = self.key(cpu);
            self.pairs[key.0].cpu.init(cpu, idle.contains(cpu));
            self.pairs[key.0].smt.init(cpu, whole);
        }
    }
}
