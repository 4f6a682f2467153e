// SPDX-License-Identifier: GPL-2.0-only
//! Policies by name.

use std::collections::BTreeMap;

use super::{cfs39, cfs59, cfs60, eevdf, fair, fifo, rt, scx_simple, usher, Policy};
use crate::error::{nearest, SimError};
use crate::params::Params;

/// What the parameters of policies mean, whichever policies have them.
const MEANINGS: &[(&str, &str)] = &[
    ("base_slice", "base_slice_ns of EEVDF; `default`: the kernel's for so many CPUs"),
    ("delay_dequeue", "DELAY_DEQUEUE of EEVDF: who sleeps while it has had too much stays queued until it is picked"),
    ("fork", "where newborns are placed: `domains`, down the domains level by level, or `flat`, among all CPUs at once"),
    ("follow", "a task goes home, to the LLC of its node whose CPUs wake it, and to another node that alone does"),
    ("fork-balance", "newborns leave a node of which much is busy for the one where most cores idle"),
    ("granularity", "whose CPUs share a line of idle bits, or of levels: `global`, `node`, `llc` or `shard`"),
    ("kernel", "the built-in idle selection of this kernel: `6.15`, for which masks per node were posted, or `7.2`"),
    ("late_cpus", "so many CPUs, the last ones, came online after the per-node masks were made"),
    ("latency", "sched_latency_ns of CFS; `default`: the kernel's for so many CPUs"),
    ("map", "the map of CPU priorities: `global`, as in the kernel, `node`, as proposed, or `core`, the placement core's"),
    ("migration_cost", "sched_migration_cost_ns: for so long a task counts as cache-hot"),
    ("min_granularity", "sched_min_granularity_ns of CFS; `default`: the kernel's for so many CPUs"),
    ("node_rto_count", "the count of overloaded CPUs per NUMA node"),
    ("nr_migrate", "sched_nr_migrate: the most tasks that one balancing looks at"),
    ("overloaded_reads", "who reads the flag that says that some CPU has two tasks: `second`, a CPU's second task, or `always`, every one"),
    ("pad_counts", "a cache line for each count and mask pointer of the map"),
    ("preempt", "urgent tasks preempt, and pairs hand CPUs over"),
    ("preempt_short", "PREEMPT_SHORT of EEVDF: who wakes with a shorter slice may preempt in spite of run_to_parity"),
    ("queue-width", "the most CPUs that take tasks from one queue of usher's: 1 to 4096"),
    ("queued-wakeups", "a CPU of another LLC, or one that idles, queues by itself who is woken for it"),
    ("reorder", "the root domain's fields in the proposed order"),
    ("run_to_parity", "RUN_TO_PARITY of EEVDF: who runs goes on until its deadline while it is eligible"),
    ("shard-width", "the most CPUs of a shard, the unit of idle tracking: 1 to 64"),
    ("shard_width", "the most CPUs of a shard of the core's map: 1 to 64"),
    ("shell", "where the shell is that starts the first task: on a `strong` CPU, a `weak` one, or by turns with the seeds, `alternate`"),
    ("slice", "how long a task runs while others wait"),
    ("soon", "who waits and runs within so long is left to the CPUs of its last-level cache; `0ns`: nobody is"),
    ("strict", "searches of the core's map find a CPU of the lowest level, not the nearest below the limit"),
    ("tiers", "which CPUs heavy tasks take first: `strongest-first` or `weakest-first`"),
    ("uncrowd", "tasks that share a core while another idles move there"),
    ("wakeup_granularity", "sched_wakeup_granularity_ns of CFS; `default`: the kernel's for so many CPUs"),
    ("wakeup_preemption", "WAKEUP_PREEMPTION: who wakes may end the turn of who runs"),
    ("word_stats", "loads of words that CPUs share are counted"),
];

/// A policy that can be asked for by name.
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Makes one. Reads its parameters; [`build`] refuses the rest.
    pub make: fn(&mut Params) -> Result<Box<dyn Policy>, SimError>,
}

