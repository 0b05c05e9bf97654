// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The admin commands: parameters into their layout, the answer out of it.
 *
 * Errors of creation and change are the caller's to report: what a process did
 * wrong is told to it by errno, and to the curious by a debug message that
 * names the field which the device refused.  Errors of destruction are another
 * matter, since the core cannot undo one: see kh_destroy().
 */
#include "keyhole.h"

static int kh_exec(struct kh_dev *dev, struct kh_admin_cmd *cmd, u8 opcode,
		   u32 handle, void *out, size_t out_len, u32 *result)
{
	struct kh_admin_cqe cqe;
	int err;

	cmd->hdr.opcode = opcode;
	cmd->hdr.handle = cpu_to_le32(handle);
	memset(&cqe, 0, sizeof(cqe));
	err = kh_admin_exec(&dev->admin, cmd, out, out_len, &cqe);
	if (err)
		dev_dbg(&dev->pdev->dev,
			"command %#x, handle %#x: %d, field at byte %u\n", opcode,
			handle, err, le32_to_cpu(cqe.syndrome));
	else if (result)
		*result = le32_to_cpu(cqe.result[0]);
	return err;
}

/* A command without a body. */
static int kh_exec_empty(struct kh_dev *dev, u8 opcode, u32 handle, void *out,
			 size_t out_len, u32 *result)
{
	struct kh_admin_cmd cmd = {};

	return kh_exec(dev, &cmd, opcode, handle, out, out_len, result);
}

/*
 * What a destroy function may return: 0, when the device does not know the
 * object any more and touches none of its memory, or -EBUSY.  A device that
 * answers anything else does not agree with us on what exists, and only its
 * reset makes the memory safe to give back.
 */
static int kh_destroy_result(struct kh_dev *dev, u8 opcode, u32 handle, int err)
{
	switch (err) {
	case 0:
	case -EBUSY:
		return err;
	case -ENOENT:
		dev_warn(&dev->pdev->dev,
			 "command %#x: the device knows no object %#x\n", opcode,
			 handle);
		return 0;
	default:
		if (kh_dev_up(dev)) {
			dev_err(&dev->pdev->dev,
				"command %#x, handle %#x: destruction refused (%d)\n",
				opcode, handle, err);
			kh_dev_fatal(dev, "an object cannot be destroyed");
		}
		wait_for_completion(&dev->dead);
		return 0;
	}
}

static int kh_destroy(struct kh_dev *dev, u8 opcode, u32 handle)
{
	int err = kh_exec_empty(dev, opcode, handle, NULL, 0, NULL);

	return kh_destroy_result(dev, opcode, handle, err);
}

int kh_cmd_nop(struct kh_dev *dev)
{
	return kh_exec_empty(dev, KH_ADM_NOP, 0, NULL, 0, NULL);
}

int kh_cmd_query_device(struct kh_dev *dev, struct kh_attr *attr)
{
	struct kh_device_attr hw;
	int err;

	err = kh_exec_empty(dev, KH_ADM_QUERY_DEVICE, 0, &hw, sizeof(hw), NULL);
	if (err)
		return err;

	attr->fw_version = le64_to_cpu(hw.fw_version);
	attr->caps = le64_to_cpu(hw.caps);
	attr->node_guid = cpu_to_be64(be64_to_cpu((__force __be64)hw.node_guid));
	attr->max_mr_size = le64_to_cpu(hw.max_mr_size);
	attr->page_size_cap = le64_to_cpu(hw.page_size_cap);
	attr->max_qp = le32_to_cpu(hw.max_qp);
	attr->max_qp_wr = le32_to_cpu(hw.max_qp_wr);
	attr->max_sge = le32_to_cpu(hw.max_sge);
	attr->max_inline = le32_to_cpu(hw.max_inline);
	attr->max_cq = le32_to_cpu(hw.max_cq);
	attr->max_cqe = le32_to_cpu(hw.max_cqe);
	attr->max_mkey = le32_to_cpu(hw.max_mkey);
	attr->max_pd = le32_to_cpu(hw.max_pd);
	attr->max_srq = le32_to_cpu(hw.max_srq);
	attr->max_srq_wr = le32_to_cpu(hw.max_srq_wr);
	attr->max_rd_atomic = le32_to_cpu(hw.max_rd_atomic);
	attr->max_mcast_grp = le32_to_cpu(hw.max_mcast_grp);
	attr->max_mcast_qp = le32_to_cpu(hw.max_mcast_qp);
	attr->gid_table_len = le32_to_cpu(hw.gid_table_len);
	attr->max_msg_size = le32_to_cpu(hw.max_msg_size);
	attr->local_dma_lkey = le32_to_cpu(hw.local_dma_lkey);
	attr->clock_khz = le32_to_cpu(hw.clock_khz);
	attr->max_contexts = le32_to_cpu(hw.max_contexts);
	attr->max_eq = le32_to_cpu(hw.max_eq);
	attr->max_fast_reg_pages = le32_to_cpu(hw.max_fast_reg_pages);
	attr->max_indirect = le32_to_cpu(hw.max_indirect);
	attr->max_inline_entries = le32_to_cpu(hw.max_inline_entries);
	attr->max_depth = le32_to_cpu(hw.max_depth);
	return 0;
}

