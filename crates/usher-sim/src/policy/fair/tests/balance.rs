// SPDX-License-Identifier: GPL-2.0-only
//! 6.5: classification, what is pulled and when, failures and active balance; 2.4: the hints' exception.

use super::machine;
use super::stage::Stage;
use crate::ids::{Cpu, Id, TaskId};
use crate::policy::fair::balance::{greater, Env, IdleKind, Move};
use crate::policy::fair::config::{Config, Hints, MS};
use crate::policy::fair::eevdf::Join;
use crate::policy::fair::stats::{GroupStats, GroupType};
use crate::policy::{Newidle, Policy, StopWhy};
use crate::program::{Class, Hint};

/// A time at which nothing is cache-hot any more.
const COLD: u64 = 100 * MS;

/// Tasks queued or running on a CPU.
fn nr(stage: &Stage, cpu: u32) -> u32 {
    stage.fair.cpus[cpu as usize].rq.nr
}

/// One balancing of a CPU's domain at this place.
fn balance(stage: &mut Stage, cpu: u32, place: usize, idle: IdleKind) -> u32 {
    let now = stage.now();
    stage.at(now, Cpu(cpu));
    stage
        .fair
        .load_balance(&mut stage.sim.host, Cpu(cpu), place, idle)
        .moved
}

// Goal: 6.5: types by capacity, utilisation and runnable at their borders.
// Method: a group of 4 CPUs (capacity 4096) and pct 117, numbers by hand: util * 117 > 409600 from 3501 on,
// runnable * 100 > 4096 * 117 from 4793 on.
#[test]
fn groups_are_classified_by_their_borders() {
    let group = |nr, util, runnable| {
        let mut stats = GroupStats {
            nr,
            util,
            runnable,
            load: 1000,
            weight: 4,
            capacity: 4096,
            ..GroupStats::empty()
        };
        stats.classify(117, false, false, false);
        stats.kind
    };
    assert_eq!(
        group(3, 4096, 9000),
        GroupType::HasSpare,
        "fewer tasks than CPUs"
    );
    assert_eq!(group(4, 3500, 4792), GroupType::HasSpare);
    assert_eq!(group(4, 3501, 4000), GroupType::FullyBusy, "utilised");
    assert_eq!(
        group(4, 3000, 4793),
        GroupType::FullyBusy,
        "or waiting for one another"
    );
    assert_eq!(group(5, 3501, 0), GroupType::Overloaded);
    assert_eq!(group(5, 3500, 4793), GroupType::Overloaded);
    assert_eq!(
        group(5, 3500, 4792),
        GroupType::HasSpare,
        "many short tasks"
    );
    assert!(
        GroupType::Overloaded > GroupType::Imbalanced && GroupType::Misfit > GroupType::FullyBusy
    );
    assert!(greater(1024, 972) && !greater(1024, 973), "5.3 %");
}

/// `n` tasks on a CPU, the first of which runs; all cold by `COLD`.
fn pile(stage: &mut Stage, cpu: u32, n: u32) -> Vec<TaskId> {
    let mut tasks = vec![stage.runner(cpu)];
    tasks.extend((1..n).map(|_| stage.waiter(cpu)));
    tasks
}

