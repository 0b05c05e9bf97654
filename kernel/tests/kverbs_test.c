// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Kernel consumers: their requests as the device finds them in the rings, its
 * completions as they get them, and what becomes of both on a lost device.
 */
#include "fake_device.h"
#include "../doorbell.c"
#include "../kverbs_queue.c"
#include "../kverbs_post.c"
#include "../kverbs_poll.c"
#include "../mr.c"

#define SLOT	5
#define QPN	0x77

struct world {
	struct fake_device fake;
	u8 db[KH_PAGE_SIZE];
	struct kh_status_page status;
	u32 wake;
	struct kh_cq cq;
	struct kh_qp qp;
	struct kh_srq srq;
	struct kh_pd pd;
	unsigned int events;
	u32 cq_pi;
};

static void count_event(struct ib_cq *ibcq, void *context)
{
	++*(unsigned int *)context;
}

static int kverbs_test_init(struct kunit *test)
{
	struct world *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);
	struct kh_dev *dev;

	KUNIT_ASSERT_NOT_NULL(test, w);
	fake_device_init(test, &w->fake);
	dev = &w->fake.dev;
	dev->db = w->db;
	dev->status = &w->status;
	dev->wake = (void __iomem *)&w->wake;
	xa_init_flags(&dev->qps, XA_FLAGS_LOCK_IRQ);
	dev->attr.caps = KH_CAP_REG_MR;
	dev->attr.max_fast_reg_pages = 600;
	w->fake.result = 0x4200;

	w->cq.ibcq.device = &dev->ibdev;
	w->cq.ibcq.comp_handler = count_event;
	w->cq.ibcq.cq_context = &w->events;
	spin_lock_init(&w->cq.lock);
	INIT_LIST_HEAD(&w->cq.send_qps);
	INIT_LIST_HEAD(&w->cq.recv_qps);
	KUNIT_ASSERT_EQ(test, kh_kcq_create(dev, &w->cq, 8), 0);
	w->pd.ibpd.device = &dev->ibdev;
	w->pd.pdn = 9;
	test->priv = w;
	return 0;
}

static void kverbs_test_exit(struct kunit *test)
{
	struct world *w = test->priv;

	if (!w)
		return;
	kh_buf_free(&w->fake.dev, &w->qp.buf);
	kh_buf_free(&w->fake.dev, &w->srq.buf);
	kh_buf_free(&w->fake.dev, &w->cq.buf);
	xa_destroy(&w->fake.dev.qps);
	fake_device_free(&w->fake);
}

/* A QP in RTS: an SQ of 8 blocks of one SGE (4 WQEs of 2), an RQ of 4. */
static struct kh_qp *new_qp(struct kunit *test, enum ib_qp_type type)
{
	struct world *w = test->priv;
	struct kh_qp *qp = &w->qp;

	if (qp->db) {
		kh_kqp_detach(qp);
		xa_erase_irq(&w->fake.dev.qps, QPN);
		kh_buf_free(&w->fake.dev, &qp->buf);
	}
	memset(qp, 0, sizeof(*qp));
	qp->ibqp.device = &w->fake.dev.ibdev;
	qp->ibqp.qp_type = type;
	qp->ibqp.send_cq = &w->cq.ibcq;
	qp->ibqp.recv_cq = &w->cq.ibcq;
	qp->qpn = QPN;
	qp->slot = SLOT;
	qp->state = IB_QPS_RTS;
	qp->sig_type = IB_SIGNAL_REQ_WR;
	qp->cap = (struct ib_qp_cap) {
		.max_send_wr = 4, .max_send_sge = 4, .max_inline_data = 64,
		.max_recv_wr = 4, .max_recv_sge = 2,
	};
	spin_lock_init(&qp->sq_lock);
	spin_lock_init(&qp->rq_lock);
	KUNIT_ASSERT_EQ(test, kh_kqp_create(&w->fake.dev, qp), 0);
	kh_kqp_attach(qp);
	KUNIT_ASSERT_EQ(test, kh_track_qp(&w->fake.dev, qp), 0);
	return qp;
}

static struct kh_wqe_ctrl *wqe(struct kh_qp *qp, u32 index)
{
	return (void *)(qp->sq + (index << KH_WQE_BLOCK_SHIFT));
}

static struct ib_sge sges[] = {
	{ 0x1000, 16, 0xa1 }, { 0x2000, 32, 0xa2 }, { 0x3000, 0, 0xa3 },
	{ 0x4000, 8, 0xa4 }, { 0x5000, 1, 0xa5 },
};

static int post(struct kh_qp *qp, struct ib_send_wr *wr)
{
	const struct ib_send_wr *bad = NULL;
	int ret = kh_post_send(&qp->ibqp, wr, &bad);

	return ret && !bad ? -EPROTO : ret;
}

