/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Throttled tasks: those of a group that has used up its quota (bandwidth.bpf.h). Who comes then is put into one of a few dispatch queues that
 * no CPU takes from, until the period is over; those that wait in other queues already go there when a CPU comes to them.
 *
 * A timer is set for the first period that ends. It only calls a CPU: to move tasks takes a callback with interrupts off, its dispatch.
 *
 * A task that is in the kernel may hold what others wait for, and not only those of its group: it goes on until it is out of there, or has gone on
 * for long. It is taken to hold nothing if a tick found it in user mode and its slice ended there, if it slept so that signals could wake it, as
 * who waits for a pipe, a socket, a futex or a time does, and if it is newborn. (A few sleep so with something held, as who waits for an answer of FUSE. What
 * they hold is held for as long as somebody else likes anyway.)
 *
 * Not throttled at all are threads of the kernel, who exits or is to, and whom a CPU that is on its way offline waits for. Who was throttled for
 * so long that the kernel would eject us before long runs for an instant, which is all that the kernel asks.
 */
#ifndef USHER_THROTTLE_BPF_H
#define USHER_THROTTLE_BPF_H

struct usher_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct usher_timer);
} usher_timers SEC(".maps");

/* Of a task of a limited group. */
struct usher_limited {
	u64 judged_ns; /* what it had run in its life when the rest was last true */
	u64 utime;     /* what the kernel had counted as its time in user mode */
	u64 owing_ns;  /* what it had run at the first tick that found its group out of quota and it in the kernel; 0: no such tick since it slept or left that */
	u64 ahead_ns;  /* taken of the quota for it, until it runs */
	u64 turn_ns;   /* what it has run since it last slept, up to its last stop */
	u64 last_ns;   /* what that was when it last slept */
	u32 holds;     /* 1: it may hold something of the kernel's */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usher_limited);
} usher_limited SEC(".maps");

#define USHER_JUDGED_NS (2 * 1000 * 1000ULL) /* who runs for so long is no longer what it was found to be */
#define USHER_TICK_NS (20 * 1000 * 1000ULL) /* no tick lasts so long */
#define USHER_OWING_NS (16 * 1000 * 1000ULL) /* for so long who is in the kernel may go on */

#define USHER_TASK_INTERRUPTIBLE 1
#define USHER_TASK_UNINTERRUPTIBLE 2
#define USHER_SIGNAL_GROUP_EXIT 4

#define USHER_DSQ_THROTTLED (2ULL << 20) /* the ids of dispatch queues of the throttled, from here */
#define USHER_NR_THROTTLED 64		 /* how many there are; whose a task waits in goes by its limiter */
#define USHER_THROTTLE_MOST 64		 /* so many tasks are moved at once, and CPUs looked at, at most */

/* Whether a task that does not run, or that a tick just stopped, may hold something of the kernel's. */
static __always_inline bool may_hold(struct task_struct *p, struct usher_limited *l)
{
	if (!l)
		return p->se.sum_exec_runtime;
	return l->holds || p->se.sum_exec_runtime - l->judged_ns > USHER_JUDGED_NS;
}

/* Until when a group keeps a task from running, whatever it holds; 0: no group does. */
static __noinline u64 owing_until(struct task_struct *p, u32 limiter, bool ahead)
{
	if (p->flags & (PF_KTHREAD | PF_EXITING) || p->signal->flags & USHER_SIGNAL_GROUP_EXIT || p->signal->group_exec_task)
		return 0;
	return exhausted_until(limiter, ahead);
}

/* What was taken in advance for a task, which is had once: other CPUs may look at it at the same time, while it waits. */
static __always_inline u64 ahead_of(struct usher_limited *l)
{
	return __sync_lock_test_and_set(&l->ahead_ns, 0);
}

