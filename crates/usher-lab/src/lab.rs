// SPDX-License-Identifier: GPL-2.0-only
//! What `usher lab run` and `usher lab compare` do: from a request to a report.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::arch::Arch;
use crate::cache::Cache;
use crate::cross::{self, own_program, AGENT};
use crate::error::{LabError, Result};
use crate::image::{self, Plan};
use crate::kernel::{self, Kernel};
use crate::proto::{Event, Frame, Job, SchedulerStart, Step, StepReport};
use crate::qemu::{self, Time};
use crate::quota::{self, Quotas};
use crate::runner::{self, BootOptions, Outcome, StepOutcome};
use crate::scheduler::Scheduler;
use crate::shape::Shape;

/// What both commands have in common.
#[derive(Debug, Clone)]
pub struct Request {
    /// The guest's CPUs.
    pub shape: Shape,
    /// A kernel series (`6.18`) or a file.
    pub kernel: String,
    /// The command and its arguments. A program given by path is copied into the guest.
    pub command: Vec<String>,
    /// Count instructions as time, with this seed.
    pub icount_seed: Option<u64>,
    /// Give each guest CPU a bandwidth quota on the host. Unequal CPUs have one in any case: it is what makes the
    /// weak ones slower.
    pub quota: bool,
    /// Guest seconds after which the command is killed.
    pub timeout_s: u64,
    /// Guest memory, `None` for the default.
    pub memory_mib: Option<u64>,
    /// Files that are copied into the guest under their own absolute path.
    pub copies: Vec<PathBuf>,
    /// Have the kernel account for the time spent in BPF programs.
    pub bpf_stats: bool,
    /// Wall time without a sign of life after which the guest counts as stalled once the first command began, `None` for a
    /// limit that suits its size. Booting may take that longer limit in any case.
    pub stall: Option<std::time::Duration>,
    /// More words for the guest kernel's command line.
    pub append: String,
}

impl Request {
    /// A command in a guest of this shape, with everything else as it is unless asked for.
    pub fn new(shape: Shape, kernel: &str, command: Vec<String>, timeout_s: u64) -> Self {
        Self {
            shape,
            kernel: kernel.into(),
            command,
            icount_seed: None,
            quota: false,
            timeout_s,
            memory_mib: None,
            copies: Vec::new(),
            bpf_stats: false,
            stall: None,
            append: String::new(),
        }
    }

    /// Whether each guest CPU has a bandwidth quota on the host.
    pub fn has_quotas(&self) -> bool {
        self.quota || !self.shape.clusters().is_empty()
    }

    /// The bandwidth quotas of the guest's CPUs, if they have any.
    pub fn quotas(&self) -> Result<Option<Quotas>> {
        let host_cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let speeds = self.shape.speeds_permille();
        self.has_quotas()
            .then(|| Quotas::for_speeds(&speeds, host_cores))
            .transpose()
    }
}

/// How a comparison is done.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Schedulers; effects are against the first.
    pub schedulers: Vec<Scheduler>,
    /// Runs of each.
    pub runs: u32,
    /// Runs under the kernel's own scheduler before the first counted one, to warm the guest's caches.
    pub warmup: u32,
    /// Guests at a time; only counted instructions, which the host's load does not touch, allow more
    /// than one.
    pub jobs: usize,
}

/// Where to say what is going on.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// One run's place in a comparison.
#[derive(Debug, Clone)]
pub struct ComparedRun {
    /// Which scheduler, index into [`Comparison::schedulers`].
    pub scheduler: usize,
    /// Which round, from 0; runs of one round belong together.
    pub round: u32,
    /// What came out.
    pub step: StepOutcome,
}

/// What a comparison gave.
#[derive(Debug, Clone)]
pub struct Compared {
    /// Kernel release, read in the guest.
    pub release: String,
    /// Counted runs, ordered by round, then scheduler.
    pub runs: Vec<ComparedRun>,
    /// With counted instructions: of how many schedulers the first run was repeated in a fresh guest, and
    /// how often the repetition was identical to the nanosecond and the byte.
    pub repeats: Option<Repeats>,
    /// Wall seconds.
    pub wall_s: f64,
}

/// The check that counted instructions are repeatable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Repeats {
    /// Runs that were done twice.
    pub checked: u32,
    /// Those whose two results are identical.
    pub identical: u32,
}

