// SPDX-License-Identifier: GPL-2.0-only
//! 6.5: one balancing of one domain for one CPU.
//!
//! 1. One CPU per group balances for it: its first idle one, else its first.
//! 2. The busiest other group is found, by type first.
//! 3. Balanced? Then nothing is moved, and the next time is later.
//! 4. How much to move, and in which unit: load, utilisation, tasks, or the misfit task.
//! 5. From the busiest queue of that group, tasks are taken from the cold end (`detach.rs`).
//! 6. If nothing could be moved, again and again, the running task is pushed away (`detach.rs`).

use std::sync::Arc;

use super::domains::{Domain, Level, Step};
use super::fork::numa_imbalance;
use super::state::{work, Fair};
use super::stats::{GroupStats, GroupType, Groups};
use crate::host::Host;
use crate::ids::{Cpu, Id, Nanos};

/// What the CPU that balances is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleKind {
    /// It has work.
    Busy,
    /// It is idle.
    Idle,
    /// It has just run out of work.
    NewlyIdle,
}

/// In which unit the imbalance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Load average.
    Load,
    /// Utilisation.
    Util,
    /// Number of tasks.
    Tasks,
    /// The task that does not fit its CPU.
    Misfit,
}

/// One balancing.
#[derive(Clone, Debug)]
pub(super) struct Env {
    pub domains: Arc<super::domains::Domains>,
    pub dst: Cpu,
    pub place: usize,
    pub idle: IdleKind,
    pub what: Move,
    pub imbalance: i64,
    /// CPUs found to have only pinned tasks.
    pub skip: Vec<Cpu>,
    /// No task that was looked at may run at the destination.
    pub all_pinned: bool,
    /// Some may not.
    pub some_pinned: bool,
    /// Another CPU of the destination group that a pinned task may use.
    pub other_dst: Option<Cpu>,
    /// The stopper does it: hot tasks, too.
    pub active: bool,
}

impl Env {
    pub fn new(fair: &Fair, dst: Cpu, place: usize, idle: IdleKind) -> Env {
        Env {
            domains: Arc::clone(&fair.domains),
            dst,
            place,
            idle,
            what: Move::Load,
            imbalance: 0,
            skip: Vec::new(),
            all_pinned: true,
            some_pinned: false,
            other_dst: None,
            active: false,
        }
    }

    pub fn domain(&self) -> (&Domain, Step) {
        self.domains.at(self.dst, self.place)
    }

    pub fn is_idle(&self) -> bool {
        self.idle != IdleKind::Busy
    }
}

/// All groups of a domain, for the balancer.
struct Picture {
    local: GroupStats,
    busiest: Option<(usize, GroupStats)>,
    total_load: u64,
    total_capacity: u64,
}

impl Picture {
    fn average(&self) -> u64 {
        self.total_load * 1024 / self.total_capacity.max(1)
    }
}

/// What a balancing came to.
pub(super) struct Balanced {
    /// Tasks moved.
    pub moved: u32,
    /// Whether higher domains are worth trying: not if another CPU is in charge of this one.
    pub go_on: bool,
}

impl Fair {
    /// 6.5 `load_balance`.
    pub(super) fn load_balance(
        &mut self,
        host: &mut Host,
        dst: Cpu,
        place: usize,
        idle: IdleKind,
    ) -> Balanced {
        let mut env = Env::new(self, dst, place, idle);
        host.charge(work::BALANCE_NS);
        host.count(self.counters.balanced, 1);
        let mut moved = 0;
        loop {
            if !self.should_balance(host, &env) {
                self.balanced(&env);
                return Balanced {
                    moved,
                    go_on: false,
                };
            }
            let Some(src) = self.find_busiest(host, &mut env) else {
                self.balanced(&env);
                return Balanced { moved, go_on: true };
            };
            let (now_moved, again) = self.pull(host, &mut env, src);
            moved += now_moved;
            if again {
                continue;
            }
            if moved == 0 && env.all_pinned && self.nr_running(src) > 1 {
                self.sd_mut(dst, place).failed = 0;
                self.lengthen(&env);
            } else if moved == 0 {
                self.failed(host, &mut env, src);
            } else {
                let min = self.min_interval(dst, place);
                let sd = self.sd_mut(dst, place);
                (sd.failed, sd.interval) = (0, min);
            }
            return Balanced { moved, go_on: true };
        }
    }

