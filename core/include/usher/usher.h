/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * usher's placement core: which CPU should a task run on?
 *
 * The core sees a machine as cids: dense topological CPU numbers in the order node, LLC, core,
 * thread, so that a core, an LLC and a node are each a contiguous range. Hosts translate the
 * kernel's CPU numbers at their edge. Everything the core keeps stands behind one struct usher; it
 * has no other state.
 *
 *   topology   read-only tables, built once by usher_build()              core/src/build.c
 *   idle map   who is idle; claim an idle CPU so that nobody else does    core/src/idle.c
 *   backlog    which queues have somebody waiting                         core/src/queue.c
 *   pace       how soon who waits there runs, and who may take them       core/src/pace.c
 *   cpupri     which CPU runs at which level; whom to preempt             core/src/cpupri.c
 *   preempt    classes of tasks, and who takes whose CPU                 core/src/preempt.c
 *   capacity   what a task asks of a CPU, and which CPUs are strong       core/src/capacity.c
 *   place      one decision, with its reason                              core/src/place.c
 *   follow     tasks that only another node wakes                         core/src/follow.c
 *   crowd      running tasks that share a core while another one idles    core/src/crowd.c
 *   vtime      the order of a queue                                       core/src/queue.c
 *
 * Units: times in nanoseconds, capacities and utilisation 0..1024 of the strongest CPU, weights with 100 as
 * the default (1..10000).
 */
#ifndef USHER_H
#define USHER_H

#include "env.h"

#define USHER_MAX_CIDS 4096
#define USHER_PACE_CIDS 8 /* of so many CPUs at least is a queue that is left to its LLC: pace.c */
#define USHER_MAX_WORDS (USHER_MAX_CIDS / 64)
#define USHER_MAX_SMT 8
#define USHER_MAX_TIERS 8
#define USHER_LINE 64

/* Levels of the CPU priority map: 0 (nothing urgent) to 100, and none for a CPU that takes no tasks. */
#define USHER_LEVELS 101
#define USHER_LEVEL_WORDS ((USHER_LEVELS + 63) / 64)
#define USHER_NO_LEVEL (~0u)
#define USHER_TAKEN USHER_LEVELS /* behind the levels a word like theirs: CPUs that are being preempted */

/* What a task is to those who wait for it, and the level of the CPU that runs it. */
enum usher_class {
	USHER_BATCH,
	USHER_NORMAL,
	USHER_INTERACTIVE,
	USHER_CRITICAL,
	USHER_NR_CLASSES,
};

/* How long a task runs between two sleeps: kept by the host, per task. */
struct usher_burst {
	u64 ns;		/* since it slept last */
	u64 average_ns; /* of those before, the last counting a quarter */
};

/* How a task wakes its partner, where both always wake each other. */
enum usher_way {
	USHER_WAY_OTHER,
	USHER_WAY_APART,  /* on its own CPU, which idles */
	USHER_WAY_BESIDE, /* on the waker's, which gives way */
	USHER_WAY_LEAVES, /* from there on a core that idles */
};

/* Whom a task wakes, and whether it sleeps then: kept by the host, per task. All 0 at first. */
struct usher_pair {
	u64 partner;   /* the task that it woke last, saying that it was about to sleep, */
	u64 asked_ns;  /* ... when, */
	u64 apart_ns;  /* ... how long it took until it asked again, on the average, if the partner was on its own CPU, */
	u64 beside_ns; /* ... and if it gave way; 0: not known */
	u32 paused;    /* how often it had slept or been interrupted by then */
	u32 sure;      /* turns in a row that ended so; and times that it gave way since it was watched */
	u32 chosen;    /* times that it could have woken its partner elsewhere and given way to it as well */
	u32 way, way_before; /* enum usher_way: how it woke its partner last, and the time before */
	u32 settled;   /* times in a row before the last that it was the same way */
	u32 sooner;    /* whether answers come sooner if it gives way, as trials have shown */
};

/* Which other LLCs woke a task: kept by the host, per task. All 0 at first. */
struct usher_follow {
	u32 sleeps;	/* how often it had slept when one did last, of the wakeups that count, */
	u16 llc;	/* ... which, */
	u16 times;	/* ... how often in a row that one, at most as often as makes it the home, */
	u16 node_times; /* ... and how often in a row one of its node, if that is not the task's */
	u16 home;	/* 1 + the LLC whose wakeups it goes along with; 0: any */
};

