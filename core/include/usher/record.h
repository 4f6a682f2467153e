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
	u32 wake, prev, waker, nr_allowed, tiers, hints; /* of struct usher_request */
	struct usher_demand demand;
	u32 restricted; /* 1: to the set below */
	u32 rotor, shorter_turn, poke; /* of the waker's struct usher_cpu, before */
	struct usher_decision decision;
	struct usher_set allowed;
	struct usher_seen seen[USHER_RECORD_SEEN];
};

#endif
