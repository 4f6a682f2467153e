// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench misfit`: does heavy work get to the strong CPUs, and only heavy work?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::reckon::{self, Ascent, Occupancy, Stay, Tier};
use super::{environment, measure, Format};
use crate::exit::{Code, Failure};

/// On CPUs of unequal capacity: how heavy tasks find strong CPUs, and whether light ones stay.
///
/// Four measurements, one after the other, on a machine that is otherwise idle: heavy tasks born on weak CPUs and free
/// to go at once; the same, free after they worked there for a while; as many heavy tasks as CPUs, born at once; a light
/// task born on a weak CPU beside idle strong ones. Exit code 3 where all CPUs are of one capacity.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Heavy tasks born on weak CPUs, one after the other, for each of the first two measurements
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,

    /// Milliseconds that a heavy task of the second measurement works on its weak CPU before it may go
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pinned_ms: u64,

    /// Milliseconds after which a heavy task is taken for one that stays where it is
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    patience_ms: u64,

    /// Seconds that each of the last two measurements takes
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Microseconds of work in each activation of the light task
    #[arg(long, value_name = "US", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    light_us: u64,

    /// Milliseconds from one activation of the light task to the next
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    period_ms: u64,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    sysfs: PathBuf,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    /// `usher-bench-misfit/1`.
    schema: &'static str,
    /// The CPUs that this process may use, strongest first.
    tiers: Vec<Tier>,
    /// Milliseconds after which a heavy task was taken for one that stays.
    patience_ms: u64,
    /// Heavy tasks, free to go as soon as they were born on a weak CPU: until they ran on a strong one.
    born_heavy: Ascent,
    /// How long those of `known_heavy` had worked on their weak CPU before they were free to go, milliseconds.
    pinned_ms: u64,
    /// Heavy tasks that had shown that they are heavy: until they ran on a strong CPU.
    known_heavy: Ascent,
    /// As many heavy tasks as CPUs.
    crowd: Occupancy,
    /// How long the crowd worked, milliseconds.
    crowd_ms: u64,
    /// Work in each activation of the light task, microseconds.
    light_us: u64,
    /// From one activation to the next, milliseconds.
    period_ms: u64,
    /// The light task.
    light: Stay,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    super::fits(
        ("--light-us", args.light_us),
        ("--period-ms", args.period_ms),
        1000,
    )?;
    let allowed = measure::allowed().map_err(|error| environment(format!("affinity: {error}")))?;
    let capacities = capacities(&args.sysfs, &allowed)?;
    let tiers = reckon::tiers(&capacities);
    let [strongest, .., weakest] = &tiers[..] else {
        return Err(environment(format!(
            "all {} CPUs that this program may use are of one capacity{}: on such a machine nothing is misfit; \
             `usher lab run --shape 4b4l` has strong and weak ones",
            allowed.len(),
            tiers.first().map_or(String::new(), |tier| format!(" ({})", tier.capacity)),
        )));
    };
    let report = measure_all(args, &capacities, strongest, weakest)
        .map_err(|error| environment(format!("cannot pin a thread to a CPU: {error}")))?;
    let report = Report { tiers, ..report };
    args.format.print(&report, text)?;
    Ok(Code::Fine)
}

