/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The experimental verbs, for today's rdma-core.
 *
 * Programs that were written for the old vendor stack find here the calls,
 * structures and numbers that they know; libibverbs_exp does the work with the
 * standard verbs, and on a Keyhole HCA with its direct verbs.  Such programs need
 * not name this file: in the directory that pkg-config hands out for
 * libibverbs_exp, infiniband/verbs.h brings it along, as it did then.
 *
 * The man pages say what each call does.  In short: a call that returns a pointer
 * returns NULL and sets errno; one that returns int returns 0 or a value of errno;
 * ibv_exp_poll_cq() a count, or a value of errno negated.  comp_mask says
 * which of the fields after it count; a bit at or above ..._RESERVED is EINVAL.
 * ENOSYS is the answer wherever the HCA, or this library, does not have it;
 * ibv_exp_query_device() says so beforehand.
 */
#ifndef INFINIBAND_VERBS_EXP_H
#define INFINIBAND_VERBS_EXP_H

/* As headers of the system: with -pedantic, old C would mind anonymous unions. */
#pragma GCC system_header

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------- */
/* Names that verbs.h had and has no more                                     */
/* -------------------------------------------------------------------------- */

/* Members of its enumerations, so they keep those types: C++ would mind otherwise. */
#define IBV_EXP_NODE_TYPE_START			((enum ibv_node_type)32)
#define IBV_EXP_NODE_MIC			IBV_EXP_NODE_TYPE_START
#define IBV_EXP_TRANSPORT_TYPE_START		((enum ibv_transport_type)32)
#define IBV_EXP_TRANSPORT_SCIF			IBV_EXP_TRANSPORT_TYPE_START
#define IBV_EXP_LINK_LAYER_START		32
#define IBV_EXP_LINK_LAYER_SCIF			IBV_EXP_LINK_LAYER_START
#define IBV_EXP_EVENT_DCT_KEY_VIOLATION		((enum ibv_event_type)32)
#define IBV_EXP_EVENT_DCT_ACCESS_ERR		((enum ibv_event_type)33)
#define IBV_EXP_EVENT_DCT_REQ_ERR		((enum ibv_event_type)34)
#define IBV_EXP_QP_TYPE_START			((enum ibv_qp_type)32)
#define IBV_EXP_QPT_DC_INI			IBV_EXP_QP_TYPE_START
#define IBV_QPT_XRC				((enum ibv_qp_type)5)
#define IBV_QPT_RAW_ETH				IBV_QPT_RAW_PACKET
#define IBV_PORT_VENDOR_CLASS			(1 << 24)
#define IBV_REREG_MR_KEEP_VALID			(1 << 3)
#define IBV_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK	1

#ifndef container_of
#define container_of(ptr, type, member) \
	((type *)((uint8_t *)(ptr) - offsetof(type, member)))
#endif

/* Where the numbers of the experimental world begin, in enumerations and masks. */
enum ibv_exp_start_values {
	IBV_EXP_START_ENUM = 0x40,
	IBV_EXP_START_FLAG_LOC = 0x20,
	IBV_EXP_START_FLAG = (1ULL << IBV_EXP_START_FLAG_LOC),
};

/*
 * Structures that the calls below only point to.  verbs_exp_unsupported.h has
 * those of them which nothing here serves.
 */
struct ibv_exp_dct;
struct ibv_exp_dm;
struct ibv_exp_rx_hash_conf;
struct ibv_exp_peer_direct_attr;

/* -------------------------------------------------------------------------- */
/* Devices and their capabilities                                             */
/* -------------------------------------------------------------------------- */

/*
 * comp_mask asks; on return it has the bits that were answered, and the fields of
 * no other bit were touched.  umr_caps, masked_atomic, ext_atom and
 * inline_recv_sz are answered on a Keyhole HCA only, which is how a program learns
 * whether the calls below work.
 */

enum ibv_exp_atomic_cap {
	IBV_EXP_ATOMIC_NONE = IBV_ATOMIC_NONE,
	IBV_EXP_ATOMIC_HCA = IBV_ATOMIC_HCA,
	IBV_EXP_ATOMIC_GLOB = IBV_ATOMIC_GLOB,
	IBV_EXP_ATOMIC_HCA_REPLY_BE = IBV_EXP_START_ENUM
};

enum ibv_exp_device_cap_flags {
	IBV_EXP_DEVICE_RESIZE_MAX_WR = IBV_DEVICE_RESIZE_MAX_WR,
	IBV_EXP_DEVICE_BAD_PKEY_CNTR = IBV_DEVICE_BAD_PKEY_CNTR,
	IBV_EXP_DEVICE_BAD_QKEY_CNTR = IBV_DEVICE_BAD_QKEY_CNTR,
	IBV_EXP_DEVICE_RAW_MULTI = IBV_DEVICE_RAW_MULTI,
	IBV_EXP_DEVICE_AUTO_PATH_MIG = IBV_DEVICE_AUTO_PATH_MIG,
	IBV_EXP_DEVICE_CHANGE_PHY_PORT = IBV_DEVICE_CHANGE_PHY_PORT,
	IBV_EXP_DEVICE_UD_AV_PORT_ENFORCE = IBV_DEVICE_UD_AV_PORT_ENFORCE,
	IBV_EXP_DEVICE_CURR_QP_STATE_MOD = IBV_DEVICE_CURR_QP_STATE_MOD,
	IBV_EXP_DEVICE_SHUTDOWN_PORT = IBV_DEVICE_SHUTDOWN_PORT,
	IBV_EXP_DEVICE_INIT_TYPE = IBV_DEVICE_INIT_TYPE,
	IBV_EXP_DEVICE_PORT_ACTIVE_EVENT = IBV_DEVICE_PORT_ACTIVE_EVENT,
	IBV_EXP_DEVICE_SYS_IMAGE_GUID = IBV_DEVICE_SYS_IMAGE_GUID,
	IBV_EXP_DEVICE_RC_RNR_NAK_GEN = IBV_DEVICE_RC_RNR_NAK_GEN,
	IBV_EXP_DEVICE_SRQ_RESIZE = IBV_DEVICE_SRQ_RESIZE,
	IBV_EXP_DEVICE_N_NOTIFY_CQ = IBV_DEVICE_N_NOTIFY_CQ,
	IBV_EXP_DEVICE_XRC = IBV_DEVICE_XRC,
	IBV_EXP_DEVICE_DC_TRANSPORT = (IBV_EXP_START_FLAG << 0),
	IBV_EXP_DEVICE_QPG = (IBV_EXP_START_FLAG << 1),
	IBV_EXP_DEVICE_UD_RSS = (IBV_EXP_START_FLAG << 2),
	IBV_EXP_DEVICE_UD_TSS = (IBV_EXP_START_FLAG << 3),
	IBV_EXP_DEVICE_EXT_ATOMICS = (IBV_EXP_START_FLAG << 4),
	IBV_EXP_DEVICE_NOP = (IBV_EXP_START_FLAG << 5),
	IBV_EXP_DEVICE_UMR = (IBV_EXP_START_FLAG << 6),
	IBV_EXP_DEVICE_ODP = (IBV_EXP_START_FLAG << 7),
	IBV_EXP_DEVICE_VXLAN_SUPPORT = (IBV_EXP_START_FLAG << 10),
	IBV_EXP_DEVICE_RX_CSUM_TCP_UDP_PKT = (IBV_EXP_START_FLAG << 11),
	IBV_EXP_DEVICE_RX_CSUM_IP_PKT = (IBV_EXP_START_FLAG << 12),
	IBV_EXP_DEVICE_EC_OFFLOAD = (IBV_EXP_START_FLAG << 13),
	IBV_EXP_DEVICE_EXT_MASKED_ATOMICS = (IBV_EXP_START_FLAG << 14),
	IBV_EXP_DEVICE_RX_TCP_UDP_PKT_TYPE = (IBV_EXP_START_FLAG << 15),
	IBV_EXP_DEVICE_SCATTER_FCS = (IBV_EXP_START_FLAG << 16),
	IBV_EXP_DEVICE_MEM_WINDOW = (IBV_EXP_START_FLAG << 17),
	IBV_EXP_DEVICE_WQ_DELAY_DROP = (IBV_EXP_START_FLAG << 18),
	IBV_EXP_DEVICE_PHYSICAL_RANGE_MR = (IBV_EXP_START_FLAG << 19),
	IBV_EXP_DEVICE_CAPI = (IBV_EXP_START_FLAG << 20),
	IBV_EXP_DEVICE_MEM_MGT_EXTENSIONS = (IBV_EXP_START_FLAG << 21),
	IBV_EXP_DEVICE_DC_INFO = (IBV_EXP_START_FLAG << 22),
	IBV_EXP_DEVICE_MW_TYPE_2A = (IBV_EXP_START_FLAG << 23),
	IBV_EXP_DEVICE_MW_TYPE_2B = (IBV_EXP_START_FLAG << 24),
	IBV_EXP_DEVICE_UMR_FIXED_SIZE = (IBV_EXP_START_FLAG << 25),
	IBV_EXP_DEVICE_PACKET_BASED_CREDIT_MODE = (IBV_EXP_START_FLAG << 26),
	IBV_EXP_DEVICE_CROSS_CHANNEL = (IBV_EXP_START_FLAG << 28),
	IBV_EXP_DEVICE_MANAGED_FLOW_STEERING = (IBV_EXP_START_FLAG << 29),
	IBV_EXP_DEVICE_MR_ALLOCATE = (IBV_EXP_START_FLAG << 30),
	IBV_EXP_DEVICE_SHARED_MR = (IBV_EXP_START_FLAG << 31),
};

