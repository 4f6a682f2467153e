/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The idle map: which CPUs are idle, and who may have them.
 *
 * A shard's idle bits are one word, by default on a line of its own, so that a CPU that goes idle
 * or is claimed disturbs nobody outside its shard. A CPU entering idle sets its bit with one
 * atomic. A searcher claims a CPU by clearing the bit with one atomic, and owns it only if the bit
 * was set: of any number of searchers exactly one does. Siblings are neighbouring bits, so whether
 * a whole core is idle is arithmetic on the same word; there is no second mask that could disagree
 * with the first.
 *
 * A node's summary has a bit per shard: somebody there may be idle. It is set eagerly, after the
 * idle bit, and cleared lazily, by a searcher who found the shard empty. Both sides change one word
 * and then look at the other, with a full barrier between, so they cannot both miss what the other
 * did:
 *
 *   usher_idle_publish()    set idle bit;  barrier; look at summary; set summary bit if clear
 *   usher_summary_retire()  clear summary; barrier; look at idle word; set summary bit if not empty
 *
 * Between clear and restore a third CPU's search may overlook an idle CPU. Whoever restored
 * remembers it (struct usher_cpu.poke) and then looks at the queues on behalf of that third CPU
 * (usher_rescue()).
 *
 * A CPU may be claimed to fetch a waiting task just when it gets another one. Its claimer cannot
 * know, so a CPU that leaves idle and finds itself claimed looks at the queues, too, on behalf of
 * its claimer.
 *
 * Tolerated: a whole core may stop being whole between the look and the claim, and the claimer then
 * shares the core with somebody. It costs speed once and is over when either of them sleeps.
 */
#ifndef USHER_IDLE_C
#define USHER_IDLE_C

#include "../include/usher/usher.h"

/* The idle bits of a shard, as bits of its word. */
USHER_FN u64 usher_shard_idle(struct usher USHER_MEM *u, struct usher_shard USHER_MEM *shard)
{
	return env_read(u, shard->word) & shard->valid;
}

/* The idle bit of a CPU is set: it is idle, and nobody has claimed it. */
USHER_FN bool usher_cid_idle(struct usher USHER_MEM *u, u32 cid)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];

	return usher_shard_idle(u, &u->shards[c->shard]) >> (c->bit & 63) & 1;
}

/* Of the idle bits given, the first threads of cores that are wholly idle. */
USHER_FN u64 usher_shard_cores(struct usher_shard USHER_MEM *shard, u64 idle)
{
	u64 cores = idle & shard->first_thread;
	u32 k;

	for (k = 1; k < USHER_MAX_SMT; k++) {
		if (k >= shard->smt)
			break;
		cores &= (idle >> k) | ~shard->wider[k - 1];
	}
	return cores;
}

/* The wholly idle cores of so many shards, from first on: those of an LLC or of a node. */
USHER_UNIT_COLD u32 usher_idle_cores(struct usher USHER_MEM *u USHER_UNIT_MEM, u32 first, u32 nr_shards)
{
	u32 idle = 0, i;

	for (i = 0; i < nr_shards && env_again(u); i = env_next(u, i)) {
		struct usher_shard USHER_MEM *shard = &u->shards[first + i];

		idle += env_ones(usher_shard_cores(shard, usher_shard_idle(u, shard)));
	}
	return idle;
}

/* All threads of the cores whose first threads are given. */
USHER_FN u64 usher_shard_threads(struct usher_shard USHER_MEM *shard, u64 cores)
{
	u64 threads = cores;
	u32 k;

	for (k = 1; k < USHER_MAX_SMT; k++) {
		if (k >= shard->smt)
			break;
		threads |= (cores & shard->wider[k - 1]) << k;
	}
	return threads;
}

USHER_FN u64 usher_set_word(const struct usher_set USHER_MEM *set, u32 w)
{
	return set->word[w & (USHER_MAX_WORDS - 1)];
}

/* The cids of a set that fall into a shard, as bits of its word. */
USHER_FN u64 usher_set_bits(const struct usher_set USHER_MEM *set, struct usher_shard USHER_MEM *shard)
{
	u32 first = shard->base + shard->shift;
	u32 word = first / 64, shift = first % 64;
	u64 bits = usher_set_word(set, word) >> shift;

	if (shift)
		bits |= usher_set_word(set, word + 1) << (64 - shift);
	return (bits << (shard->shift & 63)) & shard->valid;
}

