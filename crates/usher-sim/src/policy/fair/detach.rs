// SPDX-License-Identifier: GPL-2.0-only
//! 6.5: moving tasks from one run queue to another, and pushing a running one away.

use super::balance::{greater, Env, IdleKind, Move};
use super::eevdf::Join;
use super::state::{work, Fair};
use crate::coherence::Access;
use crate::host::Host;
use crate::ids::{Cpu, Id, TaskId};
use crate::program::Hint;

impl Fair {
    /// Moves what it can from `src`. Returns how many tasks, and whether to look for another source.
    pub(super) fn pull(&mut self, host: &mut Host, env: &mut Env, src: Cpu) -> (u32, bool) {
        if self.nr_running(src) <= 1 {
            env.all_pinned = false;
            return (0, false);
        }
        env.all_pinned = true;
        let mut moved = self.detach_tasks(host, env, src);
        // A pinned task may use another CPU of the group.
        if let (Some(other), true) = (env.other_dst.take(), env.imbalance > 0) {
            let home = std::mem::replace(&mut env.dst, other);
            moved += self.detach_tasks(host, env, src);
            env.dst = home;
        }
        if env.some_pinned && env.imbalance > 0 {
            self.set_parent_imbalance(env, true);
        }
        if !env.all_pinned {
            return (moved, false);
        }
        env.skip.push(src);
        let (domain, step) = env.domain();
        let own = &domain.groups[step.local].set;
        let left = domain
            .cpus
            .iter()
            .any(|c| !own.contains(*c) && !env.skip.contains(c));
        (moved, left && moved == 0)
    }

    /// 6.5 `detach_tasks` and `attach_tasks`: from the cold end, at most 32.
    fn detach_tasks(&mut self, host: &mut Host, env: &mut Env, src: Cpu) -> u32 {
        let taken = host.lock(self.cpu(src).rq_line);
        let mut tries = self.cfg.nr_migrate.min(self.nr_running(src));
        let mut picked = Vec::new();
        while tries > 0 && env.imbalance > 0 {
            // An idle CPU does not take the last one: it would be in the same position.
            if env.is_idle() && self.nr_running(src) <= 1 {
                break;
            }
            let Some(task) = self.cpu(src).rq.coldest() else {
                break;
            };
            tries -= 1;
            host.charge(work::STAT_NS);
            if !self.can_migrate(host, env, task, src) || !self.wanted(env, task, src) {
                let Fair { cpus, tasks, .. } = self;
                cpus[src.index()].rq.touch(tasks, task);
                continue;
            }
            self.take_waiting(host, task, src);
            picked.push(task);
            if env.idle == IdleKind::NewlyIdle && self.cfg.newidle_takes_one {
                break;
            }
        }
        host.unlock(self.cpu(src).rq_line, taken);
        if picked.is_empty() {
            return 0;
        }
        self.count_pulls(host, env.domain().0.level, picked.len() as u32);
        let taken = host.lock(self.cpu(env.dst).rq_line);
        for &task in &picked {
            self.give_waiting(host, task, env.dst);
        }
        host.unlock(self.cpu(env.dst).rq_line, taken);
        picked.len() as u32
    }

    /// 6.5: filters by how much the task weighs; takes it off the imbalance if it passes.
    pub(super) fn wanted(&self, env: &mut Env, task: TaskId, src: Cpu) -> bool {
        let failed = self.cpu(env.dst).sds[env.place].failed.min(63);
        let task = self.task(task);
        let (value, shift) = match env.what {
            Move::Load => (task.avg.load.max(1), failed),
            Move::Util if self.cfg.failures_shrink_util => (task.util_est(), failed),
            Move::Util => (task.util_est(), 0),
            Move::Tasks => {
                env.imbalance -= 1;
                return true;
            }
            Move::Misfit => {
                // Not a task that is fine where it is.
                if self.fits(task.util_est(), src) {
                    return false;
                }
                env.imbalance = 0;
                return true;
            }
        };
        if (value >> shift) as i64 > env.imbalance {
            return false;
        }
        env.imbalance -= value as i64;
        true
    }

