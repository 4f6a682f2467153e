// SPDX-License-Identifier: GPL-2.0-only
//! 6.5: when balancing happens: at ticks, on behalf of idle CPUs, and when a CPU runs out of work.
//!
//! 1. A tick balances the domains whose interval has passed; busy CPUs wait longer between.
//! 2. The tick of a busy CPU with reason to think that others could help wakes one idle CPU, which
//!    balances for all CPUs whose tick is stopped.
//! 3. A CPU that runs out of work looks for a task itself, as far as its usual idle time allows.

use super::balance::IdleKind;
use super::config::{NewidleGate, MS};
use super::state::{work, Fair, Search};
use crate::coherence::Access;
use crate::host::Host;
use crate::ids::{Cpu, Id, Nanos};
use crate::policy::Newidle;

/// What an interrupt to an idle CPU asks for (`NOHZ_*_KICK`).
const KICK_BALANCE: u64 = 1;
/// See [`KICK_BALANCE`]: decay the averages of idle CPUs.
const KICK_STATS: u64 = 2;

/// Averages of idle CPUs are decayed about this often (`LOAD_AVG_PERIOD`).
const BLOCKED_PERIOD_NS: Nanos = 32 * MS;

/// Costs of newidle balancing are forgotten by 1 % this often.
const COST_DECAY_NS: Nanos = 1_000_000_000;

impl Fair {
    /// 6.5: the interval of a domain now.
    pub(super) fn interval(&self, cpu: Cpu, place: usize, busy: bool) -> Nanos {
        let longest = (self.nr_cpus as u64 * 100 * MS).max(self.tick_ns);
        let factor = if busy { self.cfg.busy_factor } else { 1 };
        let less = if busy && self.cfg.busy_less_a_jiffy {
            self.tick_ns
        } else {
            0
        };
        (self.cpu(cpu).sds[place].interval * factor)
            .saturating_sub(less)
            .clamp(self.tick_ns, longest)
    }

    /// 6.5 rule 1: the scheduler's part of a tick.
    pub(super) fn balance_tick(&mut self, host: &mut Host, cpu: Cpu) {
        if self.domains.chain[cpu.index()].is_empty() {
            return;
        }
        if host.now() >= self.cpu(cpu).next_balance {
            self.decay_blocked(host, cpu);
            let idle = if self.is_idle(cpu) {
                IdleKind::Idle
            } else {
                IdleKind::Busy
            };
            self.rebalance_domains(host, cpu, idle);
        }
    }

    /// Brings the averages of a CPU up to date.
    fn decay_blocked(&mut self, host: &mut Host, cpu: Cpu) {
        let now = host.now();
        host.access(self.cpu(cpu).load_line, Access::Write);
        host.charge(work::STAT_NS);
        let rq = &mut self.cpu_mut(cpu).rq;
        rq.sync(now);
        let blocked = rq.avg.load > 0 || rq.avg.util > 0;
        self.cpu_mut(cpu).has_blocked = blocked;
    }

    /// 6.5 `rebalance_domains`: from the inside out, the domains that are due.
    fn rebalance_domains(&mut self, host: &mut Host, cpu: Cpu, mut idle: IdleKind) {
        let mut next = host.now() + 60_000 * MS;
        let (mut go_on, mut cost, mut forgot) = (true, 0, false);
        for place in 0..self.domains.chain[cpu.index()].len() {
            let forgets = self.forget_cost(host.now(), cpu, place);
            forgot = forgets || (forgot && !self.cfg.last_domain_forgets);
            cost += self.cpu(cpu).sds[place].max_newidle_cost;
            if !go_on && forgot {
                continue;
            }
            if !go_on {
                break;
            }
            let busy = idle == IdleKind::Busy && !self.only_idle_policy(cpu);
            let mut interval = self.interval(cpu, place, busy);
            let now = host.now();
            if now >= self.cpu(cpu).sds[place].due(interval) {
                let result = self.load_balance(host, cpu, place, idle);
                if result.moved > 0 {
                    idle = if self.is_idle(cpu) {
                        IdleKind::Idle
                    } else {
                        IdleKind::Busy
                    };
                }
                go_on = result.go_on;
                self.sd_mut(cpu, place).last_balance = now as i64;
                interval = self.interval(cpu, place, idle == IdleKind::Busy);
            }
            next = next.min(self.cpu(cpu).sds[place].due(interval));
        }
        let least = self.cfg.migration_cost_ns;
        let state = self.cpu_mut(cpu);
        if forgot {
            state.max_idle_cost = cost.max(least);
        }
        state.next_balance = next;
    }

