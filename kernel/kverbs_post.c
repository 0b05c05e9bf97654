// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Posting for kernel consumers: work requests become WQEs.
 *
 * A WQE begins at a 64 byte block, and its fixed segments fit into that block;
 * only the data after them may reach the end of the ring and go on at its
 * start.  The whole list is built first and announced by one doorbell.  When a
 * request is refused, those before it have been posted and the rest has not.
 *
 * On a lost device posting still succeeds: nobody will execute the request, but
 * its completion comes (kh_poll_cq() flushes), and whoever waits for it returns.
 */

#include "verbs.h"

/* Where the next bytes of a WQE's data go. */
struct kh_cursor {
	u8 *ring;
	u32 pos;
	u32 mask;		/* of a position: bytes of the ring - 1 */
};

static void kh_put(struct kh_cursor *cursor, const void *src, u32 len)
{
	u32 first = min(len, cursor->mask + 1 - cursor->pos);

	memcpy(cursor->ring + cursor->pos, src, first);
	memcpy(cursor->ring, src + first, len - first);
	cursor->pos = (cursor->pos + len) & cursor->mask;
}

static bool kh_is_ud(const struct kh_qp *qp)
{
	return qp->ibqp.qp_type == IB_QPT_UD || qp->ibqp.qp_type == IB_QPT_GSI;
}

/* What each kind of request is to the device; KH_NO_OP if it cannot be. */
#define KH_NO_OP	0xff

static u8 kh_send_opcode(const struct kh_qp *qp, enum ib_wr_opcode opcode)
{
	bool rc = qp->ibqp.qp_type == IB_QPT_RC;

	switch (opcode) {
	case IB_WR_SEND:
		return KH_OP_SEND;
	case IB_WR_SEND_WITH_IMM:
		return KH_OP_SEND_IMM;
	default:
		break;
	}
	if (kh_is_ud(qp))
		return KH_NO_OP;
	switch (opcode) {
	case IB_WR_RDMA_WRITE:
		return KH_OP_WRITE;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return KH_OP_WRITE_IMM;
	case IB_WR_SEND_WITH_INV:
		return rc ? KH_OP_SEND_INV : KH_NO_OP;
	case IB_WR_RDMA_READ:
		return rc ? KH_OP_READ : KH_NO_OP;
	case IB_WR_ATOMIC_CMP_AND_SWP:
		return rc ? KH_OP_CMP_SWAP : KH_NO_OP;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return rc ? KH_OP_FETCH_ADD : KH_NO_OP;
	case IB_WR_LOCAL_INV:
		return KH_OP_LOCAL_INV;
	case IB_WR_REG_MR:
		return KH_OP_REG_MR;
	default:
		return KH_NO_OP;
	}
}

