// SPDX-License-Identifier: GPL-2.0-only
//! Placement hints: how a program tells `scx_usher` where its tasks belong. One function, [`hint`].
//!
//! ```
//! use usher_hint::{hint, Hints, Request};
//!
//! // Workers that this process forks spread out, and stay where they are when they wake.
//! let wish = Hints::FORK_SPREAD.and(Hints::WAKE_HOLD).expect("no contradiction");
//! match hint(Request::Set(wish), 0) {
//!     Ok(in_force) => assert_eq!(in_force, wish),
//!     Err(error) => eprintln!("no hints, never mind: {error}"), // scx_usher does not run
//! }
//! ```
//!
//! Children and threads inherit hints, exec keeps them. They are wishes: affinity, cpusets and capacity always come
//! first, and a hint that asks for a full place is passed over. `include/usher_hint.h` is the same for C.
//!
//! The placement core and the simulator use the same [`Hints`].

use std::fmt;
use std::io;
use std::str::FromStr;

const PR_HINT: libc::c_int = 0x7573_6872;
const OP_SET: libc::c_ulong = 1;
const OP_GET: libc::c_ulong = 2;
const OK: libc::c_int = 0x100;

/// What a program wishes for its tasks, and they for their children. At most one of each pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints(u32);

impl Hints {
    /// No wish: takes hints back.
    pub const NONE: Self = Self(0);
    /// Be born near the parent.
    pub const FORK_AFFINE: Self = Self(1);
    /// Be born where few live.
    pub const FORK_SPREAD: Self = Self(2);
    /// Wake near the waker.
    pub const WAKE_AFFINE: Self = Self(4);
    /// Wake where it ran last.
    pub const WAKE_HOLD: Self = Self(8);

    /// Each wish, by name.
    pub const NAMES: [(&str, Self); 4] = [
        ("fork-affine", Self::FORK_AFFINE),
        ("fork-spread", Self::FORK_SPREAD),
        ("wake-affine", Self::WAKE_AFFINE),
        ("wake-hold", Self::WAKE_HOLD),
    ];

    /// From the flags of the system call; `None` for unknown ones and for both of a pair.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            0..=15 if bits & 3 != 3 && bits & 12 != 12 => Some(Self(bits)),
            _ => None,
        }
    }

    /// The flags of the system call.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Both wishes; `None` if they contradict each other.
    pub const fn and(self, other: Self) -> Option<Self> {
        Self::from_bits(self.0 | other.0)
    }

    /// Whether all wishes of the other are among these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Hints {
    /// `fork-spread+wake-hold`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(_, hint)| self.has(*hint));
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        match names.as_slice() {
            [] => f.pad("none"),
            names => f.pad(&names.join("+")),
        }
    }
}

/// Why a text names no hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintsError {
    /// No hint has this name.
    Unknown(String),
    /// Both of a pair.
    Contradiction,
}

impl fmt::Display for HintsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let known = Hints::NAMES.map(|(name, _)| name).join(", ");
                write!(f, "no hint `{name}`; known are none, {known}")
            }
            Self::Contradiction => {
                f.write_str("at most one hint about forks and one about wakeups")
            }
        }
    }
}

impl std::error::Error for HintsError {}

impl FromStr for Hints {
    type Err = HintsError;

    /// As they are printed: names joined by `+`, or `none`.
    fn from_str(text: &str) -> Result<Self, HintsError> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        text.split('+').try_fold(Self::NONE, |hints, word| {
            let named = Self::NAMES.iter().find(|(name, _)| *name == word);
            let (_, one) = named.ok_or_else(|| HintsError::Unknown(word.into()))?;
            hints.and(*one).ok_or(HintsError::Contradiction)
        })
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
        Request::Set(hints) => (OP_SET, hints.bits()),
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
    let bits = (result & !OK) as u32;
    Hints::from_bits(bits)
        .ok_or_else(|| io::Error::other(format!("no flags of hints: {result:#x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: contradictions cannot be put into words. Method: all flags, alone and together, by number and by name.
    #[test]
    fn pairs_exclude_each_other() {
        let legal: Vec<u32> = (0..64)
            .filter(|bits| Hints::from_bits(*bits).is_some())
            .collect();
        assert_eq!(legal, [0, 1, 2, 4, 5, 6, 8, 9, 10]);
        assert_eq!(Hints::FORK_AFFINE.and(Hints::FORK_SPREAD), None);
        let both = Hints::FORK_AFFINE.and(Hints::WAKE_HOLD).expect("legal");
        assert_eq!(both.bits(), 9);
        assert!(both.has(Hints::WAKE_HOLD) && !both.has(Hints::WAKE_AFFINE));
        assert_eq!(
            format!("{both} {}", Hints::NONE),
            "fork-affine+wake-hold none"
        );
    }

    // Goal: what is printed can be read. Method: all legal hints there and back; a name that is none, and both of a pair.
    #[test]
    fn text_there_and_back() {
        for hints in (0..16).filter_map(Hints::from_bits) {
            assert_eq!(hints.to_string().parse(), Ok(hints));
        }
        let wrong = |text: &str| text.parse::<Hints>().unwrap_err();
        assert_eq!(wrong("fork-near"), HintsError::Unknown("fork-near".into()));
        assert_eq!(wrong(""), HintsError::Unknown("".into()));
        assert_eq!(wrong("wake-hold+wake-affine"), HintsError::Contradiction);
    }

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
