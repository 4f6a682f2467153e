// SPDX-License-Identifier: GPL-2.0-only
//! Finished runs, kept by the hash of everything that their result depends on: the program itself (its
//! version and the bytes of its file), machine, costs, workload, policy, all their parameters, and the seed.
//!
//! A run is kept as soon as it is over, so an interrupted command goes on where it was. A kept run holds
//! its inputs in full, and is used only if they are the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use usher_lab::cache::{hash_hex, write_atomically, Cache};
use usher_sim::case::Case;
use usher_sim::report::WordReport;
use usher_sim::workload::{self, Found};
use usher_sim::Report;

use crate::error::Result;

/// What a row needs of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The report's metrics, and of each class of shared cache lines `lines.CLASS.load_ns_mean` and
    /// `lines.CLASS.write_ns_mean`, of its words `words.NAME.cycles_per_load`.
    pub metrics: BTreeMap<String, f64>,
    /// What the models leave out.
    pub limits: Vec<String>,
}

impl From<Report> for Run {
    fn from(report: Report) -> Run {
        let mut metrics = report.metrics;
        for (class, line) in &report.lines {
            metrics.insert(format!("lines.{class}.load_ns_mean"), line.load_ns_mean);
            metrics.insert(format!("lines.{class}.write_ns_mean"), line.write_ns_mean);
        }
        metrics.extend(cycles_per_load(&report.words));
        Run {
            metrics,
            limits: report.limits,
        }
    }
}

/// Of every array of words (`cpupri_mask` of `cpupri_mask_l0_w3`), and of every word that is in none.
fn cycles_per_load(words: &BTreeMap<String, WordReport>) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    for (name, word) in words {
        let array = name
            .split_once("_l")
            .filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
        let sum = sums
            .entry(array.map_or(name, |(array, _)| array))
            .or_default();
        sum.0 += word.loads;
        sum.1 += word.cycles_per_load * word.loads as f64;
    }
    let loaded = sums.into_iter().filter(|(_, (loads, _))| *loads > 0);
    let mean = |(name, (loads, cycles)): (&str, (u64, f64))| {
        (
            format!("words.{name}.cycles_per_load"),
            cycles / loads as f64,
        )
    };
    loaded.map(mean).collect()
}

#[derive(Serialize, Deserialize)]
struct Kept {
    inputs: Vec<String>,
    run: Run,
}

/// The kept runs.
pub struct Results {
    cache: Cache,
    program: String,
}

impl Results {
    /// Those of `program`, a text that differs between programs that may come to other results.
    pub fn new(cache: Cache, program: impl Into<String>) -> Results {
        let program = program.into();
        Results { cache, program }
    }

    /// Those of the running program, in usher's cache folder.
    ///
    /// # Errors
    /// There is no cache folder, or the program's own file cannot be read.
    pub fn open() -> Result<Results> {
        let cache = Cache::open()?;
        let path = std::env::current_exe();
        let path = path.map_err(|e| usher_lab::LabError::io("/proc/self/exe", "cannot find", e))?;
        let hash = hash_hex(&usher_lab::cache::read(&path)?);
        let program = format!("usher {} {hash}", env!("CARGO_PKG_VERSION"));
        Ok(Results { cache, program })
    }

    /// Everything that all runs of a case depend on, but the seed.
    ///
    /// # Errors
    /// The case cannot be set up.
    pub fn inputs(&self, case: &Case) -> std::result::Result<Vec<String>, usher_sim::SimError> {
        let machine = format!(
            "{:?} {:?}",
            case.machine.topo().to_raw(),
            case.machine.costs()
        );
        let mut workload = format!("{} {:?}", case.workload, case.workload_params.given());
        if let Found::Path(path) = workload::find(&case.workload)? {
            let text = std::fs::read(&path).unwrap_or_default();
            workload += &format!(" {}", hash_hex(&text));
        }
        Ok(vec![
            self.program.clone(),
            format!(
                "{} {}",
                case.machine.topo().name(),
                hash_hex(machine.as_bytes())
            ),
            workload,
            format!("{} {:?}", case.policy, case.policy_parameters()?),
        ])
    }

    fn path(&self, inputs: &[String], seed: u64) -> PathBuf {
        let hash = hash_hex(format!("{inputs:?} {seed}").as_bytes());
        self.cache
            .path(&format!("reproduce/{}/{hash}.json", &hash[..2]))
    }

    /// A kept run. One that cannot be read or is of other inputs does not count: it is run again.
    pub fn get(&self, inputs: &[String], seed: u64) -> Option<Run> {
        let bytes = std::fs::read(self.path(inputs, seed)).ok()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        (kept.inputs == with_seed(inputs, seed)).then_some(kept.run)
    }

    /// Keeps a run.
    ///
    /// # Errors
    /// The cache folder cannot be written.
    pub fn put(&self, inputs: &[String], seed: u64, run: &Run) -> Result<()> {
        let kept = Kept {
            inputs: with_seed(inputs, seed),
            run: run.clone(),
        };
        let text = serde_json::to_vec(&kept).expect("strings and finite numbers");
        Ok(write_atomically(&self.path(inputs, seed), &text)?)
    }
}

fn with_seed(inputs: &[String], seed: u64) -> Vec<String> {
    let seed = format!("seed {seed}");
    inputs.iter().cloned().chain([seed]).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use usher_sim::case;
    use usher_sim::params::Params;
    use usher_topo::Source;

    use super::*;

    fn a_case(shape: &str, costs: &str, loops: &str, policy: &str) -> Case {
        let costs = Params::parse((!costs.is_empty()).then_some(costs)).unwrap();
        Case {
            machine: Arc::new(case::machine(&Source::Shape(shape.into()), &costs).unwrap()),
            workload: "hackbench".into(),
            workload_params: Params::parse([loops]).unwrap(),
            policy: policy.into(),
            policy_params: Params::new(),
        }
    }

    // Goal: a kept run comes back for the very same inputs and for no others.
    // Method: keep one, then change each input in turn: program, machine, cost, parameter, policy, seed; and
    // damage the file.
    #[test]
    fn runs_are_kept_by_their_inputs() {
        let cache = Cache::temporary("reproduce-results");
        let results = Results::new(cache.clone(), "p1");
        let run = Run {
            metrics: [("elapsed_ns".to_string(), 1.0 / 3.0)].into(),
            limits: vec!["none".into()],
        };
        let inputs = |results: &Results, case: &Case| results.inputs(case).unwrap();
        let case = a_case("2n2l2c2t", "", "loops=5", "eevdf");
        let own = inputs(&results, &case);
        assert_eq!(results.get(&own, 1), None);
        results.put(&own, 1, &run).unwrap();
        assert_eq!(results.get(&own, 1), Some(run));
        assert_eq!(results.get(&own, 2), None, "another seed");
        let other = Results::new(cache, "p2");
        assert_eq!(
            other.get(&inputs(&other, &case), 1),
            None,
            "another program"
        );
        for (shape, costs, loops, policy) in [
            ("2n2l2c1t", "", "loops=5", "eevdf"),
            ("2n2l2c2t", "switch.switch_ns=1", "loops=5", "eevdf"),
            ("2n2l2c2t", "", "loops=6", "eevdf"),
            ("2n2l2c2t", "", "loops=5", "cfs-6.0"),
        ] {
            let case = a_case(shape, costs, loops, policy);
            assert_eq!(
                results.get(&inputs(&results, &case), 1),
                None,
                "{shape} {costs} {loops} {policy}"
            );
        }
        std::fs::write(results.path(&own, 1), "{").unwrap();
        assert_eq!(results.get(&own, 1), None, "half a file");
    }
}
