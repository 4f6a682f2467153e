// SPDX-License-Identifier: GPL-2.0-only
//! CPUs of different capacity: how much tasks run, and which of them move while they run (`core/src/capacity.c`,
//! `core/src/fit.c`).

use usher_topo::Cid;

use crate::ffi;
use crate::placement::Core;
use crate::request::{Demand, Request, Tiers, Utilisation, Vtime};

impl Core {
    /// Whether some CPU is greater than another, and that counts. Without, nothing here need be called.
    pub fn is_asymmetric(&self) -> bool {
        // SAFETY: `u` is whole; a read.
        unsafe { ffi::usher_tables_asymmetric(self.u) }
    }

    /// A task runs on `request.prev`: at a tick there, and when [`Core::misfit_call`] has named that CPU. The CPU,
    /// claimed, to which it is to move at once.
    pub fn misfit(&mut self, request: &Request) -> Option<Cid> {
        let request = self.request(request);
        // SAFETY: `u` is whole, the cids exist, nobody else touches this core (&mut); the set lives as long as
        // the request.
        let cid = unsafe { (self.api.misfit)(self.u, &request) };
        u32::try_from(cid).ok().map(Cid)
    }

    /// `cid` has gone idle and there is no work in reach: a weaker CPU whose task waits for such a one.
    pub fn misfit_call(&mut self, cid: Cid) -> Option<Cid> {
        let cid = self.cid(cid);
        // SAFETY: as in misfit().
        let weak = unsafe { (self.api.misfit_call)(self.u, cid) };
        u32::try_from(weak).ok().map(Cid)
    }

    /// Whether the task that runs on `cid` waits for a stronger CPU. Never traced.
    pub fn misfit_waits(&self, cid: Cid) -> bool {
        let cid = self.cid(cid);
        // SAFETY: `u` is whole, the cid exists; a read.
        unsafe { ffi::usher_tables_misfit_waits(self.u, cid) }
    }

    /// Whether `cid`, which takes from a queue whose first task is at `first`, takes instead the one at `v` that asks
    /// for this. To be asked of [`crate::FIT_LOOK`] tasks at most, the first of them included.
    pub fn take_instead(&mut self, cid: Cid, first: Vtime, v: Vtime, demand: Demand) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in misfit().
        unsafe { (self.api.take_instead)(self.u, cid, first.0, v.0, &demand.to_c()) }
    }

    /// Whether `cid` is enough for a task that asks for this.
    pub fn enough(&mut self, cid: Cid, demand: Demand) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in misfit().
        unsafe { (self.api.enough)(self.u, cid, &demand.to_c()) }
    }

    /// The tiers that are enough for a task that asks for this: where a search for a CPU to preempt begins. Any, if
    /// CPUs are equal.
    pub fn tiers_first(&mut self, demand: Demand) -> Tiers {
        // SAFETY: as in misfit().
        Tiers(unsafe { (self.api.tiers_first)(self.u, &demand.to_c()) })
    }

    /// A task has run for `ran_ns` on `cid` up to now; since the last call before that it did not run.
    pub fn util_ran(&mut self, util: &mut Utilisation, cid: Cid, now_ns: u64, ran_ns: u64) {
        let cid = self.cid(cid);
        // SAFETY: as in misfit(); the utilisation is the caller's alone.
        unsafe { (self.api.util_ran)(self.u, &mut util.0, cid, now_ns, ran_ns) }
    }

    /// The task goes to sleep, after [`Core::util_ran`].
    pub fn util_slept(&mut self, util: &mut Utilisation) {
        // SAFETY: the utilisation is the caller's alone.
        unsafe { (self.api.util_slept)(&mut util.0) }
    }

    /// What a task that does not run uses of the strongest CPU, in 1024ths; 0 if it never ran.
    pub fn util_now(&self, util: &Utilisation, now_ns: u64) -> u16 {
        // SAFETY: a read.
        let now = unsafe { (self.api.util_now)(&util.0, now_ns) };
        u16::try_from(now).unwrap_or(u16::MAX)
    }
}
