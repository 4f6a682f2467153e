// SPDX-License-Identifier: GPL-2.0-only
//! Workloads by name: generators, their other names, ready files, and rt-app files by path.
//!
//! A name is looked up in this order: a generator ([`WORKLOADS`]), another name of one (as a publication
//! calls it, with the parameters it implies), a ready file ([`FILES`]), and, if it holds a `/` or ends in
//! `.json`, the path of an rt-app file.

use std::collections::BTreeMap;

use super::figures::{bad, Args, Figure};
use super::{
    cyclictest, ffmpeg_rt, hackbench, kbuild, pi_stress, rtapp, schbench, stress_ng_cyclic,
    sysbench_cpu, sysbench_oltp, tbench, uperf, Workload,
};
use crate::error::{nearest, SimError};
use crate::machine::Machine;
use crate::params::Params;
use crate::program::Hint;

/// A generator.
pub struct WorkloadInfo {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its parameters.
    pub figures: &'static [Figure],
    /// Other names, with the parameters they imply (which `--set` still overrides).
    pub aliases: &'static [Alias],
    /// What publications call its results.
    pub published: &'static [Published],
    /// Makes one. Leaves [`Workload::parameters`] empty: [`build`] fills them in.
    pub make: fn(&Args<'_>) -> Result<Workload, SimError>,
}

/// Another name of a generator.
pub struct Alias {
    /// The name.
    pub name: &'static str,
    /// The parameters it implies.
    pub implies: &'static [(&'static str, &'static str)],
}

/// How a publication's metric is called here.
pub struct Published {
    /// The metric there.
    pub metric: &'static str,
    /// The parameter that selects this result (`stat=min`), if the metric alone does not.
    pub parameter: Option<&'static str>,
    /// The metric here; its unit is the end of its name.
    pub ours: &'static str,
    /// Whether more of it is better.
    pub higher_is_better: bool,
}

impl Published {
    /// A metric of which less is better.
    pub(super) const fn lower(metric: &'static str, ours: &'static str) -> Published {
        Published { metric, parameter: None, ours, higher_is_better: false }
    }

    /// A metric of which more is better.
    pub(super) const fn higher(metric: &'static str, ours: &'static str) -> Published {
        Published { metric, parameter: None, ours, higher_is_better: true }
    }

    /// Only with this parameter.
    pub(super) const fn when(mut self, parameter: &'static str) -> Published {
        self.parameter = Some(parameter);
        self
    }
}

impl WorkloadInfo {
    /// The metric here that a publication calls `metric`, in a row with this parameter.
    pub fn published(&self, metric: &str, parameter: &str) -> Option<&Published> {
        self.published
            .iter()
            .find(|p| p.metric == metric && p.parameter.is_none_or(|only| only == parameter))
    }
}

/// All generators. A new one adds its line here.
pub const WORKLOADS: &[WorkloadInfo] = &[
    hackbench::INFO,
    schbench::INFO,
    tbench::INFO,
    uperf::INFO,
    sysbench_cpu::INFO,
    sysbench_oltp::INFO,
    kbuild::INFO,
    cyclictest::INFO,
    pi_stress::INFO,
    stress_ng_cyclic::INFO,
    ffmpeg_rt::INFO,
];

/// A file that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct ReadyFile {
    /// Its name: the file's, without `.json`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! ready {
    ($($name:literal),* $(,)?) => {
        &[$(ReadyFile {
            name: $name,
            text: include_str!(concat!("../../../../data/workloads/", $name, ".json")),
        }),*]
    };
}

/// The rt-app files of `data/workloads`.
pub const FILES: &[ReadyFile] = ready![
    "rt-app-example",
    "rt-app-heavy",
    "rt-app-light",
    "rt-app-heavy-light",
    "rt-app-pipeline",
    "rt-app-locks",
];

/// What a name stands for.
pub enum Found {
    /// A generator and the parameters that the name implies.
    Generator(&'static WorkloadInfo, &'static [(&'static str, &'static str)]),
    /// An rt-app file that comes with the program.
    Ready(&'static ReadyFile),
    /// The path of an rt-app file.
    Path(String),
}

/// Looks a name up. Reads no file.
///
/// # Errors
/// Unknown name; the nearest are suggested.
pub fn find(name: &str) -> Result<Found, SimError> {
    if let Some(info) = WORKLOADS.iter().find(|w| w.name == name) {
        return Ok(Found::Generator(info, &[]));
    }
    for info in WORKLOADS {
        if let Some(alias) = info.aliases.iter().find(|a| a.name == name) {
            return Ok(Found::Generator(info, alias.implies));
        }
    }
    if let Some(file) = FILES.iter().find(|f| f.name == name) {
        return Ok(Found::Ready(file));
    }
    if name.contains('/') || name.ends_with(".json") {
        return Ok(Found::Path(name.into()));
    }
    Err(SimError::Unknown {
        kind: "workload".into(),
        name: name.into(),
        nearest: nearest(name, &names()),
    })
}

/// All names that [`find`] knows, in the order of the tables: for help and completion.
pub fn names() -> Vec<&'static str> {
    let generators = WORKLOADS
        .iter()
        .flat_map(|w| std::iter::once(w.name).chain(w.aliases.iter().map(|a| a.name)));
    generators.chain(FILES.iter().map(|f| f.name)).collect()
}

