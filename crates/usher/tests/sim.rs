// SPDX-License-Identifier: GPL-2.0-only
//! `usher sim` and `usher compare` as a user runs them.

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn usher(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.args(args).output().expect("it starts")
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn stdout(line: &str) -> String {
    let out = usher(&words(line));
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{line}: {stderr}");
    String::from_utf8(out.stdout).expect("UTF-8")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

const SMALL: &str = "sim --shape 2n2l2c2t --workload hackbench --set groups=1 --set loops=20";

// Goal: the JSON that others build on, with every kind of metric, and the same bytes for the same seed.
// Method: a small run twice.
#[test]
fn json_has_the_promised_fields() {
    let line = format!("{SMALL} --policy usher --seed 7 --format json");
    let text = stdout(&line);
    assert!(
        text.trim_start()
            .starts_with("{\n  \"schema\": \"usher-sim/1\""),
        "{}",
        &text[..60]
    );
    assert_eq!(text, stdout(&line));
    let report = json(&text);
    for field in [
        "machine",
        "workload",
        "parameters",
        "policy",
        "seed",
        "metrics",
        "log_hash",
    ] {
        assert!(!report[field].is_null(), "{field}");
    }
    assert_eq!(
        (report["seed"].as_u64(), report["partial"].as_bool()),
        (Some(7), Some(false))
    );
    for metric in [
        "messages_per_s",      // throughput
        "wake_latency_ns_p99", // wakeup latency
        "utilisation",
        "kernel_share",
        "fairness",
        "search_ns_mean", // cost and outcome of searches
        "searches_failed",
        "wakeups_to_idle_share",
    ] {
        assert!(report["metrics"][metric].is_number(), "{metric}");
    }
    let metric = |name: &str| report["metrics"][name].as_f64().expect(name);
    // Over the time that hackbench itself takes, not the births of its tasks.
    let sent = metric("messages_per_s") * metric("elapsed_ns") / 1e9;
    assert!((sent / metric("messages") - 1.0).abs() < 1e-6, "{sent}");
    assert!(report["migrations"]["node"].is_number() && report["reasons"]["queued"].is_number());
    let line = &report["lines"]["usher-queue"];
    assert!(
        line["wait_ns"].as_u64() > Some(0) && line["transfers"]["node"].as_u64() > Some(0),
        "{line}"
    );
}

// Goal: the table shows what the JSON has.
// Method: names from each part.
#[test]
fn the_table_shows_every_part() {
    let text = stdout(&format!("{SMALL} --policy eevdf"));
    for part in [
        "fairness",
        "kernel_share",
        "prev-idle",
        "within the LLC",
        " us",
        "run queues",
        "all waits",
        "log hash",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

// Goal: --check-determinism runs twice and says so.
#[test]
fn determinism_can_be_checked() {
    let out = usher(&words(&format!(
        "{SMALL} --policy cfs-5.9 --check-determinism"
    )));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && err.contains("both runs are alike"),
        "{err}"
    );
}

// Goal: bad input is one line that names it and the remedy, and exit code 2.
// Method: one mistake each.
#[test]
fn mistakes_are_named() {
    for (line, message) in [
        ("sim --machine zen3-s2", "did you mean `zen3-2s`?"),
        (
            "sim --machine no.toml",
            "no.toml: No such file or directory (os error 2)\n",
        ),
        (
            "sim --machine zen3-2s --workload schbnch",
            "did you mean `schbench`?",
        ),
        (
            "sim --machine zen3-2s --policy ushr",
            "did you mean `usher`?",
        ),
        (
            "sim --machine zen3-2s --policy eevdf+llc-mask",
            "switch of policy eevdf",
        ),
        (
            "sim --machine zen3-2s --policy usher:granularty=node",
            "did you mean `granularity`?",
        ),
        (
            "sim --machine zen3-2s --set wrokers=3",
            "did you mean `workers`?",
        ),
        ("sim --machine zen3-2s --set workers=many", "whole number"),
        (
            "sim --machine zen3-2s --set runtime=3601s",
            "not over after 3600s of simulated time",
        ),
        (
            "sim --machine zen3-2s --policy usher:slice=1001ms",
            "`slice` has the value `1001ms`, but must be from 1us to 1s",
        ),
        (
            "sim --machine zen3-2s --policy usher:slice=1ns",
            "must be from 1us to 1s",
        ),
        (
            "sim --machine zen3-2s --set cost.tick.hz=0",
            "tick.hz is 0, but must be from 24",
        ),
        (
            "sim --machine zen3-2s --set cost.ipi.ipi_sned_ns=1",
            "ipi.ipi_send_ns",
        ),
        (
            "sim --machine zen3-2s --hint fork-afine",
            "did you mean `fork-affine`?",
        ),
        (
            "sim --machine zen3-2s --set cost.cpu.clock_mhz=0",
            "cpu.clock_mhz is 0",
        ),
        (
            "sim --machine zen3-2s --hint wake-hold --set hint=none",
            "`hint` is given twice",
        ),
        (
            "sim --machine zen3-2s --policy nobody",
            "unknown policy `nobody`; known: cfs-3.9, ",
        ),
        (
            "compare --machine zen3-2s --sweep workers=1,2 --set workers=3",
            "`workers` is set and swept",
        ),
        (
            "compare --shape 2n2l2c2t --runs 2 --set runtime=1us --policies eevdf",
            "too short: no run has a latency_ns_p99",
        ),
        (
            "compare --machine zen3-2s --sweep workers",
            "is not a sweep",
        ),
        (
            "compare --shape 2n2l2c2t --runs 1 --set runtime=100ms --metric latency_p99",
            "latency_ns_p99",
        ),
    ] {
        let out = usher(&words(line));
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{line}: {err}");
        assert!(
            err.contains(message) && err.lines().count() == 1,
            "{line}: {err}"
        );
        assert!(out.stdout.is_empty(), "{line}");
    }
}

// Goal: a deadlock is reported with who waits for what, and by `compare` with a command that repeats it.
// Method: two tasks that take two locks in opposite order.
#[test]
fn deadlocks_name_the_tasks() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("dead.json");
    let task = |a, b| {
        format!(
            r#"{{"loop": 1, "lock": "{a}", "run": 100, "sleep": 1000, "lock2": "{b}", "unlock": "{b}", "unlock2": "{a}"}}"#
        )
    };
    let text = format!(
        r#"{{"tasks": {{"left": {}, "right": {}}}}}"#,
        task("m", "n"),
        task("n", "m")
    );
    std::fs::write(&path, text).expect("it can be written");
    let path = path.to_str().expect("UTF-8");
    for (command, more) in [
        ("sim", None),
        ("compare", Some("replay: usher sim --shape 2n2l2c2t")),
    ] {
        let out = usher(&[command, "--shape", "2n2l2c2t", "--workload", path]);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{err}");
        for part in [
            "deadlock at",
            "`left-0` waits for mutex `n`, held by",
            "`right-1` waits for mutex `m`",
        ] {
            assert!(err.contains(part), "{part}: {err}");
        }
        assert!(more.is_none_or(|m| err.contains(m)), "{err}");
    }
}

/// Whether a process handles SIGINT.
fn handles_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (libc::SIGINT - 1)) != 0)
}

