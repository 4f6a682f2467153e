// SPDX-License-Identifier: GPL-2.0-only
//! A knob must move what it is about: each cost at nothing, as it is, and ten times as high. A simulator in
//! which a cost is charged nowhere, or in one place of ten, looks just like one that works.

mod common;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use common::*;
use usher_sim::costs::{CostNumbers, Costs};
use usher_sim::policy::{EnqueueWhy, Host, Placement, StopWhy, WakeInfo};
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, MutexKind, World};
use usher_sim::{Cpu, Policy, Report, Simulation, TaskId};

/// Two nodes of two LLCs, two cores of two threads each; cpu numbers follow the tree.
const SHAPE: &str = "pack:2 numa:1 l3:2 core:2 pu:2";

/// A run under a table of costs.
type Run = fn(Costs) -> Report;

/// A metric of a report.
type Metric = fn(&Report) -> f64;

fn elapsed(report: &Report) -> f64 {
    report.metrics["simulated_ns"]
}

fn run_with(costs: Costs, tasks: Vec<TaskSpec>, world: World) -> Report {
    run(
        machine(SHAPE, costs),
        workload(world, tasks, Stop::AllExit),
        1,
    )
    .expect("runs")
}

/// Two tasks on two CPUs that pass messages to and fro, with pauses of `work`.
fn players(cpus: [u32; 2], bytes: u64, work: u64) -> ([TaskSpec; 2], World) {
    let mut world = World::new();
    let channels = [0; 2].map(|_| world.new_channel(ChannelSpec::PIPE));
    let player = move |me: usize| {
        let (mut i, rounds) = (0, 200);
        move |_: &mut TaskCtx<'_>| {
            i += 1;
            // The second player starts with the read.
            match (i + me) % 3 {
                _ if i > 3 * rounds => Action::Exit,
                1 => Action::Write {
                    channel: channels[me],
                    bytes,
                },
                2 => Action::Read {
                    channel: channels[1 - me],
                    bytes,
                    exact: true,
                },
                _ => Action::Compute(work),
            }
        }
    };
    let spec = |me: usize| TaskSpec::new("player", player(me)).affinity(only(cpus[me]));
    ([spec(0), spec(1)], world)
}

/// These two as processes, or as threads of one.
fn ping_pong(costs: Costs, cpus: [u32; 2], bytes: u64, work: u64, thread: bool) -> Report {
    let ([first, second], world) = players(cpus, bytes, work);
    if !thread {
        return run_with(costs, vec![first, second], world);
    }
    let mut children = vec![second.thread(), first.thread()];
    let parent = move |_: &mut TaskCtx<'_>| match children.pop() {
        Some(child) => Action::Fork(Box::new(child)),
        None => Action::Exit,
    };
    run_with(costs, vec![TaskSpec::new("parent", parent)], world)
}

/// The same as `pair()` under the fair class of a kernel that queues at the waker's expense within an LLC.
fn fair_pair(costs: Costs) -> Report {
    let (tasks, world) = players([0, 2], 64, 20_000);
    let load = workload(world, tasks.into(), Stop::AllExit);
    run_under("cfs-5.9", machine(SHAPE, costs), load)
}

fn one(costs: Costs, spec: TaskSpec) -> Report {
    run_with(costs, vec![spec], World::new())
}

fn pair(costs: Costs, cpus: [u32; 2]) -> Report {
    ping_pong(costs, cpus, 64, 20_000, false)
}

fn sleeper(costs: Costs) -> Report {
    let program = repeat(
        100,
        |i| {
            if i == 0 {
                Action::Sleep(200_000)
            } else {
                Action::Compute(10_000)
            }
        },
        2,
    );
    one(costs, TaskSpec::new("sleeper", program))
}

/// Works with a footprint, on one CPU after another.
fn wanderer(costs: Costs, cpus: &'static [u32], footprint_kib: u32, bound_permille: u32) -> Report {
    let mut i = 0;
    let program = move |_: &mut TaskCtx<'_>| {
        i += 1;
        match i % 2 {
            _ if i > 200 => Action::Exit,
            0 => Action::SetAffinity(only(cpus[i / 2 % cpus.len()])),
            _ => Action::Compute(2_000_000),
        }
    };
    let spec = TaskSpec::new("wanderer", program).memory(footprint_kib, bound_permille);
    one(costs, spec.affinity(only(0)))
}

fn worker(costs: Costs) -> Report {
    one(
        costs,
        TaskSpec::new("worker", repeat(1, |_| Action::Compute(100_000_000), 1)),
    )
}

