// SPDX-License-Identifier: GPL-2.0-only
//! What system calls, switches and wakeups cost. What cannot be timed alone is what a longer way takes more than its other parts.

use std::io::{self, Error};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::measure::Alone;
use super::super::reckon::{median, sorted};
use super::{low, on, time, TURNS};

/// Bytes of a message: hackbench's.
const MESSAGE: usize = 100;
/// Passes of a byte to and fro in a turn.
const PASSES: u32 = 200;
/// Wakeups, births and deaths that are timed one by one.
const SINGLES: u32 = 200;
/// A task that was woken and has not run after so long never will.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a CPU is left alone before somebody wakes it: too short for a deep idle state, and long enough for any.
const REST: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// Nanoseconds of each.
#[derive(Debug)]
pub struct Calls {
    pub syscall: f64,
    pub futex: f64,
    pub rw: f64,
    pub unix: f64,
    /// A write to a TCP connection over loopback, the receiving side's work included.
    pub tcp_write: io::Result<f64>,
    pub poll: f64,
    pub sem: io::Result<f64>,
    pub sched: f64,
    pub sleep: f64,
    pub schedule: f64,
}

/// System calls that wait for nobody, on this CPU.
pub fn calls() -> io::Result<Calls> {
    // SAFETY: no pointers.
    let syscall = time(|| unsafe {
        libc::syscall(libc::SYS_getppid);
    });
    let beyond = |total: f64| (total - syscall).max(0.0);
    let word = AtomicU32::new(0);
    let futex = beyond(time(|| futex_wake(&word)));
    let (read, write) = pipe()?;
    let (written, found) = through(write.as_raw_fd(), read.as_raw_fd());
    let rw = beyond((written + found) / 2.0);
    let (left, right) = UnixStream::pair()?;
    let (written, found) = through(left.as_raw_fd(), right.as_raw_fd());
    let unix = (beyond((written + found) / 2.0) - rw).max(0.0);
    // A container may have no loopback device.
    let tcp_write = tcp_pair().map(|(client, server)| {
        let (written, _) = through(client.as_raw_fd(), server.as_raw_fd());
        (beyond(written) - rw).max(0.0)
    });
    let poll = {
        let one = |nr: libc::nfds_t| {
            let entry = libc::pollfd {
                fd: read.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let mut entries = [entry; 17];
            // SAFETY: `nr` is at most the number of entries.
            time(|| unsafe {
                libc::poll(entries.as_mut_ptr(), nr, 0);
            })
        };
        ((one(17) - one(1)) / 16.0).max(0.0)
    };
    let sem = semop_ns().map(beyond);
    let sched = {
        // SAFETY: all bits zero is an empty set, which the call fills; it is valid for both calls.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
            beyond(time(|| {
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
            }))
        }
    };
    // SAFETY: no pointers; it takes nothing and gives a new file.
    let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) })?;
    let sleep = {
        // SAFETY: all bits zero is no time, no interval.
        let mut at: libc::itimerspec = unsafe { std::mem::zeroed() };
        at.it_value.tv_sec = 1000;
        // SAFETY: the structure is valid for the call; no old value is asked for.
        beyond(time(|| unsafe {
            libc::timerfd_settime(timer.as_raw_fd(), 0, &at, std::ptr::null_mut());
        }))
    };
    // Nobody else is here, so the caller goes on.
    // SAFETY: no pointers.
    let schedule = beyond(time(|| unsafe {
        libc::sched_yield();
    }));
    Ok(Calls {
        syscall,
        futex,
        rw,
        unix,
        tcp_write,
        poll,
        sem,
        sched,
        sleep,
        schedule,
    })
}

fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    client.set_nodelay(true)?;
    Ok((client, listener.accept()?.0))
}

/// A message into a file and out of it, each, many one after the other: nobody waits, and nothing is empty or full in between.
fn through(into: RawFd, out_of: RawFd) -> (f64, f64) {
    const IN_A_ROW: usize = 32;
    let mut message = [0_u8; MESSAGE];
    let turns = (0..20 * TURNS).map(|_| {
        let start = Instant::now();
        for _ in 0..IN_A_ROW {
            // SAFETY: so many bytes are there.
            unsafe { libc::write(into, message.as_ptr().cast(), MESSAGE) };
        }
        let between = Instant::now();
        for _ in 0..IN_A_ROW {
            // SAFETY: there is room for so many.
            unsafe { libc::read(out_of, message.as_mut_ptr().cast(), MESSAGE) };
        }
        let each = |time: Duration| time.as_nanos() as f64 / IN_A_ROW as f64;
        (each(between - start), each(between.elapsed()))
    });
    let (written, found) = turns.unzip();
    (low(written), low(found))
}

