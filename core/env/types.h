/* SPDX-License-Identifier: GPL-2.0-only */
/* The integer types for environments in an ordinary process, and what the process answers. */
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

/* What a process supplies at run time. The pointers stay valid as long as the struct usher. */
struct usher_host {
	u64 (*queued)(struct usher_host *host, u32 llc);
	void *data;
};

#endif
