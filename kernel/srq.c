// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues.
 */

#include <rdma/uverbs_ioctl.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

static int kh_usrq_create(struct kh_dev *dev, struct kh_srq *srq,
			  struct kh_create_srq_params *params,
			  struct ib_udata *udata)
{
	struct kh_ucontext *uctx =
		rdma_udata_to_drv_context(udata, struct kh_ucontext, ibucontext);
	struct keyhole_create_srq_req req;
	struct kh_uqueue uq;
	int ret;

	ret = kh_udata_get(udata, &req, sizeof(req));
	if (ret)
		return ret;
	if (req.reserved)
		return -EOPNOTSUPP;
	if (req.log_size > KH_MAX_LOG_RQ || 1u << req.log_size < srq->max_wr ||
	    req.log_stride < KH_MIN_LOG_STRIDE ||
	    req.log_stride > KH_MAX_LOG_STRIDE ||
	    1u << req.log_stride < kh_rwqe_size(srq->max_sge) ||
	    !kh_in_queue(req.buf_len, req.ring_offset,
			 1ull << (req.log_size + req.log_stride),
			 1u << req.log_stride) ||
	    !kh_in_queue(req.buf_len, req.db_offset, sizeof(struct kh_srq_db),
			 KH_RING_ALIGN)) {
		ibdev_dbg(&dev->ibdev,
			  "SRQ of %u x %u: 1 << %u of 1 << %u bytes at %#x, record at %#x, buffer of %#x\n",
			  srq->max_wr, srq->max_sge, req.log_size,
			  req.log_stride, req.ring_offset, req.db_offset,
			  req.buf_len);
		return -EINVAL;
	}
	ret = kh_uqueue_pin(dev, req.buf_addr, req.buf_len, &uq);
	if (ret)
		return ret;

	params->pages = &uq.list.desc;
	params->ring_offset = uq.list.offset + req.ring_offset;
	params->db_offset = uq.list.offset + req.db_offset;
	params->ctx = uctx->ctx;
	params->log_size = req.log_size;
	params->log_stride = req.log_stride;
	ret = kh_cmd_create_srq(dev, params, &srq->srqn);
	if (!ret) {
		srq->umem = uq.umem;
		uq.umem = NULL;
	}
	kh_uqueue_done(dev, &uq);
	return ret;
}

static int kh_ksrq_command(struct kh_dev *dev, struct kh_srq *srq,
			   struct kh_create_srq_params *params)
{
	struct kh_pages pages;
	int ret;

	ret = kh_ksrq_create(dev, srq);
	if (ret)
		return ret;
	pages = kh_buf_pages(&srq->buf);
	params->pages = &pages;
	params->ring_offset = 0;
	params->db_offset = (u8 *)srq->db - (u8 *)srq->buf.va;
	params->log_size = srq->log_size;
	params->log_stride = srq->log_stride;
	ret = kh_cmd_create_srq(dev, params, &srq->srqn);
	if (ret)
		kh_buf_free(dev, &srq->buf);
	return ret;
}

int kh_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		  struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibsrq->device);
	struct keyhole_create_srq_resp resp = {};
	struct kh_create_srq_params params = {
		.pdn = to_kh_pd(ibsrq->pd)->pdn,
	};
	struct kh_srq *srq = to_kh_srq(ibsrq);
	int ret;

	if (init->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > dev->attr.max_srq_wr ||
	    init->attr.max_sge > dev->attr.max_sge) {
		ibdev_dbg(&dev->ibdev, "SRQ of %u (at most %u) x %u (at most %u)\n",
			  init->attr.max_wr, dev->attr.max_srq_wr,
			  init->attr.max_sge, dev->attr.max_sge);
		return -EINVAL;
	}
	srq->max_wr = init->attr.max_wr;
	srq->max_sge = init->attr.max_sge;
	spin_lock_init(&srq->lock);

	if (udata)
		ret = kh_usrq_create(dev, srq, &params, udata);
	else
		ret = kh_ksrq_command(dev, srq, &params);
	if (ret)
		return ret;

	ret = kh_track_srq(dev, srq);
	if (ret)
		goto err_destroy;
	if (udata) {
		resp.srqn = srq->srqn;
		ret = kh_udata_put(udata, &resp, sizeof(resp));
		if (ret)
			kh_destroy_srq(ibsrq, udata);
	}
	return ret;

err_destroy:
	if (!kh_cmd_destroy_srq(dev, srq->srqn)) {
		ib_umem_release(srq->umem);
		kh_buf_free(dev, &srq->buf);
	}
	return ret;
}

int kh_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		  enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct kh_srq *srq = to_kh_srq(ibsrq);
	int ret;

	ret = kh_udata_none(udata);
	if (ret)
		return ret;
	if (mask & ~IB_SRQ_LIMIT)
		return -EOPNOTSUPP;	/* the ring keeps its size */
	if (!(mask & IB_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit > srq->max_wr)
		return -EINVAL;
	return kh_cmd_modify_srq(to_kh_dev(ibsrq->device), srq->srqn,
				 attr->srq_limit);
}

int kh_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct kh_srq *srq = to_kh_srq(ibsrq);

	attr->max_wr = srq->max_wr;
	attr->max_sge = srq->max_sge;
	return kh_cmd_query_srq(to_kh_dev(ibsrq->device), srq->srqn,
				&attr->srq_limit);
}

int kh_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibsrq->device);
	struct kh_srq *srq = to_kh_srq(ibsrq);
	int ret;

	ret = kh_cmd_destroy_srq(dev, srq->srqn);
	if (ret)
		return ret;
	kh_untrack_srq(dev, srq);
	ib_umem_release(srq->umem);
	kh_buf_free(dev, &srq->buf);
	return 0;
}
