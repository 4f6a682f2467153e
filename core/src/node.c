/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The node-aware calls: the same set as the kernel offers to sched_ext schedulers since 6.15
 * (scx_bpf_pick_idle_cpu_node() and its siblings), over cids and with an error for each cause.
 *
 * "In or near": the node first, then the others in order of distance, ties to the lowest id, unless
 * the query says USHER_IN_NODE. The order is a table (struct usher_node.order), not a walk over all
 * pairs.
 */
#ifndef USHER_NODE_C
#define USHER_NODE_C

#include "../include/usher/usher.h"
#include "idle.c"

/* The node index of a kernel CPU number, or USHER_NO_NODE. */
USHER_FN s32 usher_cpu_node(struct usher USHER_MEM *u, u32 cpu)
{
	s32 cid;

	if (u->granularity == USHER_GLOBAL)
		return USHER_NODE_OFF;
	if (cpu >= u->nr_cpu_ids)
		return USHER_NO_NODE;
	cid = u->cid_of_cpu[cpu];
	return cid < 0 ? USHER_NO_NODE : (s32)u->cids[cid].node;
}

/* 0 if node-aware calls may ask about this node. */
USHER_FN s32 usher_node_check(struct usher USHER_MEM *u, u32 node)
{
	if (u->granularity == USHER_GLOBAL)
		return USHER_NODE_OFF;
	return node < u->nr_nodes ? 0 : USHER_NO_NODE;
}

/* The lowest cid at or after the rotor that the query may take in a node, idle or not. */
USHER_COLD s32 usher_any_in_node(struct usher USHER_MEM *u, const struct usher_query *q, u32 node)
{
	struct usher_node USHER_MEM *n = &u->nodes[node];
	struct usher_cpu USHER_MEM *me = &u->cpus[q->self];
	u32 start = me->rotor < n->nr_shards ? me->rotor : 0;
	u32 i;

	for (i = 0; i < n->nr_shards && env_again(u); i = env_next(u, i)) {
		u32 index = start + i < n->nr_shards ? start + i : start + i - n->nr_shards;
		struct usher_shard USHER_MEM *shard = &u->shards[n->first_shard + index];
		u64 bits = usher_query_bits(q, shard);

		if (bits) {
			me->rotor = index + 1;
			return (s32)(shard->base + env_lowest(bits));
		}
	}
	return USHER_EMPTY_SET;
}

/* The same in or near a node. */
USHER_COLD s32 usher_any_near(struct usher USHER_MEM *u, const struct usher_query *q, u32 node)
{
	u32 reach = q->flags & USHER_IN_NODE ? 1 : u->nr_nodes;
	u32 i;

	for (i = 0; i < reach && env_again(u); i = env_next(u, i)) {
		s32 cid = usher_any_in_node(u, q, u->nodes[node].order[i]);

		if (cid >= 0)
			return cid;
	}
	return USHER_EMPTY_SET;
}

/* Claims an idle CPU in or near a node. q->from is not used. */
USHER_FN s32 usher_pick_idle_node(struct usher USHER_MEM *u, const struct usher_query *q, u32 node)
{
	struct usher_search s = { .q = *q };
	s32 cid = usher_node_check(u, node);

	if (cid < 0)
		return cid;
	cid = usher_search_node_both(u, &s, node);
	if (cid < 0 && !(q->flags & USHER_IN_NODE))
		cid = usher_search_remote(u, &s, node);
	if (cid < 0 && usher_any_near(u, q, node) < 0)
		return USHER_EMPTY_SET;
	return cid;
}

/* The same, but where nobody is idle any allowed CPU will do; that one is not claimed. */
USHER_FN s32 usher_pick_any_node(struct usher USHER_MEM *u, const struct usher_query *q, u32 node)
{
	s32 cid = usher_pick_idle_node(u, q, node);

	return cid == USHER_NONE_IDLE ? usher_any_near(u, q, node) : cid;
}

/*
 * The idle CPUs of a node, or those of wholly idle cores, as they are while the call reads: adds
 * their cids to set and returns how many, or an error.
 */
USHER_COLD s32 usher_idle_set_node(struct usher USHER_MEM *u, u32 node, bool cores,
				  struct usher_set USHER_MEM *set)
{
	s32 error = usher_node_check(u, node), n = 0;
	u32 i;

	if (error)
		return error;
	for (i = 0; i < u->nodes[node].nr_shards && env_again(u); i = env_next(u, i)) {
		struct usher_shard USHER_MEM *shard = &u->shards[u->nodes[node].first_shard + i];
		u64 idle = usher_shard_idle(u, shard);
		u32 first = shard->base + shard->shift, word = first / 64, shift = first % 64;

		if (cores)
			idle = usher_shard_threads(shard, usher_shard_cores(shard, idle));
		n += env_ones(idle);
		idle >>= shard->shift & 63;
		set->word[word & (USHER_MAX_WORDS - 1)] |= idle << shift;
		if (shift)
			set->word[(word + 1) & (USHER_MAX_WORDS - 1)] |= idle >> (64 - shift);
	}
	return n;
}

#endif
