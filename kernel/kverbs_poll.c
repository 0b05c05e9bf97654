// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Polling and arming for kernel consumers: CQEs become work completions.
 *
 * While the device lives, what it wrote is what there is.  Once it is lost and
 * can write no more, each request that is still outstanding completes as flushed,
 * made up here from the queues themselves: a consumer that counts its completions,
 * as all that drain their queues do, gets every one.
 */

#include <linux/etherdevice.h>

#include "verbs.h"

struct kh_cqe *kh_kcq_entry(struct kh_cq *cq, u32 index)
{
	struct kh_cqe *cqe = &cq->ring[index & ((1u << cq->log_size) - 1)];
	u8 phase = !((index >> cq->log_size) & 1);

	/* The rest of the entry is read after its phase. */
	if ((virt_load_acquire(&cqe->phase) & 1) != phase)
		return NULL;
	return cqe;
}

static const enum ib_wc_opcode kh_wc_opcodes[] = {
	[KH_OP_SEND] = IB_WC_SEND,
	[KH_OP_SEND_IMM] = IB_WC_SEND,
	[KH_OP_SEND_INV] = IB_WC_SEND,
	[KH_OP_WRITE] = IB_WC_RDMA_WRITE,
	[KH_OP_WRITE_IMM] = IB_WC_RDMA_WRITE,
	[KH_OP_READ] = IB_WC_RDMA_READ,
	[KH_OP_CMP_SWAP] = IB_WC_COMP_SWAP,
	[KH_OP_FETCH_ADD] = IB_WC_FETCH_ADD,
	[KH_OP_LOCAL_INV] = IB_WC_LOCAL_INV,
	[KH_OP_BIND_MW] = IB_WC_BIND_MW,
	[KH_OP_REG_MR] = IB_WC_REG_MR,
};

static enum ib_wc_opcode kh_wc_opcode(u8 opcode)
{
	if (opcode == KH_CQE_RECV)
		return IB_WC_RECV;
	if (opcode == KH_CQE_RECV_WRITE_IMM)
		return IB_WC_RECV_RDMA_WITH_IMM;
	return opcode < ARRAY_SIZE(kh_wc_opcodes) ? kh_wc_opcodes[opcode] :
						    IB_WC_SEND;
}

static bool kh_is_recv(u8 opcode)
{
	return opcode == KH_CQE_RECV || opcode == KH_CQE_RECV_WRITE_IMM;
}

/* What only a UD receive tells: who sent it, and how. */
static void kh_wc_ud(const struct kh_cqe *cqe, struct ib_wc *wc)
{
	u16 vlan = le16_to_cpu(cqe->vlan);

	wc->src_qp = le32_to_cpu(cqe->src_qpn);
	wc->pkey_index = le16_to_cpu(cqe->pkey_index);
	wc->sl = cqe->sl;
	wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_SMAC |
			IB_WC_WITH_NETWORK_HDR_TYPE;
	ether_addr_copy(wc->smac, cqe->smac);
	if (vlan != KH_VLAN_NONE) {
		wc->vlan_id = vlan;
		wc->wc_flags |= IB_WC_WITH_VLAN;
	}
	wc->network_hdr_type = cqe->flags & KH_CQE_IPV4 ? RDMA_NETWORK_IPV4 :
							  RDMA_NETWORK_IPV6;
}

static void kh_wc_success(const struct kh_qp *qp, const struct kh_cqe *cqe,
			  struct ib_wc *wc)
{
	wc->byte_len = le32_to_cpu(cqe->byte_len);
	if (!kh_is_recv(cqe->opcode))
		return;
	if (cqe->flags & KH_CQE_IMM) {
		wc->ex.imm_data = (__force __be32)cqe->imm;
		wc->wc_flags |= IB_WC_WITH_IMM;
	} else if (cqe->flags & KH_CQE_INV) {
		wc->ex.invalidate_rkey = le32_to_cpu(cqe->imm);
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
	}
	if (cqe->flags & KH_CQE_GRH)
		kh_wc_ud(cqe, wc);
}

/* False if the CQE tells of nothing that we have. */
static bool kh_wc_fill(struct kh_cq *cq, const struct kh_cqe *cqe,
		       struct ib_wc *wc)
{
	struct kh_dev *dev = to_kh_dev(cq->ibcq.device);
	u32 sq_index = le32_to_cpu(cqe->sq_index);
	struct kh_res *res;
	struct kh_qp *qp;

	/* It cannot go away meanwhile: kh_kqp_detach() takes cq->lock first. */
	res = xa_load(&dev->qps, le32_to_cpu(cqe->qpn));
	if (!res)
		goto bogus;
	qp = container_of(res, struct kh_qp, res);