/// What the kernel says that each CPU is worth. A kernel that says nothing takes all for alike.
fn capacities(sysfs: &Path, allowed: &BTreeSet<usize>) -> Result<BTreeMap<usize, u32>, Failure> {
    let mut found = BTreeMap::new();
    for &cpu in allowed {
        let path = sysfs.join(format!("devices/system/cpu/cpu{cpu}/cpu_capacity"));
        let capacity = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(|_| {
                environment(format!(
                    "{}: `{}` is no capacity",
                    path.display(),
                    text.trim()
                ))
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => usher_topo::CAPACITY_MAX,
            Err(error) => return Err(environment(format!("{}: {error}", path.display()))),
        };
        found.insert(cpu, capacity);
    }
    Ok(found)
}

fn measure_all(
    args: &Args,
    capacities: &BTreeMap<usize, u32>,
    strongest: &Tier,
    weakest: &Tier,
) -> std::io::Result<Report> {
    let all: BTreeSet<usize> = capacities.keys().copied().collect();
    let strong: BTreeSet<usize> = strongest.cpus.iter().copied().collect();
    let milliseconds = Duration::from_millis;
    let ascend = |pinned_ms: u64| -> std::io::Result<Ascent> {
        let weak = weakest.cpus.iter().cycle().take(usize::from(args.runs));
        let time = |&weak: &usize| {
            let patience = milliseconds(args.patience_ms);
            measure::ascend(weak, &strong, &all, milliseconds(pinned_ms), patience)
        };
        Ok(reckon::ascent(
            &weak.map(time).collect::<std::io::Result<Vec<_>>>()?,
        ))
    };
    let born_heavy = ascend(0)?;
    let known_heavy = ascend(args.pinned_ms)?;
    let time = Duration::from_secs(args.seconds);
    let (seen, crowd_ns) = measure::crowd(all.len(), time)?;
    let crowd = reckon::occupancy(seen, all.len(), crowd_ns);
    let (busy, period) = (
        Duration::from_micros(args.light_us),
        milliseconds(args.period_ms),
    );
    let (seen, lasted_ns) = measure::light(weakest.cpus[0], &all, busy, period, time)?;
    Ok(Report {
        schema: "usher-bench-misfit/1",
        tiers: Vec::new(),
        patience_ms: args.patience_ms,
        born_heavy,
        pinned_ms: args.pinned_ms,
        known_heavy,
        crowd,
        crowd_ms: crowd_ns / 1_000_000,
        light_us: args.light_us,
        period_ms: args.period_ms,
        light: reckon::stay(&seen, capacities, lasted_ns),
    })
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    for tier in &report.tiers {
        out += &format!("capacity {}: cpus {}\n", tier.capacity, list(&tier.cpus));
    }
    let ms =
        |time: Option<u64>| time.map_or("never".into(), |ns| format!("{:.1} ms", ns as f64 / 1e6));
    let ascent = |ascent: &Ascent| {
        format!(
            "{} of {} on a strong CPU within {} ms; median {}, longest {}\n",
            ascent.runs - ascent.never,
            ascent.runs,
            report.patience_ms,
            ms(ascent.median_ns),
            ms(ascent.longest_ns)
        )
    };
    out += "heavy, born on a weak CPU: ";
    out += &ascent(&report.born_heavy);
    out += &format!("heavy, freed after {} ms there: ", report.pinned_ms);
    out += &ascent(&report.known_heavy);
    let crowd = &report.crowd;
    let cpus: usize = report.tiers.iter().map(|tier| tier.cpus.len()).sum();
    out += &format!(
        "{cpus} heavy on {cpus} CPUs: all occupied after {}; {:.1} % of CPUs on average, {} at the end; {} migrations \
         in {} ms\n",
        ms(crowd.all_occupied_after_ns),
        crowd.occupied_permille as f64 / 10.0,
        crowd.at_the_end,
        crowd.migrations,
        report.crowd_ms
    );
    let light = &report.light;
    out += &format!(
        "light, {} us of every {} ms, born on a weak CPU: {} migrations in {} activations ({:.2} per second), {} of \
         them upward; seen on cpus {}\n",
        report.light_us,
        report.period_ms,
        light.migrations,
        light.activations,
        light.migrations_per_1000_s as f64 / 1000.0,
        light.upward,
        list(&light.cpus)
    );
    out
}

fn list(cpus: &[usize]) -> String {
    let words: Vec<String> = cpus.iter().map(usize::to_string).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysfs(files: &[(usize, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (cpu, text) in files {
            let folder = root.path().join(format!("devices/system/cpu/cpu{cpu}"));
            fs::create_dir_all(&folder).expect("created");
            fs::write(folder.join("cpu_capacity"), text).expect("written");
        }
        root
    }

    // Goal: capacities are the kernel's, for the CPUs that may be used; where it names none, all are alike; nonsense is
    // refused by name. Method: made-up trees.
    #[test]
    fn capacities_are_the_kernels() {
        let allowed = BTreeSet::from([0, 2]);
        let root = sysfs(&[(0, "1024\n"), (1, "7\n"), (2, "446\n")]);
        let found = capacities(root.path(), &allowed).expect("readable");
        assert_eq!(found, BTreeMap::from([(0, 1024), (2, 446)]));
        let none = capacities(sysfs(&[]).path(), &allowed).expect("readable");
        assert_eq!(reckon::tiers(&none).len(), 1);
        let bad = capacities(sysfs(&[(0, "much")]).path(), &allowed).expect_err("nonsense");
        let said = bad.error.to_string();
        assert!(said.contains("cpu0/cpu_capacity: `much`"), "{said}");
    }

    // Goal: a task that never came is told as such, in words and as null. Method: a report with one.
    #[test]
    fn never_is_said() {
        let tier = |capacity, cpus: &[usize]| Tier {
            capacity,
            cpus: cpus.to_vec(),
        };
        let report = Report {
            schema: "s",
            tiers: vec![tier(1024, &[0, 1]), tier(446, &[2])],
            patience_ms: 1000,
            born_heavy: reckon::ascent(&[Some(5_000_000), None, Some(7_000_000)]),
            pinned_ms: 200,
            known_heavy: reckon::ascent(&[None]),
            crowd: reckon::occupancy(Vec::new(), 3, 1),
            crowd_ms: 1000,
            light_us: 500,
            period_ms: 20,
            light: reckon::stay(&[2, 2], &BTreeMap::new(), 1_000_000_000),
        };
        let said = text(&report);
        assert!(said.contains("capacity 446: cpus 2\n"), "{said}");
        assert!(
            said.contains("2 of 3 on a strong CPU within 1000 ms; median 7.0 ms, longest never"),
            "{said}"
        );
        assert!(
            said.contains("3 heavy on 3 CPUs: all occupied after never"),
            "{said}"
        );
        let json = serde_json::to_value(&report).expect("plain data");
        assert!(json["known_heavy"]["median_ns"].is_null());
        assert_eq!(json["born_heavy"]["never"], 1);
    }
}
