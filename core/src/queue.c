/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues: which one a CPU looks into, who is next in it, and how nobody is left waiting.
 *
 * There is a queue per LLC, ordered by virtual time, and one per CPU for tasks that may run nowhere
 * else. The host keeps the queues themselves; the core decides. A wide LLC has several, each of some of its CPUs (struct usher_spec): who
 * puts in or takes out holds the queue's lock, and a hundred CPUs whose tasks sleep and wake all the time do little but wait for one.
 *
 * The backlog has a bit per queue and node: somebody may be waiting in that queue. Where who waits runs soon the bit is in another word, which only
 * CPUs of the node's LLCs read, each those of its own (pace.c). Both are kept like
 * the idle summary: set eagerly by whoever fills the queue, cleared lazily by whoever found it
 * empty, with a look again behind a full barrier. It lets a CPU without work pass over empty queues
 * without touching them.
 *
 * No task waits beside an idle CPU that looks into its queue, because both sides publish first and look afterwards:
 *
 *   usher_queue_fill() then usher_look()     publish the task; barrier; look for an idle CPU
 *   usher_idle_look()                        publish the CPU;  barrier; look for a task
 *
 * In a kernel a task put into a queue by ops.enqueue() arrives there only after the callback has
 * returned. A CPU may look in between, find the queue empty and retire its bit. So the filling CPU
 * remembers the queue (usher_look_later()) and looks once more first of all at its next callback, at the
 * latest at the next tick of a task of ours or when a higher class there ends (usher_late_look()); until then the
 * task may wait beside an idle CPU. An idle CPU that fills a queue from an interrupt has no next callback and no
 * tick: it must be made to look for work itself.
 *
 * A queue's clock is the largest virtual time at which one of its tasks began to run, within bounds (usher_clock_advance()). Clocks of
 * different queues run at different speeds, so a virtual time means nothing elsewhere: its low 12
 * bits name the queue whose clock it is in, and it is carried over as a distance from that clock.
 */
#ifndef USHER_QUEUE_C
#define USHER_QUEUE_C

#include "../include/usher/usher.h"
#include "idle.c"
#include "pace.c"
#include "place.c"

#define USHER_BALANCE_FAR 8		/* one of so many looks of usher_balance() goes to another node */
#define USHER_QUEUE_CROWDED 16		/* tasks waiting per CPU from which on sleeping earns nothing; less than it does from USHER_QUEUE_LONG on */
#define USHER_VTIME_QUEUE 0xfffULL	/* the bits of a virtual time that name a queue */
#define USHER_VTIME_BIRTH (1ULL << 40)	/* where clocks start, so that nothing runs below zero */
#define USHER_VTIME_BEHIND_SLICES 16	/* how far behind its queue's clock a task may be, */
#define USHER_VTIME_AHEAD_SLICES 64	/* ... and how far ahead */
#define USHER_CLOCK_PART 8		/* a clock goes on in steps of at least this part of a slice, to keep its line quiet */

/* Whether v is the virtual time of a task that ran, and not of one that is new here. */
USHER_INLINE bool usher_vtime_known(struct usher USHER_MEM *u, u64 v)
{
	return v > USHER_VTIME_QUEUE && (v & USHER_VTIME_QUEUE) < u->nr_queues;
}

/* The virtual time that is lag away from now, the clock of queue, kept within bounds. */
USHER_INLINE u64 usher_vtime_near(struct usher USHER_MEM *u, u64 now, s64 lag, u32 queue)
{
	s64 ahead = USHER_VTIME_AHEAD_SLICES * u->slice_ns;
	s64 behind = USHER_VTIME_BEHIND_SLICES * u->slice_ns;

	if (lag > ahead)
		lag = ahead;
	if (lag < -behind)
		lag = -behind;
	return ((now + (u64)lag) & ~USHER_VTIME_QUEUE) | queue;
}

/* v in the clock of queue. A task that never ran (v is 0) starts at the clock. */
USHER_FN u64 usher_vtime_at(struct usher USHER_MEM *u, u64 v, u32 queue)
{
	u64 now = env_read(u, &u->queues[queue].clock->now);
	s64 lag = 0;

	if (usher_vtime_known(u, v))
		lag = (s64)(v - env_read(u, &u->queues[v & USHER_VTIME_QUEUE].clock->now));
	return usher_vtime_near(u, now, lag, queue);
}

/* Slices by which a task that goes on may get ahead of who waits: usher_vtime_due(). */
#define USHER_LEAD 2

