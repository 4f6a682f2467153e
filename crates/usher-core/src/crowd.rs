// SPDX-License-Identifier: GPL-2.0-only
//! Running tasks that share a core while another one idles (`core/src/crowd.c`).

use usher_topo::Cid;

use crate::placement::Core;
use crate::request::Request;

/// Whether a running task shares its core with other ones, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Sharing {
    /// It does not, or for a moment only.
    Alone,
    /// It does.
    Shares,
    /// It does, for longer than a burst lasts.
    SharesLong,
}

impl Core {
    /// At a tick of `cid`: whether its task has shared the core with another one for so long that it is to look for a
    /// whole one by [`Core::uncrowd`]. Never where cores have one thread.
    pub fn crowded(&mut self, cid: Cid, now_ns: u64) -> Sharing {
        let cid = self.cid(cid);
        // SAFETY: `u` is whole, the cid exists, nobody else touches this core (&mut).
        match unsafe { (self.api.crowded)(self.u, cid, now_ns) } {
            0 => Sharing::Alone,
            1 => Sharing::Shares,
            _ => Sharing::SharesLong,
        }
    }

    /// The task that runs on `request.prev` shares its core with another one, as [`Core::crowded`] said. The CPU, claimed,
    /// to which it is to move at once.
    pub fn uncrowd(&mut self, request: &Request, sharing: Sharing) -> Option<Cid> {
        let request = self.request(request);
        // SAFETY: as in crowded(); the set lives as long as the request.
        let cid = unsafe { (self.api.uncrowd)(self.u, &request, sharing as u32) };
        u32::try_from(cid).ok().map(Cid)
    }
}
