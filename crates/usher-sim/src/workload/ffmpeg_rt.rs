// SPDX-License-Identifier: GPL-2.0-only
//! Real-time transcoding: many ffmpeg processes, each pinned to a few cores, all threads SCHED_FIFO 99.
//!
//! ```text
//!  per instance, threads joined by bounded queues (mutex and two conditions, as in libavutil):
//!    reader ─> decoder ─> filter ─> encoder ─> writer
//!  decoder and encoder spread every frame over a crew, as libavutil's slice threads:
//!    the leader signals each helper, takes slices itself, and waits until the last one is done
//! ```
//!
//! Because everybody has the same priority, a wakeup often finds a CPU whose task it may not preempt:
//! that is when the real-time class searches its priority map for a CPU.

use std::collections::VecDeque;
use std::sync::Arc;

use usher_topo::{Core, Id};

use super::figures::{bad, count, footprint, span, time, Args, Figure, MS};
use super::kit::{around, fork, Draft};
use super::registry::{Alias, Published, WorkloadInfo};
use super::{Stop, Workload};
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::Nanos;
use crate::machine::Machine;
use crate::program::{Action, Class, Program, TaskCtx, TaskSpec};
use crate::world::{Cond, CounterId, LatencyId, List, Mutex, MutexKind, Word, World};

pub(super) const INFO: WorkloadInfo = WorkloadInfo {
    name: "ffmpeg-rt",
    about: "transcoders pinned to a few cores each, all threads SCHED_FIFO 99",
    figures: FIGURES,
    aliases: &[Alias {
        name: "ffmpeg-rt-60",
        implies: &[("instances", "60")],
    }],
    published: &[Published::higher("fps-change-pct", "frames_per_s")],
    make,
};

/// What every thread does at a time is known only by its effect: the posting has a fifth of all cycles in the kernel
/// before its patches. Work of 0.2 to 2 ms, with these proportions, leaves 0.6 % there; an eighth of it, 20 %.
const CALIBRATED: &str = "calibrated: 20 % of the time in the kernel, as posted for the baseline";

const FIGURES: &[Figure] = &[
    count(
        "instances",
        60,
        (1, 10_000),
        "ffmpeg processes",
        "the CPU-priority proposal",
    ),
    count(
        "cores",
        4,
        (1, 4_096),
        "cores per instance, all threads of them; wraps around the machine",
        "the CPU-priority proposal: 4 cores, 8 CPUs",
    ),
    count(
        "priority",
        99,
        (1, 99),
        "SCHED_FIFO priority",
        "the CPU-priority proposal",
    ),
    count(
        "crew",
        8,
        (1, 256),
        "width of the fork-join in decoder and encoder",
        "assumed: one per CPU",
    ),
    count(
        "slices",
        8,
        (1, 10_000),
        "slices per frame",
        "assumed: one per member of the crew",
    ),
    time(
        "decode_low",
        23_800,
        "least CPU time of a decoder's slice",
        CALIBRATED,
    ),
    time(
        "decode_high",
        119_000,
        "greatest CPU time of a decoder's slice",
        CALIBRATED,
    ),
    time(
        "encode_low",
        47_600,
        "least CPU time of an encoder's slice",
        CALIBRATED,
    ),
    time(
        "encode_high",
        238_000,
        "greatest CPU time of an encoder's slice",
        CALIBRATED,
    ),
    time(
        "read",
        23_800,
        "mean CPU time of the reader per frame",
        CALIBRATED,
    ),
    time(
        "filter",
        95_200,
        "mean CPU time of the filter per frame",
        CALIBRATED,
    ),
    time(
        "write",
        23_800,
        "mean CPU time of the writer per frame",
        CALIBRATED,
    ),
    count(
        "depth",
        8,
        (1, 10_000),
        "frames in a queue before its writer waits",
        "ffmpeg: 8 packets per thread queue",
    ),
    time(
        "warmup",
        50 * MS,
        "time before the measurement, from the first fork",
        "assumed: full queues",
    ),
    span("runtime", 200 * MS, "measured time", "assumed"),
    footprint("footprint_kib", 512),
];

