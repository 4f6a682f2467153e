// SPDX-License-Identifier: GPL-2.0-only
//! Reading a sysfs tree.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::build::MAX_CPU_NUMBER;
use crate::cpulist::{parse_cpulist, parse_mask};
use crate::error::TopoError;
use crate::ids::Cpu;
use crate::raw::{distinct_kinds, CoreType, RawCpu, RawNode, RawTopology, CAPACITY_MAX};

/// Reads the running machine's `/sys`.
///
/// # Errors
/// [`TopoError::NoSysfs`] if it is not there, or what is wrong with it.
pub fn read_live() -> Result<RawTopology, TopoError> {
    let system = PathBuf::from("/sys/devices/system");
    if !system.join("cpu").is_dir() {
        let remedy = "mount sysfs on /sys, or name a machine instead".into();
        return Err(TopoError::NoSysfs {
            path: system,
            remedy,
            live: true,
        });
    }
    let mut raw = Reader { system, live: true }.read()?;
    raw.name = "live".into();
    raw.title = "the running machine".into();
    Ok(raw)
}

/// Reads a captured tree.
///
/// # Errors
/// [`TopoError::NoSysfs`] if `dir` holds none, or which file is wrong and why.
pub fn read(dir: &Path) -> Result<RawTopology, TopoError> {
    let candidates = ["sys/devices/system", "devices/system", ""].map(|sub| dir.join(sub));
    let Some(system) = candidates.iter().find(|path| path.join("cpu").is_dir()) else {
        let remedy = "name the directory that holds sys/devices/system/cpu".into();
        return Err(TopoError::NoSysfs {
            path: dir.into(),
            remedy,
            live: false,
        });
    };
    let mut raw = Reader {
        system: system.clone(),
        live: false,
    }
    .read()?;
    let name = dir.file_name().filter(|name| *name != "sys");
    raw.name = name.map_or("sysfs".into(), |name| name.to_string_lossy().into_owned());
    Ok(raw)
}

struct Reader {
    /// `/sys/devices/system`, or the same of a captured tree.
    system: PathBuf,
    live: bool,
}

/// What identifies an LLC, best first; the number is the lowest CPU that shares it, or an id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LlcKey {
    Cache { level: u32, first_cpu: u32 },
    Die { first_cpu: u32 },
    Package { id: u32 },
}

/// A CPU's shared caches.
#[derive(Default)]
struct Caches {
    /// Level and CPUs of the highest data cache above L1.
    llc: Option<(u32, Vec<u32>)>,
    /// CPUs of the L2.
    l2: Option<Vec<u32>>,
}

/// Gives equal keys equal small numbers.
struct Labels<K>(BTreeMap<K, u32>);

impl<K: Ord> Labels<K> {
    fn label(&mut self, key: K) -> u32 {
        let next = u32::try_from(self.0.len()).expect("fewer labels than CPUs");
        *self.0.entry(key).or_insert(next)
    }
}

impl Reader {
    fn read(&self) -> Result<RawTopology, TopoError> {
        let (online, offline) = self.online_and_offline()?;
        let (nodes, node_of_cpu) = self.nodes(&online)?;
        let (core_types, type_of_cpu) = self.core_types(&online)?;
        let mut llcs = Labels(BTreeMap::new());
        let mut cpus = Vec::with_capacity(online.len());
        self.check_complete(&online)?;
        for ((cpu, node), core_type) in online.iter().zip(node_of_cpu).zip(type_of_cpu) {
            let siblings = self.siblings(*cpu)?;
            let core = siblings[0];
            let package = self.package(*cpu)?;
            let caches = self.caches(*cpu)?;
            let die = self.topology_list(*cpu, "die_cpus_list")?;
            let key = match (&caches.llc, die) {
                (Some((level, cpus)), _) => LlcKey::Cache {
                    level: *level,
                    first_cpu: cpus[0],
                },
                (None, Some(cpus)) => LlcKey::Die { first_cpu: cpus[0] },
                (None, None) => LlcKey::Package { id: package },
            };
            cpus.push(RawCpu {
                cpu: Cpu(*cpu),
                package,
                node,
                llc: llcs.label(key),
                cluster: self.cluster(*cpu, &siblings, &caches)?,
                core,
                core_type,
            });
        }
        Ok(RawTopology {
            name: String::new(),
            title: String::new(),
            costs: None,
            cpus,
            offline: offline.into_iter().map(Cpu).collect(),
            nodes,
            core_types,
        })
    }

