// SPDX-License-Identifier: GPL-2.0-only
//! sysfs: the running machine's, or a captured tree.
//!
//! A captured tree has the layout of the real one below some directory: `DIR/sys/devices/system/...`,
//! as other sched_ext tools expect it too. `DIR` may also be the `sys` directory itself, or
//! `sys/devices/system`. Directories stand for the links of the real tree.
//!
//! Kernels, virtual machines and captures leave things out. What is read, and what stands in for it:
//!
//! | fact     | from                                  | else |
//! |----------|---------------------------------------|------|
//! | online   | `cpu/online`                          | the `cpuN` directories, but those with `online` 0 |
//! | offline  | `cpu/present` that are not online     | the other `cpuN` directories |
//! | core     | `topology/core_cpus_list`             | `thread_siblings_list`, else a core of its own |
//! | package  | `topology/physical_package_id`        | 0, also where the kernel says -1 |
//! | LLC      | the highest `cache/indexN` of level 2 or more that is not for instructions: `shared_cpu_list`, else `shared_cpu_map` | the die (`topology/die_cpus_list`), else the package |
//! | cluster  | the level 2 cache if the LLC is higher and the L2 is wider than the core | `topology/cluster_cpus_list` |
//! | capacity | `cpu_capacity`                        | with Intel's hybrid PMUs (`/sys/devices/cpu_core`, `cpu_atom`), the ratio of their `cpuinfo_max_freq`; else 1024 |
//! | node     | `node/nodeN/cpulist`                  | `node/nodeN/cpuM`, else `cpu/cpuM/nodeN`, else the first node, else node 0 |
//! | distance | `node/nodeN/distance`                 | 10 and 20 |
//! | memory   | `node/nodeN/meminfo`                  | unknown |
//!
//! Per-CPU turbo frequencies are not taken for capacities on purpose: they would make every favoured
//! core a tier of its own where the kernel sees equals.

mod read;
mod write;

pub use read::{read, read_live};
pub use write::write;
