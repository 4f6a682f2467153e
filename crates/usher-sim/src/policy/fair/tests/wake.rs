// SPDX-License-Identifier: GPL-2.0-only
//! 6.3: who wins between the waker's CPU and the previous one, and 2.3: what a hint changes.

use super::machine;
use super::stage::Stage;
use crate::ids::Cpu;
use crate::policy::fair::config::{Config, Hints};
use crate::policy::fair::state::Search;
use crate::policy::{Leaving, Policy, WakeInfo, WakeKind};
use crate::program::Hint;

/// What `wake_affine` chooses for a sleeper of CPU 1 that CPU 0 wakes.
fn affine(stage: &mut Stage, task: crate::ids::TaskId, sync: bool) -> u32 {
    let wake = WakeInfo {
        task,
        kind: WakeKind::Wake,
        waker_cpu: Cpu(0),
        waker: None,
        prev: stage.sim.host.tasks[task.index()].cpu,
        sync,
    };
    let now = stage.now();
    stage.at(now, Cpu(0));
    stage.fair.wake_affine(&mut stage.sim.host, &wake, 117).0
}

// Goal: 6.3 wake_affine, idle rules: an idle waker's CPU (an interrupt) of the same LLC: prev if idle,
// else this; a synchronous waker that is alone: this; 6.x only: an idle prev.
// Method: CPU 0 wakes a sleeper of CPU 1 (same LLC) or of CPU 9 (another one) on M1a, loads equal.
#[test]
fn idle_cpus_decide_wake_affine() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    let near = stage.sleeper(1);
    assert_eq!(affine(&mut stage, near, false), 1, "both idle: stay");
    stage.runner(1);
    assert_eq!(
        affine(&mut stage, near, false),
        0,
        "prev busy, the interrupted CPU idle"
    );
    let far = stage.sleeper(9);
    stage.runner(9);
    stage.set_load(9, 0);
    assert_eq!(
        affine(&mut stage, far, false),
        9,
        "another LLC: loads decide, and are lower there"
    );
    stage.runner(0);
    assert_eq!(
        affine(&mut stage, far, true),
        0,
        "a synchronous waker that is alone"
    );
    stage.waiter(0);
    stage.set_load(0, 5000);
    assert_eq!(affine(&mut stage, far, true), 9, "not alone: loads decide");

    for (cfg, prev_wins) in [(Config::cfs60(), true), (Config::cfs59(), false)] {
        let mut stage = Stage::new(machine("zen3-2s"), cfg);
        stage.runner(0);
        let far = stage.sleeper(9);
        stage.set_load(9, 4000);
        stage.set_load(0, 0);
        let chosen = affine(&mut stage, far, false);
        assert_eq!(
            chosen == 9,
            prev_wins,
            "idle prev against lower load: {chosen}"
        );
    }
}

// Goal: 6.3 wake_affine, loads: this iff (L(this) [- L(curr) if sync] + L(p)) * 100 < (L(prev) - L(p)) *
// (100 + 17 / 2), plus one if sync.
// Method: 5.9, p with load 100, loads on both sides of the border, by hand: with L(prev) = 1100 the right side
// is 1000 * 108 = 108000: L(this) below 980 wins.
#[test]
fn loads_decide_at_the_border() {
    for (this, sync, curr, wins) in [
        (979, false, 0, true),
        (980, false, 0, false),
        (980, true, 0, true),
        (1479, true, 500, true),
        (1481, true, 500, false),
        (300, true, 500, true), // the waker's own load exceeds its queue's: it will be empty
    ] {
        let mut stage = Stage::new(machine("zen3-2s"), Config::cfs59());
        let waker = stage.runner(0);
        stage.waiter(0);
        let task = stage.sleeper(9);
        stage.runner(9);
        stage.fair.tasks[task.index()].avg.load = 100;
        stage.fair.tasks[waker.index()].avg.load = curr;
        stage.set_load(0, this);
        stage.set_load(9, 1100);
        let chosen = affine(&mut stage, task, sync);
        assert_eq!(chosen == 0, wins, "L(this) {this} sync {sync} curr {curr}");
    }
}

