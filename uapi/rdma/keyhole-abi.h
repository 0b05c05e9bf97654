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
	__u32 reserved;
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

#endif /* KEYHOLE_ABI_H */
