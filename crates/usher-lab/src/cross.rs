// SPDX-License-Identifier: GPL-2.0-only
//! usher's own programs as guests run them, and what guests of another architecture need before their first boot.
//!
//! x86-64 guests run the very programs beside this one. For arm64 guests a kernel, a shell, programs and libraries
//! are fetched into the cache, and `scripts/guests-arm64` installs an emulator and a compiler and builds usher's
//! programs into another folder. `make guests-arm64` asks for all of that, or here the first arm64 guest, after
//! saying what will happen.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::arch::Arch;
use crate::cache::Cache;
use crate::error::{LabError, Result};
use crate::fetch;
use crate::kernel;

/// Name of the program that runs as process number 1 in guests.
pub const AGENT: &str = "usher-guest";

/// Programs that every arm64 guest can be asked for.
const OWN_PROGRAMS: [&str; 3] = [AGENT, "scx_usher", "usher"];

/// The script, in the source tree that this program was built in.
const SCRIPT: &str = "scripts/guests-arm64";

/// One of usher's own programs, as guests of this architecture run it.
pub fn own_program(arch: Arch, name: &str) -> Option<PathBuf> {
    let this = std::env::current_exe().ok()?;
    own_program_beside(&this, arch, name)
}

/// The same for the program `this`: in its folder or one above (where cargo puts test programs' folder), else where `make
/// build` puts it, if that is a test; for another architecture where cargo puts what it builds for that, beside the folder of
/// `this` or of the folder above.
fn own_program_beside(this: &Path, arch: Arch, name: &str) -> Option<PathBuf> {
    let folders = this.parent()?.ancestors();
    let mut candidates: Vec<PathBuf> = match arch {
        Arch::X86_64 => {
            let built = folders.skip(2).take(1).map(|above| above.join("release"));
            let near = folders.take(2).map(Path::to_path_buf);
            near.chain(built).map(|folder| folder.join(name)).collect()
        }
        Arch::Arm64 => {
            let built = Path::new(arch.rust_target()).join("release");
            let above = folders.skip(1).take(2);
            above.map(|folder| folder.join(&built).join(name)).collect()
        }
    };
    candidates.retain(|path| path.is_file());
    candidates.into_iter().next()
}

/// Makes sure that guests of this architecture can be booted with a kernel of this series, getting what is missing
/// if that needs no more than this program's own cache or its source tree.
pub fn prepare(cache: &Cache, arch: Arch, series: &str, say: &mut dyn FnMut(&str)) -> Result<()> {
    if arch == Arch::X86_64 {
        return Ok(());
    }
    if matches!(
        kernel::find(cache, series, arch),
        Err(LabError::Missing { .. })
    ) {
        say(&format!(
            "first guest with a kernel {series} for {arch}: its package goes into the cache"
        ));
        fetch::kernels(cache, arch, &[series], say)?;
    }
    if !fetch::has_programs(cache, arch) {
        say(&format!(
            "first {arch} guest: programs and libraries for it go into the cache"
        ));
        fetch::programs(cache, arch, say)?;
        fetch::emulator(cache, arch, say)?;
    }
    // Last: usher's own programs are linked with libraries among those just fetched.
    let built = OWN_PROGRAMS
        .iter()
        .all(|name| own_program(arch, name).is_some());
    if !built || !is_installed(arch.emulator()) {
        build(arch, say)?;
    }
    Ok(())
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs the script that installs the emulator and a compiler, and builds usher's programs with it.
fn build(arch: Arch, say: &mut dyn FnMut(&str)) -> Result<()> {
    let missing = |what: String| LabError::Missing {
        what,
        remedy: format!("run `{}` in usher's source tree", arch.setup()),
    };
    let this =
        std::env::current_exe().map_err(|e| LabError::io("/proc/self/exe", "cannot read", e))?;
    let script = this
        .ancestors()
        .map(|folder| folder.join(SCRIPT))
        .find(|path| path.is_file());
    let Some(script) = script else {
        return Err(missing(format!(
            "the emulator or usher's own programs for {arch} guests are not there"
        )));
    };
    say(&format!(
        "first {arch} guest: {} installs an emulator and a compiler for {arch} (Debian packages, and Rust's library \
         for it) and builds usher's programs; minutes, once",
        script.display()
    ));
    let status = Command::new(&script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| LabError::io(&script, "cannot run", error))?;
    match status.success() {
        true => Ok(()),
        false => Err(missing(format!("{} ended with {status}", script.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: programs are found where cargo puts them, for a program and for a test of it. Method: folders as cargo
    /// makes them.
    #[test]
    fn own_programs_are_found_where_cargo_puts_them() {
        let target = tempfile::tempdir().expect("a folder");
        let target = target.path();
        let file = |path: &str| {
            let path = target.join(path);
            std::fs::create_dir_all(path.parent().expect("inside")).expect("created");
            std::fs::write(&path, b"").expect("written");
            path
        };
        let own = file("release/scx_usher");
        let arm = file("aarch64-unknown-linux-gnu/release/scx_usher");
        for this in ["release/usher", "debug/deps/capacity-1"] {
            let found = |arch, name| own_program_beside(&target.join(this), arch, name);
            assert_eq!(
                found(Arch::Arm64, "scx_usher").as_ref(),
                Some(&arm),
                "{this}"
            );
            assert_eq!(found(Arch::Arm64, "usher"), None, "{this}");
        }
        let found = |this| own_program_beside(&target.join(this), Arch::X86_64, "scx_usher");
        assert_eq!(found("release/usher").as_ref(), Some(&own));
        // A test alone may be built in its profile, and no program.
        assert_eq!(found("debug/deps/preempt-1").as_ref(), Some(&own));
        let nearer = file("debug/scx_usher");
        assert_eq!(found("debug/deps/preempt-1"), Some(nearer));
    }
}