    pub(super) fn sd_mut(&mut self, cpu: Cpu, place: usize) -> &mut super::state::SdState {
        &mut self.cpus[cpu.index()].sds[place]
    }

    /// 6.5: the shortest interval: a millisecond per CPU of the domain.
    pub(super) fn min_interval(&self, cpu: Cpu, place: usize) -> Nanos {
        self.domains.at(cpu, place).0.weight() * super::config::MS
    }

    /// Nothing to do: the group is free of the affinity flag, and the next time is later.
    fn balanced(&mut self, env: &Env) {
        if !env.all_pinned {
            self.set_parent_imbalance(env, false);
        }
        self.sd_mut(env.dst, env.place).failed = 0;
        self.lengthen(env);
    }

    /// 6.5: interval doubled, up to twice the minimum (pinned tasks: 512 ms), when balanced or all pinned.
    /// After tasks were moved, or could not be, it is the minimum again.
    pub(super) fn lengthen(&mut self, env: &Env) {
        if env.idle == IdleKind::NewlyIdle {
            return;
        }
        let max = 2 * self.min_interval(env.dst, env.place);
        let pinned = env.all_pinned && !env.skip.is_empty();
        let sd = self.sd_mut(env.dst, env.place);
        if sd.interval < max || (pinned && sd.interval < 512 * super::config::MS) {
            sd.interval *= 2;
        }
    }

    /// The group one level up remembers that affinity kept it unbalanced.
    pub(super) fn set_parent_imbalance(&mut self, env: &Env, value: bool) {
        if let Some(step) = self.domains.chain[env.dst.index()].get(env.place + 1) {
            self.imbalanced[step.domain][step.local] = value;
        }
    }

    /// 6.5: whether `dst` is the CPU in charge of its group.
    fn should_balance(&self, host: &Host, env: &Env) -> bool {
        if env.idle == IdleKind::NewlyIdle {
            let comes = self.nr_running(env.dst) > 0 || self.cpu(env.dst).pending > 0;
            return !(comes && self.cfg.newidle_heeds_wakeups);
        }
        let (domain, step) = env.domain();
        let machine = host.machine();
        let balancers = &domain.groups[step.local].balancers;
        let mut idle_thread = None;
        for &cpu in balancers {
            if !self.is_idle(cpu) {
                continue;
            }
            // 6.6 and later: leave it to a wholly idle core, if the group has one.
            if self.cfg.idle_core_balances && !domain.share_core && self.smt {
                let siblings = machine.core_cpus(machine.cpu(cpu).core);
                if !siblings.iter().all(|&s| self.is_idle(s)) {
                    idle_thread = idle_thread.or(Some(cpu));
                    continue;
                }
            }
            return cpu == env.dst;
        }
        idle_thread.or(balancers.first().copied()) == Some(env.dst)
    }

    /// 6.5 `find_busiest_group` and `find_busiest_queue`.
    fn find_busiest(&mut self, host: &mut Host, env: &mut Env) -> Option<Cpu> {
        let picture = self.picture(host, env);
        let (index, busiest) = picture.busiest?;
        if self.is_balanced(env, &picture, index, &busiest) {
            return None;
        }
        self.compute_imbalance(env, &picture, index, &busiest);
        if env.imbalance == 0 {
            return None;
        }
        self.find_busiest_queue(env, index)
    }

