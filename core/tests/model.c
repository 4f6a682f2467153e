/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs the scenarios of scenarios.h one step at a time, for a checker that decides about the order.
 * See env/model.h for how; USHER_PREFIX tells several builds of the core apart, mutants among them.
 */
#include <string.h>

#include "model.h"
#include "duties.h"
#include "levels.h"
#include "misfits.h"
#include "scenarios.h"

#define MODEL_PASTE_(prefix, name) usher_##prefix##_##name
#define MODEL_PASTE(prefix, name) MODEL_PASTE_(prefix, name)
#define MODEL_EXPORT(name) MODEL_PASTE(USHER_PREFIX, name)

/* What a step does to memory, and its answer. Direct mode only; the checker has its own. */
static u64 model_carry_out(u32 step, u64 *place, u64 value)
{
	u64 old = place ? *place : 0;

	switch (step) {
	case MODEL_WRITE:
		*place = value;
		break;
	case MODEL_OR:
		*place |= value;
		break;
	case MODEL_AND:
		*place &= value;
		break;
	case MODEL_ADD:
		*place += value;
		break;
	case MODEL_PUSH:
		++*place;
		break;
	case MODEL_POP:
		*place -= old > 0;
		break;
	default:
		break;
	}
	return old;
}

/* An actor's own clearing of idle bits: it must hold exactly the claims that it made. */
static void model_note_cleared(u64 *place, u64 cleared)
{
	u32 s, bit;

	for (s = 0; s < model.u->nr_shards; s++)
		for (bit = 0; bit < 64; bit++)
			if (model.u->shards[s].word == place && cleared >> bit & 1)
				model.outcome.spare[model.u->shards[s].base + bit]++;
}

/* The checker has no answer yet: stops here, for good. */
static __attribute__((noipa)) void model_stop(u32 step, u64 *place, u64 value)
{
	model.step = step;
	model.place = place;
	model.value = value;
	model.top = __builtin_frame_address(0);
	swapcontext(&model.actor, &model.checker);
	__builtin_unreachable();
}

/* Leaves nothing on the stack from which functions that have returned could be told. */
static __attribute__((noipa)) void model_scrub(void)
{
	volatile u64 *p = (u64 *)model.world->stack;

	while ((u8 *)p < (u8 *)__builtin_frame_address(0) - 64)
		*p++ = 0;
}

static __attribute__((noipa)) u64 model_answer(u32 step, u64 *place, u64 value)
{
	u64 answer;

	if (model.at == model.nr_answers)
		model_stop(step, place, value);
	answer = model.answers[model.at++];
	if (step == MODEL_AND)
		model_note_cleared(place, answer & ~value);
	return answer;
}

/*
 * All that the actor's future depends on besides shared memory is on its stack when this function
 * calls another: noipa makes the compiler keep to the calling convention, and the builtin saves the
 * registers that callees preserve.
 */
static __attribute__((noipa)) u64 model_access(u32 step, u64 *place, u64 value)
{
	u64 answer;

	if (model.direct)
		return model_carry_out(step, place, value);
	model_scrub();
	__builtin_unwind_init();
	answer = model_answer(step, place, value);
	model_scrub();
	return answer;
}

/* Two LLCs of two cids and a queue each at most, without siblings: enough for every pair of sides that a protocol has. */
static void model_build(struct model_world *world, const struct model_scenario *scenario)
{
	static const u32 cids[MODEL_CIDS] = { 0, 1, 2, 3 }, halves[MODEL_CIDS] = { 0, 0, 1, 1 };
	static const u32 zeros[MODEL_CIDS];
	u32 nr_llcs = scenario->nr_llcs, nr_nodes = scenario->nr_nodes, c;
	u32 capacity[MODEL_CIDS], tier[MODEL_CIDS];
	const u32 *llcs = nr_llcs == 1 ? zeros : halves;
	static const u32 distance[4] = { 10, 20, 20, 10 };
	struct usher_spec spec = {
		.nr_cids = MODEL_CIDS,
		.nr_shards = nr_llcs,
		.nr_llcs = nr_llcs,
		.nr_queues = nr_llcs,
		.nr_nodes = nr_nodes,
		.nr_cpu_ids = MODEL_CIDS,
		.granularity = USHER_SHARD,
		.slice_ns = 1000000,
		.patience_ns = 5000000000,
		.core_probes = 4,
		.cpupri = scenario->cpupri,
		.cpu = cids,
		.core = cids,
		.shard = llcs,
		.llc = llcs,
		.queue = llcs,
		.node = nr_nodes == 1 ? zeros : llcs,
		.capacity = capacity,
		.tier = tier,
		.node_id = cids,
		.distance = nr_nodes == 1 ? distance + 3 : distance,
	};

	for (c = 0; c < MODEL_CIDS; c++) {
		tier[c] = scenario->weak >> c & 1;
		capacity[c] = tier[c] ? 512 : 1024;
	}
	if (usher_bytes(&spec) > sizeof(world->tables))
		__builtin_trap(); /* a longer struct needs a larger MODEL_TABLE_WORDS */
	usher_build(&spec, world->tables);
	world->host.queued = world->queued;
	((struct usher *)world->tables)->host = &world->host;
	world->cpupri = scenario->cpupri;
}

