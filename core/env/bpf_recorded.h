/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf.h, with a record of what each decision sees (seen.h). Each access costs two stores more, so it is another object than the one that
 * is loaded otherwise.
 *
 * Whose record it is must be known without a call, for which searches have no room on their stacks. So each CPU has a copy of struct usher,
 * which is only read, and whose host is its ring. Places are addresses here, of which the reader takes that of struct usher off.
 *
 * The file that includes the core includes bpf_access.h behind place.c: what comes then places nobody, and has no room for it either.
 */
#ifndef USHER_ENV_BPF_RECORDED_H
#define USHER_ENV_BPF_RECORDED_H

#include "bpf.h"
#include "seen.h"

#define USHER_RECORDS 1
#define USHER_UNIT_LEAF USHER_INLINE /* with their stores, searches have no room for the frames of all their parts */

/*
 * Per CPU number: a ring of records. The CPU writes the one at head, and hands it to the loader by counting head up, unless none would be
 * left for it; the loader reads those from tail on. crates/scx_usher/src/record.rs mirrors it.
 */
struct usher_ring {
	struct usher_seen __arena *seen; /* of the record at head */
	u64 nr_seen; /* accesses since the decision at hand began, or since the one before; more than there is room for, too */
	u64 head;    /* records written so far */
	u64 first;   /* the address of the first record, of so many: */
	u64 nr_records;
	u64 skipped;  /* decisions that found the ring full, */
	u64 too_long; /* ... or saw more than a record holds */
	u64 unused;
	u64 tail; /* records read so far: written by the loader, on a line of its own */
	u64 unused_tail[7];
};

static __always_inline u64 usher_bpf_saw(u64 host, u64 what, u64 value)
{
	struct usher_ring __arena *ring = (struct usher_ring __arena *)host;
	struct usher_seen __arena *seen = &ring->seen[ring->nr_seen & (USHER_RECORD_SEEN - 1)];

	seen->what = what;
	seen->value = value;
	ring->nr_seen++;
	return value;
}

static __always_inline void usher_bpf_write(u64 host, u64 __arena *p, u64 value)
{
	usher_bpf_saw(host, USHER_SAW_AT(p, USHER_SAW_WRITE), value);
	*(volatile u64 __arena *)p = value;
}

#define usher_bpf_rmw(u, p, operand, op)                                                    \
	(usher_bpf_saw((u64)(u)->host, USHER_SAW_AT(p, USHER_SAW_GIVEN), (operand)), \
	 usher_bpf_saw((u64)(u)->host, USHER_SAW_AT(p, USHER_SAW_OLD), (op)))

#undef env_read
#undef env_write
#undef env_fetch_or
#undef env_fetch_and
#undef env_fetch_add
#undef env_queued
#define env_read(u, p) \
	usher_bpf_saw((u64)(u)->host, USHER_SAW_AT(p, USHER_SAW_READ), *(const volatile u64 __arena *)(p))
#define env_write(u, p, v) usher_bpf_write((u64)(u)->host, (p), (v))
#define env_fetch_or(u, p, bits) usher_bpf_rmw(u, p, (bits), usher_bpf_fetch_or((p), (bits)))
#define env_fetch_and(u, p, bits) usher_bpf_rmw(u, p, (bits), usher_bpf_fetch_and((p), (bits)))
#define env_fetch_add(u, p, n) usher_bpf_rmw(u, p, (u64)(n), __sync_fetch_and_add((p), (u64)(n)))
#define env_queued(u, queue) usher_bpf_saw((u64)(u)->host, USHER_SAW_QUEUE(queue), usher_bpf_queued(queue))

#endif
