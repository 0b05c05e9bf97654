// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs: create and destroy.
 *
 * As with CQs, the queues of a process are its own memory, laid out by its
 * provider and checked here.  All that a QP is beyond its queues comes later,
 * by modify_qp.
 */

#include <linux/log2.h>
#include <rdma/uverbs_ioctl.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

static int kh_qp_type(const struct ib_qp_init_attr *init, bool user, u8 *type)
{
	switch (init->qp_type) {
	case IB_QPT_RC:
		*type = KH_QPT_RC;
		return 0;
	case IB_QPT_UC:
		*type = KH_QPT_UC;
		return 0;
	case IB_QPT_UD:
		*type = KH_QPT_UD;
		return 0;
	case IB_QPT_GSI:
		if (user)
			return -EOPNOTSUPP;
		*type = KH_QPT_GSI;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int kh_qp_caps(struct kh_dev *dev, const struct ib_qp_init_attr *init)
{
	const struct ib_qp_cap *cap = &init->cap;
	const struct kh_attr *hw = &dev->attr;

	if (cap->max_send_wr > hw->max_qp_wr ||
	    cap->max_send_sge > hw->max_sge ||
	    cap->max_inline_data > hw->max_inline)
		goto inval;
	/* With an SRQ, the receive side of cap says nothing. */
	if (!init->srq && (cap->max_recv_wr > hw->max_qp_wr ||
			   cap->max_recv_sge > hw->max_sge))
		goto inval;
	return 0;

inval:
	ibdev_dbg(&dev->ibdev,
		  "QP of %u x %u sends (inline %u) and %u x %u receives, at most %u x %u (inline %u)\n",
		  cap->max_send_wr, cap->max_send_sge, cap->max_inline_data,
		  cap->max_recv_wr, cap->max_recv_sge, hw->max_qp_wr,
		  hw->max_sge, hw->max_inline);
	return -EINVAL;
}

static bool kh_uqp_sq_ok(const struct keyhole_create_qp_req *req,
			 const struct ib_qp_cap *cap)
{
	if (!req->has_sq)
		return !cap->max_send_wr;
	return req->log_sq_blocks <= KH_MAX_LOG_SQ_BLOCKS &&
	       1u << req->log_sq_blocks >= cap->max_send_wr &&
	       kh_in_queue(req->buf_len, req->sq_offset,
			   (u64)KH_WQE_BLOCK << req->log_sq_blocks,
			   KH_WQE_BLOCK);
}

static bool kh_uqp_rq_ok(const struct keyhole_create_qp_req *req,
			 const struct ib_qp_cap *cap, bool srq)
{
	if (!req->has_rq)
		return srq || !cap->max_recv_wr;
	return !srq && req->log_rq_size <= KH_MAX_LOG_RQ &&
	       1u << req->log_rq_size >= cap->max_recv_wr &&
	       req->log_rq_stride >= KH_MIN_LOG_STRIDE &&
	       req->log_rq_stride <= KH_MAX_LOG_STRIDE &&
	       1u << req->log_rq_stride >= kh_rwqe_size(cap->max_recv_sge) &&
	       kh_in_queue(req->buf_len, req->rq_offset,
			   1ull << (req->log_rq_size + req->log_rq_stride),
			   1u << req->log_rq_stride);
}

static int kh_uqp_layout(struct kh_dev *dev,
			 const struct keyhole_create_qp_req *req,
			 const struct ib_qp_init_attr *init)
{
	if (memchr_inv(req->reserved, 0, sizeof(req->reserved)) ||
	    req->has_sq > 1 || req->has_rq > 1)
		return -EOPNOTSUPP;
	if (!kh_uqp_sq_ok(req, &init->cap) ||
	    !kh_uqp_rq_ok(req, &init->cap, init->srq) ||
	    !kh_in_queue(req->buf_len, req->db_offset, sizeof(struct kh_qp_db),
			 KH_RING_ALIGN)) {
		ibdev_dbg(&dev->ibdev,
			  "QP of %u sends and %u x %u receives: SQ 1 << %u blocks at %#x, RQ 1 << %u of 1 << %u bytes at %#x, record at %#x, buffer of %#x\n",
			  init->cap.max_send_wr, init->cap.max_recv_wr,
			  init->cap.max_recv_sge, req->log_sq_blocks,
			  req->sq_offset, req->log_rq_size, req->log_rq_stride,
			  req->rq_offset, req->db_offset, req->buf_len);
		return -EINVAL;
	}
	return 0;
}

static int kh_uqp_create(struct kh_dev *dev, struct kh_qp *qp,
			 const struct ib_qp_init_attr *init,
			 struct kh_create_qp_params *params,
			 struct ib_udata *udata)
{
	struct kh_ucontext *uctx =
		rdma_udata_to_drv_context(udata, struct kh_ucontext, ibucontext);
	struct keyhole_create_qp_req req;
	struct kh_uqueue uq;
	int ret;

	ret = kh_udata_get(udata, &req, sizeof(req));
	if (ret)
		return ret;
	ret = kh_uqp_layout(dev, &req, init);
	if (ret)
		return ret;
	ret = kh_uqueue_pin(dev, req.buf_addr, req.buf_len, &uq);
	if (ret)
		return ret;

	qp->slots = &uctx->slots;
	qp->slot = kh_slot_alloc(qp->slots);

	params->pages = &uq.list.desc;
	params->db_offset = uq.list.offset + req.db_offset;
	params->ctx = uctx->ctx;
	params->db_slot = qp->slot;
	params->has_sq = req.has_sq;
	if (req.has_sq) {
		params->sq_offset = uq.list.offset + req.sq_offset;
		params->log_sq_blocks = req.log_sq_blocks;
	}
	params->has_rq = req.has_rq;
	if (req.has_rq) {
		params->rq_offset = uq.list.offset + req.rq_offset;
		params->log_rq_size = req.log_rq_size;
		params->log_rq_stride = req.log_rq_stride;
	}
	ret = kh_cmd_create_qp(dev, params, &qp->qpn);
	if (ret) {
		kh_slot_free(qp->slots, qp->slot);
	} else {
		qp->umem = uq.umem;
		uq.umem = NULL;
	}
	kh_uqueue_done(dev, &uq);
	return ret;
}

static int kh_kqp_command(struct kh_dev *dev, struct kh_qp *qp,
			  struct kh_create_qp_params *params)
{
	struct kh_pages pages;
	int ret;

	ret = kh_kqp_create(dev, qp);
	if (ret)
		return ret;
	qp->slots = &dev->slots;
	qp->slot = kh_slot_alloc(qp->slots);

	pages = kh_buf_pages(&qp->buf);
	params->pages = &pages;
	params->db_offset = (u8 *)qp->db - (u8 *)qp->buf.va;
	params->db_slot = qp->slot;
	params->has_sq = !!qp->sq;
	if (qp->sq) {
		params->sq_offset = qp->sq - (u8 *)qp->buf.va;
		params->log_sq_blocks = qp->log_sq_blocks;
	}
	params->has_rq = !!qp->rq;
	if (qp->rq) {
		params->rq_offset = qp->rq - (u8 *)qp->buf.va;
		params->log_rq_size = qp->log_rq_size;
		params->log_rq_stride = qp->log_rq_stride;
	}
	ret = kh_cmd_create_qp(dev, params, &qp->qpn);
	if (ret) {
		kh_slot_free(qp->slots, qp->slot);
		kh_buf_free(dev, &qp->buf);
		return ret;
	}
	kh_kqp_attach(qp);
	return 0;
}

/* What is left when the device knows the QP no more. */
static void kh_qp_release(struct kh_dev *dev, struct kh_qp *qp)
{
	kh_slot_free(qp->slots, qp->slot);
	ib_umem_release(qp->umem);
	kh_buf_free(dev, &qp->buf);
}

int kh_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		 struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibqp->device);
	struct keyhole_create_qp_resp resp = {};
	struct kh_create_qp_params params = {
		.srqn = KH_NO_SRQ,
	};
	struct kh_qp *qp = to_kh_qp(ibqp);
	int ret;

	ret = kh_qp_type(init, udata, &params.type);
	if (ret)
		return ret;
	if (init->create_flags || init->rwq_ind_tbl)
		return -EOPNOTSUPP;
	if (!init->send_cq || !init->recv_cq)
		return -EINVAL;
	ret = kh_qp_caps(dev, init);
	if (ret)
		return ret;

	if (init->srq) {
		init->cap.max_recv_wr = 0;
		init->cap.max_recv_sge = 0;
		params.srqn = to_kh_srq(init->srq)->srqn;
	}
	params.pdn = to_kh_pd(ibqp->pd)->pdn;
	params.send_cqn = to_kh_cq(init->send_cq)->cqn;
	params.recv_cqn = to_kh_cq(init->recv_cq)->cqn;
	params.max_send_sge = init->cap.max_send_sge;
	params.max_recv_sge = init->cap.max_recv_sge;

	qp->cap = init->cap;
	qp->sig_type = init->sq_sig_type;
	qp->state = IB_QPS_RESET;
	mutex_init(&qp->mutex);
	spin_lock_init(&qp->sq_lock);
	spin_lock_init(&qp->rq_lock);
	INIT_LIST_HEAD(&qp->send_link);
	INIT_LIST_HEAD(&qp->recv_link);

	if (udata)
		ret = kh_uqp_create(dev, qp, init, &params, udata);
	else
		ret = kh_kqp_command(dev, qp, &params);
	if (ret)
		return ret;

	ibqp->qp_num = qp->qpn;

	ret = kh_track_qp(dev, qp);
	if (ret)
		goto err_destroy;
	if (udata) {
		resp.qpn = qp->qpn;
		resp.db_slot = qp->slot;
		ret = kh_udata_put(udata, &resp, sizeof(resp));
		if (ret)
			kh_destroy_qp(ibqp, udata);
	}
	return ret;

err_destroy:
	if (!kh_cmd_destroy_qp(dev, qp->qpn)) {
		kh_kqp_detach(qp);
		kh_qp_release(dev, qp);
	}
	return ret;
}

int kh_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibqp->device);
	struct kh_qp *qp = to_kh_qp(ibqp);
	int ret;

	ret = kh_cmd_destroy_qp(dev, qp->qpn);
	if (ret)
		return ret;
	kh_kqp_detach(qp);
	kh_untrack_qp(dev, qp);
	kh_qp_release(dev, qp);
	return 0;
}
