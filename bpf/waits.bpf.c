/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who waits for a CPU, for how long, behind whom, and beside which idle CPUs, under any scheduler.
 *
 * A wait begins when a task is woken (the tracepoint sched_waking, before a CPU is chosen), when it
 * is born, or when it is switched away from though it could go on; it ends when a CPU switches to
 * the task. Each CPU keeps in a line of its own since when it idles, written when that changes, and
 * read by who sends it a task and by who has waited for long: that one looks which CPUs idled all
 * the while. So a short wait costs two lines of the CPU that the task is sent to, and a long one lines
 * that busy CPUs leave alone.
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
u64 waits_told_not; /* slow waits for which there was no room in the ring */
u32 waits_phase;    /* enum waits_phases: programs are attached one by one, and all begin and end at once */

struct waits_cpu {
	u64 idle_since; /* 0: it does not, or it is not known */
	u32 awaits;	/* somebody was sent here while it idled */
} __attribute__((aligned(64)));

struct waits_cpu waits_cpus[WAITS_MAX_CPUS];

/* Who runs on a CPU, or is on the way there. All 0: nobody, or it has not switched yet. */
struct waits_runs {
	struct waits_task task;
	u32 ours; /* 1 + the pid that the CPU itself has switched to last; 0: it has not */
} __attribute__((aligned(32)));

struct waits_runs waits_runs[WAITS_MAX_CPUS];

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

static __always_inline struct waits_task *runs_on(u32 cpu)
{
	return &waits_runs[cpu & (WAITS_MAX_CPUS - 1)].task;
}

static __always_inline bool observing(void)
{
	return waits_phase == WAITS_OBSERVING;
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
	w->behind = *runs_on(cpu);
	w->kind = WAITS_BEHIND;
	if (c->idle_since && !c->awaits && !__sync_lock_test_and_set(&c->awaits, 1)) {
		w->kind = WAITS_TO_IDLE;
		w->behind.pid = 0;
		name_task(runs_on(cpu), p);
	}
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waits_waking, struct task_struct *p)
{
	struct waiting *w = observing() ? waiting(p) : NULL;

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
	struct waiting *w = observing() ? waiting(p) : NULL;

	if (!w)
		return 0;
	w->since = bpf_ktime_get_ns();
	name_task(&w->waker, bpf_get_current_task_btf());
	sent(w, p, p->thread_info.cpu);
	return 0;
}

/* Which step of the histogram a wait belongs to: see waits.h. */
static __always_inline u32 step_of(u64 ns)
{
	u64 unit = WAITS_LEAST_NS / 10, tenths;
	u32 decade;

	if (ns < WAITS_LEAST_NS)
		return 0;
	for (decade = 0; decade < WAITS_DECADES; decade++, unit *= 10) {
		tenths = ns / unit;
		if (tenths < 100)
			return 1 + decade * WAITS_PARTS + (tenths < 10 ? 0 : tenths - 10);
	}
	return WAITS_STEPS - 1;
}