    /// 6.5 `can_migrate_task`.
    fn can_migrate(&mut self, host: &mut Host, env: &mut Env, task: TaskId, src: Cpu) -> bool {
        let allowed = host.task(task).allowed();
        if !allowed.contains(env.dst) {
            env.some_pinned = true;
            let (domain, step) = env.domain();
            let other = domain.groups[step.local]
                .cpus
                .iter()
                .find(|c| allowed.contains(**c))
                .copied();
            if env.idle != IdleKind::NewlyIdle && !env.active && env.other_dst.is_none() {
                env.other_dst = other;
            }
            if other.is_some() && env.idle != IdleKind::NewlyIdle {
                env.all_pinned = false;
            }
            return false;
        }
        env.all_pinned = false;
        if self.cpu(src).rq.curr == Some(task) || self.task(task).delayed {
            return false;
        }
        if self.hint_forbids(host, env, task, src) {
            return false;
        }
        if env.active {
            return true;
        }
        let domain = env.domain().0;
        let hot = !domain.share_core && self.is_hot(host, task, src, env.dst);
        !hot || self.cpu(env.dst).sds[env.place].failed > domain.cache_nice_tries
    }

    /// 6.5: cache-hot: ran less than 0.5 ms ago, or about to run on a queue that is not empty there.
    fn is_hot(&self, host: &Host, task: TaskId, src: Cpu, dst: Cpu) -> bool {
        let (me, rq) = (self.task(task), &self.cpu(src).rq);
        if me.is_idle_policy() {
            return false;
        }
        let buddy = rq.next_buddy == Some(task) || rq.last_buddy == Some(task);
        if buddy && self.nr_running(dst) > 0 {
            return true;
        }
        host.now().saturating_sub(me.exec_start) < self.cfg.migration_cost_ns
    }

    /// 2.4: above the LLC, a task with a wake hint stays while its LLC has no more tasks than CPUs; the
    /// stopper never takes one.
    fn hint_forbids(&mut self, host: &mut Host, env: &Env, task: TaskId, src: Cpu) -> bool {
        let hint = host.task(task).hint();
        let hinted = hint.has(Hint::WAKE_AFFINE) || hint.has(Hint::WAKE_HOLD);
        if !self.cfg.hints.balance || !hinted || env.domain().0.share_llc {
            return false;
        }
        let llc = &self.llc(src).cpus;
        let running = |cpu: Cpu| self.nr_running(cpu) - self.cpu(cpu).rq.nr_idle_policy;
        let forbids = env.active || llc.iter().map(running).sum::<u32>() <= llc.len() as u32;
        if forbids {
            host.count(self.counters.hint_veto, 1);
        }
        forbids
    }

    /// Takes a waiting task off a queue, to go to another one.
    pub(super) fn take_waiting(&mut self, host: &mut Host, task: TaskId, src: Cpu) {
        host.charge(work::QUEUE_NS);
        self.account_and_resched(host, src);
        self.leave(host, task, src, false);
        self.detach_avg(host, task, src);
        host.access(self.cpu(src).load_line, Access::Write);
    }

    /// Puts it on that queue. It runs there at once if it should.
    pub(super) fn give_waiting(&mut self, host: &mut Host, task: TaskId, dst: Cpu) {
        host.charge(work::QUEUE_NS);
        host.set_task_cpu(task, dst);
        self.join(host, task, dst, Join::Move);
        self.check_preempt(host, task, dst);
    }

    // ---- a balancing that moved nothing ----

