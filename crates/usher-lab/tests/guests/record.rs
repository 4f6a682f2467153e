// SPDX-License-Identifier: GPL-2.0-only
//! A decision recorded in a real kernel comes out the same in a process, bit for bit: `scx_usher --record` in guests of both kernels,
//! `usher explain --recorded` here.
//!
//! Goal: what the simulator and the native tests run is what the kernel decided with, under a real load and whatever other CPUs did
//! meanwhile. Method: hackbench, some of it restricted to a few CPUs, on equal CPUs and on strong and weak ones (by sysfs, as in
//! unequal.rs); every decision of the file is made again by the core as this process has it, each access answered from the record. Catches:
//! a search that reads something unrecorded, a BPF object that decides otherwise than it was compiled natively, a record that is torn.

use std::collections::BTreeSet;
use std::process::Command;

use super::common::{alone, built, on_each_kernel, temporary, SHELL};

/// What marks the begin of a file in the guest's output.
const MARK: &str = "### recorded: ";

const SCRIPT: &str = "
# Who waits for a byte has run on CPU 2 and may run in the other LLC of the node as well. There CPU 0 writes the byte: a synchronous
# wakeup from another LLC, whose CPU 1 is idle but for kernel threads, since this shell and the loader are in the other node. hackbench has
# such a wakeup by chance, now and then none.
woken_from_the_other_llc() {
    rm -f /tmp/fifo; mkfifo /tmp/fifo; exec 3<>/tmp/fifo
    taskset -c 2 head -c 1 </tmp/fifo >/dev/null & reader=$!
    sleep 0.2
    taskset -pc 1-2 $reader >/dev/null
    taskset -c 0 sh -c 'printf x >&3'
    wait $reader
    exec 3>&-
}
record() {
    since=$(attached)
    taskset -c 4-7 $scx_usher --record /tmp/$1.jsonl & loader=$!
    wait_attached_since $since
    wait_state enabled
    hackbench -g 1 -l 40 >/dev/null
    taskset -c 1-2,5 hackbench -g 1 -l 5 >/dev/null
    taskset -pc 4-7 $$ >/dev/null
    for i in 1 2 3 4 5 6 7 8; do woken_from_the_other_llc; done
    taskset -pc 0-7 $$ >/dev/null
    kill -INT $loader
    wait $loader || exit 1
    echo '### recorded:' $1
    cat /tmp/$1.jsonl
}
record equal
for cpu in 0 1 2 3 4 5 6 7; do
    here=/sys/devices/system/cpu/cpu$cpu
    capacity=446; [ $((cpu % 4)) -gt 1 ] || capacity=1024
    mkdir -p /tmp/cpu$cpu
    cp -r $here/topology $here/cache /tmp/cpu$cpu 2>/dev/null
    cp $here/online /tmp/cpu$cpu 2>/dev/null
    mkdir /tmp/cpu$cpu/node$((cpu / 4))
    echo $capacity > /tmp/cpu$cpu/cpu_capacity
    mount -o bind /tmp/cpu$cpu $here
done
record unequal";

/// Decisions and the reasons among them, of a file that was recorded in a guest.
fn told(kernel: &str, name: &str, lines: &str) -> (usize, BTreeSet<String>) {
    let path = temporary(&format!("{kernel}-{name}.jsonl"));
    std::fs::write(&path, lines).expect("target is writable");
    let output = Command::new(built("usher"))
        .args(["explain", "--format", "json", "--recorded"])
        .arg(&path)
        .output()
        .expect("usher runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{kernel}, {name}: {stderr}{said}"
    );
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(json["ended"], true, "{kernel}, {name}: no footer");
    let rows = json["decisions"].as_array().expect("an array");
    assert!(rows.iter().all(|row| row["same"] == true));
    let restricted = rows.iter().filter(|row| row["allowed"] == "1-2,5").count();
    assert!(
        restricted >= 20,
        "{kernel}, {name}: {restricted} of restricted tasks"
    );
    let reasons = rows
        .iter()
        .map(|row| row["reason"].as_str().expect("a name").to_owned());
    let told = (rows.len(), reasons.collect());
    std::fs::remove_file(path).expect("it is there");
    told
}

