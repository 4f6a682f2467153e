// SPDX-License-Identifier: GPL-2.0-only
//! The core of one machine, in this process.

use std::num::NonZeroU64;
use std::ptr;

use usher_hint::Hints;
use usher_topo::{Cid, Cpu, Llc, Node, Shard, Topology};

use crate::block::Block;
use crate::ffi;
use crate::kinds::{Gives, PickError, Wake};
use crate::request::{Decision, Follow, Hold, Pair, Query, Queue, Request, Vtime, Walk};
use crate::set::CidSet;
use crate::stats::Statistics;
use crate::tables::{BuildError, Settings, Tables};
use crate::trace::Access;

/// The placement core of one machine. Any number of them live side by side.
///
/// The host's duties are those of `core/src/idle.c` and `core/src/queue.c`: it reports idle transitions,
/// keeps the queues themselves and tells their lengths by [`Core::set_queued`].
pub struct Core {
    pub(crate) u: *mut ffi::Usher,
    pub(crate) api: &'static ffi::Api,
    host: *mut ffi::Host,
    nr_cids: u32,
    nr_llcs: u32,
    nr_queues: u32,
    nr_nodes: u32,
    nr_shards: u32,
    traced: bool,
    /// Whether there is a CPU priority map.
    pub(crate) cpupri: bool,
    /// What `u` points into.
    _tables: Block,
    /// What `host` points into: the struct, the queue lengths, the log.
    _host: Block,
}

/// Another build of the core, with `env/native.h`, loaded at run time: a mutant in a test. It must be one of the same
/// structs.
pub struct Library(ffi::Api);

impl Library {
    /// Its functions, each as `find` finds it; `None` if one is missing.
    ///
    /// # Safety
    /// What is found is `crates/usher-core/shim/native.c`, compiled with a core whose structs are those of this
    /// one, and stays loaded.
    pub unsafe fn from_symbols(
        find: &mut dyn FnMut(&str) -> *const std::ffi::c_void,
    ) -> Option<Self> {
        // SAFETY: as promised by the caller.
        unsafe { ffi::Api::from_symbols(find) }.map(Self)
    }
}

// SAFETY: all pointers point into blocks that move with it, and nobody else has them.
unsafe impl Send for Core {}

/// Entries the log has room for: several times what one call on the largest machine can produce. A search of the CPU
/// priority map may meet every shard at every level, and take each out of the summaries.
fn log_capacity(tables: &Tables, settings: &Settings) -> usize {
    let each = if settings.cpupri { 1024 } else { 64 };
    4096 + each * (tables.nr_shards() + tables.nr_queues() + tables.nr_nodes())
}

impl Core {
    /// The core for a machine, with default settings but the given ones. All CPUs start busy.
    ///
    /// # Errors
    /// The tables contradict themselves or exceed the core's limits.
    pub fn new(tables: &Tables, settings: &Settings) -> Result<Self, BuildError> {
        Self::build(tables, settings, false)
    }

    /// The same, with a log of its accesses to shared memory: see [`Core::accesses`].
    ///
    /// # Errors
    /// As for [`Core::new`].
    pub fn traced(tables: &Tables, settings: &Settings) -> Result<Self, BuildError> {
        Self::build(tables, settings, true)
    }

    /// The core for a topology, with default settings.
    ///
    /// # Errors
    /// The topology exceeds the core's limits, for example by a core of more than eight threads.
    pub fn of(topo: &Topology) -> Result<Self, BuildError> {
        Self::new(&Tables::from(topo), &Settings::default())
    }

    /// The core of another build, its tables by this one.
    ///
    /// # Errors
    /// As for [`Core::new`].
    pub fn with_library(
        tables: &Tables,
        settings: &Settings,
        library: &'static Library,
    ) -> Result<Self, BuildError> {
        let mut core = Self::build(tables, settings, false)?;
        core.api = &library.0;
        Ok(core)
    }

