// SPDX-License-Identifier: GPL-2.0-only
//! Tries every interleaving of the core's protocols, or replays one.
//!
//! ```text
//! check [SCENARIO...]
//! check --bound PREEMPTIONS SCENARIO...
//! check --replay SCENARIO SCHEDULE
//! ```

use std::process::ExitCode;
use std::time::Instant;

use usher_core::model::{Build, Scenario};

const USAGE: &str = "usage: check [[--bound PREEMPTIONS] SCENARIO... | --replay SCENARIO SCHEDULE]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("check: {why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Result<ExitCode, String> {
    let build = Build::real();
    if let [flag, name, schedule] = args {
        if flag == "--replay" {
            let lines = scenario(&build, name)?.replay(schedule);
            for line in lines.map_err(|error| error.to_string())? {
                println!("{line}");
            }
            return Ok(ExitCode::SUCCESS);
        }
    }
    let (bound, args) = match &args {
        [flag, bound, rest @ ..] if flag == "--bound" => {
            let why = |_| format!("`--bound {bound}`: it must be a number from 0 to 255");
            (Some(bound.parse().map_err(why)?), rest)
        }
        all => (None, *all),
    };
    let chosen: Vec<Scenario> = if args.is_empty() {
        build.scenarios()
    } else {
        let named = args.iter().map(|name| scenario(&build, name));
        named.collect::<Result<_, _>>()?
    };
    let mut code = ExitCode::SUCCESS;
    for scenario in chosen {
        if !check(&scenario, bound) {
            code = ExitCode::from(1);
        }
    }
    Ok(code)
}

fn scenario(build: &Build, name: &str) -> Result<Scenario, String> {
    build.scenario(name).ok_or_else(|| {
        let known: Vec<&str> = build.scenarios().iter().map(Scenario::name).collect();
        format!("no scenario `{name}`; known are {}", known.join(", "))
    })
}

/// Explores one scenario and prints a line; false if a property does not hold.
fn check(scenario: &Scenario, bound: Option<u8>) -> bool {
    let start = Instant::now();
    let explored = match bound {
        Some(preemptions) => scenario.explore_bounded(preemptions),
        None => scenario.explore(),
    };
    match explored {
        Ok(report) => {
            println!(
                "{:<26} {} actors  {:>9} states  {:>9.2e} interleavings  longest {:>3}  {:.1} s",
                scenario.name(),
                scenario.nr_actors(),
                report.states,
                report.interleavings as f64,
                report.longest,
                start.elapsed().as_secs_f64(),
            );
            true
        }
        Err(failure) => {
            println!("{failure}");
            false
        }
    }
}
