// SPDX-License-Identifier: GPL-2.0-only
//! The emulator's command line for a guest of a given shape.
//!
//! In x86-64 guests each node is a socket and each LLC a die, because that is how the emulated Intel CPU describes
//! its caches: L3 per die, L2 per core. Guests with unequal CPUs are arm64, and a device tree describes them
//! ([`crate::device_tree`]). All of it is software emulation; see [`Time`] for what its time means.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::device_tree;
use crate::error::{LabError, Result};
use crate::fdt;
use crate::proto::{CHANNEL_NAME, CHANNEL_PORT};
use crate::shape::{Layout, Regular, Shape};
use crate::tool;

/// The arm64 board, made for virtual machines.
const ARM_BOARD: &str = "virt,gic-version=3";

/// The arm64 CPU: everything that the emulator knows, above all atomic instructions (Arm's LSE), without which the
/// kernel compiles no atomics on memory that BPF shares with a program. Pointer authentication and vectors of
/// variable length cost emulation time at every switch and serve nothing here.
const ARM_CPU: &str = "max,pauth=off,sve=off,sme=off";

/// What time means in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// All CPUs take turns on one host thread; time is the host's. Robust; shows function and relative cost.
    SingleThread,
    /// As before, but time is the count of executed instructions (two nanoseconds each), so it does not
    /// depend on the host's speed or load.
    Instructions {
        /// Seed of the guest's random numbers.
        seed: u64,
    },
    /// Every CPU is a host thread. Needs a bandwidth quota per thread for speed-up to be real, and now
    /// and then the emulator itself fails in it.
    MultiThread,
}

/// Everything that the command line depends on.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The emulator's program, by name or path.
    pub emulator: PathBuf,
    /// CPUs, nodes and caches.
    pub shape: Shape,
    /// What time means.
    pub time: Time,
    /// Memory in MiB over all nodes, rounded up to [`MEMORY_STEP_MIB`] per node.
    pub memory_mib: u64,
    /// The kernel's image, as [`crate::kernel::Kernel::image`].
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
    /// Where the kernel's console goes.
    pub console: PathBuf,
    /// Where the agent's frames go.
    pub channel: PathBuf,
    /// What describes an arm64 guest's CPUs to its kernel; see [`Machine::write_device_tree`].
    pub device_tree: Option<PathBuf>,
    /// More words for the kernel's command line.
    pub append: String,
}

/// Granularity of a node's memory, the guest's own for NUMA.
pub const MEMORY_STEP_MIB: u64 = 128;

/// Memory that a guest of this shape gets unless told otherwise, MiB: enough for the kernel, the image
/// and a few hundred tasks per CPU.
pub fn default_memory_mib(shape: &Shape) -> u64 {
    1024 + 32 * u64::from(shape.cpus())
}

impl Machine {
    /// The arguments, without the program's name.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut list = Arguments(Vec::new());
        list.add("-name", "usher-guest,debug-threads=on");
        match self.time {
            Time::SingleThread => list.add("-accel", "tcg,thread=single"),
            Time::MultiThread => list.add("-accel", "tcg,thread=multi"),
            Time::Instructions { seed } => {
                list.add("-accel", "tcg,thread=single");
                list.add("-icount", "shift=1,sleep=off");
                list.add("-seed", &seed.to_string());
                list.add("-rtc", "base=2026-01-01,clock=vm");
            }
        }
        match &self.shape.layout {
            Layout::Regular(regular) => {
                // No -M option that differs between emulator versions: q35 is the newest PC either way.
                list.add("-M", "q35");
                // The plain `max` model is AMD: one LLC per socket whatever the dies, and no usable TSC.
                list.add("-cpu", "max,vendor=GenuineIntel");
                self.x86_topology(regular, &mut list);
            }
            Layout::Unequal(_) => {
                list.add("-M", ARM_BOARD);
                self.arm_cpus(&mut list);
            }
        }
        list.add("-kernel", &self.kernel);
        list.add("-initrd", &self.initrd);
        list.add("-append", &self.kernel_command_line());
        if let Some(tree) = &self.device_tree {
            list.add("-dtb", tree);
        }
        for flag in BARE {
            list.0.push(flag.into());
        }
        list.add("-display", "none");
        list.add("-serial", &path_option("file:", &self.console));
        list.add(
            "-chardev",
            &path_option("file,id=channel,path=", &self.channel),
        );
        match self.shape.arch() {
            Arch::X86_64 => list.add(
                "-device",
                &format!("isa-debugcon,iobase={CHANNEL_PORT:#x},chardev=channel"),
            ),
            Arch::Arm64 => {
                list.add("-device", "virtio-serial-pci");
                list.add(
                    "-device",
                    &format!("virtserialport,chardev=channel,name={CHANNEL_NAME}"),
                );
            }
        }
        list.0
    }

    /// Writes the device tree for a guest with unequal CPUs: the emulator's own for this machine, with what each CPU
    /// is worth added.
    pub fn write_device_tree(&self, path: &Path) -> Result<()> {
        let mut list = Arguments(Vec::new());
        list.add("-M", &path_option(&format!("{ARM_BOARD},dumpdtb="), path));
        self.arm_cpus(&mut list);
        for flag in BARE {
            list.0.push(flag.into());
        }
        list.add("-display", "none");
        tool::output(&self.emulator.to_string_lossy(), &list.0)?;
        let bytes = crate::cache::read(path)?;
        let bad = |why| LabError::bad_file(path, format!("the emulator's device tree: {why}"));
        let mut tree = fdt::parse(&bytes).map_err(bad)?;
        device_tree::describe(&mut tree, self.shape.clusters()).map_err(bad)?;
        std::fs::write(path, fdt::write(&tree))
            .map_err(|error| LabError::io(path, "cannot write", error))
    }

    fn arm_cpus(&self, list: &mut Arguments) {
        list.add("-cpu", ARM_CPU);
        list.add("-smp", &self.shape.cpus().to_string());
        list.add("-m", &format!("{}M", self.memory_mib));
    }

    fn x86_topology(&self, regular: &Regular, list: &mut Arguments) {
        let Regular {
            nodes,
            llcs,
            cores,
            threads,
            ..
        } = *regular;
        let cpus = self.shape.cpus();
        list.add(
            "-smp",
            &format!("{cpus},sockets={nodes},dies={llcs},cores={cores},threads={threads}"),
        );
        let per_node = self
            .memory_mib
            .div_ceil(u64::from(nodes))
            .next_multiple_of(MEMORY_STEP_MIB);
        list.add("-m", &format!("{}M", per_node * u64::from(nodes)));
        let step = regular.cpus_per_node();
        for node in 0..nodes {
            list.add(
                "-object",
                &format!("memory-backend-ram,id=mem{node},size={per_node}M"),
            );
            let (first, last) = (node * step, node * step + step - 1);
            list.add(
                "-numa",
                &format!("node,nodeid={node},cpus={first}-{last},memdev=mem{node}"),
            );
        }
        for from in 0..nodes {
            for to in (0..nodes).filter(|&to| to != from) {
                let value = regular.distance(from, to);
                list.add("-numa", &format!("dist,src={from},dst={to},val={value}"));
            }
        }
    }

    fn kernel_command_line(&self) -> String {
        let mut words = vec![
            "rdinit=/init panic=-1 oops=panic loglevel=5",
            // The emulated CPU would pay for mitigations that it does not need.
            "mitigations=off",
            // CPUs take turns on few host threads: a CPU that is not run for long is normal here.
            "rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60",
        ];
        words.push(match self.shape.arch() {
            // Calibrating the timer and the TSC against each other fails at random on a loaded host.
            Arch::X86_64 => "console=ttyS0 lpj=8000000 no_timer_check tsc=reliable",
            Arch::Arm64 => "console=ttyAMA0",
        });
        if matches!(self.time, Time::Instructions { .. }) {
            words.push("nokaslr");
        }
        if !self.append.is_empty() {
            words.push(&self.append);
        }
        words.join(" ")
    }
}

