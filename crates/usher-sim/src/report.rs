// SPDX-License-Identifier: GPL-2.0-only
//! What a run came to.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::coherence::ClassStats;
use crate::costs::Costs;
use crate::machine::Distance;
use crate::metrics::{report_latency, Latency, QUANTILES};
use crate::program::Hint;
use crate::state::NEVER;
use crate::stats::WordStats;
use crate::task::State;
use crate::Simulation;

/// The result of a run. Serializes to the `sim` object that the command line prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name and version of this layout.
    pub schema: &'static str,
    /// Name of the machine.
    pub machine: String,
    /// Name of the cost table.
    pub costs: String,
    /// Name of the workload.
    pub workload: String,
    /// Parameters of the workload; the command line adds those of the policy.
    pub parameters: BTreeMap<String, String>,
    /// Name of the policy.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// The metric to look at first, and whether more of it is better.
    pub headline: String,
    /// See `headline`.
    pub higher_is_better: bool,
    /// The metric of how long the slowest requests take, if the workload notes that and the headline is something else.
    pub tail: Option<String>,
    /// All results by name. Names end in their unit; those without one are counts or ratios.
    pub metrics: BTreeMap<String, f64>,
    /// How often each reason for a placement was given.
    pub reasons: BTreeMap<String, u64>,
    /// Starts of tasks on another CPU than before, by distance.
    pub migrations: BTreeMap<String, u64>,
    /// Time in each idle state, summed over CPUs, ns.
    pub idle_states_ns: BTreeMap<String, u64>,
    /// Share of time that the CPUs of each tier were busy, strongest first.
    pub tier_utilisation: Vec<f64>,
    /// Time in each idle state, summed over the CPUs of each tier, strongest first, ns. With `tier_utilisation` what an
    /// observer of energy would want: for how long strong CPUs run, and how deep they sleep.
    pub tier_idle_states_ns: Vec<BTreeMap<String, u64>>,
    /// The policy's own counters.
    pub counters: BTreeMap<String, u64>,
    /// Shared cache lines by class.
    pub lines: BTreeMap<String, LineReport>,
    /// Words of the policy's shared data, by name, as far as it counts them.
    pub words: BTreeMap<String, WordReport>,
    /// What the workload's and the machine's model leaves out.
    pub limits: Vec<String>,
    /// Hash of the event log, in hexadecimal.
    pub log_hash: String,
    /// Whether the run was stopped before its end.
    pub partial: bool,
    /// The full histograms, for those who want other quantiles.
    #[serde(skip)]
    pub latencies: BTreeMap<String, Latency>,
}

/// What happened to the lines of one class.
#[derive(Clone, Debug, Serialize)]
pub struct LineReport {
    /// Accesses.
    pub accesses: u64,
    /// Transfers from another core of the LLC, another LLC of the node, another node, and memory.
    pub transfers: BTreeMap<String, u64>,
    /// Mean time of a load, waiting included.
    pub load_ns_mean: f64,
    /// Mean time of a store or atomic operation, waiting included.
    pub write_ns_mean: f64,
    /// Time that accesses waited for other accesses and for lock holders, summed.
    pub wait_ns: u64,
    /// The longest wait.
    pub wait_ns_max: u64,
    /// Locks taken, and how long they were held in all.
    pub locks: u64,
    /// See `locks`.
    pub held_ns: u64,
}

impl LineReport {
    fn new(stats: &ClassStats) -> LineReport {
        let transfers = [Distance::Llc, Distance::Node, Distance::Remote].map(|d| {
            (
                Distance::NAMES[d as usize].to_string(),
                stats.transfers[d as usize],
            )
        });
        let memory = ("memory".to_string(), stats.memory);
        LineReport {
            accesses: stats.loads + stats.writes,
            transfers: transfers.into_iter().chain([memory]).collect(),
            load_ns_mean: ratio(stats.load_ns, stats.loads),
            write_ns_mean: ratio(stats.write_ns, stats.writes),
            wait_ns: stats.wait_ns,
            wait_ns_max: stats.wait_ns_max,
            locks: stats.locks,
            held_ns: stats.held_ns,
        }
    }
}