enum ibv_exp_device_attr_comp_mask {
	IBV_EXP_DEVICE_ATTR_CALC_CAP = (1 << 0),
	IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK = (1 << 1),
	IBV_EXP_DEVICE_ATTR_WITH_HCA_CORE_CLOCK = (1 << 2),
	IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS = (1 << 3),
	IBV_EXP_DEVICE_DC_RD_REQ = (1 << 4),
	IBV_EXP_DEVICE_DC_RD_RES = (1 << 5),
	IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ = (1 << 6),
	IBV_EXP_DEVICE_ATTR_RSS_TBL_SZ = (1 << 7),
	IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS = (1 << 8),
	IBV_EXP_DEVICE_ATTR_UMR = (1 << 9),
	IBV_EXP_DEVICE_ATTR_ODP = (1 << 10),
	IBV_EXP_DEVICE_ATTR_MAX_DCT = (1 << 11),
	IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN = (1 << 12),
	IBV_EXP_DEVICE_ATTR_RX_HASH = (1 << 13),
	IBV_EXP_DEVICE_ATTR_MAX_WQ_TYPE_RQ = (1 << 14),
	IBV_EXP_DEVICE_ATTR_MAX_DEVICE_CTX = (1 << 15),
	IBV_EXP_DEVICE_ATTR_MP_RQ = (1 << 16),
	IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS = (1 << 17),
	IBV_EXP_DEVICE_ATTR_EC_CAPS = (1 << 18),
	IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS = (1 << 19),
	IBV_EXP_DEVICE_ATTR_RX_PAD_END_ALIGN = (1 << 20),
	IBV_EXP_DEVICE_ATTR_TSO_CAPS = (1 << 21),
	IBV_EXP_DEVICE_ATTR_PACKET_PACING_CAPS = (1 << 22),
	IBV_EXP_DEVICE_ATTR_EC_GF_BASE = (1 << 23),
	IBV_EXP_DEVICE_ATTR_OOO_CAPS = (1 << 24),
	IBV_EXP_DEVICE_ATTR_SW_PARSING_CAPS = (1 << 25),
	IBV_EXP_DEVICE_ATTR_ODP_MAX_SIZE = (1 << 26),
	IBV_EXP_DEVICE_ATTR_TM_CAPS = (1 << 27),
	IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS = (1 << 28),
	IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE = (1 << 29),
	IBV_EXP_DEVICE_ATTR_TUNNELED_ATOMIC = (1 << 30),
	IBV_EXP_DEVICE_ATTR_COMP_MASK_2 = (int)(1U << 31)
};

#define IBV_EXP_DEVICE_ATTR_RESERVED (1ULL << 32)

enum ibv_exp_device_attr_comp_mask_2 {
	IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS = (1 << 0),
	IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS = (1 << 1),
	IBV_EXP_DEVICE_ATTR_RESERVED_2 = (1 << 2),
};

enum ibv_exp_tunnel_offloads_caps {
	IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN = 1 << 0,
	IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE = 1 << 1,
	IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE = 1 << 2
};

enum ibv_exp_tunneled_atomic_caps {
	IBV_EXP_TUNNELED_ATOMIC_SUPPORTED = 1 << 0,
};

struct ibv_exp_device_calc_cap {
	uint64_t data_types;
	uint64_t data_sizes;
	uint64_t int_ops;
	uint64_t uint_ops;
	uint64_t fp_ops;
};

/* Bit n of a mask of sizes stands for arguments of 2^n bytes. */
struct ibv_exp_ext_atomics_params {
	uint64_t log_atomic_arg_sizes;
	uint32_t max_fa_bit_boundary;
	uint32_t log_max_atomic_inline;
};

struct ibv_exp_masked_atomic_params {
	uint32_t max_fa_bit_boundary;
	uint32_t log_max_atomic_inline;
	uint64_t masked_log_atomic_arg_sizes;
	uint64_t masked_log_atomic_arg_sizes_network_endianness;
};

enum ibv_odp_general_cap_bits {
	IBV_EXP_ODP_SUPPORT = 1 << 0,
	IBV_EXP_ODP_SUPPORT_IMPLICIT = 1 << 1,
};

enum ibv_exp_odp_transport_cap_bits {
	IBV_EXP_ODP_SUPPORT_SEND = 1 << 0,
	IBV_EXP_ODP_SUPPORT_RECV = 1 << 1,
	IBV_EXP_ODP_SUPPORT_WRITE = 1 << 2,
	IBV_EXP_ODP_SUPPORT_READ = 1 << 3,
	IBV_EXP_ODP_SUPPORT_ATOMIC = 1 << 4,
	IBV_EXP_ODP_SUPPORT_SRQ_RECV = 1 << 5,
};

struct ibv_exp_odp_caps {
	uint64_t general_odp_caps;
	struct {
		uint32_t rc_odp_caps;
		uint32_t uc_odp_caps;
		uint32_t ud_odp_caps;
		uint32_t dc_odp_caps;
		uint32_t xrc_odp_caps;
		uint32_t raw_eth_odp_caps;
	} per_transport_caps;
};

struct ibv_exp_umr_caps {
	uint32_t max_klm_list_size;
	uint32_t max_send_wqe_inline_klms;
	uint32_t max_umr_recursion_depth;
	uint32_t max_umr_stride_dimension;
};

struct ibv_exp_umr_fixed_size_caps {
	uint64_t max_entity_size;
};

enum ibv_exp_supported_qp_types {
	IBV_EXP_QPT_RC = 1ULL << 0,
	IBV_EXP_QPT_UC = 1ULL << 1,
	IBV_EXP_QPT_UD = 1ULL << 2,
	IBV_EXP_QPT_XRC_INIT = 1ULL << 3,
	IBV_EXP_QPT_XRC_TGT = 1ULL << 4,
	IBV_EXP_QPT_RAW_PACKET = 1ULL << 5,
	IBV_EXP_QPT_RESERVED = 1ULL << 6
};

