/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core in an ordinary process: many threads, C11 atomics through the compiler's builtins. The
 * host behind u->host says what the core cannot know: the lengths of the queues, which the host
 * keeps.
 */
#ifndef USHER_ENV_NATIVE_H
#define USHER_ENV_NATIVE_H

#include "types.h"

#define USHER_MEM
#define USHER_FN static inline __attribute__((unused))
/* The hot path as one function: what a caller fixes, such as "any CPU will do", drops out of it. */
#define USHER_UNIT static inline __attribute__((always_inline, unused))
#define USHER_INLINE static inline __attribute__((always_inline, unused))
#define USHER_UNIT_MEM
#define USHER_UNIT_PTR
#define USHER_COLD static __attribute__((noinline, unused))

#define env_read(u, p) ((void)(u), __atomic_load_n((p), __ATOMIC_RELAXED))
#define env_write(u, p, v) ((void)(u), __atomic_store_n((p), (v), __ATOMIC_RELAXED))
#define env_fetch_or(u, p, bits) ((void)(u), __atomic_fetch_or((p), (bits), __ATOMIC_SEQ_CST))
#define env_fetch_and(u, p, bits) ((void)(u), __atomic_fetch_and((p), (bits), __ATOMIC_SEQ_CST))
#define env_fetch_add(u, p, n) ((void)(u), __atomic_fetch_add((p), (u64)(n), __ATOMIC_SEQ_CST))
#define env_barrier(u) ((void)(u), __atomic_thread_fence(__ATOMIC_SEQ_CST))
#define env_read_barrier(u) ((void)(u), __atomic_thread_fence(__ATOMIC_ACQUIRE))
#define env_count(u, self, event) ((void)((u)->cpus[(self)].events[(event)]++))
#define env_queued(u, queue) __atomic_load_n(&(u)->host->queued[(queue)], __ATOMIC_RELAXED)
#define env_lowest(bits) ((u32)__builtin_ctzll(bits))
#define env_ones(bits) ((u32)__builtin_popcountll(bits))
#define env_again(u) ((void)(u), true)

#endif