// Goal: 6.5: an idle CPU pulls half the difference from its sibling cores; a newly idle one one task, or as much where the kernel
// is not preemptible (5.9's); a lone task is not pulled.
// Method: M1a's LLC 0: 7 tasks on CPU 1, CPU 2 balances the MC domain (place 1).
#[test]
fn idle_cpus_pull_half_the_difference_and_newly_idle_ones_one() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    pile(&mut stage, 1, 7);
    stage.at(COLD, Cpu(2));
    assert_eq!(balance(&mut stage, 2, 1, IdleKind::NewlyIdle), 1);
    assert_eq!((nr(&stage, 1), nr(&stage, 2)), (6, 1));
    assert!(stage.pick(2).is_some());
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs59());
    pile(&mut stage, 1, 7);
    stage.at(COLD, Cpu(2));
    assert_eq!(balance(&mut stage, 2, 1, IdleKind::NewlyIdle), 3);
    assert_eq!((nr(&stage, 1), nr(&stage, 2)), (4, 3));

    // CPU 0's core is the first idle one of the group that balances.
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    pile(&mut stage, 1, 7);
    stage.at(COLD, Cpu(0));
    assert_eq!(
        balance(&mut stage, 0, 1, IdleKind::Idle),
        3,
        "7 - 0, halved"
    );
    assert_eq!((nr(&stage, 1), nr(&stage, 0)), (4, 3));
    assert_eq!(stage.counter("tasks_pulled_mc"), 3);

    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    stage.runner(1);
    stage.at(COLD, Cpu(0));
    assert_eq!(balance(&mut stage, 0, 1, IdleKind::Idle), 0);
}

// Goal: 6.5: only the first idle CPU of the group balances for it.
// Method: SMT threads 3 and 131 both idle: at MC level 3 may, 131 may not; newly idle ones always may.
#[test]
fn one_cpu_balances_for_its_group() {
    for (cpu, kind, moved) in [
        (131, IdleKind::Idle, false),
        (3, IdleKind::Idle, true),
        (131, IdleKind::NewlyIdle, true),
    ] {
        let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
        pile(&mut stage, 1, 4);
        stage.at(COLD, Cpu(cpu));
        assert_eq!(
            balance(&mut stage, cpu, 1, kind) > 0,
            moved,
            "cpu {cpu} {kind:?}"
        );
    }
}

// Goal: 6.5: tasks that ran less than 0.5 ms ago stay until failures exceed cache_nice_tries (1 at MC).
// Method: pull 0.4 ms after everything ran; count failures.
#[test]
fn hot_tasks_stay_until_it_failed_often() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    let tasks = pile(&mut stage, 1, 3);
    stage.at(COLD, Cpu(0));
    for task in tasks {
        stage.fair.tasks[task.index()].exec_start = COLD - 400_000;
    }
    for failures in 1..=2 {
        assert_eq!(balance(&mut stage, 0, 1, IdleKind::Idle), 0);
        assert_eq!(stage.fair.cpus[0].sds[1].failed, failures);
    }
    assert_eq!(balance(&mut stage, 0, 1, IdleKind::Idle), 1);
    assert_eq!(
        stage.fair.cpus[0].sds[1].failed, 0,
        "a success forgets the failures"
    );
}

// Goal: a task that another CPU's queue gave away is not cache-hot where it waits (kernels since 3.16).
// Method: as above, but two of the three were woken away from CPU 2, where they ran 0.4 ms ago: the first
// attempt pulls one.
#[test]
fn what_came_from_another_cpu_is_not_hot() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    let stays = stage.runner(1);
    let woken = [stage.sleeper(2), stage.sleeper(2)];
    stage.at(COLD, Cpu(1));
    for task in woken {
        stage.fair.tasks[task.index()].exec_start = COLD - 400_000;
        stage
            .fair
            .join(&mut stage.sim.host, task, Cpu(1), Join::Wake);
    }
    stage.fair.tasks[stays.index()].exec_start = COLD - 400_000;
    assert_eq!(balance(&mut stage, 0, 1, IdleKind::Idle), 1);
}

// Goal: 6.5: the interval doubles when balanced, up to twice the weight in ms, as on a machine that has long been idle, and is
// the minimum again after something was moved; busy CPUs wait 16 (5.9: 32) times as long, since 5.10 less a jiffy.
// Method: the MC domain of 16 CPUs.
#[test]
fn intervals_double_when_balanced() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    stage.at(COLD, Cpu(0));
    let interval = |stage: &Stage| stage.fair.cpus[0].sds[1].interval / MS;
    assert_eq!(interval(&stage), 32);
    pile(&mut stage, 1, 4);
    stage.at(2 * COLD, Cpu(0));
    assert!(balance(&mut stage, 0, 1, IdleKind::Idle) > 0);
    assert_eq!(interval(&stage), 16);
    for _ in 0..3 {
        balance(&mut stage, 0, 1, IdleKind::Idle);
        assert_eq!(interval(&stage), 32);
    }
    for (cfg, busy) in [
        (Config::cfs60(), 16 * 32 * MS - 4 * MS),
        (Config::cfs59(), 32 * 32 * MS),
    ] {
        let stage = Stage::new(machine("zen3-2s"), cfg);
        assert_eq!(stage.fair.interval(Cpu(0), 1, false), 32 * MS);
        assert_eq!(stage.fair.interval(Cpu(0), 1, true), busy);
    }
}

