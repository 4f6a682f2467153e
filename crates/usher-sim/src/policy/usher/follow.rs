// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that go to those who wake them: the host's part of `core/src/follow.c`, as in `bpf/follow.bpf.h`.

use usher_core::{Follow, Request};

use super::{Usher, STORAGE_NS};
use crate::ids::TaskId;
use crate::policy::Host;

impl Usher {
    /// A task is born.
    pub(super) fn follow_born(&mut self, task: TaskId) {
        if self.followers.len() <= task.index() {
            self.followers.resize(task.index() + 1, Follow::default());
        }
        self.followers[task.index()] = Follow::default();
    }

    /// A task wakes: what becomes of its request, by who woke it before.
    pub(super) fn follow(&mut self, host: &mut Host, request: &mut Request, task: TaskId) {
        if !self.follows || !self.call(host, 0, |core| core.from_elsewhere(request)) {
            return;
        }
        let mut kept = self.followers[task.index()];
        let sleeps = host.task(task).sleeps();
        self.call(host, STORAGE_NS, |core| {
            core.follow(request, &mut kept, sleeps)
        });
        self.followers[task.index()] = kept;
    }
}
