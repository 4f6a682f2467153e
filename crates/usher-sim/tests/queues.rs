// SPDX-License-Identifier: GPL-2.0-only
//! The queues of a wide last-level cache under usher: who waits in one is taken by the CPUs of all, and no lock is wanted by many.

mod common;

use common::{Step::Act, *};
use usher_sim::params::Params;
use usher_sim::program::{Action, Class, TaskSpec};
use usher_sim::workload::{build, Stop};
use usher_sim::world::World;
use usher_sim::Report;

/// Sixteen tasks on eight CPUs that share a cache: four compute for 10 ms, the others for 40.
fn two_for_each_cpu(policy: &str) -> Report {
    let computes = |ns| TaskSpec::new("computes", script(vec![Act(Action::Compute(ns))]));
    let tasks = (0..16).map(|i| computes(if i < 4 { 10 * MS } else { 40 * MS }).start(i * US));
    let workload = workload(World::new(), tasks.collect(), Stop::AllExit);
    run_under(
        policy,
        machine("numa:1 l3:1 core:8 pu:1", free_costs()),
        workload,
    )
}

// Goal: no CPU idles while somebody waits in another queue of its cache, and all get as much done as with one queue. Method: 520 ms of work
// for eight CPUs, and when the last task ends. Catches: a walk that leaves out the LLC's other queues, a host that keeps tasks in one queue and
// tells the core of another.
#[test]
fn nobody_idles_beside_another_queue() {
    for width in [1, 2, 4, 8] {
        let report = two_for_each_cpu(&format!("usher:queue-width={width}"));
        let ms = report.metrics["simulated_ns"] / MS as f64;
        assert!(
            (65.0..=85.0).contains(&ms),
            "queues of {width} CPUs: {ms} ms for 520 of work on eight CPUs"
        );
        let elsewhere = report.counters["steal-llc"];
        assert!(elsewhere > 0, "queues of {width} CPUs: nobody waited");
    }
}

/// A crowd on two caches of 64 CPUs that passes its messages.
fn crowd(policy: &str, seed: u64) -> Report {
    let costs = usual_costs();
    let machine = machine("numa:2 l3:1 core:32 pu:2", costs);
    let pairs = ["groups=16", "loops=200", "mode=thread", "ipc=pipe"];
    let params = Params::parse(pairs).expect("legal pairs");
    let hackbench = build("hackbench", &machine, params).expect("a legal workload");
    run_seeded(policy, machine, hackbench, seed)
}

// Goal: a crowd that sleeps and wakes all the time does not spend it at the lock of one queue, nor wakes for every few messages. Method: hackbench
// with 640 tasks on 128 CPUs, with queues of 16 CPUs each and with one per cache; how long CPUs wait for the queues' lines, and how often
// somebody wakes. Catches: queues that are cut but not used, by whoever puts in or takes out; sleepers that take
// along all that they are behind, with whom one message of ten wakes somebody.
#[test]
fn a_crowd_waits_for_no_lock_and_wakes_seldom() {
    let runs = |policy| [1, 2, 3].map(|seed| crowd(policy, seed));
    let [cut, one] = ["usher", "usher:queue-width=4096"].map(runs);
    let waits = |report: &Report| report.lines["usher-queue"].wait_ns;
    let [cut_ns, one_ns] = [&cut, &one].map(|runs| runs.iter().map(waits).sum::<u64>());
    assert!(
        cut_ns * 2 < one_ns,
        "{cut_ns} ns, with one queue per cache {one_ns}"
    );
    for report in cut {
        let wakeups = report.metrics["wakeups"] / report.metrics["messages"];
        assert!(wakeups < 0.09, "{wakeups} wakeups for a message");
    }
}

// Goal: who comes to an idle CPU that was claimed for another, and takes its claim, does not let that one wait behind itself in a place where nobody
// looks. Method: builds, whose newborns are queued by their parents and whose compilers are woken from other caches, on CPUs of four caches; the
// check that nobody waits beside an idle CPU. Catches: a claimed CPU that takes two for the one it was claimed for.
#[test]
fn nobody_waits_behind_who_took_the_claim() {
    for seed in 1..=5 {
        let costs = usual_costs();
        let machine = machine("numa:2 l3:2 core:2 pu:2", costs);
        let params = Params::parse(["jobs=16", "objects=200"]).expect("legal pairs");
        let kbuild = build("kbuild", &machine, params).expect("a legal workload");
        let report = run_seeded("usher", machine, kbuild, seed);
        assert!(report.metrics["wakeups"] > 1000.0, "a build wakes somebody");
    }
}

// Goal: tasks that never sleep get what they weigh, whichever queue of their cache they came to. Method: 14 of nice 0 and 14 of nice 10 on 16
// CPUs with two queues, which count tasks and not weights; how alike those of a kind are served. Catches: tasks that stay in the queue they came to.
#[test]
fn queues_of_a_cache_share_by_weight() {
    let machine = machine("numa:1 l3:1 core:16 pu:1", free_costs());
    let tasks = (0..28).map(|i| {
        let nice = if i < 14 { 0 } else { 10 };
        let task = hog().class(Class::Normal { nice }).group(nice as u32);
        task.start(i * US)
    });
    let workload = workload(World::new(), tasks.collect(), Stop::At(3000 * MS));
    let report = run_under("usher:queue-width=8", machine, workload);
    let alike = report.metrics["fairness"];
    assert!(alike > 0.995, "{alike}");
}

// Goal: of a crowd that sleeps and wakes all the time, those who run soon are left to the CPUs of their cache. Method: 320 tasks on the 192 CPUs of
// four sockets, where now and then somebody idles; how many go to other sockets, or are taken there, and the time it takes.
// Catches: searches and CPUs without work that go far for a wait of some microseconds.
#[test]
fn a_crowd_stays_in_its_caches() {
    let machine = shipped("xeon-4s24c2t-192", &[]);
    let set = ["groups=8", "loops=200"];
    let run = |policy, seed| run_case(&machine, "hackbench-thread-pipe", &set, policy, seed);
    let moved = |report: &Report| {
        let placed = ["remote-core", "remote-cpu"].map(|reason| report.reasons[reason]);
        placed.iter().sum::<u64>() + report.counters["steal-remote"]
    };
    let [(stays, stays_ns), (roams, roams_ns)] = ["usher", "usher:soon=0ns"].map(|policy| {
        let runs = [1, 2].map(|seed| run(policy, seed));
        let ns = runs.iter().map(|run| run.metrics["elapsed_ns"]);
        (runs.iter().map(moved).sum::<u64>(), ns.sum::<f64>())
    });
    assert!(stays * 4 < roams, "{stays} of {roams}");
    assert!(stays_ns < roams_ns, "{stays_ns} of {roams_ns} ns");
}