/* Whether a task that wakes its partner gives way to it. */
enum usher_gives {
	USHER_GIVES_NOT,
	USHER_GIVES_NOW,
	USHER_GIVES_LATER, /* when it sleeps, since it is watched: usher_pair_beside() */
	USHER_GIVES_BEHIND, /* the same, and the partner waits behind it, since that is how answers come soonest */
};

/* Errors of the node-aware calls; a cid is never negative. The kernel's counterparts in brackets. */
enum usher_error {
	USHER_NONE_IDLE = -1, /* nobody idle in reach [EBUSY] */
	USHER_EMPTY_SET = -2, /* the allowed set names no CPU in reach */
	USHER_NO_NODE = -3,   /* no node of this index, no CPU of this number [EINVAL] */
	USHER_NODE_OFF = -4,  /* idle CPUs are tracked globally: node-aware calls are off [EOPNOTSUPP] */
	USHER_NONE_LOWER = -5, /* nobody in reach runs at a lower level */
};

/* How many CPUs share a 64-byte line of idle bits. Shard is the design, the others its baselines. */
enum usher_granularity {
	USHER_GLOBAL,
	USHER_NODE,
	USHER_LLC,
	USHER_SHARD,
	USHER_NR_GRANULARITIES,
};

/* Why a decision fell as it did. The order is that of the steps in place.c. */
enum usher_reason {
	USHER_PINNED,		/* only one CPU is allowed */
	USHER_HINT_FORK,	/* a core where the hint about births asks for it */
	USHER_HINT_WAKE,	/* a core in the waker's LLC, as the hint about wakeups asks */
	USHER_SYNC_CORE,	/* sync wakeup: an idle core in the waker's LLC, where the data is */
	USHER_SYNC_CPU,		/* sync wakeup: an idle CPU in the waker's LLC */
	USHER_PREV_CORE,	/* prev's whole core is idle */
	USHER_LLC_CORE,		/* an idle core in the LLC */
	USHER_PREV,		/* prev is idle, its sibling is not, and no core of the LLC is idle */
	USHER_LLC_CPU,		/* an idle CPU in the LLC */
	USHER_NODE_CORE,	/* an idle core in the node */
	USHER_NODE_CPU,		/* an idle CPU in the node */
	USHER_REMOTE_CORE,	/* an idle core in another node */
	USHER_REMOTE_CPU,	/* an idle CPU in another node */
	USHER_FIT_CORE,		/* CPUs differ in capacity: an idle core of a tier that is enough for the task */
	USHER_FIT_CPU,		/* ... or an idle CPU of one */
	USHER_UNFIT,		/* nobody idle is enough: the strongest idle CPU all the same */
	USHER_MISFIT,		/* a running task that its CPU is too weak for: an idle CPU that is stronger */
	USHER_CROWDED,		/* a running task that shares its core: a whole one that idles */
	USHER_QUEUED,		/* nobody idle: wait in prev's queue */
	USHER_QUEUED_ELSEWHERE, /* nobody idle: wait in the waker's queue (sync), a shorter one, or where allowed */
	USHER_NOWHERE,		/* no CPU of the machine is allowed */
	USHER_PARTNER,		/* the waker's, which gives way now or later: see pair.c */
	USHER_NR_REASONS,
};

