// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench`: small programs that show on the running kernel what its scheduler does. Meant for guests of
//! `usher lab`; they run on any Linux machine.

mod latency;
mod measure;
mod misfit;
mod reckon;

use clap::Subcommand;

use crate::exit::{Code, Failure};

/// Measure what the running kernel's scheduler does with tasks made for it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    LatencyUnderBatch(latency::Args),
    Misfit(misfit::Args),
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    match &args.bench {
        Bench::LatencyUnderBatch(args) => latency::run(args),
        Bench::Misfit(args) => misfit::run(args),
    }
}
