// SPDX-License-Identifier: GPL-2.0-only
//! Plain text tables: no borders that a copy into a mail would break, numbers to the right.

use comfy_table::{presets, CellAlignment, ContentArrangement, Table};

/// A table under construction.
pub struct Text {
    table: Table,
    columns: usize,
}

impl Text {
    /// With column headings. Columns whose heading starts with `>` are aligned to the right.
    pub fn new(headings: &[&str]) -> Text {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(headings.iter().map(|h| h.trim_start_matches('>')));
        for (i, heading) in headings.iter().enumerate() {
            if let Some(column) = table.column_mut(i) {
                column.set_padding((0, 2));
                if heading.starts_with('>') {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        Text {
            table,
            columns: headings.len(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<I, S>(&mut self, cells: I)
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns, String::new());
        self.table.add_row(cells);
    }
}

impl std::fmt::Display for Text {
    /// Without blanks at the ends of lines.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in self.table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number with about four significant digits, a whole one without a point: `0.1235`, `12.35`, `12`,
/// `12346`.
pub fn short(value: f64) -> String {
    let magnitude = value.abs();
    let digits = match magnitude {
        m if m.fract() == 0.0 || m >= 1000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// The value of a metric for people: times and rates of bytes with a unit, which the metric's name tells
/// (`latency_ns_p99`, `throughput_bytes_per_s`), all else as [`short`].
pub fn metric(name: &str, value: f64) -> String {
    const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
    const RATES: [(f64, &str); 4] = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")];
    let units = if name.ends_with("bytes_per_s") {
        RATES
    } else if name.split('_').any(|word| word == "ns") {
        TIMES
    } else {
        return short(value);
    };
    let fits = |&(scale, _): &(f64, &str)| value.abs() >= scale;
    match units.into_iter().find(fits) {
        Some((scale, unit)) => format!("{} {unit}", short(value / scale)),
        None => short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a metric has the unit that its name tells, in a size that people read; a count has none.
    #[test]
    fn units() {
        let table = [
            ("latency_ns_p99", 5_959_679.0, "5.960 ms"),
            ("elapsed_ns", 63_985_730_483.0, "63.99 s"),
            ("search_ns_mean", 85.34, "85.34 ns"),
            ("wake_latency_ns_p50", 2_349.0, "2.349 us"),
            ("wake_latency_ns_p50", 0.0, "0"),
            ("wake_latency_ns_mean", 0.25, "0.2500"),
            ("throughput_bytes_per_s", 57_118_569_222.0, "57.12 GB/s"),
            ("bytes_per_s", 12.0, "12 B/s"),
            ("operations_per_s", 1_009_739.0, "1009739"),
            ("tick_instances", 12.0, "12"),
        ];
        for (name, value, text) in table {
            assert_eq!(metric(name, value), text, "{name}");
        }
    }

    // Goal: columns line up, numbers end together, no line ends in a blank.
    #[test]
    fn layout() {
        let mut text = Text::new(&["policy", ">p99 us", "note"]);
        text.row(["eevdf", "1234", ""]);
        text.row(["usher", "7"]);
        let shown = text.to_string();
        assert_eq!(
            shown,
            "policy  p99 us  note\neevdf     1234\nusher        7\n"
        );
    }

    // Goal: four digits wherever the point is.
    #[test]
    fn digits() {
        assert_eq!(
            [0.0, 3.0, 0.12346, 1.23456, 12.3456, 123.456, 12345.6]
                .map(short)
                .join(" "),
            "0 3 0.1235 1.235 12.35 123.5 12346"
        );
    }
}
