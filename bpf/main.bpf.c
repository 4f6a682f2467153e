/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_usher: the placement core as a sched_ext scheduler. Only callbacks: translate between the
 * kernel's CPUs and the core's cids, ask the core, act. Every choice is made in core/src.
 *
 * Queues: a dispatch queue for each of the core, under its number and ordered by virtual time; and one per CPU
 * for tasks that may run nowhere else. A task whose wakeup found an idle CPU goes straight to that
 * CPU's local queue. Tasks of groups that have used up their quota wait in some more (throttle.bpf.h).
 *
 *   select_cpu    place(); a claimed CPU gets the task at once, or, where the kernel queues wakeups, at enqueue; but who always wakes the same one
 *                 may give way to it
 *   enqueue       everybody else waits: fill the queue, then look for an idle CPU; but an urgent task
 *                 that was woken takes the CPU of one that is not
 *   dispatch      a CPU without work: its own queue and that of several in turn, there perhaps the task that was handed to it,
 *                 then by distance;
 *                 at the end of a slice: whoever goes before the task that had it
 *   update_idle   the idle map; where CPUs differ, a task too heavy for a weaker one is called for
 *   tick          the class of who goes on; where CPUs differ: a task too heavy for this one moves to a greater one
 *                 that idles
 *   cpu_online, cpu_offline   the loader is to build the tables anew; a CPU that leaves empties its queue
 *   running, stopping   virtual time, and the class of the task that runs
 *
 * Who runs what: a callback runs on the CPU whose blocks it writes (struct usher_cpu, struct
 * usher_host_cpu), with interrupts off, so those need no atomics. This CPU is not always the one
 * the callback is about: enqueue runs on the waker's.
 */
#include "compat.h"
#include "../core/include/usher/usher.h"
#include "shared.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Set by the loader before load. */
const volatile u32 usher_idle_mode = USHER_IDLE_USHER;
const volatile bool usher_unequal = true; /* CPUs differ in capacity; if not, no code for it is checked or kept */
const volatile bool usher_uncrowds = true; /* cores have several threads: the same for tasks that move off crowded ones */
const volatile bool usher_keeps_nobody = true; /* SCX_OPS_ENQ_LAST is set: the kernel keeps no task whose slice ended on its CPU */
const volatile bool usher_follows = true; /* there are several LLCs: the same for tasks that go to those who wake them */
const volatile bool usher_queued_wakeups = true; /* the kernel may leave it to a CPU to queue who is woken for it: the same for that */
const volatile u32 usher_nr_possible = 1; /* a task with so many allowed CPUs may run everywhere */
const volatile u64 usher_sizes[] = { sizeof(struct usher), sizeof(struct usher_host_cpu),
				      sizeof(struct usher_group), sizeof(struct usher_group_time),
				      sizeof(struct usher_groups), sizeof(struct usher_bandwidth) }; /* to compare */

/* Set by the loader after load and before attach: addresses in the arena. */
struct usher __arena *usher_root;
struct usher_host_cpu __arena *usher_host_cpus;
struct usher __arena *usher_copies; /* of *usher_root, by CPU number, where decisions are recorded: bpf_recorded.h */

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; the loader sets it from the machine's size */
} usher_arena SEC(".maps");

/* When the scheduler began, by two clocks; what a tick is in nanoseconds is not to be had otherwise. */
u64 usher_began_ns, usher_began_tick;

/*
 * Wakes the loader when the scheduler ends, which uei tells more about, or when CPUs came or went
 * since the tables were built.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} usher_news SEC(".maps");

/* The ids of dispatch queues: those of several CPUs count from 0, those of one from here. */
#define USHER_DSQ_CPU (1ULL << 20)

static u64 usher_bpf_queued(u32 queue)
{
	s32 n = scx_bpf_dsq_nr_queued(queue);

	return n > 0 ? n : 0;
}

static __always_inline bool usher_bpf_asymmetric(struct usher __arena *u)
{
	return usher_unequal && u->asymmetric;
}

static void usher_bpf_gave_up(void)
{
	scx_bpf_error("an atomic operation lost millions of times in a row");
}

/* The core's state. A program may use an arena only if it names the map, which nothing else here does. */
static __always_inline struct usher __arena *usher(void)
{
	asm volatile("" : : "r"(&usher_arena));
#ifdef USHER_RECORDS
	return &usher_copies[bpf_get_smp_processor_id()];
#endif
	return usher_root;
}

#include "../core/src/place.c"
#include "bpf_access.h" /* accesses of what follows are not recorded: record.bpf.h */
#include "../core/src/core.c"
#include "sets.bpf.h"

/* The cid of a CPU. One without is offline, where a task may have run last; it counts as the first. */
static __always_inline u32 cid_of(struct usher __arena *u, u32 cpu)
{
	s32 cid = cpu < u->nr_cpu_ids ? u->cid_of_cpu[cpu] : -1;

	return cid < 0 ? 0 : cid;
}

/*
 * Whether a CPU is in the tables. One that came online after they were built is not, until the
 * loader starts anew: it must not report in another's name, and has no queue of its own.
 */
