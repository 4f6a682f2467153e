/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where CPUs differ in capacity: idle CPUs that are enough for a task, and tasks that their CPU is too weak for.
 *
 * A task that is too heavy for the CPU it runs on, by its demand (capacity.c), is a misfit. It moves as soon as a
 * greater CPU is idle, with its whole core: a thread beside a busy sibling is no greater. Both sides
 * look:
 *
 *   usher_misfit()        the weak CPU, at every tick: claims a greater one, or says in struct usher.misfits that it
 *                         waits for one
 *   usher_misfit_call()   a CPU that has gone idle: takes a weak one's bit and has it look again at once
 *
 * Tolerated: a CPU may go idle between the weak one's look and its bit; the next tick finds it. A bit may stay
 * when the task has gone: the CPU that is called then looks in vain, which clears it. A task that may run on no
 * greater CPU sets none, so that nobody is called in vain for as long as it runs.
 *
 * A task that its CPU is enough for is never moved while it runs, however strong a CPU idles: it would gain nothing, and
 * be moved again and again. What moves a task is a demand beyond 80 % of its CPU, and on the greater one the
 * same task uses less of it, so there is no way back but by a wakeup that finds its CPU taken.
 */
#ifndef USHER_FIT_C
#define USHER_FIT_C

#include "../include/usher/usher.h"
#include "idle.c"
#include "capacity.c"

/* An idle CPU, claimed, tier by tier: of each the LLC of s->q.from, then its node. If s->core, with its core. */
USHER_COLD s32 usher_search_tiers(struct usher USHER_MEM *u, struct usher_search *s, u32 tiers, u32 order)
{
	u32 node = u->cids[s->q.from].node, i;

	for (i = 0; i < USHER_MAX_TIERS && env_again(u); i = env_next(u, i)) {
		u32 t = order == USHER_WEAKEST_FIRST ? USHER_MAX_TIERS - 1 - i : i;
		s32 cid;

		if (!(tiers >> (t & 31) & 1))
			continue;
		s->q.tiers = 1u << (t & 31);
		cid = usher_search_llc(u, s);
		if (cid < 0)
			cid = usher_search_node(u, s, node);
		if (cid >= 0)
			return cid;
	}
	return USHER_NONE_IDLE;
}

/*
 * An idle CPU, claimed: of the tiers fit, in the machine's order, or else the strongest of s->rest. Cores before
 * threads, of which none will do with USHER_IDLE_CORE, and all that before other nodes.
 */
USHER_COLD s32 usher_search_fit(struct usher USHER_MEM *u, struct usher_search *s, u32 fit)
{
	u32 node = u->cids[s->q.from].node;
	s32 cid;

	s->core = u->smt > 1;
	do {
		cid = usher_search_tiers(u, s, fit, u->tier_order);
		if (cid < 0)
			cid = usher_search_tiers(u, s, s->rest, USHER_STRONGEST_FIRST);
		if (cid >= 0)
			return cid;
		if (!s->core || s->q.flags & USHER_IDLE_CORE)
			break;
		s->core = 0;
	} while (env_again(u));
	s->q.tiers = fit;
	if (fit && u->nr_nodes > 1)
		cid = usher_search_remote(u, s, node);
	s->q.tiers = s->rest;
	if (cid < 0 && s->rest && u->nr_nodes > 1)
		cid = usher_search_remote(u, s, node);
	return cid;
}

/* A search for a CPU that nobody comes back to. */
struct usher_vacancy {
	u32 at;	      /* now, in usher_periods() */
	s32 best;     /* of those that are not vacant: the first that is calm, else who idles for longest; or USHER_NONE_IDLE, */
	u32 idle_for; /* ... and for how long: at most USHER_VACANT */
};

/* A vacant CPU of the shard, claimed, or USHER_NONE_IDLE. */
USHER_FN s32 usher_vacant_in_shard(struct usher USHER_MEM *u, struct usher_search *s,
				   struct usher_shard USHER_MEM *shard, struct usher_vacancy *v)
{
	u64 idle = usher_shard_idle(u, shard);

	if (s->core)
		idle = usher_shard_threads(shard, usher_shard_cores(shard, idle));
	for (idle &= usher_query_bits(&s->q, shard); idle && env_again(u); idle &= idle - 1) {
		u32 cid = shard->base + env_lowest(idle), idle_for = usher_idle_for(u, cid, v->at);

		if (idle_for < USHER_VACANT) {
			if (v->best < 0 || (v->idle_for < USHER_CALM && idle_for > v->idle_for)) {
				v->best = cid;
				v->idle_for = idle_for;
			}
			continue;
		}
		if (usher_claim_bit(u, shard, idle & (~idle + 1)))
			return cid;
		env_count(u, s->q.self, USHER_EV_CLAIM_LOST);
	}
	return USHER_NONE_IDLE;
}

/*
 * A CPU of the node for a light task, claimed: a vacant one, of the weakest of these tiers that has one, and with its core if
 * s->core; if that does not matter and none is vacant, the first that is calm, or else the one that has been idle for longest.
 * Looks into as many shards of a tier as a search for cores.
 */
