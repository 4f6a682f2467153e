// SPDX-License-Identifier: GPL-2.0-only
//! The shape of a guest: how many NUMA nodes, LLCs, cores and threads its CPUs form.
//!
//! Written `2n2l2c2t`: 2 nodes, each of 2 LLCs, each of 2 cores, each of 2 threads. A level left out
//! counts one, so `16c` is sixteen cores behind one LLC.

use std::fmt;
use std::str::FromStr;

use crate::error::LabError;

/// Most CPUs that usher knows anywhere.
pub const CPUS_MAX: u32 = 4096;

/// Most CPUs that a guest can have: the emulated interrupt controllers have 8-bit ids and one is reserved.
pub const GUEST_CPUS_MAX: u32 = 255;

/// SLIT distance of a node to itself and, unless told otherwise, to every other.
const DISTANCE_LOCAL: u8 = 10;
const DISTANCE_REMOTE: u8 = 20;

/// A regular machine: every node, LLC and core alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// NUMA nodes, 1 or more.
    pub nodes: u32,
    /// LLCs per node, 1 or more.
    pub llcs: u32,
    /// Cores per LLC, 1 or more.
    pub cores: u32,
    /// Hardware threads per core: 1, 2, 4 or 8.
    pub threads: u32,
    /// SLIT distances between nodes, row by row, `nodes * nodes` of them.
    distances: Vec<u8>,
}

impl Shape {
    /// A shape with distances 10 at home and 20 elsewhere; the error names the shape.
    pub fn new(nodes: u32, llcs: u32, cores: u32, threads: u32) -> Result<Self, LabError> {
        let text = format!("{nodes}n{llcs}l{cores}c{threads}t");
        let fail = |why: String| {
            Err(LabError::Shape {
                shape: text.clone(),
                why,
            })
        };
        let product = [nodes, llcs, cores, threads]
            .iter()
            .try_fold(1u32, |n, &m| n.checked_mul(m));
        match product {
            Some(0) => return fail("zero CPUs".into()),
            Some(cpus) if cpus <= CPUS_MAX => {}
            _ => return fail(format!("more than {CPUS_MAX} CPUs")),
        }
        if ![1, 2, 4, 8].contains(&threads) {
            return fail(format!(
                "{threads} threads per core; 1, 2, 4 or 8 are possible"
            ));
        }
        let mut distances = vec![DISTANCE_REMOTE; (nodes * nodes) as usize];
        for node in 0..nodes {
            distances[(node * nodes + node) as usize] = DISTANCE_LOCAL;
        }
        Ok(Shape {
            nodes,
            llcs,
            cores,
            threads,
            distances,
        })
    }

    /// The same shape with other SLIT distances (row by row); 10 on the diagonal, 11 to 254 elsewhere,
    /// which is what ACPI and QEMU accept.
    pub fn with_distances(mut self, distances: Vec<u8>) -> Result<Self, LabError> {
        let fail = |why: String| {
            Err(LabError::Shape {
                shape: self.to_string(),
                why,
            })
        };
        if distances.len() != (self.nodes * self.nodes) as usize {
            return fail(format!(
                "{} distances for {} nodes",
                distances.len(),
                self.nodes
            ));
        }
        for (index, &distance) in distances.iter().enumerate() {
            let (from, to) = (index as u32 / self.nodes, index as u32 % self.nodes);
            let legal = if from == to {
                distance == 10
            } else {
                (11..=254).contains(&distance)
            };
            if !legal {
                return fail(format!("distance {distance} from node {from} to node {to}"));
            }
        }
        self.distances = distances;
        Ok(self)
    }

    /// CPUs in all.
    pub fn cpus(&self) -> u32 {
        self.nodes * self.cpus_per_node()
    }

    /// CPUs of one node; the guest numbers them contiguously, node by node.
    pub fn cpus_per_node(&self) -> u32 {
        self.llcs * self.cores * self.threads
    }

