// SPDX-License-Identifier: GPL-2.0-only
//! Reads a kernel's BTF (its own type information) far enough to judge whether sched_ext schedulers can
//! load on it.
//!
//! Since Linux 7.1 many sched_ext kfuncs take a last argument that the verifier supplies by itself. The
//! kernel's build is to hide it: `scx_bpf_X` without it for BPF programs, `scx_bpf_X_impl` with it for
//! the kernel. Some distributors' builds left it visible in `scx_bpf_X`; then every scheduler's calls
//! have one argument too few and fail to load. That is what [`Btf::implicit_argument_left`] looks for.
//! Format: the kernel's Documentation/bpf/btf.rst.

use crate::elf::uint;

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_CONST: u32 = 10;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// The kernel's own BTF inside a raw image of the kernel (an arm64 `Image`), which has no table of sections.
///
/// Looked for by the header's first 12 bytes, which say everything that is fixed in one (magic, version 1, no flags,
/// 24 bytes of header, types right behind it), and taken only if its parts lie one behind the other and its strings
/// begin with the empty one, as both must. Of several the largest: the kernel describes thousands of types.
pub fn find_in(image: &[u8]) -> Option<&[u8]> {
    const BEGINNING: [u8; 12] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0];
    let sections = (0..image.len().saturating_sub(BEGINNING.len()))
        .step_by(4)
        .filter(|&at| image[at..].starts_with(&BEGINNING))
        .filter_map(|at| {
            let field = |index: usize| uint::<4>(image, at + index * 4).map(|v| v as usize);
            let (types, strings_at, strings) = (field(3)?, field(4)?, field(5)?);
            let section = image.get(at..at.checked_add(24 + types)?.checked_add(strings)?)?;
            (strings_at == types && section.get(24 + types) == Some(&0)).then_some(section)
        });
    sections.max_by_key(|section| section.len())
}

/// A parsed `.BTF` section.
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type's record begins in `types`; type id 1 is at index 0.
    offsets: Vec<usize>,
}

/// One function argument.
#[derive(Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// Name as in the source, empty when it has none.
    pub name: &'a str,
    /// The structure that it points to, if it is a pointer to a named structure.
    pub points_to: Option<&'a str>,
}

/// One record's first three words.
struct Record {
    name: usize,
    kind: u32,
    vlen: usize,
    /// Size or referenced type, by kind.
    target: usize,
}

impl<'a> Btf<'a> {
    /// Parses a raw `.BTF` section; the error says what is wrong with it.
    pub fn parse(section: &'a [u8]) -> Result<Self, String> {
        let field = |at| {
            uint::<4>(section, at)
                .map(|v| v as usize)
                .ok_or("header cut short")
        };
        if uint::<2>(section, 0) != Some(0xeb9f) {
            return Err("no BTF magic".into());
        }
        let header = field(4)?;
        let slice = |offset: usize, length: usize| {
            let start = header.checked_add(offset)?;
            section.get(start..start.checked_add(length)?)
        };
        let types = slice(field(8)?, field(12)?).ok_or("types outside the section")?;
        let strings = slice(field(16)?, field(20)?).ok_or("strings outside the section")?;
        let mut btf = Btf {
            types,
            strings,
            offsets: Vec::new(),
        };
        let mut at = 0;
        while at < types.len() {
            let record = btf.record_at(at).ok_or("type cut short")?;
            btf.offsets.push(at);
            at += 12 + trailing_len(&record)?;
        }
        Ok(btf)
    }

