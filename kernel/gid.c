// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The device's GID table follows the core's, which follows the addresses of the
 * netdev.  An entry carries the MAC and the VLAN along with the address: a work
 * request names the entry, and so cannot make up a source.
 */

#include <linux/if_vlan.h>
#include <rdma/ib_cache.h>

#include "verbs.h"

int kh_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct kh_dev *dev = to_kh_dev(attr->device);
	u8 mac[ETH_ALEN];
	u16 vlan;
	int ret;

	if (attr->gid_type != IB_GID_TYPE_ROCE_UDP_ENCAP ||
	    attr->index >= dev->attr.gid_table_len)
		return -EINVAL;
	ret = rdma_read_gid_l2_fields(attr, &vlan, mac);
	if (ret)
		return ret;
	return kh_cmd_set_gid(dev, attr->index, attr->gid.raw, mac,
			      vlan < VLAN_N_VID ? vlan : KH_VLAN_NONE);
}

int kh_del_gid(const struct ib_gid_attr *attr, void **context)
{
	return kh_cmd_clear_gid(to_kh_dev(attr->device), attr->index);
}
