// SPDX-License-Identifier: GPL-2.0-only
//! Fills the cache: guest kernels and the programs that guests run. What is there already is not asked
//! for again, so a second call needs no network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::apt::{Apt, Package};
use crate::arch::Arch;
use crate::cache::{self, Cache};
use crate::elf::Elf;
use crate::error::{LabError, Result};
use crate::image::{programs_folder, Plan};
use crate::kernel::{self, Kernel, Version, NO_SCHED_EXT};
use crate::tool;

/// Kernel series that the tests need.
pub fn kernel_series(arch: Arch) -> &'static [&'static str] {
    match arch {
        Arch::X86_64 => &["6.18", "7.0"],
        Arch::Arm64 => &["6.18"],
    }
}

/// Suites that carry kernels newer than Debian 12's own.
const KERNEL_SUITES: [&str; 3] = ["bookworm-backports", "trixie-backports", "sid"];

/// Packages of benchmark programs.
const PROGRAM_PACKAGES: [&str; 4] = ["rt-tests", "stress-ng", "sysbench", "dbench"];

/// What guests of another architecture need besides, since nothing of this machine runs in them: a shell, the
/// libraries of our own programs, and what those are linked against when they are built.
const OTHER_ARCH_PACKAGES: [&str; 7] = [
    "busybox-static",
    "libc6",
    "libgcc-s1",
    "libelf1",
    "libelf-dev",
    "zlib1g",
    "zlib1g-dev",
];

/// The packages that guests of an architecture need.
fn program_packages(arch: Arch) -> Vec<String> {
    let others: &[&str] = match arch {
        Arch::X86_64 => &[],
        Arch::Arm64 => &OTHER_ARCH_PACKAGES,
    };
    let all = PROGRAM_PACKAGES.iter().chain(others);
    all.map(|name| name.to_string()).collect()
}

/// Where the emulator of arm64 guests comes from. Their CPUs are host threads each, for quotas, and the emulator of Debian 12 (QEMU
/// 7.2) now and then goes on running a piece of the kernel that the kernel has patched since: at the end of a scheduler it
/// was seen to take a branch that had been switched off before, and to fall into a null pointer.
const EMULATOR_SUITE: &str = "bookworm-backports";

/// Its packages.
const EMULATOR_PACKAGES: [&str; 3] = ["qemu-system-arm", "qemu-system-common", "qemu-system-data"];

/// Where to say what is going on.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// Gets a fit kernel of each series; returns them in the order asked for.
pub fn kernels(cache: &Cache, arch: Arch, series: &[&str], say: Say) -> Result<Vec<Kernel>> {
    let mut apt = None;
    let mut found = Vec::new();
    for &wanted in series {
        if let Ok(kernel) = kernel::find(cache, wanted, arch) {
            found.push(kernel);
            continue;
        }
        if apt.is_none() {
            say(&format!(
                "reading the package lists of newer suites for {arch} (private to usher)"
            ));
            let name = apt_name("kernels", arch);
            apt = Some(Apt::open(cache, &name, arch, &KERNEL_SUITES)?);
        }
        let apt = apt.as_ref().expect("set above");
        found.push(fetch_kernel(cache, apt, arch, wanted, say)?);
    }
    Ok(found)
}

/// The name of a private apt configuration. Each architecture has its own, so that lists do not replace each other.
fn apt_name(what: &str, arch: Arch) -> String {
    match arch {
        Arch::X86_64 => what.into(),
        Arch::Arm64 => format!("{what}-{arch}"),
    }
}

/// The packages of one kernel release.
#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    release: String,
    /// The one with the image.
    image: String,
    /// The one with the configuration, when it is separate and still on the mirror.
    config: Option<String>,
}

fn fetch_kernel(cache: &Cache, apt: &Apt, arch: Arch, series: &str, say: Say) -> Result<Kernel> {
    let names = apt.names("linux-")?;
    let names: Vec<String> = names
        .into_iter()
        .filter(|name| name.contains(arch.kernel_flavour()))
        .collect();
    let candidates = candidates(&apt.show(&names)?, arch);
    let known = kernel::cached(cache)?;
    let wanted = Version::of(series);
    let mut without_sched_ext: Option<Version> = None;
    for candidate in &candidates {
        let release = &candidate.release;
        let version = Version::of(release);
        // A mirror may have a dozen versions of a series that was built without.
        if !version.in_series(&wanted) || without_sched_ext == Some(version.series()) {
            continue;
        }
        let refused = known
            .iter()
            .find(|kernel| &kernel.release == release && kernel.unfit.is_some());
        let kernel = match refused {
            Some(kernel) => kernel.clone(),
            None => {
                say(&format!("kernel {release}: downloading"));
                unpack_kernel(cache, apt, candidate)?
            }
        };
        let Some(why) = &kernel.unfit else {
            return Ok(kernel);
        };
        let when = if refused.is_some() { " before" } else { "" };
        say(&format!("kernel {release}: refused{when}: {why}"));
        if why == NO_SCHED_EXT {
            say("older kernels of that series are taken to be the same");
            without_sched_ext = Some(version.series());
        }
    }
    let list: Vec<&str> = candidates.iter().map(|c| c.release.as_str()).collect();
    Err(LabError::Missing {
        what: format!(
            "the mirror has no fit kernel {series} for {arch} (it has {})",
            list.join(", ")
        ),
        remedy: "ask for another series with `usher lab kernels --fetch SERIES`, or name a kernel file with \
                 --kernel"
            .into(),
    })
}