// Goal: 6.5: the balancer compares average loads of overloaded groups only; that of a fully busy one counts as none.
// Method: a core with two tasks that wait a lot, and with three.
#[test]
fn average_loads_are_those_of_overloaded_groups() {
    for (tasks, kind, load) in [
        (2, GroupType::FullyBusy, 0),
        (3, GroupType::Overloaded, 1500),
    ] {
        let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
        pile(&mut stage, 1, tasks);
        stage.set_load(1, 3000);
        stage.fair.cpus[1].rq.avg.runnable = 4096;
        let domains = stage.fair.domains.clone();
        let (domain, step) = domains.at(Cpu(1), 1);
        let place = (stage.fair.domains.chain[1][1].domain, step.local);
        let host = &mut stage.sim.host;
        let stats =
            (stage.fair).balance_stats(host, domain, place, (Cpu(0), true), false, |_| true);
        assert_eq!((stats.kind, stats.avg_load), (kind, load), "{tasks} tasks");
    }
}

// Goal: 6.5: a task's load counts for less after each failure; its utilisation does since 6.8.
// Method: both are 400 beside an imbalance of 300; one failure.
#[test]
fn failures_let_larger_tasks_go() {
    for (cfg, what, goes) in [
        (Config::cfs60(), Move::Util, false),
        (Config::eevdf(), Move::Util, true),
        (Config::cfs60(), Move::Load, true),
    ] {
        let mut stage = Stage::new(machine("zen3-2s"), cfg);
        let task = stage.waiter(1);
        let avg = &mut stage.fair.tasks[task.index()].avg;
        (avg.util, avg.load) = (400, 400);
        stage.fair.cpus[0].sds[1].failed = 1;
        let mut env = Env::new(&stage.fair, Cpu(0), 1, IdleKind::Idle);
        (env.what, env.imbalance) = (what, 300);
        let wanted = stage.fair.wanted(&mut env, task, Cpu(1));
        assert_eq!((wanted, env.imbalance < 0), (goes, goes), "{what:?}");
    }
}

// Goal: 6.5: a newly idle CPU searches a domain at a time, and for others it is not idle yet, unless it was idle before it searched.
// What is queued there or, since 5.14, is on its way ends the search.
// Method: CPU 2 with a task that it leaves, told that some CPU has too much; none has.
#[test]
fn newly_idle_cpus_search_a_domain_at_a_time() {
    let stage = |cfg| {
        let mut stage = Stage::new(machine("zen3-2s"), cfg);
        let task = stage.sleeper(2);
        stage.fair.overload = true;
        stage.at(COLD, Cpu(2));
        (stage, task)
    };
    let look = |stage: &mut Stage, prev| stage.fair.newidle(&mut stage.sim.host, Cpu(2), prev);

    let (mut whole, task) = stage(Config::cfs60());
    let domains = whole.fair.domains.chain[2].len();
    for place in 1..=domains {
        assert_eq!(look(&mut whole, Some(task)), Newidle::GoesOn);
        assert_eq!(whole.fair.cpus[2].search.map(|s| s.place), Some(place));
        assert!(!whole.fair.is_idle(Cpu(2)));
    }
    assert_eq!(look(&mut whole, Some(task)), Newidle::Idle);
    assert!(whole.fair.is_idle(Cpu(2)) && whole.fair.cpus[2].idle_stamp > 0);

    let (mut again, _) = stage(Config::cfs60());
    assert_eq!(look(&mut again, None), Newidle::GoesOn);
    assert!(again.fair.is_idle(Cpu(2)));

    let (mut queued, task) = stage(Config::cfs60());
    look(&mut queued, Some(task));
    queued.queue(task);
    assert_eq!(look(&mut queued, Some(task)), Newidle::Pick);
    assert_eq!(queued.counter("newidle_pulls"), 0);

    for (cfg, next) in [
        (Config::cfs59(), Newidle::GoesOn),
        (Config::cfs60(), Newidle::Idle),
    ] {
        let (mut pending, task) = stage(cfg);
        look(&mut pending, Some(task));
        pending.fair.cpus[2].pending = 1;
        assert_eq!(look(&mut pending, Some(task)), next);
    }
}

