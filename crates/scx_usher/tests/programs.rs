// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's programs as they were compiled: their stack, counted as the verifier counts it (`check_max_stack_depth()`), so
//! that a frame that has grown is told here and not by a kernel that refuses the scheduler; and what callbacks do first.

use std::collections::BTreeMap;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};

/// What all frames of a chain of calls may come to, in bytes.
const STACK: u64 = 512;
/// To so many bytes a frame is rounded up where programs are compiled.
const ROUNDED: u64 = 16;

const CALL: u8 = 0x85;
const MOV: u8 = 0xbf;
const ADD: u8 = 0x07;
const FRAME_POINTER: u8 = 10;
/// In place of a register, of a call: of another function of the object.
const PSEUDO_CALL: u8 = 1;

struct Insn {
    code: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

impl Insn {
    fn decode(bytes: &[u8]) -> Insn {
        Insn {
            code: bytes[0],
            dst: bytes[1] & 15,
            src: bytes[1] >> 4,
            off: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
        }
    }

    /// The base register of a load or a store.
    fn base(&self) -> Option<u8> {
        match self.code & 7 {
            1 => Some(self.src),
            2 | 3 => Some(self.dst),
            _ => None,
        }
    }

    /// Whether it writes its destination: no store and no jump.
    fn writes(&self) -> bool {
        !matches!(self.code & 7, 2 | 3 | 5 | 6)
    }
}

/// A section and an offset in it.
type At = (usize, u64);

struct Function {
    name: String,
    /// Bytes below the frame pointer that it uses.
    frame: u64,
    calls: Vec<At>,
}

/// How far below the frame pointer a function's instructions reach.
fn frame(insns: &[Insn]) -> u64 {
    let mut points = [false; 16]; // registers that hold the frame pointer
    let mut lowest = 0;
    for insn in insns {
        if insn.base() == Some(FRAME_POINTER) {
            lowest = lowest.min(insn.off.into());
        }
        if insn.code == ADD && points[usize::from(insn.dst)] {
            lowest = lowest.min(insn.imm);
        }
        if insn.writes() {
            points[usize::from(insn.dst)] = insn.code == MOV && insn.src == FRAME_POINTER;
        }
    }
    u64::from(lowest.unsigned_abs())
}

fn functions(file: &object::File) -> BTreeMap<At, Function> {
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text) {
        let Some(index) = symbol.section_index() else {
            continue;
        };
        let section = file.section_by_index(index).expect("a symbol's section");
        let relocations: BTreeMap<u64, RelocationTarget> = section
            .relocations()
            .map(|(at, relocation)| (at, relocation.target()))
            .collect();
        let (from, size) = (symbol.address(), symbol.size());
        let code = section.data().expect("code");
        let code = &code[from as usize..(from + size) as usize];
        let insns: Vec<Insn> = code.chunks_exact(8).map(Insn::decode).collect();
        let calls = insns.iter().zip((from..).step_by(8));
        let calls = calls
            .filter(|(insn, _)| insn.code == CALL && insn.src == PSEUDO_CALL)
            .filter_map(|(insn, at)| {
                let beyond = 8 * (i64::from(insn.imm) + 1);
                let Some(RelocationTarget::Symbol(target)) = relocations.get(&at) else {
                    return Some((index.0, at.wrapping_add_signed(beyond)));
                };
                let target = file.symbol_by_index(*target).expect("a symbol");
                // Else it is a function of the kernel's, whose stack is its own.
                let index = target.section_index()?;
                Some((index.0, target.address().wrapping_add_signed(beyond)))
            });
        let function = Function {
            name: symbol.name().expect("a name").to_owned(),
            frame: frame(&insns),
            calls: calls.collect(),
        };
        functions.insert((index.0, from), function);
    }
    functions
}