static __always_inline bool known_cpu(struct usher __arena *u, u32 cpu)
{
	return cpu < u->nr_cpu_ids && u->cid_of_cpu[cpu] >= 0;
}

/* Whether a CPU may be handed work: it is in the tables and not on its way offline. */
static __always_inline bool in_service(struct usher __arena *u, u32 cpu)
{
	return known_cpu(u, cpu) && !usher_host_cpus[u->cid_of_cpu[cpu]].leaving;
}

/*
 * Whether this CPU may place tasks, count and kick. One that is not in the tables would do it in another's name, between that one's own
 * steps. One on its way offline still wakes a task or two when it is there. A kick is an interrupt that a CPU asks of itself, and from there
 * it never comes; nor does any later one when the CPU is back, since the first one counts as on its way for ever. What such CPUs wake goes
 * to the local queue of where it was, which the kernel sees to, until the loader has started anew.
 */
static __always_inline bool is_heard(struct usher __arena *u)
{
	return in_service(u, bpf_get_smp_processor_id());
}

static __always_inline void count(u32 self, enum usher_host_event event)
{
	usher_host_cpus[self].events[event]++;
}

/* Sends an idle CPU, claimed before, to look for work. */
static __always_inline void kick(struct usher __arena *u, u32 self, s32 cid)
{
	if (cid < 0)
		return;
	count(self, USHER_HOST_KICKED);
	scx_bpf_kick_cpu(u->cids[cid].cpu, SCX_KICK_IDLE);
}

/* At the end of every callback that searches, takes from a queue or leaves idle: see usher_rescue(). */
static __always_inline void rescue(struct usher __arena *u, u32 self)
{
	if (u->cpus[self].poke)
		kick(u, self, usher_rescue(u, self));
}

/* Whether somebody of a higher class is runnable on a CPU, who comes before all of ours. */
static __always_inline bool outranked(s32 cpu)
{
	struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->nr_running > rq->scx.nr_running;
}

/* How long a task has waited for a CPU, as the kernel's watchdog measures it; 0 for one that waited before we attached. */
static __always_inline u64 waited_ticks(struct task_struct *p)
{
	u64 tick = bpf_jiffies64(), waited = tick - p->scx.runnable_at;

	return waited <= tick - usher_began_tick ? waited : 0;
}

/* So many ticks, at least one, in nanoseconds. */
static __always_inline u64 ticks_ns(u64 ticks)
{
	return ticks * ((bpf_ktime_get_ns() - usher_began_ns) / (bpf_jiffies64() - usher_began_tick));
}

#include "group.bpf.h"
#include "record.bpf.h"
#include "builtin.bpf.h"
#include "hint.bpf.h"
#include "capacity.bpf.h"
#include "move.bpf.h"
#include "class.bpf.h"

/*
 * At select_cpu: p goes to a CPU that was claimed for it, and which may be the one that queues it. Until then nothing is said to the kernel:
 * who changes its class meanwhile, or is there when we end, would keep what was said until its next wakeup, and Linux warns of that.
 */
static __always_inline void send(struct usher __arena *u, struct task_struct *p, u32 self)
{
	if (usher_queued_wakeups)
		usher_host_cpus[self].sent_pid = p->pid;
	else
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, u->slice_ns, 0);
}

/*
 * At enqueue: whether p comes to the CPU that was claimed for it. Either the CPU that placed it queues it, as the next that it queues at all,
 * or the claimed one, which nobody told for whom it was claimed: it is taken to be for the first who comes while it idles.
 *
 * Tolerated: it was claimed for another, or to look for work, which then is queued like those who found no idle CPU; and who was sent and comes
 * elsewhere, as its allowed CPUs changed, may be the first there.
 */
static __always_inline bool comes_as_sent(struct usher __arena *u, struct task_struct *p, u32 self, s32 cpu, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[self];
	bool placed = me->sent_pid == p->pid;

	if (!usher_queued_wakeups)
		return false;
	me->sent_pid = 0;
	return (placed || self == cid) && usher_claimed(u, cid) && !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu);
}

#include "hand.bpf.h"
#include "throttle.bpf.h"
#include "follow.bpf.h"

/*
 * What this CPU queued last is in its queue by now, and somebody may idle who looked too soon: see usher_look_later(). Before all else,
 * as one more task would be looked for in its place, and among the CPUs that are allowed to that one.
 */
static __noinline void late_look(struct usher __arena *u, u32 self)
{
	if (usher_idle_mode == USHER_IDLE_USHER)
		kick(u, self, usher_late_look(u, self));
	else
		builtin_late_look(u, self);
}

static __always_inline u32 wake_kind(u64 wake_flags)
{
	if (wake_flags & USHER_WF_FORK)
		return USHER_WAKE_FORK;
	return wake_flags & USHER_WF_SYNC ? USHER_WAKE_SYNC : USHER_WAKE;
}

