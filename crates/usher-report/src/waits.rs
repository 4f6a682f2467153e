// SPDX-License-Identifier: GPL-2.0-only
//! Who waited for a CPU, for how long, behind whom, and beside which idle CPUs: of a simulated run or of a real machine.

use std::io::{self, Write};

use serde::Serialize;

use crate::table::{metric, Text};

/// How a wait began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Woken or born, and sent to an idle CPU.
    ToIdle,
    /// Woken or born, and sent where others run or are on the way.
    Behind,
    /// Stopped while it could have gone on, and another task runs there.
    Stopped,
    /// The same, and the CPU idles. Only of real machines.
    Held,
}

impl Kind {
    /// All of them, in the order of tables.
    pub const ALL: [Kind; 4] = [Kind::ToIdle, Kind::Behind, Kind::Stopped, Kind::Held];

    fn words(self) -> &'static str {
        match self {
            Kind::ToIdle => "sent to an idle CPU",
            Kind::Behind => "sent behind others",
            Kind::Stopped => "stopped by others",
            Kind::Held => "stopped, CPU idle",
        }
    }
}

/// Idle CPUs, or time beside them in ns, by how near they are to where a task waits.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Near {
    /// In the same last-level cache.
    pub llc: u64,
    /// In the same node, the cache included.
    pub node: u64,
    /// Anywhere.
    pub machine: u64,
}

/// So many waits took so long or shorter, but longer than the step before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The longest of them may have taken this.
    pub up_to_ns: u64,
    /// How many.
    pub count: u64,
}

/// All waits that began in one way.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// How.
    pub kind: Kind,
    /// How many are over.
    pub count: u64,
    /// How long they took together, ns.
    pub total_ns: u64,
    /// The median, ns.
    pub p50_ns: u64,
    /// 99 of 100 took no longer, ns.
    pub p99_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// The part of that of which it is known whether CPUs idled.
    pub known_ns: u64,
    /// For how much of `known_ns` CPUs idled: see [`Report::notes`].
    pub beside_idle_ns: Near,
    /// In steps of [`bounds`].
    pub histogram: Vec<Step>,
}

/// A task.
#[derive(Clone, Debug, Serialize)]
pub struct Task {
    /// Its number: of a simulated task, or of a thread.
    pub id: u32,
    /// Its name.
    pub name: String,
}

/// One long wait.
#[derive(Clone, Debug, Serialize)]
pub struct Slow {
    /// How long it took, or has taken so far, ns.
    pub wait_ns: u64,
    /// When it began, ns since the observation did.
    pub began_ns: u64,
    /// Who waited.
    pub task: Task,
    /// How it began.
    pub kind: Kind,
    /// Who woke it or gave birth to it; `None` for an interrupt, and for who was stopped.
    pub waker: Option<Task>,
    /// The scheduler's reason for where it was sent, if that is known.
    pub reason: Option<&'static str>,
    /// The CPU that it was sent to, or stopped on.
    pub sent_to: u32,
    /// Who ran there then, or took its place.
    pub behind: Option<Task>,
    /// The CPU that it got; `None` if it still waits.
    pub got: Option<u32>,
    /// Idle CPUs that it might have run on: see [`Report::notes`].
    pub idle: Near,
}

/// Everything about waits.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// All waits, by how they began.
    pub kinds: Vec<Sum>,
    /// The slowest of those woken or born, longest first.
    pub slowest: Vec<Slow>,
    /// The slowest of those stopped.
    pub slowest_stopped: Vec<Slow>,
    /// What the figures leave out or mean.
    pub notes: Vec<String>,
}

/// Bounds of histograms: 1, 2, 5, 10 us and so on.
pub fn bounds() -> impl Iterator<Item = u64> {
    (3..19).flat_map(|decade| [1, 2, 5].map(|digit| digit * 10_u64.pow(decade)))
}

/// A histogram from how many values there are up to a bound; ends with the one that holds the greatest.
pub fn histogram(count: u64, max_ns: u64, up_to: impl Fn(u64) -> u64) -> Vec<Step> {
    let (mut steps, mut below) = (Vec::new(), 0);
    for up_to_ns in bounds() {
        if below == count {
            break;
        }
        let until = match up_to_ns >= max_ns {
            true => count,
            false => up_to(up_to_ns),
        };
        if until > 0 {
            steps.push(Step {
                up_to_ns,
                count: until - below,
            });
        }
        below = until;
    }
    steps
}

fn ns(value: u64) -> String {
    metric("ns", value as f64)
}

fn task(task: &Task) -> String {
    format!("{} ({})", task.name, task.id)
}

