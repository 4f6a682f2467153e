// SPDX-License-Identifier: GPL-2.0-only
//! Statistics while it runs: a server for any client of scx_stats, and lines for people.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::{anyhow, Result};
use scx_stats::prelude::*;
use scx_stats_derive::Stats;
use serde::{Deserialize, Serialize};
use usher_core::{Event, Reason};

use crate::arena::Counters;
use crate::scheduler::Current;
use crate::shared::{HINT_CALLS, HOST_EVENTS, LEVELS};

/// Decisions that fell for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(
    desc = "decisions by reason",
    _om_prefix = "usher_reason_",
    _om_label = "reason"
)]
pub struct ReasonStats {
    /// How many.
    #[stat(desc = "decisions that fell for this reason")]
    pub decisions: u64,
}

/// Tasks that moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(
    desc = "migrations by the narrowest level both CPUs share",
    _om_prefix = "usher_migration_",
    _om_label = "level"
)]
pub struct LevelStats {
    /// How many.
    #[stat(desc = "tasks that moved between CPUs of this level")]
    pub tasks: u64,
}

/// All of them, counted over an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(desc = "placement, over the interval", _om_prefix = "usher_", top)]
pub struct Metrics {
    /// Placements.
    #[stat(desc = "wakeups and births that were placed")]
    pub decisions: u64,
    /// Of those, with an idle CPU, or pinned.
    #[stat(desc = "of those, an idle CPU was claimed, or the task has only one")]
    pub claimed: u64,
    /// Claims lost.
    #[stat(desc = "idle CPUs seen that somebody else claimed first")]
    pub claims_lost: u64,
    /// Searches of the LLC.
    #[stat(desc = "searches that went through the last-level cache")]
    pub searches_llc: u64,
    /// Searches of the node.
    #[stat(desc = "searches that went on to the NUMA node")]
    pub searches_node: u64,
    /// Searches of other nodes.
    #[stat(desc = "searches that went on to other nodes")]
    pub searches_remote: u64,
    /// Tasks from the own queue.
    #[stat(desc = "tasks taken from the queue of the own last-level cache")]
    pub taken_llc: u64,
    /// Tasks from the node.
    #[stat(desc = "tasks taken from other queues of the node")]
    pub taken_node: u64,
    /// Tasks from other nodes.
    #[stat(desc = "tasks taken from queues of other nodes")]
    pub taken_remote: u64,
    /// Tasks put into queues of several CPUs.
    #[stat(desc = "tasks put into a queue of several CPUs")]
    pub queued: u64,
    /// Tasks put into queues of CPUs.
    #[stat(desc = "tasks put into a CPU's own queue, being allowed nowhere else")]
    pub queued_pinned: u64,
    /// Idle CPUs sent to work.
    #[stat(desc = "idle CPUs sent to fetch a waiting task")]
    pub kicked: u64,
    /// CPUs preempted in the LLC.
    #[stat(desc = "CPUs that urgent tasks took from others in the last-level cache")]
    pub preempted_llc: u64,
    /// CPUs preempted in the node.
    #[stat(desc = "CPUs that urgent tasks took from others in the node")]
    pub preempted_node: u64,
    /// CPUs preempted in other nodes.
    #[stat(desc = "CPUs that urgent tasks took from others in other nodes")]
    pub preempted_remote: u64,
    /// Urgent tasks that found nobody.
    #[stat(desc = "urgent tasks that found no CPU to take and waited")]
    pub preempted_none: u64,
    /// Hints that decided.
    #[stat(desc = "placements that a hint decided")]
    pub hints_kept: u64,
    /// Hints that lapsed.
    #[stat(desc = "hints that asked for a full place and were passed over")]
    pub hints_lapsed: u64,
    /// Hints by rule.
    #[stat(desc = "tasks that got hints by a rule (--rules)")]
    pub hints_by_rule: u64,
    /// Heavy tasks that wait for a strong CPU.
    #[stat(desc = "tasks that began to wait, running on a weak CPU, for a greater one to go idle")]
    pub misfit_waits: u64,
    /// Calls for them.
    #[stat(desc = "greater CPUs that went idle and called for such a task")]
    pub misfit_called: u64,
    /// Running tasks moved.
    #[stat(
        desc = "running tasks moved, to a greater CPU or off a crowded core (reasons misfit, crowded)"
    )]
    pub running_moved: u64,
    /// Tasks taken by fit.
    #[stat(desc = "tasks that a weak CPU took before the first of a queue, being enough for them")]
    pub fit_taken: u64,
    /// Control groups.
    #[stat(desc = "control groups of which tasks ran of late, if they count")]
    pub groups: u64,
    /// Of those, who ask for more than they may have.
    #[stat(desc = "of those, groups that ask for more CPU time than they may have")]
    pub groups_short: u64,
    /// Tasks of groups out of quota.
    #[stat(desc = "tasks that had to wait for their control group's next period (cpu.max)")]
    pub throttled: u64,
    /// The longest wait.
    #[stat(desc = "the longest that a task waited for a CPU since the start, in milliseconds")]
    pub longest_wait_ms: u64,
    /// By reason.
    #[stat(desc = "decisions by reason")]
    pub reasons: BTreeMap<String, ReasonStats>,
    /// By level.
    #[stat(desc = "migrations by level")]
    pub migrations: BTreeMap<String, LevelStats>,
}

