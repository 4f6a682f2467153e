// SPDX-License-Identifier: GPL-2.0-only
//! The guest's root file system: an initramfs of busybox, the benchmark programs and the libraries they
//! need, and the agent as process number 1.
//!
//! The large part is the same for every run and is cached under the hash of its contents; what a run
//! adds (job, kernel configuration, schedulers, the user's own programs) is a second, small archive that
//! the kernel unpacks over the first.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::cache::{self, Cache, Fnv};
use crate::cpio::Archive;
use crate::elf::Elf;
use crate::error::{LabError, Result};
use crate::tool;

/// Where libraries lie on Debian, below a root.
fn library_folders(arch: Arch) -> [String; 4] {
    let own = arch.library_folder();
    [
        format!("lib/{own}"),
        format!("usr/lib/{own}"),
        "lib64".into(),
        "usr/lib".into(),
    ]
}

/// The folder of the cache with the programs that the set-up fetched for guests; the programs are below its `root`.
pub fn programs_folder(cache: &Cache, arch: Arch) -> PathBuf {
    cache.path(match arch {
        Arch::X86_64 => "programs",
        Arch::Arm64 => "programs-arm64",
    })
}

/// Where the guest looks for programs.
const PROGRAM_FOLDERS: [&str; 6] = [
    "usr/local/bin",
    "usr/bin",
    "bin",
    "usr/local/sbin",
    "usr/sbin",
    "sbin",
];

/// Small files that programs expect.
const ETC: [(&str, &str); 5] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    ),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n"),
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\n",
    ),
    ("/etc/hostname", "guest\n"),
];

/// What one path in the guest is.
#[derive(Debug, Clone)]
enum Node {
    HostFile(PathBuf),
    Bytes(u32, Vec<u8>),
    Symlink(String),
    Folder,
}

/// A list of files for a guest, with the libraries that its programs need.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What its programs are made for.
    arch: Arch,
    nodes: BTreeMap<String, Node>,
    /// Where programs and libraries are looked for, first match first.
    roots: Vec<PathBuf>,
}

impl Plan {
    /// An empty plan that looks for files in the cache's programs first, then on this machine if its programs run
    /// in such a guest.
    pub fn new(cache: &Cache, arch: Arch) -> Self {
        let mut roots = vec![programs_folder(cache, arch).join("root")];
        if arch == Arch::X86_64 {
            roots.push("/".into());
        }
        Plan {
            arch,
            nodes: BTreeMap::new(),
            roots,
        }
    }

    /// What its programs are made for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The part that every guest has.
    pub fn base(cache: &Cache, arch: Arch, agent: &Path) -> Result<Self> {
        let mut plan = Plan::new(cache, arch);
        for folder in ["/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/mnt"] {
            plan.nodes.insert(folder.into(), Node::Folder);
        }
        plan.nodes
            .insert("/var/run".into(), Node::Symlink("/run".into()));
        plan.nodes
            .insert("/var/tmp".into(), Node::Symlink("/tmp".into()));
        for (path, text) in ETC {
            plan.bytes(path, 0o644, text.as_bytes());
        }
        plan.program(&stripped(cache, arch, agent)?, "/init")?;
        plan.busybox()?;
        for (name, path) in plan.cached_programs()? {
            plan.program(&path, &format!("/usr/bin/{name}"))?;
        }
        Ok(plan)
    }

    /// True when the guest finds a program of this name on its PATH.
    pub fn has_program(&self, name: &str) -> bool {
        PROGRAM_FOLDERS
            .iter()
            .any(|folder| self.nodes.contains_key(&format!("/{folder}/{name}")))
    }

    /// True when something is at this path.
    pub fn has_path(&self, guest: &str) -> bool {
        self.nodes.contains_key(guest)
    }

    /// Adds a file with the given contents.
    pub fn bytes(&mut self, guest: &str, mode: u32, contents: &[u8]) {
        self.nodes
            .insert(guest.into(), Node::Bytes(mode, contents.to_vec()));
    }

    /// Adds a file of the host under another path, without looking into it.
    pub fn host_file(&mut self, host: &Path, guest: &str) {
        self.nodes
            .insert(guest.into(), Node::HostFile(host.to_path_buf()));
    }

