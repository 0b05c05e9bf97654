/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Doorbells of the kernel's own queues, and the slots of every context.
 *
 * A slot is a byte of a context's doorbell page.  Queues that share one only
 * make the device look at both, so the bitmap is a wish, not a promise: when
 * all are taken, slots are given out twice, and freeing one that is shared
 * merely lets it be shared again.
 */
#ifndef KH_DOORBELL_H
#define KH_DOORBELL_H

#include <linux/bitmap.h>
#include <linux/spinlock.h>

#include "../uapi/keyhole_hw.h"

struct kh_dev;

struct kh_slots {
	spinlock_t lock;	/* all below */
	u16 next_shared;
	DECLARE_BITMAP(used, KH_DB_SLOTS);
};

void kh_slots_init(struct kh_slots *slots);
u16 kh_slot_alloc(struct kh_slots *slots);
void kh_slot_free(struct kh_slots *slots, u16 slot);

/*
 * Ring for a queue of context 0: publish index in its doorbell record, mark
 * its slot, and wake the device if it sleeps.  The WQEs are written before.
 * Any context.
 */
void kh_ring(struct kh_dev *dev, u16 slot, __le32 *record, u32 index);
/* Without a record: for a receive queue whose device asks to be told. */
void kh_mark(struct kh_dev *dev, u16 slot);

/* Context numbers of processes, 1 .. num_contexts - 1.  -ENOMEM when all are taken. */
int kh_context_alloc(struct kh_dev *dev);
void kh_context_free(struct kh_dev *dev, u16 ctx);

#endif /* KH_DOORBELL_H */
