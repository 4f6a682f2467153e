// SPDX-License-Identifier: GPL-2.0-only
//! When the 3.9 balancer runs, and how it moves tasks: `load_balance()` and its callers.

use super::group::{
    find_busiest_group, find_busiest_queue, group_stats, CpuView, Env, GroupStats, Idle,
};
use super::{Cfs39, BALANCE_CPU_NS, MIGRATION_COST_NS};
use crate::coherence::Access;
use crate::host::Host;
use crate::ids::{Cpu, TaskId};

/// `sysctl_sched_nr_migrate`.
const NR_MIGRATE: usize = 32;
/// `MAX_PINNED_INTERVAL`, ms.
const MAX_PINNED_INTERVAL: u64 = 512;

/// What one attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Another CPU of the group does the balancing at this level and above.
    NotMine,
    Balanced,
    Moved,
    /// There is an imbalance, but nothing could be moved; `active`: a stopper has been asked for.
    Failed {
        active: bool,
    },
    /// All tasks that could help are pinned.
    AllPinned,
}

impl Cfs39 {
    // ---- callers ----

    /// `rebalance_domains()`: the levels of a CPU that are due.
    pub(super) fn rebalance(&mut self, host: &mut Host, cpu: Cpu, idle: Idle) {
        let jiffies = Self::jiffies(host);
        let tick_ns = host.machine().tick_ns();
        let second = 1_000_000_000 / tick_ns;
        let most = second * host.machine().cpus().len() as u64 / 10;
        let mut idle = idle;
        let mut next = jiffies + 60 * second;
        for level in 0..self.domains[cpu.0 as usize].len() {
            let domain = &self.domains[cpu.0 as usize][level];
            let interval = domain.interval_ticks(idle, tick_ns, most);
            let mut mine = true;
            if jiffies >= domain.balanced_at + interval {
                let outcome = self.load_balance(host, cpu, level, idle);
                mine = outcome != Outcome::NotMine;
                if outcome == Outcome::Moved {
                    idle = if self.is_idle_cpu(host, cpu) {
                        Idle::Yes
                    } else {
                        Idle::Not
                    };
                }
                self.domains[cpu.0 as usize][level].balanced_at = jiffies;
            }
            next = next.min(self.domains[cpu.0 as usize][level].balanced_at + interval);
            if !mine {
                break;
            }
        }
        self.rq(cpu).next_balance = next;
    }

    /// `idle_balance()`: a CPU is about to go idle. Not if it usually idles for less than a migration
    /// costs.
    pub(super) fn newidle_balance(&mut self, host: &mut Host, cpu: Cpu) {
        let now = host.now();
        let rq = self.rq(cpu);
        rq.idle_since.get_or_insert(now);
        if rq.avg_idle < MIGRATION_COST_NS {
            return;
        }
        self.picking = true;
        let levels = 0..self.domains[cpu.0 as usize].len();
        let moved = levels
            .into_iter()
            .any(|level| self.load_balance(host, cpu, level, Idle::Newly) == Outcome::Moved);
        self.picking = false;
        if moved {
            host.count(self.stats.newidle_moved, 1);
            self.rq(cpu).idle_since = None;
        }
    }

    /// A busy tick: the CPU is no longer one of those whose tick is stopped, and if it has too much it
    /// wakes one of those to balance for them.
    pub(super) fn nohz_tick(&mut self, host: &mut Host, cpu: Cpu) {
        self.nohz.idle.remove(cpu);
        let jiffies = Self::jiffies(host);
        if jiffies < self.nohz.next_balance || !self.wants_kick(host, cpu) {
            return;
        }
        let Some(helper) = self.nohz.idle.first() else {
            return;
        };
        self.nohz.next_balance += 1;
        if !self.is_idle_cpu(host, helper) || std::mem::replace(&mut self.rq(helper).kicked, true) {
            return;
        }
        host.count(self.stats.kicks, 1);
        host.send_ipi(helper, 0);
    }

    /// `nohz_kick_needed()`: two tasks here, or two busy CPUs in a group that shares a cache; patch 1: a
    /// load beyond what the CPU can carry.
    fn wants_kick(&self, _host: &Host, cpu: Cpu) -> bool {
        let rq = &self.rqs[cpu.0 as usize];
        if rq.rq.nr >= 2 {
            return true;
        }
        if self.options.patches && rq.load.runnable > self.powers[cpu.0 as usize] {
            return true;
        }
        let busy = |c: &&Cpu| !self.nohz.idle.contains(**c);
        let mut shared = self.domains[cpu.0 as usize]
            .iter()
            .take_while(|d| d.shares_cache());
        shared.any(|d| d.groups[0].cpus.iter().filter(busy).count() > 1)
    }

