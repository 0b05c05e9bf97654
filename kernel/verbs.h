/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The operations of the ib_device, by the file that has them, and the few
 * functions that these files lend one another.
 */
#ifndef KH_VERBS_H
#define KH_VERBS_H

#include "objects.h"

/* Bounds of the contract, see struct kh_cmd_create_cq, _srq and _qp. */
#define KH_MAX_LOG_CQ		22
#define KH_MAX_LOG_SQ_BLOCKS	20
#define KH_MAX_LOG_RQ		15
#define KH_MIN_LOG_STRIDE	5
#define KH_MAX_LOG_STRIDE	10
#define KH_RING_ALIGN		64

static inline u32 kh_rwqe_size(u32 num_sge)
{
	return sizeof(struct kh_rwqe) + num_sge * sizeof(struct kh_sge);
}

/* query.c */
int kh_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
		    struct ib_udata *udata);
int kh_modify_device(struct ib_device *ibdev, int mask,
		     struct ib_device_modify *modify);
void kh_get_dev_fw_str(struct ib_device *ibdev, char *str);
int kh_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr);
int kh_get_port_immutable(struct ib_device *ibdev, u32 port,
			  struct ib_port_immutable *immutable);
enum rdma_link_layer kh_get_link_layer(struct ib_device *ibdev, u32 port);
int kh_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
/* MTU of RoCE packets on the port as it is now. */
enum ib_mtu kh_active_mtu(struct kh_dev *dev);

/* gid.c */
int kh_add_gid(const struct ib_gid_attr *attr, void **context);
int kh_del_gid(const struct ib_gid_attr *attr, void **context);

/* uctx.c */
int kh_alloc_ucontext(struct ib_ucontext *ibuctx, struct ib_udata *udata);
void kh_dealloc_ucontext(struct ib_ucontext *ibuctx);
void kh_disassociate_ucontext(struct ib_ucontext *ibuctx);
int kh_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma);
void kh_mmap_free(struct rdma_user_mmap_entry *entry);
int kh_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int kh_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);

/* udata.c: what a process sends along with a command, and its queue memory */
/*
 * The request into req.  A longer one is taken if its tail is zero; a shorter
 * one is an error: all of req's fields have meant something from the start.
 */
int kh_udata_get(struct ib_udata *udata, void *req, size_t size);
/* For a command that has no request of its own. */
int kh_udata_none(struct ib_udata *udata);
int kh_udata_put(struct ib_udata *udata, const void *resp, size_t size);

/* A queue in a process's memory, between pinning it and the command's end. */
struct kh_uqueue {
	struct ib_umem *umem;
	struct kh_page_list list;
	u32 len;
};

/* addr and len as the process gave them: page aligned, or -EINVAL. */
int kh_uqueue_pin(struct kh_dev *dev, u64 addr, u32 len, struct kh_uqueue *uq);
/* Give up umem too, unless the caller has taken it (set it to NULL). */
void kh_uqueue_done(struct kh_dev *dev, struct kh_uqueue *uq);
/* Does [offset, offset + size) lie in a queue of len bytes, aligned? */
bool kh_in_queue(u32 len, u32 offset, u64 size, u32 align);

/* cq.c */
int kh_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		 struct kh_create_cq_arg *arg);
int kh_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int kh_resize_cq(struct ib_cq *ibcq, kh_resize_cqe cqe, struct ib_udata *udata);
int kh_modify_cq(struct ib_cq *ibcq, u16 count, u16 period);

/* srq.c */
int kh_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		  struct ib_udata *udata);
int kh_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		  enum ib_srq_attr_mask mask, struct ib_udata *udata);
int kh_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int kh_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);

/* qp.c */
int kh_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		 struct ib_udata *udata);
int kh_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);

/* qp_attr.c */
int kh_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		 struct ib_udata *udata);
int kh_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		struct ib_qp_init_attr *init);

/* ah.c */
int kh_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		 struct ib_udata *udata);
int kh_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int kh_destroy_ah(struct ib_ah *ibah, u32 flags);
/*
 * attr checked and in the device's form; any context.  The core has resolved
 * the destination MAC and holds a reference on the SGID's attributes.
 */
int kh_av_from_attr(struct kh_dev *dev, const struct rdma_ah_attr *attr,
		    struct kh_av *av);
void kh_av_to_attr(struct kh_dev *dev, const struct kh_av *av, u8 static_rate,
		   struct rdma_ah_attr *attr);

/* mcast.c */
int kh_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int kh_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

/* mr.c */
struct ib_mr *kh_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			     u64 virt_addr, int access, struct ib_udata *udata);
struct ib_mr *kh_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
			       u64 length, u64 virt_addr, int access,
			       struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *kh_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *kh_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_sg);
int kh_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		 unsigned int *offset);
int kh_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

/* mw.c */
int kh_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int kh_dealloc_mw(struct ib_mw *ibmw);

/* mkey.c */
extern const struct uapi_definition kh_mkey_defs[];

/* klm_list.c */
extern const struct uapi_definition kh_klm_list_defs[];
/* Bytes that a KLM list may have; 0 if the device has no use for any. */
u64 kh_max_klm_list(const struct kh_dev *dev);

/* kverbs_queue.c: the memory of kernel consumers' queues */
int kh_kcq_create(struct kh_dev *dev, struct kh_cq *cq, u32 cqe);
int kh_kqp_create(struct kh_dev *dev, struct kh_qp *qp);
void kh_kqp_attach(struct kh_qp *qp);
void kh_kqp_detach(struct kh_qp *qp);
/* The device has reset or destroyed qp: drop its CQEs, indices to 0. */
void kh_kqp_clean(struct kh_qp *qp);
int kh_ksrq_create(struct kh_dev *dev, struct kh_srq *srq);

/* kverbs_post.c */
int kh_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		 const struct ib_send_wr **bad_wr);
int kh_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		 const struct ib_recv_wr **bad_wr);
int kh_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		     const struct ib_recv_wr **bad_wr);

/* kverbs_poll.c */
int kh_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc);
int kh_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
/* The next entry that the device has written, or NULL; cq->lock is held. */
struct kh_cqe *kh_kcq_entry(struct kh_cq *cq, u32 index);

/* res.c */
int kh_fill_res_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr);
int kh_fill_res_cq_entry(struct sk_buff *msg, struct ib_cq *ibcq);
int kh_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp);
int kh_fill_res_srq_entry(struct sk_buff *msg, struct ib_srq *ibsrq);

#endif /* KH_VERBS_H */
