// SPDX-License-Identifier: GPL-2.0-only
//! How busy CPUs are and how many tasks wait for them, from the kernel's own counters in `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use usher_topo::{CidRange, Topology};

/// A CPU whose share of busy time is below this counts as idle: `/proc/stat` counts in ticks of 10 ms, one of which is
/// anybody's in a second.
const IDLE_BELOW: f64 = 0.02;

/// What a CPU has counted since it was booted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    /// Ticks (10 ms) in which it worked, for whomever.
    busy: u64,
    /// Ticks in which it did not.
    idle: u64,
    /// Of `/proc/schedstat`, where the kernel has that.
    turns: Option<Turns>,
}

/// Tasks that got their turn on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turns {
    /// For how long they had waited for it, ns.
    waited_ns: u64,
    /// How many.
    count: u64,
}

/// All online CPUs at one time.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Instant,
    cpus: BTreeMap<u32, Counted>,
}

impl Sample {
    /// Reads the counters below `proc`.
    ///
    /// # Errors
    /// `stat` cannot be read, or names no CPU.
    pub fn read(proc: &Path) -> io::Result<Self> {
        let stat = proc.join("stat");
        let named = |what: String| io::Error::other(format!("{}: {what}", stat.display()));
        let text = fs::read_to_string(&stat).map_err(|e| named(e.to_string()))?;
        let mut cpus = parse_stat(&text);
        if cpus.is_empty() {
            return Err(named("names no CPU".into()));
        }
        let text = fs::read_to_string(proc.join("schedstat")).unwrap_or_default();
        for (cpu, turns) in parse_schedstat(&text) {
            if let Some(counted) = cpus.get_mut(&cpu) {
                counted.turns = Some(turns);
            }
        }
        Ok(Self {
            at: Instant::now(),
            cpus,
        })
    }

    /// Whether exactly the online CPUs of this machine are in it.
    pub fn is_of(&self, topo: &Topology) -> bool {
        self.cpus.len() == topo.nr_cids()
            && topo
                .cids()
                .iter()
                .all(|cid| self.cpus.contains_key(&cid.cpu.0))
    }

    /// Seconds since an earlier one.
    pub fn seconds_since(&self, before: &Self) -> f64 {
        self.at.duration_since(before.at).as_secs_f64()
    }
}

/// Lines such as `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`, in ticks; guests are in user
/// already.
fn parse_stat(text: &str) -> BTreeMap<u32, Counted> {
    numbered(text)
        .filter_map(|(cpu, fields)| {
            let idle = fields.get(3)? + fields.get(4)?;
            let all: u64 = fields.iter().take(8).sum();
            let busy = all - idle;
            let counted = Counted {
                busy,
                idle,
                turns: None,
            };
            Some((cpu, counted))
        })
        .collect()
}

/// Lines such as `cpu3` and nine numbers, the last of which are what tasks waited for the CPU, in ns, and how many got
/// it; versions 15 to 17 of the file agree on that.
fn parse_schedstat(text: &str) -> BTreeMap<u32, Turns> {
    numbered(text)
        .filter_map(|(cpu, fields)| {
            let turns = Turns {
                waited_ns: *fields.get(7)?,
                count: *fields.get(8)?,
            };
            Some((cpu, turns))
        })
        .collect()
}

/// The lines of single CPUs, with all their numbers.
fn numbered(text: &str) -> impl Iterator<Item = (u32, Vec<u64>)> + '_ {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        Some((cpu, words.map_while(|word| word.parse().ok()).collect()))
    })
}

/// What some CPUs did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// The mean number of busy CPUs.
    pub busy_cpus: f64,
    /// CPUs that were hardly busy at all.
    pub idle_cpus: usize,
    /// Cores all of whose CPUs were so.
    pub idle_cores: usize,
    /// The mean number of tasks that waited for a CPU, each counted when it got one; none where the kernel has no
    /// `/proc/schedstat`.
    pub waiting_tasks: Option<f64>,
    /// Tasks that got their turn, per second; none as before.
    pub switches_per_s: Option<f64>,
}