    /// 6.5 `update_sd_lb_stats`.
    fn picture(&mut self, host: &mut Host, env: &Env) -> Picture {
        let (domain, step) = env.domain();
        let mut picture = Picture {
            local: GroupStats::empty(),
            busiest: None,
            total_load: 0,
            total_capacity: 0,
        };
        let (mut util, mut crowded) = (0, false);
        for index in Groups::new(domain, step).order() {
            let local = index == step.local;
            let stats = self.balance_stats(
                host,
                domain,
                (step.domain, index),
                (env.dst, env.is_idle()),
                local,
                |c| !env.skip.contains(&c),
            );
            picture.total_load += stats.load;
            picture.total_capacity += stats.capacity;
            util += stats.util;
            crowded |= stats.crowded;
            if local {
                picture.local = stats;
            } else if self.is_busier(env, &picture, index, &stats) {
                picture.busiest = Some((index, stats));
            }
        }
        let top = env.place + 1 == self.domains.chain[env.dst.index()].len();
        if top && env.skip.is_empty() {
            self.set_overload(host, crowded);
        }
        self.update_scan_budget(host, env, util);
        picture
    }

    /// The root domain's flag that some CPU has more than one task.
    pub(super) fn set_overload(&mut self, host: &mut Host, value: bool) {
        if self.overload != value {
            self.overload = value;
            host.access(self.overload_line, crate::coherence::Access::Write);
        }
    }

    /// 6.3 SIS_UTIL: at the LLC level, not for newly idle CPUs: x = util per CPU, 0 to 1024;
    /// nr_scan = weight * (1 - (x * pct)^2), which reaches 0 at 85 %.
    fn update_scan_budget(&mut self, host: &mut Host, env: &Env, util: u64) {
        let at_llc = self.domains.llc[env.dst.index()] == Some(env.place);
        let util_based = self.cfg.search == super::config::SearchBudget::Util;
        if !at_llc || !util_based || env.idle == IdleKind::NewlyIdle {
            return;
        }
        let domain = env.domain().0;
        let nr = scan_budget(domain.weight(), util, domain.pct);
        let llc = self.llc_mut(env.dst);
        if llc.nr_idle_scan != nr {
            llc.nr_idle_scan = nr;
            host.access(llc.line(), crate::coherence::Access::Write);
        }
    }

    /// 6.5 `update_sd_pick_busiest`.
    fn is_busier(&self, env: &Env, picture: &Picture, index: usize, stats: &GroupStats) -> bool {
        let domain = env.domain().0;
        let dst_capacity = self.cpu(env.dst).rq.capacity;
        let group = &domain.groups[index];
        if stats.nr_fair == 0 {
            return false;
        }
        if stats.kind == GroupType::Misfit {
            // 5.6: only a stronger CPU with time to spare helps a misfit task.
            let spare = picture.local.kind == GroupType::HasSpare;
            if !greater(dst_capacity, group.max_capacity) || !spare {
                return false;
            }
        }
        let Some((best_index, best)) = &picture.busiest else {
            return true;
        };
        if stats.kind != best.kind {
            return stats.kind > best.kind;
        }
        let weak_dst = domain.asym && greater(group.min_capacity, dst_capacity);
        match stats.kind {
            GroupType::Overloaded => stats.avg_load > best.avg_load,
            GroupType::Imbalanced => false,
            GroupType::Packing => group.priority < domain.groups[*best_index].priority,
            GroupType::Misfit => stats.misfit >= best.misfit,
            GroupType::SmtBalance if stats.idle_cpus == 0 && best.idle_cpus == 0 => false,
            GroupType::FullyBusy => false,
            GroupType::SmtBalance | GroupType::HasSpare => {
                let fewer = (stats.idle_cpus, std::cmp::Reverse(stats.nr))
                    < (best.idle_cpus, std::cmp::Reverse(best.nr));
                fewer && !weak_dst
            }
        }
    }

