/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Running tasks that move: those that their CPU is too weak for, where CPUs differ in capacity (capacity.bpf.h), and those that
 * share a core while another one idles.
 *
 * A running task cannot be pulled. So the tick of its CPU claims an idle one for it, notes both in its block and ends the
 * slice; the task is then put back as if to wait, and handed to that CPU instead. The kernel keeps a task whose slice
 * ended and beside whom nobody waits, unless asked not to (SCX_OPS_ENQ_LAST, which the loader sets where tasks move or are throttled).
 */
#ifndef USHER_MOVE_BPF_H
#define USHER_MOVE_BPF_H

/* Whether tasks that run may have to move on this machine. */
static __always_inline bool running_move(struct usher __arena *u)
{
	return usher_uncrowds || env_asymmetric(u);
}

/* At a tick of p's CPU: claims the one that p is to move to, if there is one, and ends the slice. */
static __noinline void move_tick(struct usher __arena *u, struct task_struct *p, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];
	struct usher_request r = { .prev = cid, .waker = cid };
	u64 now_ns = scx_bpf_now();
	bool crowded = usher_uncrowds && usher_crowded(u, cid, now_ns);
	s32 to = USHER_NONE_IDLE;

	if (env_asymmetric(u))
		load_ran(u, p, cid, false);
	else if (!crowded)
		return;
	if (me->moves_to || p->nr_cpus_allowed == 1 || usher_migration_disabled(p, false) ||
	    !allowed_of(u, p, cid, &r.allowed, &r.nr_allowed))
		return;
	if (env_asymmetric(u)) {
		demand_of(u, p, &r.demand);
		to = usher_misfit(u, &r);
	}
	if (to < 0 && crowded) {
		struct usher_hinted *h = hinted(p);

		r.hints = h ? h->flags : 0;
		to = usher_uncrowd(u, &r, now_ns);
	}
	if (to < 0)
		return;
	me->moves_to = to + 1;
	me->moves_pid = p->pid;
	scx_bpf_task_set_slice(p, 0);
}

/* This CPU is called for its task by a greater one; it is prev unless that sleeps. */
static __always_inline void misfit_answer(struct usher __arena *u, struct task_struct *prev, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];

	if (!env_asymmetric(u) || !me->called)
		return;
	me->called = 0;
	if (prev && prev->scx.flags & SCX_TASK_QUEUED)
		move_tick(u, prev, cid);
}

/* Whether p, on this CPU, is about to move. */
static __always_inline bool moves(struct usher __arena *u, struct task_struct *p, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];

	return running_move(u) && me->moves_to && me->moves_pid == p->pid;
}

/* The task for which cid claimed a CPU does not come: that one is to look for work, or it is idle for nobody. */
static __always_inline void move_give_back(struct usher __arena *u, u32 cid)
{
	count(cid, USHER_HOST_MOVE_GIVEN_BACK);
	kick(u, cid, usher_host_cpus[cid].moves_to - 1);
	usher_host_cpus[cid].moves_to = 0;
}

/* A task begins to run on the CPU cid. One that was to move from there, and did not sleep either, has left sched_ext or the CPU. */
static __always_inline void move_forget(struct usher __arena *u, u32 cid)
{
	if (running_move(u) && usher_host_cpus[cid].moves_to)
		move_give_back(u, cid);
}

/* p is put back on the CPU cid. True: it was handed to the CPU that had been claimed for it. */
static __always_inline bool move_on(struct usher __arena *u, struct task_struct *p, u32 cid, u64 enq_flags)
{
	s32 cpu;

	if (!moves(u, p, cid))
		return false;
	cpu = u->cids[usher_host_cpus[cid].moves_to - 1].cpu;
	/*
	 * Since the tick it may have disabled migration, which its allowed set does not show before it is switched out. The
	 * kernel ends a scheduler that sends such a task elsewhere.
	 */
	if (usher_migration_disabled(p, false) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
		move_give_back(u, cid);
		return false;
	}
	usher_host_cpus[cid].moves_to = 0;
	count(cid, USHER_HOST_MOVED);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, u->slice_ns, enq_flags);
	return true;
}

/*
 * A CPU goes idle. True: its own task waits there, and it looks again. The kernel then keeps no task whose slice ended,
 * and where dispatch is not asked, or does not know the CPU, puts it into the CPU's local queue and goes idle all the same: on a CPU
 * that is leaving that is the very thread that takes it offline.
 */
static __always_inline bool left_behind(s32 cpu)
{
	if (!usher_keeps_nobody || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) <= 0)
		return false;
	scx_bpf_kick_cpu(cpu, 0);
	return true;
}

/* p stops on the CPU cid, and sleeps unless it is runnable. */
static __always_inline void move_stop(struct usher __arena *u, struct task_struct *p, u32 cid, bool runnable)
{
	if (env_asymmetric(u))
		load_ran(u, p, cid, !runnable);
	if (!runnable && moves(u, p, cid))
		move_give_back(u, cid);
}

#endif
