// SPDX-License-Identifier: GPL-2.0-only
//! Plots of effects, as SVG to stand in an HTML page, whose style sheet colours them.
//!
//! An effect is in per cent, better upwards (or to the right). At each place there is one point per series at most,
//! with its interval. Series differ by shape as well as by class, so no reader depends on colours. Every place
//! is a link, and every point has a title that says its figures.
//!
//! | function | draws |
//! |---|---|
//! | [`over_numbers`] | effects over a parameter that is a number |
//! | [`in_rows`] | effects in rows, for what is not |
//! | [`legend_mark`] | a series' shape, for a legend |
//!
//! Classes: `plot`; `grid`, `zero`, `tick`, `name` of the axes; `series-0` and on, each with `interval`, `join` and
//! `mark`.

mod scale;

pub use scale::{Scale, LINEAR_TO, LINEAR_WHOLLY_TO};

use crate::svg::{px, Svg};

/// A point.
#[derive(Clone, Debug)]
pub struct Point {
    /// The effect in per cent.
    pub value: f64,
    /// The ends of its interval, if it has one.
    pub interval: Option<(f64, f64)>,
    /// What it says of itself.
    pub title: String,
}

/// What is drawn at one place.
#[derive(Clone, Debug)]
pub struct Place {
    /// The parameter's value as it was given; a row's whole label.
    pub label: String,
    /// The parameter as a number; plays no part in rows.
    pub at: f64,
    /// A point per series, in the series' order, or none.
    pub points: Vec<Option<Point>>,
    /// Where a click leads.
    pub link: String,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows, for those who cannot see it.
    pub title: String,
    /// The parameter's name.
    pub parameter: String,
    /// Its places.
    pub places: Vec<Place>,
    /// Values that the axis of effects has to have room for, besides those of the places: plots side by side with
    /// the same ones have the same axis.
    pub room_for: Vec<f64>,
}

impl Plot {
    /// All effects and ends of intervals.
    pub fn values(&self) -> Vec<f64> {
        let points = self
            .places
            .iter()
            .flat_map(|place| place.points.iter().flatten());
        points
            .flat_map(|point| {
                let ends = point.interval.map(|(low, high)| [low, high]);
                std::iter::once(point.value).chain(ends.into_iter().flatten())
            })
            .collect()
    }

    fn scale(&self, start: f64, end: f64) -> Scale {
        let values = self.values();
        Scale::effects(
            values.into_iter().chain(self.room_for.iter().copied()),
            start,
            end,
        )
    }
}

/// Width of a plot in units of its own, which a page shows as about as many pixels.
const WIDTH: f64 = 340.0;
/// Half the size of a mark.
const MARK: f64 = 4.0;
/// Between the series of one place, so that equal effects do not cover each other.
const APART: f64 = 7.0;
/// Width of a figure of a label.
const DIGIT: f64 = 6.5;

/// The middle of series `index` of `count`, beside the middle of their place.
fn beside(index: usize, count: usize) -> f64 {
    (index as f64 - (count.saturating_sub(1)) as f64 / 2.0) * APART
}

fn view_box(height: f64) -> String {
    format!("0 0 {} {}", px(WIDTH), px(height))
}

fn begin(plot: &Plot, height: f64) -> Svg {
    let mut svg = Svg::default();
    let size = view_box(height);
    // A group, not an image: what is in an image cannot be reached by those who read it aloud.
    let attributes = [
        ("class", "plot"),
        ("viewBox", size.as_str()),
        ("role", "group"),
    ];
    let label = [("aria-label", plot.title.as_str())];
    svg.open("svg", &[&attributes[..], &label[..]].concat());
    svg
}

/// A signed label of the axis of effects.
fn signed(value: f64) -> String {
    // Steps are whole multiples of round numbers, which binary fractions only come near to.
    match (value * 1e6).round() / 1e6 {
        0.0 => "0".into(),
        value => format!("{value:+}").replace('-', "\u{2212}"),
    }
}

/// A series' shape around a middle.
fn mark(svg: &mut Svg, series: usize, x: f64, y: f64) {
    let m = MARK;
    let points = |corners: &[(f64, f64)]| {
        let corner = |(dx, dy): &(f64, f64)| format!("{},{}", px(x + dx), px(y + dy));
        corners.iter().map(corner).collect::<Vec<_>>().join(" ")
    };
    let class = ("class", "mark");
    match series % 3 {
        0 => svg.empty(
            "circle",
            &[class, ("cx", &px(x)), ("cy", &px(y)), ("r", &px(m))],
        ),
        1 => {
            let corners = points(&[(-m, -m), (m, -m), (m, m), (-m, m)]);
            svg.empty("polygon", &[class, ("points", &corners)]);
        }
        _ => {
            let (m, n) = (m + 1.5, m + 1.0);
            let corners = points(&[(0.0, -m), (n, 0.0), (0.0, m), (-n, 0.0)]);
            svg.empty("polygon", &[class, ("points", &corners)]);
        }
    }
}

