// SPDX-License-Identifier: GPL-2.0-only
//! Whole tables: the example of the documentation from its files to its verdicts, and what the shipped
//! experiments take and refuse.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use usher_lab::cache::Cache;
use usher_reproduce::{run, shipped, show, Experiment, Length, Outcome, Plan, Results, Table};

fn page() -> String {
    let path = format!("{}/../../docs/EXPERIMENTS.md", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A block of the page.
fn block(kind: &str) -> String {
    let page = page();
    let after = page.split(&format!("```{kind}\n")).nth(1).expect("a block");
    after.split("```").next().expect("it ends").to_string()
}

/// The example of the page in a folder of its own.
fn example() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let toml = folder.path().join("slices.toml");
    std::fs::write(&toml, block("toml")).expect("written");
    std::fs::write(folder.path().join("slices.csv"), block("csv")).expect("written");
    (folder, toml)
}

fn plans(name: &str, published: Option<&str>) -> Result<Vec<Plan>, String> {
    let loaded = shipped::load(name, published).map_err(|e| e.to_string())?;
    let plan = |(experiment, table): &(Experiment, Table)| {
        Plan::new(experiment, table, Length::Quick, None, 1).map_err(|e| e.to_string())
    };
    loaded.iter().map(plan).collect()
}

/// Kept runs in a folder of their own, which a test of this process uses once.
fn results(name: &str) -> (Cache, Results) {
    let cache = Cache::temporary(&format!("reproduce-{name}"));
    (cache.clone(), Results::new(cache, "p"))
}

fn text(plans: &[Plan], runs: &[run::Runs]) -> (String, String) {
    let outcome = Outcome::new("quick", plans, runs);
    let json = serde_json::to_string_pretty(&outcome).expect("it serializes");
    let mut table = Vec::new();
    show::table(&outcome, &mut table).expect("a vector takes all");
    (json, String::from_utf8(table).expect("UTF-8"))
}

// Goal: a table is added without touching code, and comes out complete; an interrupted command goes on where it
// was, and ends as if it had never been interrupted; what is kept is not run again.
// Method: the example of the page. Uninterrupted; stopped after five runs; gone on. Then the kept runs are
// altered: what comes out then can only come from them.
#[test]
fn a_sixth_table_without_code_and_with_interruptions() {
    let (_folder, toml) = example();
    let plans = plans(toml.to_str().expect("UTF-8"), None).expect("a plan");
    let all = run::total(&plans);
    assert_eq!(all, 2 * 3 * 3, "two rows, three cells each, three seeds");
    let go = AtomicBool::new(false);
    let count = AtomicUsize::new(0);
    let done = |_| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let whole = run::run(&plans, &results("whole").1, Some(2), &go, done);
    let whole = text(&plans, &whole.expect("it runs"));
    assert_eq!(count.swap(0, Ordering::Relaxed) as u64, all);

    let (cache, kept) = results("interrupted");
    let stop = AtomicBool::new(false);
    let stopping = |_| {
        if count.fetch_add(1, Ordering::Relaxed) == 4 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let half = run::run(&plans, &kept, Some(1), &stop, stopping).expect("what there is");
    let finished = half.iter().flatten().flatten().flatten().count();
    assert_eq!(finished, 5, "nothing begins after the stop");
    let (json, table) = text(&plans, &half);
    assert!(
        json.contains("\"partial\": true") && table.contains("interrupted"),
        "{table}"
    );
    let rest = run::run(&plans, &kept, Some(1), &go, |_| ()).expect("it goes on");
    assert_eq!(
        text(&plans, &rest),
        whole,
        "one thread or two, interrupted or not"
    );

    assert!(whole
        .0
        .starts_with("{\n  \"schema\": \"usher-reproduce/1\""));
    for part in [
        "pipes",
        "groups=2",
        "after",
        "+10.0",
        "slices: direction right in",
    ] {
        assert!(whole.1.contains(part), "{part} is missing:\n{}", whole.1);
    }
    for file in files(&cache.path("")) {
        let kept = std::fs::read_to_string(&file).expect("readable");
        let altered = kept.replace("\"elapsed_ns\":", "\"elapsed_ns\":1");
        std::fs::write(&file, altered).expect("written");
    }
    let altered = run::run(&plans, &kept, None, &go, |_| ()).expect("it reads");
    assert_ne!(text(&plans, &altered).0, whole.0, "kept runs are run again");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => out.extend(files(&path)),
            path => out.push(path),
        }
    }
    out
}

