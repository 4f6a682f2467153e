/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hints of tasks: where they come from, and which LLC a hinted task lives in.
 *
 * A program asks with prctl(USHER_PR_HINT, op, flags, pid, 0); include/usher_hint.h says it in
 * full. The kernel knows no such option, and a program that modifies the return of
 * security_task_prctl() answers in its place: a value other than 0 ends the system call and becomes
 * its result. All other options pass untouched.
 *
 * Hints stand in the task's storage, which a child gets from its parent and which goes with the
 * task. Until somebody hints for the first time (usher_hinted), nobody looks for any. The map of
 * storages outlives a restart of the scheduler, which the loader hands it on to; where tasks live
 * is counted anew then, and homes of before, told by usher_life, count no more. Children born while
 * no scheduler is there begin without hints.
 *
 * Tasks that do not ask may have hints by a rule: rule.bpf.h.
 */
#ifndef USHER_HINT_BPF_H
#define USHER_HINT_BPF_H

#include "../include/usher_hint.h"

/* Since 6.13: of the caller's own namespace, where the older one takes global ids. */
extern struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym __weak;

#define USHER_CAP_SYS_NICE 23
#define USHER_EPERM 1
#define USHER_ESRCH 3
#define USHER_ENOMEM 12
#define USHER_EINVAL 22

struct usher_hinted {
	union {
		struct {
			u32 flags;  /* enum usher_hint */
			u32 source; /* 1 + the rule it comes from; USHER_HINT_OWN: it, or an ancestor, asked; 0: none */
		};
		u64 wish; /* both */
	};
	u32 home; /* where the task lives, by home_in(). Changed by exchange only. */
	u32 hold; /* usher_hold()'s; of the next CPU that wakes the task, which has its lock */
};

#define USHER_HINT_OWN (~0u)

/* Set by the loader before load; 0: none. */
const volatile u32 usher_nr_rules;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usher_hinted);
} usher_hints SEC(".maps");

u32 usher_hinted; /* 1: somebody has hinted since the loader began, or may have by a rule */

const volatile u32 usher_life = 1; /* how often the scheduler began, modulo 2^16 */

_Static_assert(USHER_HINT_FORK_AFFINE == USHER_FORK_AFFINE && USHER_HINT_FORK_SPREAD == USHER_FORK_SPREAD &&
		       USHER_HINT_WAKE_AFFINE == USHER_WAKE_AFFINE && USHER_HINT_WAKE_HOLD == USHER_WAKE_HOLD,
	       "programs and the core mean the same flags");

static __always_inline void count_hint(struct usher __arena *u, enum usher_hint_calls what)
{
	u32 self = cid_of(u, bpf_get_smp_processor_id());

	__sync_fetch_and_add(&usher_host_cpus[self].hint_calls[what], 1);
}

static __always_inline struct usher_hinted *hinted(struct task_struct *p)
{
	return usher_hinted ? bpf_task_storage_get(&usher_hints, p, 0, 0) : NULL;
}

/*
 * The same, made if it is not there. Only one task at a time makes one on a CPU, and the next fails:
 * so nobody is preempted while at it.
 */
