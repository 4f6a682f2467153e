// SPDX-License-Identifier: GPL-2.0-only
//! Control groups with a limit (`cpu.max`) in a guest that has CPUs for all of their tasks: what each of them gets, and what becomes of tasks that
//! others wait for.

use std::collections::BTreeMap;

use super::common::said;

/// Begins `TASKS`: `group` (name, `cpu.max`), `enter` (group, command) in the background. `measure` (seconds, groups) says of each, before and behind: when,
/// and what it has used, in microseconds.
const SCRIPT: &str = "
groups=/sys/fs/cgroup
echo +cpu > $groups/cgroup.subtree_control
group() { mkdir $groups/$1; echo \"$2\" > $groups/$1/cpu.max; }
enter() { to=$1; shift; sh -c \"echo 0 > $groups/$to/cgroup.procs; exec \\\"\\$@\\\"\" sh \"$@\" > /dev/null 2>&1 & }
tell() {
	for group in $*; do
		read up rest < /proc/uptime
		while read key value; do
			[ $key != usage_usec ] || echo used $group ${up%.*}${up#*.}0000 $value
		done < $groups/$group/cpu.stat
	done
}
measure() { time=$1; shift; tell $*; sleep $time; tell $*; }
TASKS
for group in $groups/*/; do echo 1 > $group/cgroup.kill; done";

/// What the groups of each name had, in thousandths of a CPU, in each measurement. Panics if usher does not stay.
fn had(kernel: &str, shape: &str, tasks: &str) -> BTreeMap<String, Vec<u64>> {
    let said = said("", kernel, shape, SCRIPT.replace("TASKS", tasks));
    let mut begun = BTreeMap::<&str, [u64; 2]>::new();
    let mut had = BTreeMap::<String, Vec<u64>>::new();
    for line in said.lines().filter_map(|line| line.strip_prefix("used ")) {
        let (name, rest) = line.split_once(' ').expect("a name");
        let (at, used) = rest.split_once(' ').expect("two numbers");
        let now = [at, used].map(|word| word.parse::<u64>().expect("a number"));
        match begun.remove(name) {
            None => drop(begun.insert(name, now)),
            Some(before) => had
                .entry(name.into())
                .or_default()
                .push((now[1] - before[1]) * 1000 / (now[0] - before[0])),
        }
    }
    assert!(!had.is_empty(), "{said}");
    eprintln!("{had:?}");
    had
}

/// Asserts that each has had no more than it was due in each measurement, by a tenth and one per cent of a CPU, as the last slices of a measurement may
/// be paid behind it; and no less than three quarters, as others run, too.
fn assert_due(had: &BTreeMap<String, Vec<u64>>, due: &[(&str, &[u64])]) {
    for &(name, due) in due {
        let near = |(&had, &due): (&u64, &u64)| had <= due + due / 10 + 10 && had >= due * 3 / 4;
        assert!(
            had[name].len() == due.len() && had[name].iter().zip(due).all(near),
            "{name} is due {due:?}: {had:?}"
        );
    }
}

// Goal: no group runs for longer than its quota in a period, alone or within another one, whatever idles; who has no limit has what it wants. Method:
// tasks that never sleep, eight CPUs: as many as five for each, periods of 10 to 100 ms, some bound to one CPU, two groups in one. Catches: a limit that
// nobody reads, tasks that wait in queues and are taken all the same, who is never let go on, quotas that get lost or are had twice.
#[test]
fn groups_keep_within_their_quotas() {
    let tasks = "
group many '100000 100000'; group short '2000 10000'; group bound '20000 50000'; group free max
group outer '60000 100000'; echo +cpu > $groups/outer/cgroup.subtree_control; group outer/x '30000 100000'; group outer/y max
for i in $(seq 40); do enter many sh -c 'while :; do :; done'; done
for i in 1 2 3; do for group in short outer/x outer/y; do enter $group sh -c 'while :; do :; done'; done; done
for i in 1 2; do enter bound taskset -c 1 sh -c 'while :; do :; done'; done
enter free sh -c 'while :; do :; done'
sleep 2
measure 8 many short bound free outer outer/x";
    for kernel in ["6.18", "7.0"] {
        let had = had(kernel, "1n2l4c1t", tasks);
        let due = [
            ("many", &[1000][..]),
            ("short", &[200]),
            ("bound", &[400]),
            ("outer", &[600]),
        ];
        assert_due(&had, &due);
        // Bursts of the others take some of its time, under the kernel's own scheduler as well (889 there).
        assert!(had["free"][0] > 800 && had["outer/x"][0] <= 340, "{had:?}");
    }
}

// Goal: who sleeps all the time is kept within a quota, too, and who is in the kernel all the time; a limit that goes or comes counts from then on. Method: hackbench,
// reads of many milliseconds each, and a task that never sleeps, whose limit goes and comes.
#[test]
fn who_sleeps_or_is_in_the_kernel_is_limited_too() {
    let tasks = "
group sleeps '150000 100000'; group reads '25000 100000'; group changes '30000 100000'
enter sleeps hackbench -g 2 -l 1000000
enter reads dd if=/dev/zero of=/dev/null bs=64M
enter changes sh -c 'while :; do :; done'
sleep 2
measure 4 sleeps reads changes
echo max > $groups/changes/cpu.max; sleep 0.5
measure 2 sleeps changes
echo '50000 100000' > $groups/changes/cpu.max; sleep 1
measure 3 sleeps changes";
    let had = had("6.18", "1n2l4c1t", tasks);
    let due = [
        ("sleeps", &[1500, 1500, 1500][..]),
        ("reads", &[250]),
        ("changes", &[300, 1000, 500]),
    ];
    assert_due(&had, &due);
}

// Goal: nobody who holds what others wait for is throttled, and a crowd that hardly gets to run is no reason for the kernel to eject usher. Method: 200 tasks
// enter a group of a hundredth of a CPU one by one, for which each holds locks of all groups; then more than the ten seconds after which the kernel ejects.
#[test]
fn crowds_may_enter_a_group_with_a_small_quota() {
    let tasks = "
group small '1000 100000'
for i in $(seq 200); do enter small sh -c 'while :; do :; done'; done
sleep 3
for i in 1 2 3 4; do mkdir $groups/new$i; rmdir $groups/new$i; done
measure 16 small";
    let had = had("6.18", "1n1l4c1t", tasks);
    assert!(had["small"][0] <= 30, "{had:?}");
}