    fn build(tables: &Tables, settings: &Settings, traced: bool) -> Result<Self, BuildError> {
        tables.check(settings)?;
        let spec = tables.spec(settings);
        let log_entries = if traced {
            log_capacity(tables, settings)
        } else {
            0
        };
        let queued_at = size_of::<ffi::Host>() + size_of::<ffi::Log>();
        let entries_at = queued_at + 8 * tables.nr_queues();
        let extra = Block::new(entries_at + 8 * log_entries);
        let host: *mut ffi::Host = extra.start().cast();
        // SAFETY: the offsets are multiples of 8 and lie in the block just made.
        unsafe {
            let log: *mut ffi::Log = extra.start().add(size_of::<ffi::Host>()).cast();
            log.write(ffi::Log {
                entries: extra.start().add(entries_at).cast(),
                nr: 0,
                capacity: log_entries as u64,
                lost: 0,
            });
            host.write(ffi::Host {
                queued: extra.start().add(queued_at).cast(),
                log,
            });
        }
        // SAFETY: the spec was checked and its arrays live on in `tables`.
        let bytes = unsafe { ffi::usher_tables_bytes(&spec) };
        let block = Block::new(usize::try_from(bytes).expect("counted for this address space"));
        // SAFETY: as above; the block is zeroed, on a line boundary and as large as asked for.
        let u = unsafe { ffi::usher_tables_build(&spec, block.start(), host) };
        Ok(Self {
            u,
            api: if traced { &ffi::TRACED } else { &ffi::NATIVE },
            host,
            nr_cids: spec.nr_cids,
            nr_llcs: spec.nr_llcs,
            nr_queues: spec.nr_queues,
            nr_nodes: spec.nr_nodes,
            nr_shards: spec.nr_shards,
            traced,
            cpupri: settings.cpupri,
            _tables: block,
            _host: extra,
        })
    }

    /// For loops in C that call the core's native build.
    #[track_caller]
    pub(crate) fn native(&mut self) -> *mut ffi::Usher {
        assert!(!self.traced, "a traced core has another build");
        self.u
    }

    /// How many CPUs.
    pub fn nr_cids(&self) -> usize {
        self.nr_cids as usize
    }

    /// How many LLCs.
    pub fn nr_llcs(&self) -> usize {
        self.nr_llcs as usize
    }

    /// How many queues of several CPUs.
    pub fn nr_queues(&self) -> usize {
        self.nr_queues as usize
    }

    /// How many nodes, those of memory only included.
    pub fn nr_nodes(&self) -> usize {
        self.nr_nodes as usize
    }

    /// How many shards.
    pub fn nr_shards(&self) -> usize {
        self.nr_shards as usize
    }

    #[track_caller]
    pub(crate) fn cid(&self, cid: Cid) -> u32 {
        assert!(cid.0 < self.nr_cids, "no cid {cid} among {}", self.nr_cids);
        cid.0
    }

    #[track_caller]
    fn llc(&self, llc: Llc) -> u32 {
        assert!(llc.0 < self.nr_llcs, "no LLC {llc} among {}", self.nr_llcs);
        llc.0
    }

    #[track_caller]
    fn queue(&self, queue: Queue) -> u32 {
        let nr = self.nr_queues;
        assert!(queue.0 < nr, "no queue {queue} among {nr}");
        queue.0
    }

    #[track_caller]
    pub(crate) fn shard(&self, shard: Shard) -> u32 {
        let nr = self.nr_shards;
        assert!(shard.0 < nr, "no shard {shard} among {nr}");
        shard.0
    }

    #[track_caller]
    pub(crate) fn request(&self, request: &Request) -> ffi::Request {
        self.cid(request.prev);
        self.cid(request.waker);
        request.to_c()
    }

    #[track_caller]
    pub(crate) fn query(&self, query: &Query) -> ffi::Query {
        self.cid(query.from);
        self.cid(query.by);
        query.to_c()
    }
}

/// A cid or nothing, from a function that knows no other error.
fn some_cid(code: i32) -> Option<Cid> {
    u32::try_from(code).ok().map(Cid)
}

fn some_pick(code: i32) -> Result<Cid, PickError> {
    some_cid(code).ok_or_else(|| PickError::from_code(code))
}

/// Idle CPUs. All calls name the CPU they are made on or for; a cid that the machine does not have is a
/// programming error and panics, as an index out of range does.
impl Core {
    /// `cid` has nothing to run. True: work is in reach all the same; make the CPU look for it, unless
    /// somebody claims it first.
    pub fn idle_enter(&mut self, cid: Cid) -> bool {
        let cid = self.cid(cid);
        // SAFETY: `u` is whole, the cid exists, nobody else touches this core (&mut).
        unsafe { (self.api.idle_enter)(self.u, cid) }
    }