/// All of them. A new policy adds its line here.
pub const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "usher",
        about: "the placement core of the kernel scheduler, itself",
        make: |params| Ok(Box::new(usher::Usher::new(params, "usher")?)),
    },
    PolicyInfo {
        name: "usher-no-capacity",
        about: "the same, all CPUs counting as equal",
        make: |params| Ok(Box::new(usher::Usher::new(params, "usher-no-capacity")?)),
    },
    PolicyInfo {
        name: "fifo",
        about: "one queue for all CPUs; the example of docs/POLICY.md",
        make: |_| Ok(Box::new(fifo::Fifo::default())),
    },
    PolicyInfo {
        name: "eevdf",
        about: "the kernel's fair class of 6.12: EEVDF, SIS_UTIL",
        make: |params| eevdf::build(params, "eevdf"),
    },
    PolicyInfo {
        name: "cfs-6.0",
        about: "the kernel's fair class of 6.0: CFS, SIS_UTIL, imb_numa_nr",
        make: |params| cfs60::build(params, "cfs-6.0"),
    },
    PolicyInfo {
        name: "cfs-6.0+hints",
        about: "with placement hints as posted: fork and wake rules, balancer's exception",
        make: |params| cfs60::build(params, "cfs-6.0+hints"),
    },
    PolicyInfo {
        name: "cfs-6.0+fork-hints",
        about: "with the fork rules of the hints only",
        make: |params| cfs60::build(params, "cfs-6.0+fork-hints"),
    },
    PolicyInfo {
        name: "cfs-6.0+wake-hints",
        about: "with the wakeup rules of the hints only",
        make: |params| cfs60::build(params, "cfs-6.0+wake-hints"),
    },
    PolicyInfo {
        name: "cfs-6.0+hint-balance",
        about: "with the balancer's exception for hints only",
        make: |params| cfs60::build(params, "cfs-6.0+hint-balance"),
    },
    PolicyInfo {
        name: "cfs-5.9",
        about: "the kernel's fair class of 5.9: CFS, SIS_PROP",
        make: |params| cfs59::build(params, "cfs-5.9"),
    },
    PolicyInfo {
        name: "cfs-5.9+llc-idle-mask",
        about: "with the idle CPU mask per LLC as posted (v2: set at tick stop)",
        make: |params| cfs59::build(params, "cfs-5.9+llc-idle-mask"),
    },
    PolicyInfo {
        name: "cfs-5.9+llc-idle-mask-v3",
        about: "with the mask set at every idle entry (v3, v6 to v8)",
        make: |params| cfs59::build(params, "cfs-5.9+llc-idle-mask-v3"),
    },
    PolicyInfo {
        name: "cfs-5.9+llc-idle-mask-claim",
        about: "and who takes an idle CPU clears its bit",
        make: |params| cfs59::build(params, "cfs-5.9+llc-idle-mask-claim"),
    },
    PolicyInfo {
        name: "cfs-3.9",
        about: "the fair class of 3.9: balancing by cpu_power and rounded slots",
        make: |params| cfs39::build(params, "cfs-3.9"),
    },
    PolicyInfo {
        name: "cfs-3.9+shi",
        about: "the same with Shi's set: the balancer uses the decaying load of tasks",
        make: |params| cfs39::build(params, "cfs-3.9+shi"),
    },
    PolicyInfo {
        name: "cfs-3.9+mixed-capacity",
        about: "and the proposal's two patches: forced up-migration, no idle CPU beside a queue",
        make: |params| cfs39::build(params, "cfs-3.9+mixed-capacity"),
    },
    PolicyInfo {
        name: "scx-simple",
        about: "sched_ext's simple scheduler on the kernel's built-in idle selection, one mask",
        make: |params| scx_simple::build(params, scx_simple::Variant::GlobalMask),
    },
    PolicyInfo {
        name: "scx-simple+node-idle-mask",
        about: "the same with idle masks per NUMA node",
        make: |params| scx_simple::build(params, scx_simple::Variant::NodeMask),
    },
    PolicyInfo {
        name: "scx-simple+node-aware-policy",
        about: "and a scheduler that uses the node-aware calls, with a queue per node",
        make: |params| scx_simple::build(params, scx_simple::Variant::NodeAware),
    },
    PolicyInfo {
        name: "rt",
        about: "the real-time class, push and pull over the CPU priority map; a small fair class below it",
        make: |params| rt::build(params, "rt"),
    },
    PolicyInfo {
        name: "rt+pad-counts",
        about: "rt, a cache line per count and mask pointer of the map (patch 1 of the series)",
        make: |params| rt::build(params, "rt+pad-counts"),
    },
    PolicyInfo {
        name: "rt+reorder",
        about: "rt, the root domain's fields in another order (patch 2)",
        make: |params| rt::build(params, "rt+reorder"),
    },
    PolicyInfo {
        name: "rt+node-rto-count",
        about: "rt, the overload count per NUMA node (patch 3)",
        make: |params| rt::build(params, "rt+node-rto-count"),
    },
    PolicyInfo {
        name: "rt+node-cpupri",
        about: "rt, the map's bitmaps per NUMA node, stored inverted (patch 4, the proposal)",
        make: |params| rt::build(params, "rt+node-cpupri"),
    },
    PolicyInfo {
        name: "rt+llc-cpupri",
        about: "rt, the placement core's map, lines per LLC",
        make: |params| rt::build(params, "rt+llc-cpupri"),
    },
    PolicyInfo {
        name: "rt+shard-cpupri",
        about: "rt, the placement core's map, lines per shard",
        make: |params| rt::build(params, "rt+shard-cpupri"),
    },
];

