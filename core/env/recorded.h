/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core in one thread, recording what its decisions see (seen.h), or making one again from what was
 * recorded: then memory is not looked at, every access is answered from the record, and the first one that is not
 * the access of the record ends the attempt.
 */
#ifndef USHER_ENV_RECORDED_H
#define USHER_ENV_RECORDED_H

#include "types.h"
#include "seen.h"

struct usher_log {
	struct usher_seen *seen;
	u64 nr;	      /* accesses recorded, those included that found no room; or made again */
	u64 capacity; /* entries there are: room, or what was recorded */
	bool replays;
	bool differs; /* the access after the first nr is another one than the record's */
};

static inline u64 usher_log_see(struct usher_log *log, u64 what, u64 value)
{
	u32 kind = what & 0xff;
	bool answers = kind != USHER_SAW_WRITE && kind != USHER_SAW_GIVEN;
	struct usher_seen *seen = log->nr < log->capacity ? &log->seen[log->nr] : NULL;

	if (!log->replays) {
		if (seen)
			*seen = (struct usher_seen){ what, value };
		log->nr++;
		return value;
	}
	if (log->differs || !seen || seen->what != what || (!answers && seen->value != value)) {
		log->differs = true;
		return 0;
	}
	log->nr++;
	return seen->value;
}

enum usher_log_op { USHER_LOG_OR, USHER_LOG_AND, USHER_LOG_ADD };

static inline u64 usher_log_rmw(struct usher_log *log, u64 place, u64 *p, enum usher_log_op op, u64 operand)
{
	u64 old = *p;

	usher_log_see(log, place | USHER_SAW_GIVEN, operand);
	if (!log->replays)
		*p = op == USHER_LOG_OR ? old | operand : op == USHER_LOG_AND ? old & operand : old + operand;
	return usher_log_see(log, place | USHER_SAW_OLD, old);
}

static inline void usher_log_write(struct usher_log *log, u64 what, u64 *p, u64 value)
{
	usher_log_see(log, what, value);
	if (!log->replays)
		*p = value;
}

#define USHER_MEM
#define USHER_FN static inline __attribute__((unused))
#define USHER_COLD static __attribute__((noinline, unused))

#define usher_log_of(u) ((u)->host->log)
#define env_read(u, p) usher_log_see(usher_log_of(u), USHER_SAW(u, p, USHER_SAW_READ), *(p))
#define env_write(u, p, v) usher_log_write(usher_log_of(u), USHER_SAW(u, p, USHER_SAW_WRITE), (p), (v))
#define env_fetch_or(u, p, bits) usher_log_rmw(usher_log_of(u), USHER_SAW(u, p, 0), (p), USHER_LOG_OR, (bits))
#define env_fetch_and(u, p, bits) usher_log_rmw(usher_log_of(u), USHER_SAW(u, p, 0), (p), USHER_LOG_AND, (bits))
#define env_fetch_add(u, p, n) usher_log_rmw(usher_log_of(u), USHER_SAW(u, p, 0), (p), USHER_LOG_ADD, (u64)(n))
#define env_barrier(u) ((void)(u))
#define env_count(u, self, event) ((void)((u)->cpus[(self)].events[(event)]++))
#define env_queued(u, queue) usher_log_see(usher_log_of(u), USHER_SAW_QUEUE(queue), (u)->host->queued[(queue)])
#define env_lowest(bits) ((u32)__builtin_ctzll(bits))
#define env_ones(bits) ((u32)__builtin_popcountll(bits))
#define env_again(u) (!usher_log_of(u)->differs) /* an answer that was made up must not keep a loop going */

#endif
