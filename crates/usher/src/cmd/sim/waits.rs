// SPDX-License-Identifier: GPL-2.0-only
//! `usher sim --waits`: what the simulator's observer saw, as a report.

use usher_report::waits::{self, Kind, Report, Slow, Sum, Task};
use usher_sim::waits::{Near, SlowWait, WaitKind, Waited, Waits};

/// What `--waits` tells.
pub fn report(waits: &Waits) -> Report {
    let mut notes = vec![
        "beside an idle CPU: the share of that time in which there was one to which nobody was on the way",
        "idle CPUs: when the wait began, of those that the task may run on",
    ];
    if waits.restricted() {
        notes.push(
            "the waits of tasks that may not run everywhere are not among those beside an idle CPU",
        );
    }
    let mut notes: Vec<String> = notes.into_iter().map(String::from).collect();
    if waits.still() > 0 {
        let still = waits.still();
        notes.push(format!(
            "{still} waits were not over when the run ended: they are among the slowest alone"
        ));
    }
    Report {
        kinds: waits.waited().iter().map(sum).collect(),
        slowest: waits.slowest().iter().map(slow).collect(),
        slowest_stopped: waits.slowest_stopped().iter().map(slow).collect(),
        notes,
    }
}

fn kind(kind: WaitKind) -> Kind {
    match kind {
        WaitKind::ToIdle => Kind::ToIdle,
        WaitKind::Behind => Kind::Behind,
        WaitKind::Stopped => Kind::Stopped,
    }
}

fn near(near: Near) -> waits::Near {
    let Near { llc, node, machine } = near;
    waits::Near { llc, node, machine }
}

fn sum(waited: &Waited) -> Sum {
    let h = &waited.histogram;
    Sum {
        kind: kind(waited.kind),
        count: waited.count,
        total_ns: waited.total_ns,
        known_ns: waited.known_ns,
        p50_ns: h.value_at_quantile(0.5),
        p99_ns: h.value_at_quantile(0.99),
        max_ns: h.max(),
        beside_idle_ns: near(waited.beside_idle_ns),
        histogram: waits::histogram(h.len(), h.max(), |bound| h.count_between(0, bound)),
    }
}

fn slow(slow: &SlowWait) -> Slow {
    let task = |(id, name): &(u32, String)| Task {
        id: *id,
        name: name.clone(),
    };
    Slow {
        wait_ns: slow.wait_ns,
        began_ns: slow.began_ns,
        task: task(&slow.task),
        kind: kind(slow.kind),
        waker: slow.waker.as_ref().map(task),
        reason: slow.reason,
        sent_to: slow.sent_to,
        behind: slow.behind.as_ref().map(task),
        got: slow.got,
        idle: near(slow.idle),
    }
}