fn make(args: &Args<'_>) -> Result<Workload, SimError> {
    let mut world = World::new();
    let stages = Stages {
        read: args.get("read"),
        decode: args.range("decode_low", "decode_high")?,
        filter: args.get("filter"),
        encode: args.range("encode_low", "encode_high")?,
        write: args.get("write"),
    };
    let frames = world.new_counter("frames");
    let latency = world.new_latency("frame");
    let (crew, slices) = (args.get("crew"), args.get("slices"));
    let depth = args.get("depth");
    let footprint = args.get_u32("footprint_kib");
    let class = Class::Fifo {
        prio: args.get("priority") as u8,
    };
    let end = args.get("warmup") + args.get("runtime");
    let mut instances = VecDeque::new();
    for n in 0..args.get("instances") {
        let threads = stages.threads(&mut world, crew, slices, depth, frames, latency);
        let ffmpeg = creator(threads, end);
        let spec = TaskSpec::new("ffmpeg", ffmpeg)
            .class(class)
            .group(1)
            .memory(footprint, 0);
        instances.push_back(spec.affinity(cores(args.machine, n, args.get("cores"))?));
    }
    let root = move |_: &mut TaskCtx<'_>| match instances.pop_front() {
        Some(instance) => fork(instance),
        None => Action::WaitAnyChild,
    };
    Ok(Draft {
        world,
        tasks: vec![TaskSpec::new("launcher", root)],
        stop: Stop::At(end),
        warmup: args.get("warmup"),
        headline: ("frames_per_s", true),
        tail: Some("frame_ns_p99"),
        limits: &["frames cost the same whatever they show; no audio"],
    }
    .done())
}

/// The CPUs of the n-th instance: `width` cores in topological order, every thread of them.
fn cores(machine: &Machine, n: u64, width: u64) -> Result<Arc<CpuSet>, SimError> {
    let all = machine.topo().cores().len() as u64;
    if width > all {
        return Err(bad(
            "cores",
            format!("is {width}, but the machine has {all}; lower it"),
        ));
    }
    let of = |i: u64| machine.core_cpus(Core::from_index(((n * width + i) % all) as usize));
    Ok(Arc::new((0..width).flat_map(of).copied().collect()))
}

/// A process that creates its threads and then sleeps until the end.
fn creator(mut threads: VecDeque<TaskSpec>, end: Nanos) -> impl Program {
    move |ctx: &mut TaskCtx<'_>| match threads.pop_front() {
        Some(thread) => fork(thread.thread()),
        None if ctx.now() < end => Action::SleepUntil(end),
        None => Action::Exit,
    }
}

struct Stages {
    read: Nanos,
    decode: (Nanos, Nanos),
    filter: Nanos,
    encode: (Nanos, Nanos),
    write: Nanos,
}

impl Stages {
    /// All threads of one instance.
    fn threads(
        &self,
        world: &mut World,
        crew: u64,
        slices: u64,
        depth: u64,
        frames: CounterId,
        latency: LatencyId,
    ) -> VecDeque<TaskSpec> {
        let queues: Vec<Arc<Queue>> = (0..4).map(|_| Queue::new(world, depth)).collect();
        let decoders = Crew::new(world, crew - 1, slices, self.decode);
        let encoders = Crew::new(world, crew - 1, slices, self.encode);
        let stage = |name: &'static str, input: Option<usize>, output: Option<usize>, work| {
            let stage = Stage {
                input: input.map(|i| queues[i].clone()),
                output: output.map(|i| queues[i].clone()),
                work,
                frames,
                latency,
                move_at: 0,
                lead: Lead::default(),
                born: 0,
                step: StageStep::Input,
            };
            TaskSpec::new(name, stage)
        };
        let mut threads: VecDeque<TaskSpec> = [
            stage("reader", None, Some(0), Work::Alone(self.read)),
            stage("decoder", Some(0), Some(1), Work::Crew(decoders.clone())),
            stage("filter", Some(1), Some(2), Work::Alone(self.filter)),
            stage("encoder", Some(2), Some(3), Work::Crew(encoders.clone())),
            stage("writer", Some(3), None, Work::Alone(self.write)),
        ]
        .into();
        for (name, crew) in [("decode-helper", decoders), ("encode-helper", encoders)] {
            for n in 0..crew.helpers.len() {
                let helper = Helper {
                    crew: crew.clone(),
                    n,
                    step: HelperStep::Lock,
                };
                threads.push_back(TaskSpec::new(name, helper));
            }
        }
        threads
    }
}

