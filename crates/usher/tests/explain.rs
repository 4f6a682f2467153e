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
            "--machine zen3-2s --prev 0 --comm sh",
            "--comm: it is about decisions of a kernel: add --recorded FILE",
        ),
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

/// A recording as scx_usher writes it, of a machine without anybody idle but CPU 5: its lines.
fn recording() -> Vec<String> {
    use usher_core::recorded::{Footer, Header, SCHEMA};
    use usher_core::{Core, Queue, Request, Settings, Tables};
    use usher_topo::{shape, Cid, Topology};

    let topo = Topology::build(&shape::parse("2n1l4c1t").unwrap(), 64).unwrap();
    let header = Header {
        schema: SCHEMA.into(),
        usher: "0.1.0".into(),
        kernel: "6.18.0".into(),
        machine: Tables::from(&topo),
        settings: Settings::default(),
    };
    let mut core = Core::of(&topo).unwrap();
    core.idle_enter(Cid(5));
    core.set_queued(Queue(0), 3);
    let mut lines = vec![serde_json::to_string(&header).unwrap()];
    for (nr, comm) in ["finds", "waits"].into_iter().enumerate() {
        let (_, recorded) = core.place_recorded(&Request::wake(Cid(1), Cid(2)));
        let mut recorded = recorded.unwrap();
        recorded.comm = comm.into();
        recorded.pid = 100 + nr as u32;
        recorded.at_ns = 5_000_000 + 250_000 * nr as u64;
        lines.push(serde_json::to_string(&recorded).unwrap());
    }
    let footer = Footer {
        recorded: 2,
        skipped: 7,
        too_long: 0,
    };
    lines.push(serde_json::to_string(&footer).unwrap());
    lines
}

fn of_file(lines: &str, options: &str) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.jsonl");
    std::fs::write(&path, lines).unwrap();
    let out = explain(&format!("--recorded {} {options}", path.display()));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

// Goal: what a kernel recorded is told, and checked. Method: two decisions as a kernel records them, one that finds the only idle CPU and
// one that waits; then the second with another result.
#[test]
fn recorded_decisions_are_told_and_made_again() {
    let lines = recording();
    let (code, said, _) = of_file(&lines.join("\n"), "");
    assert_eq!(code, Some(0), "{said}");
    for says in [
        "usher 0.1.0 on Linux 6.18.0",
        "remote-cpu",
        "queued",
        "0.250",
        "2 decisions, made again: all come out the same, bit for bit",
        "not in the file: 7 for which there was no room",
    ] {
        assert!(said.contains(says), "{says} is not in {said}");
    }
    let (_, said, _) = of_file(&lines.join("\n"), "--comm waits --steps");
    assert!(said.contains("line 3, 0.250 ms: waits 101"), "{said}");
    assert!(said.contains("queue 0: 3 wait"), "{said}");
    assert!(said.contains("1 decision of those asked for"), "{said}");
    let (_, said, _) = of_file(&lines.join("\n"), "--pid 100 --steps");
    assert!(said.contains("were 5, takes 5"), "{said}");
    for (filter, one) in [
        ("--since 0.1", "waits"),
        ("--until 0.249", "finds"),
        ("--cpu 5", "finds"),
        ("--cpu 1 --since 0 --until 0.25", "waits"),
    ] {
        let (code, said, _) = of_file(&lines.join("\n"), &format!("{filter} --format json"));
        let json: Value = serde_json::from_str(&said).unwrap();
        let comms: Vec<_> = json["decisions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row["comm"])
            .collect();
        assert_eq!(
            (code, comms),
            (Some(0), vec![&Value::from(one)]),
            "{filter}"
        );
        assert_eq!(json["first_ns"], 5_000_000);
    }
    let (_, said, _) = of_file(&lines.join("\n"), "--cpu 5");
    assert!(said.contains("1 decision of those asked for"), "{said}");
    for (filter, says) in [
        ("--comm wait", "none of its 2 decisions is one of those asked for; no thread `wait` is in it, but waits"),
        ("--cpu 7", "none of its 2 decisions is one of those asked for"),
    ] {
        let (code, said, error) = of_file(&lines.join("\n"), filter);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{filter}");
        assert!(error.contains(says), "{error}");
    }

    let (is, other) = (r#""reason":"queued""#, r#""reason":"queued-elsewhere""#);
    let forged = lines.join("\n").replace(is, other);
    let (code, said, _) = of_file(&forged, "--format json");
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &json["different"]), (Some(1), &Value::from(1)));
    let (_, said, _) = of_file(&forged, "");
    assert!(
        said.contains("DIFFERENT here: it comes out as CPU 1, queued"),
        "{said}"
    );
}

// Goal: a file that is damaged, or none of ours, is an error with its line. Method: each kind of damage.
#[test]
fn damaged_recordings_are_explained() {
    let lines = recording();
    let cut = &lines[..2].join("\n");
    for (text, says) in [
        (String::new(), "the file is empty"),
        ("{}\n".into(), "line 1: no header"),
        (lines[1..].join("\n"), "line 1: no header"),
        (
            cut[..cut.len() - 30].into(),
            "line 2: it is cut off; delete it",
        ),
        (
            lines.join("\n").replace("decisions/1", "decisions/9"),
            "line 1: `schema` is",
        ),
        (
            lines.join("\n").replace("\"prev\":1", "\"prev\":8"),
            "line 2: `prev` is cid 8, and the machine has 8",
        ),
        (
            lines
                .join("\n")
                .replace("\"wake\":\"wake\"", "\"wake\":\"woke\""),
            "line 2: no such name: `woke`",
        ),
        (
            lines
                .join("\n")
                .replace("\"distance\":[10", "\"distance\":[10,10"),
            "line 1: the array `distance`",
        ),
    ] {
        let (code, said, stderr) = of_file(&text, "");
        assert_eq!(code, Some(2), "{says}: {said}");
        assert!(stderr.contains(says), "{says} is not in {stderr}");
    }
    let (_, said, _) = of_file(&lines[..3].join("\n"), "");
    assert!(said.contains("the recording was not ended"), "{said}");
}
