/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The classes of tasks: what the core is told of a task to judge it by, and the CPU that a woken one
 * preempts. How long a task runs between two sleeps is kept in its storage. All this begins when the first task
 * wakes that has the weight to be latency-critical: until then nobody preempts, and nobody pays for it.
 */
#ifndef USHER_CLASS_BPF_H
#define USHER_CLASS_BPF_H

/* Set by the loader before load: nobody is preempted, and no class is kept. */
const volatile bool usher_no_preempt;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usher_burst);
} usher_bursts SEC(".maps");

u32 usher_urgent; /* 1: somebody woke who has the weight to be latency-critical */

static __always_inline bool preempting(void)
{
	return usher_urgent;
}

/* The task's own weight times its control group's; without groups a task has its own weight. */
static __always_inline u32 weight_of(struct task_struct *p)
{
	u64 weight = p->scx.weight, shares = groups_exist() ? group_shares(p->sched_task_group) : 0;

	if (shares)
		weight = weight * shares >> 10;
	return weight ? weight : 1;
}

#define USHER_SCHED_BATCH 3
#define USHER_SCHED_IDLE 5

/* What a task is that has run for ran_ns since its last stop. */
static __always_inline u32 class_of(struct usher __arena *u, struct task_struct *p, u64 ran_ns)
{
	struct usher_burst *b = bpf_task_storage_get(&usher_bursts, p, 0, 0), burst;

	if (b)
		burst = *b;
	else
		usher_burst_born(u, &burst);
	burst.ns += ran_ns;
	return usher_class(u, &burst, weight_of(p), p->policy == USHER_SCHED_BATCH || p->policy == USHER_SCHED_IDLE);
}

/*
 * At a tick of cid: what the task that runs there is by now. Who never sleeps may be alone there, and would not be
 * known otherwise until it stops.
 */
static __always_inline void class_goes_on(struct usher __arena *u, struct task_struct *p, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];

	if (preempting() && !me->leaving && me->ran_before_pid == p->pid)
		usher_cpupri_set(u, cid, class_of(u, p, p->se.sum_exec_runtime - me->began_ns));
}

/* It ran, and sleeps unless it is still runnable. */
static __always_inline void burst_end(struct usher __arena *u, struct task_struct *p, u64 ran_ns, bool runnable)
{
	struct usher_burst *b;

	if (!preempting())
		return;
	b = bpf_task_storage_get(&usher_bursts, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!b)
		return; /* no memory: it counts as newborn */
	if (!b->ns && !b->average_ns)
		usher_burst_born(u, b);
	usher_burst_ran(b, ran_ns, !runnable);
}

/*
 * The CPU that a woken task is to take, as a cid, or negative; a pinned one only that of q->from, others first one that
 * is enough for them.
 */
static __always_inline s32 preempted_for(struct usher __arena *u, struct task_struct *p,
					 const struct usher_query *q, bool pinned, u64 enq_flags)
{
	struct usher_demand demand = {};
	struct usher_query fits = *q;

	if (usher_no_preempt || usher_idle_mode != USHER_IDLE_USHER || !(enq_flags & SCX_ENQ_WAKEUP) ||
	    weight_of(p) < USHER_WEIGHT_URGENT)
		return USHER_NONE_LOWER;
	if (!usher_urgent) {
		usher_urgent = 1;
		return USHER_NONE_LOWER;
	}
	if (pinned)
		return usher_preempt_pinned(u, q->from, q->self, class_of(u, p, 0));
	demand_of(u, p, &demand);
	fits.tiers = usher_tiers_first(u, &demand);
	return usher_preempt(u, &fits, class_of(u, p, 0));
}

#endif
