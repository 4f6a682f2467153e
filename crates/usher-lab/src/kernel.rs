// SPDX-License-Identifier: GPL-2.0-only
//! Guest kernels: found in the cache or given as a file, unpacked to the image that QEMU boots fastest, and
//! judged by their BTF.
//!
//! The cache holds one folder per kernel, `kernels/RELEASE/`, with `vmlinux` (x86-64, ELF) or `Image` (arm64),
//! `config` and, once judged unfit, `refused` (one line that says why, so that the verdict needs no second download).

use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::btf::{self, Btf};
use crate::cache::{self, Cache};
use crate::elf::{c_string, uint, Elf};
use crate::error::{LabError, Result};
use crate::tool;

/// A kernel that a guest can boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// `uname -r` of the kernel, for example `6.18.15+deb13-cloud-amd64`.
    pub release: String,
    /// What it runs on.
    pub arch: Arch,
    /// What the emulator boots: the uncompressed ELF image (x86-64) or the uncompressed `Image` (arm64).
    pub image: PathBuf,
    /// Its build configuration; libbpf reads it in the guest.
    pub config: Option<PathBuf>,
    /// Why no sched_ext scheduler can load on it, `None` when it is good.
    pub unfit: Option<String>,
}

/// The name of the image's file in the cache.
fn image_name(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "vmlinux",
        Arch::Arm64 => "Image",
    }
}

/// The verdict on a kernel that has no sched_ext at all: a choice of who builds it, the same in all of a series.
pub const NO_SCHED_EXT: &str = "built without sched_ext";

/// A release split for ordering and for matching against what the user asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    /// Reads the leading dotted numbers of a release, `6.18.15` of `6.18.15+deb13-cloud-amd64`.
    pub fn of(release: &str) -> Self {
        let end = release
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(release.len());
        Version(
            release[..end]
                .split('.')
                .filter_map(|part| part.parse().ok())
                .collect(),
        )
    }

    /// The first two numbers, 6.18 of 6.18.15.
    pub fn series(&self) -> Self {
        Version(self.0.iter().take(2).copied().collect())
    }

    /// True when this version begins with all numbers of `series` (`6.18` matches 6.18.15, not 6.1).
    pub fn in_series(&self, series: &Version) -> bool {
        !series.0.is_empty() && self.0.starts_with(&series.0)
    }
}

/// All kernels of the cache, oldest first, the unfit ones included.
pub fn cached(cache: &Cache) -> Result<Vec<Kernel>> {
    let folder = cache.path("kernels");
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(LabError::io(folder, "cannot list", error)),
    };
    for entry in entries.flatten() {
        let release = entry.file_name().to_string_lossy().into_owned();
        let arch = Arch::of_release(&release);
        let image = entry.path().join(image_name(arch));
        let unfit = std::fs::read_to_string(entry.path().join("refused")).ok();
        // A folder with neither is a download that was interrupted.
        if release.starts_with('.') || (!image.is_file() && unfit.is_none()) {
            continue;
        }
        let config = Some(entry.path().join("config")).filter(|path| path.is_file());
        let unfit = unfit.map(|why| why.trim().to_string());
        found.push(Kernel {
            release,
            arch,
            image,
            config,
            unfit,
        });
    }
    found.sort_by_key(|kernel| (Version::of(&kernel.release), kernel.release.clone()));
    Ok(found)
}

