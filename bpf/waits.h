/* SPDX-License-Identifier: GPL-2.0-only */
/* What waits.bpf.c and its loader, crates/scx_usher/src/bin/usher-waits, share. */
#ifndef USHER_WAITS_H
#define USHER_WAITS_H

#define WAITS_MAX_CPUS 4096
#define WAITS_COMM 16
#define WAITS_NOT_YET (~0u)

/*
 * Steps of the histogram: below WAITS_LEAST_NS; then for each of so many decades from there on one for
 * each tenth of its beginning, 1.0 to 1.1 us, 1.1 to 1.2, ... 9.9 to 10, 10 to 11; and all that is longer.
 */
#define WAITS_LEAST_NS 1000
#define WAITS_DECADES 9
#define WAITS_PARTS 90
#define WAITS_STEPS (2 + WAITS_DECADES * WAITS_PARTS)

enum waits_phases {
	WAITS_NOT_BEGUN,
	WAITS_OBSERVING,
	WAITS_ENDED,
};

enum waits_kind {
	WAITS_TO_IDLE, /* woken or born, and sent to a CPU that idles and that nobody is on the way to */
	WAITS_BEHIND,  /* ... where others run or are on the way */
	WAITS_STOPPED, /* stopped while it could have gone on, and another task runs there */
	WAITS_HELD,    /* the same, and the CPU idles: above all by cpu.max */
	WAITS_KINDS,
	WAITS_UNSENT,  /* woken; nobody has chosen a CPU yet */
	WAITS_NONE,
};

enum waits_near {
	WAITS_IN_LLC,
	WAITS_IN_NODE,
	WAITS_ANYWHERE,
	WAITS_NEAR,
};

struct waits_task {
	u32 pid; /* 0: none, or the idle task */
	char comm[WAITS_COMM];
};

struct waits_sum {
	u64 total_ns;
	u64 max_ns;
	u64 beside_ns[WAITS_NEAR]; /* of slow waits, those in which a CPU so near idled all the while */
	u64 steps[WAITS_STEPS];
};

struct waits_sums {
	struct waits_sum kinds[WAITS_KINDS];
	u64 missed;	       /* waits that could not be noted */
	u64 lost;	       /* switches that the kernel did not tell */
	u32 near[WAITS_NEAR];  /* scratch: with counts in registers the verifier would go through every round of the loop */
	u32 unused;
};

/* A slow wait, in the ring. */
struct waits_slow {
	u64 began_ns; /* CLOCK_MONOTONIC */
	u64 wait_ns;
	u32 kind;
	u32 sent_to;
	u32 got; /* or WAITS_NOT_YET */
	u32 near[WAITS_NEAR];
	struct waits_task task;
	struct waits_task waker;
	struct waits_task behind;
};

#endif
