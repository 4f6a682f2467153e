// SPDX-License-Identifier: GPL-2.0-only
//! Goal: the interleaving checker would notice if a line of the protocols were wrong. Method: copies of
//! the core in each of which one line is missing, weaker, or in the wrong place. Each is compiled with the
//! checker's environment, loaded, and put through the scenarios; one of them must fail. So must no scenario on a copy
//! without a change, or the table below would mean nothing.
//!
//! Rules that are no protocol, where tasks go on CPUs of different capacity and who gives way, have mutants of their own ([`RULES`]):
//! those are compared with the plain model of `tests/reference`.
//!
//! `make mutants` runs it.

#[allow(dead_code)] // the other test needs more of these
#[path = "reference/capacity.rs"]
mod capacity;
#[allow(dead_code)]
#[path = "reference/cases.rs"]
mod cases;
#[allow(dead_code)]
#[path = "reference/machine.rs"]
mod machine;
#[path = "reference/ops.rs"]
mod ops;
#[path = "reference/pairs.rs"]
mod pairs;
#[allow(dead_code)]
#[path = "reference/plain.rs"]
mod plain;
#[path = "reference/random.rs"]
mod random;
#[path = "reference/run.rs"]
mod run;
#[path = "reference/utilisation.rs"]
mod utilisation;

