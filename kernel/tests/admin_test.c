// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The admin queue against a device that is a work item.
 *
 * Each test says how the device behaves (at once, late, in reverse, with
 * nonsense between, never), sends commands and looks at what their senders got.
 * A NOP's handle comes back as its result, so that an answer which reached the
 * wrong waiter shows.
 */
#include <kunit/device.h>
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/kthread.h>

#include "../admin.c"

MODULE_DESCRIPTION("KUnit tests of the Keyhole driver's admin queue");
MODULE_LICENSE("Dual BSD/GPL");

struct fake {
	struct kh_admin aq;
	struct delayed_work work;
	unsigned int delay_ms;		/* from the ring to the answers */
	bool reverse;			/* of what has been posted */
	bool duplicate;			/* every answer twice */
	bool stray;			/* an answer to nobody before each */
	bool silent;			/* none at all */
	u8 status;
	u32 taken;			/* commands */
	u32 answered;			/* entries of the completion ring */
	u32 most;			/* commands that were outstanding at once */
	u32 fired;			/* serial number */
	unsigned int interrupts;
	unsigned int lost;
	u64 beat;
	struct work_struct abort_work;
};

static struct fake *to_fake(struct kh_admin *aq)
{
	return container_of(aq, struct fake, aq);
}

static void fake_answer(struct fake *fake, u16 tag, u32 result)
{
	struct kh_admin_cqe *cqe = &fake->aq.cq[fake->answered & KH_ADMIN_MASK];
	u8 phase = !((fake->answered >> KH_ADMIN_MAX_LOG) & 1);

	cqe->tag = cpu_to_le16(tag);
	cqe->status = fake->status;
	cqe->result[0] = cpu_to_le32(result);
	/* The phase comes last. */
	smp_wmb();
	WRITE_ONCE(cqe->phase, phase);
	fake->answered++;
}

static void fake_execute(struct fake *fake, u32 i)
{
	struct kh_admin_cmd *cmd = &fake->aq.sq[i & KH_ADMIN_MASK];
	u64 out = le64_to_cpu(cmd->hdr.out_addr);
	u16 tag = le16_to_cpu(cmd->hdr.tag);
	u32 handle = le32_to_cpu(cmd->hdr.handle);

	if (out) {
		u8 *to = fake->aq.out + (out - fake->aq.out_dma);

		memset(to, handle, KH_ADMIN_OUT_SIZE);
	}
	if (fake->stray)
		fake_answer(fake, tag ^ 0x4000, ~handle);
	fake_answer(fake, tag, handle);
	if (fake->duplicate)
		fake_answer(fake, tag, ~handle);
}

static void fake_work(struct work_struct *work)
{
	struct fake *fake = container_of(to_delayed_work(work), struct fake, work);
	u32 pi, i, arm;

	fake->beat++;
	pi = le32_to_cpu(READ_ONCE(fake->aq.db->pi));
	/* Against dma_wmb() before the index. */
	smp_rmb();
	fake->most = max(fake->most, pi - fake->taken);
	if (fake->silent)
		return;
	if (fake->reverse) {
		for (i = pi; i != fake->taken; i--)
			fake_execute(fake, i - 1);
		fake->taken = pi;
	} else {
		while (fake->taken != pi)
			fake_execute(fake, fake->taken++);
	}

	/* Against the mb() of who arms. */
	smp_mb();
	arm = le32_to_cpu(READ_ONCE(fake->aq.db->arm));
	if (arm && arm >> KH_ARM_SN_SHIFT != fake->fired) {
		fake->fired = arm >> KH_ARM_SN_SHIFT;
		fake->interrupts++;
		kh_admin_irq(&fake->aq);
	}
}

static void fake_ring(struct kh_admin *aq)
{
	struct fake *fake = to_fake(aq);

	queue_delayed_work(system_unbound_wq, &fake->work,
			   msecs_to_jiffies(fake->delay_ms));
}

static u64 fake_heartbeat(struct kh_admin *aq)
{
	return to_fake(aq)->beat;
}

static void fake_abort(struct work_struct *work)
{
	kh_admin_abort(&container_of(work, struct fake, abort_work)->aq);
}

static void fake_lost(struct kh_admin *aq)
{
	to_fake(aq)->lost++;
	schedule_work(&to_fake(aq)->abort_work);
}

static const struct kh_admin_ops fake_ops = {
	.ring		= fake_ring,
	.heartbeat	= fake_heartbeat,
	.lost		= fake_lost,
};

