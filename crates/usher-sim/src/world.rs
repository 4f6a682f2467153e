// SPDX-License-Identifier: GPL-2.0-only
//! The objects that the tasks of a workload share: futexes, channels, locks, plain memory, metrics.
//!
//! A workload creates them before the run (or a program during it, through
//! [`crate::program::TaskCtx::world`]) and hands their ids to its programs. The engine keeps who waits on
//! what here, too.

use std::collections::{BTreeMap, VecDeque};

use crate::channel::MessageLines;
use crate::ids::{ids, Cpu, LineId, Nanos, TaskId};
use crate::metrics::WorkloadMetrics;
use crate::pipe::Ring;
use crate::waitlist::WaitList;

ids! {
    /// A futex: a value and who waits on it.
    Futex;
    /// A pipe or one direction of a socket.
    Channel;
    /// A mutex.
    Mutex;
    /// A condition variable.
    Cond;
    /// A barrier.
    Barrier;
    /// A counting semaphore.
    Semaphore;
    /// A shared word of plain memory.
    Word;
    /// A shared list of numbers in plain memory.
    List;
    /// A latency histogram.
    LatencyId;
    /// A counter of operations.
    CounterId;
    /// A result that is one number.
    ValueId;
}

/// How a channel behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Bytes it holds before a writer blocks.
    pub capacity: u64,
    /// Bookkeeping bytes that each write takes up besides its data (a socket's buffer header).
    pub overhead: u64,
    /// Writers blocked on a full channel are woken, all of them, when no more than this share of the capacity,
    /// in thousandths, is taken.
    pub writers_wake_permille: u32,
    /// Wakeups through it are synchronous (`WF_SYNC`).
    pub sync: bool,
    /// Fixed cost of a write, as TCP's protocol processing, in ns, on top of the system call and the
    /// copy. Over loopback it includes the receiving side's, which runs on the sender's CPU.
    pub write_ns: u64,
    /// The same of a read.
    pub read_ns: u64,
    /// A socket within the machine: each read and write costs `syscall.unix_ns` more, and goes through other lines (`channel.rs`).
    pub unix: bool,
    /// A pipe: a ring of 16 pages behind a mutex. Who waits and who is woken follows from that (`pipe.rs`), not from `capacity`,
    /// `overhead` and `writers_wake_*`.
    pub pipe: bool,
}

impl ChannelSpec {
    /// A pipe.
    pub const PIPE: ChannelSpec = ChannelSpec {
        capacity: 65_536,
        overhead: 0,
        writers_wake_permille: 999,
        sync: true,
        write_ns: 0,
        read_ns: 0,
        unix: false,
        pipe: true,
    };

    /// One direction of a stream socket pair: the default `wmem_default` of 212,992 bytes, of which a
    /// small message takes its data plus a header of some 768 bytes; writers are woken when no more than a
    /// quarter of it is taken (`unix_writable` in net/unix/af_unix.c).
    pub const UNIX_SOCKET: ChannelSpec = ChannelSpec {
        capacity: 212_992,
        overhead: 768,
        writers_wake_permille: 250,
        sync: true,
        write_ns: 0,
        read_ns: 0,
        unix: true,
        pipe: false,
    };

    /// One direction of a TCP connection over loopback.
    pub const TCP_LOOPBACK: ChannelSpec = ChannelSpec {
        capacity: 2_626_560,
        overhead: 768,
        writers_wake_permille: 667,
        sync: true,
        write_ns: 1_467,
        read_ns: 300,
        unix: false,
        pipe: false,
    };
}

/// How a mutex hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutexKind {
    /// Unlocking frees it and wakes one waiter, which has to compete for it (an ordinary futex mutex).
    Barging,
    /// Unlocking gives it to the waiter of highest priority, and who holds it runs at least at the
    /// priority of its waiters (`PTHREAD_PRIO_INHERIT`).
    PriorityInheritance,
}

#[derive(Debug, Default)]
pub(crate) struct FutexState {
    pub value: u64,
    pub waiters: WaitList,
    pub line: Option<LineId>,
}

#[derive(Debug)]
pub(crate) struct ChannelState {
    pub spec: ChannelSpec,
    /// Data bytes in it.
    pub bytes: u64,
    /// What they take up, overhead included.
    pub used: u64,
    /// Where they are in a pipe.
    pub ring: Ring,
    pub last_writer: Option<Cpu>,
    pub readers: WaitList,
    pub writers: WaitList,
    pub line: Option<LineId>,
    pub message: Option<MessageLines>,
    /// The counts of the files that its ends are.
    pub files: [Option<LineId>; 2],
    /// In `poll`; a task may be in those of many channels.
    pub pollers: Vec<TaskId>,
}

#[derive(Debug)]
pub(crate) struct MutexState {
    pub kind: MutexKind,
    pub owner: Option<TaskId>,
    pub waiters: WaitList,
    pub line: Option<LineId>,
}

#[derive(Debug, Default)]
pub(crate) struct CondState {
    pub waiters: WaitList,
    pub line: Option<LineId>,
}

#[derive(Debug)]
pub(crate) struct BarrierState {
    pub parties: u32,
    pub arrived: u32,
    pub waiters: WaitList,
    pub line: Option<LineId>,
}

#[derive(Debug)]
pub(crate) struct SemaphoreState {
    pub value: u64,
    pub waiters: WaitList,
    pub line: Option<LineId>,
}

