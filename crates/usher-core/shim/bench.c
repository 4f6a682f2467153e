/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The loops of the benches. They are in C, so that what is measured and what it is measured against are called
 * in the same way and neither pays for a border between languages.
 *
 * A round is one release and one claim: a CPU that was claimed BENCH_BUSY rounds ago goes idle, and somebody who
 * last ran on the next cid of a list takes an idle CPU. The list's length is a power of two. Loops return a sum, so
 * that no round can be left out.
 */
#include "bench_place.h"

#define BENCH_BUSY 4 /* CPUs that are claimed and not yet released */

/* CLAIM is an expression with the cid `from`, RELEASE one with what the other gave, `taken`. */
#define BENCH_ROUNDS(CLAIM, RELEASE)                       \
	do {                                               \
		u64 busy[BENCH_BUSY], sum = 0, i;          \
		u32 from;                                  \
		for (i = 0; i < BENCH_BUSY; i++) {         \
			from = p->from[i & p->mask];       \
			busy[i] = (CLAIM);                 \
		}                                          \
		for (i = 0; i < rounds; i++) {             \
			u64 taken = busy[i % BENCH_BUSY];  \
			(RELEASE);                         \
			from = p->from[i & p->mask];       \
			taken = (CLAIM);                   \
			busy[i % BENCH_BUSY] = taken;      \
			sum += taken;                      \
		}                                          \
		for (i = 0; i < BENCH_BUSY; i++) {         \
			u64 taken = busy[i];               \
			(RELEASE);                         \
		}                                          \
		return sum;                                \
	} while (0)

/* The limit: two bare atomics on one line and nothing else. The processor works on several at once. */
u64 usher_bench_two_atomics(u64 *word, const struct usher_bench_places *p, u64 rounds)
{
	u64 sum = 0, i;

	for (i = 0; i < rounds; i++) {
		u64 bit = 1ULL << (p->from[i & p->mask] & 63);

		__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST);
		sum += (__atomic_fetch_and(word, ~bit, __ATOMIC_SEQ_CST) & bit) != 0;
	}
	return sum;
}

/*
 * The same two, when each needs what the one before returned. A claim does: which bit it clears depends on which
 * bits are set. `zero` is 0, which the compiler does not know.
 */
u64 usher_bench_two_in_turn(u64 *word, const struct usher_bench_places *p, u64 zero, u64 rounds)
{
	u64 sum = 0, old = 0, i;

	for (i = 0; i < rounds; i++) {
		u32 from = p->from[i & p->mask];

		old = __atomic_fetch_or(word, 1ULL << ((from + (old & zero)) & 63), __ATOMIC_SEQ_CST);
		old = __atomic_fetch_and(word, ~(1ULL << ((from + (old & zero)) & 63)), __ATOMIC_SEQ_CST);
		sum += old;
	}
	return sum;
}

BENCH_INLINE u64 bench_claim(struct usher *u, u32 from, u32 self)
{
	struct usher_search s = { .q = { .from = from, .self = self } };
	s32 cid = usher_search_llc(u, &s);

	if (cid < 0)
		cid = usher_search_node(u, &s, u->cids[from].node);
	if (cid < 0)
		cid = usher_search_remote(u, &s, u->cids[from].node);
	if (cid < 0)
		__builtin_trap(); /* the benches leave somebody idle */
	return cid;
}

BENCH_INLINE u64 bench_publish(struct usher *u, u32 cid)
{
	usher_idle_publish(u, cid);
	return 0;
}

/* The idle map by itself. */
u64 usher_bench_idle_map(struct usher *u, const struct usher_bench_places *p, u32 self, u64 rounds)
{
	BENCH_ROUNDS(bench_claim(u, from, self), bench_publish(u, taken));
}

/* The same, and who goes idle looks for work in all queues. */
u64 usher_bench_idle_and_look(struct usher *u, const struct usher_bench_places *p, u32 self, u64 rounds)
{
	BENCH_ROUNDS(bench_claim(u, from, self), bench_release(u, taken));
}

/* Whole decisions of tasks that have no hints, which the compiler knows: the core as if there were none. */
u64 usher_bench_place(struct usher *u, const struct usher_bench_places *p, u32 waker, u32 wake, u64 rounds)
{
	return bench_place(u, p, waker, wake, 0, rounds);
}

BENCH_INLINE u64 bench_flag_claim(u64 *flags, u32 nr, u32 from)
{
	u32 cid = from, n;

	for (n = 0; n < nr; n++) {
		u64 *flag = &flags[(u64)cid * 8];

		if (__atomic_load_n(flag, __ATOMIC_RELAXED) &&
		    __atomic_exchange_n(flag, 0, __ATOMIC_SEQ_CST))
			return cid;
		if (++cid == nr)
			cid = 0;
	}
	__builtin_trap();
}

/* A flag per CPU, each on a line of its own, looked at one after the other. */
u64 usher_bench_flags(u64 *flags, u32 nr, const struct usher_bench_places *p, u64 rounds)
{
	BENCH_ROUNDS(bench_flag_claim(flags, nr, from),
		     __atomic_exchange_n(&flags[taken * 8], 1, __ATOMIC_SEQ_CST));
}

/* A CPU of one mask of some words, from the word of `at` on; ~0 if it is empty. */
BENCH_INLINE u64 bench_mask_claim(u64 *words, u32 nr, u32 at)
{
	u32 n;

	for (n = 0; n < nr; n++) {
		u64 idle = __atomic_load_n(&words[at], __ATOMIC_RELAXED);

		while (idle) {
			u64 bit = idle & -idle;

			if (__atomic_fetch_and(&words[at], ~bit, __ATOMIC_SEQ_CST) & bit)
				return at * 64 + (u32)__builtin_ctzll(bit);
			idle &= ~bit;
		}
		if (++at == nr)
			at = 0;
	}
	return ~0ULL;
}

/* The mask of `from`, then the others in order; each has `span` words, on lines of its own. */
BENCH_INLINE u64 bench_masks_claim(u64 *words, u32 nr, u32 span, u32 from)
{
	u32 own = from / 64 / span * span, base = own;

	do {
		u32 at = base == own ? from / 64 - own : 0;
		u64 cid = bench_mask_claim(words + base, span, at);

		if (cid != ~0ULL)
			return cid + base * 64;
		base = base + span < nr ? base + span : 0;
	} while (base != own);
	__builtin_trap();
}

/* Masks without any structure: one for the machine (span is nr), or one per node. `from` counts bits of them. */
u64 usher_bench_masks(u64 *words, u32 nr, u32 span, const struct usher_bench_places *p, u64 rounds)
{
	BENCH_ROUNDS(bench_masks_claim(words, nr, span, from),
		     __atomic_fetch_or(&words[taken / 64], 1ULL << (taken % 64), __ATOMIC_SEQ_CST));
}
