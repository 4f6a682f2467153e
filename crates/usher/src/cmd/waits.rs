// SPDX-License-Identifier: GPL-2.0-only
//! `usher waits`: who waits for a CPU on the running kernel.

use std::ffi::OsString;

use super::program;
use crate::exit::{Code, Failure};

/// Show who waits for a CPU on the running kernel, for how long, behind whom, and whether CPUs idle meanwhile.
///
/// It works under any scheduler, while a command runs (`usher waits -- COMMAND`), for a time (`usher waits --for 10`) or until
/// Ctrl-C; `usher waits --help` has all options. This becomes the program usher-waits that lies beside usher, or else the one in
/// PATH, whose exit code it has.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Options and command, as `usher waits --help` has them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTIONS"
    )]
    options: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    Err(program::become_it("usher-waits", &args.options))
}
