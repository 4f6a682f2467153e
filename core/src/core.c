/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The whole core for a host to include. Its functions are static: each host compiles them with its
 * own environment and exports what it needs under its own names.
 */
#include "idle.c"
#include "capacity.c"
#include "fit.c"
#include "hint.c"
#include "follow.c"
#include "pace.c"
#include "place.c"
#include "queue.c"
#include "pair.c"
#include "crowd.c"
#include "node.c"
#include "cpupri.c"
#include "preempt.c"
