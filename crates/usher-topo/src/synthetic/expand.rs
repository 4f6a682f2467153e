// SPDX-License-Identifier: GPL-2.0-only
//! From levels to CPUs.

use std::collections::{BTreeMap, BTreeSet};

use super::parse::{self, Attributes, Kind, Level};
use super::wrong;
use crate::build::{MAX_CPUS, MAX_CPU_NUMBER};
use crate::error::TopoError;
use crate::ids::Cpu;
use crate::raw::{CoreType, RawCpu, RawNode, RawTopology};

/// The levels with their totals.
struct Tree<'a> {
    levels: &'a [Level],
    /// Objects of each level in the whole machine.
    totals: Vec<u32>,
}

impl Tree<'_> {
    fn nr_cpus(&self) -> u32 {
        self.totals[self.totals.len() - 1]
    }

    /// The object of a level that CPU `cpu` (in logical order) lies below.
    fn object(&self, level: usize, cpu: u32) -> u32 {
        cpu / (self.nr_cpus() / self.totals[level])
    }

    fn find(&self, wanted: impl Fn(Kind) -> bool) -> Option<usize> {
        self.levels.iter().position(|level| wanted(level.kind))
    }
}

pub(super) fn expand(text: &str, levels: &[Level]) -> Result<RawTopology, TopoError> {
    let mut total: u64 = 1;
    let mut totals = Vec::new();
    for level in levels {
        total = total.saturating_mul(level.arity);
        if total > MAX_CPUS as u64 {
            let origin = format!("synthetic string `{text}`");
            return Err(TopoError::TooManyCpus {
                origin,
                nr_cpus: total,
            });
        }
        totals.push(u32::try_from(total).expect("checked against MAX_CPUS"));
    }
    let tree = Tree { levels, totals };

    let (nodes, node_of_cpu) = nodes(&tree)?;
    let numbers = indexes(&tree, levels.len() - 1, tree.nr_cpus())?;
    let package = tree.find(|kind| kind == Kind::Package);
    let package_ids = match package {
        Some(level) => indexes(&tree, level, tree.totals[level])?,
        None => vec![0],
    };
    let llc = llc_level(&tree);
    let cluster = cluster_level(&tree, llc);
    let core = tree
        .find(|kind| kind == Kind::Core)
        .unwrap_or(levels.len() - 1);
    let cpus = (0..tree.nr_cpus()).map(|cpu| RawCpu {
        cpu: Cpu(numbers[cpu as usize]),
        package: package_ids[package.map_or(0, |level| tree.object(level, cpu)) as usize],
        node: node_of_cpu[cpu as usize],
        llc: tree.object(llc, cpu),
        cluster: cluster.map(|level| tree.object(level, cpu)),
        core: tree.object(core, cpu),
        core_type: 0,
    });
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(RawTopology {
        name: words,
        title: "hwloc synthetic string".into(),
        costs: None,
        cpus: cpus.collect(),
        offline: Vec::new(),
        nodes,
        core_types: vec![CoreType::uniform()],
    })
}

/// The level whose objects are last-level caches, or stand in for them.
fn llc_level(tree: &Tree) -> usize {
    let depth = |kind| match kind {
        Kind::Cache(depth) if depth >= 2 => Some(depth),
        _ => None,
    };
    let highest = tree
        .levels
        .iter()
        .filter_map(|level| depth(level.kind))
        .max();
    highest
        .and_then(|highest| tree.find(|kind| kind == Kind::Cache(highest)))
        .or_else(|| tree.find(|kind| kind == Kind::Die))
        .or_else(|| tree.find(|kind| kind == Kind::Package))
        .unwrap_or(0)
}

fn cluster_level(tree: &Tree, llc: usize) -> Option<usize> {
    if !matches!(tree.levels[llc].kind, Kind::Cache(_)) {
        return None;
    }
    let l2 = tree
        .find(|kind| kind == Kind::Cache(2))
        .filter(|level| *level > llc);
    let last_group = tree
        .levels
        .iter()
        .rposition(|level| level.kind == Kind::Group);
    l2.or(last_group.filter(|level| *level > llc))
}

