/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One decision: where should this task run?
 *
 *  1. One allowed CPU: there, idle or not. After that a hint of the task, if it has one and there is room:
 *     hint.c.
 *  2. Sync wakeup from another LLC of prev's node: an idle core, then an idle CPU in the waker's LLC, where
 *     the data is. Not across nodes: the task's memory stays behind. Whom a task goes along with: follow.c. A newborn, who
 *     leaves nothing behind: an idle core of the LLC, of the node, of the other nodes, nearest first; half a core only where all are taken.
 *     Once a quarter of the node's cores is busy, first one of the node where most of them idle: where all of a socket works and
 *     another sleeps, clocks fall and memory is waited for, and who is moved later leaves its memory behind.
 *  3. prev, if its whole core is idle: all its caches are warm and nobody shares them. Here and in 5 only if its
 *     tier will do.
 *  4. An idle core in the LLC: the cheapest move that keeps the L3 warm.
 *  5. prev, beside a busy sibling. The prev of a task being born is its parent's CPU, where the parent runs.
 *  6. An idle core in the node: half a core costs more, for as long as the LLC is crowded, than one move.
 *  7. Any idle CPU in the LLC.
 *  8. Any idle CPU in the node.
 *  9. The same in the other nodes, nearest first.
 *     6, 8 and 9 are left out where who waits in prev's queue runs soon: pace.c. Not for a newborn.
 * 10. Nobody is idle: prev's queue, or that of a CPU where the task may run. For a sync wakeup the
 *     waker's, if allowed and no more wait there: a CPU is about to be free, and two who wake each other
 *     come together. Instead of a long queue a much shorter one, or for a newborn one that is somewhat shorter, whatever was
 *     hinted.
 *
 * Where CPUs differ in capacity, and only there, tasks ask for enough of it (capacity.c). Hints and step 2 take
 * CPUs that are enough; newborns have no step 2; and instead of 3 to 9 come
 *
 * 11. prev, if its whole core is idle and it is enough.
 * 12. For a light task, in the node: a core on which nobody ran of late, of the weakest tier first; prev beside a busy
 *     sibling; such a CPU; and if there is none, the CPU that has been idle for longest. Strong CPUs are few and wanted by
 *     all, and tasks that wake often would push each other from one CPU to the next.
 * 13. An idle core that is enough, of the strongest tier first or of the weakest, as the machine is told; of each
 *     tier in the LLC, then in the node. Else the strongest idle core: a task shares a core with
 *     somebody only when all are taken, since two who share one get less of it than a weak core has.
 * 14. The same with idle CPUs, since a weak one is better than waiting behind somebody.
 * 15. Other nodes, nearest first: one that is enough, else any.
 *
 * Where prev is not allowed, the waker's CPU stands in for it, else the first allowed one. All steps but 10
 * claim the CPU.
 */
#ifndef USHER_PLACE_C
#define USHER_PLACE_C

#include "../include/usher/usher.h"
#include "idle.c"
#include "fit.c"
#include "hint.c"
#include "pace.c"

#define USHER_QUEUE_LONG 4   /* tasks waiting per CPU from which on a much shorter queue is looked for, */
#define USHER_SHORTER_NEAR 16 /* ... of which this one is so many quarters in the node, */
#define USHER_SHORTER_FAR 32  /* ... and so many in another; */
#define USHER_SHORTER_BORN 5  /* that is enough for a newborn */
#define USHER_BORN_NEAR 4     /* newborns stay in their node while no more than such a part of its cores is busy, */
#define USHER_BORN_AWAY 16    /* ... or nowhere else such a part more of them idles */

USHER_INLINE struct usher_decision usher_decide(u32 cid, u32 reason, bool claimed)
{
	struct usher_decision d = {
		.cid = cid,
		.reason = reason,
		.claimed = claimed,
	};

	return d;
}

