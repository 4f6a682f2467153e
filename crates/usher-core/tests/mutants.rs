// SPDX-License-Identifier: GPL-2.0-only
//! Goal: the interleaving checker would notice if a line of the protocols were wrong. Method: copies of
//! the core in each of which one line is missing, weaker, or in the wrong place. Each is compiled with the
//! checker's environment, loaded, and put through the scenarios; one of them must fail. So must no scenario on a copy
//! without a change, or the list (`mutants/list.rs`) would mean nothing.
//!
//! Rules that are no protocol, where tasks go on CPUs of different capacity, who shares a core, who gives way and whom tasks follow, have mutants of
//! their own ([`RULES`]):
//! those are compared with the plain model of `tests/reference`.
//!
//! `make mutants` runs it.

#[allow(dead_code)] // the other test needs more of these
#[path = "reference/capacity.rs"]
mod capacity;
#[allow(dead_code)]
#[path = "reference/cases.rs"]
mod cases;
#[path = "reference/follows.rs"]
mod follows;
#[path = "mutants/list.rs"]
mod list;
#[allow(dead_code)]
#[path = "reference/machine.rs"]
mod machine;
#[path = "reference/ops.rs"]
mod ops;
#[path = "reference/pace.rs"]
mod pace;
#[path = "reference/pairs.rs"]
mod pairs;
#[allow(dead_code)]
#[path = "reference/plain.rs"]
mod plain;
#[path = "reference/random.rs"]
mod random;
#[path = "reference/run.rs"]
mod run;
#[path = "reference/turns.rs"]
mod turns;
#[path = "reference/utilisation.rs"]
mod utilisation;

use std::ffi::{c_void, CStr, CString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use usher_core::model::{Build, Failure};
use usher_core::{Granularity, Library};

use list::{Mutant, MUTANTS, RULES};
use machine::{Machine, MUTANT};
use random::Random;

/// The scenarios that mutants go through; the order is that of the search for a failure, those with most states last.
const SCENARIOS: &[&str] = &[
    "misfit_against_call",
    "claim_against_claim",
    "claim_against_idle_again",
    "take_against_look",
    "soon_against_idle",
    "eased_against_idle",
    "overdue_against_idle",
    "fill_against_idle",
    "raise_against_find",
    "raise_against_find_lowest",
    "set_against_retire",
    "preempt_against_preempt",
    "three_preempt",
    "pinned_against_preempt",
    "pinned_against_rise",
    "pinned_in_turn",
    "look_against_retire",
    "idle_against_retire",
    "wake_against_idle",
    "retire_against_retire",
];

/// Then those too large for all orders, with so many interruptions of actors at most.
const BOUNDED: &[(&str, u8)] = &[
    ("idle_against_queue", 3),
    ("two_tasks_against_retire", 3),
    ("late_queue_against_idle", 3),
    ("interrupt_against_idle", 3),
];

fn core_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the temporary directory is writable");
    for entry in fs::read_dir(from).expect("the core's sources are there") {
        let entry = entry.expect("it can be listed");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("it can be copied");
        }
    }
}

/// Makes the change; the line must be there exactly once, or the mutant is out of date.
fn mutate(core: &Path, mutant: &Mutant) {
    let path = core.join("src").join(mutant.file);
    let text = fs::read_to_string(&path).expect("the source is there");
    let times = text.matches(mutant.was).count();
    assert_eq!(
        times, 1,
        "mutant {}: core/src/{} has its line {times} times; bring it up to date:\n{}",
        mutant.name, mutant.file, mutant.was
    );
    let text = text.replacen(mutant.was, mutant.is, 1);
    fs::write(&path, text).expect("the copy is writable");
}

/// Compiles a copy of the core in an environment and loads it: finds its symbols.
fn load(core: &Path, environment: &str, source: &Path) -> impl FnMut(&str) -> *const c_void {
    let library = core.join("mutant.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args([
            "-std=gnu11",
            "-O2",
            "-fPIC",
            "-shared",
            "-w",
            "-DUSHER_PREFIX=mutant",
        ])
        .arg(format!("-DUSHER_ENV=\"{environment}.h\""))
        .arg("-I")
        .arg(core.join("env"))
        .arg(source)
        .arg("-o")
        .arg(&library)
        .output()
        .unwrap_or_else(|error| panic!("{compiler:?} does not run: {error}"));
    assert!(
        output.status.success(),
        "the mutant does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let path = CString::new(library.into_os_string().into_encoded_bytes()).expect("no NUL");
    // SAFETY: the library has no constructors; RTLD_LOCAL keeps mutants apart; it is never closed.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{}", last_error());
    move |name: &str| -> *const c_void {
        let name = CString::new(name).expect("no NUL");
        // SAFETY: the handle is open.
        unsafe { libc::dlsym(handle, name.as_ptr()) }
    }
}