// Goal: 6.5: active balance after more than nice_tries + 2 failures, by the stopper, which then moves the
// task that was running.
// Method: two tasks of CPU 1, the waiting one pinned there. The imbalance is one task; the pinned one makes
// every attempt fail, the running one may move.
#[test]
fn the_running_task_is_pushed_after_enough_failures() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    let runner = stage.runner(1);
    let pinned = stage.sleeper_with(1, Class::NORMAL, Hint::NONE, Some(&[1]));
    stage.queue(pinned);
    let other = stage.waiter(1);
    stage.at(COLD, Cpu(0));
    stage.fair.tasks[other.index()].exec_start = COLD; // hot for now
    let tries = 1;
    // Hot tasks go after nice_tries failures, so keep it pinned as well from then on.
    stage.sim.host.tasks[other.index()].allowed =
        stage.sim.host.tasks[pinned.index()].allowed.clone();
    stage.fair.cpus[0].sds[1].failed = tries + 2;
    // All tasks but the running one are pinned.
    assert_eq!(balance(&mut stage, 0, 1, IdleKind::Idle), 0);
    assert_eq!(
        stage.counter("active_balances"),
        1,
        "{:?}",
        stage.fair.cpus[0].sds[1]
    );
    assert_eq!(stage.fair.cpus[1].push_to, Some(Cpu(0)));
    stage.at(COLD + MS, Cpu(1));
    stage
        .fair
        .put_prev(&mut stage.sim.host, runner, Cpu(1), StopWhy::Preempted);
    stage.sim.host.cpus[1].curr = None;
    stage.sim.host.tasks[runner.index()].state = crate::task::State::Queued;
    stage.fair.stopper(&mut stage.sim.host, Cpu(1), 0);
    assert_eq!(stage.fair.tasks[runner.index()].cpu, Cpu(0));
    assert_eq!((nr(&stage, 0), nr(&stage, 1)), (1, 2));
    assert!(stage.sim.host.cpus[0].need_resched, "the new CPU is told");
}

// Goal: 6.5, 6.7: at the NUMA level imb_numa_nr tasks may stay where they are.
// Method: M1a: 4 tasks on 4 cores of node 1, node 0 idle: gap 4 (idle CPUs) > 2: half of it moves unless few
// run there: a gap of 2 is allowed, of 4 not.
#[test]
fn a_small_numa_imbalance_is_left_alone() {
    for (tasks, moved) in [(2, false), (6, true)] {
        let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
        for i in 0..tasks / 2 {
            pile(&mut stage, 64 + i, 2);
        }
        stage.at(COLD, Cpu(0));
        let place = stage.fair.domains.chain[0].len() - 1;
        assert_eq!(
            balance(&mut stage, 0, place, IdleKind::Idle) > 0,
            moved,
            "{tasks} tasks"
        );
    }
}

