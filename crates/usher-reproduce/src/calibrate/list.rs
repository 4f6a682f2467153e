// SPDX-License-Identifier: GPL-2.0-only
//! The list of fitted numbers: `data/calibration/fits.toml`, read and checked.

use serde::Deserialize;

use crate::error::{ReproduceError, Result};

/// The layout that this version reads.
const SCHEMA: &str = "usher-calibration/1";
/// The list that comes with the program, and its place in the tree.
pub(super) const ORIGIN: &str = "data/calibration/fits.toml";
const TEXT: &str = include_str!("../../../../data/calibration/fits.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    schema: String,
    fit: Vec<Fit>,
}

/// A fitted number, and what sets it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Its name.
    pub name: String,
    /// What it means.
    pub is: String,
    /// Its unit.
    pub unit: String,
    /// The file and place where the number in force stands.
    pub lives: String,
    /// Which number.
    pub parameter: Parameter,
    /// Where to look for it.
    pub search: [u64; 2],
    /// Runs of each row, with seeds from 1.
    pub runs: u32,
    /// What of the rows is compared.
    pub compare: Compare,
    /// The rows.
    pub rows: Vec<RowName>,
}

/// A number of the simulator.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Parameter {
    /// Of an idle state of the rows' machine.
    Idle {
        /// The state.
        idle_state: String,
        /// Which of its numbers.
        field: IdleField,
    },
    /// Durations of the rows' workload: the first is fitted, the others keep their proportions to it.
    Figures {
        /// Their keys.
        figures: Vec<String>,
    },
    /// The speed of a core type of the rows' machine.
    Speed {
        /// The type.
        core_type: String,
    },
}

/// A number of an idle state.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleField {
    /// What an exit takes.
    WakeNs,
    /// What it takes on top where the whole last-level cache sleeps.
    LlcWakeNs,
}

/// What of the rows' values is compared, published with simulated.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// The value of one row.
    Value,
    /// The first row's less the second's.
    Difference,
    /// The first row's over the second's.
    Ratio,
}

impl Compare {
    pub(super) fn of(self, values: &[f64]) -> f64 {
        match (self, values) {
            (Compare::Difference, [a, b]) => a - b,
            (Compare::Ratio, [a, b]) => a / b,
            (_, values) => values[0],
        }
    }

    pub(super) fn words(self, metric: &str) -> String {
        match self {
            Compare::Value => metric.into(),
            Compare::Difference => format!("difference of {metric}"),
            Compare::Ratio => format!("ratio of {metric}"),
        }
    }

    fn nr_rows(self) -> usize {
        if self == Compare::Value {
            1
        } else {
            2
        }
    }
}

/// A row of a published table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowName {
    /// The table: an experiment's key.
    pub table: String,
    /// As in the table.
    pub machine: String,
    /// As in the table.
    pub benchmark: String,
    /// As in the table.
    pub metric: String,
    /// As in the table.
    pub parameter: String,
    /// As in the table.
    pub variant: String,
}

/// The fits there are.
///
/// # Errors
/// The list of the tree is wrong; it is this program's own, so that is a mistake in the tree.
pub fn fits() -> Result<Vec<Fit>> {
    let wrong = |what: String| ReproduceError::Experiment {
        origin: ORIGIN.into(),
        what,
    };
    let list: List = toml::from_str(TEXT).map_err(|error| wrong(error.to_string()))?;
    if list.schema != SCHEMA {
        return Err(wrong(format!(
            "schema `{}`: this version reads `{SCHEMA}`",
            list.schema
        )));
    }
    for fit in &list.fit {
        let (found, takes) = (fit.rows.len(), fit.compare.nr_rows());
        if found != takes {
            return Err(wrong(format!(
                "{}: {found} rows, but this takes {takes}",
                fit.name
            )));
        }
    }
    Ok(list.fit)
}

impl RowName {
    /// The row in words, for messages.
    pub fn words(&self) -> String {
        format!(
            "{}: {} {} {} {} {}",
            self.table, self.machine, self.benchmark, self.metric, self.parameter, self.variant
        )
    }
}
