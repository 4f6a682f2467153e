// SPDX-License-Identifier: GPL-2.0-only
//! hwloc XML files, version 2 and 3 (`lstopo machine.xml`).
//!
//! The file is a tree of objects. From the way to each PU its package, die, caches, groups and core are
//! read off; what becomes of them is as for [synthetic strings](crate::synthetic). A NUMA node's
//! `cpuset` says which CPUs are local to it: a CPU belongs to the node with the smallest set that holds
//! it, the lowest number where sets are equal (DRAM is numbered before HBM and CXL memory), and the other
//! nodes are of memory only. CPUs of the machine's `complete_cpuset` without a PU are offline.
//!
//! Capacity is the kind's `LinuxCapacity`; without any, the ratio of the highest `FrequencyMaxMHz` of
//! the kinds' `CoreType`s if there are several; else 1024. Distances are the first latency matrix over
//! NUMA nodes. Files of version 1 are refused: hwloc 2 converts them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use roxmltree::{Document, Node as Element, ParsingOptions};

use crate::build::{MAX_CPUS, MAX_CPU_NUMBER};
use crate::cpulist::parse_mask;
use crate::error::TopoError;
use crate::ids::Cpu;
use crate::raw::{distinct_kinds, RawCpu, RawNode, RawTopology, CAPACITY_MAX};

/// Reads an hwloc XML file.
///
/// # Errors
/// Not readable, not XML, not hwloc's, of version 1, or an attribute that makes no sense: with file and
/// line.
pub fn read(path: &Path) -> Result<RawTopology, TopoError> {
    let text = std::fs::read_to_string(path).map_err(|source| TopoError::Io {
        path: path.into(),
        source,
    })?;
    let mut raw = parse(&path.display().to_string(), &text)?;
    raw.name = path
        .file_stem()
        .map_or("hwloc".into(), |stem| stem.to_string_lossy().into_owned());
    Ok(raw)
}

/// Reads hwloc XML from a string. `origin` is what errors call it.
///
/// # Errors
/// As [`read`].
pub fn parse(origin: &str, text: &str) -> Result<RawTopology, TopoError> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let row = error.pos().row;
        let line = text
            .lines()
            .nth(row.saturating_sub(1) as usize)
            .unwrap_or("")
            .trim();
        let remedy = "export the machine again with `lstopo machine.xml`";
        TopoError::malformed(
            format!("{origin}:{row}"),
            format!("not XML: {error}"),
            line,
            remedy,
        )
    })?;
    let reader = Reader {
        origin,
        document: &document,
    };
    let root = reader.check_root()?;
    let found = reader.walk(root)?;
    let distances = reader.distances(root)?;
    let kinds = reader.kinds(root)?;
    Ok(assemble(origin, &found, distances.as_ref(), &kinds))
}

struct Reader<'a> {
    origin: &'a str,
    document: &'a Document<'a>,
}

/// What lies above an object, as running numbers of objects.
#[derive(Clone, Copy, Default)]
struct Above {
    package: Option<u32>,
    die: Option<u32>,
    /// Level and number of the highest data cache above L1.
    llc: Option<(u32, u32)>,
    l2: Option<u32>,
    /// The innermost group below the LLC.
    group: Option<u32>,
    core: Option<u32>,
}

/// A NUMA node and the CPUs local to it.
struct FoundNode {
    id: u32,
    local: BTreeSet<u32>,
    memory_bytes: Option<u64>,
    gp_index: Option<u64>,
}

/// A matrix of distances: `values` row by row, rows and columns named by `indexes`.
struct Matrix {
    /// Whether `indexes` are hwloc's own numbers of the nodes, not the kernel's.
    by_gp_index: bool,
    indexes: Vec<u64>,
    values: Vec<u32>,
}

/// CPUs of one kind.
struct Kind {
    cpus: BTreeSet<u32>,
    name: String,
    capacity: Option<u32>,
    max_mhz: Option<u32>,
}

#[derive(Default)]
struct Found {
    cpus: Vec<(u32, Above)>,
    nodes: Vec<FoundNode>,
    /// By running number: the package's `os_index`, if it has one.
    packages: Vec<Option<u32>>,
    complete: BTreeSet<u32>,
}

impl<'a> Reader<'a> {
    fn wrong(&self, at: Element, what: &str, value: &str) -> TopoError {
        let line = self.document.text_pos_at(at.range().start).row;
        let remedy = "export the machine again with `lstopo machine.xml`";
        TopoError::malformed(format!("{}:{line}", self.origin), what, value, remedy)
    }

