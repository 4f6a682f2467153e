// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel says about the loaded sched_ext scheduler.

use std::collections::BTreeMap;

const FOLDER: &str = "/sys/kernel/sched_ext";

fn read(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{name}")).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

/// `enabled`, `disabled`, `enabling`, `disabling` or `bypassing`; `None` on kernels without sched_ext.
pub fn state() -> Option<String> {
    read("state")
}

/// Name of the loaded scheduler.
pub fn ops() -> Option<String> {
    read("root/ops")
}

/// The kernel's counters of noteworthy events of the loaded scheduler.
pub fn events() -> BTreeMap<String, u64> {
    let text = read("root/events").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_string(), count.trim().parse().ok()?))
        })
        .collect()
}