	if (kh_is_recv(cqe->opcode)) {
		if (!qp->ibqp.srq)
			WRITE_ONCE(qp->rq_ci, qp->rq_ci + 1);
	} else {
		if (sq_index - qp->sq_ci > READ_ONCE(qp->sq_pi) - qp->sq_ci)
			goto bogus;
		WRITE_ONCE(qp->sq_ci, sq_index);
	}

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = le64_to_cpu(cqe->wr_id);
	wc->qp = &qp->ibqp;
	wc->opcode = kh_wc_opcode(cqe->opcode);
	wc->port_num = 1;
	wc->status = min_t(enum ib_wc_status, cqe->status, IB_WC_GENERAL_ERR);
	if (wc->status == IB_WC_SUCCESS)
		kh_wc_success(qp, cqe, wc);
	else
		wc->vendor_err = le32_to_cpu(cqe->syndrome);
	return true;

bogus:
	ibdev_warn_ratelimited(&dev->ibdev,
			       "CQ %u: CQE of QP %u with SQ index %u belongs to nothing\n",
			       cq->cqn, le32_to_cpu(cqe->qpn), sq_index);
	return false;
}

static void kh_wc_flushed(struct kh_qp *qp, u64 wr_id, enum ib_wc_opcode opcode,
			  struct ib_wc *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = wr_id;
	wc->qp = &qp->ibqp;
	wc->opcode = opcode;
	wc->port_num = 1;
	wc->status = IB_WC_WR_FLUSH_ERR;
	wc->vendor_err = KH_SYN_FLUSH;
}

static bool kh_flush_send(struct kh_qp *qp, struct ib_wc *wc)
{
	u32 mask = (1u << qp->log_sq_blocks) - 1;
	struct kh_wqe_ctrl *ctrl;

	/* Pairs with the release after the WQEs in kh_post_send(). */
	if (qp->sq_ci == smp_load_acquire(&qp->sq_pi))
		return false;
	ctrl = (void *)(qp->sq + ((qp->sq_ci & mask) << KH_WQE_BLOCK_SHIFT));
	kh_wc_flushed(qp, le64_to_cpu(ctrl->wr_id), kh_wc_opcode(ctrl->opcode),
		      wc);
	WRITE_ONCE(qp->sq_ci, qp->sq_ci + ctrl->nblocks);
	return true;
}

static bool kh_flush_recv(struct kh_qp *qp, struct ib_wc *wc)
{
	u32 mask = (1u << qp->log_rq_size) - 1;
	struct kh_rwqe *rwqe;

	/* Pairs with the release after the WQEs in kh_post_recv(). */
	if (qp->rq_ci == smp_load_acquire(&qp->rq_pi))
		return false;
	rwqe = (void *)(qp->rq + ((size_t)(qp->rq_ci & mask) <<
				  qp->log_rq_stride));
	kh_wc_flushed(qp, le64_to_cpu(rwqe->wr_id), IB_WC_RECV, wc);
	WRITE_ONCE(qp->rq_ci, qp->rq_ci + 1);
	return true;
}

/* One completion of a lost device's queues; wc may be NULL: is there one? */
static bool kh_flush_one(struct kh_cq *cq, struct ib_wc *wc)
{
	struct kh_qp *qp;

	if (kh_dev_state(to_kh_dev(cq->ibcq.device)) != KH_DEV_DEAD)
		return false;
	list_for_each_entry(qp, &cq->send_qps, send_link) {
		if (!wc && qp->sq_ci != READ_ONCE(qp->sq_pi))
			return true;
		if (wc && kh_flush_send(qp, wc))
			return true;
	}
	list_for_each_entry(qp, &cq->recv_qps, recv_link) {
		if (!wc && qp->rq_ci != READ_ONCE(qp->rq_pi))
			return true;
		if (wc && kh_flush_recv(qp, wc))
			return true;
	}
	return false;
}

int kh_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct kh_cq *cq = to_kh_cq(ibcq);
	struct kh_cqe *cqe;
	unsigned long flags;
	u32 ci;
	int n = 0;

	spin_lock_irqsave(&cq->lock, flags);
	ci = cq->ci;
	while (n < num) {
		cqe = kh_kcq_entry(cq, cq->ci);
		if (!cqe)
			break;
		if (cqe->opcode != KH_CQE_SKIP && kh_wc_fill(cq, cqe, &wc[n]))
			n++;
		cq->ci++;
	}
	if (cq->ci != ci) {
		/* All is read: now the device may write there again. */
		virt_store_release(&cq->db->ci, cpu_to_le32(cq->ci));
	}
	while (n < num && kh_flush_one(cq, &wc[n]))
		n++;
	spin_unlock_irqrestore(&cq->lock, flags);
	return n;
}

int kh_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags notify)
{
	struct kh_cq *cq = to_kh_cq(ibcq);
	unsigned long flags;
	int missed = 0;
	u32 type;

	type = (notify & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED ?
		       KH_ARM_SOLICITED : KH_ARM_NEXT;

	spin_lock_irqsave(&cq->lock, flags);
	cq->arm_sn++;
	WRITE_ONCE(cq->db->arm,
		   cpu_to_le32(cq->arm_sn << KH_ARM_SN_SHIFT | type));
	/* The device writes an entry and then looks at arm. */
	mb();
	if (notify & IB_CQ_REPORT_MISSED_EVENTS)
		missed = kh_kcq_entry(cq, cq->ci) || kh_flush_one(cq, NULL);
	spin_unlock_irqrestore(&cq->lock, flags);
	return missed;
}