/// The NUMA nodes, and of each CPU (in logical order) the id of its node.
fn nodes(tree: &Tree) -> Result<(Vec<RawNode>, Vec<u32>), TopoError> {
    let as_level = tree.find(|kind| kind == Kind::Numa);
    let mut attachments: Vec<(usize, &Attributes)> = Vec::new();
    for (level, item) in tree.levels.iter().enumerate() {
        if as_level == Some(level) {
            attachments.push((level, &item.attributes));
        }
        attachments.extend(item.attached.iter().map(|attributes| (level, attributes)));
    }
    if attachments.is_empty() {
        let node = RawNode {
            id: 0,
            ..RawNode::default()
        };
        return Ok((vec![node], vec![0; tree.nr_cpus() as usize]));
    }
    let mut order = Vec::new();
    visit(tree, &attachments, 0, 0, &mut order);
    let nr_nodes = u32::try_from(order.len()).map_err(|_| wrong("too many NUMA nodes", "["))?;
    let lists: BTreeSet<&String> = attachments
        .iter()
        .filter_map(|(_, attributes)| attributes.indexes.as_ref())
        .collect();
    let ids = match (lists.len(), lists.first()) {
        (0, _) => (0..nr_nodes).collect(),
        (1, Some(list)) => parse_indexes(tree, list, nr_nodes)?,
        _ => return Err(wrong("several lists of indexes for NUMA nodes", "indexes=")),
    };
    let nodes = order.iter().zip(&ids).map(|((attachment, _), id)| RawNode {
        id: *id,
        distances: BTreeMap::new(),
        memory_bytes: attachments[*attachment].1.memory_bytes,
    });
    // The innermost level with nodes, and there the first node of each object.
    let innermost = attachments[attachments.len() - 1].0;
    let first = attachments
        .iter()
        .position(|(level, _)| *level == innermost)
        .unwrap_or(0);
    let mut node_of_object = vec![0; tree.totals[innermost] as usize];
    for ((attachment, object), id) in order.iter().zip(&ids) {
        if *attachment == first {
            node_of_object[*object as usize] = *id;
        }
    }
    let node_of_cpu =
        (0..tree.nr_cpus()).map(|cpu| node_of_object[tree.object(innermost, cpu) as usize]);
    Ok((nodes.collect(), node_of_cpu.collect()))
}

/// NUMA nodes in hwloc's order, as (index of attachment, object): those below an object before the
/// object's own.
fn visit(
    tree: &Tree,
    attachments: &[(usize, &Attributes)],
    level: usize,
    object: u32,
    order: &mut Vec<(usize, u32)>,
) {
    if attachments.iter().any(|(at, _)| *at > level) {
        let arity = tree.totals[level + 1] / tree.totals[level];
        for child in object * arity..(object + 1) * arity {
            visit(tree, attachments, level + 1, child, order);
        }
    }
    let own = attachments
        .iter()
        .enumerate()
        .filter(|(_, (at, _))| *at == level);
    order.extend(own.map(|(attachment, _)| (attachment, object)));
}

/// The numbers of a level's objects, in logical order.
fn indexes(tree: &Tree, level: usize, total: u32) -> Result<Vec<u32>, TopoError> {
    match &tree.levels[level].attributes.indexes {
        None => Ok((0..total).collect()),
        Some(text) => parse_indexes(tree, text, total),
    }
}

