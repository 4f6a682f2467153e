/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control groups (cpu.weight): what a task weighs beside those of other groups. A group of a thousand tasks is to get no more than one of
 * ten. To count who is runnable in each would be a line that all CPUs write, so nobody counts: each CPU adds up how long tasks of each
 * group ran or waited, the loader sums that twice a second, divides the CPUs among groups by their weights, and says by how much the
 * tasks of each are to weigh more or less. crates/scx_usher/src/groups.rs.
 *
 * Read are the kernel's own groups, as they are when their tasks run: no callback tells of a group.
 */
#ifndef USHER_GROUP_BPF_H
#define USHER_GROUP_BPF_H

/* How many levels of groups are looked at, from the task's own upwards. */
#define USHER_GROUP_LEVELS 16

/* Set by the loader before load: ids of groups are below it. 0: groups do not count. */
const volatile u32 usher_nr_groups;

/* Set by the loader after load and before attach: addresses in the arena. */
struct usher_groups __arena *usher_groups;
struct usher_group_time __arena *usher_group_times; /* by cid, and there by group */

#define USHER_GROUP_WHOLE 1024

/* What the cpu controller says a task's group weighs: 1024 for cpu.weight 100. */
static __always_inline u32 group_shares(struct task_group *group)
{
	return group->shares >> 10;
}

/* Whether this kernel has groups. */
static __always_inline bool groups_exist(void)
{
	return bpf_core_field_exists(struct task_group, shares);
}

static __always_inline bool grouping(void)
{
	return usher_nr_groups && groups_exist();
}

static __always_inline u32 group_id(struct task_group *group)
{
	u32 id = group->css.id;

	return id < usher_nr_groups ? id : 0;
}

/* What its group makes of a task's weight, in 1024ths. */
static __always_inline u32 group_part(struct task_struct *p)
{
	return grouping() ? usher_groups->of[group_id(p->sched_task_group)].part : USHER_GROUP_WHOLE;
}

/* What a task weighs beside others: by its nice value, and by its group. */
static __always_inline u32 weight_shared(struct task_struct *p)
{
	u64 weight = (u64)p->scx.weight * group_part(p) / USHER_GROUP_WHOLE;

	return weight ? weight : 1;
}

/* What so much time counts for a task of its weight: by its group. Not by way of weight_shared(), where little is left of light ones. */
static __always_inline u64 time_shared(struct task_struct *p, u64 ns)
{
	return grouping() ? ns * USHER_GROUP_WHOLE / group_part(p) : ns;
}

/* Whether a group has a limit (cpu.max). */
static __always_inline bool group_limited(struct task_group *group)
{
	return bpf_core_field_exists(group->cfs_bandwidth.quota) && group->cfs_bandwidth.quota != ~0ULL &&
	       group->cfs_bandwidth.period;
}

#include "bandwidth.bpf.h"

/*
 * On which CPUs the tasks of a group may run: its cpuset, which is where a task may run that did not ask for less by itself. Only from such
 * tasks, and what the last one told remains.
 */
static __always_inline void group_confine(struct task_struct *p, struct usher_group __arena *entry)
{
	struct usher_task *t;

	if (p->nr_cpus_allowed == 1 || (bpf_core_field_exists(p->user_cpus_ptr) && p->user_cpus_ptr))
		return;
	t = set_needed(p) ? bpf_task_storage_get(&usher_tasks, p, 0, 0) : NULL;
	entry->pool = t ? t->pool : 0;
	entry->cpus = t ? t->nr_allowed : 0;
}

/*
 * The first task of its group in this round: what the kernel says of the group and those above. Whoever else does so writes the same. How many were
 * looked at, as the verifier wants a global function to return a number.
 */
USHER_UNIT u32 group_see(struct task_struct *p __arg_trusted)
{
	struct task_group *group = p->sched_task_group, *parent;
	u32 round = usher_groups->round, level, id, serial;
	struct usher_group __arena *entry;

	for (level = 0; level < USHER_GROUP_LEVELS && group && can_loop; level = env_next(usher(), level)) {
		id = group_id(group);
		entry = &usher_groups->of[id];
		serial = group->css.serial_nr;
		parent = group->parent;
		if (id && entry->round == round && entry->serial == serial)
			break;
		if (id && entry->serial != serial) {
			entry->part = USHER_GROUP_WHOLE;
			entry->pool = 0;
			usher_bandwidths[id].quota_ns = 0;
		}
		if (id && !level)
			group_confine(p, entry);
		entry->parent = parent ? group_id(parent) : id;
		entry->shares = group_shares(group);
		if (id) {
			bandwidth_see(group, entry, id);
			entry->serial = serial;
		}
		entry->round = round;
		group = parent;
	}
	return level;
}

/* The same, if it was not looked at in this round, or is of a group that had the id before. */
static __always_inline void group_look(struct task_struct *p)
{
	u32 id = group_id(p->sched_task_group), serial = p->sched_task_group->css.serial_nr;
	struct usher_group __arena *entry = &usher_groups->of[id];

	if (entry->round != usher_groups->round || (id && entry->serial != serial))
		group_see(p);
}

/* A task of cid ran or waited so long. */
static __always_inline void group_took(struct task_struct *p, u32 cid, u64 ns)
{
	struct usher_group_time __arena *time;

	if (!grouping())
		return;
	if (p->sched_task_group->css.id >= usher_nr_groups && !usher_groups->beyond)
		usher_groups->beyond = 1;
	time = time_of(p, cid);
	time->ns += ns;
	time->weighted += ns * p->scx.weight;
	group_look(p);
}

#endif