struct ibv_exp_rx_hash_caps {
	uint32_t max_rwq_indirection_tables;
	uint32_t max_rwq_indirection_table_size;
	uint8_t supported_hash_functions;
	uint64_t supported_packet_fields;
	uint32_t supported_qps;
};

enum ibv_exp_mp_rq_shifts {
	IBV_EXP_MP_RQ_NO_SHIFT = 0,
	IBV_EXP_MP_RQ_2BYTES_SHIFT = 1 << 0
};

enum ibv_exp_mp_rq_sup_types {
	IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM = 1 << 0,
	IBV_EXP_MP_RQ_SUP_TYPE_WQ_RQ = 1 << 5,
};

struct ibv_exp_mp_rq_caps {
	uint32_t supported_qps;
	uint32_t allowed_shifts;
	uint8_t min_single_wqe_log_num_of_strides;
	uint8_t max_single_wqe_log_num_of_strides;
	uint8_t min_single_stride_log_num_of_bytes;
	uint8_t max_single_stride_log_num_of_bytes;
};

struct ibv_exp_ec_caps {
	uint32_t max_ec_data_vector_count;
	uint32_t max_ec_calc_inflight_calcs;
};

struct ibv_exp_tso_caps {
	uint32_t max_tso;
	uint32_t supported_qpts;
};

enum ibv_exp_packet_pacing_cap_flags {
	IBV_EXP_QP_SUPPORT_BURST = 1 << 0,
};

struct ibv_exp_packet_pacing_caps {
	uint32_t qp_rate_limit_min;
	uint32_t qp_rate_limit_max;
	uint32_t supported_qpts;
	uint8_t cap_flags;
	uint8_t reserved[3];
};

enum ibv_exp_ooo_transport_cap_bits {
	IBV_EXP_OOO_SUPPORT_RW_DATA_PLACEMENT = (1 << 0),
};

struct ibv_exp_ooo_caps {
	uint32_t rc_caps;
	uint32_t xrc_caps;
	uint32_t dc_caps;
	uint32_t ud_caps;
};

enum ibv_exp_sw_parsing_offloads {
	IBV_EXP_SW_PARSING = (1 << 0),
	IBV_EXP_SW_PARSING_CSUM = (1 << 1),
	IBV_EXP_SW_PARSING_LSO = (1 << 2),
};

struct ibv_exp_sw_parsing_caps {
	uint32_t sw_parsing_offloads;
	uint32_t supported_qpts;
};

enum ibv_exp_tm_cap_flags {
	IBV_EXP_TM_CAP_RC = 1 << 0,
	IBV_EXP_TM_CAP_DC = 1 << 1
};

struct ibv_exp_tm_caps {
	uint32_t max_rndv_hdr_size;
	uint32_t max_num_tags;
	uint32_t capability_flags;
	uint32_t max_ops;
	uint32_t max_sge;
};

enum ibv_exp_pci_atomic_cap_ops_supported_sizes {
	IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_4_BYTES = (1ULL << 0),
	IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_8_BYTES = (1ULL << 1),
	IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_16_BYTES = (1ULL << 2),
};

struct ibv_exp_pci_atomic_caps {
	uint16_t fetch_add;
	uint16_t swap;
	uint16_t compare_swap;
};

struct ibv_exp_device_attr {
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	int reserved;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	enum ibv_exp_atomic_cap exp_atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
	uint32_t comp_mask;
	struct ibv_exp_device_calc_cap calc_cap;
	uint64_t timestamp_mask;
	uint64_t hca_core_clock;
	uint64_t exp_device_cap_flags;
	int max_dc_req_rd_atom;
	int max_dc_res_rd_atom;
	int inline_recv_sz;
	uint32_t max_rss_tbl_sz;
	struct ibv_exp_ext_atomics_params ext_atom;
	struct ibv_exp_umr_caps umr_caps;
	struct ibv_exp_odp_caps odp_caps;
	int max_dct;
	int max_ctx_res_domain;
	struct ibv_exp_rx_hash_caps rx_hash_caps;
	uint32_t max_wq_type_rq;
	int max_device_ctx;
	struct ibv_exp_mp_rq_caps mp_rq_caps;
	uint16_t wq_vlan_offloads_cap;
	struct ibv_exp_ec_caps ec_caps;
	struct ibv_exp_masked_atomic_params masked_atomic;
	int rx_pad_end_addr_align;
	struct ibv_exp_tso_caps tso_caps;
	struct ibv_exp_packet_pacing_caps packet_pacing_caps;
	uint32_t ec_w_mask;
	struct ibv_exp_ooo_caps ooo_caps;
	struct ibv_exp_sw_parsing_caps sw_parsing_caps;
	uint64_t odp_mr_max_size;
	struct ibv_exp_tm_caps tm_caps;
	uint32_t tunnel_offloads_caps;
	uint64_t max_dm_size;
	uint32_t tunneled_atomic_caps;
	uint64_t comp_mask_2;
	struct ibv_exp_umr_fixed_size_caps umr_fixed_size_caps;
	struct ibv_exp_pci_atomic_caps pci_atomic_caps;
};

enum ibv_exp_set_context_attr {
	IBV_EXP_SET_ATTR_PEER_INFO = (1 << 0),
	IBV_EXP_SET_CONTEXT_ATTR_RESERVED = (1 << 1),
};

struct ibv_exp_open_device_attr {
	uint32_t comp_mask;
	struct {
		uint64_t peer_id;
		char *peer_name;
	} peer_info;
};

struct ibv_device **ibv_exp_get_device_list(int *num_devices);

/* comp_mask 0 is EINVAL: ibv_open_device() is for that.  A peer: ENOSYS. */
struct ibv_context *ibv_exp_open_device(struct ibv_device *device,
					struct ibv_exp_open_device_attr *attr);
int ibv_exp_query_device(struct ibv_context *context,
			 struct ibv_exp_device_attr *attr);

/* -------------------------------------------------------------------------- */
/* Clocks                                                                     */
/* -------------------------------------------------------------------------- */

/* values->comp_mask is set to what was answered of q_values. */

enum ibv_exp_clock_info_comp_mask {
	IBV_EXP_CLOCK_INFO_RESERVED = 1 << 0,
};

struct ibv_exp_clock_info {
	uint64_t cycles;
	uint64_t nsec;
	uint64_t frac;
	uint64_t mask;
	uint32_t shift;
	uint32_t mult;
	uint32_t comp_mask;
};

enum ibv_exp_values_comp_mask {
		IBV_EXP_VALUES_HW_CLOCK_NS = 1 << 0,
		IBV_EXP_VALUES_HW_CLOCK = 1 << 1,
		IBV_EXP_VALUES_CLOCK_INFO = 1 << 2,
		IBV_EXP_VALUES_RESERVED = 1 << 3,
};

struct ibv_exp_values {
	uint32_t comp_mask;
	uint64_t hwclock_ns;
	uint64_t hwclock;
	struct ibv_exp_clock_info clock_info;
};

int ibv_exp_query_values(struct ibv_context *context, int q_values,
			 struct ibv_exp_values *values);

/* A completion's timestamp in nanoseconds; 0 with errno EINVAL for a bad clock_info. */
uint64_t ibv_exp_cqe_ts_to_ns(struct ibv_exp_clock_info *clock_info,
			      uint64_t ts);

/* -------------------------------------------------------------------------- */
/* Ports and GIDs                                                             */
/* -------------------------------------------------------------------------- */

