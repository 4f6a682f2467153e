/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The published proposal's own form of the CPU priority map, for comparison; hosts do not include it.
 * (sched/rt: split cpupri_vec->cpumask to per NUMA node, Pan Deng, v2 4/4, 21 July 2025.)
 *
 * Per level a count and a mask per node, as long as the machine. A node's mask starts as the
 * complement of the node's CPUs: foreign CPUs are set for good, own ones while they are at the
 * level. A change touches the mask of the CPU's node only. A search asks node by node, from its own
 * on in order of their numbers, whether an allowed CPU of that node is at the level, and then takes
 * all masks together with AND: a CPU is left if it is set in its node's mask.
 *
 * With one node this is the kernel's map as it is.
 *
 * The flaw: what a node's CPUs are is asked twice, when masks are made and at each search. A CPU
 * that comes up in between, as all but the first do while a kernel boots, is set in its own mask, too,
 * and so in all: a phantom member of every level until it has entered and left each.
 */
#ifndef USHER_CPUPRI_MASKS_C
#define USHER_CPUPRI_MASKS_C

#include "../include/usher/usher.h"

struct usher_masks {
	u32 nr_nodes, nr_words;
	u32 *node;  /* per cid */
	u32 *level; /* per cid: 1 + its level, 0: none */
	u64 *count; /* per level */
	u64 *masks; /* per level and node, nr_words words each */
	u64 *cpus;  /* per node, as long: its CPUs as they are now */
};

USHER_FN u64 *usher_masks_at(struct usher_masks *m, u32 level, u32 node)
{
	return m->masks + ((u64)level * m->nr_nodes + node) * m->nr_words;
}

/* Makes the masks, of nodes' CPUs as they are known now: m->cpus. */
USHER_FN void usher_masks_init(struct usher_masks *m)
{
	u32 l, n, w;

	for (l = 0; l < USHER_LEVELS; l++)
		for (n = 0; n < m->nr_nodes; n++)
			for (w = 0; w < m->nr_words; w++)
				usher_masks_at(m, l, n)[w] = ~m->cpus[n * m->nr_words + w];
}

/* A CPU of this node came up. */
USHER_FN void usher_masks_add(struct usher_masks *m, u32 cid)
{
	m->cpus[m->node[cid] * m->nr_words + cid / 64] |= 1ULL << (cid % 64);
}

/* Enters the new level, then leaves the old one; bit before count, count before bit. */
USHER_FN void usher_masks_set(struct usher_masks *m, u32 cid, u32 level)
{
	u32 old = m->level[cid], new = level + 1, n = m->node[cid], w = cid / 64;
	u64 bit = 1ULL << (cid % 64);

	if (new == old)
		return;
	if (new) {
		env_fetch_or(m, &usher_masks_at(m, level, n)[w], bit);
		env_fetch_add(m, &m->count[level], 1);
	}
	if (old) {
		env_fetch_add(m, &m->count[old - 1], -1);
		env_fetch_and(m, &usher_masks_at(m, old - 1, n)[w], ~bit);
	}
	m->level[cid] = new;
}

/* Whether an allowed CPU of some node is at the level. */
USHER_FN bool usher_masks_some(struct usher_masks *m, u32 level, u32 home, const struct usher_set *allowed)
{
	u32 n, w;

	for (n = 0; n < m->nr_nodes; n++) {
		u32 node = home + n < m->nr_nodes ? home + n : home + n - m->nr_nodes;
		u64 *mask = usher_masks_at(m, level, node);

		for (w = 0; w < m->nr_words; w++)
			if (env_read(m, &mask[w]) & m->cpus[node * m->nr_words + w] & allowed->word[w])
				return true;
	}
	return false;
}

/* The lowest level under below at which allowed CPUs are, and which: or USHER_NONE_LOWER. */
USHER_FN s32 usher_masks_find(struct usher_masks *m, u32 home, const struct usher_set *allowed, u32 below,
			    struct usher_set *out)
{
	u32 l, n, w;

	for (l = 0; l < below && l < USHER_LEVELS; l++) {
		u64 any = 0;

		if (!env_read(m, &m->count[l]))
			continue;
		env_read_barrier(m);
		if (!usher_masks_some(m, l, home, allowed))
			continue;
		for (w = 0; w < m->nr_words; w++) {
			u64 bits = allowed->word[w];

			for (n = 0; n < m->nr_nodes; n++)
				bits &= env_read(m, &usher_masks_at(m, l, n)[w]);
			out->word[w] = bits;
			any |= bits;
		}
		if (any)
			return (s32)l;
	}
	return USHER_NONE_LOWER;
}

#endif
