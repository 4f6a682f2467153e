// SPDX-License-Identifier: GPL-2.0-only
//! What follows from what was seen: pure functions, so that they can be tried on made-up sightings. Times are
//! nanoseconds since the measurement began.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// The same values, least first.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The middle one of sorted values; the greater of the two in the middle.
pub fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

/// Nanoseconds; percentiles are those of the sample of that rank, nothing between samples is made up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delay {
    /// How many.
    pub samples: usize,
    /// Quantiles.
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl Delay {
    /// Of these.
    pub fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let rank = |permille: usize| {
            let above = (samples.len() * permille).div_ceil(1000).max(1);
            samples.get(above - 1).copied().unwrap_or(0)
        };
        Self {
            samples: samples.len(),
            p50_ns: rank(500),
            p90_ns: rank(900),
            p99_ns: rank(990),
            max_ns: rank(1000),
        }
    }
}

/// A task was seen on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sighting {
    /// When.
    pub at_ns: u64,
    /// Which task, counted from 0.
    pub task: usize,
    /// Where.
    pub cpu: usize,
}

/// CPUs of one capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tier {
    /// What the kernel says that each is worth; 1024 is the strongest.
    pub capacity: u32,
    /// Which.
    pub cpus: Vec<usize>,
}

/// The CPUs by capacity, strongest first.
pub fn tiers(capacities: &BTreeMap<usize, u32>) -> Vec<Tier> {
    let distinct: BTreeSet<u32> = capacities.values().copied().collect();
    let tier = |capacity| Tier {
        capacity,
        cpus: capacities
            .iter()
            .filter(|(_, own)| **own == capacity)
            .map(|(cpu, _)| *cpu)
            .collect(),
    };
    distinct.into_iter().rev().map(tier).collect()
}

/// How well as many tasks as CPUs filled them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Occupancy {
    /// From the beginning until each CPU had a task of its own for the first time; `null` for never.
    pub all_occupied_after_ns: Option<u64>,
    /// Of the time since every task had run, the mean share of CPUs that had a task, in thousandths.
    pub occupied_permille: u64,
    /// CPUs that had a task at the end.
    pub at_the_end: usize,
    /// Times that a task was seen on another CPU than before, all tasks together.
    pub migrations: usize,
}

/// Reckons how many CPUs had a task, when. A task that waits is still where it ran last: where two are on one CPU,
/// another CPU is empty, because there are as many tasks as CPUs.
pub fn occupancy(mut sightings: Vec<Sighting>, cpus: usize, end_ns: u64) -> Occupancy {
    sightings.sort_unstable();
    let mut place: BTreeMap<usize, usize> = BTreeMap::new();
    let mut all_occupied_after_ns = None;
    let (mut weighted, mut observed_ns, mut migrations) = (0u64, 0u64, 0);
    for (index, seen) in sightings.iter().enumerate() {
        let before = place.insert(seen.task, seen.cpu);
        migrations += usize::from(before.is_some_and(|before| before != seen.cpu));
        let occupied = distinct(&place);
        if occupied == cpus && all_occupied_after_ns.is_none() {
            all_occupied_after_ns = Some(seen.at_ns);
        }
        if place.len() == cpus {
            let until = sightings.get(index + 1).map_or(end_ns, |next| next.at_ns);
            let lasted_ns = until.min(end_ns).saturating_sub(seen.at_ns);
            weighted += lasted_ns * occupied as u64;
            observed_ns += lasted_ns;
        }
    }
    Occupancy {
        all_occupied_after_ns,
        occupied_permille: (weighted * 1000)
            .checked_div(observed_ns * cpus as u64)
            .unwrap_or(0),
        at_the_end: distinct(&place),
        migrations,
    }
}

fn distinct(place: &BTreeMap<usize, usize>) -> usize {
    place.values().collect::<BTreeSet<_>>().len()
}

/// What a light task did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stay {
    /// Times that it ran.
    pub activations: usize,
    /// Times that it was seen on another CPU than before.
    pub migrations: usize,
    /// The same per second, in thousandths.
    pub migrations_per_1000_s: u64,
    /// Times that it was seen on a CPU of a higher capacity than before.
    pub upward: usize,
    /// CPUs that it was seen on.
    pub cpus: Vec<usize>,
}

/// Reckons from where a task was seen, at the start and the end of each activation.
pub fn stay(seen: &[usize], capacities: &BTreeMap<usize, u32>, lasted_ns: u64) -> Stay {
    let capacity = |cpu: &usize| capacities.get(cpu).copied().unwrap_or(0);
    let moves = || seen.windows(2).filter(|pair| pair[0] != pair[1]);
    let migrations = moves().count();
    Stay {
        activations: seen.len() / 2,
        migrations,
        migrations_per_1000_s: (migrations as u64 * 1_000_000_000_000)
            .checked_div(lasted_ns)
            .unwrap_or(0),
        upward: moves()
            .filter(|pair| capacity(&pair[1]) > capacity(&pair[0]))
            .count(),
        cpus: seen
            .iter()
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
    }
}

