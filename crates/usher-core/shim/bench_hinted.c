/* SPDX-License-Identifier: GPL-2.0-only */
/* Whole decisions of tasks that may have hints, which is asked of each: the core as it is. */
#include "bench_place.h"

u64 usher_bench_place_hinted(struct usher *u, const struct usher_bench_places *p, u32 waker, u32 wake,
			     u32 hints, u64 rounds)
{
	return bench_place(u, p, waker, wake, hints, rounds);
}
