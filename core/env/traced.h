/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core in one thread, with a log of every access to memory that other CPUs share: the simulator
 * prices each of them by who had the line last. Accesses to read-only tables and to a CPU's own
 * counters are free of such traffic and are not logged.
 */
#ifndef USHER_ENV_TRACED_H
#define USHER_ENV_TRACED_H

#include "types.h"

enum usher_access {
	USHER_ACCESS_READ,
	USHER_ACCESS_WRITE,
	USHER_ACCESS_RMW, /* an atomic read-modify-write; a full barrier too */
	USHER_ACCESS_BARRIER,
	USHER_ACCESS_QUEUED, /* the length of a queue was read; the place is the LLC */
};

/* An entry is the place, in bytes from the start of struct usher, above the kind in the low 8 bits. */
struct usher_log {
	u64 *entries;
	u64 nr, capacity;
	u64 lost; /* entries that found the log full */
};

static inline void usher_log_add(struct usher_log *log, u64 place, u32 kind)
{
	if (log->nr < log->capacity)
		log->entries[log->nr++] = place << 8 | kind;
	else
		log->lost++;
}

#define usher_log_access(u, p, kind) usher_log_add((u)->host->log, (u64)((u8 *)(p) - (u8 *)(u)), kind)

static inline u64 usher_log_or(u64 *p, u64 bits)
{
	u64 old = *p;

	*p = old | bits;
	return old;
}

static inline u64 usher_log_and(u64 *p, u64 bits)
{
	u64 old = *p;

	*p = old & bits;
	return old;
}

static inline u64 usher_log_plus(u64 *p, u64 n)
{
	u64 old = *p;

	*p = old + n;
	return old;
}

#define USHER_MEM
#define USHER_FN static inline __attribute__((unused))
#define USHER_COLD static __attribute__((noinline, unused))

#define env_read(u, p) (usher_log_access(u, p, USHER_ACCESS_READ), *(p))
#define env_write(u, p, v) ((void)(usher_log_access(u, p, USHER_ACCESS_WRITE), *(p) = (v)))
#define env_fetch_or(u, p, bits) (usher_log_access(u, p, USHER_ACCESS_RMW), usher_log_or((p), (bits)))
#define env_fetch_and(u, p, bits) (usher_log_access(u, p, USHER_ACCESS_RMW), usher_log_and((p), (bits)))
#define env_fetch_add(u, p, n) (usher_log_access(u, p, USHER_ACCESS_RMW), usher_log_plus((p), (u64)(n)))
#define env_barrier(u) usher_log_add((u)->host->log, 0, USHER_ACCESS_BARRIER)
#define env_read_barrier(u) ((void)(u)) /* costs nothing on x86 */
#define env_count(u, self, event) ((void)((u)->cpus[(self)].events[(event)]++))
#define env_queued(u, queue) \
	(usher_log_add((u)->host->log, (queue), USHER_ACCESS_QUEUED), (u)->host->queued[(queue)])
#define env_lowest(bits) ((u32)__builtin_ctzll(bits))
#define env_ones(bits) ((u32)__builtin_popcountll(bits))
#define env_again(u) ((void)(u), true)

#endif