/* The lowest cid of the set, or USHER_EMPTY_SET. */
USHER_COLD s32 usher_set_first(struct usher USHER_MEM *u, const struct usher_set USHER_MEM *set)
{
	u32 w;

	for (w = 0; w < USHER_MAX_WORDS && env_again(u); w = env_next(u, w)) {
		u64 bits = usher_set_word(set, w);

		if (bits) {
			u32 cid = w * 64 + env_lowest(bits);

			return cid < u->nr_cids ? (s32)cid : USHER_EMPTY_SET;
		}
	}
	return USHER_EMPTY_SET;
}

/* Where the search starts: prev if allowed, else the waker's CPU, else any. */
USHER_FN s32 usher_place_from(struct usher USHER_MEM *u, const struct usher_request *r)
{
	if (!r->allowed || usher_set_has(r->allowed, r->prev))
		return r->prev;
	if (usher_set_has(r->allowed, r->waker))
		return r->waker;
	return usher_set_first(u, r->allowed);
}

/* By the summaries, which may name a shard where nobody is idle any more, but pass over none for long. */
USHER_FN bool usher_somebody_idle(struct usher USHER_MEM *u)
{
	u32 i;

	for (i = 0; i < u->nr_summaries && env_again(u); i = env_next(u, i))
		if (env_read(u, u->summaries[i]))
			return true;
	return false;
}

/* Whether the search goes on to other LLCs. */
USHER_FN bool usher_goes_far(struct usher USHER_MEM *u, struct usher_search *s)
{
	if (s->q.flags & USHER_PATIENT) {
		s->q.flags &= ~USHER_PATIENT;
		if (usher_queue_soon(u, u->cids[s->q.from].queue)) {
			s->q.flags |= USHER_NEAR;
			env_count(u, s->q.self, USHER_EV_LEFT_NEAR);
		}
	}
	return !(s->q.flags & USHER_NEAR);
}

/* Steps 3 to 7: prev, its LLC, and cores of its node. Sets *reason to USHER_QUEUED if it is of no use to go on. */
USHER_UNIT_FN s32 usher_place_llc(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR,
				  bool prev_allowed, u16 *reason USHER_UNIT_PTR)
{
	struct usher_cid USHER_MEM *c = &u->cids[s->q.from];
	struct usher_shard USHER_MEM *shard = &u->shards[c->shard];
	u64 idle = usher_shard_idle(u, shard);
	bool prev_fits = prev_allowed && (!s->q.tiers || s->q.tiers >> (c->tier & 31) & 1);
	bool prev_idle = prev_fits && idle >> (c->bit & 63) & 1;
	s32 cid;

	/* 3. prev's whole core. */
	if (prev_idle && (idle & c->core) == c->core) {
		*reason = USHER_PREV_CORE;
		if (usher_claim_bit(u, shard, 1ULL << (c->bit & 63)))
			return s->q.from;
		env_count(u, s->q.self, USHER_EV_CLAIM_LOST);
		prev_idle = false;
	}

	/* On a busy machine all searches are in vain; the summaries say so at the cost of a line per node. */
	if (!idle && !(s->q.flags & USHER_NEAR) && !usher_somebody_idle(u)) {
		*reason = USHER_QUEUED;
		return USHER_NONE_IDLE;
	}

	/* 4. An idle core in the LLC. */
	env_count(u, s->q.self, USHER_EV_SEARCH_LLC);
	s->core = 1;
	*reason = USHER_LLC_CORE;
	cid = usher_search_llc(u, s);
	if (cid >= 0)
		return cid;

	/* 5. prev beside a busy sibling. */
	if (prev_idle) {
		*reason = USHER_PREV;
		if (usher_claim_bit(u, shard, 1ULL << (c->bit & 63)))
			return s->q.from;
		env_count(u, s->q.self, USHER_EV_CLAIM_LOST);
	}

	/* 6. An idle core in the node. */
	if (u->nodes[c->node].nr_llcs > 1 && usher_goes_far(u, s)) {
		env_count(u, s->q.self, USHER_EV_SEARCH_NODE);
		s->core = u->smt > 1;
		*reason = USHER_NODE_CORE;
		cid = usher_search_node(u, s, c->node);
		if (cid >= 0)
			return cid;
	}

	/* 7. Any idle CPU in the LLC. */
	if (u->smt == 1)
		return USHER_NONE_IDLE;
	s->core = 0;
	*reason = USHER_LLC_CPU;
	return usher_search_llc(u, s);
}

