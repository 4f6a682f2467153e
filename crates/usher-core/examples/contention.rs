// SPDX-License-Identifier: GPL-2.0-only
//! What the CPU priority map costs when CPUs fight for its lines, in the core's granularities, the kernel's form and the
//! proposal's, in one alternated run. A machine with several cores, or better several LLCs, has something to show.
//!
//! ```text
//! cargo run --release -p usher-core --example contention
//! ```

#[path = "../benches/common/mod.rs"]
mod common;
#[path = "../benches/common/contended.rs"]
mod contended;

fn main() {
    contended::print();
}