/* Bytes of the request's inline data, or an errno. */
static int kh_inline_len(const struct kh_qp *qp, const struct ib_send_wr *wr)
{
	u64 len = 0;
	int i;

	if (!(wr->send_flags & IB_SEND_INLINE))
		return 0;
	if (wr->opcode == IB_WR_RDMA_READ ||
	    wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP ||
	    wr->opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
		return -EINVAL;
	for (i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	return len > qp->cap.max_inline_data ? -EINVAL : len;
}

static void kh_fill_reg(const struct ib_send_wr *wr, struct kh_wqe_reg *seg)
{
	const struct ib_reg_wr *reg = reg_wr(wr);
	const struct kh_mr *mr = to_kh_mr(reg->mr);

	seg->key = cpu_to_le32(reg->key);
	seg->access = cpu_to_le32(reg->access & KH_ACCESS_MASK);
	seg->start = cpu_to_le64(reg->mr->iova);
	seg->length = cpu_to_le64(reg->mr->length);
	seg->pages = mr->list.desc;
	seg->offset = cpu_to_le64(mr->list.offset);
}

static void kh_fill_ud(const struct ib_send_wr *wr, u32 inline_len,
		       struct kh_wqe_ud *seg)
{
	const struct ib_ud_wr *ud = ud_wr(wr);

	seg->av = to_kh_ah(ud->ah)->av;
	seg->dest_qpn = cpu_to_le32(ud->remote_qpn);
	seg->qkey = cpu_to_le32(ud->remote_qkey);
	seg->inline_len = cpu_to_le32(inline_len);
	seg->rsvd = 0;
}

static void kh_fill_atomic(const struct ib_send_wr *wr, struct kh_wqe_rdma *rdma,
			   struct kh_wqe_atomic *seg)
{
	const struct ib_atomic_wr *atomic = atomic_wr(wr);

	rdma->remote_addr = cpu_to_le64(atomic->remote_addr);
	rdma->rkey = cpu_to_le32(atomic->rkey);
	rdma->inline_len = 0;
	if (wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP) {
		seg->swap_add = cpu_to_le64(atomic->swap);
		seg->compare = cpu_to_le64(atomic->compare_add);
	} else {
		seg->swap_add = cpu_to_le64(atomic->compare_add);
		seg->compare = 0;
	}
}

static void kh_fill_rdma(const struct ib_send_wr *wr, u8 opcode, u32 inline_len,
			 struct kh_wqe_rdma *seg)
{
	bool send = opcode == KH_OP_SEND || opcode == KH_OP_SEND_IMM ||
		    opcode == KH_OP_SEND_INV;

	seg->remote_addr = send ? 0 : cpu_to_le64(rdma_wr(wr)->remote_addr);
	seg->rkey = send ? 0 : cpu_to_le32(rdma_wr(wr)->rkey);
	seg->inline_len = cpu_to_le32(inline_len);
}

static void kh_put_data(struct kh_cursor *cursor, const struct ib_send_wr *wr)
{
	struct kh_sge sge;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		const struct ib_sge *s = &wr->sg_list[i];

		if (wr->send_flags & IB_SEND_INLINE) {
			kh_put(cursor, (void *)(uintptr_t)s->addr, s->length);
			continue;
		}
		sge.addr = cpu_to_le64(s->addr);
		sge.length = cpu_to_le32(s->length);
		sge.lkey = cpu_to_le32(s->lkey);
		kh_put(cursor, &sge, sizeof(sge));
	}
}

/* Build wr's WQE at block index pi.  Blocks that it takes, or an errno. */
static int kh_build_send(struct kh_qp *qp, const struct ib_send_wr *wr, u32 pi)
{
	u32 size = 1u << qp->log_sq_blocks;
	u32 head = sizeof(struct kh_wqe_ctrl) + sizeof(struct kh_wqe_rdma);
	u32 data, blocks, flags;
	struct kh_cursor cursor;
	struct kh_wqe_ctrl *ctrl;
	int inline_len;
	void *seg;
	u8 opcode;

	opcode = kh_send_opcode(qp, wr->opcode);
	if (opcode == KH_NO_OP || wr->num_sge < 0 ||
	    wr->num_sge > qp->cap.max_send_sge)
		return -EINVAL;
	inline_len = kh_inline_len(qp, wr);
	if (inline_len < 0)
		return inline_len;
	data = wr->send_flags & IB_SEND_INLINE ? inline_len :
						 wr->num_sge * sizeof(struct kh_sge);

	if (kh_is_ud(qp))
		head = sizeof(*ctrl) + sizeof(struct kh_wqe_ud);
	else if (opcode == KH_OP_CMP_SWAP || opcode == KH_OP_FETCH_ADD)
		head += sizeof(struct kh_wqe_atomic);
	else if (opcode == KH_OP_LOCAL_INV || opcode == KH_OP_REG_MR)
		data = 0;
	blocks = DIV_ROUND_UP(head + data, KH_WQE_BLOCK);
	if (blocks > size - (pi - READ_ONCE(qp->sq_ci)))
		return -ENOMEM;

	ctrl = (void *)(qp->sq + ((pi & (size - 1)) << KH_WQE_BLOCK_SHIFT));
	seg = ctrl + 1;

	flags = wr->send_flags & (KH_WQE_FENCE | KH_WQE_SIGNALED |
				  KH_WQE_SOLICITED | KH_WQE_INLINE);
	if (qp->sig_type == IB_SIGNAL_ALL_WR)
		flags |= KH_WQE_SIGNALED;

	ctrl->imm = 0;
	switch (opcode) {
	case KH_OP_REG_MR:
		kh_fill_reg(wr, seg);
		break;
	case KH_OP_LOCAL_INV:
		ctrl->imm = cpu_to_le32(wr->ex.invalidate_rkey);
		break;
	case KH_OP_CMP_SWAP:
	case KH_OP_FETCH_ADD:
		kh_fill_atomic(wr, seg, seg + sizeof(struct kh_wqe_rdma));
		break;
	case KH_OP_SEND_INV:
		ctrl->imm = cpu_to_le32(wr->ex.invalidate_rkey);
		kh_fill_rdma(wr, opcode, inline_len, seg);
		break;
	default:
		if (opcode == KH_OP_SEND_IMM || opcode == KH_OP_WRITE_IMM)
			ctrl->imm = (__force __le32)wr->ex.imm_data;
		if (kh_is_ud(qp))
			kh_fill_ud(wr, inline_len, seg);
		else
			kh_fill_rdma(wr, opcode, inline_len, seg);
	}
	if (opcode == KH_OP_REG_MR || opcode == KH_OP_LOCAL_INV) {
		flags &= ~KH_WQE_INLINE;
		ctrl->num_sge = 0;
	} else {
		ctrl->num_sge = flags & KH_WQE_INLINE ? 0 : wr->num_sge;
		cursor.ring = qp->sq;
		cursor.mask = (size << KH_WQE_BLOCK_SHIFT) - 1;
		cursor.pos = ((u8 *)ctrl - qp->sq + head) & cursor.mask;
		kh_put_data(&cursor, wr);
	}
	ctrl->opcode = opcode;
	ctrl->flags = flags;
	ctrl->nblocks = blocks;
	ctrl->wr_id = cpu_to_le64(wr->wr_id);
	return blocks;
}

/* No device will ever tell: tell who waits on the CQ that there is something. */
static void kh_notify_dead(struct kh_dev *dev, struct ib_cq *ibcq)
{
	/* pi before the state: kh_verbs_fatal's caller does it the other way. */
	smp_mb();
	if (kh_dev_state(dev) == KH_DEV_DEAD && ibcq->comp_handler)
		ibcq->comp_handler(ibcq, ibcq->cq_context);
}

int kh_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		 const struct ib_send_wr **bad_wr)
{
	struct kh_dev *dev = to_kh_dev(ibqp->device);
	struct kh_qp *qp = to_kh_qp(ibqp);
	unsigned long flags;
	int ret = 0;
	u32 pi;

	if (!qp->sq || READ_ONCE(qp->state) < IB_QPS_RTS) {
		*bad_wr = wr;
		return -EINVAL;
	}

	spin_lock_irqsave(&qp->sq_lock, flags);
	for (pi = qp->sq_pi; wr; wr = wr->next) {
		ret = kh_build_send(qp, wr, pi);
		if (ret < 0) {
			*bad_wr = wr;
			break;
		}
		pi += ret;
		ret = 0;
	}
	if (pi != qp->sq_pi) {
		/* After the WQEs: a flush reads them up to here. */
		smp_store_release(&qp->sq_pi, pi);
		kh_ring(dev, qp->slot, &qp->db->sq_pi, pi);
	}
	spin_unlock_irqrestore(&qp->sq_lock, flags);

	kh_notify_dead(dev, ibqp->send_cq);
	return ret;
}

