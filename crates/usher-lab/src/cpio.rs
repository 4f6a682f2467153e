// SPDX-License-Identifier: GPL-2.0-only
//! Writes initramfs archives: the `newc` cpio format that the kernel unpacks at boot.
//!
//! Archives are reproducible: every entry has owner 0, time 0 and an inode number counted from one, so
//! that the same contents give the same bytes (guests booted twice from equal images start equal).
//! Format: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.

use std::collections::BTreeSet;

/// File type bits of `st_mode`.
const S_IFDIR: u32 = 0o040000;
const S_IFREG: u32 = 0o100000;
const S_IFLNK: u32 = 0o120000;

/// An archive being written. Parent directories are added by themselves.
pub struct Archive {
    bytes: Vec<u8>,
    next_inode: u32,
    present: BTreeSet<String>,
}

impl Default for Archive {
    fn default() -> Self {
        Self::new()
    }
}

impl Archive {
    /// An empty archive.
    pub fn new() -> Self {
        Archive {
            bytes: Vec::new(),
            next_inode: 1,
            present: BTreeSet::new(),
        }
    }

    /// True when something was added under this path.
    pub fn contains(&self, path: &str) -> bool {
        self.present.contains(path.trim_start_matches('/'))
    }

    /// Adds a directory and its parents; one that is there already is left alone.
    pub fn dir(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.present.contains(path) {
            return;
        }
        self.parents(path);
        self.entry(path, S_IFDIR | 0o755, 2, &[]);
    }

    /// Adds a regular file with the given permission bits; the first file of a name stays.
    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) {
        let path = path.trim_start_matches('/');
        if self.present.contains(path) {
            return;
        }
        self.parents(path);
        self.entry(path, S_IFREG | (mode & 0o7777), 1, contents);
    }

    /// Adds a symbolic link; the first entry of a name stays.
    pub fn symlink(&mut self, path: &str, target: &str) {
        let path = path.trim_start_matches('/');
        if self.present.contains(path) {
            return;
        }
        self.parents(path);
        self.entry(path, S_IFLNK | 0o777, 1, target.as_bytes());
    }

    /// Closes the archive: trailer entry, padded to 512 bytes, so that another may follow it.
    pub fn finish(mut self) -> Vec<u8> {
        self.next_inode = 0;
        self.header("TRAILER!!!", 0, 1, 0);
        self.pad(512);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.dir(parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, links: u32, contents: &[u8]) {
        self.present.insert(path.to_string());
        self.header(path, mode, links, contents.len());
        self.bytes.extend_from_slice(contents);
        self.pad(4);
    }

    fn header(&mut self, path: &str, mode: u32, links: u32, size: usize) {
        let inode = self.next_inode;
        self.next_inode = inode.wrapping_add(1);
        // Magic, then thirteen fields of eight hex digits: ino, mode, uid, gid, nlink, mtime, filesize,
        // devmajor, devminor, rdevmajor, rdevminor, namesize (with the NUL), check.
        let fields = [
            inode,
            mode,
            0,
            0,
            links,
            0,
            size as u32,
            0,
            0,
            0,
            0,
            path.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        while !self.bytes.len().is_multiple_of(to) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Goal: the archive is what the `cpio` program understands, with parents, modes and links, and
    /// equal contents give equal bytes. Method: list an archive with the real program.
    #[test]
    fn archive_is_read_by_the_cpio_program() {
        let build = || {
            let mut archive = Archive::new();
            archive.file("/usr/bin/prog", 0o755, b"hello");
            archive.symlink("/bin", "usr/bin");
            archive.file("/usr/bin/prog", 0o755, b"a second one is dropped");
            archive.finish()
        };
        assert_eq!(build(), build(), "not reproducible");
        let mut child = Command::new("cpio")
            .args(["-t", "-v", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the cpio program (package cpio) must be installed");
        child.stdin.take().unwrap().write_all(&build()).unwrap();
        let listing = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let names: Vec<&str> = listing
            .lines()
            .map(|line| line.rsplit(" 1970 ").next().unwrap())
            .collect();
        assert_eq!(
            names,
            ["usr", "usr/bin", "usr/bin/prog", "bin -> usr/bin"],
            "{listing}"
        );
        assert!(
            listing.lines().nth(2).unwrap().starts_with("-rwxr-xr-x"),
            "{listing}"
        );
        assert!(
            listing.lines().nth(2).unwrap().contains(" 5 Jan"),
            "size: {listing}"
        );
    }
}