/// A bounded queue of frames; a frame is the time when the reader made it.
struct Queue {
    mutex: Mutex,
    not_empty: Cond,
    not_full: Cond,
    frames: List,
    depth: u64,
}

impl Queue {
    fn new(world: &mut World, depth: u64) -> Arc<Queue> {
        Arc::new(Queue {
            mutex: world.new_mutex(MutexKind::Barging),
            not_empty: world.new_cond(),
            not_full: world.new_cond(),
            frames: world.new_list(),
            depth,
        })
    }

    /// The next step of taking a frame out of the queue into `hand`; `None` when it is there.
    fn take(&self, at: &mut u32, ctx: &mut TaskCtx<'_>, hand: &mut Nanos) -> Option<Action> {
        self.transfer(at, ctx, self.not_empty, self.not_full, |frames, _| {
            frames.pop_front().map(|frame| *hand = frame).is_some()
        })
    }

    /// The next step of putting a frame into the queue; `None` when it is there.
    fn put(&self, at: &mut u32, ctx: &mut TaskCtx<'_>, frame: Nanos) -> Option<Action> {
        self.transfer(at, ctx, self.not_full, self.not_empty, |frames, depth| {
            let room = (frames.len() as u64) < depth;
            if room {
                frames.push_back(frame);
            }
            room
        })
    }

    /// Lock; wait until `act` succeeds; signal the other side; unlock.
    fn transfer(
        &self,
        at: &mut u32,
        ctx: &mut TaskCtx<'_>,
        wait: Cond,
        tell: Cond,
        act: impl FnOnce(&mut VecDeque<u64>, u64) -> bool,
    ) -> Option<Action> {
        *at += 1;
        match *at {
            1 => Some(Action::Lock(self.mutex)),
            2 if act(ctx.list(self.frames), self.depth) => Some(Action::CondSignal(tell)),
            2 => {
                *at = 1;
                Some(Action::CondWait(wait, self.mutex))
            }
            3 => Some(Action::Unlock(self.mutex)),
            _ => {
                *at = 0;
                None
            }
        }
    }
}

/// A crew of slice threads.
struct Crew {
    helpers: Vec<HelperSeat>,
    slices: u64,
    burst: (Nanos, Nanos),
    /// The next slice nobody has taken.
    next: Word,
    /// Helpers that have not finished this frame.
    active: Word,
    done_mutex: Mutex,
    done: Cond,
}

struct HelperSeat {
    mutex: Mutex,
    cond: Cond,
    go: Word,
}

impl Crew {
    fn new(world: &mut World, helpers: u64, slices: u64, burst: (Nanos, Nanos)) -> Arc<Crew> {
        let seat = |_| HelperSeat {
            mutex: world.new_mutex(MutexKind::Barging),
            cond: world.new_cond(),
            go: world.new_word(0),
        };
        Arc::new(Crew {
            helpers: (0..helpers).map(seat).collect(),
            slices,
            burst,
            next: world.new_word(0),
            active: world.new_word(0),
            done_mutex: world.new_mutex(MutexKind::Barging),
            done: world.new_cond(),
        })
    }

    /// Takes a slice, if there is one left.
    fn slice(&self, ctx: &mut TaskCtx<'_>) -> Option<Action> {
        let next = ctx.word(self.next);
        if *next >= self.slices {
            return None;
        }
        *next += 1;
        let (low, high) = self.burst;
        Some(Action::Compute(ctx.rng().range(low, high)))
    }
}

enum Work {
    Alone(Nanos),
    Crew(Arc<Crew>),
}

struct Stage {
    input: Option<Arc<Queue>>,
    output: Option<Arc<Queue>>,
    work: Work,
    frames: CounterId,
    latency: LatencyId,
    /// Place within a queue operation.
    move_at: u32,
    lead: Lead,
    /// When the frame in hand was made.
    born: Nanos,
    step: StageStep,
}