/// A prepared guest: everything but the steps.
struct Prepared {
    cache: Cache,
    kernel: Kernel,
    base: Plan,
    files: Plan,
    command: Vec<String>,
    options: BootOptions,
    timeout_s: u64,
    bpf_stats: bool,
}

/// Boots one guest and runs the command once. `pass_on` sees frames as they arrive.
pub fn run(
    request: &Request,
    scheduler: &Scheduler,
    say: Say,
    pass_on: &mut dyn FnMut(&Frame),
) -> Result<Outcome> {
    let (mut prepared, mut starts) = Prepared::new(request, std::slice::from_ref(scheduler), say)?;
    prepared.set_command(&request.command)?;
    let step = prepared.step(starts.remove(0));
    let seed = request.icount_seed;
    prepared.boot(vec![step], seed, say, pass_on)
}

/// Boots one guest and runs several commands in it, each under its scheduler. The request's own command
/// plays no part.
pub fn run_steps(
    request: &Request,
    steps: &[(Scheduler, Vec<String>)],
    say: Say,
    pass_on: &mut dyn FnMut(&Frame),
) -> Result<Outcome> {
    let schedulers: Vec<Scheduler> = steps
        .iter()
        .map(|(scheduler, _)| scheduler.clone())
        .collect();
    let (mut prepared, starts) = Prepared::new(request, &schedulers, say)?;
    let mut list = Vec::new();
    for ((_, command), start) in steps.iter().zip(starts) {
        prepared.set_command(command)?;
        list.push(prepared.step(start));
    }
    prepared.boot(list, request.icount_seed, say, pass_on)
}

/// Runs the command under each scheduler in turn, so and so often.
pub fn compare(request: &Request, comparison: &Comparison, say: Say) -> Result<Compared> {
    let begun = std::time::Instant::now();
    let (mut prepared, starts) = Prepared::new(request, &comparison.schedulers, say)?;
    prepared.set_command(&request.command)?;
    let mut compared = match request.icount_seed {
        None => compare_in_one_boot(&prepared, &starts, comparison, say)?,
        Some(seed) => compare_boot_by_boot(&prepared, &starts, comparison, seed, say)?,
    };
    compared.runs.sort_by_key(|run| (run.round, run.scheduler));
    compared.wall_s = begun.elapsed().as_secs_f64();
    for run in &compared.runs {
        let report = &run.step.report;
        if report.exit.is_none() {
            return Err(ejected(&run.step));
        }
    }
    Ok(compared)
}

/// The error for a step whose scheduler was refused or ejected.
pub fn ejected(step: &StepOutcome) -> LabError {
    let report = &step.report;
    let kernel = report.kernel_log.iter().map(|line| line.text.clone());
    let mut log: Vec<String> = report
        .scheduler_log
        .lines()
        .map(|line| line.to_string())
        .chain(kernel)
        .collect();
    // The last lines are the ones that say why; a verifier's log before them can be very long.
    log.drain(..log.len().saturating_sub(30));
    LabError::Ejected {
        scheduler: report.scheduler.clone(),
        what: report
            .ejected
            .clone()
            .unwrap_or_else(|| "did not run".into()),
        log,
    }
}

/// All runs in one guest.
fn compare_in_one_boot(
    prepared: &Prepared,
    starts: &[Option<SchedulerStart>],
    comparison: &Comparison,
    say: Say,
) -> Result<Compared> {
    let step = |start| prepared.step(start);
    in_turn(starts, comparison, say, step, |steps, watch| {
        prepared.boot(steps, None, say, watch)
    })
}

/// All runs one after the other, the order rotated from round to round so that no scheduler always comes first.
/// `step` makes a step from what starts its scheduler, `carry_out` carries all of them out.
pub(crate) fn in_turn(
    starts: &[Option<SchedulerStart>],
    comparison: &Comparison,
    say: Say,
    step: impl Fn(Option<SchedulerStart>) -> Step,
    carry_out: impl FnOnce(Vec<Step>, &mut dyn FnMut(&Frame)) -> Result<Outcome>,
) -> Result<Compared> {
    let mut steps: Vec<Step> = (0..comparison.warmup).map(|_| step(None)).collect();
    let mut places = Vec::new();
    for round in 0..comparison.runs {
        for turn in 0..starts.len() {
            let scheduler = (turn + round as usize) % starts.len();
            steps.push(step(starts[scheduler].clone()));
            places.push((scheduler, round));
        }
    }
    let total = places.len();
    let mut done: u32 = 0;
    let mut watch = |frame: &Frame| {
        if let Frame::Event(Event::End(report)) = frame {
            done += 1;
            let run = match done.checked_sub(comparison.warmup) {
                None | Some(0) => "warmup, not counted".to_string(),
                Some(run) => format!("run {run} of {total}"),
            };
            say(&format!("{run}: {}", took(report)));
        }
    };
    let outcome = carry_out(steps, &mut watch)?;
    let counted = outcome.steps.into_iter().skip(comparison.warmup as usize);
    let runs = counted
        .zip(places)
        .map(|(step, (scheduler, round))| ComparedRun {
            scheduler,
            round,
            step,
        })
        .collect();
    Ok(Compared {
        release: outcome.release,
        runs,
        repeats: None,
        wall_s: 0.0,
    })
}

