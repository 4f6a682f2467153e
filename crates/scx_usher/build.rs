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
    for (source, env, name) in [
        ("main", "bpf", "main"),
        ("main", "bpf_recorded", "record"),
        ("parity", "bpf", "parity"),
        ("waits", "bpf", "waits"),
    ] {
        let mut builder = BpfBuilder::new().context(
            "no compiler for BPF: install clang 18 or later (Debian: clang-19) and set BPF_CLANG to it",
        )?;
        builder
            .add_include_path(&format!("{root}/core/env"))
            .add_cflag(&format!("-DUSHER_ENV=\"{env}.h\""))
            .enable_skel(&format!("{root}/bpf/{source}.bpf.c"), name)
            .build()
            .with_context(|| format!("cannot compile bpf/{source}.bpf.c"))?;
    }
    choose_object()?;
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

/// Makes the skeleton ask `src/skel.rs` which of its two objects to open. Both have the same maps, programs and variables
/// (`tests/programs.rs` compares them), so that one skeleton serves both.
fn choose_object() -> anyhow::Result<()> {
    let path = format!("{}/main_skel.rs", std::env::var("OUT_DIR")?);
    let skeleton = std::fs::read_to_string(&path)?;
    let plain = "ObjectSkeletonConfigBuilder::new(&DATA)";
    anyhow::ensure!(
        skeleton.matches(plain).count() == 1,
        "libbpf-cargo writes skeletons in another way than build.rs knows: `{plain}` is not in {path} once"
    );
    let chosen = "ObjectSkeletonConfigBuilder::new(crate::skel::object(&DATA))";
    std::fs::write(&path, skeleton.replace(plain, chosen))?;
    Ok(())
}