    /// The arguments of the function of this name, `None` when there is no such function.
    pub fn arguments(&self, function: &str) -> Option<Vec<Argument<'a>>> {
        self.functions()
            .find(|(name, _)| *name == function)
            .map(|(_, proto)| self.proto(proto))
    }

    /// Names of all functions that begin with this prefix.
    pub fn functions_named(&self, prefix: &str) -> Vec<&'a str> {
        self.functions()
            .map(|(name, _)| name)
            .filter(|name| name.starts_with(prefix))
            .collect()
    }

    /// True when a structure of this name exists (how features are probed: by presence).
    pub fn has_struct(&self, wanted: &str) -> bool {
        self.offsets.iter().any(|&at| {
            self.record_at(at).is_some_and(|record| {
                record.kind == KIND_STRUCT && self.string(record.name) == wanted
            })
        })
    }

    /// True when some enumeration has a value of this name.
    pub fn has_enumerator(&self, wanted: &str) -> bool {
        let records = (self.offsets.iter()).filter_map(|&at| Some((at, self.record_at(at)?)));
        let mut enumerators = records.flat_map(|(at, record)| {
            let (count, size) = match record.kind {
                KIND_ENUM => (record.vlen, 8),
                KIND_ENUM64 => (record.vlen, 12),
                _ => (0, 0),
            };
            (0..count).filter_map(move |index| uint::<4>(self.types, at + 12 + index * size))
        });
        enumerators.any(|name| self.string(name as usize) == wanted)
    }

    /// The first sched_ext kfunc that still shows the argument meant only for the kernel, if any.
    ///
    /// A kfunc is wrong when its last argument is the hidden `struct bpf_prog_aux *` and it is not one
    /// of the `_impl` twins, which keep that argument on purpose. Before 7.1 such arguments were named
    /// `aux__prog`, a suffix by which the verifier knows to supply them: those are right.
    pub fn implicit_argument_left(&self) -> Option<&'a str> {
        self.functions()
            .filter(|(name, _)| name.starts_with("scx_bpf_") && !name.ends_with("_impl"))
            .find(|&(_, proto)| {
                self.proto(proto).last().is_some_and(|last| {
                    last.points_to == Some("bpf_prog_aux") && !last.name.ends_with("__prog")
                })
            })
            .map(|(name, _)| name)
    }

    fn functions(&self) -> impl Iterator<Item = (&'a str, usize)> + '_ {
        self.offsets.iter().filter_map(|&at| {
            let record = self.record_at(at)?;
            (record.kind == KIND_FUNC).then(|| (self.string(record.name), record.target))
        })
    }

    fn proto(&self, type_id: usize) -> Vec<Argument<'a>> {
        let Some(&at) = type_id
            .checked_sub(1)
            .and_then(|index| self.offsets.get(index))
        else {
            return Vec::new();
        };
        let Some(record) = self.record_at(at).filter(|r| r.kind == KIND_FUNC_PROTO) else {
            return Vec::new();
        };
        (0..record.vlen)
            .filter_map(|index| {
                let name = uint::<4>(self.types, at + 12 + index * 8)? as usize;
                let id = uint::<4>(self.types, at + 16 + index * 8)? as usize;
                Some(Argument {
                    name: self.string(name),
                    points_to: self.pointee(id),
                })
            })
            .collect()
    }

    /// The name of the structure behind a pointer, qualifiers skipped.
    fn pointee(&self, type_id: usize) -> Option<&'a str> {
        let mut id = type_id;
        let mut through_pointer = false;
        // Chains are a pointer and at most a few qualifiers; the bound keeps a looping file harmless.
        for _ in 0..8 {
            let record = self.record_at(*self.offsets.get(id.checked_sub(1)?)?)?;
            match record.kind {
                KIND_STRUCT if through_pointer => return Some(self.string(record.name)),
                KIND_PTR if !through_pointer => through_pointer = true,
                // const, volatile, restrict and type tags pass through; 9 is volatile, 11 restrict.
                KIND_CONST | 9 | 11 | 18 => {}
                _ => return None,
            }
            id = record.target;
        }
        None
    }

    fn record_at(&self, at: usize) -> Option<Record> {
        let info = uint::<4>(self.types, at + 4)? as u32;
        Some(Record {
            name: uint::<4>(self.types, at)? as usize,
            kind: info >> 24 & 0x1f,
            vlen: (info & 0xffff) as usize,
            target: uint::<4>(self.types, at + 8)? as usize,
        })
    }

    fn string(&self, offset: usize) -> &'a str {
        crate::elf::c_string(self.strings, offset).unwrap_or("")
    }
}