    fn cpu_dir(&self, cpu: u32) -> PathBuf {
        self.system.join(format!("cpu/cpu{cpu}"))
    }

    fn online_and_offline(&self) -> Result<(Vec<u32>, Vec<u32>), TopoError> {
        let dirs = numbered(&self.system.join("cpu"), "cpu")?;
        let online = match list(&self.system.join("cpu/online"))? {
            Some(online) if !online.is_empty() => online,
            _ => {
                let mut online = Vec::new();
                for cpu in &dirs {
                    if number(&self.cpu_dir(*cpu).join("online"))? != Some(0) {
                        online.push(*cpu);
                    }
                }
                online
            }
        };
        if online.is_empty() {
            let remedy = "check that the capture is complete".into();
            let path = self.system.join("cpu");
            return Err(TopoError::NoSysfs {
                path,
                remedy,
                live: self.live,
            });
        }
        let present = list(&self.system.join("cpu/present"))?.unwrap_or(dirs);
        let is_offline = |cpu: &u32| online.binary_search(cpu).is_err();
        let offline = present.into_iter().filter(is_offline).collect();
        Ok((online, offline))
    }

    /// A list below `topology/` that holds the CPU itself; otherwise it is as good as missing.
    fn topology_list(&self, cpu: u32, file: &str) -> Result<Option<Vec<u32>>, TopoError> {
        let cpus = list(&self.cpu_dir(cpu).join("topology").join(file))?;
        Ok(cpus.filter(|cpus| cpus.binary_search(&cpu).is_ok()))
    }

    /// A kernel tells the topology of all CPUs that are online, or of none.
    fn check_complete(&self, online: &[u32]) -> Result<(), TopoError> {
        let lacks = |cpu: &u32| !self.cpu_dir(*cpu).join("topology").is_dir();
        match online.iter().find(|cpu| lacks(cpu)) {
            Some(cpu) if !online.iter().all(lacks) => {
                let what =
                    "missing, though other CPUs have theirs; check that the capture is complete";
                Err(TopoError::Io {
                    path: self.cpu_dir(*cpu).join("topology"),
                    source: io::Error::new(ErrorKind::NotFound, what),
                })
            }
            _ => Ok(()),
        }
    }

    /// The CPUs of the core, itself included.
    fn siblings(&self, cpu: u32) -> Result<Vec<u32>, TopoError> {
        for file in ["core_cpus_list", "thread_siblings_list"] {
            if let Some(cpus) = self.topology_list(cpu, file)? {
                return Ok(cpus);
            }
        }
        Ok(vec![cpu])
    }

    fn package(&self, cpu: u32) -> Result<u32, TopoError> {
        let path = self.cpu_dir(cpu).join("topology/physical_package_id");
        match text(&path)?.as_deref().map(str::trim) {
            None | Some("-1") => Ok(0),
            Some(_) => Ok(number(&path)?.unwrap_or(0)),
        }
    }

    fn caches(&self, cpu: u32) -> Result<Caches, TopoError> {
        let dir = self.cpu_dir(cpu).join("cache");
        let mut caches = Caches::default();
        for index in numbered(&dir, "index")? {
            let dir = dir.join(format!("index{index}"));
            let Some(level) = number(&dir.join("level"))? else {
                continue;
            };
            let kind = text(&dir.join("type"))?.unwrap_or_default();
            if level < 2 || kind.trim() == "Instruction" {
                continue;
            }
            let cpus = match list(&dir.join("shared_cpu_list"))? {
                Some(cpus) => Some(cpus),
                None => mask(&dir.join("shared_cpu_map"))?,
            };
            let Some(cpus) = cpus.filter(|cpus| cpus.binary_search(&cpu).is_ok()) else {
                continue;
            };
            if level == 2 {
                caches.l2 = Some(cpus.clone());
            }
            if caches
                .llc
                .as_ref()
                .is_none_or(|(highest, _)| *highest < level)
            {
                caches.llc = Some((level, cpus));
            }
        }
        Ok(caches)
    }

