// SPDX-License-Identifier: GPL-2.0-only
//! Sleeping until something happens: a signal, news of the scheduler, or a time.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// SIGINT and SIGTERM as something to wait for. Threads started afterwards do not get them either.
pub struct Signals {
    fd: OwnedFd,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Somebody wants us to end.
    Signal,
    /// The kernel ended the scheduler, or CPUs came or went.
    News,
    /// The time came.
    Time,
}

impl Signals {
    /// Takes the signals over.
    pub fn take() -> Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: plain system calls; the set is initialised by the first.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("cannot receive signals");
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Waits for a signal, for `news` to become readable, or for a time.
    pub fn wait(&self, news: Option<BorrowedFd<'_>>, until: Option<Instant>) -> Result<Happening> {
        loop {
            let mut fds = [
                (self.fd.as_raw_fd(), libc::POLLIN),
                (news.map_or(-1, |fd| fd.as_raw_fd()), libc::POLLIN),
            ]
            .map(|(fd, events)| libc::pollfd {
                fd,
                events,
                revents: 0,
            });
            // SAFETY: the array has as many entries as said.
            let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, timeout_ms(until)) };
            match n {
                0 if until.is_some_and(|until| until <= Instant::now()) => {
                    return Ok(Happening::Time)
                }
                0 => {}
                n if n > 0 && fds[0].revents != 0 => return Ok(Happening::Signal),
                n if n > 0 => return Ok(Happening::News),
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error).context("cannot wait for events");
                    }
                }
            }
        }
    }
}

/// The kernel's wakeup travels by an interrupt to the CPU where the news are from, and that CPU may be on its way
/// offline: such an interrupt gets lost at times (seen in emulated guests). So look once a second whether it came.
const LOOK_MS: i32 = 1000;

/// For poll(); rounded up, lest it wakes just before the time.
fn timeout_ms(until: Option<Instant>) -> i32 {
    let Some(until) = until else { return LOOK_MS };
    let left = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    i32::try_from(left.as_millis()).map_or(LOOK_MS, |left| left.min(LOOK_MS))
}
