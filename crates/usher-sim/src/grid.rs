// SPDX-License-Identifier: GPL-2.0-only
//! Many cases with many seeds, spread over the host's cores.
//!
//! Seeds are paired: run `i` of every case has the same seed, hence the same work. Results come back in the order of
//! the cases and seeds, whatever order the workers finished in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::PoisonError;

use rayon::prelude::*;

use crate::case::Case;
use crate::engine::Options;
use crate::error::SimError;
use crate::ids::Nanos;
use crate::report::Report;
use crate::waits::Waits;

/// A case that did not come to its end, with what is needed to repeat it.
#[derive(Debug, thiserror::Error)]
#[error("policy {policy}, seed {seed}: {error}")]
pub struct GridError {
    /// Index of the case.
    pub case: usize,
    /// Its policy.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// What happened.
    #[source]
    pub error: SimError,
}

/// The runs of one case, in order of seeds. `None`: interrupted before it was over.
pub type Runs = Vec<Option<Report>>;

/// Runs every case with every seed, `threads` at a time, or as many as the host has CPUs. With `observed` the reports have the metrics of
/// [`Waits::put_metrics`], too. `stop` ends the whole early; `done` is called after each run, from any worker.
///
/// # Errors
/// The first run, in order of cases and seeds, that failed.
///
/// # Panics
/// The host cannot start so many threads.
pub fn run(
    cases: &[Case],
    seeds: &[u64],
    threads: Option<usize>,
    observed: bool,
    stop: &AtomicBool,
    done: impl Fn() + Sync,
) -> Result<Vec<Runs>, GridError> {
    let jobs: Vec<(usize, u64)> = seeds
        .iter()
        .flat_map(|&seed| (0..cases.len()).map(move |case| (case, seed)))
        .collect();
    let one = |&(case, seed): &(usize, u64)| {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let go_on = |_| !stop.load(Ordering::Relaxed);
        let report = match observed {
            true => run_observed(&cases[case], seed, go_on),
            false => cases[case].run(seed, Options::default(), go_on),
        };
        let report = report.map_err(|error| GridError {
            case,
            policy: cases[case].policy.clone(),
            seed,
            error,
        })?;
        done();
        Ok(Some(report).filter(|report| !report.partial))
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0));
    let pool = pool.build().expect("the host has room for the threads");
    let results: Vec<Result<Option<Report>, GridError>> =
        pool.install(|| jobs.par_iter().map(one).collect());
    let mut runs: Vec<Runs> = cases
        .iter()
        .map(|_| Vec::with_capacity(seeds.len()))
        .collect();
    for ((case, _), result) in jobs.into_iter().zip(results) {
        runs[case].push(result?);
    }
    Ok(runs)
}

fn run_observed(
    case: &Case,
    seed: u64,
    go_on: impl FnMut(Nanos) -> bool,
) -> Result<Report, SimError> {
    let waits = case.waits(0)?;
    let options = Options {
        tracers: vec![Waits::observer(&waits)],
        ..Options::default()
    };
    let mut report = case.run(seed, options, go_on)?;
    let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
    waits.put_metrics(&mut report.metrics);
    Ok(report)
}
