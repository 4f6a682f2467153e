// SPDX-License-Identifier: GPL-2.0-only
//! `usher sim --trace`: a run as a Perfetto trace.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use anyhow::Context as _;
use usher_report::perfetto::{Left, Named, Writer};
use usher_sim::task::{State, Task};
use usher_sim::trace::{TraceEvent, Tracer};
use usher_sim::{Nanos, TaskId};

use crate::exit::{Code, Failure};

/// Empties the file and writes a run into it. What cannot be written is told, and sets `broken`.
pub fn into_file(
    path: &Path,
    reasons: &'static [&'static str],
    broken: &Arc<AtomicBool>,
) -> Result<Box<dyn Tracer>, Failure> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()));
    let file = file.map_err(|error| Failure {
        code: Code::WrongUse,
        error,
    })?;
    Ok(Box::new(Perfetto {
        writer: Some(Writer::new(BufWriter::new(file))),
        reasons,
        broken: Arc::clone(broken),
    }))
}

/// Writes what happens as a Perfetto trace. Ids are shifted by one, since 0 is the idle task there.
struct Perfetto {
    writer: Option<Writer<BufWriter<File>>>,
    reasons: &'static [&'static str],
    /// Something could not be written.
    broken: Arc<AtomicBool>,
}

fn named<'a>(task: Option<TaskId>, look_up: &dyn Fn(TaskId) -> &'a Task) -> Named<'a> {
    match task {
        Some(id) => Named {
            id: id.0 + 1,
            name: look_up(id).name(),
        },
        None => Named::IDLE,
    }
}

impl Perfetto {
    fn write<'a>(
        &mut self,
        at: Nanos,
        event: TraceEvent,
        task: &dyn Fn(TaskId) -> &'a Task,
    ) -> io::Result<()> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        match event {
            TraceEvent::Switch { cpu, prev, next } => {
                let left = match prev {
                    Some((_, State::Sleeping)) => Left::Asleep,
                    Some((_, State::Dead)) => Left::Dead,
                    _ => Left::Runnable,
                };
                writer.switch(
                    at,
                    cpu.0,
                    named(prev.map(|p| p.0), task),
                    left,
                    named(next, task),
                )
            }
            TraceEvent::Placed {
                waker_cpu,
                waker,
                task: woken,
                cpu,
                reason,
                ..
            } => {
                let woken = named(Some(woken), task);
                writer.waking(at, waker_cpu.0, named(waker, task), woken, cpu.0)?;
                match reason.and_then(|r| self.reasons.get(usize::from(r))) {
                    Some(reason) => writer.decision(at, waker_cpu.0, woken, cpu.0, reason),
                    None => Ok(()),
                }
            }
            TraceEvent::Measured => writer.mark(at, "measuring begins"),
            TraceEvent::Waited { .. } | TraceEvent::Exit { .. } | TraceEvent::Ended => Ok(()),
        }
    }
}

impl Tracer for Perfetto {
    fn event<'a>(&mut self, at: Nanos, event: TraceEvent, task: &dyn Fn(TaskId) -> &'a Task) {
        if let Err(error) = self.write(at, event, task) {
            // The run goes on: its result does not depend on the trace.
            let _ = writeln!(io::stderr(), "usher: the trace ends at {at} ns: {error}");
            self.broken.store(true, Ordering::Relaxed);
            self.writer = None;
        }
    }
}

impl Drop for Perfetto {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.writer.take().map(Writer::finish) {
            let _ = writeln!(io::stderr(), "usher: the trace is not complete: {error}");
            self.broken.store(true, Ordering::Relaxed);
        }
    }
}
