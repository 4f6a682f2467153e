/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Placement hints: a program's wish where its children are born and where its tasks wake.
 *
 * A hint is about a last-level cache, and what it may ask for depends on how full that is: how many
 * hinted tasks live there, or how many of its cores are at work, whichever is more, against the
 * cores it has. Those who live there count while they sleep, too: servers that all sleep while the
 * next is born would otherwise end up in one LLC and meet there when they wake. A newborn lives
 * where it was placed from that moment on, so a burst of births sees itself. Tasks without hints
 * are seen at work only; they cost nothing here.
 *
 *   fork-affine  the parent's LLC while it has room, then the next of the node that has
 *   fork-spread  the LLC that is the least full, the nearest of those that are nearly so
 *   wake-affine  the waker's LLC, if a core is idle there now, and it has room or fewer live there than at prev
 *   wake-hold    the LLC of prev, where the wakeup's kind would have it leave
 *
 * Room is a whole idle core, and fewer inhabitants than cores. A hint that finds none lapses: the
 * task is placed as if without, and that is counted. The allowed set and the tiers hold all the
 * same. A hold also lapses where it keeps two partners apart, and spread ones come together: see usher_hold().
 *
 * Hosts tell who lives where: usher_settle() when a hinted task is placed at birth, gets its first
 * hint, moves to another LLC, loses its hints or ends. The counts are kept, not checked: whoever
 * settles a task twice makes its LLC look full.
 */
#ifndef USHER_HINT_C
#define USHER_HINT_C

#include "../include/usher/usher.h"
#include "idle.c"

/* A hinted task that lived in the LLC from now lives in the LLC to; USHER_NO_LLC: nowhere. */
#define USHER_NO_LLC (~0u)

USHER_FN void usher_settle(struct usher USHER_MEM *u, u32 from, u32 to)
{
	if (from == to)
		return;
	if (from < u->nr_llcs)
		env_fetch_add(u, u->llcs[from].settled, -1);
	if (to < u->nr_llcs)
		env_fetch_add(u, u->llcs[to].settled, 1);
}

/* How full an LLC is, in tasks; full at nr_cores. */
USHER_COLD u32 usher_fullness(struct usher USHER_MEM *u, u32 index)
{
	struct usher_llc USHER_MEM *llc = &u->llcs[index];
	u64 settled = env_read(u, llc->settled);
	u32 idle = usher_idle_cores(u, llc->first_shard, llc->nr_shards);
	u32 busy = idle < llc->nr_cores ? llc->nr_cores - idle : 0;

	return settled > busy ? (u32)settled : busy;
}

/* An idle core in an LLC, claimed. The search begins at s->q.from if that is there. */
USHER_COLD s32 usher_search_core_of(struct usher USHER_MEM *u, struct usher_search *s, u32 llc)
{
	if (u->cids[s->q.from].llc != llc)
		s->q.from = u->llcs[llc].first_cid;
	s->core = 1;
	return usher_search_llc(u, s);
}

/* The parent's LLC, then the others of the node in a circle. */
USHER_COLD s32 usher_fork_affine(struct usher USHER_MEM *u, struct usher_search *s)
{
	struct usher_cid USHER_MEM *parent = &u->cids[s->q.from];
	struct usher_node USHER_MEM *node = &u->nodes[parent->node];
	u32 llc = parent->llc, i;

	for (i = 0; i < node->nr_llcs && env_again(u); i = env_next(u, i)) {
		if (usher_fullness(u, llc) < u->llcs[llc].nr_cores) {
			s32 cid = usher_search_core_of(u, s, llc);

			if (cid >= 0)
				return cid;
		}
		if (++llc == node->first_llc + node->nr_llcs)
			llc = node->first_llc;
	}
	return USHER_NONE_IDLE;
}

