// SPDX-License-Identifier: GPL-2.0-only
//! A published table: what was measured where, one value a row.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::csv;
use crate::error::{ReproduceError, Result};

/// The columns, all of which must be there, in any order.
pub const COLUMNS: [&str; 10] = [
    "source",
    "machine",
    "benchmark",
    "metric",
    "better",
    "parameter",
    "variant",
    "value",
    "noise_pct",
    "note",
];

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// The publication does not say.
    Unstated,
}

impl Better {
    /// As in the column.
    pub fn name(self) -> &'static str {
        match self {
            Better::Higher => "higher",
            Better::Lower => "lower",
            Better::Unstated => "unstated",
        }
    }
}

/// A published value: a number, or a range of which only the ends are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// Lower end; the number itself if it is one.
    pub low: f64,
    /// Upper end likewise.
    pub high: f64,
    /// What rounding may have taken or added: half a unit of the last digit printed. 0 for a whole 1,
    /// the unit of a normalised column.
    pub rounding: f64,
}

impl Value {
    /// Whether it is a range.
    pub fn is_range(&self) -> bool {
        self.low != self.high
    }

    /// The number, or the geometric mean of the ends (the arithmetic one if an end is not positive).
    pub fn middle(&self) -> f64 {
        match self.is_range() {
            false => self.low,
            true if self.low > 0.0 => (self.low * self.high).sqrt(),
            true => (self.low + self.high) / 2.0,
        }
    }

    /// Reads `1.67` or `1.5..3`.
    fn parse(text: &str) -> Option<Value> {
        let number = |text: &str| {
            let number = text.trim().parse::<f64>().ok();
            number.filter(|n| *n == 0.0 || MAGNITUDES.contains(&n.abs()))
        };
        // Of the last digit printed: the power of ten that it counts.
        let unit = |text: &str| {
            let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
            let behind = digits.split_once('.').map_or(0, |(_, behind)| behind.len());
            exponent.parse::<i32>().unwrap_or(0) - behind as i32
        };
        match text.split_once("..") {
            None => number(text).map(|n| Value {
                low: n,
                high: n,
                rounding: match text.trim() {
                    "1" => 0.0,
                    text => 0.5 * 10f64.powi(unit(text)),
                },
            }),
            Some((low, high)) => {
                let (low, high) = (number(low)?, number(high)?);
                (low <= high).then_some(Value {
                    low,
                    high,
                    rounding: 0.0,
                })
            }
        }
    }
}

/// How large and how small a value other than 0 may be, either way: with that a ratio of two, and its noise, can
/// be printed and reckoned with. What is counted in other units than these has a slip in it.
const MAGNITUDES: RangeInclusive<f64> = 1e-15..=1e15;

/// The most that `noise_pct` may be.
const NOISE_PCT_MAX: f64 = 1000.0;

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Which publication: the key of the experiment.
    pub source: String,
    /// The machine's name there.
    pub machine: String,
    /// The benchmark's name there.
    pub benchmark: String,
    /// The metric's name there.
    pub metric: String,
    /// Which way it is better.
    pub better: Better,
    /// `key=value`, several separated by blanks or semicolons.
    pub parameter: String,
    /// What was varied.
    pub variant: String,
    /// The value.
    pub value: Value,
    /// Standard deviation of the value in per cent of it.
    pub noise_pct: Option<f64>,
}

impl Row {
    /// What was measured, without the variant: rows with the same place are compared.
    pub fn place(&self) -> (&str, &str, &str, &str) {
        (
            &self.machine,
            &self.benchmark,
            &self.metric,
            &self.parameter,
        )
    }

    /// The row in words, for messages.
    pub fn words(&self) -> String {
        format!(
            "{} {} {} {} {}",
            self.machine, self.benchmark, self.metric, self.parameter, self.variant
        )
    }
}

