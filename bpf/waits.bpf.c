/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who waits for a CPU, for how long, behind whom, and beside which idle CPUs, under any scheduler.
 *
 * A wait begins when a task is woken (the tracepoint sched_waking, before a CPU is chosen), when it
 * is born, or when it is switched away from though it could go on; it ends when a CPU switches to
 * the task. Each CPU keeps in a line of its own since when it idles. Nobody else reads that line
 * but who has waited for long: it looks which CPUs idled all the while. So short waits, of which
 * there are many, cost no line of another CPU.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "waits.h"

char _license[] SEC("license") = "GPL";

/* Set by the loader before load. */
const volatile u32 waits_nr_cpus = 1;
const volatile u32 waits_tgid; /* of this process alone; 0: of all */
const volatile u64 waits_slow_ns = 1000000; /* from here on it is looked who idled meanwhile */
const volatile u16 waits_llc[WAITS_MAX_CPUS];
const volatile u16 waits_node[WAITS_MAX_CPUS];

/* What the loader has no use for any more: a wait must be longer to be told. Of those sent somewhere, and those stopped. */
u64 waits_floor_ns[2];
u32 waits_ends;	    /* the observation does */
u64 waits_told_not; /* slow waits for which there was no room in the ring */

struct waits_cpu {
	u64 idle_since;    /* 0: it does not, or it is not known */
	u32 awaits;	   /* somebody was sent here while it idled */
	u32 pid;	   /* who runs, or is on the way */
	char comm[WAITS_COMM];
} __attribute__((aligned(64)));

static struct waits_cpu waits_cpus[WAITS_MAX_CPUS];

/* A wait that has begun. */
struct waiting {
	u64 since; /* 0: none */
	u32 kind;  /* enum waits_kind */
	u32 sent_to;
	struct waits_task waker;
	struct waits_task behind;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct waiting);
} waits_waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct waits_sums);
} waits_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} waits_slow SEC(".maps");

static __always_inline struct waits_cpu *cpu_slot(u32 cpu)
{
	return &waits_cpus[cpu & (WAITS_MAX_CPUS - 1)];
}

static __always_inline struct waits_sums *sums(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&waits_sums, &key);
}

