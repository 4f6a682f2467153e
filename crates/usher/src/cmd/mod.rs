// SPDX-License-Identifier: GPL-2.0-only
//! The subcommands.

mod bench;
mod calibrate;
mod compare;
mod completions;
mod doctor;
mod explain;
mod hint;
mod lab;
mod load;
mod man;
mod program;
mod reproduce;
mod sim;
mod top;
mod topo;
mod waits;

use clap::{Parser, Subcommand};

use crate::exit::{Code, Failure};

/// usher puts Linux tasks on the right CPU.
#[derive(Debug, Parser)]
#[command(name = "usher", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 fine, 1 regression or property violated, 2 wrong use, 3 the environment lacks something, \
                  4 ejected by the kernel, 5 nondeterminism, 130 interrupted (what there is was printed)"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Topo(topo::Args),
    Sim(sim::Args),
    Compare(compare::Args),
    Reproduce(reproduce::Args),
    Calibrate(calibrate::Args),
    Lab(lab::Args),
    Load(load::Args),
    Bench(bench::Args),
    Hint(hint::Args),
    Explain(explain::Args),
    Top(top::Args),
    Waits(waits::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Runs what the command line asks for.
pub fn run(cli: Cli) -> Result<Code, Failure> {
    match cli.command {
        Command::Topo(args) => topo::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Hint(args) => hint::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Waits(args) => waits::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
