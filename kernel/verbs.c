// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The table of what an ib_device of ours can do.  Each group of operations has
 * a file of its own; verbs.h says which.
 *
 * Not here: query_gid (the core answers from its own table on RoCE), get_netdev
 * (the core was told), modify_port (nothing can be modified; the core knows what
 * RoCE ports do with the one request that there is), modify_ah, drain_*
 * (the core's own way is right for us).
 */

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

/* What uverbs offers beyond the verbs: objects of our own. */
const struct uapi_definition kh_uapi_defs[] = {
	UAPI_DEF_CHAIN(kh_mkey_defs),
	UAPI_DEF_CHAIN(kh_klm_list_defs),
	{}
};

const struct ib_device_ops kh_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = KEYHOLE_ABI_VERSION,

	.query_device = kh_query_device,
	.modify_device = kh_modify_device,
	.get_dev_fw_str = kh_get_dev_fw_str,
	.query_port = kh_query_port,
	.get_port_immutable = kh_get_port_immutable,
	.get_link_layer = kh_get_link_layer,
	.query_pkey = kh_query_pkey,
	.add_gid = kh_add_gid,
	.del_gid = kh_del_gid,
	.alloc_hw_port_stats = kh_alloc_hw_port_stats,
	.get_hw_stats = kh_get_hw_stats,

	.alloc_ucontext = kh_alloc_ucontext,
	.dealloc_ucontext = kh_dealloc_ucontext,
	.disassociate_ucontext = kh_disassociate_ucontext,
	.mmap = kh_mmap,
	.mmap_free = kh_mmap_free,

	.alloc_pd = kh_alloc_pd,
	.dealloc_pd = kh_dealloc_pd,

	.create_ah = kh_create_ah,
	.create_user_ah = kh_create_ah,
	.query_ah = kh_query_ah,
	.destroy_ah = kh_destroy_ah,

	.create_cq = kh_create_cq,
	.destroy_cq = kh_destroy_cq,
	KH_USER_CQ_OPS
	.modify_cq = kh_modify_cq,
	.poll_cq = kh_poll_cq,
	.req_notify_cq = kh_req_notify_cq,

	.create_srq = kh_create_srq,
	.modify_srq = kh_modify_srq,
	.query_srq = kh_query_srq,
	.destroy_srq = kh_destroy_srq,
	.post_srq_recv = kh_post_srq_recv,

	.create_qp = kh_create_qp,
	.modify_qp = kh_modify_qp,
	.query_qp = kh_query_qp,
	.destroy_qp = kh_destroy_qp,
	.post_send = kh_post_send,
	.post_recv = kh_post_recv,

	.attach_mcast = kh_attach_mcast,
	.detach_mcast = kh_detach_mcast,

	KH_REG_USER_MR_OP
	.rereg_user_mr = kh_rereg_user_mr,
	.get_dma_mr = kh_get_dma_mr,
	.alloc_mr = kh_alloc_mr,
	.map_mr_sg = kh_map_mr_sg,
	.dereg_mr = kh_dereg_mr,
	.alloc_mw = kh_alloc_mw,
	.dealloc_mw = kh_dealloc_mw,

	.fill_res_mr_entry = kh_fill_res_mr_entry,
	.fill_res_cq_entry = kh_fill_res_cq_entry,
	.fill_res_qp_entry = kh_fill_res_qp_entry,
	KH_FILL_RES_SRQ_OP

	INIT_RDMA_OBJ_SIZE(ib_ah, kh_ah, ibah),
	INIT_RDMA_OBJ_SIZE(ib_cq, kh_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_mw, kh_mw, ibmw),
	INIT_RDMA_OBJ_SIZE(ib_pd, kh_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, kh_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_srq, kh_srq, ibsrq),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, kh_ucontext, ibucontext),
};
