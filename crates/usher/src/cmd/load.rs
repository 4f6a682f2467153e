// SPDX-License-Identifier: GPL-2.0-only
//! `usher load`: attaches scx_usher, or says all that is in the way.

use std::ffi::OsString;
use std::io::{self, Write as _};

use usher_lab::doctor::State;

use super::{doctor, program};
use crate::exit::{Code, Failure};

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
    Err(program::become_it("scx_usher", &args.options))
}
