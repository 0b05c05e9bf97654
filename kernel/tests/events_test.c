// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Events: from a ring that the test fills as the device would, to the handlers
 * of the objects that they name, and to no object that is gone.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/kthread.h>

#include "fake_device.h"

/* There is no device here that would create an EQ. */
static int fake_create_eq(struct kh_dev *dev, const struct kh_create_eq_params *params,
			  u32 *eqn)
{
	*eqn = params->type;
	return 0;
}

static int fake_destroy_eq(struct kh_dev *dev, u32 eqn)
{
	return 0;
}

#define kh_cmd_create_eq	fake_create_eq
#define kh_cmd_destroy_eq	fake_destroy_eq

#include "../events.c"

/* What the event code asks of the rest of the driver. */

const char *kh_test_fatal_reason;
static int link_state;

void kh_dev_fatal(struct kh_dev *dev, const char *reason)
{
	kh_test_fatal_reason = reason;
}

void kh_port_link(struct kh_dev *dev, bool up)
{
	link_state = up;
}

struct world {
	struct kh_dev dev;
	struct pci_dev pdev;
	struct kh_eq ceq;
	u32 aeq_pi;
	u32 ceq_pi;
};

static int events_test_init(struct kunit *test)
{
	struct world *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);
	struct kh_dev *dev;

	KUNIT_ASSERT_NOT_NULL(test, w);
	dev = &w->dev;
	w->pdev.dev.init_name = "keyhole-test";
	w->pdev.dev.dma_mask = &w->pdev.dma_mask;
	KUNIT_ASSERT_EQ(test, dma_set_mask_and_coherent(&w->pdev.dev, DMA_BIT_MASK(64)), 0);
	dev->pdev = &w->pdev;
	xa_init_flags(&dev->cqs, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->qps, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->srqs, XA_FLAGS_LOCK_IRQ);
	KUNIT_ASSERT_EQ(test, kh_eq_create(dev, &dev->aeq, KH_EQ_ASYNC, 0, 4), 0);
	dev->ceqs = &w->ceq;
	dev->num_ceqs = 1;
	KUNIT_ASSERT_EQ(test, kh_eq_create(dev, &w->ceq, KH_EQ_COMPLETION, 2, 7), 0);
	kh_test_fatal_reason = NULL;
	link_state = -1;
	test->priv = w;
	return 0;
}

static void events_test_exit(struct kunit *test)
{
	struct world *w = test->priv;

	if (!w)
		return;
	kh_buf_free(&w->dev, &w->ceq.buf);
	kh_buf_free(&w->dev, &w->dev.aeq.buf);
	xa_destroy(&w->dev.cqs);
	xa_destroy(&w->dev.qps);
	xa_destroy(&w->dev.srqs);
}

/* The device adds an entry. */
static void post(struct kh_eq *eq, u32 *pi, u8 type, u32 id)
{
	struct kh_eqe *eqe = &eq->ring[*pi & ((1u << eq->log_size) - 1)];

	eqe->type = type;
	eqe->id = cpu_to_le32(id);
	/* The phase comes last. */
	smp_wmb();
	WRITE_ONCE(eqe->phase, !((*pi >> eq->log_size) & 1));
	++*pi;
}

static void count_completion(struct ib_cq *ibcq, void *context)
{
	++*(unsigned int *)context;
}

static struct kh_cq *new_cq(struct kunit *test, u32 cqn, unsigned int *count)
{
	struct world *w = test->priv;
	struct kh_cq *cq = kunit_kzalloc(test, sizeof(*cq), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, cq);
	cq->cqn = cqn;
	cq->ibcq.comp_handler = count_completion;
	cq->ibcq.cq_context = count;
	KUNIT_ASSERT_EQ(test, kh_track_cq(&w->dev, cq), 0);
	return cq;
}

/* Three laps of the ring. */
static void a_completion_event_reaches_its_cq_alone(struct kunit *test)
{
	struct world *w = test->priv;
	unsigned int seven = 0, eight = 0;
	struct kh_cq *a = new_cq(test, 7, &seven);
	struct kh_cq *b = new_cq(test, 8, &eight);
	int i;

	for (i = 0; i < 3 * 128; i++) {
		post(&w->ceq, &w->ceq_pi, KH_EV_COMPLETION, i % 4 == 3 ? 8 : 7);
		KUNIT_ASSERT_EQ(test, kh_ceq_irq(0, &w->ceq), IRQ_HANDLED);
	}
	KUNIT_EXPECT_EQ(test, seven, 3 * 96);
	KUNIT_EXPECT_EQ(test, eight, 3 * 32);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->ceq.db->ci), 3 * 128);
	/* armed anew after each */
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->ceq.db->arm),
			3 * 128 << KH_ARM_SN_SHIFT | KH_ARM_NEXT);
	kh_untrack_cq(&w->dev, a);
	kh_untrack_cq(&w->dev, b);
}

