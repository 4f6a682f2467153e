/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues: which one a CPU looks into, who is next in it, and how nobody is left waiting.
 *
 * There is a queue per LLC, ordered by virtual time, and one per CPU for tasks that may run nowhere else.
 * The host keeps the queues themselves; the core decides.
 *
 * The backlog has a bit per LLC and node: somebody may be waiting in that queue. It is kept like the idle
 * summary: set eagerly by whoever fills the queue, cleared lazily by whoever found it empty, with a look
 * again behind a full barrier. It lets a CPU without work pass over empty queues without touching them.
 *
 * No task waits beside an idle CPU, because both sides publish first and look afterwards:
 *
 *   usher_queue_fill() then usher_look()     publish the task; barrier; look for an idle CPU
 *   usher_idle_publish()                     publish the CPU;  barrier; look for a task
 *
 * In a kernel a task put into a queue by ops.enqueue() arrives there only after the callback has returned.
 * A CPU may look in between, find the queue empty and retire its bit. So the filling CPU remembers the queue
 * (usher_look_later()) and looks once more at its next callback, at the latest at its next tick
 * (usher_late_look()); until then the task may wait beside an idle CPU. An idle CPU that fills a queue from
 * an interrupt has no next callback and no tick: it must be made to look for work itself.
 *
 * A queue's clock is the largest virtual time at which one of its tasks began to run. Clocks of different
 * LLCs run at different speeds, so a virtual time means nothing elsewhere: its low 12 bits name the LLC
 * whose clock it is in, and it is carried over as a distance from that clock.
 */
#ifndef USHER_QUEUE_C
#define USHER_QUEUE_C

#include "../include/usher/usher.h"
#include "idle.c"

#define USHER_VTIME_LLC 0xfffULL	/* the bits of a virtual time that name an LLC */
#define USHER_VTIME_BIRTH (1ULL << 40)	/* where clocks start, so that nothing runs below zero */
#define USHER_VTIME_LAG_SLICES 16	/* how far ahead or behind a task may be when it changes queues */

/* v in the clock of llc. A task that never ran (v is 0) starts at the clock. */
USHER_FN u64 usher_vtime_at(struct usher USHER_MEM *u, u64 v, u32 llc)
{
	u32 from = v & USHER_VTIME_LLC;
	u64 now = env_read(u, u->llcs[llc].vtime_now);
	s64 lag = 0, limit = USHER_VTIME_LAG_SLICES * u->slice_ns;

	if (v > USHER_VTIME_LLC && from < u->nr_llcs) {
		if (from == llc)
			return v;
		lag = (s64)(v - env_read(u, u->llcs[from].vtime_now));
		if (lag > limit)
			lag = limit;
		if (lag < -limit)
			lag = -limit;
	}
	return ((now + (u64)lag) & ~USHER_VTIME_LLC) | llc;
}

/* The virtual time at which a task joins the queue of llc: sleeping earns it one slice at most. */
USHER_FN u64 usher_vtime_enter(struct usher USHER_MEM *u, u64 v, u32 llc)
{
	u64 floor = env_read(u, u->llcs[llc].vtime_now) - u->slice_ns;

	v = usher_vtime_at(u, v, llc);
	if ((s64)(v - floor) < 0)
		v = (floor & ~USHER_VTIME_LLC) | llc;
	return v;
}

/*
 * The virtual time of a task of the given weight that began at v and ran ran_ns in llc. Moves the queue's
 * clock, in steps of an eighth of a slice, to keep its line quiet. Two CPUs may move it at once and the
 * smaller value win: the next charge repairs it.
 */
USHER_FN u64 usher_vtime_charge(struct usher USHER_MEM *u, u64 v, u32 llc, u64 ran_ns, u32 weight)
{
	u64 USHER_MEM *now = u->llcs[llc].vtime_now;

	v = usher_vtime_at(u, v, llc);
	if ((s64)(v - env_read(u, now)) > (s64)(u->slice_ns / 8))
		env_write(u, now, v);
	v += ran_ns * 100 / (weight ? weight : 1);
	return (v & ~USHER_VTIME_LLC) | llc;
}

/*
 * Tasks bound to one CPU wait in its own queue, all others in the LLC's. A CPU takes from both in turn, so
 * that neither can starve the other. True: the own queue first.
 */
