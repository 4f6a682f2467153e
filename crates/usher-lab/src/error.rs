// SPDX-License-Identifier: GPL-2.0-only
//! Everything that can go wrong in the lab, each with its remedy and its exit code.

use std::path::PathBuf;

/// An error of the lab: one line that says what, where and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A shape that cannot be read or that is no machine.
    #[error(transparent)]
    Topology(#[from] usher_topo::TopoError),
    /// A machine that no guest can be.
    #[error("shape {shape}: {why}")]
    Shape {
        /// The shape as given.
        shape: String,
        /// Why there can be no such guest.
        why: String,
    },
    /// A value on the command line that is none of those known.
    #[error("{what} '{value}': {why}")]
    Usage {
        /// Which option or argument.
        what: &'static str,
        /// The value as given.
        value: String,
        /// What is wrong with it and what would be right.
        why: String,
    },
    /// A file could not be read, written or run.
    #[error("{path}: {what}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what it should be (not a kernel, not an ELF file, cut short).
    #[error("{path}: {why}")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        why: String,
    },
    /// A kernel on which no sched_ext scheduler can load.
    #[error(
        "{path}: no sched_ext scheduler can load on this kernel: {why}; choose another \
         (`usher lab kernels` lists the good ones)"
    )]
    UnfitKernel {
        /// The kernel.
        path: PathBuf,
        /// What its BTF shows.
        why: String,
    },
    /// Something that this machine does not have.
    #[error("{what}; {remedy}")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// A helper program that ended with an error.
    #[error("{command}: {why}")]
    Tool {
        /// The command as run.
        command: String,
        /// Its exit status and last words.
        why: String,
    },
    /// The guest panicked, stalled or went away before the job was done.
    #[error("the guest {what}{}", console_tail(.console))]
    Guest {
        /// What happened.
        what: String,
        /// The console's last lines.
        console: Vec<String>,
        /// True when the emulator rather than the kernel is the likely cause and a retry is sensible.
        emulator_suspect: bool,
    },
    /// A scheduler that the guest's kernel refused or ejected.
    #[error("scheduler {scheduler} {what}{}", console_tail(.log))]
    Ejected {
        /// Which scheduler, as named on the command line.
        scheduler: String,
        /// Refused at load, or ejected while it ran.
        what: String,
        /// The loader's and the kernel's last lines about it.
        log: Vec<String>,
    },
}

impl LabError {
    /// The exit code that `usher` ends with: 2 wrong use, 3 the environment lacks something (a guest
    /// that cannot finish its job counts as environment), 4 ejected by the kernel.
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::Topology(error) if error.is_environment() => 3,
            LabError::Topology(_)
            | LabError::Shape { .. }
            | LabError::Usage { .. }
            | LabError::BadFile { .. } => 2,
            LabError::Io { .. }
            | LabError::UnfitKernel { .. }
            | LabError::Missing { .. }
            | LabError::Tool { .. }
            | LabError::Guest { .. } => 3,
            LabError::Ejected { .. } => 4,
        }
    }

    /// Shorthand for [`LabError::Io`].
    pub fn io(path: impl Into<PathBuf>, what: &'static str, source: std::io::Error) -> Self {
        LabError::Io {
            path: path.into(),
            what,
            source,
        }
    }

    /// Shorthand for [`LabError::BadFile`].
    pub fn bad_file(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        LabError::BadFile {
            path: path.into(),
            why: why.into(),
        }
    }
}

/// Renders the last lines of a log under an error's first line, or nothing when there are none.
fn console_tail(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut out = String::from("; last lines:");
    for line in lines {
        out.push_str("\n  | ");
        out.push_str(line);
    }
    out
}

/// The lab's result type.
pub type Result<T> = std::result::Result<T, LabError>;