    /// The lowest CPU of the cluster, if the core shares a mid-level cache.
    fn cluster(
        &self,
        cpu: u32,
        siblings: &[u32],
        caches: &Caches,
    ) -> Result<Option<u32>, TopoError> {
        let l2_is_inner = caches.llc.as_ref().is_some_and(|(level, _)| *level > 2);
        if let Some(l2) = caches
            .l2
            .as_ref()
            .filter(|l2| l2_is_inner && l2.len() > siblings.len())
        {
            return Ok(Some(l2[0]));
        }
        let cluster = self.topology_list(cpu, "cluster_cpus_list")?;
        Ok(cluster
            .filter(|cluster| cluster.len() > siblings.len())
            .map(|cluster| cluster[0]))
    }

    /// The nodes, and the node of each CPU of `cpus`.
    fn nodes(&self, cpus: &[u32]) -> Result<(Vec<RawNode>, Vec<u32>), TopoError> {
        let dir = self.system.join("node");
        let ids = numbered(&dir, "node")?;
        let columns = match list(&dir.join("online"))? {
            Some(online) if !online.is_empty() => online,
            _ => ids.clone(),
        };
        let mut nodes = Vec::new();
        let mut node_of_cpu: BTreeMap<u32, u32> = BTreeMap::new();
        for id in &ids {
            let dir = dir.join(format!("node{id}"));
            let local = match list(&dir.join("cpulist"))? {
                Some(cpus) => cpus,
                None => numbered(&dir, "cpu")?,
            };
            for cpu in local {
                node_of_cpu.entry(cpu).or_insert(*id);
            }
            nodes.push(RawNode {
                id: *id,
                distances: distances(&dir.join("distance"), &columns)?,
                memory_bytes: memory(&dir.join("meminfo"))?,
            });
        }
        let first = ids.first().copied().unwrap_or(0);
        let mut found = Vec::with_capacity(cpus.len());
        for cpu in cpus {
            let node = match node_of_cpu.get(cpu) {
                Some(node) => *node,
                None => numbered(&self.cpu_dir(*cpu), "node")?
                    .first()
                    .copied()
                    .unwrap_or(first),
            };
            found.push(node);
        }
        Ok((nodes, found))
    }

    /// The kinds of cores, strongest first, and the kind of each CPU of `cpus`.
    fn core_types(&self, cpus: &[u32]) -> Result<(Vec<CoreType>, Vec<u32>), TopoError> {
        const PMUS: [&str; 2] = ["cpu_core", "cpu_atom"];
        let mut pmu_of_cpu: BTreeMap<u32, &str> = BTreeMap::new();
        for pmu in PMUS {
            // `system` is .../devices/system; the PMUs are its neighbours.
            let path = self.system.join("..").join(pmu).join("cpus");
            for cpu in list(&path)?.unwrap_or_default() {
                pmu_of_cpu.insert(cpu, pmu);
            }
        }
        let mut capacities = Vec::new();
        for cpu in cpus {
            let path = self.cpu_dir(*cpu).join("cpu_capacity");
            let capacity = number(&path)?;
            if let Some(capacity) = capacity.filter(|capacity| *capacity > CAPACITY_MAX) {
                let origin = path.display().to_string();
                let remedy = "capacities are 0 to 1024";
                return Err(TopoError::malformed(
                    origin,
                    "capacity out of range",
                    capacity,
                    remedy,
                ));
            }
            capacities.push(capacity);
        }
        if capacities.iter().all(Option::is_none) {
            self.guess_hybrid(cpus, &pmu_of_cpu, &mut capacities);
        }
        let kinds: Vec<(u32, &str)> = cpus
            .iter()
            .zip(&capacities)
            .map(|(cpu, capacity)| {
                let name = pmu_of_cpu.get(cpu).copied().unwrap_or("cpu");
                (capacity.unwrap_or(CAPACITY_MAX), name)
            })
            .collect();
        Ok(distinct_kinds(&kinds))
    }