/* Steps 8 and 9: whoever is idle beyond the LLC. */
USHER_UNIT_FN s32 usher_place_far(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR,
				  u16 *reason USHER_UNIT_PTR)
{
	u32 node = u->cids[s->q.from].node;
	s32 cid;

	if (!usher_goes_far(u, s))
		return USHER_NONE_IDLE;

	/* 8. The node. Without threads all of it was looked at in 6. */
	if (u->smt > 1 || u->nodes[node].nr_llcs == 1) {
		s->core = 0;
		*reason = USHER_NODE_CPU;
		cid = usher_search_node(u, s, node);
		if (cid >= 0)
			return cid;
	}

	/* 9. Other nodes, nearest first. */
	if (u->nr_nodes == 1)
		return USHER_NONE_IDLE;
	env_count(u, s->q.self, USHER_EV_SEARCH_REMOTE);
	cid = usher_search_remote(u, s, node);
	*reason = s->core ? USHER_REMOTE_CORE : USHER_REMOTE_CPU;
	return cid;
}

/* Step 2: the waker's LLC. */
USHER_INLINE s32 usher_place_sync(struct usher USHER_MEM *u, struct usher_search *s, u16 *reason)
{
	s32 cid;

	s->core = 1;
	*reason = USHER_SYNC_CORE;
	cid = usher_search_llc(u, s);
	if (cid >= 0 || u->smt == 1)
		return cid;
	s->core = 0;
	*reason = USHER_SYNC_CPU;
	return usher_search_llc(u, s);
}

/* Why a whole core is taken, by where it is. */
USHER_INLINE u16 usher_reason_core(struct usher_cid USHER_MEM *from, struct usher_cid USHER_MEM *core)
{
	if (core->llc == from->llc)
		return USHER_LLC_CORE;
	return core->node == from->node ? USHER_NODE_CORE : USHER_REMOTE_CORE;
}

/* The node for a newborn: own, or if much of that is busy the one with most idle cores for what it has, nearest first. */
USHER_COLD u32 usher_node_for_newborn(struct usher USHER_MEM *u, u32 own)
{
	struct usher_node USHER_MEM *home = &u->nodes[own];
	u32 cores = home->nr_cores, idle = usher_idle_cores(u, home->first_shard, home->nr_shards), best = own, more, i;

	if ((cores - idle) * USHER_BORN_NEAR <= cores)
		return own;
	idle += cores / USHER_BORN_AWAY;
	for (i = 1; i < u->nr_nodes && env_again(u); i = env_next(u, i)) {
		struct usher_node USHER_MEM *node = &u->nodes[home->order[i]];

		more = usher_idle_cores(u, node->first_shard, node->nr_shards);
		if (more * cores > idle * node->nr_cores) {
			best = home->order[i];
			idle = more;
			cores = node->nr_cores;
		}
	}
	return best;
}

/*
 * Step 2 for a newborn, from s->q.from on: a whole core wherever there is one, claimed, or USHER_NONE_IDLE. It does not set the
 * reason, which would have to be in memory then for all others as well.
 */
USHER_UNIT_COLD s32 usher_place_newborn(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR)
{
	u32 own = u->cids[s->q.from].node, node = own, i;
	u32 USHER_MEM *order = u->nodes[own].order;
	s32 cid = USHER_NONE_IDLE;

	if (env_asymmetric(u) || !usher_somebody_idle(u))
		return USHER_NONE_IDLE;
	s->core = 1;
	if (u->fork_balance && u->nr_nodes > 1)
		node = usher_node_for_newborn(u, own);
	if (node != own) {
		cid = usher_search_node(u, s, node);
		if (cid >= 0)
			env_count(u, s->q.self, USHER_EV_BORN_AWAY);
	}
	if (cid >= 0 || u->smt == 1)
		return cid;
	cid = usher_search_llc(u, s);
	for (i = 0; cid < 0 && i < u->nr_nodes && env_again(u); i = env_next(u, i))
		cid = usher_search_node(u, s, order[i]);
	return cid;
}