/// The kernel that the user means: a series (`6.18`, `7.0`, `6.18.15`), or the path of an image (see
/// [`from_file`]). The newest fit one of a series is taken.
pub fn find(cache: &Cache, wanted: &str, arch: Arch) -> Result<Kernel> {
    if wanted.contains('/') || Path::new(wanted).is_file() {
        let kernel = from_file(cache, Path::new(wanted))?;
        return match kernel.arch == arch {
            true => Ok(kernel),
            false => Err(LabError::Usage {
                what: "kernel",
                value: wanted.into(),
                why: format!(
                    "it is for {}, and this shape's guests are {arch}",
                    kernel.arch
                ),
            }),
        };
    }
    let series = Version::of(wanted);
    let known = cached(cache)?;
    let fit = known
        .iter()
        .rev()
        .filter(|kernel| kernel.unfit.is_none() && kernel.arch == arch);
    if let Some(kernel) = fit
        .clone()
        .find(|kernel| kernel.release == wanted || Version::of(&kernel.release).in_series(&series))
    {
        return Ok(kernel.clone());
    }
    let list: Vec<&str> = fit.map(|kernel| kernel.release.as_str()).collect();
    if series.0.is_empty() {
        return Err(LabError::Usage {
            what: "kernel",
            value: wanted.into(),
            why: "neither a release such as 6.18 nor a file".into(),
        });
    }
    let have = if list.is_empty() {
        "none".to_string()
    } else {
        list.join(", ")
    };
    Err(LabError::Missing {
        what: format!(
            "no kernel {wanted} for {arch} in {} (there: {have})",
            cache.path("kernels").display()
        ),
        remedy: format!(
            "get it with `usher lab kernels --arch {arch} --fetch {wanted}`, or all with `{}`",
            arch.setup()
        ),
    })
}

/// A kernel file given by path, unpacked into the cache under its content's hash: a bzImage or ELF `vmlinux` for
/// x86-64, an `Image`, plain or packed, for arm64.
pub fn from_file(cache: &Cache, path: &Path) -> Result<Kernel> {
    let (arch, image) = unpack(path)?;
    let release = release_of(&image).ok_or_else(|| {
        LabError::bad_file(
            path,
            "not a Linux kernel (no version banner in it); give a bzImage, vmlinux or Image",
        )
    })?;
    let folder = cache.path("kernels-by-path").join(cache::hash_hex(&image));
    let unpacked = folder.join(image_name(arch));
    if !unpacked.is_file() {
        cache::write_atomically(&unpacked, &image)?;
    }
    let name = format!("config-{release}");
    let beside = path
        .parent()
        .map(|dir| [dir.join(&name), dir.join("config"), dir.join(".config")]);
    let config = beside
        .into_iter()
        .flatten()
        .find(|candidate| candidate.is_file());
    Ok(Kernel {
        release,
        arch,
        image: unpacked,
        config,
        unfit: unfit(arch, &image),
    })
}

/// Unpacks the image of a distribution's package and judges it; the result is in the cache afterwards,
/// good or refused.
pub fn adopt(cache: &Cache, image: &Path, config: Option<&Path>) -> Result<Kernel> {
    let (arch, bytes) = unpack(image)?;
    let release = release_of(&bytes)
        .ok_or_else(|| LabError::bad_file(image, "no version banner in it: not a Linux kernel"))?;
    let folder = cache.path("kernels").join(&release);
    let image = folder.join(image_name(arch));
    let unfit = unfit(arch, &bytes);
    if let Some(why) = &unfit {
        cache::write_atomically(&folder.join("refused"), format!("{why}\n").as_bytes())?;
        return Ok(Kernel {
            release,
            arch,
            image,
            config: None,
            unfit: Some(why.clone()),
        });
    }
    let config = match config {
        Some(from) => {
            let to = folder.join("config");
            cache::write_atomically(&to, &cache::read(from)?)?;
            Some(to)
        }
        None => None,
    };
    // Last, because its presence is what makes the folder count.
    cache::write_atomically(&image, &bytes)?;
    Ok(Kernel {
        release,
        arch,
        image,
        config,
        unfit: None,
    })
}

/// Why no sched_ext scheduler can load on this kernel, or `None` when it is good.
fn unfit(arch: Arch, image: &[u8]) -> Option<String> {
    let section = match arch {
        Arch::X86_64 => Elf::parse(image).and_then(|elf| elf.section(".BTF")),
        Arch::Arm64 => btf::find_in(image),
    };
    let Some(section) = section else {
        return Some("built without BTF".into());
    };
    let btf = match Btf::parse(section) {
        Ok(btf) => btf,
        Err(why) => return Some(format!("its BTF cannot be read: {why}")),
    };
    if !btf.has_struct("sched_ext_ops") {
        return Some(NO_SCHED_EXT.into());
    }
    btf.implicit_argument_left()
        .map(|kfunc| format!("broken BTF: {kfunc} shows the argument that only the kernel passes"))
}