/// Puts packages together to kernels, newest first.
fn candidates(packages: &[Package], arch: Arch) -> Vec<Candidate> {
    // Image packages are tens of megabytes; those that only depend on others are a few kilobytes.
    const IMAGE_SIZE_MIN: u64 = 1 << 20;
    let mut images: BTreeMap<(Version, String), &str> = BTreeMap::new();
    for package in packages
        .iter()
        .filter(|package| package.size >= IMAGE_SIZE_MIN)
    {
        let name = package.name.as_str();
        let release = ["linux-binary-unsigned-", "linux-binary-", "linux-image-"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix));
        let Some(release) = release.map(|r| r.strip_suffix("-unsigned").unwrap_or(r)) else {
            continue;
        };
        if !release.ends_with(arch.kernel_flavour())
            || !release.starts_with(|c: char| c.is_ascii_digit())
        {
            continue;
        }
        // Any of them will do: signed and unsigned images unpack to the same kernel.
        images
            .entry((Version::of(release), release.to_string()))
            .or_insert(name);
    }
    let has = |name: &str| packages.iter().any(|package| package.name == name);
    images
        .into_iter()
        .rev()
        .map(|((_, release), image)| {
            let config = Some(format!("linux-base-{release}")).filter(|name| has(name));
            Candidate {
                image: image.to_string(),
                config,
                release,
            }
        })
        .collect()
}

fn unpack_kernel(cache: &Cache, apt: &Apt, candidate: &Candidate) -> Result<Kernel> {
    let root = cache.path(&format!("apt/unpacked-{}", std::process::id()));
    let result = (|| {
        let names: Vec<String> = candidate
            .config
            .iter()
            .chain([&candidate.image])
            .cloned()
            .collect();
        apt.unpack(&names, &root)?;
        let release = &candidate.release;
        let image = image_in(&root, release).ok_or_else(|| {
            LabError::bad_file(
                &root,
                format!("the package {} has no kernel image", candidate.image),
            )
        })?;
        let own = first_file(
            &root,
            &[
                format!("boot/config-{release}"),
                format!("usr/lib/modules/{release}/config"),
            ],
        );
        // A mirror may keep an image and drop the package with its configuration. A neighbour's of the
        // same flavour then serves: libbpf looks up a handful of values in it, such as CONFIG_HZ.
        let config = match own {
            Some(config) => Some(config),
            None => kernel::cached(cache)?
                .into_iter()
                .rev()
                .filter(|kernel| kernel.arch == Arch::of_release(release))
                .find_map(|kernel| kernel.config),
        };
        kernel::adopt(cache, &image, config.as_deref())
    })();
    let _ = std::fs::remove_dir_all(&root);
    result
}

/// The kernel image of an unpacked package. Debian's unsigned ones name it so from 7.2 on.
fn image_in(root: &Path, release: &str) -> Option<PathBuf> {
    first_file(
        root,
        &[
            format!("boot/vmlinuz-{release}"),
            format!("usr/lib/modules/{release}/vmlinuz"),
            format!("usr/lib/modules/{release}/vmlinuz.unsigned"),
        ],
    )
}

fn first_file(root: &Path, inside: &[String]) -> Option<PathBuf> {
    inside
        .iter()
        .map(|path| root.join(path))
        .find(|path| path.is_file())
}

/// True when the programs of an architecture are in the cache.
pub fn has_programs(cache: &Cache, arch: Arch) -> bool {
    std::fs::read_to_string(programs_marker(cache, arch))
        .is_ok_and(|text| text == programs_marker_text(arch))
}

fn programs_marker(cache: &Cache, arch: Arch) -> PathBuf {
    programs_folder(cache, arch).join("complete")
}

fn programs_marker_text(arch: Arch) -> String {
    format!("{}\n", program_packages(arch).join(" "))
}

