// SPDX-License-Identifier: GPL-2.0-only
//! Every action does what it says, at the time it says, on a machine on which nothing costs anything.

mod common;

use std::sync::{Arc, Mutex};

use common::Step::{Act, Stamp};
use common::*;
use usher_sim::ids::Id;
use usher_sim::policy::{EnqueueWhy, Host, Placement, StopWhy, WakeInfo};
use usher_sim::program::{Action, Class, Outcome, TaskCtx, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, MutexKind, World};
use usher_sim::{Cpu, Nanos, Policy, Report, SimError, Simulation, TaskId};

fn run_free(cpus: u32, world: World, tasks: Vec<TaskSpec>) -> Result<Report, SimError> {
    let machine = machine(&format!("core:{cpus} pu:1"), free_costs());
    run(machine, workload(world, tasks, Stop::AllExit), 1)
}

fn expect(outcome: Outcome) -> Step {
    look(move |ctx| assert_eq!(ctx.outcome(), outcome, "at {} ns", ctx.now()))
}

const SMALL: ChannelSpec = ChannelSpec {
    capacity: 100,
    overhead: 0,
    writers_wake_permille: 500,
    sync: false,
    write_ns: 0,
    read_ns: 0,
    unix: false,
    pipe: false,
};

// Goal: a futex blocks only on the expected value, is woken, and times out.
// Method: three waits with known ends: value differs (0), woken by another task (5 ms), timeout (2 ms later).
#[test]
fn futexes_block_wake_and_time_out() {
    let mut world = World::new();
    let futex = world.new_futex(1);
    let ends = ["differs_ns", "woken_ns", "timeout_ns"].map(|name| world.new_value(name));
    let wait = |expected, timeout| {
        Act(Action::FutexWait {
            futex,
            expected,
            timeout,
        })
    };
    let waiter = script(vec![
        wait(0, None),
        Stamp(ends[0]),
        wait(1, None),
        expect(Outcome::Done),
        Stamp(ends[1]),
        wait(1, Some(2 * MS)),
        expect(Outcome::TimedOut),
        Stamp(ends[2]),
    ]);
    let wake = |n| Act(Action::FutexWake { futex, count: n });
    let waker = script(vec![
        Act(Action::Compute(5 * MS)),
        wake(7),
        expect(Outcome::Count(1)),
        Act(Action::Compute(5 * MS)),
        wake(7),
        expect(Outcome::Count(0)),
    ]);
    let tasks = vec![
        TaskSpec::new("waiter", waiter),
        TaskSpec::new("waker", waker),
    ];
    let metrics = run_free(2, world, tasks).expect("runs").metrics;
    assert_eq!(metrics["differs_ns"], 0.0);
    assert_eq!(metrics["woken_ns"], 5.0 * MS as f64);
    assert_eq!(metrics["timeout_ns"], 7.0 * MS as f64);
}

// Goal: a reader gets exactly what it asks for, a writer of more than fits goes in pieces, poll names the
// channel that has something.
// Method: 250 bytes through a channel of 100, with a reader that takes 120 and then 130.
#[test]
fn channels_block_both_sides() {
    let mut world = World::new();
    let channel = world.new_channel(SMALL);
    let empty = world.new_channel(SMALL);
    let (first, second) = (world.new_value("first_ns"), world.new_value("second_ns"));
    let read = |bytes| {
        Act(Action::Read {
            channel,
            bytes,
            exact: true,
        })
    };
    let reader = script(vec![
        Act(Action::Poll(Arc::new([empty, channel]))),
        expect(Outcome::Index(1)),
        Stamp(first),
        Act(Action::Compute(MS)),
        read(120),
        expect(Outcome::Bytes(120)),
        read(130),
        expect(Outcome::Bytes(130)),
        Stamp(second),
    ]);
    let writer = script(vec![
        Act(Action::Compute(3 * MS)),
        Act(Action::Write {
            channel,
            bytes: 250,
        }),
    ]);
    let tasks = vec![
        TaskSpec::new("reader", reader),
        TaskSpec::new("writer", writer),
    ];
    let metrics = run_free(2, world, tasks).expect("runs").metrics;
    assert_eq!(
        metrics["first_ns"],
        3.0 * MS as f64,
        "poll returns at the write"
    );
    assert_eq!(
        metrics["second_ns"],
        4.0 * MS as f64,
        "the rest is immediate"
    );
}

