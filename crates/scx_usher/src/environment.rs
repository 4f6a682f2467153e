// SPDX-License-Identifier: GPL-2.0-only
//! Is this a machine that usher can run on? Asked before anything is loaded.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::failure::Failure;

/// What the checks look at.
pub struct Environment<'a> {
    /// `/sys`, or a stand-in.
    pub sys: &'a Path,
    /// The effective user id.
    pub uid: u32,
    /// What the kernel was booted with.
    pub command_line: &'a str,
}

impl Environment<'_> {
    /// The first thing that is missing, as one line that says what, where and what to do.
    pub fn check(&self) -> Result<(), Failure> {
        let btf = self.sys.join("kernel/btf/vmlinux");
        self.has_sched_ext()?;
        if !btf.exists() {
            return Err(Failure::Environment(format!(
                "this kernel does not describe its types ({} is missing): boot one with CONFIG_DEBUG_INFO_BTF=y",
                btf.display()
            )));
        }
        if self.uid != 0 {
            return Err(Failure::Environment(format!(
                "user {} may not attach a scheduler: run scx_usher as root",
                self.uid
            )));
        }
        if let Some(cpus) = usher_topo::isolated_cpus(self.command_line) {
            return Err(Failure::Environment(format!(
                "isolcpus= takes CPUs {cpus} out of balancing, and the kernel attaches no sched_ext scheduler then: boot without it"
            )));
        }
        nobody_attached(self.sys)
    }

    /// Whether any such scheduler can be there.
    pub fn has_sched_ext(&self) -> Result<(), Failure> {
        let ext = self.sys.join("kernel/sched_ext");
        if ext.is_dir() {
            return Ok(());
        }
        Err(Failure::Environment(format!(
            "this kernel has no sched_ext ({} is missing): boot Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT=y",
            ext.display()
        )))
    }
}

/// Whether another scheduler is in the way.
pub fn nobody_attached(sys: &Path) -> Result<(), Failure> {
    let ext = sys.join("kernel/sched_ext");
    let state = fs::read_to_string(ext.join("state")).unwrap_or_default();
    if matches!(state.trim(), "" | "disabled") {
        return Ok(());
    }
    let ops = fs::read_to_string(ext.join("root/ops")).unwrap_or_default();
    let name = match ops.trim() {
        "" => "another scheduler",
        ops => &format!("the scheduler `{ops}`"),
    };
    Err(Failure::Environment(format!(
        "{name} is attached already ({} is `{}`): stop it first",
        ext.join("state").display(),
        state.trim()
    )))
}

/// A kernel whose description of its functions is wrong cannot load any sched_ext scheduler.
pub fn check_btf() -> Result<(), Failure> {
    match scx_utils::compat::malformed_scx_kfuncs().as_slice() {
        [] => Ok(()),
        bad => Err(Failure::Environment(format!(
            "this kernel describes {} of its functions wrongly (such as {}), so no sched_ext scheduler loads: \
             boot a kernel built with pahole 1.31 or later",
            bad.len(),
            bad[0]
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn sys(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("scx_usher-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for (file, text) in files {
            let path = dir.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn says(dir: &Path, uid: u32) -> String {
        let here = Environment {
            sys: dir,
            uid,
            command_line: "quiet",
        };
        let result = here.check();
        let _ = fs::remove_dir_all(dir);
        result.map_or_else(|failure| failure.to_string(), |()| "fine".into())
    }

    // Goal: each lack is named, with the place and the remedy, and only a machine that lacks nothing passes.
    // Method: made-up /sys trees that lack one thing each.
    #[test]
    fn each_lack_is_named() {
        let btf = ("kernel/btf/vmlinux", "");
        let state = ("kernel/sched_ext/state", "disabled\n");
        let text = says(&sys("ext", &[btf]), 0);
        assert!(
            text.contains("no sched_ext") && text.contains("6.12"),
            "{text}"
        );
        let text = says(&sys("btf", &[state]), 0);
        assert!(text.contains("kernel/btf/vmlinux is missing"), "{text}");
        let text = says(&sys("uid", &[btf, state]), 1000);
        assert!(
            text.contains("user 1000") && text.contains("as root"),
            "{text}"
        );
        let taken = [
            btf,
            ("kernel/sched_ext/state", "enabled\n"),
            ("kernel/sched_ext/root/ops", "bpfland_1.1.4\n"),
        ];
        let text = says(&sys("taken", &taken), 0);
        assert!(
            text.contains("`bpfland_1.1.4` is attached already"),
            "{text}"
        );
        assert_eq!(says(&sys("fine", &[btf, state]), 0), "fine");
    }

    // Goal: CPUs out of balancing, with which no sched_ext scheduler attaches, are named before the kernel refuses.
    #[test]
    fn isolated_cpus_are_named() {
        let files = [
            ("kernel/btf/vmlinux", ""),
            ("kernel/sched_ext/state", "disabled\n"),
        ];
        let dir = sys("isolated", &files);
        let here = Environment {
            sys: &dir,
            uid: 0,
            command_line: "quiet isolcpus=2-3",
        };
        let text = here.check().map_err(|failure| failure.to_string());
        let _ = fs::remove_dir_all(&dir);
        assert!(text.is_err_and(|text| text.contains("takes CPUs 2-3 out of balancing")));
    }
}