USHER_FN bool usher_pinned_turn(struct usher USHER_MEM *u, u32 cid)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[cid];

	me->pinned_last = !me->pinned_last;
	return me->pinned_last;
}

/* Announces a task in the queue of llc. A full barrier: what follows may look for idle CPUs. */
USHER_FN void usher_queue_fill(struct usher USHER_MEM *u, u32 llc)
{
	struct usher_llc USHER_MEM *l = &u->llcs[llc];

	env_barrier(u);
	if (!(env_read(u, l->backlog) & l->backlog_bit))
		env_fetch_or(u, l->backlog, l->backlog_bit);
}

/*
 * self found nothing to take in the queue of llc: if it is empty, take its bit out of the backlog. Clear, full
 * barrier (in the fetch), look again, restore; pairs with usher_queue_fill(). While the bit was clear a CPU
 * going idle may have overlooked the queue: usher_rescue(). True: somebody is there after all, perhaps a task that may not
 * run here. Tests: idle_against_queue, two_tasks_against_retire.
 */
USHER_FN bool usher_queue_retire(struct usher USHER_MEM *u, u32 llc, u32 self)
{
	struct usher_llc USHER_MEM *l = &u->llcs[llc];

	if (env_queued(u, llc))
		return true;
	env_fetch_and(u, l->backlog, ~l->backlog_bit);
	env_count(u, self, USHER_EV_BACKLOG_RETIRED);
	if (!env_queued(u, llc))
		return false;
	env_fetch_or(u, l->backlog, l->backlog_bit);
	u->cpus[self].poke = 1;
	env_count(u, self, USHER_EV_BACKLOG_RESTORED);
	return true;
}

/*
 * self fills the queue of llc with a task that arrives only after the callback, and that may run on the allowed
 * CPUs (NULL: on all). usher_late_look() comes back to it; the set may change until then, which at worst
 * sends the wrong CPU. True: self is idle, and the host makes it look for work, lest no callback comes.
 */
USHER_FN bool usher_look_later(struct usher USHER_MEM *u, u32 self, u32 llc,
			       const struct usher_set USHER_MEM *allowed)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[self];

	me->look = llc + 1;
	me->look_allowed = allowed;
	return me->idle;
}

/* Where a CPU without work looks: the queue of its own LLC, then its node's, then by distance. */
struct usher_walk {
	u32 cid;
	u32 own;  /* the own LLC had its turn */
	u32 step; /* of the order of nodes */
	u32 word; /* of the node's backlog that comes next */
	u64 bits; /* of the word before it, not yet visited */
};

/* The next LLC whose queue may have a task, or USHER_NONE_IDLE. */
USHER_FN s32 usher_walk_next(struct usher USHER_MEM *u, struct usher_walk *walk)
{
	struct usher_cid USHER_MEM *c = &u->cids[walk->cid];
	struct usher_llc USHER_MEM *own = &u->llcs[c->llc];
	u32 USHER_MEM *order = u->nodes[c->node].order;

	if (!walk->own) {
		walk->own = 1;
		if (env_read(u, own->backlog) & own->backlog_bit)
			return c->llc;
	}
	while (walk->step < u->nr_nodes && env_again(u)) {
		struct usher_node USHER_MEM *node = &u->nodes[order[walk->step]];

		if (walk->bits) {
			u32 llc = node->first_llc + (walk->word - 1) * 64 + env_lowest(walk->bits);

			walk->bits &= walk->bits - 1;
			if (llc != c->llc)
				return llc;
		} else if (walk->word * 64 < node->nr_llcs) {
			walk->bits = env_read(u, &node->backlog[walk->word]);
			walk->word++;
		} else {
			walk->step++;
			walk->word = 0;
		}
	}
	return USHER_NONE_IDLE;
}

/* A task of llc's queue was taken by cid. */
USHER_FN void usher_queue_taken(struct usher USHER_MEM *u, u32 cid, u32 llc)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];

	if (c->llc == llc)
		env_count(u, cid, USHER_EV_STEAL_LLC);
	else if (u->llcs[llc].node == c->node)
		env_count(u, cid, USHER_EV_STEAL_NODE);
	else
		env_count(u, cid, USHER_EV_STEAL_REMOTE);
}

#endif
