// SPDX-License-Identifier: GPL-2.0-only
//! The emulator's command line for a guest of a given shape.
//!
//! Each node is a socket and each LLC a die, because that is how the emulated Intel CPU describes its
//! caches: L3 per die, L2 per core. All of it is software emulation; see [`Time`] for what its time means.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::proto::CHANNEL_PORT;
use crate::shape::Shape;

/// The emulator's program.
pub const PROGRAM: &str = "qemu-system-x86_64";

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
    /// CPUs, nodes and caches.
    pub shape: Shape,
    /// What time means.
    pub time: Time,
    /// Memory in MiB over all nodes, rounded up to [`MEMORY_STEP_MIB`] per node.
    pub memory_mib: u64,
    /// The kernel's ELF image.
    pub vmlinux: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
    /// Where the kernel's console goes.
    pub console: PathBuf,
    /// Where the agent's frames go.
    pub channel: PathBuf,
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
        // No -M option that differs between emulator versions: q35 is the newest PC either way.
        list.add("-M", "q35");
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
        // The plain `max` model is AMD: one LLC per socket whatever the dies, and no usable TSC.
        list.add("-cpu", "max,vendor=GenuineIntel");
        self.topology(&mut list);
        list.add("-kernel", &self.vmlinux);
        list.add("-initrd", &self.initrd);
        list.add("-append", &self.kernel_command_line());
        for flag in ["-nodefaults", "-no-user-config", "-no-reboot"] {
            list.0.push(flag.into());
        }
        list.add("-display", "none");
        list.add("-serial", &path_option("file:", &self.console));
        list.add(
            "-chardev",
            &path_option("file,id=channel,path=", &self.channel),
        );
        list.add(
            "-device",
            &format!("isa-debugcon,iobase={CHANNEL_PORT:#x},chardev=channel"),
        );
        list.0
    }

    fn topology(&self, list: &mut Arguments) {
        let Shape {
            nodes,
            llcs,
            cores,
            threads,
            ..
        } = self.shape;
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
        let step = self.shape.cpus_per_node();
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
                let value = self.shape.distance(from, to);
                list.add("-numa", &format!("dist,src={from},dst={to},val={value}"));
            }
        }
    }

    fn kernel_command_line(&self) -> String {
        let mut words = vec![
            "console=ttyS0 rdinit=/init panic=-1 oops=panic loglevel=5",
            // Without these the emulated Intel CPU pays for its mitigations, and calibrating the timer and
            // the TSC against each other fails at random on a loaded host.
            "mitigations=off lpj=8000000 no_timer_check tsc=reliable",
            // CPUs take turns on few host threads: a CPU that is not run for long is normal here.
            "rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60",
        ];
        if matches!(self.time, Time::Instructions { .. }) {
            words.push("nokaslr");
        }
        if !self.append.is_empty() {
            words.push(&self.append);
        }
        words.join(" ")
    }
}

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
            memory_mib: default_memory_mib(&shape),
            shape,
            time,
            vmlinux: "/k".into(),
            initrd: "/i".into(),
            console: "/a,b".into(),
            channel: "/c".into(),
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