    fn check_root(&self) -> Result<Element<'a, 'a>, TopoError> {
        let root = self.document.root_element();
        if root.tag_name().name() != "topology" {
            return Err(self.wrong(root, "not an hwloc file", root.tag_name().name()));
        }
        match root.attribute("version") {
            Some(version) if version.starts_with("2.") || version.starts_with("3.") => Ok(root),
            Some(version) => Err(self.wrong(root, "hwloc XML of unknown version", version)),
            None => Err(self.wrong(root, "hwloc XML of version 1", "<topology>")),
        }
    }

    /// A numeric attribute.
    fn number<T: std::str::FromStr>(
        &self,
        element: Element,
        name: &str,
    ) -> Result<Option<T>, TopoError> {
        let Some(value) = element.attribute(name) else {
            return Ok(None);
        };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.wrong(element, &format!("{name} is not a number"), value)),
        }
    }

    fn required(&self, element: Element, name: &str) -> Result<u32, TopoError> {
        let kind = element.attribute("type").unwrap_or("");
        match self.number::<u32>(element, name)? {
            Some(number) if number <= MAX_CPU_NUMBER => Ok(number),
            Some(number) => {
                let what = format!("{kind} with {name} above {MAX_CPU_NUMBER}");
                Err(self.wrong(element, &what, &number.to_string()))
            }
            None => Err(self.wrong(element, &format!("{kind} without {name}"), "<object>")),
        }
    }

    fn cpuset(&self, element: Element, name: &str) -> Result<BTreeSet<u32>, TopoError> {
        let Some(value) = element.attribute(name) else {
            return Ok(BTreeSet::new());
        };
        match parse_mask(value) {
            Some(cpus) => Ok(cpus.into_iter().collect()),
            None => Err(self.wrong(element, &format!("{name} is not a set"), value)),
        }
    }

    /// Visits all objects, parents first, in order of the file; without recursion, since a file can nest
    /// as deep as it likes.
    fn walk(&self, root: Element<'a, 'a>) -> Result<Found, TopoError> {
        let mut found = Found::default();
        let mut next_label = 0;
        let objects = |parent: Element<'a, 'a>| {
            parent
                .children()
                .filter(|child| child.has_tag_name("object"))
        };
        let mut stack: Vec<(Element, Above)> = objects(root)
            .map(|object| (object, Above::default()))
            .collect();
        if stack.is_empty() {
            return Err(self.wrong(root, "no objects", "<topology>"));
        }
        for (machine, _) in &stack {
            found
                .complete
                .append(&mut self.cpuset(*machine, "complete_cpuset")?);
        }
        stack.reverse();
        while let Some((object, mut above)) = stack.pop() {
            self.visit(object, &mut above, next_label, &mut found)?;
            next_label += 1;
            let children: Vec<Element> = objects(object).collect();
            stack.extend(children.into_iter().rev().map(|child| (child, above)));
        }
        Ok(found)
    }

    fn visit(
        &self,
        object: Element,
        above: &mut Above,
        label: u32,
        found: &mut Found,
    ) -> Result<(), TopoError> {
        let Some(kind) = object.attribute("type") else {
            return Err(self.wrong(object, "object without type", "<object>"));
        };
        match kind {
            "PU" => {
                if found.cpus.len() == MAX_CPUS {
                    let nr_cpus = MAX_CPUS as u64 + 1;
                    return Err(TopoError::TooManyCpus {
                        origin: self.origin.into(),
                        nr_cpus,
                    });
                }
                found
                    .cpus
                    .push((self.required(object, "os_index")?, *above));
            }
            "NUMANode" => found.nodes.push(FoundNode {
                id: self.required(object, "os_index")?,
                local: self.cpuset(object, "cpuset")?,
                memory_bytes: self.number(object, "local_memory")?,
                gp_index: self.number(object, "gp_index")?,
            }),
            "Package" => {
                let index = u32::try_from(found.packages.len()).expect("fewer than objects");
                found
                    .packages
                    .push(self.number::<u32>(object, "os_index").unwrap_or(None));
                above.package = Some(index);
            }
            "Die" => above.die = Some(label),
            "Group" => above.group = above.llc.map(|_| label),
            "Core" => above.core = Some(label),
            _ => {
                // `L3Cache`, but neither `L1iCache` nor `MemCache`.
                let level = kind
                    .strip_prefix('L')
                    .and_then(|kind| kind.strip_suffix("Cache"));
                let level = level.and_then(|level| level.parse::<u32>().ok());
                if let Some(level) = level.filter(|level| *level >= 2) {
                    if above.llc.is_none_or(|(highest, _)| highest < level) {
                        above.llc = Some((level, label));
                        above.group = None;
                    }
                    if level == 2 {
                        above.l2 = Some(label);
                    }
                }
            }
        }
        Ok(())
    }

    /// The first latency matrix over NUMA nodes.
    fn distances(&self, root: Element<'a, 'a>) -> Result<Option<Matrix>, TopoError> {
        const MEANS_LATENCY: u32 = 4;
        for element in root
            .children()
            .filter(|child| child.has_tag_name("distances2"))
        {
            let latency = self.number::<u32>(element, "kind")?.unwrap_or(0) & MEANS_LATENCY != 0;
            if element.attribute("type") != Some("NUMANode") || !latency {
                continue;
            }
            let indexes = self.numbers::<u64>(element, "indexes")?;
            let values = self.numbers::<u32>(element, "u64values")?;
            if Some(values.len()) != indexes.len().checked_mul(indexes.len()) {
                let what = format!("{} distances for {} nodes", values.len(), indexes.len());
                return Err(self.wrong(element, &what, "<distances2>"));
            }
            let by_gp_index = element.attribute("indexing") == Some("gp");
            return Ok(Some(Matrix {
                by_gp_index,
                indexes,
                values,
            }));
        }
        Ok(None)
    }

    /// The numbers in all children of this name, which hwloc breaks into several.
    fn numbers<T: std::str::FromStr>(
        &self,
        element: Element,
        tag: &str,
    ) -> Result<Vec<T>, TopoError> {
        let mut numbers = Vec::new();
        for part in element.children().filter(|child| child.has_tag_name(tag)) {
            for word in part.text().unwrap_or("").split_whitespace() {
                let wrong = |_| self.wrong(part, "not a number, or out of range", word);
                numbers.push(word.parse().map_err(wrong)?);
            }
        }
        Ok(numbers)
    }

    fn kinds(&self, root: Element<'a, 'a>) -> Result<Vec<Kind>, TopoError> {
        let mut kinds = Vec::new();
        for element in root
            .children()
            .filter(|child| child.has_tag_name("cpukind"))
        {
            let info = |name: &str| {
                let mut infos = element
                    .children()
                    .filter(|child| child.has_tag_name("info"));
                infos.find(|info| info.attribute("name") == Some(name))
            };
            let number = |name: &str| match info(name) {
                Some(info) => self.number::<u32>(info, "value"),
                None => Ok(None),
            };
            let capacity = number("LinuxCapacity")?;
            if let Some(capacity) = capacity.filter(|capacity| *capacity > CAPACITY_MAX) {
                return Err(self.wrong(element, "capacity above 1024", &capacity.to_string()));
            }
            let name = info("CoreType").and_then(|info| info.attribute("value"));
            kinds.push(Kind {
                cpus: self.cpuset(element, "cpuset")?,
                name: name.unwrap_or("cpu").into(),
                capacity,
                max_mhz: number("FrequencyMaxMHz")?,
            });
        }
        if kinds.iter().all(|kind| kind.capacity.is_none()) {
            guess_capacities(&mut kinds);
        }
        Ok(kinds)
    }
}

