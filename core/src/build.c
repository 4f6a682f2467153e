/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Builds the tables of a struct usher from a struct usher_spec, in one block of memory that the
 * host supplies. Runs in a process only: the kernel host builds in memory that it shares with its
 * BPF programs.
 *
 * The layout is computed by the same function that fills it in: with no memory it only counts.
 *
 * Granularity is nothing but the placement of the idle words. A granularity's domain (the machine,
 * a node, an LLC, a shard) starts on a line of its own; within it, shards are packed into words as
 * densely as they go without straddling one. So with `global` 512 CPUs share a line, as in the
 * kernel's own mask.
 *
 * A bit per CPU for tasks on weak ones comes next, on machines whose CPUs differ (capacity.c).
 *
 * The CPU priority map, if the spec asks for it, comes last, so that nothing else moves. A domain's
 * words stand level by level, and a domain starts on a line of its own. So with `global` and `node`
 * the CPUs of up to 512 cids share a line per level, as in the kernel and in the published proposal,
 * and a shard by itself has all its levels on 13 lines (832 bytes). A shard costs 64 bytes more in
 * tables, a node 24, and for every 64 of its shards 832, and 64 for the levels: at 4,096 CPUs in
 * 256 shards on 8 nodes 236,736 bytes, in 64 shards 64,704.
 */
#ifndef USHER_BUILD_C
#define USHER_BUILD_C

#include "../include/usher/usher.h"
#include "capacity.c"

#define USHER_CLOCK_START (1ULL << 40) /* far from zero, which means "never ran" */

struct usher_bump {
	u8 *base;
	u64 used;
};

/* The next bytes, aligned to a line; NULL while only counting. */
static void *usher_take(struct usher_bump *bump, u64 bytes)
{
	u64 at = (bump->used + USHER_LINE - 1) & ~(u64)(USHER_LINE - 1);

	bump->used = at + bytes;
	return bump->base ? bump->base + at : NULL;
}

/* Whether a new line of idle words starts with shard s, given the last cid of the shard before it. */
static bool usher_new_domain(const struct usher_spec *spec, u32 last, u32 cid)
{
	switch (spec->granularity) {
	case USHER_GLOBAL:
		return false;
	case USHER_NODE:
		return spec->node[last] != spec->node[cid];
	case USHER_LLC:
		return spec->llc[last] != spec->llc[cid];
	default:
		return true;
	}
}

/* Where every shard's idle bits go: the word and the lowest bit. Returns the number of words, lines of 8. */
static u64 usher_pack_words(const struct usher_spec *spec, const u32 *first, struct usher_shard *shards,
			    u64 *words)
{
	u64 word = 0;
	u32 used = 0, s;

	for (s = 0; s < spec->nr_shards; s++) {
		u32 nr = first[s + 1] - first[s];

		if (s && usher_new_domain(spec, first[s] - 1, first[s])) {
			word = (word / 8 + 1) * 8;
			used = 0;
		} else if (used + nr > 64) {
			word++;
			used = 0;
		}
		if (shards) {
			shards[s].word = words + word;
			shards[s].shift = used;
		}
		used += nr;
	}
	return word + 1;
}

/* The shard behind the last of the domain that starts with shard s; in *words how many words its bits take. */
static u32 usher_domain_end(const struct usher_spec *spec, const u32 *first, u32 s, u32 *words)
{
	u32 used = 0;

	*words = 1;
	do {
		u32 nr = first[s + 1] - first[s];

		if (used + nr > 64) {
			++*words;
			used = 0;
		}
		used += nr;
		s++;
	} while (s < spec->nr_shards && !usher_new_domain(spec, first[s] - 1, first[s]));
	return s;
}

/* Tiers beyond the last that is told apart are weaker still and count as the last. */
static u32 usher_tier(const struct usher_spec *spec, u32 cid)
{
	return spec->tier[cid] < USHER_MAX_TIERS ? spec->tier[cid] : USHER_MAX_TIERS - 1;
}

