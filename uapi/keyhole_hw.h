/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) */
/*
 * The Keyhole HCA as software sees it: registers, doorbells, admin commands,
 * work queue elements, completions and events.  This one file is the contract
 * between the device (device/), the kernel driver (kernel/) and the provider
 * (userspace/); Documentation/hardware.md is its manual.
 *
 * Rules for all of it
 *  - Everything is little endian unless a comment says "network order".
 *  - Reserved fields are zero when written and ignored when read, except in
 *    admin commands: the device refuses a command whose reserved fields are
 *    not zero, so that they can gain a meaning later.
 *  - Everything called an "index" of a ring is a free running 32 bit counter;
 *    the entry it names is index & (size - 1).  All ring sizes are powers of 2.
 *  - A "phase" tells new entries of a device-written ring from old ones.  Ring
 *    memory starts as zeroes; in its first pass the device writes phase 1, in
 *    the second 0, and so on: entry i is new when its phase bit equals
 *    !((i >> log2_size) & 1).  The phase byte is the last byte of an entry and
 *    is written last, with release order.
 */
#ifndef KEYHOLE_HW_H
#define KEYHOLE_HW_H

#include <linux/types.h>
#ifdef __KERNEL__
#include <linux/build_bug.h>
#else
#include <assert.h>
#endif

#define KH_STATIC_ASSERT(cond) static_assert(cond, #cond)
#define KH_ASSERT_SIZE(type, size) KH_STATIC_ASSERT(sizeof(type) == (size))
#define KH_ASSERT_OFFSET(type, field, off) \
	KH_STATIC_ASSERT(__builtin_offsetof(type, field) == (off))

/* ------------------------------------------------------------------------ */
/* PCI identity and BARs                                                    */
/* ------------------------------------------------------------------------ */

#define KH_PCI_VENDOR		0x1234
#define KH_PCI_DEVICE		0x4b48
#define KH_PCI_CLASS		0x0200		/* network controller, Ethernet */

#define KH_HW_MAGIC		0x4143484b	/* "KHCA" */
#define KH_HW_MAJOR		1		/* differs: do not drive it */
#define KH_HW_MINOR		1		/* grows with additions */

#define KH_PAGE_SIZE		4096
#define KH_PAGE_SHIFT		12

/* BAR 0, 32 bit, trapped: registers, MSI-X table and PBA. */
#define KH_BAR_REGS		0
#define KH_BAR_REGS_SIZE	0x4000
#define KH_MSIX_TABLE_OFFSET	0x2000
#define KH_MSIX_PBA_OFFSET	0x3000
#define KH_MAX_VECTORS		64

/*
 * BAR 2, 64 bit prefetchable, mapped memory: KH_REG_NUM_CONTEXTS doorbell
 * pages, then as many status pages.  Page c of each belongs to context c;
 * context 0 is the kernel's.
 *
 * BAR 4, 64 bit, trapped: KH_REG_NUM_CONTEXTS wake pages.  A 4 byte store to
 * offset 0 of page c wakes context c; all else in it is ignored, reads give 0.
 */
#define KH_BAR_DOORBELL		2
#define KH_BAR_WAKE		4

/* Registers of BAR 0; 32 bit accesses only.  64 bit ones are low word first. */
#define KH_REG_MAGIC		0x000	/* RO KH_HW_MAGIC */
#define KH_REG_VERSION		0x004	/* RO major << 16 | minor */
#define KH_REG_STATUS		0x008	/* RO KH_STATUS_* */
#define KH_REG_CONTROL		0x00c	/* RW KH_CONTROL_* */
#define KH_REG_ADMIN_SQ		0x010	/* RW 64 bit DMA address, 4 KiB aligned */
#define KH_REG_ADMIN_CQ		0x018	/* RW 64 bit DMA address, 4 KiB aligned */
#define KH_REG_ADMIN_DB		0x020	/* RW 64 bit DMA address, 64 B aligned */
#define KH_REG_ADMIN_SIZE	0x028	/* RW log2 of entries, 1..KH_ADMIN_MAX_LOG */
#define KH_REG_NUM_CONTEXTS	0x030	/* RO contexts, that is pages in BAR 4 */
#define KH_REG_NUM_VECTORS	0x034	/* RO MSI-X vectors */
#define KH_REG_CLOCK_LO		0x038	/* RO device clock, ns; reading latches HI */
#define KH_REG_CLOCK_HI		0x03c
#define KH_REG_MAC_LO		0x040	/* RO permanent MAC, bytes 0..3, byte 0 lowest */
#define KH_REG_MAC_HI		0x044	/* RO bytes 4..5 */

/*
 * CONTROL.ENABLE 0 -> 1 takes the ADMIN_* registers and starts the HCA: STATUS
 * shows READY or FATAL when the store has returned.  1 -> 0 is a reset: when
 * the store has returned every object is gone and the device touches no guest
 * memory.  FLR does the same and also clears the registers.
 */
#define KH_CONTROL_ENABLE	(1u << 0)

#define KH_STATUS_READY		(1u << 0)
#define KH_STATUS_FATAL		(1u << 1)	/* KH_FATAL_* in bits 31:16 */
#define KH_STATUS_FATAL_SHIFT	16

enum kh_fatal {
	KH_FATAL_NONE = 0,
	KH_FATAL_ADMIN_ADDR = 1,	/* an ADMIN_* register names no usable memory */
	KH_FATAL_ADMIN_RING = 2,	/* admin producer index beyond the ring */
	KH_FATAL_ADMIN_CQ = 3,		/* admin completion ring overrun */
	KH_FATAL_EQ_MEMORY = 4,		/* memory of an EQ went away */
	KH_FATAL_INTERNAL = 5,
};

/* ------------------------------------------------------------------------ */
/* Doorbells, status pages, doorbell records                                */
/* ------------------------------------------------------------------------ */

/*
 * A doorbell page is KH_DB_SLOTS bytes, each the mark of one slot.  The driver
 * gives each queue that rings (admin, NIC TX, QP) a slot of its context; two
 * queues may share one.  To ring:
 *	1. store the producer index into the doorbell record (release)
 *	2. store KH_DB_MARK into the slot's byte
 *	3. full fence (mfence)
 *	4. load status->sleeping; if not 0, store any value to the wake page
 * The device clears the mark with an exchange, then reads the index.
 */
#define KH_DB_SLOTS		4096
#define KH_DB_MARK		1
#define KH_DB_SLOT_ADMIN	0	/* of context 0 */

/* Written by the device alone; mapped read-only to the context's owner. */
struct kh_status_page {
	__le32	sleeping;	/* not 0: nobody looks at the marks, wake me */
	__u8	rsvd0[60];
	__le64	heartbeat;	/* context 0 only: moves at least once a second */
	__le64	clock;		/* context 0 only: device clock at that beat, ns */
	__u8	rsvd1[KH_PAGE_SIZE - 80];
};

KH_ASSERT_OFFSET(struct kh_status_page, heartbeat, 64);
KH_ASSERT_SIZE(struct kh_status_page, KH_PAGE_SIZE);

