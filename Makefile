# SPDX-License-Identifier: GPL-2.0-only
#
# make demo      set everything up, then compare usher with the kernel's own scheduler in a guest
# make test      set everything up, then run all tests, those in guests included
# make build     the programs, in target/release
# make bench     the benches of the core
# make mutants   break the idle map's protocols one line at a time; every one must be caught
# make capacity  strong and weak CPUs in an arm64 guest; gets what such guests need, as make guests-arm64 does
# make report-check  an HTML report of all published tables, looked at in chromium (which it does not install)
# make lint      formatting and lints
# make guests-arm64  what guests with strong and weak CPUs need: an emulator, compilers, programs (not for x86 alone)
# make peers     build other sched_ext schedulers to compare with (PEERS="scx_bpfland scx_cosmos")
# make setup     only install and fetch what the others need
# make clean     delete what was built (the cache of kernels stays: ~/.cache/usher)

CARGO ?= cargo
export PATH := $(PATH):$(HOME)/.cargo/bin
export BPF_CLANG ?= clang-19
export LIBCLANG_PATH ?= /usr/lib/llvm-19/lib

USHER := target/release/usher
PEERS ?=

.PHONY: build demo test bench mutants capacity report-check lint peers setup clean packages guests guests-arm64

build: packages
	$(CARGO) build --release --workspace

# Compilers, libraries, the emulator; quick when all is there.
packages:
	@scripts/setup

# Guest kernels and programs, into the cache; quick when all is there.
guests: build
	@$(USHER) lab fetch

# The same for arm64, with usher's own programs built for it.
guests-arm64: build
	@scripts/setup arm64
	@$(USHER) lab fetch --arch arm64
	@scripts/guests-arm64

setup: packages guests

demo: guests
	$(USHER) lab compare --shape 2n2l2c2t --kernel 6.18 --schedulers eevdf,usher --runs 5 \
		-- hackbench -g 2 -l 100

# What runs in guests is of the same build as the tests: the core and the BPF object are compiled as for release, and the rest
# checks for overflows.
test: packages
	$(CARGO) test --workspace --no-run
	@target/debug/usher lab fetch
	$(CARGO) test --workspace

bench: packages
	$(CARGO) bench --workspace
	$(CARGO) run --release -p usher-core --example ratios

mutants: packages
	$(CARGO) test --release -p usher-core --test mutants -- --ignored --nocapture

capacity: guests-arm64
	$(CARGO) test --release -p usher-lab --test guests capacity:: -- --ignored --nocapture
	$(CARGO) test --release -p usher-lab --test guests record::comes_out_the_same_of_arm64 -- --ignored --nocapture

report-check: build
	mkdir -p target/report
	$(USHER) reproduce all --quick --format html > target/report/report.html
	scripts/check-report target/report/report.html target/report

lint: packages
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

peers: packages
	@scripts/peers $(PEERS)

clean:
	$(CARGO) clean
