/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the loader and its BPF programs share besides struct usher: a block per CPU, in the arena
 * beside it. To be included behind usher/usher.h. crates/scx_usher/src/shared.rs mirrors it and
 * checks the sizes.
 */
#ifndef USHER_SHARED_H
#define USHER_SHARED_H

/* How far a task moved; the narrowest level that both CPUs share. */
enum usher_level {
	USHER_LEVEL_CORE,   /* between siblings */
	USHER_LEVEL_LLC,    /* between cores of an LLC */
	USHER_LEVEL_NODE,   /* between LLCs of a node */
	USHER_LEVEL_REMOTE, /* between nodes */
	USHER_NR_LEVELS,
};

/* What the callbacks met that the core does not see. */
enum usher_host_event {
	USHER_HOST_PINNED,	   /* tasks put into a CPU's own queue */
	USHER_HOST_LOCAL,	   /* tasks of one CPU sent there at once: its kernel threads, and any while it idles */
	USHER_HOST_SHARED,	   /* tasks put into a queue of several CPUs */
	USHER_HOST_KEPT,	   /* slices begun anew, because nobody went before the task */
	USHER_HOST_KICKED,	   /* idle CPUs sent to a queue */
	USHER_HOST_NO_SET,	   /* a restricted task without its allowed set: it waits, nobody is sent */
	USHER_HOST_MOVED,	   /* running tasks that moved, to a greater CPU or off a crowded core */
	USHER_HOST_MOVE_GIVEN_BACK, /* CPUs claimed for one that did not come */
	USHER_HOST_UNHEARD,	   /* wakeups by a CPU that is not in the tables, or on its way offline */
	USHER_HOST_FIT_TAKEN,	   /* tasks taken before the first of a queue, which was too heavy for the CPU */
	USHER_HOST_THROTTLED,	   /* tasks that wait for the next period of their control group (cpu.max) */
	USHER_HOST_UNTHROTTLED,	   /* ... and those that went on then */
	USHER_HOST_BUILTIN_PICK,   /* the kernel's own idle selection found an idle CPU ... */
	USHER_HOST_BUILTIN_NONE,   /* ... or found none */
	USHER_HOST_NR_EVENTS,
};

/* What became of a program's call about hints, or of a child that was to inherit them. */
enum usher_hint_calls {
	USHER_HINT_WAS_SET,
	USHER_HINT_READ,
	USHER_HINT_REFUSED,
	USHER_HINT_NO_MEMORY,
	USHER_HINT_BY_RULE, /* tasks that got hints by a rule */
	USHER_HINT_NR_CALLS,
};

/* Per CPU, at its cid. Written by that CPU only, except pinned, which is written under its runqueue lock. */
struct usher_host_cpu {
	__u32 pinned; /* 1: the CPU's own queue may have tasks */
	__u32 vain;   /* 1: the CPU was sent to look for work since it went idle, or went by itself */
	__u32 ran_before_pid; /* the task that runs now, and ... */
	__u32 waited_ticks;
	__u64 ran_before_ns; /* ... what it had run in its life when it was last charged */
	__u64 waited_ns;     /* the longest that a task waited before it ran here; above in ticks */
	__u64 migrations[USHER_NR_LEVELS];
	__u64 events[USHER_HOST_NR_EVENTS];
	__u64 hint_calls[USHER_HINT_NR_CALLS]; /* atomic: system calls may be interrupted */
	__u64 began_ns; /* what the task that runs now had run in its life when it began here */
	__u32 leaving; /* 1: on its way offline */
	__u32 moves_to; /* 1 + the CPU, as a cid, that is claimed for the task that runs here */
	__u32 moves_pid; /* ... which is this one */
	__u32 called;	 /* 1: a greater CPU has gone idle, and calls for the task that runs here. Written by that one */
	__u32 capacity;	 /* what the kernel says of this CPU; 0: it does not say */
	__u32 sync_pid;	 /* the task that it woke last, if it said that it is about to sleep, and found nobody idle */
	__u32 gives_pid; /* the task that ran here and gives way to its partner, until it is put back */
	__u32 helps;	 /* 1 + the CPU, as a cid, that idles beside its own queue, for which this one is to fetch from there */
	__u32 sent_pid;	 /* the task that it placed last, on a CPU that it claimed, until somebody is queued by it */
	__u32 unused;
	__u64 paid_ns;	 /* what the task that runs now had run in its life when its group's limit was last told */
	struct usher_set allowed; /* of the restricted task it decides about */
};

/* Who tracks idle CPUs. The last two are baselines to compare with. */
enum usher_idle_mode {
	USHER_IDLE_USHER,	 /* the core */
	USHER_IDLE_BUILTIN,	 /* the kernel, in one mask */
	USHER_IDLE_BUILTIN_NODE, /* the kernel, in a mask per node (Linux 6.15) */
};

/*
 * Control groups, by the id that the kernel's cpu controller gives each: bpf/group.bpf.h. 0 is for tasks of none, of
 * those of autogroup, and of groups whose id is too high.
 */
struct usher_group {
	__u32 round;  /* the loader's, in which a task of it, or of one below, was last seen */
	__u32 parent; /* the root's is itself */
	__u32 shares; /* 1024 for cpu.weight 100 */
	__u32 part;   /* by the loader; 1024 in a new group: what its tasks weigh, in 1024ths of what their nice values say */
	__u32 limiter; /* the nearest group, from this one upwards, with a limit (cpu.max); 0: none */
	__u32 serial; /* tells it from others that had its id */
	__u32 pool;   /* the same for groups whose tasks may run on the same CPUs; 0: on all */
	__u32 cpus;   /* how many these are */
};

struct usher_groups {
	__u32 round;	  /* counted by the loader */
	__u32 beyond;	  /* 1: there was a group whose id is too high */
	__u32 limited;	  /* 1: there was a group with a limit */
	__u32 unused[13]; /* to a whole 64-byte line: what follows is written by who throttles */
	__u64 asked_ns;	  /* for when the timer is set that calls; 0: for never */
	__u64 throttles;  /* tasks throttled as they were queued */
	__u64 seen;	  /* how many these were when somebody last looked */
	__u32 called;	  /* 1: throttled tasks may go on: the next CPU that dispatches is to look */
	__u32 unused2[9];
	struct usher_group of[];
};

/* What is left to a limited group: bpf/bandwidth.bpf.h. A line of its own, as CPUs that run its tasks write it. */
struct usher_bandwidth {
	__u64 left_ns;	 /* of this period's quota, neither run for nor taken in advance; signed: below 0 it is owed */
	__u64 refill_ns; /* when the period ends */
	__u64 quota_ns;	 /* cpu.max; 0: no limit */
	__u64 period_ns;
	__u64 burst_ns;	 /* cpu.max.burst: what may be left of earlier quotas */
	__u64 least_ns;	 /* less than this is nothing */
	__u32 keep_ns;	 /* so much of what it took in advance a CPU keeps */
	__u32 above;	 /* the next limited group above; 0: none */
	__u32 unused[2];
};

/* What the tasks of a group ran and waited on a CPU, in the block of that CPU. Written by it, under its runqueue lock. */
struct usher_group_time {
	__u64 ns;
	__u64 weighted; /* times what their nice values say, 100 for 0 */
	__u64 unpaid;	/* what they ran and whoever limits them has not paid yet; signed: below 0 it was taken in advance */
};

#endif