/// A write of 128 bytes to a channel, by so many tasks at once, each on an LLC of its own, where nothing costs but a line that
/// comes from another LLC (100 ns); then a read on another one. When the last write was done, and how long the read took.
fn through(spec: ChannelSpec, writers: u32) -> (f64, f64) {
    let mut costs = free_costs();
    costs.set("line.line_node_ns", 100).expect("a known name");
    let mut world = World::new();
    let channel = world.new_channel(spec);
    let times = ["wrote_ns", "began_ns", "read_ns"].map(|name| world.new_value(name));
    let first = script(vec![Act(Action::Write {
        channel,
        bytes: 128,
    })]);
    let last = script(vec![
        Act(Action::Compute(2 * MS)),
        Stamp(times[1]),
        Act(Action::Read {
            channel,
            bytes: 128,
            exact: true,
        }),
        Stamp(times[2]),
    ]);
    let mut tasks = vec![
        TaskSpec::new("first", first).affinity(only(0)),
        TaskSpec::new("last", last).affinity(only(1)),
    ];
    for cpu in 0..writers {
        let mut step = 0;
        let writer = move |ctx: &mut TaskCtx<'_>| {
            step += 1;
            match step {
                1 => Action::Compute(MS - ctx.now()),
                2 => Action::Write {
                    channel,
                    bytes: 128,
                },
                _ => {
                    ctx.set_value(times[0], ctx.now());
                    Action::Exit
                }
            }
        };
        tasks.push(TaskSpec::new("writer", writer).affinity(only(2 + cpu)));
    }
    let machine = machine("numa:1 l3:8 core:1 pu:1", costs);
    let report = run(machine, workload(world, tasks, Stop::AllExit), 1).expect("runs");
    let at = |name: &str| report.metrics[name];
    (at("wrote_ns") - MS as f64, at("read_ns") - at("began_ns"))
}

// Goal: who reads or writes a pipe holds its mutex for all its lines; a mutex that is waited for costs three transfers more; the
// indices are fetched to be read where a page neither begins nor ends.
// Method: the transfers, counted by hand. One writer: mutex, indices, descriptor and two lines of data, 500 ns. Three: the others wait
// for that, pay one transfer and three more for the mutex, and 400 ns (the indices are still fetched by each). The reader empties nothing: 500.
#[test]
fn a_pipes_mutex_is_held_until_the_data_is_copied() {
    assert_eq!(through(ChannelSpec::PIPE, 1), (500.0, 500.0));
    let one_more = 100.0 + 300.0 + 400.0;
    assert_eq!(
        through(ChannelSpec::PIPE, 3),
        (500.0 + 2.0 * one_more, 500.0)
    );
}

// Goal: a message through a socket goes through the lines that a kernel writes for it; who comes next waits for one at a time.
// Method: the transfers, counted by hand. Within the machine: the queue, the locks, the count, the header and two lines of data; with TCP one
// more of the connection's state. The reader's fetch the same. Three writers follow each other from line to line.
#[test]
fn a_sockets_message_goes_through_its_lines() {
    let tcp = ChannelSpec {
        write_ns: 0,
        read_ns: 0,
        ..ChannelSpec::TCP_LOOPBACK
    };
    for (spec, lines) in [(ChannelSpec::UNIX_SOCKET, 600.0), (tcp, 700.0)] {
        assert_eq!(through(spec, 1), (lines, lines));
        assert_eq!(through(spec, 3), (200.0 + lines, lines));
    }
}

// Goal: what a message took is given back to the CPU that sent it: two lines, which go from one to the other of those who read from there,
// and nothing to give back on that CPU itself.
// Method: as above; one task writes to a socket each for one or two others, which read one after the other. The first to free finds the
// lines where nobody has them, the second takes two transfers more. On one CPU nothing is transferred.
#[test]
fn messages_are_freed_where_they_came_from() {
    let last_read_takes = |cpus: &[u32]| {
        let mut costs = free_costs();
        costs.set("line.line_node_ns", 100).expect("a known name");
        let mut world = World::new();
        let channels: Vec<_> = cpus
            .iter()
            .map(|_| world.new_channel(ChannelSpec::UNIX_SOCKET))
            .collect();
        let times = ["began_ns", "read_ns"].map(|name| world.new_value(name));
        let writes = channels.iter().map(|&channel| {
            Act(Action::Write {
                channel,
                bytes: 128,
            })
        });
        let mut tasks = vec![TaskSpec::new("writer", script(writes.collect())).affinity(only(0))];
        for (nth, (&cpu, &channel)) in (1..).zip(cpus.iter().zip(&channels)) {
            let read = Action::Read {
                channel,
                bytes: 128,
                exact: true,
            };
            let wake = Action::SleepUntil(nth * MS);
            let steps = vec![Act(wake), Stamp(times[0]), Act(read), Stamp(times[1])];
            tasks.push(TaskSpec::new("reader", script(steps)).affinity(only(cpu)));
        }
        let machine = machine("numa:1 l3:8 core:1 pu:1", costs);
        let metrics = run(machine, workload(world, tasks, Stop::AllExit), 1)
            .expect("runs")
            .metrics;
        metrics["read_ns"] - metrics["began_ns"]
    };
    assert_eq!(last_read_takes(&[1]), 600.0);
    assert_eq!(last_read_takes(&[1, 2]), 800.0);
    assert_eq!(last_read_takes(&[1, 1]), 600.0);
    assert_eq!(last_read_takes(&[0, 0]), 0.0);
}