impl Report {
    /// Prints it as tables.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut text = Text::new(&[
            "waits for a CPU",
            ">count",
            ">mean",
            ">p50",
            ">p99",
            ">max",
            ">all",
            ">beside an idle CPU: LLC",
            ">node",
            ">machine",
        ]);
        for sum in &self.kinds {
            let share = |part: u64| match sum.kind {
                // Its own does.
                Kind::Held => String::new(),
                _ if sum.known_ns == 0 => String::new(),
                _ => format!("{:.1} %", part as f64 / sum.known_ns as f64 * 100.0),
            };
            let row = [
                sum.kind.words().into(),
                sum.count.to_string(),
                metric("ns", sum.total_ns as f64 / sum.count.max(1) as f64),
                ns(sum.p50_ns),
                ns(sum.p99_ns),
                ns(sum.max_ns),
                ns(sum.total_ns),
                share(sum.beside_idle_ns.llc),
                share(sum.beside_idle_ns.node),
                share(sum.beside_idle_ns.machine),
            ];
            text.row(row);
        }
        writeln!(out, "{text}")?;
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        if !self.notes.is_empty() {
            writeln!(out)?;
        }
        self.write_histogram(out)?;
        write_slowest(out, ">slowest after a wakeup or birth", &self.slowest)?;
        write_slowest(out, ">slowest after being stopped", &self.slowest_stopped)
    }

    fn write_histogram(&self, out: &mut impl Write) -> io::Result<()> {
        let kinds = self
            .kinds
            .iter()
            .map(|sum| format!(">{}", sum.kind.words()));
        let headings: Vec<String> = std::iter::once(">waits up to".into())
            .chain(kinds)
            .collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut text = Text::new(&headings);
        let steps = self.kinds.iter().flat_map(|sum| &sum.histogram);
        let mut bounds: Vec<u64> = steps.map(|step| step.up_to_ns).collect();
        bounds.sort_unstable();
        bounds.dedup();
        for bound in bounds {
            let counts = self.kinds.iter().map(|sum| {
                let step = sum.histogram.iter().find(|step| step.up_to_ns == bound);
                step.map_or(String::new(), |step| step.count.to_string())
            });
            text.row(std::iter::once(ns(bound)).chain(counts));
        }
        writeln!(out, "{text}")
    }
}

fn write_slowest(out: &mut impl Write, heading: &str, slowest: &[Slow]) -> io::Result<()> {
    let Some(first) = slowest.first() else {
        return Ok(());
    };
    let stopped = matches!(first.kind, Kind::Stopped | Kind::Held);
    let nobody = if stopped { "nobody" } else { "" };
    let reasons = slowest.iter().any(|slow| slow.reason.is_some());
    let mut headings = vec![heading, ">from", "task"];
    if stopped {
        headings.extend([">on CPU", "for"]);
    } else {
        headings.push("woken by");
        headings.extend(reasons.then_some("reason"));
        headings.extend([">to CPU", "behind"]);
    }
    headings.extend([">got CPU", ">idle CPUs: LLC", ">node", ">machine"]);
    let mut text = Text::new(&headings);
    for slow in slowest {
        let mut row = vec![
            ns(slow.wait_ns),
            format!("{:.6} s", slow.began_ns as f64 / 1e9),
            task(&slow.task),
        ];
        if !stopped {
            row.push(slow.waker.as_ref().map_or("an interrupt".into(), task));
            row.extend(reasons.then(|| slow.reason.unwrap_or("-").into()));
        }
        row.extend([
            slow.sent_to.to_string(),
            slow.behind.as_ref().map_or(nobody.into(), task),
            slow.got.map_or("waits".into(), |cpu| cpu.to_string()),
            slow.idle.llc.to_string(),
            slow.idle.node.to_string(),
            slow.idle.machine.to_string(),
        ]);
        text.row(row);
    }
    writeln!(out, "{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a histogram has every value once, from the first bound that has one to the one that holds the greatest.
    // Method: values by hand, in no step, on a bound, and beyond.
    #[test]
    fn histograms_hold_all() {
        let values = [3_000, 3_500, 5_000, 70_000];
        let up_to = |bound| values.iter().filter(|value| **value <= bound).count() as u64;
        let steps = histogram(4, 70_000, up_to);
        let shown: Vec<(u64, u64)> = steps.iter().map(|s| (s.up_to_ns, s.count)).collect();
        let expected = [
            (5_000, 3),
            (10_000, 0),
            (20_000, 0),
            (50_000, 0),
            (100_000, 1),
        ];
        assert_eq!(shown, expected);
        assert!(histogram(0, 0, |_| 0).is_empty());
    }

    // Goal: reasons have a column where somebody knows them; who still waits is said to; notes are between the tables.
    #[test]
    fn tables_fit_what_is_known() {
        let named = |id, name: &str| Task {
            id,
            name: name.into(),
        };
        let slow = Slow {
            wait_ns: 2_000_000,
            began_ns: 1_500_000_000,
            task: named(7, "worker"),
            kind: Kind::Behind,
            waker: None,
            reason: None,
            sent_to: 3,
            behind: Some(named(9, "hog")),
            got: None,
            idle: Near {
                llc: 0,
                node: 1,
                machine: 2,
            },
        };
        let sum = Sum {
            kind: Kind::Behind,
            count: 2,
            total_ns: 4_000_000,
            known_ns: 4_000_000,
            p50_ns: 2_000_000,
            p99_ns: 2_000_000,
            max_ns: 2_000_000,
            beside_idle_ns: Near {
                llc: 0,
                node: 1_000_000,
                machine: 4_000_000,
            },
            histogram: histogram(2, 2_000_000, |_| 0),
        };
        let mut report = Report {
            kinds: vec![sum],
            slowest: vec![slow],
            slowest_stopped: Vec::new(),
            notes: vec!["a note".into()],
        };
        let shown = |report: &Report| {
            let mut out = Vec::new();
            report.write(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = shown(&report);
        for part in [
            "0.0 %",
            "25.0 %",
            "100.0 %",
            "a note\n\n",
            "an interrupt",
            "hog (9)",
            " waits ",
            "2 ms",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("reason"), "{text}");
        report.slowest[0].reason = Some("queued");
        assert!(shown(&report).contains("reason"));
    }
}
