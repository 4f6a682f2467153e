// SPDX-License-Identifier: GPL-2.0-only
//! usher's own cache folder: guest kernels, guest programs, images, peers' schedulers. Everything in it
//! can be deleted and comes back by `make setup`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{LabError, Result};

/// The cache folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `$USHER_CACHE`, or `usher` in `$XDG_CACHE_HOME`, or `~/.cache/usher`.
    pub fn open() -> Result<Self> {
        let set = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let root = set("USHER_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("usher")))
            .or_else(|| set("HOME").map(|dir| dir.join(".cache/usher")))
            .ok_or_else(|| LabError::Missing {
                what: "no cache folder: HOME is not set".into(),
                remedy: "set USHER_CACHE to a folder for guest kernels and images".into(),
            })?;
        std::fs::create_dir_all(&root)
            .map_err(|error| LabError::io(&root, "cannot create the cache folder", error))?;
        Ok(Cache { root })
    }

    /// A cache of its own for a test, in the system's folder for temporary files.
    #[doc(hidden)]
    pub fn temporary(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("usher-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).expect("temporary folder");
        Cache { root }
    }

    /// A path inside the cache.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside)
    }
}

/// Reads a whole file; the error names it.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| LabError::io(path, "cannot read", error))
}

/// A name beside a path for a file that is not complete yet: this call's own, whoever else fills the cache now.
pub fn partial(path: &Path) -> PathBuf {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".{}-{call}.partial", std::process::id()));
    PathBuf::from(name)
}

/// Writes a file so that it is either absent or complete, creating its folder.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| LabError::io(folder, "cannot create", e))?;
    let partial = partial(path);
    std::fs::write(&partial, contents).map_err(|e| LabError::io(&partial, "cannot write", e))?;
    std::fs::rename(&partial, path).map_err(|e| LabError::io(path, "cannot rename into place", e))
}

/// Hash of contents as 32 hex digits, for cache keys only: FNV-1a, 128 bits, no defence against malice.
pub fn hash_hex(bytes: &[u8]) -> String {
    let mut hasher = Fnv::default();
    hasher.add(bytes);
    hasher.hex()
}

/// FNV-1a with 128 bits, incremental.
pub struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0x6c62272e07bb014262b821756295c58d)
    }
}

impl Fnv {
    /// Adds bytes, and their number so that neighbouring pieces cannot trade bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0000000001000000000000000000013b;
        let length = (bytes.len() as u64).to_le_bytes();
        for &byte in bytes.iter().chain(&length) {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    }

    /// The hash so far.
    pub fn hex(&self) -> String {
        format!("{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: several guests may be prepared at once. Method: threads that write the same file. Catches: a name for the
    // incomplete file that two of them share, so that one finds it renamed away.
    #[test]
    fn writers_of_one_file_do_not_meet() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        write_atomically(&path, &[7; 4096]).expect("written");
                        assert_eq!(read(&path).expect("there"), [7; 4096]);
                    }
                });
            }
        });
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 1, "incomplete files stay behind");
    }
}
