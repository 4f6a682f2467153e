// SPDX-License-Identifier: GPL-2.0-only
//! Everything that can be wrong with a description of a machine.

use std::io;
use std::path::PathBuf;

use crate::build::{MAX_CPUS, MAX_SHARD_WIDTH};

/// Why a machine could not be read, built or written. Each message is one line that names the place,
/// the value and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TopoError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The content of a file or string makes no sense.
    #[error("{origin}: {what}, found `{value}`; {remedy}")]
    Malformed {
        /// The file (with line, `file:12`), or the kind of string.
        origin: String,
        /// What is wrong.
        what: String,
        /// The offending piece.
        value: String,
        /// What would be right.
        remedy: String,
    },
    /// The directory holds no sysfs tree. An environment matter if it is the live `/sys`.
    #[error("{path}: no CPU topology here (no cpu/online and no cpu/cpuN directory); {remedy}")]
    NoSysfs {
        /// The directory in which `cpu` was expected.
        path: PathBuf,
        /// What to do about it.
        remedy: String,
        /// Whether this was the running machine, not a file the user named.
        live: bool,
    },
    /// A machine without an online CPU.
    #[error("{origin}: no online CPU; a machine has 1 to {MAX_CPUS}")]
    NoCpus {
        /// The machine's name.
        origin: String,
    },
    /// More online CPUs than the placement core has cids.
    #[error("{origin}: {nr_cpus} online CPUs; a machine has 1 to {MAX_CPUS}")]
    TooManyCpus {
        /// The machine's name.
        origin: String,
        /// How many it has (a lower bound where counting on makes no sense).
        nr_cpus: u64,
    },
    /// The raw description contradicts itself.
    #[error("{origin}: {what}; {remedy}")]
    Inconsistent {
        /// The machine's name.
        origin: String,
        /// What contradicts what.
        what: String,
        /// What would be right.
        remedy: String,
    },
    /// A shard is a 64-bit word at most.
    #[error("shard width {width}: must be 1 to {MAX_SHARD_WIDTH}")]
    ShardWidth {
        /// What was asked for.
        width: u32,
    },
    /// No built-in machine or file has this name.
    #[error("machine `{name}`: no such built-in machine and no such file; {hint}")]
    UnknownMachine {
        /// What was asked for.
        name: String,
        /// The nearest names, or where to find the list.
        hint: String,
    },
    /// The form asked for cannot say what this machine is like.
    #[error("{origin}: cannot be written as {form}: {why}")]
    Inexpressible {
        /// The machine's name.
        origin: String,
        /// The form, such as `a synthetic string`.
        form: &'static str,
        /// What does not fit.
        why: String,
    },
}

impl TopoError {
    /// Whether the environment lacks something, rather than the user having named something wrong:
    /// exit code 3 rather than 2.
    pub fn is_environment(&self) -> bool {
        matches!(self, Self::NoSysfs { live: true, .. })
    }

    pub(crate) fn malformed(
        origin: impl Into<String>,
        what: impl Into<String>,
        value: impl ToString,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Malformed {
            origin: origin.into(),
            what: what.into(),
            value: shorten(&value.to_string()),
            remedy: remedy.into(),
        }
    }
}

/// Keeps an error one line of readable length whatever garbage was fed in.
fn shorten(value: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    let clean: String = value
        .chars()
        .take(SHOWN_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if value.chars().count() > SHOWN_CHARS {
        format!("{clean}...")
    } else {
        clean
    }
}
