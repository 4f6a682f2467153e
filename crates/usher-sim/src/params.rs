// SPDX-License-Identifier: GPL-2.0-only
//! Parameters of policies and workloads: `key=value` pairs as given with `--set`.
//!
//! A builder reads each key it knows with a default, then calls [`Params::finish`], which refuses what
//! nobody read and suggests the nearest key:
//!
//! ```
//! use usher_sim::params::Params;
//! let mut params = Params::parse(["groups=5", "pipe=true"])?;
//! assert_eq!(params.u64("groups", 1, 1..=1000)?, 5);
//! assert!(params.bool("pipe", false)?);
//! assert_eq!(params.u64("loops", 100, 1..=u64::MAX)?, 100);
//! params.finish("workload hackbench")?;
//! # Ok::<(), usher_sim::error::SimError>(())
//! ```

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::error::{nearest, SimError};
use crate::ids::Nanos;

/// `key=value` pairs and which of them were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    given: BTreeMap<String, String>,
    known: BTreeMap<String, String>,
}

impl Params {
    /// No parameters: every key has its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads `key=value` pairs.
    ///
    /// # Errors
    /// A pair without `=`, without a key, or a key given twice.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Result<Self, SimError> {
        let mut params = Params::new();
        for pair in pairs {
            let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                return Err(SimError::Parameter {
                    key: pair.into(),
                    what: "is not of the form key=value".into(),
                });
            };
            if params.given.insert(key.into(), value.into()).is_some() {
                return Err(SimError::Parameter {
                    key: key.into(),
                    what: "is given twice".into(),
                });
            }
        }
        Ok(params)
    }

    /// Sets or replaces one.
    pub fn set(&mut self, key: &str, value: impl ToString) -> &mut Self {
        self.given.insert(key.into(), value.to_string());
        self
    }

    fn look<T: ToString>(
        &mut self,
        key: &str,
        default: T,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, SimError> {
        let value = match self.given.get(key) {
            None => default,
            Some(text) => read(text).map_err(|expected| SimError::Parameter {
                key: key.into(),
                what: format!("has the value `{text}`, but must be {expected}"),
            })?,
        };
        self.known.insert(key.into(), value.to_string());
        Ok(value)
    }

    /// A whole number.
    ///
    /// # Errors
    /// The value is not a number, or out of bounds.
    pub fn u64(
        &mut self,
        key: &str,
        default: u64,
        bounds: RangeInclusive<u64>,
    ) -> Result<u64, SimError> {
        self.look(key, default, |text| {
            text.parse::<u64>()
                .ok()
                .filter(|n| bounds.contains(n))
                .ok_or_else(|| {
                    if *bounds.end() == u64::MAX {
                        format!("a whole number, at least {}", bounds.start())
                    } else {
                        format!("a whole number from {} to {}", bounds.start(), bounds.end())
                    }
                })
        })
    }

    /// A duration: a whole number with the unit `ns`, `us`, `ms` or `s`. A fraction such as `1.5ms` is
    /// fine.
    ///
    /// # Errors
    /// The value is not a duration.
    pub fn duration(&mut self, key: &str, default: Nanos) -> Result<Nanos, SimError> {
        let text = match self.given.get(key) {
            None => format_duration(default),
            Some(text) => text.clone(),
        };
        let value = parse_duration(&text).ok_or_else(|| SimError::Parameter {
            key: key.into(),
            what: format!(
                "has the value `{text}`, but must be a duration in ns, us, ms or s, such as 30ms or 1.5us"
            ),
        })?;
        self.known.insert(key.into(), format_duration(value));
        Ok(value)
    }

    /// A duration, or a word that stands for none, which is what there is if nothing is given.
    ///
    /// # Errors
    /// The value is neither.
    pub fn duration_or(&mut self, key: &str, none: &str) -> Result<Option<Nanos>, SimError> {
        if self.given.get(key).is_none_or(|text| text == none) {
            self.known.insert(key.into(), none.into());
            return Ok(None);
        }
        self.duration(key, 0).map(Some)
    }

    /// `true` or `false`, also `on`, `off`, `1`, `0`.
    ///
    /// # Errors
    /// The value is none of these.
    pub fn bool(&mut self, key: &str, default: bool) -> Result<bool, SimError> {
        self.look(key, default, |text| match text {
            "true" | "on" | "1" | "yes" => Ok(true),
            "false" | "off" | "0" | "no" => Ok(false),
            _ => Err("true or false".into()),
        })
    }

    /// One of a list of words.
    ///
    /// # Errors
    /// The value is not in the list.
    pub fn choice(
        &mut self,
        key: &str,
        default: &'static str,
        words: &[&'static str],
    ) -> Result<&'static str, SimError> {
        let text = self.given.get(key).map_or(default, String::as_str);
        let found = words.iter().find(|w| **w == text).copied();
        let value = found.ok_or_else(|| SimError::Parameter {
            key: key.into(),
            what: format!(
                "has the value `{text}`, but must be one of {}",
                words.join(", ")
            ),
        })?;
        self.known.insert(key.into(), value.into());
        Ok(value)
    }

    /// Any text.
    pub fn text(&mut self, key: &str, default: &str) -> String {
        let value = self
            .given
            .get(key)
            .cloned()
            .unwrap_or_else(|| default.to_string());
        self.known.insert(key.into(), value.clone());
        value
    }

    /// Splits off the pairs whose key starts with `prefix`, which is removed: `cost.tick_ns=0` with
    /// prefix `cost.` gives `tick_ns=0`.
    pub fn take_prefix(&mut self, prefix: &str) -> Params {
        let (mine, rest) = std::mem::take(&mut self.given)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(key, _)| key.starts_with(prefix));
        self.given = rest;
        let given = mine
            .into_iter()
            .map(|(k, v)| (k[prefix.len()..].to_string(), v))
            .collect();
        Params {
            given,
            known: BTreeMap::new(),
        }
    }

    /// The pairs as given.
    pub fn given(&self) -> &BTreeMap<String, String> {
        &self.given
    }

    /// Ends the reading and returns every key that was asked for with the value in force.
    ///
    /// # Errors
    /// A key that nobody asked for; `whose` (such as `workload hackbench`) and the nearest known key are
    /// named.
    pub fn finish(self, whose: &str) -> Result<BTreeMap<String, String>, SimError> {
        match self.given.keys().find(|key| !self.known.contains_key(*key)) {
            None => Ok(self.known),
            Some(key) if key.starts_with("policy.") => Err(SimError::Parameter {
                key: key.clone(),
                what: "is one of the policy, which takes it with its name: NAME:key=value".into(),
            }),
            Some(key) => {
                let known: Vec<&str> = self.known.keys().map(String::as_str).collect();
                Err(SimError::Unknown {
                    kind: format!("parameter of {whose}"),
                    name: key.clone(),
                    nearest: nearest(key, &known),
                })
            }
        }
    }
}

