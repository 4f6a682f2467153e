// SPDX-License-Identifier: GPL-2.0-only
//! The HTML page: whole, closed, self-contained and escaped. How it looks is for `scripts/check-report` and eyes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use roxmltree::{Document, Node, ParsingOptions};
use usher_lab::cache::Cache;
use usher_lab::report::{Cell, CompareReport, Sample, SchedulerReport, Stats};
use usher_reproduce::{html, run, shipped, Length, Outcome, Plan, Results};

/// Markup as a name. It must come out as the text that it is.
const HOSTILE: &str =
    "</style></title><script>alert(1)</script><img src=http://a.b/ onerror='x()'> & \"q\"";

/// A table whose names are hostile, with a parameter that is a number, one that is none, and a variant that
/// cannot be run.
fn experiment(folder: &Path) -> String {
    let hostile = HOSTILE.replace('\\', "\\\\").replace('"', "\\\"");
    let toml = format!(
        r#"
schema = "usher-experiment/1"
key = "small"
title = "{hostile}"
mechanism = "{hostile}"
table = "small.csv"
baseline = "old"
runs = {{ quick = 2, full = 2 }}
[report]
modelled = ["{hostile}"]
not_modelled = ["{hostile}"]
picture = "small.svg"
caption = "{hostile}"
[machines]
"{hostile}" = "2n2l2c2t"
[variants.old]
policy = "cfs-5.9"
[variants."{hostile}"]
policy = "eevdf"
[variants.gone]
not_modelled = "{hostile}"
[usher]
policy = "usher"
[benchmarks."{hostile}"]
workload = "hackbench"
parameters = {{ groups = "groups", stat = "statistic" }}
quick = {{ loops = "5" }}
[benchmarks."{hostile}".metrics."{hostile}"]
ours = "elapsed_ns"
better = "lower"
"#
    );
    let quoted = format!("\"{}\"", HOSTILE.replace('"', "\"\""));
    let row = |parameter: &str, variant: &str, value: &str| {
        format!("small,{quoted},{quoted},{quoted},lower,{parameter},{variant},{value},2,\n")
    };
    let mut csv = "source,machine,benchmark,metric,better,parameter,variant,value,noise_pct,note\n"
        .to_string();
    for parameter in ["groups=1", "groups=2", "stat=avg"] {
        csv += &row(parameter, "old", "100");
        csv += &row(parameter, &quoted, "400");
    }
    csv += &row("groups=1", "gone", "90");
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 340 20\"><title>a &lt;b&gt;</title>\
               <rect class=\"cpu\" x=\"0\" y=\"0\" width=\"9\" height=\"9\"/></svg>";
    for (name, text) in [
        ("small.toml", &toml),
        ("small.csv", &csv),
        ("small.svg", &svg.to_string()),
    ] {
        std::fs::write(folder.join(name), text).expect("written");
    }
    folder.join("small.toml").to_string_lossy().into_owned()
}

fn page() -> (String, Outcome) {
    let folder = tempfile::tempdir().expect("a folder");
    page_in(folder.path(), "once")
}

/// `cache`: which kept runs.
fn page_in(folder: &Path, cache: &str) -> (String, Outcome) {
    let name = experiment(folder);
    let loaded = shipped::load(&name, None).unwrap_or_else(|e| panic!("{e}"));
    let (experiment, table) = &loaded[0];
    let plan = Plan::new(experiment, table, Length::Quick, None, 1);
    let plans = [plan.unwrap_or_else(|e| panic!("{e}"))];
    let results = Results::new(Cache::temporary(&format!("reproduce-page-{cache}")), "p");
    let runs = run::run(&plans, &results, None, &AtomicBool::new(false), |_| ()).expect("it runs");
    let outcome = Outcome::new("quick", &plans, &runs);
    (html::page(&outcome, HOSTILE), outcome)
}

fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(page, options).unwrap_or_else(|e| panic!("{e}\n{page}"))
}

fn all<'a>(document: &'a Document<'a>, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    document
        .descendants()
        .filter(move |node| node.has_tag_name(name))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants()
        .filter_map(|n| n.text().filter(|_| n.is_text()))
        .collect()
}

