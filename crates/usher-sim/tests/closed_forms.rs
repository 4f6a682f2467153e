// SPDX-License-Identifier: GPL-2.0-only
//! Situations whose outcome is known exactly: the simulator must agree within 2 %.

mod common;

use std::sync::Arc;

use common::*;
use usher_sim::coherence::Access;
use usher_sim::ids::LineId;
use usher_sim::params::Params;
use usher_sim::policy::{EnqueueWhy, Host, Placement, StopWhy, WakeInfo};
use usher_sim::program::{Action, TaskCtx, TaskSpec};
use usher_sim::rng::Rng;
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, World};
use usher_sim::{Cpu, Machine, Nanos, Policy, TaskId};
use usher_topo::machine::{builtin_text, MachineFile};
use usher_topo::Topology;

/// Jobs that arrive at random (Poisson), each a task that works an exponential time and exits. Returns
/// the mean time in the system.
fn open_queue(servers: u32, arrival_mean: Nanos, service_mean: Nanos, jobs: u32, seed: u64) -> f64 {
    let mut world = World::new();
    let sojourn = world.new_latency("sojourn");
    let mut rng = Rng::new(seed);
    let mut at = 0;
    let tasks = (0..jobs).map(|_| {
        at += rng.exponential(arrival_mean);
        let (start, work) = (at, rng.exponential(service_mean).max(1));
        let mut done = false;
        let job = move |ctx: &mut TaskCtx<'_>| {
            if done {
                ctx.sample(sojourn, ctx.now() - start);
                return Action::Exit;
            }
            done = true;
            Action::Compute(work)
        };
        TaskSpec::new("job", job).start(start)
    });
    let tasks = tasks.collect();
    let machine = machine(&format!("core:{servers} pu:1"), free_costs());
    let report = run(machine, workload(world, tasks, Stop::AllExit), seed).expect("runs");
    report.metrics["sojourn_ns_mean"]
}

/// Mean time in the system of M/M/c: service plus Erlang C's wait.
fn erlang_c(servers: u32, arrival_mean: f64, service_mean: f64) -> f64 {
    let load = service_mean / arrival_mean;
    let c = f64::from(servers);
    let mut term = 1.0;
    let mut sum = 0.0;
    for k in 0..servers {
        sum += term;
        term *= load / f64::from(k + 1);
    }
    let waiting = term / (1.0 - load / c);
    let wait_probability = waiting / (sum + waiting);
    service_mean + wait_probability * service_mean / (c - load)
}

// Goal: queueing is right: mean time in the system of M/M/1 and M/M/4.
// Method: 20 runs of 20,000 jobs at 60 % and 75 % load on a machine on which nothing else costs, against
// Erlang's formula. (The discipline does not matter for the mean, as it does not know the job sizes.)
#[test]
fn queueing_follows_erlang() {
    for (servers, arrival, service) in [(1, 100 * US, 60 * US), (4, 25 * US, 75 * US)] {
        let runs = 20;
        let sum: f64 = (0..runs)
            .map(|s| open_queue(servers, arrival, service, 20_000, s))
            .sum();
        let expected = erlang_c(servers, arrival as f64, service as f64);
        assert_near(&format!("M/M/{servers}"), sum / runs as f64, expected, 2.0);
    }
}

// Goal: SMT sharing: k busy threads of a core each run at the table's share, and speed changes in the
// middle of work are accounted for.
// Method: thread 0 works 10 ms; thread 1 joins after 2 ms and works 3 ms. Shares 1.0 and 0.6. Thread 0 does
// 2 ms alone; thread 1 needs 3 / 0.6 = 5 ms, in which thread 0 does 3 ms; 5 ms remain: 12 ms in all.
#[test]
fn siblings_share_a_core() {
    let mut costs = free_costs();
    costs.smt_share_permille = vec![1000, 600];
    let mut world = World::new();
    let done = [world.new_value("first_ns"), world.new_value("second_ns")];
    let work = [(0, 10 * MS), (2 * MS, 3 * MS)];
    let tasks = std::iter::zip(work, done)
        .enumerate()
        .map(|(i, ((start, ns), done))| {
            let mut worked = false;
            let program = move |ctx: &mut TaskCtx<'_>| {
                if worked {
                    ctx.set_value(done, ctx.now());
                    return Action::Exit;
                }
                worked = true;
                Action::Compute(ns)
            };
            TaskSpec::new("worker", program)
                .start(start)
                .affinity(only(i as u32))
        });
    let tasks = tasks.collect();
    let machine = machine("core:1 pu:2", costs);
    let report = run(machine, workload(world, tasks, Stop::AllExit), 1).expect("runs");
    assert_near("second", report.metrics["second_ns"], 7.0 * MS as f64, 0.01);
    assert_near("first", report.metrics["first_ns"], 12.0 * MS as f64, 0.01);
}

