// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench`, run as a user runs it.

use std::process::Command;

use usher_sim::costs::Costs;

// Goal: `usher bench costs` prints a cost file of this machine, however busy that is. Method: it is read back; everything that any machine
// has was measured and takes time.
#[test]
fn costs_of_this_machine() {
    let run = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(["bench", "costs"])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let text = String::from_utf8(run.stdout).expect("text");
    let costs = Costs::parse("this machine", &text).expect("a cost file");
    for key in ["syscall_ns", "rw_ns", "fork_ns", "thread_ns", "line_rmw_ns"] {
        assert!(
            text.contains(&format!("\n{key} = {{ value = ")),
            "{key}: {text}"
        );
    }
    let n = &costs.n;
    assert!(
        n.syscall_ns > 0 && n.fork_ns > n.syscall_ns && n.line_rmw_ns > 0,
        "{text}"
    );
    assert!(text.contains("--set protocol="), "{text}");
}

#[test]
fn an_unknown_base_is_wrong_use() {
    let run = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(["bench", "costs", "--base", "zen"])
        .output()
        .expect("it starts");
    assert_eq!(run.status.code(), Some(2));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("zen3"), "{said}");
}

// Goal: `usher bench requests` says how busy it kept the CPUs. Method: a load of a fifth is a fifth of them and what serving costs
// besides, and no more CPU time than there is, on a machine that others use as well.
#[test]
fn requests_keep_cpus_busy() {
    let run = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(["bench", "requests", "--load", "20", "--seconds", "2"])
        .args(["--format", "json"])
        .output()
        .expect("it starts");
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let busy = report["busy_percent"].as_f64().expect("a number");
    assert!((12.0..80.0).contains(&busy), "{report}");
}

// Goal: `usher bench lines` measures each combination that was asked for, in the order asked, and says what it cannot. Method: one
// thread on whatever CPU there is, so that nobody else's line is wanted: two additions take longer than one.
#[test]
fn lines_of_one_thread() {
    let run = |more: &[&str]| {
        let args = ["bench", "lines", "--millis", "5", "--turns", "3"];
        Command::new(env!("CARGO_BIN_EXE_usher"))
            .args(args)
            .args(more)
            .output()
            .expect("it starts")
    };
    let rounds = ["--round", "a", "--round", "abA?", "--work", "0,2000"];
    let done = run(&[&rounds[..], &["--threads", "1", "--format", "json"]].concat());
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(report["schema"], "usher-bench-lines/1");
    let cells = report["cells"].as_array().expect("cells");
    let named: Vec<_> = cells
        .iter()
        .map(|cell| (cell["round"].as_str(), cell["work_ns"].as_u64()))
        .collect();
    let (a, b) = (Some("a"), Some("abA?"));
    let (none, some) = (Some(0), Some(2000));
    assert_eq!(named, [(a, none), (b, none), (a, some), (b, some)]);
    let rate = |cell: usize| cells[cell]["rounds_per_s"].as_f64().expect("a number");
    assert!(
        rate(0) > 1.2 * rate(1) && rate(0) > 10.0 * rate(2),
        "{report}"
    );

    let many = run(&["--threads", "4096"]);
    assert_eq!(many.status.code(), Some(2));
    let said = String::from_utf8_lossy(&many.stderr);
    assert!(
        said.contains("--threads 4096: this process may use"),
        "{said}"
    );
}
