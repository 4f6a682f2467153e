// SPDX-License-Identifier: GPL-2.0-only
//! Programs of their own that usher turns into: those with BPF objects.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{Code, Failure};

/// Becomes the program of that name that lies beside usher, or else the one in PATH; returns only if neither can be run.
pub fn become_it(name: &str, arguments: &[OsString]) -> Failure {
    let program = std::env::current_exe()
        .ok()
        .and_then(|usher| beside(&usher, name))
        .unwrap_or_else(|| name.into());
    let error = Command::new(&program).args(arguments).exec();
    let what = format!(
        "{}: {error}; `make build` builds it, beside usher",
        program.display()
    );
    Failure::new(Code::Environment, what)
}

/// The program in the same folder, if there is one.
fn beside(usher: &Path, name: &str) -> Option<PathBuf> {
    let program = usher.with_file_name(name);
    program.is_file().then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the program that was built with this one comes before any other of that name.
    #[test]
    fn the_one_beside_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let usher = dir.path().join("usher");
        assert_eq!(beside(&usher, "scx_usher"), None);
        std::fs::write(dir.path().join("scx_usher"), "").unwrap();
        assert_eq!(
            beside(&usher, "scx_usher"),
            Some(dir.path().join("scx_usher"))
        );
    }
}
