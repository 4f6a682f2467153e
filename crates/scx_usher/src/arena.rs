// SPDX-License-Identifier: GPL-2.0-only
//! The memory that the BPF programs and this process share: the core's tables, and a block per CPU.

use std::ptr::{addr_of, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{bail, Result};
use libbpf_rs::libbpf_sys::bpf_map__initial_value;
use libbpf_rs::{AsRawLibbpf, MapImpl};
use usher_core::{build_into, bytes_needed, Foreign, Settings, Statistics, Tables};

use crate::groups::{Shares, Sharing};
use crate::record::{Rings, Shape};
use crate::shared::{HostCpu, HINT_CALLS, HOST_EVENTS, LEVELS};

/// Bytes of a page of the arena.
const PAGE: usize = 4096;

/// Where things stand in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    tables: usize,
    cpus: usize,
    /// Room for so many control groups, if they count.
    groups: Option<u32>,
    /// Behind those, where decisions are recorded.
    rings: Option<Shape>,
}

impl Layout {
    /// For a machine, for so many control groups if they count, and for recording its decisions if they are.
    pub fn of(
        tables: &Tables,
        settings: &Settings,
        groups: Option<u32>,
        rings: Option<Shape>,
    ) -> Result<Self> {
        Ok(Self {
            tables: bytes_needed(tables, settings)?.next_multiple_of(64),
            cpus: tables.nr_cids(),
            groups,
            rings,
        })
    }

    fn groups_at(self) -> usize {
        (self.tables + self.cpus * size_of::<HostCpu>()).next_multiple_of(64)
    }

    /// How many control groups there is room for; 0: they do not count.
    pub fn groups(self) -> u32 {
        self.groups.unwrap_or(0)
    }

    /// Where the rings begin.
    fn rings_at(self) -> usize {
        let groups = self
            .groups
            .map_or(0, |groups| Sharing::bytes(groups, self.cpus));
        (self.groups_at() + groups).next_multiple_of(64)
    }

    /// How many pages the arena needs.
    pub fn pages(self) -> u32 {
        let bytes = self.rings_at() + self.rings.map_or(0, Shape::bytes);
        u32::try_from(bytes.div_ceil(PAGE)).expect("a few megabytes")
    }
}

/// Arenas built so far.
static BUILT: AtomicU64 = AtomicU64::new(0);

/// The arena of a loaded object. Valid while the object is.
pub struct Arena {
    /// Which of all: counters of another begin at 0 again.
    number: u64,
    start: NonNull<u8>,
    layout: Layout,
    core: Foreign,
    sharing: Option<Sharing>,
    rings: Option<Rings>,
}

// SAFETY: all fields but those of the core, which is Send, describe memory that is only read from here on, or written a word at a time.
unsafe impl Send for Arena {}

