// SPDX-License-Identifier: GPL-2.0-only
//! lab
pub mod agent;
pub mod apt;
pub mod btf;
pub mod cache;
pub mod cpio;
pub mod elf;
pub mod error;
pub mod fetch;
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
