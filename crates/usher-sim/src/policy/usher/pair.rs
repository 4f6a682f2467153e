// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that wake each other in turn: the host's part of `core/src/pair.c`, as in `bpf/hand.bpf.h`.

use usher_core::{Core, Gives, Hints, Pair, Reason, Request};

use super::{name, scx_weight, Decided, Place, Usher, CALLBACK_NS, PLACE_NS, STORAGE_NS};
use crate::ids::{Cpu, Id, TaskId};
use crate::policy::{Host, Placement};
use crate::program::Class;

impl Usher {
    /// A task is born.
    pub(super) fn pair_born(&mut self, task: TaskId) {
        if self.pairs.len() <= task.index() {
            self.pairs.resize(task.index() + 1, Pair::default());
        }
        self.pairs[task.index()] = Pair::default();
    }

    /// A task is woken by the current one, which says that it is about to sleep: where that one gives way to it, at once, waiting
    /// where it was interrupted until the other sleeps, or when it sleeps itself.
    pub(super) fn gives_way(
        &mut self,
        host: &mut Host,
        request: &Request,
        task: TaskId,
    ) -> Option<Placement> {
        let (by, cid, now) = (host.this_cpu(), request.waker, host.now());
        let waker = host.curr(by).filter(|_| self.settings.cpupri)?;
        let mut asks = self.pairs[waker.index()];
        let paused = host.task(waker).switches();
        let sure = |core: &mut Core| core.pair_asks(cid, &mut asks, name(task), paused, now);
        let sure = self.call(host, STORAGE_NS, sure);
        self.pairs[waker.index()] = asks;
        if !sure {
            return None;
        }
        host.charge(STORAGE_NS);
        let queue = self.at[by.index()].queue;
        let answers = self.pairs[task.index()];
        if !answers.answers(name(waker)) {
            return None;
        }
        let apart = |core: &mut Core| core.pair_apart(cid, &mut asks, &answers, request.prev);
        let apart = self.call(host, 0, apart);
        self.pairs[waker.index()] = asks;
        let llc_of = |cpu| host.machine().cpu(cpu).llc;
        if apart
            || (request.hints.has(Hints::WAKE_HOLD)
                && llc_of(self.cpus[request.prev.index()]) != llc_of(by))
            || !self.at[by.index()].own.is_empty()
            || matches!(host.task(task).class(), Class::Batch { .. })
            || !host.task(task).may_run_on(by)
        {
            return None;
        }
        let (vtime, weight) = (self.tasks[task.index()].vtime, scx_weight(host, task));
        let first = self.queues[queue.index()].tasks.first_key_value();
        let first = first.map(|(&(first, _), _)| first);
        let joins = self.call(host, CALLBACK_NS, |core| core.vtime_enter(vtime, queue));
        let gives = |core: &mut Core| match core.enough(cid, request.demand) {
            true => core.pair_gives_way(cid, &mut asks, joins, now, weight, first),
            false => Gives::Not,
        };
        let (mut cpu, mut reason) = (by, Reason::Partner);
        let decided = match self.call(host, 0, gives) {
            Gives::Not => return None,
            Gives::Now => {
                self.pairs[waker.index()] = asks;
                self.tasks[waker.index()].place = Place::GivesWay;
                Decided::InTurn(by)
            }
            Gives::Later => {
                let beside = self.call(host, PLACE_NS, |core| core.pair_beside(request));
                self.pair_woke(host);
                (cpu, reason) = (self.cpus[beside.cid.index()], beside.reason);
                match beside.claimed {
                    true => Decided::Claimed(cpu),
                    false => Decided::Behind(cpu),
                }
            }
            Gives::Behind => {
                self.pair_woke(host);
                Decided::Behind(by)
            }
        };
        self.tasks[task.index()].vtime = joins;
        self.tasks[task.index()].decided = decided;
        Some(Placement {
            cpu,
            reason: reason.index() as u16,
        })
    }

    /// The current task has woken another, about to sleep itself, and has not given way.
    pub(super) fn pair_woke(&mut self, host: &mut Host) {
        let (cid, now) = (self.cid(host.this_cpu()), host.now());
        self.call(host, 0, |core| core.pair_woke(cid, now));
    }

    /// A task stops on a CPU, to sleep.
    pub(super) fn pair_sleeps(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        let (cid, now) = (self.cid(cpu), host.now());
        if !self.call(host, 0, |core| core.pair_asked(cid)) {
            return;
        }
        let mut asks = self.pairs[task.index()];
        self.call(host, STORAGE_NS, |core| {
            core.pair_sleeps(cid, &mut asks, now)
        });
        self.pairs[task.index()] = asks;
    }
}
