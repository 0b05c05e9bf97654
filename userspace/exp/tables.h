// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// From the numbers of the experimental verbs to those of the standard ones, and back.
//
// Both have enumerations for the same things, some with the same numbers, some not: an inline fill
// is opcode 0x67 here and no opcode at all there, a zero-based window is bit 45 here and bit 5
// there. So no value is ever cast across; each crosses by a table, and a value that no table has is
// refused. What is known but not served has its row too, so that ENOSYS ("not here") and EINVAL
// ("not at all") stay apart.

#pragma once

#include <array>

#include "exp.h"

namespace keyhole::exp {

struct Bit {
  uint64_t from;
  uint64_t to;
};
inline constexpr uint64_t kNotServed = ~uint64_t{0};

// Each bit of `bits` through the table. EINVAL: a bit without a row; else ENOSYS: one not served.
template <size_t N>
constexpr std::expected<uint64_t, int> map_bits(const Bit (&table)[N], uint64_t bits) {
  uint64_t to = 0;
  bool served = true;
  for (const Bit& bit : table) {
    if (!(bits & bit.from)) continue;
    bits &= ~bit.from;
    if (bit.to == kNotServed)
      served = false;
    else
      to |= bit.to;
  }
  if (bits) return std::unexpected(EINVAL);
  if (!served) return std::unexpected(ENOSYS);
  return to;
}

// The other direction, for what a device reports: bits without a row mean nothing here.
template <size_t N>
constexpr uint64_t report_bits(const Bit (&table)[N], uint64_t bits) {
  uint64_t to = 0;
  for (const Bit& bit : table)
    if ((bits & bit.from) && bit.to != kNotServed) to |= bit.to;
  return to;
}

// Rights of regions and of fills. No shared, physical or tunnelled regions; RELAXED lets a region
// cover more than was asked for, and none does.
inline constexpr Bit kRegionAccess[] = {
    {IBV_EXP_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE},
    {IBV_EXP_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE},
    {IBV_EXP_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ},
    {IBV_EXP_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC},
    {IBV_EXP_ACCESS_MW_BIND, IBV_ACCESS_MW_BIND},
    {IBV_EXP_ACCESS_ALLOCATE_MR, 0},
    {IBV_EXP_ACCESS_ON_DEMAND, IBV_ACCESS_ON_DEMAND},
    {IBV_EXP_ACCESS_RELAXED, 0},
    {IBV_EXP_ACCESS_SHARED_MR_USER_READ, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_USER_WRITE, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_GROUP_READ, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_OTHER_READ, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE, kNotServed},
    {IBV_EXP_ACCESS_NO_RDMA, kNotServed},
    {IBV_EXP_ACCESS_PHYSICAL_ADDR, kNotServed},
    {IBV_EXP_ACCESS_TUNNELED_ATOMIC, kNotServed},
};

// Of indirect mkeys: when created, and with each fill. They have no memory of their own, so what
// speaks of a region's memory is lacking.
inline constexpr Bit kMkeyAccess[] = {
    {IBV_EXP_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE},
    {IBV_EXP_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE},
    {IBV_EXP_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ},
    {IBV_EXP_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC},
    {IBV_EXP_ACCESS_MW_BIND, IBV_ACCESS_MW_BIND},
    {IBV_EXP_ACCESS_ALLOCATE_MR, kNotServed},
    {IBV_EXP_ACCESS_ON_DEMAND, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_USER_READ, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_USER_WRITE, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_GROUP_READ, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_OTHER_READ, kNotServed},
    {IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE, kNotServed},
};

// Of windows. LOCAL_WRITE means nothing for one, and programs pass it.
inline constexpr Bit kWindowAccess[] = {
    {IBV_EXP_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE},
    {IBV_EXP_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE},
    {IBV_EXP_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ},
    {IBV_EXP_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC},
    {IBV_EXP_ACCESS_MW_ZERO_BASED, IBV_ACCESS_ZERO_BASED},
};

// Of work requests; each kind of request allows some of them only.
inline constexpr Bit kSendFlags[] = {
    {IBV_EXP_SEND_FENCE, IBV_SEND_FENCE},
    {IBV_EXP_SEND_SIGNALED, IBV_SEND_SIGNALED},
    {IBV_EXP_SEND_SOLICITED, IBV_SEND_SOLICITED},
    {IBV_EXP_SEND_INLINE, IBV_SEND_INLINE},
    {IBV_EXP_SEND_IP_CSUM, IBV_SEND_IP_CSUM},
    {IBV_EXP_SEND_WITH_CALC, kNotServed},
    {IBV_EXP_SEND_WAIT_EN_LAST, kNotServed},
    {IBV_EXP_SEND_EXT_ATOMIC_INLINE, 0},
};

inline constexpr Bit kQpCreateFlags[] = {
    {IBV_EXP_QP_CREATE_CROSS_CHANNEL, kNotServed},
    {IBV_EXP_QP_CREATE_MANAGED_SEND, kNotServed},
    {IBV_EXP_QP_CREATE_MANAGED_RECV, kNotServed},
    {IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW, kNotServed},
    {IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW, kNotServed},
    {IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY, kNotServed},
    {IBV_EXP_QP_CREATE_UMR, 0},  // any RC QP of a Keyhole HCA takes fills
    {IBV_EXP_QP_CREATE_EC_PARITY_EN, kNotServed},
    {IBV_EXP_QP_CREATE_RX_END_PADDING, IBV_QP_CREATE_PCI_WRITE_END_PADDING},
    {IBV_EXP_QP_CREATE_SCATTER_FCS, IBV_QP_CREATE_SCATTER_FCS},
    {IBV_EXP_QP_CREATE_TUNNEL_OFFLOADS, kNotServed},
    {IBV_EXP_QP_CREATE_PACKET_BASED_CREDIT_MODE, kNotServed},
};

inline constexpr Bit kQpAttributes[] = {
    {IBV_EXP_QP_STATE, IBV_QP_STATE},
    {IBV_EXP_QP_CUR_STATE, IBV_QP_CUR_STATE},
    {IBV_EXP_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_EXP_QP_ACCESS_FLAGS, IBV_QP_ACCESS_FLAGS},
    {IBV_EXP_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX},
    {IBV_EXP_QP_PORT, IBV_QP_PORT},
    {IBV_EXP_QP_QKEY, IBV_QP_QKEY},
    {IBV_EXP_QP_AV, IBV_QP_AV},
    {IBV_EXP_QP_PATH_MTU, IBV_QP_PATH_MTU},
    {IBV_EXP_QP_TIMEOUT, IBV_QP_TIMEOUT},
    {IBV_EXP_QP_RETRY_CNT, IBV_QP_RETRY_CNT},
    {IBV_EXP_QP_RNR_RETRY, IBV_QP_RNR_RETRY},
    {IBV_EXP_QP_RQ_PSN, IBV_QP_RQ_PSN},
    {IBV_EXP_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC},
    {IBV_EXP_QP_ALT_PATH, IBV_QP_ALT_PATH},
    {IBV_EXP_QP_MIN_RNR_TIMER, IBV_QP_MIN_RNR_TIMER},
    {IBV_EXP_QP_SQ_PSN, IBV_QP_SQ_PSN},
    {IBV_EXP_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC},
    {IBV_EXP_QP_PATH_MIG_STATE, IBV_QP_PATH_MIG_STATE},
    {IBV_EXP_QP_CAP, IBV_QP_CAP},
    {IBV_EXP_QP_DEST_QPN, IBV_QP_DEST_QPN},
    {IBV_EXP_QP_RATE_LIMIT, IBV_QP_RATE_LIMIT},
    {IBV_EXP_QP_GROUP_RSS, kNotServed},
    {IBV_EXP_QP_DC_KEY, kNotServed},
    {IBV_EXP_QP_FLOW_ENTROPY, kNotServed},
    {IBV_EXP_QP_OOO_RW_DATA_PLACEMENT, kNotServed},
};

// Reported, so from the standard's to ours. Managed flow steering has no row: ibv_exp_create_flow()
// is not served.
inline constexpr Bit kDeviceFlags[] = {
    {IBV_DEVICE_RESIZE_MAX_WR, IBV_EXP_DEVICE_RESIZE_MAX_WR},
    {IBV_DEVICE_BAD_PKEY_CNTR, IBV_EXP_DEVICE_BAD_PKEY_CNTR},
    {IBV_DEVICE_BAD_QKEY_CNTR, IBV_EXP_DEVICE_BAD_QKEY_CNTR},
    {IBV_DEVICE_RAW_MULTI, IBV_EXP_DEVICE_RAW_MULTI},
    {IBV_DEVICE_AUTO_PATH_MIG, IBV_EXP_DEVICE_AUTO_PATH_MIG},
    {IBV_DEVICE_CHANGE_PHY_PORT, IBV_EXP_DEVICE_CHANGE_PHY_PORT},
    {IBV_DEVICE_UD_AV_PORT_ENFORCE, IBV_EXP_DEVICE_UD_AV_PORT_ENFORCE},
    {IBV_DEVICE_CURR_QP_STATE_MOD, IBV_EXP_DEVICE_CURR_QP_STATE_MOD},
    {IBV_DEVICE_SHUTDOWN_PORT, IBV_EXP_DEVICE_SHUTDOWN_PORT},
    {IBV_DEVICE_INIT_TYPE, IBV_EXP_DEVICE_INIT_TYPE},
    {IBV_DEVICE_PORT_ACTIVE_EVENT, IBV_EXP_DEVICE_PORT_ACTIVE_EVENT},
    {IBV_DEVICE_SYS_IMAGE_GUID, IBV_EXP_DEVICE_SYS_IMAGE_GUID},
    {IBV_DEVICE_RC_RNR_NAK_GEN, IBV_EXP_DEVICE_RC_RNR_NAK_GEN},
    {IBV_DEVICE_SRQ_RESIZE, IBV_EXP_DEVICE_SRQ_RESIZE},
    {IBV_DEVICE_N_NOTIFY_CQ, IBV_EXP_DEVICE_N_NOTIFY_CQ},
    {IBV_DEVICE_XRC, IBV_EXP_DEVICE_XRC},
    {IBV_DEVICE_MEM_WINDOW, IBV_EXP_DEVICE_MEM_WINDOW},
    {IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_EXP_DEVICE_MEM_MGT_EXTENSIONS},
    {IBV_DEVICE_MEM_WINDOW_TYPE_2A, IBV_EXP_DEVICE_MW_TYPE_2A},
    {IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_EXP_DEVICE_MW_TYPE_2B},
    {IBV_DEVICE_RAW_IP_CSUM,
     IBV_EXP_DEVICE_RX_CSUM_IP_PKT | IBV_EXP_DEVICE_RX_CSUM_TCP_UDP_PKT},
    {IBV_DEVICE_RAW_SCATTER_FCS, IBV_EXP_DEVICE_SCATTER_FCS},
};

inline constexpr Bit kOdpGeneral[] = {
    {IBV_ODP_SUPPORT, IBV_EXP_ODP_SUPPORT},
    {IBV_ODP_SUPPORT_IMPLICIT, IBV_EXP_ODP_SUPPORT_IMPLICIT},
};

inline constexpr Bit kOdpTransport[] = {
    {IBV_ODP_SUPPORT_SEND, IBV_EXP_ODP_SUPPORT_SEND},
    {IBV_ODP_SUPPORT_RECV, IBV_EXP_ODP_SUPPORT_RECV},
    {IBV_ODP_SUPPORT_WRITE, IBV_EXP_ODP_SUPPORT_WRITE},
    {IBV_ODP_SUPPORT_READ, IBV_EXP_ODP_SUPPORT_READ},
    {IBV_ODP_SUPPORT_ATOMIC, IBV_EXP_ODP_SUPPORT_ATOMIC},
    {IBV_ODP_SUPPORT_SRQ_RECV, IBV_EXP_ODP_SUPPORT_SRQ_RECV},
};

inline constexpr Bit kWcFlags[] = {
    {IBV_WC_GRH, IBV_EXP_WC_GRH},
    {IBV_WC_WITH_IMM, IBV_EXP_WC_WITH_IMM},
    {IBV_WC_WITH_INV, IBV_EXP_WC_WITH_INV},
    {IBV_WC_IP_CSUM_OK, IBV_EXP_WC_RX_IP_CSUM_OK | IBV_EXP_WC_RX_TCP_UDP_CSUM_OK},
    {IBV_WC_TM_SYNC_REQ, IBV_EXP_WC_TM_SYNC_REQ},
    {IBV_WC_TM_MATCH, IBV_EXP_WC_TM_MATCH},
    {IBV_WC_TM_DATA_VALID, IBV_EXP_WC_TM_DATA_VALID},
};

// How an opcode reaches the hardware. kNotServed: known, and ENOSYS.
enum class Way : uint8_t { kStandard, kKeyhole, kNotServed };

struct SendOpcode {
  ibv_exp_wr_opcode from;
  Way way;
  int to;  // enum ibv_wr_opcode or enum keyholedv_wr_opcode
};

inline constexpr SendOpcode kSendOpcodes[] = {
    {IBV_EXP_WR_RDMA_WRITE, Way::kStandard, IBV_WR_RDMA_WRITE},
    {IBV_EXP_WR_RDMA_WRITE_WITH_IMM, Way::kStandard, IBV_WR_RDMA_WRITE_WITH_IMM},
    {IBV_EXP_WR_SEND, Way::kStandard, IBV_WR_SEND},
    {IBV_EXP_WR_SEND_WITH_IMM, Way::kStandard, IBV_WR_SEND_WITH_IMM},
    {IBV_EXP_WR_RDMA_READ, Way::kStandard, IBV_WR_RDMA_READ},
    {IBV_EXP_WR_ATOMIC_CMP_AND_SWP, Way::kStandard, IBV_WR_ATOMIC_CMP_AND_SWP},
    {IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, Way::kStandard, IBV_WR_ATOMIC_FETCH_AND_ADD},
    {IBV_EXP_WR_LOCAL_INV, Way::kStandard, IBV_WR_LOCAL_INV},
    {IBV_EXP_WR_BIND_MW, Way::kStandard, IBV_WR_BIND_MW},
    {IBV_EXP_WR_SEND_WITH_INV, Way::kStandard, IBV_WR_SEND_WITH_INV},
    {IBV_EXP_WR_TSO, Way::kStandard, IBV_WR_TSO},
    {IBV_EXP_WR_UMR_FILL, Way::kKeyhole, KEYHOLEDV_WR_FILL},
    {IBV_EXP_WR_UMR_INVALIDATE, Way::kKeyhole, KEYHOLEDV_WR_INVALIDATE},
    {IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP, Way::kKeyhole, KEYHOLEDV_WR_MASKED_CMP_SWAP},
    {IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, Way::kKeyhole, KEYHOLEDV_WR_MASKED_FETCH_ADD},
    {IBV_EXP_WR_NOP, Way::kKeyhole, KEYHOLEDV_WR_NOP},
    {IBV_EXP_WR_SEND_ENABLE, Way::kNotServed, 0},
    {IBV_EXP_WR_RECV_ENABLE, Way::kNotServed, 0},
    {IBV_EXP_WR_CQE_WAIT, Way::kNotServed, 0},
};

constexpr const SendOpcode* send_opcode(uint32_t opcode) {
  for (const SendOpcode& row : kSendOpcodes)
    if (static_cast<uint32_t>(row.from) == opcode) return &row;
  return nullptr;
}

struct WcOpcode {
  int from;  // enum ibv_wc_opcode, enum keyholedv_wc_opcode
  ibv_exp_wc_opcode to;
};

inline constexpr WcOpcode kWcOpcodes[] = {
    {IBV_WC_SEND, IBV_EXP_WC_SEND},
    {IBV_WC_RDMA_WRITE, IBV_EXP_WC_RDMA_WRITE},
    {IBV_WC_RDMA_READ, IBV_EXP_WC_RDMA_READ},
    {IBV_WC_COMP_SWAP, IBV_EXP_WC_COMP_SWAP},
    {IBV_WC_FETCH_ADD, IBV_EXP_WC_FETCH_ADD},
    {IBV_WC_BIND_MW, IBV_EXP_WC_BIND_MW},
    {IBV_WC_LOCAL_INV, IBV_EXP_WC_LOCAL_INV},
    {IBV_WC_TSO, IBV_EXP_WC_TSO},
    {IBV_WC_RECV, IBV_EXP_WC_RECV},
    {IBV_WC_RECV_RDMA_WITH_IMM, IBV_EXP_WC_RECV_RDMA_WITH_IMM},
    {IBV_WC_TM_ADD, IBV_EXP_WC_TM_ADD},
    {IBV_WC_TM_DEL, IBV_EXP_WC_TM_DEL},
    {IBV_WC_TM_SYNC, IBV_EXP_WC_TM_SYNC},
    {IBV_WC_TM_RECV, IBV_EXP_WC_TM_RECV},
    {IBV_WC_TM_NO_TAG, IBV_EXP_WC_TM_NO_TAG},
    {KEYHOLEDV_WC_UMR, IBV_EXP_WC_UMR},
    {KEYHOLEDV_WC_MASKED_CMP_SWAP, IBV_EXP_WC_MASKED_COMP_SWAP},
    {KEYHOLEDV_WC_MASKED_FETCH_ADD, IBV_EXP_WC_MASKED_FETCH_ADD},
    {KEYHOLEDV_WC_NOP, IBV_EXP_WC_SEND},  // there is no number for a NOP that was sent
};

// An opcode without a row can only be a provider's own request, of a kind of send.
inline constexpr auto kWcOpcodeOf = [] {
  std::array<ibv_exp_wc_opcode, 256> of;
  of.fill(IBV_EXP_WC_SEND);
  for (const WcOpcode& row : kWcOpcodes) of[static_cast<size_t>(row.from)] = row.to;
  return of;
}();

constexpr ibv_exp_wc_opcode wc_opcode(int opcode) {
  const auto index = static_cast<size_t>(opcode);
  return index < kWcOpcodeOf.size() ? kWcOpcodeOf[index] : IBV_EXP_WC_SEND;
}

// The same enumeration on both sides, with two statuses of tag matching that the old one lacked:
// each is at its own index, and what a later verbs.h adds is a general error here.
inline constexpr ibv_wc_status kStatuses[] = {
    IBV_WC_SUCCESS,
    IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_QP_OP_ERR,
    IBV_WC_LOC_EEC_OP_ERR,
    IBV_WC_LOC_PROT_ERR,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WC_MW_BIND_ERR,
    IBV_WC_BAD_RESP_ERR,
    IBV_WC_LOC_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR,
    IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_OP_ERR,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_RNR_RETRY_EXC_ERR,
    IBV_WC_LOC_RDD_VIOL_ERR,
    IBV_WC_REM_INV_RD_REQ_ERR,
    IBV_WC_REM_ABORT_ERR,
    IBV_WC_INV_EECN_ERR,
    IBV_WC_INV_EEC_STATE_ERR,
    IBV_WC_FATAL_ERR,
    IBV_WC_RESP_TIMEOUT_ERR,
    IBV_WC_GENERAL_ERR,
    IBV_WC_TM_ERR,
    IBV_WC_TM_RNDV_INCOMPLETE,
};
constexpr bool each_at_its_index() {
  for (size_t i = 0; i < std::size(kStatuses); ++i)
    if (static_cast<size_t>(kStatuses[i]) != i) return false;
  return true;
}
static_assert(each_at_its_index());

constexpr ibv_wc_status wc_status(ibv_wc_status status) {
  const auto index = static_cast<size_t>(status);
  return index < std::size(kStatuses) ? kStatuses[index] : IBV_WC_GENERAL_ERR;
}

constexpr ibv_exp_atomic_cap atomic_cap(ibv_atomic_cap cap) {
  switch (cap) {
    case IBV_ATOMIC_HCA: return IBV_EXP_ATOMIC_HCA;
    case IBV_ATOMIC_GLOB: return IBV_EXP_ATOMIC_GLOB;
    default: return IBV_EXP_ATOMIC_NONE;
  }
}

}  // namespace keyhole::exp