enum StageStep {
    Input,
    Alone,
    Lead,
    Output,
}

/// Where the leader of a crew is.
#[derive(Default)]
struct Lead {
    helper: usize,
    at: u32,
}

impl Lead {
    /// Starts the helpers, takes slices, waits for the rest; `None` when the frame is done.
    fn step(&mut self, ctx: &mut TaskCtx<'_>, crew: &Crew) -> Option<Action> {
        if self.helper == 0 && self.at == 0 {
            *ctx.word(crew.next) = 0;
            *ctx.word(crew.active) = crew.helpers.len() as u64;
        }
        if let Some(seat) = crew.helpers.get(self.helper) {
            self.at += 1;
            return Some(match self.at {
                1 => Action::Lock(seat.mutex),
                2 => {
                    *ctx.word(seat.go) = 1;
                    Action::CondSignal(seat.cond)
                }
                _ => {
                    self.helper += 1;
                    self.at = 0;
                    Action::Unlock(seat.mutex)
                }
            });
        }
        match self.at {
            0 | 1 => {
                self.at = 1;
                if let Some(slice) = crew.slice(ctx) {
                    return Some(slice);
                }
                self.at = 2;
                Some(Action::Lock(crew.done_mutex))
            }
            2 if *ctx.word(crew.active) > 0 => Some(Action::CondWait(crew.done, crew.done_mutex)),
            2 => {
                self.at = 3;
                Some(Action::Unlock(crew.done_mutex))
            }
            _ => {
                *self = Lead::default();
                None
            }
        }
    }
}

impl Program for Stage {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        loop {
            match self.step {
                StageStep::Input => {
                    let work = match &self.work {
                        Work::Alone(_) => StageStep::Alone,
                        Work::Crew(_) => StageStep::Lead,
                    };
                    match &self.input {
                        Some(queue) => {
                            if let Some(action) = queue.take(&mut self.move_at, ctx, &mut self.born)
                            {
                                return action;
                            }
                        }
                        None => self.born = ctx.now(),
                    }
                    self.step = work;
                }
                StageStep::Alone => {
                    self.step = StageStep::Output;
                    if let Work::Alone(mean) = self.work {
                        return Action::Compute(around(ctx.rng(), mean));
                    }
                }
                StageStep::Lead => {
                    if let Work::Crew(crew) = &self.work {
                        if let Some(action) = self.lead.step(ctx, crew) {
                            return action;
                        }
                    }
                    self.step = StageStep::Output;
                }
                StageStep::Output => {
                    match &self.output {
                        Some(queue) => {
                            if let Some(action) = queue.put(&mut self.move_at, ctx, self.born) {
                                return action;
                            }
                        }
                        None => {
                            ctx.count(self.frames, 1);
                            ctx.sample(self.latency, ctx.now() - self.born);
                        }
                    }
                    self.step = StageStep::Input;
                }
            }
        }
    }
}

struct Helper {
    crew: Arc<Crew>,
    n: usize,
    step: HelperStep,
}

enum HelperStep {
    Lock,
    Look,
    Slices,
    Report,
    Reported,
}

