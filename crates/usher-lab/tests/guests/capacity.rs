// SPDX-License-Identifier: GPL-2.0-only
//! Guests with strong and weak CPUs, four of each or two and three: an arm64 kernel, told of them by a device tree, with the
//! weak ones slowed down by quotas. Each is booted once; the steps run in it one after the other, the first ones under the
//! kernel's own scheduler, then under usher.
//!
//! Needs what `make guests-arm64` gets, which is minutes of building; so `make capacity` gets it and runs these, and
//! `make test` does not.

use std::sync::{Mutex, OnceLock};

use super::common::{self, Steps, HOGS, SHELL};
use usher_lab::lab::{self, Request};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::{Scheduler, KERNEL_SCHEDULER};
use usher_lab::shape::Shape;

const SHAPE: &str = "4b4l";

/// The board of the published measurements.
const BOARD: &str = "tc2";

/// Guest seconds after which a step's command hangs.
const LIMIT_S: u64 = 240;

/// CPUs take turns on few host CPUs, so the kernel's watchdog of sched_ext has to be patient.
const PATIENCE_MS: &str = "20000";

/// A step: its name, the script, and whether it runs under usher.
type Step = (&'static str, &'static str, bool);

const STEPS: [Step; 7] = [
    ("description", DESCRIPTION, false),
    ("speed", SPEED, false),
    ("misfit_eevdf", MISFIT, false),
    ("misfit_usher", MISFIT, true),
    ("called", CALLED, true),
    ("lie", LIE, false),
    ("corrected", CORRECTED, true),
];

const BOARD_STEPS: [Step; 2] = [
    ("description", DESCRIPTION, false),
    ("misfit_usher", MISFIT, true),
];

const DESCRIPTION: &str = "
cd /sys/devices/system/cpu
for cpu in 0 1 2 3 4 5 6 7; do
    [ -d cpu$cpu ] || break
    echo cpu$cpu $(cat cpu$cpu/cpu_capacity) $(cat cpu$cpu/cache/index2/shared_cpu_list) \
        $(cat cpu$cpu/topology/cluster_cpus_list)
done
uname -m";

// How far a loop comes on a strong and on a weak CPU at the same time, twenty times. It is the shell's own: nothing else runs,
// and nothing of it depends on memory.
const SPEED: &str = "
count() { taskset -c $1 sh -c \"trap 'echo loop $1 \\$i; exit' TERM; i=0; while :; do i=\\$((i + 1)); done\" & }
turn=0
while [ $turn -lt 20 ]; do
    count 1; strong=$!; count 5; weak=$!
    sleep 2
    kill $strong $weak; wait
    turn=$((turn + 1))
done";

const MISFIT: &str = "usher bench misfit --format json";

// All strong CPUs are taken, and a heavy task waits on a weak one, until one of the others ends.
const CALLED: &str = "
for cpu in 0 1 2 3; do burn $cpu; pids=\"$pids $!\"; first=$!; done
burn 5; waits=$!
sleep 2; taskset -p ff $waits >/dev/null
sleep 2; echo \"waits on $(cpu_of $waits)\"
kill $first
wait_at_most $waits 3; echo 'called up'
kill $pids $waits 2>/dev/null; true";

// The kernel's own figures stay; what sysfs shows of the weak CPUs is another file from here on.
const LIE: &str = "
echo 900 > /tmp/capacity
for cpu in 4 5 6 7; do mount -o bind /tmp/capacity /sys/devices/system/cpu/cpu$cpu/cpu_capacity; done
cat /sys/devices/system/cpu/cpu5/cpu_capacity
attached > /tmp/attached";

// It attaches with the wrong figures first, and anew with the kernel's.
const CORRECTED: &str = "wait_attached_since $(($(cat /tmp/attached) + 1))";

/// One guest at a time: two would each get less of the host than their quotas.
static HOST: Mutex<()> = Mutex::new(());

fn boot(shape: &str, steps: &[Step]) -> Steps {
    let _alone = HOST.lock().expect("no boot panics");
    let kernels_own: Scheduler = KERNEL_SCHEDULER.parse().expect("known");
    let mut usher: Scheduler = "usher".parse().expect("known");
    usher.add_options(&["--timeout-ms".into(), PATIENCE_MS.into()]);
    let steps: Vec<(Scheduler, Vec<String>)> = steps
        .iter()
        .map(|(_, script, under_usher)| {
            let scheduler = if *under_usher { &usher } else { &kernels_own };
            let command: Vec<String> = match script.starts_with("usher ") {
                true => script.split(' ').map(str::to_string).collect(),
                false => vec!["sh".into(), "-c".into(), format!("{SHELL}{HOGS}{script}")],
            };
            (scheduler.clone(), command)
        })
        .collect();
    let request = Request::new(legal(shape), "6.18", Vec::new(), LIMIT_S);
    lab::run_steps(&request, &steps, &|line| eprintln!("{line}"), &mut |_| ())
        .map(|outcome| outcome.steps)
        .map_err(|error| error.to_string())
}

fn legal(shape: &str) -> Shape {
    shape.parse().expect("a legal shape")
}

fn shape() -> Shape {
    legal(SHAPE)
}

/// What a step gave, and everything said in it.
fn step(name: &str) -> (&'static StepOutcome, String) {
    static GUEST: OnceLock<Steps> = OnceLock::new();
    let names = STEPS.iter().map(|(name, _, _)| *name);
    common::step_of(GUEST.get_or_init(|| boot(SHAPE, &STEPS)), names, name)
}

/// The same of the board.
fn board_step(name: &str) -> (&'static StepOutcome, String) {
    static GUEST: OnceLock<Steps> = OnceLock::new();
    let names = BOARD_STEPS.iter().map(|(name, _, _)| *name);
    let steps = GUEST.get_or_init(|| boot(BOARD, &BOARD_STEPS));
    common::step_of(steps, names, name)
}

/// What the description says of a machine.
fn described(shape: &Shape) -> String {
    let mut expected = String::new();
    for cluster in shape.clusters() {
        let list = cluster.cpu_list();
        for cpu in cluster.first..cluster.first + cluster.cpus {
            expected += &format!("cpu{cpu} {} {list} {list}\n", cluster.capacity);
        }
    }
    expected + "aarch64\n"
}

// Goal: the guest's kernel knows which CPUs are strong, which belong together and which share a cache. Method: its
// sysfs against the shape. Catches: a device tree that the kernel ignores or reads otherwise.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn the_kernel_is_told_of_unequal_cpus() {
    let (step, context) = step("description");
    let said = String::from_utf8_lossy(&step.stdout).into_owned();
    assert_eq!(said, described(&shape()), "{context}");
}

