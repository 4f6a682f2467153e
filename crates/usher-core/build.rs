// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the placement core once per environment: the same sources, another `USHER_ENV`.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let crate_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let core = crate_dir.join("../../core");
    println!("cargo:rerun-if-changed={}", core.display());
    println!(
        "cargo:rerun-if-changed={}",
        crate_dir.join("shim").display()
    );
    for environment in ["native", "traced", "model", "recorded"] {
        compile(&crate_dir, &core, environment, environment);
    }
    for shim in [
        "bench",
        "bench_hinted",
        "bench_equal",
        "bench_cpupri",
        "masks",
    ] {
        compile(&crate_dir, &core, shim, "native");
    }
}

/// Compiles `shim/<shim>.c` against `core/env/<environment>.h`.
fn compile(crate_dir: &Path, core: &Path, shim: &str, environment: &str) {
    cc::Build::new()
        .file(crate_dir.join(format!("shim/{shim}.c")))
        .include(core.join("env"))
        .define("USHER_ENV", format!("\"{environment}.h\"").as_str())
        .std("gnu11")
        // The core is what is measured and simulated, in debug builds of the Rust side too.
        .opt_level(2)
        // As in a kernel, so that what is counted does not hang on what a compiler does with vectors.
        .flag_if_supported("-mgeneral-regs-only")
        .warnings(true)
        .extra_warnings(true)
        .compile(&format!("usher_{shim}"));
}
