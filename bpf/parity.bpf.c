/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core as the kernel runs it, replaying streams of operations (core/tests/stream.h) through the
 * kernel's program test run, for comparison with the native core. Needs no sched_ext.
 */
#include "../core/include/usher/usher.h"

char _license[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; the runner sets it from the machine's size */
} usher_arena SEC(".maps");

struct usher_stream;

/* Set by the runner: addresses in the arena, and how many steps a run takes. */
struct usher __arena *usher_root;
struct usher_stream __arena *usher_stream;
u64 __arena *usher_queued;
u32 usher_steps;

/* Loops that the kernel's budget ended: the comparison is void. */
u64 usher_gave_up;

static u64 usher_bpf_queued(u32 queue)
{
	return usher_queued[queue];
}

static bool usher_bpf_asymmetric(struct usher __arena *u)
{
	return u->asymmetric;
}

static void usher_bpf_gave_up(void)
{
	usher_gave_up++;
}

#include "../core/src/core.c"
#include "../core/tests/stream.h"

SEC("syscall")
int usher_replay(void *ctx)
{
	struct usher_stream __arena *s;
	struct usher __arena *u;
	u32 i;

	asm volatile("" : : "r"(&usher_arena));
	u = usher_root;
	s = usher_stream;
	for (i = 0; i < usher_steps; i = env_next(u, i)) {
		if (!can_loop) {
			usher_bpf_gave_up();
			break;
		}
		usher_stream_step(u, s);
	}
	return 0;
}
