// SPDX-License-Identifier: GPL-2.0-only
//! What examples that compare policies share.

use std::sync::Arc;

use usher_sim::case::{parse_policy, Case};
use usher_sim::params::Params;
use usher_sim::{Machine, Report};

/// `set` with a count for a share of the machine's CPUs, rounded up, if it ends with `%`: `jobs=50%`.
pub fn percent(set: &str, cpus: usize) -> String {
    let Some((key, share)) = set.strip_suffix('%').and_then(|set| set.split_once('=')) else {
        return set.into();
    };
    let share: usize = share.parse().expect("a number");
    format!("{key}={}", (cpus * share).div_ceil(100))
}

/// A workload, with what is set of it (words), under a policy.
pub fn case(machine: &Arc<Machine>, workload: &str, set: &str, policy: &str) -> Case {
    let (policy, policy_params) = parse_policy(policy).expect("well-formed");
    Case {
        machine: Arc::clone(machine),
        workload: workload.into(),
        workload_params: Params::parse(set.split_whitespace()).expect("well-formed"),
        policy,
        policy_params,
    }
}

/// What a run is judged by, turned over where more of it is better, so that less is.
pub fn headline(report: &Report) -> f64 {
    let value = report.metrics[&report.headline];
    match report.higher_is_better {
        true => 1.0 / value,
        false => value,
    }
}
