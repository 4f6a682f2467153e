// SPDX-License-Identifier: GPL-2.0-only
//! What is wrong in an experiment file, and where.

use std::fmt::Display;

use usher_topo::line;

use crate::error::ReproduceError;

/// A key of a file, as a path such as `variants.cfs-6.0.policy`, and what is wrong with its value.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub at: String,
    pub what: String,
}

impl Wrong {
    pub fn new(at: impl Into<String>, what: impl Display) -> Wrong {
        Wrong {
            at: at.into(),
            what: what.to_string(),
        }
    }
}

/// A file's name and text.
#[derive(Clone, Debug, Default)]
pub struct File {
    origin: String,
    text: String,
}

impl File {
    pub(crate) fn new(origin: &str, text: &str) -> File {
        File {
            origin: origin.into(),
            text: text.into(),
        }
    }

    /// The error for something wrong at a key, with the line of the deepest key on its path that the file has.
    pub(crate) fn wrong(&self, wrong: Wrong) -> ReproduceError {
        let Wrong { at, what } = wrong;
        self.error(line::of_key(&self.text, &at), format!("{at}: {what}"))
    }

    /// The error for something wrong in a line.
    pub(crate) fn error(&self, line: Option<usize>, what: String) -> ReproduceError {
        let origin = match line {
            Some(line) => format!("{}:{line}", self.origin),
            None => self.origin.clone(),
        };
        ReproduceError::Experiment { origin, what }
    }
}