/* The slices that a clock has to go on at most to come to its mark, */
#define USHER_CLOCK_RANGE (USHER_VTIME_AHEAD_SLICES + USHER_VTIME_BEHIND_SLICES)
/* ... which is so many beyond the last who waits, as one that slept may join by so many before the clock. */
#define USHER_CLOCK_BEYOND (1 + 2 * USHER_LEAD)

/* No turn is cut to less than this part of a slice, */
#define USHER_CUT_PART 32
/* ... nor to less than this one for a task that only comes first because it joins early: usher_turn_cut(). */
#define USHER_CUT_EARLY_PART 2

/* A task joins early by so many parts of a slice, this part of it each: usher_vtime_early(). */
#define USHER_EARLY_PART 8
#define USHER_EARLY_MOST ((1 + USHER_LEAD) * USHER_EARLY_PART)

/*
 * So many slices are what a task has for having slept, in a queue. Less where many wait: most of those slept, too, and to come
 * before them with little work each only has CPUs switch.
 */
USHER_INLINE u64 usher_vtime_earned(struct usher USHER_MEM *u, u64 slices, u32 queue)
{
	u64 most = slices * u->slice_ns, queued = env_queued(u, queue);
	u64 many = USHER_QUEUE_LONG * u->queues[queue].nr_cids, crowd = USHER_QUEUE_CROWDED * u->queues[queue].nr_cids;

	if (queued <= many)
		return most;
	return queued < crowd ? most * (crowd - queued) / (crowd - many) : 0;
}

/*
 * The virtual time from which a task is charged that joins a queue. One that slept is behind the clock by at most the
 * lead of who runs, so that it can end a turn: with more, those that slept long and have much to do hold up one that hardly sleeps, and
 * for which all of them may have waited. Who finds an idle CPU joins no queue, and keeps what usher_vtime_sleep() left it, and what the
 * clock went on since. A task that never ran begins a slice ahead: those born later come later, so that no storm of forks can hold back who
 * waits already.
 */
USHER_FN u64 usher_vtime_enter(struct usher USHER_MEM *u, u64 v, u32 queue)
{
	struct usher_clock USHER_MEM *clock = u->queues[queue].clock;
	u64 now = env_read(u, &clock->now), floor;

	if (!usher_vtime_known(u, v)) {
		v = usher_vtime_near(u, now, u->slice_ns, queue);
	} else {
		floor = now - usher_vtime_earned(u, USHER_LEAD, queue);
		v = usher_vtime_at(u, v, queue);
		if ((s64)(v - floor) < 0)
			v = (floor & ~USHER_VTIME_QUEUE) | queue;
	}
	if ((s64)(v - env_read(u, &clock->latest)) > 0)
		env_write(u, &clock->latest, v);
	return v;
}

/*
 * How early a task that slept joins a queue, in parts of a slice: before those that were put back at the end of
 * theirs, by a slice and the lead of who runs at most, so that it comes at the end of a slice. At v it would join otherwise, and
 * from there it is charged, so it gains no share. Not one that is ahead of the clock by more than a lead: that has had
 * its turn for now.
 */
USHER_FN u32 usher_vtime_early(struct usher USHER_MEM *u, u64 v, u32 queue)
{
	if ((s64)(v - env_read(u, &u->queues[queue].clock->now)) > (s64)(USHER_LEAD * u->slice_ns))
		return 0;
	return usher_vtime_earned(u, 1 + USHER_LEAD, queue) * USHER_EARLY_PART / u->slice_ns;
}

/* What early counts for in the virtual time of a queue, whose name it leaves alone. */
USHER_INLINE u64 usher_vtime_of_early(struct usher USHER_MEM *u, u32 early)
{
	return early * (u->slice_ns / USHER_EARLY_PART & ~USHER_VTIME_QUEUE);
}

/* Where in its queue a task waits that joins early and is charged from v, */
USHER_FN u64 usher_vtime_before(struct usher USHER_MEM *u, u64 v, u32 early)
{
	return v - usher_vtime_of_early(u, early);
}

/* ... and the reverse: from where one is charged that joined early, at v. */
USHER_FN u64 usher_vtime_after(struct usher USHER_MEM *u, u64 v, u32 early)
{
	return v + usher_vtime_of_early(u, early);
}

