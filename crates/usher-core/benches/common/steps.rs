// SPDX-License-Identifier: GPL-2.0-only
//! Counts the instructions that something executes: a child process does it, one step at a time. Slow, and exact on
//! any machine, whatever else runs there.

use std::io;

/// Instructions of `run`, and of two system calls around it. What it changes stays in the child.
///
/// # Panics
/// The system does not let this process trace a child.
pub fn instructions(run: &mut dyn FnMut()) -> u64 {
    // SAFETY: the child is this process with one thread, and calls only `run` before it ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        // SAFETY: plain system calls.
        unsafe {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0 {
                libc::raise(libc::SIGSTOP);
                run();
                libc::raise(libc::SIGSTOP);
            }
            libc::_exit(0);
        }
    }
    assert_eq!(
        wait(child),
        Some(libc::SIGSTOP),
        "the child cannot be traced"
    );
    let mut steps = 0;
    loop {
        // SAFETY: the child is stopped; no memory is passed.
        let error = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
        assert_eq!(error, 0, "one step: {}", io::Error::last_os_error());
        match wait(child) {
            Some(libc::SIGTRAP) => steps += 1,
            Some(libc::SIGSTOP) => break,
            other => panic!("the child met {other:?} after {steps} steps"),
        }
    }
    // SAFETY: ends the child, which is ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert_eq!(wait(child), None);
    steps
}

/// The signal that the child stopped for; `None` once it is gone.
fn wait(child: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the status is ours to write.
    let found = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(found, child, "waitpid: {}", io::Error::last_os_error());
    libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
}