static void model_enter(struct model_world *world, bool direct)
{
	model.world = world;
	model.u = (struct usher *)world->tables;
	model.direct = direct;
}

u64 MODEL_EXPORT(model_bytes)(void)
{
	return sizeof(struct model_world);
}

/* The longest state of model_next(). */
u32 MODEL_EXPORT(model_state_bytes)(void)
{
	return sizeof(struct usher_cpu) + sizeof(struct model_outcome) + MODEL_STACK;
}

const struct model_scenario *MODEL_EXPORT(model_scenario)(u32 index)
{
	return model_scenarios[index].name ? &model_scenarios[index] : NULL;
}

/* Sets a scene up in zeroed memory of model_bytes(). */
void MODEL_EXPORT(model_setup)(const struct model_scenario *scenario, struct model_world *world)
{
	u32 c;

	model_build(world, scenario);
	model_enter(world, true);
	scenario->setup(model.u);
	for (c = 0; c < MODEL_CIDS; c++)
		world->cpus[c] = model.u->cpus[c];
}

/* The CPU priority map: all levels that are in use. */
static u32 model_level_cells(struct usher *u, u32 *cells, u64 *start)
{
	u32 n = 0, l, i;

	for (l = 0; l < MODEL_LEVELS; l++) {
		u32 level = model_levels[l];

		for (i = 0; i < u->nr_shards; i++)
			cells[n++] = u->leaves[i].words + level * u->leaves[i].stride - start;
		for (i = 0; i < u->nr_nodes; i++)
			cells[n++] = u->cpupri_nodes[i].present + level * u->cpupri_nodes[i].words - start;
	}
	for (i = 0; i < u->nr_shards; i++)
		cells[n++] = u->leaves[i].words + USHER_TAKEN * u->leaves[i].stride - start;
	for (i = 0; i < u->nr_nodes; i++) {
		cells[n++] = u->cpupri_nodes[i].levels - start;
		cells[n++] = u->cpupri_nodes[i].levels + 1 - start;
	}
	return n;
}

/* Lists what actors share, as indices of words from the start of the world; returns how many. */
u32 MODEL_EXPORT(model_cells)(struct model_world *world, u32 *cells, u32 max)
{
	struct usher *u = (struct usher *)world->tables;
	u64 *start = (u64 *)world;
	u32 n = 0, i;

	if (max < 11 * MODEL_LLCS + 2 * MODEL_CIDS + 2 + 2 * (MODEL_LEVELS + 1) * MODEL_LLCS + MODEL_LLCS + 1)
		__builtin_trap();
	for (i = 0; i < u->nr_shards; i++)
		cells[n++] = u->shards[i].word - start;
	for (i = 0; i < u->nr_nodes; i++) {
		cells[n++] = u->nodes[i].summary - start;
		cells[n++] = u->nodes[i].backlog - start;
		cells[n++] = u->nodes[i].near - start;
	}
	for (i = 0; i < u->nr_queues; i++) {
		cells[n++] = &u->queues[i].clock->now - start;
		cells[n++] = &u->queues[i].clock->latest - start;
		cells[n++] = &u->queues[i].clock->mark - start;
		cells[n++] = &u->queues[i].clock->mark_ns - start;
		cells[n++] = &u->queues[i].clock->pushed - start;
		cells[n++] = &u->queues[i].clock->gap_ns - start;
		cells[n++] = &u->queues[i].clock->waits_ns - start;
		cells[n++] = &world->queued[i] - start;
	}
	for (i = 0; i < u->nr_cids; i++) {
		cells[n++] = &world->local[i] - start;
		cells[n++] = &world->kicked[i] - start;
	}
	if (u->asymmetric)
		cells[n++] = u->misfits - start;
	return world->cpupri ? n + model_level_cells(u, cells + n, start) : n;
}

static void model_run(void)
{
	model.scenario->actor(model.u, model.index);
	model_access(MODEL_DONE, NULL, 0);
}

/* Appends to what tells the actor's states apart. */
static u32 model_save(u8 *state, u32 at, const void *from, u32 bytes)
{
	memcpy(state + at, from, bytes);
	return at + bytes;
}

/*
 * Where an actor stands that got these answers: its next step; in state, of model_state_bytes(),
 * all that its future depends on besides shared memory; and what it did before. Returns the length
 * of state.
 */
