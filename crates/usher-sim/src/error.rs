// SPDX-License-Identifier: GPL-2.0-only
//! What can go wrong. Every message is one line (a deadlock: one line per task) that says what, where and
//! what to do.

use crate::ids::{Cpu, Nanos, TaskId};

/// Why a simulation could not be set up or did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A name that does not exist.
    #[error("unknown {kind} `{name}`{}", suggestion(nearest))]
    Unknown {
        /// What kind of thing: `policy`, `workload`, `parameter of ...`.
        kind: String,
        /// The name given.
        name: String,
        /// Valid names, nearest first.
        nearest: Vec<String>,
    },
    /// A parameter with a bad value.
    #[error("parameter `{key}` {what}")]
    Parameter {
        /// The key.
        key: String,
        /// What is wrong and what would be right.
        what: String,
    },
    /// A file or built-in table that cannot be used.
    #[error("{origin}: {what}")]
    Input {
        /// File name, with the line where it is known.
        origin: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// The workload asks for something that makes no sense.
    #[error("{at} ns: task {task} `{name}`: {what}")]
    Workload {
        /// When.
        at: Nanos,
        /// Who.
        task: TaskId,
        /// The task's name.
        name: String,
        /// What it did.
        what: String,
    },
    /// All tasks wait for each other.
    #[error("deadlock at {at} ns: no task can ever run again\n{}", lines(waiting))]
    Deadlock {
        /// When the last event was.
        at: Nanos,
        /// One line per task: its name and what it waits for. Long lists are cut, and say so.
        waiting: Vec<String>,
    },
    /// A policy broke one of the rules in [`crate::policy`], or the engine one of its own.
    #[error("{at} ns: cpu {cpu}: {what}")]
    Violation {
        /// When.
        at: Nanos,
        /// Where.
        cpu: Cpu,
        /// Which rule, and by whom.
        what: String,
    },
}

fn suggestion(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        [one] => format!("; did you mean `{one}`?"),
        many if many.len() <= MANY => format!("; nearest: {}", many.join(", ")),
        // None was near, so these are all.
        all => format!("; known: {}", all.join(", ")),
    }
}

/// How many near names are suggested.
const MANY: usize = 3;

fn lines(items: &[String]) -> String {
    items
        .iter()
        .map(|item| format!("  {item}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The valid names nearest to a mistyped one by edit distance; all of them, in order, if none is near.
pub fn nearest(name: &str, valid: &[&str]) -> Vec<String> {
    let lower = name.to_lowercase();
    let far = valid.iter().map(|v| distance(&lower, &v.to_lowercase()));
    let mut ranked: Vec<(usize, &str)> = far.zip(valid.iter().copied()).collect();
    ranked.sort();
    let near = name.chars().count().div_ceil(3).max(1);
    let mut out: Vec<String> = ranked
        .iter()
        .filter(|(d, _)| *d <= near)
        .take(MANY)
        .map(|(_, v)| v.to_string())
        .collect();
    if out.is_empty() {
        out = ranked.iter().map(|(_, v)| v.to_string()).collect();
        out.sort();
    }
    out
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the suggestion is the name the user meant.
    // Method: usual mistakes.
    #[test]
    fn suggestions_are_near() {
        let valid = [
            "usher",
            "eevdf",
            "cfs-6.0",
            "cfs-5.9",
            "cfs-3.9",
            "scx-simple",
            "rt",
        ];
        assert_eq!(nearest("ushr", &valid), ["usher"]);
        assert_eq!(nearest("scxsimple", &valid), ["scx-simple"]);
        assert_eq!(nearest("cfs-6", &valid)[0], "cfs-6.0");
        assert_eq!(nearest("bogus-name", &valid).len(), valid.len());
    }
}