/* CPUs that a task might have run on and that idled all the while since then, by how near they are to where it was sent. */
static __always_inline void idle_since(u32 *near, struct task_struct *p, u32 sent_to, u64 since)
{
	u32 llc = waits_llc[sent_to & (WAITS_MAX_CPUS - 1)], node = waits_node[sent_to & (WAITS_MAX_CPUS - 1)];
	int i;

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
static __always_inline void tell(const u32 *near, struct waiting *w, u64 since, struct task_struct *p, u32 got, u64 ns)
{
	struct waits_slow *slow = bpf_ringbuf_reserve(&waits_slow, sizeof(*slow), 0);

	if (!slow) {
		__sync_fetch_and_add(&waits_told_not, 1);
		return;
	}
	slow->began_ns = since;
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

/*
 * A CPU switches to a task that has waited. The CPU itself may have idled all the while, and then
 * taken a task that was sent elsewhere; it does not idle any more.
 */
static __always_inline void over(struct waiting *w, struct task_struct *p, u32 cpu, u64 now, bool idled)
{
	u32 kind = w->kind, sent_to = w->sent_to, step, here, there, i;
	u64 ns = now - w->since;
	struct waits_sums *s = sums();
	struct waits_sum *sum;

	if (kind == WAITS_TO_IDLE && cpu != sent_to)
		cpu_slot(sent_to)->awaits = 0; /* nobody comes */
	if (!s || kind >= WAITS_KINDS || (waits_tgid && p->tgid != waits_tgid))
		return;
	sum = &s->kinds[kind];
	sum->total_ns += ns;
	if (ns > sum->max_ns)
		sum->max_ns = ns;
	step = step_of(ns);
	barrier_var(step); /* the compiler knows how far it goes, the verifier does not */
	if (step < WAITS_STEPS)
		sum->steps[step]++;
	if (ns < waits_slow_ns)
		return;
	__builtin_memset(s->near, 0, sizeof(s->near));
	if (idled && cpu != sent_to) {
		here = cpu & (WAITS_MAX_CPUS - 1);
		there = sent_to & (WAITS_MAX_CPUS - 1);
		s->near[WAITS_IN_LLC] = waits_llc[here] == waits_llc[there];
		s->near[WAITS_IN_NODE] = waits_node[here] == waits_node[there];
		s->near[WAITS_ANYWHERE] = 1;
	}
	idle_since(s->near, p, sent_to, w->since);
	for (i = 0; i < WAITS_NEAR; i++) {
		if (s->near[i])
			sum->beside_ns[i] += ns;
	}
	if (ns <= waits_floor_ns[kind >= WAITS_STOPPED])
		return;
	tell(s->near, w, w->since, p, cpu, ns);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(waits_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns(), idle;
	struct waits_cpu *c = cpu_slot(cpu);
	struct waits_runs *r;
	struct waits_sums *s;
	struct waiting *w;
	bool awaited;

	if (!observing())
		return 0;
	r = &waits_runs[cpu & (WAITS_MAX_CPUS - 1)];
	w = bpf_task_storage_get(&waits_waiting, prev, 0, 0);
	if (w && w->since && w->kind != WAITS_UNSENT) {
		/* It has run, and nobody has told. (Who is being woken on its way to sleep waits, though nobody has sent it yet.) */
		w->since = 0;
		w->kind = WAITS_NONE;
	}
	if (r->ours && r->ours != 1 + prev->pid) {
		s = sums();
		if (s)
			s->lost++;
	}
	r->ours = 1 + next->pid;
	/* Its state, not the argument, which on some kernels is what it was before a signal kept the task from sleeping. */
	if (prev->pid && (preempt || !BPF_CORE_READ(prev, __state))) {
		w = waiting(prev);
		if (w && !w->since) {
			w->since = now;
			w->kind = next->pid ? WAITS_STOPPED : WAITS_HELD;
			w->sent_to = cpu;
			name_task(&w->behind, next);
		}
	}
	idle = c->idle_since;
	awaited = c->awaits;
	if (!next->pid)
		c->idle_since = now;
	else if (idle)
		c->idle_since = 0;
	if (awaited)
		c->awaits = 0;
	name_task(&r->task, next);
	if (!next->pid)
		return 0;
	w = bpf_task_storage_get(&waits_waiting, next, 0, 0);
	if (w && w->since) {
		over(w, next, cpu, now, idle && idle <= w->since && !awaited);
		w->since = 0;
		w->kind = WAITS_NONE;
	}
	return 0;
}

/* The same scratch for who looks at all tasks: it may be stopped, and its CPU's be needed meanwhile. */
static u32 waits_all_near[WAITS_NEAR];

/* Whether a task is in a queue, as far as can be told from outside its lock. */
static __always_inline bool queued(struct task_struct *p)
{
	return !BPF_CORE_READ(p, __state) && !BPF_CORE_READ(p, on_cpu) && BPF_CORE_READ(p, on_rq);
}

/* Who waits already when the observation begins, counts as stopped then; and who runs, on a CPU that has not switched yet. */
static __always_inline void begins(struct task_struct *p)
{
	u32 cpu = p->thread_info.cpu;
	struct waits_runs *r = &waits_runs[cpu & (WAITS_MAX_CPUS - 1)];
	struct waiting *w;

	if (BPF_CORE_READ(p, on_cpu) && !r->ours)
		name_task(&r->task, p);
	if (!queued(p))
		return;
	w = waiting(p);
	if (!w || w->since)
		return;
	w->kind = WAITS_STOPPED;
	w->sent_to = cpu;
	w->behind = r->task;
	w->since = bpf_ktime_get_ns();
	if (!queued(p))
		w->since = 0; /* it has just had its turn */
}

/* Who waits still at the end is told, though its wait is not over. */
static __always_inline void waits_on(struct task_struct *p)
{
	struct waiting *w = bpf_task_storage_get(&waits_waiting, p, 0, 0);
	u64 since, ns;
	u32 kind;

	if (!w || !queued(p) || (waits_tgid && p->tgid != waits_tgid))
		return;
	since = *(volatile u64 *)&w->since;
	kind = *(volatile u32 *)&w->kind;
	if (!since || kind >= WAITS_KINDS)
		return;
	ns = bpf_ktime_get_ns() - since;
	if (ns < waits_slow_ns || ns <= waits_floor_ns[kind >= WAITS_STOPPED])
		return;
	__builtin_memset(waits_all_near, 0, sizeof(waits_all_near));
	idle_since(waits_all_near, p, w->sent_to, since);
	tell(waits_all_near, w, since, p, WAITS_NOT_YET, ns);
}

/* The loader reads this twice: at the beginning and at the end. */
SEC("iter/task")
int waits_all(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (!p || !p->pid)
		return 0;
	if (waits_phase == WAITS_ENDED)
		waits_on(p);
	else
		begins(p);
	return 0;
}