use std::ffi::{c_void, CStr, CString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use usher_core::model::{Build, Failure};
use usher_core::{Granularity, Library};

use machine::{Machine, MUTANT};
use random::Random;

/// One change to the core's sources.
struct Mutant {
    name: &'static str,
    /// What the line is there for.
    breaks: &'static str,
    file: &'static str,
    was: &'static str,
    is: &'static str,
}

/// The scenarios that mutants go through; the order is that of the search for a failure, those with most states last.
const SCENARIOS: &[&str] = &[
    "misfit_against_call",
    "claim_against_claim",
    "claim_against_idle_again",
    "take_against_look",
    "fill_against_idle",
    "raise_against_find",
    "raise_against_find_lowest",
    "set_against_retire",
    "preempt_against_preempt",
    "three_preempt",
    "pinned_against_preempt",
    "pinned_against_rise",
    "pinned_in_turn",
    "look_against_retire",
    "idle_against_retire",
    "wake_against_idle",
    "retire_against_retire",
];

/// Then those too large for all orders, with so many interruptions of actors at most.
const BOUNDED: &[(&str, u8)] = &[
    ("idle_against_queue", 3),
    ("two_tasks_against_retire", 3),
    ("late_queue_against_idle", 3),
    ("interrupt_against_idle", 3),
];

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "misfit-mark-plain",
        breaks: "who marks its CPU leaves the marks of others as they are",
        file: "fit.c",
        was: "\tenv_fetch_or(u, word, bit);\n\tenv_count(u, self, USHER_EV_MISFIT_WAITS);\n",
        is: "\tenv_write(u, word, env_read(u, word) | bit);\n",
    },
    Mutant {
        name: "misfit-unmark-plain",
        breaks: "who takes its mark back leaves the marks of others as they are",
        file: "fit.c",
        was: "\t\tenv_fetch_and(u, word, ~bit);\n\t\treturn;\n",
        is: "\t\tenv_write(u, word, env_read(u, word) & ~bit);\n\t\treturn;\n",
    },
    Mutant {
        name: "misfit-call-unchecked",
        breaks: "one CPU calls for a task",
        file: "fit.c",
        was: "\t\t\tif (!(env_fetch_and(u, &u->misfits[w], ~bit) & bit))\n\t\t\t\tcontinue;\n",
        is: "\t\t\tenv_fetch_and(u, &u->misfits[w], ~bit);\n",
    },
    Mutant {
        name: "misfit-unmarked",
        breaks: "a heavy task that finds nobody is marked",
        file: "fit.c",
        was: "\tenv_fetch_or(u, word, bit);\n\tenv_count(u, self, USHER_EV_MISFIT_WAITS);\n",
        is: "\tenv_count(u, self, USHER_EV_MISFIT_WAITS);\n",
    },
    Mutant {
        name: "claim-unchecked",
        breaks: "who clears a bit owns the CPU only if it was set",
        file: "idle.c",
        was: "\treturn env_fetch_and(u, shard->word, ~bit) & bit;",
        is: "\tenv_fetch_and(u, shard->word, ~bit);\n\treturn true;",
    },
    Mutant {
        name: "claim-not-atomic",
        breaks: "a claim is one atomic, not a load and a store",
        file: "idle.c",
        was: "\treturn env_fetch_and(u, shard->word, ~bit) & bit;",
        is: "\tu64 old = env_read(u, shard->word);\n\n\tenv_write(u, shard->word, old & ~bit);\n\treturn old & bit;",
    },
    Mutant {
        name: "idle-by-shard",
        breaks: "whether a CPU is idle is its own bit, not its shard's",
        file: "idle.c",
        was: "\treturn usher_shard_idle(u, &u->shards[c->shard]) >> (c->bit & 63) & 1;",
        is: "\treturn usher_shard_idle(u, &u->shards[c->shard]);",
    },
    Mutant {
        name: "publish-no-summary",
        breaks: "a CPU going idle names its shard in the summary",
        file: "idle.c",
        was: "\tif (!(env_read(u, shard->summary) & shard->summary_bit))\n\t\tenv_fetch_or(u, shard->summary, shard->summary_bit);\n}\n\n/*\n * Publishes the CPU, then",
        is: "}\n\n/*\n * Publishes the CPU, then",
    },
    Mutant {
        name: "publish-summary-first",
        breaks: "the idle bit is set before the summary is looked at",
        file: "idle.c",
        was: "\tenv_fetch_or(u, shard->word, 1ULL << (c->bit & 63));\n\tif (!(env_read(u, shard->summary) & shard->summary_bit))\n\t\tenv_fetch_or(u, shard->summary, shard->summary_bit);\n",
        is: "\tif (!(env_read(u, shard->summary) & shard->summary_bit))\n\t\tenv_fetch_or(u, shard->summary, shard->summary_bit);\n\tenv_fetch_or(u, shard->word, 1ULL << (c->bit & 63));\n",
    },
    Mutant {
        name: "idle-look-first",
        breaks: "mark idle, then look for work",
        file: "idle.c",
        was: "\tusher_idle_publish(u, cid);\n\tif (!usher_work_in_reach(u))\n\t\treturn false;\n",
        is: "\tbool work = usher_work_in_reach(u);\n\n\tusher_idle_publish(u, cid);\n\tif (!work)\n\t\treturn false;\n",
    },
    Mutant {
        name: "idle-no-look",
        breaks: "a CPU that marked itself idle looks for work",
        file: "idle.c",
        was: "\tif (!usher_work_in_reach(u))\n\t\treturn false;\n",
        is: "\treturn false;\n",
    },
    Mutant {
        name: "again-no-publish",
        breaks: "a CPU claimed for nothing goes back into the map",
        file: "idle.c",
        was: "\tenv_count(u, cid, USHER_EV_IDLE_REENTERED);\n\treturn usher_idle_look(u, cid);",
        is: "\tenv_count(u, cid, USHER_EV_IDLE_REENTERED);\n\treturn usher_work_in_reach(u);",
    },
    Mutant {
        name: "exit-no-poke",
        breaks: "a CPU claimed for one task that runs another passes the errand on",
        file: "idle.c",
        was: "\tif (!usher_test_and_clear(u, cid))\n\t\tu->cpus[cid].poke = 1;",
        is: "\tusher_test_and_clear(u, cid);",
    },
    Mutant {
        name: "exit-keeps-bit",
        breaks: "a CPU that runs something takes itself out of the map",
        file: "idle.c",
        was: "\tif (!usher_test_and_clear(u, cid))\n\t\tu->cpus[cid].poke = 1;",
        is: "\tu->cpus[cid].poke = 1;",
    },
    Mutant {
        name: "retire-no-second-look",
        breaks: "who cleared a summary bit looks at the shard again",
        file: "idle.c",
        was: "\tif (!usher_shard_idle(u, shard))\n\t\treturn false;\n\tenv_fetch_or(u, shard->summary, shard->summary_bit);",
        is: "\treturn false;",
    },
    Mutant {
        name: "retire-look-first",
        breaks: "clear the summary bit, then look again",
        file: "idle.c",
        was: "\tenv_fetch_and(u, shard->summary, ~shard->summary_bit);\n\tenv_count(u, self, USHER_EV_SUMMARY_RETIRED);\n\tif (!usher_shard_idle(u, shard))\n\t\treturn false;",
        is: "\tif (!usher_shard_idle(u, shard)) {\n\t\tenv_fetch_and(u, shard->summary, ~shard->summary_bit);\n\t\treturn false;\n\t}\n\tenv_count(u, self, USHER_EV_SUMMARY_RETIRED);",
    },
    Mutant {
        name: "retire-no-poke",
        breaks: "who hid an idle CPU for a moment looks on behalf of others",
        file: "idle.c",
        was: "\tenv_fetch_or(u, shard->summary, shard->summary_bit);\n\tu->cpus[self].poke = 1;",
        is: "\tenv_fetch_or(u, shard->summary, shard->summary_bit);",
    },
    Mutant {
        name: "fill-no-backlog",
        breaks: "a filled queue is announced",
        file: "queue.c",
        was: "\tif (!(env_read(u, l->backlog) & l->backlog_bit))\n\t\tenv_fetch_or(u, l->backlog, l->backlog_bit);",
        is: "",
    },
    Mutant {
        name: "fill-no-barrier",
        breaks: "the task is in the queue before the filler looks for an idle CPU",
        file: "queue.c",
        was: "\tenv_barrier(u);\n",
        is: "",
    },
    Mutant {
        name: "backlog-no-second-look",
        breaks: "who cleared a backlog bit looks at the queue again",
        file: "queue.c",
        was: "\tif (!env_queued(u, llc))\n\t\treturn false;\n\tenv_fetch_or(u, l->backlog, l->backlog_bit);",
        is: "\treturn false;",
    },
    Mutant {
        name: "backlog-no-poke",
        breaks: "who hid a queue for a moment looks on behalf of others",
        file: "queue.c",
        was: "\tenv_fetch_or(u, l->backlog, l->backlog_bit);\n\tu->cpus[self].poke = 1;",
        is: "\tenv_fetch_or(u, l->backlog, l->backlog_bit);",
    },
    Mutant {
        name: "late-look-forgets",
        breaks: "who filled a queue too early looks once more",
        file: "queue.c",
        was: "\tme->look = llc + 1;\n",
        is: "",
    },
    Mutant {
        name: "rescue-forgets",
        breaks: "a rescue sends an idle CPU to the queues",
        file: "place.c",
        was: "\tu->cpus[self].poke = 0;\n",
        is: "\tu->cpus[self].poke = 0;\n\treturn USHER_NONE_IDLE;\n",
    },
    Mutant {
        name: "level-remove-first",
        breaks: "a CPU enters its new level before it leaves the old one",
        file: "cpupri.c",
        was: "\tif (new) {\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t\tusher_cpupri_name(u, leaf, level);\n\t}\n\t/* 3. */\n\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n",
        is: "\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n\tif (new) {\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t\tusher_cpupri_name(u, leaf, level);\n\t}\n",
    },
    Mutant {
        name: "level-named-late",
        breaks: "the new level is in the summaries before the old one is left",
        file: "cpupri.c",
        was: "\tif (new) {\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t\tusher_cpupri_name(u, leaf, level);\n\t}\n\t/* 3. */\n\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n",
        is: "\tif (new)\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n\tif (new)\n\t\tusher_cpupri_name(u, leaf, level);\n",
    },
    Mutant {
        name: "level-named-first",
        breaks: "the leaf's bit is set before the summaries are looked at",
        file: "cpupri.c",
        was: "\tif (new) {\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t\tusher_cpupri_name(u, leaf, level);\n\t}\n",
        is: "\tif (new) {\n\t\tusher_cpupri_name(u, leaf, level);\n\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n\t}\n",
    },
    Mutant {
        name: "level-not-atomic",
        breaks: "a leaf's bit is set by one atomic, not by a load and a store",
        file: "cpupri.c",
        was: "\t\tenv_fetch_or(u, leaf->words + level * leaf->stride, bit);\n",
        is: "\t\tu64 USHER_MEM *word = leaf->words + level * leaf->stride;\n\n\t\tenv_write(u, word, env_read(u, word) | bit);\n",
    },
    Mutant {
        name: "level-stays",
        breaks: "a CPU leaves its old level",
        file: "cpupri.c",
        was: "\tif (old)\n\t\tenv_fetch_and(u, leaf->words + (old - 1) * leaf->stride, ~bit);\n",
        is: "\t(void)old;\n",
    },
    Mutant {
        name: "level-no-present",
        breaks: "who enters a level names the shard in the node's map",
        file: "cpupri.c",
        was: "\tif (!(env_read(u, present) & leaf->present_bit))\n\t\tenv_fetch_or(u, present, leaf->present_bit);\n",
        is: "\t(void)present;\n",
    },
    Mutant {
        name: "level-no-summary",
        breaks: "who enters a level names it in the summary",
        file: "cpupri.c",
        was: "\tif (!(env_read(u, levels) & bit))\n\t\tenv_fetch_or(u, levels, bit);\n}",
        is: "\t(void)levels;\n\t(void)bit;\n}",
    },
    Mutant {
        name: "leaf-no-second-look",
        breaks: "who cleared a shard's bit looks at the leaf again",
        file: "cpupri.c",
        was: "\tif (!usher_cpupri_at(u, shard, level))\n\t\treturn false;\n\tusher_cpupri_name(u, leaf, level);\n\treturn true;\n",
        is: "\treturn false;\n",
    },
    Mutant {
        name: "leaf-look-first",
        breaks: "clear the shard's bit, then look again",
        file: "cpupri.c",
        was: "\tenv_fetch_and(u, leaf->present + level * leaf->present_stride, ~leaf->present_bit);\n\tif (!usher_cpupri_at(u, shard, level))\n\t\treturn false;\n",
        is: "\tif (!usher_cpupri_at(u, shard, level)) {\n\t\tenv_fetch_and(u, leaf->present + level * leaf->present_stride, ~leaf->present_bit);\n\t\treturn false;\n\t}\n",
    },
    Mutant {
        name: "leaf-half-restored",
        breaks: "who restores a shard's bit restores the level's, too",
        file: "cpupri.c",
        was: "\tusher_cpupri_name(u, leaf, level);\n\treturn true;\n",
        is: "\tenv_fetch_or(u, leaf->present + level * leaf->present_stride, leaf->present_bit);\n\treturn true;\n",
    },
    Mutant {
        name: "level-no-second-look",
        breaks: "who cleared a level's bit looks at the node's map again",
        file: "cpupri.c",
        was: "\tenv_fetch_and(u, levels, ~bit);\n\tif (usher_cpupri_present(u, node, level))\n\t\tenv_fetch_or(u, levels, bit);\n",
        is: "\tenv_fetch_and(u, levels, ~bit);\n",
    },
    Mutant {
        name: "find-old-summary",
        breaks: "a search reads the summary of levels anew after each level",
        file: "cpupri.c",
        was: "\t\t\tcid = usher_cpupri_search_node(u, s, n, level);\n\t\t\tif (cid >= 0)\n\t\t\t\treturn cid;\n\t\t\tenv_read_barrier(u); /* as in usher_cpupri_search_own() */\n\t\t}\n",
        is: "\t\t\tcid = usher_cpupri_search_node(u, s, n, level);\n\t\t\tif (cid >= 0)\n\t\t\t\treturn cid;\n\t\t\tbreak;\n\t\t}\n",
    },
    Mutant {
        name: "preempt-unchecked",
        breaks: "who marks a CPU takes it only if it was not marked",
        file: "preempt.c",
        was: "\treturn !(env_fetch_or(u, leaf->words + USHER_TAKEN * leaf->stride, bit) & bit);",
        is: "\tenv_fetch_or(u, leaf->words + USHER_TAKEN * leaf->stride, bit);\n\treturn true;",
    },
    Mutant {
        name: "preempt-once",
        breaks: "who loses the race for a CPU tries another one",
        file: "preempt.c",
        was: "\t\tenv_count(u, query->self, USHER_EV_PREEMPT_LOST);\n",
        is: "\t\tenv_count(u, query->self, USHER_EV_PREEMPT_LOST);\n\t\tbreak;\n",
    },
    Mutant {
        name: "preempt-not-marked",
        breaks: "a search passes over CPUs that are being preempted",
        file: "cpupri.c",
        was: "\tif (s->q.flags & USHER_UNTAKEN)\n",
        is: "\tif (0)\n",
    },
    Mutant {
        name: "preempt-not-atomic",
        breaks: "a CPU is marked by one atomic, not by a load and a store",
        file: "preempt.c",
        was: "\treturn !(env_fetch_or(u, leaf->words + USHER_TAKEN * leaf->stride, bit) & bit);",
        is: "\tu64 USHER_MEM *word = leaf->words + USHER_TAKEN * leaf->stride;\n\tu64 old = env_read(u, word);\n\n\tenv_write(u, word, old | bit);\n\treturn !(old & bit);",
    },
    Mutant {
        name: "pinned-unmarked",
        breaks: "who may run on one CPU only marks it, too",
        file: "preempt.c",
        was: "\t\tif (usher_preempt_mark(u, cid)) {\n\t\t\tenv_count(u, self, USHER_EV_PREEMPT_LLC);",
        is: "\t\tif (1) {\n\t\t\tenv_count(u, self, USHER_EV_PREEMPT_LLC);",
    },
    Mutant {
        name: "pinned-unchecked",
        breaks: "who may run on one CPU only takes it only if it was not marked",
        file: "preempt.c",
        was: "\t\tif (usher_preempt_mark(u, cid)) {\n\t\t\tenv_count(u, self, USHER_EV_PREEMPT_LLC);",
        is: "\t\tusher_preempt_mark(u, cid);\n\t\tif (1) {\n\t\t\tenv_count(u, self, USHER_EV_PREEMPT_LLC);",
    },
    Mutant {
        name: "pinned-gives-self",
        breaks: "who takes a CPU is told that one, not the waker's",
        file: "preempt.c",
        was: "\t\t\tenv_count(u, self, USHER_EV_PREEMPT_LLC);\n\t\t\treturn cid;\n",
        is: "\t\t\tenv_count(u, self, USHER_EV_PREEMPT_LLC);\n\t\t\treturn self;\n",
    },
    Mutant {
        name: "pinned-marks-first",
        breaks: "who is refused a CPU leaves no mark of its own on it",
        file: "preempt.c",
        was: "\tif (lower & bit) {\n\t\tif (usher_preempt_mark(u, cid)) {\n",
        is: "\tif (usher_preempt_mark(u, cid)) {\n\t\tif (lower & bit) {\n",
    },
    Mutant {
        name: "pinned-cleans-up",
        breaks: "who is refused a CPU leaves somebody else's mark on it",
        file: "preempt.c",
        was: "\t\tenv_count(u, self, USHER_EV_PREEMPT_LOST);\n",
        is: "\t\tenv_fetch_and(u, u->leaves[c->shard].words + USHER_TAKEN * u->leaves[c->shard].stride, ~bit);\n",
    },
    Mutant {
        name: "pinned-equal",
        breaks: "a task takes the CPU of a less urgent one, not of its like",
        file: "preempt.c",
        was: "\tfor (level = 0; level < USHER_CRITICAL; level++) {\n",
        is: "\tfor (level = 0; level <= USHER_CRITICAL; level++) {\n",
    },
    Mutant {
        name: "pinned-not-urgent",
        breaks: "only urgent tasks preempt",
        file: "preempt.c",
        was: "\tif (class < USHER_CRITICAL)\n\t\treturn USHER_NONE_LOWER;\n\tfor (level = 0;",
        is: "\tfor (level = 0;",
    },
    Mutant {
        name: "pinned-not-lowest",
        breaks: "a batch task gives way",
        file: "preempt.c",
        was: "\tfor (level = 0; level < USHER_CRITICAL; level++) {\n",
        is: "\tfor (level = 1; level < USHER_CRITICAL; level++) {\n",
    },
    Mutant {
        name: "pinned-not-next",
        breaks: "an interactive task gives way",
        file: "preempt.c",
        was: "\tfor (level = 0; level < USHER_CRITICAL; level++) {\n",
        is: "\tfor (level = 0; level < USHER_INTERACTIVE; level++) {\n",
    },
    Mutant {
        name: "pinned-from-above",
        breaks: "the levels are read from the lowest up, as a CPU rises",
        file: "preempt.c",
        was: "\tfor (level = 0; level < USHER_CRITICAL; level++) {\n",
        is: "\tfor (level = USHER_CRITICAL; level-- > 0;) {\n",
    },
    Mutant {
        name: "pinned-by-neighbour",
        breaks: "what counts is what that CPU runs, not one beside it",
        file: "preempt.c",
        was: "\tif (lower & bit) {\n",
        is: "\tif (lower) {\n",
    },
    Mutant {
        name: "pinned-by-cid",
        breaks: "a CPU's bit is not its cid",
        file: "preempt.c",
        was: "u64 bit = 1ULL << (c->bit & 63), lower = 0;",
        is: "u64 bit = 1ULL << cid, lower = 0;",
    },
    Mutant {
        name: "pinned-own-shard",
        breaks: "the levels are those of the CPU's shard, not of the waker's",
        file: "preempt.c",
        was: "lower |= usher_cpupri_at(u, c->shard, level);",
        is: "lower |= usher_cpupri_at(u, u->cids[self].shard, level);",
    },
    Mutant {
        name: "free-at-once",
        breaks: "a CPU stays marked while the task runs that it was taken for",
        file: "preempt.c",
        was: "\tif (!u->cpus[cid].taken) {\n\t\tu->cpus[cid].taken = 1; /* this is the task it was taken for, or one that came before it */\n\t\treturn;\n\t}\n",
        is: "",
    },
    Mutant {
        name: "free-never",
        breaks: "a CPU that was taken is free in the end",
        file: "preempt.c",
        was: "\tenv_fetch_and(u, taken, ~bit);\n",
        is: "",
    },
    Mutant {
        name: "free-not-atomic",
        breaks: "a CPU marks itself free by one atomic, not by a load and a store",
        file: "preempt.c",
        was: "\tenv_fetch_and(u, taken, ~bit);\n",
        is: "\tenv_write(u, taken, env_read(u, taken) & ~bit);\n",
    },
    Mutant {
        name: "free-all",
        breaks: "a CPU marks nobody free but itself",
        file: "preempt.c",
        was: "\tenv_fetch_and(u, taken, ~bit);\n",
        is: "\tenv_fetch_and(u, taken, 0);\n",
    },
    Mutant {
        name: "free-too-soon",
        breaks: "a CPU that is taken again counts anew",
        file: "preempt.c",
        was: "\tu->cpus[cid].taken = 0;\n\tenv_fetch_and",
        is: "\tenv_fetch_and",
    },
];

