// SPDX-License-Identifier: GPL-2.0-only
//! Waits for a CPU, as an observer tells them.

mod common;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use common::*;
use usher_sim::policy::prelude::*;
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::waits::{Near, WaitKind, Waits};
use usher_sim::workload::Stop;
use usher_sim::world::World;
use usher_sim::{Machine, Options, Report, Simulation, Workload};

/// Runs, and hands back what was observed.
fn observed(
    machine: &Arc<Machine>,
    policy: Box<dyn Policy>,
    workload: Workload,
    keep: usize,
) -> (Report, Arc<Mutex<Waits>>) {
    let waits = Waits::new(Arc::clone(machine), policy.reasons(), keep);
    let waits = Arc::new(Mutex::new(waits));
    let options = Options {
        tracers: vec![Waits::observer(&waits)],
        ..Options::default()
    };
    let sim = Simulation::new(Arc::clone(machine), policy, workload, 1, options);
    let report = sim.expect("legal").run().expect("runs");
    (report, waits)
}

/// All tasks wait at CPU 0, whoever else idles; turns last as long as the task wants.
#[derive(Default)]
struct OnePlace(VecDeque<TaskId>);

impl Policy for OnePlace {
    fn name(&self) -> &str {
        "one-place"
    }
    fn reasons(&self) -> &'static [&'static str] {
        &["here"]
    }
    fn attach(&mut self, _host: &mut Host) {}
    fn select(&mut self, _host: &mut Host, _wake: &WakeInfo) -> Placement {
        Placement::new(Cpu(0), 0)
    }
    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, _why: EnqueueWhy) {
        self.0.push_back(task);
        if host.is_idle(cpu) {
            host.resched(cpu);
        }
    }
    fn dequeue(&mut self, _host: &mut Host, task: TaskId) {
        self.0.retain(|&t| t != task);
    }
    fn pick_next(&mut self, _host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        if cpu == Cpu(0) {
            self.0.pop_front()
        } else {
            None
        }
    }
    fn put_prev(&mut self, _host: &mut Host, task: TaskId, _cpu: Cpu, why: StopWhy) {
        if why.is_runnable() {
            self.0.push_back(task);
        }
    }
    fn tick(&mut self, _host: &mut Host, _cpu: Cpu, _curr: TaskId) {}
}

fn once(work: Nanos) -> TaskSpec {
    let mut left = Some(work);
    let program = move |_: &mut TaskCtx<'_>| left.take().map_or(Action::Exit, Action::Compute);
    TaskSpec::new("once", program)
}

// Goal: waits are told by how they began, behind whom, for how long, and how long of it CPUs idled, near and far.
// Method: two nodes with two LLCs of one CPU each; three tasks of 10 ms born at once on CPU 0, in whose LLC nobody else can idle.
#[test]
fn who_waits_beside_idle_cpus_is_told() {
    let machine = Arc::new(machine("numa:2 l3:2 core:1 pu:1", free_costs()));
    let tasks = (0..3).map(|_| once(10 * MS)).collect();
    let workload = workload(World::new(), tasks, Stop::AllExit);
    let (_, waits) = observed(&machine, Box::<OnePlace>::default(), workload, 2);
    let waits = waits.lock().unwrap();
    let counts: Vec<u64> = waits.waited().iter().map(|kind| kind.count).collect();
    assert_eq!(counts, [1, 2, 0]);
    let behind = &waits.waited()[WaitKind::Behind as usize];
    let expected = Near {
        llc: 0,
        node: 30 * MS,
        machine: 30 * MS,
    };
    assert_eq!(
        (behind.total_ns, behind.beside_idle_ns),
        (30 * MS, expected)
    );
    let slowest = waits.slowest();
    let shown: Vec<_> = slowest
        .iter()
        .map(|s| (s.wait_ns / MS, s.task.0, s.sent_to, s.got))
        .collect();
    assert_eq!(shown, [(20, 2, 0, Some(0)), (10, 1, 0, Some(0))]);
    assert_eq!(
        slowest[0].idle,
        Near {
            llc: 0,
            node: 1,
            machine: 3
        }
    );
    assert_eq!(slowest[0].behind, Some((0, "once".into())));
    assert_eq!(
        (slowest[0].kind, slowest[0].reason),
        (WaitKind::Behind, Some("here"))
    );
    assert!(!waits.restricted());
}

