// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues: create, resize, moderate, destroy.
 *
 * The ring of a process's CQ is the process's own memory, and so is its consumer
 * index; the kernel keeps the pinned pages.  Resizing pins the new ring, has
 * the device move what is unread, and releases the loser of the two rings, as
 * reregistering a memory region does.
 */

#include <rdma/uverbs_ioctl.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

static int kh_cq_layout(struct kh_dev *dev, u32 len, u32 ring_offset,
			u32 db_offset, u8 log_size, int cqe)
{
	if (log_size < 1 || log_size > KH_MAX_LOG_CQ || 1 << log_size < cqe ||
	    !kh_in_queue(len, ring_offset, sizeof(struct kh_cqe) << log_size,
			 KH_RING_ALIGN) ||
	    !kh_in_queue(len, db_offset, sizeof(struct kh_cq_db),
			 KH_RING_ALIGN)) {
		ibdev_dbg(&dev->ibdev,
			  "CQ of %d: 1 << %u entries at %#x, record at %#x, buffer of %#x\n",
			  cqe, log_size, ring_offset, db_offset, len);
		return -EINVAL;
	}
	return 0;
}

static int kh_ucq_create(struct kh_dev *dev, struct kh_cq *cq, int cqe,
			 struct kh_create_cq_params *params,
			 struct ib_udata *udata)
{
	struct kh_ucontext *uctx =
		rdma_udata_to_drv_context(udata, struct kh_ucontext, ibucontext);
	struct keyhole_create_cq_req req;
	struct kh_uqueue uq;
	int ret;

	ret = kh_udata_get(udata, &req, sizeof(req));
	if (ret)
		return ret;
	if (req.reserved || req.flags & ~(KH_CQ_TIMESTAMP | KH_CQ_IGNORE_OVERRUN))
		return -EOPNOTSUPP;
	ret = kh_cq_layout(dev, req.buf_len, req.ring_offset, req.db_offset,
			   req.log_size, cqe);
	if (ret)
		return ret;
	ret = kh_uqueue_pin(dev, req.buf_addr, req.buf_len, &uq);
	if (ret)
		return ret;

	params->pages = &uq.list.desc;
	params->ring_offset = uq.list.offset + req.ring_offset;
	params->db_offset = uq.list.offset + req.db_offset;
	params->ctx = uctx->ctx;
	params->log_size = req.log_size;
	params->flags |= req.flags;
	ret = kh_cmd_create_cq(dev, params, &cq->cqn);
	if (!ret) {
		cq->umem = uq.umem;
		uq.umem = NULL;
		cq->ibcq.cqe = 1 << req.log_size;
	}
	kh_uqueue_done(dev, &uq);
	return ret;
}

static int kh_kcq_command(struct kh_dev *dev, struct kh_cq *cq, int cqe,
			  struct kh_create_cq_params *params)
{
	struct kh_pages pages;
	int ret;

	ret = kh_kcq_create(dev, cq, cqe);
	if (ret)
		return ret;
	pages = kh_buf_pages(&cq->buf);
	params->pages = &pages;
	params->ring_offset = (u8 *)cq->ring - (u8 *)cq->buf.va;
	params->db_offset = (u8 *)cq->db - (u8 *)cq->buf.va;
	params->log_size = cq->log_size;
	ret = kh_cmd_create_cq(dev, params, &cq->cqn);
	if (ret)
		kh_buf_free(dev, &cq->buf);
	else
		cq->ibcq.cqe = 1 << cq->log_size;
	return ret;
}

int kh_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		 struct kh_create_cq_arg *arg)
{
	struct ib_udata *udata = kh_create_cq_udata(arg);
	struct kh_dev *dev = to_kh_dev(ibcq->device);
	struct keyhole_create_cq_resp resp = {};
	struct kh_create_cq_params params = {};
	struct kh_cq *cq = to_kh_cq(ibcq);
	int ret;

	if (attr->flags & ~(IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION |
			    IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN))
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > dev->attr.max_cqe ||
	    attr->comp_vector >= ibcq->device->num_comp_vectors) {
		ibdev_dbg(&dev->ibdev, "CQ of %u (at most %u), vector %u (below %d)\n",
			  attr->cqe, dev->attr.max_cqe, attr->comp_vector,
			  ibcq->device->num_comp_vectors);
		return -EINVAL;
	}
	if (attr->flags & IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
		params.flags |= KH_CQ_TIMESTAMP;
	if (attr->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN)
		params.flags |= KH_CQ_IGNORE_OVERRUN;
	params.eqn = kh_ceq_eqn(dev, attr->comp_vector);

	cq->comp_vector = attr->comp_vector;
	mutex_init(&cq->resize_mutex);
	spin_lock_init(&cq->lock);
	INIT_LIST_HEAD(&cq->send_qps);
	INIT_LIST_HEAD(&cq->recv_qps);

	if (udata)
		ret = kh_ucq_create(dev, cq, attr->cqe, &params, udata);
	else
		ret = kh_kcq_command(dev, cq, attr->cqe, &params);
	if (ret)
		return ret;

	ret = kh_track_cq(dev, cq);
	if (ret)
		goto err_destroy;
	if (udata) {
		resp.cqn = cq->cqn;
		ret = kh_udata_put(udata, &resp, sizeof(resp));
		if (ret)
			kh_destroy_cq(ibcq, udata);
	}
	return ret;

err_destroy:
	if (!kh_cmd_destroy_cq(dev, cq->cqn)) {
		ib_umem_release(cq->umem);
		kh_buf_free(dev, &cq->buf);
	}
	return ret;
}

int kh_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibcq->device);
	struct kh_cq *cq = to_kh_cq(ibcq);
	int ret;

	ret = kh_cmd_destroy_cq(dev, cq->cqn);
	if (ret)
		return ret;
	kh_untrack_cq(dev, cq);
	ib_umem_release(cq->umem);
	kh_buf_free(dev, &cq->buf);
	return 0;
}

int kh_resize_cq(struct ib_cq *ibcq, kh_resize_cqe cqe, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibcq->device);
	struct kh_create_cq_params params = {};
	struct keyhole_resize_cq_req req;
	struct kh_cq *cq = to_kh_cq(ibcq);
	struct kh_uqueue uq;
	int ret;

	if (!udata || !cq->umem)
		return -EOPNOTSUPP;
	if (cqe < 1 || cqe > dev->attr.max_cqe)
		return -EINVAL;
	ret = kh_udata_get(udata, &req, sizeof(req));
	if (ret)
		return ret;
	if (req.reserved0 || req.reserved1)
		return -EOPNOTSUPP;
	ret = kh_cq_layout(dev, req.buf_len, req.ring_offset, req.db_offset,
			   req.log_size, cqe);
	if (ret)
		return ret;
	ret = kh_uqueue_pin(dev, req.buf_addr, req.buf_len, &uq);
	if (ret)
		return ret;

	params.pages = &uq.list.desc;
	params.ring_offset = uq.list.offset + req.ring_offset;
	params.db_offset = uq.list.offset + req.db_offset;
	params.log_size = req.log_size;

	mutex_lock(&cq->resize_mutex);
	ret = kh_cmd_resize_cq(dev, cq->cqn, &params);
	if (!ret) {
		swap(cq->umem, uq.umem);
		ibcq->cqe = 1 << req.log_size;
	}
	mutex_unlock(&cq->resize_mutex);

	kh_uqueue_done(dev, &uq);
	return ret;
}

int kh_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	return kh_cmd_modify_cq(to_kh_dev(ibcq->device), to_kh_cq(ibcq)->cqn,
				count, period);
}