/// Where tasks go on CPUs of different capacity, and who gives way.
const RULES: &[Mutant] = &[
    Mutant {
        name: "fits-all-of-it",
        breaks: "a task fits if it uses less than 80 % of a CPU",
        file: "capacity.c",
        was: "d->util * 1280u / 1024 + 1",
        is: "d->util + 1u",
    },
    Mutant {
        name: "greater-by-a-hair",
        breaks: "what is within 5.3 % counts as equal",
        file: "capacity.c",
        was: "(capacity * 1078 - u->tier_capacity[t] * 1024)",
        is: "(capacity * 1024 - u->tier_capacity[t] * 1024)",
    },
    Mutant {
        name: "clamp-max-ignored",
        breaks: "uclamp.max: a CPU of that capacity is enough",
        file: "capacity.c",
        was: "\tif (d->clamp_max && need > d->clamp_max)\n\t\tneed = d->clamp_max;\n",
        is: "",
    },
    Mutant {
        name: "clamp-min-ignored",
        breaks: "uclamp.min: a CPU below that capacity is not enough",
        file: "capacity.c",
        was: "\treturn need < min ? min : need;\n",
        is: "\t(void)min;\n\treturn need;\n",
    },
    Mutant {
        name: "clamps-uncrossed",
        breaks: "of clamps that contradict each other the max holds",
        file: "capacity.c",
        was: "d->clamp_max && d->clamp_max < d->clamp_min ? d->clamp_max : d->clamp_min",
        is: "d->clamp_min",
    },
    Mutant {
        name: "top-not-enough",
        breaks: "the strongest CPUs are enough for everybody",
        file: "capacity.c",
        was: "need = usher_need(d), fit = u->top_tiers, t;",
        is: "need = usher_need(d), fit = 0, t;",
    },
    Mutant {
        name: "take-any-later",
        breaks: "nobody in a queue is passed over by a slice",
        file: "capacity.c",
        was: "!env_asymmetric(u) || (s64)(v - first) > (s64)u->slice_ns",
        is: "!env_asymmetric(u)",
    },
    Mutant {
        name: "take-unfit",
        breaks: "a CPU without work prefers a task that it is enough for",
        file: "capacity.c",
        was: "\treturn usher_enough(u, cid, d);\n",
        is: "\treturn true;\n",
    },
    Mutant {
        name: "util-unscaled",
        breaks: "what a task ran counts by its CPU's capacity",
        file: "capacity.c",
        was: "\tu32 full = u->cids[cid].capacity << USHER_UTIL_SHIFT;",
        is: "\tu32 full = 1024u << USHER_UTIL_SHIFT;",
    },
    Mutant {
        name: "util-born-light",
        breaks: "a newborn has half of the CPU on which it first runs",
        file: "capacity.c",
        was: "t->average = full / 2;",
        is: "t->average = 0;",
    },
    Mutant {
        name: "util-sleep-free",
        breaks: "utilisation fades while a task does not run",
        file: "capacity.c",
        was: "\t\tt->average = usher_decay(t->average, past - ran_ns);\n",
        is: "\t\t;\n",
    },
    Mutant {
        name: "util-slower",
        breaks: "half is left after 32 periods",
        file: "capacity.c",
        was: "left = left * usher_decay_periods[steps >> 10 & 31] >> 32;",
        is: "left = left * usher_decay_periods[steps >> 11 & 31] >> 32;",
    },
    Mutant {
        name: "util-no-past",
        breaks: "a task that was heavy whenever it ran is not light after a long sleep",
        file: "capacity.c",
        was: "\tif (util < t->settled)\n\t\tutil = t->settled;\n",
        is: "",
    },
    Mutant {
        name: "util-falls-at-once",
        breaks: "what a task was when it slept falls by a quarter a time",
        file: "capacity.c",
        was: "t->settled - (t->settled - util + 2) / 4",
        is: "util",
    },
    Mutant {
        name: "tiers-one-order",
        breaks: "which tier comes first is a setting",
        file: "fit.c",
        was: "order == USHER_WEAKEST_FIRST ?",
        is: "order > USHER_WEAKEST_FIRST ?",
    },
    Mutant {
        name: "tiers-threads-first",
        breaks: "cores of all tiers come before threads of any",
        file: "fit.c",
        was: "\ts->core = u->smt > 1;\n",
        is: "\ts->core = 0;\n",
    },
    Mutant {
        name: "tiers-no-remote",
        breaks: "other nodes have idle CPUs, too",
        file: "fit.c",
        was: "\tif (fit && u->nr_nodes > 1)\n",
        is: "\tif (0)\n",
    },
    Mutant {
        name: "misfit-light",
        breaks: "a task that its CPU is enough for stays there",
        file: "fit.c",
        was: "\tif (!(fit >> (c->tier & 31) & 1)) {\n",
        is: "\t{\n",
    },
    Mutant {
        name: "misfit-any-thread",
        breaks: "a thread beside a busy sibling is no greater CPU",
        file: "fit.c",
        was: ".q = { .allowed = r->allowed, .flags = USHER_IDLE_CORE, .from",
        is: ".q = { .allowed = r->allowed, .from",
    },
    Mutant {
        name: "misfit-sideways",
        breaks: "a misfit moves to a greater CPU only",
        file: "fit.c",
        was: "greater = usher_tiers_greater(u, c->tier);",
        is: "greater = u->tiers;",
    },
    Mutant {
        name: "misfit-second-best",
        breaks: "if no greater CPU that is enough is idle, any greater one is better",
        file: "fit.c",
        was: "\t\ts.rest = greater & ~fit;\n",
        is: "",
    },
    Mutant {
        name: "misfit-silent",
        breaks: "a misfit that found no greater CPU says so",
        file: "fit.c",
        was: "\tusher_misfit_note(u, r->prev, waits, r->waker);\n",
        is: "\tusher_misfit_note(u, r->prev, false, r->waker);\n",
    },
    Mutant {
        name: "misfit-in-vain",
        breaks: "a task that may run on no greater CPU does not wait for one",
        file: "fit.c",
        was: "waits = cid < 0 && (!r->allowed || usher_tiers_allowed(u, r->allowed, greater));",
        is: "waits = cid < 0;",
    },
    Mutant {
        name: "call-by-thread",
        breaks: "a CPU whose sibling is busy calls nobody",
        file: "fit.c",
        was: "\tif ((usher_shard_idle(u, &u->shards[c->shard]) & c->core) != c->core)\n\t\treturn USHER_NONE_IDLE;\n",
        is: "",
    },
    Mutant {
        name: "call-by-equal",
        breaks: "a CPU calls those only that it is greater than",
        file: "fit.c",
        was: "!(usher_tiers_greater(u, u->cids[weak].tier) >> (c->tier & 31) & 1)",
        is: "!c",
    },
    Mutant {
        name: "call-twice",
        breaks: "who is called is taken off the list",
        file: "fit.c",
        was: "if (!(env_fetch_and(u, &u->misfits[w], ~bit) & bit))",
        is: "if (!(env_read(u, &u->misfits[w]) & bit))",
    },
    Mutant {
        name: "queue-anyhow",
        breaks: "who comes to its waker does not join a longer queue",
        file: "place.c",
        was: "\t    !usher_queue_longer(u, waker, prev))",
        is: "\t    true)",
    },
    Mutant {
        name: "queue-by-number",
        breaks: "how long a queue is depends on what the CPUs do that serve it",
        file: "queue.c",
        was: "\treturn env_queued(u, llc) * u->llcs[other].power > env_queued(u, other) * u->llcs[llc].power;",
        is: "\treturn env_queued(u, llc) > env_queued(u, other);",
    },
    Mutant {
        name: "queue-never-shorter",
        breaks: "a task does not wait in a long queue beside a much shorter one",
        file: "queue.c",
        was: "ours < USHER_QUEUE_LONG * own->nr_cids)",
        is: "ours)",
    },
    Mutant {
        name: "queue-same-again",
        breaks: "other queues are looked at by turns",
        file: "queue.c",
        was: "u->cpus[self].shorter_turn++",
        is: "u->cpus[self].shorter_turn",
    },
    Mutant {
        name: "queue-far-as-near",
        breaks: "a queue of another node has to be shorter than one of this",
        file: "queue.c",
        was: "other->node == own->node ? USHER_SHORTER_NEAR : USHER_SHORTER_FAR;",
        is: "USHER_SHORTER_NEAR;",
    },
    Mutant {
        name: "prev-not-kept",
        breaks: "prev comes first if it is enough",
        file: "place.c",
        was: "\tif (fit >> (c->tier & 31) & 1 && (idle & c->core) == c->core) {\n",
        is: "\tif (0) {\n",
    },
    Mutant {
        name: "prev-unfit",
        breaks: "prev comes first only if it is enough",
        file: "place.c",
        was: "\tif (fit >> (c->tier & 31) & 1 && (idle & c->core) == c->core) {\n",
        is: "\tif ((idle & c->core) == c->core) {\n",
    },
    Mutant {
        name: "unfit-waits",
        breaks: "a weak idle CPU is better than waiting behind somebody",
        file: "place.c",
        was: "\tcid = usher_search_fit(u, s, fit);\n",
        is: "\ts->rest = 0;\n\tcid = usher_search_fit(u, s, fit);\n",
    },
    Mutant {
        name: "light-as-any",
        breaks: "a light task that finds its CPU taken goes where nobody comes back to",
        file: "place.c",
        was: "\tif (!usher_light(u, &d))\n",
        is: "\tif (1)\n",
    },
    Mutant {
        name: "newborn-light",
        breaks: "a newborn is not light",
        file: "capacity.c",
        was: "\treturn d->util && usher_need(d) <= u->light_need;",
        is: "\treturn usher_need(d) <= u->light_need;",
    },
    Mutant {
        name: "vacant-any",
        breaks: "... not where somebody ran of late",
        file: "fit.c",
        was: "\t\tif (idle_for < USHER_VACANT) {\n",
        is: "\t\tif (0) {\n",
    },
    Mutant {
        name: "vacant-strongest",
        breaks: "... of the weakest tier first",
        file: "fit.c",
        was: "\t\tu32 tier = USHER_MAX_TIERS - 1 - t, shard = from->shard;\n",
        is: "\t\tu32 tier = t, shard = from->shard;\n",
    },
    Mutant {
        name: "calm-forgotten",
        breaks: "... else to the first CPU that is calm, a weak one first",
        file: "fit.c",
        was: "(v->idle_for < USHER_CALM && idle_for > v->idle_for)) {\n",
        is: "idle_for > v->idle_for) {\n",
    },
    Mutant {
        name: "longest-forgotten",
        breaks: "... else to the CPU that has been idle for longest",
        file: "fit.c",
        was: "(v->idle_for < USHER_CALM && idle_for > v->idle_for)) {\n",
        is: "0) {\n",
    },
    Mutant {
        name: "light-leaves-prev",
        breaks: "... unless its own is idle and no core is vacant",
        file: "place.c",
        was: "\tif (fit >> (u->cids[from].tier & 31) & 1 && usher_test_and_clear(u, from))\n",
        is: "\tif (0)\n",
    },
    Mutant {
        name: "unfit-remote-waits",
        breaks: "the same in another node",
        file: "fit.c",
        was: "\tif (cid < 0 && s->rest && u->nr_nodes > 1)\n",
        is: "\tif (0)\n",
    },
    Mutant {
        name: "unfit-weakest",
        breaks: "where nobody is enough the strongest is best",
        file: "fit.c",
        was: "cid = usher_search_tiers(u, s, s->rest, USHER_STRONGEST_FIRST);",
        is: "cid = usher_search_tiers(u, s, s->rest, USHER_WEAKEST_FIRST);",
    },
    Mutant {
        name: "sibling-first",
        breaks: "a weak core comes before a thread beside a busy sibling",
        file: "fit.c",
        was: "\t\tif (cid < 0)\n\t\t\tcid = usher_search_tiers(u, s, s->rest, USHER_STRONGEST_FIRST);\n",
        is: "\t\tif (cid < 0 && !s->core)\n\t\t\tcid = usher_search_tiers(u, s, s->rest, USHER_STRONGEST_FIRST);\n",
    },
    Mutant {
        name: "wish-unfit",
        breaks: "hints and sync wakeups take CPUs that are enough",
        file: "place.c",
        was: "\ts->q.tiers = fit;\n",
        is: "\t;\n",
    },
    Mutant {
        name: "equal-not-asked",
        breaks: "CPUs of different capacity are told apart",
        file: "place.c",
        was: "\tif (__builtin_expect(env_asymmetric(u) == 1, 0)) {\n",
        is: "\tif (0) {\n",
    },
    Mutant {
        name: "pair-anybody",
        breaks: "who gives way always wakes the same one",
        file: "pair.c",
        was: "\t\tasks->sure = 0;\n\t}\n\treturn",
        is: "\t}\n\treturn",
    },
    Mutant {
        name: "pair-at-once",
        breaks: "... for some turns in a row",
        file: "pair.c",
        was: "asks->sure >= USHER_PAIR_SURE && asks->sure < ",
        is: "asks->sure < ",
    },
    Mutant {
        name: "pair-unwatched",
        breaks: "... and is watched now and then",
        file: "pair.c",
        was: " && asks->sure < USHER_PAIR_SURE + USHER_PAIR_WATCH - 1;",
        is: ";",
    },
    Mutant {
        name: "pair-many",
        breaks: "... once in a turn",
        file: "pair.c",
        was: "me->asked > 1 || ",
        is: "",
    },
    Mutant {
        name: "pair-long",
        breaks: "... a short one",
        file: "pair.c",
        was: "before + after > (s64)(u->slice_ns / USHER_PAIR_SHORT) || ",
        is: "",
    },
    Mutant {
        name: "pair-early",
        breaks: "... towards its end",
        file: "pair.c",
        was: " || after > USHER_PAIR_AFTER * before)",
        is: ")",
    },
    Mutant {
        name: "pair-interrupted",
        breaks: "turns that were interrupted say nothing",
        file: "queue.c",
        was: "\tu->cpus[cid].asked = 0;\n",
        is: "",
    },
    Mutant {
        name: "pair-twice",
        breaks: "who gave way has not slept",
        file: "pair.c",
        was: "\tu->cpus[self].asked = 0;\n",
        is: "",
    },
    Mutant {
        name: "pair-lighter",
        breaks: "nobody gives way to less weight",
        file: "pair.c",
        was: "\tif (!weight || wants->weight < weight)\n",
        is: "\tif (!weight)\n",
    },
    Mutant {
        name: "pair-leads",
        breaks: "... nor goes on so where its own turn would end",
        file: "pair.c",
        was: "\t\tif (ahead + (s64)usher_vtime_ran(ran_ns, weight) >= usher_vtime_lead(u, weight))\n",
        is: "\t\tif (0)\n",
    },
    Mutant {
        name: "pair-late",
        breaks: "... nor to a partner that is far ahead of who waits",
        file: "pair.c",
        was: "\t\tif ((s64)(wants->vtime - first) > usher_vtime_slices(u, USHER_HANDED_BESIDE, wants->weight))\n",
        is: "\t\tif (0)\n",
    },
    Mutant {
        name: "pair-sibling",
        breaks: "a partner is left beside its waker on an idle core",
        file: "pair.c",
        was: "\t\tidle |= 1ULL << (me->bit & 63);\n",
        is: "\t\t;\n",
    },
    Mutant {
        name: "pair-here",
        breaks: "... not on the CPU of its waker",
        file: "pair.c",
        was: "prev != self && (idle",
        is: "(idle",
    },
    Mutant {
        name: "pair-half-core",
        breaks: "... not beside another one",
        file: "pair.c",
        was: "(idle & c->core) == c->core;",
        is: "idle >> (c->bit & 63) & 1;",
    },
];

