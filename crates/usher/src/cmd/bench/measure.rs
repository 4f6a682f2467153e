// SPDX-License-Identifier: GPL-2.0-only
//! The tasks that are measured. Each is a thread that says itself where it is: a watcher would need a CPU of its own
//! and so disturb what it watches.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use super::reckon::Sighting;

/// The CPUs that this process may use.
pub fn allowed() -> io::Result<BTreeSet<usize>> {
    // SAFETY: all bits zero is an empty set; the call fills it and gets its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) {
            0 => set,
            _ => return Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the number is within the set's size.
    let has = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(has).collect())
}

/// Lets the calling thread use these CPUs only.
pub fn use_only(cpus: &BTreeSet<usize>) -> io::Result<()> {
    // SAFETY: all bits zero is an empty set; the numbers come from `allowed()`, so they are within its size; the
    // structure is valid for the call.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The CPU that the calling thread runs on.
fn here() -> usize {
    // SAFETY: no pointers.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).expect("this system call fails on no Linux that runs std")
}

/// Gives the calling thread a nice value.
pub fn nice(value: i32) -> io::Result<()> {
    // SAFETY: no pointers. On Linux the calling thread alone is meant.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Timers of the calling thread end when they are due, and not up to 50 us later to be ended together.
pub fn wake_exactly() -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Where the kernel says how long the calling thread waited for a CPU.
pub const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// For how long the calling thread could run and did not, since its birth, nanoseconds.
pub fn waited_ns() -> io::Result<u64> {
    let text = std::fs::read_to_string(SCHEDSTAT)?;
    let word = text.split_whitespace().nth(1);
    word.and_then(|word| word.parse().ok())
        .ok_or_else(|| io::Error::other(format!("`{}` has no second number", text.trim())))
}

/// Work that no compiler can leave out, some microseconds of it.
pub fn work() {
    black_box(steps(black_box(1), 2000));
}

/// So many steps of work, each of which needs the result of the one before and no memory.
pub fn steps(value: u64, steps: u64) -> u64 {
    (0..steps).fold(value, |value, _| {
        value.wrapping_mul(6_364_136_223_846_793_005) | 1
    })
}

/// Alone on its cache line, and on the one that a prefetcher fetches along with it.
#[derive(Default)]
#[repr(align(128))]
pub struct Alone<T>(pub T);

/// CPU time of the calling thread since its birth, nanoseconds.
fn cpu_time_ns() -> u64 {
    nanoseconds(clock(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// CPU time that this process has taken, all its threads together.
pub fn process_cpu_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid for the call, which fails only for clocks that there are not.
    unsafe { libc::clock_gettime(which, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Work until the calling thread has had so much more CPU time, however long that takes; false if it was told to give up before.
/// The clock is a system call, so it is looked at every now and then: the last stretch is as long as is left.
pub fn work_for(ns: u64, give_up: &AtomicBool) -> bool {
    static STEPS_PER_US: OnceLock<u64> = OnceLock::new();
    let per_us = *STEPS_PER_US.get_or_init(|| {
        let begun = cpu_time_ns();
        black_box(steps(black_box(1), 100_000));
        (100_000_000 / (cpu_time_ns() - begun).max(1)).max(1)
    });
    let until = cpu_time_ns() + ns;
    loop {
        let left = until.saturating_sub(cpu_time_ns());
        if left == 0 {
            return true;
        }
        if give_up.load(Ordering::Relaxed) {
            return false;
        }
        black_box(steps(
            black_box(1),
            (left.min(50_000) * per_us / 1000).max(1),
        ));
    }
}

pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A heavy task is born on the CPU `weak`, works there for `pinned`, and may then go anywhere in `allowed`: after how
/// long it ran on one of `strong`, or `None` if not within `patience`.
pub fn ascend(
    weak: usize,
    strong: &BTreeSet<usize>,
    allowed: &BTreeSet<usize>,
    pinned: Duration,
    patience: Duration,
) -> io::Result<Option<u64>> {
    let task = || -> io::Result<Option<u64>> {
        use_only(&BTreeSet::from([weak]))?;
        let born = Instant::now();
        while born.elapsed() < pinned {
            work();
        }
        use_only(allowed)?;
        let freed = Instant::now();
        loop {
            let after = freed.elapsed();
            if strong.contains(&here()) {
                return Ok(Some(nanoseconds(after)));
            }
            if after > patience {
                return Ok(None);
            }
            work();
        }
    };
    thread::scope(|scope| join(scope.spawn(task)))
}

/// As many heavy tasks as `tasks`, all born at once: where each was seen, whenever that changed, over `time` from the
/// birth of the first.
pub fn crowd(tasks: usize, time: Duration) -> io::Result<(Vec<Sighting>, u64)> {
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let watch = |task: usize| {
        let mut seen: Vec<Sighting> = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let cpu = here();
            if seen.last().is_none_or(|last| last.cpu != cpu) {
                let at_ns = nanoseconds(begun.elapsed());
                seen.push(Sighting { at_ns, task, cpu });
            }
            work();
        }
        seen
    };
    let seen = thread::scope(|scope| {
        let watch = &watch;
        let all: Vec<_> = (0..tasks)
            .map(|task| scope.spawn(move || watch(task)))
            .collect();
        thread::sleep(time.saturating_sub(begun.elapsed()));
        over.store(true, Ordering::Relaxed);
        all.into_iter().flat_map(join).collect()
    });
    Ok((seen, nanoseconds(time)))
}

/// A light task that is born on the CPU `home`, may go anywhere in `allowed`, and works for `busy` of every `period`:
/// where it was at the start and the end of each activation, over `time`, and how long that took.
pub fn light(
    home: usize,
    allowed: &BTreeSet<usize>,
    busy: Duration,
    period: Duration,
    time: Duration,
) -> io::Result<(Vec<usize>, u64)> {
    let task = || -> io::Result<(Vec<usize>, u64)> {
        use_only(&BTreeSet::from([home]))?;
        use_only(allowed)?;
        let begun = Instant::now();
        let mut seen = Vec::new();
        let mut next = begun;
        while begun.elapsed() < time {
            let woken = Instant::now();
            seen.push(here());
            while woken.elapsed() < busy {
                work();
            }
            seen.push(here());
            next += period;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok((seen, nanoseconds(begun.elapsed())))
    };
    thread::scope(|scope| join(scope.spawn(task)))
}

/// What a thread returned; a panic in it goes on in the caller.
pub fn join<T>(thread: thread::ScopedJoinHandle<T>) -> T {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a task is where it says, and its way is noticed. Method: where the test may use two CPUs, one of them in
    // turn is the weak one, and the kernel's own balance is not waited for: the other is the only one allowed.
    #[test]
    fn a_task_that_must_go_arrives() {
        let allowed = allowed().expect("a set");
        assert!(allowed.contains(&here()));
        let Some((&weak, &strong)) = allowed.first().zip(allowed.last()) else {
            panic!("no CPU at all");
        };
        let (pinned, patience) = (Duration::from_millis(5), Duration::from_millis(500));
        let only = BTreeSet::from([strong]);
        let found = ascend(weak, &only, &only, pinned, patience).expect("may pin");
        assert!(found.is_some(), "{weak} to {strong}");
        let nowhere = BTreeSet::new();
        let found = ascend(weak, &nowhere, &only, pinned, Duration::from_millis(20));
        assert_eq!(found.expect("may pin"), None);
    }

    // Goal: every task of a crowd is seen, on CPUs that there are. Method: three tasks.
    #[test]
    fn a_crowd_is_seen() {
        let allowed = allowed().expect("a set");
        let (seen, lasted_ns) = crowd(3, Duration::from_millis(200)).expect("runs");
        let tasks: BTreeSet<usize> = seen.iter().map(|seen| seen.task).collect();
        assert_eq!(tasks.len(), 3);
        assert_eq!(lasted_ns, 200_000_000);
        assert!(seen.iter().all(|seen| allowed.contains(&seen.cpu)));
    }

    // Goal: a light task is light. Method: the time that it slept is most of it.
    #[test]
    fn a_light_task_keeps_its_period() {
        let allowed = allowed().expect("a set");
        let home = *allowed.first().expect("a CPU");
        let milliseconds = Duration::from_millis;
        let (seen, lasted_ns) = light(
            home,
            &allowed,
            milliseconds(1),
            milliseconds(10),
            milliseconds(100),
        )
        .expect("may pin");
        assert!((2..=22).contains(&seen.len()), "{seen:?}");
        assert!(lasted_ns >= 100_000_000);
    }
}
