// SPDX-License-Identifier: GPL-2.0-only
//! Strong and weak CPUs on an x86 kernel, by its sysfs alone.
//!
//! An x86 kernel has capacities of CPUs only from `intel_pstate` on hybrid processors without SMT, which no emulator has, so
//! the kernel of this guest takes all CPUs for equal. But scx_usher reads sysfs, and goes by it where the kernel itself tells no
//! CPUs apart. So two CPUs get a sysfs folder of their own that says `cpu_capacity` 446. They are not slower: what these
//! tests look at is what usher does about them, by its counters, and where tasks are. CPUs that are weak, on a kernel that
//! knows it: capacity.rs, on arm64.

use std::sync::OnceLock;

use super::common::{self, built, Steps, HOGS, SHELL};
use usher_lab::lab::{self, Request};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::{Scheduler, KERNEL_SCHEDULER};

/// Two LLCs: CPUs 0 and 1 are strong, 2 and 3 weak.
const SHAPE: &str = "1n2l2c1t";

/// Guest seconds after which a step's command hangs.
const LIMIT_S: u64 = 120;

/// The steps: the test's name, the script, and the options of usher, if it runs under it.
const STEPS: [(&str, &str, Option<&[&str]>); 11] = [
    ("weaken", WEAKEN, None),
    ("misfit", MISFIT, Some(&[])),
    ("called", CALLED, Some(&[])),
    ("crowded", CROWDED, Some(&[])),
    ("ignored", CROWDED, Some(&["--no-capacity"])),
    ("strongest", BORN, Some(&[])),
    ("weakest", BORN, Some(&["--tiers", "weakest-first"])),
    ("clamped", CLAMPED, Some(&[])),
    ("urgent", URGENT, Some(&[])),
    ("offline", OFFLINE, Some(&[])),
    ("online", ONLINE, Some(&[])),
];

/// Folders of sysfs can be copied and put over the original; what they link to is left out, it is read elsewhere.
const WEAKEN: &str = "
for cpu in 0 1 2 3; do
    capacity=446; [ $cpu -gt 1 ] || capacity=1024
    mkdir -p /tmp/cpu$cpu
    cp -r /sys/devices/system/cpu/cpu$cpu/topology /sys/devices/system/cpu/cpu$cpu/cache /tmp/cpu$cpu 2>/dev/null
    cp /sys/devices/system/cpu/cpu$cpu/online /tmp/cpu$cpu 2>/dev/null
    mkdir /tmp/cpu$cpu/node0
    echo $capacity > /tmp/cpu$cpu/cpu_capacity
    mount -o bind /tmp/cpu$cpu /sys/devices/system/cpu/cpu$cpu
done
cat /sys/devices/system/cpu/cpu*/cpu_capacity";

// Where it is born it must stay a while, else nothing is known of it. Eight times, for it may be on its way up already without
// a move, when it waits for a moment and a strong CPU takes it from the queue: three times in three have been seen.
const MISFIT: &str = "
for turn in 1 2 3 4 5 6 7 8; do
    burn 2; heavy=$!
    sleep 1; echo \"born on $(cpu_of $heavy)\"
    taskset -p f $heavy >/dev/null
    wait_at_most $heavy 1; echo 'moved up'
    kill $heavy
done";

const CALLED: &str = "
for turn in 1 2 3 4 5 6 7 8; do
    burn 0; first=$!; burn 1; second=$!; burn 3; third=$!
    sleep 1
    taskset -p f $third >/dev/null
    sleep 1; echo \"waits on $(cpu_of $third)\"
    kill $first
    wait_at_most $third 1; echo 'called up'
    kill $second $third
done";

