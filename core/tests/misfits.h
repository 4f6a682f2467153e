/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Scenarios of tasks that are too heavy for a weak CPU. cids 0 and 3 are weak. The list of scenarios is in scenarios.h.
 */
#ifndef USHER_TESTS_MISFITS_H
#define USHER_TESTS_MISFITS_H

#include "model.h"

#define MISFIT_WEAK (1u << 0 | 1u << 3)
#define MISFIT_HEAVY 900
#define MISFIT_LIGHT 10

static bool misfit_waits(struct usher *u, u32 cid)
{
	return u->misfits[0] >> cid & 1;
}

/*
 * misfit_against_call: both weak CPUs tick, and both strong ones go idle. The task of 0 has become heavy; that of 3 was, and is
 * light now. The task of 0 gets a strong CPU, or is called by one, or is marked for the next that goes idle, or for
 * its own next tick: it is not forgotten. That of 3 is called once at most, and not marked in the end.
 */
static void misfit_setup(struct usher *u)
{
	usher_misfit_note(u, 3, true, 3);
}

static void misfit_actor(struct usher *u, u32 index)
{
	struct usher_request r = { .prev = index, .waker = index, .nr_allowed = MODEL_CIDS };

	if (MISFIT_WEAK >> index & 1) {
		r.demand.util = index ? MISFIT_LIGHT : MISFIT_HEAVY;
		model.outcome.found = usher_misfit(u, &r);
	} else {
		usher_idle_enter(u, index);
		model.outcome.found = usher_misfit_call(u, index);
	}
}

static const char *misfit_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	s32 moved = outcomes[0].found;
	u32 calls[MODEL_CIDS] = { 0 }, c;

	for (c = 1; c < 3; c++) {
		if (usher_cid_idle(u, c) == ((s32)c == moved))
			return "a strong CPU is claimed for nobody, or not for the task that takes it";
		if (outcomes[c].found >= 0)
			calls[outcomes[c].found]++;
	}
	if (outcomes[3].found >= 0)
		return "a light task moves";
	if (calls[1] || calls[2])
		return "a strong CPU is called for";
	if (calls[3] > 1)
		return "two CPUs call for one task";
	if (misfit_waits(u, 3))
		return "a task that is light now stays marked";
	if (moved >= 0 && (misfit_waits(u, 0) || calls[0]))
		return "a task that moves is marked, or called";
	if (moved < 0 && !misfit_waits(u, 0) && !calls[0])
		return "a heavy task is forgotten";
	return NULL;
}

#endif
