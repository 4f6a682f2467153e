// SPDX-License-Identifier: GPL-2.0-only
//! A CPU bandwidth quota for each of the guest's CPUs, by the host's control groups.
//!
//! With every guest CPU a host thread, the guest can use no more than the host's cores, so adding CPUs
//! stops helping there and placement stops mattering. A quota per thread, small enough that all together
//! stay below the host's cores, makes every guest CPU equally slow and their number count again. Unequal
//! quotas make some of them weaker than others: emulated CPUs have no speeds of their own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};

/// Shortest quota that the kernel accepts, microseconds.
const QUOTA_MIN_US: u64 = 1000;
/// Shortest period used, microseconds; longer ones make a throttled CPU stand still for longer.
const PERIOD_MIN_US: u64 = 10_000;
/// Longest period that the kernel accepts, microseconds.
const PERIOD_MAX_US: u64 = 1_000_000;
/// The share of the host's cores that all guest CPUs together may use, in percent; the emulator's own
/// thread and this program need the rest.
const HOST_SHARE_PERCENT: u64 = 80;

/// Time per period for each guest CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quotas {
    /// Microseconds of every period, for each CPU in order of number.
    pub quota_us: Vec<u64>,
    /// Length of the period in microseconds.
    pub period_us: u64,
}

impl Quotas {
    /// The largest quotas in proportion to these speeds (in thousandths of the fastest) on so many host cores.
    pub fn for_speeds(speeds_permille: &[u32], host_cores: u32) -> Result<Self> {
        let host = u64::from(host_cores.max(1));
        let speeds = || speeds_permille.iter().map(|&speed| u64::from(speed.max(1)));
        let all: u64 = speeds().sum();
        let (slowest, fastest) = (speeds().min().unwrap_or(1), speeds().max().unwrap_or(1));
        let period_us = (QUOTA_MIN_US * all * 100).div_ceil(host * HOST_SHARE_PERCENT * slowest);
        // A thread cannot use more than one core, however many there are; then the slowest gets its part of one.
        let period_us = period_us.max((QUOTA_MIN_US * fastest).div_ceil(slowest));
        let period_us = period_us.max(PERIOD_MIN_US);
        if period_us > PERIOD_MAX_US {
            return Err(LabError::Missing {
                what: format!(
                    "{host} host cores are too few for quotas on {} guest CPUs",
                    speeds_permille.len()
                ),
                remedy: "use a smaller shape, or one of equal CPUs and no --quota".into(),
            });
        }
        let share_us = |speed: u64| {
            let of_host = host * HOST_SHARE_PERCENT * period_us * speed / (100 * all);
            of_host.min(period_us * speed / fastest)
        };
        Ok(Quotas {
            quota_us: speeds().map(share_us).collect(),
            period_us,
        })
    }
}

/// Which control group hierarchy the host has for CPU bandwidth.
enum Hierarchy {
    V1(PathBuf),
    V2(PathBuf),
}

/// The groups of one guest; dropping removes them (the threads must be gone by then).
pub struct Groups {
    /// Innermost first.
    made: Vec<PathBuf>,
}

impl Groups {
    /// Puts each CPU thread of the emulator `pid` into a group of its own with its quota.
    pub fn apply(pid: u32, quotas: &Quotas) -> Result<Self> {
        let threads = cpu_threads(pid, quotas.quota_us.len())?;
        let period_us = quotas.period_us;
        let of_threads = || threads.iter().zip(&quotas.quota_us).enumerate();
        let mut groups = Groups { made: Vec::new() };
        match hierarchy()? {
            Hierarchy::V1(root) => {
                let parent = groups.make(root.join(format!("usher-{pid}")))?;
                for (index, (thread, quota_us)) in of_threads() {
                    let group = groups.make(parent.join(format!("cpu{index}")))?;
                    write(&group.join("cpu.cfs_period_us"), &period_us.to_string())?;
                    write(&group.join("cpu.cfs_quota_us"), &quota_us.to_string())?;
                    write(&group.join("tasks"), &thread.to_string())?;
                }
            }
            Hierarchy::V2(root) => {
                write(&root.join("cgroup.subtree_control"), "+cpu")?;
                let parent = groups.make(root.join(format!("usher-{pid}")))?;
                // The process moves as a whole first; its threads may then be spread over threaded
                // groups below it.
                write(&parent.join("cgroup.procs"), &pid.to_string())?;
                for (index, (thread, quota_us)) in of_threads() {
                    let group = groups.make(parent.join(format!("cpu{index}")))?;
                    write(&group.join("cgroup.type"), "threaded")?;
                    if index == 0 {
                        write(&parent.join("cgroup.subtree_control"), "+cpu")?;
                    }
                    write(&group.join("cpu.max"), &format!("{quota_us} {period_us}"))?;
                    write(&group.join("cgroup.threads"), &thread.to_string())?;
                }
            }
        }
        Ok(groups)
    }

