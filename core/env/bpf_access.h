/* SPDX-License-Identifier: GPL-2.0-only */
/* Part of bpf.h: the accesses as they are. Included again, it ends what bpf_recorded.h began; so there is no guard. */
#undef env_read
#undef env_write
#undef env_fetch_or
#undef env_fetch_and
#undef env_fetch_add
#undef env_queued
#define env_read(u, p) (*(const volatile typeof(*(p)) *)(p))
#define env_write(u, p, v) (*(volatile typeof(*(p)) *)(p) = (v))
#define env_fetch_or(u, p, bits) usher_bpf_fetch_or((p), (bits))
#define env_fetch_and(u, p, bits) usher_bpf_fetch_and((p), (bits))
#define env_fetch_add(u, p, n) __sync_fetch_and_add((p), (u64)(n))
#define env_queued(u, queue) usher_bpf_queued(queue)