/*
 * What no plain wakeup of a task without hints comes to: the wish of the task, then step 2. A CPU, claimed, or
 * USHER_NONE_IDLE. Changes s->q.from.
 */
USHER_INLINE s32 usher_place_special(struct usher USHER_MEM *u, const struct usher_request *r,
				 struct usher_search *s, u32 from, u16 *reason)
{
	struct usher_cid USHER_MEM *waker = &u->cids[r->waker];
	struct usher_cid USHER_MEM *prev = &u->cids[from];
	s32 cid;

	if (r->wake == USHER_WAKE_FORK) {
		s->q.from = from;
		if (r->hints & USHER_FORK_HINTS) {
			*reason = USHER_HINT_FORK;
			return usher_hint_fork(u, s, r->hints);
		}
		cid = usher_place_newborn(u, s);
		if (cid >= 0)
			*reason = usher_reason_core(prev, &u->cids[cid]);
		return cid;
	}
	if (r->hints & USHER_WAKE_AFFINE && waker->llc != prev->llc) {
		*reason = USHER_HINT_WAKE;
		s->q.from = from;
		cid = usher_hint_wake(u, s, r->waker, r->hints);
		if (cid >= 0)
			return cid;
	}
	if (r->wake != USHER_WAKE_SYNC || r->hints & USHER_WAKE_HOLD || waker->node != prev->node || waker->llc == prev->llc)
		return USHER_NONE_IDLE;
	/* 2. A sync wakeup within the node. */
	s->q.from = r->waker;
	return usher_place_sync(u, s, reason);
}

/* Whether more tasks wait in queue than in other, for what the CPUs of both do. */
USHER_FN bool usher_queue_longer(struct usher USHER_MEM *u, u32 queue, u32 other)
{
	return env_queued(u, queue) * u->queues[other].power > env_queued(u, other) * u->queues[queue].power;
}

/* The lowest cid of queue in the set (NULL: any), or USHER_NONE_IDLE. */
USHER_COLD s32 usher_set_in_queue(struct usher USHER_MEM *u, const struct usher_set USHER_MEM *set, u32 queue)
{
	u32 first = u->queues[queue].first_cid, end = first + u->queues[queue].nr_cids, w;
	u64 bits;

	if (!set)
		return first;
	for (w = first / 64; w * 64 < end && env_again(u); w = env_next(u, w)) {
		bits = usher_set_word(set, w);
		if (w == first / 64)
			bits &= ~0ULL << (first & 63);
		if (bits)
			return w * 64 + env_lowest(bits) < end ? (s32)(w * 64 + env_lowest(bits)) : USHER_NONE_IDLE;
	}
	return USHER_NONE_IDLE;
}

/*
 * In whose queue a task of the allowed CPUs waits that comes while nobody is idle, if not in that of from: perhaps in the one
 * whose turn it is by self's count. A cid, or from.
 *
 * A newborn does if from's queue is longer by a quarter for what the CPUs of each do, in any node. It leaves nothing behind; and were it
 * not sent there at birth, a CPU from there would fetch somebody later, whose memory stays. A task that wakes waits elsewhere only if many
 * wait at from for each CPU and only a part of that there. Without, a crowd that sleeps where it was born wakes into one queue. Sooner
 * than that it does harm: tasks that wake each other are parted, and meet again only when nobody moves them.
 */