    fn make(&mut self, path: PathBuf) -> Result<PathBuf> {
        std::fs::create_dir(&path).map_err(|error| unavailable(&path, &error))?;
        self.made.insert(0, path.clone());
        Ok(path)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in &self.made {
            // Ended threads leave their group a moment after the process is reaped.
            let begun = Instant::now();
            while std::fs::remove_dir(path).is_err() && begun.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Says early and clearly when this host cannot give quotas: it has none, or this process may not set them.
pub fn check_available() -> Result<()> {
    let (Hierarchy::V1(root) | Hierarchy::V2(root)) = hierarchy()?;
    let mut groups = Groups { made: Vec::new() };
    groups.make(root.join(format!("usher-{}-check", std::process::id())))?;
    Ok(())
}

fn hierarchy() -> Result<Hierarchy> {
    let v1 = Path::new("/sys/fs/cgroup/cpu");
    if v1.join("cpu.cfs_quota_us").is_file() {
        return Ok(Hierarchy::V1(v1.to_path_buf()));
    }
    let v2 = Path::new("/sys/fs/cgroup");
    let controllers = std::fs::read_to_string(v2.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "cpu") {
        return Ok(Hierarchy::V2(v2.to_path_buf()));
    }
    Err(LabError::Missing {
        what: "quotas for the guest's CPUs: this host has no control group controller for CPU bandwidth".into(),
        remedy: "mount one (`mount -t cgroup2 none /sys/fs/cgroup`, kernel option CONFIG_CFS_BANDWIDTH), or use a \
                 shape of equal CPUs without --quota"
            .into(),
    })
}

fn write(path: &Path, value: &str) -> Result<()> {
    std::fs::write(path, value).map_err(|error| unavailable(path, &error))
}

fn unavailable(path: &Path, error: &std::io::Error) -> LabError {
    LabError::Missing {
        what: format!("quotas for the guest's CPUs: {}: {error}", path.display()),
        remedy: "run as root on a host whose control groups may be changed, or use a shape of equal CPUs without \
                 --quota"
            .into(),
    }
}

/// The threads that are the guest's CPUs, in order; the emulator names them when asked to
/// (`debug-threads=on`).
fn cpu_threads(pid: u32, cpus: usize) -> Result<Vec<u32>> {
    let folder = PathBuf::from(format!("/proc/{pid}/task"));
    let begun = Instant::now();
    loop {
        let mut found: Vec<(u32, u32)> = Vec::new();
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let index = name
                .strip_prefix("CPU ")
                .and_then(|rest| rest.split('/').next()?.parse().ok());
            let thread = entry.file_name().to_string_lossy().parse().ok();
            found.extend(index.zip(thread));
        }
        if found.len() == cpus {
            found.sort_unstable();
            return Ok(found.into_iter().map(|(_, thread)| thread).collect());
        }
        if begun.elapsed() > Duration::from_secs(10) {
            return Err(LabError::Missing {
                what: format!(
                    "quotas for the guest's CPUs: found {} of {cpus} CPU threads of the emulator",
                    found.len()
                ),
                remedy: "use an emulator that names its threads (QEMU 7.2 does)".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: all quotas together stay below the host's cores, each is legal, and they are in proportion. Method: many
    /// sizes, of CPUs alike and of one half that is slower.
    #[test]
    fn quotas_fit_the_host() {
        let small = Quotas::for_speeds(&[1000; 8], 2).unwrap();
        assert_eq!((small.period_us, small.quota_us), (10_000, vec![2000; 8]));
        for cpus in [1, 2, 3, 8, 16, 64, 255] {
            for cores in [1, 2, 3, 16, 64] {
                for slow in [1000, 490, 435] {
                    let mut speeds = vec![1000; cpus];
                    speeds[..cpus / 2].fill(slow);
                    let quotas = Quotas::for_speeds(&speeds, cores).unwrap();
                    check(&quotas, &speeds, cores);
                }
            }
        }
        assert!(Quotas::for_speeds(&[1000; 4096], 1).is_err());
    }

    fn check(quotas: &Quotas, speeds: &[u32], cores: u32) {
        let Quotas {
            quota_us,
            period_us,
        } = quotas;
        let context = format!("{speeds:?} on {cores}: {quotas:?}");
        assert!(
            (PERIOD_MIN_US..=PERIOD_MAX_US).contains(period_us),
            "{context}"
        );
        let used: u64 = quota_us.iter().sum();
        assert!(
            used * 100 <= u64::from(cores) * HOST_SHARE_PERCENT * period_us,
            "{context}"
        );
        let fastest = quota_us.last().expect("a CPU");
        for (&quota, &speed) in quota_us.iter().zip(speeds) {
            assert!((QUOTA_MIN_US..=*period_us).contains(&quota), "{context}");
            // A microsecond is lost by rounding at most, on either side.
            let wanted = fastest * u64::from(speed);
            assert!(wanted.abs_diff(quota * 1000) <= 2000, "{context}");
        }
    }
}
