/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scenarios: who does what at the same time, and what must hold afterwards. cids 0 and 1 share
 * an LLC, 2 and 3 the other, unless all four share one. The names are those that the comments in
 * core/src refer to. Those of the CPU priority map are in levels.h, those of unequal CPUs in misfits.h.
 */
#ifndef USHER_TESTS_SCENARIOS_H
#define USHER_TESTS_SCENARIOS_H

#include "duties.h"

static bool rest_idle(struct usher *u, u32 cid)
{
	struct usher_cid *c = &u->cids[cid];

	return usher_shard_idle(u, &u->shards[c->shard]) >> c->bit & 1;
}

static u32 rest_nr_idle(struct usher *u)
{
	u32 c, n = 0;

	for (c = 0; c < MODEL_CIDS; c++)
		n += rest_idle(u, c);
	return n;
}

static bool rest_waits(const struct model_outcome *outcomes, u32 cid)
{
	u32 a;

	for (a = 0; a < MODEL_ACTORS; a++)
		if (outcomes[a].waits[cid])
			return true;
	return false;
}

/* Nobody was given a CPU whose bit it did not clear, or cleared one without being given it. self: its owner. */
static const char *rest_claims(const struct model_outcome *outcome, s32 self)
{
	s32 c;

	for (c = 0; c < MODEL_CIDS; c++) {
		if (outcome->spare[c] < 0)
			return "an idle CPU was handed out twice";
		if (c != self && outcome->spare[c] > 0)
			return "an idle CPU was taken out of the map and handed to nobody";
	}
	return NULL;
}

/* Every idle CPU is in its node's summary, and searches from anywhere find all of them. Destroys the scene. */
static const char *rest_found(struct usher *u)
{
	struct usher_query q = { 0 };
	u32 c, idle = rest_nr_idle(u), found = 0;

	for (c = 0; c < MODEL_CIDS; c++) {
		struct usher_shard *shard = &u->shards[u->cids[c].shard];

		if (rest_idle(u, c) && !(*shard->summary & shard->summary_bit))
			return "an idle CPU is missing from the summary";
	}
	while (found <= MODEL_CIDS) {
		q.from = q.self = found % MODEL_CIDS;
		if (usher_look_for(u, &q, false) < 0)
			break;
		found++;
	}
	return found == idle ? NULL : "a search afterwards does not find the idle CPUs";
}

/* Whether cid takes from queue if it has nothing to run. */
static bool rest_for(struct usher *u, u32 cid, u32 queue)
{
	return u->cids[cid].llc == u->queues[queue].llc || usher_queue_for_all(u, queue);
}

/* Nobody waits beside an idle CPU, and no idle CPU is forgotten. */
static const char *rest_work(struct usher *u, const struct model_outcome *outcomes)
{
	struct model_world *world = model.world;
	u32 c, i;

	for (i = 0; i < u->nr_queues; i++) {
		if (world->queued[i] && !usher_queue_for_all(u, i) && !usher_queue_near(u, i))
			return "a queue with a task in it is missing from the backlog";
	}
	for (c = 0; c < MODEL_CIDS; c++) {
		bool waits = rest_waits(outcomes, c);

		if (waits && world->local[c])
			return "a CPU sleeps on a task that it was handed";
		for (i = 0; i < u->nr_queues; i++)
			if (waits && world->queued[i] && rest_for(u, c, i))
				return "a task waits beside an idle CPU";
		if (waits && !rest_idle(u, c))
			return "a CPU without work is missing from the idle map";
		if (!waits && rest_idle(u, c))
			return "a CPU that runs a task is in the idle map";
	}
	return NULL;
}

/* All of it. owner[a] is the cid whose own bit actor a may clear, or -1. */
static const char *rest_all(struct usher *u, const struct model_outcome *outcomes, const s32 *owner)
{
	const char *wrong = NULL;
	u32 a;

	for (a = 0; a < MODEL_ACTORS && !wrong; a++) {
		wrong = rest_claims(&outcomes[a], owner[a]);
		if (outcomes[a].endless)
			wrong = "a CPU never comes to rest";
	}
	if (!wrong)
		wrong = rest_work(u, outcomes);
	return wrong ? wrong : rest_found(u);
}

/* For scenarios of CPUs that look for work: actor a is cid a. */
static const char *rest_by_cid(struct usher *u, const struct model_outcome *outcomes)
{
	static const s32 owner[MODEL_ACTORS] = { 0, 1, 2, 3 };

	return rest_all(u, outcomes, owner);
}

static void stage_summary_stale(struct usher *u, u32 cid)
{
	usher_idle_enter(u, cid);
	usher_idle_exit(u, cid);
}