fn calls(costs: Costs, action: fn(u32) -> Action) -> Report {
    one(costs, TaskSpec::new("caller", repeat(300, action, 1)))
}

/// Forks children and waits for each.
fn forker(thread: bool) -> TaskSpec {
    let mut i = 0;
    let program = move |_: &mut TaskCtx<'_>| {
        i += 1;
        let child = TaskSpec::new("child", |_: &mut TaskCtx<'_>| Action::Exit);
        match i % 2 {
            _ if i > 100 => Action::Exit,
            1 => Action::Fork(Box::new(if thread { child.thread() } else { child })),
            _ => Action::WaitAnyChild,
        }
    };
    TaskSpec::new("forker", program)
}

fn forks(costs: Costs, thread: bool) -> Report {
    one(costs, forker(thread))
}

/// The same under a fair class, which looks at all CPUs for the idlest.
fn fair_forks(costs: Costs) -> Report {
    let load = workload(World::new(), vec![forker(false)], Stop::AllExit);
    run_under("cfs-5.9", machine(SHAPE, costs), load)
}

/// Forks children and waits for each long after its end.
fn waits_for_the_dead(costs: Costs) -> Report {
    let program = |i| match i {
        0 => Action::Fork(Box::new(TaskSpec::new("child", script(vec![])))),
        1 => Action::Compute(MS),
        _ => Action::WaitAnyChild,
    };
    one(costs, TaskSpec::new("forker", repeat(50, program, 3)))
}

/// Locks and unlocks, raises and takes, waits on a futex for nothing, polls.
fn objects(costs: Costs) -> Report {
    let mut world = World::new();
    let mutex = world.new_mutex(MutexKind::Barging);
    let (semaphore, futex) = (world.new_semaphore(1), world.new_futex(0));
    let channel = world.new_channel(ChannelSpec {
        unix: true,
        ..ChannelSpec::PIPE
    });
    let mut i = 0;
    let program = move |_: &mut TaskCtx<'_>| {
        i += 1;
        match i % 7 {
            _ if i > 2100 => Action::Exit,
            1 => Action::Lock(mutex),
            2 => Action::Unlock(mutex),
            3 => Action::SemDown(semaphore),
            4 => Action::SemUp(semaphore, 1),
            5 => Action::FutexWait {
                futex,
                expected: 1,
                timeout: None,
            },
            6 => Action::Write { channel, bytes: 8 },
            _ => Action::Poll(Arc::new([channel])),
        }
    };
    run_with(costs, vec![TaskSpec::new("user", program)], world)
}

/// An interrupt that wakes nobody in particular: IPIs need somebody who does not poll.
fn deaf(mut costs: Costs) -> Costs {
    costs.idle_states.iter_mut().for_each(|s| s.polling = false);
    costs
}

/// Siblings that do not slow each other down: what one does sooner would cost the other more.
fn wide(mut costs: Costs) -> Costs {
    costs.smt_share_permille = vec![1000];
    costs
}