static __always_inline struct usher_hinted *hinted_anew(struct task_struct *p)
{
	struct usher_hinted *h;

	bpf_preempt_disable();
	h = bpf_task_storage_get(&usher_hints, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	bpf_preempt_enable();
	return h;
}

/* An LLC as struct usher_hinted.home: the life, and 1 + the LLC. 0: none. */
static __always_inline u32 home_in(u32 llc)
{
	return llc == USHER_NO_LLC ? 0 : usher_life << 16 | (llc + 1);
}

static __always_inline u32 home_of(u32 home)
{
	return home && home >> 16 == (usher_life & 0xffff) ? (home & 0xffff) - 1 : USHER_NO_LLC;
}

/* From now on the task lives in an LLC, or, with USHER_NO_LLC, nowhere. */
static __always_inline void settle(struct usher __arena *u, struct usher_hinted *h, u32 llc)
{
	u32 before = __sync_lock_test_and_set(&h->home, home_in(llc));

	usher_settle(u, home_of(before), llc);
}

/* The task's hints have changed: it lives where it is, or, without any, nowhere. */
static __always_inline void hint_settle(struct usher __arena *u, struct usher_hinted *h, struct task_struct *p)
{
	settle(u, h, h->flags ? u->cids[cid_of(u, p->thread_info.cpu)].llc : USHER_NO_LLC);
	/* Pairs with usher_ended_task(), which comes later than this flag: one of both takes it back. */
	if (p->flags & PF_EXITING)
		settle(u, h, USHER_NO_LLC);
}

static __always_inline u64 hint_wish(u32 flags, u32 source)
{
	struct usher_hinted h = { .flags = flags, .source = source };

	return h.wish;
}

/* A task's child begins with its hints; to have asked for none matters to rules only. */
static __always_inline void hints_inherit(struct usher __arena *u, struct task_struct *child)
{
	struct usher_hinted *parent = hinted(bpf_get_current_task_btf()), *h;

	if (!parent || !(usher_nr_rules ? parent->wish : parent->flags))
		return;
	h = hinted_anew(child);
	if (!h) {
		count_hint(u, USHER_HINT_NO_MEMORY);
		return;
	}
	h->wish = parent->wish;
	/* A kernel asks for no CPU for a child that may run on one only: it lives where its parent does. */
	if (h->flags && child->nr_cpus_allowed == 1)
		settle(u, h, u->cids[cid_of(u, child->thread_info.cpu)].llc);
}

/* Whether the caller may set the hints of a task: as for its priority. */
static __always_inline bool hint_permitted(struct task_struct *caller, struct task_struct *p)
{
	u32 euid = BPF_CORE_READ(caller, cred, euid.val);
	u64 caps;

	if (euid == BPF_CORE_READ(p, cred, uid.val) || euid == BPF_CORE_READ(p, cred, euid.val))
		return true;
	caps = BPF_CORE_READ(caller, cred, cap_effective.val);
	return caps >> USHER_CAP_SYS_NICE & 1 && BPF_CORE_READ(caller, cred, user_ns, level) == 0;
}

/* Whether there are such flags: known ones, and at most one of each pair. */
static __always_inline bool hint_legal(u64 flags)
{
	return !(flags & ~(u64)(USHER_FORK_HINTS | USHER_WAKE_HINTS)) &&
	       (flags & USHER_FORK_HINTS) != USHER_FORK_HINTS &&
	       (flags & USHER_WAKE_HINTS) != USHER_WAKE_HINTS;
}

static __always_inline int hint_set(struct usher __arena *u, struct task_struct *p, u32 flags)
{
	struct usher_hinted *h;

	usher_hinted = 1;
	h = hinted_anew(p);
	if (!h)
		return -USHER_ENOMEM;
	h->wish = hint_wish(flags, USHER_HINT_OWN);
	hint_settle(u, h, p);
	return USHER_HINT_OK | flags;
}

static __always_inline int hint_call(struct usher __arena *u, struct task_struct *p, u64 op, u64 flags)
{
	struct task_struct *caller = bpf_get_current_task_btf();
	struct usher_hinted *h;

	if (op == USHER_HINT_GET) {
		h = hinted(p);
		return USHER_HINT_OK | (h ? h->flags : 0);
	}
	if (p != caller && !hint_permitted(caller, p))
		return -USHER_EPERM;
	return hint_set(u, p, flags);
}

/*
 * A task ends. It does so before it is freed: a zombie lives nowhere. From 7.0 on the kernel passes
 * this over when another task was preempted in it; hints_gone() makes up for that.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(usher_ended_task, struct task_struct *p)
{
	struct usher_hinted *h = hinted(p);

	if (!h || !usher())
		return 0;
	h->flags = 0;
	settle(usher(), h, USHER_NO_LLC);
	return 0;
}

/* A task is no longer ours: it is dead, or the scheduler ends. */
static __always_inline void hints_gone(struct usher __arena *u, struct task_struct *p)
{
	struct usher_hinted *h = hinted(p);

	if (h && h->home)
		settle(u, h, USHER_NO_LLC);
}

/* The answer to a call; what the kernel would answer if the option is not ours. */
static __always_inline int prctl_answer(int option, u64 op, u64 flags, u64 pid, u64 extra, int ret)
{
	struct usher __arena *u;
	struct task_struct *p;
	int result;

	if (option != USHER_PR_HINT || ret)
		return ret;
	u = usher();
	/* Nobody places tasks any more: a loader that ends takes a moment to let go of us. */
	if (!u || uei.kind)
		return 0;
	if (extra || (op != USHER_HINT_SET && op != USHER_HINT_GET) || !hint_legal(flags) ||
	    (op == USHER_HINT_GET && flags)) {
		result = -USHER_EINVAL;
	} else if (!pid) {
		result = hint_call(u, bpf_get_current_task_btf(), op, flags);
	} else {
		if (pid > 0x7fffffff)
			p = NULL;
		else if (bpf_ksym_exists(bpf_task_from_vpid))
			p = bpf_task_from_vpid(pid);
		else
			p = bpf_task_from_pid(pid);
		result = -USHER_ESRCH;
		if (p) {
			result = hint_call(u, p, op, flags);
			bpf_task_release(p);
		}
	}
	if (result < 0)
		count_hint(u, USHER_HINT_REFUSED);
	else
		count_hint(u, op == USHER_HINT_GET ? USHER_HINT_READ : USHER_HINT_WAS_SET);
	return result;
}

SEC("fmod_ret/security_task_prctl")
int BPF_PROG(usher_prctl, int option, unsigned long op, unsigned long flags, unsigned long pid,
	     unsigned long extra, int ret)
{
	return prctl_answer(option, op, flags, pid, extra, ret);
}

/*
 * The same. The kernel passes a program over while another task is preempted in it on that CPU, and
 * the caller would hear that there are no hints: of 10,000 that call at once, one or two did. With a
 * second one it takes two preempted tasks on a CPU.
 */
SEC("fmod_ret/security_task_prctl")
int BPF_PROG(usher_prctl_too, int option, unsigned long op, unsigned long flags, unsigned long pid,
	     unsigned long extra, int ret)
{
	return prctl_answer(option, op, flags, pid, extra, ret);
}

#include "rule.bpf.h"

#endif
