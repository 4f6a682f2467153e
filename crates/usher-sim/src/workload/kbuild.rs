// SPDX-License-Identifier: GPL-2.0-only
//! A kernel build: `make -j`, many short chains of processes of very different length.
//!
//! ```text
//!  make ── configures (serial); keeps up to `jobs` chains running; links at the end (serial)
//!  chain:  sh ── forks cc ── forks cc1 (the compiler: a heavy-tailed burst), then as (the assembler)
//!             └─ then forks the helpers (fixdep and the like), one after another
//!  every process: fork, exec, work, exit; its parent waits for it
//! ```
//!
//! With `pipe=true` compiler and assembler run side by side, joined by a pipe (`-pipe`).

use std::sync::Arc;

use super::figures::{count, footprint, span, time, Args, Figure, Kind, MS, S, US};
use super::kit::{around, fork, forked, heavy_tailed, Draft, Join};
use super::registry::{Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::error::SimError;
use crate::ids::{Nanos, TaskId};
use crate::program::{Action, Program, TaskCtx, TaskSpec};
use crate::world::{Channel, ChannelSpec, CounterId, ValueId, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "kbuild",
    about: "a parallel kernel build: make, shells, compilers, assemblers",
    figures: FIGURES,
    aliases: &[],
    published: &[
        Published::lower("time-s", "elapsed_ns"),
        Published::lower("normalized", "elapsed_ns"),
        Published::lower("speedup-pct", "elapsed_ns"),
        Published::lower("extra-speedup-pct", "elapsed_ns"),
    ],
    make,
};

const FIGURES: &[Figure] = &[
    Figure {
        key: "jobs",
        kind: Kind::PerCpus {
            cpus: 1,
            high: 100_000,
        },
        meaning: "chains at a time (make -j)",
        source: "one per CPU",
    },
    count(
        "objects",
        4_000,
        (1, 10_000_000),
        "object files",
        "assumed: a sixth of a distribution kernel's work, so that a simulation ends in seconds",
    ),
    span(
        "burst_low",
        100 * MS,
        "least CPU time of a compilation",
        "assumed: 0.1-5 s, heavy-tailed",
    ),
    span(
        "burst_high",
        5 * S,
        "greatest CPU time of a compilation",
        "assumed: 0.1-5 s, heavy-tailed",
    ),
    count(
        "scale_permille",
        1_000,
        (1, 1_000_000),
        "shortens or lengthens all compilations",
        "1000: as given",
    ),
    count(
        "as_permille",
        60,
        (0, 1_000),
        "the assembler's share of a compilation",
        "assumed",
    ),
    count(
        "serial_permille",
        120,
        (0, 10_000),
        "serial share: of the ideal parallel time",
        "assumed: 10-15 %",
    ),
    time(
        "make",
        400 * US,
        "CPU time of make per chain",
        "assumed: rules, stat calls",
    ),
    time("sh", 800 * US, "start of a shell after its exec", "assumed"),
    time("cc", 1_500 * US, "start of the compiler driver", "assumed"),
    time(
        "cc1",
        6 * MS,
        "start of the compiler proper",
        "assumed: relocation of a large binary",
    ),
    time("as", 1_500 * US, "start of the assembler", "assumed"),
    count(
        "helpers",
        2,
        (0, 100),
        "helper processes per object",
        "kbuild: fixdep, and a check or a move",
    ),
    time("helper", 1_500 * US, "CPU time of a helper", "assumed"),
    count(
        "reads",
        3,
        (0, 1_000),
        "blocking reads per compilation",
        "assumed: a mostly warm page cache",
    ),
    time("read", 100 * US, "time of a blocking read", "assumed: NVMe"),
    Figure {
        key: "pipe",
        kind: Kind::Flag(false),
        meaning: "compiler and assembler side by side",
        source: "assumed: today's kbuild uses temporary files on most architectures",
    },
    count(
        "asm_bytes",
        400_000,
        (1, 1 << 30),
        "assembler text per object, with pipe=true",
        "assumed",
    ),
    footprint("footprint_kib", 512),
    count(
        "cc1_footprint_kib",
        8_192,
        (0, 1 << 24),
        "working set of the compiler in KiB",
        "assumed",
    ),
    count(
        "cc1_memory_permille",
        200,
        (0, 1_000),
        "share of its work that waits for memory",
        "assumed",
    ),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let burst = args.range("burst_low", "burst_high")?;
    let plan = Arc::new(Plan {
        jobs: args.get("jobs"),
        objects: args.get("objects"),
        burst,
        scale: args.get("scale_permille"),
        as_permille: args.get("as_permille"),
        serial_permille: args.get("serial_permille"),
        make: args.get("make"),
        starts: ["sh", "cc", "cc1", "as"].map(|key| args.get(key)),
        helpers: args.get("helpers"),
        helper: args.get("helper"),
        reads: args.get("reads"),
        read: args.get("read"),
        pipe: args.flag("pipe"),
        asm_bytes: args.get("asm_bytes"),
        footprint_kib: args.get_u32("footprint_kib"),
        cc1_footprint_kib: args.get_u32("cc1_footprint_kib"),
        cc1_memory_permille: args.get_u32("cc1_memory_permille"),
        built: world.new_counter("objects"),
        elapsed: world.new_value("elapsed_ns"),
    });
    let main = Make {
        plan,
        sizes: Vec::new(),
        serial: 0,
        running: 0,
        step: MakeStep::Plan,
    };
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("make", main)],
        stop: Stop::FirstExit,
        warmup: 0,
        headline: ("elapsed_ns", false),
        tail: None,
        limits: &[
            "make is one process: sub-makes and the job server's pipe are not modelled",
            "files are in the page cache but for a few reads per compilation",
        ],
    }
    .done())
}

