/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preemption: a task that is urgent and finds nobody idle takes the CPU of one that is less so.
 *
 * Every task has a class. How long it runs between two sleeps says what it is, and its weight says what
 * it is to be:
 *
 *   batch              runs for four slices or longer without sleeping, or says that it is
 *   normal             between the two, and newborns
 *   interactive        sleeps again within a quarter of a slice
 *   latency-critical   by its weight
 *
 * A weight of 300 (nice -5) or more raises the class by one, of 900 (nice -10) by two; one of 33
 * (nice 5) or less lowers it by one. So a hog of nice -10 is not latency-critical, whatever it says.
 *
 * Each CPU is in the priority map at the class of the task it runs. An idle CPU stays at its last one:
 * who preempts it by mistake finds it free.
 *
 * Who preempts whom: latency-critical tasks whoever is below, the lowest class first. Nobody else, since
 * what is only observed comes and goes: where interactive tasks could preempt batch ones, hackbench's
 * receivers took the CPUs of its senders, and it ran half as fast. Who slept comes first in its queue instead, and ends
 * a turn that has lasted (usher_turn_cut()).
 *
 * A CPU is preempted once at a time: it is marked by who takes it, and marks itself free when it comes to
 * run the second task after that. A search passes over marked CPUs; who loses the race for one tries again
 * a bounded number of times, and then waits in a queue like others. A task that may run on one CPU only takes
 * that one, or waits. Tests: preempt_against_preempt, three_preempt, pinned_against_preempt, pinned_in_turn.
 *
 * Tolerated: who saw a CPU run something less urgent takes it although it came to run something as urgent
 * between the look and the mark. And a CPU that begins another task before the one that it was taken for
 * arrives counts that as the first: it is then free as soon as the urgent task runs, and who saw it before
 * that takes it once more. Either way an urgent task makes way for its like, once, and waits in its queue. Test:
 * pinned_against_rise (nobody takes a CPU that ran something as urgent when the search began).
 */
#ifndef USHER_PREEMPT_C
#define USHER_PREEMPT_C

#include "../include/usher/usher.h"
#include "idle.c"
#include "cpupri.c"

#define USHER_PREEMPT_TRIES 3
#define USHER_BATCH_SLICES 4	   /* who runs so long without sleeping is a batch task */
#define USHER_INTERACTIVE_PART 4   /* who sleeps within this part of a slice is interactive */
#define USHER_WEIGHT_URGENT 300
#define USHER_WEIGHT_CRITICAL 900
#define USHER_WEIGHT_LOW 33

/* A task is born: nothing is known, so it is normal. */
USHER_FN void usher_burst_born(struct usher USHER_MEM *u, struct usher_burst *b)
{
	b->ns = 0;
	b->average_ns = u->slice_ns;
}

/* A task ran for ran_ns, and then slept or was made to wait. */
USHER_FN void usher_burst_ran(struct usher_burst *b, u64 ran_ns, bool slept)
{
	b->ns += ran_ns;
	if (!slept)
		return;
	b->average_ns = b->average_ns - b->average_ns / 4 + b->ns / 4;
	b->ns = 0;
}

/* The class of a task of this weight. A burst that goes on counts as soon as it is longer than those before. */
USHER_FN u32 usher_class(struct usher USHER_MEM *u, const struct usher_burst *b, u32 weight, bool batch)
{
	u64 burst = b->ns > b->average_ns ? b->ns : b->average_ns;
	u32 class = USHER_NORMAL;

	if (batch || burst >= USHER_BATCH_SLICES * u->slice_ns)
		class = USHER_BATCH;
	else if (burst < u->slice_ns / USHER_INTERACTIVE_PART)
		class = USHER_INTERACTIVE;
	if (weight <= USHER_WEIGHT_LOW)
		return class ? class - 1 : class;
	class += (weight >= USHER_WEIGHT_URGENT) + (weight >= USHER_WEIGHT_CRITICAL);
	return class < USHER_CRITICAL ? class : USHER_CRITICAL;
}

