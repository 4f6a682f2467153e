// SPDX-License-Identifier: GPL-2.0-only
//! Regenerates the tables of docs/FIDELITY.md, "How long does it take on a real machine?": how long programs took on real machines (`data/live/*/`, from
//! `data/live/run.sh`) beside how long the simulator says, which knows what `usher bench costs` measured there, and nothing else.
//!
//! `cargo run --release -p usher-sim --example live [-- DIR...]`

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use usher_sim::case::Case;
use usher_sim::costs::Costs;
use usher_sim::params::Params;
use usher_sim::{Machine, Options};
use usher_topo::{machine, RawTopology, Topology};

/// Simulated runs per load.
const SEEDS: u64 = 3;
/// A simulated hackbench does this part of the rounds: what it takes grows with them.
const ROUNDS: u64 = 4;

/// What came out of runs alike, each run's first value, second and so on: seconds, or MB per second, and switches; of requests how
/// long they took, p50 and p99, in ms, and where the file says so how busy the CPUs were, in per cent.
type Runs = Vec<Vec<f64>>;

/// The middle one, or between the two in the middle.
fn median(of: &[f64]) -> f64 {
    let mut of = of.to_vec();
    of.sort_by(f64::total_cmp);
    let last = of.len() - 1;
    (of[last / 2] + of[last - last / 2]) / 2.0
}

/// A word after a flag.
fn after(words: &[&str], flag: &str) -> Result<u64, Box<dyn Error>> {
    let word = words.iter().skip_while(|word| **word != flag).nth(1);
    Ok(word.ok_or_else(|| format!("no {flag}"))?.parse()?)
}

/// A directory's machine, or some of its CPUs.
struct Place {
    raw: RawTopology,
    costs: Costs,
    /// TCP's work per message, where the cost file's last line tells.
    protocol: String,
}

impl Place {
    fn read(dir: &Path) -> Result<Place, Box<dyn Error>> {
        let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
        let costs = path("costs.toml");
        let text = std::fs::read_to_string(&costs)?;
        let protocol = text
            .split("--set protocol=")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        Ok(Place {
            raw: machine::load(&path("machine.toml"))?.to_raw()?,
            costs: Costs::load(&costs)?,
            protocol: protocol.ok_or("no protocol in the cost file")?.into(),
        })
    }

    fn machine(&self, cpus: &str) -> Result<Machine, Box<dyn Error>> {
        let listed = usher_topo::parse_cpulist(cpus, 65_535).map_err(|(what, _)| what)?;
        let mut raw = self.raw.clone();
        raw.cpus.retain(|cpu| listed.contains(&cpu.cpu.0));
        Ok(Machine::new(
            Topology::build(&raw, 64)?,
            self.costs.clone(),
        )?)
    }

    /// The same load, simulated: what came out, and switches per message; of requests p50, p99 and how busy the CPUs were.
    fn simulated(&self, load: &str, cpus: &str) -> Result<[f64; 3], Box<dyn Error>> {
        let words: Vec<&str> = load.split(' ').collect();
        let has = |flag: &str| words.contains(&flag);
        let mut params = Params::new();
        let mut of_part = 1.0;
        if words[0] == "hackbench" {
            let loops = after(&words, "-l")?;
            let simulated = (loops / ROUNDS).max(1);
            of_part = loops as f64 / simulated as f64;
            params.set("groups", after(&words, "-g")?.to_string());
            params.set("loops", simulated.to_string());
            params.set("ipc", if has("-p") { "pipe" } else { "socket" });
            params.set("mode", if has("-T") { "thread" } else { "process" });
        } else if words[0] == "requests" {
            params.set("load", after(&words, "--load")?.to_string());
            params.set("runtime", format!("{}s", after(&words, "--seconds")?));
        } else {
            params.set("clients", words[1]);
            params.set("protocol", &self.protocol);
        }
        let case = Case {
            machine: Arc::new(self.machine(cpus)?),
            workload: words[0].into(),
            workload_params: params,
            policy: "eevdf".into(),
            policy_params: Params::new(),
        };
        let mut sums = [0.0; 3];
        for seed in 1..=SEEDS {
            let report = case.run(seed, Options::default(), |_| true)?;
            let metric = |name: &str| report.metrics[name];
            let of = match words[0] {
                "hackbench" => [
                    metric("elapsed_ns") * of_part / 1e9,
                    metric("context_switches") / metric("messages"),
                    f64::NAN,
                ],
                "requests" => [
                    metric("latency_ns_p50") / 1e6,
                    metric("latency_ns_p99") / 1e6,
                    metric("utilisation") * 100.0,
                ],
                _ => [metric("throughput_bytes_per_s") / 1e6, f64::NAN, f64::NAN],
            };
            sums.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
        }
        Ok(sums.map(|sum| sum / SEEDS as f64))
    }
}