/* Doorbell records live in guest memory, 64 byte aligned, inside the queue's pages. */

/* QP.  128 bytes: one line that software writes, one that the device writes. */
struct kh_qp_db {
	__le32	sq_pi;		/* SQ producer index, in 64 byte blocks */
	__le32	rq_pi;		/* RQ producer index, in receive WQEs */
	__u8	rsvd0[56];
	/*
	 * Written by the device: not 0 asks for the slot's mark on receives too
	 * (it is so in the error state, where a posted receive is flushed).
	 * After storing rq_pi: full fence, load rq_notify, and if not 0 ring.
	 */
	__le32	rq_notify;
	__u8	rsvd1[60];
};

KH_ASSERT_OFFSET(struct kh_qp_db, rq_notify, 64);
KH_ASSERT_SIZE(struct kh_qp_db, 128);

struct kh_srq_db {
	__le32	pi;		/* producer index, in receive WQEs */
	__u8	rsvd0[60];
	__le32	ci;		/* written by the device: WQEs taken so far */
	__u8	rsvd1[60];
};

KH_ASSERT_OFFSET(struct kh_srq_db, ci, 64);
KH_ASSERT_SIZE(struct kh_srq_db, 128);

/*
 * CQ and EQ.  To arm: sn++, store arm = sn << KH_ARM_SN_SHIFT | type, full
 * fence, look at the ring once more.  The device fires once for each sn, when
 * it has added a fitting entry and sees an arm whose sn is not the last one it
 * fired for.  sn 0 with type 0 is "never armed".  No mark is needed: the device
 * writes the entry, fences, and reads arm.  An EQ's ci is stored before arm: the
 * device then reads it, and does not fire for entries that have been taken.
 */
struct kh_cq_db {
	__le32	ci;		/* consumer index */
	__le32	arm;
	__u8	rsvd[56];
};

KH_ASSERT_SIZE(struct kh_cq_db, 64);
#define KH_ARM_TYPE_MASK	3
#define KH_ARM_SOLICITED	1	/* next solicited or unsuccessful completion */
#define KH_ARM_NEXT		2	/* next entry */
#define KH_ARM_SN_SHIFT		2	/* sn has 30 bits and wraps */

struct kh_admin_db {
	__le32	pi;		/* commands posted */
	__le32	ci;		/* completions consumed */
	__le32	arm;		/* as for an EQ, type KH_ARM_NEXT; fires vector 0 */
	__u8	rsvd[52];
};

KH_ASSERT_SIZE(struct kh_admin_db, 64);

struct kh_nic_db {
	__le32	tx_pi;		/* TX descriptors posted */
	__le32	rx_pi;		/* RX buffers posted */
	__le32	rx_ci;		/* RX completions consumed */
	__le32	arm;		/* as for an EQ: any TX or RX completion */
	__u8	rsvd0[48];
	__le32	tx_ci;		/* written by the device: TX descriptors done */
	__u8	rsvd1[60];
};

KH_ASSERT_OFFSET(struct kh_nic_db, tx_ci, 64);
KH_ASSERT_SIZE(struct kh_nic_db, 128);

/* ------------------------------------------------------------------------ */
/* Guest memory as commands describe it                                     */
/* ------------------------------------------------------------------------ */

/*
 * A list of npages pages of 1 << page_shift bytes (12..30).
 *  levels 0: addr is the first byte of npages contiguous pages
 *  levels 1: addr points to npages page addresses (npages <= 512)
 *  levels 2: addr points to up to 512 addresses of lists of 512 page addresses
 *  levels 3: one level more
 * Each list starts 4 KiB aligned, and so does each page (page_shift aligned).
 * The device reads the lists while it executes the command and never again: the
 * driver may free them when the command has completed, but the pages stay
 * pinned until the object is destroyed.
 */
struct kh_pages {
	__le64	addr;
	__le32	npages;
	__u8	page_shift;
	__u8	levels;
	__le16	rsvd;
};

KH_ASSERT_SIZE(struct kh_pages, 16);
#define KH_PAGES_PER_LIST	512
#define KH_PAGES_MAX_LEVELS	3
#define KH_PAGE_SHIFT_MIN	12
#define KH_PAGE_SHIFT_MAX	30

/* ------------------------------------------------------------------------ */
/* Access rights, one set of bits everywhere (values of enum ibv_access_flags) */
/* ------------------------------------------------------------------------ */

#define KH_ACCESS_LOCAL_WRITE	(1u << 0)
#define KH_ACCESS_REMOTE_WRITE	(1u << 1)
#define KH_ACCESS_REMOTE_READ	(1u << 2)
#define KH_ACCESS_REMOTE_ATOMIC	(1u << 3)
#define KH_ACCESS_MW_BIND	(1u << 4)
#define KH_ACCESS_ZERO_BASED	(1u << 5)
#define KH_ACCESS_REMOTE	(KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_READ | \
				 KH_ACCESS_REMOTE_ATOMIC)
#define KH_ACCESS_MASK		0x3fu
/*
 * Direct mkeys take one more where KH_CAP_FLUSH is set.  Nobody grants the other:
 * a FLUSH that asks for persistence is a remote access error.
 */
#define KH_ACCESS_FLUSH_GLOBAL		(1u << 8)
#define KH_ACCESS_FLUSH_PERSISTENT	(1u << 9)

/* A key is index << 8 | variant.  All 32 bits are compared at each use. */
#define KH_KEY_VARIANT_BITS	8
#define KH_KEY_INDEX(key)	((key) >> KH_KEY_VARIANT_BITS)
#define KH_KEY_VARIANT(key)	((key) & 0xffu)

/* ------------------------------------------------------------------------ */
/* Address vector                                                           */
/* ------------------------------------------------------------------------ */

/* A RoCE v2 path.  Source MAC, IP and VLAN come from GID table entry sgid_index. */
struct kh_av {
	__u8	dgid[16];
	__u8	dmac[6];
	__u8	sgid_index;
	__u8	hop_limit;
	__u8	traffic_class;
	__u8	sl;
	__le16	udp_sport;	/* 0: the device derives one from the flow */
	__le32	flow_label;	/* 20 bits */
};

KH_ASSERT_SIZE(struct kh_av, 32);

/* ------------------------------------------------------------------------ */
/* Admin queue                                                              */
/* ------------------------------------------------------------------------ */

/* 32 commands of 128 bytes in one 4 KiB page; one less may be outstanding */
#define KH_ADMIN_MAX_LOG	5