    /// 6.5: counts the failure, and pushes the running task away if it has been enough of them.
    pub(super) fn failed(&mut self, host: &mut Host, env: &mut Env, src: Cpu) {
        if env.idle != IdleKind::NewlyIdle && env.what != Move::Misfit {
            self.sd_mut(env.dst, env.place).failed += 1;
        }
        let min = self.min_interval(env.dst, env.place);
        if !self.needs_active(env, src) {
            self.sd_mut(env.dst, env.place).interval = min;
            return;
        }
        let curr = self.cpu(src).rq.curr;
        if !curr.is_some_and(|c| host.task(c).may_run_on(env.dst)) {
            self.lengthen(env);
            return;
        }
        let tries = env.domain().0.cache_nice_tries;
        let back_off = self.cfg.active_any;
        let sd = self.sd_mut(env.dst, env.place);
        sd.failed = tries + 1;
        if env.what == Move::Misfit {
            sd.interval = min;
        } else if back_off && sd.interval < 2 * min {
            sd.interval *= 2;
        }
        if self.cpu(src).push_to.is_none() {
            self.cpu_mut(src).push_to = Some(env.dst);
            host.count(self.counters.active, 1);
            host.stop_cpu(src, 0);
        }
    }

    /// 6.5 `need_active_balance`.
    fn needs_active(&self, env: &Env, src: Cpu) -> bool {
        if env.what == Move::Misfit {
            return true;
        }
        let (domain, sd) = (env.domain().0, &self.cpu(env.dst).sds[env.place]);
        if env.is_idle() && self.packs_running(domain, env.dst, src) {
            return true;
        }
        let kind = self.cfg.active_any || env.what == Move::Tasks;
        kind && sd.failed > domain.cache_nice_tries + 2 && self.cpu(src).rq.nr > 0
    }

    /// 6.5 `active_load_balance_cpu_stop`: the stopper has put the running task back, where it can be taken.
    pub(super) fn active_balance(&mut self, host: &mut Host, src: Cpu) {
        let Some(dst) = self.cpu_mut(src).push_to.take() else {
            return;
        };
        if self.nr_running(src) == 0 {
            return;
        }
        let chain = &self.domains.chain[dst.index()];
        let place = (0..chain.len()).find(|&p| self.domains.at(dst, p).0.set.contains(src));
        let Some(place) = place else { return };
        let mut env = Env::new(self, dst, place, IdleKind::Idle);
        (env.active, env.what, env.imbalance) = (true, Move::Tasks, 1);
        let mut tries = self.cpu(src).rq.nr.min(self.cfg.nr_migrate);
        while let (Some(task), true) = (self.cpu(src).rq.coldest(), tries > 0) {
            tries -= 1;
            if self.can_migrate(host, &mut env, task, src) {
                self.take_waiting(host, task, src);
                self.count_pulls(host, env.domain().0.level, 1);
                self.sd_mut(dst, place).failed = 0;
                self.give_waiting(host, task, dst);
                return;
            }
            let Fair { cpus, tasks, .. } = self;
            cpus[src.index()].rq.touch(tasks, task);
        }
    }

    /// 5.6: notes whether the task that a CPU runs wants a stronger one.
    pub(super) fn update_misfit(&mut self, host: &Host, cpu: Cpu) {
        if !self.asym {
            return;
        }
        let misfit = match self.cpu(cpu).rq.curr {
            Some(curr) if host.task(curr).nr_allowed() > 1 => {
                let task = self.task(curr);
                let strongest = host
                    .task(curr)
                    .allowed()
                    .iter()
                    .filter(|c| c.index() < self.cpus.len());
                let most = strongest
                    .map(|c| self.cpu(c).rq.capacity)
                    .max()
                    .unwrap_or(0);
                let small = self.cpu(cpu).rq.capacity < most;
                if small && !self.fits(task.util_est(), cpu) {
                    task.avg.load.max(1)
                } else {
                    0
                }
            }
            _ => 0,
        };
        self.cpu_mut(cpu).misfit = misfit;
    }

    /// 5.6: a CPU noticeably stronger than this one is idle (defect 37 of the 3.9 patches: no kicks in vain).
    pub(super) fn stronger_exists(&self, cpu: Cpu) -> bool {
        let mine = self.cpu(cpu).rq.capacity;
        self.domains.asym[cpu.index()].is_some_and(|place| {
            let domain = self.domains.at(cpu, place).0;
            domain
                .cpus
                .iter()
                .any(|&c| greater(self.cpu(c).rq.capacity, mine))
        })
    }
}