/// Gets the benchmark programs and the libraries that this machine does not have.
pub fn programs(cache: &Cache, arch: Arch, say: Say) -> Result<()> {
    if has_programs(cache, arch) {
        return Ok(());
    }
    let suite = debian_codename()?;
    say(&format!(
        "reading the package lists for {arch} guest programs (private to usher)"
    ));
    let apt = Apt::open(cache, &apt_name("programs", arch), arch, &[&suite])?;
    let root = programs_folder(cache, arch).join("root");
    let mut packages = program_packages(arch);
    let mut wanted = packages.clone();
    // Each round brings libraries that the last one's programs and libraries name; chains are short.
    for _ in 0..12 {
        say(&format!("guest programs: downloading {}", wanted.join(" ")));
        apt.unpack(&wanted, &root)?;
        let missing = missing_libraries(cache, arch, &root)?;
        if missing.is_empty() {
            let text = programs_marker_text(arch);
            return cache::write_atomically(&programs_marker(cache, arch), text.as_bytes());
        }
        wanted = providers(&missing, &apt.show(&packages)?, &packages);
        if wanted.is_empty() {
            break;
        }
        packages.extend(wanted.iter().cloned());
    }
    Err(LabError::Missing {
        what: format!(
            "no package provides {} for the guest's programs",
            missing_libraries(cache, arch, &root)?.join(", ")
        ),
        remedy: "install those libraries on this machine and try again".into(),
    })
}

/// The emulator for guests of an architecture: the cache's own if it has one, else this machine's.
pub fn emulator_program(cache: &Cache, arch: Arch) -> PathBuf {
    let own = emulator_folder(cache, arch)
        .join("usr/bin")
        .join(arch.emulator());
    match own.is_file() {
        true => own,
        false => arch.emulator().into(),
    }
}

fn emulator_folder(cache: &Cache, arch: Arch) -> PathBuf {
    cache.path(&format!("emulator-{arch}"))
}

/// Gets an emulator of our own where this machine's is not good enough. One that does not run here, for want of a library, is
/// said and not kept: this machine's then serves.
pub fn emulator(cache: &Cache, arch: Arch, say: Say) -> Result<()> {
    let folder = emulator_folder(cache, arch);
    if arch == Arch::X86_64 || folder.is_dir() {
        return Ok(());
    }
    say(&format!(
        "the emulator of {arch} guests: downloading a newer one than Debian 12's"
    ));
    let apt = Apt::open(cache, "emulator", Arch::X86_64, &[EMULATOR_SUITE])?;
    let fresh = cache::partial(&folder);
    let _ = std::fs::remove_dir_all(&fresh);
    apt.unpack(&EMULATOR_PACKAGES.map(String::from), &fresh)?;
    let program = fresh.join("usr/bin").join(arch.emulator());
    if let Err(error) = tool::output(&program.to_string_lossy(), &["--version"]) {
        say(&format!(
            "it does not run here, so this machine's own is used: {error}"
        ));
        let _ = std::fs::remove_dir_all(&fresh);
        return Ok(());
    }
    std::fs::rename(&fresh, &folder).map_err(|e| LabError::io(folder, "cannot create", e))
}

/// The libraries that the programs under `root` need and that are neither there nor on this machine.
fn missing_libraries(cache: &Cache, arch: Arch, root: &Path) -> Result<Vec<String>> {
    let plan = Plan::new(cache, arch);
    let mut queue = Vec::new();
    for folder in ["usr/bin", "usr/sbin"] {
        if let Ok(entries) = std::fs::read_dir(root.join(folder)) {
            queue.extend(
                entries
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|path| path.is_file()),
            );
        }
    }
    let mut seen = BTreeMap::new();
    while let Some(path) = queue.pop() {
        let bytes = cache::read(&path)?;
        let Some(elf) = Elf::parse(&bytes) else {
            continue;
        };
        for name in elf.needed() {
            if !seen.contains_key(name) {
                let library = plan.library(name);
                queue.extend(library.clone());
                seen.insert(name.to_string(), library.is_some());
            }
        }
    }
    Ok(seen
        .into_iter()
        .filter(|(_, found)| !found)
        .map(|(name, _)| name)
        .collect())
}

/// Which packages to get next: of the libraries that the packages so far depend on, those whose names fit
/// a missing library, or all when none fits (a library's package need not be named after it).
fn providers(missing: &[String], known: &[Package], have: &[String]) -> Vec<String> {
    let mut candidates: Vec<&String> = known
        .iter()
        .flat_map(|package| &package.depends)
        .filter(|name| {
            name.starts_with("lib") && !name.starts_with("libc6") && !have.contains(name)
        })
        .collect();
    candidates.sort();
    candidates.dedup();
    // libIPSec_MB.so.1 is in libipsec-mb1: compare what is before ".so", lower case, dashes.
    let stem = |library: &String| {
        let end = library.find(".so").unwrap_or(library.len());
        library[..end].to_lowercase().replace('_', "-")
    };
    let fits = |name: &&&String| {
        missing
            .iter()
            .any(|library| name.starts_with(&stem(library)))
    };
    let fitting: Vec<String> = candidates
        .iter()
        .filter(fits)
        .map(|name| name.to_string())
        .collect();
    match fitting.is_empty() {
        true => candidates.into_iter().cloned().collect(),
        false => fitting,
    }
}

