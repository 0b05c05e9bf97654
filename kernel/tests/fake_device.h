/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A device that is a function: the admin queue's doorbell, which answers before
 * it returns.  A test says what the next answers are, and looks at the command
 * as it stood in the ring.
 */
#ifndef KH_TEST_FAKE_DEVICE_H
#define KH_TEST_FAKE_DEVICE_H

#include <kunit/device.h>
#include <kunit/test.h>
#include <linux/dma-mapping.h>

#include "../keyhole.h"

struct fake_device {
	struct kh_dev dev;
	struct pci_dev pdev;
	struct device *dma;
	u32 taken;			/* commands */
	struct kh_admin_cmd cmd;	/* the last of them */
	u8 status;			/* of the next answers */
	u32 result;
	u8 out[KH_ADMIN_OUT_SIZE];
};

/* What kh_dev_fatal() was last told (events_test.c has it), or NULL. */
extern const char *kh_test_fatal_reason;

static void __maybe_unused fake_device_ring(struct kh_admin *aq)
{
	struct fake_device *fake = container_of(aq, struct fake_device, dev.admin);
	struct kh_admin_cqe *cqe = &aq->cq[fake->taken % KH_ADMIN_ENTRIES];
	u64 out;

	fake->cmd = aq->sq[fake->taken % KH_ADMIN_ENTRIES];
	out = le64_to_cpu(fake->cmd.hdr.out_addr);
	if (out)
		memcpy(aq->out + (out - aq->out_dma), fake->out, sizeof(fake->out));
	cqe->tag = fake->cmd.hdr.tag;
	cqe->status = fake->status;
	cqe->result[0] = cpu_to_le32(fake->result);
	/* The phase comes last. */
	smp_wmb();
	WRITE_ONCE(cqe->phase, !((fake->taken / KH_ADMIN_ENTRIES) & 1));
	fake->taken++;
}

static u64 __maybe_unused fake_device_heartbeat(struct kh_admin *aq)
{
	return jiffies;
}

static void __maybe_unused fake_device_lost(struct kh_admin *aq)
{
}

static const struct kh_admin_ops fake_device_ops __maybe_unused = {
	.ring		= fake_device_ring,
	.heartbeat	= fake_device_heartbeat,
	.lost		= fake_device_lost,
};

static void __maybe_unused fake_device_init(struct kunit *test,
					    struct fake_device *fake)
{
	struct device *d = kunit_device_register(test, "keyhole-fake");

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, d);
	d->dma_mask = &d->coherent_dma_mask;
	KUNIT_ASSERT_EQ(test, dma_set_mask_and_coherent(d, DMA_BIT_MASK(64)), 0);
	fake->dma = d;
	/* As much of a PCI device as the DMA functions look at. */
	fake->pdev.dev.init_name = "keyhole-fake";
	fake->pdev.dev.dma_mask = &fake->pdev.dma_mask;
	KUNIT_ASSERT_EQ(test, dma_set_mask_and_coherent(&fake->pdev.dev,
							DMA_BIT_MASK(64)), 0);
	fake->dev.pdev = &fake->pdev;
	init_completion(&fake->dev.dead);
	kh_test_fatal_reason = NULL;
	KUNIT_ASSERT_EQ(test, kh_admin_init(&fake->dev.admin, d, &fake_device_ops), 0);
}

static void __maybe_unused fake_device_free(struct fake_device *fake)
{
	kh_admin_free(&fake->dev.admin);
}

/*
 * Call expression with its nth allocation failing; injected says whether there
 * were so many.  kunit.py sets fault injection up to let all of them fail.
 */
#define WITH_FAILING_ALLOCATION(n, injected, expression)		\
({									\
	typeof(expression) _result;					\
									\
	WRITE_ONCE(current->fail_nth, n);				\
	_result = (expression);						\
	injected = !READ_ONCE(current->fail_nth);			\
	WRITE_ONCE(current->fail_nth, 0);				\
	_result;							\
})

#endif /* KH_TEST_FAKE_DEVICE_H */
