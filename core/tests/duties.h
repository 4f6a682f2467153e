/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a host does around the core, step by step: the kernel's callbacks as bpf/main.bpf.c has
 * them, with the kernel's queues, runqueues and interprocessor interrupts reduced to words of
 * shared memory.
 */
#ifndef USHER_TESTS_DUTIES_H
#define USHER_TESTS_DUTIES_H

#include "model.h"

static void model_push(u64 *queue)
{
	model_access(MODEL_PUSH, queue, 0);
}

static bool model_pop(u64 *queue)
{
	return model_access(MODEL_POP, queue, 0);
}

static void model_kick(u32 cid)
{
	model_access(MODEL_OR, &model.world->kicked[cid], 1);
}

/* The core said that cid is the caller's. */
static s32 model_claimed(s32 cid)
{
	if (cid >= 0)
		model.outcome.spare[cid]--;
	return cid;
}

/* A claimed CPU is sent to the queues. */
static void duty_send(s32 cid)
{
	if (cid < 0)
		return;
	model_claimed(cid);
	model_kick(cid);
}

/* The end of a callback. */
static void duty_rescue(struct usher *u, u32 self)
{
	u32 i;

	for (i = 0; i < MODEL_ROUNDS && u->cpus[self].poke; i++)
		duty_send(usher_rescue(u, self));
	model.outcome.endless |= i == MODEL_ROUNDS;
}

/* ops.select_cpu(): true if the task was handed to an idle CPU. */
static bool duty_place(struct usher *u, struct usher_request *r)
{
	struct usher_decision d = usher_place(u, r);

	duty_rescue(u, r->waker);
	if (!d.claimed)
		return false;
	model_claimed(d.cid);
	model_push(&model.world->local[d.cid]);
	model_kick(d.cid);
	return true;
}

/* Puts a task into queue and looks for somebody to run it. The task is in the queue at once. */
static void duty_enqueue(struct usher *u, u32 self, u32 queue)
{
	struct usher_query q = { .from = u->queues[queue].first_cid, .self = self };

	model_push(&u->host->queued[queue]);
	usher_queue_fill(u, queue, false);
	duty_send(usher_look(u, &q));
	duty_rescue(u, self);
}

/* The first thing in ops.dispatch(), ops.enqueue() and ops.tick(). */
static void duty_late_look(struct usher *u, u32 self)
{
	duty_send(usher_late_look(u, self));
	duty_rescue(u, self);
}

/*
 * The same in a kernel: the task arrives only after the callback, but the CPU found may already
 * have been kicked by then. True: self is idle and must be made to look for work.
 */
static bool duty_enqueue_late(struct usher *u, u32 self, u32 queue)
{
	struct usher_query q = { .from = u->queues[queue].first_cid, .self = self };
	bool go;

	duty_late_look(u, self);
	usher_queue_fill(u, queue, false);
	go = usher_look_later(u, self, queue, NULL);
	duty_send(usher_look(u, &q));
	duty_rescue(u, self);
	model_push(&u->host->queued[queue]);
	return go;
}

/* ops.dispatch(): a task for cid, from its local queue or from others'. */
static bool duty_take(struct usher *u, u32 cid)
{
	struct usher_walk walk = { .cid = cid };
	s32 queue;

	if (model_pop(&model.world->local[cid]))
		return true;
	while ((queue = usher_walk_next(u, &walk)) >= 0) {
		u64 *waiting = &u->host->queued[queue];

		if (model_pop(waiting) || (usher_queue_retire(u, queue, cid) && model_pop(waiting))) {
			usher_queue_taken(u, cid, queue);
			return true;
		}
	}
	return false;
}

/* A busy CPU's slice is over: it takes a waiting task, or goes on with what it had. */
static void duty_slice_end(struct usher *u, u32 cid)
{
	duty_late_look(u, cid);
	duty_take(u, cid);
	duty_rescue(u, cid);
}

/* The CPU has nothing to run until somebody kicks it. */
static void duty_sleep(u32 cid)
{
	model.outcome.waits[cid] = 1;
	model_access(MODEL_AWAIT, &model.world->kicked[cid], 0);
	model.outcome.waits[cid] = 0;
}

/*
 * ops.update_idle(), which the kernel calls only when the CPU was not idle before; afterwards, or
 * in ops.dispatch(), a CPU that was idle before says so again. True: look for work once more.
 *
 * A CPU that saw work as it went idle takes itself out of the map, so that nobody hands it a task
 * meanwhile. One that was idle before stays in it: work that it may not take would keep it going in
 * and out for ever.
 */
static bool duty_update_idle(struct usher *u, u32 cid)
{
	if (u->cpus[cid].idle)
		return usher_idle_again(u, cid);
	return usher_idle_enter(u, cid) && usher_test_and_clear(u, cid);
}

/* What a CPU does when it has nothing to run: ends when it has a task, which then runs on for ever. */
static void duty_idle(struct usher *u, u32 cid)
{
	u32 round;

	for (round = 0; round < MODEL_ROUNDS; round++) {
		bool taken;

		duty_late_look(u, cid);
		taken = duty_take(u, cid);
		duty_rescue(u, cid);
		if (taken) {
			usher_idle_exit(u, cid);
			duty_rescue(u, cid);
			return;
		}
		if (!duty_update_idle(u, cid))
			duty_sleep(cid);
	}
	model.outcome.endless = 1;
}

#endif
