// SPDX-License-Identifier: GPL-2.0-only
//! Programs that the agent starts: their output is collected without blocking, their end is noticed at
//! once (a pidfd becomes readable), and nothing of theirs outlives them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a program's output that [`Child::log`] remembers, from the end.
const LOG_MAX: usize = 64 << 10;

/// Which of a program's outputs bytes came from.
#[derive(Debug, Clone, Copy)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Called with every piece of output.
pub type Sink<'a> = &'a mut dyn FnMut(Output, &[u8]);

/// A running or ended program.
pub struct Child {
    process: std::process::Child,
    pidfd: OwnedFd,
    pipes: Vec<(Output, File)>,
    log: VecDeque<u8>,
    exit: Option<i32>,
    begun: Instant,
    ended_at: Option<Instant>,
}

/// The control group of this process's commands. By it everything that a command left running is found and ended:
/// programs such as stress-ng give their children process groups of their own. Only process 1 of a guest has the name
/// for itself; any other may be a command of such a group.
fn command_group() -> String {
    const NAME: &str = "/sys/fs/cgroup/usher-command";
    match std::process::id() {
        1 => NAME.into(),
        pid => format!("{NAME}-{pid}"),
    }
}

impl Child {
    /// Starts a command, with everything that it will start in one control group.
    pub fn start_command(argv: &[String], environment: &[(&str, String)]) -> Result<Self, String> {
        let group = command_group();
        let failed = |error: std::io::Error| format!("{group}: {error}");
        std::fs::create_dir_all(&group).map_err(failed)?;
        let members = std::fs::OpenOptions::new()
            .write(true)
            .open(format!("{group}/cgroup.procs"))
            .map_err(failed)?;
        Self::start_in(argv, environment, Some(members))
    }

    /// Ends everything that commands left running.
    pub fn end_commands() {
        let _ = std::fs::write(format!("{}/cgroup.kill", command_group()), "1");
    }

    /// Leaves no group behind, if all that was in it is gone.
    pub fn forget_commands() {
        let _ = std::fs::remove_dir(command_group());
    }

    /// Starts a program in a session of its own.
    pub fn start(argv: &[String], environment: &[(&str, String)]) -> Result<Self, String> {
        Self::start_in(argv, environment, None)
    }

    fn start_in(
        argv: &[String],
        environment: &[(&str, String)],
        group: Option<File>,
    ) -> Result<Self, String> {
        let (program, arguments) = argv.split_first().ok_or("empty command")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", crate::tool::PATH)
            .env("HOME", "/root")
            .env("LANG", "C")
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/root")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A scheduler must not stay loaded when this process is killed on somebody's own machine.
        // SAFETY: between fork and exec only setsid(), prctl() and write() are called, which are
        // async-signal-safe; "0" means the writer.
        unsafe {
            command.pre_exec(move || {
                libc::setsid();
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                match &group {
                    Some(members) => (&*members).write_all(b"0"),
                    None => Ok(()),
                }
            });
        }
        let begun = Instant::now();
        let mut process = command
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        // SAFETY: no pointers; the result is checked and then owned.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.id(), 0) };
        if fd < 0 {
            return Err(format!("pidfd_open: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the system call just returned this descriptor and nobody else has it.
        let pidfd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        let stdout = File::from(OwnedFd::from(process.stdout.take().expect("piped above")));
        let stderr = File::from(OwnedFd::from(process.stderr.take().expect("piped above")));
        for pipe in [&stdout, &stderr] {
            // SAFETY: a valid descriptor of ours, no pointers.
            unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        }
        let pipes = vec![(Output::Stdout, stdout), (Output::Stderr, stderr)];
        let log = VecDeque::new();
        Ok(Child {
            process,
            pidfd,
            pipes,
            log,
            exit: None,
            begun,
            ended_at: None,
        })
    }

    /// Process number.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Exit code, or 128 + signal, once ended.
    pub fn ended(&self) -> Option<i32> {
        self.exit
    }

    /// Time from the start to the end, or to now.
    pub fn age(&self) -> Duration {
        self.ended_at.unwrap_or_else(Instant::now) - self.begun
    }

    /// What the program waits for in the kernel, for reports of one that does not go on.
    pub fn waits_in(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/wchan", self.process.id())).unwrap_or_default()
    }

    /// The end of what it wrote.
    pub fn log(&self) -> String {
        let bytes: Vec<u8> = self.log.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: i32) {
        if self.exit.is_none() {
            // SAFETY: no pointers; the process is not reaped yet, so the number is still its own.
            unsafe { libc::kill(self.process.id() as i32, signal) };
        }
    }

    /// Waits for the end, collecting output into the log; false when it takes longer than `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        let begun = Instant::now();
        while self.exit.is_none() {
            let Some(left) = timeout.checked_sub(begun.elapsed()) else {
                return false;
            };
            self.collect(left, &mut |_, _| ());
        }
        true
    }

    /// Waits at most `timeout` for output or the end, and takes both in.
    pub fn collect(&mut self, timeout: Duration, sink: Sink) {
        let begun = Instant::now();
        poll(&self.interests(), timeout);
        self.take_in(sink);
        if self.exit.is_some() {
            // Nothing is left to wait for; keep the caller's pace.
            std::thread::sleep(
                timeout
                    .saturating_sub(begun.elapsed())
                    .min(Duration::from_millis(10)),
            );
        }
    }

    fn interests(&self) -> Vec<RawFd> {
        let mut descriptors: Vec<RawFd> = self.pipes.iter().map(|(_, p)| p.as_raw_fd()).collect();
        if self.exit.is_none() {
            descriptors.push(self.pidfd.as_raw_fd());
        }
        descriptors
    }

    /// Reads what is there to read and notices the end.
    fn take_in(&mut self, sink: Sink) {
        if self.exit.is_none() {
            if let Ok(Some(status)) = self.process.try_wait() {
                self.ended_at = Some(Instant::now());
                self.exit = Some(match (status.code(), status.signal()) {
                    (Some(code), _) => code,
                    (None, signal) => 128 + signal.unwrap_or(0),
                });
            }
        }
        let mut buffer = vec![0; 32 << 10];
        let log = &mut self.log;
        self.pipes.retain_mut(|(output, pipe)| loop {
            match pipe.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => {
                    sink(*output, &buffer[..length]);
                    log.extend(&buffer[..length]);
                    let excess = log.len().saturating_sub(LOG_MAX);
                    log.drain(..excess);
                }
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        });
    }
}

/// Waits at most `timeout` until the command or the loader has something; the command's output goes to
/// the sink, the loader's to its log.
pub fn wait_any(
    command: &mut Child,
    mut loader: Option<&mut Child>,
    timeout: Duration,
    sink: Sink,
) {
    let mut descriptors = command.interests();
    if let Some(loader) = &loader {
        descriptors.extend(loader.interests());
    }
    poll(&descriptors, timeout);
    command.take_in(sink);
    if let Some(loader) = loader.as_mut() {
        loader.take_in(&mut |_, _| ());
    }
}

fn poll(descriptors: &[RawFd], timeout: Duration) {
    let mut list: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the list is valid for the call and its length is passed along.
    unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, milliseconds) };
}