static void events_of_no_object_are_dropped(struct kunit *test)
{
	struct world *w = test->priv;

	post(&w->ceq, &w->ceq_pi, KH_EV_COMPLETION, 12345);
	post(&w->ceq, &w->ceq_pi, KH_EV_COMPLETION, U32_MAX);
	post(&w->ceq, &w->ceq_pi, 0xee, 0);
	kh_ceq_irq(0, &w->ceq);
	post(&w->dev.aeq, &w->aeq_pi, KH_EV_QP_FATAL, 12345);
	post(&w->dev.aeq, &w->aeq_pi, KH_EV_SRQ_LIMIT, 12345);
	post(&w->dev.aeq, &w->aeq_pi, KH_EV_CQ_ERR, 12345);
	post(&w->dev.aeq, &w->aeq_pi, 0xee, 0);
	kh_control_thread(0, &w->dev);
	KUNIT_EXPECT_EQ(test, w->ceq.ci, 3);
	KUNIT_EXPECT_EQ(test, w->dev.aeq.ci, 4);
	KUNIT_EXPECT_NULL(test, kh_test_fatal_reason);
}

static void a_burst_goes_on_in_the_thread(struct kunit *test)
{
	struct world *w = test->priv;
	unsigned int count = 0;
	struct kh_cq *cq = new_cq(test, 3, &count);
	int i;

	for (i = 0; i < 128; i++)
		post(&w->ceq, &w->ceq_pi, KH_EV_COMPLETION, 3);
	KUNIT_EXPECT_EQ(test, kh_ceq_irq(0, &w->ceq), IRQ_WAKE_THREAD);
	KUNIT_EXPECT_EQ(test, count, KH_CEQ_BATCH);
	KUNIT_EXPECT_EQ(test, kh_ceq_thread(0, &w->ceq), IRQ_HANDLED);
	KUNIT_EXPECT_EQ(test, count, 128);
	kh_untrack_cq(&w->dev, cq);
}

static void what_is_left_in_the_ring_does_not_reach_the_next_owner(struct kunit *test)
{
	struct world *w = test->priv;
	unsigned int old = 0, new = 0;
	struct kh_cq *cq = new_cq(test, 5, &old);

	post(&w->ceq, &w->ceq_pi, KH_EV_COMPLETION, 5);
	post(&w->dev.aeq, &w->aeq_pi, KH_EV_CQ_ERR, 5);
	kh_untrack_cq(&w->dev, cq);
	KUNIT_EXPECT_EQ(test, old, 0);

	cq = new_cq(test, 5, &new);
	kh_ceq_irq(0, &w->ceq);
	kh_control_thread(0, &w->dev);
	KUNIT_EXPECT_EQ(test, new, 0);
	kh_untrack_cq(&w->dev, cq);
}

/* The device may give a number anew before its former owner is untracked. */
static void a_number_given_anew_belongs_to_the_new_owner(struct kunit *test)
{
	struct world *w = test->priv;
	unsigned int old = 0, new = 0;
	struct kh_cq *a = new_cq(test, 5, &old);
	struct kh_cq *b = new_cq(test, 5, &new);

	kh_untrack_cq(&w->dev, a);
	post(&w->ceq, &w->ceq_pi, KH_EV_COMPLETION, 5);
	kh_ceq_irq(0, &w->ceq);
	KUNIT_EXPECT_EQ(test, old, 0);
	KUNIT_EXPECT_EQ(test, new, 1);
	kh_untrack_cq(&w->dev, b);
}

struct slow {
	struct completion entered;
	struct completion leave;
	struct completion irq_done;
	struct completion untracked;
	struct world *w;
	struct kh_cq *cq;
};

static void slow_completion(struct ib_cq *ibcq, void *context)
{
	struct slow *slow = context;

	complete(&slow->entered);
	wait_for_completion(&slow->leave);
}

static int slow_irq(void *data)
{
	struct slow *slow = data;

	kh_ceq_irq(0, &slow->w->ceq);
	complete(&slow->irq_done);
	return 0;
}

