// SPDX-License-Identifier: GPL-2.0-only
//! What the root domain's lines can give, if each of them is handed over access by access: the closed network of
//! docs/FIDELITY.md, section F. The simulator's callbacks are atomic, so it books a line until a callback is done with it;
//! here another CPU may use a line between two accesses of one callback.
//!
//! 480 CPUs go round: think (sleep, or work), wake, switch, think. What they do to which line, and in which order, is that
//! of 6.12 with its cpumasks off the stack (`cycle`); a patch of the series changes on which line a word lies (`Words`). A
//! line is a station:
//!
//! 1. It serves requests in the order in which they came, one at a time; loads that follow each other go together.
//! 2. A transfer takes what it takes in the simulator: a load from the nearest holder, a write from the farthest.
//! 3. A CPU's next access to the line that it accessed last is a hit: nobody's request is faster than that.
//!
//! `cargo run --release -p usher-sim --example lines`: a quarter of a minute.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::error::Error;

use usher_sim::case::machine;
use usher_sim::ids::{Cpu, Id, Nanos};
use usher_sim::params::Params;
use usher_sim::rng::Rng;
use usher_sim::Machine;
use usher_topo::Source;

const MACHINE: &str = "hcc-2s-480";
/// A sleep of stress-ng's cyclic.
const SLEEP: Nanos = 100_000;
const WARMUP: Nanos = 20_000_000;
const END: Nanos = 70_000_000;
/// Of FFmpeg's wakeups, those that find their CPU idle, in thousandths: `wakeups_to_idle_share` of the simulator.
const TO_IDLE: u32 = 540;
/// The kernel's share of FFmpeg's baseline, as posted.
const KERNEL: f64 = 0.2;

const VARIANTS: [&str; 5] = [
    "baseline",
    "padding",
    "reordering",
    "overload count",
    "bitmaps",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Load,
    Atomic,
}
use Kind::{Atomic, Load};

/// What a CPU does next.
#[derive(Clone, Copy)]
enum Step {
    Access(usize, Kind),
    Work(Nanos),
    /// A timer is set, for as long as a sleep takes.
    SetTimer,
    /// The program runs.
    Think,
    /// Until the timer is over.
    AwaitTimer,
}

/// On which line each word lies; two entries are per node.
struct Words {
    count0: usize,
    ptr0: usize,
    /// Zero, as those up to 98: nobody runs at these levels.
    count97: usize,
    count99: usize,
    ptr99: usize,
    mask0: [usize; 2],
    mask99: [usize; 2],
    rto_mask_ptr: usize,
    rto_mask: usize,
    rto_count: [usize; 2],
    overloaded: usize,
    loop_next: usize,
}

/// Lines that every variant has, in this order; what a patch splits off comes behind.
const NAMES: [&str; 6] = ["A", "B", "C", "D", "E", "F"];

