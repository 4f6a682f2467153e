// SPDX-License-Identifier: GPL-2.0-only
//! The page of `--live`: programs that ran themselves, under one scheduler and another.

use minijinja::Value;
use serde::Serialize;
use usher_lab::report::{shares, Cell, CompareReport, Counts, SchedulerReport};
use usher_report::plot::{self, Place, Plot, Point};
use usher_report::table::short;

use super::{legend, plots, render, Head, Legend};
use crate::outcome::gain_pct;
use crate::show::{ends, interval, signed};

/// The page. `command` is what made it, as a user would repeat it; gains are over the first scheduler.
pub fn page(reports: &[CompareReport], command: &str) -> String {
    let values = Page {
        head: Head::new("Programs under one scheduler and another"),
        command,
        emulated: reports.iter().any(|report| report.emulated),
        programs: reports.iter().enumerate().map(Program::new).collect(),
    };
    render("live.html", values)
}

/// All that `live.html` sees.
#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    head: Head,
    command: &'a str,
    emulated: bool,
    programs: Vec<Program<'a>>,
}

/// A program as the template sees it.
#[derive(Serialize)]
struct Program<'a> {
    id: String,
    name: &'a str,
    command: String,
    place: String,
    failures: Vec<String>,
    schedulers: Vec<&'a str>,
    legend: Vec<Legend<'a>>,
    plot: Option<Value>,
    rows: Vec<Row<'a>>,
    /// Whether a gain may be none.
    doubt: bool,
    counts: Vec<Counted>,
}

/// A metric under all schedulers.
#[derive(Serialize)]
struct Row<'a> {
    id: String,
    metric: &'a str,
    better: &'static str,
    cells: Vec<Figures<'a>>,
}

/// A metric under one scheduler.
#[derive(Serialize)]
struct Figures<'a> {
    scheduler: &'a str,
    n: usize,
    median: String,
    spread: String,
    gain: String,
    interval: String,
    values: String,
}

/// What a scheduler counted.
#[derive(Serialize)]
struct Counted {
    title: String,
    rows: Vec<Count>,
}

/// One count.
#[derive(Serialize)]
struct Count {
    what: String,
    count: u64,
    share: String,
}

impl<'a> Program<'a> {
    fn new((index, report): (usize, &'a CompareReport)) -> Program<'a> {
        let id = format!("program-{}", index + 1);
        let schedulers: Vec<&str> = report
            .schedulers
            .iter()
            .map(|scheduler| scheduler.scheduler.as_str())
            .collect();
        let of_metrics: Vec<&[Cell]> = report.cells.chunk_by(|a, b| a.metric == b.metric).collect();
        let row_id = |index: usize| format!("{id}-metric-{}", index + 1);
        let others = &schedulers[1..];
        let places: Vec<Place> = of_metrics
            .iter()
            .enumerate()
            .map(|(i, cells)| Place {
                label: cells[0].metric.clone(),
                at: 0.0,
                points: others.iter().map(|name| point(cells, name)).collect(),
                link: format!("#{}", row_id(i)),
            })
            .collect();
        let plot = Plot {
            title: format!("gains of {} in per cent", report.command.join(" ")),
            parameter: String::new(),
            places,
            room_for: Vec::new(),
        };
        let plot = (!plot.values().is_empty()).then(|| plot::in_rows(&plot));
        let row = |(i, cells): (usize, &&'a [Cell])| Row {
            id: row_id(i),
            metric: &cells[0].metric,
            better: better(&cells[0]),
            cells: cells.iter().map(|cell| figures(report, cell)).collect(),
        };
        Program {
            name: report.command.first().map_or("", String::as_str),
            command: report.command.join(" "),
            place: report.place(),
            failures: report.schedulers.iter().flat_map(failures).collect(),
            legend: legend(others),
            plot: plot.map(Value::from_safe_string),
            rows: of_metrics.iter().enumerate().map(row).collect(),
            doubt: report
                .cells
                .iter()
                .any(|cell| !cell.distinguishable && !is_baseline(report, cell)),
            counts: report.schedulers.iter().flat_map(counted).collect(),
            schedulers,
            id,
        }
    }
}

fn is_baseline(report: &CompareReport, cell: &Cell) -> bool {
    report.schedulers[0].scheduler == cell.scheduler
}

fn better(cell: &Cell) -> &'static str {
    if cell.lower_is_better {
        "lower"
    } else {
        "higher"
    }
}

/// The gain over the first scheduler, in per cent.
fn gain(cell: &Cell) -> Option<f64> {
    let gain = gain_pct(cell.effect?, !cell.lower_is_better);
    gain.is_finite().then_some(gain)
}

/// A scheduler's point of a metric.
fn point(cells: &[Cell], scheduler: &str) -> Option<Point> {
    let cell = cells.iter().find(|cell| cell.scheduler == scheduler)?;
    let ends = ends(cell.effect_low, cell.effect_high, !cell.lower_is_better);
    plots::point(scheduler, gain(cell), ends)
}

fn figures<'a>(report: &CompareReport, cell: &'a Cell) -> Figures<'a> {
    let values: Vec<String> = report
        .samples
        .iter()
        .filter(|sample| sample.metric == cell.metric && sample.scheduler == cell.scheduler)
        .map(|sample| short(sample.value))
        .collect();
    let doubt = if cell.distinguishable { "" } else { " ~" };
    Figures {
        scheduler: &cell.scheduler,
        n: cell.n,
        median: short(cell.median),
        spread: format!("{} to {}", short(cell.low), short(cell.high)),
        gain: match gain(cell) {
            _ if is_baseline(report, cell) => "baseline".into(),
            Some(gain) => format!("{} %{doubt}", signed(gain)),
            None => "not known".into(),
        },
        interval: interval(cell.effect_low, cell.effect_high, !cell.lower_is_better),
        values: values.join(", "),
    }
}

/// What went wrong under a scheduler.
fn failures(report: &SchedulerReport) -> Vec<String> {
    let name = &report.scheduler;
    let failed = report.exits.iter().filter(|exit| **exit != Some(0)).count();
    let mut out = Vec::new();
    if failed > 0 {
        out.push(format!(
            "{name}: {failed} of {} runs failed",
            report.exits.len()
        ));
    }
    out.extend(report.complaints());
    out
}

/// A scheduler's counts that are not empty.
fn counted(report: &SchedulerReport) -> Vec<Counted> {
    let stats = &report.stats;
    let kinds = [
        ("Why tasks were placed where they were", &stats.reasons),
        ("Migrations", &stats.migrations),
        ("Hints", &stats.hints),
    ];
    let table = |(title, counts): (&str, &Counts)| {
        let row = |(what, count, share): (&str, u64, f64)| Count {
            what: what.into(),
            count,
            share: format!("{share:.1} %"),
        };
        let rows: Vec<Count> = shares(counts).map(row).collect();
        (!rows.is_empty()).then(|| Counted {
            title: format!("{title}, under {}", report.scheduler),
            rows,
        })
    };
    kinds.into_iter().filter_map(table).collect()
}