/// The name of this Debian release.
fn debian_codename() -> Result<String> {
    let path = Path::new("/etc/os-release");
    let text = String::from_utf8_lossy(&cache::read(path)?).into_owned();
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|v| v.trim_matches('"').to_string())
    };
    match (value("ID=").as_deref(), value("VERSION_CODENAME=")) {
        (Some("debian"), Some(codename)) => Ok(codename),
        (id, _) => Err(LabError::Missing {
            what: format!(
                "guest programs come as Debian packages, and this is {}",
                id.unwrap_or("not Debian")
            ),
            remedy: format!(
                "install {} so that they are on the PATH",
                PROGRAM_PACKAGES.join(", ")
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, size: u64, depends: &[&str]) -> Package {
        let depends = depends.iter().map(|name| name.to_string()).collect();
        Package {
            name: name.into(),
            size,
            depends,
        }
    }

    /// Goal: of the many packages with "linux" in their name the right ones become kernels, newest first
    /// by number, with their configuration where it is still to be had. Method: names as mirrors have them.
    #[test]
    fn packages_become_kernels() {
        let big = 10 << 20;
        let list = [
            package("linux-image-6.18.9+deb13-cloud-amd64", big, &[]),
            package("linux-image-6.18.15+deb13-cloud-amd64", big, &[]),
            package("linux-image-6.18.15+deb13-cloud-amd64-dbg", big, &[]),
            package("linux-image-7.0.13+deb13-cloud-amd64", 1920, &[]),
            package("linux-binary-7.0.13+deb13-cloud-amd64", big, &[]),
            package("linux-binary-unsigned-7.3.4+deb13-cloud-amd64", big, &[]),
            package("linux-base-7.3.4+deb13-cloud-amd64", 4000, &[]),
            package("linux-image-cloud-amd64", 1000, &[]),
            package("linux-headers-7.3.4+deb13-cloud-amd64", big, &[]),
            package("linux-image-6.18.15+deb13-cloud-arm64", big, &[]),
        ];
        let found = candidates(&list, Arch::X86_64);
        let names: Vec<&str> = found.iter().map(|c| c.image.as_str()).collect();
        assert_eq!(
            names,
            [
                "linux-binary-unsigned-7.3.4+deb13-cloud-amd64",
                "linux-binary-7.0.13+deb13-cloud-amd64",
                "linux-image-6.18.15+deb13-cloud-amd64",
                "linux-image-6.18.9+deb13-cloud-amd64",
            ]
        );
        assert_eq!(
            found[0].config.as_deref(),
            Some("linux-base-7.3.4+deb13-cloud-amd64")
        );
        assert_eq!(found[1].config, None);
        let found = candidates(&list, Arch::Arm64);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].release, "6.18.15+deb13-cloud-arm64");
    }

    /// Goal: the kernel is found wherever packages have put it. Method: a folder for each of the three places.
    #[test]
    fn images_are_found_where_packages_have_them() {
        let root = Cache::temporary("images-test").path("unpacked");
        let release = "7.3.4+deb13-cloud-amd64";
        for place in [
            format!("boot/vmlinuz-{release}"),
            format!("usr/lib/modules/{release}/vmlinuz"),
            format!("usr/lib/modules/{release}/vmlinuz.unsigned"),
        ] {
            let file = root.join(&place);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            assert_eq!(image_in(&root, release), None, "{place}");
            std::fs::write(&file, "").unwrap();
            assert_eq!(image_in(&root, release), Some(file), "{place}");
            std::fs::remove_dir_all(&root).unwrap();
        }
    }

    /// Goal: missing libraries lead to the packages that have them. Method: names that fit, then one that
    /// does not and so makes all candidates wanted.
    #[test]
    fn missing_libraries_lead_to_packages() {
        let known = [package(
            "stress-ng",
            1,
            &["libc6", "libipsec-mb1", "libegl1", "python3"],
        )];
        let missing = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(
            providers(&missing(&["libIPSec_MB.so.1"]), &known, &[]),
            ["libipsec-mb1"]
        );
        let all = providers(&missing(&["libGLdispatch.so.0"]), &known, &[]);
        assert_eq!(all, ["libegl1", "libipsec-mb1"]);
        let have = missing(&["libegl1", "libipsec-mb1"]);
        assert!(providers(&missing(&["libGLdispatch.so.0"]), &known, &have).is_empty());
    }
}