USHER_FN bool usher_set_has(const struct usher_set USHER_MEM *set, u32 cid)
{
	return usher_set_word(set, cid / 64) >> (cid % 64) & 1;
}

/* The cids of a shard that a query may take. */
USHER_FN u64 usher_query_bits(const struct usher_query *q, struct usher_shard USHER_MEM *shard)
{
	u64 bits = shard->valid;
	u32 t;

	if (q->allowed)
		bits = usher_set_bits(q->allowed, shard);
	if (q->tiers) {
		u64 tiers = 0;

		for (t = 0; t < USHER_MAX_TIERS; t++)
			if (q->tiers >> t & 1)
				tiers |= shard->tier[t];
		bits &= tiers;
	}
	return bits;
}

/*
 * The lowest set bit at or above start, else the lowest, as a mask: spreads searchers with
 * different starts. Subtracting the start's bit clears the lowest set bit from there on and sets
 * those between, and changes nothing else. A claim waits for this value, so it is as short as it
 * can be, and a jump, not a choice.
 */
USHER_FN u64 usher_first_from(u64 bits, u32 start)
{
	u64 bit = bits & ~(bits - (1ULL << (start & 63)));

	if (__builtin_expect(bit != 0, 1))
		return bit;
	return bits & (~bits + 1);
}

/* Makes the CPU of this one bit the caller's own. Look at the bit before: a miss is an atomic for nothing. */
USHER_FN bool usher_claim_bit(struct usher USHER_MEM *u, struct usher_shard USHER_MEM *shard, u64 bit)
{
	return env_fetch_and(u, shard->word, ~bit) & bit;
}

/* The node-aware call "test and clear": true if cid was idle and is now the caller's. */
USHER_FN bool usher_test_and_clear(struct usher USHER_MEM *u, u32 cid)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];

	if (!usher_cid_idle(u, cid))
		return false;
	return usher_claim_bit(u, &u->shards[c->shard], 1ULL << (c->bit & 63));
}

/* Somebody waits in some queue, who is not left to the CPUs of its LLC. */
USHER_FN bool usher_work_for_all(struct usher USHER_MEM *u)
{
	u32 i;

	for (i = 0; i < u->nr_backlogs && env_again(u); i = env_next(u, i))
		if (env_read(u, &u->backlogs[i]))
			return true;
	return false;
}

/* Somebody waits who is left to the CPUs of cid's LLC. */
USHER_FN bool usher_work_near(struct usher USHER_MEM *u, u32 cid)
{
	struct usher_llc USHER_MEM *llc = &u->llcs[u->cids[cid].llc];
	struct usher_node USHER_MEM *node = &u->nodes[llc->node];
	u32 first = llc->first_queue - node->first_queue, end = first + llc->nr_queues, i;

	if (!u->soon_ns)
		return false;
	for (i = first / 64; i * 64 < end && env_again(u); i = env_next(u, i)) {
		u64 bits = env_read(u, &node->near[i]);

		if (i == first / 64)
			bits &= ~0ULL << (first & 63);
		if (end - i * 64 < 64)
			bits &= ~(~0ULL << (end & 63));
		if (bits)
			return true;
	}
	return false;
}

/* Somebody waits in a queue that cid looks into. Pairs with usher_queue_fill(). Test: idle_against_queue. */
USHER_FN bool usher_work_in_reach(struct usher USHER_MEM *u, u32 cid)
{
	return usher_work_near(u, cid) || usher_work_for_all(u);
}

/*
 * Publishes the idle bit before the summary; pairs with the look-again in usher_summary_retire().
 * Test: idle_against_retire.
 */
USHER_FN void usher_idle_publish(struct usher USHER_MEM *u, u32 cid)
{
	struct usher_cid USHER_MEM *c = &u->cids[cid];
	struct usher_shard USHER_MEM *shard = &u->shards[c->shard];

	env_fetch_or(u, shard->word, 1ULL << (c->bit & 63));
	if (!(env_read(u, shard->summary) & shard->summary_bit))
		env_fetch_or(u, shard->summary, shard->summary_bit);
}

/*
 * Publishes the CPU, then looks for work; pairs with usher_queue_fill(), which publishes work
 * before it looks for idle CPUs. Test: idle_against_queue.
 */
USHER_FN bool usher_idle_look(struct usher USHER_MEM *u, u32 cid)
{
	usher_idle_publish(u, cid);
	if (!usher_work_in_reach(u, cid))
		return false;
	env_count(u, cid, USHER_EV_IDLE_SAW_WORK);
	return true;
}

