// SPDX-License-Identifier: GPL-2.0-only
//! Rules: placement hints for programs that one cannot change (`--rules FILE`).
//!
//! ```toml
//! [[rule]]
//! comm = "postgres*"                            # the name in /proc/PID/comm, or its beginning and a *
//! cgroup = "/system.slice/postgresql.service"   # this control group and all below it
//! user = "postgres"                             # name or number: who the task acts as
//! fork = "spread"                               # affine, spread or none
//! wake = "hold"                                 # affine, hold or none
//! ```
//!
//! A rule names whom it is about by one, two or all three; then all must match. Of several rules the first that
//! matches counts. What a task asked for itself, or inherited from one that did, no rule changes.
//! `bpf/rule.bpf.h` says when the kernel looks at them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;
use toml::{Spanned, Value};
use usher_core::Hints;
use usher_topo::line;

/// As many as the table in `bpf/rule.bpf.h` has room for.
pub const MAX_RULES: usize = 64;
/// Bytes of a control group's path, the zero at its end included; as in `bpf/rule.bpf.h`.
pub const MAX_PATH: usize = 256;
/// Bytes of a task's name that the kernel keeps.
const COMM: usize = 15;

/// Rules as the scheduler serves them, in the file's order.
#[derive(Debug, Default)]
pub struct Rules {
    /// The file, for messages.
    pub origin: String,
    /// One or more, unless no file was given.
    pub list: Vec<Rule>,
}

/// Whom a rule is about, and what it wishes for them.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where in the file it begins.
    pub line: usize,
    /// The task's name.
    pub comm: Option<Comm>,
    /// The control group: a path below the hierarchy's root, `/` for the root itself.
    pub cgroup: Option<String>,
    /// The effective user.
    pub user: Option<u32>,
    /// What it wishes; may be [`Hints::NONE`], which keeps later rules from these tasks.
    pub hints: Hints,
}

/// A task's name or its beginning, as two words of the kernel's 16 bytes to compare under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm {
    /// The bytes, 0 where the mask is.
    pub value: [u64; 2],
    /// Which bytes count.
    pub mask: [u64; 2],
}

/// Why a file of rules was refused.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// It cannot be read.
    #[error("{path}: cannot read the rules: {source}: give the path of a readable file")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error("{origin}:{line}: {what}, found `{value}`: {remedy}")]
    Wrong {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
        /// What stands there.
        value: String,
        /// What to do about it.
        remedy: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    comm: Option<Spanned<String>>,
    cgroup: Option<Spanned<String>>,
    user: Option<Spanned<Value>>,
    fork: Option<Spanned<Value>>,
    wake: Option<Spanned<Value>>,
}

/// Finds a user's number by name.
type FindUser<'a> = &'a dyn Fn(&str) -> Option<u32>;

impl Rules {
    /// Reads a file. Control groups are looked up later; those of services come and go.
    ///
    /// # Errors
    /// Unreadable, not TOML, unknown keys or values, contradictions: with file, line, value and remedy.
    pub fn read(path: &Path) -> Result<Self, RulesError> {
        let text = fs::read_to_string(path).map_err(|source| RulesError::Unreadable {
            path: path.into(),
            source,
        })?;
        Self::parse(&path.to_string_lossy(), &text, &user_by_name)
    }

    fn parse(origin: &str, text: &str, find_user: FindUser) -> Result<Self, RulesError> {
        let file = File { origin, text };
        let raw: RawFile = toml::from_str(text).map_err(|error| {
            let keys = "rules are tables [[rule]] with comm, cgroup or user, and fork or wake";
            let span = error.span().unwrap_or(0..0);
            file.wrong(&span, first_line(error.message()), keys)
        })?;
        let end = text.len();
        if raw.rule.is_empty() {
            let remedy = "write one, beginning with [[rule]], or leave the option out";
            return Err(file.wrong(&(0..0), "no rules", remedy));
        }
        if let Some(more) = raw.rule.get(MAX_RULES) {
            let span = more.span();
            let what = format!("more than {MAX_RULES} rules");
            return Err(file.wrong(
                &(span.start..end),
                what,
                "join some by a common cgroup or *",
            ));
        }
        let rules = raw.rule.iter().map(|raw| file.rule(raw, find_user));
        Ok(Self {
            origin: origin.into(),
            list: rules.collect::<Result<_, _>>()?,
        })
    }
}

