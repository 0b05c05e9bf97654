/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The verbs objects.  The core allocates them (but for MRs) and we keep in each
 * the device's number of it and what must be released with it.
 */
#ifndef KH_OBJECTS_H
#define KH_OBJECTS_H

#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

#include "events.h"
#include "keyhole.h"
#include "pages.h"

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
	u32 key;			/* current, all 32 bits */
	int access;			/* enum ib_access_flags, for rereg */
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
	struct ib_umem *umem;		/* user CQ */
	/* kernel CQ */
	struct kh_buf buf;
	struct kh_cqe *ring;
	struct kh_cq_db *db;
	spinlock_t lock;		/* ci, arm_sn, reading the ring */
	u32 ci;
	u32 arm_sn;
	u8 log_size;
};

struct kh_srq {
	struct ib_srq ibsrq;
	struct kh_res res;
	u32 srqn;
	struct ib_umem *umem;
	/* kernel SRQ */
	struct kh_buf buf;
	struct kh_srq_db *db;
	spinlock_t lock;		/* pi and the ring */
	u32 pi;
	u8 log_size;
	u8 log_stride;
};

struct kh_qp {
	struct ib_qp ibqp;
	struct kh_res res;
	u32 qpn;
	u16 slot;
	struct ib_umem *umem;
	enum ib_qp_state state;
	struct mutex mutex;		/* state, order of MODIFY_QP */
	/* kernel QP */
	struct kh_buf buf;
	struct kh_qp_db *db;
	void *sq;
	void *rq;
	spinlock_t sq_lock;
	spinlock_t rq_lock;
	u32 sq_pi;
	u32 sq_ci;
	u32 rq_pi;
	u32 rq_ci;
	u8 log_sq_blocks;
	u8 log_rq_size;
	u8 log_rq_stride;
};

struct kh_ah {
	struct ib_ah ibah;
	struct kh_av av;
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
