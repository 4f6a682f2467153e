// SPDX-License-Identifier: GPL-2.0-only
//! From model back to a file: strict JSON, except that keys repeat where events do.

use std::fmt::Write;

use super::model::{Attrs, Event, Phase, Repeat, RtApp, Step, TaskDef};

/// The text of a file that says the same.
pub fn write(file: &RtApp) -> String {
    let mut out = Writer {
        text: String::new(),
        depth: 0,
        first: true,
    };
    out.open(None);
    out.open(Some("global"));
    let global = &file.global;
    out.raw(
        "duration",
        global.duration_s.map_or("-1".into(), |s| s.to_string()),
    );
    out.text("default_policy", global.default_policy.name());
    out.raw("pi_enabled", global.pi_enabled);
    out.raw("mem_buffer_size", global.mem_buffer_size);
    out.text("io_device", &global.io_device);
    out.raw("cumulative_slack", global.cumulative_slack);
    out.close();
    out.open(Some("tasks"));
    for task in &file.tasks {
        task_object(&mut out, task);
    }
    out.close();
    out.close();
    out.text.push('\n');
    out.text
}

fn task_object(out: &mut Writer, task: &TaskDef) {
    out.open(Some(&task.name));
    out.raw("instance", task.instances);
    out.raw("delay", task.delay_us);
    attrs(out, &task.attrs);
    match task.phases.as_slice() {
        [only] if only.name.is_empty() => {
            if task.repeat == Repeat::Times(1) {
                repeat(out, only.repeat);
            }
            events(out, &only.events);
        }
        phases => {
            repeat(out, task.repeat);
            out.open(Some("phases"));
            phases.iter().for_each(|phase| phase_object(out, phase));
            out.close();
        }
    }
    out.close();
}

fn phase_object(out: &mut Writer, phase: &Phase) {
    out.open(Some(&phase.name));
    repeat(out, phase.repeat);
    attrs(out, &phase.attrs);
    events(out, &phase.events);
    out.close();
}

fn repeat(out: &mut Writer, repeat: Repeat) {
    match repeat {
        Repeat::Forever => out.raw("loop", -1),
        Repeat::Times(n) => out.raw("loop", n),
    }
}

fn attrs(out: &mut Writer, attrs: &Attrs) {
    if let Some(policy) = attrs.policy {
        out.text("policy", policy.name());
    }
    if let Some((priority, _)) = attrs.priority {
        out.raw("priority", priority);
    }
    if let Some((cpus, _)) = &attrs.cpus {
        out.raw("cpus", format!("{cpus:?}"));
    }
}

fn events(out: &mut Writer, steps: &[Step]) {
    for step in steps {
        match &step.event {
            Event::Run(us) => out.raw("run", us),
            Event::Runtime(us) => out.raw("runtime", us),
            Event::Sleep(us) => out.raw("sleep", us),
            Event::Mem(bytes) => out.raw("mem", bytes),
            Event::IoRun(bytes) => out.raw("iorun", bytes),
            Event::Timer {
                name,
                period,
                absolute,
            } => {
                out.open(Some("timer"));
                out.text("ref", name);
                out.raw("period", period);
                out.text("mode", if *absolute { "absolute" } else { "relative" });
                out.close();
            }
            Event::Lock(name) => out.text("lock", name),
            Event::Unlock(name) => out.text("unlock", name),
            Event::Wait { cond, mutex } => pair(out, "wait", cond, mutex),
            Event::Sync { cond, mutex } => pair(out, "sync", cond, mutex),
            Event::Signal(name) => out.text("signal", name),
            Event::Broad(name) => out.text("broad", name),
            Event::Suspend(name) => out.text("suspend", name),
            Event::Resume(name) => out.text("resume", name),
            Event::Barrier(name) => out.text("barrier", name),
            Event::Yield => out.text("yield", ""),
            Event::Fork(name) => out.text("fork", name),
        }
    }
}

fn pair(out: &mut Writer, key: &str, cond: &str, mutex: &str) {
    out.open(Some(key));
    out.text("ref", cond);
    out.text("mutex", mutex);
    out.close();
}

struct Writer {
    text: String,
    depth: usize,
    /// Nothing stands in the innermost object yet.
    first: bool,
}

impl Writer {
    fn key(&mut self, key: &str) {
        if !self.first {
            self.text.push(',');
        }
        self.first = false;
        let indent = "  ".repeat(self.depth);
        // Writing to a string cannot fail.
        let _ = write!(self.text, "\n{indent}{}: ", quoted(key));
    }

    fn open(&mut self, key: Option<&str>) {
        if let Some(key) = key {
            self.key(key);
        }
        self.text.push('{');
        self.depth += 1;
        self.first = true;
    }

    fn close(&mut self) {
        self.depth -= 1;
        let indent = "  ".repeat(self.depth);
        let _ = write!(self.text, "\n{indent}}}");
        self.first = false;
    }

    fn raw(&mut self, key: &str, value: impl std::fmt::Display) {
        self.key(key);
        let _ = write!(self.text, "{value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, quoted(value));
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