// Goal: a read costs its system call and its protocol once, whether or not it has to sleep, and the locks once more if it does.
// Method: calls of 1 us, look-up and locks 400 ns, protocol 50 ns, and nothing else: a read that finds its data, and one for which it comes
// at 5 ms.
#[test]
fn a_read_that_sleeps_enters_the_kernel_once() {
    let mut costs = free_costs();
    costs
        .set("syscall.syscall_ns", 1_000)
        .expect("a known name");
    costs.set("syscall.rw_ns", 400).expect("a known name");
    let spec = ChannelSpec {
        read_ns: 50,
        ..SMALL
    };
    let mut world = World::new();
    let channel = world.new_channel(spec);
    let [began, found, woken] =
        ["began_ns", "found_ns", "woken_ns"].map(|name| world.new_value(name));
    let read = || {
        Act(Action::Read {
            channel,
            bytes: 8,
            exact: true,
        })
    };
    let write = || Act(Action::Write { channel, bytes: 8 });
    let reader = script(vec![
        Act(Action::Compute(MS)),
        Stamp(began),
        read(),
        Stamp(found),
        read(),
        Stamp(woken),
    ]);
    let writer = script(vec![write(), Act(Action::Compute(5 * MS)), write()]);
    let tasks = vec![
        TaskSpec::new("reader", reader),
        TaskSpec::new("writer", writer),
    ];
    let machine = machine("core:2 pu:1", costs);
    let metrics = run(machine, workload(world, tasks, Stop::AllExit), 1)
        .expect("runs")
        .metrics;
    assert_eq!(metrics["found_ns"] - metrics["began_ns"], 1_450.0);
    // Two writes of 1.4 us and 5 ms between them; the reader is woken at the end of the second.
    assert_eq!(metrics["woken_ns"], 5.0 * MS as f64 + 2_800.0 + 200.0);
}

// Goal: a mutex admits one at a time, and a condition variable hands it back on waking.
// Method: three tasks that hold it for 1 ms each finish at 1, 2 and 3 ms; then a signalled waiter holds it.
#[test]
fn mutexes_exclude_and_conditions_return_them() {
    let mut world = World::new();
    let mutex = world.new_mutex(MutexKind::Barging);
    let cond = world.new_cond();
    let ends = ["a_ns", "b_ns", "c_ns", "signalled_ns"].map(|name| world.new_value(name));
    let mut tasks: Vec<TaskSpec> = ends[..3]
        .iter()
        .map(|&end| {
            let steps = vec![
                Act(Action::Lock(mutex)),
                Act(Action::Compute(MS)),
                Act(Action::Unlock(mutex)),
                Stamp(end),
            ];
            TaskSpec::new("holder", script(steps))
        })
        .collect();
    let waiter = script(vec![
        Act(Action::Sleep(10 * MS)),
        Act(Action::Lock(mutex)),
        Act(Action::CondWait(cond, mutex)),
        Stamp(ends[3]),
        Act(Action::Unlock(mutex)),
    ]);
    let signaller = script(vec![
        Act(Action::Sleep(12 * MS)),
        Act(Action::Lock(mutex)),
        Act(Action::CondSignal(cond)),
        Act(Action::Compute(MS)),
        Act(Action::Unlock(mutex)),
    ]);
    tasks.push(TaskSpec::new("waiter", waiter));
    tasks.push(TaskSpec::new("signaller", signaller));
    let metrics = run_free(5, world, tasks).expect("runs").metrics;
    let mut holders = ["a_ns", "b_ns", "c_ns"].map(|name| metrics[name]);
    holders.sort_by(f64::total_cmp);
    assert_eq!(holders, [1.0, 2.0, 3.0].map(|ms| ms * MS as f64));
    assert_eq!(
        metrics["signalled_ns"],
        13.0 * MS as f64,
        "not before the signaller unlocks"
    );
}

