// SPDX-License-Identifier: GPL-2.0-only
//! What the CPUs of a last-level cache share (`sched_domain_shared`), and the idle mask of proposal 0.
//!
//! `nr_busy`, the flag "has idle cores", the scan budget and the mask lie in one object, on the same cache
//! line up to some 400 CPUs (1.1): that is what makes the mask's writes felt by everybody who reads the
//! flag.

use super::config::LlcMask;
use super::state::Fair;
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cpu, Id, LineClass, LineId, Node};

/// Bytes before the mask: reference count, `nr_busy_cpus`, `has_idle_cores`, `nr_idle_scan`.
const HEADER_BYTES: usize = 16;

/// See the module.
#[derive(Clone, Debug)]
pub struct LlcShared {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// CPUs whose tick runs.
    pub nr_busy: u32,
    /// Some core may be idle as a whole: set by idle CPUs, cleared by failed searches.
    pub has_idle_cores: bool,
    /// 6.3 SIS_UTIL: how many CPUs a search may look at.
    pub nr_idle_scan: u64,
    /// 1.1: `idle_span`.
    pub idle: CpuSet,
    lines: Vec<LineId>,
}

impl LlcShared {
    pub(super) fn new(
        host: &mut Host,
        class: LineClass,
        home: Node,
        cpus: &CpuSet,
        nr_cpu_numbers: usize,
    ) -> LlcShared {
        let bytes = HEADER_BYTES + nr_cpu_numbers.div_ceil(8);
        let lines = (0..bytes.div_ceil(64))
            .map(|_| host.new_line(class, Some(home)))
            .collect();
        let weight = cpus.len() as u32;
        LlcShared {
            cpus: cpus.clone(),
            nr_busy: weight,
            has_idle_cores: false,
            nr_idle_scan: u64::from(weight),
            // 1.2 domain build: all ones.
            idle: cpus.clone(),
            lines,
        }
    }

    /// The line of the header.
    pub fn line(&self) -> LineId {
        self.lines[0]
    }

    /// The line of a CPU's bit.
    fn bit_line(&self, cpu: Cpu) -> LineId {
        self.lines[(HEADER_BYTES + cpu.index() / 8) / 64]
    }

    /// Reads the whole mask.
    pub fn read_mask(&self, host: &mut Host) {
        for &line in &self.lines {
            host.access(line, Access::Read);
        }
    }
}

impl Fair {
    pub(super) fn llc(&self, cpu: Cpu) -> &LlcShared {
        &self.llcs[self.llc_of[cpu.index()] as usize]
    }

    pub(super) fn llc_mut(&mut self, cpu: Cpu) -> &mut LlcShared {
        &mut self.llcs[self.llc_of[cpu.index()] as usize]
    }

    /// `test_idle_cores()`. False where the LLC has no domain of its own.
    pub(super) fn has_idle_cores(&self, host: &mut Host, cpu: Cpu) -> bool {
        let llc = self.llc(cpu);
        host.access(llc.line(), Access::Read);
        llc.has_idle_cores
    }

    pub(super) fn set_idle_cores(&mut self, host: &mut Host, cpu: Cpu, value: bool) {
        let llc = self.llc_mut(cpu);
        llc.has_idle_cores = value;
        host.access(llc.line(), Access::Write);
    }

    /// 6.6: on idle entry, the flag is set if all siblings are idle.
    pub(super) fn note_idle_core(&mut self, host: &mut Host, cpu: Cpu) {
        if !self.smt || self.has_idle_cores(host, cpu) {
            return;
        }
        let machine = host.machine().clone();
        let siblings = machine.core_cpus(machine.cpu(cpu).core);
        let mut others = siblings.iter().filter(|&&s| s != cpu);
        if others.all(|&s| self.probe_idle(host, s)) {
            self.set_idle_cores(host, cpu, true);
        }
    }

    /// 1.2 SET: the idle loop stops the tick.
    pub(super) fn mask_tick_stopped(&mut self, host: &mut Host, cpu: Cpu) {
        if self.cpu(cpu).tick_stopped {
            return;
        }
        self.cpu_mut(cpu).tick_stopped = true;
        self.nohz.idle.insert(cpu);
        if self.cfg.nohz_update {
            self.nohz.next_balance = self.nohz.next_balance.min(self.cpu(cpu).next_balance);
        }
        self.nohz.nr += 1;
        host.access(self.nohz.line, Access::Rmw);
        host.access(self.nohz.count_line, Access::Rmw);
        if self.domains.llc[cpu.index()].is_none() || self.cpu(cpu).nohz_idle {
            return;
        }
        self.cpu_mut(cpu).nohz_idle = true;
        let llc = self.llc_mut(cpu);
        llc.nr_busy -= 1;
        host.access(llc.line(), Access::Rmw);
        if self.cfg.llc_mask == LlcMask::TickStop {
            self.set_bit(host, cpu);
        }
    }

    /// 1.2 CLEAR: the first tick that finds the CPU busy.
    pub(super) fn mask_busy_tick(&mut self, host: &mut Host, cpu: Cpu) {
        if self.cpu(cpu).tick_stopped {
            self.cpu_mut(cpu).tick_stopped = false;
            self.nohz.idle.remove(cpu);
            self.nohz.nr -= 1;
            host.access(self.nohz.line, Access::Rmw);
            host.access(self.nohz.count_line, Access::Rmw);
            if self.cpu(cpu).nohz_idle {
                self.cpu_mut(cpu).nohz_idle = false;
                let llc = self.llc_mut(cpu);
                llc.nr_busy += 1;
                host.access(llc.line(), Access::Rmw);
                if self.cfg.llc_mask == LlcMask::TickStop {
                    self.clear_bit(host, cpu);
                }
            }
        }
        // 1.6, v8: written only if that is news; CPUs with only SCHED_IDLE tasks count as idle.
        let lazy = matches!(self.cfg.llc_mask, LlcMask::IdleEntry | LlcMask::Claim);
        if lazy && self.cpu(cpu).marked_idle && !self.only_idle_policy(cpu) {
            self.cpu_mut(cpu).marked_idle = false;
            self.clear_bit(host, cpu);
        }
    }

    /// 1.6, v3 and v8: every idle entry.
    pub(super) fn mask_idle_entry(&mut self, host: &mut Host, cpu: Cpu) {
        let on = matches!(self.cfg.llc_mask, LlcMask::IdleEntry | LlcMask::Claim);
        if on && !self.cpu(cpu).marked_idle {
            self.cpu_mut(cpu).marked_idle = true;
            self.set_bit(host, cpu);
        }
    }

    /// 1.6, the optional claim: who takes a CPU clears its bit. False: somebody else was faster.
    pub(super) fn mask_claim(&mut self, host: &mut Host, cpu: Cpu) -> bool {
        if self.cfg.llc_mask != LlcMask::Claim {
            return true;
        }
        let had = self.llc(cpu).idle.contains(cpu);
        self.clear_bit(host, cpu);
        self.cpu_mut(cpu).marked_idle = false;
        had
    }

    fn set_bit(&mut self, host: &mut Host, cpu: Cpu) {
        let llc = self.llc_mut(cpu);
        llc.idle.insert(cpu);
        host.access(llc.bit_line(cpu), Access::Rmw);
        host.count(self.counters.mask_set, 1);
    }

    fn clear_bit(&mut self, host: &mut Host, cpu: Cpu) {
        let llc = self.llc_mut(cpu);
        llc.idle.remove(cpu);
        host.access(llc.bit_line(cpu), Access::Rmw);
        host.count(self.counters.mask_clear, 1);
    }
}
