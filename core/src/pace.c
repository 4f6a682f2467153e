/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How soon somebody runs who waits in a queue, and whether CPUs of other LLCs take from it.
 *
 * Who goes to another LLC leaves its caches behind, and fetches from there whatever it shares with others. Where turns take 40 us, one of a
 * queue's 16 CPUs is free every 2.5 us, and to wait for that costs less than to go. If every CPU elsewhere that has nothing to do took
 * somebody, a crowd whose tasks sleep and wake all the time would be scattered over the machine, and its wakers would search all of it for the
 * few who idle for a moment.
 *
 * So of every queue the mean time from one turn of its CPUs to the next is kept. If that, for each who waits there and one more, is less than
 * u->soon_ns, who waits there runs soon. Then searches go no further than the LLC, and CPUs of others do not look into the queue. Not so for
 * a newborn, who leaves nothing behind; nor for one that may not run everywhere, since the CPUs that are free all the time may not be its
 * own. Where CPUs differ u->soon_ns is 0, since one that is free may be too weak; so it is with one LLC, as nobody is elsewhere. Nor is anybody left to
 * few CPUs: of those one long turn makes much of the mean wrong.
 *
 * Turns may grow longer all at once, and who has had more than others comes after them for longer than the mean. So a queue that was not
 * empty at any moment between two ticks is for all, until it is.
 */
#ifndef USHER_PACE_C
#define USHER_PACE_C

#include "../include/usher/usher.h"

#define USHER_PACE_PART 16	 /* of the mean, what a CPU says counts for such a part, */
#define USHER_PACE_MOST 2	 /* ... and is no more than so many times u->soon_ns */
#define USHER_OVERDUE_NS 1000000 /* between ticks that count; those of several CPUs may come at once */

/* cid begins another turn. Of two CPUs that say so at once one may not be heard. */
USHER_INLINE void usher_pace_turn(struct usher USHER_MEM *u, u32 cid, u64 now_ns)
{
	struct usher_queue USHER_MEM *queue = &u->queues[u->cids[cid].queue];
	u64 gap, mean;

	if (!queue->soon_ns)
		return;
	gap = (now_ns - env_read(u, &u->cpus[cid].turn.at_ns)) / queue->nr_cids;
	if (gap > USHER_PACE_MOST * u->soon_ns)
		gap = USHER_PACE_MOST * u->soon_ns;
	mean = env_read(u, &queue->clock->gap_ns);
	mean = mean ? mean - mean / USHER_PACE_PART + gap / USHER_PACE_PART : gap;
	env_write(u, &queue->clock->gap_ns, mean ? mean : 1);
}

/* Whether one more who waits in queue runs soon. */
USHER_FN bool usher_queue_soon(struct usher USHER_MEM *u, u32 queue)
{
	struct usher_queue USHER_MEM *at = &u->queues[queue];
	u64 gap;

	if (!at->soon_ns || env_read(u, &at->clock->waits_ns))
		return false;
	gap = env_read(u, &at->clock->gap_ns);
	return gap && gap < at->soon_ns && (env_queued(u, queue) + 1) * gap < at->soon_ns;
}

/* Whether CPUs of other LLCs look into queue. */
USHER_INLINE bool usher_queue_for_all(struct usher USHER_MEM *u, u32 queue)
{
	struct usher_queue USHER_MEM *at = &u->queues[queue];

	return env_read(u, at->backlog) & at->backlog_bit;
}

/* Whether only those of its own do. */
USHER_INLINE bool usher_queue_near(struct usher USHER_MEM *u, u32 queue)
{
	struct usher_queue USHER_MEM *at = &u->queues[queue];

	return u->soon_ns && env_read(u, at->near) & at->backlog_bit;
}

/* Somebody waits in queue: who looks there from now on? All, or those of its LLC. */
USHER_INLINE void usher_queue_announce(struct usher USHER_MEM *u, u32 queue, bool all)
{
	struct usher_queue USHER_MEM *at = &u->queues[queue];

	if (usher_queue_for_all(u, queue))
		return;
	if (all || !usher_queue_soon(u, queue))
		env_fetch_or(u, at->backlog, at->backlog_bit);
	else if (!usher_queue_near(u, queue))
		env_fetch_or(u, at->near, at->backlog_bit);
}

#endif