// Goal: work in the kernel takes its share of a core, as computing does: less where the sibling is busy, and no less where it idles.
// Method: 10,000 system calls of 1 us each, alone, beside a sibling that computes all the while, and beside one that makes as many.
#[test]
fn siblings_share_a_core_in_the_kernel() {
    let mut costs = free_costs();
    costs.set("syscall.poll_ns", 1_000).expect("a known name");
    costs.smt_share_permille = vec![1000, 600];
    let took = |beside: &str| {
        let mut world = World::new();
        let (ready, done) = (
            world.new_channel(ChannelSpec::UNIX_SOCKET),
            world.new_value("done_ns"),
        );
        let caller = |writes: bool| {
            let mut calls = 0;
            move |ctx: &mut TaskCtx<'_>| {
                calls += 1;
                match calls {
                    1 => Action::Write {
                        channel: ready,
                        bytes: 1,
                    },
                    2..10_002 => Action::Poll(Arc::new([ready])),
                    _ => {
                        if writes {
                            ctx.set_value(done, ctx.now());
                        }
                        Action::Exit
                    }
                }
            }
        };
        let mut tasks = vec![TaskSpec::new("caller", caller(true)).affinity(only(0))];
        match beside {
            "computes" => tasks.push(hog().affinity(only(1))),
            "calls" => tasks.push(TaskSpec::new("caller", caller(false)).affinity(only(1))),
            _ => {}
        }
        let machine = machine("core:1 pu:2", costs.clone());
        let report = run(machine, workload(world, tasks, Stop::At(100 * MS)), 1).expect("runs");
        report.metrics["done_ns"]
    };
    assert_near("alone", took("idles"), 10.0 * MS as f64, 0.01);
    for beside in ["computes", "calls"] {
        assert_near(beside, took(beside), 10.0 / 0.6 * MS as f64, 0.1);
    }
}

/// ARM's TC2, with so many of its three weak CPUs, on which nothing but computing costs.
fn tc2(weak: u32) -> Machine {
    let text = builtin_text("tc2-2a15-3a7").expect("built in");
    let text = text.replace("count = 3", &format!("count = {weak}"));
    let file = MachineFile::parse("tc2", &text).expect("a legal machine file");
    let raw = file.to_raw().expect("a legal machine");
    Machine::new(Topology::build(&raw, 64).expect("legal"), free_costs()).expect("legal costs")
}

// Goal: speeds of unequal CPUs: sysbench takes 1000 requests of 16.47 ms from a pool; with all CPUs busy it
// takes requests * time / sum of speeds. These are the bounds of the 2013 series: 16.47 s of thread time for
// one thread on a Cortex-A15, 27.6 for five while one A7 (speed 0.49) idles, 23.7 while none does.
// Method: one thread on a strong CPU; 5 and 40 threads on all five CPUs, and on four of them.
#[test]
fn sysbench_is_bounded_by_the_speeds() {
    let seconds = 1000.0 * 16.47e-3;
    for (weak, threads, speed) in [
        (3, 1, 1.0),
        (3, 5, 2.0 + 3.0 * 0.49),
        (3, 40, 2.0 + 3.0 * 0.49),
        (2, 5, 2.0 + 2.0 * 0.49),
    ] {
        let machine = tc2(weak);
        let pairs = [format!("threads={threads}")];
        let params = Params::parse(pairs.iter().map(String::as_str)).expect("legal");
        let workload =
            usher_sim::workload::build("sysbench-cpu", &machine, params).expect("a workload");
        let report = run(machine, workload, 1).expect("runs");
        assert_near(
            &format!("{threads} threads with {weak} weak CPUs"),
            report.metrics["time_ns"],
            f64::from(threads) * seconds / speed * 1e9,
            2.0,
        );
    }
    let published = |weak: f64| 5.0 * seconds / (2.0 + weak * 0.49);
    assert_near("one A7 idle", published(2.0), 27.6, 0.2);
    assert_near("all busy", published(3.0), 23.7, 0.2);
}