/// Up and down of a semaphore that nobody waits for, each.
fn semop_ns() -> io::Result<f64> {
    // SAFETY: no pointers; a set of one semaphore that only this process can find.
    let id = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
    if id < 0 {
        return Err(Error::last_os_error());
    }
    let step = |by: i16| {
        let mut operation = libc::sembuf {
            sem_num: 0,
            sem_op: by,
            sem_flg: 0,
        };
        // SAFETY: one operation, valid for the call.
        unsafe { libc::semop(id, &mut operation, 1) };
    };
    let both = time(|| {
        step(1);
        step(-1);
    });
    // SAFETY: the set is ours.
    unsafe { libc::semctl(id, 0, libc::IPC_RMID) };
    Ok(both / 2.0)
}

/// A byte goes to and fro between two tasks of one CPU: a pass from one to the other.
pub fn pass_ns(cpu: usize, processes: bool) -> io::Result<f64> {
    let (there, back) = (pipe()?, pipe()?);
    let ask = |turns: usize| -> Vec<f64> {
        let turn = |_| {
            let start = Instant::now();
            for _ in 0..PASSES {
                put(there.1.as_raw_fd());
                get(back.0.as_raw_fd());
            }
            start.elapsed().as_nanos() as f64 / f64::from(2 * PASSES)
        };
        (0..turns).map(turn).collect()
    };
    let answer = |turns: usize| {
        for _ in 0..turns as u32 * PASSES {
            get(there.0.as_raw_fd());
            put(back.1.as_raw_fd());
        }
    };
    on(cpu)?;
    if processes {
        let child = fork(|| answer(TURNS))?;
        let turns = ask(TURNS);
        reap(child);
        return Ok(low(turns));
    }
    thread::scope(|scope| {
        // They stay where they are born.
        scope.spawn(|| answer(TURNS));
        Ok(low(ask(TURNS)))
    })
}

/// A call that wakes a task of the caller's CPU which does not take it: many are woken, one after the other, before the
/// caller sleeps and lets them run.
pub fn wake_here_ns(cpu: usize) -> io::Result<f64> {
    const SLEEPERS: u32 = 64;
    let (generation, asleep, over) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    on(cpu)?;
    let sleeper = || -> io::Result<()> {
        idle_class().inspect_err(|_| over.store(true, Ordering::Release))?;
        loop {
            let seen = generation.load(Ordering::Acquire);
            if over.load(Ordering::Acquire) {
                return Ok(());
            }
            asleep.fetch_add(1, Ordering::AcqRel);
            while generation.load(Ordering::Acquire) == seen {
                futex_wait(&generation, seen);
            }
        }
    };
    let wake_all = || -> f64 {
        while asleep.load(Ordering::Acquire) < SLEEPERS && !over.load(Ordering::Acquire) {
            thread::sleep(REST[0]);
        }
        // The last of them is on its way into its sleep.
        thread::sleep(REST[1]);
        asleep.store(0, Ordering::Release);
        generation.fetch_add(1, Ordering::AcqRel);
        let start = Instant::now();
        for _ in 0..SLEEPERS {
            futex_wake(&generation);
        }
        start.elapsed().as_nanos() as f64 / f64::from(SLEEPERS)
    };
    thread::scope(|scope| {
        let sleepers: Vec<_> = (0..SLEEPERS).map(|_| scope.spawn(sleeper)).collect();
        let turns = (0..TURNS).map(|_| wake_all()).collect();
        over.store(true, Ordering::Release);
        generation.fetch_add(1, Ordering::AcqRel);
        (0..SLEEPERS).for_each(|_| futex_wake(&generation));
        for sleeper in sleepers {
            sleeper.join().expect("a loop cannot panic")?;
        }
        Ok(low(turns))
    })
}

/// Waking a task.
#[derive(Clone, Copy, Debug)]
pub struct Wakeup {
    /// The waker's call.
    pub call: f64,
    /// From the call until the woken task runs.
    pub until: f64,
}

