// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF objects of `bpf/` and generates their skeletons; and the native side of `usher-parity`.

use anyhow::Context;
use scx_cargo::BpfBuilder;

fn main() -> anyhow::Result<()> {
    let root = format!("{}/../..", std::env::var("CARGO_MANIFEST_DIR")?);
    println!("cargo:rerun-if-changed=native");
    for dir in [
        "bpf",
        "core/env",
        "core/include/usher",
        "core/src",
        "core/tests",
    ] {
        println!("cargo:rerun-if-changed={root}/{dir}");
    }
    for (source, name) in [("main", "main"), ("parity", "parity")] {
        let mut builder = BpfBuilder::new().context(
            "no compiler for BPF: install clang 18 or later (Debian: clang-19) and set BPF_CLANG to it",
        )?;
        builder
            .add_include_path(&format!("{root}/core/env"))
            .add_cflag("-DUSHER_ENV=\"bpf.h\"")
            .enable_skel(&format!("{root}/bpf/{source}.bpf.c"), name)
            .build()
            .with_context(|| format!("cannot compile bpf/{source}.bpf.c"))?;
    }
    cc::Build::new()
        .file("native/parity.c")
        .include(format!("{root}/core/env"))
        .define("USHER_ENV", "\"native.h\"")
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .try_compile("usher_parity")
        .context("cannot compile native/parity.c")
}
