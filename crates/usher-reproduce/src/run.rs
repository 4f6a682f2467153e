// SPDX-License-Identifier: GPL-2.0-only
//! Runs what the plans ask for and the results do not hold yet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use usher_sim::Options;

use crate::error::{ReproduceError, Result};
use crate::place::Wrong;
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

/// What the runs of a cell took, and how many it has yet to do.
#[derive(Clone, Default)]
struct Pace {
    left: u32,
    timed: u32,
    took: Duration,
}

impl Pace {
    /// One run is over. It took so long, unless its result was kept.
    fn ran(&mut self, took: Option<Duration>) {
        self.left -= 1;
        if let Some(took) = took {
            self.timed += 1;
            self.took += took;
        }
    }
}

/// How long all that is left takes on so many threads, each run as long as those of its cell took. Where none has run yet,
/// as long as others. Runs differ by a factor of a thousand, and the first seeds of all come first, so that their
/// number says little.
fn time_left(cells: &[Vec<Pace>], threads: usize) -> Duration {
    let mean = |cell: &Pace| cell.took.as_secs_f64() / f64::from(cell.timed);
    let timed = cells.iter().flatten().filter(|cell| cell.timed > 0);
    let others = timed.clone().map(mean).sum::<f64>() / timed.count().max(1) as f64;
    let of = |cell: &Pace| match cell.timed {
        0 => others * f64::from(cell.left),
        _ => mean(cell) * f64::from(cell.left),
    };
    let left: f64 = cells.iter().flatten().map(of).sum();
    Duration::from_secs_f64(left / threads.max(1) as f64)
}

/// Runs all plans on `jobs` threads (all CPUs, if `None`), first seeds first, so that an interrupted command
/// has something of everything. `stop` ends the whole early; `done` is called after each run and each kept
/// result, from any thread, with how long the rest will take.
///
/// # Errors
/// The first run, in order of seeds, plans and cells, that failed; a metric that no run reports; the cache cannot be
/// written.
pub fn run(
    plans: &[Plan],
    results: &Results,
    jobs: Option<usize>,
    stop: &AtomicBool,
    done: impl Fn(Duration) + Sync,
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
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = jobs.unwrap_or(threads);
    let next = AtomicUsize::new(0);
    let of = |plan: &Plan| {
        let left = plan.seeds.len() as u32;
        let cell = Pace {
            left,
            ..Pace::default()
        };
        vec![cell; plan.cells.len()]
    };
    let cells: Vec<Vec<Pace>> = plans.iter().map(of).collect();
    let finished = Mutex::new((Vec::with_capacity(all.len()), cells));
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(job) = all.get(index) else {
            return;
        };
        let run = run_one(&plans[job.plan], job, results, stop);
        let mut finished = finished.lock().unwrap_or_else(PoisonError::into_inner);
        let (runs, cells) = &mut *finished;
        cells[job.plan][job.cell].ran(run.as_ref().ok().and_then(|(_, took)| *took));
        runs.push((index, run));
        let left = time_left(cells, threads);
        drop(finished);
        done(left);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (mut finished, _) = finished
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    finished.sort_by_key(|(index, _)| *index);
    let empty = |plan: &Plan| vec![vec![None; plan.seeds.len()]; plan.cells.len()];
    let mut out: Vec<Runs> = plans.iter().map(empty).collect();
    for (index, run) in finished {
        let job = &all[index];
        (out[job.plan][job.cell][job.seed], _) = run?;
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
                let at = format!(
                    "benchmarks.{}.metrics.{}.ours",
                    row.row.benchmark, row.row.metric
                );
                let what = format!(
                    "`{}`: no such metric of workload {}; nearest: {near}",
                    row.metric, plan.cells[*cell].case.workload
                );
                return Err(plan.file.wrong(Wrong::new(at, what)));
            }
        }
    }
    Ok(())
}

/// A run, unless stopped before it was over, and how long it took, unless its result was kept.
fn run_one(
    plan: &Plan,
    job: &Job<'_>,
    results: &Results,
    stop: &AtomicBool,
) -> Result<(Option<Run>, Option<Duration>)> {
    if stop.load(Ordering::Relaxed) {
        return Ok((None, None));
    }
    let (cell, seed) = (&plan.cells[job.cell], plan.seeds[job.seed]);
    if let Some(run) = results.get(job.inputs, seed) {
        return Ok((Some(run), None));
    }
    let begun = Instant::now();
    let go_on = |_| !stop.load(Ordering::Relaxed);
    let report = cell.case.run(seed, Options::default(), go_on);
    let report = report.map_err(|error| ReproduceError::Run {
        error,
        replay: cell.replay(seed),
    })?;
    if report.partial {
        return Ok((None, None));
    }
    let run = Run::from(report);
    results.put(job.inputs, seed, &run)?;
    Ok((Some(run), Some(begun.elapsed())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell of which so many runs are left, and which took so many seconds for each one before.
    fn cell(left: u32, seconds: &[u64]) -> Pace {
        let mut cell = Pace {
            left: left + seconds.len() as u32,
            ..Pace::default()
        };
        for &seconds in seconds {
            cell.ran(Some(Duration::from_secs(seconds)));
        }
        cell
    }

    // Goal: the time left is that of the runs left, not of those that happened to come first.
    // Method: sums worked out by hand.
    #[test]
    fn time_left_is_that_of_the_cells_with_runs_left() {
        let seconds = Duration::from_secs;
        assert_eq!(time_left(&[], 2), seconds(0), "nothing to do");
        assert_eq!(
            time_left(&[vec![cell(9, &[])]], 2),
            seconds(0),
            "nothing known"
        );
        let cells = [
            vec![cell(0, &[100, 100]), cell(4, &[2, 4])],
            vec![cell(8, &[1])],
        ];
        assert_eq!(time_left(&cells, 1), seconds(4 * 3 + 8));
        assert_eq!(time_left(&cells, 2), seconds(10));
        // One that never ran counts as the mean of the others.
        let cells = [vec![cell(1, &[10]), cell(1, &[20])], vec![cell(2, &[])]];
        assert_eq!(time_left(&cells, 1), seconds(10 + 20 + 2 * 15));
        // What was kept takes no time, and says nothing of what is left.
        let mut kept = cell(3, &[5]);
        kept.ran(None);
        assert_eq!(time_left(&[vec![kept]], 1), seconds(2 * 5));
    }
}
