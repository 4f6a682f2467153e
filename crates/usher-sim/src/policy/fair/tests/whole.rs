// SPDX-License-Identifier: GPL-2.0-only
//! Whole simulations under the engine's checkers.

use std::sync::Arc;

use super::machine;
use crate::cpuset::CpuSet;
use crate::engine::{Options, Simulation};
use crate::ids::Cpu;
use crate::policy::fair::config::{Config, Hints, LlcMask, MS};
use crate::policy::fair::Fair;
use crate::program::{Action, Class, Outcome, Program, TaskCtx, TaskSpec};
use crate::report::Report;
use crate::workload::{Stop, Workload};
use crate::world::{CounterId, Futex, World};

/// All versions, and all switches.
fn versions() -> Vec<Config> {
    let hints = Hints {
        fork: true,
        wake: true,
        balance: true,
    };
    vec![
        Config::cfs59(),
        Config {
            llc_mask: LlcMask::TickStop,
            ..Config::cfs59()
        },
        Config {
            llc_mask: LlcMask::IdleEntry,
            ..Config::cfs59()
        },
        Config {
            llc_mask: LlcMask::Claim,
            ..Config::eevdf()
        },
        Config::cfs60(),
        Config {
            hints,
            ..Config::cfs60()
        },
        Config::eevdf(),
    ]
}

fn run(
    cfg: &Config,
    on: &str,
    world: World,
    tasks: Vec<TaskSpec>,
    stop: Stop,
    seed: u64,
) -> Report {
    let workload = Workload::bare(world, tasks, stop);
    let policy = Fair::boxed(cfg.clone());
    let sim = Simulation::new(machine(on), policy, workload, seed, Options::default());
    sim.expect("a simulation")
        .run()
        .unwrap_or_else(|e| panic!("{}: {e}", cfg.name))
}

/// Counts the millisecond steps it computes, for ever.
fn hog(world: &mut World, name: &str) -> (CounterId, impl Program) {
    let steps = world.new_counter(name);
    let mut started = false;
    let program = move |ctx: &mut TaskCtx<'_>| {
        if std::mem::replace(&mut started, true) {
            ctx.count(steps, 1);
        }
        Action::Compute(100_000)
    };
    (steps, program)
}

// Goal: CPU time is shared by weight: 1024 to 335 within 2 %, whichever the version.
// Method: two hogs pinned to one CPU for ten seconds, under the engine.
#[test]
fn pinned_hogs_share_by_weight() {
    for cfg in [Config::cfs59(), Config::cfs60(), Config::eevdf()] {
        let mut world = World::new();
        let pin = Arc::new(CpuSet::of(Cpu(1)));
        let tasks = [("heavy", 0), ("light", 5)].map(|(name, nice)| {
            let (_, program) = hog(&mut world, name);
            TaskSpec::new(name, program)
                .class(Class::Normal { nice })
                .affinity(pin.clone())
        });
        let report = run(
            &cfg,
            "2n2l2c2t",
            world,
            tasks.into(),
            Stop::At(10_000 * MS),
            1,
        );
        let share = report.metrics["heavy"] / (report.metrics["heavy"] + report.metrics["light"]);
        let expected = 1024.0 / (1024.0 + 335.0);
        assert!(
            (share / expected - 1.0).abs() < 0.02,
            "{}: {share}, not {expected}",
            cfg.name
        );
    }
}

// Goal: balancing fills the machine: as many hogs as CPUs, all born on one, end up with a CPU each; twice as
// many with half a CPU each, within 10 %.
// Method: one second; the slowest against the fair share, and the machine's utilisation.
#[test]
fn hogs_spread_over_the_machine() {
    for cfg in versions() {
        for per_cpu in [1, 2] {
            let mut world = World::new();
            let tasks = (0..16 * per_cpu)
                .map(|i| TaskSpec::new("hog", hog(&mut world, &format!("steps{i:02}")).1))
                .collect();
            let report = run(&cfg, "2n2l2c2t", world, tasks, Stop::At(2_000 * MS), 1);
            let busy = report.metrics["utilisation"];
            assert!(
                busy > 0.97,
                "{} {per_cpu} per cpu: utilisation {busy}",
                cfg.name
            );
            let steps = report
                .metrics
                .iter()
                .filter(|(k, _)| k.starts_with("steps") && k.len() == 7);
            let least = steps.map(|(_, v)| *v).fold(f64::MAX, f64::min);
            // Threads of a core run at 0.6 each.
            let fair = 2_000.0 * 10.0 * 0.6 / f64::from(per_cpu);
            assert!(
                least > 0.7 * fair,
                "{} {per_cpu} per cpu: {least} of {fair}",
                cfg.name
            );
        }
    }
}

