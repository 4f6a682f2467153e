// SPDX-License-Identifier: GPL-2.0-only
//! `usher completions`: a completion script for a shell.

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::exit::{Code, Failure};

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    // The generator panics if it cannot write, so let it write to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "usher", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Code::Fine)
}