impl From<&Counters> for Metrics {
    fn from(counters: &Counters) -> Self {
        let core = &counters.core;
        let host = |name| {
            let index = HOST_EVENTS.iter().position(|event| *event == name);
            index.map_or(0, |index| counters.host[index])
        };
        let hint_call = |name| {
            let index = HINT_CALLS.iter().position(|call| *call == name);
            index.map_or(0, |index| counters.hint_calls[index])
        };
        let waits = [
            Reason::Queued,
            Reason::QueuedElsewhere,
            Reason::Nowhere,
            Reason::Partner,
        ];
        // Those were running.
        let placed = core.decisions() - core[Reason::Misfit] - core[Reason::Crowded];
        Self {
            decisions: placed,
            claimed: placed - waits.iter().map(|reason| core[*reason]).sum::<u64>(),
            claims_lost: core[Event::ClaimLost],
            searches_llc: core[Event::SearchLlc],
            searches_node: core[Event::SearchNode],
            searches_remote: core[Event::SearchRemote],
            taken_llc: core[Event::StealLlc],
            taken_node: core[Event::StealNode],
            taken_remote: core[Event::StealRemote],
            queued: host("shared") + host("no-set"),
            queued_pinned: host("pinned"),
            kicked: host("kicked"),
            preempted_llc: core[Event::PreemptLlc],
            preempted_node: core[Event::PreemptNode],
            preempted_remote: core[Event::PreemptRemote],
            preempted_none: core[Event::PreemptNone],
            hints_kept: core[Event::HintKept],
            hints_lapsed: core[Event::HintLapsed],
            hints_by_rule: hint_call("by-rule"),
            misfit_waits: core[Event::MisfitWaits],
            misfit_called: core[Event::MisfitCalled],
            running_moved: host("moved"),
            fit_taken: host("fit-taken"),
            groups: counters.shares.groups as u64,
            groups_short: counters.shares.short as u64,
            throttled: host("throttled"),
            longest_wait_ms: counters.waited_ns / 1_000_000,
            reasons: core
                .reasons()
                .map(|(reason, decisions)| (reason.to_string(), ReasonStats { decisions }))
                .collect(),
            migrations: LEVELS
                .iter()
                .zip(counters.migrations)
                .map(|(level, tasks)| (level.to_string(), LevelStats { tasks }))
                .collect(),
        }
    }
}

impl Metrics {
    /// A few lines for people.
    pub fn print(&self, out: &mut impl Write) -> Result<()> {
        let part = |n: u64| 100.0 * n as f64 / self.decisions.max(1) as f64;
        writeln!(
            out,
            "placed {:>9}  claimed {:5.1}%  claims lost {}  searched llc {} node {} remote {}",
            self.decisions,
            part(self.claimed),
            self.claims_lost,
            self.searches_llc,
            self.searches_node,
            self.searches_remote
        )?;
        let mut reasons = String::new();
        for reason in Reason::ALL {
            match self.reasons.get(reason.as_str()) {
                Some(stats) if stats.decisions > 0 => {
                    reasons += &format!("  {reason} {:.1}%", part(stats.decisions));
                }
                _ => {}
            }
        }
        writeln!(out, "  why  {reasons}")?;
        writeln!(
            out,
            "  queued {}  pinned {}  kicked {}  taken llc {} node {} remote {}",
            self.queued,
            self.queued_pinned,
            self.kicked,
            self.taken_llc,
            self.taken_node,
            self.taken_remote
        )?;
        let urgent =
            self.preempted_llc + self.preempted_node + self.preempted_remote + self.preempted_none;
        if urgent > 0 {
            writeln!(
                out,
                "  preempted llc {} node {} remote {} nobody {}",
                self.preempted_llc, self.preempted_node, self.preempted_remote, self.preempted_none
            )?;
        }
        let moved = LEVELS.map(|level| {
            let tasks = self.migrations.get(level).map_or(0, |stats| stats.tasks);
            format!("  {level} {tasks}")
        });
        writeln!(
            out,
            "  moved{}  hints kept {} lapsed {} by rule {}  longest wait {} ms",
            moved.concat(),
            self.hints_kept,
            self.hints_lapsed,
            self.hints_by_rule,
            self.longest_wait_ms
        )?;
        if self.groups_short + self.throttled > 0 {
            writeln!(
                out,
                "  control groups {}  that ask for more than they may have {}  throttled {}",
                self.groups, self.groups_short, self.throttled
            )?;
        }
        if self.misfit_waits + self.running_moved + self.fit_taken > 0 {
            writeln!(
                out,
                "  running moved {}  misfit waits {} called {}  taken for fit {}",
                self.running_moved, self.misfit_waits, self.misfit_called, self.fit_taken
            )?;
        }
        Ok(out.flush()?)
    }
}

