/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bandwidth of control groups (cpu.max): in the mean no group runs for more than its quota in a period, whatever idles. The kernel sees to that in its own
 * fair class, and leaves it to us. Here is the account; who may not run for now is in throttle.bpf.h.
 *
 * Of a limited group there is what is left of its quota. Who begins to run, of its tasks and those of groups below, takes some of it in advance, for its
 * CPU, lest hundreds of CPUs run beside each other until their next ticks find that nothing is left. The more have taken, the less the next one
 * takes. What is not needed goes back; a little stays with the CPU, for tasks that run for less, lest all of them write one line all the
 * time. A group runs beyond its quota all the same, by what its tasks do until the next tick, or out of the kernel (throttle.bpf.h). That it owes: it is
 * paid from the next quotas. When a period is over, who pays or asks next refills.
 */
#ifndef USHER_BANDWIDTH_BPF_H
#define USHER_BANDWIDTH_BPF_H

/* Set by the loader after load and before attach: an address in the arena. */
struct usher_bandwidth __arena *usher_bandwidths; /* by group */

#define USHER_LEAST_NS (1000 * 1000ULL)	/* nobody begins for less, ... */
#define USHER_LEAST_PART 16		/* ... or for less than this part of a quota, if that is shorter */
#define USHER_AHEAD_PART 8		/* who begins to run takes this part of what is left, for a tick at most */
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
		u64 quota_ns = group->cfs_bandwidth.quota, least_ns = quota_ns / USHER_LEAST_PART;
		u64 keep_ns = quota_ns / 2 / usher()->nr_cids; /* half a quota on all CPUs together */

		if (least_ns > USHER_LEAST_NS)
			least_ns = USHER_LEAST_NS;
		b->least_ns = least_ns;
		b->keep_ns = keep_ns < least_ns ? keep_ns : least_ns;
		b->refill_ns = scx_bpf_now() + b->period_ns;
		b->left_ns = quota_ns + least_ns;
		b->quota_ns = quota_ns;
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
	room = b->quota_ns + b->burst_ns + b->least_ns - b->left_ns;
	if (room > 0)
		__sync_fetch_and_add(&b->left_ns, more < room ? more : room);
}

/*
 * Nothing is left to a group if it is less than nobody begins for; that is there again in the next period. Who has taken something in advance may
 * use that, unless others ran for more than they had taken.
 */
static __always_inline bool exhausted(struct usher_bandwidth __arena *b, bool ahead)
{
	return (s64)b->left_ns < (ahead ? 0 : (s64)b->least_ns);
}

/* So much less is left to a group and to those above, or more, if it is negative. Whether one that had nothing left has something again. */
static __noinline bool bandwidth_take(u32 id, s64 ns)
{
	u64 now_ns = scx_bpf_now();
	bool again = false;
	u32 level;

	for (level = 0; level < USHER_GROUP_LEVELS && id && can_loop; level = env_next(usher(), level)) {
		struct usher_bandwidth __arena *b = &usher_bandwidths[id];
		bool was_exhausted;

		refill(b, now_ns);
		was_exhausted = exhausted(b, false);
		__sync_fetch_and_add(&b->left_ns, -ns);
		if (was_exhausted && !exhausted(b, false))
			again = true;
		id = b->above;
	}
	return again;
}

/* For how long the tasks of a group may still run in this period, for all that it and those above have left. */
USHER_UNIT u64 bandwidth_left(u32 id)
{
	u64 now_ns = scx_bpf_now(), least = ~0ULL, left;
	u32 level;

	for (level = 0; level < USHER_GROUP_LEVELS && id && can_loop; level = env_next(usher(), level)) {
		struct usher_bandwidth __arena *b = &usher_bandwidths[id];

		refill(b, now_ns);
		if (b->quota_ns && exhausted(b, false))
			return 0;
		left = b->left_ns;
		if (b->quota_ns && left < least)
			least = left;
		id = b->above;
	}
	return least;
}

/* Takes in advance this part of what a group has left, for a tick at most, and for no less than somebody begins for. How much: 0, nothing is left. */
USHER_UNIT u64 bandwidth_ahead(u32 id, u32 part)
{
	u64 left = bandwidth_left(id), ns = left / part, most = ticks_ns(1);

	if (!left)
		return 0;
	if (ns > most)
		ns = most;
	if (ns < usher_bandwidths[id].least_ns)
		ns = usher_bandwidths[id].least_ns;
	bandwidth_take(id, ns);
	return ns;
}

/* Tasks ran so long on the CPU of this block, of a group that this one limits: it pays, and so do those above. */
static __noinline void bandwidth_pay(struct usher_group_time __arena *time, u32 id, u64 ns)
{
	time->unpaid += ns;
	if ((s64)time->unpaid < (s64)usher_bandwidths[id].least_ns)
		return;
	bandwidth_take(id, time->unpaid);
	time->unpaid = 0;
}

/* A task stops: what its CPU has in advance goes back, but for what it keeps. */
static __noinline void bandwidth_back(struct usher_group_time __arena *time, u32 id)
{
	s64 back = -(s64)time->unpaid - (s64)usher_bandwidths[id].keep_ns;

	if (back <= 0)
		return;
	time->unpaid += back;
	if (bandwidth_take(id, -back))
		usher_groups->called = 1;
}

/*
 * Until when a group keeps its tasks from running, or those for which something was taken in advance, or one above it does; 0: none does. Not for the whole of a period that has only begun, as
 * who began it may be about to refill.
 */
USHER_UNIT u64 exhausted_until(u32 id, bool ahead)
{
	u64 now_ns = scx_bpf_now(), until_ns;
	u32 level;

	for (level = 0; level < USHER_GROUP_LEVELS && id && can_loop; level = env_next(usher(), level)) {
		struct usher_bandwidth __arena *b = &usher_bandwidths[id];

		if (b->quota_ns && exhausted(b, ahead)) {
			refill(b, now_ns);
			until_ns = b->refill_ns;
			if (exhausted(b, ahead))
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

/* What CPU cid has and owes of p's group. */
static __always_inline struct usher_group_time __arena *time_of(struct task_struct *p, u32 cid)
{
	return &usher_group_times[cid * usher_nr_groups + group_id(p->sched_task_group)];
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
		bandwidth_pay(time_of(p, cid), limiter, ran_ns);
}

#endif