/* Until when a task that does not run, or that a tick just stopped, is not to run; 0: it may. */
USHER_UNIT u64 limited_until(struct task_struct *p __arg_trusted, u32 limiter)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, 0);
	bool ahead = l && l->ahead_ns;
	u64 until_ns = owing_until(p, limiter, ahead);

	if (!until_ns || may_hold(p, l) || !in_service(usher(), scx_bpf_task_cpu(p)))
		return 0;
	if (ahead)
		bandwidth_take(limiter, -(s64)ahead_of(l));
	return until_ns;
}

static __always_inline u64 throttled_until(struct task_struct *p)
{
	u32 limiter = limiter_of_task(p);

	return limiter ? limited_until(p, limiter) : 0;
}

/* The same for one that waits: not for too long, lest it waits for as long in a queue again. */
USHER_UNIT u64 waits_until(struct usher __arena *u __arg_arena, struct task_struct *p __arg_trusted)
{
	u64 until_ns = throttled_until(p);
	u64 ticks = until_ns ? waited_ticks(p) : 0;

	return ticks && ticks_ns(ticks) >= u->patience_ns / 2 ? 0 : until_ns;
}

/* The queue in which it waits. */
USHER_UNIT u64 throttled_queue(struct task_struct *p __arg_trusted)
{
	return USHER_DSQ_THROTTLED + limiter_of_task(p) % USHER_NR_THROTTLED;
}

/* Sets the timer. Whether it is set: if not, for want of memory, whoever dispatches next looks instead. */
static __always_inline bool set_timer(struct usher_timer *timer, u64 at_ns)
{
	u64 now_ns = scx_bpf_now();

	if (!bpf_timer_start(&timer->timer, (s64)(at_ns - now_ns) > 0 ? at_ns - now_ns : 0, 0))
		return true;
	usher_groups->asked_ns = 0;
	usher_groups->called = 1;
	return false;
}

/*
 * Somebody is throttled, and goes on no sooner than at_ns. The barrier is between its arrival, or that it was counted, and the look at
 * asked_ns: see begin_look(). Of two CPUs that set the timer at once the later one may be asked for the later time; so each looks whether the other was
 * asked for a sooner one. Whether the timer is set.
 */
USHER_UNIT bool ask_timer(u64 at_ns)
{
	volatile u64 __arena *asked_ns = &usher_groups->asked_ns;
	struct usher_timer *timer;
	u32 key = 0;
	u64 asked;

	usher_bpf_barrier();
	asked = *asked_ns;
	if (asked && (s64)(asked - at_ns) <= 0)
		return true;
	timer = bpf_map_lookup_elem(&usher_timers, &key);
	if (!timer)
		return false;
	*asked_ns = at_ns;
	if (!set_timer(timer, at_ns))
		return false;
	asked = *asked_ns;
	return !asked || (s64)(asked - at_ns) >= 0 || set_timer(timer, asked);
}

/* At enqueue: whether p may not run for now, and waits elsewhere. */
static __noinline bool throttle(struct usher __arena *u, struct task_struct *p, u32 self, u64 enq_flags)
{
	u64 until_ns = throttled_until(p);

	if (!until_ns)
		return false;
	count(self, USHER_HOST_THROTTLED);
	scx_bpf_task_set_dsq_vtime(p, due_of(u, p));
	scx_bpf_dsq_insert(p, throttled_queue(p), u->slice_ns, enq_flags);
	__sync_fetch_and_add(&usher_groups->throttles, 1);
	ask_timer(until_ns);
	return true;
}

/* Who is first in a queue, and may not run for now, waits elsewhere. Before a CPU takes from it. How many these were. */
USHER_UNIT u32 throttle_waiting(struct usher __arena *u __arg_arena, u64 queue, u32 self)
{
	struct task_struct *p;
	u32 moved = 0;
	u64 until_ns;

	if (!scx_bpf_dsq_nr_queued(queue))
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		until_ns = waits_until(u, p);
		if (!until_ns || moved == USHER_THROTTLE_MOST)
			break;
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, u->slice_ns);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, due_of(u, p));
		if (!scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, throttled_queue(p), 0))
			break;
		count(self, USHER_HOST_THROTTLED);
		ask_timer(until_ns);
		moved = env_next(u, moved);
	}
	bpf_rcu_read_unlock();
	return moved;
}