/// How long a whole command took, under what: longer than what a benchmark says of itself.
fn took(report: &StepReport) -> String {
    let time_s = report.elapsed_ns as f64 / 1e9;
    format!("{}, the command took {time_s:.3} s", report.scheduler)
}

/// A fresh guest for every run, so that every scheduler starts from the same state, and a seed for every
/// round, so that the rounds are different samples: with one seed all runs would repeat one accident. The
/// first round is done twice to see that the same seed gives the same result.
fn compare_boot_by_boot(
    prepared: &Prepared,
    starts: &[Option<SchedulerStart>],
    comparison: &Comparison,
    seed: u64,
    say: Say,
) -> Result<Compared> {
    let rounds = (0..comparison.runs).chain([0]);
    let places: Vec<(usize, u32)> = rounds
        .flat_map(|round| (0..starts.len()).map(move |scheduler| (scheduler, round)))
        .collect();
    let outcomes = in_parallel(places.len(), comparison.jobs, |index| {
        let (scheduler, round) = places[index];
        let mut steps: Vec<Step> = (0..comparison.warmup)
            .map(|_| prepared.step(None))
            .collect();
        steps.push(prepared.step(starts[scheduler].clone()));
        let seed = seed.wrapping_add(u64::from(round));
        let mut outcome = prepared.boot(steps, Some(seed), say, &mut |_| ())?;
        let step = outcome.steps.pop().expect("one per step");
        say(&format!(
            "run {} of {}: {} (seed {seed})",
            index + 1,
            places.len(),
            took(&step.report)
        ));
        Ok((outcome.release, step))
    })?;
    let mut release = String::new();
    let mut runs = Vec::new();
    for ((scheduler, round), (kernel, step)) in places.into_iter().zip(outcomes) {
        release = kernel;
        runs.push(ComparedRun {
            scheduler,
            round,
            step,
        });
    }
    let again = runs.split_off(runs.len() - starts.len());
    let identical = again
        .iter()
        .zip(&runs)
        .filter(|(a, b)| same(&a.step, &b.step))
        .count() as u32;
    let repeats = Some(Repeats {
        checked: starts.len() as u32,
        identical,
    });
    Ok(Compared {
        release,
        runs,
        repeats,
        wall_s: 0.0,
    })
}

/// True when two runs took the same guest time to the nanosecond and printed the same.
fn same(a: &StepOutcome, b: &StepOutcome) -> bool {
    a.report.elapsed_ns == b.report.elapsed_ns && a.stdout == b.stdout && a.stderr == b.stderr
}

/// Calls `work` for 0 to `count`, at most `jobs` at a time; results in order, or the first error.
fn in_parallel<T: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = Mutex::new(0);
    let results: Mutex<Vec<Option<Result<T>>>> = Mutex::new((0..count).map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            scope.spawn(|| loop {
                let index = {
                    let mut next = next.lock().expect("no panics while held");
                    *next += 1;
                    *next - 1
                };
                if index >= count {
                    return;
                }
                let result = work(index);
                if result.is_err() {
                    // Nobody needs the rest.
                    *next.lock().expect("no panics while held") = count;
                }
                results.lock().expect("no panics while held")[index] = Some(result);
            });
        }
    });
    let results = results.into_inner().expect("all threads are done");
    // Runs that an error kept from starting have no result; the error itself is further on.
    let mut out = Vec::with_capacity(count);
    let mut skipped = false;
    for result in results {
        match result {
            Some(Ok(value)) => out.push(value),
            Some(Err(error)) => return Err(error),
            None => skipped = true,
        }
    }
    assert!(!skipped, "a run was skipped though none failed");
    Ok(out)
}

