// SPDX-License-Identifier: GPL-2.0-only
//! Works the simulator's fitted numbers out again from the published rows that they were set by.
//!
//! A fitted number is one number of a machine or a program, with a meaning, which every experiment shares; one
//! published figure sets it (a value, or the difference or ratio of two). `data/calibration/fits.toml` lists all of
//! them. A fit looks for the value at which the simulation of those rows gives what the rows say, by halving an interval,
//! with the same seeds at every step. It changes nothing: the number in force stands where the list says, with its
//! source, and the report says how far from the fitted one it is.

mod list;

pub use list::{fits, Compare, Fit, IdleField, Parameter, RowName};

use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use serde::Serialize;
use usher_sim::case::Case;
use usher_sim::params::{format_duration, parse_duration};
use usher_sim::workload::{self, Found};
use usher_sim::{Machine, SimError};
use usher_topo::{Topology, MAX_SHARD_WIDTH};

use crate::error::{ReproduceError, Result};
use crate::experiment::Length;
use crate::plan::Plan;
use crate::results::Results;
use crate::{run, shipped};

use list::ORIGIN;

/// The interval is halved until it is narrower than this share of its middle.
const NARROW: f64 = 0.02;

/// What a fit gave.
#[derive(Clone, Debug, Serialize)]
pub struct Fitted {
    /// Its name.
    pub name: String,
    /// What the number means.
    pub is: String,
    /// Its unit.
    pub unit: String,
    /// Where the number in force stands.
    pub lives: String,
    /// The rows that set it, in words.
    pub rows: Vec<String>,
    /// What of the rows is compared: the metric, or its difference or ratio between the two, in the metric's own unit.
    pub compares: String,
    /// What the rows say of it.
    pub published: f64,
    /// The number in force.
    pub in_force: u64,
    /// What the simulation says with it.
    pub simulated_in_force: f64,
    /// The number at which the simulation says what the rows say.
    pub fitted: u64,
    /// What it says there.
    pub simulated_fitted: f64,
}

/// Simulates a fit's rows.
struct Bench<'a> {
    fit: &'a Fit,
    plans: Vec<Plan>,
    results: &'a Results,
    jobs: Option<usize>,
    stop: &'a AtomicBool,
}

impl Fit {
    /// Works the number out again. `stop` ends it early.
    ///
    /// # Errors
    /// A row or number that is not there, a run that failed, a figure that no value of the interval gives; stopped.
    pub fn again(
        &self,
        results: &Results,
        jobs: Option<usize>,
        stop: &AtomicBool,
        mut say: impl FnMut(&str),
    ) -> Result<Fitted> {
        let mut published = Vec::new();
        let mut plans = Vec::new();
        for name in &self.rows {
            let (value, plan) = self.row(name)?;
            published.push(value);
            plans.push(plan);
        }
        let in_force = self.in_force(&plans[0].cells[0].case)?;
        let bench = Bench {
            fit: self,
            plans,
            results,
            jobs,
            stop,
        };
        let target = self.compare.of(&published);
        let [mut low, mut high] = self.search;
        let mut at = |value: u64| -> Result<f64> {
            let simulated = bench.simulated(value)?;
            say(&format!(
                "{}: {value} {} gives {simulated:.4}, published is {target:.4}",
                self.name, self.unit
            ));
            Ok(simulated)
        };
        let (mut at_low, mut at_high) = (at(low)?, at(high)?);
        let rises = at_high > at_low;
        if (at_low < target) == (at_high < target) {
            return Err(self.wrong(format!(
                "{low} to {high} {} gives {at_low:.4} to {at_high:.4}, but the rows say {target:.4}; widen `search`",
                self.unit
            )));
        }
        while high > low + 1 && (high - low) as f64 > NARROW * (high + low) as f64 / 2.0 {
            let middle = low + (high - low) / 2;
            let simulated = at(middle)?;
            match (simulated < target) == rises {
                true => (low, at_low) = (middle, simulated),
                false => (high, at_high) = (middle, simulated),
            }
        }
        // Between the last two a straight line does.
        let share = ((target - at_low) / (at_high - at_low)).clamp(0.0, 1.0);
        let fitted = low + (share * (high - low) as f64).round() as u64;
        let simulated_fitted = at(fitted)?;
        Ok(Fitted {
            name: self.name.clone(),
            is: self.is.clone(),
            unit: self.unit.clone(),
            lives: self.lives.clone(),
            rows: self.rows.iter().map(RowName::words).collect(),
            compares: self.compare.words(&self.rows[0].metric),
            published: target,
            in_force,
            simulated_in_force: at(in_force)?,
            fitted,
            simulated_fitted,
        })
    }