impl Program for Helper {
    fn next(&mut self, ctx: &mut TaskCtx<'_>) -> Action {
        let crew = &self.crew;
        let seat = &crew.helpers[self.n];
        match self.step {
            HelperStep::Lock => {
                self.step = HelperStep::Look;
                Action::Lock(seat.mutex)
            }
            HelperStep::Look => {
                if *ctx.word(seat.go) == 0 {
                    return Action::CondWait(seat.cond, seat.mutex);
                }
                *ctx.word(seat.go) = 0;
                self.step = HelperStep::Slices;
                Action::Unlock(seat.mutex)
            }
            HelperStep::Slices => crew.slice(ctx).unwrap_or_else(|| {
                self.step = HelperStep::Report;
                Action::Lock(crew.done_mutex)
            }),
            HelperStep::Report => {
                *ctx.word(crew.active) -= 1;
                if *ctx.word(crew.active) == 0 {
                    self.step = HelperStep::Reported;
                    return Action::CondSignal(crew.done);
                }
                self.step = HelperStep::Lock;
                Action::Unlock(crew.done_mutex)
            }
            HelperStep::Reported => {
                self.step = HelperStep::Lock;
                Action::Unlock(crew.done_mutex)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{machine_of, run, run_workload, By};
    use crate::params::Params;

    // Goal: the pipeline neither loses nor doubles work: every frame is cut into all its slices, in both
    // crews, and comes out once.
    // Method: slices computed against frames written, over several interleavings.
    #[test]
    fn frames_are_conserved() {
        for seed in 0..5 {
            let pairs = [
                "instances=2",
                "crew=3",
                "slices=5",
                "warmup=0ms",
                "runtime=300ms",
                "depth=2",
            ];
            let ran = run("ffmpeg-rt", &pairs, seed);
            let frames = ran.metric("frames");
            assert!(frames > 50, "{frames}");
            let slices = |helpers: &str| {
                let of = |name| {
                    ran.named(name)
                        .into_iter()
                        .map(|t| ran.tasks[t.index()].computes)
                };
                of(helpers).sum::<u64>()
            };
            // All slices of a crew: the helpers' and the leader's. What is under way at the end, at most
            // the pipeline's content of both instances, is cut but not out.
            let inside = 2 * (3 * 2 + 5);
            for (leader, helpers) in [("decoder", "decode-helper"), ("encoder", "encode-helper")] {
                let cut = slices(leader) + slices(helpers);
                assert!(
                    cut >= 5 * frames && cut <= 5 * (frames + inside),
                    "{cut} {frames}"
                );
                assert!(slices(helpers) > 0, "the crew helps");
            }
            assert!(ran.metric("frame_ns_max") > 0);
        }
    }

    // Goal: threads of one stage wake only their neighbours and their own crew.
    // Method: the kinds of wakeups.
    #[test]
    fn wakes_are_those_of_a_pipeline() {
        let ran = run(
            "ffmpeg-rt",
            &["instances=1", "crew=4", "warmup=0ms", "runtime=200ms"],
            1,
        );
        let order = ["reader", "decoder", "filter", "encoder", "writer"];
        let place = |name: &str| order.iter().position(|s| *s == name);
        for ((from, to, by, sync), _) in ran.graph() {
            assert!(!sync);
            let neighbours = place(&from)
                .zip(place(&to))
                .is_some_and(|(a, b)| a.abs_diff(b) == 1);
            let crew = |a: &str, b: &str| {
                matches!(
                    (a, b),
                    ("decoder", "decode-helper") | ("encoder", "encode-helper")
                ) || a == b
            };
            let legal = match by {
                By::Cond | By::Mutex => neighbours || crew(&from, &to) || crew(&to, &from),
                By::Timer => to == "ffmpeg",
                _ => false,
            };
            assert!(legal, "{from} wakes {to} by {by:?}");
        }
    }

    // Goal: instance i owns cores 4i to 4i + 3 with all their threads; 19 threads of priority 99 each.
    // Method: affinities on a small machine, wrapping around; a width beyond the machine is refused.
    #[test]
    fn instances_are_pinned() {
        let build = |pairs: &[&str]| {
            let params = Params::parse(pairs.iter().copied()).unwrap();
            super::super::build("ffmpeg-rt", &machine_of("1n1l8c2t"), params)
        };
        let short = ["warmup=0ms", "runtime=1ms"];
        let ran = run_workload(build(&[&["instances=3"], &short[..]].concat()).unwrap(), 1);
        let first = ran.tasks[ran.named("ffmpeg")[0].index()]
            .cpus
            .clone()
            .unwrap();
        assert_eq!(first.len(), 8, "4 cores with 2 threads each");
        let third = ran.tasks[ran.named("ffmpeg")[2].index()]
            .cpus
            .clone()
            .unwrap();
        assert_eq!(first, third, "the third wraps around");
        let threads = ran.tasks.iter().filter(|t| t.thread).count();
        assert_eq!(threads, 3 * (5 + 7 + 7));
        assert!(ran.tasks.iter().skip(1).all(|t| t.class.rt_prio() == 99));
        let error = build(&["cores=9"]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("cores") && error.contains('8'), "{error}");
    }
}
