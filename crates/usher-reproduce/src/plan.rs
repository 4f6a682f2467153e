// SPDX-License-Identifier: GPL-2.0-only
//! Which simulations a table asks for.
//!
//! Each row but the baselines is planned: its published effect is worked out, its names are looked up in the
//! experiment, and its baseline, its variant and usher become cells: cases to be run, each once however
//! many rows need it. All names and values are checked here, before any work begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_sim::case::{self, Case};
use usher_sim::params::Params;
use usher_sim::{Machine, Options};
use usher_topo::Source;

use crate::effect::{self, Control, Published, Statistic};
use crate::error::{ReproduceError, Result};
use crate::experiment::{
    names, Benchmark, Experiment, Length, Metric, Ours, Texts, Variant, STATISTIC,
};
use crate::place::{File, Wrong};
use crate::table::{pairs, Better, Row, Table};

/// A cell of the simulated table: a case that runs with every seed.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The case.
    pub case: Case,
    /// The machine as on a command line: a name or a path.
    machine: String,
}

impl Cell {
    /// The command that repeats one run.
    pub fn replay(&self, seed: u64) -> String {
        let case = &self.case;
        let (machine, workload) = (quoted(&self.machine), quoted(&case.workload));
        let mut line = format!("usher sim --machine {machine} --workload {workload}");
        for (key, value) in case.workload_params.given() {
            line += &format!(" --set {}", quoted(&format!("{key}={value}")));
        }
        line + &format!(" --policy {} --seed {seed}", quoted(&case.policy))
    }

    fn same(&self, other: &Cell) -> bool {
        let of = |cell: &Cell| {
            let case = &cell.case;
            (
                cell.machine.clone(),
                case.workload.clone(),
                case.policy.clone(),
            )
        };
        of(self) == of(other)
            && self.case.workload_params.given() == other.case.workload_params.given()
    }
}

/// A word of a command line as a shell takes it for one word.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,/:%@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Index of a cell, or why there is none.
pub type Ran = std::result::Result<usize, String>;

/// A row with what it takes to judge it.
#[derive(Clone, Debug)]
pub struct PlannedRow {
    /// The row.
    pub row: Row,
    /// Its effect as published.
    pub published: Published,
    /// The metric here.
    pub metric: String,
    /// Which statistic of the runs.
    pub statistic: Statistic,
    /// Whether more of the published metric is better; the metric's here, if the table does not say.
    pub higher_is_better: bool,
    /// The metric here is the inverse of the published one.
    pub inverted: bool,
    /// The baseline.
    pub baseline: Ran,
    /// The variant.
    pub variant: Ran,
    /// Usher in its place.
    pub usher: Ran,
}

/// All that an experiment runs for a table.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiment's key.
    pub key: String,
    /// The experiment's title.
    pub title: String,
    /// What the proposal does.
    pub mechanism: String,
    /// What a report tells besides.
    pub report: Texts,
    /// The experiment's file, for errors.
    pub(crate) file: File,
    /// The published table's file.
    pub table: String,
    /// The rows, in the table's order, without the baselines.
    pub rows: Vec<PlannedRow>,
    /// The cells.
    pub cells: Vec<Cell>,
    /// The seeds.
    pub seeds: Vec<u64>,
}

impl Plan {
    /// Plans what the rows of `table` ask for. `runs`: how many, if not as many as the experiment says.
    ///
    /// # Errors
    /// A row with a name that the experiment does not know, without a baseline, or with a value that the
    /// workload refuses.
    pub fn new(
        experiment: &Experiment,
        table: &Table,
        length: Length,
        runs: Option<u32>,
        first_seed: u64,
    ) -> Result<Plan> {
        let mut planner = Planner::new(experiment, table, length);
        let mut rows = Vec::new();
        for row in &table.rows {
            let (_, metric) = planner.names_of(row)?;
            let change = metric.change.is_some();
            if change || row.variant != *planner.baseline_of(metric) {
                rows.push(planner.row(row)?);
            }
        }
        if let (true, Some(last)) = (rows.is_empty(), table.rows.last()) {
            return Err(table.wrong(
                last,
                "as all others, it is a baseline, with nothing to compare; add a variant's",
            ));
        }
        let runs = u64::from(runs.unwrap_or(experiment.nr_runs(length)));
        Ok(planner.plan(rows, (first_seed..first_seed + runs).collect()))
    }

    /// Plans one row, a baseline or not, and nothing else: what its variant runs is the only cell.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn of_row(
        experiment: &Experiment,
        table: &Table,
        row: &Row,
        length: Length,
        runs: u32,
    ) -> Result<Plan> {
        let mut planner = Planner::new(experiment, table, length);
        let mut planned = planner.row(row)?;
        if let Ok(cell) = planned.variant {
            planner.cells = vec![planner.cells.swap_remove(cell)];
            planned.variant = Ok(0);
        }
        let gone = || Err("one row alone is not compared".to_string());
        (planned.baseline, planned.usher) = (gone(), gone());
        Ok(planner.plan(vec![planned], (1..=u64::from(runs)).collect()))
    }
}

