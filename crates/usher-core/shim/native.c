/* SPDX-License-Identifier: GPL-2.0-only */
/* The core as it runs in threads, and what every environment shares: building the tables and reading them. */
#define USHER_PREFIX native
#include "exports.h"
#include "../../../core/src/build.c"

u64 usher_tables_bytes(const struct usher_spec *spec)
{
	return usher_bytes(spec);
}

struct usher *usher_tables_build(const struct usher_spec *spec, void *mem, struct usher_host *host)
{
	struct usher *u = usher_build(spec, mem);

	u->host = host;
	return u;
}

u64 usher_tables_copy_bytes(void)
{
	return sizeof(struct usher);
}

/* A copy of struct usher, which is only read, that points to the same tables and to another host. */
void usher_tables_copy(struct usher *u, struct usher *to, struct usher_host *host)
{
	*to = *u;
	to->host = host;
}

/* The idle bit of a CPU, outside of all environments: not an access that counts. */
bool usher_tables_is_idle(struct usher *u, u32 cid)
{
	struct usher_cid *c = &u->cids[cid];

	return usher_shard_idle(u, &u->shards[c->shard]) >> c->bit & 1;
}

/* Where the idle word of a shard lies, in bytes from the start of struct usher. */
u64 usher_tables_word_offset(struct usher *u, u32 shard)
{
	return (u64)((u8 *)u->shards[shard].word - (u8 *)u);
}

bool usher_tables_summary_has(struct usher *u, u32 shard)
{
	return env_read(u, u->shards[shard].summary) & u->shards[shard].summary_bit;
}

bool usher_tables_backlog_has(struct usher *u, u32 queue)
{
	return env_read(u, u->queues[queue].backlog) & u->queues[queue].backlog_bit;
}

u32 usher_tables_nr_llcs(struct usher *u)
{
	return u->nr_llcs;
}

u64 usher_tables_settled(struct usher *u, u32 llc)
{
	return env_read(u, u->llcs[llc].settled);
}

u64 usher_tables_clock(struct usher *u, u32 queue)
{
	return env_read(u, &u->queues[queue].clock->now);
}

/* The level of a CPU, or USHER_NO_LEVEL. */
u32 usher_tables_level(struct usher *u, u32 cid)
{
	return u->cpus[cid].level - 1;
}

/* The CPUs of a shard at a level, as bits from its first cid on. */
u64 usher_tables_at_level(struct usher *u, u32 shard, u32 level)
{
	return usher_cpupri_at(u, shard, level) >> u->shards[shard].shift;
}

/* Where the word of a shard's level lies, in bytes from the start of struct usher. */
u64 usher_tables_level_offset(struct usher *u, u32 shard, u32 level)
{
	struct usher_cpupri_leaf *leaf = &u->leaves[shard];

	return (u64)((u8 *)(leaf->words + level * leaf->stride) - (u8 *)u);
}

u32 usher_tables_class(struct usher *u, const struct usher_burst *burst, u32 weight, bool batch)
{
	return usher_class(u, burst, weight, batch);
}

void usher_tables_burst_born(struct usher *u, struct usher_burst *burst)
{
	usher_burst_born(u, burst);
}

void usher_tables_burst_ran(struct usher_burst *burst, u64 ran_ns, bool slept)
{
	usher_burst_ran(burst, ran_ns, slept);
}

bool usher_tables_pair_answers(const struct usher_pair *pair, u64 task)
{
	return usher_pair_answers(pair, task);
}

bool usher_tables_present(struct usher *u, u32 shard, u32 level)
{
	struct usher_cpupri_leaf *leaf = &u->leaves[shard];

	return env_read(u, leaf->present + level * leaf->present_stride) & leaf->present_bit;
}

bool usher_tables_node_level(struct usher *u, u32 node, u32 level)
{
	struct usher_cpupri_node *map = &u->cpupri_nodes[node];

	return env_read(u, map->levels + level / 64) >> (level & 63) & 1;
}

/* Whether capacities count on this machine. */
bool usher_tables_asymmetric(struct usher *u)
{
	return u->asymmetric;
}

/* Whether the task that runs on a CPU waits for a stronger one. */
bool usher_tables_misfit_waits(struct usher *u, u32 cid)
{
	return u->asymmetric && env_read(u, &u->misfits[cid / 64]) >> (cid & 63) & 1;
}

/* The same of the words that summarise: the node's map of shards at a level, and its levels. */
u64 usher_tables_present_offset(struct usher *u, u32 shard, u32 level)
{
	struct usher_cpupri_leaf *leaf = &u->leaves[shard];

	return (u64)((u8 *)(leaf->present + level * leaf->present_stride) - (u8 *)u);
}

u64 usher_tables_levels_offset(struct usher *u, u32 node, u32 level)
{
	return (u64)((u8 *)(u->cpupri_nodes[node].levels + level / 64) - (u8 *)u);
}

void usher_tables_set_look(struct usher *u, u32 cid, u32 queue)
{
	u->cpus[cid].look = queue + 1;
}

u32 usher_tables_nr_cids(struct usher *u)
{
	return u->nr_cids;
}

/* Adds a CPU's counters to sums of USHER_NR_REASONS and USHER_NR_EVENTS entries. */
void usher_tables_add_counts(struct usher *u, u32 cid, u64 *reasons, u64 *events)
{
	u32 i;

	for (i = 0; i < USHER_NR_REASONS; i++)
		reasons[i] += u->cpus[cid].reasons[i];
	for (i = 0; i < USHER_NR_EVENTS; i++)
		events[i] += u->cpus[cid].events[i];
}

/* Sizes of what crosses the border, for a test of src/ffi.rs. */
void usher_tables_sizes(u32 *sizes)
{
	sizes[0] = sizeof(struct usher_spec);
	sizes[1] = sizeof(struct usher_request);
	sizes[2] = sizeof(struct usher_decision);
	sizes[3] = sizeof(struct usher_query);
	sizes[4] = sizeof(struct usher_walk);
	sizes[5] = sizeof(struct usher_set);
	sizes[6] = sizeof(struct usher_host);
	sizes[7] = USHER_NR_REASONS;
	sizes[8] = USHER_NR_EVENTS;
	sizes[9] = sizeof(struct usher_util);
	sizes[10] = sizeof(struct usher_demand);
	sizes[11] = sizeof(struct usher_pair);
	sizes[12] = sizeof(struct usher_follow);
}