static void a_request_is_in_the_ring_as_the_device_reads_it(struct kunit *test)
{
	static const struct { enum ib_wr_opcode wr; u8 op; bool remote, imm, key; } rows[] = {
		{ IB_WR_SEND, KH_OP_SEND },
		{ IB_WR_SEND_WITH_IMM, KH_OP_SEND_IMM, .imm = true },
		{ IB_WR_SEND_WITH_INV, KH_OP_SEND_INV, .key = true },
		{ IB_WR_RDMA_WRITE, KH_OP_WRITE, .remote = true },
		{ IB_WR_RDMA_WRITE_WITH_IMM, KH_OP_WRITE_IMM, .remote = true, .imm = true },
		{ IB_WR_RDMA_READ, KH_OP_READ, .remote = true },
	};
	struct world *w = test->priv;
	int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kh_qp *qp = new_qp(test, IB_QPT_RC);
		struct kh_wqe_ctrl *ctrl = wqe(qp, 0);
		struct kh_wqe_rdma *rdma = (void *)(ctrl + 1);
		struct kh_sge *sge = (void *)(rdma + 1);
		struct ib_rdma_wr wr = {
			.wr = { .wr_id = 0x1122334455667788, .opcode = rows[i].wr,
				.send_flags = IB_SEND_SIGNALED | IB_SEND_FENCE,
				.sg_list = sges, .num_sge = 2 },
			.remote_addr = 0x123456789, .rkey = 0xbeef,
		};

		if (rows[i].key)
			wr.wr.ex.invalidate_rkey = 0x51;
		else
			wr.wr.ex.imm_data = cpu_to_be32(0x51);
		memset(w->db, 0, sizeof(w->db));
		KUNIT_ASSERT_EQ_MSG(test, post(qp, &wr.wr), 0, "row %d", i);
		KUNIT_EXPECT_EQ(test, ctrl->opcode, rows[i].op);
		KUNIT_EXPECT_EQ(test, ctrl->flags, KH_WQE_SIGNALED | KH_WQE_FENCE);
		KUNIT_EXPECT_EQ(test, ctrl->nblocks, 1);
		KUNIT_EXPECT_EQ(test, ctrl->num_sge, 2);
		KUNIT_EXPECT_EQ(test, le64_to_cpu(ctrl->wr_id), 0x1122334455667788);
		/* An immediate is bytes, which nobody turns. */
		KUNIT_EXPECT_EQ(test, (__force u32)ctrl->imm,
				rows[i].imm ? (__force u32)cpu_to_be32(0x51) :
				rows[i].key ? (__force u32)cpu_to_le32(0x51) : 0);
		KUNIT_EXPECT_EQ(test, le64_to_cpu(rdma->remote_addr),
				rows[i].remote ? 0x123456789 : 0);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(rdma->rkey), rows[i].remote ? 0xbeef : 0);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(rdma->inline_len), 0);
		KUNIT_EXPECT_EQ(test, le64_to_cpu(sge[1].addr), 0x2000);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(sge[1].length), 32);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(sge[1].lkey), 0xa2);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(qp->db->sq_pi), 1);
		KUNIT_EXPECT_EQ(test, w->db[SLOT], KH_DB_MARK);
	}
}

static void a_sleeping_device_is_woken(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };

	KUNIT_ASSERT_EQ(test, post(qp, &wr), 0);
	KUNIT_EXPECT_EQ(test, w->wake, 0);
	w->status.sleeping = cpu_to_le32(1);
	KUNIT_ASSERT_EQ(test, post(qp, &wr), 0);
	KUNIT_EXPECT_EQ(test, w->wake, 1);
}

static void atomics_have_their_operands(struct kunit *test)
{
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_atomic_wr wr = {
		.wr = { .opcode = IB_WR_ATOMIC_CMP_AND_SWP, .sg_list = sges, .num_sge = 1 },
		.remote_addr = 0x8000, .rkey = 0xbeef, .compare_add = 11, .swap = 22,
	};
	int i;

	for (i = 0; i < 2; i++) {
		/* One segment more than others: two blocks each. */
		struct kh_wqe_ctrl *ctrl = wqe(qp, qp->sq_pi);
		struct kh_wqe_rdma *rdma = (void *)(ctrl + 1);
		struct kh_wqe_atomic *atomic = (void *)(rdma + 1);

		KUNIT_ASSERT_EQ(test, post(qp, &wr.wr), 0);
		KUNIT_EXPECT_EQ(test, ctrl->opcode, i ? KH_OP_FETCH_ADD : KH_OP_CMP_SWAP);
		KUNIT_EXPECT_EQ(test, le64_to_cpu(rdma->remote_addr), 0x8000);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(rdma->rkey), 0xbeef);
		KUNIT_EXPECT_EQ(test, le64_to_cpu(atomic->swap_add), i ? 11 : 22);
		KUNIT_EXPECT_EQ(test, le64_to_cpu(atomic->compare), i ? 0 : 11);
		wr.wr.opcode = IB_WR_ATOMIC_FETCH_AND_ADD;
	}
}

static void a_datagram_carries_its_address(struct kunit *test)
{
	struct kh_qp *qp = new_qp(test, IB_QPT_UD);
	struct kh_wqe_ctrl *ctrl = wqe(qp, 0);
	struct kh_wqe_ud *seg = (void *)(ctrl + 1);
	struct kh_sge *sge = (void *)(seg + 1);
	struct kh_ah ah = { .av = { .sgid_index = 3, .sl = 2, .dmac = { 1, 2, 3, 4, 5, 6 } } };
	struct ib_ud_wr wr = {
		.wr = { .opcode = IB_WR_SEND, .sg_list = sges, .num_sge = 1 },
		.ah = &ah.ibah, .remote_qpn = 0x1234, .remote_qkey = 0x80010000,
	};

	KUNIT_ASSERT_EQ(test, post(qp, &wr.wr), 0);
	KUNIT_EXPECT_EQ(test, memcmp(&seg->av, &ah.av, sizeof(ah.av)), 0);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(seg->dest_qpn), 0x1234);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(seg->qkey), 0x80010000);
	KUNIT_EXPECT_EQ(test, le64_to_cpu(sge->addr), 0x1000);
	KUNIT_EXPECT_EQ(test, ctrl->nblocks, 2);
}

