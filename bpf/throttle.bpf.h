/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Throttled tasks: those of a group that has used up its quota (bandwidth.bpf.h). Who comes then is put into one of a few dispatch queues that
 * no CPU takes from, until the period is over; those that wait in other queues already go there when a CPU comes to them.
 *
 * A timer is set for the first period that ends. It only calls a CPU: to move tasks takes a callback with interrupts off, its dispatch.
 *
 * A task that is in the kernel may hold what others wait for, and not only those of its group: it goes on until it is out of there, or has gone on
 * for long. It is known to hold nothing if a tick found it in user mode and ended its slice, if it slept so that signals could wake it, as who
 * waits for a pipe, a socket, a futex or a time does, and if it is newborn. Not throttled at all are threads of the kernel, and who exits.
 *
 * Who was throttled for so long that the kernel would eject us before long runs for an instant, which is all that the kernel asks.
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
	u64 utime;    /* what the kernel had counted as its time in user mode at its last tick */
	u64 tick_ns;  /* what it had run in its life then, or when it was sent away as it began to run */
	u64 owing_ns; /* the same at the first tick that found its group out of quota and it in the kernel; 0: that did not happen since it left that */
	u32 holds;    /* 1: when it last stopped, or at that tick, it may have held something of the kernel's */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usher_limited);
} usher_limited SEC(".maps");

/* What a kernel that can count times exactly (CONFIG_VIRT_CPU_ACCOUNTING_GEN) has in a task. */
struct vtime___usher {
	u32 state;
} __attribute__((preserve_access_index));

struct task_struct___vtime {
	struct vtime___usher vtime;
} __attribute__((preserve_access_index));

#define USHER_TICK_NS (100 * 1000ULL)	/* who stops so soon after a tick does so because of it */
#define USHER_OWING_NS (16 * 1000 * 1000ULL) /* for so long who is in the kernel may go on */
#define USHER_TASK_INTERRUPTIBLE 1
#define USHER_TASK_UNINTERRUPTIBLE 2
#define USHER_VTIME_SYS 2		/* enum vtime_state, if times are counted exactly: in the kernel, ... */
#define USHER_VTIME_USER 3		/* ... or, from here on, not */

#define USHER_DSQ_THROTTLED (2ULL << 20) /* the ids of dispatch queues of the throttled, from here */
#define USHER_NR_THROTTLED 64		 /* how many there are; whose a task waits in goes by its limiter */

#define USHER_UNTHROTTLE_MOST 64	/* so many go on in one dispatch at most */
#define USHER_LOOK_AGAIN_NS (1000 * 1000ULL) /* when to look again whether all did */

/* Whether a task that does not run, or that a tick stops, may hold something of the kernel's. */
static __always_inline bool may_hold(struct task_struct *p)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, 0);

	return l && l->holds;
}

/* Until when a task that does not run, or that a tick stops, is not to run; 0: it may. */
static __noinline u64 limited_until(struct task_struct *p, u32 limiter)
{
	u64 until_ns = p->flags & (PF_KTHREAD | PF_EXITING) ? 0 : exhausted_until(limiter);

	return until_ns && !may_hold(p) ? until_ns : 0;
}

static __always_inline u64 throttled_until(struct task_struct *p)
{
	u32 limiter = limiter_of_task(p);

	return limiter ? limited_until(p, limiter) : 0;
}

/* The same for one that waits: not for too long. */
static __always_inline u64 waits_until(struct usher __arena *u, struct task_struct *p)
{
	u64 until_ns = throttled_until(p);

	u64 ticks = until_ns ? waited_ticks(p) : 0;

	return ticks && ticks_ns(ticks) >= u->patience_ns ? 0 : until_ns;
}

static __always_inline u64 throttled_queue(u32 limiter)
{
	return USHER_DSQ_THROTTLED + limiter % USHER_NR_THROTTLED;
}

/*
 * Somebody is throttled, and goes on no sooner than at_ns. If two CPUs ask for the timer at once it may be set for the later of both
 * times, which is a period.
 */
static __noinline void ask_timer(u64 at_ns)
{
	struct usher_groups __arena *groups = usher_groups;
	struct usher_timer *timer;
	u64 now_ns = scx_bpf_now(), asked_ns;
	u32 key = 0;

	asked_ns = *(volatile u64 __arena *)&groups->asked_ns;
	if (asked_ns && (s64)(asked_ns - at_ns) <= 0)
		return;
	timer = bpf_map_lookup_elem(&usher_timers, &key);
	if (!timer)
		return;
	groups->asked_ns = at_ns;
	bpf_timer_start(&timer->timer, (s64)(at_ns - now_ns) > 0 ? at_ns - now_ns : 0, 0);
}

