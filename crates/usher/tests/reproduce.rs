// SPDX-License-Identifier: GPL-2.0-only
//! `usher reproduce` as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn usher(cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.args(args).env("USHER_CACHE", cache);
    command.output().expect("it starts")
}

/// One thread on the two strong CPUs and on all five, as published in 2013.
const ROWS: &str =
    "source,machine,benchmark,metric,better,parameter,variant,value,noise_pct,note\n\
    mixed-capacity,tc2-2a15-3a7,sysbench-cpu-1t,time-s,lower,stat=max,3.9-rc2,33.78,,\n\
    mixed-capacity,tc2-2a15-3a7,sysbench-cpu-1t,time-s,lower,stat=max,shi,16.48,,\n\
    mixed-capacity,2a15,sysbench-cpu-1t,time-s,lower,stat=max,3.9-rc2,16.49,,\n\
    mixed-capacity,2a15,sysbench-cpu-1t,time-s,lower,stat=max,shi,16.48,,\n";

/// [`ROWS`] in a file of this name.
fn rows_in(folder: &Path, name: &str) -> String {
    let csv = folder.join(name);
    std::fs::write(&csv, ROWS).expect("written");
    csv.into_os_string().into_string().expect("UTF-8")
}

/// What reproduces them, printed so.
fn reproduced<'a>(csv: &'a str, format: &'a str) -> [&'a str; 7] {
    [
        "reproduce",
        "mixed-capacity",
        "--published",
        csv,
        "--quick",
        "--format",
        format,
    ]
}

// Goal: the JSON that others build on; the same bytes however many runs at a time and whether kept or not.
// Method: two rows of a closed form: a thread that may be on a weak CPU takes twice as long.
#[test]
fn json_has_the_promised_fields() {
    let folder = tempfile::tempdir().expect("a folder");
    let csv = rows_in(folder.path(), "rows.csv");
    let run = |cache: &str, jobs: &str| {
        let args = reproduced(&csv, "json");
        let out = usher(
            &folder.path().join(cache),
            &[&args[..], &["--jobs", jobs]].concat(),
        );
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{stderr}");
        String::from_utf8(out.stdout).expect("UTF-8")
    };
    let text = run("a", "1");
    assert_eq!(text, run("a", "2"), "kept");
    assert_eq!(text, run("b", "2"), "two at a time");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["schema"], "usher-reproduce/1");
    let proposal = &json["proposals"][0];
    assert_eq!(proposal["key"], "mixed-capacity");
    assert_eq!(
        (
            proposal["rows"].as_u64(),
            proposal["direction_right"].as_u64()
        ),
        (Some(2), Some(1))
    );
    assert!(proposal.get("rank_correlation").is_some());
    let row = &proposal["rows_detail"][0];
    for field in [
        "machine",
        "benchmark",
        "metric",
        "parameter",
        "variant",
        "verdict",
    ] {
        assert!(row[field].is_string(), "{field}: {row}");
    }
    for field in [
        "published_effect",
        "published_noise",
        "simulated_effect",
        "simulated_low",
        "simulated_high",
    ] {
        assert!(row[field].is_number(), "{field}: {row}");
    }
    let effect = row["simulated_effect"].as_f64().expect("a number");
    assert!(
        (0.48..0.50).contains(&effect),
        "the A7's speed over the A15's: {effect}"
    );
    let ours = row["usher_effect"].as_f64().expect("a number");
    assert!(
        (0.48..0.50).contains(&ours),
        "one thread on an A15 in every run: {ours}"
    );
    assert!(row["usher_missing"].is_null(), "{row}");
    let replay = row["replay"]["variant"].as_str().expect("a command");
    let words: Vec<&str> = replay.split_whitespace().skip(1).collect();
    let again = usher(folder.path(), &words);
    assert!(
        again.status.success() && replay.starts_with("usher sim "),
        "{replay}"
    );
}

// Goal: the page comes out of the command line, names the command that makes it again, and has a row's commands.
// Method: the same two rows; how the page is made is tested where it is made.
#[test]
fn a_page_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let csv = rows_in(folder.path(), "rows & more.csv");
    let out = usher(folder.path(), &reproduced(&csv, "html"));
    let page = String::from_utf8(out.stdout).expect("UTF-8");
    assert_eq!(
        out.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("--workload sysbench-cpu-1t").count(), 2 * 3);
    assert!(
        page.contains("rows &amp; more.csv&#x27; --quick --format html"),
        "quoted and escaped"
    );
}

// Goal: mistakes are one line that names the place, and exit code 2.
// Method: an unknown experiment, a bad row, one run, no file.
#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, ROWS.replace(",shi,", ",shy,")).expect("written");
    let csv = csv.to_str().expect("UTF-8");
    for (args, what) in [
        (
            &["reproduce", "mixed-capcity"][..],
            "unknown experiment `mixed-capcity`",
        ),
        (
            &["reproduce", "mixed-capacity", "--published", csv],
            "rows.csv:3: row `tc2-2a15-3a7 sysbench-cpu-1t time-s stat=max shy`",
        ),
        (
            &["reproduce", "mixed-capacity", "--published", "no.csv"],
            "no.csv: cannot read the published table",
        ),
        (
            &["reproduce", "no.toml"],
            "no.toml: cannot read the experiment",
        ),
        (&["reproduce", "all", "--runs", "1"], "1 is not in 2..="),
        (&["reproduce"], "required arguments were not provided"),
        (
            &["reproduce", "--live", "hackbench,hackbnch"],
            "--live 'hackbnch': known are hackbench, cyclictest",
        ),
        (
            &["calibrate", "zen4"],
            "unknown number `zen4`; known: zen3-llc-wake, ",
        ),
    ] {
        let out = usher(folder.path(), args);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(what), "{stderr}");
    }
}
