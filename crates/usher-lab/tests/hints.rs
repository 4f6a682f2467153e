// SPDX-License-Identifier: GPL-2.0-only
//! Placement hints in guests: the system call, and where the children of a program that hints are found.

use std::path::{Path, PathBuf};
use std::process::Command;

use usher_lab::lab::{self, Request};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::Scheduler;

/// Four LLCs of four cores.
const SHAPE: &str = "1n4l4c1t";
const CPUS_PER_LLC: u32 = 4;

fn repository() -> PathBuf {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Path::new(path).canonicalize().expect("this repository")
}

fn built(name: &str) -> PathBuf {
    let path = repository().join("target/release").join(name);
    assert!(
        path.is_file(),
        "target/release/{name} is not built: run `make build` before"
    );
    path
}

/// Compiles a C program of this repository against the public header.
fn compiled(source: &str) -> PathBuf {
    let root = repository();
    let name = Path::new(source)
        .file_stem()
        .expect("a file")
        .to_string_lossy()
        .into_owned();
    let program = root
        .join("target/tmp")
        .join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(root.join("target/tmp")).expect("target is writable");
    let status = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-I",
        ])
        .arg(root.join("include"))
        .arg("-o")
        .args([&program, &root.join(source)])
        .status()
        .expect("cc runs");
    assert!(status.success(), "{source} does not compile");
    program
}

fn run(kernel: &str, options: &[&str], programs: &[PathBuf], script: &str) -> StepOutcome {
    let mut scheduler: Scheduler = built("scx_usher")
        .to_string_lossy()
        .parse()
        .expect("a program");
    scheduler.add_options(
        &options
            .iter()
            .map(|word| word.to_string())
            .collect::<Vec<_>>(),
    );
    let request = Request {
        icount_seed: Some(1),
        copies: programs.to_vec(),
        ..Request::new(
            SHAPE.parse().expect("a legal shape"),
            kernel,
            vec!["sh".into(), "-c".into(), script.into()],
            300,
        )
    };
    let mut outcome = lab::run(
        &request,
        &scheduler,
        &|line| eprintln!("{line}"),
        &mut |_| (),
    )
    .unwrap_or_else(|error| panic!("kernel {kernel}: {error}"));
    outcome.steps.remove(0)
}

fn text(step: &StepOutcome) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&step.stdout),
        String::from_utf8_lossy(&step.stderr)
    )
}

/// Children that only sleep, and the CPU that each was born on.
const FAMILY: &str = r#"
family() {
    usher=$1; kind=$2; wish=$3; children=$4
    $usher hint --fork $wish -- sh -c '
        for i in $(seq '$children'); do sleep 20 & pids="$pids $!"; done
        sleep 1
        echo '$kind' parent $(cut -d" " -f39 /proc/$$/stat)
        for pid in $pids; do echo '$kind' child $(cut -d" " -f39 /proc/$pid/stat); kill $pid; done'
}
"#;

/// The LLC of the parent, and how many children each LLC has.
fn family(output: &str, kind: &str) -> (usize, [usize; 4]) {
    let llc_of = |line: &str| {
        let cpu: u32 = line
            .rsplit(' ')
            .next()
            .and_then(|cpu| cpu.parse().ok())
            .expect("a CPU");
        (cpu / CPUS_PER_LLC) as usize
    };
    let (mut parent, mut children) = (None, [0; 4]);
    for line in output.lines() {
        if line.starts_with(&format!("{kind} parent ")) {
            parent = Some(llc_of(line));
        } else if line.starts_with(&format!("{kind} child ")) {
            children[llc_of(line)] += 1;
        }
    }
    (
        parent.unwrap_or_else(|| panic!("no {kind} family: {output}")),
        children,
    )
}

// Goal: children of a program that hints are born where the hint says, and the statistics tell why. Method: they
// sleep at once, so that idle CPUs alone would put all of them beside their parent; an LLC of four cores
// has room for three beside the parent. Catches: hints that nobody reads, sleepers that are not counted,
// counts that are not taken back when a family ends (the second spread family finds as much room as the first).
fn children(kernel: &str) {
    let usher = built("usher");
    let path = usher.display();
    let script = format!(
        "{FAMILY}family {path} near affine 5; family {path} wide spread 4; family {path} again spread 4"
    );
    let step = run(kernel, &["--hints"], &[usher.clone()], &script);
    let output = text(&step);
    assert_eq!(step.report.exit, Some(0), "{output}");
    let (parent, mut near) = family(&output, "near");
    assert_eq!(
        near[parent], 3,
        "beside the parent is room for three: {output}"
    );
    near.sort_unstable();
    assert_eq!(
        near,
        [0, 0, 2, 3],
        "the others share the next LLC: {output}"
    );
    for kind in ["wide", "again"] {
        assert_eq!(family(&output, kind).1, [1, 1, 1, 1], "{kind}: {output}");
    }
    let stats = step
        .report
        .scheduler_stats
        .as_ref()
        .expect("usher writes statistics");
    assert!(
        stats["reasons"]["hint-fork"].as_u64() >= Some(13),
        "{stats}"
    );
    assert_eq!(stats["hints"]["set"], 3, "{stats}");
}

// Goal: the system call answers as include/usher_hint.h says. Method: a C program that asks for everything.
fn calls(kernel: &str) {
    let program = compiled("crates/usher-lab/tests/hint_calls.c");
    let step = run(
        kernel,
        &["--hints"],
        &[program.clone()],
        &program.display().to_string(),
    );
    assert!(text(&step).contains("as promised"), "{}", text(&step));
    assert_eq!(step.report.ejected, None);
    let stats = step
        .report
        .scheduler_stats
        .as_ref()
        .expect("usher writes statistics");
    assert!(stats["hints"]["set"].as_u64() >= Some(10_000), "{stats}");
}

#[test]
fn children_on_6_18() {
    children("6.18");
}

#[test]
fn children_on_7_0() {
    children("7.0");
}

#[test]
fn calls_on_6_18() {
    calls("6.18");
}

#[test]
fn calls_on_7_0() {
    calls("7.0");
}

// Goal: without --hints nobody answers, as without usher. Method: the example, which says so.
#[test]
fn nobody_answers_unless_told_to() {
    let program = compiled("examples/hint.c");
    let step = run(
        "6.18",
        &[],
        &[program.clone()],
        &program.display().to_string(),
    );
    assert!(
        text(&step).contains("no hints: Invalid argument"),
        "{}",
        text(&step)
    );
}
