// SPDX-License-Identifier: GPL-2.0-only
//! From syntax to model. Every key is either understood, or listed here as having no meaning in a
//! simulation, or refused with its place and a remedy; none is skipped.

use std::collections::BTreeMap;

use super::model::{Attrs, Event, Global, Phase, Policy, Repeat, RtApp, Step, TaskDef};
use super::syntax::{parse, Entry, Origin, Place, Value};
use crate::error::{nearest, SimError};

/// A file, and what has to be said about it.
#[derive(Debug)]
pub(super) struct Reading {
    pub file: RtApp,
    /// Keys left out because the user said so, and how often.
    pub ignored: BTreeMap<&'static str, u32>,
    /// Whether a calibration is given.
    pub calibrated: bool,
}

/// Keys of `global` that have no meaning in a simulation: rt-app's log files, traces and plots, and
/// paging. Their type is checked all the same.
const NO_MEANING: &[(&str, Form)] = &[
    ("logdir", Form::Text),
    ("log_basename", Form::Text),
    ("log_size", Form::WholeOrText),
    ("ftrace", Form::FlagOrText),
    ("gnuplot", Form::Flag),
    ("lock_pages", Form::Flag),
    // Of AQuoSA's time; rt-app's own examples still carry them.
    ("frag", Form::WholeOrText),
    ("fragment", Form::WholeOrText),
];

#[derive(Clone, Copy)]
enum Form {
    Text,
    Flag,
    WholeOrText,
    FlagOrText,
}

impl Form {
    fn check(self, origin: Origin<'_>, entry: &Entry) -> Result<(), SimError> {
        let must = match (self, &entry.node.value) {
            (Form::Text | Form::WholeOrText | Form::FlagOrText, Value::Text(_))
            | (Form::Flag | Form::FlagOrText, Value::Flag(_))
            | (Form::WholeOrText, Value::Whole(_)) => return Ok(()),
            (Form::Text, _) => "text",
            (Form::Flag, _) => "true or false",
            (Form::WholeOrText, _) => "a whole number or text",
            (Form::FlagOrText, _) => "text, or true or false",
        };
        Err(origin.bad(entry, must))
    }
}

const GLOBAL_KEYS: &[&str] = &[
    "duration",
    "default_policy",
    "pi_enabled",
    "mem_buffer_size",
    "io_device",
    "cumulative_slack",
    "calibration",
];

const RESOURCE_TYPES: &[&str] = &[
    "mutex",
    "signal",
    "wait",
    "broadcast",
    "sync",
    "sleep",
    "run",
    "timer",
];

/// Keys of tasks and phases that the simulator cannot honour; `--set ignore=` may name those with a
/// remedy of `None`.
struct Unsupported {
    key: &'static str,
    /// The value that asks for nothing.
    neutral: Option<Value>,
    why: &'static str,
    /// What to do instead; `None`: remove it, or have it ignored.
    remedy: Option<&'static str>,
}

const fn unsupported(key: &'static str, neutral: Option<Value>, why: &'static str) -> Unsupported {
    Unsupported {
        key,
        neutral,
        why,
        remedy: None,
    }
}

const fn obsolete(key: &'static str, remedy: &'static str) -> Unsupported {
    Unsupported {
        key,
        neutral: None,
        why: "belongs to the file format of before 2014",
        remedy: Some(remedy),
    }
}

const DEADLINE: &str = "belongs to SCHED_DEADLINE or a custom slice, which is not modelled";