enum kh_admin_op {
	KH_ADM_NOP		= 0x00,
	KH_ADM_QUERY_DEVICE	= 0x01,	/* out: struct kh_device_attr */
	KH_ADM_QUERY_STATS	= 0x02,	/* out: __le64[KH_NUM_STATS] */
	KH_ADM_SET_PORT		= 0x03,
	KH_ADM_SET_GID		= 0x04,
	KH_ADM_CREATE_EQ	= 0x08,	/* result: eqn */
	KH_ADM_DESTROY_EQ	= 0x09,
	KH_ADM_CREATE_CONTEXT	= 0x0a,	/* handle: context number, chosen by the driver */
	KH_ADM_DESTROY_CONTEXT	= 0x0b,	/* EBUSY while it has objects */
	KH_ADM_CREATE_PD	= 0x0c,	/* result: pdn */
	KH_ADM_DESTROY_PD	= 0x0d,
	KH_ADM_CREATE_MKEY	= 0x10,	/* result: key */
	KH_ADM_DESTROY_MKEY	= 0x11,	/* EBUSY while a window is bound to it */
	KH_ADM_MODIFY_MKEY	= 0x12,	/* reregister; EBUSY likewise; result: new key */
	KH_ADM_QUERY_MKEY	= 0x13,	/* out: struct kh_mkey_attr */
	KH_ADM_CREATE_CQ	= 0x18,	/* result: cqn */
	KH_ADM_DESTROY_CQ	= 0x19,
	KH_ADM_RESIZE_CQ	= 0x1a,	/* unread CQEs are moved to the new ring */
	KH_ADM_MODIFY_CQ	= 0x1b,
	KH_ADM_CREATE_SRQ	= 0x20,	/* result: srqn */
	KH_ADM_DESTROY_SRQ	= 0x21,
	KH_ADM_MODIFY_SRQ	= 0x22,
	KH_ADM_QUERY_SRQ	= 0x23,	/* result[0]: limit, 0 when not armed */
	KH_ADM_RESIZE_SRQ	= 0x24,	/* posted WQEs are moved to the new ring */
	KH_ADM_CREATE_QP	= 0x28,	/* result: qpn */
	KH_ADM_DESTROY_QP	= 0x29,
	KH_ADM_MODIFY_QP	= 0x2a,
	KH_ADM_QUERY_QP		= 0x2b,	/* out: struct kh_qp_attr */
	KH_ADM_ATTACH_MCAST	= 0x30,
	KH_ADM_DETACH_MCAST	= 0x31,
	KH_ADM_CREATE_NIC	= 0x38,
	KH_ADM_DESTROY_NIC	= 0x39,
};

enum kh_admin_status {
	KH_ST_OK	= 0,
	KH_ST_INVAL	= 1,	/* EINVAL: a field is out of range, see syndrome */
	KH_ST_NOMEM	= 2,	/* ENOMEM: a limit of the HCA is reached */
	KH_ST_BUSY	= 3,	/* EBUSY: other objects depend on this one */
	KH_ST_NOENT	= 4,	/* ENOENT: no object of that number */
	KH_ST_FAULT	= 5,	/* EFAULT: a DMA address is not mapped to the device */
	KH_ST_NOSUPP	= 6,	/* EOPNOTSUPP: unknown opcode or feature */
	KH_ST_EXIST	= 7,	/* EEXIST */
	KH_ST_PERM	= 8,	/* EPERM */
};

/*
 * Common head of each command.  The body begins at byte 16.  handle names the
 * object that the command is about (0 for creation, but see CREATE_CONTEXT).
 */
struct kh_admin_hdr {
	__u8	opcode;
	__u8	rsvd0;
	__le16	tag;		/* comes back in the completion */
	__le32	handle;
	__le64	out_addr;	/* where output goes, 64 byte aligned; else 0 */
};

KH_ASSERT_SIZE(struct kh_admin_hdr, 16);

struct kh_admin_cqe {
	__le16	tag;
	__u8	status;		/* enum kh_admin_status */
	__u8	rsvd0;
	__le32	syndrome;	/* byte offset in the command of the field refused */
	__le32	result[4];
	__u8	rsvd1[39];
	__u8	phase;
};

KH_ASSERT_SIZE(struct kh_admin_cqe, 64);

/* SET_PORT.  A whole new state; at reset everything is 0 and mac is the permanent one. */
struct kh_cmd_set_port {
	__u8	flags;		/* KH_PORT_* */
	__u8	rsvd0;
	__u8	mac[6];
	__le16	mtu;		/* largest frame without Ethernet header, 68..9216 */
	__u8	rsvd1[102];
};

#define KH_PORT_UP		(1u << 0)	/* the netdev is up: frames flow */
#define KH_PORT_RDMA		(1u << 1)	/* UDP 4791 is the HCA's, not the netdev's */
#define KH_PORT_PROMISC		(1u << 2)	/* the netdev sees all frames of the switch */

struct kh_cmd_set_gid {
	__u8	gid[16];
	__u8	mac[6];
	__le16	vlan;		/* KH_VLAN_NONE or 0..4094 */
	__le16	index;		/* below kh_device_attr.gid_table_len */
	__u8	valid;		/* 0 removes the entry */
	__u8	rsvd[85];
};

#define KH_VLAN_NONE		0xffff

struct kh_cmd_create_eq {
	struct kh_pages	pages;	/* levels 0 */
	__le32	ring_offset;	/* bytes into pages, 64 byte aligned */
	__le32	db_offset;	/* of a struct kh_cq_db */
	__u8	log_size;	/* 4..16 */
	__u8	type;		/* enum kh_eq_type */
	__le16	vector;		/* MSI-X vector */
	__u8	rsvd[84];
};

enum kh_eq_type {
	KH_EQ_ASYNC = 0,	/* one for each HCA */
	KH_EQ_COMPLETION = 1,
};

struct kh_cmd_empty {
	__u8	rsvd[112];
};

enum kh_mkey_kind {
	KH_MKEY_DIRECT = 0,	/* pages given here: valid at once */
	KH_MKEY_PHYS = 1,	/* all guest-physical memory: kernel consumers only */
	KH_MKEY_FREE = 2,	/* direct, filled by REG_MR later (max_entries pages) */
	KH_MKEY_MW1 = 3,	/* window, type 1 */
	KH_MKEY_MW2 = 4,	/* window, type 2B */
	KH_MKEY_INDIRECT = 5,	/* filled by UMR_FILL later (max_entries entries) */
	KH_MKEY_KLM_LIST = 6,	/* memory that UMR_FILL reads entries from; no use else */
};

struct kh_cmd_create_mkey {
	__u8	kind;		/* enum kh_mkey_kind */
	__u8	rsvd0[3];
	__le32	pdn;
	/*
	 * KH_ACCESS_*; 0 for windows and KLM lists.  Of an INDIRECT key only
	 * MW_BIND outlives the next UMR_FILL, which brings the other rights;
	 * ZERO_BASED is refused.
	 */
	__le32	access;
	__le32	max_entries;	/* FREE and INDIRECT: 1 or more */
	__le64	start;		/* address of the first byte as keys use it; 0 if ZERO_BASED */
	__le64	length;		/* bytes */
	struct kh_pages	pages;
	__le64	offset;		/* of the first byte within the pages */
	__u8	rsvd1[56];
};

/* MODIFY_MKEY: of a DIRECT key.  Fields outside mask are zero. */
struct kh_cmd_modify_mkey {
	__u8	mask;		/* KH_MKEY_MOD_* */
	__u8	rsvd0[3];
	__le32	pdn;
	__le32	access;
	__le32	rsvd1;
	__le64	start;
	__le64	length;
	struct kh_pages	pages;
	__le64	offset;
	__u8	rsvd2[56];
};