// Goal: the example's published rate against the simulated time: inverted, so that shorter is better.
// Method: the row's ratio of medians and its gain have the same sense.
#[test]
fn the_inverse_metric_is_inverted() {
    let (_folder, toml) = example();
    let plans = plans(toml.to_str().expect("UTF-8"), None).expect("a plan");
    let (_, kept) = results("inverse");
    let runs = run::run(&plans, &kept, None, &AtomicBool::new(false), |_| ()).expect("it runs");
    let outcome = Outcome::new("quick", &plans, &runs);
    let seen = Cell::new(0);
    for row in &outcome.proposals[0].rows_detail {
        let (base, after) = (
            row.simulated.baseline.unwrap(),
            row.simulated.usher.unwrap(),
        );
        let gain = row.gain_pct.usher.unwrap();
        assert!((base / after - 1.0) * gain > 0.0, "{base} {after} {gain}");
        seen.set(seen.get() + 1);
    }
    assert_eq!(seen.get(), 2);
}

// Goal: what ships can be planned, quick and full, also with parameters that are in none of its tables; the
// replay commands name what runs.
// Method: every shipped table; rows with other parameters.
#[test]
fn shipped_tables_take_unseen_parameters() {
    for key in shipped::keys() {
        let plan = &plans(key, None).unwrap_or_else(|e| panic!("{e}"))[0];
        assert!(
            !plan.rows.is_empty() && plan.cells[0].replay(7).ends_with("--seed 7"),
            "{key}"
        );
    }
    const HEADER: &str =
        "source,machine,benchmark,metric,better,parameter,variant,value,noise_pct,note";
    let folder = tempfile::tempdir().expect("a folder");
    for (key, rows) in [
        (
            "llc-idle-mask",
            "xeon-4s24c2t-192,uperf,throughput-normalized,higher,threads=48,{v},1,2,",
        ),
        (
            "llc-idle-mask",
            "xeon-4s24c2t-192,schbench,p99-latency-normalized,lower,message_threads=3,{v},1,2,",
        ),
        (
            "placement-hints",
            "zen3-2s,tbench,throughput-MB/s,higher,clients=33,{v},5,,",
        ),
        (
            "placement-hints",
            "icx-2s,tbench,throughput-MB/s,higher,clients=128,{v},5,,",
        ),
        (
            "mixed-capacity",
            "tc2-2a15-3a7,sysbench-cpu-2t,time-s,lower,stat=avg,{v},16.5,,",
        ),
    ] {
        let (experiment, _) = &shipped::load(key, None).expect("it ships")[0];
        let other = experiment
            .variants
            .keys()
            .find(|v| **v != experiment.baseline)
            .expect("one");
        let csv: Vec<String> = [&experiment.baseline, other]
            .map(|variant| format!("{key},{}", rows.replace("{v}", variant)))
            .into();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, format!("{HEADER}\n{}\n", csv.join("\n"))).expect("written");
        for name in [key, "all"] {
            let plans = plans(name, path.to_str()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((plans.len(), plans[0].rows.len()), (1, 1), "{rows}");
        }
    }
}

