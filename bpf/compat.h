/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between kernels from 6.12 on. Probed by the presence of a symbol, a member or an
 * enumerator, never by a version; the version named is the one that made the difference.
 *
 * The headers of the sched_ext family (scx/compat.bpf.h) bridge most of them under the newest name:
 *
 *   6.13  scx_bpf_dsq_insert(), scx_bpf_dsq_insert_vtime(), scx_bpf_dsq_move_to_local(): renamed
 *   6.15  scx_bpf_pick_idle_cpu_node(): idle CPUs per node
 *   6.19  scx_bpf_dsq_insert_vtime() takes its arguments in a struct; scx_bpf_task_set_slice(),
 *         scx_bpf_task_set_dsq_vtime() replace stores into p->scx
 *   7.1   scx_bpf_dsq_move_to_local() has flags; scx_bpf_dsq_reenq() replaces scx_bpf_reenqueue_local()
 */
#ifndef USHER_COMPAT_H
#define USHER_COMPAT_H

#include <scx/common.bpf.h>

/* The kind of a wakeup. Enumerators whose values no version has changed; read from the kernel all the same. */
#define USHER_WF_FORK bpf_core_enum_value(enum scx_wake_flags, SCX_WAKE_FORK)
#define USHER_WF_SYNC bpf_core_enum_value(enum scx_wake_flags, SCX_WAKE_SYNC)

/*
 * Whether a task may not leave its CPU for now. Running a BPF program disables migration of the
 * current task on some kernels (until 6.18, and later with preemptible RCU), so a count of 1 says
 * nothing about current, nor one of 2 in a callback that another one led to: it is taken for movable, and the kernel itself keeps such a task from
 * being taken by another CPU. From 6.19 on the kernel does not show us such tasks at all
 * (SCX_OPS_ENQ_MIGRATION_DISABLED is not set; it is on kernels that have cpu_release()).
 */
static inline bool usher_migration_disabled(const struct task_struct *p, bool nested)
{
	if (!bpf_core_field_exists(p->migration_disabled) || !p->migration_disabled)
		return false;
	return p->migration_disabled > 1 + nested || p != bpf_get_current_task_btf();
}

#endif
