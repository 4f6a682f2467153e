// SPDX-License-Identifier: GPL-2.0-only
//! `usher explain` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn explain(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_usher"))
        .arg("explain")
        .args(args.split_whitespace())
        .output()
        .unwrap()
}

/// CPU, reason and whether it was claimed, of each decision.
fn decisions(args: &str) -> Vec<(u64, String, bool)> {
    let out = explain(&format!("{args} --format json"));
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{args}: {stderr}");
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let rows = json["decisions"].as_array().unwrap().iter();
    rows.map(|row| {
        let reason = row["reason"].as_str().unwrap().to_owned();
        (row["cpu"].as_u64().unwrap(), reason, row["claimed"] == true)
    })
    .collect()
}

fn taken(cpu: u64, reason: &str) -> (u64, String, bool) {
    (cpu, reason.into(), true)
}

// Goal: the state that is described is the one that is decided on, in CPU numbers of the machine.
// Method: zen3-2s, whose siblings are 128 apart and whose LLCs have eight cores: of three CPUs that idle one is a whole core in
// prev's LLC once its sibling idles, too. Each decision keeps its CPU.
#[test]
fn idle_cpus_are_taken_nearest_first() {
    let idle = "--machine zen3-2s --prev 5 --idle 3,131,20,70 --times 5";
    assert_eq!(
        decisions(idle),
        [
            taken(3, "llc-core"),
            taken(131, "llc-cpu"),
            taken(20, "node-cpu"),
            taken(70, "remote-cpu"),
            (5, "queued".into(), false),
        ]
    );
}

// Goal: kind of wakeup, hint, allowed set and utilisation reach the core.
// Method: one case each whose reason no other input gives.
#[test]
fn every_input_counts() {
    let one = |args: &str| decisions(args).remove(0);
    let zen = "--machine zen3-2s --prev 0 --waker 40";
    assert_eq!(one(zen), taken(0, "prev-core"));
    assert_eq!(one(&format!("{zen} --wake sync")).1, "sync-core");
    assert_eq!(one(&format!("{zen} --hint wake-affine")).1, "hint-wake");
    assert_eq!(one(&format!("{zen} --allowed 77")), taken(77, "pinned"));
    let board = "--machine tc2-2a15-3a7 --prev 3 --waker 4 --busy 4";
    assert_eq!(
        one(board),
        taken(3, "prev-core"),
        "nothing to do: any CPU is enough"
    );
    let heavy = one(&format!("{board} --util 700"));
    assert!(
        heavy.0 < 2 && heavy.1 == "fit-cpu",
        "heavy tasks go to an A15: {heavy:?}"
    );
}

// Goal: bad input is one line that names option and value.
#[test]
fn wrong_use_is_explained() {
    for (args, says) in [
        (
            "--machine zen3-2s --prev 256",
            "--prev: the machine has no CPU 256; it has 0-255",
        ),
        ("--machine zen3-2s --prev 0 --idle 3-x", "--idle 3-x: `3-x`"),
        (
            "--machine zen3-2s --prev 0 --hint fork-near",
            "no hint `fork-near`",
        ),
    ] {
        let out = explain(args);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args}: {stderr}");
        assert!(stderr.contains(says), "{args}: {stderr}");
    }
}
