// SPDX-License-Identifier: GPL-2.0-only
//! Checkers: rules that must hold in every run.
//!
//! Some are checked where things happen (a picked task is queued and allowed there, see `sched.rs`); the
//! others here, once a simulated millisecond and at the end.

use crate::error::SimError;
use crate::event::Kind;
use crate::ids::{Cpu, Id, Nanos, TaskId};
use crate::params::format_duration;
use crate::state::Phase;
use crate::task::State;
use crate::Simulation;

/// State of the periodic checks.
#[derive(Debug, Default)]
pub(crate) struct Checker;

impl Checker {
    pub const PERIOD_NS: Nanos = 1_000_000;
}

impl Simulation {
    pub(crate) fn on_check(&mut self) {
        let cpu = self.host.machine.cpus()[0];
        self.host
            .push(self.host.now + Checker::PERIOD_NS, Kind::Check, cpu, 0);
        if self.host.queued > 0 {
            self.check_waiting();
        }
    }

    /// No task waits longer than the policy says, and none beside a CPU that idles longer than it says.
    fn check_waiting(&mut self) {
        let idle: Vec<Cpu> = self
            .host
            .machine
            .cpus()
            .iter()
            .copied()
            .filter(|&c| self.is_at_rest(c))
            .collect();
        let now = self.host.now;
        let lost_after = self.policy.wait_bound_ns();
        let mut broken = None;
        let queued = self.host.tasks.iter().filter(|t| t.state == State::Queued);
        let mut seen = 0;
        for task in queued {
            seen += 1;
            let waited = now.saturating_sub(task.queued_at);
            if let Some(bound) = lost_after.filter(|bound| waited > *bound) {
                let what = format!(
                    "{} has waited for {waited} ns, longer than the {} that this policy may keep anybody waiting",
                    describe(task),
                    format_duration(bound)
                );
                broken = Some((task.cpu, what));
                break;
            }
            if let Some(found) = self.idle_beside(task.id, &idle) {
                broken = Some(found);
                break;
            }
        }
        if broken.is_none() && seen != self.host.queued {
            let what = format!(
                "{} tasks are queued, but {seen} were found",
                self.host.queued
            );
            broken = Some((Cpu(0), what));
        }
        if let Some((cpu, what)) = broken {
            let policy = self.policy.name();
            self.fail_rule(cpu, format!("policy {policy}: {what}"));
        }
    }

    fn idle_beside(&self, task: TaskId, idle: &[Cpu]) -> Option<(Cpu, String)> {
        let t = self.host.task(task);
        for &cpu in idle.iter().filter(|&&c| t.may_run_on(c)) {
            let waits_since = match self.host.machine.same_llc(t.cpu, cpu) {
                true => t.waits_here_since,
                false => t.queued_at,
            };
            let since = waits_since.max(self.host.cpus[cpu.index()].idle_since);
            let both = self.host.now.saturating_sub(since);
            let bound = self.policy.idle_bound_ns(&self.host, task, cpu);
            if bound.is_some_and(|bound| both > bound) {
                let what = format!("idles for {both} ns while {} waits in a queue", describe(t));
                return Some((cpu, what));
            }
        }
        None
    }

    /// Idle, and nothing on its way to change that.
    fn is_at_rest(&self, cpu: Cpu) -> bool {
        let c = &self.host.cpus[cpu.index()];
        c.phase == Phase::Idle && !c.need_resched && c.wake_list.is_empty()
    }

    /// The time of all CPUs adds up, and so does the work of all tasks.
    pub(crate) fn check_conservation(&mut self) {
        let stats = &self.host.stats;
        let cpu = self.host.machine.cpus()[0];
        let sum = stats.user_ns + stats.kernel_ns + stats.idle_ns + stats.exiting_ns;
        let all = (self.host.now - stats.since) * self.host.machine.cpus().len() as u64;
        if sum != all {
            self.fail_rule(
                cpu,
                format!("the time of all CPUs is {all} ns, but {sum} ns are booked"),
            );
        }
        let wrong = self
            .host
            .tasks
            .iter()
            .find(|t| t.work_done + t.work_left != t.work_asked);
        if let Some(task) = wrong {
            let what = format!(
                "{}: work asked {}, done {}, left {}",
                describe(task),
                task.work_asked,
                task.work_done,
                task.work_left
            );
            self.fail_rule(cpu, what);
        }
        let (mut running, mut queued, mut live) = (0, 0, 0);
        for task in &self.host.tasks {
            running += usize::from(task.state == State::Running);
            queued += usize::from(task.state == State::Queued);
            live += usize::from(task.state != State::Dead);
        }
        let current = self.host.cpus.iter().filter(|c| c.curr.is_some()).count();
        if running != current || queued != self.host.queued || live != self.host.live {
            let what = format!(
                "{running} tasks run on {current} CPUs, {queued} of {} are queued, {live} of {} live",
                self.host.queued, self.host.live
            );
            self.fail_rule(cpu, what);
        }
    }

    /// Nothing will ever happen again.
    pub(crate) fn fail_deadlock(&mut self) {
        const SHOWN: usize = 20;
        let live = self.host.tasks.iter().filter(|t| t.state != State::Dead);
        let ids: Vec<TaskId> = live.map(|t| t.id).collect();
        let mut waiting: Vec<String> = ids
            .iter()
            .take(SHOWN)
            .map(|&t| self.host.describe_wait(t))
            .collect();
        if ids.len() > SHOWN {
            waiting.push(format!("... and {} more", ids.len() - SHOWN));
        }
        self.fail(SimError::Deadlock {
            at: self.host.now,
            waiting,
        });
    }
}

fn describe(task: &crate::task::Task) -> String {
    format!("task {} `{}` on cpu {}", task.id, task.name, task.cpu)
}
