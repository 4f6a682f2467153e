/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The CPU priority map: at which level each CPU runs, and whom to preempt for something urgent.
 *
 * A level is 0 (nothing urgent) to 100, as in the kernel's cpupri; a host may use fewer. A CPU is at
 * one level, or at none while it takes no tasks. The map is for the question "who runs at the
 * lowest level, near here?", and it answers without a lock: what it says was true while it was
 * asked, and whoever acts on it looks again at the CPU that it names.
 *
 *   leaf     per shard and level a word, a bit per cid. How many CPUs are there is a population
 *            count of it: a counter beside it would be two atomics more per change, and a second truth
 *   present  per node and level a bit per shard: somebody of it may be there
 *   levels   per node a bit per level: somebody of it may be there
 *
 * Membership is the plain union of the leaves: a bit that is set is a CPU that is there, whatever
 * was known about nodes when the map was built. (The published proposal has a mask per node in
 * which the CPUs of other nodes are set, and takes all masks together with AND: cpupri_masks.c.)
 *
 * usher_cpupri_set() of one CPU, by whoever holds its runqueue's lock or is that CPU:
 *
 *  1. Nothing to do if the level is the same: no write.
 *  2. Enter the new level: leaf; barrier; present and levels, if their bits are clear.
 *  3. Leave the old one: leaf only.
 *
 * So a CPU whose level rises is at all times at one of the two, and that level is in the
 * summaries. A search goes through the levels from the lowest up and reads the summary of levels
 * anew after each: it meets the CPU at one of the two. Test: raise_against_find. A CPU whose level
 * falls may be overlooked by a search that is just between the two levels; that CPU has just
 * chosen what to run next, and its host lets it choose after its level fell.
 *
 * Bits of summaries are set eagerly, by who enters, and cleared lazily, by a search that found
 * nobody, in the way of the idle map:
 *
 *   enter                        set leaf bit;  barrier; look at present; look at levels; set what is clear
 *   usher_cpupri_retire_leaf()   clear present; barrier; look at leaf; if somebody is there enter the summaries
 *   usher_cpupri_retire_level()  clear levels;  barrier; look at present; set levels if somebody is there
 *
 * Tolerated: between clear and restore a third CPU's search may overlook somebody. It then finds
 * the next best or nobody, its task queues as on a busy machine, and the map is right again one
 * step later. Tests: set_against_retire, retire_against_retire.
 *
 * usher_cpupri_find() has two orders. Nearest: the own shard, the own node, then nodes by distance,
 * and the first that has anybody below the limit gives its lowest level. USHER_LOWEST: the lowest
 * level anywhere, and of that the nearest CPU. Only leaves that meet the allowed set are read. Tiers
 * say whom the task fits on: first everybody below the limit who fits, and if nobody does, who does
 * not, since priority goes before fit.
 */
#ifndef USHER_CPUPRI_C
#define USHER_CPUPRI_C

#include "../include/usher/usher.h"
#include "idle.c"

/* A search in progress. */
struct usher_cpupri_search {
	struct usher_query q;
	u32 below; /* only lower levels than this */
	u32 level; /* at which somebody was found */
	u64 nodes; /* bit n % 64: the allowed set may have CPUs of node n */
};

/* Names shard and level in the node's summaries. What the caller did before is in the leaf by then. */
USHER_FN void usher_cpupri_name(struct usher USHER_MEM *u, struct usher_cpupri_leaf USHER_MEM *leaf, u32 level)
{
	u64 USHER_MEM *present = leaf->present + level * leaf->present_stride;
	u64 USHER_MEM *levels = leaf->levels + level / 64;
	u64 bit = 1ULL << (level & 63);

	if (!(env_read(u, present) & leaf->present_bit))
		env_fetch_or(u, present, leaf->present_bit);
	if (!(env_read(u, levels) & bit))
		env_fetch_or(u, levels, bit);
}

/*
 * cid runs at this level from now on; USHER_NO_LEVEL: it takes no tasks. Adds before it removes, so
 * that a CPU that is raised is always somewhere; the add is a full barrier before the summaries and
 * before the removal. Tests: raise_against_find, set_against_retire.
 */
