// SPDX-License-Identifier: GPL-2.0-only
//! Goal: the interleaving checker would notice if a line of the protocols were wrong. Method: copies of
//! the core in each of which one line is missing, weaker, or in the wrong place. Each is compiled with the
//! checker's environment, loaded, and put through the scenarios; one of them must fail. So must no scenario on a copy
//! without a change, or the table below would mean nothing.
//!
//! `make mutants` runs it.

use std::ffi::{c_void, CStr, CString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use usher_core::model::{Build, Failure};

/// One change to the core's sources.
struct Mutant {
    name: &'static str,
    /// What the line is there for.
    breaks: &'static str,
    file: &'static str,
    was: &'static str,
    is: &'static str,
}

/// The scenarios that mutants go through; the order is that of the search for a failure.
const SCENARIOS: &[&str] = &[
    "claim_against_claim",
    "claim_against_idle_again",
    "take_against_look",
    "fill_against_idle",
    "look_against_retire",
    "idle_against_retire",
    "wake_against_idle",
    "raise_against_find",
    "raise_against_find_lowest",
    "set_against_retire",
    "retire_against_retire",
    "preempt_against_preempt",
];

/// Then those too large for all orders, with so many interruptions of actors at most.
const BOUNDED: &[(&str, u8)] = &[
    ("idle_against_queue", 3),
    ("two_tasks_against_retire", 3),
    ("late_queue_against_idle", 3),
    ("interrupt_against_idle", 3),
];

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "claim-unchecked",
        breaks: "who clears a bit owns the CPU only if it was set",
        file: "idle.c",
        was: "\treturn env_fetch_and(u, shard->word, ~bit) & bit;",
        is: "\tenv_fetch_and(u, shard->word, ~bit);\n\treturn true;",
    },
    Mutant {
        name: "claim-not-atomic",
        breaks: "a claim is one atomic, not a load and a store",
        file: "idle.c",
        was: "\treturn env_fetch_and(u, shard->word, ~bit) & bit;",
        is: "\tu64 old = env_read(u, shard->word);\n\n\tenv_write(u, shard->word, old & ~bit);\n\treturn old & bit;",
    },
    Mutant {
        name: "publish-no-summary",
        breaks: "a CPU going idle names its shard in the summary",
        file: "idle.c",
        was: "\tif (!(env_read(u, shard->summary) & shard->summary_bit))\n\t\tenv_fetch_or(u, shard->summary, shard->summary_bit);\n}\n\n/*\n * Publishes the CPU, then",
        is: "}\n\n/*\n * Publishes the CPU, then",
    },
    Mutant {
        name: "publish-summary-first",
        breaks: "the idle bit is set before the summary is looked at",
        file: "idle.c",
        was: "\tenv_fetch_or(u, shard->word, 1ULL << (c->bit & 63));\n\tif (!(env_read(u, shard->summary) & shard->summary_bit))\n\t\tenv_fetch_or(u, shard->summary, shard->summary_bit);\n",
        is: "\tif (!(env_read(u, shard->summary) & shard->summary_bit))\n\t\tenv_fetch_or(u, shard->summary, shard->summary_bit);\n\tenv_fetch_or(u, shard->word, 1ULL << (c->bit & 63));\n",
    },
    Mutant {
        name: "idle-look-first",
        breaks: "mark idle, then look for work",
        file: "idle.c",
        was: "\tusher_idle_publish(u, cid);\n\tif (!usher_work_in_reach(u))\n\t\treturn false;\n",
        is: "\tbool work = usher_work_in_reach(u);\n\n\tusher_idle_publish(u, cid);\n\tif (!work)\n\t\treturn false;\n",
    },
    Mutant {
        name: "idle-no-look",
        breaks: "a CPU that marked itself idle looks for work",
        file: "idle.c",
        was: "\tif (!usher_work_in_reach(u))\n\t\treturn false;\n",
        is: "\treturn false;\n",
    },
    Mutant {
        name: "again-no-publish",
        breaks: "a CPU claimed for nothing goes back into the map",
        file: "idle.c",
        was: "\tenv_count(u, cid, USHER_EV_IDLE_REENTERED);\n\treturn usher_idle_look(u, cid);",
        is: "\tenv_count(u, cid, USHER_EV_IDLE_REENTERED);\n\treturn usher_work_in_reach(u);",
    },
    Mutant {
        name: "exit-no-poke",
        breaks: "a CPU claimed for one task that runs another passes the errand on",
        file: "idle.c",
        was: "\tif (!usher_test_and_clear(u, cid))\n\t\tu->cpus[cid].poke = 1;",
        is: "\tusher_test_and_clear(u, cid);",
    },
    Mutant {
        name: "exit-keeps-bit",
        breaks: "a CPU that runs something takes itself out of the map",
        file: "idle.c",
        was: "\tif (!usher_test_and_clear(u, cid))\n\t\tu->cpus[cid].poke = 1;",
        is: "\tu->cpus[cid].poke = 1;",
    },
    Mutant {
        name: "retire-no-second-look",
        breaks: "who cleared a summary bit looks at the shard again",
        file: "idle.c",
        was: "\tif (!usher_shard_idle(u, shard))\n\t\treturn false;\n\tenv_fetch_or(u, shard->summary, shard->summary_bit);",
        is: "\treturn false;",
    },
    Mutant {
        name: "retire-look-first",
        breaks: "clear the summary bit, then look again",
        file: "idle.c",
        was: "\tenv_fetch_and(u, shard->summary, ~shard->summary_bit);\n\tenv_count(u, self, USHER_EV_SUMMARY_RETIRED);\n\tif (!usher_shard_idle(u, shard))\n\t\treturn false;",
        is: "\tif (!usher_shard_idle(u, shard)) {\n\t\tenv_fetch_and(u, shard->summary, ~shard->summary_bit);\n\t\treturn false;\n\t}\n\tenv_count(u, self, USHER_EV_SUMMARY_RETIRED);",
    },
    Mutant {
        name: "retire-no-poke",
        breaks: "who hid an idle CPU for a moment looks on behalf of others",
        file: "idle.c",
        was: "\tenv_fetch_or(u, shard->summary, shard->summary_bit);\n\tu->cpus[self].poke = 1;",
        is: "\tenv_fetch_or(u, shard->summary, shard->summary_bit);",
    },
    Mutant {
        name: "fill-no-backlog",
        breaks: "a filled queue is announced",
        file: "queue.c",
        was: "\tif (!(env_read(u, l->backlog) & l->backlog_bit))\n\t\tenv_fetch_or(u, l->backlog, l->backlog_bit);",
        is: "",
    },
    Mutant {
        name: "fill-no-barrier",
        breaks: "the task is in the queue before the filler looks for an idle CPU",
        file: "queue.c",
        was: "\tenv_barrier(u);\n",
        is: "",
    },
    Mutant {
        name: "backlog-no-second-look",
        breaks: "who cleared a backlog bit looks at the queue again",
        file: "queue.c",
        was: "\tif (!env_queued(u, llc))\n\t\treturn false;\n\tenv_fetch_or(u, l->backlog, l->backlog_bit);",
        is: "\treturn false;",
    },
    Mutant {
        name: "backlog-no-poke",
        breaks: "who hid a queue for a moment looks on behalf of others",
        file: "queue.c",
        was: "\tenv_fetch_or(u, l->backlog, l->backlog_bit);\n\tu->cpus[self].poke = 1;",
        is: "\tenv_fetch_or(u, l->backlog, l->backlog_bit);",
    },
    Mutant {
        name: "late-look-forgets",
        breaks: "who filled a queue too early looks once more",
        file: "queue.c",
        was: "\tme->look = llc + 1;\n",
        is: "",
    },
    Mutant {
        name: "rescue-forgets",
        breaks: "a rescue sends an idle CPU to the queues",
        file: "place.c",
        was: "\tu->cpus[self].poke = 0;\n",
        is: "\tu->cpus[self].poke = 0;\n\treturn USHER_NONE_IDLE;\n",
    },
    Mutant {
        name: "level-remove-first",
        breaks: "a CPU enters its new level before it leaves the old one",
        file: "cpupri.c",
        was: "\tif (new) {\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t\tusher_cpupri_name(u, leaf, level);\n\t}\n\t/* 3. */\n\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n",
        is: "\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n\tif (new) {\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t\tusher_cpupri_name(u, leaf, level);\n\t}\n",
    },
    Mutant {
        name: "level-named-late",
        breaks: "the new level is in the summaries before the old one is left",
        file: "cpupri.c",
        was: "\tif (new) {\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t\tusher_cpupri_name(u, leaf, level);\n\t}\n\t/* 3. */\n\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n",
        is: "\tif (new)\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n\tif (new)\n\t\tusher_cpupri_name(u, leaf, level);\n",
    },
    Mutant {
        name: "level-named-first",
        breaks: "the leaf's bit is set before the summaries are looked at",
        file: "cpupri.c",
        was: "\tif (new) {\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t\tusher_cpupri_name(u, leaf, level);\n\t}\n",
        is: "\tif (new) {\n\t\tusher_cpupri_name(u, leaf, level);\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t}\n",
    },
    Mutant {
        name: "level-not-atomic",
        breaks: "a leaf's bit is set by one atomic, not by a load and a store",
        file: "cpupri.c",
        was: "\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n",
        is: "\t\tu64 USHER_MEM *word = leaf->words + level * leaf->stride;\n\n\t\tenv_write(u, word, env_read(u, word) | bit);\n",
    },
    Mutant {
        name: "level-stays",
        breaks: "a CPU leaves its old level",
        file: "cpupri.c",
        was: "\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n",
        is: "\t(void)old;\n",
    },
    Mutant {
        name: "level-no-present",
        breaks: "who enters a level names the shard in the node's map",
        file: "cpupri.c",
        was: "\tif (!(env_read(u, present) & leaf->present_bit))\n\t\tenv_fetch_or(u, present, leaf->present_bit);\n",
        is: "\t(void)present;\n",
    },
    Mutant {
        name: "level-no-summary",
        breaks: "who enters a level names it in the summary",
        file: "cpupri.c",
        was: "\tif (!(env_read(u, levels) & bit))\n\t\tenv_fetch_or(u, levels, bit);\n}",
        is: "\t(void)levels;\n\t(void)bit;\n}",
    },
    Mutant {
        name: "leaf-no-second-look",
        breaks: "who cleared a shard's bit looks at the leaf again",
        file: "cpupri.c",
        was: "\tif (!usher_cpupri_at(u, shard, level))\n\t\treturn false;\n\tusher_cpupri_name(u, leaf, level);\n\treturn true;\n",
        is: "\treturn false;\n",
    },
    Mutant {
        name: "leaf-look-first",
        breaks: "clear the shard's bit, then look again",
        file: "cpupri.c",
        was: "\tenv_fetch_and(u, leaf->present + level * leaf->present_stride, ~leaf->present_bit);\n\tif (!usher_cpupri_at(u, shard, level))\n\t\treturn false;\n",
        is: "\tif (!usher_cpupri_at(u, shard, level)) {\n\t\tenv_fetch_and(u, leaf->present + level * leaf->present_stride, ~leaf->present_bit);\n\t\treturn false;\n\t}\n",
    },
    Mutant {
        name: "leaf-half-restored",
        breaks: "who restores a shard's bit restores the level's, too",
        file: "cpupri.c",
        was: "\tusher_cpupri_name(u, leaf, level);\n\treturn true;\n",
        is: "\tenv_fetch_or(u, leaf->present + level * leaf->present_stride, leaf->present_bit);\n\treturn true;\n",
    },
    Mutant {
        name: "level-no-second-look",
        breaks: "who cleared a level's bit looks at the node's map again",
        file: "cpupri.c",
        was: "\tenv_fetch_and(u, levels, ~bit);\n\tif (usher_cpupri_present(u, node, level))\n\t\tenv_fetch_or(u, levels, bit);\n",
        is: "\tenv_fetch_and(u, levels, ~bit);\n",
    },
    Mutant {
        name: "find-old-summary",
        breaks: "a search reads the summary of levels anew after each level",
        file: "cpupri.c",
        was: "\t\t\tcid = usher_cpupri_search_node(u, s, n, level);\n\t\t\tif (cid >= 0)\n\t\t\t\treturn cid;\n\t\t\tenv_read_barrier(u); /* as in usher_cpupri_search_own() */\n\t\t}\n",
        is: "\t\t\tcid = usher_cpupri_search_node(u, s, n, level);\n\t\t\tif (cid >= 0)\n\t\t\t\treturn cid;\n\t\t\tbreak;\n\t\t}\n",
    },
    Mutant {
        name: "preempt-unchecked",
        breaks: "who marks a CPU takes it only if it was not marked",
        file: "preempt.c",
        was: "\treturn !(env_fetch_or(u, leaf->words + USHER_TAKEN * leaf->stride, bit) & bit);",
        is: "\tenv_fetch_or(u, leaf->words + USHER_TAKEN * leaf->stride, bit);\n\treturn true;",
    },
    Mutant {
        name: "preempt-once",
        breaks: "who loses the race for a CPU tries another one",
        file: "preempt.c",
        was: "\t\tenv_count(u, query->self, USHER_EV_PREEMPT_LOST);\n",
        is: "\t\tenv_count(u, query->self, USHER_EV_PREEMPT_LOST);\n\t\tbreak;\n",
    },
    Mutant {
        name: "preempt-not-marked",
        breaks: "a search passes over CPUs that are being preempted",
        file: "cpupri.c",
        was: "\tif (s->q.flags & USHER_UNTAKEN)\n",
        is: "\tif (0)\n",
    },
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

/// Compiles the checker's side of a copy of the core and loads it.
fn build(core: &Path) -> Build {
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
        .arg("-DUSHER_ENV=\"model.h\"")
        .arg("-I")
        .arg(core.join("env"))
        .arg(core.join("tests/model.c"))
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
    let mut symbol = |name: &str| -> *const c_void {
        let name = CString::new(format!("usher_mutant_model_{name}")).expect("no NUL");
        // SAFETY: the handle is open.
        unsafe { libc::dlsym(handle, name.as_ptr()) }
    };
    // SAFETY: the library is this very version of core/tests/model.c, and stays loaded.
    unsafe { Build::from_symbols(&mut symbol) }.expect("model.c exports them all")
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
