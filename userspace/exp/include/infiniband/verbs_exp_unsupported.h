/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the experimental verbs had besides, for offloads that neither the standard
 * verbs nor a Keyhole HCA have.  All of it compiles, so that programs which probe
 * for it still do; each call answers ENOSYS, whatever its arguments (NULL with
 * errno ENOSYS if it returns a pointer, a negative value if it returns a count).
 *
 * infiniband/verbs_exp.h includes it.
 */
#ifndef INFINIBAND_VERBS_EXP_UNSUPPORTED_H
#define INFINIBAND_VERBS_EXP_UNSUPPORTED_H

#pragma GCC system_header

#include <infiniband/verbs_exp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------- */
/* Dynamically connected targets                                              */
/* -------------------------------------------------------------------------- */

enum ibv_exp_dct_init_attr_comp_mask {
	IBV_EXP_DCT_INIT_ATTR_RESERVED = 1 << 0
};

enum ibv_exp_dct_create_flags {
	IBV_EXP_DCT_OOO_RW_DATA_PLACEMENT = 1 << 0,
	IBV_EXP_DCT_CREATE_FLAGS_MASK = IBV_EXP_DCT_OOO_RW_DATA_PLACEMENT,
};

struct ibv_exp_dct_init_attr {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint64_t dc_key;
	uint8_t port;
	uint32_t access_flags;
	uint8_t min_rnr_timer;
	uint8_t tclass;
	uint32_t flow_label;
	enum ibv_mtu mtu;
	uint8_t pkey_index;
	uint8_t gid_index;
	uint8_t hop_limit;
	uint32_t inline_size;
	uint32_t create_flags;
	uint32_t comp_mask;
};

enum {
	IBV_EXP_DCT_STATE_ACTIVE = 0,
	IBV_EXP_DCT_STATE_DRAINING = 1,
	IBV_EXP_DCT_STATE_DRAINED = 2
};

enum ibv_exp_dct_attr_comp_mask {
	IBV_EXP_DCT_ATTR_RESERVED = 1 << 0
};

struct ibv_exp_dct_attr {
	uint64_t dc_key;
	uint8_t port;
	uint32_t access_flags;
	uint8_t min_rnr_timer;
	uint8_t tclass;
	uint32_t flow_label;
	enum ibv_mtu mtu;
	uint8_t pkey_index;
	uint8_t gid_index;
	uint8_t hop_limit;
	uint32_t key_violations;
	uint8_t state;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	uint32_t comp_mask;
};

struct ibv_exp_dct {
	struct ibv_context *context;
	uint32_t handle;
	uint32_t dct_num;
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

enum ibv_exp_arm_attr_comp_mask {
	IBV_EXP_ARM_ATTR_RESERVED = (1 << 0)
};

struct ibv_exp_arm_attr {
	uint32_t comp_mask;
};

enum {
	IBV_EXP_NUM_DC_INFO_LIDS = 30
};

struct ibv_exp_dc_info_ent {
	uint16_t lid[IBV_EXP_NUM_DC_INFO_LIDS];
	uint32_t seqnum;
};

struct ibv_exp_dct *ibv_exp_create_dct(struct ibv_context *context,
				       struct ibv_exp_dct_init_attr *attr);
int ibv_exp_destroy_dct(struct ibv_exp_dct *dct);
int ibv_exp_query_dct(struct ibv_exp_dct *dct, struct ibv_exp_dct_attr *attr);
int ibv_exp_arm_dct(struct ibv_exp_dct *dct, struct ibv_exp_arm_attr *attr);
int ibv_exp_poll_dc_info(struct ibv_context *context,
			 struct ibv_exp_dc_info_ent *ents, int nent, int port);

/* -------------------------------------------------------------------------- */
/* Address handles with a link-layer address                                  */
/* -------------------------------------------------------------------------- */

enum ibv_exp_ah_attr_attr_comp_mask {
	IBV_EXP_AH_ATTR_LL = 1 << 0,
	IBV_EXP_AH_ATTR_VID = 1 << 1,
	IBV_EXP_AH_ATTR_RESERVED = 1 << 2
};

enum ll_address_type {
	LL_ADDRESS_UNKNOWN,
	LL_ADDRESS_IB,
	LL_ADDRESS_ETH,
	LL_ADDRESS_SIZE
};

struct ibv_exp_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
	uint32_t comp_mask;
	struct {
		enum ll_address_type type;
		uint32_t len;
		char *address;
	} ll_address;
	uint16_t vid;
};