/* What happened on the way; counted per CPU. */
enum usher_event {
	USHER_EV_CLAIM_LOST,	 /* an idle bit seen was gone when it was to be claimed */
	USHER_EV_SUMMARY_RETIRED, /* a searcher cleared the summary bit of an empty shard */
	USHER_EV_SUMMARY_RESTORED, /* ... and found the shard filled behind its back */
	USHER_EV_BACKLOG_RETIRED,
	USHER_EV_BACKLOG_RESTORED,
	USHER_EV_IDLE_REENTERED, /* a claimed CPU found nothing to run and is idle again */
	USHER_EV_IDLE_SAW_WORK,	 /* a CPU marked itself idle and then saw a waiting task */
	USHER_EV_LATE_LOOK,	 /* the look after the queue was filled found an idle CPU */
	USHER_EV_RESCUED,	 /* a look on behalf of others found an idle CPU: usher_rescue() */
	USHER_EV_SEARCH_BOUND,	 /* a search for whole cores stopped at its bound */
	USHER_EV_SEARCH_LLC,	 /* searches that went through the LLC, */
	USHER_EV_SEARCH_NODE,	 /* ... on to the node, */
	USHER_EV_SEARCH_REMOTE,	 /* ... and on to other nodes */
	USHER_EV_STEAL_LLC,	 /* tasks taken from a queue of the CPU's own LLC, */
	USHER_EV_STEAL_NODE,	 /* ... from another LLC of the node, */
	USHER_EV_STEAL_REMOTE,	 /* ... from another node */
	USHER_EV_HINT_KEPT,	 /* a hint decided, */
	USHER_EV_HINT_LAPSED,	 /* ... or asked for a full place and was passed over */
	USHER_EV_PREEMPT_LLC,	 /* a CPU of the task's LLC was preempted for it, */
	USHER_EV_PREEMPT_NODE,	 /* ... of its node, */
	USHER_EV_PREEMPT_REMOTE, /* ... of another node, */
	USHER_EV_PREEMPT_LOST,	 /* ... or was being preempted already, */
	USHER_EV_PREEMPT_NONE,	 /* ... or there was none in reach that runs low enough */
	USHER_EV_MISFIT_WAITS,	 /* a task began to wait, running on a weak CPU, for a stronger one to go idle */
	USHER_EV_MISFIT_CALLED,	 /* a CPU that went idle called for such a task */
	USHER_EV_TURN_CUT,	 /* a task that had slept ended the turn of one that had run for long */
	USHER_EV_HANDED,	 /* a CPU chose the task that was handed to it by its own, which went to sleep */
	USHER_EV_FOLLOWED,	 /* a task that only CPUs of another node woke was placed by where they are */
	USHER_EV_STAYED,	 /* a sync wakeup from an LLC of its node that is not the task's home was a plain one */
	USHER_EV_LEFT_NEAR,	 /* a wakeup searched its LLC only, since who waits there runs soon */
	USHER_EV_OVERDUE,	 /* a tick found a queue that should have been empty by then, and called other LLCs */
	USHER_EV_BORN_AWAY,	 /* a newborn was sent to the node where most cores idle */
	USHER_NR_EVENTS,
};

/* Read-only, per cid. */
struct usher_cid {
	u32 cpu; /* the kernel's number */
	u32 shard;
	u32 llc;
	u32 node;
	u32 bit; /* of this cid in its word */
	u32 tier;
	u64 core;     /* this cid and its siblings, as bits of the word */
	u32 capacity;
	u32 queue;
};

/*
 * Read-only, per shard: at most 64 cids of one LLC, cut at core boundaries. All masks are bits of
 * its word, which it may share with other shards (see build.c). What every search reads stands
 * first.
 */
struct usher_shard {
	u64 USHER_MEM *word; /* where the idle bits are */
	u64 valid;	     /* ... and which of them are this shard's */
	u64 first_thread;    /* the first thread of every core */
	u32 base;	     /* cid of bit 0 of the word, modulo 2^32 */
	u32 shift;	     /* the lowest bit of valid */
	u64 USHER_MEM *summary; /* the word of the node's summary with this shard's bit */
	u64 summary_bit;
	u32 smt; /* threads of the widest core */
	u32 llc;
	u32 node;
	u32 unused;
	u64 wider[USHER_MAX_SMT - 1]; /* [k]: first threads of cores with more than k + 1 threads */
	u64 unused2;
	u64 tier[USHER_MAX_TIERS];    /* the cids of each tier */
};

/* Of a queue, on a line of its own. */
struct usher_clock {
	u64 now;   /* the largest virtual time at which one of its tasks began to run, within bounds: usher_clock_advance() */
	u64 slept; /* the largest at which a task joined that had slept, and comes before a lead is over */
	u64 latest;  /* the largest from which a task is charged that joined */
	u64 mark;    /* where it is to be, at the latest half of u->patience_ns after it came to the last one, */
	u64 mark_ns; /* ... at this time */
	u64 pushed;  /* it is moved on, as it would not be there in time */
	u64 gap_ns;  /* the mean time from one turn of its CPUs to the next; 0: not known yet */
	u64 waits_ns; /* at a tick then somebody waited, as at any moment since; 0: nobody knows: usher_queue_overdue() */
};

