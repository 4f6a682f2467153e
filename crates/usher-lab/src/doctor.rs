// SPDX-License-Identifier: GPL-2.0-only
//! What this machine lacks: for running `scx_usher` on its own kernel, and for booting guests.
//!
//! Nothing is loaded, fetched or changed. Features are probed by what the kernel's BTF names, never by its version: a
//! series may be built without them, and another may have them backported.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::arch::Arch;
use crate::btf::Btf;
use crate::cache::Cache;
use crate::error::Result;
use crate::{fetch, kernel, tool};

/// What the kernel tells of sched_ext, below the root.
const SCHED_EXT: &str = "sys/kernel/sched_ext";

/// What a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// `scx_usher` on the running kernel.
    Scheduler,
    /// Guests: `usher lab`.
    Lab,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is there.
    Fine,
    /// Its part works without it, but for what the remedy names.
    Optional,
    /// Its part does not work without it.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Who needs it.
    pub part: Part,
    /// What it is.
    pub name: &'static str,
    /// Whether it is there.
    pub state: State,
    /// What was found, and where.
    pub found: String,
    /// What to do; empty if all is well.
    pub remedy: String,
}

impl Check {
    fn fine(part: Part, name: &'static str, found: impl Into<String>) -> Check {
        Check {
            part,
            name,
            state: State::Fine,
            found: found.into(),
            remedy: String::new(),
        }
    }

    fn missing(
        part: Part,
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        Check {
            state: State::Missing,
            remedy: remedy.into(),
            ..Check::fine(part, name, found)
        }
    }

    /// Only part of what it is about depends on it.
    fn optional(self) -> Check {
        Check {
            state: State::Optional,
            ..self
        }
    }
}

/// The machine to look at.
#[derive(Debug)]
pub struct Machine<'a> {
    /// `/`, or a stand-in.
    pub root: &'a Path,
    /// The effective user id.
    pub uid: u32,
    /// The running kernel's release.
    pub release: &'a str,
}

