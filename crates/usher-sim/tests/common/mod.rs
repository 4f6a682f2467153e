// SPDX-License-Identifier: GPL-2.0-only
//! Machines and runs for the tests.
#![allow(dead_code)] // each test file uses its part

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_sim::case::{self, parse_policy, Case};
use usher_sim::costs::{CostNumbers, Costs};
use usher_sim::cpuset::CpuSet;
use usher_sim::params::Params;
use usher_sim::policy::build;
use usher_sim::policy::fifo::Fifo;
use usher_sim::program::{Action, Program, TaskCtx, TaskSpec};
use usher_sim::workload::{Headline, Stop};
use usher_sim::world::{ValueId, World};
use usher_sim::{Cpu, Machine, Nanos, Options, Policy, Report, SimError, Simulation, Workload};
use usher_topo::{Source, Topology};

pub const US: Nanos = 1_000;
pub const MS: Nanos = 1_000_000;
pub const SEC: Nanos = 1_000_000_000;

/// A machine from an hwloc synthetic string.
pub fn machine(shape: &str, costs: Costs) -> Machine {
    let raw = Source::Synthetic(shape.into())
        .read()
        .expect("a legal synthetic string");
    Machine::new(Topology::build(&raw, 64).expect("a legal topology"), costs).expect("legal costs")
}

/// A machine that ships, with some costs of its own: `line.line_remote_ns=400`.
pub fn shipped(name: &str, costs: &[&str]) -> Arc<Machine> {
    let costs = Params::parse(costs.iter().copied()).expect("legal pairs");
    Arc::new(case::machine(&Source::Machine(name.into()), &costs).expect("it ships"))
}

/// A workload that ships, with what is set for it, under a policy.
pub fn case_of(machine: &Arc<Machine>, workload: &str, set: &[&str], policy: &str) -> Case {
    let (policy, policy_params) = parse_policy(policy).expect("a legal policy");
    Case {
        machine: Arc::clone(machine),
        workload: workload.into(),
        workload_params: Params::parse(set.iter().copied()).expect("legal pairs"),
        policy,
        policy_params,
    }
}

/// Runs it, without [`Options::checks`], which take their time.
pub fn run_case(
    machine: &Arc<Machine>,
    workload: &str,
    set: &[&str],
    policy: &str,
    seed: u64,
) -> Report {
    let options = Options {
        checks: false,
        ..Options::default()
    };
    let case = case_of(machine, workload, set, policy);
    case.run(seed, options, |_| true).expect("it runs")
}

/// A server of no particular make.
pub fn usual_costs() -> Costs {
    Costs::builtin("generic").expect("a built-in table")
}

/// Everything free, one idle state that costs nothing, no SMT penalty, ticks as rare as they get.
pub fn free_costs() -> Costs {
    let mut costs = usual_costs();
    for name in CostNumbers::NAMES {
        let costs_nothing = ["tick.hz", "cpu.clock_mhz", "clock.clock_full_permille"];
        if !name.ends_with("_slit") && !costs_nothing.contains(name) {
            costs.set(name, 0).expect("a known name");
        }
    }
    costs.set("tick.hz", 24).expect("a known name");
    costs.smt_share_permille = vec![1000];
    costs.idle_states.truncate(1);
    costs.idle_states[0].exit_ns = 0;
    costs
}

/// A workload of some root tasks.
pub fn workload(world: World, tasks: Vec<TaskSpec>, stop: Stop) -> Workload {
    Workload {
        name: "test".into(),
        parameters: BTreeMap::new(),
        world,
        tasks,
        stop,
        warmup: 0,
        headline: Headline {
            metric: "events".into(),
            higher_is_better: false,
            tail: None,
        },
        limits: Vec::new(),
    }
}

pub fn fifo() -> Box<dyn Policy> {
    Box::new(Fifo::default())
}

/// Runs with checks on, under `fifo`.
pub fn run(machine: Machine, workload: Workload, seed: u64) -> Result<Report, SimError> {
    Simulation::new(machine, fifo(), workload, seed, Options::default())?.run()
}

/// A task that never sleeps.
pub fn hog() -> TaskSpec {
    TaskSpec::new("hog", |_: &mut TaskCtx<'_>| Action::Compute(10 * MS))
}

/// Runs with checks on, under a policy (as on the command line).
pub fn run_under(policy: &str, machine: Machine, workload: Workload) -> Report {
    run_seeded(policy, machine, workload, 1)
}

/// The same with another seed.
pub fn run_seeded(policy: &str, machine: Machine, workload: Workload, seed: u64) -> Report {
    let (name, params) = parse_policy(policy).expect("well-formed");
    let (policy, _) = build(&name, params).expect("a built-in policy");
    Simulation::new(machine, policy, workload, seed, Options::default())
        .expect("legal")
        .run()
        .expect("it runs")
}

/// Runs tasks on four CPUs with one queue, at the usual costs, under a policy.
pub fn on_four_cpus(policy: &str, world: World, tasks: Vec<TaskSpec>, end: Nanos) -> Report {
    let costs = usual_costs();
    let machine = machine("l3:1 core:4 pu:1", costs);
    run_under(policy, machine, workload(world, tasks, Stop::At(end)))
}

/// `actual` is within `percent` of `expected`.
pub fn assert_near(what: &str, actual: f64, expected: f64, percent: f64) {
    let error = (actual - expected).abs() / expected.abs() * 100.0;
    assert!(
        error <= percent,
        "{what}: {actual} instead of {expected}, {error:.2} % off"
    );
}

/// A step of a [`script`].
pub enum Step {
    /// Does something.
    Act(Action),
    /// Writes the time into a result.
    Stamp(ValueId),
    /// Looks at the outcome of the last action, or at anything else.
    Look(Box<dyn FnOnce(&mut TaskCtx<'_>) + Send>),
}

/// A step that looks.
pub fn look(look: impl FnOnce(&mut TaskCtx<'_>) + Send + 'static) -> Step {
    Step::Look(Box::new(look))
}

/// A program that goes through steps and exits.
pub fn script(steps: Vec<Step>) -> impl Program {
    let mut steps = steps.into_iter();
    move |ctx: &mut TaskCtx<'_>| loop {
        match steps.next() {
            Some(Step::Act(action)) => return action,
            Some(Step::Stamp(value)) => ctx.set_value(value, ctx.now()),
            Some(Step::Look(look)) => look(ctx),
            None => return Action::Exit,
        }
    }
}

/// Repeats some actions, by their place in a round of `len`, so many times and exits.
pub fn repeat(
    times: u32,
    actions: impl Fn(u32) -> Action + Send + 'static,
    len: u32,
) -> impl Program {
    let mut i = 0;
    move |_: &mut TaskCtx<'_>| {
        i += 1;
        if i > times * len {
            return Action::Exit;
        }
        actions((i - 1) % len)
    }
}

/// A set of one CPU, shared.
pub fn only(cpu: u32) -> Arc<CpuSet> {
    Arc::new(CpuSet::of(Cpu(cpu)))
}