/// A file while it is read.
struct File<'a> {
    origin: &'a str,
    text: &'a str,
}

impl File<'_> {
    fn wrong(&self, at: &Range<usize>, what: impl Into<String>, remedy: &str) -> RulesError {
        let line = line::at(self.text, at.start);
        let there = self.text.get(at.clone()).unwrap_or_default();
        let value = match there.lines().next().unwrap_or_default().trim() {
            "" => self.text.lines().nth(line - 1).unwrap_or_default().trim(),
            value => value,
        };
        RulesError::Wrong {
            origin: self.origin.into(),
            line,
            what: what.into(),
            value: value.into(),
            remedy: remedy.into(),
        }
    }

    fn rule(&self, raw: &Spanned<RawRule>, find_user: FindUser) -> Result<Rule, RulesError> {
        let (span, raw) = (raw.span(), raw.get_ref());
        if raw.comm.is_none() && raw.cgroup.is_none() && raw.user.is_none() {
            return Err(self.wrong(
                &span,
                "a rule about nobody",
                "add comm, cgroup or user; cgroup = \"/\" means everybody",
            ));
        }
        if raw.fork.is_none() && raw.wake.is_none() {
            return Err(self.wrong(
                &span,
                "a rule that wishes nothing",
                "add fork or wake; fork = \"none\" keeps later rules from these tasks",
            ));
        }
        let fork = [
            ("affine", Hints::FORK_AFFINE),
            ("spread", Hints::FORK_SPREAD),
        ];
        let wake = [("affine", Hints::WAKE_AFFINE), ("hold", Hints::WAKE_HOLD)];
        let fork = self.wish("fork", raw.fork.as_ref(), fork)?;
        let wake = self.wish("wake", raw.wake.as_ref(), wake)?;
        Ok(Rule {
            line: line::at(self.text, span.start),
            comm: raw.comm.as_ref().map(|comm| self.comm(comm)).transpose()?,
            cgroup: raw
                .cgroup
                .as_ref()
                .map(|path| self.cgroup(path))
                .transpose()?,
            user: raw
                .user
                .as_ref()
                .map(|user| self.user(user, find_user))
                .transpose()?,
            hints: fork.and(wake).expect("one of each pair at most"),
        })
    }

    fn wish(
        &self,
        key: &str,
        raw: Option<&Spanned<Value>>,
        known: [(&str, Hints); 2],
    ) -> Result<Hints, RulesError> {
        let Some(raw) = raw else {
            return Ok(Hints::NONE);
        };
        let names = format!("`{}`, `{}` or `none`", known[0].0, known[1].0);
        let fail = |what: String, remedy: String| Err(self.wrong(&raw.span(), what, &remedy));
        match raw.get_ref() {
            Value::String(word) if word == "none" => Ok(Hints::NONE),
            Value::String(word) => match known.iter().find(|(name, _)| name == word) {
                Some((_, hint)) => Ok(*hint),
                None => fail(format!("no such wish for {key}"), format!("use {names}")),
            },
            Value::Array(_) => fail(
                format!("several wishes for {key}, which contradict each other"),
                format!("use one of {names}"),
            ),
            _ => fail(
                format!("{key} is no text"),
                format!("use {names}, in quotes"),
            ),
        }
    }

    fn comm(&self, raw: &Spanned<String>) -> Result<Comm, RulesError> {
        let text = raw.get_ref().as_str();
        let (name, whole) = match text.strip_suffix('*') {
            Some(name) => (name, false),
            None => (text, true),
        };
        let fail = |what: &str, remedy: &str| Err(self.wrong(&raw.span(), what, remedy));
        if name.is_empty() {
            return fail(
                "a name without a letter",
                "to mean everybody, use cgroup = \"/\"",
            );
        }
        if name.contains(['*', '\0', '/']) {
            return fail(
                "a name that no task has",
                "give the name as /proc/PID/comm shows it; a * may only stand at its end",
            );
        }
        if name.len() > COMM {
            let remedy = format!(
                "the kernel keeps {COMM} bytes of a task's name: use `{}`",
                cut(name, COMM)
            );
            return fail("a name that is too long", &remedy);
        }
        // A whole name is followed by zeros, which count; a beginning by anything.
        let mut bytes = [0_u8; 16];
        let mut mask = [if whole { 0xff } else { 0 }; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        mask[..name.len()].fill(0xff);
        Ok(Comm {
            value: words(bytes),
            mask: words(mask),
        })
    }

    fn cgroup(&self, raw: &Spanned<String>) -> Result<String, RulesError> {
        let path = raw.get_ref().as_str();
        let fail = |what: &str, remedy: &str| Err(self.wrong(&raw.span(), what, remedy));
        let sound = path == "/"
            || path.strip_prefix('/').is_some_and(|rest| {
                let mut parts = rest.split('/');
                parts.all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
            });
        if !sound {
            return fail(
                "no path of a control group",
                "give it as /proc/PID/cgroup shows it behind `0::`, such as /system.slice/x.service",
            );
        }
        if path.len() >= MAX_PATH {
            let remedy = format!(
                "use a group further up, by a path of up to {} bytes",
                MAX_PATH - 1
            );
            return fail("a path that is too long", &remedy);
        }
        Ok(path.into())
    }

    fn user(&self, raw: &Spanned<Value>, find_user: FindUser) -> Result<u32, RulesError> {
        let fail = |what, remedy| Err(self.wrong(&raw.span(), what, remedy));
        match raw.get_ref() {
            Value::Integer(id) => match u32::try_from(*id) {
                Ok(id) if id != u32::MAX => Ok(id),
                _ => fail("no number of a user", "use one from 0 to 4294967294"),
            },
            Value::String(name) => match find_user(name) {
                Some(id) => Ok(id),
                None => fail("no such user", "create it, or give its number"),
            },
            _ => fail("user is neither a name nor a number", "use one of them"),
        }
    }
}

