// SPDX-License-Identifier: GPL-2.0-only
//! `usher calibrate`: the simulator's fitted numbers, worked out again.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use clap::ValueEnum;
use serde::Serialize;
use usher_report::table::short;
use usher_reproduce::calibrate::{fits, Fit, Fitted};
use usher_reproduce::Results;

use crate::args::JobsArgs;
use crate::exit::{Code, Failure};
use crate::{interrupt, out};

/// Work the simulator's fitted numbers out again, from the published rows that they were set by
///
/// Few numbers were: data/calibration/fits.toml lists them all, with the rows. This changes none; it prints each
/// beside the one in force, and where that stands.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example: usher calibrate zen3-llc-wake")]
pub struct Args {
    /// The number; all if not given
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    jobs: JobsArgs,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One object, schema usher-calibrate/1
    Json,
}

#[derive(Serialize)]
struct Calibrated {
    /// Name and version of this layout.
    schema: &'static str,
    /// The numbers.
    fits: Vec<Fitted>,
    /// Interrupted: some numbers are missing.
    partial: bool,
}

fn chosen(name: Option<&str>) -> Result<Vec<Fit>, Failure> {
    let all = fits()?;
    let Some(name) = name else {
        return Ok(all);
    };
    let known: Vec<String> = all.iter().map(|fit| fit.name.clone()).collect();
    let found: Vec<Fit> = all.into_iter().filter(|fit| fit.name == name).collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(Failure {
            code: Code::WrongUse,
            error: anyhow::anyhow!("unknown number `{name}`; known: {}", known.join(", ")),
        }),
    }
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let results = Results::open()?;
    let jobs = args.jobs.given();
    let mut all = Vec::new();
    let mut partial = false;
    for fit in chosen(args.name.as_deref())? {
        let say = |line: &str| eprintln!("usher calibrate: {line}");
        let fitted = fit.again(&results, jobs, interrupt::flag(), say);
        partial = fitted.is_err() && interrupt::flag().load(Ordering::Relaxed);
        if partial {
            break;
        }
        all.push(fitted?);
    }
    let mut stdout = anstream::stdout().lock();
    match args.format {
        Format::Json => {
            let calibrated = Calibrated {
                schema: "usher-calibrate/1",
                fits: all,
                partial,
            };
            serde_json::to_writer_pretty(&mut stdout, &calibrated)?;
            writeln!(stdout)?;
        }
        Format::Table => {
            print(&all, &mut stdout)?;
            if partial {
                writeln!(stdout, "interrupted: some numbers are missing")?;
            }
        }
    }
    Ok(if partial {
        interrupt::INTERRUPTED
    } else {
        Code::Fine
    })
}

fn print(all: &[Fitted], stdout: &mut impl std::io::Write) -> Result<(), Failure> {
    let header = [
        "number",
        "unit",
        "in force",
        "fitted",
        "off",
        "published",
        "with it",
        "in force gives",
    ];
    let mut table = out::table(&header, &header[2..]);
    for fit in all {
        let off = (fit.in_force as f64 / fit.fitted as f64 - 1.0) * 100.0;
        table.add_row([
            fit.name.clone(),
            fit.unit.clone(),
            fit.in_force.to_string(),
            fit.fitted.to_string(),
            format!("{off:+.1} %"),
            short(fit.published),
            short(fit.simulated_fitted),
            short(fit.simulated_in_force),
        ]);
    }
    for line in table.to_string().lines() {
        writeln!(stdout, "{}", line.trim_end())?;
    }
    for fit in all {
        writeln!(
            stdout,
            "\n{}: {}\n  stands in {}\n  compared is the {}",
            fit.name, fit.is, fit.lives, fit.compares
        )?;
        for row in &fit.rows {
            writeln!(stdout, "  set by {row}")?;
        }
    }
    Ok(())
}