    /// 6.5: whether it is not worth moving anything.
    fn is_balanced(
        &self,
        env: &Env,
        picture: &Picture,
        index: usize,
        busiest: &GroupStats,
    ) -> bool {
        let (domain, local) = (env.domain().0, &picture.local);
        if matches!(
            busiest.kind,
            GroupType::Misfit | GroupType::Packing | GroupType::Imbalanced
        ) {
            return false;
        }
        if local.kind > busiest.kind {
            return true;
        }
        if local.kind == GroupType::Overloaded {
            return local.avg_load >= busiest.avg_load
                || local.avg_load >= picture.average()
                || 100 * busiest.avg_load <= domain.pct * local.avg_load;
        }
        if local.kind == GroupType::HasSpare && self.siblings_differ(env, index, local, busiest) > 1
        {
            return false;
        }
        if busiest.kind != GroupType::Overloaded {
            // 6.6 and later: who is no thread of several takes from a shared core.
            let (from, to) = (&domain.groups[index], &domain.groups[env.domain().1.local]);
            if env.is_idle() && busiest.kind == GroupType::SmtBalance && from.is_smt != to.is_smt {
                return false;
            }
            let gap = busiest.weight > 1 && local.idle_cpus <= busiest.idle_cpus + 1;
            return !env.is_idle() || gap || busiest.nr_fair == 1;
        }
        false
    }

    /// 6.5 prefer_sibling: by how many tasks the busiest of equal groups is ahead; 0 where the groups are
    /// not to be filled evenly.
    fn siblings_differ(
        &self,
        env: &Env,
        index: usize,
        local: &GroupStats,
        busiest: &GroupStats,
    ) -> u64 {
        let (domain, step) = env.domain();
        if !domain.groups[index].prefer_sibling {
            return 0;
        }
        if !self.cfg.sibling_by_core {
            return busiest.nr.saturating_sub(local.nr);
        }
        // 6.6 and later: tasks per core are what should be even.
        if !env.is_idle() || busiest.nr == 0 {
            return 0;
        }
        let cores = |i: usize| u64::from(domain.groups[i].cores);
        let (mine, theirs) = (cores(step.local), cores(index));
        if mine == theirs {
            return busiest.nr.saturating_sub(local.nr);
        }
        let raw = (mine * busiest.nr).saturating_sub(theirs * local.nr);
        let even = (2 * raw + mine + theirs) / (mine + theirs);
        if even <= 1 && local.nr == 0 && busiest.nr > 1 {
            return 2;
        }
        even
    }

    /// 6.5 `calculate_imbalance`.
    fn compute_imbalance(
        &self,
        env: &mut Env,
        picture: &Picture,
        index: usize,
        busiest: &GroupStats,
    ) {
        let domains = Arc::clone(&env.domains);
        let domain = domains.at(env.dst, env.place).0;
        let local = &picture.local;
        let (what, imbalance) = match busiest.kind {
            GroupType::Misfit if domain.asym => (Move::Misfit, 1),
            GroupType::Misfit => (Move::Load, busiest.misfit),
            GroupType::Packing => (Move::Tasks, busiest.nr_fair),
            GroupType::SmtBalance | GroupType::Imbalanced => (Move::Tasks, 1),
            _ if local.kind == GroupType::HasSpare => {
                self.spare_imbalance(env, index, local, busiest)
            }
            _ => (Move::Load, load_imbalance(picture, busiest)),
        };
        env.what = what;
        env.imbalance = imbalance as i64;
    }

