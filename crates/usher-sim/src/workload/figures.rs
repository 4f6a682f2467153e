// SPDX-License-Identifier: GPL-2.0-only
//! The figures of a workload: everything about it that can be turned with `--set`, each with its default,
//! its meaning and where the default comes from.
//!
//! A generator declares a table of [`Figure`]s and reads them through [`Args`]; nothing physical is
//! written anywhere else, so that a calibration moves a figure for every experiment at once, and so that
//! the list a user sees is the list in force.

use std::collections::BTreeMap;

use crate::error::SimError;
use crate::ids::Nanos;
use crate::machine::Machine;
use crate::params::{format_duration, Params};

/// One parameter of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its key, as in `--set key=value`.
    pub key: &'static str,
    /// What kind of value it takes, and its default.
    pub kind: Kind,
    /// What it means, one line.
    pub meaning: &'static str,
    /// Where the default comes from: a program's own default, a publication, or `assumed`.
    pub source: &'static str,
}

/// The kind of a parameter's value, with default and bounds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number.
    Count {
        /// Unless given.
        default: u64,
        /// Lowest legal value.
        low: u64,
        /// Highest legal value.
        high: u64,
    },
    /// A whole number whose default is the machine's number of CPUs divided by this, at least 1.
    PerCpus {
        /// CPUs per unit.
        cpus: u64,
        /// Highest legal value; the lowest is 1.
        high: u64,
    },
    /// A duration of at least `low`.
    Duration {
        /// Unless given.
        default: Nanos,
        /// Lowest legal value.
        low: Nanos,
    },
    /// `true` or `false`.
    Flag(bool),
    /// One of a list of words, the first of which is the default.
    Choice(&'static [&'static str]),
    /// Free text; the builder checks it.
    Text(&'static str),
}

/// A count with default and bounds.
pub(super) const fn count(
    key: &'static str,
    default: u64,
    (low, high): (u64, u64),
    meaning: &'static str,
    source: &'static str,
) -> Figure {
    Figure {
        key,
        kind: Kind::Count { default, low, high },
        meaning,
        source,
    }
}

/// A duration that may be zero.
pub(super) const fn time(
    key: &'static str,
    default: Nanos,
    meaning: &'static str,
    source: &'static str,
) -> Figure {
    Figure {
        key,
        kind: Kind::Duration { default, low: 0 },
        meaning,
        source,
    }
}

/// A duration that may not be zero.
pub(super) const fn span(
    key: &'static str,
    default: Nanos,
    meaning: &'static str,
    source: &'static str,
) -> Figure {
    Figure {
        key,
        kind: Kind::Duration { default, low: 1 },
        meaning,
        source,
    }
}

/// A word out of a list; the first is the default.
pub(super) const fn choice(
    key: &'static str,
    words: &'static [&'static str],
    meaning: &'static str,
    source: &'static str,
) -> Figure {
    Figure {
        key,
        kind: Kind::Choice(words),
        meaning,
        source,
    }
}

/// The usual figure for a task's working set.
pub(super) const fn footprint(key: &'static str, kib: u64) -> Figure {
    count(
        key,
        kib,
        (0, 1 << 24),
        "working set of one task in KiB, fetched again where the caches do not hold it",
        "assumed",
    )
}

/// One microsecond.
pub(super) const US: Nanos = 1_000;
/// One millisecond.
pub(super) const MS: Nanos = 1_000_000;
/// One second.
pub(super) const S: Nanos = 1_000_000_000;

impl Figure {
    /// The default as one would write it after `--set key=`, on a machine with this many CPUs.
    pub fn default_text(&self, nr_cpus: usize) -> String {
        match self.kind {
            Kind::Count { default, .. } => default.to_string(),
            Kind::PerCpus { cpus, .. } => per_cpus(nr_cpus, cpus).to_string(),
            Kind::Duration { default, .. } => format_duration(default),
            Kind::Flag(default) => default.to_string(),
            Kind::Choice(words) => words[0].into(),
            Kind::Text(default) => default.into(),
        }
    }
}

/// A figure as a user is told of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Described {
    /// Its key, as in `--set key=value`.
    pub key: &'static str,
    /// What it is unless given.
    pub default: String,
    /// What it may be.
    pub values: String,
    /// What it means.
    pub meaning: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
}

impl Figure {
    /// On a machine with this many CPUs.
    pub fn described(&self, nr_cpus: usize) -> Described {
        let values = match self.kind {
            Kind::Count { low, high, .. } => format!("{low} to {high}"),
            Kind::PerCpus { high, .. } => format!("1 to {high}"),
            Kind::Duration { low: 0, .. } => "a duration".into(),
            Kind::Duration { low, .. } => {
                format!("a duration of at least {}", format_duration(low))
            }
            Kind::Flag(_) => "true or false".into(),
            Kind::Choice(words) => words.join(", "),
            Kind::Text(_) => "text".into(),
        };
        Described {
            key: self.key,
            default: self.default_text(nr_cpus),
            values,
            meaning: self.meaning,
            source: self.source,
        }
    }
}

fn per_cpus(nr_cpus: usize, cpus: u64) -> u64 {
    (nr_cpus as u64 / cpus).max(1)
}

#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    Flag(bool),
    Word(&'static str),
    Text(String),
}

/// The values in force of a workload's figures, and the machine it is built for.
///
/// The getters panic on a key that the workload's table does not declare, or declares with another kind:
/// a mistake of this crate, not of a user, and every workload is built in the tests.
#[derive(Debug)]
pub struct Args<'a> {
    values: BTreeMap<&'static str, Value>,
    /// The machine.
    pub machine: &'a Machine,
}