fn comes_out_the_same(kernel: &str) {
    let program = built("scx_usher");
    let script = format!("scx_usher={}\n{SHELL}{SCRIPT}", program.display());
    let command = ["sh", "-c", &script].map(str::to_owned).into();
    let step = alone(kernel, "2n2l2c1t", &program, command, 300);
    let said = String::from_utf8_lossy(&step.stdout);
    let stderr = String::from_utf8_lossy(&step.stderr);
    let files: Vec<(&str, &str)> = said
        .split(MARK)
        .skip(1)
        .filter_map(|file| file.split_once('\n'))
        .collect();
    let names: Vec<&str> = files.iter().map(|file| file.0).collect();
    assert_eq!(names, ["equal", "unequal"], "kernel {kernel}: {stderr}");
    for (name, lines) in files {
        let (nr, reasons) = told(kernel, name, lines);
        eprintln!("kernel {kernel}, {name}: {nr} decisions, {reasons:?}");
        // Steps of every kind: prev, the waker's LLC, nobody idle; a search from near to far, which unequal CPUs replace by one for what is
        // enough.
        let some = |kind: &str| reasons.iter().any(|reason| reason.starts_with(kind));
        let kinds = match name {
            "equal" => &["prev-", "sync-", "llc-", "remote-", "queued"][..],
            _ => &["prev-", "sync-", "fit-", "queued"][..],
        };
        assert!(
            nr >= 300 && kinds.iter().all(|kind| some(kind)),
            "kernel {kernel}, {name}: {nr}, {reasons:?}"
        );
        assert_eq!(
            some("fit-"),
            name == "unequal",
            "kernel {kernel}, {name}: {reasons:?}"
        );
    }
}

/// `usher lab run --record`, as a user does it: what `usher explain` makes of the file.
fn brought_out_of(shape: &str, command: &[&str]) -> serde_json::Value {
    let path = temporary(&format!("{shape}.jsonl"));
    let usher = || Command::new(built("usher"));
    let ran = usher()
        .args(["lab", "run", "--shape", shape, "--record"])
        .arg(&path)
        .arg("--")
        .args(command)
        .output()
        .expect("usher runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    assert!(said.contains("usher explain --recorded"), "{said}");
    let told = usher()
        .args(["explain", "--format", "json", "--recorded"])
        .arg(&path)
        .output()
        .expect("usher runs");
    let said = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(0), "{said}");
    std::fs::remove_file(path).expect("it is there");
    serde_json::from_slice(&told.stdout).expect("JSON")
}

// Goal: `usher lab run --record` brings the decisions out of the guest once the scheduler has ended, so that the last ones are there,
// too. Method: the file has its end, and the birth of what the command started.
#[test]
fn a_recording_leaves_the_guest() {
    let told = brought_out_of("1n1l2c1t", &["sh", "-c", "sleep 0.1; true"]);
    assert_eq!(told["ended"], true);
    let rows = told["decisions"].as_array().expect("an array");
    assert!(rows.iter().any(|row| row["comm"] == "sleep"), "{told}");
}

// Goal: what an arm64 kernel decided comes out the same here, on another architecture. Method: hackbench on strong and weak CPUs.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn comes_out_the_same_of_arm64() {
    let told = brought_out_of("4b4l", &["hackbench", "-g", "1", "-l", "20"]);
    assert_eq!(told["ended"], true);
    let rows = told["decisions"].as_array().expect("an array");
    assert!(rows.len() >= 300, "{} decisions", rows.len());
    assert!(rows.iter().all(|row| row["same"] == true));
    assert!(rows.iter().any(|row| row["reason"] == "fit-cpu"), "{told}");
}

on_each_kernel!(comes_out_the_same);