#define KH_MKEY_MOD_TRANSLATION	(1u << 0)	/* start, length, pages, offset */
#define KH_MKEY_MOD_PD		(1u << 1)
#define KH_MKEY_MOD_ACCESS	(1u << 2)

struct kh_mkey_attr {
	__u8	kind;
	__u8	valid;		/* 0: free or unbound */
	__u8	rsvd0[2];
	__le32	key;		/* current, all 32 bits */
	__le32	pdn;
	__le32	access;
	__le64	start;
	__le64	length;
	__le32	max_entries;
	__le32	windows;	/* bound to this key */
	__le32	bound_to;	/* of a window: the key it is bound to */
	__le32	bound_qpn;	/* of a bound type 2 window */
	__le32	num_entries;	/* of a valid INDIRECT key; empty ones are not counted */
	__le32	repeat_count;	/* of a strided one; else 0 */
	__u8	depth;		/* of a valid INDIRECT key: 1 when all entries are direct */
	__u8	rsvd1[7];
};

KH_ASSERT_SIZE(struct kh_mkey_attr, 64);

struct kh_cmd_create_cq {
	struct kh_pages	pages;
	__le32	ring_offset;	/* 64 byte aligned */
	__le32	db_offset;	/* of a struct kh_cq_db, 64 byte aligned */
	__le32	eqn;		/* completion EQ */
	__le16	ctx;		/* owner */
	__u8	log_size;	/* 1..22 */
	__u8	flags;		/* KH_CQ_* */
	__u8	rsvd[80];
};

#define KH_CQ_TIMESTAMP		(1u << 0)	/* CQEs carry the device clock */
#define KH_CQ_IGNORE_OVERRUN	(1u << 1)	/* the newest overwrites the oldest */

/* RESIZE_CQ: the same fields; eqn, ctx and flags are zero. */

struct kh_cmd_modify_cq {
	__le16	count;		/* an event for each count CQEs, or ... */
	__le16	period;		/* ... period microseconds after the first; 0, 0: at once */
	__u8	rsvd[108];
};

struct kh_cmd_create_srq {
	struct kh_pages	pages;
	__le32	ring_offset;	/* multiple of the stride */
	__le32	db_offset;	/* of a struct kh_srq_db */
	__le32	pdn;
	__le16	ctx;
	__u8	log_size;	/* WQEs, 0..15 */
	__u8	log_stride;	/* bytes of a receive WQE, 5..10 */
	__u8	rsvd[80];
};

/*
 * RESIZE_SRQ (KH_CAP_SRQ_RESIZE): the same fields; pdn and ctx are zero, the
 * stride is the old one.  The device copies the WQEs that are posted and not
 * taken to the same indices of the new ring, and writes pi and ci to the new
 * record; software posts nothing meanwhile.  INVAL (log_size) if they do not fit.
 */

struct kh_cmd_modify_srq {
	__le32	limit;		/* SRQ_LIMIT event when fewer are left; 0 disarms */
	__u8	rsvd[108];
};

enum kh_qp_type {
	KH_QPT_RC = 0,
	KH_QPT_UC = 1,
	KH_QPT_UD = 2,
	KH_QPT_GSI = 3,		/* QP 1: a UD QP, one for each HCA, context 0 only */
};

struct kh_cmd_create_qp {
	struct kh_pages	pages;
	__le32	sq_offset;	/* 64 byte aligned */
	__le32	rq_offset;	/* multiple of the stride; unused with an SRQ */
	__le32	db_offset;	/* of a struct kh_qp_db */
	__le32	pdn;
	__le32	send_cqn;
	__le32	recv_cqn;
	__le32	srqn;		/* KH_NO_SRQ: own RQ */
	__le16	ctx;
	__le16	db_slot;
	__u8	type;		/* enum kh_qp_type */
	__u8	log_sq_blocks;	/* 64 byte blocks, 0..20 */
	__u8	log_rq_size;	/* receive WQEs, 0..15 */
	__u8	log_rq_stride;	/* 5..10 */
	__u8	has_sq;		/* 0 or 1 */
	__u8	has_rq;		/* 0 or 1; 0 with an SRQ */
	__u8	max_send_sge;	/* 0..KH_MAX_SGE; more in a WQE is an error */
	__u8	max_recv_sge;
	__u8	rsvd[56];
};

#define KH_NO_SRQ		0xffffffffu

enum kh_qp_state {		/* values of enum ibv_qp_state */
	KH_QPS_RESET = 0,
	KH_QPS_INIT = 1,
	KH_QPS_RTR = 2,
	KH_QPS_RTS = 3,
	KH_QPS_SQD = 4,
	KH_QPS_SQE = 5,
	KH_QPS_ERR = 6,
};

/* Which fields of kh_qp_attr count.  Values of enum ibv_qp_attr_mask. */
#define KH_QP_STATE			(1u << 0)
#define KH_QP_CUR_STATE			(1u << 1)
#define KH_QP_EN_SQD_ASYNC_NOTIFY	(1u << 2)
#define KH_QP_ACCESS_FLAGS		(1u << 3)
#define KH_QP_PKEY_INDEX		(1u << 4)
#define KH_QP_PORT			(1u << 5)
#define KH_QP_QKEY			(1u << 6)
#define KH_QP_AV			(1u << 7)
#define KH_QP_PATH_MTU			(1u << 8)
#define KH_QP_TIMEOUT			(1u << 9)
#define KH_QP_RETRY_CNT			(1u << 10)
#define KH_QP_RNR_RETRY			(1u << 11)
#define KH_QP_RQ_PSN			(1u << 12)
#define KH_QP_MAX_QP_RD_ATOMIC		(1u << 13)
#define KH_QP_MIN_RNR_TIMER		(1u << 15)
#define KH_QP_SQ_PSN			(1u << 16)
#define KH_QP_MAX_DEST_RD_ATOMIC	(1u << 17)
#define KH_QP_DEST_QPN			(1u << 20)

/* Body of MODIFY_QP and first part of QUERY_QP's output. */
struct kh_qp_attr {
	__le32	mask;		/* KH_QP_*; QUERY_QP: all fields are valid */
	__u8	state;
	__u8	cur_state;
	__u8	path_mtu;	/* 1..5: 256, 512, 1024, 2048, 4096 */
	__u8	access;		/* KH_ACCESS_REMOTE_* */
	__le32	qkey;
	__le32	rq_psn;		/* 24 bits */
	__le32	sq_psn;		/* 24 bits */
	__le32	dest_qpn;	/* 24 bits */
	__u8	timeout;	/* 0..31: 4.096 us << timeout; 0 is for ever */
	__u8	retry_cnt;	/* 0..7 */
	__u8	rnr_retry;	/* 0..7, 7 is for ever */
	__u8	min_rnr_timer;	/* 0..31 */
	__u8	max_rd_atomic;	/* as requester, 0..KH_MAX_RD_ATOMIC */
	__u8	max_dest_rd_atomic;
	__u8	en_sqd_async_notify;
	__u8	sq_draining;	/* QUERY_QP only */
	__u8	port;		/* 1 */
	__u8	rsvd0;
	__le16	pkey_index;	/* 0 */
	struct kh_av	av;
	__u8	rsvd1[44];
};

