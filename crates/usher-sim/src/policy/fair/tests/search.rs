// SPDX-License-Identifier: GPL-2.0-only
//! 6.3: how far searches for an idle CPU go, and 1.3: what the idle mask changes.

use super::machine;
use super::stage::Stage;
use crate::ids::Cpu;
use crate::policy::fair::balance::scan_budget;
use crate::policy::fair::config::{Config, LlcMask};
use crate::policy::Policy;
use crate::program::Class;

/// M0 (LLCs of 48 CPUs, no SMT effects: cores have both threads busy or idle), CPUs of LLC 0 that are in
/// `busy` run something, with no core idle unless `cores`.
fn m0(cfg: Config, busy: impl Fn(u32) -> bool, cores: bool) -> Stage {
    let mut stage = Stage::new(machine("xeon-4s24c2t-192"), cfg);
    let llc: Vec<u32> = (0..24).chain(96..120).collect();
    for &cpu in llc.iter().filter(|&&cpu| busy(cpu)) {
        stage.runner(cpu);
    }
    stage.at(1000, Cpu(0));
    stage
        .fair
        .set_idle_cores(&mut stage.sim.host, Cpu(0), cores);
    stage
}

/// Sets what SIS_PROP reads: the waker CPU's average idle time, and the average cost of a search.
fn set_prop(stage: &mut Stage, avg_idle: u64, cost: u64) {
    stage.fair.cpus[0].avg_idle = avg_idle;
    let place = stage.fair.domains.llc[0].expect("an LLC domain");
    stage.fair.cpus[0].sds[place].avg_scan_cost = cost;
}

// Goal: 6.3 SIS_PROP: nr = S > 4C ? S / C : 4 with S = span * avg_idle / 512; the loop tests nr - 1 CPUs.
// Method: all 48 CPUs busy; count probes. The search tests nr - 1 CPUs, then the target's sibling is one more.
#[test]
fn sis_prop_tests_one_less_than_its_budget() {
    for (avg_idle, cost, tested) in [
        (0, 1000, 3),                // floor 4
        (512 * 100, 1199, 3),        // S = 4800 = 4C: not above
        (512 * 100, 959, 4),         // S / C = 5
        (512 * 100, 479, 9),         // 10
        (512 * 1_000_000, 1000, 48), // the whole LLC
    ] {
        let mut stage = m0(Config::cfs59(), |_| true, false);
        let task = stage.sleeper(0);
        set_prop(&mut stage, avg_idle, cost);
        let before = stage.probes();
        assert_eq!(stage.wake(task, 0, false), (0, "target-busy"));
        assert_eq!(
            stage.probes() - before,
            tested + 1,
            "avg_idle {avg_idle} cost {cost}"
        );
    }
}

// Goal: 6.3: the cost of a search is learned (an eighth) unless it ran out of budget.
// Method: a search that fails for lack of budget leaves the average alone; one that finds a CPU, and one that
// saw all, move it.
#[test]
fn only_searches_within_the_budget_teach_their_cost() {
    let learned = |busy: &dyn Fn(u32) -> bool, avg_idle| {
        let mut stage = m0(Config::cfs59(), busy, false);
        let task = stage.sleeper(0);
        set_prop(&mut stage, avg_idle, 10_000);
        stage.wake(task, 0, false);
        let place = stage.fair.domains.llc[0].expect("an LLC domain");
        stage.fair.cpus[0].sds[place].avg_scan_cost
    };
    assert_eq!(learned(&|_| true, 0), 10_000, "out of budget");
    assert!(
        learned(&|_| true, 1 << 40) < 10_000,
        "saw all, cheaper than thought"
    );
    assert!(learned(&|cpu| cpu != 2, 0) < 10_000, "found");
}