/// Functions for scripts: ten looks at a task, each a trial of its own, a quarter of a second after the task was let go from CPU
/// 2; a task that wakes ten times a second; and two control groups, one whose tasks no weak CPU is enough for, and one for whose tasks each is.
const GROUPS: &str = "
looks() {
    n=0
    while [ $n -lt 10 ]; do
        taskset -p 4 $2 >/dev/null; sleep 0.3
        taskset -p f $2 >/dev/null; sleep 0.25
        echo \"$1 on $(cpu_of $2)\"
        n=$((n + 1))
    done
}
timer() {
    cyclictest -q --policy other -i 100000 -D 60 >/dev/null & main=$!
    n=0
    until timer=$(ls /proc/$main/task | grep -vx $main); [ -n \"$timer\" ]; do
        n=$((n + 1)); [ $n -lt 200 ] || { echo 'no timer after 20 s'; exit 1; }
        sleep 0.1
    done
    sleep 1
}
groups() {
    mkdir -p /tmp/groups && mount -t cgroup2 none /tmp/groups
    echo +cpu > /tmp/groups/cgroup.subtree_control
    mkdir -p /tmp/groups/boosted /tmp/groups/capped
    echo 90 > /tmp/groups/boosted/cpu.uclamp.min
    echo 30 > /tmp/groups/capped/cpu.uclamp.max
}
";

// Four that never sleep and may run on the weak CPUs only, so two of them always wait. Weak CPUs are enough for two, and never for
// the others, and which comes first in the queue changes from slice to slice. Beside them some for whom there are strong ones.
const CROWDED: &str = "
groups
for n in 1 2; do
    burn 2,3; pids=\"$pids $!\"; echo $! > /tmp/groups/capped/cgroup.procs
    burn 2,3; pids=\"$pids $!\"; echo $! > /tmp/groups/boosted/cgroup.procs
    burn 0-3; pids=\"$pids $!\"
done
sleep 5
kill $pids
echo done";

// Each of these is a task of its own, and nothing is known of it but that every CPU is enough. What they say comes last: who
// carries it out of the guest runs on a CPU, too.
const BORN: &str = "
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    cut -d' ' -f39 /proc/self/stat
done > /tmp/born
sed 's/^/born on /' /tmp/born";

// Control groups set the kernel's clamps. A task that hardly works stays where it is until it is boosted, and one that never
// sleeps stays on a weak CPU as long as it is capped. A kernel thread that takes CPU 2 for a moment spoils one look, and not all that
// follow, for who has gone to a strong CPU has no reason to come back. Everything else of the script is kept on CPU 0, out of
// their way.
const CLAMPED: &str = "
groups
taskset -p 1 $$ >/dev/null
burn 2; heavy=$!
echo $heavy > /tmp/groups/capped/cgroup.procs
sleep 1; looks capped $heavy
echo $heavy > /tmp/groups/cgroup.procs
wait_at_most $heavy 1; echo 'moved up'
kill $heavy
timer
looks light $timer
echo $timer > /tmp/groups/boosted/cgroup.procs
looks boosted $timer
kill $main";

// Somebody who never sleeps is on each CPU, so a task that wakes has to take one. Its group has the weight to.
const URGENT: &str = "
groups
for group in capped boosted; do echo 1000 > /tmp/groups/$group/cpu.weight; done
for cpu in 0 1 2 3; do burn $cpu; pids=\"$pids $!\"; done
timer
echo $timer > /tmp/groups/capped/cgroup.procs
looks capped $timer; looks capped $timer
echo $timer > /tmp/groups/boosted/cgroup.procs
looks boosted $timer; looks boosted $timer
kill $main $pids";

// The second strong CPU goes, so a task that never sleeps has only CPU 0 to go to. The folders above hide the kernel's own.
const OFFLINE: &str = "
mkdir -p /tmp/sys && mount -t sysfs none /tmp/sys
before=$(attached)
echo 0 > /tmp/sys/devices/system/cpu/cpu1/online || exit 1
wait_attached_since $before
burn 2; heavy=$!
sleep 1; taskset -p f $heavy >/dev/null
wait_at_most $heavy 0; echo 'moved up'
kill $heavy";

// On CPU 0 it may have a turn beside the task that stays there, but not for long.
const ONLINE: &str = "
before=$(attached)
burn 0; first=$!
echo 1 > /tmp/sys/devices/system/cpu/cpu1/online || exit 1
wait_attached_since $before
burn 2; heavy=$!
sleep 1; taskset -p f $heavy >/dev/null
wait_within $heavy 1 1; echo \"moved up to $cpu\"
kill $first $heavy";

fn boot() -> Steps {
    let kernels_own: Scheduler = KERNEL_SCHEDULER.parse().expect("known");
    let usher = built("scx_usher").to_string_lossy().into_owned();
    let steps: Vec<(Scheduler, Vec<String>)> = STEPS
        .iter()
        .map(|(_, script, options)| {
            let mut scheduler = kernels_own.clone();
            if let Some(options) = options {
                scheduler = usher.parse().expect("a program");
                // CPUs take turns on one host CPU, so the kernel's watchdog has to be patient.
                let options = ["--timeout-ms", "20000"].iter().chain(*options);
                let options: Vec<String> = options.map(|option| option.to_string()).collect();
                scheduler.add_options(&options);
            }
            let script = format!("{SHELL}{HOGS}{GROUPS}{script}");
            (scheduler, vec!["sh".into(), "-c".into(), script])
        })
        .collect();
    let request = Request::new(
        SHAPE.parse().expect("a legal shape"),
        "6.18",
        Vec::new(),
        LIMIT_S,
    );
    lab::run_steps(&request, &steps, &|line| eprintln!("{line}"), &mut |_| ())
        .map(|outcome| outcome.steps)
        .map_err(|error| error.to_string())
}

/// What all steps gave, or why the guest failed.
pub fn steps() -> &'static Steps {
    static GUEST: OnceLock<Steps> = OnceLock::new();
    GUEST.get_or_init(boot)
}