/// Puts tasks where they are pinned, and does an atomic operation on one line at every yield.
struct Hammer {
    line: LineId,
    queues: Vec<std::collections::VecDeque<TaskId>>,
}

impl Policy for Hammer {
    fn name(&self) -> &str {
        "hammer"
    }
    fn reasons(&self) -> &'static [&'static str] {
        &["pinned"]
    }
    fn attach(&mut self, host: &mut Host) {
        let class = host.line_class("hot");
        self.line = host.new_line(class, None);
        self.queues
            .resize(host.machine().nr_cpu_numbers(), Default::default());
    }
    fn select(&mut self, _host: &mut Host, wake: &WakeInfo) -> Placement {
        Placement {
            cpu: wake.prev,
            reason: 0,
        }
    }
    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, _why: EnqueueWhy) {
        self.queues[cpu.0 as usize].push_back(task);
        host.resched(cpu);
    }
    fn dequeue(&mut self, _host: &mut Host, _task: TaskId) {}
    fn pick_next(&mut self, _host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        self.queues[cpu.0 as usize].pop_front()
    }
    fn put_prev(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        if why.is_runnable() {
            host.access(self.line, Access::Rmw);
            self.queues[cpu.0 as usize].push_back(task);
        }
    }
    fn idle_bound_ns(&self, _host: &Host, _task: TaskId, _cpu: Cpu) -> Option<Nanos> {
        Some(0)
    }
}

// Goal: a line that many CPUs write serves one transfer at a time: with N CPUs that each do an atomic
// operation every T on their own, throughput is N / (T + L) while that is below 1 / L, and 1 / L above.
// Method: 2 and 16 CPUs of one LLC in a loop of yields that cost 1 us, transfer 100 ns.
#[test]
fn a_hot_line_caps_throughput() {
    let (think, transfer) = (1000.0, 100.0);
    for cpus in [2u32, 32] {
        let mut costs = free_costs();
        costs
            .set("line.line_llc_ns", transfer as u64)
            .expect("known");
        costs
            .set("syscall.syscall_ns", think as u64)
            .expect("known");
        let mut world = World::new();
        let yields = world.new_counter("yields");
        let tasks = (0..cpus).map(|cpu| {
            let program = move |ctx: &mut TaskCtx<'_>| {
                ctx.count(yields, 1);
                Action::Yield
            };
            TaskSpec::new("hammer", program).affinity(only(cpu))
        });
        let workload = workload(world, tasks.collect(), Stop::At(20 * MS));
        let policy = Box::new(Hammer {
            line: LineId(0),
            queues: Vec::new(),
        });
        let machine = machine(&format!("l3:1 core:{cpus} pu:1"), costs);
        let sim = usher_sim::Simulation::new(machine, policy, workload, 1, Default::default());
        let report = sim.expect("legal").run().expect("runs");
        let alone = f64::from(cpus) / (think + transfer);
        let expected = alone.min(1.0 / transfer) * 1e9;
        assert_near(
            &format!("{cpus} CPUs"),
            report.metrics["yields_per_s"],
            expected,
            2.0,
        );
        let line = &report.lines["hot"];
        let waits = line.wait_ns as f64 / line.accesses as f64;
        // Beyond saturation each CPU's cycle is N transfers long; what is not thinking or transfer is wait.
        let cycle = (f64::from(cpus) * transfer).max(think + transfer);
        assert!(
            (waits - (cycle - think - transfer)).abs() < 0.03 * cycle,
            "wait {waits}"
        );
    }
}
