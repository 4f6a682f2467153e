// SPDX-License-Identifier: GPL-2.0-only
//! Exit codes, and how an error becomes one.

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use usher_topo::TopoError;

/// What a command's exit code says. Clap's own usage errors are [`Code::WrongUse`] too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// All is well.
    Fine = 0,
    /// The command line or a file that it names is wrong.
    WrongUse = 2,
    /// The environment lacks something.
    Environment = 3,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// An error and the exit code it leads to.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What to tell the user, in one line.
    pub error: anyhow::Error,
}

impl From<TopoError> for Failure {
    fn from(error: TopoError) -> Self {
        let code = if error.is_environment() {
            Code::Environment
        } else {
            Code::WrongUse
        };
        Self {
            code,
            error: error.into(),
        }
    }
}

impl From<io::Error> for Failure {
    /// Commands write to stdout only; files are written by libraries with errors of their own.
    fn from(error: io::Error) -> Self {
        if error.kind() == ErrorKind::BrokenPipe {
            // The reader (`head`, a pager) has seen enough. Nothing is wrong.
            return Self {
                code: Code::Fine,
                error: error.into(),
            };
        }
        let error = anyhow::Error::from(error).context("cannot write to stdout");
        Self {
            code: Code::Environment,
            error,
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

/// Tells the user what went wrong, if anything did, and gives the process its exit code.
pub fn report(result: Result<Code, Failure>) -> ExitCode {
    match result {
        Ok(code) => code.into(),
        Err(Failure {
            code: Code::Fine, ..
        }) => Code::Fine.into(),
        Err(Failure { code, error }) => {
            // If stderr is gone too there is nobody left to tell.
            let _ = writeln!(io::stderr(), "usher: {error:#}");
            code.into()
        }
    }
}
