/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks handed over: who wakes a task and is about to sleep leaves it the CPU, unless others in the queue have waited for too long
 * (usher_hand()). The task waits in a queue of several CPUs like others, for any CPU to take. The CPU remembers its pid.
 *
 * What is to be known of a task that waits in a queue stands in its slice until it begins to run: to whom it was handed, by as many
 * nanoseconds as that CPU's cid, and one; and how early it joined (usher_vtime_early()), by as many times USHER_EARLY_NS.
 *
 * Of two that always wake each other, who wakes does not go to sleep but gives way (core/src/pair.c): the other comes to the head of
 * the CPU's local queue, and it waits behind that one there.
 */
#ifndef USHER_HAND_BPF_H
#define USHER_HAND_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usher_pair);
} usher_pairs SEC(".maps");

#define USHER_EARLY_NS (2ull * USHER_MAX_CIDS) /* a power of 2, and more than any cid and one */

_Static_assert(!(USHER_EARLY_NS & (USHER_EARLY_NS - 1)), "one bit");

/* Whether the task that runs here wakes p, which finds nobody idle, and said that it is about to sleep. */
static __always_inline bool woken_last(struct task_struct *p, u32 self, u64 enq_flags)
{
	return enq_flags & SCX_ENQ_WAKEUP && usher_host_cpus[self].sync_pid == p->pid;
}

/* Whether p, which wakes and is to wait in queue, is handed to self, by its waker there, which is about to sleep. */
static __always_inline bool hand(struct usher __arena *u, struct task_struct *p, u32 queue, u32 self, u64 enq_flags)
{
	return woken_last(p, self, enq_flags) && usher_hand(u, self, queue, p->pid);
}

/*
 * How early a task that is charged from due joins a queue: one that slept, and is handed to nobody; or that a higher class took a CPU from, which mostly is
 * over at once, and should not end turns.
 */
static __always_inline u32 joins_early(struct usher __arena *u, u64 due, u32 queue, bool handed, u64 enq_flags)
{
	return enq_flags & (SCX_ENQ_WAKEUP | SCX_ENQ_REENQ) && !handed ? usher_vtime_early(u, due, queue) : 0;
}

/* The slice with which a task waits in a queue that joined it so early, and was perhaps handed to self. */
static __always_inline u64 marked_slice(struct usher __arena *u, u32 early, bool handed, u32 self)
{
	return u->slice_ns + early * USHER_EARLY_NS + (handed ? self + 1 : 0);
}

/* The cid to which a task that waits in a queue of several CPUs was handed; if to none, no cid. */
static __always_inline u32 handed_to(struct usher __arena *u, struct task_struct *p)
{
	return ((p->scx.slice - u->slice_ns) & (USHER_EARLY_NS - 1)) - 1;
}

/* How early a task joined that waits, or did until now. What ran has less than a slice left, and other slices are not ours. */
static __always_inline u32 early_of(struct usher __arena *u, struct task_struct *p)
{
	u64 early = (p->scx.slice - u->slice_ns) / USHER_EARLY_NS;

	return early <= USHER_EARLY_MOST ? early : 0;
}

/* From where a task is charged, whether or not it waits. */
static __always_inline u64 due_of(struct usher __arena *u, struct task_struct *p)
{
	return usher_vtime_after(u, p->scx.dsq_vtime, early_of(u, p));
}

/* Takes the task that was handed to this CPU, if one was, waits in queue, its own, and goes before the first there. */
static __noinline bool take_handed(struct usher __arena *u, s32 cpu, u32 cid, u32 queue)
{
	u64 pid = usher_handed(u, cid);
	struct task_struct *p, *first;
	struct usher_demand demand = {};
	struct usher_turn wants = {};
	bool taken = false;

	p = pid ? bpf_task_from_pid(pid) : NULL;
	if (!p)
		return false;
	wants.vtime = p->scx.dsq_vtime;
	wants.weight = weight_shared(p);
	demand_of(u, p, &demand);
	bpf_rcu_read_lock();
	if (!usher_enough(u, cid, &demand))
		goto out;
	bpf_for_each(scx_dsq, first, queue, 0) {
		bool promised = usher_promised(u, handed_to(u, first), first->pid);

		/* Allowed is asked in the loop: where that has changed since it began, the kernel moves nobody. */
		taken = bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
			usher_take_handed(u, cid, first->scx.dsq_vtime, &wants, promised) &&
			scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
		break;
	}
out:
	bpf_rcu_read_unlock();
	bpf_task_release(p);
	return taken;
}

/* The virtual time of the first task in a queue, or 0: nobody waits there. */
static __noinline u64 first_vtime(u64 queue)
{
	struct task_struct *first;
	u64 vtime = 0;

	if (!scx_bpf_dsq_nr_queued(queue))
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, first, queue, 0) {
		vtime = first->scx.dsq_vtime;
		break;
	}
	bpf_rcu_read_unlock();
	return vtime;
}