/* What has begun for a task, made if there is nothing yet; NULL is counted. */
static __always_inline struct waiting *waiting(struct task_struct *p)
{
	struct waiting *w = bpf_task_storage_get(&waits_waiting, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct waits_sums *s;

	if (!w && (s = sums()))
		s->missed++;
	return w;
}

static __always_inline void name_task(struct waits_task *to, const struct task_struct *p)
{
	to->pid = p->pid;
	__builtin_memcpy(to->comm, p->comm, WAITS_COMM);
}

/* Woken or born, and queued for this CPU by who holds its lock: nobody has run the task yet. */
static __always_inline void sent(struct waiting *w, const struct task_struct *p, u32 cpu)
{
	struct waits_cpu *c = cpu_slot(cpu);

	w->sent_to = cpu;
	if (c->idle_since && !__sync_lock_test_and_set(&c->awaits, 1)) {
		w->kind = WAITS_TO_IDLE;
		w->behind.pid = 0;
		c->pid = p->pid;
		__builtin_memcpy(c->comm, p->comm, WAITS_COMM);
		return;
	}
	w->kind = WAITS_BEHIND;
	w->behind.pid = c->pid;
	__builtin_memcpy(w->behind.comm, c->comm, WAITS_COMM);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waits_waking, struct task_struct *p)
{
	struct waiting *w = waiting(p);

	/* Who was stopped on its way to sleep waits already. */
	if (!w || w->since)
		return 0;
	w->since = bpf_ktime_get_ns();
	w->kind = WAITS_UNSENT;
	name_task(&w->waker, bpf_get_current_task_btf());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(waits_wakeup, struct task_struct *p)
{
	struct waiting *w = bpf_task_storage_get(&waits_waiting, p, 0, 0);

	if (!w || w->kind != WAITS_UNSENT)
		return 0;
	if (BPF_CORE_READ(p, on_cpu)) { /* an int, or since 7.1 a byte */
		/* It had not left its CPU, and goes on. */
		w->since = 0;
		w->kind = WAITS_NONE;
		return 0;
	}
	sent(w, p, p->thread_info.cpu);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(waits_born, struct task_struct *p)
{
	struct waiting *w = waiting(p);

	if (!w)
		return 0;
	w->since = bpf_ktime_get_ns();
	name_task(&w->waker, bpf_get_current_task_btf());
	sent(w, p, p->thread_info.cpu);
	return 0;
}

/* Which step of the histogram a wait belongs to: WAITS_PARTS for each doubling from WAITS_LEAST_NS on. */
static __always_inline u32 step_of(u64 ns)
{
	u64 units = ns / WAITS_LEAST_NS;
	u32 doublings = 0, part;
	int i;

	if (!units)
		return 0;
	for (i = 5; i >= 0; i--) {
		if (units >> doublings >> (1 << i))
			doublings += 1 << i;
	}
	part = (ns * WAITS_PARTS / WAITS_LEAST_NS >> doublings) & (WAITS_PARTS - 1);
	part += 1 + doublings * WAITS_PARTS;
	return part < WAITS_STEPS ? part : WAITS_STEPS - 1;
}

/* CPUs that a task might have run on and that idled all the while since then, by how near they are to this one. */
static __always_inline void idle_since(u32 *near, struct task_struct *p, u32 cpu, u64 since)
{
	u32 llc = waits_llc[cpu & (WAITS_MAX_CPUS - 1)], node = waits_node[cpu & (WAITS_MAX_CPUS - 1)];
	int i;

	__builtin_memset(near, 0, sizeof(u32) * WAITS_NEAR);
	bpf_for(i, 0, waits_nr_cpus) {
		struct waits_cpu *c = cpu_slot(i);
		u64 idle = c->idle_since;
		u32 at = i & (WAITS_MAX_CPUS - 1);

		if (!idle || idle > since || c->awaits || !bpf_cpumask_test_cpu(i, p->cpus_ptr))
			continue;
		if (waits_llc[at] == llc)
			near[WAITS_IN_LLC]++;
		if (waits_node[at] == node)
			near[WAITS_IN_NODE]++;
		near[WAITS_ANYWHERE]++;
	}
}

/* Puts a slow wait into the ring, with who idled all the while. */
static __always_inline void tell(const u32 *near, struct waiting *w, struct task_struct *p, u32 got, u64 ns)
{
	struct waits_slow *slow = bpf_ringbuf_reserve(&waits_slow, sizeof(*slow), 0);

	if (!slow) {
		__sync_fetch_and_add(&waits_told_not, 1);
		return;
	}
	slow->began_ns = w->since;
	slow->wait_ns = ns;
	slow->kind = w->kind;
	slow->sent_to = w->sent_to;
	slow->got = got;
	__builtin_memcpy(slow->near, near, sizeof(slow->near));
	name_task(&slow->task, p);
	slow->waker = w->waker;
	slow->behind = w->behind;
	bpf_ringbuf_submit(slow, 0);
}

/* A CPU switches to a task that has waited. */
static __always_inline void over(struct waiting *w, struct task_struct *p, u32 cpu, u64 now)
{
	u32 kind = w->kind, i;
	u64 ns = now - w->since;
	struct waits_sums *s = sums();
	struct waits_sum *sum;

	if (kind == WAITS_TO_IDLE && cpu != w->sent_to)
		cpu_slot(w->sent_to)->awaits = 0; /* nobody comes */
	if (!s || kind >= WAITS_KINDS || (waits_tgid && p->tgid != waits_tgid))
		return;
	sum = &s->kinds[kind];
	sum->count++;
	sum->total_ns += ns;
	if (ns > sum->max_ns)
		sum->max_ns = ns;
	sum->steps[step_of(ns)]++;
	if (ns < waits_slow_ns)
		return;
	idle_since(s->near, p, w->sent_to, w->since);
	for (i = 0; i < WAITS_NEAR; i++) {
		if (s->near[i])
			sum->beside_ns[i] += ns;
	}
	if (ns <= waits_floor_ns[kind == WAITS_STOPPED])
		return;
	tell(s->near, w, p, cpu, ns);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(waits_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	struct waits_cpu *c = cpu_slot(cpu);
	struct waiting *w;

	if (prev->pid && (preempt || !prev_state)) {
		w = waiting(prev);
		if (w && !w->since) {
			w->since = now;
			w->kind = WAITS_STOPPED;
			w->sent_to = cpu;
			name_task(&w->behind, next);
		}
	}
	c->idle_since = next->pid ? 0 : now;
	c->awaits = 0;
	c->pid = next->pid;
	__builtin_memcpy(c->comm, next->comm, WAITS_COMM);
	if (!next->pid)
		return 0;
	w = bpf_task_storage_get(&waits_waiting, next, 0, 0);
	if (w && w->since) {
		over(w, next, cpu, now);
		w->since = 0;
		w->kind = WAITS_NONE;
	}
	return 0;
}

/* The same scratch for who looks at all tasks: it may be stopped, and its CPU's be needed meanwhile. */
static u32 waits_all_near[WAITS_NEAR];

/* Who waits already when the observation begins, counts as stopped then. */
static __always_inline void begins_waiting(struct task_struct *p)
{
	struct waiting *w;

	if (BPF_CORE_READ(p, __state) || BPF_CORE_READ(p, on_cpu) || !BPF_CORE_READ(p, on_rq))
		return;
	w = waiting(p);
	if (!w || w->since)
		return;
	w->kind = WAITS_STOPPED;
	w->sent_to = p->thread_info.cpu;
	w->behind.pid = cpu_slot(w->sent_to)->pid;
	__builtin_memcpy(w->behind.comm, cpu_slot(w->sent_to)->comm, WAITS_COMM);
	w->since = bpf_ktime_get_ns();
	if (BPF_CORE_READ(p, on_cpu))
		w->since = 0; /* it has just got its turn */
}

/* Who waits still at the end is told, though its wait is not over. */
static __always_inline void waits_on(struct task_struct *p)
{
	struct waiting *w = bpf_task_storage_get(&waits_waiting, p, 0, 0);
	u64 ns;

	if (!w || !w->since || w->kind >= WAITS_KINDS || (waits_tgid && p->tgid != waits_tgid))
		return;
	ns = bpf_ktime_get_ns() - w->since;
	if (ns < waits_slow_ns || ns <= waits_floor_ns[w->kind == WAITS_STOPPED])
		return;
	idle_since(waits_all_near, p, w->sent_to, w->since);
	tell(waits_all_near, w, p, WAITS_NOT_YET, ns);
}

/* The loader reads this twice: at the beginning and at the end. */
SEC("iter/task")
int waits_all(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (!p || !p->pid)
		return 0;
	if (waits_ends)
		waits_on(p);
	else
		begins_waiting(p);
	return 0;
}