static void requests_that_a_qp_cannot_have_are_refused(struct kunit *test)
{
	static const struct {
		enum ib_qp_type type;
		enum ib_wr_opcode op;
		int sges, flags;
	} rows[] = {
		{ IB_QPT_UC, IB_WR_RDMA_READ }, { IB_QPT_UC, IB_WR_SEND_WITH_INV },
		{ IB_QPT_UC, IB_WR_ATOMIC_CMP_AND_SWP }, { IB_QPT_UC, IB_WR_ATOMIC_FETCH_AND_ADD },
		{ IB_QPT_UD, IB_WR_RDMA_WRITE }, { IB_QPT_UD, IB_WR_REG_MR },
		{ IB_QPT_GSI, IB_WR_LOCAL_INV }, { IB_QPT_RC, IB_WR_RDMA_READ_WITH_INV },
		{ IB_QPT_RC, IB_WR_REG_MR_INTEGRITY }, { IB_QPT_RC, 255 },
		{ IB_QPT_RC, IB_WR_SEND, 5 }, { IB_QPT_RC, IB_WR_SEND, -1 },
		{ IB_QPT_RC, IB_WR_RDMA_READ, 1, IB_SEND_INLINE },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kh_qp *qp = new_qp(test, rows[i].type);
		struct ib_send_wr first = { .opcode = IB_WR_SEND, .num_sge = 0 };
		struct ib_ud_wr wr = {
			.wr = { .opcode = rows[i].op, .num_sge = rows[i].sges,
				.sg_list = sges, .send_flags = rows[i].flags },
		};
		const struct ib_send_wr *bad = NULL;

		if (rows[i].type == IB_QPT_UD || rows[i].type == IB_QPT_GSI) {
			KUNIT_EXPECT_EQ_MSG(test, post(qp, &wr.wr), -EINVAL, "row %d", i);
			continue;
		}
		/* Those before it have been posted. */
		first.next = &wr.wr;
		KUNIT_EXPECT_EQ_MSG(test, kh_post_send(&qp->ibqp, &first, &bad), -EINVAL,
				    "row %d", i);
		KUNIT_EXPECT_PTR_EQ(test, bad, &wr.wr);
		KUNIT_EXPECT_EQ(test, qp->sq_pi, 1);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(qp->db->sq_pi), 1);
	}
}

static void data_goes_on_at_the_start_of_the_ring(struct kunit *test)
{
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	u32 size = 1u << qp->log_sq_blocks;
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = sges, .num_sge = 4 };
	struct kh_sge *sge;
	int i;

	KUNIT_ASSERT_EQ(test, size, 8);
	qp->sq_pi = size - 1;
	qp->sq_ci = size - 1;
	KUNIT_ASSERT_EQ(test, post(qp, &wr), 0);
	KUNIT_EXPECT_EQ(test, wqe(qp, size - 1)->nblocks, 2);
	/* Two behind ctrl and rdma, two in the first block. */
	for (i = 0; i < 4; i++) {
		sge = i < 2 ? (void *)(qp->sq + (size << KH_WQE_BLOCK_SHIFT) - 32 + i * 16) :
			      (void *)(qp->sq + (i - 2) * 16);
		KUNIT_EXPECT_EQ(test, le64_to_cpu(sge->addr), sges[i].addr);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(sge->lkey), sges[i].lkey);
	}
}

static void inline_data_is_gathered(struct kunit *test)
{
	static u8 bytes[65] = "one after the other, as if they were one";
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_sge parts[] = {
		{ (uintptr_t)bytes, 10 }, { (uintptr_t)bytes + 10, 0 },
		{ (uintptr_t)bytes + 10, 30 },
	};
	struct ib_send_wr wr = {
		.opcode = IB_WR_SEND, .sg_list = parts, .num_sge = 3,
		.send_flags = IB_SEND_INLINE,
	};
	struct kh_wqe_ctrl *ctrl = wqe(qp, 0);
	struct kh_wqe_rdma *rdma = (void *)(ctrl + 1);

	KUNIT_ASSERT_EQ(test, post(qp, &wr), 0);
	KUNIT_EXPECT_EQ(test, ctrl->flags, KH_WQE_INLINE);
	KUNIT_EXPECT_EQ(test, ctrl->num_sge, 0);
	KUNIT_EXPECT_EQ(test, ctrl->nblocks, 2);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(rdma->inline_len), 40);
	KUNIT_EXPECT_EQ(test, memcmp(rdma + 1, bytes, 40), 0);
	parts[2].length = 55;
	KUNIT_EXPECT_EQ(test, post(qp, &wr), -EINVAL);
	/* A sum that does not fit into 32 bits. */
	parts[0].length = U32_MAX;
	KUNIT_EXPECT_EQ(test, post(qp, &wr), -EINVAL);
}

