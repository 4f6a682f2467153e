// SPDX-License-Identifier: GPL-2.0-only
//! `usher top` as a user runs it, on the machine at hand.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use serde_json::Value;

fn top(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_usher"))
        .arg("top")
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    String::from_utf8(out.stdout).unwrap()
}

// Goal: a CPU that works all the time is seen to, whoever looks: as one of the machine's, its node's, its cache's and by
// itself. Method: a thread that spins, two displays as JSON, of which the rows of each kind must add up.
#[test]
fn a_busy_cpu_is_seen() {
    // Not joined: if `top` fails the test ends all the same.
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            std::hint::spin_loop()
        }
    });
    let said = top(&["--count", "2", "--format", "json"]);
    stop.store(true, Ordering::Relaxed);
    let displays: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    assert_eq!(displays.len(), 2);
    for display in &displays {
        assert!(said.starts_with(r#"{"schema":"usher-top/1","#));
        assert!(display["seconds"].as_f64().unwrap() >= 1.0);
        let busy = |of: &Value| of["busy_cpus"].as_f64().unwrap();
        let all = busy(&display["machine"]);
        assert!(all > 0.8, "somebody spins: {display}");
        for kind in ["nodes", "llcs", "cpus"] {
            let sum: f64 = display[kind].as_array().unwrap().iter().map(busy).sum();
            assert!((sum - all).abs() < 1e-6, "{kind}: {sum}, all: {all}");
        }
    }
}

// Goal: no screen is cleared where nobody has one, and each kind of row is to be had.
#[test]
fn text_for_a_file() {
    for (by, head) in [("node", "Nodes"), ("llc", "LLCs"), ("cpu", "CPUs")] {
        let text = top(&["--count", "1", "--by", by]);
        assert!(
            text.starts_with("Linux ") && !text.contains('\x1b'),
            "{text}"
        );
        let lines: Vec<&str> = text.lines().collect();
        let title = lines.iter().position(|line| *line == head).expect(head);
        assert!(
            lines[title + 1].contains("busy") && lines.len() > title + 2,
            "{text}"
        );
    }
}
