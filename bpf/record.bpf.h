/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Recording decisions for the loader, who writes them to a file: whose each was, what was asked, what it saw, what came of
 * it. Only in the object that is built with core/env/bpf_recorded.h; in the other nothing of it is left.
 *
 * A CPU writes its own ring only, with interrupts off. A full ring skips decisions, and counts them.
 */
#ifndef USHER_RECORD_BPF_H
#define USHER_RECORD_BPF_H

#ifdef USHER_RECORDS

#include "../core/include/usher/record.h"

/* The record at head. */
static __always_inline struct usher_record __arena *record_at(struct usher_ring __arena *ring)
{
	return (struct usher_record __arena *)(ring->first + ring->head % ring->nr_records * sizeof(struct usher_record));
}

/* A decision begins on CPU self. */
static __always_inline void record_begin(struct usher __arena *u, u32 self)
{
	struct usher_ring __arena *ring = (struct usher_ring __arena *)(u64)u->host;
	struct usher_record __arena *record = record_at(ring);
	struct usher_cpu __arena *me = &u->cpus[self];

	ring->nr_seen = 0;
	record->rotor = me->rotor;
	record->shorter_turn = me->shorter_turn;
	record->poke = me->poke;
}

/* It fell. By itself, as its frame would be one with that of select_cpu. */
static __noinline void record_end(struct usher __arena *u, struct task_struct *p, const struct usher_request *r, u32 packed)
{
	struct usher_ring __arena *ring = (struct usher_ring __arena *)(u64)u->host;
	struct usher_record __arena *record = record_at(ring);
	struct usher_decision d = usher_unpack(packed & ~(1u << 31));
	u64 comm[USHER_RECORD_COMM / 8] = {};
	u32 w;

	if (ring->nr_seen > USHER_RECORD_SEEN) {
		ring->too_long++;
		return;
	}
	if (ring->head + 1 - ring->tail >= ring->nr_records) {
		ring->skipped++;
		return;
	}
	record->at_ns = scx_bpf_now();
	record->pid = p->pid;
	record->nr_seen = ring->nr_seen;
	bpf_probe_read_kernel(comm, sizeof(comm), p->comm);
	((u64 __arena *)record->comm)[0] = comm[0];
	((u64 __arena *)record->comm)[1] = comm[1];
	usher_record_request(record, r);
	record->decision.cid = d.cid;
	record->decision.reason = d.reason;
	record->decision.claimed = d.claimed;
	record->decision.poke = packed >> 31;
	if (r->allowed)
		for (w = 0; w * 64 < u->nr_cids && can_loop; w = env_next(u, w))
			record->allowed.word[in_bounds(w)] = r->allowed->word[in_bounds(w)];
	usher_bpf_barrier(); /* what was written is there for whoever sees head */
	*(volatile u64 __arena *)&ring->head = ring->head + 1;
	ring->seen = record_at(ring)->seen;
}

/* A function of its own, lest the frame of select_cpu grows, which has other calls to make; none returns a structure. */
static __noinline u32 place_packed(struct usher __arena *u, struct task_struct *p, const struct usher_request *r)
{
	struct usher_decision d;
	u32 packed;

	record_begin(u, r->waker);
	d = usher_place(u, r);
	packed = usher_pack(d) | (u32)d.poke << 31;
	record_end(u, p, r, packed);
	return packed;
}

static __always_inline struct usher_decision place_recorded(struct usher __arena *u, struct task_struct *p,
							    const struct usher_request *r)
{
	u32 packed = place_packed(u, p, r);
	struct usher_decision d = usher_unpack(packed & ~(1u << 31));

	d.poke = packed >> 31;
	return d;
}

#else

static __always_inline struct usher_decision place_recorded(struct usher __arena *u, struct task_struct *p,
							    const struct usher_request *r)
{
	return usher_place(u, r);
}

#endif
#endif
