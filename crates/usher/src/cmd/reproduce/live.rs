// SPDX-License-Identifier: GPL-2.0-only
//! `usher reproduce --live`: the real programs, where a real scheduler can be loaded.
//!
//! On a machine whose kernel has sched_ext they run on it; elsewhere in a guest of the lab, and the output says
//! that it is emulated. Either way the lab alternates schedulers, repeats, and reports.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use serde::Serialize;
use usher_lab::lab::{self, Comparison, Request};
use usher_lab::report::{self, CompareReport};
use usher_lab::{here, LabError};
use usher_reproduce::html;

use super::Format;
use crate::exit::{Code, Failure};
use crate::interrupt;

/// A program that the proposals were measured with and that runs by itself.
struct Program {
    name: &'static str,
    /// The distribution's package of it.
    package: &'static str,
    /// Arguments of a run that is long enough for a real machine.
    full: &'static str,
    /// Of a short run, which is also what a guest can do in seconds.
    quick: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "hackbench",
        package: "rt-tests",
        full: "-g 4 -l 5000",
        quick: "-g 2 -l 100",
    },
    // Without a priority its threads are ordinary ones, which are what a sched_ext scheduler places.
    Program {
        name: "cyclictest",
        package: "rt-tests",
        full: "-q -t 4 -i 1000 -l 10000",
        quick: "-q -t 4 -i 1000 -l 1000",
    },
];

/// Runs of each scheduler, if the user does not say.
const RUNS: u32 = 5;
/// The guest where there is no sched_ext here.
const SHAPE: &str = "2n2l2c2t";
const KERNEL: &str = "6.18";
/// Seconds after which a program counts as hanging.
const TIMEOUT_S: u64 = 600;

/// All programs' names, for the help and for errors.
pub fn names() -> String {
    PROGRAMS.map(|program| program.name).join(", ")
}

#[derive(Serialize)]
struct Live {
    /// Name and version of this layout.
    schema: &'static str,
    /// True: in guests, so times are function and relative cost, no speed.
    emulated: bool,
    /// One report of the lab per program.
    programs: Vec<CompareReport>,
}

/// The programs named in a list.
fn find(list: &str) -> Result<Vec<&'static Program>, LabError> {
    let one = |name: &str| {
        let program = PROGRAMS.iter().find(|program| program.name == name);
        program.ok_or_else(|| LabError::Usage {
            what: "--live",
            value: name.into(),
            why: format!(
                "known are {}; `usher lab compare` runs any command",
                names()
            ),
        })
    };
    list.split(',').map(|name| one(name.trim())).collect()
}

/// `command`: what the user gave, for the page.
pub fn run(
    list: &str,
    runs: Option<u32>,
    quick: bool,
    format: Format,
    command: &str,
) -> Result<Code, Failure> {
    let programs = find(list)?;
    let comparison = Comparison {
        schedulers: vec!["eevdf".parse()?, "usher".parse()?],
        runs: runs.unwrap_or(RUNS),
        warmup: 1,
        jobs: 1,
    };
    let emulated = !here::has_sched_ext();
    let say = |line: &str| eprintln!("usher reproduce: {line}");
    if emulated {
        say(&format!(
            "this kernel has no sched_ext, so the programs run in an emulated guest ({SHAPE}, kernel {KERNEL}): \
             times there show function and relative cost, never speed"
        ));
    } else {
        // All that cannot work is said before the first program runs.
        here::check()?;
    }
    let mut reports = Vec::new();
    for program in programs {
        let arguments = if quick || emulated {
            program.quick
        } else {
            program.full
        };
        let command: Vec<String> = std::iter::once(program.name)
            .chain(arguments.split(' '))
            .map(String::from)
            .collect();
        reports.push(match emulated {
            true => {
                let request = Request::new(SHAPE.parse()?, KERNEL, command, TIMEOUT_S);
                let compared = lab::compare(&request, &comparison, &say)?;
                report::of_comparison(&request, &comparison, &compared)
            }
            false => {
                let stop = interrupt::flag();
                let compared = here::compare(
                    &command,
                    program.package,
                    &comparison,
                    TIMEOUT_S,
                    stop,
                    &say,
                );
                if stop.load(Ordering::Relaxed) {
                    say("interrupted; the kernel's own scheduler is back");
                    return Ok(interrupt::INTERRUPTED);
                }
                report::of_comparison_here(&here::name(), &command, &comparison, &compared?)
            }
        });
    }
    let failed = |report: &CompareReport| {
        let exits = report
            .schedulers
            .iter()
            .flat_map(|scheduler| &scheduler.exits);
        exits.into_iter().any(|exit| *exit != Some(0))
    };
    let code = match reports.iter().any(failed) {
        true => Code::Other(1),
        false => Code::Fine,
    };
    print(emulated, reports, format, command)?;
    Ok(code)
}

fn print(
    emulated: bool,
    programs: Vec<CompareReport>,
    format: Format,
    command: &str,
) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    match format {
        Format::Json => {
            let live = Live {
                schema: "usher-reproduce-live/1",
                emulated,
                programs,
            };
            serde_json::to_writer_pretty(&mut stdout, &live)?;
            writeln!(stdout)?;
        }
        Format::Table => {
            for (i, report) in programs.iter().enumerate() {
                let gap = if i > 0 { "\n" } else { "" };
                write!(stdout, "{gap}{}", report.text())?;
            }
        }
        Format::Html => write!(stdout, "{}", html::live_page(&programs, command))?,
    }
    Ok(stdout.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: programs are found by name, and an unknown one is named with what there is.
    #[test]
    fn programs_are_found_or_named() {
        let found = find("hackbench, cyclictest").unwrap();
        assert_eq!((found[0].name, found[1].name), ("hackbench", "cyclictest"));
        let Err(error) = find("hackbench,tbench") else {
            panic!("tbench needs a server");
        };
        let text = error.to_string();
        assert!(
            text.contains("--live 'tbench': known are hackbench, cyclictest")
                && error.exit_code() == 2,
            "{text}"
        );
    }
}