// Goal: 6.3 SIS_UTIL: nr_scan = weight * (1 - (x * 1.17)^2): LLC 16: x 25/50/70/80 % -> 15/11/5/2;
// 48: 44/32/16/6; 0 from 85.5 % on.
// Method: the formula in real numbers gives that table, rounded; the kernel's integers round down.
#[test]
fn sis_util_follows_the_table() {
    for (weight, table) in [(16u64, [15, 11, 5, 2]), (48, [44, 32, 16, 6])] {
        for (percent, rounded) in [25u64, 50, 70, 80].into_iter().zip(table) {
            let exact = weight as f64 * (1.0 - (percent as f64 / 100.0 * 1.17).powi(2));
            assert_eq!(
                exact.round() as u64,
                rounded,
                "LLC of {weight} at {percent} %"
            );
            let got = scan_budget(weight, weight * (percent * 1024 / 100), 117);
            assert!(
                got == exact as u64 || got == exact as u64 + 1,
                "{got}, exactly {exact}"
            );
            assert!(got <= rounded, "{got}, rounded {rounded}");
        }
        let at = |percent: u64| scan_budget(weight, weight * percent * 1024 / 100, 117);
        assert_eq!((at(0), at(86), at(100)), (weight, 0, 0));
    }
    let sixteen = [256, 512, 716, 819].map(|x| scan_budget(16, 16 * x, 117));
    assert_eq!(sixteen, [14, 10, 5, 2]);
}

// Goal: 6.3, 6.x: the pass tests nr_idle_scan CPUs from target + 1 on; with 0 nothing is searched, not even
// for idle cores; with idle cores the budget does not apply.
// Method: M0, all CPUs busy but a far one or a far core; count probes.
#[test]
fn sis_util_bounds_the_pass() {
    for (budget, far, found) in [(5, 5, true), (4, 5, false), (0, 1, false)] {
        let mut stage = m0(Config::cfs60(), |cpu| cpu != far, false);
        stage.fair.llcs[0].nr_idle_scan = budget;
        let task = stage.sleeper(0);
        let before = stage.probes();
        let (cpu, reason) = stage.wake(task, 0, false);
        assert_eq!(
            (cpu == far, reason == "idle-cpu"),
            (found, found),
            "budget {budget}: {reason}"
        );
        // The sibling of prev is looked at before the pass.
        assert_eq!(stage.probes() - before, 1 + budget, "budget {budget}");
    }
    for (budget, found) in [(1, true), (0, false)] {
        let mut stage = m0(Config::cfs60(), |cpu| cpu % 96 != 20, true);
        stage.fair.llcs[0].nr_idle_scan = budget;
        let task = stage.sleeper(0);
        let (cpu, reason) = stage.wake(task, 0, false);
        assert_eq!(
            (cpu, reason) == (20, "idle-core"),
            found,
            "budget {budget}: {cpu} {reason}"
        );
    }
}

// Goal: 6.3: a failed search for an idle core clears the flag, and the first idle thread seen is taken (6.x).
// Method: no core is wholly idle, one thread is.
#[test]
fn a_failed_core_search_clears_the_flag() {
    let mut stage = m0(Config::cfs60(), |cpu| cpu != 7, true);
    let task = stage.sleeper(0);
    assert_eq!(stage.wake(task, 0, false), (7, "idle-cpu"));
    assert!(!stage.fair.llcs[0].has_idle_cores);
    let mut stage = m0(Config::cfs59(), |cpu| cpu != 7, true);
    let task = stage.sleeper(0);
    set_prop(&mut stage, 1 << 40, 100);
    assert_eq!(stage.wake(task, 0, false), (7, "idle-cpu"));
    assert!(!stage.fair.llcs[0].has_idle_cores);
}

// Goal: 6.6: a CPU that goes idle sets the flag if its siblings are idle, too.
// Method: both threads of core 3 busy; one goes idle, then the other.
#[test]
fn the_last_thread_to_idle_sets_the_flag() {
    let mut stage = m0(Config::cfs60(), |_| true, false);
    for (cpu, flag) in [(3, false), (99, true)] {
        let curr = stage.sim.host.cpus[cpu as usize]
            .curr
            .take()
            .expect("it runs");
        stage.at(5000, Cpu(cpu));
        stage.fair.put_prev(
            &mut stage.sim.host,
            curr,
            Cpu(cpu),
            crate::policy::StopWhy::Slept,
        );
        stage.fair.idle_enter(&mut stage.sim.host, Cpu(cpu), false);
        assert_eq!(stage.fair.llcs[0].has_idle_cores, flag, "after cpu {cpu}");
    }
}

