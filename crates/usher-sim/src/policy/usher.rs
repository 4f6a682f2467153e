// SPDX-License-Identifier: GPL-2.0-only
//! usher: the placement core itself, the very C of the kernel scheduler, as a policy.
//!
//! This file is the host of the core on a modelled machine, as `bpf/main.bpf.c` is its host in a kernel,
//! and does the same things in the same order:
//!
//! 1. A wakeup asks the core. A claimed CPU gets the task into its local queue and is woken. Of two that always wake each
//!    other the waker may give way: `usher/pair.rs`.
//! 2. Otherwise the task waits in a queue of several CPUs, ordered by virtual time; a task that may run on one CPU only goes
//!    to that one if it idles, or waits in its own queue. Then the core looks once more for an idle CPU to send there.
//! 3. A CPU takes from its local queue, then in turn from its own and that of several CPUs, then from others that the core names.
//!    A task that its waker handed to this CPU, about to sleep itself, may come before the first there.
//! 4. A task that ran for a slice while somebody waits gives way to who comes before it, sooner while one waits
//!    that has woken, or to somebody from a longer queue that the core names, and queues again. If there is nobody it goes on.
//! 5. Where CPUs differ in capacity, it keeps account of how much tasks run, and moves those that their CPU is
//!    too weak for: `usher/capacity.rs`.
//! 6. A latency-critical task that finds nobody idle takes the CPU of one that is less urgent: `usher/urgent.rs`.
//!
//! The core runs in its traced environment: every access that it makes to shared memory is charged as an
//! access to that very line. Its plain instructions are charged as measured natively
//! (`docs/BENCHMARKS.md`). The queues are the kernel's: each has a lock on a line of its own.

mod capacity;
mod follow;
mod moves;
mod pair;
mod queues;
mod urgent;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;

use usher_core::{
    AccessKind, Burst, CidSet, Core, Event, Follow, Granularity, Hints, Hold, Pair, Query, Queue,
    Reason, Request, Settings, DEFAULT_PATIENCE_NS, DEFAULT_QUEUE_WIDTH, PACE_CIDS,
    PATIENCE_SLICES, SLICES_NS,
};
use usher_core::{Statistics, Tables, TierOrder, Tiers, Vtime, Wake};
use usher_topo::Topology;

use self::capacity::Unequal;
use self::moves::Moves;
use self::queues::insert;
use super::fair::weight;
use super::{EnqueueWhy, Host, Leaving, Placement, Policy, StopWhy, WakeInfo, WakeKind};
use crate::coherence::Access;
use crate::costs::IdleState;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::{Cid, Cpu, Id, LineId, Llc, Nanos, RegionId, StatId, TaskId};
use crate::params::{format_duration, Params};
use crate::prefetch::prefetch;
use crate::program::Class;

/// Plain instructions of a decision, its cache hits included. `docs/BENCHMARKS.md`: one that finds nobody
/// (`queued`) takes 4.9 ns natively and does no atomic operation; as BPF, assumed twice that. What it takes
/// beyond that to search further is accesses, which are charged one by one.
const PLACE_NS: Nanos = 10;
/// The same for an idle transition: a decision for prev and the release take 7.9 ns, of which 5.1 are two
/// atomic operations, charged apart; of the rest assumed half, and as BPF twice that.
const IDLE_NS: Nanos = 3;
/// Translation of a callback at the kernel's edge: entering the program, finding the CPU's cid.
const CALLBACK_NS: Nanos = 25;
/// Inserting into or taking from a queue that is ordered by virtual time, under its lock.
const QUEUE_NS: Nanos = 60;
/// A clock goes on where somebody sleeps, or ran for more than this part of a slice: as `charge()` in `bpf/main.bpf.c`.
const CLOCK_PART: Nanos = 8;
/// Plain instructions of a look into a task's storage.
const STORAGE_NS: Nanos = 10;
/// A CPU that was told to look does so within an interrupt, and the deepest idle state's exit beyond that.
const IDLE_BOUND_NS: Nanos = 5_000_000;

/// Tasks ordered by virtual time, first come first served among equals.
type Tasks = BTreeMap<(Vtime, u64), TaskId>;

/// Who waits in a queue of several CPUs, and the line of its lock.
#[derive(Default)]
struct Shared {
    tasks: Tasks,
    line: LineId,
}

/// What the policy knows of a task: one cache line.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Known {
    /// Where it is charged from; while it waits in a queue, its place there.
    vtime: Vtime,
    /// Of the tasks of equal `vtime` in a queue, who came first.
    seq: u64,
    decided: Decided,
    /// Where it waits.
    place: Place,
    /// The LLC that it lives in, if it has hints.
    home: Option<Llc>,
    /// Runtime when it was last charged.
    charged: Nanos,
    /// Its allowed set in cid order, if it may not run everywhere, and what it was made from.
    allowed: Option<(Arc<CpuSet>, Box<CidSet>)>,
}