static void a_full_ring_takes_no_more(struct kunit *test)
{
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = sges, .num_sge = 4 };
	int i;

	for (i = 0; i < 4; i++)
		KUNIT_ASSERT_EQ(test, post(qp, &wr), 0);
	KUNIT_EXPECT_EQ(test, post(qp, &wr), -ENOMEM);
	qp->sq_ci = 1;
	KUNIT_EXPECT_EQ(test, post(qp, &wr), -ENOMEM);
	qp->sq_ci = 2;
	KUNIT_EXPECT_EQ(test, post(qp, &wr), 0);
}

static void nothing_is_posted_before_its_state(struct kunit *test)
{
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };
	struct ib_recv_wr recv = {};
	const struct ib_recv_wr *bad = NULL;

	qp->state = IB_QPS_RTR;
	KUNIT_EXPECT_EQ(test, post(qp, &wr), -EINVAL);
	KUNIT_EXPECT_EQ(test, kh_post_recv(&qp->ibqp, &recv, &bad), 0);
	qp->state = IB_QPS_RESET;
	KUNIT_EXPECT_EQ(test, kh_post_recv(&qp->ibqp, &recv, &bad), -EINVAL);
	KUNIT_EXPECT_PTR_EQ(test, bad, &recv);
}

static void a_receive_is_in_the_ring_as_the_device_reads_it(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_recv_wr wr = { .wr_id = 77, .sg_list = sges, .num_sge = 2 };
	const struct ib_recv_wr *bad = NULL;
	struct kh_rwqe *rwqe = (void *)(qp->rq + (1 << qp->log_rq_stride));
	struct kh_sge *sge = (void *)(rwqe + 1);

	KUNIT_ASSERT_EQ(test, kh_post_recv(&qp->ibqp, &wr, &bad), 0);
	KUNIT_EXPECT_EQ(test, w->db[SLOT], 0);
	qp->db->rq_notify = cpu_to_le32(1);
	KUNIT_ASSERT_EQ(test, kh_post_recv(&qp->ibqp, &wr, &bad), 0);
	KUNIT_EXPECT_EQ(test, w->db[SLOT], KH_DB_MARK);
	KUNIT_EXPECT_EQ(test, le64_to_cpu(rwqe->wr_id), 77);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(rwqe->num_sge), 2);
	KUNIT_EXPECT_EQ(test, le64_to_cpu(sge[1].addr), 0x2000);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(qp->db->rq_pi), 2);

	wr.num_sge = 3;
	KUNIT_EXPECT_EQ(test, kh_post_recv(&qp->ibqp, &wr, &bad), -EINVAL);
	wr.num_sge = 2;
	KUNIT_ASSERT_EQ(test, kh_post_recv(&qp->ibqp, &wr, &bad), 0);
	KUNIT_ASSERT_EQ(test, kh_post_recv(&qp->ibqp, &wr, &bad), 0);
	KUNIT_EXPECT_EQ(test, kh_post_recv(&qp->ibqp, &wr, &bad), -ENOMEM);
}

static void an_srq_frees_what_the_device_took(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_srq *srq = &w->srq;
	struct ib_recv_wr wr = { .wr_id = 78, .sg_list = sges, .num_sge = 2 };
	const struct ib_recv_wr *bad = NULL;
	int i;

	srq->ibsrq.device = &w->fake.dev.ibdev;
	srq->max_wr = 4;
	srq->max_sge = 2;
	spin_lock_init(&srq->lock);
	KUNIT_ASSERT_EQ(test, kh_ksrq_create(&w->fake.dev, srq), 0);
	for (i = 0; i < 4; i++)
		KUNIT_ASSERT_EQ(test, kh_post_srq_recv(&srq->ibsrq, &wr, &bad), 0);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(srq->db->pi), 4);
	KUNIT_EXPECT_EQ(test, le64_to_cpu(((struct kh_rwqe *)srq->buf.va)->wr_id), 78);
	KUNIT_EXPECT_EQ(test, kh_post_srq_recv(&srq->ibsrq, &wr, &bad), -ENOMEM);
	srq->db->ci = cpu_to_le32(1);
	KUNIT_EXPECT_EQ(test, kh_post_srq_recv(&srq->ibsrq, &wr, &bad), 0);
	wr.num_sge = 3;
	srq->db->ci = cpu_to_le32(4);
	KUNIT_EXPECT_EQ(test, kh_post_srq_recv(&srq->ibsrq, &wr, &bad), -EINVAL);
	KUNIT_EXPECT_PTR_EQ(test, bad, &wr);
}

/* ------------------------------------------------------------------------ */

/* The device completes something. */
static void complete_one(struct world *w, struct kh_cqe cqe)
{
	struct kh_cqe *at = &w->cq.ring[w->cq_pi & ((1u << w->cq.log_size) - 1)];

	cqe.phase = !((w->cq_pi >> w->cq.log_size) & 1);
	if (!cqe.qpn)
		cqe.qpn = cpu_to_le32(QPN);
	*at = cqe;
	w->cq_pi++;
}

static int poll(struct world *w, struct ib_wc *wc, int num)
{
	memset(wc, 0xee, num * sizeof(*wc));
	return kh_poll_cq(&w->cq.ibcq, num, wc);
}