/// What shows each cost: a run, and the metric in which it must show.
fn case(name: &str) -> Option<(Run, Metric)> {
    Some(match name {
        "tick.tick_ns" | "tick.hz" => (worker, elapsed),
        "timer.timer_slack_ns" => (sleeper, elapsed),
        "timer.timer_irq_ns" => (sleeper, elapsed),
        "switch.switch_ns" => (|c| pair(c, [0, 0]), elapsed),
        "switch.switch_thread_ns" => (|c| ping_pong(c, [0, 0], 64, 20_000, true), elapsed),
        "switch.schedule_ns" => (|c| pair(c, [0, 0]), elapsed),
        "wake.wake_ns" => (|c| pair(c, [0, 0]), elapsed),
        "wake.task_lines" | "wake.queue_lines" => (|c| pair(c, [0, 2]), elapsed),
        "wake.task_far_lines" => (|c| pair(c, [0, 4]), elapsed),
        "wake.fair_lines" => (fair_pair, elapsed),
        "ipi.ipi_send_ns" | "ipi.ipi_handle_ns" => (|c| pair(deaf(c), [0, 2]), elapsed),
        "ipi.ipi_core_ns" => (|c| pair(wide(deaf(c)), [0, 1]), elapsed),
        "ipi.ipi_llc_ns" => (|c| pair(deaf(c), [0, 2]), elapsed),
        "ipi.ipi_node_ns" => (|c| pair(deaf(c), [0, 4]), elapsed),
        "ipi.ipi_remote_ns" => (|c| pair(deaf(c), [0, 8]), elapsed),
        "ipi.poll_wake_ns" => (|c| pair(c, [0, 2]), elapsed),
        "syscall.syscall_ns" | "syscall.rw_ns" => (|c| pair(c, [0, 0]), elapsed),
        "syscall.futex_ns" | "syscall.poll_ns" | "syscall.mutex_ns" | "syscall.sem_ns"
        | "syscall.unix_ns" => (objects, elapsed),
        // The time asked for counts from the call: the cost shows in the kernel's share, not in elapsed time.
        "syscall.sleep_ns" => (sleeper, |r| r.metrics["kernel_share"]),
        "syscall.fork_ns" | "syscall.exit_ns" => (|c| forks(c, false), elapsed),
        "syscall.wait_ns" => (waits_for_the_dead, elapsed),
        "syscall.thread_ns" | "syscall.thread_exit_ns" => (|c| forks(wide(c), true), elapsed),
        "syscall.exec_ns" => (|c| calls(c, |_| Action::Exec(1000)), elapsed),
        "syscall.sched_ns" => (|c| calls(c, |_| Action::SetAffinity(only(3))), elapsed),
        "syscall.io_ns" => (|c| calls(c, |_| Action::Io(50_000)), elapsed),
        "line.line_rmw_ns" => (objects, elapsed),
        "line.line_llc_ns" => (|c| pair(c, [0, 2]), elapsed),
        "line.line_node_ns" => (|c| pair(c, [0, 4]), elapsed),
        "line.line_remote_ns" => (|c| pair(c, [0, 8]), elapsed),
        "line.line_memory_ns" => (objects, elapsed),
        "line.line_scan_permille" => (fair_forks, elapsed),
        "cache.refill_llc_ns_per_kib" => (|c| wanderer(c, &[0, 2], 400, 0), elapsed),
        "cache.refill_memory_ns_per_kib" => (|c| wanderer(c, &[0, 4], 400, 0), elapsed),
        "cache.refill_remote_ns_per_kib" => (|c| wanderer(c, &[0, 8], 400, 0), elapsed),
        "cache.refill_slowdown_permille" => (|c| wanderer(c, &[0, 8], 400_000, 0), elapsed),
        "cache.remote_memory_permille" => (|c| wanderer(c, &[0, 8], 0, 500), elapsed),
        "copy.copy_llc_ns_per_kib" => (|c| ping_pong(c, [0, 2], 8192, 1000, false), elapsed),
        "copy.copy_node_ns_per_kib" => (|c| ping_pong(c, [0, 4], 8192, 1000, false), elapsed),
        "copy.copy_remote_ns_per_kib" => (|c| ping_pong(c, [0, 8], 8192, 1000, false), elapsed),
        "idle.idle_enter_ns" => (sleeper, |r| r.metrics["kernel_share"]),
        "idle.idle_exit_permille" => (|c| pair(c, [0, 2]), elapsed),
        _ => return None,
    })
}

/// Costs that are not times, or whose effect is the other way round or a matter of threshold; the tests
/// named do it.
const ELSEWHERE: &[&str] = &[
    "cpu.clock_mhz",             // cpupri: cycles_are_those_of_the_clock
    "clock.clock_free_permille", // clock
    "clock.clock_full_permille", // clock
    "tick.tick_skew",            // ticks_can_be_spread
    "line.line_remote_slit",     // coherence: remote_cost_follows_the_slit_distance
    "cache.l2_kib",              // larger_caches_help
    "cache.llc_kib",             // larger_caches_help
    "idle.idle_housekeeping_ns", // housekeeping_bounds_the_prediction
    "line.line_hit_ns",          // hits_cost
];

// Goal: every number of the cost table moves the metric it is about, in the right direction.
// Method: for each, a run in which it matters, with the number at 0, as it is, and ten times: the metric grows
// at each step. A number without a case, here or in ELSEWHERE, fails the test.
#[test]
fn every_cost_moves_its_metric() {
    let base = Costs::builtin("generic").expect("built in");
    for name in CostNumbers::NAMES {
        if ELSEWHERE.contains(name) {
            continue;
        }
        let (run, metric) = case(name).unwrap_or_else(|| panic!("no case for {name}"));
        let value = |costs: &Costs| *costs.clone().n.get_mut(name).expect("known");
        let low = if *name == "tick.hz" { 24 } else { 0 };
        let at = |value| {
            let mut costs = base.clone();
            costs.set(name, value).expect("known");
            metric(&run(costs))
        };
        let now = value(&base);
        let (none, same, tenfold) = (at(low), at(now), at(now * 10));
        assert!(
            none < same && same < tenfold,
            "{name} = {now}: {none} at {low}, {same} as it is, {tenfold} tenfold"
        );
    }
}