enum {
	IBV_EXP_QUERY_PORT_STATE = 1 << 0,
	IBV_EXP_QUERY_PORT_MAX_MTU = 1 << 1,
	IBV_EXP_QUERY_PORT_ACTIVE_MTU = 1 << 2,
	IBV_EXP_QUERY_PORT_GID_TBL_LEN = 1 << 3,
	IBV_EXP_QUERY_PORT_CAP_FLAGS = 1 << 4,
	IBV_EXP_QUERY_PORT_MAX_MSG_SZ = 1 << 5,
	IBV_EXP_QUERY_PORT_BAD_PKEY_CNTR = 1 << 6,
	IBV_EXP_QUERY_PORT_QKEY_VIOL_CNTR = 1 << 7,
	IBV_EXP_QUERY_PORT_PKEY_TBL_LEN = 1 << 8,
	IBV_EXP_QUERY_PORT_LID = 1 << 9,
	IBV_EXP_QUERY_PORT_SM_LID = 1 << 10,
	IBV_EXP_QUERY_PORT_LMC = 1 << 11,
	IBV_EXP_QUERY_PORT_MAX_VL_NUM = 1 << 12,
	IBV_EXP_QUERY_PORT_SM_SL = 1 << 13,
	IBV_EXP_QUERY_PORT_SUBNET_TIMEOUT = 1 << 14,
	IBV_EXP_QUERY_PORT_INIT_TYPE_REPLY = 1 << 15,
	IBV_EXP_QUERY_PORT_ACTIVE_WIDTH = 1 << 16,
	IBV_EXP_QUERY_PORT_ACTIVE_SPEED = 1 << 17,
	IBV_EXP_QUERY_PORT_PHYS_STATE = 1 << 18,
	IBV_EXP_QUERY_PORT_LINK_LAYER = 1 << 19,
	IBV_EXP_QUERY_PORT_STD_MASK = (1 << 20) - 1,
	IBV_EXP_QUERY_PORT_MASK = IBV_EXP_QUERY_PORT_STD_MASK,
};

enum ibv_exp_query_port_attr_comp_mask {
	IBV_EXP_QUERY_PORT_ATTR_MASK1 = 1 << 0,
	IBV_EXP_QUERY_PORT_ATTR_RESERVED = 1 << 1,
	IBV_EXP_QUERY_PORT_ATTR_MASKS = IBV_EXP_QUERY_PORT_ATTR_RESERVED - 1
};

/* The standard structure grows with rdma-core; its common part has names here. */
struct ibv_exp_port_attr {
	union {
		struct {
			enum ibv_port_state state;
			enum ibv_mtu max_mtu;
			enum ibv_mtu active_mtu;
			int gid_tbl_len;
			uint32_t port_cap_flags;
			uint32_t max_msg_sz;
			uint32_t bad_pkey_cntr;
			uint32_t qkey_viol_cntr;
			uint16_t pkey_tbl_len;
			uint16_t lid;
			uint16_t sm_lid;
			uint8_t lmc;
			uint8_t max_vl_num;
			uint8_t sm_sl;
			uint8_t subnet_timeout;
			uint8_t init_type_reply;
			uint8_t active_width;
			uint8_t active_speed;
			uint8_t phys_state;
			uint8_t link_layer;
			uint8_t reserved;
		};
		struct ibv_port_attr port_attr;
	};
	uint32_t comp_mask;
	uint32_t mask1;
};

enum ibv_exp_roce_gid_type {
	IBV_EXP_IB_ROCE_V1_GID_TYPE,
	IBV_EXP_ROCE_V2_GID_TYPE,
	IBV_EXP_ROCE_V1_5_GID_TYPE,
};

enum ibv_exp_query_gid_attr {
	IBV_EXP_QUERY_GID_ATTR_TYPE = (1 << 0),
	IBV_EXP_QUERY_GID_ATTR_GID = (1 << 1),
	IBV_EXP_QUERY_GID_ATTR_RESERVED = (1 << 2),
};

struct ibv_exp_gid_attr {
	uint32_t comp_mask;
	enum ibv_exp_roce_gid_type type;
	union ibv_gid gid;
};

/*
 * Inline, as it fills the struct ibv_port_attr that the program was compiled with.
 * All fields of mask1 are standard ones and always filled.
 */
static inline int ibv_exp_query_port(struct ibv_context *context,
				     uint8_t port_num,
				     struct ibv_exp_port_attr *port_attr)
{
	if (!context || !port_attr) {
		errno = EINVAL;
		return EINVAL;
	}
	if (port_attr->comp_mask) {
		if (port_attr->comp_mask != IBV_EXP_QUERY_PORT_ATTR_MASK1 ||
		    (port_attr->mask1 & ~(uint32_t)IBV_EXP_QUERY_PORT_MASK)) {
			errno = EINVAL;
			return EINVAL;
		}
	}
	return ibv_query_port(context, port_num, &port_attr->port_attr);
}

/* comp_mask asks, and on return says what was answered.  ENODATA: an empty entry. */
int ibv_exp_query_gid_attr(struct ibv_context *context, uint8_t port_num,
			   unsigned int index, struct ibv_exp_gid_attr *attr);

/* -------------------------------------------------------------------------- */
/* Memory regions, indirect mkeys and windows                                 */
/* -------------------------------------------------------------------------- */

/*
 * ibv_dereg_mr() takes all regions made here.  The program may write addr and
 * length of what ibv_exp_create_mr() returned: nothing depends on them.
 */

#define IBV_EXP_IMPLICIT_MR_SIZE (~((size_t)0))

enum {
	IBV_EXP_ACCESS_FLAGS_SHIFT = 0x0F
};

enum ibv_exp_access_flags {
	IBV_EXP_ACCESS_LOCAL_WRITE = IBV_ACCESS_LOCAL_WRITE,
	IBV_EXP_ACCESS_REMOTE_WRITE = IBV_ACCESS_REMOTE_WRITE,
	IBV_EXP_ACCESS_REMOTE_READ = IBV_ACCESS_REMOTE_READ,
	IBV_EXP_ACCESS_REMOTE_ATOMIC = IBV_ACCESS_REMOTE_ATOMIC,
	IBV_EXP_ACCESS_MW_BIND = IBV_ACCESS_MW_BIND,
	IBV_EXP_ACCESS_ALLOCATE_MR = (IBV_EXP_START_FLAG << 5),
	IBV_EXP_ACCESS_SHARED_MR_USER_READ = (IBV_EXP_START_FLAG << 6),
	IBV_EXP_ACCESS_SHARED_MR_USER_WRITE = (IBV_EXP_START_FLAG << 7),
	IBV_EXP_ACCESS_SHARED_MR_GROUP_READ = (IBV_EXP_START_FLAG << 8),
	IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE = (IBV_EXP_START_FLAG << 9),
	IBV_EXP_ACCESS_SHARED_MR_OTHER_READ = (IBV_EXP_START_FLAG << 10),
	IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE = (IBV_EXP_START_FLAG << 11),
	IBV_EXP_ACCESS_NO_RDMA = (IBV_EXP_START_FLAG << 12),
	IBV_EXP_ACCESS_MW_ZERO_BASED = (IBV_EXP_START_FLAG << 13),
	IBV_EXP_ACCESS_ON_DEMAND = (IBV_EXP_START_FLAG << 14),
	IBV_EXP_ACCESS_RELAXED = (IBV_EXP_START_FLAG << 15),
	IBV_EXP_ACCESS_PHYSICAL_ADDR = (IBV_EXP_START_FLAG << 16),
	IBV_EXP_ACCESS_TUNNELED_ATOMIC = (IBV_EXP_START_FLAG << 17),
	IBV_EXP_ACCESS_RESERVED = (IBV_EXP_START_FLAG << 18)
};

enum ibv_exp_reg_mr_in_comp_mask {
	IBV_EXP_REG_MR_CREATE_FLAGS = (1 << 0),
	IBV_EXP_REG_MR_DM = (1 << 1),
	IBV_EXP_REG_MR_RESERVED = (1 << 2)
};

