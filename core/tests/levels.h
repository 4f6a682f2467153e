/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Scenarios of the CPU priority map: CPUs change their levels while others search. cids 0 and 1 are
 * a shard, 2 and 3 another one. The list of scenarios is in scenarios.h.
 */
#ifndef USHER_TESTS_LEVELS_H
#define USHER_TESTS_LEVELS_H

#include "model.h"

#define LEVEL_BELOW 90 /* what searches look for is below it */

static bool level_has(struct usher *u, u32 cid, u32 level)
{
	struct usher_cid *c = &u->cids[cid];

	return usher_cpupri_at(u, c->shard, level) >> c->bit & 1;
}

/* A search by cid self, and what came of it. */
static void level_find(struct usher *u, u32 self, const struct usher_set *allowed, u32 flags)
{
	struct usher_query q = { .allowed = allowed, .from = self, .self = self, .flags = flags };

	model.outcome.found = usher_cpupri_find(u, &q, LEVEL_BELOW, &model.outcome.level);
}

/* cid was at this level and left it again: both summaries name it, and nobody is there. */
static void level_stale(struct usher *u, u32 cid, u32 level)
{
	usher_cpupri_set(u, cid, level);
	usher_cpupri_set(u, cid, USHER_NO_LEVEL);
}

/*
 * Everybody is at the level that end says (USHER_NO_LEVEL: at none) and at no other; who is
 * somewhere is in both summaries; and searches from anywhere, in both orders, find somebody of the
 * lowest level.
 */
static const char *rest_levels(struct usher *u, const u32 *end)
{
	u32 lowest = LEVEL_BELOW, c, l, flags, level;

	for (c = 0; c < MODEL_CIDS; c++) {
		struct usher_cpupri_leaf *leaf = &u->leaves[u->cids[c].shard];

		for (l = 0; l < MODEL_LEVELS; l++) {
			level = model_levels[l];
			if (level_has(u, c, level) != (end[c] == level))
				return "a CPU is not at its level, or at another one, too";
			if (end[c] != level)
				continue;
			if (!(leaf->present[level * leaf->present_stride] & leaf->present_bit))
				return "a shard with a CPU at a level is missing from the node's map";
			if (!(leaf->levels[level / 64] >> (level & 63) & 1))
				return "a level with a CPU is missing from the summary";
			if (level < lowest)
				lowest = level;
		}
	}
	for (c = 0; c < MODEL_CIDS; c++)
		for (flags = 0; flags <= USHER_LOWEST; flags += USHER_LOWEST) {
			struct usher_query q = { .from = c, .self = c, .flags = flags };
			s32 found = usher_cpupri_find(u, &q, LEVEL_BELOW, &level);

			if (found < 0 ? lowest < LEVEL_BELOW : end[found] != level)
				return "a search afterwards finds nobody, or at the wrong level";
			if (flags & USHER_LOWEST && found >= 0 && level != lowest)
				return "a search afterwards misses the lowest level";
		}
	return NULL;
}

/*
 * raise_against_find: cid 2 rises from level 1 over 3 to 70 while cid 0 searches for it, and may
 * take nobody else. It is always at one of its levels, so it is found, and at a level that it had.
 * cid 3 of the same shard passes it on its way down; cid 1 goes to the same levels in the other
 * shard. The summary names level 1 of the finder's shard, where nobody is.
 */
static void raise_setup(struct usher *u)
{
	level_stale(u, 0, 1);
	usher_cpupri_set(u, 2, 1);
	usher_cpupri_set(u, 3, 70);
}

static void raise_find(struct usher *u, u32 flags)
{
	static const struct usher_set allowed = { .word = { 1u << 2 } };

	level_find(u, 0, &allowed, flags);
}

static void raise_set(struct usher *u, u32 index)
{
	switch (index) {
	case 1:
		usher_cpupri_set(u, 1, 70);
		break;
	case 2:
		usher_cpupri_set(u, 2, 3);
		usher_cpupri_set(u, 2, 70);
		break;
	default:
		usher_cpupri_set(u, 3, 1);
	}
}

static void raise_actor(struct usher *u, u32 index)
{
	if (index)
		raise_set(u, index);
	else
		raise_find(u, 0);
}

/* raise_against_find_lowest: the same with the finder in another node. */
static void raise_lowest_actor(struct usher *u, u32 index)
{
	if (index)
		raise_set(u, index);
	else
		raise_find(u, USHER_LOWEST);
}

static const char *raise_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	static const u32 end[MODEL_CIDS] = { USHER_NO_LEVEL, 70, 70, 1 };
	u32 level = outcomes[0].level;

	if (outcomes[0].found == USHER_NONE_LOWER)
		return "a CPU that is raised was overlooked";
	if (outcomes[0].found != 2)
		return "a search found a CPU that is not allowed";
	if (level != 1 && level != 3 && level != 70)
		return "a search found a CPU at a level that it never had";
	return rest_levels(u, end);
}