/*
 * p was put into queue, that of its CPU: an idle CPU for it. As at enqueue, but its allowed CPUs are read without a lock.
 *
 * Tolerated: if they change meanwhile a CPU may be sent to look for it in vain, and it waits for the next that comes to the queue.
 */
USHER_UNIT u32 look_for(struct usher __arena *u __arg_arena, struct task_struct *p __arg_trusted, u32 queue, u32 self)
{
	struct usher_query q = { .from = cid_of(u, scx_bpf_task_cpu(p)), .self = self };
	u32 nr = 0;
	bool known = allowed_of(u, p, self, &q.allowed, &nr);

	usher_queue_fill(u, queue, !known || q.allowed);
	if (usher_idle_mode != USHER_IDLE_USHER)
		builtin_look(u, p, self);
	else if (known)
		kick(u, self, usher_look(u, &q));
	return nr;
}

/*
 * Where a throttled task belongs: into the queue of its CPU, or to that CPU if it may run nowhere else; or where it is, which is told as the
 * number of its limiter beyond USHER_DSQ_THROTTLED. Who goes on has a tick of the quota for itself, so that no more do than it lasts for.
 */
USHER_UNIT u64 belongs_to(struct usher __arena *u __arg_arena, struct task_struct *p __arg_trusted, u64 waits, u32 moved)
{
	struct usher_limited *l;
	s32 cpu = scx_bpf_task_cpu(p);
	u64 until_ns, ahead_ns;
	u32 limiter;

	group_look(p);
	limiter = limiter_of_task(p);
	/* Those behind one that waits came later; only of those of other groups it is not known. */
	if (waits == USHER_DSQ_THROTTLED + limiter)
		return waits;
	until_ns = waits_until(u, p);
	if (!until_ns && moved == USHER_THROTTLE_MOST)
		until_ns = scx_bpf_now();
	if (until_ns) {
		ask_timer(until_ns);
		return USHER_DSQ_THROTTLED + limiter;
	}
	l = limiter ? bpf_task_storage_get(&usher_limited, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) : NULL;
	if (l && !l->ahead_ns) {
		ahead_ns = bandwidth_ahead(limiter, 1);
		if (__sync_val_compare_and_swap(&l->ahead_ns, 0, ahead_ns))
			bandwidth_take(limiter, -(s64)ahead_ns);
	}
	if (p->nr_cpus_allowed == 1 || usher_migration_disabled(p, false) || !known_cpu(u, cpu))
		return SCX_DSQ_LOCAL_ON | cpu;
	return u->cids[cid_of(u, cpu)].queue;
}

USHER_UNIT u64 enters_at(struct usher __arena *u __arg_arena, struct task_struct *p __arg_trusted, u32 queue)
{
	return usher_vtime_enter(u, p->scx.dsq_vtime, queue);
}

/* One that waited elsewhere goes on. */
static __always_inline void unthrottle_one(struct usher __arena *u, struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 to, u32 self)
{
	if (to >= SCX_DSQ_LOCAL_ON) {
		scx_bpf_dsq_move(it, p, to, 0);
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_IDLE); /* kernels before 2026 tell nobody of a task that was moved so */
		return;
	}
	scx_bpf_dsq_move_set_vtime(it, enters_at(u, p, to));
	if (scx_bpf_dsq_move_vtime(it, p, to, 0))
		look_for(u, p, to, self);
}

/*
 * Before a look at who may go on. For who was put there an instant ago may not have arrived. Either it is counted by now, and there will be another
 * look, or it comes after asked_ns was reset, and asks for the timer itself.
 */
static __noinline void begin_look(void)
{
	u64 throttles;

	usher_groups->called = 0;
	usher_groups->asked_ns = 0;
	usher_bpf_barrier();
	throttles = *(volatile u64 __arena *)&usher_groups->throttles;
	if (throttles == usher_groups->seen)
		return;
	usher_groups->seen = throttles;
	ask_timer(scx_bpf_now() + USHER_LOOK_AGAIN_NS);
}

