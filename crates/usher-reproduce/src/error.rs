// SPDX-License-Identifier: GPL-2.0-only
//! What can go wrong. Every message is one line: where, what, and what to do.

use usher_lab::LabError;
use usher_sim::SimError;

/// Why a table cannot be reproduced.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// A file that cannot be read.
    #[error("{path}: {what}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A published table with something wrong in it.
    #[error("{origin}:{line}: {what}")]
    Table {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what would be right.
        what: String,
    },
    /// An experiment file with something wrong in it.
    #[error("{origin}: {what}")]
    Experiment {
        /// The file, with the line where it is known.
        origin: String,
        /// What is wrong and what would be right.
        what: String,
    },
    /// No experiment has this name.
    #[error("unknown experiment `{name}`; known: {known}, all, or the path of an experiment file (with a `/` or the ending .toml)")]
    NoSuchExperiment {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A simulation that failed, with the command that repeats it.
    #[error("a run failed: {error}\nreplay: {replay}")]
    Run {
        /// What happened.
        error: SimError,
        /// The command.
        replay: String,
    },
    /// The cache of results cannot be used.
    #[error(transparent)]
    Cache(#[from] LabError),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, ReproduceError>;