// Goal: 6.3: the order of quick looks: target, prev, a CPU used before; SCHED_IDLE work counts as idle.
// Method: LLC 0 of M0, wakeups within it.
#[test]
fn quick_looks_come_before_the_search() {
    let mut stage = m0(Config::cfs60(), |cpu| cpu != 3 && cpu != 8, false);
    let task = stage.sleeper(3);
    assert_eq!(stage.wake(task, 0, false), (3, "prev-idle"));
    let task = stage.sleeper(4);
    stage.fair.tasks[task.index()].recent_cpu = Cpu(8);
    assert_eq!(stage.wake(task, 0, false), (8, "recent-idle"));
    assert_eq!(
        stage.fair.tasks[task.index()].recent_cpu,
        Cpu(4),
        "and remembers prev"
    );
    let mut stage = m0(Config::cfs60(), |cpu| cpu != 4, false);
    stage.runner_with(4, Class::Idle);
    let task = stage.sleeper(4);
    assert_eq!(stage.wake(task, 0, false), (4, "prev-idle"));
}

// Goal: 1.3: with the mask only marked CPUs are tested, from the target on; unmarked idle ones are missed,
// marked busy ones cost a probe.
// Method: CPUs 5 and 9 idle, all unmarked but 2 (busy) and 9: one probe for 2, one for 9.
#[test]
fn the_mask_narrows_the_search() {
    let mut stage = m0(
        Config {
            llc_mask: LlcMask::TickStop,
            ..Config::cfs59()
        },
        |cpu| cpu != 5 && cpu != 9,
        false,
    );
    for cpu in (0..24).chain(96..120).filter(|&cpu| cpu != 2 && cpu != 9) {
        stage.fair.llcs[0].idle.remove(Cpu(cpu));
    }
    let task = stage.sleeper(0);
    set_prop(&mut stage, 0, 1000);
    let before = stage.probes();
    assert_eq!(stage.wake(task, 0, false), (9, "idle-cpu"));
    assert_eq!(stage.probes() - before, 2);
    stage.fair.llcs[0].idle.remove(Cpu(2));
    stage.fair.llcs[0].idle.remove(Cpu(9));
    let before = stage.probes();
    assert_eq!(stage.wake(task, 0, false).1, "target-busy");
    assert_eq!(
        stage.probes() - before,
        1,
        "an empty mask costs nothing but the sibling check"
    );
}

/// A CPU of M0's LLC 0 goes through idle entry, tick stop, a busy tick; returns its bit after each.
fn life_of_a_bit(llc_mask: LlcMask) -> [bool; 3] {
    let mut stage = m0(
        Config {
            llc_mask,
            ..Config::cfs59()
        },
        |_| false,
        false,
    );
    let task = stage.runner(6);
    let bit = |stage: &Stage| stage.fair.llcs[0].idle.contains(Cpu(6));
    stage.at(4_000_000, Cpu(6));
    stage.fair.tick(&mut stage.sim.host, Cpu(6), task);
    assert!(!bit(&stage), "the first busy tick clears it");
    stage.at(5_000_000, Cpu(6));
    stage.fair.put_prev(
        &mut stage.sim.host,
        task,
        Cpu(6),
        crate::policy::StopWhy::Slept,
    );
    stage.sim.host.cpus[6].curr = None;
    stage.fair.idle_enter(&mut stage.sim.host, Cpu(6), false);
    let entered = bit(&stage);
    stage.fair.tick_stopped(&mut stage.sim.host, Cpu(6));
    let stopped = bit(&stage);
    stage.queue(task);
    stage.pick(6);
    (0..3).for_each(|_| assert!(bit(&stage), "running, but no tick yet: a false positive"));
    stage.at(8_000_000, Cpu(6));
    stage.fair.tick(&mut stage.sim.host, Cpu(6), task);
    [entered, stopped, bit(&stage)]
}

