/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Following: a task that only CPUs of one other node wake goes there.
 *
 * A sync wakeup brings no task to another node (place.c, step 2): its memory would stay behind. But whom nobody else ever wakes gets all that
 * it works on from there, with a line per message between the nodes, and would stay for as long as CPUs idle where it is. A
 * crowd that starts at once comes to that: who finds the node full is put elsewhere, and what put it there is over soon.
 *
 * So a task that was woken so many times in a row by sync wakeups from one other node, whenever it slept, is placed as if it had run where
 * its waker does. One that somebody of its own node wakes now and then, a timer, or a third node stays. So does one that holds
 * (hint.c). The host keeps a struct usher_follow per task, and says how often the task has slept.
 */
#ifndef USHER_FOLLOW_C
#define USHER_FOLLOW_C

#include "../include/usher/usher.h"
#include "idle.c"

#define USHER_FOLLOW_TIMES 16

/* Whether a wakeup is of the kind that counts: then usher_follow(). Before a host looks for what it keeps of the task. */
USHER_FN bool usher_from_afar(struct usher USHER_MEM *u, const struct usher_request *r)
{
	return r->wake == USHER_WAKE_SYNC && u->cids[r->waker].node != u->cids[r->prev].node && !(r->hints & USHER_WAKE_HOLD);
}

/*
 * The cid to place a task by that was woken from afar: prev, or the waker's. sleeps is how often it has slept in its life; it may
 * wrap. Another wakeup between two of these shows as more than one sleep.
 */
USHER_FN u32 usher_follow(struct usher USHER_MEM *u, const struct usher_request *r, struct usher_follow *kept, u32 sleeps)
{
	u32 node = u->cids[r->waker].node;
	bool again = kept->node == node && sleeps - kept->sleeps == 1;

	kept->node = node;
	kept->sleeps = sleeps;
	kept->times = again ? kept->times + 1 : 1;
	if (kept->times < USHER_FOLLOW_TIMES || (r->allowed && !usher_set_has(r->allowed, r->waker)))
		return r->prev;
	kept->times = 0;
	env_count(u, r->waker, USHER_EV_FOLLOWED);
	return r->waker;
}

#endif