impl Prepared {
    fn new(
        request: &Request,
        schedulers: &[Scheduler],
        say: Say,
    ) -> Result<(Self, Vec<Option<SchedulerStart>>)> {
        // What this machine cannot give is said before anything is fetched for it.
        let options = boot_options(request)?;
        let cache = Cache::open()?;
        let arch = request.shape.arch();
        cross::prepare(&cache, arch, &request.kernel, &mut |line| say(line))?;
        let kernel = kernel::find(&cache, &request.kernel, arch)?;
        if let (Some(why), false) = (&kernel.unfit, schedulers.iter().all(Scheduler::is_kernel)) {
            return Err(LabError::UnfitKernel {
                path: kernel.image.clone(),
                why: why.clone(),
            });
        }
        let agent = own_program(arch, AGENT).ok_or_else(|| LabError::Missing {
            what: format!("the guest's agent {AGENT} is not beside this program"),
            remedy: "run `make build`".into(),
        })?;
        let base = Plan::base(&cache, arch, &agent)?;
        let mut files = Plan::new(&cache, arch);
        let starts = schedulers
            .iter()
            .map(|scheduler| scheduler.install(&cache, &mut files))
            .collect::<Result<Vec<_>>>()?;
        for copy in &request.copies {
            let path = absolute(copy)?;
            let program = image::stripped(&cache, arch, &path)?;
            files.program(&program, &path.to_string_lossy())?;
        }
        let (timeout_s, bpf_stats) = (request.timeout_s, request.bpf_stats);
        let prepared = Prepared {
            cache,
            kernel,
            base,
            files,
            command: Vec::new(),
            options,
            timeout_s,
            bpf_stats,
        };
        Ok((prepared, starts))
    }

    /// Makes this the command of the steps made from here on, with its program in the guest.
    fn set_command(&mut self, command: &[String]) -> Result<()> {
        self.command = install_command(&self.cache, command, &self.base, &mut self.files)?;
        Ok(())
    }

    fn step(&self, scheduler: Option<SchedulerStart>) -> Step {
        Step {
            scheduler,
            command: self.command.clone(),
            timeout_s: self.timeout_s,
        }
    }

    fn boot(
        &self,
        steps: Vec<Step>,
        seed: Option<u64>,
        say: Say,
        observer: &mut dyn FnMut(&Frame),
    ) -> Result<Outcome> {
        let job = Job {
            steps,
            bpf_stats: self.bpf_stats,
        };
        let mut options = self.options.clone();
        if let Some(seed) = seed {
            options.time = Time::Instructions { seed };
        }
        let files = &self.files;
        let mut boot = |options: &BootOptions| {
            runner::boot(
                &self.cache,
                &self.kernel,
                &self.base,
                files.clone(),
                &job,
                options,
                observer,
            )
        };
        match boot(&options) {
            Err(LabError::Guest {
                what,
                emulator_suspect: true,
                ..
            }) => {
                // With the same seed it would come to the same fault.
                let again = match &mut options.time {
                    Time::Instructions { seed } => {
                        *seed = !*seed;
                        format!("tried once more, with seed {seed}")
                    }
                    _ => "tried once more".into(),
                };
                say(&format!(
                    "the guest {what}; what its console shows no real CPU does, so this is taken for the \
                     emulator's fault and {again}"
                ));
                boot(&options)
            }
            other => other,
        }
    }
}

fn boot_options(request: &Request) -> Result<BootOptions> {
    let shape = request.shape.clone();
    if request.has_quotas() && request.icount_seed.is_some() {
        let why = "counted instructions know no host time to share out";
        return Err(match request.quota {
            true => LabError::Usage {
                what: "option",
                value: "--quota".into(),
                why: format!("cannot go with --icount: {why}"),
            },
            false => LabError::Shape {
                shape: shape.to_string(),
                why: format!(
                    "unequal CPUs cannot go with --icount: quotas make the weak ones slower, and {why}"
                ),
            },
        });
    }
    let quotas = request.quotas()?;
    if quotas.is_some() {
        quota::check_available()?;
    }
    let time = match (request.icount_seed, &quotas) {
        (Some(seed), _) => Time::Instructions { seed },
        (None, Some(_)) => Time::MultiThread,
        (None, None) => Time::SingleThread,
    };
    let memory_mib = request
        .memory_mib
        .unwrap_or_else(|| qemu::default_memory_mib(&shape));
    Ok(BootOptions {
        shape,
        time,
        memory_mib,
        quotas,
        stall: request.stall,
        append: request.append.clone(),
    })
}