/// A series' shape alone, which a legend shows beside its name.
pub fn legend_mark(series: usize) -> String {
    let mut svg = Svg::default();
    let attributes = [
        ("class", "legend-mark"),
        ("viewBox", "0 0 28 14"),
        ("aria-hidden", "true"),
    ];
    svg.open("svg", &attributes);
    svg.open("g", &[("class", &format!("series-{series}"))]);
    svg.line("interval", (2.0, 7.0), (26.0, 7.0));
    mark(&mut svg, series, 14.0, 7.0);
    svg.close();
    svg.close();
    svg.finish()
}

/// Effects over a parameter that is a number: logarithmic where it spans a decade.
pub fn over_numbers(plot: &Plot) -> String {
    const HEIGHT: f64 = 216.0;
    const LEFT: f64 = 48.0;
    const TOP: f64 = 10.0;
    const BOTTOM: f64 = 176.0;
    let mut svg = begin(plot, HEIGHT);
    let effects = plot.scale(BOTTOM, TOP);
    axis_of_effects(&mut svg, &effects, LEFT);
    let numbers = plot.places.iter().map(|place| place.at);
    let side = LEFT + 16.0;
    let over = Scale::parameter(numbers, side, WIDTH - 18.0);
    axis_of_numbers(&mut svg, plot, &over, BOTTOM);

    let count = plot.places.iter().map(|place| place.points.len()).max();
    let count = count.unwrap_or(0);
    for series in 0..count {
        let points: Vec<String> = plot
            .places
            .iter()
            .filter_map(|place| {
                let point = place.points.get(series)?.as_ref()?;
                let x = over.place(place.at) + beside(series, count);
                Some(format!("{},{}", px(x), px(effects.place(point.value))))
            })
            .collect();
        if points.len() > 1 {
            svg.open("g", &[("class", &format!("series-{series}"))]);
            svg.empty(
                "polyline",
                &[("class", "join"), ("points", &points.join(" "))],
            );
            svg.close();
        }
    }
    for place in &plot.places {
        open_place(
            &mut svg,
            place,
            &format!("{}={}", plot.parameter, place.label),
        );
        for (series, point) in place.points.iter().enumerate() {
            let Some(point) = point else { continue };
            let x = over.place(place.at) + beside(series, count);
            let at = |value: f64| (x, effects.place(value));
            draw(&mut svg, series, point, at, (2.5, 0.0));
        }
        svg.close();
    }
    svg.close();
    svg.finish()
}

/// The grid and labels of effects that go upwards, from `left` to the plot's end.
fn axis_of_effects(svg: &mut Svg, effects: &Scale, left: f64) {
    for tick in effects.ticks(17.0) {
        let y = effects.place(tick);
        let class = if tick == 0.0 { "zero" } else { "grid" };
        svg.line(class, (left, y), (WIDTH, y));
        let attributes = [("x", &px(left - 5.0)), ("y", &px(y + 4.0))];
        let [x, y] = attributes.map(|(name, value)| (name, value.as_str()));
        svg.text("text", &[("class", "tick end"), x, y], &signed(tick));
    }
}

/// The labels of the parameter's values, as many as have room, and its name.
fn axis_of_numbers(svg: &mut Svg, plot: &Plot, over: &Scale, bottom: f64) {
    let mut free_from = 0.0;
    let mut places: Vec<&Place> = plot.places.iter().collect();
    places.sort_by(|a, b| a.at.total_cmp(&b.at));
    for place in places {
        let x = over.place(place.at);
        svg.line("grid", (x, bottom), (x, bottom + 4.0));
        let half = place.label.chars().count() as f64 * DIGIT / 2.0;
        if x - half < free_from {
            continue;
        }
        free_from = x + half + 4.0;
        let [x, y] = [px(x), px(bottom + 17.0)];
        svg.text(
            "text",
            &[("class", "tick middle"), ("x", &x), ("y", &y)],
            &place.label,
        );
    }
    let [x, y] = [px(WIDTH / 2.0 + 20.0), px(bottom + 34.0)];
    svg.text(
        "text",
        &[("class", "name middle"), ("x", &x), ("y", &y)],
        &plot.parameter,
    );
}