static int admin_test_init(struct kunit *test)
{
	struct device *d = kunit_device_register(test, "keyhole-test");
	struct fake *fake;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, d);
	d->dma_mask = &d->coherent_dma_mask;
	KUNIT_ASSERT_EQ(test, dma_set_mask_and_coherent(d, DMA_BIT_MASK(64)), 0);
	fake = kunit_kzalloc(test, sizeof(*fake), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fake);
	INIT_DELAYED_WORK(&fake->work, fake_work);
	INIT_WORK(&fake->abort_work, fake_abort);
	KUNIT_ASSERT_EQ(test, kh_admin_init(&fake->aq, d, &fake_ops), 0);
	test->priv = fake;
	return 0;
}

static void admin_test_exit(struct kunit *test)
{
	struct fake *fake = test->priv;

	if (!fake)
		return;
	cancel_delayed_work_sync(&fake->work);
	flush_work(&fake->abort_work);
	kh_admin_free(&fake->aq);
}

static int fake_nop(struct fake *fake, u32 handle, u32 *result)
{
	struct kh_admin_cmd cmd = {};
	struct kh_admin_cqe cqe = {};
	int err;

	cmd.hdr.opcode = KH_ADM_NOP;
	cmd.hdr.handle = cpu_to_le32(handle);
	err = kh_admin_exec(&fake->aq, &cmd, NULL, 0, &cqe);
	*result = le32_to_cpu(cqe.result[0]);
	return err;
}

/* Three laps of the ring: the phase changes twice. */
static void every_command_gets_its_own_answer(struct kunit *test)
{
	struct fake *fake = test->priv;
	u32 i, result;

	for (i = 0; i < 3 * KH_ADMIN_ENTRIES; i++) {
		KUNIT_ASSERT_EQ(test, fake_nop(fake, i + 7, &result), 0);
		KUNIT_ASSERT_EQ(test, result, i + 7);
	}
	KUNIT_EXPECT_EQ(test, fake->taken, 3 * KH_ADMIN_ENTRIES);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(fake->aq.db->ci), 3 * KH_ADMIN_ENTRIES);
}

static void a_late_answer_comes_by_interrupt(struct kunit *test)
{
	struct fake *fake = test->priv;
	unsigned long begin = jiffies;
	u32 result;

	fake->delay_ms = 50;
	KUNIT_ASSERT_EQ(test, fake_nop(fake, 5, &result), 0);
	KUNIT_EXPECT_EQ(test, result, 5);
	KUNIT_EXPECT_EQ(test, fake->interrupts, 1);
	/* and not by the look that follows when no interrupt comes */
	KUNIT_EXPECT_LT(test, jiffies - begin, KH_ADMIN_SLICE);
}

static void output_is_copied_to_who_asked(struct kunit *test)
{
	struct fake *fake = test->priv;
	struct kh_admin_cmd cmd = {};
	u8 out[64];
	int i;

	cmd.hdr.handle = cpu_to_le32(0x5a);
	memset(out, 0, sizeof(out));
	KUNIT_ASSERT_EQ(test, kh_admin_exec(&fake->aq, &cmd, out, sizeof(out), NULL), 0);
	for (i = 0; i < sizeof(out); i++)
		KUNIT_ASSERT_EQ(test, out[i], 0x5a);
	KUNIT_EXPECT_TRUE(test, IS_ALIGNED(le64_to_cpu(cmd.hdr.out_addr), 64));
}

static void a_status_becomes_its_errno(struct kunit *test)
{
	static const struct { u8 status; int err; } cases[] = {
		{ KH_ST_INVAL, -EINVAL },	{ KH_ST_NOMEM, -ENOMEM },
		{ KH_ST_BUSY, -EBUSY },		{ KH_ST_NOENT, -ENOENT },
		{ KH_ST_FAULT, -EFAULT },	{ KH_ST_NOSUPP, -EOPNOTSUPP },
		{ KH_ST_EXIST, -EEXIST },	{ KH_ST_PERM, -EPERM },
		{ KH_ST_PERM + 1, -EPROTO },	{ 255, -EPROTO },
	};
	struct fake *fake = test->priv;
	u32 result;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		fake->status = cases[i].status;
		KUNIT_EXPECT_EQ(test, fake_nop(fake, 1, &result), cases[i].err);
	}
}

static void strays_and_duplicates_are_refused(struct kunit *test)
{
	struct fake *fake = test->priv;
	u32 i, result;

	fake->stray = true;
	fake->duplicate = true;
	for (i = 0; i < 2 * KH_ADMIN_ENTRIES; i++) {
		KUNIT_ASSERT_EQ(test, fake_nop(fake, i, &result), 0);
		KUNIT_ASSERT_EQ(test, result, i);
	}
	kh_admin_poll(&fake->aq);
	KUNIT_EXPECT_EQ(test, fake->aq.bogus, 4 * KH_ADMIN_ENTRIES);
}

