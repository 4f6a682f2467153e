/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rules: hints for programs that one cannot change. The loader reads them from a file
 * (crates/scx_usher/src/rules.rs) and puts them into a table here; the first that matches a task's
 * name, control group and user gives the task its hints.
 *
 * Looked at when the scheduler begins, for all tasks there are (usher_survey); when a task is born,
 * executes a program or changes its name. A task that changed its user or its control group is seen
 * with its next exec or child. Where no rule matches any more, hints from one end. What a task asked
 * for itself stays, and so does what it inherited from one that asked. Threads of the kernel have no
 * hints.
 *
 * A control group is known by its id, which it gets when it is made: usher_rule_group() sees that
 * happen, so that a rule holds for a service that is started later, or again.
 */
#ifndef USHER_RULE_BPF_H
#define USHER_RULE_BPF_H

#define USHER_MAX_RULES 64
#define USHER_RULE_PATH 256

enum usher_rule_parts {
	USHER_RULE_COMM = 1,
	USHER_RULE_CGROUP = 2,
	USHER_RULE_USER = 4,
};

struct usher_comm {
	u64 word[2];
};

struct usher_rule {
	struct usher_comm comm, comm_mask;
	u64 cgroup; /* its id; 0: there is none of this path now */
	u64 tasks;  /* how many got it */
	u32 level;  /* of the control group: how many are above it */
	u32 user;
	u32 flags; /* enum usher_hint */
	u32 parts; /* enum usher_rule_parts: what must match */
	char path[USHER_RULE_PATH];
};

struct usher_rule usher_rules[USHER_MAX_RULES]; /* set by the loader before attach */

static __always_inline bool in_group(struct task_struct *p, const struct usher_rule *r)
{
	struct cgroup *group;
	bool in;

	if (!r->cgroup)
		return false;
	group = bpf_cgroup_ancestor(p->cgroups->dfl_cgrp, r->level);
	if (!group)
		return false;
	in = group->kn->id == r->cgroup;
	bpf_cgroup_release(group);
	return in;
}

/* 1 + the first rule that matches, or 0. */
static __always_inline u32 rule_of(struct task_struct *p, const struct usher_comm *comm)
{
	u32 user = BPF_CORE_READ(p, cred, euid.val);
	int i;

	bpf_for(i, 0, usher_nr_rules) {
		struct usher_rule *r = &usher_rules[i & (USHER_MAX_RULES - 1)];

		if (r->parts & USHER_RULE_COMM &&
		    ((comm->word[0] & r->comm_mask.word[0]) != r->comm.word[0] ||
		     (comm->word[1] & r->comm_mask.word[1]) != r->comm.word[1]))
			continue;
		if (r->parts & USHER_RULE_USER && user != r->user)
			continue;
		if (r->parts & USHER_RULE_CGROUP && !in_group(p, r))
			continue;
		return i + 1;
	}
	return 0;
}

/* Gives a task what the rules have for it, or takes away what they had. name: that of the task. */
static __always_inline void rule_apply(struct usher __arena *u, struct task_struct *p, const void *name,
				       bool newborn)
{
	struct usher_hinted before, *h;
	struct usher_comm comm = {};
	u64 wish;
	u32 rule;

	if (!usher_nr_rules || p->flags & (PF_KTHREAD | PF_EXITING))
		return;
	h = hinted(p);
	if (h && h->source == USHER_HINT_OWN)
		return;
	bpf_probe_read_kernel_str(&comm, sizeof(comm), name);
	rule = rule_of(p, &comm);
	if (!h && !rule)
		return;
	h = hinted_anew(p);
	if (!h) {
		count_hint(u, USHER_HINT_NO_MEMORY);
		return;
	}
	before.wish = h->wish;
	wish = rule ? hint_wish(usher_rules[(rule - 1) & (USHER_MAX_RULES - 1)].flags, rule) : 0;
	if (before.wish == wish && !newborn)
		return;
	/* Tried once: who comes in between is a call by the task or about it, and that one counts. */
	if (before.source == USHER_HINT_OWN ||
	    __sync_val_compare_and_swap(&h->wish, before.wish, wish) != before.wish)
		return;
	if (rule) {
		__sync_fetch_and_add(&usher_rules[(rule - 1) & (USHER_MAX_RULES - 1)].tasks, 1);
		count_hint(u, USHER_HINT_BY_RULE);
	}
	/* A newborn moves in where it is placed. */
	if (!newborn)
		hint_settle(u, h, p);
}

/* After it got its control group and before it is placed. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(usher_rule_born, struct task_struct *parent, struct task_struct *child)
{
	if (usher())
		rule_apply(usher(), child, child->comm, true);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(usher_rule_exec, struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)
{
	if (usher())
		rule_apply(usher(), p, p->comm, false);
	return 0;
}

/* Before the name changes. */
SEC("tp_btf/task_rename")
int BPF_PROG(usher_rule_rename, struct task_struct *p, const char *comm)
{
	if (usher())
		rule_apply(usher(), p, comm, false);
	return 0;
}

/* The path of the control group that is being made. One is made at a time: the kernel holds a lock. */
static char usher_group_path[USHER_RULE_PATH];

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(usher_rule_group, struct cgroup *group, const char *path)
{
	long bytes = bpf_probe_read_kernel_str(usher_group_path, sizeof(usher_group_path), path);
	int i, k;

	/* Only of the hierarchy that all tasks are in, whose number is 0. A cut path is none of ours. */
	if (bytes <= 0 || bytes >= USHER_RULE_PATH || BPF_CORE_READ(group, root, hierarchy_id))
		return 0;
	bpf_for(i, 0, usher_nr_rules) {
		struct usher_rule *r = &usher_rules[i & (USHER_MAX_RULES - 1)];
		bool same = r->parts & USHER_RULE_CGROUP;

		bpf_for(k, 0, bytes) {
			u32 at = k & (USHER_RULE_PATH - 1);

			if (r->path[at] != usher_group_path[at]) {
				same = false;
				break;
			}
		}
		if (same)
			r->cgroup = group->kn->id;
	}
	return 0;
}

/*
 * Every task there is, once, when the scheduler has begun: what the rules have for it. And who has
 * hints from before a restart moves in again, for the counts began anew.
 */
SEC("iter/task")
int usher_survey(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct usher_hinted *h;

	if (!p || !usher())
		return 0;
	rule_apply(usher(), p, p->comm, false);
	h = hinted(p);
	if (h && h->flags && home_of(h->home) == USHER_NO_LLC)
		hint_settle(usher(), h, p);
	return 0;
}

#endif