// Goal: barriers release everybody with the last, semaphores pass units on, children are waited for.
// Method: arrivals at 1, 2 and 3 ms; a semaphore raised by 2 at 4 ms; a child that works 5 ms.
#[test]
fn barriers_semaphores_children() {
    let mut world = World::new();
    let (barrier, semaphore) = (world.new_barrier(3), world.new_semaphore(0));
    let (last, child_end) = (world.new_latency("released"), world.new_value("child_ns"));
    let party = |i: u64| {
        script(vec![
            Act(Action::Compute(i * MS)),
            Act(Action::Barrier(barrier)),
            look(move |ctx| ctx.sample(last, ctx.now())),
            Act(Action::SemDown(semaphore)),
        ])
    };
    let mut tasks: Vec<TaskSpec> = (1..=3).map(|i| TaskSpec::new("party", party(i))).collect();
    let child = TaskSpec::new("child", script(vec![Act(Action::Compute(5 * MS))]));
    let parent = script(vec![
        Act(Action::Compute(4 * MS)),
        Act(Action::SemUp(semaphore, 3)),
        Act(Action::Fork(Box::new(child))),
        Act(Action::WaitAnyChild),
        expect(Outcome::Child(TaskId(4))),
        Stamp(child_end),
        Act(Action::WaitAnyChild),
        expect(Outcome::NoChild),
        Act(Action::WaitChild(TaskId(4))),
        expect(Outcome::NoChild),
    ]);
    tasks.push(TaskSpec::new("parent", parent));
    let report = run_free(5, world, tasks).expect("runs");
    let released = &report.latencies["released"];
    assert_eq!(released.len(), 3);
    assert_near(
        "first released",
        released.min() as f64,
        3.0 * MS as f64,
        0.2,
    );
    assert_near("last released", released.max() as f64, 3.0 * MS as f64, 0.2);
    assert_eq!(report.metrics["child_ns"], 9.0 * MS as f64);
}

// Goal: timers of ordinary tasks have slack, those of real-time tasks have not; a timer whose soft time has
// come goes along with another.
// Method: sleeps of 1 ms on CPUs of their own; a second ordinary sleeper beside one that ends 20 us later.
#[test]
fn timer_slack_depends_on_the_class() {
    let mut costs = free_costs();
    costs.set("timer.timer_slack_ns", 50 * US).expect("known");
    let mut world = World::new();
    let names = ["normal_ns", "fifo_ns", "along_ns"];
    let ends = names.map(|name| world.new_value(name));
    let sleeper = |end, class, cpu| {
        let steps = vec![Act(Action::Sleep(MS)), Stamp(end)];
        TaskSpec::new("sleeper", script(steps))
            .class(class)
            .affinity(only(cpu))
    };
    let other = script(vec![Act(Action::Sleep(MS + 20 * US))]);
    let tasks = vec![
        sleeper(ends[0], Class::NORMAL, 0),
        sleeper(ends[1], Class::Fifo { prio: 5 }, 1),
        sleeper(ends[2], Class::NORMAL, 2),
        TaskSpec::new("other", other)
            .class(Class::Fifo { prio: 1 })
            .affinity(only(2)),
    ];
    let machine = machine("core:3 pu:1", costs);
    let report = run(machine, workload(world, tasks, Stop::AllExit), 1).expect("runs");
    let ends = names.map(|name| report.metrics[name] as Nanos);
    assert_eq!(ends, [MS + 50 * US, MS, MS + 20 * US]);
}