struct sender {
	struct fake *fake;
	struct task_struct *task;
	struct completion done;
	u32 base;
	u32 count;
	u32 wrong;
	int err;
};

static int sender_thread(void *data)
{
	struct sender *sender = data;
	u32 i, result;

	for (i = 0; i < sender->count; i++) {
		int err = fake_nop(sender->fake, sender->base + i, &result);

		if (err)
			sender->err = err;
		else if (result != sender->base + i)
			sender->wrong++;
	}
	complete(&sender->done);
	return 0;
}

#define SENDERS 48

static struct sender *start_senders(struct kunit *test, u32 count)
{
	struct sender *senders;
	int i;

	senders = kunit_kcalloc(test, SENDERS, sizeof(*senders), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, senders);
	for (i = 0; i < SENDERS; i++) {
		senders[i].fake = test->priv;
		senders[i].base = i << 16;
		senders[i].count = count;
		init_completion(&senders[i].done);
		senders[i].task = kthread_run(sender_thread, &senders[i], "kh-test%d", i);
		KUNIT_ASSERT_FALSE(test, IS_ERR(senders[i].task));
	}
	return senders;
}

/* More who send than the ring has entries, and answers in the wrong order. */
static void answers_out_of_order_find_their_senders(struct kunit *test)
{
	struct fake *fake = test->priv;
	struct sender *senders;
	int i;

	fake->reverse = true;
	fake->delay_ms = 2;
	senders = start_senders(test, 20);
	for (i = 0; i < SENDERS; i++) {
		wait_for_completion(&senders[i].done);
		KUNIT_EXPECT_EQ(test, senders[i].err, 0);
		KUNIT_EXPECT_EQ(test, senders[i].wrong, 0);
	}
	KUNIT_EXPECT_EQ(test, fake->taken, SENDERS * 20);
	KUNIT_EXPECT_GT(test, fake->most, 1);
	KUNIT_EXPECT_LE(test, fake->most, KH_ADMIN_ENTRIES - 1);
}

/* Those in the ring, and those who wait for room. */
static void abort_ends_all_who_wait(struct kunit *test)
{
	struct fake *fake = test->priv;
	struct sender *senders;
	int i;

	fake->silent = true;
	senders = start_senders(test, 1);
	msleep(100);
	kh_admin_abort(&fake->aq);
	for (i = 0; i < SENDERS; i++) {
		wait_for_completion(&senders[i].done);
		KUNIT_EXPECT_EQ(test, senders[i].err, -EIO);
	}
	KUNIT_EXPECT_EQ(test, fake->aq.pi, KH_ADMIN_ENTRIES - 1);
}

static void a_closed_queue_refuses_at_once(struct kunit *test)
{
	struct fake *fake = test->priv;
	u32 result;

	kh_admin_close(&fake->aq);
	KUNIT_EXPECT_EQ(test, fake_nop(fake, 1, &result), -EIO);
	KUNIT_EXPECT_EQ(test, fake->aq.pi, 0);
}

static void a_silent_device_is_reported_once(struct kunit *test)
{
	struct fake *fake = test->priv;
	unsigned long begin = jiffies;
	u32 result;

	fake->silent = true;
	KUNIT_EXPECT_EQ(test, fake_nop(fake, 1, &result), -EIO);
	KUNIT_EXPECT_EQ(test, fake->lost, 1);
	KUNIT_EXPECT_GE(test, jiffies - begin, KH_ADMIN_SILENT);
	KUNIT_EXPECT_LT(test, jiffies - begin, 3 * KH_ADMIN_SILENT);
}

static struct kunit_case admin_test_cases[] = {
	KUNIT_CASE(every_command_gets_its_own_answer),
	KUNIT_CASE(a_late_answer_comes_by_interrupt),
	KUNIT_CASE(output_is_copied_to_who_asked),
	KUNIT_CASE(a_status_becomes_its_errno),
	KUNIT_CASE(strays_and_duplicates_are_refused),
	KUNIT_CASE(answers_out_of_order_find_their_senders),
	KUNIT_CASE(abort_ends_all_who_wait),
	KUNIT_CASE(a_closed_queue_refuses_at_once),
	KUNIT_CASE_SLOW(a_silent_device_is_reported_once),
	{}
};

static struct kunit_suite admin_test_suite = {
	.name		= "keyhole_admin",
	.init		= admin_test_init,
	.exit		= admin_test_exit,
	.test_cases	= admin_test_cases,
};

kunit_test_suite(admin_test_suite);