static void kh_build_recv(u8 *at, const struct ib_recv_wr *wr)
{
	struct kh_rwqe *rwqe = (void *)at;
	struct kh_sge *sge = (void *)(rwqe + 1);
	int i;

	rwqe->wr_id = cpu_to_le64(wr->wr_id);
	rwqe->num_sge = cpu_to_le32(wr->num_sge);
	rwqe->rsvd = 0;
	for (i = 0; i < wr->num_sge; i++) {
		sge[i].addr = cpu_to_le64(wr->sg_list[i].addr);
		sge[i].length = cpu_to_le32(wr->sg_list[i].length);
		sge[i].lkey = cpu_to_le32(wr->sg_list[i].lkey);
	}
}

int kh_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		 const struct ib_recv_wr **bad_wr)
{
	struct kh_dev *dev = to_kh_dev(ibqp->device);
	struct kh_qp *qp = to_kh_qp(ibqp);
	u32 size = 1u << qp->log_rq_size;
	unsigned long flags;
	int ret = 0;
	u32 pi;

	if (!qp->rq || READ_ONCE(qp->state) == IB_QPS_RESET) {
		*bad_wr = wr;
		return -EINVAL;
	}

	spin_lock_irqsave(&qp->rq_lock, flags);
	for (pi = qp->rq_pi; wr; wr = wr->next) {
		if (wr->num_sge < 0 || wr->num_sge > qp->cap.max_recv_sge)
			ret = -EINVAL;
		else if (pi - READ_ONCE(qp->rq_ci) >= size)
			ret = -ENOMEM;
		if (ret) {
			*bad_wr = wr;
			break;
		}
		kh_build_recv(qp->rq + ((size_t)(pi & (size - 1)) <<
					qp->log_rq_stride), wr);
		pi++;
	}
	if (pi != qp->rq_pi) {
		/* After the WQEs: a flush reads them up to here. */
		smp_store_release(&qp->rq_pi, pi);
		/* And so does the device. */
		virt_store_release(&qp->db->rq_pi, cpu_to_le32(pi));
		/* In the error state nobody looks at rq_pi unless told. */
		mb();
		if (READ_ONCE(qp->db->rq_notify))
			kh_mark(dev, qp->slot);
	}
	spin_unlock_irqrestore(&qp->rq_lock, flags);

	kh_notify_dead(dev, ibqp->recv_cq);
	return ret;
}

int kh_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		     const struct ib_recv_wr **bad_wr)
{
	struct kh_srq *srq = to_kh_srq(ibsrq);
	u32 size = 1u << srq->log_size;
	unsigned long flags;
	int ret = 0;
	u32 ci, pi;

	spin_lock_irqsave(&srq->lock, flags);
	/* The device has copied what it took: its index frees entries. */
	ci = le32_to_cpu(virt_load_acquire(&srq->db->ci));
	for (pi = srq->pi; wr; wr = wr->next) {
		if (wr->num_sge < 0 || wr->num_sge > srq->max_sge)
			ret = -EINVAL;
		else if (pi - ci >= size)
			ret = -ENOMEM;
		if (ret) {
			*bad_wr = wr;
			break;
		}
		kh_build_recv(srq->buf.va + ((size_t)(pi & (size - 1)) <<
					     srq->log_stride), wr);
		pi++;
	}
	srq->pi = pi;
	/* After the WQEs: the device reads them up to here. */
	virt_store_release(&srq->db->pi, cpu_to_le32(pi));
	spin_unlock_irqrestore(&srq->lock, flags);
	return ret;
}
