// SPDX-License-Identifier: GPL-2.0-only
//! Where in an experiment file something stands, so that errors name its line.

use std::fmt::Display;

use toml::de::{DeTable, DeValue};

use crate::error::ReproduceError;

/// A key of a file, as a path such as `variants.cfs-6.0.policy`, and what is wrong with its value.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub at: String,
    pub what: String,
}

impl Wrong {
    pub fn new(at: impl Into<String>, what: impl Display) -> Wrong {
        Wrong {
            at: at.into(),
            what: what.to_string(),
        }
    }
}

/// A file's name and text.
#[derive(Clone, Debug, Default)]
pub struct File {
    origin: String,
    text: String,
}

impl File {
    pub(crate) fn new(origin: &str, text: &str) -> File {
        File {
            origin: origin.into(),
            text: text.into(),
        }
    }

    /// The error for something wrong at a key, with the line of the deepest key on its path that the file has.
    pub(crate) fn wrong(&self, wrong: Wrong) -> ReproduceError {
        let Wrong { at, what } = wrong;
        self.error(self.offset(&at), format!("{at}: {what}"))
    }

    /// The error for something wrong at an offset of the text.
    pub(crate) fn error(&self, offset: Option<usize>, what: String) -> ReproduceError {
        let line = offset.map(|offset| 1 + self.text[..offset].matches('\n').count());
        let origin = match line {
            Some(line) => format!("{}:{line}", self.origin),
            None => self.origin.clone(),
        };
        ReproduceError::Experiment { origin, what }
    }

    fn offset(&self, path: &str) -> Option<usize> {
        let root = DeTable::parse(&self.text).ok()?;
        let (mut table, mut rest, mut found) = (root.get_ref(), path, None);
        loop {
            // Names may hold dots, and one may begin with another.
            let starts = |name: &str| {
                rest.strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let next = table
                .iter()
                .filter(|(key, _)| starts(key.get_ref()))
                .max_by_key(|(key, _)| key.get_ref().len());
            let Some((key, value)) = next else {
                return found;
            };
            found = Some(key.span().start);
            rest = rest[key.get_ref().len()..].trim_start_matches('.');
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                _ => return found,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: an error names the line of the key that it is about, or of the table where the key is missing; names with dots are one key.
    // Method: a file with tables written in all three ways, and the line of each path.
    #[test]
    fn keys_have_lines() {
        let file = File::new(
            "t.toml",
            "a = 1\n[b]\nc = { d = 1 }\n[b.\"e-1\"]\nf = 1\n[b.\"e-1.0\"]\nf = 1\nb.g = 2\n",
        );
        for (path, line) in [
            ("a", "t.toml:1"),
            ("b", "t.toml:2"),
            ("b.c.d", "t.toml:3"),
            ("b.c.none", "t.toml:3"),
            ("b.e-1.f", "t.toml:5"),
            ("b.e-1.0.f", "t.toml:7"),
            ("b.e-1.0.b.g", "t.toml:8"),
            ("none", "t.toml"),
        ] {
            let error = file.wrong(Wrong::new(path, "is wrong")).to_string();
            assert_eq!(error, format!("{line}: {path}: is wrong"));
        }
    }
}