/// Capacities in proportion to the fastest frequency of each core type, if there are several types.
fn guess_capacities(kinds: &mut [Kind]) {
    let mut fastest: BTreeMap<String, u32> = BTreeMap::new();
    for kind in kinds.iter() {
        let mhz = fastest.entry(kind.name.clone()).or_default();
        *mhz = (*mhz).max(kind.max_mhz.unwrap_or(0));
    }
    if fastest.len() < 2 || fastest.values().any(|mhz| *mhz == 0) {
        return;
    }
    let top = fastest.values().copied().max().unwrap_or(1);
    for kind in kinds {
        let scaled = u64::from(fastest[&kind.name]) * u64::from(CAPACITY_MAX);
        kind.capacity = u32::try_from(scaled / u64::from(top))
            .map(|capacity| capacity.max(1))
            .ok();
    }
}

fn assemble(
    origin: &str,
    found: &Found,
    distances: Option<&Matrix>,
    kinds: &[Kind],
) -> RawTopology {
    let online: BTreeSet<u32> = found.cpus.iter().map(|(cpu, _)| *cpu).collect();
    let of_cpus: Vec<(u32, &str)> = found
        .cpus
        .iter()
        .map(
            |(cpu, _)| match kinds.iter().rfind(|kind| kind.cpus.contains(cpu)) {
                Some(kind) => (kind.capacity.unwrap_or(CAPACITY_MAX), kind.name.as_str()),
                None => (CAPACITY_MAX, "cpu"),
            },
        )
        .collect();
    let (core_types, type_of_cpu) = distinct_kinds(&of_cpus);
    let packages = package_ids(&found.packages);
    // What stands in for a missing level must not share a label with real objects, which have running
    // numbers.
    let stand_in = |place: usize| u32::MAX - u32::try_from(place).expect("at most 4,096 CPUs");
    let cpus =
        found
            .cpus
            .iter()
            .zip(type_of_cpu)
            .enumerate()
            .map(|(place, ((cpu, above), kind))| {
                let local = found.nodes.iter().filter(|node| node.local.contains(cpu));
                let closest = local.min_by_key(|node| (node.local.len(), node.id));
                let node = closest.or(found.nodes.first());
                RawCpu {
                    cpu: Cpu(*cpu),
                    package: above
                        .package
                        .map_or(0, |package| packages[package as usize]),
                    node: node.map_or(0, |node| node.id),
                    llc: match (above.llc, above.die, above.package) {
                        (Some((_, llc)), _, _) => llc,
                        (None, Some(die), _) => die,
                        (None, None, Some(package)) => stand_in(package as usize),
                        (None, None, None) => stand_in(MAX_CPUS),
                    },
                    cluster: above
                        .l2
                        .filter(|_| above.llc.is_some_and(|(level, _)| level > 2)),
                    core: above.core.unwrap_or_else(|| stand_in(place)),
                    core_type: kind,
                }
            });
    let mut cpus: Vec<RawCpu> = cpus.collect();
    add_group_clusters(&mut cpus, found);
    RawTopology {
        name: origin.into(),
        title: String::new(),
        costs: None,
        cpus,
        offline: found
            .complete
            .difference(&online)
            .map(|cpu| Cpu(*cpu))
            .collect(),
        nodes: raw_nodes(&found.nodes, distances),
        core_types,
    }
}

