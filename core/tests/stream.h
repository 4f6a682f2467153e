/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A stream of operations on the core, the same wherever it runs: every environment that replays a
 * stream must come to the same decisions for the same reasons, and so to the same hash.
 *
 * To be included behind core/src/core.c. One step is one operation, drawn by a generator from the
 * stream's own state: three in five place a task, the others let CPUs go idle and get busy, fill
 * queues and take from them, look for a greater CPU or for one to preempt, give way, ask the node-aware calls. The
 * machine's load changes with the steps, from nearly idle to wholly busy, so that all steps of a decision have
 * their time. Everything that a call returns goes into the hash.
 *
 * Numbers are drawn in statements of their own: C leaves the order within one to the compiler.
 *
 * What the host answers, the lengths of queues, is part of the stream: the includer makes
 * env_queued() read usher_stream.queued.
 */
#ifndef USHER_STREAM_H
#define USHER_STREAM_H

#define USHER_STREAM_LOAD_SHIFT 13 /* steps for which the load stays as it is, as a power of two */
#define USHER_STREAM_QUEUE 2	   /* tasks that wait in a queue at most; half of the time per CPU: */
#define USHER_STREAM_QUEUE_LONG 6
#define USHER_STREAM_PRIME 0x100000001b3ULL

struct usher_stream {
	u64 random; /* state of the generator; the seed at first */
	u64 hash;   /* of everything returned so far */
	u64 steps;  /* operations done */
	u64 placed; /* of those, requests to place a task */
	u64 vtime;  /* of the task placed last */
	u64 now_ns; /* the clock of what runs */
	u64 USHER_MEM *queued; /* per queue: tasks waiting there */
	struct usher_burst burst; /* of one task that runs on all CPUs by turns, */
	struct usher_util util;	  /* ... how much it does, */
	struct usher_pair pair;	  /* ... and whom it wakes */
	struct usher_follow follow; /* of one that is woken from other LLCs */
	struct usher_set allowed;
	struct usher_set found;
};