// Goal: 6.5 newidle: skipped while idle periods are shorter than 0.5 ms (5.9), or than the search costs (6.x),
// and while no queue has more than one task.
// Method: a queue with 3 tasks next door; avg_idle, cost and flag varied.
#[test]
fn newidle_is_gated_by_the_idle_time() {
    for (cfg, avg_idle, cost, overload, pulls) in [
        (Config::cfs59(), 499_999, 0, true, false),
        (Config::cfs59(), 500_000, 0, true, true),
        (Config::cfs59(), 500_000, 0, false, false),
        (Config::cfs60(), 50_000, 60_000, true, false),
        (Config::cfs60(), 60_000, 50_000, true, true),
    ] {
        let what = format!("{} {avg_idle} {cost} {overload}", cfg.name);
        let mut stage = Stage::new(machine("zen3-2s"), cfg);
        pile(&mut stage, 1, 3);
        stage.at(COLD, Cpu(2));
        stage.fair.cpus[2].avg_idle = avg_idle;
        stage.fair.cpus[2].sds[0].max_newidle_cost = cost;
        stage.fair.overload = overload;
        assert_eq!(stage.pick(2).is_some(), pulls, "{what}");
        assert_eq!(nr(&stage, 1), if pulls { 2 } else { 3 }, "{what}");
        assert_eq!(
            stage.fair.cpus[2].idle_stamp == 0,
            pulls,
            "the idle period began: {what}"
        );
    }
}

// Goal: 6.5, since 5.14: no newidle balancing on a CPU that a wakeup is on its way to; before, it pulls all the same.
// Method: the pull of above, with a wakeup pending.
#[test]
fn newly_idle_cpus_wait_for_wakeups_on_their_way() {
    for (cfg, balances, pulls) in [(Config::cfs59(), 1, true), (Config::cfs60(), 0, false)] {
        let mut stage = Stage::new(machine("zen3-2s"), cfg);
        pile(&mut stage, 1, 3);
        stage.at(COLD, Cpu(2));
        stage.fair.overload = true;
        stage.fair.cpus[2].pending = 1;
        assert_eq!(stage.pick(2).is_some(), pulls);
        assert_eq!(stage.counter("newidle_balances"), balances);
    }
}

// Goal: 6.5, since 5.15: a CPU that goes idle and is due sooner than the others brings the next idle balancing
// forward.
// Method: the others' time is a second ahead, CPU 6's is not.
#[test]
fn idle_balancing_heeds_who_went_idle_since() {
    for (cfg, next) in [(Config::cfs59(), 1000 * MS), (Config::cfs60(), 20 * MS)] {
        let mut stage = Stage::new(machine("zen3-2s"), cfg);
        stage.fair.nohz.next_balance = 1000 * MS;
        stage.fair.cpus[6].tick_stopped = false;
        stage.fair.cpus[6].next_balance = 20 * MS;
        stage.at(10 * MS, Cpu(6));
        stage.fair.tick_stopped(&mut stage.sim.host, Cpu(6));
        assert_eq!(stage.fair.nohz.next_balance, next);
    }
}

// Goal: 6.1 avg_idle: an eighth of the difference per idle period, at most twice the maximal search cost.
// Method: periods of 0.2 ms and 100 ms against an average of 1 ms.
#[test]
fn idle_periods_are_averaged() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    let task = stage.sleeper(1);
    assert_eq!(stage.fair.cpus[1].avg_idle, MS);
    stage.fair.cpus[1].idle_stamp = 10 * MS;
    stage.at(10 * MS + 200_000, Cpu(1));
    stage.queue(task);
    let avg = stage.fair.cpus[1].avg_idle;
    assert!(
        avg.abs_diff(900_000) < 100,
        "1 ms less an eighth of 0.8 ms: {avg}"
    );
    assert_eq!(stage.fair.cpus[1].idle_stamp, 0);
    let task = stage.sleeper(3);
    stage.fair.cpus[3].idle_stamp = MS;
    stage.at(100 * MS, Cpu(3));
    stage.queue(task);
    assert_eq!(stage.fair.cpus[3].avg_idle, MS, "capped");
}