/// What the emulator boots, out of a kernel file of any kind, and what it runs on.
fn unpack(path: &Path) -> Result<(Arch, Vec<u8>)> {
    let bytes = cache::read(path)?;
    if is_arm_image(&bytes) {
        return Ok((Arch::Arm64, bytes));
    }
    if bytes.get(4..8) == Some(b"zimg") || bytes.starts_with(&GZIP) {
        return Ok((Arch::Arm64, unpack_arm_image(path, &bytes)?));
    }
    if Elf::parse(&bytes).is_some() {
        return Ok((Arch::X86_64, bytes));
    }
    Ok((Arch::X86_64, unpack_bzimage(path, &bytes)?))
}

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether this is an arm64 `Image` (the kernel's Documentation/arch/arm64/booting.rst: a magic number at 56).
fn is_arm_image(bytes: &[u8]) -> bool {
    bytes.get(56..60) == Some(b"ARM\x64")
}

/// The arm64 `Image` in a packed file: by gzip, or in a program for EFI that unpacks itself. The latter's header
/// (drivers/firmware/efi/libstub/zboot-header.S of the kernel) says where the payload lies and who packed it.
fn unpack_arm_image(path: &Path, bytes: &[u8]) -> Result<Vec<u8>> {
    let bad = |why: &str| LabError::bad_file(path, format!("not an arm64 kernel ({why})"));
    let image = if bytes.starts_with(&GZIP) {
        tool::filter("gzip", &["-dc"], bytes)?
    } else {
        let word = |at| uint::<4>(bytes, at).map(|value| value as usize);
        let (start, length) = word(8)
            .zip(word(12))
            .ok_or_else(|| bad("header cut short"))?;
        let payload = start
            .checked_add(length)
            .and_then(|end| bytes.get(start..end));
        let payload = payload.ok_or_else(|| bad("payload cut short"))?;
        let program = match c_string(bytes, 24) {
            Some("gzip") => "gzip",
            Some("zstd" | "zstd22") => "zstd",
            Some("xzkern") => "xz",
            _ => {
                return Err(bad(
                    "payload packed by a program that the lab does not know",
                ))
            }
        };
        tool::filter(program, &["-dc"], payload)?
    };
    match is_arm_image(&image) {
        true => Ok(image),
        false => Err(bad("what it unpacks to is no Image")),
    }
}

/// The ELF image inside a bzImage.
///
/// The boot header tells where the payload lies (Documentation/arch/x86/boot.rst: setup_sects 0x1f1,
/// payload_offset 0x248, payload_length 0x24c); its last four bytes are the unpacked size. Searching for
/// the compressor's magic instead would find it in the wrong places too.
fn unpack_bzimage(path: &Path, bytes: &[u8]) -> Result<Vec<u8>> {
    let bad = |why: &str| {
        let text =
            format!("not a kernel ({why}); give a bzImage (vmlinuz) or an ELF vmlinux for x86-64, an Image for arm64");
        LabError::bad_file(path, text)
    };
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err(bad("no boot header"));
    }
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
    };
    let sectors = match bytes[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let (offset, length) = word(0x248)
        .zip(word(0x24c))
        .ok_or_else(|| bad("header cut short"))?;
    let start = (sectors + 1) * 512 + offset;
    let packed = length
        .checked_sub(4)
        .filter(|&n| n > 0)
        .ok_or_else(|| bad("empty payload"))?;
    let payload = bytes
        .get(start..start + packed)
        .ok_or_else(|| bad("payload cut short"))?;
    let program = match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0x1f, 0x8b, ..] => "gzip",
        [0xfd, b'7', b'z', ..] => "xz",
        [0x02, 0x21, 0x4c, 0x18, ..] => "lz4",
        _ => {
            return Err(bad(
                "payload packed by a program that the lab does not know",
            ))
        }
    };
    let elf = tool::filter(program, &["-dc"], payload)?;
    if Elf::parse(&elf).is_none() {
        return Err(bad("its payload is no 64-bit ELF image"));
    }
    Ok(elf)
}