enum ibv_exp_reg_mr_create_flags {
	IBV_EXP_REG_MR_CREATE_CONTIG = (1 << 0)
};

struct ibv_exp_reg_mr_in {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint64_t exp_access;
	uint32_t comp_mask;
	uint32_t create_flags;
	struct ibv_exp_dm *dm;
};

enum ibv_exp_mr_create_flags {
	IBV_EXP_MR_SIGNATURE_EN = (1 << 0),
	IBV_EXP_MR_INDIRECT_KLMS = (1 << 1),
	IBV_EXP_MR_FIXED_BUFFER_SIZE = (1 << 2)
};

struct ibv_exp_mr_init_attr {
	uint32_t max_klm_list_size;
	uint32_t create_flags;
	uint64_t exp_access_flags;
};

enum ibv_exp_create_mr_in_comp_mask {
	IBV_EXP_CREATE_MR_IN_RESERVED = (1 << 0)
};

struct ibv_exp_create_mr_in {
	struct ibv_pd *pd;
	struct ibv_exp_mr_init_attr attr;
	uint32_t comp_mask;
};

enum ibv_exp_mkey_attr_comp_mask {
	IBV_EXP_MKEY_ATTR_RESERVED = (1 << 0)
};

struct ibv_exp_mkey_attr {
	uint32_t max_klm_list_size;
	uint32_t comp_mask;
};

enum ibv_exp_mkey_list_type {
	IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR
};

enum ibv_exp_alloc_mkey_list_comp_mask {
	IBV_EXP_MKEY_LIST_CONTAINER_RESERVED = (1 << 0)
};

/* A container serves one fill at a time, from its posting to its completion. */
struct ibv_exp_mkey_list_container {
	uint32_t max_klm_list_size;
	struct ibv_context *context;
};

struct ibv_exp_mkey_list_container_attr {
	struct ibv_pd *pd;
	uint32_t mkey_list_type;
	uint32_t max_klm_list_size;
	uint32_t comp_mask;
};

enum ibv_exp_dereg_mr_comp_mask {
	IBV_EXP_DEREG_MR_RESERVED = (1 << 0)
};

struct ibv_exp_dereg_out {
	int need_dofork;
	uint32_t comp_mask;
};

struct ibv_exp_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr;
	uint64_t length;
	uint64_t exp_mw_access_flags;
};

enum ibv_exp_bind_mw_comp_mask {
	IBV_EXP_BIND_MW_RESERVED = (1 << 0)
};

struct ibv_exp_mw_bind {
	struct ibv_qp *qp;
	struct ibv_mw *mw;
	uint64_t wr_id;
	uint64_t exp_send_flags;
	struct ibv_exp_mw_bind_info bind_info;
	uint32_t comp_mask;
};

/* IBV_EXP_ACCESS_ALLOCATE_MR: the memory is in the region's addr, and in in->addr. */
struct ibv_mr *ibv_exp_reg_mr(struct ibv_exp_reg_mr_in *in);
struct ibv_mr *ibv_exp_create_mr(struct ibv_exp_create_mr_in *in);
int ibv_exp_query_mkey(struct ibv_mr *mr, struct ibv_exp_mkey_attr *attr);
struct ibv_exp_mkey_list_container *
ibv_exp_alloc_mkey_list_memory(struct ibv_exp_mkey_list_container_attr *attr);
int ibv_exp_dealloc_mkey_list_memory(struct ibv_exp_mkey_list_container *mem);
int ibv_exp_bind_mw(struct ibv_exp_mw_bind *mw_bind);

/* -------------------------------------------------------------------------- */
/* Resource domains                                                           */
/* -------------------------------------------------------------------------- */

/*
 * A hint, on any provider: a CQ of a domain for a single thread (or one whose
 * threads exclude each other) takes no lock.  QPs accept it and change nothing.
 */

enum ibv_exp_thread_model {
	IBV_EXP_THREAD_SAFE,
	IBV_EXP_THREAD_UNSAFE,
	IBV_EXP_THREAD_SINGLE
};

enum ibv_exp_msg_model {
	IBV_EXP_MSG_DEFAULT,
	IBV_EXP_MSG_LOW_LATENCY,
	IBV_EXP_MSG_HIGH_BW,
	IBV_EXP_MSG_FORCE_LOW_LATENCY,
};

enum ibv_exp_res_domain_init_attr_comp_mask {
	IBV_EXP_RES_DOMAIN_THREAD_MODEL = (1 << 0),
	IBV_EXP_RES_DOMAIN_MSG_MODEL = (1 << 1),
	IBV_EXP_RES_DOMAIN_RESERVED = (1 << 2),
};

struct ibv_exp_res_domain_init_attr {
	uint32_t comp_mask;
	enum ibv_exp_thread_model thread_model;
	enum ibv_exp_msg_model msg_model;
};

enum ibv_exp_destroy_res_domain_comp_mask {
	IBV_EXP_DESTROY_RES_DOMAIN_RESERVED = (1 << 0),
};

struct ibv_exp_destroy_res_domain_attr {
	uint32_t comp_mask;
};

struct ibv_exp_res_domain {
	struct ibv_context *context;
};

struct ibv_exp_res_domain *
ibv_exp_create_res_domain(struct ibv_context *context,
			  struct ibv_exp_res_domain_init_attr *attr);

/* attr may be NULL. */
int ibv_exp_destroy_res_domain(struct ibv_context *context,
			       struct ibv_exp_res_domain *res_dom,
			       struct ibv_exp_destroy_res_domain_attr *attr);

/* -------------------------------------------------------------------------- */
/* Completion queues                                                          */
/* -------------------------------------------------------------------------- */

/*
 * Each entry of the array that ibv_exp_poll_cq() fills is wc_size bytes long; what a
 * shorter structure does not have is not written.  A NOP completes as a send.
 */

enum ibv_exp_cq_create_flags {
	IBV_EXP_CQ_CREATE_CROSS_CHANNEL = 1 << 0,
	IBV_EXP_CQ_TIMESTAMP = 1 << 1,
	IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME = 1 << 2,
	IBV_EXP_CQ_COMPRESSED_CQE = 1 << 3,
	IBV_EXP_CQ_AS_NOTIFY = 1 << 4,
};

enum {
	IBV_EXP_CQ_CREATE_FLAGS_MASK = IBV_EXP_CQ_CREATE_CROSS_CHANNEL |
					  IBV_EXP_CQ_TIMESTAMP |
					  IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME |
					  IBV_EXP_CQ_COMPRESSED_CQE |
					  IBV_EXP_CQ_AS_NOTIFY,
};

/* RESERVED is where the mask ended once; RESERVED1 is where it ends. */
enum ibv_exp_cq_init_attr_mask {
	IBV_EXP_CQ_INIT_ATTR_FLAGS = 1 << 0,
	IBV_EXP_CQ_INIT_ATTR_RESERVED = 1 << 1,
	IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN = 1 << 1,
	IBV_EXP_CQ_INIT_ATTR_PEER_DIRECT = 1 << 2,
	IBV_EXP_CQ_INIT_ATTR_RESERVED1 = 1 << 3,
};

struct ibv_exp_cq_init_attr {
	uint32_t comp_mask;
	uint32_t flags;
	struct ibv_exp_res_domain *res_domain;
	struct ibv_exp_peer_direct_attr *peer_direct_attrs;
};

enum ibv_exp_cq_attr_mask {
	IBV_EXP_CQ_MODERATION = 1 << 0,
	IBV_EXP_CQ_CAP_FLAGS = 1 << 1
};

enum ibv_exp_cq_cap_flags {
	IBV_EXP_CQ_IGNORE_OVERRUN = (1 << 0),
	IBV_EXP_CQ_CAP_MASK = 0x00000001
};

