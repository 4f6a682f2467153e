// SPDX-License-Identifier: GPL-2.0-only
//! Decisions as CPUs record them in the arena, and the file that they are written to.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use scx_utils::build_id;
use usher_core::recorded::{Footer, Header, Raw, Recorded, SCHEMA};
use usher_core::{Foreign, Settings, Tables};

/// How often records are fetched.
pub const PERIOD: Duration = Duration::from_millis(20);

/// Bytes of all rings together, about, ...
const BYTES: usize = 64 << 20;
/// ... but each has so many records: one at least for the CPU, and some to fetch.
const RECORDS: [usize; 2] = [4, 64];

/// `struct usher_ring` of `core/env/bpf_recorded.h`.
#[repr(C)]
struct Ring {
    seen: u64,
    nr_seen: u64,
    head: u64,
    first: u64,
    nr_records: u64,
    skipped: u64,
    too_long: u64,
    unused: u64,
    tail: u64,
    unused_tail: [u64; 7],
}

/// How much there is to record into: by CPU number a copy of `struct usher`, a ring, and its records.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    cpus: usize,
    records: usize,
    copy: usize,
}

impl Shape {
    /// For so many CPU numbers: of all that may come online, since each finds its copy without a look whether there is one.
    pub fn of(cpus: usize) -> Self {
        let fit = BYTES / (cpus * size_of::<Raw>());
        Self {
            cpus,
            records: fit.clamp(RECORDS[0], RECORDS[1]),
            copy: Foreign::copy_bytes(),
        }
    }

    /// Where rings begin: behind the copies.
    fn rings_at(self) -> usize {
        (self.cpus * self.copy).next_multiple_of(64)
    }

    /// Where records begin.
    fn records_at(self) -> usize {
        self.rings_at() + self.cpus * size_of::<Ring>()
    }

    /// Bytes of all of it.
    pub fn bytes(self) -> usize {
        self.records_at() + self.cpus * self.records * size_of::<Raw>()
    }
}

/// The rings of all CPUs. Valid while the arena is.
pub struct Rings {
    start: *mut u8,
    shape: Shape,
}

impl Rings {
    /// Sets them up, empty.
    ///
    /// # Safety
    /// There are so many zeroed bytes at `start`, on a line boundary, that nobody uses yet.
    pub unsafe fn build(start: *mut u8, shape: Shape, core: &Foreign) -> Self {
        let rings = Self { start, shape };
        for cpu in 0..shape.cpus {
            let ring = rings.ring(cpu);
            let first = rings.record(cpu, 0);
            // SAFETY: within the bytes that the caller promises.
            unsafe {
                (*ring).seen = Raw::seen_of(first) as u64;
                (*ring).first = first as u64;
                (*ring).nr_records = shape.records as u64;
                core.copy(start.add(cpu * shape.copy), ring as u64);
            }
        }
        rings
    }

    /// The address of the copies of `struct usher`, for the programs.
    pub fn copies(&self) -> u64 {
        self.start as u64
    }

    fn ring(&self, cpu: usize) -> *mut Ring {
        let rings: *mut Ring = self.start.wrapping_add(self.shape.rings_at()).cast();
        rings.wrapping_add(cpu)
    }

    fn record(&self, cpu: usize, index: usize) -> *mut Raw {
        let records: *mut Raw = self.start.wrapping_add(self.shape.records_at()).cast();
        records.wrapping_add(cpu * self.shape.records + index)
    }

    /// Takes every finished record out.
    fn fetch(&self, mut each: impl FnMut(&Raw) -> Result<()>) -> Result<()> {
        for cpu in 0..self.shape.cpus {
            let ring = self.ring(cpu);
            // SAFETY: the arena is mapped as long as this exists. The CPU counts head up behind its record, and does not
            // write one again before tail has passed it.
            unsafe {
                let head = AtomicU64::from_ptr(&raw mut (*ring).head).load(Ordering::Acquire);
                let tail = AtomicU64::from_ptr(&raw mut (*ring).tail);
                let from = tail.load(Ordering::Relaxed);
                for at in from..head {
                    each(&*self.record(cpu, at as usize % self.shape.records))?;
                    tail.store(at + 1, Ordering::Release);
                }
            }
        }
        Ok(())
    }