// Goal: 1.2 and 1.6: v2 sets the bit when the tick stops, v3 at idle entry; both clear it at the first busy
// tick; nothing is written twice.
// Method: one CPU's life; the counters of writes.
#[test]
fn marks_follow_the_version() {
    assert_eq!(life_of_a_bit(LlcMask::TickStop), [false, true, false]);
    assert_eq!(life_of_a_bit(LlcMask::IdleEntry), [true, true, false]);
    let mut stage = m0(
        Config {
            llc_mask: LlcMask::IdleEntry,
            ..Config::cfs59()
        },
        |_| false,
        false,
    );
    let before = stage.counter("idle_mask_sets");
    for now in 1..5 {
        stage.at(now * 1000, Cpu(6));
        stage.fair.idle_enter(&mut stage.sim.host, Cpu(6), false);
    }
    assert_eq!(
        stage.counter("idle_mask_sets"),
        before,
        "already marked: no write"
    );
    // SCHED_IDLE work counts as idle: the tick leaves the mark (v3 on).
    let task = stage.runner_with(6, Class::Idle);
    stage.at(8_000_000, Cpu(6));
    stage.fair.tick(&mut stage.sim.host, Cpu(6), task);
    assert!(stage.fair.llcs[0].idle.contains(Cpu(6)));
}

// Goal: 1.6: a claim clears the bit of the CPU that is taken, and its next idle entry sets it again.
// Method: one wakeup by search, one idle entry.
#[test]
fn a_claim_clears_the_mark() {
    let mut stage = m0(
        Config {
            llc_mask: LlcMask::Claim,
            ..Config::cfs59()
        },
        |cpu| cpu != 9,
        false,
    );
    let task = stage.sleeper(0);
    set_prop(&mut stage, 1 << 40, 100);
    assert_eq!(stage.wake(task, 0, false), (9, "idle-cpu"));
    assert!(!stage.fair.llcs[0].idle.contains(Cpu(9)));
    stage.at(2000, Cpu(9));
    stage.fair.idle_enter(&mut stage.sim.host, Cpu(9), false);
    assert!(stage.fair.llcs[0].idle.contains(Cpu(9)));
}

// Goal: every probe is paid for: a line of the probed CPU's queue.
// Method: two failing searches with budgets of 3 and 48 CPUs right after all queues were written remotely.
#[test]
fn probes_cost_lines() {
    let cost = |avg_idle| {
        let mut stage = m0(Config::cfs59(), |_| true, false);
        let task = stage.sleeper(0);
        set_prop(&mut stage, avg_idle, 1000);
        stage.wake(task, 0, false);
        stage.sim.host.stats.search_ns
    };
    let (short, long) = (cost(0), cost(512 * 1_000_000));
    assert!(long > 8 * short, "3 probes {short} ns, 48 probes {long} ns");
}

// Goal: 5.6: where capacities differ, an idle CPU that fits is taken, else the strongest idle one.
// Method: TC2 (CPUs 0-1 strong, 2-4 weak); a light and a heavy task that last ran on a busy weak CPU.
#[test]
fn capacity_decides_on_mixed_machines() {
    for (util, busy, expected) in [
        (100, vec![2], 3),       // fits a weak one; the search starts at the target
        (900, vec![2], 0),       // fits only a strong one
        (900, vec![0, 1, 2], 3), // none fits: the strongest idle
    ] {
        let mut stage = Stage::new(machine("tc2-2a15-3a7"), Config::eevdf());
        for &cpu in &busy {
            stage.runner(cpu);
        }
        let task = stage.sleeper(2);
        stage.fair.tasks[task.index()].avg.util = util;
        let (cpu, reason) = stage.wake(task, 2, false);
        assert_eq!(
            (cpu, reason),
            (expected, "idle-by-capacity"),
            "util {util}, busy {busy:?}"
        );
    }
}