impl Words {
    /// The words of a variant, and how many lines there are.
    fn new(variant: usize) -> (Words, usize) {
        let [a, b, c, d, e, f] = std::array::from_fn(|line| line);
        // Nobody writes to the line behind A, on which the pointer to level 0's bitmap lies.
        let behind_a = NAMES.len();
        let mut lines = behind_a + 1;
        // Where a word lies that `patch` takes off `line`.
        let mut off = |patch: usize, line: usize| {
            if patch != variant {
                return line;
            }
            lines += 1;
            lines - 1
        };
        let words = Words {
            count0: off(1, a),
            ptr0: behind_a,
            count97: off(1, e),
            count99: off(1, e),
            ptr99: off(1, e),
            mask0: [c, off(4, c)],
            mask99: [d, off(4, d)],
            rto_mask_ptr: off(2, a),
            rto_mask: f,
            rto_count: [off(3, b), off(3, b)],
            overloaded: off(2, b),
            loop_next: a,
        };
        (words, lines)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    /// Sleeps 100 us, over and over: stress-ng's cyclic.
    Sleeper,
    /// Works for a random time of this mean, then waits for somebody: FFmpeg.
    Transcoder(Nanos),
}

/// From one thought to the next, on a CPU of `node`. `idle`: the wakeup found the CPU idle.
fn cycle(words: &Words, machine: &Machine, program: Program, node: usize, idle: bool) -> Vec<Step> {
    let n = &machine.costs().n;
    let at = |line, kind| Step::Access(line, kind);
    let enter = [
        at(words.ptr99, Load),
        at(words.mask99[node], Atomic),
        at(words.count99, Atomic),
        at(words.count0, Atomic),
        at(words.ptr0, Load),
        at(words.mask0[node], Atomic),
    ];
    let leave = [
        at(words.ptr0, Load),
        at(words.mask0[node], Atomic),
        at(words.count0, Atomic),
        at(words.count99, Atomic),
        at(words.ptr99, Load),
        at(words.mask99[node], Atomic),
    ];
    let set_overload = [
        at(words.rto_mask_ptr, Load),
        at(words.rto_mask, Atomic),
        at(words.rto_count[node], Atomic),
    ];
    let clear_overload = [
        at(words.rto_count[node], Atomic),
        at(words.rto_mask_ptr, Load),
        at(words.rto_mask, Atomic),
    ];
    // Somebody is always overloaded here, so a pull asks for a round; that another one is under way ends it.
    let pull = [
        at(words.rto_count[node], Load),
        at(words.loop_next, Atomic),
        at(words.overloaded, Load),
    ];
    // In vain: nobody in the bitmap of level 0 is allowed, and above it are zeros up to those on E.
    let find = [
        at(words.count0, Load),
        at(words.ptr0, Load),
        at(words.mask0[node], Load),
        at(words.mask0[1 - node], Load),
        at(words.count97, Load),
    ];
    let mut steps = vec![Step::Work(n.wake_ns)];
    if idle {
        steps.extend(enter);
    } else {
        steps.extend(find);
        steps.push(at(words.overloaded, Load));
    }
    steps.extend(set_overload);
    if !idle {
        steps.extend(find);
    }
    steps.push(Step::Work(n.schedule_ns));
    steps.extend(clear_overload);
    steps.push(Step::Work(n.switch_ns));
    match program {
        Program::Sleeper => {
            steps.extend([
                Step::Work(n.syscall_ns + n.sleep_ns),
                Step::SetTimer,
                Step::Work(n.schedule_ns),
            ]);
        }
        Program::Transcoder(_) => steps.extend([
            Step::Think,
            Step::Work(n.syscall_ns + n.futex_ns + n.schedule_ns),
        ]),
    }
    if idle {
        steps.extend(leave);
        steps.extend(pull);
    }
    if program == Program::Sleeper {
        steps.extend([Step::AwaitTimer, Step::Work(n.timer_irq_ns)]);
    }
    steps
}

#[derive(Clone, Default)]
struct Line {
    holders: BTreeSet<u32>,
    dirty: bool,
    busy: bool,
    queue: VecDeque<(usize, Kind, Nanos)>,
    visits: u64,
    served: Nanos,
    waited: Nanos,
    took: Nanos,
}

struct Walker {
    steps: Vec<Step>,
    at: usize,
    timer: Nanos,
    last: usize,
}

struct Network<'a> {
    machine: &'a Machine,
    words: Words,
    program: Program,
    lines: Vec<Line>,
    cpus: Vec<Walker>,
    /// When, in which order, and who: a CPU, or beyond them a line.
    events: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    seq: u64,
    now: Nanos,
    rng: Rng,
    rounds: u64,
    thought: Nanos,
}

impl<'a> Network<'a> {
    fn new(machine: &'a Machine, variant: usize, program: Program) -> Self {
        let (words, lines) = Words::new(variant);
        let nr = machine.cpus().len();
        let mut net = Network {
            machine,
            words,
            program,
            lines: vec![Line::default(); lines],
            cpus: Vec::new(),
            events: BinaryHeap::new(),
            seq: 0,
            now: 0,
            rng: Rng::new(1),
            rounds: 0,
            thought: 0,
        };
        for cpu in 0..nr {
            net.cpus.push(Walker {
                steps: Vec::new(),
                at: 0,
                timer: 0,
                last: usize::MAX,
            });
            let at = net.rng.below(SLEEP);
            net.push(at, cpu);
        }
        net
    }