    /// Decisions that found their ring full, and that saw too much, of all CPUs.
    fn lost(&self) -> (u64, u64) {
        let counts = (0..self.shape.cpus).map(|cpu| {
            let ring = self.ring(cpu);
            // SAFETY: as above; the CPU counts a word at a time.
            unsafe {
                (
                    ptr::read_volatile(&raw const (*ring).skipped),
                    ptr::read_volatile(&raw const (*ring).too_long),
                )
            }
        });
        counts.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }
}

/// The file: for each time that the scheduler starts a header, its decisions and a footer.
pub struct Recording {
    path: PathBuf,
    to: BufWriter<File>,
    recorded: u64,
}

impl Recording {
    /// Begins a file. What was in it is gone.
    pub fn begin(path: &Path) -> Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            to: BufWriter::new(file),
            recorded: 0,
        })
    }

    fn line(&mut self, line: &impl serde::Serialize) -> Result<()> {
        let written = serde_json::to_writer(&mut self.to, line)
            .map_err(std::io::Error::from)
            .and_then(|()| self.to.write_all(b"\n"));
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// The scheduler has started on this machine.
    pub fn start(&mut self, tables: &Tables, settings: &Settings) -> Result<()> {
        self.recorded = 0;
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        self.line(&Header {
            schema: SCHEMA.into(),
            usher: build_id::full_version(env!("CARGO_PKG_VERSION")),
            kernel: kernel.trim().into(),
            machine: tables.clone(),
            settings: *settings,
        })
    }

    /// Writes what was recorded since the last time.
    pub fn fetch(&mut self, rings: &Rings, root: u64) -> Result<()> {
        rings.fetch(|raw| {
            let recorded =
                Recorded::from_raw(raw, root).context("a record of this very scheduler")?;
            self.line(&recorded)?;
            self.recorded += 1;
            Ok(())
        })?;
        let flushed = self.to.flush();
        flushed.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// The scheduler has ended.
    pub fn end(&mut self, rings: &Rings, root: u64) -> Result<()> {
        self.fetch(rings, root)?;
        let (skipped, too_long) = rings.lost();
        let recorded = self.recorded;
        self.line(&Footer {
            recorded,
            skipped,
            too_long,
        })?;
        let flushed = self.to.flush();
        flushed.with_context(|| format!("cannot write {}", self.path.display()))?;
        log::info!(
            "{recorded} decisions recorded in {}, {skipped} skipped, {too_long} too long",
            self.path.display()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what a CPU's ring has is fetched once, in order, also where it wraps around. Method: what a CPU would do, with four records.
    #[test]
    fn records_are_fetched_once_and_in_order() {
        let shape = Shape {
            cpus: 2,
            records: 4,
            copy: Foreign::copy_bytes(),
        };
        let mut memory = vec![0u64; shape.bytes() / 8 + 16];
        let start: *mut u8 = memory.as_mut_ptr().cast();
        let start = start.wrapping_add(start.align_offset(64));
        let topo = usher_topo::Topology::build(&usher_topo::shape::parse("1n1l2c1t").unwrap(), 64)
            .unwrap();
        let (tables, settings) = (Tables::from(&topo), Settings::default());
        let bytes = usher_core::bytes_needed(&tables, &settings).unwrap();
        let mut place = vec![0u64; bytes / 8 + 8];
        let place: *mut u8 = place.as_mut_ptr().cast();
        let place = place.wrapping_add(place.align_offset(64));
        // SAFETY: zeroed, large enough, on a line boundary.
        let core = unsafe { usher_core::build_into(&tables, &settings, place, bytes).unwrap() };
        // SAFETY: the same.
        let rings = unsafe { Rings::build(start, shape, &core) };
        let ring = rings.ring(1);
        let mut fetched = Vec::new();
        for round in 0..3u32 {
            for nr in 0..3 {
                // SAFETY: nobody else has the memory.
                unsafe {
                    let at = (*ring).head as usize % 4;
                    // The pid is the third word of 32 bits.
                    rings
                        .record(1, at)
                        .cast::<u32>()
                        .add(2)
                        .write(10 * round + nr);
                    (*ring).head += 1;
                }
            }
            let each = |raw: &Raw| {
                fetched.push(raw.pid());
                Ok(())
            };
            rings.fetch(each).unwrap();
        }
        assert_eq!(fetched, [0, 1, 2, 10, 11, 12, 20, 21, 22]);
        assert_eq!(rings.lost(), (0, 0));
    }
}