int kh_cmd_query_stats(struct kh_dev *dev, u64 stats[KH_NUM_STATS])
{
	__le64 hw[KH_NUM_STATS];
	int err, i;

	BUILD_BUG_ON(sizeof(hw) > KH_ADMIN_OUT_SIZE);
	err = kh_exec_empty(dev, KH_ADM_QUERY_STATS, 0, hw, sizeof(hw), NULL);
	if (err)
		return err;
	for (i = 0; i < KH_NUM_STATS; i++)
		stats[i] = le64_to_cpu(hw[i]);
	return 0;
}

int kh_cmd_set_port(struct kh_dev *dev, const struct kh_set_port_params *params)
{
	struct kh_admin_cmd cmd = {};

	cmd.set_port.flags = params->flags;
	memcpy(cmd.set_port.mac, params->mac, sizeof(cmd.set_port.mac));
	cmd.set_port.mtu = cpu_to_le16(params->mtu);
	return kh_exec(dev, &cmd, KH_ADM_SET_PORT, 0, NULL, 0, NULL);
}

int kh_cmd_set_gid(struct kh_dev *dev, u16 index, const u8 gid[16],
		   const u8 mac[6], u16 vlan)
{
	struct kh_admin_cmd cmd = {};

	memcpy(cmd.set_gid.gid, gid, sizeof(cmd.set_gid.gid));
	memcpy(cmd.set_gid.mac, mac, sizeof(cmd.set_gid.mac));
	cmd.set_gid.vlan = cpu_to_le16(vlan);
	cmd.set_gid.index = cpu_to_le16(index);
	cmd.set_gid.valid = 1;
	return kh_exec(dev, &cmd, KH_ADM_SET_GID, 0, NULL, 0, NULL);
}

int kh_cmd_clear_gid(struct kh_dev *dev, u16 index)
{
	struct kh_admin_cmd cmd = {};
	int err;

	cmd.set_gid.vlan = cpu_to_le16(KH_VLAN_NONE);
	cmd.set_gid.index = cpu_to_le16(index);
	err = kh_exec(dev, &cmd, KH_ADM_SET_GID, 0, NULL, 0, NULL);
	return kh_destroy_result(dev, KH_ADM_SET_GID, index, err);
}

int kh_cmd_create_eq(struct kh_dev *dev,
		     const struct kh_create_eq_params *params, u32 *eqn)
{
	struct kh_admin_cmd cmd = {};

	cmd.create_eq.pages = *params->pages;
	cmd.create_eq.ring_offset = cpu_to_le32(params->ring_offset);
	cmd.create_eq.db_offset = cpu_to_le32(params->db_offset);
	cmd.create_eq.log_size = params->log_size;
	cmd.create_eq.type = params->type;
	cmd.create_eq.vector = cpu_to_le16(params->vector);
	return kh_exec(dev, &cmd, KH_ADM_CREATE_EQ, 0, NULL, 0, eqn);
}