/*
 * A task that slept joins the queue at v, and so far leads end there with slices. Not for one that comes after a lead
 * anyhow: a light task may be far ahead, and would shorten everybody's turns for as long. Seldom a write, since who slept mostly
 * joins before others that did. Two CPUs may note theirs at once and the earlier win, or the task may be taken out of turn: then
 * a lead is held against it, or turns are short without need, until the queue has come so far.
 */
USHER_FN void usher_vtime_slept(struct usher USHER_MEM *u, u64 v, u32 queue)
{
	struct usher_clock USHER_MEM *clock = u->queues[queue].clock;

	if ((s64)(v - env_read(u, &clock->slept)) > 0 &&
	    (s64)(v - env_read(u, &clock->now)) <= (s64)(USHER_LEAD * u->slice_ns))
		env_write(u, &clock->slept, v);
}

/* What so much time counts for a task of this weight. */
USHER_INLINE u64 usher_vtime_ran(u64 ran_ns, u64 weight)
{
	return ran_ns * 100 / (weight ? weight : 1);
}

/* So many slices, as allowed to a task of this weight: in virtual time a heavier one has less of them, a lighter one no more. */
USHER_INLINE s64 usher_vtime_slices(struct usher USHER_MEM *u, u64 slices, u64 weight)
{
	return usher_vtime_ran(slices * u->slice_ns, weight > 100 ? weight : 100);
}

/*
 * Where the clock of a queue has to be by now, so that nobody waits for ever. Where tasks of great weight run, or hundreds for each CPU, virtual
 * time hardly passes, and who is far ahead of it would wait for a minute. The clock has half of u->patience_ns to come to a mark, beyond
 * all who waited when that was set; if it has not after half of that, it is moved on, evenly. So nobody waits for longer than it takes to
 * come to two marks, and then for those who came before.
 */
USHER_INLINE u64 usher_clock_least(struct usher USHER_MEM *u, struct usher_clock USHER_MEM *clock, u64 now, u64 now_ns)
{
	u64 part_ns = u->patience_ns / 4, step_ns = part_ns / (USHER_CLOCK_RANGE * USHER_CLOCK_PART);
	s64 late_ns = now_ns - env_read(u, &clock->mark_ns) - part_ns;

	if (late_ns <= 0)
		return now;
	if ((u64)late_ns >= part_ns)
		return env_read(u, &clock->mark);
	return env_read(u, &clock->mark) - (part_ns - late_ns) / step_ns * u->slice_ns / USHER_CLOCK_PART;
}

/* Whether the clock of queue is to go on, where a task that began at v stops now, or goes on: then usher_clock_advance(). */
USHER_FN bool usher_clock_behind(struct usher USHER_MEM *u, u64 v, u32 queue, u64 now_ns)
{
	struct usher_clock USHER_MEM *clock = u->queues[queue].clock;
	u64 now = env_read(u, &clock->now);

	return (s64)(usher_vtime_at(u, v, queue) - now) > (s64)(u->slice_ns / USHER_CLOCK_PART) ||
	       (s64)(usher_clock_least(u, clock, now, now_ns) - now) > 0;
}

/*
 * The clock of queue goes on to where a task began, at v. But no further than a lead beyond the first who waits, if that may not run where
 * the task does, and is charged from first (else 0): who may only run on some crowded CPUs of the queue would fall ever further behind those
 * who run alone on the others, and then all who sleep, and whatever is bounded by the clock, come after it there. Two CPUs may move it
 * at once and the smaller value win: the next repairs it.
 */
USHER_FN void usher_clock_advance(struct usher USHER_MEM *u, u64 v, u32 queue, u64 first, u64 now_ns)
{
	struct usher_clock USHER_MEM *clock = u->queues[queue].clock;
	u64 now = env_read(u, &clock->now), latest;
	s64 on = usher_vtime_at(u, v, queue) - now, most = first - now + USHER_LEAD * u->slice_ns;
	s64 least = usher_clock_least(u, clock, now, now_ns) - now;
	bool pushed;

	if (first && on > most)
		on = most;
	pushed = least > 0 && on < least;
	if (pushed)
		on = least;
	if (on > 0) {
		now = usher_vtime_near(u, now, on, queue);
		env_write(u, &clock->now, now);
	}
	if ((s64)(now - env_read(u, &clock->mark)) >= 0) {
		latest = env_read(u, &clock->latest);
		if ((s64)(latest - now) < 0)
			latest = now;
		env_write(u, &clock->mark, latest + USHER_CLOCK_BEYOND * u->slice_ns);
		env_write(u, &clock->mark_ns, now_ns);
		pushed = false;
	}
	if (pushed != env_read(u, &clock->pushed))
		env_write(u, &clock->pushed, pushed);
}