    /// The published value of a row, and the plan that simulates it.
    fn row(&self, name: &RowName) -> Result<(f64, Plan)> {
        let loaded = shipped::load(&name.table, None)?;
        let (experiment, table) = &loaded[0];
        let row = table.rows.iter().find(|row| {
            (
                &row.machine,
                &row.benchmark,
                &row.metric,
                &row.parameter,
                &row.variant,
            ) == (
                &name.machine,
                &name.benchmark,
                &name.metric,
                &name.parameter,
                &name.variant,
            )
        });
        let row = row
            .ok_or_else(|| self.wrong(format!("{} has no row `{}`", table.origin, name.words())))?;
        let plan = Plan::of_row(experiment, table, row, Length::Quick, self.runs)?;
        Ok((row.value.middle(), plan))
    }

    /// The number in force.
    fn in_force(&self, case: &Case) -> Result<u64> {
        let machine = &case.machine;
        match &self.parameter {
            Parameter::Idle { idle_state, field } => {
                let states = &machine.costs().idle_states;
                let state = states.iter().find(|state| state.name == *idle_state);
                let state =
                    state.ok_or_else(|| self.wrong(format!("no idle state `{idle_state}`")))?;
                Ok(match field {
                    IdleField::WakeNs => state.wake_ns.unwrap_or(state.exit_ns),
                    IdleField::LlcWakeNs => state.llc_wake_ns,
                })
            }
            Parameter::Figures { figures } => self.default_of(case, &figures[0]),
            Parameter::Speed { core_type } => {
                let types = machine.topo().to_raw().core_types;
                let kind = types.iter().find(|kind| kind.name == *core_type);
                let kind = kind.ok_or_else(|| self.wrong(format!("no core type `{core_type}`")))?;
                Ok(kind.speed_permille.into())
            }
        }
    }

    /// The default of a duration of the case's workload.
    fn default_of(&self, case: &Case, key: &str) -> Result<u64> {
        let figure = match workload::find(&case.workload) {
            Ok(Found::Generator(info, _)) => info.figures.iter().find(|figure| figure.key == key),
            _ => None,
        };
        let text = figure.map(|figure| figure.default_text(case.machine.cpus().len()));
        let duration = text.and_then(|text| parse_duration(&text));
        duration.ok_or_else(|| self.wrong(format!("{} has no duration `{key}`", case.workload)))
    }

    /// The case with another number.
    fn with(&self, case: &Case, value: u64) -> Result<Case> {
        let mut case = case.clone();
        let failed = |error: SimError| self.wrong(error.to_string());
        match &self.parameter {
            Parameter::Figures { figures } => {
                let first = self.default_of(&case, &figures[0])?;
                for key in figures {
                    let own = u128::from(self.default_of(&case, key)?);
                    let scaled = own * u128::from(value) / u128::from(first.max(1));
                    case.workload_params
                        .set(key, format_duration(scaled as u64));
                }
            }
            Parameter::Idle { idle_state, field } => {
                let mut costs = case.machine.costs().clone();
                for state in costs
                    .idle_states
                    .iter_mut()
                    .filter(|state| state.name == *idle_state)
                {
                    match field {
                        IdleField::WakeNs => state.wake_ns = Some(value),
                        IdleField::LlcWakeNs => state.llc_wake_ns = value,
                    }
                }
                let machine = Machine::new(case.machine.topo().clone(), costs).map_err(failed)?;
                case.machine = Arc::new(machine);
            }
            Parameter::Speed { core_type } => {
                let mut raw = case.machine.topo().to_raw();
                for kind in raw
                    .core_types
                    .iter_mut()
                    .filter(|kind| kind.name == *core_type)
                {
                    kind.speed_permille = value as u32;
                }
                let topo = Topology::build(&raw, MAX_SHARD_WIDTH);
                let topo = topo.map_err(|error| self.wrong(error.to_string()))?;
                let machine = Machine::new(topo, case.machine.costs().clone()).map_err(failed)?;
                case.machine = Arc::new(machine);
            }
        }
        Ok(case)
    }

    fn wrong(&self, what: String) -> ReproduceError {
        ReproduceError::Experiment {
            origin: format!("{ORIGIN}: {}", self.name),
            what,
        }
    }
}

impl Bench<'_> {
    /// What the rows come to with another number, in the published metric's unit.
    fn simulated(&self, value: u64) -> Result<f64> {
        let mut plans = self.plans.clone();
        for cell in plans.iter_mut().flat_map(|plan| &mut plan.cells) {
            cell.case = self.fit.with(&cell.case, value)?;
        }
        let runs = run::run(&plans, self.results, self.jobs, self.stop, |_| ())?;
        let mut values = Vec::new();
        for (plan, runs) in plans.iter().zip(&runs) {
            let row = &plan.rows[0];
            let cell = *row
                .variant
                .as_ref()
                .map_err(|why| self.fit.wrong(why.clone()))?;
            let found: Vec<f64> = runs[cell]
                .iter()
                .flatten()
                .filter_map(|run| run.metrics.get(&row.metric).copied())
                .collect();
            if found.len() < plan.seeds.len() {
                return Err(self.fit.wrong("stopped".into()));
            }
            let factor = in_published_unit(&row.metric, &row.row.metric);
            let factor = factor.ok_or_else(|| {
                self.fit.wrong(format!(
                    "`{}` and `{}` are in units that do not convert",
                    row.metric, row.row.metric
                ))
            })?;
            values.push(row.statistic.of(found.iter().copied()) * factor);
        }
        Ok(self.fit.compare.of(&values))
    }
}

