/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where CPUs differ in capacity: how much a task runs, kept in its storage. On equal CPUs nothing of this happens beyond a
 * test. A task that runs on a CPU too weak for it moves at a tick (move.bpf.h). A CPU that goes idle does not wait for that: it ends
 * the slice on a weaker one whose task waits for such a CPU, and dispatch does there what the tick would do. Should the other
 * run something else by then, or find the greater CPU taken, the slice ended for nothing, and who had it goes on unless
 * somebody goes before it.
 */
#ifndef USHER_CAPACITY_BPF_H
#define USHER_CAPACITY_BPF_H

struct usher_load {
	struct usher_util util;
	u64 accounted_ns; /* of what it has run in its life */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usher_load);
} usher_loads SEC(".maps");

/*
 * What the kernel says that a CPU is worth, or 0. It answers only a scheduler that is being attached, and need not say
 * the same, or anything, in sysfs, from which the loader built the tables. The loader compares.
 */
static __always_inline u32 kernels_capacity(s32 cpu)
{
	return bpf_ksym_exists(scx_bpf_cpuperf_cap) ? scx_bpf_cpuperf_cap(cpu) : 0;
}

static __always_inline void load_begin(struct usher __arena *u, struct task_struct *p)
{
	struct usher_load *load;

	if (!env_asymmetric(u))
		return;
	load = bpf_task_storage_get(&usher_loads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (load)
		load->accounted_ns = p->se.sum_exec_runtime;
}

/* What a task ran on cid since the last time. */
static __noinline void load_ran(struct usher __arena *u, struct task_struct *p, u32 cid, bool slept)
{
	struct usher_load *load = bpf_task_storage_get(&usher_loads, p, 0, 0);
	u64 ran_ns;

	if (!load)
		return;
	ran_ns = p->se.sum_exec_runtime - load->accounted_ns;
	load->accounted_ns += ran_ns;
	usher_util_ran(u, &load->util, cid, bpf_ktime_get_ns(), ran_ns);
	if (slept)
		usher_util_slept(&load->util);
}

/* As far as it matters here; a kernel without clamps has neither. */
struct uclamp_se___usher {
	unsigned int value : 11;
} __attribute__((preserve_access_index));

struct task_struct___clamped {
	struct uclamp_se___usher uclamp[2];
} __attribute__((preserve_access_index));

/* The clamp in force: 0 the least, 1 the most. */
static __always_inline u64 clamp_of(struct task_struct *p, u32 which)
{
	struct task_struct___clamped *clamped = (void *)p;
	struct uclamp_se___usher *clamp;

	if (!bpf_core_field_exists(clamped->uclamp))
		return 0;
	clamp = __builtin_preserve_access_index(&clamped->uclamp[which]);
	return BPF_CORE_READ_BITFIELD_PROBED(clamp, value);
}

/* What a task asks of a CPU, now: what it uses, and the kernel's clamps of that. */
static __noinline u64 load_demand(struct task_struct *p)
{
	struct usher_load *load = bpf_task_storage_get(&usher_loads, p, 0, 0);
	u64 now_ns = bpf_ktime_get_ns();
	struct usher_demand demand = {
		.util = load ? usher_util_now(&load->util, now_ns) : 0,
		.clamp_min = clamp_of(p, 0),
		.clamp_max = clamp_of(p, 1),
		.at = usher_periods(now_ns),
	};

	return usher_pack_demand(demand);
}

static __always_inline void demand_of(struct usher __arena *u, struct task_struct *p, struct usher_demand *demand)
{
	if (env_asymmetric(u))
		*demand = usher_unpack_demand(load_demand(p));
}

/*
 * This CPU has gone idle, and nobody waits in a queue: calls for a task that its CPU is too weak for. The mark is
 * there before the kick, which is a full barrier, and whoever dispatches at that CPU next takes it away.
 */
static __noinline void misfit_call(struct usher __arena *u, u32 cid)
{
	s32 weak = usher_misfit_call(u, cid);

	if (weak < 0)
		return;
	usher_host_cpus[weak].called = 1;
	scx_bpf_kick_cpu(u->cids[weak].cpu, SCX_KICK_PREEMPT);
}

/*
 * From a queue of several CPUs the task that this CPU is to take instead of the first, if there is one. Of the first
 * USHER_FIT_LOOK those count that may run here; if it is none of them, the kernel goes on to the one who is next.
 * Not static, so that it is verified once and not for each queue that dispatch may look at.
 */
USHER_UNIT u32 take_fitting(struct usher __arena *u USHER_UNIT_MEM, s32 cpu, u32 cid, u32 queue)
{
	struct task_struct *p;
	u32 looked = 0;
	u64 first = 0;
	bool taken = false;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		struct usher_demand demand = {};
		u64 v = p->scx.dsq_vtime;
		bool here = bpf_cpumask_test_cpu(cpu, p->cpus_ptr);

		if (here) {
			demand_of(u, p, &demand);
			if (usher_take_instead(u, cid, first ? first : v, v, &demand)) {
				taken = first && scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
				break;
			}
			if (!first)
				first = v;
		}
		if (++looked == USHER_FIT_LOOK)
			break;
	}
	bpf_rcu_read_unlock();
	if (taken)
		count(cid, USHER_HOST_FIT_TAKEN);
	return taken;
}

#endif
