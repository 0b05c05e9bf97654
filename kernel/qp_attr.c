// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs: modify and query.
 *
 * The device is the authority on a QP's state, since errors move it there
 * without us.  What is checked here is what the specification says of the
 * attributes alone (which may and must be given for a transition, their ranges)
 * from the state that was last asked for; the device then checks again from the
 * state that is.
 */

#include <rdma/ib_cache.h>

#include "verbs.h"

#define KH_MAX_TIMEOUT		31
#define KH_MAX_RETRY		7
#define KH_MAX_RNR_TIMER	31
#define KH_QPN_MASK		0xffffffu

/* Attributes that have the same bit on the device; the rest is refused. */
#define KH_QP_MASK	(KH_QP_STATE | KH_QP_CUR_STATE | \
			 KH_QP_EN_SQD_ASYNC_NOTIFY | KH_QP_ACCESS_FLAGS | \
			 KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_QKEY | KH_QP_AV | \
			 KH_QP_PATH_MTU | KH_QP_TIMEOUT | KH_QP_RETRY_CNT | \
			 KH_QP_RNR_RETRY | KH_QP_RQ_PSN | KH_QP_MAX_QP_RD_ATOMIC | \
			 KH_QP_MIN_RNR_TIMER | KH_QP_SQ_PSN | \
			 KH_QP_MAX_DEST_RD_ATOMIC | KH_QP_DEST_QPN)

/* One row for each attribute that has a range. */
static const char *kh_attr_out_of_range(struct kh_dev *dev,
					const struct ib_qp_attr *attr, int mask)
{
	const struct {
		int bit;
		u32 value;
		u32 min;
		u32 max;
		const char *name;
	} rows[] = {
		{ IB_QP_PORT, attr->port_num, 1, 1, "port" },
		{ IB_QP_PKEY_INDEX, attr->pkey_index, 0, 0, "P_Key index" },
		{ IB_QP_PATH_MTU, attr->path_mtu, IB_MTU_256,
		  kh_active_mtu(dev), "path MTU" },
		{ IB_QP_TIMEOUT, attr->timeout, 0, KH_MAX_TIMEOUT, "timeout" },
		{ IB_QP_RETRY_CNT, attr->retry_cnt, 0, KH_MAX_RETRY,
		  "retry count" },
		{ IB_QP_RNR_RETRY, attr->rnr_retry, 0, KH_MAX_RETRY,
		  "RNR retry count" },
		{ IB_QP_MIN_RNR_TIMER, attr->min_rnr_timer, 0, KH_MAX_RNR_TIMER,
		  "minimum RNR timer" },
		{ IB_QP_MAX_QP_RD_ATOMIC, attr->max_rd_atomic, 0,
		  dev->attr.max_rd_atomic, "max_rd_atomic" },
		{ IB_QP_MAX_DEST_RD_ATOMIC, attr->max_dest_rd_atomic, 0,
		  dev->attr.max_rd_atomic, "max_dest_rd_atomic" },
		{ IB_QP_DEST_QPN, attr->dest_qp_num, 0, KH_QPN_MASK,
		  "destination QPN" },
		{ IB_QP_ACCESS_FLAGS,
		  attr->qp_access_flags & ~IB_ACCESS_SUPPORTED, 0, 0,
		  "access flags" },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		if (mask & rows[i].bit && (rows[i].value < rows[i].min ||
					   rows[i].value > rows[i].max))
			return rows[i].name;
	return NULL;
}

static int kh_modify_check(struct kh_dev *dev, struct kh_qp *qp,
			   const struct ib_qp_attr *attr, int mask)
{
	enum ib_qp_state cur, next;
	const char *wrong;

	if (mask & ~KH_QP_MASK) {
		ibdev_dbg(&dev->ibdev, "QP %u: attributes %#x not supported\n",
			  qp->qpn, mask & ~(int)KH_QP_MASK);
		return -EOPNOTSUPP;
	}
	cur = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : qp->state;
	next = mask & IB_QP_STATE ? attr->qp_state : cur;
	if (cur > IB_QPS_ERR || next > IB_QPS_ERR ||
	    !ib_modify_qp_is_ok(cur, next, qp->ibqp.qp_type, mask)) {
		ibdev_dbg(&dev->ibdev, "QP %u: state %u to %u with attributes %#x\n",
			  qp->qpn, cur, next, mask);
		return -EINVAL;
	}
	wrong = kh_attr_out_of_range(dev, attr, mask);
	if (wrong) {
		ibdev_dbg(&dev->ibdev, "QP %u: %s out of range\n", qp->qpn, wrong);
		return -EINVAL;
	}
	return 0;
}

static int kh_modify_av(struct kh_dev *dev, struct kh_qp *qp,
			const struct ib_qp_attr *attr, int mask,
			struct kh_qp_attr *hw)
{
	u32 flow_label = attr->ah_attr.grh.flow_label;
	int ret;

	ret = kh_av_from_attr(dev, &attr->ah_attr, &hw->av);
	if (ret)
		return ret;
	/* One port for the life of a connection, and not the same for all. */
	if (mask & IB_QP_DEST_QPN)
		hw->av.udp_sport = cpu_to_le16(rdma_get_udp_sport(flow_label,
								  qp->qpn,
								  attr->dest_qp_num));
	return 0;
}

static int kh_modify_hw(struct kh_dev *dev, struct kh_qp *qp,
			const struct ib_qp_attr *attr, int mask)
{
	struct kh_qp_attr hw = { .mask = cpu_to_le32(mask) };
	int ret;

	if (mask & IB_QP_STATE)
		hw.state = attr->qp_state;
	if (mask & IB_QP_CUR_STATE)
		hw.cur_state = attr->cur_qp_state;
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY)
		hw.en_sqd_async_notify = !!attr->en_sqd_async_notify;
	if (mask & IB_QP_ACCESS_FLAGS)
		hw.access = attr->qp_access_flags & KH_ACCESS_REMOTE;
	if (mask & IB_QP_PKEY_INDEX)
		hw.pkey_index = cpu_to_le16(attr->pkey_index);
	if (mask & IB_QP_PORT)
		hw.port = attr->port_num;
	if (mask & IB_QP_QKEY)
		hw.qkey = cpu_to_le32(attr->qkey);
	if (mask & IB_QP_PATH_MTU)
		hw.path_mtu = attr->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		hw.timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		hw.retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		hw.rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_RQ_PSN)
		hw.rq_psn = cpu_to_le32(attr->rq_psn);
	if (mask & IB_QP_SQ_PSN)
		hw.sq_psn = cpu_to_le32(attr->sq_psn);
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		hw.max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		hw.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		hw.min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_DEST_QPN)
		hw.dest_qpn = cpu_to_le32(attr->dest_qp_num);
	if (mask & IB_QP_AV) {
		ret = kh_modify_av(dev, qp, attr, mask, &hw);
		if (ret)
			return ret;
	}
	return kh_cmd_modify_qp(dev, qp->qpn, &hw);
}