/// Runs a command, interrupts it half a second after it can be, and returns what it wrote.
fn interrupt(line: &str) -> Output {
    let cache = tempfile::tempdir().expect("a temporary directory");
    let child = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(words(line))
        .env("USHER_CACHE", cache.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let begun = Instant::now();
    while !handles_interrupts(child.id()) && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.expect("kill is there").success());
    child.wait_with_output().expect("it ends")
}

// Goal: Ctrl-C leaves valid results that say that they are partial.
// Method: runs that would take minutes, interrupted; JSON, CSV and a trace.
#[test]
fn interrupted_runs_leave_valid_results() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let trace = dir.path().join("t.pftrace");
    let trace = trace.to_str().expect("UTF-8");
    let load = "--machine zen3-2s --workload tbench --set clients=64 --set runtime=600s";
    let out = interrupt(&format!("sim {load} --format json --trace {trace}"));
    assert_eq!(out.status.code(), Some(130));
    let report = json(&String::from_utf8_lossy(&out.stdout));
    assert_eq!(report["partial"], true);
    assert!(report["metrics"]["events"].as_f64() > Some(0.0));
    assert!(packets(&std::fs::read(trace).expect("a trace")) > 0);

    let out = interrupt(&format!(
        "compare {load} --policies eevdf,usher --runs 2 --format json"
    ));
    assert_eq!(out.status.code(), Some(130));
    let comparison = json(&String::from_utf8_lossy(&out.stdout));
    assert_eq!(
        (&comparison["partial"], &comparison["cells"][1]["n"]),
        (&true.into(), &0.into())
    );
    assert_eq!(comparison["metric"], "throughput_bytes_per_s");
    assert_eq!(
        comparison["parameters"],
        serde_json::json!(["clients=64", "runtime=600s"])
    );

    let out = interrupt(&format!(
        "compare {load} --policies eevdf,usher --runs 2 --format csv"
    ));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let columns = |line: &str| line.split(',').count();
    assert!(
        text.lines().count() == 3
            && text
                .lines()
                .all(|l| columns(l) == columns(&text[..text.find('\n').unwrap_or(0)])),
        "{text}"
    );
    assert!(!text.contains("NaN"), "{text}");

    let out = interrupt("calibrate --format json");
    assert_eq!(out.status.code(), Some(130));
    assert_eq!(json(&String::from_utf8_lossy(&out.stdout))["partial"], true);
}

