// SPDX-License-Identifier: GPL-2.0-only
//! scx_usher: loads the placement core into the kernel as a sched_ext scheduler, and watches over it.
//!
//! The scheduler itself is `bpf/`, around the core of `core/`. This program reads the machine's topology, builds
//! the core's tables in memory that it shares with the kernel, attaches, and sleeps. When CPUs come or go,
//! or the kernel asks for a restart, all of it begins anew with the new topology. However it ends, the
//! kernel's own scheduler takes over.
//!
//! | module | duty |
//! |---|---|
//! | `args` | the command line |
//! | `environment` | can this machine run it at all? |
//! | `scheduler` | one life: open, load, build, attach |
//! | `arena`, `shared` | the memory shared with BPF |
//! | `capacity` | what CPUs are worth, where the kernel says otherwise than sysfs |
//! | `groups` | CPU time for control groups by their weights |
//! | `hints`, `rules` | serving placement hints, and a file of rules for programs that do not ask |
//! | `record` | decisions, written to a file |
//! | `watch` | sleep until something happens |
//! | `stats`, `report` | counters for people, for scx_stats clients, as JSON |
//!
//! Exit codes: 0 fine, 2 wrong use, 3 the environment lacks something, 4 ejected by the kernel.

mod arena;
mod args;
mod capacity;
mod environment;
mod failure;
mod groups;
mod hints;
mod logger;
mod record;
mod report;
mod rules;
mod scheduler;
mod shared;
mod skel;
mod stats;
mod watch;

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use scx_stats::prelude::StatsServer;
use scx_utils::build_id;

use arena::{Arena, Counters};
use args::{Args, Idle};
use capacity::Capacities;
use environment::Environment;
use failure::Failure;
use hints::Hinting;
use record::{Recording, Rings};
use rules::Rules;
use scheduler::{Attached, Current, Storages};
use watch::{Happening, Signals};

fn main() -> ExitCode {
    let args = Args::parse();
    logger::init(args.level());
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{}", failure::one_line(&error));
            failure::exit_code(&error).into()
        }
    }
}

fn dispatch(args: &Args) -> Result<()> {
    if args.version {
        println!(
            "scx_usher {}",
            build_id::full_version(env!("CARGO_PKG_VERSION"))
        );
        return Ok(());
    }
    if args.help_stats {
        return stats::server_data(Current::default()).describe_meta(&mut io::stdout(), None);
    }
    // SAFETY: cannot fail.
    let uid = unsafe { libc::geteuid() };
    // Where it cannot be read, the kernel says what it minds.
    let command_line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let here = Environment {
        sys: Path::new("/sys"),
        uid,
        command_line: &command_line,
    };
    if let Some(interval) = args.monitor {
        // A scheduler that does not run yet is waited for, as monitors of other schedulers do.
        here.has_sched_ext()?;
        return stats::monitor(interval);
    }
    run(args, &here)
}