/// The command as the guest runs it. A program with a slash in its name, or one that only this machine
/// has, is copied; other words are left as they are. Of usher's own programs those beside this one are
/// meant, whatever this machine has installed.
fn install_command(
    cache: &Cache,
    command: &[String],
    base: &Plan,
    files: &mut Plan,
) -> Result<Vec<String>> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(LabError::Usage {
            what: "command",
            value: String::new(),
            why: "nothing to run; give it after --".into(),
        });
    };
    let fail = |why: &str| LabError::Usage {
        what: "command",
        value: program.clone(),
        why: why.into(),
    };
    let arch = base.arch();
    let guest = if arch != Arch::X86_64 && base.has_path(program) {
        // This machine's program of that path would not run there.
        program.clone()
    } else if program.contains('/') {
        // A path may also mean one of the guest's own programs, /bin/sh above all.
        match absolute(Path::new(program)) {
            Ok(path) => {
                let guest = path.to_string_lossy().into_owned();
                files.program(&path, &guest)?;
                guest
            }
            Err(_) if base.has_path(program) => program.clone(),
            Err(_) => return Err(fail("no such file")),
        }
    } else if base.has_program(program) {
        program.clone()
    } else {
        let host = own_program(arch, program)
            .or_else(|| files.find_program(program))
            .ok_or_else(|| match arch {
                Arch::X86_64 => fail("neither among the guest's programs nor on this machine"),
                _ => fail("not among the guest's programs, and this machine's are for another architecture"),
            })?;
        let mut install = |name: &str, host: &Path| {
            let guest = format!("/usr/local/bin/{name}");
            files.program(&image::stripped(cache, arch, host)?, &guest)
        };
        install(program, &host)?;
        // What `usher waits` becomes.
        let waits = (program == "usher" && arguments.first().is_some_and(|word| word == "waits"))
            .then(|| own_program(arch, "usher-waits"));
        if let Some(host) = waits.flatten() {
            install("usher-waits", &host)?;
        }
        program.clone()
    };
    Ok(std::iter::once(guest)
        .chain(arguments.iter().cloned())
        .collect())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let full = std::path::absolute(path).map_err(|e| LabError::io(path, "cannot find", e))?;
    match full.is_file() {
        true => Ok(full),
        false => Err(LabError::Usage {
            what: "file",
            value: path.to_string_lossy().into_owned(),
            why: "no such file".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Goal: results come in order, an error stops the rest and is the one returned. Method: counting work.
    #[test]
    fn parallel_runs_keep_order_and_stop_on_errors() {
        let squares = in_parallel(20, 3, |i| Ok(i * i)).unwrap();
        assert_eq!(squares, (0..20).map(|i| i * i).collect::<Vec<_>>());
        let begun = AtomicUsize::new(0);
        let result: Result<Vec<()>> = in_parallel(1000, 2, |i| {
            begun.fetch_add(1, Ordering::Relaxed);
            match i {
                3 => Err(LabError::bad_file("three", "planted")),
                _ => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    Ok(())
                }
            }
        });
        assert!(result.unwrap_err().to_string().contains("three"));
        assert!(begun.load(Ordering::Relaxed) < 100);
    }

    /// Goal: a command is found in the guest, copied from here, or refused by name. Method: one of each.
    #[test]
    fn commands_are_found_or_refused() {
        let cache = Cache::temporary("lab-test");
        let mut base = Plan::new(&cache, Arch::X86_64);
        base.bytes("/usr/bin/known", 0o755, b"");
        let mut files = Plan::new(&cache, Arch::X86_64);
        let mut install = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
            install_command(&cache, &words, &base, &mut files)
        };
        assert_eq!(install(&["known", "-x"]).unwrap(), ["known", "-x"]);
        assert_eq!(install(&["/bin/true"]).unwrap(), ["/bin/true"]);
        for words in [&["nonesuch-program"][..], &["./nonesuch"], &[]] {
            let error = install(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
        }
        let own = std::env::current_exe().unwrap();
        let own = own.file_name().unwrap().to_str().unwrap();
        assert_eq!(install(&[own, "-x"]).unwrap(), [own, "-x"]);
        assert!(files.has_path("/bin/true"));
        assert!(files.has_path(&format!("/usr/local/bin/{own}")));
    }
}
