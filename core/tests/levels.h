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

/*
 * Tasks that may run on one CPU only. In all these scenarios cid 2 is what they want, in another shard
 * than cids 0 and 1, and where a bit's place is not its cid.
 */
static void pinned_want(struct usher *u, u32 cid, u32 self, u32 class)
{
	model.outcome.found = usher_preempt_pinned(u, cid, self, class);
}

/* A task that ran on cid 2 and may run anywhere. */
static void pinned_rival(struct usher *u, u32 self)
{
	struct usher_query q = { .from = 2, .self = self };

	model.outcome.found = usher_preempt(u, &q, USHER_CRITICAL);
}

/* Exactly these CPUs are marked. */
static const char *rest_marked(struct usher *u, u32 cids)
{
	u32 c;

	for (c = 0; c < MODEL_CIDS; c++)
		if (level_has(u, c, USHER_TAKEN) && !(cids >> c & 1))
			return "a CPU is marked for nobody";
		else if (!level_has(u, c, USHER_TAKEN) && cids >> c & 1)
			return "a CPU that was taken is not marked";
	return NULL;
}

/*
 * pinned_against_preempt: a task that may run on cid 2 only, one that may run on cid 3 only, and one that
 * may run anywhere want those two CPUs, which run something less urgent; what runs on cid 2 becomes more
 * urgent meanwhile, but not as much. Each CPU goes to one of those who may have it; who is told that
 * there is none has left no mark.
 */
static void pinned_preempt_setup(struct usher *u)
{
	usher_cpupri_set(u, 0, USHER_CRITICAL);
	usher_cpupri_set(u, 1, USHER_CRITICAL);
	usher_preempt_runs(u, 2, USHER_BATCH);
	usher_preempt_runs(u, 3, USHER_NORMAL);
}

static void pinned_preempt_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 0:
		pinned_want(u, 2, 0, USHER_CRITICAL);
		break;
	case 1:
		pinned_rival(u, 1);
		break;
	case 2:
		usher_preempt_runs(u, 2, USHER_INTERACTIVE);
		break;
	default:
		pinned_want(u, 3, 3, USHER_CRITICAL);
	}
}

static const char *pinned_preempt_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	s32 pinned = outcomes[0].found, rival = outcomes[1].found, neighbour = outcomes[3].found;

	if ((pinned >= 0 && pinned != 2) || (neighbour >= 0 && neighbour != 3))
		return "a task is given a CPU that it may not run on";
	if (rival >= 0 && (rival == pinned || rival == neighbour))
		return "a CPU is preempted for two tasks";
	if ((pinned < 0 && rival != 2) || (neighbour < 0 && rival != 3))
		return "an urgent task is refused a CPU that nobody takes";
	return rest_marked(u, 1u << 2 | 1u << 3);
}

/*
 * pinned_against_rise: two tasks that may run on cid 2 only want it, and one that may run anywhere, while
 * it comes to run something as urgent. It is preempted only if it still ran something less urgent when the
 * search began, and nobody is refused it who could have it; cid 3 beside it could be taken all the time.
 * The third task's waker first has one that is not urgent, which preempts nobody.
 */
static void pinned_rise_setup(struct usher *u)
{
	usher_preempt_runs(u, 2, USHER_BATCH);
	usher_preempt_runs(u, 3, USHER_NORMAL);
}

static void pinned_rise_actor(struct usher *u, u32 index)
{
	if (index == 2) {
		usher_preempt_runs(u, 2, USHER_CRITICAL);
		return;
	}
	if (index == 3) {
		pinned_want(u, 2, 3, USHER_INTERACTIVE);
		model.outcome.refused = model.outcome.found < 0;
	}
	model.outcome.lower_before = level_has(u, 2, USHER_BATCH);
	if (index == 3)
		pinned_rival(u, 3);
	else
		pinned_want(u, 2, index, USHER_CRITICAL);
	model.outcome.lower_after = level_has(u, 2, USHER_BATCH);
}

static const char *pinned_rise_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	u32 takers = 0, lower = 0, i;

	if (!outcomes[3].refused)
		return "a task that is not urgent preempts another one";
	for (i = 0; i < MODEL_ACTORS; i++) {
		if (i == 2)
			continue;
		takers += outcomes[i].found == 2;
		lower |= outcomes[i].lower_after;
		if (outcomes[i].found == 2 && !outcomes[i].lower_before)
			return "a CPU is taken from a task that is as urgent";
	}
	if (takers > 1)
		return "a CPU is preempted for two tasks";
	if ((!takers && lower) || outcomes[3].found < 0)
		return "an urgent task is refused a CPU that nobody takes";
	return rest_marked(u, takers << 2 | (outcomes[3].found == 3) << 3);
}

/*
 * pinned_in_turn: cid 2 runs the tasks that it is taken for, and after each of them something that is not
 * urgent. Two tasks may run there only, one anywhere. While it is taken for one it is taken for no other
 * one; it can be taken again afterwards; no mark is left in the end, and that of cid 3 beside it, where
 * nothing moves, is not lost.
 */
static void turn_setup(struct usher *u)
{
	usher_preempt_runs(u, 2, USHER_NORMAL);
	usher_preempt_runs(u, 3, USHER_NORMAL);
}

/* The task is on its way to the CPU that was marked for it. */
static void turn_hand_over(void)
{
	s32 cid = model.outcome.found;

	if (cid < 0)
		return;
	model.outcome.met |= model_access(MODEL_PUSH, &model.world->local[cid], 0) > 0;
	model_access(MODEL_OR, &model.world->kicked[cid], 1);
}

/* A CPU that was taken is so until the task has run: then it is nobody's, a moment before it marks itself free. */
static void turn_runner(struct usher *u, u32 cid)
{
	u32 round;

	for (round = 0; round < MODEL_ROUNDS; round++) {
		model.outcome.waits[cid] = 1;
		model_access(MODEL_AWAIT, &model.world->kicked[cid], 0);
		model.outcome.waits[cid] = 0;
		while (model_access(MODEL_READ, &model.world->local[cid], 0)) {
			usher_preempt_runs(u, cid, USHER_CRITICAL);
			model_access(MODEL_POP, &model.world->local[cid], 0);
			usher_preempt_runs(u, cid, USHER_NORMAL);
		}
	}
	model.outcome.endless = 1;
}

static void turn_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 1:
		pinned_rival(u, 1);
		break;
	case 2:
		turn_runner(u, 2);
		return;
	default:
		pinned_want(u, 2, index, USHER_CRITICAL);
	}
	turn_hand_over();
}

static const char *turn_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	u32 takers = 0, i;

	for (i = 0; i < MODEL_ACTORS; i++) {
		if (outcomes[i].met)
			return "a CPU is preempted for two tasks at a time";
		takers += i != 2 && outcomes[i].found == 2;
	}
	if (!takers)
		return "an urgent task is refused a CPU that nobody takes";
	if (!outcomes[2].waits[2] || model.world->local[2])
		return "a task does not run on the CPU that was taken for it";
	return rest_marked(u, outcomes[1].found == 3 ? 1u << 3 : 0);
}

#endif
