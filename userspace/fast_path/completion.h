// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Taking CQEs from the ring, for both ways of polling. A CQE also carries the accounts of the queue
// that it reports on: a send's says up to which block the SQ is free again, a receive's gives back
// one WQE. The CQ's lock is held throughout.

#pragma once

#include <array>

#include "fast_path.h"
#include "shared_memory.h"

namespace keyhole::verbs {

// By the device's opcode of a request.
inline constexpr std::array<ibv_wc_opcode, 32> kSendCompletion = [] {
  std::array<ibv_wc_opcode, 32> map{};
  map[KH_OP_SEND] = map[KH_OP_SEND_IMM] = map[KH_OP_SEND_INV] = IBV_WC_SEND;
  map[KH_OP_WRITE] = map[KH_OP_WRITE_IMM] = IBV_WC_RDMA_WRITE;
  map[KH_OP_READ] = IBV_WC_RDMA_READ;
  map[KH_OP_CMP_SWAP] = IBV_WC_COMP_SWAP;
  map[KH_OP_FETCH_ADD] = IBV_WC_FETCH_ADD;
  map[KH_OP_LOCAL_INV] = IBV_WC_LOCAL_INV;
  map[KH_OP_BIND_MW] = IBV_WC_BIND_MW;
  map[KH_OP_UMR_FILL] = map[KH_OP_UMR_INV] = static_cast<ibv_wc_opcode>(KEYHOLEDV_WC_UMR);
  map[KH_OP_MASKED_CMP_SWAP] = static_cast<ibv_wc_opcode>(KEYHOLEDV_WC_MASKED_CMP_SWAP);
  map[KH_OP_MASKED_FETCH_ADD] = static_cast<ibv_wc_opcode>(KEYHOLEDV_WC_MASKED_FETCH_ADD);
  map[KH_OP_NOP] = static_cast<ibv_wc_opcode>(KEYHOLEDV_WC_NOP);
  map[KH_OP_FLUSH] = static_cast<ibv_wc_opcode>(8);  // IBV_WC_FLUSH, which old headers lack
  map[KH_OP_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE;
  return map;
}();

inline ibv_wc_opcode wc_opcode(const kh_cqe& cqe) {
  if (cqe.opcode & KH_CQE_RECV)
    return cqe.opcode == KH_CQE_RECV ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  return kSendCompletion[cqe.opcode & 31];
}

// The flags of an unsuccessful completion mean nothing.
inline unsigned wc_flags(const kh_cqe& cqe) {
  static_assert(KH_CQE_IMM == 1 && KH_CQE_INV == 2 && KH_CQE_GRH == 4);
  constexpr auto map = [] {
    std::array<std::uint8_t, 8> flags{};
    for (unsigned i = 0; i < 8; i++)
      flags[i] = (i & KH_CQE_IMM ? IBV_WC_WITH_IMM : 0) | (i & KH_CQE_INV ? IBV_WC_WITH_INV : 0) |
                 (i & KH_CQE_GRH ? IBV_WC_GRH : 0);
    return flags;
  }();
  return cqe.status == KH_WC_SUCCESS ? map[cqe.flags & 7] : 0;
}

// The entry at this index if the device has written it, else null. The load takes the whole last
// word, as the device stores it, not the phase byte alone: the two then are one and the same atomic
// object.
inline kh_cqe* new_cqe(const Cq& cq, std::uint32_t index) {
  constexpr std::size_t last_word = sizeof(kh_cqe) - sizeof(std::uint64_t);
  static_assert(offsetof(kh_cqe, phase) == sizeof(kh_cqe) - 1);
  kh_cqe* cqe = &cq.ring[index & cq.mask];
  const auto* word =
      reinterpret_cast<const std::uint64_t*>(reinterpret_cast<std::byte*>(cqe) + last_word);
  const auto phase = static_cast<unsigned>(load_acquire(*word) >> 56);
  return ((phase ^ index >> cq.log_size) & 1) ? cqe : nullptr;
}

// Gives the queue of this CQE its room back.
inline void settle(Qp& qp, const kh_cqe& cqe) {
  if (!(cqe.opcode & KH_CQE_RECV))
    store_release(qp.sq.ci, cqe.sq_index);
  else if (qp.srq)
    __atomic_fetch_add(&qp.srq->completed, 1, __ATOMIC_RELEASE);
  else
    store_release(qp.rq.ci, qp.rq.ci + 1);
}

// The next CQE that the application is to see, or null. It stays valid until ci is published.
inline const kh_cqe* take_cqe(Cq& cq) {
  while (const kh_cqe* cqe = new_cqe(cq, cq.ci)) {
    cq.ci++;
    if (cqe->opcode == KH_CQE_SKIP) [[unlikely]]
      continue;
    Qp* qp = cq.qps->find(cqe->qpn);
    if (!qp) [[unlikely]]  // a QP that is being taken down: as if it were marked already
      continue;
    settle(*qp, *cqe);
    return cqe;
  }
  return nullptr;
}

inline void publish_ci(Cq& cq) { store_release(cq.db->ci, cq.ci); }

}  // namespace keyhole::verbs
