#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The guest half of docs/FIDELITY.md: each load under each scheduler in a guest, some 25 s each. Run from the
# root of the source tree; needs what `usher lab` needs. Then: cargo run --release -p usher-sim --example fidelity
set -e
count=$PWD/data/fidelity/count.sh
for scheduler in usher eevdf; do
	while read -r name arguments; do
		# shellcheck disable=SC2086 # several words
		target/release/usher lab run --shape 2n2l2c2t --icount --seed 1 --scheduler $scheduler --format json \
			--copy "$count" -- sh "$count" hackbench $arguments </dev/null |
			jq '{schema, kernel, shape, scheduler, icount_seed, command, exit, stdout, stats: (.stats | {reasons, migrations})}' \
				>"data/fidelity/$scheduler-$name.json"
		echo "$scheduler $name"
	done <<-LOADS
		socket-1 -g 1 -l 100
		socket-2 -g 2 -l 100
		socket-4 -g 4 -l 100
		pipe-2 -g 2 -l 100 -p
	LOADS
done
