/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) */
/*
 * What the keyhole kernel driver and its user-space provider say to each other
 * through the uverbs commands.  The queues themselves (WQEs, CQEs, doorbells)
 * are in keyhole_hw.h: the provider talks to the device directly.
 *
 * Every structure is a multiple of 8 bytes and grows at its end only.  The
 * kernel accepts a longer request whose tail is zero, and copies out as much of
 * a response as the provider has room for.
 */
#ifndef KEYHOLE_ABI_H
#define KEYHOLE_ABI_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>

#define KEYHOLE_ABI_VERSION	1

/*
 * mmap: each offset is for one page (4096 bytes).  The doorbell page is mapped
 * shared and writable, the status page shared and read-only (a writable mapping
 * is refused, also later by mprotect), the wake page shared and writable.
 */
struct keyhole_alloc_ucontext_resp {
	__aligned_u64 db_mmap;
	__aligned_u64 status_mmap;
	__aligned_u64 wake_mmap;
	__u32 hw_version;	/* KH_REG_VERSION */
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline;
	__u32 max_send_blocks;	/* of one SQ */
	__u32 max_recv_wr;
	__u32 clock_khz;
	/* Zero from a driver or a device without indirect keys. */
	__u32 max_indirect;		/* entries of an indirect mkey */
	__aligned_u64 caps;		/* KH_CAP_* */
	__aligned_u64 max_klm_list;	/* bytes of a KLM list */
	__u32 max_inline_entries;	/* of a UMR_FILL */
	__u32 max_depth;		/* of indirect mkeys in indirect mkeys */
};

/*
 * Driver part of the extended query device response (ibv_query_rt_values_ex
 * reads the device clock with it).
 */
struct keyhole_query_device_resp {
	__aligned_u64 clock;	/* device clock now, in ticks of clock_khz */
	__u32 clock_khz;
	__u32 reserved;
};

struct keyhole_alloc_pd_resp {
	__u32 pdn;
	__u32 reserved;
};

/*
 * buf_addr is page aligned; buf_len is a multiple of the page size.  The
 * doorbell record lies in the buffer too: one allocation, one pinned range for
 * each queue.  Offsets and sizes are as kh_cmd_create_cq/_srq/_qp define them.
 */
struct keyhole_create_cq_req {
	__aligned_u64 buf_addr;
	__u32 buf_len;
	__u32 ring_offset;
	__u32 db_offset;
	__u8 log_size;
	__u8 flags;		/* KH_CQ_* */
	__u16 reserved;
};

struct keyhole_create_cq_resp {
	__u32 cqn;
	__u32 reserved;
};

/* The consumer index goes on where it was; unread CQEs are in the new ring on return. */
struct keyhole_resize_cq_req {
	__aligned_u64 buf_addr;
	__u32 buf_len;
	__u32 ring_offset;
	__u32 db_offset;
	__u8 log_size;
	__u8 reserved0;
	__u16 reserved1;
};

struct keyhole_create_srq_req {
	__aligned_u64 buf_addr;
	__u32 buf_len;
	__u32 ring_offset;
	__u32 db_offset;
	__u8 log_size;
	__u8 log_stride;
	__u16 reserved;
};

struct keyhole_create_srq_resp {
	__u32 srqn;
	__u32 reserved;
};

/* With IBV_SRQ_MAX_WR.  Nothing is posted until the command returns; the stride stays. */
struct keyhole_modify_srq_req {
	__aligned_u64 buf_addr;
	__u32 buf_len;
	__u32 ring_offset;
	__u32 db_offset;
	__u8 log_size;
	__u8 reserved0;
	__u16 reserved1;
};

struct keyhole_create_qp_req {
	__aligned_u64 buf_addr;
	__u32 buf_len;
	__u32 sq_offset;
	__u32 rq_offset;
	__u32 db_offset;
	__u8 log_sq_blocks;
	__u8 log_rq_size;
	__u8 log_rq_stride;
	__u8 has_sq;
	__u8 has_rq;
	__u8 reserved[3];
};

struct keyhole_create_qp_resp {
	__u32 qpn;
	__u16 db_slot;		/* in the context's doorbell page */
	__u16 reserved;
};

