// SPDX-License-Identifier: GPL-2.0-only
//! A guest's tasks of very different weight, by themselves and by their control groups: what each gets, and that the least of them does not wait
//! until the kernel ejects usher.

use std::collections::BTreeMap;

use super::common::said;

/// Runs `TASKS` for some seconds: `begin` (name, nice value, CPUs) one that never sleeps, `crowd` (name, control group, a word for each) several. Then says how
/// many ticks of CPU time each has had, by name.
const SCRIPT: &str = "
pids=
groups=/sys/fs/cgroup
echo +cpu +cpuset > $groups/cgroup.subtree_control
group() { mkdir $groups/$1; echo $2 > $groups/$1/cpu.weight; }
crowd() { for i in $3; do sh -c 'while :; do :; done' & pids=\"$pids $1:$!\"; echo $! > $groups/$2/cgroup.procs; done; }
begin() { taskset -c $3 sh -c 'while :; do :; done' & renice -n $2 -p $!; pids=\"$pids $1:$!\"; }
TASKS
sleep SECONDS
for task in $pids; do
	set -- $(cat /proc/${task#*:}/stat)
	echo had ${task%:*} $((${14} + ${15}))
done
kill $(echo $pids | sed 's/[a-z]*://g')";

/// The shares of CPU time that tasks of each name had under usher, in thousandths. Panics if usher does not stay.
fn shares(kernel: &str, shape: &str, tasks: &str, seconds: u32) -> BTreeMap<String, u64> {
    shares_with("", kernel, shape, tasks, seconds)
}

/// The same with more options for usher, behind a colon.
fn shares_with(
    options: &str,
    kernel: &str,
    shape: &str,
    tasks: &str,
    seconds: u32,
) -> BTreeMap<String, u64> {
    let script = SCRIPT
        .replace("TASKS", tasks)
        .replace("SECONDS", &seconds.to_string());
    let said = said(options, kernel, shape, script);
    let mut had = BTreeMap::<String, u64>::new();
    for (name, ticks) in said
        .lines()
        .filter_map(|line| line.strip_prefix("had ")?.split_once(' '))
    {
        *had.entry(name.into()).or_default() += ticks.parse::<u64>().expect("a number");
    }
    let all: u64 = had.values().sum();
    assert!(all > 0, "{said}");
    had.into_iter()
        .map(|(name, ticks)| (name, ticks * 1000 / all))
        .collect()
}

// Goal: tasks that are bound to one CPU share it by their weight. Method: two of nice 0 and nice 19; in turns by slice each would get
// half. Catches: own queues that are served without a look at whose turn it is.
#[test]
fn who_is_bound_gets_its_share() {
    let tasks = "begin most 0 1\nbegin least 19 1";
    for kernel in ["6.18", "7.0"] {
        let shares = shares(kernel, "1n1l2c1t", tasks, 8);
        let least = shares["least"];
        assert!((1..60).contains(&least), "{kernel}: {shares:?}");
    }
}

// Goal: who weighs least gets to run before the kernel's ten seconds are over. Method: one of nice 19 beside one of nice -20 for
// each of two CPUs, for 24 s. Catches: a clock that goes with the weight of who runs.
#[test]
fn who_weighs_least_runs_before_the_kernel_ejects() {
    let tasks = "begin heavy -20 0,1\nbegin heavier -20 0,1\nbegin least 19 0,1";
    let shares = shares("6.18", "1n1l2c1t", tasks, 24);
    assert!(shares["least"] < 30, "{shares:?}");
}

/// On two CPUs: one task and three in groups of a group, and two in a group of twice the weight of that.
const GROUPS: &str = "
group under 100; echo +cpu > $groups/under/cgroup.subtree_control
group under/x 100; group under/y 100; group beside 200
crowd many under/x '1 2 3'; crowd one under/y 1; crowd two beside '1 2'";

// Goal: control groups get CPU time by their weights on every level, however many tasks each has; no more than their limits, while others ask for more;
// and by tasks if that is asked for. Method: six tasks that never sleep, in three groups. Catches: a weight or a limit that nobody reads, groups
// that are not found, times that are not summed.
#[test]
fn groups_get_their_shares() {
    let limited = format!("{GROUPS}; echo '50000 50000' > $groups/beside/cpu.max");
    for (kernel, options, groups, seconds, due) in [
        ("6.18", "", GROUPS, 10, [167, 167, 667]),
        ("7.0", "", &*limited, 10, [250, 250, 500]),
        ("6.18", ":--no-groups", GROUPS, 6, [500, 167, 333]),
    ] {
        let shares = shares_with(options, kernel, "1n1l2c1t", groups, seconds);
        for (name, due) in ["many", "one", "two"].into_iter().zip(due) {
            let is = shares[name];
            assert!(is.abs_diff(due) < 50, "{kernel}{options}: {shares:?}");
        }
    }
}

// Goal: groups that may run on the same few CPUs divide those by weight, though the machine has CPUs for all of them. Method: four tasks that never sleep and
// one, on two CPUs of eight; by tasks the shares were four fifths and one. Catches: cpusets that nobody reads.
#[test]
fn groups_of_a_cpuset_get_their_shares() {
    let groups = "
group many 100; echo 0-1 > $groups/many/cpuset.cpus
group one 100; echo 0-1 > $groups/one/cpuset.cpus
crowd many many '1 2 3 4'; crowd one one 1";
    let shares = shares("6.18", "1n2l4c1t", groups, 10);
    assert!(shares["one"].abs_diff(500) < 60, "{shares:?}");
}