// Goal: the page is whole: every tag closed, every row there with its verdict and all its commands, every point leading
// to its row, what cannot be run said to be so, both colour schemes declared.
// Method: read it as XML, and look the outcome's rows up in it.
#[test]
fn every_row_is_there_with_its_commands() {
    let (page, outcome) = page();
    let document = parse(&page);
    let rows: Vec<Node<'_, '_>> = all(&document, "tbody")
        .filter(|n| n.attribute("id").is_some())
        .collect();
    let details = &outcome.proposals[0].rows_detail;
    assert_eq!((rows.len(), details.len()), (4, 4));
    for (row, detail) in rows.iter().zip(details) {
        let found = text(*row);
        let replay = &detail.replay;
        let commands = [&replay.baseline, &replay.variant, &replay.usher];
        for command in commands.into_iter().flatten() {
            assert!(
                found.contains(command.as_str()),
                "{command} is not in:\n{found}"
            );
        }
        assert!(found.contains(detail.verdict.map_or("not run", |verdict| verdict.name())));
    }
    let gone = text(*rows.last().expect("a row"));
    assert!(gone.contains("not modelled: </style>"), "{gone}");
    let ids: BTreeSet<&str> = document
        .descendants()
        .filter_map(|n| n.attribute("id"))
        .collect();
    let plots = || all(&document, "svg").filter(|n| n.attribute("class") == Some("plot"));
    // Over the groups; and in rows what has another parameter or stands alone.
    assert_eq!(plots().count(), 2);
    let links: Vec<&str> = plots()
        .flat_map(|plot| plot.descendants())
        .filter_map(|n| n.attribute("href"))
        .collect();
    assert_eq!(links.len(), 4);
    assert!(
        links.iter().all(|link| ids.contains(&link[1..])),
        "{links:?}"
    );
    let marks = page.matches("class=\"mark\"").count();
    assert_eq!(
        marks,
        3 * 2 + 3 * 4 - 1,
        "two legends; three points of each row but the one not run"
    );
    assert!(
        page.contains("color-scheme: light dark")
            && page.contains("@media (prefers-color-scheme: dark)")
    );
    assert!(page.contains("name=\"viewport\""));
}

// Goal: the page needs no network and no script, whatever its files say: nothing in it can act or load.
// Method: names that are markup; the elements, attributes and style of the page against what may be there.
#[test]
fn nothing_acts_or_loads() {
    let (page, _) = page();
    harmless(&page, 10);
}

/// Panics where an element could act or load, or where what hostile names say is not there as text so often.
fn harmless(page: &str, times: usize) {
    let document = parse(page);
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        let acts = [
            "script",
            "img",
            "iframe",
            "object",
            "embed",
            "form",
            "base",
            "use",
            "image",
            "foreignObject",
        ];
        assert!(!acts.contains(&name), "<{name}>");
        for attribute in node.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            assert!(
                !key.starts_with("on") && key != "src" && key != "style",
                "{key}={value}"
            );
            if key == "href" {
                assert!(value.starts_with('#') || value == "data:,", "{value}");
            }
        }
    }
    let style = text(all(&document, "style").next().expect("a style sheet"));
    assert_eq!(all(&document, "style").count(), 1);
    let urls: Vec<&str> = style.split("url(").skip(1).collect();
    assert!(
        urls.iter().all(|url| url.starts_with('#')) && !style.contains("@import"),
        "{style}"
    );
    assert!(!page.contains("<script") && !page.contains("<img"));
    // As text it is there, wherever it was given.
    let whole = text(document.root_element());
    assert!(
        whole.matches(HOSTILE).count() >= times,
        "{}",
        whole.matches(HOSTILE).count()
    );
}

