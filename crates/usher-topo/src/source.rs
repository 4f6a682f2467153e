// SPDX-License-Identifier: GPL-2.0-only
//! Where a machine's description comes from.

use std::path::PathBuf;

use crate::error::TopoError;
use crate::raw::RawTopology;
use crate::{hwloc, machine, shape, synthetic, sysfs};

/// A description to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The running machine's `/sys`.
    Live,
    /// A captured sysfs tree: a directory that holds `sys/devices/system/...` or
    /// `devices/system/...`.
    Sysfs(PathBuf),
    /// An hwloc XML file, version 2 or 3.
    Hwloc(PathBuf),
    /// An hwloc synthetic string.
    Synthetic(String),
    /// A built-in machine's name, or the path of a machine file.
    Machine(String),
    /// A lab shape such as `2n2l2c2t`.
    Shape(String),
}

impl Source {
    /// Reads the description.
    ///
    /// # Errors
    /// Whatever makes it unreadable, in one line that names the place.
    pub fn read(&self) -> Result<RawTopology, TopoError> {
        match self {
            Self::Live => sysfs::read_live(),
            Self::Sysfs(dir) => sysfs::read(dir),
            Self::Hwloc(file) => hwloc::read(file),
            Self::Synthetic(text) => synthetic::parse(text),
            Self::Machine(name) => machine::load(name)?.to_raw(),
            Self::Shape(text) => shape::parse(text),
        }
    }
}
