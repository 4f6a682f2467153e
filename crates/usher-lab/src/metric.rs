// SPDX-License-Identifier: GPL-2.0-only
//! Reads the figures that benchmark programs print about themselves. A program that is not known is
//! measured by the guest time that it took.

use serde::Serialize;

/// One figure of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metric {
    /// What it is, for example `time_s` or `throughput_mb_per_s`; the unit is the end of the name.
    pub name: String,
    /// The value.
    pub value: f64,
    /// True when less is better.
    pub lower_is_better: bool,
}

impl Metric {
    fn lower(name: &str, value: f64) -> Self {
        Metric {
            name: name.into(),
            value,
            lower_is_better: true,
        }
    }

    fn higher(name: &str, value: f64) -> Self {
        Metric {
            name: name.into(),
            value,
            lower_is_better: false,
        }
    }
}

/// The figures in a command's output, or the elapsed guest time when there are none that are known.
pub fn read(stdout: &str, stderr: &str, elapsed_ns: u64) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = stdout
        .lines()
        .chain(stderr.lines())
        .filter_map(line)
        .collect();
    metrics.extend(cyclictest(stdout));
    metrics.extend(stdout.lines().flat_map(misfit));
    if metrics.is_empty() {
        metrics.push(Metric::lower("elapsed_s", elapsed_ns as f64 / 1e9));
    }
    metrics
}

/// Figures that stand on a line of their own.
fn line(line: &str) -> Option<Metric> {
    let text = line.trim();
    // hackbench: "Time: 1.630"
    if let Some(rest) = text.strip_prefix("Time: ") {
        return Some(Metric::lower("time_s", rest.trim().parse().ok()?));
    }
    // perf bench: "Total time: 0.351 [sec]"
    if let Some(rest) = text
        .strip_prefix("Total time: ")
        .and_then(|r| r.strip_suffix(" [sec]"))
    {
        return Some(Metric::lower("time_s", rest.trim().parse().ok()?));
    }
    // sysbench: "total time:                          1.0012s"
    if let Some(rest) = text
        .strip_prefix("total time:")
        .and_then(|r| r.strip_suffix('s'))
    {
        return Some(Metric::lower("time_s", rest.trim().parse().ok()?));
    }
    // sysbench: "events per second:   349.11"
    if let Some(rest) = text.strip_prefix("events per second:") {
        return Some(Metric::higher("events_per_s", rest.trim().parse().ok()?));
    }
    // dbench, tbench: "Throughput 123.4 MB/sec  8 clients  8 procs  max_latency=2.1 ms"
    if let Some(rest) = text.strip_prefix("Throughput ") {
        let value = rest.split_whitespace().next()?.parse().ok()?;
        return Some(Metric::higher("throughput_mb_per_s", value));
    }
    // usher bench latency-under-batch: "wakeup delay p99: 1.234 ms", "batch loss: 0.12 %"
    if let Some(rest) = text
        .strip_prefix("wakeup delay p99: ")
        .and_then(|r| r.strip_suffix(" ms"))
    {
        return Some(Metric::lower("wakeup_delay_p99_ms", rest.parse().ok()?));
    }
    // usher bench requests: "request latency p99: 1.234 ms"
    if let Some(rest) = text
        .strip_prefix("request latency p99: ")
        .and_then(|r| r.strip_suffix(" ms"))
    {
        return Some(Metric::lower("request_latency_p99_ms", rest.parse().ok()?));
    }
    if let Some(rest) = text
        .strip_prefix("batch loss: ")
        .and_then(|r| r.strip_suffix(" %"))
    {
        return Some(Metric::lower("batch_loss_percent", rest.parse().ok()?));
    }
    stress_ng(text)
}

/// stress-ng --metrics: "stress-ng: metrc: [123] cpu  1234  10.00  79.9  0.01  123.4  15.4": name, operations,
/// seconds real, user and system, operations per second of real time and of CPU time.
fn stress_ng(text: &str) -> Option<Metric> {
    let rest = text.strip_prefix("stress-ng: ")?;
    let (kind, rest) = rest.split_once(": ")?;
    if !matches!(kind.trim(), "info" | "metrc") {
        return None;
    }
    let mut words = rest
        .trim_start()
        .strip_prefix('[')?
        .split_once(']')?
        .1
        .split_whitespace();
    let name = words.next()?;
    let numbers: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
    let per_second = numbers.get(4)?;
    let name: String = name
        .chars()
        .map(|c| if c == '-' { '_' } else { c })
        .collect();
    Some(Metric::higher(&format!("{name}_ops_per_s"), *per_second))
}

/// usher bench misfit: its lines of heavy tasks that came to a strong CPU, of a crowd of them, and of a light task. A
/// time that is `never` is no figure; that somebody never came shows in the percentage that did.
fn misfit(line: &str) -> Vec<Metric> {
    let number = |words: &str| {
        words
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
    };
    let after = |key: &str| line.split_once(key).and_then(|(_, rest)| number(rest));
    let heavy = |kind: &str| {
        let came = line.split_once(": ").and_then(|(_, rest)| number(rest));
        let share = came
            .zip(after(" of "))
            .map(|(came, of): (f64, f64)| came * 100.0 / of);
        let moved = share.map(|share| Metric::higher(&format!("{kind}_moved_percent"), share));
        let median = after("median ").map(|ms| Metric::lower(&format!("{kind}_ms_median"), ms));
        moved.into_iter().chain(median).collect()
    };
    if line.starts_with("heavy, born on a weak CPU: ") {
        heavy("born_heavy")
    } else if line.starts_with("heavy, freed after ") {
        heavy("known_heavy")
    } else if line.contains(" CPUs: all occupied after ") {
        let time =
            after("all occupied after ").map(|ms| Metric::lower("all_occupied_after_ms", ms));
        let share = after("; ").map(|share| Metric::higher("occupied_percent", share));
        time.into_iter().chain(share).collect()
    } else if line.starts_with("light, ") && line.contains(" activations (") {
        let rate =
            after(" activations (").map(|rate| Metric::lower("light_migrations_per_s", rate));
        rate.into_iter().collect()
    } else {
        Vec::new()
    }
}