/*
 * The virtual time of a task of the given weight that began at v and ran ran_ns on cid. Virtual times go on in steps, and most turns of tasks
 * that wake each other are shorter than one: what is less than a step is left to the next task that stops there, lest such turns cost nothing. Where the
 * clock is pushed on, who runs does not stay behind it for longer than who joins.
 */
USHER_FN u64 usher_vtime_charge(struct usher USHER_MEM *u, u64 v, u32 cid, u64 ran_ns, u32 weight)
{
	u32 queue = u->cids[cid].queue;
	struct usher_clock USHER_MEM *clock = u->queues[queue].clock;
	u64 now = env_read(u, &clock->now), ran = u->cpus[cid].rest + usher_vtime_ran(ran_ns, weight);
	s64 lag = usher_vtime_at(u, v, queue) + (ran & ~USHER_VTIME_QUEUE) - now, least = -(s64)(USHER_LEAD * u->slice_ns);

	u->cpus[cid].rest = ran & USHER_VTIME_QUEUE;
	return usher_vtime_near(u, now, lag < least && env_read(u, &clock->pushed) ? least : lag, queue);
}

/* A task that goes to sleep leaves such a part behind of what it is behind. */
#define USHER_FORGET_PART 32

/*
 * The virtual time of a task that was charged, at v, and goes to sleep. Where it is behind the clock it could have run longer, but had no
 * more to do: of that it keeps all but a part, each time, and no more than it may be behind when it joins a queue. If all were kept, then
 * of a crowd that sleeps and wakes all the time who has run least would come first, whatever there is to do for it. That is who has just been
 * woken for one message, where one that waits a while finds many. And who slept seldom has hardly less of it.
 */
USHER_FN u64 usher_vtime_sleep(struct usher USHER_MEM *u, u64 v, u32 queue)
{
	u64 now = env_read(u, &u->queues[queue].clock->now);
	s64 behind = now - v, most = USHER_LEAD * u->slice_ns;

	if (behind <= 0)
		return v;
	behind -= behind / USHER_FORGET_PART;
	if (behind > most)
		behind = most;
	/* Down to a whole step: a step more with each sleep would be earned by sleeping often. */
	return usher_vtime_near(u, now, -(s64)(behind & ~USHER_VTIME_QUEUE), queue);
}

/* By how much who runs and has this weight may be ahead. */
USHER_INLINE s64 usher_vtime_lead(struct usher USHER_MEM *u, u64 weight)
{
	return usher_vtime_slices(u, USHER_LEAD, weight);
}

/*
 * Whether who comes next in queue, at first, goes before the running task, at v and of the given weight, whose
 * slice ended, or which yields. Not while that is behind all who wait, nor while it is ahead by less than its lead. Without a
 * lead tasks that never sleep take turns at every slice, and each finds the caches filled by another. A heavier task has less
 * of it, as its time counts for less. Who yields has none, nor has anybody while one waits that slept until it came: that one,
 * too, would wait for the leads of all before it.
 */
USHER_FN bool usher_vtime_due(struct usher USHER_MEM *u, u64 v, u64 first, u32 queue, u32 weight, bool yields)
{
	s64 ahead = usher_vtime_at(u, v, queue) - first;

	if (!yields && (s64)(env_read(u, &u->queues[queue].clock->slept) - first) < 0)
		return ahead >= usher_vtime_lead(u, weight);
	return ahead >= 0;
}

/* cid begins to run a task. For that CPU only. */
USHER_FN void usher_turn_begin(struct usher USHER_MEM *u, u32 cid, const struct usher_turn *begins)
{
	struct usher_turn USHER_MEM *turn = &u->cpus[cid].turn;

	usher_pace_turn(u, cid, begins->at_ns);
	env_write(u, &turn->vtime, begins->vtime);
	env_write(u, &turn->at_ns, begins->at_ns);
	env_write(u, &turn->weight, begins->weight ? begins->weight : 1);
	u->cpus[cid].asked = 0;
}

/* Whether the turn on cid has lasted so many slices. */
USHER_FN bool usher_turn_lasted(struct usher USHER_MEM *u, u32 cid, u64 now_ns, u64 slices)
{
	return (s64)(now_ns - env_read(u, &u->cpus[cid].turn.at_ns)) >= (s64)(slices * u->slice_ns);
}