/* Whether there is something to tell the CPUs apart by: then there is room for struct usher.misfits. */
static bool usher_tiers_differ(const struct usher_spec *spec)
{
	u32 c;

	for (c = 0; c < spec->nr_cids && !spec->no_capacity; c++)
		if (spec->capacity[c] != spec->capacity[0])
			return true;
	return false;
}

static void usher_fill_shards(struct usher *u, const struct usher_spec *spec, const u32 *first)
{
	u32 s, c;

	for (s = 0; s < spec->nr_shards; s++) {
		struct usher_shard *shard = &u->shards[s];
		u32 nr = first[s + 1] - first[s], start = first[s];

		shard->base = first[s] - shard->shift;
		shard->valid = (nr == 64 ? ~0ULL : (1ULL << nr) - 1) << shard->shift;
		shard->llc = spec->llc[first[s]];
		shard->node = spec->node[first[s]];
		shard->smt = 1;
		for (c = first[s]; c < first[s + 1]; c++) {
			u32 bit = c - shard->base, width;

			u->cids[c].bit = bit;
			shard->tier[usher_tier(spec, c)] |= 1ULL << bit;
			if (c == first[s] || spec->core[c] != spec->core[c - 1]) {
				start = c;
				shard->first_thread |= 1ULL << bit;
			}
			width = c - start + 1;
			if (width > 1 && width <= USHER_MAX_SMT)
				shard->wider[width - 2] |= 1ULL << (start - shard->base);
			if (width > shard->smt)
				shard->smt = width;
		}
		if (shard->smt > u->smt)
			u->smt = shard->smt;
	}
}

static void usher_fill_cids(struct usher *u, const struct usher_spec *spec)
{
	u32 c, d;

	for (c = 0; c < spec->nr_cpu_ids; c++)
		u->cid_of_cpu[c] = -1;
	for (c = 0; c < spec->nr_cids; c++) {
		struct usher_cid *cid = &u->cids[c];

		cid->cpu = spec->cpu[c];
		cid->shard = spec->shard[c];
		cid->llc = spec->llc[c];
		cid->queue = spec->queue[c];
		cid->node = spec->node[c];
		cid->tier = usher_tier(spec, c);
		cid->capacity = spec->capacity[c];
		u->cid_of_cpu[spec->cpu[c]] = c;
	}
	/* Siblings stand next to each other; those of a core wider than a shard are told apart by shard. */
	for (c = 0; c < spec->nr_cids; c++)
		for (d = c; d < spec->nr_cids && spec->core[d] == spec->core[c]; d++) {
			if (spec->shard[d] != spec->shard[c])
				break;
			u->cids[c].core |= 1ULL << u->cids[d].bit;
			u->cids[d].core |= 1ULL << u->cids[c].bit;
		}
}

static void usher_fill_llcs(struct usher *u, const struct usher_spec *spec, u64 *settled)
{
	u32 c;

	for (c = 0; c < spec->nr_cids; c++) {
		struct usher_llc *llc = &u->llcs[spec->llc[c]];

		if (!llc->nr_cids) {
			llc->first_cid = c;
			llc->first_shard = spec->shard[c];
			llc->first_queue = spec->queue[c];
			llc->node = spec->node[c];
			llc->settled = settled + spec->llc[c] * (USHER_LINE / 8);
		}
		if (c == 0 || spec->shard[c] != spec->shard[c - 1])
			llc->nr_cores += env_ones(u->shards[spec->shard[c]].first_thread);
		llc->nr_cids++;
		llc->nr_shards = spec->shard[c] - llc->first_shard + 1;
		llc->nr_queues = spec->queue[c] - llc->first_queue + 1;
	}
}