/* Read-only, per queue: where tasks wait for some neighbouring CPUs of an LLC. */
struct usher_queue {
	u32 first_cid, nr_cids;
	u32 llc;
	u32 node;
	u32 power; /* what its CPUs do together: the sum of capacities, or where all count as equal how many they are */
	u32 unused;
	u64 USHER_MEM *backlog; /* the word of the node's backlog with this queue's bit, */
	u64 USHER_MEM *near;	/* ... that of its LLCs' own, */
	u64 backlog_bit;	/* ... and the bit, in both */
	struct usher_clock USHER_MEM *clock; /* on a line of its own */
	u64 soon_ns; /* that of struct usher, or 0 where few CPUs take from it */
};

/* Read-only, per LLC. */
struct usher_llc {
	u32 first_cid, nr_cids;
	u32 first_shard, nr_shards;
	u32 first_queue, nr_queues;
	u32 node;
	u32 nr_cores;
	u64 USHER_MEM *settled; /* hinted tasks that live here, asleep or not; on a line of its own */
};

/* Read-only, per node, memory-only nodes included. */
struct usher_node {
	u32 id; /* the kernel's number */
	u32 first_cid, nr_cids;
	u32 first_shard, nr_shards;
	u32 first_llc, nr_llcs;
	u32 first_queue, nr_queues;
	u32 nr_cores;
	u32 USHER_MEM *order; /* all nodes, nearest first, ties to the lowest id; the first is itself */
	u64 USHER_MEM *summary; /* a bit per shard: somebody there may be idle */
	u64 USHER_MEM *backlog; /* a bit per queue: somebody may be waiting there, */
	u64 USHER_MEM *near;	/* ... or here: somebody who is left to the CPUs of the LLC. On a line of its own */
};

/*
 * Read-only, per shard: its part of the CPU priority map. The bits of a level's word are those of
 * the idle word (struct usher_shard: valid, base, shift), and shards share words as they do there.
 */
struct usher_cpupri_leaf {
	u64 USHER_MEM *words;	/* the word of level 0 */
	u64 USHER_MEM *present; /* the word of level 0 in the node's map of shards, with this shard's bit */
	u64 present_bit;
	u64 USHER_MEM *levels; /* of the node */
	u32 stride;	       /* words from a level to the next */
	u32 present_stride;
	u64 unused[3];
};

/* Read-only, per node. Nodes without shards have no words in present, and nobody at any level. */
struct usher_cpupri_node {
	u64 USHER_MEM *levels;	/* a bit per level: somebody of the node may be there. On a line of its own */
	u64 USHER_MEM *present; /* level by level a bit per shard: somebody of it may be there */
	u32 words;		/* per level in present */
	u32 unused;
};

/* A task that begins to run, or wakes and wants to. */
struct usher_turn {
	u64 vtime;
	u64 at_ns; /* now */
	u64 weight;
};

/* Written by one CPU only, on lines of its own. */
struct usher_cpu {
	struct usher_turn turn; /* of who runs: read by who wakes others, and on a line of its own for that */
	u64 ran_ns; /* where CPUs differ: until when somebody is known to have run here; 0: never */
	u64 handed; /* the task that was handed to this CPU last, by the host's name for it; 0: none */
	u64 cut_ns; /* when its turn was last cut: usher_turn_cut() */
	u64 rest; /* virtual time too short for a step, of tasks that stopped here: usher_vtime_charge() */
	u64 unused_turn;
	u32 idle; /* the last transition this CPU reported: 1 into idle */
	u32 rotor; /* where the last search of another LLC ended, so that the next starts behind it */
	u32 look; /* 1 + the queue into which this CPU put a task that may still be on its way */
	u32 pinned_last; /* the last task came from the CPU's own queue, not that of several */
	u32 poke; /* somebody may wait beside an idle CPU because of this one: see usher_rescue() */
	u32 balance_turn; /* counts the looks of usher_balance() */
	const struct usher_set USHER_MEM *look_allowed; /* ... by which CPUs it may be taken; NULL: by any */
	u32 level; /* 1 + that in the CPU priority map, 0: none; written by whoever calls usher_cpupri_set() */
	u32 shorter_turn; /* counts the looks of usher_queue_shorter() and usher_queue_again() */
	u32 taken; /* the task that this CPU was preempted for has come */
	u32 asked; /* tasks that the one that runs here woke since it began, saying that it was about to sleep, */
	u64 asked_ns; /* ... when it did so last, */
	u64 woke_ns;  /* ... and when that had been done: usher_pair_woke() */
	u64 reasons[USHER_NR_REASONS];
	u64 events[USHER_NR_EVENTS];
	u64 unused[(8 - (8 + USHER_NR_REASONS + USHER_NR_EVENTS) % 8) % 8];
};

