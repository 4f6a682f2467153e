# SPDX-License-Identifier: GPL-2.0-only
"""Placement hints: how a program tells scx_usher where its tasks belong.

    from usher_hint import hint, FORK_SPREAD, WAKE_HOLD

    hint(FORK_SPREAD | WAKE_HOLD)      # set, for the calling thread and what it forks from now on
    hint()                             # the hints in force

Children and threads inherit hints, exec keeps them. They are wishes: affinity, cpusets and capacity always come
first, and a hint that asks for a full place is passed over. include/usher_hint.h is the same for C.
"""

import ctypes
import os

FORK_AFFINE = 1  # children are born near their parent
FORK_SPREAD = 2  # children are born where few live
WAKE_AFFINE = 4  # wake near the waker
WAKE_HOLD = 8  # wake where the task ran last

_PR_HINT = 0x75736872
_SET, _GET, _OK = 1, 2, 0x100


def hint(flags=None, pid=0):
    """Sets the hints of a thread (0: the caller; flags 0 takes them back), or gets them if flags is None.

    Returns the flags in force. Raises OSError: EINVAL for unknown flags or both of a pair, or if scx_usher does not
    run; ESRCH for no such thread; EPERM for another user's without CAP_SYS_NICE.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    op, bits = (_GET, 0) if flags is None else (_SET, flags)
    arguments = [ctypes.c_ulong(n) for n in (op, bits, pid, 0)]
    result = libc.prctl(_PR_HINT, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result & ~_OK