/// What a value of metric `ours` is to be multiplied with to be one of metric `theirs`; both have their unit among the
/// words of their names.
fn in_published_unit(ours: &str, theirs: &str) -> Option<f64> {
    const UNITS: [(&str, f64, char); 6] = [
        ("ns", 1e-9, 't'),
        ("us", 1e-6, 't'),
        ("ms", 1e-3, 't'),
        ("s", 1.0, 't'),
        ("pct", 0.01, 'r'),
        ("share", 1.0, 'r'),
    ];
    let unit = |name: &str| {
        let mut words = name.split(['_', '-']);
        words.find_map(|word| UNITS.iter().find(|(unit, ..)| *unit == word))
    };
    let ((_, ours, of), (_, theirs, like)) = (unit(ours)?, unit(theirs)?);
    (of == like).then(|| ours / theirs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use usher_lab::cache::Cache;

    use super::*;

    fn again(name: &str) -> Fitted {
        let fits = fits().unwrap();
        let fit = fits.iter().find(|fit| fit.name == name).unwrap();
        let results = Results::new(Cache::temporary(&format!("calibrate-{name}")), "p");
        fit.again(&results, None, &AtomicBool::new(false), |_| ())
            .unwrap_or_else(|e| panic!("{e}"))
    }

    // Goal: the fitted numbers can be worked out again from the rows that they are said to be from.
    // Method: the two that are quick. A request's time is in force to four digits. The A7's speed is in force as
    // 490: the posting's slowest run alone says 488.
    #[test]
    fn numbers_in_force_are_the_fitted_ones() {
        for (name, off_permille) in [("sysbench-request", 10), ("tc2-a7-speed", 15)] {
            let fitted = again(name);
            let off = fitted.in_force.abs_diff(fitted.fitted) * 1000 / fitted.in_force;
            assert!(off <= off_permille, "{fitted:?}");
            let error = (fitted.simulated_fitted / fitted.published - 1.0).abs();
            assert!(error < 0.02, "{fitted:?}");
        }
    }

    // Goal: no number is fitted in silence: every figure of a workload that says it is calibrated is in the list, the
    // list names numbers and rows that exist, and says in which file each number stands.
    // Method: all workloads' sources against the list, and every fit's number in force.
    #[test]
    fn the_list_is_whole() {
        let fits = fits().unwrap();
        let listed: BTreeSet<&str> = fits
            .iter()
            .filter_map(|fit| match &fit.parameter {
                Parameter::Figures { figures } => Some(figures.iter().map(String::as_str)),
                _ => None,
            })
            .flatten()
            .collect();
        for name in workload::names() {
            let Ok(Found::Generator(info, _)) = workload::find(name) else {
                continue;
            };
            for figure in info
                .figures
                .iter()
                .filter(|f| f.source.starts_with("calibrated"))
            {
                assert!(
                    listed.contains(figure.key),
                    "{name}: {} is in no fit",
                    figure.key
                );
            }
        }
        for fit in &fits {
            let (_, plan) = fit.row(&fit.rows[0]).unwrap_or_else(|e| panic!("{e}"));
            let case = &plan.cells[0].case;
            let in_force = fit.in_force(case).unwrap_or_else(|e| panic!("{e}"));
            assert!(
                (fit.search[0]..=fit.search[1]).contains(&in_force),
                "{}",
                fit.name
            );
            // Another number is another simulation.
            let other = fit
                .with(case, fit.search[0])
                .unwrap_or_else(|e| panic!("{e}"));
            let results = Results::new(Cache::temporary("calibrate-list"), "p");
            assert_ne!(
                results.inputs(&other).unwrap(),
                results.inputs(case).unwrap(),
                "{}",
                fit.name
            );
            let file = fit.lives.split(',').next().unwrap_or_default();
            let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
            assert!(Path::new(&path).is_file(), "{}: {file}", fit.name);
        }
    }

    // Goal: units of metrics convert, and those that cannot are not taken for alike.
    #[test]
    fn units_convert() {
        let close = |a: Option<f64>, b: f64| (a.unwrap() / b - 1.0).abs() < 1e-12;
        assert!(close(
            in_published_unit("latency_ns_p99", "p99-latency-us"),
            1e-3
        ));
        assert!(close(in_published_unit("time_ns", "time-s"), 1e-9));
        assert!(close(
            in_published_unit("kernel_share", "kernel-cycles-pct"),
            100.0
        ));
        assert_eq!(in_published_unit("kernel_share", "time-s"), None);
        assert_eq!(in_published_unit("frames_per_day", "time-s"), None);
    }
}
