// SPDX-License-Identifier: GPL-2.0-only
//! Which rows go into which plot.
//!
//! Rows that differ in nothing but one parameter, which is a number, become a plot over it, one for each variant.
//! All others of a benchmark on a machine become rows of one plot.

use std::collections::BTreeSet;

use minijinja::Value;
use serde::Serialize;
use usher_report::plot::{self, Place, Plot, Point};

use super::{row_id, SERIES};
use crate::outcome::Detail;
use crate::show::{ends, signed};

/// A plot as the template sees it.
#[derive(Serialize)]
pub(super) struct Drawn {
    /// Benchmark and metric.
    title: String,
    /// Variant, if it is all of one, and machine.
    below: String,
    svg: Value,
}

/// The plots of a table's rows, in their order.
pub(super) fn draw(table: &str, rows: &[Detail]) -> Vec<Drawn> {
    let mut out = Vec::new();
    for group in groups(rows, |row| (&row.machine, &row.benchmark, &row.metric)) {
        let room_for: Vec<f64> = group
            .iter()
            .flat_map(|row| points(row).into_iter().flatten())
            .flat_map(|point| {
                let (low, high) = point.interval.unwrap_or((point.value, point.value));
                [low, point.value, high]
            })
            .collect();
        let mut rest: Vec<&Detail> = Vec::new();
        for of_variant in groups(group.iter().copied(), |row| (&row.variant, keys(row))) {
            match numbers(&of_variant) {
                Some((parameter, at)) => {
                    let labelled = of_variant.iter().zip(at);
                    let places = labelled.map(|(row, (label, at))| place(table, row, label, at));
                    out.push(drawn(
                        &of_variant,
                        Some(parameter),
                        places.collect(),
                        &room_for,
                    ));
                }
                None => rest.extend(of_variant),
            }
        }
        if !rest.is_empty() {
            // In the table's order again, so that variants of one parameter stand together.
            rest.sort_by_key(|row| row.line);
            let places = rest.iter().map(|row| {
                let label = format!("{}, {}", row.parameter, row.variant);
                place(table, row, label, 0.0)
            });
            out.push(drawn(&rest, None, places.collect(), &[]));
        }
    }
    out
}

/// Rows that are alike in something, each group where its first row is.
fn groups<'a, K: PartialEq>(
    rows: impl IntoIterator<Item = &'a Detail>,
    key: impl Fn(&'a Detail) -> K,
) -> Vec<Vec<&'a Detail>> {
    let mut out: Vec<(K, Vec<&Detail>)> = Vec::new();
    for row in rows {
        let own = key(row);
        match out.iter_mut().find(|(key, _)| *key == own) {
            Some((_, group)) => group.push(row),
            None => out.push((own, vec![row])),
        }
    }
    out.into_iter().map(|(_, group)| group).collect()
}

/// A row's parameters, one by one.
fn pairs(row: &Detail) -> Vec<(&str, &str)> {
    let pairs = row.parameter.split([' ', ';']);
    pairs.filter_map(|pair| pair.split_once('=')).collect()
}

/// The names of a row's parameters.
fn keys(row: &Detail) -> Vec<&str> {
    pairs(row).into_iter().map(|(key, _)| key).collect()
}

/// A parameter's value as text and as a number.
type Labelled = (String, f64);

/// The one parameter in which rows with the same ones differ, and its value in each as text and as a number; `None`
/// if there is no such parameter or its values are no numbers.
fn numbers(rows: &[&Detail]) -> Option<(String, Vec<Labelled>)> {
    let all: Vec<Vec<(&str, &str)>> = rows.iter().map(|row| pairs(row)).collect();
    let first = all.first()?;
    let differs = |i: &usize| all.iter().any(|pairs| pairs[*i].1 != first[*i].1);
    let varying: Vec<usize> = (0..first.len()).filter(differs).collect();
    let &[which] = varying.as_slice() else {
        return None;
    };
    let mut at = Vec::new();
    for pairs in &all {
        let text = pairs[which].1;
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite())?;
        at.push((text.to_string(), number));
    }
    let distinct: BTreeSet<u64> = at.iter().map(|(_, at)| at.to_bits()).collect();
    (distinct.len() == at.len()).then(|| (first[which].0.to_string(), at))
}

fn drawn(
    rows: &[&Detail],
    parameter: Option<String>,
    mut places: Vec<Place>,
    room_for: &[f64],
) -> Drawn {
    let row = rows[0];
    let title = format!("{} {}", row.benchmark, row.metric);
    let below = match &parameter {
        Some(_) => format!("{}, on {}", row.variant, row.machine),
        None => format!("on {}", row.machine),
    };
    places.sort_by(|a, b| a.at.total_cmp(&b.at));
    let over_numbers = parameter.is_some();
    let plot = Plot {
        title: format!("{title}, {below}: effects in per cent, better upwards"),
        parameter: parameter.unwrap_or_default(),
        places,
        room_for: room_for.into(),
    };
    let svg = match over_numbers {
        true => plot::over_numbers(&plot),
        false => plot::in_rows(&plot),
    };
    Drawn {
        title,
        below,
        svg: Value::from_safe_string(svg),
    }
}

fn place(table: &str, row: &Detail, label: String, at: f64) -> Place {
    Place {
        label,
        at,
        points: points(row),
        link: format!("#{}", row_id(table, row)),
    }
}

/// A series' point, if its gain is known; the ends of its interval are drawn and said where they are apart.
pub(super) fn point(
    series: &str,
    value: Option<f64>,
    interval: Option<(f64, f64)>,
) -> Option<Point> {
    let value = value.filter(|value| value.is_finite())?;
    let interval = interval.filter(|(low, high)| low.is_finite() && high.is_finite() && low < high);
    let ends = interval.map(|(low, high)| format!(" ({} to {})", signed(low), signed(high)));
    Some(Point {
        value,
        interval,
        title: format!("{series} {} %{}", signed(value), ends.unwrap_or_default()),
    })
}

/// The three points of a row.
fn points(row: &Detail) -> Vec<Option<Point>> {
    let higher = row.higher_is_better;
    let point = |series: usize, value: Option<f64>, low, high| {
        point(SERIES[series], value, ends(low, high, higher))
    };
    let gains = &row.gain_pct;
    vec![
        point(
            0,
            Some(gains.published),
            row.published_low,
            row.published_high,
        ),
        point(1, gains.simulated, row.simulated_low, row.simulated_high),
        point(2, gains.usher, row.usher_low, row.usher_high),
    ]
}