/// Bytes that follow the three words of a record.
fn trailing_len(record: &Record) -> Result<usize, String> {
    Ok(match record.kind {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => record.vlen * 12,
        KIND_ENUM | KIND_FUNC_PROTO => record.vlen * 8,
        KIND_PTR | 7..=12 | 16 | 18 => 0,
        other => return Err(format!("type kind {other} is unknown")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds small BTF sections by hand.
    #[derive(Default)]
    struct Builder {
        types: Vec<u8>,
        strings: Vec<u8>,
        count: u32,
    }

    impl Builder {
        fn name(&mut self, name: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            let at = self.strings.len() as u32;
            self.strings.extend_from_slice(name.as_bytes());
            self.strings.push(0);
            at
        }

        fn record(&mut self, name: &str, kind: u32, vlen: u32, target: u32, rest: &[u32]) -> u32 {
            let name = self.name(name);
            for word in [name, kind << 24 | vlen, target].iter().chain(rest) {
                self.types.extend_from_slice(&word.to_le_bytes());
            }
            self.count += 1;
            self.count
        }

        /// A function whose last argument is a pointer to `pointee`.
        fn function(&mut self, name: &str, argument: &str, pointee: u32) {
            let constant = self.record("", KIND_CONST, 0, pointee, &[]);
            let pointer = self.record("", KIND_PTR, 0, constant, &[]);
            let argument = self.name(argument);
            let proto = self.record("", KIND_FUNC_PROTO, 1, 0, &[argument, pointer]);
            self.record(name, KIND_FUNC, 1, proto, &[]);
        }

        fn finish(self) -> Vec<u8> {
            let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
            let mut out = vec![0x9f, 0xeb, 1, 0];
            for word in [24, 0, types, types, strings] {
                out.extend_from_slice(&u32::to_le_bytes(word));
            }
            out.extend(self.types);
            out.extend(self.strings);
            out
        }
    }

    fn section(function: &str, argument: &str, pointee: &str) -> Vec<u8> {
        let mut builder = Builder::default();
        builder.record("int", KIND_INT, 0, 4, &[32]);
        let pointee = builder.record(pointee, KIND_STRUCT, 0, 8, &[]);
        builder.function(function, argument, pointee);
        builder.finish()
    }

    /// Goal: exactly the kernels whose build left the hidden argument visible are refused.
    /// Method: hand-made sections, one property changed at a time.
    #[test]
    fn implicit_argument_is_found_where_it_is_wrong_only() {
        let verdict = |function, argument, pointee| {
            let bytes = section(function, argument, pointee);
            Btf::parse(&bytes)
                .unwrap()
                .implicit_argument_left()
                .map(str::to_string)
        };
        let wrong = verdict("scx_bpf_kick_cpu", "aux", "bpf_prog_aux");
        assert_eq!(wrong.as_deref(), Some("scx_bpf_kick_cpu"));
        assert_eq!(
            verdict("scx_bpf_kick_cpu_impl", "aux", "bpf_prog_aux"),
            None
        );
        assert_eq!(
            verdict("scx_bpf_kick_cpu", "aux__prog", "bpf_prog_aux"),
            None
        );
        assert_eq!(verdict("scx_bpf_kick_cpu", "p", "task_struct"), None);
        assert_eq!(verdict("bpf_other_kfunc", "aux", "bpf_prog_aux"), None);
    }

    /// Goal: names, arguments and structures are read right. Method: one hand-made function.
    #[test]
    fn functions_and_structures_are_read() {
        let bytes = section("scx_bpf_select", "p", "task_struct");
        let btf = Btf::parse(&bytes).unwrap();
        let want = Argument {
            name: "p",
            points_to: Some("task_struct"),
        };
        assert_eq!(btf.arguments("scx_bpf_select").unwrap(), [want]);
        assert!(btf.arguments("scx_bpf_nonesuch").is_none());
        assert!(btf.has_struct("task_struct") && !btf.has_struct("sched_ext_ops"));
        assert_eq!(btf.functions_named("scx_"), ["scx_bpf_select"]);
    }

    /// Goal: values of enumerations are found, of either size, and nothing else is. Method: one of each, the value wanted in the middle.
    #[test]
    fn enumerators_are_found() {
        let mut builder = Builder::default();
        let names = ["A", "B", "C"].map(|name| builder.name(name));
        let small: Vec<u32> = names.iter().flat_map(|&name| [name, 0]).collect();
        let names = ["D", "E", "F"].map(|name| builder.name(name));
        let large: Vec<u32> = names.iter().flat_map(|&name| [name, 0, 1]).collect();
        builder.record("X", KIND_ENUM, 3, 4, &small);
        builder.record("Y", KIND_ENUM64, 3, 8, &large);
        builder.record("Z", KIND_STRUCT, 0, 8, &[]);
        let bytes = builder.finish();
        let btf = Btf::parse(&bytes).unwrap();
        assert!(["A", "B", "C", "D", "E", "F"]
            .iter()
            .all(|name| btf.has_enumerator(name)));
        assert!(!["X", "Y", "Z", ""]
            .iter()
            .any(|name| btf.has_enumerator(name)));
    }

    /// Goal: the kernel's BTF is found in a raw image, and what only looks like it is not taken. Method: a section
    /// between others: one whose strings lie elsewhere, one that is cut off, a smaller one.
    #[test]
    fn sections_are_found_in_raw_images() {
        let wanted = section("scx_bpf_select_with_a_long_name", "p", "task_struct");
        let mut apart = wanted.repeat(2);
        apart[16] ^= 4;
        let small = section("f", "p", "s");
        let mut image = vec![0; 64];
        for part in [&apart, &small, &wanted, &small] {
            image.extend(part);
            image.resize(image.len().next_multiple_of(8), 0xff);
        }
        image.extend(&wanted.repeat(3)[..wanted.len() - 1]);
        assert_eq!(find_in(&image), Some(&wanted[..]));
        assert_eq!(find_in(&image[..64]), None);
    }

    /// Goal: damaged sections are errors or harmless, never a panic. Method: every cut and every byte
    /// overwritten in turn.
    #[test]
    fn damaged_sections_are_no_panic() {
        let bytes = section("scx_bpf_select", "p", "task_struct");
        for cut in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] = 0xff;
            if let Ok(btf) = Btf::parse(&damaged) {
                let _ = (
                    btf.implicit_argument_left(),
                    btf.arguments("scx_bpf_select"),
                );
            }
        }
    }
}
