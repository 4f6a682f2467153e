// SPDX-License-Identifier: GPL-2.0-only
//! From the string to levels.

use super::wrong;
use crate::error::TopoError;

/// The type of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The implied outermost level.
    Machine,
    Package,
    Numa,
    Die,
    Group,
    /// A data or unified cache of this level.
    Cache(u32),
    /// An instruction cache, which groups CPUs but is not what a scheduler looks for.
    InstructionCache(u32),
    Core,
    Pu,
}

/// One level.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) kind: Kind,
    /// Objects below each object of the level before.
    pub(super) arity: u64,
    pub(super) attributes: Attributes,
    /// NUMA nodes attached to each object, in order.
    pub(super) attached: Vec<Attributes>,
}

/// What stood in parentheses.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    pub(super) memory_bytes: Option<u64>,
    /// Unparsed value of `indexes=`, whose meaning depends on the whole string.
    pub(super) indexes: Option<String>,
}

/// The levels from the outside in. The first is the machine.
pub(super) fn levels(text: &str) -> Result<Vec<Level>, TopoError> {
    let machine = Level {
        kind: Kind::Machine,
        arity: 1,
        attributes: Attributes::default(),
        attached: Vec::new(),
    };
    let mut levels = vec![machine];
    let mut untyped = Vec::new();
    for (i, item) in items(text)?.into_iter().enumerate() {
        if i == 0 && item.starts_with('(') {
            attributes_of(item)?;
        } else if let Some(attached) = item.strip_prefix('[') {
            let attached = attached
                .strip_suffix(']')
                .expect("items() returns whole items");
            let level = levels.last_mut().expect("the machine is there");
            level.attached.push(attached_numa(attached)?);
        } else {
            let (level, typed) = level(item)?;
            if !typed {
                untyped.push(levels.len());
            }
            levels.push(level);
        }
    }
    give_types(&mut levels, &untyped, text)?;
    check(&levels, text)?;
    Ok(levels)
}

/// Splits at blanks outside parentheses and brackets.
fn items(text: &str) -> Result<Vec<&str>, TopoError> {
    let mut items = Vec::new();
    let mut start = None;
    let mut open: Vec<char> = Vec::new();
    for (at, c) in text.char_indices() {
        if c.is_whitespace() && open.is_empty() {
            items.extend(start.take().map(|start| &text[start..at]));
            continue;
        }
        // `(memory=4GB)pack:2` and `pack:2[numa]`: an item may follow without a blank.
        let after_bracket = at > 0 && open.is_empty() && text[..at].ends_with([')', ']']);
        if after_bracket || (c == '[' && open.is_empty()) {
            items.extend(start.take().map(|start| &text[start..at]));
        }
        start.get_or_insert(at);
        match c {
            '(' | '[' => open.push(c),
            ')' if open.pop() != Some('(') => return Err(wrong("`)` without `(`", &text[at..])),
            ']' if open.pop() != Some('[') => return Err(wrong("`]` without `[`", &text[at..])),
            _ => {}
        }
    }
    if let Some(open) = open.first() {
        return Err(wrong(&format!("`{open}` is not closed"), text));
    }
    items.extend(start.map(|start| &text[start..]));
    Ok(items)
}

/// `core:8`, `pu:2(indexes=...)`, or `8`. Also whether it named its type.
fn level(item: &str) -> Result<(Level, bool), TopoError> {
    let (head, attributes) = split_attributes(item);
    let (kind, arity) = match head.split_once(':') {
        Some((kind, arity)) => (Some(self::kind(kind, item)?), arity),
        None if head.starts_with(|c: char| c.is_ascii_digit()) => (None, head),
        None => {
            kind(head, item)?;
            return Err(wrong("a level without a count", item));
        }
    };
    let typed = kind.is_some();
    let level = Level {
        kind: kind.unwrap_or(Kind::Pu),
        arity: count(arity, item)?,
        attributes: attributes_of(attributes)?,
        attached: Vec::new(),
    };
    Ok((level, typed))
}

fn count(text: &str, item: &str) -> Result<u64, TopoError> {
    match text.parse::<u32>() {
        Ok(0) => Err(wrong("a count of zero", item)),
        Ok(n) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(u64::from(n)),
        _ => Err(wrong("the count is not a number", item)),
    }
}

fn split_attributes(item: &str) -> (&str, &str) {
    item.split_at(item.find('(').unwrap_or(item.len()))
}

fn attached_numa(item: &str) -> Result<Attributes, TopoError> {
    let (head, attributes) = split_attributes(item.trim());
    let (name, arity) = head.split_once(':').unwrap_or((head, "1"));
    if kind(name, item)? != Kind::Numa {
        return Err(wrong("only NUMA nodes can be attached with brackets", item));
    }
    if count(arity, item)? != 1 {
        return Err(wrong(
            "brackets attach one node; repeat them for more",
            item,
        ));
    }
    attributes_of(attributes)
}

