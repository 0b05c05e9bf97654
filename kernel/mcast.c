// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Multicast groups of UD queue pairs.  The core has checked the group's GID and
 * the QP's type.  That the network delivers the group's frames to this port is
 * IP's business: rdma_cm joins the IP group on the netdev.
 */

#include "verbs.h"

int kh_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	return kh_cmd_attach_mcast(to_kh_dev(ibqp->device), to_kh_qp(ibqp)->qpn,
				   gid->raw);
}

int kh_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	return kh_cmd_detach_mcast(to_kh_dev(ibqp->device), to_kh_qp(ibqp)->qpn,
				   gid->raw);
}
