/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Placement hints: how a program tells scx_usher where its tasks belong. docs/HINTS.md
 * says what they do.
 *
 *	#include <usher_hint.h>
 *
 *	usher_hint(USHER_HINT_SET, USHER_HINT_FORK_SPREAD | USHER_HINT_WAKE_HOLD, 0);
 *
 * Children and threads inherit hints, exec keeps them. They are wishes: affinity, cpusets and
 * capacity always come first, and a hint that asks for a full place is passed over.
 *
 * Without scx_usher the kernel answers EINVAL and nothing changes, so a program can always call and
 * ignore the result.
 */
#ifndef USHER_HINT_H
#define USHER_HINT_H

/* prctl(USHER_PR_HINT, op, flags, pid, 0) */
#define USHER_PR_HINT 0x75736872 /* "ushr" */

/* op */
#define USHER_HINT_SET 1
#define USHER_HINT_GET 2 /* flags must be 0 */

/* flags: at most one of each pair; 0 takes all hints back */
#define USHER_HINT_FORK_AFFINE 1 /* children are born near their parent */
#define USHER_HINT_FORK_SPREAD 2 /* children are born where few live */
#define USHER_HINT_WAKE_AFFINE 4 /* wake near the waker */
#define USHER_HINT_WAKE_HOLD 8	 /* wake where it ran last */

/* The result of a call that succeeds: this, and the flags in force. */
#define USHER_HINT_OK 0x100

#if !defined(__bpf__) && !defined(__VMLINUX_H__)
#include <sys/prctl.h>

/*
 * Sets or gets the hints of a thread; pid 0 is the caller. Returns USHER_HINT_OK | the flags in
 * force, or -1 with errno:
 *
 *   EINVAL  unknown op or flag, both of a pair; or scx_usher does not run
 *   ESRCH   no such thread
 *   EPERM   the thread is another user's, and the caller lacks CAP_SYS_NICE
 *   ENOMEM  the kernel has no memory for it
 */
static inline int usher_hint(int op, unsigned int flags, int pid)
{
	return prctl(USHER_PR_HINT, (unsigned long)op, (unsigned long)flags, (unsigned long)pid, 0UL);
}
#endif

#endif
