// SPDX-License-Identifier: GPL-2.0-only
//! The instruction sets of guests, and what hangs on them: names of packages, folders, programs.
//!
//! Guests are x86-64, as the machine that runs the lab, unless their CPUs are of unequal strength: then they are
//! arm64, because no emulated x86 machine tells its kernel of that, while a device tree does.

use std::fmt;

use crate::error::LabError;

/// An instruction set of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    /// x86-64, that of the machine that runs the lab: its own programs and libraries serve guests too.
    X86_64,
    /// 64-bit Arm. Everything in such a guest is fetched or built for it.
    Arm64,
}

impl Arch {
    /// The distribution's name, as in its packages.
    pub fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// The end of a kernel release of the flavour for virtual machines: small, with all they need built in.
    pub fn kernel_flavour(self) -> &'static str {
        match self {
            Arch::X86_64 => "-cloud-amd64",
            Arch::Arm64 => "-cloud-arm64",
        }
    }

    /// The folder of libraries below `lib` and `usr/lib`.
    pub fn library_folder(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-linux-gnu",
            Arch::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// The Rust compiler's name for it.
    pub fn rust_target(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-unknown-linux-gnu",
            Arch::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The emulator's program.
    pub fn emulator(self) -> &'static str {
        match self {
            Arch::X86_64 => "qemu-system-x86_64",
            Arch::Arm64 => "qemu-system-aarch64",
        }
    }

    /// What installs the emulator and everything else that guests of this kind need.
    pub fn setup(self) -> &'static str {
        match self {
            Arch::X86_64 => "make setup",
            Arch::Arm64 => "make guests-arm64",
        }
    }

    /// `e_machine` of its ELF files.
    pub fn elf_machine(self) -> u16 {
        match self {
            Arch::X86_64 => 62,
            Arch::Arm64 => 183,
        }
    }

    /// That of a kernel release such as `6.18.15+deb13-cloud-arm64`.
    pub fn of_release(release: &str) -> Self {
        match release.ends_with("arm64") {
            true => Arch::Arm64,
            false => Arch::X86_64,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Arch::X86_64 => "x86-64",
            Arch::Arm64 => "arm64",
        })
    }
}

impl std::str::FromStr for Arch {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        [Arch::X86_64, Arch::Arm64]
            .into_iter()
            .find(|arch| arch.to_string() == text)
            .ok_or_else(|| LabError::Usage {
                what: "architecture",
                value: text.into(),
                why: "known are x86-64 and arm64".into(),
            })
    }
}