static void usher_fill_queues(struct usher *u, const struct usher_spec *spec, u64 *clocks)
{
	u32 c;

	for (c = 0; c < spec->nr_cids; c++) {
		struct usher_queue *queue = &u->queues[spec->queue[c]];

		if (!queue->nr_cids)
			queue->first_cid = c;
		queue->nr_cids++;
		queue->llc = spec->llc[c];
		queue->node = spec->node[c];
		queue->power += u->asymmetric ? spec->capacity[c] : 1;
	}
	for (c = 0; c < spec->nr_queues; c++) {
		u->queues[c].clock = (struct usher_clock *)(clocks + c * (USHER_LINE / 8));
		u->queues[c].clock->now = USHER_CLOCK_START;
	}
}

/* All nodes as seen from one, nearest first: insertion sort by (distance, id). */
static void usher_sort_nodes(const struct usher_spec *spec, u32 from, u32 *order)
{
	const u32 *distance = spec->distance + (u64)from * spec->nr_nodes;
	u32 n, i;

	for (n = 0; n < spec->nr_nodes; n++) {
		for (i = n; i > 0; i--) {
			u32 other = order[i - 1];
			bool nearer = n == from ||
				      (other != from &&
				       (distance[n] < distance[other] ||
					(distance[n] == distance[other] &&
					 spec->node_id[n] < spec->node_id[other])));

			if (!nearer)
				break;
			order[i] = other;
		}
		order[i] = n;
	}
}

static void usher_fill_nodes(struct usher *u, const struct usher_spec *spec)
{
	u32 c, n;

	for (c = 0; c < spec->nr_cids; c++) {
		struct usher_node *node = &u->nodes[spec->node[c]];

		if (!node->nr_cids) {
			node->first_cid = c;
			node->first_shard = spec->shard[c];
			node->first_llc = spec->llc[c];
			node->first_queue = spec->queue[c];
		}
		if (c == 0 || spec->llc[c] != spec->llc[c - 1])
			node->nr_cores += u->llcs[spec->llc[c]].nr_cores;
		node->nr_cids++;
		node->nr_shards = spec->shard[c] - node->first_shard + 1;
		node->nr_llcs = spec->llc[c] - node->first_llc + 1;
		node->nr_queues = spec->queue[c] - node->first_queue + 1;
	}
	for (n = 0; n < spec->nr_nodes; n++) {
		u->nodes[n].id = spec->node_id[n];
		usher_sort_nodes(spec, n, u->nodes[n].order);
	}
}

/*
 * What capacity.c goes by. CPUs of about the same capacity count as equal, so that a machine whose best cores differ by
 * a hundred megahertz pays nothing.
 */
static void usher_fill_tiers(struct usher *u, const struct usher_spec *spec, u64 *misfits)
{
	u32 c, t, top = 0, least = ~0u, tiers = 0;

	for (c = 0; c < spec->nr_cids; c++) {
		u32 capacity = spec->capacity[c];

		t = usher_tier(spec, c);
		if (!(tiers >> t & 1) || capacity < u->tier_capacity[t])
			u->tier_capacity[t] = capacity;
		tiers |= 1u << t;
		if (capacity > top)
			top = capacity;
		if (capacity < least)
			least = capacity;
	}
	for (t = 0; t < USHER_MAX_TIERS; t++)
		if (tiers >> t & 1 && !usher_greater(top, u->tier_capacity[t]))
			u->top_tiers |= 1u << t;
	u->tiers = tiers;
	u->light_need = least / USHER_LIGHT_PART;
	u->tier_order = spec->tier_order;
	u->asymmetric = misfits && u->top_tiers != tiers;
	u->misfits = u->asymmetric ? misfits : NULL;
}

/* The bits of shards in their nodes' summaries, and of queues in their nodes' backlogs. */
static void usher_fill_summaries(struct usher *u, const struct usher_spec *spec)
{
	u32 i;

	for (i = 0; i < spec->nr_shards; i++) {
		struct usher_node *node = &u->nodes[u->shards[i].node];
		u32 bit = i - node->first_shard;

		u->shards[i].summary = node->summary + bit / 64;
		u->shards[i].summary_bit = 1ULL << (bit % 64);
	}
	for (i = 0; i < spec->nr_queues; i++) {
		struct usher_node *node = &u->nodes[u->queues[i].node];
		u32 bit = i - node->first_queue;

		u->queues[i].backlog = node->backlog + bit / 64;
		u->queues[i].near = node->near + bit / 64;
		u->queues[i].backlog_bit = 1ULL << (bit % 64);
	}
}

