// SPDX-License-Identifier: GPL-2.0-only
//! `usher doctor`: what this machine lacks.

use std::io::{self, Write as _};
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;
use usher_lab::cache::Cache;
use usher_lab::doctor::{self, Check, Machine, Part, State};
use usher_lab::here;

use crate::exit::{Code, Failure};
use crate::out;

/// Say what this machine lacks for scx_usher on its own kernel, and for guests, and what to do about it.
///
/// Nothing is loaded, fetched or changed. Exit code: 0 if nothing is missing, 3 if something is; what is optional does
/// not count.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Look at one part only [default: both]
    #[arg(value_enum)]
    part: Option<What>,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// scx_usher on the running kernel
    Scheduler,
    /// Guests in emulated machines
    Lab,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    kernel: &'a str,
    missing: usize,
    checks: &'a [Check],
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let mut checks = Vec::new();
    if args.part != Some(What::Lab) {
        checks.extend(scheduler());
    }
    if args.part != Some(What::Scheduler) {
        checks.extend(doctor::lab(&Cache::open()?)?);
    }
    let missing = checks.iter().filter(|c| c.state == State::Missing).count();
    let mut to = anstream::stdout().lock();
    match args.format {
        Format::Table => print(&mut to, &checks)?,
        Format::Json => {
            let json = Json {
                schema: "usher-doctor/1",
                kernel: &here::release(),
                missing,
                checks: &checks,
            };
            serde_json::to_writer(&mut to, &json)?;
            writeln!(to)?;
        }
    }
    Ok(match missing {
        0 => Code::Fine,
        _ => Code::Environment,
    })
}

/// What scx_usher needs of the machine at hand.
pub fn scheduler() -> Vec<Check> {
    let machine = Machine {
        root: Path::new("/"),
        // SAFETY: no pointers, and it cannot fail.
        uid: unsafe { libc::geteuid() },
        release: &here::release(),
    };
    machine.scheduler()
}

/// A table per part, and below it what to do.
fn print(to: &mut impl io::Write, checks: &[Check]) -> io::Result<()> {
    let parts = [
        (Part::Scheduler, "scx_usher on this kernel"),
        (Part::Lab, "guests (usher lab)"),
    ];
    for (part, title) in parts {
        let of_part: Vec<&Check> = checks.iter().filter(|c| c.part == part).collect();
        if of_part.is_empty() {
            continue;
        }
        let mut table = out::table(&["check", "", "found"], &[]);
        for check in &of_part {
            let state = match check.state {
                State::Fine => "fine",
                State::Optional => "optional",
                State::Missing => "MISSING",
            };
            table.add_row([check.name, state, &check.found]);
        }
        out::section(to, title, &table)?;
        for check in of_part.iter().filter(|c| !c.remedy.is_empty()) {
            writeln!(to, "  {}: {}", check.name, check.remedy)?;
        }
    }
    Ok(())
}