/// Where a task sleeps that is woken, and beside what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeps {
    /// On the waker's CPU, as a task of the idle class: it waits until the waker sleeps.
    Here,
    /// On another CPU that has nothing to do and was left alone for so long.
    Idle(Duration),
    /// On another CPU, which a task of the idle class keeps busy.
    Busy,
}

impl Sleeps {
    /// On an idle CPU, in a shallow state and in a deep one.
    pub const IDLE: [Self; 2] = [Self::Idle(REST[0]), Self::Idle(REST[1])];
}

/// A task on `from` wakes one on `to`.
pub fn wakeup(from: usize, to: usize, sleeps: Sleeps) -> io::Result<Wakeup> {
    let (generation, woken_at, over) =
        (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let origin = Instant::now();
    let now = || origin.elapsed().as_nanos() as u64;
    let wait = || -> io::Result<()> {
        on(to)?;
        if sleeps == Sleeps::Here {
            idle_class()?;
        }
        let mut seen = 0;
        while !over.load(Ordering::Acquire) {
            futex_wait(&generation, seen);
            if generation.load(Ordering::Acquire) != seen {
                seen += 1;
                woken_at.store(now(), Ordering::Release);
            }
        }
        Ok(())
    };
    let wake = || -> io::Result<Wakeup> {
        on(from)?;
        let (mut calls, mut until) = (Vec::new(), Vec::new());
        for _ in 0..SINGLES {
            rest(sleeps);
            woken_at.store(0, Ordering::Release);
            generation.fetch_add(1, Ordering::AcqRel);
            let start = now();
            futex_wake(&generation);
            calls.push((now() - start) as f64);
            let patience = Instant::now();
            let woken = loop {
                match woken_at.load(Ordering::Acquire) {
                    0 if patience.elapsed() > PATIENCE => {
                        return Err(Error::other("a task that was woken does not run"));
                    }
                    0 if sleeps == Sleeps::Here => thread::sleep(REST[0]),
                    0 => std::hint::spin_loop(),
                    at => break at,
                }
            };
            until.push(woken.saturating_sub(start) as f64);
        }
        Ok(Wakeup {
            call: low(calls),
            // What a wakeup takes is not the least that it ever took.
            until: median(&sorted(until)),
        })
    };
    let spin = || -> io::Result<()> {
        on(to)?;
        idle_class()?;
        while !over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        Ok(())
    };
    thread::scope(|scope| {
        let waiter = scope.spawn(wait);
        let spinner = (sleeps == Sleeps::Busy).then(|| scope.spawn(spin));
        let found = scope.spawn(wake).join().expect("a loop cannot panic");
        over.store(true, Ordering::Release);
        generation.fetch_add(1, Ordering::AcqRel);
        futex_wake(&generation);
        waiter.join().expect("a loop cannot panic")?;
        spinner.map_or(Ok(()), |spinner| {
            spinner.join().expect("a loop cannot panic")
        })?;
        found
    })
}

/// Tasks of the idle class, whose CPU another task keeps busy.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// A call that wakes the first of them from another CPU.
    pub call: f64,
    /// How much longer it takes, from when who kept their CPU busy goes to sleep until the first runs, than if that one woke them.
    pub back: f64,
    /// What each of the others adds to both, beyond what it adds if that one woke them.
    pub more: f64,
}

/// One of them.
#[derive(Default)]
struct Sleeper {
    generation: AtomicU32,
    slept: AtomicU64,
    ran_at: AtomicU64,
    /// How long the call took that woke it.
    call: AtomicU64,
}

/// What a turn took: the first call, each other call, until the first ran, each other from the one before.
type Turn = [f64; 4];