KH_ASSERT_OFFSET(struct kh_qp_attr, av, 36);
KH_ASSERT_SIZE(struct kh_qp_attr, 112);

struct kh_cmd_mcast {
	__u8	mgid[16];
	__u8	rsvd[96];
};

/* One TX and one RX queue.  All rings lie in one contiguous piece of memory. */
struct kh_cmd_create_nic {
	struct kh_pages	pages;	/* levels 0 */
	__le32	tx_offset;	/* struct kh_nic_desc ring */
	__le32	rx_offset;	/* struct kh_nic_desc ring */
	__le32	rxc_offset;	/* struct kh_nic_cqe ring, size of the RX ring */
	__le32	db_offset;	/* struct kh_nic_db */
	__le16	vector;
	__le16	db_slot;	/* of context 0; rings for TX */
	__u8	log_tx_size;	/* 4..12 */
	__u8	log_rx_size;	/* 4..12 */
	__u8	rsvd[74];
};

struct kh_admin_cmd {
	struct kh_admin_hdr hdr;
	union {
		struct kh_cmd_empty		empty;
		struct kh_cmd_set_port		set_port;
		struct kh_cmd_set_gid		set_gid;
		struct kh_cmd_create_eq		create_eq;
		struct kh_cmd_create_mkey	create_mkey;
		struct kh_cmd_modify_mkey	modify_mkey;
		struct kh_cmd_create_cq		create_cq;	/* and RESIZE_CQ */
		struct kh_cmd_modify_cq		modify_cq;
		struct kh_cmd_create_srq	create_srq;	/* and RESIZE_SRQ */
		struct kh_cmd_modify_srq	modify_srq;
		struct kh_cmd_create_qp		create_qp;
		struct kh_qp_attr		modify_qp;
		struct kh_cmd_mcast		mcast;
		struct kh_cmd_create_nic	create_nic;
	};
};

KH_ASSERT_SIZE(struct kh_admin_cmd, 128);
KH_ASSERT_SIZE(struct kh_cmd_empty, 112);
KH_ASSERT_SIZE(struct kh_cmd_set_port, 112);
KH_ASSERT_SIZE(struct kh_cmd_set_gid, 112);
KH_ASSERT_SIZE(struct kh_cmd_create_eq, 112);
KH_ASSERT_SIZE(struct kh_cmd_create_mkey, 112);
KH_ASSERT_SIZE(struct kh_cmd_modify_mkey, 112);
KH_ASSERT_SIZE(struct kh_cmd_create_cq, 112);
KH_ASSERT_SIZE(struct kh_cmd_modify_cq, 112);
KH_ASSERT_SIZE(struct kh_cmd_create_srq, 112);
KH_ASSERT_SIZE(struct kh_cmd_modify_srq, 112);
KH_ASSERT_SIZE(struct kh_cmd_create_qp, 112);
KH_ASSERT_SIZE(struct kh_cmd_mcast, 112);
KH_ASSERT_SIZE(struct kh_cmd_create_nic, 112);

/* Output of QUERY_DEVICE. */
struct kh_device_attr {
	__le64	fw_version;	/* major << 32 | minor << 16 | patch */
	__le64	caps;		/* KH_CAP_* */
	__le64	node_guid;	/* network order bytes */
	__le64	max_mr_size;
	__le64	page_size_cap;	/* bit n: 1 << n byte pages */
	__le32	max_qp;
	__le32	max_qp_wr;	/* largest SQ in WQEs of one block, largest RQ */
	__le32	max_sge;	/* in a send or receive WQE */
	__le32	max_inline;	/* bytes */
	__le32	max_cq;
	__le32	max_cqe;
	__le32	max_mkey;	/* regions, windows and indirect keys together */
	__le32	max_pd;
	__le32	max_srq;
	__le32	max_srq_wr;
	__le32	max_rd_atomic;	/* as requester and as responder, for each QP */
	__le32	max_mcast_grp;
	__le32	max_mcast_qp;	/* QPs in a group */
	__le32	gid_table_len;
	__le32	max_msg_size;	/* bytes */
	__le32	local_dma_lkey;	/* the kernel's reserved key */
	__le32	clock_khz;
	__le32	max_contexts;
	__le32	max_eq;
	__le32	max_fast_reg_pages;	/* of a KH_MKEY_FREE */
	__le32	max_indirect;	/* entries of an indirect key; 0: none */
	__le32	max_inline_entries;	/* of a UMR_FILL, of either kind */
	__le32	max_depth;	/* of indirect keys in indirect keys */
	__u8	rsvd[124];
};

KH_ASSERT_OFFSET(struct kh_device_attr, max_qp, 40);
KH_ASSERT_SIZE(struct kh_device_attr, 256);
#define KH_CAP_MW1		(1ull << 0)
#define KH_CAP_MW2B		(1ull << 1)
#define KH_CAP_REG_MR		(1ull << 2)
#define KH_CAP_INDIRECT		(1ull << 3)
#define KH_CAP_MASKED_ATOMIC	(1ull << 4)
#define KH_CAP_WIRE		(1ull << 5)	/* RoCE v2 packets to the outside */
#define KH_CAP_SRQ_RESIZE	(1ull << 6)
#define KH_CAP_FLUSH		(1ull << 7)	/* KH_OP_FLUSH, of type global */
#define KH_CAP_ATOMIC_WRITE	(1ull << 8)

/* Order of QUERY_STATS' counters, all since reset. */
enum kh_stat {
	KH_STAT_TX_OPS,			/* requests sent, one for each message */
	KH_STAT_TX_BYTES,
	KH_STAT_TX_PACKETS,		/* as the path MTU counts them */
	KH_STAT_RX_OPS,
	KH_STAT_RX_BYTES,
	KH_STAT_RX_PACKETS,
	KH_STAT_CQES,
	KH_STAT_ERROR_CQES,		/* flushes not counted */
	KH_STAT_FLUSHED_CQES,
	KH_STAT_LOCAL_ERRORS,		/* length, protection, QP operation */
	KH_STAT_REMOTE_ACCESS_ERRORS,
	KH_STAT_REMOTE_INVALID_REQUESTS,
	KH_STAT_REMOTE_OP_ERRORS,
	KH_STAT_MW_BIND_ERRORS,
	KH_STAT_RNR_NAKS_SENT,
	KH_STAT_RNR_NAKS_RECEIVED,
	KH_STAT_RNR_RETRY_EXCEEDED,
	KH_STAT_RETRANSMITS,
	KH_STAT_RETRY_EXCEEDED,
	KH_STAT_OUT_OF_SEQUENCE,
	KH_STAT_DUPLICATES,
	KH_STAT_DROPPED,		/* no QP, wrong state, Q_Key, no receive (UD) */
	KH_STAT_MW_BINDS,
	KH_STAT_INVALIDATES,
	KH_STAT_DOORBELLS,		/* marks taken */
	KH_STAT_WAKES,			/* wake page stores */
	KH_STAT_EVENTS,			/* EQ entries */
	KH_STAT_INTERRUPTS,
	KH_STAT_ADMIN_COMMANDS,
	KH_STAT_ADMIN_ERRORS,
	KH_STAT_NIC_TX_FRAMES,
	KH_STAT_NIC_TX_BYTES,
	KH_STAT_NIC_RX_FRAMES,
	KH_STAT_NIC_RX_BYTES,
	KH_STAT_NIC_RX_DROPPED,		/* no buffer, or too long for it */
	KH_STAT_UMR_FILLS,		/* that succeeded */
	KH_STAT_UMR_ERRORS,		/* UMR_FILL and UMR_INV refused */
	KH_NUM_STATS
};