/*
 * Whether a weight is less than another, by a tenth at least: a nice value makes a fifth of difference, and tasks of groups that have
 * about as much as they are to have weigh a little more or less all the time.
 */
USHER_INLINE bool usher_weighs_less(u64 weight, u64 other)
{
	return weight * 10 <= other * 9;
}

/* By how much the turn on cid, of a task of this weight, which has lasted for so long, is ahead of who waits at v. */
USHER_INLINE s64 usher_turn_ahead(struct usher USHER_MEM *u, u32 cid, u64 weight, u64 ran_ns, u64 v)
{
	s64 ahead = usher_vtime_at(u, env_read(u, &u->cpus[cid].turn.vtime), u->cids[cid].queue) - v;

	return ahead + (s64)usher_vtime_ran(ran_ns, weight);
}

/* Whether the turn on cid ends for a task that slept and joined so early, unless it was cut just now and ends anyhow. */
USHER_FN bool usher_turn_ends(struct usher USHER_MEM *u, u32 cid, const struct usher_turn *wants, u32 early)
{
	struct usher_turn USHER_MEM *turn = &u->cpus[cid].turn;
	u64 weight = env_read(u, &turn->weight), ran_ns = wants->at_ns - env_read(u, &turn->at_ns);

	if (!weight || usher_weighs_less(wants->weight, weight) || (s64)ran_ns < (s64)(u->slice_ns / USHER_CUT_PART) ||
	    wants->at_ns - env_read(u, &u->cpus[cid].cut_ns) < u->slice_ns / USHER_CUT_PART)
		return false;
	if (ran_ns < u->slice_ns / USHER_CUT_EARLY_PART)
		early = 0;
	return usher_turn_ahead(u, cid, weight, ran_ns, usher_vtime_before(u, wants->vtime, early)) >= usher_vtime_lead(u, weight);
}

/*
 * A task that slept has joined the queue of q->from while nobody was idle: whose turn ends now and not with its slice. That
 * on q->from, where it would run; or else, where as many wait as the queue has CPUs, that on the next of them, if q lets it go there: of
 * several that wake on one CPU at once the first begins its turn there, or will once the turn that was cut has ended, and the
 * others would wait for it beside one that has lasted. A turn ends where at its end the task would go first, unless it has only begun,
 * lest CPUs do nothing but switch, and never for a task of less weight. The task is charged from wants->vtime, and waits so much
 * earlier. What is read may be of two turns, and a CPU may be between two: then a turn is cut that need not be, or one is not that
 * should, and the task waits for the end of a slice. Returns the CPU, or USHER_NONE_IDLE.
 */
USHER_FN s32 usher_turn_cut(struct usher USHER_MEM *u, const struct usher_query *q, const struct usher_turn *wants, u32 early)
{
	u32 queue = u->cids[q->from].queue, cid = q->from;
	struct usher_queue USHER_MEM *at = &u->queues[queue];

	if (!usher_turn_ends(u, cid, wants, early)) {
		if (q->flags & USHER_HERE || env_queued(u, queue) < at->nr_cids)
			return USHER_NONE_IDLE;
		cid = cid + 1 < at->first_cid + at->nr_cids ? cid + 1 : at->first_cid;
		if ((q->allowed && !usher_set_has(q->allowed, cid)) || !usher_turn_ends(u, cid, wants, early))
			return USHER_NONE_IDLE;
	}
	env_write(u, &u->cpus[cid].cut_ns, wants->at_ns);
	env_count(u, q->self, USHER_EV_TURN_CUT);
	return cid;
}

/*
 * self wakes a task and says that it is about to sleep, and the task waits in queue. If that is self's own, the task is
 * handed to self: of two that wake each other in turn one runs there at a time, and finds the caches that it left. The task's
 * name is not 0. True: so it was.
 */
USHER_FN bool usher_hand(struct usher USHER_MEM *u, u32 self, u32 queue, u64 task)
{
	if (u->cids[self].queue != queue)
		return false;
	env_write(u, &u->cpus[self].handed, task);
	return true;
}

/* The task that was handed to cid last, if it was not asked for since. It may have been taken elsewhere. For that CPU only. */
USHER_FN u64 usher_handed(struct usher USHER_MEM *u, u32 cid)
{
	u64 task = env_read(u, &u->cpus[cid].handed);

	if (task)
		env_write(u, &u->cpus[cid].handed, 0);
	return task;
}