struct Plan {
    jobs: u64,
    objects: u64,
    burst: (Nanos, Nanos),
    scale: u64,
    as_permille: u64,
    serial_permille: u64,
    make: Nanos,
    /// Starts of sh, cc, cc1, as.
    starts: [Nanos; 4],
    helpers: u64,
    helper: Nanos,
    reads: u64,
    read: Nanos,
    pipe: bool,
    asm_bytes: u64,
    footprint_kib: u32,
    cc1_footprint_kib: u32,
    cc1_memory_permille: u32,
    built: CounterId,
    elapsed: ValueId,
}

struct Make {
    plan: Arc<Plan>,
    /// Compilations still to be started, longest known only to the draw; taken from the end.
    sizes: Vec<Nanos>,
    serial: Nanos,
    running: u64,
    step: MakeStep,
}

enum MakeStep {
    Plan,
    Dispatch,
    Started,
    Reaped,
    Link,
    Linked,
}

impl Make {
    /// Draws all sizes at the start, so that they do not depend on who finishes first.
    fn plan(&mut self, ctx: &mut TaskCtx<'_>) {
        let plan = &self.plan;
        let (low, high) = plan.burst;
        let draw = |_| {
            let ns = u128::from(heavy_tailed(ctx.rng(), low, high)) * u128::from(plan.scale) / 1000;
            u64::try_from(ns).unwrap_or(u64::MAX / 4).max(1)
        };
        self.sizes = (0..plan.objects).map(draw).collect();
        let work: u128 = self.sizes.iter().map(|ns| u128::from(*ns)).sum();
        let ideal = work / u128::from(plan.jobs);
        let serial = ideal * u128::from(plan.serial_permille) / 1000;
        self.serial = u64::try_from(serial).unwrap_or(u64::MAX / 4);
    }

    fn chain(&self, size: Nanos) -> TaskSpec {
        let shell = Shell {
            plan: self.plan.clone(),
            size,
            at: 0,
            child: None,
        };
        TaskSpec::new("sh", shell)
            .group(1)
            .memory(self.plan.footprint_kib, 0)
    }
}

impl Program for Make {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        match self.step {
            MakeStep::Plan => {
                self.plan(ctx);
                self.step = MakeStep::Dispatch;
                Action::Compute(self.serial / 2)
            }
            MakeStep::Dispatch => {
                if self.running < self.plan.jobs {
                    if let Some(size) = self.sizes.pop() {
                        self.running += 1;
                        self.step = MakeStep::Started;
                        return fork(self.chain(size));
                    }
                }
                if self.running > 0 {
                    self.step = MakeStep::Reaped;
                    return Action::WaitAnyChild;
                }
                self.step = MakeStep::Link;
                self.next(ctx)
            }
            MakeStep::Started => {
                self.step = MakeStep::Dispatch;
                Action::Compute(around(ctx.rng(), self.plan.make))
            }
            MakeStep::Reaped => {
                self.running -= 1;
                ctx.count(self.plan.built, 1);
                self.step = MakeStep::Dispatch;
                self.next(ctx)
            }
            MakeStep::Link => {
                self.step = MakeStep::Linked;
                Action::Compute(self.serial - self.serial / 2)
            }
            MakeStep::Linked => {
                ctx.set_value(self.plan.elapsed, ctx.now());
                Action::Exit
            }
        }
    }
}

/// `sh -c 'cc ...; fixdep ...'`.
struct Shell {
    plan: Arc<Plan>,
    size: Nanos,
    at: u64,
    child: Option<TaskId>,
}

