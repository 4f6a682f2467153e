// SPDX-License-Identifier: GPL-2.0-only
//! `usher sim --waits`: who waited for a CPU, and beside which idle ones.

use std::io::{self, Write};

use serde::Serialize;
use usher_report::table::{metric, Text};
use usher_sim::waits::{SlowWait, WaitKind, Waited, Waits};

/// What `--waits` tells.
#[derive(Serialize)]
pub struct WaitReport {
    /// All waits, by how they began.
    kinds: Vec<Kind>,
    /// The slowest of those woken or born, longest first.
    slowest: Vec<SlowWait>,
    /// The slowest of those stopped.
    slowest_stopped: Vec<SlowWait>,
    /// Tasks waited that may not run everywhere: `beside_idle_ns` leaves them out.
    restricted: bool,
}

#[derive(Serialize)]
struct Kind {
    #[serde(flatten)]
    waited: Waited,
    mean_ns: f64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    /// How many took so long or shorter, but longer than the step before.
    histogram: Vec<Step>,
}

#[derive(Clone, Copy, Serialize)]
struct Step {
    up_to_ns: u64,
    count: u64,
}

impl Kind {
    fn of(waited: &Waited) -> Kind {
        let h = &waited.histogram;
        Kind {
            mean_ns: h.mean(),
            p50_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
            max_ns: h.max(),
            histogram: steps(waited),
            waited: waited.clone(),
        }
    }
}

/// 1, 2, 5, 10 us and so on, as far as there are values.
fn steps(waited: &Waited) -> Vec<Step> {
    let h = &waited.histogram;
    let bounds = (3..19).flat_map(|decade| [1, 2, 5].map(|digit| digit * 10_u64.pow(decade)));
    let (mut steps, mut below) = (Vec::new(), 0);
    for up_to_ns in bounds {
        if below == h.len() {
            break;
        }
        let until = match up_to_ns >= h.max() {
            true => h.len(),
            false => h.count_between(0, up_to_ns),
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

/// How a wait began, in words.
fn words(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::ToIdle => "sent to an idle CPU",
        WaitKind::Behind => "sent behind others",
        WaitKind::Stopped => "stopped by others",
    }
}

fn ns(value: f64) -> String {
    metric("ns", value)
}

fn task((number, name): &(u32, String)) -> String {
    format!("{name} ({number})")
}

impl WaitReport {
    pub fn of(waits: &Waits) -> WaitReport {
        WaitReport {
            kinds: waits.waited().iter().map(Kind::of).collect(),
            slowest: waits.slowest(),
            slowest_stopped: waits.slowest_stopped(),
            restricted: waits.restricted(),
        }
    }

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
        for kind in &self.kinds {
            let all = kind.waited.total_ns;
            let beside = &kind.waited.beside_idle_ns;
            let share = |part: u64| match kind.waited.kind {
                // Its own idles until it is there.
                WaitKind::ToIdle => String::new(),
                _ if all == 0 => String::new(),
                _ => format!("{:.1} %", part as f64 / all as f64 * 100.0),
            };
            let row = [
                words(kind.waited.kind).into(),
                kind.waited.count.to_string(),
                ns(kind.mean_ns),
                ns(kind.p50_ns as f64),
                ns(kind.p99_ns as f64),
                ns(kind.max_ns as f64),
                ns(all as f64),
                share(beside.llc),
                share(beside.node),
                share(beside.machine),
            ];
            text.row(row);
        }
        writeln!(out, "{text}")?;
        if self.restricted {
            writeln!(
                out,
                "beside an idle CPU: without the waits of tasks that may not run everywhere\n"
            )?;
        }
        self.write_histogram(out)?;
        write_slowest(out, ">slowest after a wakeup or birth", &self.slowest)?;
        write_slowest(out, ">slowest after being stopped", &self.slowest_stopped)
    }

    fn write_histogram(&self, out: &mut impl Write) -> io::Result<()> {
        let mut headings = vec![">waits up to".to_string()];
        headings.extend(
            self.kinds
                .iter()
                .map(|kind| format!(">{}", words(kind.waited.kind))),
        );
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut text = Text::new(&headings);
        let all = || self.kinds.iter().flat_map(|kind| &kind.histogram);
        let mut bounds: Vec<u64> = all().map(|step| step.up_to_ns).collect();
        bounds.sort_unstable();
        bounds.dedup();
        for bound in bounds {
            let counts = self.kinds.iter().map(|kind| {
                let step = kind.histogram.iter().find(|step| step.up_to_ns == bound);
                step.map_or(String::new(), |step| step.count.to_string())
            });
            text.row(std::iter::once(ns(bound as f64)).chain(counts));
        }
        writeln!(out, "{text}")
    }
}

fn write_slowest(out: &mut impl Write, heading: &str, slowest: &[SlowWait]) -> io::Result<()> {
    if slowest.is_empty() {
        return Ok(());
    }
    let stopped = slowest[0].kind == WaitKind::Stopped;
    let how: &[&str] = match stopped {
        true => &[">on CPU", "for"],
        false => &["woken by", "reason", ">to CPU", "behind"],
    };
    let rest = [">got CPU", ">idle then: LLC", ">node", ">machine"];
    let headings = [&[heading, ">from", "task"], how, &rest].concat();
    let mut text = Text::new(&headings);
    for slow in slowest {
        let behind = slow.behind.as_ref().map_or(String::new(), task);
        let mut row = vec![
            ns(slow.wait_ns as f64),
            format!("{:.6} s", slow.began_ns as f64 / 1e9),
            task(&slow.task),
        ];
        if !stopped {
            row.push(slow.waker.as_ref().map_or("an interrupt".into(), task));
            row.push(slow.reason.unwrap_or("-").into());
        }
        row.extend([
            slow.sent_to.to_string(),
            behind,
            slow.got.map_or("waits".into(), |cpu| cpu.to_string()),
            slow.idle.llc.to_string(),
            slow.idle.node.to_string(),
            slow.idle.machine.to_string(),
        ]);
        text.row(row);
    }
    writeln!(out, "{text}")
}