/* Of all LLCs, nearest first, the least full for its cores; another must be better by a task. */
USHER_COLD s32 usher_fork_spread(struct usher USHER_MEM *u, struct usher_search *s)
{
	struct usher_cid USHER_MEM *parent = &u->cids[s->q.from];
	u32 USHER_MEM *order = u->nodes[parent->node].order;
	u32 best = parent->llc, n, i;
	u64 best_full = usher_fullness(u, best);

	for (n = 0; n < u->nr_nodes && env_again(u); n = env_next(u, n)) {
		struct usher_node USHER_MEM *node = &u->nodes[order[n]];

		for (i = 0; i < node->nr_llcs && env_again(u); i = env_next(u, i)) {
			u32 llc = node->first_llc + i;
			u64 full = usher_fullness(u, llc);

			if ((full + 1) * u->llcs[best].nr_cores <= best_full * u->llcs[llc].nr_cores) {
				best = llc;
				best_full = full;
			}
		}
	}
	return usher_search_core_of(u, s, best);
}

/* The birth of a hinted task: a CPU, claimed, or USHER_NONE_IDLE if the hint lapses. Changes s->q.from. */
USHER_UNIT_COLD s32 usher_hint_fork(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR,
			       u32 hints)
{
	s32 cid = hints & USHER_FORK_SPREAD ? usher_fork_spread(u, s) : usher_fork_affine(u, s);

	env_count(u, s->q.self, cid >= 0 ? USHER_EV_HINT_KEPT : USHER_EV_HINT_LAPSED);
	return cid;
}

/* Whether a task of the LLC from has a place in another: there is room, or fewer live there for its cores. */
USHER_FN bool usher_has_place(struct usher USHER_MEM *u, struct usher_llc USHER_MEM *llc, struct usher_llc USHER_MEM *from)
{
	u64 live = env_read(u, llc->settled);

	return live < llc->nr_cores || live * from->nr_cores < env_read(u, from->settled) * llc->nr_cores;
}

/*
 * A wakeup with wake-affine, of a task of the LLC of s->q.from, by a CPU of another: a core there, claimed, or USHER_NONE_IDLE. Where it
 * has no place it would take the core of one that sleeps, and will come back. Those that spreading parted from their only partner come
 * all the same. Changes s->q.from.
 */
USHER_UNIT_COLD s32 usher_hint_wake(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR,
			       u32 waker, u32 hints)
{
	struct usher_llc USHER_MEM *from = &u->llcs[u->cids[s->q.from].llc];
	s32 cid = USHER_NONE_IDLE;

	if (hints & USHER_FORK_SPREAD || usher_has_place(u, &u->llcs[u->cids[waker].llc], from)) {
		s->q.from = waker;
		s->core = 1;
		cid = usher_search_llc(u, s);
	}
	env_count(u, s->q.self, cid >= 0 ? USHER_EV_HINT_KEPT : USHER_EV_HINT_LAPSED);
	return cid;
}

/* Synchronous wakeups in a row from one other LLC that a hold withstands, and a birth far from the partner. */
#define USHER_HOLD_TIMES 16

/*
 * The hints to place a task by. A task that only ever answers one partner in another LLC pays for every message with
 * a line from there, and nobody else has a use for where it is: instead of holding, or staying where spreading put it, it
 * wakes beside its partner. One that many wake stays. *kept is the host's to keep for the task, 0 at first: who woke it last,
 * 1 + the LLC in the upper half, and how often in a row.
 */
USHER_FN u32 usher_hold(struct usher USHER_MEM *u, const struct usher_request *r, u32 *kept)
{
	u32 waker = u->cids[r->waker].llc, times;

	if (!(r->hints & (USHER_WAKE_HOLD | USHER_FORK_SPREAD)) || r->wake != USHER_WAKE_SYNC)
		return r->hints;
	if (waker == u->cids[r->prev].llc) {
		*kept = 0;
		return r->hints;
	}
	times = *kept >> 16 == waker + 1 ? *kept & 0xffff : 0;
	if (times < USHER_HOLD_TIMES) {
		*kept = (waker + 1) << 16 | (times + 1);
		return r->hints;
	}
	if (r->hints & USHER_WAKE_HOLD)
		env_count(u, r->waker, USHER_EV_HINT_LAPSED);
	return (r->hints & ~USHER_WAKE_HOLD) | USHER_WAKE_AFFINE;
}

#endif