USHER_FN void usher_cpupri_set(struct usher USHER_MEM *u, u32 cid, u32 level)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];
	struct usher_cpupri_leaf USHER_MEM *leaf = &u->leaves[c->shard];
	u32 old = u->cpus[cid].level, new = level + 1;
	u64 bit = 1ULL << (c->bit & 63);

	/* 1. */
	if (new == old)
		return;
	u->cpus[cid].level = new;
	/* 2. */
	if (new) {
		env_fetch_or(u, leaf->words + level * leaf->stride, bit);
		usher_cpupri_name(u, leaf, level);
	}
	/* 3. */
	if (old)
		env_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);
}

/* The CPUs of a shard at a level, as bits of its word. */
USHER_FN u64 usher_cpupri_at(struct usher USHER_MEM *u, u32 shard, u32 level)
{
	struct usher_cpupri_leaf USHER_MEM *leaf = &u->leaves[shard];

	return env_read(u, leaf->words + level * leaf->stride) & u->shards[shard].valid;
}

/*
 * Nobody of the shard was seen at the level: take its bit out of the node's map. Clear, full
 * barrier (in the fetch), look again; pairs with usher_cpupri_set(). True: somebody came meanwhile,
 * and is named again in both summaries, since the level's bit may have been retired in between.
 */
USHER_FN bool usher_cpupri_retire_leaf(struct usher USHER_MEM *u, u32 shard, u32 level)
{
	struct usher_cpupri_leaf USHER_MEM *leaf = &u->leaves[shard];

	env_fetch_and(u, leaf->present + level * leaf->present_stride, ~leaf->present_bit);
	if (!usher_cpupri_at(u, shard, level))
		return false;
	usher_cpupri_name(u, leaf, level);
	return true;
}

/* Some shard of the node may have somebody at the level. */
USHER_FN bool usher_cpupri_present(struct usher USHER_MEM *u, struct usher_cpupri_node USHER_MEM *node,
				   u32 level)
{
	u64 USHER_MEM *present = node->present + level * node->words;
	u32 w;

	for (w = 0; w < node->words && env_again(u); w = env_next(u, w))
		if (env_read(u, &present[w]))
			return true;
	return false;
}

/*
 * A search of the node found nobody at the level: if no shard is named any more, take the level out
 * of the summary. Clear, full barrier (in the fetch), look again, restore; pairs with
 * usher_cpupri_name().
 */
USHER_FN void usher_cpupri_retire_level(struct usher USHER_MEM *u, struct usher_cpupri_node USHER_MEM *node,
					u32 level)
{
	u64 USHER_MEM *levels = node->levels + level / 64;
	u64 bit = 1ULL << (level & 63);

	if (usher_cpupri_present(u, node, level))
		return;
	env_fetch_and(u, levels, ~bit);
	if (usher_cpupri_present(u, node, level))
		env_fetch_or(u, levels, bit);
}

/* The lowest level from this one on at which somebody of a node may be, or below. */
USHER_UNIT u32 usher_cpupri_next(struct usher USHER_MEM *u USHER_UNIT_MEM, u32 node, u32 level, u32 below)
{
	u64 USHER_MEM *levels = u->cpupri_levels + node * (USHER_LINE / 8);
	u64 above = ~0ULL << (level & 63);
	u32 w;

	for (w = level / 64; w < USHER_LEVEL_WORDS && w * 64 < below; w++) {
		u64 bits = env_read(u, &levels[w]) & above;

		if (bits) {
			u32 found = w * 64 + env_lowest(bits);

			return found < below ? found : below;
		}
		above = ~0ULL;
	}
	return below;
}

/* A CPU of the shard at the level, or USHER_NONE_LOWER. Of a shard that the query does not want nothing is read. */
USHER_FN s32 usher_cpupri_search_leaf(struct usher USHER_MEM *u, struct usher_cpupri_search *s, u32 index,
				      u32 level)
{
	struct usher_shard USHER_MEM *shard = &u->shards[index];
	u64 wanted = shard->valid, here;

	if (s->q.allowed || s->q.tiers) {
		wanted = usher_query_bits(&s->q, shard);
		if (!wanted)
			return USHER_NONE_LOWER;
	}
	here = usher_cpupri_at(u, index, level);
	if (!here) {
		if (!usher_cpupri_retire_leaf(u, index, level))
			return USHER_NONE_LOWER;
		here = usher_cpupri_at(u, index, level);
	}
	here &= wanted;
	if (s->q.flags & USHER_UNTAKEN)
		here &= ~usher_cpupri_at(u, index, USHER_TAKEN);
	if (!here)
		return USHER_NONE_LOWER;
	s->level = level;
	/* From where the task was, or its like in another shard: not all searches end at the first cid. */
	return (s32)(shard->base + env_lowest(usher_first_from(here, u->cids[s->q.from].bit)));
}