s32 BPF_STRUCT_OPS(usher_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct usher __arena *u = usher();
	u32 self = cid_of(u, bpf_get_smp_processor_id());
	struct usher_request r = {
		.wake = wake_kind(wake_flags),
		.prev = cid_of(u, prev_cpu),
		.waker = self,
	};
	struct usher_hinted *h = hinted(p);
	struct usher_decision d;

	if (!is_heard(u)) {
		count(self, USHER_HOST_UNHEARD);
		return prev_cpu;
	}
	late_look(u, self);
	if (throttled_until(p)) {
		usher_host_cpus[self].sync_pid = 0;
		return prev_cpu;
	}
	if (usher_idle_mode != USHER_IDLE_USHER)
		return builtin_select_cpu(u, p, prev_cpu, wake_flags, self);
	if (!allowed_of(u, p, self, &r.allowed, &r.nr_allowed)) {
		count(self, USHER_HOST_NO_SET);
		return prev_cpu;
	}
	if (h) {
		r.hints = h->flags;
		r.hints = usher_hold(u, &r, &h->hold);
	}
	if (r.wake == USHER_WAKE_SYNC) {
		s32 cpu = give_way(u, p, self, r.prev, r.hints);

		if (cpu >= 0) {
			rescue(u, self);
			return cpu;
		}
	}
	demand_of(u, p, &r.demand);
	follow(u, p, &r);
	d = place_recorded(u, p, &r);
	if (h && h->flags && r.wake == USHER_WAKE_FORK)
		settle(u, h, u->cids[d.cid].llc);
	rescue(u, self);
	if (r.wake == USHER_WAKE_SYNC)
		usher_pair_woke(u, self, scx_bpf_now());
	if (d.claimed)
		send(u, p, self);
	usher_host_cpus[self].sync_pid = !d.claimed && r.wake == USHER_WAKE_SYNC ? p->pid : 0;
	return u->cids[d.cid].cpu;
}

/* A task takes the CPU of one that is less urgent. */
static __always_inline void preempt(struct usher __arena *u, struct task_struct *p, u32 victim, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | u->cids[victim].cpu, u->slice_ns, enq_flags | SCX_ENQ_PREEMPT);
}

/* A task that woke now waits for q->from: the turn of who runs there ends, or beside it, if it has lasted. */
static __always_inline void cut_turn(struct usher __arena *u, struct task_struct *p, const struct usher_query *q,
				     u64 due, u32 early, u64 enq_flags)
{
	struct usher_turn wants = { .vtime = due, .weight = weight_shared(p) };
	s32 cid;

	if (usher_no_preempt || !(enq_flags & SCX_ENQ_WAKEUP) || p->policy == USHER_SCHED_BATCH)
		return;
	wants.at_ns = scx_bpf_now();
	cid = usher_turn_cut(u, q, &wants, early);
	if (cid >= 0)
		scx_bpf_kick_cpu(u->cids[cid].cpu, SCX_KICK_PREEMPT);
}

/* A task that may run on one CPU only; called under that CPU's runqueue lock. */
static __always_inline void enqueue_pinned(struct usher __arena *u, struct task_struct *p, s32 cpu, u32 cid,
					   u32 self, u64 enq_flags)
{
	struct usher_query q = { .flags = USHER_HERE, .from = cid, .self = self };
	u32 queue = u->cids[cid].queue, early;
	u64 due;

	/* Nobody can come before it on an idle CPU; the kernel reschedules one whose local queue is filled. */
	if (usher_idle_mode == USHER_IDLE_USHER && usher_test_and_clear(u, cid)) {
		count(self, USHER_HOST_LOCAL);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, u->slice_ns, enq_flags);
		return;
	}
	if (preempted_for(u, p, &q, true, enq_flags) >= 0) {
		preempt(u, p, cid, enq_flags);
		return;
	}
	count(self, USHER_HOST_PINNED);
	usher_host_cpus[cid].pinned = 1;
	due = usher_vtime_enter(u, due_of(u, p), queue);
	early = joins_early(u, due, queue, false, enq_flags);
	scx_bpf_dsq_insert_vtime(p, USHER_DSQ_CPU + cpu, marked_slice(u, early, false, self), usher_vtime_before(u, due, early),
				 enq_flags);
	if (usher_idle_mode == USHER_IDLE_USHER)
		cut_turn(u, p, &q, due, early, enq_flags);
	/*
	 * A wakeup reschedules an idle CPU by itself. Otherwise, since nobody else can take the task, the CPU is kicked
	 * if it idles, whether or not its idle bit is set: somebody may have claimed it for a task that the kernel put elsewhere.
	 */
	if (enq_flags & SCX_ENQ_WAKEUP)
		return;
	if (usher_idle_mode == USHER_IDLE_USHER && usher_test_and_clear(u, cid))
		count(self, USHER_HOST_KICKED);
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* Publishes the task, then looks for an idle CPU; pairs with usher_idle_enter() in update_idle(). */
static __always_inline void enqueue_shared(struct usher __arena *u, struct task_struct *p, u32 cid, u32 self,
					   u64 enq_flags)
{
	struct usher_query q = { .from = cid, .self = self };
	u32 queue = u->cids[cid].queue, nr, early;
	bool known = allowed_of(u, p, self, &q.allowed, &nr), handed;
	s32 victim = known ? preempted_for(u, p, &q, false, enq_flags) : USHER_NONE_LOWER;
	s32 idle = USHER_NONE_IDLE;
	u64 due, vtime;

	/* The set may be another by now, where CPUs come that are not in the tables. */
	if (victim >= 0 && bpf_cpumask_test_cpu(u->cids[victim].cpu, p->cpus_ptr)) {
		preempt(u, p, victim, enq_flags);
		return;
	}
	count(self, known ? USHER_HOST_SHARED : USHER_HOST_NO_SET);
	if (known && !q.allowed && !(enq_flags & SCX_ENQ_WAKEUP))
		queue = usher_queue_again(u, self, cid, scx_bpf_now());
	due = usher_vtime_enter(u, due_of(u, p), queue);
	handed = hand(u, p, queue, self, enq_flags);
	early = joins_early(u, due, queue, handed, enq_flags);
	vtime = usher_vtime_before(u, due, early);
	if (enq_flags & SCX_ENQ_WAKEUP)
		usher_vtime_slept(u, vtime, queue);
	scx_bpf_dsq_insert_vtime(p, queue, marked_slice(u, early, handed, self), vtime, enq_flags);
	usher_queue_fill(u, queue, !known || q.allowed);
	if (usher_idle_mode != USHER_IDLE_USHER) {
		usher_look_later(u, self, queue, NULL);
		builtin_look(u, p, self);
		return;
	}
	if (known)
		idle = usher_look(u, &q);
	if (idle < 0) {
		q.flags = known ? 0 : USHER_HERE;
		cut_turn(u, p, &q, due, early, enq_flags);
	}
	kick(u, self, idle);
	/* An idle CPU that queues from an interrupt is woken for its later look, unless a claimer wakes it. */
	if (usher_look_later(u, self, queue, q.allowed) && usher_test_and_clear(u, self))
		kick(u, self, self);
	rescue(u, self);
	if (woken_last(p, self, enq_flags))
		usher_pair_woke(u, self, scx_bpf_now());
}