// Goal: who runs or waits where it may not be any more moves at once; who sleeps is placed anew.
// Method: two tasks share CPU 0; a third sends the running one to CPU 1 and the waiting one to CPU 2.
#[test]
fn affinity_changes_move_tasks() {
    let mut world = World::new();
    let cpus = world.new_list();
    let victim = || {
        let steps = vec![
            Act(Action::Compute(3 * MS)),
            look(move |ctx| {
                let entry = u64::from(ctx.cpu().0) * 1000 + ctx.now() / MS;
                ctx.list(cpus).push_back(entry);
            }),
        ];
        TaskSpec::new("victim", script(steps)).affinity(only(0))
    };
    let mover = script(vec![
        Act(Action::Compute(MS)),
        Act(Action::SetAffinityOf(TaskId(0), only(1))),
        Act(Action::SetAffinityOf(TaskId(1), only(2))),
        Act(Action::Sleep(9 * MS)),
        look(move |ctx| {
            // The first had done 1 ms of 3 when it moved, the second nothing.
            assert_eq!(
                ctx.list(cpus).iter().copied().collect::<Vec<_>>(),
                [1003, 2004]
            );
        }),
    ]);
    let tasks = vec![
        victim(),
        victim(),
        TaskSpec::new("mover", mover).affinity(only(3)),
    ];
    run_free(4, world, tasks).expect("runs");
}

/// `fifo` that remembers the classes it was told.
struct Spy {
    inner: Box<dyn Policy>,
    seen: Arc<Mutex<Vec<(u32, u8)>>>,
}

impl Policy for Spy {
    fn name(&self) -> &str {
        "spy"
    }
    fn reasons(&self) -> &'static [&'static str] {
        self.inner.reasons()
    }
    fn attach(&mut self, host: &mut Host) {
        self.inner.attach(host);
    }
    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement {
        self.inner.select(host, wake)
    }
    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: EnqueueWhy) {
        self.inner.enqueue(host, task, cpu, why);
    }
    fn dequeue(&mut self, host: &mut Host, task: TaskId) {
        self.inner.dequeue(host, task);
    }
    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        self.inner.pick_next(host, cpu)
    }
    fn put_prev(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        self.inner.put_prev(host, task, cpu, why);
    }
    fn class_changed(&mut self, host: &mut Host, task: TaskId) {
        let prio = host.task(task).class().rt_prio();
        self.seen
            .lock()
            .expect("no panic while held")
            .push((task.0, prio));
    }
    fn idle_bound_ns(&self, _host: &Host, _task: TaskId, _cpu: Cpu) -> Option<Nanos> {
        Some(MS)
    }
}

// Goal: priority inheritance boosts the owner, along a chain, and the boost ends with the unlock.
// Method: task 0 holds A; task 1 (priority 10) holds B and waits for A; task 2 (priority 50) waits for B.
#[test]
fn priority_is_inherited_along_a_chain() {
    let mut world = World::new();
    let [a, b] = [0; 2].map(|_| world.new_mutex(MutexKind::PriorityInheritance));
    let low = script(vec![
        Act(Action::Lock(a)),
        Act(Action::Compute(10 * MS)),
        Act(Action::Unlock(a)),
    ]);
    let middle = script(vec![
        Act(Action::Compute(MS)),
        Act(Action::Lock(b)),
        Act(Action::Lock(a)),
        Act(Action::Unlock(a)),
        Act(Action::Unlock(b)),
    ]);
    let high = script(vec![
        Act(Action::Compute(2 * MS)),
        Act(Action::Lock(b)),
        Act(Action::Unlock(b)),
    ]);
    let tasks = vec![
        TaskSpec::new("low", low),
        TaskSpec::new("middle", middle).class(Class::Fifo { prio: 10 }),
        TaskSpec::new("high", high).class(Class::Fifo { prio: 50 }),
    ];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let policy = Box::new(Spy {
        inner: fifo(),
        seen: Arc::clone(&seen),
    });
    let workload = workload(world, tasks, Stop::AllExit);
    let machine = machine("core:3 pu:1", free_costs());
    let sim = Simulation::new(machine, policy, workload, 1, Default::default()).expect("legal");
    sim.run().expect("runs");
    let seen = seen.lock().expect("no panic while held").clone();
    // Boosts of 0 by 1, of 1 by 2, of 0 through 1; back: 0 on unlocking A, 1 on unlocking B.
    assert_eq!(seen, [(0, 10), (1, 50), (0, 50), (0, 0), (1, 10)]);
}