/*
 * cid reports that it has nothing to run. True: work is in reach all the same, and the host makes
 * the CPU look for it, unless somebody claims the CPU first.
 */
USHER_FN bool usher_idle_enter(struct usher USHER_MEM *u, u32 cid)
{
	if (u->cpus[cid].idle)
		return false;
	u->cpus[cid].idle = 1;
	return usher_idle_look(u, cid);
}

/* cid has nothing to run, and since it reported so somebody claimed it: for a task that is on its way, or to look for work. */
USHER_INLINE bool usher_claimed(struct usher USHER_MEM *u, u32 cid)
{
	return u->cpus[cid].idle && !usher_cid_idle(u, cid);
}

/* cid was idle, was woken, found nothing to run and stays idle: give back what a claimer took. */
USHER_FN bool usher_idle_again(struct usher USHER_MEM *u, u32 cid)
{
	if (!usher_claimed(u, cid))
		return false;
	env_count(u, cid, USHER_EV_IDLE_REENTERED);
	return usher_idle_look(u, cid);
}

/*
 * cid reports that it runs something. Only the owner sets its bit, so a clear one needs no write.
 * It is clear if somebody claimed the CPU: for the task that it now runs, or to fetch a task that
 * still waits. Who claimed cannot be asked, so usher_rescue() makes sure that nobody waits. Test:
 * take_against_look.
 */
USHER_FN void usher_idle_exit(struct usher USHER_MEM *u, u32 cid)
{
	if (!u->cpus[cid].idle)
		return;
	u->cpus[cid].idle = 0;
	if (!usher_test_and_clear(u, cid))
		u->cpus[cid].poke = 1;
}

/*
 * The shard was seen empty: take its bit out of the summary. Clear, full barrier (in the fetch),
 * look again, restore if it filled; pairs with usher_idle_publish(). True: it filled, and while the
 * bit was clear somebody may have overlooked the shard: usher_rescue(). Tests: idle_against_retire,
 * look_against_retire.
 */
USHER_FN bool usher_summary_retire(struct usher USHER_MEM *u, struct usher_shard USHER_MEM *shard, u32 self)
{
	env_fetch_and(u, shard->summary, ~shard->summary_bit);
	env_count(u, self, USHER_EV_SUMMARY_RETIRED);
	if (!usher_shard_idle(u, shard))
		return false;
	env_fetch_or(u, shard->summary, shard->summary_bit);
	u->cpus[self].poke = 1;
	env_count(u, self, USHER_EV_SUMMARY_RESTORED);
	return true;
}

/* A search in progress. */
struct usher_search {
	struct usher_query q;
	u32 core; /* only whole cores will do, at this step */
	u32 rest; /* where CPUs differ: the tiers that will do if none that is enough has anybody */
};

/* Claims a CPU of the shard, or USHER_NONE_IDLE. */
USHER_UNIT_LEAF s32 usher_search_shard(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR,
				  struct usher_shard USHER_MEM *shard USHER_UNIT_MEM, u64 idle, u32 start)
{
	const struct usher_query *q = &s->q;
	u32 i;

	if (s->core) {
		idle = usher_shard_cores(shard, idle);
		/* Anybody is offered first threads only, so that two claims do not meet on a core. */
		if (q->allowed || q->tiers)
			idle = usher_shard_threads(shard, idle);
	}
	if (q->allowed || q->tiers)
		idle &= usher_query_bits(q, shard);
	for (i = 0; i < 64 && idle && env_again(u); i = env_next(u, i)) {
		u64 bit = usher_first_from(idle, start);

		if (usher_claim_bit(u, shard, bit))
			return (s32)(shard->base + env_lowest(bit));
		env_count(u, q->self, USHER_EV_CLAIM_LOST);
		idle &= ~bit;
	}
	return USHER_NONE_IDLE;
}

/* The shards of the LLC behind this one, in a circle. */
USHER_FN s32 usher_search_siblings(struct usher USHER_MEM *u, struct usher_search *s, u32 own)
{
	struct usher_llc USHER_MEM *llc = &u->llcs[u->shards[own].llc];
	u32 index = own, i;

	for (i = 1; i < llc->nr_shards && env_again(u); i = env_next(u, i)) {
		struct usher_shard USHER_MEM *shard;
		u64 idle;

		if (++index == llc->first_shard + llc->nr_shards)
			index = llc->first_shard;
		shard = &u->shards[index];
		idle = usher_shard_idle(u, shard);
		if (idle) {
			s32 cid = usher_search_shard(u, s, shard, idle, 0);

			if (cid >= 0)
				return cid;
		}
	}
	return USHER_NONE_IDLE;
}