/// A task on `from` wakes so many on `to` that have to wait there, one after the other, and by turns somebody on `to` does. Nobody is interrupted
/// for it. `None`: others keep `to` too busy, before whom a task of the idle class hardly ever runs.
pub fn account(from: usize, to: usize, crowd: usize) -> io::Result<Option<Account>> {
    const WAKER: u32 = 1;
    const KEEPER: u32 = 2;
    const FEWEST: usize = 20;
    const LONGEST: Duration = Duration::from_secs(5);
    let sleepers: Vec<Alone<Sleeper>> = (0..crowd).map(|_| Alone::default()).collect();
    let sleepers: Vec<&Sleeper> = sleepers.iter().map(|sleeper| &sleeper.0).collect();
    let [kept, wakes] = [0; 2].map(AtomicU32::new);
    let left_at = AtomicU64::new(0);
    let (held, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let origin = Instant::now();
    let now = || origin.elapsed().as_nanos() as u64;
    let wake = || {
        for sleeper in &sleepers {
            sleeper.generation.fetch_add(1, Ordering::AcqRel);
            let start = now();
            futex_wake(&sleeper.generation);
            sleeper.call.store(now() - start, Ordering::Relaxed);
        }
        wakes.store(0, Ordering::Release);
    };
    let sleep = |me: &Sleeper| -> io::Result<()> {
        on(to)?;
        idle_class()?;
        while !over.load(Ordering::Acquire) {
            let seen = me.generation.load(Ordering::Acquire);
            me.slept.fetch_add(1, Ordering::AcqRel);
            while me.generation.load(Ordering::Acquire) == seen {
                futex_wait(&me.generation, seen);
            }
            me.ran_at.store(now(), Ordering::Release);
        }
        Ok(())
    };
    let keep = || -> io::Result<()> {
        on(to)?;
        while !over.load(Ordering::Acquire) {
            if kept.load(Ordering::Acquire) == 0 {
                left_at.store(now(), Ordering::Release);
                futex_wait(&kept, 0);
                continue;
            }
            held.store(true, Ordering::Release);
            if wakes.load(Ordering::Acquire) == KEEPER {
                wake();
            }
            std::hint::spin_loop();
        }
        Ok(())
    };
    let patient = |done: &dyn Fn() -> bool, rests: bool| {
        let start = Instant::now();
        while !done() {
            if start.elapsed() > PATIENCE {
                return Err(Error::other("a task that was woken does not run"));
            }
            match rests {
                true => thread::sleep(REST[0]),
                false => std::hint::spin_loop(),
            }
        }
        Ok(())
    };
    let asleep = |turns: u64| {
        let slept = |sleeper: &&Sleeper| sleeper.slept.load(Ordering::Acquire) > turns;
        patient(&|| sleepers.iter().all(slept), true)
    };
    let turn = |by: u32| -> io::Result<()> {
        thread::sleep(REST[0]);
        held.store(false, Ordering::Release);
        wakes.store(by, Ordering::Release);
        kept.store(1, Ordering::Release);
        futex_wake(&kept);
        patient(&|| held.load(Ordering::Acquire), false)?;
        rest(Sleeps::Busy);
        if by == WAKER {
            wake();
        }
        patient(&|| wakes.load(Ordering::Acquire) == 0, false)?;
        rest(Sleeps::Busy);
        kept.store(0, Ordering::Release);
        Ok(())
    };
    // `None`: on a busy machine one may have run before the keeper saw that it may go.
    let took = || -> Option<Turn> {
        let calls = sleepers
            .iter()
            .map(|s| s.call.load(Ordering::Relaxed) as f64);
        let calls: Vec<f64> = calls.collect();
        let mut ran: Vec<u64> =
            (sleepers.iter().map(|s| s.ran_at.load(Ordering::Acquire))).collect();
        ran.sort_unstable();
        let others = (crowd - 1).max(1) as f64;
        let back = ran[0].checked_sub(left_at.load(Ordering::Acquire))?;
        let all = ran[crowd - 1] - ran[0];
        Some([
            calls[0],
            calls[1..].iter().sum::<f64>() / others,
            back as f64,
            all as f64 / others,
        ])
    };
    let turns = || -> io::Result<Option<Account>> {
        on(from)?;
        let mut found: [Vec<Turn>; 2] = Default::default();
        let begun = Instant::now();
        for nr in 0..2 * u64::from(SINGLES) {
            if begun.elapsed() > LONGEST {
                break;
            }
            asleep(nr)?;
            let by = nr as usize % 2;
            turn([WAKER, KEEPER][by])?;
            asleep(nr + 1)?;
            found[by].extend(took());
        }
        if found.iter().any(|turns| turns.len() < FEWEST) {
            return Ok(None);
        }
        let [elsewhere, here] = found.map(|turns| {
            [0, 1, 2, 3].map(|what| low(turns.iter().map(|turn| turn[what]).collect()))
        });
        Ok(Some(Account {
            call: elsewhere[0],
            back: elsewhere[2] - here[2],
            more: elsewhere[1] - here[1] + elsewhere[3] - here[3],
        }))
    };
    thread::scope(|scope| {
        let keeper = scope.spawn(keep);
        let sleeping: Vec<_> = (sleepers.iter())
            .map(|me| scope.spawn(|| sleep(me)))
            .collect();
        let found = scope.spawn(turns).join();
        over.store(true, Ordering::Release);
        kept.store(1, Ordering::Release);
        futex_wake(&kept);
        wake();
        for other in std::iter::once(keeper).chain(sleeping) {
            other.join().expect("a loop cannot panic")?;
        }
        found.expect("a loop cannot panic")
    })
}

/// Until the woken task sleeps again. The waker stays awake: its own CPU is not to be found asleep.
fn rest(sleeps: Sleeps) {
    let long = match sleeps {
        Sleeps::Idle(long) => long,
        Sleeps::Busy => REST[0],
        // Only where the waker sleeps does the other get the CPU.
        Sleeps::Here => return thread::sleep(REST[0]),
    };
    let start = Instant::now();
    while start.elapsed() < long {
        std::hint::spin_loop();
    }
}

/// Births and deaths.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    /// The parent's call.
    pub birth: f64,
    /// From its return until it has waited for the child, which did nothing but end.
    pub death: f64,
    /// Waiting for a child that is long dead.
    pub reaping: f64,
}

