// SPDX-License-Identifier: GPL-2.0-only
//! Between a task's going to sleep and its CPU's running something else: the CPU looks for work elsewhere, or switches; the task
//! may be woken meanwhile, and interrupts wait.

mod common;

use std::collections::{BTreeMap, VecDeque};

use common::*;
use usher_sim::costs::Costs;
use usher_sim::policy::prelude::*;
use usher_sim::program::{Action, Class, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, World};
use usher_sim::{Report, Simulation};

const LOOK: u64 = 10 * US;

/// Runs pinned tasks. A CPU that has left one and has nothing else looks around three times, for 10 us each, or until something
/// comes.
struct Looker {
    queues: BTreeMap<Cpu, VecDeque<TaskId>>,
    looks: BTreeMap<Cpu, u32>,
    leaving: Leaving,
}

impl Policy for Looker {
    fn name(&self) -> &str {
        "looker"
    }
    fn reasons(&self) -> &'static [&'static str] {
        &[]
    }
    fn attach(&mut self, _host: &mut Host) {}
    fn select(&mut self, _host: &mut Host, wake: &WakeInfo) -> Placement {
        unreachable!("pinned tasks are not asked about: {wake:?}")
    }
    fn wake_leaving(&mut self, _host: &mut Host, _task: TaskId, cpu: Cpu, here: Cpu) -> Leaving {
        assert_eq!((cpu, here), (Cpu(1), Cpu(0)));
        self.leaving
    }
    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, _why: EnqueueWhy) {
        self.queues.entry(cpu).or_default().push_back(task);
        if host.curr(cpu).is_none() {
            host.resched(cpu);
        }
    }
    fn dequeue(&mut self, host: &mut Host, task: TaskId) {
        let queue = self.queues.entry(host.task(task).cpu()).or_default();
        queue.retain(|queued| *queued != task);
    }
    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        // What asks for this very decision is not asked for again.
        host.resched(cpu);
        self.queues.entry(cpu).or_default().pop_front()
    }
    fn newidle(&mut self, host: &mut Host, cpu: Cpu, prev: Option<TaskId>) -> Newidle {
        let looks = self.looks.entry(cpu).or_default();
        *looks += 1;
        let came = !self.queues.entry(cpu).or_default().is_empty();
        if !came && prev.is_some() && *looks <= 3 && host.wakes_pending(cpu) == 0 {
            host.charge(LOOK);
            return Newidle::GoesOn;
        }
        *looks = 0;
        match came {
            true => Newidle::Pick,
            false => Newidle::Idle,
        }
    }
    fn put_prev(&mut self, _host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        assert!(
            !why.is_runnable(),
            "task {task} of {cpu} is sent away by nobody"
        );
    }
    fn idle_bound_ns(&self, _host: &Host, _task: TaskId, _cpu: Cpu) -> Option<Nanos> {
        Some(0)
    }
}

fn looking(costs: Costs, world: World, tasks: Vec<TaskSpec>, leaving: Leaving) -> Report {
    let policy = Looker {
        queues: BTreeMap::new(),
        looks: BTreeMap::new(),
        leaving,
    };
    let machine = machine("l3:1 core:4 pu:1", costs);
    let workload = workload(world, tasks, Stop::AllExit);
    let sim = Simulation::new(machine, Box::new(policy), workload, 1, Default::default());
    sim.expect("legal").run().expect("it runs")
}

/// A task that goes to sleep on CPU 1 at once and is woken from CPU 0 after 15 us. Results: `read_ns` and `wrote_ns`, when the two
/// are done. `switch`: CPU 1 has something else to run and takes so long to switch to it.
fn sleep_and_wake(leaving: Leaving, switch: Option<Nanos>) -> Report {
    let mut costs = free_costs();
    let mut world = World::new();
    let channel = world.new_channel(ChannelSpec::PIPE);
    let [read, wrote] = ["read_ns", "wrote_ns"].map(|name| world.new_value(name));
    let message = 8;
    let sleeper = script(vec![
        Step::Act(Action::Read {
            channel,
            bytes: message,
            exact: true,
        }),
        Step::Stamp(read),
    ]);
    let waker = script(vec![
        Step::Act(Action::Compute(15 * US)),
        Step::Act(Action::Write {
            channel,
            bytes: message,
        }),
        Step::Stamp(wrote),
    ]);
    let sleeper = TaskSpec::new("sleeper", sleeper).affinity(only(1));
    let mut tasks = vec![sleeper, TaskSpec::new("waker", waker).affinity(only(0))];
    if let Some(ns) = switch {
        costs.set("switch.switch_ns", ns).expect("a known name");
        let busy = script(vec![Step::Act(Action::Compute(MS))]);
        tasks.push(TaskSpec::new("busy", busy).affinity(only(1)));
    }
    looking(costs, world, tasks, leaving)
}

