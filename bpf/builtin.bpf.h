/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Baselines to compare with: the same queues, but the kernel's own tracking of idle CPUs and its
 * own choice among them, with one mask for the machine or one per node (Linux 6.15). Not used
 * unless asked for (--idle builtin, --idle builtin-node).
 */
#ifndef USHER_BUILTIN_H
#define USHER_BUILTIN_H

static __always_inline s32 builtin_select_cpu(struct usher __arena *u, struct task_struct *p, s32 prev_cpu,
					      u64 wake_flags, u32 self)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	count(self, idle ? USHER_HOST_BUILTIN_PICK : USHER_HOST_BUILTIN_NONE);
	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, u->slice_ns, 0);
	return cpu;
}

static __always_inline s32 builtin_pick(const struct cpumask *allowed, s32 cpu)
{
	if (usher_idle_mode == USHER_IDLE_BUILTIN_NODE)
		return __COMPAT_scx_bpf_pick_idle_cpu_node(allowed, __COMPAT_scx_bpf_cpu_node(cpu), 0);
	return scx_bpf_pick_idle_cpu(allowed, 0);
}

/* After a task was queued: pairs with builtin_update_idle(). */
static __always_inline void builtin_look(struct usher __arena *u, struct task_struct *p, u32 self)
{
	s32 cpu = builtin_pick(p->cpus_ptr, scx_bpf_task_cpu(p));

	if (cpu < 0)
		return;
	count(self, USHER_HOST_KICKED);
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* The kernel has no list of idle CPUs to ask about a queue: wake one of this CPU's own choosing. */
static __always_inline void builtin_late_look(struct usher __arena *u, u32 cid)
{
	u32 queue = u->cpus[cid].look - 1;
	const struct cpumask *all;
	s32 cpu;

	if (!u->cpus[cid].look)
		return;
	u->cpus[cid].look = 0;
	if (queue >= u->nr_queues || !usher_bpf_queued(queue))
		return;
	usher_queue_fill(u, queue, true);
	all = scx_bpf_get_online_cpumask();
	cpu = builtin_pick(all, u->cids[u->queues[queue].first_cid].cpu);
	scx_bpf_put_cpumask(all);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* After the kernel marked the CPU idle. */
static __always_inline void builtin_update_idle(struct usher __arena *u, s32 cpu, u32 cid, bool idle)
{
	if (idle && usher_work_for_all(u) && scx_bpf_test_and_clear_cpu_idle(cpu))
		kick(u, cid, cid);
}

#endif