// Goal: 6.5: the tick of a CPU with two tasks wakes an idle CPU, which balances for all; a lone task in a
// quiet LLC wakes nobody.
// Method: ticks of CPU 1 with one and two tasks; then the interrupt on the CPU that was chosen.
#[test]
fn busy_ticks_wake_an_idle_balancer() {
    let mut stage = Stage::new(machine("zen3-2s"), Config::cfs60());
    let curr = stage.runner(1);
    stage.at(8 * MS, Cpu(1));
    stage.fair.tick(&mut stage.sim.host, Cpu(1), curr);
    stage.fair.nohz.next_balance = 0;
    stage.fair.nohz.has_blocked = false;
    let before = stage.counter("nohz_kicks");
    stage.at(12 * MS, Cpu(1));
    stage.fair.tick(&mut stage.sim.host, Cpu(1), curr);
    assert_eq!(stage.counter("nohz_kicks"), before, "alone in its LLC");
    stage.waiter(1);
    stage.fair.cpus[0].kicked = false;
    stage.at(600 * MS, Cpu(1));
    stage.fair.tick(&mut stage.sim.host, Cpu(1), curr);
    assert_eq!(stage.counter("nohz_kicks"), before + 1);
    assert!(stage.fair.cpus[0].kicked, "the first idle CPU without tick");
    stage.at(601 * MS, Cpu(0));
    stage.fair.ipi(&mut stage.sim.host, Cpu(0), 3);
    assert_eq!(nr(&stage, 1), 1, "somebody took the waiting task");
}

// Goal: 2.4: above the LLC a task with a wake hint stays while its LLC has no more tasks than CPUs; within
// the LLC, without the switch, or when the LLC is overloaded, it may go.
// Method: LLC 1 (CPUs 8-15, 136-143) holds tasks with hints; CPU 0 of LLC 0 balances the node (place 2).
#[test]
fn hinted_tasks_are_left_in_their_llc() {
    let balance_only = Config {
        hints: Hints {
            balance: true,
            ..Hints::default()
        },
        ..Config::cfs60()
    };
    for (cfg, tasks, moved) in [
        (Config::cfs60(), 6, true),
        (balance_only.clone(), 6, false),
        (balance_only.clone(), 16, false),
        (balance_only, 18, true),
    ] {
        let what = format!("{:?} {tasks}", cfg.hints);
        let mut stage = Stage::new(machine("zen3-2s"), cfg);
        for i in 0..tasks {
            let hint = Hint::WAKE_AFFINE;
            let task = stage.sleeper_with(8 + i % 2, Class::NORMAL, hint, None);
            stage.queue(task);
        }
        (8..10).for_each(|cpu| assert!(stage.pick(cpu).is_some()));
        stage.at(COLD, Cpu(0));
        assert_eq!(
            balance(&mut stage, 0, 2, IdleKind::Idle) > 0,
            moved,
            "{what}"
        );
    }
}

// Goal: 5.6: a heavy task on a weak CPU is a misfit, and an idle strong CPU takes it, running or not; a light
// one is left.
// Method: TC2: a task with utilisation 600 (A7: 430 = 80 %) and 200 runs on CPU 2.
#[test]
fn misfits_go_to_strong_cpus() {
    for (util, misfit) in [(900, true), (200, false)] {
        let mut stage = Stage::new(machine("tc2-2a15-3a7"), Config::eevdf());
        let task = stage.runner(2);
        let capacity = stage.fair.cpus[2].rq.capacity;
        stage.at(4 * MS, Cpu(2));
        let avg = &mut stage.fair.tasks[task.index()].avg;
        avg.util = util;
        avg.util_sum = util * avg.divider();
        stage.fair.tick(&mut stage.sim.host, Cpu(2), task);
        assert_eq!(
            stage.fair.cpus[2].misfit > 0,
            misfit,
            "util {util} on capacity {capacity}"
        );
        let place = stage.fair.domains.asym[0].expect("CPUs differ");
        stage.at(COLD, Cpu(0));
        balance(&mut stage, 0, place, IdleKind::Idle);
        assert_eq!(
            stage.fair.cpus[2].push_to,
            misfit.then_some(Cpu(0)),
            "util {util}"
        );
    }
}