USHER_COLD u32 usher_queue_shorter(struct usher USHER_MEM *u, u32 self, u32 from,
				   const struct usher_set USHER_MEM *allowed, bool born)
{
	u32 queue = u->cids[from].queue, at, quarters;
	struct usher_queue USHER_MEM *own = &u->queues[queue], *other;
	u64 ours = env_queued(u, queue);
	s32 cid;

	if (u->nr_queues == 1 || ours < (born ? 1 : USHER_QUEUE_LONG * own->nr_cids))
		return from;
	at = (queue + 1 + u->cpus[self].shorter_turn++ % (u->nr_queues - 1)) % u->nr_queues;
	other = &u->queues[at];
	quarters = other->node == own->node ? USHER_SHORTER_NEAR : USHER_SHORTER_FAR;
	if (born)
		quarters = USHER_SHORTER_BORN;
	if (env_queued(u, at) * own->power * quarters >= ours * other->power * 4)
		return from;
	cid = usher_set_in_queue(u, allowed, at);
	return cid < 0 ? from : (u32)cid;
}

/* Step 10: nobody is idle. */
USHER_INLINE struct usher_decision usher_place_queue(struct usher USHER_MEM *u, const struct usher_request *r,
						     u32 from)
{
	u32 prev = u->cids[from].queue, waker = u->cids[r->waker].queue;

	if (r->wake == USHER_WAKE_SYNC && waker != prev && (!r->allowed || usher_set_has(r->allowed, r->waker)) &&
	    !usher_queue_longer(u, waker, prev))
		from = r->waker;
	from = usher_queue_shorter(u, r->waker, from, r->allowed, r->wake == USHER_WAKE_FORK);
	return usher_decide(from, from == r->prev ? USHER_QUEUED : USHER_QUEUED_ELSEWHERE, false);
}

/* A decision as one number, for functions of their own: in a kernel none returns a structure. */
#define USHER_REASON_SHIFT 12
#define USHER_CLAIMED_SHIFT 24
_Static_assert(USHER_MAX_CIDS <= 1 << USHER_REASON_SHIFT, "a cid has room below the reason");
_Static_assert(USHER_NR_REASONS <= 1 << (USHER_CLAIMED_SHIFT - USHER_REASON_SHIFT), "and that below the rest");

USHER_INLINE u32 usher_pack(struct usher_decision d)
{
	return d.cid | (u32)d.reason << USHER_REASON_SHIFT | (u32)d.claimed << USHER_CLAIMED_SHIFT;
}

USHER_INLINE struct usher_decision usher_unpack(u32 packed)
{
	return usher_decide(packed % (1 << USHER_REASON_SHIFT),
			    packed % (1 << USHER_CLAIMED_SHIFT) >> USHER_REASON_SHIFT,
			    packed >> USHER_CLAIMED_SHIFT);
}

/* What else a request says, as one number. */
USHER_INLINE u64 usher_pack_demand(struct usher_demand d)
{
	return d.util | (u64)d.clamp_min << 16 | (u64)d.clamp_max << 32 | (u64)d.at << 48;
}

USHER_INLINE struct usher_demand usher_unpack_demand(u64 demand)
{
	struct usher_demand d = { .util = demand, .clamp_min = demand >> 16, .clamp_max = demand >> 32, .at = demand >> 48 };

	return d;
}

/*
 * Step 12: a light task has found its CPU taken, or beside a busy sibling. Where it goes others will not find theirs
 * taken, if there is such a place: so each comes to have one of its own.
 */
USHER_COLD s32 usher_place_light(struct usher USHER_MEM *u, struct usher_search *s, u32 fit, u64 demand, u16 *reason)
{
	struct usher_demand d = usher_unpack_demand(demand);
	u32 from = s->q.from;
	s32 cid;

	if (!usher_light(u, &d))
		return USHER_NONE_IDLE;
	if (u->smt > 1) {
		s->core = 1;
		*reason = USHER_FIT_CORE;
		cid = usher_search_vacant(u, s, fit, d.at);
		if (cid >= 0)
			return cid;
	}
	*reason = USHER_PREV;
	if (fit >> (u->cids[from].tier & 31) & 1 && usher_test_and_clear(u, from))
		return from;
	s->core = 0;
	*reason = USHER_FIT_CPU;
	return usher_search_vacant(u, s, fit, d.at);
}

