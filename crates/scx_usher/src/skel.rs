// SPDX-License-Identifier: GPL-2.0-only
//! The generated skeleton of `bpf/main.bpf.c`, of which there are two objects that differ in code alone: one records decisions.
#![allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]

use std::sync::atomic::{AtomicBool, Ordering};

/// The one that records.
static RECORDER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/record.bpf.o"));
static RECORDS: AtomicBool = AtomicBool::new(false);

/// From now on the object that is opened is the one that records.
pub fn record() {
    RECORDS.store(true, Ordering::Relaxed);
}

/// Whether it is.
pub fn records() -> bool {
    RECORDS.load(Ordering::Relaxed)
}

/// Asked by the skeleton, as build.rs has arranged.
fn object(plain: &'static [u8]) -> &'static [u8] {
    if records() {
        RECORDER
    } else {
        plain
    }
}

include!(concat!(env!("OUT_DIR"), "/main_skel.rs"));