// Goal: hybrids whose cores have several threads: the kernel counts all CPUs as equally strong, and prefers some. An idle one that
// is preferred takes a lone task from one that is not, and not the other way; but nobody's priority counts while its sibling works.
// Method: who runs, who balances, and whom the stopper is to push where. Catches: strong cores that idle for a whole run beside tasks
// on weak CPUs, which the rules for capacities come to where cores have several threads, and with which no kernel runs.
#[test]
fn preferred_cpus_pull_lone_tasks() {
    let on = machine("hybrid-8p16e");
    let of = |capacity: bool| {
        let strong = |c: &&Cpu| (on.cpu(**c).capacity == 1024) == capacity;
        on.cpus().iter().filter(strong).copied().collect::<Vec<_>>()
    };
    let (strong, weak) = (of(true), of(false)[0]);
    let threads = on.core_cpus(on.cpu(strong[0]).core).to_vec();
    let other = *strong.iter().find(|c| !threads.contains(c)).expect("cores");
    let (one, two) = (threads[0], threads[1]);
    for (running, balances, pushed) in [
        (&[weak][..], one, Some((weak, one))),
        (&[one], weak, None),
        (&[one], other, None),
        (&[weak, two], one, None),
        (&[one, two], other, Some((one, other))),
        (&[one, two], weak, Some((one, weak))),
    ] {
        let mut stage = Stage::new(on.clone(), Config::eevdf());
        assert!(stage.fair.cpus.iter().all(|cpu| cpu.rq.capacity == 1024));
        running.iter().for_each(|cpu| {
            stage.runner(cpu.0);
        });
        let place = stage.fair.domains.llc[balances.index()].expect("an LLC");
        stage.at(COLD, balances);
        balance(&mut stage, balances.0, place, IdleKind::Idle);
        let found = on.cpus().iter().find_map(|&cpu| {
            let to = stage.fair.cpus[cpu.index()].push_to?;
            Some((cpu, to))
        });
        assert_eq!(found, pushed, "{running:?} run, {balances} balances");
    }
}

// Goal: a reniced task changes its weight and load at once, whether it sleeps, waits or runs; a task that turns
// real-time leaves the fair queue and runs first.
// Method: each state; the books after it.
#[test]
fn classes_change_in_every_state() {
    for cfg in [Config::cfs60(), Config::eevdf()] {
        let mut stage = Stage::new(machine("2n2l2c2t"), cfg);
        let (runner, waiter) = (stage.runner(1), stage.waiter(1));
        let sleeper = stage.sleeper(1);
        for id in [runner, waiter, sleeper] {
            stage.sim.host.tasks[id.index()].class = Class::Normal { nice: 5 };
            stage.at(MS, Cpu(1));
            stage.fair.class_changed(&mut stage.sim.host, id);
            assert_eq!(stage.fair.tasks[id.index()].weight, 335);
            stage.fair.cpus[1].rq.check(&stage.fair.tasks);
        }
        assert_eq!(stage.fair.cpus[1].rq.weight, 670);
        stage.sim.host.tasks[waiter.index()].class = Class::Fifo { prio: 50 };
        stage.fair.class_changed(&mut stage.sim.host, waiter);
        stage.fair.cpus[1].rq.check(&stage.fair.tasks);
        assert!(stage.sim.host.cpus[1].need_resched);
        stage.at(2 * MS, Cpu(1));
        stage
            .fair
            .put_prev(&mut stage.sim.host, runner, Cpu(1), StopWhy::Preempted);
        assert_eq!(stage.pick(1), Some(waiter));
        stage.sim.host.tasks[waiter.index()].class = Class::NORMAL;
        stage.fair.class_changed(&mut stage.sim.host, waiter);
        stage.fair.cpus[1].rq.check(&stage.fair.tasks);
        assert_eq!(stage.fair.cpus[1].rq.curr, Some(waiter));
    }
}