impl Program for Shell {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        if self.at == 0 {
            self.at = 1;
            return Action::Exec(self.plan.starts[0]);
        }
        // Odd: fork the next command; even: wait for it.
        self.at += 1;
        if self.at % 2 == 1 {
            self.child = None;
            return Action::WaitChild(forked(ctx));
        }
        let plan = self.plan.clone();
        match self.at / 2 {
            1 => {
                let driver = Driver {
                    plan,
                    size: self.size,
                    join: Join::default(),
                    pipe: None,
                    at: 0,
                };
                fork(TaskSpec::new("cc", driver))
            }
            n if n <= 1 + plan.helpers => {
                let work = around(ctx.rng(), plan.helper);
                fork(TaskSpec::new("helper", worker(plan.starts[0], work)))
            }
            _ => Action::Exit,
        }
    }
}

/// A process that starts, works, and is done.
fn worker(start: Nanos, work: Nanos) -> impl Program {
    let mut at = 0;
    move |_: &mut TaskCtx<'_>| {
        at += 1;
        match at {
            1 => Action::Exec(start),
            2 => Action::Compute(work),
            _ => Action::Exit,
        }
    }
}

/// The compiler driver.
struct Driver {
    plan: Arc<Plan>,
    size: Nanos,
    join: Join,
    pipe: Option<Channel>,
    at: u32,
}

impl Driver {
    fn compiler(&self) -> TaskSpec {
        let plan = self.plan.clone();
        let work = self.size - self.assembly();
        let memory = (plan.cc1_footprint_kib, plan.cc1_memory_permille);
        let compiler = Compiler {
            chunks: plan.reads + 1,
            chunk: 0,
            work,
            wrote: 0,
            pipe: self.pipe,
            plan,
            step: 0,
        };
        TaskSpec::new("cc1", compiler).memory(memory.0, memory.1)
    }

    fn assembly(&self) -> Nanos {
        let part = u128::from(self.size) * u128::from(self.plan.as_permille) / 1000;
        u64::try_from(part).expect("a share of 64 bits")
    }

    fn assembler(&self) -> TaskSpec {
        let plan = &self.plan;
        let (start, work) = (plan.starts[3], self.assembly());
        match self.pipe {
            None => TaskSpec::new("as", worker(start, work)),
            Some(pipe) => {
                let all = plan.asm_bytes;
                TaskSpec::new(
                    "as",
                    PipedAssembler {
                        start,
                        work,
                        pipe,
                        all,
                        got: 0,
                        step: 0,
                    },
                )
            }
        }
    }
}

impl Program for Driver {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        self.at += 1;
        match (self.at, self.plan.pipe) {
            (1, _) => Action::Exec(self.plan.starts[1]),
            (2, pipe) => {
                self.pipe = pipe.then(|| ctx.world().new_channel(ChannelSpec::PIPE));
                fork(self.compiler())
            }
            // Side by side: start both, then wait for both.
            (3, true) => {
                self.join.add(forked(ctx));
                fork(self.assembler())
            }
            (4, true) => {
                self.join.add(forked(ctx));
                self.next(ctx)
            }
            (_, true) => self.join.next().unwrap_or(Action::Exit),
            // One after the other.
            (3 | 5, false) => Action::WaitChild(forked(ctx)),
            (4, false) => fork(self.assembler()),
            (_, false) => Action::Exit,
        }
    }
}

/// The compiler proper: its burst, cut by blocking reads; with a pipe, it writes as it goes.
struct Compiler {
    plan: Arc<Plan>,
    work: Nanos,
    chunks: u64,
    chunk: u64,
    wrote: u64,
    pipe: Option<Channel>,
    step: u32,
}

impl Program for Compiler {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            self.step += 1;
            match self.step {
                1 => return Action::Exec(self.plan.starts[2]),
                2 if self.chunk == self.chunks => return Action::Exit,
                2 if self.chunk > 0 => return Action::Io(around(ctx.rng(), self.plan.read)),
                2 => {}
                3 => {
                    self.chunk += 1;
                    return Action::Compute((self.work / self.chunks).max(1));
                }
                _ => {
                    self.step = 1;
                    if let Some(channel) = self.pipe {
                        let upto = self.plan.asm_bytes * self.chunk / self.chunks;
                        let bytes = upto - self.wrote;
                        self.wrote = upto;
                        if bytes > 0 {
                            return Action::Write { channel, bytes };
                        }
                    }
                }
            }
        }
    }
}

/// Reads a pipe to its end, working as it goes.
struct PipedAssembler {
    start: Nanos,
    work: Nanos,
    pipe: Channel,
    all: u64,
    got: u64,
    step: u32,
}