    /// Adds a program with its loader and all libraries that it needs.
    pub fn program(&mut self, host: &Path, guest: &str) -> Result<()> {
        self.host_file(host, guest);
        let mut queue = vec![host.to_path_buf()];
        let mut seen = BTreeSet::new();
        while let Some(path) = queue.pop() {
            let bytes = cache::read(&path)?;
            // A script or a file of data has no needs that can be read off it.
            let Some(elf) = Elf::parse(&bytes) else {
                continue;
            };
            if elf.machine() != Some(self.arch.elf_machine()) {
                return Err(LabError::bad_file(
                    &path,
                    format!(
                        "not a program for {}, which this shape's guests are",
                        self.arch
                    ),
                ));
            }
            if let Some(loader) = elf.interpreter() {
                let host = self.locate(loader.trim_start_matches('/')).ok_or_else(|| {
                    LabError::bad_file(&path, format!("its loader {loader} is not there"))
                })?;
                self.host_file(&host, loader);
            }
            for name in elf.needed() {
                if !seen.insert(name.to_string()) {
                    continue;
                }
                let library = self.library(name).ok_or_else(|| LabError::Missing {
                    what: format!(
                        "{}: the library {name} for {} is not there",
                        path.display(),
                        self.arch
                    ),
                    remedy: match self.arch {
                        Arch::X86_64 => {
                            "install the package that has it, or run `make setup`".into()
                        }
                        arch => format!("run `{}`", arch.setup()),
                    },
                })?;
                let folder = self.arch.library_folder();
                self.host_file(&library, &format!("/lib/{folder}/{name}"));
                queue.push(library);
            }
        }
        Ok(())
    }

    /// Where a library would be taken from, `None` when it is nowhere.
    pub fn library(&self, name: &str) -> Option<PathBuf> {
        library_folders(self.arch)
            .iter()
            .find_map(|folder| self.locate(&format!("{folder}/{name}")))
    }

    /// Where a program on the search path would be taken from.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        PROGRAM_FOLDERS
            .iter()
            .find_map(|folder| self.locate(&format!("{folder}/{name}")))
    }

    /// Removes everything that another plan has too, path and source.
    pub fn without(mut self, other: &Plan) -> Plan {
        self.nodes
            .retain(|path, node| match (node, other.nodes.get(path)) {
                (Node::HostFile(mine), Some(Node::HostFile(theirs))) => mine != theirs,
                _ => true,
            });
        self
    }

    /// Writes the archive.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = Archive::new();
        for (path, node) in &self.nodes {
            match node {
                Node::Folder => archive.dir(path),
                Node::Symlink(target) => archive.symlink(path, target),
                Node::Bytes(mode, bytes) => archive.file(path, *mode, bytes),
                Node::HostFile(host) => {
                    let mode = std::fs::metadata(host)
                        .map_err(|error| LabError::io(host, "cannot read", error))?
                        .permissions()
                        .mode();
                    archive.file(path, mode, &cache::read(host)?);
                }
            }
        }
        Ok(archive.finish())
    }

    /// The cached archive of this plan, written when there is none of these contents.
    pub fn cached_archive(&self, cache: &Cache) -> Result<PathBuf> {
        let mut hash = Fnv::default();
        for (path, node) in &self.nodes {
            hash.add(path.as_bytes());
            match node {
                Node::Folder => hash.add(b"folder"),
                Node::Symlink(target) => hash.add(target.as_bytes()),
                Node::Bytes(mode, bytes) => {
                    hash.add(&mode.to_le_bytes());
                    hash.add(bytes);
                }
                Node::HostFile(host) => hash.add(&cache::read(host)?),
            }
        }
        let folder = cache.path("images");
        let path = folder.join(format!("{}.cpio", hash.hex()));
        if !in_use(&path) {
            cache::write_atomically(&path, &self.archive()?)?;
            prune(&folder, IMAGES_KEPT);
        }
        Ok(path)
    }

    fn locate(&self, inside: &str) -> Option<PathBuf> {
        self.roots
            .iter()
            .map(|root| root.join(inside))
            .find(|path| path.is_file())
    }

    fn busybox(&mut self) -> Result<()> {
        let missing = || LabError::Missing {
            what: format!("no busybox for {} guests", self.arch),
            remedy: format!("run `{}` (package busybox-static)", self.arch.setup()),
        };
        let host = self.find_program("busybox").ok_or_else(missing)?;
        let applets = applets(&cache::read(&host)?).ok_or_else(|| {
            LabError::bad_file(
                &host,
                "no list of applets in it: not a busybox that the lab knows",
            )
        })?;
        self.program(&host, "/bin/busybox")?;
        for applet in applets.iter().filter(|applet| *applet != "busybox") {
            let path = format!("/bin/{applet}");
            self.nodes.insert(path, Node::Symlink("busybox".into()));
        }
        Ok(())
    }

    /// The programs that the set-up fetched for guests, by name.
    fn cached_programs(&self) -> Result<BTreeMap<String, PathBuf>> {
        let mut found = BTreeMap::new();
        for folder in ["usr/bin", "usr/sbin"] {
            let folder = self.roots[0].join(folder);
            let Ok(entries) = std::fs::read_dir(&folder) else {
                continue;
            };
            for path in entries.flatten().map(|entry| entry.path()) {
                let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else {
                    continue;
                };
                if path.is_file() && cache::read(&path)?.starts_with(b"\x7fELF") {
                    found.insert(name, path);
                }
            }
        }
        Ok(found)
    }
}

