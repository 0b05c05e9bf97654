// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues: create, arm, resize, destroy.
 *
 * Resizing is as for a CQ: the process lays out a new ring, the device moves
 * what is posted, and the ring that lost is released.  The stride, and with it
 * the number of entries that a receive can have, stays.
 */

#include <rdma/uverbs_ioctl.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

static int kh_srq_layout(struct kh_dev *dev, u32 len, u32 ring_offset,
			 u32 db_offset, u8 log_size, u8 log_stride, u32 max_wr)
{
	if (log_size > KH_MAX_LOG_RQ || 1u << log_size < max_wr ||
	    log_stride < KH_MIN_LOG_STRIDE || log_stride > KH_MAX_LOG_STRIDE ||
	    !kh_in_queue(len, ring_offset, 1ull << (log_size + log_stride),
			 1u << log_stride) ||
	    !kh_in_queue(len, db_offset, sizeof(struct kh_srq_db),
			 KH_RING_ALIGN)) {
		ibdev_dbg(&dev->ibdev,
			  "SRQ of %u: 1 << %u of 1 << %u bytes at %#x, record at %#x, buffer of %#x\n",
			  max_wr, log_size, log_stride, ring_offset, db_offset,
			  len);
		return -EINVAL;
	}
	return 0;
}

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
	ret = kh_srq_layout(dev, req.buf_len, req.ring_offset, req.db_offset,
			    req.log_size, req.log_stride, srq->max_wr);
	if (ret)
		return ret;
	if (1u << req.log_stride < kh_rwqe_size(srq->max_sge))
		return -EINVAL;
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
		srq->log_stride = req.log_stride;
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
	mutex_init(&srq->mutex);
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

static int kh_srq_resize(struct kh_dev *dev, struct kh_srq *srq, u32 max_wr,
			 struct ib_udata *udata)
{
	struct kh_create_srq_params params = {};
	struct keyhole_modify_srq_req req;
	struct kh_uqueue uq;
	int ret;

	if (!udata || !srq->umem || !(dev->attr.caps & KH_CAP_SRQ_RESIZE))
		return -EOPNOTSUPP;
	if (!max_wr || max_wr > dev->attr.max_srq_wr)
		return -EINVAL;
	ret = kh_udata_get(udata, &req, sizeof(req));
	if (ret)
		return ret;
	if (req.reserved0 || req.reserved1)
		return -EOPNOTSUPP;
	ret = kh_srq_layout(dev, req.buf_len, req.ring_offset, req.db_offset,
			    req.log_size, srq->log_stride, max_wr);
	if (ret)
		return ret;
	ret = kh_uqueue_pin(dev, req.buf_addr, req.buf_len, &uq);
	if (ret)
		return ret;

	params.pages = &uq.list.desc;
	params.ring_offset = uq.list.offset + req.ring_offset;
	params.db_offset = uq.list.offset + req.db_offset;
	params.log_size = req.log_size;
	params.log_stride = srq->log_stride;
	ret = kh_cmd_resize_srq(dev, srq->srqn, &params);
	if (!ret) {
		swap(srq->umem, uq.umem);
		WRITE_ONCE(srq->max_wr, max_wr);
	}
	kh_uqueue_done(dev, &uq);
	return ret;
}

int kh_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		  enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibsrq->device);
	struct kh_srq *srq = to_kh_srq(ibsrq);
	u32 max_wr;
	int ret = 0;

	if (mask & ~(IB_SRQ_LIMIT | IB_SRQ_MAX_WR))
		return -EINVAL;
	if (!(mask & IB_SRQ_MAX_WR)) {
		ret = kh_udata_none(udata);
		if (ret)
			return ret;
	}

	mutex_lock(&srq->mutex);
	max_wr = mask & IB_SRQ_MAX_WR ? attr->max_wr : srq->max_wr;
	if (mask & IB_SRQ_LIMIT && attr->srq_limit > max_wr)
		ret = -EINVAL;
	if (!ret && mask & IB_SRQ_MAX_WR)
		ret = kh_srq_resize(dev, srq, max_wr, udata);
	if (!ret && mask & IB_SRQ_LIMIT)
		ret = kh_cmd_modify_srq(dev, srq->srqn, attr->srq_limit);
	mutex_unlock(&srq->mutex);
	return ret;
}

int kh_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct kh_srq *srq = to_kh_srq(ibsrq);

	attr->max_wr = READ_ONCE(srq->max_wr);
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
