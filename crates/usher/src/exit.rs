// SPDX-License-Identifier: GPL-2.0-only
//! Exit codes, and how an error becomes one.

use std::io::{self, Write as _};
use std::process::ExitCode;

use usher_lab::LabError;
use usher_reproduce::ReproduceError;
use usher_sim::case::MachineError;
use usher_sim::SimError;
use usher_topo::TopoError;

/// What a command's exit code says. Clap's own usage errors are [`Code::WrongUse`] too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// All is well.
    Fine,
    /// The command line or a file that it names is wrong.
    WrongUse,
    /// The environment lacks something.
    Environment,
    /// Another code: that of a command run for the user, or one that a library chose.
    Other(u8),
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(match code {
            Code::Fine => 0,
            Code::WrongUse => 2,
            Code::Environment => 3,
            Code::Other(code) => code,
        })
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

impl Failure {
    /// One that is told in these words.
    pub fn new(code: Code, what: String) -> Self {
        Self {
            code,
            error: anyhow::Error::msg(what),
        }
    }
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

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        let code = match error {
            SimError::Deadlock { .. } | SimError::Violation { .. } => Code::Other(1),
            _ => Code::WrongUse,
        };
        Self {
            code,
            error: error.into(),
        }
    }
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Topology(error) => error.into(),
            MachineError::Costs(error) => error.into(),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self {
            code: Code::Other(error.exit_code()),
            error: error.into(),
        }
    }
}

impl From<ReproduceError> for Failure {
    fn from(error: ReproduceError) -> Self {
        let code = match error {
            ReproduceError::Cache(error) => return error.into(),
            ReproduceError::Run {
                error: SimError::Deadlock { .. } | SimError::Violation { .. },
                ..
            } => Code::Other(1),
            _ => Code::WrongUse,
        };
        Self {
            code,
            error: error.into(),
        }
    }
}

impl From<io::Error> for Failure {
    /// Commands write to stdout only; files are written by libraries with errors of their own. A reader that
    /// goes away ends the process by its signal before it comes to this.
    fn from(error: io::Error) -> Self {
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
        Err(Failure { code, error }) => {
            // If stderr is gone too there is nobody left to tell.
            let _ = writeln!(io::stderr(), "usher: {}", message(&error));
            code.into()
        }
    }
}

/// The error and its causes in one line, without those that the error's own text ends with already.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    // Goal: a cause is told once, whether or not the error's own text repeats it.
    // Method: an error that does, and one that does not.
    #[test]
    fn causes_are_told_once() {
        let missing = || io::Error::from(ErrorKind::NotFound);
        let path = "no.toml".into();
        let repeats = TopoError::Io {
            path,
            source: missing(),
        };
        assert_eq!(message(&repeats.into()), format!("no.toml: {}", missing()));
        let plain = anyhow::Error::from(missing()).context("no.json");
        assert_eq!(message(&plain), format!("no.json: {}", missing()));
    }

    // Goal: errors lead to the exit codes of the documentation. Method: one error per class.
    #[test]
    fn errors_have_their_exit_codes() {
        let no_sysfs = |live| TopoError::NoSysfs {
            path: "/sys".into(),
            remedy: "".into(),
            live,
        };
        assert_eq!(Failure::from(no_sysfs(true)).code, Code::Environment);
        assert_eq!(Failure::from(no_sysfs(false)).code, Code::WrongUse);
        assert_eq!(
            Failure::from(io::Error::from(ErrorKind::StorageFull)).code,
            Code::Environment
        );
    }
}
