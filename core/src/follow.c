/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Following: a task goes home, to the LLC of its node whose CPUs wake it, and to another node that alone does.
 *
 * A sync wakeup brings a task to the waker's LLC, if a CPU idles there or no more wait there (place.c, steps 2 and 10). Of tasks that wake each
 * other, each wakeup moves one to where the other is, wherever that is: where nobody idles, a crowd that is scattered over the LLCs stays
 * so, and every move costs lines. So a task has a home: the LLC of the CPUs that woke it so many times in a row last, be it by sync
 * wakeups from another one or because nobody else did while it slept as often. Only from there a sync wakeup counts as one; from another
 * LLC of its node it is a plain one. Who was moved for want of an idle CPU, or taken from a queue, comes home with the first wakeup from there. Where
 * more of a crowd are, the home of more of them is, and so it comes together. A task that has no home yet goes along with anybody.
 *
 * A sync wakeup brings no task to another node while CPUs idle: its memory would stay behind. But whom nobody else ever wakes gets all that
 * it works on from there, with a line per message between the nodes, and would stay for as long as CPUs idle where it is. A
 * crowd that starts at once comes to that: who finds the node full is put elsewhere, and what put it there is over soon.
 *
 * So a task that was woken many times in a row by sync wakeups from one other node, whenever it slept, is placed as if it had run where
 * its waker does. One that somebody of its own node wakes now and then, a timer, or a third node stays. So does one that holds
 * (hint.c). The host keeps a struct usher_follow per task, and says how often the task has slept.
 */
#ifndef USHER_FOLLOW_C
#define USHER_FOLLOW_C

#include "../include/usher/usher.h"
#include "idle.c"

#define USHER_HOME_TIMES 4    /* wakeups in a row that make an LLC the home of a task */
#define USHER_FOLLOW_TIMES 16 /* wakeups in a row by which it follows to another node */

/* Whether a wakeup is of the kind that counts: then usher_follow(). Before a host looks for what it keeps of the task. */
USHER_FN bool usher_from_elsewhere(struct usher USHER_MEM *u, const struct usher_request *r)
{
	return r->wake == USHER_WAKE_SYNC && u->cids[r->waker].llc != u->cids[r->prev].llc && !(r->hints & USHER_WAKE_HOLD);
}

/* Counts such a wakeup. sleeps is how often the task has slept: another wakeup between two of these shows as more than one sleep. */
USHER_INLINE void usher_follow_woken(struct usher USHER_MEM *u, const struct usher_request *r, struct usher_follow *kept, u32 sleeps)
{
	struct usher_cid USHER_MEM *waker = &u->cids[r->waker], *prev = &u->cids[r->prev];
	u32 others = sleeps - kept->sleeps - 1;

	/* That one may have brought it here, where the others are. */
	if (others >= USHER_HOME_TIMES || (others && kept->llc == prev->llc && kept->times + others >= USHER_HOME_TIMES))
		kept->home = prev->llc + 1;
	if (others || kept->llc != waker->llc)
		kept->times = 0;
	if (others || u->llcs[kept->llc].node != waker->node)
		kept->node_times = 0;
	kept->sleeps = sleeps;
	kept->llc = waker->llc;
	if (kept->times < USHER_HOME_TIMES)
		kept->times++;
	if (kept->times == USHER_HOME_TIMES)
		kept->home = waker->llc + 1;
	if (waker->node != prev->node && kept->node_times < USHER_FOLLOW_TIMES)
		kept->node_times++;
}

/*
 * What becomes of the request of a task that was woken from elsewhere: a plain wakeup, if that was another LLC of its node than its home; and
 * by the waker's cid instead of prev, if it goes to that one's node. sleeps is how often it has slept in its life; it may wrap.
 */
USHER_FN void usher_follow(struct usher USHER_MEM *u, struct usher_request *r, struct usher_follow *kept, u32 sleeps)
{
	struct usher_cid USHER_MEM *waker = &u->cids[r->waker];

	usher_follow_woken(u, r, kept, sleeps);
	if (kept->home && kept->home != waker->llc + 1 && waker->node == u->cids[r->prev].node) {
		r->wake = USHER_WAKE;
		env_count(u, r->waker, USHER_EV_STAYED);
	}
	if (kept->node_times < USHER_FOLLOW_TIMES || (r->allowed && !usher_set_has(r->allowed, r->waker)))
		return;
	kept->node_times = 0;
	r->prev = r->waker;
	env_count(u, r->waker, USHER_EV_FOLLOWED);
}

#endif
