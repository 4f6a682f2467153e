/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a decision saw: each access to shared memory that it made, in order, with the value that was there. A decision depends
 * on nothing else but its request and three words of its own CPU, so with these it can be made again anywhere, and
 * comes out the same however many CPUs wrote meanwhile.
 *
 * A recording environment (recorded.h, bpf_recorded.h) includes this behind its integer types.
 */
#ifndef USHER_ENV_SEEN_H
#define USHER_ENV_SEEN_H

enum usher_saw {
	USHER_SAW_READ,
	USHER_SAW_WRITE, /* the value is what was written */
	USHER_SAW_GIVEN, /* an atomic read-modify-write begins: the value is its operand */
	USHER_SAW_OLD,	 /* ... and ends: the value is what was there before */
	USHER_SAW_QUEUED, /* the length of a queue; the place is the LLC */
};

struct usher_seen {
	u64 what; /* the place, in bytes from the start of struct usher, above enum usher_saw in the low 8 bits */
	u64 value;
};

#define USHER_RECORD_SEEN 256 /* accesses a record has room for; a power of two */

/* Places are within 4 GiB of each other; the upper half of a pointer into a BPF arena may be the loader's, or none. */
#define USHER_SAW_AT(p, kind) ((u64)(u32)(u64)(p) << 8 | (kind))
#define USHER_SAW(u, p, kind) ((u64)(u32)((u64)(p) - (u64)(u)) << 8 | (kind))
#define USHER_SAW_QUEUE(queue) ((u64)(queue) << 8 | USHER_SAW_QUEUED)

#endif