struct Planner<'a> {
    experiment: &'a Experiment,
    table: &'a Table,
    length: Length,
    control: Control,
    machines: BTreeMap<String, Arc<Machine>>,
    cells: Vec<Cell>,
}

impl<'a> Planner<'a> {
    fn new(experiment: &'a Experiment, table: &'a Table, length: Length) -> Planner<'a> {
        let mut planner = Planner {
            experiment,
            table,
            length,
            control: Control::default(),
            machines: BTreeMap::new(),
            cells: Vec::new(),
        };
        planner.control = planner.control();
        planner
    }

    fn plan(self, rows: Vec<PlannedRow>, seeds: Vec<u64>) -> Plan {
        let experiment = self.experiment;
        Plan {
            key: experiment.key.clone(),
            title: experiment.title.clone(),
            mechanism: experiment.mechanism.clone(),
            report: experiment.report.clone(),
            file: experiment.file.clone(),
            table: self.table.origin.clone(),
            rows,
            cells: self.cells,
            seeds,
        }
    }

    fn unknown<T>(
        &self,
        row: &Row,
        kind: &str,
        name: &str,
        known: &BTreeMap<String, T>,
    ) -> ReproduceError {
        let what = format!(
            "{kind} `{name}` is unknown to experiment {}; known: {}",
            self.experiment.key,
            names(known)
        );
        self.table.wrong(row, what)
    }

    /// The benchmark and metric of a row, and whether the experiment knows its other names.
    fn names_of(&self, row: &Row) -> Result<(&'a Benchmark, &'a Metric)> {
        let experiment = self.experiment;
        let benchmark = experiment.benchmarks.get(&row.benchmark);
        let benchmark = benchmark.ok_or_else(|| {
            self.unknown(row, "benchmark", &row.benchmark, &experiment.benchmarks)
        })?;
        let metric = benchmark.metrics.get(&row.metric);
        let metric =
            metric.ok_or_else(|| self.unknown(row, "metric", &row.metric, &benchmark.metrics))?;
        if !experiment.machines.contains_key(&row.machine) {
            return Err(self.unknown(row, "machine", &row.machine, &experiment.machines));
        }
        if !experiment.variants.contains_key(&row.variant) {
            return Err(self.unknown(row, "variant", &row.variant, &experiment.variants));
        }
        Ok((benchmark, metric))
    }

    fn baseline_of(&self, metric: &'a Metric) -> &'a String {
        metric
            .baseline
            .as_ref()
            .unwrap_or(&self.experiment.baseline)
    }

    fn find(&self, row: &Row, variant: &str) -> Option<&'a Row> {
        let mut rows = self.table.rows.iter();
        rows.find(|other| other.place() == row.place() && other.variant == variant)
    }

    /// Whether the experiment says that a row should show no effect.
    fn is_control(&self, row: &Row) -> bool {
        let Some(noise) = &self.experiment.noise else {
            return false;
        };
        noise.variant.as_ref() == Some(&row.variant) || noise.machine.as_ref() == Some(&row.machine)
    }

    /// The noise of rows that state none, from the rows that should show no effect.
    fn control(&self) -> Control {
        let baseline = &self.experiment.baseline;
        let rows = self.table.rows.iter();
        let still = rows.filter(|row| self.is_control(row) && row.variant != *baseline);
        Control::of(still.filter_map(|row| Some((row, self.find(row, baseline)?))))
    }

    fn row(&mut self, row: &Row) -> Result<PlannedRow> {
        let (benchmark, metric) = self.names_of(row)?;
        let (params, statistic) = self.parameters(row, benchmark)?;
        let baseline_name = self.baseline_of(metric);
        let base = match metric.change {
            Some(_) => None,
            None => Some(self.find(row, baseline_name).ok_or_else(|| {
                let what = format!(
                    "there is no row with variant `{baseline_name}` to compare it with; add it, or mark the \
                     metric as a change in the experiment (change = \"pct\")"
                );
                self.table.wrong(row, what)
            })?),
        };
        let mut control = self.control.noise(&row.benchmark);
        if let (true, Some(base)) = (self.is_control(row), base) {
            // What such a row shows is noise by definition, however far it strays.
            control = control.map(|noise| noise.max(effect::stray(row, base)));
        }
        let published = effect::published(row, base, control).map_err(|what| {
            self.table
                .wrong(row, format!("value `{}`: {what}", row.value.middle()))
        })?;
        let ours_higher = metric.better == crate::experiment::Direction::Higher;
        let theirs_higher = match row.better {
            Better::Higher => true,
            Better::Lower => false,
            Better::Unstated => ours_higher,
        };
        let (ours, statistic) = self.metric(row, metric, statistic)?;
        let experiment = self.experiment;
        let variant = &experiment.variants[&row.variant];
        let at = (row, benchmark, &params);
        let usher = Variant {
            policy: experiment.usher.policy.clone(),
            set: variant.set.clone(),
            not_modelled: experiment.usher.not_modelled.clone(),
        };
        Ok(PlannedRow {
            row: row.clone(),
            published,
            metric: ours,
            statistic,
            higher_is_better: theirs_higher,
            inverted: theirs_higher != ours_higher,
            baseline: self.cell(at, &experiment.variants[baseline_name])?,
            variant: self.cell(at, variant)?,
            usher: self.cell(at, &usher)?,
        })
    }

    /// The row's parameter as parameters of the workload and a statistic.
    fn parameters(&self, row: &Row, benchmark: &Benchmark) -> Result<(Params, Option<String>)> {
        let mut params = Params::new();
        for (key, value) in benchmark
            .set
            .iter()
            .chain(self.experiment.lengths(benchmark, self.length))
        {
            params.set(key, value);
        }
        let mut statistic = None;
        for pair in pairs(&row.parameter) {
            let (key, value) = pair
                .split_once('=')
                .filter(|(key, value)| !key.is_empty() && !value.is_empty())
                .ok_or_else(|| {
                    let what = format!("parameter `{pair}` is not of the form key=value");
                    self.table.wrong(row, what)
                })?;
            let ours = benchmark.parameters.get(key);
            let ours =
                ours.ok_or_else(|| self.unknown(row, "parameter", key, &benchmark.parameters))?;
            match ours.as_str() {
                STATISTIC => statistic = Some(value.to_string()),
                _ => {
                    params.set(ours, value);
                }
            }
        }
        Ok((params, statistic))
    }

    /// The metric here and the statistic over the runs.
    fn metric(
        &self,
        row: &Row,
        metric: &Metric,
        asked: Option<String>,
    ) -> Result<(String, Statistic)> {
        let wrong = |name: &str, known: String| {
            self.table.wrong(
                row,
                format!("statistic `{name}` is unknown; known: {known}"),
            )
        };
        match (&metric.ours, asked) {
            (Ours::Name(name), None) => Ok((name.clone(), Statistic::Typical)),
            (Ours::Name(name), Some(asked)) => {
                let known = Statistic::NAMES.map(|(name, _)| name).join(", ");
                let statistic = Statistic::parse(&asked).ok_or_else(|| wrong(&asked, known))?;
                Ok((name.clone(), statistic))
            }
            (Ours::ByStatistic(by), asked) => {
                let asked = asked.unwrap_or_default();
                let name = by.get(&asked).ok_or_else(|| wrong(&asked, names(by)))?;
                Ok((name.clone(), Statistic::Typical))
            }
        }
    }

    fn machine(&mut self, row: &Row) -> Result<(String, Arc<Machine>)> {
        let name = &self.experiment.machines[&row.machine];
        if let Some(machine) = self.machines.get(name) {
            return Ok((name.clone(), Arc::clone(machine)));
        }
        let made = case::machine(&Source::Machine(name.clone()), &Params::new());
        let made = made.map_err(|error| {
            let wrong = Wrong::new(format!("machines.{}", row.machine), error);
            self.experiment.file.wrong(wrong)
        })?;
        let machine = Arc::new(made);
        self.machines.insert(name.clone(), Arc::clone(&machine));
        Ok((name.clone(), machine))
    }

    /// The cell that runs a row's workload under a variant.
    fn cell(
        &mut self,
        (row, benchmark, params): (&Row, &Benchmark, &Params),
        variant: &Variant,
    ) -> Result<Ran> {
        let Some(policy) = &variant.policy else {
            return Ok(Err(variant.not_modelled.clone().unwrap_or_default()));
        };
        let mut workload_params = params.clone();
        for (key, value) in &variant.set {
            workload_params.set(key, value);
        }
        let (machine_name, machine) = self.machine(row)?;
        let cell = Cell {
            case: Case {
                machine,
                workload: benchmark.workload.clone(),
                workload_params,
                policy: policy.clone(),
                policy_params: Params::new(),
            },
            machine: machine_name,
        };
        if let Some(there) = self.cells.iter().position(|other| other.same(&cell)) {
            return Ok(Ok(there));
        }
        let made = cell.case.simulation(1, Options::default());
        made.map_err(|error| self.table.wrong(row, error))?;
        self.cells.push(cell);
        Ok(Ok(self.cells.len() - 1))
    }
}