/// The rows of one publication.
#[derive(Clone, Debug)]
pub struct Table {
    /// The file's name, for messages.
    pub origin: String,
    /// In the order of the file.
    pub rows: Vec<Row>,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// A column is missing, unknown or there twice; a row has another number of fields, an empty name, a
    /// value or noise that is no number, or says the same as another row.
    pub fn parse(origin: &str, text: &str) -> Result<Table> {
        let wrong = |line, what| ReproduceError::Table {
            origin: origin.into(),
            line,
            what,
        };
        let mut records = csv::records(origin, text)?.into_iter();
        let header = records.next().ok_or_else(|| {
            let columns = COLUMNS.join(",");
            wrong(
                1,
                format!("the table is empty; its first line must be {columns}"),
            )
        })?;
        let columns = columns(&header.fields).map_err(|what| wrong(header.line, what))?;
        let mut seen = BTreeMap::new();
        let mut sense: BTreeMap<_, (usize, Better)> = BTreeMap::new();
        let mut rows = Vec::new();
        for record in records {
            let line = record.line;
            let row = row(&record, &columns, header.fields.len()).map_err(|w| wrong(line, w))?;
            if let Some(first) = seen.insert(row.words(), line) {
                let words = row.words();
                return Err(wrong(
                    line,
                    format!("row `{words}` is in line {first} already; leave one of them out"),
                ));
            }
            let place = row.place();
            let place = [place.0, place.1, place.2, place.3].map(str::to_string);
            let (first, better) = *sense.entry(place).or_insert((line, row.better));
            if better != row.better && ![better, row.better].contains(&Better::Unstated) {
                let (is, was) = (row.better.name(), better.name());
                return Err(wrong(
                    line,
                    format!("better `{is}`: line {first} says `{was}` of the same metric there; one of them is wrong"),
                ));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            let what = "the table has a header but no rows; add some".to_string();
            return Err(wrong(header.line, what));
        }
        Ok(Table {
            origin: origin.into(),
            rows,
        })
    }

    /// Reads a table from a file.
    ///
    /// # Errors
    /// As [`Table::parse`], and the file cannot be read.
    pub fn read(path: &str) -> Result<Table> {
        let text = std::fs::read_to_string(path).map_err(|source| ReproduceError::Io {
            path: path.into(),
            what: "cannot read the published table",
            source,
        })?;
        Table::parse(path, &text)
    }

    /// An error about a row, which it names.
    pub fn wrong(&self, row: &Row, what: impl std::fmt::Display) -> ReproduceError {
        ReproduceError::Table {
            origin: self.origin.clone(),
            line: row.line,
            what: format!("row `{}`: {what}", row.words()),
        }
    }

    /// The rows of one publication only.
    pub fn of_source(&self, source: &str) -> Table {
        Table {
            origin: self.origin.clone(),
            rows: self
                .rows
                .iter()
                .filter(|r| r.source == source)
                .cloned()
                .collect(),
        }
    }
}

/// The pairs of a parameter column, which need not have a `=` yet.
pub fn pairs(parameter: &str) -> impl Iterator<Item = &str> {
    parameter.split([' ', ';']).filter(|pair| !pair.is_empty())
}

/// Where each of [`COLUMNS`] is.
fn columns(header: &[String]) -> std::result::Result<Vec<usize>, String> {
    for (i, name) in header.iter().enumerate() {
        if !COLUMNS.contains(&name.as_str()) {
            let known = COLUMNS.join(", ");
            return Err(format!("unknown column `{name}`; the columns are {known}"));
        }
        if header[..i].contains(name) {
            return Err(format!("column `{name}` is there twice; leave one out"));
        }
    }
    let place = |name: &&str| {
        let place = header.iter().position(|h| h == name);
        place.ok_or_else(|| {
            format!(
                "column `{name}` is missing; the columns are {}",
                COLUMNS.join(", ")
            )
        })
    };
    COLUMNS.iter().map(place).collect()
}

fn row(record: &csv::Record, columns: &[usize], width: usize) -> std::result::Result<Row, String> {
    let found = record.fields.len();
    if found != width {
        let fields = record.fields.join(",");
        return Err(format!(
            "`{fields}` has {found} fields, but the header has {width}; quote a field that holds a comma"
        ));
    }
    let field = |name: &str| {
        let column = COLUMNS.iter().position(|c| *c == name);
        record.fields[columns[column.expect("a column's name")]].as_str()
    };
    let named = |name: &str| match field(name) {
        "" => Err(format!("`{name}` is empty; every row needs one")),
        text => Ok(text.to_string()),
    };
    let better = match field("better") {
        "higher" => Better::Higher,
        "lower" => Better::Lower,
        "unstated" => Better::Unstated,
        other => {
            return Err(format!(
                "better `{other}`: must be higher, lower or unstated"
            ))
        }
    };
    let text = field("value");
    let value = Value::parse(text)
        .ok_or_else(|| {
            format!(
                "value `{text}`: must be a number, or a range such as 1.5..3; other than 0 from {:e} to {:e} in size",
                MAGNITUDES.start(),
                MAGNITUDES.end()
            )
        })?;
    let noise_pct = match field("noise_pct") {
        "" => None,
        text => {
            let noise = text
                .parse::<f64>()
                .ok()
                .filter(|n| (0.0..=NOISE_PCT_MAX).contains(n));
            let expected = || {
                format!("noise_pct `{text}`: must be empty or a number from 0 to {NOISE_PCT_MAX}")
            };
            Some(noise.ok_or_else(expected)?)
        }
    };
    let parameter = named("parameter")?;
    let keys = pairs(&parameter).map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key));
    let keys: Vec<&str> = keys.collect();
    if let Some(twice) = keys
        .iter()
        .enumerate()
        .find(|(i, key)| keys[..*i].contains(key))
    {
        return Err(format!(
            "parameter `{parameter}`: `{}` is there twice; leave one out",
            twice.1
        ));
    }
    Ok(Row {
        line: record.line,
        source: named("source")?,
        machine: named("machine")?,
        benchmark: named("benchmark")?,
        metric: named("metric")?,
        better,
        parameter,
        variant: named("variant")?,
        value,
        noise_pct,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "source,machine,benchmark,metric,better,parameter,variant,value,noise_pct,note";

    fn error(rows: &str) -> String {
        Table::parse("t.csv", &format!("{HEADER}\n{rows}"))
            .unwrap_err()
            .to_string()
    }

    // Goal: what is wrong with a row is told with file, line, value and remedy.
    // Method: one mistake each, in the second row.
    #[test]
    fn bad_rows_are_named() {
        const GOOD: &str = "s,m,b,x,lower,p=1,base,1.5,,";
        for (bad, what) in [
            (
                "s,m,b,x,lower,p=1,new,fast,,",
                "value `fast`: must be a number, or a range such as 1.5..3",
            ),
            ("s,m,b,x,lower,p=1,new,,,", "value ``: must be a number"),
            ("s,m,b,x,lower,p=1,new,3..2,,", "value `3..2`"),
            ("s,m,b,x,lower,p=1,new,nan,,", "value `nan`"),
            (
                "s,m,b,x,lower,p=1,new,1e308,,",
                "from 1e-15 to 1e15 in size",
            ),
            ("s,m,b,x,lower,p=1,new,-1e-320,,", "value `-1e-320`"),
            ("s,m,b,x,lower,p=1,new,1,1e300,", "a number from 0 to 1000"),
            (
                "s,m,b,x,lower,p=1,new,1,-2,",
                "noise_pct `-2`: must be empty or a number from 0",
            ),
            (
                "s,m,b,x,lower,p=1 q=2;p=3,new,1,,",
                "parameter `p=1 q=2;p=3`: `p` is there twice",
            ),
            (
                "s,m,b,x,higher,p=1,new,1,,",
                "better `higher`: line 2 says `lower` of the same metric there",
            ),
            (
                "s,m,b,x,less,p=1,new,1,,",
                "better `less`: must be higher, lower or unstated",
            ),
            ("s,m,b,x,lower,p=1,,1,,", "`variant` is empty"),
            ("s,,b,x,lower,p=1,new,1,,", "`machine` is empty"),
            (
                "s,m,b,x,lower,p=1,new,1,",
                "has 9 fields, but the header has 10; quote a field",
            ),
            ("s,m,b,x,lower,p=1,new,1,,a,b", "has 11 fields"),
            (GOOD, "row `m b x p=1 base` is in line 2 already"),
        ] {
            let error = error(&format!("{GOOD}\n{bad}\n"));
            assert!(
                error.starts_with("t.csv:3: ") && error.contains(what),
                "{error}"
            );
        }
    }

    // Goal: what rounding hides is known from the digits printed, but a whole 1 is exact.
    #[test]
    fn digits_tell_the_rounding() {
        for (text, rounding) in [
            ("16.48", 0.005),
            ("37", 0.5),
            ("0.998", 0.0005),
            ("1", 0.0),
            ("1.0", 0.05),
            ("2170e-3", 0.0005),
            ("1.5e1", 0.5),
            ("-2.50E+2", 0.5),
        ] {
            let value = Value::parse(text).unwrap();
            assert!(
                (value.rounding - rounding).abs() < 1e-12,
                "{text}: {}",
                value.rounding
            );
        }
    }

    // Goal: a header that is not the table's is refused, in whatever order its columns are.
    #[test]
    fn bad_headers_are_named() {
        for (text, what) in [
            ("", "t.csv:1: the table is empty"),
            (
                "source,machine\na,b",
                "t.csv:1: column `benchmark` is missing",
            ),
            (
                &HEADER.replace("note", "remark"),
                "unknown column `remark`; the columns are source, ",
            ),
            (&format!("{HEADER},value"), "column `value` is there twice"),
            (HEADER, "t.csv:1: the table has a header but no rows"),
        ] {
            let error = Table::parse("t.csv", text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let swapped =
            "note,noise_pct,value,variant,parameter,better,metric,benchmark,machine,source\n\
                       n,2,1..4,v,p=1,higher,x,b,m,s";
        let row = &Table::parse("t.csv", swapped).unwrap().rows[0];
        assert_eq!(
            (row.words().as_str(), row.source.as_str()),
            ("m b x p=1 v", "s")
        );
        assert_eq!(
            (row.value.middle(), row.noise_pct, row.better),
            (2.0, Some(2.0), Better::Higher)
        );
    }
}