impl<'a> Args<'a> {
    /// Reads all figures of a table.
    ///
    /// # Errors
    /// A value of the wrong form or out of bounds.
    pub fn read(
        figures: &[Figure],
        params: &mut Params,
        machine: &'a Machine,
    ) -> Result<Args<'a>, SimError> {
        let mut values = BTreeMap::new();
        for figure in figures {
            let key = figure.key;
            let value = match figure.kind {
                Kind::Count { default, low, high } => {
                    Value::Number(params.u64(key, default, low..=high)?)
                }
                Kind::PerCpus { cpus, high } => Value::Number(params.u64(
                    key,
                    per_cpus(machine.cpus().len(), cpus),
                    1..=high,
                )?),
                Kind::Duration { default, low } => {
                    let ns = params.duration(key, default)?;
                    if ns < low {
                        return Err(bad(
                            key,
                            format!("must be at least {}", format_duration(low)),
                        ));
                    }
                    Value::Number(ns)
                }
                Kind::Flag(default) => Value::Flag(params.bool(key, default)?),
                Kind::Choice(words) => Value::Word(params.choice(key, words[0], words)?),
                Kind::Text(default) => Value::Text(params.text(key, default)),
            };
            values.insert(key, value);
        }
        Ok(Args { values, machine })
    }

    fn value(&self, key: &str) -> &Value {
        self.values
            .get(key)
            .unwrap_or_else(|| panic!("figure `{key}` is not declared"))
    }

    /// A count, or a duration in nanoseconds.
    pub fn get(&self, key: &str) -> u64 {
        match self.value(key) {
            Value::Number(n) => *n,
            other => panic!("figure `{key}` is no number but {other:?}"),
        }
    }

    /// A count that is known to fit 32 bits by its bounds.
    pub fn get_u32(&self, key: &str) -> u32 {
        u32::try_from(self.get(key)).unwrap_or_else(|_| panic!("bounds of `{key}` exceed 32 bits"))
    }

    /// A flag.
    pub fn flag(&self, key: &str) -> bool {
        match self.value(key) {
            Value::Flag(on) => *on,
            other => panic!("figure `{key}` is no flag but {other:?}"),
        }
    }

    /// The chosen word.
    pub fn word(&self, key: &str) -> &'static str {
        match self.value(key) {
            Value::Word(word) => word,
            other => panic!("figure `{key}` is no choice but {other:?}"),
        }
    }

    /// Free text.
    pub fn text(&self, key: &str) -> &str {
        match self.value(key) {
            Value::Text(text) => text,
            other => panic!("figure `{key}` is no text but {other:?}"),
        }
    }

    /// The bounds of a range given as two figures.
    ///
    /// # Errors
    /// The range runs backwards.
    pub fn range(&self, low: &str, high: &str) -> Result<(u64, u64), SimError> {
        let (a, b) = (self.get(low), self.get(high));
        if a > b {
            return Err(bad(
                low,
                format!("is {a}, more than `{high}`, which is {b}; lower it"),
            ));
        }
        Ok((a, b))
    }
}

/// A complaint about a parameter.
pub(super) fn bad(key: &str, what: impl Into<String>) -> SimError {
    SimError::Parameter {
        key: key.into(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use usher_topo::{shape, Topology};

    const TABLE: &[Figure] = &[
        count("groups", 10, (1, 100), "groups", "assumed"),
        Figure {
            key: "jobs",
            kind: Kind::PerCpus {
                cpus: 2,
                high: 1000,
            },
            meaning: "jobs",
            source: "one per core",
        },
        span("burst", 2 * MS, "burst", "assumed"),
        choice("ipc", &["socket", "pipe"], "channel", "assumed"),
    ];

    fn machine() -> Machine {
        let topo = Topology::build(&shape::parse("1n1l2c2t").unwrap(), 64).unwrap();
        Machine::new(topo, Costs::builtin("generic").unwrap()).unwrap()
    }

    // Goal: defaults follow the table and the machine, given values win, and what is wrong is refused by
    // name.
    // Method: read the same table with several sets of pairs.
    #[test]
    fn values_in_force_and_bounds() {
        let machine = machine();
        let read = |pairs: &[&str]| {
            let mut params = Params::parse(pairs.iter().copied()).unwrap();
            let args = Args::read(TABLE, &mut params, &machine).map(|a| {
                (
                    a.get("groups"),
                    a.get("jobs"),
                    a.get("burst"),
                    a.word("ipc"),
                )
            });
            args.and_then(|a| params.finish("workload test").map(|_| a))
                .map_err(|e| e.to_string())
        };
        assert_eq!(read(&[]), Ok((10, 2, 2 * MS, "socket")));
        let given = ["groups=3", "jobs=7", "burst=1.5ms", "ipc=pipe"];
        assert_eq!(read(&given), Ok((3, 7, 1_500_000, "pipe")));
        for (pair, names) in [
            ("groups=101", "groups"),
            ("jobs=0", "jobs"),
            ("burst=0ms", "burst"),
            ("burst=5", "burst"),
            ("ipc=tube", "socket, pipe"),
            ("gruops=1", "did you mean `groups`"),
        ] {
            let error = read(&[pair]).unwrap_err();
            assert!(error.contains(names), "{pair}: {error}");
        }
    }

    // Goal: the default shown to users is the default in force.
    // Method: feed every default text back.
    #[test]
    fn default_texts_are_the_defaults() {
        let machine = machine();
        let mut plain = Params::new();
        Args::read(TABLE, &mut plain, &machine).unwrap();
        let mut shown = Params::new();
        for figure in TABLE {
            shown.set(figure.key, figure.default_text(machine.cpus().len()));
        }
        Args::read(TABLE, &mut shown, &machine).unwrap();
        assert_eq!(plain.finish("w").unwrap(), shown.finish("w").unwrap());
    }
}