// Goal: a hit costs what the table says, read or written.
// Method: the means of a line that only one CPU touches: atomic operations at yields, reads at ticks.
#[test]
fn hits_cost() {
    for ns in [0, 7, 70] {
        let mut costs = free_costs();
        costs.set("line.line_rmw_ns", ns).expect("known");
        let report = calls(costs, |_| Action::Yield);
        assert_eq!(report.lines["fifo-queue"].write_ns_mean, ns as f64);
        let mut costs = free_costs();
        costs.set("line.line_hit_ns", ns).expect("known");
        costs.set("tick.hz", 1000).expect("known");
        assert_eq!(worker(costs).lines["fifo-queue"].load_ns_mean, ns as f64);
    }
}

// Goal: the costs that come in lists count, too: exit latencies of idle states, shares of busy siblings.
// Method: tasks that wake each other out of idle states whose exit takes nothing, 2 us, 20 us; siblings at
// full speed, at 0.6 and at 0.06.
#[test]
fn idle_states_and_smt_shares_count() {
    let base = || Costs::builtin("generic").expect("built in");
    let exits = [0, 2_000, 20_000].map(|ns| {
        let mut costs = base();
        costs.idle_states.truncate(1);
        costs.idle_states[0].exit_ns = ns;
        elapsed(&pair(costs, [0, 2]))
    });
    assert!(exits[0] < exits[1] && exits[1] < exits[2], "{exits:?}");
    let shares = [1000, 600, 60].map(|share| {
        let mut costs = base();
        costs.smt_share_permille = vec![1000, share];
        let task = |cpu| {
            let program = repeat(1, |_| Action::Compute(10 * MS), 1);
            TaskSpec::new("worker", program).affinity(only(cpu))
        };
        elapsed(&run_with(costs, vec![task(0), task(1)], World::new()))
    });
    assert!(shares[0] < shares[1] && shares[1] < shares[2], "{shares:?}");
}

// Goal: waking takes what was measured, not what the firmware says; a CPU whose whole LLC sleeps takes
// longer, one whose LLC is awake does not.
// Method: a task that sleeps a hundred times, alone, beside a task that computes in its LLC, and beside one
// that computes in another.
#[test]
fn a_sleeping_llc_wakes_slowly() {
    let slept = |wake_ns, llc_wake_ns, beside: Option<u32>| {
        let mut costs = Costs::builtin("generic").expect("built in");
        costs.idle_states.truncate(1);
        let state = &mut costs.idle_states[0];
        (state.exit_ns, state.wake_ns, state.llc_wake_ns) = (400_000, Some(wake_ns), llc_wake_ns);
        let program = |i| match i {
            0 => Action::Sleep(200_000),
            _ => Action::Compute(10_000),
        };
        let sleeper = TaskSpec::new("sleeper", repeat(100, program, 2)).affinity(only(0));
        let worker = beside.map(|cpu| {
            let program = repeat(1, |_| Action::Compute(1000 * MS), 1);
            TaskSpec::new("worker", program).affinity(only(cpu))
        });
        let tasks = [sleeper].into_iter().chain(worker).collect();
        let workload = workload(World::new(), tasks, Stop::FirstExit);
        elapsed(&run(machine(SHAPE, costs), workload, 1).expect("runs"))
    };
    // Rounded: a wake or two meets a tick.
    let longer_by = |a: f64, b: f64| ((b - a) / 100.0 / 1000.0).round();
    let alone = slept(10_000, 0, None);
    assert_eq!(
        longer_by(alone, slept(30_000, 0, None)),
        20.0,
        "us per wake"
    );
    assert_eq!(longer_by(alone, slept(10_000, 20_000, None)), 20.0);
    let [near, far] = [Some(2), Some(4)].map(|cpu| {
        let without = slept(10_000, 0, cpu);
        longer_by(without, slept(10_000, 20_000, cpu))
    });
    assert_eq!((near, far), (0.0, 20.0));
}