/// Makes the workload of this name, or from this rt-app file, for a machine (some start one task per CPU
/// by default, some pin tasks).
///
/// Besides its own parameters every workload takes `hint`, the placement hint of its root tasks, which
/// their descendants inherit (`none`, or flags joined by `+`: `fork-affine`, `fork-spread`,
/// `wake-affine`, `wake-hold`), and `hint.NAME`, the same for the root tasks of one name (rt-app: for the
/// tasks of one name).
///
/// # Errors
/// Unknown name or parameter (the nearest are suggested), bad value, a file that cannot be read or used.
pub fn build(name: &str, machine: &Machine, mut params: Params) -> Result<Workload, SimError> {
    let found = find(name)?;
    let mut hints = Hints::read(&mut params)?;
    let mut workload = match found {
        Found::Generator(info, implied) => {
            for (key, value) in implied {
                if !params.given().contains_key(*key) {
                    params.set(key, value);
                }
            }
            let args = Args::read(info.figures, &mut params, machine)?;
            let mut workload = (info.make)(&args)?;
            hints.apply_to_roots(&mut workload);
            workload
        }
        Found::Ready(file) => {
            rtapp::load(&format!("{name}.json"), file.text, machine, &mut params, &mut hints)?
        }
        Found::Path(path) => {
            let text = std::fs::read_to_string(&path).map_err(|e| SimError::Input {
                origin: path.clone(),
                what: format!("cannot be read: {e}; give the path of an rt-app file"),
            })?;
            rtapp::load(&path, &text, machine, &mut params, &mut hints)?
        }
    };
    workload.name = name.into();
    workload.parameters = params.finish(&format!("workload {name}"))?;
    hints.finish(name, &mut workload.parameters)?;
    Ok(workload)
}

/// The placement hints asked for.
pub(super) struct Hints {
    all: Option<Hint>,
    all_text: String,
    named: BTreeMap<String, (String, Hint)>,
    seen: Vec<String>,
}

impl Hints {
    fn read(params: &mut Params) -> Result<Hints, SimError> {
        let named = params.take_prefix("hint.");
        let all_text = params.text("hint", "none");
        let mut hints = Hints {
            all: parse_hint("hint", &all_text)?,
            all_text,
            named: BTreeMap::new(),
            seen: Vec::new(),
        };
        for (task, text) in named.given() {
            let hint = parse_hint(&format!("hint.{task}"), text)?.unwrap_or(Hint::NONE);
            hints.named.insert(task.clone(), (text.clone(), hint));
        }
        Ok(hints)
    }

    /// The hint of root tasks without one of their own.
    pub(super) fn of_roots(&self) -> Option<Hint> {
        self.all
    }

    /// The hint of the tasks of this name; remembers the name for suggestions.
    pub(super) fn of_task(&mut self, name: &str) -> Option<Hint> {
        if !self.seen.iter().any(|seen| seen == name) {
            self.seen.push(name.into());
        }
        self.named.get(name).map(|(_, hint)| *hint)
    }

    fn apply_to_roots(&mut self, workload: &mut Workload) {
        for task in &mut workload.tasks {
            let own = self.of_task(&task.name);
            task.hint = own.or(task.hint).or(self.all);
        }
    }

    /// Refuses a name that no task has, and notes the rest among the parameters in force.
    fn finish(self, whose: &str, into: &mut BTreeMap<String, String>) -> Result<(), SimError> {
        into.insert("hint".into(), self.all_text);
        for (task, (text, _)) in self.named {
            if !self.seen.contains(&task) {
                let known: Vec<&str> = self.seen.iter().map(String::as_str).collect();
                return Err(SimError::Unknown {
                    kind: format!("task of workload {whose} in parameter `hint.{task}`"),
                    nearest: nearest(&task, &known),
                    name: task,
                });
            }
            into.insert(format!("hint.{task}"), text);
        }
        Ok(())
    }
}

/// Reads `none` or flags joined by `+`.
fn parse_hint(key: &str, text: &str) -> Result<Option<Hint>, SimError> {
    const FLAGS: [(&str, Hint); 4] = [
        ("fork-affine", Hint::FORK_AFFINE),
        ("fork-spread", Hint::FORK_SPREAD),
        ("wake-affine", Hint::WAKE_AFFINE),
        ("wake-hold", Hint::WAKE_HOLD),
    ];
    if text == "none" {
        return Ok(None);
    }
    let mut hint = Hint::NONE;
    for word in text.split('+') {
        let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == word) else {
            let known: Vec<&str> = FLAGS.iter().map(|(name, _)| *name).collect();
            return Err(SimError::Unknown {
                kind: format!("flag in parameter `{key}`"),
                name: word.into(),
                nearest: nearest(word, &known),
            });
        };
        hint = hint.with(*flag).ok_or_else(|| {
            bad(key, format!("has the value `{text}`, but affine and spread, or affine and hold, exclude each other"))
        })?;
    }
    Ok(Some(hint))
}