// Goal: rows that should show no effect make the noise of the others, and are noise themselves, however far one
// strays.
// Method: two rows of the variant without a hint, one 1 % off and one 9 %; a hint 8 % off.
#[test]
fn control_rows_are_noise() {
    const ROWS: &str =
        "source,machine,benchmark,metric,better,parameter,variant,value,noise_pct,note\n\
        placement-hints,zen3-2s,hackbench,time-s,lower,groups=1,tip,1.0000,,\n\
        placement-hints,zen3-2s,hackbench,time-s,lower,groups=1,no-hint,1.0100,,\n\
        placement-hints,zen3-2s,hackbench,time-s,lower,groups=2,tip,1.0000,,\n\
        placement-hints,zen3-2s,hackbench,time-s,lower,groups=2,no-hint,0.9100,,\n\
        placement-hints,zen3-2s,hackbench,time-s,lower,groups=2,fork-affine,1.0800,,\n";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.csv");
    std::fs::write(&path, ROWS).expect("written");
    let plan = &plans("placement-hints", path.to_str()).expect("a plan")[0];
    let none: Vec<bool> = plan
        .rows
        .iter()
        .map(|r| r.published.span.covers_none())
        .collect();
    assert_eq!(
        none,
        [true, true, false],
        "0.01 and 0.09 are 0.064 together"
    );
    let hint = plan.rows[2].published.span;
    assert!(
        (0.06..0.08).contains(&(hint.high / hint.effect - 1.0)),
        "{hint:?}"
    );
}

// Goal: a row that an experiment does not know is an error with file, line, row and what is known.
// Method: one unknown name of each kind, a value the workload refuses, a row without its baseline, and rows
// of another publication.
#[test]
fn unknown_rows_are_named() {
    const HEADER: &str =
        "source,machine,benchmark,metric,better,parameter,variant,value,noise_pct,note";
    const GOOD: &str = "mixed-capacity,2a15,hackbench,time-s,lower,stat=avg,3.9-rc2,1.5,,";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.csv");
    for (bad, what) in [
        ("mixed-capacity,3a15,hackbench,time-s,lower,stat=avg,shi,1.5,,", "machine `3a15` is unknown to experiment mixed-capacity; known: 2a15, tc2-2a15-3a7"),
        ("mixed-capacity,2a15,hackbnch,time-s,lower,stat=avg,shi,1.5,,", "benchmark `hackbnch` is unknown"),
        ("mixed-capacity,2a15,hackbench,time-h,lower,stat=avg,shi,1.5,,", "metric `time-h` is unknown to experiment mixed-capacity; known: time-s"),
        ("mixed-capacity,2a15,hackbench,time-s,lower,stat=avg,shy,1.5,,", "variant `shy` is unknown to experiment mixed-capacity; known: 3.9-rc2, shi, shi+patches"),
        ("mixed-capacity,2a15,hackbench,time-s,lower,state=avg,shi,1.5,,", "parameter `state` is unknown"),
        ("mixed-capacity,2a15,hackbench,time-s,lower,avg,shi,1.5,,", "parameter `avg` is not of the form key=value"),
        ("mixed-capacity,2a15,hackbench,time-s,lower,stat=p99,shi,1.5,,", "no row with variant `3.9-rc2`"),
        ("mixed-capacity,2a15,hackbench,time-s,lower,stat=p99,3.9-rc2,1.5,,\nmixed-capacity,2a15,hackbench,time-s,lower,stat=p99,shi,1.5,,", "statistic `p99` is unknown; known: avg, mean, min, max"),
        ("mixed-capacity,2a15,hackbench,time-s,lower,groups=x,3.9-rc2,1.5,,\nmixed-capacity,2a15,hackbench,time-s,lower,groups=x,shi,1.5,,", "`groups` has the value `x`, but must be a whole number"),
        ("mixed-capacity,2a15,hackbench,time-s,lower,stat=min,3.9-rc2,1.5,,", "as all others, it is a baseline, with nothing to compare"),
        ("llc-idle-mask,2a15,hackbench,time-s,lower,stat=avg,shi,1.5,,", "its source is `llc-idle-mask`, but the experiment is `mixed-capacity`"),
    ] {
        std::fs::write(&path, format!("{HEADER}\n{GOOD}\n{bad}\n")).expect("written");
        let error = plans("mixed-capacity", path.to_str()).expect_err(bad);
        let line = 2 + bad.lines().count();
        let row = bad.lines().last().unwrap().split(',').skip(1).take(3).collect::<Vec<_>>().join(" ");
        let place = format!("{}:{line}: row `{row} ", path.display());
        assert!(error.starts_with(&place) && error.contains(what), "{error}");
    }
    std::fs::write(
        &path,
        format!("{HEADER}\n{}\n", GOOD.replace("mixed-capacity", "mine")),
    )
    .expect("written");
    let error = plans("all", path.to_str()).expect_err("no such source");
    assert!(
        error.contains("unknown source `mine`; known: llc-idle-mask, "),
        "{error}"
    );
    let error = plans("mixed-capacties", None).expect_err("no such experiment");
    assert!(
        error.contains("unknown experiment `mixed-capacties`; known: llc-idle-mask"),
        "{error}"
    );
}