/// cyclictest -q: one line per thread, "T: 0 (   81) P: 0 I:1000 C:   1000 Min:      5 Act:    8 Avg:   10 Max:      50",
/// in microseconds (nanoseconds with -N). The worst thread's maximum and the threads' mean count.
fn cyclictest(stdout: &str) -> Vec<Metric> {
    let field = |line: &str, key: &str| -> Option<f64> {
        line.split_once(key)?
            .1
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    let threads: Vec<(f64, f64)> = stdout
        .lines()
        .filter(|line| line.trim_start().starts_with("T:"))
        .filter_map(|line| Some((field(line, "Avg:")?, field(line, "Max:")?)))
        .collect();
    if threads.is_empty() {
        return Vec::new();
    }
    let mean = threads.iter().map(|(mean, _)| mean).sum::<f64>() / threads.len() as f64;
    let worst = threads.iter().map(|&(_, max)| max).fold(0.0, f64::max);
    vec![
        Metric::lower("latency_us_mean", mean),
        Metric::lower("latency_us_max", worst),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(stdout: &str) -> (String, f64, bool) {
        let metrics = read(stdout, "", 0);
        assert_eq!(metrics.len(), 1, "{metrics:?}");
        (
            metrics[0].name.clone(),
            metrics[0].value,
            metrics[0].lower_is_better,
        )
    }

    /// Goal: each program's own figure is found. Method: lines as the programs print them.
    #[test]
    fn figures_of_known_programs_are_read() {
        let hackbench = "Running in process mode with 2 groups\nTime: 1.630\n";
        assert_eq!(one(hackbench), ("time_s".into(), 1.630, true));
        let perf = "# Running\n     Total time: 0.351 [sec]\n";
        assert_eq!(one(perf), ("time_s".into(), 0.351, true));
        let tbench = "Throughput 12.5 MB/sec  2 clients  2 procs  max_latency=1.2 ms\n";
        assert_eq!(one(tbench), ("throughput_mb_per_s".into(), 12.5, false));
        let stress = "stress-ng: info:  [97] stressor  bogo ops real time\n\
                      stress-ng: metrc: [97] sem-sysv 349 1.00 0.99 0.00 348.61 352.52\n";
        assert_eq!(one(stress), ("sem_sysv_ops_per_s".into(), 348.61, false));
        let sysbench =
            "CPU speed:\n    events per second:   349.11\n\n    total time:    10.0012s\n";
        let metrics = read(sysbench, "", 0);
        assert_eq!((metrics[0].value, metrics[1].value), (349.11, 10.0012));
    }

    /// Goal: cyclictest's worst thread counts. Method: two threads.
    #[test]
    fn cyclictest_is_summed_up() {
        let text = "T: 0 (   81) P: 0 I:1000 C:   1000 Min:      5 Act:    8 Avg:   10 Max:      50\n\
                    T: 1 (   82) P: 0 I:1500 C:    667 Min:      5 Act:    8 Avg:   20 Max:      40\n";
        let metrics = read(text, "", 0);
        assert_eq!((metrics[0].value, metrics[1].value), (15.0, 50.0));
    }

    /// Goal: what usher's own bench says becomes figures, and who never came none but a share. Method: its lines.
    #[test]
    fn misfits_are_read() {
        let text = "capacity 446: cpus 4,5,6,7\n\
             heavy, born on a weak CPU: 4 of 5 on a strong CPU within 1000 ms; median 43.1 ms, longest never\n\
             heavy, freed after 200 ms there: 0 of 5 on a strong CPU within 1000 ms; median never, longest never\n\
             8 heavy on 8 CPUs: all occupied after 20.7 ms; 99.5 % of CPUs on average, 8 at the end; 0 migrations in \
             3000 ms\n\
             light, 500 us of every 20 ms, born on a weak CPU: 1 migrations in 150 activations (0.33 per second), 0 of \
             them upward; seen on cpus 4,5\n";
        let metrics = read(text, "", 0);
        let found: Vec<(&str, f64)> = metrics.iter().map(|m| (m.name.as_str(), m.value)).collect();
        let expected = [
            ("born_heavy_moved_percent", 80.0),
            ("born_heavy_ms_median", 43.1),
            ("known_heavy_moved_percent", 0.0),
            ("all_occupied_after_ms", 20.7),
            ("occupied_percent", 99.5),
            ("light_migrations_per_s", 0.33),
        ];
        assert_eq!(found, expected);
    }

    /// Goal: an unknown program is measured by its time. Method: text without figures.
    #[test]
    fn unknown_programs_are_timed() {
        assert_eq!(
            read("hello\n", "world\n", 1_500_000_000)[0].name,
            "elapsed_s"
        );
        assert_eq!(one("hello\n").0, "elapsed_s");
    }
}