void BPF_STRUCT_OPS(usher_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct usher __arena *u = usher();
	u32 self = cid_of(u, bpf_get_smp_processor_id());
	s32 cpu = scx_bpf_task_cpu(p);
	u32 cid = cid_of(u, cpu);
	bool pinned;

	if (!is_heard(u) || comes_as_sent(u, p, self, cpu, cid)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, u->slice_ns, enq_flags);
		return;
	}
	late_look(u, self);
	if (move_on(u, p, cid, enq_flags))
		return;
	if (usher_host_cpus[self].gives_pid == p->pid && !(enq_flags & SCX_ENQ_WAKEUP)) {
		usher_host_cpus[self].gives_pid = 0;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, u->slice_ns, enq_flags);
		return;
	}
	if (throttle(u, p, self, enq_flags))
		return;
	pinned = p->nr_cpus_allowed == 1 || usher_migration_disabled(p, enq_flags & SCX_ENQ_REENQ);
	/*
	 * A CPU that just comes online takes from no queue, and a task may be allowed on no other. Kernel threads of a CPU do
	 * little, and what they do others wait for.
	 */
	if (!known_cpu(u, cpu) || (pinned && p->flags & PF_KTHREAD && enq_flags & SCX_ENQ_WAKEUP)) {
		count(self, USHER_HOST_LOCAL);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, u->slice_ns, enq_flags);
	} else if (pinned) {
		enqueue_pinned(u, p, cpu, cid, self, enq_flags);
	} else {
		enqueue_shared(u, p, cid, self, enq_flags);
	}
}

/* When the first in the CPU's own queue comes, or 0: nobody waits there, as who did has gone elsewhere or was taken. */
static __always_inline u64 first_pinned(s32 cpu, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];
	u64 first = me->pinned ? first_vtime(USHER_DSQ_CPU + cpu) : 0;

	if (!first)
		me->pinned = 0;
	return first;
}

/* Whether that one comes before who waits in that of several and may run here. */
static __always_inline bool pinned_first(struct usher __arena *u, s32 cpu, u32 cid, u64 own)
{
	return own && usher_pinned_first(u, cid, own, first_here(u->cids[cid].queue, cpu));
}

/* A task from the CPU's own queue, if there may be one. */
static __always_inline bool take_pinned(struct usher __arena *u, s32 cpu, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];

	if (!me->pinned)
		return false;
	if (limiting())
		throttle_waiting(u, USHER_DSQ_CPU + cpu, cid);
	if (scx_bpf_dsq_move_to_local(USHER_DSQ_CPU + cpu, 0))
		return true;
	me->pinned = 0;
	return false;
}

/* A task from a queue of several CPUs. Tasks that may not run here are passed over by the kernel. */
static bool take_shared(struct usher __arena *u, s32 cpu, u32 cid, u32 queue)
{
	bool taken;

	if (limiting())
		throttle_waiting(u, queue, cid);
	taken = queue == u->cids[cid].queue && u->cpus[cid].handed && take_handed(u, cpu, cid, queue);
	if (!taken)
		taken = env_asymmetric(u) && take_fitting(u, cpu, cid, queue);
	if (!taken && !scx_bpf_dsq_move_to_local(queue, 0)) {
		if (!usher_queue_retire(u, queue, cid))
			return false;
		if (!scx_bpf_dsq_move_to_local(queue, 0))
			return false;
	}
	usher_queue_taken(u, cid, queue);
	return true;
}