/// What the server serves: each client gets what was counted since it last asked.
pub fn server_data(current: Current) -> StatsServerData<(), ()> {
    let open: Box<dyn StatsOpener<(), ()>> = Box::new(move |_| {
        let current = current.clone();
        let mut before = read(&current)?;
        Ok(Box::new(move |_args, _channel| {
            let now = read(&current)?;
            let metrics = Metrics::from(&now.since(&before));
            before = now;
            metrics.to_json()
        }))
    });
    StatsServerData::new()
        .add_meta(Metrics::meta())
        .add_meta(ReasonStats::meta())
        .add_meta(LevelStats::meta())
        .add_ops("top", StatsOps { open, close: None })
}

fn read(current: &Current) -> Result<Counters> {
    let arena = current.lock().expect("no reader panics");
    let arena = arena
        .as_ref()
        .ok_or_else(|| anyhow!("the scheduler is being restarted"))?;
    Ok(arena.counters())
}

/// Prints what a running scx_usher counts, until interrupted.
pub fn monitor(interval: Duration) -> Result<()> {
    scx_utils::monitor_stats::<Metrics>(
        &[],
        interval,
        || false,
        |metrics| metrics.print(&mut std::io::stdout()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what people read adds up. Method: counters with known contents through Metrics into text.
    #[test]
    fn lines_show_reasons_and_levels() {
        let mut core = usher_core::Statistics::default();
        let mut sample = usher_core::Core::of(
            &usher_topo::Topology::build(&usher_topo::shape::parse("1n1l2c1t").unwrap(), 64)
                .unwrap(),
        )
        .unwrap();
        let request = usher_core::Request::wake(usher_topo::Cid(0), usher_topo::Cid(1));
        sample.place(&request); // nobody is idle
        sample.idle_enter(usher_topo::Cid(0));
        sample.place(&request);
        core += sample.statistics();
        let counters = Counters {
            core,
            migrations: [1, 2, 3, 4],
            hint_calls: [0, 0, 0, 0, 5],
            waited_ns: 7_900_000,
            ..Counters::default()
        };
        let metrics = Metrics::from(&counters);
        assert_eq!((metrics.decisions, metrics.claimed), (2, 1));
        let mut text = Vec::new();
        metrics.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("prev-core 50.0%  queued 50.0%"), "{text}");
        assert!(!text.contains("misfit"), "all CPUs are equal: {text}");
        assert!(
            text.contains(
                "moved  core 1  llc 2  node 3  remote 4  hints kept 0 lapsed 0 by rule 5  longest wait 7 ms"
            ),
            "{text}"
        );
    }

    // Goal: who asks again after a restart is not told nonsense. Method: a reading of another arena, with less in it.
    #[test]
    fn counters_of_another_life_begin_anew() {
        let reading = |arena, moved| Counters {
            arena,
            migrations: [moved; LEVELS.len()],
            ..Counters::default()
        };
        let moved = |now: Counters, before| now.since(&before).migrations[0];
        assert_eq!(moved(reading(1, 50), reading(1, 40)), 10);
        assert_eq!(moved(reading(2, 3), reading(1, 40)), 3);
    }

    #[test]
    fn every_statistic_is_explained() {
        let data = server_data(Current::default());
        let mut text = Vec::new();
        data.describe_meta(&mut text, None).unwrap();
        let text = String::from_utf8(text).unwrap();
        for word in [
            "claims_lost",
            "searches_remote",
            "reasons",
            "migrations",
            "decisions",
        ] {
            assert!(text.contains(word), "{word} is missing:\n{text}");
        }
        assert!(text
            .lines()
            .filter(|line| line.starts_with("  "))
            .all(|line| line.contains(" : ")));
    }
}