    fn push(&mut self, at: Nanos, who: usize) {
        self.events.push(Reverse((at, self.seq, who)));
        self.seq += 1;
    }

    fn run(mut self) -> Outcome {
        let mut measuring = false;
        while let Some(Reverse((at, _, who))) = self.events.pop() {
            if at > END {
                break;
            }
            self.now = at;
            if !measuring && at >= WARMUP {
                measuring = true;
                (self.rounds, self.thought) = (0, 0);
                for line in &mut self.lines {
                    (line.visits, line.served, line.waited, line.took) = (0, 0, 0, 0);
                }
            }
            match who.checked_sub(self.cpus.len()) {
                None => self.go_on(who),
                Some(line) => {
                    self.lines[line].busy = false;
                    self.serve(line);
                }
            }
        }
        Outcome::new(self)
    }

    fn go_on(&mut self, cpu: usize) {
        let walker = &mut self.cpus[cpu];
        let Some(&step) = walker.steps.get(walker.at) else {
            self.start_round(cpu);
            return;
        };
        walker.at += 1;
        match step {
            Step::Access(line, kind) => self.access(cpu, line, kind),
            Step::Work(ns) => self.push(self.now + ns, cpu),
            Step::SetTimer => {
                walker.timer = self.now + SLEEP;
                self.push(self.now, cpu);
            }
            Step::AwaitTimer => {
                let at = walker.timer.max(self.now);
                self.push(at, cpu);
            }
            Step::Think => {
                let Program::Transcoder(mean) = self.program else {
                    unreachable!("sleepers do not think");
                };
                let ns = self.rng.exponential(mean);
                self.thought += ns;
                self.push(self.now + ns, cpu);
            }
        }
    }

    fn start_round(&mut self, cpu: usize) {
        self.rounds += 1;
        let idle = self.program == Program::Sleeper || self.rng.chance(TO_IDLE);
        let node = self.machine.cpu(Cpu(cpu as u32)).node.index();
        let walker = &mut self.cpus[cpu];
        walker.steps = cycle(&self.words, self.machine, self.program, node, idle);
        walker.at = 0;
        self.push(self.now, cpu);
    }

    fn access(&mut self, cpu: usize, id: usize, kind: Kind) {
        let n = &self.machine.costs().n;
        let core = self.machine.cpu(Cpu(cpu as u32)).core.0;
        let again = std::mem::replace(&mut self.cpus[cpu].last, id) == id;
        let line = &mut self.lines[id];
        line.visits += 1;
        let hit = match kind {
            Load => n.line_hit_ns,
            Atomic => n.line_rmw_ns,
        };
        if again || (kind == Load && line.holders.contains(&core)) {
            line.took += hit;
            self.push(self.now + hit, cpu);
            return;
        }
        line.queue.push_back((cpu, kind, self.now));
        self.serve(id);
    }

    /// What a line that is free does: the next request, and if that is a load, those behind it.
    fn serve(&mut self, id: usize) {
        if self.lines[id].busy {
            return;
        }
        let Some((cpu, kind, since)) = self.lines[id].queue.pop_front() else {
            return;
        };
        let mut together = vec![(cpu, since)];
        if kind == Load {
            while let Some(&(cpu, Load, since)) = self.lines[id].queue.front() {
                together.push((cpu, since));
                self.lines[id].queue.pop_front();
            }
        }
        let mut longest = 0;
        for &(cpu, since) in &together {
            let ns = self.transfer(id, cpu, kind);
            let line = &mut self.lines[id];
            longest = longest.max(ns);
            line.waited += self.now - since;
            line.took += self.now - since + ns;
            self.push(self.now + ns, cpu);
        }
        let line = &mut self.lines[id];
        // Loads of a line that nobody has changed do not hold each other up.
        line.busy = kind == Atomic || line.dirty;
        line.dirty = kind == Atomic;
        if kind == Atomic {
            line.holders.clear();
        }
        for (cpu, _) in together {
            let core = self.machine.cpu(Cpu(cpu as u32)).core.0;
            self.lines[id].holders.insert(core);
        }
        if self.lines[id].busy {
            self.lines[id].served += longest;
            self.push(self.now + longest, self.cpus.len() + id);
        }
    }