static void completions_are_what_the_device_says(struct kunit *test)
{
	static const struct { u8 op; enum ib_wc_opcode wc; } rows[] = {
		{ KH_OP_SEND, IB_WC_SEND }, { KH_OP_SEND_IMM, IB_WC_SEND },
		{ KH_OP_SEND_INV, IB_WC_SEND }, { KH_OP_WRITE, IB_WC_RDMA_WRITE },
		{ KH_OP_WRITE_IMM, IB_WC_RDMA_WRITE }, { KH_OP_READ, IB_WC_RDMA_READ },
		{ KH_OP_CMP_SWAP, IB_WC_COMP_SWAP }, { KH_OP_FETCH_ADD, IB_WC_FETCH_ADD },
		{ KH_OP_LOCAL_INV, IB_WC_LOCAL_INV }, { KH_OP_REG_MR, IB_WC_REG_MR },
		{ KH_CQE_RECV, IB_WC_RECV }, { KH_CQE_RECV_WRITE_IMM, IB_WC_RECV_RDMA_WITH_IMM },
	};
	struct world *w = test->priv;
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_wc wc;
	int i, lap;

	/* More than a lap of the ring: the phase changes. */
	for (lap = 0; lap < 3; lap++) {
		for (i = 0; i < ARRAY_SIZE(rows); i++) {
			qp->sq_pi++;
			complete_one(w, (struct kh_cqe) {
				.wr_id = cpu_to_le64(1000 + i), .opcode = rows[i].op,
				.byte_len = cpu_to_le32(55),
				.sq_index = cpu_to_le32(qp->sq_pi),
			});
			KUNIT_ASSERT_EQ(test, poll(w, &wc, 1), 1);
			KUNIT_EXPECT_EQ_MSG(test, wc.opcode, rows[i].wc, "row %d", i);
			KUNIT_EXPECT_EQ(test, wc.status, IB_WC_SUCCESS);
			KUNIT_EXPECT_EQ(test, wc.wr_id, 1000 + i);
			KUNIT_EXPECT_EQ(test, wc.byte_len, 55);
			KUNIT_EXPECT_PTR_EQ(test, wc.qp, &qp->ibqp);
			KUNIT_EXPECT_EQ(test, wc.wc_flags, 0);
			if (rows[i].wc != IB_WC_RECV && rows[i].wc != IB_WC_RECV_RDMA_WITH_IMM)
				KUNIT_EXPECT_EQ(test, qp->sq_ci, qp->sq_pi);
		}
	}
	KUNIT_EXPECT_EQ(test, qp->rq_ci, 3 * 2);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->cq.db->ci), 3 * ARRAY_SIZE(rows));
	KUNIT_EXPECT_EQ(test, poll(w, &wc, 1), 0);
}

static void a_receive_tells_what_came_with_it(struct kunit *test)
{
	struct world *w = test->priv;
	struct ib_wc wc[4];

	new_qp(test, IB_QPT_UD);
	complete_one(w, (struct kh_cqe) {
		.opcode = KH_CQE_RECV, .flags = KH_CQE_IMM, .imm = cpu_to_le32(0x01020304) });
	complete_one(w, (struct kh_cqe) {
		.opcode = KH_CQE_RECV, .flags = KH_CQE_INV, .imm = cpu_to_le32(0x55) });
	complete_one(w, (struct kh_cqe) {
		.opcode = KH_CQE_RECV, .flags = KH_CQE_GRH | KH_CQE_IPV4,
		.src_qpn = cpu_to_le32(0x99), .vlan = cpu_to_le16(KH_VLAN_NONE),
		.smac = { 2, 4, 6, 8, 10, 12 }, .sl = 3 });
	complete_one(w, (struct kh_cqe) {
		.opcode = KH_CQE_RECV, .flags = KH_CQE_GRH, .vlan = cpu_to_le16(42) });
	KUNIT_ASSERT_EQ(test, poll(w, wc, 4), 4);

	KUNIT_EXPECT_EQ(test, wc[0].wc_flags, IB_WC_WITH_IMM);
	KUNIT_EXPECT_EQ(test, (__force u32)wc[0].ex.imm_data, 0x01020304);
	KUNIT_EXPECT_EQ(test, wc[1].wc_flags, IB_WC_WITH_INVALIDATE);
	KUNIT_EXPECT_EQ(test, wc[1].ex.invalidate_rkey, 0x55);
	KUNIT_EXPECT_EQ(test, wc[2].wc_flags,
			IB_WC_GRH | IB_WC_WITH_SMAC | IB_WC_WITH_NETWORK_HDR_TYPE);
	KUNIT_EXPECT_EQ(test, wc[2].src_qp, 0x99);
	KUNIT_EXPECT_EQ(test, wc[2].sl, 3);
	KUNIT_EXPECT_EQ(test, wc[2].smac[5], 12);
	KUNIT_EXPECT_EQ(test, wc[2].network_hdr_type, RDMA_NETWORK_IPV4);
	KUNIT_EXPECT_TRUE(test, wc[3].wc_flags & IB_WC_WITH_VLAN);
	KUNIT_EXPECT_EQ(test, wc[3].vlan_id, 42);
	KUNIT_EXPECT_EQ(test, wc[3].network_hdr_type, RDMA_NETWORK_IPV6);
}