/* ------------------------------------------------------------------------ */
/* Send queue                                                               */
/* ------------------------------------------------------------------------ */

/*
 * The SQ is a ring of 64 byte blocks.  A WQE is 1..KH_MAX_WQE_BLOCKS blocks and
 * may wrap at the end of the ring.  It is
 *	ctrl (16 bytes) | a segment by opcode | data
 * RC and UC SEND, WRITE, READ: kh_wqe_rdma, then data
 * UD SEND:	kh_wqe_ud, then data (from byte 64)
 * atomics:	kh_wqe_rdma, kh_wqe_atomic, one SGE
 * BIND_MW:	kh_wqe_bind
 * REG_MR:	kh_wqe_reg
 * masked atomics: kh_wqe_rdma, kh_wqe_masked_atomic, one SGE (from byte 64)
 * LOCAL_INV, UMR_INV: nothing; the key is in ctrl.imm
 * UMR_FILL:	kh_wqe_umr, then with KH_WQE_INLINE its entries (from byte 64)
 * FLUSH:	kh_wqe_rdma (inline_len is the length to flush), kh_wqe_flush
 * ATOMIC_WRITE: kh_wqe_rdma, 8 bytes inline
 * Data is num_sge scatter/gather entries, or with KH_WQE_INLINE inline_len
 * bytes and num_sge 0.
 */
#define KH_WQE_BLOCK		64
#define KH_WQE_BLOCK_SHIFT	6
#define KH_MAX_WQE_BLOCKS	32
#define KH_MAX_SGE		32
#define KH_MAX_INLINE		1024
#define KH_MAX_RD_ATOMIC	16
#define KH_MAX_MSG_SIZE		0x80000000u	/* 2 GiB */

enum kh_wqe_opcode {
	KH_OP_SEND		= 0,
	KH_OP_SEND_IMM		= 1,
	KH_OP_SEND_INV		= 2,
	KH_OP_WRITE		= 3,
	KH_OP_WRITE_IMM		= 4,
	KH_OP_READ		= 5,
	KH_OP_CMP_SWAP		= 6,
	KH_OP_FETCH_ADD		= 7,
	KH_OP_LOCAL_INV		= 8,
	KH_OP_BIND_MW		= 9,
	KH_OP_REG_MR		= 10,
	KH_OP_NOP		= 11,
	KH_OP_UMR_FILL		= 12,	/* RC; gives an INDIRECT key its contents */
	KH_OP_UMR_INV		= 13,	/* RC; takes them away */
	KH_OP_MASKED_CMP_SWAP	= 14,	/* RC, as KH_OP_MASKED_FETCH_ADD */
	KH_OP_MASKED_FETCH_ADD	= 15,
	KH_OP_FLUSH		= 16,	/* RC */
	KH_OP_ATOMIC_WRITE	= 17,	/* RC; 8 bytes, at once, to an 8 byte aligned address */
};

/* ctrl.flags: values of enum ibv_send_flags */
#define KH_WQE_FENCE		(1u << 0)
#define KH_WQE_SIGNALED		(1u << 1)
#define KH_WQE_SOLICITED	(1u << 2)
#define KH_WQE_INLINE		(1u << 3)

struct kh_wqe_ctrl {
	__u8	opcode;
	__u8	flags;
	__u8	nblocks;
	__u8	num_sge;
	__le32	imm;		/* immediate, in network order; or the key to invalidate */
	__le64	wr_id;		/* comes back in the CQE */
};

KH_ASSERT_SIZE(struct kh_wqe_ctrl, 16);

struct kh_wqe_rdma {
	__le64	remote_addr;	/* zero for SEND */
	__le32	rkey;		/* zero for SEND */
	__le32	inline_len;
};

KH_ASSERT_SIZE(struct kh_wqe_rdma, 16);

struct kh_wqe_ud {
	struct kh_av	av;
	__le32	dest_qpn;
	__le32	qkey;		/* top bit set: the QP's own */
	__le32	inline_len;
	__le32	rsvd;
};

KH_ASSERT_SIZE(struct kh_wqe_ud, 48);

struct kh_wqe_atomic {
	__le64	swap_add;
	__le64	compare;
};

KH_ASSERT_SIZE(struct kh_wqe_atomic, 16);

/*
 * Done when all earlier requests have been executed.  Needs KH_ACCESS_FLUSH_* of
 * the type; level 0 checks the range, level 1 is the whole region and ignores
 * address and length.  A responder resource, like READ, as ATOMIC_WRITE is.
 */
struct kh_wqe_flush {
	__le32	type;		/* KH_FLUSH_*, values of enum ibv_placement_type */
	__le32	level;		/* values of enum ibv_selectivity_level */
	__u8	rsvd[8];
};

KH_ASSERT_SIZE(struct kh_wqe_flush, 16);
#define KH_FLUSH_GLOBAL		(1u << 0)
#define KH_FLUSH_PERSISTENT	(1u << 1)
#define KH_FLUSH_RANGE		0
#define KH_FLUSH_MR		1

/*
 * Masked atomics (KH_CAP_MASKED_ATOMIC) of 8 bytes.
 * CMP_SWAP: if ((old ^ compare) & compare_mask) == 0, then
 *	new = (old & ~swap_mask) | (swap_add & swap_mask).
 * FETCH_ADD: new is old + swap_add, added in separate fields: no carry leaves a
 * bit that is set in swap_mask (a set bit is the last of its field; 0 is one
 * field of 64 bits).  compare and compare_mask are zero.
 * The answer is old.  Bits are those of the little endian number.
 */
struct kh_wqe_masked_atomic {
	__le64	swap_add;
	__le64	compare;
	__le64	swap_mask;
	__le64	compare_mask;
};

KH_ASSERT_SIZE(struct kh_wqe_masked_atomic, 32);