    /// Whether it was time to.
    fn forget_cost(&mut self, now: Nanos, cpu: Cpu, place: usize) -> bool {
        let sd = self.sd_mut(cpu, place);
        let due = now > sd.cost_decayed_at + COST_DECAY_NS;
        if due {
            sd.max_newidle_cost = sd.max_newidle_cost * 253 / 256;
            sd.cost_decayed_at = now;
        }
        due
    }

    // ---- 2. idle CPUs ----

    /// 6.5 `nohz_balancer_kick`: a busy tick looks whether an idle CPU should be woken to balance.
    pub(super) fn nohz_kick(&mut self, host: &mut Host, cpu: Cpu) {
        if self.nohz.nr == 0 {
            return;
        }
        let now = host.now();
        let mut flags = 0;
        if self.nohz.has_blocked && now >= self.nohz.next_blocked {
            flags |= KICK_STATS;
        }
        if now >= self.nohz.next_balance && self.wants_help(host, cpu) {
            flags |= KICK_BALANCE | KICK_STATS;
        }
        if flags != 0 {
            self.kick(host, cpu, flags);
        }
    }

    /// 6.5: nr >= 2, a misfit task, or more than one busy CPU in the LLC.
    fn wants_help(&self, host: &mut Host, cpu: Cpu) -> bool {
        if self.nr_running(cpu) >= 2 {
            return true;
        }
        if self.domains.asym[cpu.index()].is_some() {
            // 5.6: without a stronger CPU there is no help for a misfit task.
            return self.cpu(cpu).misfit > 0 && self.stronger_exists(cpu);
        }
        if self.preferred_idles(cpu) {
            return true;
        }
        host.access(self.llc(cpu).line(), Access::Read);
        self.domains.llc[cpu.index()].is_some() && self.llc(cpu).nr_busy > 1
    }

    fn kick(&mut self, host: &mut Host, from: Cpu, flags: u64) {
        if flags & KICK_BALANCE != 0 {
            self.nohz.next_balance = host.now() + self.tick_ns;
        }
        host.access(self.nohz.line, Access::Read);
        let Some(helper) = self
            .nohz
            .idle
            .iter()
            .find(|&c| c != from && self.is_idle(c))
        else {
            return;
        };
        if std::mem::replace(&mut self.cpu_mut(helper).kicked, true) {
            return;
        }
        host.count(self.counters.kicks, 1);
        host.send_ipi(helper, flags);
    }

    /// 6.5 `nohz_idle_balance`: an idle CPU balances for all whose tick is stopped, itself last.
    pub(super) fn nohz_balance(&mut self, host: &mut Host, this: Cpu, flags: u64) {
        self.cpu_mut(this).kicked = false;
        if !self.is_idle(this) {
            return;
        }
        let start = host.now();
        let mut next = start + 60_000 * MS;
        let mut blocked = false;
        let order: Vec<Cpu> = self.nohz.idle.iter_wrap(Cpu(this.0 + 1)).collect();
        host.access(self.nohz.line, Access::Read);
        for cpu in order {
            host.charge(work::PROBE_NS);
            if !self.is_idle(cpu) {
                continue;
            }
            // Somebody woke a task here: that comes first.
            if host.needs_resched(this) {
                blocked = true;
                break;
            }
            if flags & KICK_STATS != 0 && self.cpu(cpu).has_blocked {
                self.decay_blocked(host, cpu);
            }
            blocked |= self.cpu(cpu).has_blocked;
            if flags & KICK_BALANCE != 0 && host.now() >= self.cpu(cpu).next_balance {
                self.rebalance_domains(host, cpu, IdleKind::Idle);
            }
            next = next.min(self.cpu(cpu).next_balance);
        }
        self.nohz.has_blocked = blocked;
        if flags & KICK_STATS != 0 {
            self.nohz.next_blocked = start + BLOCKED_PERIOD_NS;
        }
        if flags & KICK_BALANCE != 0 {
            self.nohz.next_balance = next.max(start + self.tick_ns);
        }
    }

    // ---- 3. newly idle CPUs ----

