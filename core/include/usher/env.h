/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The one seam between the placement core and the world.
 *
 * The core is plain C11: no libc, no allocation, no kernel header, no float. Everything it needs
 * from outside it asks for through the operations below, and a host supplies them in one header,
 * named on the compiler's command line as USHER_ENV (for example -DUSHER_ENV='"native.h"'):
 *
 *   env/bpf.h      inside a Linux kernel, as part of a sched_ext scheduler
 *   env/native.h   a process with threads: C11 atomics
 *   env/model.h    one thread; every shared access is a step that a checker may reorder
 *   env/traced.h   one thread; every shared access is written to a log (the simulator prices it)
 *   env/recorded.h, env/bpf_recorded.h   what each shared access saw is recorded, so that a decision can be made again
 *
 * A host supplies
 *
 *   u8 u16 u32 u64 s32 s64 bool     the integer types
 *   USHER_MEM                       qualifier of pointers into the memory behind struct usher
 *   USHER_FN                        storage class of the core's functions
 *   USHER_COLD                      the same for functions off the hot path
 *   USHER_OUTLINE                   USHER_COLD, but USHER_FN where calls are only so many deep. Optional
 *   USHER_INLINE                    of functions that must become part of their callers. Optional.
 *   USHER_UNIT                      of functions that are best compiled, and checked, on their own: they take
 *                                   and return integers and pointers only. Optional, and with it
 *   USHER_UNIT_MEM, USHER_UNIT_PTR  what a host wants to be said of their parameters, for pointers with and
 *                                   without USHER_MEM
 *   USHER_UNIT_FN                   USHER_UNIT only where code is checked before it runs, else USHER_FN. Optional
 *   USHER_UNIT_COLD                 USHER_UNIT and off the hot path. Optional
 *   USHER_UNIT_LEAF                 USHER_UNIT, but part of its callers where there is no room for its frame. Optional
 *
 * and, for u the struct usher at hand and p a pointer to a u64 that other CPUs touch:
 *
 *   env_read(u, p)              the value; no order implied
 *   env_write(u, p, v)          a store; no order implied
 *   env_fetch_or(u, p, bits)    the value before; a full barrier on both sides
 *   env_fetch_and(u, p, bits)   likewise
 *   env_fetch_add(u, p, n)      likewise; n may be negative
 *   env_barrier(u)              a full barrier
 *   env_read_barrier(u)         reads before it are done before those behind it. Optional: a full barrier will do
 *   env_count(u, self, event)   one more of enum usher_event, on behalf of CPU self; never shared
 *   env_lowest(bits)            the index of the lowest set bit; bits is not 0
 *   env_ones(bits)              how many bits are set
 *   env_asymmetric(u)           u->asymmetric. A host that knows beforehand that its CPUs are equal says so with a constant,
 *                               and what is there for others is neither compiled nor checked. Optional.
 *   env_queued(u, llc)          tasks waiting in the queue of an LLC
 *   env_again(u)                true while a loop may go on; a host with a budget ends it here
 *   env_next(u, i)              i + 1, for the counters of such loops. A host whose code is checked before it
 *                               runs hides the value, so that the check does not walk through every
 *                               round of a loop whose end it does not know. Optional.
 *
 * There is no #ifdef of a host anywhere in the core.
 */
#ifndef USHER_ENV_H
#define USHER_ENV_H

#ifndef USHER_ENV
#error "define USHER_ENV as the header of the host's environment, for example '\"native.h\"'"
#endif
#include USHER_ENV

#ifndef USHER_INLINE
#define USHER_INLINE USHER_FN
#endif
#ifndef USHER_UNIT
#define USHER_UNIT USHER_FN
#define USHER_UNIT_MEM
#define USHER_UNIT_PTR
#endif
#ifndef USHER_OUTLINE
#define USHER_OUTLINE USHER_COLD
#endif
#ifndef USHER_UNIT_FN
#define USHER_UNIT_FN USHER_FN
#endif
#ifndef USHER_UNIT_COLD
#define USHER_UNIT_COLD USHER_COLD
#endif
#ifndef USHER_UNIT_LEAF
#define USHER_UNIT_LEAF USHER_UNIT
#endif
#ifndef env_asymmetric
#define env_asymmetric(u) ((u)->asymmetric)
#endif
#ifndef env_read_barrier
#define env_read_barrier(u) env_barrier(u)
#endif
#ifndef env_next
#define env_next(u, i) ((void)(u), (i) + 1)
#endif

#endif
