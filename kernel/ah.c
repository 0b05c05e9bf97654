// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Address handles and address vectors.
 *
 * An address handle is no object of the device: it is 32 bytes that a UD work
 * request carries.  So creating one needs no command and never sleeps, as MAD
 * and CM want it, and a process may keep as many as it likes.  What a process
 * could forge in those bytes is the destination; the source is a GID table index.
 */

#include <linux/etherdevice.h>
#include <linux/inetdevice.h>
#include <net/ipv6.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

#define KH_MAX_SL		15
#define KH_FLOW_LABEL_MASK	0xfffffu

/*
 * The MAC of a multicast group follows from its address (RFC 1112, RFC 2464);
 * any other must have been resolved by who made the attributes.
 */
static int kh_dmac_from_attr(const struct rdma_ah_attr *attr, u8 dmac[ETH_ALEN])
{
	struct in6_addr dst;

	memcpy(&dst, attr->grh.dgid.raw, sizeof(dst));
	if (rdma_is_multicast_addr(&dst)) {
		if (ipv6_addr_v4mapped(&dst))
			ip_eth_mc_map(dst.s6_addr32[3], dmac);
		else
			rdma_get_mcast_mac(&dst, dmac);
		return 0;
	}
	if (!is_valid_ether_addr(attr->roce.dmac))
		return -EINVAL;
	ether_addr_copy(dmac, attr->roce.dmac);
	return 0;
}

int kh_av_from_attr(struct kh_dev *dev, const struct rdma_ah_attr *attr,
		    struct kh_av *av)
{
	const struct ib_global_route *grh = &attr->grh;
	const char *wrong;

	memset(av, 0, sizeof(*av));

	if (attr->type != RDMA_AH_ATTR_TYPE_ROCE || attr->port_num != 1) {
		wrong = "port";
		goto inval;
	}
	if (!(attr->ah_flags & IB_AH_GRH)) {
		wrong = "no GRH";
		goto inval;
	}
	/* We never send slower than we can, so any rate that there is will do. */
	if (attr->static_rate != IB_RATE_PORT_CURRENT &&
	    ib_rate_to_mbps(attr->static_rate) < 0) {
		wrong = "static rate";
		goto inval;
	}
	if (attr->sl > KH_MAX_SL || grh->flow_label > KH_FLOW_LABEL_MASK) {
		wrong = "SL or flow label";
		goto inval;
	}
	if (!grh->sgid_attr || grh->sgid_index >= dev->attr.gid_table_len ||
	    grh->sgid_attr->gid_type != IB_GID_TYPE_ROCE_UDP_ENCAP) {
		wrong = "SGID index";
		goto inval;
	}
	if (rdma_is_zero_gid(&grh->dgid)) {
		wrong = "DGID";
		goto inval;
	}
	if (kh_dmac_from_attr(attr, av->dmac)) {
		wrong = "DMAC";
		goto inval;
	}

	memcpy(av->dgid, grh->dgid.raw, sizeof(av->dgid));
	av->sgid_index = grh->sgid_index;
	av->hop_limit = grh->hop_limit;
	av->traffic_class = grh->traffic_class;
	av->sl = attr->sl;
	av->flow_label = cpu_to_le32(grh->flow_label);
	if (grh->flow_label)
		av->udp_sport =
			cpu_to_le16(rdma_flow_label_to_udp_sport(grh->flow_label));
	return 0;

inval:
	ibdev_dbg(&dev->ibdev,
		  "address refused: %s (port %u flags %#x rate %u sl %u flow label %#x sgid %u dgid %pI6 dmac %pM)\n",
		  wrong, attr->port_num, attr->ah_flags, attr->static_rate,
		  attr->sl, grh->flow_label, grh->sgid_index, grh->dgid.raw,
		  attr->roce.dmac);
	return -EINVAL;
}

void kh_av_to_attr(struct kh_dev *dev, const struct kh_av *av, u8 static_rate,
		   struct rdma_ah_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(attr, 1);
	rdma_ah_set_sl(attr, av->sl);
	rdma_ah_set_static_rate(attr, static_rate);
	rdma_ah_set_grh(attr, NULL, le32_to_cpu(av->flow_label), av->sgid_index,
			av->hop_limit, av->traffic_class);
	memcpy(attr->grh.dgid.raw, av->dgid, sizeof(av->dgid));
	ether_addr_copy(attr->roce.dmac, av->dmac);
}

int kh_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		 struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibah->device);
	struct keyhole_create_ah_resp resp;
	struct kh_ah *ah = to_kh_ah(ibah);
	int ret;

	BUILD_BUG_ON(sizeof(resp.av) != sizeof(ah->av));

	ret = kh_av_from_attr(dev, init->ah_attr, &ah->av);
	if (ret)
		return ret;
	ah->static_rate = init->ah_attr->static_rate;

	if (udata) {
		ret = kh_udata_none(udata);
		if (ret)
			return ret;
		memcpy(resp.av, &ah->av, sizeof(resp.av));
		ret = kh_udata_put(udata, &resp, sizeof(resp));
	}
	return ret;
}

int kh_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	struct kh_ah *ah = to_kh_ah(ibah);

	kh_av_to_attr(to_kh_dev(ibah->device), &ah->av, ah->static_rate, attr);
	return 0;
}

int kh_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	return 0;
}