/// The chain of calls from a function on with the most stack: that, and each function with its own.
fn deepest(functions: &BTreeMap<At, Function>, at: At) -> (u64, Vec<(&str, u64)>) {
    let function = functions
        .get(&at)
        .unwrap_or_else(|| panic!("a call goes to {at:?}, where no function is"));
    let own = function.frame.max(1).next_multiple_of(ROUNDED);
    let below = function.calls.iter().map(|&to| deepest(functions, to));
    let (sum, mut chain) = below.max_by_key(|(sum, _)| *sum).unwrap_or_default();
    chain.insert(0, (&function.name, own));
    (own + sum, chain)
}

// Goal: the kernel's verifier finds room for every chain of calls, of the scheduler and of the program that replays.
// Catches: a frame of a search that has grown, which only machines whose CPUs differ would tell, and only in a kernel.
#[test]
fn frames_fit() {
    for (name, object) in [
        (
            "main",
            &include_bytes!(concat!(env!("OUT_DIR"), "/main.bpf.o"))[..],
        ),
        (
            "record",
            &include_bytes!(concat!(env!("OUT_DIR"), "/record.bpf.o"))[..],
        ),
        (
            "parity",
            &include_bytes!(concat!(env!("OUT_DIR"), "/parity.bpf.o"))[..],
        ),
    ] {
        let file = object::File::parse(object).expect("an ELF file");
        let functions = functions(&file);
        let chains = functions.keys().map(|&at| deepest(&functions, at));
        let (sum, chain) = chains.max_by_key(|(sum, _)| *sum).expect("functions");
        assert!(chain.len() >= 5, "{name}: calls are not found: {chain:?}");
        assert!(sum <= STACK, "{name}: {sum} bytes of {STACK}: {chain:?}");
    }
}

/// The variables that the loader sets or reads, and where each is.
fn variables(object: &[u8]) -> Vec<(String, String, u64, u64)> {
    let file = object::File::parse(object).expect("an ELF file");
    let mut all: Vec<_> = file
        .symbols()
        .filter_map(|symbol| {
            let section = file.section_by_index(symbol.section_index()?).ok()?;
            let section = section.name().ok()?.to_owned();
            let kept = [
                ".rodata",
                ".bss",
                ".data",
                ".data.uei_dump",
                ".struct_ops.link",
            ];
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            kept.contains(&section.as_str())
                .then(|| (section, name.to_owned(), symbol.address(), symbol.size()))
        })
        .collect();
    all.sort();
    all
}

// Goal: one skeleton serves both objects, the one that records and the other. Catches: a table that the compiler puts before the
// variables of one of them.
#[test]
fn both_objects_have_the_same_variables() {
    let plain = variables(include_bytes!(concat!(env!("OUT_DIR"), "/main.bpf.o")));
    let records = variables(include_bytes!(concat!(env!("OUT_DIR"), "/record.bpf.o")));
    assert!(plain.len() > 60, "{plain:?}");
    assert_eq!(plain, records);
}

// Goal: what a CPU queued last is looked for again before it queues anything else, or looks on behalf of another task: the model
// enumerates that (`duty_late_look()` in core/tests/duties.h), and so the callbacks have to do it. Method: the first function of
// ours that each of them calls, after the question whether the CPU is offline. Catches: a task that waits beside an idle CPU, since its
// CPU has queued another one.
#[test]
fn callbacks_look_again_first() {
    let object = &include_bytes!(concat!(env!("OUT_DIR"), "/main.bpf.o"))[..];
    let functions = functions(&object::File::parse(object).expect("an ELF file"));
    for callback in [
        "usher_select_cpu",
        "usher_enqueue",
        "usher_dispatch",
        "usher_tick",
    ] {
        let found = functions.values().find(|f| f.name == callback);
        let calls = &found.unwrap_or_else(|| panic!("no {callback}")).calls;
        let mut names = calls.iter().map(|at| functions[at].name.as_str());
        let first = names.find(|&name| name != "offline");
        assert_eq!(first, Some("late_look"), "{callback}");
    }
}