/* In which order tiers that are enough for a task are searched for an idle CPU. */
enum usher_tier_order {
	USHER_STRONGEST_FIRST,
	USHER_WEAKEST_FIRST, /* the smallest that fits */
};

/* What every decision reads stands on the first line. */
struct usher {
	struct usher_cid USHER_MEM *cids;
	struct usher_shard USHER_MEM *shards;
	struct usher_llc USHER_MEM *llcs;
	struct usher_node USHER_MEM *nodes;
	struct usher_cpu USHER_MEM *cpus;
	s32 USHER_MEM *cid_of_cpu; /* nr_cpu_ids entries, -1 for a CPU without a cid */
	u64 USHER_MEM *backlogs; /* every node's backlog, one behind the other: who goes idle reads them all */
	u32 asymmetric; /* some CPU is greater than another, see capacity.c; 0 also if told to ignore that */
	u32 tier_order; /* enum usher_tier_order */
	struct usher_queue USHER_MEM *queues;
	u64 USHER_MEM *USHER_MEM *summaries; /* every word of every node's summary */
	u32 nr_summaries, nr_backlogs;
	struct usher_host *host;
	u32 nr_cids, nr_shards, nr_llcs, nr_queues, nr_nodes, nr_cpu_ids;
	u32 granularity;
	u32 smt;	  /* threads of the widest core of the machine */
	u32 core_probes;  /* shards of another LLC looked into for a whole core before any thread will do */
	u64 slice_ns;	  /* what a task of any weight runs before it queues again */
	u64 patience_ns;  /* so long who weighs least waits at most, and a round of all who wait */
	u64 soon_ns;	  /* who runs within so long is left to the CPUs of its LLC: pace.c; 0: nobody */
	u64 bytes;	  /* of the whole */
	struct usher_cpupri_leaf USHER_MEM *leaves; /* NULL: without the CPU priority map */
	struct usher_cpupri_node USHER_MEM *cpupri_nodes;
	u64 USHER_MEM *cpupri_levels; /* what their levels point to, a line per node */
	u64 USHER_MEM *misfits;	/* a bit per cid: a task runs there that waits for a stronger CPU; NULL: all are equal */
	u32 tiers;     /* bit t: there are CPUs of tier t, */
	u32 top_tiers; /* ... and none is greater than they are */
	u32 tier_capacity[USHER_MAX_TIERS]; /* the least of each */
	u32 light_need; /* a task that needs no more is light: usher_light() */
	u32 fork_balance; /* newborns leave a node of which much is busy */
};

/* Every decision asks, and machines of equal CPUs pay for nothing else: on a line that it reads anyway. */
_Static_assert(__builtin_offsetof(struct usher, asymmetric) < USHER_LINE, "asked on the first line");

/* A set of cids, bit c % 64 of word c / 64. Always this long, so that a bound is a mask. */
struct usher_set {
	u64 word[USHER_MAX_WORDS];
};

/* Where to search, and for whom. */
struct usher_query {
	const struct usher_set USHER_MEM *allowed; /* NULL: any */
	u32 tiers;			 /* bit t: CPUs of tier t will do; 0: any */
	u32 flags;			 /* USHER_IDLE_CORE, USHER_IN_NODE, USHER_LOWEST */
	u32 from;			 /* cid the search starts at */
	u32 self;			 /* cid of the CPU that searches */
};