/* Marks a CPU as being preempted. False: somebody else does it. Test: preempt_against_preempt. */
USHER_FN bool usher_preempt_mark(struct usher USHER_MEM *u, u32 cid)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];
	struct usher_cpupri_leaf USHER_MEM *leaf = &u->leaves[c->shard];
	u64 bit = 1ULL << (c->bit & 63);

	return !(env_fetch_or(u, leaf->words + USHER_TAKEN * leaf->stride, bit) & bit);
}

/*
 * A task of this class was woken and nobody is idle: the CPU that it is to take, marked, or
 * USHER_NONE_LOWER. The nearest in reach, there of the lowest class; of the tiers that query names, if somebody
 * less urgent runs on any of those (usher_tiers_first()).
 */
USHER_UNIT s32 usher_preempt(struct usher USHER_MEM *u USHER_UNIT_MEM,
			     const struct usher_query *query USHER_UNIT_PTR, u32 class)
{
	struct usher_cid USHER_MEM *from = &u->cids[query->from];
	struct usher_query q = *query;
	u32 i, level;

	if (class < USHER_CRITICAL)
		return USHER_NONE_LOWER;
	q.flags |= USHER_UNTAKEN;
	for (i = 0; i < USHER_PREEMPT_TRIES && env_again(u); i = env_next(u, i)) {
		s32 cid = usher_cpupri_find(u, &q, class, &level);

		if (cid < 0)
			break;
		if (usher_preempt_mark(u, cid)) {
			u32 far = u->cids[cid].llc == from->llc ? USHER_EV_PREEMPT_LLC :
				  u->cids[cid].node == from->node ? USHER_EV_PREEMPT_NODE :
								    USHER_EV_PREEMPT_REMOTE;

			env_count(u, query->self, far);
			return cid;
		}
		env_count(u, query->self, USHER_EV_PREEMPT_LOST);
	}
	env_count(u, query->self, USHER_EV_PREEMPT_NONE);
	return USHER_NONE_LOWER;
}

/*
 * The same for a task that may run on cid only: cid, marked, or USHER_NONE_LOWER. A CPU that rises enters its
 * new level before it leaves the old one (usher_cpupri_set()), so the levels are read from the lowest up: it is
 * seen at one of the two. Tests: pinned_against_preempt, pinned_against_rise.
 */
USHER_UNIT s32 usher_preempt_pinned(struct usher USHER_MEM *u USHER_UNIT_MEM, u32 cid, u32 self, u32 class)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];
	u64 bit = 1ULL << (c->bit & 63), lower = 0;
	u32 level;

	if (class < USHER_CRITICAL)
		return USHER_NONE_LOWER;
	for (level = 0; level < USHER_CRITICAL; level++) {
		lower |= usher_cpupri_at(u, c->shard, level);
		env_read_barrier(u); /* as in usher_cpupri_search_own() */
	}
	if (lower & bit) {
		if (usher_preempt_mark(u, cid)) {
			env_count(u, self, USHER_EV_PREEMPT_LLC);
			return cid;
		}
		env_count(u, self, USHER_EV_PREEMPT_LOST);
	}
	env_count(u, self, USHER_EV_PREEMPT_NONE);
	return USHER_NONE_LOWER;
}

/* cid begins to run a task of this class. For that CPU only. Test: pinned_in_turn. */
USHER_FN void usher_preempt_runs(struct usher USHER_MEM *u, u32 cid, u32 class)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];
	struct usher_cpupri_leaf USHER_MEM *leaf = &u->leaves[c->shard];
	u64 USHER_MEM *taken = leaf->words + USHER_TAKEN * leaf->stride;
	u64 bit = 1ULL << (c->bit & 63);

	usher_cpupri_set(u, cid, class);
	if (!(env_read(u, taken) & bit))
		return;
	if (!u->cpus[cid].taken) {
		u->cpus[cid].taken = 1; /* this is the task it was taken for, or one that came before it */
		return;
	}
	u->cpus[cid].taken = 0;
	env_fetch_and(u, taken, ~bit);
}

#endif