u32 MODEL_EXPORT(model_next)(const struct model_scenario *scenario, struct model_world *world, u32 actor,
			     const u64 *answers, u32 nr_answers, u32 *step, u32 *cell, u64 *value,
			     u8 *state, struct model_outcome *outcome)
{
	struct usher_cpu *own;
	u32 bytes = 0, c;

	model_enter(world, false);
	model.scenario = scenario;
	model.index = actor;
	model.answers = answers;
	model.nr_answers = nr_answers;
	model.at = 0;
	memset(&model.outcome, 0, sizeof(model.outcome));
	memset(world->stack, 0, sizeof(world->stack));
	for (c = 0; c < MODEL_CIDS; c++)
		model.u->cpus[c] = world->cpus[c];
	getcontext(&model.actor);
	model.actor.uc_stack.ss_sp = world->stack;
	model.actor.uc_stack.ss_size = sizeof(world->stack);
	model.actor.uc_link = NULL;
	makecontext(&model.actor, model_run, 0);
	swapcontext(&model.checker, &model.actor);

	*step = model.step;
	*cell = model.place ? model.place - (u64 *)world : 0;
	*value = model.value;
	*outcome = model.outcome;
	own = &model.u->cpus[actor];
	bytes = model_save(state, bytes, own, offsetof(struct usher_cpu, reasons));
	bytes = model_save(state, bytes, outcome, sizeof(*outcome));
	if (model.step == MODEL_DONE)
		return bytes;
	return model_save(state, bytes, model.top, world->stack + MODEL_STACK - model.top);
}

/* Everything came to rest, and the cells hold what they hold. NULL, or what is wrong. */
const char *MODEL_EXPORT(model_verdict)(const struct model_scenario *scenario, struct model_world *world,
					const struct model_outcome *outcomes)
{
	model_enter(world, true);
	return scenario->verdict(model.u, outcomes);
}

const char *MODEL_EXPORT(model_name)(const struct model_scenario *scenario)
{
	return scenario->name;
}

u32 MODEL_EXPORT(model_nr_actors)(const struct model_scenario *scenario)
{
	return scenario->nr_actors;
}

const char *MODEL_EXPORT(model_actor_name)(const struct model_scenario *scenario, u32 actor)
{
	return scenario->actors[actor];
}

/* A cell of the CPU priority map, or NULL. Its shard or node in *index. */
static const char *model_level_name(struct usher *u, u64 *place, u32 *index)
{
	static const char *const words[MODEL_LEVELS] = { "CPUs at level 0 of shard", "CPUs at level 1 of shard",
							 "CPUs at level 2 of shard", "CPUs at level 3 of shard",
							 "CPUs at level 70 of shard" };
	static const char *const present[MODEL_LEVELS] = { "shards at level 0 of node", "shards at level 1 of node",
							   "shards at level 2 of node", "shards at level 3 of node",
							   "shards at level 70 of node" };
	u32 i, l;

	for (i = 0; i < u->nr_shards; i++)
		for (l = 0; l < MODEL_LEVELS; l++) {
			*index = i;
			if (place == u->leaves[i].words + model_levels[l] * u->leaves[i].stride)
				return words[l];
			if (place == u->leaves[i].words + USHER_TAKEN * u->leaves[i].stride)
				return "CPUs being preempted of shard";
			if (i >= u->nr_nodes)
				continue;
			if (place == u->cpupri_nodes[i].present + model_levels[l] * u->cpupri_nodes[i].words)
				return present[l];
			if (place == u->cpupri_nodes[i].levels)
				return "levels 0 to 63 of node";
			if (place == u->cpupri_nodes[i].levels + 1)
				return "levels 64 to 100 of node";
		}
	return NULL;
}

/* For the trace of a failure: the name of a cell. Its index in *index. */
const char *MODEL_EXPORT(model_cell_name)(struct model_world *world, u32 cell, u32 *index)
{
	struct usher *u = (struct usher *)world->tables;
	u64 *place = (u64 *)world + cell;
	const char *name = world->cpupri ? model_level_name(u, place, index) : NULL;

	if (name)
		return name;
	for (*index = 0; *index < MODEL_CIDS; ++*index) {
		if (*index < u->nr_shards && place == u->shards[*index].word)
			return "idle bits of shard";
		if (*index < u->nr_nodes && place == u->nodes[*index].summary)
			return "summary of node";
		if (*index < u->nr_nodes && place == u->nodes[*index].backlog)
			return "backlog of node";
		if (*index < u->nr_nodes && place == u->nodes[*index].near)
			return "backlog of node's own LLCs";
		if (*index < u->nr_queues && place >= &u->queues[*index].clock->now && place <= &u->queues[*index].clock->waits_ns)
			return "clock of queue";
		if (*index < u->nr_queues && place == &world->queued[*index])
			return "length of queue";
		if (place == &world->local[*index])
			return "tasks handed to cid";
		if (place == &world->kicked[*index])
			return "kick of cid";
	}
	return "unknown word";
}
