// SPDX-License-Identifier: GPL-2.0-only
//! Packages of the distribution, downloaded and unpacked without installing anything.
//!
//! A private apt configuration (own sources, own lists, own archive folder, the system's keys and proxy)
//! lets any suite be used without touching the system's. The mirror is the one that this machine's own
//! configuration names.

use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::cache::Cache;
use crate::error::{LabError, Result};
use crate::tool;

/// Debian's archive keys, from the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A private apt configuration.
pub struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

/// What the index says about a package.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Package {
    /// Name.
    pub name: String,
    /// Bytes of the archive.
    pub size: u64,
    /// Names of the packages it depends on, the first of alternatives.
    pub depends: Vec<String>,
}

impl Apt {
    /// A configuration of this name that knows the given suites for one architecture, with fresh lists (this is what
    /// needs the network).
    pub fn open(cache: &Cache, name: &str, arch: Arch, suites: &[&str]) -> Result<Self> {
        if !Path::new("/usr/bin/apt-get").is_file() {
            return Err(LabError::Missing {
                what: "guest kernels and programs come as Debian packages, and apt is not here"
                    .into(),
                remedy:
                    "use Debian 12, or put kernels and programs there by hand (see CONTRIBUTING.md)"
                        .into(),
            });
        }
        let folder = cache.path(&format!("apt/{name}"));
        let create = |path: PathBuf| {
            std::fs::create_dir_all(&path).map_err(|e| LabError::io(path, "cannot create", e))
        };
        for inside in ["parts", "lists/partial", "archives/partial"] {
            create(folder.join(inside))?;
        }
        let at = folder.display();
        let debian = arch.debian();
        let options = [
            "Dir::Etc::sourcelist=/dev/null".to_string(),
            format!("Dir::Etc::sourceparts={at}/parts"),
            format!("Dir::State::lists={at}/lists"),
            format!("Dir::Cache={at}"),
            format!("Dir::Cache::archives={at}/archives"),
            "Acquire::Languages=none".to_string(),
            // Only package lists: no icons, no file contents.
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_string(),
            "Acquire::Retries=3".to_string(),
            // The cache may be readable for its owner only.
            "APT::Sandbox::User=root".to_string(),
            format!("APT::Architecture={debian}"),
            format!("APT::Architectures={debian}"),
        ];
        let options = options
            .into_iter()
            .flat_map(|option| ["-o".to_string(), option])
            .collect();
        let apt = Apt { folder, options };
        let mirror = mirror(cache)?;
        let sources: String = suites
            .iter()
            .map(|suite| format!("deb [arch={debian} signed-by={KEYRING}] {mirror} {suite} main\n"))
            .collect();
        let file = apt.folder.join("parts/usher.list");
        std::fs::write(&file, sources).map_err(|e| LabError::io(file, "cannot write", e))?;
        apt.run("apt-get", &["-q", "update"])?;
        Ok(apt)
    }