/// Two runs of two metrics under two schedulers, the second 20 % sooner and with failures; all names are hostile.
fn compared() -> CompareReport {
    let cell = |scheduler: &str, metric: &str, median: f64, effect: Option<f64>| Cell {
        scheduler: scheduler.into(),
        metric: metric.into(),
        lower_is_better: true,
        n: 2,
        median,
        low: median - 0.5,
        high: median + 0.5,
        effect,
        effect_low: effect.filter(|_| scheduler == HOSTILE).map(|e| e - 0.1),
        effect_high: effect.filter(|_| scheduler == HOSTILE).map(|e| e + 0.1),
        distinguishable: false,
    };
    let scheduler = |name: &str, exit: i32| SchedulerReport {
        scheduler: name.into(),
        ops: None,
        exits: vec![Some(exit); 2],
        ejected: exit as u32,
        attach_ns: None,
        stats: Stats {
            reasons: [(HOSTILE.to_string(), 3), ("idle".into(), 1)].into(),
            ..Stats::default()
        },
        programs: Vec::new(),
        warnings: vec![HOSTILE.into(); exit as usize],
    };
    let sample = |scheduler: &str, value: f64, round: u32| Sample {
        scheduler: scheduler.into(),
        metric: HOSTILE.into(),
        value,
        lower_is_better: true,
        round,
    };
    CompareReport {
        schema: "usher-lab-compare/1",
        kernel: HOSTILE.into(),
        shape: HOSTILE.into(),
        command: vec![HOSTILE.into(), "-g".into()],
        emulated: true,
        icount_seed: None,
        repeats: None,
        quota: false,
        clusters: Vec::new(),
        wall_s: 1.0,
        cells: vec![
            cell("eevdf", HOSTILE, 10.0, Some(1.0)),
            cell(HOSTILE, HOSTILE, 8.0, Some(0.8)),
            cell("eevdf", "empty", 0.0, None),
            cell(HOSTILE, "empty", 0.0, None),
        ],
        schedulers: vec![scheduler("eevdf", 0), scheduler(HOSTILE, 1)],
        samples: vec![
            sample("eevdf", 10.5, 0),
            sample(HOSTILE, 7.75, 0),
            sample("eevdf", 9.5, 1),
            sample(HOSTILE, 8.25, 1),
        ],
    }
}

// Goal: the page of `--live` has every figure, what failed and that a guest is emulated, and is as harmless.
// Method: read it as XML; a report whose names are markup, with a metric that has no effect.
#[test]
fn programs_have_a_page_of_their_own() {
    let page = html::live_page(&[compared(), compared()], HOSTILE);
    harmless(&page, 20);
    let document = parse(&page);
    let body = text(all(&document, "body").next().expect("a body"));
    for said in [
        "never speed",
        "runs failed",
        ": 2 of 2 runs failed",
        "ejected in 1 runs",
        "kernel warning: </style>",
        "7.750, 8.250",
        "75.0 %",
        "~ not distinguishable from",
    ] {
        assert!(body.contains(said), "{said} is not in:\n{body}");
    }
    let rows: Vec<Node<'_, '_>> = all(&document, "tbody")
        .filter(|n| n.attribute("id").is_some())
        .collect();
    assert_eq!(rows.len(), 2 * 2);
    // Sooner by a fifth is a gain, within 10 points either way.
    let first = text(rows[0]);
    assert!(
        first.contains("+20.0 % ~") && first.contains("+10.0 to +30.0"),
        "{first}"
    );
    assert!(text(rows[1]).contains("not known"));
    let links: Vec<&str> = all(&document, "a")
        .filter_map(|n| n.attribute("href"))
        .collect();
    let ids: Vec<&str> = rows.iter().filter_map(|row| row.attribute("id")).collect();
    assert_eq!(links.len(), ids.len());
    assert!(links.iter().zip(&ids).all(|(link, id)| &link[1..] == *id));
    let marks = page.matches("class=\"mark\"").count();
    assert_eq!(marks, 2 * 2, "a legend and a point for each program");
}

// Goal: the same files give the same page, byte for byte. Method: twice, with no kept runs in common.
#[test]
fn the_page_is_repeatable() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |cache| page_in(folder.path(), cache).0;
    assert_eq!(of("first"), of("again"));
}

// Goal: every experiment that ships has its texts and a picture that a page may show.
#[test]
fn shipped_experiments_have_texts_and_pictures() {
    for (experiment, _) in shipped::load("all", None).unwrap_or_else(|e| panic!("{e}")) {
        let report = &experiment.report;
        let key = &experiment.key;
        let picture = report
            .drawn
            .as_ref()
            .unwrap_or_else(|| panic!("{key} has no picture"));
        assert!(picture.markup.matches("<text").count() > 5, "{key}");
        let named = format!("{key}.svg");
        assert_eq!(report.picture.as_deref(), Some(named.as_str()));
        assert!(
            !report.modelled.is_empty() && !report.not_modelled.is_empty(),
            "{key}"
        );
        let sentences = experiment.mechanism.matches(". ").count() + 1;
        assert_eq!(sentences, 2, "{key}: {}", experiment.mechanism);
    }
}