/// A copy of the core under the checker.
fn build(core: &Path) -> Build {
    let mut find = load(core, "model", &core.join("tests/model.c"));
    let mut symbol = |name: &str| find(&format!("usher_mutant_model_{name}"));
    // SAFETY: the library is this very version of core/tests/model.c, and stays loaded.
    unsafe { Build::from_symbols(&mut symbol) }.expect("model.c exports them all")
}

/// A copy of the core as it runs in a process. Its shim includes ../../../core, so the copy of that stands beside.
fn native(core: &Path) -> &'static Library {
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
    let beside = core.with_file_name("crates").join("usher-core/shim");
    copy(&shim, &beside);
    let mut find = load(core, "native", &beside.join("native.c"));
    let mut symbol = |name: &str| find(name);
    // SAFETY: the library is this very version of shim/native.c, and stays loaded.
    let library = unsafe { Library::from_symbols(&mut symbol) };
    Box::leak(Box::new(library.expect("native.c exports them all")))
}

fn last_error() -> String {
    // SAFETY: dlerror() gives a string or null, valid until the next call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "no error".into();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The first failure.
fn check(build: &Build) -> Option<Failure> {
    let find = |name: &str| build.scenario(name).expect("the scenario is listed");
    let whole = SCENARIOS.iter().find_map(|name| find(name).explore().err());
    let bounded = |(name, preemptions): &(&str, u8)| find(name).explore_bounded(*preemptions).err();
    whole.or_else(|| BOUNDED.iter().find_map(bounded))
}

/// Small random cases, until the core set as [`MUTANT`] and the plain model disagree.
fn check_rules() -> Option<(u64, String)> {
    let differs = |seed: u64| {
        let mut random = Random::new(0x1000 + seed);
        let cpus = random.between(1, 40);
        let machine = Machine::draw(&mut random, cpus, Granularity::Shard);
        let ops = ops::draw(&mut random, &machine, 700);
        let placed = run::run(&machine, &ops, false, &mut run::Seen::default());
        placed
            .map_err(|(_, wrong)| wrong)
            .and_then(|()| utilisation::check(seed))
            .and_then(|()| pairs::check(seed))
            .and_then(|()| follows::check(seed))
            .and_then(|()| turns::check(seed))
            .err()
    };
    (0..600).find_map(|seed| differs(seed).map(|wrong| (seed, wrong)))
}

// Goal: the comparison with the plain model would notice if a rule were wrong. Method: as above; the
// copies are compiled as they run in a process and compared in small random cases.
#[test]
#[ignore = "compiles the core many times; make mutants"]
fn every_mutant_of_a_rule_is_caught() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stage = |name: &str| {
        let core = dir.path().join(name).join("core");
        copy(&core_dir(), &core);
        core
    };
    MUTANT.set(Some(native(&stage("control"))));
    if let Some((seed, wrong)) = check_rules() {
        panic!("the core as it is fails with seed {seed}: {wrong}");
    }
    let mut caught = 0;
    for mutant in RULES {
        let core = stage(mutant.name);
        mutate(&core, mutant);
        MUTANT.set(Some(native(&core)));
        match check_rules() {
            Some((seed, wrong)) => {
                caught += 1;
                let wrong: String = wrong.chars().take(90).collect();
                println!(
                    "{:<20} seed {seed:<4} {}: {wrong}",
                    mutant.name, mutant.breaks
                );
            }
            None => println!("{:<20} NOT CAUGHT: {}", mutant.name, mutant.breaks),
        }
    }
    MUTANT.set(None);
    println!("{caught} of {} mutants of rules caught", RULES.len());
    assert_eq!(caught, RULES.len(), "a mutant survived");
}

#[test]
#[ignore = "compiles the core many times; make mutants"]
fn every_mutant_is_caught() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let control = dir.path().join("control");
    copy(&core_dir(), &control);
    if let Some(failure) = check(&build(&control)) {
        panic!("the core as it is fails:\n{failure}");
    }
    println!(
        "{:<23} {:<25} {:>9} {:>14}  what it breaks, and what then happens",
        "mutant", "caught by", "states", "orders tried"
    );
    let mut caught = 0;
    for mutant in MUTANTS {
        let copied = dir.path().join(mutant.name);
        copy(&core_dir(), &copied);
        mutate(&copied, mutant);
        match check(&build(&copied)) {
            Some(failure) => {
                caught += 1;
                println!(
                    "{:<23} {:<25} {:>9} {:>14.3e}  {}: {}",
                    mutant.name,
                    failure.scenario,
                    failure.report.states,
                    failure.report.interleavings as f64,
                    mutant.breaks,
                    failure.property,
                );
            }
            None => println!("{:<23} NOT CAUGHT: {}", mutant.name, mutant.breaks),
        }
    }
    println!("{caught} of {} mutants caught", MUTANTS.len());
    assert_eq!(caught, MUTANTS.len(), "a mutant survived");
}
