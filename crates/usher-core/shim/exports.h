/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core's functions under names that a linker sees: USHER_EXPORT(place) is usher_native_place in one
 * environment and usher_traced_place in another. The Rust side of this list is src/ffi.rs.
 */
#include "../../../core/src/core.c"

#define PASTE_(prefix, name) usher_##prefix##_##name
#define PASTE(prefix, name) PASTE_(prefix, name)
#define USHER_EXPORT(name) PASTE(USHER_PREFIX, name)

bool USHER_EXPORT(idle_enter)(struct usher *u, u32 cid)
{
	return usher_idle_enter(u, cid);
}

bool USHER_EXPORT(idle_again)(struct usher *u, u32 cid)
{
	return usher_idle_again(u, cid);
}

bool USHER_EXPORT(claimed)(struct usher *u, u32 cid)
{
	return usher_claimed(u, cid);
}

void USHER_EXPORT(idle_exit)(struct usher *u, u32 cid)
{
	usher_idle_exit(u, cid);
}

bool USHER_EXPORT(test_and_clear)(struct usher *u, u32 cid)
{
	return usher_test_and_clear(u, cid);
}

struct usher_decision USHER_EXPORT(place)(struct usher *u, const struct usher_request *r)
{
	return usher_place(u, r);
}

s32 USHER_EXPORT(look)(struct usher *u, const struct usher_query *q)
{
	return usher_look(u, q);
}

s32 USHER_EXPORT(rescue)(struct usher *u, u32 self)
{
	return usher_rescue(u, self);
}

s32 USHER_EXPORT(late_look)(struct usher *u, u32 self)
{
	return usher_late_look(u, self);
}

void USHER_EXPORT(queue_fill)(struct usher *u, u32 queue, bool bound)
{
	usher_queue_fill(u, queue, bound);
}

s32 USHER_EXPORT(queue_overdue)(struct usher *u, u32 cid, u64 now_ns)
{
	return usher_queue_overdue(u, cid, now_ns);
}

s32 USHER_EXPORT(queue_deserted)(struct usher *u, u32 cid)
{
	return usher_queue_deserted(u, cid);
}

bool USHER_EXPORT(queue_retire)(struct usher *u, u32 queue, u32 self)
{
	return usher_queue_retire(u, queue, self);
}

u32 USHER_EXPORT(queue_again)(struct usher *u, u32 self, u32 cid, u64 now_ns)
{
	return usher_queue_again(u, self, cid, now_ns);
}

void USHER_EXPORT(queue_taken)(struct usher *u, u32 cid, u32 queue)
{
	usher_queue_taken(u, cid, queue);
}

s32 USHER_EXPORT(walk_next)(struct usher *u, struct usher_walk *walk)
{
	return usher_walk_next(u, walk);
}

bool USHER_EXPORT(work_in_reach)(struct usher *u, u32 cid)
{
	return usher_work_in_reach(u, cid);
}

bool USHER_EXPORT(pinned_first)(struct usher *u, u32 cid, u64 own, u64 shared)
{
	return usher_pinned_first(u, cid, own, shared);
}

u64 USHER_EXPORT(vtime_at)(struct usher *u, u64 v, u32 queue)
{
	return usher_vtime_at(u, v, queue);
}

u64 USHER_EXPORT(vtime_enter)(struct usher *u, u64 v, u32 queue)
{
	return usher_vtime_enter(u, v, queue);
}

bool USHER_EXPORT(clock_behind)(struct usher *u, u64 v, u32 queue, u64 now_ns)
{
	return usher_clock_behind(u, v, queue, now_ns);
}

void USHER_EXPORT(clock_advance)(struct usher *u, u64 v, u32 queue, u64 first, u64 now_ns)
{
	usher_clock_advance(u, v, queue, first, now_ns);
}

u64 USHER_EXPORT(vtime_charge)(struct usher *u, u64 v, u32 cid, u64 ran_ns, u32 weight)
{
	return usher_vtime_charge(u, v, cid, ran_ns, weight);
}

u64 USHER_EXPORT(vtime_sleep)(struct usher *u, u64 v, u32 queue)
{
	return usher_vtime_sleep(u, v, queue);
}

u32 USHER_EXPORT(vtime_early)(struct usher *u, u64 v, u32 queue)
{
	return usher_vtime_early(u, v, queue);
}

u64 USHER_EXPORT(vtime_before)(struct usher *u, u64 v, u32 early)
{
	return usher_vtime_before(u, v, early);
}

u64 USHER_EXPORT(vtime_after)(struct usher *u, u64 v, u32 early)
{
	return usher_vtime_after(u, v, early);
}

void USHER_EXPORT(vtime_slept)(struct usher *u, u64 v, u32 queue)
{
	usher_vtime_slept(u, v, queue);
}

bool USHER_EXPORT(vtime_due)(struct usher *u, u64 v, u64 first, u32 queue, u32 weight, bool yields)
{
	return usher_vtime_due(u, v, first, queue, weight, yields);
}

void USHER_EXPORT(turn_begin)(struct usher *u, u32 cid, u64 v, u64 now_ns, u32 weight)
{
	usher_turn_begin(u, cid, &(struct usher_turn){ v, now_ns, weight });
}

s32 USHER_EXPORT(turn_cut)(struct usher *u, const struct usher_query *q, u64 v, u32 early, u64 now_ns, u32 weight)
{
	return usher_turn_cut(u, q, &(struct usher_turn){ v, now_ns, weight }, early);
}

bool USHER_EXPORT(hand)(struct usher *u, u32 self, u32 queue, u64 task)
{
	return usher_hand(u, self, queue, task);
}

u64 USHER_EXPORT(handed)(struct usher *u, u32 cid)
{
	return usher_handed(u, cid);
}