static int slow_untrack(void *data)
{
	struct slow *slow = data;

	kh_untrack_cq(&slow->w->dev, slow->cq);
	complete(&slow->untracked);
	return 0;
}

static void untrack_waits_for_a_handler_that_runs(struct kunit *test)
{
	struct world *w = test->priv;
	struct slow *slow = kunit_kzalloc(test, sizeof(*slow), GFP_KERNEL);
	unsigned int unused = 0;

	KUNIT_ASSERT_NOT_NULL(test, slow);
	init_completion(&slow->entered);
	init_completion(&slow->leave);
	init_completion(&slow->irq_done);
	init_completion(&slow->untracked);
	slow->w = w;
	slow->cq = new_cq(test, 9, &unused);
	slow->cq->ibcq.comp_handler = slow_completion;
	slow->cq->ibcq.cq_context = slow;

	post(&w->ceq, &w->ceq_pi, KH_EV_COMPLETION, 9);
	KUNIT_ASSERT_FALSE(test, IS_ERR(kthread_run(slow_irq, slow, "kh-irq")));
	wait_for_completion(&slow->entered);
	KUNIT_ASSERT_FALSE(test, IS_ERR(kthread_run(slow_untrack, slow, "kh-untrack")));
	msleep(100);
	KUNIT_EXPECT_FALSE(test, completion_done(&slow->untracked));
	complete(&slow->leave);
	wait_for_completion(&slow->untracked);
	wait_for_completion(&slow->irq_done);
}

struct seen {
	struct ib_event event;
	unsigned int count;
};

static void see_event(struct ib_event *event, void *context)
{
	struct seen *seen = context;

	seen->event = *event;
	seen->count++;
}

static void asynchronous_events_have_their_names(struct kunit *test)
{
	static const struct { u8 type; enum ib_event_type event; } cases[] = {
		{ KH_EV_QP_FATAL,	IB_EVENT_QP_FATAL },
		{ KH_EV_QP_REQ_ERR,	IB_EVENT_QP_REQ_ERR },
		{ KH_EV_QP_ACCESS_ERR,	IB_EVENT_QP_ACCESS_ERR },
		{ KH_EV_COMM_EST,	IB_EVENT_COMM_EST },
		{ KH_EV_SQ_DRAINED,	IB_EVENT_SQ_DRAINED },
		{ KH_EV_QP_LAST_WQE,	IB_EVENT_QP_LAST_WQE_REACHED },
		{ KH_EV_CQ_ERR,		IB_EVENT_CQ_ERR },
		{ KH_EV_SRQ_LIMIT,	IB_EVENT_SRQ_LIMIT_REACHED },
		{ KH_EV_SRQ_ERR,	IB_EVENT_SRQ_ERR },
	};
	struct world *w = test->priv;
	unsigned int unused = 0;
	struct seen seen = {};
	struct kh_cq *cq = new_cq(test, 4, &unused);
	struct kh_qp *qp = kunit_kzalloc(test, sizeof(*qp), GFP_KERNEL);
	struct kh_srq *srq = kunit_kzalloc(test, sizeof(*srq), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, qp);
	KUNIT_ASSERT_NOT_NULL(test, srq);
	cq->ibcq.event_handler = see_event;
	cq->ibcq.cq_context = &seen;
	qp->qpn = 4;
	qp->ibqp.event_handler = see_event;
	qp->ibqp.qp_context = &seen;
	srq->srqn = 4;
	srq->ibsrq.event_handler = see_event;
	srq->ibsrq.srq_context = &seen;
	KUNIT_ASSERT_EQ(test, kh_track_qp(&w->dev, qp), 0);
	KUNIT_ASSERT_EQ(test, kh_track_srq(&w->dev, srq), 0);

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		void *element = &qp->ibqp;

		if (cases[i].type == KH_EV_CQ_ERR)
			element = &cq->ibcq;
		if (cases[i].type == KH_EV_SRQ_LIMIT || cases[i].type == KH_EV_SRQ_ERR)
			element = &srq->ibsrq;
		post(&w->dev.aeq, &w->aeq_pi, cases[i].type, 4);
		kh_control_thread(0, &w->dev);
		KUNIT_EXPECT_EQ(test, seen.count, i + 1);
		KUNIT_EXPECT_EQ(test, seen.event.event, cases[i].event);
		KUNIT_EXPECT_PTR_EQ(test, (void *)seen.event.element.qp, element);
		KUNIT_EXPECT_PTR_EQ(test, seen.event.device, &w->dev.ibdev);
	}
	kh_untrack_srq(&w->dev, srq);
	kh_untrack_qp(&w->dev, qp);
	kh_untrack_cq(&w->dev, cq);
}

