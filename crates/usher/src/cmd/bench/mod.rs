// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench`: small programs that show on the running kernel what its scheduler does. Meant for guests of
//! `usher lab`; they run on any Linux machine.

mod costs;
mod latency;
mod lines;
mod measure;
mod misfit;
mod reckon;
mod requests;

use std::io::Write as _;

use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use crate::exit::{Code, Failure};

/// Measure what the running kernel's scheduler does with tasks made for it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Costs(costs::Args),
    LatencyUnderBatch(latency::Args),
    Lines(lines::Args),
    Misfit(misfit::Args),
    Requests(requests::Args),
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    match &args.bench {
        Bench::Costs(args) => costs::run(args),
        Bench::LatencyUnderBatch(args) => latency::run(args),
        Bench::Lines(args) => lines::run(args),
        Bench::Misfit(args) => misfit::run(args),
        Bench::Requests(args) => requests::run(args),
    }
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One JSON object
    Json,
}

impl Format {
    fn print<T: Serialize>(self, report: &T, text: fn(&T) -> String) -> Result<(), Failure> {
        let said = match self {
            Format::Table => text(report),
            Format::Json => serde_json::to_string_pretty(report)? + "\n",
        };
        Ok(std::io::stdout().write_all(said.as_bytes())?)
    }
}

/// Refuses work that does not fit between two wakeups: the task would never sleep, and wake late by its own doing.
fn fits(work: (&str, u64), period: (&str, u64), unit_us: u64) -> Result<(), Failure> {
    match work.1 < period.1 * unit_us {
        true => Ok(()),
        false => Err(wrong_use(format!(
            "{} {} does not fit between wakeups of {} {}; take less work or a longer period",
            work.0, work.1, period.0, period.1
        ))),
    }
}

/// What the options ask for and cannot be.
fn wrong_use(what: String) -> Failure {
    Failure {
        code: Code::WrongUse,
        error: anyhow::Error::msg(what),
    }
}

/// What this machine lacks for the measurement.
fn environment(what: String) -> Failure {
    Failure {
        code: Code::Environment,
        error: anyhow::Error::msg(what),
    }
}