    /// `cid` was idle and claimed, found nothing to run and stays idle.
    pub fn idle_again(&mut self, cid: Cid) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.idle_again)(self.u, cid) }
    }

    /// Whether `cid` has nothing to run, and since it reported so somebody claimed it.
    pub fn claimed(&mut self, cid: Cid) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.claimed)(self.u, cid) }
    }

    /// `cid` runs something.
    pub fn idle_exit(&mut self, cid: Cid) {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.idle_exit)(self.u, cid) }
    }

    /// True if `cid` was idle; it is now the caller's.
    pub fn test_and_clear(&mut self, cid: Cid) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.test_and_clear)(self.u, cid) }
    }

    /// Whether `cid`'s idle bit is set. Never traced.
    pub fn is_idle(&self, cid: Cid) -> bool {
        let cid = self.cid(cid);
        // SAFETY: `u` is whole, the cid exists; a read.
        unsafe { ffi::usher_tables_is_idle(self.u, cid) }
    }

    /// Where should this task run? Claims the CPU if it is idle.
    pub fn place(&mut self, request: &Request) -> Decision {
        let request = self.request(request);
        // SAFETY: as in idle_enter(); the set lives as long as the request.
        Decision::from_c(unsafe { (self.api.place)(self.u, &request) })
    }

    /// After a queue was filled and announced by [`Core::queue_fill`]: an idle CPU to send there, claimed.
    pub fn look(&mut self, query: &Query) -> Option<Cid> {
        let query = self.query(query);
        // SAFETY: as in place().
        some_cid(unsafe { (self.api.look)(self.u, &query) })
    }

    /// After a decision with [`Decision::poke`]: an idle CPU to send to the queues, claimed.
    pub fn rescue(&mut self, by: Cid) -> Option<Cid> {
        let by = self.cid(by);
        // SAFETY: as in idle_enter().
        some_cid(unsafe { (self.api.rescue)(self.u, by) })
    }

    /// Remembers that `by` put a task into a queue where it arrives only later: [`Core::late_look`] at
    /// its next callback.
    pub fn look_late(&mut self, by: Cid, queue: Queue) {
        let (by, queue) = (self.cid(by), self.queue(queue));
        // SAFETY: as in idle_enter().
        unsafe { ffi::usher_tables_set_look(self.u, by, queue) }
    }

    /// At a callback of `by` after one that filled a queue: an idle CPU to send there, claimed.
    pub fn late_look(&mut self, by: Cid) -> Option<Cid> {
        let by = self.cid(by);
        // SAFETY: as in idle_enter().
        some_cid(unsafe { (self.api.late_look)(self.u, by) })
    }
}

/// Queues: one per LLC, kept by the host.
impl Core {
    /// Tells how many tasks wait in `queue`. A host calls it whenever that changes.
    pub fn set_queued(&mut self, queue: Queue, tasks: u64) {
        let queue = self.queue(queue) as usize;
        // SAFETY: there is an entry per queue.
        unsafe { (*self.host).queued.add(queue).write(tasks) }
    }

    /// What [`Core::set_queued`] told last.
    pub fn queued(&self, queue: Queue) -> u64 {
        let queue = self.queue(queue) as usize;
        // SAFETY: there is an entry per queue.
        unsafe { (*self.host).queued.add(queue).read() }
    }