/* At dispatch, called by the timer: who waits elsewhere and may run goes on. How many these were. */
USHER_UNIT u32 unthrottle(struct usher __arena *u __arg_arena, u32 self)
{
	struct task_struct *p;
	u32 i, moved = 0;

	begin_look();
	for (i = 0; i < USHER_NR_THROTTLED && can_loop; i = env_next(u, i)) {
		u64 waits = 0, to;

		if (!scx_bpf_dsq_nr_queued(USHER_DSQ_THROTTLED + i))
			continue;
		bpf_rcu_read_lock();
		bpf_for_each(scx_dsq, p, USHER_DSQ_THROTTLED + i, 0) {
			to = belongs_to(u, p, waits, moved);
			if (to >= USHER_DSQ_THROTTLED && to < SCX_DSQ_LOCAL_ON) {
				waits = to;
				continue;
			}
			moved = env_next(u, moved);
			count(self, USHER_HOST_UNTHROTTLED);
			unthrottle_one(u, BPF_FOR_EACH_ITER, p, to, self);
		}
		bpf_rcu_read_unlock();
	}
	return moved;
}

/* The timer: calls a CPU that idles, if one is among the next, or runs ours; and asks again soon, in case it does not come. */
static int throttle_timer(void *map, u32 *key, struct usher_timer *timer)
{
	struct usher __arena *u = usher();
	u32 cid = cid_of(u, bpf_get_smp_processor_id()), i;
	s32 called = -1;

	if (!usher_groups->asked_ns)
		return 0;
	usher_groups->called = 1;
	for (i = 0; i < u->nr_cids && (called < 0 || i < USHER_THROTTLE_MOST) && can_loop; i = env_next(u, i)) {
		s32 cpu = u->cids[cid].cpu;

		if (in_service(u, cpu) && !outranked(cpu)) {
			if (called < 0)
				called = cpu;
			if (u->cpus[cid].idle) {
				called = cpu;
				break;
			}
		}
		if (++cid == u->nr_cids)
			cid = 0;
	}
	if (called >= 0)
		scx_bpf_kick_cpu(called, SCX_KICK_PREEMPT);
	bpf_timer_start(&timer->timer, USHER_LOOK_AGAIN_NS, 0);
	return 0;
}

/*
 * p begins to run on a CPU. For a tick something is taken of the quota, unless the CPU has as much as p ran for between its last two sleeps. Who may not
 * run leaves again at once, before it gets to anything: too many began at once, or it was throttled for so long that it is here all the same.
 */
static __noinline void limited_running(struct task_struct *p, s32 cpu, u32 cid, u32 limiter)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, 0);
	struct usher_group_time __arena *time = time_of(p, cid);
	u64 usual_ns = !l ? ~0ULL : l->turn_ns > l->last_ns ? l->turn_ns : l->last_ns;
	bool leaves = limited_until(p, limiter);

	if (leaves) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	} else if (l && l->ahead_ns) {
		time->unpaid -= ahead_of(l);
	} else if (-(s64)time->unpaid <= 0 || -time->unpaid < usual_ns) {
		time->unpaid -= bandwidth_ahead(limiter, USHER_AHEAD_PART);
	}
	if (!l)
		return;
	if (!leaves)
		l->holds = 1;
	l->utime = p->utime;
	l->judged_ns = p->se.sum_exec_runtime;
}

static __always_inline void throttle_running(struct task_struct *p, s32 cpu, u32 cid)
{
	u32 limiter = limiter_of_task(p);

	if (limiter)
		limited_running(p, cpu, cid, limiter);
}

/*
 * At a tick: whether it found p in user mode. Where the kernel counts times exactly (nohz_full) it is there if it was there since the last one.
 * Nothing is known if not every tick of it came here.
 */
