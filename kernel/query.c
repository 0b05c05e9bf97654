// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the device can do and how its port is: answers made of what the device
 * said at start, and of the netdev's state now.
 */

#include <linux/cpumask.h>
#include <linux/io.h>
#include <linux/mutex.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_mad.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

/*
 * 4.096 us << 15 is 134 ms.  The device is a thread on a machine that it may
 * have to share, and peers add this to the time after which they send again.
 */
#define KH_ACK_DELAY		15

static u32 kh_version_part(u64 fw_version, int part)
{
	switch (part) {
	case 0:
		return fw_version >> 32;
	case 1:
		return (fw_version >> 16) & 0xffff;
	default:
		return fw_version & 0xffff;
	}
}

static int kh_limit(u64 value)
{
	return min_t(u64, value, INT_MAX);
}

/* Reading the low half latches the high one: one reader at a time. */
static DEFINE_MUTEX(kh_clock_mutex);

static u64 kh_read_clock(struct kh_dev *dev)
{
	u32 lo, hi;

	mutex_lock(&kh_clock_mutex);
	lo = readl(dev->regs + KH_REG_CLOCK_LO);
	hi = readl(dev->regs + KH_REG_CLOCK_HI);
	mutex_unlock(&kh_clock_mutex);
	return (u64)hi << 32 | lo;
}

/* The device clock, for those who compare it with a CQE's timestamp. */
static int kh_query_clock(struct kh_dev *dev, struct ib_udata *udata)
{
	struct keyhole_query_device_resp resp = {
		.clock_khz = dev->attr.clock_khz,
	};

	if (!udata || !udata->outlen)
		return 0;
	if (!kh_dev_up(dev))
		return -EIO;
	resp.clock = kh_read_clock(dev);
	return kh_udata_put(udata, &resp, sizeof(resp));
}

int kh_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
		    struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibdev);
	const struct kh_attr *hw = &dev->attr;
	int ret;

	ret = kh_udata_none(udata);
	if (ret)
		return ret;

	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = hw->fw_version;
	attr->sys_image_guid = hw->node_guid;
	attr->vendor_id = dev->pdev->vendor;
	attr->vendor_part_id = dev->pdev->device;
	attr->hw_ver = dev->hw_version;

	attr->max_mr_size = hw->max_mr_size;
	attr->page_size_cap = hw->page_size_cap;
	attr->max_qp = kh_limit(hw->max_qp);
	attr->max_qp_wr = kh_limit(hw->max_qp_wr);
	attr->max_send_sge = kh_limit(hw->max_sge);
	attr->max_recv_sge = kh_limit(hw->max_sge);
	attr->max_sge_rd = kh_limit(hw->max_sge);
	attr->max_cq = kh_limit(hw->max_cq);
	attr->max_cqe = kh_limit(hw->max_cqe);
	attr->max_mr = kh_limit(hw->max_mkey);
	attr->max_pd = kh_limit(hw->max_pd);
	attr->max_srq = kh_limit(hw->max_srq);
	attr->max_srq_wr = kh_limit(hw->max_srq_wr);
	attr->max_srq_sge = kh_limit(hw->max_sge);
	attr->max_qp_rd_atom = kh_limit(hw->max_rd_atomic);
	attr->max_qp_init_rd_atom = kh_limit(hw->max_rd_atomic);
	attr->max_res_rd_atom = kh_limit((u64)hw->max_rd_atomic * hw->max_qp);
	attr->max_mcast_grp = kh_limit(hw->max_mcast_grp);
	attr->max_mcast_qp_attach = kh_limit(hw->max_mcast_qp);
	attr->max_total_mcast_qp_attach =
		kh_limit((u64)hw->max_mcast_grp * hw->max_mcast_qp);
	attr->max_ah = INT_MAX;		/* not an object of the device */
	attr->max_pkeys = 1;
	attr->local_ca_ack_delay = KH_ACK_DELAY;

	/*
	 * With one virtual CPU, an emulator that runs it on one thread may
	 * leave out the bus lock of an atomic instruction.
	 */
	attr->atomic_cap = num_possible_cpus() == 1 ? IB_ATOMIC_HCA :
						      IB_ATOMIC_GLOB;
	attr->masked_atomic_cap = hw->caps & KH_CAP_MASKED_ATOMIC ?
				  attr->atomic_cap : IB_ATOMIC_NONE;

	attr->device_cap_flags = IB_DEVICE_CURR_QP_STATE_MOD |
				 IB_DEVICE_SYS_IMAGE_GUID |
				 IB_DEVICE_RC_RNR_NAK_GEN |
				 IB_DEVICE_N_NOTIFY_CQ |
				 IB_DEVICE_PORT_ACTIVE_EVENT;
	attr->kernel_cap_flags = IBK_LOCAL_DMA_LKEY;
	if (hw->caps & KH_CAP_MW1)
		attr->device_cap_flags |= IB_DEVICE_MEM_WINDOW;
	if (hw->caps & KH_CAP_MW2B)
		attr->device_cap_flags |= IB_DEVICE_MEM_WINDOW_TYPE_2B;
	if (hw->caps & (KH_CAP_MW1 | KH_CAP_MW2B))
		attr->max_mw = kh_limit(hw->max_mkey);
	if (hw->caps & KH_CAP_SRQ_RESIZE)
		attr->device_cap_flags |= IB_DEVICE_SRQ_RESIZE;
	if (hw->caps & KH_CAP_FLUSH)
		attr->device_cap_flags |= IB_DEVICE_FLUSH_GLOBAL;
	if (hw->caps & KH_CAP_ATOMIC_WRITE)
		attr->device_cap_flags |= IB_DEVICE_ATOMIC_WRITE;
	if (hw->caps & KH_CAP_REG_MR) {
		attr->device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
		attr->max_fast_reg_page_list_len = hw->max_fast_reg_pages;
	}

	attr->timestamp_mask = U64_MAX;
	attr->hca_core_clock = hw->clock_khz;
	attr->cq_caps.max_cq_moderation_count = U16_MAX;
	attr->cq_caps.max_cq_moderation_period = U16_MAX;

	return kh_query_clock(dev, udata);
}