/*
 * Steps 11 to 15, from s->q.from on: a CPU, claimed, or USHER_NONE_IDLE. fit are the tiers that are enough.
 */
USHER_INLINE s32 usher_place_fit(struct usher USHER_MEM *u, struct usher_search *s, u32 fit, u64 demand,
				 u16 *reason)
{
	struct usher_cid USHER_MEM *c = &u->cids[s->q.from];
	struct usher_shard USHER_MEM *shard = &u->shards[c->shard];
	u64 idle = usher_shard_idle(u, shard);
	s32 cid;

	/* 11. prev's whole core. */
	if (fit >> (c->tier & 31) & 1 && (idle & c->core) == c->core) {
		*reason = USHER_PREV_CORE;
		if (usher_claim_bit(u, shard, 1ULL << (c->bit & 63)))
			return s->q.from;
		env_count(u, s->q.self, USHER_EV_CLAIM_LOST);
	}
	if (!idle && !usher_somebody_idle(u))
		return USHER_NONE_IDLE;

	env_count(u, s->q.self, USHER_EV_SEARCH_LLC);
	/* 12. */
	cid = usher_place_light(u, s, fit, demand, reason);
	if (cid >= 0)
		return cid;

	/* 13 to 15. */
	cid = usher_search_fit(u, s, fit);
	if (cid >= 0 && !(fit >> (u->cids[cid].tier & 31) & 1))
		*reason = USHER_UNFIT;
	else
		*reason = s->core ? USHER_FIT_CORE : USHER_FIT_CPU;
	return cid;
}

/*
 * All steps but 1 where CPUs differ. s->q is the request's, and from where to start; kind is its wake, and above that its
 * hints. It does not take the request, which would have to be in memory then on machines of equal CPUs as well.
 * Returns usher_pack().
 */
USHER_UNIT_COLD u32 usher_place_unequal(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR,
					u64 demand, u32 kind, u32 prev)
{
	struct usher_demand d = usher_unpack_demand(demand);
	struct usher_request r = {
		.allowed = s->q.allowed,
		.wake = kind & 0xff,
		.prev = prev,
		.waker = s->q.self,
		.hints = kind >> 8,
	};
	u32 fit = usher_tiers_fit(u, &d), from = s->q.from;
	s32 cid = USHER_NONE_IDLE;
	u16 reason = USHER_QUEUED;

	s->rest = u->tiers & ~fit;
	if (s->q.tiers) {
		fit &= s->q.tiers;
		s->rest &= s->q.tiers;
	}
	s->q.tiers = fit;
	if (fit && kind)
		cid = usher_place_special(u, &r, s, from, &reason);
	if (cid < 0) {
		s->q.from = from;
		cid = usher_place_fit(u, s, fit, demand, &reason);
	}
	if (cid < 0)
		return usher_pack(usher_place_queue(u, &r, from));
	return usher_pack(usher_decide(cid, reason, true));
}