    /// 6.5: the own group has time to spare.
    fn spare_imbalance(
        &self,
        env: &Env,
        index: usize,
        local: &GroupStats,
        busiest: &GroupStats,
    ) -> (Move, u64) {
        let domain = env.domain().0;
        if busiest.kind > GroupType::FullyBusy && !domain.share_llc {
            let spare = local.capacity.saturating_sub(local.util);
            // Somebody has a task too many; an idle CPU takes at least one.
            return if spare == 0 && env.is_idle() {
                (Move::Tasks, 1)
            } else {
                (Move::Util, spare)
            };
        }
        let gap = if busiest.weight == 1 {
            busiest.nr.saturating_sub(local.nr)
        } else if domain.groups[index].prefer_sibling {
            match self.cfg.sibling_by_core {
                true => self.siblings_differ(env, index, local, busiest),
                false => busiest.nr.saturating_sub(local.nr),
            }
        } else {
            local.idle_cpus.saturating_sub(busiest.idle_cpus)
        };
        if !domain.numa {
            return (Move::Tasks, gap / 2);
        }
        let counted = match self.cfg.numa_imbalance {
            true => numa_imbalance(gap, local.nr + 1, domain.imb_numa_nr),
            // 5.9: none while no more than two tasks run at the source.
            false if busiest.nr <= 2 => 0,
            false => gap,
        };
        (Move::Tasks, counted / 2)
    }

    /// 6.5 `find_busiest_queue`.
    fn find_busiest_queue(&self, env: &Env, index: usize) -> Option<Cpu> {
        let domain = env.domain().0;
        let mut best: Option<(u64, u64, Cpu)> = None; // value, per capacity, who
        for &cpu in domain.groups[index]
            .cpus
            .iter()
            .filter(|c| !env.skip.contains(c))
        {
            let rq = &self.cpu(cpu).rq;
            if rq.nr == 0 {
                continue;
            }
            let dst_capacity = self.cpu(env.dst).rq.capacity;
            if domain.asym && rq.nr == 1 && !greater(dst_capacity, rq.capacity) {
                continue;
            }
            if rq.nr == 1 && self.is_preferred_to(domain, cpu, env.dst) {
                continue;
            }
            let value = match env.what {
                // A lone task heavier than the imbalance stays.
                Move::Load if rq.nr == 1 && rq.avg.load as i64 > env.imbalance => continue,
                Move::Load => rq.avg.load,
                Move::Util if rq.nr <= 1 => continue,
                Move::Util => rq.util(),
                Move::Tasks => u64::from(rq.nr),
                Move::Misfit => self.cpu(cpu).misfit,
            };
            let capacity = if env.what == Move::Load {
                rq.capacity
            } else {
                1
            };
            let wins = match best {
                None => value > 0,
                Some((most, per, _)) => value * per > most * capacity,
            };
            if wins {
                best = Some((value, capacity, cpu));
            }
        }
        best.map(|(_, _, cpu)| cpu)
    }

    /// Counts tasks that were pulled over a domain of this level.
    pub(super) fn count_pulls(&self, host: &mut Host, level: Level, n: u32) {
        let index = match level {
            Level::Smt => 0,
            Level::Cluster => 1,
            Level::Mc => 2,
            Level::Pkg => 3,
            Level::Numa(_) => 4,
        };
        host.count(self.counters.pulled[index], u64::from(n));
    }
}

/// 5.6: whether a capacity is noticeably greater.
pub(super) fn greater(a: u64, b: u64) -> bool {
    a * 1024 > b * 1078
}

/// 6.3 SIS_UTIL, in the kernel's integers.
pub(super) fn scan_budget(weight: u64, util: u64, pct: u64) -> u64 {
    // Below 1024 / 85 % the square times pct^2 stays within 1024.
    let x = util / weight;
    let square = x * x * pct * pct / (10_000 * 1024);
    let y = 1024 - square.min(1024);
    y * weight / 1024
}

/// 6.5: the own group is busy itself: both should meet at the average.
fn load_imbalance(picture: &Picture, busiest: &GroupStats) -> u64 {
    let (local, average) = (&picture.local, picture.average());
    let mine = local.average_load();
    if mine >= busiest.avg_load || mine >= average {
        return 0;
    }
    let above = busiest.avg_load.saturating_sub(average) * busiest.capacity;
    let below = (average - mine) * local.capacity;
    above.min(below) / 1024
}
