// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The mechanics of the admin queue.
 *
 * A command is written into the next entry of the ring and its tag, which is
 * the low half of the ring index, comes back in the completion.  An entry is
 * taken again only when the waiter of its former command has read the answer:
 * then neither the ring nor the completion ring can overrun, in whatever order
 * the device answers.
 *
 * Who waits looks at the completion ring himself for a short while, since an
 * awake device answers sooner than an interrupt could; then he arms the queue
 * and sleeps.  Every waiter and the interrupt take whatever is complete, for
 * all.  A waiter never leaves before his command is answered or the device is
 * off: the memory that the command names is the device's until then.
 */
#include <linux/dma-mapping.h>
#include <linux/ktime.h>
#include <linux/sched.h>

#include "admin.h"

#define KH_ADMIN_MASK		(KH_ADMIN_ENTRIES - 1)
#define KH_ADMIN_SPIN_US	200
#define KH_ADMIN_SLICE		(HZ / 2)
#define KH_ADMIN_SILENT		(5 * HZ)	/* without a heartbeat */
#define KH_ADMIN_LONGEST	(60 * HZ)	/* with one */

/* All memory of the queue is one piece: SQ, CQ, doorbell record, outputs. */
#define KH_ADMIN_CQ_OFFSET	KH_PAGE_SIZE
#define KH_ADMIN_DB_OFFSET	(2 * KH_PAGE_SIZE)
#define KH_ADMIN_OUT_OFFSET	(3 * KH_PAGE_SIZE)
#define KH_ADMIN_MEMORY		(KH_ADMIN_OUT_OFFSET + \
				 KH_ADMIN_ENTRIES * KH_ADMIN_OUT_SIZE)

int kh_admin_init(struct kh_admin *aq, struct device *dma_dev,
		  const struct kh_admin_ops *ops)
{
	dma_addr_t dma;
	void *va;
	int i;

	memset(aq, 0, sizeof(*aq));
	va = dma_alloc_coherent(dma_dev, KH_ADMIN_MEMORY, &dma, GFP_KERNEL);
	if (!va)
		return -ENOMEM;

	aq->ops = ops;
	aq->dma_dev = dma_dev;
	aq->sq = va;
	aq->sq_dma = dma;
	aq->cq = va + KH_ADMIN_CQ_OFFSET;
	aq->cq_dma = dma + KH_ADMIN_CQ_OFFSET;
	aq->db = va + KH_ADMIN_DB_OFFSET;
	aq->db_dma = dma + KH_ADMIN_DB_OFFSET;
	aq->out = va + KH_ADMIN_OUT_OFFSET;
	aq->out_dma = dma + KH_ADMIN_OUT_OFFSET;
	spin_lock_init(&aq->lock);
	init_waitqueue_head(&aq->room);
	for (i = 0; i < KH_ADMIN_ENTRIES; i++)
		init_completion(&aq->slots[i].done);
	return 0;
}

void kh_admin_free(struct kh_admin *aq)
{
	dma_free_coherent(aq->dma_dev, KH_ADMIN_MEMORY, aq->sq, aq->sq_dma);
}

static int kh_admin_errno(u8 status)
{
	static const int errnos[] = {
		[KH_ST_OK]	= 0,
		[KH_ST_INVAL]	= -EINVAL,
		[KH_ST_NOMEM]	= -ENOMEM,
		[KH_ST_BUSY]	= -EBUSY,
		[KH_ST_NOENT]	= -ENOENT,
		[KH_ST_FAULT]	= -EFAULT,
		[KH_ST_NOSUPP]	= -EOPNOTSUPP,
		[KH_ST_EXIST]	= -EEXIST,
		[KH_ST_PERM]	= -EPERM,
	};

	return status < ARRAY_SIZE(errnos) ? errnos[status] : -EPROTO;
}

static void kh_admin_poll_locked(struct kh_admin *aq)
{
	struct kh_admin_slot *slot;
	struct kh_admin_cqe *cqe;
	unsigned int n;
	u16 tag;

	/* One lap at most, whatever the ring says. */
	for (n = 0; n < KH_ADMIN_ENTRIES; n++) {
		cqe = &aq->cq[aq->ci & KH_ADMIN_MASK];
		if ((READ_ONCE(cqe->phase) & 1) == ((aq->ci >> KH_ADMIN_MAX_LOG) & 1))
			break;
		dma_rmb();
		aq->ci++;

		tag = le16_to_cpu(READ_ONCE(cqe->tag));
		slot = &aq->slots[tag & KH_ADMIN_MASK];
		if (!slot->busy || slot->answered || slot->tag != tag) {
			aq->bogus++;
			dev_warn_ratelimited(aq->dma_dev,
					     "admin completion with tag %#x, which waits for none\n",
					     tag);
			continue;
		}
		slot->cqe = *cqe;
		slot->err = kh_admin_errno(slot->cqe.status);
		slot->answered = true;
		complete(&slot->done);
	}
	if (n)
		WRITE_ONCE(aq->db->ci, cpu_to_le32(aq->ci));
}

void kh_admin_poll(struct kh_admin *aq)
{
	unsigned long flags;

	spin_lock_irqsave(&aq->lock, flags);
	kh_admin_poll_locked(aq);
	spin_unlock_irqrestore(&aq->lock, flags);
}

static void kh_admin_arm_locked(struct kh_admin *aq)
{
	aq->armed = true;
	aq->arm_sn++;
	WRITE_ONCE(aq->db->arm,
		   cpu_to_le32(aq->arm_sn << KH_ARM_SN_SHIFT | KH_ARM_NEXT));
	/* The device writes an entry and then reads arm; we, the reverse. */
	mb();
	kh_admin_poll_locked(aq);
}

