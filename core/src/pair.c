/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pairs: two tasks that wake each other in turn.
 *
 * Who wakes its partner is about to sleep. If it gives way at once instead, while it is still awake, the answer finds it awake: it
 * goes on when the partner sleeps, and has neither slept nor been woken. Until then it waits behind the partner on the CPU, as
 * if its turn had been interrupted. Nobody is searched for, nor woken elsewhere.
 *
 * Where the partner's own CPU idles, shares its core with nobody else, and is not the weaker one, it may be woken there as well: then
 * one ends its turn while the other begins. Which is sooner depends on how long it takes to wake an idle CPU: less than
 * a switch where idle CPUs watch a word of memory, and many times as long where a hypervisor wakes them. So both are tried
 * now and then, and one of the two notes how long answers take, and decides.
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
#define USHER_PAIR_AFTER 2   /* ... and after the question at most so many times as long as before it, */
#define USHER_PAIR_SENT 128  /* ... and this part of a slice: a hypervisor may take that long to send an interrupt */
#define USHER_PAIR_AHEAD 1   /* slices by which either may be ahead of who waits, and they go on */
#define USHER_PAIR_SOONER 32 /* answers that come sooner by this part are worth staying beside each other for */
#define USHER_PAIR_COUNTS 16 /* this part of their average is how long the last took, */
#define USHER_PAIR_OUTLIER 2 /* ... or so many times the average, if it took longer */
#define USHER_PAIR_TRIAL 32  /* times in a row that the other way is tried, a power of 2: */
#define USHER_PAIR_SETTLE 3  /* ... so many do not count, as a CPU that had slept for long sleeps deeply, */
#define USHER_PAIR_FIRST 64  /* ... first after so many times, then after four times as many, and so on, */
#define USHER_PAIR_LAST 16384 /* ... up to so many, and then after three times as many again */
#define USHER_PAIR_TRIALS (0x55555555u * (USHER_PAIR_FIRST / USHER_PAIR_TRIAL)) /* 1, 4, 16 and so on times the first, in trials */

_Static_assert(USHER_PAIR_TRIALS & (USHER_PAIR_LAST / USHER_PAIR_TRIAL), "the last is such a one");

/* A task that asked so asks again after so long. */
USHER_INLINE void usher_pair_answered(u64 *average_ns, u64 ns)
{
	u64 most_ns = USHER_PAIR_OUTLIER * *average_ns;

	if (!most_ns)
		*average_ns = ns;
	else
		*average_ns += (s64)((ns < most_ns ? ns : most_ns) - *average_ns) / USHER_PAIR_COUNTS;
}

/*
 * The task that runs on self wakes another one, by the host's name for it, and says that it is about to sleep. True: it always
 * wakes that one, and then sleeps. paused is how often it has slept or been interrupted in its life; it may wrap. If that is once since it
 * asked last, it was for the answer. How long the answer took is counted up to the next question: who gave way has still to return from
 * its own, and who slept has not.
 */
USHER_FN bool usher_pair_asks(struct usher USHER_MEM *u, u32 self, struct usher_pair *asks, u64 task, u32 paused, u64 now_ns)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[self];

	asks->settled = asks->way == asks->way_before ? asks->settled + 1 : 0;
	me->asked++;
	me->asked_ns = now_ns;
	me->woke_ns = now_ns;
	if (asks->partner != task) {
		asks->partner = task;
		asks->sure = 0;
		asks->chosen = 0;
		asks->sooner = 0;
		asks->apart_ns = 0;
		asks->beside_ns = 0;
	} else if (asks->settled >= USHER_PAIR_SETTLE && paused - asks->paused == 1) {
		if (asks->way == USHER_WAY_APART)
			usher_pair_answered(&asks->apart_ns, now_ns - asks->asked_ns);
		else if (asks->way == USHER_WAY_BESIDE)
			usher_pair_answered(&asks->beside_ns, now_ns - asks->asked_ns);
	}
	asks->way_before = asks->way;
	asks->way = USHER_WAY_OTHER;
	asks->asked_ns = now_ns;
	asks->paused = paused;
	return asks->sure >= USHER_PAIR_SURE;
}

/* Whether nobody else runs on the core of self. */
USHER_INLINE bool usher_pair_alone(struct usher USHER_MEM *u, u32 self)
{
	struct usher_cid USHER_MEM *me = &u->cids[self];

	return ((usher_shard_idle(u, &u->shards[me->shard]) | 1ULL << (me->bit & 63)) & me->core) == me->core;
}

/* The tiers above self's, where strong CPUs come first. */
USHER_INLINE u32 usher_pair_upward(struct usher USHER_MEM *u, u32 self)
{
	return env_asymmetric(u) && u->tier_order == USHER_STRONGEST_FIRST ? usher_tiers_greater(u, u->cids[self].tier) : 0;
}

/* Whether strong CPUs come first, and cid is a weaker one than other. */
USHER_INLINE bool usher_pair_weaker(struct usher USHER_MEM *u, u32 cid, u32 other)
{
	return usher_pair_upward(u, cid) >> (u->cids[other].tier & 31) & 1;
}

