/* SPDX-License-Identifier: GPL-2.0-only */
/* The integer types for environments in an ordinary process, and what the process supplies at run time. */
#ifndef USHER_ENV_TYPES_H
#define USHER_ENV_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

struct usher_log;

/* What the core cannot know. The pointers stay valid as long as the struct usher. */
struct usher_host {
	u64 *queued;	       /* per LLC: tasks waiting in its queue, kept up to date by the host */
	struct usher_log *log; /* of traced.h; NULL elsewhere */
};

#endif