impl Arena {
    /// Builds the tables. The object of the map is loaded, not attached, and outlives the arena.
    pub fn build<T>(
        map: &MapImpl<'_, T>,
        layout: Layout,
        tables: &Tables,
        settings: &Settings,
    ) -> Result<Self>
    where
        for<'a> MapImpl<'a, T>: AsRawLibbpf<LibbpfType = libbpf_rs::libbpf_sys::bpf_map>,
    {
        let mut size = 0;
        // SAFETY: the map is alive; libbpf mapped the arena when it created it.
        let start = unsafe { bpf_map__initial_value(map.as_libbpf_object().as_ptr(), &mut size) };
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            bail!("libbpf did not map the arena");
        };
        let bytes = layout.pages() as usize * PAGE;
        // SAFETY: so many bytes are mapped, and nobody uses them yet. Writing makes the kernel put pages there:
        // BPF programs find none that this process has not touched.
        let core = unsafe {
            start.as_ptr().write_bytes(0, bytes);
            build_into(tables, settings, start.as_ptr(), layout.tables)?
        };
        let sharing = layout.groups.map(|groups| {
            // SAFETY: within the arena, zeroed, and nobody uses it yet.
            unsafe { Sharing::build(start.as_ptr().add(layout.groups_at()), groups, layout.cpus) }
        });
        let rings = layout.rings.map(|shape| {
            // SAFETY: within the arena, zeroed, and nobody uses it yet.
            unsafe { Rings::build(start.as_ptr().add(layout.rings_at()), shape, &core) }
        });
        Ok(Self {
            number: BUILT.fetch_add(1, Ordering::Relaxed),
            start,
            layout,
            core,
            sharing,
            rings,
        })
    }

    /// The address of `struct usher`, for the programs.
    pub fn root(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The address of the blocks per CPU, for the programs.
    pub fn host_cpus(&self) -> u64 {
        self.root() + self.layout.tables as u64
    }

    /// How CPU time is divided among control groups, if it is.
    pub fn sharing(&mut self) -> Option<&mut Sharing> {
        self.sharing.as_mut()
    }

    /// What CPUs record, if they do.
    pub fn rings(&self) -> Option<&Rings> {
        self.rings.as_ref()
    }

    /// How many hinted tasks live in each LLC now.
    pub fn inhabitants(&self) -> Vec<u64> {
        // SAFETY: the arena is mapped as long as this exists.
        unsafe { self.core.settled() }
    }

    /// By cid: what the kernel said of each CPU when the scheduler was attached; 0 where it said nothing.
    pub fn kernels_capacities(&self) -> Vec<u32> {
        let cpus = self.host_cpus() as *const HostCpu;
        let of = |cid| {
            // SAFETY: within the arena.
            unsafe { addr_of!((*cpus.add(cid)).capacity).read_volatile() }
        };
        (0..self.layout.cpus).map(of).collect()
    }

    /// All counters now, summed over CPUs.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters {
            arena: self.number,
            // SAFETY: the arena is mapped as long as this exists.
            core: unsafe { self.core.statistics() },
            shares: self
                .sharing
                .as_ref()
                .map_or_else(Shares::default, |sharing| sharing.shares),
            ..Counters::default()
        };
        let cpus = self.host_cpus() as *const HostCpu;
        for cid in 0..self.layout.cpus {
            // SAFETY: within the arena. The owner of the block writes it meanwhile, a word at a time.
            unsafe {
                let cpu = cpus.add(cid);
                for (level, sum) in sum.migrations.iter_mut().enumerate() {
                    *sum += addr_of!((*cpu).migrations[level]).read_volatile();
                }
                let waited_ns = addr_of!((*cpu).waited_ns).read_volatile();
                sum.waited_ns = sum.waited_ns.max(waited_ns);
                for (call, sum) in sum.hint_calls.iter_mut().enumerate() {
                    *sum += addr_of!((*cpu).hint_calls[call]).read_volatile();
                }
                for (event, sum) in sum.host.iter_mut().enumerate() {
                    *sum += addr_of!((*cpu).events[event]).read_volatile();
                }
            }
        }
        sum
    }
}

/// Everything that is counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Whose they are, of all arenas that were built.
    pub arena: u64,
    /// By the core.
    pub core: Statistics,
    /// Tasks that moved, by level: [`LEVELS`].
    pub migrations: [u64; LEVELS.len()],
    /// By the callbacks: [`HOST_EVENTS`].
    pub host: [u64; HOST_EVENTS.len()],
    /// What became of calls about hints: [`HINT_CALLS`].
    pub hint_calls: [u64; HINT_CALLS.len()],
    /// The longest that a task waited for a CPU.
    pub waited_ns: u64,
    /// How CPU time was last divided among control groups.
    pub shares: Shares,
}

impl Counters {
    /// What was counted since an earlier reading, or, if the scheduler has been restarted, since then; the longest wait remains
    /// that since the start, and the division among groups the last one.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut now = *self;
        if now.arena != earlier.arena {
            return now;
        }
        now.core = now.core.since(&earlier.core);
        for (count, before) in now.migrations.iter_mut().zip(earlier.migrations) {
            *count = count.wrapping_sub(before);
        }
        for (count, before) in now.host.iter_mut().zip(earlier.host) {
            *count = count.wrapping_sub(before);
        }
        for (count, before) in now.hint_calls.iter_mut().zip(earlier.hint_calls) {
            *count = count.wrapping_sub(before);
        }
        now
    }

    /// Adds the counters of another run.
    pub fn add(&mut self, other: &Self) {
        self.core += other.core;
        for (count, more) in self.migrations.iter_mut().zip(other.migrations) {
            *count += more;
        }
        for (count, more) in self.host.iter_mut().zip(other.host) {
            *count += more;
        }
        for (count, more) in self.hint_calls.iter_mut().zip(other.hint_calls) {
            *count += more;
        }
        self.waited_ns = self.waited_ns.max(other.waited_ns);
        self.shares = other.shares;
    }
}