/* Whether the first of a queue (0: nobody), that of several CPUs or of one, goes before a task that runs here and could go on. */
static bool is_due(struct usher __arena *u, struct task_struct *curr, bool yields, u64 first, u32 queue)
{
	return first && usher_vtime_due(u, curr->scx.dsq_vtime, first, queue, weight_shared(curr), yields);
}

/*
 * At the end of prev's slice, or when it yields: who goes before it, here or in a longer queue elsewhere. By itself, as
 * take_any(), so that what dispatch calls besides has room on the stack.
 */
static __noinline bool take_instead(struct usher __arena *u, s32 cpu, u32 cid, struct task_struct *prev, bool yields)
{
	u32 own = u->cids[cid].queue;
	s32 queue = usher_balance(u, cid);
	u64 first = first_pinned(cpu, cid);
	bool pinned = is_due(u, prev, yields, first, own);

	if (pinned && pinned_first(u, cpu, cid, first) && take_pinned(u, cpu, cid))
		return true;
	if (queue >= 0 && take_shared(u, cpu, cid, queue))
		return true;
	if (is_due(u, prev, yields, first_vtime(own), own) && take_shared(u, cpu, cid, own))
		return true;
	return pinned && take_pinned(u, cpu, cid);
}

/* What waits in a CPU's own queue goes to its local one, from where it runs without dispatch. */
static __noinline void make_local(s32 cpu)
{
	struct task_struct *p;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, USHER_DSQ_CPU + cpu, 0)
		scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
	bpf_rcu_read_unlock();
}

/*
 * This CPU goes idle while tasks wait in its own queue. The kernel asks no CPU to dispatch that is about to leave, before it
 * calls usher_cpu_offline(); and until then it waits for whoever is in an RCU section, one of these tasks maybe. So another CPU
 * fetches them.
 */
static __noinline void call_for_help(struct usher __arena *u, u32 cid)
{
	u32 other;

	for (other = 0; other < u->nr_cids && can_loop; other = env_next(u, other))
		if (other != cid && in_service(u, u->cids[other].cpu))
			break;
	if (other >= u->nr_cids)
		return;
	usher_host_cpus[other].helps = cid + 1;
	scx_bpf_kick_cpu(u->cids[other].cpu, SCX_KICK_PREEMPT);
}

/* At dispatch: another CPU called for help. */
static __always_inline void help(struct usher __arena *u, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];
	u32 helped = me->helps;

	if (!helped)
		return;
	me->helps = 0;
	make_local(u->cids[helped - 1].cpu);
}

/* The queues in the core's order. */
static __noinline bool take_any(struct usher __arena *u, s32 cpu, u32 cid)
{
	struct usher_walk walk = { .cid = cid };
	s32 queue;

	if (pinned_first(u, cpu, cid, first_pinned(cpu, cid)) && take_pinned(u, cpu, cid))
		return true;
	for (;;) {
		queue = usher_walk_next(u, &walk);
		if (queue < 0 || !can_loop)
			break;
		/* Who waits for this CPU comes before who waits for others. */
		if (queue != u->cids[cid].queue && take_pinned(u, cpu, cid))
			return true;
		if (take_shared(u, cpu, cid, queue))
			return true;
	}
	return take_pinned(u, cpu, cid);
}

/* Whether nobody runs on a CPU. With core scheduling the CPU that dispatches for it is another thread of its core. */
static __always_inline bool runs_nobody(s32 cpu)
{
	struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && !rq->curr->pid;
}

/*
 * Nothing to run, and this CPU was idle before: the kernel will not report it again. It has never
 * reported a CPU that was idle already when the scheduler began; the kernel makes every CPU look
 * for work then.
 */
static __always_inline void idle_still(struct usher __arena *u, s32 cpu, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];

	if (!u->cpus[cid].idle) {
		if (runs_nobody(cpu) && usher_idle_enter(u, cid) && usher_test_and_clear(u, cid))
			kick(u, cid, cid);
		return;
	}
	if (!usher_idle_again(u, cid)) {
		if (env_asymmetric(u))
			misfit_call(u, cid);
		return;
	}
	if (me->vain)
		return;
	/*
	 * Work in reach, once more. It may be work that this CPU is not allowed to take, so it is
	 * tried once per idle period; who put it there looks again (usher_late_look()).
	 */
	me->vain = 1;
	if (usher_test_and_clear(u, cid))
		kick(u, cid, cid);
}

/*
 * A task pays for what it ran, which is not what is missing from its slice: the tick ends slices
 * late, and yielding ends them early. How long it ran. The queue's clock goes on to where it began, which is not where it is when it is
 * put back, having just been charged at the end of its slice. By itself, as take_any().
 */