static void completions_of_nothing_are_dropped(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_wc wc[4];

	qp->sq_pi = 2;
	complete_one(w, (struct kh_cqe) { .qpn = cpu_to_le32(QPN + 1) });
	complete_one(w, (struct kh_cqe) { .sq_index = cpu_to_le32(3) });
	complete_one(w, (struct kh_cqe) { .sq_index = cpu_to_le32(-1) });
	complete_one(w, (struct kh_cqe) { .opcode = KH_CQE_SKIP, .sq_index = cpu_to_le32(1) });
	complete_one(w, (struct kh_cqe) {
		.wr_id = cpu_to_le64(7), .sq_index = cpu_to_le32(2), .status = 250,
		.opcode = 250, .syndrome = cpu_to_le32(0x31) });
	KUNIT_ASSERT_EQ(test, poll(w, wc, 4), 1);
	KUNIT_EXPECT_EQ(test, wc[0].wr_id, 7);
	KUNIT_EXPECT_EQ(test, wc[0].status, IB_WC_GENERAL_ERR);
	KUNIT_EXPECT_EQ(test, wc[0].vendor_err, 0x31);
	KUNIT_EXPECT_EQ(test, qp->sq_ci, 2);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->cq.db->ci), 5);
}

static void a_qp_that_goes_takes_its_completions_along(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_wc wc[4];

	qp->sq_pi = 5;
	qp->rq_pi = 5;
	complete_one(w, (struct kh_cqe) { .sq_index = cpu_to_le32(1) });
	complete_one(w, (struct kh_cqe) { .opcode = KH_CQE_RECV });
	kh_kqp_clean(qp);
	KUNIT_EXPECT_EQ(test, poll(w, wc, 4), 0);
	KUNIT_EXPECT_EQ(test, qp->sq_pi, 0);
	KUNIT_EXPECT_EQ(test, qp->rq_pi, 0);
	KUNIT_EXPECT_EQ(test, qp->rq_ci, 0);

	qp->sq_pi = 1;
	complete_one(w, (struct kh_cqe) { .sq_index = cpu_to_le32(1) });
	kh_kqp_detach(qp);
	KUNIT_EXPECT_EQ(test, poll(w, wc, 4), 0);
	KUNIT_EXPECT_TRUE(test, list_empty(&w->cq.send_qps));
	KUNIT_EXPECT_TRUE(test, list_empty(&w->cq.recv_qps));
}

static void arming_says_what_was_missed(struct kunit *test)
{
	const enum ib_cq_notify_flags next = IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS;
	struct world *w = test->priv;
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_cq *cq = &w->cq.ibcq;

	KUNIT_EXPECT_EQ(test, kh_req_notify_cq(cq, next), 0);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->cq.db->arm), 1 << KH_ARM_SN_SHIFT | KH_ARM_NEXT);
	KUNIT_EXPECT_EQ(test, kh_req_notify_cq(cq, IB_CQ_SOLICITED), 0);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->cq.db->arm), 2 << KH_ARM_SN_SHIFT | KH_ARM_SOLICITED);
	qp->sq_pi = 1;
	complete_one(w, (struct kh_cqe) { .sq_index = cpu_to_le32(1) });
	KUNIT_EXPECT_EQ(test, kh_req_notify_cq(cq, next), 1);
	KUNIT_EXPECT_EQ(test, kh_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
}

static void a_lost_device_leaves_no_request_without_completion(struct kunit *test)
{
	static const u64 want[] = { 2, 3, 21, 22 };
	struct world *w = test->priv;
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = sges, .num_sge = 4 };
	struct ib_recv_wr recv = {};
	const struct ib_recv_wr *bad;
	struct ib_wc wc[8];
	int i, n;

	for (i = 1; i <= 3; i++) {
		wr.wr_id = i;
		KUNIT_ASSERT_EQ(test, post(qp, &wr), 0);
	}
	for (i = 21; i <= 22; i++) {
		recv.wr_id = i;
		KUNIT_ASSERT_EQ(test, kh_post_recv(&qp->ibqp, &recv, &bad), 0);
	}
	/* The first was answered in time. */
	complete_one(w, (struct kh_cqe) { .wr_id = cpu_to_le64(1), .sq_index = cpu_to_le32(2) });
	KUNIT_EXPECT_EQ(test, w->events, 0);

	WRITE_ONCE(w->fake.dev.state, KH_DEV_DEAD);
	kh_verbs_fatal(&w->fake.dev);
	KUNIT_EXPECT_EQ(test, qp->state, IB_QPS_ERR);
	KUNIT_EXPECT_EQ(test, kh_req_notify_cq(&w->cq.ibcq, IB_CQ_NEXT_COMP |
					       IB_CQ_REPORT_MISSED_EVENTS), 1);
	n = poll(w, wc, 8);
	KUNIT_ASSERT_EQ(test, n, 5);
	KUNIT_EXPECT_EQ(test, wc[0].status, IB_WC_SUCCESS);
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		KUNIT_EXPECT_EQ(test, wc[i + 1].wr_id, want[i]);
		KUNIT_EXPECT_EQ(test, wc[i + 1].status, IB_WC_WR_FLUSH_ERR);
		KUNIT_EXPECT_EQ(test, wc[i + 1].opcode, i < 2 ? IB_WC_SEND : IB_WC_RECV);
	}
	KUNIT_EXPECT_EQ(test, kh_req_notify_cq(&w->cq.ibcq, IB_CQ_NEXT_COMP |
					       IB_CQ_REPORT_MISSED_EVENTS), 0);

	/* Who posts now is told at once. */
	KUNIT_EXPECT_EQ(test, post(qp, &wr), 0);
	KUNIT_EXPECT_EQ(test, w->events, 1);
	KUNIT_EXPECT_EQ(test, kh_post_recv(&qp->ibqp, &recv, &bad), 0);
	KUNIT_EXPECT_EQ(test, w->events, 2);
	KUNIT_EXPECT_EQ(test, kh_req_notify_cq(&w->cq.ibcq, IB_CQ_NEXT_COMP |
					       IB_CQ_REPORT_MISSED_EVENTS), 1);
	KUNIT_EXPECT_EQ(test, poll(w, wc, 8), 2);
}

