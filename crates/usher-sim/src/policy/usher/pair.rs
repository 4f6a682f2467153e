// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that wake each other in turn: the host's part of `core/src/pair.c`, as in `bpf/hand.bpf.h`.

use usher_core::{Pair, Request};

use super::{name, scx_weight, Decided, Place, Usher};
use crate::ids::{Cpu, Id, Nanos, TaskId};
use crate::policy::{Host, WakeInfo};
use crate::program::Class;

/// Plain instructions of a look into a task's storage.
const STORAGE_NS: Nanos = 10;

impl Usher {
    /// A task is born.
    pub(super) fn pair_born(&mut self, task: TaskId) {
        if self.pairs.len() <= task.index() {
            self.pairs.resize(task.index() + 1, Pair::default());
        }
        self.pairs[task.index()] = Pair::default();
    }

    /// A task found nobody idle, and its waker says that it is about to sleep: what follows from that. Whoever gives way to
    /// it waits, where it was interrupted, until it sleeps.
    pub(super) fn woken_synchronously(
        &mut self,
        host: &mut Host,
        wake: &WakeInfo,
        request: &Request,
        cpu: Cpu,
    ) -> Decided {
        let (by, task) = (host.this_cpu(), wake.task);
        let own = self.at[by.index()].llc;
        let Some(waker) = host.curr(by) else {
            return Decided::Sync;
        };
        if !self.settings.cpupri || self.at[cpu.index()].llc != own {
            return Decided::Sync;
        }
        let (cid, now) = (self.cid(by), host.now());
        let mut pair = self.pairs[waker.index()];
        let asks = |core: &mut usher_core::Core| core.pair_asks(cid, &mut pair, name(task), now);
        let sure = self.call(host, STORAGE_NS, asks);
        self.pairs[waker.index()] = pair;
        if !sure
            || matches!(host.task(task).class(), Class::Batch { .. })
            || !host.task(task).may_run_on(by)
        {
            return Decided::Sync;
        }
        host.charge(STORAGE_NS);
        if !self.at[by.index()].own.is_empty() || !self.pairs[task.index()].answers(name(waker)) {
            return Decided::Sync;
        }
        let (vtime, weight) = (self.tasks[task.index()].vtime, scx_weight(host, task));
        let first = self.llc[own.index()].tasks.first_key_value();
        let first = first.map(|(&(first, _), _)| first);
        let demand = request.demand;
        let (gives, vtime) = self.call(host, 0, |core| {
            let vtime = core.vtime_enter(vtime, own);
            let gives = core.enough(cid, demand)
                && core.pair_gives_way(cid, &mut pair, vtime, now, weight, first);
            (gives, vtime)
        });
        if !gives {
            return Decided::Sync;
        }
        self.pairs[waker.index()] = pair;
        self.tasks[task.index()].vtime = vtime;
        self.tasks[waker.index()].place = Place::GivesWay;
        Decided::InTurn(by)
    }

    /// A task stops on a CPU, to sleep.
    pub(super) fn pair_sleeps(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        let (cid, now) = (self.cid(cpu), host.now());
        if !self.call(host, 0, |core| core.pair_asked(cid)) {
            return;
        }
        let mut pair = self.pairs[task.index()];
        self.call(host, STORAGE_NS, |core| {
            core.pair_sleeps(cid, &mut pair, now)
        });
        self.pairs[task.index()] = pair;
    }
}