int kh_modify_device(struct ib_device *ibdev, int mask,
		     struct ib_device_modify *modify)
{
	if (mask & ~IB_DEVICE_MODIFY_NODE_DESC)
		return -EOPNOTSUPP;
	if (mask & IB_DEVICE_MODIFY_NODE_DESC)
		memcpy(ibdev->node_desc, modify->node_desc,
		       sizeof(ibdev->node_desc));
	return 0;
}

void kh_get_dev_fw_str(struct ib_device *ibdev, char *str)
{
	u64 version = to_kh_dev(ibdev)->attr.fw_version;

	snprintf(str, IB_FW_VERSION_NAME_MAX, "%u.%u.%u",
		 kh_version_part(version, 0), kh_version_part(version, 1),
		 kh_version_part(version, 2));
}

enum ib_mtu kh_active_mtu(struct kh_dev *dev)
{
	/* 0 is the answer when not even 256 bytes fit beside the headers. */
	return iboe_get_mtu(READ_ONCE(dev->netdev->mtu)) ?: IB_MTU_256;
}

int kh_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr)
{
	struct kh_dev *dev = to_kh_dev(ibdev);

	attr->state = kh_port_state(dev);
	if (attr->state == IB_PORT_ACTIVE)
		attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	else if (netif_running(dev->netdev))
		attr->phys_state = IB_PORT_PHYS_STATE_POLLING;
	else
		attr->phys_state = IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = kh_active_mtu(dev);
	attr->phys_mtu = READ_ONCE(dev->netdev->mtu);
	attr->gid_tbl_len = dev->attr.gid_table_len;
	attr->ip_gids = true;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->max_msg_sz = dev->attr.max_msg_size;
	attr->pkey_tbl_len = 1;
	attr->max_vl_num = 1;
	/* 100 Gb/s, as the netdev says of itself. */
	attr->active_speed = IB_SPEED_EDR;
	attr->active_width = IB_WIDTH_4X;
	return 0;
}

int kh_get_port_immutable(struct ib_device *ibdev, u32 port,
			  struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->pkey_tbl_len = 1;
	immutable->gid_tbl_len = to_kh_dev(ibdev)->attr.gid_table_len;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

enum rdma_link_layer kh_get_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

int kh_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}