// Goal: who hints under a policy that knows no hints is told. Method: the limits of runs with and without a hint, under
// policies that know them and one that does not.
#[test]
fn hints_that_nobody_heeds_are_told() {
    for (policy, hint, told) in [
        ("eevdf", "fork-spread", true),
        ("eevdf", "none", false),
        ("eevdf+hints", "fork-spread", false),
        ("usher", "fork-spread", false),
    ] {
        let line = format!("{SMALL} --policy {policy} --hint {hint} --format json");
        let report = json(&stdout(&line));
        let limits = report["limits"].to_string();
        assert_eq!(limits.contains("knows no hints"), told, "{line}: {limits}");
    }
}

// Goal: a wrong name costs no earlier trace, and a trace that cannot be written is no success.
// Method: a file with a word in it; the device that is always full.
#[test]
fn traces_are_not_lost_in_silence() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let trace = dir.path().join("t.pftrace");
    std::fs::write(&trace, "earlier").expect("it can be written");
    let path = trace.to_str().expect("UTF-8");
    let out = usher(&words(&format!("{SMALL} --set lops=1 --trace {path}")));
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(
        std::fs::read_to_string(&trace).expect("it is there"),
        "earlier"
    );
    let out = usher(&words(&format!("{SMALL} --trace /dev/full")));
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{err}");
    assert!(
        err.contains("the trace ") && err.contains("No space left"),
        "{err}"
    );
}