/* A node's part of the CPU priority map, and the bits of its shards there. */
static void usher_fill_cpupri(struct usher *u, u32 n, u64 *levels, u64 *present, u32 words)
{
	struct usher_node *node = &u->nodes[n];
	struct usher_cpupri_node map = { .levels = levels, .present = present, .words = words };
	u32 i;

	u->cpupri_nodes[n] = map;
	for (i = 0; i < node->nr_shards; i++) {
		struct usher_cpupri_leaf *leaf = &u->leaves[node->first_shard + i];

		leaf->levels = levels;
		leaf->present = present + i / 64;
		leaf->present_bit = 1ULL << (i % 64);
		leaf->present_stride = words;
	}
}

/* How many shards, or queues, a node has: of is spec->shard or spec->queue. */
static u32 usher_count_in_node(const struct usher_spec *spec, const u32 *of, u32 node)
{
	u32 c, n = 0;

	for (c = 0; c < spec->nr_cids; c++)
		if (spec->node[c] == node && (c == 0 || of[c] != of[c - 1]))
			n++;
	return n;
}

/* The CPU priority map: lays it out and, unless only counting, fills it in. All else is filled in before. */
static void usher_layout_cpupri(const struct usher_spec *spec, struct usher_bump *bump, const u32 *first,
				struct usher *u)
{
	u32 s, end, n, i, words;

	u->leaves = usher_take(bump, spec->nr_shards * sizeof(*u->leaves));
	u->cpupri_nodes = usher_take(bump, spec->nr_nodes * sizeof(*u->cpupri_nodes));
	u->cpupri_levels = usher_take(bump, (u64)spec->nr_nodes * USHER_LINE);
	for (n = 0; n < spec->nr_nodes; n++) {
		u64 *present;

		words = (usher_count_in_node(spec, spec->shard, n) + 63) / 64;
		present = usher_take(bump, USHER_LEVELS * words * sizeof(u64));
		if (bump->base)
			usher_fill_cpupri(u, n, u->cpupri_levels + n * (USHER_LINE / 8), present, words);
	}
	for (s = 0; s < spec->nr_shards; s = end) {
		u64 *domain;

		end = usher_domain_end(spec, first, s, &words);
		domain = usher_take(bump, (USHER_LEVELS + 1) * words * sizeof(u64));
		for (i = s; i < end && bump->base; i++) {
			u->leaves[i].words = domain + (u->shards[i].word - u->shards[s].word);
			u->leaves[i].stride = words;
		}
	}
	usher_take(bump, 0); /* the last line is whole */
}