int kh_cmd_destroy_eq(struct kh_dev *dev, u32 eqn)
{
	return kh_destroy(dev, KH_ADM_DESTROY_EQ, eqn);
}

int kh_cmd_create_context(struct kh_dev *dev, u16 ctx)
{
	return kh_exec_empty(dev, KH_ADM_CREATE_CONTEXT, ctx, NULL, 0, NULL);
}

int kh_cmd_destroy_context(struct kh_dev *dev, u16 ctx)
{
	return kh_destroy(dev, KH_ADM_DESTROY_CONTEXT, ctx);
}

int kh_cmd_create_pd(struct kh_dev *dev, u32 *pdn)
{
	return kh_exec_empty(dev, KH_ADM_CREATE_PD, 0, NULL, 0, pdn);
}

int kh_cmd_destroy_pd(struct kh_dev *dev, u32 pdn)
{
	return kh_destroy(dev, KH_ADM_DESTROY_PD, pdn);
}

int kh_cmd_create_mkey(struct kh_dev *dev,
		       const struct kh_create_mkey_params *params, u32 *key)
{
	struct kh_admin_cmd cmd = {};

	cmd.create_mkey.kind = params->kind;
	cmd.create_mkey.pdn = cpu_to_le32(params->pdn);
	cmd.create_mkey.access = cpu_to_le32(params->access);
	cmd.create_mkey.max_entries = cpu_to_le32(params->max_entries);
	cmd.create_mkey.start = cpu_to_le64(params->start);
	cmd.create_mkey.length = cpu_to_le64(params->length);
	if (params->pages)
		cmd.create_mkey.pages = *params->pages;
	cmd.create_mkey.offset = cpu_to_le64(params->offset);
	return kh_exec(dev, &cmd, KH_ADM_CREATE_MKEY, 0, NULL, 0, key);
}

int kh_cmd_destroy_mkey(struct kh_dev *dev, u32 key)
{
	return kh_destroy(dev, KH_ADM_DESTROY_MKEY, key);
}

int kh_cmd_modify_mkey(struct kh_dev *dev, u32 key,
		       const struct kh_modify_mkey_params *params, u32 *new_key)
{
	struct kh_admin_cmd cmd = {};

	cmd.modify_mkey.mask = params->mask;
	if (params->mask & KH_MKEY_MOD_PD)
		cmd.modify_mkey.pdn = cpu_to_le32(params->pdn);
	if (params->mask & KH_MKEY_MOD_ACCESS)
		cmd.modify_mkey.access = cpu_to_le32(params->access);
	if (params->mask & KH_MKEY_MOD_TRANSLATION) {
		cmd.modify_mkey.start = cpu_to_le64(params->start);
		cmd.modify_mkey.length = cpu_to_le64(params->length);
		cmd.modify_mkey.pages = *params->pages;
		cmd.modify_mkey.offset = cpu_to_le64(params->offset);
	}
	return kh_exec(dev, &cmd, KH_ADM_MODIFY_MKEY, key, NULL, 0, new_key);
}

int kh_cmd_query_mkey(struct kh_dev *dev, u32 key, struct kh_mkey_attr *attr)
{
	return kh_exec_empty(dev, KH_ADM_QUERY_MKEY, key, attr, sizeof(*attr), NULL);
}

int kh_cmd_create_cq(struct kh_dev *dev,
		     const struct kh_create_cq_params *params, u32 *cqn)
{
	struct kh_admin_cmd cmd = {};

	cmd.create_cq.pages = *params->pages;
	cmd.create_cq.ring_offset = cpu_to_le32(params->ring_offset);
	cmd.create_cq.db_offset = cpu_to_le32(params->db_offset);
	cmd.create_cq.eqn = cpu_to_le32(params->eqn);
	cmd.create_cq.ctx = cpu_to_le16(params->ctx);
	cmd.create_cq.log_size = params->log_size;
	cmd.create_cq.flags = params->flags;
	return kh_exec(dev, &cmd, KH_ADM_CREATE_CQ, 0, NULL, 0, cqn);
}