    /// Announces a task in `queue`, `bound` if it may not run everywhere; then [`Core::look`].
    pub fn queue_fill(&mut self, queue: Queue, bound: bool) {
        let queue = self.queue(queue);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.queue_fill)(self.u, queue, bound) }
    }

    /// `cid` goes out of service: an idle CPU, claimed, to send to its queue.
    pub fn queue_deserted(&mut self, cid: Cid) -> Option<Cid> {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        some_cid(unsafe { (self.api.queue_deserted)(self.u, cid) })
    }

    /// At a tick of `cid`: an idle CPU, claimed, to send to its queue, where somebody has waited since a tick before.
    pub fn queue_overdue(&mut self, cid: Cid, now_ns: u64) -> Option<Cid> {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        some_cid(unsafe { (self.api.queue_overdue)(self.u, cid, now_ns) })
    }

    /// `by` found nothing to take in `queue`. True: it was empty, and somebody has come.
    pub fn queue_retire(&mut self, queue: Queue, by: Cid) -> bool {
        let (queue, by) = (self.queue(queue), self.cid(by));
        // SAFETY: as in idle_enter().
        unsafe { (self.api.queue_retire)(self.u, queue, by) }
    }

    /// In which queue a task waits that may run anywhere, and is put back by `by` where its turn on `cid` ends.
    pub fn queue_again(&mut self, by: Cid, cid: Cid, now_ns: u64) -> Queue {
        let (by, cid) = (self.cid(by), self.cid(cid));
        // SAFETY: as in idle_enter().
        Queue(unsafe { (self.api.queue_again)(self.u, by, cid, now_ns) })
    }

    /// `by` took a task out of `queue`.
    pub fn queue_taken(&mut self, by: Cid, queue: Queue) {
        let (by, queue) = (self.cid(by), self.queue(queue));
        // SAFETY: as in idle_enter().
        unsafe { (self.api.queue_taken)(self.u, by, queue) }
    }

    /// Whether some queue that `cid` could serve is announced.
    pub fn work_in_reach(&mut self, cid: Cid) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.work_in_reach)(self.u, cid) }
    }

    /// Starts the round of a CPU without work through the queues: own LLC, node, then by distance.
    pub fn walk(&self, cid: Cid) -> Walk {
        let cid = self.cid(cid);
        Walk(ffi::Walk {
            cid,
            ..ffi::Walk::default()
        })
    }

    /// The next queue that may have a task.
    pub fn walk_next(&mut self, walk: &mut Walk) -> Option<Queue> {
        self.cid(Cid(walk.0.cid));
        // SAFETY: as in idle_enter(); a walk is made by walk() and moved on only here. One of a larger
        // machine fails the check above or ends early, since its step is compared with this machine's.
        let queue = unsafe { (self.api.walk_next)(self.u, &mut walk.0) };
        u32::try_from(queue).ok().map(Queue)
    }

    /// Whether `cid` takes from its own queue of pinned tasks first, whose first waits at `own`, and not from the LLC's, where the first that
    /// may run there waits at `shared` (`None`: nobody seen).
    pub fn pinned_first(&mut self, cid: Cid, own: Vtime, shared: Option<Vtime>) -> bool {
        let cid = self.cid(cid);
        let shared = shared.unwrap_or_default();
        // SAFETY: as in idle_enter().
        unsafe { (self.api.pinned_first)(self.u, cid, own.0, shared.0) }
    }

    /// A virtual time carried over to the clock of `queue`.
    pub fn vtime_at(&mut self, v: Vtime, queue: Queue) -> Vtime {
        let queue = self.queue(queue);
        // SAFETY: as in idle_enter().
        Vtime(unsafe { (self.api.vtime_at)(self.u, v.0, queue) })
    }

    /// The virtual time at which a task joins `queue`. A task that never ran has the default.
    pub fn vtime_enter(&mut self, v: Vtime, queue: Queue) -> Vtime {
        let queue = self.queue(queue);
        // SAFETY: as in idle_enter().
        Vtime(unsafe { (self.api.vtime_enter)(self.u, v.0, queue) })
    }

    /// How early a task that slept joins `queue`, in eighths of a slice, if it is charged from `v`.
    pub fn vtime_early(&mut self, v: Vtime, queue: Queue) -> u32 {
        let queue = self.queue(queue);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.vtime_early)(self.u, v.0, queue) }
    }

    /// Where a task waits that is charged from `v` and joins so early.
    pub fn vtime_before(&mut self, v: Vtime, early: u32) -> Vtime {
        // SAFETY: as in idle_enter().
        Vtime(unsafe { (self.api.vtime_before)(self.u, v.0, early) })
    }

    /// From where a task is charged that joined so early, at `v`.
    pub fn vtime_after(&mut self, v: Vtime, early: u32) -> Vtime {
        // SAFETY: as in idle_enter().
        Vtime(unsafe { (self.api.vtime_after)(self.u, v.0, early) })
    }

    /// A task that slept joins `queue` at `v`.
    pub fn vtime_slept(&mut self, v: Vtime, queue: Queue) {
        let queue = self.queue(queue);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.vtime_slept)(self.u, v.0, queue) }
    }

    /// Whether the clock of `queue` is to go on, where a task that began at `v` stops now, or goes on: [`Core::clock_advance`].
    pub fn clock_behind(&mut self, v: Vtime, queue: Queue, now_ns: u64) -> bool {
        let queue = self.queue(queue);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.clock_behind)(self.u, v.0, queue, now_ns) }
    }

    /// The clock of `queue` goes on to where a task began, at `v`; if the first who waits there, which is charged from `first`, may not run where
    /// the task does, not far beyond that.
    pub fn clock_advance(&mut self, v: Vtime, queue: Queue, first: Option<Vtime>, now_ns: u64) {
        let queue = self.queue(queue);
        let first = first.unwrap_or_default();
        // SAFETY: as in idle_enter().
        unsafe { (self.api.clock_advance)(self.u, v.0, queue, first.0, now_ns) }
    }

    /// The virtual time of a task that began at `v` and ran `ran_ns` on `cid`. The default weight is 100.
    pub fn vtime_charge(&mut self, v: Vtime, cid: Cid, ran_ns: u64, weight: u32) -> Vtime {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        Vtime(unsafe { (self.api.vtime_charge)(self.u, v.0, cid, ran_ns, weight) })
    }

    /// The virtual time that a task takes along which was charged, at `v`, by the clock of `queue`, and goes to sleep.
    pub fn vtime_sleep(&mut self, v: Vtime, queue: Queue) -> Vtime {
        let queue = self.queue(queue);
        // SAFETY: as in idle_enter().
        Vtime(unsafe { (self.api.vtime_sleep)(self.u, v.0, queue) })
    }

    /// A hinted task that lived in the LLC `from` lives in `to` from now on; `None`: nowhere, or nobody knew.
    pub fn settle(&mut self, from: Option<Llc>, to: Option<Llc>) {
        let number = |llc: Option<Llc>| llc.map_or(u32::MAX, |llc| self.llc(llc));
        let (from, to) = (number(from), number(to));
        // SAFETY: as in idle_enter(); the number of no LLC changes nothing.
        unsafe { (self.api.settle)(self.u, from, to) }
    }

    /// The hints to place a task by: wake-affine in place of wake-hold where that keeps it from the only one who
    /// wakes it.
    pub fn hold(&mut self, request: &Request, kept: &mut Hold) -> Hints {
        let request = self.request(request);
        // SAFETY: as in place().
        let bits = unsafe { (self.api.hold)(self.u, &request, &mut kept.0) };
        Hints::from_bits(bits).expect("one of a pair for the other")
    }

    /// Whether a wakeup is one that [`Core::follow`] counts: a sync one by a CPU of another LLC, of a task that does not hold.
    pub fn from_elsewhere(&mut self, request: &Request) -> bool {
        let request = self.request(request);
        // SAFETY: as in place().
        unsafe { (self.api.from_elsewhere)(self.u, &request) }
    }

    /// What becomes of the request of a task that was woken from elsewhere: a plain wakeup where its home is not the waker's
    /// LLC, and one by the waker's CPU instead of the last one where only that node woke it for a while. `sleeps` is how often it has
    /// slept in its life; it may wrap.
    pub fn follow(&mut self, request: &mut Request, kept: &mut Follow, sleeps: u32) {
        let mut raw = self.request(request);
        // SAFETY: as in place(); C reads and writes the request and what is kept.
        unsafe { (self.api.follow)(self.u, &mut raw, kept, sleeps) };
        if raw.wake == Wake::Wake as u32 {
            request.wake = Wake::Wake;
        }
        request.prev = Cid(raw.prev);
    }

    /// How many hinted tasks live in `llc`. Never traced.
    pub fn settled(&self, llc: Llc) -> u64 {
        let llc = self.llc(llc);
        // SAFETY: `u` is whole, the LLC exists; a read.
        unsafe { ffi::usher_tables_settled(self.u, llc) }
    }

    /// Whether the first task in `queue`, at `first`, goes before one at `v` whose slice ended, or which yields. The
    /// default weight is 100.
    pub fn vtime_due(
        &mut self,
        v: Vtime,
        first: Vtime,
        queue: Queue,
        weight: u32,
        yields: bool,
    ) -> bool {
        let queue = self.queue(queue);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.vtime_due)(self.u, v.0, first.0, queue, weight, yields) }
    }

    /// A task of this weight begins to run on `cid`, at `v`.
    pub fn turn_begin(&mut self, cid: Cid, v: Vtime, now_ns: u64, weight: u32) {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.turn_begin)(self.u, cid, v.0, now_ns, weight) }
    }

    /// A task of this weight that slept has joined the queue of the LLC of `query.from`, so early, while nobody was idle. It
    /// is charged from `v`. The CPU on which a turn ends for it.
    pub fn turn_cut(
        &mut self,
        query: &Query,
        v: Vtime,
        early: u32,
        now_ns: u64,
        weight: u32,
    ) -> Option<Cid> {
        let query = self.query(query);
        // SAFETY: as in place().
        some_cid(unsafe { (self.api.turn_cut)(self.u, &query, v.0, early, now_ns, weight) })
    }

    /// `waker` wakes a task and says that it is about to sleep, and the task waits in `queue`: whether it is
    /// handed to `waker`. The task's name is the host's.
    pub fn hand(&mut self, waker: Cid, queue: Queue, task: NonZeroU64) -> bool {
        let (waker, queue) = (self.cid(waker), self.queue(queue));
        // SAFETY: as in idle_enter().
        unsafe { (self.api.hand)(self.u, waker, queue, task.get()) }
    }

    /// The task that was handed to `cid` last, which may have been taken elsewhere; once.
    pub fn handed(&mut self, cid: Cid) -> Option<NonZeroU64> {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        NonZeroU64::new(unsafe { (self.api.handed)(self.u, cid) })
    }

    /// Whether `task` was handed to `cid`, which has yet to ask for it.
    pub fn promised(&mut self, cid: Cid, task: NonZeroU64) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.promised)(self.u, cid, task.get()) }
    }

    /// Whether `cid` takes the task of this weight that was handed to it, at `v`, before the one at `first`, the first in
    /// its queue, which is promised to another CPU or not.
    pub fn take_handed(
        &mut self,
        cid: Cid,
        first: Vtime,
        v: Vtime,
        weight: u32,
        promised: bool,
    ) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.take_handed)(self.u, cid, first.0, v.0, weight, promised) }
    }

    /// The task that runs on `cid` wakes `task`, and says that it is about to sleep: whether it always wakes that one, and then
    /// sleeps. The task's name is the host's. `paused` is how often the one that asks has slept or been interrupted in its life; it
    /// may wrap.
    pub fn pair_asks(
        &mut self,
        cid: Cid,
        asks: &mut Pair,
        task: NonZeroU64,
        paused: u32,
        now_ns: u64,
    ) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter(); C reads and writes the pair.
        unsafe { (self.api.pair_asks)(self.u, cid, asks, task.get(), paused, now_ns) }
    }

    /// Whether the task that runs on `cid`, and asks, leaves its partner where that ran last, on a core of its own that idles.
    /// `answers` is the partner's.
    pub fn pair_apart(&mut self, cid: Cid, asks: &mut Pair, answers: &Pair, prev: Cid) -> bool {
        let (cid, prev) = (self.cid(cid), self.cid(prev));
        // SAFETY: as in pair_asks().
        unsafe { (self.api.pair_apart)(self.u, cid, asks, answers, prev) }
    }

    /// Whether the task that runs on `cid` gives way to its partner of this weight, which would join the queue of their LLC at
    /// `v`, and `first` is the first there.
    pub fn pair_gives_way(
        &mut self,
        cid: Cid,
        asks: &mut Pair,
        v: Vtime,
        now_ns: u64,
        weight: u32,
        first: Option<Vtime>,
    ) -> Gives {
        let (cid, first) = (self.cid(cid), first.map_or(0, |first| first.0));
        let gives = &self.api.pair_gives_way;
        // SAFETY: as in pair_asks().
        let gives = unsafe { gives(self.u, cid, asks, v.0, now_ns, weight, first) };
        Gives::from_index(gives as usize).expect("an enum usher_gives")
    }

    /// The task that runs on `request.waker` gives way to its partner later: that one runs on a core that idles, or waits behind its
    /// waker, and is claimed no CPU. `request.prev` does not matter.
    pub fn pair_beside(&mut self, request: &Request) -> Decision {
        let request = self.request(request);
        // SAFETY: as in pair_asks(); the set lives as long as the request.
        Decision::from_c(unsafe { (self.api.pair_beside)(self.u, &request) })
    }

    /// The task that runs on `cid` has asked and not given way; a callback of the wakeup ends.
    pub fn pair_woke(&mut self, cid: Cid, now_ns: u64) {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.pair_woke)(self.u, cid, now_ns) }
    }

    /// Whether the task that runs on `cid` has asked in this turn: then [`Core::pair_sleeps`] is called when it sleeps.
    pub fn pair_asked(&mut self, cid: Cid) -> bool {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        unsafe { (self.api.pair_asked)(self.u, cid) }
    }

    /// The task that runs on `cid`, and has asked in this turn, sleeps.
    pub fn pair_sleeps(&mut self, cid: Cid, asks: &mut Pair, now_ns: u64) {
        let cid = self.cid(cid);
        // SAFETY: as in pair_asks().
        unsafe { (self.api.pair_sleeps)(self.u, cid, asks, now_ns) }
    }

    /// At the end of a slice on `cid`: another LLC, whose queue is so much longer than its own that it
    /// should take from there. Looks at one LLC a time.
    pub fn balance(&mut self, cid: Cid) -> Option<Queue> {
        let cid = self.cid(cid);
        // SAFETY: as in idle_enter().
        let queue = unsafe { (self.api.balance)(self.u, cid) };
        u32::try_from(queue).ok().map(Queue)
    }

    /// The clock of `queue`. Never traced.
    pub fn clock(&self, queue: Queue) -> Vtime {
        let queue = self.queue(queue);
        // SAFETY: `u` is whole, the LLC exists; a read.
        Vtime(unsafe { ffi::usher_tables_clock(self.u, queue) })
    }
}

