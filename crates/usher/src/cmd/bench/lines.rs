// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench lines`: what shared cache lines give that many CPUs want at once.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use usher_sim::rng::Rng;

use super::measure::Alone;
use super::reckon::{median, sorted};
use super::{environment, measure, wrong_use, Format};
use crate::exit::{Code, Failure};

/// What cache lines give that many CPUs want at once.
///
/// Threads, each on a CPU of its own, go round: they work for a while, then come to some lines, one after the other, that all
/// of them share. Reported is how many rounds all threads together do in a second, and how much longer a round is than one that
/// comes to no line.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What a round comes to: a letter is an atomic addition to the line of that name, a letter and `?` a load; a capital
    /// is a line that each thread has for itself; may be given several times
    #[arg(long = "round", value_name = "LINES", default_value = "a", value_parser = parse)]
    rounds: Vec<Round>,

    /// Mean work between the last line of a round and the first of the next, in nanoseconds, drawn from an exponential
    /// distribution
    #[arg(long, value_name = "NS", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    work: Vec<u64>,

    /// Threads; if not given, 1, 2, 4 and so on up to one for each CPU that this process may use
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,

    /// Milliseconds of each measurement
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    millis: u64,

    /// Measurements of each combination, of which the median counts; those of a turn alternate
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The lines that a round comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Round {
    said: String,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add(Name),
    Load(Name),
}

/// Of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    /// Counted from a.
    letter: usize,
    /// Each thread has one of its own.
    own: bool,
}

/// Letters there are.
const LETTERS: usize = 26;

fn parse(said: &str) -> Result<Round, String> {
    let mut steps = Vec::new();
    for letter in said.chars() {
        match (letter, steps.last().copied()) {
            ('a'..='z' | 'A'..='Z', _) => steps.push(Step::Add(Name {
                letter: usize::from(letter.to_ascii_lowercase() as u8 - b'a'),
                own: letter.is_ascii_uppercase(),
            })),
            ('?', Some(Step::Add(line))) => {
                steps.pop();
                steps.push(Step::Load(line));
            }
            _ => {
                return Err(format!(
                    "`{letter}` is neither a line, which is a letter from a to z or a capital, nor a `?` after one; for example \
                     `aab?` adds to line a twice and loads line b"
                ))
            }
        }
    }
    match steps.is_empty() {
        true => Err("a round comes to one line at least, for example `a`".into()),
        false => Ok(Round {
            said: said.into(),
            steps,
        }),
    }
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    /// `usher-bench-lines/1`.
    schema: &'static str,
    cells: Vec<Cell>,
}

/// One combination.
#[derive(Debug, Serialize)]
struct Cell {
    round: String,
    /// Mean work of a round, as asked for, nanoseconds.
    work_ns: u64,
    /// On the first so many CPUs that this process may use.
    threads: usize,
    /// Of all threads; the median of the turns.
    rounds_per_s: f64,
    /// Of the slowest turn and the fastest.
    rounds_per_s_min: f64,
    rounds_per_s_max: f64,
    /// How long a round is of as many threads that come to no line, nanoseconds: the work as it was, and the loop around it.
    bare_ns: f64,
    /// How much longer a round is with its lines, nanoseconds.
    lines_ns: f64,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let cpus = measure::allowed().map_err(|error| environment(format!("affinity: {error}")))?;
    let cpus: Vec<usize> = cpus.into_iter().collect();
    let counts = match args.threads.is_empty() {
        true => doublings(cpus.len()),
        false => args.threads.iter().map(|&n| n as usize).collect(),
    };
    if let Some(&many) = counts.iter().find(|&&n| n > cpus.len()) {
        return Err(wrong_use(format!(
            "--threads {many}: this process may use {} CPUs, and each thread needs one of its own",
            cpus.len()
        )));
    }
    let failed = |error| environment(format!("cannot pin a thread to a CPU: {error}"));
    let plan = Plan {
        length: Duration::from_millis(args.millis),
        turns: args.turns,
    };
    let cells = plan
        .measure(&args.rounds, &args.work, &counts, &cpus)
        .map_err(failed)?;
    let report = Report {
        schema: "usher-bench-lines/1",
        cells,
    };
    args.format.print(&report, text)?;
    Ok(Code::Fine)
}

/// 1, 2, 4 and so on, and this.
fn doublings(last: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(2 * n))
        .take_while(|&n| n < last)
        .collect();
    counts.push(last);
    counts
}

fn text(report: &Report) -> String {
    let mut said = String::from(
        "round     work, ns  threads  million rounds/s  ns without lines  more with them\n",
    );
    for cell in &report.cells {
        said += &format!(
            "{:<9} {:>8}  {:>7}  {:>16.3}  {:>16.0}  {:>14.0}\n",
            cell.round,
            cell.work_ns,
            cell.threads,
            cell.rounds_per_s / 1e6,
            cell.bare_ns,
            cell.lines_ns
        );
    }
    said
}

struct Plan {
    length: Duration,
    turns: u32,
}

