// SPDX-License-Identifier: GPL-2.0-only
//! Just enough of ELF-64 (little endian) to find a section, the libraries a program needs and its
//! loader. Reads bytes it is given; every offset is checked, so a broken file is an error, not a panic.
//! Source: the System V ABI, chapters 4 and 5.

/// A view of one ELF file.
pub struct Elf<'a> {
    bytes: &'a [u8],
    sections: Vec<Section>,
}

/// One section header, the fields used here.
struct Section {
    name_offset: usize,
    kind: u32,
    link: u32,
    offset: usize,
    size: usize,
}

const SHT_DYNAMIC: u32 = 6;
const SHT_NOBITS: u32 = 8;
const DT_NEEDED: u64 = 1;
const DT_SONAME: u64 = 14;

/// Little-endian integer of `N` bytes at `at`, if it is inside.
pub(crate) fn uint<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let slice = bytes.get(at..at.checked_add(N)?)?;
    Some(
        slice
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | u64::from(byte)),
    )
}

/// NUL-terminated string at `at`.
pub(crate) fn c_string(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

impl<'a> Elf<'a> {
    /// Reads the headers; `None` when this is no 64-bit little-endian ELF file or its headers lie.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let table = uint::<8>(bytes, 0x28)? as usize;
        let entry_size = uint::<2>(bytes, 0x3a)? as usize;
        let count = uint::<2>(bytes, 0x3c)? as usize;
        let mut sections = Vec::with_capacity(count);
        for index in 0..count {
            let at = table.checked_add(index * entry_size)?;
            sections.push(Section {
                name_offset: uint::<4>(bytes, at)? as usize,
                kind: uint::<4>(bytes, at + 4)? as u32,
                offset: uint::<8>(bytes, at + 24)? as usize,
                size: uint::<8>(bytes, at + 32)? as usize,
                link: uint::<4>(bytes, at + 40)? as u32,
            });
        }
        Some(Elf { bytes, sections })
    }

    /// The instruction set, as the ABI numbers them.
    pub fn machine(&self) -> Option<u16> {
        Some(uint::<2>(self.bytes, 0x12)? as u16)
    }

    /// The contents of the section of this name.
    pub fn section(&self, name: &str) -> Option<&'a [u8]> {
        let names = self.sections.get(uint::<2>(self.bytes, 0x3e)? as usize)?;
        let names = self.contents(names)?;
        let found = self
            .sections
            .iter()
            .find(|s| c_string(names, s.name_offset) == Some(name))?;
        self.contents(found)
    }

    /// The shared libraries this file names, in its order.
    pub fn needed(&self) -> Vec<&'a str> {
        self.dynamic_strings(DT_NEEDED)
    }

    /// The name under which a shared library is asked for.
    pub fn soname(&self) -> Option<&'a str> {
        self.dynamic_strings(DT_SONAME).first().copied()
    }

    /// The program interpreter (`/lib64/ld-linux-x86-64.so.2`), absent in static programs and libraries.
    pub fn interpreter(&self) -> Option<&'a str> {
        c_string(self.section(".interp")?, 0)
    }

    fn contents(&self, section: &Section) -> Option<&'a [u8]> {
        if section.kind == SHT_NOBITS {
            return None;
        }
        self.bytes
            .get(section.offset..section.offset.checked_add(section.size)?)
    }

    fn dynamic_strings(&self, tag: u64) -> Vec<&'a str> {
        let Some(dynamic) = self.sections.iter().find(|s| s.kind == SHT_DYNAMIC) else {
            return Vec::new();
        };
        let strings = self
            .sections
            .get(dynamic.link as usize)
            .and_then(|s| self.contents(s));
        let (Some(entries), Some(strings)) = (self.contents(dynamic), strings) else {
            return Vec::new();
        };
        entries
            .chunks_exact(16)
            .filter(|entry| uint::<8>(entry, 0) == Some(tag))
            .filter_map(|entry| c_string(strings, uint::<8>(entry, 8)? as usize))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: needed libraries and interpreter are those of a real program. Method: this very test binary,
    /// which is dynamically linked against libc.
    #[test]
    fn reads_this_test_binary() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        assert!(elf.needed().contains(&"libc.so.6"), "{:?}", elf.needed());
        assert!(
            elf.interpreter().unwrap().contains("ld-linux"),
            "{:?}",
            elf.interpreter()
        );
        assert!(elf.section(".text").is_some_and(|text| !text.is_empty()));
        assert!(elf.section(".nonesuch").is_none());
        assert_eq!(elf.machine(), Some(crate::arch::Arch::X86_64.elf_machine()));
    }

    /// Goal: no cut or damaged file makes the reader panic. Method: every prefix of the first pages and
    /// damage in each header byte of a real file.
    #[test]
    fn damaged_files_are_no_panic() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for cut in 0..256 {
            if let Some(elf) = Elf::parse(&bytes[..cut]) {
                let _ = (elf.needed(), elf.section(".BTF"));
            }
        }
        let mut damaged = bytes.clone();
        for at in 0..64 {
            damaged[at] = 0xff;
            if let Some(elf) = Elf::parse(&damaged) {
                let _ = (elf.needed(), elf.interpreter(), elf.section(".BTF"));
            }
            damaged[at] = bytes[at];
        }
        assert!(Elf::parse(b"#!/bin/sh\n").is_none());
    }
}