/// The node-aware calls: `core/src/node.c`.
impl Core {
    /// The node of a CPU.
    ///
    /// # Errors
    /// No such CPU, or node-aware calls are off.
    pub fn cpu_node(&mut self, cpu: Cpu) -> Result<Node, PickError> {
        // SAFETY: as in idle_enter(); any number may be asked about.
        let node = unsafe { (self.api.cpu_node)(self.u, cpu.0) };
        some_pick(node).map(|node| Node(node.0))
    }

    /// Claims an idle CPU in `node` or, unless the query says otherwise, near it.
    ///
    /// # Errors
    /// All four kinds.
    pub fn pick_idle(&mut self, node: Node, query: &Query) -> Result<Cid, PickError> {
        let query = self.query(query);
        // SAFETY: as in place(); any node may be asked about.
        some_pick(unsafe { (self.api.pick_idle_node)(self.u, &query, node.0) })
    }

    /// The same, but where nobody is idle any allowed CPU will do; that one is not claimed.
    ///
    /// # Errors
    /// All but [`PickError::NoneIdle`].
    pub fn pick_any(&mut self, node: Node, query: &Query) -> Result<Cid, PickError> {
        let query = self.query(query);
        // SAFETY: as in pick_idle().
        some_pick(unsafe { (self.api.pick_any_node)(self.u, &query, node.0) })
    }