const UNSUPPORTED: &[Unsupported] = &[
    unsupported(
        "util_min",
        Some(Value::Whole(0)),
        "(utilisation clamping) is not modelled",
    ),
    unsupported(
        "util_max",
        Some(Value::Whole(1024)),
        "(utilisation clamping) is not modelled",
    ),
    unsupported(
        "taskgroup",
        Some(Value::Text(String::new())),
        "(a CPU cgroup) is not modelled",
    ),
    unsupported("nodes_membind", None, "(memory binding) is not modelled"),
    unsupported("membind_nodes", None, "(memory binding) is not modelled"),
    unsupported("dl-runtime", Some(Value::Whole(0)), DEADLINE),
    unsupported("dl-period", Some(Value::Whole(0)), DEADLINE),
    unsupported("dl-deadline", Some(Value::Whole(0)), DEADLINE),
    unsupported("dl-reclaim", Some(Value::Flag(false)), DEADLINE),
    unsupported("period", Some(Value::Whole(0)), DEADLINE),
    unsupported("deadline", Some(Value::Whole(0)), DEADLINE),
    obsolete("exec", "use `run`"),
    obsolete("lock_order", "use `lock` and `unlock`"),
    obsolete(
        "resources",
        "use `lock` and `unlock`, which need no declaration",
    ),
];

const TASK_KEYS: &[&str] = &["instance", "delay", "phases"];
const SHARED_KEYS: &[&str] = &["loop", "policy", "priority", "cpus"];

/// Event names; one that begins with another stands before it.
const EVENTS: &[&str] = &[
    "runtime", "run", "sleep", "timer", "lock", "unlock", "wait", "signal", "broad", "sync",
    "suspend", "resume", "barrier", "mem", "iorun", "yield", "fork",
];

/// The event of a key: an event's name, as it is or with a number or a tail after `_` or `-`, by which
/// files keep keys apart (`run`, `run1`, `run_a`).
fn event_name(key: &str) -> Option<&'static str> {
    if UNSUPPORTED.iter().any(|u| u.key == key) {
        return None; // `lock_order` is not a lock
    }
    EVENTS.iter().copied().find(|name| {
        key.strip_prefix(name).is_some_and(|tail| {
            tail.starts_with(['_', '-']) || tail.bytes().all(|b| b.is_ascii_digit())
        })
    })
}

/// Longest legal duration or count: what fits 63 bits as nanoseconds.
const MOST: i64 = i64::MAX / 1000;

/// Keys that [`read`] can be told to leave out.
pub(super) fn ignorable() -> Vec<&'static str> {
    UNSUPPORTED
        .iter()
        .filter(|u| u.remedy.is_none())
        .map(|u| u.key)
        .collect()
}

/// Reads a file's text.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub(super) fn read(name: &str, text: &str, ignore: &[&'static str]) -> Result<Reading, SimError> {
    let origin = Origin { name };
    let root = parse(origin, text)?;
    let mut reader = Reader {
        origin,
        ignore,
        ignored: BTreeMap::new(),
        calibrated: false,
    };
    let mut global = Global::default();
    let mut tasks = None;
    let mut seen = Seen::new(origin);
    for entry in &root {
        seen.once(entry)?;
        match entry.key.as_str() {
            "global" => global = reader.global(entry)?,
            "resources" => reader.resources(entry)?,
            "tasks" => tasks = Some(reader.tasks(entry)?),
            key => {
                let near = near(key, &["global", "resources", "tasks"]);
                return Err(origin.error(entry.at, format!("unknown object `{key}`{near}")));
            }
        }
    }
    let Some(tasks) = tasks else {
        let at = Place { line: 1, column: 1 };
        return Err(origin.error(
            at,
            "has no `tasks` object; without tasks there is nothing to run",
        ));
    };
    let file = RtApp { global, tasks };
    Ok(Reading {
        file,
        ignored: reader.ignored,
        calibrated: reader.calibrated,
    })
}

fn near(key: &str, valid: &[&str]) -> String {
    match nearest(key, valid).as_slice() {
        [one] => format!("; did you mean `{one}`?"),
        many => format!("; known: {}", many.join(", ")),
    }
}

/// Refuses a property that is given twice. (Events may be.)
struct Seen<'a> {
    origin: Origin<'a>,
    keys: BTreeMap<String, Place>,
}

impl<'a> Seen<'a> {
    fn new(origin: Origin<'a>) -> Self {
        Seen {
            origin,
            keys: BTreeMap::new(),
        }
    }