fn core_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the temporary directory is writable");
    for entry in fs::read_dir(from).expect("the core's sources are there") {
        let entry = entry.expect("it can be listed");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("it can be copied");
        }
    }
}

/// Makes the change; the line must be there exactly once, or the mutant is out of date.
fn mutate(core: &Path, mutant: &Mutant) {
    let path = core.join("src").join(mutant.file);
    let text = fs::read_to_string(&path).expect("the source is there");
    let times = text.matches(mutant.was).count();
    assert_eq!(
        times, 1,
        "mutant {}: core/src/{} has its line {times} times; bring it up to date:\n{}",
        mutant.name, mutant.file, mutant.was
    );
    let text = text.replacen(mutant.was, mutant.is, 1);
    fs::write(&path, text).expect("the copy is writable");
}

/// Compiles a copy of the core in an environment and loads it: finds its symbols.
fn load(core: &Path, environment: &str, source: &Path) -> impl FnMut(&str) -> *const c_void {
    let library = core.join("mutant.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args([
            "-std=gnu11",
            "-O2",
            "-fPIC",
            "-shared",
            "-w",
            "-DUSHER_PREFIX=mutant",
        ])
        .arg(format!("-DUSHER_ENV=\"{environment}.h\""))
        .arg("-I")
        .arg(core.join("env"))
        .arg(source)
        .arg("-o")
        .arg(&library)
        .output()
        .unwrap_or_else(|error| panic!("{compiler:?} does not run: {error}"));
    assert!(
        output.status.success(),
        "the mutant does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let path = CString::new(library.into_os_string().into_encoded_bytes()).expect("no NUL");
    // SAFETY: the library has no constructors; RTLD_LOCAL keeps mutants apart; it is never closed.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{}", last_error());
    move |name: &str| -> *const c_void {
        let name = CString::new(name).expect("no NUL");
        // SAFETY: the handle is open.
        unsafe { libc::dlsym(handle, name.as_ptr()) }
    }
}