/// `0,2,1,3`, `2*4:1*2`, or `numa:core`.
fn parse_indexes(tree: &Tree, text: &str, total: u32) -> Result<Vec<u32>, TopoError> {
    let piece = format!("indexes={text}");
    if text.contains('*') || text.contains(|c: char| c.is_ascii_alphabetic()) {
        let loops = if text.contains('*') {
            loops_by_step(text, &piece)?
        } else {
            loops_by_type(tree, text, total, &piece)?
        };
        return interleave(loops, total, &piece);
    }
    let numbers: Result<Vec<u32>, _> = text.split(',').map(str::parse::<u32>).collect();
    let numbers = numbers.map_err(|_| wrong("not a list of numbers, loops or types", &piece))?;
    let distinct: BTreeSet<&u32> = numbers.iter().collect();
    if numbers.len() != total as usize || distinct.len() != numbers.len() {
        let what = format!(
            "{} indexes, {} distinct, for {total}",
            numbers.len(),
            distinct.len()
        );
        return Err(wrong(&what, &piece));
    }
    match numbers.iter().max() {
        Some(max) if *max > MAX_CPU_NUMBER => {
            Err(wrong(&format!("an index above {MAX_CPU_NUMBER}"), &piece))
        }
        _ => Ok(numbers),
    }
}

/// `STEP*COUNT:...`
fn loops_by_step(text: &str, piece: &str) -> Result<Vec<(u32, u32)>, TopoError> {
    let parse = |part: &str| {
        let (step, count) = part.split_once('*')?;
        Some((step.parse().ok()?, count.parse().ok()?))
    };
    let loops: Option<Vec<(u32, u32)>> = text.split(':').map(parse).collect();
    loops.ok_or_else(|| wrong("loops are written STEP*COUNT, separated by colons", piece))
}

/// `TYPE:...`: objects of this type take turns. A loop steps over all that is below such an object, as
/// often as there are such objects below the nearest listed type further out.
fn loops_by_type(
    tree: &Tree,
    text: &str,
    total: u32,
    piece: &str,
) -> Result<Vec<(u32, u32)>, TopoError> {
    let mut levels = Vec::new();
    for name in text.split(':') {
        let kind = parse::kind(name, piece)?;
        let level = tree.find(|other| other == kind);
        let level = level.filter(|level| total.is_multiple_of(tree.totals[*level]));
        levels.push(level.ok_or_else(|| wrong("indexes by a type that is no level", piece))?);
    }
    let loops = levels.iter().map(|level| {
        let outer = levels.iter().filter(|other| *other < level).max();
        let outer_total = outer.map_or(1, |outer| tree.totals[*outer]);
        (
            total / tree.totals[*level],
            tree.totals[*level] / outer_total,
        )
    });
    Ok(loops.collect())
}

/// Number 0, 1, 2, ... go to the places that the loops visit, the first loop turning fastest. What the
/// loops leave open is one last loop of single steps.
fn interleave(mut loops: Vec<(u32, u32)>, total: u32, piece: &str) -> Result<Vec<u32>, TopoError> {
    let width = |loops: &[(u32, u32)]| {
        loops.iter().fold(1u64, |width, (_, count)| {
            width.saturating_mul(u64::from(*count))
        })
    };
    let covered = width(&loops);
    if covered == 0 || !u64::from(total).is_multiple_of(covered) {
        return Err(wrong(&format!("loops cover {covered} of {total}"), piece));
    }
    let rest = u32::try_from(u64::from(total) / covered).expect("a divisor of a u32");
    if rest > 1 {
        loops.push((1, rest));
    }
    let mut numbers: Vec<Option<u32>> = vec![None; total as usize];
    for number in 0..total {
        let (mut rest, mut place) = (number, 0u64);
        for (step, count) in &loops {
            place = place.saturating_add(u64::from(*step).saturating_mul(u64::from(rest % count)));
            rest /= count;
        }
        match usize::try_from(place)
            .ok()
            .and_then(|place| numbers.get_mut(place))
        {
            Some(slot) if slot.is_none() => *slot = Some(number),
            _ => {
                return Err(wrong(
                    "loops visit a place twice or leave the machine",
                    piece,
                ))
            }
        }
    }
    Ok(numbers.into_iter().flatten().collect())
}
