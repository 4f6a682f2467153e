// SPDX-License-Identifier: GPL-2.0-only
//! Where usher has children born.

mod common;

use common::{Step::Act, *};
use usher_sim::program::{Action, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::World;
use usher_sim::Report;

/// A parent forks children, who compute for 20 ms each, computes itself, and waits for all of them. On two nodes with four cores
/// of so many threads, where two threads of a core do half as much each and nothing else costs anything.
fn family(children: usize, threads: u32) -> Report {
    family_under("usher", children, threads)
}

fn family_under(policy: &str, children: usize, threads: u32) -> Report {
    let mut costs = free_costs();
    costs.smt_share_permille = vec![1000, 500];
    let machine = machine(&format!("numa:2 l3:1 core:4 pu:{threads}"), costs);
    let compute = || Act(Action::Compute(20 * MS));
    let child = |_| {
        let program = script(vec![compute()]);
        Act(Action::Fork(Box::new(TaskSpec::new("child", program))))
    };
    let mut steps: Vec<Step> = (0..children).map(child).collect();
    steps.push(compute());
    steps.extend((0..children).map(|_| Act(Action::WaitAnyChild)));
    let parent = TaskSpec::new("parent", script(steps));
    let workload = workload(World::new(), vec![parent], Stop::AllExit);
    run_under(policy, machine, workload)
}

// Goal: nobody is born on half a core while whole ones idle, in another node or not.
// Method: a core for each, and a child more, who shares one near its parent. Catches: newborns that do so from the fifth on.
#[test]
fn newborns_share_cores_last() {
    let alone = family(7, 2);
    assert_near(
        "alone",
        alone.metrics["simulated_ns"],
        20.0 * MS as f64,
        1.0,
    );
    assert_eq!(alone.reasons["remote-core"], 4, "{:?}", alone.reasons);
    let crowded = family(8, 2);
    assert_eq!(crowded.reasons["llc-cpu"], 1, "{:?}", crowded.reasons);
}

// Goal: where nobody idles newborns wait in both nodes alike, so that nobody has to be fetched later, when its memory would stay behind.
// Method: 40 children for 7 idle CPUs. Catches: newborns that wait near their parent until there are four for each CPU.
#[test]
fn newborns_wait_in_the_shorter_queue() {
    let report = family(40, 1);
    let [near, far] = ["queued", "queued-elsewhere"].map(|reason| report.reasons[reason]);
    assert!(far * 2 > near && far <= near, "{:?}", report.reasons);
}

// Goal: work is spread over nodes while there is room in all, so that no socket is full while another sleeps.
// Method: three children of a parent that computes, on two nodes of four cores of one thread or two. The first stays, since no more than a
// quarter of its node is busy; then two of four cores are against none, and two against one. Catches: nodes that are filled one after the other.
#[test]
fn newborns_leave_busy_nodes() {
    for threads in [1, 2] {
        let away = |policy| {
            let report = family_under(policy, 3, threads);
            (report.counters["born-away"], report.reasons["remote-core"])
        };
        assert_eq!(away("usher"), (2, 2), "{threads} threads");
        assert_eq!(
            away("usher:fork-balance=false"),
            (0, 0),
            "{threads} threads"
        );
    }
}