static void empty_setup(struct usher *u)
{
	(void)u;
}

/* A CPU that sleeps and is in the map when the curtain rises. */
static void idle_from_start(struct usher *u, u32 cid)
{
	duty_sleep(cid);
	duty_idle(u, cid);
}

/*
 * claim_against_claim: three wakers want the two idle CPUs of an LLC, one asking for a certain one,
 * and the owner of the other gets work of its own meanwhile. Each CPU goes to one of them at most,
 * and nobody leaves empty-handed while one is left.
 */
static void claim_setup(struct usher *u)
{
	usher_idle_enter(u, 0);
	usher_idle_enter(u, 1);
}

static void claim_actor(struct usher *u, u32 index)
{
	struct usher_request r = { .wake = USHER_WAKE, .prev = 0, .nr_allowed = 4 };
	struct usher_decision d;
	s32 cid = USHER_NONE_IDLE;

	switch (index) {
	case 0:
		usher_idle_exit(u, 0);
		return;
	case 1:
		if (usher_test_and_clear(u, 1))
			cid = 1;
		break;
	default:
		r.waker = index;
		d = usher_place(u, &r);
		if (d.claimed)
			cid = d.cid;
	}
	model.outcome.refused = model_claimed(cid) < 0;
}

static const char *claim_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	const char *wrong = NULL;
	u32 a;

	for (a = 0; a < MODEL_ACTORS && !wrong; a++) {
		wrong = rest_claims(&outcomes[a], a == 0 ? 0 : -1);
		if (!wrong && outcomes[a].refused && rest_nr_idle(u))
			wrong = "a waker found nobody though an idle CPU was left";
	}
	return wrong ? wrong : rest_found(u);
}

/*
 * claim_against_idle_again: cid 0 sleeps in the map. One CPU claims and wakes it for nothing,
 * another hands it a task if it can, a third claims it for nothing, too. It always goes back into
 * the map.
 */
static void again_setup(struct usher *u)
{
	usher_idle_enter(u, 0);
}

static void again_actor(struct usher *u, u32 index)
{
	struct usher_request r = { .wake = USHER_WAKE, .prev = 0, .waker = index, .nr_allowed = 4 };

	switch (index) {
	case 0:
		idle_from_start(u, 0);
		break;
	case 1:
		duty_place(u, &r);
		break;
	default:
		duty_send(usher_test_and_clear(u, 0) ? 0 : USHER_NONE_IDLE);
	}
}

/*
 * idle_against_retire: the summary names the LLC of cids 2 and 3, where nobody is idle. Both go
 * idle, while two wakers in the other LLC find the bit, find the LLC empty and clear the bit.
 */
static void retire_setup(struct usher *u)
{
	stage_summary_stale(u, 2);
}

static void retire_actor(struct usher *u, u32 index)
{
	struct usher_request r = { .wake = USHER_WAKE, .prev = index, .waker = index, .nr_allowed = 4 };

	if (index < 2)
		duty_place(u, &r);
	else
		duty_idle(u, index);
}

/*
 * look_against_retire: the same stale bit. cid 2 goes idle; cid 0 searches for a task that may not
 * run there and clears and restores the bit; cid 1 enqueues a task and may look just in between.
 */
static void look_actor(struct usher *u, u32 index)
{
	static const struct usher_set allowed = { .word = { 1u << 0 | 1u << 3 } };
	struct usher_request r = { .allowed = &allowed, .wake = USHER_WAKE, .nr_allowed = 2 };

	switch (index) {
	case 0:
		duty_place(u, &r);
		break;
	case 1:
		duty_enqueue(u, 1, 0);
		break;
	default:
		duty_idle(u, index);
	}
}

/*
 * idle_against_queue: cid 0 enqueues a task while cid 1 goes idle and cid 2, at the end of a slice,
 * looks for one. The backlog names the queue from the start, though it was empty, so that both also
 * try to clear the bit.
 */
static void queue_setup(struct usher *u)
{
	usher_queue_fill(u, 0, false);
}

static void queue_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 0:
		duty_enqueue(u, 0, 0);
		break;
	case 1:
		duty_idle(u, 1);
		break;
	default:
		duty_slice_end(u, 2);
	}
}

/*
 * fill_against_idle: the same without the third look, but cid 2 claims cid 1 for nothing as soon as
 * it can.
 */
static void fill_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 0:
		duty_enqueue(u, 0, 0);
		break;
	case 1:
		duty_idle(u, 1);
		break;
	default:
		duty_send(usher_test_and_clear(u, 1) ? 1 : USHER_NONE_IDLE);
	}
}

/*
 * two_tasks_against_retire: two tasks, and cid 2 takes one of them after it hid the queue for a
 * moment from cid 3, which goes idle.
 */
