// SPDX-License-Identifier: BSD-2-Clause

#include "hca/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "hca/stats.h"
#include "keyhole_hw.h"

namespace keyhole {

namespace {

struct Name {
  uint32_t number;
  std::string_view name;
};

constexpr std::string_view look_up(std::span<const Name> names, uint32_t number) {
  for (const Name& name : names) {
    if (name.number == number) return name.name;
  }
  return "?";
}

constexpr Name admin_ops[] = {
    {KH_ADM_NOP, "NOP"},
    {KH_ADM_QUERY_DEVICE, "QUERY_DEVICE"},
    {KH_ADM_QUERY_STATS, "QUERY_STATS"},
    {KH_ADM_SET_PORT, "SET_PORT"},
    {KH_ADM_SET_GID, "SET_GID"},
    {KH_ADM_CREATE_EQ, "CREATE_EQ"},
    {KH_ADM_DESTROY_EQ, "DESTROY_EQ"},
    {KH_ADM_CREATE_CONTEXT, "CREATE_CONTEXT"},
    {KH_ADM_DESTROY_CONTEXT, "DESTROY_CONTEXT"},
    {KH_ADM_CREATE_PD, "CREATE_PD"},
    {KH_ADM_DESTROY_PD, "DESTROY_PD"},
    {KH_ADM_CREATE_MKEY, "CREATE_MKEY"},
    {KH_ADM_DESTROY_MKEY, "DESTROY_MKEY"},
    {KH_ADM_MODIFY_MKEY, "MODIFY_MKEY"},
    {KH_ADM_QUERY_MKEY, "QUERY_MKEY"},
    {KH_ADM_CREATE_CQ, "CREATE_CQ"},
    {KH_ADM_DESTROY_CQ, "DESTROY_CQ"},
    {KH_ADM_RESIZE_CQ, "RESIZE_CQ"},
    {KH_ADM_MODIFY_CQ, "MODIFY_CQ"},
    {KH_ADM_CREATE_SRQ, "CREATE_SRQ"},
    {KH_ADM_DESTROY_SRQ, "DESTROY_SRQ"},
    {KH_ADM_MODIFY_SRQ, "MODIFY_SRQ"},
    {KH_ADM_QUERY_SRQ, "QUERY_SRQ"},
    {KH_ADM_RESIZE_SRQ, "RESIZE_SRQ"},
    {KH_ADM_CREATE_QP, "CREATE_QP"},
    {KH_ADM_DESTROY_QP, "DESTROY_QP"},
    {KH_ADM_MODIFY_QP, "MODIFY_QP"},
    {KH_ADM_QUERY_QP, "QUERY_QP"},
    {KH_ADM_ATTACH_MCAST, "ATTACH_MCAST"},
    {KH_ADM_DETACH_MCAST, "DETACH_MCAST"},
    {KH_ADM_CREATE_NIC, "CREATE_NIC"},
    {KH_ADM_DESTROY_NIC, "DESTROY_NIC"},
};

constexpr Name admin_statuses[] = {
    {KH_ST_OK, "OK"},         {KH_ST_INVAL, "INVAL"}, {KH_ST_NOMEM, "NOMEM"},
    {KH_ST_BUSY, "BUSY"},     {KH_ST_NOENT, "NOENT"}, {KH_ST_FAULT, "FAULT"},
    {KH_ST_NOSUPP, "NOSUPP"}, {KH_ST_EXIST, "EXIST"}, {KH_ST_PERM, "PERM"},
};

constexpr Name wc_statuses[] = {
    {KH_WC_SUCCESS, "SUCCESS"},
    {KH_WC_LOC_LEN_ERR, "LOC_LEN_ERR"},
    {KH_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR"},
    {KH_WC_LOC_PROT_ERR, "LOC_PROT_ERR"},
    {KH_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR"},
    {KH_WC_MW_BIND_ERR, "MW_BIND_ERR"},
    {KH_WC_BAD_RESP_ERR, "BAD_RESP_ERR"},
    {KH_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR"},
    {KH_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR"},
    {KH_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR"},
    {KH_WC_REM_OP_ERR, "REM_OP_ERR"},
    {KH_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR"},
    {KH_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR"},
    {KH_WC_REM_ABORT_ERR, "REM_ABORT_ERR"},
    {KH_WC_FATAL_ERR, "FATAL_ERR"},
    {KH_WC_GENERAL_ERR, "GENERAL_ERR"},
};

constexpr Name cqe_opcodes[] = {
    {KH_OP_SEND, "SEND"},
    {KH_OP_SEND_IMM, "SEND_IMM"},
    {KH_OP_SEND_INV, "SEND_INV"},
    {KH_OP_WRITE, "WRITE"},
    {KH_OP_WRITE_IMM, "WRITE_IMM"},
    {KH_OP_READ, "READ"},
    {KH_OP_CMP_SWAP, "CMP_SWAP"},
    {KH_OP_FETCH_ADD, "FETCH_ADD"},
    {KH_OP_LOCAL_INV, "LOCAL_INV"},
    {KH_OP_BIND_MW, "BIND_MW"},
    {KH_OP_REG_MR, "REG_MR"},
    {KH_OP_NOP, "NOP"},
    {KH_OP_FLUSH, "FLUSH"},
    {KH_OP_ATOMIC_WRITE, "ATOMIC_WRITE"},
    {KH_OP_UMR_FILL, "UMR_FILL"},
    {KH_OP_UMR_INV, "UMR_INV"},
    {KH_OP_MASKED_CMP_SWAP, "MASKED_CMP_SWAP"},
    {KH_OP_MASKED_FETCH_ADD, "MASKED_FETCH_ADD"},
    {KH_CQE_RECV, "RECV"},
    {KH_CQE_RECV_WRITE_IMM, "RECV_WRITE_IMM"},
};

constexpr Name events[] = {
    {KH_EV_COMPLETION, "COMPLETION"},
    {KH_EV_CQ_ERR, "CQ_ERR"},
    {KH_EV_QP_FATAL, "QP_FATAL"},
    {KH_EV_QP_REQ_ERR, "QP_REQ_ERR"},
    {KH_EV_QP_ACCESS_ERR, "QP_ACCESS_ERR"},
    {KH_EV_COMM_EST, "COMM_EST"},
    {KH_EV_SQ_DRAINED, "SQ_DRAINED"},
    {KH_EV_QP_LAST_WQE, "QP_LAST_WQE"},
    {KH_EV_SRQ_LIMIT, "SRQ_LIMIT"},
    {KH_EV_SRQ_ERR, "SRQ_ERR"},
    {KH_EV_PORT_UP, "PORT_UP"},
    {KH_EV_PORT_DOWN, "PORT_DOWN"},
    {KH_EV_FATAL, "FATAL"},
};

constexpr Name qp_states[] = {
    {KH_QPS_RESET, "RESET"}, {KH_QPS_INIT, "INIT"}, {KH_QPS_RTR, "RTR"}, {KH_QPS_RTS, "RTS"},
    {KH_QPS_SQD, "SQD"},     {KH_QPS_SQE, "SQE"},   {KH_QPS_ERR, "ERR"},
};

constexpr Name qp_types[] = {
    {KH_QPT_RC, "RC"}, {KH_QPT_UC, "UC"}, {KH_QPT_UD, "UD"}, {KH_QPT_GSI, "GSI"}};

constexpr Name key_uses[] = {
    {KH_SYN_LOCAL_KEY, "LOCAL_KEY"},     {KH_SYN_REMOTE_KEY, "REMOTE_KEY"},
    {KH_SYN_BIND, "BIND"},               {KH_SYN_LOCAL_ENTRY, "LOCAL_ENTRY"},
    {KH_SYN_REMOTE_ENTRY, "REMOTE_ENTRY"}, {KH_SYN_UMR_ENTRY, "UMR_ENTRY"},
};

constexpr bool names_an_entry(uint32_t syndrome) {
  const uint32_t use = syndrome & 0xff00;
  return use == KH_SYN_LOCAL_ENTRY || use == KH_SYN_REMOTE_ENTRY || use == KH_SYN_UMR_ENTRY;
}

constexpr Name key_reasons[] = {
    {KH_SYN_KEY_NONE, "NONE"},   {KH_SYN_KEY_STALE, "STALE"}, {KH_SYN_KEY_FREE, "FREE"},
    {KH_SYN_KEY_PD, "PD"},       {KH_SYN_KEY_RANGE, "RANGE"}, {KH_SYN_KEY_RIGHTS, "RIGHTS"},
    {KH_SYN_KEY_QP, "QP"},       {KH_SYN_KEY_KIND, "KIND"},   {KH_SYN_KEY_MEMORY, "MEMORY"},
    {KH_SYN_KEY_DEPTH, "DEPTH"}, {KH_SYN_KEY_ENTRY, "ENTRY"},
};

constexpr Name syndromes[] = {
    {KH_SYN_NONE, "none"},
    {KH_SYN_WQE_OPCODE, "WQE_OPCODE"},
    {KH_SYN_WQE_SIZE, "WQE_SIZE"},
    {KH_SYN_WQE_FLAGS, "WQE_FLAGS"},
    {KH_SYN_WQE_LENGTH, "WQE_LENGTH"},
    {KH_SYN_WQE_AV, "WQE_AV"},
    {KH_SYN_WQE_RING, "WQE_RING"},
    {KH_SYN_WQE_MEMORY, "WQE_MEMORY"},
    {KH_SYN_RECV_LENGTH, "RECV_LENGTH"},
    {KH_SYN_ATOMIC_ALIGN, "ATOMIC_ALIGN"},
    {KH_SYN_NO_RD_ATOMIC, "NO_RD_ATOMIC"},
    {KH_SYN_BIND_KIND, "BIND_KIND"},
    {KH_SYN_BIND_STALE, "BIND_STALE"},
    {KH_SYN_BIND_NEW_KEY, "BIND_NEW_KEY"},
    {KH_SYN_BIND_BOUND, "BIND_BOUND"},
    {KH_SYN_BIND_LENGTH, "BIND_LENGTH"},
    {KH_SYN_BIND_PD, "BIND_PD"},
    {KH_SYN_BIND_ACCESS, "BIND_ACCESS"},
    {KH_SYN_BIND_REGION, "BIND_REGION"},
    {KH_SYN_BIND_RANGE, "BIND_RANGE"},
    {KH_SYN_INV_KEY, "INV_KEY"},
    {KH_SYN_INV_KIND, "INV_KIND"},
    {KH_SYN_INV_PD, "INV_PD"},
    {KH_SYN_INV_QP, "INV_QP"},
    {KH_SYN_INV_BUSY, "INV_BUSY"},
    {KH_SYN_UMR_KEY, "UMR_KEY"},
    {KH_SYN_UMR_KIND, "UMR_KIND"},
    {KH_SYN_UMR_PD, "UMR_PD"},
    {KH_SYN_UMR_BUSY, "UMR_BUSY"},
    {KH_SYN_UMR_COUNT, "UMR_COUNT"},
    {KH_SYN_UMR_ACCESS, "UMR_ACCESS"},
    {KH_SYN_UMR_RANGE, "UMR_RANGE"},
    {KH_SYN_UMR_LIST, "UMR_LIST"},
    {KH_SYN_RETRY, "RETRY"},
    {KH_SYN_RNR, "RNR"},
    {KH_SYN_NAK_ACCESS, "NAK_ACCESS"},
    {KH_SYN_NAK_INVALID, "NAK_INVALID"},
    {KH_SYN_NAK_OP, "NAK_OP"},
    {KH_SYN_FLUSH, "FLUSH"},
    {KH_SYN_CQ_OVERRUN, "CQ_OVERRUN"},
    {KH_SYN_INV_REMOTE, "INV_REMOTE"},
};

constexpr std::array<std::string_view, KH_NUM_STATS> stat_names = {
    "tx_ops",
    "tx_bytes",
    "tx_packets",
    "rx_ops",
    "rx_bytes",
    "rx_packets",
    "cqes",
    "error_cqes",
    "flushed_cqes",
    "local_errors",
    "remote_access_errors",
    "remote_invalid_requests",
    "remote_op_errors",
    "mw_bind_errors",
    "rnr_naks_sent",
    "rnr_naks_received",
    "rnr_retry_exceeded",
    "retransmits",
    "retry_exceeded",
    "out_of_sequence",
    "duplicates",
    "dropped",
    "mw_binds",
    "invalidates",
    "doorbells",
    "wakes",
    "events",
    "interrupts",
    "admin_commands",
    "admin_errors",
    "nic_tx_frames",
    "nic_tx_bytes",
    "nic_rx_frames",
    "nic_rx_bytes",
    "nic_rx_dropped",
    "umr_fills",
    "umr_errors",
};
static_assert(std::ranges::none_of(stat_names, [](auto name) { return name.empty(); }));

}  // namespace

std::string_view admin_op_name(uint8_t opcode) { return look_up(admin_ops, opcode); }
std::string_view admin_status_name(uint8_t status) { return look_up(admin_statuses, status); }
std::string_view wc_status_name(uint8_t status) { return look_up(wc_statuses, status); }
std::string_view cqe_opcode_name(uint8_t opcode) { return look_up(cqe_opcodes, opcode); }
std::string_view event_name(uint8_t event) { return look_up(events, event); }
std::string_view qp_state_name(uint8_t state) { return look_up(qp_states, state); }
std::string_view qp_type_name(uint8_t type) { return look_up(qp_types, type); }
std::string_view stat_name(kh_stat which) { return stat_names[which]; }

std::string syndrome_name(uint32_t syndrome) {
  if (names_an_entry(syndrome))
    return fmt::format("{} {} of entry {}", look_up(key_uses, syndrome & 0xff00),
                       look_up(key_reasons, syndrome & 0xff), KH_SYN_ENTRY(syndrome));
  std::string_view use = look_up(key_uses, syndrome & ~0xffu);
  std::string_view name =
      use == "?" ? look_up(syndromes, syndrome) : look_up(key_reasons, syndrome & 0xff);
  if (name == "?") return fmt::format("{:#06x}", syndrome);
  return use == "?" ? std::string(name) : fmt::format("{} {}", use, name);
}

}  // namespace keyhole