/// A parameter of a policy as a list of them shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Described {
    /// Its key, as in `NAME:key=value`.
    pub key: String,
    /// The value in force.
    pub value: String,
    /// What it means.
    pub meaning: &'static str,
}

/// The parameters of the policy of this name, some of which may be given.
///
/// # Errors
/// As [`build`].
pub fn describe(name: &str, params: Params) -> Result<Vec<Described>, SimError> {
    let (_, parameters) = build(name, params)?;
    let described = parameters.into_iter().map(|(key, value)| {
        let meaning = MEANINGS.iter().find(|(known, _)| *known == key);
        Described {
            meaning: meaning.map_or("", |(_, meaning)| meaning),
            key,
            value,
        }
    });
    Ok(described.collect())
}

/// A policy, and all its parameters with the values in force.
pub type Built = (Box<dyn Policy>, BTreeMap<String, String>);

/// Makes the policy of this name. Returns also all its parameters with the values in force.
///
/// # Errors
/// Unknown name or parameter (the nearest are suggested), bad value.
pub fn build(name: &str, mut params: Params) -> Result<Built, SimError> {
    let policy = match POLICIES.iter().find(|p| p.name == name) {
        Some(info) => (info.make)(&mut params)?,
        // Models of the fair class take switches in any combination.
        None => fair::switches::by_name(name, &mut params)?.ok_or_else(|| SimError::Unknown {
            kind: "policy".into(),
            name: name.into(),
            nearest: nearest(name, &POLICIES.iter().map(|p| p.name).collect::<Vec<_>>()),
        })?,
    };
    Ok((policy, params.finish(&format!("policy {name}"))?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    // Goal: every parameter of every policy is told with its meaning, and no meaning is of a parameter that none has.
    // Method: all policies, the real-time class also with the core's map, which alone has three of them.
    #[test]
    fn parameters_have_meanings() {
        let mut seen = BTreeSet::new();
        for info in POLICIES {
            for parameter in describe(info.name, Params::new()).expect("defaults are right") {
                let place = format!("{}:{}", info.name, parameter.key);
                assert!(!parameter.meaning.is_empty(), "{place}");
                seen.insert(parameter.key);
            }
        }
        let known: BTreeSet<String> = MEANINGS.iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(known, seen);
    }
}
