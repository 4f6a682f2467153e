// SPDX-License-Identifier: GPL-2.0-only
//! The JSON of rt-app files, as tolerant as rt-app's tools are: `//` and `/* */` comments, trailing and
//! missing commas, single quotes, and keys that repeat, kept in order. Every key and value remembers
//! where it stands.

use std::fmt;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{parse_to_ast, CollectOptions, ParseOptions};

use crate::error::SimError;

/// Where something stands in the file; lines and columns from 1. All places are equal: where something
/// stands does not matter to what it means.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Line.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

impl PartialEq for Place {
    fn eq(&self, _: &Place) -> bool {
        true
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Node {
    pub value: Value,
    pub at: Place,
}

#[derive(Debug)]
pub(super) enum Value {
    Whole(i64),
    /// A number that is not whole or does not fit 64 bits, as written.
    Odd(String),
    Flag(bool),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
    Null,
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: String,
    pub at: Place,
    pub node: Node,
}

/// Which file is being read: makes errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    pub name: &'a str,
}

impl Origin<'_> {
    /// A complaint about the thing at a place.
    pub fn error(self, at: Place, what: impl Into<String>) -> SimError {
        SimError::Input {
            origin: format!("{}:{at}", self.name),
            what: what.into(),
        }
    }

    /// A complaint about a key's value.
    pub fn bad(self, entry: &Entry, must: &str) -> SimError {
        let what = format!(
            "`{}` is {}, but must be {must}",
            entry.key, entry.node.value
        );
        self.error(entry.node.at, what)
    }
}

impl fmt::Display for Value {
    /// As an error message shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Whole(n) => write!(f, "{n}"),
            Value::Odd(text) => f.write_str(text),
            Value::Flag(on) => write!(f, "{on}"),
            Value::Text(text) => write!(f, "\"{text}\""),
            Value::List(_) => f.write_str("a list"),
            Value::Table(_) => f.write_str("an object"),
            Value::Null => f.write_str("null"),
        }
    }
}

impl Entry {
    /// A whole number within bounds.
    pub fn whole(
        &self,
        origin: Origin<'_>,
        low: i64,
        high: i64,
        must: &str,
    ) -> Result<i64, SimError> {
        match self.node.value {
            Value::Whole(n) if (low..=high).contains(&n) => Ok(n),
            _ => Err(origin.bad(self, must)),
        }
    }

    pub fn text(&self, origin: Origin<'_>, must: &str) -> Result<&str, SimError> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(origin.bad(self, must)),
        }
    }

    pub fn flag(&self, origin: Origin<'_>) -> Result<bool, SimError> {
        match self.node.value {
            Value::Flag(on) => Ok(on),
            _ => Err(origin.bad(self, "true or false")),
        }
    }

    pub fn table(&self, origin: Origin<'_>, must: &str) -> Result<&[Entry], SimError> {
        match &self.node.value {
            Value::Table(entries) => Ok(entries),
            _ => Err(origin.bad(self, must)),
        }
    }

    /// A list of whole numbers from 0 to `high`.
    pub fn wholes(&self, origin: Origin<'_>, high: i64, must: &str) -> Result<Vec<u32>, SimError> {
        let Value::List(nodes) = &self.node.value else {
            return Err(origin.bad(self, must));
        };
        let whole = |node: &Node| match node.value {
            Value::Whole(n) if (0..=high).contains(&n) => Ok(n as u32),
            _ => {
                let what = format!("`{}` holds {}, but must be {must}", self.key, node.value);
                Err(origin.error(node.at, what))
            }
        };
        nodes.iter().map(whole).collect()
    }
}

