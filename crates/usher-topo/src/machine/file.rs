// SPDX-License-Identifier: GPL-2.0-only
//! The form of a machine file, and reading it from text.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use crate::error::TopoError;
use crate::line;

/// A machine file as it stands; [`MachineFile::to_raw`] makes the machine of it. See the [module's
/// documentation](crate::machine) for the meaning of each entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// Short name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// The simulator's cost table: a name, or the path of a file.
    pub costs: Option<String>,
    /// `siblings-last`, `adjacent`, or a list of CPU numbers.
    pub numbering: Spanned<String>,
    /// CPUs that are off.
    pub offline: Option<Spanned<String>>,
    /// Where each figure comes from.
    pub provenance: BTreeMap<String, String>,
    /// SLIT distances.
    #[serde(default)]
    pub distances: Distances,
    /// Kinds of cores.
    #[serde(default, rename = "core_type")]
    pub core_types: Vec<CoreTypeEntry>,
    /// The machine from the outside in.
    #[serde(rename = "socket")]
    pub sockets: Vec<SocketGroup>,
    /// Nodes without CPUs.
    #[serde(default, rename = "memory_node")]
    pub memory_nodes: Vec<MemoryNode>,
    #[serde(skip)]
    pub(super) text: Text,
}

/// The text a machine file was read from, so that errors can name file and line.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    origin: String,
    text: String,
}

/// SLIT distances: 10 is that of a node to itself, and 255 that to one out of reach.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distances {
    /// Of a node to itself; 10 if left out.
    pub local: Option<Spanned<u32>>,
    /// Between two nodes of one socket; as `remote` if left out.
    pub same_socket: Option<Spanned<u32>>,
    /// Between nodes of different sockets; 20 if left out.
    pub remote: Option<Spanned<u32>>,
    /// All of them, row by row, in order of node id; instead of the others.
    pub matrix: Option<Spanned<Vec<Vec<u32>>>>,
}

/// A kind of core.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreTypeEntry {
    /// Name, which `type` refers to.
    pub name: Spanned<String>,
    /// What the kernel believes, 0 to 1024.
    pub capacity: Spanned<u32>,
    /// Of a 3.9-era kernel.
    pub cpu_power: Option<u32>,
    /// Measured speed in thousandths of the strongest type's.
    pub speed_permille: Option<Spanned<u32>>,
}

/// `count` sockets, all alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketGroup {
    /// How many.
    pub count: Option<Spanned<u32>>,
    /// The kernel's `physical_package_id`.
    pub id: Option<Spanned<u32>>,
    /// Their nodes.
    #[serde(rename = "node")]
    pub nodes: Vec<NodeGroup>,
}

/// `count` nodes, all alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    /// How many per socket.
    pub count: Option<Spanned<u32>>,
    /// The kernel's node id.
    pub id: Option<Spanned<u32>>,
    /// Size of each one's memory.
    pub memory_bytes: Option<u64>,
    /// Their LLCs.
    #[serde(rename = "llc")]
    pub llcs: Vec<LlcGroup>,
}

/// `count` last-level caches, all alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlcGroup {
    /// How many per node.
    pub count: Option<Spanned<u32>>,
    /// The cores below each.
    #[serde(rename = "core")]
    pub cores: Vec<CoreGroup>,
}

/// `count` cores, or `clusters` times `count` cores, all alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreGroup {
    /// How many per LLC, or per cluster.
    pub count: Option<Spanned<u32>>,
    /// How many L2 clusters per LLC; without it, no core shares its L2.
    pub clusters: Option<Spanned<u32>>,
    /// These cores join the last L2 cluster of the group before, which has cores of another kind.
    pub same_cluster: Option<Spanned<bool>>,
    /// Threads per core.
    pub threads: Option<Spanned<u32>>,
    /// Name of the core type; the only one if left out.
    #[serde(rename = "type")]
    pub kind: Option<Spanned<String>>,
}

/// A node without CPUs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryNode {
    /// The kernel's node id.
    pub id: Spanned<u32>,
    /// Size of its memory.
    pub memory_bytes: Option<u64>,
}

impl MachineFile {
    /// Reads a machine file's text. `origin` is what errors call it: its path, or a built-in name.
    ///
    /// # Errors
    /// Not TOML, a key missing, unknown or of the wrong kind: with file and line. Whether the figures
    /// make sense is checked by [`MachineFile::to_raw`].
    pub fn parse(origin: &str, text: &str) -> Result<Self, TopoError> {
        let place = Text {
            origin: origin.into(),
            text: text.into(),
        };
        let mut file: Self = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let remedy =
                "`usher topo --machine tc2-2a15-3a7 --format machine` prints one that is right";
            place.error(&span, error.message().trim(), remedy)
        })?;
        file.text = place;
        Ok(file)
    }
}

impl Text {
    /// An error at a place of the text.
    pub(super) fn error(&self, span: &Range<usize>, what: &str, remedy: &str) -> TopoError {
        let line = line::at(&self.text, span.start);
        let value = match self.text.get(span.clone()) {
            Some(value) if !value.trim().is_empty() => value,
            _ => self.text.lines().nth(line - 1).unwrap_or(""),
        };
        let value = value.lines().next().unwrap_or("").trim();
        TopoError::malformed(format!("{}:{line}", self.origin), what, value, remedy)
    }

    /// What errors call the file.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }
}