static __noinline u64 charge(struct usher __arena *u, struct task_struct *p, u32 cid, bool sleeps)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];
	u64 ran_ns = p->se.sum_exec_runtime - me->ran_before_ns, now_ns = scx_bpf_now();
	u32 queue = u->cids[cid].queue;
	u64 vtime;

	/* What ran before we attached has no beginning. */
	if (me->ran_before_pid != p->pid)
		return 0;
	me->ran_before_ns += ran_ns;
	if ((sleeps || ran_ns > u->slice_ns / USHER_CLOCK_PART) && usher_clock_behind(u, p->scx.dsq_vtime, queue, now_ns))
		usher_clock_advance(u, p->scx.dsq_vtime, queue, first_elsewhere(u, queue, u->cids[cid].cpu), now_ns);
	vtime = usher_vtime_charge(u, p->scx.dsq_vtime, cid, time_shared(p, ran_ns), p->scx.weight);
	scx_bpf_task_set_dsq_vtime(p, sleeps ? usher_vtime_sleep(u, vtime, queue) : vtime);
	group_took(p, cid, ran_ns);
	bandwidth_ran(p, cid);
	return ran_ns;
}

/* How long a task waited that begins to run on cid: the longest is kept, and its group's. */
static __always_inline void note_wait(struct task_struct *p, u32 cid)
{
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];
	u64 ticks = waited_ticks(p), ns;

	if (!ticks || (!grouping() && ticks <= me->waited_ticks))
		return;
	ns = ticks_ns(ticks);
	group_took(p, cid, ns);
	if (ticks <= me->waited_ticks)
		return;
	me->waited_ticks = ticks;
	me->waited_ns = ns;
}

/* This one and the next are also called by another CPU, which changes something of a task that runs. */
void BPF_STRUCT_OPS(usher_running, struct task_struct *p)
{
	struct usher __arena *u = usher();
	u32 cpu = scx_bpf_task_cpu(p);
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid_of(u, cpu)];
	struct usher_turn turn = { .vtime = due_of(u, p), .at_ns = scx_bpf_now(), .weight = weight_shared(p) };

	/* How early it joined is over, and its slice no longer says so. */
	if (turn.vtime != p->scx.dsq_vtime) {
		scx_bpf_task_set_dsq_vtime(p, turn.vtime);
		scx_bpf_task_set_slice(p, u->slice_ns);
	}
	if (!known_cpu(u, cpu))
		return;
	note_wait(p, cid_of(u, cpu));
	move_forget(u, cid_of(u, cpu));
	me->ran_before_pid = p->pid;
	me->ran_before_ns = p->se.sum_exec_runtime;
	me->began_ns = p->se.sum_exec_runtime;
	me->paid_ns = p->se.sum_exec_runtime;
	me->gives_pid = 0;
	me->sync_pid = 0;
	if (!me->leaving)
		usher_turn_begin(u, cid_of(u, cpu), &turn);
	if (preempting() && !me->leaving)
		usher_preempt_runs(u, cid_of(u, cpu), class_of(u, p, 0));
	throttle_running(p, cpu, cid_of(u, cpu));
}

/*
 * A higher class takes this CPU from us, or it was idle. No task of ours may preempt that, and those in its local queue have to go elsewhere,
 * which the kernel can do from here since 6.19; before, see usher_cpu_release(). So has who ran here and stays runnable: it is put there when this
 * is over, and before the kernel looks.
 *
 * Tolerated: somebody of a higher class who comes between the end of our task and the kernel's choice of the next one is not seen. An urgent
 * task may then be sent to this CPU in vain, and waits until one of ours next runs here, or for the kernel's deadline server.
 */
static __noinline void give_up(struct usher __arena *u, s32 cpu, u32 cid, bool displaces)
{
	if (preempting())
		usher_cpupri_set(u, cid, USHER_NO_LEVEL);
	/* The kernel does it for the CPU that asks: who changes something of a task that runs elsewhere leaves it. */
	if (cpu == bpf_get_smp_processor_id() && (displaces || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0))
		scx_bpf_reenqueue_local_from_anywhere();
}

void BPF_STRUCT_OPS(usher_stopping, struct task_struct *p, bool runnable)
{
	struct usher __arena *u = usher();
	u32 cpu = scx_bpf_task_cpu(p), cid;

	if (!known_cpu(u, cpu))
		return;
	cid = cid_of(u, cpu);
	/* The kernel says that it is not if something of it changes, as its nice value, and it goes on at once. */
	runnable |= !p->__state;
	charge(u, p, cid, !runnable);
	throttle_stopping(p, cid, runnable);
	move_stop(u, p, cid, runnable);
	burst_end(u, p, p->se.sum_exec_runtime - usher_host_cpus[cid].began_ns, runnable);
	if (!runnable && usher_pair_asked(u, cid))
		pair_sleeps(u, p, cid);
	if (outranked(cpu))
		give_up(u, cpu, cid, runnable && p->scx.slice);
}