int kh_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		 struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibqp->device);
	struct kh_qp *qp = to_kh_qp(ibqp);
	int ret;

	ret = kh_udata_none(udata);
	if (ret)
		return ret;

	mutex_lock(&qp->mutex);
	ret = kh_modify_check(dev, qp, attr, mask);
	if (ret)
		goto out;

	ret = kh_modify_hw(dev, qp, attr, mask);
	/*
	 * A kernel consumer that drains its queues on a lost device gets what it
	 * waits for: kh_poll_cq() flushes in the device's place.
	 */
	if (ret && !kh_dev_up(dev) && qp->db && mask & IB_QP_STATE &&
	    attr->qp_state == IB_QPS_ERR)
		ret = 0;
	if (ret)
		goto out;

	if (mask & IB_QP_AV)
		qp->static_rate = attr->ah_attr.static_rate;
	if (mask & IB_QP_STATE) {
		if (attr->qp_state == IB_QPS_RESET && qp->db)
			kh_kqp_clean(qp);
		WRITE_ONCE(qp->state, attr->qp_state);
	}
out:
	mutex_unlock(&qp->mutex);
	return ret;
}

int kh_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		struct ib_qp_init_attr *init)
{
	struct kh_dev *dev = to_kh_dev(ibqp->device);
	struct kh_qp *qp = to_kh_qp(ibqp);
	struct kh_qp_attr hw;
	int ret;

	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));

	mutex_lock(&qp->mutex);
	ret = kh_cmd_query_qp(dev, qp->qpn, &hw);
	if (!ret && (ibqp->qp_type == IB_QPT_RC || ibqp->qp_type == IB_QPT_UC))
		kh_av_to_attr(dev, &hw.av, qp->static_rate, &attr->ah_attr);
	mutex_unlock(&qp->mutex);
	if (ret)
		return ret;

	attr->qp_state = hw.state;
	attr->cur_qp_state = hw.state;
	attr->path_mtu = hw.path_mtu;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->qkey = le32_to_cpu(hw.qkey);
	attr->rq_psn = le32_to_cpu(hw.rq_psn);
	attr->sq_psn = le32_to_cpu(hw.sq_psn);
	attr->dest_qp_num = le32_to_cpu(hw.dest_qpn);
	attr->qp_access_flags = hw.access;
	attr->cap = qp->cap;
	attr->pkey_index = le16_to_cpu(hw.pkey_index);
	attr->en_sqd_async_notify = hw.en_sqd_async_notify;
	attr->sq_draining = hw.sq_draining;
	attr->max_rd_atomic = hw.max_rd_atomic;
	attr->max_dest_rd_atomic = hw.max_dest_rd_atomic;
	attr->min_rnr_timer = hw.min_rnr_timer;
	attr->port_num = hw.port;
	attr->timeout = hw.timeout;
	attr->retry_cnt = hw.retry_cnt;
	attr->rnr_retry = hw.rnr_retry;

	init->event_handler = ibqp->event_handler;
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->cap;
	init->sq_sig_type = qp->sig_type;
	init->qp_type = ibqp->qp_type;
	init->port_num = hw.port;
	return 0;
}