    /// The idle CPUs of a node.
    ///
    /// # Errors
    /// No such node, or node-aware calls are off.
    pub fn idle_cpus(&mut self, node: Node) -> Result<CidSet, PickError> {
        self.idle_set(node, false)
    }

    /// The CPUs of a node's wholly idle cores.
    ///
    /// # Errors
    /// No such node, or node-aware calls are off.
    pub fn idle_cores(&mut self, node: Node) -> Result<CidSet, PickError> {
        self.idle_set(node, true)
    }

    fn idle_set(&mut self, node: Node, cores: bool) -> Result<CidSet, PickError> {
        let mut set = CidSet::new();
        // SAFETY: as in pick_idle(); C writes within the words of a set.
        let n = set
            .write_with(|words| unsafe { (self.api.idle_set_node)(self.u, node.0, cores, words) });
        match u32::try_from(n) {
            Ok(_) => Ok(set),
            Err(_) => Err(PickError::from_code(n)),
        }
    }
}

/// What it counted and touched.
impl Core {
    /// Counters summed over all CPUs.
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for cid in 0..self.nr_cids {
            sum += self.statistics_of(Cid(cid));
        }
        sum
    }

    /// Counters of one CPU: of the decisions it made, not of those that chose it.
    pub fn statistics_of(&self, cid: Cid) -> Statistics {
        let cid = self.cid(cid);
        let mut counts = Statistics::default();
        // SAFETY: `u` is whole, the cid exists, the arrays have C's lengths.
        unsafe {
            ffi::usher_tables_add_counts(self.u, cid, &mut counts.reasons, &mut counts.events);
        }
        counts
    }

    /// The accesses to shared memory since [`Core::clear_accesses`], oldest first. Empty unless traced.
    pub fn accesses(&self) -> &[Access] {
        if !self.traced {
            return &[];
        }
        // SAFETY: a traced core has a log with `nr` entries written, and nobody writes while &self lives.
        unsafe {
            let log = &*(*self.host).log;
            std::slice::from_raw_parts(log.entries.cast(), log.nr as usize)
        }
    }

    /// Forgets the accesses. Returns how many found the log full since the last time: none, if a host
    /// clears it after every call.
    pub fn clear_accesses(&mut self) -> u64 {
        // SAFETY: every core has a log, if one of no entries.
        unsafe {
            let log = &mut *(*self.host).log;
            log.nr = 0;
            std::mem::take(&mut log.lost)
        }
    }

    /// Where a shard's idle word lies, in bytes from the start of the block: what a traced access to it
    /// has as its offset.
    pub fn idle_word_offset(&self, shard: Shard) -> u64 {
        let shard = self.shard(shard);
        // SAFETY: `u` is whole, the shard exists.
        unsafe { ffi::usher_tables_word_offset(self.u, shard) }
    }

    /// Whether the node's summary says that somebody of this shard may be idle. Never traced.
    pub fn in_summary(&self, shard: Shard) -> bool {
        let shard = self.shard(shard);
        // SAFETY: `u` is whole, the shard exists.
        unsafe { ffi::usher_tables_summary_has(self.u, shard) }
    }

    /// Whether `queue` is announced. Never traced.
    pub fn in_backlog(&self, queue: Queue) -> bool {
        let queue = self.queue(queue);
        // SAFETY: `u` is whole, the LLC exists.
        unsafe { ffi::usher_tables_backlog_has(self.u, queue) }
    }
}