/// What `select` left for `enqueue`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Decided {
    #[default]
    Nothing,
    /// A CPU for the task.
    Claimed(Cpu),
    /// None, and the waker said that it is about to sleep.
    Sync,
    /// Its waker's, which gives way to it,
    InTurn(Cpu),
    /// ... or will when it sleeps.
    Behind(Cpu),
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Local(Cpu),
    /// In the queue of its only CPU, or of several; before where it is charged from by `early`, in the core's parts of a slice.
    Own {
        cid: Cid,
        early: u8,
    },
    Shared {
        queue: Queue,
        early: u8,
    },
    /// In the queue of that CPU and others, and handed to it.
    Handed(Cpu),
    /// It still runs, and gives way to its partner.
    GivesWay,
}

impl Place {
    fn early(self) -> u32 {
        match self {
            Place::Own { early, .. } | Place::Shared { early, .. } => early.into(),
            _ => 0,
        }
    }
}

/// What the policy knows of a CPU: one cache line.
#[repr(align(64))]
struct At {
    /// The task claimed for it; that there are more is rare.
    first: Option<TaskId>,
    #[expect(
        clippy::box_collection,
        reason = "eight bytes, so that all fits a line"
    )]
    more: Option<Box<VecDeque<TaskId>>>,
    /// Tasks that may run nowhere else, and the line of their lock.
    own: Tasks,
    own_line: LineId,
    /// The current task's runtime when it was picked, or went on.
    since: Nanos,
    cid: Cid,
    queue: Queue,
    /// It idles beside work, and looked for it in vain.
    vain: bool,
}

const _: () = assert!(size_of::<At>() == 64 && size_of::<Known>() == 64);

