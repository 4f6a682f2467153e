// SPDX-License-Identifier: GPL-2.0-only
//! Writing data to stdout, and progress to stderr.

use std::io::{self, IsTerminal as _};

use comfy_table::{presets, CellAlignment, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar for so many runs on stderr, with the time left, guessed from their number; hidden where stderr is no terminal.
pub fn progress(total: u64) -> ProgressBar {
    bar(total, "{bar:30} {pos}/{len} runs, {eta} left")
}

/// The same for runs that take very different times: its message is the time left.
pub fn progress_told(total: u64) -> ProgressBar {
    bar(total, "{bar:30} {pos}/{len} runs{msg}")
}

fn bar(total: u64, template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.expect("a fixed template"))
}

/// A table without frames, to be filled with rows. Columns named in `right` are aligned right.
pub fn table(header: &[&str], right: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // Consoles that do not know their width say 0.
    table.set_content_arrangement(match table.width() {
        Some(1..) => ContentArrangement::Dynamic,
        _ => ContentArrangement::Disabled,
    });
    table.set_header(header.to_vec());
    for (column, name) in table.column_iter_mut().zip(header) {
        column.set_padding((0, 2));
        if right.contains(name) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Writes a section: a bold title (plain where colour is off) and a table.
pub fn section(out: &mut impl io::Write, title: &str, table: &Table) -> io::Result<()> {
    const BOLD: &str = "\x1b[1m";
    const PLAIN: &str = "\x1b[0m";
    writeln!(out, "\n{BOLD}{title}{PLAIN}")?;
    for line in table.to_string().lines() {
        writeln!(out, "  {}", line.trim_end())?;
    }
    Ok(())
}