// Goal: who still waits at the end is among the slowest, but is no wait that is over; who may not run everywhere is told apart.
// Method: as above, stopped after 15 ms, and one of the tasks may run on CPUs 0 and 3 only.
#[test]
fn who_waits_at_the_end_is_told() {
    let machine = Arc::new(machine("numa:2 l3:2 core:1 pu:1", free_costs()));
    let some = Arc::new([Cpu(0), Cpu(3)].into_iter().collect());
    let tasks = vec![once(10 * MS), once(10 * MS), once(10 * MS).affinity(some)];
    let workload = workload(World::new(), tasks, Stop::At(15 * MS));
    let (_, waits) = observed(&machine, Box::<OnePlace>::default(), workload, 1);
    let waits = waits.lock().unwrap();
    let behind = &waits.waited()[WaitKind::Behind as usize];
    assert_eq!((behind.count, behind.total_ns), (1, 10 * MS));
    let slowest = waits.slowest();
    assert_eq!((slowest[0].wait_ns, slowest[0].got), (15 * MS, None));
    assert_eq!(waits.still(), 1);
    assert_eq!(
        slowest[0].idle,
        Near {
            llc: 0,
            node: 0,
            machine: 1
        }
    );
    assert!(waits.restricted());
}

// Goal: the observer's waits are the run's: as many, as long, and it changes nothing.
// Method: schbench, in which nobody is born after the warmup, with more work than CPUs and with less, under policies of all kinds; the
// run's own figures and hash with and without.
#[test]
fn the_observers_waits_are_the_runs() {
    let machine = shipped("2n2l2c2t", &[]);
    for policy in [
        "usher",
        "eevdf",
        "cfs-6.0",
        "cfs-3.9",
        "scx-simple",
        "rt",
        "fifo",
    ] {
        for workers in ["2", "12"] {
            let set = [
                "message_threads=2",
                &format!("workers={workers}"),
                "runtime=400ms",
                "cputime=1ms",
                "sleeptime=1ms",
            ];
            let case = case_of(&machine, "schbench", &set, policy);
            let built = usher_sim::policy::build(&case.policy, case.policy_params.clone());
            let waits = Waits::new(Arc::clone(&machine), built.expect("legal").0.reasons(), 5);
            let waits = Arc::new(Mutex::new(waits));
            let options = Options {
                tracers: vec![Waits::observer(&waits)],
                ..Options::default()
            };
            let report = case.run(1, options, |_| true).expect("it runs");
            let plain = case.run(1, Options::default(), |_| true).expect("it runs");
            assert_eq!(report.log_hash, plain.log_hash, "{policy}");
            let waits = waits.lock().unwrap();
            let [to_idle, behind, stopped] = waits.waited() else {
                panic!("three kinds");
            };
            let (metric, what) = (
                |name: &str| report.metrics[name],
                format!("{policy} {workers}"),
            );
            assert_eq!(
                (to_idle.count + behind.count) as f64,
                metric("wake_latency_count"),
                "{what}"
            );
            let longest = to_idle.histogram.max().max(behind.histogram.max());
            assert_eq!(longest as f64, metric("wake_latency_ns_max"), "{what}");
            assert!(
                workers == "2"
                    || stopped.count > 0
                    || ["rt", "fifo", "scx-simple"].contains(&policy),
                "{what}"
            );
            for kind in waits.waited() {
                let beside = kind.beside_idle_ns;
                let rising = [beside.llc, beside.node, beside.machine, kind.total_ns];
                assert!(rising.is_sorted(), "{what}: {rising:?}");
            }
            let slowest = waits.slowest();
            let longest_first = |slowest: &[usher_sim::waits::SlowWait]| {
                slowest.iter().map(|s| s.wait_ns).rev().is_sorted()
            };
            let sorted = longest_first(&slowest) && longest_first(&waits.slowest_stopped());
            assert!(sorted && slowest.len() == 5, "{what}");
            assert!(slowest[0].wait_ns >= longest / 1000 * 999, "{what}");
        }
    }
}