/*
 * UMR_FILL.  Makes the INDIRECT key valid, or gives it other contents if it is
 * so already; the key does not change.  The bytes that it names are those of its
 * entries, one after the other, called start onwards.  repeat_count 0: the
 * entries are struct kh_klm.  Else they are struct kh_stride, and round r of
 * repeat_count takes length bytes at addr + r * stride from each entry in turn.
 * An entry of length 0 is checked in nothing and dropped.
 *
 * The entries are in the WQE with KH_WQE_INLINE (num_entries at most
 * kh_device_attr.max_inline_entries, list_key and list_offset zero), else in the
 * KLM_LIST key list_key from its byte list_offset (a multiple of 8) on.
 *
 * It fails with KH_WC_LOC_QP_OP_ERR and KH_SYN_UMR_* or KH_SYN_UMR_ENTRY, and the
 * key keeps what it had.
 */
struct kh_wqe_umr {
	__le32	key;		/* of kind INDIRECT */
	__le32	access;		/* KH_ACCESS_*; MW_BIND only if the key was created so */
	__le64	start;		/* address of the first byte; 0 with ZERO_BASED */
	__le32	num_entries;	/* 1 to the key's max_entries */
	__le32	repeat_count;	/* 0: KLMs */
	__le64	list_offset;	/* bytes */
	__le32	list_key;
	__u8	rsvd[12];
};

KH_ASSERT_SIZE(struct kh_wqe_umr, 48);

/* lkey: DIRECT, or INDIRECT and valid; of the same PD; never of a window. */
struct kh_klm {
	__le64	addr;
	__le32	length;		/* bytes */
	__le32	lkey;
};

KH_ASSERT_SIZE(struct kh_klm, 16);

struct kh_stride {
	__le64	addr;		/* of round 0 */
	__le32	length;		/* bytes of each round */
	__le32	lkey;
	__le64	stride;		/* from the start of a round to that of the next, bytes */
};

KH_ASSERT_SIZE(struct kh_stride, 24);
#define KH_MAX_INLINE_ENTRIES	64
#define KH_MAX_INDIRECT		65536	/* entries */
#define KH_MAX_DEPTH		4

struct kh_wqe_bind {
	__le32	mw_key;		/* the window's present key */
	__le32	new_key;	/* same index; type 1: variant + 1; type 2: the consumer's */
	__le32	mr_key;		/* lkey of the region; 0 if length is 0 */
	__le32	access;		/* KH_ACCESS_* */
	__le64	addr;
	__le64	length;		/* type 1: 0 unbinds */
	__u8	rsvd[16];
};

KH_ASSERT_SIZE(struct kh_wqe_bind, 48);

struct kh_wqe_reg {
	__le32	key;		/* new key; its index names a FREE mkey */
	__le32	access;
	__le64	start;
	__le64	length;
	struct kh_pages	pages;
	__le64	offset;
};

KH_ASSERT_SIZE(struct kh_wqe_reg, 48);

/* Layout of struct ibv_sge. */
struct kh_sge {
	__le64	addr;
	__le32	length;		/* 0 is zero bytes */
	__le32	lkey;
};

KH_ASSERT_SIZE(struct kh_sge, 16);

/* Receive WQE of an RQ or SRQ: this, then num_sge entries. */
struct kh_rwqe {
	__le64	wr_id;
	__le32	num_sge;
	__le32	rsvd;
};

KH_ASSERT_SIZE(struct kh_rwqe, 16);

/* ------------------------------------------------------------------------ */
/* Completion queue                                                         */
/* ------------------------------------------------------------------------ */

enum kh_cqe_opcode {
	/* of a send queue: enum kh_wqe_opcode */
	KH_CQE_RECV		= 0x80,	/* a SEND arrived */
	KH_CQE_RECV_WRITE_IMM	= 0x81,	/* a WRITE with immediate arrived */
	/* never written by the device: software puts it on CQEs of a destroyed QP */
	KH_CQE_SKIP		= 0xff,
};

enum kh_cqe_status {		/* values of enum ibv_wc_status */
	KH_WC_SUCCESS		= 0,
	KH_WC_LOC_LEN_ERR	= 1,
	KH_WC_LOC_QP_OP_ERR	= 2,
	KH_WC_LOC_PROT_ERR	= 4,
	KH_WC_WR_FLUSH_ERR	= 5,
	KH_WC_MW_BIND_ERR	= 6,
	KH_WC_BAD_RESP_ERR	= 7,
	KH_WC_LOC_ACCESS_ERR	= 8,
	KH_WC_REM_INV_REQ_ERR	= 9,
	KH_WC_REM_ACCESS_ERR	= 10,
	KH_WC_REM_OP_ERR	= 11,
	KH_WC_RETRY_EXC_ERR	= 12,
	KH_WC_RNR_RETRY_EXC_ERR	= 13,
	KH_WC_REM_ABORT_ERR	= 16,
	KH_WC_FATAL_ERR		= 19,
	KH_WC_GENERAL_ERR	= 21,
};

#define KH_CQE_IMM		(1u << 0)	/* imm is an immediate, network order */
#define KH_CQE_INV		(1u << 1)	/* imm is the key that was invalidated */
#define KH_CQE_GRH		(1u << 2)	/* 40 bytes of GRH precede the data (UD) */
#define KH_CQE_SOLICITED	(1u << 3)
#define KH_CQE_IPV4		(1u << 4)	/* the GRH area holds an IPv4 header */

struct kh_cqe {
	__le64	wr_id;
	__le32	qpn;
	__le32	byte_len;	/* received, or read; with the 40 of the GRH for UD */
	__le32	imm;
	__le32	src_qpn;	/* UD */
	__le64	timestamp;	/* ns, if the CQ was created with TIMESTAMP */
	__le32	sq_index;	/* SQ: block index just after this WQE */
	__le32	syndrome;	/* enum kh_syndrome, of an error */
	__u8	smac[6];	/* UD */
	__le16	vlan;		/* UD: KH_VLAN_NONE or the tag */
	__le16	pkey_index;	/* UD */
	__u8	sl;		/* UD */
	__u8	rsvd[9];
	__u8	opcode;
	__u8	status;
	__u8	flags;
	__u8	phase;		/* bit 0 */
};

KH_ASSERT_OFFSET(struct kh_cqe, sq_index, 32);
KH_ASSERT_OFFSET(struct kh_cqe, opcode, 60);
KH_ASSERT_SIZE(struct kh_cqe, 64);
#define KH_CQE_SHIFT		6

