// SPDX-License-Identifier: GPL-2.0-only
//! A run by names: machine, workload, policy and their parameters, as the command line gives them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use usher_topo::{Source, Topology, MAX_SHARD_WIDTH};

use crate::costs::Costs;
use crate::engine::{Options, Simulation};
use crate::error::SimError;
use crate::ids::Nanos;
use crate::machine::Machine;
use crate::params::Params;
use crate::policy;
use crate::report::Report;
use crate::waits::Waits;
use crate::workload;

/// The cost table of machines that name none.
const DEFAULT_COSTS: &str = "generic";

/// Everything but the seed.
#[derive(Clone, Debug)]
pub struct Case {
    /// The machine, shared by all cases on it.
    pub machine: Arc<Machine>,
    /// Name of a workload, or the path of an rt-app file.
    pub workload: String,
    /// Its parameters.
    pub workload_params: Params,
    /// Name of a policy.
    pub policy: String,
    /// Its parameters.
    pub policy_params: Params,
}

/// Reads a machine and its costs; `costs` (`section.name=value`) change single numbers of the table.
///
/// # Errors
/// The machine cannot be read, its cost table does not exist, or a number has no such name or value.
pub fn machine(source: &Source, costs: &Params) -> Result<Machine, MachineError> {
    let topo = Topology::build(&source.read()?, MAX_SHARD_WIDTH)?;
    let mut table = Costs::load(topo.costs().unwrap_or(DEFAULT_COSTS))?;
    for (name, value) in costs.given() {
        let number = value.parse().map_err(|_| SimError::Parameter {
            key: format!("cost.{name}"),
            what: format!("has the value `{value}`, but must be a whole number"),
        })?;
        table.set(name, number)?;
    }
    Ok(Machine::new(topo, table)?)
}

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The topology cannot be read.
    #[error(transparent)]
    Topology(#[from] usher_topo::TopoError),
    /// The costs are wrong.
    #[error(transparent)]
    Costs(#[from] SimError),
}

impl Case {
    /// Sets the run up.
    ///
    /// # Errors
    /// Unknown names or parameters, bad values.
    pub fn simulation(&self, seed: u64, options: Options) -> Result<Simulation, SimError> {
        let workload =
            workload::build(&self.workload, &self.machine, self.workload_params.clone())?;
        let (policy, _) = policy::build(&self.policy, self.policy_params.clone())?;
        Simulation::new(Arc::clone(&self.machine), policy, workload, seed, options)
    }

    /// Runs to the end, or until `go_on` returns false.
    ///
    /// # Errors
    /// As [`Case::simulation`] and [`Simulation::run`].
    pub fn run(
        &self,
        seed: u64,
        options: Options,
        go_on: impl FnMut(Nanos) -> bool,
    ) -> Result<Report, SimError> {
        let mut report = self.simulation(seed, options)?.run_while(go_on)?;
        report.policy = self.policy.clone();
        for (key, value) in self.policy_parameters()? {
            report.parameters.insert(format!("policy.{key}"), value);
        }
        Ok(report)
    }

    /// All parameters of the policy with the values in force.
    ///
    /// # Errors
    /// Unknown name or parameter, bad value.
    pub fn policy_parameters(&self) -> Result<BTreeMap<String, String>, SimError> {
        Ok(policy::build(&self.policy, self.policy_params.clone())?.1)
    }

    /// What observes the waits of one of its runs, and keeps that many of the slowest.
    ///
    /// # Errors
    /// As [`policy::build`].
    pub fn waits(&self, keep: usize) -> Result<Arc<Mutex<Waits>>, SimError> {
        let (policy, _) = policy::build(&self.policy, self.policy_params.clone())?;
        let waits = Waits::new(Arc::clone(&self.machine), policy.reasons(), keep);
        Ok(Arc::new(Mutex::new(waits)))
    }
}

/// A policy as written on the command line: `NAME` or `NAME:key=value:key=value`.
///
/// # Errors
/// A part that is not `key=value`.
pub fn parse_policy(text: &str) -> Result<(String, Params), SimError> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default().to_string();
    Ok((name, Params::parse(parts)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(policy: &str) -> Case {
        let source = Source::Shape("2n2l2c2t".into());
        let machine = machine(&source, &Params::new()).expect("a built-in shape");
        let (policy, policy_params) = parse_policy(policy).expect("well-formed");
        Case {
            machine: Arc::new(machine),
            workload: "hackbench".into(),
            workload_params: Params::parse(["groups=1", "loops=20"]).expect("well-formed"),
            policy,
            policy_params,
        }
    }

    // Goal: the same case and seed give the same report, byte for byte, and another seed another one.
    // Method: the core under hackbench, twice and once more.
    #[test]
    fn a_case_is_its_report() {
        let text = |seed| {
            let report = case("usher")
                .run(seed, Options::default(), |_| true)
                .expect("it runs");
            serde_json::to_string(&report).expect("it serializes")
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    // Goal: parameters of the policy reach the policy and the report.
    // Method: a granularity other than the default, and a key that does not exist.
    #[test]
    fn policy_parameters_are_reported_and_checked() {
        let report = case("usher:granularity=node")
            .run(1, Options::default(), |_| true)
            .expect("it runs");
        assert_eq!(report.parameters["policy.granularity"], "node");
        let error = case("usher:granularty=node")
            .run(1, Options::default(), |_| true)
            .unwrap_err();
        assert!(
            error.to_string().contains("did you mean `granularity`?"),
            "{error}"
        );
    }
}
