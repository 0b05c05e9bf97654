/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * One function for each admin command.  Values are in CPU order, except where
 * a type says otherwise.  All sleep, and all return 0 or an errno:
 *	-EIO	the device is lost (create, modify, query)
 *	others	as enum kh_admin_status says
 * kh_cmd_destroy_*() on a lost device wait until it can touch no memory, and
 * return 0: what they destroy is gone with it.  Their other errors are -EBUSY
 * (something depends on the object) and what a broken device may answer.
 */
#ifndef KH_CMD_H
#define KH_CMD_H

#include <linux/types.h>

#include "../uapi/keyhole_hw.h"

struct kh_dev;

/* struct kh_device_attr in CPU order. */
struct kh_attr {
	u64 fw_version;
	u64 caps;
	__be64 node_guid;
	u64 max_mr_size;
	u64 page_size_cap;
	u32 max_qp;
	u32 max_qp_wr;
	u32 max_sge;
	u32 max_inline;
	u32 max_cq;
	u32 max_cqe;
	u32 max_mkey;
	u32 max_pd;
	u32 max_srq;
	u32 max_srq_wr;
	u32 max_rd_atomic;
	u32 max_mcast_grp;
	u32 max_mcast_qp;
	u32 gid_table_len;
	u32 max_msg_size;
	u32 local_dma_lkey;
	u32 clock_khz;
	u32 max_contexts;
	u32 max_eq;
	u32 max_fast_reg_pages;
	u32 max_indirect;
	u32 max_inline_entries;
	u32 max_depth;
};

int kh_cmd_nop(struct kh_dev *dev);
int kh_cmd_query_device(struct kh_dev *dev, struct kh_attr *attr);
int kh_cmd_query_stats(struct kh_dev *dev, u64 stats[KH_NUM_STATS]);

struct kh_set_port_params {
	const u8 *mac;
	u16 mtu;
	u8 flags;		/* KH_PORT_* */
};

int kh_cmd_set_port(struct kh_dev *dev, const struct kh_set_port_params *params);

/* index below attr.gid_table_len; vlan KH_VLAN_NONE or 0..4094 */
int kh_cmd_set_gid(struct kh_dev *dev, u16 index, const u8 gid[16],
		   const u8 mac[6], u16 vlan);
int kh_cmd_clear_gid(struct kh_dev *dev, u16 index);

struct kh_create_eq_params {
	const struct kh_pages *pages;
	u32 ring_offset;
	u32 db_offset;
	u16 vector;
	u8 log_size;
	u8 type;		/* enum kh_eq_type */
};

int kh_cmd_create_eq(struct kh_dev *dev,
		     const struct kh_create_eq_params *params, u32 *eqn);
int kh_cmd_destroy_eq(struct kh_dev *dev, u32 eqn);

int kh_cmd_create_context(struct kh_dev *dev, u16 ctx);
int kh_cmd_destroy_context(struct kh_dev *dev, u16 ctx);

int kh_cmd_create_pd(struct kh_dev *dev, u32 *pdn);
int kh_cmd_destroy_pd(struct kh_dev *dev, u32 pdn);

struct kh_create_mkey_params {
	u8 kind;		/* enum kh_mkey_kind */
	u32 pdn;
	u32 access;		/* KH_ACCESS_* */
	u32 max_entries;	/* FREE and INDIRECT */
	u64 start;
	u64 length;
	const struct kh_pages *pages;	/* DIRECT and KLM_LIST; else NULL */
	u64 offset;
};

int kh_cmd_create_mkey(struct kh_dev *dev,
		       const struct kh_create_mkey_params *params, u32 *key);
int kh_cmd_destroy_mkey(struct kh_dev *dev, u32 key);

struct kh_modify_mkey_params {
	u8 mask;		/* KH_MKEY_MOD_*: fields outside it are ignored */
	u32 pdn;
	u32 access;
	u64 start;
	u64 length;
	const struct kh_pages *pages;
	u64 offset;
};

int kh_cmd_modify_mkey(struct kh_dev *dev, u32 key,
		       const struct kh_modify_mkey_params *params, u32 *new_key);
/* attr as the device wrote it, little endian */
int kh_cmd_query_mkey(struct kh_dev *dev, u32 key, struct kh_mkey_attr *attr);

struct kh_create_cq_params {
	const struct kh_pages *pages;
	u32 ring_offset;
	u32 db_offset;
	u32 eqn;		/* kh_ceq_eqn() */
	u16 ctx;
	u8 log_size;
	u8 flags;		/* KH_CQ_* */
};

int kh_cmd_create_cq(struct kh_dev *dev,
		     const struct kh_create_cq_params *params, u32 *cqn);
int kh_cmd_destroy_cq(struct kh_dev *dev, u32 cqn);
/* eqn, ctx and flags of params are not used */
int kh_cmd_resize_cq(struct kh_dev *dev, u32 cqn,
		     const struct kh_create_cq_params *params);
int kh_cmd_modify_cq(struct kh_dev *dev, u32 cqn, u16 count, u16 period);

struct kh_create_srq_params {
	const struct kh_pages *pages;
	u32 ring_offset;
	u32 db_offset;
	u32 pdn;
	u16 ctx;
	u8 log_size;
	u8 log_stride;
};

int kh_cmd_create_srq(struct kh_dev *dev,
		      const struct kh_create_srq_params *params, u32 *srqn);
int kh_cmd_destroy_srq(struct kh_dev *dev, u32 srqn);
/* pdn and ctx of params are not used; the stride is the old one */
int kh_cmd_resize_srq(struct kh_dev *dev, u32 srqn,
		      const struct kh_create_srq_params *params);
int kh_cmd_modify_srq(struct kh_dev *dev, u32 srqn, u32 limit);
int kh_cmd_query_srq(struct kh_dev *dev, u32 srqn, u32 *limit);

struct kh_create_qp_params {
	const struct kh_pages *pages;
	u32 sq_offset;
	u32 rq_offset;
	u32 db_offset;
	u32 pdn;
	u32 send_cqn;
	u32 recv_cqn;
	u32 srqn;		/* KH_NO_SRQ: own RQ */
	u16 ctx;
	u16 db_slot;
	u8 type;		/* enum kh_qp_type */
	u8 log_sq_blocks;
	u8 log_rq_size;
	u8 log_rq_stride;
	u8 has_sq;
	u8 has_rq;
	u8 max_send_sge;
	u8 max_recv_sge;
};

int kh_cmd_create_qp(struct kh_dev *dev,
		     const struct kh_create_qp_params *params, u32 *qpn);
int kh_cmd_destroy_qp(struct kh_dev *dev, u32 qpn);
/* attr is in the device's format, as is the answer of a query */
int kh_cmd_modify_qp(struct kh_dev *dev, u32 qpn, const struct kh_qp_attr *attr);
int kh_cmd_query_qp(struct kh_dev *dev, u32 qpn, struct kh_qp_attr *attr);

int kh_cmd_attach_mcast(struct kh_dev *dev, u32 qpn, const u8 mgid[16]);
int kh_cmd_detach_mcast(struct kh_dev *dev, u32 qpn, const u8 mgid[16]);

struct kh_create_nic_params {
	const struct kh_pages *pages;
	u32 tx_offset;
	u32 rx_offset;
	u32 rxc_offset;
	u32 db_offset;
	u16 vector;
	u16 db_slot;
	u8 log_tx_size;
	u8 log_rx_size;
};

int kh_cmd_create_nic(struct kh_dev *dev, const struct kh_create_nic_params *params);
int kh_cmd_destroy_nic(struct kh_dev *dev);

#endif /* KH_CMD_H */