/* Why a completion has an error, or a bind was refused. */
#define KH_SYN_CODE(syndrome)	((syndrome) & 0xffffu)	/* enum kh_syndrome */
#define KH_SYN_ENTRY(syndrome)	((syndrome) >> 16)	/* of KH_SYN_*_ENTRY: which, from 0 */
enum kh_syndrome {
	KH_SYN_NONE = 0,
	/* keys: 0x0100 | reason for a local key, 0x0200 | reason for a remote one */
	KH_SYN_LOCAL_KEY = 0x0100,
	KH_SYN_REMOTE_KEY = 0x0200,
	KH_SYN_BIND = 0x0300,		/* the region's key in a bind */
	/*
	 * The same, when what fails is an entry of an indirect key: reason says
	 * what is wrong with the entry, KH_SYN_ENTRY() which entry of the key that
	 * the request named, as it was given to UMR_FILL.
	 */
	KH_SYN_LOCAL_ENTRY = 0x0900,
	KH_SYN_REMOTE_ENTRY = 0x0a00,
	KH_SYN_UMR_ENTRY = 0x0b00,	/* at UMR_FILL */
	KH_SYN_KEY_NONE = 0x01,		/* no such index */
	KH_SYN_KEY_STALE = 0x02,	/* variant differs */
	KH_SYN_KEY_FREE = 0x03,		/* not valid, not bound */
	KH_SYN_KEY_PD = 0x04,		/* other PD */
	KH_SYN_KEY_RANGE = 0x05,	/* outside, or wraps */
	KH_SYN_KEY_RIGHTS = 0x06,	/* access not granted */
	KH_SYN_KEY_QP = 0x07,		/* type 2 window of another QP */
	KH_SYN_KEY_KIND = 0x08,		/* a window as local key, kernel key from a process ... */
	KH_SYN_KEY_MEMORY = 0x09,	/* the guest took the memory away */
	KH_SYN_KEY_DEPTH = 0x0a,	/* nested too deep */
	KH_SYN_KEY_ENTRY = 0x0b,	/* an atomic's cell lies in two entries */
	/* work requests */
	KH_SYN_WQE_OPCODE = 0x0400,	/* unknown, or not for this QP type */
	KH_SYN_WQE_SIZE = 0x0401,	/* nblocks, num_sge or inline_len */
	KH_SYN_WQE_FLAGS = 0x0402,
	KH_SYN_WQE_LENGTH = 0x0403,	/* message too long */
	KH_SYN_WQE_AV = 0x0404,		/* bad address vector or GID index */
	KH_SYN_WQE_RING = 0x0405,	/* producer index beyond the ring */
	KH_SYN_WQE_MEMORY = 0x0406,	/* the queue's memory went away */
	KH_SYN_RECV_LENGTH = 0x0407,	/* receive buffer too short */
	KH_SYN_ATOMIC_ALIGN = 0x0408,
	KH_SYN_NO_RD_ATOMIC = 0x0409,	/* READ or atomic with max_rd_atomic 0 */
	/* binds */
	KH_SYN_BIND_KIND = 0x0500,	/* mw_key names no window, or of the other type */
	KH_SYN_BIND_STALE = 0x0501,	/* mw_key is not the present key */
	KH_SYN_BIND_NEW_KEY = 0x0502,	/* new_key names another index */
	KH_SYN_BIND_BOUND = 0x0503,	/* type 2, bound already */
	KH_SYN_BIND_LENGTH = 0x0504,	/* type 2, zero length */
	KH_SYN_BIND_PD = 0x0505,
	KH_SYN_BIND_ACCESS = 0x0506,	/* write or atomic without local write; bad bits */
	KH_SYN_BIND_REGION = 0x0507,	/* no MW_BIND, zero based, or a window */
	KH_SYN_BIND_RANGE = 0x0508,
	/* invalidates */
	KH_SYN_INV_KEY = 0x0600,	/* no such key */
	KH_SYN_INV_KIND = 0x0601,	/* type 1 window or user region */
	KH_SYN_INV_PD = 0x0602,
	KH_SYN_INV_QP = 0x0603,
	KH_SYN_INV_BUSY = 0x0604,	/* windows are bound to it */
	/* UMR_FILL, and UMR_INV where it fits */
	KH_SYN_UMR_KEY = 0x0800,	/* no such key */
	KH_SYN_UMR_KIND = 0x0801,	/* not an indirect key */
	KH_SYN_UMR_PD = 0x0802,
	KH_SYN_UMR_BUSY = 0x0803,	/* windows are bound to it */
	KH_SYN_UMR_COUNT = 0x0804,	/* num_entries: 0, or more than the key or the WQE holds */
	KH_SYN_UMR_ACCESS = 0x0805,	/* bad bits; remote write or atomic without local write */
	KH_SYN_UMR_RANGE = 0x0806,	/* start + length wraps; start not 0 with ZERO_BASED */
	KH_SYN_UMR_LIST = 0x0807,	/* list_key: no list of this PD, or too short, or gone */
	/* transport */
	KH_SYN_RETRY = 0x0700,		/* no answer */
	KH_SYN_RNR = 0x0701,
	KH_SYN_NAK_ACCESS = 0x0702,
	KH_SYN_NAK_INVALID = 0x0703,
	KH_SYN_NAK_OP = 0x0704,
	KH_SYN_FLUSH = 0x0705,
	KH_SYN_CQ_OVERRUN = 0x0706,
	KH_SYN_INV_REMOTE = 0x0707,	/* the peer's invalidate was refused */
};

/* ------------------------------------------------------------------------ */
/* Event queues                                                             */
/* ------------------------------------------------------------------------ */

enum kh_event {
	KH_EV_COMPLETION	= 0x00,	/* id: cqn */
	KH_EV_CQ_ERR		= 0x01,	/* id: cqn */
	KH_EV_QP_FATAL		= 0x10,	/* id: qpn */
	KH_EV_QP_REQ_ERR	= 0x11,	/* invalid request at the responder */
	KH_EV_QP_ACCESS_ERR	= 0x12,	/* access violation at the responder */
	KH_EV_COMM_EST		= 0x13,	/* first packet in RTR */
	KH_EV_SQ_DRAINED	= 0x14,
	KH_EV_QP_LAST_WQE	= 0x15,	/* QP with an SRQ took its last receive */
	KH_EV_SRQ_LIMIT		= 0x20,	/* id: srqn */
	KH_EV_SRQ_ERR		= 0x21,
	KH_EV_PORT_UP		= 0x30,
	KH_EV_PORT_DOWN		= 0x31,
	KH_EV_FATAL		= 0x40,	/* the HCA; KH_REG_STATUS says why */
};

struct kh_eqe {
	__u8	type;		/* enum kh_event */
	__u8	rsvd0[3];
	__le32	id;
	__le32	data;		/* enum kh_syndrome where there is one */
	__u8	rsvd1[3];
	__u8	phase;
};

KH_ASSERT_SIZE(struct kh_eqe, 16);

/* ------------------------------------------------------------------------ */
/* NIC rings                                                                */
/* ------------------------------------------------------------------------ */

/* A frame (TX; without FCS) or a buffer for one (RX).  One descriptor, one frame. */
struct kh_nic_desc {
	__le64	addr;
	__le32	len;
	__le32	rsvd;
};

KH_ASSERT_SIZE(struct kh_nic_desc, 16);

/* RX completion i belongs to RX descriptor i. */
struct kh_nic_cqe {
	__le32	len;		/* bytes of the frame */
	__u8	flags;		/* KH_NIC_CSUM_OK */
	__u8	rsvd[2];
	__u8	phase;
};

KH_ASSERT_SIZE(struct kh_nic_cqe, 8);
#define KH_NIC_CSUM_OK		(1u << 0)	/* came from memory of this fabric: intact */

#endif /* KEYHOLE_HW_H */