static void kh_admin_arm(struct kh_admin *aq, bool again)
{
	unsigned long flags;

	spin_lock_irqsave(&aq->lock, flags);
	if (!aq->armed || again)
		kh_admin_arm_locked(aq);
	spin_unlock_irqrestore(&aq->lock, flags);
}

void kh_admin_irq(struct kh_admin *aq)
{
	unsigned long flags;

	spin_lock_irqsave(&aq->lock, flags);
	aq->armed = false;
	kh_admin_poll_locked(aq);
	if (aq->ci != aq->pi)
		kh_admin_arm_locked(aq);
	spin_unlock_irqrestore(&aq->lock, flags);
}

/* NULL while there is no room. */
static struct kh_admin_slot *kh_admin_post(struct kh_admin *aq,
					   struct kh_admin_cmd *cmd, bool out)
{
	struct kh_admin_slot *slot;
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&aq->lock, flags);
	if (aq->closed) {
		slot = ERR_PTR(-EIO);
		goto unlock;
	}
	i = aq->pi & KH_ADMIN_MASK;
	slot = &aq->slots[i];
	/* One entry stays empty: so the device wants it. */
	if (slot->busy || aq->slots[(i + 1) & KH_ADMIN_MASK].busy) {
		slot = NULL;
		goto unlock;
	}

	slot->busy = true;
	slot->answered = false;
	slot->tag = aq->pi & 0xffff;
	slot->err = -EIO;
	memset(&slot->cqe, 0, sizeof(slot->cqe));
	reinit_completion(&slot->done);

	cmd->hdr.tag = cpu_to_le16(slot->tag);
	cmd->hdr.out_addr = 0;
	if (out)
		cmd->hdr.out_addr = cpu_to_le64(aq->out_dma + i * KH_ADMIN_OUT_SIZE);
	aq->sq[i] = *cmd;
	aq->pi++;
	dma_wmb();
	WRITE_ONCE(aq->db->pi, cpu_to_le32(aq->pi));
unlock:
	spin_unlock_irqrestore(&aq->lock, flags);
	return slot;
}

static bool kh_admin_spin(struct kh_admin *aq, struct kh_admin_slot *slot)
{
	ktime_t end = ktime_add_us(ktime_get(), KH_ADMIN_SPIN_US);

	do {
		kh_admin_poll(aq);
		if (completion_done(&slot->done))
			return true;
		cpu_relax();
		cond_resched();
	} while (ktime_before(ktime_get(), end));
	return false;
}

static void kh_admin_wait(struct kh_admin *aq, struct kh_admin_slot *slot)
{
	unsigned long begin = jiffies;
	unsigned long moved = begin;
	bool reported = false;
	bool again = false;
	u64 beat, last;

	if (kh_admin_spin(aq, slot))
		return;

	last = aq->ops->heartbeat(aq);
	for (;;) {
		kh_admin_arm(aq, again);
		if (wait_for_completion_timeout(&slot->done, KH_ADMIN_SLICE))
			return;
		/* An interrupt may be late or lost: look, and ask for another. */
		again = true;

		beat = aq->ops->heartbeat(aq);
		if (beat != last) {
			last = beat;
			moved = jiffies;
		}
		if (!reported && (time_after(jiffies, moved + KH_ADMIN_SILENT) ||
				  time_after(jiffies, begin + KH_ADMIN_LONGEST))) {
			reported = true;
			aq->ops->lost(aq);
		}
	}
}

int kh_admin_exec(struct kh_admin *aq, struct kh_admin_cmd *cmd, void *out,
		  size_t out_len, struct kh_admin_cqe *cqe)
{
	struct kh_admin_slot *slot;
	unsigned long flags;
	int err;

	might_sleep();
	if (WARN_ON_ONCE(out_len > KH_ADMIN_OUT_SIZE))
		return -EINVAL;

	wait_event(aq->room, (slot = kh_admin_post(aq, cmd, out)));
	if (IS_ERR(slot))
		return PTR_ERR(slot);
	aq->ops->ring(aq);
	kh_admin_wait(aq, slot);

	err = slot->err;
	if (cqe)
		*cqe = slot->cqe;
	if (out && !err)
		memcpy(out, aq->out + (slot - aq->slots) * KH_ADMIN_OUT_SIZE, out_len);

	spin_lock_irqsave(&aq->lock, flags);
	slot->busy = false;
	spin_unlock_irqrestore(&aq->lock, flags);
	wake_up(&aq->room);
	return err;
}

void kh_admin_close(struct kh_admin *aq)
{
	unsigned long flags;

	spin_lock_irqsave(&aq->lock, flags);
	aq->closed = true;
	spin_unlock_irqrestore(&aq->lock, flags);
	wake_up_all(&aq->room);
}

void kh_admin_abort(struct kh_admin *aq)
{
	struct kh_admin_slot *slot;
	unsigned long flags;

	kh_admin_close(aq);
	spin_lock_irqsave(&aq->lock, flags);
	/* What was answered in time keeps its answer. */
	kh_admin_poll_locked(aq);
	for (slot = aq->slots; slot < aq->slots + KH_ADMIN_ENTRIES; slot++) {
		if (slot->busy && !slot->answered) {
			slot->err = -EIO;
			slot->answered = true;
			complete(&slot->done);
		}
	}
	spin_unlock_irqrestore(&aq->lock, flags);
}