/* Lays the tables out from mem on and, unless mem is NULL, fills them. Returns the bytes they take. */
static u64 usher_layout(const struct usher_spec *spec, void *mem)
{
	struct usher_bump bump = { .base = mem };
	struct usher dummy = { 0 }, *u = usher_take(&bump, sizeof(*u));
	u32 first[USHER_MAX_CIDS + 1];
	u64 *words, *clocks, *settled, *misfits = NULL;
	u32 n, c, s = 0, nr_summaries = 0, nr_backlogs = 0;

	for (c = 0; c < spec->nr_cids; c++)
		if (c == 0 || spec->shard[c] != spec->shard[c - 1])
			first[s++] = c;
	first[s] = spec->nr_cids;
	if (!mem)
		u = &dummy;
	u->cids = usher_take(&bump, spec->nr_cids * sizeof(*u->cids));
	u->shards = usher_take(&bump, spec->nr_shards * sizeof(*u->shards));
	u->llcs = usher_take(&bump, spec->nr_llcs * sizeof(*u->llcs));
	u->queues = usher_take(&bump, spec->nr_queues * sizeof(*u->queues));
	u->nodes = usher_take(&bump, spec->nr_nodes * sizeof(*u->nodes));
	u->cid_of_cpu = usher_take(&bump, spec->nr_cpu_ids * sizeof(*u->cid_of_cpu));
	/* A node has a word for every 64 shards, or queues, or part of them. */
	u->summaries = usher_take(&bump, (spec->nr_nodes + spec->nr_shards / 64) * sizeof(*u->summaries));
	u->backlogs = usher_take(&bump, (spec->nr_nodes + spec->nr_queues / 64) * sizeof(*u->backlogs));
	for (n = 0; n < spec->nr_nodes; n++) {
		u32 shards = (usher_count_in_node(spec, spec->shard, n) + 63) / 64;
		u32 queues = (usher_count_in_node(spec, spec->queue, n) + 63) / 64;
		u32 *order = usher_take(&bump, spec->nr_nodes * sizeof(u32));
		u64 *summary = usher_take(&bump, shards * sizeof(u64));
		u64 *near = usher_take(&bump, queues * sizeof(u64));

		if (!mem)
			continue;
		u->nodes[n].order = order;
		u->nodes[n].summary = summary;
		u->nodes[n].near = near;
		u->nodes[n].backlog = u->backlogs + nr_backlogs;
		nr_backlogs += queues;
		for (c = 0; c < shards; c++)
			u->summaries[nr_summaries++] = summary + c;
	}
	clocks = usher_take(&bump, (u64)spec->nr_queues * USHER_LINE);
	settled = usher_take(&bump, (u64)spec->nr_llcs * USHER_LINE);
	u->cpus = usher_take(&bump, spec->nr_cids * sizeof(*u->cpus));
	words = usher_take(&bump, usher_pack_words(spec, first, NULL, NULL) * sizeof(u64));
	usher_take(&bump, 0); /* the last line is whole */
	if (usher_tiers_differ(spec))
		misfits = usher_take(&bump, (spec->nr_cids + 511) / 512 * USHER_LINE);
	if (!mem) {
		if (spec->cpupri)
			usher_layout_cpupri(spec, &bump, first, u);
		return bump.used;
	}

	usher_pack_words(spec, first, u->shards, words);
	usher_fill_shards(u, spec, first);
	usher_fill_cids(u, spec);
	usher_fill_llcs(u, spec, settled);
	usher_fill_nodes(u, spec);
	usher_fill_tiers(u, spec, misfits);
	usher_fill_queues(u, spec, clocks);
	usher_fill_summaries(u, spec);
	if (spec->cpupri)
		usher_layout_cpupri(spec, &bump, first, u);
	u->nr_cids = spec->nr_cids;
	u->nr_shards = spec->nr_shards;
	u->nr_llcs = spec->nr_llcs;
	u->nr_queues = spec->nr_queues;
	u->nr_nodes = spec->nr_nodes;
	u->nr_summaries = nr_summaries;
	u->nr_backlogs = nr_backlogs;
	u->nr_cpu_ids = spec->nr_cpu_ids;
	u->granularity = spec->granularity;
	u->core_probes = spec->core_probes;
	u->slice_ns = spec->slice_ns;
	u->patience_ns = spec->patience_ns;
	u->fork_balance = spec->fork_balance;
	if (spec->nr_llcs > 1 && !u->asymmetric)
		u->soon_ns = spec->soon_ns;
	for (n = 0; n < spec->nr_queues; n++)
		u->queues[n].soon_ns = u->queues[n].nr_cids < USHER_PACE_CIDS ? 0 : u->soon_ns;
	u->bytes = bump.used;
	return bump.used;
}

/* The memory that usher_build() needs for a spec, in bytes. */
static u64 usher_bytes(const struct usher_spec *spec)
{
	return usher_layout(spec, NULL);
}

/* Builds into mem: usher_bytes() zeroed bytes on a line boundary. Every CPU starts busy. */
static struct usher *usher_build(const struct usher_spec *spec, void *mem)
{
	usher_layout(spec, mem);
	return mem;
}

#endif