/* Whether task was handed to cid, and cid has yet to ask for it. */
USHER_FN bool usher_promised(struct usher USHER_MEM *u, u32 cid, u64 task)
{
	return cid < u->nr_cids && env_read(u, &u->cpus[cid].handed) == task;
}

/*
 * Slices by which a task may come after the first of its queue and be taken before it by the CPU that it was handed to: as many as a
 * turn lasts; and if the first is promised to another CPU, which is about to take it, more than those are apart that slept.
 */
#define USHER_HANDED_SOON 1
#define USHER_HANDED_BESIDE (2 + USHER_LEAD)

/*
 * Whether cid takes a task that was handed to it, and waits in its queue at wants->vtime, before the first there. The time of a
 * heavier one counts for less.
 */
USHER_FN bool usher_take_handed(struct usher USHER_MEM *u, u32 cid, u64 first, const struct usher_turn *wants, bool promised)
{
	u64 slices = promised ? USHER_HANDED_BESIDE : USHER_HANDED_SOON;

	if ((s64)(wants->vtime - first) > usher_vtime_slices(u, slices, wants->weight))
		return false;
	env_count(u, cid, USHER_EV_HANDED);
	return true;
}

/*
 * Tasks bound to one CPU wait in its own queue, all others in that of several, by the same clock. Whether cid takes from its own first: who is
 * first there waits at own, and at shared the first of the others who may run here (0: none that the host has seen). Of two at the same
 * time, and where nobody was seen, by turns, so that neither queue can starve the other.
 */
USHER_FN bool usher_pinned_first(struct usher USHER_MEM *u, u32 cid, u64 own, u64 shared)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[cid];

	if (shared && own != shared)
		return (s64)(own - shared) < 0;
	me->pinned_last = !me->pinned_last;
	return me->pinned_last;
}

/* Announces a task in queue; bound: it may not run everywhere. A full barrier: what follows may look for idle CPUs. */
USHER_FN void usher_queue_fill(struct usher USHER_MEM *u, u32 queue, bool bound)
{
	u64 USHER_MEM *waits_ns = &u->queues[queue].clock->waits_ns;

	env_barrier(u);
	if (bound && u->soon_ns && !env_read(u, waits_ns))
		env_write(u, waits_ns, 1);
	usher_queue_announce(u, queue, bound);
}

/*
 * Takes the bits of queue away. Clear, full barrier (in the fetch), look again, announce anew; pairs with usher_queue_fill(). While the
 * bits were clear a CPU going idle may have overlooked the queue: usher_rescue(). all: if it was for all it is so again. True: somebody
 * waits there.
 */
USHER_FN bool usher_queue_withdraw(struct usher USHER_MEM *u, u32 queue, u32 self, bool all)
{
	struct usher_queue USHER_MEM *at = &u->queues[queue];
	bool near = usher_queue_near(u, queue), far = usher_queue_for_all(u, queue);

	if (far)
		env_fetch_and(u, at->backlog, ~at->backlog_bit);
	if (near)
		env_fetch_and(u, at->near, ~at->backlog_bit);
	if ((!far && !near) || !env_queued(u, queue))
		return false;
	usher_queue_announce(u, queue, all && far);
	u->cpus[self].poke = 1;
	return true;
}

/*
 * self found nothing to take in queue: if it is empty, it is taken out of the backlog. True: somebody has come
 * to the empty queue. Who waited there when self found nothing may not run here, so self need not go through
 * the queue again; who came since then is found by usher_idle_enter(). Tests: idle_against_queue,
 * two_tasks_against_retire.
 */
USHER_FN bool usher_queue_retire(struct usher USHER_MEM *u, u32 queue, u32 self)
{
	u64 USHER_MEM *waits_ns = &u->queues[queue].clock->waits_ns;

	if (env_queued(u, queue))
		return false;
	if (u->soon_ns && env_read(u, waits_ns))
		env_write(u, waits_ns, 0);
	env_count(u, self, USHER_EV_BACKLOG_RETIRED);
	if (!usher_queue_withdraw(u, queue, self, true))
		return false;
	env_count(u, self, USHER_EV_BACKLOG_RESTORED);
	return true;
}

/*
 * self took a task of queue: perhaps the last, or who is left runs soon now, and is no longer for all. That only a CPU of its LLC says, which
 * looks on behalf of the others there. Test: eased_against_idle.
 */