/// Builds the tables in memory of the caller's, such as a BPF arena that kernel programs share. The result
/// is a `struct usher` at the start of `mem`, with pointers as this process sees that memory.
///
/// # Safety
/// `mem` points to `bytes` zeroed bytes that are valid for writes and that nobody else uses meanwhile.
///
/// # Errors
/// As for [`Core::new`], and if the memory is too small or not on a line boundary.
pub unsafe fn build_into(
    tables: &Tables,
    settings: &Settings,
    mem: *mut u8,
    bytes: usize,
) -> Result<Foreign, BuildError> {
    let needed = bytes_needed(tables, settings)?;
    if bytes < needed || !mem.addr().is_multiple_of(64) {
        return Err(BuildError::Memory {
            needed,
            given: bytes,
            address: mem.addr(),
        });
    }
    let spec = tables.spec(settings);
    // SAFETY: checked here or promised by the caller.
    let u = unsafe { ffi::usher_tables_build(&spec, mem, ptr::null_mut()) };
    Ok(Foreign { u })
}

/// How many bytes [`build_into`] needs.
///
/// # Errors
/// As for [`Core::new`].
pub fn bytes_needed(tables: &Tables, settings: &Settings) -> Result<usize, BuildError> {
    tables.check(settings)?;
    let spec = tables.spec(settings);
    // SAFETY: the spec was checked.
    let bytes = unsafe { ffi::usher_tables_bytes(&spec) };
    Ok(usize::try_from(bytes).expect("counted for this address space"))
}

