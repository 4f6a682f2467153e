/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that go to those who wake them: the host's part of core/src/follow.c. What is kept of a task stands in its storage, which it has
 * from the first wakeup by another LLC on. How often it has slept the kernel counts as its voluntary switches.
 */
#ifndef USHER_FOLLOW_BPF_H
#define USHER_FOLLOW_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usher_follow);
} usher_followers SEC(".maps");

/* usher_follow(), by itself, so that its calls do not add to the frame of select_cpu. */
static __noinline void follow_waker(struct usher __arena *u, struct task_struct *p, struct usher_request *r)
{
	struct usher_follow *kept = bpf_task_storage_get(&usher_followers, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (kept)
		usher_follow(u, r, kept, p->nvcsw);
}

/* A task wakes: what becomes of its request, by who woke it before. */
static __always_inline void follow(struct usher __arena *u, struct task_struct *p, struct usher_request *r)
{
	if (usher_follows && usher_from_elsewhere(u, r))
		follow_waker(u, p, r);
}

#endif
