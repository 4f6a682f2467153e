// SPDX-License-Identifier: GPL-2.0-only
//! `usher load`: attaches scx_usher, or says all that is in the way.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use usher_lab::doctor::State;

use super::doctor;
use crate::exit::{Code, Failure};

/// The scheduler's own program.
const PROGRAM: &str = "scx_usher";

/// Attach scx_usher to the running kernel, until Ctrl-C.
///
/// What `usher doctor scheduler` finds missing is said first, all at once, with exit code 3. Otherwise this becomes the
/// scx_usher that lies beside usher, or else the one in PATH, whose exit code it has.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to give to scx_usher, as in `usher load --stats 1`; `scx_usher --help` lists it
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTIONS"
    )]
    options: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|usher| beside(&usher))
        .unwrap_or_else(|| PROGRAM.into());
    let mut missing = doctor::scheduler();
    missing.retain(|check| check.state == State::Missing);
    let mut stderr = io::stderr().lock();
    for check in &missing {
        writeln!(
            stderr,
            "usher: {}: {}; {}",
            check.name, check.found, check.remedy
        )?;
    }
    if !missing.is_empty() {
        return Ok(Code::Environment);
    }
    let error = Command::new(&program).args(&args.options).exec();
    let what = format!(
        "{}: {error}; `make build` builds it, beside usher",
        program.display()
    );
    Err(Failure::new(Code::Environment, what))
}

/// The scheduler's program in the same folder, if there is one.
fn beside(usher: &Path) -> Option<PathBuf> {
    let program = usher.with_file_name(PROGRAM);
    program.is_file().then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the program that was built with this one comes before any other of that name.
    #[test]
    fn the_one_beside_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let usher = dir.path().join("usher");
        assert_eq!(beside(&usher), None);
        std::fs::write(dir.path().join(PROGRAM), "").unwrap();
        assert_eq!(beside(&usher), Some(dir.path().join(PROGRAM)));
    }
}