/* Whether answers have come sooner to who asks where it gave way to its partner. */
USHER_INLINE bool usher_pair_sooner(const struct usher_pair *asks)
{
	return asks->apart_ns && asks->beside_ns && asks->beside_ns + asks->beside_ns / USHER_PAIR_SOONER < asks->apart_ns;
}

/* Whether the other way is tried, after it had the choice so many times. */
USHER_INLINE bool usher_pair_tries(u32 chosen)
{
	u32 trial = chosen / USHER_PAIR_TRIAL;

	return !(trial & (trial - 1)) && trial & USHER_PAIR_TRIALS;
}

/*
 * Whether it gives way this time, where it has the choice. What is sooner is settled when a trial ends: now and then some answers in a row
 * come late, as where CPUs sleep deeply for a while.
 */
USHER_INLINE bool usher_pair_chooses(struct usher_pair *asks)
{
	bool tried = usher_pair_tries(asks->chosen), tries = usher_pair_tries(++asks->chosen);

	if (asks->chosen == 4 * USHER_PAIR_LAST)
		asks->chosen = USHER_PAIR_LAST;
	if (tried && !tries)
		asks->sooner = usher_pair_sooner(asks);
	return asks->sooner != tries;
}

/*
 * Whether the partner, which ran where who asks does, is to leave: to try that, or after it was tried to stay. If it is here only because
 * no core idles there is no choice.
 */
USHER_INLINE bool usher_pair_leaves(struct usher_pair *asks)
{
	bool tried = usher_pair_tries(asks->chosen);

	if (!asks->sooner && !tried)
		return false;
	return !usher_pair_chooses(asks) && usher_pair_tries(asks->chosen) != tried;
}

/*
 * Whether the task that runs on self, and asks, leaves its partner where that ran last: on prev, which idles, and so does the rest of its
 * core, but for self. Where others share the core of self it does. Where strong CPUs come first it does on a stronger one than self, and not
 * on a weaker one: by turns both run on the strong one. Else it does what is sooner, but for trials, if of the two it has the lower name:
 * two that try by turns would never see what either way is like for long. answers is the partner's, for which usher_pair_answers() was true.
 */
USHER_FN bool usher_pair_apart(struct usher USHER_MEM *u, u32 self, struct usher_pair *asks, const struct usher_pair *answers, u32 prev)
{
	struct usher_cid USHER_MEM *c = &u->cids[prev], *me = &u->cids[self];
	u64 idle = usher_shard_idle(u, &u->shards[c->shard]);
	bool alone = usher_pair_alone(u, self), decides = answers->partner < asks->partner;

	if (!decides)
		asks->sooner = answers->sooner;
	if (prev == self) {
		if (alone && decides && usher_pair_leaves(asks))
			asks->way = USHER_WAY_LEAVES;
		return false;
	}
	if (me->shard == c->shard)
		idle |= 1ULL << (me->bit & 63);
	if ((idle & c->core) != c->core)
		return false;
	if (alone && !usher_pair_weaker(u, self, prev) &&
	    (usher_pair_weaker(u, prev, self) || (decides && usher_pair_chooses(asks))))
		return false;
	asks->way = USHER_WAY_APART;
	return true;
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
	bool watched;

	if (!weight || usher_weighs_less(wants->weight, weight))
		return USHER_GIVES_NOT;
	if (first) {
		if (usher_turn_ahead(u, self, weight, ran_ns, first) > usher_vtime_slices(u, USHER_PAIR_AHEAD, weight))
			return USHER_GIVES_NOT;
		if ((s64)(wants->vtime - first) > usher_vtime_slices(u, USHER_PAIR_AHEAD, wants->weight))
			return USHER_GIVES_NOT;
	}
	watched = asks->sure == USHER_PAIR_SURE + USHER_PAIR_WATCH - 1;
	if (watched || asks->way == USHER_WAY_LEAVES) {
		asks->sure = USHER_PAIR_SURE - 1; /* and sure again when it has slept */
		if (asks->way == USHER_WAY_LEAVES || !asks->sooner || usher_pair_upward(u, self) ||
		    !usher_pair_alone(u, self))
			return USHER_GIVES_LATER;
		u->cpus[self].reasons[USHER_PARTNER]++;
		return USHER_GIVES_BEHIND;
	}
	asks->way = USHER_WAY_BESIDE;
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
	s32 cid = usher_search_quiet(u, r, r->waker, upward, 1);
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
	if (me->asked > 1 || before + after > (s64)(u->slice_ns / USHER_PAIR_SHORT) ||
	    after > USHER_PAIR_AFTER * before + (s64)(u->slice_ns / USHER_PAIR_SENT))
		asks->sure = 0;
	else if (asks->sure < USHER_PAIR_SURE)
		asks->sure++;
	else
		asks->sure = USHER_PAIR_SURE;
	me->asked = 0;
}

#endif