enum ibv_exp_cq_attr_comp_mask {
	IBV_EXP_CQ_ATTR_MODERATION = (1 << 0),
	IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS = (1 << 1),
	IBV_EXP_CQ_ATTR_RESERVED = (1 << 2)
};

struct ibv_exp_cq_attr {
	uint32_t comp_mask;
	struct {
		uint16_t cq_count;
		uint16_t cq_period;
	} moderation;
	uint32_t cq_cap_flags;
};

/* (opcode & IBV_EXP_WC_RECV) tells a receive. */
enum ibv_exp_wc_opcode {
	IBV_EXP_WC_SEND,
	IBV_EXP_WC_RDMA_WRITE,
	IBV_EXP_WC_RDMA_READ,
	IBV_EXP_WC_COMP_SWAP,
	IBV_EXP_WC_FETCH_ADD,
	IBV_EXP_WC_BIND_MW,
	IBV_EXP_WC_LOCAL_INV,
	IBV_EXP_WC_MASKED_COMP_SWAP = 9,
	IBV_EXP_WC_MASKED_FETCH_ADD = 10,
	IBV_EXP_WC_TSO,
	IBV_EXP_WC_UMR = 0x100,
	IBV_EXP_WC_RECV = 1 << 7,
	IBV_EXP_WC_RECV_RDMA_WITH_IMM,
	IBV_EXP_WC_TM_ADD = IBV_EXP_WC_RECV + IBV_EXP_START_ENUM,
	IBV_EXP_WC_TM_DEL,
	IBV_EXP_WC_TM_SYNC,
	IBV_EXP_WC_TM_RECV,
	IBV_EXP_WC_TM_NO_TAG,
	IBV_EXP_WC_RECV_NOP
};

enum ibv_exp_wc_flags {
	IBV_EXP_WC_GRH = IBV_WC_GRH,
	IBV_EXP_WC_WITH_IMM = IBV_WC_WITH_IMM,
	IBV_EXP_WC_WITH_INV = IBV_WC_WITH_INV,
	IBV_EXP_WC_WITH_SL = IBV_EXP_START_FLAG << 4,
	IBV_EXP_WC_WITH_SLID = IBV_EXP_START_FLAG << 5,
	IBV_EXP_WC_WITH_TIMESTAMP = IBV_EXP_START_FLAG << 6,
	IBV_EXP_WC_QP = IBV_EXP_START_FLAG << 7,
	IBV_EXP_WC_SRQ = IBV_EXP_START_FLAG << 8,
	IBV_EXP_WC_DCT = IBV_EXP_START_FLAG << 9,
	IBV_EXP_WC_RX_IP_CSUM_OK = IBV_EXP_START_FLAG << 10,
	IBV_EXP_WC_RX_TCP_UDP_CSUM_OK = IBV_EXP_START_FLAG << 11,
	IBV_EXP_WC_RX_IPV4_PACKET = IBV_EXP_START_FLAG << 12,
	IBV_EXP_WC_RX_IPV6_PACKET = IBV_EXP_START_FLAG << 13,
	IBV_EXP_WC_RX_TUNNEL_PACKET = IBV_EXP_START_FLAG << 14,
	IBV_EXP_WC_RX_OUTER_IP_CSUM_OK = IBV_EXP_START_FLAG << 15,
	IBV_EXP_WC_RX_OUTER_TCP_UDP_CSUM_OK = IBV_EXP_START_FLAG << 16,
	IBV_EXP_WC_RX_OUTER_IPV4_PACKET = IBV_EXP_START_FLAG << 17,
	IBV_EXP_WC_RX_OUTER_IPV6_PACKET = IBV_EXP_START_FLAG << 18,
	IBV_EXP_WC_TM_SYNC_REQ = IBV_EXP_START_FLAG << 19,
	IBV_EXP_WC_TM_DEL_FAILED = IBV_EXP_START_FLAG << 20,
	IBV_EXP_WC_TM_MATCH = IBV_EXP_START_FLAG << 21,
	IBV_EXP_WC_TM_DATA_VALID = IBV_EXP_START_FLAG << 22,
	IBV_EXP_WC_TM_RNDV_INCOMPLETE = IBV_EXP_START_FLAG << 23,
	IBV_EXP_WC_MP_WR_MORE_IN_MSG = IBV_EXP_START_FLAG << 24,
	IBV_EXP_WC_MP_WR_CONSUMED = IBV_EXP_START_FLAG << 25
};

struct ibv_exp_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_exp_wc_opcode exp_opcode;
	uint32_t vendor_err;
	union {
		uint32_t byte_len;
		struct {
			uint16_t strides_offset;
			uint16_t byte_len;
		} mp_wr;
	};
	uint32_t imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	int reserved;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
	uint64_t timestamp;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_exp_dct *dct;
	uint64_t exp_wc_flags;
	struct {
		uint64_t tag;
		uint32_t priv;
	} tm_info;
};

struct ibv_cq *ibv_exp_create_cq(struct ibv_context *context, int cqe,
				 void *cq_context,
				 struct ibv_comp_channel *channel,
				 int comp_vector,
				 struct ibv_exp_cq_init_attr *attr);
int ibv_exp_modify_cq(struct ibv_cq *cq, struct ibv_exp_cq_attr *cq_attr,
		      int cq_attr_mask);
int ibv_exp_poll_cq(struct ibv_cq *ibcq, int num_entries,
		    struct ibv_exp_wc *wc, uint32_t wc_size);

/* -------------------------------------------------------------------------- */
/* Work requests                                                              */
/* -------------------------------------------------------------------------- */

/*
 * The fields that an opcode reads: as in struct ibv_send_wr for the standard ones;
 * bind_mw, with ex and wr unused, for IBV_EXP_WR_BIND_MW; ext_op.umr for UMR_FILL,
 * of which UMR_INVALIDATE reads modified_mr only; ext_op.masked_atomics and
 * sg_list for the masked atomics.
 */

enum ibv_exp_wr_opcode {
	IBV_EXP_WR_RDMA_WRITE = IBV_WR_RDMA_WRITE,
	IBV_EXP_WR_RDMA_WRITE_WITH_IMM = IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_EXP_WR_SEND = IBV_WR_SEND,
	IBV_EXP_WR_SEND_WITH_IMM = IBV_WR_SEND_WITH_IMM,
	IBV_EXP_WR_RDMA_READ = IBV_WR_RDMA_READ,
	IBV_EXP_WR_ATOMIC_CMP_AND_SWP = IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_EXP_WR_ATOMIC_FETCH_AND_ADD = IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_EXP_WR_LOCAL_INV = IBV_WR_LOCAL_INV,
	IBV_EXP_WR_BIND_MW = IBV_WR_BIND_MW,
	IBV_EXP_WR_SEND_WITH_INV = IBV_WR_SEND_WITH_INV,
	IBV_EXP_WR_TSO = 15 + IBV_EXP_START_ENUM,
	IBV_EXP_WR_SEND_ENABLE = 0x20 + IBV_EXP_START_ENUM,
	IBV_EXP_WR_RECV_ENABLE,
	IBV_EXP_WR_CQE_WAIT,
	IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP,
	IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD,
	IBV_EXP_WR_NOP,
	IBV_EXP_WR_UMR_FILL,
	IBV_EXP_WR_UMR_INVALIDATE,
};

enum ibv_exp_send_flags {
	IBV_EXP_SEND_FENCE = IBV_SEND_FENCE,
	IBV_EXP_SEND_SIGNALED = IBV_SEND_SIGNALED,
	IBV_EXP_SEND_SOLICITED = IBV_SEND_SOLICITED,
	IBV_EXP_SEND_INLINE = IBV_SEND_INLINE,
	IBV_EXP_SEND_IP_CSUM = (IBV_EXP_START_FLAG << 0),
	IBV_EXP_SEND_WITH_CALC = (IBV_EXP_START_FLAG << 1),
	IBV_EXP_SEND_WAIT_EN_LAST = (IBV_EXP_START_FLAG << 2),
	IBV_EXP_SEND_EXT_ATOMIC_INLINE = (IBV_EXP_START_FLAG << 3),
};