fn compare(dir: &Path) -> Result<(), Box<dyn Error>> {
    let place = Place::read(dir)?;
    let text = std::fs::read_to_string(dir.join("programs.txt"))?;
    let mut runs: BTreeMap<(String, String), Runs> = BTreeMap::new();
    let mut order = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (load, rest) = line
            .split_once(" cpus=")
            .ok_or_else(|| format!("no CPUs: {line}"))?;
        let mut words = rest.split(' ');
        let cpus = words.next().ok_or("no CPUs")?;
        let key = (load.to_owned(), cpus.to_owned());
        if !runs.contains_key(&key) {
            order.push(key.clone());
        }
        let of = runs.entry(key).or_default();
        for (nr, word) in words.enumerate() {
            let (_, value) = word
                .split_once('=')
                .ok_or_else(|| format!("no result: {line}"))?;
            of.resize(of.len().max(nr + 1), Vec::new());
            of[nr].push(value.parse()?);
        }
    }
    let name = dir.file_name().unwrap_or(dir.as_os_str());
    println!("\n{}\n", name.to_string_lossy());
    let (requests, programs): (Vec<_>, Vec<_>) = order
        .into_iter()
        .partition(|(load, _)| load.starts_with("requests "));
    compare_programs(&place, &programs, &runs)?;
    compare_requests(&place, &requests, &runs)
}

/// A program and its arguments, and the CPUs that it might use.
type Load = (String, String);

fn compare_programs(
    place: &Place,
    loads: &[Load],
    runs: &BTreeMap<Load, Runs>,
) -> Result<(), Box<dyn Error>> {
    if loads.is_empty() {
        return Ok(());
    }
    println!("| load | CPUs | real | simulated | ratio | switches per message: real | simulated |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for key in loads {
        let (load, cpus) = key;
        let real = median(&runs[key][0]);
        let [simulated, switches, _] = place.simulated(load, cpus)?;
        let ratio = simulated / real;
        let words: Vec<&str> = load.split(' ').collect();
        let (unit, kind, per_message) = match words[0] {
            "hackbench" => {
                let messages = 400 * after(&words, "-g")? * after(&words, "-l")?;
                let real = median(&runs[key][1]) / messages as f64;
                let kind = if words.contains(&"-p") {
                    "hackbench, pipes"
                } else {
                    "hackbench, sockets"
                };
                ("s", kind, format!("{real:.3} | {switches:.3}"))
            }
            _ => ("MB/s", "tbench", " | ".into()),
        };
        println!(
            "| `{load}` | {cpus} | {} {unit} | {} {unit} | {ratio:.2} | {per_message} |",
            figures(real),
            figures(simulated)
        );
        ratios.entry(kind).or_default().push(ratio);
    }
    for (kind, ratios) in ratios {
        tell_ratios(kind, &ratios);
    }
    Ok(())
}

/// An open load: the median request, and one of a hundred.
fn compare_requests(
    place: &Place,
    loads: &[Load],
    runs: &BTreeMap<Load, Runs>,
) -> Result<(), Box<dyn Error>> {
    if loads.is_empty() {
        return Ok(());
    }
    println!("\n| load | CPUs | busy: real | simulated | p50: real | simulated | ratio | p99: real | simulated | ratio |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut ratios = [Vec::new(), Vec::new()];
    for key in loads {
        let (load, cpus) = key;
        let simulated = place.simulated(load, cpus)?;
        let real = &runs[key];
        let busy = real
            .get(2)
            .map_or("-".into(), |of| format!("{:.0} %", median(of)));
        let mut row = format!("| `{load}` | {cpus} | {busy} | {:.0} % |", simulated[2]);
        for (i, ratios) in ratios.iter_mut().enumerate() {
            let real = median(&real[i]);
            let ratio = simulated[i] / real;
            row += &format!(
                " {} ms | {} ms | {ratio:.2} |",
                figures(real),
                figures(simulated[i])
            );
            ratios.push(ratio);
        }
        println!("{row}");
    }
    tell_ratios("requests, p50", &ratios[0]);
    tell_ratios("requests, p99", &ratios[1]);
    Ok(())
}

fn tell_ratios(kind: &str, ratios: &[f64]) {
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    println!("\n{kind}: simulated over real {mean:.2} in the geometric mean of {}, {least:.2} to {most:.2}", ratios.len());
}

/// Three of them.
fn figures(value: f64) -> String {
    match value {
        ..1.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut dirs: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    if dirs.is_empty() {
        let live = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/live");
        for entry in std::fs::read_dir(live)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            }
        }
        dirs.sort();
    }
    dirs.iter().try_for_each(|dir| compare(dir))
}