// Goal: weak CPUs are slower by what the report says. Method: how far a loop comes on a CPU of each kind in the same forty
// seconds; the sums' ratio against the machine's speeds. A single turn is off by up to a half, since two threads of the host slow
// each other down where their shares of a period overlap, and do so or not for a turn; and a neighbour on the host's own
// cores has his times. Over twenty turns the sums of five guests were between 0.39 and 0.46, of 0.435: a CPU of the guest has
// its ticks to serve, which cost a slow one the same as a fast one. The tolerance is 15 %. Catches: quotas that are not set, set
// for other threads, or the same for all: then the ratio is 1, or the inverse.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn weak_cpus_are_slower_as_stated() {
    let (step, context) = step("speed");
    let said = String::from_utf8_lossy(&step.stdout).into_owned();
    let rounds = |cpu: &str| {
        let turns: Vec<u64> = said
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("loop {cpu} ")))
            .map(|rounds| rounds.parse().expect("a number"))
            .collect();
        assert_eq!(turns.len(), 20, "{context}");
        turns.iter().sum::<u64>()
    };
    let (strong, weak) = (rounds("1"), rounds("5"));
    let speeds = shape().speeds_permille();
    let stated = f64::from(speeds[5]) / f64::from(speeds[1]);
    let seen = weak as f64 / strong as f64;
    let said =
        format!("weak at {seen:.3} of strong, stated {stated:.3} ({weak} and {strong} rounds)");
    eprintln!("{said}");
    assert!((seen / stated - 1.0).abs() < 0.15, "{said}");
}

/// What `usher bench misfit` measured in a step.
fn misfit(name: &str) -> (serde_json::Value, String) {
    let (step, context) = step(name);
    let found = serde_json::from_slice(&step.stdout);
    (
        found.unwrap_or_else(|error| panic!("{error}: {context}")),
        context,
    )
}

/// A time in milliseconds, `None` for one that never came.
fn milliseconds(ns: &serde_json::Value) -> Option<u64> {
    ns.as_u64().map(|ns| ns / 1_000_000)
}

// Goal: the machine and the measurement are such that a scheduler that knows of capacity shows it. Method: the kernel's
// own, which moves a task that its CPU is too weak for, and spreads tasks over idle CPUs. Catches: a bench that does not
// see a move, a guest on which no move could be seen.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn the_kernels_own_scheduler_moves_heavy_tasks_up() {
    let (found, context) = misfit("misfit_eevdf");
    assert_eq!(found["tiers"][0]["capacity"], 1024, "{context}");
    assert_eq!(
        found["tiers"][1]["cpus"],
        serde_json::json!([4, 5, 6, 7]),
        "{context}"
    );
    assert_eq!(found["known_heavy"]["never"], 0, "{context}");
    assert_eq!(found["crowd"]["at_the_end"], 8, "{context}");
}

// Goal: scx_usher loads on an arm64 kernel, decides there and leaves. Catches: a BPF object made for another
// architecture, atomics on arena memory that the kernel's compiler for arm64 does not know, a kernel warning.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn usher_schedules_on_arm64() {
    let (step, context) = step("misfit_usher");
    let ops = step.report.ops.as_deref().unwrap_or_default();
    assert!(ops.starts_with("usher"), "{context}");
    assert_eq!(step.report.scheduler_exit, Some(0), "{context}");
    let decisions = common::decisions(step);
    assert!(decisions > 100, "only {decisions} decisions: {context}");
    let warnings = step
        .report
        .kernel_log
        .iter()
        .filter(|line| line.text.contains("WARNING:"));
    assert_eq!(warnings.count(), 0, "{context}");
}

