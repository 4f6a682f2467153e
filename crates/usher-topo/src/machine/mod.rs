// SPDX-License-Identifier: GPL-2.0-only
//! Machine files: a machine as a person would describe it, in TOML, with the source of each figure.
//!
//! ```toml
//! name = "hybrid"                       # short name
//! title = "One line for people"
//! costs = "NAME"                        # the simulator's cost table, data/costs/NAME.toml; optional
//! numbering = "adjacent"                # how the kernel numbers the CPUs, see below
//! offline = "6"                         # CPUs that are not online; optional
//!
//! [provenance]                          # where each figure comes from; at least one entry
//! shape = "invented for this example"
//!
//! [distances]                           # SLIT; optional, defaults 10 and 20
//! same_socket = 12                      # between two nodes of one socket
//! remote = 32                           # between nodes of different sockets
//! # or, row by row in order of node id:  matrix = [[10, 32], [32, 10]]
//!
//! [[core_type]]                         # optional: without any, all cores are alike
//! name = "P"
//! capacity = 1024                       # what the kernel believes, 0 to 1024
//! speed_permille = 1000                 # measured; default: in proportion to capacity
//! cpu_power = 1441                      # of a 3.9-era kernel; optional
//! [[core_type]]
//! name = "E"
//! capacity = 640
//!
//! [[socket]]                            # the machine, from the outside in. `count` is 1 if left out
//! count = 1
//! [[socket.node]]
//! [[socket.node.llc]]
//! [[socket.node.llc.core]]              # two P cores of two threads, in no cluster
//! type = "P"
//! count = 2
//! threads = 2
//! [[socket.node.llc.core]]              # two L2 clusters of four E cores each
//! type = "E"
//! clusters = 2
//! count = 4
//!
//! # same_cluster = true                 # a further group in the last cluster of the group before
//!
//! [[memory_node]]                       # nodes without CPUs
//! id = 7
//! memory_bytes = 68719476736
//! ```
//!
//! Sockets and nodes are numbered from 0 in the order of the file, unless each has an `id`. A node `id`
//! that occurs in several places is one node: with NUMA off, one node spans the sockets.
//!
//! `numbering` is one of
//! - `siblings-last`: the first thread of every core in order of the file, then the second threads, and
//!   so on: usual on x86 servers;
//! - `adjacent`: in order of the file, threads of a core next to each other;
//! - a list such as `0-3,8-11`: the CPUs' numbers in order of the file, threads of a core next to each
//!   other.
//!
//! `offline` names CPUs that are off; those that the numbering gave a place are taken from it.

mod builtin;
mod expand;
mod file;
mod write;

pub use builtin::{builtin_names, builtin_text, load};
pub use file::{
    CoreGroup, CoreTypeEntry, Distances, LlcGroup, MachineFile, MemoryNode, NodeGroup, SocketGroup,
};
pub use write::write;