/// A group of ping-pong pairs over futexes, with some computing, changes of nice, affinity and hints.
fn pair(world: &mut World, moves: CounterId, rounds: u32, i: u32) -> [TaskSpec; 2] {
    let futexes = [world.new_futex(0), world.new_futex(0)];
    [0, 1].map(|side| {
        let (mine, other): (Futex, Futex) = (futexes[side], futexes[1 - side]);
        let mut step = 0;
        let program = move |ctx: &mut TaskCtx<'_>| {
            step += 1;
            if step > rounds * 4 {
                return Action::Exit;
            }
            match step % 4 {
                1 => Action::Compute(ctx.rng().range(1_000, 300_000)),
                2 => {
                    *ctx.futex(other) += 1;
                    ctx.count(moves, 1);
                    Action::FutexWake {
                        futex: other,
                        count: 1,
                    }
                }
                3 if step % 32 == 3 => Action::SetClass(Class::Normal {
                    nice: (step % 7) as i8,
                }),
                3 => Action::Yield,
                _ => {
                    let _ = matches!(ctx.outcome(), Outcome::TimedOut);
                    let expected = *ctx.futex(mine);
                    Action::FutexWait {
                        futex: mine,
                        expected,
                        timeout: Some(500_000),
                    }
                }
            }
        };
        let spec = TaskSpec::new(format!("pair{i}.{side}"), program);
        match (i + side as u32) % 5 {
            0 => spec.class(Class::Batch { nice: 3 }),
            1 => spec.class(Class::Idle),
            2 if i.is_multiple_of(3) => spec.class(Class::RoundRobin { prio: 10 }),
            _ => spec,
        }
    })
}

// Goal: no rule of the engine is broken, whatever tasks do, and a run repeats to the bit.
// Method: pairs that wake, time out, yield, change class; all versions on four kinds of machines; twice.
#[test]
fn mixed_work_runs_to_its_end_on_all_machines() {
    for cfg in versions() {
        for on in ["2n2l2c2t", "4n4l2c1t", "tc2-2a15-3a7", "hybrid-8p16e"] {
            let once = |seed| {
                let mut world = World::new();
                let moves = world.new_counter("rounds");
                let tasks = (0..12)
                    .flat_map(|i| pair(&mut world, moves, 40, i))
                    .collect();
                run(&cfg, on, world, tasks, Stop::AllExit, seed)
            };
            let (a, b) = (once(3), once(3));
            assert_eq!(a.log_hash, b.log_hash, "{} on {on}", cfg.name);
            assert_ne!(a.log_hash, once(4).log_hash, "{} on {on}", cfg.name);
            assert_eq!(a.metrics["rounds"], 12.0 * 2.0 * 40.0);
        }
    }
}

// Goal: affinities hold and change under running, waiting and sleeping tasks.
// Method: more tasks than CPUs, each of which moves its own mask about; the engine checks every pick.
#[test]
fn affinities_change_at_any_time() {
    for cfg in versions() {
        let world = World::new();
        let tasks = (0..40u32).map(|i| {
            let mut step = 0;
            TaskSpec::new("mover", move |ctx: &mut TaskCtx<'_>| {
                step += 1;
                match step % 3 {
                    _ if step > 60 => Action::Exit,
                    0 => {
                        let first = ctx.rng().below(16) as u32;
                        let wide = ctx.rng().below(4) as u32 * i % 5;
                        let set = (first..=first + wide).map(|c| Cpu(c % 16)).collect();
                        Action::SetAffinity(Arc::new(set))
                    }
                    1 => Action::Compute(ctx.rng().range(1_000, 2_000_000)),
                    _ => Action::Sleep(ctx.rng().range(1_000, 3_000_000)),
                }
            })
        });
        run(&cfg, "2n2l2c2t", world, tasks.collect(), Stop::AllExit, 5);
    }
}

// Goal: the checker knows for how long a CPU may idle beside a waiting task: within an LLC of equal CPUs for
// some balancing intervals; across LLCs, between capacities and beside real-time tasks the rules oblige nobody.
// Method: one waiting task, asked for from four CPUs.
#[test]
fn the_idle_bound_follows_the_domains() {
    use super::stage::Stage;
    use crate::policy::Policy;
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    stage.runner(1);
    let task = stage.waiter(1);
    let bound = |stage: &Stage, cpu| stage.fair.idle_bound_ns(&stage.sim.host, task, Cpu(cpu));
    assert_eq!(bound(&stage, 0), Some((32 * 16 + 64) * MS));
    assert_eq!(bound(&stage, 9), None);
    let mut stage = Stage::new(machine("hybrid-8p16e"), Config::eevdf());
    stage.runner(1);
    let task = stage.waiter(1);
    let machine = stage.sim.host.machine();
    let weakest = machine.cpus().iter().copied();
    let weakest = weakest.min_by_key(|&cpu| machine.cpu(cpu).capacity);
    let weakest = weakest.expect("a CPU");
    assert_eq!(
        stage.fair.idle_bound_ns(&stage.sim.host, task, weakest),
        None
    );
}