fn by_state(costs: &Costs, ns: &[u64]) -> BTreeMap<String, u64> {
    let names = costs.idle_states.iter().map(|state| state.name.clone());
    names.zip(ns.iter().copied()).collect()
}

/// Loads of one word.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WordReport {
    /// Loads and atomic operations, which load, too.
    pub loads: u64,
    /// Their mean time, waiting included.
    pub load_ns_mean: f64,
    /// The same in cycles of the machine's clock (`cpu.clock_mhz` of its costs).
    pub cycles_per_load: f64,
}

impl WordReport {
    fn new(word: &WordStats, clock_mhz: u64) -> WordReport {
        let load_ns_mean = ratio(word.load_ns, word.loads);
        WordReport {
            loads: word.loads,
            load_ns_mean,
            cycles_per_load: load_ns_mean * clock_mhz as f64 / 1e3,
        }
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 {
        0.0
    } else {
        a as f64 / b as f64
    }
}

impl Report {
    pub(crate) fn new(sim: Simulation, partial: bool) -> Report {
        let machine = std::sync::Arc::clone(&sim.host.machine);
        let costs = machine.costs();
        let stats = &sim.host.stats;
        let elapsed = sim.host.now - stats.since;
        let latencies = sim.host.world.metrics.latencies();
        let mut latencies: BTreeMap<String, Latency> = latencies
            .map(|(name, h)| (name.to_string(), h.clone()))
            .collect();
        latencies.insert("wake_latency".into(), stats.wake_latency.clone());
        let cpus_of_tier = machine.topo().tiers().iter().map(|t| t.cids.len() as u64);
        let tier_utilisation = stats.tier_busy_ns.iter().zip(cpus_of_tier);
        let names = |distance: usize| Distance::NAMES[distance].to_string();
        Report {
            schema: "usher-sim/1",
            machine: machine.topo().name().into(),
            costs: costs.name.clone(),
            workload: sim.workload.clone(),
            parameters: sim.parameters.clone(),
            policy: sim.policy.name().into(),
            seed: sim.seed,
            headline: sim.headline.metric.clone(),
            higher_is_better: sim.headline.higher_is_better,
            tail: sim.headline.tail.clone(),
            metrics: metrics(&sim, elapsed),
            reasons: sim
                .policy
                .reasons()
                .iter()
                .zip(&stats.reasons)
                .map(|(name, n)| (name.to_string(), *n))
                .collect(),
            migrations: (1..Distance::COUNT)
                .map(|d| (names(d), stats.migrations[d]))
                .collect(),
            idle_states_ns: by_state(costs, &stats.idle_state_ns),
            tier_utilisation: tier_utilisation
                .map(|(ns, n)| ratio(*ns, n * elapsed))
                .collect(),
            tier_idle_states_ns: stats
                .tier_idle_ns
                .iter()
                .map(|of_tier| by_state(costs, of_tier))
                .collect(),
            counters: stats.policy.iter().cloned().collect(),
            lines: sim
                .host
                .lines
                .stats()
                .iter()
                .map(|class| (class.name.clone(), LineReport::new(class)))
                .collect(),
            words: stats
                .words
                .iter()
                .map(|word| {
                    let report = WordReport::new(word, costs.n.clock_mhz);
                    (word.name.clone(), report)
                })
                .collect(),
            limits: limits(&sim, &latencies, elapsed),
            log_hash: format!("{:016x}", sim.hash.finish()),
            partial,
            latencies,
        }
    }
}

/// What the workload and the policy leave out, how far the costs are known, and what is of few values.
fn limits(sim: &Simulation, latencies: &BTreeMap<String, Latency>, elapsed: u64) -> Vec<String> {
    let costs = sim.host.machine.costs();
    let assumed = format!(
        "{} of the {} costs of table {} are assumed, not measured",
        costs.assumed().count(),
        costs.sources.len(),
        costs.name
    );
    let policy = sim.policy.limits().iter().map(ToString::to_string);
    let hinted = sim.host.tasks.iter().any(|t| t.hint() != Hint::NONE);
    let unheeded = (hinted && !sim.policy.heeds_hints()).then(|| {
        format!(
            "{} knows no hints, so its tasks ran as without",
            sim.policy.name()
        )
    });
    sim.limits
        .iter()
        .cloned()
        .chain(policy)
        .chain(unheeded)
        .chain([assumed])
        .chain(few_values(sim, latencies))
        .chain(fell_behind(sim, elapsed))
        .collect()
}

/// Whether more arrives by itself than is done: then latencies say how long the run was, and leave out what still waits. Chance may
/// have fewer arrive, by five deviations, and a queue may be longer at the end than at the beginning, by 2 per cent of all.
fn fell_behind(sim: &Simulation, elapsed: u64) -> Option<String> {
    let metrics = &sim.host.world.metrics;
    let (per_s, done) = metrics.offered?;
    let expected = per_s * elapsed as f64 / 1e9;
    let done = metrics.counted(done) as f64;
    (expected - done > (expected * 0.02).max(5.0 * expected.sqrt())).then(|| {
        "the CPUs did not keep up with what arrives, so latencies grow with `runtime`; lower `load` or `rate`, or raise `dispatchers` if \
         these are late (`intake`)"
            .into()
    })
}

/// Values that a quantile should have beyond it, lest it hangs on one of them.
const BEYOND: f64 = 10.0;

/// Which of the metrics to look at first are quantiles of few values.
fn few_values(sim: &Simulation, latencies: &BTreeMap<String, Latency>) -> Vec<String> {
    let headline = &sim.headline;
    let metrics = [Some(&headline.metric), headline.tail.as_ref()];
    let few = |metric: &String| {
        let (stem, label) = metric.rsplit_once("_ns_")?;
        let (_, quantile) = QUANTILES.iter().find(|(name, _)| *name == label)?;
        let enough = (BEYOND / (1.0 - quantile)).round();
        let few = latencies.get(stem)?.len() < enough as u64;
        few.then(|| {
            format!("`{metric}` is of fewer than {enough} values (`{stem}_count`) and hangs on a few of them; a longer `runtime` has more")
        })
    };
    metrics.into_iter().flatten().filter_map(few).collect()
}

fn metrics(sim: &Simulation, elapsed: u64) -> BTreeMap<String, f64> {
    let (stats, costs) = (&sim.host.stats, sim.host.machine.costs());
    let mut out = BTreeMap::new();
    sim.host.world.metrics.report(elapsed, &mut out);
    report_latency("wake_latency", &stats.wake_latency, &mut out);
    let cpu_time = elapsed * sim.host.machine.cpus().len() as u64;
    let busy = stats.user_ns + stats.kernel_ns;
    let migrations: u64 = stats.migrations.iter().sum();
    let ipis: u64 = stats.ipis.iter().sum();
    let mut put = |name: &str, value: f64| {
        out.insert(name.to_string(), value);
    };
    put("simulated_ns", elapsed as f64);
    put("events", stats.events as f64);
    put("utilisation", ratio(busy, cpu_time));
    let tiers = sim.host.machine.topo().tiers();
    for (i, tier) in tiers.iter().enumerate().filter(|_| tiers.len() > 1) {
        let time = elapsed * tier.cids.len() as u64;
        let states = costs.idle_states.iter().zip(&stats.tier_idle_ns[i]);
        put(
            &format!("tier{i}_utilisation"),
            ratio(stats.tier_busy_ns[i], time),
        );
        for (state, &ns) in states {
            put(
                &format!("tier{i}_idle_{}_share", state.name),
                ratio(ns, time),
            );
        }
    }
    if stats.core_busy_ns > 0 {
        let share = ratio(stats.core_clock_ns, stats.core_busy_ns);
        put("clock_share", share);
    }
    put("kernel_share", ratio(stats.kernel_ns, busy));
    put("policy_share", ratio(stats.policy_ns, busy));
    put("refill_share", ratio(stats.refill_ns, busy));
    put("idle_exit_share", ratio(stats.exiting_ns, cpu_time));
    put("context_switches", stats.switches as f64);
    put("preemptions", stats.preemptions as f64);
    put("starts_from_idle", stats.starts_from_idle as f64);
    put("wakeups", stats.wakes as f64);
    put("wakeups_on_cpu", stats.wakes_on_cpu as f64);
    put("wakeups_leaving", stats.wakes_leaving as f64);
    put(
        "wakeups_to_idle_share",
        ratio(
            stats.wakes_idle,
            stats.wakes - stats.wakes_on_cpu - stats.wakes_leaving,
        ),
    );
    put("forks", stats.forks as f64);
    put("migrations", migrations as f64);
    put("interrupts_sent", ipis as f64);
    put("polling_wakes", stats.poll_wakes as f64);
    put("ticks", stats.ticks as f64);
    put("ticks_idle", stats.ticks_idle as f64);
    put("ticks_stopped", stats.ticks_stopped as f64);
    put("searches", stats.searches as f64);
    put("searches_failed", stats.searches_failed as f64);
    put(
        "search_probes_mean",
        ratio(stats.search_probes, stats.searches),
    );
    put("search_ns_mean", ratio(stats.search_ns, stats.searches));
    if let Some(index) = fairness(sim) {
        put("fairness", index);
    }
    if let Some(index) = cpu_time_fairness(sim) {
        put("cpu_time_fairness", index);
    }
    out
}

/// Jain's index of the share of time that tasks of one group had a CPU, of the time they wanted one
/// (running or waiting): 1 if all were served alike, whatever each asked for. Of several groups the
/// lowest.
fn fairness(sim: &Simulation) -> Option<f64> {
    let (since, now) = (sim.host.stats.since, sim.host.now);
    let served = sim.host.tasks.iter().filter_map(|task| {
        let waits = match task.state {
            State::Queued => now.saturating_sub(task.queued_at.max(since)),
            _ => 0,
        };
        let ran = task.runtime - task.run_before;
        let wanted = ran + task.waited + waits;
        (wanted > 0).then(|| (task.group, ran as f64 / wanted as f64))
    });
    lowest_jain(served)
}

/// The same of the CPU time itself, over tasks that lived through the whole measurement: tells whether
/// tasks that would all compute for ever got the same.
fn cpu_time_fairness(sim: &Simulation) -> Option<f64> {
    let since = sim.host.stats.since;
    let whole = sim.host.tasks.iter().filter(|task| {
        task.created_at <= since && task.exited_at == NEVER && task.state != State::Dead
    });
    lowest_jain(whole.map(|task| (task.group, (task.runtime - task.run_before) as f64)))
}

/// Jain's index, the square of the sum over n times the sum of squares, of the values of each group: 1 if
/// all are alike, 1/n if one has all. The lowest of all groups with more than one value.
fn lowest_jain(values: impl Iterator<Item = (u32, f64)>) -> Option<f64> {
    let mut groups: BTreeMap<u32, (u64, f64, f64)> = BTreeMap::new();
    for (group, x) in values {
        let (n, sum, squares) = groups.entry(group).or_default();
        (*n, *sum, *squares) = (*n + 1, *sum + x, *squares + x * x);
    }
    let several = groups
        .values()
        .filter(|(n, _, squares)| *n > 1 && *squares > 0.0);
    several
        .map(|(n, sum, squares)| sum * sum / (*n as f64 * squares))
        .min_by(f64::total_cmp)
}