/// Reads `30ms`, `1.5us`, `10s`, `250ns`.
pub fn parse_duration(text: &str) -> Option<Nanos> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let scale: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let part = fraction.parse::<u64>().ok()? * scale / 10u64.pow(fraction.len() as u32);
    whole.checked_add(part)
}

/// Writes a duration with the largest unit that leaves a whole number.
pub fn format_duration(ns: Nanos) -> String {
    let units = [
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let (scale, unit) = units
        .into_iter()
        .find(|(s, _)| ns > 0 && ns.is_multiple_of(*s))
        .unwrap_or((1, "ns"));
    format!("{}{unit}", ns / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: durations survive the round trip and garbage is refused.
    // Method: table.
    #[test]
    fn durations_parse() {
        let table = [
            ("30ms", 30_000_000),
            ("1.5us", 1500),
            ("10s", 10_000_000_000),
            ("7ns", 7),
        ];
        for (text, ns) in table {
            assert_eq!(parse_duration(text), Some(ns), "{text}");
            assert_eq!(parse_duration(&format_duration(ns)), Some(ns));
        }
        for bad in [
            "",
            "5",
            "ms",
            "-1s",
            "1.s",
            ".5s",
            "1 s",
            "1h",
            "99999999999999999999s",
            "1.2.3s",
        ] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(format_duration(0), "0ns");
    }

    // Goal: a mistyped key is refused with a suggestion, a bad value names key, value and remedy.
    // Method: the error texts.
    #[test]
    fn bad_parameters_are_named() {
        let mut p = Params::parse(["gruops=5"]).unwrap();
        p.u64("groups", 1, 1..=10).unwrap();
        let error = p.finish("workload hackbench").unwrap_err().to_string();
        assert!(
            error.contains("gruops") && error.contains("groups"),
            "{error}"
        );
        let mut p = Params::parse(["groups=50"]).unwrap();
        let error = p.u64("groups", 1, 1..=10).unwrap_err().to_string();
        assert!(
            error.contains("groups") && error.contains("50") && error.contains("10"),
            "{error}"
        );
        assert!(Params::parse(["a"]).is_err() && Params::parse(["a=1", "a=2"]).is_err());
    }
}