/* From where the first task in queue is charged, if it may not run on this CPU; else 0. */
static __noinline u64 first_elsewhere(struct usher __arena *u, u32 queue, s32 cpu)
{
	struct task_struct *first;
	u64 due = 0;

	if (!scx_bpf_dsq_nr_queued(queue))
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, first, queue, 0) {
		if (!bpf_cpumask_test_cpu(cpu, first->cpus_ptr))
			due = due_of(u, first);
		break;
	}
	bpf_rcu_read_unlock();
	return due;
}

#define USHER_HERE_LOOK 8 /* so many who wait are looked at for one that may run here */

/* The virtual time of the first task in queue that may run on this CPU, or 0: none is among the first there. */
static __noinline u64 first_here(u32 queue, s32 cpu)
{
	struct task_struct *p;
	u32 looked = 0;
	u64 vtime = 0;

	if (!scx_bpf_dsq_nr_queued(queue))
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			vtime = p->scx.dsq_vtime;
			break;
		}
		if (++looked == USHER_HERE_LOOK)
			break;
	}
	bpf_rcu_read_unlock();
	return vtime;
}

/*
 * The task that runs here wakes p, and says that it is about to sleep: whether it gives way to p, which ran last on prev, enum
 * usher_gives.
 */
static __noinline u32 gives_way(struct usher __arena *u, struct task_struct *p, u32 self, u32 prev, u32 hints)
{
	struct usher_turn wants = { .at_ns = scx_bpf_now(), .weight = weight_shared(p) };
	struct usher_host_cpu __arena *me = &usher_host_cpus[self];
	struct task_struct *waker = bpf_get_current_task_btf();
	struct usher_pair *asks, *answers;
	struct usher_demand demand = {};
	u32 queue = u->cids[self].queue, gives;

	if (usher_no_preempt || me->ran_before_pid != waker->pid)
		return USHER_GIVES_NOT;
	asks = bpf_task_storage_get(&usher_pairs, waker, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!asks || !usher_pair_asks(u, self, asks, p->pid, waker->nvcsw + waker->nivcsw, wants.at_ns))
		return USHER_GIVES_NOT;
	answers = bpf_task_storage_get(&usher_pairs, p, 0, 0);
	if (!answers || !usher_pair_answers(answers, waker->pid) || usher_pair_apart(u, self, asks, answers, prev))
		return USHER_GIVES_NOT;
	if ((hints & USHER_WAKE_HOLD && u->cids[prev].llc != u->cids[self].llc) || p->policy == USHER_SCHED_BATCH ||
	    (me->pinned && scx_bpf_dsq_nr_queued(USHER_DSQ_CPU + u->cids[self].cpu)) ||
	    !bpf_cpumask_test_cpu(u->cids[self].cpu, p->cpus_ptr))
		return USHER_GIVES_NOT;
	demand_of(u, p, &demand);
	wants.vtime = usher_vtime_enter(u, p->scx.dsq_vtime, queue);
	if (!usher_enough(u, self, &demand))
		return USHER_GIVES_NOT;
	gives = usher_pair_gives_way(u, self, asks, &wants, first_vtime(queue));
	if (gives == USHER_GIVES_NOT)
		return gives;
	scx_bpf_task_set_dsq_vtime(p, wants.vtime);
	if (gives == USHER_GIVES_NOW)
		me->gives_pid = waker->pid;
	return gives;
}

/* p goes to this CPU, next, or to one beside it that was claimed. By itself, lest the frame below grows. */
static __noinline void turn_to(struct usher __arena *u, struct task_struct *p, u32 cid, u64 enq_flags)
{
	u32 self = cid_of(u, bpf_get_smp_processor_id());

	if (cid == self)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, u->slice_ns, enq_flags);
	else
		send(u, p, self);
}

/*
 * As above; if it gives way to p, now or later, the CPU where p runs, else -1. The caller has asked for the allowed CPUs and found some; they
 * are asked for again, one time in sixteen, as its request would make its frame too large for what it calls on unequal CPUs.
 */
static __noinline s32 give_way(struct usher __arena *u, struct task_struct *p, u32 self, u32 prev, u32 hints)
{
	struct usher_request r = { .waker = self, .hints = hints };
	u32 gives = gives_way(u, p, self, prev, hints);
	struct usher_decision d = { .cid = self };

	if (gives == USHER_GIVES_NOT)
		return -1;
	usher_host_cpus[self].sync_pid = 0;
	if (gives == USHER_GIVES_LATER && allowed_of(u, p, self, &r.allowed, &r.nr_allowed)) {
		demand_of(u, p, &r.demand);
		d = usher_pair_beside(u, &r);
	}
	if (gives != USHER_GIVES_NOW)
		usher_pair_woke(u, self, scx_bpf_now());
	turn_to(u, p, d.cid, gives == USHER_GIVES_NOW ? SCX_ENQ_PREEMPT : 0);
	return u->cids[d.cid].cpu;
}

/* p, which ran on cid, sleeps: whether it has asked for its partner as it always does. */
static __noinline void pair_sleeps(struct usher __arena *u, struct task_struct *p, u32 cid)
{
	struct usher_pair *asks = bpf_task_storage_get(&usher_pairs, p, 0, 0);

	if (asks)
		usher_pair_sleeps(u, cid, asks, scx_bpf_now());
}

#endif
