// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench costs`: what things cost on this machine, as a cost file for the simulator.

mod hardware;
mod kernel;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use usher_sim::costs::{CostNumbers, Costs};
use usher_sim::policy::fair::work;
use usher_topo::{CidInfo, Source, Topology};

use super::reckon::{median, sorted};
use super::{environment, measure};
use crate::exit::{Code, Failure};
use kernel::{Calls, Lives, Sleeps};

/// Turns of a measurement; of its figures the one that a tenth of them undercut counts.
const TURNS: usize = 51;
/// Pairs of CPUs of each distance, spread over the machine; the median of them counts.
const PAIRS: usize = 5;
/// Tasks that are woken in a row.
const CROWD: usize = 16;
/// Most memory that a walk through it takes.
const MOST_MEMORY: u64 = 2 << 30;
/// For how long KVM's host watches a halted CPU before it lets it sleep (its `halt_poll_ns`).
const HOST_POLLS_NS: u64 = 200_000;
/// What the simulator's fair class charges by itself, and measured times have in them: for placing and queueing a task ...
const PLACING_NS: f64 = (work::SELECT_NS + work::QUEUE_NS) as f64;
/// ... and for taking one off its queue and picking the next.
const PICKING_NS: f64 = (work::QUEUE_NS + work::PICK_NS) as f64;
/// Lines that its model has of a run queue, two each way, and of a futex, one way.
const MODELLED_LINES: f64 = 2.5;

/// What things cost on this machine, as a cost file for the simulator.
///
/// Some twenty seconds, on a machine that is otherwise idle, under the kernel's own scheduler. Measured are the clock, cache lines by
/// distance, memory, copies, system calls, switches, wakeups, births and deaths; idle states come from sysfs. What cannot be measured
/// from here is as in the base table. Names, units and meanings: `usher sim --list costs`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: usher bench costs > this-costs.toml\n          \
                        usher topo --format machine --costs this-costs.toml > this.toml\n          \
                        usher compare --machine ./this.toml --workload schbench"
)]
pub struct Args {
    /// The table that what is not measured comes from
    #[arg(long, value_name = "NAME", default_value = "generic")]
    base: String,
}

/// What was measured so far.
#[derive(Default)]
struct Table {
    /// By `section.name`: the value, and how it was measured.
    numbers: BTreeMap<&'static str, (u64, String)>,
    /// A write to a TCP connection over loopback: a parameter of workloads, and no cost.
    tcp_write_ns: Option<u64>,
    /// What could not be measured, and why.
    missing: Vec<String>,
}

impl Table {
    fn put(&mut self, name: &'static str, value: f64, how: impl Into<String>) {
        debug_assert!(CostNumbers::NAMES.contains(&name), "{name}");
        let value = value.max(0.0).round() as u64;
        self.numbers.insert(name, (value, how.into()));
    }

    /// The same in nanoseconds of something that takes at least one.
    fn put_some(&mut self, name: &'static str, value: f64, how: impl Into<String>) {
        self.put(name, value.max(1.0), how);
    }
}

/// An idle state as it will stand in the file.
#[derive(Debug, PartialEq, Eq)]
struct Idle {
    name: String,
    exit_ns: u64,
    /// What an exit took.
    wake_ns: Option<u64>,
    residency_ns: u64,
    polling: bool,
    source: String,
}

/// How two CPUs lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Apart {
    Core,
    Llc,
    Node,
    Remote,
}

impl Apart {
    const ALL: [Self; 4] = [Self::Core, Self::Llc, Self::Node, Self::Remote];