bool USHER_EXPORT(promised)(struct usher *u, u32 cid, u64 task)
{
	return usher_promised(u, cid, task);
}

bool USHER_EXPORT(take_handed)(struct usher *u, u32 cid, u64 first, u64 v, u32 weight, bool promised)
{
	return usher_take_handed(u, cid, first, &(struct usher_turn){ .vtime = v, .weight = weight }, promised);
}

bool USHER_EXPORT(pair_asks)(struct usher *u, u32 self, struct usher_pair *asks, u64 task, u32 paused, u64 now_ns)
{
	return usher_pair_asks(u, self, asks, task, paused, now_ns);
}

u32 USHER_EXPORT(pair_gives_way)(struct usher *u, u32 self, struct usher_pair *asks, u64 v, u64 now_ns, u32 weight,
				  u64 first)
{
	return usher_pair_gives_way(u, self, asks, &(struct usher_turn){ v, now_ns, weight }, first);
}

struct usher_decision USHER_EXPORT(pair_beside)(struct usher *u, const struct usher_request *r)
{
	return usher_pair_beside(u, r);
}

bool USHER_EXPORT(pair_apart)(struct usher *u, u32 self, struct usher_pair *asks, const struct usher_pair *answers, u32 prev)
{
	return usher_pair_apart(u, self, asks, answers, prev);
}

void USHER_EXPORT(pair_woke)(struct usher *u, u32 self, u64 now_ns)
{
	usher_pair_woke(u, self, now_ns);
}

bool USHER_EXPORT(pair_asked)(struct usher *u, u32 self)
{
	return usher_pair_asked(u, self);
}

void USHER_EXPORT(pair_sleeps)(struct usher *u, u32 self, struct usher_pair *asks, u64 now_ns)
{
	usher_pair_sleeps(u, self, asks, now_ns);
}

bool USHER_EXPORT(enough)(struct usher *u, u32 cid, const struct usher_demand *d)
{
	return usher_enough(u, cid, d);
}

u32 USHER_EXPORT(tiers_first)(struct usher *u, const struct usher_demand *d)
{
	return usher_tiers_first(u, d);
}

s32 USHER_EXPORT(balance)(struct usher *u, u32 cid)
{
	return usher_balance(u, cid);
}

void USHER_EXPORT(settle)(struct usher *u, u32 from, u32 to)
{
	usher_settle(u, from, to);
}

u32 USHER_EXPORT(hold)(struct usher *u, const struct usher_request *r, u32 *kept)
{
	return usher_hold(u, r, kept);
}

bool USHER_EXPORT(from_elsewhere)(struct usher *u, const struct usher_request *r)
{
	return usher_from_elsewhere(u, r);
}

void USHER_EXPORT(follow)(struct usher *u, struct usher_request *r, struct usher_follow *kept, u32 sleeps)
{
	usher_follow(u, r, kept, sleeps);
}

s32 USHER_EXPORT(cpu_node)(struct usher *u, u32 cpu)
{
	return usher_cpu_node(u, cpu);
}

s32 USHER_EXPORT(pick_idle_node)(struct usher *u, const struct usher_query *q, u32 node)
{
	return usher_pick_idle_node(u, q, node);
}

s32 USHER_EXPORT(pick_any_node)(struct usher *u, const struct usher_query *q, u32 node)
{
	return usher_pick_any_node(u, q, node);
}

s32 USHER_EXPORT(idle_set_node)(struct usher *u, u32 node, bool cores, struct usher_set *set)
{
	return usher_idle_set_node(u, node, cores, set);
}

void USHER_EXPORT(cpupri_set)(struct usher *u, u32 cid, u32 level)
{
	usher_cpupri_set(u, cid, level);
}

s32 USHER_EXPORT(cpupri_find)(struct usher *u, const struct usher_query *q, u32 below, u32 *level)
{
	return usher_cpupri_find(u, q, below, level);
}

s32 USHER_EXPORT(preempt)(struct usher *u, const struct usher_query *q, u32 class)
{
	return usher_preempt(u, q, class);
}

s32 USHER_EXPORT(preempt_pinned)(struct usher *u, u32 cid, u32 self, u32 class)
{
	return usher_preempt_pinned(u, cid, self, class);
}

void USHER_EXPORT(preempt_runs)(struct usher *u, u32 cid, u32 class)
{
	usher_preempt_runs(u, cid, class);
}

s32 USHER_EXPORT(misfit)(struct usher *u, const struct usher_request *r)
{
	return usher_misfit(u, r);
}

bool USHER_EXPORT(crowded)(struct usher *u, u32 cid, u64 now_ns)
{
	return usher_crowded(u, cid, now_ns);
}

s32 USHER_EXPORT(uncrowd)(struct usher *u, const struct usher_request *r, u64 now_ns)
{
	return usher_uncrowd(u, r, now_ns);
}

s32 USHER_EXPORT(misfit_call)(struct usher *u, u32 cid)
{
	return usher_misfit_call(u, cid);
}

bool USHER_EXPORT(take_instead)(struct usher *u, u32 cid, u64 first, u64 v, const struct usher_demand *d)
{
	return usher_take_instead(u, cid, first, v, d);
}

void USHER_EXPORT(util_ran)(struct usher *u, struct usher_util *t, u32 cid, u64 now_ns, u64 ran_ns)
{
	usher_util_ran(u, t, cid, now_ns, ran_ns);
}

void USHER_EXPORT(util_slept)(struct usher_util *t)
{
	usher_util_slept(t);
}

u32 USHER_EXPORT(util_now)(const struct usher_util *t, u64 now_ns)
{
	return usher_util_now(t, now_ns);
}
