// SPDX-License-Identifier: GPL-2.0-only
//! The two sides of the comparison: the same memory layout, the same stream, different hosts.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use anyhow::{bail, Context, Result};
use libbpf_rs::libbpf_sys::bpf_map__initial_value;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{AsRawLibbpf, OpenObject, ProgramInput};
use usher_core::{build_into, bytes_needed, Foreign, Settings, Statistics, Tables};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/parity_skel.rs"));
}
use skel::{ParitySkel, ParitySkelBuilder};

const PAGE: usize = 4096;

/// `struct usher_stream` of `core/tests/stream.h`.
#[repr(C)]
struct Stream {
    random: u64,
    hash: u64,
    steps: u64,
    placed: u64,
    vtime: u64,
    now_ns: u64,
    queued: *mut u64,
    burst: [u64; 2],
    util: [u64; 2],
    pair: [u64; 8],
    follow: [u32; 3],
    allowed: [u64; usher_core::MAX_CIDS / 64],
    found: [u64; usher_core::MAX_CIDS / 64],
}

extern "C" {
    fn usher_parity_stream_bytes() -> u64;
    fn usher_parity_replay(u: *mut u8, stream: *mut Stream, steps: u32);
}

/// What must be equal after the same steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Of everything that the core returned.
    pub hash: u64,
    /// Of the stream's generator.
    pub random: u64,
    /// Operations done.
    pub steps: u64,
    /// Of those, placements.
    pub placed: u64,
    /// Virtual time of the task placed last.
    pub vtime: u64,
}

/// A machine and a stream on it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The machine.
    pub tables: Tables,
    /// How the core runs on it.
    pub settings: Settings,
    /// What the stream begins with.
    pub seed: u64,
}

/// Tables, stream and queue lengths, one behind the other.
struct Memory {
    start: NonNull<u8>,
    stream_at: usize,
    core: Foreign,
}

/// Where the stream and the queue lengths are, and the end.
fn offsets(setting: &Setting) -> Result<(usize, usize, usize)> {
    let stream = bytes_needed(&setting.tables, &setting.settings)?.next_multiple_of(64);
    let queued = stream + size_of::<Stream>();
    Ok((stream, queued, queued + 8 * setting.tables.nr_queues()))
}

impl Memory {
    /// Builds into memory that is zeroed and large enough.
    fn build(setting: &Setting, start: NonNull<u8>) -> Result<Self> {
        let (stream_at, queued_at, _) = offsets(setting)?;
        // SAFETY: says the caller.
        let core = unsafe {
            let stream: *mut Stream = start.as_ptr().add(stream_at).cast();
            (*stream).random = setting.seed;
            (*stream).queued = start.as_ptr().add(queued_at).cast();
            build_into(
                &setting.tables,
                &setting.settings,
                start.as_ptr(),
                stream_at,
            )?
        };
        Ok(Self {
            start,
            stream_at,
            core,
        })
    }

    fn stream(&self) -> *mut Stream {
        // SAFETY: within the memory.
        unsafe { self.start.as_ptr().add(self.stream_at).cast() }
    }

    fn state(&self) -> State {
        // SAFETY: nobody runs on this memory now.
        let stream = unsafe { &*self.stream() };
        State {
            hash: stream.hash,
            random: stream.random,
            steps: stream.steps,
            placed: stream.placed,
            vtime: stream.vtime,
        }
    }

    fn statistics(&self) -> Statistics {
        // SAFETY: the memory is alive.
        unsafe { self.core.statistics() }
    }
}

/// One side.
pub trait Side {
    /// Does so many more operations.
    fn replay(&mut self, steps: u32) -> Result<()>;
    /// How far it is.
    fn state(&self) -> State;
    /// What the core counted.
    fn statistics(&self) -> Statistics;
}

/// The core in this process.
pub struct Native {
    memory: Memory,
    layout: Layout,
}

impl Native {
    /// At the beginning of the stream.
    pub fn new(setting: &Setting) -> Result<Self> {
        // SAFETY: no arguments.
        let (here, there) = (size_of::<Stream>() as u64, unsafe {
            usher_parity_stream_bytes()
        });
        if here != there {
            bail!("struct usher_stream has {there} bytes in C and {here} here");
        }
        let layout = Layout::from_size_align(offsets(setting)?.2, PAGE)?;
        // SAFETY: not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).context("no memory")?;
        Ok(Self {
            memory: Memory::build(setting, start)?,
            layout,
        })
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory.start.as_ptr(), self.layout) }
    }
}

impl Side for Native {
    fn replay(&mut self, steps: u32) -> Result<()> {
        // SAFETY: both stand in the memory, which only this thread uses.
        unsafe { usher_parity_replay(self.memory.start.as_ptr(), self.memory.stream(), steps) };
        Ok(())
    }

    fn state(&self) -> State {
        self.memory.state()
    }

    fn statistics(&self) -> Statistics {
        self.memory.statistics()
    }
}

/// The core in the kernel.
pub struct Kernel<'obj> {
    memory: Memory,
    skel: ParitySkel<'obj>,
}

impl<'obj> Kernel<'obj> {
    /// Loads the program, at the beginning of the stream.
    pub fn new(setting: &Setting, storage: &'obj mut MaybeUninit<OpenObject>) -> Result<Self> {
        let (stream_at, queued_at, bytes) = offsets(setting)?;
        let mut skel = ParitySkelBuilder::default().open(storage)?;
        skel.maps
            .usher_arena
            .set_max_entries(bytes.div_ceil(PAGE).try_into()?)?;
        let mut skel = skel
            .load()
            .context("cannot load the program (root is needed)")?;
        let mut size = 0;
        let map = skel.maps.usher_arena.as_libbpf_object();
        // SAFETY: the map is alive; libbpf mapped the arena when it created it.
        let start = unsafe { bpf_map__initial_value(map.as_ptr(), &mut size) };
        let start = NonNull::new(start.cast::<u8>()).context("libbpf did not map the arena")?;
        // SAFETY: so many bytes are mapped; writing makes the kernel put pages there.
        unsafe { start.as_ptr().write_bytes(0, bytes.next_multiple_of(PAGE)) };
        let memory = Memory::build(setting, start)?;
        let bss = skel
            .maps
            .bss_data
            .as_mut()
            .context("the object has no .bss")?;
        bss.usher_root = start.as_ptr() as _;
        bss.usher_stream = (start.as_ptr() as usize + stream_at) as _;
        bss.usher_queued = (start.as_ptr() as usize + queued_at) as _;
        Ok(Self { memory, skel })
    }
}

impl Side for Kernel<'_> {
    fn replay(&mut self, steps: u32) -> Result<()> {
        self.skel
            .maps
            .bss_data
            .as_mut()
            .context("the object has no .bss")?
            .usher_steps = steps;
        let result = self
            .skel
            .progs
            .usher_replay
            .test_run(ProgramInput::default());
        result.context("the kernel does not run the program")?;
        match self
            .skel
            .maps
            .bss_data
            .as_ref()
            .map(|bss| bss.usher_gave_up)
        {
            Some(0) => Ok(()),
            _ => bail!(
                "the kernel ended a loop before its end: this machine is too slow to compare on"
            ),
        }
    }

    fn state(&self) -> State {
        self.memory.state()
    }

    fn statistics(&self) -> Statistics {
        self.memory.statistics()
    }
}