// Goal: exec offers the policy the task, and a task with a large footprint starts cold.
// Method: the same work before and after an exec on one CPU, 100 KiB at 10 ns per KiB.
#[test]
fn exec_forgets_the_caches() {
    let mut costs = free_costs();
    for (name, value) in [
        ("cache.l2_kib", 1000),
        ("cache.llc_kib", 1000),
        ("cache.refill_memory_ns_per_kib", 10),
        ("cache.refill_slowdown_permille", 1000),
    ] {
        costs.set(name, value).expect("known");
    }
    let mut world = World::new();
    let marks = ["cold_ns", "warm_ns", "exec_ns"].map(|name| world.new_value(name));
    let program = script(vec![
        Act(Action::Compute(MS)),
        Stamp(marks[0]),
        Act(Action::Compute(MS)),
        Stamp(marks[1]),
        Act(Action::Exec(MS)),
        Stamp(marks[2]),
    ]);
    let tasks = vec![TaskSpec::new("image", program).memory(100, 0)];
    let machine = machine("core:1 pu:1", costs);
    let report = run(machine, workload(world, tasks, Stop::AllExit), 1).expect("runs");
    let at = |name: &str| report.metrics[name] as Nanos;
    assert_eq!(at("cold_ns"), MS + 1000, "100 KiB from memory");
    assert_eq!(at("warm_ns") - at("cold_ns"), MS, "all there");
    assert_eq!(at("exec_ns") - at("warm_ns"), MS + 1000, "a new image");
}

// Goal: a deadlock is reported with the tasks and what each waits for, at the time it happens.
// Method: two tasks that lock two mutexes in opposite order, and one that waits for a child that waits.
#[test]
fn deadlocks_name_everybody() {
    let mut world = World::new();
    let [a, b] = [0; 2].map(|_| world.new_mutex(MutexKind::Barging));
    let futex = world.new_futex(0);
    let crossing = |first, second| {
        script(vec![
            Act(Action::Lock(first)),
            Act(Action::Compute(MS)),
            Act(Action::Lock(second)),
        ])
    };
    let wait = Action::FutexWait {
        futex,
        expected: 0,
        timeout: None,
    };
    let child = TaskSpec::new("orphan", script(vec![Act(wait)]));
    let parent = script(vec![
        Act(Action::Fork(Box::new(child))),
        Act(Action::WaitAnyChild),
    ]);
    let tasks = vec![
        TaskSpec::new("left", crossing(a, b)),
        TaskSpec::new("right", crossing(b, a)),
        TaskSpec::new("parent", parent),
    ];
    match run_free(4, world, tasks) {
        Err(SimError::Deadlock { at, waiting }) => {
            assert_eq!(at, MS);
            let text = waiting.join("\n");
            for part in [
                "task 0 `left` waits for mutex 1, held by task 1 `right`",
                "task 1 `right` waits for mutex 0, held by task 0 `left`",
                "task 2 `parent` waits for the end of one of 1 children",
                "task 3 `orphan` waits for futex 0",
            ] {
                assert!(text.contains(part), "{part} is missing in:\n{text}");
            }
        }
        other => panic!("no deadlock reported: {:?}", other.map(|r| r.metrics)),
    }
}

// Goal: nonsense in a workload ends the run with an error that names the task and the thing.
// Method: one kind of nonsense each.
#[test]
fn nonsense_is_an_error() {
    type Steps = fn(&mut World) -> Vec<Step>;
    let table: [(Steps, &str); 5] = [
        (
            |w| vec![Act(Action::Unlock(w.new_mutex(MutexKind::Barging)))],
            "does not hold",
        ),
        (
            |w| {
                let mutex = w.new_mutex(MutexKind::Barging);
                vec![Act(Action::Lock(mutex)), Act(Action::Lock(mutex))]
            },
            "holds already",
        ),
        (
            |_| vec![Act(Action::SetAffinity(only(9)))],
            "no CPU is online",
        ),
        (
            |_| vec![Act(Action::SetAffinityOf(TaskId(9), only(0)))],
            "does not exist",
        ),
        (|_| vec![Act(Action::Compute(Nanos::MAX))], "the most is"),
    ];
    for (steps, message) in table {
        let mut world = World::new();
        let steps = steps(&mut world);
        let tasks = vec![TaskSpec::new("fool", script(steps))];
        let error = run_free(2, world, tasks).expect_err("nonsense").to_string();
        assert!(
            error.contains("`fool`") && error.contains(message),
            "{error}"
        );
    }
    let forever = |_: &mut usher_sim::program::TaskCtx<'_>| Action::Compute(0);
    let tasks = vec![TaskSpec::new("fool", forever)];
    let error = run_free(1, World::new(), tasks)
        .expect_err("nonsense")
        .to_string();
    assert!(error.contains("no time at all"), "{error}");
    assert_eq!(Cpu::from_index(3), Cpu(3));
}
