// SPDX-License-Identifier: GPL-2.0-only
//! Lab shapes: the shortest way to say what a small machine looks like.
//!
//! ```text
//! shape   = uniform | strong-and-weak
//! uniform = [N "n"] [N "l"] [N "c"] [N "t"]     at least one part, in this order, each 1 if left out
//!           nodes, LLCs per node, cores per LLC, threads per core
//! strong-and-weak = N "b" N "l"                 strong ("big") and weak ("little") cores
//! N       = 1 .. 4096
//! ```
//!
//! `2n2l2c2t` is 2 nodes of 2 LLCs of 2 cores of 2 threads: 16 CPUs. `8c` is 8 CPUs under one LLC. Each
//! node is a package of its own. CPU numbers follow the topology, siblings adjacent, as QEMU numbers
//! them. Distances are the kernel's defaults, 10 and 20. In `4b4l` the four strong cores share one LLC
//! and the four weak ones another, and all are in one node.

use std::fmt;
use std::str::FromStr;

use crate::build::MAX_CPUS;
use crate::error::TopoError;
use crate::ids::Cpu;
use crate::machine;
use crate::raw::{CoreType, RawCpu, RawNode, RawTopology, CAPACITY_MAX};

/// Capacity of the weak cores of a strong-and-weak shape, as Arm's Juno board shows for its weak
/// cluster. The built-in machine `4b4l` says the same.
pub const WEAK_CAPACITY: u32 = 446;

/// A parsed shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every level divides evenly.
    Uniform {
        /// NUMA nodes, each a package.
        nodes: u32,
        /// LLCs per node.
        llcs: u32,
        /// Cores per LLC.
        cores: u32,
        /// Threads per core.
        threads: u32,
    },
    /// Strong cores under one LLC, weak ones under another.
    StrongAndWeak {
        /// Cores of capacity 1024; their CPUs come first.
        strong: u32,
        /// Cores of capacity [`WEAK_CAPACITY`].
        weak: u32,
    },
}

impl Shape {
    /// How many CPUs.
    pub fn nr_cpus(&self) -> u32 {
        match *self {
            Self::Uniform {
                nodes,
                llcs,
                cores,
                threads,
            } => nodes * llcs * cores * threads,
            Self::StrongAndWeak { strong, weak } => strong + weak,
        }
    }

    /// The machine.
    pub fn to_raw(&self) -> RawTopology {
        let (cpus, core_types) = match *self {
            Self::Uniform {
                llcs,
                cores,
                threads,
                ..
            } => {
                let cpu = |cpu| {
                    let core = cpu / threads;
                    let llc = core / cores;
                    let node = llc / llcs;
                    let cluster = None;
                    RawCpu {
                        cpu: Cpu(cpu),
                        package: node,
                        node,
                        llc,
                        cluster,
                        core,
                        core_type: 0,
                    }
                };
                (
                    (0..self.nr_cpus()).map(cpu).collect(),
                    vec![CoreType::uniform()],
                )
            }
            Self::StrongAndWeak { strong, .. } => {
                let cpu = |cpu| {
                    let kind = u32::from(cpu >= strong);
                    RawCpu {
                        cpu: Cpu(cpu),
                        package: 0,
                        node: 0,
                        llc: kind,
                        cluster: None,
                        core: cpu,
                        core_type: kind,
                    }
                };
                let types = vec![
                    CoreType::of_capacity("strong", CAPACITY_MAX),
                    CoreType::of_capacity("weak", WEAK_CAPACITY),
                ];
                ((0..self.nr_cpus()).map(cpu).collect(), types)
            }
        };
        let nr_nodes = match *self {
            Self::Uniform { nodes, .. } => nodes,
            Self::StrongAndWeak { .. } => 1,
        };
        RawTopology {
            name: self.to_string(),
            title: String::new(),
            costs: None,
            cpus,
            offline: Vec::new(),
            nodes: (0..nr_nodes)
                .map(|id| RawNode {
                    id,
                    ..RawNode::default()
                })
                .collect(),
            core_types,
        }
    }
}