// Goal: a cache that holds two working sets saves the refills between them.
// Method: two tasks that take turns on one core, 600 KiB each, with an L2 of 1 and of 2 MiB; then in LLCs of
// 1 and 2 MiB.
#[test]
fn larger_caches_help() {
    let turns = |l2: u64, llc: u64| {
        let mut costs = Costs::builtin("generic").expect("built in");
        costs.set("cache.l2_kib", l2).expect("known");
        costs.set("cache.llc_kib", llc).expect("known");
        let task = || {
            let program = repeat(
                50,
                |i| {
                    if i == 0 {
                        Action::Compute(MS)
                    } else {
                        Action::Yield
                    }
                },
                2,
            );
            TaskSpec::new("turn", program)
                .memory(600, 0)
                .affinity(only(0))
        };
        elapsed(&run_with(costs, vec![task(), task()], World::new()))
    };
    assert!(turns(2048, 32_768) < turns(1024, 32_768));
    assert!(turns(512, 2048) < turns(512, 1024));
}

/// Remembers at what point of the period ticks come; runs pinned tasks.
#[derive(Default)]
struct TickSpy {
    queues: BTreeMap<u32, VecDeque<TaskId>>,
    phases: Arc<Mutex<BTreeSet<u64>>>,
}

impl Policy for TickSpy {
    fn name(&self) -> &str {
        "tick-spy"
    }
    fn reasons(&self) -> &'static [&'static str] {
        &[]
    }
    fn attach(&mut self, _host: &mut Host) {}
    fn select(&mut self, _host: &mut Host, wake: &WakeInfo) -> Placement {
        unreachable!("pinned tasks are not asked about: {wake:?}")
    }
    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, _why: EnqueueWhy) {
        self.queues.entry(cpu.0).or_default().push_back(task);
        host.resched(cpu);
    }
    fn dequeue(&mut self, _host: &mut Host, _task: TaskId) {}
    fn pick_next(&mut self, _host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        self.queues.entry(cpu.0).or_default().pop_front()
    }
    fn put_prev(&mut self, _host: &mut Host, _task: TaskId, _cpu: Cpu, _why: StopWhy) {}
    fn tick(&mut self, host: &mut Host, _cpu: Cpu, _curr: TaskId) {
        let phase = host.now() % host.machine().tick_ns();
        self.phases
            .lock()
            .expect("no panic while held")
            .insert(phase);
    }
    fn idle_bound_ns(&self, _host: &Host, _task: TaskId, _cpu: Cpu) -> Option<u64> {
        Some(0)
    }
}

/// When in its period each of 16 busy CPUs' ticks fall.
fn tick_phases(skew: u64, seed: u64) -> BTreeSet<u64> {
    let mut costs = Costs::builtin("generic").expect("built in");
    costs.set("tick.tick_skew", skew).expect("known");
    let task = |cpu| {
        let program = repeat(1, |_| Action::Compute(30 * MS), 1);
        TaskSpec::new("busy", program).affinity(only(cpu))
    };
    let workload = workload(World::new(), (0..16).map(task).collect(), Stop::AllExit);
    let policy = TickSpy::default();
    let phases = Arc::clone(&policy.phases);
    let machine = machine(SHAPE, costs);
    let sim = Simulation::new(
        machine,
        Box::new(policy),
        workload,
        seed,
        Default::default(),
    );
    sim.expect("legal").run().expect("runs");
    let phases = phases.lock().expect("no panic while held").clone();
    phases
}

// Goal: with skew, the ticks of different CPUs fall at different times.
// Method: 16 busy CPUs; all ticks at one point of the period, or at 16.
#[test]
fn ticks_can_be_spread() {
    assert_eq!(tick_phases(0, 1).len(), 1);
    assert_eq!(tick_phases(1, 1).len(), 16);
}

// Goal: a run begins at any time between two ticks, and which one is the seed's to say.
// Method: four seeds, four phases, one for all CPUs of a run.
#[test]
fn runs_begin_between_ticks() {
    let phases: BTreeSet<_> = (1..=4).flat_map(|seed| tick_phases(0, seed)).collect();
    assert_eq!(phases.len(), 4);
}

// Goal: the governor's prediction is bounded by the housekeeping time.
// Method: a CPU that sleeps 20 ms at a time goes deep; with housekeeping due every 100 us it does not.
#[test]
fn housekeeping_bounds_the_prediction() {
    let deep = |ns| {
        let mut costs = Costs::builtin("generic").expect("built in");
        costs.set("idle.idle_housekeeping_ns", ns).expect("known");
        let program = repeat(
            50,
            |i| {
                if i == 0 {
                    Action::Sleep(20 * MS)
                } else {
                    Action::Compute(MS)
                }
            },
            2,
        );
        let report = one(costs, TaskSpec::new("sleeper", program));
        report.idle_states_ns["C6"] as f64
    };
    assert!(deep(100 * US) < deep(100 * MS) / 2.0);
}