/// The release in the kernel's banner, "Linux version RELEASE (...".
fn release_of(image: &[u8]) -> Option<String> {
    let marker = b"Linux version ";
    let mut from = 0;
    while let Some(at) = image[from..]
        .windows(marker.len())
        .position(|window| window == marker)
    {
        let start = from + at + marker.len();
        let end = start
            + image[start..]
                .iter()
                .take(80)
                .position(|&byte| byte == b' ')?;
        let release = std::str::from_utf8(&image[start..end]).ok()?;
        // The same words occur in format strings ("%s"), which are not it.
        if release.starts_with(|c: char| c.is_ascii_digit()) {
            return Some(release.to_string());
        }
        from = start;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: versions order by number and series match whole numbers. Method: the pairs that a text
    /// comparison gets wrong.
    #[test]
    fn versions_compare_by_number() {
        assert!(Version::of("6.18.5+deb13-cloud-amd64") < Version::of("6.18.15+deb13-cloud-amd64"));
        assert!(Version::of("7.0.13") > Version::of("6.19.14+deb13-cloud-amd64"));
        assert!(Version::of("6.18.15").in_series(&Version::of("6.18")));
        assert!(!Version::of("6.18.15").in_series(&Version::of("6.1")));
        assert!(!Version::of("6.18.15").in_series(&Version::of("nonsense")));
        assert_eq!(Version::of("6.18.15").series(), Version::of("6.18"));
    }

    /// Goal: a file that is no kernel is refused with a line that names it. Method: text, an ELF file
    /// that is a program, a bzImage header with nothing behind it.
    #[test]
    fn files_that_are_no_kernel_are_refused() {
        let cache = Cache::temporary("kernel-test");
        let try_file = |name: &str, bytes: &[u8]| {
            let path = cache.path(name);
            cache::write_atomically(&path, bytes).unwrap();
            let error = from_file(&cache, &path).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(name), "{error}");
            error.to_string()
        };
        assert!(try_file("text", b"hello").contains("no boot header"));
        let program = std::fs::read("/bin/true").unwrap();
        assert!(try_file("program", &program).contains("no version banner"));
        let mut header = vec![0; 0x250];
        header[0x202..0x206].copy_from_slice(b"HdrS");
        assert!(try_file("header", &header).contains("empty payload"));
        header[0x24c..0x250].copy_from_slice(&[0, 1, 0, 0]);
        assert!(try_file("short", &header).contains("payload cut short"));
        let mut packed = b"MZ\0\0zimg\x40\0\0\0\x08\0\0\0".to_vec();
        packed.resize(0x40, 0);
        packed[24..28].copy_from_slice(b"lzma");
        assert!(try_file("zimg-short", &packed).contains("payload cut short"));
        packed.resize(0x48, 0);
        assert!(try_file("zimg", &packed).contains("does not know"));
        let text = tool::filter("gzip", &["-c"], b"hello").unwrap();
        assert!(try_file("text.gz", &text).contains("no Image"));
    }

    /// Goal: kernels of two architectures lie side by side in the cache, and a shape gets its own. Method: a folder of
    /// each.
    #[test]
    fn kernels_are_told_apart_by_architecture() {
        let cache = Cache::temporary("kernel-arch-test");
        for file in ["6.18.5-cloud-amd64/vmlinux", "6.18.15-cloud-arm64/Image"] {
            cache::write_atomically(&cache.path("kernels").join(file), b"").unwrap();
        }
        let found = |arch| find(&cache, "6.18", arch).unwrap().release;
        assert_eq!(found(Arch::X86_64), "6.18.5-cloud-amd64");
        assert_eq!(found(Arch::Arm64), "6.18.15-cloud-arm64");
        let error = find(&cache, "6.18.15", Arch::X86_64).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        let error = find(&cache, "7.0", Arch::Arm64).unwrap_err().to_string();
        assert!(error.contains("make guests-arm64"), "{error}");
    }
}