impl FromStr for Shape {
    type Err = TopoError;

    fn from_str(text: &str) -> Result<Self, TopoError> {
        let parts = split(text)?;
        let letters: String = parts.iter().map(|(_, letter)| *letter).collect();
        let shape = if letters == "bl" {
            Self::StrongAndWeak {
                strong: parts[0].0,
                weak: parts[1].0,
            }
        } else {
            let mut expected = "nlct".chars();
            if !letters.chars().all(|letter| expected.any(|e| e == letter)) {
                let what = "letters must come in the order n, l, c, t, each at most once";
                return Err(wrong(what, text));
            }
            let count = |letter| {
                parts
                    .iter()
                    .find(|part| part.1 == letter)
                    .map_or(1, |p| p.0)
            };
            let (nodes, llcs) = (count('n'), count('l'));
            Self::Uniform {
                nodes,
                llcs,
                cores: count('c'),
                threads: count('t'),
            }
        };
        // Each factor is at most MAX_CPUS, so four of them fit 64 bits.
        let nr_cpus: u64 = match shape {
            Self::Uniform {
                nodes,
                llcs,
                cores,
                threads,
            } => [nodes, llcs, cores, threads]
                .into_iter()
                .map(u64::from)
                .product(),
            Self::StrongAndWeak { strong, weak } => u64::from(strong + weak),
        };
        if nr_cpus > MAX_CPUS as u64 {
            return Err(TopoError::TooManyCpus {
                origin: format!("shape {text}"),
                nr_cpus,
            });
        }
        Ok(shape)
    }
}

/// Splits `2n4c` into `(2, 'n'), (4, 'c')`.
fn split(text: &str) -> Result<Vec<(u32, char)>, TopoError> {
    let mut parts = Vec::new();
    let mut digits = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if digits.is_empty() {
            return Err(wrong("each letter needs a count before it", text));
        }
        match digits.parse::<u32>() {
            Ok(n) if (1..=MAX_CPUS).contains(&(n as usize)) => parts.push((n, c)),
            Ok(n) if n > 0 => {
                let origin = format!("shape {text}");
                return Err(TopoError::TooManyCpus {
                    origin,
                    nr_cpus: u64::from(n),
                });
            }
            _ => {
                let what = format!("the count before `{c}` must be from 1 to {MAX_CPUS}");
                return Err(wrong(&what, text));
            }
        }
        digits.clear();
    }
    if parts.is_empty() || !digits.is_empty() {
        return Err(wrong("not counts followed by letters", text));
    }
    Ok(parts)
}

fn wrong(what: &str, text: &str) -> TopoError {
    let remedy =
        "write nodes, LLCs per node, cores per LLC, threads per core as in `2n2l2c2t`, or \
                  strong and weak cores as in `4b4l`";
    TopoError::malformed("--shape", what, text, remedy)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform {
                nodes,
                llcs,
                cores,
                threads,
            } => {
                write!(f, "{nodes}n{llcs}l{cores}c{threads}t")
            }
            Self::StrongAndWeak { strong, weak } => write!(f, "{strong}b{weak}l"),
        }
    }
}

/// Short names of machines that are shapes of the lab.
const SHORT_NAMES: [(&str, &str); 1] = [("tc2", "tc2-2a15-3a7")];

/// Reads a shape or, since some small machines of the lab are no regular shape, the name of a built-in
/// machine such as `tc2-2a15-3a7` (`tc2` for short).
///
/// # Errors
/// Not a shape and not such a name; no CPU; more than 4,096 CPUs.
pub fn parse(text: &str) -> Result<RawTopology, TopoError> {
    let short = SHORT_NAMES.iter().find(|(short, _)| *short == text);
    let text = short.map_or(text, |(_, name)| name);
    if machine::builtin_text(text).is_some() {
        return machine::load(text)?.to_raw();
    }
    text.parse::<Shape>().map(|shape| shape.to_raw())
}
