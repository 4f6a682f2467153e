// SPDX-License-Identifier: GPL-2.0-only
//! Placement hints: how a program tells `scx_usher` where its tasks belong. One function, [`hint`].
//!
//! ```
//! use usher_hint::{hint, Hints, Request};
//!
//! // Workers that this process forks spread out, and stay where they are when they wake.
//! let wish = Hints::FORK_SPREAD | Hints::WAKE_HOLD;
//! match hint(Request::Set(wish), 0) {
//!     Ok(in_force) => assert_eq!(in_force, wish),
//!     Err(error) => eprintln!("no hints, never mind: {error}"), // scx_usher does not run
//! }
//! ```
//!
//! Children and threads inherit hints, exec keeps them. They are wishes: affinity, cpusets and capacity always come
//! first, and a hint that asks for a full place is passed over. `include/usher_hint.h` is the same for C.

use std::io;
use std::ops::BitOr;

const PR_HINT: libc::c_int = 0x7573_6872;
const OP_SET: libc::c_ulong = 1;
const OP_GET: libc::c_ulong = 2;
const OK: libc::c_int = 0x100;

/// A set of hints; legal are at most one of each pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints(pub u32);

impl Hints {
    /// No wish: takes hints back.
    pub const NONE: Self = Self(0);
    /// Children are born near their parent.
    pub const FORK_AFFINE: Self = Self(1);
    /// Children are born where few live.
    pub const FORK_SPREAD: Self = Self(2);
    /// Wake near the waker.
    pub const WAKE_AFFINE: Self = Self(4);
    /// Wake where the task ran last.
    pub const WAKE_HOLD: Self = Self(8);
}

impl BitOr for Hints {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What to do about the hints of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// These replace those it had.
    Set(Hints),
    /// Only look.
    Get,
}

/// Sets or gets the hints of a thread, 0 being the caller. Returns those in force afterwards.
///
/// # Errors
/// `EINVAL`: unknown hints or both of a pair, or `scx_usher` does not run. `ESRCH`: no such thread. `EPERM`: it is
/// another user's, and the caller lacks `CAP_SYS_NICE`. `ENOMEM`: the kernel has no memory for it.
pub fn hint(request: Request, pid: u32) -> io::Result<Hints> {
    let (op, flags) = match request {
        Request::Set(hints) => (OP_SET, hints.0),
        Request::Get => (OP_GET, 0),
    };
    // SAFETY: the call takes numbers only; an unknown option is an error.
    let result = unsafe {
        libc::prctl(
            PR_HINT,
            op,
            libc::c_ulong::from(flags),
            libc::c_ulong::from(pid),
            0 as libc::c_ulong,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Hints((result & !OK) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a program may always call. Method: on a kernel without scx_usher. Catches: a number that means
    // something to some kernel.
    #[test]
    fn a_kernel_without_usher_knows_no_hints() {
        if std::path::Path::new("/sys/kernel/sched_ext/root/ops").exists() {
            return; // some scheduler runs here: the guest tests cover that
        }
        for request in [Request::Get, Request::Set(Hints::FORK_SPREAD)] {
            let error = hint(request, 0).expect_err("nobody serves it");
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
