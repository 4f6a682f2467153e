/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bandwidth of control groups (cpu.max): in the mean no group runs for more than its quota in a period, whatever idles. The kernel sees to that in its own
 * fair class, and leaves it to us. Here is the account; who may not run for now is in throttle.bpf.h.
 *
 * Of a limited group there is what is left of its quota. Its tasks, and those of groups below, pay for what they ran when they stop and at the
 * end of each slice. Each CPU adds that up and takes a millisecond or more at once from what is left, lest all of them write one line all the
 * time. So a group runs beyond its quota by what its tasks do until the next tick, or out of the kernel (throttle.bpf.h). That it owes: it is
 * paid from the next quotas. When a period is over, who pays or asks next refills.
 */
#ifndef USHER_BANDWIDTH_BPF_H
#define USHER_BANDWIDTH_BPF_H

/* Set by the loader after load and before attach: an address in the arena. */
struct usher_bandwidth __arena *usher_bandwidths; /* by group */

#define USHER_PAY_NS (1000 * 1000ULL)	/* a CPU pays for so much at once, ... */
#define USHER_PAY_PART 16		/* ... or for this part of a quota, if that is less */
#define USHER_LOOK_AGAIN_NS (4 * 1000 * 1000ULL) /* when to look again, where something may have been missed */
#define USHER_OWED_NS (4000 * 1000 * 1000ULL) /* what takes longer to pay is forgotten, lest a group stands still for long */
#define USHER_REFILL_MOST 1024		/* periods; a quota is filled by far fewer, and nothing overflows */

/* Whether some group is or was limited. Until then nothing here costs anything. */
static __always_inline bool limiting(void)
{
	return grouping() && usher_groups->limited;
}

/* The nearest group that is limited, from this one upwards; 0: none. */
static __noinline u32 limiter_of(struct task_group *group)
{
	u32 level, id;

	for (level = 0; level < USHER_GROUP_LEVELS && group && can_loop; level = env_next(usher(), level)) {
		id = group_id(group);
		if (id && group_limited(group))
			return id;
		group = group->parent;
	}
	return 0;
}

/* What the kernel says of a group's limit, and who else limits its tasks. A new limit begins with a whole quota. */
static __always_inline void bandwidth_see(struct task_group *group, struct usher_group __arena *entry, u32 id)
{
	struct usher_bandwidth __arena *b = &usher_bandwidths[id];
	struct task_group *parent = group->parent;

	if (!bpf_core_field_exists(group->cfs_bandwidth.quota))
		return;
	entry->limiter = limiter_of(group);
	if (entry->limiter != id) {
		if (b->quota_ns)
			b->quota_ns = 0;
		return;
	}
	b->above = parent ? limiter_of(parent) : 0;
	b->burst_ns = bpf_core_field_exists(group->cfs_bandwidth.burst) ? group->cfs_bandwidth.burst : 0;
	b->period_ns = group->cfs_bandwidth.period;
	if (b->quota_ns != group->cfs_bandwidth.quota) {
		b->refill_ns = scx_bpf_now() + b->period_ns;
		b->left_ns = group->cfs_bandwidth.quota;
		b->quota_ns = group->cfs_bandwidth.quota;
	}
	if (!usher_groups->limited)
		usher_groups->limited = 1;
}

/* If periods are over, their quotas are there; more than one, and what may be saved (cpu.max.burst), never. */
static __always_inline void refill(struct usher_bandwidth __arena *b, u64 now_ns)
{
	u64 at_ns = b->refill_ns, periods;
	s64 more, room, most_owed;

	if ((s64)(now_ns - at_ns) < 0 || !b->period_ns)
		return;
	periods = (now_ns - at_ns) / b->period_ns + 1;
	if (__sync_val_compare_and_swap(&b->refill_ns, at_ns, at_ns + periods * b->period_ns) != at_ns)
		return;
	most_owed = (USHER_OWED_NS / b->period_ns + 1) * b->quota_ns;
	if ((s64)b->left_ns < -most_owed)
		b->left_ns = -most_owed;
	more = (periods < USHER_REFILL_MOST ? periods : USHER_REFILL_MOST) * b->quota_ns;
	room = b->quota_ns + b->burst_ns - b->left_ns;
	if (room > 0)
		__sync_fetch_and_add(&b->left_ns, more < room ? more : room);
}

/* Tasks ran so long on the CPU of this block, of a group that this one limits: it pays, and so do those above. */
static __noinline void bandwidth_pay(struct usher_group_time __arena *time, u32 id, u64 ns)
{
	struct usher_bandwidth __arena *b = &usher_bandwidths[id];
	u64 now_ns = scx_bpf_now();
	u32 level;

	time->unpaid += ns;
	if (time->unpaid < USHER_PAY_NS && time->unpaid < b->quota_ns / USHER_PAY_PART)
		return;
	ns = time->unpaid;
	time->unpaid = 0;
	for (level = 0; level < USHER_GROUP_LEVELS && id && can_loop; level = env_next(usher(), level)) {
		b = &usher_bandwidths[id];
		refill(b, now_ns);
		__sync_fetch_and_add(&b->left_ns, -ns);
		id = b->above;
	}
}

/*
 * Until when a group keeps its tasks from running, or one above it does; 0: none does. Not for the whole of a period that has only begun, as
 * who began it may be about to refill.
 */
USHER_UNIT u64 exhausted_until(u32 id)
{
	u64 now_ns = scx_bpf_now(), until_ns;
	u32 level;

	for (level = 0; level < USHER_GROUP_LEVELS && id && can_loop; level = env_next(usher(), level)) {
		struct usher_bandwidth __arena *b = &usher_bandwidths[id];

		if (b->quota_ns && (s64)b->left_ns <= 0) {
			refill(b, now_ns);
			until_ns = b->refill_ns;
			if ((s64)b->left_ns <= 0)
				return until_ns - now_ns + USHER_LOOK_AGAIN_NS < b->period_ns ?
					       until_ns : now_ns + USHER_LOOK_AGAIN_NS;
		}
		id = b->above;
	}
	return 0;
}

/* The group that limits a task first; 0: none does. What was kept of a group that had its id is not of it. */
static __always_inline u32 limiter_of_task(struct task_struct *p)
{
	struct usher_group __arena *entry;

	if (!limiting())
		return 0;
	entry = &usher_groups->of[group_id(p->sched_task_group)];
	return entry->serial == (u32)p->sched_task_group->css.serial_nr ? entry->limiter : 0;
}

/* p runs on cid, or did until now. */
static __always_inline void bandwidth_ran(struct task_struct *p, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];
	u64 ran_ns = p->se.sum_exec_runtime - me->paid_ns;
	u32 limiter;

	if (me->ran_before_pid != p->pid)
		return;
	me->paid_ns += ran_ns;
	limiter = limiter_of_task(p);
	if (limiter)
		bandwidth_pay(&usher_group_times[cid * usher_nr_groups + group_id(p->sched_task_group)], limiter, ran_ns);
}

#endif
