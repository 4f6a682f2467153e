// SPDX-License-Identifier: GPL-2.0-only
//! How the end of a child wakes who waits for it.

mod common;

use common::{Step::Act, *};
use usher_sim::program::{Action, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::World;
use usher_sim::Report;

/// A parent waits for its child, which ends on CPU `on` of four, two to an LLC.
fn end_of_a_child(on: u32, thread: bool) -> Report {
    let mut child = TaskSpec::new("child", script(vec![Act(Action::Compute(MS))]));
    if thread {
        child = child.thread();
    }
    let parent = script(vec![
        Act(Action::Fork(Box::new(child.affinity(only(on))))),
        Act(Action::WaitAnyChild),
    ]);
    let parent = TaskSpec::new("parent", parent);
    let costs = usual_costs();
    let machine = machine("l3:2 core:2 pu:1", costs);
    run_under(
        "scx-simple",
        machine,
        workload(World::new(), vec![parent], Stop::AllExit),
    )
}

// Goal: the end of a process wakes its parent synchronously (`__wake_up_parent`), that of a thread who joins it by a futex, which is
// not; and sched_ext's idle selection does not put the parent behind a child that is about to be gone.
// Method: the step that decides. The parent's CPU idles: a synchronous wakeup from its LLC stays there by step 1a. From the other LLC
// 1b would take the child's CPU, where nothing waits, but for its exiting.
#[test]
fn the_end_of_a_process_wakes_synchronously() {
    for (on, thread, sync_prev) in [(1, false, 1), (1, true, 0), (3, false, 0)] {
        let reasons = end_of_a_child(on, thread).reasons;
        let decided = ["sync-prev", "sync-waker"].map(|step| reasons[step]);
        assert_eq!(decided, [sync_prev, 0], "on {on}, {thread}: {reasons:?}");
    }
}