/// An object that a task can wait for, to give it a name by [`World::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A futex.
    Futex(Futex),
    /// A pipe or one direction of a socket.
    Channel(Channel),
    /// A mutex.
    Mutex(Mutex),
    /// A condition variable.
    Cond(Cond),
    /// A barrier.
    Barrier(Barrier),
    /// A semaphore.
    Semaphore(Semaphore),
}

/// All shared objects of a workload.
#[derive(Debug, Default)]
pub struct World {
    names: BTreeMap<Object, Box<str>>,
    pub(crate) futexes: Vec<FutexState>,
    pub(crate) channels: Vec<ChannelState>,
    pub(crate) mutexes: Vec<MutexState>,
    pub(crate) conds: Vec<CondState>,
    pub(crate) barriers: Vec<BarrierState>,
    pub(crate) semaphores: Vec<SemaphoreState>,
    words: Vec<u64>,
    lists: Vec<VecDeque<u64>>,
    pub(crate) metrics: WorkloadMetrics,
    /// From when is to be measured, and until when if the run ends then; until the host knows.
    pub(crate) measured: Option<(Nanos, Option<Nanos>)>,
}

fn push<T>(table: &mut Vec<T>, item: T) -> u32 {
    let index = u32::try_from(table.len()).expect("fewer than 2^32 objects");
    table.push(item);
    index
}

impl World {
    /// An empty world.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives an object the name under which reports speak of it.
    pub fn name(&mut self, object: Object, name: &str) {
        self.names.insert(object, name.into());
    }

    /// An object as reports speak of it: what it is, with its name in quotes, or else its number.
    pub(crate) fn describe(&self, object: Object) -> String {
        let (kind, number) = match object {
            Object::Futex(o) => ("futex", o.0),
            Object::Channel(o) => ("channel", o.0),
            Object::Mutex(o) => ("mutex", o.0),
            Object::Cond(o) => ("condition variable", o.0),
            Object::Barrier(o) => ("barrier", o.0),
            Object::Semaphore(o) => ("semaphore", o.0),
        };
        match self.names.get(&object) {
            Some(name) => format!("{kind} `{name}`"),
            None => format!("{kind} {number}"),
        }
    }

    /// A futex with an initial value.
    pub fn new_futex(&mut self, value: u64) -> Futex {
        Futex(push(
            &mut self.futexes,
            FutexState {
                value,
                ..FutexState::default()
            },
        ))
    }

    /// A pipe or one direction of a socket.
    pub fn new_channel(&mut self, spec: ChannelSpec) -> Channel {
        Channel(push(
            &mut self.channels,
            ChannelState {
                spec,
                bytes: 0,
                used: 0,
                ring: Ring::default(),
                last_writer: None,
                readers: WaitList::default(),
                writers: WaitList::default(),
                line: None,
                message: None,
                files: [None; 2],
                pollers: Vec::new(),
            },
        ))
    }

    /// An unlocked mutex.
    pub fn new_mutex(&mut self, kind: MutexKind) -> Mutex {
        let state = MutexState {
            kind,
            owner: None,
            waiters: WaitList::default(),
            line: None,
        };
        Mutex(push(&mut self.mutexes, state))
    }

    /// A condition variable.
    pub fn new_cond(&mut self) -> Cond {
        Cond(push(&mut self.conds, CondState::default()))
    }

    /// A barrier for this many tasks.
    ///
    /// # Panics
    /// If `parties` is 0.
    pub fn new_barrier(&mut self, parties: u32) -> Barrier {
        assert!(parties > 0, "a barrier needs at least one task");
        let state = BarrierState {
            parties,
            arrived: 0,
            waiters: WaitList::default(),
            line: None,
        };
        Barrier(push(&mut self.barriers, state))
    }

    /// A semaphore with an initial value.
    pub fn new_semaphore(&mut self, value: u64) -> Semaphore {
        let state = SemaphoreState {
            value,
            waiters: WaitList::default(),
            line: None,
        };
        Semaphore(push(&mut self.semaphores, state))
    }

    /// A shared word of plain memory.
    pub fn new_word(&mut self, value: u64) -> Word {
        Word(push(&mut self.words, value))
    }

    /// A shared, empty list.
    pub fn new_list(&mut self) -> List {
        List(push(&mut self.lists, VecDeque::new()))
    }

    /// A latency histogram. Its results are called `<name>_ns_p50`, `<name>_ns_p99`, `<name>_ns_max` and
    /// so on.
    pub fn new_latency(&mut self, name: &str) -> LatencyId {
        self.metrics.new_latency(name)
    }

    /// A counter. Its results are called `<name>` and `<name>_per_s`.
    pub fn new_counter(&mut self, name: &str) -> CounterId {
        self.metrics.new_counter(name)
    }

    /// A single number. Its result is called `<name>`; put the unit last. `elapsed_ns` is how long the workload took by its own
    /// count, and what all rates are over.
    pub fn new_value(&mut self, name: &str) -> ValueId {
        self.metrics.new_value(name)
    }

    /// A shared word.
    pub fn word(&mut self, word: Word) -> &mut u64 {
        &mut self.words[word.index()]
    }

    /// A shared list.
    pub fn list(&mut self, list: List) -> &mut VecDeque<u64> {
        &mut self.lists[list.index()]
    }

    /// The value of a futex.
    pub fn futex_value(&mut self, futex: Futex) -> &mut u64 {
        &mut self.futexes[futex.index()].value
    }
}