/* ------------------------------------------------------------------------ */

static void a_region_is_filled_by_a_request(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_qp *qp = new_qp(test, IB_QPT_RC);
	struct kh_wqe_ctrl *ctrl = wqe(qp, 0);
	struct kh_wqe_reg *seg = (void *)(ctrl + 1);
	struct scatterlist sg[3];
	struct ib_reg_wr wr = {};
	struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV, .send_flags = IB_SEND_INLINE };
	struct ib_mr *mr;
	int i;

	mr = kh_alloc_mr(&w->pd.ibpd, IB_MR_TYPE_MEM_REG, 3);
	KUNIT_ASSERT_FALSE(test, IS_ERR(mr));
	KUNIT_EXPECT_EQ(test, w->fake.cmd.create_mkey.kind, KH_MKEY_FREE);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->fake.cmd.create_mkey.max_entries), 3);
	KUNIT_EXPECT_EQ(test, mr->rkey, 0x4200);
	mr->device = &w->fake.dev.ibdev;
	mr->page_size = PAGE_SIZE;
	sg_init_table(sg, 3);
	for (i = 0; i < 3; i++) {
		sg_dma_address(&sg[i]) = 0x100000 + i * 0x10000;
		sg_dma_len(&sg[i]) = PAGE_SIZE;
	}
	sg_dma_address(&sg[0]) += 0x80;
	sg_dma_len(&sg[0]) -= 0x80;
	KUNIT_ASSERT_EQ(test, kh_map_mr_sg(mr, sg, 3, NULL), 3);

	wr.wr.opcode = IB_WR_REG_MR;
	wr.mr = mr;
	wr.key = 0x4207;
	wr.access = IB_ACCESS_REMOTE_READ;
	KUNIT_ASSERT_EQ(test, post(qp, &wr.wr), 0);
	KUNIT_EXPECT_EQ(test, ctrl->opcode, KH_OP_REG_MR);
	KUNIT_EXPECT_EQ(test, ctrl->num_sge, 0);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(seg->key), 0x4207);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(seg->access), KH_ACCESS_REMOTE_READ);
	KUNIT_EXPECT_EQ(test, le64_to_cpu(seg->start), mr->iova);
	KUNIT_EXPECT_EQ(test, le64_to_cpu(seg->length), 3 * PAGE_SIZE - 0x80);
	KUNIT_EXPECT_EQ(test, le64_to_cpu(seg->offset), 0x80);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(seg->pages.npages), 3);
	KUNIT_EXPECT_EQ(test, seg->pages.levels, 1);

	inv.ex.invalidate_rkey = 0x4207;
	KUNIT_ASSERT_EQ(test, post(qp, &inv), 0);
	KUNIT_EXPECT_EQ(test, wqe(qp, 1)->opcode, KH_OP_LOCAL_INV);
	KUNIT_EXPECT_EQ(test, wqe(qp, 1)->flags, 0);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(wqe(qp, 1)->imm), 0x4207);

	KUNIT_EXPECT_EQ(test, kh_dereg_mr(mr, NULL), 0);
}

static void a_region_has_no_more_pages_than_it_was_made_for(struct kunit *test)
{
	struct world *w = test->priv;
	struct ib_pd *pd = &w->pd.ibpd;
	struct scatterlist sg[3];
	struct ib_mr *mr;
	int i;

	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_alloc_mr(pd, IB_MR_TYPE_SG_GAPS, 3)), -EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 0)), -EINVAL);
	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 601)), -EINVAL);
	mr = kh_alloc_mr(&w->pd.ibpd, IB_MR_TYPE_MEM_REG, 2);
	KUNIT_ASSERT_FALSE(test, IS_ERR(mr));
	mr->device = &w->fake.dev.ibdev;
	sg_init_table(sg, 3);
	for (i = 0; i < 3; i++) {
		sg_dma_address(&sg[i]) = 0x100000 + i * 0x10000;
		sg_dma_len(&sg[i]) = PAGE_SIZE;
	}
	mr->page_size = 2048;
	KUNIT_EXPECT_EQ(test, kh_map_mr_sg(mr, sg, 3, NULL), -EINVAL);
	mr->page_size = 3 * PAGE_SIZE;
	KUNIT_EXPECT_EQ(test, kh_map_mr_sg(mr, sg, 3, NULL), -EINVAL);
	mr->page_size = PAGE_SIZE;
	KUNIT_EXPECT_EQ(test, kh_map_mr_sg(mr, sg, 3, NULL), 2);
	KUNIT_EXPECT_EQ(test, kh_dereg_mr(mr, NULL), 0);
	w->fake.dev.attr.caps = 0;
	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 3)), -EOPNOTSUPP);
}

