// SPDX-License-Identifier: GPL-2.0-only
//! What can go wrong, by exit code.

/// A failure with the exit code that it ends the program with. Errors without one end it with 3: they come
/// before the scheduler is attached, from something that the machine lacks or refuses.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The machine lacks something: exit code 3.
    #[error("{0}")]
    Environment(String),
    /// A file that the command line names is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The kernel ejected the scheduler: exit code 4.
    #[error("the kernel ejected usher: {0}")]
    Ejected(String),
}

/// The exit code for an error.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Failure>() {
        Some(Failure::Usage(_)) => 2,
        Some(Failure::Ejected(_)) => 4,
        _ => 3,
    }
}

/// One line: an error and its causes.
pub fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").trim_end().replace('\n', " ")
}
