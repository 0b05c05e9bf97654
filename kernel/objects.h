/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The verbs objects.  The core allocates them (but for MRs) and we keep in each
 * the device's number of it and what must be released with it.
 *
 * The queues of a process are the process's memory: of them we keep the pinned
 * pages and nothing else.  The queues of a kernel consumer are a struct kh_buf,
 * and kverbs_*.c is their provider; "kernel" below marks what only those have.
 */
#ifndef KH_OBJECTS_H
#define KH_OBJECTS_H

#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

#include "events.h"
#include "keyhole.h"
#include "pages.h"

struct kh_mmap_entry {
	struct rdma_user_mmap_entry rdma_entry;
	phys_addr_t addr;
	bool writable;
	bool cached;
};

struct kh_ucontext {
	struct ib_ucontext ibucontext;
	u16 ctx;			/* context number */
	struct kh_slots slots;		/* doorbell slots of that context */
	struct rdma_user_mmap_entry *db_mmap;
	struct rdma_user_mmap_entry *status_mmap;
	struct rdma_user_mmap_entry *wake_mmap;
};

struct kh_pd {
	struct ib_pd ibpd;
	u32 pdn;
};

struct kh_mr {
	struct ib_mr ibmr;
	struct ib_umem *umem;		/* user regions */
	int access;			/* enum ib_access_flags without the optional */
	u64 iova;			/* as registered, also if zero based */
	/* kernel regions filled by REG_MR */
	struct kh_page_list list;
	u32 npages;
};

struct kh_mw {
	struct ib_mw ibmw;
	u32 key;			/* as allocated: names the index */
};

struct kh_cq {
	struct ib_cq ibcq;
	struct kh_res res;
	u32 cqn;
	u32 comp_vector;
	struct ib_umem *umem;
	struct mutex resize_mutex;	/* umem, order of RESIZE_CQ */
	/* kernel */
	struct kh_buf buf;
	struct kh_cqe *ring;
	struct kh_cq_db *db;
	spinlock_t lock;		/* all below, and reading the ring */
	struct list_head send_qps;	/* kh_qp.send_link */
	struct list_head recv_qps;	/* kh_qp.recv_link */
	u32 ci;
	u32 arm_sn;
	u8 log_size;
};

struct kh_srq {
	struct ib_srq ibsrq;
	struct kh_res res;
	u32 srqn;
	struct mutex mutex;		/* max_wr, umem, order of changes */
	u32 max_wr;
	u32 max_sge;
	struct ib_umem *umem;
	/* kernel */
	struct kh_buf buf;
	struct kh_srq_db *db;
	spinlock_t lock;		/* pi and the ring */
	u32 pi;
	u8 log_size;
	u8 log_stride;			/* of a process's too */
};

struct kh_qp {
	struct ib_qp ibqp;
	struct kh_res res;
	u32 qpn;
	u16 slot;
	struct kh_slots *slots;		/* where slot came from */
	struct ib_umem *umem;
	struct ib_qp_cap cap;
	enum ib_sig_type sig_type;
	struct mutex mutex;		/* state, static_rate, order of MODIFY_QP */
	enum ib_qp_state state;		/* as last asked for; the device may be in error */
	u8 static_rate;
	/* kernel */
	struct kh_buf buf;
	struct kh_qp_db *db;
	u8 *sq;
	u8 *rq;
	spinlock_t sq_lock;		/* sq_pi and the ring */
	spinlock_t rq_lock;		/* rq_pi and the ring */
	struct list_head send_link;	/* of the send CQ */
	struct list_head recv_link;	/* of the receive CQ */
	u32 sq_pi;
	u32 sq_ci;			/* under the send CQ's lock */
	u32 rq_pi;
	u32 rq_ci;			/* under the receive CQ's lock */
	u8 log_sq_blocks;
	u8 log_rq_size;
	u8 log_rq_stride;
};

struct kh_ah {
	struct ib_ah ibah;
	struct kh_av av;
	u8 static_rate;
};

#define KH_TO(type, member)						\
static inline struct kh_##type *to_kh_##type(struct ib_##type *p)	\
{									\
	return container_of(p, struct kh_##type, member);		\
}

KH_TO(ucontext, ibucontext)
KH_TO(pd, ibpd)
KH_TO(mr, ibmr)
KH_TO(mw, ibmw)
KH_TO(cq, ibcq)
KH_TO(srq, ibsrq)
KH_TO(qp, ibqp)
KH_TO(ah, ibah)
#undef KH_TO

#endif /* KH_OBJECTS_H */