/* 600 pages: an object, an array of lists, and the lists. */
static void a_region_that_cannot_be_whole_is_none(struct kunit *test)
{
	struct world *w = test->priv;
	struct ib_pd *pd = &w->pd.ibpd;
	bool injected;
	struct ib_mr *mr;
	int n;

	for (n = 1; n < 200; n++) {
		mr = WITH_FAILING_ALLOCATION(n, injected,
					     kh_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 600));
		if (!injected)
			break;
		if (IS_ERR(mr)) {
			KUNIT_EXPECT_EQ(test, PTR_ERR(mr), -ENOMEM);
			continue;
		}
		mr->device = &w->fake.dev.ibdev;
		KUNIT_EXPECT_EQ(test, kh_dereg_mr(mr, NULL), 0);
	}
	KUNIT_EXPECT_GT(test, n, 4);
	KUNIT_ASSERT_FALSE(test, IS_ERR(mr));
	mr->device = &w->fake.dev.ibdev;
	/* What the device holds on to is kept. */
	w->fake.status = KH_ST_BUSY;
	KUNIT_EXPECT_EQ(test, kh_dereg_mr(mr, NULL), -EBUSY);
	w->fake.status = KH_ST_OK;
	KUNIT_EXPECT_EQ(test, kh_dereg_mr(mr, NULL), 0);

	w->fake.status = KH_ST_NOMEM;
	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 600)), -ENOMEM);
	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_get_dma_mr(pd, 0)), -ENOMEM);
}

static void queues_of_the_kernel_have_their_bounds(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_qp *qp = kunit_kzalloc(test, sizeof(*qp), GFP_KERNEL);
	bool injected;
	int err;

	KUNIT_ASSERT_NOT_NULL(test, qp);
	qp->ibqp.qp_type = IB_QPT_RC;
	qp->cap.max_send_wr = 1 << KH_MAX_LOG_SQ_BLOCKS;
	qp->cap.max_send_sge = 4;
	KUNIT_EXPECT_EQ(test, kh_kqp_create(&w->fake.dev, qp), -EINVAL);
	qp->cap.max_send_wr = 10;
	err = WITH_FAILING_ALLOCATION(1, injected, kh_kqp_create(&w->fake.dev, qp));
	KUNIT_EXPECT_TRUE(test, injected);
	KUNIT_EXPECT_EQ(test, err, -ENOMEM);
	KUNIT_EXPECT_NULL(test, qp->db);
}

static void slots_are_shared_when_all_are_taken(struct kunit *test)
{
	struct kh_slots *slots = kunit_kzalloc(test, sizeof(*slots), GFP_KERNEL);
	u32 i, wrong = 0;

	KUNIT_ASSERT_NOT_NULL(test, slots);
	kh_slots_init(slots);
	for (i = 0; i < KH_DB_SLOTS; i++)
		wrong += kh_slot_alloc(slots) != i;
	KUNIT_EXPECT_EQ(test, wrong, 0);
	KUNIT_EXPECT_EQ(test, kh_slot_alloc(slots), 0);
	KUNIT_EXPECT_EQ(test, kh_slot_alloc(slots), 1);
	kh_slot_free(slots, 77);
	KUNIT_EXPECT_EQ(test, kh_slot_alloc(slots), 77);
	KUNIT_EXPECT_EQ(test, kh_slot_alloc(slots), 2);
}

static struct kunit_case kverbs_test_cases[] = {
	KUNIT_CASE(a_request_is_in_the_ring_as_the_device_reads_it),
	KUNIT_CASE(a_sleeping_device_is_woken),
	KUNIT_CASE(atomics_have_their_operands),
	KUNIT_CASE(a_datagram_carries_its_address),
	KUNIT_CASE(requests_that_a_qp_cannot_have_are_refused),
	KUNIT_CASE(data_goes_on_at_the_start_of_the_ring),
	KUNIT_CASE(inline_data_is_gathered),
	KUNIT_CASE(a_full_ring_takes_no_more),
	KUNIT_CASE(nothing_is_posted_before_its_state),
	KUNIT_CASE(a_receive_is_in_the_ring_as_the_device_reads_it),
	KUNIT_CASE(an_srq_frees_what_the_device_took),
	KUNIT_CASE(completions_are_what_the_device_says),
	KUNIT_CASE(a_receive_tells_what_came_with_it),
	KUNIT_CASE(completions_of_nothing_are_dropped),
	KUNIT_CASE(a_qp_that_goes_takes_its_completions_along),
	KUNIT_CASE(arming_says_what_was_missed),
	KUNIT_CASE(a_lost_device_leaves_no_request_without_completion),
	KUNIT_CASE(a_region_is_filled_by_a_request),
	KUNIT_CASE(a_region_has_no_more_pages_than_it_was_made_for),
	KUNIT_CASE(a_region_that_cannot_be_whole_is_none),
	KUNIT_CASE(queues_of_the_kernel_have_their_bounds),
	KUNIT_CASE(slots_are_shared_when_all_are_taken),
	{}
};

static struct kunit_suite kverbs_test_suite = {
	.name		= "keyhole_kverbs",
	.init		= kverbs_test_init,
	.exit		= kverbs_test_exit,
	.test_cases	= kverbs_test_cases,
};

kunit_test_suite(kverbs_test_suite);
