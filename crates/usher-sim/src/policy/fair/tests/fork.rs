// SPDX-License-Identifier: GPL-2.0-only
//! 6.4: where new tasks go, and 2.2: what fork hints change. All on M1a: 2 nodes of 128 CPUs, 16 LLCs of
//! 16; CPUs 0-63 and 128-191 are node 0; LLC 0 is CPUs 0-7 and 128-135.

use super::machine;
use super::stage::Stage;
use crate::ids::Cpu;
use crate::policy::fair::config::{Config, Hints};
use crate::policy::fair::fork::numa_imbalance;
use crate::program::Hint;

fn hinted() -> Config {
    Config {
        hints: Hints {
            fork: true,
            ..Hints::default()
        },
        ..Config::cfs60()
    }
}

/// Node and LLC of a CPU.
fn home(stage: &Stage, cpu: u32) -> (u32, u32) {
    let info = *stage.sim.host.machine().cpu(Cpu(cpu));
    (info.node.0, info.llc.0)
}

/// A parent on CPU 0, `local` more busy CPUs on node 0 outside LLC 0, `remote` on node 1.
fn crowd(cfg: Config, local: u32, remote: u32) -> (Stage, crate::ids::TaskId) {
    let mut stage = Stage::new(machine("zen3-2s"), cfg);
    let near: Vec<u32> = (8..64).chain(136..192).collect();
    let far: Vec<u32> = (64..128).chain(192..256).collect();
    for &cpu in near
        .iter()
        .take(local as usize)
        .chain(far.iter().take(remote as usize))
    {
        stage.runner(cpu);
    }
    let parent = stage.runner(0);
    (stage, parent)
}

// Goal: 6.4 NUMA rule of 5.9: a new task stays on the node while one CPU there is idle.
// Method: 126 of 128 CPUs of node 0 busy and node 1 empty: stays; LLC 0's last CPUs busy, too: goes.
#[test]
fn in_5_9_one_idle_cpu_keeps_the_node() {
    let (mut stage, parent) = crowd(Config::cfs59(), 112, 0);
    for cpu in (1..8).chain(128..134) {
        stage.runner(cpu);
    }
    let (cpu, reason) = stage.fork(parent, Hint::NONE);
    assert_eq!((home(&stage, cpu).0, reason), (0, "fork-idle"));
    for cpu in [134, 135] {
        stage.runner(cpu);
    }
    let (cpu, _) = stage.fork(parent, Hint::NONE);
    assert_eq!(home(&stage, cpu).0, 1);
}

// Goal: 6.4 NUMA rule of 5.19: stay if nr + 1 <= imb_numa_nr (8 on M1a) and the gap is at most 2.
// Method: the arithmetic; then with 7 and 8 tasks on node 0 and as many less 2 on node 1.
#[test]
fn in_6_0_the_allowed_imbalance_keeps_the_node() {
    assert_eq!(numa_imbalance(2, 8, 8), 0);
    assert_eq!(numa_imbalance(3, 8, 8), 3);
    assert_eq!(numa_imbalance(2, 9, 8), 2);
    for (local, remote, node) in [(6, 5, 0), (7, 6, 1), (3, 0, 1), (1, 0, 0)] {
        let (mut stage, parent) = crowd(Config::cfs60(), local, remote);
        let (cpu, _) = stage.fork(parent, Hint::NONE);
        assert_eq!(
            home(&stage, cpu).0,
            node,
            "{local} + parent on node 0, {remote} on node 1"
        );
    }
}

// Goal: 6.4: below NUMA, groups with more idle CPUs attract, and ties stay local.
// Method: a parent alone; then one task in each LLC of the machine.
#[test]
fn idle_cpus_attract() {
    let (mut stage, parent) = crowd(Config::cfs60(), 0, 0);
    let (cpu, reason) = stage.fork(parent, Hint::NONE);
    let (node, llc) = home(&stage, cpu);
    assert_eq!((node, reason), (0, "fork-idle"));
    assert_ne!(llc, 0, "15 idle CPUs here, 16 in every other LLC");
    let (mut stage, parent) = crowd(Config::cfs60(), 0, 0);
    (1..16).for_each(|llc| {
        stage.runner(8 * llc);
    });
    let (cpu, _) = stage.fork(parent, Hint::NONE);
    assert_eq!(home(&stage, cpu), (0, 0));
    assert!(
        cpu != 0 && cpu != 128,
        "an idle core, not the parent's: {cpu}"
    );
}