static __always_inline bool in_user_mode(struct task_struct *p, struct usher_limited *l)
{
	u64 utime = p->utime;
	bool more = utime != l->utime && p->se.sum_exec_runtime - l->judged_ns < USHER_TICK_NS;

	l->utime = utime;
	return more;
}

/* At a tick of p's CPU: whether there is hardly anything of the quota left for p, neither in advance nor otherwise. */
static __always_inline bool owes(struct task_struct *p, struct usher_group_time __arena *time, u32 limiter)
{
	s64 least_ns = usher_bandwidths[limiter].least_ns;

	if ((s64)time->unpaid > -least_ns)
		time->unpaid -= bandwidth_ahead(limiter, USHER_AHEAD_PART);
	return (s64)time->unpaid > -least_ns && owing_until(p, limiter, false);
}

/* At a tick of p's CPU: whether the slice was ended, of one that may not go on. */
static __noinline bool limited_tick(struct task_struct *p, u32 cid, u32 limiter)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 ran_ns = p->se.sum_exec_runtime;
	bool owing = owes(p, time_of(p, cid), limiter), in_kernel;

	if (!l)
		return false; /* no memory: it goes on */
	in_kernel = !in_user_mode(p, l);
	l->judged_ns = ran_ns;
	if (!in_kernel || !owing)
		l->owing_ns = 0;
	else if (!l->owing_ns)
		l->owing_ns = ran_ns;
	else if (ran_ns - l->owing_ns > USHER_OWING_NS)
		in_kernel = false;
	/* It holds nothing if it stops now. */
	l->holds = in_kernel || (!owing && p->scx.slice);
	if (l->holds || !owing)
		return false;
	scx_bpf_task_set_slice(p, 0);
	return true;
}

static __always_inline bool throttle_tick(struct task_struct *p, u32 cid)
{
	u32 limiter = limiter_of_task(p);

	bandwidth_ran(p, cid);
	return limiter && limited_tick(p, cid, limiter);
}

/* p goes on, whose slice had ended. */
static __noinline void limited_kept(struct task_struct *p)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, 0);

	if (l)
		l->holds = 1;
}

/* p stops, and sleeps unless it is runnable: then it holds what it did. */
static __noinline void limited_stopping(struct task_struct *p, u32 cid, u32 limiter, bool runnable)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u32 state = p->__state;

	bandwidth_back(time_of(p, cid), limiter);
	if (!l)
		return;
	l->utime = p->utime;
	l->turn_ns += p->se.sum_exec_runtime - usher_host_cpus[cid].began_ns;
	if (!runnable) {
		l->last_ns = l->turn_ns;
		l->turn_ns = 0;
		l->owing_ns = 0;
		l->holds = !(state & USHER_TASK_INTERRUPTIBLE) || state & USHER_TASK_UNINTERRUPTIBLE;
	} else if (p->se.sum_exec_runtime - l->judged_ns > USHER_JUDGED_NS) {
		l->holds = 1;
	}
	l->judged_ns = p->se.sum_exec_runtime;
}

static __always_inline void throttle_stopping(struct task_struct *p, u32 cid, bool runnable)
{
	u32 limiter = limiter_of_task(p);

	if (limiter)
		limited_stopping(p, cid, limiter, runnable);
}

/* When the scheduler begins. */
static __always_inline s32 throttle_init(void)
{
	struct usher_timer *timer;
	u32 i, key = 0;
	s32 error;

	if (!usher_nr_groups)
		return 0;
	for (i = 0; i < USHER_NR_THROTTLED; i++) {
		error = scx_bpf_create_dsq(USHER_DSQ_THROTTLED + i, -1);
		if (error)
			return error;
	}
	timer = bpf_map_lookup_elem(&usher_timers, &key);
	if (!timer)
		return -1;
	error = bpf_timer_init(&timer->timer, &usher_timers, CLOCK_MONOTONIC);
	return error ? error : bpf_timer_set_callback(&timer->timer, throttle_timer);
}

#endif