// Goal: a metric that the workload does not report is an error, not an empty column.
#[test]
fn metrics_must_exist() {
    let (_folder, toml) = example();
    let text = block("toml").replace("\"elapsed_ns\"", "\"elapsd_ns\"");
    std::fs::write(&toml, text).expect("written");
    let plans = plans(toml.to_str().expect("UTF-8"), None).expect("a plan");
    let (_, kept) = results("metrics");
    let error = run::run(&plans, &kept, None, &AtomicBool::new(false), |_| ()).unwrap_err();
    let error = error.to_string();
    assert!(
        error.ends_with(
            "slices.toml:29: benchmarks.pipes.metrics.rate.ours: `elapsd_ns`: no such metric of workload hackbench; \
             nearest: elapsed_ns"
        ),
        "{error}"
    );
}

// Goal: what an experiment names by path is looked for beside it, wherever the command runs; what is wrong with a machine is told
// with the line that names it.
// Method: a machine and an rt-app file beside the example; then neither is there.
#[test]
fn paths_are_relative_to_the_file() {
    let (folder, toml) = example();
    let data = format!("{}/../../data", env!("CARGO_MANIFEST_DIR"));
    for file in ["machines/2n2l2c2t.toml", "workloads/rt-app-light.json"] {
        let name = Path::new(file).file_name().expect("a name");
        std::fs::copy(format!("{data}/{file}"), folder.path().join(name)).expect("copied");
    }
    let text = block("toml")
        .replace("desktop = \"2n2l2c2t\"", "desktop = \"./2n2l2c2t.toml\"")
        .replace("\"hackbench\"", "\"rt-app-light.json\"")
        .replace("set = { ipc = \"pipe\" }", "")
        .replace("quick = { loops = \"10\" }", "")
        .replace("full = { loops = \"100\" }", "")
        .replace("{ groups = \"groups\" }", "{ of = \"statistic\" }");
    std::fs::write(&toml, &text).expect("written");
    let rows = block("csv")
        .replace("groups=1", "of=mean")
        .replace("groups=2", "of=min");
    std::fs::write(folder.path().join("slices.csv"), rows).expect("written");
    let error = |text: &str| {
        std::fs::write(&toml, text).expect("written");
        plans(toml.to_str().expect("UTF-8"), None).expect_err("not there")
    };
    let name = toml.to_str().expect("UTF-8");
    let plan = plans(name, None).expect("a plan");
    let replay = plan[0].cells[0].replay(1);
    let beside = |name: &str| replay.contains(&*folder.path().join(name).to_string_lossy());
    assert!(
        beside("./2n2l2c2t.toml") && beside("rt-app-light.json"),
        "{replay}"
    );
    let gone = error(&text.replace("./2n2l2c2t", "./gone"));
    let place = format!("{name}:10: machines.desktop: ");
    assert!(
        gone.starts_with(&place) && gone.contains("gone.toml"),
        "{gone}"
    );
    let gone = error(&text.replace("rt-app-light", "gone"));
    assert!(gone.contains("gone.json: cannot be read"), "{gone}");
}

/// The keys of a TOML value as the page writes them: names of the user's choice are `NAME` or `KEY`.
fn keys(value: &toml::Value, at: &str, out: &mut Vec<String>) {
    let toml::Value::Table(table) = value else {
        out.push(at.to_string());
        return;
    };
    for (key, value) in table {
        let key = match at.rsplit('.').next().unwrap_or_default() {
            "machines" | "variants" | "benchmarks" | "metrics" => "NAME",
            "parameters" | "set" | "quick" | "full" | "ours" => "KEY",
            _ => key,
        };
        let path = if at.is_empty() {
            key.to_string()
        } else {
            format!("{at}.{key}")
        };
        keys(value, &path, out);
    }
}

