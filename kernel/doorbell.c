// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Doorbells of context 0, slots and context numbers.
 */
#include "keyhole.h"

void kh_slots_init(struct kh_slots *slots)
{
	spin_lock_init(&slots->lock);
	bitmap_zero(slots->used, KH_DB_SLOTS);
	slots->next_shared = 0;
}

/* The lowest free one: the device scans a page up to its last mark. */
u16 kh_slot_alloc(struct kh_slots *slots)
{
	unsigned long slot;

	spin_lock(&slots->lock);
	slot = find_first_zero_bit(slots->used, KH_DB_SLOTS);
	if (slot < KH_DB_SLOTS) {
		__set_bit(slot, slots->used);
	} else {
		slot = slots->next_shared;
		slots->next_shared = (slot + 1) % KH_DB_SLOTS;
	}
	spin_unlock(&slots->lock);
	return slot;
}

void kh_slot_free(struct kh_slots *slots, u16 slot)
{
	spin_lock(&slots->lock);
	__clear_bit(slot, slots->used);
	spin_unlock(&slots->lock);
}

void kh_mark(struct kh_dev *dev, u16 slot)
{
	/* The record before the mark ... */
	dma_wmb();
	WRITE_ONCE(dev->db[slot], KH_DB_MARK);
	/*
	 * ... and the mark before the question whether the device sleeps: it
	 * says so first and then looks at the marks once more.  The other side
	 * is a process of the host, not a CPU of this machine: smp_mb() will
	 * not do, and it must be a fence by name, not a locked instruction.
	 */
	mb();
	if (READ_ONCE(dev->status->sleeping))
		writel(1, dev->wake);
}

void kh_ring(struct kh_dev *dev, u16 slot, __le32 *record, u32 index)
{
	dma_wmb();
	WRITE_ONCE(*record, cpu_to_le32(index));
	kh_mark(dev, slot);
}

int kh_context_alloc(struct kh_dev *dev)
{
	int ctx = ida_alloc_range(&dev->contexts, 1, dev->num_contexts - 1,
				  GFP_KERNEL);

	return ctx == -ENOSPC ? -ENOMEM : ctx;
}

void kh_context_free(struct kh_dev *dev, u16 ctx)
{
	ida_free(&dev->contexts, ctx);
}