int kh_cmd_destroy_cq(struct kh_dev *dev, u32 cqn)
{
	return kh_destroy(dev, KH_ADM_DESTROY_CQ, cqn);
}

int kh_cmd_resize_cq(struct kh_dev *dev, u32 cqn,
		     const struct kh_create_cq_params *params)
{
	struct kh_admin_cmd cmd = {};

	cmd.create_cq.pages = *params->pages;
	cmd.create_cq.ring_offset = cpu_to_le32(params->ring_offset);
	cmd.create_cq.db_offset = cpu_to_le32(params->db_offset);
	cmd.create_cq.log_size = params->log_size;
	return kh_exec(dev, &cmd, KH_ADM_RESIZE_CQ, cqn, NULL, 0, NULL);
}

int kh_cmd_modify_cq(struct kh_dev *dev, u32 cqn, u16 count, u16 period)
{
	struct kh_admin_cmd cmd = {};

	cmd.modify_cq.count = cpu_to_le16(count);
	cmd.modify_cq.period = cpu_to_le16(period);
	return kh_exec(dev, &cmd, KH_ADM_MODIFY_CQ, cqn, NULL, 0, NULL);
}

int kh_cmd_create_srq(struct kh_dev *dev,
		      const struct kh_create_srq_params *params, u32 *srqn)
{
	struct kh_admin_cmd cmd = {};

	cmd.create_srq.pages = *params->pages;
	cmd.create_srq.ring_offset = cpu_to_le32(params->ring_offset);
	cmd.create_srq.db_offset = cpu_to_le32(params->db_offset);
	cmd.create_srq.pdn = cpu_to_le32(params->pdn);
	cmd.create_srq.ctx = cpu_to_le16(params->ctx);
	cmd.create_srq.log_size = params->log_size;
	cmd.create_srq.log_stride = params->log_stride;
	return kh_exec(dev, &cmd, KH_ADM_CREATE_SRQ, 0, NULL, 0, srqn);
}

int kh_cmd_destroy_srq(struct kh_dev *dev, u32 srqn)
{
	return kh_destroy(dev, KH_ADM_DESTROY_SRQ, srqn);
}

int kh_cmd_resize_srq(struct kh_dev *dev, u32 srqn,
		      const struct kh_create_srq_params *params)
{
	struct kh_admin_cmd cmd = {};

	cmd.create_srq.pages = *params->pages;
	cmd.create_srq.ring_offset = cpu_to_le32(params->ring_offset);
	cmd.create_srq.db_offset = cpu_to_le32(params->db_offset);
	cmd.create_srq.log_size = params->log_size;
	cmd.create_srq.log_stride = params->log_stride;
	return kh_exec(dev, &cmd, KH_ADM_RESIZE_SRQ, srqn, NULL, 0, NULL);
}

int kh_cmd_modify_srq(struct kh_dev *dev, u32 srqn, u32 limit)
{
	struct kh_admin_cmd cmd = {};

	cmd.modify_srq.limit = cpu_to_le32(limit);
	return kh_exec(dev, &cmd, KH_ADM_MODIFY_SRQ, srqn, NULL, 0, NULL);
}

int kh_cmd_query_srq(struct kh_dev *dev, u32 srqn, u32 *limit)
{
	return kh_exec_empty(dev, KH_ADM_QUERY_SRQ, srqn, NULL, 0, limit);
}