// Goal: a heavy task born on a weak CPU is on a strong one within 100 ms of guest time. Method: five tasks free to go at
// their birth, and five after 200 ms of work; each of them. Catches: a scheduler that finds the task only when it sleeps, or that must see it for long to
// take it for heavy.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn heavy_tasks_move_up_within_100_ms() {
    let (found, context) = misfit("misfit_usher");
    for kind in ["born_heavy", "known_heavy"] {
        assert_eq!(found[kind]["never"], 0, "{kind}: {context}");
        let longest_ms = milliseconds(&found[kind]["longest_ns"]);
        assert!(
            longest_ms.is_some_and(|ms| ms <= 100),
            "{kind}: {longest_ms:?} ms: {context}"
        );
    }
}

// Goal: as many heavy tasks as CPUs occupy all of them, weak ones too. Method: where eight tasks that never sleep were
// seen over three seconds. The births take time, and a CPU that idles looks for a task when it wakes, so all are occupied
// within half a second, and from the first sight of the last task on 97 % of CPU time is. Catches: a scheduler that doubles
// up on strong CPUs while a weak one idles, or keeps moving tasks about.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn heavy_tasks_occupy_all_cpus() {
    let (found, context) = misfit("misfit_usher");
    let crowd = &found["crowd"];
    let after_ms = milliseconds(&crowd["all_occupied_after_ns"]);
    assert!(after_ms.is_some_and(|ms| ms <= 500), "{context}");
    assert_eq!(crowd["at_the_end"], 8, "{context}");
    let occupied_permille = crowd["occupied_permille"].as_u64();
    assert!(
        occupied_permille.is_some_and(|share| share >= 970),
        "{context}"
    );
}

// Goal: a light task stays where it is beside idle strong CPUs. Method: one that works 0.5 ms of every 20, for three
// seconds. Catches: capacity rules that send whoever wakes to the strongest idle CPU.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn a_light_task_stays() {
    let (found, context) = misfit("misfit_usher");
    let light = &found["light"];
    assert!(
        light["activations"]
            .as_u64()
            .is_some_and(|times| times >= 100),
        "{context}"
    );
    let per_1000_s = light["migrations_per_1000_s"].as_u64();
    assert!(per_1000_s.is_some_and(|rate| rate <= 1000), "{context}");
}

// Goal: a strong CPU that goes idle calls for the heavy task on a weak one. Method: where the task is, and the counter. Catches:
// a CPU that leaves it to the weak one's tick.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn a_strong_cpu_that_goes_idle_calls() {
    let (step, context) = step("called");
    assert!(context.contains("called up"), "{context}");
    for (group, name) in [("events", "misfit-called"), ("callbacks", "moved")] {
        assert!(common::counted(step, group, name) >= 1, "{name}: {context}");
    }
}

// Goal: capacities are the kernel's own where it says otherwise than its sysfs. Method: another file over that of each weak CPU,
// and what the statistics then show. Catches: a figure that is not asked for, or taken only for some purposes, and a loader
// that starts anew for ever.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn the_kernels_figures_win() {
    let (_, said) = step("lie");
    assert!(said.contains("900\n"), "{said}");
    let (step, context) = step("corrected");
    let stats = step.report.scheduler_stats.as_ref().expect("statistics");
    let weak = shape().clusters().last().expect("two").capacity.to_string();
    let mut expected = serde_json::json!({"cpus": {"1024": 4}, "corrected": 4});
    expected["cpus"][weak] = 4.into();
    assert_eq!(stats["capacities"], expected, "{context}");
}

// Goal: the board of the published measurements, two strong CPUs and three weak ones, boots and is served. Method: what its
// kernel knows, and the misfit bench. Catches: tables and tests that hold for four and four only, such as tiers of equal size.
#[test]
#[ignore = "needs an emulator and compilers for arm64; make capacity"]
fn the_board_of_2013_is_served() {
    let (step, context) = board_step("description");
    let said = String::from_utf8_lossy(&step.stdout).into_owned();
    assert_eq!(said, described(&legal(BOARD)), "{context}");
    let (step, context) = board_step("misfit_usher");
    let found: serde_json::Value =
        serde_json::from_slice(&step.stdout).unwrap_or_else(|error| panic!("{error}: {context}"));
    for kind in ["born_heavy", "known_heavy"] {
        assert_eq!(found[kind]["never"], 0, "{kind}: {context}");
        let median_ms = milliseconds(&found[kind]["median_ns"]);
        assert!(median_ms.is_some_and(|ms| ms <= 100), "{kind}: {context}");
    }
    assert_eq!(found["crowd"]["at_the_end"], 5, "{context}");
}