impl Machine<'_> {
    /// What `scx_usher` needs of the running kernel, in the order in which it asks for it.
    pub fn scheduler(&self) -> Vec<Check> {
        let part = Part::Scheduler;
        let mut checks = vec![self.sched_ext()];
        checks.extend(self.types());
        checks.push(match self.uid {
            0 => Check::fine(part, "root", "user 0"),
            uid => Check::missing(
                part,
                "root",
                format!("user {uid} may not attach a scheduler"),
                "run scx_usher with sudo",
            ),
        });
        checks.extend(self.isolated());
        checks.push(self.attached());
        checks
    }

    /// CPUs that are out of balancing keep all sched_ext schedulers away.
    fn isolated(&self) -> Option<Check> {
        let line = fs::read_to_string(self.root.join("proc/cmdline")).ok()?;
        let cpus = usher_topo::isolated_cpus(&line)?;
        Some(Check::missing(
            Part::Scheduler,
            "no isolated CPUs",
            format!("isolcpus= takes CPUs {cpus} out of balancing: the kernel attaches no sched_ext scheduler then"),
            "boot without isolcpus=, or with other flags of it (nohz, managed_irq); cpusets keep tasks off CPUs as well",
        ))
    }

    fn sched_ext(&self) -> Check {
        let (part, name) = (Part::Scheduler, "sched_ext");
        if self.root.join(SCHED_EXT).is_dir() {
            return Check::fine(part, name, format!("in Linux {}", self.release));
        }
        let off = fs::read_to_string(self.root.join(format!("boot/config-{}", self.release)))
            .is_ok_and(|text| text.contains("# CONFIG_SCHED_CLASS_EXT is not set"));
        let found = match off {
            true => format!("Linux {} was built without it", self.release),
            false => format!("not in Linux {}: no /sys/kernel/sched_ext", self.release),
        };
        let remedy = "boot Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT=y";
        Check::missing(part, name, found, remedy)
    }

    /// BTF, and what it says that the kernel can do.
    fn types(&self) -> Vec<Check> {
        let (part, name) = (Part::Scheduler, "types (BTF)");
        let file = "/sys/kernel/btf/vmlinux";
        let Ok(bytes) = fs::read(self.root.join(&file[1..])) else {
            let remedy = "boot a kernel with CONFIG_DEBUG_INFO_BTF=y";
            return vec![Check::missing(part, name, format!("no {file}"), remedy)];
        };
        let btf = match Btf::parse(&bytes) {
            Ok(btf) => btf,
            Err(why) => {
                let remedy = "boot a kernel whose BTF is whole";
                return vec![Check::missing(part, name, format!("{file}: {why}"), remedy)];
            }
        };
        let mut checks = vec![match btf.implicit_argument_left() {
            None => Check::fine(part, name, file),
            Some(function) => Check::missing(
                part,
                name,
                format!("{file} describes functions wrongly, such as {function}: no sched_ext scheduler loads"),
                "boot a kernel built with pahole 1.31 or later",
            ),
        }];
        if !self.root.join(SCHED_EXT).is_dir() {
            return checks;
        }
        let has_function = |function| btf.arguments(function).is_some();
        let mut feature = |name, there, what: &str, remedy: &str| {
            checks.push(match there {
                true => Check::fine(part, name, what),
                false => Check::missing(part, name, format!("no {what}"), remedy).optional(),
            });
        };
        feature(
            "placement hints",
            has_function("security_task_prctl"),
            "security_task_prctl()",
            "scx_usher serves no hints without it: boot a kernel with CONFIG_SECURITY=y",
        );
        feature(
            "idle masks per node",
            has_function("scx_bpf_pick_idle_cpu_node"),
            "scx_bpf_pick_idle_cpu_node()",
            "only `scx_usher --idle builtin-node` needs it: Linux 6.15",
        );
        let flag = "SCX_OPS_ALLOW_QUEUED_WAKEUP";
        feature(
            "queued wakeups",
            btf.has_enumerator(flag),
            flag,
            "with several last-level caches wakers queue on other CPUs by themselves, which costs them more: Linux 6.15",
        );
        checks
    }

    fn attached(&self) -> Check {
        let (part, name) = (Part::Scheduler, "no other scheduler");
        let read = |file: &str| {
            let path = self.root.join(SCHED_EXT).join(file);
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let (state, ops) = (read("state"), read("root/ops"));
        match &*state {
            "" | "disabled" => Check::fine(part, name, "none attached"),
            _ if ops.starts_with("usher") => Check::fine(part, name, format!("`{ops}` runs here")),
            _ => Check::missing(
                part,
                name,
                format!("sched_ext is {state} with `{ops}`"),
                "end that scheduler first",
            ),
        }
    }
}

