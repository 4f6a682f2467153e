// SPDX-License-Identifier: GPL-2.0-only
//! Running tasks that share a core while another one idles (`core/src/crowd.c`).

use usher_topo::Cid;

use crate::placement::Core;
use crate::request::Request;

impl Core {
    /// At a tick of `cid`: whether its task shares the core with another one, and for so long that it is to look for a
    /// whole one by [`Core::uncrowd`]. Never where cores have one thread.
    pub fn crowded(&mut self, cid: Cid, now_ns: u64) -> bool {
        let cid = self.cid(cid);
        // SAFETY: `u` is whole, the cid exists, nobody else touches this core (&mut).
        unsafe { (self.api.crowded)(self.u, cid, now_ns) }
    }

    /// The task that runs on `request.prev` shares its core with another one. The CPU, claimed, to which it is to move at
    /// once: of another node only if its turn has lasted for 8 slices.
    pub fn uncrowd(&mut self, request: &Request, now_ns: u64) -> Option<Cid> {
        let request = self.request(request);
        // SAFETY: as in crowded(); the set lives as long as the request.
        let cid = unsafe { (self.api.uncrowd)(self.u, &request, now_ns) };
        u32::try_from(cid).ok().map(Cid)
    }
}