/* -------------------------------------------------------------------------- */
/* Flow steering                                                              */
/* -------------------------------------------------------------------------- */

enum ibv_exp_flow_flags {
	IBV_EXP_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK = 1,
};

enum ibv_exp_flow_attr_type {
	IBV_EXP_FLOW_ATTR_NORMAL = 0x0,
	IBV_EXP_FLOW_ATTR_ALL_DEFAULT = 0x1,
	IBV_EXP_FLOW_ATTR_MC_DEFAULT = 0x2,
	IBV_EXP_FLOW_ATTR_SNIFFER = 0x3,
};

enum ibv_exp_flow_spec_type {
	IBV_EXP_FLOW_SPEC_ETH = 0x20,
	IBV_EXP_FLOW_SPEC_IB = 0x21,
	IBV_EXP_FLOW_SPEC_IPV4 = 0x30,
	IBV_EXP_FLOW_SPEC_IPV6 = 0x31,
	IBV_EXP_FLOW_SPEC_IPV4_EXT = 0x32,
	IBV_EXP_FLOW_SPEC_IPV6_EXT = 0x33,
	IBV_EXP_FLOW_SPEC_TCP = 0x40,
	IBV_EXP_FLOW_SPEC_UDP = 0x41,
	IBV_EXP_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
	IBV_EXP_FLOW_SPEC_INNER = 0x100,
	IBV_EXP_FLOW_SPEC_ACTION_TAG = 0x1000,
	IBV_EXP_FLOW_SPEC_ACTION_DROP = 0x1001,
};

struct ibv_exp_flow_eth_filter {
	uint8_t dst_mac[6];
	uint8_t src_mac[6];
	uint16_t ether_type;
	uint16_t vlan_tag;
};

struct ibv_exp_flow_spec_eth {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_eth_filter val;
	struct ibv_exp_flow_eth_filter mask;
};

struct ibv_exp_flow_ib_filter {
	uint32_t qpn;
	uint8_t dst_gid[16];
};

struct ibv_exp_flow_spec_ib {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ib_filter val;
	struct ibv_exp_flow_ib_filter mask;
};

struct ibv_exp_flow_ipv4_filter {
	uint32_t src_ip;
	uint32_t dst_ip;
};

struct ibv_exp_flow_spec_ipv4 {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ipv4_filter val;
	struct ibv_exp_flow_ipv4_filter mask;
};

struct ibv_exp_flow_ipv6_filter {
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
};

struct ibv_exp_flow_spec_ipv6 {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ipv6_filter val;
	struct ibv_exp_flow_ipv6_filter mask;
};

struct ibv_exp_flow_spec_action_tag {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	uint32_t tag_id;
};

struct ibv_exp_flow_spec_action_drop {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
};

struct ibv_exp_flow_ipv6_ext_filter {
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
	uint32_t flow_label;
	uint8_t next_hdr;
	uint8_t traffic_class;
	uint8_t hop_limit;
};

struct ibv_exp_flow_spec_ipv6_ext {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ipv6_ext_filter val;
	struct ibv_exp_flow_ipv6_ext_filter mask;
};

struct ibv_exp_flow_ipv4_ext_filter {
	uint32_t src_ip;
	uint32_t dst_ip;
	uint8_t proto;
	uint8_t tos;
	uint8_t ttl;
	uint8_t flags;
};

struct ibv_exp_flow_spec_ipv4_ext {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ipv4_ext_filter val;
	struct ibv_exp_flow_ipv4_ext_filter mask;
};

struct ibv_exp_flow_tcp_udp_filter {
	uint16_t dst_port;
	uint16_t src_port;
};

struct ibv_exp_flow_spec_tcp_udp {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_tcp_udp_filter val;
	struct ibv_exp_flow_tcp_udp_filter mask;
};

struct ibv_exp_flow_tunnel_filter {
	uint32_t tunnel_id;
};

struct ibv_exp_flow_spec_tunnel {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_tunnel_filter val;
	struct ibv_exp_flow_tunnel_filter mask;
};