static void events_of_the_device_are_acted_on(struct kunit *test)
{
	struct world *w = test->priv;

	post(&w->dev.aeq, &w->aeq_pi, KH_EV_PORT_DOWN, 0);
	kh_control_thread(0, &w->dev);
	KUNIT_EXPECT_EQ(test, link_state, 0);
	post(&w->dev.aeq, &w->aeq_pi, KH_EV_PORT_UP, 0);
	kh_control_thread(0, &w->dev);
	KUNIT_EXPECT_EQ(test, link_state, 1);
	KUNIT_EXPECT_NULL(test, kh_test_fatal_reason);
	post(&w->dev.aeq, &w->aeq_pi, KH_EV_FATAL, 0);
	kh_control_thread(0, &w->dev);
	KUNIT_EXPECT_NOT_NULL(test, kh_test_fatal_reason);
}

static u32 arms(struct kh_eq *eq)
{
	return le32_to_cpu(eq->db->arm) >> KH_ARM_SN_SHIFT;
}

/*
 * The device fires once for each arm.  A flush takes entries without arming, so
 * that the interrupt which comes for them finds none: it has to arm all the same,
 * or it was the last.
 */
static void an_entry_that_a_flush_took_arms_the_queue_again(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_dev *dev = &w->dev;
	unsigned int unused = 0;
	struct kh_cq *cq = new_cq(test, 6, &unused);
	u32 sn;

	KUNIT_ASSERT_EQ(test, kh_admin_init(&dev->admin, &w->pdev.dev, NULL), 0);
	kh_control_thread(0, dev);
	sn = arms(&dev->aeq);

	/* Vector 0 is the admin queue's too: no event, and the arm still stands. */
	KUNIT_EXPECT_EQ(test, kh_control_irq(0, dev), IRQ_HANDLED);
	KUNIT_EXPECT_EQ(test, arms(&dev->aeq), sn);

	post(&dev->aeq, &w->aeq_pi, KH_EV_CQ_ERR, 6);
	kh_untrack_cq(dev, cq);
	KUNIT_ASSERT_FALSE(test, kh_eq_pending(&dev->aeq));
	KUNIT_ASSERT_EQ(test, arms(&dev->aeq), sn);
	KUNIT_EXPECT_EQ(test, kh_control_irq(0, dev), IRQ_WAKE_THREAD);
	kh_control_thread(0, dev);
	KUNIT_EXPECT_EQ(test, arms(&dev->aeq), sn + 1);

	/* Once is enough. */
	KUNIT_EXPECT_EQ(test, kh_control_irq(0, dev), IRQ_HANDLED);
	kh_admin_free(&dev->admin);
}

static void the_end_of_the_device_wakes_every_cq(struct kunit *test)
{
	struct world *w = test->priv;
	unsigned int a = 0, b = 0;
	struct kh_cq *one = new_cq(test, 0, &a);
	struct kh_cq *two = new_cq(test, 70000, &b);

	kh_events_fatal(&w->dev);
	KUNIT_EXPECT_EQ(test, a, 1);
	KUNIT_EXPECT_EQ(test, b, 1);
	kh_untrack_cq(&w->dev, one);
	kh_untrack_cq(&w->dev, two);
}

static struct kunit_case events_test_cases[] = {
	KUNIT_CASE(a_completion_event_reaches_its_cq_alone),
	KUNIT_CASE(events_of_no_object_are_dropped),
	KUNIT_CASE(a_burst_goes_on_in_the_thread),
	KUNIT_CASE(what_is_left_in_the_ring_does_not_reach_the_next_owner),
	KUNIT_CASE(a_number_given_anew_belongs_to_the_new_owner),
	KUNIT_CASE(untrack_waits_for_a_handler_that_runs),
	KUNIT_CASE(asynchronous_events_have_their_names),
	KUNIT_CASE(events_of_the_device_are_acted_on),
	KUNIT_CASE(an_entry_that_a_flush_took_arms_the_queue_again),
	KUNIT_CASE(the_end_of_the_device_wakes_every_cq),
	{}
};

static struct kunit_suite events_test_suite = {
	.name		= "keyhole_events",
	.init		= events_test_init,
	.exit		= events_test_exit,
	.test_cases	= events_test_cases,
};

kunit_test_suite(events_test_suite);
