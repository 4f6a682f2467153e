// SPDX-License-Identifier: GPL-2.0-only
//! `usher topo` as a user runs it.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn usher(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(args)
        .output()
        .unwrap()
}

fn stdout(args: &[&str]) -> String {
    let out = usher(args);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{args:?}: {stderr}");
    String::from_utf8(out.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    let text = stdout(&[args, &["--format", "json"]].concat());
    serde_json::from_str(&text).unwrap()
}

// Goal: the JSON that others build on. Method: its first field and the promised ones, on a machine whose
// sizes are known.
#[test]
fn json_has_the_promised_fields() {
    let text = stdout(&["topo", "--machine", "dgx-b200-224", "--format", "json"]);
    assert!(
        text.starts_with(r#"{"schema":"usher-topo/1","#),
        "{}",
        &text[..60]
    );
    let topo = json(&["topo", "--machine", "dgx-b200-224"]);
    assert_eq!(topo["nr_cpus"], 224);
    assert_eq!(topo["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(topo["llcs"].as_array().unwrap().len(), 2);
    assert_eq!(topo["shards"].as_array().unwrap().len(), 4);
    assert_eq!(topo["tiers"].as_array().unwrap().len(), 1);
    assert_eq!(topo["cids"].as_array().unwrap().len(), 224);
    let node = &topo["nodes"][1];
    assert_eq!(node["id"], 1);
    assert_eq!(node["distances"], serde_json::json!([21, 10]));
    let cpus = node["cpus"].as_array().unwrap();
    assert_eq!(
        (cpus.len(), &cpus[0], &cpus[111]),
        (112, &Value::from(56), &Value::from(223))
    );

    let narrow = json(&["topo", "--machine", "dgx-b200-224", "--shard-width", "16"]);
    assert_eq!(narrow["shards"].as_array().unwrap().len(), 14);
    assert!(narrow["shards"]
        .as_array()
        .unwrap()
        .iter()
        .all(|shard| shard["nr_cids"] == 16));
}

// Goal: the queues are those of the core. Method: of an LLC of one tier, whole cores of it, as told; of several tiers, one.
#[test]
fn queues_are_shown_as_they_are_cut() {
    let queues = |args: &[&str]| {
        let topo = json(&[&["topo"][..], args].concat());
        let queues = topo["queues"].as_array().unwrap().clone();
        let of = |queue: &Value| (queue["llc"].clone(), queue["nr_cids"].as_u64().unwrap());
        queues.iter().map(of).collect::<Vec<_>>()
    };
    let llcs_of = |queues: &[(Value, u64)], llc| queues.iter().filter(|q| q.0 == llc).count();
    let icx = queues(&["--machine", "icx-2s"]);
    assert!(icx.iter().all(|queue| queue.1 == 16), "{icx:?}");
    assert_eq!([llcs_of(&icx, 0), llcs_of(&icx, 1)], [4, 4]);
    let narrow = queues(&["--machine", "icx-2s", "--queue-width", "3"]);
    assert!(narrow.iter().all(|queue| queue.1 == 2), "{narrow:?}");
    let hybrid = queues(&["--machine", "hybrid-8p16e"]);
    assert_eq!(hybrid, [(Value::from(0), 32)]);
    let table = stdout(&["topo", "--machine", "icx-2s"]);
    assert!(table.contains("\n8 queues of at most 16 CPUs\n"), "{table}");
    assert!(table.contains("\nQueues\n"), "{table}");
}

// Goal: every kind of source leads to the same machine. Method: one machine by shape, name, synthetic
// string, saved sysfs tree and written machine file; the cids must be equal.
#[test]
fn all_sources_agree() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree").display().to_string();
    let file = dir.path().join("written.toml").display().to_string();
    let by_shape = json(&["topo", "--shape", "2n2l2c2t", "--save-sysfs", &tree]);
    let text = stdout(&["topo", "--shape", "2n2l2c2t", "--format", "machine"]);
    std::fs::write(&file, text).unwrap();
    let synthetic = stdout(&["topo", "--shape", "2n2l2c2t", "--format", "synthetic"]);
    for source in [
        ["--machine", "2n2l2c2t"],
        ["--machine", &file],
        ["--sysfs", &tree],
        ["--synthetic", synthetic.trim()],
        ["--synthetic", "pack:2 numa:1 l3:2 core:2 pu:2"],
    ] {
        let topo = json(&[&["topo"][..], &source].concat());
        for field in ["nr_cpus", "cids", "shards", "llcs", "tiers", "clusters"] {
            assert_eq!(topo[field], by_shape[field], "{source:?}: {field}");
        }
    }
}

// Goal: without a source it is the running machine. Method: compare with the kernel's list.
#[test]
fn default_is_the_running_machine() {
    let topo = json(&["topo"]);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let online = usher_topo::parse_cpulist(&online, 65_535).unwrap();
    assert_eq!(topo["nr_cpus"], online.len());
    assert_eq!(topo["name"], "live");
}

// Goal: a table that stays readable on a large machine, and no escape codes in a pipe. Method: width and
// length of the table of 384 CPUs.
#[test]
fn tables_are_readable_at_384_cpus() {
    let table = stdout(&["topo", "--machine", "epyc-2s-384"]);
    assert!(table.lines().count() < 45, "{table}");
    assert!(table.lines().all(|line| line.len() <= 100), "{table}");
    assert!(!table.contains('\x1b'), "no colour in a pipe");
    assert!(table.contains("384 CPUs, 192 cores, 24 LLCs, 24 shards of at most 64 CPUs, 2 nodes"));
    assert!(
        table.contains("0-7,192-199"),
        "CPU lists are compressed:\n{table}"
    );
}

// Goal: CSV has one row per online CPU. Method: count rows and fields, look at one.
#[test]
fn csv_has_one_row_per_cpu() {
    let csv = stdout(&["topo", "--machine", "tc2-2a15-3a7", "--format", "csv"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 6);
    assert!(lines.iter().all(|line| line.split(',').count() == 14));
    assert_eq!(lines[3], "2,2,2,0,,1,1,0,0,0,430,1,a7,1");
}

// Goal: wrong use is exit code 2, one line on stderr, nothing on stdout. Method: a table of wrong uses
// with a word of the message.
#[test]
fn wrong_use_is_exit_code_2() {
    for (args, message) in [
        (&["--machine", "zen3-2"][..], "did you mean `zen3-2s`?"),
        (&["--machine", "1n2l4c1t"], "`--shape 1n2l4c1t`"),
        (
            &["--machine", "./missing.toml"],
            "./missing.toml: No such file",
        ),
        (&["--sysfs", "/proc"], "/proc: no CPU topology here"),
        (&["--hwloc", "/dev/null"], "/dev/null:1: not XML"),
        (
            &["--hwloc", "/nonexistent.xml"],
            "/nonexistent.xml: No such file",
        ),
        (
            &["--synthetic", "pack:0 pu:1"],
            "a count of zero, found `pack:0`",
        ),
        (&["--synthetic", "pack:2"], "the last level must be pu"),
        (&["--shape", "0c"], "the count before `c` must be from 1"),
        (
            &["--shape", "4097c"],
            "4097 online CPUs; a machine has 1 to 4096",
        ),
        (&["--shape", "2x"], "--shape: "),
        (
            &["--shape", "4b4l", "--format", "synthetic"],
            "it has no word for capacity",
        ),
        (&["--shape", "2c", "--save-sysfs", "/"], "exists already"),
    ] {
        let out = usher(&[&["topo"], args].concat());
        let stderr = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("usher: ") && stderr.contains(message),
            "{args:?}: {stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(out.stdout.is_empty());
    }
    // Clap's own errors, which are longer.
    for args in [
        &["topo", "--shard-width", "0"][..],
        &["topo", "--shard-width", "65"],
        &["topo", "--format", "xml"],
        &["topo", "--shape", "2c", "--machine", "zen3-2s"],
        &["nonsense"],
        &[],
    ] {
        let out = usher(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(!out.stderr.is_empty());
    }
}

const SIGPIPE: i32 = 13;

// Goal: a reader that goes away ends the program as it ends any other, quietly. Method: close the pipe's other end before
// the program starts, lest a small output is written before; SIGPIPE must end it, with stderr empty (no panic
// message).
#[test]
fn broken_pipes_are_quiet() {
    for format in ["json", "csv", "table", "machine"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = Command::new(env!("CARGO_BIN_EXE_usher"))
            .args([
                "topo",
                "--shape",
                "4096c",
                "--shard-width",
                "1",
                "--format",
                format,
            ])
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            (status.signal(), stderr.as_str()),
            (Some(SIGPIPE), ""),
            "{format}"
        );
    }
}

// Goal: completion and manual page are generated from the same definitions. Method: both must know an
// option of `topo`, and the help both of them.
#[test]
fn completions_and_man_pages_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            stdout(&["completions", shell]).contains("shard-width"),
            "{shell}"
        );
    }
    assert!(stdout(&["man"]).contains("usher\\-topo"));
    let dir = tempfile::tempdir().unwrap();
    stdout(&["man", "--out", &dir.path().display().to_string()]);
    let page = std::fs::read_to_string(dir.path().join("usher-topo.1")).unwrap();
    assert!(page.contains("shard\\-width"));
    let help = stdout(&["--help"]);
    assert!(help.contains("completions") && help.contains("  man "));
}

// Goal: a machine file can name its costs from the start, of a table that can be read. Method: a path and a name, read back; a name
// and a path that there are not, and a file that is none.
#[test]
fn a_machine_file_names_its_costs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mine = path("mine.toml", "base = \"generic\"\n");
    let bad = path("bad.toml", "[line]\nline_llc_ns = 62\n");
    let written = |costs: &str| {
        stdout(&[
            "topo",
            "--machine",
            "2a15",
            "--format",
            "machine",
            "--costs",
            costs,
        ])
    };
    assert!(written(&mine).contains(&format!("\ncosts = \"{mine}\"\n")));
    assert!(written("zen3").contains("\ncosts = \"zen3\"\n"));
    for (costs, told) in [
        ("zen", "nearest: zen3, zen4"),
        ("./none.toml", "./none.toml: cannot be read"),
        (&bad, "bad.toml:2: "),
        (&bad, "expected `{ value = NUMBER, source ="),
    ] {
        let out = usher(&["topo", "--machine", "2a15", "--costs", costs]);
        assert_eq!(out.status.code(), Some(2), "{costs}");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(stderr.contains(told), "{costs}: {stderr}");
    }
}