    /// `nohz_idle_balance()`: an idle CPU has been kicked: it balances for itself and for all others
    /// whose tick is stopped.
    pub(super) fn nohz_balance(&mut self, host: &mut Host, cpu: Cpu) {
        self.rq(cpu).kicked = false;
        if !self.is_idle_cpu(host, cpu) {
            return;
        }
        self.rebalance(host, cpu, Idle::Yes);
        let others: Vec<Cpu> = self.nohz.idle.iter().filter(|&c| c != cpu).collect();
        for other in others {
            if host.needs_resched(cpu) {
                break;
            }
            if self.is_idle_cpu(host, other) {
                let (jiffies, load) = (Self::jiffies(host), self.cpu_load(other));
                self.rq(other).load.tick(jiffies, load);
                self.rebalance(host, other, Idle::Yes);
                let next = self.rq(other).next_balance;
                self.rq(cpu).next_balance = self.rq(cpu).next_balance.min(next);
            }
        }
        self.nohz.next_balance = self.rq(cpu).next_balance;
    }

    // ---- one attempt ----

    fn view(&self, host: &Host, cpu: Cpu, index: usize, local: bool) -> CpuView {
        let rq = &self.rqs[cpu.0 as usize];
        let load = self.cpu_load(cpu);
        CpuView {
            power: self.powers[cpu.0 as usize],
            biased: if local {
                rq.load.target(index, load)
            } else {
                rq.load.source(index, load)
            },
            load,
            runnable: rq.load.runnable,
            nr: u64::from(rq.rq.nr),
            idle: self.is_idle_cpu(host, cpu),
        }
    }

    /// The first idle CPU of the local group balances, or its first CPU; about to idle, everybody.
    fn should_balance(&self, host: &Host, cpu: Cpu, level: usize, idle: Idle) -> bool {
        let group = &self.domains[cpu.0 as usize][level].groups[0].cpus;
        let first_idle = group.iter().find(|&&c| self.is_idle_cpu(host, c));
        idle == Idle::Newly || first_idle.or(group.first()) == Some(&cpu)
    }

    /// `load_balance()`: tries to move load to `dst` at one of its levels.
    fn load_balance(&mut self, host: &mut Host, dst: Cpu, level: usize, idle: Idle) -> Outcome {
        if !self.should_balance(host, dst, level, idle) {
            return Outcome::NotMine;
        }
        let outcome = self.attempt(host, dst, level, idle);
        let domain = &mut self.domains[dst.0 as usize][level];
        let may_grow = domain.interval < domain.max_interval;
        match outcome {
            Outcome::NotMine => {}
            Outcome::Moved => {
                domain.failed = 0;
                domain.interval = domain.min_interval;
            }
            Outcome::Failed { active: false } => domain.interval = domain.min_interval,
            Outcome::Failed { active: true } if may_grow => domain.interval *= 2,
            Outcome::Failed { active: true } => {}
            Outcome::Balanced => {
                domain.failed = 0;
                if may_grow {
                    domain.interval *= 2;
                }
            }
            Outcome::AllPinned => {
                if may_grow || domain.interval < MAX_PINNED_INTERVAL {
                    domain.interval *= 2;
                }
            }
        }
        outcome
    }

    fn attempt(&mut self, host: &mut Host, dst: Cpu, level: usize, idle: Idle) -> Outcome {
        let domain = &self.domains[dst.0 as usize][level];
        let index = domain.load_index(idle);
        let env = Env {
            idle,
            pct: domain.pct(),
            dst: self.view(host, dst, index, true),
            patches: self.options.patches,
            prefer_sibling: domain.child_prefers_sibling,
            share_power: domain.shares_power(),
        };
        let groups: Vec<Vec<Cpu>> = domain.groups.iter().map(|g| g.cpus.clone()).collect();
        for &cpu in groups.iter().flatten() {
            host.charge(BALANCE_CPU_NS);
            host.scan(self.rqs[cpu.0 as usize].line);
        }
        let mut pinned: Vec<Cpu> = Vec::new();
        // Each repetition leaves out one more CPU whose tasks are all pinned.
        loop {
            let look = |group: &Vec<Cpu>, local| -> Vec<CpuView> {
                let cpus = group.iter().filter(|c| !pinned.contains(c));
                cpus.map(|&c| self.view(host, c, index, local)).collect()
            };
            let views: Vec<Vec<CpuView>> = groups
                .iter()
                .enumerate()
                .map(|(i, g)| look(g, i == 0))
                .collect();
            let powers = self.domains[dst.0 as usize][level]
                .groups
                .iter()
                .map(|g| g.power);
            let stats: Vec<GroupStats> = views
                .iter()
                .zip(powers)
                .enumerate()
                .map(|(i, (v, power))| group_stats(&env, v, power, i == 0))
                .collect();
            let Some(found) = find_busiest_group(&env, &stats) else {
                return Outcome::Balanced;
            };
            let group = &views[found.group];
            let Some(place) = find_busiest_queue(&env, group, found.imbalance) else {
                return Outcome::Balanced;
            };
            let mut left = groups[found.group].iter().filter(|c| !pinned.contains(c));
            let src = *left.nth(place).expect("a CPU of the group");
            let (moved, all_pinned) = match group[place].nr {
                0 | 1 => (0, false),
                _ => self.move_tasks(host, src, dst, level, idle, found.imbalance),
            };
            if all_pinned {
                pinned.push(src);
                continue;
            }
            if moved > 0 {
                host.count(self.stats.moved, moved);
                return Outcome::Moved;
            }
            return self.nothing_moved(host, &env, src, dst, level, &group[place]);
        }
    }