static void two_tasks_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 0:
		duty_enqueue(u, 0, 0);
		duty_enqueue(u, 0, 0);
		break;
	case 1:
		duty_idle(u, 1);
		break;
	default:
		duty_slice_end(u, 2);
	}
}

/*
 * late_queue_against_idle: as in a kernel, the task arrives in the queue only after the callback
 * that announced it and looked.
 */
static void late_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 0:
		duty_enqueue_late(u, 0, 0);
		duty_late_look(u, 0);
		break;
	case 1:
		duty_idle(u, 1);
		break;
	default:
		duty_slice_end(u, 2);
	}
}

/*
 * two_late_queues: the same for the queue of another LLC right after, before the CPU has come to a tick. It looks again for the first
 * task then, because it remembers one queue only. cid 1 idles at that of the first, cid 2 at the other.
 */
static void two_late_setup(struct usher *u)
{
	usher_queue_fill(u, 0, false);
	usher_queue_fill(u, 1, false);
}

static void two_late_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 0:
		duty_enqueue_late(u, 0, 0);
		duty_enqueue_late(u, 0, 1);
		duty_late_look(u, 0);
		break;
	default:
		duty_idle(u, index);
	}
}

/*
 * interrupt_against_idle: cid 0 sleeps; an interrupt on it enqueues a task that arrives late.
 * Nobody would come back to that task if cid 0 did not look for work itself.
 */
static void interrupt_setup(struct usher *u)
{
	usher_idle_enter(u, 0);
	usher_idle_enter(u, 1);
}

static void interrupt_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 0:
		if (!duty_enqueue_late(u, 0, 0))
			duty_sleep(0);
		duty_idle(u, 0);
		break;
	case 1:
		idle_from_start(u, 1);
		break;
	default:
		duty_idle(u, index);
	}
}

/*
 * take_against_look: cids 1 and 2 sleep in the map. cid 1 gets a task of its own that nobody
 * claimed it for, just when it may be claimed to fetch the task that cid 0 enqueues.
 */
static void take_setup(struct usher *u)
{
	usher_idle_enter(u, 1);
	usher_idle_enter(u, 2);
}

static void take_actor(struct usher *u, u32 index)
{
	switch (index) {
	case 0:
		duty_enqueue(u, 0, 0);
		break;
	case 3:
		model_push(&model.world->local[1]);
		model_kick(1);
		break;
	default:
		idle_from_start(u, index);
	}
}

/*
 * wake_against_idle: a whole wakeup, place() and if nobody is idle the queue, while a CPU beside it
 * and one in the other node go idle.
 */
static void wake_actor(struct usher *u, u32 index)
{
	struct usher_request r = { .wake = USHER_WAKE, .prev = 0, .waker = 0, .nr_allowed = 4 };

	if (index)
		duty_idle(u, index);
	else if (!duty_place(u, &r))
		duty_enqueue(u, 0, 0);
}

#define CLOCK_STEP (1000 * 4096ULL) /* some slices; a virtual time of queue 0 */

/*
 * clock_against_clock: two CPUs move a queue's clock with plain stores, a third reads it. Either
 * may win; the clock never shows anything else, and the next to move it does.
 */
static void clock_actor(struct usher *u, u32 index)
{
	u64 start = USHER_CLOCK_START;

	if (index < 2)
		usher_clock_advance(u, start + (1 + index) * CLOCK_STEP, 0, 0, 0);
	else
		usher_vtime_enter(u, start, 0);
}

static const char *clock_verdict(struct usher *u, const struct model_outcome *outcomes)
{
	u64 start = USHER_CLOCK_START, now = u->queues[0].clock->now, later = start + 3 * CLOCK_STEP;

	(void)outcomes;
	if (now != start + CLOCK_STEP && now != start + 2 * CLOCK_STEP)
		return "the clock shows what nobody wrote";
	usher_clock_advance(u, later, 0, 0, 0);
	return u->queues[0].clock->now == later ? NULL : "the clock stands still";
}

#include "soon.h"