impl At {
    fn new(cid: Cid, queue: Queue, line: LineId) -> At {
        At {
            first: None,
            more: None,
            own: Tasks::new(),
            own_line: line,
            since: 0,
            cid,
            queue,
            vain: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn push(&mut self, task: TaskId) {
        match self.first {
            None => self.first = Some(task),
            Some(_) => self.more.get_or_insert_default().push_back(task),
        }
    }

    fn push_front(&mut self, task: TaskId) {
        if let Some(first) = self.first.replace(task) {
            self.more.get_or_insert_default().push_front(first);
        }
    }

    fn pop(&mut self) -> Option<TaskId> {
        let next = self.more.as_mut().and_then(|more| more.pop_front());
        std::mem::replace(&mut self.first, next)
    }

    fn remove(&mut self, task: TaskId) {
        if self.first == Some(task) {
            self.pop();
        } else if let Some(more) = &mut self.more {
            more.retain(|&t| t != task);
        }
    }
}

/// See the module.
pub struct Usher {
    name: &'static str,
    settings: Settings,
    shard_width: Option<u32>,
    queue_width: u32,
    /// Made by `attach`, as everything below.
    core: Option<Core>,
    region: RegionId,
    at: Vec<At>, // by cpu
    queues: Vec<Shared>,
    cpus: Vec<Cpu>, // by cid
    tasks: Vec<Known>,
    holds: Vec<Hold>, // of hinted tasks
    /// Whom tasks wake, about to sleep.
    pairs: Vec<Pair>,
    /// Whether the kernel may hand a wakeup to the CPU it is for, which queues the task then.
    queued_wakeups: bool,
    /// Whether tasks go to the node that wakes them.
    follows: bool,
    /// How often only one other node woke them.
    followers: Vec<Follow>,
    /// What tasks run between two sleeps, once somebody may preempt.
    bursts: Option<Vec<Burst>>,
    seq: u64,
    idle_bound_ns: Nanos,
    /// For how long CPUs of other LLCs may leave a task to those of its own: two ticks.
    overdue_ns: Nanos,
    /// Where CPUs differ in capacity and that counts.
    unequal: Option<Box<Unequal>>,
    /// Whether running tasks that share a core move off it.
    uncrowds: bool,
    /// Where running tasks may have to move.
    moves: Option<Box<Moves>>,
    /// Who has just been put and could go on, and whether it yielded.
    prev: Option<(TaskId, bool)>,
    /// Where a task went last whose affinity had changed.
    rotor: Cpu,
    /// Accesses to shared memory of the last call.
    touched: u64,
    events: Vec<StatId>,
    reported: Statistics,
}

impl Usher {
    /// With the parameters `follow`, `granularity`, `preempt`, `queue-width`, `queued-wakeups`, `shard-width`, `slice`, `soon`, `tiers`
    /// and `uncrowd`. Under the name `usher-no-capacity` all CPUs count as equal.
    ///
    /// # Errors
    /// A value out of range.
    pub fn new(params: &mut Params, name: &'static str) -> Result<Usher, SimError> {
        let names = Granularity::ALL
            .iter()
            .map(|g| g.as_str())
            .collect::<Vec<_>>();
        let granularity = params.choice("granularity", Granularity::Shard.as_str(), &names)?;
        let granularity = granularity.parse().expect("one of the names given");
        let orders = [TierOrder::StrongestFirst, TierOrder::WeakestFirst].map(|o| o.as_str());
        let order = params.choice("tiers", Settings::default().tier_order.as_str(), &orders)?;
        let slice_ns = params.duration("slice", Settings::default().slice_ns)?;
        if !SLICES_NS.contains(&slice_ns) {
            return Err(SimError::Parameter {
                key: "slice".into(),
                what: format!(
                    "has the value `{}`, but must be from 1us to 1s",
                    format_duration(slice_ns)
                ),
            });
        }
        let settings = Settings {
            granularity,
            capacity: name != "usher-no-capacity",
            cpupri: params.bool("preempt", true)?,
            tier_order: order.parse().expect("one of the names given"),
            slice_ns,
            patience_ns: DEFAULT_PATIENCE_NS.max(slice_ns.saturating_mul(PATIENCE_SLICES)),
            soon_ns: params.duration("soon", Settings::default().soon_ns)?,
            fork_balance: params.bool("fork-balance", true)?,
            ..Settings::default()
        };
        let queued_wakeups = params.bool("queued-wakeups", true)?;
        let follows = params.bool("follow", true)?;
        let uncrowds = params.bool("uncrowd", true)?;
        let width = params.u64("shard-width", 64, 1..=64)? as u32;
        let queue_width = params.u64("queue-width", DEFAULT_QUEUE_WIDTH.into(), 1..=4096)? as u32;
        Ok(Usher {
            name,
            settings,
            shard_width: (width != 64).then_some(width),
            queue_width,
            core: None,
            region: RegionId::default(),
            at: Vec::new(),
            queues: Vec::new(),
            cpus: Vec::new(),
            tasks: Vec::new(),
            holds: Vec::new(),
            pairs: Vec::new(),
            queued_wakeups,
            follows,
            followers: Vec::new(),
            bursts: None,
            seq: 0,
            idle_bound_ns: IDLE_BOUND_NS,
            overdue_ns: 0,
            unequal: None,
            uncrowds,
            moves: None,
            prev: None,
            rotor: Cpu(0),
            touched: 0,
            events: Vec::new(),
            reported: Statistics::default(),
        })
    }

    /// Calls the core and charges what it touched.
    fn call<T>(&mut self, host: &mut Host, ns: Nanos, f: impl FnOnce(&mut Core) -> T) -> T {
        let core = self.core.as_mut().expect("attached");
        host.charge(ns);
        let result = f(core);
        self.touched = 0;
        for access in core.accesses() {
            self.touched += 1;
            let kind = match access.kind() {
                AccessKind::Read => Access::Read,
                AccessKind::Write => Access::Write,
                AccessKind::Rmw => Access::Rmw,
                AccessKind::Barrier => continue,
                AccessKind::Queued => {
                    let queue = access.queue().expect("a queue's access names it");
                    host.access(self.queues[queue.index()].line, Access::Read);
                    continue;
                }
            };
            host.access_raw(self.region, access.offset(), kind);
        }
        let lost = core.clear_accesses();
        debug_assert_eq!(lost, 0, "the core's log was too small");
        result
    }

    fn cid(&self, cpu: Cpu) -> Cid {
        self.at[cpu.index()].cid
    }

    /// The allowed set of a task in cid order; `None`: everywhere.
    fn allowed(&mut self, host: &Host, task: TaskId) {
        let t = host.task(task);
        let known = &mut self.tasks[task.index()];
        if t.nr_allowed() as usize >= host.machine().cpus().len() {
            known.allowed = None;
            return;
        }
        if let Some((from, _)) = &known.allowed {
            if Arc::ptr_eq(from, t.allowed()) {
                return;
            }
        }
        let online = host.machine().online().and(t.allowed());
        let set = online.iter().map(|cpu| self.at[cpu.index()].cid).collect();
        known.allowed = Some((t.allowed().clone(), Box::new(set)));
    }

    /// Puts a task into a queue of several CPUs, or of its only CPU, and sends an idle CPU for it.
    /// `wakes` is what was decided of one that woke.
    fn queue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, wakes: Option<Decided>) {
        host.charge(CALLBACK_NS);
        let (cid, from) = (self.cid(cpu), self.cid(host.this_cpu()));
        let mut queue = self.at[cpu.index()].queue;
        let pinned = host.task(task).nr_allowed() == 1;
        if pinned && self.call(host, IDLE_NS, |core| core.test_and_clear(cid)) {
            self.put_local(host, task, cpu);
            return;
        }
        if wakes.is_some() {
            if let Some(victim) = self.preempted_for(host, task, cid, pinned) {
                self.preempt(host, task, victim);
                return;
            }
        }
        self.allowed(host, task);
        if wakes.is_none() && self.tasks[task.index()].allowed.is_none() {
            let now = host.now();
            queue = self.call(host, 0, |core| core.queue_again(from, cid, now));
        }
        let vtime = self.tasks[task.index()].vtime;
        let slept = wakes.is_some();
        let handed = !pinned
            && wakes == Some(Decided::Sync)
            && self.call(host, 0, |core| core.hand(from, queue, name(task)));
        let (due, early, vtime) = self.call(host, 0, |core| {
            let due = core.vtime_enter(vtime, queue);
            let early = match slept && !handed {
                true => core.vtime_early(due, queue),
                false => 0,
            };
            (due, early, core.vtime_before(due, early))
        });
        self.seq += 1;
        let key = (vtime, self.seq);
        self.tasks[task.index()].vtime = vtime;
        self.tasks[task.index()].seq = self.seq;
        if pinned {
            self.tasks[task.index()].place = Place::Own {
                cid,
                early: early as u8,
            };
            let at = &mut self.at[cpu.index()];
            insert(host, &mut at.own, at.own_line, key, task);
            if self.call(host, IDLE_NS, |core| core.test_and_clear(cid)) {
                host.resched(cpu);
            } else if slept {
                let here = Query {
                    here: true,
                    ..Query::any(cid, from)
                };
                self.cut(host, task, &here, due, early);
            }
            return;
        }
        self.tasks[task.index()].place = match handed {
            true => Place::Handed(host.this_cpu()),
            false => Place::Shared {
                queue,
                early: early as u8,
            },
        };
        if slept {
            self.call(host, 0, |core| core.vtime_slept(vtime, queue));
        }
        let shared = &mut self.queues[queue.index()];
        insert(host, &mut shared.tasks, shared.line, key, task);
        let allowed = self.tasks[task.index()].allowed.take();
        let query = Query {
            allowed: allowed.as_ref().map(|(_, set)| &**set),
            ..Query::any(cid, from)
        };
        let idle = self.call(host, PLACE_NS, |core| {
            core.queue_fill(queue, query.allowed.is_some());
            core.look(&query)
        });
        if slept && idle.is_none() {
            self.cut(host, task, &query, due, early);
        }
        // In a kernel it arrives when the callback has returned.
        self.tell_length(queue);
        self.tasks[task.index()].allowed = allowed;
        self.send(host, idle);
        self.rescue(host);
        if wakes == Some(Decided::Sync) {
            self.pair_woke(host);
        }
    }

    /// A task that woke waits for `query.from`: the turn of who runs there ends, or beside it, if it has lasted.
    fn cut(&mut self, host: &mut Host, task: TaskId, query: &Query, due: Vtime, early: u32) {
        if !self.settings.cpupri || matches!(host.task(task).class(), Class::Batch { .. }) {
            return;
        }
        let (now, weight) = (host.now(), scx_weight(host, task));
        let cut = |core: &mut Core| core.turn_cut(query, due, early, now, weight);
        let cut = self.call(host, 0, cut);
        self.send(host, cut);
    }

    /// From where a task is charged, whether or not it waits.
    fn due(&mut self, task: TaskId) -> Vtime {
        let Known { vtime, place, .. } = self.tasks[task.index()];
        let core = self.core.as_mut().expect("attached");
        core.vtime_after(vtime, place.early())
    }

    /// `ttwu_queue_cond()` of a scheduler with `SCX_OPS_ALLOW_QUEUED_WAKEUP`: across LLCs, and to a CPU with nothing to run.
    fn queues_wakeup(&self, host: &Host, cpu: Cpu, waker_cpu: Cpu) -> bool {
        let llc = |cpu| host.machine().cpu(cpu).llc;
        let idles = || host.curr(cpu).is_none() && self.at[cpu.index()].is_empty();
        self.queued_wakeups && cpu != waker_cpu && (llc(cpu) != llc(waker_cpu) || idles())
    }

    /// Whether a task that is queued comes to the CPU that was claimed for it. If that CPU queues it, nobody told it for whom it was claimed: it is
    /// taken to be for the first who comes while it idles.
    fn comes_as_sent(&mut self, host: &mut Host, cpu: Cpu, decided: Decided) -> bool {
        let placed = decided == Decided::Claimed(cpu);
        if !self.queued_wakeups {
            return placed;
        }
        let cid = self.cid(cpu);
        (placed || host.this_cpu() == cpu)
            && self.call(host, 0, |core| core.claimed(cid))
            && self.at[cpu.index()].is_empty()
    }

    /// Gives a task to a claimed CPU.
    fn put_local(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        self.tasks[task.index()].place = Place::Local(cpu);
        self.at[cpu.index()].push(task);
        host.resched(cpu);
    }

    /// Makes a CPU look into the queues: one that was claimed, or whose turn ends. `scx_bpf_kick_cpu()` sends an interrupt to the own CPU first,
    /// which then tells the other one.
    fn send(&mut self, host: &mut Host, cid: Option<Cid>) {
        if let Some(cid) = cid {
            let n = &host.machine().costs().n;
            let interrupt = n.ipi_send_ns + n.ipi_handle_ns;
            host.charge(interrupt);
            host.resched(self.cpus[cid.index()]);
        }
    }

    /// At the end of every callback that searched, took from a queue or left idle, as `rescue()` in
    /// `bpf/main.bpf.c`.
    fn rescue(&mut self, host: &mut Host) {
        let by = self.cid(host.this_cpu());
        let idle = self.call(host, 0, |core| core.rescue(by));
        self.send(host, idle);
    }

    fn tell_length(&mut self, queue: Queue) {
        let length = self.queues[queue.index()].tasks.len() as u64;
        self.core
            .as_mut()
            .expect("attached")
            .set_queued(queue, length);
    }

    /// In which queue of several CPUs a task waits.
    fn waits_in(&self, place: Place) -> Option<Queue> {
        match place {
            Place::Shared { queue, .. } => Some(queue),
            Place::Handed(to) => Some(self.at[to.index()].queue),
            _ => None,
        }
    }

    /// Where the kernel puts a task whose affinity changed: on one of its CPUs after the other.
    fn distribute(&mut self, host: &Host, task: TaskId) -> Cpu {
        let allowed = host.task(task).allowed();
        let mut cpus = host.machine().online().iter_wrap(Cpu(self.rotor.0 + 1));
        self.rotor = cpus
            .find(|&cpu| allowed.contains(cpu))
            .expect("a task may run somewhere");
        self.rotor
    }

    fn hints(&self, host: &Host, task: TaskId) -> Hints {
        host.task(task).hint()
    }

    /// Tells the core where a hinted task lives.
    fn settle(&mut self, host: &mut Host, task: TaskId, home: Option<Llc>) {
        let before = std::mem::replace(&mut self.tasks[task.index()].home, home);
        if before != home {
            self.call(host, 0, |core| core.settle(before, home));
        }
    }

    /// Whether the current task has run for a slice since it was picked, or went on.
    fn had_slice(&self, host: &Host, curr: TaskId, cpu: Cpu) -> bool {
        host.runtime(curr) - self.at[cpu.index()].since >= self.settings.slice_ns
    }
}

/// What the core is told of a task.
fn name(task: TaskId) -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(task.index() as u64)
}

