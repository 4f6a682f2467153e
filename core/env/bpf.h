/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core inside a Linux kernel, as part of a BPF object.
 *
 * struct usher and its tables live in a BPF arena, built there by the loader with the same code as
 * everywhere. A pointer in the arena is the loader's own address; the compiler casts it (address
 * space 1) and the kernel uses its low 32 bits. The kernel checks nothing there and needs to know
 * no bounds: an access outside what is mapped reads 0 and writes nothing.
 *
 * x86's JIT compiles compare-and-swap and add on arena memory, but not fetch-or, fetch-and,
 * fetch-xor (arm64's does with LSE). So the two bit operations are loops around a compare-and-swap:
 * lock-free, and repeated only when somebody else changed the word meanwhile. A loop that the
 * kernel's budget ends (it would take millions of losses in a row) is reported to the includer.
 *
 * The file that includes the core defines, after including this header and before the core:
 *
 *   usher_bpf_queued(queue)   tasks that wait there
 *   usher_bpf_asymmetric(u) u->asymmetric, or false where that is known before the programs are loaded
 *   usher_bpf_gave_up()     a loop was ended by the kernel's budget: what was to be changed is not
 */
#ifndef USHER_ENV_BPF_H
#define USHER_ENV_BPF_H

/* The prototypes of kfuncs in vmlinux.h lack address spaces; the headers that need kfuncs declare them. */
#define BPF_NO_KFUNC_PROTOTYPES
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "bpf_arena_common.bpf.h"

#define USHER_MEM __arena
#define USHER_FN static inline __attribute__((unused))
#define USHER_INLINE static __always_inline __attribute__((unused)) /* BPF returns no structures */
/* Global functions: the verifier goes through each once per program instead of once per call. */
#define USHER_UNIT __attribute__((noinline))
#define USHER_UNIT_FN USHER_UNIT
#define USHER_UNIT_COLD USHER_UNIT
#define USHER_UNIT_MEM __arg_arena
#define USHER_UNIT_PTR __arg_nonnull
#define USHER_COLD static __attribute__((noinline, unused))
#define USHER_OUTLINE USHER_FN /* the verifier allows eight frames */

/*
 * The verifier is done with a can_loop loop when a round begins in a state that an earlier round
 * covers. A counter that steps by a constant it knows has other bounds in each round and is never
 * covered; one that steps by what a writable global happens to hold is "some number" from the
 * second round on. Always 1.
 */
static volatile u32 usher_bpf_one = 1;

struct usher;

static u64 usher_bpf_queued(u32 queue);
static bool usher_bpf_asymmetric(struct usher __arena *u);
static void usher_bpf_gave_up(void);

static inline u64 usher_bpf_fetch_or(u64 __arena *p, u64 bits)
{
	u64 old = *(volatile u64 __arena *)p, seen;

	do {
		seen = __sync_val_compare_and_swap(p, old, old | bits);
		if (seen == old)
			return old;
		old = seen;
	} while (can_loop);
	usher_bpf_gave_up();
	return old;
}

static inline u64 usher_bpf_fetch_and(u64 __arena *p, u64 bits)
{
	u64 old = *(volatile u64 __arena *)p, seen;

	do {
		seen = __sync_val_compare_and_swap(p, old, old & bits);
		if (seen == old)
			return old;
		old = seen;
	} while (can_loop);
	usher_bpf_gave_up();
	return 0; /* as if nobody was there: the caller owns nothing */
}

/* A read-modify-write that returns the old value is a full barrier; a plain one need not be (arm64). */
static inline void usher_bpf_barrier(void)
{
	u64 word = 0, zero = 0;

	asm volatile("%0 = atomic_fetch_add((u64 *)(%1 + 0), %0)" : "+r"(zero) : "r"(&word) : "memory");
}

/*
 * The index of the lowest set bit, which BPF has no instruction for: that bit alone times this number has an index of its own in the
 * highest six bits. The compiler's own way has such a table for each use.
 */
static const u8 usher_bpf_index[64] = {
	0, 1, 48, 2, 57, 49, 28, 3, 61, 58, 50, 42, 38, 29, 17, 4,
	62, 55, 59, 36, 53, 51, 43, 22, 45, 39, 33, 30, 24, 18, 12, 5,
	63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21, 44, 32, 23, 11,
	46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9, 13, 8, 7, 6,
};

static __always_inline u32 usher_bpf_lowest(u64 bits)
{
	bits &= -bits;
	asm("" : "+r"(bits)); /* lest the compiler sees what this is, and does it in its own way */
	return usher_bpf_index[bits * 0x3f79d71b4cb0a89ULL >> 58];
}

#include "bpf_access.h"
#define env_barrier(u) usher_bpf_barrier()
#define env_count(u, self, event) ((void)((u)->cpus[(self)].events[(event)]++))
#define env_asymmetric(u) usher_bpf_asymmetric(u)
#define env_lowest(bits) usher_bpf_lowest(bits)
#define env_ones(bits) ((u32)__builtin_popcountll(bits))
#define env_again(u) can_loop
#define env_next(u, i) ((i) + usher_bpf_one)

#endif