struct ibv_exp_flow_spec {
	union {
		struct {
			uint32_t type;
			uint16_t size;
		} hdr;
		struct ibv_exp_flow_spec_ib ib;
		struct ibv_exp_flow_spec_eth eth;
		struct ibv_exp_flow_spec_ipv4 ipv4;
		struct ibv_exp_flow_spec_ipv4_ext ipv4_ext;
		struct ibv_exp_flow_spec_tcp_udp tcp_udp;
		struct ibv_exp_flow_spec_ipv6 ipv6;
		struct ibv_exp_flow_spec_ipv6_ext ipv6_ext;
		struct ibv_exp_flow_spec_tunnel tunnel;
		struct ibv_exp_flow_spec_action_tag flow_tag;
		struct ibv_exp_flow_spec_action_drop drop;
	};
};

struct ibv_exp_flow_attr {
	enum ibv_exp_flow_attr_type type;
	uint16_t size;
	uint16_t priority;
	uint8_t num_of_specs;
	uint8_t port;
	uint32_t flags;
	uint64_t reserved;
};

struct ibv_exp_flow {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_exp_flow *ibv_exp_create_flow(struct ibv_qp *qp,
					 struct ibv_exp_flow_attr *flow);
int ibv_exp_destroy_flow(struct ibv_exp_flow *flow_id);

/* -------------------------------------------------------------------------- */
/* Receive work queues and receive-side scaling                               */
/* -------------------------------------------------------------------------- */

enum ibv_exp_wq_type {
	IBV_EXP_WQT_RQ,
	IBV_EXP_WQT_SRQ
};

enum ibv_exp_wq_state {
	IBV_EXP_WQS_RESET,
	IBV_EXP_WQS_RDY,
	IBV_EXP_WQS_ERR,
	IBV_EXP_WQS_UNKNOWN
};

enum ibv_exp_vlan_offloads {
	IBV_EXP_RECEIVE_WQ_CVLAN_STRIP = (1 << 0),
	IBV_EXP_RECEIVE_WQ_CVLAN_INSERTION = (1 << 1),
	IBV_EXP_RECEIVE_WQ_VLAN_OFFLOADS_RESERVED = (1 << 2),
};

struct ibv_exp_wq {
	struct ibv_context *context;
	void *wq_context;
	uint32_t handle;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint32_t wq_num;
	enum ibv_exp_wq_state state;
	enum ibv_exp_wq_type wq_type;
	uint32_t comp_mask;
};

enum ibv_exp_wq_init_attr_mask {
	IBV_EXP_CREATE_WQ_RES_DOMAIN = (1 << 0),
	IBV_EXP_CREATE_WQ_MP_RQ = (1 << 1),
	IBV_EXP_CREATE_WQ_VLAN_OFFLOADS = (1 << 2),
	IBV_EXP_CREATE_WQ_FLAGS = (1 << 3),
	IBV_EXP_CREATE_WQ_RESERVED = (1 << 4)
};

struct ibv_exp_wq_mp_rq {
	enum ibv_exp_mp_rq_shifts use_shift;
	uint8_t single_wqe_log_num_of_strides;
	uint8_t single_stride_log_num_of_bytes;
};

enum ibv_exp_wq_init_attr_flags {
	IBV_EXP_CREATE_WQ_FLAG_RX_END_PADDING = (1ULL << 0),
	IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS = (1ULL << 1),
	IBV_EXP_CREATE_WQ_FLAG_DELAY_DROP = (1ULL << 2),
	IBV_EXP_CREATE_WQ_FLAG_RESERVED = (1ULL << 3)
};

struct ibv_exp_wq_init_attr {
	void *wq_context;
	enum ibv_exp_wq_type wq_type;
	uint32_t max_recv_wr;
	uint32_t max_recv_sge;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint32_t comp_mask;
	struct ibv_exp_res_domain *res_domain;
	struct ibv_exp_wq_mp_rq mp_rq;
	uint16_t vlan_offloads;
	uint64_t flags;
};

enum ibv_exp_wq_attr_mask {
	IBV_EXP_WQ_ATTR_STATE = 1 << 0,
	IBV_EXP_WQ_ATTR_CURR_STATE = 1 << 1,
	IBV_EXP_WQ_ATTR_VLAN_OFFLOADS = 1 << 2,
	IBV_EXP_WQ_ATTR_RESERVED = 1 << 3
};

struct ibv_exp_wq_attr {
	uint32_t attr_mask;
	enum ibv_exp_wq_state wq_state;
	enum ibv_exp_wq_state curr_wq_state;
	uint16_t vlan_offloads;
};

struct ibv_exp_rwq_ind_table {
	struct ibv_context *context;
	struct ibv_pd *pd;
	int ind_tbl_handle;
	int ind_tbl_num;
	uint32_t comp_mask;
};

enum ibv_exp_ind_table_init_attr_mask {
	IBV_EXP_CREATE_IND_TABLE_RESERVED = (1 << 0)
};

struct ibv_exp_rwq_ind_table_init_attr {
	struct ibv_pd *pd;
	uint32_t log_ind_tbl_size;
	struct ibv_exp_wq **ind_tbl;
	uint32_t comp_mask;
};

enum ibv_exp_rx_hash_function_flags {
	IBV_EXP_RX_HASH_FUNC_TOEPLITZ = 1 << 0,
	IBV_EXP_RX_HASH_FUNC_XOR = 1 << 1
};

enum ibv_exp_rx_hash_fields {
	IBV_EXP_RX_HASH_SRC_IPV4 = 1 << 0,
	IBV_EXP_RX_HASH_DST_IPV4 = 1 << 1,
	IBV_EXP_RX_HASH_SRC_IPV6 = 1 << 2,
	IBV_EXP_RX_HASH_DST_IPV6 = 1 << 3,
	IBV_EXP_RX_HASH_SRC_PORT_TCP = 1 << 4,
	IBV_EXP_RX_HASH_DST_PORT_TCP = 1 << 5,
	IBV_EXP_RX_HASH_SRC_PORT_UDP = 1 << 6,
	IBV_EXP_RX_HASH_DST_PORT_UDP = 1 << 7,
};

#define IBV_EXP_RX_HASH_INNER (1ULL << 31)

struct ibv_exp_rx_hash_conf {
	uint8_t rx_hash_function;
	uint8_t rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
	struct ibv_exp_rwq_ind_table *rwq_ind_tbl;
};

struct ibv_exp_wq *ibv_exp_create_wq(struct ibv_context *context,
				     struct ibv_exp_wq_init_attr *wq_init_attr);
int ibv_exp_modify_wq(struct ibv_exp_wq *wq, struct ibv_exp_wq_attr *wq_attr);
int ibv_exp_destroy_wq(struct ibv_exp_wq *wq);
struct ibv_exp_rwq_ind_table *ibv_exp_create_rwq_ind_table(
	struct ibv_context *context,
	struct ibv_exp_rwq_ind_table_init_attr *init_attr);
int ibv_exp_destroy_rwq_ind_table(struct ibv_exp_rwq_ind_table *rwq_ind_table);

/* -------------------------------------------------------------------------- */
/* Families of data-path functions                                            */
/* -------------------------------------------------------------------------- */

enum ibv_exp_query_intf_flags {
	IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS = (1 << 0),
};

enum ibv_exp_intf_family {
	IBV_EXP_INTF_QP_BURST,
	IBV_EXP_INTF_CQ,
	IBV_EXP_INTF_WQ,
	IBV_EXP_INTF_RESERVED,
};

enum ibv_exp_experimental_intf_family {
	IBV_EXP_EXPERIMENTAL_INTF_RESERVED,
};

enum ibv_exp_intf_scope {
	IBV_EXP_INTF_GLOBAL,
	IBV_EXP_INTF_EXPERIMENTAL,
	IBV_EXP_INTF_VENDOR,
	IBV_EXP_INTF_VENDOR_EXPERIMENTAL,
};

enum ibv_exp_query_intf_status {
	IBV_EXP_INTF_STAT_OK,
	IBV_EXP_INTF_STAT_VENDOR_NOT_SUPPORTED,
	IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED,
	IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED,
	IBV_EXP_INTF_STAT_INVAL_PARARM,
	IBV_EXP_INTF_STAT_INVAL_OBJ_STATE,
	IBV_EXP_INTF_STAT_INVAL_OBJ,
	IBV_EXP_INTF_STAT_FLAGS_NOT_SUPPORTED,
	IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED,
};

enum ibv_exp_query_intf_comp_mask {
	IBV_EXP_QUERY_INTF_RESERVED = (1 << 0),
};

struct ibv_exp_query_intf_params {
	uint32_t flags;
	enum ibv_exp_intf_scope intf_scope;
	uint64_t vendor_guid;
	uint32_t intf;
	uint32_t intf_version;
	void *obj;
	void *family_params;
	uint32_t family_flags;
	uint32_t comp_mask;
};

enum ibv_exp_release_intf_comp_mask {
	IBV_EXP_RELEASE_INTF_RESERVED = (1 << 0),
};

struct ibv_exp_release_intf_params {
	uint32_t comp_mask;
};

enum ibv_exp_qp_burst_family_create_flags {
	IBV_EXP_QP_BURST_CREATE_DISABLE_ETH_LOOPBACK = (1 << 0),
	IBV_EXP_QP_BURST_CREATE_ENABLE_MULTI_PACKET_SEND_WR = (1 << 1),
};

enum ibv_exp_qp_burst_family_flags {
	IBV_EXP_QP_BURST_SIGNALED = 1 << 0,
	IBV_EXP_QP_BURST_SOLICITED = 1 << 1,
	IBV_EXP_QP_BURST_IP_CSUM = 1 << 2,
	IBV_EXP_QP_BURST_TUNNEL = 1 << 3,
	IBV_EXP_QP_BURST_FENCE = 1 << 4,
};

struct ibv_exp_qp_burst_family {
	int (*send_pending)(struct ibv_qp *qp, uint64_t addr, uint32_t length, uint32_t lkey, uint32_t flags);
	int (*send_pending_inline)(struct ibv_qp *qp, void *addr, uint32_t length, uint32_t flags);
	int (*send_pending_sg_list)(struct ibv_qp *qp, struct ibv_sge *sg_list, uint32_t num, uint32_t flags);
	int (*send_flush)(struct ibv_qp *qp);
	int (*send_burst)(struct ibv_qp *qp, struct ibv_sge *msg_list, uint32_t num, uint32_t flags);
	int (*recv_burst)(struct ibv_qp *qp, struct ibv_sge *msg_list, uint32_t num);
};

struct ibv_exp_qp_burst_family_v1 {
	int (*send_pending)(struct ibv_qp *qp, uint64_t addr, uint32_t length, uint32_t lkey, uint32_t flags);
	int (*send_pending_inline)(struct ibv_qp *qp, void *addr, uint32_t length, uint32_t flags);
	int (*send_pending_sg_list)(struct ibv_qp *qp, struct ibv_sge *sg_list, uint32_t num, uint32_t flags);
	int (*send_flush)(struct ibv_qp *qp);
	int (*send_burst)(struct ibv_qp *qp, struct ibv_sge *msg_list, uint32_t num, uint32_t flags);
	int (*recv_burst)(struct ibv_qp *qp, struct ibv_sge *msg_list, uint32_t num);
	int (*send_pending_vlan)(struct ibv_qp *qp, uint64_t addr, uint32_t length,
				 uint32_t lkey, uint32_t flags, uint16_t *vlan_tci);
	int (*send_pending_inline_vlan)(struct ibv_qp *qp, void *addr, uint32_t length,
					uint32_t flags, uint16_t *vlan_tci);
	int (*send_pending_sg_list_vlan)(struct ibv_qp *qp, struct ibv_sge *sg_list, uint32_t num,
					 uint32_t flags, uint16_t *vlan_tci);
};

struct ibv_exp_wq_family {
	int (*recv_sg_list)(struct ibv_exp_wq *wq, struct ibv_sge *sg_list, uint32_t num_sg);
	int (*recv_burst)(struct ibv_exp_wq *wq, struct ibv_sge *msg_list, uint32_t num);
};

enum ibv_exp_cq_family_flags {
	IBV_EXP_CQ_RX_IP_CSUM_OK = 1 << 0,
	IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK = 1 << 1,
	IBV_EXP_CQ_RX_IPV4_PACKET = 1 << 2,
	IBV_EXP_CQ_RX_IPV6_PACKET = 1 << 3,
	IBV_EXP_CQ_RX_TUNNEL_PACKET = 1 << 4,
	IBV_EXP_CQ_RX_OUTER_IP_CSUM_OK = 1 << 5,
	IBV_EXP_CQ_RX_OUTER_TCP_UDP_CSUM_OK = 1 << 6,
	IBV_EXP_CQ_RX_OUTER_IPV4_PACKET = 1 << 7,
	IBV_EXP_CQ_RX_OUTER_IPV6_PACKET = 1 << 8,
	IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1 = 1 << 9,
	IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1 = 1 << 10,
	IBV_EXP_CQ_RX_TCP_PACKET = 1 << 11,
	IBV_EXP_CQ_RX_UDP_PACKET = 1 << 12,
	IBV_EXP_CQ_RX_WITH_TIMESTAMP = 1 << 13,
};

struct ibv_exp_cq_family {
	int32_t (*poll_cnt)(struct ibv_cq *cq, uint32_t max);
	int32_t (*poll_length)(struct ibv_cq *cq, void *buf, uint32_t *inl);
	int32_t (*poll_length_flags)(struct ibv_cq *cq, void *buf, uint32_t *inl, uint32_t *flags);
};

struct ibv_exp_cq_family_v1 {
	int32_t (*poll_cnt)(struct ibv_cq *cq, uint32_t max);
	int32_t (*poll_length)(struct ibv_cq *cq, void *buf, uint32_t *inl);
	int32_t (*poll_length_flags)(struct ibv_cq *cq, void *buf, uint32_t *inl, uint32_t *flags);
	int32_t (*poll_length_flags_mp_rq)(struct ibv_cq *cq, uint32_t *offset, uint32_t *flags);
	int32_t (*poll_length_flags_cvlan)(struct ibv_cq *cq, void *buf,
					   uint32_t *inl, uint32_t *flags,
					   uint16_t *vlan_tci);
	int32_t (*poll_length_flags_mp_rq_cvlan)(struct ibv_cq *cq,
						 uint32_t *offset,
						 uint32_t *flags,
						 uint16_t *vlan_tci);
	int32_t (*poll_length_flags_ts)(struct ibv_cq *cq, void *buf,
					uint32_t *inl, uint32_t *flags,
					uint64_t *timestamp);
	int32_t (*poll_length_flags_mp_rq_ts)(struct ibv_cq *cq,
					      uint32_t *offset,
					      uint32_t *flags,
					      uint64_t *timestamp);
	int32_t (*poll_length_flags_cvlan_ts)(struct ibv_cq *cq, void *buf,
					      uint32_t *inl, uint32_t *flags,
					      uint16_t *vlan_tci,
					      uint64_t *timestamp);
	int32_t (*poll_length_flags_mp_rq_cvlan_ts)(struct ibv_cq *cq,
						    uint32_t *offset,
						    uint32_t *flags,
						    uint16_t *vlan_tci,
						    uint64_t *timestamp);
};

/* *status becomes IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED. */
void *ibv_exp_query_intf(struct ibv_context *context,
			 struct ibv_exp_query_intf_params *params,
			 enum ibv_exp_query_intf_status *status);
int ibv_exp_release_intf(struct ibv_context *context, void *intf,
			 struct ibv_exp_release_intf_params *params);

/* -------------------------------------------------------------------------- */
/* Device memory, shared memory, prefetching                                  */
/* -------------------------------------------------------------------------- */

enum ibv_exp_dm_memcpy_dir {
	IBV_EXP_DM_CPY_TO_DEVICE,
	IBV_EXP_DM_CPY_TO_HOST
};

enum ibv_exp_dm_attr_comp_mask {
	IBV_EXP_ALLOC_DM_ATTR_RESERVED = (1 << 0),
};

struct ibv_exp_alloc_dm_attr {
	size_t length;
	uint32_t comp_mask;
};

enum ibv_exp_dm_comp_mask {
	IBV_EXP_DM_COMP_MASK_RESERVED = (1 << 0),
};

struct ibv_exp_dm {
	struct ibv_context *context;
	uint32_t handle;
	uint32_t comp_mask;
};

enum ibv_exp_dm_cpy_comp_mask {
	IBV_EXP_DM_CPY_COMP_MASK_RESERVED = (1 << 0),
};

struct ibv_exp_memcpy_dm_attr {
	enum ibv_exp_dm_memcpy_dir memcpy_dir;
	void *host_addr;
	uint64_t dm_offset;
	size_t length;
	uint32_t comp_mask;
};

enum ibv_exp_reg_shared_mr_comp_mask {
	IBV_EXP_REG_SHARED_MR_RESERVED = (1 << 0)
};

struct ibv_exp_reg_shared_mr_in {
	uint32_t mr_handle;
	struct ibv_pd *pd;
	void *addr;
	uint64_t exp_access;
	uint32_t comp_mask;
};

enum ibv_exp_prefetch_attr_comp_mask {
	IBV_EXP_PREFETCH_MR_RESERVED = (1 << 0),
};

enum ibv_exp_prefetch_attr_flags {
	IBV_EXP_PREFETCH_WRITE_ACCESS = (1 << 0),
};

struct ibv_exp_prefetch_attr {
	uint32_t flags;
	void *addr;
	size_t length;
	uint32_t comp_mask;
};

struct ibv_exp_dm *ibv_exp_alloc_dm(struct ibv_context *context,
				    struct ibv_exp_alloc_dm_attr *attr);
int ibv_exp_free_dm(struct ibv_exp_dm *dm);
int ibv_exp_memcpy_dm(struct ibv_exp_dm *dm,
		      struct ibv_exp_memcpy_dm_attr *attr);
struct ibv_mr *ibv_exp_reg_shared_mr(struct ibv_exp_reg_shared_mr_in *mr_in);
int ibv_exp_prefetch_mr(struct ibv_mr *mr, struct ibv_exp_prefetch_attr *attr);

/* -------------------------------------------------------------------------- */
/* Tasks, tag matching, environments                                          */
/* -------------------------------------------------------------------------- */

enum ibv_exp_task_type {
	IBV_EXP_TASK_SEND = 0,
	IBV_EXP_TASK_RECV = 1
};

enum ibv_exp_task_comp_mask {
	IBV_EXP_TASK_RESERVED = (1 << 0)
};

struct ibv_exp_task {
	enum ibv_exp_task_type task_type;
	struct {
		struct ibv_qp *qp;
		union {
			struct ibv_exp_send_wr *send_wr;
			struct ibv_recv_wr *recv_wr;
		};
	} item;
	struct ibv_exp_task *next;
	uint32_t comp_mask;
};

enum ibv_exp_ops_wr_opcode {
	IBV_EXP_WR_TAG_ADD,
	IBV_EXP_WR_TAG_DEL,
	IBV_EXP_WR_TAG_SYNC
};

enum ibv_exp_ops_flags {
	IBV_EXP_OPS_SIGNALED = 1 << 0,
	IBV_EXP_OPS_TM_SYNC = 1 << 1
};

struct ibv_exp_ops_wr {
	uint64_t wr_id;
	struct ibv_exp_ops_wr *next;
	enum ibv_exp_ops_wr_opcode opcode;
	int flags;
	struct {
		uint32_t unexpected_cnt;
		uint32_t handle;
		struct {
			uint64_t recv_wr_id;
			struct ibv_sge *sg_list;
			int num_sge;
			uint64_t tag;
			uint64_t mask;
		} add;
	} tm;
};

enum ibv_exp_tmh_op {
	IBV_EXP_TMH_NO_TAG = 0,
	IBV_EXP_TMH_RNDV = 1,
	IBV_EXP_TMH_FIN = 2,
	IBV_EXP_TMH_EAGER = 3
};

struct ibv_exp_tmh {
	uint8_t opcode;
	uint8_t reserved[3];
	uint32_t app_ctx;
	uint64_t tag;
};

struct ibv_exp_tmh_rvh {
	uint64_t va;
	uint32_t rkey;
	uint32_t len;
};

struct ibv_exp_tmh_ravh {
	uint32_t sl_dct;
	uint32_t reserved;
	uint64_t dc_access_key;
};

/* The pointer to the bad one is set to the first. */
int ibv_exp_post_task(struct ibv_context *context, struct ibv_exp_task *task,
		      struct ibv_exp_task **bad_task);
int ibv_exp_post_srq_ops(struct ibv_srq *srq, struct ibv_exp_ops_wr *op,
			 struct ibv_exp_ops_wr **bad_op);

/* -1 with errno ENOSYS. */
int ibv_exp_use_priv_env(struct ibv_context *context);

/* -------------------------------------------------------------------------- */
/* Erasure coding                                                             */
/* -------------------------------------------------------------------------- */

enum ibv_exp_ec_calc_attr_comp_mask {
	IBV_EXP_EC_CALC_ATTR_MAX_INFLIGHT = (1 << 0),
	IBV_EXP_EC_CALC_ATTR_K = (1 << 1),
	IBV_EXP_EC_CALC_ATTR_M = (1 << 2),
	IBV_EXP_EC_CALC_ATTR_W = (1 << 3),
	IBV_EXP_EC_CALC_ATTR_MAX_DATA_SGE = (1 << 4),
	IBV_EXP_EC_CALC_ATTR_MAX_CODE_SGE = (1 << 5),
	IBV_EXP_EC_CALC_ATTR_ENCODE_MAT = (1 << 6),
	IBV_EXP_EC_CALC_ATTR_AFFINITY = (1 << 7),
	IBV_EXP_EC_CALC_ATTR_POLLING = (1 << 8),
	IBV_EXP_EC_CALC_INIT_ATTR_RESERVED = (1 << 9),
};

struct ibv_exp_ec_calc_init_attr {
	uint32_t comp_mask;
	uint32_t max_inflight_calcs;
	int k;
	int m;
	int w;
	int max_data_sge;
	int max_code_sge;
	uint8_t *encode_matrix;
	int affinity_hint;
	int polling;
};

enum ibv_exp_ec_status {
	IBV_EXP_EC_CALC_SUCCESS,
	IBV_EXP_EC_CALC_FAIL,
};

struct ibv_exp_ec_comp {
	void (*done)(struct ibv_exp_ec_comp *comp);
	enum ibv_exp_ec_status status;
};

struct ibv_exp_ec_calc {
	struct ibv_pd *pd;
};

struct ibv_exp_ec_mem {
	struct ibv_sge *data_blocks;
	int num_data_sge;
	struct ibv_sge *code_blocks;
	int num_code_sge;
	int block_size;
};

struct ibv_exp_ec_stripe {
	struct ibv_qp *qp;
	struct ibv_send_wr *wr;
};

struct ibv_exp_ec_calc *
ibv_exp_alloc_ec_calc(struct ibv_pd *pd,
		      struct ibv_exp_ec_calc_init_attr *attr);
void ibv_exp_dealloc_ec_calc(struct ibv_exp_ec_calc *calc);
int ibv_exp_ec_encode_async(struct ibv_exp_ec_calc *calc,
			    struct ibv_exp_ec_mem *ec_mem,
			    struct ibv_exp_ec_comp *ec_comp);
int ibv_exp_ec_encode_sync(struct ibv_exp_ec_calc *calc,
			   struct ibv_exp_ec_mem *ec_mem);
int ibv_exp_ec_decode_async(struct ibv_exp_ec_calc *calc,
			    struct ibv_exp_ec_mem *ec_mem, uint8_t *erasures,
			    uint8_t *decode_matrix,
			    struct ibv_exp_ec_comp *ec_comp);
int ibv_exp_ec_decode_sync(struct ibv_exp_ec_calc *calc,
			   struct ibv_exp_ec_mem *ec_mem, uint8_t *erasures,
			   uint8_t *decode_matrix);
int ibv_exp_ec_update_async(struct ibv_exp_ec_calc *calc,
			    struct ibv_exp_ec_mem *ec_mem,
			    uint8_t *data_updates, uint8_t *code_updates,
			    struct ibv_exp_ec_comp *ec_comp);
int ibv_exp_ec_update_sync(struct ibv_exp_ec_calc *calc,
			   struct ibv_exp_ec_mem *ec_mem,
			   uint8_t *data_updates, uint8_t *code_updates);
int ibv_exp_ec_poll(struct ibv_exp_ec_calc *calc, int n);
int ibv_exp_ec_encode_send(struct ibv_exp_ec_calc *calc,
			   struct ibv_exp_ec_mem *ec_mem,
			   struct ibv_exp_ec_stripe *data_stripes,
			   struct ibv_exp_ec_stripe *code_stripes);

/* -------------------------------------------------------------------------- */
/* Extended connections, as verbs.h had them before ibv_open_xrcd()           */
/* -------------------------------------------------------------------------- */

/* Members that went into the standard structures with them (xrc_domain of
 * struct ibv_qp_init_attr, and of struct ibv_srq) are gone with those.
 */
#define IBV_XRC_QP_EVENT_FLAG 0x80000000

struct ibv_xrc_domain {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_xrc_domain *ibv_open_xrc_domain(struct ibv_context *context, int fd,
					   int oflag);
int ibv_close_xrc_domain(struct ibv_xrc_domain *domain);
struct ibv_srq *ibv_create_xrc_srq(struct ibv_pd *pd,
				   struct ibv_xrc_domain *xrc_domain,
				   struct ibv_cq *xrc_cq,
				   struct ibv_srq_init_attr *srq_init_attr);
int ibv_create_xrc_rcv_qp(struct ibv_qp_init_attr *init_attr,
			  uint32_t *xrc_rcv_qpn);
int ibv_modify_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain,
			  uint32_t xrc_qp_num, struct ibv_qp_attr *attr,
			  int attr_mask);
int ibv_query_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num,
			 struct ibv_qp_attr *attr, int attr_mask,
			 struct ibv_qp_init_attr *init_attr);
int ibv_reg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num);
int ibv_unreg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain,
			 uint32_t xrc_qp_num);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_UNSUPPORTED_H */