    fn of(a: &CidInfo, b: &CidInfo) -> Self {
        match () {
            () if a.core == b.core => Self::Core,
            () if a.llc == b.llc => Self::Llc,
            () if a.node == b.node => Self::Node,
            () => Self::Remote,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Core => "threads of a core",
            Self::Llc => "cores of an LLC",
            Self::Node => "LLCs of a node",
            Self::Remote => "nodes",
        }
    }
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let base = Costs::builtin(&args.base)?;
    let topo = Topology::build(&Source::Live.read()?, 64)?;
    let allowed = measure::allowed().map_err(|error| environment(format!("affinity: {error}")))?;
    let cpus: Vec<&CidInfo> = topo
        .cids()
        .iter()
        .filter(|info| allowed.contains(&(info.cpu.0 as usize)))
        .collect();
    let Some(&first) = cpus.first() else {
        return Err(environment(
            "none of this process's CPUs is in sysfs".into(),
        ));
    };
    let pairs = pairs(&cpus);
    let found =
        measure_all(&topo, first, &pairs, &base).map_err(|error| environment(error.to_string()))?;
    let (table, idle) = found;
    let text = file(&args.base, &table, &idle);
    if let Err(error) = Costs::parse("what was measured", &text) {
        eprint!("{text}");
        return Err(environment(format!(
            "what was measured is no cost file ({error}); the numbers are above, to be mended by hand"
        )));
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Code::Fine)
}

/// Some pairs of each distance, evenly spread over all of them.
fn pairs(cpus: &[&CidInfo]) -> BTreeMap<Apart, Vec<(usize, usize)>> {
    let mut all: BTreeMap<Apart, Vec<(usize, usize)>> = BTreeMap::new();
    for (i, a) in cpus.iter().enumerate() {
        for b in &cpus[i + 1..] {
            let pair = (a.cpu.0 as usize, b.cpu.0 as usize);
            all.entry(Apart::of(a, b)).or_default().push(pair);
        }
    }
    for pairs in all.values_mut() {
        let step = pairs.len().div_ceil(PAIRS);
        *pairs = pairs.iter().copied().step_by(step).collect();
    }
    all
}

