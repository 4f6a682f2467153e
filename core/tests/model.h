/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What scenarios are made of: a small machine, a host's duties in the words of a kernel's
 * callbacks, and the properties that must hold when everything has come to rest.
 */
#ifndef USHER_TESTS_MODEL_H
#define USHER_TESTS_MODEL_H

#include <ucontext.h>

#include "../src/core.c"
#include "../src/build.c"

#define MODEL_CIDS 4
#define MODEL_LLCS 2
#define MODEL_ACTORS 4
#define MODEL_TABLE_WORDS 2048
#define MODEL_LEVELS 5 /* of the CPU priority map that actors use: the others are cells of nobody's */
#define MODEL_STACK 16384
#define MODEL_ROUNDS 12 /* more than any actor needs: reaching it means that it never ends */

/* All that a scenario's CPUs share, and what makes an actor start anew. */
struct model_world {
	u8 stack[MODEL_STACK] __attribute__((aligned(64))); /* of the actor at hand */
	u64 tables[MODEL_TABLE_WORDS];
	struct usher_host host;
	u64 queued[MODEL_LLCS]; /* tasks waiting in each LLC's queue */
	u64 local[MODEL_CIDS];	/* tasks handed to each CPU */
	u64 kicked[MODEL_CIDS];
	struct usher_cpu cpus[MODEL_CIDS]; /* as they were before any actor ran */
	u32 cpupri; /* the scenario is about the CPU priority map */
};

/* The levels in use: those of all classes of tasks, and one in the other word of a summary. */
static const u32 model_levels[MODEL_LEVELS] = { 0, 1, 2, 3, 70 };

/* How far an actor came, and what it did on the way. */
struct model_outcome {
	s32 spare[MODEL_CIDS]; /* idle bits that it cleared itself, less those that the core said it may have */
	u32 waits[MODEL_CIDS]; /* the CPU has nothing to run and waits for a kick */
	u32 refused;	       /* a search found nobody; of claim_against_claim */
	u32 endless;
	s32 found; /* by a search of the CPU priority map: a cid, or USHER_NONE_LOWER */
	u32 level; /* ... at which level */
	u32 lower_before, lower_after; /* the CPU ran something less urgent before, and after, the search for it */
	u32 met; /* a CPU that was taken for a task is still taken for another one */
};

struct model {
	ucontext_t checker, actor;
	const struct model_scenario *scenario;
	u32 index; /* of the actor */
	struct model_world *world;
	struct usher *u;
	const u64 *answers;
	u32 nr_answers, at;
	bool direct;
	struct model_outcome outcome;
	/* The next step, and where the stack in use begins then. */
	u32 step;
	u64 *place;
	u64 value;
	u8 *top;
};

static _Thread_local struct model model;

struct model_scenario {
	const char *name;
	u32 nr_llcs;  /* 1: all cids in one; 2: cids 0 and 1 in one, 2 and 3 in the other */
	u32 nr_nodes; /* 1: both LLCs in one node; 2: one each */
	u32 nr_actors; /* actor a is cid a, as far as the CPU priority map is concerned */
	const char *actors[MODEL_ACTORS];
	void (*setup)(struct usher *u);
	void (*actor)(struct usher *u, u32 index);
	const char *(*verdict)(struct usher *u, const struct model_outcome *outcomes);
	u32 cpupri; /* with the CPU priority map */
	u32 weak; /* a bit per cid: it has half the capacity of the others */
};

static const struct model_scenario model_scenarios[];

#endif
