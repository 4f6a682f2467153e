/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Running tasks that share a core while another core idles.
 *
 * Two busy threads of a core do less each than one alone, and who never sleeps is never placed again: two tasks that came to
 * share a core when all were taken would share it for as long as they run. So at ticks such a task looks for a core of its own: of its
 * LLC, of its node, and of another node where many idle. Its memory stays behind there, and where few cores idle somebody is about
 * to need them anyway. What it shares with others stays behind as well: who takes turns at a lock with many runs for some slices
 * before it sleeps, and from another node slows down all of them. So its turn must have lasted longer before it goes there.
 *
 * A move costs the caches of a core, and most of those who share one do so for a moment. So both turns must have lasted a slice.
 * It is enough that one of two goes: the task of the first busy thread waits another slice, and goes if the others are there
 * still, because they may not run elsewhere.
 *
 * Tolerated: a turn that is read while it ends counts as the one before, and two tasks that look at once may both go.
 */
#ifndef USHER_CROWD_C
#define USHER_CROWD_C

#include "../include/usher/usher.h"
#include "idle.c"
#include "place.c"
#include "queue.c"

/* Tasks move to another node if at least this part of its cores idles. */
#define USHER_QUIET_PART 4

/* ... and if their turn has lasted so many slices. */
#define USHER_FAR_SLICES 8

/* usher_crowded() where cores have several threads. */
USHER_UNIT_COLD u32 usher_crowded_core(struct usher USHER_MEM *u USHER_UNIT_MEM, u32 cid, u64 now_ns)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];
	struct usher_shard USHER_MEM *shard = &u->shards[c->shard];
	u64 me = 1ULL << (c->bit & 63), others = c->core & ~usher_shard_idle(u, shard) & ~me;

	if (!others || !usher_turn_lasted(u, cid, now_ns, others & (me - 1) ? 1 : 2))
		return 0;
	for (; others && env_again(u); others &= others - 1)
		if (usher_turn_lasted(u, shard->base + env_lowest(others), now_ns, 1))
			return 1;
	return 0;
}

/* At a tick of cid: whether its task shares the core, and has for so long that it is to look for another by usher_uncrowd(). */
USHER_INLINE bool usher_crowded(struct usher USHER_MEM *u, u32 cid, u64 now_ns)
{
	return u->smt > 1 && usher_crowded_core(u, cid, now_ns);
}

/* Whether many cores of a node idle. */
USHER_COLD bool usher_node_quiet(struct usher USHER_MEM *u, u32 index)
{
	struct usher_node USHER_MEM *node = &u->nodes[index];
	u32 idle = 0, cores = 0, i;

	for (i = 0; i < node->nr_shards && env_again(u); i = env_next(u, i)) {
		struct usher_shard USHER_MEM *shard = &u->shards[node->first_shard + i];

		idle += env_ones(usher_shard_cores(shard, usher_shard_idle(u, shard)));
		cores += env_ones(shard->first_thread);
	}
	return idle && idle * USHER_QUIET_PART >= cores;
}

/*
 * A CPU that is idle with its core, near from, and now claimed, or USHER_NONE_IDLE. Where CPUs differ that is one of the same tier, but
 * with upward rather a greater one of the LLC; in another node only if it goes far and that one is quiet; who holds stays in the LLC.
 * Of the request allowed, hints and waker, the CPU that asks, matter.
 */
USHER_UNIT_COLD s32 usher_search_quiet(struct usher USHER_MEM *u USHER_UNIT_MEM, const struct usher_request *r USHER_UNIT_PTR,
				       u32 from, u32 upward, u32 far)
{
	struct usher_cid USHER_MEM *c = &u->cids[from];
	u32 USHER_MEM *order = u->nodes[c->node].order;
	struct usher_search s = {
		.q = { .allowed = r->allowed, .flags = USHER_IDLE_CORE, .from = from, .self = r->waker },
		.core = 1,
	};
	s32 cid;
	u32 i;

	if (!usher_somebody_idle(u))
		return USHER_NONE_IDLE;
	if (env_asymmetric(u)) {
		s.q.tiers = upward ? usher_tiers_greater(u, c->tier) : 0;
		cid = s.q.tiers ? usher_search_llc(u, &s) : USHER_NONE_IDLE;
		if (cid >= 0)
			return cid;
		s.q.tiers = 1u << (c->tier & 31);
	}
	cid = usher_search_llc(u, &s);
	if (!(r->hints & USHER_WAKE_HOLD))
		for (i = 0; cid < 0 && i < u->nr_nodes && env_again(u); i = env_next(u, i))
			if (i == 0 || (far && usher_node_quiet(u, order[i])))
				cid = usher_search_node(u, &s, order[i]);
	return cid;
}

/* The task that runs on r->prev shares its core. Returns the CPU to which it is to move at once, as above; or it stays. */
USHER_FN s32 usher_uncrowd(struct usher USHER_MEM *u, const struct usher_request *r, u64 now_ns)
{
	s32 cid = usher_search_quiet(u, r, r->prev, 0, usher_turn_lasted(u, r->prev, now_ns, USHER_FAR_SLICES));

	if (cid >= 0)
		u->cpus[r->waker].reasons[USHER_CROWDED]++;
	return cid;
}

#endif