/// A copy of the core under the checker.
fn build(core: &Path) -> Build {
    let mut find = load(core, "model", &core.join("tests/model.c"));
    let mut symbol = |name: &str| find(&format!("usher_mutant_model_{name}"));
    // SAFETY: the library is this very version of core/tests/model.c, and stays loaded.
    unsafe { Build::from_symbols(&mut symbol) }.expect("model.c exports them all")
}

/// A copy of the core as it runs in a process. Its shim includes ../../../core, so the copy of that stands beside.
fn native(core: &Path) -> &'static Library {
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
    let beside = core.with_file_name("crates").join("usher-core/shim");
    copy(&shim, &beside);
    let mut find = load(core, "native", &beside.join("native.c"));
    let mut symbol = |name: &str| find(name);
    // SAFETY: the library is this very version of shim/native.c, and stays loaded.
    let library = unsafe { Library::from_symbols(&mut symbol) };
    Box::leak(Box::new(library.expect("native.c exports them all")))
}

fn last_error() -> String {
    // SAFETY: dlerror() gives a string or null, valid until the next call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "no error".into();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The first failure.
fn check(build: &Build) -> Option<Failure> {
    let find = |name: &str| build.scenario(name).expect("the scenario is listed");
    let whole = SCENARIOS.iter().find_map(|name| find(name).explore().err());
    let bounded = |(name, preemptions): &(&str, u8)| find(name).explore_bounded(*preemptions).err();
    whole.or_else(|| BOUNDED.iter().find_map(bounded))
}

/// Small random cases, until the core set as [`MUTANT`] and the plain model disagree.
fn check_rules() -> Option<(u64, String)> {
    let differs = |seed: u64| {
        let mut random = Random::new(0x1000 + seed);
        let cpus = random.between(1, 40);
        let machine = Machine::draw(&mut random, cpus, Granularity::Shard);
        let ops = ops::draw(&mut random, &machine, 700);
        let placed = run::run(&machine, &ops, false, &mut run::Seen::default());
        placed
            .map_err(|(_, wrong)| wrong)
            .and_then(|()| utilisation::check(seed))
            .and_then(|()| pairs::check(seed))
            .err()
    };
    (0..300).find_map(|seed| differs(seed).map(|wrong| (seed, wrong)))
}

// Goal: the comparison with the plain model would notice if a rule about capacity were wrong. Method: as above; the
// copies are compiled as they run in a process and compared in small random cases.
#[test]
#[ignore = "compiles the core many times; make mutants"]
fn every_mutant_of_a_rule_is_caught() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stage = |name: &str| {
        let core = dir.path().join(name).join("core");
        copy(&core_dir(), &core);
        core
    };
    MUTANT.set(Some(native(&stage("control"))));
    if let Some((seed, wrong)) = check_rules() {
        panic!("the core as it is fails with seed {seed}: {wrong}");
    }
    let mut caught = 0;
    for mutant in RULES {
        let core = stage(mutant.name);
        mutate(&core, mutant);
        MUTANT.set(Some(native(&core)));
        match check_rules() {
            Some((seed, wrong)) => {
                caught += 1;
                let wrong: String = wrong.chars().take(90).collect();
                println!(
                    "{:<20} seed {seed:<4} {}: {wrong}",
                    mutant.name, mutant.breaks
                );
            }
            None => println!("{:<20} NOT CAUGHT: {}", mutant.name, mutant.breaks),
        }
    }
    MUTANT.set(None);
    println!("{caught} of {} mutants of rules caught", RULES.len());
    assert_eq!(caught, RULES.len(), "a mutant survived");
}

#[test]
#[ignore = "compiles the core many times; make mutants"]
fn every_mutant_is_caught() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let control = dir.path().join("control");
    copy(&core_dir(), &control);
    if let Some(failure) = check(&build(&control)) {
        panic!("the core as it is fails:\n{failure}");
    }
    println!(
        "{:<23} {:<25} {:>9} {:>14}  what it breaks, and what then happens",
        "mutant", "caught by", "states", "orders tried"
    );
    let mut caught = 0;
    for mutant in MUTANTS {
        let copied = dir.path().join(mutant.name);
        copy(&core_dir(), &copied);
        mutate(&copied, mutant);
        match check(&build(&copied)) {
            Some(failure) => {
                caught += 1;
                println!(
                    "{:<23} {:<25} {:>9} {:>14.3e}  {}: {}",
                    mutant.name,
                    failure.scenario,
                    failure.report.states,
                    failure.report.interleavings as f64,
                    mutant.breaks,
                    failure.property,
                );
            }
            None => println!("{:<23} NOT CAUGHT: {}", mutant.name, mutant.breaks),
        }
    }
    println!("{caught} of {} mutants caught", MUTANTS.len());
    assert_eq!(caught, MUTANTS.len(), "a mutant survived");
}