// Goal: an experiment file holds nothing that is not documented, so no private factor can hide in one.
// Method: the keys of every file in data/experiments against the page's list, and the list against what a
// file may hold: every key listed is one that the reader takes.
#[test]
fn every_key_is_documented() {
    let page = page();
    let section = page.split("## The keys").nth(1).expect("the list");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|line| line.split(" | ").next().expect("a cell").to_string());
    let listed: Vec<String> = cells
        .flat_map(|cell| {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(String::from)
                .collect::<Vec<_>>()
        })
        .collect();
    let folder = format!("{}/../../data/experiments", env!("CARGO_MANIFEST_DIR"));
    let mut shipped = 0;
    let mut used = Vec::new();
    let tomls = files(Path::new(&folder)).into_iter();
    for path in tomls.filter(|path| path.extension().is_some_and(|e| e == "toml")) {
        let text = std::fs::read_to_string(&path).expect("readable");
        Experiment::parse(&path.display().to_string(), &text).unwrap_or_else(|e| panic!("{e}"));
        keys(&toml::from_str(&text).expect("TOML"), "", &mut used);
        shipped += 1;
    }
    assert_eq!(shipped, shipped::keys().count(), "every file ships");
    for key in &used {
        assert!(
            listed.contains(key),
            "{key} is in no list of docs/EXPERIMENTS.md"
        );
    }
    for factor in ["scale", "factor", "calibration", "costs"] {
        assert!(!listed.iter().any(|key| key.ends_with(factor)), "{factor}");
    }
}

/// Where a TOML value holds numbers, as numbers or as text (`5`, `0.9`, `30s`).
fn numbers(value: &toml::Value, at: &str, out: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                numbers(value, &format!("{at}/{key}"), out);
            }
        }
        toml::Value::Array(list) => {
            for value in list {
                numbers(value, at, out);
            }
        }
        toml::Value::String(text) => {
            let number =
                text.parse::<f64>().is_ok() || usher_sim::params::parse_duration(text).is_some();
            out.extend(number.then(|| at.to_string()));
        }
        toml::Value::Boolean(_) | toml::Value::Datetime(_) => {}
        toml::Value::Integer(_) | toml::Value::Float(_) => out.push(at.to_string()),
    }
}

// Goal: no experiment has a fudge factor of its own, under whatever name: the only numbers of a file are how many runs,
// how long they are, and options that its benchmark's program was given.
// Method: every number of every file; and a file with one more, which must be seen.
#[test]
fn experiments_hold_no_numbers_of_their_own() {
    let allowed = |at: &str| {
        let words: Vec<&str> = at.split('/').skip(1).collect();
        match words.as_slice() {
            ["runs", "quick" | "full"] => true,
            ["benchmarks", _, "quick" | "full", key] => {
                usher_reproduce::experiment::LENGTHS.contains(key)
            }
            // The reader refuses what is no option of the program (`no_private_factors`).
            ["benchmarks", _, "set", _] => true,
            _ => false,
        }
    };
    let found = |text: &str| {
        let mut out = Vec::new();
        numbers(&toml::from_str(text).expect("TOML"), "", &mut out);
        out.retain(|at| !allowed(at));
        out
    };
    let folder = format!("{}/../../data/experiments", env!("CARGO_MANIFEST_DIR"));
    let tomls = files(Path::new(&folder));
    let tomls: Vec<_> = tomls
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    assert_eq!(tomls.len(), shipped::keys().count());
    for path in tomls {
        let text = std::fs::read_to_string(path).expect("readable");
        assert_eq!(found(&text), [""; 0], "{}", path.display());
        let planted = format!("{text}\n[variants.planted.set]\nslowdown = \"1.07\"\n");
        assert_eq!(found(&planted), ["/variants/planted/set/slowdown"]);
    }
}