/* The own shard, from its lowest level up. */
USHER_UNIT s32 usher_cpupri_search_own(struct usher USHER_MEM *u USHER_UNIT_MEM,
				       struct usher_cpupri_search *s USHER_UNIT_PTR)
{
	u32 index = u->cids[s->q.from].shard, node = u->cids[s->q.from].node, level;
	struct usher_cpupri_leaf USHER_MEM *leaf = &u->leaves[index];

	for (level = usher_cpupri_next(u, node, 0, s->below); level < s->below && env_again(u);
	     level = usher_cpupri_next(u, node, level + 1, s->below)) {
		if (env_read(u, leaf->present + level * leaf->present_stride) & leaf->present_bit) {
			s32 cid = usher_cpupri_search_leaf(u, s, index, level);

			if (cid >= 0)
				return cid;
		}
		/* This level was seen empty before the next is looked for; pairs with the order in set(). */
		env_read_barrier(u);
	}
	return USHER_NONE_LOWER;
}

/*
 * A node at one level: the shards that its map names, from the own one on in a circle, or in another node
 * from the one with the own one's number, so that searches from different shards end at different
 * ones.
 */
USHER_UNIT s32 usher_cpupri_search_node(struct usher USHER_MEM *u USHER_UNIT_MEM,
					struct usher_cpupri_search *s USHER_UNIT_PTR, u32 index, u32 level)
{
	struct usher_cid USHER_MEM *from = &u->cids[s->q.from];
	struct usher_node USHER_MEM *node = &u->nodes[index];
	struct usher_cpupri_node USHER_MEM *map = &u->cpupri_nodes[index];
	u32 start = from->shard - u->nodes[from->node].first_shard, i;

	if (start >= node->nr_shards)
		start %= node->nr_shards;
	for (i = 0; i <= map->words && env_again(u); i = env_next(u, i)) {
		u32 w = start / 64 + i;
		u64 bits;

		if (w >= map->words)
			w -= map->words;
		bits = env_read(u, &map->present[level * map->words + w]);
		if (i == 0)
			bits &= ~0ULL << (start & 63);
		if (i == map->words)
			bits &= ~(~0ULL << (start & 63));
		while (bits && env_again(u)) {
			u32 shard = node->first_shard + w * 64 + env_lowest(bits);
			s32 cid = usher_cpupri_search_leaf(u, s, shard, level);

			if (cid >= 0)
				return cid;
			bits &= bits - 1;
		}
	}
	usher_cpupri_retire_level(u, map, level);
	return USHER_NONE_LOWER;
}

/* The highest set bit and all below it. */
USHER_FN u64 usher_cpupri_smear(u64 bits)
{
	u32 k;

	for (k = 1; k < 64; k *= 2)
		bits |= bits >> k;
	return bits;
}

/* Which nodes have CPUs of the set, as struct usher_cpupri_search.nodes. A node that it names too much costs a read. */
USHER_COLD u64 usher_cpupri_meet(struct usher USHER_MEM *u, const struct usher_set USHER_MEM *allowed)
{
	u64 nodes = 0;
	u32 w;

	for (w = 0; w * 64 < u->nr_cids && env_again(u); w = env_next(u, w)) {
		u64 bits = usher_set_word(allowed, w);
		u32 first, last, n;

		if (!bits)
			continue;
		first = w * 64 + env_lowest(bits);
		last = w * 64 + env_ones(usher_cpupri_smear(bits)) - 1;
		if (first >= u->nr_cids)
			break;
		if (last >= u->nr_cids)
			last = u->nr_cids - 1;
		for (n = u->cids[first].node; n <= u->cids[last].node && env_again(u); n = env_next(u, n))
			nodes |= 1ULL << (n & 63);
	}
	return nodes;
}