impl Comm {
    /// Whether a name of the kernel's form matches; what `bpf/rule.bpf.h` does.
    #[cfg(test)]
    fn matches(self, name: &str) -> bool {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let found = words(bytes);
        (0..2).all(|i| found[i] & self.mask[i] == self.value[i])
    }
}

fn words(bytes: [u8; 16]) -> [u64; 2] {
    let word = |i: usize| u64::from_ne_bytes(bytes[i..i + 8].try_into().expect("eight bytes"));
    [word(0), word(8)]
}

/// At most so many bytes, no letter cut in two.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

fn user_by_name(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    let mut buffer = vec![0; 16 << 10];
    // SAFETY: all zeros is a passwd without a name; it is only read if the call filled it.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the buffer has the size said, and all pointers are alive during the call.
    let error = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        )
    };
    (error == 0 && !found.is_null()).then_some(entry.pw_uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Rules, RulesError> {
        let users = |name: &str| (name == "postgres").then_some(105);
        Rules::parse("r.toml", text, &users)
    }

    // Goal: a file says what it says. Method: all keys, values and forms of them, once.
    #[test]
    fn rules_are_read() {
        let rules = parse(
            "# two services\n[[rule]]\ncomm = \"postgres*\"\nuser = \"postgres\"\nfork = \"spread\"\n\n\
             [[rule]]\ncgroup = \"/system.slice/x.service\"\nwake = \"affine\"\nfork = \"none\"\n\
             [[rule]]\nuser = 0\ncomm = \"exactly-fifteen\"\nwake = \"hold\"\nfork = \"affine\"\n",
        )
        .unwrap()
        .list;
        let lines: Vec<usize> = rules.iter().map(|rule| rule.line).collect();
        assert_eq!(lines, [2, 7, 11]);
        assert_eq!(rules[0].hints, Hints::FORK_SPREAD);
        assert_eq!((rules[0].user, &rules[0].cgroup), (Some(105), &None));
        assert_eq!(rules[1].hints, Hints::WAKE_AFFINE);
        assert_eq!(rules[1].cgroup.as_deref(), Some("/system.slice/x.service"));
        assert_eq!(
            Some(rules[2].hints),
            Hints::FORK_AFFINE.and(Hints::WAKE_HOLD)
        );
        assert_eq!(rules[2].user, Some(0));
        let names = |rule: usize, name| rules[rule].comm.expect("has one").matches(name);
        assert!(names(0, "postgres") && names(0, "postgres: wal") && !names(0, "postgre"));
        assert!(names(2, "exactly-fifteen") && !names(2, "exactly-fiftee"));
    }

    // Goal: the rules that people are shown are rules. Method: those of the documentation.
    #[test]
    fn the_documentation_shows_rules() {
        let text = include_str!("../../../docs/HINTS.md");
        let shown = text
            .split("```toml\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let rules = parse(shown.expect("some rules")).unwrap().list;
        assert_eq!(rules.len(), 2);
        assert_eq!(rules[1].hints, Hints::FORK_AFFINE);
    }

    // Goal: each mistake is refused with file, line, value and a remedy. Method: files with one mistake each.
    #[test]
    fn mistakes_are_refused_by_name() {
        let rule = |lines: &str| format!("\n[[rule]]\n{lines}\n");
        for (text, line, says) in [
            (String::new(), 1, &["no rules", "[[rule]]"][..]),
            (
                rule("comm = 'a'\nfork = 'near'"),
                4,
                &["no such wish for fork", "`'near'`", "`affine`"],
            ),
            (
                rule("comm = 'a'\nwake = 'spread'"),
                4,
                &["no such wish for wake", "`hold`"],
            ),
            (
                rule("comm = 'a'\nfork = ['affine', 'spread']"),
                4,
                &["contradict", "`['affine', 'spread']`", "use one of"],
            ),
            (
                rule("comm = 'a'\nfork = 'affine'\nfork = 'spread'"),
                5,
                &["duplicate key", "fork"],
            ),
            (rule("comm = 'a'\nfork = 3"), 4, &["fork is no text", "`3`"]),
            (
                rule("comm = 'a'\nborn = 'near'"),
                4,
                &["unknown field `born`", "comm, cgroup or user"],
            ),
            (
                rule("fork = 'affine'"),
                2,
                &["about nobody", "add comm, cgroup or user"],
            ),
            (
                rule("comm = 'a'"),
                2,
                &["wishes nothing", "add fork or wake"],
            ),
            (
                rule("comm = 'a-name-of-17-byte'\nfork = 'none'"),
                3,
                &["too long", "use `a-name-of-17-by`"],
            ),
            (
                rule("comm = '*'\nfork = 'none'"),
                3,
                &["without a letter", "cgroup = \"/\""],
            ),
            (
                rule("comm = 'a*b'\nfork = 'none'"),
                3,
                &["no task has", "`'a*b'`"],
            ),
            (
                rule("cgroup = 'system.slice'\nfork = 'none'"),
                3,
                &["no path", "`'system.slice'`"],
            ),
            (
                rule("cgroup = '/a/../b'\nfork = 'none'"),
                3,
                &["no path", "/proc/PID/cgroup"],
            ),
            (
                rule("user = 'nosuch'\nfork = 'none'"),
                3,
                &["no such user", "`'nosuch'`"],
            ),
            (
                rule("user = -1\nfork = 'none'"),
                3,
                &["no number of a user", "`-1`"],
            ),
            (
                rule("user = true\nfork = 'none'"),
                3,
                &["neither a name nor a number"],
            ),
            ("[[rule]\n".into(), 1, &["rules are tables"]),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("r.toml:{line}: ")),
                "{text}\n{error}"
            );
            assert!(!error.contains('\n'), "one line: {error}");
            for word in says {
                assert!(error.contains(word), "{text}\n{error}\nlacks {word}");
            }
        }
        let many = "[[rule]]\nuser = 1\nfork = 'none'\n".repeat(MAX_RULES + 1);
        let error = parse(&many).unwrap_err().to_string();
        assert!(
            error.starts_with("r.toml:193: more than 64 rules"),
            "{error}"
        );
        assert!(parse(&many[many.len() / (MAX_RULES + 1)..]).is_ok());
    }

    // Goal: what is not there is said with its path. Method: a file that is not there.
    #[test]
    fn a_missing_file_is_named() {
        let error = Rules::read(Path::new("/nonexistent/r.toml"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/nonexistent/r.toml") && error.contains("cannot read"),
            "{error}"
        );
    }

    // Goal: names of users are the system's. Method: root, whom every system has, and nobody's name.
    #[test]
    fn users_are_found() {
        assert_eq!(user_by_name("root"), Some(0));
        assert_eq!(user_by_name("no such user"), None);
    }
}