/// The measurements, on a thread of their own: it goes from CPU to CPU.
fn measure_all(
    topo: &Topology,
    first: &CidInfo,
    pairs: &BTreeMap<Apart, Vec<(usize, usize)>>,
    base: &Costs,
) -> io::Result<(Table, Vec<Idle>)> {
    let cpu = first.cpu.0 as usize;
    let mut table = Table::default();
    let measure = || -> io::Result<Vec<Idle>> {
        on(cpu)?;
        // Births before memory is taken: a fork copies page tables.
        let process = step("births of processes", kernel::process(cpu))?;
        let thread = step("births of threads", kernel::thread(cpu))?;
        let parts = call_costs(&mut table, cpu)?;
        life_costs(&mut table, process, thread, &parts);
        let idle = wakeup_costs(&mut table, cpu, pairs, base, &parts)?;
        on(cpu)?;
        hardware_costs(&mut table, cpu, topo, pairs)?;
        Ok(idle)
    };
    let idle = std::thread::scope(|scope| {
        let measuring = scope.spawn(measure);
        measuring
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok((table, idle))
}

/// What longer ways consist of, nanoseconds each.
struct Parts {
    calls: Calls,
    wake: f64,
    threads: f64,
    processes: f64,
}

/// System calls, a wakeup on the same CPU, and switches.
fn call_costs(table: &mut Table, cpu: usize) -> io::Result<Parts> {
    let c = step("system calls", kernel::calls())?;
    table.put_some("syscall.syscall_ns", c.syscall, "getppid(2)");
    table.put(
        "syscall.futex_ns",
        c.futex,
        "FUTEX_WAKE with nobody there, beyond the entry",
    );
    table.put(
        "syscall.rw_ns",
        c.rw,
        "100 bytes into a pipe and out of it, each, beyond the entry",
    );
    table.put(
        "syscall.unix_ns",
        c.unix,
        "the same with a Unix stream socket, beyond a pipe",
    );
    match &c.tcp_write {
        Ok(ns) => table.tcp_write_ns = Some(ns.round() as u64),
        Err(error) => table.missing.push(format!("TCP over loopback ({error})")),
    }
    table.put(
        "syscall.poll_ns",
        c.poll,
        "poll(2) of 17 pipes less that of one",
    );
    match &c.sem {
        Ok(ns) => table.put(
            "syscall.sem_ns",
            *ns,
            "semop(2) up and down, each, beyond the entry",
        ),
        Err(error) => table.missing.push(format!("semop(2) ({error})")),
    }
    table.put(
        "syscall.sched_ns",
        c.sched,
        "sched_setaffinity(2) to the same CPU, beyond the entry",
    );
    table.put(
        "syscall.sleep_ns",
        c.sleep,
        "timerfd_settime(2), beyond the entry",
    );
    table.put(
        "switch.schedule_ns",
        c.schedule,
        "sched_yield(2) of a task alone, beyond the entry",
    );

    let wake = (step("a wakeup on the same CPU", kernel::wake_here_ns(cpu))? - c.syscall - c.futex)
        .max(0.0);
    table.put(
        "wake.wake_ns",
        (wake - PLACING_NS).max(0.0),
        "FUTEX_WAKE of a task of the idle class on the same CPU, beyond one with nobody there, less placing and queueing",
    );
    // Two calls, a sleep after which the locks are taken again, a wakeup, and the switch.
    let rest_of_a_pass = 2.0 * c.syscall + 2.5 * c.rw + wake + c.schedule;
    let pass = |processes| step("a byte to and fro", kernel::pass_ns(cpu, processes));
    let threads = (pass(false)? - rest_of_a_pass).max(0.0);
    let processes = (pass(true)? - rest_of_a_pass).max(threads);
    let how =
        "a byte to and fro between two on one CPU, less calls, wakeup, schedule, queue and pick";
    for (name, ns) in [
        ("switch.switch_thread_ns", threads),
        ("switch.switch_ns", processes),
    ] {
        table.put(name, (ns - PICKING_NS).max(0.0), how);
    }
    Ok(Parts {
        calls: c,
        wake,
        threads,
        processes,
    })
}

/// Births and deaths of processes and of threads.
fn life_costs(table: &mut Table, process: Lives, thread: (f64, f64), parts: &Parts) {
    let Parts {
        calls: c,
        wake,
        threads,
        processes,
    } = parts;
    let how = "of a process that ends at once";
    let waiting = (process.reaping - c.syscall).max(0.0);
    table.put(
        "syscall.fork_ns",
        process.birth,
        format!("fork(2) {how}, in the parent"),
    );
    table.put(
        "syscall.wait_ns",
        waiting,
        "waitpid(2) of one long dead, beyond the entry",
    );
    let there_and_back = 2.0 * (c.schedule + processes) + wake;
    let exit = process.death - c.syscall - waiting - there_and_back;
    table.put(
        "syscall.exit_ns",
        exit,
        format!("until the parent {how} goes on, less wait, switches and wakeup"),
    );
    table.put(
        "syscall.thread_ns",
        thread.0,
        "a thread's start, in the thread that starts it",
    );
    let there_and_back = 2.0 * (c.schedule + threads) + wake;
    let exit = thread.1 - c.syscall - c.futex - there_and_back;
    table.put(
        "syscall.thread_exit_ns",
        exit,
        "until who waits for a thread that ends at once goes on, less call, switches and wakeup",
    );
}

/// The lines in which the kernel keeps account of a task: how many who wakes it waits for, and the CPU where it runs then, each in the mean.
fn task_lines(
    table: &mut Table,
    name: &'static str,
    (from, to): (usize, usize),
    apart: Apart,
) -> io::Result<Option<f64>> {
    // Both ways, by turns: differences of calls of a microsecond, and one of the two CPUs may be the slower for a while.
    const WAYS: usize = 4;
    let mut more = 0.0;
    for way in 0..WAYS {
        let (from, to) = if way % 2 == 0 { (from, to) } else { (to, from) };
        let what = format!("wakeups from CPU {from} of tasks that wait on CPU {to}");
        let Some(account) = step(&what, kernel::account(from, to, CROWD))? else {
            table
                .missing
                .push(format!("{name} (others keep the CPU busy)"));
            return Ok(None);
        };
        more += account.more / WAYS as f64;
    }
    let line = step("a line to and fro", hardware::line_ns(from, to))?.max(1.0);
    let lines = (more / 2.0 / line).max(0.0);
    table.put(name, lines, format!("each of {CROWD} tasks of the idle class after the first that are woken in a row on a busy CPU, between {}: call and start, beyond the same on one CPU, in lines", apart.text()));
    Ok(Some(lines))
}

/// The lines in which the kernel keeps account of a run queue. Returns what it takes to fetch these and those of a task.
fn account_costs(
    table: &mut Table,
    (from, to): (usize, usize),
    base: &Costs,
    parts: &Parts,
) -> io::Result<f64> {
    let of_task = task_lines(table, "wake.task_lines", (from, to), Apart::Llc)?;
    let of_task = of_task.unwrap_or(base.n.task_lines as f64);
    let what = format!("a wakeup from CPU {from} of a task that waits on CPU {to}");
    let Some(account) = step(&what, kernel::account(from, to, 1))? else {
        table
            .missing
            .push("wake.queue_lines (others keep the CPU busy)".into());
        return Ok(0.0);
    };
    let line = step("a line to and fro", hardware::line_ns(from, to))?.max(1.0);
    let call = parts.calls.syscall + parts.calls.futex + parts.wake;
    let each_way = ((account.call - call) + account.back) / 2.0;
    let lines = (each_way / line - MODELLED_LINES).max(of_task);
    let of_queues = lines - of_task;
    let how = "FUTEX_WAKE of a task of the idle class on a busy core of the LLC, beyond one on the same CPU, and how much later it runs then, in \
               lines";
    let base_of = (base.n.queue_lines + base.n.fair_lines).max(1) as f64;
    for (name, share) in [
        ("wake.queue_lines", base.n.queue_lines),
        ("wake.fair_lines", base.n.fair_lines),
    ] {
        let share = share as f64 / base_of;
        table.put(
            name,
            of_queues * share,
            format!("{how}; {share:.2} of them"),
        );
    }
    Ok(lines * line)
}

/// Wakeups of other CPUs by distance, and the idle states that these come out of.
fn wakeup_costs(
    table: &mut Table,
    cpu: usize,
    pairs: &BTreeMap<Apart, Vec<(usize, usize)>>,
    base: &Costs,
    parts: &Parts,
) -> io::Result<Vec<Idle>> {
    let wakeup = |from, to, sleeps| {
        let what = format!("a wakeup from CPU {from} to CPU {to}");
        step(&what, kernel::wakeup(from, to, sleeps))
    };
    let here = wakeup(cpu, cpu, Sleeps::Here)?;
    let account = match pairs.get(&Apart::Llc).and_then(|pairs| pairs.first()) {
        Some(&pair) => account_costs(table, pair, base, parts)?,
        None => 0.0,
    };
    let far = [Apart::Node, Apart::Remote].into_iter();
    let mut far = far.filter_map(|apart| Some((apart, *pairs.get(&apart)?.first()?)));
    if let Some((apart, pair)) = far.next() {
        task_lines(table, "wake.task_far_lines", pair, apart)?;
    }
    let handle = base.n.ipi_handle_ns as f64;
    let mut halts = None;
    for (apart, name) in Apart::ALL.into_iter().zip([
        "ipi.ipi_core_ns",
        "ipi.ipi_llc_ns",
        "ipi.ipi_node_ns",
        "ipi.ipi_remote_ns",
    ]) {
        let Some(&(from, to)) = pairs.get(&apart).and_then(|pairs| pairs.first()) else {
            continue;
        };
        let busy = wakeup(from, to, Sleeps::Busy)?;
        let way = busy.until - busy.call - parts.calls.schedule - parts.threads - handle - account;
        table.put_some(name, way, format!("a wakeup between {}, of a CPU busy with the idle class, less call, switch, account and what the base says of the handler", apart.text()));
        if halts.is_none() {
            let sent = busy.call - here.call - account;
            table.put(
                "ipi.ipi_send_ns",
                sent,
                format!(
                    "FUTEX_WAKE between {}, beyond one on the same CPU, less account",
                    apart.text()
                ),
            );
            let idle = Sleeps::IDLE.map(|sleeps| wakeup(from, to, sleeps));
            let [shallow, deep] = idle;
            halts = Some((shallow?.until - busy.until, deep?.until - busy.until));
        }
    }
    let states = states(Path::new(&format!(
        "/sys/devices/system/cpu/cpu{cpu}/cpuidle"
    )))?;
    Ok(match (states.is_empty(), halts) {
        (true, Some((shallow, deep))) => halted(shallow, deep),
        _ => states,
    })
}

/// The idle states that the kernel is told of, the shallowest first; none where it has no driver for them.
fn states(dir: &Path) -> io::Result<Vec<Idle>> {
    let mut states = Vec::new();
    for nr in 0.. {
        let dir = dir.join(format!("state{nr}"));
        if !dir.exists() {
            break;
        }
        let word = |file: &str| {
            let path = dir.join(file);
            let text = step(&path.display().to_string(), std::fs::read_to_string(&path))?;
            Ok::<String, io::Error>(text.trim().to_owned())
        };
        let ns = |file: &str| -> io::Result<u64> {
            let text = word(file)?;
            let us: u64 = text.parse().map_err(|_| {
                io::Error::other(format!(
                    "{}: `{text}` is no number",
                    dir.join(file).display()
                ))
            })?;
            Ok(us.saturating_mul(1000))
        };
        let (name, desc) = (word("name")?, word("desc")?);
        // Waiting in a loop is no state that one has to come out of; what was switched off is not used.
        if name == "POLL" || word("disable").is_ok_and(|text| text == "1") {
            continue;
        }
        states.push(Idle {
            exit_ns: ns("latency")?,
            wake_ns: None,
            residency_ns: ns("residency")?,
            polling: desc.contains("MWAIT"),
            source: format!("{} ({})", dir.display(), desc.replace(['"', '\\'], "'")),
            name,
        });
    }
    Ok(states)
}

/// Without a driver: a CPU halts, and in a virtual machine its host may take it away after a while.
fn halted(shallow: f64, deep: f64) -> Vec<Idle> {
    let (shallow, deep) = (shallow.max(0.0), deep.max(0.0));
    let state = |name: &str, wake: f64, residency_ns: u64, source: String| Idle {
        name: name.into(),
        exit_ns: wake.round() as u64,
        wake_ns: Some(wake.round() as u64),
        residency_ns,
        polling: false,
        source,
    };
    let [short, long] = Sleeps::IDLE.map(|sleeps| match sleeps {
        Sleeps::Idle(rest) => {
            format!("measured: a wakeup after {rest:?} of rest, beyond that of a busy CPU")
        }
        _ => String::new(),
    });
    let mut states = vec![state("halt", shallow, 0, short)];
    if deep > 1.5 * shallow {
        let source =
            format!("{long}; residency assumed: KVM's host watches a halted CPU for that long");
        states.push(state("halt-long", deep, HOST_POLLS_NS, source));
    }
    states
}

fn hardware_costs(
    table: &mut Table,
    cpu: usize,
    topo: &Topology,
    pairs: &BTreeMap<Apart, Vec<(usize, usize)>>,
) -> io::Result<()> {
    if let Some(mhz) = hardware::clock_mhz() {
        table.put(
            "cpu.clock_mhz",
            mhz,
            "additions of which each needs the one before",
        );
    }
    table.put_some(
        "line.line_hit_ns",
        hardware::hit_ns()?,
        "a walk through 4 KiB",
    );
    table.put_some(
        "line.line_rmw_ns",
        hardware::rmw_ns(),
        "atomic additions of which each needs the one before",
    );
    let places = [
        (Apart::Llc, "line.line_llc_ns", "copy.copy_llc_ns_per_kib"),
        (
            Apart::Node,
            "line.line_node_ns",
            "copy.copy_node_ns_per_kib",
        ),
        (
            Apart::Remote,
            "line.line_remote_ns",
            "copy.copy_remote_ns_per_kib",
        ),
    ];
    for (apart, line, copy) in places {
        let Some(pairs) = pairs.get(&apart) else {
            continue;
        };
        let each = |one: fn(usize, usize) -> io::Result<f64>| -> io::Result<(f64, String)> {
            let between =
                |&(a, b): &(usize, usize)| step(&format!("between CPUs {a} and {b}"), one(a, b));
            let each: io::Result<Vec<f64>> = pairs.iter().map(between).collect();
            let each = sorted(each?);
            let (least, most) = (each[0], each[each.len() - 1]);
            Ok((
                median(&each),
                format!(
                    "between {}: the median of {}, {least:.0} to {most:.0}",
                    apart.text(),
                    each.len()
                ),
            ))
        };
        let (ns, how) = each(hardware::line_ns)?;
        table.put_some(
            line,
            ns,
            format!("compare-and-swaps by turns, half of there and back, {how}"),
        );
        if apart == Apart::Llc {
            let (per_cpu, how) = each(hardware::look_ns)?;
            table.put(
                "line.line_scan_permille",
                (1000.0 * (per_cpu - work::PROBE_NS as f64) / ns).clamp(0.0, 1000.0),
                format!("a loop as in a kernel's search over {} CPUs, less {} ns of work for each, of what a line takes, {how} ns", hardware::LOOKED_AT, work::PROBE_NS),
            );
        }
        let (ns, how) = each(hardware::copy_ns_per_kib)?;
        table.put(
            copy,
            ns,
            format!("64 KiB that the other has just written, {how}"),
        );
    }
    // 10 would be the distance to the node itself.
    if let Some(distance) = remote_distance(topo, pairs).filter(|&distance| distance > 10) {
        table.put(
            "line.line_remote_slit",
            f64::from(distance),
            "sysfs, of the first pair measured between nodes",
        );
    }
    let caches = caches(Path::new(&format!(
        "/sys/devices/system/cpu/cpu{cpu}/cache"
    )));
    let (l2, llc) = (
        caches.get(&2).copied(),
        caches.last_key_value().map(|(_, &kib)| kib),
    );
    if let Some(kib) = l2 {
        table.put("cache.l2_kib", kib as f64, "sysfs");
    }
    let Some(llc) = llc else { return Ok(()) };
    table.put("cache.llc_kib", llc as f64, "sysfs");
    // Far more than the private cache, and well within the LLC.
    if let Some(kib) = l2.map(|l2| 4 * l2).filter(|&kib| kib <= llc / 2) {
        let ns = hardware::read_ns_per_kib((kib as usize) << 10)?;
        table.put(
            "cache.refill_llc_ns_per_kib",
            ns,
            format!("reading {kib} KiB again and again"),
        );
    }
    let (bytes, free) = (4 * (llc << 10), memory::free() / 2);
    if bytes <= free.min(MOST_MEMORY) {
        let mib = bytes >> 20;
        let ns = hardware::memory_ns(bytes as usize)?;
        table.put_some(
            "line.line_memory_ns",
            ns,
            format!("a walk in random order through {mib} MiB"),
        );
        let ns = hardware::read_ns_per_kib(bytes as usize)?;
        table.put(
            "cache.refill_memory_ns_per_kib",
            ns,
            format!("reading {mib} MiB again and again"),
        );
    }
    Ok(())
}

/// The SLIT distance of the first pair that lies in two nodes.
fn remote_distance(topo: &Topology, pairs: &BTreeMap<Apart, Vec<(usize, usize)>>) -> Option<u32> {
    let &(a, b) = pairs.get(&Apart::Remote)?.first()?;
    let node = |cpu: usize| {
        topo.cids()
            .iter()
            .find(|info| info.cpu.0 as usize == cpu)
            .map(|info| info.node)
    };
    Some(topo.distance(node(a)?, node(b)?))
}

/// KiB of a CPU's data caches by level; what sysfs does not say is not there.
fn caches(dir: &Path) -> BTreeMap<u32, u64> {
    let mut caches = BTreeMap::new();
    for nr in 0..10 {
        let word = |file: &str| std::fs::read_to_string(dir.join(format!("index{nr}/{file}"))).ok();
        let level = word("level").and_then(|text| text.trim().parse().ok());
        let size = word("size").and_then(|text| text.trim().strip_suffix('K')?.parse().ok());
        let holds_data = word("type").is_some_and(|text| text.trim() != "Instruction");
        if let (Some(level), Some(size), true) = (level, size, holds_data) {
            caches.insert(level, size);
        }
    }
    caches
}

/// The cost file.
fn file(base: &str, table: &Table, idle: &[Idle]) -> String {
    let mut text = format!(
        "# SPDX-License-Identifier: GPL-2.0-only\n# {}\nbase = \"{base}\"\n",
        machine()
    );
    let mut section = "";
    // In the order of the list of costs: what belongs together stands together.
    for name in CostNumbers::NAMES {
        let Some((value, how)) = table.numbers.get(name) else {
            continue;
        };
        let (of, key) = name.split_once('.').expect("a section and a name");
        if of != section {
            let _ = write!(text, "\n[{of}]\n");
            section = of;
        }
        let _ = writeln!(
            text,
            "{key} = {{ value = {value}, source = \"measured: {how}\" }}"
        );
    }
    for state in idle {
        let _ = write!(
            text,
            "\n[[idle_state]]\nname = \"{}\"\nexit_ns = {}\n",
            state.name, state.exit_ns
        );
        if let Some(ns) = state.wake_ns {
            let _ = writeln!(text, "wake_ns = {ns}");
        }
        let _ = write!(
            text,
            "residency_ns = {}\npolling = {}\nsource = \"{}\"\n",
            state.residency_ns, state.polling, state.source
        );
    }
    let mut rest: Vec<&str> = CostNumbers::NAMES
        .iter()
        .copied()
        .filter(|name| !table.numbers.contains_key(name))
        .collect();
    rest.push("smt.share_permille");
    if idle.is_empty() {
        rest.push("all idle states");
    }
    let _ = writeln!(text, "\n# As in `{base}`: {}", rest.join(", "));
    for missing in &table.missing {
        let _ = writeln!(text, "# Not to be had here: {missing}");
    }
    if let Some(ns) = table.tcp_write_ns {
        let _ = writeln!(
            text,
            "# For tbench, uperf and sysbench-oltp-rw here: --set protocol={ns}ns, the same with TCP over loopback."
        );
    }
    text
}

/// What this machine is, in a line.
fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split_once(": "))
        .map_or("a CPU", |(_, model)| model);
    format!(
        "By `usher bench costs` on {}, Linux {}.",
        model.trim(),
        read("/proc/sys/kernel/osrelease").trim()
    )
}

