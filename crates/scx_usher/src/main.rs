// SPDX-License-Identifier: GPL-2.0-only
//! scx_usher: loads the placement core into the kernel as a sched_ext scheduler, and watches over it.

mod args;
mod arena;
mod environment;
mod failure;
mod scheduler;
mod shared;
mod skel;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let args = args::Args::parse();
    match scheduler::run(&args) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => { eprintln!("scx_usher: {}", failure::one_line(&e)); failure::exit_code(&e).into() }
    }
}
