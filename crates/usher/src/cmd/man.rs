// SPDX-License-Identifier: GPL-2.0-only
//! `usher man`: manual pages.

use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::exit::{Code, Failure};

/// Print the manual page, or write all of them
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Write the pages of usher and its subcommands to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let command = super::Cli::command();
    match &args.out {
        None => clap_mangen::Man::new(command).render(&mut io::stdout())?,
        Some(dir) => {
            let written = std::fs::create_dir_all(dir)
                .and_then(|()| clap_mangen::generate_to(command, dir))
                .with_context(|| dir.display().to_string());
            written.map_err(|error| Failure {
                code: Code::WrongUse,
                error,
            })?;
        }
    }
    Ok(Code::Fine)
}
