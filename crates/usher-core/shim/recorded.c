/* SPDX-License-Identifier: GPL-2.0-only */
/* The core that records its decisions, and makes recorded ones again. */
#include "../../../core/src/core.c"
#include "../../../core/include/usher/record.h"

u32 usher_recorded_size(void)
{
	return sizeof(struct usher_record);
}

/* Decides and fills the record, but for whose the task is. False: it saw more than there is room for. */
bool usher_recorded_record(struct usher *u, struct usher_record *record, const struct usher_request *r)
{
	struct usher_cpu *me = &u->cpus[r->waker];
	struct usher_log log = { .seen = record->seen, .capacity = USHER_RECORD_SEEN }, *kept = u->host->log;

	usher_record_request(record, r);
	if (r->allowed)
		record->allowed = *r->allowed;
	record->rotor = me->rotor;
	record->shorter_turn = me->shorter_turn;
	record->poke = me->poke;
	u->host->log = &log;
	record->decision = usher_place(u, r);
	u->host->log = kept;
	record->nr_seen = log.nr;
	return log.nr <= log.capacity;
}

/* Makes a recorded decision again. False: an access is another one than was recorded, or one is missing; *made says how many were alike. */
bool usher_recorded_replay(struct usher *u, struct usher_record *record, struct usher_decision *decision, u32 *made)
{
	struct usher_request r = {
		.allowed = record->restricted ? &record->allowed : NULL,
		.wake = record->wake,
		.prev = record->prev,
		.waker = record->waker,
		.nr_allowed = record->nr_allowed,
		.tiers = record->tiers,
		.hints = record->hints,
		.demand = record->demand,
	};
	struct usher_cpu *me = &u->cpus[r.waker];
	struct usher_log log = { .seen = record->seen, .capacity = record->nr_seen, .replays = true }, *kept = u->host->log;

	me->rotor = record->rotor;
	me->shorter_turn = record->shorter_turn;
	me->poke = record->poke;
	u->host->log = &log;
	*decision = usher_place(u, &r);
	u->host->log = kept;
	*made = log.nr;
	return !log.differs && log.nr == log.capacity;
}

/* What lies at a place, in bytes from the start of struct usher; the numbers are those of usher_core::Word. */
enum word { WORD_IDLE, WORD_SUMMARY, WORD_BACKLOG, WORD_CLOCK, WORD_SETTLED, WORD_CPU, WORD_OTHER };

u32 usher_recorded_word(struct usher *u, u64 place, u32 *of)
{
	u64 *p = (u64 *)((u8 *)u + place);
	u32 i;

	for (i = 0; i < u->nr_shards; i++) {
		struct usher_shard *shard = &u->shards[i];

		*of = i;
		if (p == shard->word)
			return WORD_IDLE;
	}
	for (i = 0; i < u->nr_shards; i++) {
		*of = u->shards[i].node;
		if (p == u->shards[i].summary)
			return WORD_SUMMARY;
	}
	for (i = 0; i < u->nr_queues; i++) {
		struct usher_queue *queue = &u->queues[i];

		*of = queue->node;
		if (p == queue->backlog || p == queue->near)
			return WORD_BACKLOG;
		*of = i;
		if (p >= &queue->clock->now && p <= &queue->clock->waits_ns)
			return WORD_CLOCK;
	}
	for (i = 0; i < u->nr_llcs; i++) {
		*of = i;
		if (p == u->llcs[i].settled)
			return WORD_SETTLED;
	}
	*of = ((u8 *)p - (u8 *)u->cpus) / sizeof(*u->cpus);
	if ((u8 *)p >= (u8 *)u->cpus && *of < u->nr_cids)
		return WORD_CPU;
	*of = 0;
	return WORD_OTHER;
}

/* Whose bit it is in a word of idle bits, which several shards may share; negative: nobody's. */
s32 usher_recorded_idle_cid(struct usher *u, u64 place, u32 bit)
{
	u64 *p = (u64 *)((u8 *)u + place);
	u32 i;

	for (i = 0; i < u->nr_shards; i++)
		if (p == u->shards[i].word && u->shards[i].valid >> bit & 1)
			return u->shards[i].base + bit;
	return -1;
}

/*
 * The bits that a word can have on this machine. Searches take them for shards, queues and CPUs and look no further whether there are
 * such, so a record with others must not be made again.
 */
u64 usher_recorded_bits(struct usher *u, u64 place)
{
	u64 *p = (u64 *)((u8 *)u + place), bits = 0;
	bool known = false;
	u32 i;

	for (i = 0; i < u->nr_shards; i++) {
		struct usher_shard *shard = &u->shards[i];

		known |= p == shard->word || p == shard->summary;
		bits |= p == shard->word ? shard->valid : 0;
		bits |= p == shard->summary ? shard->summary_bit : 0;
	}
	for (i = 0; i < u->nr_queues; i++) {
		bool here = p == u->queues[i].backlog || p == u->queues[i].near;

		known |= here;
		bits |= here ? u->queues[i].backlog_bit : 0;
	}
	return known ? bits : ~0ULL;
}