/// What a step gave, and everything said in it.
fn step(name: &str) -> (&'static StepOutcome, String) {
    let names = STEPS.iter().map(|(name, _, _)| *name);
    common::step_of(steps(), names, name)
}

// Goal: what the loader reads gets into the kernel, and a kernel that tells no CPUs apart does not overrule it. Method: the
// capacities in the statistics. Catches: unequal CPUs that count as equal on x86, and a loader that starts anew for ever.
#[test]
fn unequal_cpus_are_known() {
    let (_, said) = step("weaken");
    assert!(said.contains("1024\n1024\n446\n446\n"), "{said}");
    let (step, context) = step("misfit");
    let stats = step.report.scheduler_stats.as_ref().expect("statistics");
    let expected = serde_json::json!({"cpus": {"446": 2, "1024": 2}, "corrected": 0});
    assert_eq!(stats["capacities"], expected, "{context}");
}

// Goal: a task that never sleeps leaves a weak CPU for an idle strong one while it runs. Method: one that worked a second on
// CPU 2 before it may go. Catches: programs that this kernel's verifier or JIT turns down where CPUs differ.
#[test]
fn a_heavy_task_moves_up() {
    let (step, context) = step("misfit");
    assert!(
        context.contains("born on 2") && context.contains("moved up"),
        "{context}"
    );
    assert!(
        common::counted(step, "callbacks", "moved") >= 1,
        "{context}"
    );
}

// Goal: a strong CPU that goes idle calls for a heavy task on a weak one. Method: both strong ones are taken until one of the
// tasks there ends. Catches: a CPU that goes idle and leaves it to the weak one's tick.
#[test]
fn a_strong_cpu_that_goes_idle_calls() {
    let (step, context) = step("called");
    assert!(context.contains("called up"), "{context}");
    for (group, name) in [
        ("events", "misfit-waits"),
        ("events", "misfit-called"),
        ("callbacks", "moved"),
    ] {
        assert!(common::counted(step, group, name) >= 1, "{name}: {context}");
    }
}

