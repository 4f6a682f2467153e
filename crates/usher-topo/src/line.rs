// SPDX-License-Identifier: GPL-2.0-only
//! Where in a file something stands, so that errors name its line.

use toml::de::{DeTable, DeValue};

/// The line, from 1, of the deepest key on a path such as `variants.cfs-6.0.policy` that the file has. Names may hold dots. `None`: not even
/// the first, or no TOML.
pub fn of_key(text: &str, path: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let (mut table, mut rest, mut found) = (root.get_ref(), path, None);
    loop {
        // Of names that begin alike, the longest.
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
        found = Some(at(text, key.span().start));
        rest = rest[key.get_ref().len()..].trim_start_matches('.');
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return found,
        }
    }
}

/// The line, from 1, of an offset.
pub fn at(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the line of a key, or of the table in which it is missing; names with dots are one key.
    // Method: a file with tables written in all three ways, and the line of each path.
    #[test]
    fn keys_have_lines() {
        let text = "a = 1\n[b]\nc = { d = 1 }\n[b.\"e-1\"]\nf = 1\n[b.\"e-1.0\"]\nf = 1\nb.g = 2\n";
        for (path, expected) in [
            ("a", Some(1)),
            ("b", Some(2)),
            ("b.c.d", Some(3)),
            ("b.c.none", Some(3)),
            ("b.e-1.f", Some(5)),
            ("b.e-1.0.f", Some(7)),
            ("b.e-1.0.b.g", Some(8)),
            ("none", None),
        ] {
            assert_eq!(of_key(text, path), expected, "{path}");
        }
        assert_eq!(of_key("a = ", "a"), None);
    }
}
