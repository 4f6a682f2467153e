/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core under a checker that tries every order in which the accesses of several CPUs can happen.
 *
 * An actor (what one CPU does) is a plain function. It depends on nothing but what it reads from
 * shared memory, so the checker needs no threads: it runs the actor again from its start, feeds it
 * the answers that it got so far, and stops it at the next access to shared memory. That access is
 * the actor's next step. The checker carries steps out on a memory of its own, in every order.
 *
 * Memory is that of x86 (TSO): a plain store sits in its CPU's buffer until some later time,
 * read-modify-writes and barriers wait until the buffer is empty, a CPU's reads see its own buffer
 * first. Reads are not reordered among themselves, which other machines do; the protocol puts a
 * full barrier wherever an order matters.
 *
 * In direct mode accesses happen at once in the memory of struct usher: to set a scene up, and to
 * ask questions about one that came to rest.
 */
#ifndef USHER_ENV_MODEL_H
#define USHER_ENV_MODEL_H

#include "types.h"

/* What an actor does next. The checker in Rust knows these numbers. */
enum model_step {
	MODEL_READ,
	MODEL_WRITE,
	MODEL_OR,
	MODEL_AND,
	MODEL_ADD,
	MODEL_BARRIER,
	MODEL_PUSH,  /* add 1 to the length of a queue, under its lock */
	MODEL_POP,   /* take 1 off, unless it is 0 */
	MODEL_AWAIT, /* wait until the word is not 0, and clear it */
	MODEL_DONE,  /* the actor has returned */
};

/* Carries a step out or asks for it; the includer (tests/model.c) has the body. */
static u64 model_access(u32 step, u64 *place, u64 value);

#define USHER_MEM
#define USHER_FN static __attribute__((unused))
#define USHER_COLD static __attribute__((noinline, unused))

#define env_read(u, p) ((void)(u), model_access(MODEL_READ, (p), 0))
#define env_write(u, p, v) ((void)(u), (void)model_access(MODEL_WRITE, (p), (v)))
#define env_fetch_or(u, p, bits) ((void)(u), model_access(MODEL_OR, (p), (bits)))
#define env_fetch_and(u, p, bits) ((void)(u), model_access(MODEL_AND, (p), (bits)))
#define env_fetch_add(u, p, n) ((void)(u), model_access(MODEL_ADD, (p), (u64)(n)))
#define env_barrier(u) ((void)(u), (void)model_access(MODEL_BARRIER, NULL, 0))
#define env_read_barrier(u) ((void)(u)) /* reads are in order here: see above */
#define env_count(u, self, event) ((void)(u), (void)(self), (void)(event)) /* nothing depends on counts */
#define env_queued(u, queue) model_access(MODEL_READ, &(u)->host->queued[(queue)], 0)
#define env_lowest(bits) ((u32)__builtin_ctzll(bits))
#define env_ones(bits) ((u32)__builtin_popcountll(bits))
#define env_again(u) ((void)(u), true)

#endif