// Goal: a weak CPU takes a task that it is enough for before one that it is not. Method: queues with both, by the counter.
#[test]
fn weak_cpus_take_what_fits() {
    let (step, context) = step("crowded");
    assert!(
        common::counted(step, "callbacks", "fit-taken") >= 1,
        "{context}"
    );
}

// Goal: --no-capacity leaves all of it out. Method: the same crowd.
#[test]
fn no_capacity_is_asked_for() {
    let (step, context) = step("ignored");
    for (group, name) in [
        ("events", "misfit-waits"),
        ("callbacks", "moved"),
        ("callbacks", "fit-taken"),
    ] {
        assert_eq!(common::counted(step, group, name), 0, "{name}: {context}");
    }
    let stats = step.report.scheduler_stats.as_ref().expect("statistics");
    assert!(stats.get("capacities").is_none(), "{context}");
}

/// How often a step's script said that a task is on one of these CPUs.
fn places(context: &str, who: &str, cpus: [u32; 2]) -> usize {
    let on = |cpu| context.matches(&format!("{who} on {cpu}\n")).count();
    cpus.map(on).iter().sum()
}

// Goal: --tiers says which CPUs come first, and the strong ones do unless it is given. Method: where twenty newborn tasks
// ran, of which some may find their CPU taken for a moment. Catches: an option that does not get into the kernel.
#[test]
fn the_order_of_tiers_is_asked_for() {
    for (name, first) in [("strongest", [0, 1]), ("weakest", [2, 3])] {
        let (_, context) = step(name);
        assert!(places(&context, "born", first) >= 15, "{name}: {context}");
    }
}

// Goal: the kernel's clamps count. Method: a task that never sleeps, while and after its group is content with 30 % of the strongest
// CPU, which a weak one has; and one that hardly works, before and after its group asks for 90 %. Of ten looks two may find a
// task elsewhere, where it went while a kernel thread had its CPU. Catches: clamps that are not read, or taken for one another.
#[test]
fn clamps_are_respected() {
    let (_, context) = step("clamped");
    assert!(places(&context, "capped", [2, 3]) >= 8, "{context}");
    assert!(context.contains("moved up"), "{context}");
    assert!(places(&context, "light", [2, 3]) >= 8, "{context}");
    assert!(places(&context, "boosted", [0, 1]) >= 8, "{context}");
}

// Goal: an urgent task takes a CPU that is enough for it. Method: it wakes ten times a second beside hogs, while each CPU is
// enough, when it takes the nearest, and while no weak one is; of twenty looks four may find it elsewhere. Catches: a search for
// whom to preempt that knows of no capacities.
#[test]
fn an_urgent_task_takes_a_cpu_that_is_enough() {
    let (step, context) = step("urgent");
    assert!(places(&context, "capped", [2, 3]) >= 16, "{context}");
    assert!(places(&context, "boosted", [0, 1]) >= 16, "{context}");
    let taken = ["preempt-llc", "preempt-node"].map(|e| common::counted(step, "events", e));
    assert!(taken[0] >= 20 && taken[1] >= 8, "{taken:?}: {context}");
}

// Goal: a strong CPU that goes is asked for no more, and is when it is back. Method: a heavy task's way up, with CPU 1 taken from
// the machine and given back while usher runs, and the capacities that usher knows of then. Catches: tables that survive a restart.
#[test]
fn strong_cpus_come_and_go() {
    for (name, strong, said) in [
        ("offline", 1, "moved up\n"),
        ("online", 2, "moved up to 1\n"),
    ] {
        let (step, context) = step(name);
        assert!(context.contains(said), "{name}: {context}");
        let stats = step.report.scheduler_stats.as_ref().expect("statistics");
        let expected = serde_json::json!({"cpus": {"446": 2, "1024": strong}, "corrected": 0});
        assert_eq!(stats["capacities"], expected, "{name}: {context}");
    }
}