    /// Nothing moved in spite of an imbalance: after some failures, or if the destination is markedly
    /// stronger (patch 1), the running task is pushed away.
    fn nothing_moved(
        &mut self,
        host: &mut Host,
        env: &Env,
        src: Cpu,
        dst: Cpu,
        level: usize,
        view: &CpuView,
    ) -> Outcome {
        let domain = &mut self.domains[dst.0 as usize][level];
        // Attempts before going idle are frequent and do not count.
        domain.failed += u64::from(env.idle != Idle::Newly);
        let forced = env.patches && env.is_upward(view);
        if domain.failed <= domain.nice_tries() + 2 && !forced {
            return Outcome::Failed { active: false };
        }
        let curr = self.rqs[src.0 as usize].rq.curr;
        if curr.is_some_and(|task| !host.task(task).may_run_on(dst)) {
            return Outcome::AllPinned;
        }
        let active = self.rq(src).push_to.is_none();
        if active {
            self.rq(src).push_to = Some(dst);
            host.count(self.stats.active, 1);
            host.stop_cpu(src, 0);
        }
        let domain = &mut self.domains[dst.0 as usize][level];
        domain.failed = domain.nice_tries() + 1;
        Outcome::Failed { active }
    }

    /// `move_tasks()`: up to `imbalance` of load, from the front of the source's list. Returns how many
    /// moved, and whether none of those seen may run on `dst`.
    fn move_tasks(
        &mut self,
        host: &mut Host,
        src: Cpu,
        dst: Cpu,
        level: usize,
        idle: Idle,
        imbalance: u64,
    ) -> (u64, bool) {
        let lines = (self.rq(src).line, self.rq(dst).line);
        let at = host.lock(lines.0);
        host.access(lines.1, Access::Rmw);
        let rounds = self.rq(src).order.len().min(NR_MIGRATE);
        let mut left = imbalance as i64;
        let (mut moved, mut all_pinned) = (0, true);
        for _ in 0..rounds {
            if left <= 0 {
                break;
            }
            let task = *self.rq(src).order.front().expect("as many as counted");
            all_pinned &= !host.task(task).may_run_on(dst);
            let load = self.task_load(task);
            let fits = load / 2 <= left as u64;
            // Patch 2: an idle CPU takes a task however large it is.
            let fits = fits || (self.options.patches && idle != Idle::Not);
            if fits && self.can_migrate(host, task, src, dst, level) {
                self.move_task(host, task, src, dst);
                moved += 1;
                left -= load as i64;
                if idle == Idle::Newly {
                    break;
                }
            } else {
                self.rq(src).order.rotate_left(1);
            }
        }
        host.unlock(lines.0, at);
        (moved, all_pinned)
    }

    /// `can_migrate_task()`: allowed there, not running, and not cache hot unless attempts have failed.
    fn can_migrate(&self, host: &Host, task: TaskId, src: Cpu, dst: Cpu, level: usize) -> bool {
        let rq = &self.rqs[src.0 as usize].rq;
        if !host.task(task).may_run_on(dst) || rq.curr == Some(task) {
            return false;
        }
        let domain = &self.domains[dst.0 as usize][level];
        let buddy = rq.next_buddy == Some(task) || rq.last_buddy == Some(task);
        let ran = host
            .now()
            .saturating_sub(self.tasks[task.index()].exec_start);
        let hot = (buddy && self.rqs[dst.0 as usize].rq.nr > 0) || ran < MIGRATION_COST_NS;
        !hot || domain.failed > domain.nice_tries()
    }

    fn move_task(&mut self, host: &mut Host, task: TaskId, src: Cpu, dst: Cpu) {
        debug_assert_eq!(self.tasks[task.index()].cpu, src);
        self.leave(host, task, false);
        host.set_task_cpu(task, dst);
        self.join(host, task, dst, false);
        // A CPU that balances because it is about to idle picks next anyway.
        if !self.picking {
            self.check_preempt(host, task, dst);
        }
    }

    /// `active_load_balance_cpu_stop()`: on the busiest CPU, whose task has been put back: one task goes
    /// to the CPU that asked.
    pub(super) fn push_running(&mut self, host: &mut Host, src: Cpu) {
        let Some(dst) = self.rq(src).push_to.take() else {
            return;
        };
        let domains = &self.domains[dst.0 as usize];
        let Some(level) = domains.iter().position(|d| d.span.contains(src)) else {
            return;
        };
        let candidates: Vec<TaskId> = self.rq(src).order.iter().copied().collect();
        let found = candidates
            .into_iter()
            .find(|&t| self.can_migrate(host, t, src, dst, level));
        if let Some(task) = found {
            host.count(self.stats.moved, 1);
            self.move_task(host, task, src, dst);
        }
    }
}