/// The names of a busybox program's applets, read off it, since one for another architecture does not run here: they
/// stand in it one after the other in alphabetical order, from `[` to the empty name.
fn applets(program: &[u8]) -> Option<Vec<String>> {
    const BEGINNING: &[u8] = b"\0[\0[[\0";
    let start = program
        .windows(BEGINNING.len())
        .position(|window| window == BEGINNING)?;
    let names = program[start + 1..].split(|&byte| byte == 0);
    names
        .take_while(|name| !name.is_empty())
        .map(|name| String::from_utf8(name.to_vec()).ok())
        .collect()
}

/// A copy of a program without its debugging information, from the cache. Every byte of an image is
/// unpacked by the emulated kernel at every boot, and nobody debugs in the guest. Without a `strip`
/// program (package binutils) it is the program itself.
pub fn stripped(cache: &Cache, arch: Arch, program: &Path) -> Result<PathBuf> {
    let bytes = cache::read(program)?;
    let has_debug = Elf::parse(&bytes).is_some_and(|elf| elf.section(".debug_info").is_some());
    if !has_debug {
        return Ok(program.to_path_buf());
    }
    let folder = cache.path("stripped");
    let path = folder.join(cache::hash_hex(&bytes));
    if in_use(&path) {
        return Ok(path);
    }
    std::fs::create_dir_all(&folder).map_err(|e| LabError::io(&folder, "cannot create", e))?;
    let partial = cache::partial(&path);
    let arguments = [Path::new("-o"), &partial, program];
    let strip = match arch {
        Arch::X86_64 => "strip",
        Arch::Arm64 => "aarch64-linux-gnu-strip",
    };
    if tool::output(strip, &arguments).is_err() {
        return Ok(program.to_path_buf());
    }
    std::fs::rename(&partial, &path).map_err(|e| LabError::io(&path, "cannot rename", e))?;
    prune(&folder, STRIPPED_KEPT);
    Ok(path)
}

/// How many stripped programs stay in the cache.
const STRIPPED_KEPT: usize = 16;

/// How many base images stay in the cache; each is tens of megabytes and a changed agent makes a new one.
const IMAGES_KEPT: usize = 3;

/// Whether a file of the cache is there; it then counts as new, so that nobody prunes it before it is read.
fn in_use(path: &Path) -> bool {
    let Ok(file) = std::fs::File::options().write(true).open(path) else {
        return path.is_file();
    };
    let _ = file.set_modified(std::time::SystemTime::now());
    true
}

/// Deletes all but the newest files of a folder. Best effort: what cannot be deleted stays.
fn prune(folder: &Path, kept: usize) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let excess = files.len().saturating_sub(kept);
    for (_, path) in &files[..excess] {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    /// Goal: applets read off a busybox are those that it lists itself. Method: this machine's, asked. Catches: names
    /// of other tables, a list cut short.
    #[test]
    fn applets_are_those_of_the_program() {
        let busybox = Path::new("/bin/busybox");
        let listed = tool::output("/bin/busybox", &["--list"]).unwrap();
        let mut listed: Vec<String> = String::from_utf8(listed)
            .unwrap()
            .lines()
            .map(str::to_string)
            .collect();
        let mut read = applets(&cache::read(busybox).unwrap()).unwrap();
        listed.sort();
        read.sort();
        assert_eq!(read, listed);
        assert_eq!(applets(b"\0[\0"), None);
    }

    /// Goal: a program of another architecture is refused, by a line that names it. Method: this machine's own in an
    /// arm64 plan.
    #[test]
    fn programs_of_another_architecture_are_refused() {
        let cache = Cache::temporary("image-arch-test");
        let mut plan = Plan::new(&cache, Arch::Arm64);
        assert!(
            plan.find_program("true").is_none(),
            "this machine's own program"
        );
        let error = plan
            .program(Path::new("/bin/true"), "/bin/true")
            .unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let error = error.to_string();
        assert!(
            error.contains("/bin/true: not a program for arm64"),
            "{error}"
        );
    }

    /// Goal: what was just asked for is not pruned. Method: the oldest of four files is asked for, and two may stay.
    #[test]
    fn files_in_use_stay() {
        let cache = Cache::temporary("image-test");
        let folder = cache.path("stripped");
        std::fs::create_dir_all(&folder).unwrap();
        let paths: Vec<PathBuf> = ["a", "b", "c", "d"].map(|name| folder.join(name)).into();
        for (age, path) in paths.iter().rev().enumerate() {
            let file = std::fs::File::create(path).unwrap();
            let made = SystemTime::now() - Duration::from_secs(100 + age as u64);
            file.set_modified(made).unwrap();
        }
        assert!(in_use(&paths[0]) && !in_use(&folder.join("absent")));
        prune(&folder, 2);
        let left: Vec<bool> = paths.iter().map(|path| path.is_file()).collect();
        assert_eq!(left, [true, false, false, true]);
    }
}
