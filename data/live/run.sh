#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# What docs/FIDELITY.md compares at real speed: programs under the scheduler of the machine at hand, which should be idle otherwise;
# four minutes. Needs hackbench (rt-tests), tbench (dbench) and usher on the PATH, and taskset; TBENCH_CLIENT names tbench's file of operations, if
# it is not where Debian has it. Prints a line per run: the program and its arguments,
# the CPUs that it might use, what came out, and context switches of the whole machine, or of
# requests p50, p99 and how busy the CPUs were. In a directory beside this script:
#   usher bench costs > costs.toml
#   usher topo --format machine --costs ./costs.toml > machine.toml
#   sh ../run.sh > programs.txt
# Then: cargo run --release -p usher-sim --example live
set -e
client=${TBENCH_CLIENT:-/usr/share/dbench/client.txt}
[ -r "$client" ] || { echo "run.sh: $client cannot be read; TBENCH_CLIENT says where tbench's client.txt is" >&2; exit 3; }
switches() { awk '/^ctxt/ { print $2 }' /proc/stat; }
last=$(($(nproc --all) - 1))
may=$(taskset -pc $$ | sed 's/.*: //')
[ "$may" = "0-$last" ] || [ "$may" = "$last" ] || {
	echo "run.sh: this shell may use CPUs $may, and needs 0-$last: all, from 0 on" >&2
	exit 3
}
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null' EXIT
all=0-$last
hackbench_on() {
	cpus=$1
	shift
	before=$(switches)
	seconds=$(taskset -c "$cpus" hackbench "$@" | awk '/^Time/ { print $2 }')
	[ -n "$seconds" ] || { echo "run.sh: hackbench $* says no time" >&2; exit 1; }
	echo "hackbench $* cpus=$cpus seconds=$seconds switches=$(($(switches) - before))"
}
tbench_on() {
	server_cpus=$1 client_cpus=$2 cpus=$3 clients=$4
	taskset -c "$server_cpus" tbench_srv >/dev/null 2>&1 &
	server=$!
	sleep 1
	before=$(switches)
	rate=$(taskset -c "$client_cpus" tbench -c "$client" -t 5 "$clients" localhost | awk '/^Throughput/ { print $2 }')
	[ -n "$rate" ] || { echo "run.sh: tbench $clients says no throughput" >&2; exit 1; }
	echo "tbench $clients cpus=$cpus mb_per_s=$rate switches=$(($(switches) - before))"
	kill "$server"
	wait "$server" 2>/dev/null || true
	server=
}
requests_on() {
	load="--load $1 --seconds 3"
	# shellcheck disable=SC2086 # several words
	taskset -c "$all" usher bench requests $load --seed "$2" | awk -v said="requests $load cpus=$all" '
		/^CPUs busy/ { busy = $3 }
		/^request latency p50/ { p50 = $4 }
		/^request latency p99/ { print said " p50_ms=" p50 " p99_ms=" $4 " busy_percent=" busy; found = 1 }
		END { exit !found }'
}
echo "# $(uname -sr), $(nproc) CPUs."
for _ in 1 2 3 4 5; do
	for groups in 1 2 4 8 16; do
		for form in "" -T -p "-p -T"; do
			# shellcheck disable=SC2086 # several words
			hackbench_on "$all" $form -g $groups -l $((4000 / groups))
		done
	done
done
for _ in 1 2 3; do
	for few in 0 0-1 0-3 0-7; do
		[ "${few#*-}" -le "$last" ] || continue
		for form in "" -p; do
			# shellcheck disable=SC2086
			hackbench_on $few $form -g 1 -l 1000
		done
	done
done
for clients in 1 2 4 8 16 32 64; do
	tbench_on "$all" "$all" "$all" $clients
done
for _ in 1 2; do
	tbench_on 0 0 0 1
	[ "$last" = 0 ] || tbench_on 0 1 0,1 1
done
for seed in 1 2 3; do
	for load in 10 30 50 70 80; do
		requests_on $load $seed
	done
done