// Goal: 6.3 wake_wide: b >= llc_size and a >= b * llc_size; flips count changes of wakee and halve each
// second.
// Method: LLC of 16; flips set by hand on both sides of the border; then counted through wakeups.
#[test]
fn many_to_many_wakers_stay_apart() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    let waker = stage.runner(0);
    let wakee = stage.sleeper(9);
    let wake = WakeInfo {
        task: wakee,
        kind: WakeKind::Wake,
        waker_cpu: Cpu(0),
        waker: Some(waker),
        prev: Cpu(9),
        sync: false,
    };
    for (a, b, wide) in [
        (256, 16, true),
        (255, 16, false),
        (10_000, 15, false),
        (16, 256, true),
    ] {
        stage.fair.tasks[waker.index()].wakee_flips = a;
        stage.fair.tasks[wakee.index()].wakee_flips = b;
        assert_eq!(stage.fair.wake_wide(&wake), wide, "{a} {b}");
    }
    stage.fair.tasks[waker.index()].wakee_flips = 0;
    let other = stage.sleeper(10);
    for task in [wakee, other, other, wakee] {
        stage.wake(task, 0, false);
    }
    assert_eq!(
        stage.fair.tasks[waker.index()].wakee_flips,
        3,
        "the repeated wakee is no flip"
    );
    stage.at(1_500_000_000, Cpu(0));
    stage.wake(other, 0, false);
    assert_eq!(stage.fair.tasks[waker.index()].wakee_flips, 2, "3 / 2 + 1");
}

// Goal: 2.3: with a wake hint, and waker and prev on different LLCs, the hinted LLC is taken if it has idle
// cores, over wake_affine and wake_wide; not within one LLC, not without idle cores, not when switched off.
// Method: M1a, waker on CPU 0, sleeper of CPU 9 (another LLC) whose prev is idle: baseline goes to prev.
#[test]
fn wake_hints_choose_the_llc() {
    let wake_only = Config {
        hints: Hints {
            wake: true,
            ..Hints::default()
        },
        ..Config::cfs60()
    };
    let run = |cfg: &Config, hint, prev, cores: bool, wide: bool| {
        let mut stage = Stage::new(machine("zen3-2s"), cfg.clone());
        let waker = stage.runner(0);
        let task = stage.sleeper_with(prev, crate::program::Class::NORMAL, hint, None);
        for cpu in [0, 9] {
            let now = stage.now();
            stage.at(now, Cpu(cpu));
            stage
                .fair
                .set_idle_cores(&mut stage.sim.host, Cpu(cpu), cores);
        }
        if wide {
            stage.fair.tasks[waker.index()].wakee_flips = 256;
            stage.fair.tasks[task.index()].wakee_flips = 16;
        }
        let (cpu, _) = stage.wake(task, 0, false);
        (
            stage.sim.host.machine().cpu(Cpu(cpu)).llc.0,
            stage
                .fair
                .cfg
                .hints
                .wake
                .then(|| stage.counter("hint_wakes")),
        )
    };
    assert_eq!(
        run(&Config::cfs60(), Hint::WAKE_AFFINE, 9, true, false),
        (1, None),
        "off: idle prev"
    );
    assert_eq!(run(&wake_only, Hint::NONE, 9, true, false), (1, Some(0)));
    assert_eq!(
        run(&wake_only, Hint::WAKE_AFFINE, 9, true, false),
        (0, Some(1))
    );
    assert_eq!(
        run(&wake_only, Hint::WAKE_AFFINE, 9, true, true),
        (0, Some(1)),
        "even if wide"
    );
    assert_eq!(
        run(&wake_only, Hint::WAKE_AFFINE, 9, false, false),
        (1, Some(0)),
        "no idle core"
    );
    assert_eq!(
        run(&wake_only, Hint::WAKE_HOLD, 9, true, false),
        (1, Some(1))
    );
    assert_eq!(
        run(&wake_only, Hint::WAKE_AFFINE, 1, true, false),
        (0, Some(0)),
        "one LLC: no hint"
    );
}