/// Where no core shares its L2 with another, the innermost groups below the LLC are the clusters.
fn add_group_clusters(cpus: &mut [RawCpu], found: &Found) {
    let mut core_of_l2: BTreeMap<u32, u32> = BTreeMap::new();
    let shared = cpus.iter().any(|cpu| match cpu.cluster {
        Some(l2) => *core_of_l2.entry(l2).or_insert(cpu.core) != cpu.core,
        None => false,
    });
    if !shared {
        for (cpu, (_, above)) in cpus.iter_mut().zip(&found.cpus) {
            cpu.cluster = above.group;
        }
    }
}

/// The packages' own numbers if all have one and they differ, else running numbers.
fn package_ids(packages: &[Option<u32>]) -> Vec<u32> {
    let own: Vec<u32> = packages.iter().copied().flatten().collect();
    let distinct: BTreeSet<u32> = own.iter().copied().collect();
    if own.len() == packages.len() && distinct.len() == own.len() {
        return own;
    }
    (0..).zip(packages).map(|(index, _)| index).collect()
}

fn raw_nodes(found: &[FoundNode], distances: Option<&Matrix>) -> Vec<RawNode> {
    let mut nodes: Vec<RawNode> = found
        .iter()
        .map(|node| RawNode {
            id: node.id,
            distances: BTreeMap::new(),
            memory_bytes: node.memory_bytes,
        })
        .collect();
    let Some(matrix) = distances else {
        return nodes;
    };
    let place_of = |index: u64| {
        found.iter().position(|node| match matrix.by_gp_index {
            true => node.gp_index == Some(index),
            false => u64::from(node.id) == index,
        })
    };
    let places: Vec<Option<usize>> = matrix
        .indexes
        .iter()
        .map(|index| place_of(*index))
        .collect();
    for (from, row) in places.iter().zip(matrix.values.chunks(places.len().max(1))) {
        for (to, distance) in places.iter().zip(row) {
            // Rows of nodes that the file does not describe are of no use.
            if let (Some(from), Some(to)) = (from, to) {
                nodes[*from].distances.insert(found[*to].id, *distance);
            }
        }
    }
    nodes
}