pub(super) fn kind(name: &str, item: &str) -> Result<Kind, TopoError> {
    let name = name.to_ascii_lowercase();
    let shortens = |full: &str| name.len() >= 2 && full.starts_with(&name);
    let without_depth = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if shortens("package") || shortens("socket") {
        Ok(Kind::Package)
    } else if shortens("numanode") || shortens("node") {
        Ok(Kind::Numa)
    } else if shortens("die") {
        Ok(Kind::Die)
    } else if shortens("core") {
        Ok(Kind::Core)
    } else if shortens("pu") {
        Ok(Kind::Pu)
    } else if without_depth.len() >= 2 && "group".starts_with(without_depth) {
        Ok(Kind::Group)
    } else if let Some(cache) = cache(&name) {
        Ok(cache)
    } else if shortens("machine") {
        Err(wrong(
            "the machine is implied and must not be written",
            item,
        ))
    } else {
        let known = "package, numanode, die, group, l1 to l5, core, pu";
        Err(wrong(&format!("unknown level type (known: {known})"), item))
    }
}

/// `l3`, `l3u`, `l2icache`, ...
fn cache(name: &str) -> Option<Kind> {
    let mut rest = name.strip_prefix('l')?.chars();
    let depth = rest
        .next()?
        .to_digit(10)
        .filter(|depth| (1..=5).contains(depth))?;
    let rest = rest.as_str();
    let (instructions, word) = match rest.chars().next() {
        Some('i') => (true, &rest[1..]),
        Some('u' | 'd') => (false, &rest[1..]),
        _ => (false, rest),
    };
    if !"cache".starts_with(word) {
        return None;
    }
    Some(if instructions {
        Kind::InstructionCache(depth)
    } else {
        Kind::Cache(depth)
    })
}

/// The content of `(memory=1GB indexes=0,1)`; nothing for an empty text.
fn attributes_of(text: &str) -> Result<Attributes, TopoError> {
    let mut attributes = Attributes::default();
    let Some(inner) = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
    else {
        return match text {
            "" => Ok(attributes),
            _ => Err(wrong("not attributes in parentheses", text)),
        };
    };
    for attribute in inner.split_whitespace() {
        match attribute.split_once('=') {
            Some(("memory", value)) => attributes.memory_bytes = Some(bytes(value, attribute)?),
            Some(("size" | "memorysidecachesize", value)) => {
                bytes(value, attribute)?;
            }
            Some(("indexes", value)) => attributes.indexes = Some(value.into()),
            _ => {
                let what = "unknown attribute (known: memory, size, memorysidecachesize, indexes)";
                return Err(wrong(what, attribute));
            }
        }
    }
    Ok(attributes)
}

/// `4096`, `1GB` (10^9), `1GiB` (2^30).
fn bytes(text: &str, attribute: &str) -> Result<u64, TopoError> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit {
        "" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1000_u64.pow(2),
        "GB" => 1000_u64.pow(3),
        "TB" => 1000_u64.pow(4),
        "KiB" | "kiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => {
            return Err(wrong(
                "unknown unit (known: kB, MB, GB, TB, KiB, MiB, GiB, TiB)",
                attribute,
            ))
        }
    };
    let size = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    size.ok_or_else(|| wrong("not a size", attribute))
}

/// Types for levels that named none: all of them or only the last, which is always `pu`.
fn give_types(levels: &mut [Level], untyped: &[usize], text: &str) -> Result<(), TopoError> {
    let nr_levels = levels.len() - 1;
    match untyped {
        [] => return Ok(()),
        [last] if *last == nr_levels => {
            levels[*last].kind = Kind::Pu;
            return Ok(());
        }
        _ if untyped.len() < nr_levels => {
            return Err(wrong("some levels have types and others have none", text));
        }
        _ => {}
    }
    // hwloc's choice: with each further level, one more type of this list is used...
    let by_importance = [
        Kind::Pu,
        Kind::Numa,
        Kind::Package,
        Kind::Core,
        Kind::Cache(2),
        Kind::Cache(1),
        Kind::Cache(3),
        Kind::InstructionCache(1),
    ];
    let Some(used) = by_importance.get(..nr_levels) else {
        return Err(wrong("more than 8 levels without types", text));
    };
    // ... and those that are used stand in this order.
    let outside_in = [
        Kind::Package,
        Kind::Numa,
        Kind::Cache(3),
        Kind::Cache(2),
        Kind::Cache(1),
        Kind::InstructionCache(1),
        Kind::Core,
        Kind::Pu,
    ];
    let kinds = outside_in.into_iter().filter(|kind| used.contains(kind));
    for (level, kind) in levels[1..].iter_mut().zip(kinds) {
        level.kind = kind;
    }
    Ok(())
}

fn check(levels: &[Level], text: &str) -> Result<(), TopoError> {
    let last = levels.len() - 1;
    if last == 0 {
        return Err(wrong("no levels", text));
    }
    if levels[last].kind != Kind::Pu {
        return Err(wrong("the last level must be pu", text));
    }
    for (i, level) in levels.iter().enumerate() {
        let repeats = levels[..i].iter().any(|other| other.kind == level.kind);
        if repeats && level.kind != Kind::Group {
            return Err(wrong(
                &format!("several levels of type {:?}", level.kind),
                text,
            ));
        }
    }
    let attached = levels.iter().any(|level| !level.attached.is_empty());
    if attached && levels.iter().any(|level| level.kind == Kind::Numa) {
        return Err(wrong("NUMA nodes both as a level and in brackets", text));
    }
    if !levels[last].attached.is_empty() {
        return Err(wrong("NUMA nodes cannot be attached to a pu", text));
    }
    Ok(())
}
