// SPDX-License-Identifier: GPL-2.0-only
//! The machines of `data/machines`, carried in the binary so that an installed usher needs no files.

use std::path::Path;

use super::MachineFile;
use crate::error::TopoError;
use crate::shape;

macro_rules! machines {
    ($($name:literal,)*) => {
        /// In order of name.
        const BUILTIN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../data/machines/", $name, ".toml"))),)*
        ];
    };
}

machines! {
    "2a15",
    "2n2l2c2t",
    "4b4l",
    "4n4l2c1t",
    "dgx-1-80",
    "dgx-b200-224",
    "epyc-2s-384",
    "hcc-2s-480",
    "hybrid-8p16e",
    "icx-2s",
    "tc2-2a15-3a7",
    "xeon-4s24c2t-192",
    "zen3-2s",
}

/// The names of the built-in machines, in order.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// The text of a built-in machine's file.
pub fn builtin_text(name: &str) -> Option<&'static str> {
    BUILTIN
        .iter()
        .find(|(builtin, _)| *builtin == name)
        .map(|(_, text)| *text)
}

/// Loads a built-in machine by name or, if `name` contains a `/` or ends in `.toml`, a machine file by
/// path.
///
/// # Errors
/// [`TopoError::UnknownMachine`] with the nearest names; what is wrong with the file.
pub fn load(name: &str) -> Result<MachineFile, TopoError> {
    if let Some(text) = builtin_text(name) {
        return MachineFile::parse(&format!("data/machines/{name}.toml"), text);
    }
    if is_path(name) {
        let text = std::fs::read_to_string(name).map_err(|source| TopoError::Io {
            path: Path::new(name).into(),
            source,
        })?;
        let mut file = MachineFile::parse(name, &text)?;
        if let Some(costs) = &mut file.costs {
            if is_path(costs) {
                *costs = beside(name, costs);
            }
        }
        return Ok(file);
    }
    Err(TopoError::UnknownMachine {
        name: name.into(),
        hint: hint(name),
    })
}

/// Whether this is the path of a file, not the name of something built in.
pub fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

/// A path that is relative to a file, as seen from where the program runs.
pub fn beside(file: &str, path: &str) -> String {
    let beside = Path::new(file).with_file_name(path);
    beside.to_string_lossy().into_owned()
}

/// What the user may have meant.
fn hint(name: &str) -> String {
    const SHOWN: usize = 3;
    let name = name.to_lowercase();
    let mut near: Vec<(usize, &str)> = builtin_names()
        .map(|builtin| (edit_distance(&name, builtin), builtin))
        // Half of the letters wrong is no typing mistake; a part of a name is a good guess too.
        .filter(|(distance, builtin)| {
            *distance * 2 <= builtin.len() || (name.len() >= 3 && builtin.contains(&name))
        })
        .collect();
    near.sort_unstable();
    near.truncate(SHOWN);
    let all: Vec<&str> = builtin_names().collect();
    let all = format!(
        "built in are {}; a path needs a `/` or the ending .toml",
        all.join(", ")
    );
    let shape = shape::parse(&name)
        .is_ok()
        .then(|| format!("--shape {name}"));
    let near = near.iter().map(|(_, builtin)| builtin.to_string());
    let near: Vec<String> = shape
        .into_iter()
        .chain(near)
        .map(|near| format!("`{near}`"))
        .collect();
    if near.is_empty() {
        return all;
    }
    format!("did you mean {}? {all}", near.join(" or "))
}

/// How many letters must be inserted, removed or replaced to get from one word to the other
/// (Levenshtein), row by row of the usual table.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a mistyped name leads to the right one. Method: known distances, then hints for typical
    // slips and for a word that resembles nothing.
    #[test]
    fn hints_name_the_nearest_machine() {
        for (from, to, distance) in [
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("kitten", "sitting", 3),
            ("zen3", "zen4", 1),
        ] {
            assert_eq!(edit_distance(from, to), distance, "{from} -> {to}");
            assert_eq!(edit_distance(to, from), distance, "{to} -> {from}");
        }
        for (typed, meant) in [
            ("zen3-2", "`zen3-2s`"),
            ("dgx-b200", "`dgx-b200-224`"),
            ("ZEN3-2S", "`zen3-2s`"),
            ("tc2", "`tc2-2a15-3a7`"),
            ("tc2", "`--shape tc2`"),
            ("1n2l4c1t", "did you mean `--shape 1n2l4c1t`"),
        ] {
            let hint = hint(typed);
            assert!(
                hint.starts_with("did you mean") && hint.contains(meant),
                "{typed}: {hint}"
            );
        }
        assert!(hint("qqqqqqqqqqqqqq").starts_with("built in are 2a15, "));
    }
}
