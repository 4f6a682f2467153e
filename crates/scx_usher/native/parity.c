/* SPDX-License-Identifier: GPL-2.0-only */
/* The native core replaying streams of operations, for comparison with bpf/parity.bpf.c. */
#include "../../../core/include/usher/usher.h"
#include "../../../core/src/core.c"
#include "../../../core/tests/stream.h"

u64 usher_parity_stream_bytes(void)
{
	return sizeof(struct usher_stream);
}

void usher_parity_replay(struct usher *u, struct usher_stream *stream, u32 steps)
{
	struct usher_host host = { .queued = stream->queued };
	u32 i;

	u->host = &host;
	for (i = 0; i < steps; i++)
		usher_stream_step(u, stream);
	u->host = NULL;
}