/* The next number of the generator (splitmix64). */
USHER_FN u64 usher_stream_next(struct usher_stream USHER_MEM *s)
{
	u64 z = s->random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* A number below n, which is neither 0 nor above 2^32. */
USHER_FN u32 usher_stream_below(struct usher_stream USHER_MEM *s, u32 n)
{
	return (usher_stream_next(s) >> 32) * n >> 32;
}

USHER_FN void usher_stream_note(struct usher_stream USHER_MEM *s, u64 value)
{
	s->hash = (s->hash ^ value) * USHER_STREAM_PRIME;
	s->hash ^= s->hash >> 29;
}

/* The cids from first to first + nr - 1 join the allowed set. */
USHER_FN void usher_stream_allow(struct usher USHER_MEM *u, struct usher_stream USHER_MEM *s, u32 first, u32 nr)
{
	u32 i;

	for (i = 0; i < nr && env_again(u); i = env_next(u, i)) {
		u32 cid = first + i;

		s->allowed.word[(cid / 64) & (USHER_MAX_WORDS - 1)] |= 1ULL << (cid % 64);
	}
}

/*
 * Draws an allowed set: one CPU (now and then none), an LLC or a queue's CPUs, a node, two LLCs, or every CPU with
 * even chance. Returns how many cids it has.
 */
USHER_UNIT u32 usher_stream_draw_set(struct usher USHER_MEM *u USHER_UNIT_MEM,
				     struct usher_stream USHER_MEM *s USHER_UNIT_MEM)
{
	u32 kind = usher_stream_below(s, 8), words = (u->nr_cids + 63) / 64, n = 0, w;

	for (w = 0; w < words && env_again(u); w = env_next(u, w))
		s->allowed.word[w & (USHER_MAX_WORDS - 1)] = 0;
	if (kind == 0) {
		u32 cid = usher_stream_below(s, u->nr_cids);

		usher_stream_allow(u, s, cid, usher_stream_below(s, 16) != 0);
	} else if (kind == 4) {
		struct usher_queue USHER_MEM *queue = &u->queues[usher_stream_below(s, u->nr_queues)];

		usher_stream_allow(u, s, queue->first_cid, queue->nr_cids);
	} else if (kind < 4) {
		struct usher_llc USHER_MEM *llc = &u->llcs[usher_stream_below(s, u->nr_llcs)];

		usher_stream_allow(u, s, llc->first_cid, llc->nr_cids);
		if (kind == 1) {
			llc = &u->llcs[usher_stream_below(s, u->nr_llcs)];
			usher_stream_allow(u, s, llc->first_cid, llc->nr_cids);
		}
	} else if (kind == 5) {
		struct usher_node USHER_MEM *node = &u->nodes[usher_stream_below(s, u->nr_nodes)];

		usher_stream_allow(u, s, node->first_cid, node->nr_cids); /* nobody, if it has memory only */
	} else {
		for (w = 0; w < words && env_again(u); w = env_next(u, w)) {
			u64 valid = w * 64 + 64 <= u->nr_cids ? ~0ULL : (1ULL << (u->nr_cids % 64)) - 1;

			s->allowed.word[w & (USHER_MAX_WORDS - 1)] = usher_stream_next(s) & valid;
		}
	}
	for (w = 0; w < words && env_again(u); w = env_next(u, w))
		n += env_ones(s->allowed.word[w & (USHER_MAX_WORDS - 1)]);
	return n;
}

/* A task waits in the queue of cid, and somebody may come for it. */
USHER_FN void usher_stream_queue(struct usher USHER_MEM *u, struct usher_stream USHER_MEM *s, u32 cid, u32 self,
				 const struct usher_set USHER_MEM *allowed)
{
	struct usher_query q = { .allowed = allowed, .from = cid, .self = self };
	struct usher_turn wants = { .at_ns = s->now_ns, .weight = usher_stream_below(s, 200) };
	u32 queue = u->cids[cid].queue, most = USHER_STREAM_QUEUE, early = 0;
	u64 joins;

	if (s->steps >> (USHER_STREAM_LOAD_SHIFT + 2) & 1)
		most = USHER_STREAM_QUEUE_LONG * u->queues[queue].nr_cids;
	s->vtime = usher_vtime_enter(u, s->vtime, queue);
	usher_stream_note(s, s->vtime);
	if (s->steps & 1)
		early = usher_vtime_early(u, s->vtime, queue);
	joins = usher_vtime_before(u, s->vtime, early);
	usher_stream_note(s, joins);
	if (s->steps & 1)
		usher_vtime_slept(u, joins, queue);
	usher_queue_fill(u, queue, allowed != NULL);
	wants.vtime = usher_vtime_after(u, joins, early);
	usher_stream_note(s, usher_turn_cut(u, &q, &wants, early));
	usher_stream_note(s, usher_hand(u, self, queue, 1 + s->placed));
	usher_stream_note(s, usher_look(u, &q));
	usher_stream_note(s, usher_look_later(u, self, queue, allowed));
	if (s->queued[queue] < most)
		s->queued[queue]++; /* else it thinks better of it, lest queues never run empty */
}

/* What a task asks of its CPU, as usher_pack_demand() has it: now and then clamped. */
USHER_UNIT u64 usher_stream_demand(struct usher_stream USHER_MEM *s USHER_UNIT_MEM)
{
	u64 draw = usher_stream_next(s), demand = draw % 1025;

	if (!(draw >> 16 & 7))
		demand |= (draw >> 20 & 1023) << 16;
	if (!(draw >> 32 & 7))
		demand |= (draw >> 36 & 1023) << 32;
	return demand | (u64)usher_periods(s->now_ns) << 48;
}

/* cid begins to run a task of some class. */
USHER_UNIT u64 usher_stream_runs(struct usher USHER_MEM *u USHER_UNIT_MEM,
				 struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	usher_preempt_runs(u, cid, usher_stream_below(s, USHER_CRITICAL + 1));
	return 0;
}

/*
 * A task wakes or is born. Returns where it is placed, who woke it, whether that CPU was claimed and whether its set of
 * allowed CPUs was drawn, as usher_stream_placed() takes them.
 */
USHER_UNIT u64 usher_stream_place(struct usher USHER_MEM *u USHER_UNIT_MEM,
				  struct usher_stream USHER_MEM *s USHER_UNIT_MEM)
{
	u64 draw = usher_stream_next(s);
	struct usher_request r = {
		.wake = draw % 8 < 4 ? USHER_WAKE : draw % 8 < 6 ? USHER_WAKE_SYNC : USHER_WAKE_FORK,
		.nr_allowed = u->nr_cids,
	};
	struct usher_decision d;

	r.prev = usher_stream_below(s, u->nr_cids);
	r.waker = usher_stream_below(s, u->nr_cids);
	r.demand = usher_unpack_demand(usher_stream_demand(s));
	if (!(draw >> 8 & 7))
		r.tiers = draw >> 16 & 3;
	if (!(draw >> 20 & 7))
		r.hints = draw >> 40 & (draw >> 48 & 1 ? USHER_FORK_AFFINE | USHER_WAKE_HOLD : USHER_FORK_SPREAD | USHER_WAKE_AFFINE);
	if (!(draw >> 24 & 3)) {
		r.nr_allowed = usher_stream_draw_set(u, s);
		r.allowed = &s->allowed;
	}
	d = usher_place(u, &r);
	usher_stream_note(s, (u64)d.cid << 32 | (u64)d.reason << 16 | (u64)d.claimed << 8 | d.poke);
	if (r.hints)
		usher_settle(u, draw >> 56 & 1 ? u->cids[r.prev].llc : USHER_NO_LLC, u->cids[d.cid].llc);
	return (u64)!!r.allowed << 33 | (u64)d.claimed << 32 | r.waker << 16 | d.cid;
}

/* What was placed runs, mostly, or waits; a function of its own, since either needs stack. */
USHER_UNIT u64 usher_stream_placed(struct usher USHER_MEM *u USHER_UNIT_MEM,
				   struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u64 placed)
{
	u32 cid = (u16)placed, waker = (u16)(placed >> 16);

	if (!(placed >> 32 & 1)) {
		usher_stream_queue(u, s, cid, waker, placed >> 33 ? &s->allowed : NULL);
	} else if (usher_stream_below(s, 8)) {
		usher_idle_exit(u, cid);
		usher_stream_runs(u, s, cid);
	} else {
		usher_stream_note(s, usher_claimed(u, cid) << 1 | usher_idle_again(u, cid));
	}
	s->placed++;
	return 0;
}

/* A task that found nobody idle looks for a CPU to preempt; there it runs. */
USHER_UNIT u64 usher_stream_preempt(struct usher USHER_MEM *u USHER_UNIT_MEM,
				    struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	struct usher_burst b = { .ns = s->burst.ns, .average_ns = s->burst.average_ns };
	struct usher_query q = { .from = cid, .self = cid };
	u64 draw = usher_stream_next(s);
	u32 class;
	s32 taken;

	if (!(draw & 15))
		usher_burst_born(u, &b);
	usher_burst_ran(&b, usher_stream_next(s) % (4 * u->slice_ns), draw >> 8 & 1);
	s->burst.ns = b.ns;
	s->burst.average_ns = b.average_ns;
	if (draw >> 48 & 1) {
		struct usher_demand d = { .util = usher_stream_below(s, 1024) };

		q.tiers = usher_tiers_first(u, &d);
	}
	class = usher_class(u, &b, 1 + usher_stream_below(s, 2000), !(draw >> 16 & 7));
	usher_stream_note(s, class);
	if (!(draw >> 24 & 3)) {
		usher_stream_draw_set(u, s);
		q.allowed = &s->allowed;
	}
	/* Only the highest class preempts: half of those who look are made to have it. */
	if (draw >> 32 & 1)
		class = USHER_CRITICAL;
	if (draw >> 40 & 3)
		taken = usher_preempt(u, &q, class);
	else
		taken = usher_preempt_pinned(u, usher_stream_below(s, u->nr_cids), cid, class);
	usher_stream_note(s, taken);
	if (taken >= 0)
		usher_stream_runs(u, s, taken);
	return 0;
}

/* cid runs the task that wanders, for a while. Returns what it uses then. */
USHER_UNIT u64 usher_stream_ran(struct usher USHER_MEM *u USHER_UNIT_MEM,
				struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	struct usher_util t = { .at_ns = s->util.at_ns, .average = s->util.average, .settled = s->util.settled };
	u64 draw = usher_stream_next(s), ran_ns = usher_stream_below(s, 40000000) >> (draw >> 12 & 7);

	if (!(draw & 15))
		t.at_ns = 0;
	s->now_ns += ran_ns + (draw >> 4 & 7 ? 0 : usher_stream_below(s, 1u << 30));
	usher_util_ran(u, &t, cid, s->now_ns, ran_ns);
	if (draw >> 8 & 1)
		usher_util_slept(&t);
	s->util.at_ns = t.at_ns;
	s->util.average = t.average;
	s->util.settled = t.settled;
	return usher_util_now(&t, s->now_ns + usher_stream_below(s, 1u << 30));
}

/* A task of the first cid is woken from cid, for most of a while always from the same LLC. */
USHER_UNIT u64 usher_stream_follow(struct usher USHER_MEM *u USHER_UNIT_MEM,
				   struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	struct usher_follow kept;
	u64 draw = usher_stream_next(s);
	struct usher_request r = {
		.wake = draw & 63 ? USHER_WAKE_SYNC : USHER_WAKE,
		.waker = s->steps >> 8 & 1 ? u->nr_cids - 1 : cid,
		.hints = draw >> 6 & 31 ? 0 : USHER_WAKE_HOLD,
	};

	if (!usher_from_elsewhere(u, &r))
		return 0;
	kept.sleeps = s->follow.sleeps;
	kept.llc = s->follow.llc;
	kept.times = s->follow.times;
	kept.node_times = s->follow.node_times;
	kept.home = s->follow.home;
	usher_follow(u, &r, &kept, kept.sleeps + (draw >> 11 & 63 ? 1 : 2 + (draw >> 17 & 7)));
	usher_stream_note(s, r.wake << 16 | r.prev);
	s->follow.sleeps = kept.sleeps;
	s->follow.llc = kept.llc;
	s->follow.times = kept.times;
	s->follow.node_times = kept.node_times;
	s->follow.home = kept.home;
	return kept.node_times << 8 | kept.home;
}

/* Whether the task that wanders, and asks, leaves its partner somewhere. */
USHER_UNIT u64 usher_stream_apart(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_stream USHER_MEM *s USHER_UNIT_MEM,
				  struct usher_pair *asks USHER_UNIT_PTR, u32 cid)
{
	struct usher_pair answers = { .partner = usher_stream_below(s, 4) };

	usher_stream_note(s, usher_pair_apart(u, cid, asks, &answers, usher_stream_below(s, u->nr_cids)));
	return 0;
}

/* The task that wanders begins on cid, and wakes another one, mostly the same; then it sleeps or gives way. */
USHER_UNIT u64 usher_stream_pair(struct usher USHER_MEM *u USHER_UNIT_MEM,
				 struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	struct usher_pair asks = {
		.partner = s->pair.partner,
		.asked_ns = s->pair.asked_ns,
		.apart_ns = s->pair.apart_ns,
		.beside_ns = s->pair.beside_ns,
		.paused = s->pair.paused,
		.sure = s->pair.sure,
		.chosen = s->pair.chosen,
		.way = s->pair.way,
		.way_before = s->pair.way_before,
		.settled = s->pair.settled,
		.sooner = s->pair.sooner,
	};
	struct usher_turn turn = { .vtime = s->vtime, .at_ns = s->now_ns };
	u64 draw = usher_stream_next(s), first;
	u32 gives = USHER_GIVES_NOT, paused = asks.paused + (draw >> 43 & 7 ? 1 : 2);
	bool sure;

	turn.weight = 1 + (draw & 127);
	usher_turn_begin(u, cid, &turn);
	s->now_ns += draw >> 8 & 0x1ffff;
	sure = usher_pair_asks(u, cid, &asks, draw >> 25 & 31 ? 1 : 2, paused, s->now_ns);
	if (!(draw >> 30 & 31))
		sure = usher_pair_asks(u, cid, &asks, 1, paused, s->now_ns);
	usher_stream_note(s, sure);
	usher_stream_note(s, usher_pair_answers(&asks, 1));
	usher_stream_apart(u, s, &asks, cid);
	if (sure && draw >> 35 & 3) {
		turn.at_ns = s->now_ns;
		turn.vtime = usher_vtime_enter(u, s->vtime, u->cids[cid].queue);
		turn.weight = draw >> 37 & 127;
		first = turn.vtime - usher_stream_next(s) % (8 * u->slice_ns);
		gives = usher_pair_gives_way(u, cid, &asks, &turn, draw >> 44 & 1 ? first : 0);
		usher_stream_note(s, gives);
	}
	if (gives == USHER_GIVES_LATER) {
		struct usher_request r = { .waker = cid, .nr_allowed = u->nr_cids, .hints = draw >> 45 & USHER_WAKE_HOLD };
		struct usher_decision d = usher_pair_beside(u, &r);

		usher_stream_note(s, (u64)d.cid << 32 | (u64)d.reason << 16 | (u64)d.claimed << 8 | d.poke);
		if (d.claimed)
			usher_idle_exit(u, d.cid);
	}
	if (draw >> 62 & 1)
		usher_pair_woke(u, cid, s->now_ns + (draw >> 45 & 0x7fff));
	if (usher_pair_asked(u, cid))
		usher_pair_sleeps(u, cid, &asks, s->now_ns + (draw >> 45 & 0x1ffff));
	usher_stream_note(s, asks.sure);
	usher_stream_note(s, asks.apart_ns << 32 ^ asks.beside_ns);
	s->pair.partner = asks.partner;
	s->pair.asked_ns = asks.asked_ns;
	s->pair.apart_ns = asks.apart_ns;
	s->pair.beside_ns = asks.beside_ns;
	s->pair.paused = asks.paused;
	s->pair.sure = asks.sure;
	s->pair.chosen = asks.chosen;
	s->pair.way = asks.way;
	s->pair.way_before = asks.way_before;
	s->pair.settled = asks.settled;
	s->pair.sooner = asks.sooner;
	return 0;
}

/* Whether a task of the queue suits cid better than the first. */
USHER_UNIT u64 usher_stream_instead(struct usher USHER_MEM *u USHER_UNIT_MEM,
				    struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	struct usher_demand d = usher_unpack_demand(usher_stream_demand(s));
	u64 later_ns = usher_stream_next(s) % (2 * u->slice_ns);

	usher_stream_note(s, usher_take_instead(u, cid, s->vtime, s->vtime + later_ns, &d));
	return 0;
}

/* cid's task has run for a while and may need a greater CPU. */
USHER_UNIT u64 usher_stream_misfit(struct usher USHER_MEM *u USHER_UNIT_MEM,
				   struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	struct usher_request r = { .prev = cid, .waker = cid, .nr_allowed = u->nr_cids };
	s32 to;

	r.demand = usher_unpack_demand(usher_stream_demand(s));
	r.demand.util = usher_stream_ran(u, s, cid);
	usher_stream_note(s, r.demand.util);
	if (!usher_stream_below(s, 4)) {
		usher_stream_draw_set(u, s);
		r.allowed = &s->allowed;
	}
	to = usher_misfit(u, &r);
	usher_stream_note(s, to);
	if (to >= 0)
		usher_idle_exit(u, to);
	return 0;
}

/* cid's task may share its core. */
USHER_UNIT u64 usher_stream_crowd(struct usher USHER_MEM *u USHER_UNIT_MEM,
				  struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	struct usher_request r = { .prev = cid, .waker = cid, .nr_allowed = u->nr_cids };
	u64 draw = usher_stream_next(s);
	u64 now_ns = s->now_ns + draw % (16 * u->slice_ns);
	s32 to;

	usher_stream_note(s, usher_crowded(u, cid, now_ns));
	if (u->smt == 1)
		return 0;
	r.hints = draw >> 32 & USHER_WAKE_HOLD;
	if (draw >> 48 & 1) {
		usher_stream_draw_set(u, s);
		r.allowed = &s->allowed;
	}
	to = usher_uncrowd(u, &r, now_ns);
	usher_stream_note(s, to);
	if (to >= 0)
		usher_idle_exit(u, to);
	return 0;
}

/* cid asks for the task that was handed to it, if one was, and whether that goes before another one. */
USHER_FN void usher_stream_handed(struct usher USHER_MEM *u, struct usher_stream USHER_MEM *s, u32 cid,
				  const struct usher_turn *wants)
{
	u64 draw = usher_stream_next(s), task = usher_handed(u, cid), first = wants->vtime - draw % (8 * u->slice_ns);
	bool promised = usher_promised(u, draw >> 32 & 63, 1 + s->placed - (draw >> 40 & 15));

	usher_stream_note(s, task);
	usher_stream_note(s, promised);
	usher_stream_note(s, usher_take_handed(u, cid, first, wants, promised || draw >> 48 & 1));
}

/* A CPU without work goes through the queues, and idles if it finds nothing. */
USHER_UNIT u64 usher_stream_take(struct usher USHER_MEM *u USHER_UNIT_MEM,
				 struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	struct usher_walk walk = { .cid = cid };
	struct usher_turn begins;
	u32 ran_ns, weight;
	bool behind;
	s32 queue;

	usher_stream_note(s, usher_late_look(u, cid));
	usher_stream_note(s, usher_pinned_first(u, cid, s->vtime, s->vtime + (s->now_ns & 3) * 4096 - 4096));
	while (env_again(u)) {
		queue = usher_walk_next(u, &walk);
		usher_stream_note(s, queue);
		if (queue < 0)
			break;
		if (!s->queued[queue]) {
			usher_stream_note(s, usher_queue_retire(u, queue, cid));
			continue;
		}
		s->queued[queue]--;
		usher_queue_taken(u, cid, queue);
		usher_idle_exit(u, cid);
		usher_stream_runs(u, s, cid);
		ran_ns = usher_stream_below(s, 4000000);
		weight = 1 + usher_stream_below(s, 10000);
		begins.vtime = s->vtime;
		begins.at_ns = s->now_ns;
		begins.weight = weight % 200;
		usher_turn_begin(u, cid, &begins);
		usher_stream_handed(u, s, cid, &begins);
		s->now_ns += ran_ns;
		usher_stream_note(s, usher_queue_overdue(u, cid, s->now_ns));
		if (!(ran_ns & 0xf00))
			usher_stream_note(s, usher_queue_deserted(u, cid));
		behind = usher_clock_behind(u, s->vtime, queue, s->now_ns);
		usher_stream_note(s, behind);
		if (behind)
			usher_clock_advance(u, s->vtime, queue, ran_ns & 2 ? s->vtime - ran_ns : 0, s->now_ns);
		s->vtime = usher_vtime_charge(u, s->vtime, cid, ran_ns, weight);
		if (ran_ns & 4)
			s->vtime = usher_vtime_sleep(u, s->vtime, queue);
		usher_stream_note(s, usher_rescue(u, cid));
		usher_stream_note(s, usher_vtime_due(u, s->vtime, u->queues[queue].clock->now, queue, weight, ran_ns & 1));
		usher_stream_note(s, usher_balance(u, cid));
		usher_stream_note(s, usher_queue_again(u, cid, cid, s->now_ns));
		return 1;
	}
	usher_stream_note(s, usher_idle_enter(u, cid));
	usher_stream_note(s, usher_misfit_call(u, cid));
	return 0;
}

/* A node-aware call. */
USHER_UNIT u64 usher_stream_node(struct usher USHER_MEM *u USHER_UNIT_MEM,
				 struct usher_stream USHER_MEM *s USHER_UNIT_MEM, u32 cid)
{
	u64 draw = usher_stream_next(s);
	u32 node = usher_stream_below(s, u->nr_nodes + 1), w;
	struct usher_query q = { .flags = draw & (USHER_IDLE_CORE | USHER_IN_NODE), .from = cid, .self = cid };

	usher_stream_note(s, usher_cpu_node(u, usher_stream_below(s, u->nr_cpu_ids + 1)));
	if (draw >> 8 & 1) {
		usher_stream_draw_set(u, s);
		q.allowed = &s->allowed;
	}
	if (draw >> 16 & 1)
		usher_stream_note(s, usher_pick_idle_node(u, &q, node));
	else
		usher_stream_note(s, usher_pick_any_node(u, &q, node));
	if (draw >> 24 & 15)
		return 0;
	for (w = 0; w < USHER_MAX_WORDS && env_again(u); w = env_next(u, w))
		s->found.word[w & (USHER_MAX_WORDS - 1)] = 0;
	usher_stream_note(s, usher_idle_set_node(u, node, draw >> 32 & 1, &s->found));
	for (w = 0; w < USHER_MAX_WORDS && env_again(u); w = env_next(u, w))
		usher_stream_note(s, s->found.word[w & (USHER_MAX_WORDS - 1)]);
	return 0;
}

/* One operation. */
USHER_FN void usher_stream_step(struct usher USHER_MEM *u, struct usher_stream USHER_MEM *s)
{
	/* Of the CPUs that are looked at, how many at once have nothing to run: one load after the other. */
	u32 lull = 1u << (s->steps >> USHER_STREAM_LOAD_SHIFT & 3), i;
	u32 what = usher_stream_below(s, 32);
	u32 cid = usher_stream_below(s, u->nr_cids);

	s->steps++;
	if (what < 19) {
		usher_stream_placed(u, s, usher_stream_place(u, s));
	} else if (what == 19) {
		usher_stream_node(u, s, cid);
	} else if (what == 20) {
		usher_stream_note(s, usher_test_and_clear(u, cid));
	} else if (what == 21) {
		usher_idle_exit(u, cid);
	} else if (what == 22) {
		usher_stream_preempt(u, s, cid);
		usher_stream_pair(u, s, cid);
		for (i = 0; i < 16 && env_again(u); i = env_next(u, i))
			usher_stream_note(s, usher_stream_follow(u, s, cid));
	} else if (what == 23) {
		usher_stream_misfit(u, s, cid);
		usher_stream_instead(u, s, cid);
		usher_stream_crowd(u, s, cid);
	} else {
		for (i = 0; i < lull && env_again(u); i = env_next(u, i))
			usher_stream_take(u, s, usher_stream_below(s, u->nr_cids));
	}
}

#endif
