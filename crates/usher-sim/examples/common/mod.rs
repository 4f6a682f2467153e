// SPDX-License-Identifier: GPL-2.0-only
//! What examples that compare policies share.
#![allow(dead_code)] // each example uses its part

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use usher_sim::case::{parse_policy, Case};
use usher_sim::grid;
use usher_sim::params::Params;
use usher_sim::{Machine, Report};
use usher_topo::Source;

/// One seed for each of the runs that an argument asks for, or of as many as are usual.
pub fn seeds(argument: Option<String>, usual: u64) -> Result<Vec<u64>, String> {
    let runs: u64 = match argument {
        Some(text) => text.parse().map_err(|e| format!("runs `{text}`: {e}"))?,
        None => usual,
    };
    Ok((1..=runs.max(1)).collect())
}

/// A machine that ships, with its own costs.
pub fn shipped(name: &str) -> Result<Arc<Machine>, Box<dyn Error>> {
    let machine = usher_sim::case::machine(&Source::Machine(name.into()), &Params::new())?;
    Ok(Arc::new(machine))
}

/// Each case with each seed.
pub fn run(cases: &[Case], seeds: &[u64]) -> Result<Vec<grid::Runs>, Box<dyn Error>> {
    Ok(grid::run(
        cases,
        seeds,
        None,
        false,
        &AtomicBool::new(false),
        || (),
    )?)
}

/// What is set (words), with a count for a share of the machine's CPUs, rounded up, in each word that ends with `%`: `jobs=50%`.
pub fn percent(set: &str, cpus: usize) -> String {
    let words = set.split_whitespace().map(|word| {
        let share = word.strip_suffix('%').and_then(|word| word.split_once('='));
        share.map_or(word.into(), |(key, share)| {
            let share: usize = share.parse().expect("a number");
            format!("{key}={}", (cpus * share).div_ceil(100))
        })
    });
    words.collect::<Vec<String>>().join(" ")
}

/// A workload, with what is set of it (words), under a policy.
pub fn case(machine: &Arc<Machine>, workload: &str, set: &str, policy: &str) -> Case {
    let (policy, policy_params) = parse_policy(policy).expect("well-formed");
    Case {
        machine: Arc::clone(machine),
        workload: workload.into(),
        workload_params: Params::parse(set.split_whitespace()).expect("well-formed"),
        policy,
        policy_params,
    }
}

/// What a run is judged by, turned over where more of it is better, so that less is.
pub fn headline(report: &Report) -> f64 {
    let value = report.metrics[&report.headline];
    match report.higher_is_better {
        true => 1.0 / value,
        false => value,
    }
}