USHER_FN void usher_queue_eased(struct usher USHER_MEM *u, u32 queue, u32 self)
{
	struct usher_queue USHER_MEM *at = &u->queues[queue];
	u64 USHER_MEM *waits_ns = &at->clock->waits_ns;

	if (!u->soon_ns)
		return;
	if (env_read(u, waits_ns) && !env_queued(u, queue))
		env_write(u, waits_ns, 0);
	if (u->cids[self].llc == at->llc && usher_queue_for_all(u, queue) && usher_queue_soon(u, queue))
		usher_queue_withdraw(u, queue, self, false);
}

/*
 * At a tick of cid: if somebody waits in its queue, and did all the time since a tick before, from now on it is for all. Returns an
 * idle CPU to send there, claimed, or USHER_NONE_IDLE. Test: overdue_against_idle.
 */
USHER_FN s32 usher_queue_overdue(struct usher USHER_MEM *u, u32 cid, u64 now_ns)
{
	u32 queue = u->cids[cid].queue;
	struct usher_queue USHER_MEM *at = &u->queues[queue];
	struct usher_query q = { .from = cid, .self = cid };
	u64 since;

	if (!usher_queue_near(u, queue) || usher_queue_for_all(u, queue) || !env_queued(u, queue))
		return USHER_NONE_IDLE;
	since = env_read(u, &at->clock->waits_ns);
	if (!since)
		env_write(u, &at->clock->waits_ns, now_ns);
	if (!since || (s64)(now_ns - since) < USHER_OVERDUE_NS)
		return USHER_NONE_IDLE;
	usher_queue_announce(u, queue, true);
	env_count(u, cid, USHER_EV_OVERDUE);
	return usher_look(u, &q);
}

/*
 * self fills queue with a task that arrives only after the callback, and that may run on
 * the allowed CPUs (NULL: on all; the set stays until then). usher_late_look() comes back to it, before self fills
 * another queue. True: self is idle, and the host makes it look for work, lest no callback comes.
 */
USHER_FN bool usher_look_later(struct usher USHER_MEM *u, u32 self, u32 queue,
			       const struct usher_set USHER_MEM *allowed)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[self];

	me->look = queue + 1;
	me->look_allowed = allowed;
	return me->idle;
}

/*
 * At a callback after one that filled a queue: by now the task has arrived there, whatever was seen
 * before. Returns an idle CPU to send, claimed, or USHER_NONE_IDLE. Test: idle_against_queue.
 */
USHER_FN s32 usher_late_look(struct usher USHER_MEM *u, u32 self)
{
	struct usher_cpu USHER_MEM *me = &u->cpus[self];
	u32 queue = me->look - 1;
	struct usher_query q = { .allowed = me->look_allowed, .self = self };
	s32 cid;

	if (!me->look)
		return USHER_NONE_IDLE;
	me->look = 0;
	if (queue >= u->nr_queues || !env_queued(u, queue))
		return USHER_NONE_IDLE;
	usher_queue_fill(u, queue, me->look_allowed != NULL);
	q.from = u->queues[queue].first_cid;
	cid = usher_look(u, &q);
	if (cid >= 0)
		env_count(u, self, USHER_EV_LATE_LOOK);
	return cid;
}

/*
 * cid goes out of service. It may be the last of its queue, and then nobody there is free soon: who waits is for all from now on. Returns an
 * idle CPU to send there, claimed, or USHER_NONE_IDLE. The host begins no turn of cid afterwards, before it is back.
 */
USHER_FN s32 usher_queue_deserted(struct usher USHER_MEM *u, u32 cid)
{
	u32 queue = u->cids[cid].queue;
	struct usher_query q = { .from = cid, .self = cid };

	if (!u->soon_ns)
		return USHER_NONE_IDLE;
	env_write(u, &u->queues[queue].clock->gap_ns, 0);
	if (!usher_queue_near(u, queue))
		return USHER_NONE_IDLE;
	usher_queue_announce(u, queue, true);
	return usher_look(u, &q);
}

/* Where a CPU without work looks: its own queue, then the others of its LLC, then its node's, then by distance. */
struct usher_walk {
	u32 cid;
	u32 near; /* queues of its LLC that had their turn */
	u32 step; /* of the order of nodes */
	u32 word; /* of the node's backlog that comes next */
	u64 bits; /* of the word before it, not yet visited */
};

