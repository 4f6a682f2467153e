// SPDX-License-Identifier: GPL-2.0-only
//! `usher bench`, run as a user runs it.

use std::process::Command;

use usher_sim::costs::Costs;

// Goal: `usher bench costs` prints a cost file of this machine, however busy that is. Method: it is read back; everything that any machine
// has was measured and takes time.
#[test]
fn costs_of_this_machine() {
    let run = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(["bench", "costs"])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let text = String::from_utf8(run.stdout).expect("text");
    let costs = Costs::parse("this machine", &text).expect("a cost file");
    for key in ["syscall_ns", "rw_ns", "fork_ns", "thread_ns", "line_rmw_ns"] {
        assert!(
            text.contains(&format!("\n{key} = {{ value = ")),
            "{key}: {text}"
        );
    }
    let n = &costs.n;
    assert!(
        n.syscall_ns > 0 && n.fork_ns > n.syscall_ns && n.line_rmw_ns > 0,
        "{text}"
    );
    assert!(text.contains("--set protocol="), "{text}");
}

#[test]
fn an_unknown_base_is_wrong_use() {
    let run = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(["bench", "costs", "--base", "zen"])
        .output()
        .expect("it starts");
    assert_eq!(run.status.code(), Some(2));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("zen3"), "{said}");
}