impl Load {
    /// Of these CPUs, between two samples of them.
    pub fn between(before: &Sample, now: &Sample, topo: &Topology, cids: CidRange) -> Self {
        let seconds = now.seconds_since(before).max(f64::MIN_POSITIVE);
        let mut load = Self::default();
        let mut turns = Some(Turns::default());
        let mut busy_cores = Vec::new();
        let mut cores = Vec::new();
        for cid in cids.iter() {
            let info = &topo[cid];
            let of = |sample: &Sample| sample.cpus.get(&info.cpu.0).copied().unwrap_or_default();
            let (old, new) = (of(before), of(now));
            let busy = new.busy.saturating_sub(old.busy) as f64;
            let all = busy + new.idle.saturating_sub(old.idle) as f64;
            let share = if all > 0.0 { busy / all } else { 0.0 };
            load.busy_cpus += share;
            cores.push(info.core);
            if share < IDLE_BELOW {
                load.idle_cpus += 1;
            } else {
                busy_cores.push(info.core);
            }
            turns = turns.zip(new.turns).map(|(sum, new)| {
                let old = old.turns.unwrap_or(new);
                Turns {
                    waited_ns: sum.waited_ns + new.waited_ns.saturating_sub(old.waited_ns),
                    count: sum.count + new.count.saturating_sub(old.count),
                }
            });
        }
        cores.dedup();
        busy_cores.dedup();
        load.idle_cores = cores.len() - busy_cores.len();
        load.waiting_tasks = turns.map(|turns| turns.waited_ns as f64 / 1e9 / seconds);
        load.switches_per_s = turns.map(|turns| turns.count as f64 / seconds);
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use usher_topo::{shape, Llc};

    /// Four CPUs of two LLCs with one core of two threads each.
    fn machine() -> Topology {
        Topology::build(&shape::parse("1n2l1c2t").unwrap(), 64).unwrap()
    }

    /// A sample of the machine above so many seconds after `start`, each CPU with these ticks busy and idle.
    fn sample(start: Instant, seconds: u64, ticks: [(u64, u64); 4], turns: bool) -> Sample {
        let dir = tempfile::tempdir().unwrap();
        let mut stat = String::from("cpu  1 2 3 4 5 6 7 8 9 0\n");
        let mut schedstat = String::from("version 17\ntimestamp 4295\n");
        for (cpu, (busy, idle)) in ticks.iter().enumerate() {
            // A third of the work is a guest's, which is counted in user, too.
            stat += &format!("cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 {} 0\n", busy / 3);
            let (waited, count) = (seconds * 500_000_000, seconds * 10);
            schedstat += &format!("cpu{cpu} 0 0 9 9 9 9 7777 {waited} {count}\n");
            schedstat += "domain0 MC 03 1 2 3\n";
        }
        stat += "intr 5 6\nctxt 7\n";
        fs::write(dir.path().join("stat"), stat).unwrap();
        if turns {
            fs::write(dir.path().join("schedstat"), schedstat).unwrap();
        }
        let mut sample = Sample::read(dir.path()).unwrap();
        sample.at = start + Duration::from_secs(seconds);
        sample
    }

    // Goal: shares, waiting tasks and idle cores come out of counters as they are meant. Method: two samples whose
    // differences are known, with a guest's time that must not count twice.
    #[test]
    fn differences_of_counters() {
        let (topo, start) = (machine(), Instant::now());
        let before = sample(start, 10, [(900, 0); 4], true);
        let now = sample(
            start,
            12,
            [(1_000, 100), (900, 200), (900, 200), (901, 199)],
            true,
        );
        let of = |llc: usize| {
            assert!(now.is_of(&topo));
            Load::between(&before, &now, &topo, topo.llcs()[llc].cids)
        };
        let busy = Load {
            busy_cpus: 0.5,
            idle_cpus: 1,
            idle_cores: 0,
            waiting_tasks: Some(1.0),
            switches_per_s: Some(20.0),
        };
        assert_eq!(of(0), busy);
        let idle = of(Llc(1).0 as usize);
        assert_eq!((idle.idle_cpus, idle.idle_cores), (2, 1));
        assert!((idle.busy_cpus - 0.005).abs() < 1e-9, "{idle:?}");
    }

    // Goal: kernels without schedstat still show how busy CPUs are, and say nothing of who waits; CPUs that come and
    // go are noticed.
    #[test]
    fn what_a_kernel_does_not_have() {
        let (topo, start) = (machine(), Instant::now());
        let before = sample(start, 1, [(0, 0); 4], false);
        let now = sample(start, 2, [(50, 50); 4], false);
        let load = Load::between(&before, &now, &topo, topo.llcs()[0].cids);
        assert_eq!(
            (load.busy_cpus, load.waiting_tasks, load.switches_per_s),
            (1.0, None, None)
        );
        let mut fewer = now.clone();
        fewer.cpus.remove(&3);
        assert!(!fewer.is_of(&topo));
        let error = Sample::read(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/stat: "), "{error}");
    }
}