/* At enqueue: whether p may not run for now, and waits elsewhere. */
static __noinline bool throttle(struct usher __arena *u, struct task_struct *p, u32 self, u64 enq_flags)
{
	u64 until_ns = throttled_until(p);

	if (!until_ns)
		return false;
	count(self, USHER_HOST_THROTTLED);
	__sync_fetch_and_add(&usher_groups->throttles, 1); /* before the look at asked_ns: see begin_look() */
	scx_bpf_dsq_insert(p, throttled_queue(limiter_of_task(p)), u->slice_ns, enq_flags);
	ask_timer(until_ns);
	return true;
}

/* Who is first in a queue, and may not run for now, waits elsewhere. Before a CPU takes from it. */
static __noinline void throttle_waiting(struct usher __arena *u, u64 queue, u32 self)
{
	struct task_struct *p;
	u64 until_ns;

	if (!scx_bpf_dsq_nr_queued(queue))
		return;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		until_ns = waits_until(u, p);
		if (!until_ns)
			break;
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, u->slice_ns);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, due_of(u, p));
		if (!scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, throttled_queue(limiter_of_task(p)), 0))
			break;
		count(self, USHER_HOST_THROTTLED);
		ask_timer(until_ns);
	}
	bpf_rcu_read_unlock();
}

/*
 * One that waited elsewhere may run: it goes to its own CPU if it may run nowhere else, and else to the queue there, as at enqueue.
 *
 * Tolerated: its allowed CPUs are read without a lock. If they change meanwhile a CPU may be sent to look for it in vain.
 */
static __always_inline void unthrottle_one(struct usher __arena *u, struct bpf_iter_scx_dsq *it, struct task_struct *p, u32 self)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct usher_query q = { .from = cid_of(u, cpu), .self = self };
	u32 queue = u->cids[q.from].queue, nr;
	bool known;

	count(self, USHER_HOST_UNTHROTTLED);
	if (p->nr_cpus_allowed == 1 || usher_migration_disabled(p) || !known_cpu(u, cpu)) {
		scx_bpf_dsq_move(it, p, SCX_DSQ_LOCAL_ON | cpu, 0);
		return;
	}
	known = allowed_of(u, p, self, &q.allowed, &nr);
	scx_bpf_dsq_move_set_vtime(it, usher_vtime_enter(u, p->scx.dsq_vtime, queue));
	if (!scx_bpf_dsq_move_vtime(it, p, queue, 0))
		return;
	usher_queue_fill(u, queue, !known || q.allowed);
	if (usher_idle_mode != USHER_IDLE_USHER)
		builtin_look(u, p, self);
	else if (known)
		kick(u, self, usher_look(u, &q));
}

/* The earlier of two times; 0 is none. */
static __always_inline u64 earlier(u64 a_ns, u64 b_ns)
{
	return !a_ns || (b_ns && (s64)(b_ns - a_ns) < 0) ? b_ns : a_ns;
}

/*
 * Before a look at who may go on; when to look again at the latest, or 0. For who was put there an instant ago may not have arrived. Either it is
 * counted by now, and there will be another look, or it comes after asked_ns was reset, and asks for the timer itself.
 */
static __noinline u64 begin_look(void)
{
	u64 throttles;

	usher_groups->called = 0;
	usher_groups->asked_ns = 0;
	throttles = __sync_val_compare_and_swap(&usher_groups->throttles, 0, 0); /* a full barrier */
	if (throttles == usher_groups->seen)
		return 0;
	usher_groups->seen = throttles;
	return scx_bpf_now() + USHER_LOOK_AGAIN_NS;
}