    fn once(&mut self, entry: &Entry) -> Result<(), SimError> {
        match self.keys.insert(entry.key.clone(), entry.at) {
            None => Ok(()),
            Some(first) => {
                let what = format!(
                    "`{}` is given twice, first at {first}; remove one",
                    entry.key
                );
                Err(self.origin.error(entry.at, what))
            }
        }
    }
}

struct Reader<'a> {
    origin: Origin<'a>,
    ignore: &'a [&'static str],
    ignored: BTreeMap<&'static str, u32>,
    calibrated: bool,
}

impl Reader<'_> {
    fn global(&mut self, global: &Entry) -> Result<Global, SimError> {
        let origin = self.origin;
        let mut out = Global::default();
        let mut seen = Seen::new(origin);
        for entry in global.table(origin, "an object")? {
            seen.once(entry)?;
            match entry.key.as_str() {
                "duration" => {
                    let must = "a whole number of seconds, or -1 for until all threads have ended";
                    let seconds = entry.whole(origin, -1, MOST / 1_000_000, must)?;
                    // rt-app takes 0 like -1.
                    out.duration_s = u64::try_from(seconds).ok().filter(|s| *s > 0);
                }
                "default_policy" => out.default_policy = self.policy(entry)?,
                "pi_enabled" => out.pi_enabled = entry.flag(origin)?,
                "cumulative_slack" => out.cumulative_slack = entry.flag(origin)?,
                "io_device" => out.io_device = entry.text(origin, "a path")?.into(),
                "mem_buffer_size" => {
                    let bytes = entry.whole(origin, 1, MOST, "a number of bytes, at least 1")?;
                    out.mem_buffer_size = bytes as u64;
                }
                "calibration" => self.calibration(entry)?,
                key => match NO_MEANING.iter().find(|(name, _)| *name == key) {
                    Some((_, form)) => form.check(origin, entry)?,
                    None => {
                        let none = NO_MEANING.iter().map(|(name, _)| *name);
                        let known: Vec<&str> = GLOBAL_KEYS.iter().copied().chain(none).collect();
                        let what = format!("unknown key `{key}` in `global`{}", near(key, &known));
                        return Err(origin.error(entry.at, what));
                    }
                },
            }
        }
        Ok(out)
    }

    /// `"CPU0"` or nanoseconds per loop. Either only says how long a microsecond of `run` is; here it is a
    /// microsecond of the strongest core.
    fn calibration(&mut self, entry: &Entry) -> Result<(), SimError> {
        let cpu = |text: &str| {
            text.strip_prefix("CPU")
                .is_some_and(|n| n.parse::<u32>().is_ok())
        };
        match &entry.node.value {
            Value::Whole(n) if *n > 0 => {}
            Value::Text(text) if cpu(text) => {}
            _ => {
                let must =
                    "\"CPU\" and a number, or a whole number of nanoseconds per loop above 0";
                return Err(self.origin.bad(entry, must));
            }
        }
        self.calibrated = true;
        Ok(())
    }

    fn policy(&self, entry: &Entry) -> Result<Policy, SimError> {
        let must = "SCHED_OTHER, SCHED_IDLE, SCHED_RR or SCHED_FIFO";
        let name = entry.text(self.origin, must)?;
        if name == "SCHED_DEADLINE" {
            let what =
                "SCHED_DEADLINE is not modelled; use SCHED_FIFO or SCHED_RR with a `priority`";
            return Err(self.origin.error(entry.node.at, what));
        }
        let found = Policy::ALL.iter().find(|(_, known)| *known == name);
        found
            .map(|(policy, _)| *policy)
            .ok_or_else(|| self.origin.bad(entry, must))
    }

    /// rt-app makes resources as events name them; what a file declares is only checked.
    fn resources(&self, resources: &Entry) -> Result<(), SimError> {
        let must = "an object of resources; leave it out, events need no declaration";
        for resource in resources.table(self.origin, must)? {
            for entry in resource.table(self.origin, "an object")? {
                let known = entry.key == "type"
                    && RESOURCE_TYPES.contains(&entry.text(self.origin, "a type")?);
                if !known {
                    let what = format!(
                        "a resource holds a `type` out of {}, not `{}`: {}",
                        RESOURCE_TYPES.join(", "),
                        entry.key,
                        entry.node.value
                    );
                    return Err(self.origin.error(entry.at, what));
                }
            }
        }
        Ok(())
    }

    fn tasks(&mut self, tasks: &Entry) -> Result<Vec<TaskDef>, SimError> {
        let mut out: Vec<TaskDef> = Vec::new();
        for entry in tasks.table(self.origin, "an object of tasks")? {
            let name = unique_name(&entry.key, &out);
            out.push(self.task(name, entry)?);
        }
        if out.is_empty() {
            return Err(self
                .origin
                .error(tasks.at, "`tasks` is empty; there is nothing to run"));
        }
        Ok(out)
    }

    fn task(&mut self, name: String, task: &Entry) -> Result<TaskDef, SimError> {
        let origin = self.origin;
        let entries = task.table(origin, "an object: the task's keys and events")?;
        let phases = entries.iter().find(|e| e.key == "phases");
        let mut out = TaskDef {
            name,
            at: task.at,
            instances: 1,
            delay_us: 0,
            attrs: Attrs::default(),
            repeat: Repeat::Forever,
            phases: Vec::new(),
        };
        let mut seen = Seen::new(origin);
        for entry in entries {
            match entry.key.as_str() {
                "instance" => {
                    let must = "a whole number from 0 to 1000000";
                    out.instances = entry.whole(origin, 0, 1_000_000, must)? as u32;
                }
                "delay" => {
                    let must = "a whole number of microseconds";
                    out.delay_us = entry.whole(origin, 0, MOST, must)? as u64;
                }
                "phases" => {
                    for phase in entry.table(origin, "an object of phases")? {
                        out.phases.push(self.phase(phase, out.phases.len())?);
                    }
                    if out.phases.is_empty() {
                        return Err(origin.error(entry.at, "`phases` is empty; add a phase"));
                    }
                }
                "loop" => out.repeat = self.repeat(entry, phases.is_some())?,
                // Events stand in the task itself only if there is no `phases` object; then they are
                // read below.
                key if event_name(key).is_some() => {
                    if let Some(phases) = phases {
                        let what = format!(
                            "event `{key}` stands beside `phases` (at {}); move it into a phase",
                            phases.at
                        );
                        return Err(origin.error(entry.at, what));
                    }
                    continue;
                }
                _ => self.attr(entry, &mut out.attrs, TASK_KEYS)?,
            }
            seen.once(entry)?;
        }
        if phases.is_none() {
            // rt-app loops such a task for ever, or, if it has a `loop`, its only phase that often.
            let looped = entries.iter().any(|e| e.key == "loop");
            let once = Repeat::Times(1);
            let phase_repeat = if looped { out.repeat } else { once };
            out.repeat = if looped { once } else { Repeat::Forever };
            out.phases = vec![Phase {
                name: String::new(),
                attrs: Attrs::default(),
                repeat: phase_repeat,
                events: self.events(entries, task)?,
            }];
        }
        Ok(out)
    }

    fn phase(&mut self, phase: &Entry, number: usize) -> Result<Phase, SimError> {
        let entries = phase.table(self.origin, "an object: the phase's keys and events")?;
        let name = if phase.key.is_empty() {
            format!("phase{number}")
        } else {
            phase.key.clone()
        };
        let mut out = Phase {
            name,
            attrs: Attrs::default(),
            repeat: Repeat::Times(1),
            events: Vec::new(),
        };
        let mut seen = Seen::new(self.origin);
        for entry in entries.iter().filter(|e| event_name(&e.key).is_none()) {
            seen.once(entry)?;
            match entry.key.as_str() {
                "loop" => out.repeat = self.repeat(entry, false)?,
                _ => self.attr(entry, &mut out.attrs, &[])?,
            }
        }
        out.events = self.events(entries, phase)?;
        Ok(out)
    }

    /// `loop`. A task may loop 0 times; for a phase rt-app then never gets to the next one.
    fn repeat(&self, entry: &Entry, of_task: bool) -> Result<Repeat, SimError> {
        let (low, must) = if of_task {
            (-1, "a whole number, or -1 for ever")
        } else {
            (-1, "a whole number above 0, or -1 for ever")
        };
        match entry.whole(self.origin, low, MOST, must)? {
            -1 => Ok(Repeat::Forever),
            0 if !of_task => Err(self.origin.bad(entry, must)),
            n => Ok(Repeat::Times(n as u64)),
        }
    }

    /// A key of a task or a phase that is no event.
    fn attr(&mut self, entry: &Entry, attrs: &mut Attrs, more: &[&str]) -> Result<(), SimError> {
        let origin = self.origin;
        match entry.key.as_str() {
            "policy" => attrs.policy = Some(self.policy(entry)?),
            "priority" => {
                let must = "a nice value from -20 to 19, or a real-time priority from 1 to 99";
                attrs.priority = Some((entry.whole(origin, -20, 99, must)?, entry.node.at));
            }
            "cpus" => {
                let must = "a list of CPU numbers";
                let cpus = entry.wholes(origin, i64::from(u16::MAX), must)?;
                if cpus.is_empty() {
                    return Err(
                        origin.error(entry.node.at, "`cpus` is empty; name at least one CPU")
                    );
                }
                attrs.cpus = Some((cpus, entry.node.at));
            }
            key => match UNSUPPORTED.iter().find(|u| u.key == key) {
                Some(unsupported) => self.unsupported(entry, unsupported)?,
                None => {
                    let keys = SHARED_KEYS.iter().chain(more).chain(EVENTS);
                    let known: Vec<&str> = keys.copied().collect();
                    let what = format!("unknown key `{key}`{}", near(key, &known));
                    return Err(origin.error(entry.at, what));
                }
            },
        }
        Ok(())
    }

    fn unsupported(&mut self, entry: &Entry, what: &Unsupported) -> Result<(), SimError> {
        let key = what.key;
        if same(&entry.node.value, what.neutral.as_ref()) {
            return Ok(());
        }
        if what.remedy.is_none() && self.ignore.contains(&key) {
            *self.ignored.entry(key).or_insert(0) += 1;
            return Ok(());
        }
        let remedy = match what.remedy {
            Some(remedy) => remedy.to_string(),
            None => format!("remove it, or leave it out of account with --set ignore={key}"),
        };
        let text = format!("`{key}` {}; {remedy}", what.why);
        Err(self.origin.error(entry.at, text))
    }

    fn events(&self, entries: &[Entry], of: &Entry) -> Result<Vec<Step>, SimError> {
        let mut steps = Vec::new();
        for entry in entries {
            if let Some(name) = event_name(&entry.key) {
                steps.push(Step {
                    event: self.event(name, entry)?,
                    at: entry.at,
                });
            }
        }
        if steps.is_empty() {
            let what = format!("`{}` has no events; add one, such as `run`", of.key);
            return Err(self.origin.error(of.at, what));
        }
        Ok(steps)
    }

    fn event(&self, name: &str, entry: &Entry) -> Result<Event, SimError> {
        let number = |must| Ok(entry.whole(self.origin, 0, MOST, must)? as u64);
        let usec = || number("a whole number of microseconds");
        let bytes = || number("a whole number of bytes");
        let text = |must| match entry.text(self.origin, must)? {
            "" if name != "suspend" => Err(self.origin.bad(entry, must)),
            text => Ok(text.to_string()),
        };
        Ok(match name {
            "run" => Event::Run(usec()?),
            "runtime" => Event::Runtime(usec()?),
            "sleep" => Event::Sleep(usec()?),
            "mem" => Event::Mem(bytes()?),
            "iorun" => Event::IoRun(bytes()?),
            "timer" => self.timer(entry)?,
            "lock" => Event::Lock(text("the name of a mutex")?),
            "unlock" => Event::Unlock(text("the name of a mutex")?),
            "signal" => Event::Signal(text("the name of a condition")?),
            "broad" => Event::Broad(text("the name of a condition")?),
            "wait" => {
                let (cond, mutex) = self.cond_and_mutex(entry)?;
                Event::Wait { cond, mutex }
            }
            "sync" => {
                let (cond, mutex) = self.cond_and_mutex(entry)?;
                Event::Sync { cond, mutex }
            }
            "suspend" => {
                Event::Suspend(text("a name to be resumed by, or \"\" for the task's own")?)
            }
            "resume" => Event::Resume(text("the name that somebody is suspended under")?),
            "barrier" => Event::Barrier(text("the name of a barrier")?),
            "fork" => Event::Fork(text("the name of a task")?),
            // rt-app does not look at yield's value.
            _ => Event::Yield,
        })
    }

    fn timer(&self, entry: &Entry) -> Result<Event, SimError> {
        let origin = self.origin;
        let must = "an object: { \"ref\": name, \"period\": microseconds, \"mode\": \"relative\" or \"absolute\" }";
        let (mut name, mut period, mut absolute) = (None, None, false);
        let mut seen = Seen::new(origin);
        for part in entry.table(origin, must)? {
            seen.once(part)?;
            match part.key.as_str() {
                "ref" => name = Some(part.text(origin, "the name of a timer")?.to_string()),
                "period" => {
                    let must = "a whole number of microseconds above 0";
                    period = Some(part.whole(origin, 1, MOST, must)? as u64);
                }
                "mode" => {
                    absolute = match part.text(origin, "\"relative\" or \"absolute\"")? {
                        "relative" => false,
                        "absolute" => true,
                        _ => return Err(origin.bad(part, "\"relative\" or \"absolute\"")),
                    }
                }
                key => {
                    let near = near(key, &["ref", "period", "mode"]);
                    return Err(
                        origin.error(part.at, format!("unknown key `{key}` of a timer{near}"))
                    );
                }
            }
        }
        match (name, period) {
            (Some(name), Some(period)) => Ok(Event::Timer {
                name,
                period,
                absolute,
            }),
            _ => Err(origin.error(
                entry.at,
                "a timer needs both `ref` and `period`; add what is missing",
            )),
        }
    }

    fn cond_and_mutex(&self, entry: &Entry) -> Result<(String, String), SimError> {
        let origin = self.origin;
        let must = "an object: { \"ref\": condition, \"mutex\": mutex }";
        let (mut cond, mut mutex) = (None, None);
        let mut seen = Seen::new(origin);
        for part in entry.table(origin, must)? {
            seen.once(part)?;
            match part.key.as_str() {
                "ref" => cond = Some(part.text(origin, "the name of a condition")?.to_string()),
                "mutex" => mutex = Some(part.text(origin, "the name of a mutex")?.to_string()),
                key => {
                    let what = format!(
                        "unknown key `{key}` of `{}`{}",
                        entry.key,
                        near(key, &["ref", "mutex"])
                    );
                    return Err(origin.error(part.at, what));
                }
            }
        }
        cond.zip(mutex).ok_or_else(|| {
            let what = format!(
                "`{}` needs both `ref` and `mutex`; add what is missing",
                entry.key
            );
            origin.error(entry.at, what)
        })
    }
}

fn same(value: &Value, neutral: Option<&Value>) -> bool {
    match (value, neutral) {
        (Value::Whole(a), Some(Value::Whole(b))) => a == b,
        (Value::Flag(a), Some(Value::Flag(b))) => a == b,
        (Value::Text(a), Some(Value::Text(b))) => a == b,
        _ => false,
    }
}

/// A task's name, with a number after it if the name is taken, as rt-app's tools do.
fn unique_name(wanted: &str, taken: &[TaskDef]) -> String {
    let free = |name: &str| taken.iter().all(|t| t.name != name);
    if free(wanted) {
        return wanted.into();
    }
    (1..)
        .map(|n| format!("{wanted}{n}"))
        .find(|name| free(name))
        .expect("numbers do not end")
}