/// No devices but those asked for, no files of the user's, and an end where the guest would start anew.
const BARE: [&str; 3] = ["-nodefaults", "-no-user-config", "-no-reboot"];

/// An option's argument list.
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add(&mut self, flag: &str, value: &(impl AsRef<std::ffi::OsStr> + ?Sized)) {
        self.0.push(flag.into());
        self.0.push(value.as_ref().into());
    }
}

/// A path as the value of an option; commas are doubled, as the emulator's option syntax asks.
fn path_option(prefix: &str, path: &std::path::Path) -> String {
    format!("{prefix}{}", path.to_string_lossy().replace(',', ",,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(shape: &str, time: Time) -> String {
        let shape: Shape = shape.parse().unwrap();
        let machine = Machine {
            emulator: "/e".into(),
            memory_mib: default_memory_mib(&shape),
            shape,
            time,
            kernel: "/k".into(),
            initrd: "/i".into(),
            console: "/a,b".into(),
            channel: "/c".into(),
            device_tree: Some("/d".into()),
            append: "extra".into(),
        };
        let list = machine.arguments();
        list.iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Goal: nodes become sockets with their own memory and CPUs, LLCs dies, distances all pairs.
    /// Method: the words for one shape, and for one with a single node.
    #[test]
    fn shape_becomes_topology() {
        let text = arguments("2n2l2c2t", Time::SingleThread);
        for want in [
            "-smp 16,sockets=2,dies=2,cores=2,threads=2",
            "-m 1536M",
            "-object memory-backend-ram,id=mem1,size=768M",
            "-numa node,nodeid=1,cpus=8-15,memdev=mem1",
            "-numa dist,src=0,dst=1,val=20",
            "-numa dist,src=1,dst=0,val=20",
            "-accel tcg,thread=single",
            "file:/a,,b",
            "mitigations=off",
            "extra",
        ] {
            assert!(text.contains(want), "{want} not in {text}");
        }
        assert!(!arguments("4c", Time::SingleThread).contains("dist,"));
    }

    /// Goal: unequal CPUs are those of an arm64 board with a device tree, and nothing of a PC is left. Method: the
    /// words for one such shape.
    #[test]
    fn unequal_shapes_are_another_machine() {
        let text = arguments("4b4l", Time::MultiThread);
        for want in [
            "-M virt,gic-version=3 ",
            "-smp 8 ",
            "-m 1280M",
            "-dtb /d",
            "console=ttyAMA0",
            "virtserialport,chardev=channel",
        ] {
            assert!(text.contains(want), "{want} not in {text}");
        }
        for other in ["q35", "-numa", "debugcon", "tsc="] {
            assert!(!text.contains(other), "{other} in {text}");
        }
    }

    /// Goal: counted instructions come with everything that makes them repeatable, and only then.
    #[test]
    fn counted_instructions_are_seeded() {
        let text = arguments("4c", Time::Instructions { seed: 7 });
        for want in [
            "-icount shift=1,sleep=off",
            "-seed 7",
            "clock=vm",
            "nokaslr",
        ] {
            assert!(text.contains(want), "{want} not in {text}");
        }
        let text = arguments("4c", Time::MultiThread);
        assert!(
            text.contains("thread=multi") && !text.contains("icount"),
            "{text}"
        );
    }
}