/* At dispatch, called by the timer: who waits elsewhere and may run goes on. */
static __noinline void unthrottle(struct usher __arena *u, u32 self)
{
	u64 next_ns = begin_look();
	struct task_struct *p;
	u32 i, moved = 0;

	for (i = 0; i < USHER_NR_THROTTLED && can_loop; i = env_next(u, i)) {
		if (!scx_bpf_dsq_nr_queued(USHER_DSQ_THROTTLED + i))
			continue;
		bpf_rcu_read_lock();
		bpf_for_each(scx_dsq, p, USHER_DSQ_THROTTLED + i, 0) {
			u64 until_ns = waits_until(u, p);

			if (until_ns) {
				next_ns = earlier(next_ns, until_ns);
				continue;
			}
			if (moved == USHER_UNTHROTTLE_MOST) {
				next_ns = scx_bpf_now();
				break;
			}
			moved = env_next(u, moved);
			unthrottle_one(u, BPF_FOR_EACH_ITER, p, self);
		}
		bpf_rcu_read_unlock();
	}
	if (next_ns)
		ask_timer(next_ns);
}

/* The timer: calls a CPU that runs ours or nothing, and asks again soon, in case it does not come. */
static int throttle_timer(void *map, u32 *key, struct usher_timer *timer)
{
	struct usher __arena *u = usher();
	u32 self = cid_of(u, bpf_get_smp_processor_id()), i, cid = self;

	if (!usher_groups->asked_ns)
		return 0;
	usher_groups->called = 1;
	for (i = 0; i < u->nr_cids && can_loop; i = env_next(u, i)) {
		if (in_service(u, u->cids[cid].cpu) && !outranked(u->cids[cid].cpu)) {
			scx_bpf_kick_cpu(u->cids[cid].cpu, SCX_KICK_PREEMPT);
			break;
		}
		if (++cid == u->nr_cids)
			cid = 0;
	}
	bpf_timer_start(&timer->timer, USHER_LOOK_AGAIN_NS, 0);
	return 0;
}

/*
 * p begins to run on a CPU. Who may not, and was throttled for so long that it does, leaves again at once, before it gets to anything: that it
 * ran is all that the kernel asks.
 */
static __noinline void limited_running(struct task_struct *p, s32 cpu)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, 0);

	if (!l || !throttled_until(p))
		return;
	l->tick_ns = p->se.sum_exec_runtime;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

static __always_inline void throttle_running(struct task_struct *p, s32 cpu)
{
	if (limiter_of_task(p))
		limited_running(p, cpu);
}

/* Whether a tick found p, which runs, in user mode. */
static __always_inline bool in_user_mode(struct task_struct *p, struct usher_limited *l)
{
	struct task_struct___vtime *exact = (struct task_struct___vtime *)p;
	u64 utime = p->utime;
	bool more = utime != l->utime;

	l->utime = utime;
	if (bpf_core_field_exists(exact->vtime.state) && exact->vtime.state >= USHER_VTIME_SYS)
		return exact->vtime.state >= USHER_VTIME_USER;
	return more && l->tick_ns; /* at its first tick it is not known how much it had */
}

/* At a tick of p's CPU: the slice of who may not go on ends. */
static __noinline void limited_tick(struct task_struct *p, u32 limiter)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 ran_ns = p->se.sum_exec_runtime;
	bool exhausted = exhausted_until(limiter);

	if (!l)
		return; /* no memory: it goes on until it sleeps */
	l->holds = !in_user_mode(p, l);
	l->tick_ns = ran_ns;
	if (!l->holds || !exhausted)
		l->owing_ns = 0;
	else if (!l->owing_ns)
		l->owing_ns = ran_ns;
	else if (ran_ns - l->owing_ns > USHER_OWING_NS)
		l->holds = 0;
	if (exhausted && !l->holds)
		scx_bpf_task_set_slice(p, 0);
}

static __always_inline void throttle_tick(struct task_struct *p, u32 cid)
{
	u32 limiter = limiter_of_task(p);

	if (!limiter)
		return;
	bandwidth_ran(p, cid);
	limited_tick(p, limiter);
}

/* p stops, and sleeps unless it is runnable. */
static __noinline void limited_stopping(struct task_struct *p, bool runnable)
{
	struct usher_limited *l = bpf_task_storage_get(&usher_limited, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u32 state = p->__state;

	if (!l)
		return;
	if (runnable && p->se.sum_exec_runtime - l->tick_ns < USHER_TICK_NS)
		return; /* as the tick found it */
	l->holds = runnable || !(state & USHER_TASK_INTERRUPTIBLE) || state & USHER_TASK_UNINTERRUPTIBLE;
}

static __always_inline void throttle_stopping(struct task_struct *p, bool runnable)
{
	if (limiter_of_task(p))
		limited_stopping(p, runnable);
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