USHER_COLD s32 usher_search_vacant(struct usher USHER_MEM *u, struct usher_search *s, u32 tiers, u32 at)
{
	struct usher_cid USHER_MEM *from = &u->cids[s->q.from];
	struct usher_node USHER_MEM *node = &u->nodes[from->node];
	struct usher_vacancy v = { .at = at, .best = USHER_NONE_IDLE };
	u32 t, i;

	for (t = 0; t < USHER_MAX_TIERS && env_again(u); t = env_next(u, t)) {
		u32 tier = USHER_MAX_TIERS - 1 - t, shard = from->shard;

		if (!(tiers >> (tier & 31) & 1))
			continue;
		s->q.tiers = 1u << (tier & 31);
		for (i = 1; i <= node->nr_shards && env_again(u); i = env_next(u, i)) {
			s32 cid = usher_vacant_in_shard(u, s, &u->shards[shard], &v);

			if (cid >= 0)
				return cid;
			if (i >= u->core_probes)
				break;
			if (++shard == node->first_shard + node->nr_shards)
				shard = node->first_shard;
		}
	}
	return !s->core && v.best >= 0 && usher_test_and_clear(u, v.best) ? v.best : USHER_NONE_IDLE;
}

/* Whether some CPU of these tiers is allowed. */
USHER_COLD bool usher_tiers_allowed(struct usher USHER_MEM *u, const struct usher_set USHER_MEM *allowed, u32 tiers)
{
	struct usher_query q = { .allowed = allowed, .tiers = tiers };
	u32 i;

	for (i = 0; i < u->nr_shards && env_again(u); i = env_next(u, i))
		if (usher_query_bits(&q, &u->shards[i]))
			return true;
	return false;
}

/* The task of cid does not wait for a greater CPU, or does. Writes only what is news. */
USHER_FN void usher_misfit_note(struct usher USHER_MEM *u, u32 cid, bool waits, u32 self)
{
	u64 USHER_MEM *word = &u->misfits[cid / 64];
	u64 bit = 1ULL << (cid & 63);

	if (!(env_read(u, word) & bit) == !waits)
		return;
	if (!waits) {
		env_fetch_and(u, word, ~bit);
		return;
	}
	env_fetch_or(u, word, bit);
	env_count(u, self, USHER_EV_MISFIT_WAITS);
}

/* usher_misfit() on a machine whose CPUs differ. */
USHER_UNIT_COLD s32 usher_misfit_look(struct usher USHER_MEM *u USHER_UNIT_MEM,
				      const struct usher_request *r USHER_UNIT_PTR)
{
	struct usher_search s = {
		.q = { .allowed = r->allowed, .flags = USHER_IDLE_CORE, .from = r->prev, .self = r->waker },
	};
	struct usher_cid USHER_MEM *c = &u->cids[r->prev];
	u32 fit = usher_tiers_fit(u, &r->demand), greater;
	bool waits = false;
	s32 cid = USHER_NONE_IDLE;

	if (!(fit >> (c->tier & 31) & 1)) {
		greater = usher_tiers_greater(u, c->tier);
		s.rest = greater & ~fit;
		cid = usher_search_fit(u, &s, greater & fit);
		waits = cid < 0 && (!r->allowed || usher_tiers_allowed(u, r->allowed, greater));
	}
	usher_misfit_note(u, r->prev, waits, r->waker);
	if (cid >= 0)
		u->cpus[r->waker].reasons[USHER_MISFIT]++;
	return cid;
}

/*
 * A task runs on r->prev, seen at a tick of that CPU, or because usher_misfit_call() named it. Returns the CPU to
 * which it is to move at once, idle and now claimed for it, or USHER_NONE_IDLE: it stays. Of the request
 * allowed, nr_allowed, demand and waker, the CPU that asks, matter besides.
 */
USHER_INLINE s32 usher_misfit(struct usher USHER_MEM *u, const struct usher_request *r)
{
	return env_asymmetric(u) ? usher_misfit_look(u, r) : USHER_NONE_IDLE;
}

/* usher_misfit_call() on a machine whose CPUs differ. */
USHER_UNIT_COLD s32 usher_misfit_find(struct usher USHER_MEM *u USHER_UNIT_MEM, u32 cid)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];
	u32 words = (u->nr_cids + 63) / 64, w;

	if ((usher_shard_idle(u, &u->shards[c->shard]) & c->core) != c->core)
		return USHER_NONE_IDLE;
	for (w = 0; w < words && env_again(u); w = env_next(u, w)) {
		u64 bits = env_read(u, &u->misfits[w]);

		for (; bits && env_again(u); bits &= bits - 1) {
			u32 weak = w * 64 + env_lowest(bits);
			u64 bit = bits & (~bits + 1);

			if (weak >= u->nr_cids ||
			    !(usher_tiers_greater(u, u->cids[weak].tier) >> (c->tier & 31) & 1))
				continue;
			/* One of those who call it is enough. */
			if (!(env_fetch_and(u, &u->misfits[w], ~bit) & bit))
				continue;
			env_count(u, cid, USHER_EV_MISFIT_CALLED);
			return weak;
		}
	}
	return USHER_NONE_IDLE;
}

/*
 * cid has gone idle, and usher_idle_enter() or usher_idle_again() had no work for it. Returns a weaker CPU whose task
 * waits for such a one, and which is to call usher_misfit() at once; or USHER_NONE_IDLE.
 */
USHER_INLINE s32 usher_misfit_call(struct usher USHER_MEM *u, u32 cid)
{
	return env_asymmetric(u) ? usher_misfit_find(u, cid) : USHER_NONE_IDLE;
}

#endif