    /// 6.5 `newidle_balance`, a domain at a time: what happens to the CPU while it looks at one ends the search.
    pub(super) fn search_newly_idle(
        &mut self,
        host: &mut Host,
        cpu: Cpu,
        leaving: bool,
    ) -> Newidle {
        let Some(mut search) = self.begin_or_resume(host, cpu, leaving) else {
            return Newidle::Idle;
        };
        let comes = self.cfg.newidle_heeds_wakeups && self.cpu(cpu).pending > 0;
        if comes || search.pulled > 0 || self.nr_running(cpu) > 0 {
            return self.end_search(cpu, search.spent);
        }
        for place in search.place..self.domains.chain[cpu.index()].len() {
            let sd = self.cpu(cpu).sds[place];
            if self.cpu(cpu).avg_idle < search.spent + sd.max_newidle_cost {
                self.expect_balance(cpu, place);
                break;
            }
            let Some(weight) = self.roll_dice(host, cpu, place) else {
                continue;
            };
            let at = host.now();
            let moved = self
                .load_balance(host, cpu, place, IdleKind::NewlyIdle)
                .moved;
            let cost = host.now() - at;
            let success = if moved > 0 { weight } else { 0 };
            self.note_newidle(host.now(), cpu, place, cost, success);
            self.expect_balance(cpu, place);
            (search.place, search.spent) = (place + 1, search.spent + cost);
            search.pulled = moved;
            host.count(self.counters.newidle_pulled, u64::from(moved > 0));
            self.cpu_mut(cpu).search = Some(search);
            return Newidle::GoesOn;
        }
        self.end_search(cpu, search.spent)
    }

    /// Where the search begins or goes on. `None`: it is not worth it.
    fn begin_or_resume(&mut self, host: &mut Host, cpu: Cpu, leaving: bool) -> Option<Search> {
        if let Some(search) = self.cpu(cpu).search {
            return Some(search);
        }
        if self.cfg.newidle_heeds_wakeups && self.cpu(cpu).pending > 0 {
            return None;
        }
        self.cpu_mut(cpu).idle_stamp = host.now().max(1);
        host.access(self.overload_line, Access::Read);
        if !self.overload || !self.newidle_worth(cpu) {
            self.expect_balance(cpu, 0);
            return None;
        }
        host.count(self.counters.newidle, 1);
        self.decay_blocked(host, cpu);
        let search = Search {
            leaving,
            ..Search::default()
        };
        self.cpu_mut(cpu).search = Some(search);
        Some(search)
    }

    fn end_search(&mut self, cpu: Cpu, spent: Nanos) -> Newidle {
        let found = self.nr_running(cpu) > 0;
        let state = self.cpu_mut(cpu);
        state.search = None;
        state.max_idle_cost = state.max_idle_cost.max(spent);
        if !found {
            return Newidle::Idle;
        }
        state.idle_stamp = 0;
        Newidle::Pick
    }

    /// An idle CPU is due for balancing when its domain is, as an idle CPU counts.
    fn expect_balance(&mut self, cpu: Cpu, place: usize) {
        if place >= self.cpu(cpu).sds.len() {
            return;
        }
        let at = self.cpu(cpu).sds[place].due(self.interval(cpu, place, false));
        let state = self.cpu_mut(cpu);
        state.next_balance = state.next_balance.min(at);
    }

    /// 6.2 deltas: a domain where newidle balancing rarely succeeds is rarely tried. Returns how much a
    /// success counts, or `None` not to try.
    fn roll_dice(&mut self, host: &mut Host, cpu: Cpu, place: usize) -> Option<u32> {
        if !self.cfg.newidle_dice {
            return Some(1);
        }
        let weight = 1 + self.cpu(cpu).sds[place].newidle_ratio;
        if host.rng().below(1024) as u32 > weight {
            self.note_try(cpu, place, 0);
            return None;
        }
        Some((1024 + weight / 2) / weight)
    }

    fn note_newidle(&mut self, now: Nanos, cpu: Cpu, place: usize, cost: Nanos, success: u32) {
        if self.cfg.newidle_dice {
            self.note_try(cpu, place, success);
        }
        let gate = self.cfg.newidle_gate;
        let sd = self.sd_mut(cpu, place);
        if cost > sd.max_newidle_cost {
            sd.max_newidle_cost = cost;
            sd.cost_decayed_at = now;
        } else if gate == NewidleGate::DomainCost {
            self.forget_cost(now, cpu, place);
        }
    }

    fn note_try(&mut self, cpu: Cpu, place: usize, success: u32) {
        let sd = self.sd_mut(cpu, place);
        sd.newidle_calls += 1;
        sd.newidle_success += success;
        if sd.newidle_calls >= 1024 {
            sd.newidle_ratio = sd.newidle_success;
            sd.newidle_calls /= 2;
            sd.newidle_success /= 2;
        }
    }
}
