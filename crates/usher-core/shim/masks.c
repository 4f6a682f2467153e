/* SPDX-License-Identifier: GPL-2.0-only */
/* The proposal's form of the CPU priority map under names that a linker sees; src/masks.rs has the other side. */
#include "../../../core/src/cpupri_masks.c"

u32 usher_masks_bytes(void)
{
	return sizeof(struct usher_masks);
}

void usher_proposal_init(struct usher_masks *m)
{
	usher_masks_init(m);
}

void usher_proposal_add(struct usher_masks *m, u32 cid)
{
	usher_masks_add(m, cid);
}

void usher_proposal_set(struct usher_masks *m, u32 cid, u32 level)
{
	usher_masks_set(m, cid, level);
}

s32 usher_proposal_find(struct usher_masks *m, u32 home, const struct usher_set *allowed, u32 below,
			struct usher_set *out)
{
	return usher_masks_find(m, home, allowed, below, out);
}