enum ibv_exp_calc_op {
	IBV_EXP_CALC_OP_ADD = 0,
	IBV_EXP_CALC_OP_MAXLOC,
	IBV_EXP_CALC_OP_BAND,
	IBV_EXP_CALC_OP_BXOR,
	IBV_EXP_CALC_OP_BOR,
	IBV_EXP_CALC_OP_NUMBER
};

enum ibv_exp_calc_data_type {
	IBV_EXP_CALC_DATA_TYPE_INT = 0,
	IBV_EXP_CALC_DATA_TYPE_UINT,
	IBV_EXP_CALC_DATA_TYPE_FLOAT,
	IBV_EXP_CALC_DATA_TYPE_NUMBER
};

enum ibv_exp_calc_data_size {
	IBV_EXP_CALC_DATA_SIZE_64_BIT = 0,
	IBV_EXP_CALC_DATA_SIZE_NUMBER
};

struct ibv_exp_cmp_swap {
	uint64_t compare_mask;
	uint64_t compare_val;
	uint64_t swap_val;
	uint64_t swap_mask;
};

struct ibv_exp_fetch_add {
	uint64_t add_val;
	uint64_t field_boundary;
};

enum ibv_exp_send_wr_comp_mask {
	IBV_EXP_SEND_WR_ATTR_RESERVED = 1 << 0
};

struct ibv_exp_mem_region {
	uint64_t base_addr;
	struct ibv_mr *mr;
	size_t length;
};

/* byte_count and stride point to stride_dim numbers each, that is to one. */
struct ibv_exp_mem_repeat_block {
	uint64_t base_addr;
	struct ibv_mr *mr;
	size_t *byte_count;
	size_t *stride;
};

enum ibv_exp_umr_wr_type {
	IBV_EXP_UMR_MR_LIST,
	IBV_EXP_UMR_REPEAT,
	IBV_EXP_UMR_MR_LIST_FIXED_SIZE,
};

struct ibv_exp_send_wr {
	uint64_t wr_id;
	struct ibv_exp_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_exp_wr_opcode exp_opcode;
	int reserved;
	union {
		uint32_t imm_data;
		uint32_t invalidate_rkey;
	} ex;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	union {
		union {
			struct {
				uint32_t remote_srqn;
			} xrc;
		} qp_type;
		uint32_t xrc_remote_srq_num;
	};
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_cq *cq;
			int32_t cq_count;
		} cqe_wait;
		struct {
			struct ibv_qp *qp;
			int32_t wqe_count;
		} wqe_enable;
	} task;
	union {
		struct {
			enum ibv_exp_calc_op calc_op;
			enum ibv_exp_calc_data_type data_type;
			enum ibv_exp_calc_data_size data_size;
		} calc;
	} op;
	struct {
		struct ibv_ah *ah;
		uint64_t dct_access_key;
		uint32_t dct_number;
	} dc;
	union {
		struct {
			struct ibv_mw *mw;
			uint32_t rkey;
			struct ibv_exp_mw_bind_info bind_info;
		} bind_mw;
		struct {
			void *hdr;
			uint16_t hdr_sz;
			uint16_t mss;
		} tso;
	};
	uint64_t exp_send_flags;
	uint32_t comp_mask;
	union {
		struct {
			uint32_t umr_type;
			struct ibv_exp_mkey_list_container *memory_objects;
			uint64_t exp_access;
			struct ibv_mr *modified_mr;
			uint64_t base_addr;
			uint32_t num_mrs;
			union {
				struct ibv_exp_mem_region *mem_reg_list;
				struct {
					struct ibv_exp_mem_repeat_block *mem_repeat_block_list;
					size_t *repeat_count;
					uint32_t stride_dim;
				} rb;
			} mem_list;
		} umr;
		struct {
			uint32_t log_arg_sz;
			uint64_t remote_addr;
			uint32_t rkey;
			union {
				struct {
					union {
						struct ibv_exp_cmp_swap cmp_swap;
						struct ibv_exp_fetch_add fetch_add;
					} op;
				} inline_data;
			} wr_data;
		} masked_atomics;
	} ext_op;
};

int ibv_exp_post_send(struct ibv_qp *qp, struct ibv_exp_send_wr *wr,
		      struct ibv_exp_send_wr **bad_wr);

/* -------------------------------------------------------------------------- */
/* Queue pairs                                                                */
/* -------------------------------------------------------------------------- */

enum ibv_exp_qp_attr_mask {
	IBV_EXP_QP_STATE = IBV_QP_STATE,
	IBV_EXP_QP_CUR_STATE = IBV_QP_CUR_STATE,
	IBV_EXP_QP_EN_SQD_ASYNC_NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY,
	IBV_EXP_QP_ACCESS_FLAGS = IBV_QP_ACCESS_FLAGS,
	IBV_EXP_QP_PKEY_INDEX = IBV_QP_PKEY_INDEX,
	IBV_EXP_QP_PORT = IBV_QP_PORT,
	IBV_EXP_QP_QKEY = IBV_QP_QKEY,
	IBV_EXP_QP_AV = IBV_QP_AV,
	IBV_EXP_QP_PATH_MTU = IBV_QP_PATH_MTU,
	IBV_EXP_QP_TIMEOUT = IBV_QP_TIMEOUT,
	IBV_EXP_QP_RETRY_CNT = IBV_QP_RETRY_CNT,
	IBV_EXP_QP_RNR_RETRY = IBV_QP_RNR_RETRY,
	IBV_EXP_QP_RQ_PSN = IBV_QP_RQ_PSN,
	IBV_EXP_QP_MAX_QP_RD_ATOMIC = IBV_QP_MAX_QP_RD_ATOMIC,
	IBV_EXP_QP_ALT_PATH = IBV_QP_ALT_PATH,
	IBV_EXP_QP_MIN_RNR_TIMER = IBV_QP_MIN_RNR_TIMER,
	IBV_EXP_QP_SQ_PSN = IBV_QP_SQ_PSN,
	IBV_EXP_QP_MAX_DEST_RD_ATOMIC = IBV_QP_MAX_DEST_RD_ATOMIC,
	IBV_EXP_QP_PATH_MIG_STATE = IBV_QP_PATH_MIG_STATE,
	IBV_EXP_QP_CAP = IBV_QP_CAP,
	IBV_EXP_QP_DEST_QPN = IBV_QP_DEST_QPN,
	IBV_EXP_QP_GROUP_RSS = IBV_EXP_START_FLAG << 21,
	IBV_EXP_QP_DC_KEY = IBV_EXP_START_FLAG << 22,
	IBV_EXP_QP_FLOW_ENTROPY = IBV_EXP_START_FLAG << 23,
	IBV_EXP_QP_OOO_RW_DATA_PLACEMENT = IBV_EXP_START_FLAG << 24,
	IBV_EXP_QP_RATE_LIMIT = IBV_EXP_START_FLAG << 25,
};

enum ibv_exp_qp_attr_comp_mask {
	IBV_EXP_QP_ATTR_FLOW_ENTROPY = 1UL << 0,
	IBV_EXP_QP_ATTR_BURST_INFO = 1UL << 1,
	IBV_EXP_QP_ATTR_RESERVED = 1UL << 2
};

struct ibv_exp_burst_info {
	uint32_t max_burst_sz;
	uint16_t typical_pkt_sz;
};

