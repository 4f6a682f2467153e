/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The loop of whole decisions. Each that is measured stands in a file of its own (bench.c, bench_hinted.c,
 * bench_equal.c), where the
 * compiler makes it one with the core, as in a host: of several in one file it makes the core a function that all call.
 */
#include "../../../core/src/core.c"

#define BENCH_INLINE static inline __attribute__((always_inline))

struct usher_bench_places {
	const u32 *from; /* cids */
	u64 mask;
};

/* The owner of a claimed CPU ran something and has nothing more to do. */
BENCH_INLINE u64 bench_release(struct usher *u, u32 cid)
{
	u->cpus[cid].idle = 0;
	return usher_idle_enter(u, cid);
}

/* Whole decisions, each followed by the release of what it claimed; the sum is that of their reasons. */
BENCH_INLINE u64 bench_place(struct usher *u, const struct usher_bench_places *p, u32 waker, u32 wake,
			     u32 hints, u64 rounds)
{
	u64 sum = 0, i;

	for (i = 0; i < rounds; i++) {
		struct usher_request r = {
			.wake = wake,
			.prev = p->from[i & p->mask],
			.waker = waker,
			.nr_allowed = u->nr_cids,
			.hints = hints,
		};
		struct usher_decision d;

#ifdef BENCH_EQUAL
		if (u->asymmetric)
			__builtin_unreachable();
#endif
		d = usher_place(u, &r);
		if (d.claimed)
			bench_release(u, d.cid);
		sum += d.reason;
	}
	return sum;
}