/// Reads a file's text; its outermost value must be an object.
pub(super) fn parse(origin: Origin<'_>, text: &str) -> Result<Vec<Entry>, SimError> {
    let options = ParseOptions {
        allow_loose_object_property_names: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
        ..ParseOptions::default()
    };
    let lines = Lines::new(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|e| {
        let at = lines.place(e.range().start);
        origin.error(
            at,
            format!(
                "not JSON: {}; correct it here or just before",
                lower(e.kind())
            ),
        )
    })?;
    match parsed.value {
        Some(ast::Value::Object(object)) => Ok(table(&lines, object)),
        _ => Err(origin.error(
            Place { line: 1, column: 1 },
            "holds no object; an rt-app file is { \"tasks\": { ... }, \"global\": { ... } }",
        )),
    }
}

fn lower(kind: &impl fmt::Display) -> String {
    let text = kind.to_string();
    let mut chars = text.chars();
    chars
        .next()
        .map(|c| c.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}

fn table(lines: &Lines<'_>, object: ast::Object<'_>) -> Vec<Entry> {
    let entry = |prop: ast::ObjectProp<'_>| Entry {
        at: lines.place(prop.start()),
        key: prop.name.into_string(),
        node: node(lines, prop.value),
    };
    object.properties.into_iter().map(entry).collect()
}

fn node(lines: &Lines<'_>, value: ast::Value<'_>) -> Node {
    let at = lines.place(value.start());
    let value = match value {
        ast::Value::StringLit(text) => Value::Text(text.value.into_owned()),
        ast::Value::NumberLit(number) => match number.value.parse() {
            Ok(whole) => Value::Whole(whole),
            Err(_) => Value::Odd(number.value.into()),
        },
        ast::Value::BooleanLit(flag) => Value::Flag(flag.value),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(list) => {
            Value::List(list.elements.into_iter().map(|v| node(lines, v)).collect())
        }
        ast::Value::Object(object) => Value::Table(table(lines, object)),
    };
    Node { value, at }
}

/// Turns byte offsets into places.
struct Lines<'a> {
    text: &'a str,
    /// Offsets at which lines begin.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Lines<'a> {
        let breaks = text
            .bytes()
            .enumerate()
            .filter(|(_, b)| *b == b'\n')
            .map(|(i, _)| i + 1);
        Lines {
            text,
            starts: std::iter::once(0).chain(breaks).collect(),
        }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset) - 1;
        let before = self.text.get(self.starts[line]..offset).unwrap_or_default();
        let narrow = |n: usize| u32::try_from(n + 1).unwrap_or(u32::MAX);
        Place {
            line: narrow(line),
            column: narrow(before.chars().count()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin<'static> = Origin { name: "x.json" };

    // Goal: what rt-app's users write is read, in order, with places.
    // Method: a text with everything at once.
    #[test]
    fn tolerant_and_ordered() {
        let text = "// a\n{ /* b */ \"run\": 1, 'run' : 2\n\t\"é\": [1, -2,], \"run\": {\"x\": null,},\n}\n";
        let entries = parse(ORIGIN, text).unwrap();
        let keys: Vec<&str> = entries.iter().map(|e| e.key.as_str()).collect();
        assert_eq!(keys, ["run", "run", "é", "run"]);
        let places: Vec<String> = entries.iter().map(|e| e.at.to_string()).collect();
        assert_eq!(places, ["2:11", "2:21", "3:2", "3:17"]);
        assert_eq!(entries[3].node.at.to_string(), "3:24");
    }

    // Goal: a text that is not JSON is refused with its place and no panic.
    // Method: broken texts, and the places they break at.
    #[test]
    fn broken_texts_are_located() {
        for (text, place) in [
            ("{\n  \"a\": }", "2:8"),
            ("{ \"a\" 1 }", "1:7"),
            ("{ \"a\": 0x1 }", "1:8"),
            ("{ \"a\": 1", "1:1"),
            ("", "1:1"),
            ("[1]", "1:1"),
            ("{\"a\": \"b", "1:7"),
            ("\u{feff}", "1:1"),
        ] {
            let error = parse(ORIGIN, text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("x.json:{place}: ")),
                "{text:?}: {error}"
            );
        }
    }
}