struct ibv_exp_qp_attr {
	enum ibv_qp_state qp_state;
	enum ibv_qp_state cur_qp_state;
	enum ibv_mtu path_mtu;
	enum ibv_mig_state path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr;
	struct ibv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint64_t dct_key;
	uint32_t comp_mask;
	uint32_t flow_entropy;
	uint32_t rate_limit;
	struct ibv_exp_burst_info burst_info;
};

/* RESERVED is where the mask ended once; RESERVED1 is where it ends. */
enum ibv_exp_qp_init_attr_comp_mask {
	IBV_EXP_QP_INIT_ATTR_PD = 1 << 0,
	IBV_EXP_QP_INIT_ATTR_XRCD = 1 << 1,
	IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
	IBV_EXP_QP_INIT_ATTR_INL_RECV = 1 << 3,
	IBV_EXP_QP_INIT_ATTR_QPG = 1 << 4,
	IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG = 1 << 5,
	IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS = 1 << 6,
	IBV_EXP_QP_INIT_ATTR_RESERVED = 1 << 7,
	IBV_EXP_QP_INIT_ATTR_RES_DOMAIN = 1 << 7,
	IBV_EXP_QP_INIT_ATTR_RX_HASH = 1 << 8,
	IBV_EXP_QP_INIT_ATTR_PORT = 1 << 9,
	IBV_EXP_QP_INIT_ATTR_PEER_DIRECT = 1 << 10,
	IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 11,
	IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN = 1 << 12,
	IBV_EXP_QP_INIT_ATTR_RESERVED1 = 1 << 13,
};

enum ibv_exp_qpg_type {
	IBV_EXP_QPG_NONE = 0,
	IBV_EXP_QPG_PARENT = (1<<0),
	IBV_EXP_QPG_CHILD_RX = (1<<1),
	IBV_EXP_QPG_CHILD_TX = (1<<2)
};

struct ibv_exp_qpg_init_attrib {
	uint32_t tss_child_count;
	uint32_t rss_child_count;
};

struct ibv_exp_qpg {
	uint32_t qpg_type;
	union {
		struct ibv_qp *qpg_parent;
		struct ibv_exp_qpg_init_attrib parent_attrib;
	};
};

enum ibv_exp_qp_create_flags {
	IBV_EXP_QP_CREATE_CROSS_CHANNEL = (1 << 2),
	IBV_EXP_QP_CREATE_MANAGED_SEND = (1 << 3),
	IBV_EXP_QP_CREATE_MANAGED_RECV = (1 << 4),
	IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW = (1 << 6),
	IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW = (1 << 7),
	IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY = (1 << 8),
	IBV_EXP_QP_CREATE_UMR = (1 << 9),
	IBV_EXP_QP_CREATE_EC_PARITY_EN = (1 << 10),
	IBV_EXP_QP_CREATE_RX_END_PADDING = (1 << 11),
	IBV_EXP_QP_CREATE_SCATTER_FCS = (1 << 12),
	IBV_EXP_QP_CREATE_TUNNEL_OFFLOADS = (1 << 13),
	IBV_EXP_QP_CREATE_INTERNAL_USE = (1 << 15),
	IBV_EXP_QP_CREATE_PACKET_BASED_CREDIT_MODE = (1 << 16),
	IBV_EXP_QP_CREATE_MASK = 0x00013FDC
};

struct ibv_exp_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
	uint32_t comp_mask;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint32_t exp_create_flags;
	uint32_t max_inl_recv;
	struct ibv_exp_qpg qpg;
	uint32_t max_atomic_arg;
	uint32_t max_inl_send_klms;
	struct ibv_exp_res_domain *res_domain;
	struct ibv_exp_rx_hash_conf *rx_hash_conf;
	uint8_t port_num;
	struct ibv_exp_peer_direct_attr *peer_direct_attrs;
	uint16_t max_tso_header;
	uint32_t associated_qpn;
};

/* Updates cap and, as far as comp_mask named it, max_inl_recv with what was granted. */
struct ibv_qp *ibv_exp_create_qp(struct ibv_context *context,
				 struct ibv_exp_qp_init_attr *qp_init_attr);
int ibv_exp_modify_qp(struct ibv_qp *qp, struct ibv_exp_qp_attr *attr,
		      uint64_t exp_attr_mask);

/* -------------------------------------------------------------------------- */
/* Shared receive queues                                                      */
/* -------------------------------------------------------------------------- */

enum ibv_exp_srq_type {
	IBV_EXP_SRQT_BASIC = IBV_SRQT_BASIC,
	IBV_EXP_SRQT_XRC = IBV_SRQT_XRC,
	IBV_EXP_SRQT_TAG_MATCHING = 32
};

enum ibv_exp_create_srq_comp_mask {
	IBV_EXP_CREATE_SRQ_CQ = (1 << 0),
	IBV_EXP_CREATE_SRQ_XRCD = (1 << 1),
	IBV_EXP_CREATE_SRQ_TM = (1 << 2),
	IBV_EXP_CREATE_SRQ_DC_OFFLOAD_PARAMS = (1 << 3),
	IBV_EXP_CREATE_SRQ_MP_WR = (1 << 4),
	IBV_EXP_CREATE_SRQ_RESERVED = (1 << 5)
};

struct ibv_exp_tm_cap {
	uint32_t max_num_tags;
	uint32_t max_ops;
};

struct ibv_exp_srq_dc_offload_params {
	uint16_t pkey_index;
	enum ibv_mtu path_mtu;
	uint8_t sl;
	uint8_t max_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint64_t dct_key;
	uint32_t ooo_caps;
	uint32_t comp_mask;
};

struct ibv_exp_mp_wr {
	uint8_t log_num_of_strides;
	uint8_t log_stride_size;
};

struct ibv_exp_create_srq_attr {
	struct ibv_srq_init_attr base;
	enum ibv_exp_srq_type srq_type;
	struct ibv_pd *pd;
	uint32_t comp_mask;
	struct ibv_cq *cq;
	struct ibv_xrcd *xrcd;
	struct ibv_exp_tm_cap tm_cap;
	struct ibv_exp_srq_dc_offload_params *dc_offload_params;
	struct ibv_exp_mp_wr mp_wr;
};

struct ibv_srq *ibv_exp_create_srq(struct ibv_context *context,
				   struct ibv_exp_create_srq_attr *attr);

/* -------------------------------------------------------------------------- */
/* Functions by name                                                          */
/* -------------------------------------------------------------------------- */

/* What ibv_exp_get_provider_func() returns, cast; they skip no check. */

enum ibv_exp_func_name {
	IBV_EXP_POST_SEND_FUNC,
	IBV_EXP_POLL_CQ_FUNC,
	IBV_POST_SEND_FUNC,
	IBV_POLL_CQ_FUNC,
	IBV_POST_RECV_FUNC
};

typedef int (*drv_exp_post_send_func)(struct ibv_qp *qp,
				      struct ibv_exp_send_wr *wr,
				      struct ibv_exp_send_wr **bad_wr);
typedef int (*drv_post_send_func)(struct ibv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad_wr);
typedef int (*drv_exp_poll_cq_func)(struct ibv_cq *ibcq, int num_entries,
				    struct ibv_exp_wc *wc, uint32_t wc_size);
typedef int (*drv_poll_cq_func)(struct ibv_cq *cq, int num_entries,
				struct ibv_wc *wc);
typedef int (*drv_post_recv_func)(struct ibv_qp *qp, struct ibv_recv_wr *wr,
				  struct ibv_recv_wr **bad_wr);

void *ibv_exp_get_provider_func(struct ibv_context *context,
				enum ibv_exp_func_name name);

/* The context has no environment of its own: this is setenv(). */
int ibv_exp_setenv(struct ibv_context *context, const char *name,
		   const char *value, int overwrite);

#ifdef __cplusplus
}
#endif

#include <infiniband/verbs_exp_unsupported.h>

#endif /* INFINIBAND_VERBS_EXP_H */