void BPF_STRUCT_OPS(usher_dispatch, s32 cpu, struct task_struct *prev)
{
	struct usher __arena *u = usher();
	u32 cid = cid_of(u, cpu);
	bool goes_on, yields = false, taken;

	if (!known_cpu(u, cpu))
		return;
	late_look(u, cid);
	help(u, cid);
	if (limiting() && usher_groups->called)
		unthrottle(u, cid);
	misfit_answer(u, prev, cid);
	goes_on = prev && prev->scx.flags & SCX_TASK_QUEUED && !moves(u, prev, cid);
	if (goes_on) {
		/* It pays for the slice it had. Who yields ends it early, and who is to be throttled does not go on. */
		yields = charge(u, prev, cid, false) < u->slice_ns;
		goes_on = !throttled_until(prev);
	}
	taken = goes_on ? take_instead(u, cpu, cid, prev, yields) : take_any(u, cpu, cid);
	if (usher_idle_mode == USHER_IDLE_USHER)
		rescue(u, cid);
	if (taken)
		return;
	if (goes_on) {
		/* Nobody comes before it. */
		scx_bpf_task_set_slice(prev, u->slice_ns);
		count(cid, USHER_HOST_KEPT);
		if (limiting())
			limited_kept(prev);
		return;
	}
	if (usher_idle_mode == USHER_IDLE_USHER && in_service(u, cpu))
		idle_still(u, cpu, cid);
}

void BPF_STRUCT_OPS(usher_update_idle, s32 cpu, bool idle)
{
	struct usher __arena *u = usher();
	u32 cid = cid_of(u, cpu);

	if ((idle && left_behind(cpu)) || !in_service(u, cpu))
		return;
	if (idle && usher_host_cpus[cid].pinned && scx_bpf_dsq_nr_queued(USHER_DSQ_CPU + cpu) > 0)
		call_for_help(u, cid);
	if (usher_idle_mode != USHER_IDLE_USHER) {
		builtin_update_idle(u, cpu, cid, idle);
		return;
	}
	if (!idle) {
		if (outranked(cpu))
			give_up(u, cpu, cid, false);
		usher_host_cpus[cid].vain = 0;
		usher_idle_exit(u, cid);
		rescue(u, cid);
		return;
	}
	if (!usher_idle_enter(u, cid)) {
		if (env_asymmetric(u))
			misfit_call(u, cid);
		return;
	}
	/* Work came between the last look and the idle bit: back, unless somebody claims us first. */
	if (usher_test_and_clear(u, cid))
		kick(u, cid, cid);
}

void BPF_STRUCT_OPS(usher_tick, struct task_struct *p)
{
	struct usher __arena *u = usher();
	s32 cpu = scx_bpf_task_cpu(p);
	u32 cid = cid_of(u, cpu);
	bool leaves;

	if (!known_cpu(u, cpu))
		return;
	late_look(u, cid);
	leaves = limiting() && throttle_tick(p, cid);
	if (usher_idle_mode != USHER_IDLE_USHER)
		return;
	class_goes_on(u, p, cid);
	if (running_move(u) && !leaves)
		move_tick(u, p, cid);
	if (u->soon_ns)
		kick(u, cid, usher_queue_overdue(u, cid, scx_bpf_now()));
	rescue(u, cid);
}

/*
 * A higher class took the CPU: what waits in its local queue goes back to where others find it. The loader leaves this out since 6.19, where
 * give_up() can do that and the kernel warns of schedulers that have this callback.
 */
void BPF_STRUCT_OPS(usher_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	scx_bpf_reenqueue_local();
}

void BPF_STRUCT_OPS(usher_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	set_remember(usher(), p);
}

s32 BPF_STRUCT_OPS(usher_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	set_remember(usher(), p);
	load_begin(usher(), p);
	if (args->fork)
		hints_inherit(usher(), p);
	return 0;
}

void BPF_STRUCT_OPS(usher_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	hints_gone(usher(), p);
}

