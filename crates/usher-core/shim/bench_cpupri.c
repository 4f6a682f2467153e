/* SPDX-License-Identifier: GPL-2.0-only */
/* The loops of the benches of the CPU priority map, and of the proposal's form of it beside it; see bench.c. */
#include "bench_place.h"
#include "../../../core/src/cpupri_masks.c"

/* CPUs go from one of two levels to the other. */
u64 usher_bench_level_set(struct usher *u, const struct usher_bench_places *p, u32 low, u32 high, u64 rounds)
{
	u64 sum = 0, i;

	for (i = 0; i < rounds; i++) {
		u32 cid = p->from[i & p->mask];
		u32 level = u->cpus[cid].level == low + 1 ? high : low;

		usher_cpupri_set(u, cid, level);
		sum += level;
	}
	return sum;
}

/* Searches from one CPU after the other; the sum of what they return. */
u64 usher_bench_level_find(struct usher *u, const struct usher_bench_places *p, u32 below, u32 flags, u64 rounds)
{
	u64 sum = 0, i;
	u32 level;

	for (i = 0; i < rounds; i++) {
		struct usher_query q = { .from = p->from[i & p->mask], .flags = flags };

		sum += (u64)usher_cpupri_find(u, &q, below, &level);
	}
	return sum;
}

/* Both: a CPU changes its level, then somebody looks for a CPU to preempt from there. */
u64 usher_bench_level_both(struct usher *u, const struct usher_bench_places *p, u32 low, u32 high, u64 rounds)
{
	u64 sum = 0, i;
	u32 found;

	for (i = 0; i < rounds; i++) {
		u32 cid = p->from[i & p->mask];
		u32 level = u->cpus[cid].level == low + 1 ? high : low;
		struct usher_query q = { .from = cid };

		usher_cpupri_set(u, cid, level);
		sum += (u64)usher_cpupri_find(u, &q, high, &found);
	}
	return sum;
}

u64 usher_bench_proposal_set(struct usher_masks *m, const struct usher_bench_places *p, u32 low, u32 high, u64 rounds)
{
	u64 sum = 0, i;

	for (i = 0; i < rounds; i++) {
		u32 cid = p->from[i & p->mask];
		u32 level = m->level[cid] == low + 1 ? high : low;

		usher_masks_set(m, cid, level);
		sum += level;
	}
	return sum;
}

u64 usher_bench_proposal_find(struct usher_masks *m, const struct usher_bench_places *p,
			      const struct usher_set *allowed, u32 below, u64 rounds)
{
	struct usher_set out = { 0 };
	u64 sum = 0, i;

	for (i = 0; i < rounds; i++)
		sum += (u64)usher_masks_find(m, m->node[p->from[i & p->mask]], allowed, below, &out);
	return sum + out.word[0];
}

/* As usher_bench_level_both(), for threads that share the masks: each has CPUs of its own. */
u64 usher_bench_proposal_both(struct usher_masks *m, const struct usher_bench_places *p,
			      const struct usher_set *allowed, u32 low, u32 high, u64 rounds)
{
	struct usher_set out = { 0 };
	u64 sum = 0, i;

	for (i = 0; i < rounds; i++) {
		u32 cid = p->from[i & p->mask];
		u32 level = m->level[cid] == low + 1 ? high : low;

		usher_masks_set(m, cid, level);
		sum += (u64)usher_masks_find(m, m->node[cid], allowed, high, &out);
	}
	return sum + out.word[0];
}