    /// Capacities of hybrid Intel CPUs under a kernel that does not give them (before 6.12).
    fn guess_hybrid(
        &self,
        cpus: &[u32],
        pmu_of_cpu: &BTreeMap<u32, &str>,
        capacities: &mut [Option<u32>],
    ) {
        let max_khz = |pmu: &str| {
            let of_pmu = cpus
                .iter()
                .filter(|cpu| pmu_of_cpu.get(cpu).copied() == Some(pmu));
            // A guess needs no error: cpufreq drivers may refuse to be read.
            let path = |cpu: &u32| self.cpu_dir(*cpu).join("cpufreq/cpuinfo_max_freq");
            of_pmu
                .filter_map(|cpu| number(&path(cpu)).ok().flatten())
                .max()
        };
        let (Some(core), Some(atom)) = (max_khz("cpu_core"), max_khz("cpu_atom")) else {
            return;
        };
        if core == 0 {
            return;
        }
        let weak = u64::from(atom) * u64::from(CAPACITY_MAX) / u64::from(core);
        let weak = u32::try_from(weak)
            .unwrap_or(CAPACITY_MAX)
            .clamp(1, CAPACITY_MAX);
        for (cpu, capacity) in cpus.iter().zip(capacities) {
            *capacity = match pmu_of_cpu.get(cpu) {
                Some(&"cpu_atom") => Some(weak),
                _ => Some(CAPACITY_MAX),
            };
        }
    }
}

/// The file's text, or `None` if there is no such file.
fn text(path: &Path) -> Result<Option<String>, TopoError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(TopoError::Io {
            path: path.into(),
            source,
        }),
    }
}

fn malformed(path: &Path, what: &str, value: &str) -> TopoError {
    let remedy = "check that the capture is complete";
    TopoError::malformed(path.display().to_string(), what, value.trim(), remedy)
}

fn number(path: &Path) -> Result<Option<u32>, TopoError> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(malformed(path, "not a number", &text)),
    }
}

/// A list such as `0-3,8`, ascending. An empty one is `Some` of nothing.
fn list(path: &Path) -> Result<Option<Vec<u32>>, TopoError> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    match parse_cpulist(&text, MAX_CPU_NUMBER) {
        Ok(list) => Ok(Some(list)),
        Err((item, what)) => Err(malformed(path, &format!("not a list ({what})"), &item)),
    }
}

/// A mask such as `00000000,0000000f`, as ascending numbers.
fn mask(path: &Path) -> Result<Option<Vec<u32>>, TopoError> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    match parse_mask(text.trim()) {
        Some(cpus) => Ok(Some(cpus)),
        None => Err(malformed(path, "not a mask of hexadecimal words", &text)),
    }
}

/// N of the entries `PREFIXn` of a directory, ascending. None if there is no such directory.
fn numbered(dir: &Path, prefix: &str) -> Result<Vec<u32>, TopoError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(source) => {
            return Err(TopoError::Io {
                path: dir.into(),
                source,
            })
        }
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| TopoError::Io {
            path: dir.into(),
            source,
        })?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let Some(digits) = number.filter(is_number) else {
            continue;
        };
        match digits.parse() {
            Ok(number) if number <= MAX_CPU_NUMBER => numbers.push(number),
            _ => return Err(malformed(&entry.path(), "number too large", digits)),
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A node's distances: one number per online node, in ascending order of their ids.
fn distances(path: &Path, columns: &[u32]) -> Result<BTreeMap<u32, u32>, TopoError> {
    let Some(text) = text(path)? else {
        return Ok(BTreeMap::new());
    };
    let numbers: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
    let numbers = numbers.map_err(|_| malformed(path, "not a row of numbers", &text))?;
    if numbers.len() != columns.len() {
        let what = format!("{} distances for {} nodes", numbers.len(), columns.len());
        return Err(malformed(path, &what, &text));
    }
    Ok(columns.iter().copied().zip(numbers).collect())
}

/// `Node 0 MemTotal:  1048576 kB`
fn memory(path: &Path) -> Result<Option<u64>, TopoError> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    let Some(line) = text.lines().find(|line| line.contains("MemTotal:")) else {
        return Ok(None);
    };
    let kib = line
        .split_whitespace()
        .nth_back(1)
        .and_then(|kib| kib.parse::<u64>().ok());
    match kib.and_then(|kib| kib.checked_mul(1024)) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(malformed(path, "MemTotal is not a number of kB", line)),
    }
}
