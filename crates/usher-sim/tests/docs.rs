// SPDX-License-Identifier: GPL-2.0-only
//! The documentation shows what is there.

use std::sync::Arc;

use usher_sim::case::{machine, Case};
use usher_sim::params::Params;
use usher_sim::policy::POLICIES;
use usher_sim::workload;
use usher_sim::Options;
use usher_topo::Source;

fn read(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

// Goal: the policy that docs/POLICY.md shows is the one that runs.
// Method: the Rust block of the page against the source, to the byte; and it stays short enough to show.
#[test]
fn the_policy_shown_is_the_policy() {
    let page = read("docs/POLICY.md");
    let shown = page.split("```rust\n").nth(1).expect("a Rust block");
    let shown = shown.split("```").next().expect("split gives one part");
    let source = read("crates/usher-sim/src/policy/fifo.rs");
    assert!(
        shown == source,
        "docs/POLICY.md shows another fifo.rs; put the file into its Rust block"
    );
    let code = source
        .lines()
        .filter(|l| !l.trim().is_empty() && !l.trim().starts_with("//"));
    let lines = code.count();
    assert!(lines <= 60, "{lines} lines are no small example");
}

// Goal: what the page says of the trait is so.
// Method: each required callback of its table is in the trait without a body.
#[test]
fn the_callbacks_named_exist() {
    let (page, source) = (
        read("docs/POLICY.md"),
        read("crates/usher-sim/src/policy.rs"),
    );
    let rows = page.lines().filter(|l| l.starts_with("| `"));
    let mut required = 0;
    for row in rows {
        let name = row.split('`').nth(1).expect("a name in backticks");
        let at = source
            .find(&format!("fn {name}("))
            .unwrap_or_else(|| panic!("no callback {name}"));
        let end = source[at..].find([';', '{']).expect("a signature ends");
        let bare = source.as_bytes()[at + end] == b';';
        assert_eq!(bare, row.ends_with("| yes |"), "{name}");
        required += u32::from(bare);
    }
    let trait_text = &source[source.find("pub trait Policy").expect("the trait")..];
    assert_eq!(
        required as usize,
        trait_text.matches(";\n\n    ///").count(),
        "all required ones"
    );
}

/// The end of a link to this heading, as the pages' host makes it.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// What a link to a part of this page can name: its headings, and anchors in its text.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| anchor(line.trim_start_matches('#').trim_start()));
    let named = page.split("<a id=\"").skip(1);
    let named = named.filter_map(|rest| rest.split_once('"'));
    headings
        .chain(named.map(|(id, _)| id.to_string()))
        .collect()
}

// Goal: links between pages lead somewhere, also those to a part of a page.
// Method: each relative link of each page, against the files there are and the headings of the one it names.
#[test]
fn links_lead_somewhere() {
    let root = format!("{}/../..", env!("CARGO_MANIFEST_DIR"));
    let pages_in = |folder: &'static str| {
        let entries = std::fs::read_dir(format!("{root}/{folder}")).expect("a folder");
        let name = |e: std::io::Result<std::fs::DirEntry>| e.expect("an entry").file_name();
        let names = entries.map(move |e| name(e).into_string().expect("UTF-8"));
        let pages = names.filter(|name| name.ends_with(".md"));
        pages.map(move |name| (folder, name))
    };
    let (mut parts, mut wrong) = (0, vec![]);
    for (folder, name) in pages_in(".").chain(pages_in("docs")) {
        let page = read(&format!("{folder}/{name}"));
        for rest in page.split("](").skip(1) {
            let line = rest.lines().next().unwrap_or(rest);
            let Some((link, _)) = line.split_once(')') else {
                wrong.push(format!("{folder}/{name}: a link does not end: {line}"));
                continue;
            };
            if link.contains("://") {
                continue;
            }
            let (file, part) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                format!("{folder}/{name}")
            } else {
                format!("{folder}/{file}")
            };
            let there = std::fs::exists(format!("{root}/{target}")).unwrap_or(false);
            if !there {
                wrong.push(format!("{folder}/{name}: no file {target}"));
            } else if !part.is_empty() {
                parts += 1;
                if !anchors(&read(&target)).iter().any(|a| a == part) {
                    wrong.push(format!("{folder}/{name}: no part {part} in {target}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parts > 100, "{parts} links to parts were found");
}

// Goal: docs/MODELS.md covers the policies that model a kernel.
// Method: each base name of the registry appears there.
#[test]
fn models_are_documented() {
    let page = read("docs/MODELS.md");
    for policy in POLICIES {
        let base = policy.name.split('+').next().expect("split gives one part");
        assert!(
            page.contains(&format!("`{base}`")),
            "docs/MODELS.md says nothing about `{base}`"
        );
    }
}

// Goal: docs/WORKLOADS.md names all workloads, and says what every metric is.
// Method: the registry; a short run of each workload on a machine of two tiers, latencies and rates by what they are of.
#[test]
fn workloads_and_metrics_are_explained() {
    let page = read("docs/WORKLOADS.md");
    let named = |name: &str| page.contains(&format!("`{name}`"));
    for name in workload::names() {
        assert!(named(name), "docs/WORKLOADS.md does not name `{name}`");
    }
    for info in workload::WORKLOADS {
        let case = Case {
            machine: Arc::new(
                machine(&Source::Shape("2b2l".into()), &Params::new()).expect("a shape"),
            ),
            workload: info.name.into(),
            workload_params: short(info.name),
            policy: "usher".into(),
            policy_params: Params::new(),
        };
        let report = case.run(1, Options::default(), |_| true);
        let report = report.unwrap_or_else(|error| panic!("{}: {error}", info.name));
        for metric in report
            .metrics
            .keys()
            .filter(|metric| !metric.starts_with("tier"))
        {
            let of = [
                "_per_s", "_count", "_ns_mean", "_ns_max", "_ns_p50", "_ns_p90", "_ns_p95",
                "_ns_p99", "_ns_p999",
            ];
            let stem = of.iter().find_map(|tail| metric.strip_suffix(tail));
            assert!(
                named(metric) || stem.is_some_and(named),
                "docs/WORKLOADS.md does not say what `{metric}` of {} is",
                info.name
            );
        }
    }
}

/// Parameters that make a run short.
fn short(workload: &str) -> Params {
    let mut params = Params::new();
    for (key, value) in match workload {
        "hackbench" => &[("groups", "1"), ("loops", "5")][..],
        "kbuild" => &[("objects", "5"), ("jobs", "2")],
        "sysbench-cpu" => &[("requests", "20")],
        "ffmpeg-rt" => &[("instances", "1"), ("runtime", "100ms")],
        _ => &[("runtime", "20ms")],
    } {
        params.set(key, *value);
    }
    params
}
