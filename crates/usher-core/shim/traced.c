/* SPDX-License-Identifier: GPL-2.0-only */
/* The core with a log of its accesses to shared memory. */
#define USHER_PREFIX traced
#include "exports.h"

u32 usher_traced_log_size(void)
{
	return sizeof(struct usher_log);
}