/* A virtual time or slice of another scheduler means nothing here: 0 is the time of a task that never ran. */
void BPF_STRUCT_OPS(usher_enable, struct task_struct *p)
{
	scx_bpf_task_set_slice(p, usher()->slice_ns);
	scx_bpf_task_set_dsq_vtime(p, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(usher_init)
{
	struct usher __arena *u = usher();
	s32 error = throttle_init();
	u32 i;

	if (error) {
		scx_bpf_error("cannot prepare for groups with a limit: %d", error);
		return error;
	}
	usher_began_tick = bpf_jiffies64();
	usher_began_ns = bpf_ktime_get_ns();
	for (i = 0; i < u->nr_queues && can_loop; i = env_next(u, i)) {
		error = scx_bpf_create_dsq(i, u->nodes[u->queues[i].node].id);
		if (error) {
			scx_bpf_error("cannot create queue %u: %d", i, error);
			return error;
		}
	}
	for (i = 0; i < u->nr_cids && can_loop; i = env_next(u, i)) {
		error = scx_bpf_create_dsq(USHER_DSQ_CPU + u->cids[i].cpu, u->nodes[u->cids[i].node].id);
		if (error) {
			scx_bpf_error("cannot create the queue of CPU %u: %d", u->cids[i].cpu, error);
			return error;
		}
		usher_host_cpus[i].capacity = kernels_capacity(u->cids[i].cpu);
	}
	return 0;
}

void BPF_STRUCT_OPS(usher_exit, struct scx_exit_info *ei)
{
	s32 kind = ei->kind;

	UEI_RECORD(uei, ei);
	bpf_ringbuf_output(&usher_news, &kind, sizeof(kind), BPF_RB_FORCE_WAKEUP);
}

/*
 * A CPU comes or goes. Without these two callbacks the kernel ends the scheduler right here, and from Linux
 * 7.0 nobody takes from a queue until it has: an interrupt that is lost on the CPU that changes
 * makes the whole machine stand still. So the tables stay as they are, and the loader, who sees the last of many
 * changes, starts anew. Called on that CPU, which is therefore not idle.
 */
static void cpu_changes(s32 cpu, bool leaving)
{
	struct usher __arena *u = usher();
	s32 kind = SCX_EXIT_NONE;

	if (known_cpu(u, cpu))
		usher_host_cpus[cid_of(u, cpu)].leaving = leaving;
	if (preempting() && known_cpu(u, cpu) && leaving)
		usher_cpupri_set(u, cid_of(u, cpu), USHER_NO_LEVEL);
	if (limiting())
		usher_groups->called = 1; /* it waits for those that are throttled there */
	bpf_ringbuf_output(&usher_news, &kind, sizeof(kind), BPF_RB_FORCE_WAKEUP);
}

void BPF_STRUCT_OPS(usher_cpu_online, s32 cpu)
{
	cpu_changes(cpu, false);
}

/* From now on the kernel does not ask this CPU to dispatch. Tasks that may run nowhere else it would wait for. */
void BPF_STRUCT_OPS(usher_cpu_offline, s32 cpu)
{
	struct usher __arena *u = usher();

	cpu_changes(cpu, true);
	if (!known_cpu(u, cpu))
		return;
	make_local(cpu);
	kick(u, cid_of(u, cpu), usher_queue_deserted(u, cid_of(u, cpu)));
}

/*
 * For the dump that the kernel makes when it ends a scheduler, or when SysRq-D asks. Of idle CPUs only those where something
 * is odd.
 */
void BPF_STRUCT_OPS(usher_dump_cpu, struct scx_dump_ctx *dump, s32 cpu, bool idle)
{
	struct usher __arena *u = usher();
	u32 cid = cid_of(u, cpu);
	struct usher_host_cpu __arena *me = &usher_host_cpus[cid];
	struct usher_cid __arena *c = &u->cids[cid];
	bool in_map;

	if (!known_cpu(u, cpu)) {
		scx_bpf_dump("usher: not in the tables");
		return;
	}
	in_map = usher_cid_idle(u, cid);
	if (idle && in_map && !me->pinned && !me->leaving)
		return;
	scx_bpf_dump("usher: idle=%d in_idle_map=%d leaving=%d own_queue=%d/%d queue=%d queued=%d",
		     u->cpus[cid].idle, in_map, me->leaving, me->pinned,
		     scx_bpf_dsq_nr_queued(USHER_DSQ_CPU + cpu), c->queue, scx_bpf_dsq_nr_queued(c->queue));
}

static __always_inline u32 level_between(struct usher __arena *u, u32 a, u32 b)
{
	struct usher_cid __arena *from = &u->cids[a], *to = &u->cids[b];

	if (from->node != to->node)
		return USHER_LEVEL_REMOTE;
	if (from->llc != to->llc)
		return USHER_LEVEL_NODE;
	if (from->shard != to->shard || from->core != to->core)
		return USHER_LEVEL_LLC;
	return USHER_LEVEL_CORE;
}

/* Every move of a task between CPUs, before it happens. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(usher_migrate, struct task_struct *p, int dest_cpu)
{
	struct usher __arena *u = usher();
	struct usher_hinted *h;
	u32 self, to;

	if (!u)
		return 0;
	self = cid_of(u, bpf_get_smp_processor_id());
	to = cid_of(u, dest_cpu);
	usher_host_cpus[self].migrations[level_between(u, cid_of(u, p->thread_info.cpu), to)]++;
	h = hinted(p);
	if (h && h->home)
		settle(u, h, u->cids[to].llc);
	return 0;
}

SCX_OPS_DEFINE(usher_ops,
	       .select_cpu = (void *)usher_select_cpu,
	       .enqueue = (void *)usher_enqueue,
	       .dispatch = (void *)usher_dispatch,
	       .update_idle = (void *)usher_update_idle,
	       .running = (void *)usher_running,
	       .stopping = (void *)usher_stopping,
	       .tick = (void *)usher_tick,
	       .cpu_release = (void *)usher_cpu_release,
	       .set_cpumask = (void *)usher_set_cpumask,
	       .cpu_online = (void *)usher_cpu_online,
	       .cpu_offline = (void *)usher_cpu_offline,
	       .dump_cpu = (void *)usher_dump_cpu,
	       .init_task = (void *)usher_init_task,
	       .exit_task = (void *)usher_exit_task,
	       .enable = (void *)usher_enable,
	       .init = (void *)usher_init,
	       .exit = (void *)usher_exit,
	       .name = "usher");