/// Attaches, as often as the kernel asks for it, until interrupted or ejected.
fn run(args: &Args, here: &Environment) -> Result<()> {
    let rules = match &args.rules {
        Some(path) => Rules::read(path).map_err(|error| Failure::Usage(error.to_string()))?,
        None => Rules::default(),
    };
    args.check().map_err(Failure::Usage)?;
    if args.record.is_some() && args.idle != Idle::Usher {
        let what = "--record: with --idle builtin the kernel decides, and nothing is recorded: leave one of the two out";
        return Err(Failure::Usage(what.into()).into());
    }
    here.check()?;
    environment::check_btf()?;
    if let Some(path) = &args.stats_json_on_exit {
        // Now rather than at the end, when the counters would be lost.
        File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let recording = args.record.as_deref().map(Recording::begin).transpose()?;
    if recording.is_some() {
        skel::record();
    }
    let signals = Signals::take()?;
    let current = Current::default();
    let server = StatsServer::new(stats::server_data(current.clone())).launch();
    if let Err(error) = &server {
        log::warn!("no statistics for --monitor: {}", failure::one_line(error));
    }
    if !args.no_groups {
        share(current.clone())?;
    }
    let mut lasting = Lasting {
        hinting: Hinting::new(!args.no_hints, rules),
        storages: Storages::default(),
        capacities: Capacities::default(),
        total: Counters::default(),
        recording,
        patience: Patience::None,
    };
    while live(args, &signals, &current, &mut lasting)? {
        if !matches!(lasting.patience, Patience::Since(_)) {
            log::info!("starting anew");
        }
    }
    Ok(())
}

/// Divides CPU time among control groups for as long as this process lives; by itself, since who prints or writes a file may have to wait.
fn share(current: Current) -> Result<()> {
    let reckon = move || loop {
        thread::sleep(groups::PERIOD);
        let mut current = current.lock().expect("no reader panics");
        if let Some(sharing) = current.as_mut().and_then(Arena::sharing) {
            sharing.reckon();
        }
    };
    let thread = thread::Builder::new().name("groups".into()).spawn(reckon);
    thread.context("cannot begin a thread").map(drop)
}

/// What outlives a restart.
struct Lasting {
    hinting: Hinting,
    storages: Storages,
    capacities: Capacities,
    total: Counters,
    recording: Option<Recording>,
    patience: Patience,
}

/// With a scheduler that does not start.
enum Patience {
    /// None has started yet, and this machine may lack what it needs.
    None,
    /// One has, so what is missing is missing because CPUs come and go.
    Begun,
    /// Since when none starts again.
    Since(Instant),
}

impl Patience {
    /// The error, if it is not to be borne any longer.
    fn bear(&mut self, error: anyhow::Error) -> Result<()> {
        let since = match self {
            Self::Begun => {
                let error = failure::one_line(&error);
                log::warn!("cannot start anew, trying again: {error}");
                Instant::now()
            }
            Self::Since(since) if since.elapsed() < RESTLESS => *since,
            Self::None | Self::Since(_) => return Err(error),
        };
        *self = Self::Since(since);
        Ok(())
    }
}

/// One life. True if another is to follow.
fn live(args: &Args, signals: &Signals, current: &Current, lasting: &mut Lasting) -> Result<bool> {
    let Lasting {
        hinting,
        storages,
        capacities,
        total,
        recording,
        patience,
    } = lasting;
    let mut storage = MaybeUninit::uninit();
    let attached = Attached::start(
        args,
        hinting,
        storages,
        capacities,
        current.clone(),
        &mut storage,
    );
    let attached = match attached {
        Ok(attached) => attached,
        Err(error) => {
            patience.bear(error)?;
            return Ok(signals.wait(None, Some(Instant::now() + QUIET))? != Happening::Signal);
        }
    };
    *patience = Patience::Begun;
    log::info!("attached as {}", attached.ops);
    let outdated = if attached.hear_capacities(capacities) {
        Some("the kernel's capacities of CPUs are others than its sysfs has")
    } else if attached.somebody_left()? {
        Some("CPUs left while the tables were built")
    } else {
        None
    };
    if let Some(why) = outdated {
        log::info!("{why}");
        add_counters(current, total);
        attached.stop(hinting)?;
        return Ok(true);
    }
    if let Some(recording) = recording {
        let (tables, settings) = attached.machine();
        recording.start(tables, settings)?;
    }
    let happening = watch(args, signals, current, &attached, recording.as_mut());
    add_counters(current, total);
    if let Some(recording) = recording {
        with_rings(current, |rings, root| recording.end(rings, root))?;
    }
    if let Some(path) = &args.stats_json_on_exit {
        report::write(
            path,
            &attached.ops,
            attached.startup,
            total,
            attached.capacities(capacities),
            &attached.programs(),
        )?;
    }
    let changed = attached.cpus_changed()?;
    let exit = attached.stop(hinting)?;
    Ok(match happening? {
        Happening::News => changed || exit.should_restart(),
        _ => false,
    })
}

/// Adds what a life has counted that is about to end.
fn add_counters(current: &Current, total: &mut Counters) {
    if let Some(arena) = current.lock().expect("no reader panics").as_ref() {
        total.add(&arena.counters());
        log::debug!("hinted tasks per LLC: {:?}", arena.inhabitants());
    }
}

/// What is to be done with the rings of the scheduler that is attached now.
fn with_rings(current: &Current, with: impl FnOnce(&Rings, u64) -> Result<()>) -> Result<()> {
    let current = current.lock().expect("no reader panics");
    let arena = current.as_ref();
    let rings = arena.and_then(|arena| Some((arena.rings()?, arena.root())));
    rings.map_or(Ok(()), |(rings, root)| with(rings, root))
}

/// CPUs rarely come or go alone: waits until none has for this long, ...
const QUIET: Duration = Duration::from_millis(250);
/// ... but no longer than this.
const RESTLESS: Duration = Duration::from_secs(10);

/// Waits until CPUs stop coming and going. The scheduler runs on meanwhile, with tables that lack some or
/// have some too many.
fn settle(signals: &Signals, attached: &Attached<'_>) -> Result<Happening> {
    let begun = Instant::now();
    let mut seen = scheduler::hotplug_seq()?;
    loop {
        // Not the news, which are there and stay.
        let happening = signals.wait(None, Some(Instant::now() + QUIET))?;
        if happening != Happening::Time {
            return Ok(happening);
        }
        let now = scheduler::hotplug_seq()?;
        if now == seen || attached.ended() || begun.elapsed() > RESTLESS {
            return Ok(Happening::News);
        }
        seen = now;
    }
}

/// Sleeps until the end, printing statistics and writing what is recorded if asked for.
fn watch(
    args: &Args,
    signals: &Signals,
    current: &Current,
    attached: &Attached<'_>,
    mut recording: Option<&mut Recording>,
) -> Result<Happening> {
    let mut before = Counters::default();
    let mut next = args.stats.map(|interval| Instant::now() + interval);
    let mut fetch = recording.as_ref().map(|_| Instant::now() + record::PERIOD);
    loop {
        match signals.wait(Some(attached.news()), next.into_iter().chain(fetch).min())? {
            Happening::Time => {}
            Happening::News if !attached.ended() => {
                log::info!("CPUs came or went");
                return settle(signals, attached);
            }
            happening => return Ok(happening),
        }
        let now = Instant::now();
        if let Some(recording) = recording.as_deref_mut().filter(|_| fetch <= Some(now)) {
            with_rings(current, |rings, root| recording.fetch(rings, root))?;
            fetch = Some(now + record::PERIOD);
        }
        if next.is_some_and(|next| next <= now) {
            let counters = match current.lock().expect("no reader panics").as_ref() {
                Some(arena) => arena.counters(),
                None => continue,
            };
            stats::Metrics::from(&counters.since(&before)).print(&mut io::stdout())?;
            before = counters;
            next = args.stats.map(|interval| now + interval);
        }
    }
}