// Goal: 6.4: inside the group the shallowest idle state wins, then the most recently idle CPU.
// Method: the child of a lone parent goes to LLC 1 (CPUs 8-15, 136-143), all idle; one CPU idled last; then
// all but one are in a deep state.
#[test]
fn shallow_and_recent_idle_cpus_are_preferred() {
    let (mut stage, parent) = crowd(Config::cfs60(), 0, 0);
    stage.fair.cpus[11].idle_stamp = 900;
    assert_eq!(stage.fork(parent, Hint::NONE).0, 11);
    let (mut stage, parent) = crowd(Config::cfs60(), 0, 0);
    stage.fair.cpus[11].idle_stamp = 900;
    for cpu in (8..16).chain(136..144) {
        let state = &mut stage.sim.host.cpus[cpu];
        (state.phase, state.idle_state) = (crate::state::Phase::Idle, u8::from(cpu != 138));
    }
    assert_eq!(stage.fork(parent, Hint::NONE).0, 138);
}

// Goal: 2.2 FORK_AFFINE on M1a: stays on the node while more than 64 of 128 CPUs are idle, and in the LLC
// while more than 8 of 16 are.
// Method: busy CPUs on both sides of both borders; the parent itself is one of the busy.
#[test]
fn affine_children_stay_while_half_is_idle() {
    for (busy_in_llc, stays) in [(7, true), (8, false)] {
        let (mut stage, parent) = crowd(hinted(), 0, 0);
        for cpu in 1..busy_in_llc {
            stage.runner(cpu);
        }
        let (cpu, _) = stage.fork(parent, Hint::FORK_AFFINE);
        assert_eq!(home(&stage, cpu).1 == 0, stays, "{busy_in_llc} of 16 busy");
    }
    for (busy_on_node, stays) in [(63, true), (64, false)] {
        let (mut stage, parent) = crowd(hinted(), busy_on_node - 1, 0);
        let (cpu, _) = stage.fork(parent, Hint::FORK_AFFINE);
        assert_eq!(
            home(&stage, cpu).0 == 0,
            stays,
            "{busy_on_node} of 128 busy"
        );
    }
    let (mut stage, parent) = crowd(hinted(), 0, 0);
    assert_ne!(
        stage.fork(parent, Hint::FORK_AFFINE).0,
        0,
        "a core of its own: on MC default takes over"
    );
    assert!(stage.counter("hint_forks_kept") > 0);
}

// Goal: 2.2 FORK_SPREAD: ties go to the less utilised group; any fork hint skips the NUMA rule.
// Method: one busy CPU on each node, utilisation (of sleepers) on node 0: default stays, spread goes; and
// with 1 + 0 tasks the gap of one is enough, where the NUMA rule would allow it.
#[test]
fn spread_children_break_ties_by_utilisation() {
    for (hint, node) in [(Hint::NONE, 0), (Hint::FORK_SPREAD, 1)] {
        let (mut stage, parent) = crowd(hinted(), 0, 1);
        stage.fair.cpus[3].rq.avg.util = 400;
        stage.fair.tasks[parent.index()].avg.util = 0;
        let (cpu, _) = stage.fork(parent, hint);
        assert_eq!(home(&stage, cpu).0, node, "{hint:?}");
    }
    for (hint, node) in [(Hint::NONE, 0), (Hint::FORK_SPREAD, 1)] {
        let (mut stage, parent) = crowd(hinted(), 0, 0);
        let (cpu, _) = stage.fork(parent, hint);
        assert_eq!(
            home(&stage, cpu).0,
            node,
            "{hint:?}: 127 idle here, 128 there"
        );
    }
    let (mut stage, parent) = crowd(Config::cfs60(), 0, 0);
    let (cpu, _) = stage.fork(parent, Hint::FORK_SPREAD);
    assert_eq!(home(&stage, cpu).0, 0, "switched off");
}