/// A process that ends at once, on the caller's CPU.
pub fn process(cpu: usize) -> io::Result<Lives> {
    on(cpu)?;
    let (mut births, mut deaths, mut reapings) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SINGLES {
        let start = Instant::now();
        let child = fork(|| ())?;
        births.push(start.elapsed().as_nanos() as f64);
        let start = Instant::now();
        reap(child);
        deaths.push(start.elapsed().as_nanos() as f64);
        let child = fork(|| ())?;
        thread::sleep(REST[1]);
        let start = Instant::now();
        reap(child);
        reapings.push(start.elapsed().as_nanos() as f64);
    }
    Ok(Lives {
        birth: low(births),
        death: low(deaths),
        reaping: low(reapings),
    })
}

/// A thread that ends at once, on the caller's CPU: birth, death. Nobody reaps it.
pub fn thread(cpu: usize) -> io::Result<(f64, f64)> {
    on(cpu)?;
    let lives = (0..SINGLES).map(|_| {
        let start = Instant::now();
        let child = thread::spawn(|| ());
        let birth = start.elapsed().as_nanos() as f64;
        let start = Instant::now();
        child.join().expect("it does nothing");
        (birth, start.elapsed().as_nanos() as f64)
    });
    let (births, deaths): (Vec<f64>, Vec<f64>) = lives.unzip();
    Ok((low(births), low(deaths)))
}

/// Runs something in a child, which then ends without anything else that this process would do at its end.
fn fork(child: impl FnOnce()) -> io::Result<libc::pid_t> {
    // SAFETY: the child makes system calls on files that it inherits, and ends; it touches no lock.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        pid if pid > 0 => Ok(pid),
        _ => Err(Error::last_os_error()),
    }
}

fn reap(child: libc::pid_t) {
    // SAFETY: the status is not asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

/// The calling thread runs only where nobody else wants to.
fn idle_class() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter is valid for the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

/// Sleeps while the word is this.
fn futex_wait(word: &AtomicU32, value: u32) {
    let (call, operation) = (libc::SYS_futex, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
    // SAFETY: the word outlives the call; there is no time limit.
    unsafe {
        libc::syscall(
            call,
            word,
            operation,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    match fd {
        // SAFETY: it is new, and nobody else's.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Error::last_os_error()),
    }
}

/// Where to read, where to write.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two.
    match unsafe { libc::pipe(ends.as_mut_ptr()) } {
        0 => Ok((owned(ends[0])?, owned(ends[1])?)),
        _ => Err(Error::last_os_error()),
    }
}

fn put(fd: RawFd) {
    // SAFETY: one byte.
    unsafe { libc::write(fd, [0_u8].as_ptr().cast(), 1) };
}

fn get(fd: RawFd) {
    let mut byte = [0_u8];
    // SAFETY: room for one byte.
    unsafe { libc::read(fd, byte.as_mut_ptr().cast(), 1) };
}