/// A core that lives in memory of somebody else's and runs elsewhere, such as in the kernel. Readings race with the
/// counting and are as old as they are.
#[derive(Debug)]
pub struct Foreign {
    u: *mut ffi::Usher,
}

// SAFETY: it only reads, and the memory is promised to stay (see the methods).
unsafe impl Send for Foreign {}

impl Foreign {
    /// A core that was built at `mem` before, for example by an earlier process.
    ///
    /// # Safety
    /// [`build_into`] was called for this memory, mapped at this address.
    pub unsafe fn at(mem: *mut u8) -> Self {
        Self { u: mem.cast() }
    }

    /// Bytes of a copy: see [`Foreign::copy`].
    pub fn copy_bytes() -> usize {
        // SAFETY: no arguments, no effects.
        unsafe { ffi::usher_tables_copy_bytes() as usize }
    }

    /// Writes a copy of `struct usher`, the head of the tables, that points to the same tables but to another host: for a CPU that
    /// records what it sees.
    ///
    /// # Safety
    /// The memory is still mapped, and there are [`Foreign::copy_bytes`] at `to`, on a boundary of 8, that nobody reads yet.
    pub unsafe fn copy(&self, to: *mut u8, host: u64) {
        // SAFETY: as promised by the caller; the host is only kept.
        unsafe { ffi::usher_tables_copy(self.u, to.cast(), host as *mut ffi::Host) };
    }

    /// How many CPUs.
    ///
    /// # Safety
    /// The memory is still mapped.
    pub unsafe fn nr_cids(&self) -> usize {
        // SAFETY: the tables stand at `u`, says the caller.
        unsafe { ffi::usher_tables_nr_cids(self.u) as usize }
    }

    /// How many hinted tasks live in each LLC.
    ///
    /// # Safety
    /// The memory is still mapped.
    pub unsafe fn settled(&self) -> Vec<u64> {
        // SAFETY: the tables stand at `u`, says the caller.
        unsafe {
            (0..ffi::usher_tables_nr_llcs(self.u))
                .map(|llc| ffi::usher_tables_settled(self.u, llc))
                .collect()
        }
    }

    /// Counters of one CPU; nothing for a cid that does not exist.
    ///
    /// # Safety
    /// The memory is still mapped.
    pub unsafe fn statistics_of(&self, cid: Cid) -> Statistics {
        let mut counts = Statistics::default();
        // SAFETY: the tables stand at `u`, says the caller; the cid was compared with their size.
        unsafe {
            if (cid.0 as usize) < self.nr_cids() {
                ffi::usher_tables_add_counts(
                    self.u,
                    cid.0,
                    &mut counts.reasons,
                    &mut counts.events,
                );
            }
        }
        counts
    }

    /// Counters summed over all CPUs.
    ///
    /// # Safety
    /// The memory is still mapped.
    pub unsafe fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        // SAFETY: as promised by the caller.
        unsafe {
            for cid in 0..self.nr_cids() {
                sum += self.statistics_of(Cid(cid as u32));
            }
        }
        sum
    }

    /// Whether a CPU's idle bit is set; false for a cid that does not exist.
    ///
    /// # Safety
    /// The memory is still mapped.
    pub unsafe fn is_idle(&self, cid: Cid) -> bool {
        // SAFETY: as in statistics_of().
        unsafe { (cid.0 as usize) < self.nr_cids() && ffi::usher_tables_is_idle(self.u, cid.0) }
    }
}
