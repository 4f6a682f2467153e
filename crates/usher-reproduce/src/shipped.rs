// SPDX-License-Identifier: GPL-2.0-only
//! The experiments that come with the program, and how a name becomes an experiment with its table.

use usher_topo::machine::{beside, is_path};

use crate::error::{ReproduceError, Result};
use crate::experiment::Experiment;
use crate::picture::Picture;
use crate::table::Table;

macro_rules! shipped {
    ($($key:literal),* $(,)?) => {
        &[$((
            $key,
            include_str!(concat!("../../../data/experiments/", $key, ".toml")),
            include_str!(concat!("../../../data/published/", $key, ".csv")),
            include_str!(concat!("../../../data/experiments/", $key, ".svg")),
        )),*]
    };
}

/// Key, experiment, table and picture of each.
const SHIPPED: &[(&str, &str, &str, &str)] = shipped![
    "llc-idle-mask",
    "placement-hints",
    "node-idle-mask",
    "node-cpupri",
    "mixed-capacity",
];

/// The keys of all, in order.
pub fn keys() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(key, ..)| *key)
}

/// What `name` stands for: `all`, a key, or the path of an experiment file (with a `/` or the ending
/// `.toml`), each with its table, or with the rows of the table at `published` that are its own.
///
/// # Errors
/// No such experiment, a file that cannot be read or used, a table without a row of the experiment, or with
/// rows of another one.
pub fn load(name: &str, published: Option<&str>) -> Result<Vec<(Experiment, Table)>> {
    let given = published.map(Table::read).transpose()?;
    if let Some(files) = SHIPPED.iter().find(|(key, ..)| *key == name) {
        return Ok(vec![shipped(files, given.as_ref())?]);
    }
    if name == "all" {
        let of = |files: &(&str, &str, &str, &str)| {
            let rows = given.as_ref().map(|table| table.of_source(files.0));
            let rows = rows.filter(|table| !table.rows.is_empty());
            match (&given, &rows) {
                (Some(_), None) => None,
                _ => Some(shipped(files, rows.as_ref())),
            }
        };
        if let Some(table) = &given {
            known_sources(table)?;
        }
        return SHIPPED.iter().filter_map(of).collect();
    }
    if is_path(name) {
        let mut experiment = Experiment::parse(name, &read(name, "cannot read the experiment")?)?;
        if let Some(picture) = &experiment.report.picture {
            let path = beside(name, picture);
            let text = read(&path, "cannot read the picture")?;
            experiment.report.drawn = Some(Picture::parse(&path, &text)?);
        }
        let table = match given {
            Some(table) => table,
            None => Table::read(&beside(name, &experiment.table))?,
        };
        own(&experiment, &table)?;
        return Ok(vec![(experiment, table)]);
    }
    Err(ReproduceError::NoSuchExperiment {
        name: name.into(),
        known: keys().collect::<Vec<_>>().join(", "),
    })
}

fn read(path: &str, what: &'static str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| ReproduceError::Io {
        path: path.into(),
        what,
        source,
    })
}

/// An experiment that comes with the program, with its own table or the one given.
fn shipped(
    (key, toml, csv, svg): &(&str, &str, &str, &str),
    given: Option<&Table>,
) -> Result<(Experiment, Table)> {
    let mut experiment = Experiment::parse(&format!("data/experiments/{key}.toml"), toml)?;
    let picture = Picture::parse(&format!("data/experiments/{key}.svg"), svg)?;
    experiment.report.drawn = Some(picture);
    let table = match given {
        Some(table) => table.clone(),
        None => Table::parse(&format!("data/published/{key}.csv"), csv)?,
    };
    own(&experiment, &table)?;
    Ok((experiment, table))
}

/// Refuses rows of another publication.
fn own(experiment: &Experiment, table: &Table) -> Result<()> {
    match table.rows.iter().find(|row| row.source != experiment.key) {
        None => Ok(()),
        Some(row) => Err(table.wrong(
            row,
            format!(
                "its source is `{}`, but the experiment is `{}`; name that experiment, or take the row out",
                row.source, experiment.key
            ),
        )),
    }
}

/// Refuses rows of a publication that no shipped experiment is of.
fn known_sources(table: &Table) -> Result<()> {
    match table
        .rows
        .iter()
        .find(|row| !keys().any(|key| key == row.source))
    {
        None => Ok(()),
        Some(row) => {
            let known = keys().collect::<Vec<_>>().join(", ");
            Err(table.wrong(
                row,
                format!("unknown source `{}`; known: {known}", row.source),
            ))
        }
    }
}