/*
 * set_against_retire: the summaries name level 1 of both shards, where nobody is, so a search takes
 * them out, while cids 2 and 3 come to that level, one of them for a moment only, and cid 1 leaves
 * the other shard's level 70 for good. Nobody is lost.
 */
static void enter_setup(struct usher *u)
{
	level_stale(u, 0, 1);
	level_stale(u, 2, 1);
	usher_cpupri_set(u, 1, 70);
}

static void enter_set(struct usher *u, u32 index)
{
	switch (index) {
	case 1:
		usher_cpupri_set(u, 1, USHER_NO_LEVEL);
		break;
	case 2:
		usher_cpupri_set(u, 2, 1);
		break;
	default:
		usher_cpupri_set(u, 3, 1);
		usher_cpupri_set(u, 3, 3);
	}
}

static void enter_actor(struct usher *u, u32 index)
{
	if (index)
		enter_set(u, index);
	else
		level_find(u, 0, NULL, 0);
}

/*
 * retire_against_retire: two searches of cid 0's shard at the same time, each in its order, of which
 * one may clear the level's bit while the other one is about to name a shard there again.
 */
static void two_finders_setup(struct usher *u)
{
	level_stale(u, 0, 1);
	level_stale(u, 2, 1);
}

static void two_finders_actor(struct usher *u, u32 index)
{
	if (index > 1)
		usher_cpupri_set(u, index, index == 2 ? 1 : 3);
	else
		level_find(u, index, NULL, index ? USHER_LOWEST : 0);
}

/* What a search found had that level at some time. */
static const char *enter_found(const struct model_outcome *outcome)
{
	bool known[MODEL_CIDS] = { false, outcome->level == 70, outcome->level == 1,
				   outcome->level == 1 || outcome->level == 3 };

	if (outcome->found < 0 || known[outcome->found])
		return NULL;
	return "a search found a CPU at a level that it never had";
}

static const char *enter_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	static const u32 end[MODEL_CIDS] = { USHER_NO_LEVEL, USHER_NO_LEVEL, 1, 3 };
	const char *wrong = enter_found(&outcomes[0]);

	return wrong ? wrong : rest_levels(u, end);
}

static const char *two_finders_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	const char *wrong = enter_found(&outcomes[1]);

	return wrong ? wrong : enter_verdict(u, outcomes);
}

/*
 * preempt_against_preempt: cids 1 and 2 have an urgent task each, and cids 0 and 3 run something that is
 * less so; 0 is about to run something urgent itself. No CPU is preempted for both, and one of them gets
 * one.
 */
static void preempt_setup(struct usher *u)
{
	usher_cpupri_set(u, 0, USHER_NORMAL);
	usher_cpupri_set(u, 3, USHER_NORMAL);
}

static void preempt_actor(struct usher *u, u32 index)
{
	struct usher_query q = { .from = index, .self = index };

	if (!index)
		usher_preempt_runs(u, 0, USHER_CRITICAL);
	else
		model.outcome.found = usher_preempt(u, &q, USHER_CRITICAL);
}

static const char *preempt_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	s32 one = outcomes[1].found, other = outcomes[2].found;
	u32 c;

	if (one < 0 && other < 0)
		return "nobody is preempted, and somebody could be";
	if (one == other)
		return "a CPU is preempted for two tasks";
	for (c = 0; c < MODEL_CIDS; c++)
		if (level_has(u, c, USHER_TAKEN) != ((s32)c == one || (s32)c == other))
			return "a CPU is marked for nobody, or not for the task that takes it";
	return NULL;
}

/*
 * three_preempt: three have an urgent task each, which all ran on cid 0, and three CPUs run something that is less
 * so. Each gets one: who loses a race, or comes later, takes another CPU.
 */
static void three_preempt_setup(struct usher *u)
{
	u32 c;

	for (c = 1; c < MODEL_CIDS; c++)
		usher_cpupri_set(u, c, USHER_NORMAL);
}

static void three_preempt_actor(struct usher *u, u32 index)
{
	struct usher_query q = { .from = 0, .self = index };

	model.outcome.found = usher_preempt(u, &q, USHER_CRITICAL);
}

static const char *three_preempt_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	u32 taken = 0, i;

	(void)u;
	for (i = 0; i < 3; i++) {
		if (outcomes[i].found < 0)
			return "an urgent task finds nobody to preempt, and there is a CPU for each";
		taken |= 1u << outcomes[i].found;
	}
	return taken == 0xe ? NULL : "a CPU is preempted for two tasks";
}

#endif