// Goal: a task that is on its way to a CPU's queue when it may no longer run there goes on to where it may.
// Method: the waker above takes the CPU away from the sleeper before its search is over. Alone the sleeper would be taken back at 20 us;
// so it is, and runs elsewhere.
#[test]
fn who_may_not_run_where_it_lands_goes_on() {
    let mut world = World::new();
    let channel = world.new_channel(ChannelSpec::PIPE);
    let [read, on] = ["read_ns", "read_on"].map(|name| world.new_value(name));
    let (bytes, exact) = (8, true);
    let sleeper = script(vec![
        Step::Act(Action::Read {
            channel,
            bytes,
            exact,
        }),
        Step::Stamp(read),
        look(move |ctx| ctx.set_value(on, u64::from(ctx.cpu().0))),
    ]);
    let waker = script(vec![
        Step::Act(Action::Compute(15 * US)),
        Step::Act(Action::Write { channel, bytes }),
        Step::Act(Action::SetAffinityOf(TaskId(0), only(2))),
    ]);
    let sleeper = TaskSpec::new("sleeper", sleeper).affinity(only(1));
    let waker = TaskSpec::new("waker", waker).affinity(only(0));
    let report = looking(free_costs(), world, vec![sleeper, waker], Leaving::Queue);
    let metric = |name: &str| report.metrics[name] as u64;
    assert_eq!([metric("read_ns") / US, metric("read_on")], [20, 2]);
}

/// When the two are done, in us, and how many wakeups were handed to a CPU that still looked around.
fn done(report: &Report) -> [u64; 3] {
    let metric = |name: &str| report.metrics[name] as u64;
    [
        metric("read_ns") / US,
        metric("wrote_ns") / US,
        metric("wakeups_leaving"),
    ]
}

// Goal: a task that is woken while its CPU looks around is handed to that CPU, which takes it when that look is over; or its waker
// waits until then; or nobody waits, as it never left its queue. Whatever asks a CPU to decide while it decides asks for nothing.
// Method: the wakeup comes at 15 us, in the second of three looks of 10 us; nothing else takes time.
#[test]
fn wakeups_come_while_a_cpu_looks_around() {
    assert_eq!(done(&sleep_and_wake(Leaving::Queue, None)), [20, 15, 1]);
    assert_eq!(done(&sleep_and_wake(Leaving::Wait, None)), [20, 20, 0]);
    assert_eq!(done(&sleep_and_wake(Leaving::Never, None)), [20, 15, 0]);
}

// Goal: so it is while the CPU switches to something else.
// Method: switches of 20 us: the task goes to sleep at 20 us and is woken at 35, when its CPU has 5 more to go. Switches of 10:
// it is woken 5 us after its CPU's.
#[test]
fn wakeups_come_while_a_cpu_switches() {
    // It runs on after the other one's millisecond, and another switch.
    let after = |switch: u64| 1000 + 3 * switch;
    for (leaving, wrote, handed) in [(Leaving::Queue, 35, 1), (Leaving::Wait, 40, 0)] {
        let done = done(&sleep_and_wake(leaving, Some(20 * US)));
        assert_eq!(done, [after(20), wrote, handed]);
    }
    let done = done(&sleep_and_wake(Leaving::Queue, Some(10 * US)));
    assert_eq!(done, [after(10), 25, 0]);
}

// Goal: interrupts wait until a CPU has looked around, and come before it idles.
// Method: the task's own timer, after 15 us of three looks of 10. Going idle takes 5: before the run, not after the looks.
#[test]
fn interrupts_wait_for_the_search() {
    let mut costs = free_costs();
    costs
        .set("idle.idle_enter_ns", 5 * US)
        .expect("a known name");
    let mut world = World::new();
    let woke = world.new_value("woke_ns");
    let sleeper = script(vec![Step::Act(Action::Sleep(15 * US)), Step::Stamp(woke)]);
    let sleeper = TaskSpec::new("sleeper", sleeper)
        .class(Class::Fifo { prio: 1 })
        .affinity(only(1));
    let report = looking(costs, world, vec![sleeper], Leaving::Wait);
    assert_eq!(report.metrics["woke_ns"] as u64 / US, 5 + 30);
}