#define USHER_IDLE_CORE (1u << 0) /* only CPUs whose whole core is idle */
#define USHER_IN_NODE (1u << 1)	  /* do not go on to other nodes */
#define USHER_LOWEST (1u << 2)	  /* of usher_cpupri_find(): the lowest level in reach, however far away */
#define USHER_UNTAKEN (1u << 3)	  /* of the same: no CPU that is being preempted */
#define USHER_HERE (1u << 4)	  /* of usher_turn_cut(): on from only */
#define USHER_NEAR (1u << 5)	  /* do not go on to other LLCs, */
#define USHER_PATIENT (1u << 6)	  /* ... or not if who waits there runs soon */

enum usher_wake {
	USHER_WAKE,
	USHER_WAKE_SYNC, /* the waker says that it is about to sleep */
	USHER_WAKE_FORK,
};

/* What a program may wish for its tasks, and they for their children. At most one of each pair. */
enum usher_hint {
	USHER_FORK_AFFINE = 1, /* be born near the parent */
	USHER_FORK_SPREAD = 2, /* be born where few live */
	USHER_WAKE_AFFINE = 4, /* wake near the waker */
	USHER_WAKE_HOLD = 8,   /* wake where it ran last */
};

#define USHER_FORK_HINTS (USHER_FORK_AFFINE | USHER_FORK_SPREAD)
#define USHER_WAKE_HINTS (USHER_WAKE_AFFINE | USHER_WAKE_HOLD)

/*
 * What a task asks of the CPU that it runs on. All 0: nothing is known, and any CPU is enough. It says nothing on
 * machines whose CPUs are equal.
 */
struct usher_demand {
	u16 util;	/* usher_util_now() */
	u16 clamp_min;	/* the kernel's uclamp: it wants a CPU of at least this capacity, */
	u16 clamp_max;	/* ... and one of this capacity is enough whatever util says. 0: no limit */
	u16 at;		/* usher_periods() of the time when it asks */
};

/* How much a task runs: see capacity.c. Kept by the host, one per task, all 0 at birth. */
struct usher_util {
	u64 at_ns;    /* up to when it is accounted; 0: it has not run yet */
	u32 average;  /* with 20 fraction bits */
	u16 settled;  /* an average of what it was when the task went to sleep */
	u16 unused;
};

/* One task to place. */
struct usher_request {
	const struct usher_set USHER_MEM *allowed; /* NULL: any */
	u32 wake;	  /* enum usher_wake */
	u32 prev;	  /* cid the task ran on last, or that it is to be placed by: usher_follow(); of the parent, when it is born */
	u32 waker;	  /* cid the decision is made on */
	u32 nr_allowed;	  /* how many cids allowed names; any number above one if NULL */
	u32 tiers;	  /* as in struct usher_query */
	u32 hints;	  /* enum usher_hint, of the task; of a newborn, which has its parent's */
	struct usher_demand demand;
};

struct usher_decision {
	u32 cid;
	u16 reason; /* enum usher_reason */
	u8 claimed; /* cid was idle and is now the task's alone; otherwise the task waits */
	u8 poke;    /* the waker's struct usher_cpu.poke: usher_rescue() has something to do */
};

/* What a machine is like; usher_build() turns it into tables. All ids are dense indices. */
struct usher_spec {
	u32 nr_cids, nr_shards, nr_llcs, nr_queues, nr_nodes, nr_cpu_ids;
	u32 granularity;
	u64 slice_ns;
	u64 patience_ns;
	u64 soon_ns;	     /* of no effect with one LLC, where CPUs differ, and for queues of less than USHER_PACE_CIDS */
	u32 core_probes;
	u32 cpupri;	     /* with the CPU priority map */
	u32 no_capacity;     /* all CPUs count as equal, whatever their capacity */
	u32 tier_order;	     /* enum usher_tier_order */
	u32 fork_balance;    /* of no effect with one node, and where CPUs differ */
	const u32 *cpu;	     /* per cid */
	const u32 *core;     /* per cid, ascending */
	const u32 *shard;    /* per cid, ascending */
	const u32 *llc;	     /* per cid, ascending */
	const u32 *queue;    /* per cid, ascending; one serves whole cores of one LLC */
	const u32 *node;     /* per cid, ascending; nodes without a cid may stand between */
	const u32 *capacity; /* per cid */
	const u32 *tier;     /* per cid, 0 is the strongest */
	const u32 *node_id;  /* per node */
	const u32 *distance; /* nr_nodes * nr_nodes, row by row */
};

#endif
