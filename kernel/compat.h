/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Where kernels differ.  Function bodies elsewhere are written for the kernel
 * of today; what an older or newer one needs instead is said here, once.  Kbuild
 * looks for what can be told from the headers, and defines KH_HAVE_*.
 */
#ifndef KH_COMPAT_H
#define KH_COMPAT_H

/* Block iterators were in ib_umem.h before they got a header of their own. */
#ifdef KH_HAVE_RDMA_ITER_H
#include <rdma/iter.h>
#endif

/* vm_flags could be written to before they were given functions. */
#ifndef KH_HAVE_VM_FLAGS_CLEAR
#define vm_flags_clear(vma, flags)	((vma)->vm_flags &= ~(flags))
#define vm_flags_set(vma, flags)	((vma)->vm_flags |= (flags))
#endif

/* create_cq was given the udata alone before it was given all attributes. */
#ifdef KH_HAVE_CREATE_CQ_ATTRS
#include <rdma/uverbs_ioctl.h>

#define kh_create_cq_arg	uverbs_attr_bundle

static inline struct ib_udata *kh_create_cq_udata(struct uverbs_attr_bundle *attrs)
{
	return attrs ? &attrs->driver_udata : NULL;
}
#else
#define kh_create_cq_arg	ib_udata

static inline struct ib_udata *kh_create_cq_udata(struct ib_udata *udata)
{
	return udata;
}
#endif

/*
 * A process's CQs got operations of their own, which do for them what these do:
 * udata tells whose a CQ is.
 */
#ifdef KH_HAVE_USER_CQ
#define kh_resize_cqe	unsigned int
#define KH_USER_CQ_OPS	.create_user_cq = kh_create_cq, .resize_user_cq = kh_resize_cq,
#else
#define kh_resize_cqe	int
#define KH_USER_CQ_OPS	.resize_cq = kh_resize_cq,
#endif

/* There was but one way to name memory that is to be pinned. */
#ifndef KH_HAVE_UMEM_GET_VA
#define ib_umem_get_va	ib_umem_get
#endif

/* Regions came without hints for caches.  Here they still do: we allocate none. */
#ifdef KH_HAVE_DMAH
struct ib_mr *kh_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			     u64 virt_addr, int access, struct ib_udata *udata);

static inline struct ib_mr *kh_reg_hinted_mr(struct ib_pd *ibpd, u64 start,
					     u64 length, u64 virt_addr,
					     int access, struct ib_dmah *dmah,
					     struct ib_udata *udata)
{
	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
	return kh_reg_user_mr(ibpd, start, length, virt_addr, access, udata);
}

#define KH_REG_USER_MR_OP	.reg_user_mr = kh_reg_hinted_mr,
#else
#define KH_REG_USER_MR_OP	.reg_user_mr = kh_reg_user_mr,
#endif

/* The core knew neither FLUSH nor atomic WRITE, so that none could be offered. */
#ifndef KH_HAVE_FLUSH
#define IB_ACCESS_FLUSH_GLOBAL	0
#define IB_DEVICE_FLUSH_GLOBAL	0
#define IB_DEVICE_ATOMIC_WRITE	0
#endif

/* SRQs could not tell anything of their own. */
#ifdef KH_HAVE_FILL_RES_SRQ
#define KH_FILL_RES_SRQ_OP	.fill_res_srq_entry = kh_fill_res_srq_entry,
#else
#define KH_FILL_RES_SRQ_OP
#endif

#endif /* KH_COMPAT_H */
