// SPDX-License-Identifier: GPL-2.0-only
//! Boots real Linux kernels in emulated machines and runs real programs in them, under the kernel's own
//! scheduler, under usher, and under other sched_ext schedulers.
//!
//! ```text
//!   request ──lab──> image + machine ──runner──> guest: agent runs the steps ──frames──> report
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`lab`] | from a request (shape, kernel, schedulers, command) to results; alternates and repeats |
//! | [`here`] | the same comparison on the machine at hand, without a guest |
//! | [`doctor`] | what this machine lacks for a scheduler of its own, and for guests |
//! | [`report`] | results as JSON and as tables |
//! | [`kernel`], [`btf`], [`elf`] | guest kernels: found, unpacked, and refused when no scheduler could load |
//! | [`fetch`], [`apt`], [`cache`] | kernels and programs from the distribution into usher's own cache folder |
//! | [`image`], [`cpio`] | the guest's initramfs: busybox, programs with their libraries, the agent |
//! | [`shape`], [`qemu`], [`quota`] | the emulated machine: nodes, LLCs, cores, threads, and what its time means |
//! | [`arch`], [`cross`] | guests of another architecture, which unequal CPUs need: what is different, where it comes from |
//! | [`device_tree`], [`fdt`] | what such a guest's kernel is told of its strong and weak CPUs |
//! | [`runner`], [`proto`] | boots one guest, watches it, collects its frames; a dead guest is an error |
//! | [`agent`] | the other side: process number 1 in the guest |
//! | [`scheduler`], [`metric`] | which schedulers there are; what benchmark programs print |
//!
//! Three things that a newcomer should know:
//!
//! - **Emulated time is not speed.** All CPUs of a guest take turns on one host thread
//!   ([`qemu::Time::SingleThread`]), so times show overhead. Counted instructions
//!   ([`qemu::Time::Instructions`]) make such ratios repeatable. Only quotas ([`quota`]) make more CPUs mean
//!   more work done, and some CPUs do less than others.
//! - **One boot, many runs.** Times differ between boots more than between schedulers, so a comparison
//!   alternates within a boot, or gives every run a boot of its own that starts in the same state.
//! - **The guest never hangs the host.** It panics into an error, stalls into an error, and ends with this
//!   process.

pub mod agent;
pub mod apt;
pub mod arch;
pub mod btf;
pub mod cache;
pub mod cpio;
pub mod cross;
pub mod device_tree;
pub mod doctor;
pub mod elf;
pub mod error;
pub mod fdt;
pub mod fetch;
pub mod here;
pub mod image;
pub mod kernel;
pub mod lab;
pub mod metric;
pub mod proto;
pub mod qemu;
pub mod quota;
pub mod report;
pub mod runner;
pub mod scheduler;
pub mod shape;
pub mod tool;

pub use error::{LabError, Result};