    fn transfer(&self, id: usize, cpu: usize, kind: Kind) -> Nanos {
        let (n, me) = (&self.machine.costs().n, Cpu(cpu as u32));
        let from = |&core: &u32| {
            let other = self.machine.core_cpus(usher_topo::Core(core))[0];
            let distance = self.machine.distance(me, other);
            self.machine.line_ns(distance, me, other)
        };
        let own = self.machine.cpu(me).core.0;
        let others = self.lines[id].holders.iter().filter(|&&c| c != own);
        let ns = match kind {
            Load => others.map(from).min(),
            Atomic => others.map(from).max(),
        };
        let alone = match self.lines[id].holders.is_empty() {
            true => n.line_memory_ns,
            false => 0,
        };
        ns.unwrap_or(alone) + if kind == Atomic { n.line_rmw_ns } else { 0 }
    }
}

struct Outcome {
    per_second: f64,
    /// The kernel's share; only of transcoders.
    kernel: f64,
    /// Of the lines in `NAMES`: visits per round, utilisation, mean wait.
    lines: Vec<(f64, f64, f64)>,
    /// Cycles per load of the bitmaps.
    mask_cycles: f64,
}

impl Outcome {
    fn new(net: Network<'_>) -> Self {
        let span = (END - WARMUP) as f64;
        let rounds = net.rounds as f64;
        let line = |l: &Line| {
            let wait = l.waited as f64 / l.visits.max(1) as f64;
            (l.visits as f64 / rounds, l.served as f64 / span, wait)
        };
        let masks: BTreeSet<usize> = net
            .words
            .mask0
            .into_iter()
            .chain(net.words.mask99)
            .collect();
        let sum = |f: fn(&Line) -> u64| masks.iter().map(|&m| f(&net.lines[m])).sum::<u64>() as f64;
        let clock = net.machine.costs().n.clock_mhz as f64 / 1000.0;
        Outcome {
            per_second: rounds * 1e9 / span,
            kernel: 1.0 - net.thought as f64 / (span * net.cpus.len() as f64),
            lines: net.lines[..NAMES.len()].iter().map(line).collect(),
            mask_cycles: clock * sum(|l| l.took) / sum(|l| l.visits),
        }
    }
}

/// The work of a transcoder with which the kernel's share of the baseline is the one posted.
fn calibrated(machine: &Machine) -> Nanos {
    let (mut low, mut high) = (50_000, 1_000_000);
    while high - low > 1_000 {
        let mid = (low + high) / 2;
        let outcome = Network::new(machine, 0, Program::Transcoder(mid)).run();
        if outcome.kernel > KERNEL {
            low = mid;
        } else {
            high = mid;
        }
    }
    high
}

fn main() -> Result<(), Box<dyn Error>> {
    let none: [&str; 0] = [];
    let machine = machine(&Source::Machine(MACHINE.into()), &Params::parse(none)?)?;
    let work = calibrated(&machine);
    println!("transcoders work for {} us", work / 1000);
    let head = NAMES.map(|name| format!(" {name}: visits, used, wait |"));
    println!(
        "| load | variant | rounds/s | gain | masks, cycles/load |{}",
        head.concat()
    );
    println!("|---|---|---|---|---|{}", "---|".repeat(NAMES.len()));
    for (load, program) in [
        ("sleepers", Program::Sleeper),
        ("transcoders", Program::Transcoder(work)),
    ] {
        let mut base = 0.0;
        for (variant, name) in VARIANTS.iter().enumerate() {
            let outcome = Network::new(&machine, variant, program).run();
            if variant == 0 {
                base = outcome.per_second;
            }
            let gain = (outcome.per_second / base - 1.0) * 100.0;
            print!(
                "| {load} | {name} | {:.2} M | {gain:+.1} % | {:.0} |",
                outcome.per_second / 1e6,
                outcome.mask_cycles
            );
            for (visits, used, wait) in outcome.lines {
                print!(
                    " {visits:.1}, {:.0} %, {:.2} us |",
                    used * 100.0,
                    wait / 1000.0
                );
            }
            println!();
        }
    }
    Ok(())
}
