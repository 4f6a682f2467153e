/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The allowed CPUs of restricted tasks, as sets of cids.
 *
 * A task that may run everywhere, or on one CPU only, has none. For the others the kernel's mask is
 * translated whenever it changes and kept in the task's storage. The kernel calls ops.set_cpumask()
 * under the task's pi_lock and its runqueue's lock, select_cpu under the first and enqueue under
 * the second: a set is never read while it is written. For a decision it is copied to a place in
 * the arena that belongs to the deciding CPU, since the core reads sets where all its memory is.
 */
#ifndef USHER_SETS_H
#define USHER_SETS_H

struct usher_task {
	struct usher_set allowed;
	u32 nr_allowed; /* cids in it; all of them: the task is not restricted after all */
	u32 pool;	/* the same for all tasks that may run on the same CPUs; never 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usher_task);
} usher_tasks SEC(".maps");

/* Masks right before the use, where the compiler may not undo it. */
static __always_inline u32 in_bounds(u32 word)
{
	asm volatile("%0 &= %1" : "+r"(word) : "i"(USHER_MAX_WORDS - 1));
	return word;
}

static __always_inline bool set_needed(const struct task_struct *p)
{
	return p->nr_cpus_allowed > 1 && p->nr_cpus_allowed < usher_nr_possible;
}

/* Translates 64 CPUs of a mask, from first on. Returns how many cids that gave. */
static u32 set_add_word(struct usher __arena *u, struct usher_set *set, u64 bits, u32 first)
{
	u32 n = 0;

	while (bits && can_loop) {
		u32 cpu = first + env_lowest(bits);
		s32 cid = cpu < u->nr_cpu_ids ? u->cid_of_cpu[cpu] : -1;

		bits &= bits - 1;
		if (cid < 0)
			continue;
		set->word[in_bounds(cid / 64)] |= 1ULL << (cid % 64);
		n = env_next(u, n);
	}
	return n;
}

/* Keeps the set of a task's allowed CPUs, if it needs one. */
static void set_remember(struct usher __arena *u, struct task_struct *p)
{
	struct usher_task *t;
	const u64 *mask;
	u64 hash = 0;
	u32 w, n = 0;

	if (!set_needed(p))
		return;
	t = bpf_task_storage_get(&usher_tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return; /* no memory: counted at each use */
	mask = (const u64 *)p->cpus_ptr;
	__builtin_memset(&t->allowed, 0, sizeof(t->allowed));
	for (w = 0; w * 64 < u->nr_cpu_ids && can_loop; w = env_next(u, w)) {
		u64 bits = 0;

		if (bpf_probe_read_kernel(&bits, sizeof(bits), mask + w))
			break;
		n += set_add_word(u, &t->allowed, bits, w * 64);
		hash = (hash ^ bits) * 0x9e3779b97f4a7c15ULL; /* odd: no bit gets lost */
	}
	t->nr_allowed = n;
	t->pool = hash >> 32 | 1;
}

/* Copies the set of a restricted task for CPU self. Returns how many cids it has; 0: nothing is known. */
static __noinline u32 set_fetch(struct usher __arena *u, struct task_struct *p, u32 self)
{
	struct usher_set __arena *set = &usher_host_cpus[self].allowed;
	struct usher_task *t = bpf_task_storage_get(&usher_tasks, p, 0, 0);
	u32 w;

	if (!t)
		return 0;
	for (w = 0; w * 64 < u->nr_cids && can_loop; w = env_next(u, w))
		set->word[w] = t->allowed.word[in_bounds(w)];
	return t->nr_allowed;
}

/* What the core is to know of a task's allowed CPUs. False: nothing is known, leave the task where it is. */
static __always_inline bool allowed_of(struct usher __arena *u, struct task_struct *p, u32 self,
				       const struct usher_set __arena **allowed, u32 *nr_allowed)
{
	*allowed = NULL;
	*nr_allowed = u->nr_cids;
	if (!set_needed(p))
		return true;
	*nr_allowed = set_fetch(u, p, self);
	if (*nr_allowed < u->nr_cids)
		*allowed = &usher_host_cpus[self].allowed;
	return *nr_allowed;
}

#endif
