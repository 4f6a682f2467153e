// SPDX-License-Identifier: GPL-2.0-only
//! The generated skeleton of `bpf/main.bpf.c`.
#![allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]

include!(concat!(env!("OUT_DIR"), "/main_skel.rs"));