    /// Names of all packages with this prefix.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let text = self.run("apt-cache", &["pkgnames", prefix])?;
        Ok(text.lines().map(str::to_string).collect())
    }

    /// What the index says about these packages; those that cannot be downloaded are left out.
    pub fn show(&self, names: &[String]) -> Result<Vec<Package>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut arguments = vec!["show", "--no-all-versions"];
        arguments.extend(names.iter().map(String::as_str));
        // apt-cache fails when one of the names is virtual, though it shows the others.
        let text = match self.run("apt-cache", &arguments) {
            Ok(text) => text,
            Err(_) => {
                let one_by_one = names
                    .iter()
                    .map(|name| self.run("apt-cache", &[arguments[0], name]));
                one_by_one
                    .filter_map(Result::ok)
                    .collect::<Vec<_>>()
                    .join("\n")
            }
        };
        let mut packages: Vec<Package> = Vec::new();
        for package in parse_stanzas(&text) {
            if !packages.iter().any(|known| known.name == package.name) {
                packages.push(package);
            }
        }
        Ok(packages)
    }

    /// Downloads packages and unpacks them below `root`.
    pub fn unpack(&self, names: &[String], root: &Path) -> Result<()> {
        let downloads = self
            .folder
            .join(format!("downloads-{}", std::process::id()));
        std::fs::create_dir_all(&downloads)
            .and_then(|()| std::fs::create_dir_all(root))
            .map_err(|error| LabError::io(&downloads, "cannot create", error))?;
        let result = self.unpack_through(names, root, &downloads);
        let _ = std::fs::remove_dir_all(&downloads);
        result
    }

    fn unpack_through(&self, names: &[String], root: &Path, downloads: &Path) -> Result<()> {
        let mut arguments = vec!["-q", "download"];
        arguments.extend(names.iter().map(String::as_str));
        self.run_in("apt-get", &arguments, Some(downloads))?;
        let entries = std::fs::read_dir(downloads)
            .map_err(|error| LabError::io(downloads, "cannot list", error))?;
        for file in entries.flatten().map(|entry| entry.path()) {
            if file.extension().is_some_and(|extension| extension == "deb") {
                tool::output("dpkg", &[Path::new("-x"), &file, root])?;
            }
        }
        Ok(())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_in(program, arguments, None)
    }

    fn run_in(&self, program: &str, arguments: &[&str], folder: Option<&Path>) -> Result<String> {
        let mut all: Vec<&str> = self.options.iter().map(String::as_str).collect();
        all.extend(arguments);
        let bytes = tool::output_in(program, &all, folder)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The address of the Debian mirror that this machine uses.
fn mirror(cache: &Cache) -> Result<String> {
    let ask = |lists: Option<&str>| -> Result<Option<String>> {
        let mut arguments = vec![
            "indextargets",
            "--format",
            "$(REPO_URI) $(COMPONENT) $(SUITE)",
        ];
        let option = lists.map(|lists| format!("Dir::State::lists={lists}"));
        if let Some(option) = &option {
            arguments.extend(["-o", option]);
        }
        let text = tool::output("apt-get", &arguments)?;
        Ok(parse_mirror(&String::from_utf8_lossy(&text)))
    };
    if let Some(mirror) = ask(None)? {
        return Ok(mirror);
    }
    // Machines whose lists were cleaned up name no targets: fetch the lists to a place of our own.
    let lists = cache.path("apt/system-lists");
    let partial = lists.join("partial");
    std::fs::create_dir_all(&partial).map_err(|e| LabError::io(partial, "cannot create", e))?;
    let lists = lists.to_string_lossy();
    let option = format!("Dir::State::lists={lists}");
    tool::output(
        "apt-get",
        &[
            "-q",
            "-o",
            &option,
            "-o",
            "APT::Sandbox::User=root",
            "update",
        ],
    )?;
    ask(Some(&lists))?.ok_or_else(|| LabError::Missing {
        what: "apt's own configuration names no Debian mirror".into(),
        remedy: "check /etc/apt/sources.list.d and run `apt-get update`".into(),
    })
}

/// The first mirror of the main component that is not a security archive (which has no backports).
fn parse_mirror(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (uri, component, suite) = (words.next()?, words.next()?, words.next().unwrap_or(""));
        let usable =
            component == "main" && !uri.contains("security") && !suite.contains("security");
        usable.then(|| uri.trim_end_matches('/').to_string())
    })
}

/// Reads the stanzas that `apt-cache show` prints.
fn parse_stanzas(text: &str) -> Vec<Package> {
    let mut packages: Vec<Package> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(": ") else {
            continue;
        };
        if key == "Package" {
            packages.push(Package {
                name: value.to_string(),
                ..Package::default()
            });
        }
        let Some(package) = packages.last_mut() else {
            continue;
        };
        match key {
            "Size" => package.size = value.parse().unwrap_or(0),
            "Depends" => {
                let first = |clause: &str| {
                    let end = clause.find([' ', '(', '|', ':']).unwrap_or(clause.len());
                    clause[..end].to_string()
                };
                package.depends = value
                    .split(',')
                    .map(|clause| first(clause.trim()))
                    .collect();
            }
            _ => {}
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sizes and dependencies come out of apt's text. Method: two stanzas with alternatives, versions
    /// and architectures.
    #[test]
    fn stanzas_are_read() {
        let text = "Package: a\nVersion: 1\nDepends: libc6 (>= 2.34), x | y, z:any\nSize: 12\n\n\
                    Package: b\nDescription: none\n";
        let packages = parse_stanzas(text);
        assert_eq!(packages.len(), 2);
        assert_eq!(packages[0].depends, ["libc6", "x", "z"]);
        assert_eq!((packages[0].size, packages[1].size), (12, 0));
    }

    /// Goal: the mirror is the archive itself, not its security sister. Method: apt's output in both orders.
    #[test]
    fn mirror_is_the_main_archive() {
        let text = "http://one.example/debian-security/ main stable-security\n\
                    http://one.example/debian/ contrib stable\nhttp://one.example/debian/ main stable\n";
        assert_eq!(
            parse_mirror(text).as_deref(),
            Some("http://one.example/debian")
        );
        assert_eq!(parse_mirror(""), None);
    }
}
