// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The queues of kernel consumers (MAD, CM, storage): their memory, and how QPs
 * hang on CQs.
 *
 * A CQ lists its kernel QPs.  That serves two ends: a QP that is reset or
 * destroyed drops its CQEs from the CQs before its memory goes, so that
 * kh_poll_cq(), which holds the CQ's lock throughout, never meets a QP that is
 * no more; and on a lost device kh_poll_cq() can flush what the device will not.
 */

#include <linux/list.h>
#include <linux/log2.h>

#include "verbs.h"

int kh_kcq_create(struct kh_dev *dev, struct kh_cq *cq, u32 cqe)
{
	u32 entries = roundup_pow_of_two(max(cqe, 2u));
	size_t ring = entries * sizeof(struct kh_cqe);
	int ret;

	ret = kh_buf_alloc(dev, ring + sizeof(struct kh_cq_db), &cq->buf);
	if (ret)
		return ret;
	cq->log_size = ilog2(entries);
	cq->ring = cq->buf.va;
	cq->db = cq->buf.va + ring;
	return 0;
}

/* Blocks of the largest WQE that these capabilities allow. */
static u32 kh_send_blocks(const struct kh_qp *qp)
{
	bool ud = qp->ibqp.qp_type == IB_QPT_UD || qp->ibqp.qp_type == IB_QPT_GSI;
	u32 head = sizeof(struct kh_wqe_ctrl);
	u32 data = max_t(u32, qp->cap.max_send_sge * sizeof(struct kh_sge),
			 qp->cap.max_inline_data);

	head += ud ? sizeof(struct kh_wqe_ud) : sizeof(struct kh_wqe_rdma);
	return DIV_ROUND_UP(head + data, KH_WQE_BLOCK);
}

int kh_kqp_create(struct kh_dev *dev, struct kh_qp *qp)
{
	size_t sq_size = 0, rq_size = 0, rq_offset, db_offset;
	u32 stride = 0;
	u64 blocks;
	int ret;

	if (qp->cap.max_send_wr) {
		blocks = (u64)qp->cap.max_send_wr * kh_send_blocks(qp);
		if (blocks > 1u << KH_MAX_LOG_SQ_BLOCKS)
			return -EINVAL;
		qp->log_sq_blocks = order_base_2(blocks);
		sq_size = (size_t)KH_WQE_BLOCK << qp->log_sq_blocks;
	}
	if (qp->cap.max_recv_wr) {
		stride = max_t(u32, kh_rwqe_size(qp->cap.max_recv_sge),
			       1u << KH_MIN_LOG_STRIDE);
		qp->log_rq_stride = order_base_2(stride);
		qp->log_rq_size = order_base_2(qp->cap.max_recv_wr);
		stride = 1u << qp->log_rq_stride;
		rq_size = (size_t)stride << qp->log_rq_size;
	}
	rq_offset = rq_size ? ALIGN(sq_size, stride) : sq_size;
	db_offset = ALIGN(rq_offset + rq_size, KH_RING_ALIGN);

	ret = kh_buf_alloc(dev, db_offset + sizeof(struct kh_qp_db), &qp->buf);
	if (ret)
		return ret;
	if (sq_size)
		qp->sq = qp->buf.va;
	if (rq_size)
		qp->rq = qp->buf.va + rq_offset;
	qp->db = qp->buf.va + db_offset;
	return 0;
}

int kh_ksrq_create(struct kh_dev *dev, struct kh_srq *srq)
{
	size_t ring;
	int ret;

	srq->log_size = order_base_2(srq->max_wr);
	srq->log_stride = order_base_2(max_t(u32, kh_rwqe_size(srq->max_sge),
					     1u << KH_MIN_LOG_STRIDE));
	ring = ALIGN((size_t)1 << (srq->log_size + srq->log_stride),
		     KH_RING_ALIGN);
	ret = kh_buf_alloc(dev, ring + sizeof(struct kh_srq_db), &srq->buf);
	if (ret)
		return ret;
	srq->db = srq->buf.va + ring;
	return 0;
}

void kh_kqp_attach(struct kh_qp *qp)
{
	struct kh_cq *send_cq = to_kh_cq(qp->ibqp.send_cq);
	struct kh_cq *recv_cq = to_kh_cq(qp->ibqp.recv_cq);

	spin_lock_irq(&send_cq->lock);
	list_add_tail(&qp->send_link, &send_cq->send_qps);
	spin_unlock_irq(&send_cq->lock);

	spin_lock_irq(&recv_cq->lock);
	list_add_tail(&qp->recv_link, &recv_cq->recv_qps);
	spin_unlock_irq(&recv_cq->lock);
}

/* The device adds no more of qp's: what is there now is all. */
static void kh_kcq_drop(struct kh_cq *cq, const struct kh_qp *qp)
{
	struct kh_cqe *cqe;
	u32 i;

	lockdep_assert_held(&cq->lock);
	for (i = 0; i < 1u << cq->log_size; i++) {
		cqe = kh_kcq_entry(cq, cq->ci + i);
		if (!cqe)
			break;
		if (le32_to_cpu(cqe->qpn) == qp->qpn)
			cqe->opcode = KH_CQE_SKIP;
	}
}

void kh_kqp_detach(struct kh_qp *qp)
{
	struct kh_cq *send_cq = to_kh_cq(qp->ibqp.send_cq);
	struct kh_cq *recv_cq = to_kh_cq(qp->ibqp.recv_cq);

	if (!qp->db)
		return;		/* a process's */

	spin_lock_irq(&send_cq->lock);
	kh_kcq_drop(send_cq, qp);
	list_del_init(&qp->send_link);
	spin_unlock_irq(&send_cq->lock);

	spin_lock_irq(&recv_cq->lock);
	kh_kcq_drop(recv_cq, qp);
	list_del_init(&qp->recv_link);
	spin_unlock_irq(&recv_cq->lock);
}

void kh_kqp_clean(struct kh_qp *qp)
{
	struct kh_cq *send_cq = to_kh_cq(qp->ibqp.send_cq);
	struct kh_cq *recv_cq = to_kh_cq(qp->ibqp.recv_cq);

	spin_lock_irq(&send_cq->lock);
	kh_kcq_drop(send_cq, qp);
	spin_lock(&qp->sq_lock);
	qp->sq_pi = 0;
	qp->sq_ci = 0;
	WRITE_ONCE(qp->db->sq_pi, 0);
	spin_unlock(&qp->sq_lock);
	spin_unlock_irq(&send_cq->lock);

	spin_lock_irq(&recv_cq->lock);
	kh_kcq_drop(recv_cq, qp);
	spin_lock(&qp->rq_lock);
	qp->rq_pi = 0;
	qp->rq_ci = 0;
	WRITE_ONCE(qp->db->rq_pi, 0);
	spin_unlock(&qp->rq_lock);
	spin_unlock_irq(&recv_cq->lock);
}

/*
 * The device is lost and will flush nothing.  kh_poll_cq() does so in its place
 * once the state is KH_DEV_DEAD, and the caller wakes all pollers after this; so
 * all that is left to do is to say what state the QPs are in.
 */
void kh_verbs_fatal(struct kh_dev *dev)
{
	struct kh_qp *qp;
	struct kh_res *res;
	unsigned long qpn;

	xa_for_each(&dev->qps, qpn, res) {
		qp = kh_get_qp(dev, qpn);
		if (!qp)
			continue;
		WRITE_ONCE(qp->state, IB_QPS_ERR);
		kh_res_put(&qp->res);
	}
}
