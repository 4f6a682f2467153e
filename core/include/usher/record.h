/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A decision of usher_place() as it is recorded: whose, what was asked, what it saw, what came of it. Written by a host that is built
 * with a recording environment. crates/usher-core/src/recorded.rs mirrors it and compares sizes.
 */
#ifndef USHER_RECORD_H
#define USHER_RECORD_H

#include "usher.h"
#include "../../env/seen.h"

#define USHER_RECORD_COMM 16

struct usher_record {
	u64 at_ns;
	u32 pid;
	u32 nr_seen;
	u8 comm[USHER_RECORD_COMM]; /* the task's name, and 0 behind it */
	u32 wake, prev, waker, nr_allowed, tiers, hints; /* of struct usher_request, as usher_follow() leaves it */
	struct usher_demand demand;
	u32 restricted; /* 1: to the set below */
	u32 rotor, shorter_turn, poke; /* of the waker's struct usher_cpu, before */
	struct usher_decision decision;
	struct usher_set allowed;
	struct usher_seen seen[USHER_RECORD_SEEN];
};

/* What was asked, but for the CPUs of the set, which not every host can copy at once. */
USHER_INLINE void usher_record_request(struct usher_record USHER_MEM *record, const struct usher_request *r)
{
	record->wake = r->wake;
	record->prev = r->prev;
	record->waker = r->waker;
	record->nr_allowed = r->nr_allowed;
	record->tiers = r->tiers;
	record->hints = r->hints;
	record->demand.util = r->demand.util;
	record->demand.clamp_min = r->demand.clamp_min;
	record->demand.clamp_max = r->demand.clamp_max;
	record->demand.at = r->demand.at;
	record->restricted = r->allowed != NULL;
}

#endif
