// SPDX-License-Identifier: BSD-2-Clause

#include "hca/transport/qp_transitions.h"

#include <array>
#include <cstddef>

namespace keyhole {
namespace {

struct Row {
  uint8_t from;
  uint8_t to;
  // For RC, UC and UD; GSI is as UD but for the port, which it has by nature.
  std::array<uint32_t, 3> required;
  std::array<uint32_t, 3> optional;
};

constexpr uint32_t kInitConnected = KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_ACCESS_FLAGS;
constexpr uint32_t kInitDatagram = KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_QKEY;
constexpr uint32_t kRtrUc = KH_QP_AV | KH_QP_PATH_MTU | KH_QP_DEST_QPN | KH_QP_RQ_PSN;
constexpr uint32_t kRtrRc = kRtrUc | KH_QP_MAX_DEST_RD_ATOMIC | KH_QP_MIN_RNR_TIMER;
constexpr uint32_t kRtsRc =
    KH_QP_SQ_PSN | KH_QP_TIMEOUT | KH_QP_RETRY_CNT | KH_QP_RNR_RETRY | KH_QP_MAX_QP_RD_ATOMIC;
constexpr uint32_t kLiveRc = KH_QP_CUR_STATE | KH_QP_ACCESS_FLAGS | KH_QP_MIN_RNR_TIMER;
constexpr uint32_t kLiveUc = KH_QP_CUR_STATE | KH_QP_ACCESS_FLAGS;
constexpr uint32_t kLiveUd = KH_QP_CUR_STATE | KH_QP_QKEY;
constexpr uint32_t kSqdRc = KH_QP_PORT | KH_QP_AV | KH_QP_TIMEOUT | KH_QP_RETRY_CNT |
                            KH_QP_RNR_RETRY | KH_QP_MAX_QP_RD_ATOMIC | KH_QP_MAX_DEST_RD_ATOMIC |
                            KH_QP_ACCESS_FLAGS | KH_QP_PKEY_INDEX | KH_QP_MIN_RNR_TIMER;
constexpr uint32_t kNotify = KH_QP_EN_SQD_ASYNC_NOTIFY;

constexpr Row kRows[] = {
    {KH_QPS_RESET, KH_QPS_INIT, {kInitConnected, kInitConnected, kInitDatagram}, {0, 0, 0}},
    {KH_QPS_INIT, KH_QPS_INIT, {0, 0, 0}, {kInitConnected, kInitConnected, kInitDatagram}},
    {KH_QPS_INIT,
     KH_QPS_RTR,
     {kRtrRc, kRtrUc, 0},
     {KH_QP_ACCESS_FLAGS | KH_QP_PKEY_INDEX, KH_QP_ACCESS_FLAGS | KH_QP_PKEY_INDEX,
      KH_QP_PKEY_INDEX | KH_QP_QKEY}},
    {KH_QPS_RTR, KH_QPS_RTS, {kRtsRc, KH_QP_SQ_PSN, KH_QP_SQ_PSN}, {kLiveRc, kLiveUc, kLiveUd}},
    {KH_QPS_RTS, KH_QPS_RTS, {0, 0, 0}, {kLiveRc, kLiveUc, kLiveUd}},
    {KH_QPS_RTS, KH_QPS_SQD, {0, 0, 0}, {kNotify, kNotify, kNotify}},
    {KH_QPS_SQD, KH_QPS_RTS, {0, 0, 0}, {kLiveRc, kLiveUc, kLiveUd}},
    {KH_QPS_SQD,
     KH_QPS_SQD,
     {0, 0, 0},
     {kSqdRc, KH_QP_AV | KH_QP_ACCESS_FLAGS | KH_QP_PKEY_INDEX, KH_QP_PKEY_INDEX | KH_QP_QKEY}},
};

}  // namespace

Transition find_transition(uint8_t type, uint8_t from, uint8_t to) {
  if (type > KH_QPT_GSI || from > KH_QPS_ERR || to > KH_QPS_ERR) return {};
  // From anywhere one may go back to the start, and from anywhere but the start into error.
  if (to == KH_QPS_RESET) return {.exists = true};
  if (to == KH_QPS_ERR) return {.exists = from != KH_QPS_RESET};
  // Only unreliable queue pairs know the error state of the send queue.
  if (from == KH_QPS_SQE) {
    if (to != KH_QPS_RTS || type == KH_QPT_RC) return {};
    return {.exists = true, .optional = type == KH_QPT_UC ? kLiveUc : kLiveUd};
  }
  std::size_t column = type == KH_QPT_GSI ? std::size_t{KH_QPT_UD} : type;
  for (const Row& row : kRows) {
    if (row.from != from || row.to != to) continue;
    Transition found{true, row.required[column], row.optional[column]};
    if (type == KH_QPT_GSI && (found.required & KH_QP_PORT)) {
      found.required &= ~KH_QP_PORT;
      found.optional |= KH_QP_PORT;
    }
    return found;
  }
  return {};
}

uint64_t rnr_delay_ns(uint8_t code) {
  // In units of 10 us. 0 is the longest.
  static constexpr std::array<uint32_t, 32> kTens = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return uint64_t{kTens[code & 31]} * 10'000;
}

}  // namespace keyhole
