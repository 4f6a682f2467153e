// SPDX-License-Identifier: GPL-2.0-only
//! Workloads by name: generators, their other names, ready files, and rt-app files by path.
//!
//! A name is looked up in this order: a generator ([`WORKLOADS`]), another name of one (as a publication
//! calls it, with the parameters it implies), a ready file ([`FILES`]), and, if it holds a `/` or ends in
//! `.json`, the path of an rt-app file.

use std::collections::BTreeMap;

use super::figures::{bad, Args, Described, Figure};
use super::{
    cyclictest, ffmpeg_rt, hackbench, kbuild, pi_stress, requests, rtapp, schbench,
    stress_ng_cyclic, sysbench_cpu, sysbench_oltp, tbench, uperf, Workload,
};
use crate::error::{nearest, SimError};
use crate::machine::Machine;
use crate::params::Params;
use crate::program::Hint;
use usher_core::HintsError;

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
        Published {
            metric,
            parameter: None,
            ours,
            higher_is_better: false,
        }
    }

    /// A metric of which more is better.
    pub(super) const fn higher(metric: &'static str, ours: &'static str) -> Published {
        Published {
            metric,
            parameter: None,
            ours,
            higher_is_better: true,
        }
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
    requests::INFO,
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
    Generator(
        &'static WorkloadInfo,
        &'static [(&'static str, &'static str)],
    ),
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

/// The parameters of the workload of this name, or of rt-app files, besides the hints that all take. Reads no file.
///
/// # Errors
/// Unknown name; the nearest are suggested.
pub fn describe(name: &str, machine: &Machine) -> Result<Vec<Described>, SimError> {
    let (figures, implied) = match find(name)? {
        Found::Generator(info, implied) => (info.figures, implied),
        Found::Ready(_) | Found::Path(_) => (rtapp::FIGURES, &[][..]),
    };
    let described = figures.iter().map(|figure| {
        let mut described = figure.described(machine.cpus().len());
        if let Some((_, value)) = implied.iter().find(|(key, _)| *key == figure.key) {
            described.default = (*value).into();
        }
        described
    });
    Ok(described.collect())
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
        Found::Ready(file) => rtapp::load(
            &format!("{name}.json"),
            file.text,
            machine,
            &mut params,
            &mut hints,
        )?,
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
                    kind: format!(
                        "task in parameter `hint.{task}` (tasks that others start have their hint), workload {whose}:"
                    ),
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
    match text.parse() {
        Ok(Hint::NONE) => Ok(None),
        Ok(hint) => Ok(Some(hint)),
        Err(HintsError::Unknown(name)) => Err(SimError::Unknown {
            kind: format!("flag in parameter `{key}`"),
            nearest: nearest(&name, &Hint::NAMES.map(|(name, _)| name)),
            name,
        }),
        Err(HintsError::Contradiction) => Err(bad(
            key,
            format!("has the value `{text}`, but affine and spread, or affine and hold, exclude each other"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Kind;
    use super::super::testkit::{machine, run};
    use super::*;

    /// Short runs of everything.
    const SHORT: &[(&str, &[&str])] = &[
        ("hackbench", &["groups=2", "fds=4", "loops=20"]),
        ("schbench", &["workers=3", "runtime=300ms", "warmup=100ms"]),
        ("requests", &["runtime=20ms", "warmup=5ms"]),
        ("tbench", &["clients=4", "runtime=3ms", "warmup=1ms"]),
        ("uperf", &["threads=4", "runtime=5ms", "warmup=1ms"]),
        ("sysbench-cpu", &["threads=3", "requests=50"]),
        (
            "sysbench-oltp-rw",
            &["threads=4", "runtime=20ms", "warmup=1ms"],
        ),
        ("kbuild", &["jobs=4", "objects=12", "scale_permille=10"]),
        ("cyclictest", &["runtime=200ms"]),
        ("pi-stress", &["groups=2", "runtime=5ms"]),
        ("stress-ng-cyclic", &["instances=4", "runtime=5ms"]),
        (
            "ffmpeg-rt",
            &["instances=2", "crew=2", "runtime=30ms", "cores=2"],
        ),
    ];

    // Goal: a run depends on its seed and on nothing else; and it does depend on it.
    // Method: every generator twice with one seed, once with another.
    #[test]
    fn runs_follow_their_seed() {
        assert_eq!(
            SHORT.len(),
            WORKLOADS.len(),
            "every generator has a short run here"
        );
        for (name, pairs) in SHORT {
            let first = run(name, pairs, 11).digest();
            assert_eq!(first, run(name, pairs, 11).digest(), "{name}");
            assert_ne!(first, run(name, pairs, 12).digest(), "{name}");
        }
    }

    // Goal: the headline and the tail exist among the results, and every metric that a publication names does.
    // Method: the results of the short runs.
    #[test]
    fn promised_metrics_exist() {
        for (name, pairs) in SHORT {
            let ran = run(name, pairs, 1);
            let info = WORKLOADS.iter().find(|w| w.name == *name).unwrap();
            let workload = build(
                name,
                &machine(),
                Params::parse(pairs.iter().copied()).unwrap(),
            )
            .unwrap();
            assert!(
                ran.metrics.contains_key(&workload.headline.metric),
                "{name}: {:?}",
                ran.metrics
            );
            if let Some(tail) = &workload.headline.tail {
                assert!(ran.metrics.contains_key(tail), "{name}: {tail}");
            }
            for published in info.published {
                assert!(
                    ran.metrics.contains_key(published.ours),
                    "{name}: {}",
                    published.ours
                );
            }
            let Some(first) = info.published.first() else {
                continue;
            };
            assert_eq!(first.ours, workload.headline.metric, "{name}");
            assert_eq!(
                first.higher_is_better, workload.headline.higher_is_better,
                "{name}"
            );
        }
    }

    // Goal: which way is better is said where that is so. Method: metrics of a workload judged by a latency, and of one judged
    // by a rate with a tail.
    #[test]
    fn which_way_is_better() {
        for (name, metric, higher) in [
            ("schbench", "latency_ns_p99", Some(false)),
            ("schbench", "latency_ns_mean", Some(false)),
            ("schbench", "latency_count", None),
            ("schbench", "loops_per_s", None),
            ("schbench", "wake_latency_ns_p50", Some(false)),
            ("schbench", "search_ns_mean", None),
            ("sysbench-oltp-rw", "transactions_per_s", Some(true)),
            ("sysbench-oltp-rw", "transaction_ns_p50", Some(false)),
            ("sysbench-oltp-rw", "migrations", None),
        ] {
            let workload = build(name, &machine(), Params::new()).unwrap();
            let said = workload.headline.higher_is_better(metric);
            assert_eq!(said, higher, "{name}: {metric}");
        }
    }

    // Goal: what publications call their benchmarks, parameters and metrics is understood.
    // Method: the rows' names, one of each.
    #[test]
    fn published_names_are_known() {
        for (benchmark, metric, parameter, ours) in [
            (
                "uperf",
                "throughput-normalized",
                "threads=192",
                "bytes_per_s",
            ),
            ("hackbench-process", "normalized", "groups=5", "elapsed_ns"),
            (
                "schbench",
                "p99-latency-normalized",
                "message_threads=15",
                "latency_ns_p99",
            ),
            (
                "schbench",
                "p99-latency-us",
                "workers=512",
                "latency_ns_p99",
            ),
            (
                "sysbench-mysql-rw",
                "throughput-normalized",
                "threads=144",
                "transactions_per_s",
            ),
            ("kbuild", "normalized", "jobs=192", "elapsed_ns"),
            ("kbuild", "time-s", "jobs=224", "elapsed_ns"),
            ("cyclictest", "latency-us", "stat=avg", "latency_ns_mean"),
            ("cyclictest", "latency-us", "stat=min", "latency_ns_min"),
            ("cyclictest", "latency-us", "stat=max", "latency_ns_max"),
            ("hackbench", "time-s", "stat=avg", "elapsed_ns"),
            ("sysbench-cpu-5t", "time-s", "stat=avg", "time_ns"),
            (
                "tbench",
                "throughput-MB/s",
                "clients=1024",
                "throughput_bytes_per_s",
            ),
            (
                "ffmpeg-rt-60",
                "fps-change-pct",
                "instances=60",
                "frames_per_s",
            ),
            (
                "stress-ng-cyclic",
                "change-pct",
                "instances=480",
                "bogo_ops_per_s",
            ),
            ("pi_stress", "change-pct", "groups=240", "inversions_per_s"),
        ] {
            let Found::Generator(info, _) = find(benchmark).unwrap_or_else(|e| panic!("{e}"))
            else {
                panic!("{benchmark} is a file")
            };
            let found = info.published(metric, parameter).map(|p| p.ours);
            assert_eq!(found, Some(ours), "{benchmark} {metric} {parameter}");
            let (key, _) = parameter.split_once('=').unwrap();
            // `stat` chooses a result, not a run.
            assert!(
                key == "stat" || info.figures.iter().any(|f| f.key == key),
                "{benchmark}: {key}"
            );
        }
    }

    // Goal: the tables are in order: keys once, sources given, names once.
    // Method: go through them.
    #[test]
    fn tables_are_complete() {
        let names = names();
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} is there twice");
        }
        for info in WORKLOADS {
            for (i, figure) in info.figures.iter().enumerate() {
                assert!(
                    !info.figures[..i].iter().any(|f| f.key == figure.key),
                    "{}",
                    figure.key
                );
                assert!(
                    !figure.meaning.is_empty() && !figure.source.is_empty(),
                    "{}",
                    figure.key
                );
                if let Kind::Count { default, low, high } = figure.kind {
                    assert!(
                        (low..=high).contains(&default),
                        "{} {}",
                        info.name,
                        figure.key
                    );
                }
            }
            for (key, _) in info.aliases.iter().flat_map(|a| a.implies) {
                assert!(
                    info.figures.iter().any(|f| f.key == *key),
                    "{} implies {key}",
                    info.name
                );
            }
        }
    }

    // Goal: unknown names and keys are refused with the nearest; a path is not taken for a name.
    // Method: usual mistakes.
    #[test]
    fn mistakes_get_suggestions() {
        let error = |name: &str, pairs: &[&str]| {
            let params = Params::parse(pairs.iter().copied()).unwrap();
            build(name, &machine(), params)
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        assert!(error("schbnch", &[]).contains("did you mean `schbench`"));
        assert!(error("rt-app-exmple", &[]).contains("did you mean `rt-app-example`"));
        assert!(error("schbench", &["worker=3"]).contains("did you mean `workers`"));
        assert!(error("rt-app-example", &["duratoin=3s"]).contains("did you mean `duration`"));
        assert!(error("kbuild", &["jobs=0"]).contains("`jobs`"));
        assert!(error("kbuild", &["burst_low=9s"]).contains("burst_high"));
        assert!(error("tbench", &["hint=fork-afine"]).contains("did you mean `fork-affine`"));
        assert!(error("tbench", &["hint=fork-affine+fork-spread"]).contains("exclude"));
        assert!(error("tbench", &["hint.tbnch=wake-hold"]).contains("did you mean `tbench`"));
        assert!(
            matches!(find("a/b"), Ok(Found::Path(_)))
                && matches!(find("x.json"), Ok(Found::Path(_)))
        );
    }

    // Goal: hints reach the root tasks and what they fork, and the parameters in force are recorded.
    // Method: a hint for all, another for one root.
    #[test]
    fn hints_are_inherited() {
        let pairs = [
            "clients=2",
            "runtime=1ms",
            "hint=fork-spread",
            "hint.tbench_srv=wake-hold",
        ];
        let ran = run("tbench", &pairs, 1);
        let hint = |name: &str| ran.tasks[ran.named(name)[0].index()].hint;
        assert_eq!(
            (hint("tbench"), hint("client")),
            (Hint::FORK_SPREAD, Hint::FORK_SPREAD)
        );
        assert_eq!(
            (hint("tbench_srv"), hint("server")),
            (Hint::WAKE_HOLD, Hint::WAKE_HOLD)
        );
        assert_eq!(ran.parameters["hint"], "fork-spread");
        assert_eq!(ran.parameters["clients"], "2");
        assert_eq!(
            ran.parameters["read_bytes"], "11900",
            "defaults are recorded too"
        );
    }
}
