// SPDX-License-Identifier: GPL-2.0-only
//! Runs what the plans ask for and the results do not hold yet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use usher_sim::Options;

use crate::error::{ReproduceError, Result};
use crate::plan::Plan;
use crate::results::{Results, Run};

/// The runs of a plan: by cell, in order of seeds. `None`: interrupted before it was over.
pub type Runs = Vec<Vec<Option<Run>>>;

/// How many runs the plans ask for.
pub fn total(plans: &[Plan]) -> u64 {
    let of = |plan: &Plan| (plan.cells.len() * plan.seeds.len()) as u64;
    plans.iter().map(of).sum()
}

struct Job<'a> {
    plan: usize,
    cell: usize,
    seed: usize,
    inputs: &'a [String],
}

/// Runs all plans on `jobs` threads (all CPUs, if `None`), first seeds first, so that an interrupted command
/// has something of everything. `stop` ends the whole early; `done` is called after each run and each kept
/// result, from any thread.
///
/// # Errors
/// The first run, in order of seeds, plans and cells, that failed; a metric that no run reports; the cache cannot be
/// written.
pub fn run(
    plans: &[Plan],
    results: &Results,
    jobs: Option<usize>,
    stop: &AtomicBool,
    done: impl Fn() + Sync,
) -> Result<Vec<Runs>> {
    let mut inputs = Vec::new();
    for plan in plans {
        let of = |cell: &crate::plan::Cell| {
            results
                .inputs(&cell.case)
                .map_err(|error| ReproduceError::Run {
                    error,
                    replay: cell.replay(plan.seeds[0]),
                })
        };
        inputs.push(plan.cells.iter().map(of).collect::<Result<Vec<_>>>()?);
    }
    let mut all: Vec<Job<'_>> = Vec::new();
    for (p, plan) in plans.iter().enumerate() {
        for cell in 0..plan.cells.len() {
            let inputs = &inputs[p][cell];
            all.extend((0..plan.seeds.len()).map(|seed| Job {
                plan: p,
                cell,
                seed,
                inputs,
            }));
        }
    }
    all.sort_by_key(|job| (job.seed, job.plan, job.cell));
    let next = AtomicUsize::new(0);
    let finished = Mutex::new(Vec::with_capacity(all.len()));
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(job) = all.get(index) else {
            return;
        };
        let run = run_one(&plans[job.plan], job, results, stop);
        finished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((index, run));
        done();
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or(threads) {
            scope.spawn(work);
        }
    });
    let mut finished = finished
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    finished.sort_by_key(|(index, _)| *index);
    let empty = |plan: &Plan| vec![vec![None; plan.seeds.len()]; plan.cells.len()];
    let mut out: Vec<Runs> = plans.iter().map(empty).collect();
    for (index, run) in finished {
        let job = &all[index];
        out[job.plan][job.cell][job.seed] = run?;
    }
    for (plan, runs) in plans.iter().zip(&out) {
        metrics_exist(plan, runs)?;
    }
    Ok(out)
}

/// Which metrics there are is known only of a finished run.
fn metrics_exist(plan: &Plan, runs: &Runs) -> Result<()> {
    for row in &plan.rows {
        let cells = [&row.baseline, &row.variant].map(|ran| ran.as_ref().ok());
        for cell in cells.into_iter().flatten() {
            let Some(run) = runs[*cell].iter().flatten().next() else {
                continue;
            };
            if !run.metrics.contains_key(&row.metric) {
                let names: Vec<&str> = run.metrics.keys().map(String::as_str).collect();
                let near = usher_sim::error::nearest(&row.metric, &names).join(", ");
                return Err(ReproduceError::Experiment {
                    origin: format!("experiment {}", plan.key),
                    what: format!(
                        "benchmarks.{}.metrics.{}.ours `{}`: no such metric of workload {}; nearest: {near}",
                        row.row.benchmark, row.row.metric, row.metric, plan.cells[*cell].case.workload
                    ),
                });
            }
        }
    }
    Ok(())
}

fn run_one(
    plan: &Plan,
    job: &Job<'_>,
    results: &Results,
    stop: &AtomicBool,
) -> Result<Option<Run>> {
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let (cell, seed) = (&plan.cells[job.cell], plan.seeds[job.seed]);
    if let Some(run) = results.get(job.inputs, seed) {
        return Ok(Some(run));
    }
    let go_on = |_| !stop.load(Ordering::Relaxed);
    let report = cell.case.run(seed, Options::default(), go_on);
    let report = report.map_err(|error| ReproduceError::Run {
        error,
        replay: cell.replay(seed),
    })?;
    if report.partial {
        return Ok(None);
    }
    let run = Run::from(report);
    results.put(job.inputs, seed, &run)?;
    Ok(Some(run))
}