    /// SLIT distance between two nodes.
    pub fn distance(&self, from: u32, to: u32) -> u8 {
        self.distances[(from * self.nodes + to) as usize]
    }

    /// The error for a shape that no guest can have, if this is one.
    pub fn check_bootable(&self) -> Result<(), LabError> {
        if self.cpus() > GUEST_CPUS_MAX {
            return Err(LabError::Shape {
                shape: self.to_string(),
                why: format!(
                    "{} CPUs, but an emulated guest has at most {GUEST_CPUS_MAX} (the simulator takes {CPUS_MAX})",
                    self.cpus()
                ),
            });
        }
        Ok(())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}n{}l{}c{}t",
            self.nodes, self.llcs, self.cores, self.threads
        )
    }
}

impl FromStr for Shape {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let fail = |why: String| LabError::Shape {
            shape: text.into(),
            why,
        };
        let mut counts = [1u32; 4];
        // Levels come in this order, each at most once.
        let mut next_level = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| {
                fail(format!("'{rest}' at its end lacks a letter (n, l, c or t)"))
            })?;
            let letter = rest[end..].chars().next().unwrap_or(' ');
            let level = "nlct"
                .find(letter)
                .ok_or_else(|| fail(format!("'{letter}' is no level")))?;
            if level < next_level {
                return Err(fail(format!("'{letter}' is out of order or repeated")));
            }
            counts[level] = rest[..end]
                .parse()
                .map_err(|_| fail(format!("'{}' before '{letter}' is no count", &rest[..end])))?;
            next_level = level + 1;
            rest = &rest[end + letter.len_utf8()..];
        }
        if next_level == 0 {
            return Err(fail("empty".into()));
        }
        let [nodes, llcs, cores, threads] = counts;
        Shape::new(nodes, llcs, cores, threads).map_err(|error| match error {
            LabError::Shape { why, .. } => fail(why),
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: shapes read as they are documented and print back. Method: full, short and odd ones.
    #[test]
    fn shapes_are_read() {
        let shape: Shape = "2n2l2c2t".parse().unwrap();
        assert_eq!(
            (shape.nodes, shape.llcs, shape.cores, shape.threads),
            (2, 2, 2, 2)
        );
        assert_eq!((shape.cpus(), shape.cpus_per_node()), (16, 8));
        assert_eq!((shape.distance(0, 0), shape.distance(0, 1)), (10, 20));
        assert_eq!("16c".parse::<Shape>().unwrap().to_string(), "1n1l16c1t");
        assert_eq!("4n2t".parse::<Shape>().unwrap().cpus(), 8);
    }

    /// Goal: every wrong shape is refused with a line that names it and says why. Method: one of each kind.
    #[test]
    fn wrong_shapes_are_refused() {
        for (text, why) in [
            ("", "empty"),
            ("0n2l", "zero CPUs"),
            ("2n0l2c", "zero CPUs"),
            ("64n64l2c", "more than 4096"),
            ("4294967295n2l", "more than 4096"),
            ("99999999999n", "no count"),
            ("2x", "no level"),
            ("2l2n", "out of order"),
            ("2n2n", "out of order"),
            ("2n2", "lacks a letter"),
            ("n2l", "no count"),
            ("2n2l2c3t", "3 threads"),
            ("2ü", "no level"),
        ] {
            let error = text.parse::<Shape>().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let line = error.to_string();
            assert!(
                line.contains(why) && line.contains(&format!("'{text}'")),
                "{text}: {line}"
            );
        }
        assert!("64n8c".parse::<Shape>().unwrap().check_bootable().is_err());
        let two: Shape = "2n".parse().unwrap();
        assert!(two.clone().with_distances(vec![10, 5, 20, 10]).is_err());
        assert_eq!(
            two.with_distances(vec![10, 31, 32, 10])
                .unwrap()
                .distance(1, 0),
            32
        );
    }
}
