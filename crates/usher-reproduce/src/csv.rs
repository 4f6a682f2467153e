// SPDX-License-Identifier: GPL-2.0-only
//! Comma-separated values: fields in double quotes may hold commas and doubled quotes; one record a line.

use crate::error::{ReproduceError, Result};

/// A line of the file that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number, from 1.
    pub line: usize,
    /// Its fields, without the quotes and the blanks around them.
    pub fields: Vec<String>,
}

/// Splits a text into records.
///
/// # Errors
/// A quote that the line does not close, or text behind a closing quote.
pub fn records(origin: &str, text: &str) -> Result<Vec<Record>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let fields = fields(line).map_err(|what| ReproduceError::Table {
                origin: origin.into(),
                line: i + 1,
                what,
            })?;
            Ok(Record {
                line: i + 1,
                fields,
            })
        })
        .collect()
}

fn fields(line: &str) -> std::result::Result<Vec<String>, String> {
    let mut out = Vec::new();
    let mut rest = line.trim();
    loop {
        let (field, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].trim().to_string(), &rest[end..])
            }
        };
        out.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(out),
        }
    }
}

/// A field up to its closing quote, and what follows it: nothing or a comma.
fn quoted_field(text: &str) -> std::result::Result<(String, &str), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let Some(end) = rest.find('"') else {
            return Err(format!(
                "a double quote is not closed on its line: \"{text}; close it, or double a quote that is part of the text"
            ));
        };
        field += &rest[..end];
        rest = &rest[end + 1..];
        if let Some(more) = rest.strip_prefix('"') {
            field.push('"');
            rest = more;
            continue;
        }
        let after = rest.trim_start();
        if after.is_empty() || after.starts_with(',') {
            return Ok((field, after));
        }
        return Err(format!(
            "`{after}` follows a closing quote; put a comma between fields"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: fields arrive as written, quoted or not, with the number of their line.
    // Method: commas and quotes inside quotes, an empty last field, a blank line, a carriage return.
    #[test]
    fn fields_survive() {
        let text = "a,b,c\r\n\n1,\"x, \"\"y\"\"\", z\n,,\n";
        let records = records("t.csv", text).unwrap();
        let expected: [(usize, &[&str]); 3] = [
            (1, &["a", "b", "c"]),
            (3, &["1", "x, \"y\"", "z"]),
            (4, &["", "", ""]),
        ];
        assert_eq!(records.len(), expected.len());
        for (record, (line, fields)) in records.iter().zip(expected) {
            assert_eq!(
                (record.line, &record.fields[..]),
                (
                    line,
                    &fields.iter().map(|f| f.to_string()).collect::<Vec<_>>()[..]
                )
            );
        }
    }

    // Goal: broken quoting is an error that names file and line.
    #[test]
    fn broken_quotes_are_named() {
        for (text, what) in [
            ("a,\"b\n", "not closed"),
            ("x\n\"a\"b,c\n", "follows a closing quote"),
        ] {
            let error = records("t.csv", text).unwrap_err().to_string();
            let line = text.lines().count();
            assert!(
                error.starts_with(&format!("t.csv:{line}: ")) && error.contains(what),
                "{error}"
            );
        }
    }
}
