/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Scenarios of a queue whose CPUs take turns fast, so that those of the other LLC leave it alone (core/src/pace.c). It is queue 0, of
 * cids 0 and 1. The list of scenarios is in scenarios.h.
 */
#ifndef USHER_TESTS_SOON_H
#define USHER_TESTS_SOON_H

#include "duties.h"

#define SOON_TICK_NS 4000000

static void soon_pace(struct usher *u)
{
	u->soon_ns = 1000;
	u->queues[0].soon_ns = u->soon_ns;
	u->queues[0].clock->gap_ns = 1;
}

/*
 * soon_against_idle: idle_against_queue for such a queue, of which the LLC's own backlog knows, while a CPU of the other LLC goes
 * idle, too. Nobody waits beside an idle CPU of the LLC.
 */
static void soon_setup(struct usher *u)
{
	soon_pace(u);
	usher_queue_fill(u, 0, false);
}

static void soon_actor(struct usher *u, u32 index)
{
	if (index)
		duty_idle(u, index);
	else
		duty_enqueue(u, 0, 0);
}

/*
 * eased_against_idle: three tasks wait in a queue that is for all, cid 0 and cid 2 of the other LLC take one each, and see that who is left runs soon.
 * cid 1 goes idle there meanwhile.
 */
static void eased_setup(struct usher *u)
{
	model.world->queued[0] = 3;
	usher_queue_fill(u, 0, false);
	soon_pace(u);
}

static void eased_actor(struct usher *u, u32 index)
{
	if (index == 1)
		duty_idle(u, 1);
	else
		duty_slice_end(u, index);
}

/*
 * overdue_against_idle: somebody has waited there since a tick. At the next one CPUs of the other LLC are called, while one of them goes idle, and
 * cid 1 wakes another task.
 */
static void overdue_setup(struct usher *u)
{
	soon_setup(u);
	model.world->queued[0] = 1;
	u->queues[0].clock->waits_ns = SOON_TICK_NS;
}

static void overdue_actor(struct usher *u, u32 index)
{
	struct usher_request r = { .wake = USHER_WAKE, .prev = 1, .waker = 1, .nr_allowed = MODEL_CIDS };

	switch (index) {
	case 0:
		duty_send(usher_queue_overdue(u, 0, 2 * SOON_TICK_NS));
		duty_rescue(u, 0);
		break;
	case 1:
		duty_place(u, &r);
		break;
	default:
		duty_idle(u, index);
	}
}

static const char *overdue_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	const char *wrong = rest_by_cid(u, outcomes);

	if (!wrong && model.world->queued[0] && rest_waits(outcomes, 2))
		wrong = "a task that is overdue waits beside an idle CPU";
	return wrong;
}

#endif