// Goal: 6.3 TTWU_QUEUE: a wakeup is queued across LLCs; on an idle queue of the LLC from 6.0 on; a task
// that never left its queue is not.
// Method: the question asked for near and far, idle and busy targets.
#[test]
fn wakeups_are_queued_across_llcs_or_to_idle_cpus() {
    for (cfg, near_idle) in [(Config::cfs59(), false), (Config::cfs60(), true)] {
        let mut stage = Stage::new(machine("zen3-2s"), cfg);
        stage.runner(0);
        stage.runner(2);
        for (cpu, queued) in [(1, near_idle), (2, false), (9, true)] {
            let task = stage.sleeper(cpu);
            stage.at(1000, Cpu(0));
            let host = &mut stage.sim.host;
            assert_eq!(
                stage.fair.remote_wake(host, task, Cpu(cpu), Cpu(0)),
                queued,
                "cpu {cpu}"
            );
            assert_eq!(stage.fair.cpus[cpu as usize].pending, u32::from(queued));
            if queued {
                assert!(!stage.fair.is_idle(Cpu(cpu)), "somebody is on the way");
                stage.queue(task);
                assert_eq!(stage.fair.cpus[cpu as usize].pending, 0);
            }
        }
    }
}

// Goal: the same of a task whose CPU has not switched from it yet: queued there across LLCs, or if that has nothing else to run; before
// 6.0 with one other task, too. One that never left its queue is not waited for.
// Method: the question asked for 0, 1 and 2 others, near and far; a task that a search has just found is nobody's other yet.
#[test]
fn a_cpu_takes_back_whom_it_is_leaving() {
    use Leaving::{Never, Queue, Wait};
    for (cfg, near) in [
        (Config::cfs59(), [Queue, Queue, Wait]),
        (Config::cfs60(), [Queue, Wait, Wait]),
    ] {
        for (others, near) in (0..).zip(near) {
            let mut stage = Stage::new(machine("zen3-2s"), cfg.clone());
            for (cpu, answer) in [(1, near), (9, Queue)] {
                (0..others).for_each(|_| _ = stage.waiter(cpu));
                let task = stage.sleeper(cpu);
                stage.at(1000, Cpu(0));
                let host = &mut stage.sim.host;
                let got = stage.fair.wake_leaving(host, task, Cpu(cpu), Cpu(0));
                assert_eq!(got, answer, "{others} others on CPU {cpu}");
                let pending = stage.fair.cpus[cpu as usize].pending;
                assert_eq!(pending, u32::from(answer == Queue));
            }
        }
    }
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    stage.waiter(1);
    let task = stage.sleeper(1);
    stage.fair.cpus[1].search = Some(Search {
        pulled: 1,
        ..Search::default()
    });
    stage.at(1000, Cpu(0));
    let mut ask = || (stage.fair).wake_leaving(&mut stage.sim.host, task, Cpu(1), Cpu(0));
    assert_eq!(ask(), Queue);
    stage.fair.tasks[task.index()].delayed = true;
    let mut ask = || (stage.fair).wake_leaving(&mut stage.sim.host, task, Cpu(1), Cpu(0));
    assert_eq!(ask(), Never);
}

// Goal: a target outside the task's affinity falls back to an allowed CPU, of the same node if there is one.
// Method: an affine wakeup of a task that may run on CPUs 5 and 200 only, from CPUs of either node.
#[test]
fn what_is_not_allowed_falls_back() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    stage.runner(0);
    let task = stage.sleeper_with(
        5,
        crate::program::Class::NORMAL,
        Hint::NONE,
        Some(&[5, 200]),
    );
    stage.sim.host.tasks[task.index()].cpu = Cpu(3);
    stage.fair.tasks[task.index()].cpu = Cpu(3);
    assert_eq!(
        stage.wake(task, 0, false),
        (5, "fallback"),
        "prev is idle, but not allowed any more"
    );
}