/// How long heavy tasks took from a weak CPU to a strong one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ascent {
    /// Tasks measured.
    pub runs: usize,
    /// Those that were on no strong CPU when the wait was over.
    pub never: usize,
    /// The middle one's time; `null` if it never came.
    pub median_ns: Option<u64>,
    /// The longest time; `null` if one never came.
    pub longest_ns: Option<u64>,
}

/// Reckons from the times of single tasks, `None` for one that never came.
pub fn ascent(times_ns: &[Option<u64>]) -> Ascent {
    let mut sorted: Vec<u64> = times_ns
        .iter()
        .map(|time| time.unwrap_or(u64::MAX))
        .collect();
    sorted.sort_unstable();
    let came = |time: Option<&u64>| time.copied().filter(|&time| time != u64::MAX);
    Ascent {
        runs: sorted.len(),
        never: times_ns.iter().filter(|time| time.is_none()).count(),
        median_ns: came(sorted.get(sorted.len() / 2)),
        longest_ns: came(sorted.last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: percentiles are samples, of the right rank. Method: a hundred in a row, one, none.
    #[test]
    fn percentiles_are_samples() {
        let delay = Delay::of((1..=100).rev().collect());
        assert_eq!(
            (delay.p50_ns, delay.p90_ns, delay.p99_ns, delay.max_ns),
            (50, 90, 99, 100)
        );
        let delay = Delay::of(vec![7]);
        assert_eq!((delay.p50_ns, delay.p99_ns, delay.max_ns), (7, 7, 7));
        assert_eq!(Delay::of(Vec::new()).p99_ns, 0);
    }

    fn four() -> BTreeMap<usize, u32> {
        BTreeMap::from([(0, 1024), (1, 1024), (4, 446), (5, 446)])
    }

    fn sightings(list: &[(u64, usize, usize)]) -> Vec<Sighting> {
        let seen = |&(at_ns, task, cpu): &(u64, usize, usize)| Sighting { at_ns, task, cpu };
        list.iter().map(seen).collect()
    }

    // Goal: CPUs are told apart by capacity, strongest first. Method: two kinds, then one.
    #[test]
    fn tiers_go_from_strong_to_weak() {
        let found = tiers(&four());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].capacity, &found[0].cpus[..]), (1024, &[0, 1][..]));
        assert_eq!((found[1].capacity, &found[1].cpus[..]), (446, &[4, 5][..]));
        assert_eq!(tiers(&BTreeMap::from([(0, 512), (3, 512)])).len(), 1);
    }

    // Goal: a CPU with two tasks means an empty one, and only while it lasts. Method: two tasks on two CPUs: apart,
    // together for half of the time, apart again, in any order of sightings.
    #[test]
    fn two_on_one_cpu_leave_another_empty() {
        let mut list = sightings(&[(0, 0, 0), (100, 1, 0), (600, 1, 1)]);
        let expected = Occupancy {
            all_occupied_after_ns: Some(600),
            // From 100 on, when both had run: 500 ns with one CPU, 500 with both.
            occupied_permille: 750,
            at_the_end: 2,
            migrations: 1,
        };
        assert_eq!(occupancy(list.clone(), 2, 1100), expected);
        list.reverse();
        assert_eq!(occupancy(list, 2, 1100), expected);
    }

    // Goal: a CPU that nobody came to, or a task that never ran, is not taken for a full house. Method: three tasks on
    // two of three CPUs; two tasks of three.
    #[test]
    fn an_empty_cpu_is_seen() {
        let list = sightings(&[(0, 0, 0), (0, 1, 1), (0, 2, 1)]);
        let found = occupancy(list, 3, 900);
        assert_eq!((found.all_occupied_after_ns, found.at_the_end), (None, 2));
        assert_eq!(found.occupied_permille, 666);
        let found = occupancy(sightings(&[(0, 0, 0), (0, 1, 1)]), 3, 900);
        assert_eq!(
            (found.all_occupied_after_ns, found.occupied_permille),
            (None, 0)
        );
        assert_eq!(occupancy(Vec::new(), 3, 900).at_the_end, 0);
    }

    // Goal: moves are counted, upward ones apart. Method: up, stay, down, sideways.
    #[test]
    fn moves_of_a_light_task_are_counted() {
        let found = stay(&[4, 0, 0, 5, 4, 4], &four(), 2_000_000_000);
        assert_eq!(
            (found.activations, found.migrations, found.upward),
            (3, 3, 1)
        );
        assert_eq!(found.migrations_per_1000_s, 1500);
        assert_eq!(found.cpus, [0, 4, 5]);
        let found = stay(&[4; 10], &four(), 1);
        assert_eq!((found.migrations, found.migrations_per_1000_s), (0, 0));
    }

    // Goal: a task that never came is worse than any that did. Method: with one of them, with most, with none.
    #[test]
    fn who_never_came_is_the_slowest() {
        let found = ascent(&[Some(30), None, Some(10)]);
        assert_eq!((found.runs, found.never), (3, 1));
        assert_eq!((found.median_ns, found.longest_ns), (Some(30), None));
        assert_eq!(ascent(&[None, None, Some(10)]).median_ns, None);
        let found = ascent(&[Some(30), Some(10), Some(20)]);
        assert_eq!((found.median_ns, found.longest_ns), (Some(20), Some(30)));
        assert_eq!(ascent(&[]).longest_ns, None);
    }
}
