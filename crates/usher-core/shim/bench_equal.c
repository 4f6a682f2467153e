/* SPDX-License-Identifier: GPL-2.0-only */
/* Whole decisions on a machine of equal CPUs, which the compiler knows: the core as if there were no capacities. */
#define BENCH_EQUAL
#include "bench_place.h"

u64 usher_bench_place_equal(struct usher *u, const struct usher_bench_places *p, u32 waker, u32 wake,
			    u32 hints, u64 rounds)
{
	return bench_place(u, p, waker, wake, hints, rounds);
}
