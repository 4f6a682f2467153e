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

/// A number with about four significant digits: `0.1235`, `12.35`, `1235`, `12346`.
pub fn short(value: f64) -> String {
    let magnitude = value.abs();
    let digits = match magnitude {
        m if m == 0.0 || m >= 1000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
            [0.0, 0.12346, 1.23456, 12.3456, 123.456, 12345.6]
                .map(short)
                .join(" "),
            "0 0.1235 1.235 12.35 123.5 12346"
        );
    }
}