/* The address vector as the kernel resolved it: struct kh_av, goes into UD WQEs. */
struct keyhole_create_ah_resp {
	__u8 av[32];
};

/*
 * Objects of uverbs' ioctl interface.  Both belong to a PD, which they keep busy,
 * and are destroyed with the process.
 *
 * MKEY: an indirect mkey.  Destroying it while a window is bound to it is EBUSY.
 * KLM_LIST: memory of the process that UMR_FILL takes entries from.  The kernel
 * pins it, accounted against RLIMIT_MEMLOCK, for as long as the object lives.
 */
enum keyhole_objects {
	KEYHOLE_OBJECT_MKEY = (1U << UVERBS_ID_NS_SHIFT),
	KEYHOLE_OBJECT_KLM_LIST,
};

enum keyhole_mkey_methods {
	KEYHOLE_METHOD_MKEY_CREATE = (1U << UVERBS_ID_NS_SHIFT),
	KEYHOLE_METHOD_MKEY_QUERY,
	KEYHOLE_METHOD_MKEY_DESTROY,
};

enum keyhole_mkey_create_attrs {
	KEYHOLE_ATTR_MKEY_CREATE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEYHOLE_ATTR_MKEY_CREATE_PD_HANDLE,
	KEYHOLE_ATTR_MKEY_CREATE_MAX_ENTRIES,	/* u32: 1 to max_indirect, else EINVAL */
	KEYHOLE_ATTR_MKEY_CREATE_ACCESS,	/* u32, optional: enum ib_access_flags */
	KEYHOLE_ATTR_MKEY_CREATE_RESP_KEY,	/* u32, out: lkey and rkey */
};

enum keyhole_mkey_query_attrs {
	KEYHOLE_ATTR_MKEY_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEYHOLE_ATTR_MKEY_QUERY_RESP,		/* struct keyhole_mkey_attr, out */
};

enum keyhole_mkey_destroy_attrs {
	KEYHOLE_ATTR_MKEY_DESTROY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

/* As the device has it now. */
struct keyhole_mkey_attr {
	__aligned_u64 start;	/* when valid: address of the first byte */
	__aligned_u64 length;	/* when valid: bytes */
	__u32 key;
	__u32 access;		/* enum ib_access_flags */
	__u32 max_entries;
	__u32 num_entries;	/* when valid */
	__u32 repeat_count;	/* when valid and strided, else 0 */
	__u32 windows;		/* bound to it */
	__u8 valid;		/* filled */
	__u8 depth;		/* when valid */
	__u8 reserved[6];
};

enum keyhole_klm_list_methods {
	KEYHOLE_METHOD_KLM_LIST_CREATE = (1U << UVERBS_ID_NS_SHIFT),
	KEYHOLE_METHOD_KLM_LIST_QUERY,
	KEYHOLE_METHOD_KLM_LIST_DESTROY,
};

enum keyhole_klm_list_create_attrs {
	KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEYHOLE_ATTR_KLM_LIST_CREATE_PD_HANDLE,
	KEYHOLE_ATTR_KLM_LIST_CREATE_ADDR,	/* u64, a multiple of 8 */
	KEYHOLE_ATTR_KLM_LIST_CREATE_LENGTH,	/* u64, bytes: 8 to max_klm_list, multiple of 8 */
	KEYHOLE_ATTR_KLM_LIST_CREATE_RESP_KEY,	/* u32, out: for kh_wqe_umr.list_key */
};

enum keyhole_klm_list_query_attrs {
	KEYHOLE_ATTR_KLM_LIST_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEYHOLE_ATTR_KLM_LIST_QUERY_RESP,	/* struct keyhole_klm_list_attr, out */
};

enum keyhole_klm_list_destroy_attrs {
	KEYHOLE_ATTR_KLM_LIST_DESTROY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

struct keyhole_klm_list_attr {
	__aligned_u64 length;		/* bytes */
	__aligned_u64 max_length;	/* bytes that any list may have */
	__u32 key;
	__u32 reserved;
};

#endif /* KEYHOLE_ABI_H */
