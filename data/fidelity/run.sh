#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The guest half of docs/FIDELITY.md: each load under each scheduler in a guest, some 25 s each. Run from the
# root of the source tree; needs what `usher lab` needs. Then: cargo run --release -p usher-sim --example fidelity
set -e
count=$PWD/data/fidelity/count.sh
run=$(mktemp)
trap 'rm -f "$run"' EXIT
for scheduler in usher eevdf; do
	while read -r name shape arguments; do
		# shellcheck disable=SC2086 # several words
		target/release/usher lab run --shape "$shape" --icount --seed 1 --scheduler $scheduler --format json \
			--copy "$count" -- sh "$count" hackbench $arguments </dev/null >"$run"
		jq '{schema, kernel, shape, scheduler, icount_seed, command: (.command | map(sub(".*/data/"; "data/"))), exit, stdout, stats: (.stats | {reasons, migrations})}' \
			"$run" >"data/fidelity/$scheduler-$name.json"
		echo "$scheduler $name"
	done <<-LOADS
		socket-1 2n2l2c2t -g 1 -l 100
		socket-2 2n2l2c2t -g 2 -l 100
		socket-4 2n2l2c2t -g 4 -l 100
		pipe-2 2n2l2c2t -g 2 -l 100 -p
		wide-2 4n4l2c1t -g 2 -l 100
		wide-pipe-1 4n4l2c1t -g 1 -l 100 -p
	LOADS
done
