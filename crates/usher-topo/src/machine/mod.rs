// SPDX-License-Identifier: GPL-2.0-only
//! Machine files: a machine as a person would describe it, in TOML, with the source of each figure.
#![doc = include_str!("../../../../docs/MACHINES.md")]

mod builtin;
mod expand;
mod file;
mod write;

pub use builtin::{beside, builtin_names, builtin_text, is_path, load};
pub use file::{
    CoreGroup, CoreTypeEntry, Distances, LlcGroup, MachineFile, MemoryNode, NodeGroup, SocketGroup,
};
pub use write::write;
