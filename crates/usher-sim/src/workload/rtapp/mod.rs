// SPDX-License-Identifier: GPL-2.0-only
//! rt-app files as workloads.
//!
//! ```text
//!   text ──syntax──> keys with places ──read──> RtApp (model) ──lower──> Workload of threads (program)
//!                                                  │
//!                                                write ──> text
//! ```
//!
//! What a file means follows rt-app's tutorial and behaviour (version 1.0 and later); docs/WORKLOADS.md has it key by key.
//!
//! An event's key may carry a number or a tail after `_` or `-` (`run1`, `sleep_b`). A task name that
//! comes twice gets a number. At the end of `duration` everything stops; threads that merely wait on
//! conditions then are counted (`waiting_at_end`), threads that have locked each other up are a deadlock.

mod lower;
mod model;
mod program;
mod read;
mod syntax;
#[cfg(test)]
mod tests;
mod write;

pub use model::{Attrs, Event, Global, Phase, Policy, Repeat, RtApp, Step, TaskDef};
pub use syntax::Place;
pub use write::write;

use super::figures::{count, footprint, span, time, Args, Figure, Kind, US};
use super::registry::Hints;
use super::Workload;
use crate::error::{nearest, SimError};
use crate::machine::Machine;
use crate::params::Params;

/// The parameters of all rt-app files.
pub const FIGURES: &[Figure] = &[
    time(
        "duration",
        0,
        "ends the run after this time; 0: as the file says",
        "the file",
    ),
    time(
        "warmup",
        0,
        "time before the measurement, a part of the run",
        "rt-app has none",
    ),
    Figure {
        key: "ignore",
        kind: Kind::Text(""),
        meaning:
            "keys to leave out of account, joined by commas, out of those that are not modelled",
        source: "none",
    },
    time(
        "loop_cost",
        US,
        "CPU time of rt-app itself per pass of a phase",
        "assumed: clock readings and log",
    ),
    span(
        "runtime_step",
        32 * US,
        "granularity of `runtime`",
        "rt-app: 32 us",
    ),
    count(
        "mem_ns_per_kib",
        60,
        (0, 1_000_000),
        "time to write one KiB of memory",
        "assumed: 16 GB/s",
    ),
    time(
        "null_write",
        300,
        "time of one write to /dev/null",
        "assumed: a system call",
    ),
    time(
        "io_latency",
        100 * US,
        "latency of a write to another device",
        "assumed: a SATA SSD",
    ),
    count(
        "io_ns_per_kib",
        2_000,
        (0, 1_000_000_000),
        "time of one KiB to another device",
        "assumed: 500 MB/s",
    ),
    footprint("footprint_kib", 32),
];

/// Reads a file's text.
///
/// # Errors
/// What is wrong first, with file, line and column.
pub fn parse(name: &str, text: &str) -> Result<RtApp, SimError> {
    read::read(name, text, &[]).map(|reading| reading.file)
}

/// Makes a workload of a file's text.
pub(super) fn load(
    name: &str,
    text: &str,
    machine: &Machine,
    params: &mut Params,
    hints: &mut Hints,
) -> Result<Workload, SimError> {
    let args = Args::read(FIGURES, params, machine)?;
    let ignore = ignored_keys(args.text("ignore"))?;
    let reading = read::read(name, text, &ignore)?;
    lower::lower(name, reading, &args, hints)
}

fn ignored_keys(text: &str) -> Result<Vec<&'static str>, SimError> {
    let known = read::ignorable();
    let words = text.split(',').filter(|word| !word.is_empty());
    words
        .map(|word| {
            known
                .iter()
                .copied()
                .find(|key| *key == word)
                .ok_or_else(|| SimError::Unknown {
                    kind: "key in parameter `ignore`".into(),
                    name: word.into(),
                    nearest: nearest(word, &known),
                })
        })
        .collect()
}