/* The LLC of q->from, its own shard first. */
USHER_UNIT s32 usher_search_llc(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR)
{
	struct usher_cid USHER_MEM *from = &u->cids[s->q.from];
	struct usher_shard USHER_MEM *shard = &u->shards[from->shard];
	u64 idle = usher_shard_idle(u, shard);

	if (idle) {
		s32 cid = usher_search_shard(u, s, shard, idle, from->bit);

		if (cid >= 0)
			return cid;
	}
	return usher_search_siblings(u, s, from->shard);
}

/*
 * One shard that the summary names. Returns a cid, or USHER_NONE_IDLE; clears the summary bit of an
 * empty shard, and searches one that filled meanwhile.
 */
USHER_UNIT s32 usher_search_named(struct usher USHER_MEM *u USHER_UNIT_MEM,
				  struct usher_search *s USHER_UNIT_PTR, u32 index)
{
	struct usher_shard USHER_MEM *shard = &u->shards[index];
	u64 idle = usher_shard_idle(u, shard);

	if (!idle) {
		if (!usher_summary_retire(u, shard, s->q.self))
			return USHER_NONE_IDLE;
		idle = usher_shard_idle(u, shard);
	}
	return usher_search_shard(u, s, shard, idle, 0);
}

/*
 * The shards of a node that the summary names, from where this CPU's last search ended. A search
 * for whole cores that may settle for less gives up after core_probes shards: on a machine with a
 * thread idle here and there it would read a line of every shard for nothing.
 */
USHER_UNIT s32 usher_search_node(struct usher USHER_MEM *u USHER_UNIT_MEM, struct usher_search *s USHER_UNIT_PTR, u32 index)
{
	struct usher_node USHER_MEM *node = &u->nodes[index];
	struct usher_cpu USHER_MEM *me = &u->cpus[s->q.self];
	u32 words = (node->nr_shards + 63) / 64;
	u32 start = me->rotor < node->nr_shards ? me->rotor : 0;
	u32 probes = 0, i;

	for (i = 0; i <= words && env_again(u); i = env_next(u, i)) {
		u32 w = start / 64 + i;
		u64 bits;

		if (w >= words)
			w -= words;
		if (w >= words)
			break; /* a node without shards */
		bits = env_read(u, &node->summary[w]);
		if (i == 0)
			bits &= ~0ULL << (start & 63);
		if (i == words)
			bits &= ~(~0ULL << (start & 63));
		while (bits && env_again(u)) {
			u32 shard = w * 64 + env_lowest(bits);
			s32 cid = usher_search_named(u, s, node->first_shard + shard);

			if (cid >= 0) {
				me->rotor = shard + 1;
				return cid;
			}
			bits &= bits - 1;
			probes = env_next(u, probes);
			if (s->core && !(s->q.flags & USHER_IDLE_CORE) && probes >= u->core_probes) {
				env_count(u, s->q.self, USHER_EV_SEARCH_BOUND);
				return USHER_NONE_IDLE;
			}
		}
	}
	return USHER_NONE_IDLE;
}

/* A node: a whole core if there is one, else any CPU. Sets *core to which it was. */
USHER_FN s32 usher_search_node_both(struct usher USHER_MEM *u, struct usher_search *s, u32 node)
{
	s32 cid;

	s->core = u->smt > 1 || s->q.flags & USHER_IDLE_CORE;
	if (s->core) {
		cid = usher_search_node(u, s, node);
		if (cid >= 0 || s->q.flags & USHER_IDLE_CORE)
			return cid;
		s->core = 0;
	}
	return usher_search_node(u, s, node);
}

/* All nodes but the first of the order, nearest first. */
USHER_OUTLINE s32 usher_search_remote(struct usher USHER_MEM *u, struct usher_search *s, u32 node)
{
	u32 USHER_MEM *order = u->nodes[node].order;
	u32 i;

	for (i = 1; i < u->nr_nodes && env_again(u); i = env_next(u, i)) {
		s32 cid = usher_search_node_both(u, s, order[i]);

		if (cid >= 0)
			return cid;
	}
	return USHER_NONE_IDLE;
}

#endif
