#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs a command in a guest and counts, by the kernel's own trace events, what the scheduler did with its tasks:
# wakeups, starts on a CPU that was idle, migrations from CPU to CPU. For docs/FIDELITY.md.
# usage: count.sh COMMAND [ARGUMENT...]
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
cd /sys/kernel/tracing || exit 3
name=$1
only() { echo "hist:keys=$2 if $3" > "events/sched/$1/trigger" || exit 3; }
only sched_wakeup common_type "comm==\"$name\""
only sched_wakeup_new common_type "comm==\"$name\""
only sched_switch common_type "prev_pid==0&&next_comm==\"$name\""
only sched_migrate_task orig_cpu,dest_cpu "comm==\"$name\""
"$@"
code=$?
for event in sched_wakeup sched_wakeup_new sched_switch sched_migrate_task; do
	echo "event $event"
	grep hitcount "events/sched/$event/hist"
done
exit $code