/* The next queue that may have a task, or USHER_NONE_IDLE. */
USHER_FN s32 usher_walk_next(struct usher USHER_MEM *u, struct usher_walk *walk)
{
	struct usher_cid USHER_MEM *c = &u->cids[walk->cid];
	struct usher_llc USHER_MEM *llc = &u->llcs[c->llc];
	u32 USHER_MEM *order = u->nodes[c->node].order;

	while (walk->step < u->nr_nodes && env_again(u)) {
		struct usher_node USHER_MEM *node = &u->nodes[order[walk->step]];

		if (walk->near < llc->nr_queues) {
			u32 queue = llc->first_queue + (c->queue - llc->first_queue + walk->near) % llc->nr_queues;

			walk->near = env_next(u, walk->near);
			if (usher_queue_for_all(u, queue) || usher_queue_near(u, queue))
				return queue;
		} else if (walk->bits) {
			u32 queue = node->first_queue + (walk->word - 1) * 64 + env_lowest(walk->bits);

			walk->bits &= walk->bits - 1;
			if (u->queues[queue].llc != c->llc)
				return queue;
		} else if (walk->word * 64 < node->nr_queues) {
			walk->bits = env_read(u, &node->backlog[walk->word]);
			walk->word = env_next(u, walk->word);
		} else {
			walk->step = env_next(u, walk->step);
			walk->word = 0;
		}
	}
	return USHER_NONE_IDLE;
}

/*
 * Queues are kept about as long as each other, for what the CPUs of each do: where
 * the slice of a task ends on self, self looks at one other, now and then of another node.
 * Returns it if its queue is so much longer that self should take from there, or USHER_NONE_IDLE.
 */
USHER_FN s32 usher_balance(struct usher USHER_MEM *u, u32 self)
{
	struct usher_cid USHER_MEM *c = &u->cids[self];
	struct usher_queue USHER_MEM *own = &u->queues[c->queue], *other;
	struct usher_node USHER_MEM *node = &u->nodes[c->node];
	u32 turn = u->cpus[self].balance_turn++, far = turn / USHER_BALANCE_FAR, queue;
	u64 ours, theirs, times = 5;

	if (u->nr_nodes > 1 && turn % USHER_BALANCE_FAR == 0) {
		node = &u->nodes[node->order[1 + far % (u->nr_nodes - 1)]];
		turn = far / (u->nr_nodes - 1);
		times = 8;
	} else {
		turn -= far;
	}
	if (!node->nr_queues)
		return USHER_NONE_IDLE;
	queue = node->first_queue + turn % node->nr_queues;
	other = &u->queues[queue];
	if (queue == c->queue || !(env_read(u, other->backlog) & other->backlog_bit))
		return USHER_NONE_IDLE;
	/* With who ran here until now: longer by a quarter, in another node twice as long. */
	ours = env_queued(u, c->queue) + 1;
	theirs = env_queued(u, queue);
	return theirs * own->power * 4 > ours * other->power * times ? (s32)queue : USHER_NONE_IDLE;
}

/*
 * In which queue a task waits that may run anywhere, and is put back where its turn on cid ends. If that has lasted a slice it is, by turns
 * by self's count, each of the LLC's, but none that is longer than cid's own would be. Queues are kept about as long as each other whatever
 * waits there: else who came to one among heavy tasks would stay there, and get less than its like in the next.
 */
USHER_FN u32 usher_queue_again(struct usher USHER_MEM *u, u32 self, u32 cid, u64 now_ns)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];
	struct usher_llc USHER_MEM *llc = &u->llcs[c->llc];
	u32 own = c->queue, other;

	if (llc->nr_queues == 1 || !usher_turn_lasted(u, cid, now_ns, 1))
		return own;
	other = llc->first_queue + u->cpus[self].shorter_turn++ % llc->nr_queues;
	/* With the task itself, whose CPU has taken another one. */
	return env_queued(u, other) * u->queues[own].power > (env_queued(u, own) + 1) * u->queues[other].power ? own : other;
}

/* A task of queue was taken by cid. */
USHER_FN void usher_queue_taken(struct usher USHER_MEM *u, u32 cid, u32 queue)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];

	usher_queue_eased(u, queue, cid);
	if (c->llc == u->queues[queue].llc)
		env_count(u, cid, USHER_EV_STEAL_LLC);
	else if (c->node == u->queues[queue].node)
		env_count(u, cid, USHER_EV_STEAL_NODE);
	else
		env_count(u, cid, USHER_EV_STEAL_REMOTE);
}

#endif
