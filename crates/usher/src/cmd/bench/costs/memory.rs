// SPDX-License-Identifier: GPL-2.0-only
//! Memory to measure with, and how much of it there is.

use std::fs;
use std::io::{Error, Result};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::ptr;

/// A large page of x86, and of arm64 with pages of 4 KiB.
const LARGE: usize = 2 << 20;

/// Words, all 0, in large pages where the kernel has them: a walk through memory is not to be one through page tables.
#[derive(Debug)]
pub struct Pages {
    map: *mut libc::c_void,
    mapped: usize,
    words: *mut usize,
    len: usize,
}

impl Pages {
    pub fn new(len: usize) -> Result<Self> {
        let bytes = (len * size_of::<usize>()).next_multiple_of(LARGE);
        let mapped = bytes + LARGE;
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping, anywhere.
        let map = unsafe { libc::mmap(ptr::null_mut(), mapped, access, kind, -1, 0) };
        if map == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let words = map.wrapping_byte_add(map.align_offset(LARGE));
        // Before anybody touches it. SAFETY: the range is within the mapping; advice that is not taken changes nothing.
        unsafe { libc::madvise(words, bytes, libc::MADV_HUGEPAGE) };
        Ok(Self {
            map,
            mapped,
            words: words.cast(),
            len,
        })
    }
}

impl Deref for Pages {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        // SAFETY: so many words are mapped from there on, and nobody else has them.
        unsafe { std::slice::from_raw_parts(self.words, self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [usize] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.words, self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and goes with its only owner.
        unsafe { libc::munmap(self.map, self.mapped) };
    }
}

/// Bytes that can be had without others losing theirs, and within the limits of this process's control groups.
pub fn free() -> u64 {
    let of_cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limits(&of_cgroups, Path::new("/sys/fs/cgroup"));
    limits.into_iter().chain([available()]).min().unwrap_or(0)
}

/// Bytes of the machine that are free or soon could be.
fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Bytes left below each limit of memory, of the groups in `/proc/self/cgroup` and those that they lie in.
fn limits(of_cgroups: &str, mount: &Path) -> Vec<u64> {
    let mut left = Vec::new();
    for line in of_cgroups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, most, used) = match controllers {
            "" => (mount.to_path_buf(), "memory.max", "memory.current"),
            _ if controllers.split(',').any(|one| one == "memory") => (
                mount.join("memory"),
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            _ => continue,
        };
        let group = root.join(group.trim_start_matches('/'));
        let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        for dir in group.ancestors().take_while(|dir| dir.starts_with(&root)) {
            // `max` is no number, and no limit.
            if let (Some(most), Some(used)) = (number(dir.join(most)), number(dir.join(used))) {
                left.push(most.saturating_sub(used));
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: memory begins at a large page, is zero, and holds what is written. Method: some sizes.
    #[test]
    fn pages_are_aligned_and_empty() {
        for len in [1, 511, 1 << 18, (1 << 18) + 1] {
            let mut pages = Pages::new(len).expect("memory");
            assert_eq!(pages.as_ptr() as usize % LARGE, 0);
            assert_eq!((pages.len(), pages.iter().sum::<usize>()), (len, 0));
            pages[len - 1] = 7;
            assert_eq!(pages.iter().sum::<usize>(), 7);
        }
    }

    // Goal: the limits of both versions count, those of outer groups, too. Method: a tree of files.
    #[test]
    fn groups_limit_memory() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("in the root")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("pod/memory.max", "1000\n");
        write("pod/memory.current", "300\n");
        write("pod/box/memory.max", "max\n");
        write("pod/box/memory.current", "200\n");
        write("memory/a/memory.limit_in_bytes", "500\n");
        write("memory/a/memory.usage_in_bytes", "600\n");
        let text = "4:cpu,memory:/a\n3:pids:/b\n0::/pod/box\n";
        assert_eq!(limits(text, root.path()), [0, 700]);
        assert!(limits("", root.path()).is_empty());
        assert!(free() > 0);
    }
}
