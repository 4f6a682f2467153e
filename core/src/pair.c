/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pairs: two tasks that wake each other in turn.
 *
 * Who wakes its partner is about to sleep. If it gives way at once instead, while it is still awake, the answer finds it awake: it
 * goes on when the partner sleeps, and has neither slept nor been woken. Until then it waits behind the partner on the CPU, as
 * if its turn had been interrupted. Nobody is searched for, nor woken elsewhere. Only where the partner's own CPU idles, shares
 * its core with nobody else, and is not the weaker one, it is woken there all the same: then one ends its turn while the other begins.
 *
 * That pays for short turns that end with the question. Who has more to say would be interrupted by each answer, as one that fills
 * a pipe, or asks many. So the core watches how turns end: both have to have woken nobody but each other for a while, once in
 * each turn and towards its end. Who gives way does not sleep, so now and then it does not give way until it does, and is
 * watched again. Then the two may go apart, if a whole core idles.
 *
 * The host keeps a struct usher_pair per task, and says who wakes whom synchronously, before it asks for a place, when it has got one and
 * been queued, and who sleeps.
 */
#ifndef USHER_PAIR_C
#define USHER_PAIR_C

#include "../include/usher/usher.h"
#include "queue.c"
#include "crowd.c"

#define USHER_PAIR_SURE 4    /* turns in a row that ended so, from which on a task gives way */
#define USHER_PAIR_WATCH 16  /* of so many times it gives way all but once */
#define USHER_PAIR_SHORT 8   /* a turn that counts lasts at most this part of a slice, */
#define USHER_PAIR_AFTER 2   /* ... and after the question at most so many times as long as before it */
#define USHER_PAIR_AHEAD 1   /* slices by which either may be ahead of who waits, and they go on */

/*
 * The task that runs on self wakes another one, by the host's name for it, and says that it is about to sleep. True: it always
 * wakes that one, and then sleeps.
 */
USHER_FN bool usher_pair_asks(struct usher USHER_MEM *u, u32 self, struct usher_pair *asks, u64 task, u64 now_ns)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[self];

	me->asked++;
	me->asked_ns = now_ns;
	me->woke_ns = now_ns;
	if (asks->partner != task) {
		asks->partner = task;
		asks->sure = 0;
	}
	return asks->sure >= USHER_PAIR_SURE;
}

/*
 * Whether the task that runs on self leaves its partner where that ran last: on prev, which idles, and so does the rest of its core,
 * but for self. Not on a weaker CPU than self, where strong ones come first: by turns both run on the strong one, unless others
 * share its core.
 */
USHER_FN bool usher_pair_apart(struct usher USHER_MEM *u, u32 self, u32 prev)
{
	struct usher_cid USHER_MEM *c = &u->cids[prev], *me = &u->cids[self];
	u64 idle = usher_shard_idle(u, &u->shards[c->shard]), bit = 1ULL << (me->bit & 63);

	if (me->shard == c->shard)
		idle |= bit;
	if (prev == self || (idle & c->core) != c->core)
		return false;
	if (!env_asymmetric(u) || u->tier_order != USHER_STRONGEST_FIRST ||
	    !(usher_tiers_greater(u, c->tier) >> (me->tier & 31) & 1))
		return true;
	return ((usher_shard_idle(u, &u->shards[me->shard]) | bit) & me->core) != me->core;
}

/* Whether the task with this name is the one that p always wakes. */
USHER_FN bool usher_pair_answers(const struct usher_pair *p, u64 task)
{
	return p->partner == task && p->sure >= USHER_PAIR_SURE;
}

/*
 * Whether the task that runs on self, which asks, gives way to its partner: enum usher_gives. That one would join the queue of their LLC
 * at wants->vtime. If somebody waits there, at first (0: nobody), neither may be ahead of that one by more than a slice: they would
 * sleep by turns, and have no lead as who never does. With a lead a few pairs keep the CPUs for several slices, and the others wait.
 */
USHER_FN u32 usher_pair_gives_way(struct usher USHER_MEM *u, u32 self, struct usher_pair *asks, const struct usher_turn *wants,
				   u64 first)
{
	struct usher_turn USHER_MEM *turn = &u->cpus[self].turn;
	u64 weight = env_read(u, &turn->weight), ran_ns = wants->at_ns - env_read(u, &turn->at_ns);

	if (!weight || wants->weight < weight)
		return USHER_GIVES_NOT;
	if (first) {
		if (usher_turn_ahead(u, self, weight, ran_ns, first) > usher_vtime_slices(u, USHER_PAIR_AHEAD, weight))
			return USHER_GIVES_NOT;
		if ((s64)(wants->vtime - first) > usher_vtime_slices(u, USHER_PAIR_AHEAD, wants->weight))
			return USHER_GIVES_NOT;
	}
	if (asks->sure == USHER_PAIR_SURE + USHER_PAIR_WATCH - 1)
		return USHER_GIVES_LATER;
	asks->sure++;
	u->cpus[self].asked = 0;
	u->cpus[self].reasons[USHER_PARTNER]++;
	return USHER_GIVES_NOW;
}

/*
 * The task that runs on r->waker gives way to its partner later: where that one runs. A core that idles, as for who shares one
 * (usher_search_quiet()), or the waker's CPU, unclaimed: it waits there, behind. Where strong CPUs come first, one of them does, unless
 * the partner is light: who always finds its own CPU idle, or its partner awake, would stay on a weak one for good.
 */
USHER_INLINE struct usher_decision usher_pair_beside(struct usher USHER_MEM *u, const struct usher_request *r)
{
	u32 upward = u->tier_order == USHER_STRONGEST_FIRST && !usher_light(u, &r->demand);
	s32 cid = usher_search_quiet(u, r, r->waker, upward);
	struct usher_decision d = cid < 0 ? usher_decide(r->waker, USHER_PARTNER, false) :
					    usher_decide(cid, usher_reason_core(&u->cids[r->waker], &u->cids[cid]), true);

	d.poke = u->cpus[r->waker].poke;
	u->cpus[r->waker].reasons[d.reason]++;
	return d;
}

/*
 * The task that runs on self has asked and not given way; a callback of the wakeup ends. Where many wake at once, these take longer than
 * the turns do. That is no part of the turn, or a crowd of pairs would never find out that it is one.
 */
USHER_FN void usher_pair_woke(struct usher USHER_MEM *u, u32 self, u64 now_ns)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[self];

	if (me->asked)
		me->woke_ns = now_ns;
}

/* Whether the task that runs on self, and sleeps now, has asked in this turn: then usher_pair_sleeps(). */
USHER_FN bool usher_pair_asked(struct usher USHER_MEM *u, u32 self)
{
	return u->cpus[self].asked;
}

/*
 * The task that runs on self sleeps, and has asked in this turn. A kernel queues who was woken after the last callback: that counts as
 * taking as long again.
 */
USHER_FN void usher_pair_sleeps(struct usher USHER_MEM *u, u32 self, struct usher_pair *asks, u64 now_ns)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[self];
	s64 before = me->asked_ns - env_read(u, &me->turn.at_ns), wake = me->woke_ns - me->asked_ns;
	s64 after = now_ns - me->woke_ns - wake;

	if (after < 0)
		after = 0;
	if (me->asked > 1 || before + after > (s64)(u->slice_ns / USHER_PAIR_SHORT) || after > USHER_PAIR_AFTER * before)
		asks->sure = 0;
	else if (asks->sure < USHER_PAIR_SURE)
		asks->sure++;
	else
		asks->sure = USHER_PAIR_SURE;
	me->asked = 0;
}

#endif