/// The kernel's weight of a sched_ext task, rounded as there: 100 is nice 0.
fn scx_weight(host: &Host, task: TaskId) -> u32 {
    let weight = (weight::of(host.task(task).class()) * 100 + weight::NICE_0 / 2) / weight::NICE_0;
    weight.clamp(1, 10_000) as u32
}

/// Reasons of the kernel's own, who does not ask a sched_ext scheduler at exec, nor where a task goes whose affinity changed.
const EXEC: usize = Reason::COUNT;
const AFFINITY: usize = Reason::COUNT + 1;

const REASONS: [&str; Reason::COUNT + 2] = {
    let mut names = [""; Reason::COUNT + 2];
    names[EXEC] = "exec";
    names[AFFINITY] = "affinity";
    let mut i = 0;
    while i < Reason::COUNT {
        names[i] = Reason::ALL[i].as_str();
        i += 1;
    }
    names
};

impl Policy for Usher {
    fn name(&self) -> &str {
        self.name
    }

    fn reasons(&self) -> &'static [&'static str] {
        &REASONS
    }

    fn limits(&self) -> &'static [&'static str] {
        &["no watchdog and bypass of sched_ext; real-time tasks run as normal ones"]
    }

    fn heeds_hints(&self) -> bool {
        true
    }

    fn attach(&mut self, host: &mut Host) {
        let machine = host.machine().clone();
        let narrow = self.shard_width.map(|width| {
            Topology::build(&machine.topo().to_raw(), width)
                .expect("it was built before, only wider")
        });
        let topo = narrow.as_ref().unwrap_or(machine.topo());
        let mut tables = Tables::from(topo);
        tables.cut_queues(self.queue_width);
        let core = Core::traced(&tables, &self.settings).expect("topologies are checked");
        let bytes =
            usher_core::bytes_needed(&tables, &self.settings).expect("topologies are checked");
        let class = host.line_class("usher-shared");
        self.region = host.new_region(class, bytes as u64, None);
        let idle = host.line_class("usher-idle");
        for (i, shard) in topo.shards().iter().enumerate() {
            let offset = core.idle_word_offset(Id::from_index(i));
            let line = host.region_line(self.region, offset);
            host.describe_line(line, idle, Some(shard.node));
        }
        self.cpus = topo.cids().iter().map(|c| c.cpu).collect();
        let class = host.line_class("usher-queue");
        let own = host.new_lines(class, topo.nr_cids());
        self.at = (0..machine.nr_cpu_numbers())
            .map(|i| Cpu(i as u32))
            .map(|cpu| match machine.online().contains(cpu) {
                true => {
                    let cid = machine.cpu(cpu).cid;
                    At::new(cid, Queue(tables.queue[cid.index()]), own[cid.index()])
                }
                false => At::new(Cid::from_index(0), Queue::default(), LineId::default()),
            })
            .collect();
        let lines = host.new_lines(class, tables.nr_queues());
        self.queues = lines
            .into_iter()
            .map(|line| Shared {
                line,
                ..Shared::default()
            })
            .collect();
        let costs = machine.costs();
        let wakes = |s: &IdleState| s.wake_ns(&costs.n) + s.llc_wake_ns;
        let deepest = costs.idle_states.iter().map(wakes).max().unwrap_or(0);
        self.idle_bound_ns = IDLE_BOUND_NS + 2 * deepest;
        let mut queues = tables.queue.chunk_by(|a, b| a == b);
        let wide = queues.any(|cids| cids.len() >= PACE_CIDS);
        if wide && !core.is_asymmetric() && self.settings.soon_ns > 0 {
            self.overdue_ns = 2 * machine.tick_ns();
        }
        self.events = Event::ALL.iter().map(|e| host.stat(e.as_str())).collect();
        self.unequal = core.is_asymmetric().then(Box::default);
        self.queued_wakeups &= topo.llcs().len() > 1;
        self.follows &= topo.llcs().len() > 1;
        self.uncrowds &= topo.smt_width() > 1;
        self.moves = (core.is_asymmetric() || self.uncrowds)
            .then(|| Box::new(Moves::new(host, machine.nr_cpu_numbers())));
        self.core = Some(core);
    }

    fn task_new(&mut self, _host: &mut Host, task: TaskId, _parent: Option<TaskId>) {
        if self.tasks.len() <= task.index() {
            self.tasks.resize_with(task.index() + 1, Known::default);
            self.holds.resize_with(task.index() + 1, Hold::default);
        }
        self.tasks[task.index()] = Known::default();
        self.holds[task.index()] = Hold::default();
        self.pair_born(task);
        self.follow_born(task);
        self.burst_born(task);
        if let Some(unequal) = &mut self.unequal {
            unequal.task_new(task);
        }
    }

    fn task_dead(&mut self, host: &mut Host, task: TaskId) {
        self.settle(host, task, None);
    }

    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement {
        match wake.kind {
            WakeKind::Exec => {
                return Placement {
                    cpu: wake.prev,
                    reason: EXEC as u16,
                }
            }
            WakeKind::Affinity => {
                return Placement {
                    cpu: self.distribute(host, wake.task),
                    reason: AFFINITY as u16,
                }
            }
            WakeKind::Fork | WakeKind::Wake => {}
        }
        let demand = self.demand(host, wake.task);
        self.allowed(host, wake.task);
        let allowed = self.tasks[wake.task.index()].allowed.take();
        let mut request = Request {
            allowed: allowed.as_ref().map(|(_, set)| &**set),
            wake: match wake.kind {
                WakeKind::Fork => Wake::Fork,
                _ if wake.sync => Wake::Sync,
                _ => Wake::Wake,
            },
            prev: self.cid(wake.prev),
            waker: self.cid(host.this_cpu()),
            tiers: Tiers::ANY,
            hints: self.hints(host, wake.task),
            demand,
        };
        if request.hints != Hints::NONE {
            let mut hold = self.holds[wake.task.index()];
            request.hints = self.call(host, 0, |core| core.hold(&request, &mut hold));
            self.holds[wake.task.index()] = hold;
        }
        if request.wake == Wake::Sync {
            if let Some(placement) = self.gives_way(host, &request, wake.task) {
                self.tasks[wake.task.index()].allowed = allowed;
                self.rescue(host);
                return placement;
            }
        }
        self.follow(host, &mut request, wake.task);
        let before = host.now();
        let decision = self.call(host, CALLBACK_NS + PLACE_NS, |core| core.place(&request));
        host.note_search(self.touched, host.now() - before, decision.claimed);
        self.rescue(host);
        let cpu = self.cpus[decision.cid.index()];
        let sync = request.wake == Wake::Sync;
        if sync {
            self.pair_woke(host);
        }
        if request.hints != Hints::NONE && wake.kind == WakeKind::Fork {
            self.settle(host, wake.task, Some(host.machine().cpu(cpu).llc));
        }
        let known = &mut self.tasks[wake.task.index()];
        known.allowed = allowed;
        known.decided = match decision.claimed {
            true => Decided::Claimed(cpu),
            false if sync => Decided::Sync,
            false => Decided::Nothing,
        };
        Placement {
            cpu,
            reason: decision.reason.index() as u16,
        }
    }

    fn remote_wake(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, waker_cpu: Cpu) -> bool {
        let born = host.task(task).last_ran().is_none();
        let queues = !born && self.queues_wakeup(host, cpu, waker_cpu);
        let decided = &mut self.tasks[task.index()].decided;
        if queues && *decided == Decided::Sync {
            // Nobody hands it over: its waker is not there.
            *decided = Decided::Nothing;
        }
        queues
    }

    fn wake_leaving(&mut self, host: &mut Host, _: TaskId, cpu: Cpu, waker_cpu: Cpu) -> Leaving {
        match self.queues_wakeup(host, cpu, waker_cpu) {
            true => Leaving::Queue,
            false => Leaving::Wait,
        }
    }

    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: EnqueueWhy) {
        let decided = std::mem::take(&mut self.tasks[task.index()].decided);
        if self.tasks[task.index()].home.is_some() {
            self.settle(host, task, Some(host.machine().cpu(cpu).llc));
        }
        if self.comes_as_sent(host, cpu, decided) {
            self.put_local(host, task, cpu);
        } else if decided == Decided::Behind(cpu) {
            self.tasks[task.index()].place = Place::Local(cpu);
            self.at[cpu.index()].push(task);
        } else if decided == Decided::InTurn(cpu) {
            self.preempt(host, task, cpu);
        } else {
            let wakes = matches!(
                why,
                EnqueueWhy::Placed {
                    kind: WakeKind::Wake,
                    ..
                }
            );
            self.queue(host, task, cpu, wakes.then_some(decided));
        }
    }

    fn dequeue(&mut self, host: &mut Host, task: TaskId) {
        let due = self.due(task);
        let known = &mut self.tasks[task.index()];
        let key = (known.vtime, known.seq);
        known.vtime = due;
        match std::mem::take(&mut known.place) {
            Place::Nowhere | Place::GivesWay => {}
            Place::Local(cpu) => self.at[cpu.index()].remove(task),
            Place::Own { cid, .. } => {
                let cpu = self.cpus[cid.index()];
                self.at[cpu.index()].own.remove(&key);
            }
            place @ (Place::Shared { .. } | Place::Handed(_)) => {
                let queue = self.waits_in(place).expect("a queue of several CPUs");
                let taken = host.lock(self.queues[queue.index()].line);
                self.queues[queue.index()].tasks.remove(&key);
                host.unlock(self.queues[queue.index()].line, taken);
                self.tell_length(queue);
            }
        }
    }

    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        host.charge(CALLBACK_NS);
        let prev = self.prev.take();
        let mut task = self.at[cpu.index()].pop();
        if task.is_none() {
            task = match prev {
                Some((prev, yields)) => self.take_instead(host, cpu, prev, yields),
                None => self.find_work(host, cpu),
            };
            self.rescue(host);
        }
        match (task, prev) {
            (Some(_), Some((prev, _))) if self.tasks[prev.index()].place == Place::GivesWay => {
                host.charge(CALLBACK_NS);
                self.tasks[prev.index()].place = Place::Local(cpu);
                self.at[cpu.index()].push(prev);
            }
            (Some(_), Some((prev, _))) => self.queue(host, prev, cpu, None),
            _ => {}
        }
        let task = task.or(prev.map(|(prev, _)| prev))?;
        let due = self.due(task);
        self.tasks[task.index()].vtime = due;
        self.tasks[task.index()].place = Place::Nowhere;
        let hinted = self.hints(host, task) != Hints::NONE;
        let home = hinted.then(|| host.machine().cpu(cpu).llc);
        self.settle(host, task, home);
        self.at[cpu.index()].since = host.runtime(task);
        if prev.is_none_or(|(prev, _)| prev != task) {
            let (cid, vtime) = (self.cid(cpu), self.tasks[task.index()].vtime);
            let (now, weight) = (host.now(), scx_weight(host, task));
            self.call(host, 0, |core| core.turn_begin(cid, vtime, now, weight));
            self.tell_class(host, cid, task);
        }
        Some(task)
    }

    fn put_prev(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        host.charge(CALLBACK_NS);
        let (cid, queue) = (self.cid(cpu), self.at[cpu.index()].queue);
        let ran = host.runtime(task) - self.tasks[task.index()].charged;
        let (vtime, weight) = (self.tasks[task.index()].vtime, scx_weight(host, task));
        if why == StopWhy::Slept || ran > self.settings.slice_ns / CLOCK_PART {
            self.clock_goes_on(host, cpu, vtime);
        }
        let vtime = self.call(host, 0, |core| {
            let vtime = core.vtime_charge(vtime, cid, ran, weight);
            match why {
                StopWhy::Slept => core.vtime_sleep(vtime, queue),
                _ => vtime,
            }
        });
        let known = &mut self.tasks[task.index()];
        known.vtime = vtime;
        known.charged += ran;
        self.burst_end(host, task, ran, why == StopWhy::Slept);
        if why == StopWhy::Slept {
            self.pair_sleeps(host, task, cpu);
        }
        self.load_stop(host, task, cpu, why == StopWhy::Slept);
        if self.put_elsewhere(host, task, cpu, why) {
            return;
        }
        if why.is_runnable() {
            self.prev = Some((task, why == StopWhy::Yielded));
        }
    }

    fn tick(&mut self, host: &mut Host, cpu: Cpu, curr: TaskId) {
        // As the kernel: also where nobody waits, so that clocks go on.
        if self.had_slice(host, curr, cpu) {
            host.resched(cpu);
        }
        let cid = self.cid(cpu);
        self.class_goes_on(host, cid, curr);
        self.check_moves(host, cpu, curr);
        let now = host.now();
        let idle = self.call(host, 0, |core| core.queue_overdue(cid, now));
        self.send(host, idle);
        self.rescue(host);
    }

    fn ipi(&mut self, host: &mut Host, cpu: Cpu, _cookie: u64) {
        if let Some(curr) = host.curr(cpu) {
            self.check_moves(host, cpu, curr);
            // A kick ends the turn, whether or not a CPU was claimed.
            host.resched(cpu);
        }
    }

    fn idle_enter(&mut self, host: &mut Host, cpu: Cpu, again: bool) {
        let cid = self.cid(cpu);
        let work = self.call(host, CALLBACK_NS + IDLE_NS, |core| match again {
            true => core.idle_again(cid),
            false => core.idle_enter(cid),
        });
        if !work {
            self.call_misfit(host, cid);
            return;
        }
        // It may be work that may not run here, so it is tried once more, and then left to who put it there.
        if std::mem::replace(&mut self.at[cpu.index()].vain, again) && again {
            return;
        }
        if self.call(host, IDLE_NS, |core| core.test_and_clear(cid)) {
            host.resched(cpu);
        }
    }

    fn idle_exit(&mut self, host: &mut Host, cpu: Cpu) {
        let cid = self.cid(cpu);
        self.at[cpu.index()].vain = false;
        self.call(host, CALLBACK_NS + IDLE_NS, |core| core.idle_exit(cid));
        self.rescue(host);
    }

    fn prefetch(&self, cpu: Cpu, curr: Option<TaskId>) {
        prefetch(&self.at[cpu.index()], 1);
        if let Some(curr) = curr {
            prefetch(&self.tasks[curr.index()], 1);
        }
    }

    fn idle_bound_ns(&self, host: &Host, task: TaskId, cpu: Cpu) -> Option<Nanos> {
        let [here, there] = [cpu, host.task(task).cpu()].map(|cpu| host.machine().cpu(cpu).llc);
        let far = if here == there { 0 } else { self.overdue_ns };
        Some(self.idle_bound_ns + far)
    }

    fn sync_stats(&mut self, host: &mut Host) {
        let counts = self.core.as_ref().expect("attached").statistics();
        let new = counts.since(&self.reported);
        for ((_, n), &stat) in new.events().zip(&self.events) {
            host.count(stat, n);
        }
        self.reported = counts;
    }
}
