// SPDX-License-Identifier: GPL-2.0-only
//! The log of the traced environment: every access to memory that CPUs share.

use crate::request::Queue;

/// What kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic read-modify-write, which is a full barrier too.
    Rmw,
    /// A full barrier; it has no place.
    Barrier,
    /// The length of a queue was read. The queue is the host's, so the place is an LLC.
    Queued,
}

/// One access, in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Access(pub(crate) u64);

impl Access {
    /// What kind of access.
    pub fn kind(self) -> AccessKind {
        match self.0 & 0xff {
            0 => AccessKind::Read,
            1 => AccessKind::Write,
            2 => AccessKind::Rmw,
            3 => AccessKind::Barrier,
            4 => AccessKind::Queued,
            kind => unreachable!("env/traced.h logs no kind {kind}"),
        }
    }

    /// Where, in bytes from the start of the core's block of memory. Means nothing for a barrier or
    /// a queue.
    pub fn offset(self) -> u64 {
        self.0 >> 8
    }

    /// Which 64-byte line of the block; `None` for a barrier or a queue.
    pub fn line(self) -> Option<u64> {
        match self.kind() {
            AccessKind::Barrier | AccessKind::Queued => None,
            _ => Some(self.offset() / 64),
        }
    }

    /// Whose queue was asked for its length.
    pub fn queue(self) -> Option<Queue> {
        let queue = u32::try_from(self.offset()).ok()?;
        (self.kind() == AccessKind::Queued).then_some(Queue(queue))
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}@{}", self.kind(), self.offset())
    }
}