impl Plan {
    fn measure(
        &self,
        rounds: &[Round],
        works: &[u64],
        counts: &[usize],
        cpus: &[usize],
    ) -> io::Result<Vec<Cell>> {
        let per_ns = steps_per_ns(cpus[0])?;
        let lines = Lines::default();
        let mut cells = Vec::new();
        for &work_ns in works {
            let draws = draws(work_ns, per_ns);
            for &threads in counts {
                let cpus = &cpus[..threads];
                let go = |steps: &[Step]| go_round(steps, &lines, &draws, cpus, self.length);
                let mut bare = Vec::new();
                let mut rates = vec![Vec::new(); rounds.len()];
                for _ in 0..self.turns {
                    bare.push(go(&[])?);
                    for (round, rates) in rounds.iter().zip(&mut rates) {
                        rates.push(go(&round.steps)?);
                    }
                    bare.push(go(&[])?);
                }
                let each_ns = |rate: f64| threads as f64 * 1e9 / rate;
                let bare_ns = each_ns(median(&sorted(bare)));
                for (round, rates) in rounds.iter().zip(rates) {
                    let rates = sorted(rates);
                    let rounds_per_s = median(&rates);
                    cells.push(Cell {
                        round: round.said.clone(),
                        work_ns,
                        threads,
                        rounds_per_s,
                        rounds_per_s_min: rates[0],
                        rounds_per_s_max: rates[rates.len() - 1],
                        bare_ns,
                        lines_ns: each_ns(rounds_per_s) - bare_ns,
                    });
                }
            }
        }
        Ok(cells)
    }
}

/// A line of each letter.
type Lines = [Alone<AtomicU64>; LETTERS];

/// How many steps of work a nanosecond has on this CPU: the median of tries that take some 30 ms, as a CPU that was idle is slow at first.
fn steps_per_ns(cpu: usize) -> io::Result<f64> {
    const STEPS: u64 = 100_000;
    let measure = || {
        measure::use_only(&BTreeSet::from([cpu]))?;
        let tries = (0..200).map(|_| {
            let start = Instant::now();
            black_box(measure::steps(black_box(1), STEPS));
            STEPS as f64 / start.elapsed().as_nanos() as f64
        });
        Ok(median(&sorted(tries)))
    };
    // A thread of its own: the CPUs of this one stay what they are.
    thread::scope(|scope| measure::join(scope.spawn(measure)))
}

/// How many steps the rounds have, one after the other and then over again.
fn draws(work_ns: u64, per_ns: f64) -> Vec<u64> {
    let mut rng = Rng::new(1);
    (0..4096)
        .map(|_| (rng.exponential(1000 * work_ns) as f64 / 1000.0 * per_ns).round() as u64)
        .collect()
}

/// Rounds per second of all threads together, one on each of these CPUs.
fn go_round(
    steps: &[Step],
    shared: &Lines,
    draws: &[u64],
    cpus: &[usize],
    length: Duration,
) -> io::Result<f64> {
    let (ready, stop) = (Barrier::new(cpus.len() + 1), AtomicBool::new(false));
    let one = |nr: usize, cpu: usize| -> io::Result<f64> {
        let here = measure::use_only(&BTreeSet::from([cpu]));
        ready.wait();
        here?;
        // Everybody begins elsewhere among the draws.
        let mut draws = draws.iter().cycle().skip(nr * 251 % draws.len());
        let own = Lines::default();
        let word = |line: Name| match line.own {
            true => &own[line.letter].0,
            false => &shared[line.letter].0,
        };
        let (mut value, mut rounds) = (1, 0_u64);
        let start = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            value = measure::steps(value, *draws.next().expect("it is a cycle"));
            // What each step finds is what the next one needs, so that none begins before.
            for step in steps {
                value = match *step {
                    Step::Add(line) => word(line).fetch_add(value | 1, Ordering::SeqCst),
                    Step::Load(line) => value ^ word(line).load(Ordering::SeqCst),
                };
            }
            rounds += 1;
        }
        black_box(value);
        Ok(rounds as f64 / start.elapsed().as_secs_f64())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(nr, &cpu)| {
                let one = &one;
                scope.spawn(move || one(nr, cpu))
            })
            .collect();
        ready.wait();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(measure::join).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a round is what was written, and what cannot be read says what could. Method: some of each.
    #[test]
    fn rounds_are_read() {
        let steps = |said| parse(said).map(|round| round.steps);
        let line = |letter, own| Name { letter, own };
        let (a, b, own_b) = (line(0, false), line(1, false), line(1, true));
        assert_eq!(
            steps("aab?B"),
            Ok(vec![
                Step::Add(a),
                Step::Add(a),
                Step::Load(b),
                Step::Add(own_b)
            ])
        );
        for (wrong, said) in [
            ("", "one line at least"),
            ("?", "`?` is neither"),
            ("a??", "`?` is neither"),
            ("a1", "`1` is neither"),
        ] {
            let error = steps(wrong).expect_err(wrong);
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    // Goal: what is counted was done, and takes what it must. Method: one thread on one CPU, which others use as well: the best of
    // twenty turns, in which all rounds alternate, so that a neighbour meets each. More lines and more work make fewer rounds,
    // shared lines are added to, and a thread's own are not these.
    #[test]
    fn rounds_are_done() {
        let cpus: Vec<usize> = measure::allowed().expect("Linux").into_iter().collect();
        let per_ns = steps_per_ns(cpus[0]).expect("pinned");
        let lines = Lines::default();
        let rounds = [("a", 0), ("abc", 0), ("BCDEF", 0), ("a", 10_000)]
            .map(|(said, work_ns)| (parse(said).expect("legal"), draws(work_ns, per_ns)));
        let mut best = [0.0_f64; 4];
        for _ in 0..20 {
            for ((round, draws), best) in rounds.iter().zip(&mut best) {
                let length = Duration::from_millis(5);
                let rate = go_round(&round.steps, &lines, draws, &cpus[..1], length);
                *best = best.max(rate.expect("pinned"));
            }
        }
        let [one, three, own, slow] = best;
        assert!(one > 1.5 * three, "{one} and {three} rounds/s");
        assert!(one > 1.5 * own, "{one} and {own} rounds/s");
        assert!(slow < 150_000.0, "{slow} rounds/s of 10 us");
        let used = lines.iter().map(|line| line.0.load(Ordering::SeqCst) > 0);
        let expected = (0..LETTERS).map(|letter| letter < 3);
        assert!(used.eq(expected), "lines a to c are used, and no other");
    }
}
