// SPDX-License-Identifier: GPL-2.0-only
//! The outcome as one HTML page: plots, mechanisms, what is modelled, every row with its commands.
//!
//! The page is a file of its own: style sheet, plots and pictures are in it, it has no script and loads nothing, so it
//! reads the same without a network and can be mailed. All text comes into `page.html` through a template
//! engine that escapes it, or through [`usher_report::svg`], which does. The page is well-formed XML besides, which is
//! how its test reads it.
//!
//! [`live`] is the page of programs that ran themselves; [`plots`] sorts rows into plots.

mod live;
mod plots;

pub use live::page as live_page;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde::Serialize;
use usher_report::plot;

use crate::outcome::{Detail, Outcome, Proposal};
use crate::show;
use crate::verdict::Verdict;

/// Names of the series, in the plots' order.
const SERIES: [&str; 3] = ["published", "simulated", "usher"];

/// The page. `command` is what made it, as a user would repeat it.
pub fn page(outcome: &Outcome, command: &str) -> String {
    let values = Page {
        head: Head::new("Published tables beside simulated ones"),
        command,
        length: outcome.length,
        partial: outcome.partial,
        legend: legend(&SERIES),
        linear_to: plot::LINEAR_TO as u32,
        linear_wholly_to: plot::LINEAR_WHOLLY_TO as u32,
        verdicts: VERDICTS.map(|verdict| Mark::of(Some(verdict))),
        proposals: outcome
            .proposals
            .iter()
            .enumerate()
            .map(View::new)
            .collect(),
    };
    render("page.html", values)
}

/// A template of this folder with its values.
fn render(name: &str, values: impl Serialize) -> String {
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    let mut environment = Environment::new();
    environment.set_syntax(syntax.expect("the usual delimiters"));
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    // A name that the template has and the values have not is an error, not a gap.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let page = TEMPLATES
        .iter()
        .try_for_each(|(name, text)| environment.add_template(name, text))
        .and_then(|()| environment.get_template(name)?.render(Serde(values)));
    page.expect("the templates and their values come from this program")
}

/// The templates by name.
const TEMPLATES: [(&str, &str); 3] = [
    ("head.html", include_str!("head.html")),
    ("live.html", include_str!("live.html")),
    ("page.html", include_str!("page.html")),
];

/// What `head.html` sees.
#[derive(Serialize)]
struct Head {
    title: &'static str,
    style: Value,
    version: &'static str,
}

impl Head {
    fn new(title: &'static str) -> Head {
        Head {
            title,
            style: Value::from_safe_string(include_str!("page.css").into()),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// All that `page.html` sees.
#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    head: Head,
    command: &'a str,
    length: &'static str,
    partial: bool,
    legend: Vec<Legend<'a>>,
    linear_to: u32,
    linear_wholly_to: u32,
    verdicts: [Mark; 5],
    proposals: Vec<View>,
}

/// A series' name and shape.
#[derive(Serialize)]
struct Legend<'a> {
    name: &'a str,
    mark: Value,
}

/// The series in the plots' order.
fn legend<'a>(names: &[&'a str]) -> Vec<Legend<'a>> {
    let entry = |(i, name): (usize, &&'a str)| Legend {
        name,
        mark: Value::from_safe_string(plot::legend_mark(i)),
    };
    names.iter().enumerate().map(entry).collect()
}

/// Verdicts in the order of the page's explanation.
const VERDICTS: [Verdict; 5] = [
    Verdict::Agrees,
    Verdict::Direction,
    Verdict::Null,
    Verdict::PublishedIsNoise,
    Verdict::Differs,
];

/// A verdict as the page shows it: a sign, a name, and what it means.
#[derive(Serialize)]
struct Mark {
    sign: &'static str,
    name: &'static str,
    class: &'static str,
    means: &'static str,
}

impl Mark {
    fn of(verdict: Option<Verdict>) -> Mark {
        let (sign, class, means) = match verdict {
            Some(Verdict::Agrees) => (
                "\u{2714}",
                "good",
                "the simulated interval overlaps the published effect with its noise",
            ),
            Some(Verdict::Direction) => ("\u{2197}", "fair", "the same sign, another size"),
            Some(Verdict::Null) => (
                "=",
                "fair",
                "neither can be told from no effect, or the simulated one stays within the published \
                 noise",
            ),
            Some(Verdict::PublishedIsNoise) => (
                "\u{223c}",
                "fair",
                "the published noise covers no effect; the simulation has one, which that noise leaves possible",
            ),
            Some(Verdict::Differs) => ("\u{2716}", "bad", "all else"),
            None => ("\u{2013}", "none", "not run, for the reason given"),
        };
        Mark {
            sign,
            name: verdict.map_or("not run", |verdict| verdict.name()),
            class,
            means,
        }
    }
}