int kh_cmd_create_qp(struct kh_dev *dev,
		     const struct kh_create_qp_params *params, u32 *qpn)
{
	struct kh_admin_cmd cmd = {};

	cmd.create_qp.pages = *params->pages;
	cmd.create_qp.sq_offset = cpu_to_le32(params->sq_offset);
	cmd.create_qp.rq_offset = cpu_to_le32(params->rq_offset);
	cmd.create_qp.db_offset = cpu_to_le32(params->db_offset);
	cmd.create_qp.pdn = cpu_to_le32(params->pdn);
	cmd.create_qp.send_cqn = cpu_to_le32(params->send_cqn);
	cmd.create_qp.recv_cqn = cpu_to_le32(params->recv_cqn);
	cmd.create_qp.srqn = cpu_to_le32(params->srqn);
	cmd.create_qp.ctx = cpu_to_le16(params->ctx);
	cmd.create_qp.db_slot = cpu_to_le16(params->db_slot);
	cmd.create_qp.type = params->type;
	cmd.create_qp.log_sq_blocks = params->log_sq_blocks;
	cmd.create_qp.log_rq_size = params->log_rq_size;
	cmd.create_qp.log_rq_stride = params->log_rq_stride;
	cmd.create_qp.has_sq = params->has_sq;
	cmd.create_qp.has_rq = params->has_rq;
	cmd.create_qp.max_send_sge = params->max_send_sge;
	cmd.create_qp.max_recv_sge = params->max_recv_sge;
	return kh_exec(dev, &cmd, KH_ADM_CREATE_QP, 0, NULL, 0, qpn);
}

int kh_cmd_destroy_qp(struct kh_dev *dev, u32 qpn)
{
	return kh_destroy(dev, KH_ADM_DESTROY_QP, qpn);
}

int kh_cmd_modify_qp(struct kh_dev *dev, u32 qpn, const struct kh_qp_attr *attr)
{
	struct kh_admin_cmd cmd = {};

	cmd.modify_qp = *attr;
	return kh_exec(dev, &cmd, KH_ADM_MODIFY_QP, qpn, NULL, 0, NULL);
}

int kh_cmd_query_qp(struct kh_dev *dev, u32 qpn, struct kh_qp_attr *attr)
{
	return kh_exec_empty(dev, KH_ADM_QUERY_QP, qpn, attr, sizeof(*attr), NULL);
}

int kh_cmd_attach_mcast(struct kh_dev *dev, u32 qpn, const u8 mgid[16])
{
	struct kh_admin_cmd cmd = {};

	memcpy(cmd.mcast.mgid, mgid, sizeof(cmd.mcast.mgid));
	return kh_exec(dev, &cmd, KH_ADM_ATTACH_MCAST, qpn, NULL, 0, NULL);
}

int kh_cmd_detach_mcast(struct kh_dev *dev, u32 qpn, const u8 mgid[16])
{
	struct kh_admin_cmd cmd = {};
	int err;

	memcpy(cmd.mcast.mgid, mgid, sizeof(cmd.mcast.mgid));
	err = kh_exec(dev, &cmd, KH_ADM_DETACH_MCAST, qpn, NULL, 0, NULL);
	/*
	 * The core tells attachments apart by their LID too, which on RoCE means
	 * nothing: two of one GID are one to the device, and the first to go ends
	 * it.  An error for the second would keep the QP, and its memory, for ever.
	 */
	if (err == -ENOENT)
		return 0;
	return kh_destroy_result(dev, KH_ADM_DETACH_MCAST, qpn, err);
}

int kh_cmd_create_nic(struct kh_dev *dev, const struct kh_create_nic_params *params)
{
	struct kh_admin_cmd cmd = {};

	cmd.create_nic.pages = *params->pages;
	cmd.create_nic.tx_offset = cpu_to_le32(params->tx_offset);
	cmd.create_nic.rx_offset = cpu_to_le32(params->rx_offset);
	cmd.create_nic.rxc_offset = cpu_to_le32(params->rxc_offset);
	cmd.create_nic.db_offset = cpu_to_le32(params->db_offset);
	cmd.create_nic.vector = cpu_to_le16(params->vector);
	cmd.create_nic.db_slot = cpu_to_le16(params->db_slot);
	cmd.create_nic.log_tx_size = params->log_tx_size;
	cmd.create_nic.log_rx_size = params->log_rx_size;
	return kh_exec(dev, &cmd, KH_ADM_CREATE_NIC, 0, NULL, 0, NULL);
}

int kh_cmd_destroy_nic(struct kh_dev *dev)
{
	return kh_destroy(dev, KH_ADM_DESTROY_NIC, 0);
}