/* The own shard, the own node, the other nodes by distance; of each its lowest level. */
USHER_UNIT s32 usher_cpupri_find_nearest(struct usher USHER_MEM *u USHER_UNIT_MEM,
					 struct usher_cpupri_search *s USHER_UNIT_PTR, u32 reach)
{
	u32 USHER_MEM *order = u->nodes[u->cids[s->q.from].node].order;
	s32 cid = usher_cpupri_search_own(u, s);
	u32 i, level;

	if (cid >= 0)
		return cid;
	if (s->q.allowed)
		s->nodes = usher_cpupri_meet(u, s->q.allowed);
	for (i = 0; i < reach && env_again(u); i = env_next(u, i)) {
		u32 n = order[i];

		if (!(s->nodes >> (n & 63) & 1))
			continue;
		for (level = usher_cpupri_next(u, n, 0, s->below); level < s->below && env_again(u);
		     level = usher_cpupri_next(u, n, level + 1, s->below)) {
			cid = usher_cpupri_search_node(u, s, n, level);
			if (cid >= 0)
				return cid;
			env_read_barrier(u); /* as in usher_cpupri_search_own() */
		}
	}
	return USHER_NONE_LOWER;
}

/*
 * The lowest level from this one on at which somebody of the nodes in reach may be, or s->below. The
 * own node first, since nobody can be lower than this level; the order of the others is of no
 * matter.
 */
USHER_FN u32 usher_cpupri_lowest(struct usher USHER_MEM *u, struct usher_cpupri_search *s, u32 reach, u32 level)
{
	u32 own = u->cids[s->q.from].node, found = s->below, n;

	if (s->nodes >> (own & 63) & 1)
		found = usher_cpupri_next(u, own, level, found);
	for (n = 0; n < u->nr_nodes && reach > 1 && found > level && env_again(u); n = env_next(u, n))
		if (s->nodes >> (n & 63) & 1)
			found = usher_cpupri_next(u, n, level, found);
	return found;
}

/* Level by level, each in all nodes by distance. */
USHER_UNIT s32 usher_cpupri_find_lowest(struct usher USHER_MEM *u USHER_UNIT_MEM,
					struct usher_cpupri_search *s USHER_UNIT_PTR, u32 reach)
{
	u32 USHER_MEM *order = u->nodes[u->cids[s->q.from].node].order;
	u32 i, level;

	if (s->q.allowed)
		s->nodes = usher_cpupri_meet(u, s->q.allowed);
	for (level = usher_cpupri_lowest(u, s, reach, 0); level < s->below && env_again(u);
	     level = usher_cpupri_lowest(u, s, reach, level + 1)) {
		for (i = 0; i < reach && env_again(u); i = env_next(u, i)) {
			u32 n = order[i];
			struct usher_cpupri_node USHER_MEM *map = &u->cpupri_nodes[n];

			if (s->nodes >> (n & 63) & 1 &&
			    env_read(u, map->levels + level / 64) >> (level & 63) & 1) {
				s32 cid = usher_cpupri_search_node(u, s, n, level);

				if (cid >= 0)
					return cid;
			}
		}
		env_read_barrier(u); /* as in usher_cpupri_search_own() */
	}
	return USHER_NONE_LOWER;
}

/*
 * A CPU that runs at a lower level than below, and in *level at which; USHER_NONE_LOWER: none that
 * may be taken. Nobody is claimed. q->tiers are those that the task fits on, q->flags USHER_LOWEST
 * and USHER_IN_NODE.
 */
USHER_FN s32 usher_cpupri_find(struct usher USHER_MEM *u, const struct usher_query *q, u32 below, u32 *level)
{
	struct usher_cpupri_search s = { .q = *q, .below = below, .nodes = ~0ULL };
	u32 reach = q->flags & USHER_IN_NODE ? 1 : u->nr_nodes;
	s32 cid;

	if (s.below > USHER_LEVELS)
		s.below = USHER_LEVELS;
	cid = q->flags & USHER_LOWEST ? usher_cpupri_find_lowest(u, &s, reach) :
					usher_cpupri_find_nearest(u, &s, reach);
	if (cid < 0 && q->tiers) {
		s.q.tiers = 0;
		cid = q->flags & USHER_LOWEST ? usher_cpupri_find_lowest(u, &s, reach) :
						usher_cpupri_find_nearest(u, &s, reach);
	}
	*level = s.level;
	return cid;
}

#endif