/// A proposal as the template sees it.
#[derive(Serialize)]
struct View {
    id: String,
    key: String,
    title: String,
    mechanism: String,
    summary: String,
    table: String,
    runs: usize,
    rows_number: usize,
    direction: String,
    rank: String,
    error: String,
    usher_worse: String,
    verdicts: Vec<(Mark, usize)>,
    picture: Option<Value>,
    caption: Option<String>,
    modelled: Vec<String>,
    not_modelled: Vec<String>,
    plots: Vec<plots::Drawn>,
    rows: Vec<RowView>,
}

impl View {
    fn new((index, proposal): (usize, &Proposal)) -> View {
        let id = format!("table-{}", index + 1);
        let of = |count: usize, all: usize| format!("{count} of {all}");
        let found = VERDICTS.iter().filter_map(|verdict| {
            let count = proposal.verdicts.get(verdict.name())?;
            Some((Mark::of(Some(*verdict)), *count))
        });
        let left_out = proposal
            .not_modelled
            .iter()
            .chain(&proposal.limits)
            .cloned();
        let reasons = show::reasons(proposal).into_iter().map(String::from);
        let picture = proposal.picture.as_ref();
        View {
            key: proposal.key.clone(),
            title: proposal.title.clone(),
            mechanism: proposal.mechanism.clone(),
            summary: show::summary(proposal),
            table: proposal.table.clone(),
            runs: proposal.runs,
            rows_number: proposal.rows,
            direction: of(proposal.direction_right, proposal.rows_beyond_noise),
            rank: show::number(proposal.rank_correlation, 2),
            error: show::number(proposal.median_absolute_error_pct, 1),
            usher_worse: of(proposal.usher_worse, proposal.rows_usher),
            verdicts: found.collect(),
            picture: picture.map(|(drawn, _)| Value::from_safe_string(drawn.markup.clone())),
            caption: picture.and_then(|(_, caption)| caption.clone()),
            modelled: proposal.modelled.clone(),
            not_modelled: left_out.chain(reasons).collect(),
            plots: plots::draw(&id, &proposal.rows_detail),
            rows: proposal
                .rows_detail
                .iter()
                .map(|row| RowView::new(&id, row))
                .collect(),
            id,
        }
    }
}

/// A row as the template sees it.
#[derive(Serialize)]
struct RowView {
    id: String,
    benchmark: String,
    metric: String,
    machine: String,
    parameter: String,
    variant: String,
    published: String,
    noise_from: Option<&'static str>,
    simulated: String,
    interval: String,
    usher: String,
    usher_interval: String,
    usher_worse: bool,
    verdict: Mark,
    missing: Vec<String>,
    values: Option<String>,
    replay: Vec<(&'static str, String)>,
}

/// The id of a row's element, to which its points in the plots lead.
fn row_id(table: &str, detail: &Detail) -> String {
    format!("{table}-line-{}", detail.line)
}

impl RowView {
    fn new(table: &str, detail: &Detail) -> RowView {
        let ends = |low: Option<f64>, high: Option<f64>| {
            show::interval(low, high, detail.higher_is_better)
        };
        let missing = [&detail.simulated_missing, &detail.usher_missing];
        let replay = &detail.replay;
        let commands = [
            ("baseline", &replay.baseline),
            ("simulated", &replay.variant),
            ("usher", &replay.usher),
        ];
        RowView {
            id: row_id(table, detail),
            benchmark: detail.benchmark.clone(),
            metric: detail.metric.clone(),
            machine: detail.machine.clone(),
            parameter: detail.parameter.clone(),
            variant: detail.variant.clone(),
            published: show::published(detail),
            noise_from: detail.published_noise_from.map(noise_from),
            simulated: show::gain(detail.gain_pct.simulated, missing[0].as_deref()),
            interval: ends(detail.simulated_low, detail.simulated_high),
            usher: show::gain(detail.gain_pct.usher, missing[1].as_deref()),
            usher_interval: ends(detail.usher_low, detail.usher_high),
            usher_worse: detail.usher_worse == Some(true),
            verdict: Mark::of(detail.verdict),
            missing: missing.into_iter().flatten().cloned().collect(),
            values: values(detail),
            replay: commands
                .into_iter()
                .filter_map(|(name, command)| Some((name, command.clone()?)))
                .collect(),
        }
    }
}

/// Where a published noise comes from, in words.
fn noise_from(name: &'static str) -> &'static str {
    match name {
        "column" => "the standard deviations in the table",
        "range" => "the range that the publication gives",
        "control" => "how far rows stray that should show no effect",
        "rounding" => "nothing but the digits that were printed",
        other => other,
    }
}

/// The values behind a row's effects, in words.
fn values(detail: &Detail) -> Option<String> {
    let values = &detail.simulated;
    let named = [
        ("baseline", values.baseline),
        ("simulated", values.variant),
        ("usher", values.usher),
    ];
    let known: Vec<String> = named
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", usher_report::table::short(value?))))
        .collect();
    let text = format!(
        "median {} of {} runs: {}",
        values.metric,
        values.n,
        known.join(", ")
    );
    (!known.is_empty()).then_some(text)
}