// Goal: who waited is told for people and for programs, and the same run is reported as without.
// Method: more tasks than CPUs, with and without `--waits`; as many slow waits as were asked for.
#[test]
fn waits_are_told() {
    let crowded = "sim --shape 2n2l2c2t --workload schbench --set workers=12 --set cputime=2ms --set sleeptime=1ms --set runtime=100ms";
    let line = format!("{crowded} --waits 3");
    let text = stdout(&line);
    for part in [
        "waits for a CPU",
        "sent to an idle CPU",
        "beside an idle CPU: LLC",
        "waits up to",
        "slowest after a wakeup or birth",
        "slowest after being stopped",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut report = json(&stdout(&format!("{line} --format json")));
    let waits = report["waits"].take();
    let plain = json(&stdout(&format!("{crowded} --format json")));
    assert_eq!(report["log_hash"], plain["log_hash"]);
    assert!(plain["waits"].is_null());
    for slowest in ["slowest", "slowest_stopped"] {
        assert_eq!(waits[slowest].as_array().map(Vec::len), Some(3));
    }
    for kind in waits["kinds"].as_array().expect("kinds") {
        let histogram = kind["histogram"].as_array().expect("steps");
        let counts = histogram
            .iter()
            .map(|step| step["count"].as_u64().expect("a count"));
        assert_eq!(Some(counts.sum()), kind["count"].as_u64(), "{kind}");
        let last = histogram.last().expect("a step");
        assert!(
            last["up_to_ns"].as_u64() >= kind["max_ns"].as_u64(),
            "{kind}"
        );
    }
}

// Goal: a comparison tells what else differs, and of policies that are one and the same that nothing does.
// Method: `--why` as a table and as JSON, with a policy that places otherwise and with the same one under another name; a form of output
// that cannot tell it.
#[test]
fn comparisons_tell_why() {
    let what = "compare --shape 2n2l2c2t --workload tbench --set clients=12 --set runtime=100ms --runs 3 --why --policies";
    let text = stdout(&format!("{what} usher,scx-simple"));
    for part in [
        "what else differs",
        "context_switches",
        "waits_behind_ns_mean",
        "decisions by reason",
        "partner",
        "migrations, of the switches",
        "waits for lines, of the busy time",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let cells = json(&stdout(&format!("{what} usher,scx-simple --format json")));
    let why = &cells["cells"][1]["why"];
    let switches = &why["metrics"]["context_switches"];
    assert!(switches["median"].as_f64() > Some(0.0) && switches["effect"].is_f64());
    let reasons = why["reasons"].as_object().expect("reasons");
    let sum: f64 = reasons.values().filter_map(Value::as_f64).sum();
    assert!((0.9..1.1).contains(&sum), "{reasons:?}");
    assert!(
        why["metrics"]["throughput_bytes_per_s"].is_null(),
        "it is what is compared"
    );
    let text = stdout(&format!("{what} usher,usher:follow=true"));
    assert!(text.contains("what else differs: no metric"), "{text}");
    let text = stdout(&format!("{what} usher"));
    assert!(text.contains("nothing to compare it with"), "{text}");
    let one = what.replace("--runs 3", "--runs 1");
    let text = stdout(&format!("{one} usher,scx-simple"));
    assert!(text.contains("of one run each"), "{text}");
    let text = stdout(&format!(
        "{what} usher,scx-simple --metric waits_behind_ns_mean"
    ));
    assert!(text.contains("waits_behind_ns_mean, 3 runs"), "{text}");
    let out = usher(&words(&format!("{what} usher,eevdf --format csv")));
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("--format table and json"));
}

// Goal: a run that ended before it had a value is told from one that was interrupted.
// Method: a sweep over lengths, the first of which is too short for a sample.
#[test]
fn short_runs_have_no_value() {
    let line = "compare --shape 2n2l2c2t --runs 2 --policies eevdf,usher --sweep runtime=1us,200ms";
    let comparison = json(&stdout(&format!("{line} --format json")));
    assert_eq!(comparison["partial"], false);
    let n = |i: usize| comparison["cells"][i]["n"].as_u64().expect("a count");
    assert_eq!([n(0), n(1), n(2), n(3)], [0, 0, 2, 2]);
    let text = stdout(line);
    assert!(
        text.contains("no value: 4 runs ended without latency_ns_p99; let them run longer"),
        "{text}"
    );
    assert!(!text.contains("interrupted"), "{text}");
}

/// Number of packets of a Perfetto trace, each a length-delimited field 1.
///
/// # Panics
/// If it is cut short or holds anything else.
fn packets(trace: &[u8]) -> usize {
    let (mut at, mut n) = (0, 0);
    while at < trace.len() {
        assert_eq!(trace[at], 0x0a, "packet {n} at byte {at}");
        let (mut length, mut shift) = (0, 0);
        loop {
            at += 1;
            length |= usize::from(trace[at] & 0x7f) << shift;
            shift += 7;
            if trace[at] < 0x80 {
                break;
            }
        }
        at += 1 + length;
        n += 1;
    }
    assert_eq!(at, trace.len(), "the last packet is cut short");
    n
}

// Goal: compare pairs seeds, tells noise from effect, and prints a command that repeats a cell.
// Method: a policy against itself has no effect; the replay command gives the run's own value.
#[test]
fn compare_is_paired_and_replays() {
    let line = "compare --shape 2n2l2c2t --workload hackbench --set loops=20 --sweep groups=1,2 \
                --policies usher,usher,eevdf --runs 4 --format json";
    let comparison = json(&stdout(line));
    let cells = comparison["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 6);
    assert_eq!(cells[0]["median"], cells[1]["median"]);
    assert_eq!(
        (&cells[1]["effect"], &cells[1]["distinguishable"]),
        (&1.0.into(), &false.into())
    );
    let replay = cells[5]["replay"].as_str().expect("a command");
    assert!(
        replay.ends_with("--set loops=20 --set groups=2 --policy eevdf --seed 1"),
        "{replay}"
    );
    let report = json(&stdout(&format!(
        "{} --format json",
        replay.strip_prefix("usher ").expect("usher")
    )));
    let value = report["metrics"]["elapsed_ns"].as_f64().expect("a number");
    let bounds = ["low", "high"].map(|b| cells[5][b].as_f64().expect("a number"));
    assert!(
        bounds[0] * 0.8 <= value && value <= bounds[1] * 1.2,
        "{value} not near {bounds:?}"
    );
}

// Goal: what --set can change is told, with the defaults of a name's own and of the machine's size. Method: each is set to the default
// that the list gives, and nothing changes.
#[test]
fn parameters_are_listed() {
    let line = "sim --shape 1n1l2c1t --workload hackbench-thread-pipe";
    let listed = json(&stdout(&format!("{line} --list --format json")));
    let parameters = listed["policy_parameters"].as_array().expect("a list");
    let granularity = parameters.iter().find(|row| row["key"] == "granularity");
    assert_eq!(
        *granularity.expect("usher's"),
        serde_json::json!({
            "key": "granularity", "value": "shard",
            "meaning": "whose CPUs share a line of idle bits, or of levels: `global`, `node`, `llc` or `shard`",
        })
    );
    let listed = listed["workload_parameters"].as_array();
    let listed = listed.expect("parameters");
    let named = |key: &str| {
        let found = listed.iter().find(|p| p["key"] == key);
        found.unwrap_or_else(|| panic!("{key} is not listed"))
    };
    assert_eq!(
        (&named("mode")["default"], &named("ipc")["values"]),
        (&"thread".into(), &"socket, pipe".into())
    );
    let table = stdout(&format!("{line} --list"));
    let mut all = format!("{line} --format json");
    for parameter in listed {
        let set = format!(
            "{}={}",
            parameter["key"].as_str().unwrap(),
            parameter["default"].as_str().unwrap()
        );
        assert!(
            table.lines().any(|l| l.starts_with(&set)),
            "{set} is not in\n{table}"
        );
        all += &format!(" --set {set}");
    }
    let short = " --set loops=3";
    let (given, left) = (
        stdout(&all.replace(" --set loops=100", short)),
        stdout(&format!("{line} --format json{short}")),
    );
    assert_eq!(json(&given)["log_hash"], json(&left)["log_hash"]);
    let kbuild = json(&stdout(
        "sim --shape 1n2l4c2t --workload kbuild --list --format json",
    ));
    let jobs = kbuild["workload_parameters"]
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["key"] == "jobs");
    assert_eq!(jobs.expect("jobs")["default"], "16");
}

// Goal: what a machine's costs are is told, each with its meaning and source, and each can be set to what is told.
// Method: the list in both formats; what was set is in it; a value that is told, set, changes no event.
#[test]
fn costs_are_listed() {
    let line =
        "sim --machine 2n2l2c2t --workload hackbench --set loops=3 --set cost.wake.wake_ns=777";
    let listed = json(&stdout(&format!("{line} --list costs --format json")));
    let costs = listed["costs"].as_array().expect("costs");
    let wake = costs.iter().find(|cost| cost["key"] == "cost.wake.wake_ns");
    let wake = wake.expect("what a wakeup costs");
    assert_eq!(
        (&wake["value"], &wake["source"]),
        (&777.into(), &"set by the user".into())
    );
    let table = stdout(&format!("{line} --list costs"));
    let mut all =
        String::from("sim --machine 2n2l2c2t --workload hackbench --set loops=3 --format json");
    for cost in costs {
        let set = format!("{}={}", cost["key"].as_str().expect("a key"), cost["value"]);
        assert!(
            table.lines().any(|l| l.starts_with(&set)),
            "{set} is not in\n{table}"
        );
        for text in ["meaning", "source"] {
            assert!(
                cost[text].as_str().is_some_and(|text| text.len() > 5),
                "{cost}"
            );
        }
        all += &format!(" --set {set}");
    }
    let given = json(&stdout(&format!("{line} --format json")));
    assert_eq!(json(&stdout(&all))["log_hash"], given["log_hash"]);
}

// Goal: costs of the machine are swept as parameters of the workload are, seeds begin where they are told to, and how many run at a
// time changes nothing.
// Method: the replay of each cell, run by itself, is its first value; the costs make a difference; one thread and two.
#[test]
fn compare_sweeps_costs() {
    let line = "compare --shape 2n1l2c1t --workload hackbench --set loops=3 --sweep cost.line.line_remote_ns=50,900 \
                --sweep groups=1,2 --policies eevdf,usher --runs 2 --seed 5 --format json --jobs";
    let one = stdout(&format!("{line} 1"));
    assert_eq!(one, stdout(&format!("{line} 2")));
    let comparison = json(&one);
    assert_eq!(comparison["first_seed"], 5);
    let cells = comparison["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 8);
    for cell in cells {
        let replay = cell["replay"].as_str().expect("a command");
        let replay = replay.strip_prefix("usher ").expect("our own");
        let run = json(&stdout(&format!("{replay} --format json")));
        assert_eq!(run["seed"], 5);
        assert_eq!(run["metrics"]["elapsed_ns"], cell["values"][0], "{replay}");
    }
    assert_ne!(cells[0]["values"], cells[4]["values"]);
}

// Goal: rows of CSV stand for themselves, values of single runs are kept, and one run of each has a ratio, though no interval.
// Method: the same comparison in all formats, once with six runs, from which on there is an interval of the median.
#[test]
fn compare_leaves_nothing_out() {
    let line = "compare --shape 1n1l2c1t --workload hackbench --set loops=3 --sweep groups=1,2 --policies eevdf,usher --runs";
    let csv = stdout(&format!("{line} 2 --format csv"));
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = rows.next().expect("a header");
    let last: BTreeMap<&str, &str> = header
        .into_iter()
        .zip(rows.next_back().expect("rows"))
        .collect();
    for (column, value) in [
        ("parameters", "loops=3 groups=2"),
        ("better", "lower"),
        ("policy", "usher"),
        ("spread", "range"),
        ("partial", "false"),
    ] {
        assert_eq!(last[column], value, "{column}");
    }
    let six = json(&stdout(&format!("{line} 6 --format json")));
    assert_eq!(six["spread"], "interval");
    let values = six["cells"][3]["values"].as_array().expect("values");
    assert!(values.len() == 6 && values.iter().all(|v| v.is_number()));
    let one = json(&stdout(&format!("{line} 1 --format json")));
    let cell = &one["cells"][3];
    assert_eq!(cell["values"][0], values[0]);
    let ratio = cell["median"].as_f64().unwrap() / one["cells"][2]["median"].as_f64().unwrap();
    assert!((cell["effect"].as_f64().expect("a ratio") - ratio).abs() < 1e-9);
    assert!(cell["effect_low"].is_null() && cell["effect_high"].is_null());
    assert!(stdout(&format!("{line} 1")).contains(&format!("{:+.1} %", 100.0 * (ratio - 1.0))));
    let tidy = stdout(&format!("{line} 6 --format tidy"));
    assert!(tidy.starts_with("machine,workload,loops,groups,policy,seed,metric,value\n"));
    let of_seed_6: Vec<&str> = tidy
        .lines()
        .filter_map(|row| row.split_once(",3,2,usher,6,").map(|(_, own)| own))
        .collect();
    let elapsed = format!("elapsed_ns,{}", values[5]);
    let shown = elapsed.strip_suffix(".0").unwrap_or(&elapsed);
    assert!(of_seed_6.contains(&shown), "{shown}: {of_seed_6:?}");
    assert!(of_seed_6.len() > 30);
    assert_eq!(tidy.lines().count(), 1 + 24 * of_seed_6.len());
}

// Goal: compare says what throughput does not: how long the slowest requests take, where the workload notes that and no metric is
// asked for. Method: a database, with and without `--metric`, and builds, which have no requests.
#[test]
fn compare_shows_the_slowest_requests() {
    let line = "compare --shape 1n1l2c1t --workload sysbench-oltp-rw --set threads=4 --policies eevdf,usher --runs 2";
    let comparison = json(&stdout(&format!("{line} --format json")));
    assert_eq!(comparison["tail"], "transaction_ns_p99");
    let cell = &comparison["cells"][1];
    let p99 = "--metric transaction_ns_p99";
    let asked = json(&stdout(&format!("{line} {p99} --format json")));
    assert_eq!(asked["tail"], serde_json::Value::Null);
    for key in [
        "median",
        "effect",
        "effect_low",
        "effect_high",
        "distinguishable",
    ] {
        assert_eq!(cell["tail"][key], asked["cells"][1][key], "{key}");
    }
    let heading = |line: &str| {
        stdout(line)
            .lines()
            .find(|l| l.contains("median"))
            .expect("a heading")
            .to_string()
    };
    assert!(
        heading(line).contains("p99  its effect"),
        "{}",
        heading(line)
    );
    for other in [
        &format!("{line} {p99}"),
        "compare --shape 1n1l2c1t --workload kbuild --set objects=4 --policies usher --runs 1",
    ] {
        assert!(!heading(other).contains("p99"), "{}", heading(other));
    }
}