static const struct model_scenario model_scenarios[] = {
	{ "claim_against_claim", 2, 1, 4, { "owner 0", "claimer of 1", "waker 2", "waker 3" },
	  claim_setup, claim_actor, claim_verdict, 0, 0 },
	{ "claim_against_idle_again", 2, 1, 4, { "sleeper 0", "waker 1", "claimer 2", "claimer 3" },
	  again_setup, again_actor, rest_by_cid, 0, 0 },
	{ "idle_against_retire", 2, 1, 4, { "waker 0", "waker 1", "idler 2", "idler 3" },
	  retire_setup, retire_actor, rest_by_cid, 0, 0 },
	{ "look_against_retire", 2, 1, 3, { "waker 0", "filler 1", "idler 2" },
	  retire_setup, look_actor, rest_by_cid, 0, 0 },
	{ "idle_against_queue", 1, 1, 3, { "filler 0", "idler 1", "passer-by 2" },
	  queue_setup, queue_actor, rest_by_cid, 0, 0 },
	{ "fill_against_idle", 1, 1, 3, { "filler 0", "idler 1", "claimer 2" },
	  queue_setup, fill_actor, rest_by_cid, 0, 0 },
	{ "two_tasks_against_retire", 1, 1, 3, { "filler 0", "idler 1", "passer-by 2" },
	  queue_setup, two_tasks_actor, rest_by_cid, 0, 0 },
	{ "late_queue_against_idle", 1, 1, 3, { "filler 0", "idler 1", "passer-by 2" },
	  queue_setup, late_actor, rest_by_cid, 0, 0 },
	{ "two_late_queues", 2, 1, 3, { "filler 0", "idler 1", "idler 2" },
	  two_late_setup, two_late_actor, rest_by_cid, 0, 0 },
	{ "interrupt_against_idle", 1, 1, 3, { "sleeper 0", "sleeper 1", "idler 2" },
	  interrupt_setup, interrupt_actor, rest_by_cid, 0, 0 },
	{ "take_against_look", 2, 1, 4, { "filler 0", "sleeper 1", "sleeper 2", "pinned task's waker" },
	  take_setup, take_actor, rest_by_cid, 0, 0 },
	{ "wake_against_idle", 2, 2, 3, { "waker 0", "idler 1", "idler 2" },
	  empty_setup, wake_actor, rest_by_cid, 0, 0 },
	{ "soon_against_idle", 2, 1, 3, { "filler 0", "idler 1", "idler 2" },
	  soon_setup, soon_actor, rest_by_cid, 0, 0 },
	{ "eased_against_idle", 2, 1, 3, { "taker 0", "idler 1", "taker 2" },
	  eased_setup, eased_actor, rest_by_cid, 0, 0 },
	{ "overdue_against_idle", 2, 1, 3, { "ticker 0", "waker 1", "idler 2" },
	  overdue_setup, overdue_actor, overdue_verdict, 0, 0 },
	{ "clock_against_clock", 2, 1, 3, { "charger 0", "charger 1", "reader 2" },
	  empty_setup, clock_actor, clock_verdict, 0, 0 },
	{ "raise_against_find", 2, 1, 4, { "finder 0", "setter 1", "setter 2", "setter 3" },
	  raise_setup, raise_actor, raise_verdict, 1, 0 },
	{ "raise_against_find_lowest", 2, 2, 4, { "finder 0", "setter 1", "setter 2", "setter 3" },
	  raise_setup, raise_lowest_actor, raise_verdict, 1, 0 },
	{ "set_against_retire", 2, 1, 4, { "finder 0", "setter 1", "setter 2", "setter 3" },
	  enter_setup, enter_actor, enter_verdict, 1, 0 },
	{ "retire_against_retire", 2, 1, 4, { "finder 0", "finder 1", "setter 2", "setter 3" },
	  two_finders_setup, two_finders_actor, two_finders_verdict, 1, 0 },
	{ "preempt_against_preempt", 1, 1, 3, { "runner 0", "preempter 1", "preempter 2" },
	  preempt_setup, preempt_actor, preempt_verdict, 1, 0 },
	{ "three_preempt", 1, 1, 3, { "preempter 0", "preempter 1", "preempter 2" },
	  three_preempt_setup, three_preempt_actor, three_preempt_verdict, 1, 0 },
	{ "pinned_against_preempt", 2, 1, 4, { "pinned to 2", "preempter 1", "runner 2", "pinned to 3" },
	  pinned_preempt_setup, pinned_preempt_actor, pinned_preempt_verdict, 1, 0 },
	{ "pinned_against_rise", 2, 1, 4, { "pinned to 2", "pinned to 2, too", "runner 2", "preempter 3" },
	  pinned_rise_setup, pinned_rise_actor, pinned_rise_verdict, 1, 0 },
	{ "pinned_in_turn", 2, 1, 4, { "pinned to 2", "preempter 1", "runner 2", "pinned to 2, too" },
	  turn_setup, turn_actor, turn_verdict, 1, 0 },
	{ "misfit_against_call", 2, 1, 4, { "ticker 0", "idler 1", "idler 2", "ticker 3" },
	  misfit_setup, misfit_actor, misfit_verdict, 0, MISFIT_WEAK },
	{ 0 },
};

#endif