/// An error says what was to be done.
fn step<T>(what: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
}

/// The calling thread runs there and nowhere else.
fn on(cpu: usize) -> io::Result<()> {
    measure::use_only(&BTreeSet::from([cpu]))
}

/// The figure that a tenth of them undercut: what else runs on the machine only adds.
fn low(of: Vec<f64>) -> f64 {
    let of = sorted(of);
    of[of.len() / 10]
}

/// Nanoseconds that it takes, by turns of a tenth of a millisecond and more.
fn time(mut each: impl FnMut()) -> f64 {
    const TURN: Duration = Duration::from_micros(100);
    let mut turn = |rounds: u32| {
        let start = Instant::now();
        for _ in 0..rounds {
            each();
        }
        start.elapsed()
    };
    let mut rounds = 1;
    while rounds < 1 << 20 && turn(rounds) < TURN {
        rounds *= 2;
    }
    let turns = (0..TURNS).map(|_| turn(rounds).as_nanos() as f64 / f64::from(rounds));
    low(turns.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(shape: &str) -> Topology {
        let raw = usher_topo::shape::parse(shape).expect("a shape");
        Topology::build(&raw, 64).expect("legal")
    }

    // Goal: each distance that a machine has is measured between some pairs, spread over it. Method: machines with all and with one.
    #[test]
    fn pairs_of_each_distance() {
        let topo = topology("2n2l2c2t");
        let cpus: Vec<&CidInfo> = topo.cids().iter().collect();
        let pairs = pairs(&cpus);
        assert_eq!(pairs.keys().copied().collect::<Vec<_>>(), Apart::ALL);
        assert!(
            pairs.values().all(|of| (1..=PAIRS).contains(&of.len())),
            "{pairs:?}"
        );
        assert_eq!(pairs[&Apart::Core][0], (0, 1));
        assert!(
            pairs[&Apart::Remote].iter().any(|&(a, _)| a > 0),
            "{pairs:?}"
        );
        assert_eq!(
            remote_distance(&topo, &pairs),
            Some(topo.nodes()[0].distances[1])
        );
        let one = topology("1n1l1c1t");
        assert!(super::pairs(&one.cids().iter().collect::<Vec<_>>()).is_empty());
    }

    // Goal: idle states are those that the kernel uses, in nanoseconds. Method: a directory with one that polls in a loop, one that
    // watches memory, one that does not, one that is off, and one with a word where a number should be.
    #[test]
    fn idle_states_are_the_kernels() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = |nr: u32, name: &str, desc: &str, latency: &str, disable: &str| {
            let dir = dir.path().join(format!("state{nr}"));
            std::fs::create_dir(&dir).expect("new");
            let files = [
                ("name", name),
                ("desc", desc),
                ("latency", latency),
                ("residency", "20"),
                ("disable", disable),
            ];
            for (file, text) in files {
                std::fs::write(dir.join(file), format!("{text}\n")).expect("written");
            }
        };
        state(0, "POLL", "CPUIDLE CORE POLL IDLE", "0", "0");
        state(1, "C1", "MWAIT 0x00", "2", "0");
        state(2, "C2", "ACPI IOPORT 0x814", "18", "0");
        state(3, "C3", "MWAIT 0x20", "100", "1");
        let found = states(dir.path()).expect("sound");
        let seen: Vec<_> = found
            .iter()
            .map(|s| (&*s.name, s.exit_ns, s.residency_ns, s.polling))
            .collect();
        assert_eq!(
            seen,
            [("C1", 2_000, 20_000, true), ("C2", 18_000, 20_000, false)]
        );
        state(4, "C4", "MWAIT 0x30", "soon", "0");
        let error = states(dir.path()).expect_err("no number").to_string();
        assert!(
            error.contains("state4/latency") && error.contains("`soon`"),
            "{error}"
        );
        assert!(states(Path::new("/nonexistent")).expect("none").is_empty());
    }

    // Goal: a CPU that halts has a second state only where waking it takes clearly longer after a while. Method: both.
    #[test]
    fn halts_after_a_while_are_told_apart() {
        assert_eq!(halted(1_000.0, 1_400.0).len(), 1);
        assert_eq!(halted(-9.0, -8.0).len(), 1);
        let states = halted(-3.0, 25_000.0);
        let seen: Vec<_> = states.iter().map(|s| (s.wake_ns, s.residency_ns)).collect();
        assert_eq!(seen, [(Some(0), 0), (Some(25_000), HOST_POLLS_NS)]);
    }

    // Goal: what is printed is a cost file that says what was measured and what was not. Method: two numbers and an idle state, read back.
    #[test]
    fn the_file_is_read_back() {
        let mut table = Table::default();
        table.put("line.line_llc_ns", 61.6, "by hand");
        table.put_some("syscall.syscall_ns", 0.2, "by hand");
        let text = file("zen3", &table, &halted(1_000.0, 1_000.0));
        let costs = Costs::parse("here", &text).expect("a cost file");
        let base = Costs::builtin("zen3").expect("built in");
        assert_eq!((costs.n.line_llc_ns, costs.n.syscall_ns), (62, 1));
        assert_eq!(
            (costs.n.line_node_ns, costs.n.futex_ns),
            (base.n.line_node_ns, base.n.futex_ns)
        );
        assert_eq!(costs.idle_states.len(), 1);
        let rest = text
            .lines()
            .find(|line| line.starts_with("# As in `zen3`"))
            .expect("the rest");
        assert!(
            rest.contains("line.line_node_ns") && !rest.contains("line.line_llc_ns"),
            "{rest}"
        );
    }
}
