// SPDX-License-Identifier: GPL-2.0-only
//! The usher command line: argument definitions and dispatch, nothing else.
//!
//! Each subcommand is one file of `cmd/` with its arguments and a `run()`. To add one: the file, a line
//! in `cmd::Command` and a line in `cmd::run`. What several share is in `args` (arguments), `out`
//! (tables, JSON, CSV to stdout), `interrupt` (Ctrl-C) and `exit` (exit codes, and how an error becomes
//! one).

mod args;
mod cmd;
mod exit;
mod interrupt;
mod out;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // A reader that goes away (`usher ... | head`) ends the program as it ends any other, without a panic.
    sigpipe::reset();
    exit::report(cmd::run(cmd::Cli::parse()))
}