impl Program for PipedAssembler {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        self.step += 1;
        match self.step {
            1 => Action::Exec(self.start),
            2 if self.got == self.all => Action::Exit,
            2 => {
                let bytes = (self.all - self.got).min(4_096);
                Action::Read {
                    channel: self.pipe,
                    bytes,
                    exact: false,
                }
            }
            _ => {
                self.step = 1;
                let crate::program::Outcome::Bytes(bytes) = ctx.outcome() else {
                    unreachable!("a read ends with bytes")
                };
                self.got += bytes;
                let share = u128::from(self.work) * u128::from(bytes) / u128::from(self.all);
                Action::Compute(u64::try_from(share).expect("a share of 64 bits"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{run, By};

    const SMALL: [&str; 3] = ["objects=40", "jobs=6", "scale_permille=10"];

    // Goal: every object is built by its chain, no more than `jobs` at a time, and nobody is left over.
    // Method: tasks by name; live shells over time; both ways of joining compiler and assembler.
    #[test]
    fn every_object_has_its_chain() {
        for pair in ["pipe=false", "pipe=true"] {
            for seed in 0..5 {
                let ran = run("kbuild", &[&SMALL[..], &[pair]].concat(), seed);
                assert_eq!(ran.metric("objects"), 40);
                for (name, per_object) in
                    [("sh", 1), ("cc", 1), ("cc1", 1), ("as", 1), ("helper", 2)]
                {
                    assert_eq!(ran.named(name).len(), 40 * per_object, "{name}");
                }
                assert!(ran.tasks.iter().all(|t| t.exited));
                let execs: u64 = ran.tasks.iter().map(|t| t.execs).sum();
                assert_eq!(
                    execs,
                    40 * 6,
                    "every process but make is a program of its own"
                );
                let parent_of = |t: crate::ids::TaskId| {
                    ran.tasks[ran.tasks[t.index()].parent.unwrap().index()]
                        .name
                        .clone()
                };
                assert!(ran.named("cc1").into_iter().all(|t| parent_of(t) == "cc"));
                assert!(ran.named("as").into_iter().all(|t| parent_of(t) == "cc"));
                assert!(ran.named("cc").into_iter().all(|t| parent_of(t) == "sh"));
                assert!(ran.named("sh").into_iter().all(|t| parent_of(t) == "make"));
            }
        }
    }

    // Goal: parents are woken by their children's exits and by nothing else; the pipe adds its own.
    // Method: the kinds of wakeups.
    #[test]
    fn wakes_are_those_of_a_build() {
        for pair in ["pipe=false", "pipe=true"] {
            let ran = run("kbuild", &[&SMALL[..], &[pair]].concat(), 3);
            for ((from, to, by, _), _) in ran.graph() {
                match (from.as_str(), to.as_str(), by) {
                    ("sh", "make", By::Child) => {}
                    ("cc" | "helper", "sh", By::Child) => {}
                    ("cc1" | "as", "cc", By::Child) => {}
                    ("timer", "cc1", By::Timer) => {}
                    ("cc1", "as", By::Read) | ("as", "cc1", By::Write) => {
                        assert_eq!(pair, "pipe=true")
                    }
                    other => panic!("{other:?} does not happen in a build"),
                }
            }
        }
    }

    // Goal: the serial share is what it says, and sizes do not depend on the order of completion.
    // Method: make's own compute time against the compilations'; the multiset of sizes of two machines'
    // worth of timing.
    #[test]
    fn serial_share_and_sizes() {
        let pairs = |jobs| {
            vec![
                "objects=60",
                jobs,
                "scale_permille=10",
                "make=0s",
                "as_permille=0",
            ]
        };
        let compute = |ran: &super::super::testkit::Ran, name| -> Vec<u64> {
            let mut all: Vec<u64> = ran
                .named(name)
                .into_iter()
                .map(|t| ran.tasks[t.index()].compute)
                .collect();
            all.sort_unstable();
            all
        };
        let (few, many) = (
            run("kbuild", &pairs("jobs=3"), 9),
            run("kbuild", &pairs("jobs=30"), 9),
        );
        assert_eq!(compute(&few, "cc1"), compute(&many, "cc1"));
        let work: u64 = compute(&few, "cc1").iter().sum();
        let serial = compute(&few, "make")[0];
        let expected = work / 3 * 120 / 1000;
        assert!(
            serial.abs_diff(expected) < expected / 100,
            "{serial} {expected}"
        );
        assert!(many.metric("elapsed_ns") < few.metric("elapsed_ns"));
    }
}