/* The decision of usher_place(), not yet counted. */
USHER_INLINE struct usher_decision usher_place_steps(struct usher USHER_MEM *u,
						 const struct usher_request *r)
{
	struct usher_search s = {
		.q = { .allowed = r->allowed, .tiers = r->tiers, .self = r->waker },
	};
	s32 from = usher_place_from(u, r), cid;
	u16 reason;

	if (from < 0)
		return usher_decide(r->prev, USHER_NOWHERE, false);

	/* 1. One allowed CPU. */
	if (r->allowed && r->nr_allowed == 1) {
		cid = usher_set_first(u, r->allowed);
		return usher_decide(cid, USHER_PINNED, usher_test_and_clear(u, cid));
	}

	/*
	 * CPUs of different capacity: all that equal ones pay for it is this test. Of a value known to be 0 gcc makes
	 * use further down, which costs more than the test, so it hears that it is not 1.
	 */
	if (__builtin_expect(env_asymmetric(u) == 1, 0)) {
		s.q.from = from;
		return usher_unpack(usher_place_unequal(u, &s, usher_pack_demand(r->demand), r->wake | r->hints << 8,
							r->prev));
	}

	/* The wish of the task, and 2. Asked at once: a plain wakeup without wishes pays nothing for others. */
	if (__builtin_expect(r->wake | r->hints, 0)) {
		cid = usher_place_special(u, r, &s, from, &reason);
		if (cid >= 0)
			return usher_decide(cid, reason, true);
	}

	/* 3 to 9. */
	s.q.from = from;
	if (u->soon_ns && !r->allowed && r->wake != USHER_WAKE_FORK)
		s.q.flags = USHER_PATIENT;
	cid = usher_place_llc(u, &s, true, &reason);
	if (cid < 0 && reason != USHER_QUEUED)
		cid = usher_place_far(u, &s, &reason);
	if (cid >= 0)
		return usher_decide(cid, reason, true);

	return usher_place_queue(u, r, from);
}

/* Where should this task run? r->prev and r->waker are cids of the machine. */
USHER_INLINE struct usher_decision usher_place(struct usher USHER_MEM *u, const struct usher_request *r)
{
	struct usher_decision d = usher_place_steps(u, r);

	d.poke = u->cpus[r->waker].poke;
	u->cpus[r->waker].reasons[d.reason < USHER_NR_REASONS ? d.reason : 0]++;
	return d;
}

/* An idle CPU that should come and take somebody, near q->from, now claimed, or USHER_NONE_IDLE. near: of that LLC. */
USHER_UNIT s32 usher_look_for(struct usher USHER_MEM *u USHER_UNIT_MEM, const struct usher_query *q USHER_UNIT_PTR, bool near)
{
	struct usher_search s = { .q = *q };
	u16 reason;
	s32 cid;

	s.q.flags = near ? USHER_NEAR : 0;
	cid = usher_place_llc(u, &s, false, &reason);

	if (cid < 0 && reason != USHER_QUEUED)
		cid = usher_place_far(u, &s, &reason);
	return cid;
}

/*
 * A task was put into the queue of q->from and announced by usher_queue_fill(): an idle CPU
 * that should come and take it, now claimed, or USHER_NONE_IDLE. Test: idle_against_queue.
 */
USHER_FN s32 usher_look(struct usher USHER_MEM *u, const struct usher_query *q)
{
	return usher_look_for(u, q, u->soon_ns && !q->allowed && !usher_queue_for_all(u, u->cids[q->from].queue));
}

/*
 * Because of self somebody may wait beside an idle CPU (struct usher_cpu.poke): self cleared a bit
 * of a summary or of the backlog that it then had to restore, and somebody may have looked
 * meanwhile; or self was claimed to fetch a task and runs another. Hosts call this at the end of
 * every callback that searches, takes from a queue or leaves idle. Returns an idle CPU to send to
 * the queues, claimed, or USHER_NONE_IDLE; the look itself may have cleared and restored, so poke
 * may be set again afterwards. A CPU sent this way looks again when it leaves idle, so that one is
 * enough for any number of waiting tasks. Tests: look_against_retire, two_tasks_against_retire,
 * take_against_look.
 */
USHER_UNIT s32 usher_rescue(struct usher USHER_MEM *u USHER_UNIT_MEM, u32 self)
{
	struct usher_query q = { .from = self, .self = self };
	bool all;
	s32 cid;

	if (!u->cpus[self].poke)
		return USHER_NONE_IDLE;
	u->cpus[self].poke = 0;
	all = usher_work_for_all(u);
	if (!all && !usher_work_near(u, self))
		return USHER_NONE_IDLE;
	cid = usher_look_for(u, &q, !all);
	if (cid >= 0)
		env_count(u, self, USHER_EV_RESCUED);
	return cid;
}

#endif
