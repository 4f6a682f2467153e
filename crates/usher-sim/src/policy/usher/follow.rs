// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that only another node wakes go there: the host's part of `core/src/follow.c`, as in `bpf/follow.bpf.h`.

use usher_core::{Follow, Request};

use super::{Usher, STORAGE_NS};
use crate::ids::{Cid, TaskId};
use crate::policy::Host;

impl Usher {
    /// A task is born.
    pub(super) fn follow_born(&mut self, task: TaskId) {
        if self.followers.len() <= task.index() {
            self.followers.resize(task.index() + 1, Follow::default());
        }
        self.followers[task.index()] = Follow::default();
    }

    /// The cid to place a task by that wakes: where it ran last, or where its waker does.
    pub(super) fn follow(&mut self, host: &mut Host, request: &Request, task: TaskId) -> Cid {
        if !self.follows || !self.call(host, 0, |core| core.from_afar(request)) {
            return request.prev;
        }
        let mut kept = self.followers[task.index()];
        let sleeps = host.task(task).sleeps();
        let cid = self.call(host, STORAGE_NS, |core| {
            core.follow(request, &mut kept, sleeps)
        });
        self.followers[task.index()] = kept;
        cid
    }
}
