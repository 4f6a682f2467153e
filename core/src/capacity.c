/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Capacity: how much a task runs, what it asks of a CPU, and which CPUs are enough for it.
 *
 * A CPU's capacity is the work it does, in 1024ths of what the strongest CPU does in the same time. The
 * utilisation of a task is in the same unit: what it ran, for each stretch of time times the capacity of the
 * CPU it ran on, as a geometric average in which what was 32 periods of 2^20 ns ago (33.6 ms) counts half,
 * as in the kernel's load tracking (y^32 = 1/2). Time that it waits or sleeps counts as nothing. The kernel adds
 * up whole periods and divides; here the average itself decays, over any time in steps of 2^10 ns, by
 * three look-ups and three multiplications, and nothing is divided.
 *
 * A task is born with half of what the CPU has on which it first runs, as in the kernel (post_init_entity_util_avg()
 * of an otherwise idle CPU): it is taken neither for heavy nor for light before it has shown what it is. While it sleeps the
 * average fades, and a task that does much now and then would wake as a light one; so what it was
 * whenever it went to sleep is averaged too, rising at once and falling by a quarter a time (the kernel's util_est),
 * and the larger of the two is asked for.
 *
 *   fits      a CPU is enough for a task that uses less than 80 % of it
 *   greater   a CPU is stronger than another by more than 5.3 %; what is within that counts as equal
 *
 * The factors are the kernel's. The strongest CPUs are enough for everybody. A clamp (uclamp) says that a CPU of that
 * capacity is enough whatever the utilisation (max), or that one below it is not (min).
 *
 * Where no CPU is greater than another, struct usher.asymmetric is 0, nobody asks, and no utilisation
 * need be kept.
 */
#ifndef USHER_CAPACITY_C
#define USHER_CAPACITY_C

#include "../include/usher/usher.h"

#define USHER_UTIL_SHIFT 20	 /* fraction bits of struct usher_util.average */
#define USHER_UTIL_STEP_SHIFT 10 /* of time: 2^10 ns */
#define USHER_UTIL_HALF_SHIFT 15 /* so many of those until half is left: 32 periods of 32 x 32 steps */

/* (2^32 - 1) * y^n, n periods of 2^20 ns. */
static const u32 usher_decay_periods[32] = {
	0xffffffff, 0xfa83b2da, 0xf5257d14, 0xefe4b99a, 0xeac0c6e6, 0xe5b906e6, 0xe0ccdeeb, 0xdbfbb796,
	0xd744fcc9, 0xd2a81d91, 0xce248c14, 0xc9b9bd85, 0xc5672a10, 0xc12c4cc9, 0xbd08a39e, 0xb8fbaf46,
	0xb504f333, 0xb123f581, 0xad583ee9, 0xa9a15ab4, 0xa5fed6a9, 0xa2704302, 0x9ef5325f, 0x9b8d39b9,
	0x9837f050, 0x94f4efa8, 0x91c3d373, 0x8ea4398a, 0x8b95c1e3, 0x88980e80, 0x85aac367, 0x82cd8698,
};

/* (2^32 - 1) * y^(n / 32). */
static const u32 usher_decay_parts[32] = {
	0xffffffff, 0xffd3a750, 0xffa75651, 0xff7b0cfe, 0xff4ecb58, 0xff22915c, 0xfef65f09, 0xfeca345f,
	0xfe9e115b, 0xfe71f5fc, 0xfe45e242, 0xfe19d62a, 0xfdedd1b3, 0xfdc1d4dc, 0xfd95dfa5, 0xfd69f20a,
	0xfd3e0c0b, 0xfd122da8, 0xfce656dd, 0xfcba87ab, 0xfc8ec010, 0xfc63000a, 0xfc374798, 0xfc0b96b9,
	0xfbdfed6b, 0xfbb44bae, 0xfb88b180, 0xfb5d1edf, 0xfb3193cb, 0xfb061041, 0xfada9442, 0xfaaf1fca,
};

/* (2^32 - 1) * y^(n / 1024). */
static const u32 usher_decay_steps[32] = {
	0xffffffff, 0xfffe9d1b, 0xfffd3a3a, 0xfffbd75b, 0xfffa747d, 0xfff911a2, 0xfff7aec8, 0xfff64bf0,
	0xfff4e91a, 0xfff38647, 0xfff22375, 0xfff0c0a5, 0xffef5dd7, 0xffedfb0a, 0xffec9840, 0xffeb3578,
	0xffe9d2b1, 0xffe86fed, 0xffe70d2a, 0xffe5aa6a, 0xffe447ab, 0xffe2e4ee, 0xffe18233, 0xffe01f7a,
	0xffdebcc3, 0xffdd5a0e, 0xffdbf75b, 0xffda94aa, 0xffd931fa, 0xffd7cf4d, 0xffd66ca2, 0xffd509f8,
};

/* What is left of value after so many nanoseconds. */
USHER_FN u32 usher_decay(u32 value, u64 ns)
{
	u64 steps = (ns + (1u << (USHER_UTIL_STEP_SHIFT - 1))) >> USHER_UTIL_STEP_SHIFT;
	u64 left = value;

	if (steps >> USHER_UTIL_HALF_SHIFT > 31)
		return 0;
	left >>= steps >> USHER_UTIL_HALF_SHIFT & 31;
	left = left * usher_decay_periods[steps >> 10 & 31] >> 32;
	left = left * usher_decay_parts[steps >> 5 & 31] >> 32;
	return (u32)(left * usher_decay_steps[steps & 31] >> 32);
}

/*
 * A task has run for ran_ns on cid until now, or so far; before, since the last call, it waited or slept. Clocks of
 * different CPUs may disagree: time that would be negative is none.
 */
USHER_FN void usher_util_ran(struct usher USHER_MEM *u, struct usher_util *t, u32 cid, u64 now_ns, u64 ran_ns)
{
	u32 full = u->cids[cid].capacity << USHER_UTIL_SHIFT;
	s64 past = (s64)(now_ns - t->at_ns);

	if (!t->at_ns)
		t->average = full / 2;
	else if (past > (s64)ran_ns)
		t->average = usher_decay(t->average, past - ran_ns);
	if (t->average > full)
		t->average = full + usher_decay(t->average - full, ran_ns);
	else
		t->average = full - usher_decay(full - t->average, ran_ns);
	t->at_ns = now_ns;
	env_write(u, &u->cpus[cid].ran_ns, now_ns);
}

/* The task goes to sleep; usher_util_ran() came before. */
USHER_FN void usher_util_slept(struct usher_util *t)
{
	u32 util = t->average >> USHER_UTIL_SHIFT;

	t->settled = util > t->settled ? util : t->settled - (t->settled - util + 2) / 4;
}

/* The utilisation of a task that has not run since the last call: at least 1, or 0 if it never ran. */
USHER_FN u32 usher_util_now(const struct usher_util *t, u64 now_ns)
{
	s64 past = (s64)(now_ns - t->at_ns);
	u32 util;

	if (!t->at_ns)
		return 0;
	util = usher_decay(t->average, past > 0 ? past : 0) >> USHER_UTIL_SHIFT;
	if (util < t->settled)
		util = t->settled;
	return util ? util : 1;
}

/* Whether a CPU of this capacity is stronger than one of that by more than counts as equal. */
USHER_FN bool usher_greater(u32 a, u32 b)
{
	return a * 1024 > b * 1078;
}

/* The least capacity that is enough for a task, whatever the strongest CPU has. */
USHER_FN u32 usher_need(const struct usher_demand *d)
{
	u32 min = d->clamp_max && d->clamp_max < d->clamp_min ? d->clamp_max : d->clamp_min;
	u32 need = d->util * 1280u / 1024 + 1;

	if (d->clamp_max && need > d->clamp_max)
		need = d->clamp_max;
	return need < min ? min : need;
}

/*
 * Sets of tiers, a bit each. What a kernel checks before it runs it follows at every branch, so these have none: bit 31 of a
 * difference says which of two was less.
 */

/* The tiers that are enough for a task. The strongest always are. */
USHER_FN u32 usher_tiers_fit(struct usher USHER_MEM *u, const struct usher_demand *d)
{
	u32 need = usher_need(d), fit = u->top_tiers, t;

	for (t = 0; t < USHER_MAX_TIERS; t++)
		fit |= (need - 1 - u->tier_capacity[t]) >> 31 << t;
	return fit & u->tiers;
}

/* Whether cid is enough for a task, as all are where they are equal. */
USHER_FN bool usher_enough(struct usher USHER_MEM *u, u32 cid, const struct usher_demand *d)
{
	return !env_asymmetric(u) || usher_tiers_fit(u, d) >> (u->cids[cid].tier & 31) & 1;
}

/* The tiers that a search for a CPU for this task begins with; 0 where CPUs are equal: with all. */
USHER_FN u32 usher_tiers_first(struct usher USHER_MEM *u, const struct usher_demand *d)
{
	return env_asymmetric(u) ? usher_tiers_fit(u, d) : 0;
}

USHER_FN u32 usher_tier_capacity(struct usher USHER_MEM *u, u32 tier)
{
	return u->tier_capacity[tier & (USHER_MAX_TIERS - 1)];
}

/* A task that needs no more than this part of the weakest CPU is light. */
#define USHER_LIGHT_PART 4

/* Whether a task is light. Of a newborn nothing is known yet. */
USHER_FN bool usher_light(struct usher USHER_MEM *u, const struct usher_demand *d)
{
	return d->util && usher_need(d) <= u->light_need;
}

/* A time in periods of 2^20 ns, as far as 16 bits go: somewhat over a minute. */
USHER_FN u32 usher_periods(u64 ns)
{
	return ns >> 20 & 0xffff;
}

/* A CPU on which nobody has run for so many periods is vacant: unless it runs seldom, no task will come back to it. */
#define USHER_VACANT 128

/* One on which nobody has run for so many is calm: who runs there now and then does not come at once. */
#define USHER_CALM 32

/* For how many periods, up to that, nobody has run on cid. */
USHER_FN u32 usher_idle_for(struct usher USHER_MEM *u, u32 cid, u32 at)
{
	u64 ran_ns = env_read(u, &u->cpus[cid].ran_ns);
	u32 idle_for = (at - usher_periods(ran_ns)) & 0xffff;

	return !ran_ns || idle_for > USHER_VACANT ? USHER_VACANT : idle_for;
}

/* The tiers whose CPUs are greater than those of this one. */
USHER_FN u32 usher_tiers_greater(struct usher USHER_MEM *u, u32 than)
{
	u32 capacity = usher_tier_capacity(u, than), greater = 0, t;

	for (t = 0; t < USHER_MAX_TIERS; t++)
		greater |= (capacity * 1078 - u->tier_capacity[t] * 1024) >> 31 << t;
	return greater & u->tiers;
}

/*
 * A CPU without work takes who comes first in a queue; where CPUs differ, it prefers one it is enough for among the
 * first USHER_FIT_LOOK, if that one comes at most a slice after the first: so nobody is passed over
 * for longer than others take to fall a slice behind. Whether it takes the task at v rather than the first.
 */
#define USHER_FIT_LOOK 4

USHER_FN bool usher_take_instead(struct usher USHER_MEM *u, u32 cid, u64 first, u64 v, const struct usher_demand *d)
{
	if (!env_asymmetric(u) || (s64)(v - first) > (s64)u->slice_ns)
		return false;
	return usher_enough(u, cid, d);
}

#endif