/// Effects in rows, one place below the other, better to the right.
pub fn in_rows(plot: &Plot) -> String {
    const LABEL: f64 = 17.0;
    const SERIES: f64 = 9.0;
    let count = plot.places.iter().map(|place| place.points.len()).max();
    let count = count.unwrap_or(0);
    let row = LABEL + SERIES * count as f64 + 5.0;
    let bottom = 4.0 + row * plot.places.len() as f64;
    let mut svg = begin(plot, bottom + 20.0);
    let effects = plot.scale(14.0, WIDTH - 14.0);
    for tick in effects.ticks(42.0) {
        let x = effects.place(tick);
        let class = if tick == 0.0 { "zero" } else { "grid" };
        svg.line(class, (x, 4.0), (x, bottom));
        let [x, y] = [px(x), px(bottom + 14.0)];
        svg.text(
            "text",
            &[("class", "tick middle"), ("x", &x), ("y", &y)],
            &signed(tick),
        );
    }
    for (i, place) in plot.places.iter().enumerate() {
        let top = 4.0 + row * i as f64;
        open_place(&mut svg, place, &place.label);
        let y = px(top + 12.0);
        svg.text(
            "text",
            &[("class", "label"), ("x", "4"), ("y", &y)],
            &short(&place.label),
        );
        for (series, point) in place.points.iter().enumerate() {
            let Some(point) = point else { continue };
            let y = top + LABEL + SERIES * (series as f64 + 0.5);
            let at = |value: f64| (effects.place(value), y);
            draw(&mut svg, series, point, at, (0.0, 2.5));
        }
        svg.close();
    }
    svg.close();
    svg.finish()
}

/// A label that fits into a row.
fn short(label: &str) -> String {
    const FITS: usize = 54;
    match label.chars().count() > FITS {
        false => label.into(),
        true => label.chars().take(FITS - 1).chain(['\u{2026}']).collect(),
    }
}

/// Opens the link around a place, named by all its points.
fn open_place(svg: &mut Svg, place: &Place, name: &str) {
    let points = place.points.iter().flatten();
    let titles: Vec<&str> = points.map(|point| point.title.as_str()).collect();
    let label = format!("{name}: {}", titles.join("; "));
    svg.open("a", &[("href", &place.link), ("aria-label", &label)]);
}

/// A point and its interval; `cap` is half an end of the interval, across it.
fn draw(
    svg: &mut Svg,
    series: usize,
    point: &Point,
    at: impl Fn(f64) -> (f64, f64),
    cap: (f64, f64),
) {
    svg.open("g", &[("class", &format!("series-{series}"))]);
    svg.text("title", &[], &point.title);
    if let Some((low, high)) = point.interval {
        svg.line("interval", at(low), at(high));
        for end in [at(low), at(high)] {
            let (from, to) = (
                (end.0 - cap.0, end.1 - cap.1),
                (end.0 + cap.0, end.1 + cap.1),
            );
            svg.line("interval", from, to);
        }
    }
    let (x, y) = at(point.value);
    mark(svg, series, x, y);
    svg.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(labels: &[&str]) -> Plot {
        let point = |value: f64, name: &str| {
            Some(Point {
                value,
                interval: Some((value - 1.0, value + 1.0)),
                title: format!("{name} {value}"),
            })
        };
        let place = |(i, label): (usize, &&str)| Place {
            label: label.to_string(),
            at: 4f64.powi(i as i32),
            points: vec![point(i as f64, "published"), None, point(-300.0, "usher")],
            link: format!("#row-{i}"),
        };
        Plot {
            title: "effects <of> \"this\"".into(),
            parameter: "groups".into(),
            places: labels.iter().enumerate().map(place).collect(),
            room_for: vec![900.0],
        }
    }

    // Goal: every place is there with its link and its points, a point that is missing is not, and all is escaped.
    // Method: three places with two of three series, in both forms.
    #[test]
    fn every_point_is_drawn() {
        let plot = plot(&["1", "4", "16 & more"]);
        for svg in [over_numbers(&plot), in_rows(&plot)] {
            let count = |what: &str| svg.matches(what).count();
            assert_eq!((count("<a href=\"#row-"), count("<title>")), (3, 6));
            assert_eq!(count("class=\"mark\""), 6);
            assert!(
                svg.contains("effects &lt;of&gt; &quot;this&quot;")
                    && svg.contains("16 &amp; more")
            );
            assert!(svg.contains("\u{2212}100") && svg.contains("+100"), "{svg}");
            assert_eq!(count("<svg"), count("</svg>"));
        }
    }

    // Goal: labels that have no room are left out, and no number is written over another.
    #[test]
    fn labels_have_room() {
        let many: Vec<String> = (0..60).map(|i| (1000 + i).to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let shown = over_numbers(&plot(&many)).matches("tick middle").count();
        assert!((5..15).contains(&shown), "{shown}");
        let long = "x".repeat(200);
        assert!(in_rows(&plot(&[&long])).contains(&format!("{}\u{2026}", "x".repeat(53))));
    }
}