/// What guests need: an emulator, kernels that schedulers load on, and programs.
///
/// # Errors
/// The cache's folder cannot be read.
pub fn lab(cache: &Cache) -> Result<Vec<Check>> {
    let part = Part::Lab;
    let cached = kernel::cached(cache)?;
    let mut checks = Vec::new();
    for arch in [Arch::X86_64, Arch::Arm64] {
        let setup = arch.setup();
        let (emulator, kernels, programs) = match arch {
            Arch::X86_64 => ("emulator", "kernels", "programs"),
            Arch::Arm64 => ("emulator, arm64", "kernels, arm64", "programs, arm64"),
        };
        let missing = |name, found: String| {
            let check = Check::missing(part, name, found, setup);
            match arch {
                Arch::X86_64 => check,
                // Shapes with strong and weak CPUs alone need them, and the first such guest gets them by itself.
                Arch::Arm64 => Check {
                    remedy: format!("only shapes such as 4b4l need it: {setup}"),
                    ..check.optional()
                },
            }
        };
        let program = fetch::emulator_program(cache, arch);
        checks.push(match tool::find(&program.to_string_lossy()) {
            Some(file) => Check::fine(part, emulator, file.display().to_string()),
            None => missing(emulator, format!("no {}", arch.emulator())),
        });
        let fit = cached
            .iter()
            .filter(|k| k.arch == arch && k.unfit.is_none())
            .map(|k| k.release.as_str());
        let fit: Vec<&str> = fit.collect();
        checks.push(match fit.is_empty() {
            true => missing(
                kernels,
                format!("none in {}", cache.path("kernels").display()),
            ),
            false => Check::fine(part, kernels, fit.join(", ")),
        });
        checks.push(match fetch::has_programs(cache, arch) {
            true => Check::fine(part, programs, "in the cache"),
            false => missing(programs, "not in the cache".into()),
        });
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(root: &'a Path, uid: u32) -> Machine<'a> {
        Machine {
            root,
            uid,
            release: "6.18.0-test",
        }
    }

    fn state_of(checks: &[Check], name: &str) -> State {
        let check = checks.iter().find(|c| c.name == name);
        check.unwrap_or_else(|| panic!("{name}: {checks:?}")).state
    }

    fn put(root: &Path, file: &str, contents: &[u8]) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    // Goal: whatever the scheduler needs and this machine lacks is named, each with its remedy, also several at once.
    // Method: a made-up root that lacks everything; then one thing after another is put there.
    #[test]
    fn each_lack_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let lacks = |uid| -> Vec<&'static str> {
            let checks = at(root, uid).scheduler();
            let missing = checks.iter().filter(|c| c.state == State::Missing);
            assert!(missing.clone().all(|c| !c.remedy.is_empty()));
            missing.map(|c| c.name).collect()
        };
        let all = ["sched_ext", "types (BTF)", "root"];
        assert_eq!(lacks(1000), all);
        put(root, "sys/kernel/sched_ext/state", b"disabled\n");
        assert_eq!(lacks(1000), all[1..]);
        put(root, "sys/kernel/btf/vmlinux", b"not BTF");
        assert_eq!(lacks(0), all[1..2], "a file that is no BTF is no better");
        put(root, "sys/kernel/sched_ext/state", b"enabled\n");
        put(root, "sys/kernel/sched_ext/root/ops", b"bpfland_1.1.4\n");
        assert_eq!(lacks(0), ["types (BTF)", "no other scheduler"]);
        put(root, "sys/kernel/sched_ext/root/ops", b"usher_0.1.0\n");
        assert_eq!(lacks(0), ["types (BTF)"], "usher itself is not in its way");
        put(root, "proc/cmdline", b"quiet isolcpus=2-3\n");
        assert_eq!(lacks(0), ["types (BTF)", "no isolated CPUs"]);
    }

    // Goal: a kernel that could have sched_ext and was built without it is told from one too old for it.
    // Method: the two settings files.
    #[test]
    fn built_without_sched_ext() {
        let dir = tempfile::tempdir().unwrap();
        let found = || at(dir.path(), 0).scheduler()[0].found.clone();
        assert!(found().contains("no /sys/kernel/sched_ext"), "{}", found());
        let off = b"CONFIG_HZ=250\n# CONFIG_SCHED_CLASS_EXT is not set\n";
        put(dir.path(), "boot/config-6.18.0-test", off);
        assert!(found().contains("built without it"), "{}", found());
    }

    // Goal: with an empty cache guests lack kernels and programs; what only arm64 guests need does not count as missing.
    // Method: a cache of its own.
    #[test]
    fn an_empty_cache_lacks_guests() {
        let checks = lab(&Cache::temporary("doctor")).unwrap();
        assert_eq!(state_of(&checks, "kernels"), State::Missing);
        assert_eq!(state_of(&checks, "programs"), State::Missing);
        assert_eq!(state_of(&checks, "kernels, arm64"), State::Optional);
    }
}
